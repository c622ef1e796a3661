--- settings.lua -- settings and small queries: default dtype, threads, is_tensor.

local ffi = require "ffi"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local device = require "moth.tensor.device"
local dtype = require "moth.tensor.dtype"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local C, ctx = lib.C, lib.ctx

local settings = {}

--- The dtype of tensors made from Lua numbers: moth.float32 unless changed.
function settings.get_default_dtype() return dtype.by_code[C.moth_default_dtype(ctx, -1)] end

--- Sets the dtype of tensors made from Lua numbers.
settings.set_default_dtype = define {
  name = "set_default_dtype",
  doc = "Sets the dtype of tensors made from Lua numbers; one of the float dtypes.",
  examples = "moth.float32",
  args = {{"dtype", "dtype", "a float dtype"}},
  run = function(kind)
    if not kind.is_floating_point then
      errors.argument("set_default_dtype", "dtype", "a float dtype is needed, got "
        .. tostring(kind), "E_DTYPE")
    end
    C.moth_default_dtype(ctx, kind.code)
  end,
}

--- The device of tensors that are created without `device`: the CPU unless changed.
function settings.get_default_device()
  return device.by_code[tonumber(C.moth_default_device(ctx, -1))]
end

--- Sets the device of tensors that are created without `device`, also by layers.
settings.set_default_device = define {
  name = "set_default_device",
  doc = "Sets the device of tensors made without `device`, by moth.zeros and other factories, "
    .. "moth.tensor, and layers.",
  examples = '"cpu"',
  args = {{"device", "device", "a device"}},
  run = function(where)
    local status = C.moth_default_device(ctx, device.codes[where] - 1)
    if status < 0 then errors.status(status, "set_default_device") end
  end,
}

--- The number of threads that one op may use: as set, else MOTH_NUM_THREADS, else OMP_NUM_THREADS,
-- else the number of processors that this process may use.
function settings.get_num_threads() return C.moth_get_num_threads() end

--- Sets the number of threads that one op may use.
settings.set_num_threads = define {
  name = "set_num_threads",
  doc = "Sets how many threads one op may use in this process; 0 or 1: only the calling thread. "
    .. "Results do not depend on it. The environment variable MOTH_NUM_THREADS sets the default.",
  examples = "1",
  args = {{"int", "n", "threads"}},
  run = function(n)
    if n < 0 or n > 4096 then
      errors.refuse("set_num_threads", "n", "0 to 4096 is needed", n)
    end
    C.moth_set_num_threads(n)
  end,
}

local PRECISIONS = {[0] = "highest", "high", "medium"}

--- The precision of float32 matrix products on a GPU: the last value of
-- set_float32_matmul_precision.
function settings.get_float32_matmul_precision()
  return PRECISIONS[tonumber(C.moth_float32_precision(ctx, -1))]
end

--- Sets the precision of float32 matrix products on a GPU.
settings.set_float32_matmul_precision = define {
  name = "set_float32_matmul_precision",
  doc = "Sets the precision of f32 matrix products on a GPU: 'highest' (24 bits, the default) or "
    .. "'high' and 'medium' (TF32: factors of 11 bits, several times faster). On the CPU "
    .. "they always have 24 bits.",
  examples = "'highest'",
  args = {{"string", "precision", "'highest', 'high' or 'medium'"}},
  run = function(precision)
    for level = 0, 2 do
      if PRECISIONS[level] == precision then
        C.moth_float32_precision(ctx, level)
        return
      end
    end
    errors.refuse("set_float32_matmul_precision", "precision", "'highest', 'high' or 'medium' is "
      .. "needed", precision)
  end,
}

--- Returns true if use_deterministic_algorithms(true) holds.
function settings.are_deterministic_algorithms_enabled()
  return C.moth_deterministic(ctx, -1) == 1
end

--- Sets if the same call on the same machine must return the same bits.
settings.use_deterministic_algorithms = define {
  name = "use_deterministic_algorithms",
  doc = "Sets whether the same call on the same machine must return the same bits. Moth's "
    .. "kernels always do, on the CPU and on a GPU: sums do not depend on the number and the "
    .. "order of threads. The cuDNN convolutions that Moth calls are deterministic "
    .. "too. With `mode` true, cuBLASLt may not add partial products into the "
    .. "result, and attention does not use cuDNN, which adds the gradient of queries in "
    .. "any order. No op raises.",
  examples = "false",
  args = {
    {"bool", "mode", "must they?"},
    {"bool", "warn_only", "ignored, accepted as in PyTorch: no op raises", default = false},
  },
  run = function(mode) C.moth_deterministic(ctx, mode and 1 or 0) end,
}

--- The code of the last error that Moth raised in this Lua state, e.g. "E_SHAPE"; "OK" if there was
-- none.
function settings.errcode() return errors.code() end

--- Returns true if a value is a tensor.
function settings.is_tensor(x) return lib.istensor(x) end

local function need_tensor(fname, x)
  if not lib.istensor(x) then errors.refuse(fname, "input", "a tensor is needed", x, "E_TYPE") end
end

--- Returns true if a tensor has a floating-point dtype.
function settings.is_floating_point(x)
  need_tensor("is_floating_point", x)
  return x:is_floating_point()
end

--- The number of elements of a tensor.
function settings.numel(x)
  need_tensor("numel", x)
  return x:numel()
end

--- The name of a value's class: "Tensor" for tensors; for other values Lua's type.
function settings.typename(x)
  if lib.istensor(x) then return "Tensor" end
  return class.typename(x) or type(x)
end

--- The address of this Lua state's `moth_ctx`, as a number. A host with several Lua states stops
-- one of them from another thread by moth_cancel(ctx, 1); the next op of that state fails.
function settings.context() return tonumber(ffi.cast("uintptr_t", ctx)) end

return settings
