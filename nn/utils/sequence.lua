--- sequence.lua -- sequences of different lengths: padded to one length, and packed without
-- padding. PyTorch's nn.utils.rnn.
--
-- A PackedSequence stores the first step of all sequences, then the second, and so on; the longest
-- sequence is first. data (total steps, features); batch_sizes, the number of sequences that have
-- each step; and, if the sequences were sorted, sorted_indices and unsorted_indices (1-based).

local calls = require "moth.binding.calls"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local sequence = {}

local function moth() return require "moth" end

-- ---- packed sequences ----

--- The result of pack_padded_sequence and pack_sequence; recurrent modules accept and return it.
local PackedSequence = class("PackedSequence")
sequence.PackedSequence = PackedSequence

function PackedSequence:init(data, batch_sizes, sorted_indices, unsorted_indices)
  self.data, self.batch_sizes = data, batch_sizes
  self.sorted_indices, self.unsorted_indices = sorted_indices, unsorted_indices
end

--- Returns a copy with its data on another device or of another dtype.
function PackedSequence:to(...)
  return PackedSequence(self.data:to(...), self.batch_sizes, self.sorted_indices,
    self.unsorted_indices)
end

function PackedSequence:__tostring()
  return ("PackedSequence(data %s, batch_sizes %s)"):format(errors.describe(self.data),
    errors.describe(self.batch_sizes))
end

-- Converts a list or a tensor to a list of integers.
local function numbers(fname, name, value)
  if lib.istensor(value) and lib.capture then
    errors.argument(fname, name, "the result's shape depends on the lengths: in a captured step a "
      .. "list is needed, got " .. errors.describe(value), "E_UNSUPPORTED")
  end
  local list = lib.istensor(value) and value:dim() == 1 and value:tolist() or value
  calls.whole_list(fname, name, list)
  local good, copy = lib.is_plain(list) and #list > 0, {}
  for i = 1, good and #list or 0 do
    copy[i] = tonumber(list[i])
    good = good and copy[i] ~= nil and copy[i] > 0 and copy[i] % 1 == 0
  end
  if good then return copy end
  return errors.refuse(fname, name, "a list of lengths from 1 on is needed", value, "E_ARG")
end

