--- distance.lua -- norms of differences and of slices: cdist, pdist, renorm.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local scope = require "moth.tensor.scope"

local ops = bind.ops
local distance = {}

local function refuse(fname, arg, wanted, got, code)
  errors.refuse(fname, arg, wanted, got, code or "E_SHAPE")
end

local PRODUCT_ROWS = 25 -- with at least so many rows, a matrix product is faster
local SHORT = 64 -- for rows up to this length a kernel is faster than the matrix product
local under_cdist = bind.under "cdist"

-- Returns true if the autograd graph records the results of a and b.
local function recorded(a, b)
  return require("moth.autograd").is_grad_enabled() and (a.requires_grad or b.requires_grad)
end

local function squares(x) return x:square():sum(-1, {keepdim = true}) end

-- Returns true if these sums of squares can neither overflow nor underflow. On a GPU the check
-- would synchronize, so that it returns false there.
local function ordinary(p, q)
  if p.device.type ~= "cpu" or lib.capture or p:numel() * q:numel() == 0 then return false end
  local sum = p:detach():max():item() + q:detach():max():item()
  return sum > 1e-24 and sum < 1e30
end

-- sqrt(|a|^2 + |b|^2 - 2 a b), with derivative 0 where the distance is 0. One matrix product adds
-- all three terms: the product of (-2 a, |a|^2, 1) and (b, 1, |b|^2).
local function euclidean(a, b)
  local most -- divides the elements if their squares would overflow or underflow
  local p, q = squares(a), squares(b)
  if a:numel() > 0 and b:numel() > 0 and not ordinary(p, q) then
    most = ops.maximum(a:detach():abs():max(), b:detach():abs():max())
    local far = most:gt(1e15):logical_and(most:isfinite())
    most = ops.where(far:logical_or(most:lt(1e-15):logical_and(most:gt(0))), most, 1)
    a, b = a / most, b / most
    p, q = squares(a), squares(b)
  end
  local square = ops.cat({a * -2, p, ops.ones_like(p)}, -1)
    :matmul(ops.cat({b, ops.ones_like(q), q}, -1):transpose(-1, -2))
  if not recorded(a, b) then
    local y = square:clamp_(0):sqrt_()
    return most and y:mul_(most) or y
  end
  square = square:clamp(0)
  local apart = square:gt(0)
  local y = ops.where(apart, ops.where(apart, square, 1):sqrt(), 0)
  return most and y * most or y
end

local differences = scope.inside(function(a, b, p)
  return ((a:unsqueeze(-2) - b:unsqueeze(-3)):norm(p, -1))
end)

