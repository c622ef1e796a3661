-- moth.capture: changes between replays, and the memory of a recording.

local moth = require "moth"
local lib = require "moth.binding.lib"
local nn, optim = moth.nn, moth.optim

lib.declare "capture"

local function list_of(x) return x:contiguous():flatten():tolist() end

local function leaf(...) return moth.tensor {...}:requires_grad_() end

describe("between replays", function()
  it("new data of a tensor whose .data or detach() the step used is seen", function()
    local p, bytes = leaf(1, 1), moth.ones(5000)
    local step = moth.capture(function(x) return p:detach() * x + p, bytes + bytes.data end)
    step(moth.ones(2))
    p.data = moth.full({2}, 5)
    bytes.data = moth.full({5000}, 3)
    moth.collect()
    assert.are.equal(0, moth.zeros(10000):sum():item())
    local a, b = step(moth.ones(2))
    assert.are.same({10, 10}, a:tolist())
    assert.are.equal(6, b:max():item())
  end)

  it("data that the step itself assigns is assigned again", function()
    local p = moth.ones(2)
    local step = moth.capture(function(x) p.data = x * 2 end)
    step(moth.ones(2))
    step(moth.ones(2) * 2)
    assert.are.same({4, 4}, p:tolist())
    p.data = moth.zeros(2)
    step(moth.ones(2) * 3)
    assert.are.same({6, 6}, p:tolist())
  end)

  it("a step that begins with the data that the last call assigned is an error, not a wrong value",
  function()
    local p = moth.ones(2)
    local step = moth.capture(function(x) p.data = p * x end)
    assert.has_error_like(function() for _ = 1, 5 do step(moth.full({2}, 2)) end end,
      "changed its initial state")
    assert.are.same({8, 8}, p:tolist())
  end)

  for _, set_to_none in ipairs {true, false} do
    it("the module's own zero_grad clears gradients, set_to_none = " .. tostring(set_to_none),
    function()
      local function made(captured)
        moth.manual_seed(3)
        local net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
        local opt = optim.SGD(net:parameters(), {lr = 0.1})
        local step = function(x)
          net:zero_grad {set_to_none = set_to_none}
          local loss = net(x):square():sum()
          loss:backward()
          opt:step()
          return loss
        end
        if captured then step = moth.capture(step) end
        for i = 1, 12 do step(moth.full({4, 2}, i / 6)) end
        return {list_of(net[1].weight), list_of(net[1].weight.grad)}, tostring(step)
      end
      local numbers, shown = made(true)
      assert.are.same((made(false)), numbers)
      assert.is_true(tonumber(shown:match "%((%d+) rec") <= (set_to_none and 1 or 2), shown)
    end)
  end

  it("frozen layers do not change, and unfrozen layers train again", function()
    local net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    local opt = optim.SGD(net:parameters(), {lr = 0.1})
    local step = moth.capture(function(x)
      opt:zero_grad()
      local loss = net(x):square():sum()
      loss:backward()
      opt:step()
      return loss
    end)
    local x = moth.ones(1, 2)
    step(x)
    net[1]:requires_grad_(false)
    local before = list_of(net[1].weight)
    step(x)
    step(x)
    assert.are.same(before, list_of(net[1].weight))
    net[1]:requires_grad_(true)
    step(x)
    assert.are_not.same(before, list_of(net[1].weight))
  end)

  it("a parameter's optimizer state is removed and created again", function()
    for _, name in ipairs {"Adam", "SGD"} do
      local p = leaf(1, 2)
      local opt = optim[name]({p}, name == "SGD" and {lr = 0.1, momentum = 0.9} or {lr = 0.1})
      local function plain()
        opt:zero_grad()
        p:square():sum():backward()
        opt:step()
      end
      local step = moth.capture(plain)
      for _ = 1, 3 do step() end
      opt.state[p] = nil
      p.data = moth.tensor {1, 2}
      step()
      local got = list_of(p)
      opt.state = {}
      p.data = moth.tensor {1, 2}
      plain()
      assert.are.same(list_of(p), got)
    end
  end)

  it("changed results, also constant results, are written again", function()
    local step = moth.capture(function() return moth.zeros(3), moth.tensor {1, 2} end)
    for _ = 1, 3 do
      local zeros, list = step()
      assert.are.same({0, 0, 0}, zeros:tolist())
      assert.are.same({1, 2}, list:tolist())
      zeros:add_(1)
      list:add_(1)
    end
  end)

  it("freed results are created again", function()
    local step = moth.capture(function(x) return x * 2 end)
    for i = 1, 4 do
      local y = step(moth.full({1}, i))
      assert.are.equal(2 * i, y:item())
      y:free()
    end
    assert.is_truthy(tostring(step):find("captured step (1 recording, 4 made;", 1, true))
  end)
end)

