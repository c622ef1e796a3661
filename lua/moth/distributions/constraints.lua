--- constraints.lua -- constraints of parameters and samples. tostring(constraint) describes the
-- values, and `constraint:check(x)` returns a mask of the valid ones.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

--- A set of valid values: tostring(constraint) describes them, `constraint:check(x)` returns a
-- mask.
local Constraint = class("Constraint")

-- @param event_dim  the number of last dimensions that form one value
-- @param kind       a name for biject_to and transform_to; any name for a new kind
-- @param fields     the fields that holds(x) and the transforms read
function Constraint:init(text, holds, event_dim, kind, fields)
  self.text, self.holds, self.event_dim, self.kind = text, holds, event_dim or 0, kind
  for key, value in pairs(fields or {}) do self[key] = value end
end

--- Returns a bool tensor: true for valid values.
function Constraint:check(x)
  return (self.holds(x))
end

--- Returns a mask with one bool for each element, if this is equivalent, for callers that check
-- whether all are true.
function Constraint:_parts(x)
  local base = self.kind == "independent" and self.base_constraint
  if base then
    return (base:_parts(x))
  end
  return (self:check(x))
end

function Constraint:__tostring() return self.text end

local constraints = {Constraint = Constraint, by_default = true}

--- moth.distributions.set_default_validate_args(value).
constraints.set_default_validate_args = define {
  name = "set_default_validate_args",
  doc = "Sets whether new distributions check their parameters and values.",
  examples = "true",
  outputs = "",
  args = {{"bool", "value", "check them?"}},
  run = function(value) constraints.by_default = value end,
}

local function integral(x)
  return x:is_floating_point() and x:eq(x:floor()) or x:eq(x)
end

-- Returns true for integers from low on (up to high); integer dtypes need two ops. Infinity is no
-- integer.
local function whole_from(x, low, high)
  local moth = require "moth"
  if x.dtype == moth.bool then x = x:long() end
  if not x:is_floating_point() then return x:clamp(low, high):eq(x) end
  return x:floor():clamp(low, high or moth.finfo(x.dtype).max):eq(x)
end

local function simplex(x)
  local sum = x:sum(-1, {keepdim = true})
  return x:ge(0):logical_and((sum - 1):abs():lt(1e-6)):all(-1)
end

local function wrong(wanted, got)
  errors.raise(("a constraint needs %s, got %s"):format(wanted, errors.describe(got)), "E_TYPE")
end

local function shown(bound)
  if type(bound) == "number" then return ("%g"):format(bound) end
  if not lib.istensor(bound) then wrong("a number or a tensor", bound) end
  return bound:dim() == 0 and ("%g"):format(bound:item()) or "a tensor"
end

local function all(good, n)
  for _ = 1, n do good = good:all(-1) end
  return good
end

-- ---- scalars ----

constraints.real = Constraint("numbers other than NaN", function(x) return x:eq(x) end, 0, "real")
constraints.positive = Constraint("numbers above 0", function(x) return x:gt(0) end, 0,
  "greater_than", {lower_bound = 0})
constraints.nonnegative = Constraint("numbers from 0 on", function(x) return x:ge(0) end, 0,
  "greater_than", {lower_bound = 0})
constraints.nonzero = Constraint("numbers other than 0",
  function(x) return x:ne(0):logical_and(x:eq(x)) end)
constraints.boolean = Constraint("0 or 1", function(x) return x:ne(0):eq(x) end)
constraints.nonnegative_integer = Constraint("integers from 0 on",
  function(x) return whole_from(x, 0) end)
constraints.positive_integer = Constraint("integers from 1 on",
  function(x) return whole_from(x, 1) end)

--- Numbers above a bound, a tensor or a number; greater_than_eq includes the bound.
function constraints.greater_than(bound)
  return Constraint("numbers above " .. shown(bound), function(x) return x:gt(bound) end, 0,
    "greater_than", {lower_bound = bound})
end

function constraints.greater_than_eq(bound)
  return Constraint("numbers from " .. shown(bound) .. " on", function(x) return x:ge(bound) end,
    0, "greater_than", {lower_bound = bound})
end

--- Numbers below a bound, a tensor or a number.
function constraints.less_than(bound)
  return Constraint("numbers below " .. shown(bound), function(x) return x:lt(bound) end, 0,
    "less_than", {upper_bound = bound})
end

--- Numbers from low to high, tensors or numbers, both included.
function constraints.interval(low, high)
  return Constraint(("numbers from %s to %s"):format(shown(low), shown(high)),
    function(x) return x:ge(low):logical_and(x:le(high)) end, 0, "interval",
    {lower_bound = low, upper_bound = high})
end

--- Numbers from low to below high.
function constraints.half_open_interval(low, high)
  return Constraint(("numbers from %s to below %s"):format(shown(low), shown(high)),
    function(x) return x:ge(low):logical_and(x:lt(high)) end, 0, "interval",
    {lower_bound = low, upper_bound = high})
end

--- The integers from low to high, both included.
function constraints.integer_interval(low, high)
  return Constraint(("integers from %s to %s"):format(shown(low), shown(high)),
    function(x) return x:ge(low):logical_and(x:le(high)):logical_and(integral(x)) end)
end

constraints.unit_interval = constraints.interval(0, 1)
constraints.half_open_unit = Constraint("numbers above 0, at most 1",
  function(x) return x:gt(0):logical_and(x:le(1)) end, 0, "interval",
  {lower_bound = 0, upper_bound = 1})

