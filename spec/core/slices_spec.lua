-- Slices of time in the C interface: which calls pause, what happens to the state of a paused call,
-- and what is refused meanwhile. moth.budget is in budget_spec.lua.

local ffi = require "ffi"
local lib = require "moth.binding.lib"
local moth = require "moth"

lib.declare "slices"
lib.declare "capture"

local C, ctx = lib.C, lib.ctx
local NOW = 1e-9 -- seconds: the time of such a slice is over at the first poll

local slots, out = ffi.new "moth_slot[8]", ffi.new "moth_handle[4]"

local function call(name, nslots, given, nout)
  return C.moth_call(ctx, C.moth_op_find(name), slots, nslots, given, out, nout or 1)
end

-- Calls visit(slice), which returns a status, in slices of so many seconds until it has not paused.
-- @return how often it paused
local function finish(slice, seconds, visit, between)
  local pauses = 0
  repeat
    assert.equal(0, C.moth_slice_enter(ctx, slice, seconds, pauses == 0 and 1 or 0))
    local status = visit()
    C.moth_slice_leave(ctx)
    if status == C.MOTH_E_PAUSED then
      pauses = pauses + 1
      if between then between() end
    end
  until status ~= C.MOTH_E_PAUSED
  return pauses
end

local function with_slice(f)
  return function()
    local slice = C.moth_slice_new(ctx)
    f(slice)
    C.moth_slice_free(ctx, slice)
  end
end

local function taken() return lib.adopt(lib.Handle(out[0]._slot, out[0]._gen), 0) end

-- No call returns MOTH_WANT.
setup(function() moth.collect() moth.set_memory_floor(2 ^ 52, 2 ^ 52) end)
teardown(function() moth.set_memory_floor() end)

