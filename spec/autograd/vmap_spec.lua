-- moth.func.vmap: a function of single samples runs once for a batch. If the call log does not
-- describe the function fully, it runs once for each sample. Results are PyTorch's.

local moth = require "moth"

local nn, F, func = moth.nn, moth.nn.functional, moth.func
local f64 = moth.float64

-- vmap of f, and a function that returns the number of calls of f.
local function counted(f, options)
  local calls = 0
  return moth.vmap(function(...)
    calls = calls + 1
    return f(...)
  end, options or {in_dims = 1}), function() return calls end
end

local function close(want, got)
  assert.is_true(want.shape == got.shape, tostring(got.shape))
  assert.is_true(moth.allclose(want, got, {rtol = 1e-6, atol = 1e-6}), tostring(got))
end

-- The results of a loop over the rows.
local function looped(f, ...)
  local list = {}
  for i = 1, (...):size(1) do
    local row = {}
    for k = 1, select("#", ...) do row[k] = (select(k, ...))[i] end
    list[i] = (f(unpack(row)))
  end
  return (moth.stack(list))
end

local x = moth.randn(5, 4, {dtype = f64})

describe("vmap", function()
  it("calls the function once", function()
    for name, f in pairs {
      elements = function(r) return (r * 2 - 1):sin() / (r:abs() + 1) end,
      reductions = function(r) return r:softmax(1) * r:max() + r:mean() end,
      shapes = function(r) return moth.cat({r:view(2, 2):t(), r:reshape(2, 2)}, 2):flip {1} end,
      positions = function(r) return r[{{2, 3}}] + r[{{3, 4}}] * r[1] end,
      products = function(r) return r:outer(r):matmul(r) + moth.dot(r, r) end,
      sorts = function(r) return (r:sort(1, true)) * r:argmax():to(f64) end,
    } do
      local v, calls = counted(f)
      close(looped(f, x), v(x))
      assert.equal(1, calls(), name)
    end
  end)

  it("runs each op once for all samples", function()
    local y, at = moth.rand(5, 4, {dtype = f64}), moth.tensor {2LL, 1LL}
    for name, f in pairs {
      exp = function(a) return a:exp() end, mul = function(a, b) return a * b end,
      relu = function(a) return a:relu() end, where = function(a, b) return a:where(a:gt(0), b) end,
      clamp = function(a) return a:clamp(-1, 1) end, sum = function(a) return a:sum(1) end,
      add_ = function(a, b) return a:clone():add_(b) end, cat = function(a, b)
        return moth.cat({a, b}, 1)
      end, exp_ = function(a) return a:clone():exp_() end,
      index_select = function(a) return a:index_select(1, at) end,
      softmax = function(a) return a:softmax(1) end, matmul = function(a, b) return a:dot(b) end,
      cumsum = function(a) return a:cumsum(1) end, lerp = function(a, b) return a:lerp(b, 0.5) end,
    } do
      local counts = {}
      for i, n in ipairs {2, 5} do
        local prof = moth.profiler.profile(function() moth.vmap(f)(x[{{1, n}}], y[{{1, n}}]) end)
        counts[i] = #prof:events()
      end
      assert.equal(counts[1], counts[2], name)
    end
  end)

  it("computes the gradients of each sample in one pass", function()
    local net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(8, 3)):double()
    local images, classes = moth.randn(4, 1, 4, 4, {dtype = f64}), moth.tensor {1LL, 3LL, 2LL, 1LL}
    local params = {}
    for name, p in net:named_parameters() do params[name] = p:detach() end
    local v, calls = counted(func.grad(function(p, image, class)
      local y = func.functional_call(net, p, {image:unsqueeze(1)})
      return F.cross_entropy(y, class:unsqueeze(1))
    end), {in_dims = {moth.none, 1, 1}})
    local grads = v(params, images, classes)
    assert.equal(1, calls())
    for i = 1, 4 do
      net:zero_grad()
      F.cross_entropy(net(images[{{i, i}}]), classes[{{i, i}}]):backward()
      for name, p in net:named_parameters() do close(p.grad, grads[name][i]) end
    end
  end)

  it("can be differentiated, nests, and maps functions of derivatives", function()
    local v, calls = counted(function(r) return (r ^ 3):sum() end)
    local function total(y) return v(y):sum() end
    close(3 * x ^ 2, func.grad(total)(x))
    assert.equal(1, calls())
    local outer, inner = counted(moth.vmap(moth.dot, {moth.none, 1}), {in_dims = {1, moth.none}})
    close(x:matmul(x:t()), outer(x, x))
    assert.equal(1, inner())
    local function cube(r) return (r ^ 3):sum() end
    for _, f in ipairs {func.jacrev(function(r) return r:sin() * r[1] end), func.hessian(cube),
                        func.grad(function(r) return func.grad(cube)(r):sum() end)} do
      v, calls = counted(f)
      close(looped(f, x), v(x))
      assert.equal(1, calls())
    end
  end)

  it("keeps separate the writes to tensors that the function makes", function()
    local function f(r)
      local y = moth.zeros(3, 4, {dtype = f64})
      y[2]:add_(r)
      y[{{1, 2}}] = y[{{2, 3}}] * 2 + 1
      return y:mul_(r), y:sum()
    end
    local v, calls = counted(f)
    close(looped(f, x), (v(x)))
    assert.equal(1, calls())
  end)

  it("passes gradients under the modes that the function sets", function()
    local y = x:clone():requires_grad_()
    local function f(r) return moth.no_grad(moth.exp, r) * r + (r * 2):detach() * r end
    local v, calls = counted(f)
    v(y):sum():backward()
    close(x:exp() + 2 * x, y.grad)
    assert.equal(1, calls())
  end)

  it("takes tables, dimensions from either end, and constants", function()
    local v, calls = counted(function(t, k, mode)
      assert.equal("sum", mode)
      return {a = t.p * k, b = {t.q}}, moth.ones(2)
    end, {in_dims = {{p = 2, q = -1}, moth.none, moth.none}, out_dims = {{a = 2, b = 1}, 1}})
    local made, ones = v({p = x, q = moth.arange(8):view(2, 4)}, 3, "sum")
    close(x * 3, made.a)
    close(moth.arange(8):view(2, 4):t(), made.b[1])
    close(moth.ones(4, 2), ones)
    assert.equal(1, calls())
  end)

  it("computes chunk_size samples at a time", function()
    local v, calls = counted(function(r) return r * 2, r:sum() end,
      {chunk_size = 2, out_dims = {2, 1}})
    local twice, sums = v(x)
    close((x * 2):t(), twice)
    close(x:sum(2), sums)
    assert.equal(3, calls()) -- chunks of 2, 2 and 1
    assert.has_error_like(function() moth.vmap(moth.exp, {chunk_size = 0}) end,
      "'chunk_size' to 'vmap' %(a positive number is needed, got 0")
  end)

  it("draws random numbers according to randomness", function()
    local function draw(r) return r * 0 + moth.rand(4, {dtype = f64}) end
    assert.has_error_like(function() moth.vmap(draw)(x) end,
      "'randomness' to 'vmap' %('rand' draws random numbers; say 'different' or 'same'")
    local y, calls = counted(draw, {randomness = "different"})
    y = y(x)
    assert.is_false(moth.equal(y[1], y[2]))
    assert.equal(1, calls())
    y = moth.vmap(draw, {randomness = "same"})(x)
    assert.is_true(moth.equal(y[1], y[5]))
    local drop = moth.vmap(function(r) return F.dropout(r, 0.5) end, {randomness = "different"})
    y = drop(moth.ones(2, 64))
    assert.is_false(moth.equal(y[1], y[2]))
    drop = moth.vmap(function(r) return F.dropout(r, 0.5) end, {randomness = "same"})
    y = drop(moth.ones(2, 64))
    assert.is_true(moth.equal(y[1], y[2]))
    assert.is_true(moth.equal(moth.ones(2, 3), moth.vmap(function(r)
      return F.dropout{r, 0.5, training = false}
    end)(moth.ones(2, 3))))
  end)
