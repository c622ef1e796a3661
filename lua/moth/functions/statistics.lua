--- statistics.lua -- spread: std, var, std_mean, var_mean; frequency: mode, nanquantile, histogram;
-- a few large parts of a matrix by random projections: svd_lowrank, pca_lowrank.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local ops, istensor = bind.ops, lib.istensor
local statistics = {}

local function refuse(fname, arg, wanted, got, code)
  errors.refuse(fname, arg, wanted, got, code or "E_SHAPE")
end

-- ---- spread ----

-- PyTorch's functions take `unbiased` in the place of the dimension or of the correction.
for name, row in pairs {
  std = { "The standard deviation along dimensions.", "std" },
  var = { "The variance along dimensions.", "var" },
  std_mean = { "The standard deviation and the mean along dimensions.", "std, mean" },
  var_mean = { "The variance and the mean along dimensions.", "var, mean" },
} do
  local own = bind.under(name)
  --- x:std(dim, correction, keepdim), x:std(unbiased), x:std(dim, unbiased, keepdim) and so on.
  statistics[name] = define {
    name = name, doc = row[1], outputs = row[2],
    examples = "moth.randn(2, 3)\nmoth.randn(2, 3), {dim = 2, correction = 0.5, keepdim = true}\n"
      .. "moth.randn(2, 3), {unbiased = false}\nmoth.randn(2, 3), 1, false",
    args = {
      { "tensor", "input", "float tensor of any shape" },
      { "any", "dim", "dimensions to reduce; all of them when absent; or `unbiased`",
        optional = true },
      { "any", "correction", "the sum of squares is divided by the count less this; or `unbiased`",
        optional = true },
      { "bool", "keepdim", "keep them as dimensions of size 1", default = false },
      { "bool", "unbiased", "false is a correction of 0", optional = true },
    },
    run = function(input, dim, correction, keepdim, unbiased)
      if type(dim) == "boolean" and unbiased == nil then dim, unbiased = nil, dim end
      if type(correction) == "boolean" and unbiased == nil then
        correction, unbiased = nil, correction
      end
      if type(correction) == "nil" then correction = 1 end
      local y, mean = own[name](input, dim, correction, keepdim, unbiased)
      if mean == nil then return y end
      return y, mean
    end,
  }
end

-- ---- frequency ----

--- x:mode(dim, keepdim) -> values, indices.
statistics.mode = define {
  name = "mode",
  doc = "The element that comes most often in each slice along a dimension, the least of several, "
    .. "and the last position where it stands.",
  examples = "moth.randn(2, 3)  -- domain: distinct\n"
    .. "moth.randn(3, 2), {dim = 1, keepdim = true}  -- domain: distinct",
  outputs = "values, indices",
  args = { { "tensor", "input", "tensor of any shape" },
           { "dim", "dim", "dimension to search", default = -1 },
           { "bool", "keepdim", "keep it as a dimension of size 1", default = false } },
  scoped = true,
  run = function(input, dim, keepdim)
    if input:dim() == 0 then return input:clone(), (ops.ones({}, require("moth").int64)) end
    local n = input:size(errors.dim("mode", "dim", dim, input:dim()))
    if n == 0 then refuse("mode", "input", "elements along the dimension are needed", input) end
    local sorted, order = input:detach():movedim(dim, -1):sort { -1, stable = true }
    local at = require("moth").arange(n, { device = input.device }):expand_as(sorted)
    local first = ops.ones_like(sorted, { dtype = require("moth").bool }) -- of a run of equals
    first:narrow(-1, 2, n - 1):copy_(sorted:narrow(-1, 2, n - 1):ne(sorted:narrow(-1, 1, n - 1)))
    local run = at - ops.where(first, at, 0):cummax(-1)
    local index = order:gather(-1, run:argmax(-1, true)):movedim(-1, dim)
    local value = input:gather(dim, index)
    if keepdim then return value, index end
    return value:squeeze(dim), (index:squeeze(dim))
  end,
}

-- Of rows the values at the share q of the elements that are not NaN, so many as `good` says:
-- pick(at, above) gives them at that position, from 0 on, or the whole one above.
local function share(pick, good, q, how)
  local at = (good - 1):clamp(0):double() * q
  local low = at:detach():floor()
  if how == "lower" then return (pick(at, false)) end
  if how == "higher" then return (pick(at, true)) end
  local a, b = pick(at, false), pick(at, true)
  if how == "nearest" then return (ops.where(at:round():eq(low), a, b)) end
  if how == "midpoint" then return (a + (b - a) * at:ne(low):to(a.dtype) * 0.5) end
  return a + ops.where(at:eq(low), 0, (b - a) * (at - low):to(a.dtype))
end

local quantile_of = bind.as("quantile_of", "nanquantile")

