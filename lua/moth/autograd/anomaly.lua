--- anomaly.lua -- anomaly mode: errors of a backward pass name the lines of the forward pass.
--
--   moth.autograd.set_detect_anomaly(true)
--   moth.autograd.detect_anomaly(function() ... end)
--
-- It makes every op slower: it stores the user's line for each node of the graph and for each
-- in-place write. An error in a gradient then names the line that created the node and, if a saved
-- tensor was changed, the line that changed it. A gradient with NaN raises an error.

local ffi = require "ffi"
local autograd = require "moth.autograd"
local calls = require "moth.binding.calls"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local C, ctx = lib.C, lib.ctx
local frames, ANOMALY = autograd.frames, lib.modes.anomaly

local anomaly = {}

local MAX_LINES = 100000 -- stored lines; above it the older half is dropped

local made = {}     -- node -> line
local order = {}  -- nodes in the order of creation
local writes = {}   -- storage -> list of {version, line}
local versions = {} -- storage -> last known version

local function forget()
  made, order, writes, versions = {}, {}, {}, {}
end

local function note_node(id, line)
  if made[id] then return end
  made[id] = line
  order[#order + 1] = id
  if #order > MAX_LINES then
    local kept = {}
    for i = 1, #order do
      if i <= MAX_LINES / 2 then made[order[i]] = nil else kept[#kept + 1] = order[i] end
    end
    order = kept
  end
end

-- Called after each op: stores the line of its result's node and of its writes.
local function trace(x)
  local info = lib.inspect(x)
  local node, storage = tonumber(info.node), tonumber(info.storage)
  local version = tonumber(info.version)
  local line
  if node ~= 0 and not made[node] then
    line = errors.where() or "?"
    note_node(node, line)
  end
  if version > (versions[storage] or 0) then
    local list = writes[storage]
    if not list then
      list = {}
      writes[storage] = list
    end
    list[#list + 1] = {version, line or errors.where() or "?"}
    versions[storage] = version
  end
end

--- Stores the line of the node that a Function has just created.
function anomaly.made(id) note_node(id, errors.where() or "?") end

--- Raises if a gradient that a Function's backward returned contains NaN.
function anomaly.refuse_nan(name, grads)
  if not anomaly.is_anomaly_enabled() then return end
  local ops = require("moth.binding.bind").ops
  for i = 1, grads.n do
    local x = grads[i]
    if x ~= nil and ops.any(ops.isnan(x)):item() then
      errors.raise(name .. ".backward: gradient " .. i .. " holds NaN", "E_DOMAIN")
    end
  end
end

local saved_out = ffi.new "uint32_t[1]"

--- The addition to the message of a node's error, or nil.
function anomaly.note(id)
  local text = made[id] and "; recorded at " .. made[id] or ""
  local storage = tonumber(C.moth_error_storage(ctx, saved_out))
  local list, saved = writes[storage], saved_out[0]
  for i = 1, list and #list or 0 do
    if list[i][1] > saved then
      text = text .. "; changed at " .. list[i][2]
      break
    end
  end
  return text ~= "" and text or nil
end

-- Stores lines while the mode is on in any coroutine, also in a suspended one.
local function watch()
  local on = anomaly.is_anomaly_enabled()
  if not on and autograd.anomaly and lib.others_set and lib.others_set() then return end
  autograd.anomaly = on and anomaly
  lib.trace = on and trace or nil
  if not on then forget() end
end

--- Turns anomaly mode on or off.
-- @param on boolean
function anomaly.set_detect_anomaly(on)
  if type(on) ~= "boolean" then
    errors.refuse("set_detect_anomaly", "on", "a boolean is needed", on)
  end
  frames.hold("set_detect_anomaly(on)", "detect_anomaly(f)")
  C.moth_mode(ctx, ANOMALY, on and 1 or 0)
  watch()
end

--- Returns true if anomaly mode is on.
function anomaly.is_anomaly_enabled() return C.moth_mode(ctx, ANOMALY, lib.modes.ask) == 1 end

local function pass_on(f, ...)
  watch()
  return f(...)
end

local function restore(ok, ...)
  watch()
  if not ok then error((...), 0) end
  return ...
end

--- Calls f(...) in anomaly mode and returns its results.
function anomaly.detect_anomaly(f, ...)
  if not calls.is_callable(f) then
    errors.refuse("detect_anomaly", "f", "a function is needed", f, "E_TYPE")
  end
  return restore(pcall(frames.run, 1, "detect_anomaly", ANOMALY, pass_on, f, ...))
end

return anomaly
