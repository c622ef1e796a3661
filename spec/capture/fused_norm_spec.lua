-- A batch_norm that also computes the sum and the relu after it: by arguments, in a captured step
-- and in modules. The results equal those of separate ops, to the last bit.

local moth = require "moth"
local cuda = require "spec.support.cuda"
local support = require "spec.support.bits"
local captures = require "spec.support.captured"
local nodes = require("spec.support.nodes").of

local nn, F, optim = moth.nn, moth.nn.functional, moth.optim
local bits, state_of = support.of, support.state_of
local ops_of, recorded = captures.ops_of, captures.recorded

local DEVICES = cuda.here and {"cpu", "cuda"} or {"cpu"}
local FLOATS = {moth.float32, moth.float64, moth.float16, moth.bfloat16}

-- Results and gradients of batch_norm and the ops after it, in one op or in several.
local function results(case, x, s, joined)
  local c, how = x:size(2), {dtype = x.dtype, device = x.device}
  moth.manual_seed(7)
  local w, b = moth.randn(c, how):requires_grad_(), moth.randn(c, how):requires_grad_()
  local mean, var = moth.randn(c, how), moth.rand(c, how) + 0.5
  local dy = moth.randn(x.shape, how)
  x = x:detach():requires_grad_()
  s = case.residual and s:detach():requires_grad_() or nil
  local y
  if joined then
    y = F.batch_norm {x, mean, var, w, b, training = case.training, residual = s,
                      activation = case.relu and "relu" or "none"}
  else
    y = F.batch_norm {x, mean, var, w, b, training = case.training}
    if s then y = y + s end
    if case.relu then y = F.relu(y) end
  end
  y:backward(dy)
  local list = {y, x.grad, w.grad, b.grad, mean, var, s and s.grad}
  for i, v in ipairs(list) do list[i] = bits(v) end
  return list
end

