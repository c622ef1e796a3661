-- Means, deviations, norms, losses and layers of numbers near the ends of the range. The value is
-- right if the dtype can hold it, although intermediate sums and squares overflow. Strided layouts,
-- half types, captured steps and the GPU have the same values.

local moth = require "moth"
local cuda = require "spec.support.cuda"
local F = moth.nn.functional

local f32, f64, bf16, f16 = moth.float32, moth.float64, moth.bfloat16, moth.float16
local inf = math.huge

local function T(list, dtype, device) return moth.tensor(list, {dtype = dtype, device = device}) end

local function near(wanted, x, tolerance)
  if type(wanted) ~= "cdata" then wanted = T(wanted, f64) end
  assert.same({unpack(wanted.shape)}, {unpack(x.shape)})
  local off = (x:cpu():double() / wanted - 1):abs()
  off = moth.where(wanted:eq(x:cpu():double()), 0, off)
  assert(off:max():item() <= (tolerance or 1e-5), ("%s\nwanted %s"):format(x, wanted))
end

local function gradient(f, x)
  x = x:detach():clone():requires_grad_()
  f(x):sum():backward()
  return x.grad
end

local LARGE = {{f32, 3e38, 1e-6}, {f64, 1.7e308, 1e-14}, {bf16, 3e38, 1e-2}}

describe("near the end of the range", function()
  for _, row in ipairs(LARGE) do
    local dtype, most, digits = unpack(row)
    local name = tostring(dtype)
    local X = T({{most, most}, {most, -most}, {most, most / 2}}, dtype)

    it("means and sums are right: " .. name, function()
      near({most, 0, most * 0.75}, X:mean(2), digits)
      near({most, most / 6}, X:mean(1), digits)
      near({most, 0, most * 0.75}, X:t():mean(1), digits)
      near(most * (3.5 / 6), X:mean(), digits * 2)
      near(most, T({most, most, -most}, dtype):sum(), digits)
      near({most, 0}, T({{most, most}, {most, -most}, {-most, 0}}, dtype):sum(1), digits)
      assert.equal(inf, T({most, most}, dtype):sum():item())
      near(most, T({most, 0 / 0, most}, dtype):nanmean(), digits)
      near({0.5, 0.5}, gradient(function(x) return x:mean() end, T({most, most}, dtype)))
    end)

    it("means and sums of many elements are right: " .. name, function()
      local x = moth.full({5, 3001}, most, dtype)
      near(most, x:mean(), digits * 100)
      near(moth.full({3001}, most, f64), x:mean(1), digits * 100)
      near(moth.full({5}, most, f64), x:mean(2), digits * 100)
      near(moth.full({5}, most, f64), x:t():contiguous():mean(1), digits * 100)
    end)

    it("infinities and NaN are kept: " .. name, function()
      assert.equal(inf, T({inf, most}, dtype):mean():item())
      local y = T({{inf, -inf}, {0 / 0, 1}, {most, most}}, dtype):mean(2):tolist()
      assert.is_true(y[1] ~= y[1] and y[2] ~= y[2] and y[3] < inf)
    end)

    it("deviations are right, and 0 for equal numbers: " .. name, function()
      near(most / 2 / math.sqrt(3), T({most, most / 2, most}, dtype):std(), digits * 3)
      near({most / 4, 1}, T({{most / 2, 1}, {most, 3}}, dtype):std(1, 0), digits * 3)
      near(0, T({most, most, most}, dtype):std())
      near(0, T({most, most, most}, dtype):var())
      local s = 1 / math.sqrt(12)
      near({s, -2 * s, s}, gradient(function(x) return x:std() end,
        T({most, most / 2, most}, dtype)), 2e-2)
    end)

    it("losses and pools have the right means: " .. name, function()
      if dtype ~= f64 then
        near(most, F.l1_loss(T({most, most}, dtype), T({0, 0}, dtype)), digits)
        local root = math.sqrt(most)
        near(root * root, F.mse_loss(T({root, root}, dtype), T({0, 0}, dtype)), 1e-2)
      end
      local x = moth.full({1, 2, 4, 4}, most, dtype)
      near(moth.full({1, 2, 2, 2}, most, f64), F.avg_pool2d(x, 2), digits)
      near(moth.full({1, 2, 2, 2}, most, f64), F.avg_pool2d(x, 3, 1), digits)
      near(moth.full({1, 2, 1, 1}, most, f64), F.adaptive_avg_pool2d(x, 1), digits)
      near(moth.full({1, 2, 3, 3}, most, f64), F.adaptive_avg_pool2d(x, 3), digits)
    end)

    it("a captured step has the same values: " .. name, function()
      local function f(x) return (x * 1):mean(2), (x * 1):mean(), x:std(2), F.avg_pool1d(x, 2) end
      local step = moth.capture(f)
      for _ = 1, 3 do
        local wanted, got = {f(X)}, {step(X)}
        for i = 1, 4 do near(wanted[i]:double(), got[i], 0) end
      end
    end)
  end
end)

