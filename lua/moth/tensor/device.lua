--- device.lua -- moth.device: the device of a tensor. moth.cuda has the queries of GPUs.
--
--     local device = moth.device(moth.cuda.is_available() and "cuda" or "cpu")
--     net:to(device)
--
-- Each name has one device object, compared by identity, like dtypes. An argument for a device
-- also accepts its name. CUDA is loaded when an op or a query first names a GPU: a script that
-- uses only the CPU does not load it.

local ffi = require "ffi"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local C, ctx = lib.C, lib.ctx

local device = {}

local meta = {__name = "device"}
meta.__index = {index = nil}
function meta:__tostring() return self.name end
function meta.__concat(a, b) return tostring(a) .. tostring(b) end

local known = {}

local function make(name, kind, index)
  known[name] = setmetatable({name = name, type = kind, index = index}, meta)
  return known[name]
end

--- Returns true if a value is a moth.device.
function device.is(value) return getmetatable(value) == meta end

--- The name of a device or of a string that names one, "cuda:1"; nil for other values.
function device.name(value)
  if device.is(value) then return value.name end
  local kind = type(value) == "string" and (value:match "^(%a+)$" or value:match "^(%a+):%d+$")
  return (kind == "cpu" or kind == "cuda") and value or nil
end

local GPU, ASK = lib.modes.gpu, lib.modes.ask -- GPU: the index that "cuda" means
local varies = false  -- true after it was set once

-- The core's number of a device: 0 the CPU (also "cpu:0", with any index), 1 + i the i-th GPU.
local function number_of(name)
  if name:find "^cpu" then return 0 end
  return 1 + (tonumber(name:match ":(%d+)$") or tonumber(C.moth_mode(ctx, GPU, ASK)))
end

local found -- the number of GPUs, after the first query

--- The number of usable GPUs: 0 without a driver, a card, or the plugin libmoth_cuda.so.
function device.gpus()
  found = found or math.max(0, tonumber(C.moth_device_count(ctx)))
  return found
end

--- Device or name -> the slot value of an argument `device`: the core's number plus 1; nil if there
-- is no such device. A GPU is looked up at its first use and cached.
device.codes = setmetatable({}, {
  __index = function(codes, value)
    local name = device.name(value)
    if not name then return nil end
    local number = number_of(name)
    if number > 0 and number > device.gpus() then return nil end
    if not varies or name ~= "cuda" then rawset(codes, value, number + 1) end
    return number + 1
  end,
})

--- The index of the GPU that "cuda" means, 0 at first.
function device.current() return tonumber(C.moth_mode(ctx, GPU, ASK)) end

--- Called before the mode with this index is set. @return the mode's number
function device.vary()
  varies = true
  rawset(device.codes, "cuda", nil)
  if known.cuda then rawset(device.codes, known.cuda, nil) end
  return GPU
end

--- The core's number -> device.
device.by_code = setmetatable({[0] = make("cpu", "cpu")}, {
  __index = function(list, number)
    rawset(list, number, device.new("cuda", number - 1))
    return rawget(list, number)
  end,
})

--- The message about a device or a device name that is not available.
function device.missing(value)
  local name = device.name(value)
  if not name then
    return "the device '" .. tostring(value) .. "' is not there; there are 'cpu' and 'cuda'"
  end
  local count = tonumber(C.moth_device_count(ctx))
  if count < 0 then return ffi.string(C.moth_error(ctx, 1)) end
  return ("there is no %s; this machine has %s"):format(name,
    count == 0 and "no CUDA device" or count == 1 and "cuda:0"
    or "cuda:0 to cuda:" .. count - 1)
end

--- moth.device("cpu"): a device, with `type` ("cpu" or "cuda") and `index` (from 0, as in PyTorch).
-- The index of "cuda" is nil: it means the GPU of moth.cuda.set_device, at first GPU 0.
-- `moth.device("cuda", 0)` is "cuda:0".
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

--- The core's number of the GPU in an argument: a device, its name, or its index.
function device.gpu(fname, value)
  if value == nil then value = "cuda" end
  if type(value) == "number" then value = "cuda:" .. value end
  local name = device.name(value)
  if not name or name:match "^cpu" then
    errors.refuse(fname, "device", "a GPU such as 'cuda:0' is needed", value, "E_DEVICE")
  end
  if not device.codes[value] then
    errors.argument(fname, "device", device.missing(value), "E_DEVICE")
  end
  return number_of(name)
end

return device
