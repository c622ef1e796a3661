-- Schedules that jump to an epoch or resume, LBFGS's line search on curves that need each of its
-- phases, GradScaler's rules, and how optimizers report their arguments. Numbers are PyTorch 2.15's
-- in float64.

local moth = require "moth"
local fails = require("spec.support.refusals").fails

local nn, optim = moth.nn, moth.optim
local S = optim.lr_scheduler

local function optimizer(first, second, options)
  local list = {{params = {nn.Parameter(moth.ones(1))}, lr = first or 0.5},
    {params = {nn.Parameter(moth.ones(1))}, lr = second or 2}}
  return optim.SGD(list, options or {lr = 0.1})
end

local function schedule(code, o)
  return setfenv(assert(loadstring("return " .. code)), {S = S, o = o, math = math})()
end

-- A schedule; the first group's rates after step(epoch) for the epochs 3, 1, 0, 4, 5, 6, 9, 12, 2;
-- the second group's after the last and after another step. For restarts then: the rate after
-- step(2.5), T_cur, the rate after step(7.25), T_cur, T_i, the rate after another step.
local JUMPS = {
  {"S.StepLR(o, 3, 0.5)", {0.25, 0.5, 0.5, 0.25, 0.25, 0.125, 0.0625, 0.03125, 0.5, 2, 1}},
  {"S.MultiStepLR(o, {2, 5, 5, 9}, 0.5)",
    {0.25, 0.5, 0.5, 0.25, 0.0625, 0.0625, 0.03125, 0.03125, 0.25, 1, 1}},
  {"S.ConstantLR(o, 0.25, 4)", {0.125, 0.125, 0.125, 0.5, 0.5, 0.5, 0.5, 0.5, 0.125, 0.5, 0.5}},
  {"S.LinearLR(o, 0.25, 0.75, 4)",
    {0.3125, 0.1875, 0.125, 0.375, 0.375, 0.375, 0.375, 0.375, 0.25, 1, 1.25}},
  {"S.ExponentialLR(o, 0.5)", {0.0625, 0.25, 0.5, 0.03125, 0.015625, 0.0078125, 0.0009765625,
    0.0001220703125, 0.125, 0.5, 0.25}},
  {"S.PolynomialLR(o, 5, 2)", {0.08, 0.32, 0.5, 0.02, 0, 0, 0, 0, 0.18, 0.72, 0.32}},
  {"S.CosineAnnealingLR(o, 6, 0.25)", {0.375, 0.483253175473, 0.5, 0.3125, 0.266746824527, 0.25,
    0.375, 0.5, 0.4375, 1.5625, 1.125}},
  {"S.CosineAnnealingWarmRestarts(o, 3, 1, 0.125)", {0.5, 0.40625, 0.5, 0.40625, 0.21875, 0.5,
    0.5, 0.5, 0.21875, 0.59375, 2, 0.15012023679, 2.5, 0.361028570957, 1.25, 3, 0.179917478528}},
  {"S.CosineAnnealingWarmRestarts(o, 2, 2)", {0.426776695297, 0.25, 0.5, 0.25, 0.0732233047034,
    0.5, 0.345670858091, 0.0732233047034, 0.5, 2, 1.70710678119, 0.480969883128, 0.5,
    0.470480316087, 1.25, 8, 0.408598321041}},
}

