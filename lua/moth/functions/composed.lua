--- composed.lua -- functions made of a few ops each: quantile, nanmedian, cdist, logspace,
-- polygamma, tril_indices, triu_indices, fill_diagonal_, log_normal_, cauchy_; where and unfold as
-- methods.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local scope = require "moth.tensor.scope"

local ops = bind.ops
local istensor = lib.istensor

local composed = {}

-- ---- order ----

local quantile_of = bind.as("quantile_of", "quantile")
local median_of = bind.as("quantile_of", "nanmedian")

-- x with the dimension last, or all of it as one; and where results get a 1 with keepdim.
local function rows_of(x, dim)
  if dim == nil then return x:reshape(-1) end
  if x:dim() == 0 then return x:reshape(1) end
  return x:movedim(dim, -1)
end

local function keep(y, x, dim, keepdim)
  if not keepdim then return y end
  if dim ~= nil then return x:dim() == 0 and y or y:unsqueeze(dim) end
  return y:reshape(lib.filled(x:dim(), 1))
end

local FIND = {
  { "int", "dim", "dimension to search; all of them when absent", optional = true },
  { "bool", "keepdim", "keep it as a dimension of size 1", default = false },
}

-- What lies between two neighbours.
local PICKS = {
  linear = function(low, high, part) return low + (high - low) * part end,
  lower = function(low) return low end,
  higher = function(_, high) return high end,
  midpoint = function(low, high) return low + (high - low) * 0.5 end,
}

-- The value of rows at that share of their length n: exact where it meets an element. In order,
-- pick(k, above) is element k, which is that of the share or the one above. slack is 0, with a
-- gradient to the share, or nil.
local function place(pick, q, n, how, slack)
  local at = q * (n - 1)
  local floor = math.floor(at)
  local low, part = pick(floor + 1, false), at - floor
  if part == 0 then return slack and low + slack:to(low.dtype) * 0 or low end
  if slack and how == "linear" then part = slack:to(low.dtype) * (n - 1) + part end
  local high = pick(floor + 2, true)
  if how == "nearest" then -- the even one of two as near
    return (part > 0.5 or (part == 0.5 and floor % 2 == 1)) and high or low
  end
  return (PICKS[how](low, high, part))
end

-- Of a tensor of shares that wants a gradient: 0, with that gradient.
local function slack_of(q)
  if istensor(q) and q.requires_grad and require("moth.autograd").is_grad_enabled() then
    return q - q:detach()
  end
end

local function checked_q(q)
  if type(q) ~= "number" or not (q >= 0 and q <= 1) then
    errors.refuse("quantile", "q", "numbers from 0 to 1 are needed", q, "E_DOMAIN")
  end
  return q
end

--- moth.quantile(x, q, dim, keepdim, interpolation): q a number, or several, which then are the
-- first dimension of the result.
composed.quantile = define {
  name = "quantile",
  doc = "The value that a share `q` of the elements along a dimension does not exceed, between "
    .. "neighbours as `interpolation` says. NaN wins.",
  examples = "moth.randn(2, 5), 0.3  -- domain: distinct\n"
    .. "moth.randn(2, 5), {0.25, 0.5}, {dim = 2, keepdim = true, interpolation = 'midpoint'}"
    .. "  -- domain: distinct",
  args = {
    { "tensor", "input", "float tensor of any shape" },
    { "any", "q", "a number from 0 to 1, or a list or 1-d tensor of them" },
    FIND[1], FIND[2],
    { "enum", "interpolation", "what to take between two elements",
      choices = { "linear", "lower", "higher", "midpoint", "nearest" } },
  },
  scoped = true,
  run = function(input, q, dim, keepdim, how)
    if not input:is_floating_point() then
      errors.refuse("quantile", "input", "a float tensor is needed", input, "E_DTYPE")
    end
    local x = rows_of(input, dim)
    local n = x:size(-1)
    if n == 0 then
      errors.argument("quantile", "input", "has no elements to choose from", "E_SHAPE")
    end
    local slack = slack_of(q)
    if istensor(q) then q = q:tolist() end
    if type(q) ~= "table" and input.device.type == "cpu" then -- two elements: no need to sort
      local function chosen(_, above)
        return (quantile_of(x, -1, false, q, above))
      end
      return (keep(place(chosen, checked_q(q), n, how, slack), input, dim, keepdim))
    end
    local sorted = x:sort(-1)
    -- NaN is sorted to the end: a row with one gives it, and has its gradient
    local last = sorted:narrow(-1, n, 1)
    sorted = ops.where(last:isnan(), last, sorted)
    local function pick(k) return (sorted:select(-1, k)) end
    if type(q) ~= "table" then
      return (keep(place(pick, checked_q(q), n, how, slack), input, dim, keepdim))
    end
    local list = {}
    for i, one in ipairs(q) do
      list[i] = keep(place(pick, checked_q(one), n, how, slack and slack[i]), input, dim, keepdim)
    end
    return (ops.stack(list, 1))
  end,
}

