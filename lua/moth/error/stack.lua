--- stack.lua -- finds the user's line on the stack for an error; loaded at the first error.
--
-- The line is that of the first frame outside Moth's own files. A user's `return f(x)` is a tail
-- call and has no frame; if that can be detected, the message names the called function.

local errors = require "moth.error"

local getinfo, getlocal, getupvalue = debug.getinfo, debug.getlocal, debug.getupvalue
local format = string.format

local stack = {}

-- ---- whose line stands for a call that Moth makes ----

-- "Net.forward, net.lua:14" for a user's function, nil for Moth's own.
local function place_of(fn, name)
  if type(fn) ~= "function" or errors.is_own(fn) then return nil end
  local info = getinfo(fn, "S")
  return format("%s, %s:%d", name, info.short_src, info.linedefined)
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
    local own = op and op:match "[^.]+$" -- of onnx.export, export
    if op and name ~= own and name:sub(1, 2) ~= "__" then return name end
    return nil
  end
  local value = value_of(level + 2, user, name, what)
  if value ~= callee.func then return place_of(value, name) end
end

-- What the user called there as `F.name` or `x:name`, where that is a function of Moth's in Lua:
-- the ops within it have names of their own.
local function called_by_name(callee)
  local what = callee.namewhat
  local named = what == "field" or what == "method"
  return named and not callee.source:find "^=%[moth" and callee.name or nil
end

-- Of modules that were called, innermost first, one whose forward is a user's: no frame of it
-- stands above the module's call.
local function erased_forward(called)
  for i = 1, #called do
    local module = called[i]
    local found, forward = pcall(function() return module.forward end)
    local place = found and place_of(forward, (errors.typename(module) or "module") .. ".forward")
    if place then return place end
  end
end

-- ---- calls of Moth's own functions ----

-- The signature that a written function (forms.lua) reads.
local function signature_of(fn)
  for i = 1, 60 do
    local key, value = getupvalue(fn, i)
    if not key then return nil end
    if key == "sig" then return value end
  end
end

