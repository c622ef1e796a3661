--- results.lua -- functions whose results depend on how they are called: median, unique,
-- unique_consecutive, nonzero, where, tensor_split, normal, meshgrid, broadcast_tensors.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local results = {}

-- ---- median ----

local median = bind.under "median"

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
      return (median.median_all(input))
    end
    local values, indices = median.median_dim(input, dim, keepdim)
    return values, indices
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

-- ---- nonzero, where ----

-- One list of positions for each dimension: what indexes x to give its elements that are not zero.
local function as_tuple(x)
  if x:dim() == 0 then x = x:view(1) end
  return (bind.ops.nonzero(x):unbind(2))
end

--- moth.nonzero(x), one row for each element; with {as_tuple = true} a list with one vector for
-- each dimension.
results.nonzero = define {
  name = "nonzero",
  doc = "The positions of all elements that are not zero: a row each, or, as a tuple, one vector "
    .. "for each dimension.",
  examples = "moth.tensor{{0, 1}, {2, 0}}\nmoth.tensor{{0, 1}, {2, 0}}, {as_tuple = true}",
  outputs = "positions",
  args = {
    { "tensor", "input", "tensor to search" },
    { "bool", "as_tuple", "a list with one vector for each dimension", default = false },
  },
  run = function(input, tuple)
    if tuple then
      return (as_tuple(input))
    end
    return (bind.ops.nonzero(input))
  end,
}

--- moth.where(condition, input, other); moth.where(condition) is nonzero as a tuple.
results.where = define {
  name = "where",
  doc = "Elements of one tensor where a condition holds, of another elsewhere. With a condition "
    .. "alone, where it holds: a list with one vector of positions for each dimension.",
  examples = "moth.tensor{true, false}, moth.randn(2), 0\nmoth.tensor{true, false}",
  args = {
    { "tensor", "condition", "where to take from `input`: a bool tensor" },
    { "tensor", "input", "values where the condition holds", numbers = true, optional = true },
    { "tensor", "other", "values elsewhere; all three are broadcast", numbers = true,
      optional = true },
    { "tensor", "out", "tensor that receives the result", optional = true },
  },
  run = function(condition, input, other, out)
    if type(input) == "nil" and type(other) == "nil" then
      return (as_tuple(condition))
    end
    if type(out) == "nil" then return (bind.ops.where(condition, input, other)) end
    return (bind.ops.where(condition, input, other, { out = out }))
  end,
}

-- ---- tensor_split ----

local MOST_PIECES = 2 ^ 20 -- as of split and chunk

