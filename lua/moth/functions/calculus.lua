--- calculus.lua -- integrals and derivatives of sampled values: trapezoid, cumulative_trapezoid,
-- gradient; and logcumsumexp.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local scope = require "moth.tensor.scope"

local ops = bind.ops
local istensor = lib.istensor
local calculus = {}

local function refuse(fname, arg, wanted, got, code)
  errors.refuse(fname, arg, wanted, got, code or "E_SHAPE")
end

-- Calls fn with x converted from a half type to float32, and converts the result back.
local function widely(x, fn)
  local dtype = x.dtype
  if not x:is_floating_point() then return (fn(x:to(require("moth").get_default_dtype()))) end
  if x:element_size() > 2 then return (fn(x)) end
  return (fn(x:float()):to(dtype))
end

local function mean_of_neighbours(y, dim)
  local n = y:size(dim)
  return (y:narrow(dim, 2, n - 1) + y:narrow(dim, 1, n - 1)) * 0.5
end

--- moth.trapezoid(y, x, dx, dim): the area under y.
calculus.trapezoid = define {
  name = "trapezoid",
  doc = "The integral of values along a dimension, by the trapezoidal rule.",
  examples = "moth.randn(2, 4)\nmoth.randn(2, 4), moth.randn(4)\n"
    .. "moth.randn(4, 2), {dx = 0.5, dim = 1}",
  args = {{"tensor", "y", "values"},
           {"tensor", "x", "positions of the values: a vector, or y's shape", optional = true},
           {"float", "dx", "distance between values, without x", default = 1},
           {"dim", "dim", "dimension of the vectors", default = -1}},
  scoped = true,
  run = function(y, x, dx, dim)
    dim = errors.dim("trapezoid", "dim", dim, math.max(y:dim(), 1))
    if y:size(dim) == 0 then return (require("moth.autograd.attach").attach(y:sum(dim), x)) end
    if x == nil then
      return ((y:sum(dim) - (y:select(dim, 1) + y:select(dim, -1)) * 0.5) * dx)
    end
    if x:dim() == 1 and y:dim() > 1 then
      x = x:reshape(lib.filled(y:dim(), 1, dim, x:size(1)))
    end
    if x:dim() < dim or x:size(dim) ~= y:size(dim) then
      refuse("trapezoid", "x", ("%d positions are needed"):format(y:size(dim)), x)
    end
    return ((mean_of_neighbours(y, dim) * x:diff(1, dim)):sum(dim))
  end,
}

-- The shape {1, ..., n, ..., 1} of a vector along one of ndim dimensions.
local function along(x, dim, ndim)
  return (x:reshape(lib.filled(ndim, 1, dim, x:size(1))))
end

--- moth.cumulative_trapezoid(y, x, dx, dim): the area under y up to each value, except the first.
calculus.cumulative_trapezoid = define {
  name = "cumulative_trapezoid",
  doc = "The integral of values along a dimension up to each value, except the first, by the "
    .. "trapezoidal rule.",
  examples = "moth.randn(2, 4)\nmoth.randn(2, 4), moth.randn(4)\n"
    .. "moth.randn(4, 2), {dx = 0.5, dim = 1}",
  args = {{"tensor", "y", "values"},
           {"tensor", "x", "positions of the values: a vector, or y's shape", optional = true},
           {"float", "dx", "distance between values, without x", default = 1},
           {"dim", "dim", "dimension of the vectors", default = -1}},
  scoped = true,
  run = function(y, x, dx, dim)
    local n = y:size(dim)
    if n == 0 then return (require("moth.autograd.attach").attach(y:clone(), x)) end
    local heights = (y:narrow(dim, 2, n - 1) + y:narrow(dim, 1, n - 1)) * 0.5
    if x == nil then return (heights:cumsum(dim) * dx) end
    if dim < 0 then dim = dim + y:dim() + 1 end
    if x:dim() == 1 and y:dim() > 1 then x = along(x, dim, y:dim()) end
    if x:dim() ~= y:dim() or x:size(dim) ~= n then
      refuse("cumulative_trapezoid", "x", ("%d positions are needed"):format(n), x)
    end
    return ((heights * x:diff(1, dim)):cumsum(dim))
  end,
}

