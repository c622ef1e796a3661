--- lppool.lua -- nn.LPPool1d to 3d: the p-norm of each window. Also lp_pool1d to 3d of
-- moth.nn.functional.

local define = require "moth.binding.define"
local functional = require "moth.nn.functional"
local lib = require "moth.binding.lib"
local layer = require "moth.nn.layer"
local window = require "moth.nn.layer.window"

local lppool = {}

-- Returns true if no power of x overflowed or underflowed; y has the pooled norms.
local function within(y, x, bound)
  y = y:detach():abs()
  local least, most = y:aminmax()
  if not (most:item() < bound) then return false end
  if least:item() > 1 / bound then return true end
  x = x:detach():abs()
  return require("moth").where(x:eq(0), 1, x):min():item() > 1 / bound
end

local SIZES = {"6", "4, 6", "2, 4, 4"}

for n = 1, 3 do
  local fname, mean = "lp_pool" .. n .. "d", "avg_pool" .. n .. "d"
  lppool[fname] = define {
    name = fname,
    doc = "The p-norm of each window: the p-th root of the sum of p-th powers.",
    examples = ("moth.randn(2, 3, %s), 2, 2\nmoth.rand(3, %s) + 0.5, "
      .. "{norm_type = 3, kernel_size = 3, stride = 2, ceil_mode = true}  -- domain: positive")
      :format(SIZES[n], SIZES[n]),
    args = {
      {"tensor", "input", window.INPUT[n]},
      {"float", "norm_type", "p, the exponent of the norm"},
      {"int" .. n, "kernel_size", "size of the window"},
      {"int" .. n, "stride", "step between windows", same = "kernel_size"},
      {"bool", "ceil_mode", "include windows that extend over the far edge?", default = false},
    },
    scoped = true,
    run = function(input, p, kernel, step, ceil)
      if not input:is_floating_point() then
        input = input:to(require("moth").get_default_dtype())
      end
      if input:element_size() < 4 then -- a half type: its squares overflow easily
        return (lppool[fname](input:float(), p, kernel, step, ceil):to(input.dtype))
      end
      local taps = 1
      for _, size in ipairs(window.list(kernel, n)) do taps = taps * size end
      -- For a window of zeros this form has gradient 0; the gradient of a plain root is infinite.
      local function pooled(x)
        local y = functional[mean](x:pow(p), kernel, step, 0, ceil)
        return (y:sign() * functional.relu(y:abs()) * taps):pow(1 / p)
      end
      local bound = 10 ^ (30 / math.max(math.abs(p), 1))
      -- A captured step cannot check values, and on a GPU the check would synchronize.
      local seen = not lib.capture and not input.is_cuda and input:numel() > 0
      if seen then
        local y = pooled(input)
        if y:numel() == 0 or within(y, input, bound) then return y end
        local single = input.dtype == require("moth").float32
        if single and math.abs(p) <= 7 then return (pooled(input:double()):float()) end
      end
      -- Powers of the elements would overflow: scale by the largest element.
      local most = input:numel() > 0 and input:detach():abs():max() or input:new_ones {}
      local far = most:gt(bound):logical_and(most:isfinite())
      local close = most:lt(1 / bound):logical_and(most:gt(0))
      most = require("moth").where(far:logical_or(close), most, 1)
      return (pooled(input / most) * most)
    end,
  }
end

return (layer.of(lppool, {LPPool1d = "lp_pool1d", LPPool2d = "lp_pool2d", LPPool3d = "lp_pool3d"}))
