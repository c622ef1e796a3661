--- ticks.lua -- the scale of an axis: limits, the place of a value, and ticks at round numbers.
--
-- Algorithm: Heckbert, "Nice Numbers for Graph Labels" (Graphics Gems, 1990).

local floor, log10 = math.floor, math.log10

local ticks = {}

-- ---- numbers as labels ----

-- Formats a number with this many digits after the decimal point. kind: f or e.
local function with_digits(value, digits, kind)
  return ("%%.%d%s"):format(math.max(digits, 0), kind):format(value)
end

local function trimmed(text) -- 1.50e+05 as 1.5e5
  return (text:gsub("e%+?(%-?)0*(%d+)$", "e%1%2"):gsub("(%.%d-)0+e", "%1e"):gsub("%.e", "e"))
end

-- A label with as many digits as the step of the ticks needs.
local function label_of(value, step, largest)
  if math.abs(value) < step * 1e-6 then return "0" end
  if largest >= 1e6 or step < 1e-4 then
    local digits = floor(log10(math.abs(value)) + 1e-9) - floor(log10(step) + 1e-9)
    return trimmed(with_digits(value, digits, "e"))
  end
  return with_digits(value, -floor(log10(step) + 1e-9), "f")
end

--- A number as a short text: 0.1235, 12, 1.2e7.
function ticks.short(value)
  if value ~= value then return "nan" end
  if value == floor(value) and math.abs(value) < 1e6 then return ("%d"):format(value) end
  return trimmed(("%.4g"):format(value))
end

-- ---- steps ----

local MOST = 100 -- ticks of an axis

-- The smallest of 1, 2, 5 times a power of ten that is not below x.
local function nice(x)
  local power = 10 ^ floor(log10(x))
  local share = x / power
  for _, factor in ipairs {1, 2, 5} do
    if share <= factor * (1 + 1e-9) then return factor * power end
  end
  return 10 * power
end

local function linear(low, high, count)
  local step, list = nice((high - low) / math.max(count, 1)), {}
  local largest = math.max(math.abs(low), math.abs(high))
  local first, last = math.ceil(low / step - 1e-9), floor(high / step + 1e-9)
  for k = 0, math.min(last - first, MOST) do -- above 2^53 first + k may be equal to first
    local value = (first + k) * step
    list[#list + 1] = {value = value, label = label_of(value, step, largest)}
  end
  return list
end

local function power_label(value)
  local exponent = floor(log10(value) + 1e-9)
  if exponent >= -3 and exponent <= 4 then
    return with_digits(value, -exponent, "f")
  end
  return trimmed(("%.0e"):format(value))
end

local function logarithmic(low, high, count)
  local first, last = floor(log10(low) - 1e-9), math.ceil(log10(high) + 1e-9)
  local decades = log10(high) - log10(low)
  local every = math.max(1, math.ceil(decades / math.max(count, 1)))
  local list = {}
  for exponent = first, last do
    for _, factor in ipairs(decades < count / 3 and {1, 2, 5} or {1}) do
      local value = factor * 10 ^ exponent
      if exponent % every == 0 and value >= low * (1 - 1e-9) and value <= high * (1 + 1e-9) then
        list[#list + 1] = {value = value, label = power_label(value)}
      end
    end
  end
  if #list < 2 then
    list = linear(low, high, count)
    if list[1] and list[1].value <= 0 then table.remove(list, 1) end
  end
  return list
end

-- ---- the scale ----

local LARGEST = 1e300  -- limits beyond it would overflow
local FINEST = 1e-13   -- the least range, as a share of the values: doubles have 16 digits

--- Makes a scale.
-- @param low, high  the limits; for a logarithmic scale above 0
-- @param log        true: logarithmic
-- @return a table: map(value) is the place of a value, 0 at low and 1 at high; ticks(count) lists
-- about `count` ticks {at = place, label = text}
function ticks.scale(low, high, log)
  local smallest = log and 1 / LARGEST or -LARGEST
  low = math.min(math.max(low, smallest), LARGEST)
  high = math.min(math.max(high, smallest), LARGEST)
  local least = math.max(math.max(math.abs(low), math.abs(high)) * FINEST, 1 / LARGEST)
  if high - low <= least and not (log and high > 2 * low) then
    local pad = log and 2 or math.max(math.abs(low) * 0.1, 0.5)
    low, high = log and low / pad or low - pad, log and high * pad or high + pad
  end
  local scale = {low = low, high = high, log = log}
  local from, span = log and log10(low) or low, log and log10(high) - log10(low) or high - low
  function scale.map(value)
    if not log then return (value - from) / span end
    if value <= 0 then return 0 / 0 end
    return (log10(value) - from) / span
  end
  function scale.ticks(count)
    local list = (log and logarithmic or linear)(low, high, count)
    for _, tick in ipairs(list) do tick.at = scale.map(tick.value) end
    return list
  end
  return scale
end

return ticks
