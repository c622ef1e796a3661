--- intact.lua -- checks the state after an error: inputs and versions unchanged, nothing leaked,
-- and the library still works.

local moth = require "moth"
local lib = require "moth.binding.lib"

local C = lib.C
local intact = {}

local info = require("ffi").new("moth_memory_info")

-- Each number operand has a cached tensor, which stays.
for which = 1, 4 do C.moth_number(lib.ctx, which, 0, lib.slots(1)) end

local function counts()
  C.moth_memory(lib.ctx, info)
  return {
    bytes = tonumber(info.live_bytes), handles = tonumber(info.live_handles),
    tensors = tonumber(info.live_tensors), nodes = tonumber(info.live_nodes),
    storages = tonumber(info.live_storages), tasks = tonumber(info.live_tasks),
  }
end

-- Dead values on Lua's stack still keep objects alive: overwrite them.
local function wipe() return select("#", unpack({}, 1, 200)) end

--- The live objects of the library after a full collection: bytes, handles, tensors, nodes,
-- storages, tasks.
function intact.counts()
  wipe()
  moth.collect()
  return counts()
end

local function text(value)
  if type(value) == "table" then
    local parts = {}
    for i = 1, #value do parts[i] = text(value[i]) end
    return "{" .. table.concat(parts, " ") .. "}"
  end
  return type(value) == "number" and ("%.17g"):format(value) or tostring(value)
end

-- All properties of a tensor that an error must not change.
local function picture(x)
  if C.moth_alive(lib.ctx, x) == 0 then return "released" end
  return table.concat({ tostring(x.dtype), tostring(x.shape), tostring(x._version),
    tostring(x.requires_grad), text(x:tolist()) }, " ")
end

local function pictures(tensors)
  local list = {}
  for i = 1, #tensors do list[i] = picture(tensors[i]) end
  return table.concat(list, "\n")
end

-- An op that must always succeed.
local function alive() return moth.ones(2):add(1):sum():item() == 4 end

--- Runs fn, which must raise, and checks the state afterwards.
-- @param fn       the mistake
-- @param tensors  the tensors it touches
-- @return the message
function intact.message(fn, tensors)
  tensors = tensors or {}
  local grad = moth.is_grad_enabled()
  local before = pictures(tensors)
  wipe()
  lib.collect()
  local held = counts()
  local ok, message = pcall(fn)
  if ok then error("nothing was raised", 2) end
  if type(message) ~= "string" then error("the error is no text: " .. tostring(message), 2) end
  wipe()
  lib.collect()
  local now = counts()
  for name, count in pairs(held) do
    if now[name] > count then now = intact.counts() end -- older garbage may be collected in between
    if now[name] > count then
      error(("%s: %d before, %d after: %s"):format(name, count, now[name], message), 2)
    end
  end
  if pictures(tensors) ~= before then error("an input changed: " .. message, 2) end
  if moth.is_grad_enabled() ~= grad then error("the grad mode changed: " .. message, 2) end
  if not alive() then error("the engine does not go on after: " .. message, 2) end
  return message
end

--- The same; the message must contain the plain text and begin with the line of the caller's file.
function intact.refuses(fn, wanted, tensors)
  local message = intact.message(fn, tensors)
  if not message:find(wanted, 1, true) then
    error(("wanted '%s' in: %s"):format(wanted, message), 2)
  end
  local where = debug.getinfo(fn, "S")
  local file, line = message:match("^(.-):(%d+): ")
  line = tonumber(line)
  local inside = file == where.short_src and line >= where.linedefined
    and line <= where.lastlinedefined
  if not inside then
    error(("not at the user's line (%s:%d-%d): %s"):format(where.short_src, where.linedefined,
      where.lastlinedefined, message), 2)
  end
  return message
end

return intact
