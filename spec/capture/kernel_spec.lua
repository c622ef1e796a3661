-- moth.kernel: the results of the function, bit for bit, in one pass over memory; first and second
-- derivatives. A function that is not elementwise raises an error, or runs op by op.

local ffi = require "ffi"
local lib = require "moth.binding.lib"
local moth = require "moth"
local process = require "spec.support.process"
local nn = moth.nn
local F = nn.functional

local function same(a, b, what)
  assert.are.equal(a.dtype, b.dtype, what)
  assert.are.equal(tostring(a.shape), tostring(b.shape), what)
  local function bits(x) return x:contiguous():view(-1):tolist() end
  a, b = bits(a), bits(b)
  for i = 1, #a do
    if a[i] ~= b[i] and (a[i] == a[i] or b[i] == b[i]) then
      error(("%s: element %d is %s, not %s"):format(what or "", i, tostring(a[i]), tostring(b[i])))
    end
  end
end

local function refused(text, kernel, ...)
  local ok, message = pcall(kernel, ...)
  assert.is_false(ok)
  assert.is_truthy(message:find(text, 1, true), message)
end

local FUNCTIONS = {
  swiglu = function(x, y) return x * moth.sigmoid(x) * y end,
  gelu = function(x, y)
    return 0.5 * x * (1 + moth.tanh(0.7978845608 * (x + 0.044715 * x ^ 3))) * y
  end,
  huber = function(x, y)
    local d = (x - y):abs()
    return moth.where(d:lt(1), 0.5 * d * d, d - 0.5)
  end,
  clipped = function(x, y) return moth.min(x * y, x:clamp(-0.2, 0.2) * y) end,
  masked = function(x, y) return (x + y):masked_fill(x:gt(y), 0.25) end,
  layers = function(x, y) return F.silu(x) + F.leaky_relu(y, 0.2) - F.softplus(x) end,
  in_place = function(x, y)
    local z = x + y
    z:mul_(x):add_(y, {alpha = 0.5})
    return z
  end,
  halves = function(x, y) return (x:half() * y:half()):to(moth.float32) + 1 end,
  filled = function(x, y) return moth.ones_like(x) - x * y end,
}

local function sources(dtype, ...)
  return moth.randn(...):to(dtype), moth.randn(...):to(dtype)
end

local function gradients(f, x, y)
  x, y = x:detach(), y:detach()
  x.requires_grad, y.requires_grad = true, true
  local z = f(x, y)
  local g = moth.arange(z:numel()):to(z.dtype):view(z.shape) / z:numel() - 0.3
  z:backward(g)
  return x.grad, y.grad
end

