-- The ops give PyTorch's values and gradients: spec/support/golden_layers.lua and golden_ops.lua
-- hold small calls with what PyTorch made of them, computed in float64.

local moth = require "moth"

local env = setmetatable({moth = moth, F = moth.nn.functional}, {__index = _G})

-- Relative to the larger of 1 and the value.
local TOLERANCE = {float64 = 1e-12, float32 = 2e-5}

local function tensor(packed, dtype)
  local kinds = {i64 = moth.int64, bool = moth.bool}
  local shape, values = packed[1], packed[2]
  return moth.tensor(values, {dtype = packed[3] and kinds[packed[3]] or dtype}):view(shape)
end

local function sizes(x)
  local list = {}
  for d = 1, x:dim() do list[d] = x:size(d) end
  return list
end

-- Numbers of any tensor in row-major order; int64s and booleans as numbers.
local function numbers(x)
  return x:reshape(-1):to(moth.float64):tolist()
end

-- 7k mod 11 counts through 0 ... 10, scattered.
local function weights_of(y)
  local c = {}
  for k = 0, y:numel() - 1 do c[k + 1] = (7 * k % 11 - 5) / 8 end
  return moth.tensor(c, {dtype = y.dtype}):view(y.shape)
end

local function check(case, dtype, name)
  local scope, leaves = setmetatable({}, {__index = env}), {}
  for key, packed in pairs(case.inputs) do
    scope[key] = tensor(packed, dtype)
    if case.grads and case.grads[key] then leaves[key] = scope[key]:requires_grad_() end
  end
  local call = assert(loadstring("return (" .. case.call .. ")", "=" .. case.call))
  local y = setfenv(call, scope)()
  assert.same(case.y[1], sizes(y))
  assert.close(case.y[2], numbers(y), TOLERANCE[name])
  if not case.grads then return end
  (y * weights_of(y)):sum():backward()
  for key, packed in pairs(case.grads) do
    assert.same(packed[1], sizes(leaves[key].grad))
    assert.close(packed[2], numbers(leaves[key].grad), TOLERANCE[name])
  end
end

for _, file in ipairs {"golden_layers", "golden_ops"} do
  for _, case in ipairs(require("spec.support." .. file)) do
    describe(case.op, function()
      for _, name in ipairs {"float32", "float64"} do
        it(case.claim .. " in " .. name, function() check(case, moth[name], name) end)
      end
    end)
  end
end
