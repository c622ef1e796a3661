--- layers.lua -- what the nodes of an ONNX graph do in Moth that are layers: products,
-- convolutions, pools, norms, recurrent nets, resampling. The rows are as in nodes.lua.

local M = require "moth"
local bind = require "moth.bind"
local lib = require "moth.lib"
local nodes = require "moth.onnx.load.nodes"

local F, N, row = M.nn.functional, nodes.N, nodes.row

local function refuse(...) error(string.format(...), 0) end

-- ---- products ----

N.Gemm = row("2 alpha=1.0 beta=1.0 transA=0 transB=0", function(a, x, y, c)
  if a.transA == 0 and a.transB == 1 and a.alpha == 1 and a.beta == 1 and c and c:dim() == 1
     and c:size(1) == y:size(1) then
    return F.linear(x, y, c)
  end
  if a.transA == 1 then x = x:t() end
  if a.transB == 1 then y = y:t() end
  local z = x:mm(y)
  if a.alpha ~= 1 then z = z * a.alpha end
  if c and a.beta ~= 1 then c = c * a.beta end
  return c and z + c or z
end)

-- ---- windows ----

-- What is padded before and after each dimension, for windows of these sizes.
local function padding(a, x, kernel, strides, dilations)
  local n, before, after = #kernel, {}, {}
  for d = 1, n do
    if a.auto_pad == "NOTSET" then
      before[d], after[d] = a.pads and a.pads[d] or 0, a.pads and a.pads[d + n] or 0
    elseif a.auto_pad == "VALID" then
      before[d], after[d] = 0, 0
    elseif a.auto_pad == "SAME_UPPER" or a.auto_pad == "SAME_LOWER" then
      local size, last = x:size(d + 2), (kernel[d] - 1) * dilations[d]
      local total = math.max((math.ceil(size / strides[d]) - 1) * strides[d] + last + 1 - size, 0)
      local less, more = math.floor(total / 2), math.ceil(total / 2)
      before[d], after[d] = less, more
      if a.auto_pad == "SAME_LOWER" then before[d], after[d] = more, less end
    else
      refuse("auto_pad '%s'", a.auto_pad)
    end
  end
  return before, after
end

local function equal(a, b)
  for i = 1, #a do
    if a[i] ~= b[i] then return false end
  end
  return true
end

-- How far windows move, and how far apart their elements lie.
local function steps(a, n)
  return a.strides or lib.filled(n, 1), a.dilations or lib.filled(n, 1)
end

-- x with its last dimensions padded.
local function padded(x, before, after, value)
  local list = {}
  for d = #before, 1, -1 do list[#list + 1], list[#list + 2] = before[d], after[d] end
  return F.pad(x, list, { value = value })
end

