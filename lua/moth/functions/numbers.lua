--- numbers.lua -- functions of numbers made of a few ops each: frexp, ldexp, mvlgamma, renorm;
-- isreal, rsub; logcumsumexp, gradient, cumulative_trapezoid; binomial.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local scope = require "moth.tensor.scope"

local ops, istensor = bind.ops, lib.istensor
local numbers = {}

local function refuse(fname, arg, wanted, got, code)
  errors.refuse(fname, arg, wanted, got, code or "E_SHAPE")
end

-- What half types are computed in, and back.
local function widely(x, fn)
  local dtype = x.dtype
  if not x:is_floating_point() then return (fn(x:to(require("moth").get_default_dtype()))) end
  if x:element_size() > 2 then return (fn(x)) end
  return (fn(x:float()):to(dtype))
end

local INPUT = { "tensor", "input", "tensor of any shape" }
local DIM = { "dim", "dim", "dimension to go along" }

-- ---- of single elements ----

local subtract = bind.as("sub", "rsub", { input = "other", other = "input" })

--- moth.ldexp(x, n): x 2^n.
numbers.ldexp = define {
  name = "ldexp",
  doc = "The input times 2 to the power of another tensor.",
  examples = "moth.randn(2, 3), moth.tensor{1LL, -2LL, 3LL}",
  args = { INPUT, { "tensor", "other", "exponents, broadcast with the input" } },
  scoped = true,
  run = function(input, other)
    return input * ops.pow(2, other:is_floating_point() and other
      or other:to(input:is_floating_point() and input.dtype or require("moth").get_default_dtype()))
  end,
}

--- moth.isreal(x): all true, for there are no complex dtypes.
numbers.isreal = define {
  name = "isreal",
  doc = "Whether each element is real, which all are.",
  examples = "moth.randn(2, 3)",
  args = { INPUT },
  run = function(input) return (ops.ones_like(input, require("moth").bool)) end,
}

--- moth.rsub(x, other, alpha): other - alpha x.
numbers.rsub = define {
  name = "rsub",
  doc = "The other tensor, or number, minus the input: other - alpha * input.",
  examples = "moth.randn(2, 3), 1\nmoth.randn(2, 3), moth.randn(3), {alpha = 2}",
  args = { INPUT, { "tensor", "other", "what it is subtracted from", numbers = true },
           { "scalar", "alpha", "factor of the input", default = 1 } },
  run = function(input, other, alpha)
    if lib.istensor(other) then return (subtract(other, input, alpha)) end
    return (other - (alpha == 1 and input or input * alpha))
  end,
}

-- x 2^n in two steps, for neither 2^n nor its inverse may be a number.
local function scaled(x, n)
  local half = (n * 0.5):floor()
  return x * half:to(x.dtype):exp2() * (n - half):to(x.dtype):exp2()
end

local frexp_of = bind.as("frexp_of", "frexp")

--- moth.frexp(x) -> mantissa, exponent: x is mantissa 2^exponent.
numbers.frexp = define {
  name = "frexp",
  doc = "Parts whose product mantissa * 2^exponent is the input, the mantissa being from 1/2 up to "
    .. "1, or 0; the exponent is int32. What is not finite is its own mantissa.",
  examples = "moth.randn(2, 3)  -- domain: positive",
  outputs = "mantissa, exponent",
  args = { { "tensor", "input", "float tensor of any shape" } },
  scoped = true,
  run = function(input)
    if not input:is_floating_point() then
      refuse("frexp", "input", "a float tensor is needed", input, "E_DTYPE")
    end
    local trace = package.loaded["moth.kernel.trace"]
    if input.device.type == "cpu" and not (trace and trace.reading) then
      local mantissa, exponent = frexp_of(input)
      return mantissa, exponent
    end
    local x = input:detach()
    if x:element_size() < 4 then x = x:float() end
    local plain = x:isfinite():logical_and(x:ne(0))
    local n = ops.where(plain, x:abs():log2():floor() + 1, 0)
    local m = scaled(x, -n):abs() -- rounding of log2 may have gone one too far
    n = n + ops.where(plain, m:ge(1):to(n.dtype) - m:lt(0.5):to(n.dtype), 0)
    return (scaled(input, (-n):to(input.dtype))), (n:to(require("moth").int32))
  end,
}

