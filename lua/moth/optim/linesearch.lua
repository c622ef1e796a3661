--- linesearch.lua -- a line search for optim.LBFGS: a step length that satisfies the strong Wolfe
-- conditions (Nocedal and Wright, Numerical Optimization, 3.5).
--
-- A point on the line is {t, value, slope, grad}; slope is the directional derivative. The
-- bracketing phase increases t until an interval contains a minimum; the zoom phase shrinks the
-- interval.

local search = {}

local abs, max, min = math.abs, math.max, math.min
local ENOUGH, FLAT = 1e-4, 0.9 -- the constants of sufficient decrease and of curvature

-- Returns the minimum of the cubic through two points, clamped to bounds.
local function cubic(a, b, low, high)
  low, high = low or min(a.t, b.t), high or max(a.t, b.t)
  local d1 = a.slope + b.slope - 3 * (a.value - b.value) / (a.t - b.t)
  local square = d1 * d1 - a.slope * b.slope
  if not (square >= 0) then return (low + high) / 2 end
  if a.t > b.t then a, b = b, a end
  local d2 = math.sqrt(square)
  local t = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
  return min(max(t, low), high)
end

-- The bracketing phase. Returns two points around a minimum, or one acceptable point; and the
-- number of function calls.
local function bracket(at, start, first, most)
  local before, point = start, at(first)
  for calls = 0, most - 1 do
    if point.value > start.value + ENOUGH * point.t * start.slope
       or calls > 1 and point.value >= before.value then
      return before, point, calls
    elseif abs(point.slope) <= -FLAT * start.slope then
      return point, nil, calls
    elseif point.slope >= 0 then
      return before, point, calls
    end
    local t = cubic(before, point, point.t + 0.01 * (point.t - before.t), point.t * 10)
    before, point = point, at(t)
  end
  return start, point, most
end

-- Returns the next t between two points. If it is too near to an end twice in a row, it is moved
-- inwards.
local function inside(a, b, stuck)
  local t, low, high = cubic(a, b), min(a.t, b.t), max(a.t, b.t)
  local room = 0.1 * (high - low)
  if min(high - t, t - low) >= room then return t, false end
  if not stuck and t < high and t > low then return t, true end
  return abs(t - high) < abs(t - low) and high - room or low + room, false
end

-- The zoom phase: shrinks the interval until a point is acceptable, and keeps the point with the
-- lower value.
local function zoom(at, start, low, high, how, calls)
  if high.value < low.value then low, high = high, low end
  local t, stuck
  while calls < how.most and abs(high.t - low.t) * how.length >= how.tolerance do
    t, stuck = inside(low, high, stuck)
    local point = at(t)
    calls = calls + 1
    if point.value > start.value + ENOUGH * t * start.slope or point.value >= low.value then
      high = point
    elseif abs(point.slope) <= -FLAT * start.slope then
      return point
    else
      if point.slope * (high.t - low.t) >= 0 then high = low end
      low = point
    end
  end
  return low
end

--- Finds a step length along a direction.
-- @param evaluate  function(t) -> the value and the gradient at t
-- @param how  t: the first step length to try; value, grad, slope: the values at 0; direction;
-- tolerance: the shortest interval, times the largest element of the direction; most: the maximal
-- number of iterations of each phase
-- @return the value, the gradient and t
function search.strong_wolfe(evaluate, how)
  local function at(t)
    local value, grad = evaluate(t)
    return {t = t, value = value, grad = grad, slope = grad:dot(how.direction):item()}
  end
  local start = {t = 0, value = how.value, grad = how.grad, slope = how.slope}
  how.length = how.direction:abs():max():item()
  local a, b, calls = bracket(at, start, how.t, how.most)
  local found = b == nil and a or zoom(at, start, a, b, how, calls)
  return found.value, found.grad, found.t
end

return search