-- The same for any p. Without gradients it computes a few rows of a at a time: the tensor of all
-- differences is many times as large as a and b.
local function by_slices(a, b, p)
  local grads = recorded(a, b)
  local rows, each = a:size(-2), b:size(-2) * b:size(-1)
  for k = 3, math.max(a:dim(), b:dim()) do
    each = each * math.max(k <= a:dim() and a:size(-k) or 1, k <= b:dim() and b:size(-k) or 1)
  end
  local some = math.max(1, math.floor((a.is_cuda and 2 ^ 26 or 2 ^ 17) / math.max(each, 1)))
  if grads or some >= rows then return (differences(a, b, p)) end
  local parts = {}
  for from = 1, rows, some do
    local part = a:narrow(-2, from, math.min(some, rows - from + 1))
    parts[#parts + 1] = differences(part, b, p)
  end
  return (ops.cat(parts, -2))
end

--- Returns true if the kernel for distances of all pairs of rows supports x.
function distance.has_kernel(x, p)
  local name = x.dtype.name
  return (p == 1 or p == 2) and (name == "float32" or name == "float64") and x.device.type == "cpu"
end

local function one_kernel(a, b, p)
  local n = a:dim()
  return n == b:dim() and (n == 2 or (n == 3 and a:size(1) == b:size(1))) and a.dtype == b.dtype
    and distance.has_kernel(a, p) and b.device.type == "cpu"
end

-- Calls f(a, b) without autocast: products in half types would lose small differences.
local function exactly(f, a, b)
  local autocast = require "moth.amp.autocast"
  if not autocast.is_autocast_enabled() then return (f(a, b)) end
  local function wide(x) return x.dtype == require("moth").float64 and x or x:float() end
  return (autocast.autocast(a.device.type, {enabled = false}, f, wide(a), wide(b)))
end

--- moth.cdist(x1, x2, p): x1 (..., P, M), x2 (..., R, M) -> (..., P, R).
distance.cdist = define {
  name = "cdist",
  doc = "The p-norm distances between all pairs of rows of two matrices, or batches of matrices.",
  examples = "moth.randn(3, 2), moth.randn(4, 2)\n"
    .. "moth.randn(2, 3, 2), moth.randn(4, 2), {p = 1}\n"
    .. "moth.randn(3, 2), moth.randn(4, 2), "
    .. "{compute_mode = 'use_mm_for_euclid_dist'}",
  args = {
    {"tensor", "x1", "rows, (..., P, M)"},
    {"tensor", "x2", "rows, (..., R, M)"},
    {"float", "p", "the order of the norm", default = 2},
    {"enum", "compute_mode", "does p = 2 use a matrix product, which is faster and less "
      .. "exact", choices = {"use_mm_for_euclid_dist_if_necessary",
      "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"}},
  },
  scoped = true,
  run = function(x1, x2, p, mode)
    if x1:dim() < 2 or x2:dim() < 2 or x1:size(-1) ~= x2:size(-1) then
      errors.argument("cdist", "x2", ("rows of one length are needed, got %s and %s"):format(
        errors.describe(x1), errors.describe(x2)), "E_SHAPE")
    end
    if not (p >= 0) then
      errors.refuse("cdist", "p", "a number from 0 on is needed", p, "E_DOMAIN")
    end
    local product = mode == "use_mm_for_euclid_dist" or (mode ~= "donot_use_mm_for_euclid_dist"
      and (x1:size(-2) > PRODUCT_ROWS or x2:size(-2) > PRODUCT_ROWS))
    local short = x1:size(-1) <= SHORT and mode ~= "use_mm_for_euclid_dist"
    if (short or not (p == 2 and product)) and one_kernel(x1, x2, p) then
      return (under_cdist.distances(x1, x2, p))
    end
    if p == 2 and product then return (exactly(euclidean, x1, x2)) end
    if x1:size(-1) == 0 then p = 2 end -- all distances are 0; p = 2 supports empty rows
    return (by_slices(x1, x2, p))
  end,
}

local MOST_DIFFERENCES = 1e6 -- larger tensors of differences are computed in slices

--- moth.pdist(x, p): the distances between all pairs of rows.
distance.pdist = define {
  name = "pdist",
  doc = "The p-norm distances between all pairs of rows of a matrix: 1 and 2, 1 and 3, ...",
  examples = "moth.randn(4, 3)\nmoth.randn(3, 2), {p = 3}",
  args = {{"tensor", "input", "rows, (N, M)"},
           {"float", "p", "the order of the norm", default = 2}},
  scoped = true,
  run = function(input, p)
    if input:dim() ~= 2 then refuse("pdist", "input", "(N, M) is needed", input) end
    if not (p >= 0) then refuse("pdist", "p", "a number from 0 on is needed", p, "E_DOMAIN") end
    local n = input:size(1)
    if n < 2 then
      return (require("moth.autograd.attach").attach(input:new_zeros {0}, input))
    end
    if distance.has_kernel(input, p) then
      return (bind.under("pdist").distances(input, nil, p))
    end
    if n * (n - 1) / 2 * input:size(2) > MOST_DIFFERENCES then
      local parts = {}
      for i = 1, n - 1 do
        local apart = input:narrow(1, i, 1) - input:narrow(1, i + 1, n - i)
        parts[i] = apart:norm(p, 2)
        apart:free()
      end
      return (ops.cat(parts, 1))
    end
    local at = require("moth.functions.creation").triu_indices(n, n, 1, {device = input.device})
    local apart = input:index_select(1, at[1]) - input:index_select(1, at[2])
    return (apart:norm(p, 2))
  end,
}

--- moth.renorm(x, p, dim, maxnorm): scales slices along dim with a larger norm to maxnorm.
local function renormed(name)
  return define {
    name = name,
    doc = "Scales each slice along `dim` whose p-norm is above `maxnorm` to that norm"
      .. (name == "renorm_" and ", in place." or "."),
    examples = "moth.randn(2, 3), 2, 1, 0.5",
    args = {{"tensor", "input", "tensor of any shape"},
             {"float", "p", "the order of the norm, above 0"},
             {"dim", "dim", "each position of this dimension is a slice"},
             {"float", "maxnorm", "the largest norm that is not scaled"}},
    scoped = true,
    run = function(input, p, dim, maxnorm)
      local n, others = input:dim(), {}
      if n < 2 then refuse(name, "input", "at least 2 dimensions are needed", input) end
      if not (p > 0) then refuse(name, "p", "a number above 0 is needed", p, "E_DOMAIN") end
      if not (maxnorm >= 0) then
        refuse(name, "maxnorm", "a number from 0 on is needed", maxnorm, "E_DOMAIN")
      end
      dim = errors.dim(name, "dim", dim, n)
      for d = 1, n do
        if d ~= dim then others[#others + 1] = d end
      end
      local norm = (name == "renorm_" and input:clone() or input):norm(p, others, true)
      local by = ops.where(norm:gt(maxnorm), ops.div(maxnorm, norm + 1e-7), 1)
      if name == "renorm_" then return (input:mul_(by)) end
      return input * by
    end,
  }
end
distance.renorm, distance.renorm_ = renormed "renorm", renormed "renorm_"

return distance