-- A schedule that resumes at an epoch, with the rates 0.25 and 1.5 of initial rates 0.5 and 2; the
-- first group's rates at once and after each of 8 steps; the second group's last rate.
local RESUMED = {
  {"S.StepLR(o, 3, 0.5, 4)",
    {0.25, 0.125, 0.125, 0.125, 0.0625, 0.0625, 0.0625, 0.03125, 0.03125, 0.1875}},
  {"S.MultiStepLR(o, {2, 5, 5, 9}, 0.5, 4)",
    {0.0625, 0.0625, 0.0625, 0.0625, 0.03125, 0.03125, 0.03125, 0.03125, 0.03125, 0.1875}},
  {"S.ConstantLR(o, 0.25, 6, 4)", {0.25, 1, 1, 1, 1, 1, 1, 1, 1, 6}},
  {"S.LinearLR(o, 0.25, 0.75, 6, 4)",
    {0.25, 0.28125, 0.28125, 0.28125, 0.28125, 0.28125, 0.28125, 0.28125, 0.28125, 1.6875}},
  {"S.ExponentialLR(o, 0.5, 4)", {0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625,
    0.001953125, 0.0009765625, 0.005859375}},
  {"S.PolynomialLR(o, 6, 2, 4)", {0.25, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
  {"S.CosineAnnealingLR(o, 6, 0.25, 4)", {0.25, 0.25, 0.266746824527, 0.3125, 0.375, 0.4375,
    0.483253175473, 0.5, 0.483253175473, 1.88277222831}},
  {"S.CosineAnnealingLR(o, 6, 0.25, 5)", {0.25, 0.266746824527, 0.3125, 0.375, 0.4375,
    0.483253175473, 0.5, 0.483253175473, 0.4375, 15.5576905284}},
  {"S.CosineAnnealingWarmRestarts(o, 6, 2, 0.125, 4)", {0.15012023679, 0.5, 0.493611092429,
    0.47487976321, 0.445082521472, 0.40625, 0.361028570957, 0.3125, 0.263971429043,
    0.819857145216}},
  {"S.LambdaLR(o, {function(e) return 1 / (e + 1) end, function(e) return e end}, 4)",
    {0.0833333333333, 0.0714285714286, 0.0625, 0.0555555555556, 0.05, 0.0454545454545,
    0.0416666666667, 0.0384615384615, 0.0357142857143, 26}},
  {"S.MultiplicativeLR(o, function(e) return 1 / e end, 4)", {0.25, 0.0416666666667,
    0.00595238095238, 0.000744047619048, 8.2671957672e-05, 8.2671957672e-06, 7.51563251563e-07,
    6.26302709636e-08, 4.81771315105e-09, 2.89062789063e-08}},
}

describe("a schedule that jumps to an epoch:", function()
  for _, row in ipairs(JUMPS) do
    it(row[1], function()
      local o, got = optimizer(), {}
      local function add(x) got[#got + 1] = x end
      local s = schedule(row[1], o)
      o:step()
      for _, epoch in ipairs {3, 1, 0, 4, 5, 6, 9, 12, 2} do
        s:step(epoch)
        assert.equal(epoch, s.last_epoch)
        add(o.param_groups[1].lr)
      end
      add(o.param_groups[2].lr)
      s:step()
      add(o.param_groups[2].lr)
      if #row[2] > 11 then
        s:step(2.5)
        add(o.param_groups[1].lr)
        add(s.T_cur)
        s:step(7.25)
        add(o.param_groups[1].lr)
        add(s.T_cur)
        add(s.T_i)
        s:step()
        add(o.param_groups[1].lr)
      end
      assert.close(row[2], got, 1e-11)
    end)
  end
end)

describe("a schedule that resumes:", function()
  for _, row in ipairs(RESUMED) do
    it(row[1], function()
      local o = optimizer(0.25, 1.5)
      o.param_groups[1].initial_lr, o.param_groups[2].initial_lr = 0.5, 2
      local s = schedule(row[1], o)
      local got = {o.param_groups[1].lr}
      for _ = 1, 8 do
        o:step()
        s:step()
        got[#got + 1] = o.param_groups[1].lr
      end
      got[#got + 1] = o.param_groups[2].lr
      assert.close(row[2], got, 1e-11)
    end)
  end
end)

describe("a schedule raises for", function()
  local o = optimizer(nil, nil, {lr = 0.1, momentum = 0.5})
  local plain = optim.Adagrad({nn.Parameter(moth.ones(1))})
  local rows = {
    {"a share above 1", "bad argument 'factor' to 'ConstantLR' (a number from 0 to 1 is needed, "
      .. "got 1.5", function() S.ConstantLR(o, 1.5) end},
    {"a negative share", "bad argument 'factor' to 'ConstantLR' (a number from 0 to 1 is needed, "
      .. "got -0.5", function() S.ConstantLR(o, -0.5) end},
    {"a first factor of 0", "bad argument 'start_factor' to 'LinearLR' (a number above 0 to 1 is "
      .. "needed, got 0", function() S.LinearLR(o, 0) end},
    {"a last factor above 1", "bad argument 'end_factor' to 'LinearLR' (a number from 0 to 1 is "
      .. "needed, got 2", function() S.LinearLR(o, 1, 2) end},
    {"a T_max of 0", "bad argument 'T_max' to 'CosineAnnealingLR' (a number from 1 on is needed, "
      .. "got 0", function() S.CosineAnnealingLR(o, 0) end},
    {"a T_0 of 0", "bad argument 'T_0' to 'CosineAnnealingWarmRestarts' (a number from 1 on is "
      .. "needed, got 0", function() S.CosineAnnealingWarmRestarts(o, 0) end},
    {"a T_mult of 0", "bad argument 'T_mult' to 'CosineAnnealingWarmRestarts' (a number from 1 on "
      .. "is needed, got 0", function() S.CosineAnnealingWarmRestarts(o, 2, 0) end},
    {"an epoch below 0", "bad argument 'epoch' to 'step' (a number from 0 on is needed, got -1",
      function() S.CosineAnnealingWarmRestarts(o, 2):step(-1) end},
    {"an epoch that is no number", "bad argument 'epoch' to 'step' (a number, or nothing, is "
      .. "needed, got a string", function() S.StepLR(o, 2):step "x" end},
    {"no epochs", "bad argument 'epochs' to 'OneCycleLR' (a number from 1 on is needed, got 0",
      function() S.OneCycleLR(o, {max_lr = 1, epochs = 0, steps_per_epoch = -5}) end},
    {"no steps in an epoch", "bad argument 'steps_per_epoch' to 'OneCycleLR' (a number from 1 on "
      .. "is needed, got 0",
      function() S.OneCycleLR(o, {max_lr = 1, epochs = 3, steps_per_epoch = 0}) end},
    {"no steps", "bad argument 'total_steps' to 'OneCycleLR' (a number from 1 on is needed, got 0",
      function() S.OneCycleLR(o, {max_lr = 1, total_steps = 0}) end},
    {"a start beyond 1", "bad argument 'pct_start' to 'OneCycleLR' (a number from 0 to 1 is "
      .. "needed, got 1.5", function() S.OneCycleLR(o, {1, total_steps = 4, pct_start = 1.5}) end},
    {"an optimizer without momentum", "bad argument 'cycle_momentum' to 'OneCycleLR' (is true, "
      .. "but Adagrad has neither momentum nor betas",
      function() S.OneCycleLR(plain, {max_lr = 1, total_steps = 4}) end},
    {"an optimizer without momentum", "bad argument 'cycle_momentum' to 'CyclicLR' (is true",
      function() S.CyclicLR(plain, 0.1, 1) end},
    {"no step up", "bad argument 'step_size_up' to 'CyclicLR' (a number from 1 on is needed, got 0",
      function() S.CyclicLR(o, {0.1, 1, step_size_up = 0}) end},
    {"no step down", "bad argument 'step_size_down' to 'CyclicLR' (a number above 0 is needed, "
      .. "got 0", function() S.CyclicLR(o, {0.1, 1, step_size_down = 0}) end},
    {"rates of three groups", "bad argument 'max_lr' to 'CyclicLR' (has 3 values, the optimizer 2",
      function() S.CyclicLR(o, 0.1, {1, 2, 3}) end},
    {"a rate that is no number", "bad argument 'base_lr' to 'CyclicLR' (a number or a list of one "
      .. "for each group is needed", function() S.CyclicLR(o, {0.1, "x"}, 1) end},
    {"a function's text", "the lr_lambda of group 1 returned a string ('x') at epoch 0; a number",
      function() S.LambdaLR(o, function() return "x" end) end},
    {"a factor of 1", "bad argument 'factor' to 'ReduceLROnPlateau' (a number below 1 is needed, "
      .. "got 1", function() S.ReduceLROnPlateau(o, {factor = 1}) end},
    {"a state of other groups", "has rates for 1 parameter groups, the optimizer has 2",
      function() S.StepLR(o, 2):load_state_dict {last_epoch = 1, base_lrs = {0.1}} end},
    {"a state of fewer schedules", "the state of ChainedScheduler with 1 schedulers is needed, "
      .. "got one with 2", function()
      S.ChainedScheduler {S.StepLR(o, 2)}:load_state_dict {_schedulers = {{}, {}}}
    end},
    {"no schedules", "bad argument 'schedulers' to 'ChainedScheduler' (a list of schedulers is",
      function() S.ChainedScheduler({}) end},
    {"a schedule that is none", "element 2 is 5, not a scheduler",
      function() S.ChainedScheduler({S.StepLR(o, 2), 5}) end},
  }
  for i, row in ipairs(rows) do
    it(("%s (%d)"):format(row[1], i), function() fails(row[2], row[3]) end)
  end

  it("rates that are no list of numbers", function()
    local Own = nn.class("Own", S.LRScheduler)
    local rates
    function Own:get_lr() return self and rates end
    for _, wrong in ipairs {{1}, {1, 2, 3}, {1, "x"}, 5, {"x", 1}} do
      rates = wrong
      fails("Own:get_lr() returned", Own, optimizer())
    end
    rates = {1, 2}
    assert.same({1, 2}, Own(optimizer()):get_last_lr())
  end)
end)

describe("a plateau", function()
  it("has a lowest rate for a group that was added later, from a number only", function()
    local o = optimizer(1, 1)
    local s = S.ReduceLROnPlateau(o, {patience = 0, min_lr = 0.25})
    o:add_param_group {params = {nn.Parameter(moth.ones(1))}, lr = 1}
    for _ = 1, 4 do s:step(1) end
    assert.same({0.25, 0.25, 0.25}, s:get_last_lr())
    local listed = S.ReduceLROnPlateau(o, {patience = 0, min_lr = {0, 0, 0}})
    o:add_param_group {params = {nn.Parameter(moth.ones(1))}, lr = 1}
    listed:step(1)
    fails("ReduceLROnPlateau has 3 min_lrs, its optimizer now 4 groups", listed.step, listed, 1)
  end)

  it("ignores changes up to eps, and NaN is no improvement", function()
    local o = optimizer(1, 1)
    local s = S.ReduceLROnPlateau(o, {patience = 0, factor = 0.5, eps = 0.5})
    s:step(1)
    s:step(0 / 0)
    assert.same({1, 1}, s:get_last_lr()) -- a change of 0.5 is not above eps
    assert.equal(1, s.best)
    assert.equal(2, s.last_epoch)
    s:step(3, 7)
    assert.equal(7, s.last_epoch)
    s.eps = 0.49
    s:step(moth.tensor(3LL))
    assert.same({0.5, 0.5}, s:get_last_lr())
  end)

  it("compares relative or absolute thresholds, strictly", function()
    for _, row in ipairs {{"min", "rel", 0.8, 1.6}, {"min", "abs", 1.8, 1.8},
                          {"max", "rel", 2.4, 2.4}, {"max", "abs", 2.2, 2.2}} do
      local s = S.ReduceLROnPlateau(optimizer(), {mode = row[1], threshold_mode = row[2],
        threshold = 0.2})
      s:step(2)
      s:step(row[4])
      assert.equal(1, s.num_bad_epochs)
      s:step(row[4] + (row[1] == "min" and -1e-9 or 1e-9))
      assert.equal(0, s.num_bad_epochs)
    end
  end)
end)

-- ---- LBFGS ----

local CURVES = {
  rosen = function(p) return (1 - p[1]) ^ 2 + (p[2] - p[1] ^ 2) ^ 2 * 100 end,
  mt = function(p) return (-p / (p * p + 2)):sum() + (p[1] * p[2] - 2) ^ 2 * 0.01 end,
  quart = function(p) return (p ^ 4):sum() - (p ^ 2):sum() * 3 + p[1] * p[2] end,
  wave = function(p) return (p * p):sum() / 10 + (p[1] * 3):sin() + (p[2] * 2):cos() end,
  sharp = function(p) return ((p - 1) ^ 2 + 1e-4):sqrt():sum() + (p[1] + p[2]) ^ 2 * 0.1 end,
}

-- curve, lr, start, max_iter, the parameters after each of three steps, evaluations, iterations
local SEARCHES = {
  {"rosen", 1, {-1.2, 1}, 4, {-1.02887953, 1.06550295, -0.943108094, 0.85292775, -0.458393542,
    0.180867491}, 16, 11},
  {"rosen", 0.01, {0.5, 3}, 4, {1.51386279, 2.22872897, 1.49510676, 2.23592307, 1.49477118,
    2.23582734}, 18, 6},
  {"rosen", 30, {0.1, -0.4}, 6, {0.245989604, 0.0420228364, 0.742316834, 0.567616213, 0.776264044,
    0.598912264}, 23, 6},
  {"rosen", 1000, {2, 0.3}, 3, {2, 0.3, 2, 0.3, 2, 0.3}, 12, 3},
  {"mt", 1, {-1.2, 1}, 4, {1.50328441, 1.83318626, 1.41978715, 1.43227094, 1.41420479,
    1.41419167}, 14, 7},
  {"mt", 0.01, {0.5, 3}, 4, {0.897237206, 2.93233645, 1.02382451, 2.76472623, 1.33135101,
    2.04116039}, 18, 6},
  {"mt", 30, {0.1, -0.4}, 6, {1.89452845, 1.16616001, 1.45060123, 1.3060357, 1.41352195,
    1.41350653}, 21, 7},
  {"quart", 1, {-1.2, 1}, 4, {-1.32277062, 1.32261461, -1.32287556, 1.32287566, -1.32287556,
    1.32287566}, 9, 7},
  {"quart", 0.01, {0.5, 3}, 4, {0.498410181, 2.66081555, 0.501998011, 2.4010568, 0.513475662,
    2.17607715}, 18, 6},
  {"quart", 30, {0.1, -0.4}, 6, {0.546935241, -1.40695048, 1.01699409, -1.67000246, 1.4001984,
    -1.62448639}, 24, 6},
  {"wave", 1, {-1.2, 1}, 4, {-0.512202178, 1.49580656, -0.51221469, 1.49572698, -0.51221469,
    1.49572698}, 8, 7},
  {"wave", 0.01, {0.5, 3}, 4, {0.0687748573, 1.39942829, -0.448672973, 1.09891384, -0.531220411,
    1.46865923}, 17, 5},
  {"wave", 30, {0.1, -0.4}, 6, {0.074187215, -1.30891303, -0.505782878, -1.52704049, -0.512214355,
    -1.49572904}, 22, 7},
  {"wave", 1000, {2, 0.3}, 3, {-1.48710328, 1.4366239, 0.708377776, 1.76563935, 1.67140531,
    0.890043743}, 12, 3},
  {"sharp", 1, {-1.2, 1}, 4, {1.02075992, 0.965874451, 0.98776439, 0.997357971, 0.995440078,
    0.995551598}, 17, 9},
  {"sharp", 0.01, {0.5, 3}, 4, {0.965800266, 0.358724244, 1.01832006, 0.416633665, 1.00992711,
    0.812971362}, 17, 4},
  {"sharp", 30, {0.1, -0.4}, 6, {0.888993412, 1.14060162, 0.983888864, 0.94506899, 0.997747544,
    0.978707583}, 24, 7},
}

describe("LBFGS with strong_wolfe makes PyTorch's steps:", function()
  for _, row in ipairs(SEARCHES) do
    it(("%s, lr = %g"):format(row[1], row[2]), function()
      local p = nn.Parameter(moth.tensor(row[3], {dtype = moth.float64}))
      local o = optim.LBFGS({p}, {lr = row[2], max_iter = row[4], history_size = 5,
        line_search_fn = "strong_wolfe"})
      local got = {}
      for _ = 1, 3 do
        o:step(function()
          o:zero_grad()
          local loss = CURVES[row[1]](p)
          loss:backward()
          return loss
        end)
        for _, x in ipairs(p:tolist()) do got[#got + 1] = x end
      end
      assert.close(row[5], got, 2e-8)
      assert.equal(row[6], o.state[p].func_evals)
      assert.equal(row[7], o.state[p].n_iter)
    end)
  end
end)

-- ---- GradScaler ----

describe("a scaler", function()
  it("scales lists, and reads its scale from a tensor", function()
    local scaler = moth.GradScaler(8)
    local list = scaler:scale {moth.ones(2), {moth.tensor(3.0)}}
    assert.same({8, 8}, list[1]:tolist())
    assert.equal(24, list[2][1]:item())
    scaler:update(moth.tensor(4.0))
    assert.equal(4, scaler:get_scale())
    assert.equal(4, scaler:scale(moth.ones(1)):item())
    assert.is_true(scaler:is_enabled())
  end)

  it("that is disabled changes nothing", function()
    local scaler = moth.GradScaler {init_scale = 8, enabled = false}
    local o = optimizer()
    assert.is_false(scaler:is_enabled())
    assert.equal(1, scaler:get_scale())
    assert.same({}, scaler:state_dict())
    scaler:load_state_dict {}
    assert.is_nil(scaler:unscale_(o))
    assert.is_nil(scaler:update())
    local x = moth.ones(1)
    assert.equal(x, scaler:scale(x))
  end)

  it("grows after the interval, and not beyond float32", function()
    local p = nn.Parameter(moth.ones(1))
    local o = optim.SGD({p}, {lr = 0})
    local scaler = moth.GradScaler {init_scale = 2, growth_factor = 3, backoff_factor = 0.25,
      growth_interval = 2}
    local function turn(grad)
      p.grad = moth.full({1}, grad)
      scaler:step(o)
      scaler:update()
      return scaler:get_scale()
    end
    local state = scaler:state_dict()
    assert.same({2, 6, 6, 1.5, 1.5, 4.5},
      {turn(1), turn(1), turn(1), turn(math.huge), turn(1), turn(1)})
    assert.equal(0, scaler:state_dict()._growth_tracker)
    turn(1)
    assert.equal(1, scaler:state_dict()._growth_tracker)
    scaler:load_state_dict(state)
    assert.same({scale = 2, growth_factor = 3, backoff_factor = 0.25, growth_interval = 2,
      _growth_tracker = 0}, scaler:state_dict())
    local large = moth.GradScaler {init_scale = 3e38, growth_interval = 1}
    p.grad = moth.ones(1)
    large:step(o)
    large:update()
    assert.equal(3e38, large:get_scale())
  end)
end)

-- ---- optimizers ----

describe("an optimizer", function()
  local p, q = nn.Parameter(moth.ones(1)), nn.Parameter(moth.ones(2))

  it("raises for parameters in a wrong form", function()
    local rows = {
      {"a list of tensors is needed, got a tensor; write {x}", p},
      {"a list of tensors, for example net:parameters(), is needed, got 5", 5},
      {"a list of tensors is needed, got an empty list", {}},
      {"elements 1 and 3 are the same tensor", {p, q, p}},
      {"element 2 is 5, not a tensor", {p, 5}},
      {"element 2, f32 (1), is the result of an op; only leaves are optimized", {p, p * 1}},
      {"element 2 is a list of tensors; join the lists", {{params = {p}}, {q}}},
      {"group 2 has 'param'; did you mean 'params'", {{params = {p}}, {param = {q}}}},
      {"element 1 of a group is also in an earlier group", {{params = {p}}, {params = {p}}}},
      {"element 2 has no name, and those before it have one", {{"a", p}, q}},
      {"element 2 has a name, and those before it have none", {p, {"a", q}}},
      {"some groups have names and some do not", {{params = {{"a", p}}}, {params = {q}}}},
      {"value 2 is nil", {p, nil, q}},
    }
    local Own = nn.class("Own", optim.Optimizer)
    for _, row in ipairs(rows) do fails("'params' to 'Own' (" .. row[1], Own, row[2], {}) end
    fails("a list of parameters is needed, such as net:parameters(), got f32 (1)", optim.SGD, p)
    fails("'defaults' to 'Optimizer' (a table of options is needed, got 5", Own, {p}, 5)
    fails("SGD has no option 'momentun'; did you mean 'momentum'", optim.SGD,
      {{params = {p}, momentun = 1}}, {lr = 0.1})
  end)

  it("takes one group without a list, one tensor in a group, and numbers in tensors", function()
    local o = optim.SGD({params = {p}, lr = 0.5}, {lr = 0.1})
    assert.equal(0.5, o.param_groups[1].lr)
    o:add_param_group {params = q, lr = moth.tensor(0.25)}
    assert.equal(q, o.param_groups[2].params[1])
    assert.equal(0.25, o.param_groups[2].lr)
    local adam = optim.Adam({p}, {lr = moth.tensor(0.5),
      betas = {moth.tensor(0.5), moth.tensor(0.25)}})
    assert.same({0.5, 0.25}, adam.param_groups[1].betas)
    assert.equal(0.5, adam.param_groups[1].lr)
    fails("bad argument 'param_group' to 'add_param_group' ({params = list of tensors, ...} is",
      o.add_param_group, o, {p})
  end)

  it("refuses options at their bounds, and takes the bound itself", function()
    local rows = { -- class, option, accepted, refused
      {"SGD", "lr", 0, -1e-9}, {"SGD", "momentum", 0, -1e-9}, {"SGD", "weight_decay", 0, -1e-9},
      {"SGD", "lr", 1, 0 / 0}, {"Adam", "lr", 0, -1e-9}, {"Adam", "eps", 0, -1e-9},
      {"Adam", "weight_decay", 0, -1e-9}, {"Adam", "betas", {0, 0}, {1, 0}},
      {"Adam", "betas", {0.5, 0}, {0, 1}}, {"Adam", "betas", {0, 0.5}, {-1e-9, 0}},
      {"Adam", "betas", {0, 0.5}, {0, -1e-9}}, {"AdamW", "betas", {0, 0}, {0.5}},
      {"NAdam", "momentum_decay", 0, -1e-9}, {"RMSprop", "alpha", 0, -1e-9},
      {"RMSprop", "momentum", 0, -1e-9}, {"RMSprop", "eps", 0, -1e-9}, {"RMSprop", "lr", 0, -1e-9},
      {"RMSprop", "weight_decay", 0, -1e-9},
      {"Adagrad", "lr_decay", 0, -1e-9}, {"Adagrad", "initial_accumulator_value", 0, -1e-9},
      {"Adagrad", "eps", 0, -1e-9}, {"Adagrad", "lr", 0, -1e-9},
      {"Adadelta", "rho", 0, -1e-9}, {"Adadelta", "rho", 1, 1 + 1e-9},
      {"Adadelta", "eps", 0, -1e-9}, {"Adadelta", "weight_decay", 0, -1e-9},
      {"Adamax", "eps", 0, -1e-9}, {"RAdam", "lr", 0, -1e-9}, {"Rprop", "lr", 0, -1e-9},
      {"Rprop", "etas", {0.5, 1.5}, {0.5, 1}}, {"Rprop", "etas", {0.5, 1.5}, {0, 1.5}},
      {"Rprop", "etas", {0.5, 1.5}, {1, 1.5}}, {"ASGD", "lr", 0, -1e-9},
      {"ASGD", "weight_decay", 0, -1e-9}, {"Adafactor", "d", 1, 1 - 1e-9},
      {"Adafactor", "beta2_decay", 0, 1e-9}, {"Adafactor", "weight_decay", 0, -1e-9},
    }
    for _, row in ipairs(rows) do
      local name, option, good, bad = unpack(row)
      local text = name .. " " .. option
      local ok, problem = pcall(optim[name], {p}, {[option] = good})
      assert(ok, text .. ": " .. tostring(problem))
      ok, problem = pcall(optim[name], {p}, {[option] = bad})
      assert(not ok, text)
      local wanted = ("bad argument '%s' to '%s'"):format(option, name)
      assert(tostring(problem):find(wanted, 1, true), text .. ": " .. tostring(problem))
    end
    fails("'nesterov' to 'SGD' (needs momentum above 0 and dampening 0", optim.SGD, {p},
      {nesterov = true})
    fails("'nesterov' to 'SGD'", optim.SGD, {p}, {nesterov = true, momentum = 1, dampening = 0.5})
  end)

  it("or a schedule counts the values of step, and names a missing object", function()
    local o = optim.SGD({p}, {lr = 0.5})
    fails("SGD takes 1 value, got more", o.step, o, nil, 1)
    fails("optimizer:step", o.step)
    fails("optimizer:step", o.step, 5)
    local s = S.StepLR(o, 2)
    fails("StepLR takes 1 value, got more", s.step, s, 1, 2)
    fails("scheduler:step", s.step)
    local plateau = S.ReduceLROnPlateau(o)
    fails("ReduceLROnPlateau takes 2 values, got more", plateau.step, plateau, 1, 2, 3)
    fails("scheduler:step", plateau.step, 1, 2)
    plateau:step(0.25, 3)
    assert.same({0.25, 3}, {plateau.best, plateau.last_epoch})
    fails("scheduler:get_last_lr", s.get_last_lr)
    fails("optimizer:zero_grad", o.zero_grad)
  end)

  it("reports a state dict that does not fit, and loads nothing", function()
    local function adam() return optim.Adam({p, q}, {lr = 0.5}) end
    local function given(change)
      local o = adam()
      p.grad, q.grad = moth.ones(1), moth.ones(2)
      o:step()
      local state = o:state_dict()
      change(state)
      return state
    end
    local rows = {
      {"it has 2 parameter groups, this one 1", function(s)
        s.param_groups[2] = s.param_groups[1]
      end},
      {"its group 1 has 1 parameter, this one's 2", function(s)
        s.param_groups[1].params = {0}
      end},
      {"its group 1 has 0 parameters, this one's 2", function(s)
        s.param_groups[1].params = 5
      end},
      {"the state of a parameter is 5", function(s) s.state["0"] = 5 end},
      {"'exp_avg' is f32 (3), its parameter is f32 (1)", function(s)
        s.state["0"].exp_avg = moth.ones(3)
      end},
      {"its group 1 has the unknown option 'beta'", function(s)
        s.param_groups[1].beta = 1
      end},
      {"its group 1 has 1 name for 2 parameters", function(s)
        s.param_groups[1].param_names = {"a"}
      end},
      {"{state = ..., param_groups = ...} is needed", function(s) s.state = nil end},
    }
    for _, row in ipairs(rows) do
      local o = adam()
      fails(row[1], o.load_state_dict, o, given(row[2]))
      assert.is_nil(next(o.state))
    end
    local o = adam()
    o:load_state_dict(given(function(s)
      s.param_groups[1].lr = moth.tensor(0.25)
      s.param_groups[1].weight_decay = moth.none
      s.state["0"].exp_avg = moth.none
    end))
    assert.equal(0.25, o.param_groups[1].lr)
    assert.equal(0, o.param_groups[1].weight_decay)
    assert.is_nil(o.state[p].exp_avg)
    assert.is_not_nil(o.state[q].exp_avg)
  end)
end)

describe("Nesterov's momentum", function()
  local ops = require("moth.binding.bind").ops
  -- momentum, dampening, whether a step takes them
  for _, row in ipairs {{0, 0, false}, {0.5, 0, true}, {1, 0, true},
      {0.5, 0.1, false}, {1, 1, false}, {0, 0.1, false}} do
    it(("with momentum %g and dampening %g"):format(row[1], row[2]), function()
      local function step()
        ops.sgd_step_({moth.ones(2)}, {moth.ones(2)}, {moth.zeros(2)}, {lr = 0.1,
          momentum = row[1], dampening = row[2], nesterov = true})
      end
      if row[3] then return step() end
      fails("'nesterov' to 'sgd_step_' (needs momentum above 0 and dampening 0)", step)
    end)
  end
end)
