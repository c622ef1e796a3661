-- A linear that also computes the relu after it: by an argument, in a captured step, in modules.

local moth = require "moth"
local support = require "spec.support.bits"
local captures = require "spec.support.captured"
local nodes = require("spec.support.nodes").of

local nn, F, optim = moth.nn, moth.nn.functional, moth.optim
local bits, state_of = support.of, support.state_of
local ops_of, recorded = captures.ops_of, captures.recorded

describe("F.linear with an activation", function()
  local SIZES = {
    {1, 1, 1}, {1, 64, 64}, {2, 40, 7}, {9, 33, 12}, {5, 3, 2}, {16, 300, 200}, {130, 60, 70},
    {3, 70, 1000}, {1, 3000, 200}, {20, 512, 600}, {3, 9000, 3}, {64, 0, 5}, {70, 9000, 70},
    {1, 1, 70000}, {0, 3, 2}, {128, 70, 16},
  }

  local function drawn(dtype, ...)
    if dtype.is_floating_point then return moth.randn({...}, {dtype = dtype}) end
    local x = moth.randint(0, 5, {...})
    return (dtype == moth.uint8 and x or x - 2):to(dtype)
  end

  it("equals relu of the linear, bit for bit", function()
    moth.manual_seed(3)
    for _, dtype in ipairs {moth.float32, moth.float64, moth.float16, moth.bfloat16, moth.int32,
                            moth.uint8, moth.int64} do
      for _, size in ipairs(SIZES) do
        local m, k, n = unpack(size)
        local x, w, b = drawn(dtype, m, k), drawn(dtype, n, k), drawn(dtype, n)
        local turned = {{x, w, b}, {x, w}, {x:t():contiguous():t(), w, b},
                        {x, w:t():contiguous():t(), b}}
        for form, args in ipairs(turned) do
          local got = F.linear {args[1], args[2], bias = args[3], activation = "relu"}
          assert.equal(bits(F.relu(F.linear(unpack(args)))), bits(got),
            ("%s %d %d %d, form %d"):format(tostring(dtype), m, k, n, form))
        end
      end
    end
  end)

  it("keeps NaN, and the -0 that a half type rounds to", function()
    for _, dtype in ipairs {moth.float32, moth.float64, moth.float16, moth.bfloat16} do
      local x = moth.tensor({{0 / 0}, {-1}, {-1e-20}, {1 / 0}}, {dtype = dtype})
      local w = moth.tensor({{1}, {1e-7}}, {dtype = dtype})
      local y = F.linear {x, w, activation = "relu"}
      assert.equal(bits(F.relu(F.linear(x, w))), bits(y))
      assert.is_true(y[1][1]:isnan():item())
    end
  end)

  it("saves its result for the gradient only if one is needed", function()
    local w = moth.randn(2, 3):requires_grad_()
    local function changed(...)
      local y = F.linear(moth.ones(4, 3), w, ...)
      y:mul_(2)
      y:sum():backward()
    end
    changed()
    assert.has_error_like(function() changed(moth.none, "relu") end, "changed in place")
  end)

  it("raises for an unknown name", function()
    assert.has_error_like(function()
      F.linear {moth.ones(1, 1), moth.ones(1, 1), activation = "rely"}
    end, "bad argument 'activation' to 'linear' %(one of 'none', 'relu' is needed")
  end)
end)

-- ---- recordings ----

-- A network that calls functions, as scripts do; f is the function after its layers.
local Net = nn.class("Net", nn.Module)

function Net:init(f)
  self.f = f
  self.fc1, self.fc2, self.fc3 = nn.Linear(4, 16), nn.Linear(16, 16), nn.Linear(16, 2)
end

function Net:forward(x)
  x = self.f(self.fc1(x))
  return self.fc3(self.f(self.fc2(x)))
end

local function trained(f, captured)
  moth.manual_seed(5)
  local net = Net(f)
  local opt = optim.SGD(net:parameters(), {lr = 0.1})
  local function step(x, y)
    opt:zero_grad()
    local loss = F.mse_loss(net(x), y)
    loss:backward()
    opt:step()
    return loss
  end
  if captured then step = moth.capture(step) end
  local losses = {}
  for i = 1, 6 do losses[i] = bits(step(moth.randn(8, 4), moth.randn(8, 2))) end
  return table.concat(losses) .. state_of(net), captured and ops_of(step)
end

