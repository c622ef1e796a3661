-- Gradients of slices of one tensor. Slices along one dimension are copied into the gradient,
-- overlapping slices are added, and the rest is zero. Anomaly mode checks each gradient and takes
-- no shortcut, so the spec uses its results as the expected values.

local moth = require "moth"
local cuda = require "spec.support.cuda"
local profiler = require "spec.support.profiler"

local DEVICES = cuda.here and { "cpu", "cuda" } or { "cpu" }

local function slowly(f)
  moth.autograd.set_detect_anomaly(true)
  local ok, result = pcall(f)
  moth.autograd.set_detect_anomaly(false)
  if not ok then error(result, 0) end
  return result
end

-- The gradient of x if f(x) returns the views that are used; each view has its own weights.
local function gradient(x, f, dtype)
  moth.manual_seed(11)
  x = x:detach():requires_grad_()
  local loss = 0
  for _, v in ipairs(f(x * 1)) do
    loss = loss + (v * moth.randn(v.shape):to(dtype):to(v.device)):float():sum()
  end
  loss:backward()
  return x.grad
end

-- On the CPU the gradients of small tensors are added to zeros; these sizes are larger.
local function claim(f, shape, dtype)
  dtype = dtype or moth.float32
  for _, device in ipairs(DEVICES) do
    local x = moth.randn(shape):to(dtype):to(device)
    local got = gradient(x, f, dtype)
    local want = slowly(function() return gradient(x, f, dtype) end)
    assert.equal(want.dtype, got.dtype)
    assert.is_true(moth.equal(want, got))
  end
end

