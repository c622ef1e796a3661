-- moth.profiler: ops are counted exactly, times and bytes are counted once, and a profile ends also
-- after an error.

local moth = require "moth"
local lib = require "moth.binding.lib"
local bits = require "spec.support.bits"
local support = require "spec.support.profiler"
local traces = require "spec.support.traces"

local nn, F, optim = moth.nn, moth.nn.functional, moth.optim
local profile, record_function = moth.profiler.profile, moth.profiler.record_function

local rows_of, count, is_sound = support.rows_of, support.count, support.is_sound

describe("a profile", function()
  it("counts each call of an op", function()
    local x = moth.randn(4, 3)
    local prof = profile(function()
      for _ = 1, 7 do local _ = x * x end
      for _ = 1, 3 do F.relu(x) end
      x:add_(1)
      moth.add(x, 1, {out = moth.zeros(4, 3)})
      moth.cumsum(x, 1, {out = moth.zeros(4, 3)}) -- by a copy: the kernel needs scratch memory
      x:cumsum_(1)
    end)
    local counts = {}
    for name, row in pairs(rows_of(prof)) do counts[name] = row.count end
    assert.same({mul = 7, relu = 3, add_ = 1, add = 1, zeros = 2, cumsum = 1, cumsum_ = 1,
                 copy_ = 2}, counts)
    is_sound(prof)
  end)

  it("counts in compiled loops, which stay compiled", function()
    local x = moth.randn(16)
    local function loop()
      moth.scope(function()
        for _ = 1, 3000 do x:mul(2) end
      end)
    end
    local prof, result
    prof = profile(function()
      if traces.possible then result = traces.watch(loop) else loop() end
    end)
    assert.equal(3000, count(prof, "mul"))
    if not result then return end
    assert.is_true(result.made > 0, traces.text(result))
    assert.same({}, traces.blame(result))
  end)

  it("records ops inside ops, with separate times", function()
    local x, t = moth.randn(4, 5):requires_grad_(), moth.tensor{1LL, 2LL, 3LL, 4LL}
    local prof = profile(function()
      record_function("all", function()
        for _ = 1, 4 do F.cross_entropy(x, t):backward() end
      end)
    end)
    is_sound(prof)
    local rows, events = rows_of(prof), prof:events()
    assert.equal(1, rows.all.count)
    assert.equal("all", events[1].name)
    assert.near(events[1].cpu_time_total, rows.all.cpu_time_total, 1e-6)
    for i = 2, #events do assert.is_number(events[i].parent, events[i].name) end
    assert.equal(4, rows.cross_entropy.count)
    assert.is_true(rows.cross_entropy.cpu_time_total > rows.class_entropy.cpu_time_total)
  end)

  it("names gradients by their ops, inside the pass", function()
    local a, b = moth.randn(3):requires_grad_(), moth.randn(3)
    local prof = profile(function()
      for _ = 1, 2 do (a * b * a):sum():backward() end
    end)
    is_sound(prof)
    local rows = rows_of(prof)
    assert.equal(2, rows.backward.count)
    assert.equal(4, rows["mul backward"].count)
    assert.equal(2, rows["sum backward"].count)
    local events = prof:events()
    for _, e in ipairs(events) do
      if e.name == "mul backward" then assert.equal("backward", events[e.parent].name) end
    end
  end)

  it("records passes that stop for Lua: hooks, Functions, grad", function()
    local Twice = moth.nn.class("Twice", moth.autograd.Function)
    function Twice.forward(_, x) return x * 2 end
    function Twice.backward(_, dy) return dy * 2 end
    local x = moth.randn(3):requires_grad_()
    local prof = profile(function()
      local y = Twice.apply(x)
      y:register_hook(function(g) return g:exp() end)
      local gx = moth.autograd.grad(y:sin():sum(), x)
      assert.equal(3, #gx)
    end)
    is_sound(prof)
    local rows, events = rows_of(prof), prof:events()
    assert.equal(1, rows.backward.count)
    assert.equal(1, rows["Twice backward"].count)
    assert.equal(1, rows["sin backward"].count)
    for _, e in ipairs(events) do
      if e.name == "exp" then assert.equal("backward", events[e.parent].name) end
    end
  end)

  it("shows a replay as the ops of its recording", function()
    local net = nn.Linear(3, 2)
    local opt = optim.SGD(net:parameters(), {lr = 0.1})
    local function train(x)
      opt:zero_grad()
      local loss = net(x):tanh():sum()
      loss:backward()
      opt:step()
      return loss
    end
    local step, x = moth.capture(train), moth.randn(4, 3)
    step(x)
    local prof = profile(function()
      for _ = 1, 5 do step(x) end
    end)
    is_sound(prof)
    local rows, events = rows_of(prof), prof:events()
    assert.equal(5, rows.replay.count)
    assert.equal(5, rows.tanh.count)
    assert.equal(5, rows.linear.count)
    assert.equal(5, rows.sgd_step_.count)
    assert.is_nil(rows.backward)
    for _, e in ipairs(events) do
      assert.equal(e.name ~= "replay", e.parent ~= nil and events[e.parent].name == "replay")
    end
    assert.equal("captured step (1 recording)", tostring(step))
  end)

  it("changes no results", function()
    local function train()
      moth.manual_seed(3)
      local net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))
      local opt = optim.Adam(net:parameters(), {lr = 0.1})
      local step = moth.capture(function(x)
        opt:zero_grad()
        local loss = net(x):pow(2):sum()
        loss:backward()
        opt:step()
        return loss
      end)
      for _ = 1, 6 do step(moth.randn(4, 3)) end
      return bits.state_of(net) .. tostring(step)
    end
    local want, got = train(), nil
    profile{function() got = train() end, record_shapes = true, with_stack = true,
            with_modules = true, profile_memory = true}
    assert.equal(want, got)
  end)

  it("records nothing after its end", function()
    local x = moth.ones(3)
    local prof = profile(function() local _ = x + 1 end)
    local before = #prof:events()
    local _ = x + 1
    assert.equal(1, before)
    assert.equal(before, #prof:events())
    assert.is_nil(lib.profile)
    assert.is_nil(lib.note_line)
    local a, b = record_function("not noted", function(...) return ... end, 1, 2)
    assert.same({1, 2}, {a, b})
  end)

  it("begins and ends by hand, several times", function()
    local x = moth.ones(3)
    local prof = profile()
    assert.equal("profile (not started)", tostring(prof))
    assert.equal(prof, prof:start())
    local _ = x + 1
    assert.equal("profile (active)", tostring(prof))
    assert.has_error_like(function() prof:events() end, "events: the profile has not ended")
    assert.equal(prof, prof:stop())
    assert.equal(1, count(prof, "add"))
    assert.has_error_like(function() prof:stop() end, "this profile is not active")
    prof:start()
    _ = x * 2
    prof:stop()
    assert.equal(0, count(prof, "add"))
    assert.equal(1, count(prof, "mul"))
  end)
end)

