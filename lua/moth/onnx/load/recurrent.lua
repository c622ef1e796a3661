--- recurrent.lua -- recurrent nodes of an ONNX graph.
--
-- Moth's own lstm, gru and rnn run the usual forms. Peepholes, clip, sequence lengths and other
-- activations run step by step.

local bind = require "moth.binding.bind"
local M = require "moth"
local rows = require "moth.onnx.load.rows"

local F = M.nn.functional
local N, row, refuse = rows.N, rows.row, rows.refuse

-- ---- by Moth's own ops ----

-- The order of ONNX's gates in Moth's weights.
local GATES = {lstm = {1, 3, 4, 2}, gru = {2, 1, 3}, rnn_tanh = {1}, rnn_relu = {1}}

local function gates(x, order)
  if #order == 1 then return x end
  local chunks, list = x:chunk(#order, 1), {}
  for k, at in ipairs(order) do list[k] = chunks[at] end
  return M.cat(list, 1)
end

local function parameters(op, directions, w, r, b)
  local list, order = {}, GATES[op]
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

local function at_once(op, t)
  local x, hx = t.x, t.h
  if t.backward then x = x:flip {1} end
  if t.c then hx = {t.h, t.c} end
  local y, h, c = bind.ops[op](x, hx, parameters(op, t.directions, t.w, t.r, t.b),
    {has_biases = t.b ~= nil, bidirectional = t.directions == 2})
  if t.backward then y = y:flip {1} end
  return y:reshape(x:size(1), x:size(2), t.directions, t.size):permute(1, 3, 2, 4), h, c
end

-- ---- activations ----

local ACTIVATIONS = {
  relu = function(x) return F.relu(x) end,
  tanh = function(x) return x:tanh() end,
  sigmoid = function(x) return x:sigmoid() end,
  affine = function(x, alpha, beta) return x * alpha + beta end,
  leakyrelu = function(x, alpha) return F.leaky_relu(x, alpha) end,
  thresholdedrelu = function(x, alpha) return M.where(x:ge(alpha), x, 0) end,
  scaledtanh = function(x, alpha, beta) return (x * beta):tanh() * alpha end,
  hardsigmoid = function(x, alpha, beta) return (x * alpha + beta):clamp(0, 1) end,
  elu = function(x, alpha) return F.elu(x, alpha) end,
  softsign = function(x) return F.softsign(x) end,
  softplus = function(x) return F.softplus(x) end,
}
-- Default alpha and beta; each default that an activation has takes the next number of the node.
local USUAL = {affine = {1, 0}, leakyrelu = {0.01}, thresholdedrelu = {1},
                scaledtanh = {1, 1}, hardsigmoid = {0.2, 0.5}, elu = {1}}

-- The activations of all directions, n for each. The inputs of the gates are clipped if the node
-- has a clip; the cell, LSTM's third, is not (as in onnxruntime).
local function activations_of(a, names, clip, n)
  local list, nalpha, nbeta = {}, 0, 0
  for k, name in ipairs(names) do
    local key = name:lower()
    local f, usual = ACTIVATIONS[key], USUAL[key] or {}
    if not f then refuse("activation %s", rows.quoted(name)) end
    local alpha, beta
    if usual[1] then
      nalpha = nalpha + 1
      alpha = a.activation_alpha and a.activation_alpha[nalpha] or usual[1]
    end
    if usual[2] then
      nbeta = nbeta + 1
      beta = a.activation_beta and a.activation_beta[nbeta] or usual[2]
    end
    list[k] = function(x)
      if clip and (k - 1) % n < 2 then x = x:clamp(-clip, clip) end
      return f(x, alpha, beta)
    end
  end
  return list
end

-- ---- step by step ----

-- A cell: (t, input projection, h, c) -> h, c. `t` has r, rb (the recurrent bias), p, f and
-- product, which multiplies a state by r.
local CELLS = {}

function CELLS.lstm(t, x, h, c)
  local sum = (x + t.product(h, t.r)):chunk(4, 2)
  local i, o, f, g = sum[1], sum[2], sum[3], sum[4]
  if t.p then i, f = i + t.p[1] * c, f + t.p[3] * c end
  i = t.f[1](i)
  f = t.coupled and 1 - i or t.f[1](f)
  c = f * c + i * t.f[2](g)
  if t.p then o = o + t.p[2] * c end
  return t.f[1](o) * t.f[3](c), c
end

function CELLS.gru(t, x, h)
  local size = h:size(2)
  local z, r, n
  if t.linear then
    local sum = t.product(h, t.r)
    if t.rb then sum = sum + t.rb end
    local own = sum:chunk(3, 2)
    local parts = x:chunk(3, 2)
    z, r = t.f[1](parts[1] + own[1]), t.f[1](parts[2] + own[2])
    n = t.f[2](parts[3] + r * own[3])
  else
    local own = t.product(h, t.r:narrow(1, 1, 2 * size)):chunk(2, 2)
    local parts = x:chunk(3, 2)
    z, r = t.f[1](parts[1] + own[1]), t.f[1](parts[2] + own[2])
    n = t.f[2](parts[3] + t.product(r * h, t.r:narrow(1, 2 * size + 1, size)))
  end
  return (1 - z) * n + z * h
end

function CELLS.rnn(t, x, h) return t.f[1](x + t.product(h, t.r)) end

-- Reverses sequences (L, N, ...), each from its own end; all of L without lengths.
local function reversed(x, lengths)
  if not lengths then return x:flip {1} end
  return N.ReverseSequence.run({batch_axis = 1, time_axis = 0}, x, lengths)
end

-- One direction. @return outputs (L, N, H), the last state, the last cell
local function walk(cell, t, x, h, c, lengths, backward)
  if backward then x = reversed(x, lengths) end
  local gates_of, list = t.product(x, t.w), {}
  if t.wb then gates_of = gates_of + t.wb end
  for k = 1, x:size(1) do
    local now, cells = cell(t, gates_of[k], h, c)
    if lengths then
      local going = lengths:ge(k):unsqueeze(2)
      list[k] = M.where(going, now, 0):to(now.dtype)
      now = M.where(going, now, h)
      cells = c and M.where(going, cells, c)
    else
      list[k] = now
    end
    h, c = now, cells
  end
  local y = #list > 0 and M.stack(list, 1) or M.zeros({0, unpack(rows.shape(h))}, rows.as(h))
  return backward and reversed(y, lengths) or y, h, c
end

local function linear(x, w) return x:matmul(w:t()) end

-- The operands of a direction's cell: weights, biases, peepholes.
local function cell_of(kind, a, t, d, functions)
  local n = #functions / t.directions
  local new = {w = t.w[d], r = t.r[d], f = {unpack(functions, (d - 1) * n + 1, d * n)},
                product = t.product or linear, coupled = a.input_forget == 1,
                linear = a.linear_before_reset and a.linear_before_reset ~= 0}
  if t.p then new.p = t.p[d]:chunk(3, 1) end
  if t.b then
    local halves = t.b[d]:chunk(2, 1)
    if kind == "gru" and new.linear then new.wb, new.rb = halves[1], halves[2]
    else new.wb = halves[1] + halves[2] end
  end
  return new
end

local function step_by_step(kind, a, names, t)
  local functions = activations_of(a, names, t.clip, #names / t.directions)
  local ys, hs, cs = {}, {}, {}
  for d = 1, t.directions do
    local y, h, c = walk(CELLS[kind], cell_of(kind, a, t, d, functions), t.x, t.h[d],
      t.c and t.c[d], t.lengths, t.backward or d == 2)
    ys[d], hs[d], cs[d] = y, h, c
  end
  return M.stack(ys, 2), M.stack(hs, 1), t.c and M.stack(cs, 1)
end

-- ---- the nodes ----

-- The activations of all directions: the node's, or the defaults.
local function names_of(a, usual, directions)
  local names = a.activations
  if not names or #names == 0 then
    names = {}
    for d = 1, directions do
      for k, name in ipairs(usual) do names[(d - 1) * #usual + k] = name end
    end
  elseif #names ~= #usual * directions then
    refuse("%d activations; %d are needed", #names, #usual * directions)
  end
  return names
end

-- Moth's op for these activations, or nil.
local function op_of(kind, names, usual)
  local first = names[1]:lower()
  if kind == "rnn" and (first == "tanh" or first == "relu") then
    kind, usual = "rnn_" .. first, {names[1]}
  elseif kind == "rnn" then
    return nil
  end
  for i, name in ipairs(names) do
    if name:lower() ~= usual[(i - 1) % #usual + 1]:lower() then return nil end
  end
  return kind
end

-- Checks that all sequences have the length L: the lengths are then not needed.
local function full(lengths, n)
  for _, length in ipairs(lengths) do
    if length ~= n then return false end
  end
  return true
end

local function run(kind, a, usual, t)
  local directions = {forward = 1, reverse = 1, bidirectional = 2}
  t.directions, t.backward = directions[a.direction], a.direction == "reverse"
  if not t.directions then refuse("direction %s", rows.quoted(a.direction)) end
  local batched = a.layout == 1
  if batched then
    t.x = t.x:transpose(1, 2)
    t.h, t.c = t.h and t.h:transpose(1, 2), t.c and t.c:transpose(1, 2)
  end
  local function zeros()
    return M.zeros(t.directions, t.x:size(2), t.size, rows.as(t.x))
  end
  t.h = t.h or zeros()
  if kind == "lstm" then t.c = t.c or zeros() end
  local names = names_of(a, usual, t.directions)
  if t.lengths and full(t.lengths, t.x:size(1)) then t.lengths = nil end
  if t.lengths then t.lengths = M.tensor(t.lengths, {dtype = M.int64, device = t.x.device}) end
  t.clip = a.clip and a.clip > 0 and a.clip or nil
  local op = op_of(kind, names, usual)
  local y, h, c
  if op and not (t.lengths or t.p or t.clip or t.product or a.input_forget == 1
     or a.linear_before_reset == 0 or t.x:size(1) == 0) then
    y, h, c = at_once(op, t)
  else
    y, h, c = step_by_step(kind, a, names, t)
  end
  if not batched then return y, h, c end
  return y:permute(3, 1, 2, 4), h:transpose(1, 2), c and c:transpose(1, 2)
end

local ATTRIBUTES = " hidden_size:int direction=forward activations:strings clip:float "
  .. "activation_alpha:floats activation_beta:floats "

local function recurrent(kind, usual, more)
  return row("3" .. ATTRIBUTES .. "layout=0 " .. more, function(a, x, w, r, b, lengths, h, c, p)
    return run(kind, a, usual, {x = x, w = w, r = r, b = b, lengths = lengths, h = h, c = c, p = p,
                                 size = r:size(3)})
  end, "5")
end
N.LSTM = recurrent("lstm", {"Sigmoid", "Tanh", "Tanh"}, "input_forget=0")
N.GRU = recurrent("gru", {"Sigmoid", "Tanh"}, "linear_before_reset=0")
N.RNN = recurrent("rnn", {"Tanh"}, "")

-- ---- 8-bit weights ----

-- x quantized to 8-bit integers.
local function through_bytes(x)
  local q, scale, zero = require("moth.onnx.load.quantized").dynamic(x)
  return (q - zero) * scale
end

-- 8-bit weights (directions, in, gates) as floats (directions, gates, in).
local function weights_of(q, scale, zero)
  local function sided(t) -- one for each direction, or for each of its columns
    if t:numel() == 1 then return t:reshape({}) end
    return t:dim() == 2 and t:unsqueeze(2) or t:reshape(-1, 1, 1)
  end
  local w = q:float()
  if zero then w = w - sided(zero:float()) end
  return (w * sided(scale)):transpose(2, 3)
end

-- Inputs and states are quantized before each product (as in onnxruntime).
N["com.microsoft.DynamicQuantizeLSTM"] = row("3" .. ATTRIBUTES .. "input_forget=0",
  function(a, x, w, r, b, lengths, h, c, p, w_scale, w_zero, r_scale, r_zero)
    return run("lstm", a, {"Sigmoid", "Tanh", "Tanh"}, {x = x, b = b, lengths = lengths, h = h,
      w = weights_of(w, w_scale, w_zero), r = weights_of(r, r_scale, r_zero), c = c, p = p,
      size = r:size(2), product = function(y, weight) return linear(through_bytes(y), weight) end})
  end, "5")

return rows
