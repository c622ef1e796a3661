--- projected.lua -- nn.LSTM with proj_size: the hidden state h is a projection, W_hr h', of the
-- unit's output h' (Sak et al., 2014).
--
-- The gates use W_hh h = (W_hh W_hr) h'. So the op of a plain LSTM layer runs with this product as
-- its recurrent weights, and its output is projected afterwards. The initial h has no h': it is
-- added as features of the first step.

local functional = require "moth.nn.functional"

local projected = {}

local function moth() return require "moth" end

-- Returns h0 as features of each sequence's first step in a direction: (L, N, P), 0 at other steps.
local function at_first_step(h0, direction, steps, batch_sizes)
  local n, rows = h0:size(1), {}
  for k = 1, n do
    local first = 1
    if direction == 2 then
      first = steps
      while batch_sizes and batch_sizes[first] < k do first = first - 1 end
    end
    rows[k] = (first - 1) * n + k
  end
  local none = moth().zeros({steps * n, h0:size(2)}, {dtype = h0.dtype, device = h0.device})
  return (none:index_copy(1, rows, h0):view(steps, n, -1))
end

-- Returns the weights of a layer's op, the projection of each direction, and the op's input.
local function prepare(self, layer, x, h0, batch_sizes)
  local directions = self.bidirectional and 2 or 1
  local params, projections, inputs = {}, {}, {x}
  for d = 1, directions do
    local own = {}
    for i, field in ipairs(self:_names(layer, d)) do own[i] = self[field] end
    local w_hh, w_hr = own[2], table.remove(own)
    if h0 then
      inputs[d + 1] = at_first_step(h0[d], d, x:size(1), batch_sizes)
      local wide = {own[1]}
      for k = 1, directions do wide[k + 1] = k == d and w_hh or moth().zeros_like(w_hh) end
      own[1] = moth().cat(wide, 2)
    end
    own[2] = w_hh:matmul(w_hr)
    for _, p in ipairs(own) do params[#params + 1] = p end
    projections[d] = w_hr
  end
  return params, projections, h0 and moth().cat(inputs, 3) or x
end

--- Runs the layers over a batch. Returns the output and the list of last states.
-- @param states  {h, c}; h is (layers * directions, N, proj_size), or zeros (..., hidden_size)
function projected.run(self, input, states, batch_sizes)
  local directions, wide = self.bidirectional and 2 or 1, self.hidden_size
  local swap = self.batch_first and batch_sizes == nil
  local x, h0, c0 = swap and input:transpose(1, 2) or input, states[1], states[2]
  local given, hs, cs = h0:size(3) == self.proj_size, {}, {}
  for layer = 0, self.num_layers - 1 do
    local h, c = h0:narrow(1, layer * directions + 1, directions),
      c0:narrow(1, layer * directions + 1, directions)
    local params, projections, features = prepare(self, layer, x, given and h, batch_sizes)
    local y, last
    y, last, cs[layer + 1] = functional.lstm(features, {given and moth().zeros_like(c) or h, c},
      params, {has_biases = self.bias, train = self.training, bidirectional = self.bidirectional,
        batch_sizes = batch_sizes})
    local parts = {}
    for d = 1, directions do
      parts[d] = functional.linear(y:narrow(3, (d - 1) * wide + 1, wide), projections[d])
      hs[#hs + 1] = functional.linear(last[d], projections[d])
    end
    x = moth().cat(parts, 3)
    if layer + 1 < self.num_layers then
      x = functional.dropout(x, {p = self.dropout, training = self.training})
    end
  end
  return swap and x:transpose(1, 2) or x, {moth().stack(hs), moth().cat(cs, 1)}
end

return projected
