--- draw.lua -- random numbers for transforms, from Moth's generators.

local bind = require "moth.binding.bind"
local dtype = require "moth.tensor.dtype"

local ops = bind.ops
local FLOAT = dtype.by_name.float32

local draw = {}

--- A list of n numbers from 0 to 1.
-- @param generator  nil: the default generator
function draw.numbers(generator, n)
  return ops.rand({n}, generator, FLOAT, "cpu"):tolist()
end

--- A random number from low to high.
function draw.uniform(generator, low, high)
  return low + (high - low) * ops.rand({1}, generator, FLOAT, "cpu"):item()
end

--- Converts a number u from 0 to 1 to an integer from low to high - 1.
function draw.whole(u, low, high)
  return math.min(low + math.floor(u * (high - low)), high - 1)
end

--- A random integer from low to high - 1.
function draw.integer(generator, low, high)
  return draw.whole(ops.rand({1}, generator, FLOAT, "cpu"):item(), low, high)
end

--- The numbers 1 to n in a random order.
function draw.order(generator, n)
  return ops.randperm(n, generator):tolist()
end

--- A number from 0 to 1 of a Beta distribution with two equal parameters.
function draw.beta(generator, alpha)
  if alpha == 1 then return draw.uniform(generator, 0, 1) end
  local shape = require("moth").tensor({alpha, alpha}, {dtype = dtype.by_name.float64})
  local a, b = unpack(ops.standard_gamma(shape, generator):tolist())
  if a == b then return draw.integer(generator, 0, 2) end -- both are the smallest f64
  return a / (a + b)
end

--- Rounds as Python does: halves to the even integer.
function draw.round(x)
  local low = math.floor(x)
  local part = x - low
  if part > 0.5 or (part == 0.5 and low % 2 == 1) then return low + 1 end
  return low
end

return draw
