--- named.lua -- the batch rules of ops that do not follow from the kinds of their arguments: name
-- -> rule.

local bind = require "moth.binding.bind"
local lib = require "moth.binding.lib"
local rules = require "moth.func.batch.rules"
local types = require("moth.tensor.dtype").by_name

local ops = bind.ops
local tensor, ints, int = rules.tensor, rules.ints, rules.int

local named = {}

--- Elementwise ops whose kernels need packed tensors, and random ops whose results have the shape
-- of their tensor.
named.elementwise = {}
for name in ("contiguous positions positions_there to_index from_index count_from_one relu_back "
    .. "bernoulli poisson standard_gamma dropout dropout_apply exponential geometric normal random "
    .. "uniform"):gmatch "%S+" do
  named.elementwise[name] = true
end

-- Ops that the rule of elementwise ops does not suit: the second tensor of prelu_spread has one
-- element per channel.
local function without() return nil end
named.prelu_spread, named.fused = without, without

local function each_name(names, rule)
  for name in names:gmatch "%S+" do named[name] = rule end
end

-- ---- shapes ----

-- Reshapes x to the first sample's result shape.
local function to_shape(replay, entry)
  local x = replay:batched(entry.tensors[1])
  if not x then return nil end
  local shape = rules.shape(replay, entry.results[1])
  return {(ops.reshape(x, shape))}
end
each_name("view reshape flatten ravel unflatten squeeze unsqueeze view_as reshape_as", to_shape)

local function to_expanded(replay, entry)
  local y = entry.results[1]
  local x = rules.align(replay, entry.tensors[1], replay:facts(y).ndim)
  return {(ops.expand(x, rules.shape(replay, y)))}
end
each_name("expand broadcast_to expand_as", to_expanded)

function named.permute(replay, entry, meta)
  local ndim = replay:facts(entry.tensors[1]).ndim
  local dims = rules.shift(ints(entry, meta, "dims"), ndim)
  table.insert(dims, 1, 0)
  return rules.run(replay, entry, meta, function(x) return replay:whole(x) end, {dims = dims})
end

function named.t(replay, entry)
  local x = replay:whole(entry.tensors[1])
  if replay:facts(entry.tensors[1]).ndim < 2 then return {(ops.view_as(x, x))} end
  return {(ops.transpose(x, 2, 3))}
end

-- The gradient of a sum, in the shape of the summed tensor.
function named.spread(replay, entry, meta)
  local size = rules.shape(replay, entry.results[1])
  local ndim, dims = #size - 1, ints(entry, meta, "dim")
  if ndim == 0 then return {(ops.view_as(replay:whole(entry.tensors[1]), entry.tensors[1]))} end
  if not dims or #dims == 0 then
    dims = {}
    for d = 1, ndim do dims[d] = d - 1 end
  end
  return rules.run(replay, entry, meta, function(x) return replay:whole(x) end,
    {size = size, dim = rules.shift(dims, ndim)})
end

function named.split(replay, entry, meta)
  local d, ndim = int(entry, meta, "dim"), replay:facts(entry.tensors[1]).ndim
  return rules.run(replay, entry, meta, function(x) return replay:whole(x) end,
    {dim = (d < 0 and d + ndim or d) + 1})
end

function named.roll(replay, entry, meta)
  local dims, x = ints(entry, meta, "dims"), entry.tensors[1]
  if dims and #dims > 0 then
    dims = rules.shift(dims, replay:facts(x).ndim)
    return rules.run(replay, entry, meta, function(y) return replay:whole(y) end, {dims = dims})
  end
  local flat = ops.reshape(replay:whole(x), {replay.size, replay:facts(x).numel})
  local got = rules.run(replay, entry, meta, function() return flat end, {dims = {1}})
  return got and {(ops.reshape(got[1], rules.shape(replay, x)))}
end