-- x and the padding that is left to do, where only equal sides can be left.
local function sides(a, x, kernel, strides, dilations, value)
  local before, after = padding(a, x, kernel, strides, dilations)
  if equal(before, after) then return x, before end
  return padded(x, before, after, value), lib.filled(#kernel, 0)
end

local function ranked(name, rank)
  if rank < 1 or rank > 3 then refuse("%d dimensions beside batch and channels", rank) end
  return F[name .. rank .. "d"]
end

local WINDOW = " strides:ints pads:ints dilations:ints auto_pad=NOTSET "

N.Conv = row("2 kernel_shape:ints" .. WINDOW .. "group=1", function(a, x, weight, bias)
  local kernel = { unpack(weight.shape, 3) }
  local strides, dilations = steps(a, #kernel)
  local input, pad = sides(a, x, kernel, strides, dilations, 0)
  return ranked("conv", #kernel)(input, weight, bias, strides, pad, dilations, a.group)
end)

N.ConvTranspose = row("2 kernel_shape:ints" .. WINDOW
  .. "group=1 output_padding:ints output_shape:ints",
  function(a, x, weight, bias)
    local kernel = { unpack(weight.shape, 3) }
    local n = #kernel
    local strides, dilations = steps(a, n)
    local before, after = padding(a, x, kernel, strides, dilations)
    if not equal(before, after) or a.output_shape or a.auto_pad:find "SAME" then
      refuse "padding that differs by side, or an output_shape"
    end
    local more = a.output_padding or {}
    for d = 1, n do more[d] = more[d] or 0 end
    return ranked("conv_transpose", n)(x, weight, bias, strides, before, more, a.group, dilations)
  end)

N.MaxPool = row("kernel_shape:ints!" .. WINDOW .. "ceil_mode=0 storage_order=0!", function(a, x)
  if a.noutputs > 1 then refuse "positions as a second output" end
  local n = #a.kernel_shape
  local strides, dilations = steps(a, n)
  local input, pad = sides(a, x, a.kernel_shape, strides, dilations, -math.huge)
  return (ranked("max_pool", n)(input, { kernel_size = a.kernel_shape, stride = strides,
    padding = pad, dilation = dilations, ceil_mode = a.ceil_mode == 1 }))
end)

N.AveragePool = row("kernel_shape:ints!" .. WINDOW
  .. "ceil_mode=0 count_include_pad=0", function(a, x)
  local n = #a.kernel_shape
  local strides, dilations = steps(a, n)
  if not equal(dilations, lib.filled(n, 1)) then refuse "dilations" end
  local before, after = padding(a, x, a.kernel_shape, strides, dilations)
  if not equal(before, after) and a.count_include_pad == 0 then
    refuse "padding that differs by side and is not counted"
  end
  local input, pad = sides(a, x, a.kernel_shape, strides, dilations, 0)
  return ranked("avg_pool", n)(input, { kernel_size = a.kernel_shape, stride = strides,
    padding = pad, ceil_mode = a.ceil_mode == 1, count_include_pad = a.count_include_pad == 1 })
end)

local function global(name)
  return row("", function(_, x)
    local dims = {}
    for d = 3, x:dim() do dims[d - 2] = d end
    return M[name](x, { dim = dims, keepdim = true })
  end)
end
N.GlobalAveragePool, N.GlobalMaxPool = global "mean", global "amax"

-- ---- norms ----

N.BatchNormalization = row("5 epsilon=1e-5. momentum=0.9 training_mode=0! spatial=1!",
  function(a, x, weight, bias, mean, var)
    return F.batch_norm(x, mean, var, weight, bias, false, 0, a.epsilon)
  end)
N.InstanceNormalization = row("3 epsilon=1e-5.", function(a, x, weight, bias)
  return F.instance_norm(x, { weight = weight, bias = bias, eps = a.epsilon })
end)

local function from_axis(x, axis)
  local shape = {}
  for d = nodes.place(x, axis), x:dim() do shape[#shape + 1] = x:size(d) end
  return shape
end

N.LayerNormalization = row("2 axis=-1 epsilon=1e-5. stash_type=1!", function(a, x, weight, bias)
  if a.noutputs > 1 then refuse "the mean as a second output" end
  return F.layer_norm(x, from_axis(x, a.axis), weight, bias, a.epsilon)
end)
N.RMSNormalization = row("2 axis=-1 epsilon=1e-5. stash_type=1!", function(a, x, weight)
  return F.rms_norm(x, from_axis(x, a.axis), weight, a.epsilon)
end)
local GROUPS = "3 num_groups:int! epsilon=1e-5. stash_type=1!"
N.GroupNormalization = row(GROUPS, function(a, x, weight, bias)
  if a.opset < 21 then -- one for each group
    local per = x:size(2) / a.num_groups
    weight, bias = weight:repeat_interleave(per), bias:repeat_interleave(per)
  end
  return F.group_norm(x, a.num_groups, weight, bias, a.epsilon)
end)
N.LpNormalization = row("axis=-1 p=2", function(a, x)
  return F.normalize(x, a.p, nodes.dim(a.axis))
end)

-- ---- resampling ----

local RANKED = { linear = { "linear", "bilinear", "trilinear" }, cubic = { false, "bicubic" } }

-- The mode of interpolate, and whether corners are aligned.
local function mode_of(a, rank)
  local how = a.coordinate_transformation_mode
  if a.mode == "nearest" then
    if how == "asymmetric" and a.nearest_mode == "floor" then return "nearest" end
    if how:find "half_pixel" and a.nearest_mode:find "round" then return "nearest-exact" end
    refuse("mode nearest with %s and %s", how, a.nearest_mode)
  end
  local name = RANKED[a.mode] and RANKED[a.mode][rank]
  if not name then refuse("mode '%s' of %d dimensions", a.mode, rank) end
  if how ~= "align_corners" and not how:find "half_pixel$" then
    refuse("mode %s with %s", a.mode, how)
  end
  if a.mode == "cubic" and a.cubic_coeff_a ~= -0.75 then
    refuse("cubic_coeff_a = %g; -0.75 alone is known", a.cubic_coeff_a)
  end
  return name, how == "align_corners"
end

N.Resize = row("mode=nearest coordinate_transformation_mode=half_pixel "
  .. "nearest_mode=round_prefer_floor cubic_coeff_a=-0.75 exclude_outside=0! "
  .. "extrapolation_value=0.0 antialias=0! keep_aspect_ratio_policy=stretch! axes:ints",
  function(a, x, _, scales, sizes)
    local n = x:dim()
    local rank = n - 2
    local mode, corners = mode_of(a, rank)
    local given = sizes and #sizes > 0 and sizes or scales
    if a.axes then
      local all = {}
      for d = 1, n do all[d] = given == sizes and x:size(d) or 1 end
      for k, axis in ipairs(a.axes) do all[nodes.place(x, axis)] = given[k] end
      given, sizes = all, given == sizes and all or sizes
    end
    local list = {}
    for d = 1, n do
      if d <= 2 and given[d] ~= (given == sizes and x:size(d) or 1) then
        refuse "batch and channels in other sizes"
      elseif d > 2 then
        list[d - 2] = given[d]
      end
    end
    local options = { mode = mode, align_corners = corners or nil }
    options[given == sizes and "size" or "scale_factor"] = list
    return F.interpolate(x, options)
  end, "2 3 4")

local GRID = { linear = "bilinear", cubic = "bicubic" }
N.GridSample = row("2 mode=bilinear padding_mode=zeros align_corners=0", function(a, x, grid)
  return F.grid_sample(x, grid, { mode = GRID[a.mode] or a.mode, padding_mode = a.padding_mode,
    align_corners = a.align_corners == 1 })
end)

-- ---- recurrent nets ----

-- Where Moth has the gates of each: its order, by their places in ONNX's.
local GATES = { lstm = { 1, 3, 4, 2 }, gru = { 2, 1, 3 }, rnn_tanh = { 1 }, rnn_relu = { 1 } }

local function gates(x, order)
  if #order == 1 then return x end
  local chunks, list = x:chunk(#order, 1), {}
  for k, at in ipairs(order) do list[k] = chunks[at] end
  return M.cat(list, 1)
end

local function parameters(kind, directions, w, r, b)
  local list, order = {}, GATES[kind]
  for d = 1, directions do
    list[#list + 1] = gates(w[d], order)
    list[#list + 1] = gates(r[d], order)
    if b then
      local halves = b[d]:chunk(2, 1)
      list[#list + 1], list[#list + 2] = gates(halves[1], order), gates(halves[2], order)
    end
  end
  return list
end

-- The op for what the activations say.
local function kind_of(a, kind, directions, usual)
  local names, n = a.activations or usual, #usual
  if kind == "rnn" then kind, usual = "rnn_" .. (names[1] or ""):lower(), { names[1] } end
  local known = GATES[kind] and #names == (a.activations and directions or 1) * n
  for i, name in ipairs(names) do known = known and name == usual[(i - 1) % n + 1] end
  return known and kind or refuse("activations %s", table.concat(names, ", "))
end

local function recurrent(kind, usual, more)
  return row("3 hidden_size:int direction=forward activations:strings layout=0! clip:floats "
    .. "activation_alpha:floats activation_beta:floats " .. more,
    function(a, x, w, r, b, lengths, h, c, peepholes)
      if lengths or peepholes or a.clip then refuse "lengths, peepholes or clip" end
      if kind == "gru" and a.linear_before_reset ~= 1 then refuse "linear_before_reset = 0" end
      local both, backward = a.direction == "bidirectional", a.direction == "reverse"
      local directions, n, size = both and 2 or 1, x:size(2), r:size(3)
      local op = kind_of(a, kind, directions, usual)
      local function state(s)
        return s or M.zeros(directions, n, size, { dtype = x.dtype, device = x.device })
      end
      local hx = state(h)
      if kind == "lstm" then hx = { hx, state(c) } end
      if backward then x = x:flip { 1 } end
      local y, h_n, c_n = bind.ops[op](x, hx, parameters(op, directions, w, r, b),
        { has_biases = b ~= nil, bidirectional = both })
      if backward then y = y:flip { 1 } end
      return y:reshape(x:size(1), n, directions, size):permute(1, 3, 2, 4), h_n, c_n
    end)
end
N.LSTM = recurrent("lstm", { "Sigmoid", "Tanh", "Tanh" }, "input_forget=0!")
N.GRU = recurrent("gru", { "Sigmoid", "Tanh" }, "linear_before_reset=0")
N.RNN = recurrent("rnn", { "Tanh" }, "")

return nodes
