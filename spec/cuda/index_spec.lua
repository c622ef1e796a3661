-- Reading, writing and passing tensors of a GPU: indexing, masks, positions in long lists, late
-- errors; and files, copies and modules. Values of single ops are in spec/cuda/golden_spec.

local moth = require "moth"
local cuda = require "spec.support.cuda"

local nn, F = moth.nn, moth.nn.functional

describe("indexing a GPU's tensor", function()
  if not cuda.here then
    pending("is read and written: " .. cuda.why)
    return
  end

  local function both(f)
    moth.manual_seed(3)
    local x = moth.randn(5, 6)
    local there = x:cuda()
    local y, z = f(x), f(there)
    assert.is_true((z or there):cpu():equal(y or x))
  end

  it("reads by positions, ranges, lists and masks", function()
    both(function(x) return x[2] end)
    both(function(x) return x[{ { 2, 4 }, -1 }] end)
    both(function(x) return x[{ {}, { 1, 6, 2 } }] end)
    both(function(x) return x[{ { { 5, 1, 1 } } }] end)
    both(function(x) return x[{ {}, { { 6, -1, 2 } } }] end)
    both(function(x) return x[{ { { 5, 1 } }, { { 2, 2 } } }] end)
    both(function(x) return x[x:gt(0)] end)
    both(function(x) return x[{ x:sum(2):gt(0) }] end)
    both(function(x) return x[{ {}, x:sum(1):gt(0) }] end)
    both(function(x) return x[{ "...", moth.newaxis, 1 }] end)
  end)

  it("writes by positions, ranges, lists and masks", function()
    both(function(x) x[2] = 7 end)
    both(function(x) x[{ { 2, 4 }, -1 }] = { 1, 2, 3 } end)
    both(function(x) x[{ {}, { 1, 6, 2 } }] = 0 end)
    both(function(x) x[{ { { 5, 1 } } }] = moth.ones(6, { device = x.device }) end)
    both(function(x) x[{ { { 5, 1 } }, { { 2, 3 } } }] = { 4, 5 } end)
    both(function(x) x[x:gt(0)] = -1 end)
    both(function(x) x[{ x:sum(2):gt(0) }] = 2 end)
    both(function(x)
      local mask = x:gt(0)
      x[mask] = x[mask] * 2
    end)
    both(function(x) x:t()[{ { { 5, 1 } } }] = 3 end)
  end)

  it("keeps the last of several values for one position", function()
    local x = moth.zeros(3, { device = "cuda" })
    x[{ { { 2, 2, 2 } } }] = { 1, 2, 3 }
    assert.same({ 0, 3, 0 }, x:tolist())
  end)

  it("works in for loops, and in tolist", function()
    local sum = 0
    local x = moth.arange(1, 7):view(3, 2):cuda()
    for _, row in ipairs(x:unbind()) do sum = sum + row[2]:item() end
    assert.equal(12, sum)
  end)

  it("prints any size as on the CPU", function()
    for _, size in ipairs { {}, { 0 }, { 3 }, { 2, 3 }, { 40, 50 }, { 3, 20, 30 } } do
      local x = moth.arange(moth.zeros(size):numel()):view(size)
      local text = tostring(x:cuda()):match "^(.*)%["
      assert.equal(tostring(x):match "^(.*)%[", text)
    end
  end)

  it("reports a position out of range at the next synchronization", function()
    local x = moth.randn(4, 3):cuda()
    local ok, message = pcall(function()
      x:index_select(1, moth.tensor { 2LL, 9LL }:cuda())
      moth.cuda.synchronize()
    end)
    assert.is_false(ok)
    assert.equal("E_INDEX", moth.errcode())
    assert.truthy(message:find("9 of 4", 1, true))
    assert.same({ 4, 3 }, { x:size(1), x:size(2) })
  end)

  it("reports one invalid position among valid ones, and one of many", function()
    for _, bad in ipairs { 77, 0 } do
      local list = moth.arange(5000):remainder(4):long() + 1
      list[{ bad > 0 and { bad, bad } or {} }] = 9
      local ok, message = pcall(function()
        moth.randn(4, 3):cuda():index_select(1, list:cuda())
        moth.cuda.synchronize()
      end)
      assert.is_false(ok)
      assert.truthy(message:find("9 of 4", 1, true))
    end
  end)

  it("takes positions from the CPU, and passes gradients through them", function()
    local x = moth.randn(4, 3)
    local there = x:cuda():requires_grad_()
    there[{ { { 2, 2, 1 } } }]:sum():backward()
    assert.same({ { 1, 1, 1 }, { 2, 2, 2 }, { 0, 0, 0 }, { 0, 0, 0 } }, there.grad:tolist())
    there.grad = nil
    there[x:gt(-10)]:sum():backward()
    assert.is_true(there.grad:cpu():equal(moth.ones(4, 3)))
  end)
end)