--- moth.mvlgamma(x, p), moth.special.multigammaln(x, p): the logarithm of the multivariate gamma
-- function.
for name in ("mvlgamma multigammaln"):gmatch "%S+" do
  numbers[name] = define {
    name = name,
    doc = "The logarithm of the multivariate gamma function of dimension p.",
    examples = "moth.rand(2, 3) + 2, 3  -- domain: positive\nmoth.rand(3), 1  -- domain: positive",
    args = { { "tensor", "input", "numbers above (p - 1) / 2" },
             { "int", "p", "from 1 on", bounds = { 1, 1e6 } } },
    scoped = true,
    run = function(input, p)
      local y = ops.lgamma(input)
      for k = 1, p - 1 do y = y + ops.lgamma(input - k / 2) end
      return y + p * (p - 1) / 4 * math.log(math.pi)
    end,
  }
end

local binomial_of = bind.as("binomial_of", "binomial")

--- moth.binomial(count, prob, generator): how many of count trials succeed.
numbers.binomial = define {
  name = "binomial",
  doc = "Numbers drawn from binomial distributions: how many of `count` trials succeed, each with "
    .. "the chance `prob`.",
  examples = "moth.full({2, 3}, 8), moth.rand(3)  -- domain: prob\n"
    .. "moth.full({2}, 8), moth.rand(2), {generator = moth.Generator()}  -- domain: prob",
  args = { { "tensor", "count", "how many trials, a float tensor" },
           { "tensor", "prob", "chance of each to succeed, broadcast with it" },
           { "generator", "generator", "source of the numbers; the default one when absent",
             optional = true } },
  scoped = true,
  run = function(count, prob, generator)
    local both = require("moth.functions.results").broadcast_tensors(count, prob)
    return (binomial_of(both[1], both[2], generator))
  end,
}

-- ---- along a dimension ----

