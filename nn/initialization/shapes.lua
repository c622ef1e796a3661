--- shapes.lua -- fillers of nn.init with shape rules: trunc_normal_, eye_, dirac_, orthogonal_,
-- sparse_.

local errors = require "moth.error"
local fillers = require "moth.nn.initialization.fillers"

local function moth() return require "moth" end

local TENSOR, GENERATOR = fillers.TENSOR, fillers.GENERATOR

local function need_dims(fname, x, least, most)
  local n = x:dim()
  if n < least or n > most then
    errors.argument(fname, "tensor", ("%s dimensions are needed, got %s"):format(
      least == most and tostring(least) or most == math.huge and least .. " or more"
        or least .. " to " .. most, errors.describe(x)), "E_SHAPE")
  end
end

-- ---- trunc_normal_ ----

-- Returns the probability of [a, b] under a normal distribution.
local function mass(mean, std, a, b)
  local root = std * math.sqrt(2)
  local ends = moth().erf(moth().tensor({(a - mean) / root, (b - mean) / root},
    {dtype = moth().float64}))
  return ((ends[2] - ends[1]) / 2):item()
end

-- Redraws the elements for which `outside` is true, until no such element remains.
local function redraw(x, draw, outside)
  draw(x)
  local mask = outside(x)
  while mask:any():item() do
    x:copy_(moth().where(mask, draw(moth().empty_like(x)), x))
    mask = outside(x, mask)
  end
end

-- Fills x by rejection sampling from a uniform distribution; for an interval [a, b] of low
-- probability.
local function by_density(x, mean, std, a, b, generator)
  local top = math.max(a, math.min(mean, b))
  local log_top = -0.5 * ((top - mean) / std) ^ 2
  redraw(x, function(y) return (y:uniform_(a, b, generator)) end, function(y, pending)
    local log_density = ((y - mean) / std):square() * -0.5 - log_top
    local refused = moth().empty_like(y):uniform_(0, 1, generator):log():gt(log_density)
    return pending and refused:logical_and(pending) or refused
  end)
end

local function trunc_normal(x, mean, std, a, b, generator)
  if not (a < b) then
    errors.argument("trunc_normal_", "b", ("a number above a = %g is needed, got %g"):format(
      a, b), "E_DOMAIN")
  elseif not (std > 0) then
    errors.argument("trunc_normal_", "std", ("a number above 0 is needed, got %g"):format(std),
      "E_DOMAIN")
  end
  if mean < a - 2 * std or mean > b + 2 * std then
    moth().warn("trunc_normal_: the mean is more than 2 std outside [a, b]")
  end
  if mass(mean, std, a, b) <= 0.3 then return by_density(x, mean, std, a, b, generator) end
  redraw(x, function(y) return (y:normal_(mean, std, generator)) end, function(y)
    return y:lt(a):logical_or(y:gt(b))
  end)
end

-- ---- orthogonal_ ----

local PANEL = 32

-- Orthonormalizes the rows of q (at most as many rows as columns) by block Gram-Schmidt: panels
-- against all rows before them by matrix products, rows within a panel one by one; each twice,
-- which is enough (Giraud et al., 2005). The result is the Q of a QR factorization whose R has a
-- positive diagonal, so that Q is uniformly distributed if q was normal (Mezzadri, 2007).
local function orthonormal_rows(q)
  local n = q:size(1)
  for first = 1, n, PANEL do
    local panel = q:narrow(1, first, math.min(PANEL, n + 1 - first))
    if first > 1 then
      local before = q:narrow(1, 1, first - 1)
      for _ = 1, 2 do panel:sub_(panel:matmul(before:t()):matmul(before)) end
    end
    for i = 1, panel:size(1) do
      local row = panel:narrow(1, i, 1)
      if i > 1 then
        local before = panel:narrow(1, 1, i - 1)
        for _ = 1, 2 do row:sub_(row:matmul(before:t()):matmul(before)) end
      end
      row:div_(row:square():sum():sqrt())
    end
  end
  return q
end