describe("a relu after a linear, in a captured step", function()
  local w, b, x = moth.randn(5, 3), moth.randn(5), moth.randn(2, 3)

  it("is no separate op, in training either", function()
    local text, n = trained(F.relu, true)
    assert.equal(trained(F.relu), text)
    local _, more = trained(F.tanh, true)
    assert.equal(more - 2, n)
    local written, same = trained(F.relu_, true)
    assert.equal(text, written)
    assert.equal(n, same)
  end)

  it("may take the result in another shape", function()
    assert.equal(1, recorded(function(v) return F.relu(F.linear(v, w, b):view(10)) end, x))
    assert.equal(2, recorded(function(v) return F.relu(F.linear(v, w, b):t()) end, x))
    assert.equal(2, recorded(function(v) return F.relu(F.linear(v, w, b)[1]) end, x))
  end)

  it("stays separate if another op reads the value between them, or if it is returned", function()
    assert.equal(2, recorded(function(v)
      local h = F.linear(v, w, b)
      return F.relu(h) + h -- joined with the relu
    end, x))
    assert.equal(2, recorded(function(v)
      local h = F.linear(v, w, b)
      return F.relu(h), h
    end, x))
    assert.equal(3, recorded(function(v)
      local h = F.linear(v, w, b)
      return F.relu(h), h:view(-1) * 2
    end, x))
    assert.equal(2, recorded(function(v)
      local h = F.linear(v, w, b)
      local alias = h:detach()
      return F.relu(h), alias + 1
    end, x))
    assert.equal(2, recorded(function(v)
      local h = F.linear(v, w, b)
      local y = F.relu(h)
      h:add_(1)
      return y
    end, x))
  end)

  it("may follow an op that reads and writes neither tensor", function()
    local bias = b:clone()
    assert.equal(3, recorded(function(v)
      bias:copy_(b)
      local h = F.linear(v, w, bias)
      bias:copy_(v[1][1])
      return F.relu(h)
    end, x))
    assert.equal(2, recorded(function(v)
      local h = F.linear(v, w, b)
      h:mul_(2) -- the relu joins it
      return F.relu(h)
    end, x))
  end)

  it("joins in checkpointed calls and in half types, too", function()
    local function lost(captured, how)
      moth.manual_seed(5)
      local net = Net(F.relu)
      local function step(v)
        net:zero_grad()
        local y = how(net, v)
        y:sum():backward()
        return y
      end
      if captured then step = moth.capture(step) end
      local text = {}
      for i = 1, 4 do text[i] = bits(step(moth.randn(8, 4))) .. bits(net.fc1.weight.grad) end
      return table.concat(text)
    end
    for _, how in ipairs {
      function(net, v) return moth.utils.checkpoint.checkpoint(net, v) end,
      function(net, v)
        return moth.autocast("cpu", moth.bfloat16, function() return net(v) end):float()
      end,
    } do
      assert.equal(lost(false, how), lost(true, how))
    end
  end)

  it("frees the block of the value between them", function()
    local big, large = moth.randn(300, 3), moth.randn(400, 3)
    local function bytes(f)
      moth.collect()
      local before = moth.memory().live_bytes
      local step = moth.capture(function(v) return f(F.linear(v, big)):sum() end)
      step(large)
      moth.collect()
      local taken = moth.memory().live_bytes - before
      step:free()
      return taken
    end
    local one = 300 * 400 * 4
    local apart, joined = bytes(F.tanh), bytes(F.relu)
    assert.is_true(apart - joined > 0.9 * one and joined < 1.5 * one, apart .. " " .. joined)
  end)

  it("does not overwrite an input of linear whose memory was free for the relu", function()
    local square = moth.randn(40, 40) -- no other block has this size
    assert.equal(3, recorded(function(v)
      local input = v * 2
      local h = F.linear(input, square)
      input:free()
      return F.relu(h)
    end, moth.randn(40, 40)))
  end)
end)

-- ---- modules ----

describe("a ReLU after a Linear, in a Sequential", function()
  local function net() return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)) end

  it("is one node with it, with the same results", function()
    local m, x = net(), moth.randn(4, 3)
    m(x) -- creates the leaf nodes of its parameters
    local made, y = nodes(function() return m(x) end)
    local wanted, z = nodes(function() return m[3](F.relu(m[1](x))) end)
    assert.equal(bits(z), bits(y))
    assert.equal(wanted - 1, made)
    y:sum():backward()
    local grad = bits(m[1].weight.grad)
    m:zero_grad()
    z:sum():backward()
    assert.equal(grad, bits(m[1].weight.grad))
    local plain = nn.Sequential(nn.Linear(3, 5, {bias = false}), nn.ReLU {inplace = true})
    assert.equal(bits(F.relu(plain[1](x))), bits(plain(x)))
  end)

  it("is called separately if it has hooks", function()
    local m, x, seen = net(), moth.randn(4, 3), {}
    m(x)
    local hook = m[2]:register_forward_hook(function(_, args) seen[#seen + 1] = args[1] end)
    m(x)
    assert.equal(bits(m[1](x)), bits(seen[1]))
    hook:remove()
    m[1].forward = function(self, input) return nn.Linear.forward(self, input) + 1 end
    assert.equal(bits(m[3](F.relu(m[1](x)))), bits(m(x)))
    m[1] = nn.Linear(3, 5)
    m[2] = nn.Tanh()
    assert.equal(bits(m[3](F.tanh(m[1](x)))), bits(m(x)))
  end)

  it("names its layer in errors", function()
    local m = net()
    assert.has_error_like(function() m(moth.ones(2, 4)) end,
      "in m%[1%]: bad argument 'input' to 'linear' %(the last dimension should have the 3 features")
  end)
end)

describe("the layers of a transformer", function()
  it("have the same results with relu in their first linear layer", function()
    moth.manual_seed(7)
    local x = moth.randn(5, 2, 8)
    for _, kind in ipairs {"Encoder", "Decoder"} do
      local layer = nn["Transformer" .. kind .. "Layer"] {8, 2, dim_feedforward = 16, dropout = 0}
      local function run()
        layer:zero_grad()
        local y = kind == "Encoder" and layer(x) or layer(x, x)
        y:sum():backward()
        return bits(y) .. bits(layer.linear1.weight.grad)
      end
      local text = run()
      layer.activation = function(v) return F.relu(v) end
      assert.equal(run(), text)
    end
  end)
end)
