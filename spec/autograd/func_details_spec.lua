-- moth.func, vmap and moth.autograd.functional in detail: strict in each function, one tensor or a
-- list, which argument, dimensions in and out, randomness, functional_call's refusals.

local moth = require "moth"
local fails = require("spec.support.refusals").fails

local nn, func, AF = moth.nn, moth.func, moth.autograd.functional
local none = moth.none

local function T(list) return moth.tensor(list, {dtype = moth.float64}) end

describe("strict = true", function()
  local x, y = T {1, 2}, T {3, 4}
  local function of_first(a) return (a * a * a):sum() end
  local function of_second(_, b) return (b * b * b):sum() end

  it("raises for an input on which nothing depends, first or second, in each function", function()
    local vs = {T {1, 1}, T {1, 1}}
    local rows = {
      {"jacobian", function(f, s) return AF.jacobian(f, {x, y}, {strict = s}) end},
      {"jacobian", function(f, s)
        return AF.jacobian(f, {x, y}, {strict = s, vectorize = true})
      end},
      {"hessian", function(f, s) return AF.hessian(f, {x, y}, {strict = s}) end},
      {"hessian", function(f, s)
        return AF.hessian(f, {x, y}, {strict = s, vectorize = true})
      end},
      {"vjp", function(f, s) return AF.vjp(f, {x, y}, T(1.0), {strict = s}) end},
      {"jvp", function(f, s) return AF.jvp(f, {x, y}, vs, {strict = s}) end},
      {"vhp", function(f, s) return AF.vhp(f, {x, y}, vs, {strict = s}) end},
      {"hvp", function(f, s) return AF.hvp(f, {x, y}, vs, {strict = s}) end},
    }
    for _, row in ipairs(rows) do
      for at, f in ipairs {of_second, of_first} do
        fails(("%s: no output depends on input %d, which strict = true refuses"):format(row[1], at),
          row[2], f, true)
        row[2](f, false)
      end
    end
    local _, products = AF.vjp(of_second, {x, y}, T(1.0))
    assert.same({{0, 0}, {27, 48}}, {products[1]:tolist(), products[2]:tolist()})
    local _, product = AF.jvp(of_second, {x, y}, vs)
    assert.equal(75, product:item())
    local _, h = AF.hvp(of_second, {x, y}, vs)
    assert.same({{0, 0}, {18, 24}}, {h[1]:tolist(), h[2]:tolist()})
  end)

  it("accepts functions of all inputs", function()
    local function f(a, b) return (a * a * b):sum() end
    AF.jacobian(f, {x, y}, {strict = true})
    AF.jacobian(f, {x, y}, {strict = true, vectorize = 1})
    AF.jvp(f, {x, y}, {x, y}, {strict = true})
    AF.vhp(f, {x, y}, {x, y}, {strict = true})
  end)

  it("has the same derivatives for each number of rows at a time", function()
    local want = AF.jacobian(function(a) return a:outer(a) end, x)
    for _, rows in ipairs {true, 1, 2, 3, 4, 5} do
      local got = AF.jacobian(function(a) return a:outer(a) end, x, {vectorize = rows})
      assert.is_true(got:equal(want))
    end
    for _, wrong in ipairs {0, -1, 1.5, "x"} do
      fails("bad argument 'vectorize' to 'jacobian' (true, false or a positive integer is needed",
        AF.jacobian, moth.exp, x, {vectorize = wrong})
    end
  end)

  it("or not, a function of one element is needed where it says so", function()
    fails("bad argument 'func' to 'hessian' (a function that returns one tensor of one element is "
      .. "needed; it returned f64 (2)", AF.hessian, moth.exp, x)
    fails("it returned several", AF.vhp, function(a) return a:sum(), a:sum() end, x, x)
    fails("bad argument 'func' to 'vjp' (a function is needed, got 5", AF.vjp, 5, x)
  end)
end)

