--- attention.lua -- attention nodes of an ONNX graph, and related nodes.

local M = require "moth"
local rows = require "moth.onnx.load.rows"

local F = M.nn.functional
local N, row, refuse = rows.N, rows.row, rows.refuse

-- Reshapes (batch, length, heads * size) to (batch, heads, length, size).
local function headed(x, heads)
  return x:reshape(x:size(1), x:size(2), heads, -1):transpose(2, 3)
end

-- The inverse of headed.
local function joined(x) return x:transpose(2, 3):reshape(x:size(1), x:size(3), -1) end

-- Repeats the heads of keys and values for each query head that shares them.
local function repeated(x, heads)
  return x:size(2) == heads and x or x:repeat_interleave(heads / x:size(2), 2)
end

-- Returns a mask to add to the scores, from a mask that may be bool and shorter than the keys.
local function added(mask, length, dtype)
  local missing = length - mask:size(-1)
  if mask.dtype == M.bool then
    mask = M.where(mask, M.zeros({}, {dtype = dtype, device = mask.device}), -math.huge)
  end
  return missing > 0 and F.pad(mask, {0, missing}, {value = -math.huge}) or mask
end

-- Returns the keys that each query may use, by their positions: bool, (queries, keys) or (batch, 1,
-- queries, keys); nil for all keys. offset: the number of keys before the first query, a number or
-- (batch).
local function visible(a, q, k, offset)
  local left, right = a.left_window_size, a.right_window_size
  if a.is_causal == 0 and left < 0 and right < 0 then return nil end
  local i, j = M.arange(q:size(3)):to(q.device):unsqueeze(2), M.arange(k:size(3)):to(q.device)
  if type(offset) ~= "number" then offset = offset:long():reshape(-1, 1, 1, 1) end
  local ahead, good = j - (i + offset), nil
  local function also(x) good = good and good:logical_and(x) or x end
  if a.is_causal == 1 then also(ahead:le(0)) end
  if left >= 0 then also(ahead:ge(-left)) end
  if right >= 0 then also(ahead:le(right)) end
  return good
end

-- Returns the sum of all biases of the scores: the mask, keys excluded by position, padded keys.
local function bias_of(a, q, k, mask, past, lengths)
  local dtype, bias = q.dtype, nil
  local function also(x) bias = bias and bias + x or x end
  local function hide(good)
    also(M.where(good, M.zeros({}, {dtype = dtype, device = q.device}), -math.huge))
  end
  if mask then also(added(mask, k:size(3), dtype)) end
  local offset = past and past:size(3) or lengths and lengths:long() - q:size(3) or 0
  local good = visible(a, q, k, offset)
  if good then hide(good) end
  if lengths then
    hide(M.arange(k:size(3)):to(q.device):lt(lengths:long():reshape(-1, 1, 1, 1)))
  end
  return bias
end

-- Computes scores and weights by separate ops, for options that scaled_dot_product_attention lacks.
local function in_steps(a, q, k, v, bias, scale)
  local root = math.sqrt(scale)
  local scores = (q * root):matmul(k:transpose(-1, -2) * root)
  local shown = scores
  if a.softcap > 0 then scores = (scores / a.softcap):tanh() * a.softcap end
  if a.qk_matmul_output_mode == 1 then shown = scores end
  if bias then scores = scores + bias end
  if a.qk_matmul_output_mode == 2 then shown = scores end
  local dtype = a.softmax_precision ~= 0 and rows.dtype(a.softmax_precision) or scores.dtype
  local weights = scores:to(dtype):softmax(-1)
  if bias then -- a query without visible keys
    weights = M.where(bias:amax {dim = -1, keepdim = true}:eq(-math.huge), 0, weights)
  end
  if a.qk_matmul_output_mode == 3 then shown = weights end
  return weights:to(q.dtype):matmul(v), shown:to(q.dtype)
end

