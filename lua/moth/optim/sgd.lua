--- sgd.lua -- optim.SGD: stochastic gradient descent, with momentum. A step calls one op for each
-- group.

local bind = require "moth.binding.bind"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local bundle = require "moth.optim.bundle"
local rule = require "moth.optim.rule"

--- Stochastic gradient descent.
-- `optim.SGD(net:parameters(), {lr = 0.1, momentum = 0.9})`
local SGD = rule.new("SGD", {
  rule.lr(1e-3),
  {"float", "momentum", "factor of the momentum buffer", default = 0},
  {"float", "dampening", "share of the new gradient that the buffer omits", default = 0},
  rule.WEIGHT_DECAY,
  {"bool", "nesterov", "use Nesterov momentum?", default = false},
  rule.MAXIMIZE,
})

function SGD:check(group)
  self:range(group, "lr", 0)
  self:range(group, "momentum", 0)
  self:range(group, "weight_decay", 0)
  if group.nesterov and (group.momentum == 0 or group.dampening ~= 0) then
    errors.argument("SGD", "nesterov", "needs momentum above 0 and dampening 0", "E_DOMAIN")
  end
end

-- Writes the op's arguments for a replay; returns false if the step would take another branch.
local function write(cell, s, at)
  local group = cell.group
  local momentum = group.momentum
  if (momentum ~= 0) ~= cell.buffered or #group.params ~= cell.count
     or cell.optimizer.state ~= cell.state or #cell.optimizer.param_groups ~= cell.groups then
    return false
  end
  s[at.lr].number, s[at.momentum].number = group.lr, momentum
  s[at.dampening].number, s[at.weight_decay].number = group.dampening, group.weight_decay
  s[at.nesterov].integer = group.nesterov and 1 or 0
  s[at.maximize].integer = group.maximize and 1 or 0
  return true
end

local function note(self, group)
  require("moth.capture.recording").cell("sgd_step_", {write = write, group = group, optimizer =
    self,
    buffered = group.momentum ~= 0, count = #group.params, state = self.state,
    groups = #self.param_groups})
end

local function run(group, params, grads, buffers, first)
  bind.ops.sgd_step_(params, grads, buffers, group.lr, group.momentum,
    group.dampening, group.nesterov, first, group.weight_decay, group.maximize)
end

local NONE, BUFFER = {}, {"momentum_buffer"}

-- Writes the op's arguments for a replay of a step by a sparse gradient.
local function write_rows(cell, s, at)
  local group = cell.group
  if group.momentum ~= 0 or group.weight_decay ~= 0 then return false end
  s[at.alpha + 1].number = group.maximize and group.lr or -group.lr
  return true
end

-- Updates by sparse gradients. Repeated rows need no coalescing.
local function update_rows(self, group, found)
  local rows = require "moth.optim.rows"
  rows.no_decay(self, group)
  for _, one in ipairs(found) do
    bind.ops.add_(one.p, one.grad, group.maximize and group.lr or -group.lr)
    if lib.capture then
      require("moth.capture.recording").cell("index_add", {write = write_rows, group = group})
    end
  end
end

local function update_plain(self, group)
  local whole = bundle.whole(self, group, NONE)
  if whole then return (run(group, whole.params, NONE, NONE, false)) end
  local params, grads, found, n = {}, {}, {}, 0
  local all = group.params
  for i = 1, #all do
    local p = all[i]
    local grad = bundle.grad(p, self, found)
    if grad ~= nil then
      n = n + 1
      params[n], grads[n] = p, grad
    end
  end
  if n > 0 then
    run(group, params, grads, {}, false)
    if lib.capture then note(self, group) end
  end
  if #found > 0 then update_rows(self, group, found) end
  bundle.keep(group, NONE, {params = params, states = NONE})
end

local function new_buffers(params)
  local buffers = {}
  for i, p in ipairs(params) do
    local buffer = bundle.fresh(p)
    lib.check(lib.C.moth_keep_always(lib.ctx, buffer), "SGD")
    buffers[i] = buffer
  end
  return buffers
end

-- The initial momentum buffer of a parameter is its first gradient.
local function start(self, group, params, grads, buffers)
  run(group, params, grads, buffers, true)
  for i, p in ipairs(params) do self.state[p] = {momentum_buffer = buffers[i]} end
end

function SGD:update(group)
  if group.momentum == 0 then return (update_plain(self, group)) end
  local whole = bundle.whole(self, group, BUFFER)
  if whole then return (run(group, whole.params, NONE, whole.momentum_buffer, false)) end
  local params, grads, buffers, states, n = {}, {}, {}, {}, 0
  local new_params, new_grads, fresh = nil, nil, 0
  local all, state = group.params, self.state
  for i = 1, #all do
    local p = all[i]
    local grad = bundle.grad(p, self)
    if grad ~= nil then
      local own = state[p]
      if own and own.momentum_buffer ~= nil then
        n = n + 1
        params[n], grads[n], buffers[n], states[n] = p, grad, own.momentum_buffer, own
      else
        new_params, new_grads, fresh = new_params or {}, new_grads or {}, fresh + 1
        new_params[fresh], new_grads[fresh] = p, grad
      end
    end
  end
  local made = new_params and new_buffers(new_params) -- allocates before anything changes
  if n > 0 then
    run(group, params, grads, buffers, false)
    if lib.capture then note(self, group) end
  end
  bundle.keep(group, BUFFER, {params = params, states = states, momentum_buffer = buffers})
  if made then
    start(self, group, new_params, new_grads, made)
    if lib.capture then require("moth.capture.recording").void() end
  end
end

return SGD
