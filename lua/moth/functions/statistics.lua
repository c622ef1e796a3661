--- statistics.lua -- statistics of observations: cov, corrcoef, histogram.

local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local ops = require("moth.binding.bind").ops
local istensor = lib.istensor
local statistics = {}

local function refuse(fname, arg, wanted, got, code)
  errors.refuse(fname, arg, wanted, got, code or "E_SHAPE")
end

local function weights_of(name, w, n)
  if w ~= nil and w:dim() == 0 and n == 1 then w = w:reshape(1) end
  if w ~= nil and (w:dim() ~= 1 or w:size(1) ~= n) then
    refuse("cov", name, ("(%d) is needed"):format(n), w)
  end
  return w
end

-- Raises unless fweights are integers, aweights are floats, and neither are negative.
local function check_weights(f, w)
  if f ~= nil and (f:is_floating_point() or f.dtype == require("moth").bool) then
    refuse("cov", "fweights", "integers are needed", f, "E_DTYPE")
  elseif w ~= nil and not w:is_floating_point() then
    refuse("cov", "aweights", "a float tensor is needed", w, "E_DTYPE")
  end
  if lib.capture then return end
  for name, x in pairs {fweights = f, aweights = w} do
    if not x:ge(0):all():item() then
      errors.argument("cov", name, "numbers from 0 on are needed", "E_DOMAIN")
    end
  end
end

--- moth.cov(x, correction, fweights, aweights): rows are variables, columns observations.
statistics.cov = define {
  name = "cov",
  doc = "The covariance matrix of variables (rows) from observations (columns).",
  examples = "moth.randn(3, 5)\nmoth.randn(5), {correction = 0}\n"
    .. "moth.randn(2, 3), {fweights = moth.tensor{1LL, 3LL, 2LL}, aweights = moth.rand(3)}"
    .. "  -- domain: positive",
  args = {{"tensor", "input", "(variables, observations), or a single variable"},
           {"int", "correction", "subtracted from the number of observations", default = 1},
           {"tensor", "fweights", "number of times each observation occurred", optional = true},
           {"tensor", "aweights", "weight of each observation", optional = true}},
  scoped = true,
  run = function(input, correction, fweights, aweights)
    if input:dim() > 2 then refuse("cov", "input", "a matrix or a vector is needed", input) end
    local x = input:dim() == 2 and input or input:reshape(1, -1)
    if not x:is_floating_point() then x = x:to(require("moth").get_default_dtype()) end
    local n = x:size(2)
    local f, w = weights_of("fweights", fweights, n), weights_of("aweights", aweights, n)
    check_weights(f, w)
    local by = f ~= nil and w ~= nil and f * w or f == nil and w or f
    local y
    if by == nil then
      local apart = x - x:mean(2, true)
      y = apart:matmul(apart:t()) / math.max(n - correction, 0)
    else
      if not by:is_floating_point() then by = by:to(x.dtype) end
      local total = by:sum()
      local apart = x - (x * by):sum(2, true) / total
      local left = (w ~= nil and correction ~= 0) and total - (by * w):sum() / total * correction
        or total - correction
      y = (apart * by):matmul(apart:t()) / left:clamp(0)
    end
    return x:size(1) == 1 and y:reshape {} or y
  end,
}

--- moth.corrcoef(x): covariances divided by the standard deviations.
statistics.corrcoef = define {
  name = "corrcoef",
  doc = "The correlation matrix of variables (rows) from observations (columns), from -1 to 1.",
  examples = "moth.randn(3, 5)",
  args = {{"tensor", "input", "(variables, observations), or a single variable"}},
  scoped = true,
  run = function(input)
    if input:is_floating_point() and input:numel() > 0 then -- scale: squares must not overflow
      local most = input:detach():abs():amax { -1, keepdim = true}
      input = input / ops.where(most:gt(0):logical_and(most:isfinite()), most, 1)
    end
    local c = statistics.cov(input)
    if c:dim() == 0 then return c / c end
    local spread = c:diagonal():sqrt()
    return ((c / spread:unsqueeze(2) / spread:unsqueeze(1)):clamp(-1, 1))
  end,
}

--- moth.histogram(x, bins, range, weight, density) -> hist, bin_edges.
statistics.histogram = define {
  name = "histogram",
  doc = "The number of elements in each bin, and the edges of the bins. The last bin includes its "
    .. "end; elements outside all bins are not counted.",
  examples = "moth.randn(20), 4, {range = {-1, 2}, density = true}\n"
    .. "moth.randn(3), moth.tensor{-1, 0, 2}, {weight = moth.rand(3)}",
  outputs = "hist, bin_edges",
  args = {{"tensor", "input", "float tensor of any shape"},
           {"any", "bins", "number of bins of equal width, or a vector of edges", default = 100},
           {"any", "range", "{first, last} edge; default: the minimum and maximum",
             optional = true},
           {"tensor", "weight", "weight of each element, of the input's shape", optional = true},
           {"bool", "density", "divide by the total and by the bins' widths?", default = false}},
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
      edges = ops.linspace(low, high, bins + 1, {dtype = x.dtype, device = x.device})
    elseif edges:dim() ~= 1 or edges:size(1) < 2 then
      refuse("histogram", "bins", "a vector of at least two ends is needed", bins)
    end
    local n = edges:size(1) - 1
    local at = ops.searchsorted(edges, x, {right = true}) -- 1: below all, n + 2: above or NaN
    local y
    local last = x:eq(edges[n + 1])
    if weight == nil and not lib.capture then
      y = ops.bincount(at, nil, n + 3):narrow(1, 3, n):to(x.dtype)
      last = last:sum()
    else
      local each = weight == nil and ops.ones_like(x) or weight:detach():reshape(-1)
      y = ops.zeros({n + 2}, x.dtype, x.device):index_add(1, at, each):narrow(1, 2, n)
      last = ops.where(last, each, 0):sum()
    end
    y:narrow(1, n, 1):add_(last) -- the last bin includes its end
    if density then y = y / y:sum() / edges:diff() end
    return y, edges
  end,
}

return statistics