local function orthogonal(x, gain, generator)
  need_dims("orthogonal_", x, 2, math.huge)
  if x:numel() == 0 then return end
  local rows = x:size(1)
  local columns = x:numel() / rows
  local dtype = x.dtype == moth().float64 and x.dtype or moth().float32
  local flat = moth().empty({math.min(rows, columns), math.max(rows, columns)}, {dtype = dtype})
  local q = orthonormal_rows(flat:normal_(0, 1, generator))
  if rows > columns then q = q:t() end
  x:copy_((q * gain):reshape(x.shape))
end

-- ---- eye_, dirac_, sparse_ ----

local function eye(x)
  need_dims("eye_", x, 2, 2)
  x:zero_()
  x:diagonal():fill_(1)
end

local function dirac(x, groups)
  need_dims("dirac_", x, 3, 5)
  if groups < 1 or x:size(1) % groups ~= 0 then
    errors.argument("dirac_", "groups", ("%d does not divide the first size of %s"):format(groups,
      errors.describe(x)), "E_SHAPE")
  end
  local outputs = x:size(1) / groups
  x:zero_()
  local middle = x
  for d = x:dim(), 3, -1 do middle = middle:select(d, math.floor(x:size(d) / 2) + 1) end
  for g = 1, groups do
    middle:narrow(1, (g - 1) * outputs + 1, outputs):diagonal():fill_(1)
  end
end

local function sparse(x, sparsity, std, generator)
  need_dims("sparse_", x, 2, 2)
  if not (sparsity >= 0 and sparsity <= 1) then
    errors.argument("sparse_", "sparsity", ("a share from 0 to 1 is needed, got %g"):format(
      sparsity), "E_DOMAIN")
  end
  local rows = x:size(1)
  local zeros = math.ceil(sparsity * rows)
  x:normal_(0, std, generator)
  if zeros == 0 then return end
  for column = 1, x:size(2) do
    x[{moth().randperm(rows, generator):narrow(1, 1, zeros), column}] = 0
  end
end

-- Runs a filler under no_grad and returns the tensor.
local function filling(fn)
  return function(x, ...)
    moth().no_grad(fn, x, ...)
    return x
  end
end

local found = {}

fillers.add(found, {
  {
    name = "trunc_normal_",
    doc = "Fills with a normal distribution truncated to [a, b].",
    examples = "moth.empty(3, 5)\nmoth.empty(3, 5), 1, 2, 0.5, 3",
    args = {TENSOR, {"float", "mean", "mean, before truncation", default = 0},
            {"float", "std", "standard deviation, before truncation", default = 1},
            {"float", "a", "the minimum", default = -2},
            {"float", "b", "the maximum", default = 2}, GENERATOR},
    run = filling(trunc_normal),
  },
  {
    name = "eye_", doc = "Fills a matrix with the identity; it may be rectangular.",
    examples = "moth.empty(3, 5)", args = {TENSOR}, run = filling(eye),
  },
  {
    name = "dirac_",
    doc = "Fills the weight of a convolution with the Dirac delta, which copies channels.",
    examples = "moth.empty(3, 5, 3)\nmoth.empty(6, 2, 3, 3), 2",
    args = {TENSOR, {"int", "groups", "groups of the convolution", default = 1}},
    run = filling(dirac),
  },
  {
    name = "orthogonal_",
    doc = "Fills with a uniformly distributed (semi-)orthogonal matrix; further dims are flattened "
      .. "into the second (Saxe et al., 2014).",
    examples = "moth.empty(3, 5)\nmoth.empty(5, 3), 2",
    args = {TENSOR, {"float", "gain", "factor of the matrix", default = 1}, GENERATOR},
    run = filling(orthogonal),
  },
  {
    name = "sparse_",
    doc = "Fills a matrix normally, with a given share of zeros in each column (Martens, 2010).",
    examples = "moth.empty(6, 5), 0.5\nmoth.empty(6, 5), {sparsity = 0.1, std = 1}",
    args = {TENSOR, {"float", "sparsity", "share of each column that is 0"},
            {"float", "std", "standard deviation of the other elements", default = 0.01},
            GENERATOR},
    run = filling(sparse),
  },
})

return found