-- The derivatives of x along dim, for values at the positions `at` (a vector), or `step` apart.
local function derivative(x, dim, step, at, edge_order)
  local n = x:size(dim)
  local function part(first, count) return (x:narrow(dim, first, count)) end
  local function gap(first, count)
    if at == nil then return step end
    return (along(at:narrow(1, first, count), dim, x:dim()))
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
  if edge_order == 2 then -- the derivative of the parabola through three values
    local l, r, k, m = gap(1, 1), gap(2, 1), gap(n - 2, 1), gap(n - 1, 1)
    first = first + (first - rise(2)) * l / (l + r)
    last = last + (last - rise(n - 2)) * m / (k + m)
  end
  return (ops.cat({first, inside, last}, dim))
end

--- moth.gradient(x, spacing, dim, edge_order): a list of the derivatives along each dimension.
calculus.gradient = define {
  name = "gradient",
  doc = "The derivatives of values on a grid along each dimension: central differences, exact for "
    .. "parabolas, and one-sided differences at the edges.",
  examples = "moth.randn(4, 5)\n"
    .. "moth.randn(4, 5), {spacing = 0.5, dim = 2, edge_order = 2}\n"
    .. "moth.randn(3, 3), {spacing = {moth.tensor{0, 1, 3}, moth.tensor{0, 2, 3}}}",
  outputs = "list",
  args = {{"tensor", "input", "values"},
           {"any", "spacing", "distance between values, a number or a list for the dimensions; "
             .. "or a "
             .. "list of vectors of positions", default = 1},
           {"dims", "dim", "dimensions; default: all", optional = true},
           {"int", "edge_order", "1, or 2: use three values at the edges", default = 1}},
  run = function(input, spacing, dim, edge_order)
    local n, list = input:dim(), {}
    if edge_order ~= 1 and edge_order ~= 2 then
      refuse("gradient", "edge_order", "1 or 2 is needed", edge_order, "E_DOMAIN")
    end
    if type(dim) == "number" then dim = {dim} end
    if dim == nil then
      dim = {}
      for d = 1, n do dim[d] = d end
    end
    if type(spacing) ~= "table" then spacing = lib.filled(#dim, spacing) end
    if #spacing ~= #dim then
      refuse("gradient", "spacing", ("%d are needed, one for each dimension"):format(#dim),
        #spacing, "E_ARG")
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
      list[i] = scope.inside(derivative)(input, d, at, istensor(at) and at or nil, edge_order)
    end
    return list
  end,
}

-- For one element or none the result is the input: cumsum returns a copy and checks `dim`.
local checked_copy = bind.as("cumsum", "logcumsumexp")

--- x:logcumsumexp(dim): the logarithms of running sums of exp(x). Let m[i] be the maximum up to
-- x[i], and s[i] the sum of exp(x - m[i]) up to x[i]. Then s[i] = exp(x[i] - m[i]) + exp(m[i - 1] -
-- m[i]) s[i - 1], and the result is m[i] + log s[i].
calculus.logcumsumexp = define {
  name = "logcumsumexp",
  doc = "The logarithm of the running sum of exp(x) along a dimension, computed without overflow.",
  examples = "moth.randn(2, 3), 2\nmoth.randn(3, 2), 1",
  args = {{"tensor", "input", "float tensor of any shape"},
           {"dim", "dim", "dimension of the running sum"}},
  scoped = true,
  run = function(input, dim)
    if not input:is_floating_point() then
      refuse("logcumsumexp", "input", "a float tensor is needed", input, "E_DTYPE")
    end
    if input:numel() == 0 or input:dim() == 0 then return (checked_copy(input, dim)) end
    return (widely(input, function(x)
      local largest = require("moth").finfo(x.dtype).max
      local most = x:detach():cummax(dim):clamp(-largest, largest) -- finite, for differences
      local n = x:size(dim)
      local before = most:narrow(dim, 1, n - 1)
      before = ops.cat({most:narrow(dim, 1, 1), before}, dim)
      return most + ops.recur((x - most):exp(), (before - most):exp(), dim, false):log()
    end))
  end,
}

return calculus
