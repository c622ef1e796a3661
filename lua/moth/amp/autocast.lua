--- autocast.lua -- mixed precision: matrix products in half types, sensitive ops in float32.
--
-- After Micikevicius et al. 2018. Softmax and norms return float32, as in PyTorch on CUDA; on its
-- CPU they stay in bfloat16. The core casts the inputs of ops while the mode is on
-- (core/call/autocast.c); this file enters and leaves the mode.

local autograd = require "moth.autograd"
local device = require "moth.tensor.device"
local dtypes = require "moth.tensor.dtype"
local errors = require "moth.error"
local calls = require "moth.binding.calls"
local lib = require "moth.binding.lib"

local C, ctx = lib.C, lib.ctx
local frames = autograd.frames

local autocast = {}

local OFF = -1

local AUTOCAST = lib.modes.autocast

local function code_of(device_type, dtype)
  local name = device.name(device_type)
  if not name then
    errors.argument("autocast", "device_type", '"cpu" or "cuda" is needed, got '
      .. errors.describe(device_type))
  end
  if not device.codes[name] then
    errors.argument("autocast", "device_type", device.missing(name), "E_DEVICE")
  end
  if dtype == lib.none then dtype = nil end
  if dtype == false then return OFF end
  if dtype ~= nil and dtype ~= dtypes.by_name.bfloat16 and dtype ~= dtypes.by_name.float16 then
    errors.refuse("autocast", "dtype", "moth.bfloat16, moth.float16 or false is needed", dtype)
  end
  if dtype == nil then dtype = dtypes.by_name[name:match "^cuda" and "float16" or "bfloat16"] end
  return dtype.code
end

local Region = {}
Region.__index = Region

--- Enters the mode. @return the autocast object
function Region:enter()
  if self.frame then errors.raise("this autocast region is already active", "E_STATE") end
  frames.hold("autocast without a function", "moth.autocast(device_type, f)")
  self.frame = frames.enter(self.code, "autocast", AUTOCAST)
  return self
end

--- Leaves the mode and all nested ones.
function Region:exit()
  local frame = self.frame
  if not frame then errors.raise("this autocast region is not active", "E_STATE") end
  self.frame = nil
  local problem = frames.leave(frame)
  if problem then errors.raise(problem, "E_STATE") end
end

local NAMES = {"device_type", "dtype", "enabled"}

local is_names = lib.is_plain

-- The dtype's code from a table of named arguments; device_type: the preceding argument, if there
-- is one.
local function code_of_names(device_type, names)
  local given = {device_type = device_type, enabled = true}
  for name, value in pairs(names) do
    if name == 1 and device_type == nil then name = "device_type" end
    if name ~= "device_type" and name ~= "dtype" and name ~= "enabled" then
      errors.raise(("'autocast' has no argument '%s'%s"):format(tostring(name),
        errors.nearest(tostring(name), NAMES)))
    elseif name == "device_type" and given.device_type ~= nil then
      errors.argument("autocast", name, "given twice")
    end
    given[name] = value
  end
  if type(given.enabled) ~= "boolean" then
    errors.refuse("autocast", "enabled", "a boolean is needed", given.enabled, "E_TYPE")
  end
  local code = code_of(given.device_type, given.dtype)
  return given.enabled and code or OFF
end

local function begin(code, f, ...)
  if f == nil then return setmetatable({code = code}, Region) end
  if not calls.is_callable(f) then
    errors.refuse("autocast", "f", "a function is needed", f)
  end
  return frames.run(code, "autocast", AUTOCAST, f, ...)
end

--- Calls f(...) in mixed precision and returns its results. Matrix products, convolutions and
-- attention cast their float32 inputs to `dtype` and return `dtype`. Softmax, losses, norms,
-- sums, powers and exponentials cast their inputs to float32, as in PyTorch on CUDA. Other ops
-- use the widest dtype of their inputs. Parameters and gradients stay float32; a parameter is
-- cast once per autocast call. Backward passes may run inside or outside. The mode applies to ops
-- on every device, whichever is named; "cuda" requires a GPU, where products of half types are
-- several times as fast as those of float32. With AMX (Intel) or AVX512-BF16 (AMD), matrix
-- products and convolutions of bfloat16 run at up to six times or twice the speed of float32
-- (numbers below 1.2e-38 count as 0 in them). On other CPUs, and for attention, it saves memory
-- but no time: computation is in float32. Without f it returns an object with `enter` and `exit`.
-- The arguments before f may be named: moth.autocast({device_type = "cuda", dtype =
-- moth.bfloat16, enabled = true}, f, ...), or moth.autocast("cuda", {enabled = false}, f, ...).
-- (As torch.autocast; Micikevicius et al. 2018, "Mixed precision training".)
-- @param device_type  "cpu" or "cuda"
-- @param dtype  moth.bfloat16 (the default for "cpu"), moth.float16 (the default for "cuda", as
-- in PyTorch; training then needs moth.amp.GradScaler), or false: no casts inside; optional
-- before f
-- @param enabled  only by name; false: no casts inside (default true)
function autocast.autocast(device_type, dtype, f, ...)
  if is_names(device_type) then return begin(code_of_names(nil, device_type), dtype, f, ...) end
  if is_names(dtype) then return begin(code_of_names(device_type, dtype), f, ...) end
  if calls.is_callable(dtype) then return begin(code_of(device_type), dtype, f, ...) end
  return begin(code_of(device_type, dtype), f, ...)
end

--- Returns true if ops cast their inputs for mixed precision now.
function autocast.is_autocast_enabled() return C.moth_autocast(ctx, -2) ~= OFF end

return autocast