describe("moth.func", function()
  local x, y = T {1, 2}, T {3, 4}

  it("takes one primal or a list for jvp, inside of a graph or not", function()
    local out, d = func.jvp(moth.square, x, T {1, 10})
    assert.same({{1, 4}, {2, 40}}, {out:tolist(), d:tolist()})
    local _, list = func.jvp(moth.mul, {x, y}, {T {1, 0}, T {0, 1}})
    assert.same({3, 2}, list:tolist())
    local leaf = T {1, 2}:requires_grad_()
    local _, along = func.jvp(moth.square, leaf, T {1, 1})
    assert.is_true(along.requires_grad)
    local _, alone = func.jvp(moth.square, x, T {1, 1})
    assert.is_false(alone.requires_grad)
    local _, first = func.jvp(moth.square, {leaf}, {T {1, 1}})
    assert.is_true(first.requires_grad)
    moth.no_grad(function()
      local _, cut = func.jvp(moth.square, {leaf}, {T {1, 1}})
      assert.is_false(cut.requires_grad)
    end)
  end)

  it("differentiates by the argument that argnums names", function()
    local function f(a, b) return (a * a * b):sum() end
    assert.same({6, 16}, func.grad(f)(x, y):tolist())
    assert.same({1, 4}, func.grad(f, 2)(x, y):tolist())
    local both = func.grad(f, {2, 1})(x, y)
    assert.same({{1, 4}, {6, 16}}, {both[1]:tolist(), both[2]:tolist()})
    local one = func.grad(f, {2})(x, y)
    assert.same({1, 4}, one[1]:tolist())
    local g, value = func.grad_and_value(f, 2)(x, y)
    assert.same({{1, 4}, 19}, {g:tolist(), value:item()})
    local grads, more, text = func.grad(function(a) return a:sum(), a * 2, "aux" end,
      {has_aux = true})(x)
    assert.same({{1, 1}, {2, 4}, "aux"}, {grads:tolist(), more:tolist(), text})
    assert.is_false(more.requires_grad)
    local j, aux = func.jacrev(function(a) return a * a, a + 1 end, {has_aux = true})(x)
    assert.same({{{2, 0}, {0, 4}}, {2, 3}}, {j:tolist(), aux:tolist()})
    local h = func.hessian(function(a, b) return (a * b * b):sum() end, 2)(x, y)
    assert.same({{2, 0}, {0, 4}}, h:tolist())
    for _, at in ipairs {0, 3, 1.5, "x"} do
      fails("bad argument 'argnums' to 'grad' (positions from 1 to 2, of the 2 arguments that came",
        func.grad(f, at), x, y)
    end
    fails("bad argument 'func' to 'grad' (a function that returns one tensor of one element is "
      .. "needed; it returned f64 (2)", func.grad(moth.exp), x)
    fails("bad argument 'argnums' to 'grad' (floating tensors, or tables of them, are needed, got "
      .. "i64 (1)", func.grad(f), moth.tensor {1LL}, y)
    fails("bad argument 'argnums' to 'grad' (has no tensors in it", func.grad(f), {}, y)
    for _, name in ipairs {"jacrev", "jacfwd"} do
      fails(("bad argument 'chunk_size' to '%s' (a positive number is needed, got 0"):format(name),
        func[name], f, {chunk_size = 0})
    end
  end)

  it("has vjp of several arguments, with tables as results", function()
    local out, back = func.vjp(function(a, b) return {sum = a + b, list = {a * b}} end, x, y)
    assert.same({4, 6}, out.sum:tolist())
    local da, db = back {sum = T {1, 0}, list = {T {0, 1}}}
    assert.same({{1, 4}, {1, 2}}, {da:tolist(), db:tolist()})
    fails("bad argument 'v' to 'vjp' (tensors in tables as func returned them are needed, got "
      .. "nil for one", back, {sum = T {1, 0}})
    fails("bad argument 'func' to 'vjp' (returned 2 values; return one tensor, or a table of them",
      func.vjp, function(a) return a, a end, x)
    fails("bad argument 'func' to 'vjp' (a function is needed, got 5", func.vjp, 5, x)
  end)
end)

