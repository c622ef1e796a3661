--- stack.lua -- finds the user's line on the stack for an error; read when the first is raised.
--
-- The line is that of the first frame outside Moth's own files. A user's `return f(x)` leaves no
-- frame behind; where that can be seen, the message says which function it was.

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
    if op and name ~= op and name:sub(1, 2) ~= "__" then return name end
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

-- ---- walking the stack ----

local DEPTH = 200 -- frames looked at beyond the user's

--- Position "file:line: ", module path "in net.fc1: ", erased call and name of what the user called
-- there, which lead to the function at `level` of the stack.
function stack.locate(level)
  local user, line, tail, namer, name
  local modules, inner, callee, stop = {}, {}, nil, nil
  while not stop or level < stop do
    local info = getinfo(level, "Slnf")
    if not info then break end
    if errors.module_frames[info.func] then
      local _, object = getlocal(level, 1)
      table.insert(modules, 1, object)
      namer = errors.module_frames[info.func]
      if not user then inner[#inner + 1] = object end
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
      end
    end
    if info.what ~= "C" then callee = info end
    level = level + 1
  end
  local place = user and line >= 0 and format("%s:%d: ", user.short_src, line) or ""
  local path = namer and namer(modules)
  return place, path and "in " .. path .. ": " or "", tail, name
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
