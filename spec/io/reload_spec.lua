-- moth.reload: a changed script continues with the state of the old one.

local moth = require "moth"

local path = os.tmpname()

local function write(width, rate)
  local file = io.open(path, "w")
  file:write(([[
    local moth = require "moth"
    local net = moth.nn.Sequential(moth.nn.Linear(2, %d), moth.nn.Tanh(), moth.nn.Linear(%d, 1))
    local optimizer = moth.optim.Adam(net:parameters(), {lr = 0.1})
    local model = {net = net, optimizer = optimizer, step = 0, rate = %g}
    function model.learn()
      model.step = model.step + 1
      optimizer:zero_grad()
      local loss = net(moth.ones(4, 2)):pow(2):sum()
      loss:backward()
      optimizer:step()
      return loss:item()
    end
    return model]]):format(width, width, rate))
  file:close()
end

describe("moth.reload", function()
  teardown(function() os.remove(path) end)

  it("keeps weights, the optimizer's state and numbers", function()
    write(3, 1)
    local one = moth.reload(path)
    for _ = 1, 5 do one.learn() end
    local two, lines = moth.reload(path, one)
    assert.same({}, lines)
    assert.equal(5, two.step)
    for _ = 1, 5 do assert.equal(one.learn(), two.learn()) end
  end)

  it("raises a list of the tensors whose shapes have changed", function()
    write(3, 1)
    local one = moth.reload(path)
    write(5, 1)
    local ok, problem = pcall(moth.reload, path, one)
    assert.is_false(ok)
    assert.equal("E_SHAPE", moth.errcode())
    assert.is_truthy(problem:find("net.0.weight: f32 (3, 2) -> f32 (5, 2)", 1, true))
    assert.is_nil(problem:find(".bias: f32 (1)", 1, true))
  end)

  it("carries over what fits, if it is not strict", function()
    write(3, 1)
    local one = moth.reload(path)
    one.learn()
    write(5, 1)
    local two, lines = moth.reload(path, one, false)
    assert.equal(3, #lines)
    assert.equal(one.net[3].bias:item(), two.net[3].bias:item())
    assert.equal(1, two.step)
    two.learn()
  end)

  it("leaves the old state as it was after an error of the script", function()
    write(3, 1)
    local one = moth.reload(path)
    local file = io.open(path, "w")
    file:write "error 'no'"
    file:close()
    assert.is_false((pcall(moth.reload, path, one)))
    one.learn()
  end)
end)