describe("in a slice of time", function()
  local few = moth.ones(64)
  local column, row = moth.ones(2048, 1), moth.ones(1, 2048)
  local many = moth.ones(2048, 2048)

  -- An op of few elements runs without a pause if time is left, and then the others still pause.
  for name, operands in pairs {
    ["of many elements"] = {many, many}, ["whose few elements are broadcast"] = {column, row},
    ["whose first operand is small"] = {moth.ones(1), many},
    ["whose second operand is small"] = {many, moth.ones(1)},
  } do
    it("an elementwise op pauses " .. name, with_slice(function(slice)
      local first
      assert.is_true(finish(slice, 1e-3, function()
        if not first then
          slots[0].handle, slots[1].handle = few, few
          C.moth_slice_extend(ctx, 10)
          assert.equal(0, call("mul", 2, 3))
          first = taken()
          C.moth_slice_extend(ctx, 2e-4)
        end
        slots[0].handle, slots[1].handle = operands[1], operands[2]
        return call("mul", 2, 3)
      end) > 0)
      local second = taken()
      assert.equal(64, first:sum():item())
      assert.equal(2048 * 2048, second:sum():item())
    end))
  end

  it("an elementwise op of few elements pauses if no time is left", with_slice(function(slice)
    slots[0].handle, slots[1].handle = few, few
    for _ = 1, 5 do
      assert.equal(1, finish(slice, NOW, function() return call("mul", 2, 3) end))
      assert.equal(64, taken():sum():item())
    end
  end))

  it("a view may pause, and sums do", with_slice(function(slice)
    slots[0].handle, slots[1].integer, slots[2].integer = few, 0, 0
    local pauses = 0
    for _ = 1, 64 do
      pauses = pauses + finish(slice, NOW, function() return call("unsqueeze", 2, 3) end)
      assert.same({1, 64}, taken():size())
    end
    assert.equal(4, pauses)
    slots[0].handle = few
    assert.is_true(finish(slice, NOW, function() return call("sum", 1, 1) end) > 0)
    assert.equal(64, taken():item())
  end))

  it("a held slice does not pause", with_slice(function(slice)
    slots[0].handle = many
    local pauses = finish(slice, NOW, function()
      assert.equal(0, C.moth_slice_hold(ctx, 1))
      assert.equal(1, C.moth_slice_hold(ctx, 1))
      return call("sum", 1, 1)
    end)
    assert.equal(0, pauses)
    assert.equal(2048 * 2048, taken():item())
    assert.is_true(finish(slice, NOW, function()
      assert.equal(0, C.moth_slice_hold(ctx, 0))
      return call("sum", 1, 1)
    end) > 0)
    taken():free()
    assert.is_true(finish(slice, NOW, function()
      C.moth_slice_hold(ctx, 1)
      assert.equal(1, C.moth_slice_hold(ctx, 0))
      return call("sum", 1, 1)
    end) > 0)
    taken():free()
    assert.equal(0, C.moth_slice_hold(ctx, 1)) -- outside of slices it has no effect
  end))

  it("a slice that is extended goes on", with_slice(function(slice)
    slots[0].handle = many
    assert.equal(0, finish(slice, NOW, function()
      C.moth_slice_extend(ctx, 100)
      return call("sum", 1, 1)
    end))
    taken():free()
  end))

  it("a paused call keeps its lists, numbers and errors, whatever the host does",
    with_slice(function(slice)
      local list, other = ffi.new "moth_handle[2]", moth.zeros(3)
      local a, b = moth.ones(64), moth.ones(32)
      list[0], list[1] = a, b
      slots[0].pointer, slots[1].integer = list, 2
      local function join() return call("cat", 2, 1) end
      assert.is_true(finish(slice, NOW, join, function()
        list[0], list[1] = other, other
        assert.has_error(function() other:sum(7) end)
        assert.equal(21, (other * 2 + 7):sum():item())
      end) > 0)
      assert.equal(96, taken():sum():item())

      slots[0].number = 5
      assert.equal(0, C.moth_number(ctx, 1, 0, slots))
      slots[0].handle, slots[1].handle = few, lib.Handle(1, 0)
      assert.is_true(finish(slice, NOW, function() return call("add", 2, 3) end, function()
        assert.equal(9, (other * 4 + 3):sum():item())
      end) > 0)
      assert.equal(64 * 6, taken():sum():item())
    end))

  it("another call than the paused one is refused", with_slice(function(slice)
    local step = ffi.new "uint32_t[3]"
    local inputs, results, node = lib.handles(1), lib.handles(1), ffi.new "uint64_t[1]"
    inputs[0] = few
    for i = 0, 1 do
      assert.equal(0, C.moth_capture_begin(ctx, inputs, 1, step + i))
      slots[0].handle = few
      assert.equal(0, call("sum", 1, 1))
      results[0] = out[0]
      assert.equal(0, C.moth_capture_end(ctx, results, 1))
      lib.adopt(lib.Handle(results[0]._slot, results[0]._gen), 0)
    end
    local function replay(i) return C.moth_capture_replay(ctx, step[i], inputs, 1) end
    local x = moth.ones(64, {requires_grad = true})
    local loss = (x * x):sum()
    results[0] = loss
    assert.equal(0, C.moth_task_begin(ctx, results, nil, 1, nil, 0, 0, step + 2))
    local function pass(task)
      return C.moth_task_step(ctx, task, node, ffi.new "uint32_t[1]", ffi.new "uint32_t[1]")
    end
    local function sum() slots[0].handle = few return call("sum", 1, 1) end
    local function mean() slots[0].handle = few return call("mean", 1, 1) end
    local function first() return replay(0) end
    local function second() return replay(1) end
    local function backward() return pass(step[2]) end
    local function other_pass() return pass(step[2] + 1) end
    for _, pair in ipairs {{sum, mean}, {sum, first}, {sum, backward}, {first, second},
      {first, sum}, {first, backward}, {backward, first}, {backward, sum},
      {backward, other_pass}} do
      local paused = false
      repeat
        C.moth_slice_enter(ctx, slice, NOW, 1)
        local status = pair[1]()
        if status == C.MOTH_E_PAUSED and not paused then
          paused = true
          assert.equal(C.MOTH_E_STATE, pair[2]())
          assert.matches("another call is paused", ffi.string(C.moth_error(ctx, 1)))
        end
        C.moth_slice_leave(ctx)
        if pair[1] == backward and paused then break end
      until status ~= C.MOTH_E_PAUSED
      assert.is_true(paused)
      if pair[1] == backward then -- the next pair continues the pass
        assert.is_nil(x.grad)
      end
    end
    finish(slice, NOW, backward)
    assert.equal(128, x.grad:sum():item())
    C.moth_capture_free(ctx, step[0])
    C.moth_capture_free(ctx, step[1])
  end))

  it("the slice cannot be entered again or freed", with_slice(function(slice)
    assert.equal(0, C.moth_slice_enter(ctx, slice, 1, 1))
    assert.equal(C.MOTH_E_STATE, C.moth_slice_enter(ctx, slice, 1, 1))
    assert.matches("this slice runs already", ffi.string(C.moth_error(ctx, 1)))
    C.moth_slice_free(ctx, slice) -- has no effect
    C.moth_slice_leave(ctx)
    C.moth_slice_leave(ctx) -- no slice is current
    slots[0].handle = few
    assert.is_true(finish(slice, NOW, function() return call("sum", 1, 1) end) > 0)
    taken():free()
  end))

  it("tensors of the work do not end with the scope of the host", function()
    local function work()
      local x = few + 1
      coroutine.yield()
      local y = x + 1
      coroutine.yield()
      return (x + y):sum():item()
    end
    local function part() return moth.budget(100, work) end
    assert.is_false(moth.scope(part))
    assert.is_false(moth.scope(part))
    local done, value = part()
    assert.is_true(done)
    assert.equal(64 * 5, value)
  end)

  it("a slice inside another one has its own time and modes", with_slice(function(outer)
    local inner = C.moth_slice_new(ctx)
    slots[0].handle = many
    assert.equal(0, C.moth_slice_enter(ctx, outer, 100, 1))
    C.moth_grad_mode(ctx, 0)
    assert.is_true(finish(inner, NOW, function()
      assert.equal(0, C.moth_grad_mode(ctx, -1))
      return call("sum", 1, 1)
    end) > 0)
    taken():free()
    assert.equal(0, call("sum", 1, 1)) -- the outer one has time left
    taken():free()
    C.moth_slice_leave(ctx)
    assert.equal(1, C.moth_grad_mode(ctx, -1))
    assert.equal(0, C.moth_slice_enter(ctx, outer, 100, 0))
    assert.equal(0, C.moth_grad_mode(ctx, -1)) -- the modes that it had
    C.moth_slice_leave(ctx)
    assert.equal(1, C.moth_grad_mode(ctx, -1))
    C.moth_slice_free(ctx, inner)
  end))
end)

