--- windows.lua -- moth.signal.windows: windows of a signal, with PyTorch's names.
--
--     moth.signal.windows.hann(512)                    -- symmetric
--     moth.signal.windows.hann(512, {sym = false})     -- periodic, for moth.stft

local define = require "moth.binding.define"
local errors = require "moth.error"
local lazy = require "moth.base.lazy"
local series = require "moth.functions.series"

local cos, pi = series.cos, math.pi

local windows = {}

local LENGTH = {"int", "M", "number of elements"}
local SYM = {"bool", "sym", "symmetric? if false, the first M elements of a window of M + 1",
              default = true}
local WHERE = {
  {"dtype", "dtype", "element type; default: the default dtype", optional = true},
  {"device", "device", "the result's device", optional = true},
  {"bool", "requires_grad", "does the result require a gradient?", default = false},
}

local function above(name, argument, value, least, strict)
  if value > least or not strict and value == least then return end
  errors.argument(name, argument, ("a number %s %g is needed, got %g"):format(
    strict and "above" or "from", least, value), "E_DOMAIN")
end

-- Defines a window. terms(n, sym, ...) returns a function of the elements' positions; the positions
-- are a tensor from 0 on that it may overwrite, `...` are the values of the arguments in `more`.
-- mirrored: the window is symmetric, and the function is called for its first half only.
local function make(name, doc, more, terms, examples, mirrored)
  local args = {LENGTH}
  for _, row in ipairs(more) do args[#args + 1] = row end
  args[#args + 1] = SYM
  for _, row in ipairs(WHERE) do args[#args + 1] = row end
  local at = #more + 1
  windows[name] = define {
    name = name, doc = doc, args = args, scoped = true,
    examples = (examples or "5") .. "\n4, {sym = false, dtype = moth.float64, requires_grad = "
      .. "true" .. (name == "general_cosine" and ", a = {0.5, 0.5}}" or "}"),
    run = function(n, ...)
      above(name, "M", n, 0)
      local a, b = ...
      local sym, dtype, device, requires_grad = select(at, ...)
      if at == 1 then a, b = nil, nil elseif at == 2 then b = nil end
      local f = terms(n, sym, a, b)
      local mirror = mirrored and (sym and n - 1 or n) or nil
      return (series.of(name, "M", n, f, dtype, device, requires_grad, mirror))
    end,
  }
end

-- The period of a window of n elements.
local function period(n, sym) return sym and n - 1 or n end

local function one(k) return k:fill_(1) end

-- a[1] - a[2] cos t + a[3] cos 2t - ...
local function cosines(n, sym, a)
  if n == 1 then return one end
  local step = 2 * pi / period(n, sym)
  return function(k)
    if #a == 1 then return k:fill_(a[1]) end
    local sum
    for i = #a, 2, -1 do
      local term = cos(i > 2 and k * 1 or k, (i - 1) * step):mul_(i % 2 == 1 and a[i] or -a[i])
      sum = sum and sum:add_(term) or term
    end
    return sum:add_(a[1])
  end
end

make("bartlett", "A triangle from 0 to 1 and back.", {}, function(n, sym)
  if n == 1 then return one end
  return function(k) return k:mul_(2):div_(period(n, sym)) end
end, nil, true)

make("blackman", "A sum of two cosines, 0 at its ends.", {}, function(n, sym)
  return cosines(n, sym, {0.42, 0.5, 0.08})
end, nil, true)

make("cosine", "Half a period of a sine.", {}, function(n, sym)
  local last = not sym and n > 1 and n + 1 or n
  return function(k) return k:add_(0.5):mul_(pi):div_(last):sin_() end
end, nil, true)

make("exponential", "exp(-|n - center| / tau).", {
  {"float", "center", "the position of the maximum, from 0; default: the middle",
    optional = true},
  {"float", "tau", "a larger tau makes it wider", default = 1},
}, function(n, sym, center, tau)
  above("exponential", "tau", tau, 0, true)
  center = center or (not sym and n > 1 and n or n - 1) / 2
  return function(k) return k:sub_(center):abs_():div_(-tau):exp_() end
end, "5\n5, {center = 1, tau = 2}")

make("gaussian", "The density of a normal distribution, scaled to 1 at the middle.", {
  {"float", "std", "the standard deviation, in elements", default = 1},
}, function(n, sym, std)
  above("gaussian", "std", std, 0, true)
  local middle = (not sym and n > 1 and n or n - 1) / 2
  return function(k) return k:sub_(middle):div_(std):square_():mul_(-0.5):exp_() end
end, "5\n5, {std = 0.9}")

make("general_cosine", "A sum of cosines: a[1] - a[2] cos(t) + a[3] cos(2 t) - ...", {
  {"floats", "a", "the coefficients"},
}, function(n, sym, a)
  if type(a) == "number" then a = {a} end
  if #a == 0 then errors.argument("general_cosine", "a", "at least one factor is "
    .. "needed", "E_SHAPE") end
  return cosines(n, sym, a)
end, "5, {0.46, 0.23, 0.31}", true)

make("general_hamming", "alpha - (1 - alpha) times a cosine.", {
  {"float", "alpha", "the mean", default = 0.54},
}, function(n, sym, alpha) return cosines(n, sym, {alpha, 1 - alpha}) end, "5\n5, {alpha = 0.46}",
  true)

make("hamming", "0.54 - 0.46 times a cosine.", {}, function(n, sym)
  return cosines(n, sym, {0.54, 0.46})
end, nil, true)

make("hann", "One period of a cosine, from 0 to 1 and back.", {}, function(n, sym)
  return cosines(n, sym, {0.5, 0.5})
end, nil, true)

make("kaiser", "A Bessel function; a larger beta makes it narrower.", {
  {"float", "beta", "a larger beta makes the window narrower", default = 12},
}, function(n, sym, beta)
  above("kaiser", "beta", beta, 0)
  if n == 1 then return one end
  return function(k)
    local t = k:mul_(2):div_(period(n, sym)):sub_(1)
    local x = t:square_():neg_():add_(1):clamp_{min = 0}:sqrt_():mul_(beta)
    return (series.bessel_ratio(x, beta))
  end
end, "5\n5, {beta = 3}", true)

make("nuttall", "A sum of three cosines with low side lobes.", {}, function(n, sym)
  return cosines(n, sym, {0.3635819, 0.4891775, 0.1365995, 0.0106411})
end, nil, true)

return (lazy.namespace("moth.signal.windows", windows, {}))