--- moth.nanquantile(x, q, dim, keepdim, interpolation).
statistics.nanquantile = define {
  name = "nanquantile",
  doc = "The value that a share `q` of the elements that are not NaN does not exceed; NaN where "
    .. "all are.",
  examples = "moth.randn(2, 5), 0.3  -- domain: distinct\n"
    .. "moth.randn(2, 5), {0.25, 0.5}, {dim = 2, keepdim = true, interpolation = 'midpoint'}"
    .. "  -- domain: distinct",
  args = { { "tensor", "input", "float tensor of any shape" },
           { "any", "q", "a number from 0 to 1, or a list or 1-d tensor of them" },
           { "int", "dim", "dimension to search; all of them when absent", optional = true },
           { "bool", "keepdim", "keep it as a dimension of size 1", default = false },
           { "enum", "interpolation", "what to take between two elements",
             choices = { "linear", "lower", "higher", "midpoint", "nearest" } } },
  scoped = true,
  run = function(input, q, dim, keepdim, how)
    if not input:is_floating_point() then
      refuse("nanquantile", "input", "a float tensor is needed", input, "E_DTYPE")
    end
    local x = dim == nil and input:reshape(-1) or input:dim() == 0 and input:reshape(1)
      or input:movedim(dim, -1)
    if x:size(-1) == 0 then refuse("nanquantile", "input", "elements are needed", input) end
    local good = x:isnan():logical_not():sum(-1, { keepdim = true })
    local several = type(q) == "table" or istensor(q) and q:dim() > 0
    local sorted = (several or input.device.type ~= "cpu") and x:sort(-1)
    local list, shares = {}, nil
    if istensor(q) and q.requires_grad and how == "linear" then
      shares = q:reshape(-1):double()
    end
    for i, one in ipairs(type(q) == "table" and q or istensor(q) and q:reshape(-1):tolist()
        or { q }) do
      if type(one) ~= "number" or not (one >= 0 and one <= 1) then
        refuse("nanquantile", "q", "numbers from 0 to 1 are needed", one, "E_DOMAIN")
      end
      local function pick(at, above)
        if not sorted then return (quantile_of(x, -1, true, one, above, true)) end
        at = above and at:ceil() or at:floor()
        return (sorted:gather(-1, at:detach():clamp(0):long() + 1))
      end
      local y = share(pick, good, shares and shares[i] or one, how)
      if keepdim and dim == nil then y = y:reshape(lib.filled(input:dim(), 1))
      elseif keepdim and input:dim() > 0 then y = y:movedim(-1, dim)
      else y = y:squeeze(-1) end
      list[i] = y
    end
    return (several and ops.stack(list, 1) or list[1])
  end,
}