describe("the memory of a recording", function()
  it("constants that are written through .data have their values again in each replay", function()
    local step = moth.capture(function(x)
      local c = moth.tensor {1, 2}
      c.data:add_(x)
      return c * 1
    end)
    for _ = 1, 4 do assert.are.same({2, 3}, step(moth.ones(2)):tolist()) end
  end)

  it("constants that are read and then overwritten also have their values again", function()
    local writes = {
      function(h, a) h:copy_(a * 5) end,
      function(h) h:cumsum_(1) end,
      function(h, a) moth.mul(h, a + 1, {out = h}) end,
      function(h) moth.softmax(h, 1, {out = h}) end,
      function(h, a) h[{}] = a end,
      function(h, a) h:view(2, 1):copy_(a:view(2, 1)) end,
      function(h, a) h.data:copy_(a) end,
      function(h, a) for _ = 1, 3 do h:copy_(moth.tanh(h + a)) end end,
    }
    for i, write in ipairs(writes) do
      local function run(a)
        local h, at = moth.tensor {1, 2}, moth.tensor {1LL, 2LL}
        local y = h * 3 + a[at]
        write(h, a)
        at:copy_(at:flip(1))
        return y, h * 1, a[at]
      end
      local step, a = moth.capture(run), moth.tensor {3, 4}
      for _ = 1, 3 do
        local want, got = {run(a)}, {step(a)}
        for k = 1, 3 do assert.are.same(want[k]:tolist(), got[k]:tolist(), i) end
      end
    end
  end)

  it("a generator that the step makes starts again in each replay", function()
    local function draw(a)
      local g = moth.Generator()
      g:manual_seed(5)
      local h = moth.Generator()
      return moth.rand(3, {generator = g}) + a, moth.randn(2, {generator = h}),
        moth.rand(2, {generator = h})
    end
    local step, a = moth.capture(draw), moth.zeros(3)
    local want = {draw(a)}
    for _ = 1, 3 do
      local got = {step(a)}
      for k = 1, 3 do assert.are.same(want[k]:tolist(), got[k]:tolist()) end
    end
  end)

  it("inputs that are results of the last replay have their values of that time", function()
    local step = moth.capture(function(a, b) return a + b, a end)
    local a, b, got = moth.ones(1), moth.ones(1), {}
    for i = 1, 6 do
      a, b = step(a, b)
      got[i] = a:item()
    end
    assert.are.same({2, 3, 5, 8, 13, 21}, got)
    local turn = moth.capture(function(x, y) return y:t(), x end)
    local x, y = moth.tensor {{1, 2}, {3, 4}}, moth.zeros(2, 2)
    got = {}
    for i = 1, 5 do
      x, y = turn(x, y)
      got[i] = table.concat(list_of(x), " ") .. ", " .. table.concat(list_of(y), " ")
    end
    assert.are.same({"0 0 0 0, 1 2 3 4", "1 3 2 4, 0 0 0 0", "0 0 0 0, 1 3 2 4",
                     "1 2 3 4, 0 0 0 0", "0 0 0 0, 1 2 3 4"}, got)
  end)

  it("a captured step verifies while another one uses its results", function()
    local double = moth.capture(function(x) return x * 2 end, {verify = 6})
    local y
    for i = 1, 2 do y = double(moth.full({2}, i)) end
    local more = moth.capture(function(x) return x + y end)
    more(moth.ones(2))
    for i = 3, 5 do double(moth.full({2}, i)) end
    assert.are.same({11, 11}, more(moth.ones(2)):tolist())
  end)

  it("inputs of a C host may be views", function()
    local all, out = moth.zeros(4, 4), moth.zeros(2, 2)
    local input, id = all[{{2, 3}, {2, 3}}], require("ffi").new "uint32_t[1]"
    local handles = lib.handles(1)
    handles[0] = input
    lib.check(lib.C.moth_capture_begin(lib.ctx, handles, 1, id), "begin")
    out:copy_(input)
    lib.check(lib.C.moth_capture_end(lib.ctx, handles, 0), "end")
    local x = moth.tensor {{1, 2}, {3, 4}}
    handles[0] = x
    assert.are.equal(0, lib.C.moth_capture_replay(lib.ctx, id[0], handles, 1))
    assert.are.same({1, 2, 3, 4}, list_of(out))
    assert.are.same({0, 0, 0, 0, 0, 1, 2, 0, 0, 3, 4, 0, 0, 0, 0, 0}, list_of(all))
    lib.C.moth_capture_free(lib.ctx, id[0])
  end)
end)

describe("recordings without references", function()
  it("are freed, also when LuaJIT has compiled their calls", function()
    local w, x = moth.zeros(64, 64), moth.zeros(64, 64)
    local function use(n)
      local step = moth.capture(function(v) return v + w end)
      for _ = 1, n do step(x) end
    end
    local bytes
    for i = 1, 120 do
      use(i % 7 + 1)
      moth.collect()
      bytes = bytes or moth.memory().live_bytes
    end
    assert.are.equal(bytes, moth.memory().live_bytes)
  end)
end)

