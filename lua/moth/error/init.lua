--- init.lua -- errors in Lua's own wording, raised at the line that the user wrote.
--
--     train.lua:12: in net.layers[1]: bad argument 'kernel_size' to 'max_pool2d' ({9, 9} does not
--     fit f32 (2, 3, 8, 8))
--
-- The line is that of the first stack frame outside Moth's own files (stack.lua finds it).

local ffi = require "ffi"
local system = require "moth.base.system"

local getinfo = debug.getinfo
local concat, find, format = table.concat, string.find, string.format
local floor = math.floor

local errors = {}

-- ---- whose code is it ----

local own_prefixes = {}
local own_cache = {} -- source -> boolean

--- Declares files of Moth: errors never blame a line in a file with this path prefix.
-- @param prefix  the beginning of a chunk's source, e.g. "@/usr/share/lua/5.1/moth/"
function errors.own(prefix)
  own_prefixes[#own_prefixes + 1] = prefix
  own_cache = {}
end

--- Returns true if a chunk's source is a file of Moth, or text that Moth generated.
function errors.is_own_source(source)
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

--- Returns true if a function is Moth's or in C, not a user's.
function errors.is_own(fn)
  local info = getinfo(fn, "S")
  return info.what == "C" or errors.is_own_source(info.source)
end

-- The path may be relative, and the program may change its folder before Moth loads more files.
local function absolute(folder)
  if folder:find(system.root) then return folder end
  pcall(ffi.cdef, "char *" .. system.getcwd .. "(char *, size_t);")
  local buffer = ffi.new "char[4096]"
  local found, at = pcall(function() return ffi.C[system.getcwd](buffer, 4096) end)
  if not found or at == nil then return folder end
  return ffi.string(buffer) .. "/" .. folder:gsub("^%.[/\\]", "")
end

do -- the folder of Moth's Lua files, lua/moth/; in a checkout also nn/, next to lua/
  local here = getinfo(1, "S").source:match("^@(.*[/\\])error[/\\]init%.lua$") or "./"
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

errors.module_frames = {} -- function -> namer

--- Declares that `fn` calls a module's forward, with the module as its first argument.
-- @param fn     the function
-- @param namer  function(list of modules, outermost first) -> a path such as "net.layers[1]", or
-- nil
function errors.module_frame(fn, namer)
  errors.module_frames[fn] = namer
end

-- ---- functions that Moth calls for the user ----

errors.user_calls = {} -- function -> true

--- Declares that `fn(call, ...)` calls the user's function call.fn, named call.name, and then
-- checks its results (call.returned). If an error finds no user's line above it, it names the line
-- where that function is defined.
function errors.user_call(fn)
  errors.user_calls[fn] = true
end

-- ---- raising ----

local last_code = "OK"

--- The code of the last error that Moth raised in this state, e.g. "E_SHAPE"; "OK" if none was.
function errors.code() return last_code end

--- Clears the last code: errors.code reports only later errors.
function errors.forget() last_code = "OK" end

--- The position of the running line of the user's code, "train.lua:12", or nil.
function errors.where()
  return (require("moth.error.stack").locate(3):match("^(.*): $"))
end

--- Raises an error at the user's line. Does not return.
-- @param text   the message
-- @param code   the code that moth.errcode() returns (default "E_ARG")
-- @param blame  {fname, argname, text}: the parts of a text that names a function. If the user
-- called another function, which calls this one, the error names the user's function instead.
function errors.raise(text, code, blame)
  code = code or "E_ARG"
  last_code = code
  local place, path, tail, name, inner, outer, within = require("moth.error.stack").locate(3, blame)
  if outer then text = require("moth.error.blame")(blame, inner, outer) or text end
  if within then
    local said, where = require("moth.error.given")(blame, code, within)
    text, path = said or text, where or path
  end
  if tail then
    text = format("%s (in a return call of %s)", text, tail)
  elseif name and path == "" and not find(text, name, 1, true) then
    path = "in " .. name .. ": "
  end
  if find(text, "%f[%w]1 %l+s") then text = require("moth.error.shown").singular(text) end
  if find(text, "[%z\1-\8\11-\31\127]") then text = require("moth.error.shown").escaped(text) end
  last_code = code -- code that runs inside this function may have set it
  error(place .. path .. text, 0)
end

--- Raises "bad argument 'kernel_size' to 'max_pool2d' (text)" at the user's line.
-- @param code  the code that moth.errcode() returns (default "E_ARG")
function errors.argument(fname, argname, text, code)
  return errors.raise(format("bad argument '%s' to '%s' (%s)", argname, fname, text), code,
    {fname = fname, argname = argname, text = text})
end

--- "an integer is needed, got a string ('4')", for a wrong value.
function errors.unwanted(wanted, got)
  local text = wanted .. ", got " .. errors.describe(got)
  local plain = wanted:find "number" or wanted:find "integer" or wanted:find "sizes"
    or wanted:find "dimension"
  if type(got) ~= "cdata" or not plain or not text:find "LL$" then return text end
  return format("%s, an int64; write %.0f", text, tonumber(got))
end

--- Raises this text as an argument's error: "bad argument ... (an integer is needed, got ...)".
function errors.refuse(fname, argname, wanted, got, code)
  return errors.argument(fname, argname, errors.unwanted(wanted, got), code)
end

--- The position, 1 to n, of a dimension that may be negative. Raises like an op.
function errors.dim(fname, argname, dim, n)
  if dim == 0 or math.abs(dim) > n then
    return errors.argument(fname, argname, format("dim %d is out of range: wanted 1 to %d or -%d "
      .. "to -1", dim, n, n), "E_INDEX")
  end
  return dim < 0 and dim + n + 1 or dim
end

-- ---- '.' instead of ':' ----

--- Raises: a method was called without its object.
-- @param name    the method
-- @param object  the name of an object in examples: "x", "net"
function errors.no_self(name, object)
  errors.raise(format("'%s' was called by '.', so it does not know its object; call it with ':' "
    .. "-- %s:%s()", name, object, name), "E_TYPE")
end

-- ---- errors from C ----

local C, ctx -- set by lib.lua
local explainers = {}

--- Sets the library and the context after they are created.
function errors.attach(library, context) C, ctx = library, context end

--- Adds a function(handle) that returns the reason why a tensor cannot be used now, such as where
-- it was released, or nil.
function errors.add_explainer(fn) explainers[#explainers + 1] = fn end

local function explained(x)
  for i = 1, type(x) == "cdata" and #explainers or 0 do
    local text = explainers[i](x)
    if text then return text end
  end
end

local function unusable(...)
  for i = 1, select("#", ...) do
    local x = select(i, ...)
    local text = explained(x)
    for k = 1, not text and type(x) == "table" and getmetatable(x) == nil and #x or 0 do
      text = text or explained(x[k])
    end
    if text then return text end
  end
end

--- Raises the error that the context stores.
-- @param status  the negative status
-- @param fname   the name of the failed function; nil: the name of the op in the call
-- @param argname the user's argument to blame, if the core has another name for it
-- @param ...     the arguments, to find the tensor that cannot be used
function errors.status(status, fname, argname, ...)
  local code = ffi.string(C.moth_error_name(status))
  local text = ffi.string(C.moth_error(ctx, 1))
  local arg, op = ffi.string(C.moth_error_arg(ctx)), ffi.string(C.moth_error_op(ctx))
  if code == "E_STATE" then
    local why = unusable(...)
    if why then text = text .. ": " .. why end
  end
  fname = fname or require("moth.error.blame").public(op)
  local late = text:match "^'([%w_]+)', which ran before" -- an op on a GPU
  if late then text = text:gsub("^'[%w_]+'", "'" .. require("moth.error.blame").public(late)
    .. "'") end
  if argname then arg = argname end
  if code == "E_MEM" or code == "E_LIMIT" or arg == "size" then
    require("moth.error.oversize").blame(fname, text, code)
  end
  if arg ~= "" and fname ~= "" then return errors.argument(fname, arg, text, code) end
  if code == "E_INTERRUPT" or fname == "" then return errors.raise(text, code) end
  return errors.raise(fname .. ": " .. text, code, {fname = fname, text = text})
end

-- ---- texts ----

--- The name of an object's class, or nil.
function errors.typename(object)
  local class = package.loaded["moth.base.class"]
  return type(class) == "table" and class.typename(object) or nil
end

local describe_tensor -- set by lib.lua: function(x) -> text, or nil if x is no tensor

--- Sets the function that describes tensors.
function errors.set_describe(fn) describe_tensor = fn end

local function number_text(x)
  if x ~= x then return "nan" end -- printf prints a sign for some NaN
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
  local name = errors.typename(value)
  if name then
    if package.loaded["moth.base.class"].isclass(value) then return "the class " .. name end
    return (errors.one(name))
  end
  if type(meta) == "table" and rawget(meta, "__tostring") then return tostring(value) end
  return "a table"
end

for _, name in ipairs {"bare", "one", "shown", "path"} do -- of shown.lua, rarely needed
  errors[name] = function(text, most) return require("moth.error.shown")[name](text, most) end
end

--- A value's description for messages: "f32 (2, 3)", "a string ('abc')", "1.5", "nil".
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

--- "; did you mean 'x'?" for the candidate nearest to a name, or "".
-- @param name        the misspelt name
-- @param candidates  a list of names
function errors.nearest(name, candidates) return require("moth.error.nearest")(name, candidates) end

--- pcall(f) in which f cannot yield: a C function is between them on the stack.
-- @param what  the name of the code in f, for the message if it yields
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
