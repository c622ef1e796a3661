-- In-place writes, through views and views of views: history, versions, and errors.

local moth = require "moth"
local bind = require "moth.binding.bind"
local profiler = require "spec.support.profiler"
local registry = require "spec.support.registry"
local cuda = require "spec.support.cuda"

local function leaf(value)
  return moth.tensor(value, {dtype = moth.float64, requires_grad = true})
end

describe("an in-place op", function()
  it("returns its tensor and rewrites its history", function()
    local x = leaf{1, 2, 3}
    local y = x * 2
    local same = y:mul_(3)
    assert.is_true(rawequal(same, y))
    y:sum():backward()
    assert.same({6, 6, 6}, x.grad:tolist())
  end)

  it("has gradients for both factors although one was overwritten", function()
    local x, w = leaf{1, 2}, leaf{5, 7}
    local y = x * 1
    y:mul_(w)
    y:sum():backward()
    assert.same({5, 7}, x.grad:tolist())
    assert.same({1, 2}, w.grad:tolist())
  end)

  it("through a view changes the base and its other views", function()
    local x = leaf{{1, 2}, {3, 4}}
    local b = x * 1
    local row, sibling = b[1], b:t()
    row:mul_(10)
    assert.same({{10, 20}, {3, 4}}, b:tolist())
    sibling:sum():backward()
    assert.same({{10, 10}, {1, 1}}, x.grad:tolist())
  end)

  it("through a view of a view", function()
    local x = leaf{{1, 2, 3}, {4, 5, 6}}
    local b = x * 1
    b[2][{{1, 2}}]:mul_(10)
    b:sum():backward()
    assert.same({{1, 1, 1}, {10, 10, 1}}, x.grad:tolist())
  end)

  it("writes by index, with gradients for base and value", function()
    local x, v = leaf{1, 2, 3, 4}, leaf{10, 20}
    local b = x * 2
    b[{{2, 3}}] = v
    b:mul(b):sum():backward()
    assert.same({8, 0, 0, 32}, x.grad:tolist())
    assert.same({20, 40}, v.grad:tolist())
  end)

  it("writes to a transposed view, with second derivatives", function()
    local function f(x, v)
      local b = x * x
      b:t()[2] = v * v
      b[1]:mul_(x[2])
      return b * b
    end
    local x, v = moth.randn(3, 3, {dtype = moth.float64}), moth.randn(3, {dtype = moth.float64})
    x.requires_grad, v.requires_grad = true, true
    assert.is_true(moth.autograd.gradcheck(f, {x, v}))
    assert.is_true(moth.autograd.gradgradcheck(f, {x, v}))
  end)

  it("makes older views require gradients if the base does so now", function()
    local b = moth.zeros(3, {dtype = moth.float64})
    local view = b[{{2, 3}}]
    local w = leaf{1, 2, 3}
    b:add_(w)
    assert.is_true(view.requires_grad)
    local doubled = view * 2
    doubled:sum():backward()
    assert.same({0, 2, 2}, w.grad:tolist())
  end)

  it("makes older views outdated, which then follow their base once", function()
    local p = moth.ones(3):requires_grad_()
    local base = moth.zeros(2, 3)
    local view, other = base[1], base[2]
    base:add_(p)
    assert.is_true(other.requires_grad)
    base:detach_()
    assert.is_false(view.requires_grad) -- it follows its base now
    assert.is_nil(view.grad_fn)
    assert.is_true(other.requires_grad)

    local x = moth.ones(2, 3):requires_grad_()
    base = x * 1
    view = base[1]
    base:mul_(2)
    local calls, node = 0, view.grad_fn
    view:register_hook(function() calls = calls + 1 end)
    assert.is_true(node == view.grad_fn)
    ;(view * 3):sum():backward()
    assert.equal(1, calls)
    assert.same({{6, 6, 6}, {0, 0, 0}}, x.grad:tolist())
  end)

  it("that changes the shape has the view's shape, strides and gradient", function()
    local forms = {
      t = {}, transpose = {1, 2}, swapaxes = {2, 1}, swapdims = {-1, 1}, squeeze = {},
      unsqueeze = {2}, as_strided = {{2, 2}, {1, 2}},
    }
    for name, arguments in pairs(forms) do
      local size = name == "squeeze" and {1, 6} or {2, 3}
      local x = moth.arange(6):float():reshape(size)
      local want = x[name](x, unpack(arguments))
      local y = x:clone()
      assert.is_true(y[name .. "_"](y, unpack(arguments)) == y)
      assert.same({want:size(), want:stride()}, {y:size(), y:stride()}, name)
      assert.is_true(moth.equal(want, y))

      local a, b = x:clone():requires_grad_(), x:clone():requires_grad_()
      local weight = moth.arange(want:numel()):float():reshape(want:size())
      local v = a * 1
      ;(v[name](v, unpack(arguments)) * weight):sum():backward()
      v = b * 1
      v[name .. "_"](v, unpack(arguments))
      ;(v * weight):sum():backward()
      assert.is_true(moth.equal(a.grad, b.grad), name)

      moth.no_grad(function() -- a history matches its tensor in this mode too
        v = a * 1
        v[name .. "_"](v, unpack(arguments))
      end)
      assert.same(want:size(), v:size())
      assert.is_false(v.requires_grad)
      v = b * 1
      moth.no_grad(function() v[name .. "_"](v, unpack(arguments)) end)
      b.grad = nil
      ;(v * weight):sum():backward()
      assert.is_true(moth.equal(a.grad, b.grad), name)
    end
  end)

  it("names op, argument and both versions when a saved tensor changed", function()
    local x = leaf{1, 2}
    local y = x * 1
    local z = y * y
    moth.no_grad(function() y:add_(1) end)
    local ok, message = pcall(function() z:sum():backward() end)
    assert.is_false(ok)
    assert.matches("mul", message)
    assert.matches("input", message)
    assert.matches("version 0", message)
    assert.matches("version 1", message)
  end)

  it("on an index that a gradient reads raises in the backward pass", function()
    local function derivative(f)
      local x, index = moth.randn(2, 3):requires_grad_(), moth.ones(2, 3):long()
      local y = f(x, index)
      index:fill_(2)
      y:sum():backward()
      return x.grad:sum(2):tolist()
    end
    local seen = { gather = function(x, i) return x:gather(1, i) end,
                   scatter = function(x, i) return x:scatter(1, i, 5) end }
    for name, f in pairs(seen) do
      assert.has_error_like(function() return derivative(f) end, "bad argument 'index' to '" .. name
        .. "' .*saved for the gradient at version 0, was changed in place .*"
        .. "set_detect_anomaly%(true%) finds the line")
      assert.equal("E_VERSION", moth.errcode())
    end
    assert.same({ 18, 0 }, derivative(function(x, i) return x:index_select(1, i:flatten()) end))
  end)

  it("of zero elements changes no version", function()
    local x = moth.zeros(0)
    local v = x._version
    x:add_(1)
    assert.equal(v, x._version)
  end)

  it("copies a source that overlaps the target", function()
    local x = moth.arange(6)
    x[{{2, 6}}] = x[{{1, 5}}]
    assert.same({0, 0, 1, 2, 3, 4}, x:tolist())
    local m = moth.tensor{{1, 2}, {3, 4}}
    m:add_(m:t())
    assert.same({{2, 5}, {5, 8}}, m:tolist())
  end)

  it("may write a tensor to another part of itself", function()
    for _, device in ipairs(cuda.here and {"cpu", "cuda"} or {"cpu"}) do
      local at = moth.tensor{{2LL, 3LL, 1LL}}:to(device)
      local function written(name, index)
        local x = moth.tensor{{1, 2, 3}}:to(device)
        return x[name](x, 2, index, x):tolist()[1]
      end
      assert.same({3, 1, 2}, written("scatter_", at))
      assert.same({4, 3, 5}, written("scatter_add_", at))
      assert.same({4, 3, 5}, written("index_add_", at[1]))
      assert.same({3, 1, 2}, written("index_copy_", at[1]))
    end
  end)

  it("writes to a dtype of the same kind and raises for a lower kind", function()
    local x = moth.ones(2)
    x:add_(moth.ones(2, {dtype = moth.float64}))
    assert.same({2, 2}, x:tolist())
    assert.equal(moth.float32, x.dtype)
    local i = moth.tensor({1, 2}, {dtype = moth.int64})
    assert.has_error_like(function() i:add_(moth.ones(2)) end, "cannot be written")
    assert.same({1, 2}, i:tolist())
  end)
end)

