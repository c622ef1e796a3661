--- The single operations of workloads.txt: the meaning of `fn` on Moth's side.

local moth = require "moth"

local F = moth.nn.functional

--- Functions of the inputs.
local plain = {
  add = function(a, b) return a + b end,
  add16 = function(a, b) return a + b end,
  add16_inplace = function(a, b) return a:add_(b) end,
  mul = function(a, b) return a * b end,
  chain16_grad = function(a, b, c) return ((a + c) * b):sum() end,
  square0 = function(x) return x * x end,
  matmul = function(a, b) return a:matmul(b) end,
  matmul4 = function(a, b) return a:matmul(b) end,
  bmm = function(a, b) return a:bmm(b) end,
  view = function(x) return x[4] end,
  list_item = function() return moth.tensor({0.1, 0.2, 0.3, 0.4})[1]:item() end,

  relu = function(x) return x:relu() end,
  exp = function(x) return x:exp() end,
  tanh = function(x) return x:tanh() end,
  gelu = function(x) return F.gelu(x) end,
  dropout = function(x) return F.dropout(x) end,

  sum_all = function(x) return x:sum() end,
  cumsum = function(x) return x:cumsum(2) end,
  sort = function(x) return x:sort() end,
  topk = function(x) return x:topk(10) end,

  layer_norm = function(x, weight, bias) return F.layer_norm(x, x:size(2), weight, bias) end,
  batch_norm = function(x, weight, bias, mean, var)
    return F.batch_norm{x, mean, var, weight, bias, training = true}
  end,
  cross_entropy = function(x, classes) return F.cross_entropy(x, classes) end,
  sdpa_causal = function(q, k, v)
    return F.scaled_dot_product_attention{q, k, v, is_causal = true}
  end,

  max_pool2d = function(x) return F.max_pool2d(x, 2) end,
  avg_pool2d = function(x) return F.avg_pool2d(x, 2) end,
  adaptive_avg_pool2d = function(x) return F.adaptive_avg_pool2d(x, 1) end,
  upsample_bilinear = function(x)
    return F.interpolate{x, scale_factor = 2, mode = "bilinear"}
  end,

  embedding = function(ids, table) return F.embedding(ids, table) end,
  index_select = function(x, ids) return x:index_select(1, ids) end,
  gather = function(x, ids) return x:gather(2, ids) end,
  masked_select = function(x, mask) return x:masked_select(mask) end,
  mask_write = function(x, mask) x[mask] = 0 end,

  cat = function(...) return moth.cat({...}, 2) end,
  transpose_copy = function(x) return x:t():contiguous() end,
  randn = function() return moth.randn(1e6) end,
}

--- Constructors of functions that depend on the row's options.
local made = {}

for _, name in ipairs {"sum", "mean", "softmax", "log_softmax"} do
  local fn = moth[name]
  made[name] = function(options)
    local dim = options.dim + 1
    return function(x) return fn(x, dim) end
  end
end

function made.max(options)
  local dim = options.dim + 1
  return function(x)
    local values, positions = x:max(dim)
    return values, positions
  end
end

function made.conv2d(options)
  local stride, padding, groups = options.stride or 1, options.padding or 0, options.groups or 1
  return function(x, weight, bias)
    return F.conv2d(x, weight, bias, {stride = stride, padding = padding, groups = groups})
  end
end

function made.conv_transpose2d(options)
  local stride, padding = options.stride, options.padding
  return function(x, weight, bias)
    return F.conv_transpose2d(x, weight, bias, {stride = stride, padding = padding})
  end
end

function made.conv3d(options)
  local padding = options.padding
  return function(x, weight, bias) return F.conv3d(x, weight, bias, {padding = padding}) end
end

-- ---- the kinds of rows with a single call ----

local workloads = require "workloads"

local ops = {plain = plain, made = made}

local function function_of(row)
  local fn = plain[row.fn] or made[row.fn] and made[row.fn](row.options)
  return fn or error("Moth has no " .. row.fn)
end

--- One call; nothing is recorded unless an input requires a gradient.
function ops.call(row)
  local fn = function_of(row)
  local a, b, c, d, e = unpack(workloads.inputs(row, row.kind == "graph"))
  return function() return fn(a, b, c, d, e) end
end

ops.graph = ops.call

--- Forward, or forward and backward.
function ops.op(row)
  if not row.backward then return ops.call(row) end
  local fn = function_of(row)
  local inputs = workloads.inputs(row, true)
  local a, b, c, d, e = unpack(inputs)
  local leaves = {}
  for _, x in ipairs(inputs) do
    if x.requires_grad then leaves[#leaves + 1] = x end
  end
  local first = fn(a, b, c, d, e)
  local out_grad = moth.randn(first.shape, {dtype = first.dtype})
  return function()
    for i = 1, #leaves do leaves[i].grad = nil end
    local y = fn(a, b, c, d, e)
    y:backward(out_grad)
  end
end

return ops
