--- fft.lua -- moth.fft: Fourier transforms.
--
--     local spectrum = moth.fft.rfft(signal)            -- (..., n / 2 + 1, 2)
--     local same = moth.fft.irfft(spectrum, signal:size(-1))
--
-- Moth has no complex dtypes. A complex number is a pair of real and imaginary part in a last
-- dimension of 2, as in PyTorch's view_as_real. `dim` does not count that dimension, so dimensions
-- have the same numbers as in PyTorch. abs, angle, mul and polar compute with these pairs.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local dtypes = require("moth.tensor.dtype").by_name
local errors = require "moth.error"
local lazy = require "moth.base.lazy"
local lib = require "moth.binding.lib"

local ops = bind.ops
local HALF = {[dtypes.float16] = true, [dtypes.bfloat16] = true}
local fft = {}

-- The kinds of transforms: c2c from complex to complex, r2c from real numbers to half of their
-- coefficients; c2r is the inverse of r2c.
local bound = {}
local function op_of(kind, fname)
  local key = kind .. fname
  bound[key] = bound[key] or bind.as("fft_" .. kind, fname)
  return bound[key]
end

-- The number of dimensions without the dimension of the pairs; raises if it is below `least`.
local function dimensions(fname, x, kind, least, arg)
  local n = x:dim()
  if kind == "r2c" then return n end
  if n < 1 + (least or 1) or x:size(n) ~= 2 then
    errors.argument(fname, arg or "input", "complex numbers are needed, pairs in a last dimension "
      .. "of 2, got " .. errors.describe(x) .. (least and "" or "; real signals: moth.fft.rfft"),
      "E_SHAPE")
  end
  return n - 1
end

-- A dimension from 1 to n.
local function position(fname, x, dim, n)
  local d = dim < 0 and dim + n + 1 or dim
  if d < 1 or d > n then
    errors.argument(fname, "dim", ("%s is no dimension of signals in %s"):format(dim,
      errors.describe(x)), "E_INDEX")
  end
  return d
end

-- x with n numbers along d: truncated, or padded with zeros at the end.
local function sized(fname, arg, x, d, n)
  if n < 1 then
    errors.argument(fname, arg, "a length from 1 on is needed, got " .. n, "E_DOMAIN")
  end
  local more = n - x:size(d)
  if more == 0 then return x end
  local sides = 2 * (x:dim() - d + 1)
  return ops.pad(x, lib.filled(sides, 0, sides, more))
end

local function factor(norm, n, inverse)
  if norm == "ortho" then return 1 / math.sqrt(n) end
  return (norm == "forward") ~= inverse and 1 / n or 1
end

-- A transform along d with n numbers (nil: all); for c2r n is the length of the result.
local function transform(fname, arg, kind, inverse, x, n, d, scale)
  local op = op_of(kind, fname)
  if kind == "c2r" then
    n = n or 2 * (x:size(d) - 1)
    x = sized(fname, arg, x, d, n < 1 and n or math.floor(n / 2) + 1)
    return op(x, n, d, inverse, scale)
  end
  if n then x = sized(fname, arg, x, d, n) end
  return op(x, d, inverse, scale)
end

local function length_of(kind, x, n, d)
  return n or (kind == "c2r" and 2 * (x:size(d) - 1)) or x:size(d)
end

local NORM = {"enum", "norm", "which transform is divided by n: the inverse, both by its root, or "
  .. "the forward one", choices = {"backward", "ortho", "forward"}}
local INPUT = {
  c2c = {"tensor", "input", "complex numbers, (..., n, 2)"},
  r2c = {"tensor", "input", "real numbers, (..., n)"},
  c2r = {"tensor", "input", "coefficients 0 to n / 2, (..., n / 2 + 1, 2)"},
}
local N = {
  c2c = "length of the signals: longer signals are cut, shorter ones padded with zeros",
  c2r = "length of the results; 2 (m - 1) of m coefficients when absent",
}
N.r2c = N.c2c
local DRAWN = {c2c = "moth.randn(3, 4, 2)", r2c = "moth.randn(3, 4)", c2r = "moth.randn(3, 4, 2)"}

local function single(name, kind, inverse, doc)
  --- moth.fft.NAME(input, n, dim, norm): one dimension.
  fft[name] = define {
    name = name, doc = doc, scoped = true,
    examples = DRAWN[kind] .. "\n" .. DRAWN[kind] .. ", {n = 5, dim = 1, norm = 'ortho'}\n"
      .. DRAWN[kind] .. ", 3, -1, 'forward'",
    args = {
      INPUT[kind], {"int", "n", N[kind], optional = true},
      {"dim", "dim", "dimension of the signals; the dimension of the pairs is not counted",
        default = -1},
      NORM,
    },
    run = function(x, n, dim, norm)
      local d = position(name, x, dim, dimensions(name, x, kind))
      local scale = factor(norm, math.max(1, length_of(kind, x, n, d)), inverse)
      return transform(name, "n", kind, inverse, x, n, d, scale)
    end,
  }
