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
  doc = "The positions at which to insert values into a sorted row so that it stays sorted: 1 is "
    .. "before all n elements, n + 1 after them.",
  examples = "moth.tensor{1, 3, 5}, moth.tensor{{0, 3}, {4, 9}}\n"
    .. "moth.tensor{1, 3, 5}, 3, {right = true, side = 'right', out_int32 = true}\n"
    .. "moth.tensor{5, 1, 3}, moth.tensor{2}, {sorter = moth.tensor{2LL, 3LL, 1LL}}",
  outputs = "positions",
  args = {
    {"tensor", "sorted_sequence", "(n), or (..., n): sorted along the last dimension"},
    {"tensor", "input", "values, any shape; for (..., n) with the same leading sizes: (..., m)",
      numbers = true},
    {"bool", "right", "insert after equal elements instead of before them", default = false},
    {"enum", "side", "'right' is the same as right = true", choices = {"left", "right"}},
    {"bool", "out_int32", "return int32 instead of int64?", default = false},
    {"tensor", "sorter", "argsort of the rows, if they are not sorted",
      optional = true},
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
  doc = "The bin of each value: 1 is below the first of n boundaries, n + 1 above the last.",
  examples = "moth.tensor{{0LL, 3LL}, {4LL, 9LL}}, moth.tensor{1LL, 3LL, 5LL}\n"
    .. "moth.tensor{3LL}, moth.tensor{1LL, 3LL}, {right = true, out_int32 = true}",
  outputs = "positions",
  args = {
    {"tensor", "input", "values, any shape", numbers = true},
    {"tensor", "boundaries", "sorted values, (n)"},
    {"bool", "right", "does a value at a boundary belong to the bin above it?", default = false},
    {"bool", "out_int32", "return int32 instead of int64?", default = false},
  },
  run = function(input, boundaries, right, out_int32)
    return (narrowed(bucketized.bucketize(input, boundaries, right), out_int32))
  end,
}

return search
