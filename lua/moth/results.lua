--- results.lua -- functions whose results depend on how they are called: median, unique,
-- unique_consecutive, nonzero, where.

local bind = require "moth.bind"
local define = require "moth.define"
local lib = require "moth.lib"

local results = {}

-- ---- median ----

local median_all = bind.as("median_all", "median")
local median_dim = bind.as("median_dim", "median")

--- moth.median(x), moth.median(x, dim, keepdim) -> values, indices.
results.median = define {
  name = "median",
  doc = "The element in the middle, the lower of two; with `dim` that of each slice along it, and "
    .. "its position. NaN wins.",
  examples = "moth.randn(2, 3)  -- domain: distinct\n"
    .. "moth.randn(2, 3), {dim = 2, keepdim = true}  -- domain: distinct",
  outputs = "values, indices",
  args = {
    { "tensor", "input", "tensor of any shape" },
    { "int", "dim", "dimension to search", optional = true },
    { "bool", "keepdim", "keep the dimension with size 1", default = false },
  },
  run = function(input, dim, keepdim)
    if dim == nil then
      local y = median_all(input)
      return y
    end
    local values, indices = median_dim(input, dim, keepdim)
    return values, indices
  end,
}

-- ---- unique ----

local function unique_of(name)
  local unique = bind.as("unique_all", name)
  return function(input, dim, consecutive, return_inverse, return_counts)
    local values, inverse, counts = unique(input, dim or lib.none, consecutive)
    if return_inverse and return_counts then return values, inverse, counts end
    if return_inverse then return values, inverse end
    if return_counts then return values, counts end
    return values
  end
end

local all, runs = unique_of "unique", unique_of "unique_consecutive"

local RETURNS = {
  { "bool", "return_inverse", "a further result: which of the values each element is",
    default = false },
  { "bool", "return_counts", "a further result: how often each value comes", default = false },
  { "int", "dim", "compare the slices along it; when absent the elements", optional = true },
}

--- moth.unique(x, {sorted, return_inverse, return_counts, dim}) -> values[, inverse][, counts].
results.unique = define {
  name = "unique",
  doc = "The different elements, or slices along a dimension, in order.",
  examples = "moth.tensor{3LL, 1LL, 3LL}\n"
    .. "moth.tensor{{3LL, 1LL}, {3LL, 1LL}}, {dim = 1, return_inverse = true, "
    .. "return_counts = true}",
  outputs = "values, inverse, counts",
  args = {
    { "tensor", "input", "tensor of any shape" },
    { "bool", "sorted", "in order: they always are", default = true },
    RETURNS[1], RETURNS[2], RETURNS[3],
  },
  run = function(input, _, return_inverse, return_counts, dim)
    local a, b, c = all(input, dim, false, return_inverse, return_counts)
    return a, b, c
  end,
}

--- moth.unique_consecutive(x, {return_inverse, return_counts, dim}).
results.unique_consecutive = define {
  name = "unique_consecutive",
  doc = "The elements, or slices along a dimension, without those equal to the one before.",
  examples = "moth.tensor{1LL, 1LL, 2LL, 1LL}\n"
    .. "moth.tensor{1LL, 1LL, 2LL}, {return_inverse = true, return_counts = true}",
  outputs = "values, inverse, counts",
  args = { { "tensor", "input", "tensor of any shape" }, RETURNS[1], RETURNS[2], RETURNS[3] },
  run = function(input, return_inverse, return_counts, dim)
    local a, b, c = runs(input, dim, true, return_inverse, return_counts)
    return a, b, c
  end,
}

return results
