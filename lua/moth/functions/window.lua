--- window.lua -- windows, factors for the frames of a Fourier transform: hann_window,
-- hamming_window, blackman_window, bartlett_window, kaiser_window.

local define = require "moth.binding.define"
local errors = require "moth.error"
local series = require "moth.functions.series"

local abs, cos, pi = math.abs, series.cos, math.pi
local window = {}

local LENGTH = {"int", "window_length", "number of elements"}
local PERIODIC = {"bool", "periodic", "periodic, for a series of windows? if false, the last "
  .. "element equals the first", default = true}
local WHERE = {
  {"dtype", "dtype", "element type; default: the default dtype", optional = true},
  {"device", "device", "the result's device", optional = true},
  {"bool", "requires_grad", "does the result require a gradient?", default = false},
}

-- Defines a window function. value(k, last, ...) returns its elements at positions k, a tensor from
-- 0 on that it may overwrite; `last` is the position of the window's end, and `...` are the values
-- of the arguments in `more`. It is called for the first half only.
local function make(name, doc, more, value, examples)
  local args = {LENGTH, PERIODIC}
  for _, row in ipairs(more) do args[#args + 1] = row end
  for _, row in ipairs(WHERE) do args[#args + 1] = row end
  window[name] = define {
    name = name, doc = doc, args = args, examples = examples, scoped = true,
    run = function(n, periodic, ...)
      if n < 0 then
        errors.argument(name, "window_length", "a number from 0 on is needed, got " .. n,
          "E_DOMAIN")
      end
      local a, b = ...
      if name == "kaiser_window" and not (abs(a) < math.huge) then
        errors.argument(name, "beta", "a finite number is needed, got " .. a, "E_DOMAIN")
      end
      local last = periodic and n or n - 1
      local dtype, device, requires_grad = select(#more + 1, ...)
      return (series.of(name, "window_length", n, function(k)
        return n == 1 and k:fill_(1) or value(k, last, a, b)
      end, dtype, device, requires_grad, last))
    end,
  }
end

local EXAMPLES = "5\n4, false, {dtype = moth.float64, requires_grad = true}"

make("hann_window", "One period of a cosine, from 0 to 1 and back.", {},
  function(k, last) return cos(k, 2 * pi / last):mul_(-0.5):add_(0.5) end, EXAMPLES)

make("hamming_window", "alpha - beta times a cosine.", {
  {"float", "alpha", "the mean", default = 0.54},
  {"float", "beta", "the factor of the cosine", default = 0.46},
}, function(k, last, alpha, beta) return cos(k, 2 * pi / last):mul_(-beta):add_(alpha) end,
  "5\n4, false, {alpha = 0.5, beta = 0.4, dtype = moth.float64, requires_grad = true}")

make("blackman_window", "A sum of two cosines, 0 at its ends.", {},
  function(k, last)
    local twice = k * (4 * pi / last)
    return cos(k, 2 * pi / last):mul_(-0.5):add_(0.42):add_(twice:cos_(), 0.08)
  end, EXAMPLES)

make("bartlett_window", "A triangle.", {},
  function(k, last) return k:div_(last / 2) end, EXAMPLES)

make("kaiser_window", "A Bessel function; a larger beta makes it narrower.", {
  {"float", "beta", "a larger beta makes the window narrower", default = 12},
}, function(k, last, beta)
  beta = abs(beta)
  local x = k:div_(last / 2):sub_(1):square_():neg_():add_(1):clamp_{min = 0}:sqrt_():mul_(beta)
  return (series.bessel_ratio(x, beta))
end, "5\n4, false, {beta = 3, dtype = moth.float64, requires_grad = true}")

return window
