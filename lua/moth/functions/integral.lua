--- integral.lua -- ops of float kernels on integers and bools, and nextafter on half types.
--
-- The core refuses these dtypes; bind.lua then calls `instead` for a result. Calls with floats do
-- not reach this file. Results are exact: they are not computed in floats.

local bind = require "moth.binding.bind"
local dtype = require "moth.tensor.dtype"
local lib = require "moth.binding.lib"

local ops, istensor = bind.ops, lib.istensor
local types = dtype.by_name

local integral = {}

local function is_bool(x) return istensor(x) and x.dtype == types.bool end
local function is_int(x) return istensor(x) and not x.dtype.is_floating_point and not is_bool(x) end

-- ---- windows ----

local function list_of(v, n, default)
  if v == nil or v == lib.none then v = default end
  if type(v) ~= "table" then return lib.filled(n, v) end
  return #v == 1 and lib.filled(n, v[1]) or v
end

-- Pads the last n dimensions of x with `value`: before[d] and after[d] elements; negative counts
-- pad nothing.
local function padded(x, n, before, after, value)
  local sides = {}
  for d = 1, n do
    sides[2 * (n - d) + 1], sides[2 * (n - d) + 2] = before[d], after[d]
  end
  return (ops.pad(x, sides, "constant", value))
end

-- Returns a view of the windows of the last n dimensions: (..., o1, ..., on, k1, ..., kn).
local function windows(x, n, k, stride, dilation)
  local first = x:dim() - n
  for d = 1, n do
    x = x:unfold(first + d, dilation[d] * (k[d] - 1) + 1, stride[d])
  end
  local key = {"..."}
  for d = 1, n do key[d + 1] = {1, -1, dilation[d]} end
  return x[key]
end

-- ---- convolution ----

local function spatial(name) return tonumber(name:match "(%d)d") end

