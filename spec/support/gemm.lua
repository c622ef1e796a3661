--- gemm.lua -- matrix products of many shapes against f64, for gemm_spec.lua and its child
-- processes.

local moth = require "moth"

local gemm = {}

--- @return the error of c against a b (+ start), in units of the rounding bound of that length
function gemm.off(c, a, b, start)
  local k = a.shape[#a.shape]
  local want, size = a:double():matmul(b:double()), a:double():abs():matmul(b:double():abs())
  if start then want, size = want + start:double(), size + start:double():abs() end
  if want:numel() == 0 then return 0 end
  local unit = 6e-8 * (4 + math.sqrt(k))
  return ((c:double() - want):abs() / (size * unit + 1e-30)):max():item()
end

-- All memory layouts of an (m, n) matrix.
local layouts = {
  function(m, n) return moth.randn(m, n) end,
  function(m, n) return moth.randn(n, m):t() end,
  function(m, n) return moth.randn(m + 2, n + 3):narrow(1, 2, m):narrow(2, 2, n) end,
  function(m, n) return moth.randn(n, 2 * m):t():narrow(1, 1, 2 * m)[{ { 1, 2 * m, 2 } }] end,
  function(m, n) return moth.randn(1, n):expand(m, n) end,
  function(m, n) return moth.randn(m, 1):expand(m, n) end,
}

local function check(m, n, k, i, j)
  local a, b = layouts[i](m, k), layouts[j](k, n)
  local bias = moth.randn(n)
  local e = gemm.off(a:matmul(b), a, b)
  local f = gemm.off(moth.nn.functional.linear(a, b:t(), bias), a, b, bias)
  if not (e <= 1 and f <= 1) then
    error(("%dx%dx%d, layouts %d %d: %g %g"):format(m, n, k, i, j, e, f))
  end
end

local sizes = { 1, 2, 3, 5, 7, 8, 11, 13, 15, 16, 17, 31, 33, 63, 64, 65, 130, 385 }

--- Checks products of many shapes and layouts. @return "right"; raises with the failing case
function gemm.every_shape()
  moth.manual_seed(1)
  local turn = 0
  for _, m in ipairs(sizes) do
    for _, n in ipairs(sizes) do
      for _, k in ipairs(sizes) do
        if m * n * k < 3e5 then
          turn = turn + 1
          check(m, n, k, turn % 2 + 1, math.floor(turn / 2) % 2 + 1)
          if turn % 3 == 0 then check(m, n, k, turn % 6 + 1, math.floor(turn / 6) % 6 + 1) end
        end
      end
    end
  end
  check(300, 400, 900, 1, 2)
  check(3, 5, 20000, 2, 2) -- deeper than a packed block
  check(130, 70, 20000, 1, 2)
  check(130, 2100, 800, 1, 1) -- large enough to be packed
  check(1100, 300, 260, 2, 1)
  check(263, 130, 385, 2, 1) -- transposed, with tiles of several heights
  check(16, 333, 500, 1, 2) -- few rows of a larger transposed matrix
  check(33, 1001, 700, 3, 2)
  check(130, 2048, 200, 1, 1) -- rows that collide in the caches
  check(200, 784, 4096, 2, 1) -- transposed, with B in pieces, the last may be narrow
  check(71, 139, 2048, 1, 1) -- rows of A that do
  check(45, 250, 300, 1, 1) -- panels of B larger than a small L1, the last one narrower
  return "right"
end

--- @return checksums of products that several threads compute
function gemm.bits()
  moth.manual_seed(2)
  local out = {}
  local function put(x) out[#out + 1] = ("%.17g"):format((x * x):double():sum():item()) end
  for _, s in ipairs { { 64, 65, 784 }, { 257, 130, 385 }, { 31, 1000, 300 }, { 1, 3000, 700 },
                       { 3000, 1, 700 }, { 5, 700, 513 }, { 130, 128, 1024 } } do
    local m, n, k = unpack(s)
    for i = 1, 2 do
      for j = 1, 2 do put(layouts[i](m, k):matmul(layouts[j](k, n))) end
    end
    put(moth.randn(m, k):double():matmul(moth.randn(k, n):double()))
  end
  put(moth.randn(37, 20, 30):bmm(moth.randn(37, 30, 40)))
  put(moth.randn(37, 20, 30):bmm(moth.randn(37, 40, 30):transpose(2, 3)))
  return table.concat(out, " ")
end

-- ---- f16 and bf16 ----

--- @return the error of c against a b (+ start), in units of one rounding of the sum in f32
local function half_off(c, a, b, start)
  local want, size = a:double():matmul(b:double()), a:double():abs():matmul(b:double():abs())
  if start then want, size = want + start:double(), size + start:double():abs() end
  local unit = c.dtype == moth.bfloat16 and 2^-8 or 2^-11
  local least = c.dtype == moth.bfloat16 and 1e-38 or 2^-24
  local room = want:abs() * (1.001 * unit) + size * 6e-8 * (4 + math.sqrt(a.shape[2])) + least
  return ((c:double() - want):abs() / room):max():item()
end

local function check_half(dtype, m, n, k, i, j)
  local a, b = layouts[i](m, k):to(dtype), layouts[j](k, n):to(dtype)
  if i > 2 then -- a cast is contiguous: apply the layout to the half types
    a = moth.randn(m + 1, 2 * k + 1):to(dtype)[{ { 2, m + 1 }, { 1, 2 * k, 2 } }]
  elseif i == 2 then
    a = moth.randn(k, m):to(dtype):t()
  end
  if j == 2 then b = moth.randn(n, k):to(dtype):t() end
  local bias = moth.randn(n):to(dtype)
  local e = half_off(a:matmul(b), a, b)
  local f = half_off(moth.nn.functional.linear(a, b:t(), bias), a, b, bias)
  if not (e <= 1 and f <= 1) then
    error(("%s %dx%dx%d, layouts %d %d: %g %g"):format(dtype, m, n, k, i, j, e, f))
  end
end

local half_sizes = { 1, 2, 7, 12, 16, 33, 48, 65, 130 }

--- As every_shape, for half types.
function gemm.every_half()
  moth.manual_seed(4)
  local turn = 0
  for _, dtype in ipairs { moth.bfloat16, moth.float16 } do
    for _, m in ipairs(half_sizes) do
      for _, n in ipairs(half_sizes) do
        for _, k in ipairs(half_sizes) do
          turn = turn + 1
          check_half(dtype, m, n, k, turn % 3 + 1, math.floor(turn / 3) % 2 + 1)
        end
      end
    end
    check_half(dtype, 60, 70, 2051, 1, 2) -- deeper than one partial sum
    check_half(dtype, 70, 60, 2051, 2, 1)
    check_half(dtype, 20, 200, 12000, 2, 2) -- more than a packed block
  end
  return "right"
end

--- Products of integers of every dtype, shape and layout against exact products in f64.
function gemm.every_integer()
  moth.manual_seed(6)
  local shapes = { { 4, 8, 8 }, { 17, 33, 65 }, { 6, 300, 513 }, { 100, 257, 70 }, { 3, 9, 2 },
    { 5, 600, 31 }, { 64, 64, 64 }, { 1, 70, 90 }, { 90, 70, 1 } }
  for _, dtype in ipairs { moth.int64, moth.int32, moth.int16, moth.int8, moth.uint8 } do
    for _, s in ipairs(shapes) do
      local a = moth.randint(-100, 100, { s[1], s[2] }):to(dtype)
      local b = moth.randint(-100, 100, { s[2], s[3] }):to(dtype)
      local want = a:double():matmul(b:double()):to(moth.int64):to(dtype)
      local wide = moth.zeros(s[1], 2 * s[2], dtype)[{ {}, { 1, 2 * s[2], 2 } }]
      wide:copy_(a)
      for i, y in ipairs { a:matmul(b), wide:matmul(b), want:mul(2):sub(a:matmul(b)),
        a:t():contiguous():t():matmul(b:t():contiguous():t()), (want * 0):addmm(a, b) } do
        if not moth.equal(y, want) then
          error(("%s %dx%dx%d, way %d"):format(dtype, s[1], s[2], s[3], i))
        end
      end
    end
  end
  local a = moth.randint(-2 ^ 52, 2 ^ 52, { 40, 40 })
  local twice = moth.eye(40, { dtype = moth.int64 }) * 2 ^ 40 -- wraps
  if not moth.equal(a:matmul(twice), a * 2 ^ 40) then error("64 bits do not wrap") end
  return "right"
end

--- @return checksums of half-precision products that several threads compute
function gemm.half_bits()
  moth.manual_seed(5)
  local out = {}
  for _, dtype in ipairs { moth.bfloat16, moth.float16 } do
    local function random(...) return moth.randn(...):to(dtype) end
    local function put(x) out[#out + 1] = ("%.17g"):format((x:double() ^ 2):sum():item()) end
    for _, s in ipairs { { 64, 65, 784 }, { 257, 130, 385 }, { 31, 1000, 300 }, { 1, 999, 700 } } do
      local m, n, k = unpack(s)
      put(random(m, k):matmul(random(k, n)))
      put(random(k, m):t():matmul(random(n, k):t()))
    end
    put(random(37, 20, 30):bmm(random(37, 30, 40)))
  end
  return table.concat(out, " ")
end

return gemm
