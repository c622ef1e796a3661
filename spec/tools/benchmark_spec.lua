-- moth.time and moth.timer measure; moth.testing compares; moth.random restores its stream.

local moth = require "moth"
local testing = moth.testing

describe("moth.time", function()
  it("never decreases, and counts seconds", function()
    local from = moth.time()
    local stop = os.clock() + 0.02
    while os.clock() < stop do moth.ones(1) end
    local seconds = moth.time() - from
    assert.is_true(seconds >= 0.01 and seconds < 20)
  end)
end)

describe("moth.version", function()
  it("is the version as a string", function()
    assert.matches("^%d+%.%d+%.%d+", moth.version)
    assert.equal("Moth " .. moth.version, moth._VERSION)
  end)
end)

describe("moth.timer", function()
  -- A clock that advances by a tenth of a second at each call, and counts the calls of f.
  local function counted()
    local state = { time = 0, calls = 0 }
    local timer = moth.timer { function()
      state.calls, state.time = state.calls + 1, state.time + 0.1
    end, label = "step", sub_label = "small", timer = function() return state.time end }
    return timer, state
  end

  it("timeit measures a number of calls", function()
    local timer, state = counted()
    local m = timer:timeit(50)
    assert.equal(52, state.calls)
    assert.equal(50, m.number_per_run)
    assert.near(0.1, m:median(), 1e-12)
    assert.near(0.1, m:mean(), 1e-12)
    assert.matches("step: small\n  100.00 ms\n  1 measurement, 50 runs, 1 thread", tostring(m))
  end)

  it("blocked_autorange measures until the time is over", function()
    local timer = counted()
    local m = timer:blocked_autorange { min_run_time = 5 }
    assert.is_true(#m.raw_times > 1)
    assert.near(0.1, m:median(), 1e-9)
    assert.near(0, m:iqr(), 1e-9)
    assert.matches("measurements", tostring(m))
  end)

  it("adaptive_autorange ends when the quartiles are near", function()
    local timer = counted()
    assert.equal(3, #timer:adaptive_autorange().raw_times)
  end)

  it("measures runs of ten garbage collections if calls make garbage", function()
    local time, kept = 0, nil
    local function call()
      time, kept = time + 1e-9, { {}, {}, {}, {}, {}, {}, {}, {} }
    end
    local timer = moth.timer(call, { timer = function() return time end })
    local m = timer:blocked_autorange { min_run_time = 1e-5 }
    local passed = require("moth.profiler.benchmark").cycles()
    for _ = 1, m.number_per_run do call() end
    assert.equal(8, #kept)
    assert.is_true(passed() >= 8, passed() .. " cycles in " .. m.number_per_run .. " calls")
  end)

  it("calls setup, and restores the number of threads", function()
    local before, seen, set = moth.get_num_threads(), nil, 0
    local timer = moth.timer(function() seen = moth.get_num_threads() end,
      { setup = function() set = set + 1 end, num_threads = before + 1 })
    timer:timeit(3)
    assert.equal(before + 1, seen)
    assert.equal(2, set)
    assert.equal(before, moth.get_num_threads())
    assert.has_error(function() moth.timer(function() error "x" end):timeit(1) end)
    assert.equal(before, moth.get_num_threads())
  end)

  it("is torch.utils.benchmark.Timer, and raises for a value that is no function", function()
    assert.equal(moth.timer, moth.utils.benchmark.Timer)
    assert.error_matches(function() moth.timer "x" end,
      "bad argument 'stmt' to 'Timer' (a function is needed", 1, true)
    assert.error_matches(function() moth.timer(print):timeit(0) end,
      "bad argument 'number' to 'timeit' (a number above 0 is needed, got 0)", 1, true)
  end)
end)

describe("moth.testing.assert_close", function()
  local x = moth.tensor { 1, 2, 3 }

  it("accepts values within the dtype's tolerances", function()
    testing.assert_close(x, x + 1e-6)
    testing.assert_close(x:half(), (x + 1e-3):half())
    testing.assert_close({ x, 2, "a" }, { x, 2 + 1e-8, "a" })
    testing.assert_close(moth.tensor { moth.nan }, moth.tensor { moth.nan }, { equal_nan = true })
    testing.assert_close(x, x:double(), { check_dtype = false })
    testing.assert_close(x, x + 1, { rtol = 0, atol = 1 })
  end)

  it("names the difference, its size and its position", function()
    assert.error_matches(function() testing.assert_close(x, moth.tensor { 1, 2, 4 }) end,
      "assert_close: 1 of 3 elements are not close; the largest difference is 1 at {3} "
        .. "(rtol 1.3e-06, atol 1e-05)", 1, true)
    assert.error_matches(function() testing.assert_close(x, x:double()) end,
      "the dtypes differ: moth.float32 and moth.float64", 1, true)
    assert.error_matches(function() testing.assert_close(x, x:narrow(1, 1, 2)) end,
      "the shapes differ: (3) and (2)", 1, true)
    assert.error_matches(function() testing.assert_close({ 1, { 2, x } }, { 1, { 2, x + 1 } }) end,
      "(at [2][2])", 1, true)
    assert.error_matches(function() testing.assert_close({ 1 }, { 1, 2 }) end,
      "a value is missing (at [2])", 1, true)
    assert.error_matches(function() testing.assert_close(1, 2, { msg = "no" }) end,
      "assert_close: no", 1, true)
    assert.error_matches(function() testing.assert_close(x, x, { rtol = 1 }) end,
      "rtol and atol are given both or neither", 1, true)
  end)

  it("make_tensor draws from a range", function()
    local y = testing.make_tensor({ 100 }, moth.float32, { low = 2, high = 3 })
    assert.is_true(y:min():item() >= 2 and y:max():item() < 3)
    assert.equal(moth.bool, testing.make_tensor({ 2, 3 }, moth.bool).dtype)
    assert.equal(moth.uint8, testing.make_tensor({ 2, 3 }, moth.uint8).dtype)
    assert.error_matches(function() testing.make_tensor({ 1 }, moth.float32, { low = 9 }) end,
      "bad argument 'low' to 'make_tensor' (a number below high (9) is needed, got 9)", 1, true)
  end)
end)

describe("moth.random.fork_rng", function()
  it("restores the random stream, also after an error", function()
    moth.manual_seed(3)
    local inside = moth.random.fork_rng(function() return moth.rand(1):item() end)
    assert.equal(inside, moth.rand(1):item())
    moth.random.manual_seed(3)
    assert.has_error(function()
      moth.random.fork_rng(function()
        moth.rand(1)
        error "x"
      end)
    end)
    assert.equal(inside, moth.rand(1):item())
  end)
end)