--- moth.nanmedian(x), moth.nanmedian(x, dim, keepdim) -> values, indices.
composed.nanmedian = define {
  name = "nanmedian",
  doc = "The element in the middle of those that are not NaN, the lower of two; with `dim` that of "
    .. "each slice along it, and its position.",
  examples = "moth.randn(2, 3)  -- domain: distinct\n"
    .. "moth.randn(2, 3), {dim = 2, keepdim = true}  -- domain: distinct",
  outputs = "values, indices",
  args = { { "tensor", "input", "tensor of any shape" }, FIND[1], FIND[2] },
  scoped = true,
  run = function(input, dim, keepdim)
    if dim ~= nil then errors.dim("nanmedian", "dim", dim, math.max(input:dim(), 1)) end
    local x = rows_of(input, dim)
    if dim ~= nil and x:size(-1) == 0 then
      errors.refuse("nanmedian", "input", "elements to choose from are needed", input, "E_SHAPE")
    end
    if x:size(-1) == 0 then
      return (require("moth.autograd.attach").attach(ops.full({}, 0 / 0, input.dtype,
        input.device), input))
    end
    if input.device.type == "cpu" then
      local value, index = median_of(x, -1, false, 0.5, false, true)
      if dim == nil then return value end
      value, index = keep(value, input, dim, keepdim), keep(index, input, dim, keepdim)
      return value, index
    end
    local good = x:isnan():logical_not():sum(-1, { keepdim = true })
    local sorted, order = x:sort { -1, stable = true }
    local at = (good - 1):clamp(0):div(2, { rounding_mode = "floor" }):long() + 1
    local value = sorted:gather(-1, at):squeeze(-1)
    if dim == nil then return value end
    local index = order:gather(-1, at):squeeze(-1)
    value, index = keep(value, input, dim, keepdim), keep(index, input, dim, keepdim)
    return value, index
  end,
}

--- moth.polygamma(n, x), x:polygamma(n).
composed.polygamma = define {
  name = "polygamma",
  doc = "The n-th slope of digamma.",
  examples = "1, moth.rand(2, 3)  -- domain: positive",
  args = { { "int", "n", "from 0 on" }, { "tensor", "input", "tensor of any shape" } },
  run = function(n, input) return (ops.polygamma_of(input, n)) end,
}

--- x:polygamma(n).
composed.polygamma_method = define {
  name = "polygamma",
  doc = "The n-th slope of digamma.",
  examples = "moth.rand(2, 3), 1  -- domain: positive",
  args = { { "tensor", "input", "tensor of any shape" }, { "int", "n", "from 0 on" } },
  run = function(input, n) return (ops.polygamma_of(input, n)) end,
}

-- ---- distances ----

local MANY = 25 -- rows from which the product of matrices is the faster way
local SHORT = 64 -- unless they have no more elements and a kernel takes them
local under_cdist = bind.under "cdist"

-- Does the gradient mode ask for the history of what is made of a and b?
local function recorded(a, b)
  return require("moth.autograd").is_grad_enabled() and (a.requires_grad or b.requires_grad)
end

local function squares(x) return x:square():sum(-1, { keepdim = true }) end

-- Are these sums of squares far from both ends of the range? Only a CPU answers without waiting.
local function ordinary(p, q)
  if p.device.type ~= "cpu" or lib.capture or p:numel() * q:numel() == 0 then return false end
  local sum = p:detach():max():item() + q:detach():max():item()
  return sum > 1e-24 and sum < 1e30
end

