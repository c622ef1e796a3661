--- focus.lua -- moth.nn.attention: which kernels scaled_dot_product_attention may use.

local define = require "moth.binding.define"
local errors = require "moth.error"
local lazy = require "moth.base.lazy"
local lib = require "moth.binding.lib"

local C, ctx = lib.C, lib.ctx
local attention = {}

--- The kernels by PyTorch's names. MATH, FLASH_ATTENTION and EFFICIENT_ATTENTION are Moth's
-- kernel, CUDNN_ATTENTION is cuDNN's on a GPU.
attention.SDPBackend = {
  MATH = "MATH", FLASH_ATTENTION = "FLASH_ATTENTION", EFFICIENT_ATTENTION = "EFFICIENT_ATTENTION",
  CUDNN_ATTENTION = "CUDNN_ATTENTION",
}

local FNAME = "sdpa_kernel"

-- Converts a kernel's name or a list of names to a set.
local function chosen(backends)
  local list = type(backends) == "string" and {backends} or backends
  local set, known = {}, {}
  for name in pairs(attention.SDPBackend) do known[#known + 1] = name end
  table.sort(known)
  if not lib.is_plain(list) or #list == 0 then
    errors.refuse(FNAME, "backends", "a name of SDPBackend or a list of names is needed", backends,
      "E_TYPE")
  end
  for _, name in ipairs(list) do
    if not attention.SDPBackend[name] then
      errors.argument(FNAME, "backends", ("one of %s is needed, got %s%s"):format(
        table.concat(known, ", "), errors.describe(name), errors.nearest(tostring(name), known)),
        "E_DOMAIN")
    end
    set[name] = true
  end
  return set
end

local function restore(before, ok, ...)
  C.moth_cudnn(ctx, C.MOTH_CUDNN_SDP, before)
  if not ok then error((...), 0) end
  return ...
end

--- moth.nn.attention.sdpa_kernel(backends, f): calls f(); attention uses only these kernels
-- meanwhile.
attention.sdpa_kernel = define {
  name = FNAME,
  doc = "Calls f() and returns its results; inside, scaled_dot_product_attention uses the named "
    .. "kernels. MATH, FLASH_ATTENTION and EFFICIENT_ATTENTION are one kernel, which is always "
    .. "available; CUDNN_ATTENTION is cuDNN's, for half types on a GPU. (As "
    .. "torch.nn.attention.sdpa_kernel; a function replaces its `with` block.)",
  examples = "'MATH', function() return moth.ones(2) end\n"
    .. "{'CUDNN_ATTENTION', 'MATH'}, function() return moth.ones(2) end, {set_priority = true}",
  args = {
    {"any", "backends", "a name of SDPBackend, or a list of names"},
    {"function", "f", "the function to call"},
    {"bool", "set_priority", "use the first that supports the inputs; cuDNN's is always first",
      default = false},
  },
  outputs = "...",
  run = function(backends, f)
    local set = chosen(backends)
    local own = set.MATH or set.FLASH_ATTENTION or set.EFFICIENT_ATTENTION
    if not own and not require("moth").cuda.is_available() then
      errors.argument(FNAME, "backends", "CUDNN_ATTENTION needs a GPU, and there is none here; "
        .. "add MATH", "E_UNSUPPORTED")
    end
    local before = C.moth_cudnn(ctx, C.MOTH_CUDNN_SDP, set.CUDNN_ATTENTION and 1 or 0)
    return restore(before, pcall(f))
  end,
}

return (lazy.namespace("moth.nn.attention", attention, {}))
