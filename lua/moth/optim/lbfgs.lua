--- lbfgs.lua -- optim.LBFGS: a quasi-Newton method for small problems and full-batch gradients. A
-- step calls the closure several times.
--
-- All parameters together are one long vector. The state is stored as the state of the first
-- parameter, as in PyTorch.

local autograd = require "moth.autograd"
local bundle = require "moth.optim.bundle"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local Optimizer = require "moth.optim.optimizer"
local scope = require "moth.tensor.scope"
local search = require "moth.optim.linesearch"

--- L-BFGS (Liu and Nocedal, 1989).
-- `optimizer:step(function() optimizer:zero_grad(); local loss = f(); loss:backward(); return loss
-- end)`
local LBFGS = class("LBFGS", Optimizer)
LBFGS.keeps_own_state = true

LBFGS.signature = define.signature("LBFGS", {
  {"params", "params", "a list of tensors; there are no groups"},
  {"float", "lr", "step size, or the first step size of a line search", default = 1, single = true},
  {"int", "max_iter", "maximal iterations in a step", default = 20},
  {"int", "max_eval", "maximal closure calls in a step; default: 5/4 max_iter", optional = true},
  {"float", "tolerance_grad", "a step ends if no gradient element is larger",
    default = 1e-7},
  {"float", "tolerance_change", "or if the parameters or the loss change by less", default = 1e-9},
  {"int", "history_size", "number of stored updates", default = 100},
  {"any", "line_search_fn", "'strong_wolfe', or none: a constant step size", optional = true},
  {"bool", "maximize", "maximize the objective?", default = false},
})

function LBFGS:init(params, lr, max_iter, max_eval, tolerance_grad, tolerance_change,
                    history_size, line_search_fn, maximize)
  Optimizer.init(self, params, {
    lr = lr, max_iter = max_iter, max_eval = max_eval or math.floor(max_iter * 5 / 4),
    tolerance_grad = tolerance_grad, tolerance_change = tolerance_change,
    history_size = history_size, maximize = maximize,
    line_search_fn = line_search_fn == nil and lib.none or line_search_fn,
  })
end

function LBFGS:check(group)
  for _, name in ipairs {"lr", "max_eval", "tolerance_grad", "tolerance_change"} do
    self:range(group, name, 0)
  end
  self:range(group, "max_iter", 1)
  self:range(group, "history_size", 1)
  if group.line_search_fn ~= lib.none and group.line_search_fn ~= "strong_wolfe" then
    errors.refuse("LBFGS", "line_search_fn", "'strong_wolfe' or moth.none is needed",
      group.line_search_fn, "E_DOMAIN")
  end
end

--- LBFGS has one group: only the constructor calls this.
function LBFGS:add_param_group(group)
  if #self.param_groups > 0 then
    errors.argument("LBFGS", "params", "one list of tensors is needed; it has no groups of "
      .. "parameters", "E_UNSUPPORTED")
  end
  Optimizer.add_param_group(self, group)
end

-- ---- parameters as one vector ----

local flat = scope.inside(function(params, grads, maximize)
  local moth, parts = require "moth", {}
  for i, p in ipairs(params) do
    parts[i] = bundle.real(grads[i] or moth.zeros_like(p)):reshape(-1)
  end
  local all = moth.cat(parts)
  return maximize and -all or all
end)

local function flat_gradient(params, maximize)
  local grads = {}
  for i, p in ipairs(params) do
    local some = {}
    grads[i] = bundle.grad(p, nil, some) or some[1] and some[1].grad:to_dense() or false
  end
  local all = flat(params, grads, maximize)
  if bundle.borrowed then bundle.give_back() end
  return all
end

-- Adds t times a vector to the parameters.
local move = scope.inside(function(params, t, direction)
  local at = 1
  for _, p in ipairs(params) do
    local n = p:numel()
    local part = direction:narrow(1, at, n):view(p.shape)
    if part.dtype == p.dtype then p:add_(part, t) else p:copy_(bundle.real(p):add(part, t)) end
    at = at + n
  end
end)

