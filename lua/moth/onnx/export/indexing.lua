--- indexing.lua -- ONNX nodes of ops that read or write at positions: gather and scatter, index_*,
-- x[{...}] and x[{...}] = v.
-- The rows are as in elements.lua. Positions count from 0 here.

local lib = require "moth.binding.lib"
local proto = require "moth.onnx.proto"

local ops = {}

local C = lib.C
local BOOL, I64 = C.MOTH_BOOL, C.MOTH_I64

local function ndim(x) return #x.shapes[1] end
local function same_shape(a, b)
  return table.concat(a.shapes[1], ",") == table.concat(b.shapes[1], ",")
end

-- Reshapes a tensor without dimensions to shape (1).
local function at_least_1d(g, x)
  return ndim(x) == 0 and g:Reshape(x, g:ints {1}) or x
end

-- Applies f to a tensor of at least one dimension; the result has the shape of x.
local function as_vector(g, x, f)
  if ndim(x) > 0 then return f(x) end
  return g:Squeeze(f(g:Reshape(x, g:ints {1})), g:ints {0})
end

-- ---- gather, scatter ----

function ops.index_select(g, a)
  return as_vector(g, a.input, function(x)
    return g:Gather(x, at_least_1d(g, a.index), {axis = a.dim})
  end)
end

function ops.gather(g, a)
  return as_vector(g, a.input, function(x)
    return g:GatherElements(x, at_least_1d(g, a.index), {axis = a.dim})
  end)
end

function ops.take(g, a)
  return g:Gather(g:Reshape(a.input, g:ints { -1}), a.index, {axis = 0})
end

-- Expands x to the sizes of y in all dimensions but one, as broadcasting does.
local function widened(g, x, y, dim)
  local sizes, changed = {unpack(x.shapes[1])}, false
  for d, n in ipairs(sizes) do
    local other = y.shapes[1][d]
    if d ~= dim + 1 and n ~= other and n == 1 then sizes[d], changed = other, true end
  end
  if not changed then return x end
  if g:varies(x.shapes) or g:varies(y.shapes) then
    g:refuse "sizes that are broadcast cannot depend on a dynamic axis"
  end
  return g:Expand(x, g:ints(sizes))
end

function ops.take_along_dim(g, a)
  if not a.dim then
    local flat = g:ints { -1}
    return g:GatherElements(g:Reshape(a.input, flat), g:Reshape(a.indices, flat), {axis = 0})
  end
  local dim = a.dim < 0 and a.dim + ndim(a.input) or a.dim
  return g:GatherElements(widened(g, a.input, a.indices, dim),
    widened(g, a.indices, a.input, dim), {axis = dim})
end

-- Returns the part of src that is read for positions of this shape: it starts at 0 in each
-- dimension.
local function part_read(g, src, index)
  if ndim(src) == 0 then return g:Expand(src, g:Shape(index)) end
  if same_shape(src, index) and not g:varies(src.shapes) then return src end
  local from, axes = lib.filled(ndim(src), 0), {}
  for d = 1, ndim(src) do axes[d] = d - 1 end
  return g:Slice(src, g:ints(from), g:Shape(index), g:ints(axes))
end

-- ScatterElements with an operand of at least one dimension.
local function scatter(g, x, index, src, dim, reduction)
  return g:ScatterElements(x, index, src, {axis = dim, reduction = reduction})
end

function ops.scatter(g, a)
  return scatter(g, a.input, a.index, part_read(g, a.src, a.index), a.dim)
end

function ops.scatter_add(g, a)
  return scatter(g, a.input, a.index, part_read(g, a.src, a.index), a.dim, "add")
end

local REDUCTIONS = {sum = "add", mean = "add", prod = "mul", amax = "max", amin = "min"}

-- The neutral element of a reduction.
local function identity(reduce, dtype)
  if reduce == "prod" then return 1 end
  if reduce ~= "amax" and reduce ~= "amin" then return 0 end
  local types, code = require "moth.tensor.types", require("moth.tensor.dtype").by_code[dtype]
  local low = reduce == "amax"
  if dtype > I64 then return low and -math.huge or math.huge end
  local info = types.iinfo(code)
  return low and info.min or info.max
end

-- index has the shape of src.
local function scatter_reduce(g, x, index, src, dim, reduce, include_self, dtype)
  local op = REDUCTIONS[reduce]
  if g.opset < 18 and (op == "max" or op == "min") then
    g:refuse("the reduction '" .. reduce .. "' needs opset_version = 18")
  end
  local function filled(value)
    return g:Expand(g:constant(value, dtype), g:Shape(index))
  end
  local base = x
  if not include_self then base = scatter(g, x, index, filled(identity(reduce, dtype)), dim) end
  local y = scatter(g, base, index, src, dim, op)
  if reduce ~= "mean" then return y end
  local counts = g:Expand(g:constant(1, dtype), g:Shape(x))
  if not include_self then counts = scatter(g, counts, index, filled(0), dim) end
  counts = scatter(g, counts, index, filled(1), dim, "add")
  -- no position selects this element
  if not include_self then counts = g:Max(counts, g:constant(1, dtype)) end
  return g:Div(y, counts)
