-- Modes and scopes of coroutines that run in turn: each coroutine has its own.

local moth = require "moth"
local process = require "spec.support.process"
local intact = require "spec.support.intact"

local lib = require "moth.binding.lib"

local function on() return moth.is_grad_enabled() end

local function alive(x) return lib.C.moth_alive(lib.ctx, x) == 1 end

-- A coroutine that sleeps inside enter(f), and ends when it is resumed again.
local function sleeper(enter)
  local turn = coroutine.wrap(function()
    enter(function() coroutine.yield() end)
    coroutine.yield "over"
  end)
  turn()
  return turn
end

describe("a coroutine that sleeps", function()
  after_each(function()
    assert.is_true(on())
    assert.is_false(moth.is_autocast_enabled())
    assert.is_false(moth.autograd.is_anomaly_enabled())
  end)

  it("inside no_grad does not switch recording off for others", function()
    local w = moth.ones(3):requires_grad_()
    local turn = sleeper(moth.no_grad)
    assert.is_true((w * 2).requires_grad)
    assert.equal("over", turn())
    assert.is_true((w * 2).requires_grad)
  end)

  it("has its own mode when it continues", function()
    local seen = {}
    local turn = coroutine.wrap(function()
      moth.no_grad(function()
        coroutine.yield()
        seen[1] = on()
        moth.enable_grad(function()
          coroutine.yield()
          seen[2] = on()
        end)
        seen[3] = on()
        coroutine.yield()
        seen[4] = on()
      end)
      seen[5] = on()
    end)
    turn()
    assert.is_true(on())
    moth.enable_grad(turn)
    assert.is_true(on())
    moth.no_grad(turn)
    turn()
    assert.same({false, true, false, false, true}, seen)
  end)

  it("inside enable_grad does not switch recording on for the no_grad around its resume", function()
    moth.no_grad(function()
      local turn = sleeper(moth.enable_grad)
      assert.is_false(on())
      turn()
      assert.is_false(on())
    end)
  end)

  it("inside set_grad_enabled(false, f) does not switch recording off for others", function()
    local turn = sleeper(function(f) moth.set_grad_enabled(false, f) end)
    assert.is_true(on())
    assert.equal("over", turn())
  end)

  it("after set_grad_enabled(false) does not switch recording off for others", function()
    local inner
    local turn = coroutine.wrap(function()
      moth.set_grad_enabled(false)
      coroutine.yield()
      inner = on()
    end)
    turn()
    assert.is_true(on())
    turn()
    assert.is_false(inner)
    moth.collect()
  end)

  it("inside inference_mode does not switch recording off for others", function()
    if not moth.inference_mode then return end
    local turn = sleeper(function(f) moth.inference_mode(f) end)
    assert.is_true(on())
    assert.equal("over", turn())
  end)

  it("inside autocast does not change products of others", function()
    local a = moth.ones(4, 4)
    local turn = sleeper(function(f) moth.autocast("cpu", f) end)
    assert.is_false(moth.is_autocast_enabled())
    assert.equal(moth.float32, (a:matmul(a)).dtype)
    turn()
    assert.equal(moth.float32, (a:matmul(a)).dtype)
  end)

  it("between enter and exit of autocast does not change products of others", function()
    local a, inside = moth.ones(4, 4), nil
    local turn = coroutine.wrap(function()
      local region = moth.autocast("cpu"):enter()
      coroutine.yield()
      inside = a:matmul(a).dtype
      region:exit()
    end)
    turn()
    assert.equal(moth.float32, (a:matmul(a)).dtype)
    turn()
    assert.equal(moth.bfloat16, inside)
    assert.equal(moth.float32, (a:matmul(a)).dtype)
  end)

  it("inside detect_anomaly does not check gradients of others", function()
    local turn = sleeper(moth.autograd.detect_anomaly)
    local x = moth.zeros(1):requires_grad_()
    moth.sqrt(x * 0):backward()
    assert.is_true(x.grad:isnan():item())
    turn()
    local failing = coroutine.wrap(function()
      return moth.autograd.detect_anomaly(function()
        coroutine.yield()
        return pcall(function() moth.sqrt(x * 0):backward() end)
      end)
    end)
    failing()
    assert.is_false((failing()))
  end)

  it("inside a scope frees no tensors of others", function()
    local turn = sleeper(moth.scope)
    local mine = moth.ones(3)
    turn()
    assert.same({2, 2, 2}, (mine + 1):tolist())
  end)

  it("keeps the tensors of its own scope until the scope ends", function()
    local x
    local turn = coroutine.wrap(function()
      moth.scope(function()
        x = moth.ones(2)
        coroutine.yield()
        x = x + 1
        coroutine.yield()
      end)
    end)
    turn()
    moth.scope(function()
      turn()
      assert.is_true(alive(x))
    end)
    assert.is_true(alive(x))
    turn()
    assert.is_false(alive(x))
  end)

  it("inside a module's call under no_grad does not change training steps of others", function()
    local net = moth.nn.Linear(2, 1)
    local turn = sleeper(function(f) moth.no_grad(function() net(moth.ones(1, 2)) f() end) end)
    net(moth.ones(1, 2)):sum():backward()
    assert.is_not_nil(net.weight.grad)
    turn()
  end)

  it("in a hook keeps create_graph in its own pass", function()
    local x = moth.ones(2):requires_grad_()
    local y = x * x
    local inside = {}
    y:register_hook(function()
      inside[#inside + 1] = on()
      coroutine.yield()
      inside[#inside + 1] = on()
    end)
    local turn = coroutine.wrap(function() y:sum():backward() end)
    turn()
    assert.is_true(on())
    turn()
    assert.same({false, false}, inside)
    assert.same({2, 2}, x.grad:tolist())
  end)

  it("in the unrecorded forward of a Function does not switch recording off", function()
    local Slow = moth.nn.class("Slow", moth.autograd.Function)
    function Slow.forward(_, x)
      coroutine.yield()
      return x * 2
    end
    function Slow.backward(_, dy) return dy * 2 end
    local x, y = moth.ones(2):requires_grad_(), nil
    local turn = coroutine.wrap(function() y = Slow.apply(x) end)
    turn()
    assert.is_true((x * 3).requires_grad)
    turn()
    y:sum():backward()
    assert.same({2, 2}, x.grad:tolist())
  end)

  it("in an optimizer's closure does not change modes", function()
    local p = moth.ones(1):requires_grad_()
    local opt = moth.optim.LBFGS({p}, {lr = 0.1, max_iter = 2})
    local turn = coroutine.wrap(function()
      opt:step(function()
        coroutine.yield()
        opt:zero_grad()
        local loss = (p * p):sum()
        loss:backward()
        return loss
      end)
      return "over"
    end)
    local turns = 0
    repeat
      local done = turn()
      turns = turns + 1
      assert.is_true(on())
    until done or turns > 50
    assert.is_true(p:item() < 1)
  end)

  it("shares settings without an end: the default dtype", function()
    local dtype
    local turn = coroutine.wrap(function()
      moth.no_grad(function()
        coroutine.yield()
        dtype = moth.ones(1).dtype
      end)
    end)
    turn()
    moth.set_default_dtype(moth.float64)
    turn()
    moth.set_default_dtype(moth.float32)
    assert.equal(moth.float64, dtype)
  end)
end)

describe("a coroutine that is never resumed", function()
  it("does not switch recording off", function()
    do
      local lost = coroutine.wrap(function() moth.no_grad(function() coroutine.yield() end) end)
      lost()
    end
    assert.is_true(on())
    moth.collect()
    assert.is_true(on())
  end)

  it("is freed with its tensors, and does not affect a new coroutine at its address", function()
    local w = moth.ones(2):requires_grad_()
    assert.is_true((w * 2).requires_grad)
    local before = intact.counts()
    for _ = 1, 200 do
      local lost = coroutine.wrap(function()
        moth.no_grad(function()
          moth.scope(function()
            local x = moth.ones(10)
            coroutine.yield()
            return x
          end)
        end)
      end)
      lost()
      lost = nil
      collectgarbage()
      local fresh = coroutine.wrap(function()
        coroutine.yield(on())
        return (w * 2).requires_grad
      end)
      assert.is_true(fresh())
      assert.is_true(fresh())
      assert.is_nil(lost)
    end
    assert.same(before, intact.counts())
  end)

  it("does not free tensors that it passed on", function()
    local given
    do
      local lost = coroutine.wrap(function()
        moth.scope(function()
          local x = moth.ones(3)
          coroutine.yield(x)
          return x
        end)
      end)
      given = lost()
    end
    moth.collect()
    moth.collect()
    assert.same({1, 1, 1}, given:tolist())
  end)

  it("leaves no mode after an error inside", function()
    local co = coroutine.create(function()
      moth.autocast("cpu", function()
        moth.no_grad(function()
          moth.scope(function()
            coroutine.yield()
            error "lost"
          end)
        end)
      end)
    end)
    assert.is_true(coroutine.resume(co))
    assert.is_false((coroutine.resume(co)))
    assert.is_true(on())
    assert.is_false(moth.is_autocast_enabled())
    local x = moth.ones(1)
    assert.is_true(alive(x))
  end)
end)

describe("a coroutine that another coroutine resumes", function()
  it("runs under the resumer's modes, except for the modes that it has set itself", function()
    local seen = {}
    local inner = coroutine.wrap(function()
      seen[1] = {on(), moth.is_autocast_enabled()}
      moth.enable_grad(function()
        coroutine.yield()
        seen[2] = {on(), moth.is_autocast_enabled()}
        coroutine.yield()
        seen[3] = {on(), moth.is_autocast_enabled()}
      end)
      seen[4] = {on(), moth.is_autocast_enabled()}
    end)
    local outer = coroutine.wrap(function()
      moth.no_grad(function()
        inner()
        moth.autocast("cpu", inner)
        coroutine.yield()
        inner()
      end)
    end)
    outer()
    outer()
    assert.same({{false, false}, {true, true}, {true, false}, {false, false}}, seen)
  end)

  it("makes tensors in the resumer's scope", function()
    local made
    local inner = coroutine.wrap(function()
      for k = 1, 3 do
        made = moth.ones(1) * k
        coroutine.yield()
      end
    end)
    local outer = coroutine.wrap(function()
      moth.scope(inner)
      coroutine.yield(alive(made))
      inner()
      return alive(made)
    end)
    assert.is_false(outer())
    assert.is_true(outer())
  end)

  it("uses the right mode of three on the stack", function()
    local seen = {}
    local third = coroutine.wrap(function()
      while true do
        seen[#seen + 1] = on()
        coroutine.yield()
      end
    end)
    local second = coroutine.wrap(function()
      moth.enable_grad(function()
        coroutine.yield()
        third()
        coroutine.yield()
      end)
      coroutine.yield()
      third()
    end)
    second() -- sleeps inside enable_grad
    local first = coroutine.wrap(function() moth.no_grad(function() second() third() end) end)
    first()  -- no_grad is newer, enable_grad is nearer
    moth.no_grad(third)
    third()
    assert.same({true, false, false, true}, seen)
  end)
end)

describe("if modes cannot belong to a coroutine", function()
  it("functional_call, which puts parameters into the module, raises for a yield", function()
    local net = moth.nn.Sequential(moth.nn.Linear(2, 1))
    function net:forward(x) -- luacheck: ignore 212
      coroutine.yield()
      return x
    end
    local weights = {["0.weight"] = moth.zeros(1, 2)}
    local ok, text = coroutine.resume(coroutine.create(function()
      moth.func.functional_call(net, weights, moth.ones(1, 2))
    end))
    assert.is_false(ok)
    assert.matches("functional_call cannot yield", text)
  end)

  it("an unknown Lua raises if a function under a mode yields", function()
    local text = process.lua [[
      jit.version_num = 99999
      local moth = require "moth"
      local w = moth.ones(1):requires_grad_()
      local co = coroutine.create(function() moth.no_grad(function() coroutine.yield() end) end)
      print(coroutine.resume(co))
      print((w * 2).requires_grad)
      local function records() return (w * 2).requires_grad end
      co = coroutine.wrap(function() return moth.no_grad(records) end)
      print(co(), records())
      co = coroutine.create(function() moth.set_grad_enabled(false) end)
      print(coroutine.resume(co))]]
    local lines = {}
    for line in text:gmatch "[^\n]+" do lines[#lines + 1] = line end
    assert.matches("false\t.*under no_grad on this Lua cannot yield", lines[1])
    assert.equal("true", lines[2])
    assert.equal("false\ttrue", lines[3])
    assert.matches("false\t.*write set_grad_enabled%(mode, f%)", lines[4])
  end)
end)

-- ---- any schedule, compared with a model ----

-- The modes of each coroutine: a stack of {mode, value}. The model knows each resumer.
local Model = {}
Model.__index = Model

local function new_model() return setmetatable({stacks = {main = {}}, chain = {"main"}}, Model) end

function Model:value(mode, default)
  for k = #self.chain, 1, -1 do
    local stack = self.stacks[self.chain[k]]
    for i = #stack, 1, -1 do
      if stack[i][1] == mode then return stack[i][2] end
    end
  end
  return default
end

describe("coroutines in any order", function()
  local KINDS = {
    {"grad", false, moth.no_grad}, {"grad", true, moth.enable_grad},
    {"grad", false, function(f) return moth.set_grad_enabled(false, f) end},
    {"autocast", true, function(f) return moth.autocast("cpu", f) end},
    {"autocast", false, function(f) return moth.autocast("cpu", false, f) end},
    {"scope", nil, moth.scope},
  }

  local function play(seed, turns)
    local state = seed
    local function draw(n)
      state = (state * 16807) % 2147483647
      return state % n + 1
    end
    local model, threads, checks = new_model(), {}, 0
    local w, a = moth.ones(2):requires_grad_(), moth.ones(2, 2)
    local scoped = setmetatable({}, {__mode = "k"}) -- scope -> list of tensors made in it
    local new_thread, act

    local function records()
      assert(on() == model:value("grad", true), "grad mode")
      assert((w * 2).requires_grad == model:value("grad", true), "recording")
      local cast = model:value("autocast", false)
      assert(moth.is_autocast_enabled() == cast, "autocast")
      assert(a:matmul(a).dtype == (cast and moth.bfloat16 or moth.float32), "dtype")
      local x, scope = moth.ones(1), model:value("scope", nil)
      if scope then scoped[scope][#scoped[scope] + 1] = x end
      checks = checks + 1
    end

    local function within(name, depth)
      local kind = KINDS[draw(#KINDS)]
      local stack, value = model.stacks[name], kind[2]
      local scope
      if kind[1] == "scope" then
        scope = {}
        scoped[scope], value = {}, scope
      end
      local fails = name ~= "main" and draw(8) == 1
      local ok = pcall(kind[3], function()
        stack[#stack + 1] = {kind[1], value}
        records()
        for _ = 1, draw(3) do act(name, depth + 1) end
        records()
        if scope then
          for _, x in ipairs(scoped[scope]) do assert(alive(x), "a tensor of an open scope") end
        end
        stack[#stack] = nil
        if fails then error("on purpose", 0) end
      end)
      assert(ok ~= fails)
      if scope then
        for _, x in ipairs(scoped[scope]) do assert(not alive(x), "a tensor of an ended scope") end
      end
      records()
    end

    local function resume()
      if #threads == 0 then return new_thread() end
      local k = draw(#threads)
      local thread = threads[k]
      if coroutine.status(thread.co) == "dead" or draw(25) == 1 then -- over, or dropped as it is
        if coroutine.status(thread.co) ~= "normal" and coroutine.running() ~= thread.co then
          table.remove(threads, k)
        end
        return
      end
      if coroutine.status(thread.co) ~= "suspended" then return end
      model.chain[#model.chain + 1] = thread.name
      local ok, problem = coroutine.resume(thread.co)
      assert(ok, problem)
      model.chain[#model.chain] = nil
      records()
    end

    function new_thread()
      local name = {}
      model.stacks[name] = {}
      threads[#threads + 1] = {name = name, co = coroutine.create(function()
        for _ = 1, draw(4) do act(name, 1) end
      end)}
    end

    function act(name, depth)
      local what = draw(9)
      if what <= 3 and name ~= "main" then
        coroutine.yield()
        records()
      elseif what <= 5 and depth < 5 then
        within(name, depth)
      elseif what <= 7 and #model.chain < 5 then
        resume()
      elseif what == 8 and #threads < 12 then
        new_thread()
      elseif draw(30) == 1 then
        collectgarbage()
        moth.collect()
      end
      records()
    end

    for _ = 1, turns do act("main", 1) end
    return checks
  end

  it("have the modes of a model of them", function()
    local checks = 0
    for seed = 1, 60 do
      local ok, result = pcall(play, seed, 120)
      assert(ok, ("seed %d: %s"):format(seed, tostring(result)))
      checks = checks + result
      assert.is_true(on())
      assert.is_false(moth.is_autocast_enabled())
    end
    assert.is_true(checks > 5000, checks)
  end)

  it("leave no state in the context", function()
    local before = intact.counts()
    play(7, 300)
    moth.collect()
    assert.same(before, intact.counts())
  end)
end)