describe("gradients of slices", function()
  it("of a split are copied in any order", function()
    claim(function(x) return x:split(40, { dim = 2 }) end, { 300, 120 })
    claim(function(x)
      local list = x:split(50, { dim = 1 })
      return { list[2], list[6], list[1] }
    end, { 300, 120 })
    claim(function(x) return x:chunk(7, 2) end, { 200, 120 }, moth.bfloat16)
    claim(function(x) return x:split(1, { dim = 2 }) end, { 1100, 8 }, moth.float64)
  end)

  it("of an unbind after a permute are those of q, k and v", function()
    local function parts(x)
      local list = x:view(4, 16, 3, 2, 96):permute(3, 1, 4, 2, 5):unbind(1)
      return { list[1], list[2], list[3] }
    end
    claim(parts, { 4, 16, 576 })
    claim(parts, { 4, 16, 576 }, moth.bfloat16)
    claim(function(x) local list = parts(x) return { list[2] } end, { 4, 16, 576 })
    claim(function(x) local list = parts(x) return { list[3], list[1] } end, { 4, 16, 576 })
  end)

  it("that overlap or repeat are added", function()
    claim(function(x) return { x:narrow(1, 1, 60), x:narrow(1, 41, 60) } end, { 100, 300 })
    claim(function(x) return { x[3], x[3], x[4] } end, { 100, 300 })
    claim(function(x) return { x:narrow(1, 1, 60), x:narrow(2, 5, 9) } end, { 100, 300 })
    claim(function(x) return { x[5], x, x[6] } end, { 100, 300 })
    claim(function(x) return { x, x[6] } end, { 100, 300 })
    claim(function(x) return { x:narrow(1, 2, 1), x[2], x[{ {}, 3 }] } end, { 100, 300 })
    claim(function(x) return { x[{ { 1, 99, 2 } }], x[2], x[1] } end, { 100, 300 })
    claim(function(x) return { x[2], x[{ { 1, 99, 2 } }] } end, { 100, 300 })
    claim(function(x) return { x[{ { 2, 4 } }], x:reshape(-1), x:t()[7] } end, { 100, 300 })
  end)

  it("of more slices than the list holds", function()
    claim(function(x)
      local list = {}
      for i = 1, 60 do list[i] = x[(i * 37) % 100 + 1] end
      return list
    end, { 100, 300 })
  end)

  it("of some slices of five, in any order, leave the others zero", function()
    local function orders(list, n, visit)
      if n == 0 then return visit(list) end
      for i = 1, #list do
        local rest = {}
        for k = 1, #list do if k ~= i then rest[#rest + 1] = list[k] end end
        list.taken[n] = list[i]
        rest.taken = list.taken
        orders(rest, n - 1, visit)
      end
    end
    local one = moth.full({60, 300}, 1)
    for n = 2, 4 do
      local list = {1, 2, 3, 4, 5, taken = {}}
      orders(list, n, function(left)
        local x = moth.zeros({300, 300}, {requires_grad = true})
        local whole, loss, want = x * 1, 0, moth.zeros(300, 300)
        for k = 1, n do
          local part = left.taken[k]
          local weight = one * part
          loss = loss + (whole:narrow(1, part * 60 - 59, 60) * weight):sum()
          want:narrow(1, part * 60 - 59, 60):copy_(weight)
        end
        loss:backward()
        assert.is_true(moth.equal(want, x.grad), table.concat(left.taken, " ", 1, n))
      end)
    end
  end)

  -- How often the backward pass of these slices copies, adds and fills with zeros.
  local function work(f, shape)
    local x = moth.randn(shape or {300, 120}):requires_grad_()
    local loss = 0
    for _, v in ipairs(f(x * 1)) do loss = loss + v:sum() end
    local ops = profiler.rows_of(moth.profiler.profile(function() loss:backward() end))
    local list = {}
    for i, name in ipairs {"copy_", "zero_", "add", "strided_put", "index_sum", "clone"} do
      list[i] = ops[name] and ops[name].count or 0
    end
    return table.concat(list, " ")
  end

  it("are copied once each, and only what is left is filled", function()
    assert.equal("3 0 0 0 0 0", work(function(x) return x:split(40, {dim = 2}) end))
    assert.equal("3 0 0 0 0 0", work(function(x) return x:split(100, {dim = 1}) end))
    assert.equal("16 0 0 0 0 0", work(function(x) return x:unbind(1) end, {16, 1200}))
    for _, order in ipairs {{1, 2, 3}, {1, 3, 2}, {2, 1, 3}, {2, 3, 1}, {3, 1, 2}, {3, 2, 1}} do
      assert.equal("3 0 0 0 0 0", work(function(x)
        local list, parts = {}, x:split(100, {dim = 1})
        for i, k in ipairs(order) do list[i] = parts[k] end
        return list
      end))
    end
    for _, back in ipairs {false, true} do -- neighbours are one range, so the list does not fill
      assert.equal("40 0 0 0 0 0", work(function(x)
        local list = {}
        for i = 1, 40 do list[i] = x[back and 41 - i or i] end
        return list
      end, {40, 600}))
    end
    assert.equal("1 1 0 0 0 0", work(function(x) return {x:narrow(1, 1, 100)} end))
    assert.equal("1 2 0 0 0 0", work(function(x) return {x:narrow(1, 2, 100)} end))
    assert.equal("1 1 0 0 0 0", work(function(x) return {x:narrow(2, 3, 118)} end))
    assert.equal("2 1 0 0 0 0", work(function(x) return {x[1], x[2]} end))
    assert.equal("2 3 0 0 0 0", work(function(x) return {x[5], x[3]} end))
    assert.equal("3 2 0 0 0 0", work(function(x) return {x[5], x[3], x[4]} end))
    assert.equal("2 1 0 0 0 0", work(function(x)
      return {x:select(2, 1), x:narrow(2, 2, 60)}
    end))
    assert.equal("3 0 0 0 0 0", work(function(x)
      return x:view(300, 3, 40):permute(2, 1, 3):unbind(1)
    end))
  end)

  it("are contiguous for whoever sees them, and packed in the base's order otherwise", function()
    local function heads(x) return x:view(300, 3, 40):permute(2, 1, 3) end
    assert.equal("3 0 0 0 0 0", work(function(x) return heads(x):unbind(1) end))
    local x = moth.randn(300, 120):requires_grad_()
    local v = heads(x * 1)
    assert.is_true((moth.autograd.grad((v[1] * v[2]):sum(), {v})):is_contiguous())
    local seen
    v = heads(x * 1)
    v:register_hook(function(g) seen = g:is_contiguous() end)
    ;(v[1] * v[2]):sum():backward()
    assert.is_true(seen)
  end)

  it("are added if they overlap what is there, or if there are too many", function()
    -- the rest is filled at the first slice that is added
    assert.equal("1 1 1 0 0 0", work(function(x) return {x[1], x[1]} end))
    assert.equal("16 17 4 0 0 0", work(function(x)
      local list = {}
      for i = 1, 20 do list[i] = x[i * 2] end
      return list
    end))
  end)

  it("of small tensors, or of other layouts, are added to zeros", function()
    local small = work(function(x) return {x[1], x[2]} end, {30, 12})
    assert.equal("0", small:match "^%d+")
    assert.equal(small, work(function(x) return {x[1], x[2]} end, {128, 127}))
    assert.equal("2 1 0 0 0 0", work(function(x) return {x[1], x[2]} end, {128, 128}))
  end)

  it("of a single slice are zero around it", function()
    for _, i in ipairs { 1, 50, 100 } do
      claim(function(x) return { x[i] } end, { 100, 300 })
      claim(function(x) return { x[{ {}, i }] } end, { 300, 100 })
    end
    claim(function(x) return { x:narrow(1, 1, 100) } end, { 100, 300 })
    claim(function(x) return { x:narrow(1, 3, 0), x[9] } end, { 100, 300 })
    claim(function(x) return { x[1], x[1][1], x[2][{ { 3, 5 } }] } end, { 100, 300 })
  end)

  it("of random views", function()
    local random = math.random
    for round = 1, 16 do
      math.randomseed(round)
      local shape = { random(1, 40), random(1, 40), random(60, 70) }
      local views = {}
      for _ = 1, random(1, 5) do
        local d, how = random(1, 3), random(1, 4)
        local from = random(1, shape[d])
        local n = random(1, shape[d] - from + 1)
        views[#views + 1] = function(x)
          if how == 1 then return x:select(d, from) end
          if how == 2 then return x:permute(3, 1, 2):permute(2, 3, 1):narrow(d, from, n) end
          return how == 3 and x:narrow(d, from, n) or x:transpose(1, 3):narrow(4 - d, from, n)
        end
      end
      claim(function(x)
        local list, y = {}, x:transpose(1, 2):transpose(1, 2)
        for i, view in ipairs(views) do list[i] = view(i % 2 == 0 and y or x) end
        return list
      end, shape)
    end
  end)

  it("arrive at hooks, requested inputs and leaves", function()
    for _, device in ipairs(DEVICES) do
      local x = moth.randn(100, 300, { device = device }):requires_grad_()
      local function half(y) return { y[2], y:narrow(1, 51, 50) } end
      local want = moth.zeros(100, 300, { device = device })
      want[2] = 2
      want[{ { 51, 100 } }] = 2
      local y, seen = x * 2, nil
      y:register_hook(function(dy) seen = dy:clone() end)
      y:retain_grad()
      local v = half(y)
      ;(v[1]:sum() + v[2]:sum()):backward { retain_graph = true }
      assert.is_true(moth.equal(want, x.grad))
      assert.is_true(moth.equal(want / 2, seen))
      assert.is_true(moth.equal(want / 2, y.grad))
      x.grad = nil
      v = half(x)
      local loss = v[1]:sum() * 2 + v[2]:sum() * 2
      assert.is_true(moth.equal(want, (moth.autograd.grad(loss, x, { retain_graph = true }))))
      loss:backward()
      assert.is_true(moth.equal(want, x.grad))
      v = half(x)
      ;(v[1]:sum() * 2 + v[2]:sum() * 2):backward()
      assert.is_true(moth.equal(want * 2, x.grad))
    end
  end)

  it("are recorded by moth.capture", function()
    for _, device in ipairs(DEVICES) do
      local w = moth.randn(100, 300, { device = device }):requires_grad_()
      local function step(x)
        w.grad = nil
        local list = (w * x):split(30, { dim = 1 })
        ;(list[1] * list[2] + list[3]):sum():backward()
        return w.grad
      end
      local captured = moth.capture(step)
      for _ = 1, 4 do
        local x = moth.randn(100, 300, { device = device })
        local want = step(x):clone()
        assert.is_true(moth.equal(want, captured(x)))
      end
    end
  end)
end)