describe("rows of large numbers", function()
  for _, b in ipairs {1e160, 1e200, 1e307, 1e-200} do
    it(("have norms and deviations in float64: %g"):format(b), function()
      near(math.sqrt(30) * b, T({1 * b, 2 * b, 5 * b}, f64):norm(), 1e-14)
      near(134 ^ (1 / 3) * b, T({1 * b, 2 * b, 5 * b}, f64):norm(3), 1e-14)
      near(math.sqrt(13 / 3) * b, T({1 * b, 2 * b, 5 * b}, f64):std(), 1e-14)
    end)
  end

  local EVEN = {-0.980580676, -0.392232270, 1.372812946}
  for _, row in ipairs {{f32, 1e20}, {f32, 3e37}, {f64, 1e20}, {f64, 1e200}, {f64, 1e307},
                        {bf16, 1e30}} do
    local dtype, b = row[1], row[2]
    local digits = dtype == bf16 and 1e-2 or 1e-5
    it(("are normalized: %s, %g"):format(tostring(dtype), b), function()
      local x = T({{1 * b, 2 * b, 5 * b}}, dtype)
      near({EVEN}, F.layer_norm(x, {3}), digits)
      near({EVEN}, F.group_norm(x, 1), digits)
      local r = 1 / math.sqrt(10)
      near({{r, 2 * r, 5 * r}}, F.rms_norm(x, {3}), digits)
    end)
  end

  it("have gradients after normalization", function()
    local w = T({1, 2, 4}, f64)
    local at1 = gradient(function(x) return F.layer_norm(x, {3}) * w end, T({1, 2, 5}, f64))
    local rms = gradient(function(x) return F.rms_norm(x, {3}) * w end, T({1, 2, 5}, f64))
    for _, b in ipairs {1e20, 1e200} do
      local x = T({1 * b, 2 * b, 5 * b}, f64)
      near(at1, gradient(function(v) return F.layer_norm(v, {3}) * w end, x) * b, 1e-3)
      near(rms, gradient(function(v) return F.rms_norm(v, {3}) * w end, x) * b, 1e-3)
    end
    local x, w32 = T {3e37, 6e37, 1.5e38}, T {1, 2, 4}
    near(rms, gradient(function(v) return F.rms_norm(v, {3}) * w32 end, x) * 3e37, 1e-3)
  end)

  it("of equal numbers are normalized to 0", function()
    for _, b in ipairs {0.1, 1e20, -1e30, 3e37} do
      for _, dtype in ipairs {f32, f64} do
        near({{0, 0, 0, 0, 0, 0, 0}}, F.layer_norm(moth.full({1, 7}, b, dtype), {7}))
        near(moth.zeros(2, 6, f64), F.group_norm(moth.full({2, 6}, b, dtype), 2))
      end
    end
  end)
end)

describe("a separate range", function()
  it("exists for each window of lp_pool", function()
    local x = T {{{1e20, 2e20, 1, 2, 0, 0, 1e-30, 2e-30}}}
    local r = math.sqrt(5)
    near({{{r * 1e20, r, 0, r * 1e-30}}}, F.lp_pool1d(x, 2, 2))
    near({{{1 / r, 2 / r, 1 / r, 2 / r, 0, 0, 1 / r, 2 / r}}},
      gradient(function(v) return F.lp_pool1d(v, 2, 2) end, x))
    near({{{6000 * r, r}}}, F.lp_pool1d(T({{{6000, 12000, 1, 2}}}, f16), 2, 2), 1e-3)
  end)

  it("exists for each matrix of matrix_exp", function()
    local a = moth.stack {T {{0, 1}, {-1, 0}}, moth.eye(2) * -1e20, moth.full({2, 2}, inf),
                          T {{0, 7}, {-7, 0}}}
    local y = moth.linalg.matrix_exp(a)
    local c, s = math.cos(1), math.sin(1)
    near({{c, s}, {-s, c}}, y[1])
    near({{0, 0}, {0, 0}}, y[2])
    c, s = math.cos(7), math.sin(7)
    near({{c, s}, {-s, c}}, y[4])
  end)

  it("exists for the squares of local_response_norm", function()
    near({{{1.6817928e-07}, {1.0058926e-07}}}, F.local_response_norm(T {{{1e20}, {2e20}}}, 2), 1e-4)
    near({{{300 / (1 + 1e-4 * 45000) ^ 0.75}}}, F.local_response_norm(T({{{300}}}, f16), 2), 1e-3)
  end)
end)

describe("ctc_loss of huge log-probabilities", function()
  it("has gradients that sum to -1 in each step", function()
    for _, size in ipairs {1, 1e10, 1e20, 1e29} do
      local x = T {{{-3, -1, -2}}, {{-1, -4, -3}}, {{-2, -3, -1}}, {{-4, -2, -1}}} * size
      for _, again in ipairs {false, true} do
        local v = x:detach():requires_grad_()
        local loss = F.ctc_loss(v, T({{2, 3}}, moth.int64), {4}, {2}, {reduction = "sum"})
        local g = moth.autograd.grad(loss, {v}, {create_graph = again})
        near({{-1}, {-1}, {-1}, {-1}}, g:detach():sum(3), 1e-5)
        if size > 1e9 then -- only the most likely path counts: 2, 1, 3, 3
          near({{{0, -1, 0}}, {{-1, 0, 0}}, {{0, 0, -1}}, {{0, 0, -1}}}, g:detach(), 1e-5)
        end
      end
    end
  end)
end)