--- Positions from 1 to n.
function constraints.positions(n)
  return Constraint("positions from 1 to " .. shown(n),
    function(x)
      if type(n) == "number" then return whole_from(x, 1, n) end
      return whole_from(x, 1):logical_and(x:le(n))
    end)
end

-- ---- vectors ----

--- A constraint for values that have n more dimensions than those of `base`.
function constraints.independent(base, n)
  if not class.isinstance(base, Constraint) then wrong("another one", base) end
  if type(n) ~= "number" then wrong("a number of dimensions", n) end
  return Constraint(base.text, function(x) return (all(base:check(x), n)) end, base.event_dim + n,
    "independent", {base_constraint = base, reinterpreted_batch_ndims = n})
end

constraints.real_vector = constraints.independent(constraints.real, 1)
constraints.real_vector.text = "vectors without NaN"
constraints.simplex = Constraint("vectors of numbers from 0 on whose sum is 1", simplex, 1,
  "simplex")
-- The weights of categories need not sum to 1: they are normalized.
constraints.weights = Constraint("vectors of finite numbers from 0 on, not all 0", function(x)
  return x:ge(0):logical_and(x:isfinite()):all(-1):logical_and(x:sum(-1):gt(0))
end, 1, "simplex")
constraints.one_hot = Constraint("vectors of zeros and a single 1", function(x)
  return x:eq(0):logical_or(x:eq(1)):all(-1):logical_and(x:sum(-1):eq(1))
end, 1)

--- Vectors of counts whose sum is at most `most`.
function constraints.multinomial(most)
  local text = "vectors of integers from 0 on whose sum is at most " .. shown(most)
  return Constraint(text, function(x)
    return x:ge(0):logical_and(integral(x)):all(-1):logical_and(x:sum(-1):le(most))
  end, 1)
end

-- ---- matrices ----

local function rows_end(x) return (x:eq(x:tril()):all(-1):all(-1)) end

constraints.square = Constraint("square matrices", function(x)
  local batch = {unpack(x.shape, 1, x:dim() - 2)}
  return (require("moth").full(batch, x:size(-1) == x:size(-2)))
end, 2)
constraints.symmetric = Constraint("symmetric matrices", function(x)
  local apart = (x - x:transpose(-2, -1)):abs()
  return apart:le(x:abs():amax({ -2, -1}, true) * 1e-5):all(-1):all(-1)
end, 2)
-- Checks only symmetry: the Cholesky factorization after it raises for other matrices.
constraints.covariance = Constraint("symmetric matrices", constraints.symmetric.holds, 2,
  "positive_definite")
constraints.positive_definite = Constraint("symmetric positive-definite matrices", function(x)
  local _, bad = require("moth").linalg.cholesky_ex(x)
  return constraints.symmetric:check(x):logical_and(bad:eq(0))
end, 2, "positive_definite")
constraints.positive_semidefinite = Constraint("symmetric positive-semidefinite matrices",
  function(x)
    return constraints.symmetric:check(x):logical_and(
      require("moth").linalg.eigvalsh(x):ge(0):all(-1))
  end, 2, "positive_definite")
constraints.lower_triangular = Constraint("lower triangles", rows_end, 2)
constraints.lower_cholesky = Constraint("lower triangles with a positive diagonal", function(x)
  return rows_end(x):logical_and(x:diagonal(0, -2, -1):gt(0):all(-1))
end, 2, "lower_cholesky")
constraints.corr_cholesky = Constraint("lower triangles with a positive diagonal and rows of "
  .. "length 1", function(x)
  local slack = x:size(-1) * 10 * require("moth").finfo(x.dtype).eps
  local even = (x:square():sum(-1) - 1):abs():le(slack):all(-1)
  return constraints.lower_cholesky:check(x):logical_and(even)
end, 2, "corr_cholesky")

-- ---- compositions ----

-- Returns the maximal event_dim of several constraints.
local function dims(parts)
  local most = 0
  if not lib.is_plain(parts) then wrong("a list of others", parts) end
  for _, part in ipairs(parts) do
    if not class.isinstance(part, Constraint) then wrong("a list of others", part) end
    most = math.max(most, part.event_dim)
  end
  return most
end

--- Consecutive pieces along a dimension, of the given lengths, with one constraint for each.
function constraints.cat(parts, dim, lengths)
  local most = dims(parts)
  return Constraint("pieces that each have a constraint", function(x)
    local good, at = {}, 1
    for i, part in ipairs(parts) do
      local n = lengths and lengths[i] or 1
      good[i], at = part:check(x:narrow(dim, at, n)), at + n
    end
    return (require("moth").cat(good, dim))
  end, most, "cat", {cseq = parts, dim = dim, lengths = lengths})
end

--- Slices along a dimension, with one constraint for each.
function constraints.stack(parts, dim)
  local most = dims(parts)
  if type(dim) ~= "number" then wrong("a dimension", dim) end
  return Constraint("slices that each have a constraint", function(x)
    local good = {}
    for i, part in ipairs(parts) do good[i] = part:check(x:select(dim, i)) end
    return (require("moth").stack(good, dim))
  end, dim + most < 0 and most + 1 or most, "stack", {cseq = parts, dim = dim})
end

return (require("moth.base.lazy").namespace("moth.distributions.constraints", constraints, {}))
