--- adam.lua -- optim.Adam and optim.AdamW: steps scaled by running means of the gradient and of its
-- square.

local class = require "moth.class"
local define = require "moth.define"
local errors = require "moth.error"
local lib = require "moth.lib"
local Optimizer = require "moth.optim.optimizer"

local function signature(name, weight_decay, decoupled)
  return define.signature(name, {
    {"params", "params", "tensors, or groups of them with options"},
    {"float", "lr", "learning rate", default = 1e-3},
    {"any", "betas", "{b1, b2}: shares of the running means that are kept; {0.9, 0.999}",
      optional = true},
    {"float", "eps", "keeps the division from 0", default = 1e-8},
    {"float", "weight_decay", decoupled and "share by which the parameter shrinks"
      or "share of the parameter added to its gradient", default = weight_decay},
    {"bool", "maximize", "climb instead of descend", default = false},
  })
end

--- Adam (Kingma and Ba, 2015).
-- `optim.Adam(net:parameters(), {lr = 1e-3, betas = {0.9, 0.999}})`
-- @param params        list of tensors, or of groups {params = list, lr = ..., ...}
-- @param lr            learning rate (default 1e-3)
-- @param betas         shares of the running means that are kept (default {0.9, 0.999})
-- @param eps           keeps the division from 0 (default 1e-8)
-- @param weight_decay  share of the parameter added to its gradient (default 0)
-- @param maximize      climb instead of descend (default false)
local Adam = class("Adam", Optimizer)
Adam.keeps_own_state = true
Adam.signature = signature("Adam", 0, false)
Adam.decoupled = false

local function init(self, params, lr, betas, eps, weight_decay, maximize)
  Optimizer.init(self, params, {
    lr = lr, betas = betas or {0.9, 0.999}, eps = eps, weight_decay = weight_decay,
    maximize = maximize,
  })
end
Adam.init = init

function Adam:check(group)
  self:range(group, "lr", 0)
  self:range(group, "eps", 0)
  self:range(group, "weight_decay", 0)
  local betas = group.betas
  for i = 1, 2 do
    local beta = type(betas) == "table" and betas[i]
    if type(beta) ~= "number" or not (beta >= 0 and beta < 1) then
      errors.argument(class.typename(self), "betas",
        "expected two numbers from 0 to below 1, got " .. errors.describe(betas), "E_DOMAIN")
    end
  end
end

local function fresh(p)
  local moth = require "moth"
  local state = {step = 0, exp_avg = moth.zeros_like(p), exp_avg_sq = moth.zeros_like(p)}
  for _, name in ipairs {"exp_avg", "exp_avg_sq"} do
    lib.check(lib.C.moth_keep_always(lib.ctx, state[name]), "Adam")
  end
  return state
end

-- The parameters that have taken the same number of steps go together: as a rule, all of them.
local function bundles(self, group)
  local all, by_step = {}, {}
  for _, p in ipairs(group.params) do
    local grad = p.grad
    if grad ~= nil then
      local own = self.state[p]
      if not own then
        own = fresh(p)
        self.state[p] = own
      end
      local bundle = by_step[own.step]
      if not bundle then
        bundle = {step = own.step, params = {}, grads = {}, means = {}, squares = {}, states = {}}
        by_step[own.step] = bundle
        all[#all + 1] = bundle
      end
      local n = #bundle.params + 1
      bundle.params[n], bundle.grads[n], bundle.states[n] = p, grad, own
      bundle.means[n], bundle.squares[n] = own.exp_avg, own.exp_avg_sq
    end
  end
  return all
end

function Adam:update(group)
  local step = require("moth.bind").ops.adam_step_
  local betas = group.betas
  for _, bundle in ipairs(bundles(self, group)) do
    step(bundle.params, bundle.grads, bundle.means, bundle.squares, bundle.step + 1, group.lr,
      betas[1], betas[2], group.eps, group.weight_decay, self.decoupled, group.maximize)
    for _, own in ipairs(bundle.states) do own.step = own.step + 1 end
  end
end

--- AdamW (Loshchilov and Hutter, 2019): Adam whose weight decay, 0.01 by default, shrinks the
-- parameter itself. The other arguments are Adam's.
local AdamW = class("AdamW", Adam)
AdamW.signature = signature("AdamW", 0.01, true)
AdamW.decoupled = true
AdamW.init = init -- its own, since it is given what its own signature parses

Adam.W = AdamW

return Adam
