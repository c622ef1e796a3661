--- recurrent.lua -- nn.RNN, nn.LSTM, nn.GRU over sequences, and their cells for single steps.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local Module = require "moth.nn.module"
local named = require "moth.nn.module.named"
local errors = require "moth.error"
local functional = require "moth.nn.functional"
local init = require "moth.nn.initialization"
local lib = require "moth.binding.lib"
local parameter = require "moth.nn.module.parameter"
local projected = require "moth.nn.layer.projected"
local sequence = require "moth.nn.utils.sequence"

local recurrent = {}

local SIZES = {
  {"int", "input_size", "features of each step of the input"},
  {"int", "hidden_size", "features of the state"},
}
local BIAS = {"bool", "bias", "add biases?", default = true}
local NONLINEARITY = {"enum", "nonlinearity", "the function of the state", choices = {"tanh",
  "relu"}}
local PLACE = {
  {"device", "device", "the parameters' device", optional = true},
  {"dtype", "dtype", "their element type; default: the default dtype", optional = true},
}
local SEQUENCE = {
  BIAS,
  {"bool", "batch_first", "are input and output (N, L, ...) instead of (L, N, ...)?",
    default = false},
  {"float", "dropout", "probability of a zero between layers, in training", default = 0},
  {"bool", "bidirectional", "also run each layer backward in time?", default = false},
}

