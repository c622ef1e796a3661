-- Sparse gradients: the gradient of an embedding table, the ops that accept it, and the steps of
-- optimizers, compared with PyTorch's.

local moth = require "moth"
local cuda = require "spec.support.cuda"
local golden = require "spec.support.golden"

local nn, F, optim = moth.nn, moth.nn.functional, moth.optim

local function ints(list) return moth.tensor(list, {dtype = moth.int64}) end

-- A table of n vectors of 2 elements, its lookup, and its gradient.
local function looked_up(list, options, weight)
  weight = weight or moth.arange(8):float():view(4, 2):requires_grad_()
  options = options or {}
  options.sparse = true
  F.embedding(ints(list), weight, options):sum():backward()
  return weight.grad, weight
end

local function refuses(text, f)
  assert.has_error_like(f, (text:gsub("%p", "%%%0")))
end

describe("the gradient of a table with sparse = true", function()
  it("contains only the rows that were used", function()
    local grad = looked_up {3, 1, 3}
    assert.is_true(grad.is_sparse)
    assert.equal(moth.sparse_coo, grad.layout)
    assert.same({4, 2}, {unpack(grad.shape)})
    assert.same({{3, 1, 3}}, grad:_indices():tolist())
    assert.same({{1, 1}, {1, 1}, {1, 1}}, grad:_values():tolist())
    assert.equal(3, grad:_nnz())
    assert.same({{1, 1}, {0, 0}, {2, 2}, {0, 0}}, grad:to_dense():tolist())
  end)

  it("is summed by row when coalesced", function()
    local grad = looked_up {3, 1, 3}
    assert.is_false(grad:is_coalesced())
    local sum = grad:coalesce()
    assert.is_true(sum:is_coalesced())
    assert.same({{1, 3}}, sum:indices():tolist())
    assert.same({{1, 1}, {2, 2}}, sum:values():tolist())
    assert.equal(sum, sum:coalesce())
    refuses("coalesce() first", function() return grad:indices() end)
    refuses("coalesce() first", function() return grad:values() end)
  end)

  it("is 0 for padding", function()
    local grad = looked_up({3, 1}, {padding_idx = 3})
    assert.same({{1, 1}, {0, 0}, {0, 0}, {0, 0}}, grad:to_dense():tolist())
  end)

  it("accumulates: rows are appended, and summed when there are more than the table has",
  function()
    local _, w = looked_up {3, 1}
    local grad = looked_up({1}, nil, w)
    assert.same({{3, 1, 1}}, grad:_indices():tolist())
    grad = looked_up({2, 3}, nil, w)
    assert.is_true(grad:is_coalesced())
    assert.same({{1, 2, 3}}, grad:indices():tolist())
    assert.same({{2, 2}, {1, 1}, {2, 2}}, grad:values():tolist())
  end)

  it("becomes dense together with a dense one, in either order", function()
    for _, first in ipairs {"sparse", "dense"} do
      local w = moth.ones(4, 2):requires_grad_()
      local function dense() w:sum():backward() end
      if first == "dense" then dense() end
      looked_up({2, 2}, nil, w)
      if first == "sparse" then dense() end
      assert.is_false(w.grad.is_sparse)
      assert.same({{1, 1}, {3, 3}, {1, 1}, {1, 1}}, w.grad:tolist())
    end
  end)

  it("is added to a dense one in place, but not under create_graph", function()
    local weight = moth.zeros(4, 2):requires_grad_()
    weight:sum():backward()
    local dense = weight.grad
    looked_up({3, 1, 3}, nil, weight)
    assert.same({{2, 2}, {1, 1}, {3, 3}, {1, 1}}, dense:tolist())
    F.embedding(ints {2}, weight, {sparse = true}):sum():backward {create_graph = true}
    assert.same({{2, 2}, {1, 1}, {3, 3}, {1, 1}}, dense:tolist())
    assert.same({{2, 2}, {2, 2}, {3, 3}, {1, 1}}, weight.grad:tolist())
  end)

  it("is copied if something else holds it, and stays coalesced", function()
    local weight = moth.zeros(4, 2):requires_grad_()
    local held
    weight:register_hook(function(g)
      held = g:coalesce()
      return held
    end)
    local grad = looked_up({3, 1, 3}, nil, weight)
    assert.is_true(held:is_coalesced())
    assert.is_true(grad:is_coalesced())
    held:values():zero_()
    assert.same({{1, 1}, {0, 0}, {2, 2}, {0, 0}}, grad:to_dense():tolist())
  end)

  it("is right if the table is also the weight of a layer", function()
    local w = moth.randn(4, 2):requires_grad_()
    local v = w:detach():clone():requires_grad_()
    F.linear(F.embedding({1, 3}, w, {sparse = true}), w):sum():backward()
    F.linear(F.embedding({1, 3}, v), v):sum():backward()
    assert.is_true(moth.allclose(w.grad, v.grad))
  end)

  it("is dense if it flows on, and under create_graph, where it has a gradient itself",
  function()
    local w = moth.randn(4, 2):requires_grad_()
    F.embedding({1, 3}, w * 2, {sparse = true}):sum():backward()
    assert.is_false(w.grad.is_sparse)
    local function cubes() return F.embedding({1, 3, 3}, w, {sparse = true}):pow(3):sum() end
    local grad = moth.autograd.grad(cubes(), w, {create_graph = true})
    local second = moth.autograd.grad(grad:sum(), w):to_dense()
    local count = moth.tensor {1, 0, 2, 0}:view(4, 1)
    assert.is_true(moth.allclose(second, w:detach() * count * 6))
    assert.is_true(moth.autograd.grad(cubes(), w).is_sparse)
  end)

  it("passes through hooks, and a hook may replace it", function()
    local w, seen = moth.ones(4, 2):requires_grad_(), nil
    w:register_hook(function(grad)
      seen = grad.is_sparse
      return grad * 3
    end)
    local grad = looked_up({2}, nil, w)
    assert.is_true(seen)
    assert.same({{3, 3}}, grad:_values():tolist())
  end)

  it("may come from a Function, but only for a leaf", function()
    local Rows = nn.class("Rows", moth.autograd.Function)
    function Rows.forward(_, x) return x * 1 end
    function Rows.backward() return moth.sparse_coo_tensor({{2}}, moth.ones(1, 2), {4, 2}) end
    local w = moth.ones(4, 2):requires_grad_()
    Rows.apply(w):sum():backward()
    assert.equal(1, w.grad:_nnz())
    refuses("dense", function() Rows.apply(w * 1):sum():backward() end)
  end)

  it("keeps its rows when the tokens change later", function()
    local w, tokens = moth.ones(4, 2):requires_grad_(), ints {1, 2}
    F.embedding(tokens, w, {sparse = true}):sum():backward()
    tokens:fill_(4)
    assert.same({{1, 2}}, w.grad:_indices():tolist())
  end)

  it("may be without tokens, or of a table in a half type", function()
    local grad = looked_up {}
    assert.equal(0, grad:_nnz())
    assert.same({0, 2}, {unpack(grad:coalesce():values().shape)})
    grad = looked_up({1, 1}, nil, moth.ones(4, 2, {dtype = moth.bfloat16}):requires_grad_())
    assert.same({{2, 2}}, grad:coalesce():values():tolist())
  end)

  it("outlives the scope of its backward pass", function()
    local w = moth.ones(4, 2):requires_grad_()
    moth.scope(function() looked_up({2}, nil, w) end)
    assert.same({{2}}, w.grad:_indices():tolist())
    w.grad = nil
    assert.is_nil(w.grad)
  end)

  it("raises together with scale_grad_by_freq", function()
    refuses("bad argument 'scale_grad_by_freq' to 'embedding'", function()
      looked_up({1}, {scale_grad_by_freq = true})
    end)
  end)

  it("is checked for NaN by anomaly mode", function()
    local w = moth.full({4, 2}, math.huge):requires_grad_()
    refuses("holds NaN", function()
      moth.autograd.detect_anomaly(function()
        (F.embedding({1}, w, {sparse = true}) * 0):square():sum():backward()
      end)
    end)
  end)
end)

