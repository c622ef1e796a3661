--- lppool.lua -- nn.LPPool1d to 3d: the p-norm of each window; and lp_pool1d to 3d, found in
-- moth.nn.functional.

local class = require "moth.class"
local define = require "moth.define"
local Module = require "moth.nn.module"
local functional = require "moth.nn.functional"
local window = require "moth.nn.window"

local lppool = {}

local SIZES = {"6", "4, 6", "2, 4, 4"}

local function rows(n)
  return {"float", "norm_type", "p: the power of the norm"},
    {"int" .. n, "kernel_size", "size of the window"},
    {"int" .. n, "stride", "step between windows", same = "kernel_size"},
    {"bool", "ceil_mode", "count windows that hang over the far edge?", default = false}
end

for n = 1, 3 do
  local name, fname, mean = "LPPool" .. n .. "d", "lp_pool" .. n .. "d", "avg_pool" .. n .. "d"
  local norm_type, kernel_size, stride, ceil_mode = rows(n)
  local Pool = class(name, Module)
  lppool[name], Pool._doc = Pool, "The p-norm of each window of " .. window.INPUT[n] .. "."

  lppool[fname] = define {
    name = fname,
    doc = "The p-norm of each window: the p-th root of the sum of p-th powers.",
    examples = ("moth.randn(2, 3, %s), 2, 2\nmoth.rand(3, %s) + 0.5, "
      .. "{norm_type = 3, kernel_size = 3, stride = 2, ceil_mode = true}  -- domain: positive")
      :format(SIZES[n], SIZES[n]),
    args = {{"tensor", "input", window.INPUT[n]}, norm_type, kernel_size, stride, ceil_mode},
    scoped = true,
    run = function(input, p, kernel, step, ceil)
      local taps = 1
      for _, size in ipairs(window.list(kernel, n)) do taps = taps * size end
      local y = functional[mean](input:pow(p), kernel, step, 0, ceil)
      -- Written so, a window of zeros has the gradient 0; that of the root alone is infinite.
      return ((y:sign() * functional.relu(y:abs()) * taps):pow(1 / p))
    end,
  }

  Pool.signature = define.signature(name, {norm_type, kernel_size, stride, ceil_mode})

  function Pool:init(p, kernel, step, ceil)
    self.norm_type, self.kernel_size, self.stride, self.ceil_mode = p, kernel, step, ceil
  end

  function Pool:forward(input)
    return (functional[fname](input, self.norm_type, self.kernel_size, self.stride,
      self.ceil_mode))
  end

  function Pool:extra_repr()
    return ("norm_type=%s, kernel_size=%s, stride=%s, ceil_mode=%s"):format(
      tostring(self.norm_type), window.text(self.kernel_size), window.text(self.stride),
      tostring(self.ceil_mode))
  end
end

return lppool