describe("a backward pass in slices", function()
  local Pair = moth.class("Pair", moth.autograd.Function)
  function Pair.forward(state, a, b, c)
    state:save_for_backward(a, b)
    return a * b, c * 2
  end
  function Pair.backward(state, g, h)
    local a, b = unpack(state.saved_tensors)
    return g * b, g * a, h * 2
  end

  it("stops at hooks and Functions with the same gradients as without slices", function()
    local function pass(seconds)
      local list, hooked = {}, {}
      for i = 1, 3 do
        list[i] = (moth.arange(64):float() + i):requires_grad_()
      end
      local function work()
        local y, z = Pair.apply(list[1], list[2], list[3])
        local s = y + z
        s:register_hook(function(g) hooked[#hooked + 1] = g:sum():item() return g * 3 end)
        list[1]:register_hook(function(g) hooked[#hooked + 1] = g:sum():item() end)
        local loss = s * s
        loss:sum():backward()
        return true
      end
      local slices = 0
      repeat slices = slices + 1 until moth.budget(seconds, work)
      for i = 1, 3 do hooked[#hooked + 1] = list[i].grad:sum():item() end
      return hooked, slices
    end
    local want = pass(100)
    local got, slices = pass(NOW)
    assert.same(want, got)
    assert.equal(5, #want)
    assert.is_true(slices > 10)
  end)

  it("counts a slice for each of many small ops", function()
    local x = moth.ones(4)
    local slices = 0
    local function work()
      local y = x
      for _ = 1, 50 do y = y + 1 end
      return y:sum():item()
    end
    local done, value
    repeat
      slices = slices + 1
      done, value = moth.budget(NOW, work)
    until done
    assert.equal(204, value)
    assert.is_true(slices > 50)
  end)
end)
