-- Rprop, ASGD, Adafactor, Muon and LBFGS: properties and errors. optim_state_spec.lua compares
-- their steps with PyTorch's.

local moth = require "moth"
local nn, F, optim = moth.nn, moth.nn.functional, moth.optim

local function parameter(values, dtype)
  return nn.Parameter(moth.tensor(values or {1.0, 2.0}, {dtype = dtype}))
end

-- A closure that fits a line, and the layer.
local function line(make)
  moth.manual_seed(3)
  local x = moth.randn(64, 2)
  local y = x:matmul(moth.tensor {{2.0}, {-3.0}}) + 0.5
  local layer = nn.Linear(2, 1)
  local opt = make(layer:parameters())
  return function()
    opt:zero_grad()
    local loss = F.mse_loss(layer(x), y)
    loss:backward()
    return loss
  end, opt, layer
end

describe("a line is found by", function()
  local makers = {
    Rprop = {function(p) return optim.Rprop(p) end, 200},
    ASGD = {function(p) return optim.ASGD(p, {lr = 0.2}) end, 300},
    Adafactor = {function(p) return optim.Adafactor(p, {lr = 0.1}) end, 2000, 5e-3}, -- oscillates
    LBFGS = {function(p) return optim.LBFGS(p) end, 3},
    ["LBFGS that searches along its lines"] = {function(p)
      return optim.LBFGS(p, {line_search_fn = "strong_wolfe"})
    end, 2},
  }
  for name, row in pairs(makers) do
    it(name, function()
      local closure, opt = line(row[1])
      for _ = 1, row[2] do opt:step(closure) end
      assert.is_true(closure():item() < (row[3] or 1e-3), "loss " .. closure():item())
    end)
  end
end)

describe("Rprop, ASGD and Adafactor", function()
  it("accept parameters of all float dtypes, of no element, of one, and in any order", function()
    for _, name in ipairs {"Rprop", "ASGD", "Adafactor"} do
      for _, dtype in ipairs {moth.float64, moth.float32, moth.float16, moth.bfloat16} do
        local turned = moth.ones(3, 2, {dtype = dtype}):t():detach():requires_grad_()
        local list = {parameter(1.0, dtype), nn.Parameter(moth.ones(0, {dtype = dtype})),
                      nn.Parameter(moth.ones(2, 0, {dtype = dtype})), turned,
                      nn.Parameter(moth.ones(2, 3, 2, {dtype = dtype}))}
        local opt = optim[name](list, {lr = 0.25})
        for _ = 1, 3 do
          for _, p in ipairs(list) do p.grad = moth.full_like(p, 0.5) end
          opt:step()
        end
        for i, p in ipairs(list) do
          assert.equal(dtype, p.dtype)
          local text = name .. " " .. tostring(dtype) .. " " .. i
          assert.is_true(p:lt(1):all():item(), text)
          assert.is_true(p:isfinite():all():item(), text)
        end
      end
    end
  end)

  it("raise for options out of their range", function()
    local p = moth.zeros(2)
    assert.has_error_like(function() optim.Rprop({p}, {etas = {0.5, 0.9}}) end,
      "bad argument 'etas' to 'Rprop' %(two numbers, between 0 and 1 and above 1, are needed")
    assert.has_error_like(function() optim.Rprop({p}, {step_sizes = {2, 1}}) end, "'step_sizes'")
    assert.has_error_like(function() optim.ASGD({p}, {lambd = -1}) end, "'lambd' to 'ASGD'")
    assert.has_error_like(function() optim.Adafactor({p}, {d = 0.5}) end, "from 1 on is needed")
    assert.has_error_like(function() optim.Adafactor({p}, {beta2_decay = 0.5}) end,
      "a number up to 0 is needed")
    assert.has_error_like(function() optim.Adafactor({p}, {eps = 1e-3}) end, "'eps' to 'Adafactor'")
  end)

  it("raise for a state of another shape", function()
    local opt = optim.Adafactor {parameter {{1.0, 2.0}}}
    opt.param_groups[1].params[1].grad = moth.ones(1, 2)
    opt:step()
    local state = opt:state_dict()
    assert.same({1, 1}, {unpack(state.state["0"].row_var.shape)})
    state.state["0"].col_var = moth.zeros(2, 1)
    assert.has_error_like(function() opt:load_state_dict(state) end, "'col_var' is f32 %(2, 1%)")
  end)
end)

