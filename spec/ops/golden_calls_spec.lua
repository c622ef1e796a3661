-- Functions with inputs of all kinds equal PyTorch's: integers and bools in float kernels, 0-d
-- tensors, negative dimensions, options together; results with their dtypes, and gradients.
-- spec/golden/calls.py wrote the numbers.

local moth = require "moth"
local calls = require "spec.support.golden_calls"
local golden = require "spec.support.golden"

local function compare(case)
  local grads = case.input_grads ~= golden.null and case.input_grads
  local given, leaves = calls.inputs(case, function(kind)
    return grads and (kind == "x" or kind == "p" or kind == "u")
  end)
  local results = calls.flat({}, calls.run(case.call, given))
  assert.equal(#case.results, #results)
  local positions = {}
  for _, i in ipairs(case.positions) do positions[i + 1] = true end
  for i, y in ipairs(results) do
    calls.check("result " .. i, case.results[i], positions[i] and y - 1 or y)
  end
  calls.learn(results)
  for i, x in ipairs(leaves) do
    calls.check("gradient of input " .. i, grads[i], x.grad or moth.zeros_like(x))
  end
end

describe("a function equals PyTorch's:", function()
  local before = moth.get_default_dtype()
  setup(function() moth.set_default_dtype(moth.float64) end)
  teardown(function() moth.set_default_dtype(before) end)
  for _, case in ipairs(golden.cases "calls") do
    it(("%s of %s"):format(case.call, calls.sizes(case)), function() compare(case) end)
  end
end)