-- The call {name, names, values, n} of these values.
local function call_with(name, args, values)
  local call = { name = name, names = {}, values = values, n = #args }
  for i, arg in ipairs(args) do call.names[i] = arg.name end
  return call
end

-- What was given to a function with `...`, in the frame at `level` of the caller.
local function varargs(level)
  local values, n = {}, 0
  while true do
    local key, value = getlocal(level + 1, -n - 1)
    if not key then break end
    n = n + 1
    values[n] = value
  end
  values.n = n
  return values
end

-- The arguments of a class's constructor in the frame at `level` of the caller, if its `init` runs,
-- so that they are known to be good.
local function constructed(level, class, own, sig)
  local body, runs = class.written(own.init), false
  for below = math.max(level - 4, 1), level do
    local info = getinfo(below + 1, "f")
    runs = runs or info ~= nil and info.func == body
  end
  if not runs then return call_with(sig.name, sig.args, {}) end
  local given = varargs(level + 1)
  return call_with(sig.name, sig.args, { own.signature(unpack(given, 1, given.n)) })
end

-- The call in a frame at `level` of the caller, of an op or of a function made by define; or of a
-- class that checks its arguments.
local function call_of(level, info, inner)
  if info.source:sub(1, 9) == "=[moth.op" then
    local sig, values = signature_of(info.func), {}
    for i = 1, sig and #sig.args or 0 do values[i] = select(2, getlocal(level + 1, i)) end
    return sig and call_with(sig.name, sig.args, values)
  end
  local class = package.loaded["moth.base.class"]
  if type(class) ~= "table" or info.func ~= class.construct or not inner then return nil end
  local _, own = getlocal(level + 1, 1)
  local parse = own.signature
  local sig = parse and require("moth.binding.bind").signature(parse)
  return sig and constructed(level + 1, class, own, sig)
end

-- The call in the frame at `level` of the caller, of a function in Lua that has no signature.
local function plain_call(level, info, name)
  local call = { name = name, names = {}, values = {}, n = 0, plain = true }
  for i = 1, getinfo(info.func, "u").nparams do
    local key, value = getlocal(level + 1, i)
    call.names[i], call.values[i], call.n = key, value, i
  end
  return call
end

-- What a module was called with, in the frame at `level` of the caller.
local function given_to(level, info)
  local values = varargs(level + 1)
  for i = 2, values.n == 0 and getinfo(info.func, "u").nparams or 0 do
    values[i - 1], values.n = select(2, getlocal(level + 1, i)), i - 1
  end
  return values
end

-- Whether an error already speaks of that call: by its name, or as Class.name, and of one of its
-- arguments.
local function tells(call, blame)
  if call.name ~= blame.fname and call.name ~= blame.fname:match "[.:]([%w_]+)$" then
    return false
  end
  for i = 1, blame.argname and call.n or 0 do
    if call.names[i] == blame.argname then return true end
  end
  return not blame.argname or call.n == 0
end

-- ---- walking the stack ----

local DEPTH = 200 -- frames looked at beyond the user's

--- Position "file:line: ", module path "in net.fc1: ", erased call and name of what the user called
-- there, which lead to the function at `level` of the stack.
-- @param blame  the function that an error names, {fname = }; optional
-- @return these four; and if the user called another function than that: the innermost call of the
-- one that is named, or nil, and the user's call; and of an error within modules: {call = the
-- outermost call within the innermost, list = {module, values} of each, innermost first, path =
-- function(n) -> the path without the n innermost}
function stack.locate(level, blame)
  local user, line, tail, namer, name
  local within, around -- calls: that of the function that is blamed, and the outermost
  local modules, inner, given, callee, stop = {}, {}, {}, nil, nil
  while not stop or level < stop do
    local info = getinfo(level, "Slnf")
    if not info then break end
    if blame and not user and not inner[1] then
      local call = call_of(level, info, callee)
      if call then
        if call.name == blame.fname and not within then within = call end
        around = call
      end
    end
    if errors.module_frames[info.func] then
      local _, object = getlocal(level, 1)
      table.insert(modules, 1, object)
      namer = errors.module_frames[info.func]
      if not user then
        inner[#inner + 1] = object
        if blame then given[#inner] = { module = object, values = given_to(level, info) } end
      end
    end
    if not user and errors.user_calls[info.func] then
      user, tail = called_for_user(level)
      if user then line, stop = user.currentline, level + DEPTH end
    end
    if not user and info.what ~= "C" and not errors.is_own_source(info.source) then
      user, line = info, info.currentline
      stop = level + DEPTH
      if inner[1] then tail = erased_forward(inner)
      elseif callee then
        tail, name = erased(level, info, callee), called_by_name(callee)
        if blame and name and not around then around = plain_call(level - 1, callee, name) end
      end
    end
    if info.what ~= "C" then callee = info end
    level = level + 1
  end
  local place = user and line >= 0 and format("%s:%d: ", user.short_src, line) or ""
  local function path_without(n)
    return "in " .. namer({ unpack(modules, 1, #modules - n) }) .. ": "
  end
  local within_modules = given[1] and { call = around or within, list = given,
    path = path_without }
  if around and (tells(around, blame) or #modules > 0 and around.plain) then around = nil end
  return place, namer and path_without(0) or "", tail, name, within, around, within_modules
end

-- ---- '.' where ':' belongs ----

--- For a tensor that lacks a field: a hint if it came to be some method's `self` by a '.'.
-- @param same  function(value): is it that tensor?
function stack.dotted(same)
  for level = 3, 40 do
    local info = getinfo(level, "Sn")
    if not info then break end
    local key, value = getlocal(level, 1)
    if key == "self" and same(value) then
      local name = info.name or "forward"
      return format("; here it is the self of a method: call that with ':' -- net:%s(x)", name)
    end
    if info.what ~= "C" and not errors.is_own_source(info.source) then break end
  end
  return ""
end

return stack