local function largest(x)
  return x:abs():max():item()
end

local function dot(x, y)
  return x:dot(y):item()
end

-- ---- the direction ----

-- Stores the change of the parameters and of the gradient in the last iteration.
local function remember(own, grad, most)
  local y, s = grad:sub(own.prev_flat_grad), own.d:mul(own.t)
  local ys = dot(y, s)
  if ys <= 1e-10 then return end
  local dirs, steps, ro = own.old_dirs, own.old_stps, own.ro
  while #dirs >= most do
    table.remove(dirs, 1)
    table.remove(steps, 1)
    table.remove(ro, 1)
  end
  local n = #dirs + 1
  dirs[n], steps[n], ro[n] = y, s, 1 / ys
  lib.check(lib.C.moth_keep_always(lib.ctx, y), "LBFGS")
  lib.check(lib.C.moth_keep_always(lib.ctx, s), "LBFGS")
  own.H_diag = ys / dot(y, y)
end

-- Returns the search direction: the negative gradient times the estimate of the inverse Hessian, by
-- the two-loop recursion.
local function direction(own, grad, most)
  if own.n_iter == 1 then
    own.old_dirs, own.old_stps, own.ro, own.H_diag = {}, {}, {}, 1
    return grad:neg()
  end
  remember(own, grad, most)
  local dirs, steps, ro, alpha = own.old_dirs, own.old_stps, own.ro, {}
  local q = grad:neg()
  for i = #dirs, 1, -1 do
    alpha[i] = dot(steps[i], q) * ro[i]
    q:add_(dirs[i], -alpha[i])
  end
  q:mul_(own.H_diag)
  for i = 1, #dirs do q:add_(steps[i], alpha[i] - dot(dirs[i], q) * ro[i]) end
  return q
end

-- ---- a step ----

-- Returns the functions that an iteration calls.
local function problem_of(self, closure)
  local group, enable_grad = self.param_groups[1], require("moth").enable_grad
  local sign = group.maximize and -1 or 1
  local problem = {params = group.params, evaluations = 0}

  --- Returns the loss and its gradient at the current parameters, and the closure's result.
  function problem.here()
    local loss = enable_grad(closure)
    problem.evaluations = problem.evaluations + 1
    local value = lib.istensor(loss) and loss:numel() == 1 and loss:item() or loss
    if type(value) ~= "number" then
      errors.argument("step", "closure", "a function that returns the loss is needed; it returned "
        .. errors.describe(loss), "E_TYPE")
    end
    return sign * value, flat_gradient(problem.params, group.maximize), loss
  end

  --- Returns the loss and its gradient at t times a direction; the parameters are restored.
  function problem.at(t, direction_, from)
    move(problem.params, t, direction_)
    local ok, value, grad = pcall(problem.here)
    for i, p in ipairs(problem.params) do p:copy_(from[i]) end
    if not ok then error(value, 0) end
    return value, grad
  end

  return problem
end

local function clones(params)
  local list = {}
  for i, p in ipairs(params) do list[i] = p:detach():clone() end
  return list
end

-- Adds the step along own.d to the parameters. Returns the new loss and gradient, or nothing after
-- the last iteration.
local function go(group, own, problem, loss, grad, slope, last)
  if group.line_search_fn ~= lib.none then
    local from = clones(problem.params)
    local most = group.max_eval - problem.evaluations
    loss, grad, own.t = search.strong_wolfe(function(t) return problem.at(t, own.d, from) end,
      {t = own.t, value = loss, grad = grad, slope = slope, direction = own.d,
       tolerance = group.tolerance_change, most = most})
    move(problem.params, own.t, own.d)
    return loss, grad
  end
  move(problem.params, own.t, own.d)
  if last then return nil end
  return problem.here()
end