--- moth.renorm(x, p, dim, maxnorm): slices along dim that are longer are shortened.
local function renormed(name)
  return define {
    name = name,
    doc = "The tensor with each slice along `dim` whose p-norm is above `maxnorm` scaled down to it"
      .. (name == "renorm_" and ", in place." or "."),
    examples = "moth.randn(2, 3), 2, 1, 0.5",
    args = { INPUT, { "float", "p", "the power of the norm, above 0" },
             { "dim", "dim", "which slices: its positions" },
             { "float", "maxnorm", "the largest norm that is left alone" } },
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
numbers.renorm, numbers.renorm_ = renormed "renorm", renormed "renorm_"

-- cumsum of one element or none is the input, and checks `dim`.
local checked_copy = bind.as("cumsum", "logcumsumexp")

--- x:logcumsumexp(dim): the logarithms of running sums of exp(x). With the largest so far, m, taken
-- out, they follow s[i] = exp(x[i] - m[i]) + exp(m[i - 1] - m[i]) s[i - 1].
numbers.logcumsumexp = define {
  name = "logcumsumexp",
  doc = "The logarithm of the sum of exp(x) of each element and all before it along a dimension, "
    .. "without overflow.",
  examples = "moth.randn(2, 3), 2\nmoth.randn(3, 2), 1",
  args = { { "tensor", "input", "float tensor of any shape" }, DIM },
  scoped = true,
  run = function(input, dim)
    if not input:is_floating_point() then
      refuse("logcumsumexp", "input", "a float tensor is needed", input, "E_DTYPE")
    end
    if input:numel() == 0 or input:dim() == 0 then return (checked_copy(input, dim)) end
    return (widely(input, function(x)
      local largest = require("moth").finfo(x.dtype).max
      local most = x:detach():cummax(dim):clamp(-largest, largest) -- infinities have no difference
      local n = x:size(dim)
      local before = most:narrow(dim, 1, n - 1)
      before = ops.cat({ most:narrow(dim, 1, 1), before }, dim)
      return most + ops.recur((x - most):exp(), (before - most):exp(), dim, false):log()
    end))
  end,
}

-- The shape {1, ..., n, ..., 1} of what lies along one of ndim dimensions.
local function lies_along(x, dim, ndim)
  return (x:reshape(lib.filled(ndim, 1, dim, x:size(1))))
end

--- moth.cumulative_trapezoid(y, x, dx, dim): the area under y up to each value but the first.
numbers.cumulative_trapezoid = define {
  name = "cumulative_trapezoid",
  doc = "The area under values along a dimension up to each of them but the first, by straight "
    .. "lines between neighbours.",
  examples = "moth.randn(2, 4)\nmoth.randn(2, 4), moth.randn(4)\n"
    .. "moth.randn(4, 2), {dx = 0.5, dim = 1}",
  args = { { "tensor", "y", "values" },
           { "tensor", "x", "where they are: a vector, or of y's shape", optional = true },
           { "float", "dx", "distance of neighbours, without x", default = 1 },
           { "dim", "dim", "dimension along which they lie", default = -1 } },
  scoped = true,
  run = function(y, x, dx, dim)
    local n = y:size(dim)
    if n == 0 then return (require("moth.autograd.attach").attach(y:clone(), x)) end
    local heights = (y:narrow(dim, 2, n - 1) + y:narrow(dim, 1, n - 1)) * 0.5
    if x == nil then return (heights:cumsum(dim) * dx) end
    if dim < 0 then dim = dim + y:dim() + 1 end
    if x:dim() == 1 and y:dim() > 1 then x = lies_along(x, dim, y:dim()) end
    if x:dim() ~= y:dim() or x:size(dim) ~= n then
      refuse("cumulative_trapezoid", "x", ("%d of them are needed"):format(n), x)
    end
    return ((heights * x:diff(1, dim)):cumsum(dim))
  end,
}

-- The slopes of x along dim at the places `at`, a vector; or at distance `step`.
local function slope(x, dim, step, at, edge_order)
  local n = x:size(dim)
  local function part(first, count) return (x:narrow(dim, first, count)) end
  local function gap(first, count)
    if at == nil then return step end
    return (lies_along(at:narrow(1, first, count), dim, x:dim()))
  end
  local function rise(first) return (part(first + 1, 1) - part(first, 1)) / gap(first, 1) end
  local inside
  if at == nil then
    inside = (part(3, n - 2) - part(1, n - 2)) / (2 * step)
  else
    at = at:diff()
    local left, right = gap(1, n - 2), gap(2, n - 2)
    local steep = (part(2, n - 2) - part(1, n - 2)) / left
    local after = (part(3, n - 2) - part(2, n - 2)) / right
    inside = (steep * right + after * left) / (left + right)
  end
  local first, last = rise(1), rise(n - 1)
  if edge_order == 2 then -- a parabola through three
    local l, r, k, m = gap(1, 1), gap(2, 1), gap(n - 2, 1), gap(n - 1, 1)
    first = first + (first - rise(2)) * l / (l + r)
    last = last + (last - rise(n - 2)) * m / (k + m)
  end
  return (ops.cat({ first, inside, last }, dim))
end

--- moth.gradient(x, spacing, dim, edge_order): a list of the slopes along each dimension.
numbers.gradient = define {
  name = "gradient",
  doc = "The slopes of values that lie on a grid, along each of the dimensions: from both "
    .. "neighbours, exactly for parabolas, and at the edges from one side.",
  examples = "moth.randn(4, 5)\n"
    .. "moth.randn(4, 5), {spacing = 0.5, dim = 2, edge_order = 2}\n"
    .. "moth.randn(3, 3), {spacing = {moth.tensor{0, 1, 3}, moth.tensor{0, 2, 3}}}",
  outputs = "list",
  args = { { "tensor", "input", "values" },
           { "any", "spacing", "distance of neighbours, a number or one for each dimension; or a "
             .. "list of vectors: their places", default = 1 },
           { "dims", "dim", "which dimensions; all of them when absent", optional = true },
           { "int", "edge_order", "1, or 2: edges from three values", default = 1 } },
  run = function(input, spacing, dim, edge_order)
    local n, list = input:dim(), {}
    if edge_order ~= 1 and edge_order ~= 2 then
      refuse("gradient", "edge_order", "1 or 2 is needed", edge_order, "E_DOMAIN")
    end
    if type(dim) == "number" then dim = { dim } end
    if dim == nil then
      dim = {}
      for d = 1, n do dim[d] = d end
    end
    if type(spacing) ~= "table" then spacing = lib.filled(#dim, spacing) end
    if #spacing ~= #dim then
      refuse("gradient", "spacing", ("%d of them are needed"):format(#dim), #spacing, "E_ARG")
    end
    local seen = {}
    for i, d in ipairs(dim) do
      d = errors.dim("gradient", "dim", d, n)
      if seen[d] then
        errors.argument("gradient", "dim", ("dimension %d is named twice"):format(d), "E_ARG")
      end
      seen[d] = true
      local at = spacing[i]
      if input:size(d) < edge_order + 1 then
        refuse("gradient", "input", ("at least %d values along dimension %d are needed"):format(
          edge_order + 1, d), input)
      end
      if istensor(at) and (at:dim() ~= 1 or at:size(1) ~= input:size(d)) then
        refuse("gradient", "spacing", ("(%d) is needed for dimension %d"):format(input:size(d), d),
          at)
      elseif not istensor(at) and type(at) ~= "number" then
        refuse("gradient", "spacing", "numbers or vectors are needed", at, "E_TYPE")
      end
      list[i] = scope.inside(slope)(input, d, at, istensor(at) and at or nil, edge_order)
    end
    return list
  end,
}

return numbers
