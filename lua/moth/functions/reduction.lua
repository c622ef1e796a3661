--- reduction.lua -- reductions: std, var, std_mean, var_mean, median, nanmedian, quantile,
-- nanquantile, mode, unique, unique_consecutive, sum_to_size.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local ops = bind.ops
local istensor = lib.istensor
local reduction = {}

local function refuse(fname, arg, wanted, got, code)
  errors.refuse(fname, arg, wanted, got, code or "E_SHAPE")
end

-- ---- standard deviation and variance ----

-- PyTorch's functions accept `unbiased` at the position of `dim` or of `correction`.
for name, row in pairs {
  std = {"The standard deviation along dimensions.", "std"},
  var = {"The variance along dimensions.", "var"},
  std_mean = {"The standard deviation and the mean along dimensions.", "std, mean"},
  var_mean = {"The variance and the mean along dimensions.", "var, mean"},
} do
  local own = bind.under(name)
  --- x:std(dim, correction, keepdim), x:std(unbiased), x:std(dim, unbiased, keepdim) and so on.
  reduction[name] = define {
    name = name, doc = row[1], outputs = row[2],
    examples = "moth.randn(2, 3)\nmoth.randn(2, 3), {dim = 2, correction = 0.5, keepdim = true}\n"
      .. "moth.randn(2, 3), {unbiased = false}\nmoth.randn(2, 3), 1, false",
    args = {
      {"tensor", "input", "float tensor of any shape"},
      {"any", "dim", "dimensions to reduce; default: all; or `unbiased`",
        optional = true},
      {"any", "correction", "the divisor is the count minus this number; or `unbiased`",
        optional = true},
      {"bool", "keepdim", "keep reduced dimensions with size 1", default = false},
      {"bool", "unbiased", "false means correction 0", optional = true},
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

-- ---- median ----

local median = bind.under "median"

--- moth.median(x), moth.median(x, dim, keepdim) -> values, indices.
reduction.median = define {
  name = "median",
  doc = "The median, the lower of two middle elements; with `dim` the median of each slice along "
    .. "it, and its position. NaN if an element is NaN.",
  examples = "moth.randn(2, 3)  -- domain: distinct\n"
    .. "moth.randn(2, 3), {dim = 2, keepdim = true}  -- domain: distinct",
  outputs = "values, indices",
  args = {
    {"tensor", "input", "tensor of any shape"},
    {"int", "dim", "dimension to search", optional = true},
    {"bool", "keepdim", "keep the dimension with size 1", default = false},
  },
  run = function(input, dim, keepdim)
    if dim == nil then
      return (median.median_all(input))
    end
    local values, indices = median.median_dim(input, dim, keepdim)
    return values, indices
  end,
}

-- ---- quantiles ----

local quantile_of = bind.as("quantile_of", "quantile")
local median_of = bind.as("quantile_of", "nanmedian")

-- Returns x with the dimension last, or x flattened.
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
  {"int", "dim", "dimension to search; default: all", optional = true},
  {"bool", "keepdim", "keep the dimension with size 1", default = false},
}

-- The interpolations by name: each returns the value between two neighbours.
local PICKS = {
  linear = function(low, high, part) return low + (high - low) * part end,
  lower = function(low) return low end,
  higher = function(_, high) return high end,
  midpoint = function(low, high) return low + (high - low) * 0.5 end,
}

-- Returns the quantile of rows of length n: the value at the position q (n - 1), exact if this
-- position is an integer. pick(k, above) returns the sorted element k, or element k + 1 if `above`.
-- slack is nil, or a tensor 0 that passes its gradient to q.
local function place(pick, q, n, how, slack)
  local at = q * (n - 1)
  local floor = math.floor(at)
  local low, part = pick(floor + 1, false), at - floor
  if part == 0 then return slack and low + slack:to(low.dtype) * 0 or low end
  if slack and how == "linear" then part = slack:to(low.dtype) * (n - 1) + part end
  local high = pick(floor + 2, true)
  if how == "nearest" then -- if two elements are equally near, the element at the even position
    return (part > 0.5 or (part == 0.5 and floor % 2 == 1)) and high or low
  end
  return (PICKS[how](low, high, part))
end

-- Returns a 0 that passes the gradient to q, for a tensor q that requires one; else nil.
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

--- moth.quantile(x, q, dim, keepdim, interpolation): q is a number, or several, which become the
-- first dimension of the result.
reduction.quantile = define {
  name = "quantile",
  doc = "The quantile `q` of the elements along a dimension; `interpolation` defines values "
    .. "between two elements. NaN if an element is NaN.",
  examples = "moth.randn(2, 5), 0.3  -- domain: distinct\n"
    .. "moth.randn(2, 5), {0.25, 0.5}, {dim = 2, keepdim = true, interpolation = 'midpoint'}"
    .. "  -- domain: distinct",
  args = {
    {"tensor", "input", "float tensor of any shape"},
    {"any", "q", "a number from 0 to 1, or a list or 1-d tensor of numbers"},
    FIND[1], FIND[2],
    {"enum", "interpolation", "the value between two elements",
      choices = {"linear", "lower", "higher", "midpoint", "nearest"}},
  },
  scoped = true,
  run = function(input, q, dim, keepdim, how)
    if not input:is_floating_point() then
      errors.refuse("quantile", "input", "a float tensor is needed", input, "E_DTYPE")
    end
    local x = rows_of(input, dim)
    local n = x:size(-1)
    if n == 0 then
      errors.argument("quantile", "input", "has no elements", "E_SHAPE")
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
    -- NaN is sorted to the end: the result of a row with a NaN is NaN, and the NaN gets the
    -- gradient
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
reduction.nanmedian = define {
  name = "nanmedian",
  doc = "The median of the elements that are not NaN, the lower of two middle elements; with `dim` "
    .. "of each slice along it, and its position.",
  examples = "moth.randn(2, 3)  -- domain: distinct\n"
    .. "moth.randn(2, 3), {dim = 2, keepdim = true}  -- domain: distinct",
  outputs = "values, indices",
  args = {{"tensor", "input", "tensor of any shape"}, FIND[1], FIND[2]},
  scoped = true,
  run = function(input, dim, keepdim)
    if dim ~= nil then errors.dim("nanmedian", "dim", dim, math.max(input:dim(), 1)) end
    local x = rows_of(input, dim)
    if dim ~= nil and x:size(-1) == 0 then
      errors.refuse("nanmedian", "input", "at least one element is needed", input, "E_SHAPE")
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
    local good = x:isnan():logical_not():sum(-1, {keepdim = true})
    local sorted, order = x:sort { -1, stable = true}
    local at = (good - 1):clamp(0):div(2, {rounding_mode = "floor"}):long() + 1
    local value = sorted:gather(-1, at):squeeze(-1)
    if dim == nil then return value end
    local index = order:gather(-1, at):squeeze(-1)
    value, index = keep(value, input, dim, keepdim), keep(index, input, dim, keepdim)
    return value, index
  end,
}

--- x:mode(dim, keepdim) -> values, indices.
reduction.mode = define {
  name = "mode",
  doc = "The most frequent element of each slice along a dimension, the smallest of several, and "
    .. "its last position.",
  examples = "moth.randn(2, 3)  -- domain: distinct\n"
    .. "moth.randn(3, 2), {dim = 1, keepdim = true}  -- domain: distinct",
  outputs = "values, indices",
  args = {{"tensor", "input", "tensor of any shape"},
           {"dim", "dim", "dimension to search", default = -1},
           {"bool", "keepdim", "keep the dimension with size 1", default = false}},
  scoped = true,
  run = function(input, dim, keepdim)
    if input:dim() == 0 then return input:clone(), (ops.ones({}, require("moth").int64)) end
    local n = input:size(errors.dim("mode", "dim", dim, input:dim()))
    if n == 0 then refuse("mode", "input", "elements along the dimension are needed", input) end
    local sorted, order = input:detach():movedim(dim, -1):sort { -1, stable = true}
    local at = require("moth").arange(n, {device = input.device}):expand_as(sorted)
    local first = ops.ones_like(sorted, {dtype = require("moth").bool}) -- starts of runs
    first:narrow(-1, 2, n - 1):copy_(sorted:narrow(-1, 2, n - 1):ne(sorted:narrow(-1, 1, n - 1)))
    local run = at - ops.where(first, at, 0):cummax(-1)
    local index = order:gather(-1, run:argmax(-1, true)):movedim(-1, dim)
    local value = input:gather(dim, index)
    if keepdim then return value, index end
    return value:squeeze(dim), (index:squeeze(dim))
  end,
}

-- Returns the values of rows at the share q of their elements that are not NaN; `good` has the
-- number of these elements. pick(at, above) returns the element at a position from 0 on, rounded
-- down, or up if `above`.
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

local nanquantile_of = bind.as("quantile_of", "nanquantile")

--- moth.nanquantile(x, q, dim, keepdim, interpolation).
reduction.nanquantile = define {
  name = "nanquantile",
  doc = "The quantile `q` of the elements that are not NaN; NaN if all are NaN.",
  examples = "moth.randn(2, 5), 0.3  -- domain: distinct\n"
    .. "moth.randn(2, 5), {0.25, 0.5}, {dim = 2, keepdim = true, interpolation = 'midpoint'}"
    .. "  -- domain: distinct",
  args = {{"tensor", "input", "float tensor of any shape"},
           {"any", "q", "a number from 0 to 1, or a list or 1-d tensor of numbers"},
           {"int", "dim", "dimension to search; default: all", optional = true},
           {"bool", "keepdim", "keep the dimension with size 1", default = false},
           {"enum", "interpolation", "the value between two elements",
             choices = {"linear", "lower", "higher", "midpoint", "nearest"}}},
  scoped = true,
  run = function(input, q, dim, keepdim, how)
    if not input:is_floating_point() then
      refuse("nanquantile", "input", "a float tensor is needed", input, "E_DTYPE")
    end
    local x = dim == nil and input:reshape(-1) or input:dim() == 0 and input:reshape(1)
      or input:movedim(dim, -1)
    if x:size(-1) == 0 then refuse("nanquantile", "input", "elements are needed", input) end
    local good = x:isnan():logical_not():sum(-1, {keepdim = true})
    local several = type(q) == "table" or istensor(q) and q:dim() > 0
    local sorted = (several or input.device.type ~= "cpu") and x:sort(-1)
    local list, shares = {}, nil
    if istensor(q) and q.requires_grad and how == "linear" then
      shares = q:reshape(-1):double()
    end
    for i, one in ipairs(type(q) == "table" and q or istensor(q) and q:reshape(-1):tolist()
        or {q}) do
      if type(one) ~= "number" or not (one >= 0 and one <= 1) then
        refuse("nanquantile", "q", "numbers from 0 to 1 are needed", one, "E_DOMAIN")
      end
      local function pick(at, above)
        if not sorted then return (nanquantile_of(x, -1, true, one, above, true)) end
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

-- ---- unique ----

local function unique_of(name)
  local own = bind.under(name)
  return function(input, dim, consecutive, return_inverse, return_counts)
    local values, inverse, counts = own.unique_all(input, dim or lib.none, consecutive,
      not (return_inverse or return_counts))
    if return_inverse and return_counts then return values, inverse, counts end
    if return_inverse then return values, inverse end
    if return_counts then return values, counts end
    return values
  end
end

local all, runs = unique_of "unique", unique_of "unique_consecutive"

local RETURNS = {
  {"bool", "return_inverse", "also return the position of each element's value?",
    default = false},
  {"bool", "return_counts", "also return the number of occurrences?", default = false},
  {"int", "dim", "compare the slices along it; default: the elements", optional = true},
}

--- moth.unique(x, {sorted, return_inverse, return_counts, dim}) -> values[, inverse][, counts].
reduction.unique = define {
  name = "unique",
  doc = "The distinct elements, or slices along a dimension, sorted.",
  examples = "moth.tensor{3LL, 1LL, 3LL}\n"
    .. "moth.tensor{{3LL, 1LL}, {3LL, 1LL}}, {dim = 1, return_inverse = true, "
    .. "return_counts = true}",
  outputs = "values, inverse, counts",
  args = {
    {"tensor", "input", "tensor of any shape"},
    {"bool", "sorted", "no effect: the values are always sorted", default = true},
    RETURNS[1], RETURNS[2], RETURNS[3],
  },
  run = function(input, _, return_inverse, return_counts, dim)
    local a, b, c = all(input, dim, false, return_inverse, return_counts)
    return a, b, c
  end,
}

--- moth.unique_consecutive(x, {return_inverse, return_counts, dim}).
reduction.unique_consecutive = define {
  name = "unique_consecutive",
  doc = "The elements, or slices along a dimension, without repetitions of the previous one.",
  examples = "moth.tensor{1LL, 1LL, 2LL, 1LL}\n"
    .. "moth.tensor{1LL, 1LL, 2LL}, {return_inverse = true, return_counts = true}",
  outputs = "values, inverse, counts",
  args = {{"tensor", "input", "tensor of any shape"}, RETURNS[1], RETURNS[2], RETURNS[3]},
  run = function(input, return_inverse, return_counts, dim)
    local a, b, c = runs(input, dim, true, return_inverse, return_counts)
    return a, b, c
  end,
}

-- ---- sum_to_size ----

--- x:sum_to_size(size): sums over the dimensions that broadcasting from that size adds.
reduction.sum_to_size = define {
  name = "sum_to_size",
  doc = "Sums the tensor to a shape that broadcasts to the tensor's shape.",
  examples = "moth.randn(2, 3), {1, 3}\nmoth.randn(4, 2, 3), {3}",
  args = {{"tensor", "input", "tensor of any shape"}, {"shape", "size", "the sizes"}},
  run = function(input, size)
    if #size == 0 then return (input:sum()) end
    local n, over = input:dim() - #size, {}
    for d = 1, input:dim() do
      local kept = d > n and size[d - n] or 1
      if kept ~= input:size(d) then over[#over + 1] = d end
      if kept ~= 1 and kept ~= input:size(d) or n < 0 then
        refuse("sum_to_size", "size", "sizes that can be broadcast to " .. tostring(input.shape)
          .. " are needed", size)
      end
    end
    if n < 0 then refuse("sum_to_size", "size", "at most as many dimensions as the input has",
      size) end
    local y = #over > 0 and input:sum(over, true) or input
    return (y:reshape(size))
  end,
}

return reduction
