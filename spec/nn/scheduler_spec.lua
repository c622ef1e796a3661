-- Learning rate schedules: PyTorch's numbers, resumed states, a user's schedule, and errors.

local moth = require "moth"
local nn, optim = moth.nn, moth.optim
local S = optim.lr_scheduler

local STEPS = 50

local function optimizer(kind)
  local p, q = nn.Parameter(moth.ones(1)), nn.Parameter(moth.ones(1))
  local groups = {{params = {p}}, {params = {q}, lr = 0.75}}
  if kind == "Adam" then return (optim.Adam(groups, {lr = 0.5})) end
  return (optim.SGD(groups, {lr = 0.5, momentum = 0.9}))
end

-- The losses of golden/schedules.py.
local function measure(i)
  return ({3, 2, 1.5, 1.5, 1.5, 1.5, 1.7, 1.6, 1.5, 1.25})[i % 10 + 1] - (i > 30 and 0.5 or 0)
end

local function make(text, o)
  return (setfenv(assert(loadstring("return " .. text)), {S = S, A = optim.swa_utils, o = o})())
end

local function advance(schedule, o, i)
  o:step()
  if nn.isinstance(schedule, S.ReduceLROnPlateau) then schedule:step(measure(i))
  else schedule:step() end
end

local function momentum(group)
  return group.betas and group.betas[1] or group.momentum
end

local cases = require("spec.support.golden").cases "schedules"

