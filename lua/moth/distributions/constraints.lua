--- constraints.lua -- which values parameters and samples may have. A constraint says it
-- (tostring), and `:check(x)` gives a mask of what holds.

local class = require "moth.class"
local define = require "moth.define"

local Constraint = class("Constraint")

-- `event_dim`: how many of the last dimensions are one value.
function Constraint:init(text, holds, event_dim)
  self.text, self.holds, self.event_dim = text, holds, event_dim or 0
end

--- Which of the values are allowed: a bool tensor.
function Constraint:check(x)
  return (self.holds(x))
end

function Constraint:__tostring() return self.text end

local constraints = { Constraint = Constraint, by_default = true }

--- moth.distributions.set_default_validate_args(value).
constraints.set_default_validate_args = define {
  name = "set_default_validate_args",
  doc = "Whether distributions made from now on check their parameters and values.",
  examples = "true",
  outputs = "",
  args = { { "bool", "value", "check them?" } },
  run = function(value) constraints.by_default = value end,
}

local function whole(x)
  return x:is_floating_point() and x:eq(x:floor()) or x:eq(x)
end

local function simplex(x)
  local sum = x:sum(-1, { keepdim = true })
  return x:ge(0):logical_and((sum - 1):abs():lt(1e-6)):all(-1)
end

constraints.real = Constraint("numbers other than NaN", function(x) return x:eq(x) end)
constraints.positive = Constraint("numbers above 0", function(x) return x:gt(0) end)
constraints.nonnegative = Constraint("numbers from 0 on", function(x) return x:ge(0) end)
constraints.nonzero = Constraint("numbers other than 0",
  function(x) return x:ne(0):logical_and(x:eq(x)) end)
constraints.unit_interval = Constraint("numbers from 0 to 1",
  function(x) return x:ge(0):logical_and(x:le(1)) end)
constraints.half_open_unit = Constraint("numbers above 0, at most 1",
  function(x) return x:gt(0):logical_and(x:le(1)) end)
constraints.boolean = Constraint("0 or 1", function(x) return x:eq(0):logical_or(x:eq(1)) end)
constraints.nonnegative_integer = Constraint("whole numbers from 0 on",
  function(x) return x:ge(0):logical_and(whole(x)) end)
constraints.real_vector = Constraint("vectors without NaN",
  function(x) return x:eq(x):all(-1) end, 1)
constraints.simplex = Constraint("vectors of numbers from 0 on whose sum is 1", simplex, 1)
-- Parameters need not have the sum 1: they are divided by it.
constraints.weights = Constraint("vectors of finite numbers from 0 on, not all 0", function(x)
  return x:ge(0):logical_and(x:isfinite()):all(-1):logical_and(x:sum(-1):gt(0))
end, 1)
-- Whether they are positive definite too is found by cholesky.
constraints.symmetric = Constraint("symmetric matrices", function(x)
  local apart = (x - x:transpose(-2, -1)):abs()
  return apart:le(x:abs():amax({ -2, -1 }, true) * 1e-5):all(-1):all(-1)
end, 2)
constraints.lower_cholesky = Constraint("lower triangles with a positive diagonal", function(x)
  return x:eq(x:tril()):all(-1):all(-1):logical_and(x:diagonal(0, -2, -1):gt(0):all(-1))
end, 2)
constraints.one_hot = Constraint("vectors of zeros and a single 1", function(x)
  return x:eq(0):logical_or(x:eq(1)):all(-1):logical_and(x:sum(-1):eq(1))
end, 1)

local function shown(bound)
  if type(bound) ~= "cdata" then return ("%g"):format(bound) end
  return bound:dim() == 0 and ("%g"):format(bound:item()) or "a tensor"
end

--- From low to high, tensors or numbers, both included.
function constraints.interval(low, high)
  return Constraint(("numbers from %s to %s"):format(shown(low), shown(high)),
    function(x) return x:ge(low):logical_and(x:le(high)) end)
end

--- Positions among n, from 1.
function constraints.positions(n)
  return Constraint(("positions from 1 to %d"):format(n),
    function(x) return x:ge(1):logical_and(x:le(n)):logical_and(whole(x)) end)
end

--- A constraint of which the last n dimensions are one value.
function constraints.independent(base, n)
  return Constraint(base.text, function(x)
    local good = base:check(x)
    for _ = 1, n do good = good:all(-1) end
    return good
  end, base.event_dim + n)
end

return constraints