local function cases()
  local list = {}
  for _, training in ipairs {true, false} do
    for _, what in ipairs {{true, false}, {true, true}, {false, true}} do
      list[#list + 1] = {training = training, relu = what[1], residual = what[2]}
    end
  end
  return list
end

for _, device in ipairs(DEVICES) do describe("batch_norm and the ops after it on " .. device,
function()
  local SHAPES = {{4, 3}, {70, 129}, {300, 16}, {2, 3, 5}, {3, 5, 7, 9}, {2, 16, 16, 31},
                  {2, 3, 2, 3, 4}, {3, 2, 0}, {0, 3, 2}, {5, 0, 2}}

  it("equals batch_norm, + and relu, also in gradients", function()
    for _, dtype in ipairs(FLOATS) do
      local how = {dtype = dtype, device = device}
      for _, shape in ipairs(SHAPES) do
        local x, s = moth.randn(shape, how), moth.randn(shape, how)
        for _, case in ipairs(cases()) do
          local name = ("%s %s training %s relu %s residual %s"):format(tostring(dtype),
            table.concat(shape, "x"), tostring(case.training), tostring(case.relu),
            tostring(case.residual))
          assert.same(results(case, x, s, false), results(case, x, s, true), name)
        end
      end
    end
  end)

  it("equals them for channels_last images and for strided inputs", function()
    for _, dtype in ipairs(FLOATS) do
      local how = {dtype = dtype, device = device}
      local x = moth.randn({2, 8, 5, 6}, how):contiguous {memory_format = "channels_last"}
      local s = moth.randn({2, 8, 5, 6}, how)
      local pairs_of = {{x, s}, {x, x:flip(1)}, {s:transpose(3, 4), s:transpose(3, 4)},
                        {s:narrow(2, 2, 3), x:narrow(2, 2, 3)}}
      -- On a GPU a result is channels_last if any operand is; this changes the order of sums.
      if device == "cpu" then pairs_of[5] = {s, x} end
      for _, pair in ipairs(pairs_of) do
        for _, case in ipairs(cases()) do
          assert.same(results(case, pair[1], pair[2], false), results(case, pair[1], pair[2], true))
        end
      end
    end
  end)

  -- Inputs whose results are near 0: neighboring floats.
  local function near_zero(dtype, training, shape)
    local c, how, long = shape[2], {dtype = dtype}, {dtype = moth.float64}
    local w, b = moth.rand(c, how) + 0.5, moth.rand(c, how) * 0.8 - 0.4
    local mean, var = moth.randn(c, how), moth.rand(c, how) + 0.5
    local wide = {1, c, 1, 1}
    local function at(v) return v:double():view(wide) end
    local x = moth.randn(shape, long)
    local half = x:narrow(1, 1, shape[1] / 2)
    local steps = (moth.arange(half:numel(), long):view(half.shape) % 61 - 30)
      * moth.finfo(dtype).eps / 4
    for _ = 1, training and 80 or 1 do -- the inputs change the statistics
      local m, v = at(mean), at(var)
      if training then
        m, v = x:mean({1, 3, 4}):view(wide), x:var({1, 3, 4}, {correction = 0}):view(wide)
      end
      local zero = m - at(b) * (v + 1e-5):sqrt() / at(w)
      half:copy_(zero + zero:abs() * steps)
    end
    return x:to(dtype):to(device), {mean:to(device), var:to(device), w:to(device), b:to(device)}
  end

  it("knows the sign of the relu's input to the last bit", function()
    moth.manual_seed(11)
    for _, dtype in ipairs(FLOATS) do
      for _, training in ipairs {true, false} do
        for _, shape in ipairs {{8, 3, 9, 15}, {64, 8, 1, 1}} do
          local x, t = near_zero(dtype, training, shape)
          for _, lies in ipairs {"contiguous_format", "channels_last"} do
            local function input_gradients(joined)
              local leaf = x:detach():clone():contiguous {memory_format = lies}:detach()
              leaf:requires_grad_()
              local y = F.batch_norm {leaf, t[1]:clone(), t[2]:clone(), t[3], t[4],
                                      training = training, activation = joined and "relu" or "none"}
              if not joined then y = F.relu(y) end
              y:backward(moth.ones(shape, {dtype = dtype, device = device}))
              return leaf.grad, y
            end
            local wanted, y = input_gradients(false)
            local open = (y:narrow(1, 1, shape[1] / 2):gt(0)):float():mean():item()
            assert.is_true(open > 0.1 and open < 0.9, "nothing to tell apart: " .. open)
            local got = input_gradients(true)
            local other = wanted:ne(got):sum():item()
            assert.equal(0, tonumber(other), ("%s training %s %s"):format(tostring(dtype),
              tostring(training), lies))
          end
        end
      end
    end
  end)

  it("keeps NaN, and the -0 that a half type rounds to", function()
    for _, dtype in ipairs(FLOATS) do
      local how = {dtype = dtype, device = device}
      local x = moth.tensor({{0 / 0}, {-1}, {-1e-7}, {1 / 0}, {1e-7}}, how)
      local mean, var = moth.zeros(1, how), moth.ones(1, how)
      local w = moth.full({1}, 1e-4, how)
      local function run(joined)
        local leaf = x:clone():requires_grad_()
        local y = joined and F.batch_norm {leaf, mean, var, w, activation = "relu"}
          or F.relu(F.batch_norm {leaf, mean, var, w})
        y:backward(moth.ones({5, 1}, how))
        return y, bits(1 / y) .. bits(leaf.grad)
      end
      local y, text = run(true)
      assert.is_true(y[1][1]:isnan():item())
      assert.equal((select(2, run(false))), text)
    end
  end)

end) end

describe("F.batch_norm with an activation and a residual", function()
  it("has second derivatives, and saves no tensors without a gradient", function()
    local x = moth.randn(4, 3, 5, {dtype = moth.float64}):requires_grad_()
    local s, w = moth.randn_like(x):requires_grad_(), moth.randn(3, {dtype = moth.float64})
    w:requires_grad_()
    for _, residual in ipairs {s, false} do
      local function input_gradients(joined)
        local y
        if joined then
          y = F.batch_norm {x, weight = w, training = true, activation = "relu",
                            residual = residual or nil}
        else
          y = F.batch_norm {x, weight = w, training = true}
          y = F.relu(residual and y + residual or y)
        end
        local dx, dw = moth.autograd.grad((y * y * y):sum(), {x, w}, {create_graph = true})
        local slope = (dx * dx + 1):log():sum() + dw:square():sum()
        local again, more = moth.autograd.grad(slope, {x, w})
        return bits(dx) .. bits(dw) .. bits(again) .. bits(more)
      end
      assert.equal(input_gradients(false), input_gradients(true))
    end
    local y = moth.no_grad(function()
      return F.batch_norm {x, weight = w, training = true, activation = "relu"}
    end)
    assert.is_false(y.requires_grad)
  end)

  it("saves its result for the gradient only with a relu", function()
    local x = moth.randn(4, 3):requires_grad_()
    local function changed(activation)
      local y = F.batch_norm {x, training = true, activation = activation}
      y:mul_(2)
      y:sum():backward()
    end
    changed("none")
    assert.has_error_like(function() changed("relu") end, "changed in place")
  end)

  it("raises for an unknown activation and for a residual of another shape", function()
    local x = moth.ones(2, 3)
    local function refused(how, said)
      how[1], how.training = x, true
      assert.has_error_like(function() F.batch_norm(how) end, said)
    end
    refused({activation = "rely"},
      "bad argument 'activation' to 'batch_norm' %(one of 'none', 'relu' is needed")
    refused({residual = moth.ones(3)},
      "bad argument 'residual' to 'batch_norm' %(f32 %(2, 3%) is needed, got f32 %(3%)%)")
    refused({residual = x:half()},
      "bad argument 'residual' to 'batch_norm' %(f32 %(2, 3%) is needed, got f16 %(2, 3%)%)")
  end)
end)

-- ---- recordings ----

-- The blocks of a ResNet, as scripts write them.
local Block = nn.class("Block", nn.Module)

function Block:init(width, stride, act, within)
  self.act, self.within = act, within
  local n = stride * width
  self.conv1 = nn.Conv2d {width, n, 3, stride = stride, padding = 1, bias = false}
  self.bn1 = nn.BatchNorm2d(n)
  self.conv2 = nn.Conv2d {n, n, 3, padding = 1, bias = false}
  self.bn2 = nn.BatchNorm2d(n)
  if stride > 1 then
    self.down = nn.Sequential(nn.Conv2d {width, n, 1, stride = stride, bias = false},
      nn.BatchNorm2d(n))
  end
end

function Block:forward(x)
  local y = self.act(self.bn1(self.conv1(x)))
  y = self.bn2(self.conv2(y))
  local skip = self.down and self.down(x) or x
  if self.within then y:add_(skip) else y = y + skip end
  return self.act(y)
end

-- Results of training or of eval mode: all numbers as text, and the number of recorded ops.
local function trained(how, captured)
  moth.manual_seed(5)
  local device = how.device or "cpu"
  local net = nn.Sequential(nn.Conv2d(3, 8, 1), Block(8, 1, how.act, how.within),
    Block(8, 2, how.act, how.within), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 2))
  net:to(device)
  local opt = optim.SGD(net:parameters(), {lr = 0.1})
  local lies = how.lies or "contiguous_format"
  local function lossy(x, y) return F.mse_loss(net(x):float(), y) end
  local function step(x, y)
    if how.eval then return moth.no_grad(function() return lossy(x, y) end) end
    opt:zero_grad()
    local loss = how.half and moth.autocast(device, moth.bfloat16,
      function() return lossy(x, y) end) or lossy(x, y)
    loss:backward()
    opt:step()
    return loss
  end
  if how.eval then net:eval() end
  if captured then step = moth.capture(step, {verify = 2}) end
  local losses = {}
  for i = 1, 5 do
    local x = moth.randn(2, 3, 6, 6):to(device):contiguous {memory_format = lies}
    losses[i] = bits(step(x, moth.randn(2, 2):to(device)))
  end
  return table.concat(losses, "\n") .. state_of(net), captured and ops_of(step)
