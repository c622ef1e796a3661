--- sized.lua -- optim.RMSprop, optim.Adagrad and optim.Adadelta: steps divided by the root mean
-- square of past gradients.

local bind = require "moth.binding.bind"
local bundle = require "moth.optim.bundle"
local Optimizer = require "moth.optim.optimizer"
local rule = require "moth.optim.rule"

local sized = {}

local function check(self, group, ...)
  for _, name in ipairs {"lr", "eps", "weight_decay", ...} do self:range(group, name, 0) end
end

-- ---- RMSprop ----

--- RMSprop (Hinton, 2012), centered as by Graves (2013).
local RMSprop = rule.new("RMSprop", {
  rule.lr(1e-2),
  {"float", "alpha", "factor of the running mean of squares", default = 0.99},
  rule.eps(1e-8), rule.WEIGHT_DECAY,
  {"float", "momentum", "factor of the momentum buffer", default = 0},
  {"bool", "centered", "divide by the gradient's standard deviation?", default = false},
  rule.MAXIMIZE,
})
sized.RMSprop = RMSprop

function RMSprop:check(group)
  check(self, group, "alpha", "momentum")
end

-- Writes the arguments that all three ops share, for a replay.
local function write(group, s, at)
  s[at.lr].number, s[at.eps].number = group.lr, group.eps
  s[at.weight_decay].number = group.weight_decay
  s[at.maximize].integer = group.maximize and 1 or 0
  return true
end

local function write_rmsprop(cell, group, s, at)
  if group.centered ~= cell.centered or (group.momentum > 0) ~= cell.buffered then return false end
  s[at.alpha].number, s[at.momentum].number = group.alpha, group.momentum
  return (write(group, s, at))
end

local NONE = {}
local RMS = {
  plain = {"square_avg"}, buffered = {"square_avg", "momentum_buffer"},
  centered = {"square_avg", "grad_avg"}, both = {"square_avg", "grad_avg", "momentum_buffer"},
}

function RMSprop:update(group)
  local run, buffered = bind.ops.rmsprop_step_, group.momentum > 0
  local names = group.centered and (buffered and RMS.both or RMS.centered)
    or buffered and RMS.buffered or RMS.plain
  for _, b in ipairs(bundle.of(self, group, names)) do
    run(b.params, b.grads, b.square_avg, b.grad_avg or NONE, b.momentum_buffer or NONE, group.lr,
      group.alpha, group.eps, group.momentum, group.weight_decay, group.maximize)
    bundle.count(b)
    bundle.note(self, group, b, "rmsprop_step_", write_rmsprop)
  end
end

-- ---- Adagrad ----

--- Adagrad (Duchi et al., 2011).
local Adagrad = rule.new("Adagrad", {
  rule.lr(1e-2), {"float", "lr_decay", "the rate is divided by 1 + lr_decay * steps", default = 0},
  rule.WEIGHT_DECAY,
  {"float", "initial_accumulator_value", "the initial sum of squares", default = 0},
  rule.eps(1e-10), rule.MAXIMIZE,
})
sized.Adagrad = Adagrad

function Adagrad:check(group)
  check(self, group, "lr_decay", "initial_accumulator_value")
end

--- Adds a group. Its state is created at once, as in PyTorch.
function Adagrad:add_param_group(group)
  Optimizer.add_param_group(self, group)
  local made = self.param_groups[#self.param_groups]
  for _, p in ipairs(made.params) do
    self.state[p] = {step = 0}
    bundle.put(self.state[p], "sum", bundle.fresh(p, made.initial_accumulator_value))
  end
end

local SUM = {"sum"}

local function write_adagrad(_, group, s, at, step)
  s[at.step].number, s[at.lr_decay].number = step, group.lr_decay
  return (write(group, s, at))
end

local function step_adagrad(group, params, grads, sums, step)
  bind.ops.adagrad_step_(params, grads, sums, step, group.lr, group.lr_decay, group.eps,
    group.weight_decay, group.maximize)
end

local function update_rows(self, group, found)
  local rows = require "moth.optim.rows"
  rows.no_decay(self, group)
  for _, one in ipairs(found) do
    local own = bundle.state(self, one.p, SUM)
    rows.step(self, one.p, one.grad, {own.sum}, function(x, grad, sum)
      step_adagrad(group, {x}, {grad}, {sum}, own.step + 1)
    end)
    own.step = own.step + 1
  end
end

function Adagrad:update(group)
  local found = {}
  for _, b in ipairs(bundle.of(self, group, SUM, nil, nil, found)) do
    step_adagrad(group, b.params, b.grads, b.sum, b.step + 1)
    bundle.count(b)
    bundle.note(self, group, b, "adagrad_step_", write_adagrad)
  end
  if #found > 0 then update_rows(self, group, found) end
end

-- ---- Adadelta ----

--- Adadelta (Zeiler, 2012).
local Adadelta = rule.new("Adadelta", {
  rule.lr(1), {"float", "rho", "factor of the running means", default = 0.9},
  rule.eps(1e-6), rule.WEIGHT_DECAY, rule.MAXIMIZE,
})
sized.Adadelta = Adadelta

function Adadelta:check(group)
  check(self, group)
  local rho = group.rho
  self:range(group, "rho", 0)
  if rho > 1 then self:range(group, "rho", 0, 1) end
end

local SQUARES = {"square_avg", "acc_delta"}

local function write_adadelta(_, group, s, at)
  s[at.rho].number = group.rho
  return (write(group, s, at))
end

function Adadelta:update(group)
  local run = bind.ops.adadelta_step_
  for _, b in ipairs(bundle.of(self, group, SQUARES)) do
    run(b.params, b.grads, b.square_avg, b.acc_delta, group.lr, group.rho, group.eps,
      group.weight_decay, group.maximize)
    bundle.count(b)
    bundle.note(self, group, b, "adadelta_step_", write_adadelta)
  end
end

return sized