end

single("fft", "c2c", false, "The discrete Fourier transform of complex signals: Y[k] is the "
  .. "sum of x[j] e^(-2 pi i j k / n). Of real signals: rfft.")
single("ifft", "c2c", true, "The inverse of fft: sums with the other sign, divided by n.")
single("rfft", "r2c", false, "The coefficients 0 to n / 2 of real signals, (..., n / 2 + 1, 2); "
  .. "the others are their mirror images.")
single("irfft", "c2r", true, "The real signals with these coefficients: the inverse of rfft. "
  .. "An odd length must be given as n.")
single("hfft", "c2r", false, "The real coefficients of a signal with Hermitian symmetry; the input "
  .. "is its first half.")
single("ihfft", "r2c", true, "The inverse of hfft: half of the complex signals that have real "
  .. "coefficients.")

-- ---- several dimensions ----

local function list_of(v)
  if type(v) == "number" then return {v} end
  return v
end

-- The dimensions to transform, from 1, and the length of each or nil.
local function sizes(fname, x, n, s, dim)
  s, dim = list_of(s), list_of(dim)
  if s and dim and #s ~= #dim then
    errors.argument(fname, "s", ("%d lengths for %d dimensions"):format(#s, #dim), "E_ARG")
  end
  local dims, lengths, seen = {}, {}, {}
  for k = 1, dim and #dim or s and #s or n do
    local d = dim and dim[k] or s and k - #s - 1 or k
    dims[k] = position(fname, x, d, n)
    if seen[dims[k]] then
      errors.argument(fname, "dim", ("%d is there twice"):format(d), "E_ARG")
    end
    seen[dims[k]] = true
    if s and s[k] ~= -1 then lengths[k] = s[k] end
  end
  if #dims == 0 then errors.argument(fname, "dim", "a dimension is needed", "E_ARG") end
  return dims, lengths
end

local function several(name, kind, inverse, dims, doc)
  local shape = kind == "r2c" and "(2, 3, 4)" or "(2, 3, 4, 2)"
  --- moth.fft.NAME(input, s, dim, norm): two dimensions, or any number of dimensions.
  fft[name] = define {
    name = name, doc = doc, scoped = true,
    examples = "moth.randn" .. shape .. "\nmoth.randn" .. shape
      .. ", {s = {3, 5}, dim = {1, 3}, norm = 'ortho'}\nmoth.randn" .. shape
      .. ", {3, -1}, {2, 3}, 'forward'",
    args = {
      INPUT[kind],
      {"ints", "s", "length along each dimension, -1: as it is", optional = true},
      {"dims", "dim", "dimensions; the dimension of the pairs is not counted" .. (dims and ""
       or "; default: the last #s dimensions, or all without s"),
       default = dims, optional = not dims},
      NORM,
    },
    run = function(x, s, dim, norm)
      local at, lengths = sizes(name, x, dimensions(name, x, kind), s, dim)
      local dtype = x.dtype
      if HALF[dtype] then x = x:float() end -- to round once
      local last, all = #at, 1
      for k, d in ipairs(at) do
        all = all * math.max(1, length_of(k == last and kind or "c2c", x, lengths[k], d))
      end
      local scale = factor(norm, all, inverse)
      local function go(how, k, by)
        x = transform(name, "s", how, inverse, x, lengths[k], at[k], by)
      end
      if kind == "r2c" then go("r2c", last, scale) end
      for k = 1, kind == "c2c" and last or last - 1 do
        go("c2c", k, kind == "c2c" and k == 1 and scale or 1)
      end
      if kind == "c2r" then go("c2r", last, scale) end
      if HALF[dtype] then x = x:to(dtype) end
      return x
    end,
  }
end

for _, row in ipairs {
  {"fft", "c2c", false, "fft along DIMS."}, {"ifft", "c2c", true, "ifft along DIMS."},
  {"rfft", "r2c", false, "rfft along the last of DIMS, fft along the others."},
  {"irfft", "c2r", true, "The inverse of rfft along DIMS."},
  {"hfft", "c2r", false, "hfft along the last of DIMS, fft along the others."},
  {"ihfft", "r2c", true, "The inverse of hfftN: ihfft along the last of DIMS."},
} do
  local name, kind, inverse, doc = unpack(row)
  local two = doc:gsub("%u%u+", "two dimensions"):gsub("N ", "2 ")
  local many = doc:gsub("%u%u+", "several dimensions"):gsub("N ", "n ")
  several(name .. "2", kind, inverse, {-2, -1}, two)
  several(name .. "n", kind, inverse, nil, many)
end

-- ---- the order of coefficients ----

local WHERE = {
  {"int", "n", "length of the signals"},
  {"float", "d", "time between two numbers", default = 1},
  {"dtype", "dtype", "element type; the default one when absent", optional = true},
  {"device", "device", "where the elements live", optional = true},
  {"bool", "requires_grad", "record gradients for it", default = false},
}

local function frequencies(name, doc, last, first)
  --- moth.fft.fftfreq(n, d): frequencies in cycles per unit of time.
  fft[name] = define {
    name = name, doc = doc, args = WHERE, scoped = true,
    examples = "5\n4, 0.5, {dtype = moth.float64, requires_grad = true}",
    run = function(n, d, dtype, device, requires_grad)
      if n < 1 then
        errors.argument(name, "n", "a number from 1 on is needed, got " .. n, "E_DOMAIN")
      end
      if d == 0 then
        errors.argument(name, "d", "a number other than 0 is needed, got 0", "E_DOMAIN")
      end
      return (require("moth.functions.series").steps(name, "n", last(n) + 1, -first(n), n * d,
        dtype,
        device, requires_grad))
    end,
  }
end

local function middle(n) return math.floor(n / 2) end
frequencies("fftfreq", "The frequency of each coefficient of fft: 0, then positive ones, and in "
  .. "the second half negative ones.", function(n) return middle(n - 1) end,
  function(n) return -middle(n) end)
frequencies("rfftfreq", "The frequency of each coefficient of rfft, from 0 on.", middle,
  function() return 0 end)

local function shift(name, doc, back)
  --- moth.fft.fftshift(x, dim).
  fft[name] = define {
    name = name, doc = doc, scoped = true,
    examples = "moth.randn(5)\nmoth.randn(4, 3, 2), {dim = 1}",
    args = {
      {"tensor", "input", "tensor of any shape"},
      {"dims", "dim", "dimensions; default: all except a last one of size 2, which "
       .. "holds complex pairs", optional = true},
    },
    run = function(x, dim)
      local shifts, dims, n = {}, {}, x:dim()
      dim = list_of(dim)
      if n > 1 and x:size(n) == 2 then n = n - 1 end
      for k = 1, dim and #dim or n do
        dims[k] = position(name, x, dim and dim[k] or k, x:dim())
        local size = x:size(dims[k])
        shifts[k] = back and size - middle(size) or middle(size)
      end
      if #dims == 0 then return x:clone() end
      return ops.roll(x, shifts, dims)
    end,
  }
end

shift("fftshift", "Moves frequency 0 to the middle: rolls the coefficients by half their number.",
  false)
shift("ifftshift", "What fftshift undoes.", true)

-- ---- complex arithmetic on pairs ----

local function parts(fname, x)
  local n = dimensions(fname, x, "c2c", 0) + 1
  return x:select(n, 1), x:select(n, 2)
end

local Z = {"tensor", "input", "complex numbers, (..., 2)"}

--- moth.fft.abs(z): absolute values.
fft.abs = define {
  name = "abs", doc = "The absolute values of complex numbers.", examples = "moth.randn(3, 2)",
  args = {Z}, scoped = true,
  run = function(x)
    dimensions("abs", x, "c2c", 0)
    return ops.norm_p(x, 2, {-1})
  end,
}

--- moth.fft.angle(z): from -pi to pi.
fft.angle = define {
  name = "angle", doc = "The angles of complex numbers, from -pi to pi.",
  examples = "moth.randn(3, 2)", args = {Z}, scoped = true,
  run = function(x)
    local re, im = parts("angle", x)
    return ops.atan2(im, re)
  end,
}

local mul

--- moth.fft.mul(a, b): a product of spectra is the transform of a convolution.
fft.mul = define {
  name = "mul", doc = "The products of complex numbers.",
  examples = "moth.randn(3, 2), moth.randn(3, 2)\nmoth.randn(2, 3, 2), moth.randn(3, 2)",
  args = {Z, {"tensor", "other", "as many, or broadcast"}}, scoped = true,
  run = function(x, y)
    dimensions("mul", x, "c2c", 0)
    dimensions("mul", y, "c2c", 0, "other")
    mul = mul or bind.as("fft_mul", "mul")
    return mul(x, y)
  end,
}

--- moth.fft.polar(abs, angle).
fft.polar = define {
  name = "polar", doc = "The complex numbers of these lengths and angles, (..., 2).",
  examples = "moth.rand(3) + 1, moth.randn(3)",
  args = {{"tensor", "abs", "lengths"}, {"tensor", "angle", "angles, in radians"}},
  scoped = true,
  run = function(length, angle)
    return ops.stack({length * angle:cos(), length * angle:sin()}, -1)
  end,
}

return (lazy.namespace("moth.fft", fft, {}))
