--- series.lua -- vectors whose elements a Lua function gives: windows of signals, frequencies. The
-- memory is asked for first, so that a length that is too large is refused at once.

local bind = require "moth.bind"
local errors = require "moth.error"

local series = {}

local MANY = 2 ^ 16 -- elements that are listed at a time

--- A vector of n elements.
-- @param fname         the function that the user called
-- @param argname       its argument that says n
-- @param f             function(k) -> the element at position k, from 0
-- @param requires_grad  record gradients for it
function series.of(fname, argname, n, f, dtype, device, requires_grad)
  local moth = require "moth"
  dtype = dtype or moth.get_default_dtype()
  if not dtype.is_floating_point then
    errors.refuse(fname, "dtype", "a floating dtype is needed", dtype, "E_DTYPE")
  end
  local y = bind.as("empty", fname, { size = argname })({ n }, dtype, device)
  for first = 0, n - 1, MANY do
    local list, count = {}, math.min(MANY, n - first)
    for k = 1, count do list[k] = f(first + k - 1) end
    y:narrow(1, first + 1, count):copy_(moth.tensor(list, { dtype = dtype }))
  end
  if requires_grad then y:requires_grad_() end
  return y
end

-- exp(-x) times the modified Bessel function of order 0, of x from 0 on: by its series, or, from
-- where its first terms say all, by the asymptotic one (Abramowitz and Stegun 9.6.12, 9.7.1).
local function bessel_scaled(x)
  local sum, term, k = 1, 1, 0
  if x < 50 then
    repeat
      k = k + 1
      term = term * (x / (2 * k)) ^ 2
      sum = sum + term
    until term < sum * 1e-17
    return sum * math.exp(-x)
  end
  repeat
    k = k + 1
    term = term * (2 * k - 1) ^ 2 / (8 * k * x)
    sum = sum + term
  until term < sum * 1e-17
  return sum / math.sqrt(2 * math.pi * x)
end

--- I0(x) / I0(y), for 0 <= x <= y.
function series.bessel_ratio(x, y)
  return math.exp(x - y) * bessel_scaled(x) / bessel_scaled(y)
end

return series