describe("vmap", function()
  local x = moth.arange(6):double():view(2, 3)

  it("maps over any dimension, in and out", function()
    local function twice(a) return a * 2 end
    for _, row in ipairs {{1, 1, "2 3"}, {2, 1, "3 2"}, {-1, 1, "3 2"}, {1, 2, "3 2"},
        {2, 2, "2 3"}, {1, -1, "3 2"}, {-2, 1, "2 3"}} do
      local y = moth.vmap(twice, row[1], row[2])(x)
      assert.equal(row[3], table.concat({unpack(y.shape)}, " "))
      local want = row[3] == "2 3" and x * 2 or x:t() * 2
      assert.is_true(y:equal(want))
    end
    local y = moth.vmap(moth.mul, {1, none})(x, T {1, 10, 100})
    assert.is_true(y:equal(x * T {1, 10, 100}))
    local z = moth.vmap(moth.mul, {none, 2})(T {1, 10}, x)
    assert.is_true(z:equal((x:t() * T {1, 10})))
    local first = moth.vmap(function(a) return a * 2, a + 1 end, {out_dims = {none, 1}})(x)
    assert.same({0, 2, 4}, first:tolist())
    local p = moth.vmap(function(t) return t.a + t.b[1] end, {in_dims = {{a = 1, b = {2}}}})(
      {a = x, b = {x:t()}})
    assert.is_true(p:equal(x * 2))
  end)

  it("refuses what does not fit", function()
    local id = function(a) return a end
    fails("bad argument 'in_dims' to 'vmap' (the dimensions that are mapped over have one size, "
      .. "got 2 and 3", moth.vmap(moth.mul, {1, 2}), x, x)
    fails("bad argument 'in_dims' to 'vmap' (no tensor is mapped over", moth.vmap(id, none), x)
    fails("bad argument 'in_dims' to 'vmap' (the batch is empty", moth.vmap(id), moth.ones(0, 2))
    fails("bad argument 'in_dims' to 'vmap' (1 of them do not fit 2 values", moth.vmap(moth.mul,
      {1}), x, x)
    fails("bad argument 'in_dims' to 'vmap' (a dimension, or none, is needed for each tensor, got",
      moth.vmap(id, "x"), x)
    fails("bad argument 'chunk_size' to 'vmap' (a positive number is needed, got 0", moth.vmap, id,
      {chunk_size = 0})
    fails("bad argument 'func' to 'vmap' (must return tensors, or tables of them; it returned 5",
      moth.vmap(function() return 5 end), x)
  end)

  it("draws as randomness says: nothing, one number for all, or one for each", function()
    local function noisy(a) return a * 0 + moth.randn(3, {dtype = moth.float64}) end
    fails("random", moth.vmap(noisy), x)
    moth.manual_seed(3)
    local same = moth.vmap(noisy, {randomness = "same"})(x)
    assert.is_true(same[1]:equal(same[2]))
    moth.manual_seed(3)
    assert.is_true(same[1]:equal(noisy(x[1])))
    local different = moth.vmap(noisy, {randomness = "different"})(x)
    assert.is_false(different[1]:equal(different[2]))
    -- a function that draws nothing is not affected
    local plain = moth.vmap(function(a) return a * 2 end, {randomness = "different"})(x)
    assert.is_true(plain:equal(x * 2))
    local state = moth.get_rng_state()
    moth.vmap(moth.exp, {randomness = "same"})(x)
    assert.is_true(state:equal(moth.get_rng_state()))
    -- the batch does not matter for results that depend on no drawn number
    local both = {moth.vmap(function(a) return a * 2, moth.rand(2) end,
      {randomness = "different"})(x)}
    assert.is_true(both[1]:equal(x * 2))
    assert.is_false(both[2][1]:equal(both[2][2]))
    local drop = moth.vmap(function(a) return moth.nn.functional.dropout(a, 0.5) end,
      {randomness = "same"})(moth.ones(4, 64))
    for i = 2, 4 do assert.is_true(drop[1]:equal(drop[i])) end
  end)

  it("stacks the state of modules of one class and mode", function()
    local nets = {nn.BatchNorm1d(2), nn.BatchNorm1d(2)}
    nets[2].weight.requires_grad = false
    nets[1].weight.requires_grad = false
    local params, buffers = func.stack_module_state(nets)
    assert.same({2, 2}, {unpack(params.weight.shape)})
    assert.is_false(params.weight.requires_grad)
    assert.is_true(params.bias.requires_grad and params.bias.is_leaf)
    assert.same({2}, {unpack(buffers.num_batches_tracked.shape)})
    fails("bad argument 'models' to 'stack_module_state' (a list of modules is needed, got none",
      func.stack_module_state, {})
    fails("number 2 is of another class, or mode, than the first", func.stack_module_state,
      {nn.Linear(1, 1), nn.ReLU()})
    fails("number 2 is of another class, or mode, than the first", func.stack_module_state,
      {nn.Linear(1, 1), nn.Linear(1, 1):eval()})
    fails("not all of them have 'bias'", func.stack_module_state,
      {nn.Linear(1, 1), nn.Linear(1, 1, false)})
  end)
end)

