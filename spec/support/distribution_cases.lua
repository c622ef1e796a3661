-- Helpers of the distribution specs: PyTorch's values, and comparisons with them.

local assert = require "luassert"
local moth = require "moth"
local json = require "moth.json"

local cases = {}

local NAMES = { inf = math.huge, ["-inf"] = -math.huge, nan = 0 / 0 } -- JSON has none of these

--- The file of a generator in spec/golden.
function cases.golden(name)
  local file = assert(io.open("spec/golden/" .. name .. ".json"))
  local found = json.decode(file:read("*a"))
  file:close()
  return found
end

--- A list of numbers, or one number as a 0-d tensor, in f64.
function cases.f64(x)
  local y = moth.tensor(type(x) == "table" and x or { x }, { dtype = moth.float64 })
  return (type(x) == "table" and y or y:squeeze())
end

--- Claims that x has the values of a list, up to `tolerance` of each.
function cases.same(wanted, x, what, tolerance)
  local got = x:flatten():tolist()
  assert.equal(#wanted, #got, what)
  for i, w in ipairs(wanted) do
    w = NAMES[w] or w
    local g = got[i]
    local fine = w == g or (w ~= w and g ~= g)
      or math.abs(w - g) <= (tolerance or 1e-11) * math.max(1, math.abs(w))
    assert.is_true(fine, ("%s, element %d: wanted %s, got %s"):format(what, i, w, g))
  end
end

--- The parameters of a case as tensors, and their names in order.
function cases.tensors(params, grad)
  local copy, names = {}, {}
  for name, value in pairs(params) do
    names[#names + 1], copy[name] = name, cases.f64(value)
    if grad then copy[name]:requires_grad_() end
  end
  table.sort(names)
  return copy, names
end

return cases