describe("an error in a profile", function()
  it("ends the profile, and the modes are restored", function()
    local x = moth.ones(2, 3)
    local function wrong() return (x:view(7)) end
    local _, want = pcall(wrong)
    local _, got = pcall(profile, wrong)
    assert.equal(want, got)
    assert.is_nil(lib.profile)
    local thrown = {}
    local _, same = pcall(profile, function()
      record_function("a", function() error(thrown) end)
    end)
    assert.equal(thrown, same)
    assert.equal(1, count(profile(function() local _ = x + 1 end), "add"))
  end)

  it("in an op is recorded, and the op is counted", function()
    local x = moth.ones(2, 3)
    local prof = profile{function()
      pcall(function() x:view(7) end)
      pcall(function() x:matmul(x) end)
      local _ = x + 1
    end, record_shapes = true, with_stack = true}
    local events = prof:events()
    assert.same({"view", true}, {events[1].name, events[1].failed})
    assert.same({"add", false}, {events[#events].name, events[#events].failed})
    is_sound(prof)
  end)

  it("in a backward pass ends the pass's range", function()
    local x = moth.ones(3):requires_grad_()
    local y = x:exp()
    local z = y:sum()
    y:detach():add_(1)
    local prof = profile(function()
      assert.is_false(pcall(z.backward, z))
      local _ = x + 1
    end)
    is_sound(prof)
    local events = prof:events()
    assert.equal("add", events[#events].name)
    assert.is_nil(events[#events].parent)
    assert.is_true(events[1].name == "backward" and events[1].failed)
  end)

  it("of a nested profile names the line where the first one began", function()
    local inner
    local begun = ("spec/tools/profiler_spec.lua:%d"):format(debug.getinfo(1, "l").currentline + 1)
    profile(function()
      local ok, problem = pcall(profile, function() end)
      inner = not ok and problem
    end)
    assert.truthy(inner:find("a profile is already active, started at", 1, true))
    assert.truthy(inner:find(begun, 1, true), inner)
    assert.is_nil(lib.profile)
  end)

  it("in an abandoned coroutine ends the profile", function()
    local thread = coroutine.create(function() profile(function() coroutine.yield() end) end)
    coroutine.resume(thread)
    assert.has_error_like(function() profile(function() end) end, "already active")
    thread = nil -- luacheck: ignore 311
    assert.equal(1, count(profile(function() moth.zeros(1) end), "zeros"))
  end)

  it("is a warning if a GPU is requested and none exists", function()
    local warn, available, heard = moth.warn, moth.cuda.is_available, {}
    moth.warn = function(text) heard[#heard + 1] = text end
    moth.cuda.is_available = function() return false end
    local ok, problem = pcall(function()
      profile(function() end)
      profile{activities = {"cpu"}}
      profile{activities = {"cpu", "cuda"}}
    end)
    moth.warn, moth.cuda.is_available = warn, available
    assert.is_true(ok, problem)
    assert.equal(1, #heard)
    assert.truthy(heard[1]:find("no GPU", 1, true), heard[1])
  end)

  it("of an unknown option is raised", function()
    assert.has_error_like(function() profile{print, flops = true} end, "no argument 'flops'")
    assert.has_error_like(function() profile(3) end, "bad argument 'fn' to 'profile'")
    assert.has_error_like(function() profile{activities = {"gpu"}} end, '"cpu" and "cuda"')
    assert.has_error_like(function() profile{max_events = 0} end, "from 1 on is needed, got 0")
    assert.has_error_like(function() record_function(1, print) end, "bad argument 'name'")
    assert.equal(4, record_function({"a", function() return 4 end}))
    assert.has_error_like(function() return moth.profiler.profil end, "did you mean 'profile'")
    assert.has_error_like(function() record_function("a") end, "bad argument 'f'")
    local prof = profile(function() end)
    assert.has_error_like(function() prof:key_averages{group_by = "line"} end, "with_stack = true")
    assert.has_error_like(function() prof:key_averages{group_by = "module"} end,
      "with_modules = true")
    assert.has_error_like(function() prof:key_averages(true) end, "record_shapes = true")
    assert.has_error_like(function() prof:key_averages():table{sort_by = "cpu_tim_total"} end,
      "did you mean 'cpu_time_total'")
    assert.has_error_like(function() prof.events() end, "prof:events")
  end)

  it("of a misspelt name suggests the right name, also under pcall", function()
    local prof = profile(function() end)
    assert.has_error_like(function() prof:key_average() end,
      "a profile has no 'key_average'; did you mean 'key_averages'?")
    assert.has_error_like(function() return prof.peak_byte end, "did you mean 'peak_bytes'")
    local averages = prof:key_averages()
    assert.has_error_like(function() averages:tabel() end,
      "an EventList has no 'tabel'; did you mean 'table'?")
    assert.is_nil(averages[1])
    assert.is_nil(profile().time)
    assert.truthy(require "moth.help".text(prof):find("key_averages", 1, true))
    assert.truthy(require "moth.help".text(averages):find("table", 1, true))
  end)
end)

describe("ranges of a profile", function()
  it("contain the ops that run in them, and divide the time", function()
    local x = moth.randn(50, 50)
    local prof = profile(function()
      record_function("outer", function()
        record_function("inner", function() return x:matmul(x) end)
        return x + 1
      end)
      return x * 2
    end)
    is_sound(prof)
    local names, parents = {}, {}
    for i, e in ipairs(prof:events()) do names[i], parents[i] = e.name, e.parent or 0 end
    assert.same({"outer", "inner", "matmul", "add", "mul"}, names)
    assert.same({0, 1, 2, 1, 0}, parents)
  end)

  it("may end in any order, as in coroutines", function()
    local x = moth.ones(3)
    local prof = profile(function()
      local first = coroutine.wrap(function()
        record_function("first", function() coroutine.yield() end)
      end)
      local second = coroutine.wrap(function()
        record_function("second", function() coroutine.yield() end)
      end)
      first()
      second()
      first()
      local _ = x + 1
      second()
      _ = x * 1
    end)
    local events, all = prof:events(), 0
    for _, e in ipairs(events) do
      assert.is_true(e.self_cpu_time_total >= 0)
      all = all + e.self_cpu_time_total
    end
    assert.is_true(all <= prof.time)
    local parents = {}
    for _, e in ipairs(events) do parents[e.name] = e.parent or 0 end
    assert.same({first = 0, second = 1, add = 2, mul = 0}, parents)
  end)

  it("end after an error in them, and with the profile", function()
    local x = moth.ones(3)
    local left
    local prof = profile(function()
      pcall(record_function, "wrong", error, "no")
      local _ = x + 1
      left = coroutine.wrap(function()
        record_function("left", function() coroutine.yield() end)
      end)
      left()
      _ = x * 1
    end)
    local rows = rows_of(prof)
    assert.equal(1, rows.wrong.count)
    local events = prof:events()
    assert.is_nil(events[2].parent)
    assert.is_true(rows.left.cpu_time_total > 0)
    profile(function() -- the range of the other profile ends in this one
      left()
      local _ = x + 1
    end)
  end)
end)

describe("a context", function()
  it("may end while it is profiled, and before its profile is taken", function()
    local C = lib.C
    lib.declare "profile"
    for _, stopped in ipairs {false, true} do
      local room = lib.array("uint8_t", C.moth_open_size()) -- stays readable after moth_close
      local ctx = C.moth_open_at(room)
      assert.equal(0, C.moth_profile_start(ctx, C.MOTH_PROFILE_SHAPES, 5))
      assert.equal(C.MOTH_E_STATE, C.moth_profile_start(ctx, 0, 5))
      local shape, y = lib.int64s(1), lib.handles(1)
      local slots = lib.slots(8)
      shape[0] = 3
      slots[0].pointer, slots[1].integer = shape, 1
      local range = C.moth_profile_begin(ctx, C.MOTH_EVENT_RANGE, 1, 0)
      local zeros = C.moth_op_find("zeros")
      for _ = 1, 9 do
        assert.is_true(C.moth_call(ctx, zeros, slots, 2, 1, y, 1) >= 0)
      end
      C.moth_profile_end(ctx, range)
      C.moth_profile_end(ctx, range)
      C.moth_profile_end(ctx, range + 1)
      C.moth_profile_end(ctx, -1)
      if stopped then
        assert.equal(0, C.moth_profile_stop(ctx, nil))
        assert.equal(C.MOTH_E_STATE, C.moth_profile_stop(ctx, nil))
      end
      C.moth_close(ctx)
      assert.equal(C.MOTH_E_STATE, C.moth_profile_stop(ctx, nil))
      assert.is_not_nil(room)
    end
  end)
end)

describe("a profile of a training loop", function()
  it("shows the time of waiting for its DataLoader", function()
    local loader = moth.data.DataLoader(moth.randn(10, 3), {batch_size = 4})
    local n = 0
    local prof = profile(function()
      for x in loader do n = n + #x end
      n = n + #loader:iter()()
    end)
    assert.equal(14, n)
    assert.equal(5, rows_of(prof).DataLoader.count) -- the request at the end of a pass also counts
    is_sound(prof)
  end)
end)

describe("a profile with more events than its limit", function()
  it("counts the events that it drops", function()
    local x = moth.randn(8, 8)
    local prof = profile{function()
      record_function("all", function()
        for _ = 1, 50 do local _ = x + 1 end
      end)
    end, max_events = 11}
    assert.equal(11, #prof:events())
    assert.equal(40, prof.dropped)
    assert.equal(10, count(prof, "add"))
    assert.truthy(tostring(prof):find("40 events dropped", 1, true))
    is_sound(prof)
  end)
end)