describe("moth.kernel", function()
  before_each(function() moth.manual_seed(4) end)

  it("computes the function's results, bit for bit, for all float dtypes", function()
    for name, fn in pairs(FUNCTIONS) do
      local kernel = moth.kernel(fn)
      for _, dtype in ipairs { moth.float32, moth.float64, moth.float16, moth.bfloat16 } do
        local x, y = sources(dtype, 33, 70)
        same(kernel(x, y), fn(x, y), name)
        assert.is_nil(tostring(kernel):find("op by op", 1, true), name)
      end
    end
  end)

  it("computes its gradients, bit for bit without broadcasting", function()
    for name, fn in pairs(FUNCTIONS) do
      local kernel = moth.kernel(fn)
      for _, dtype in ipairs { moth.float32, moth.float64, moth.bfloat16 } do
        local x, y = sources(dtype, 33, 70)
        local gx, gy = gradients(kernel, x, y)
        local wx, wy = gradients(fn, x, y)
        same(gx, wx, name)
        same(gy, wy, name)
      end
    end
  end)

  it("does so for random functions", function()
    local ones = { "sigmoid", "tanh", "exp", "sin", "abs", "square", "relu", "floor", "erf",
                   "log1p", "double", "half", "float" }
    local twos = { "add", "sub", "mul", "div", "maximum", "minimum", "atan2", "hypot", "remainder" }
    local function draw(n) return moth.randint(1, n + 1, { 1 }):item() end
    for _ = 1, 40 do
      local code, text = {}, {}
      for k = 1, 6 do
        local one = draw(3) == 1
        local name = one and ones[draw(#ones)] or twos[draw(#twos)]
        code[k] = { name, draw(k + 1), not one and draw(k + 1) }
        text[k] = table.concat({ name, code[k][2], code[k][3] or "" }, " ")
      end
      local function fn(x, y)
        local v = { x, y }
        for _, step in ipairs(code) do
          local method, a, b = step[1], v[step[2]], v[step[3]]
          if not b then v[#v + 1] = a[method](a)
          else v[#v + 1] = moth[method](a, b) end
        end
        return v[#v] + x * y
      end
      local kernel, x, y = moth.kernel(fn), sources(moth.float32, 5, 6)
      text = table.concat(text, "; ")
      same(kernel(x, y), fn(x, y), text)
      local gx, gy = gradients(kernel, x, y)
      local wx, wy = gradients(fn, x, y)
      same(gx, wx, text)
      same(gy, wy, text)
    end
  end)

  it("broadcasts, reduces gradients of broadcast arguments, and accepts any layout", function()
    for name, fn in pairs(FUNCTIONS) do
      local kernel = moth.kernel(fn)
      for _, pair in ipairs {
        { moth.randn(8, 5), moth.randn(5) },
        { moth.randn(8, 1), moth.randn(1, 5) },
        { moth.randn(8, 5), moth.tensor(0.3) },
        { moth.randn(4, 8, 5), moth.randn(8, 1) },
        { moth.randn(5, 8):t(), moth.randn(8, 5) },
        { moth.randn(0, 5), moth.randn(5) },
      } do
        local x, y = pair[1], pair[2]
        if name ~= "in_place" and name ~= "filled" then
          same(kernel(x, y), fn(x, y), name)
          local gx, gy = gradients(kernel, x, y)
          local wx, wy = gradients(fn, x, y)
          local near = name == "halves" and {rtol = 1e-2, atol = 1e-2} or {rtol = 1e-4, atol = 1e-5}
          assert.is_true(moth.allclose(gx, wx, near), name)
          assert.is_true(moth.allclose(gy, wy, near), name)
        end
      end
    end
  end)

  it("has zero gradients for arguments without influence", function()
    local function fn(x, y) return x:floor() + y end
    local function only(x, y) return x:floor() * y + y end -- the derivative of floor, 0, times y
    for _, f in ipairs { only, moth.kernel(only) } do
      same((gradients(f, moth.randn(3, 4), moth.tensor(2))), moth.zeros(3, 4))
      same((gradients(f, moth.randn(3, 4), moth.ones(4))), moth.zeros(3, 4))
    end
    for _, f in ipairs { fn, moth.kernel(fn) } do
      local gx, gy = gradients(f, moth.randn(3, 4), moth.randn(4))
      same(gx, moth.zeros(3, 4))
      assert.are.equal("(4)", tostring(gy.shape))
    end
  end)

  it("returns channels_last results if the function does", function()
    local kernel = moth.kernel(FUNCTIONS.swiglu)
    local x = moth.randn(2, 3, 4, 5):contiguous { memory_format = moth.channels_last }
    local y = kernel(x, moth.randn(2, 3, 4, 5))
    assert.is_true(y:is_contiguous { memory_format = moth.channels_last })
    same(kernel(x, x), FUNCTIONS.swiglu(x, x))
  end)

  it("returns results that may be written in place, with gradients", function()
    local x, y = sources(moth.float32, 5, 6)
    local function step(f)
      return function(a, b)
        local r = f(a, b)
        r:add_(a):mul_(b)
        r[1]:mul_(3)
        return r
      end
    end
    for name, f in pairs(FUNCTIONS) do
      local gx, gy = gradients(step(moth.kernel(f)), x, y)
      local wx, wy = gradients(step(f), x, y)
      assert.is_true(moth.allclose(gx, wx, {rtol = 1e-3}), name)
      assert.is_true(moth.allclose(gy, wy, {rtol = 1e-3}), name)
    end
    local kernel = moth.kernel(function(a, b) return a * b, a:sigmoid() end)
    assert.has_error_like(function()
      gradients(function(a, b)
        local p, q = kernel(a, b)
        p:mul_(q)
        q:add_(1)
        return p
      end, x, y)
    end, "changed in place")
    assert.has_error_like(function()
      gradients(function(a, b)
        local c = a * 1
        local p = kernel(c, b)
        c:add_(1)
        return p
      end, x, y)
    end, "changed in place")
  end)

  it("raises for the gradients of a function that has changed after tracing", function()
    local factor = 2
    local kernel = moth.kernel(function(x, a) return x * a * factor end)
    local x = moth.randn(3, {requires_grad = true, device = "cpu"})
    local y = kernel(x, 0.5)
    factor = 3
    assert.has_error_like(function() y:sum():backward() end, "has changed since it was traced")
    factor = 2
    kernel(x, 0.5):sum():backward()
    same(x.grad, moth.ones(3, {device = "cpu"}))
  end)

  it("has second derivatives", function()
    local x, y = sources(moth.float64, 2, 3)
    for _, name in ipairs { "swiglu", "gelu", "layers" } do
      local a, b = x:detach(), y:detach()
      a.requires_grad, b.requires_grad = true, true
      local kernel = moth.kernel(FUNCTIONS[name])
      assert.is_true(moth.autograd.gradcheck(kernel, {a, b}), name)
      assert.is_true(moth.autograd.gradgradcheck(kernel, {a, b}), name)
    end
  end)

  it("accepts integers, bools and mixed dtypes, with the dtypes of the ops", function()
    local i, b = moth.arange(12):view(3, 4), moth.arange(12):view(3, 4):gt(5)
    local x = moth.randn(3, 4)
    for _, row in ipairs {
      { function(p, q) return p * q + 2 end, i, x },
      { function(p, q) return p + q end, i, b },
      { function(p, q) return moth.where(p, q, 0) end, b, x },
      { function(p, q) return p:logical_and(q:gt(0)) end, b, x },
      { function(p) return p / 4 end, i },
      { function(p, q) return p * q end, x, x:double() },
      { function(p, q) return p:to(moth.int32) + q end, x * 9, i },
      { function(p, q) return p * q end, x:half(), moth.tensor(2, {dtype = moth.float64}) },
    } do
      local kernel = moth.kernel(row[1])
      same(kernel(row[2], row[3]), row[1](row[2], row[3]))
    end
  end)

  it("returns up to four results, also arguments and repeated results", function()
    local function fn(x, y) return x + y, x * y, x, x + y end
    local kernel = moth.kernel(function(x, y)
      local s = x + y
      return s, x * y, x, s
    end)
    local x, y = sources(moth.float32, 9, 4)
    local got, want = { kernel(x, y) }, { fn(x, y) }
    assert.are.equal(4, #got)
    for k, w in ipairs(want) do same(got[k], w) end
    got[3]:fill_(0)
    assert.is_false(moth.equal(got[3], x))
    same(got[1], got[4])
  end)

  it("keeps the shape of a result that depends only on some arguments", function()
    local function fn(x, y) return x * y, y * 2 end
    local kernel = moth.kernel(fn)
    local x, y = moth.randn(4, 3), moth.randn(3)
    for _ = 1, 2 do
      local got, want = { kernel(x, y) }, { fn(x, y) }
      same(got[2], want[2])
    end
    assert.are.equal("(4, 3)", tostring((select(2, kernel(x, x))).shape))
  end)

  it("treats numbers, booleans and strings as constants, and branches on them", function()
    local calls = 0
    local function fn(x, a, mode)
      calls = calls + 1
      if mode == "up" then return x * a + 1 end
      return x * a - (mode and 1 or 2)
    end
    local kernel = moth.kernel(fn)
    local x = moth.randn(7)
    for _ = 1, 2 do
      for _, row in ipairs { { 2, "up" }, { 2, true }, { 0.3 }, { 2.5, "up" } } do
        same(kernel(x, row[1], row[2]), fn(x, row[1], row[2]))
      end
    end
    local before = calls
    kernel(x, 2, "up")
    assert.are.equal(before, calls)
  end)

  it("distinguishes 0 from -0 among its constants, and accepts NaN", function()
    local calls = 0
    local kernel = moth.kernel(function(x, a)
      calls = calls + 1
      return x / a
    end)
    local x = moth.ones(2)
    for _ = 1, 2 do
      same(kernel(x, 0), moth.full({2}, math.huge))
      same(kernel(x, -1 / math.huge), moth.full({2}, -math.huge))
      assert.is_true(kernel(x, 0 / 0):isnan():all():item())
    end
    local before = calls
    for _, a in ipairs { 0, -1 / math.huge, 0 / 0, -(0 / 0) } do kernel(x, a) end
    assert.are.equal(before, calls)
  end)

  it("warns once and continues if a number changes with each call", function()
    local warnings, warn = {}, moth.warn
    moth.warn = function(text) warnings[#warnings + 1] = text end
    local loaded = package.loaded["moth.base.warn"]
    package.loaded["moth.base.warn"] = moth.warn
    local kernel = moth.kernel(function(x, a) return x * a + a end)
    local x = moth.randn(3)
    for k = 1, 50 do same(kernel(x, k / 7), x * (k / 7) + k / 7) end
    moth.warn, package.loaded["moth.base.warn"] = warn, loaded
    assert.are.equal(1, #warnings)
    assert.is_truthy(warnings[1]:find("moth.tensor(x)", 1, true), warnings[1])
  end)

  it("raises for ops that are not elementwise, with the op and the line", function()
    local x, w = moth.randn(4, 4), moth.randn(4, 4)
    local function kernel(fn) return moth.kernel(fn) end
    refused("'sum'", kernel(function(p) return p - p:sum() end), x)
    refused("'softmax'", kernel(function(p) return F.softmax(p, 2) end), x)
    refused("'cumsum'", kernel(function(p) return p:cumsum(1) end), x)
    refused("'matmul'", kernel(function(p) return p:matmul(p) end), x)
    refused("'rand_like'", kernel(function(p) return p + moth.rand_like(p) end), x)
    refused("values are read", kernel(function(p) return p * p:item() end), moth.tensor(2))
    refused("pass outside tensors as arguments", kernel(function(p) return p * w end), x)
    refused("no argument of the kernel", kernel(function(p) return p * w[1][1] end), x)
    refused("a part of a tensor", kernel(function(p) return p[1] * 2 end), x)
    refused("of other shapes", kernel(function(p) return p + p:t() end), x)
    refused("writes an argument", kernel(function(p) return p:mul_(2) end), x)
    refused("a tensor is wanted", kernel(function(_) return 1 end), x)
    refused("0 values", kernel(function(_) end), x)
    refused("shape", kernel(function(p) return p / p:numel() end), x)
    refused("integers are divided", kernel(function(p) return p:floor_divide(2) end), x:long())
    local line = debug.getinfo(1, "l").currentline + 2
    local ok, message = pcall(moth.kernel(function(p)
      return p - p:mean()
    end), x)
    assert.is_false(ok)
    assert.is_truthy(message:find(":" .. line .. ":", 1, true), message)
    same(x + 1, kernel(function(p) return p + 1 end)(x)) -- no state is left
  end)

  it("names the mistake in a function, and reports no other one", function()
    local x = moth.randn(4, 4)
    local function message(fn, ...)
      local ok, text = pcall(moth.kernel(fn), ...)
      assert.is_false(ok)
      return text
    end
    for _, fn in ipairs {
      function(_) end,
      function(_) return 3 end,
      function(p) return { p } end,
      function(p) return p, p, p, p, p end,
    } do
      local text = message(fn, x)
      assert.is_truthy(text:find("wanted", 1, true), text)
      assert.is_nil(text:find("other shapes", 1, true), text)
    end
    local w = moth.randn(4)
    local text = message(function(p) return p * w end, x)
    assert.is_truthy(text:find("other shapes", 1, true), text)
    for _, one in ipairs { moth.ones(1), moth.tensor(1) } do
      text = message(function(p) return p * p:item() end, one)
      assert.is_truthy(text:find("values are read inside a moth.kernel", 1, true), text)
      assert.is_nil(text:find("(5, 7)", 1, true), text)
    end
    text = message(function(p) return p * math.random() end, x)
    assert.is_truthy(text:find("differs in each trace", 1, true), text)
    text = message(function(p) return p / p.shape[1] end, x)
    assert.is_truthy(text:find("depends on the shape", 1, true), text)
    text = message(function(p) return F.dropout(p, 0.5) end, x)
    assert.is_truthy(text:find("it draws random numbers", 1, true), text)
    text = message(function(p, q)
      return F.binary_cross_entropy_with_logits(p, q, {reduction = "none"})
    end, x, x:sigmoid())
    assert.is_truthy(text:find("has its own kernel", 1, true), text)
    refused("a module will not do", moth.kernel, nn.GELU())
    refused("got one with 9", moth.kernel, function(a, b, c, d, e, f, g, h, i)
      return a + b + c + d + e + f + g + h + i
    end)
    refused("got one with none", moth.kernel, function() end)
  end)

  it("raises for bad arguments as the function does", function()
    local function fn(x, y) return x * y end
    local kernel = moth.kernel(fn)
    local x = moth.randn(2, 3)
    kernel(x, x)
    refused("broadcast", kernel, x, moth.randn(2, 4))
    same(kernel(x, x), x * x)
    refused("a tensor, number, boolean or string is needed", kernel, x, {})
    refused("it takes 2 arguments", kernel, x, x, x)
    refused("at least one tensor", kernel, 1, 2)
    assert.is_false((pcall(kernel, x)))
    assert.is_false((pcall(moth.kernel, 3)))
    refused("any number of them", moth.kernel, function(...) return ... end)
    local gone
    moth.scope(function() gone = moth.randn(2) end)
    assert.is_false((pcall(kernel, gone, x)))
  end)

  it("runs op by op, with a warning, if the program is too large", function()
    local warnings, loaded = {}, package.loaded["moth.base.warn"]
    package.loaded["moth.base.warn"] = function(text) warnings[#warnings + 1] = text end
    local function fn(x)
      for _ = 1, 60 do x = (x * 1.01):sin() + x:cos() end
      return x
    end
    local kernel, x = moth.kernel(fn), moth.randn(10)
    same(kernel(x), fn(x))
    same(kernel(x), fn(x))
    package.loaded["moth.base.warn"] = loaded
    assert.are.equal(1, #warnings)
  end)

  it("is one instruction of a recording, also backward", function()
    local fn = FUNCTIONS.swiglu
    local kernel = moth.kernel(fn)
    local x = moth.randn(20, 30, {requires_grad = true})
    local function step(f)
      return moth.capture(function(b)
        x.grad = nil
        local z = f(x, b)
        z:sum():backward()
        return z, x.grad
      end)
    end
    local ours, theirs = step(kernel), step(fn)
    for _ = 1, 4 do
      local y = moth.randn(20, 30)
      local z, g = ours(y)
      z, g = z:clone(), g:clone()
      local z2, g2 = theirs(y)
      same(z, z2)
      same(g, g2)
    end
    local counted = moth.capture(function(b) return (kernel(x, b)) end)
    for _ = 1, 3 do counted(moth.randn(20, 30)) end
    local there, here = ffi.new "int32_t[1]", ffi.new "int32_t[1]"
    lib.C.moth_capture_graphs(lib.ctx, counted.last.id, there, here)
    assert.are.equal(1, here[0])
  end)

  it("may be traced first in a captured step whose garbage is collected meanwhile", function()
    local text = process.lua [[
      local moth = require "moth"
      local kernel = moth.kernel(function(a)
        collectgarbage()
        collectgarbage()
        return a:exp() + 1
      end)
      local step = moth.capture(function(a)
        for i = 1, 5 do local _ = a * i end
        return (kernel(a))
      end)
      for i = 1, 3 do
        local x = moth.full({3}, i)
        assert(step(x):equal(x:exp() + 1))
      end
    ]]
    assert.are.equal("rc=0\n", text)
  end)

  it("writes no file; a captured step writes none either", function()
    local path = os.tmpname()
    local function keeps(x)
      moth.save({w = x}, path)
      return x * 2
    end
    assert.has_error_like(function() moth.kernel(keeps)(moth.ones(3)) end,
      "a file is written inside a moth.kernel")
    assert.has_error_like(function() moth.capture(keeps)(moth.ones(3)) end,
      "a file is written while moth.capture records")
    local file = assert(io.open(path))
    assert.are.equal("", file:read "*a")
    file:close()
    os.remove(path)
  end)

  it("follows autocast, no_grad, nested kernels and anomaly mode", function()
    local inner = moth.kernel(FUNCTIONS.swiglu)
    local outer = moth.kernel(function(x, y) return inner(x, y) + inner(y, x) end)
    local function plain(x, y) return FUNCTIONS.swiglu(x, y) + FUNCTIONS.swiglu(y, x) end
    local x, y = sources(moth.float32, 5, 6)
    inner(x, y)
    same(outer(x, y), plain(x, y))
    assert.is_truthy(tostring(outer):find("sigmoid", 1, true))
    x.requires_grad = true
    assert.is_true(outer(x, y).requires_grad)
    assert.is_false(moth.no_grad(outer, x, y).requires_grad)
    local fn = function(a) return (a:float() * 2):exp() + 1 end
    local kernel, h = moth.kernel(fn), moth.randn(6):bfloat16()
    moth.autocast("cpu", {dtype = moth.bfloat16}, function() same(kernel(h), fn(h)) end)
    same(kernel(h), fn(h))
    moth.autograd.detect_anomaly(function()
      local gx = gradients(outer, x, y)
      same(gx, (gradients(plain, x, y)))
    end)
  end)

  it("keeps only its arguments for the backward pass", function()
    local kernel = moth.kernel(FUNCTIONS.gelu)
    local x, y = sources(moth.float32, 400, 500)
    x.requires_grad = true
    local function kept(f)
      moth.collect()
      local before = moth.memory().live_bytes
      local z = f(x, y)
      moth.collect()
      return moth.memory().live_bytes - before, z
    end
    kernel(x, y)
    local ours, theirs = kept(kernel), kept(FUNCTIONS.gelu)
    assert.is_true(ours <= 400 * 500 * 4 + 4096, ours)
    assert.is_true(theirs > 3 * ours)
  end)

  it("replaces a built-in function, describes itself, and returns the original", function()
    local fn = FUNCTIONS.swiglu
    local kernel = moth.kernel(fn)
    assert.are.equal(fn, kernel.fn)
    assert.is_truthy(tostring(kernel):find("not called yet", 1, true))
    local x, y = sources(moth.float32, 5, 6)
    kernel(x, y)
    local text = tostring(kernel)
    assert.is_truthy(text:find("float32, float32 -> float32: sigmoid, mul, mul", 1, true), text)
    assert.is_truthy(text:find("2 read, 2 between, 1 written", 1, true), text)
    assert.is_truthy(text:find("^moth%.kernel of kernel_spec%.lua:%d+%(x, y%)\n"), text)
    local scale = moth.kernel(function(p, by) return p * by end)
    for by = 9, 11 do scale(x, by) end
    scale(x, 10)
    assert.is_truthy(tostring(scale):find(", 9 .*, 10 .*, 11 "), tostring(scale))
    local silu = F.silu
    F.silu = moth.kernel(function(a) return a * a:sigmoid() * 2 end)
    local z = F.silu(x)
    F.silu = silu
    same(z, x * x:sigmoid() * 2)
  end)

  it("draws no random numbers and does not change modes", function()
    local x, y = sources(moth.float32, 5, 6)
    local state = moth.get_rng_state()
    moth.kernel(FUNCTIONS.gelu)(x, y)
    assert.is_true(moth.equal(state, moth.get_rng_state()))
    pcall(moth.kernel(function(p) return p:sum() end), x)
    assert.is_true(moth.is_grad_enabled())
  end)

  it("ends the trace if the function yields", function()
    local x = moth.ones(3)
    local turn = coroutine.wrap(function()
      return moth.kernel(function(a) coroutine.yield(1) return a + 1 end)(x)
    end)
    pcall(turn)
    assert.equal(6, (x + x):sum():item())
    assert.is_false(require("moth.kernel.trace").reading)
    local ok, text = pcall(turn)
    assert.is_false(ok)
    assert.matches("a kernel's function cannot yield", text)
  end)

  it("raises for a function that depends on the shape of its arguments", function()
    for _, fn in ipairs {
      function(x) return x.ndim > 1 and x * 2 or x * 3 end,
      function(x) return x:size(-1) > 3 and x * 2 or x * 3 end,
      function(x) return x * math.min(x:numel(), 8) end,
    } do
      local ok, text = pcall(moth.kernel(fn), moth.ones(2))
      assert.is_false(ok)
      assert.matches("depends on the shape of its arguments", text)
    end
  end)
end)