N.Attention = row("3 is_causal=0 kv_num_heads:int q_num_heads:int qk_matmul_output_mode=0 "
  .. "scale:float softcap=0.0 softmax_precision=0 left_window_size=-1 right_window_size=-1",
  function(a, q, k, v, mask, past_key, past_value, lengths)
    local flat = q:dim() == 3
    if flat then
      if not (a.q_num_heads and a.kv_num_heads) then refuse "no q_num_heads or kv_num_heads" end
      q, k, v = headed(q, a.q_num_heads), headed(k, a.kv_num_heads), headed(v, a.kv_num_heads)
    end
    if past_key then k, v = M.cat({past_key, k}, 3), M.cat({past_value, v}, 3) end
    local keys, values = repeated(k, q:size(2)), repeated(v, q:size(2))
    local scale = a.scale or 1 / math.sqrt(q:size(4))
    local bias = bias_of(a, q, k, mask, past_key, lengths)
    local y, scores
    if a.noutputs < 4 and a.softcap == 0 and a.softmax_precision == 0 then
      y = F.scaled_dot_product_attention(q, keys, values, {attn_mask = bias, scale = scale})
    else
      y, scores = in_steps(a, q, keys, values, bias, scale)
    end
    return flat and joined(y) or y, k, v, scores
  end)

-- ---- rotary positions ----

N.RotaryEmbedding = row("3 interleaved=0 num_heads=0 rotary_embedding_dim=0",
  function(a, x, cos, sin, positions)
    local flat = x:dim() == 3
    if flat then
      if a.num_heads == 0 then refuse "no num_heads" end
      x = headed(x, a.num_heads)
    end
    local size = a.rotary_embedding_dim ~= 0 and a.rotary_embedding_dim or x:size(4)
    local rest = x:size(4) > size and x:narrow(4, size + 1, x:size(4) - size)
    if positions then
      local at = rows.positions(positions, cos:size(1))
      cos, sin = cos[at], sin[at]
    end
    cos, sin = cos:unsqueeze(2), sin:unsqueeze(2) -- (batch, 1, length, size / 2)
    local part = x:narrow(4, 1, size)
    local u, v
    if a.interleaved == 1 then
      part = part:reshape(x:size(1), x:size(2), x:size(3), -1, 2)
      u, v = part:select(5, 1), part:select(5, 2)
    else
      u, v = part:narrow(4, 1, size / 2), part:narrow(4, size / 2 + 1, size / 2)
    end
    local real, imag = cos * u - sin * v, sin * u + cos * v
    local y = a.interleaved == 1 and M.stack({real, imag}, 5):flatten(4)
      or M.cat({real, imag}, 4)
    if rest then y = M.cat({y, rest}, 4) end
    return flat and joined(y) or y
  end)

-- ---- linear attention ----

-- Each head has a state, which each step updates: it decays (gated), and adds the difference to the
-- stored value (delta).
N.LinearAttention = row("3 chunk_size=64 kv_num_heads:int! q_num_heads:int! scale=0.0 "
  .. "update_rule=gated_delta", function(a, q, k, v, past, decay, beta)
  local rule, dtype, heads = a.update_rule, q.dtype, a.kv_num_heads
  local gated, delta = rule:find "gated" ~= nil, rule:find "delta" ~= nil
  if not gated and not delta and rule ~= "linear" then
    refuse("update_rule %s", rows.quoted(rule))
  elseif gated ~= (decay ~= nil) or delta ~= (beta ~= nil) then
    refuse("update_rule %s with or without decay and beta", rule)
  end
  q, k, v = headed(q, a.q_num_heads):float(), headed(k, heads):float(), headed(v, heads):float()
  local scale = a.scale ~= 0 and a.scale or 1 / math.sqrt(q:size(4))
  local state_dtype = past and past.dtype or dtype
  local state = past and past:float()
    or M.zeros(q:size(1), heads, k:size(4), v:size(4), {device = q.device})
  if gated then decay = headed(decay, heads):float():exp() end
  if delta then beta = headed(beta, beta:size(3)):float() end
  local list = {}
  for t = 1, q:size(3) do
    local key, value = k:narrow(3, t, 1), v:narrow(3, t, 1) -- (batch, heads, 1, size)
    if gated then state = state * decay:narrow(3, t, 1):transpose(3, 4) end
    if delta then value = beta:narrow(3, t, 1) * (value - key:matmul(state)) end
    state = state + key:transpose(3, 4) * value
    list[t] = q:narrow(3, t, 1):matmul(repeated(state, a.q_num_heads)) * scale
  end
  return joined(M.cat(list, 3)):to(dtype), state:to(state_dtype)
end)

return rows
