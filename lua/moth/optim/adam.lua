--- adam.lua -- optim.Adam and optim.AdamW: steps scaled by running means of the gradient and of its
-- square. NAdam, RAdam and Adamax use the options of this file.

local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local errors = require "moth.error"
local bundle = require "moth.optim.bundle"
local rule = require "moth.optim.rule"

local adam = {}

--- Returns the options that all variants share.
function adam.rows(lr, weight_decay)
  return {
    rule.lr(lr),
    {"any", "betas", "{b1, b2}: factors of the running means; default: {0.9, 0.999}",
      optional = true, first = {0.9, 0.999}},
    rule.eps(1e-8),
    weight_decay == 0 and rule.WEIGHT_DECAY or weight_decay and {"float", "weight_decay",
      "the weight decay coefficient", default = weight_decay} or nil,
  }
end

adam.DECOUPLED = {"bool", "decoupled_weight_decay",
  "decay the parameter instead of adding to the gradient?",
  default = false}

--- Raises if a shared option is out of range.
function adam.check(self, group)
  self:range(group, "lr", 0)
  self:range(group, "eps", 0)
  if group.weight_decay ~= nil then self:range(group, "weight_decay", 0) end
  local betas = group.betas
  for i = 1, 2 do
    local beta = type(betas) == "table" and betas[i]
    if type(beta) ~= "number" or not (beta >= 0 and beta < 1) then
      errors.refuse(class.typename(self), "betas", "two numbers from 0 to below 1 are needed",
        betas, "E_DOMAIN")
    end
  end
end

local AMSGRAD = {"bool", "amsgrad", "divide by the largest mean square so far?", default = false}

local function rows_of(weight_decay, ...)
  local rows = adam.rows(1e-3, weight_decay)
  for _, row in ipairs {AMSGRAD, rule.MAXIMIZE, ...} do rows[#rows + 1] = row end
  return rows
end

--- Adam (Kingma and Ba, 2015).
-- `optim.Adam(net:parameters(), {lr = 1e-3, betas = {0.9, 0.999}})`
local Adam = rule.new("Adam", rows_of(0, adam.DECOUPLED))

Adam.check = adam.check

local NONE = {}
local PLAIN, AMS = {"exp_avg", "exp_avg_sq"}, {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}

--- Writes the shared options to the op's arguments.
function adam.write(group, s, at, step)
  local betas = group.betas
  s[at.step].number, s[at.lr].number = step, group.lr
  s[at.beta1].number, s[at.beta2].number = betas[1], betas[2]
  s[at.eps].number, s[at.weight_decay].number = group.eps, group.weight_decay
  s[at.maximize].integer = group.maximize and 1 or 0
  return true
end

function adam.write_decoupled(_, group, s, at, step)
  s[at.decoupled].integer = group.decoupled_weight_decay and 1 or 0
  return (adam.write(group, s, at, step))
end

local function write(cell, group, s, at, step)
  if group.amsgrad ~= cell.amsgrad then return false end
  return (adam.write_decoupled(cell, group, s, at, step))
end

function Adam:update(group)
  local step = bind.ops.adam_step_
  local betas = group.betas
  for _, b in ipairs(bundle.of(self, group, group.amsgrad and AMS or PLAIN)) do
    step(b.params, b.grads, b.exp_avg, b.exp_avg_sq, b.max_exp_avg_sq or NONE, b.step + 1, group.lr,
      betas[1], betas[2], group.eps, group.weight_decay, group.maximize,
      group.decoupled_weight_decay)
    bundle.count(b)
    bundle.note(self, group, b, "adam_step_", write)
  end
end

--- AdamW (Loshchilov and Hutter, 2019): Adam with decoupled weight decay, 0.01 by default, which
-- shrinks the parameter itself. The other arguments are Adam's.
local AdamW = class("AdamW", Adam)
AdamW.keeps_own_state = true
AdamW.signature = rule.signature("AdamW", rows_of(0.01))

function AdamW:init(params, lr, betas, eps, weight_decay, amsgrad, maximize)
  Adam.init(self, params, lr, betas, eps, weight_decay, amsgrad, maximize, true)
end

function AdamW:check(group)
  adam.check(self, group)
  group.decoupled_weight_decay = true -- a loaded state of an Adam has false
end

adam.Adam, adam.AdamW = Adam, AdamW

return adam