describe("long lists of positions on a GPU", function()
  if not cuda.here then
    pending("give what the CPU gives: " .. cuda.why)
    return
  end

  local n = 4500

  local function agree(f, ...)
    local here, there = {}, {}
    for i, x in ipairs { ... } do here[i], there[i] = x, x:cuda() end
    local y, z = f(unpack(here)), f(unpack(there))
    assert.is_true(z:cpu():allclose(y, { rtol = 1e-5, atol = 1e-5 }))
    assert.is_true(f(unpack(there)):cpu():equal(z:cpu()))
  end

  it("are summed in a fixed order", function()
    moth.manual_seed(5)
    local at, x, v = moth.randint(1, 301, { n }), moth.randn(300, 2), moth.randn(n, 2)
    agree(function(a, b, c) return a:index_add(1, b, c) end, x, at, v)
    agree(function(a, b, c) return a:scatter_add(1, b, c) end, x[{ {}, 1 }], at, v[{ {}, 1 }])
    agree(function(a, b, c) return a:scatter(1, b, c) end, x[{ {}, 1 }], at, v[{ {}, 1 }])
    agree(function(a, b, c) return a:scatter_reduce(1, b, c, "amax") end, x[{ {}, 1 }], at,
      v[{ {}, 1 }])
    agree(function(a, b, c)
      local y = a:clone()
      y[b] = c
      return y
    end, x, at, v)
  end)

  it("are found where a mask is true", function()
    moth.manual_seed(6)
    local x = moth.randn(n)
    agree(function(a) return a:gt(1):nonzero() end, x)
    agree(function(a) return a[a:gt(1)] end, x)
  end)

  it("have embedding gradients, and renormalize its rows", function()
    moth.manual_seed(7)
    local at, w = moth.randint(1, 51, { n }), moth.randn(50, 3)
    agree(function(a, b)
      local leaf = b:detach():requires_grad_()
      F.embedding(a, leaf, { padding_idx = 2, scale_grad_by_freq = true }):sum():backward()
      return leaf.grad
    end, at, w)
    agree(function(a, b)
      local c = b:clone()
      F.embedding(a, c, { max_norm = 0.7 })
      return c
    end, at, w)
  end)

  it("are copied from the CPU once for each kernel of an embedding", function()
    local w = moth.randn(4, 3, { device = "cuda" })
    local function copies(options)
      local prof, count = moth.profiler.profile(function() F.embedding({ 1, 3 }, w, options) end), 0
      for _, e in ipairs(prof:events()) do
        if e.name == "to_device" then count = count + 1 end
      end
      return count
    end
    assert.equal(1, copies {})
    assert.equal(2, copies { max_norm = 0.5 })
    assert.is_true(w:cpu()[{ { { 1, 3 } } }]:norm(2, 2):le(0.5):all():item())
  end)
end)

describe("the gradient of an expanded view", function()
  it("is summed into the first element on a GPU as on the CPU", function()
    if not cuda.here then
      pending(cuda.why)
      return
    end
    for _, name in ipairs { "float32", "float64", "float16" } do
      local dy = moth.randn(2, 3):to(moth[name])
      local function gradient(device)
        local base = moth.randn(4):to(device, moth[name]):expand(3, 4):detach():requires_grad_()
        base:as_strided({ 2, 3 }, { 1, 1 }, 0):backward(dy:to(device))
        return base.grad:cpu()
      end
      local there, here = gradient "cuda", gradient "cpu"
      assert.is_true(moth.allclose(there, here, { atol = 2e-3 }))
      assert.is_true(there:ne(0):equal(here:ne(0)))
    end
  end)
end)

