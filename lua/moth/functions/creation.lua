--- creation.lua -- functions that create tensors: logspace, tril_indices, triu_indices, vander,
-- diagflat.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"

local ops = bind.ops
local creation = {}

local function refuse(fname, arg, wanted, got, code)
  errors.refuse(fname, arg, wanted, got, code or "E_SHAPE")
end

local WHERE = {
  {"dtype", "dtype", "element type; default: the default dtype", optional = true},
  {"device", "device", "the result's device", optional = true},
  {"bool", "requires_grad", "does the result require a gradient?", default = false},
}

--- moth.logspace(start, stop, steps, base): from base^start to base^stop.
creation.logspace = define {
  name = "logspace",
  doc = "Powers of `base` whose exponents are evenly spaced from `start` to `stop`.",
  examples = "0, 2, 3\n1, 4, 4, {base = 2, dtype = moth.float64, requires_grad = true}",
  args = {
    {"float", "start", "first exponent", single = true},
    {"float", "stop", "last exponent", single = true},
    {"int", "steps", "number of values"},
    {"float", "base", "base of the powers", default = 10},
    WHERE[1], WHERE[2], WHERE[3],
  },
  scoped = true,
  run = function(start, stop, steps, base, dtype, device, requires_grad)
    local y = ops.pow(base, ops.linspace(start, stop, steps, require("moth").float64, device))
    y = y:to(dtype or require("moth").get_default_dtype())
    if requires_grad then y.requires_grad = true end
    return y
  end,
}

local function triangle(name, upper, which)
  local own = bind.under(name)
  creation[name] = define {
    name = name,
    doc = "The positions of the " .. which .. " triangle of a matrix: rows in the first row of "
      .. "the result, columns in the second.",
    examples = "3, 3\n2, 4, {offset = 1}",
    outputs = "positions",
    args = {
      {"int", "row", "rows of the matrix"},
      {"int", "col", "columns"},
      {"int", "offset", "the diagonal that bounds it: above the main diagonal if positive",
        default = 0},
      {"dtype", "dtype", "element type; default: int64", optional = true},
      {"device", "device", "the result's device", optional = true},
    },
    scoped = true,
    run = function(row, col, offset, dtype, device)
      local y = own.triangle_indices(row, col, offset, upper, dtype, "cpu")
      return (y:to(device or require("moth.base.settings").get_default_device()))
    end,
  }
end

triangle("tril_indices", false, "lower")
triangle("triu_indices", true, "upper")

--- moth.vander(x, N, increasing): powers of x as columns.
creation.vander = define {
  name = "vander",
  doc = "The powers of the elements of a vector as columns of a matrix.",
  examples = "moth.rand(3)  -- domain: positive\n"
    .. "moth.rand(3), {N = 4, increasing = true}  -- domain: positive",
  args = {{"tensor", "x", "a vector"},
           {"int", "N", "number of powers; default: the number of elements", optional = true},
           {"bool", "increasing", "increasing powers?", default = false}},
  run = function(x, count, increasing)
    if x:dim() ~= 1 then refuse("vander", "x", "a vector is needed", x) end
    local powers = require("moth.linalg.matfun").vander(x, count)
    return (increasing and powers or powers:flip(2))
  end,
}

--- moth.diagflat(x, offset): a matrix with all elements of x on a diagonal.
creation.diagflat = define {
  name = "diagflat",
  doc = "A matrix of zeros with all elements of a tensor, in order, on a diagonal.",
  examples = "moth.randn(3)\nmoth.randn(2, 2), {offset = -1}",
  args = {{"tensor", "input", "tensor of any shape"},
           {"int", "offset", "the diagonal; positive: above the main diagonal", default = 0}},
  run = function(input, offset) return (input:flatten():diag(offset)) end,
}

return creation
