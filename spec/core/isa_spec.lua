-- Loops are compiled for several instruction levels, and MOTH_ISA selects one. At each level errors
-- of functions are bounded, and an element has the same bits at any position. Random numbers, f16
-- and grid positions have the same bits at each level. Random numbers and elementwise results have
-- the same bits for any number of threads.

local ffi = require "ffi"

local process = require "spec.support.process"

pcall(ffi.cdef, "int setenv(const char *name, const char *value, int overwrite);")
pcall(ffi.cdef, "int unsetenv(const char *name);")

-- A level that the processor lacks is replaced by the best available one.
local LEVELS = {"plain", "avx2", "avx512"}

-- Errors in units in the last place of f32 (f64 results are the reference), between bounds of x.
local BOUNDS = [[
local bounds = {
  exp = {1.1, -100, 88}, expm1 = {0.6, -20, 80}, exp2 = {1.1, -140, 127}, log = {1, 1e-30, 1e30},
  log1p = {0.6, -0.99, 1e5}, log2 = {0.6, 1e-30, 1e30}, log10 = {0.6, 1e-30, 1e30},
  sin = {0.6, -1e4, 1e4}, cos = {0.6, -1e4, 1e4}, tan = {0.6, -1e3, 1e3}, asin = {0.6, -1, 1},
  acos = {0.6, -1, 1}, atan = {1.6, -1e3, 1e3}, sinh = {0.6, -80, 80}, cosh = {0.6, -80, 80},
  tanh = {1, -12, 12}, asinh = {0.6, -1e5, 1e5}, acosh = {0.6, 1, 1e5},
  atanh = {0.6, -0.9999, 0.9999}, sigmoid = {2.75, -80, 20},
  erf = {1.6, -5, 5}, erfc = {0.6, -5, 9}, sqrt = {0.51, 0, 1e30},
  rsqrt = {1.6, 1e-30, 1e30}, reciprocal = {0.51, 1e-30, 1e30},
  erfinv = {0.6, -1 + 2 ^ -24, 1 - 2 ^ -24}, lgamma = {0.6, 1e-30, 1e30},
}
]]

local ERRORS = BOUNDS .. [[
local moth = require "moth"
local function unit(y) -- units in the last place of f32 near y
  local e = y:abs():clamp(2 ^ -126):log2():floor()
  return (e - 23):exp2()
end
for name, b in pairs(bounds) do
  moth.manual_seed(1)
  local x = (moth.rand(200000) * (b[3] - b[2]) + b[2]):clamp(b[2], b[3])
  if b[2] > 0 and b[3] / b[2] > 1e6 then -- over the exponents
    x = (moth.rand(200000):double() * math.log(b[3] / b[2]) + math.log(b[2])):exp():float()
  end
  local small = moth.randn(50000) * 0.1 -- values near 0
  if b[2] < 0 then x = moth.cat({x, small}) end
  local want = moth[name](x:double())
  local off = ((moth[name](x):double() - want):abs() / unit(want)):max():item()
  if not (off <= b[1]) then print(("%s is %.3f units off"):format(name, off)) end
end
local x = moth.randn(200000) * 3
for name, most in pairs {gelu = 1.5e-6, silu = 2.5e-6, mish = 3e-6, softplus = 1.5e-6} do
  local f = require("moth.nn.functional")[name]
  local off = (f(x):double() - f(x:double())):abs():max():item()
  if not (off <= most) then print(("%s is %g off"):format(name, off)) end
end
-- lists are long enough for the vector loops; the first four values are enough
local function special(name)
  local x, s = moth.tensor{1 / 0, -1 / 0, 0 / 0, -1 / math.huge}:tile(9), {name}
  local y = moth[name](x)
  for i = 1, 4 do
    local v = y[i]:item()
    s[i + 1] = v ~= v and "nan" or v == 0 and (1 / v < 0 and "-0" or "0") or ("%.6g"):format(v)
  end
  return table.concat(s, " ")
end
for _, name in ipairs {"exp", "log", "tanh", "sigmoid", "erf", "sin", "atan", "log1p", "expm1",
                       "sqrt", "asinh", "sinh", "cosh", "erfc", "relu", "erfinv", "lgamma"} do
  print(special(name))
end
local below = moth.rand(20000) * -30 -- an f32 next to a root is 1e-7 off it
local wrong = (below:lgamma():double() - below:double():lgamma()):abs()
local most = below:double():lgamma():abs() * 1e-7 + 1e-8
if not wrong:le(most):all():item() then print "lgamma below 0" end
]]

