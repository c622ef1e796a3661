--- stack.lua -- finds the user's line on the stack for an error; loaded at the first error.
--
-- The line is that of the first frame outside Moth's own files. A user's `return f(x)` is a tail
-- call and has no frame; if that can be detected, the message names the called function.

local errors = require "moth.error"

local getinfo, getlocal, getupvalue = debug.getinfo, debug.getlocal, debug.getupvalue
local format = string.format

local stack = {}

-- ---- calls of user functions by Moth ----

-- "Net.forward, net.lua:14" for a user's function, nil for Moth's own.
local function place_of(fn, name)
  if type(fn) ~= "function" or errors.is_own(fn) then return nil end
  local info = getinfo(fn, "S")
  return format("%s, %s:%d", name, info.short_src, info.linedefined)
end

-- For a frame of a user_call at `level`: the place to report instead of the user's own frame, and
-- the function's name. The function's frame is missing if it ended in `return f(x)`.
local function called_for_user(level)
  local _, call = getlocal(level + 1, 1)
  local fn = type(call) == "table" and (call.written or call.fn)
  if type(fn) ~= "function" or errors.is_own(fn) then return nil end
  local info = getinfo(fn, "S")
  info.currentline = info.linedefined
  return info, not call.returned and place_of(fn, call.name) or nil
end

-- ---- lines lost by tail calls ----

-- The value of a name in the frame at `level` (seen from here), if it can be found.
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

-- The frame at level - 1 is Moth's, and the frame at `level` is the user's. If the user's code
-- calls another function there, that function ended in `return f(x)`. Returns its name.
local function erased(level, user, callee)
  local name, what = callee.name, callee.namewhat
  if not name or what == "" or what == "metamethod" then return nil end
  local op = callee.source:match("^=%[moth%.op%.(.*)%]$")
  if what == "method" or what == "field" then
    local own = op and op:match "[^.]+$" -- for onnx.export: export
    if op and name ~= own and name:sub(1, 2) ~= "__" then return name end
    return nil
  end
  local value = value_of(level + 2, user, name, what)
  if value ~= callee.func then return place_of(value, name) end
end

-- The name of the function that the user called there as `F.name` or `x:name`, if it is a Lua
-- function of Moth: the ops in it have other names.
local function called_by_name(callee)
  local what = callee.namewhat
  local named = what == "field" or what == "method"
  return named and not callee.source:find "^=%[moth" and callee.name or nil
end

-- The first of the called modules, innermost first, whose forward is a user's function without a
-- frame on the stack.
local function erased_forward(called)
  for i = 1, #called do
    local module = called[i]
    local found, forward = pcall(function() return module.forward end)
    local place = found and place_of(forward, (errors.typename(module) or "module") .. ".forward")
    if place then return place end
  end
end

-- ---- calls of Moth's functions ----

-- The signature that a generated function (forms.lua) uses.
local function signature_of(fn)
  for i = 1, 60 do
    local key, value = getupvalue(fn, i)
    if not key then return nil end
    if key == "sig" then return value end
  end
end

-- The call {name, names, values, n} with these values.
local function call_with(name, args, values)
  local call = {name = name, names = {}, values = values, n = #args}
  for i, arg in ipairs(args) do call.names[i] = arg.name end
  return call
end

-- The varargs of a function with `...`, in the frame at `level` of the caller.
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

-- The arguments of a class's constructor in the frame at `level` of the caller. Only while its
-- `init` runs: then the arguments have been checked.
local function constructed(level, class, own, sig)
  local body, runs = class.written(own.init), false
  for below = math.max(level - 4, 1), level do
    local info = getinfo(below + 1, "f")
    runs = runs or info ~= nil and info.func == body
  end
  if not runs then return call_with(sig.name, sig.args, {}) end
  local given = varargs(level + 1)
  return call_with(sig.name, sig.args, {own.signature(unpack(given, 1, given.n))})
end

-- The call in a frame at `level` of the caller, if the function is an op, made by define, or the
-- constructor of a class that checks its arguments.
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

-- The call in the frame at `level` of the caller, for a Lua function without a signature.
local function plain_call(level, info, name)
  local call = {name = name, names = {}, values = {}, n = 0, plain = true}
  for i = 1, getinfo(info.func, "u").nparams do
    local key, value = getlocal(level + 1, i)
    call.names[i], call.values[i], call.n = key, value, i
  end
  return call
end

-- The arguments of a module's call, in the frame at `level` of the caller.
local function given_to(level, info)
  local values = varargs(level + 1)
  for i = 2, values.n == 0 and getinfo(info.func, "u").nparams or 0 do
    values[i - 1], values.n = select(2, getlocal(level + 1, i)), i - 1
  end
  return values
end

-- Returns true if an error already names that call, as name or Class.name, and one of its
-- arguments.
local function mentions(call, blame)
  if call.name ~= blame.fname and call.name ~= blame.fname:match "[.:]([%w_]+)$" then
    return false
  end
  for i = 1, blame.argname and call.n or 0 do
    if call.names[i] == blame.argname then return true end
  end
  return not blame.argname or call.n == 0
end

-- ---- walking the stack ----

local MAX_FRAMES = 200 -- frames that are searched beyond the user's

--- The position "file:line: ", the module path "in net.fc1: ", the call lost by a tail call, and
-- the name of the function that the user called there: the way to the function at `level` of the
-- stack.
-- @param blame  the function that an error names, {fname = }; optional
-- @return these four. If the user called another function than the blamed one: the innermost call
-- of the blamed function, or nil, and the user's call. For an error inside modules also: {call =
-- the outermost call inside the innermost module, list = {module, values} of each, innermost
-- first, path = function(n) -> the path without the n innermost}
function stack.locate(level, blame)
  local user, line, tail, namer, name
  local within, around -- calls: of the blamed function, and the outermost one
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
        if blame then given[#inner] = {module = object, values = given_to(level, info)} end
      end
    end
    if not user and errors.user_calls[info.func] then
      user, tail = called_for_user(level)
      if user then line, stop = user.currentline, level + MAX_FRAMES end
    end
    if not user and info.what ~= "C" and not errors.is_own_source(info.source) then
      user, line = info, info.currentline
      stop = level + MAX_FRAMES
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
    return "in " .. namer({unpack(modules, 1, #modules - n)}) .. ": "
  end
  local within_modules = given[1] and {call = around or within, list = given,
    path = path_without}
  if around and (mentions(around, blame) or #modules > 0 and around.plain) then around = nil end
  return place, namer and path_without(0) or "", tail, name, within, around, within_modules
end

-- ---- '.' instead of ':' ----

--- For a tensor without a field: a hint if a method that was called with '.' has it as `self`.
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
