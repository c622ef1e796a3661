-- Modules with their options equal PyTorch's: results, gradients of inputs and parameters, the
-- state dict after a training step (names, order, shapes, values), and the results of evaluation.
-- spec/golden/modules.py wrote the numbers.

local moth = require "moth"
local calls = require "spec.support.golden_calls"
local golden = require "spec.support.golden"

local function is_leaf(kind, k)
  return kind == "x" or kind == "p" or kind == "u" and k == 1
end

local function compare(case)
  local net = calls.run(case.make, {moth = moth, nn = moth.nn}):double()
  for k, p in ipairs(net:parameters()) do
    p.data = calls.made("x", {unpack(p.shape)}, 3 * (k - 1) + 1) * 0.75
  end
  local given, leaves = calls.inputs(case, is_leaf)
  given.m = net
  local results = calls.flat({}, calls.run(case.call, given))
  assert.equal(#case.results, #results)
  for i, y in ipairs(results) do calls.check("result " .. i, case.results[i], y) end
  calls.learn(results)
  for i, x in ipairs(leaves) do
    calls.check("gradient of input " .. i, case.input_grads[i], x.grad or moth.zeros_like(x))
  end
  local n = 0
  for name, p in net:named_parameters() do
    n = n + 1
    assert.equal(case.grads[n][1], name)
    calls.check("gradient of " .. name, case.grads[n], p.grad)
  end
  assert.equal(#case.grads, n)
  n = 0
  for name, x in net:state_dict():items() do
    n = n + 1
    assert.equal(case.state[n][1], name)
    calls.check(name, case.state[n], x)
  end
  assert.equal(#case.state, n)
  given.m = net:eval()
  local again = moth.no_grad(function() return calls.flat({}, calls.run(case.call, given)) end)
  for i, wanted in ipairs(case.evaluated) do
    calls.close("result " .. i .. " of evaluation", wanted, calls.weighed(again[i]))
  end
end

describe("a module equals PyTorch's:", function()
  for _, case in ipairs(golden.cases "modules") do
    it(("%s, %s of %s"):format(case.make, case.call, calls.sizes(case)), function()
      compare(case)
    end)
  end
end)