--- moth.histogram(x, bins, range, weight, density) -> hist, bin_edges.
statistics.histogram = define {
  name = "histogram",
  doc = "How many elements lie in each bin, and where the bins begin and end. The last bin holds "
    .. "its end too; what lies beyond all of them is not counted.",
  examples = "moth.randn(20), 4, {range = {-1, 2}, density = true}\n"
    .. "moth.randn(3), moth.tensor{-1, 0, 2}, {weight = moth.rand(3)}",
  outputs = "hist, bin_edges",
  args = { { "tensor", "input", "float tensor of any shape" },
           { "any", "bins", "how many of one width, or a vector of their ends", default = 100 },
           { "any", "range", "{first, last} end; the least and largest element when absent",
             optional = true },
           { "tensor", "weight", "what each counts, of the input's shape", optional = true },
           { "bool", "density", "divide by the total and by the widths?", default = false } },
  scoped = true,
  run = function(input, bins, range, weight, density)
    if not input:is_floating_point() then
      refuse("histogram", "input", "a float tensor is needed", input, "E_DTYPE")
    end
    if weight ~= nil and not (weight.shape == input.shape) then
      refuse("histogram", "weight", tostring(input.shape) .. " is needed", weight)
    end
    local x, edges = input:detach():reshape(-1), bins
    if not istensor(bins) then
      if type(bins) ~= "number" or bins < 1 or bins % 1 ~= 0 then
        refuse("histogram", "bins", "a number from 1 on or a vector is needed", bins, "E_ARG")
      end
      local low, high = 0, 1
      if range ~= nil and not lib.is_plain(range) then
        refuse("histogram", "range", "two finite numbers in order are needed", range, "E_TYPE")
      end
      if range then low, high = range[1], range[2]
      elseif x:numel() > 0 then low, high = x:min():item(), x:max():item() end
      if not range and not (math.abs(low) < math.huge and math.abs(high) < math.huge) then
        errors.argument("histogram", "input", ("finite numbers are needed, or a range, got %s with "
          .. "%g"):format(errors.describe(input), math.abs(low) < math.huge and high or low),
          "E_DOMAIN")
      end
      if type(low) ~= "number" or type(high) ~= "number" or not (low <= high)
          or high - low == math.huge or (range and #range ~= 2) then
        refuse("histogram", "range", "two finite numbers in order are needed", range, "E_DOMAIN")
      end
      if low == high then low, high = low - 0.5, high + 0.5 end
      edges = ops.linspace(low, high, bins + 1, { dtype = x.dtype, device = x.device })
    elseif edges:dim() ~= 1 or edges:size(1) < 2 then
      refuse("histogram", "bins", "a vector of at least two ends is needed", bins)
    end
    local n = edges:size(1) - 1
    local at = ops.searchsorted(edges, x, { right = true }) -- 1: below all, n + 2: beyond or NaN
    local y
    local last = x:eq(edges[n + 1])
    if weight == nil and not lib.capture then
      y = ops.bincount(at, nil, n + 3):narrow(1, 3, n):to(x.dtype)
      last = last:sum()
    else
      local each = weight == nil and ops.ones_like(x) or weight:detach():reshape(-1)
      y = ops.zeros({ n + 2 }, x.dtype, x.device):index_add(1, at, each):narrow(1, 2, n)
      last = ops.where(last, each, 0):sum()
    end
    y:narrow(1, n, 1):add_(last) -- the last bin has its end too
    if density then y = y / y:sum() / edges:diff() end
    return y, edges
  end,
}

-- ---- matrices of low rank: Halko, Martinsson and Tropp, "Finding structure with randomness" ----

-- Rows that span most of what A gives: q columns, orthogonal.
local function range_of(A, q, niter)
  local linalg = require("moth").linalg
  local sizes = { unpack(A.shape) }
  sizes[#sizes - 1], sizes[#sizes] = A:size(-1), q
  local Q = linalg.qr(A:matmul(ops.randn(sizes, { dtype = A.dtype, device = A.device })))
  for _ = 1, niter do
    Q = linalg.qr(A:transpose(-1, -2):matmul(Q))
    Q = linalg.qr(A:matmul(Q))
  end
  return Q
end

local function low_rank(name, A, q, niter)
  if A:dim() < 2 then refuse(name, "A", "matrices, (..., M, N), are needed", A) end
  local least = math.min(A:size(-1), A:size(-2))
  if q < 0 or q > least then
    refuse(name, "q", ("0 to %d are possible"):format(least), q, "E_ARG")
  end
  if niter < 0 then refuse(name, "niter", "a number from 0 on is needed", niter, "E_ARG") end
  local Q = range_of(A, q, niter)
  local U, S, Vh = require("moth").linalg.svd(Q:transpose(-1, -2):matmul(A),
    { full_matrices = false })
  return Q:matmul(U), S, (Vh:transpose(-1, -2))
end

local NITER = { "int", "niter", "how often the columns are multiplied by A again", default = 2 }

--- moth.svd_lowrank(A, q, niter, M) -> U, S, V: A - M is nearly U diag(S) V^T.
statistics.svd_lowrank = define {
  name = "svd_lowrank",
  doc = "The q largest singular values of matrices and their vectors, by random projections: "
    .. "nearly right where the others are small.",
  examples = "moth.randn(5, 4), 2\nmoth.randn(5, 4), {q = 4, niter = 1, M = moth.randn(1, 4)}",
  outputs = "U, S, V",
  args = { { "tensor", "A", "matrices, (..., M, N)" },
           { "int", "q", "how many; or as many as there are", default = 6 }, NITER,
           { "tensor", "M", "is taken off A first, broadcast with it", optional = true } },
  scoped = true,
  run = function(A, q, niter, M)
    if M ~= nil then A = A - M end
    return low_rank("svd_lowrank", A, q, niter)
  end,
}

--- moth.pca_lowrank(A, q, center, niter) -> U, S, V: V's columns are the principal directions.
statistics.pca_lowrank = define {
  name = "pca_lowrank",
  doc = "The q first principal components of rows of observations: V has their directions as "
    .. "columns, and A:matmul(V) the observations in them.",
  examples = "moth.randn(5, 4), {q = 2}\nmoth.randn(5, 4), {q = 3, center = false, niter = 1}",
  outputs = "U, S, V",
  args = { { "tensor", "A", "observations, (..., M, N)" },
           { "int", "q", "how many; 6, or as many as there are, when absent", optional = true },
           { "bool", "center", "take the mean off the columns first?", default = true }, NITER },
  scoped = true,
  run = function(A, q, center, niter)
    if A:dim() < 2 then refuse("pca_lowrank", "A", "matrices, (..., M, N), are needed", A) end
    q = q or math.min(6, A:size(-1), A:size(-2))
    if center then A = A - A:mean(-2, true) end
    return low_rank("pca_lowrank", A, q, niter)
  end,
}

return statistics