end

function ops.scatter_reduce(g, a, c)
  local dtype = c.results[1].dtype
  if a.reduce == "mean" and dtype <= I64 then
    g:refuse "the mean of integers rounds down, which ONNX cannot express"
  end
  return scatter_reduce(g, a.input, a.index, part_read(g, a.src, a.index), a.dim, a.reduce,
    a.include_self, dtype)
end

-- ---- index_* ----

-- Expands positions in one dimension to a position for each element of `shaped`, a name.
local function along(g, index, dim, rank, shaped)
  local axes = {}
  if dim < 0 then dim = dim + rank end
  for d = 0, rank - 1 do
    if d ~= dim then axes[#axes + 1] = d end
  end
  local x = at_least_1d(g, index)
  if #axes > 0 then x = g:Unsqueeze(x, g:ints(axes)) end
  return g:Expand(x, g:Shape(shaped))
end

local function rank_of(x) return math.max(ndim(x), 1) end

function ops.index_add(g, a)
  return as_vector(g, a.input, function(x)
    local source = at_least_1d(g, a.source)
    local index = along(g, a.index, a.dim, rank_of(a.input), source)
    if a.alpha ~= 1 then source = g:Mul(source, a.alpha) end
    return scatter(g, x, index, source, a.dim, "add")
  end)
end

function ops.index_copy(g, a)
  return as_vector(g, a.input, function(x)
    local source = at_least_1d(g, a.source)
    return scatter(g, x, along(g, a.index, a.dim, rank_of(a.input), source), source, a.dim)
  end)
end

function ops.index_fill(g, a)
  return as_vector(g, a.input, function(x)
    local rows = g:Gather(x, at_least_1d(g, a.index), {axis = a.dim}) -- for its shape
    local value = g:Expand(a.value, g:Shape(rows))
    return scatter(g, x, along(g, a.index, a.dim, rank_of(a.input), rows), value, a.dim)
  end)
end

-- ---- positions in several dimensions ----

-- Returns the dimensions with positions, whether they are adjacent, and the other dimensions.
local function indexed_dims(a, rank)
  local taken, rest, adjacent = {}, {}, true
  for k = 1, rank do
    if k <= a.indices.n and a.indices[k] then
      adjacent = adjacent and (#taken == 0 or taken[#taken] == k - 2)
      taken[#taken + 1] = k - 1
    else
      rest[#rest + 1] = k - 1
    end
  end
  return taken, rest, adjacent
end

local function mask_among(a)
  for k = 1, a.indices.n do
    local x = a.indices[k]
    if x and x.dtype == BOOL then return x, k end
  end
end

-- Returns the broadcast shape of the positions, for each run.
local function joint_shapes(g, a)
  local shapes = {}
  for i = 1, g.readings do
    local rank = 0
    for k = 1, a.indices.n do
      if a.indices[k] then rank = math.max(rank, #a.indices[k].shapes[i]) end
    end
    local joint = lib.filled(rank, 1)
    for k = 1, a.indices.n do
      local shape = a.indices[k] and a.indices[k].shapes[i] or {}
      for d = 1, #shape do
        local at = rank - #shape + d
        if shape[d] ~= 1 then joint[at] = shape[d] end
      end
    end
    shapes[i] = joint
  end
  return shapes
end

-- Positions below 0 count from the end, here and in ONNX; the conversion to positions from 0 has
-- subtracted 1 from them too.
local function from_the_end(g, x)
  if not x.dynamic then return x end
  local below = g:Less(x, g:constant(0, I64))
  return g:Add(x, g:Cast(below, {to = proto.types[I64]}))
end

-- Returns the positions as one operand; its last dimension is the indexed dimension.
local function joint_positions(g, a, taken, shapes)
  local list = {}
  for k, d in ipairs(taken) do
    local index = a.indices[d + 1]
    local x = from_the_end(g, index)
    if g:varies(shapes) or table.concat(index.shapes[1], ",") ~= table.concat(shapes[1], ",") then
      x = g:Expand(x, g:sizes_of(shapes, "a number of positions"))
    end
    list[k] = g:Unsqueeze(x, g:ints { -1})
  end
  if #list == 1 then return list[1] end
  list[#list + 1] = {axis = -1}
  return g:Concat(unpack(list))
end

local function is_sorted(perm)
  for k = 1, #perm do
    if perm[k] ~= k - 1 then return false end
  end
  return true
end

local function permuted(g, x, perm)
  return is_sorted(perm) and x or g:Transpose(x, {perm = perm})
end

local function inverse(perm)
  local list = {}
  for k, d in ipairs(perm) do list[d + 1] = k - 1 end
  return list
end

local function joined(a, b)
  local list = {}
  for _, x in ipairs(a) do list[#list + 1] = x end
  for _, x in ipairs(b) do list[#list + 1] = x end
  return list
end

-- Returns the order of a result's dimensions: the n dimensions of positions are first; if the
-- indexed dimensions are adjacent, they replace the first indexed dimension.
local function places(taken, rest, adjacent, n)
  local before = adjacent and taken[1] or 0
  local perm = {}
  for d = 1, before do perm[#perm + 1] = n + d - 1 end
  for d = 0, n - 1 do perm[#perm + 1] = d end
  for d = before + 1, #rest do perm[#perm + 1] = n + d - 1 end
  return perm
end

function ops.index(g, a)
  if mask_among(a) then
    g:refuse "the number of elements depends on the mask; use where or masked_select"
  end
  local taken, rest, adjacent = indexed_dims(a, ndim(a.input))
  if #taken == 1 then
    return g:Gather(a.input, from_the_end(g, a.indices[taken[1] + 1]), {axis = taken[1]})
  end
  local shapes = joint_shapes(g, a)
  local x = permuted(g, a.input, joined(taken, rest))
  local y = g:GatherND(x, joint_positions(g, a, taken, shapes))
  return permuted(g, y, places(taken, rest, adjacent, #shapes[1]))
end

-- Sets the elements that a mask selects: to one number, or to one number for each.
local function put_masked(g, a, mask, at)
  local rank = ndim(a.input)
  local axes = {}
  for d = 1, at - 1 do axes[#axes + 1] = d - 1 end
  for d = at - 1 + ndim(mask), rank - 1 do axes[#axes + 1] = d end
  local values = a.values
  local one = ndim(values) == 0 or (ndim(values) == 1 and values.shapes[1][1] == 1)
  if one then
    local wide = #axes > 0 and g:Unsqueeze(mask, g:ints(axes)) or mask
    local value = a.accumulate and g:Add(a.input, values) or values
    return g:Where(wide, value, a.input)
  end
  if at ~= 1 then g:refuse "a mask after other dimensions can only write a single value" end
  local positions = g:Transpose(g:NonZero(mask), {perm = {1, 0}})
  local n = g:Slice(g:Shape(positions), g:ints {0}, g:ints {1})
  local sizes = rank > ndim(mask) and g:Concat(n, g:Slice(g:Shape(a.input),
    g:ints {ndim(mask)}, g:ints {rank}), {axis = 0}) or n
  return g:ScatterND(a.input, positions, g:Expand(values, sizes),
    {reduction = a.accumulate and "add" or nil})
end

function ops.index_put(g, a)
  local mask, at = mask_among(a)
  local taken, rest, adjacent = indexed_dims(a, ndim(a.input))
  if mask then
    if #taken > 1 then g:refuse "a mask and positions in one index are not supported" end
    return put_masked(g, a, mask, at)
  end
  local shapes = joint_shapes(g, a)
  local perm = joined(taken, rest)
  local x = permuted(g, a.input, perm)
  local place = places(taken, rest, adjacent, #shapes[1])
  local targets = {} -- the shape that the values are broadcast to
  for i = 1, g.readings do
    local first = joined(shapes[i], {})
    for _, d in ipairs(rest) do first[#first + 1] = a.input.shapes[i][d + 1] end
    targets[i] = {}
    for k, d in ipairs(place) do targets[i][k] = first[d + 1] end
  end
  local values = g:Expand(a.values, g:sizes_of(targets, "a size"))
  local y = g:ScatterND(x, joint_positions(g, a, taken, shapes),
    permuted(g, values, inverse(place)), {reduction = a.accumulate and "add" or nil})
  return permuted(g, y, inverse(perm))
end

-- ---- others ----

function ops.one_hot(g, a, c)
  local shape = c.results[1].shapes[1]
  return g:OneHot(a.input, g:constant(shape[#shape], I64), g:ints {0, 1})
end

function ops.masked_select(g, a)
  local x = g:Expand(a.input, g:Shape(a.mask)) -- both are broadcast
  local mask = g:Expand(a.mask, g:Shape(x))
  return g:Compress(g:Reshape(x, g:ints { -1}), g:Reshape(mask, g:ints { -1}))
end

function ops.nonzero(g, a)
  if ndim(a.input) == 0 then g:refuse "an input without dimensions is not supported" end
  return g:Transpose(g:NonZero(a.input), {perm = {1, 0}})
end

function ops.count_nonzero(g, a)
  local x = g:Cast(g:cast(a.input, BOOL), {to = proto.types[I64]})
  if not a.dim or #a.dim == 0 then return g:ReduceSum(x, {keepdims = 0}) end
  return g:ReduceSum(x, g:ints(a.dim), {keepdims = 0})
end

return ops
