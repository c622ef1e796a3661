--- rows.lua -- steps by sparse gradients, which change only the rows in the gradient; and
-- optim.SparseAdam.

local adam = require "moth.optim.adam"
local bind = require "moth.binding.bind"
local bundle = require "moth.optim.bundle"
local class = require "moth.base.class"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local rule = require "moth.optim.rule"
local sparse = require "moth.sparse"

local ops = bind.ops

local rows = {}

--- Raises if a group has weight decay, which would also change rows without a gradient.
function rows.no_decay(self, group)
  if group.weight_decay == 0 then return end
  errors.argument(class.typename(self), "weight_decay",
    "is not compatible with sparse gradients, which leave other rows unchanged", "E_UNSUPPORTED")
end

--- Returns the coalesced gradient. It raises while a step is captured.
-- @param who  the function's name, for the error
function rows.once(grad, who)
  if lib.capture and not grad:is_coalesced() then
    errors.raise(who .. ": the number of rows of a sparse gradient depends on values, so "
      .. "moth.capture "
      .. "cannot record it; use SGD, or sparse = false for a dense gradient",
      "E_UNSUPPORTED")
  end
  return (sparse.coalesce(grad))
end

--- Runs a step for the rows of a sparse gradient: step(x, grad, ...) changes these rows of p and of
-- its state tensors in place. The rows are dense tensors.
-- @param self    the optimizer
-- @param states  state tensors, shaped as p
function rows.step(self, p, grad, states, step)
  grad = rows.once(grad, class.typename(self))
  local at, whole, part = grad:indices()[1], {p, unpack(states)}, {}
  if at:size(1) == 0 then return end
  for i = 1, #whole do part[i] = ops.index_select(whole[i], 1, at) end
  step(part[1], grad:values(), part[2], part[3])
  for i = 1, #whole do ops.index_put_(whole[i], {at}, part[i]) end
end

-- ---- SparseAdam ----

local options = adam.rows(1e-3)
options[#options + 1] = rule.MAXIMIZE

--- Adam (Kingma and Ba, 2015) for sparse gradients: rows of the parameter and of the running means
-- that are not in the gradient do not change. All gradients must be sparse.
-- `optim.SparseAdam(embedding:parameters(), {lr = 1e-3, betas = {0.9, 0.999}})`
local SparseAdam = rule.new("SparseAdam", options)
rows.SparseAdam = SparseAdam

SparseAdam.check = adam.check

local MEANS = {"exp_avg", "exp_avg_sq"}

function SparseAdam:update(group)
  local betas, found = group.betas, {}
  if #bundle.of(self, group, MEANS, nil, nil, found) > 0 then
    errors.raise("SparseAdam does not support dense gradients; consider Adam for these parameters",
      "E_UNSUPPORTED")
  end
  for _, one in ipairs(found) do
    local own = bundle.state(self, one.p, MEANS)
    local step = own.step + 1
    -- Adam adds eps after the bias correction, SparseAdam before.
    local eps = group.eps / math.sqrt(1 - betas[2] ^ step)
    rows.step(self, one.p, one.grad, {own.exp_avg, own.exp_avg_sq}, function(x, grad, mean,
                                                                             square)
      ops.adam_step_({x}, {grad}, {mean}, {square}, {}, step, group.lr, betas[1], betas[2], eps, 0,
        group.maximize)
    end)
    own.step = step
  end
end

return rows
