--- steady.lua -- optim.Rprop and optim.ASGD, whose steps do not scale with the gradient history.

local bind = require "moth.binding.bind"
local errors = require "moth.error"
local bundle = require "moth.optim.bundle"
local rule = require "moth.optim.rule"

local steady = {}

-- ---- Rprop ----

--- Rprop (Riedmiller and Braun, 1993): uses only the gradient's sign; for full-batch gradients.
local Rprop = rule.new("Rprop", {
  rule.lr(1e-2), {"any", "etas", "{less, more}: factors of an element's step if the sign of its "
    .. "gradient changed, and if not; default: {0.5, 1.2}", optional = true, first = {0.5, 1.2}},
  {"any", "step_sizes", "{min, max}: bounds of the step sizes; default: {1e-6, 50}",
    optional = true,
    first = {1e-6, 50}},
  rule.MAXIMIZE,
})
steady.Rprop = Rprop

local function two(value)
  local low, high = 0 / 0, 0 / 0
  if type(value) == "table" then low, high = value[1], value[2] end
  return type(low) == "number" and low or 0 / 0, type(high) == "number" and high or 0 / 0
end

function Rprop:check(group)
  self:range(group, "lr", 0)
  local less, more = two(group.etas)
  if not (less > 0 and less < 1 and more > 1) then
    errors.refuse("Rprop", "etas", "two numbers, between 0 and 1 and above 1, are needed",
      group.etas, "E_DOMAIN")
  end
  local least, most = two(group.step_sizes)
  if not (least <= most) then
    errors.refuse("Rprop", "step_sizes", "the smallest and the largest step are needed",
      group.step_sizes, "E_DOMAIN")
  end
end

local SIZES, FIRST = {"prev", "step_size"}, {}

local function write_rprop(_, group, s, at)
  local etas, sizes = group.etas, group.step_sizes
  s[at.etaminus].number, s[at.etaplus].number = etas[1], etas[2]
  s[at.step_size_min].number, s[at.step_size_max].number = sizes[1], sizes[2]
  s[at.maximize].integer = group.maximize and 1 or 0
  return true
end

function Rprop:update(group)
  local run, etas, sizes = bind.ops.rprop_step_, group.etas, group.step_sizes
  FIRST.step_size = group.lr
  for _, b in ipairs(bundle.of(self, group, SIZES, nil, FIRST)) do
    run(b.params, b.grads, b.prev, b.step_size, etas[1], etas[2], sizes[1], sizes[2],
      group.maximize)
    bundle.count(b)
    bundle.note(self, group, b, "rprop_step_", write_rprop)
  end
end

-- ---- ASGD ----

--- ASGD (Polyak and Juditsky, 1992): gradient descent with a decaying rate; state[p].ax is the
-- parameter's mean over the steps from t0 on.
local ASGD = rule.new("ASGD", {
  rule.lr(1e-2), {"float", "lambd", "decay coefficient of the rate and of the parameter",
    default = 1e-4},
  {"float", "alpha", "exponent of the decay of the rate", default = 0.75},
  {"float", "t0", "the step at which averaging starts", default = 1e6},
  rule.WEIGHT_DECAY,
  rule.MAXIMIZE,
})
steady.ASGD = ASGD

function ASGD:check(group)
  for _, name in ipairs {"lr", "lambd", "alpha", "weight_decay"} do self:range(group, name, 0) end
  if type(group.t0) ~= "number" or group.t0 ~= group.t0 then
    errors.refuse("ASGD", "t0", "a number is needed", group.t0, "E_DOMAIN")
  end
end

local MEAN = {"ax"}

-- Returns the rate and the averaging factor after a number of steps; initially they are lr and 1.
local function rate_and_share(group, step)
  return group.lr / (1 + group.lambd * group.lr * step) ^ group.alpha,
    1 / math.max(1, step - group.t0)
end

local function advance(group, states, step)
  local eta, mu = rate_and_share(group, step)
  for i = 1, #states do states[i].eta, states[i].mu = eta, mu end
end

local function write_asgd(cell, group, s, at)
  local own = cell.states[1]
  s[at.eta].number, s[at.mu].number, s[at.lambd].number = own.eta, own.mu, group.lambd
  s[at.weight_decay].number = group.weight_decay
  s[at.maximize].integer = group.maximize and 1 or 0
  return true
end

local function after_replay(cell)
  advance(cell.group, cell.states, cell.step)
end

local function step_rate_share(own, group)
  own.eta, own.mu = own.eta or group.lr, own.mu or 1
  return ("%d %.17g %.17g"):format(own.step, own.eta, own.mu)
end

function ASGD:update(group)
  local run = bind.ops.asgd_step_
  for _, b in ipairs(bundle.of(self, group, MEAN, step_rate_share)) do
    local own = b.states[1]
    run(b.params, b.grads, b.ax, own.eta, own.mu, group.lambd, group.weight_decay, group.maximize)
    bundle.count(b)
    advance(group, b.states, own.step)
    bundle.note(self, group, b, "asgd_step_", write_asgd, after_replay)
  end
end

return steady
