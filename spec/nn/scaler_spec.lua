-- moth.GradScaler: losses, gradients and steps, and the scale.

local moth = require "moth"
local nn = moth.nn
local F = nn.functional

local function setup(options)
  local p = nn.Parameter(moth.tensor { 1, 2 })
  return p, moth.optim.SGD({ p }, { lr = 1 }), moth.GradScaler(options or { init_scale = 4 })
end

describe("GradScaler", function()
  it("makes the same step as without it", function()
    local p, optimizer, scaler = setup()
    local loss = scaler:scale((p * moth.tensor { 0.5, -1 }):sum())
    assert.equal(4 * -1.5, loss:item())
    loss:backward()
    assert.same({ 2, -4 }, p.grad:tolist())
    scaler:step(optimizer)
    scaler:update()
    assert.same({ 0.5, 3 }, p:tolist())
    assert.same({ 0.5, -1 }, p.grad:tolist())
    assert.equal(4, scaler:get_scale())
  end)

  it("skips a step whose gradients are not finite, in any dtype, and lowers the scale", function()
    for _, dtype in ipairs { moth.float32, moth.float64, moth.float16, moth.bfloat16 } do
      for _, bad in ipairs { 1 / 0, -1 / 0, 0 / 0 } do
        local p = nn.Parameter(moth.ones(1001, dtype))
        local optimizer, scaler = moth.optim.SGD({ p }, { lr = 1 }), moth.GradScaler()
        p.grad = moth.zeros(1001, dtype)
        p.grad[700] = bad
        scaler:step(optimizer)
        scaler:update()
        assert.equal(32768, scaler:get_scale())
        assert.is_true(moth.equal(p, moth.ones(1001, dtype)))
      end
    end
  end)

  it("raises the scale after the given number of good steps", function()
    local p, optimizer, scaler = setup { init_scale = 8, growth_interval = 2, growth_factor = 4 }
    local scales = {}
    for i = 1, 5 do
      optimizer:zero_grad()
      scaler:scale(p:sum() * (i == 2 and 1 / 0 or 1)):backward()
      scaler:step(optimizer)
      scaler:update()
      scales[i] = scaler:get_scale()
    end
    assert.same({ 8, 4, 4, 16, 16 }, scales)
    local other = moth.GradScaler()
    other:load_state_dict(scaler:state_dict())
    assert.same(scaler:state_dict(), other:state_dict())
    assert.equal(16, other:get_scale())
    assert.equal(1, other:state_dict()._growth_tracker)
  end)

  it("allows clipping between unscale_ and step", function()
    local p, optimizer, scaler = setup()
    scaler:scale((p * moth.tensor { 3, 4 }):sum()):backward()
    scaler:unscale_(optimizer)
    assert.equal(5, nn.utils.clip_grad_norm_({ p }, 1):item())
    assert.has_error_like(function() scaler:unscale_(optimizer) end, "already")
    scaler:step(optimizer)
    assert.is_true(moth.allclose(p, moth.tensor { 0.4, 1.2 }))
    assert.has_error_like(function() scaler:step(optimizer) end, "already")
    scaler:update()
    assert.has_error_like(function() scaler:update() end, "no step")
  end)

  it("does nothing if it is not enabled", function()
    local p, optimizer, scaler = setup { enabled = false }
    local loss = p:sum()
    assert.equal(loss, scaler:scale(loss))
    loss:backward()
    scaler:step(optimizer)
    scaler:update()
    assert.same({ 0, 1 }, p:tolist())
    assert.same({}, scaler:state_dict())
    assert.equal(1, scaler:get_scale())
  end)

  it("trains under float16", function()
    moth.manual_seed(1)
    local net = nn.Linear(4, 1)
    local optimizer, scaler = moth.optim.Adam(net:parameters(), { lr = 0.1 }), moth.amp.GradScaler()
    local x = moth.randn(32, 4)
    local y = x:sum(2, true)
    local function step()
      optimizer:zero_grad()
      local loss = moth.autocast("cpu", moth.float16, function() return F.mse_loss(net(x), y) end)
      scaler:scale(loss):backward()
      scaler:step(optimizer)
      scaler:update()
      return loss
    end
    local first, last = step():item(), nil
    for _ = 1, 100 do last = step():item() end
    assert.is_true(last < 0.01 * first)
  end)

  -- Two equal nets, one trained step by step and one by replays; inputs(i) of both.
  local function race(inputs, make, steps, clip)
    local sides = {}
    for side = 1, 2 do
      moth.manual_seed(3)
      local net = nn.Linear(3, 1)
      local optimizer = make(net:parameters())
      local scaler = moth.GradScaler { init_scale = 2 ^ 14, growth_interval = 3 }
      local function step(x)
        optimizer:zero_grad()
        local loss = net(x):square():mean()
        scaler:scale(loss):backward()
        if clip then
          scaler:unscale_(optimizer)
          nn.utils.clip_grad_norm_(net:parameters(), 0.5)
        end
        scaler:step(optimizer)
        scaler:update()
        return loss
      end
      sides[side] = { net = net, scaler = scaler, step = side == 1 and step or moth.capture(step),
                      optimizer = optimizer }
    end
    for i = 1, steps do
      local losses = {}
      for side, at in ipairs(sides) do losses[side] = at.step(inputs(i)):item() end
      assert.equal(losses[1], losses[2])
      assert.equal(sides[1].scaler:get_scale(), sides[2].scaler:get_scale())
    end
    assert.is_true(moth.equal(sides[1].net.weight, sides[2].net.weight))
    assert.same(sides[1].scaler:state_dict(), sides[2].scaler:state_dict())
    return sides[2]
  end

  -- Gradients overflow float32 at some steps, more often while the scale is high.
  local function wild(i)
    return moth.full({ 4, 3 }, i % 5 == 0 and 1e18 or i % 7 == 0 and 1e30 or 0.1 * i)
  end

  it("works in a captured step, which skips and adapts as the step itself does", function()
    local adam = race(wild, function(p) return moth.optim.Adam(p, { lr = 0.1 }) end, 40)
    assert.equal("captured step (1 recording)", tostring(adam.step))
    race(wild, function(p) return moth.optim.SGD(p, { lr = 0.1, momentum = 0.9 }) end, 40)
    race(wild, function(p) return moth.optim.SGD(p, { lr = 0.1 }) end, 40, true)
  end)

  it("may skip any number of steps before a recording is possible", function()
    local side = race(function(i) return moth.full({ 4, 3 }, i < 9 and 1e30 or 1) end,
      function(p) return moth.optim.Adam(p, { lr = 0.1 }) end, 20)
    assert.equal("captured step (1 recording)", tostring(side.step))
  end)

  it("raises if a captured step scales after its update", function()
    local p, optimizer, scaler = setup()
    local step = moth.capture(function()
      optimizer:zero_grad()
      scaler:scale(p:sum()):backward()
      scaler:step(optimizer)
      scaler:update()
      scaler:scale(p:sum()):backward()
    end)
    scaler:scale(p:sum()):backward()
    scaler:step(optimizer)
    scaler:update()
    assert.has_error_like(function()
      for _ = 1, 3 do step() end
    end, "scale after update")
  end)

  it("uses the result of unscale_ if no step follows", function()
    local p, optimizer, scaler = setup { init_scale = 8 }
    scaler:scale((p * (1 / 0)):sum()):backward()
    scaler:unscale_(optimizer)
    scaler:update()
    assert.equal(4, scaler:get_scale())
    local function fine()
      optimizer:zero_grad()
      scaler:scale(p:sum()):backward()
      scaler:unscale_(optimizer)
      scaler:update()
    end
    fine()
    assert.equal(4, scaler:get_scale())
    local step = moth.capture(fine)
    for _ = 1, 3 do step() end
    assert.equal(4, scaler:get_scale())
  end)

  it("converts a float16 loss to float32, whose range holds the product", function()
    local loss = moth.tensor({ 3 }, { dtype = moth.float16, requires_grad = true }):sum()
    local scaled = moth.GradScaler():scale(loss)
    assert.equal(3 * 65536, scaled:item())
    assert.equal(moth.float32, scaled.dtype)
  end)

  it("skips one of two optimizers in a captured step, from its first run on", function()
    local a, b = nn.Parameter(moth.ones(1)), nn.Parameter(moth.ones(1))
    local first, second = moth.optim.SGD({ a }, { lr = 1 }), moth.optim.SGD({ b }, { lr = 1 })
    local scaler = moth.GradScaler { init_scale = 4 }
    local step = moth.capture(function(x)
      first:zero_grad()
      second:zero_grad()
      scaler:scale((a * x + b):sum()):backward()
      scaler:step(first)
      scaler:step(second)
      scaler:update()
    end)
    for _, x in ipairs { math.huge, math.huge, 1, math.huge, 1 } do step(moth.tensor { x }) end
    assert.same({ -1, -4 }, { a:item(), b:item() })
    assert.equal(0.5, scaler:get_scale())
  end)

  it("raises if replays would use the result of an earlier unscale_", function()
    local p, optimizer, scaler = setup()
    local step = moth.capture(function() scaler:step(optimizer) end)
    scaler:scale(p:sum()):backward()
    scaler:unscale_(optimizer)
    assert.has_error_like(step, "outside of it")
  end)

  it("may be updated outside of a captured step, also while the step verifies", function()
    local p, optimizer, scaler = setup { init_scale = 8 }
    local step = moth.capture(function(x)
      optimizer:zero_grad()
      scaler:scale((p * x):sum()):backward()
      scaler:step(optimizer)
    end, 3)
    for _, x in ipairs { 1, 1, math.huge, 1, 1, math.huge } do
      step(moth.tensor(x))
      scaler:update()
    end
    assert.equal(2, scaler:get_scale())
    assert.equal("captured step (1 recording)", tostring(step))
  end)

  it("has scales in float32, on the CPU for any default device", function()
    assert.has_error_like(function() moth.GradScaler { init_scale = 1e39 } end, "float32")
    assert.has_error_like(function() moth.GradScaler():update(1e39) end, "float32")
  end)

  it("names its wrong argument", function()
    assert.has_error_like(function() moth.GradScaler { growth_factor = 1 } end, "growth_factor")
    assert.has_error_like(function() moth.GradScaler():scale(3) end, "outputs")
    local _, optimizer, scaler = setup()
    assert.has_error_like(function() scaler:step(optimizer) end, "no parameter")
    assert.has_error_like(function() scaler:step {} end, "optimizer")
    assert.has_error_like(function() scaler:load_state_dict {} end, "state_dict")
  end)

  it("accepts a device first, as PyTorch's does", function()
    assert.equal(65536, moth.amp.GradScaler("cpu"):get_scale())
    assert.equal(8, moth.amp.GradScaler("cpu", 8):get_scale())
    assert.equal(8, moth.amp.GradScaler(moth.device "cpu", { init_scale = 8 }):get_scale())
    assert.equal(8, moth.amp.GradScaler { device = "cpu", init_scale = 8 }:get_scale())
    assert.equal(8, moth.GradScaler(8):get_scale())
    assert.has_error_like(function() moth.GradScaler("cuda:99") end,
      "'device' to 'GradScaler' %(")
    assert.has_error_like(function() moth.GradScaler("gpu") end, "init_scale")
  end)
end)