local SPECIALS = [[
exp inf 0 nan 1
log inf nan nan -inf
tanh 1 -1 nan -0
sigmoid 1 0 nan 0.5
erf 1 -1 nan -0
sin nan nan nan -0
atan 1.5708 -1.5708 nan -0
log1p inf nan nan -0
expm1 inf -1 nan -0
sqrt inf nan nan -0
asinh inf -inf nan -0
sinh inf -inf nan -0
cosh inf inf nan 1
erfc 0 2 nan 1
relu inf 0 nan -0
erfinv nan nan nan -0
lgamma inf inf nan inf
rc=0
]]

-- Errors of f64 functions, compared with C's functions, which are within a unit of the exact
-- value. Angles beyond 1e6 use C's functions. Strided elements have the results of contiguous ones.
local DOUBLES = [[
local ffi = require "ffi"
local moth = require "moth"
ffi.cdef "double expm1(double); double log1p(double); double erf(double);"
local C = setmetatable({sqrt = math.sqrt, sigmoid = function(x) return 1 / (1 + math.exp(-x)) end},
  {__index = ffi.C})
ffi.cdef "double exp(double); double log(double); double sinh(double); double cosh(double);"
ffi.cdef "double tanh(double); double sin(double); double cos(double); double tan(double);"
ffi.cdef "double exp2(double); double log2(double); double log10(double); double erfc(double);"
ffi.cdef "double asin(double); double acos(double); double atan(double); double asinh(double);"
ffi.cdef "double acosh(double); double atanh(double); double pow(double, double);"
ffi.cdef "double atan2(double, double); double hypot(double, double);"
ffi.cdef "double nextafter(double, double); float nextafterf(float, float);"
local bounds = {
  exp = {3, -740, 709}, expm1 = {4, -40, 709}, log = {3, 1e-310, 1e308}, log1p = {4, -0.999, 1e5},
  sin = {3, -1e6, 1e6}, cos = {3, -1e6, 1e6}, tan = {5, -1e6, 1e6}, tanh = {4, -20, 20},
  sinh = {5, -710, 710}, cosh = {5, -710, 710}, erf = {5, -6, 6}, sigmoid = {5, -700, 36},
  sqrt = {0, 0, 1e300}, exp2 = {3, -1080, 1024}, log2 = {3, 1e-310, 1e308},
  log10 = {3, 1e-310, 1e308}, asin = {3, -1, 1}, acos = {3, -1, 1}, atan = {4, -1e3, 1e3},
  asinh = {3, -1e5, 1e200}, acosh = {4, 1, 1e200}, atanh = {5, -1, 1}, erfc = {13, -6, 27},
}
local function unit(y) -- units in the last place near y
  local _, e = math.frexp(y)
  return 2 ^ math.max(e - 53, -1074)
end
for name, b in pairs(bounds) do
  moth.manual_seed(1)
  local x = moth.rand{3001, dtype = moth.float64} * (b[3] - b[2]) + b[2]
  if name:match "^log%d*$" then
    x = moth.exp(moth.rand{3001, dtype = moth.float64} * 1420 - 711)
  end
  local small = moth.randn{1000, dtype = moth.float64} * 0.3
  x = moth.cat({x, small:clamp(b[2], b[3]), moth.tensor({b[2], b[3]}, moth.float64)})
  if name == "sin" then x[1], x[2], x[3] = 1e300, -3e6, 1.0000001e6 end
  local y, off, at = moth[name](x), 0, 0
  for i = 1, #x do
    local want = C[name](x[i]:item())
    local o = y[i]:item() == want and 0 or math.abs(y[i]:item() - want) / unit(want)
    if not (o <= off) then off, at = o, x[i]:item() end
  end
  if not (off <= b[1]) then print(("%s(%.17g) is %g units off"):format(name, at, off)) end
  for _, step in ipairs {2, 1001} do
    local some = {1, -1, step}
    assert(moth.equal(moth[name](x[{some}]), y[{some}]), name .. " of elements that lie apart")
  end
end
for name, most in pairs {pow = 2, atan2 = 3, hypot = 2} do
  moth.manual_seed(1)
  local ends = moth.tensor({0, -0.0, 1, -1, 0.5, 2, -3, 7.5, 1 / 0, -1 / 0, 0 / 0, 1e308, 5e-324,
                            2 ^ 53 + 2, -2 ^ 52 - 1, 1 - 2 ^ -53}, moth.float64)
  local x = moth.exp(moth.randn{2001, dtype = moth.float64} * 9)
  local y = moth.randn{2001, dtype = moth.float64} * 9
  x = moth.cat({x, ends:repeat_interleave(#ends)})
  y = moth.cat({y, ends:tile(#ends)})
  local f = moth[name]
  local z = f(x, y)
  for i = 1, #x do
    local got, want = z[i]:item(), C[name](x[i]:item(), y[i]:item())
    local same = got == want and (got ~= 0 or 1 / got == 1 / want) or got ~= got and want ~= want
    if not same and not (math.abs(got - want) <= most * unit(want)) then
      print(name, x[i]:item(), y[i]:item(), got, want)
    end
  end
  local some = moth.stack({x, y}, 2):t()
  local function alike(a, b) assert(moth.equal(a:nan_to_num(7), b:nan_to_num(7)), name) end
  alike(f(some[1], some[2]), z)
  alike(f(x, y[5]), f(x, y[5]:expand(#x):contiguous()))
  alike(f(x[5], y), f(x[5]:expand(#x):contiguous(), y))
end
local ends = {0, -0.0, 1, -1, 1.4e-45, -1.4e-45, 2, 3.4028234663852886e38, 1 / 0, -1 / 0, 0 / 0}
for _, dtype in ipairs {"float32", "float64"} do
  local x = moth.tensor(ends, moth[dtype])
  local a, b = x:repeat_interleave(#ends), x:tile(#ends)
  local z, f = moth.nextafter(a, b), dtype == "float32" and C.nextafterf or C.nextafter
  for i = 1, #a do
    local got, want = z[i]:item(), f(a[i]:item(), b[i]:item())
    local same = got == want and (got ~= 0 or 1 / got == 1 / want) or got ~= got and want ~= want
    if not same then print("nextafter", a[i]:item(), b[i]:item(), got, want) end
  end
end
local far = moth.tensor({2 ^ 50 + 0.25, -2 ^ 50 - 0.25, 2 ^ 51 + 0.5, 2 ^ 52, 1e300}, moth.float64)
local sinc = {1.9991038072866e-16, 1.9991038072866e-16, 1.4135798584282e-16, 0, 0}
for i, want in ipairs(sinc) do
  local got = moth.sinc(far)[i]:item()
  if not (math.abs(got - want) <= 1e-10 * want) then print("sinc", i, got, want) end
end
local p = moth.cat({moth.linspace(-1, 1, 4001, {dtype = moth.float64}),
                    1 - moth.logspace(-16, -1, 500, {dtype = moth.float64})})
local off = (moth.erfinv(p):erf() - p):abs() / (1 - p:abs()):clamp(2 ^ -53)
if not (off:max():item() < 1e-14) then print("erfinv", off:max():item()) end
for k = -300, 300 do
  local y = moth.tensor({10 ^ k, 2 ^ k, k}, moth.float64)
  if y:log10()[1]:item() ~= math.log10(10 ^ k) then print("log10 of 10^" .. k) end
  if y:log2()[2]:item() ~= k then print("log2 of 2^" .. k) end
  if y:exp2()[3]:item() ~= 2 ^ k then print("2^" .. k) end
end
local apart = moth.linspace(-3, 3, 1000, {dtype = moth.float64}):view(500, 2):t()
for _, name in ipairs {"gelu", "silu", "elu", "softplus", "logsigmoid"} do
  local f = moth.nn.functional[name]
  assert(moth.equal(f(apart), f(apart:contiguous())), name)
  local narrow = (f(apart):float() - f(apart:float())):abs():max():item()
  if not (narrow < 2e-6) then print(name, narrow) end
end
]]

-- Prints a checksum of every bit of results, for sizes that are split over threads.
local BITS = [[
local moth = require "moth"
local F = require "moth.nn.functional"
local function show(name, t)
  local d = t:reshape(-1):double()
  local sum = (d * moth.arange(1, d:numel() + 1):double()):sum()
  print(name, ("%.17g"):format(sum:item()))
end
]]

local RANDOM = BITS .. [[
moth.manual_seed(7)
show("uniform", moth.rand(300001))
show("normal", moth.randn(300001))
show("double", moth.randn{3001, dtype = moth.float64}:float())
show("integers", moth.randint(0, 1000, {100001}):float())
show("dropout", F.dropout(moth.ones(300001), 0.3))
show("bernoulli", moth.bernoulli(moth.full({100001}, 0.3)))
]]

local HALVES = BITS .. [[
local bytes = {}
for i = 0, 65535 do bytes[i + 1] = string.char(i % 256, math.floor(i / 256)) end
show("all f16", moth.frombuffer(table.concat(bytes), {dtype = moth.float16}):float():nan_to_num())
moth.manual_seed(7)
local x = moth.randn(100003)
x = x * x * x
show("into f16", (x * x * x):half():double():nan_to_num()) -- subnormals and infinities too
]]

-- Prints elements whose value depends on their neighbours in the vector.
local PLACES = [[
local moth = require "moth"
local F = moth.nn.functional
local ones = {}
for name in ("abs neg sign square relu exp expm1 log log1p exp2 log2 log10 sqrt rsqrt reciprocal "
  .. "sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sinc deg2rad sigmoid erf erfc "
  .. "frac logit erfinv lgamma digamma"):gmatch "%S+" do ones[name] = moth[name] end
for name in ("gelu silu mish softplus elu selu celu hardswish hardsigmoid logsigmoid softsign "
  .. "tanhshrink softshrink leaky_relu relu6 hardtanh"):gmatch "%S+" do ones[name] = F[name] end
local twos = {
  more = function(x, y) return moth.add(x, y, {alpha = 0.37}) end,
  less = function(x, y) return moth.sub(x, y, {alpha = 0.37}) end,
  lerp = function(x, y) return moth.lerp(x, y, 0.3) end,
  addcmul = function(x, y) return moth.addcmul(x, y, y, {value = 0.7}) end,
  addcdiv = function(x, y) return moth.addcdiv(x, y, y, {value = 0.7}) end,
}
for name in ("mul div pow atan2 hypot xlogy logaddexp fmod remainder"):gmatch "%S+" do
  twos[name] = moth[name]
end
local losses = {}
for name in ("binary_cross_entropy_with_logits mse_loss smooth_l1_loss huber_loss kl_div "
  .. "soft_margin_loss poisson_nll_loss"):gmatch "%S+" do
  losses[name] = function(x, y) return F[name](x, y, {reduction = "none"}) end
end
local N = 37
local function plain(t) return t:reshape(-1):nan_to_num(7) end
local function check(name, f, ...)
  local args, whole = {...}, f(...)
  for first = 1, N do
    for n = 1, math.min(3, N - first + 1), 2 do
      local some = {}
      for k, x in ipairs(args) do some[k] = #x > 1 and x:narrow(1, first, n) or x end
      if not moth.equal(plain(f(unpack(some))), plain(whole:narrow(1, first, n))) then
        return print(name, args[1].dtype, first, n)
      end
    end
  end
end
local function derivatives(f) -- for all arguments, concatenated
  return function(...)
    local leaves = {}
    for k, x in ipairs {...} do leaves[k] = x:detach():clone():requires_grad_() end
    f(unpack(leaves)):backward(moth.linspace(0.7, 0.7, #leaves[1], {dtype = leaves[1].dtype}))
    for k, x in ipairs(leaves) do leaves[k] = x.grad end
    return (moth.stack(leaves, 2))
  end
end
for seed = 1, 3 do
  for _, dtype in ipairs {moth.float32, moth.float64} do
    moth.manual_seed(seed)
    local x, y = (moth.randn(N) * 2):to(dtype), moth.rand(N):to(dtype)
    for name, f in pairs(ones) do
      check(name, f, x)
      check(name, f, y)
      check(name .. "'s slope", derivatives(f), y)
    end
    for name, f in pairs(twos) do
      check(name, f, x, y)
      check(name .. " of a single", f, x, y:narrow(1, 5, 1))
      check(name .. " by a single", function(a, b) return f(b, a) end, y, x:narrow(1, 5, 1))
      local single = y:narrow(1, 5, 1)
      assert(moth.equal(plain(f(x, single)), plain(f(x, single:expand(N):contiguous()))), name)
      check(name .. "'s slopes", derivatives(f), y, y:flip(1))
    end
    for name, f in pairs(losses) do
      check(name, f, x, y)
      check(name .. "'s slopes", derivatives(f), x, y)
    end
  end
end
]]

local LOOPS = BITS .. [[
moth.manual_seed(7)
local x, y = moth.randn(300001), moth.randn(300001)
for _, name in ipairs {"exp", "tanh", "sigmoid", "log", "sin", "erf", "atan"} do
  show(name, moth[name](x):nan_to_num())
end
show("add", moth.add(x, y, {alpha = 3}))
show("gelu", F.gelu(x))
show("rows", moth.randn(1000, 301) * moth.randn(301) + moth.randn(1000, 1))
show("turned", (moth.randn(500, 600):t() + moth.randn(600, 500)):exp())
show("half", (x:half() * y:half()):float())
show("copy", moth.randn(700, 500):t():contiguous())
]]

-- One loop sums f64 images at every level: only the positions may differ.
local GRIDS = [[
local moth = require "moth"
local F = require "moth.nn.functional"
moth.manual_seed(7)
local x = moth.randn(2, 2, 5, 7):double():requires_grad_()
local grid = (moth.rand(2, 6, 9, 2) * 3 - 1.5):double()
for i, v in ipairs {0 / 0, 1 / 0, -1 / 0, 1e30, -1, 1, 0, 0.2, -0.6} do grid[{1, 1, i, 1}] = v end
grid:requires_grad_()
local function show(t)
  t = t:detach():reshape(-1)
  local s = {}
  for i = 1, #t do s[i] = ("%a"):format(t[i]:item()) end
  print((table.concat(s, " "):gsub("%-nan", "nan")))
end
for _, mode in ipairs {"bilinear", "nearest", "bicubic"} do
  for _, padding_mode in ipairs {"zeros", "border", "reflection"} do
    for _, align_corners in ipairs {false, true} do
      local y = F.grid_sample{x, grid, mode = mode, padding_mode = padding_mode,
                              align_corners = align_corners}
      local dx, dgrid = moth.autograd.grad((y * y):sum(), {x, grid})
      print(mode, padding_mode, align_corners)
      show(y)
      show(dx)
      show(dgrid)
    end
  end
end
]]

local function lua(environment, code)
  local before = {}
  for name, value in environment:gmatch "(%S+)=(%S+)" do
    before[name] = os.getenv(name) or false
    ffi.C.setenv(name, value, 1)
  end
  local text = process.lua(code)
  for name, value in pairs(before) do
    if value then ffi.C.setenv(name, value, 1) else ffi.C.unsetenv(name) end
  end
  return text
end

describe("at every instruction level", function()
  for _, level in ipairs(LEVELS) do
    it("functions of f32 keep their errors and their special values: " .. level, function()
      assert.equal(SPECIALS, lua("MOTH_ISA=" .. level, ERRORS))
    end)
  end

  for _, level in ipairs(LEVELS) do
    it("functions of f64 have errors of a few units at most: " .. level, function()
      assert.equal("rc=0\n", lua("MOTH_ISA=" .. level, DOUBLES))
      local specials = ERRORS:match "local function special.*":gsub("tile%(9%)", "double():%0")
      assert.equal(SPECIALS, lua("MOTH_ISA=" .. level, "local moth = require 'moth'\n" .. specials))
    end)
  end

  for _, level in ipairs(LEVELS) do
    it("an element has the same bits at any position: " .. level, function()
      assert.equal("rc=0\n", lua("MOTH_ISA=" .. level, PLACES))
    end)
  end

  it("random numbers have the same bits, for any number of threads", function()
    local want = lua("MOTH_ISA=plain MOTH_NUM_THREADS=1", RANDOM)
    assert.matches("rc=0", want)
    for _, level in ipairs(LEVELS) do
      for _, threads in ipairs {1, 3} do
        local how = ("MOTH_ISA=%s MOTH_NUM_THREADS=%d"):format(level, threads)
        assert.equal(want, lua(how, RANDOM), how)
      end
    end
  end)

  it("f16 is converted from and to f32 with the same bits", function()
    local want = lua("MOTH_ISA=plain", HALVES)
    assert.matches("rc=0", want)
    for _, level in ipairs(LEVELS) do
      assert.equal(want, lua("MOTH_ISA=" .. level, HALVES), level)
    end
  end)

  it("grid positions have the same bits", function()
    local want = lua("MOTH_ISA=plain", GRIDS)
    assert.matches("rc=0", want)
    for _, level in ipairs(LEVELS) do
      assert.equal(want, lua("MOTH_ISA=" .. level, GRIDS), level)
    end
  end)

  it("elementwise results are the same bits for any number of threads", function()
    for _, level in ipairs(LEVELS) do
      local how = "MOTH_ISA=" .. level
      local want = lua(how .. " MOTH_NUM_THREADS=1", LOOPS)
      assert.matches("rc=0", want)
      assert.equal(want, lua(how .. " MOTH_NUM_THREADS=3", LOOPS), how)
    end
  end)
end)