end)

-- f is called for each of the samples, and the results are right.
local function is_looped(f)
  local v, calls = counted(f)
  local got = v(x)
  assert.equal(5, calls())
  return got
end

describe("vmap calls the function for each sample where", function()
  it("it reads values", function()
    local function f(r)
      if r:sum():item() > 0 then return r * 2 end
      return r - 1
    end
    close(looped(f, x), is_looped(f))
    close(x, is_looped(function(r) return moth.tensor(r:tolist(), {dtype = f64}) end))
    close(x, is_looped(function(r) return moth.equal(r, r) and r end))
  end)

  it("it writes to tensors from outside", function()
    local sum, y = moth.zeros(4, {dtype = f64}), x:clone()
    is_looped(function(r)
      sum:add_(r)
      return r
    end)
    close(x:sum(1), sum)
    moth.vmap(function(r) return r:mul_(2) end)(y)
    close(x * 2, y)
    local net = nn.BatchNorm1d(4):double()
    is_looped(function(r) return net(r:view(1, 4):expand(2, 4)) end)
    assert.equal(5, net.num_batches_tracked:item())
  end)

  it("results have different shapes", function()
    local counts = moth.tensor {{1, 0, 2}, {0, 3, 4}}
    local v, calls = counted(function(r) return r:nonzero():sum() end)
    close(moth.tensor {4LL, 5LL}, v(counts))
    assert.is_true(calls() <= 2)
    assert.has_error_like(function()
      moth.vmap(function(r) return r[r:gt(0)] end)(moth.tensor {{1, 0}, {1, 1}})
    end, "'stack'")
  end)

  it("it contains hooks, Functions, backward or checkpoints", function()
    local function hooked(r)
      local y = r:detach():requires_grad_()
      local z = y * 1
      z:register_hook(function(g) return g * 2 end)
      return (moth.autograd.grad(z:sum(), y))
    end
    close(moth.full({5, 4}, 2, {dtype = f64}), is_looped(hooked))
    local Double = nn.class("Double", moth.autograd.Function)
    function Double.forward(_, r) return r * 2 end
    function Double.backward(_, g) return g * 5 end
    local function own(r)
      local y = r:detach():requires_grad_()
      return (moth.autograd.grad(Double.apply(y):sum(), y))
    end
    close(moth.full({5, 4}, 5, {dtype = f64}), is_looped(own))
    close(moth.ones(5, 4, {dtype = f64}), is_looped(function(r)
      local y = r:detach():requires_grad_()
      y:sum():backward()
      return y.grad
    end))
    close(x * 2, is_looped(function(r)
      local y = r:detach():requires_grad_()
      local z = moth.utils.checkpoint.checkpoint(function(a) return a * a end, y)
      return (moth.autograd.grad(z:sum(), y))
    end))
  end)

  it("it uses .data, another mode or a recording", function()
    close(x * 2, is_looped(function(r)
      local y = moth.zeros(4, {dtype = f64})
      y.data = r * 2
      return y
    end))
    close(x, is_looped(function(r) return r:clone().data end))
    local step = moth.capture(function(r) return r * 3 end)
    close(x * 3, moth.vmap(function(r) return step(r):clone() end)(x))
    local half = moth.vmap(function(r)
      return moth.autocast("cpu", function() return F.linear(r, moth.eye(4)) end)
    end)(x:float())
    assert.equal(moth.bfloat16, half.dtype)
    is_looped(function(r)
      moth.manual_seed(3)
      return r
    end)
  end)

  it("it computes gradients with respect to tensors from outside", function()
    local w = moth.randn(4, {dtype = f64}):requires_grad_()
    close(x, is_looped(function(r) return (moth.autograd.grad((r * w):sum(), w)) end))
  end)

  it("a recorded step or a coroutine calls it", function()
    local step = moth.capture(function(y) return moth.vmap(function(r) return r * r end)(y) end)
    for k = 1, 3 do close((x * k) ^ 2, step(x * k)) end
    local got = coroutine.wrap(function()
      return moth.vmap(function(r)
        coroutine.yield()
        return r * 2
      end)(x)
    end)
    for _ = 1, 5 do got() end
    close(x * 2, got())
  end)
end)