describe("a tensor on a GPU", function()
  if not cuda.here then
    pending("is saved, copied and passed on: " .. cuda.why)
    return
  end

  it("is saved from there and loaded to the CPU, stored once if shared", function()
    local path = os.tmpname()
    local x = moth.randn(3, 4):cuda()
    moth.save({ a = x, b = x, t = x:t() }, path)
    local back = moth.load(path)
    os.remove(path)
    assert.is_false(back.a.is_cuda)
    assert.is_true(back.a:equal(x:cpu()))
    assert.is_true(back.t:equal(x:cpu():t()))
  end)

  it("is refused in a token", function()
    local ok = pcall(moth.token, moth.ones(2, { device = "cuda" }))
    assert.is_false(ok)
    assert.equal("E_DEVICE", moth.errcode())
  end)

  it("is deep-copied, and a module's state is saved and loaded", function()
    local net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Embedding(5, 2)):to("cuda")
    local copy = moth.deepcopy(net)
    assert.is_true(copy[1].weight.is_cuda)
    assert.is_true(copy[1].weight:cpu():equal(net[1].weight:cpu()))
    local other = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Embedding(5, 2))
    other:load_state_dict(net:state_dict())
    assert.is_false(other[1].weight.is_cuda)
    assert.is_true(other[3].weight:equal(net[3].weight:cpu()))
    net:load_state_dict(other:state_dict())
    assert.is_true(net[1].weight.is_cuda)
  end)
end)

describe("a position 0 on a GPU", function()
  if not cuda.here then
    pending("is told as it is on the CPU: " .. cuda.why)
    return
  end

  it("raises as on the CPU", function()
    local zeros = moth.zeros(6):long():cuda()
    local y, w = moth.randn(6, 3):cuda(), moth.randn(4, 2):cuda()
    local wanted = "ran before on the GPU: positions count from 1, got 0"
    assert.has_error_like(function() F.cross_entropy(y, zeros):item() end, wanted)
    for _, ignored in ipairs { 1, 2 } do
      assert.has_error_like(function()
        F.nll_loss(y, zeros, { ignore_index = ignored }):item()
      end, wanted)
    end
    assert.has_error_like(function() F.embedding(zeros, w):cpu() end, wanted)
    assert.has_error_like(function() w:index_select(1, zeros):cpu() end, wanted)
    assert.equal(3, y:cpu().shape[2])
  end)
end)