describe("saturated gates", function()
  for _, device in ipairs {"cpu", "cuda"} do
    it("have the gradient 0 if their sums are infinite: " .. device, function()
      if device == "cuda" and not cuda.here then return pending(cuda.why) end
      for _, again in ipairs {false, true} do
        local list = {}
        for i, size in ipairs {{2, 4}, {2, 3}, {9, 4}, {9, 3}} do
          list[i] = moth.full(size, 1e20, {device = device}):requires_grad_()
        end
        local y = F.gru_cell(unpack(list))
        near(moth.full({2, 3}, 1e20, f64), y:detach())
        local grads = {moth.autograd.grad(y:sum(), list, {create_graph = again})}
        for i, wanted in ipairs {0, 1, 0, 0} do
          near(moth.full_like(grads[i]:cpu(), wanted):double(), grads[i]:detach())
        end
      end
    end)
  end
end)

describe("second derivatives", function()
  it("of logaddexp2 of equal numbers are ln 2 / 4", function()
    local x, y = T({3}, f64):requires_grad_(), T({3}, f64):requires_grad_()
    local g = moth.autograd.grad(moth.logaddexp2(x, y), {x}, {create_graph = true})
    near({0.5}, g:detach())
    local by_x, by_y = moth.autograd.grad(g, {x, y})
    near({math.log(2) / 4}, by_x, 1e-14)
    near({-math.log(2) / 4}, by_y, 1e-14)
    near({inf, -inf, inf, 1001},
      moth.logaddexp2(T {inf, -inf, 1, 1000}, T {inf, -inf, inf, 1000}))
    assert.is_true(moth.logaddexp2(T {0 / 0, 1}, T {1, 0 / 0}):isnan():all():item())
  end)

  it("of poisson_nll_loss are finite for counts of 0", function()
    local t = T {0, 1e-40, 5}
    local x = T {1, 2, 3}:requires_grad_()
    t:requires_grad_()
    local loss = F.poisson_nll_loss(x, t, {log_input = false, full = true, reduction = "sum"})
    local g = moth.autograd.grad(loss, {t}, {create_graph = true})
    assert.is_true(g:isfinite():all():item())
    assert.is_true(moth.autograd.grad(g:sum(), {t}):isfinite():all():item())
  end)
end)

describe("a GPU near the ends of the range", function()
  local function claim(name, f)
    it(name, function()
      if not cuda.here then return pending(cuda.why) end
      f()
    end)
  end

  claim("has norms of float64 and rows that are normalized", function()
    for _, b in ipairs {1, 1e160, 1e200, 1e307, 1e-200} do
      local x = T({1 * b, -2 * b, 0, 5 * b}, f64, "cuda")
      near(math.sqrt(30) * b, x:norm(), 1e-14)
      near(134 ^ (1 / 3) * b, x:norm(3), 1e-14)
      near(8 * b, x:norm(1), 1e-14)
      near(0, (x * 0):norm())
      assert.equal(inf, (x / 0):nan_to_num(1):norm():item())
      assert.is_true(T({b, 0 / 0}, f64, "cuda"):norm():isnan():item())
    end
    for _, row in ipairs {{f32, 1e20}, {f32, 1e30}, {f64, 1e200}, {bf16, 1e30}} do
      local dtype, b = row[1], row[2]
      local x, digits = T({{1 * b, 2 * b, 5 * b}}, dtype, "cuda"), dtype == bf16 and 1e-2 or 1e-5
      near({{-0.980580676, -0.392232270, 1.372812946}}, F.layer_norm(x, {3}), digits)
      local function rms(v) return F.rms_norm(v, {3}) * T({1, 2, 4}, dtype, "cuda") end
      local one = gradient(rms, T({{1, 2, 5}}, dtype, "cuda")):cpu():double()
      near(one, gradient(rms, x):cpu():double() * b, 10 * digits)
    end
  end)

  claim("has exact zeros of sinc", function()
    local x = T({3, -7, 1000, 1e20, 0, 2.5}, f32, "cuda")
    near({0, 0, 0, 0, 1, 1 / (2.5 * math.pi)}, x:sinc(), 1e-6)
  end)

  claim("divides the gradient of each mean by itself", function()
    local function ones(...) return moth.ones({...}, {device = "cuda"}):requires_grad_() end
    ones(3):mean():backward()
    local x = ones(3, 2)
    x:mean(1):sum():backward()
    near(moth.full({3, 2}, 1 / 3, f64), x.grad)
    local y = ones(3)
    y:mean():sum():backward()
    near({1 / 3, 1 / 3, 1 / 3}, y.grad)
  end)
end)
