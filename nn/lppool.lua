--- lppool.lua -- nn.LPPool1d to 3d: the p-norm of each window; and lp_pool1d to 3d, found in
-- moth.nn.functional.

local define = require "moth.define"
local functional = require "moth.nn.functional"
local layer = require "moth.nn.layer"
local window = require "moth.nn.window"

local lppool = {}

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
      {"float", "norm_type", "p: the power of the norm"},
      {"int" .. n, "kernel_size", "size of the window"},
      {"int" .. n, "stride", "step between windows", same = "kernel_size"},
      {"bool", "ceil_mode", "count windows that hang over the far edge?", default = false},
    },
    scoped = true,
    run = function(input, p, kernel, step, ceil)
      if not input:is_floating_point() then
        input = input:to(require("moth").get_default_dtype())
      end
      local taps = 1
      for _, size in ipairs(window.list(kernel, n)) do taps = taps * size end
      -- Of multiples of the largest element if powers of such would leave the range.
      local most = input:numel() > 0 and input:detach():abs():max() or input:new_ones {}
      local bound = 10 ^ (30 / math.max(math.abs(p), 1))
      local far = most:gt(bound):logical_and(most:isfinite())
      local close = most:lt(1 / bound):logical_and(most:gt(0))
      most = require("moth").where(far:logical_or(close), most, 1)
      local y = functional[mean]((input / most):pow(p), kernel, step, 0, ceil)
      -- Written so, a window of zeros has the gradient 0; that of the root alone is infinite.
      return ((y:sign() * functional.relu(y:abs()) * taps):pow(1 / p) * most)
    end,
  }
end

return (layer.of(lppool, {LPPool1d = "lp_pool1d", LPPool2d = "lp_pool2d", LPPool3d = "lp_pool3d"}))
