-- Training on a GPU: the README's network from one seed on the CPU and on the GPU, with the same
-- losses step by step, and no memory leak; mixed precision with and without a scaler; an
-- optimizer's state that is loaded to the device of its parameters.

local moth = require "moth"
local cuda = require "spec.support.cuda"
local Net = require "spec.support.classic"

local nn, F, optim = moth.nn, moth.nn.functional, moth.optim

-- A batch of noise with a bar whose position is the class.
local function batch(n)
  local x, y = moth.rand(n, 1, 28, 28), moth.randint(1, 11, { n })
  for i, class in ipairs(y:tolist()) do x[{ i, 1, { 2 * class, 2 * class + 3 } }] = 3 end
  return x, y
end

-- The losses of a training, and the network.
local function train(device, steps)
  moth.manual_seed(7)
  local net = Net():to(device)
  local optimizer = optim.SGD(net:parameters(), { lr = 0.02, momentum = 0.9 })
  local losses = {}
  for step = 1, steps do
    moth.scope(function()
      local x, y = batch(8)
      optimizer:zero_grad()
      local loss = F.nll_loss(net(x:to(device)), y:to(device))
      loss:backward()
      optimizer:step()
      losses[step] = loss:item()
    end)
  end
  return losses, net
end

describe("training on a GPU", function()
  if not cuda.here then
    pending("has the CPU's losses: " .. cuda.why)
    return
  end

  it("has the CPU's losses, step by step, and frees its memory", function()
    moth.collect()
    local before = moth.cuda.memory_allocated()
    local wanted = train("cpu", 6)
    local got, net = train("cuda", 6)
    for step, loss in ipairs(wanted) do
      assert(math.abs(loss - got[step]) <= 1e-4 * math.abs(loss),
        ("step %d: %.7g on the CPU, %.7g on the GPU"):format(step, loss, got[step]))
    end
    assert.is_true(net.fc2.weight.is_cuda)
    net = nil -- luacheck: ignore
    moth.collect()
    assert.equal(before, moth.cuda.memory_allocated())
  end)

  it("continues from a state that was saved on the CPU", function()
    moth.manual_seed(1)
    local net = nn.Linear(3, 2)
    local here = optim.Adam(net:parameters(), { lr = 0.1 })
    net(moth.ones(1, 3)):sum():backward()
    here:step()
    local state = here:state_dict()
    net:to("cuda")
    local there = optim.Adam(net:parameters(), { lr = 0.1 })
    there:load_state_dict(state)
    there:zero_grad()
    net(moth.ones(1, 3, { device = "cuda" })):sum():backward()
    there:step()
    assert.is_true(there.state[net.weight].exp_avg.is_cuda)
  end)

  it("computes products in half types inside autocast; parameters stay float32", function()
    moth.manual_seed(1)
    local net = nn.Sequential(nn.Conv2d(2, 9, 3), nn.ReLU(), nn.Flatten(), nn.Linear(9 * 16, 4))
      :to("cuda")
    local x = moth.randn(3, 2, 6, 6):to("cuda")
    for _, dtype in ipairs { moth.bfloat16, moth.float16 } do
      local y, z = moth.autocast("cuda", dtype, function() return net(x), net(x):softmax(2) end)
      assert.equal(dtype, y.dtype)
      assert.equal(moth.float32, z.dtype)
      net:zero_grad()
      y:float():sum():backward()
      assert.equal(moth.float32, net[1].weight.grad.dtype)
      assert.is_true((net(x) - y):abs():max():item() < 0.05)
    end
    assert.is_false(moth.is_autocast_enabled())
  end)

  it("uses float16 inside autocast without a dtype, bfloat16 on the CPU", function()
    local x = moth.ones(2, 2, { device = "cuda" })
    for where, dtype in pairs { ["cuda"] = "float16", ["cuda:0"] = "float16", cpu = "bfloat16" } do
      local y = moth.autocast(where, nil, function() return x:matmul(x) end)
      assert.equal(moth[dtype], y.dtype)
    end
  end)

  it("scales float16's gradients, and skips a step if they overflow", function()
    moth.manual_seed(1)
    local net = nn.Linear(3, 2):to("cuda")
    local optimizer = optim.SGD(net:parameters(), { lr = 0.1 })
    local scaler = moth.GradScaler { init_scale = 1024 }
    local function step(factor)
      optimizer:zero_grad()
      local loss = moth.autocast("cuda", moth.float16, function()
        return net(moth.ones(4, 3, { device = "cuda" })):float():mean() * factor
      end)
      scaler:scale(loss):backward()
      scaler:step(optimizer)
      scaler:update()
    end
    local before = net.weight:detach():cpu():clone()
    step(1)
    local after = net.weight:detach():cpu():clone()
    assert.is_true((before - after - 0.05):abs():max():item() < 1e-4)
    step(math.huge)
    assert.is_true(after:equal(net.weight:detach():cpu()))
    assert.equal(512, scaler:get_scale())
  end)
end)

describe("the examples", function()
  local launcher = debug.getregistry()["moth.launcher"]
  if not cuda.here or not launcher then
    pending("train on a GPU: " .. cuda.why)
    return
  end

  local function runs(line)
    local pipe = io.popen(("'%s' examples/%s --device cuda 2>&1; echo status $?"):format(
      launcher.program, line))
    local text = pipe:read "*a"
    pipe:close()
    assert(text:find "status 0\n$", text)
  end

  it("train on a GPU with --device", function()
    local out = os.tmpname()
    runs("04_mnist.lua --limit 40 --batch-size 20 --out " .. out)
    os.remove(out)
    runs "05_char_lstm.lua --steps 1 --length 6 --batch-size 2 --write 3"
    runs "06_gpt.lua --steps 1 --layers 1 --width 16 --heads 2 --context 8 --batch-size 2 --write 3"
    runs "07_extending.lua --steps 5"
    runs "09_cartpole.lua --episodes 2"
  end)
end)