describe("a sparse tensor", function()
  local function some() return moth.sparse_coo_tensor({{3, 1, 3}}, moth.ones(3, 2), {4, 2}) end
  local whole = {{1, 1}, {0, 0}, {2, 2}, {0, 0}}

  it("raises in ops of dense tensors, with its name and the remedy", function()
    refuses("bad argument 'input' to 'relu' (a dense tensor is needed, got sparse f32 (4, 2); "
      .. "convert with :to_dense())", function() return some():relu() end)
    for _, f in ipairs {function(x) return x[1] end, function(x) return x:tolist() end,
                        function(x) return x + 1 end, function(x) return moth.cat {x, x} end,
                        function(x) return x * moth.ones(4, 2) end, moth.token,
                        function(x) moth.add(moth.ones(4, 2), x, {out = moth.ones(4, 2)}) end,
                        function(x) x:requires_grad_() end, function(x) return x.data end,
                        function(x) moth.zeros(4, 2).data = x end} do
      refuses("a dense tensor is needed", function() f(some()) end)
    end
    refuses("a sparse tensor is needed, got f32 (2)", function() moth.ones(2):coalesce() end)
  end)

  it("can be added to dense ones and subtracted, on either side", function()
    local g = moth.sparse_coo_tensor({{3, 1, 3}}, moth.randn(3, 4), {5, 4})
    local w, d = g:to_dense(), moth.randn(5, 4)
    assert.is_true((g - g):to_dense():allclose(moth.zeros(5, 4), {atol = 1e-6}))
    assert.is_true((d - g):allclose(d - w))
    assert.is_true((g - d):allclose(w - d))
    assert.is_true((g + d):allclose(w + d))
    assert.is_true(moth.sub(g, d, {alpha = 2}):allclose(w - d * 2))
    assert.is_true(moth.sub(d, g, {alpha = 2}):allclose(d - w * 2))
    assert.is_true(d:clone():sub_(g):allclose(d - w))
    for _, f in ipairs {function() return g - 1 end, function() return moth.randn(7, 4) + g end} do
      refuses("a dense tensor is needed", f)
    end
  end)

  it("can be copied, cast, scaled, added and cleared", function()
    local x = some()
    assert.same({{2, 2}, {0, 0}, {4, 4}, {0, 0}}, (x * 2):to_dense():tolist())
    assert.same({{0.5, 0.5}, {0, 0}, {1, 1}, {0, 0}}, (x / moth.tensor(2)):to_dense():tolist())
    assert.same({{-1, -1}, {0, 0}, {-2, -2}, {0, 0}}, (-x):to_dense():tolist())
    assert.same({{4, 4}, {0, 0}, {8, 8}, {0, 0}}, x:add(x, {alpha = 3}):to_dense():tolist())
    assert.same({{3, 3}, {1, 1}, {5, 5}, {1, 1}}, moth.ones(4, 2):add_(x, {alpha = 2}):tolist())
    assert.equal(moth.float64, x:double().dtype)
    assert.same(whole, x:double():to_dense():tolist())
    assert.near(math.sqrt(10), x:norm():item(), 1e-6)
    assert.equal(6, x:sum():item())
    local copy = x:clone()
    assert.equal(x, x:mul_(2))
    assert.same(whole, copy:to_dense():tolist())
    assert.same(whole, moth.deepcopy(copy):to_dense():tolist())
    assert.equal(0, copy:zero_():sum():item())
    assert.equal(0, moth.zeros_like(x):_nnz())
  end)

  it("is made of positions from 1 and rows, which are checked", function()
    assert.same(whole, some():to_dense():tolist())
    assert.same({{1, 1}, {0, 0}, {2, 2}},
      moth.sparse_coo_tensor(ints {{3, 1, 3}}, moth.ones(3, 2)):to_dense():tolist())
    local function make(...)
      local args = {...}
      return function() return moth.sparse_coo_tensor(unpack(args)) end
    end
    refuses("positions count from 1, got 0", make({{0}}, moth.ones(1, 2), {4, 2}))
    refuses("bad argument 'indices' to 'sparse_coo_tensor' (integers are needed",
      make(moth.ones(1, 1), moth.ones(1, 2), {4, 2}))
    refuses("row 5 is out of range for 4", make({{5}}, moth.ones(1, 2), {4, 2}))
    refuses("only the first dimension can be sparse", make({{1}, {1}}, moth.ones(1), {4, 2}))
    refuses("which sparse tensors do not pass on; detach it",
      make({{1}}, moth.ones(1, 2):requires_grad_(), {4, 2}))
    refuses("bad argument 'size'", make({{1}}, moth.ones(1, 2), {4, 3}))
    refuses("bad argument 'indices'", make({{1, 2}}, moth.ones(1, 2), {4, 2}))
  end)

  it("prints its rows", function()
    local text = tostring(moth.sparse_coo_tensor({{3}}, moth.ones(1, 2), {4, 2}))
    assert.equal("indices = {{3}}\n[moth.int64 of size 1x1]\nvalues = {{1, 1}}\n"
      .. "[moth.float32 of size 1x2]\n[sparse moth.float32 of size 4x2, nnz=1]", text)
  end)

  it("is valid as a parameter's gradient if its size is the parameter's", function()
    local w = nn.Parameter(moth.ones(4, 2))
    w.grad = some()
    assert.is_true(w.grad.is_sparse)
    refuses("cannot be the gradient", function()
      w.grad = moth.sparse_coo_tensor({{1}}, moth.ones(1, 3), {4, 3})
    end)
  end)

  it("is converted with its parameter", function()
    local net = nn.Embedding {4, 2, sparse = true}
    net {3, 1, 3}:sum():backward()
    net:double()
    assert.equal(moth.float64, net.weight.grad.dtype)
    assert.same(whole, net.weight.grad:to_dense():tolist())
    if not cuda.here then return end
    net:to("cuda")
    assert.equal("cuda", net.weight.grad.device.type)
    net {4}:sum():backward()
    assert.same({{3, 1, 3, 4}}, net.weight.grad:_indices():cpu():tolist())
  end)

  it("is a gradient of a checkpointed call, too", function()
    local w = moth.ones(4, 2):requires_grad_()
    moth.utils.checkpoint.checkpoint(function(x)
      return F.embedding(x, w, {sparse = true}):square()
    end, ints {2, 2}):sum():backward()
    assert.same({{2, 2}, {2, 2}}, w.grad:_values():tolist())
  end)

  it("is clipped and unscaled by its values, each row once", function()
    local w, v = nn.Parameter(moth.ones(4, 2)), nn.Parameter(moth.ones(4, 2))
    w.grad, v.grad = some(), some():to_dense()
    local norm = nn.utils.get_total_norm {w.grad}
    assert.near(math.sqrt(10), norm:item(), 1e-6)
    assert.near(norm:item(), nn.utils.clip_grad_norm_({w}, 1):item(), 1e-6)
    nn.utils.clip_grad_norm_({v}, 1)
    assert.is_true(w.grad.is_sparse)
    assert.is_true(moth.allclose(w.grad:to_dense(), v.grad))
    nn.utils.clip_grad_value_({w}, 0.4)
    assert.near(0.4, w.grad:values():max():item(), 1e-6)
    local scaler, opt = moth.GradScaler {init_scale = 8}, optim.SGD({w}, {lr = 1})
    opt:zero_grad()
    scaler:scale(F.embedding({2}, w, {sparse = true}):sum()):backward()
    scaler:unscale_(opt)
    assert.same({{1, 1}}, w.grad:_values():tolist())
    opt:zero_grad {set_to_none = false}
    assert.equal(0, w.grad:_nnz())
  end)
end)

