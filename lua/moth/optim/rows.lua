--- rows.lua -- steps by sparse gradients, which change the rows that were used and no others; and
-- optim.SparseAdam, made for them.

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

--- Raises if a group wants its parameters to shrink: rows that were not used would have to, too.
function rows.no_decay(self, group)
  if group.weight_decay == 0 then return end
  errors.argument(class.typename(self), "weight_decay",
    "is not compatible with sparse gradients, whose other rows stay as they are", "E_UNSUPPORTED")
end

--- The gradient with each row once, which a recording cannot have.
-- @param who  asks, for the error
function rows.once(grad, who)
  if lib.capture and not grad:is_coalesced() then
    errors.raise(who .. ": how many rows a sparse gradient has depends on values, so moth.capture "
      .. "cannot record it; SGD adds none up, and with sparse = false the gradient is dense",
      "E_UNSUPPORTED")
  end
  return (sparse.coalesce(grad))
end

--- A step of the rows that a sparse gradient holds: step(x, grad, ...) changes, in place, these
-- rows of p and of the tensors of its state, all as dense tensors.
-- @param self    the optimizer
-- @param states  tensors shaped as p
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

--- Adam (Kingma and Ba, 2015) for sparse gradients: rows of the table, and of the running means,
-- that a step does not use stay as they are. All gradients must be sparse.
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
    -- Adam adds eps to the root of a mean that was corrected for its beginning, SparseAdam before.
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
