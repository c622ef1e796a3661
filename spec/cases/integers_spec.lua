-- Cases: integer arithmetic at its edges, for every dtype, against int64 arithmetic in Lua: sums
-- that wrap, divisors of -1, the smallest numbers, shifts by all bits; between tensors, with
-- numbers on each side, and with strides.

local moth = require "moth"

local ffi = require "ffi"

-- dtype -> bits, signed
local KINDS = {
  {moth.uint8, 8, false}, {moth.int8, 8, true}, {moth.int16, 16, true}, {moth.int32, 32, true},
  {moth.int64, 64, true},
}

local function i64(x) return ffi.cast("int64_t", x) end

-- The number modulo 2^bits, in the range of the dtype.
local function wrapped(x, bits, signed)
  if bits == 64 then return i64(x) end
  local value = tonumber(i64(x) % (2LL ^ bits))
  if value < 0 then value = value + 2 ^ bits end
  if signed and value >= 2 ^ (bits - 1) then value = value - 2 ^ bits end
  return i64(value)
end

local function values_of(bits, signed)
  local least = signed and (bits == 64 and -9223372036854775807LL - 1 or i64(-2 ^ (bits - 1))) or
    0LL
  local most = signed and (bits == 64 and 9223372036854775807LL or i64(2 ^ (bits - 1) - 1)) or
    i64(2 ^ bits - 1)
  local list = {least, least + 1, most, most - 1, 0LL, 1LL, 2LL, 3LL, 7LL, 10LL}
  if signed then
    for _, v in ipairs {-1LL, -2LL, -3LL, -7LL} do list[#list + 1] = v end
  end
  return list, least
end

local function floor_div(a, b)
  if b == -1 then return -a end
  local q = a / b
  return (a % b ~= 0 and (a < 0) ~= (b < 0)) and q - 1 or q
end

local function rest(a, b) return b == -1 and 0LL or a % b end

local function gcd(a, b)
  while b ~= 0 do a, b = b, rest(a, b) end
  return a < 0 and -a or a
end

local function power(a, b)
  local y = 1LL
  for _ = 1, tonumber(b) do y = y * a end
  return y
end

local function any() return true end
local function divides(_, b) return b ~= 0 end
local function quotient(a, b, least) return b ~= 0 and not (a == least and b == -1) end

-- name, function of int64s, which pairs, results are bool
local OPS = {
  {"add", function(a, b) return a + b end, any}, {"sub", function(a, b) return a - b end, any},
  {"mul", function(a, b) return a * b end, any},
  {"remainder", function(a, b) return rest(a, b) ~= 0 and (rest(a, b) < 0) ~= (b < 0) and rest(a,
    b) + b
    or rest(a, b) end, divides},
  {"fmod", rest, divides}, {"floor_divide", floor_div, quotient},
  {"bitwise_and", bit.band, any}, {"bitwise_or", bit.bor, any}, {"bitwise_xor", bit.bxor, any},
  {"maximum", function(a, b) return a > b and a or b end, any},
  {"minimum", function(a, b) return a < b and a or b end, any},
  {"gcd", gcd, function(a, b, least) return a ~= least and b ~= least end},
  {"pow", power, function(_, b) return b >= 0 and b <= 10 end},
  {"eq", function(a, b) return a == b end, any, true}, {"ne", function(a, b) return a ~= b end, any,
    true},
  {"lt", function(a, b) return a < b end, any, true}, {"le", function(a, b) return a <= b end, any,
    true},
  {"gt", function(a, b) return a > b end, any, true}, {"ge", function(a, b) return a >= b end, any,
    true},
  {"logical_and", function(a, b) return a ~= 0 and b ~= 0 end, any, true},
  {"logical_xor", function(a, b) return (a ~= 0) ~= (b ~= 0) end, any, true},
}

-- The pairs of values for an op: two lists, and the list of results.
local function pairs_for(row, bits, signed)
  local values, least = values_of(bits, signed)
  local one, other, wanted = {}, {}, {}
  for _, a in ipairs(values) do
    for _, b in ipairs(values) do
      if row[3](a, b, least) then
        one[#one + 1], other[#other + 1] = a, b
        local y = row[2](a, b)
        if row[4] then wanted[#wanted + 1] = y else wanted[#wanted + 1] = wrapped(y, bits,
          signed) end
      end
    end
  end
  return one, other, wanted
end

local function same(wanted, y, what)
  local got = y:reshape(-1):tolist()
  assert.equal(#wanted, #got, what)
  for i, w in ipairs(wanted) do
    local fits = w == got[i] or type(w) == "cdata" and type(got[i]) == "number" and tonumber(w) ==
      got[i]
    if not fits then error(("%s, number %d: %s, not %s"):format(what, i, tostring(got[i]),
      tostring(w)), 0) end
  end
end

describe("integers of", function()
  for _, kind in ipairs(KINDS) do
    local dtype, bits, signed = unpack(kind, 1, 3)
    for _, row in ipairs(OPS) do
      it(("%s have the result of int64 arithmetic: %s"):format(tostring(dtype), row[1]), function()
        local one, other, wanted = pairs_for(row, bits, signed)
        local op, options = moth[row[1]], {dtype = dtype}
        local a, b = moth.tensor(one, options), moth.tensor(other, options)
        same(wanted, op(a, b), "two tensors")
        local n = a:numel()
        local wide = moth.stack({a, b}, 2) -- each other element
        same(wanted, op(wide:select(2, 1), wide:select(2, 2)), "with strides")
        local long, again = a:repeat_interleave(9), {}
        for i = 1, n do for k = 1, 9 do again[(i - 1) * 9 + k] = wanted[i] end end
        same(again, op(long, b:repeat_interleave(9)), "longer tensors")
        for i = 1, n, 5 do
          same({wanted[i]}, op(a:select(1, i), b:select(1, i)), "two 0-d tensors")
          local x = a:select(1, i):expand(3)
          same({wanted[i], wanted[i], wanted[i]}, op(x, b:select(1, i)), "with a 0-d tensor")
          same({wanted[i], wanted[i], wanted[i]}, op(x, other[i]), "with a number")
        end
      end)
    end

    it(("%s negate, and have absolute values and signs"):format(tostring(dtype)), function()
      local values = values_of(bits, signed)
      local x = moth.tensor(values, {dtype = dtype})
      local negative, absolute, square = {}, {}, {}
      for i, v in ipairs(values) do
        negative[i], square[i] = wrapped(-v, bits, signed), wrapped(v * v, bits, signed)
        absolute[i] = wrapped(v < 0 and -v or v, bits, signed)
      end
      same(negative, moth.neg(x), "neg")
      same(absolute, moth.abs(x), "abs")
      same(square, moth.square(x), "square")
      local sign, inverse = {}, {}
      for i, v in ipairs(values) do
        sign[i], inverse[i] = v > 0 and 1LL or v < 0 and -1LL or 0LL, wrapped(-v - 1, bits, signed)
      end
      same(sign, moth.sign(x), "sign")
      same(inverse, moth.bitwise_not(x), "bitwise_not")
    end)

    it(("%s shift by each number of bits"):format(tostring(dtype)), function()
      local values = values_of(bits, signed)
      local one, other, left, right = {}, {}, {}, {}
      for _, v in ipairs(values) do
        for n = 0, bits - 1 do
          one[#one + 1], other[#other + 1] = v, n
          left[#left + 1] = wrapped(bit.lshift(v, n), bits, signed)
          right[#right + 1] = wrapped(bit.arshift(v, n), bits, signed)
        end
      end
      local a, b = moth.tensor(one, {dtype = dtype}), moth.tensor(other, {dtype = dtype})
      same(left, moth.bitwise_left_shift(a, b), "left")
      same(right, moth.bitwise_right_shift(a, b), "right")
    end)

    it(("%s raise for a divisor of 0, at any place"):format(tostring(dtype)), function()
      for n = 1, 40, 13 do
        for at = 1, n, 6 do
          local b = moth.ones(n, {dtype = dtype})
          b[at] = 0
          for _, name in ipairs {"remainder", "fmod", "floor_divide"} do
            assert.is_false((pcall(moth[name], moth.ones(n, {dtype = dtype}), b)), name)
          end
        end
      end
      for _, name in ipairs {"remainder", "fmod", "floor_divide"} do
        assert.is_false((pcall(moth[name], moth.ones(3, {dtype = dtype}), 0)), name)
        assert.is_true(moth.equal(moth.zeros(3, {dtype = dtype}),
          moth[name](moth.zeros(3, {dtype = dtype}), 5)), name)
      end
    end)

    it(("%s have sums, products and extremes of rows and columns"):format(tostring(dtype)),
      function()
      local values = values_of(bits, signed)
      local n = #values
      local x = moth.tensor(values, {dtype = dtype}):repeat_interleave(3):view(n, 3)
      local rows = {}
      for i, v in ipairs(values) do rows[i] = v * 3 end
      same(rows, x:sum(2), "sum of rows")
      local sum, most, least = 0LL, values[1], values[1]
      for _, v in ipairs(values) do
        sum, most, least = sum + v, v > most and v or most, v < least and v or least
      end
      same({sum, sum, sum}, x:sum(1), "sum of columns")
      same({sum * 3}, x:sum(), "sum")
      same({most, most, most}, x:amax(1), "amax")
      same({least, least, least}, x:amin(1), "amin")
      same({most}, x:max(), "max")
      same({least}, x:min(), "min")
      local running, total = {}, 0LL
      for i, v in ipairs(values) do
        total = total + v
        running[i] = total
      end
      same(running, x:select(2, 2):cumsum(1), "cumsum")
    end)

    it(("%s have products of matrices that wrap"):format(tostring(dtype)), function()
      local values = values_of(bits, signed)
      for _, size in ipairs {{1, 1, 1}, {3, 5, 4}, {17, 9, 33}} do
        local m, k, n = unpack(size)
        local one, other, wanted = {}, {}, {}
        for i = 0, m * k - 1 do one[i + 1] = values[i * 5 % #values + 1] end
        for i = 0, k * n - 1 do other[i + 1] = values[i * 3 % #values + 1] end
        for i = 0, m - 1 do
          for j = 0, n - 1 do
            local sum = 0LL
            for t = 0, k - 1 do sum = sum + one[i * k + t + 1] * other[t * n + j + 1] end
            wanted[i * n + j + 1] = wrapped(sum, bits, signed)
          end
        end
        local a = moth.tensor(one, {dtype = dtype}):view(m, k)
        local b = moth.tensor(other, {dtype = dtype}):view(k, n)
        same(wanted, a:matmul(b), "matmul")
        same(wanted, a:t():contiguous():t():matmul(b:t():contiguous():t()), "matmul of turned ones")
      end
    end)
  end
end)
