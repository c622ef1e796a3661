--- passes.lua -- the batch rules of internal ops, which backward passes consist of, and of less
-- common ops: name -> rule. See named.lua.

local bind = require "moth.binding.bind"
local rules = require "moth.func.batch.rules"

local ops = bind.ops
local tensor, ints, int = rules.tensor, rules.ints, rules.int

local passes = {}

local function each_name(names, rule)
  for name in names:gmatch "%S+" do passes[name] = rule end
end

local function whole(replay) return function(x) return replay:whole(x) end end

-- ---- views and their gradients ----

local function with(first, list) return {first, unpack(list)} end

local function reach(offset, sizes, strides)
  for d, size in ipairs(sizes) do offset = offset + math.max(size - 1, 0) * strides[d] end
  return offset + 1
end

-- The geometries of a base and a view, with the samples one after the other.
local function geometry(replay, entry, meta)
  local base_size, base_stride = ints(entry, meta, "base_size"), ints(entry, meta, "base_stride")
  local size, stride = ints(entry, meta, "size"), ints(entry, meta, "stride")
  local base_offset, offset = int(entry, meta, "base_offset"), int(entry, meta, "offset")
  local span = math.max(reach(base_offset, base_size, base_stride), reach(offset, size, stride))
    - math.min(base_offset, offset)
  return rules.run(replay, entry, meta, whole(replay), {
    base_size = with(replay.size, base_size), base_stride = with(span, base_stride),
    size = with(replay.size, size), stride = with(span, stride)})
end
each_name("strided_get strided_sum strided_put", geometry)

local function of_size(argument)
  return function(replay, entry, meta)
    return rules.run(replay, entry, meta, whole(replay),
      {[argument] = rules.shape(replay, entry.results[1])})
  end
end
passes.pad_back = of_size "size"

