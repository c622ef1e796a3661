--- layers.lua -- ONNX nodes of layers: matrix products, convolutions, pools, norms, embeddings,
-- attention, recurrent nets, resampling. The rows have the form of elements.lua.

local lib = require "moth.binding.lib"
local Graph = require "moth.onnx.export.graph"
local proto = require "moth.onnx.proto"

local C, float = lib.C, Graph.float
local ops = {}

-- ---- products ----

local function rectified(g, y, activation)
  return activation == "relu" and g:Relu(y) or y
end

-- x with its last two dimensions swapped.
local function transposed(g, x)
  local n, perm = #x.shapes[1], {}
  for d = 1, n do perm[d] = d - 1 end
  perm[n - 1], perm[n] = n - 1, n - 2
  return g:Transpose(x, {perm = perm})
end

function ops.linear(g, a)
  local y
  if #a.input.shapes[1] == 2 and #a.weight.shapes[1] == 2 then
    y = g:Gemm(a.input, a.weight, a.bias, {transB = 1})
  else
    y = g:MatMul(a.input, #a.weight.shapes[1] == 2 and transposed(g, a.weight) or a.weight)
    if a.bias then y = g:Add(y, a.bias) end
  end
  return rectified(g, y, a.activation)
end

function ops.matmul(g, a) return g:MatMul(a.input, a.other) end
function ops.mm(g, a) return g:MatMul(a.input, a.mat2) end
function ops.mv(g, a) return g:MatMul(a.input, a.vec) end
function ops.dot(g, a) return g:MatMul(a.input, a.tensor) end
ops.bmm = ops.mm

function ops.outer(g, a)
  return g:Mul(g:Unsqueeze(a.input, g:ints {1}), g:Unsqueeze(a.vec2, g:ints {0}))
end

local function added(first, second)
  return function(g, a)
    local y = g:MatMul(a[first], a[second])
    if a.alpha ~= 1 then y = g:Mul(y, a.alpha) end
    return g:Add(a.beta == 1 and a.input or g:Mul(a.input, a.beta), y)
  end
end
ops.addmm, ops.addmv = added("mat1", "mat2"), added("mat", "vec")
ops.baddbmm = added("batch1", "batch2")

-- ---- convolutions ----

-- Padding at the beginning of each dimension, then at the end of each.
local function both(padding)
  local list, n = {}, #padding
  for d = 1, n do list[d], list[d + n] = padding[d], padding[d] end
  return list
end

-- Adds a batch dimension of size 1 if there is none; returns a function that removes it.
local function batched(g, a, rank, f)
  if #a.input.shapes[1] == rank + 2 then return f(a.input) end
  return g:Squeeze(f(g:Unsqueeze(a.input, g:ints {0})), g:ints {0})
end

local function conv(rank)
  return function(g, a)
    local given = {strides = a.stride, dilations = a.dilation, group = a.groups}
    if type(a.padding) == "table" then
      given.pads = both(a.padding)
    elseif a.padding == "same" then -- an odd element is padded at the end
      given.pads = {}
      for d = 1, rank do
        local total = a.dilation[d] * (a.weight.shapes[1][d + 2] - 1)
        given.pads[d] = math.floor(total / 2)
        given.pads[d + rank] = total - given.pads[d]
      end
    end
    return batched(g, a, rank, function(x) return g:Conv(x, a.weight, a.bias, given) end)
  end
end

local function conv_transpose(rank)
  return function(g, a)
    local given = {strides = a.stride, dilations = a.dilation, group = a.groups,
                    pads = both(a.padding), output_padding = a.output_padding}
    return batched(g, a, rank, function(x) return g:ConvTranspose(x, a.weight, a.bias, given) end)
  end
end

-- ---- pools ----

-- Returns the attributes of windows. With ceil_mode a window may start after the padded input:
-- Moth, and ONNX from opset 22 on, omit this window.
local function windows(a)
  return {kernel_shape = a.kernel_size, strides = a.stride, pads = both(a.padding),
           ceil_mode = a.ceil_mode and 1 or 0}
end

local function max_pool(rank)
  return function(g, a)
    if a.return_indices then g:refuse "ONNX numbers the positions of a pool differently" end
    local given = windows(a)
    given.dilations = a.dilation
    return batched(g, a, rank, function(x) return g:MaxPool(x, given) end)
  end
end

local function avg_pool(rank)
  return function(g, a)
    if a.divisor_override then g:refuse "ONNX has no divisor_override" end
    local given = windows(a)
    given.count_include_pad = a.count_include_pad and 1 or 0
    return batched(g, a, rank, function(x) return g:AveragePool(x, given) end)
  end
end

-- Adaptive pools whose windows do not divide the input, dimension by dimension: means by a product
-- with a matrix, maxima by a reduction of each window.
local function uneven(g, x, mean, rank, from, to)
  for d = 1, rank do
    local n, m = from[d], to[d]
    local cuts, matrix = {}, lib.filled(n * m, 0)
    for k = 0, m - 1 do
      local first, last = math.floor(k * n / m), math.ceil((k + 1) * n / m)
      cuts[k + 1] = {first, last}
      for i = first, last - 1 do matrix[i * m + k + 1] = 1 / (last - first) end
    end
    if mean then
      local perm = {}
      for k = 0, rank + 1 do perm[k + 1] = k end
      perm[d + 2], perm[rank + 2] = rank + 1, d + 1
      x = g:Transpose(x, {perm = perm})
      x = g:MatMul(x, g:constant(matrix, g.dtype, {n, m}))
      x = g:Transpose(x, {perm = perm})
    else
      local axis, list = g:ints {d + 1}, {}
      for k, cut in ipairs(cuts) do
        local part = g:Slice(x, g:ints {cut[1]}, g:ints {cut[2]}, axis)
        list[k] = g.opset >= 18 and g:ReduceMax(part, axis, {keepdims = 1})
          or g:ReduceMax(part, {axes = {d + 1}, keepdims = 1})
      end
      list[#list + 1] = {axis = d + 1}
      x = g:Concat(unpack(list))
    end
  end
  return x
end

-- ONNX has only global adaptive pools; other sizes are written as windows.
local function adaptive(rank, global, op)
  return function(g, a, c)
    if a.return_indices then g:refuse "ONNX numbers the positions of a pool differently" end
    local from, kernel, all, divides = a.input.shapes, {}, true, true
    local last, sizes, wanted = #from[1] - rank, {}, {}
    for d = 1, rank do
      sizes[d], wanted[d] = from[1][last + d], c.results[1].shapes[1][last + d]
      kernel[d] = sizes[d] / wanted[d]
      all = all and wanted[d] == 1
      divides = divides and kernel[d] == math.floor(kernel[d])
    end
    return batched(g, a, rank, function(x)
      if all then return g[global](g, x) end
      for d = last + 1, last + rank do
        for i = 2, g.readings do
          if from[1][d] ~= from[i][d] then
            g:refuse "the image size cannot be a dynamic axis; only the batch can"
          end
        end
      end
      if divides then return g[op](g, x, {kernel_shape = kernel, strides = kernel}) end
      return uneven(g, x, op == "AveragePool", rank, sizes, wanted)
    end)
  end
end

for rank = 1, 3 do
  local d = rank .. "d"
  ops["conv" .. d], ops["conv_transpose" .. d] = conv(rank), conv_transpose(rank)
  ops["max_pool" .. d], ops["avg_pool" .. d] = max_pool(rank), avg_pool(rank)
  ops["adaptive_avg_pool" .. d] = adaptive(rank, "GlobalAveragePool", "AveragePool")
  ops["adaptive_max_pool" .. d] = adaptive(rank, "GlobalMaxPool", "MaxPool")
end

-- ---- norms ----

-- A constant vector, for a layer without weight or bias.
local function filled(g, x, value, n)
  if x then return x end
  return g:constant(lib.filled(n, value), g.dtype)
end

function ops.batch_norm(g, a)
  if a.training then g:refuse "it normalizes by the batch; export in eval mode" end
  local n = a.input.shapes[1][2]
  local y = g:BatchNormalization(a.input, filled(g, a.weight, 1, n), filled(g, a.bias, 0, n),
    a.running_mean, a.running_var, {epsilon = float(a.eps)})
  if a.residual then y = g:Add(y, a.residual) end
  return rectified(g, y, a.activation)
end

function ops.instance_norm(g, a)
  local n = a.input.shapes[1][2]
  if not a.use_input_stats then
    return ops.batch_norm(g, {input = a.input, weight = a.weight, bias = a.bias, eps = a.eps,
      running_mean = a.running_mean, running_var = a.running_var})
  end
  return g:InstanceNormalization(a.input, filled(g, a.weight, 1, n), filled(g, a.bias, 0, n),
    {epsilon = float(a.eps)})
end

function ops.layer_norm(g, a)
  local n = 1
  for _, size in ipairs(a.normalized_shape) do n = n * size end
  local scale = a.weight
  if not scale then -- optional only in Moth
    scale = g:constant(lib.filled(n, 1), g.dtype, a.normalized_shape)
  end
  return g:LayerNormalization(a.input, scale, a.bias,
    {axis = -#a.normalized_shape, epsilon = float(a.eps)})
end

-- The mean over the last n dimensions, with keepdim.
local function mean_of_last(g, x, n)
  local axes = {}
  for d = 1, n do axes[d] = -d end
  if g.opset >= 18 then return g:ReduceMean(x, g:ints(axes)) end
  return g:ReduceMean(x, {axes = axes})
end

function ops.rms_norm(g, a)
  local square = mean_of_last(g, g:Mul(a.input, a.input), #a.normalized_shape)
  local eps = a.eps or (g.dtype == C.MOTH_F64 and 2 ^ -52 or 2 ^ -23)
  local y = g:Div(a.input, g:Sqrt(g:Add(square, eps)))
  return a.weight and g:Mul(y, a.weight) or y
end

-- Groups become the channels of an instance norm, because GroupNormalization changed its weights
-- in opset 21.
function ops.group_norm(g, a, c)
  local n = a.num_groups
  local shape, rest, left = a.input.shapes, 1 / n, -1
  for d = 2, #shape[1] do rest = rest * shape[1][d] end
  local fixed = true -- this gives an empty batch a shape too
  for i = 2, g.readings do
    for d = 2, #shape[1] do fixed = fixed and shape[i][d] == shape[1][d] end
  end
  if fixed then left = math.floor(rest + 0.5) end
  local x = g:Reshape(a.input, g:ints {0, n, left})
  local y = g:InstanceNormalization(x, filled(g, nil, 1, n), filled(g, nil, 0, n),
    {epsilon = float(a.eps)})
  y = g:Reshape(y, g:varies(a.input.shapes) and g:Shape(a.input)
    or g:ints(c.results[1].shapes[1]))
  local sizes = { -1}
  for d = 3, #a.input.shapes[1] do sizes[d - 1] = 1 end
  if a.weight then y = g:Mul(y, g:Reshape(a.weight, g:ints(sizes))) end
  return a.bias and g:Add(y, g:Reshape(a.bias, g:ints(sizes))) or y
end

-- ---- embedding ----

function ops.embedding(g, a)
  if a.max_norm then g:refuse "max_norm changes the weights, which ONNX cannot express" end
  return g:Gather(a.weight, a.input, {axis = 0})
end

-- Sums of (B, N) tokens by row; with a list of bag numbers, sums of (N) tokens by bag.
function ops.bag_sum(g, a, c)
  local x = g:Gather(a.weight, a.input, {axis = 0})
  if a.per_sample_weights then
    x = g:Mul(x, g:Unsqueeze(a.per_sample_weights, g:ints { -1}))
  end
  if a.padding_idx then
    local padding = g:constant(a.padding_idx % a.weight.shapes[1][1], a.input.dtype)
    x = g:Where(g:Unsqueeze(g:Equal(a.input, padding), g:ints { -1}), 0, x)
  end
  if not a.list then return g:ReduceSum(x, g:ints {1}, {keepdims = 0}) end
  local result = c.results[1]
  local zeros = g:Expand(g:constant(0, result.dtype), g:sizes_of(result.shapes, "a size"))
  local bag = g:Expand(g:Unsqueeze(a.list, g:ints { -1}), g:Shape(x))
  return g:ScatterElements(zeros, bag, x, {axis = 0, reduction = "add"})
end

-- ---- distances ----

local function norm_of_rows(g, x, p)
  local parts = p == 1 and g:Abs(x) or g:Mul(x, x)
  local sum = g:ReduceSum(parts, g:ints { -1}, {keepdims = 0})
  return p == 1 and sum or g:Sqrt(sum)
end

-- Rows i < j of x, as two matrices.
local function pairs_of_rows(g, x)
  local rows = {{x.shapes[1][1]}}
  for i = 2, g.readings do rows[i] = {x.shapes[i][1]} end
  if g:varies(rows) then g:refuse "the number of rows cannot depend on a dynamic axis" end
  local first, second = {}, {}
  for i = 0, rows[1][1] - 1 do
    for j = i + 1, rows[1][1] - 1 do
      first[#first + 1], second[#second + 1] = i, j
    end
  end
  return g:Gather(x, g:ints(first), {axis = 0}), g:Gather(x, g:ints(second), {axis = 0})
end

function ops.distances(g, a)
  if not a.x2 then return norm_of_rows(g, g:Sub(pairs_of_rows(g, a.x1)), a.p) end
  local apart = g:Sub(g:Unsqueeze(a.x1, g:ints { -2}), g:Unsqueeze(a.x2, g:ints { -3}))
  return norm_of_rows(g, apart, a.p)
end

-- ---- attention ----

-- -inf above the diagonal of (L, S) scores, 0 elsewhere.
local function causal(g, q, k)
  local sizes = {}
  for i = 1, g.readings do
    sizes[i] = {q.shapes[i][#q.shapes[i] - 1], k.shapes[i][#k.shapes[i] - 1]}
  end
  local ones
  if g:varies(sizes) then
    ones = g:Expand(g:constant(1, C.MOTH_I64), g:sizes_of(sizes, "a number of positions"))
  else
    ones = g:constant(lib.filled(sizes[1][1] * sizes[1][2], 1), C.MOTH_I64, sizes[1])
  end
  local kept = g:Cast(g:Trilu(ones, {upper = 0}), {to = proto.types[C.MOTH_BOOL]})
  return g:Where(kept, 0, -math.huge)
end

-- Returns true if a mask of numbers may exclude keys: it has -inf elements, or its values are
-- unknown.
local function may_hide(mask)
  return mask.dynamic or require("moth").no_grad(function()
    return mask.handle:isneginf():any():item()
  end)
end

function ops.scaled_dot_product_attention(g, a)
  if a.dropout_p > 0 then g:refuse "it draws random numbers; export in eval mode" end
  local q, k = a.query, a.key
  local nq, nk = #q.shapes[1], #k.shapes[1]
  if a.enable_gqa and q.shapes[1][nq - 2] ~= k.shapes[1][nk - 2] then
    g:refuse("enable_gqa with fewer key heads is not supported; use repeat_interleave on the keys "
      .. "and values")
  end
  local scale = a.scale or 1 / math.sqrt(q.shapes[1][nq])
  local scores = g:MatMul(g:Mul(q, scale), transposed(g, k))
  local mask = a.attn_mask
  if mask and mask.dtype == C.MOTH_BOOL then
    mask = g:Where(mask, 0, -math.huge)
  elseif mask and not may_hide(mask) then
    scores, mask = g:Add(scores, mask), nil
  end
  if a.is_causal then
    mask = mask and g:Add(mask, causal(g, q, k)) or causal(g, q, k)
  end
  if not mask then return g:MatMul(g:Softmax(scores, {axis = -1}), a.value) end
  local weights = g:Softmax(g:Add(scores, mask), {axis = -1})
  if a.attn_mask then -- a row without keys has no weights
    weights = g:Where(g:IsInf(mask, {detect_positive = 0}), 0, weights)
  end
  return g:MatMul(weights, a.value)
end

-- ---- recurrent nets ----

-- The order of Moth's gates in ONNX's nodes.
local GATES = {lstm = {1, 4, 2, 3}, gru = {2, 1, 3}, rnn_tanh = {1}, rnn_relu = {1}}
local NODES = {lstm = "LSTM", gru = "GRU", rnn_tanh = "RNN", rnn_relu = "RNN"}

-- Returns the weights of all directions as one constant, with the gates in ONNX's order. parts: a
-- list of tensors for each direction, which are concatenated.
local function gates(parts, order)
  local moth = require "moth"
  local rows = {}
  for d, list in ipairs(parts) do
    local reordered = {}
    for i, x in ipairs(list) do
      local chunks, taken = x:chunk(#order, 1), {}
      for k, at in ipairs(order) do taken[k] = chunks[at] end
      reordered[i] = moth.cat(taken, 1)
    end
    rows[d] = moth.cat(reordered, 1)
  end
  return moth.stack(rows, 1)
end

-- A new constant.
local function held(x)
  local moth = require "moth"
  local value = {handle = moth.no_grad(function() return x:detach() end),
                  dtype = lib.inspect(x).dtype, shapes = {{unpack(x.shape)}}}
  return setmetatable(value, Graph.Value)
end

-- Returns W, R and B of a layer's node. The layer's params begin at `first`, `per` for each
-- direction.
local function weights(g, a, kind, first, per, directions)
  local moth = require "moth"
  local order, w, r, b = GATES[kind], {}, {}, {}
  for d = 1, directions do
    local at = first + (d - 1) * per
    for k = 0, per - 1 do
      if not a.params[at + k].handle or a.params[at + k].dynamic then
        g:refuse "its weights depend on the inputs"
      end
    end
    w[d], r[d] = {a.params[at].handle}, {a.params[at + 1].handle}
    if a.has_biases then b[d] = {a.params[at + 2].handle, a.params[at + 3].handle} end
  end
  return moth.no_grad(function()
    return held(gates(w, order)), held(gates(r, order)),
      a.has_biases and held(gates(b, order)) or false
  end)
end

-- Layer `l` of a state (layers * directions, batch, hidden).
local function state_of(g, x, l, directions)
  return g:Slice(x, g:ints {(l - 1) * directions}, g:ints {l * directions}, g:ints {0})
end

local function recurrent(kind)
  return function(g, a)
    if a.batch_sizes then g:refuse "packed sequences have no counterpart in ONNX" end
    if a.train and a.dropout > 0 then g:refuse "it draws random numbers; export in eval mode" end
    if #a.input.shapes[1] ~= 3 then g:refuse "a batch of sequences, (L, N, H), is needed" end
    local directions, per = a.bidirectional and 2 or 1, a.has_biases and 4 or 2
    if #a.params ~= a.num_layers * directions * per then
      g:refuse "projections (proj_size) have no counterpart in ONNX"
    end
    local states = kind == "lstm" and a.hx or {a.hx}
    local hidden = states[1].shapes[1][3]
    local given = {hidden_size = hidden, direction = directions == 2 and "bidirectional" or nil,
                    outputs = kind == "lstm" and 3 or 2}
    if kind == "gru" then given.linear_before_reset = 1 end
    if kind == "rnn_relu" then
      given.activations = directions == 2 and {"Relu", "Relu"} or {"Relu"}
    end
    local x = a.batch_first and g:Transpose(a.input, {perm = {1, 0, 2}}) or a.input
    local last = {{}, {}}
    for l = 1, a.num_layers do
      local w, r, b = weights(g, a, kind, (l - 1) * directions * per + 1, per, directions)
      local outs = {g[NODES[kind]](g, x, w, r, b, false, state_of(g, states[1], l, directions),
        states[2] and state_of(g, states[2], l, directions) or false, given)}
      x = g:Transpose(outs[1], {perm = {0, 2, 1, 3}}) -- (L, D, N, H) to (L, N, D * H)
      x = g:Reshape(x, g:ints {0, 0, directions * hidden})
      last[1][l], last[2][l] = outs[2], outs[3]
    end
    local function joined(list)
      if #list == 1 then return list[1] end
      list[#list + 1] = {axis = 0}
      return g:Concat(unpack(list))
    end
    if a.batch_first then x = g:Transpose(x, {perm = {1, 0, 2}}) end
    return x, joined(last[1]), kind == "lstm" and joined(last[2]) or nil
  end
end
for kind in pairs(NODES) do ops[kind] = recurrent(kind) end

-- A cell has no ONNX node: write x W' + b, then the gates.
local function gates_of(g, a, h, n)
  local function product(x, w, b) return g:Gemm(x, w, b, {transB = 1}) end
  local given = {axis = -1, outputs = n, num_outputs = g.opset >= 18 and n or nil}
  local function split(y) return n == 1 and {y} or {g:Split(y, false, given)} end
  return split(product(a.input, a.w_ih, a.b_ih)), split(product(h, a.w_hh, a.b_hh))
end

function ops.lstm_cell(g, a)
  local x, h = gates_of(g, a, a.hx[1], 4)
  local function gate(k, f) return g[f](g, g:Add(x[k], h[k])) end
  local c = g:Add(g:Mul(gate(2, "Sigmoid"), a.hx[2]), g:Mul(gate(1, "Sigmoid"), gate(3, "Tanh")))
  return g:Mul(gate(4, "Sigmoid"), g:Tanh(c)), c
end

function ops.gru_cell(g, a)
  local x, h = gates_of(g, a, a.hx, 3)
  local reset, update = g:Sigmoid(g:Add(x[1], h[1])), g:Sigmoid(g:Add(x[2], h[2]))
  local new = g:Tanh(g:Add(x[3], g:Mul(reset, h[3])))
  return g:Add(g:Mul(g:Sub(1, update), new), g:Mul(update, a.hx))
end

function ops.rnn_tanh_cell(g, a)
  local x, h = gates_of(g, a, a.hx, 1)
  return g:Tanh(g:Add(x[1], h[1]))
end
function ops.rnn_relu_cell(g, a)
  local x, h = gates_of(g, a, a.hx, 1)
  return g:Relu(g:Add(x[1], h[1]))
end

-- ---- images ----

local MODES = {nearest = "nearest", ["nearest-exact"] = "nearest", linear = "linear",
                bilinear = "linear", trilinear = "linear", bicubic = "cubic"}

function ops.interpolate(g, a, c)
  if not MODES[a.mode] then g:refuse("ONNX has no mode '" .. a.mode .. "'") end
  local rank = #a.input.shapes[1]
  local transform = a.align_corners and "align_corners"
    or a.mode == "nearest" and "asymmetric" or "half_pixel"
  if rank > 2 and MODES[a.mode] ~= "nearest" and not a.align_corners then
    transform = "pytorch_half_pixel"
  end
  local given = {mode = MODES[a.mode], coordinate_transformation_mode = transform,
                  cubic_coeff_a = float(-0.75),
                  nearest_mode = a.mode == "nearest" and "floor" or "round_prefer_ceil"}
  if a.scale_factor and not a.recompute_scale_factor then
    local scales = {1, 1}
    for d = 1, rank - 2 do scales[d + 2] = a.scale_factor[d] or a.scale_factor[1] end
    return g:Resize(a.input, false, g:constant(scales, C.MOTH_F32), given)
  end
  local sizes = c.results[1].shapes
  if not g:varies(sizes) then
    return g:Resize(a.input, false, false, g:ints(sizes[1]), given)
  end
  return g:Resize(a.input, false, false, g:sizes_of(sizes, "a size"), given)
end

function ops.grid_sample(g, a)
  local mode = a.mode
  if g.opset >= 20 then mode = mode:gsub("^bi", "") end
  if #a.input.shapes[1] ~= 4 then g:refuse "only images (N, C, H, W) are supported" end
  return g:GridSample(a.input, a.grid, {mode = mode, padding_mode = a.padding_mode,
    align_corners = a.align_corners and 1 or 0})
end

function ops.pixel_shuffle(g, a)
  return g:DepthToSpace(a.input, {blocksize = a.upscale_factor, mode = "CRD"})
end

function ops.pixel_unshuffle(g, a, c)
  local r, n = a.downscale_factor, c.results[1].shapes[1]
  local channels, high, wide = n[2] / (r * r), n[3], n[4]
  local x = g:Reshape(a.input, g:ints {0, channels, high, r, wide, r})
  x = g:Transpose(x, {perm = {0, 1, 3, 5, 2, 4}})
  return g:Reshape(x, g:ints {0, n[2], high, wide})
end

return ops