-- Ends of the pieces: n about equal ones, the larger first, or those given, as Python clips them.
local function ends_of(sections, size)
  local ends = {}
  if type(sections) == "number" then
    if sections < 1 or sections % 1 ~= 0 then
      errors.argument("tensor_split", "indices_or_sections", "at least one piece is needed, got "
        .. sections)
    elseif sections > MOST_PIECES then
      errors.argument("tensor_split", "indices_or_sections", ("%d pieces are asked for, at most %d "
        .. "are possible"):format(sections, MOST_PIECES), "E_LIMIT")
    end
    local piece, larger = math.floor(size / sections), size % sections
    for i = 1, sections do ends[i] = i * piece + math.min(i, larger) end
    return ends
  end
  if not lib.is_plain(sections) then
    errors.argument("tensor_split", "indices_or_sections", "a number or a list of them is needed, "
      .. "got " .. errors.describe(sections), "E_TYPE")
  end
  for i, stop in ipairs(sections) do
    if type(stop) ~= "number" or stop % 1 ~= 0 then
      errors.refuse("tensor_split", "indices_or_sections", "whole numbers are needed", stop,
        "E_TYPE")
    end
    if stop < 0 then stop = stop + size end
    ends[i] = math.max(0, math.min(stop, size))
  end
  ends[#ends + 1] = size
  return ends
end

--- moth.tensor_split(x, 3), moth.tensor_split(x, {2, 5}): a list of views.
results.tensor_split = define {
  name = "tensor_split",
  doc = "Pieces of a dimension: so many of about one size, or cut behind the counts given, as "
    .. "{2, 5} cuts behind the second and the fifth position.",
  examples = "moth.randn(5, 2), 3\nmoth.randn(2, 6), {2, 5}, {dim = 2}",
  outputs = "list",
  args = {
    { "tensor", "input", "tensor to take apart" },
    { "any", "indices_or_sections", "how many pieces, or a list, or tensor, of how far "
      .. "each goes" },
    { "int", "dim", "dimension to cut", default = 1 },
  },
  run = function(input, sections, dim)
    local list, start = {}, 0
    local size = input:size(errors.dim("tensor_split", "dim", dim, input:dim()))
    if lib.istensor(sections) and sections:dim() < 2 then
      sections = sections:dim() == 0 and sections:item() or sections:tolist()
    end
    for i, stop in ipairs(ends_of(sections, size)) do
      list[i] = input:narrow(dim, math.min(start, size) + 1, math.max(0, stop - start))
      start = stop
    end
    return list
  end,
}

-- ---- normal ----

--- moth.normal(mean, std, size): numbers drawn from normal distributions, one for each element of
-- mean and std, or `size` of one.
results.normal = define {
  name = "normal",
  doc = "Numbers drawn from normal distributions: one for each mean and deviation, or `size` of "
    .. "one.",
  examples = "moth.tensor{1, 2}, moth.tensor{0.1, 0.2}\n0, 2, {size = {2, 3}, "
    .. "dtype = moth.float64, device = 'cpu'}\nmoth.tensor{1, 2}, {generator = moth.Generator()}",
  args = {
    { "tensor", "mean", "means, a number or a tensor", numbers = true },
    { "tensor", "std", "standard deviations, a number or a tensor", numbers = true, default = 1 },
    { "shape", "size", "sizes, for two numbers", optional = true },
    { "generator", "generator", "source of the numbers; the default one when absent",
      optional = true },
    { "dtype", "dtype", "element type, with `size`; the default one when absent", optional = true },
    { "device", "device", "where the elements live, with `size`", optional = true },
  },
  run = function(mean, std, size, generator, dtype, device)
    local many = lib.istensor(mean) and mean or lib.istensor(std) and std or nil
    if (many == nil) == (size == nil) then
      errors.argument("normal", "size", many and "the tensors have one"
        or "is needed with two numbers")
    elseif many and (dtype or device) then
      errors.argument("normal", dtype and "dtype" or "device", "the tensors have one")
    end
    for name, value in pairs { mean = mean, std = std } do
      if type(value) == "boolean" then
        errors.refuse("normal", name, "a number or a tensor is needed", value, "E_TYPE")
      end
    end
    local least = std
    if lib.istensor(std) then
      if std.dtype.name == "bool" then
        errors.refuse("normal", "std", "a number or a tensor of numbers is needed", std, "E_DTYPE")
      end
      least = not lib.capture and std:numel() > 0 and std:min():item() or 0
    end
    if lib.capture and lib.istensor(std) then
      require "moth.capture.check"(std:ge(0):logical_not(), function()
        errors.argument("normal", "std", "cannot be negative")
      end)
    elseif not (least >= 0) then
      errors.argument("normal", "std", "cannot be negative, got " .. least)
    end
    local autograd = require "moth.autograd"
    return (autograd.no_grad(function()
      local ops = bind.ops
      local z
      if size then
        z = ops.randn { size = size, generator = generator, dtype = dtype, device = device }
      elseif lib.istensor(mean) and lib.istensor(std) then
        z = ops.randn_like { ops.broadcast_tensors { mean, std }[1], generator = generator }
      else
        z = ops.randn_like { many, generator = generator }
      end
      return z * std + mean
    end))
  end,
}

-- ---- tensors in a row ----

-- An op on a list of tensors that PyTorch also calls with them in a row.
local function in_a_row(name)
  local op = bind.ops[name]
  local function call(first, ...)
    if not lib.istensor(first) then
      return (op(first, ...))
    end
    local tensors, rest, n = { first }, { ... }, select("#", ...)
    local given = 0
    while lib.istensor(rest[given + 1]) do
      given = given + 1
      tensors[given + 1] = rest[given]
    end
    return (op(tensors, unpack(rest, given + 1, n)))
  end
  bind.register(call, bind.signature(op))
  return call
end

--- moth.meshgrid(a, b, ...) or moth.meshgrid({a, b, ...}, indexing) -> a list.
results.meshgrid = in_a_row("meshgrid")
--- moth.broadcast_tensors(a, b, ...) or moth.broadcast_tensors {a, b, ...} -> a list.
results.broadcast_tensors = in_a_row("broadcast_tensors")

return results
