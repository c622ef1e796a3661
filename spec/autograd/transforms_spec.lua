--- transforms_spec.lua -- moth.func: derivatives of functions as functions, with respect to tensors
-- and tables of tensors, also nested.

local moth = require "moth"

local nn, F, func = moth.nn, moth.nn.functional, moth.func

local function same(want, got)
  assert.is_true(moth.allclose(moth.tensor(want), got), tostring(got))
end
local function cube(x) return (x ^ 3):sum() end

describe("moth.func.grad", function()
  it("returns the gradient as a function, to any order", function()
    local x = moth.tensor {1, 2}
    same({3, 12}, func.grad(cube)(x))
    local second = func.grad(function(y) return func.grad(cube)(y):sum() end)
    same({6, 12}, second(x))
    assert.is_false(second(x).requires_grad)
    assert.is_nil(x.grad)
  end)

  it("nests, also with tensors from outside", function()
    local outer = func.grad(function(a)
      return func.grad(function(b) return a * a * b * b end)(moth.tensor(3))
    end)
    same(12, outer(moth.tensor(1)))              -- d/da 2 a^2 b
  end)

  it("continues the caller's graph if requested", function()
    local x = moth.tensor({1, 2}, {requires_grad = true})
    func.grad(cube)(x):sum():backward()
    same({6, 12}, x.grad)
    assert.is_false(moth.no_grad(func.grad(cube), x).requires_grad)
  end)

  it("differentiates by tables of parameters, and does not change the module", function()
    local net, x, y = nn.Linear(2, 1), moth.randn(4, 2), moth.randn(4, 1)
    local params = {}
    for name, p in net:named_parameters() do params[name] = p:detach() end
    local grads, loss = func.grad_and_value(function(given)
      return F.mse_loss(func.functional_call(net, given, x), y)
    end)(params)
    F.mse_loss(net(x), y):backward()
    assert.is_true(moth.equal(net.weight.grad, grads.weight))
    assert.is_true(moth.equal(net.bias.grad, grads.bias))
    same(F.mse_loss(net(x), y):item(), loss)
  end)

  it("takes argnums, and returns has_aux values", function()
    local function f(x, y) return (x * y):sum(), x + y, "note" end
    local grads, sum, note = func.grad(f, {argnums = {2, 1}, has_aux = true})(moth.tensor {1},
      moth.tensor {5})
    same({1}, grads[1])
    same({5}, grads[2])
    same({6}, sum)
    assert.equal("note", note)
    same({1}, (func.grad(f, 2)(moth.tensor {1}, moth.tensor {5})))
  end)

  it("is zero if the result does not depend on the argument", function()
    same({0, 0}, func.grad(function(x) return moth.ones(1) + 0 * x:detach():sum() end)(
      moth.tensor {1, 2}))
  end)

  it("raises for arguments without gradients, and restores its state", function()
    local x = moth.tensor {1, 2}
    assert.has_error_like(function() func.grad(moth.exp)(x) end,
      "'func' to 'grad' %(a function that returns one tensor of one element is needed; it "
        .. "returned f32 %(2%)")
    assert.has_error_like(function() func.grad(cube)(moth.tensor {1LL}) end,
      "'argnums' to 'grad' %(floating tensors, or tables of them, are needed, got i64 %(1%)")
    assert.has_error_like(function() func.grad(cube)({}) end, "has no tensors in it")
    assert.has_error_like(function() func.grad(cube, 2)(x) end, "positions from 1 to 1, of the 1 ")
    assert.has_error_like(function() func.grad(3) end, "'func' to 'grad' %(a function is needed")
    assert.is_false(func.grad(cube)(x).requires_grad)
  end)
end)

describe("moth.func", function()
  it("has jacobians and Hessians, also of tables and nested", function()
    local x = moth.tensor {1, 2}
    same({{2, 0}, {0, 4}}, func.jacrev(function(v) return v * v end)(x))
    same({{6, 0}, {0, 12}}, func.hessian(cube)(x))
    same({{6, 0}, {0, 12}}, func.jacfwd(func.jacrev(cube))(x))
    local h = func.hessian(function(p) return (p.a * p.b * p.b):sum() end) {a = x, b = x}
    same({{2, 0}, {0, 4}}, h.a.b)
    same({{0, 0}, {0, 0}}, h.a.a)
    local J, aux = func.jacrev(function(p) return p.a * 2, p.b end, {has_aux = true}) {a = x, b = x}
    same({{2, 0}, {0, 2}}, J.a)
    same({{0, 0}, {0, 0}}, J.b)
    same({1, 2}, aux)
  end)

  it("has vjp, whose function may be called again, and jvp", function()
    local x, y = moth.tensor {1, 2}, moth.tensor {3, 4}
    local out, pull = func.vjp(function(a, b) return {p = a * b, q = a:sum()} end, x, y)
    same({3, 8}, out.p)
    for _ = 1, 2 do
      local dx, dy = pull {q = moth.tensor(10), p = moth.tensor {1, 0}}
      same({13, 10}, dx)
      same({1, 0}, dy)
    end
    assert.has_error_like(function() pull(x) end,
      "'v' to 'vjp' %(tensors in tables as func returned them are needed")
    assert.has_error_like(function()
      func.vjp(function(a, b) return a * b, a + b end, x, y)
    end, "'func' to 'vjp' %(returned 2 values; return one tensor, or a table of them")
    local value, along = func.jvp(moth.mul, {x, y}, {moth.ones(2), moth.zeros(2)})
    same({3, 8}, value)
    same({3, 4}, along)
  end)

  it("works in a captured function", function()
    local step = moth.capture(function(x) return func.grad(cube)(x) end)
    for k = 1, 4 do same({3 * k * k}, step(moth.full({1}, k))) end
  end)
end)