end

describe("the ops after a batch_norm, in a captured step", function()
  it("are no separate ops, forward and backward", function()
    local _, more = trained({act = F.tanh}, true)
    for _, act in ipairs {F.relu, F.relu_} do
      for _, within in ipairs {true, false} do
        local how = {act = act, within = within}
        local text, n = trained(how, true)
        assert.equal(trained(how), text)
        assert.equal(more - 6, n) -- four relus; two of their gradients are joined
      end
    end
  end)

  it("are no separate ops in eval mode either", function()
    local _, more = trained({act = F.tanh, eval = true}, true)
    local how = {act = F.relu, within = true, eval = true}
    local text, n = trained(how, true)
    assert.equal(trained(how), text)
    assert.equal(more - 4, n)
  end)

  it("have the same results for channels_last images and under autocast", function()
    for _, device in ipairs(DEVICES) do
      for _, how in ipairs {{}, {lies = "channels_last"}, {half = true},
                            {half = true, within = true, lies = "channels_last"}} do
        how.act, how.device = F.relu, device
        assert.equal(trained(how), (trained(how, true)))
      end
    end
  end)

  local mean, var, x = moth.randn(3), moth.rand(3) + 0.5, moth.randn(2, 3, 4)
  local function norm(v) return F.batch_norm(v, mean, var) end

  it("stay separate if another op reads the value between them, or if it is returned", function()
    assert.equal(1, recorded(function(v) return F.relu(norm(v)) end, x))
    assert.equal(1, recorded(function(v) return F.relu(norm(v) + v) end, x))
    assert.equal(1, recorded(function(v) return F.relu(v + norm(v)) end, x))
    assert.equal(2, recorded(function(v) return F.relu(norm(v)) + v end, x))
    assert.equal(2, recorded(function(v) local y = norm(v) return F.relu(y), y end, x))
    assert.equal(2, recorded(function(v) local y = norm(v) return F.relu(y) * y end, x))
    assert.equal(2, recorded(function(v) local y = norm(v) return y + y end, x))
    assert.equal(2, recorded(function(v) return norm(v):add(v, {alpha = 2}) end, x))
    assert.equal(2, recorded(function(v) return norm(v) + v[1] end, x))
    assert.equal(2, recorded(function(v) return F.relu(norm(v):transpose(1, 2)) end, x))
  end)

  it("run after the residual is computed", function()
    assert.equal(2, recorded(function(v)
      local y = norm(v)
      local s = v * 2
      return y + s -- computed after y, and joined by the sum
    end, x))
    assert.equal(2, recorded(function(v)
      local s = v * 2
      local y = norm(v)
      return s + y
    end, x))
    assert.equal(3, recorded(function(v)
      local s = v * 2
      local y = norm(v)
      s:mul_(3)
      return y + s
    end, x))
    assert.equal(3, recorded(function(v)
      local y, z = norm(v), norm(v + 1)
      return F.relu(y + z) -- the norm of z adds y
    end, x))
  end)

  it("do not overwrite a live tensor in the memory of their result", function()
    local big = moth.randn(40, 3, 40) -- no other block has this size
    local n = recorded(function(v)
      local y = norm(v)
      local t = v * 2
      local total = t:sum()
      t:free()
      return F.relu(y) + total -- the result of relu is in the memory of t
    end, big)
    assert.equal(4, n) -- relu and sum are one op
  end)

  it("do not overwrite the input of the norm", function()
    for _, shape in ipairs {{8, 300}, {2, 300, 4}} do -- as large as the input
      recorded(function(v)
        return F.relu(F.batch_norm(v, {training = true})), v + 1
      end, moth.randn(shape))
      recorded(function(v)
        return F.batch_norm(v, {training = true}) + v
      end, moth.randn(shape))
    end
  end)

  it("keep a requested gradient between them", function()
    local w = moth.randn(3)
    local function ops(act, asked)
      return recorded(function(v)
        local leaf = (v * 1):requires_grad_()
        local y = F.batch_norm(leaf, {weight = w, training = true})
        local z = act(y):cumsum(1):square():sum() -- an op that relu cannot join
        if asked == "wanted" then
          local dx, dy = moth.autograd.grad(z, {leaf, y})
          return dx, dy
        end
        if asked then y:retain_grad() end
        z:backward()
        return leaf.grad, asked and y.grad or nil
      end, x)
    end
    assert.equal(ops(F.tanh) - 2, ops(F.relu))
    for _, asked in ipairs {"kept", "wanted"} do
      assert.equal(ops(F.tanh, asked) - 1, ops(F.relu, asked))
    end
  end)

  it("join only the gradient of their own relu", function()
    local function ops(f, what)
      return recorded(function(v)
        local leaf = (v * 1):requires_grad_()
        local y = F.batch_norm(leaf, {training = true})
        local z = f(what == "sum" and y + v or y - 0.25):cumsum(1)
        z:square():sum():backward()
        return leaf.grad
      end, x)
    end
    assert.equal(ops(F.tanh, "sum") - 1, ops(F.relu, "sum")) -- v needs no gradient
    assert.equal(ops(F.tanh), ops(F.relu))
  end)
end)