describe("fifty steps have PyTorch's rates with", function()
  for _, case in ipairs(cases) do
    it(case.name, function()
      local o = optimizer(case.optimizer)
      local schedule = make(case.schedule, o)
      local first, second, moves = {}, {}, {}
      for i = 0, STEPS do
        first[#first + 1] = o.param_groups[1].lr
        if i % 10 == 0 then
          second[#second + 1] = o.param_groups[2].lr
          moves[#moves + 1] = momentum(o.param_groups[1])
        end
        if i < STEPS then advance(schedule, o, i) end
      end
      assert.close(case.first, first, 1e-12)
      assert.close(case.second, second, 1e-12)
      assert.close(case.momentum, moves, 1e-12)
      assert.close({first[#first], second[#second]}, schedule:get_last_lr(), 0)
    end)
  end
end)

describe("a state saved after 20 steps continues without a difference:", function()
  for _, case in ipairs(cases) do
    it(case.name, function()
      local path = os.tmpname()
      local o = optimizer(case.optimizer)
      local schedule = make(case.schedule, o)
      for i = 0, 19 do advance(schedule, o, i) end
      moth.save({schedule = schedule:state_dict(), optimizer = o:state_dict()}, path)
      local saved = moth.load(path)
      os.remove(path)
      o = optimizer(case.optimizer)
      schedule = make(case.schedule, o)
      o:load_state_dict(saved.optimizer)
      schedule:load_state_dict(saved.schedule)
      local rates = {}
      for i = 20, STEPS do
        rates[#rates + 1] = o.param_groups[1].lr
        if i < STEPS then advance(schedule, o, i) end
      end
      assert.close({unpack(case.first, 21)}, rates, 1e-12)
    end)
  end
end)

describe("a schedule", function()
  -- The warnings of fn.
  local function warnings(fn)
    local list, old = {}, moth.warn
    moth.warn = function(text) list[#list + 1] = text end
    local ok, problem = pcall(fn)
    moth.warn = old
    assert(ok, problem)
    return list
  end

  it("continues from last_epoch with an optimizer of an earlier schedule", function()
    local o = optimizer()
    local old = S.StepLR(o, 3)
    for _ = 1, 4 do o:step() old:step() end
    local new = S.StepLR(o, {step_size = 3, last_epoch = 3})
    assert.equal(4, new.last_epoch)
    assert.close({0.5, 0.75}, new.base_lrs)
    assert.close({0.05, 0.075}, new:get_last_lr(), 1e-15)
    assert.has_error_like(function() S.StepLR(optimizer(), {step_size = 3, last_epoch = 3}) end,
      "group 1 has no 'initial_lr'; load the optimizer's state dict first")
  end)

  it("can be written by the user", function()
    local Warm = nn.class("Warm", S.LRScheduler)
    function Warm:init(opt, steps)
      self.steps = steps
      S.LRScheduler.init(self, opt)
    end
    function Warm:get_lr()
      local rates = {}
      for i, lr in ipairs(self.base_lrs) do
        rates[i] = lr * math.min(1, (self.last_epoch + 1) / self.steps)
      end
      return rates
    end
    local o = optimizer()
    local warm = Warm(o, 4)
    assert.close({0.125, 0.1875}, warm:get_last_lr())
    o:step()
    warm:step()
    assert.close(0.25, o.param_groups[1].lr)
    assert.equal(4, warm:state_dict().steps)
    assert.equal("Warm (epoch 1, lr 0.25, 0.375)", tostring(warm))
    local Lazy = nn.class("Lazy", S.LRScheduler)
    assert.has_error_like(function() Lazy(o) end, "has no method ':get_lr%(%)'")
  end)

  it("warns once if it steps before the optimizer does", function()
    local list = warnings(function()
      local schedule = S.ExponentialLR(optimizer(), 0.5)
      for _ = 1, 3 do schedule:step() end
    end)
    assert.equal(1, #list)
    assert.is_truthy(list[1]:find("call optimizer:step() first", 1, true))
    assert.same({}, warnings(function()
      local o = optimizer()
      local schedule = S.ExponentialLR(o, 0.5)
      for _ = 1, 3 do o:step() schedule:step() end
    end))
  end)

  it("accepts the loss as a tensor", function()
    local schedule = S.ReduceLROnPlateau(optimizer(), {patience = 0})
    schedule:step(moth.tensor(1.5))
    schedule:step(moth.tensor(1.5))
    assert.close({0.05, 0.075}, schedule:get_last_lr(), 1e-15)
  end)

  it("continues from a state of PyTorch, and keeps its own functions", function()
    local o = optim.SGD({nn.Parameter(moth.ones(1))}, {lr = 0.1, momentum = 0.9})
    local lambda = S.LambdaLR(o, function(epoch) return 0.5 ^ epoch end)
    lambda:load_state_dict {last_epoch = 3, base_lrs = {0.1}, lr_lambdas = {}, _last_lr = {0.1}}
    lambda:step()
    assert.near(0.1 * 0.5 ^ 4, o.param_groups[1].lr, 1e-9)
    local cycle = S.OneCycleLR(o, {max_lr = 1, total_steps = 20})
    local phases = cycle:state_dict()._schedule_phases
    assert.same({end_step = 5, start_lr = "initial_lr", end_lr = "max_lr",
      start_momentum = "max_momentum", end_momentum = "base_momentum"}, phases[1])
    phases[1].end_step = 9
    cycle:load_state_dict {last_epoch = 8, total_steps = 20, _schedule_phases = phases}
    cycle:step()
    assert.near(1, o.param_groups[1].lr, 1e-9)
  end)

  it("raises for arguments that contradict each other", function()
    local o = optimizer()
    assert.has_error_like(function() S.StepLR(nn.Linear(1, 1), 3) end,
      "bad argument 'optimizer' to 'StepLR' %(an optimizer is needed")
    assert.has_error_like(function() S.StepLR(o, 0) end, "from 1 on is needed, got 0")
    assert.has_error_like(function() S.LambdaLR(o, {math.sin}) end,
      "'lr_lambda' to 'LambdaLR' %(has 1 value, the optimizer 2 parameter groups")
    assert.has_error_like(function() S.LambdaLR(o, 0.5) end,
      "a function for group 1 is needed, got 0%.5")
    assert.has_error_like(function() S.OneCycleLR(o, 1) end,
      "'total_steps' to 'OneCycleLR' %(is needed, or epochs and steps_per_epoch")
    assert.has_error_like(function() S.ReduceLROnPlateau(o):step() end,
      "for example the validation")
    assert.has_error_like(function() S.ReduceLROnPlateau(o, {factor = 2}) end, "a number below 1")
    assert.has_error_like(function()
      S.SequentialLR(o, {S.StepLR(o, 1), S.StepLR(o, 2)}, {1, 2})
    end, "'milestones' to 'SequentialLR' %(a list of 1, one fewer")
    assert.has_error_like(function()
      S.ChainedScheduler {S.StepLR(o, 1), S.StepLR(optimizer(), 1)}
    end, "element 2 belongs to another optimizer")
    assert.has_error_like(function()
      S.SequentialLR(o, {S.ReduceLROnPlateau(o)}, {})
    end, "whose step needs a metric")
    assert.has_error_like(function() S.StepLR(o, 1):load_state_dict(o:state_dict()) end,
      "the result of a scheduler's state_dict%(%) is needed, got a table without 'last_epoch'")
    assert.has_error_like(function() return S.CosineLR end, "no 'CosineLR'")
  end)

  it("ends with its last step if it has one", function()
    local o = optimizer()
    local schedule = S.OneCycleLR(o, {max_lr = 1, total_steps = 2})
    for _ = 1, 2 do o:step() schedule:step() end
    assert.has_error_like(function() schedule:step() end, "has taken its 2 steps")
  end)
end)