local function convolved(x, w, n, stride, dilation, groups)
  local k = {}
  for d = 1, n do k[d] = w:size(2 + d) end
  local y, channels = {}, w:size(1) / groups
  for g = 1, groups do
    local part = x:narrow(2, (g - 1) * w:size(2) + 1, w:size(2))
    local filters = w:narrow(1, (g - 1) * channels + 1, channels):reshape(channels, -1)
    local seen = windows(part, n, k, stride, dilation):movedim(2,
      n + 2) -- channels, then the filter
    local shape = {unpack(seen.shape, 1, n + 1)}
    seen = seen:reshape(-1, filters:size(2)):matmul(filters:t())
    shape[#shape + 1] = channels
    y[g] = seen:reshape(shape):movedim(-1, 2)
  end
  return groups == 1 and y[1]:contiguous() or ops.cat(y, 2)
end

-- Returns true if weight and bias have the dtype and dimensions that x needs.
local function filters_fit(n, x, w, bias)
  return is_int(x) and istensor(w) and w.dtype == x.dtype and w:dim() == n + 2
    and (x:dim() == n + 2 or x:dim() == n + 1) and (bias == nil or bias == lib.none
    or istensor(bias) and bias.dtype == x.dtype)
end

-- Returns x with a batch dimension, and a function that removes it from a result.
local function batch_of(n, x, bias)
  local single = x:dim() == n + 1
  return single and x:unsqueeze(1) or x, function(y)
    if istensor(bias) then
      y = y + bias:reshape(lib.filled(n + 2, 1, 2, bias:size(1)))
    end
    return single and y:squeeze(1) or y
  end
end

local function conv(sig, x, w, bias, stride, padding, dilation, groups)
  local n = spatial(sig.op_name)
  if not filters_fit(n, x, w, bias) then return nil end
  groups = groups or 1
  stride, dilation = list_of(stride, n, 1), list_of(dilation, n, 1)
  local before, after = {}, {}
  for d = 1, n do
    local span = dilation[d] * (w:size(2 + d) - 1)
    if padding == "same" then
      before[d] = math.floor(span / 2)
      after[d] = span - before[d]
    else
      before[d] = padding == "valid" and 0 or list_of(padding, n, 0)[d]
      after[d] = before[d]
    end
  end
  local finish
  x, finish = batch_of(n, x, bias)
  if x:size(2) ~= w:size(2) * groups or w:size(1) % groups ~= 0 then return nil end
  return (finish(convolved(padded(x, n, before, after, 0), w, n, stride, dilation, groups)))
end

local function conv_transpose(sig, x, w, bias, stride, padding, output_padding, groups, dilation)
  local n = spatial(sig.op_name)
  if not filters_fit(n, x, w, bias) then return nil end
  groups = groups or 1
  stride, dilation = list_of(stride, n, 1), list_of(dilation, n, 1)
  padding, output_padding = list_of(padding, n, 0), list_of(output_padding, n, 0)
  local finish
  x, finish = batch_of(n, x, bias)
  if x:size(2) ~= w:size(1) then return nil end
  local shape, key, flips, before, after = {x:size(1), x:size(2)}, {"..."}, {}, {}, {}
  for d = 1, n do
    shape[2 + d] = (x:size(2 + d) - 1) * stride[d] + 1
    key[d + 1], flips[d] = {1, -1, stride[d]}, 2 + d
    before[d] = dilation[d] * (w:size(2 + d) - 1) - padding[d]
    after[d] = before[d] + output_padding[d]
  end
  local apart = ops.zeros(shape, x.dtype, x.device)
  apart[key] = x
  local parts, channels = {}, w:size(1) / groups -- filters from out to in, flipped
  for g = 1, groups do
    parts[g] = w:narrow(1, (g - 1) * channels + 1, channels):transpose(1, 2)
  end
  local filters = (groups == 1 and parts[1] or ops.cat(parts, 1)):flip(flips)
  return (finish(convolved(padded(apart, n, before, after, 0), filters, n, lib.filled(n, 1),
    dilation, groups)))
end

-- ---- pooling ----

-- Returns the sizes of a pooled result and the padding that its windows need at the end.
local function pooled_sizes(x, n, k, stride, padding, dilation, ceil_mode)
  local out, after = {}, {}
  for d = 1, n do
    local size, span = x:size(x:dim() - n + d), dilation[d] * (k[d] - 1) + 1
    local steps = (size + 2 * padding[d] - span) / stride[d]
    out[d] = (ceil_mode and math.ceil(steps) or math.floor(steps)) + 1
    if ceil_mode and (out[d] - 1) * stride[d] >= size + padding[d] then out[d] = out[d] - 1 end
    if out[d] < 1 then return nil end
    after[d] = (out[d] - 1) * stride[d] + span - size - padding[d]
  end
  return out, after
end

local function pool_arguments(sig, x, k, stride, padding, dilation, ceil_mode)
  local n = spatial(sig.op_name)
  if not istensor(x) or x:dim() < n + 1 or x:dim() > n + 2 then return nil end
  k = list_of(k, n)
  stride, padding = list_of(stride, n, k), list_of(padding, n, 0)
  dilation = list_of(dilation, n, 1)
  for d = 1, n do
    if stride[d] < 1 or padding[d] < 0 or 2 * padding[d] > k[d] then return nil end
  end
  local out, after = pooled_sizes(x, n, k, stride, padding, dilation, ceil_mode)
  return out and n, k, stride, padding, after, dilation
end

local function avg_pool(sig, input, kernel, step, border, ceil_mode, count_include_pad, divisor)
  if not is_int(input) then return nil end
  local n, k, stride, padding, after = pool_arguments(sig, input, kernel, step, border, 1,
    ceil_mode)
  if not n then return nil end
  local dims, ones = {}, lib.filled(n, 1)
  for d = 1, n do dims[d] = -d end
  local function sums(x, value)
    return (windows(padded(x, n, padding, after, value), n, k, stride, ones):sum(dims))
  end
  local total, count = sums(input, 0), divisor
  if type(count) ~= "number" then
    local shape = {unpack(input.shape, input:dim() - n + 1)}
    local inside = ops.ones(shape, types.int64, input.device)
    if count_include_pad ~= false then
      local border_of = {}
      for d = 1, n do border_of[d] = math.min(padding[d], after[d]) end
      inside = padded(inside, n, padding, border_of, 1)
      local more = {}
      for d = 1, n do more[d] = after[d] - border_of[d] end
      count = windows(padded(inside, n, lib.filled(n, 0), more, 0), n, k, stride, ones):sum(dims)
    else
      count = sums(inside, 0)
    end
  end
  return (total:div(count, {rounding_mode = "trunc"}):to(input.dtype))
end

local function max_pool(sig, input, kernel, step, border, dilation, ceil_mode, return_indices)
  if not is_int(input) then return nil end
  local n, k, stride, padding, after, spread = pool_arguments(sig, input, kernel, step, border,
    dilation, ceil_mode)
  if not n then return nil end
  local least = require("moth.tensor.types").iinfo(input.dtype).min
  local function seen(x, value)
    local y = windows(padded(x, n, padding, after, value), n, k, stride, spread)
    local shape = {unpack(y.shape, 1, y:dim() - n)}
    shape[#shape + 1] = -1
    return (y:reshape(shape))
  end
  local y, at = seen(input, least):max(-1)
  if not return_indices then return y end
  local shape, total = {unpack(input.shape, input:dim() - n + 1)}, 1
  for d = 1, n do total = total * shape[d] end
  local places = seen(ops.arange(1, total + 1, 1, types.int64, input.device):reshape(shape), 1)
  local of_each = {unpack(y.shape)}
  of_each[#of_each + 1] = -1
  return y, (places:expand(of_each):gather(-1, at:unsqueeze(-1)):squeeze(-1))
end

-- ---- bool ----

local BYTE = types.uint8

-- Runs the op on bytes and converts its result to bool.
local function through_bytes(sig, x, ...)
  if not is_bool(x) then return nil end
  local rest, n = {...}, select("#", ...)
  for i = 1, n do
    if is_bool(rest[i]) then rest[i] = rest[i]:to(BYTE) elseif istensor(rest[i])
      and rest[i].dtype.is_floating_point then return nil end
  end
  return (ops[sig.op_name](x:to(BYTE), unpack(rest, 1, n)):ne(0))
end

-- Runs the op in float32: it only moves elements, and integers up to 2^24 are exact.
local function through_floats(sig, x, ...)
  if not is_bool(x) then return nil end
  return (ops[sig.op_name](x:float(), ...):ne(0))
end

local function itself(_, x) return is_bool(x) and x:clone() or nil end

-- Returns a function that runs the op after type promotion of its tensors.
local function promoted(least)
  return function(sig, x, y, ...)
    if not istensor(x) or not istensor(y) or x.dtype == y.dtype then return nil end
    local common = require("moth.tensor.types").result_type(x, y)
    if common == x.dtype and common == y.dtype or least and not common.is_floating_point then
      return nil
    end
    return (ops[sig.op_name](x:to(common), y:to(common), ...))
  end
end

local function inner(sig, x, y)
  if istensor(x) and istensor(y) and (x:dim() == 0 or y:dim() == 0) then return (ops.mul(x, y)) end
  return (promoted()(sig, x, y))
end

local function kron(sig, x, y, ...)
  if is_bool(x) and is_bool(y) then return (through_bytes(sig, x, y, ...)) end
  return (promoted()(sig, x, y, ...))
end

local function is_integer(v) return type(v) ~= "number" or v % 1 == 0 end

-- Promotes the input to a float type if a bound is a float.
local function clamp(sig, x, low, high)
  if not is_bool(x) then return nil end
  local to = types.bool
  for _, v in ipairs {low or false, high or false} do
    if istensor(v) then
      to = require("moth.tensor.types").promote_types(to, v.dtype)
    elseif type(v) ~= "boolean" and not to.is_floating_point then
      to = is_integer(v) and types.int64 or require("moth").get_default_dtype()
    end
  end
  if to == types.bool then return (through_bytes(sig, x, low, high)) end
  return (ops[sig.op_name](x:to(to), low, high))
end

local function addr(_, x, a, b, beta, alpha)
  if not istensor(x) or not istensor(a) or not istensor(b) then return nil end
  if beta == nil then beta = 1 end
  if alpha == nil then alpha = 1 end
  if x.dtype ~= a.dtype or a.dtype ~= b.dtype then
    local promote = require("moth.tensor.types").promote_types
    local common = promote(x.dtype, promote(a.dtype, b.dtype))
    return (ops.addr(x:to(common), a:to(common), b:to(common), beta, alpha))
  end
  if not is_bool(x) then return nil end
  local product = a:unsqueeze(-1):logical_and(b)
  if alpha == 0 or alpha == false then product = ops.zeros_like(product) end
  if beta == 0 or beta == false then return product end
  return (x:logical_or(product))
end

local function scatter_reduce(_, x, dim, index, src, reduce, include_self)
  if not is_bool(x) or not is_bool(src) then return nil end
  local wide = types.int64
  return (ops.scatter_reduce(x:to(wide), dim, index, src:to(wide), reduce, include_self):ne(0))
end

-- ---- other ops ----

local function embedding(_, index, weight, ...)
  local max_norm = select(2, ...)
  if not istensor(weight) or weight.dtype.is_floating_point or weight:dim() ~= 2
    or max_norm ~= nil and max_norm ~= lib.none then
    return nil
  end
  if lib.is_plain(index) then
    index = require("moth.tensor.create").integers(index, "embedding", "input")
  end
  return (ops.index(weight, {index}))
end

local function l1_loss(_, x, y, reduction)
  if not is_int(x) or not is_int(y) or not (x.shape == y.shape) then return nil end
  if reduction ~= "none" and reduction ~= "sum" then return nil end
  local apart = (x - y):abs()
  return reduction == "sum" and apart:sum() or apart
end

local BYTE_MODES = {nearest = true, ["nearest-exact"] = true, bilinear = true, bicubic = true}

-- Averages of bytes are bytes.
local function interpolate(_, x, size, scale_factor, mode, ...)
  if not istensor(x) or x.dtype ~= BYTE or mode ~= nil and not BYTE_MODES[mode] then return nil end
  return (ops.interpolate(x:float(), size, scale_factor, mode, ...):add(0.5):floor()
    :clamp(0, 255):to(BYTE))
end

-- Of each half type: the bits of the significand with its leading 1, the smallest number and the
-- largest number.
local HALVES = {[types.float16] = {11, 2 ^ -24, 65504},
                 [types.bfloat16] = {8, 2 ^ -133, (2 - 2 ^ -7) * 2 ^ 127}}

-- Computes the neighbours of half types in float64.
local function nextafter(_, x, y)
  if not istensor(x) or not istensor(y) then return nil end
  local common = require("moth.tensor.types").promote_types(x.dtype, y.dtype)
  local half = HALVES[common]
  if not half then return nil end
  local a, b = x:detach():to(types.float64), y:detach():to(types.float64)
  local mantissa, exponent = require("moth.functions.pointwise").frexp(a)
  local up = b:gt(a)
  local away = up:eq(a:gt(0))
  exponent = exponent - half[1]
  exponent = exponent - away:logical_not():logical_and(mantissa:abs():eq(0.5)):to(exponent.dtype)
  local step = ops.pow(2, exponent:to(types.float64)):clamp(half[2])
  local z = ops.where(up, a + step, a - step)
  z = ops.where(a:eq(0), ops.where(up, half[2], -half[2]), z)
  z = ops.where(a:isinf(), a:sign() * half[3], z)
  z = ops.where(a:eq(b), b, z)
  return (ops.where(a:isnan():logical_or(b:isnan()), 0 / 0, z):to(common))
end

local ROWS = {
  nextafter = nextafter,
  conv1d = conv, conv2d = conv, conv3d = conv, conv_transpose1d = conv_transpose,
  conv_transpose2d = conv_transpose, conv_transpose3d = conv_transpose,
  avg_pool1d = avg_pool, avg_pool2d = avg_pool, avg_pool3d = avg_pool,
  max_pool1d = max_pool, max_pool2d = max_pool, max_pool3d = max_pool,
  im2col = through_floats, fold = through_floats,
  sign = itself, sgn = itself, kron = kron, inner = inner, dist = promoted(true),
  square = function(_, x) return is_bool(x) and x:to(types.int64) or nil end,
  clamp = clamp, clamp_tensor = clamp, addr = addr, scatter_reduce = scatter_reduce,
  embedding = embedding, l1_loss = l1_loss, interpolate = interpolate,
}

--- Returns true if an op supports integers, bools or mixed dtypes in this file, although its record
-- does not.
function integral.takes(name) return ROWS[name] ~= nil or ROWS[name:gsub("_$", "")] ~= nil end

-- The in-place form: converts the result to the input's dtype and writes it to the input.
local function in_place(sig, x, ...)
  local bare = sig.op_name:match "^(.*[^_])_$"
  if not ROWS[bare] then return nil end
  local y = ROWS[bare]({op_name = bare, name = sig.name, index = sig.index}, x, ...)
  if y == nil or y.dtype ~= x.dtype or not (y.shape == x.shape) then return nil end
  return x:copy_(y)
end

--- Returns the results of an op for integers or bools that the core refuses; nil if there are none.
-- @param sig  the op's signature
-- @param ...  its arguments in position
function integral.instead(sig, ...)
  local run = ROWS[sig.op_name]
  if not run then return in_place(sig, ...) end
  local out = sig.index.out
  local target = out and select(out, ...)
  if target == nil or not istensor(target) then return run(sig, ...) end
  local args = {...}
  args[out] = nil
  local y = run(sig, unpack(args, 1, out - 1))
  return y and require("moth.binding.out").write(sig, target, y)
end

return integral