-- ---- modules ----

describe("a ReLU after a BatchNorm, in a Sequential", function()
  local function net()
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1),
      nn.BatchNorm2d(2), nn.ReLU {inplace = true})
  end

  it("is one node with it, with the same results", function()
    local m, x = net(), moth.randn(3, 2, 6, 6)
    local twin = m:deepcopy()
    m(x) -- creates the leaf nodes of its parameters
    local function apart()
      return F.relu(twin[5](twin[4](F.relu(twin[2](twin[1](x))))))
    end
    apart()
    for _, training in ipairs {true, false} do
      m:train(training)
      twin:train(training)
      local made, y = nodes(function() return m(x) end)
      local wanted, z = nodes(apart)
      assert.equal(bits(z), bits(y))
      assert.equal(wanted - 2, made)
      y:square():sum():backward()
      z:square():sum():backward()
      for i, p in ipairs(m:parameters()) do
        assert.equal(bits(twin:parameters()[i].grad), bits(p.grad))
      end
      assert.equal(state_of(twin), state_of(m))
    end
  end)

  it("is called separately if it has hooks, and errors name its layer", function()
    local m, x, seen = net():eval(), moth.randn(3, 2, 6, 6), {}
    m(x)
    m[3]:register_forward_hook(function(_, args) seen[#seen + 1] = args[1] end)
    m(x)
    assert.equal(bits(m[2](m[1](x))), bits(seen[1]))
    local narrow = nn.Sequential(nn.BatchNorm1d(3), nn.ReLU())
    assert.has_error_like(function() narrow(moth.ones(2, 4)) end, "in narrow%[1%]: bad argument "
      .. "'input' to 'batch_norm' %(f32 %(2, 4%) has 4 channels")
    assert.has_error_like(function() narrow(moth.ones(2, 3, 1, 1)) end,
      "narrow%[1%].*2 or 3 dimensions")
  end)
end)
