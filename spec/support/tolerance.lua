--- tolerance.lua -- the allowed distance of a result from its golden value, by the class of the op
-- and the dtype of the run. The distance is measured from the f64 golden value.

local tolerance = {}

-- Bits of the fraction, smallest normal exponent, largest finite value.
local FORMAT = {
  float64 = {52, -1022, 1.7976931348623157e308}, float32 = {23, -126, 3.4028234663852886e38},
  float16 = {10, -14, 65504}, bfloat16 = {7, -126, 3.3895313892515355e38},
}

--- The distance between y and the next number (ulp).
function tolerance.ulp(y, dtype)
  local format = FORMAT[dtype]
  local _, exponent = math.frexp(y)
  return 2 ^ (math.max(exponent - 1, format[2]) - format[1])
end

local EPS = {float64 = 2 ^ -52, float32 = 2 ^ -23, float16 = 2 ^ -10, bfloat16 = 2 ^ -7}

-- Relative and absolute.
local function near(rows)
  return function(y, dtype, scale)
    local row = rows[dtype]
    return row[1] * math.abs(y) + row[2] * math.max(scale, 1)
  end
end

local HALF = {float16 = {1e-3, 1e-5}, bfloat16 = {1.6e-2, 1e-5}}
local function ulps(full, half)
  return function(y, dtype)
    return (HALF[dtype] and half or full) * tolerance.ulp(y, dtype)
  end
end

-- A tolerance for sums: relative to the sum of absolute values, sum |x| or |A||B|.
local function sums(factor64, factor32)
  return function(y, dtype, scale)
    local size = math.max(math.abs(y), scale)
    if dtype == "float64" then return factor64 * size end
    if dtype == "float32" then return factor32 * EPS.float32 * size end
    return HALF[dtype][1] * math.abs(y) + HALF[dtype][2] * math.max(size, 1)
  end
end

tolerance.classes = {
  copy = function(y, dtype) -- exact in f64; else rounded to the dtype
    return dtype == "float64" and 0 or 0.5 * tolerance.ulp(y, dtype)
  end,
  arith = ulps(1, 1),
  math = ulps(4, 2),
  reduce = sums(1e-13, 8),
  matmul = sums(1e-13, 8),
  soft = near{float64 = {1e-12, 1e-12}, float32 = {1.3e-6, 1e-5}, float16 = HALF.float16,
    bfloat16 = HALF.bfloat16},
  composed = near{ -- composites of other ops: half types round at each step
    float64 = {1e-12, 1e-12}, float32 = {1.3e-6, 1e-5}, float16 = {4e-3, 4e-3},
    bfloat16 = {3.2e-2, 3.2e-2}},
  linalg = near{float64 = {1e-11, 1e-12}, float32 = {5e-6, 5e-6}}, -- far from singular
  grads = near{float64 = {1e-9, 1e-11}, float32 = {5e-6, 5e-5}},
  second = near{float64 = {1e-7, 1e-9}},
}

--- Returns true if `got` is close enough to `want`.
-- @param allowed  nil, or the sample's tolerances: {dtype -> number}, both relative and absolute
function tolerance.same(want, got, class, dtype, scale, allowed)
  if type(want) ~= "number" or type(got) ~= "number" then return want == got end
  if want == got or (want ~= want and got ~= got) then return true end
  if want ~= want or got ~= got then return false end
  local format = FORMAT[dtype]
  if not format then return false end
  if math.abs(want) > format[3] and math.abs(got) >= format[3] * (1 - 2 ^ -5) then
    return (want < 0) == (got < 0) -- rounds to the end of the range, or over it
  end
  if math.abs(want) == math.huge or math.abs(got) == math.huge then return false end
  local most = tolerance.classes[class](want, dtype, scale)
  if allowed then most = math.max(most, allowed * math.max(1, math.abs(want))) end
  return math.abs(got - want) <= most
end

return tolerance