describe("under grad mode", function()
  it("a leaf that needs a gradient cannot be written, and neither can its views", function()
    local x = leaf{1, 2}
    assert.has_error_like(function() x:add_(1) end, "leaf")
    assert.has_error_like(function() x[1] = 3 end, "leaf")
    assert.has_error_like(function() x:view(2):mul_(2) end, "leaf")
    moth.no_grad(function() x:add_(1) end)
    assert.same({2, 3}, x:tolist())
  end)

  it("overlapping elements cannot be written in any mode", function()
    local x = moth.zeros(1):expand(3)
    assert.has_error_like(function() x:add_(1) end, "overlap")
    moth.no_grad(function()
      assert.has_error_like(function() x:add_(1) end, "overlap")
    end)
  end)

  it("one of several views of an op cannot be written", function()
    local b = leaf{{1, 2}, {3, 4}} * 1
    local rows = b:unbind()
    assert.has_error_like(function() rows[1]:add_(1) end, "several views")
  end)

  it("a view made under no_grad cannot be written", function()
    local b = leaf{1, 2} * 1
    local view = moth.no_grad(function() return b[{{1, 1}}] end)
    assert.has_error_like(function() view:add_(1) end, "no_grad")
  end)

  it("an output of a Function cannot be written", function()
    local Same = moth.nn.class("Same", moth.autograd.Function)
    function Same.forward(_, x) return x * 1 end
    function Same.backward(_, dy) return dy end
    local y = Same.apply(leaf{1, 2})
    assert.has_error_like(function() y:add_(1) end, "Function")
  end)
end)