function passes.row_place(replay, entry, meta)
  local d, shape = int(entry, meta, "dim"), rules.shape(replay, entry.results[1])
  if #shape == 1 then return nil end
  return rules.run(replay, entry, meta, whole(replay),
    {dim = (d < 0 and d + #shape - 1 or d) + 1, size = shape})
end

function passes.row_pick(replay, entry, meta)
  local d, ndim = int(entry, meta, "dim"), replay:facts(entry.tensors[1]).ndim
  if ndim == 0 then return nil end
  return rules.run(replay, entry, meta, whole(replay), {dim = (d < 0 and d + ndim or d) + 1})
end

function passes.diag_embed(replay, entry, meta)
  local ndim = replay:facts(entry.results[1]).ndim
  local dims = rules.shift({int(entry, meta, "dim1"), int(entry, meta, "dim2")}, ndim)
  return rules.run(replay, entry, meta, whole(replay), {dim1 = dims[1], dim2 = dims[2]})
end

function passes.trace(replay, entry)
  return {(ops.sum(ops.diagonal(replay:whole(entry.tensors[1]), 0, 2, 3), 2))}
end

-- ---- products ----

local function outer_rows(replay, entry, sums)
  local a, b = entry.tensors[1], entry.tensors[2]
  local function rows(x)
    local facts = replay:facts(x)
    local width = facts.shape[facts.ndim]
    return ops.reshape(replay:value(x), replay:batched(x)
      and {replay.size, width > 0 and facts.numel / width or 0, width}
      or {width > 0 and facts.numel / width or 0, width})
  end
  local left, right = rows(a), rows(b)
  local got = {(ops.matmul(ops.transpose(left, -2, -1), right))}
  if sums then
    got[2] = ops.sum(left, -2)
    if not replay:batched(a) then
      got[2] = ops.expand(got[2], rules.shape(replay, entry.results[2]))
    end
  end
  return got
end
function passes.outer_sum(replay, entry) return outer_rows(replay, entry, false) end
function passes.outer_sum_rows(replay, entry) return outer_rows(replay, entry, true) end

-- ---- images ----

-- Tensors that are each a batch of images, or one image. The samples become part of the batch.
local function images(replay, entry, meta)
  local rank, ndim = 4, replay:facts(entry.tensors[1]).ndim
  if ndim ~= rank and ndim ~= rank - 1 then return nil end
  local got = rules.run(replay, entry, meta, function(x)
    local facts, y = replay:facts(x), replay:whole(x)
    if ndim ~= rank then return y end
    return (ops.reshape(y, {replay.size * facts.shape[1], unpack(facts.shape, 2)}))
  end)
  for k, y in ipairs(entry.results) do
    if got and got[k] then got[k] = ops.reshape(got[k], rules.shape(replay, y)) end
  end
  return got
end
each_name("avg_pool2d_back adaptive_avg_pool2d_back max_pool2d_back max_pool2d_pick resize "
  .. "resize_back grid_sample im2col", images)

local function same_weight(rank)
  return function(replay, entry, meta)
    if replay:batched(tensor(entry, meta, "weight")) then return nil end
    local x = entry.tensors[1]
    if replay:facts(x).ndim ~= rank then return nil end
    local shape = replay:facts(x).shape
    local xs = ops.reshape(replay:whole(x), {replay.size * shape[1], unpack(shape, 2)})
    local got = rules.run(replay, entry, meta, function(y)
      return y == x and xs or replay:value(y)
    end)
    return got and {(ops.reshape(got[1], rules.shape(replay, entry.results[1])))}
  end
end
passes.conv2d_input, passes.conv3d_input = same_weight(4), same_weight(5)

-- The gradient of filters, with the samples as groups of channels.
local function filters(rank)
  return function(replay, entry, meta)
    local n, size = replay:facts(entry.tensors[1]).shape[1], replay.size
    if replay:facts(entry.tensors[1]).ndim ~= rank then return nil end
    local got = rules.run(replay, entry, meta, function(x)
      local shape = replay:facts(x).shape
      local y = ops.reshape(replay:whole(x), {size, n, unpack(shape, 2)})
      return (ops.reshape(ops.transpose(y, 1, 2), {n, size * shape[2], unpack(shape, 3)}))
    end, {groups = int(entry, meta, "groups") * size})
    return got and {(ops.reshape(got[1], rules.shape(replay, entry.results[1])))}
  end
end
passes.conv2d_weight, passes.conv3d_weight = filters(4), filters(5)

-- ---- positions ----

-- Rows of the first tensor at positions that are equal for all samples.
local function at_positions(replay, entry, meta)
  local index, ndim = tensor(entry, meta, "index"), replay:facts(entry.tensors[1]).ndim
  if replay:batched(index) or ndim == 0 then return nil end
  local source = tensor(entry, meta, "source")
  if source and replay:facts(source).ndim ~= ndim then return nil end
  local d = int(entry, meta, "dim")
  return rules.run(replay, entry, meta, function(x)
    return x == index and replay:value(x) or replay:whole(x)
  end, {dim = (d < 0 and d + ndim or d) + 1})
end
each_name("index_add index_copy index_fill", at_positions)

-- Compares elements with the elements of a tensor that is equal for all samples.
local function among(name)
  return function(replay, entry, meta)
    local other = tensor(entry, meta, name)
    if replay.numbers[other._slot] or replay:batched(other) then return nil end
    return rules.run(replay, entry, meta, function(x) return replay:value(x) end)
  end
end
passes.isin, passes.bucketize = among "test_elements", among "boundaries"

-- ---- other ops ----

-- The maximum of all elements is the maximum along all dimensions: equal elements share gradients.
local function of_all(op)
  return function(replay, entry)
    return {(ops[op](ops.reshape(replay:whole(entry.tensors[1]), {replay.size,
      replay:facts(entry.tensors[1]).numel}), 2))}
  end
end
passes.max_all, passes.min_all = of_all "amax", of_all "amin"

function passes.prelu(replay, entry, meta)
  local x, weight = entry.tensors[1], tensor(entry, meta, "weight")
  if replay:batched(weight) or replay:facts(weight).numel ~= 1 then return nil end
  return rules.run(replay, entry, meta, function(y)
    return y == x and replay:whole(x) or replay:value(y)
  end)
end

-- Matrices with the batch before them.
local function matrices(replay, entry, meta)
  local _, most, least = rules.ranks(replay, entry)
  if least < 2 or most ~= least then return nil end
  return rules.run(replay, entry, meta, whole(replay))
end
each_name("linalg_svd linalg_qr linalg_eigh linalg_eig linalg_eigvals linalg_lu_factor "
  .. "linalg_inv_ex linalg_cholesky_ex linalg_pinv linalg_cofactor linalg_cofactor_back "
  .. "linalg_solve linalg_solve_triangular linalg_det linalg_inv linalg_cholesky linalg_slogdet "
  .. "linalg_eigvalsh linalg_svdvals tril triu pixel_shuffle pixel_unshuffle", matrices)

return passes
