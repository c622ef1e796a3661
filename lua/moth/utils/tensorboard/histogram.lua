--- histogram.lua -- the histogram of a tensor as TensorBoard stores it. The bins are NumPy's.

local ffi = require "ffi"

local errors = require "moth.error"
local lib = require "moth.binding.lib"
local scope = require "moth.tensor.scope"

local histogram = {}

--- Numbers as packed doubles.
function histogram.doubles(list)
  local array = lib.doubles(math.max(#list, 1))
  for i, x in ipairs(list) do array[i - 1] = x end
  return ffi.string(array, 8 * #list)
end

-- ---- bins ----

local default -- the edges of "tensorflow": 0 and plus and minus 1e-12 * 1.1^k below 1e20

local function default_edges()
  if not default then
    local moth = require "moth"
    local list, v = {0}, 1e-12
    while v < 1e20 do
      list[#list + 1] = v
      v = v * 1.1
    end
    for i = 2, #list do table.insert(list, 1, -list[2 * i - 2]) end
    default = moth.tensor(list, {dtype = moth.float64})
    lib.check(lib.C.moth_keep_always(lib.ctx, default), "add_histogram")
  end
  return default
end

-- The estimators of numpy.histogram_bin_edges: the width of a bin; 0 for a single bin.
-- s: n, span and the tensor x
local width = {}

local function std(s) return s.x:std(nil, {correction = 0}):item() end

function width.sqrt(s) return s.span / math.sqrt(s.n) end
function width.sturges(s) return s.span / (math.log(s.n) / math.log(2) + 1) end
function width.rice(s) return s.span / (2 * s.n ^ (1 / 3)) end
function width.scott(s) return (24 * math.pi ^ 0.5 / s.n) ^ (1 / 3) * std(s) end

function width.fd(s)
  local moth = require "moth"
  local q = moth.quantile(s.x, moth.tensor({0.25, 0.75}, {dtype = moth.float64}))
  return 2 * (q:select(1, 2) - q:select(1, 1)):item() * s.n ^ (-1 / 3)
end

function width.auto(s)
  return math.min(math.max(width.fd(s), width.sqrt(s) / 2), width.sturges(s))
end

function width.doane(s)
  local n = s.n
  if n <= 2 then return 0 end
  local sigma = std(s)
  if sigma == 0 then return 0 end
  local g = ((s.x - s.x:mean()) / sigma):pow(3):mean():item()
  local sg = math.sqrt(6 * (n - 2) / ((n + 1) * (n + 3)))
  return s.span / (1 + math.log(n) / math.log(2) + math.log(1 + math.abs(g) / sg) / math.log(2))
end

-- Counts and edges of n bins of equal width. The edges are rounded as numpy.linspace rounds them.
local function equal_bins(s, n)
  local moth = require "moth"
  local low, high = s.low, s.high
  if low == high then low, high = low - 0.5, high + 0.5 end
  local edges, step = {}, (high - low) / n
  if step == math.huge then step = high / n - low / n end
  for i = 0, n - 1 do edges[i + 1] = i * step + low end
  edges[n + 1] = high
  return s.x:histogram(moth.tensor(edges, {dtype = moth.float64}))
end

function width.stone(s)
  local best, best_n = math.huge, 1
  for bins = 1, math.max(100, math.floor(math.sqrt(s.n))) do
    local counts = equal_bins(s, bins)
    local p = counts / s.n
    local j = (2 - (s.n + 1) * p:dot(p):item()) * bins / s.span
    if j < best then best, best_n = j, bins end
  end
  return s.span / best_n
end

local MOST_BINS = 2 ^ 16 -- a few outliers would make an estimator choose millions

local NAMES = {"tensorflow", "auto", "doane", "fd", "rice", "scott", "sqrt", "stone", "sturges"}

local function counted(s, bins, fname)
  if bins == "tensorflow" then return s.x:histogram(default_edges()) end
  if type(bins) == "string" then
    local estimate = width[bins]
    if not estimate then
      errors.argument(fname, "bins", ("one of %s, a number or a list of edges is needed, got "
        .. "'%s'%s"):format(table.concat(NAMES, ", "), bins, errors.nearest(bins, NAMES)),
        "E_DOMAIN")
    end
    local w = s.span > 0 and s.span < math.huge and estimate(s) or 0
    return equal_bins(s, w > 0 and math.min(math.ceil(s.span / w), MOST_BINS) or 1)
  elseif type(bins) == "number" then
    if bins < 1 or bins % 1 ~= 0 then
      errors.argument(fname, "bins", "a number from 1 is needed, got " .. bins, "E_DOMAIN")
    end
    return equal_bins(s, bins)
  end
  local moth = require "moth"
  return s.x:histogram(moth.as_tensor(bins, {dtype = moth.float64}):cpu())
end

--- Counts the elements of a vector in bins.
-- @param x      float64 vector of finite values on the CPU, not empty
-- @param bins   a name, a number, or edges
-- @param fname  the function that errors name
-- @return the counts and the edges, tensors; the least and the largest element
function histogram.counts(x, bins, fname)
  local low, high = x:min():item(), x:max():item()
  local s = {x = x, n = x:numel(), low = low, high = high, span = high - low}
  local counts, edges = counted(s, bins, fname)
  return counts, edges, low, high
end

-- ---- the message ----

-- Joins neighbours until there are at most about max_bins.
local function joined(counts, edges, max_bins)
  local each = math.floor(#counts / max_bins)
  local c, e = {}, {}
  for i = 1, #counts, each do
    local sum = 0
    for k = i, math.min(i + each - 1, #counts) do sum = sum + counts[k] end
    c[#c + 1], e[#e + 1] = sum, edges[i]
  end
  e[#e + 1] = edges[#edges]
  return c, e
end

-- The counts and right edges from the first to the last bin with elements. An empty bin, which ends
-- at the left edge of the first, comes before.
local function support(counts, edges)
  local first, last = 1, #counts
  while first < last and counts[first] == 0 do first = first + 1 end
  while last > first and counts[last] == 0 do last = last - 1 end
  local c, e = {0}, {edges[first]}
  for i = first, last do c[#c + 1], e[#e + 1] = counts[i], edges[i + 1] end
  return c, e
end

local EMPTY = {min = 0, max = 0, num = 0, sum = 0, sum_squares = 0,
               bucket_limit = histogram.doubles {0}, bucket = histogram.doubles {0}}

--- The message of a histogram. Infinite and NaN elements are left out.
-- @param values    a tensor, or a list of numbers
-- @param bins      a name, a number, or edges
-- @param max_bins  neighbours are joined until there are at most about this many; nil: all
histogram.of = scope.inside(function(values, bins, max_bins)
  local moth = require "moth"
  local x = moth.as_tensor(values, {dtype = moth.float64}):detach():cpu():flatten()
  if x:numel() == 0 then
    errors.argument("add_histogram", "values", "there are no values", "E_SHAPE")
  end
  local finite = x:isfinite()
  if not finite:all():item() then x = x[finite] end
  local n = x:numel()
  if n == 0 then return EMPTY end
  local counts, edges, low, high = histogram.counts(x, bins, "add_histogram")
  counts, edges = counts:tolist(), edges:tolist()
  if max_bins and #counts > max_bins then counts, edges = joined(counts, edges, max_bins) end
  counts, edges = support(counts, edges)
  return {min = low, max = high, num = n, sum = x:sum():item(), sum_squares = x:dot(x):item(),
          bucket_limit = histogram.doubles(edges), bucket = histogram.doubles(counts)}
end)

return histogram