describe("inplace = true", function()
  local F = moth.nn.functional

  it("writes the input, returns it and has the gradient of the plain call", function()
    local x, plain = leaf{-1, 0.5, 2}, leaf{-1, 0.5, 2}
    local y = x * 1
    assert.is_true(rawequal(F.silu(y, {inplace = true}), y))
    assert.same(F.silu(plain):tolist(), y:tolist())
    y:sum():backward()
    F.silu(plain):sum():backward()
    assert.same(plain.grad:tolist(), x.grad:tolist())
  end)

  it("is the argument after the others", function()
    local x = moth.tensor{-2, 3}
    F.leaky_relu(x, 0.5, true)
    assert.same({-1, 3}, x:tolist())
    F.relu(x, false)
    assert.same({-1, 3}, x:tolist())
  end)

  it("raises for a leaf that needs a gradient", function()
    assert.has_error_like(function() F.relu(leaf{1, 2}, true) end, "leaf")
  end)
end)

describe("out", function()
  it("receives the result and is returned", function()
    local y = moth.zeros(2)
    local r = moth.add(moth.ones(2), moth.ones(2), {out = y})
    assert.is_true(rawequal(r, y))
    assert.same({2, 2}, y:tolist())
  end)

  it("of the wrong shape or kind raises and is not changed", function()
    local y = moth.zeros(3)
    local x = moth.ones(2)
    assert.has_error_like(function() moth.add(x, x, {out = y}) end, "does not fit")
    assert.same({0, 0, 0}, y:tolist())
  end)

  it("that overlaps any input receives the same values as elsewhere", function()
    local x = moth.arange(6)
    moth.add(x:narrow(1, 1, 5), 10, {out = x:narrow(1, 2, 5)})
    assert.same({0, 10, 11, 12, 13, 14}, x:tolist())
    local m = moth.tensor{{1, 2}, {3, 4}}
    moth.neg(m:t(), {out = m})
    assert.same({{-1, -3}, {-2, -4}}, m:tolist())
  end)

  it("is named in errors, and the first argument in those of the op in place", function()
    local a, leaf2 = moth.ones(2), moth.ones(2, {requires_grad = true})
    local no_gradients = "bad argument 'out' to 'add' (gradients cannot flow through `out`; use "
      .. "no_grad)"
    local rows = {
      {"bad argument 'out' to 'add' (the result of 'add' is (2), which does not fit f32 (3))",
        moth.add, a, a, {out = moth.empty(3)}},
      {"bad argument 'input' to 'add_' (the result of 'add' is (3, 2), which does not fit f32 "
        .. "(2))", a.add_, a, moth.ones(3, 2)},
      {no_gradients, moth.add, a, a, {out = leaf2}},
      {no_gradients, moth.add, a, a, {out = leaf2 * 1}},
      {no_gradients, moth.add, leaf2, a, {out = moth.empty(2)}},
      {"bad argument 'out' to 'add' (f32 (2) cannot be written in place: its elements overlap "
        .. "(as after expand); clone it first)", moth.add, a, a, {out = moth.ones(1):expand(2)}},
      {"bad argument 'out' to 'add' (the result is f32 and cannot be written into i64 (2))",
        moth.add, a, a, {out = moth.empty(2):long()}},
      {"bad argument 'input' to 'div_' (the result is f32 and cannot be written into i64 (2))",
        a.div_, a:long(), 2},
    }
    for _, row in ipairs(rows) do
      local ok, problem = pcall(unpack(row, 2))
      assert.is_false(ok)
      assert.is_truthy(tostring(problem):find(row[1], 1, true), tostring(problem))
    end
    moth.no_grad(function() moth.add(a, a, {out = leaf2}) end)
    assert.same({2, 2}, leaf2:tolist())
  end)

  it("has no gradients", function()
    local x = leaf{1, 2}
    assert.has_error_like(function()
      moth.add(x, x, {out = moth.zeros(2, {dtype = moth.float64})})
    end, "out")
  end)
end)