local function joined(...)
  local rows = {}
  for _, part in ipairs {...} do
    for _, row in ipairs(part) do rows[#rows + 1] = row end
  end
  return rows
end

local function check_sizes(name, input_size, hidden_size)
  if input_size < 1 or hidden_size < 1 then
    errors.argument(name, input_size < 1 and "input_size" or "hidden_size",
      "a number from 1 on is needed, got " .. math.min(input_size, hidden_size), "E_DOMAIN")
  end
end

-- All parameters are initialized uniformly within 1 / sqrt(hidden_size).
local function reset(self)
  local bound = 1 / math.sqrt(self.hidden_size)
  for _, p in ipairs(self:parameters()) do init.uniform_(p, -bound, bound) end
end

-- Converts a state tensor or {h, c} to a list of `n` tensors.
local function states_of(self, hx, n)
  if n == 1 and lib.istensor(hx) then return {hx} end
  if n == 2 and type(hx) == "table" and lib.istensor(hx[1]) and lib.istensor(hx[2]) then
    return {hx[1], hx[2]}
  end
  local got = errors.describe(hx)
  if n == 2 and type(hx) == "table" and not getmetatable(hx) then
    local list = {}
    for i = 1, math.min(#hx, 3) do list[i] = errors.describe(hx[i]) end
    if #hx > 3 then list[4] = "..." end
    got = ("a table of %d, {%s}"):format(#hx, table.concat(list, ", "))
  end
  return errors.argument(class.typename(self), "hx", ("%s is needed, got %s"):format(
    n == 2 and "a table of two tensors, {h, c}," or "a tensor", got), "E_TYPE")
end

local function zeros(input, n, ...)
  local moth = require "moth"
  local list = {}
  for i = 1, n do list[i] = moth.zeros({...}, {dtype = input.dtype, device = input.device}) end
  return list
end

-- ---- sequences ----

local Base = class("RNNBase", Module)

local function names_of(self, layer, direction)
  local tail = "_l" .. layer .. (direction == 2 and "_reverse" or "")
  local names = {"weight_ih" .. tail, "weight_hh" .. tail}
  if self.bias then names[3], names[4] = "bias_ih" .. tail, "bias_hh" .. tail end
  if self.proj_size then names[#names + 1] = "weight_hr" .. tail end
  return names
end
Base._names = names_of

function Base:_build(name, gates, input_size, hidden_size, num_layers, bias, batch_first, dropout,
                     bidirectional, device, dtype)
  local moth = require "moth"
  check_sizes(name, input_size, hidden_size)
  if not (dropout >= 0 and dropout <= 1) then
    errors.refuse(name, "dropout", "a probability from 0 to 1 is needed", dropout, "E_DOMAIN")
  elseif dropout > 0 and num_layers == 1 then
    require("moth").warn(("%s: dropout applies between layers, so it has no effect with one layer")
      :format(name))
  end
  self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
  self.bias, self.batch_first, self.dropout = bias, batch_first, dropout
  self.bidirectional = bidirectional
  local directions, names = bidirectional and 2 or 1, {}
  local state = self.proj_size or hidden_size
  for layer = 0, num_layers - 1 do
    local inputs = layer == 0 and input_size or state * directions
    for direction = 1, directions do
      for i, field in ipairs(names_of(self, layer, direction)) do
        local shape = {gates * hidden_size, i == 1 and inputs or i == 2 and state or nil}
        if field:find "^weight_hr" then shape = {state, hidden_size} end
        self[field] = parameter.Parameter(moth.empty(shape, dtype, device))
        names[#names + 1] = field
      end
    end
  end
  self.parameter_names = names
  self:reset_parameters()
end

--- Reinitializes all parameters, uniformly within 1 / sqrt(hidden_size).
function Base:reset_parameters()
  reset(self)
end

--- Does nothing: parameters need no contiguous memory in Moth. It exists for compatibility with
-- PyTorch.
function Base:flatten_parameters() end

-- Runs the op over a batch. Returns the output and the list of last states.
function Base:_run(op, input, states, batch_sizes)
  if self.proj_size then return projected.run(self, input, states, batch_sizes) end
  local params = {}
  for i, field in ipairs(self.parameter_names) do params[i] = self[field] end
  local out = {functional[op](input, self.states == 2 and states or states[1], params,
    {has_biases = self.bias, num_layers = self.num_layers, dropout = self.dropout,
      train = self.training, bidirectional = self.bidirectional,
      batch_first = self.batch_first and batch_sizes == nil, batch_sizes = batch_sizes})}
  return table.remove(out, 1), out
end

-- Runs the op over an unbatched input: adds a batch dimension and removes it from the results.
function Base:_single(op, input, states)
  for i, x in ipairs(states) do
    if x:dim() ~= 2 then
      errors.refuse(class.typename(self), "hx", "(layers * directions, H) is needed for an input "
        .. "without a batch", x, "E_SHAPE")
    end
    states[i] = x:unsqueeze(2)
  end
  local dim = self.batch_first and 1 or 2
  local output, last = self:_run(op, input:unsqueeze(dim), states)
  for i, x in ipairs(last) do last[i] = x:squeeze(2) end
  return output:squeeze(dim), last
end

function Base:_packed(op, packed, hx)
  local lanes = self.num_layers * (self.bidirectional and 2 or 1)
  local input, sizes = sequence.spread(packed)
  local order, states = packed.sorted_indices
  if hx == nil then
    states = zeros(input, self.states, lanes, sizes[1], self.hidden_size)
  else
    states = states_of(self, hx, self.states)
    for i, x in ipairs(states) do states[i] = order and x:index_select(2, order) or x end
  end
  local output, last = self:_run(op, input, states, sizes)
  for i, x in ipairs(last) do
    last[i] = order and x:index_select(2, packed.unsorted_indices) or x
  end
  return sequence.gather(output, packed), last
end

-- Returns the output and the list of last states for any form of input.
function Base:_forward(op, input, hx)
  if hx == lib.none then hx = nil end
  if class.isinstance(input, sequence.PackedSequence) then return self:_packed(op, input, hx) end
  if not lib.istensor(input) or (input:dim() ~= 2 and input:dim() ~= 3) then
    errors.refuse(class.typename(self), "input",
      ("%s or (L, I) is needed"):format(self.batch_first and "(N, L, I)" or "(L, N, I)"), input,
      "E_SHAPE")
  end
  local single = input:dim() == 2
  if input:size(-1) ~= self.input_size then
    errors.argument(class.typename(self), "input", ("%d features are needed in the last dimension, "
      .. "got %s"):format(self.input_size, errors.describe(input)), "E_SHAPE")
  end
  local lanes = self.num_layers * (self.bidirectional and 2 or 1)
  local states
  if hx ~= nil then states = states_of(self, hx, self.states)
  elseif single then states = zeros(input, self.states, lanes, self.hidden_size)
  else
    states = zeros(input, self.states, lanes, input:size(self.batch_first and 1 or 2),
      self.hidden_size)
  end
  if single then return self:_single(op, input, states) end
  return self:_run(op, input, states)
end

function Base:extra_repr()
  local parts = {("%d, %d"):format(self.input_size, self.hidden_size)}
  if self.num_layers ~= 1 then parts[#parts + 1] = "num_layers=" .. self.num_layers end
  if not self.bias then parts[#parts + 1] = "bias=false" end
  if self.batch_first then parts[#parts + 1] = "batch_first=true" end
  if self.dropout ~= 0 then parts[#parts + 1] = ("dropout=%g"):format(self.dropout) end
  if self.bidirectional then parts[#parts + 1] = "bidirectional=true" end
  if self.proj_size then parts[#parts + 1] = "proj_size=" .. self.proj_size end
  return table.concat(parts, ", ")
end

-- Declares the help texts of a layer's calls, for each kind of state.
local function layer_takes(layer, hx, outputs)
  named.takes(layer.forward, {
    {"tensor", "input", "(L, N, input_size), (N, L, input_size) with batch_first, (L, input_size) "
      .. "or a PackedSequence"},
    {"any", "hx", hx .. "; default: zeros", optional = true},
  }, outputs)
end

local function cell_takes(cell, hx, outputs)
  named.takes(cell.forward, {
    {"tensor", "input", "(N, input_size) or (input_size,)"},
    {"any", "hx", hx .. "; default: zeros", optional = true},
  }, outputs)
end

local STATE = "(num_layers * directions, N, hidden_size)"
local CELL_STATE = "(N, hidden_size)"

--- An Elman network (Elman 1990): h = tanh(W_ih x + b_ih + W_hh h + b_hh) for each step, or relu
-- instead of tanh. `output, h = rnn(input[, h])`: input (L, N, input_size), (N, L, input_size) with
-- batch_first, (L, input_size) without a batch, or a PackedSequence; h (num_layers * directions, N,
-- hidden_size), default zeros; output (L, N, directions * hidden_size). Parameters: weight_ih_l0,
-- weight_hh_l0, bias_ih_l0, bias_hh_l0, then _l1 and so on for further layers; the second
-- direction's names end in _reverse.
local RNN = class("RNN", Base)
recurrent.RNN = RNN
RNN.states = 1

RNN.signature = define.signature("RNN", joined(SIZES,
  {{"int", "num_layers", "number of layers; each reads the output of the layer before", default = 1,
    bounds = {1, 2 ^ 20}},
    NONLINEARITY}, SEQUENCE, PLACE))

function RNN:init(input_size, hidden_size, num_layers, nonlinearity, ...)
  self.nonlinearity = nonlinearity
  self:_build("RNN", 1, input_size, hidden_size, num_layers, ...)
end

function RNN:forward(input, hx)
  local output, last = self:_forward("rnn_" .. self.nonlinearity, input, hx)
  return output, last[1]
end

layer_takes(RNN, STATE, "output, h")

local LAYERS = {{"int", "num_layers", "number of layers; each reads the output of the layer before",
  default = 1,
                 bounds = {1, 2 ^ 20}}}

--- Long short-term memory (Hochreiter and Schmidhuber, 1997). `output, {h, c} = lstm(input[, {h,
-- c}])`, with the shapes and parameter names of nn.RNN; the gates are in the order i, f, g, o. With
-- proj_size, h and output have proj_size features, computed by weight_hr_l0 (proj_size,
-- hidden_size); c has hidden_size features. The projection saves parameters, not time.
local LSTM = class("LSTM", Base)
recurrent.LSTM = LSTM
LSTM.states = 2

LSTM.signature = define.signature("LSTM", joined(SIZES, LAYERS, SEQUENCE,
  {{"int", "proj_size", "features of the projected state h; 0: no projection", default = 0}},
  PLACE))

function LSTM:init(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
                   proj_size, device, dtype)
  if proj_size < 0 or proj_size > 0 and proj_size >= hidden_size then
    errors.argument("LSTM", "proj_size", ("0 to hidden_size - 1, %d, is needed, got %d")
      :format(hidden_size - 1, proj_size), "E_DOMAIN")
  end
  if proj_size > 0 then self.proj_size = proj_size end
  self:_build("LSTM", 4, input_size, hidden_size, num_layers, bias, batch_first, dropout,
    bidirectional, device, dtype)
end

-- Checks given states of an LSTM with a projection: the op does not see h and cannot check its
-- size.
local function check_projected(self, hx)
  local h, c = unpack(states_of(self, hx, 2))
  local dims, lanes = h:dim(), self.num_layers * (self.bidirectional and 2 or 1)
  if dims ~= c:dim() or dims < 2 or h:size(-1) ~= self.proj_size or c:size(-1) ~= self.hidden_size
     or h:size(1) ~= lanes or c:size(1) ~= lanes or dims == 3 and h:size(2) ~= c:size(2) then
    errors.argument("LSTM", "hx", ("{(%d, N, %d), (%d, N, %d)} is needed, got {%s, %s}"):format(
      lanes, self.proj_size, lanes, self.hidden_size, errors.describe(h), errors.describe(c)),
      "E_SHAPE")
  end
end

function LSTM:forward(input, hx)
  if self.proj_size and hx ~= nil and hx ~= lib.none then check_projected(self, hx) end
  local output, last = self:_forward("lstm", input, hx)
  return output, last
end

layer_takes(LSTM, "{h, c}, each " .. STATE, "output, states")

--- Gated recurrent units (Cho et al., 2014). `output, h = gru(input[, h])`, with the shapes and
-- parameter names of nn.RNN; the gates are in the order r, z, n.
local GRU = class("GRU", Base)
recurrent.GRU = GRU
GRU.states = 1

GRU.signature = define.signature("GRU", joined(SIZES, LAYERS, SEQUENCE, PLACE))

function GRU:init(...)
  self:_build("GRU", 3, ...)
end

function GRU:forward(input, hx)
  local output, last = self:_forward("gru", input, hx)
  return output, last[1]
end

layer_takes(GRU, STATE, "output, h")

-- ---- cells ----

local Cell = class("RNNCellBase", Module)

function Cell:_build(name, gates, input_size, hidden_size, bias, device, dtype)
  local moth = require "moth"
  check_sizes(name, input_size, hidden_size)
  self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
  local wide = gates * hidden_size
  self.weight_ih = parameter.Parameter(moth.empty({wide, input_size}, dtype, device))
  self.weight_hh = parameter.Parameter(moth.empty({wide, hidden_size}, dtype, device))
  if bias then
    self.bias_ih = parameter.Parameter(moth.empty({wide}, dtype, device))
    self.bias_hh = parameter.Parameter(moth.empty({wide}, dtype, device))
  end
  self:reset_parameters()
end

--- Reinitializes all parameters, uniformly within 1 / sqrt(hidden_size).
function Cell:reset_parameters()
  reset(self)
end

-- Computes the new states; the second is nil for cells with one state.
function Cell:_step(op, input, hx)
  if hx == lib.none then hx = nil end
  local dim = lib.istensor(input) and input:dim()
  if dim ~= 1 and dim ~= 2 then
    errors.refuse(class.typename(self), "input", "(N, I) or (I,) is needed", input, "E_SHAPE")
  end
  local single, states = dim == 1
  if hx ~= nil then states = states_of(self, hx, self.states)
  elseif single then states = zeros(input, self.states, self.hidden_size)
  else states = zeros(input, self.states, input:size(1), self.hidden_size) end
  if single then
    input = input:unsqueeze(1)
    for i, x in ipairs(states) do states[i] = x:unsqueeze(1) end
  end
  local h, c = functional[op](input, self.states == 2 and states or states[1], self.weight_ih,
    self.weight_hh, self.bias_ih, self.bias_hh)
  if single then
    h = h:squeeze(1)
    c = c and c:squeeze(1)
  end
  return h, c
end

function Cell:extra_repr()
  return ("%d, %d%s"):format(self.input_size, self.hidden_size, self.bias and "" or ", bias=false")
end

--- One step of nn.RNN: `h = cell(input[, h])`; input (N, input_size) or (input_size,), h (N,
-- hidden_size), default zeros. Parameters: weight_ih, weight_hh, bias_ih, bias_hh.
local RNNCell = class("RNNCell", Cell)
recurrent.RNNCell = RNNCell
RNNCell.states = 1

RNNCell.signature = define.signature("RNNCell", joined(SIZES, {BIAS, NONLINEARITY}, PLACE))

function RNNCell:init(input_size, hidden_size, bias, nonlinearity, device, dtype)
  self.nonlinearity = nonlinearity
  self:_build("RNNCell", 1, input_size, hidden_size, bias, device, dtype)
end

function RNNCell:forward(input, hx)
  return (self:_step("rnn_" .. self.nonlinearity .. "_cell", input, hx))
end

cell_takes(RNNCell, CELL_STATE, "h")

function RNNCell:extra_repr()
  local text = Cell.extra_repr(self)
  return self.nonlinearity == "tanh" and text or text .. ", nonlinearity=" .. self.nonlinearity
end

--- One step of nn.LSTM: `h, c = cell(input[, {h, c}])`.
local LSTMCell = class("LSTMCell", Cell)
recurrent.LSTMCell = LSTMCell
LSTMCell.states = 2

LSTMCell.signature = define.signature("LSTMCell", joined(SIZES, {BIAS}, PLACE))

function LSTMCell:init(...)
  self:_build("LSTMCell", 4, ...)
end

function LSTMCell:forward(input, hx)
  local h, c = self:_step("lstm_cell", input, hx)
  return h, c
end

cell_takes(LSTMCell, "{h, c}, each " .. CELL_STATE, "h, c")

--- One step of nn.GRU: `h = cell(input[, h])`.
local GRUCell = class("GRUCell", Cell)
recurrent.GRUCell = GRUCell
GRUCell.states = 1

GRUCell.signature = define.signature("GRUCell", joined(SIZES, {BIAS}, PLACE))

function GRUCell:init(...)
  self:_build("GRUCell", 3, ...)
end

function GRUCell:forward(input, hx)
  return (self:_step("gru_cell", input, hx))
end

cell_takes(GRUCell, CELL_STATE, "h")

return recurrent