describe("Muon", function()
  it("makes steps with singular values near 1, for any gradient", function()
    for _, shape in ipairs {{9, 5}, {5, 9}, {6, 6}} do
      local p = nn.Parameter(moth.zeros(shape))
      local opt = optim.Muon {{p}, lr = 1, weight_decay = 0, adjust_lr_fn = "spectral_unclamped"}
      p.grad = moth.randn(shape) * 1e-3
      opt:step()
      local u = p:detach() / math.sqrt(shape[1] / shape[2])
      if shape[1] < shape[2] then u = u:t() end
      for _ = 1, 20 do
        local x = moth.randn(u:size(2), 1)
        local stretch = (u:matmul(x):norm() / x:norm()):item()
        assert.is_true(stretch > 0.3 and stretch < 1.3, "stretched by " .. stretch)
      end
    end
  end)

  it("accepts only matrices", function()
    assert.has_error_like(function() optim.Muon(nn.Linear(2, 3):parameters()) end,
      "matrices are needed, but element 2 is f32 %(3%)")
    assert.has_error_like(function() optim.Muon({moth.zeros(2, 2)}, {adjust_lr_fn = "orig"}) end,
      "'adjust_lr_fn' to 'Muon'")
    assert.has_error_like(function() optim.Muon({moth.zeros(2, 2)}, {ns_steps = 100}) end,
      "'ns_steps' to 'Muon'")
  end)

  it("accepts half types", function()
    for _, dtype in ipairs {moth.float16, moth.bfloat16} do
      local p = nn.Parameter(moth.ones(4, 3, {dtype = dtype}))
      p.grad = moth.full_like(p, 1)
      optim.Muon({p}, {lr = 0.1}):step()
      assert.equal(dtype, p.dtype)
      assert.is_true(p:lt(1):all():item())
    end
  end)
end)

describe("LBFGS", function()
  it("returns the loss of the first call, and calls the closure at most max_eval times", function()
    local closure, opt = line(function(p)
      return (optim.LBFGS(p, {max_iter = 50, max_eval = 7}))
    end)
    local calls, first = 0, nil
    local given = opt:step(function()
      calls = calls + 1
      local loss = closure()
      first = first or loss
      return loss
    end)
    assert.equal(first, given)
    assert.is_true(calls > 1 and calls <= 7, calls .. " calls")
    assert.equal(calls, opt:state_dict().state["0"].func_evals)
  end)

  it("maximizes", function()
    local p = parameter()
    local opt = optim.LBFGS({p}, {maximize = true, line_search_fn = "strong_wolfe"})
    for _ = 1, 3 do
      opt:step(function()
        opt:zero_grad()
        local loss = -(p - 3):square():sum()
        loss:backward()
        return loss
      end)
    end
    assert.close({3, 3}, p:tolist(), 1e-4)
  end)

  it("uses the gradient 0 for a parameter without influence on the loss", function()
    local p, q = parameter(), parameter {5.0}
    local opt = optim.LBFGS {p, q}
    opt:step(function()
      opt:zero_grad()
      local loss = (p * p):sum()
      loss:backward()
      return loss
    end)
    assert.close({0, 0}, p:tolist(), 1e-4)
    assert.close({5}, q:tolist())
  end)

  it("needs a closure that returns the loss", function()
    local p = parameter()
    local opt = optim.LBFGS {p}
    assert.has_error_like(function() opt:step() end, "bad argument 'closure' to 'step'")
    assert.has_error_like(function() opt:step(function() return "low" end) end,
      "a function that returns the loss is needed; it returned a string %('low'%)")
    assert.has_error_like(function() opt:step(function() return moth.ones(2) end) end,
      "'closure' to 'step' %(a function that returns the loss is needed; it returned f32")
    assert.is_true(moth.is_grad_enabled())
  end)

  it("restores parameters when the closure fails in a line search", function()
    local p = parameter()
    local opt = optim.LBFGS({p}, {line_search_fn = "strong_wolfe"})
    local calls = 0
    assert.has_error_like(function()
      opt:step(function()
        calls = calls + 1
        if calls == 2 then error "no luck" end
        opt:zero_grad()
        local loss = (p * p):sum()
        loss:backward()
        return loss
      end)
    end, "no luck")
    assert.close({1, 2}, p:tolist())
  end)

  it("runs hooks, works in a scope, and cannot be captured", function()
    local closure, opt = line(function(p) return (optim.LBFGS(p)) end)
    local log = {}
    opt:register_step_pre_hook(function() log[#log + 1] = "before" end)
    opt:register_step_post_hook(function() log[#log + 1] = "after" end)
    for _ = 1, 3 do moth.scope(function() opt:step(closure) end) end
    assert.same({"before", "after", "before", "after", "before", "after"}, log)
    assert.is_true(closure():item() < 1e-6)
    local step = moth.capture(function() opt:step(closure) end)
    assert.has_error_like(function() step() end, "a step of LBFGS.*cannot run while moth.capture")
  end)

  it("has one group", function()
    assert.has_error_like(function()
      optim.LBFGS {{params = {moth.zeros(2)}}, {params = {moth.zeros(3)}}}
    end, "it has no groups of parameters")
    assert.has_error_like(function() optim.LBFGS({moth.zeros(2)}, {line_search_fn = "wolfe"}) end,
      "'strong_wolfe' or moth.none is needed, got a string %('wolfe'%)")
  end)
end)