describe("a write in place", function()
  local function I(values) return moth.tensor(values):long() end
  local function clones(f) return profiler.count(moth.profiler.profile(f), "clone") end

  it("copies an operand only if the write changes it too early", function()
    local x, other = moth.arange(10):float(), moth.ones(3)
    local function part(first) return x:narrow(1, first, 3) end
    assert.equal(0, clones(function() part(1):add_(part(4)) end)) -- they touch
    assert.equal(0, clones(function() part(4):add_(part(1)) end))
    assert.equal(1, clones(function() part(1):add_(part(3)) end))
    assert.equal(1, clones(function() part(3):add_(part(1)) end))
    assert.equal(0, clones(function() part(1):add_(part(1)) end))
    assert.equal(0, clones(function() part(1):add_(other) end))
    local y = moth.ones(3):requires_grad_() * 1
    assert.equal(0, clones(function() y:add_(other) end))
    assert.equal(0, clones(function() y:add_(other:requires_grad_()) end))
    local z = moth.ones(6):requires_grad_() * 1 -- the gradient of add reads no operand
    assert.equal(0, clones(function() z:narrow(1, 1, 3):add_(z:narrow(1, 4, 3)) end))
    assert.is_true(clones(function() z:narrow(1, 1, 3):mul_(z:narrow(1, 4, 3)) end) > 0)
  end)

  it("that raises changes neither version nor history", function()
    local x = moth.ones(2, 3):requires_grad_()
    local y = x * 1
    local z = y * y -- reads y in the backward pass
    local node, version = y.grad_fn, y._version
    local calls = {
      function() y:index_add_(1, I {9}, moth.ones(1, 3)) end,
      function() y[1][I {9}] = 1 end,
      function() y:scatter_(1, I {{9}}, moth.ones(1, 1)) end,
      function() y:add_(moth.ones(4)) end,
      function() y:index_fill_(1, I {7}, 0) end,
    }
    for i, call in ipairs(calls) do
      assert.is_false((pcall(call)), "call " .. i)
      assert.equal(version, y._version, "call " .. i)
      assert.is_true(node == y.grad_fn, "call " .. i)
    end
    z:sum():backward()
    assert.same({{2, 2, 2}, {2, 2, 2}}, x.grad:tolist())
  end)

  it("is refused for a view of one of several views, or of one made under no_grad", function()
    local x = moth.ones(2, 3):requires_grad_()
    local y = x * 1
    local list = {y:unbind()[1]:view(3, 1), y:split(1)[2][1],
      moth.no_grad(function() return y[1] end):view(3)}
    for i, view in ipairs(list) do
      assert.is_false((pcall(view.mul_, view, 2)), "view " .. i)
    end
  end)

  it("has the values and gradients of the op itself, for each op of the registry", function()
    local count = 0
    for _, op in ipairs(registry.ops()) do
      local plain = op.derived and op.grad and not op.view and not op.random
        and bind.ops[op.name:sub(1, -2)]
      for _, example in ipairs(plain and op.examples or {}) do
        local leaves
        local function arguments()
          leaves = {}
          return registry.map(example.arguments(), function(x)
            if not registry.isfloat(x) then return x end
            moth.manual_seed(#leaves + 5)
            local given = moth.rand(x:size()):mul(0.5):add(0.25):to(x.dtype)
            leaves[#leaves + 1] = given:requires_grad_()
            return given
          end)
        end
        local function run(f)
          local list = arguments()
          list[1] = list[1] * 1
          local ok, y = pcall(f, unpack(list, 1, list.n))
          if not ok or not moth.is_tensor(y) or not y.requires_grad then return end
          return y, {moth.autograd.grad((y * 1.5):sum(), leaves, {allow_unused = true})}
        end
        local want, want_grads = run(plain)
        local got, got_grads = run(op.fn)
        if want and got and want.dtype == got.dtype then
          count = count + 1
          local text = op.name .. "(" .. example.code .. ")"
          assert.is_true(moth.allclose(want, got, {equal_nan = true, rtol = 0, atol = 0}), text)
          for i = 1, #leaves do
            local a, b = want_grads[i], got_grads[i]
            assert.equal(moth.is_tensor(a), moth.is_tensor(b), text)
            assert.is_true(not moth.is_tensor(a) or moth.allclose(a, b, {equal_nan = true}), text)
          end
        end
      end
    end
    assert.is_true(count > 60, count)
  end)
end)