describe("equal elements", function()
  it("share the gradient of the maximum as in a loop", function()
    local y = moth.tensor({{1, 3, 3, 2}, {2, 2, 2, 2}}, {dtype = f64})
    for _, f in ipairs {function(r) return r:max() end, function(r) return r:min() end,
                        function(r) return (r:max(1)) end, function(r) return r:amax() end} do
      local gradient = func.grad(f)
      close(looped(gradient, y), moth.vmap(gradient)(y))
    end
  end)
end)

describe("a 0-d sample", function()
  it("is promoted with dimensioned tensors as without a batch", function()
    local a, b = moth.tensor({0.1, 0.2}, {dtype = f64}), moth.tensor({0.1, 0.3})
    local v, calls = counted(function(s) return b:eq(s), b * s end)
    local equal, product = v(a)
    assert.same({{true, false}, {false, false}}, equal:tolist())
    assert.equal(moth.float32, product.dtype)
    assert.equal(1, calls())
  end)
end)

describe("a batch of gradients", function()
  local y = x:clone():requires_grad_()
  local w = moth.randn(3, 4, {dtype = f64}):requires_grad_()
  local grads = moth.randn(40, 5, 3, {dtype = f64})

  local function passes(out, inputs)
    local columns = {}
    for i = 1, grads:size(1) do
      local got = {moth.autograd.grad(out, inputs, {grad_outputs = grads[i], retain_graph = true,
        allow_unused = true})}
      for k = 1, #inputs do
        columns[k] = columns[k] or {}
        columns[k][i] = got[k]
      end
    end
    return columns
  end

  it("needs one backward pass", function()
    local z = F.layer_norm(y:sin():matmul(w:t()), {3}):softmax(2) * w:sum()
    local want = passes(z, {y, w})
    for _, again in ipairs {false, true} do
      local gy, gw = moth.autograd.grad(z, {y, w}, {grad_outputs = grads, is_grads_batched = true,
        create_graph = again, retain_graph = true})
      close(moth.stack(want[1]), gy)
      close(moth.stack(want[2]), gw)
      assert.equal(again, gy.requires_grad)
    end
  end)

  it("passes through hooks, and is nil for an unused input", function()
    local calls, z = 0, y * 2
    z:register_hook(function(g)
      calls = calls + 1
      return g * 3
    end)
    local gy, gw = moth.autograd.grad(z[{{}, {1, 3}}], {y, w}, {grad_outputs = grads,
      is_grads_batched = true, allow_unused = true})
    assert.is_nil(gw)
    close(F.pad(grads * 6, {0, 1}), gy)
    assert.is_true(calls >= 40)
  end)

  it("is used by vectorize and jacrev, at once or in chunks", function()
    local a = moth.randn(20, 4, {dtype = f64})
    local function f(r, s) return (a:mv(r)):tanh() * s:sum(), s * 2 end
    local r, s = moth.randn(4, {dtype = f64}), moth.randn(3, {dtype = f64})
    local want = moth.autograd.functional.jacobian(f, {r, s})
    local got = moth.autograd.functional.jacobian(f, {r, s}, {vectorize = true})
    for i = 1, 2 do
      for k = 1, 2 do close(want[i][k], got[i][k]) end
    end
    local function first(...) return (f(...)) end
    for _, chunk in ipairs {17, 64} do
      local J = func.jacrev(first, {argnums = {1, 2}, chunk_size = chunk})(r, s)
      close(want[1][1], J[1])
      close(want[1][2], J[2])
    end
    local function g(v) return (a:mv(v):tanh() * v:sum()):sum() end
    local v = moth.randn(20, {dtype = f64})
    local function wide(u) return (u[{{1, 4}}]:sum() * u:sin()):sum() + g(u[{{1, 4}}]) end
    close(moth.autograd.functional.hessian(wide, v),
      moth.autograd.functional.hessian(wide, v, {vectorize = true}))
    close(moth.autograd.functional.hessian(wide, v), func.hessian(wide)(v))
    assert.has_error_like(function()
      moth.autograd.functional.jacobian(g, r, {vectorize = 0})
    end, "'vectorize' to 'jacobian' %(true, false or a positive integer is needed, got 0")
  end)
end)
