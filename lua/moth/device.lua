--- device.lua -- moth.device and moth.cuda: where tensors live.
--
--     local device = moth.device(moth.cuda.is_available() and "cuda" or "cpu")
--     net:to(device)
--
-- A device is one object for each name, compared by identity, as dtypes are; wherever one is
-- taken, its name is too. This build computes on the CPU: other devices can be named, not used.

local errors = require "moth.error"

local device = {}

local meta = { __name = "device" }
meta.__index = { index = nil }
function meta:__tostring() return self.name end
function meta.__concat(a, b) return tostring(a) .. tostring(b) end

--- Device or name -> the engine's number, of those there are.
device.codes = {}
--- The engine's number -> device.
device.by_code = {}

local known = {}

local function make(name, kind, index)
  known[name] = setmetatable({ name = name, type = kind, index = index }, meta)
  return known[name]
end

local cpu = make("cpu", "cpu")
device.codes.cpu, device.codes[cpu], device.by_code[0] = 0, 0, cpu

--- Whether a value is what moth.device gives.
function device.is(value) return getmetatable(value) == meta end

--- The name of a device, or of one that is written as a string: "cuda:1"; nil for other values.
function device.name(value)
  if device.is(value) then return value.name end
  local kind = type(value) == "string" and (value:match "^(%a+)$" or value:match "^(%a+):%d+$")
  return (kind == "cpu" or kind == "cuda") and value or nil
end

--- What a message says of a device, or of its name, that is not here.
function device.missing(value)
  if device.name(value) then return "no CUDA device; this build computes on the CPU" end
  return "the device '" .. tostring(value) .. "' is not there; this build has 'cpu'"
end

--- moth.device("cpu"): a device, with `type` ("cpu" or "cuda") and `index` (from 0, as in PyTorch;
-- nil if there is none in the name). `moth.device("cuda", 0)` is "cuda:0".
-- @param name   "cpu", "cuda", "cuda:0" or a device
-- @param index  the number of the device, optional
function device.new(name, index)
  if device.is(name) and index == nil then return name end
  if index ~= nil and type(name) == "string" then name = name .. ":" .. tostring(index) end
  if not device.name(name) then
    errors.argument("device", "name", "expected 'cpu' or 'cuda', got "
      .. (type(name) == "string" and "'" .. name .. "'" or errors.describe(name)), "E_DEVICE")
  end
  if known[name] then return known[name] end
  local at = tonumber(name:match ":(%d+)$")
  return (make(name, name:match "^%a+", at))
end

--- moth.cuda: what scripts ask about GPUs before they begin.
device.cuda = {}

--- Whether tensors can be put on a GPU.
function device.cuda.is_available() return false end

--- How many GPUs can be used.
function device.cuda.device_count() return 0 end

-- As in PyTorch, these do nothing where there is no GPU.
for name in ("manual_seed manual_seed_all empty_cache"):gmatch "%S+" do
  device.cuda[name] = function() end
end

require "moth.lazy".namespace("moth.cuda", device.cuda, {})

return device