local function repeated(argument)
  return function(replay, entry, meta)
    local x, counts = entry.tensors[1], ints(entry, meta, argument)
    local rank = math.max(replay:facts(x).ndim, #counts)
    while #counts < rank do table.insert(counts, 1, 1) end
    table.insert(counts, 1, 1)
    local aligned = rules.align(replay, x, rank)
    return rules.run(replay, entry, meta, function() return aligned end, {[argument] = counts})
  end
end
named["repeat"], named.tile = repeated "repeats", repeated "dims"

function named.pad(replay, entry, meta)
  return rules.run(replay, entry, meta, function(x) return replay:whole(x) end)
end

-- ---- concatenation ----

local function joins(further)
  return function(replay, entry, meta)
    local list = rules.tensors(entry, meta, "tensors")
    local ndim = replay:facts(list[1]).ndim
    for _, x in ipairs(list) do
      if replay:facts(x).ndim ~= ndim then return nil end
    end
    local d = int(entry, meta, "dim")
    return rules.run(replay, entry, meta, function(x) return replay:whole(x) end,
      {dim = (d < 0 and d + ndim + further or d) + 1})
  end
end
named.cat, named.stack = joins(0), joins(1)

-- ---- products ----

-- Returns a tensor of the batch dimension and `rank` more dimensions; missing dimensions are
-- inserted after the batch. A vector first becomes a matrix, of one row or of one column.
local function as_matrix(replay, x, rank, column)
  local y, facts = replay:batched(x), replay:facts(x)
  local shape = {unpack(facts.shape)}
  if facts.ndim == 1 then shape = column and {shape[1], 1} or {1, shape[1]} end
  if y then
    while #shape < rank do table.insert(shape, 1, 1) end
    table.insert(shape, 1, replay.size)
  end
  return ops.reshape(y or replay:value(x), shape)
end

local function product(replay, a, b)
  local na, nb = replay:facts(a).ndim, replay:facts(b).ndim
  if na == 0 or nb == 0 then return nil end
  local rank = math.max(na, nb, 2)
  return ops.matmul(as_matrix(replay, a, rank, false), as_matrix(replay, b, rank, true))
end

local function of_two(one, other)
  return function(replay, entry, meta)
    local a, b = tensor(entry, meta, one), tensor(entry, meta, other)
    if replay:facts(a).dtype ~= replay:facts(b).dtype then return nil end
    local y = product(replay, a, b)
    return y and {(ops.reshape(y, rules.shape(replay, entry.results[1])))}
  end
end
named.matmul, named.mm, named.bmm = of_two("input", "other"), of_two("input", "mat2"),
  of_two("input", "mat2")
named.mv, named.dot, named.vdot = of_two("input", "vec"), of_two("input", "tensor"),
  of_two("input", "other")

function named.outer(replay, entry, meta)
  local a, b = tensor(entry, meta, "input"), tensor(entry, meta, "vec2")
  local function side(x, column)
    local n, y = replay:facts(x).shape[1], replay:batched(x)
    local shape = column and {n, 1} or {1, n}
    if y then table.insert(shape, 1, replay.size) end
    return ops.reshape(y or replay:value(x), shape)
  end
  return {(ops.mul(side(a, true), side(b, false)))}
end

local function scaled(x, arg, entry)
  local kind, slots = tonumber(entry.slots[arg.slot].integer), entry.slots
  local value = tonumber(kind == 0 and slots[arg.slot + 1].number or slots[arg.slot + 1].integer)
  if value == 1 then return x end
  return ops.mul(x, value)
end

-- beta * input + alpha * (one @ other)
local function added(one, other)
  return function(replay, entry, meta)
    local a, b, x = tensor(entry, meta, one), tensor(entry, meta, other), entry.tensors[1]
    local dtype = replay:facts(entry.results[1]).dtype
    if rules.half(replay, a) or replay:facts(a).dtype ~= dtype or replay:facts(b).dtype ~= dtype
       or replay:facts(x).dtype ~= dtype then
      return nil
    end
    local shape = rules.shape(replay, entry.results[1])
    local own = replay:batched(a) or replay:batched(b)
    local y = ops.reshape(product(replay, a, b), own and shape or {unpack(shape, 2)})
    y = scaled(y, meta.by.alpha, entry)
    local at = meta.by.beta.slot
    if entry.slots[at].integer ~= 0 or entry.slots[at + 1].number ~= 0 then
      y = ops.add(scaled(rules.align(replay, x, #shape - 1), meta.by.beta, entry), y)
    end
    return {own and y or ops.expand(y, shape)}
  end
end
named.addmm, named.addmv, named.baddbmm = added("mat1", "mat2"), added("mat", "vec"),
  added("batch1", "batch2")

function named.linear(replay, entry, meta)
  local x, w, b = tensor(entry, meta, "input"), tensor(entry, meta, "weight"),
    tensor(entry, meta, "bias")
  if not replay:batched(w) and not (b and replay:batched(b)) then
    return rules.run(replay, entry, meta, function(y)
      return y == x and replay:whole(y) or replay:value(y)
    end)
  end
  if replay:facts(x).ndim == 0 then return nil end
  local shape = rules.shape(replay, entry.results[1])
  local columns, rows = replay:facts(w).shape[2], replay:facts(x).numel
  rows = columns > 0 and rows / columns or 0
  local xs = ops.reshape(replay:value(x), replay:batched(x) and {replay.size, rows, columns}
    or {rows, columns})
  local y = ops.matmul(xs, ops.transpose(replay:value(w), -2, -1))
  if b then y = ops.add(y, rules.align(replay, b, 2)) end
  if entry.slots[meta.by.activation.slot].integer == rules.choice(meta, "activation", "relu") then
    y = ops.relu(y)
  end
  return {(ops.reshape(y, shape))}
end

-- ---- positions ----

-- Tensors of equal rank, one of which holds positions along a dimension.
local function along_index(names, size)
  return function(replay, entry, meta)
    local ndim
    for _, name in ipairs(names) do
      local x = tensor(entry, meta, name)
      if not replay.numbers[x._slot] then
        local here = replay:facts(x).ndim
        if ndim and here ~= ndim or here == 0 then return nil end
        ndim = here
      end
    end
    local d = int(entry, meta, "dim")
    if not d then return nil end
    return rules.run(replay, entry, meta, function(x)
      return replay.numbers[x._slot] and x or replay:whole(x)
    end, {dim = (d < 0 and d + ndim or d) + 1,
          [size or "dim"] = size and rules.shape(replay, entry.results[1])
             or (d < 0 and d + ndim or d) + 1})
  end
end
named.gather, named.gather_back = along_index {"input", "index"},
  along_index({"input", "index"}, "size")
named.scatter, named.scatter_add = along_index {"input", "index", "src"},
  along_index {"input", "index", "src"}
named.scatter_reduce = along_index {"input", "index", "src"}
named.take_along_dim = along_index {"input", "indices"}

-- The rows x[index] of each sample, along dimension d (from 0): index (k) with a batch.
local function rows_of(replay, x, index, d, shape)
  local full, ones = {replay.size, unpack(shape)}, {replay.size}
  local at = replay:whole(index)
  for k = 1, #shape do ones[k + 1] = k == d + 1 and shape[k] or 1 end
  return ops.gather(replay:whole(x), d + 2, ops.add(ops.expand(ops.reshape(at, ones), full), 1))
end

function named.index_select(replay, entry, meta)
  local x, index, d = entry.tensors[1], tensor(entry, meta, "index"), int(entry, meta, "dim")
  local ndim = replay:facts(x).ndim
  if ndim == 0 or replay:facts(index).ndim ~= 1 then return nil end
  if d < 0 then d = d + ndim end
  if not replay:batched(index) then
    return rules.run(replay, entry, meta, function(y)
      return y == index and replay:value(y) or replay:whole(y)
    end, {dim = d + 1})
  end
  return {rows_of(replay, x, index, d, replay:facts(entry.results[1]).shape)}
end

local function plain_embedding(entry, meta)
  local slots, norm = entry.slots, entry.slots[meta.by.max_norm.slot].number
  return norm ~= norm and slots[meta.by.scale_grad_by_freq.slot].integer == 0
    and slots[meta.by.sparse.slot].integer == 0
end

function named.embedding(replay, entry, meta)
  local index, weight = tensor(entry, meta, "input"), tensor(entry, meta, "weight")
  if not plain_embedding(entry, meta) then return nil end
  if not replay:batched(weight) then
    return rules.run(replay, entry, meta, function(x) return replay:value(x) end)
  end
  if int(entry, meta, "padding_idx") then return nil end
  local count, width = replay:facts(index).numel, replay:facts(weight).shape[2]
  local list = ops.reshape(replay:whole(index), {replay.size, count, 1})
  local rows = ops.gather(replay:value(weight), 2, ops.add(ops.expand(list,
    {replay.size, count, width}), 1))
  return {(ops.reshape(rows, rules.shape(replay, entry.results[1])))}
end

-- Positions of each sample, in its first dimensions: the sample's number comes before them.
local function own_positions(replay, list)
  local most, out = 0, {}
  for _, index in ipairs(list) do
    if not index or replay:facts(index).dtype ~= lib.C.MOTH_I64 then return nil end
    most = math.max(most, replay:facts(index).ndim)
  end
  local shape = {replay.size}
  for d = 1, most do shape[d + 1] = 1 end
  local device = replay:whole(list[1]).device
  out[1] = ops.reshape(ops.arange(1, replay.size + 1, 1, types.int64, device), shape)
  for k, index in ipairs(list) do out[k + 1] = rules.align(replay, index, most) end
  return out
end

-- x[{...}] with positions that are equal for all samples and in consecutive dimensions. Otherwise
-- their dimensions would come before the batch in the result.
local function shared_positions(replay, list)
  local out, ended, found = {false}, false, false
  for k, index in ipairs(list) do
    if index and ended then return nil end
    found = found or index
    ended = found and not index
    out[k + 1] = index and replay:value(index)
  end
  return out
end

function named.index(replay, entry, meta)
  local list, own = rules.tensors(entry, meta, "indices"), false
  for _, index in ipairs(list) do own = own or index and replay:batched(index) end
  local indices = (own and own_positions or shared_positions)(replay, list)
  if not indices then return nil end
  local slots = lib.slots(meta.nslots)
  local handles = lib.handles(#indices)
  for k, index in ipairs(indices) do
    if index then handles[k - 1] = index end
  end
  slots[meta.by.input.slot].handle = replay:whole(entry.tensors[1])
  slots[meta.by.indices.slot].pointer = handles
  slots[meta.by.indices.slot + 1].integer = #indices
  return replay:invoke(meta, slots), handles
end

-- ---- layers ----

-- Merges the batch into the op's own batch dimension; other arguments must be equal for all
-- samples. rank(dims): the number of dimensions of a call with a batch.
local function merged(rank_of)
  return function(replay, entry, meta)
    local x = entry.tensors[1]
    for k = 2, entry.nin do
      if entry.tensors[k] and replay:batched(entry.tensors[k]) then return nil end
    end
    local facts, rank = replay:facts(x), rank_of(meta)
    if facts.ndim ~= rank and not (facts.ndim == rank - 1 and rank > 2) then return nil end
    local y = replay:value(x)
    if facts.ndim == rank then
      y = ops.reshape(y, {replay.size * facts.shape[1], unpack(facts.shape, 2)})
    end
    local got = rules.run(replay, entry, meta, function(z)
      return z == x and y or replay:value(z)
    end)
    for k, result in ipairs(entry.results) do
      if got and got[k] then got[k] = ops.reshape(got[k], rules.shape(replay, result)) end
    end
    return got
  end
end

local function spatial(meta) return tonumber(meta.name:match "(%d)d") + 2 end
local unshared = merged(spatial)
each_name("avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d adaptive_avg_pool1d "
  .. "adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d "
  .. "adaptive_max_pool3d", unshared)

-- A convolution whose weights differ between samples: the samples become groups of channels.
local function grouped(replay, entry, meta, transposed)
  local x, w, b = tensor(entry, meta, "input"), tensor(entry, meta, "weight"),
    tensor(entry, meta, "bias")
  local rank, size = spatial(meta), replay.size
  local shape = {unpack(replay:facts(x).shape)}
  if #shape == rank - 1 then table.insert(shape, 1, 1) end
  if #shape ~= rank then return nil end
  local n, channels = shape[1], shape[2]
  local xs = ops.reshape(replay:whole(x), {size, n, channels, unpack(shape, 3)})
  xs = ops.reshape(ops.transpose(xs, 1, 2), {n, size * channels, unpack(shape, 3)})
  local wide = {unpack(replay:facts(w).shape)}
  wide[1] = size * wide[1]
  local ws = ops.reshape(replay:whole(w), wide)
  local bs = b and ops.reshape(replay:whole(b), {-1})
  local got = rules.run(replay, entry, meta, function(z)
    return z == x and xs or z == w and ws or bs
  end, {groups = int(entry, meta, "groups") * size})
  if not got then return nil end
  local out = replay:facts(entry.results[1]).shape
  local filters = transposed and wide[2] * int(entry, meta, "groups") or wide[1] / size
  local y = ops.reshape(got[1], {n, size, filters, unpack(out, #out - rank + 3)})
  return {(ops.reshape(ops.transpose(y, 1, 2), rules.shape(replay, entry.results[1])))}
end

local function convolution(transposed)
  return function(replay, entry, meta)
    for k = 2, entry.nin do
      if entry.tensors[k] and replay:batched(entry.tensors[k]) then
        return grouped(replay, entry, meta, transposed)
      end
    end
    return unshared(replay, entry, meta)
  end
end
each_name("conv1d conv2d conv3d", convolution(false))
each_name("conv_transpose1d conv_transpose2d conv_transpose3d", convolution(true))

-- Weights and biases that differ between samples are applied after the norm.
local function affine(replay, entry, meta)
  local x, w, b = entry.tensors[1], tensor(entry, meta, "weight"),
    meta.by.bias and tensor(entry, meta, "bias")
  local own = w and replay:batched(w) or b and replay:batched(b)
  local got = rules.run(replay, entry, meta, function(y)
    return y == x and replay:whole(x) or replay:value(y)
  end, own and {weight = 0, [b and "bias" or "weight"] = 0})
  if not got or not own then return got end
  local rank, y = replay:facts(x).ndim, got[1]
  if w then y = ops.mul(y, rules.align(replay, w, rank)) end
  if b then y = ops.add(y, rules.align(replay, b, rank)) end
  return {y}
end
named.layer_norm, named.rms_norm = affine, affine

function named.scaled_dot_product_attention(replay, entry, meta)
  local q, mask = entry.tensors[1], tensor(entry, meta, "attn_mask")
  local ndim = replay:facts(q).ndim
  for k = 2, 3 do
    if replay:facts(entry.tensors[k]).ndim ~= ndim then return nil end
  end
  if mask and replay:facts(mask).ndim > ndim then return nil end
  return rules.run(replay, entry, meta, function(x)
    return x == mask and rules.align(replay, x, ndim) or replay:whole(x)
  end)
end

local function batch_of_images(replay, entry, meta)
  local ndim = replay:facts(entry.tensors[1]).ndim
  if ndim < 2 then return nil end
  return (merged(function() return ndim end)(replay, entry, meta))
end
named.group_norm = batch_of_images

function named.interpolate(replay, entry, meta)
  if replay:facts(entry.tensors[1]).ndim < 3 then return nil end
  return batch_of_images(replay, entry, meta)
end

function named.batch_norm(replay, entry, meta)
  if entry.slots[meta.by.training.slot].integer ~= 0 then return nil end
  return batch_of_images(replay, entry, meta)
end

function named.dropout2d(replay, entry, meta)
  if replay.draws and replay:facts(entry.tensors[1]).ndim ~= 4 then return nil end
  return batch_of_images(replay, entry, meta)
end

-- ---- losses ----

-- The result of a loss from its elementwise losses, which have the batch first.
local function reduced(replay, entry, meta, losses, count)
  local how = tonumber(entry.slots[meta.by.reduction.slot].integer)
  if how == rules.choice(meta, "reduction", "none") then return {losses} end
  if rules.half(replay, entry.results[1]) then return nil end
  local flat = ops.reshape(losses, {replay.size, -1})
  if how == rules.choice(meta, "reduction", "sum") then return {(ops.sum(flat, 2))} end
  if how ~= rules.choice(meta, "reduction", "mean") then return nil end
  if count then return {(ops.div(ops.sum(flat, 2), count))} end
  return {(ops.mean(flat, 2))}
end

local function pointwise(replay, entry, meta)
  local _, most = rules.ranks(replay, entry)
  local shape = replay:facts(entry.tensors[1]).shape
  for k = 1, entry.nin do
    local x = entry.tensors[k]
    if x and k <= 2 and table.concat(replay:facts(x).shape, ",") ~= table.concat(shape, ",") then
      return nil
    end
  end
  local got = rules.run(replay, entry, meta, function(x)
    if x == entry.tensors[1] or x == entry.tensors[2] then return replay:whole(x) end
    return rules.align(replay, x, most)
  end, {reduction = rules.choice(meta, "reduction", "none")})
  if not got then return nil end
  return reduced(replay, entry, meta, got[1])
end
each_name("mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy logit_loss chance_loss "
  .. "binary_cross_entropy_with_logits kl_div", pointwise)

-- Losses with class targets: input (C) and target (), or input (N, C, ...) and target (N, ...).
local function classes(replay, entry, meta)
  local x, target = tensor(entry, meta, "input"), tensor(entry, meta, "target")
  local mean = tonumber(entry.slots[meta.by.reduction.slot].integer)
    == rules.choice(meta, "reduction", "mean")
  local weight = tensor(entry, meta, "weight")
  if weight and (mean or replay:batched(weight)) then return nil end
  local shape, short = replay:facts(x).shape, replay:facts(target).shape
  local n = replay.size
  local xs, ts = replay:whole(x), replay:whole(target)
  if #shape > 1 then
    xs = ops.reshape(xs, {n * shape[1], unpack(shape, 2)})
    ts = ops.reshape(ts, {n * short[1], unpack(short, 2)})
  end
  local got = rules.run(replay, entry, meta, function(z)
    return z == x and xs or z == target and ts or replay:value(z)
  end, {reduction = rules.choice(meta, "reduction", "none")})
  if not got then return nil end
  local losses = ops.reshape(got[1], {n, unpack(short)})
  if not mean then return reduced(replay, entry, meta, losses) end
  local counts = ops.ne(ops.reshape(ts, {n, -1}), int(entry, meta, "ignore_index"))
  return reduced(replay, entry, meta, losses, ops.cast(ops.sum(counts, 2), losses.dtype))
end
named.cross_entropy, named.nll_loss = classes, classes

-- ---- random ----

local function drawn(replay, entry, meta)
  if not replay.draws then return nil end
  return rules.run(replay, entry, meta, function(x) return replay:value(x) end,
    {size = rules.shape(replay, entry.results[1])})
end
each_name("rand randn randint", drawn)

return named
