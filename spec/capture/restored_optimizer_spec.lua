-- A captured step of an optimizer whose state was replaced between replays goes on from that state.

local moth = require "moth"

local optim = moth.optim

-- Weights after steps, with the state of step 3 loaded again after step 6.
local function trained(make, captured)
  moth.manual_seed(1)
  local w = moth.randn(4, 3):requires_grad_()
  local optimizer = make({w})
  local function step(x)
    optimizer:zero_grad()
    local y = w:matmul(x) - 1
    y:square():mean():backward()
    optimizer:step()
  end
  local run = captured and moth.capture(step) or step
  local kept
  for i = 1, 12 do
    run(moth.full({3, 2}, 0.1 * i))
    if i == 3 then kept = moth.deepcopy(optimizer:state_dict()) end
    if i == 6 then optimizer:load_state_dict(kept) end
    if i == 9 then optimizer.state = {} end
  end
  return w:detach():clone()
end

describe("a captured step of", function()
  for _, name in ipairs {"SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "Adadelta", "Adamax",
    "NAdam", "RAdam", "Rprop", "ASGD"} do
    it(name .. " goes on from a loaded or emptied state", function()
      local function make(params)
        local options = name == "SGD" and {lr = 0.1, momentum = 0.9} or {lr = 0.1}
        return optim[name](params, options)
      end
      assert.is_true(moth.equal(trained(make, false), trained(make, true)), name)
    end)
  end
end)