-- sqrt(|a|^2 + |b|^2 - 2 a b), with no slope where it is 0. One product adds the three terms: of
-- (-2 a, |a|^2, 1) and (b, 1, |b|^2).
local function euclidean(a, b)
  local most -- the largest element if squares of such would leave the range, by which they stay
  local p, q = squares(a), squares(b)
  if a:numel() > 0 and b:numel() > 0 and not ordinary(p, q) then
    most = ops.maximum(a:detach():abs():max(), b:detach():abs():max())
    local far = most:gt(1e15):logical_and(most:isfinite())
    most = ops.where(far:logical_or(most:lt(1e-15):logical_and(most:gt(0))), most, 1)
    a, b = a / most, b / most
    p, q = squares(a), squares(b)
  end
  local square = ops.cat({ a * -2, p, ops.ones_like(p) }, -1)
    :matmul(ops.cat({ b, ops.ones_like(q), q }, -1):transpose(-1, -2))
  if not recorded(a, b) then
    local y = square:clamp_(0):sqrt_()
    return most and y:mul_(most) or y
  end
  square = square:clamp(0)
  local apart = square:gt(0)
  local y = ops.where(apart, ops.where(apart, square, 1):sqrt(), 0)
  return most and y * most or y
end

local apart = scope.inside(function(a, b, p)
  return ((a:unsqueeze(-2) - b:unsqueeze(-3)):norm(p, -1))
end)

