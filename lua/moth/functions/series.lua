--- series.lua -- vectors whose elements are functions of their positions: windows of signals,
-- frequencies. Memory is allocated first, so that a too large length raises at once.

local bind = require "moth.binding.bind"
local errors = require "moth.error"

local series = {}

local MANY = 2 ^ 15 -- elements computed at a time: they fit into the cache

local empty = {} -- a function's name -> the op empty, whose messages name this function

--- Returns a vector of n elements.
-- @param fname         the function that the user called
-- @param argname       the name of its argument n
-- @param f             function(k) -> the elements at positions k, an f64 tensor that counts from 0
-- and that f may overwrite
-- @param requires_grad  does the result require a gradient?
-- @param mirror        if the vector is symmetric: the sum of the positions of two equal elements,
-- n - 1 or n; f is then called for the first half only
function series.of(fname, argname, n, f, dtype, device, requires_grad, mirror)
  local moth = require "moth"
  local f64 = moth.float64
  dtype = dtype or moth.get_default_dtype()
  if not dtype.is_floating_point then
    errors.refuse(fname, "dtype", "a floating dtype is needed", dtype, "E_DTYPE")
  end
  empty[fname] = empty[fname] or bind.as("empty", fname, {size = argname})
  local y = empty[fname]({n}, dtype, device)
  local half = mirror and n > 1 and math.floor(mirror / 2) + 1 or n
  for first = 0, half - 1, MANY do
    local stop = math.min(half, first + MANY)
    local part = f(bind.ops.arange(first, stop, 1, f64, "cpu"))
    if n <= MANY and half == n and y.dtype == f64 and y.device == part.device then
      y = part
    else
      y:narrow(1, first + 1, stop - first):copy_(part)
    end
  end
  if half < n then
    local rest = n - half
    y:narrow(1, half + 1, rest):copy_(y:narrow(1, mirror - n + 2, rest):flip(1))
  end
  if requires_grad then y:requires_grad_() end
  return y
end

-- Longer vectors are computed in two steps, whose error does not grow with the length.
local ONE_STEP = 2 ^ 20

--- Returns a vector of `before` numbers 0, 1, ..., followed by the `behind` numbers up to -1, each
-- divided by `by`.
function series.steps(fname, argname, before, behind, by, dtype, device, requires_grad)
  local moth = require "moth"
  local n = before + behind
  dtype = dtype or moth.get_default_dtype()
  if n > ONE_STEP or dtype == moth.float64 or not dtype.is_floating_point then
    return series.of(fname, argname, n, function(k)
      if behind > 0 then k:add_(k:ge(before), -n) end
      return k:div_(by)
    end, dtype, device, requires_grad)
  end
  empty[fname] = empty[fname] or bind.as("empty", fname, {size = argname})
  local y, step = empty[fname]({n}, dtype, device), 1 / by
  local function fill(at, count, first)
    if count < 1 then return end
    local part = bind.ops.arange(first * step, (first + count - 0.5) * step, step, dtype, "cpu")
    if count == n and y.device == part.device then
      y = part
    else
      y:narrow(1, at, count):copy_(part)
    end
  end
  fill(1, before, 0)
  fill(before + 1, behind, -behind)
  if requires_grad then y:requires_grad_() end
  return y
end

--- cos(factor k), which overwrites k.
function series.cos(k, factor) return k:mul_(factor):cos_() end

--- I0(x) / I0(y) for 0 <= x <= y; it may overwrite x. I0 is the modified Bessel function of order
-- 0.
function series.bessel_ratio(x, y)
  local i0e = bind.ops.special_i0e
  local last = i0e(bind.ops.full({1}, y, require("moth").float64, "cpu")):item()
  return i0e(x):mul_(x:sub_(y):exp_()):div_(last)
end

return series