describe("steps with sparse gradients", function()
  local function restored(value)
    if value == golden.null then return moth.none end
    if type(value) ~= "table" then return value end
    if value.tensor then return (moth.tensor(value.tensor, {dtype = moth.float64})) end
    local t = {}
    for key, v in pairs(value) do t[tonumber(key) or key] = restored(v) end
    return t
  end

  local function vectors()
    local list = {}
    for i = 0, 5 do list[i + 1] = {(7 * i % 11 - 5) / 8, (7 * (i + 3) % 11 - 5) / 8} end
    return moth.tensor(list, {dtype = moth.float64})
  end

  local function layer(case, device)
    local how = {6, 2, sparse = true, _weight = vectors():to(device or "cpu")}
    for name, value in pairs(case.how) do how[name] = value end
    if how.padding_idx then how.padding_idx = how.padding_idx + 1 end
    return nn[case.layer](how)
  end

  local function make(case, net)
    return (optim[case.optimizer](net:parameters(), case.options))
  end

  local function step(case, net, opt, i)
    opt:zero_grad()
    local y = net((ints(case.tokens[i]) + 1):to(net.weight.device))
    local factor = moth.tensor({1, 2}, {dtype = moth.float64, device = y.device})
    local sum = (y * y * factor):sum()
    sum:backward()
    opt:step()
  end

  local function near(expected, got)
    assert.is_true(moth.allclose(got:detach():cpu(), expected, {rtol = 1e-9, atol = 1e-12}))
  end

  local function follow(case, device)
    local net = layer(case, device)
    local opt, row = make(case, net), 0
    for i = 1, 6 do
      step(case, net, opt, i)
      if i == 2 then
        local grad = net.weight.grad:coalesce()
        assert.same((case.grad[1] + 1):tolist(), grad:indices():tolist())
        near(case.grad[2], grad:values())
        assert.near(case.norm, nn.utils.get_total_norm {net.weight.grad}:item(), 1e-9)
      end
      if i == 1 or i == 3 or i == 6 then
        row = row + 1
        near(case.rows[row], net.weight)
      end
    end
  end

  for n, case in ipairs(restored(golden.cases "sparse")) do
    local name = ("%s of %s, case %d,"):format(case.optimizer, case.layer, n)

    it(name .. " equal PyTorch's", function() follow(case) end)

    it(name .. " equal PyTorch's on " .. cuda.name .. ", too", function()
      if not cuda.here then return pending(cuda.why) end
      follow(case, "cuda")
    end)

    it(name .. " keep PyTorch's state, and continue from it", function()
      local net = layer(case)
      local opt = make(case, net)
      for i = 1, 3 do step(case, net, opt, i) end
      local mine, theirs = opt:state_dict().state, case.state.state
      for key, value in pairs(theirs[0] or {}) do
        local own = mine["0"][key]
        near(type(value) == "number" and moth.tensor(value) or value,
          type(own) == "number" and moth.tensor(own) or own)
      end
      net = layer(case)
      moth.no_grad(function() net.weight:copy_(case.rows[2]) end)
      opt = make(case, net)
      opt:load_state_dict(case.state)
      for i = 4, 6 do step(case, net, opt, i) end
      near(case.rows[3], net.weight)
    end)
  end

  it("do not change unused rows of the table and of the state", function()
    local net = nn.Embedding {5, 3, sparse = true}
    local opt = optim.SparseAdam(net:parameters(), {lr = 0.5})
    local function go(...)
      opt:zero_grad()
      net({...}):square():sum():backward()
      opt:step()
    end
    go(1, 2)
    local w, mean = net.weight:detach():clone(), opt.state[net.weight].exp_avg:clone()
    go(2, 4)
    for i = 1, 5 do
      local same = i ~= 2 and i ~= 4
      assert.equal(same, moth.equal(w[i], net.weight[i]))
      assert.equal(same, moth.equal(mean[i], opt.state[net.weight].exp_avg[i]))
    end
  end)

  it("may be mixed with dense ones in one group", function()
    for _, name in ipairs {"SGD", "Adagrad"} do
      local a, b = nn.Embedding {5, 3, sparse = true}, nn.Linear(3, 1)
      local c, d = moth.deepcopy(a), moth.deepcopy(b)
      c.sparse = false
      for _, pair in ipairs {{a, b}, {c, d}} do
        local opt = optim[name]({pair[1].weight, pair[2].weight, pair[2].bias}, {lr = 0.1})
        for _ = 1, 3 do
          opt:zero_grad()
          pair[2](pair[1] {1, 4, 4}):square():sum():backward()
          opt:step()
        end
      end
      assert.is_true(moth.allclose(a.weight, c.weight))
      assert.is_true(moth.allclose(b.weight, d.weight))
    end
  end)

  it("raise, with the reason, if they would have to change all rows", function()
    local w = nn.Parameter(moth.ones(4, 2))
    looked_up({1}, nil, w)
    for _, name in ipairs {"Adam", "AdamW", "RMSprop", "Adadelta", "NAdam", "Muon"} do
      refuses(name .. " does not support sparse gradients; SparseAdam does", function()
        optim[name] {w}:step()
      end)
    end
    refuses("SGD does not support sparse gradients", function()
      optim.SGD({w}, {lr = 1, momentum = 0.5}):step()
    end)
    for _, name in ipairs {"SGD", "Adagrad"} do
      refuses(("bad argument 'weight_decay' to '%s' (is not compatible with sparse gradients")
        :format(name), function() optim[name]({w}, {weight_decay = 0.5}):step() end)
    end
    w.grad = w.grad:to_dense()
    refuses("SparseAdam does not support dense gradients", function()
      optim.SparseAdam {w}:step()
    end)
    assert.is_true(moth.equal(w, moth.ones(4, 2)))
  end)

  it("can be captured if no rows are summed before, and raise otherwise", function()
    local a = nn.Embedding {9, 3, sparse = true, padding_idx = 2}
    local b, steps, groups = moth.deepcopy(a), {}, {}
    for i, net in ipairs {a, b} do
      local opt = optim.SGD(net:parameters(), {lr = 0.1})
      groups[i], steps[i] = opt.param_groups[1], function(x)
        opt:zero_grad()
        local loss = net(x):square():sum()
        loss:backward()
        net(x:flip(1)):sum():backward()
        opt:step()
        return loss
      end
    end
    local captured = moth.capture(steps[1], {verify = 2})
    for i = 1, 6 do
      if i == 5 then
        for _, group in ipairs(groups) do group.lr = 0.3 end
      end
      local x = moth.randint(1, 10, {4}) -- together with the second lookup fewer than the table has
      assert.equal(steps[2](x):item(), captured(x):item())
      assert.is_true(moth.equal(a.weight, b.weight))
      assert.is_true(moth.equal(a.weight.grad:to_dense(), b.weight.grad:to_dense()))
    end
    assert.matches("1 recording", tostring(captured))
    local adam = optim.SparseAdam(a:parameters())
    local function clip() nn.utils.clip_grad_norm_(a:parameters(), 1) end
    for name, act in pairs {SparseAdam = function() adam:step() end, clip_grad_norm_ = clip} do
      refuses(name .. ": the number of rows of a sparse gradient depends on values, so "
        .. "moth.capture "
        .. "cannot record it", function()
        moth.capture(function(x)
          adam:zero_grad()
          a(x):sum():backward()
          act()
        end)(ints {1, 2})
      end)
    end
    refuses("an existing sparse gradient grows in each call", function()
      moth.capture(function(x) a(x):sum():backward() end)(ints {1, 2})
    end)
  end)
end)