-- Iterates until a stopping criterion is met.
local function iterate(group, own, problem, loss, grad)
  for n = 1, group.max_iter do
    own.n_iter = own.n_iter + 1
    bundle.put(own, "d", direction(own, grad, group.history_size))
    if own.prev_flat_grad then own.prev_flat_grad:copy_(grad)
    else bundle.put(own, "prev_flat_grad", grad:clone()) end
    own.prev_loss = loss
    own.t = group.lr
    if own.n_iter == 1 then own.t = math.min(1, 1 / grad:abs():sum():item()) * group.lr end
    local slope, before = dot(grad, own.d), loss
    if slope > -group.tolerance_change then return end
    local evaluations = problem.evaluations
    loss, grad = go(group, own, problem, loss, grad, slope, n == group.max_iter)
    own.func_evals = own.func_evals + problem.evaluations - evaluations
    if n == group.max_iter or problem.evaluations >= group.max_eval
       or largest(grad) <= group.tolerance_grad
       or largest(own.d) * math.abs(own.t) <= group.tolerance_change
       or math.abs(loss - before) < group.tolerance_change then
      return
    end
  end
end

local function optimize(self, closure)
  local group = self.param_groups[1]
  local problem = problem_of(self, closure)
  local loss, grad, given = problem.here()
  local first = group.params[1]
  local own = self.state[first] or {func_evals = 0, n_iter = 0}
  self.state[first] = own
  own.func_evals = own.func_evals + 1
  if grad:numel() > 0 and largest(grad) > group.tolerance_grad then
    iterate(group, own, problem, loss, grad)
  end
  return given
end

--- Performs a step: up to max_iter iterations.
-- @param closure  clears the gradients, computes the loss, calls backward, returns the loss
-- @return the first loss that the closure returned
function LBFGS:step(closure)
  if type(closure) ~= "function" then
    errors.argument("step", "closure", "a function that computes the loss and its gradients is "
      .. "needed, as LBFGS computes them several times; got " .. errors.describe(closure), "E_TYPE")
  end
  if lib.capture then
    require("moth.capture.recording").refuse("a step of LBFGS, which branches on values,")
  end
  self.stepped = true
  if self.pre_hooks then self:run_hooks(self.pre_hooks, closure) end
  local ok, loss = autograd.frames.unrecorded(optimize, self, closure)
  if not ok then error(loss, 0) end
  if self.post_hooks then self:run_hooks(self.post_hooks, closure) end
  return loss
end

-- ---- saving ----

local LISTS = {old_dirs = true, old_stps = true, ro = true}

--- The state and the options as plain tables.
function LBFGS:state_dict()
  local made = Optimizer.state_dict(self)
  for _, values in pairs(made.state) do
    for name in pairs(LISTS) do
      if values[name] then values[name] = {unpack(values[name])} end
    end
  end
  return made
end

local function own_tensor(x, p)
  x = x:detach():to(bundle.state_dtype(p)):to(p.device):clone()
  lib.check(lib.C.moth_keep_always(lib.ctx, x), "load_state_dict")
  return x
end

--- Returns a copy of one parameter's state; numbers that are tensors in PyTorch become tensors.
function LBFGS:adopt_state(p, values)
  local copy = {}
  for name, value in pairs(type(values) == "table" and values or {}) do
    if LISTS[name] and type(value) == "table" then
      local list = {}
      for i, x in ipairs(value) do
        if not lib.istensor(x) then list[i] = x
        elseif x:dim() == 0 then list[i] = tonumber(x:item())
        else list[i] = own_tensor(x, p) end
      end
      copy[name] = list
    elseif lib.istensor(value) then
      copy[name] = value:dim() == 0 and tonumber(value:item()) or own_tensor(value, p)
    elseif value ~= lib.none and name ~= "al" then -- al is a scratch list in PyTorch
      copy[name] = value
    end
  end
  return copy
end

return {LBFGS = LBFGS}