-- The same, a few rows of a at a time where no gradient wants the differences again: all of them
-- are many times as large as a and b.
local function apart_by_parts(a, b, p)
  local grads = recorded(a, b)
  local rows, each = a:size(-2), b:size(-2) * b:size(-1)
  for k = 3, math.max(a:dim(), b:dim()) do
    each = each * math.max(k <= a:dim() and a:size(-k) or 1, k <= b:dim() and b:size(-k) or 1)
  end
  local some = math.max(1, math.floor((a.is_cuda and 2 ^ 26 or 2 ^ 17) / math.max(each, 1)))
  if grads or some >= rows then return (apart(a, b, p)) end
  local parts = {}
  for from = 1, rows, some do
    local part = a:narrow(-2, from, math.min(some, rows - from + 1))
    parts[#parts + 1] = apart(part, b, p)
  end
  return (ops.cat(parts, -2))
end

--- Whether the kernel for distances of all pairs of rows takes x.
function composed.has_kernel(x, p)
  local name = x.dtype.name
  return (p == 1 or p == 2) and (name == "float32" or name == "float64") and x.device.type == "cpu"
end

local function one_kernel(a, b, p)
  local n = a:dim()
  return n == b:dim() and (n == 2 or (n == 3 and a:size(1) == b:size(1))) and a.dtype == b.dtype
    and composed.has_kernel(a, p) and b.device.type == "cpu"
end

-- f(a, b) as it is outside autocast, whose products would leave nothing of small differences.
local function exactly(f, a, b)
  local autocast = require "moth.amp.autocast"
  if not autocast.is_autocast_enabled() then return (f(a, b)) end
  local function wide(x) return x.dtype == require("moth").float64 and x or x:float() end
  return (autocast.autocast(a.device.type, { enabled = false }, f, wide(a), wide(b)))
end

--- moth.cdist(x1, x2, p): x1 (..., P, M), x2 (..., R, M) -> (..., P, R).
composed.cdist = define {
  name = "cdist",
  doc = "The p-norm distances of all pairs of rows of two matrices, or of stacks of them.",
  examples = "moth.randn(3, 2), moth.randn(4, 2)\n"
    .. "moth.randn(2, 3, 2), moth.randn(4, 2), {p = 1}\n"
    .. "moth.randn(3, 2), moth.randn(4, 2), "
    .. "{compute_mode = 'use_mm_for_euclid_dist'}",
  args = {
    { "tensor", "x1", "rows, (..., P, M)" },
    { "tensor", "x2", "rows, (..., R, M)" },
    { "float", "p", "the power of the norm", default = 2 },
    { "enum", "compute_mode", "whether p = 2 goes through a product of matrices, which is faster "
      .. "and less exact", choices = { "use_mm_for_euclid_dist_if_necessary",
      "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist" } },
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
      and (x1:size(-2) > MANY or x2:size(-2) > MANY))
    local short = x1:size(-1) <= SHORT and mode ~= "use_mm_for_euclid_dist"
    if (short or not (p == 2 and product)) and one_kernel(x1, x2, p) then
      return (under_cdist.distances(x1, x2, p))
    end
    if p == 2 and product then return (exactly(euclidean, x1, x2)) end
    if x1:size(-1) == 0 then p = 2 end -- nothing is far from nothing by any norm
    return (apart_by_parts(x1, x2, p))
  end,
}

-- ---- from nothing ----

local WHERE = {
  { "dtype", "dtype", "element type; the default one when absent", optional = true },
  { "device", "device", "where the elements live", optional = true },
  { "bool", "requires_grad", "gather gradients for it", default = false },
}

--- moth.logspace(start, stop, steps, base): from base^start to base^stop.
composed.logspace = define {
  name = "logspace",
  doc = "Powers of `base` whose exponents are evenly spaced from `start` to `stop`.",
  examples = "0, 2, 3\n1, 4, 4, {base = 2, dtype = moth.float64, requires_grad = true}",
  args = {
    { "float", "start", "first exponent", single = true },
    { "float", "stop", "last exponent", single = true },
    { "int", "steps", "how many values" },
    { "float", "base", "what is raised to them", default = 10 },
    WHERE[1], WHERE[2], WHERE[3],
  },
  scoped = true,
  run = function(start, stop, steps, base, dtype, device, requires_grad)
    local y = ops.pow(base, ops.linspace(start, stop, steps, require("moth").float64, device))
    y = y:to(dtype or require("moth").get_default_dtype())
    if requires_grad then y.requires_grad = true end
    return y
  end,
}

local function triangle(name, upper, which)
  local own = bind.under(name)
  composed[name] = define {
    name = name,
    doc = "The positions of the " .. which .. " triangle of a matrix: rows in the first row of "
      .. "the result, columns in the second.",
    examples = "3, 3\n2, 4, {offset = 1}",
    outputs = "positions",
    args = {
      { "int", "row", "rows of the matrix" },
      { "int", "col", "columns" },
      { "int", "offset", "which diagonal bounds it: above the main one if positive", default = 0 },
      { "dtype", "dtype", "element type; i64 when absent", optional = true },
      { "device", "device", "where the elements live", optional = true },
    },
    scoped = true,
    run = function(row, col, offset, dtype, device)
      local y = own.triangle_indices(row, col, offset, upper, dtype, "cpu")
      return (y:to(device or require("moth.base.settings").get_default_device()))
    end,
  }
end

triangle("tril_indices", false, "lower")
triangle("triu_indices", true, "upper")

-- One bound of clamp, as an op of its own; also in place.
local function bounded(name, bound, beyond, inplace)
  local own, clamp = bind.under(name), inplace and "clamp_" or "clamp"
  return define {
    name = name,
    doc = ("Each element, or the bound where it is %s it%s."):format(beyond,
      inplace and ", in place" or ""),
    examples = "moth.randn(2, 3), 0.5  -- domain: distinct\n"
      .. "moth.randn(2, 3), {" .. bound .. " = moth.randn(3)}  -- domain: distinct",
    args = {
      { "tensor", "input", "tensor of any shape" },
      { "tensor", bound, "the bound, a number or a tensor", numbers = true },
    },
    run = bound == "min" and function(input, min)
      return (own[clamp](input, min))
    end or function(input, max)
      return (own[clamp](input, nil, max))
    end,
  }
end

--- x:clamp_min(min), x:clamp_max(max) and in place: clamp with one bound, which is needed.
composed.clamp_min = bounded("clamp_min", "min", "below")
composed.clamp_max = bounded("clamp_max", "max", "above")
composed.clamp_min_ = bounded("clamp_min_", "min", "below", true)
composed.clamp_max_ = bounded("clamp_max_", "max", "above", true)

-- ---- methods ----

--- x:where(condition, other): x where the condition holds.
composed.where_method = define {
  name = "where",
  doc = "The elements of the input where a condition holds, of another tensor elsewhere.",
  examples = "moth.randn(2), moth.tensor{true, false}, 0",
  args = {
    { "tensor", "input", "values where the condition holds" },
    { "tensor", "condition", "a bool tensor" },
    { "tensor", "other", "values elsewhere; all three are broadcast", numbers = true },
  },
  run = function(input, condition, other)
    return (bind.ops.where(condition, input, other))
  end,
}

local unfold = bind.under "unfold"

--- x:unfold(dimension, size, step): a view. (F.unfold is something else: images as columns.)
composed.unfold_method = define {
  name = "unfold",
  doc = "Windows of a dimension, as a view: their positions become the last dimension.",
  examples = "moth.randn(2, 7), 2, 3, 2\nmoth.randn(4, 3), 1, 2, 1",
  args = {
    { "tensor", "input", "tensor to look at" },
    { "dim", "dimension", "dimension to cut into windows" },
    { "int", "size", "positions in a window" },
    { "int", "step", "positions from one window to the next" },
  },
  run = function(input, dimension, size, step)
    return (unfold.unfold_dim(input, dimension, size, step))
  end,
}

--- x:fill_diagonal_(value, wrap): writes the main diagonal. @return x
composed.fill_diagonal_ = define {
  name = "fill_diagonal_",
  doc = "Writes one value along the main diagonal.",
  examples = "moth.zeros(3, 3), 1\nmoth.zeros(7, 3), 1, {wrap = true}",
  args = {
    { "tensor", "input", "a matrix, or a tensor of equal sizes" },
    { "scalar", "fill_value", "the value" },
    { "bool", "wrap", "begin anew, after a gap of one row, below the square part of a tall "
      .. "matrix?", default = false },
  },
  run = function(input, value, wrap)
    local ndim, least, step = input:dim(), math.huge, 0
    if ndim < 2 then
      errors.refuse("fill_diagonal_", "input", "at least 2 dimensions are needed", input, "E_SHAPE")
    end
    for d = 1, ndim do
      local n = input:size(d)
      if ndim > 2 and n ~= input:size(1) then
        errors.refuse("fill_diagonal_", "input", "beyond matrices all sizes are the same", input,
          "E_SHAPE")
      end
      least, step = math.min(least, n), step + input:stride(d)
    end
    if least == 0 then return input end
    if ndim == 2 then
      local rows, columns = input:size(1), input:size(2)
      local square = wrap and columns + 1 or rows
      for first = 1, rows, square do
        local part = input:narrow(1, first, math.min(square, rows - first + 1))
        part:diagonal():fill_(value)
      end
    else
      input:as_strided({ least }, { step }, input:storage_offset()):fill_(value)
    end
    return input
  end,
}

local GENERATOR = { "generator", "generator", "source of the numbers; the default one when absent",
                    optional = true }

local function need_spread(fname, name, value)
  if value > 0 then return end
  errors.argument(fname, name, "a number above 0 is needed, got " .. value, "E_DOMAIN")
end

-- Writes what fn makes of an unrecorded tensor like x, so that x forgets its history at once.
local function overwrite(x, fn)
  local drawn = require("moth.autograd").no_grad(function() return fn(ops.empty_like(x)) end)
  return (ops.copy_(x, drawn))
end

--- x:log_normal_(mean, std): exp of numbers drawn from a normal distribution. @return x
composed.log_normal_ = define {
  name = "log_normal_",
  doc = "Fills with numbers whose logarithms are normally distributed.",
  examples = "moth.zeros(3)\nmoth.zeros(3), {mean = 0, std = 0.5, generator = moth.Generator()}",
  args = {
    { "tensor", "input", "float tensor to fill" },
    { "float", "mean", "mean of the logarithms", default = 1 },
    { "float", "std", "their standard deviation", default = 2 },
    GENERATOR,
  },
  run = function(input, mean, std, generator)
    need_spread("log_normal_", "std", std)
    return (overwrite(input, function(y) return y:normal_(mean, std, generator):exp_() end))
  end,
}

--- x:cauchy_(median, sigma): numbers drawn from a Cauchy distribution. @return x
composed.cauchy_ = define {
  name = "cauchy_",
  doc = "Fills with numbers drawn from a Cauchy distribution.",
  examples = "moth.zeros(3)\nmoth.zeros(3), {median = 1, sigma = 0.5, "
    .. "generator = moth.Generator()}",
  args = {
    { "tensor", "input", "float tensor to fill" },
    { "float", "median", "the middle", default = 0 },
    { "float", "sigma", "half of the width at half height", default = 1 },
    GENERATOR,
  },
  run = function(input, median, sigma, generator)
    need_spread("cauchy_", "sigma", sigma)
    return (overwrite(input, function(y)
      return y:uniform_(-math.pi / 2, math.pi / 2, generator):tan_():mul_(sigma):add_(median)
    end))
  end,
}

return composed
