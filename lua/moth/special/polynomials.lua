--- polynomials.lua -- moth.special's orthogonal polynomials, by their three-term recurrences
-- (Abramowitz and Stegun 22.7), in float64. Gradients of every order come from the ops. On the CPU,
-- without a gradient, one kernel computes them.

local attach = require("moth.autograd.attach").attach
local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local ops, istensor = bind.ops, lib.istensor
local polynomials = {}

local MOST = 1e5 -- the highest degree: with a gradient it takes a second

-- P0 = 1, P1 = a x + b, P(k + 1) = (a x + b) P(k) - c P(k - 1). A row contains a and b of degree 1,
-- and a function of k that returns a, b, c of degree k + 1.
local function chebyshev(a, b) return {a, b, function() return 2, 0, 1 end} end
local ROWS = {
  chebyshev_polynomial_t = chebyshev(1, 0), chebyshev_polynomial_u = chebyshev(2, 0),
  chebyshev_polynomial_v = chebyshev(2, -1), chebyshev_polynomial_w = chebyshev(2, 1),
  hermite_polynomial_h = {2, 0, function(k) return 2, 0, 2 * k end},
  hermite_polynomial_he = {1, 0, function(k) return 1, 0, k end},
  laguerre_polynomial_l = { -1, 1, function(k)
    return -1 / (k + 1), (2 * k + 1) / (k + 1), k / (k + 1)
  end},
  legendre_polynomial_p = {1, 0, function(k) return (2 * k + 1) / (k + 1), 0, k / (k + 1) end},
}

-- Returns a x + b, or x itself.
local function linear(x, a, b)
  if a == 1 then return b == 0 and x or x + b end
  local y = x * a
  return b == 0 and y or y:add_(b)
end

-- Computes the polynomials of x from degree 0, which is the number 1, to `most`, and calls each(k,
-- value).
local function walk(row, x, most, each)
  local before, now = 1, linear(x, row[1], row[2])
  local line, slope, start -- line = slope x + start
  each(0, before)
  for k = 1, most do
    each(k, now)
    if k == most then break end
    local a, b, c = row[3](k)
    if a ~= slope or b ~= start then line, slope, start = linear(x, a, b), a, b end
    local next_one = line * now
    if k == 1 then next_one:sub_(c) else next_one:sub_(before, c) end
    before, now = now, next_one
  end
end

local function of_number(row, x, n)
  local y
  if n < 0 then return ops.zeros_like(x) end
  if n == 0 then return ops.ones_like(x) end
  walk(row, x, n, function(k, value) if k == n then y = value end end)
  return n == 1 and y:clone() or y -- degree 1 may be x itself
end

local function check(name, most)
  if most <= MOST then return end
  errors.argument(name, "n", ("degrees up to %d are needed, got %s"):format(MOST, most), "E_DOMAIN")
end

local function of_tensor(name, row, x, n)
  if lib.capture then
    errors.argument(name, "n",
      "a captured step needs a number: it cannot read a tensor of degrees")
  end
  if not n:is_floating_point() then n = n:to(x.dtype) else n = n:trunc() end
  local both = require("moth.functions.joining").broadcast_tensors(x, n)
  local y, at = ops.zeros_like(both[1]), both[2]
  if y:numel() == 0 then return y end
  local most = at:max():item()
  check(name, most)
  walk(row, x, most, function(k, value) y = ops.where(at:eq(k), value, y) end)
  return y
end

-- Returns true if the kernel supports the input: it has no gradient, and only runs on the CPU.
local function has_kernel(input)
  local trace = package.loaded["moth.kernel.trace"]
  return input:is_floating_point() and input.device.type == "cpu" and not (trace and trace.reading)
    and not (input.requires_grad and require("moth.autograd").is_grad_enabled())
end

local function refuse_boolean(name, arg, value)
  errors.refuse(name, arg, "a tensor or a number is needed", value, "E_TYPE")
end

local function made(name, row, shifted)
  local kernel, kind = bind.as("polynomial_of", name), name:gsub("^shifted_", "")
  kind = kind:gsub("_polynomial", "")
  polynomials[name] = define {
    name = name,
    doc = ("%s's polynomial %s of degree n%s; 0 for n below 0."):format(
      name:match("(%l+)_polynomial"):gsub("^%l", string.upper), name:match("%l+$"):upper(),
      shifted and " at 2 input - 1" or ""),
    examples = "moth.rand(2, 3), 3\nmoth.rand(2, 3), moth.tensor{0LL, 2LL, 5LL}",
    args = {{"tensor", "input", "a tensor, or a number if n is a tensor", numbers = true},
             {"tensor", "n", "the degree, an integer or a tensor of integers; the time grows "
               .. "with the largest degree", numbers = true}},
    scoped = true,
    run = function(input, n)
      local moth = require "moth"
      if type(n) == "boolean" then refuse_boolean(name, "n", n) end
      if type(input) == "boolean" then refuse_boolean(name, "input", input) end
      if not istensor(n) then n = tonumber(n) end -- n may be an int64
      if not istensor(input) then
        if not istensor(n) then
          errors.argument(name, "input", "at least one tensor is needed, got "
            .. errors.describe(input))
        end
        input = ops.full({}, input, nil, n.device)
      elseif not istensor(n) and has_kernel(input) then
        check(name, n)
        return (kernel(input, kind, n < 0 and -1 or math.floor(n), shifted))
      end
      local dtype = input:is_floating_point() and input.dtype or moth.get_default_dtype()
      local x = input:to(moth.float64)
      if shifted then x = x * 2 - 1 end
      local y
      if istensor(n) then
        y = of_tensor(name, row, x, n)
      else
        check(name, n)
        y = of_number(row, x, n < 0 and -1 or math.floor(n))
      end
      return (attach(y, x):to(dtype))
    end,
  }
end

for name, row in pairs(ROWS) do
  made(name, row, false)
  if name:find "^chebyshev" then made("shifted_" .. name, row, true) end
end

return polynomials
