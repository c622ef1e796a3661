-- Streams and events of a GPU, as a script uses them: which work waits for which, memory that is
-- safe without calls by the user, late errors, and the reuse of released streams.

local moth = require "moth"
local child = require "spec.support.child"
local cuda = require "spec.support.cuda"
local process = require "spec.support.process"

local F = moth.nn.functional
local emulated = cuda.name:find("emulated", 1, true)

--- Work that takes a while on a GPU; the result is x.
local function slowly(x)
  for _ = 1, 20 do x = x + 1 end
  return x - 20
end

describe("a stream", function()
  if not cuda.here then
    pending("is current inside moth.cuda.stream: " .. cuda.why)
    return
  end

  it("is current inside moth.cuda.stream, and the previous one is restored", function()
    local s, t = moth.cuda.Stream(), moth.cuda.Stream { priority = -1 }
    local first = moth.cuda.default_stream()
    assert.equal(first, moth.cuda.current_stream())
    local a, b = moth.cuda.stream(s, function(x)
      assert.equal(s, moth.cuda.current_stream())
      local inner = moth.cuda.stream(t, function() return moth.cuda.current_stream("cuda:0") end)
      assert.equal(t, inner)
      assert.equal(s, moth.cuda.current_stream())
      return x, x + 1
    end, 3)
    assert.same({ 3, 4 }, { a, b })
    assert.equal(first, moth.cuda.current_stream())
    assert.has_error_like(function() moth.cuda.stream(s, function() error "stop" end) end, "stop")
    assert.equal(first, moth.cuda.current_stream())
    assert.equal(-1, t.priority)
    assert.equal("cuda:0", tostring(s.device))
  end)

  it("refuses other values", function()
    assert.has_error_like(function() moth.cuda.stream(1, print) end, "a Stream is needed, got 1")
    assert.has_error_like(function() moth.cuda.stream(moth.cuda.Stream()) end,
      "a function is needed")
    assert.has_error_like(function() return (moth.cuda.Stream("cpu")) end, "a GPU such as 'cuda:0'")
    assert.has_error_like(function() moth.cuda.default_stream():wait_stream(moth.ones(1)) end,
      "a Stream is needed")
    assert.has_error_like(function() moth.cuda.default_stream():wait_event(2) end,
      "an Event is needed, got 2")
  end)

  it("raises where it cannot be used", function()
    local s, x, ran = moth.cuda.Stream(), moth.ones(2, { device = "cuda" })
    local step = moth.capture(function(a)
      return moth.cuda.stream(s, function()
        ran = true
        return a + 1
      end)
    end)
    assert.has_error_like(function() step(x) end, "a stream or an event is used")
    assert.is_nil(ran)
    assert.equal(moth.cuda.default_stream(), moth.cuda.current_stream())
    assert.is_true(moth.is_grad_enabled())
  end)

  it("runs after the stream that it waits for", function()
    local s, x = moth.cuda.Stream(), moth.randn(1000)
    local here = moth.cuda.current_stream()
    local there = x:cuda()
    s:wait_stream(here)
    local y = moth.cuda.stream(s, function() return slowly(there) * 2 end)
    here:wait_stream(s)
    assert.is_true(moth.allclose((y + 1):cpu(), x * 2 + 1, { atol = 1e-4 }))

    local made, done = moth.cuda.Event(), moth.cuda.Event()
    local z = slowly(there)
    made:record()
    s:wait_event(made)
    local w = moth.cuda.stream(s, function() return slowly(z) + 1 end)
    s:record_event(done)
    done:wait()
    assert.is_true(moth.allclose((w + 1):cpu(), x + 2, { atol = 1e-4 }))
  end)

  it("runs after the stream that the one it waits for waits for", function()
    local a, b, c = moth.cuda.Stream(), moth.cuda.Stream(), moth.cuda.Stream()
    local x = moth.randn(1000)
    local there = x:cuda()
    moth.cuda.synchronize()
    local function follows(wait)
      local y = moth.cuda.stream(a, function() return slowly(there) + 1 end)
      wait()
      c:wait_stream(b)
      local z = moth.cuda.stream(c, function() return (y * 2):cpu() end)
      assert.is_true(moth.allclose(z, (x + 1) * 2, { atol = 1e-4 }))
    end
    for _ = 1, 2 do
      follows(function() b:wait_stream(a) end)
      follows(function() b:wait_event(a:record_event()) end)
    end
  end)

  it("does not run before it is waited for, where an emulator delays work", function()
    if not emulated or os.getenv "MOTH_EMULATED_REPORTS" then return end -- which would show it
    local s = moth.cuda.Stream()
    local x = moth.ones(8, { device = "cuda" })
    moth.cuda.synchronize()
    local y = moth.cuda.stream(s, function() return x + 1 end)
    assert.is_false((y * 1):cpu():equal(moth.full({ 8 }, 2)))
    s:synchronize()
    assert.is_true(s:query())
    assert.is_true(y:cpu():equal(moth.full({ 8 }, 2)))
  end)

  it("raises its late errors when it is synchronized, with the op's name", function()
    local s = moth.cuda.Stream()
    local x, at = moth.ones(3, { device = "cuda" }), moth.tensor({ 4LL }):cuda() - 0
    s:wait_stream(moth.cuda.current_stream())
    assert.has_error_like(function()
      moth.cuda.stream(s, function() return x:index_select(1, at + 1) end)
      s:synchronize()
    end, "'index_select', which ran before on the GPU, got position 5 of 3")
    assert.equal("E_INDEX", moth.errcode())
    s:synchronize()
    moth.cuda.synchronize()
  end)

  it("is reused once it is released", function()
    local numbers = {}
    for _ = 1, 40 do
      numbers[moth.cuda.Stream().number] = true
      moth.collect()
    end
    local n = 0
    for _ in pairs(numbers) do n = n + 1 end
    assert.is_true(n < 10, n .. " streams were made")
  end)

  it("belongs to one state, as events do", function()
    for _, one in ipairs { moth.cuda.Stream(), moth.cuda.Event() } do
      for _, handle in ipairs { one.handle, one.handle:detach() } do
        assert.has_error_like(function() moth.token(handle) end, "which belong to one state")
        assert.equal("E_TYPE", moth.errcode())
      end
    end
  end)

  it("outlives the scope that it was made in", function()
    local s
    moth.scope(function() s = moth.cuda.Stream() end)
    assert.is_true(moth.cuda.stream(s, function() return moth.ones(2, { device = "cuda" }) end)
      .is_cuda)
    s:synchronize()
  end)

  it("trains a network to the same bits", function()
    local function train(run)
      moth.manual_seed(3)
      local net = moth.nn.Linear(6, 4):cuda()
      local optimizer = moth.optim.SGD(net:parameters(), { lr = 0.1, momentum = 0.9 })
      local x, y = moth.randn(9, 6):cuda(), moth.randint(1, 5, { 9 }):cuda()
      moth.cuda.synchronize()
      return run(function()
        for _ = 1, 5 do
          optimizer:zero_grad()
          F.cross_entropy(net(x), y):backward()
          optimizer:step()
        end
        return net.weight:cpu()
      end)
    end
    local s = moth.cuda.Stream()
    local one = train(function(f) return f() end)
    local two = train(function(f) return (moth.cuda.stream(s, f)) end)
    assert.is_true(one:equal(two))
  end)

  it("is synchronized when the state ends", function()
    local pipe = io.popen(process.program .. [[ -e '
      local moth = require "moth"
      local s = moth.cuda.Stream()
      local x = moth.ones(100, {device = "cuda"})
      moth.cuda.stream(s, function() for _ = 1, 50 do x = x * 2 end end)
      e = moth.cuda.Event() e:record(s)' 2>&1; echo rc=$?]])
    assert.equal("rc=0\n", pipe:read "*a")
    pipe:close()
  end)
end)

describe("two GPUs", function()
  if not emulated then
    pending "are needed, or the GPU emulator"
    return
  end

  -- A kernel is launched on the current device, and accesses only that device's memory.
  it("do the same work in alternation", function()
    local pipe = io.popen("MOTH_EMULATED_DEVICES=2 " .. process.program .. [[ -e '
      local moth = require "moth"
      local nn, F = moth.nn, moth.nn.functional
      local function learner(device)
        moth.manual_seed(1)
        local net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(),
          nn.Linear(144, 300), nn.ReLU(), nn.Linear(300, 5)):to(device)
        local x = moth.randn(6, 1, 8, 8):to(device)
        local y = moth.tensor({1, 2, 3, 4, 5, 1}):long():to(device)
        local wide = moth.randn(256, 256):half():to(device)
        local opt = moth.optim.Adam(net:parameters(), {lr = 0.01})
        return moth.capture(function()
          opt:zero_grad()
          local loss = F.cross_entropy(net(x), y) + moth.fft.rfft(x):abs():mean()
          loss = loss + wide:matmul(wide):float():mean() -- with more than 48 KiB of shared memory
          loss:backward()
          opt:step()
          return loss
        end), net
      end
      local one, a = learner "cuda:0"
      local two, b = learner "cuda:1"
      for _ = 1, 5 do
        local l, m = one(), two()
        assert(tostring(m.device) == "cuda:1" and l:item() == m:item())
      end
      for name, p in pairs(a:state_dict()) do assert(p:cpu():equal(b:state_dict()[name]:cpu())) end
      print("alike", one)' 2>&1]])
    local text = pipe:read "*a"
    pipe:close()
    assert.matches("^alike\tcaptured step", text)
  end)

  it("have streams that wait for each other", function()
    local pipe = io.popen("MOTH_EMULATED_DEVICES=2 " .. process.program .. [[ -e '
      local moth = require "moth"
      local s, t = moth.cuda.Stream(0), moth.cuda.Stream "cuda:1"
      local x = moth.randn(1000):pin_memory()
      local a = moth.cuda.stream(s, function() return x:to("cuda:0") * 2 end)
      local e = s:record_event()
      t:wait_stream(s)
      t:wait_event(e)
      local b = moth.cuda.stream(t, function()
        return moth.cuda.stream(s, function() return a:to("cuda:1", {non_blocking = true}) end) + 1
      end)
      local c = x:to("cuda:1", {non_blocking = true})
      local wanted = x:clone()
      x:free()
      moth.zeros(1000):pin_memory():free()
      assert(moth.cuda.current_stream(1) == moth.cuda.default_stream(1))
      t:synchronize()
      assert(moth.allclose(b:cpu(), wanted * 2 + 1) and c:cpu():equal(wanted))
      assert(tostring(t) == "Stream 1 of cuda:1")
      e:record(t)' 2>&1]])
    local text = pipe:read "*a"
    pipe:close()
    assert.matches("the event was recorded on cuda:0, the stream is one of cuda:1", text)
  end)
end)

describe("memory of several streams", function()
  if not cuda.here then
    pending("is not given away while it is read: " .. cuda.why)
    return
  end

  -- x, made on one stream and read on another, is freed; its memory is then written for another
  -- tensor.
  local function claim(made_on, read_on)
    local x = moth.cuda.stream(made_on, function() return moth.ones(5000, { device = "cuda" }) end)
    read_on:wait_stream(made_on)
    local y = moth.cuda.stream(read_on, function() return slowly(x) + 1 end)
    x:record_stream(read_on) -- as PyTorch's scripts do; not needed
    x:free()
    moth.cuda.stream(made_on, function()
      for _ = 1, 4 do
        assert.is_true(moth.zeros(5000, { device = "cuda" }):cpu():equal(moth.zeros(5000)))
      end
    end)
    moth.cuda.stream(read_on, function() assert.is_true(y:cpu():equal(moth.full({ 5000 }, 2))) end)
  end

  it("is not reused while another stream reads it", function()
    local s, t = moth.cuda.Stream(), moth.cuda.Stream()
    for _ = 1, 3 do
      claim(moth.cuda.default_stream(), s)
      claim(s, moth.cuda.default_stream())
      claim(s, t)
      claim(t, t)
    end
  end)

  it("is returned to the driver from all of them", function()
    local s = moth.cuda.Stream()
    moth.cuda.stream(s, function() return moth.ones(1000, { device = "cuda" }):free() end)
    moth.collect()
    moth.cuda.empty_cache()
    assert.equal(moth.cuda.memory_allocated(), moth.cuda.memory_reserved())
  end)
end)

describe("an event", function()
  if not cuda.here then
    pending("has passed once it is waited for: " .. cuda.why)
    return
  end

  it("has passed once it is waited for, and before it was ever recorded", function()
    local e = moth.cuda.Event()
    assert.is_true(e:query())
    e:synchronize()
    slowly(moth.ones(10, { device = "cuda" }))
    e:record()
    e:synchronize()
    assert.is_true(e:query())
  end)

  it("measures the time to another, if both record times", function()
    local a, b = moth.cuda.Event { enable_timing = true }, moth.cuda.Event { enable_timing = true }
    assert.has_error_like(function() a:elapsed_time(b) end, "both events must be recorded before")
    a:record()
    slowly(moth.ones(1000, { device = "cuda" }))
    b:record()
    b:synchronize()
    assert.is_true(a:elapsed_time(b) >= 0)
    local c = moth.cuda.current_stream():record_event()
    c:synchronize()
    assert.has_error_like(function() a:elapsed_time(c) end, "enable_timing = true")
    assert.has_error_like(function() a:elapsed_time(1) end, "an Event is needed, got 1")
  end)

  it("reports that it has not passed, where that can be known", function()
    if not emulated then return end
    local a, b = moth.cuda.Event(true), moth.cuda.Event(true)
    local s = moth.cuda.Stream()
    a:record(s)
    moth.cuda.stream(s, function() slowly(moth.ones(10, { device = "cuda" })) end)
    b:record(s)
    assert.has_error_like(function() a:elapsed_time(b) end, "synchronize%(%) first")
    assert.is_false(b:query())
    local asked = 0
    while not b:query() do asked = asked + 1 end
    assert.is_true(asked > 0 and a:elapsed_time(b) >= 0)
  end)
end)

describe("a forked process", function()
  it("raises: it cannot use the GPU of its parent", function()
    if not cuda.here then
      pending(cuda.why)
      return
    end
    local x = moth.ones(2, { device = "cuda" })
    local s = moth.cuda.Stream()
    local function told(f)
      local ok, message = pcall(f)
      return not ok and message:find("a forked process cannot use the GPU of its parent", 1, true)
        and moth.errcode() == "E_CUDA"
    end
    assert.is_true(child.run(function()
      local fine = told(function() return x + 1 end) and told(function() return x:tolist() end)
        and told(function() return moth.ones(2, { device = "cuda" }) end)
        and told(function() s:synchronize() end)
        and told(function() return moth.ones(2):cuda() end)
        and told(function() return moth.ones(2):pin_memory() end)
      x:free()
      s = nil -- luacheck: ignore
      moth.collect()
      return fine and moth.ones(2):sum():item() == 2
    end))
    assert.same({ 2, 2 }, (x + 1):tolist())
  end)
end)