-- Returns the position of each packed row among the T * N rows of a padded (T, N, ...) tensor.
local function places(sizes)
  local rows, n = {}, sizes[1]
  for t = 1, #sizes do
    for k = 1, sizes[t] do rows[#rows + 1] = (t - 1) * n + k end
  end
  return rows
end

local function sizes_of(packed)
  local sizes = packed.batch_sizes:tolist()
  for i = 1, #sizes do sizes[i] = tonumber(sizes[i]) end
  return sizes
end

--- Returns the rows of a PackedSequence as (T, N, ...), padded with `value`, and batch_sizes as a
-- list.
function sequence.spread(packed, value)
  local data, sizes, index = packed.data, sizes_of(packed), {}
  local n, rows, shape = sizes[1], data:size(1), {#sizes, sizes[1]}
  for i = 1, #sizes * n do index[i] = rows + 1 end
  for row, place in ipairs(places(sizes)) do index[place] = row end
  local blank = {1}
  for d = 2, data:dim() do blank[d], shape[d + 1] = data:size(d), data:size(d) end
  local last = data:new_full(blank, value or 0)
  return moth().cat({data, last}, 1):index_select(1, index):view(shape), sizes
end

--- Converts (T, N, ...) to a PackedSequence with the lengths of `like`.
function sequence.gather(padded, like)
  local data = padded:flatten(1, 2):index_select(1, places(sizes_of(like)))
  return PackedSequence(data, like.batch_sizes, like.sorted_indices, like.unsorted_indices)
end

-- Returns the positions sorted by decreasing length, and the inverse permutation.
local function order_of(lengths)
  local order, back = {}, {}
  for i = 1, #lengths do order[i] = i end
  table.sort(order, function(a, b)
    if lengths[a] ~= lengths[b] then return lengths[a] > lengths[b] end
    return a < b
  end)
  for i, k in ipairs(order) do back[k] = i end
  return order, back
end

local function integers(list)
  return moth().tensor(list, {dtype = moth().int64})
end

local LENGTHS = {"any", "lengths", "number of steps of each sequence, a list or a tensor"}
local FIRST = {"bool", "batch_first", "(N, T, ...) instead of (T, N, ...)?", default = false}
local SORTED = {"bool", "enforce_sorted",
  "must lengths decrease? false: the sequences are sorted", default = true}

sequence.pack_padded_sequence = define {
  name = "pack_padded_sequence", doc = "Packs padded sequences without their padding.",
  examples = "moth.randn(4, 2, 3), {4, 2}\n"
    .. "moth.randn(2, 4, 3), {2, 4}, {batch_first = true, enforce_sorted = false}",
  args = {{"tensor", "input", "padded sequences, (T, N, ...)"}, LENGTHS, FIRST, SORTED},
  outputs = "packed",
  run = function(input, lengths, batch_first, enforce_sorted)
    local fname = "pack_padded_sequence"
    lengths = numbers(fname, "lengths", lengths)
    if input:dim() < 2 or input:size(batch_first and 1 or 2) ~= #lengths then
      errors.argument(fname, "lengths", ("%d lengths, but %s"):format(#lengths,
        errors.describe(input)), "E_SHAPE")
    end
    if batch_first then input = input:transpose(1, 2) end
    local order, back = order_of(lengths)
    if lengths[order[1]] > input:size(1) then
      errors.argument(fname, "lengths", ("%d steps are more than %s has"):format(
        lengths[order[1]], errors.describe(input)), "E_SHAPE")
    end
    if enforce_sorted then
      for i, k in ipairs(order) do
        if i ~= k then
          errors.argument(fname, "lengths",
            "must decrease; sort the batch or pass {enforce_sorted = false}", "E_ARG")
        end
      end
    else
      input = input:index_select(2, order)
    end
    local sizes = {}
    for t = 1, lengths[order[1]] do
      local n = 0
      for _, length in ipairs(lengths) do if length >= t then n = n + 1 end end
      sizes[t] = n
    end
    local data = input:narrow(1, 1, #sizes):flatten(1, 2):index_select(1, places(sizes))
    if enforce_sorted then return PackedSequence(data, integers(sizes)) end
    return PackedSequence(data, integers(sizes), integers(order), integers(back))
  end,
}

sequence.pad_packed_sequence = define {
  name = "pad_packed_sequence",
  doc = "A PackedSequence as padded sequences, (T, N, ...), and the lengths.",
  examples = "moth.nn.utils.rnn.pack_padded_sequence(moth.randn(4, 2, 3), {4, 2})",
  args = {{"any", "sequence", "a PackedSequence"}, FIRST,
    {"float", "padding_value", "the padding value", default = 0},
    {"int", "total_length", "T; default: the longest length", optional = true}},
  outputs = "padded, lengths",
  run = function(packed, batch_first, padding_value, total_length)
    local fname = "pad_packed_sequence"
    if not class.isinstance(packed, PackedSequence) then
      errors.refuse(fname, "sequence", "a PackedSequence is needed", packed, "E_TYPE")
    end
    local padded, sizes = sequence.spread(packed, padding_value)
    local lengths, more = {}, (total_length or #sizes) - #sizes
    if more < 0 then
      errors.argument(fname, "total_length", ("%d is less than the longest, %d"):format(
        total_length, #sizes), "E_SHAPE")
    end
    for n = 1, sizes[1] do lengths[n] = 0 end
    for t = 1, #sizes do
      for n = 1, sizes[t] do lengths[n] = t end
    end
    if more > 0 then
      local shape = {more, unpack(padded.shape, 2)}
      padded = moth().cat({padded, padded:new_full(shape, padding_value)}, 1)
    end
    lengths = integers(lengths)
    local back = packed.unsorted_indices
    if back then padded, lengths = padded:index_select(2, back), lengths:index_select(1, back) end
    return batch_first and padded:transpose(1, 2) or padded, lengths
  end,
}

-- ---- padded sequences ----

-- Adds rows of `value` to x, at the end or the start, until it has `rows` rows.
local function padded_to(x, rows, value, side)
  local shape = {rows - x:size(1)}
  if shape[1] == 0 then return x end
  for d = 2, x:dim() do shape[d] = x:size(d) end
  local blank = x:new_full(shape, value)
  return moth().cat(side == "left" and {blank, x} or {x, blank}, 1)
end

sequence.pad_sequence = define {
  name = "pad_sequence", doc = "Sequences (L, ...) of different lengths as one tensor (T, N, ...).",
  examples = "{moth.randn(3, 2), moth.randn(1, 2)}\n"
    .. "{moth.randn(3, 2), moth.randn(1, 2)}, {batch_first = true, padding_value = -1}",
  args = {{"tensors", "sequences", "tensors whose sizes are equal, except the first"}, FIRST,
    {"float", "padding_value", "the padding value", default = 0},
    {"enum", "padding_side", "the side of the padding", choices = {"right", "left"}}},
  run = function(sequences, batch_first, padding_value, padding_side)
    local most, list = 0, {}
    for i, x in ipairs(sequences) do
      if x:dim() == 0 then
        errors.argument("pad_sequence", "sequences", ("(L, ...) is needed, element %d "
          .. "has no dimensions"):format(i), "E_SHAPE")
      end
      most = math.max(most, x:size(1))
      local first, agrees = sequences[1], x:dim() == sequences[1]:dim()
      for d = 2, agrees and x:dim() or 1 do agrees = agrees and x:size(d) == first:size(d) end
      if not agrees then
        errors.argument("pad_sequence", "sequences",
          ("element %d is %s, the first is %s: all sizes "
          .. "except the first must be equal"):format(i, errors.describe(x),
          errors.describe(first)),
          "E_SHAPE")
      end
    end
    for i, x in ipairs(sequences) do list[i] = padded_to(x, most, padding_value, padding_side) end
    return (moth().stack(list, batch_first and 1 or 2))
  end,
}

sequence.unpad_sequence = define {
  name = "unpad_sequence", doc = "Padded sequences as a list of tensors without the padding.",
  examples = "moth.randn(4, 2, 3), {4, 2}",
  args = {{"tensor", "padded_sequences", "padded sequences, (T, N, ...)"}, LENGTHS, FIRST},
  outputs = "sequences",
  run = function(padded, lengths, batch_first)
    local list = {}
    lengths = numbers("unpad_sequence", "lengths", lengths)
    for i, n in ipairs(lengths) do
      list[i] = padded:select(batch_first and 1 or 2, i):narrow(1, 1, n)
    end
    return list
  end,
}

sequence.unpack_sequence = define {
  name = "unpack_sequence", doc = "A PackedSequence as a list of its sequences, (L, ...).",
  examples = "moth.nn.utils.rnn.pack_sequence{{moth.randn(3, 2), moth.randn(1, 2)}}",
  args = {{"any", "packed_sequences", "a PackedSequence"}},
  outputs = "sequences",
  run = function(packed) return (sequence.unpad_sequence(sequence.pad_packed_sequence(packed))) end,
}

sequence.pack_sequence = define {
  name = "pack_sequence", doc = "Sequences (L, ...) of different lengths as a PackedSequence.",
  examples = "{moth.randn(3, 2), moth.randn(1, 2)}",
  args = {{"tensors", "sequences", "tensors whose sizes are equal, except the first"}, SORTED},
  outputs = "packed",
  run = function(sequences, enforce_sorted)
    local lengths = {}
    for i, x in ipairs(sequences) do lengths[i] = x:size(1) end
    return (sequence.pack_padded_sequence(sequence.pad_sequence(sequences), lengths, false,
      enforce_sorted))
  end,
}

return sequence