describe("moth.func.vmap", function()
  it("computes gradients of each sample, with tables, as torch.func does", function()
    local net, x, y = nn.Linear(3, 2), moth.randn(5, 3), moth.tensor {1LL, 2LL, 1LL, 1LL, 2LL}
    local params = {}
    for name, p in net:named_parameters() do params[name] = p:detach() end
    local function loss(p, one, target)
      return F.cross_entropy(func.functional_call(net, p, {one:unsqueeze(1)}), target:unsqueeze(1))
    end
    local grads = func.vmap(func.grad(loss), {moth.none, 1, 1})(params, x, y)
    for i = 1, 5 do
      net:zero_grad()
      F.cross_entropy(net(x[{{i, i}}]), y[{{i, i}}]):backward()
      assert.is_true(moth.allclose(net.weight.grad, grads.weight[i]))
      assert.is_true(moth.allclose(net.bias.grad, grads.bias[i]))
    end
  end)

  it("takes dimensions of arguments and results, and several results", function()
    local x, y = moth.arange(6):view(2, 3):float(), moth.tensor {10, 20}
    local sums, list = moth.vmap(function(a, b, k) return a * b + k, {n = a:sum(), y = b} end,
      {in_dims = {2, moth.none, moth.none}, out_dims = {2, {n = 1, y = moth.none}}})(x, y, 1)
    same({{1, 11, 21}, {61, 81, 101}}, sums)
    same({3, 5, 7}, list.n)
    assert.equal(y, list.y)
    local outer = moth.vmap(moth.vmap(moth.mul, {1, moth.none}), {moth.none, 1})
    same({{2, 3}, {4, 6}}, outer(moth.tensor {2, 3}, moth.tensor {1, 2}))
  end)

  it("passes gradients, and draws one number for all samples or one for each", function()
    local x = moth.ones(3, 2):requires_grad_()
    moth.vmap(function(row) return (row ^ 2):sum() end)(x):sum():backward()
    same({{2, 2}, {2, 2}, {2, 2}}, x.grad)
    local function draw(row) return row + moth.rand(1) end
    local each = moth.vmap(draw, {randomness = "different"})(moth.zeros(3, 1))
    assert.is_false(moth.equal(each[1], each[2]))
    each = moth.vmap(draw, {randomness = "same"})(moth.zeros(3, 1))
    assert.is_true(moth.equal(each[1], each[3]))
  end)

  it("runs stacked models that train separately", function()
    local models, x = {nn.Linear(2, 1), nn.Linear(2, 1), nn.Linear(2, 1)}, moth.randn(4, 2)
    local params, buffers = func.stack_module_state(models)
    assert.is_nil(next(buffers))
    local forward = func.vmap(function(p) return func.functional_call(models[1], p, x) end)
    local y = forward(params)
    for i, model in ipairs(models) do assert.is_true(moth.allclose(model(x), y[i])) end
    y:pow(2):sum():backward()
    models[2](x):pow(2):sum():backward()
    assert.is_true(moth.allclose(models[2].weight.grad, params.weight.grad[2]))
    assert.is_nil(models[1].weight.grad)
  end)

  it("raises for sizes that differ and for results that it cannot stack", function()
    local x = moth.ones(3, 2)
    assert.has_error_like(function() moth.vmap(moth.add)(x, moth.ones(2)) end,
      "'in_dims' to 'vmap' %(the dimensions that are mapped over have one size, got 3 and 2%)")
    assert.has_error_like(function() moth.vmap(moth.add, {1})(x, x) end, "1 of them do not fit 2 ")
    assert.has_error_like(function() moth.vmap(moth.exp)(3) end, "no tensor is mapped over")
    assert.has_error_like(function() moth.vmap(moth.exp)(moth.ones(0)) end, "the batch is empty")
    assert.has_error_like(function() moth.vmap(function() return 3 end)(x) end,
      "must return tensors, or tables of them; it returned 3")
    assert.has_error_like(function() func.stack_module_state {nn.Linear(1, 1), nn.ReLU()} end,
      "number 2 is of another class, or mode, than the first")
  end)
end)
