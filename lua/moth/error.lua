--- error.lua -- errors in Lua's own wording, raised at the line that the user wrote.
--
--     train.lua:12: in net.layers[1]: bad argument 'kernel_size' to 'max_pool2d' ({9, 9} does not
--     fit f32 (2, 3, 8, 8))
--
-- The line is that of the first stack frame outside Moth's own files, found by walking the stack.
-- A user's `return f(x)` leaves no frame behind; where that can be seen, the message says which
-- function it was.

local ffi = require "ffi"
local system = require "moth.system"

local getinfo, getlocal, getupvalue = debug.getinfo, debug.getlocal, debug.getupvalue
local concat, find, format = table.concat, string.find, string.format
local floor, min = math.floor, math.min

local errors = {}

-- ---- whose code is it ----

local own_prefixes = {}
local own_cache = {} -- source -> boolean

--- Declares that files whose path begins so are Moth's own and never the line to blame.
-- @param prefix  the beginning of a chunk's source, e.g. "@/usr/share/lua/5.1/moth/"
function errors.own(prefix)
  own_prefixes[#own_prefixes + 1] = prefix
  own_cache = {}
end

local function is_own(source)
  local known = own_cache[source]
  if known == nil then
    known = source:sub(1, 6) == "=[moth"
    for i = 1, #own_prefixes do
      local prefix = own_prefixes[i]
      if source:sub(1, #prefix) == prefix then known = true end
    end
    own_cache[source] = known
  end
  return known
end

--- Whether a function is Moth's own or C, not a user's.
function errors.is_own(fn)
  local info = getinfo(fn, "S")
  return info.what == "C" or is_own(info.source)
end

-- The path that led here may be a relative one, and the program may go to another folder, while
-- files are still found at their first use.
local function absolute(folder)
  if folder:find(system.root) then return folder end
  pcall(ffi.cdef, "char *" .. system.getcwd .. "(char *, size_t);")
  local room = ffi.new "char[4096]"
  local found, at = pcall(function() return ffi.C[system.getcwd](room, 4096) end)
  if not found or at == nil then return folder end
  return ffi.string(room) .. "/" .. folder:gsub("^%.[/\\]", "")
end

do -- this file's folder; in a checkout also nn/ beside lua/
  local here = getinfo(1, "S").source:match("^@(.*[/\\])") or "./"
  errors.folder = absolute(here)
  errors.root = errors.folder:match("^(.*)lua[/\\]moth[/\\]$")
  errors.own("@" .. here)
  errors.own("@" .. errors.folder)
  if errors.root then
    errors.own("@" .. errors.root .. "nn/")
    errors.own("@" .. (here:match("^(.*)lua[/\\]moth[/\\]$") or "") .. "nn/")
  end
end

-- ---- modules on the stack ----

local module_frames = {} -- function -> namer

--- Declares that `fn` calls a module's forward, with the module as its first argument.
-- @param fn     the function
-- @param namer  function(list of modules, outermost first) -> a path such as "net.layers[1]", or
-- nil
function errors.module_frame(fn, namer)
  module_frames[fn] = namer
end

local function typename(object)
  local class = package.loaded["moth.class"]
  return type(class) == "table" and class.typename(object) or nil
end

-- "Net.forward, net.lua:14" for a user's function, nil for Moth's own.
local function place_of(fn, name)
  if type(fn) ~= "function" or errors.is_own(fn) then return nil end
  local info = getinfo(fn, "S")
  return format("%s, %s:%d", name, info.short_src, info.linedefined)
end

-- ---- functions that Moth calls for the user ----

local user_calls = {} -- function -> true

--- Declares that `fn(call, ...)` calls call.fn, a user's function named call.name, and then checks
-- what it returned (call.returned). An error that finds no line of the user's above that stands at
-- the line where the function was written.
function errors.user_call(fn)
  user_calls[fn] = true
end

-- For the frame of such a call at `level`: what stands for the user's own frame, and how the
-- function is called if the error was raised within it: its frame went with a `return f(x)`.
local function called_for_user(level)
  local _, call = getlocal(level + 1, 1)
  local fn = type(call) == "table" and (call.written or call.fn)
  if type(fn) ~= "function" or errors.is_own(fn) then return nil end
  local info = getinfo(fn, "S")
  info.currentline = info.linedefined
  return info, not call.returned and place_of(fn, call.name) or nil
end

-- ---- a line erased by a tail call ----

-- What the name stands for in the frame at `level` (seen from here), as far as that can be told.
local function value_of(level, info, name, namewhat)
  local value
  if namewhat == "local" then
    for i = 1, 250 do
      local key, found = getlocal(level, i)
      if not key then break end
      if key == name then value = found end
    end
  elseif namewhat == "upvalue" then
    for i = 1, 60 do
      local key, found = getupvalue(info.func, i)
      if not key then break end
      if key == name then value = found end
    end
  elseif namewhat == "global" then
    value = rawget(getfenv(info.func), name)
  end
  return value
end

-- The frame at level - 1 is Moth's, the one at level the user's. If the user called something
-- else there, then that has gone by `return f(x)`.
local function erased(level, user, callee)
  local name, what = callee.name, callee.namewhat
  if not name or what == "" or what == "metamethod" then return nil end
  local op = callee.source:match("^=%[moth%.op%.(.*)%]$")
  if what == "method" or what == "field" then
    if op and name ~= op and name:sub(1, 2) ~= "__" then return name end
    return nil
  end
  local value = value_of(level + 2, user, name, what)
  if value ~= callee.func then return place_of(value, name) end
end

-- Of modules that were called, innermost first, one whose forward is a user's: no frame of it
-- stands above the module's call.
local function erased_forward(called)
  for i = 1, #called do
    local module = called[i]
    local found, forward = pcall(function() return module.forward end)
    local place = found and place_of(forward, (typename(module) or "module") .. ".forward")
    if place then return place end
  end
end

-- ---- walking the stack ----

local DEPTH = 200 -- frames looked at beyond the user's

-- Position "file:line: ", module path "in net.fc1: " and erased call of the running function.
local function locate(level)
  local user, line, tail, namer
  local modules, inner, callee, stop = {}, {}, nil, nil
  while not stop or level < stop do
    local info = getinfo(level, "Slnf")
    if not info then break end
    if module_frames[info.func] then
      local _, object = getlocal(level, 1)
      table.insert(modules, 1, object)
      namer = module_frames[info.func]
      if not user then inner[#inner + 1] = object end
    end
    if not user and user_calls[info.func] then
      user, tail = called_for_user(level)
      if user then line, stop = user.currentline, level + DEPTH end
    end
    if not user and info.what ~= "C" and not is_own(info.source) then
      user, line = info, info.currentline
      stop = level + DEPTH
      if inner[1] then tail = erased_forward(inner)
      elseif callee then tail = erased(level, info, callee) end
    end
    if info.what ~= "C" then callee = info end
    level = level + 1
  end
  local place = user and line >= 0 and format("%s:%d: ", user.short_src, line) or ""
  local path = namer and namer(modules)
  return place, path and "in " .. path .. ": " or "", tail
end

local last_code = "OK"
local unplaced -- the last message for which no line of the user's was found

--- The code of the last error that Moth raised in this state, e.g. "E_SHAPE"; "OK" if none was.
function errors.code() return last_code end

--- Lets errors.code tell of errors from here on only.
function errors.forget() last_code = "OK" end

--- Where the user's code stands now, "train.lua:12", or nil.
function errors.where()
  return (locate(3):match("^(.*): $"))
end

--- Raises an error at the user's line. Does not return.
-- @param text  what is wrong
-- @param code  the code that moth.errcode() gives (default "E_ARG")
function errors.raise(text, code)
  last_code = code or "E_ARG"
  local place, path, tail = locate(3)
  if tail then text = format("%s (in a return call of %s)", text, tail) end
  if find(text, "[%z\1-\8\11-\31\127]") then text = require("moth.shown").escaped(text) end
  if place == "" then unplaced = path .. text end
  error(place .. path .. text, 0)
end

--- A message that a coroutine of Moth's ended with, at the user's line that waits for it if Moth
-- raised it and found none there.
function errors.placed(message)
  if message == nil or not rawequal(message, unplaced) then return message end
  unplaced = nil
  return locate(3) .. message
end

--- Raises "bad argument 'kernel_size' to 'max_pool2d' (text)" at the user's line.
-- @param code  the code that moth.errcode() gives (default "E_ARG")
function errors.argument(fname, argname, text, code)
  return errors.raise(format("bad argument '%s' to '%s' (%s)", argname, fname, text), code)
end

--- "an integer is needed, got a string ('4')", of a value that is not what is wanted.
function errors.unwanted(wanted, got)
  local text = wanted .. ", got " .. errors.describe(got)
  local plain = wanted:find "number" or wanted:find "integer" or wanted:find "sizes"
    or wanted:find "dimension"
  if type(got) ~= "cdata" or not plain or not text:find "LL$" then return text end
  return format("%s, an int64; write %.0f", text, tonumber(got))
end

--- The same as an argument's error: "bad argument ... (an integer is needed, got a string ('4'))".
function errors.refuse(fname, argname, wanted, got, code)
  return errors.argument(fname, argname, errors.unwanted(wanted, got), code)
end

--- The position, 1 to n, of a dimension of n that may be counted from the end. Raises as ops do.
function errors.dim(fname, argname, dim, n)
  if dim == 0 or math.abs(dim) > n then
    return errors.argument(fname, argname, format("dim %d is out of range: wanted 1 to %d or -%d "
      .. "to -1", dim, n, n), "E_INDEX")
  end
  return dim < 0 and dim + n + 1 or dim
end

-- ---- '.' where ':' belongs ----

--- Raises: a method was called without its object.
-- @param name    the method
-- @param object  what such objects are called in examples: "x", "net"
function errors.no_self(name, object)
  errors.raise(format("'%s' was called by '.', so it does not know its object; call it with ':' "
    .. "-- %s:%s()", name, object, name), "E_TYPE")
end

--- For a tensor that lacks a field: a hint if it came to be some method's `self` by a '.'.
-- @param same  function(value): is it that tensor?
function errors.dotted(same)
  for level = 3, 40 do
    local info = getinfo(level, "Sn")
    if not info then break end
    local key, value = getlocal(level, 1)
    if key == "self" and same(value) then
      local name = info.name or "forward"
      return format("; here it is the self of a method: call that with ':' -- net:%s(x)", name)
    end
    if info.what ~= "C" and not is_own(info.source) then break end
  end
  return ""
end

-- ---- errors from C ----

local C, ctx -- set by lib.lua
local tells = {}

--- Tells this file the library and the context, once they exist.
function errors.attach(library, context) C, ctx = library, context end

--- Adds a function(handle) that says why a tensor cannot be used now, as where it was released, or
-- gives nil.
function errors.tells(fn) tells[#tells + 1] = fn end

local function told(x)
  for i = 1, type(x) == "cdata" and #tells or 0 do
    local text = tells[i](x)
    if text then return text end
  end
end

local function unusable(...)
  for i = 1, select("#", ...) do
    local x = select(i, ...)
    local text = told(x)
    for k = 1, not text and type(x) == "table" and getmetatable(x) == nil and #x or 0 do
      text = text or told(x[k])
    end
    if text then return text end
  end
end

--- Raises the error that stands in the context.
-- @param status  the negative status
-- @param fname   the name of the function that failed; nil: that of the op, as it is called
-- @param argname the user's argument that is to blame, where the engine knows it under another name
-- @param ...     the arguments, to tell which of them cannot be used
function errors.status(status, fname, argname, ...)
  local code = ffi.string(C.moth_error_name(status))
  local text = ffi.string(C.moth_error(ctx, 1))
  local arg, op = ffi.string(C.moth_error_arg(ctx)), ffi.string(C.moth_error_op(ctx))
  if code == "E_STATE" then
    local why = unusable(...)
    if why then text = text .. ": " .. why end
  end
  fname = fname or op:gsub("^linalg_", "")
  if argname then arg = argname end
  if arg ~= "" and fname ~= "" then return errors.argument(fname, arg, text, code) end
  if code == "E_INTERRUPT" or fname == "" then return errors.raise(text, code) end
  return errors.raise(fname .. ": " .. text, code)
end

-- ---- texts ----

local describe_tensor -- set by lib.lua: function(x) -> text, or nil if x is no tensor

--- Sets the function that describes tensors.
function errors.set_describe(fn) describe_tensor = fn end

local function number_text(x)
  return x == floor(x) and x > -2 ^ 53 and x < 2 ^ 53 and format("%d", x) or format("%.14g", x)
end

-- "{9, 9}" for a short list of numbers and strings, else nil.
local function list_text(list)
  local n = #list
  if n == 0 or n > 12 then return nil end
  local parts = {}
  for key in pairs(list) do
    if type(key) ~= "number" then return nil end
  end
  for i = 1, n do
    local v = list[i]
    if type(v) == "number" then parts[i] = number_text(v)
    elseif type(v) == "string" and #v < 20 then parts[i] = errors.shown(v)
    else return nil end
  end
  return "{" .. concat(parts, ", ") .. "}"
end

local function describe_table(value)
  local meta = getmetatable(value)
  if meta == nil then return list_text(value) or next(value) == nil and "{}" or "a table" end
  local name = typename(value)
  if name then
    return (package.loaded["moth.class"].isclass(value) and "the class " or "a ") .. name
  end
  if type(meta) == "table" and rawget(meta, "__tostring") then return tostring(value) end
  return "a table"
end

for _, name in ipairs { "bare", "shown", "path" } do -- of shown.lua, which few programs need
  errors[name] = function(text, most) return require "moth.shown"[name](text, most) end
end

--- What a value is, for messages: "f32 (2, 3)", "a string ('abc')", "1.5", "nil".
function errors.describe(value)
  local kind = type(value)
  if kind == "nil" or kind == "boolean" then return tostring(value) end
  if kind == "number" then return number_text(value) end
  if kind == "string" then return format("a string (%s)", errors.shown(value, 40)) end
  if kind == "table" then return describe_table(value) end
  if kind == "cdata" then
    local text = describe_tensor and describe_tensor(value)
    if text then return text end
    if ffi.istype("int64_t", value) or ffi.istype("uint64_t", value) then return tostring(value) end
    return "a cdata (" .. tostring(ffi.typeof(value)) .. ")"
  end
  return "a " .. kind
end

-- Edits that turn a into b, two swapped letters counting once; a letter for another costs `other`.
local function distance(a, b, other)
  local before, row = nil, {}
  for j = 0, #b do row[j] = j end
  for i = 1, #a do
    local new = { [0] = i }
    for j = 1, #b do
      local same = a:byte(i) == b:byte(j)
      new[j] = min(row[j] + 1, new[j - 1] + 1, row[j - 1] + (same and 0 or other))
      if before and j > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j) then
        new[j] = min(new[j], before[j - 2] + 1)
      end
    end
    before, row = row, new
  end
  return row[#b]
end

local FEW = 20 -- among more names than these a short one is near to many
local alias = { axis = "dim", keepdims = "keepdim", x = "input", -- as other libraries say
                map_location = "device", bias = "linear_bias",
                learning_rate = "lr" }

--- "; did you mean 'x'?" for the candidate nearest to a name, or "".
-- A wrong guess is worse than none, so that short names must be all but right.
-- @param name        what was written
-- @param candidates  a list of names
function errors.nearest(name, candidates)
  local best, least
  name = tostring(name)
  if #name > 60 then return "" end
  local limit = #name <= 4 and 1 or #name <= 8 and 2 or 3
  local other = #name <= 4 and #candidates > FEW and 2 or 1
  for i = 1, #candidates do
    local candidate = candidates[i]
    if type(candidate) == "string" then
      if candidate == alias[name] then return format("; did you mean '%s'?", candidate) end
      local d = distance(name:lower(), candidate:lower(), other)
      local better = not best or d < least or (d == least and candidate < best)
      local near = d <= 1 or d <= limit and candidate:sub(1, 1):lower() == name:sub(1, 1):lower()
      if near and d < #candidate and better then best, least = candidate, d end
    end
  end
  return best and format("; did you mean '%s'?", best) or ""
end

--- pcall(f), which no coroutine can yield through: f runs beneath a function in C.
-- @param what  runs there, for the message if it tries to
function errors.unyielding(what, f)
  local ok, problem
  string.gsub("x", "x", function() ok, problem = pcall(f) end)
  if not ok and tostring(problem):find("yield across", 1, true) then
    problem = select(2, pcall(errors.raise,
      what .. " cannot yield while it is run or recorded", "E_STATE"))
  end
  return ok, problem
end

return errors
