--- init.lua -- moth.cuda: GPUs, their memory and properties.

local ffi = require "ffi"
local autograd = require "moth.autograd"
local device = require "moth.tensor.device"
local errors = require "moth.error"
local lazy = require "moth.base.lazy"
local lib = require "moth.binding.lib"

local C, ctx, check = lib.C, lib.ctx, lib.check
local gpu = device.gpu

local cuda = {}

--- The number of usable GPUs: 0 without a driver, a card, or the plugin libmoth_cuda.so.
function cuda.device_count() return device.gpus() end

--- Returns true if tensors can be put on a GPU.
function cuda.is_available() return device.gpus() > 0 end

local info = ffi.new("moth_device_info")

-- Frees the tensors that Lua's collector has already found.
local function look(fname, which)
  lib.sweep()
  check(C.moth_device_memory(ctx, gpu(fname, which), info), fname)
  return info
end

--- Waits until a GPU has finished all work on all streams. Deferred errors are raised here.
-- @param which  a device, its name or its index; default "cuda"
function cuda.synchronize(which)
  check(C.moth_device_synchronize(ctx, gpu("synchronize", which)), "synchronize")
end

--- The bytes of the tensors on a GPU.
function cuda.memory_allocated(which)
  return tonumber(look("memory_allocated", which).live_bytes)
end

--- The maximum of memory_allocated since the start or since reset_peak_memory_stats.
function cuda.max_memory_allocated(which)
  return tonumber(look("max_memory_allocated", which).peak_bytes)
end

--- The bytes that Moth holds on the GPU: allocated to tensors or cached for later ones.
function cuda.memory_reserved(which)
  local found = look("memory_reserved", which)
  return tonumber(found.live_bytes + found.cached_bytes)
end

--- Free and total bytes of a GPU, over all processes.
function cuda.mem_get_info(which)
  local found = look("mem_get_info", which)
  return tonumber(found.free_bytes), tonumber(found.total_bytes)
end

--- Resets the peak to the current allocation.
function cuda.reset_peak_memory_stats(which)
  check(C.moth_device_reset_peak(ctx, gpu("reset_peak_memory_stats", which)),
    "reset_peak_memory_stats")
end

--- Limits the bytes of tensors on a GPU; 0 or nil: no limit.
function cuda.set_memory_limit(bytes, which)
  if bytes ~= nil and (type(bytes) ~= "number" or bytes < 0) then
    errors.refuse("set_memory_limit", "bytes", "a size is needed", bytes)
  end
  check(C.moth_device_limit(ctx, gpu("set_memory_limit", which), bytes or 0),
    "set_memory_limit")
end

--- The driver's name of a GPU: "NVIDIA H100".
function cuda.get_device_name(which)
  return ffi.string(look("get_device_name", which).name)
end

--- The compute capability of a GPU: 9, 0.
function cuda.get_device_capability(which)
  local found = look("get_device_capability", which)
  return found.major, found.minor
end

--- The properties of a GPU: a table of `name`, `major`, `minor`, `total_memory` (bytes) and
-- `multi_processor_count`.
function cuda.get_device_properties(which)
  local found = look("get_device_properties", which)
  return {name = ffi.string(found.name), major = found.major, minor = found.minor,
          total_memory = tonumber(found.total_bytes), multi_processor_count = found.processors}
end

--- Returns true if there is a GPU whose tensor cores support bfloat16: compute capability 8.0 or
-- above. Older GPUs compute bfloat16 in float32.
function cuda.is_bf16_supported(which)
  return cuda.is_available() and cuda.get_device_capability(which) >= 8
end

--- The index of the GPU that "cuda" means.
function cuda.current_device() return device.current() end

--- Sets the GPU that "cuda" means, in this Lua state. Existing tensors do not move.
-- @param which  a device, its name or its index
function cuda.set_device(which)
  if which == nil then errors.refuse("set_device", "device", "a GPU is needed", which) end
  local index = gpu("set_device", which) - 1
  autograd.frames.hold("set_device(device)", "moth.cuda.device(device, f)")
  C.moth_mode(ctx, device.vary(), index)
end

--- A report of a GPU's memory use, as text.
function cuda.memory_summary(which)
  local function mib(bytes) return ("%10.1f MiB"):format(tonumber(bytes) / 2 ^ 20) end
  local found = look("memory_summary", which)
  local lines = {
    ffi.string(found.name), "in tensors   " .. mib(found.live_bytes),
    "at most      " .. mib(found.peak_bytes), "kept free    " .. mib(found.cached_bytes),
  }
  if found.limit_bytes > 0 then lines[#lines + 1] = "limit        " .. mib(found.limit_bytes) end
  lines[#lines + 1] = "of the GPU   " .. mib(found.total_bytes)
  lines[#lines + 1] = "free of it   " .. mib(found.free_bytes)
  return table.concat(lines, "\n")
end

--- Limits the tensors on a GPU to a fraction of its memory.
-- @param fraction  from 0 to 1
function cuda.set_per_process_memory_fraction(fraction, which)
  if type(fraction) ~= "number" or not (fraction >= 0 and fraction <= 1) then
    errors.refuse("set_per_process_memory_fraction", "fraction",
      "a number from 0 to 1 is needed", fraction)
  end
  local all = tonumber(look("set_per_process_memory_fraction", which).total_bytes)
  cuda.set_memory_limit(math.max(1, math.floor(all * fraction)), which) -- 0 means no limit
end

--- Returns free blocks to the driver; without a GPU it does nothing.
function cuda.empty_cache(which)
  if which == nil and not cuda.is_available() then return end
  lib.sweep()
  check(C.moth_device_empty_cache(ctx, gpu("empty_cache", which)), "empty_cache")
end

--- moth.capture for a step that runs on a GPU: the first call captures the step as CUDA graphs;
-- later calls launch each graph once. The rules of moth.capture for inputs, results and constants
-- apply; optimizers and random numbers advance as in an ordinary step. Raises if no op of the
-- step runs on a GPU. `tostring(step)` prints the number of graphs in a call and the other
-- launches; fewer than 4 launches in a row gain nothing as a graph and stay single ops.
-- @param fn      the step: tensors in, tensors out
-- @param verify  compares this number of replays with the step itself; if they differ, this call
-- and each later one raises (default 0)
-- @return the step: call it as fn; `:free()` frees its memory
function cuda.graph(...) return (require("moth.capture").graph(...)) end

--- moth.manual_seed: one random number stream serves all devices, with the same numbers.
function cuda.manual_seed(seed) return require("moth.tensor.generator").manual_seed(seed) end
cuda.manual_seed_all = cuda.manual_seed

local rows = {}
lazy.from(rows, "moth.tensor.generator", "seed initial_seed get_rng_state set_rng_state")
lazy.from(rows, "moth.cuda.stream", "Stream Event stream device current_stream default_stream")

return (lazy.namespace("moth.cuda", cuda, rows))
