--- device.lua -- moth.device and moth.cuda: where tensors live.
--
--     local device = moth.device(moth.cuda.is_available() and "cuda" or "cpu")
--     net:to(device)
--
-- A device is one object for each name, compared by identity, as dtypes are; wherever one is
-- taken, its name is too. Nothing of CUDA is opened before a GPU is named to an op or asked for
-- here: a script that stays on the CPU pays nothing.

local ffi = require "ffi"
local errors = require "moth.error"
local lib = require "moth.lib"

local C, ctx, check = lib.C, lib.ctx, lib.check

local device = {}

local meta = { __name = "device" }
meta.__index = { index = nil }
function meta:__tostring() return self.name end
function meta.__concat(a, b) return tostring(a) .. tostring(b) end

local known = {}

local function make(name, kind, index)
  known[name] = setmetatable({ name = name, type = kind, index = index }, meta)
  return known[name]
end

--- Whether a value is what moth.device gives.
function device.is(value) return getmetatable(value) == meta end

--- The name of a device, or of one that is written as a string: "cuda:1"; nil for other values.
function device.name(value)
  if device.is(value) then return value.name end
  local kind = type(value) == "string" and (value:match "^(%a+)$" or value:match "^(%a+):%d+$")
  return (kind == "cpu" or kind == "cuda") and value or nil
end

-- The engine's number of a device: 0 the CPU, 1 + i the i-th GPU.
local function number_of(name)
  if name == "cpu" then return 0 end
  return 1 + tonumber(name:match ":(%d+)$" or 0)
end

--- Device or name -> what an argument `device` holds: one more than the engine's number. A GPU is
-- looked for at its first use and remembered; nil for what is not there.
device.codes = setmetatable({}, {
  __index = function(codes, value)
    local name = device.name(value)
    if not name or name:match "^cpu:" then return nil end
    local number = number_of(name)
    if number > 0 and number > device.cuda.device_count() then return nil end
    rawset(codes, value, number + 1)
    return number + 1
  end,
})

--- The engine's number -> device.
device.by_code = setmetatable({ [0] = make("cpu", "cpu") }, {
  __index = function(list, number)
    rawset(list, number, device.new("cuda", number - 1))
    return rawget(list, number)
  end,
})

--- What a message says of a device, or of its name, that is not here.
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

-- ---- moth.cuda ----

--- moth.cuda: GPUs, and what is asked of them.
device.cuda = {}
local cuda = device.cuda

local count

--- How many GPUs can be used: 0 without a driver, a card, or the plugin libmoth_cuda.so.
function cuda.device_count()
  if not count then count = math.max(0, tonumber(C.moth_device_count(ctx))) end
  return count
end

--- Whether tensors can be put on a GPU.
function cuda.is_available() return cuda.device_count() > 0 end

--- The engine's number of the GPU that an argument names: a device, its name, or its index.
function device.gpu(fname, value)
  if value == nil then value = "cuda" end
  if type(value) == "number" then value = "cuda:" .. value end
  local name = device.name(value)
  if not name or name:match "^cpu" then
    errors.argument(fname, "device", "a GPU such as 'cuda:0' is needed, got "
      .. errors.describe(value), "E_DEVICE")
  end
  if not device.codes[value] then
    errors.argument(fname, "device", device.missing(value), "E_DEVICE")
  end
  return number_of(name)
end

local gpu = device.gpu

local info = ffi.new("moth_device_info")

-- What Lua's collector has found already is given back first.
local function look(fname, which)
  lib.sweep()
  check(C.moth_device_memory(ctx, gpu(fname, which), info), fname)
  return info
end

--- Waits until a GPU has done all that was asked of it, on all streams; errors that came late are
-- raised here.
-- @param which  a device, its name or its index; cuda:0 when absent
function cuda.synchronize(which)
  check(C.moth_device_synchronize(ctx, gpu("synchronize", which)), "synchronize")
end

--- Bytes in the tensors on a GPU now.
function cuda.memory_allocated(which)
  return tonumber(look("memory_allocated", which).live_bytes)
end

--- The most of them so far, or since reset_peak_memory_stats.
function cuda.max_memory_allocated(which)
  return tonumber(look("max_memory_allocated", which).peak_bytes)
end

--- Bytes taken from the GPU: those in tensors and the free blocks that are kept.
function cuda.memory_reserved(which)
  local found = look("memory_reserved", which)
  return tonumber(found.live_bytes + found.cached_bytes)
end

--- Free and total bytes of a GPU, whoever uses it.
function cuda.mem_get_info(which)
  local found = look("mem_get_info", which)
  return tonumber(found.free_bytes), tonumber(found.total_bytes)
end

--- Lets the peak begin anew at what is allocated now.
function cuda.reset_peak_memory_stats(which)
  check(C.moth_device_reset_peak(ctx, gpu("reset_peak_memory_stats", which)),
    "reset_peak_memory_stats")
end

--- Refuses to let tensors on a GPU take more than so many bytes; 0 or nil: as many as there are.
function cuda.set_memory_limit(bytes, which)
  if bytes ~= nil and (type(bytes) ~= "number" or bytes < 0) then
    errors.argument("set_memory_limit", "bytes", "a size is needed, got "
      .. errors.describe(bytes))
  end
  check(C.moth_device_limit(ctx, gpu("set_memory_limit", which), bytes or 0),
    "set_memory_limit")
end

--- "NVIDIA H100": what the driver calls a GPU.
function cuda.get_device_name(which)
  return ffi.string(look("get_device_name", which).name)
end

--- 9, 0: which generation of instructions a GPU has.
function cuda.get_device_capability(which)
  local found = look("get_device_capability", which)
  return found.major, found.minor
end

--- The index of the GPU that "cuda" means: 0.
function cuda.current_device() return 0 end

--- Gives free blocks back to the driver; nothing where there is no GPU.
function cuda.empty_cache(which)
  if which == nil and not cuda.is_available() then return end
  lib.sweep()
  check(C.moth_device_empty_cache(ctx, gpu("empty_cache", which)), "empty_cache")
end

--- moth.capture for a step that runs on a GPU: recorded at its first call, and from then on a few
-- CUDA graphs, each asked for by one request. What moth.capture says of inputs, results and
-- constants holds; optimizers and random numbers go on as in an ordinary step. Raises if no op of
-- the step runs on a GPU. `tostring(step)` says how many graphs a call is, and what runs beside;
-- fewer than 4 launches in a row gain nothing as a graph and stay single ops.
-- @param fn      the step: tensors in, tensors out
-- @param verify  the first so many replays are compared with the step itself; raises if they
--                differ, and at each call from then on (default 0)
-- @return the step: call it as fn; `:free()` gives back what it holds
function cuda.graph(...) return (require "moth.capture".graph(...)) end

--- moth.manual_seed: one stream of random numbers serves all devices, with the same numbers.
function cuda.manual_seed(seed) return require "moth.generator".manual_seed(seed) end
cuda.manual_seed_all = cuda.manual_seed

local lazy = require "moth.lazy"
local rows = {}
lazy.from(rows, "moth.stream", "Stream Event stream current_stream default_stream")
lazy.namespace("moth.cuda", cuda, rows)

return device