describe("functional_call", function()
  local call = func.functional_call
  local function tied()
    local net = nn.Module()
    net.a, net.b = nn.Linear(2, 2, false), nn.Linear(2, 2, false)
    net.b.weight = net.a.weight
    function net:forward(x) return self.b(self.a(x)) end
    return net
  end

  it("replaces a tied tensor under each name, or only under the given one", function()
    local net, x = tied(), moth.ones(1, 2)
    local zero = moth.zeros(2, 2)
    local own = net.a.weight
    assert.equal(0, call(net, {["a.weight"] = zero}, x):abs():sum():item())
    assert.equal(own, net.a.weight)
    local eye = moth.eye(2)
    local y = call(net, {["a.weight"] = eye}, x, {tie_weights = false})
    assert.is_true(y:allclose(net.b(x)))
    assert.is_true(call(net, {["a.weight"] = eye}, x):equal(x))
    fails("is tied to another name, for which another tensor is given", call, net,
      {["a.weight"] = eye, ["b.weight"] = zero}, x)
    call(net, {["a.weight"] = eye, ["b.weight"] = zero}, x, {tie_weights = false})
    call(net, {["a.weight"] = eye, ["b.weight"] = eye}, x)
  end)

  it("checks names, and restores the tensors after an error", function()
    local net, x = nn.Linear(2, 3), moth.ones(1, 2)
    local weight = net.weight
    fails("Linear has no parameter or buffer 'weigth'; did you mean 'weight'", call, net,
      {weigth = weight}, x)
    fails("'bias' is missing (strict)", call, net, {weight = weight}, x, {strict = true})
    fails("a table of names and tensors is needed, got 5 under 'weight'", call, net, {weight = 5},
      x)
    fails("'weight' is given twice", call, net, {{weight = weight}, {weight = weight}}, x)
    fails("is needed, got 5 in the list", call, net, {{weight = weight}, 5}, x)
    fails("bad argument 'module' to 'functional_call' (a module is needed, got 5", call, 5, {}, x)
    fails("bad argument 'kwargs' to 'functional_call' (a table is needed, got 5", call, net, {}, x,
      {kwargs = 5})
    fails("in Linear: bad argument 'input' to 'linear'", call, net, {weight = moth.ones(3, 7)}, x)
    assert.equal(weight, net.weight)
    local y = call(net, {{weight = moth.ones(3, 2)}, {bias = moth.zeros(3)}}, {x}, {strict = true})
    assert.same({{2, 2, 2}}, y:tolist())
  end)

  it("passes lists and named arguments", function()
    local net = nn.GRUCell(2, 3)
    local x, h = moth.ones(1, 2), moth.ones(1, 3)
    assert.is_true(call(net, {}, {x, h}):equal(net(x, h)))
    assert.is_true(call(net, {}, x, {kwargs = {hx = h}}):equal(net(x, h)))
  end)
end)

describe("a parametrization", function()
  local parametrize = nn.utils.parametrize
  it("without right_inverse can follow another one, and its original is kept", function()
    local Double = nn.class("Double", nn.Module)
    function Double:forward(x) return self and x * 2 end
    local net = nn.Linear(2, 2)
    local original = net.weight:detach():clone()
    parametrize.register_parametrization(net, "weight", Double())
    parametrize.register_parametrization(net, "weight", Double())
    assert.is_true(net.weight:equal(original * 4))
    assert.is_true(net.parametrizations.weight.original:equal(original))
    assert.is_true(parametrize.is_parametrized(net, "weight"))
    assert.is_false(parametrize.is_parametrized(net, "bias"))
    assert.is_false(parametrize.is_parametrized(nn.ReLU()))
    assert.is_false(parametrize.is_parametrized(5))
    parametrize.remove_parametrizations(net, "weight", {leave_parametrized = false})
    assert.is_true(net.weight:equal(original))
    assert.is_false(parametrize.is_parametrized(net))
    fails("'weight' of a Linear is not parametrized",
      parametrize.remove_parametrizations, net, "weight")
    fails("bad argument 'parametrization' to 'register_parametrization' (a module is needed",
      parametrize.register_parametrization, net, "weight", 5)
    fails("bad argument 'f' to 'cached' (a function is needed, got 5", parametrize.cached, 5)
  end)

  it("is computed once in nested cached calls, and again after them or after an error", function()
    local Count, count = nn.class("Count", nn.Module), 0
    function Count:forward(x) -- luacheck: ignore self
      count = count + 1
      return x * 1
    end
    local net = nn.Linear(2, 2)
    parametrize.register_parametrization(net, "weight", Count())
    count = 0
    parametrize.cached(function()
      local _, _ = net.weight, net.weight
      parametrize.cached(function() local _ = net.weight end)
      local _ = net.weight
    end)
    assert.equal(1, count)
    local _, _ = net.weight, net.weight
    assert.equal(3, count)
    pcall(parametrize.cached, function()
      local _ = net.weight
      error "mine"
    end)
    _, _ = net.weight, net.weight
    assert.equal(6, count)
  end)
end)

describe("a field of a module", function()
  it("with a class's object that holds modules causes no warning, a plain table does", function()
    local lines, warn = {}, moth.warn
    moth.warn = function(text) lines[#lines + 1] = text end
    local ok, problem = pcall(function()
      local Holder = moth.class "Holder"
      local net, holder = nn.Module(), Holder()
      holder.part = nn.Linear(1, 1)
      net.holder = holder
      net:parameters()
      assert.equal(0, #lines)
      net.list = {nn.Linear(1, 1)}
      net:parameters()
      assert.equal(1, #lines)
    end)
    moth.warn = warn
    assert(ok, problem)
  end)
end)
