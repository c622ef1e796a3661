--- settings.lua -- settings and small queries: default dtype, threads, is_tensor, tokens.

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
  args = { { "dtype", "dtype", "a float dtype" } },
  run = function(kind)
    if not kind.is_floating_point then
      errors.argument("set_default_dtype", "dtype", "a float dtype is needed, got "
        .. tostring(kind), "E_DTYPE")
    end
    C.moth_default_dtype(ctx, kind.code)
  end,
}

--- The device of tensors that are made without one: the CPU unless changed.
function settings.get_default_device()
  return device.by_code[tonumber(C.moth_default_device(ctx, -1))]
end

--- Sets the device of tensors that are made without one, also by layers.
settings.set_default_device = define {
  name = "set_default_device",
  doc = "Sets the device of tensors made without `device`, by moth.zeros and other factories, "
    .. "moth.tensor, and layers.",
  examples = '"cpu"',
  args = { { "device", "device", "a device" } },
  run = function(where)
    local status = C.moth_default_device(ctx, device.codes[where] - 1)
    if status < 0 then errors.status(status, "set_default_device") end
  end,
}

--- How many threads one op may use: as set, or MOTH_NUM_THREADS, or OMP_NUM_THREADS, or as many as
-- the processors that this process may use.
function settings.get_num_threads() return C.moth_get_num_threads() end

--- Sets how many threads one op may use.
settings.set_num_threads = define {
  name = "set_num_threads",
  doc = "Sets how many threads one op may use, in this process; 0 or 1: the calling one alone. "
    .. "Results do not depend on it. MOTH_NUM_THREADS in the environment says it beforehand.",
  examples = "1",
  args = { { "int", "n", "threads" } },
  run = function(n)
    if n < 0 or n > 4096 then
      errors.refuse("set_num_threads", "n", "0 to 4096 is needed", n)
    end
    C.moth_set_num_threads(n)
  end,
}

local PRECISIONS = { [0] = "highest", "high", "medium" }

--- How exact products of f32 matrices on a GPU are: as set_float32_matmul_precision said.
function settings.get_float32_matmul_precision()
  return PRECISIONS[tonumber(C.moth_float32_precision(ctx, -1))]
end

--- Sets how exact products of f32 matrices on a GPU are.
settings.set_float32_matmul_precision = define {
  name = "set_float32_matmul_precision",
  doc = "Sets how exact products of f32 matrices on a GPU are: 'highest' (24 bits, the default) or "
    .. "'high' and 'medium' (TF32: factors of 11 bits, several times faster). The CPU's have "
    .. "all bits in any case.",
  examples = "'highest'",
  args = { { "string", "precision", "'highest', 'high' or 'medium'" } },
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

--- Whether results must be the same bits again: as use_deterministic_algorithms said.
function settings.are_deterministic_algorithms_enabled()
  return C.moth_deterministic(ctx, -1) == 1
end

--- Sets whether results must be the same bits again.
settings.use_deterministic_algorithms = define {
  name = "use_deterministic_algorithms",
  doc = "Sets whether the same call on the same machine must give the same bits. Moth's own "
    .. "kernels always do, on the CPU with any number of threads and on a GPU: nothing is added up "
    .. "in the order in which threads happen to come. So do the convolutions that cuDNN is asked "
    .. "for. With this on, cuBLASLt is held to it too: it may not add the parts of a product up in "
    .. "the result itself; and attention is not cuDNN's, which adds up the gradient of queries in "
    .. "any order. No op is refused.",
  examples = "false",
  args = {
    { "bool", "mode", "must they?" },
    { "bool", "warn_only", "taken along from PyTorch: no op raises", default = false },
  },
  run = function(mode) C.moth_deterministic(ctx, mode and 1 or 0) end,
}

--- The code of the last error that Moth raised in this state, e.g. "E_SHAPE"; "OK" if none was.
function settings.errcode() return errors.code() end

--- Whether a value is a tensor.
function settings.is_tensor(x) return lib.istensor(x) end

local function need_tensor(fname, x)
  if not lib.istensor(x) then errors.refuse(fname, "input", "a tensor is needed", x, "E_TYPE") end
end

--- Whether a tensor's dtype is one of the float dtypes.
function settings.is_floating_point(x)
  need_tensor("is_floating_point", x)
  return x:is_floating_point()
end

--- The number of elements of a tensor.
function settings.numel(x)
  need_tensor("numel", x)
  return x:numel()
end

--- The name of a value's class, "Tensor" for tensors, else Lua's type.
function settings.typename(x)
  if lib.istensor(x) then return "Tensor" end
  return class.typename(x) or type(x)
end

--- This Lua state's `moth_ctx *`, as a number: a host that has several stops one of them from
-- another thread by moth_cancel(ctx, 1), and its next op fails.
function settings.context() return tonumber(ffi.cast("uintptr_t", ctx)) end

local token = ffi.new("uint64_t[1]")

--- A token by which another Lua state, also on another thread, opens this tensor: a string. It is
-- good for one moth.open_token; the opened tensor shares the bytes and has no history.
function settings.token(x)
  if not lib.istensor(x) then
    errors.refuse("token", "x", "a tensor is needed", x, "E_TYPE")
  end
  lib.check(C.moth_token(ctx, x, token), "token", x)
  return (tostring(token[0]):gsub("ULL$", ""))
end

--- The tensor behind a token.
function settings.open_token(text)
  local digits = type(text) == "string" and text:match("^%d+$")
  if not digits then
    errors.refuse("open_token", "token", "a token is needed", text, "E_TYPE")
  end
  token[0] = 0
  for digit in digits:gmatch("%d") do token[0] = token[0] * 10 + tonumber(digit) end
  local h = lib.Handle()
  local status = C.moth_token_open(ctx, token[0], h)
  return lib.adopt(h, lib.check(status, "open_token"))
end

return settings
