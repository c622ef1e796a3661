--- variants.lua -- optim.NAdam, optim.RAdam and optim.Adamax: variants of Adam.

local bind = require "moth.binding.bind"
local adam = require "moth.optim.adam"
local bundle = require "moth.optim.bundle"
local rule = require "moth.optim.rule"

local variants = {}

local MEANS = {"exp_avg", "exp_avg_sq"}

-- ---- NAdam ----

local rows = adam.rows(2e-3, 0)
rows[#rows + 1] = {"float", "momentum_decay", "decay coefficient of the momentum", default = 4e-3}
rows[#rows + 1] = adam.DECOUPLED
rows[#rows + 1] = rule.MAXIMIZE

--- NAdam (Dozat, 2016): Adam with Nesterov's momentum.
local NAdam = rule.new("NAdam", rows)
variants.NAdam = NAdam

function NAdam:check(group)
  adam.check(self, group)
  self:range(group, "momentum_decay", 0)
end

local function step_and_product(own)
  own.mu_product = own.mu_product or 1
  return ("%d %.17g"):format(own.step, own.mu_product)
end

-- Returns the factors of the running mean and of the new gradient, the product of the momenta so
-- far, and the weight decay of a step.
local function factors(group, step, product)
  local beta1, lr, decay = group.betas[1], group.lr, group.momentum_decay
  local mu = beta1 * (1 - 0.5 * 0.96 ^ (step * decay))
  local mu_next = beta1 * (1 - 0.5 * 0.96 ^ ((step + 1) * decay))
  product = product * mu
  return lr * mu_next / (1 - product * mu_next), lr * (1 - mu) / (1 - product), product,
    group.weight_decay * (group.decoupled_weight_decay and lr or 1)
end

local function write_nadam(cell, group, s, at, step)
  local lr, lr_grad, product, weight_decay = factors(group, step, cell.states[1].mu_product)
  adam.write_decoupled(cell, group, s, at, step)
  s[at.lr].number, s[at.lr_grad].number, s[at.weight_decay].number = lr, lr_grad, weight_decay
  cell.product = product
  return true
end

local function keep_product(cell)
  for _, own in ipairs(cell.states) do own.mu_product = cell.product end
end

function NAdam:update(group)
  local run = bind.ops.nadam_step_
  for _, b in ipairs(bundle.of(self, group, MEANS, step_and_product)) do
    local step = b.step + 1
    local lr, lr_grad, product, weight_decay = factors(group, step, b.states[1].mu_product)
    run(b.params, b.grads, b.exp_avg, b.exp_avg_sq, {
      step = step, lr = lr, lr_grad = lr_grad, beta1 = group.betas[1], beta2 = group.betas[2],
      eps = group.eps, weight_decay = weight_decay, maximize = group.maximize,
      decoupled = group.decoupled_weight_decay,
    })
    bundle.count(b)
    for _, own in ipairs(b.states) do own.mu_product = product end
    bundle.note(self, group, b, "nadam_step_", write_nadam, keep_product)
  end
end

-- ---- RAdam ----

rows = adam.rows(1e-3, 0)
rows[#rows + 1] = adam.DECOUPLED
rows[#rows + 1] = rule.MAXIMIZE

--- RAdam (Liu et al., 2020): Adam without the adaptive step size while the variance estimate is
-- unreliable.
local RAdam = rule.new("RAdam", rows)
variants.RAdam = RAdam
RAdam.check = adam.check

function RAdam:update(group)
  local run, betas = bind.ops.radam_step_, group.betas
  for _, b in ipairs(bundle.of(self, group, MEANS)) do
    run(b.params, b.grads, b.exp_avg, b.exp_avg_sq, b.step + 1, group.lr, betas[1], betas[2],
      group.eps, group.weight_decay, group.maximize, group.decoupled_weight_decay)
    bundle.count(b)
    bundle.note(self, group, b, "radam_step_", adam.write_decoupled)
  end
end

-- ---- Adamax ----

rows = adam.rows(2e-3, 0)
rows[#rows + 1] = rule.MAXIMIZE

--- Adamax (Kingma and Ba, 2015): Adam with the infinity norm of past gradients.
local Adamax = rule.new("Adamax", rows)
variants.Adamax = Adamax
Adamax.check = adam.check

local LARGEST = {"exp_avg", "exp_inf"}

local function write_adamax(_, group, s, at, step)
  return (adam.write(group, s, at, step))
end

function Adamax:update(group)
  local run, betas = bind.ops.adamax_step_, group.betas
  for _, b in ipairs(bundle.of(self, group, LARGEST)) do
    run(b.params, b.grads, b.exp_avg, b.exp_inf, b.step + 1, group.lr, betas[1], betas[2],
      group.eps, group.weight_decay, group.maximize)
    bundle.count(b)
    bundle.note(self, group, b, "adamax_step_", write_adamax)
  end
end

return variants
