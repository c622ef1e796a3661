--- search.lua -- searchsorted and bucketize: binary search in sorted rows.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"

local search = {}

local searched, bucketized = bind.under "searchsorted", bind.under "bucketize"

local function narrowed(y, out_int32) return out_int32 and y:to(require("moth").int32) or y end

--- moth.searchsorted(sorted_sequence, input, right, side, {out_int32, sorter}).
search.searchsorted = define {
  name = "searchsorted",
  doc = "Where values would have to be put in for a sorted row to stay sorted: 1 is before all n, "
    .. "n + 1 behind them.",
  examples = "moth.tensor{1, 3, 5}, moth.tensor{{0, 3}, {4, 9}}\n"
    .. "moth.tensor{1, 3, 5}, 3, {right = true, side = 'right', out_int32 = true}\n"
    .. "moth.tensor{5, 1, 3}, moth.tensor{2}, {sorter = moth.tensor{2LL, 3LL, 1LL}}",
  outputs = "positions",
  args = {
    { "tensor", "sorted_sequence", "(n), or (..., n): sorted along the last dimension" },
    { "tensor", "input", "values, any shape; for (..., n) of as many rows: (..., m)",
      numbers = true },
    { "bool", "right", "behind equals instead of before them", default = false },
    { "enum", "side", "the same in another word", choices = { "left", "right" } },
    { "bool", "out_int32", "int32 positions instead of int64", default = false },
    { "tensor", "sorter", "the positions that sort the rows, where they are not sorted: argsort's",
      optional = true },
  },
  run = function(sequence, input, right, side, out_int32, sorter)
    if sorter ~= nil then
      if not (sorter.shape == sequence.shape) then
        errors.refuse("searchsorted", "sorter", tostring(sequence.shape) .. " is needed", sorter,
          "E_SHAPE")
      end
      sequence = sequence:gather(-1, sorter)
    end
    return (narrowed(searched.searchsorted(sequence, input, right, side), out_int32))
  end,
}

--- moth.bucketize(input, boundaries, right, {out_int32}), x:bucketize(boundaries).
search.bucketize = define {
  name = "bucketize",
  doc = "Between which boundaries values lie: 1 is below the first of n, n + 1 above the last.",
  examples = "moth.tensor{{0LL, 3LL}, {4LL, 9LL}}, moth.tensor{1LL, 3LL, 5LL}\n"
    .. "moth.tensor{3LL}, moth.tensor{1LL, 3LL}, {right = true, out_int32 = true}",
  outputs = "positions",
  args = {
    { "tensor", "input", "values, any shape", numbers = true },
    { "tensor", "boundaries", "sorted values, (n)" },
    { "bool", "right", "a value at a boundary belongs to what is above it", default = false },
    { "bool", "out_int32", "int32 positions instead of int64", default = false },
  },
  run = function(input, boundaries, right, out_int32)
    return (narrowed(bucketized.bucketize(input, boundaries, right), out_int32))
  end,
}

return search