describe("a recording in a coroutine", function()
  it("that yields is an error, and other coroutines are not recorded", function()
    local step = moth.capture(function(x)
      coroutine.yield()
      return x
    end)
    local ok, message = coroutine.resume(coroutine.create(function() step(moth.ones(1)) end))
    assert.is_false(ok)
    assert.matches("cannot yield", message)
    assert.are.equal(1, moth.ones(1):item())
  end)

  it("may run coroutines of its own", function()
    local step = moth.capture(function(x)
      for k in coroutine.wrap(function() for i = 1, 3 do coroutine.yield(i) end end) do
        x = x + k
      end
      return x
    end)
    assert.are.equal(7, step(moth.ones(1)):item())
    assert.are.equal(8, step(moth.full({1}, 2)):item())
  end)
end)

describe("a recording made through the C ABI", function()
  local C, ctx = lib.C, lib.ctx
  local ops = require("moth.binding.bind").ops
  local id = require("ffi").new "uint32_t[1]"

  -- Records f(), and returns the status of the end.
  local function recorded(f)
    assert.equal(0, C.moth_capture_begin(ctx, nil, 0, id))
    local ok, problem = pcall(moth.no_grad, f)
    assert.is_true(ok, problem)
    return C.moth_capture_end(ctx, nil, 0)
  end

  local function replay() return C.moth_capture_replay(ctx, id[0], nil, 0) end

  local function went_well(status) return status == 0 or status == C.MOTH_WANT end

  local function text_of(pointer) return require("ffi").string(pointer) end

  -- p and the state that Adam keeps for it.
  local function adam()
    local p, g, m, v = moth.ones(3), moth.full({3}, 0.5), moth.zeros(3), moth.zeros(3)
    return p, function(step) ops.adam_step_({p}, {g}, {m}, {v}, {}, step, {lr = 0.1}) end
  end

  it("is refused if the step count of an optimizer would not change", function()
    local p, step = adam()
    local counted = {
      {"adam_step_", "step", function() step(1) end},
      {"adagrad_step_", "step", function()
        ops.adagrad_step_({p}, {moth.ones(3)}, {moth.zeros(3)}, 1)
      end},
      {"sgd_step_", "first", function()
        ops.sgd_step_({p}, {moth.ones(3)}, {moth.zeros(3)}, 0.1, 0.9, {first = true})
      end},
    }
    for _, row in ipairs(counted) do
      assert.equal(C.MOTH_E_UNSUPPORTED, recorded(row[3]))
      assert.equal(row[1], text_of(C.moth_error_op(ctx)))
      assert.equal(row[2], text_of(C.moth_error_arg(ctx)))
      assert.equal(C.MOTH_E_STATE, replay())
    end
  end)

  it("is accepted if no op has a step count", function()
    local p, g = moth.ones(3), moth.ones(3)
    assert.equal(0, recorded(function()
      ops.sgd_step_({p}, {g}, {moth.zeros(3)}, 0.5, 0.9)
    end))
    assert.same({0.5, 0.5, 0.5}, p:tolist())
    assert.is_true(went_well(replay()))
    assert.close({0, 0, 0}, p:tolist())
    C.moth_capture_free(ctx, id[0])
  end)

  it("uses the step counts that the host writes", function()
    local p, step = adam()
    local q, same = adam()
    local next_one
    assert.equal(0, recorded(function()
      step(1)
      local slots = C.moth_capture_slots(ctx, C.moth_op_find("adam_step_"))
      for _, arg in ipairs(require("moth.binding.registry").describe("adam_step_").args) do
        if arg.name == "step" then next_one = slots + arg.slot end
      end
    end))
    same(1)
    for k = 2, 5 do
      next_one[0].number = k
      assert.is_true(went_well(replay()))
      same(k)
      assert.same(q:tolist(), p:tolist())
    end
    C.moth_capture_free(ctx, id[0])
  end)
end)

describe("BatchNorm in a captured step", function()
  it("is refused if the momentum of the statistics changes with each step", function()
    local layer = nn.BatchNorm1d(3, {momentum = moth.none})
    local step = moth.capture(function(x) return (layer(x)) end)
    assert.has_error_like(function() step(moth.randn(4, 3)) end,
      "BatchNorm1d with momentum = moth.none weighs each batch by the number of earlier batches")
    assert.equal("E_UNSUPPORTED", moth.errcode())
    assert.equal(0, layer.num_batches_tracked:item())
    layer:eval()
    local x = moth.randn(4, 3)
    for _ = 1, 3 do assert.close(layer(x):tolist(), step(x):tolist()) end
  end)
end)
