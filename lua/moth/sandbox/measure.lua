--- measure.lua -- the bytes that a sandbox keeps: all that its globals reach.

local class = require "moth.base.class"
local lib = require "moth.binding.lib"

local getmetatable, getupvalue, getinfo = debug.getmetatable, debug.getupvalue, debug.getinfo
local getlocal = debug.getlocal

-- Bytes of LuaJIT's objects, without their contents.
local TABLE, SLOT, STRING, FUNCTION, UPVALUE, THREAD, HANDLE = 64, 32, 24, 48, 8, 1024, 64

-- Does a function belong to a script? Of the iterators of library.lua only texts and coroutines
-- count; other functions, and what they hold, are the host's.
local HELD = {string = true, thread = true}
local function of_script(fn)
  local source = getinfo(fn, "S").source
  if source:find("@sandbox:", 1, true) == 1 then return true end
  return source:find("moth/sandbox/library", 1, true) and HELD
end

local visit = {}

function visit.string(value) return STRING + #value end

function visit.table(t, push, own)
  local meta = getmetatable(t)
  if meta and rawget(meta, "__metatable") == false or class.isclass(t) then return 0 end -- Moth's
  if own[meta or false] then push(meta) end
  local n = 0
  for key, value in next, t do
    n = n + 1
    push(key)
    push(value)
  end
  return TABLE + SLOT * n
end

visit["function"] = function(fn, push)
  local held = of_script(fn)
  if not held then return 0 end
  local n = 0
  while true do
    local name, value = getupvalue(fn, n + 1)
    if not name then return FUNCTION + UPVALUE * n end
    n = n + 1
    if held == true or held[type(value)] then push(value) end
  end
end

function visit.thread(thread, push)
  local level, n = 0, 0
  while true do
    local info = getinfo(thread, level, "f")
    if not info then return THREAD + n * 8 end
    push(info.func)
    local i = 1
    while true do
      local name, value = getlocal(thread, level, i)
      if not name then break end
      push(value)
      i, n = i + 1, n + 1
    end
    level = level + 1
  end
end

--- The bytes of the Lua values that a value reaches, and those of the tensors.
-- @param own  the set of the metatables that scripts have set
return function(root, own)
  local seen, stack, top = {}, {root}, 1
  local storages, bytes, tensors = {}, 0, 0
  local function push(value)
    local kind = type(value)
    if visit[kind] and not seen[value] then
      seen[value] = true
      top = top + 1
      stack[top] = value
    elseif kind == "cdata" and lib.istensor(value) and lib.C.moth_alive(lib.ctx, value) == 1 then
      local info = lib.inspect(value)
      local storage = tostring(info.storage)
      bytes = bytes + HANDLE
      if info.storage ~= 0 and not storages[storage] then
        storages[storage] = true
        tensors = tensors + tonumber(info.numel * info.itemsize)
      end
    end
  end
  seen[root] = true
  while top > 0 do
    local value = stack[top]
    stack[top], top = nil, top - 1
    bytes = bytes + visit[type(value)](value, push, own)
  end
  return bytes, tensors
end