describe("positions on a GPU", function()
  if not cuda.here then
    pending("are the CPU's: " .. cuda.why)
    return
  end

  local reading = {
    embedding = function(x, at) return F.embedding(at, x) end,
    ["a shared embedding"] = function(x, at)
      return F.embedding(at, x, { padding_idx = 2, scale_grad_by_freq = true })
    end,
    index_select = function(x, at) return x:index_select(1, at) end,
    gather = function(x, at) return x:gather(1, at:view(-1, 1)) end,
    take = function(x, at) return x:take(at) end,
    take_along_dim = function(x, at) return x:take_along_dim(at:view(-1, 1), 1) end,
    ["a list between brackets"] = function(x, at) return x[{ at }] end,
    ["lists between brackets"] = function(x, at) return x[{ at, at:clamp(1, 3) }] end,
    index_add = function(x, at) return x:index_add(1, at, x[{ { 1, 4 } }], { alpha = 3 }) end,
    scatter = function(x, at) return x:scatter(1, at:unique():view(-1, 1), x * 2) end,
    scatter_add = function(x, at) return x:scatter_add(1, at:view(-1, 1), x) end,
    scatter_reduce = function(x, at) return x:scatter_reduce(1, at:view(-1, 1), x * 2, "amax") end,
    index_copy = function(x, at)
      at = at:unique()
      return x:index_copy(1, at, x[{ { 1, #at } }])
    end,
    index_fill = function(x, at) return x:index_fill(1, at:unique(), 2) end,
    index_put = function(x, at)
      return x:index_put({ at }, x[{ { 1, 4 } }], { accumulate = true })
    end,
  }

  it("have the CPU's values and gradients in any layout, and stay unchanged", function()
    moth.manual_seed(8)
    local x, table_of = moth.randn(5, 3), { { 5LL, 7LL }, { 2LL, 7LL }, { 5LL, 7LL }, { 1LL, 7LL } }
    for name, f in pairs(reading) do
      for _, make in ipairs { function(at) return at:clone() end, function(at) return at end,
                              function(at) return at:int() end } do
        local got = {}
        for _, device in ipairs { "cpu", "cuda" } do
          local at = make(moth.tensor(table_of):to(device):select(2, 1))
          local leaf = x:to(device):detach():requires_grad_()
          local y = f(leaf, at)
          local dx = moth.autograd.grad((y * y):sum(), leaf, { create_graph = true })
          dx:square():sum():backward()
          got[device] = moth.cat { y:detach():view(-1), dx:detach():view(-1), leaf.grad:view(-1) }
          assert.same({ 5, 2, 5, 1 }, at:tolist(), name)
        end
        assert.is_true(moth.allclose(got.cuda:cpu(), got.cpu, { rtol = 1e-4, atol = 1e-5 }), name)
      end
    end
  end)

  it("out of range are reported by the number that the user wrote", function()
    local x = moth.randn(5, 3):cuda()
    for name, f in pairs(reading) do
      for _, case in ipairs { { 0LL, "positions count from 1, got 0" }, { 99LL, "99 of %d+" } } do
        local at = moth.tensor({ 1LL, case[1], 2LL, 3LL }):cuda()
        local ok, message = pcall(function()
          f(x, at)
          moth.cuda.synchronize()
        end)
        assert.is_false(ok, name)
        assert.matches(case[2], message)
        assert.equal("E_INDEX", moth.errcode())
      end
    end
  end)

  it("are captured, and may be on the CPU", function()
    moth.manual_seed(9)
    local w = moth.randn(5, 3):cuda():requires_grad_()
    local step = moth.capture(function(at, host)
      w.grad = nil
      local y = F.embedding(at, w) * w:index_select(1, at) + w:gather(1, host)
      y:square():sum():backward()
      return y, w.grad
    end)
    for k = 1, 5 do
      local at = moth.randint(1, 6, { 4 })
      local host = moth.randint(1, 6, { 4, 3 })
      local y, dw = step(at:cuda(), host)
      local own = w:detach():cpu():requires_grad_()
      local want = F.embedding(at, own) * own:index_select(1, at) + own:gather(1, host)
      want:square():sum():backward()
      assert.is_true(moth.allclose(y:detach():cpu(), want:detach(), { rtol = 1e-4 }), k)
      assert.is_true(moth.allclose(dw:cpu(), own.grad, { rtol = 1e-4, atol = 1e-5 }), k)
    end
  end)

  it("give an embedding its sparse gradient", function()
    local w = moth.zeros(5, 3):cuda():requires_grad_()
    local at = moth.tensor({ 4LL, 2LL, 4LL }):cuda()
    F.embedding(at, w, { sparse = true, padding_idx = 2 }):sum():backward()
    at:fill_(1)
    assert.same({ { 0, 0, 0 }, { 0, 0, 0 }, { 0, 0, 0 }, { 2, 2, 2 }, { 0, 0, 0 } },
      w.grad:to_dense():tolist())
  end)
end)

describe("classes on a GPU", function()
  if not cuda.here then
    pending("are the CPU's: " .. cuda.why)
    return
  end

  it("count from 1 in any layout, for any ignore_index", function()
    local classes = moth.randint(1, 6, { 6, 2 })
    local scores = moth.randn(6, 5)
    for _, make in ipairs { function(c) return c:select(2, 1) end,
                            function(c) return c:int():select(2, 2) end,
                            function(c) return c:select(2, 2):clone() end } do
      for _, how in ipairs { { reduction = "sum" }, { ignore_index = 1 }, { ignore_index = 0 },
                             { ignore_index = 5, label_smoothing = 0.3 },
                             { reduction = "none", label_smoothing = 0.2, ignore_index = 2 } } do
        local got = {}
        for _, device in ipairs { "cpu", "cuda" } do
          local x = scores:to(device):detach():requires_grad_()
          local loss = F.cross_entropy(x, make(classes:to(device)), how)
          local dx = moth.autograd.grad(loss:sum(), x, { create_graph = true })
          dx:square():sum():backward()
          got[device] = moth.cat { loss:detach():view(-1), dx:detach():view(-1), x.grad:view(-1) }
        end
        assert.is_true(moth.allclose(got.cuda:cpu(), got.cpu, { rtol = 1e-5, atol = 1e-6 }))
      end
    end
    local mine = moth.tensor({ 1LL, 5LL }):cuda()
    F.cross_entropy(scores[{ { 1, 2 } }]:cuda(), mine)
    assert.same({ 1, 5 }, mine:tolist())
  end)

  it("may not change before the backward pass", function()
    local x, mine = moth.randn(2, 5):cuda():requires_grad_(), moth.tensor({ 1LL, 5LL }):cuda()
    local loss = F.cross_entropy(x, mine)
    mine:fill_(2)
    assert.has_error_like(function() loss:backward() end, "target")
  end)
end)
