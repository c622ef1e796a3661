-- The tables of profiles from given rows, and timers with a clock of the claim: exact texts, sizes
-- of runs, quantiles, both sides of each bound.

local moth = require "moth"
local benchmark = require "moth.profiler.benchmark"

local Measurement = benchmark.Measurement

local function check(text, f)
  local ok, problem = pcall(f)
  assert.is_false(ok, "was taken: " .. text)
  local message = tostring(type(problem) == "table" and problem.message or problem)
  if not message:find(text, 1, true) then error(message .. "\nlacks: " .. text, 2) end
end

-- ---- tables ----

-- Averages with these rows. prof: fields of the profile.
local function averages(rows, prof, options)
  local list = moth.profiler.profile {function() moth.ones(1) end}:key_averages()
  for i = #list, 1, -1 do list[i] = nil end
  for i, given in ipairs(rows) do
    local row = {key = "op" .. i, kind = "op", count = 1}
    for _, name in ipairs {"cpu_time_total", "self_cpu_time_total", "cpu_time", "cpu_memory_usage",
      "self_cpu_memory_usage", "device_time_total", "self_device_time_total", "device_time",
      "device_memory_usage", "self_device_memory_usage"} do row[name] = 0 end
    for name, value in pairs(given) do row[name] = value end
    list[i] = row
  end
  local all = {activities = {cpu = true}, profile_memory = false, time = 1000, peak_bytes = 0,
    dropped = 0}
  for name, value in pairs(prof or {}) do all[name] = value end
  rawset(list, "prof", all)
  for name, value in pairs(options or {}) do rawset(list, name, value) end
  return list
end

local ROWS = {
  {key = "add", count = 3, self_cpu_time_total = 30, cpu_time_total = 60, cpu_time = 20,
    cpu_memory_usage = 2048, self_cpu_memory_usage = -512},
  {key = "matmul", count = 1, self_cpu_time_total = 10, cpu_time_total = 2500, cpu_time = 2500,
    cpu_memory_usage = 3 * 2 ^ 20, self_cpu_memory_usage = 0},
  {key = "sum", count = 12, self_cpu_time_total = 0, cpu_time_total = 1.5e6, cpu_time = 1.25e5},
}

describe("the table of a profile", function()
  it("has times, shares of the sum and a foot", function()
    assert.equal([[
op      calls  self CPU      %  CPU total    per call
add         3   30.0 us  75.0%    60.0 us     20.0 us
matmul      1   10.0 us  25.0%   2.500 ms    2.500 ms
sum        12    0.0 us   0.0%    1.500 s  125.000 ms
self CPU in all 40.0 us, in 1.000 ms]], averages(ROWS):table())
    assert.equal(averages(ROWS):table(), tostring(averages(ROWS)))
  end)

  it("has bytes, and what was live at most", function()
    local text = averages(ROWS, {profile_memory = true, peak_bytes = 5 * 2 ^ 30}):table()
    assert.is_truthy(text:find("    memory  self memory\n", 1, true), text)
    assert.is_truthy(text:find("  2.00 KiB       -512 B\n", 1, true), text)
    assert.is_truthy(text:find("  3.00 MiB          0 B\n", 1, true), text)
    assert.is_truthy(text:find("in 1.000 ms; at most 5.00 GiB live$"), text)
  end)

  it("has the times and bytes of a GPU if it was used", function()
    local rows = {{key = "a", self_device_time_total = 8, device_time_total = 10, device_time = 5,
      count = 2, device_memory_usage = 1023, self_device_memory_usage = 1024}, {key = "b"}}
    local text = averages(rows, {profile_memory = true}):table()
    assert.is_truthy(text:find("self CUDA       %  CUDA total  per call", 1, true), text)
    assert.is_truthy(text:find("CUDA memory  self CUDA memory\n", 1, true), text)
    assert.is_truthy(text:find("  8.0 us  100.0%     10.0 us    5.0 us", 1, true), text)
    assert.is_truthy(text:find("  1023 B          1.00 KiB\n", 1, true), text)
    assert.is_truthy(text:find("in 1.000 ms; 8.0 us on the GPU; at most 0 B live$"), text)
    text = averages(rows, {activities = {cuda = true}}):table()
    assert.is_nil(text:find("self CPU  ", 1, true))
    assert.is_nil(averages(ROWS):table():find "CUDA")
  end)

  it("counts dropped events and rows that are not shown", function()
    local text = averages(ROWS, {dropped = 7}):table {row_limit = 2}
    assert.is_truthy(text:find("in 1.000 ms; 2 of 3 rows; 7 events dropped (max_events)", 1, true))
    assert.is_nil(text:find "sum")
    assert.is_nil(averages(ROWS):table({row_limit = 3}):find "of 3 rows")
    assert.is_truthy(averages(ROWS):table({row_limit = 0}):find "0 of 3 rows$")
    assert.is_nil(averages(ROWS):table({row_limit = -1}):find "rows")
  end)

  it("is sorted by each field, equal rows as they were", function()
    local rows = {{key = "a", count = 1}, {key = "b", count = 2}, {key = "c", count = 2}}
    local fields = {"self_cpu_time_total", "cpu_time_total", "cpu_time", "count",
      "cpu_memory_usage", "self_cpu_memory_usage", "device_time_total", "self_device_time_total",
      "device_time", "device_memory_usage", "self_device_memory_usage"}
    for _, field in ipairs(fields) do
      rows[1][field], rows[2][field], rows[3][field] = 1, 2, 2
      for _, name in ipairs {field, (field:gsub("device", "cuda"))} do
        local order = {}
        local text = averages(rows):table {sort_by = name}
        for key in text:gmatch "\n(%l) " do order[#order + 1] = key end
        assert.equal("b c a", table.concat(order, " "), name)
      end
    end
    check("bad argument 'sort_by' to 'table' (one of self_cpu_time_total, cpu_time_total, "
      .. "cpu_time, "
      .. "count, cpu_memory_usage, self_cpu_memory_usage, device_time_total, "
      .. "self_device_time_total, device_time, device_memory_usage, self_device_memory_usage is "
      .. "needed, got 'counts'; did you mean 'count'",
      function() averages(ROWS):table {sort_by = "counts"} end)
  end)

  it("cuts long names, and has a line above", function()
    local rows = {{key = ("x"):rep(60)}, {key = ("y"):rep(55)}}
    local text = averages(rows):table {header = "above"}
    assert.is_truthy(text:find("^above\nop "))
    assert.is_truthy(text:find("\n" .. ("x"):rep(52) .. "... ", 1, true))
    assert.is_truthy(text:find("\n" .. ("y"):rep(55) .. " ", 1, true))
    text = averages(rows):table {max_name_column_width = 10}
    assert.is_truthy(text:find("\nxxxxxxx... ", 1, true))
    assert.is_truthy(averages(rows):table {max_name_column_width = 1}:find("\nxxxxx... ", 1, true))
  end)

  it("has columns of shapes and lines where rows differ by them", function()
    local rows = {{key = "a", input_shapes = "(2, 3)", line = "x.lua:7"}, {key = "a",
      input_shapes = "()"}}
    local text = averages(rows, nil, {by_shape = true, by_line = true}):table()
    assert.is_truthy(text:find("^op  shapes  line     calls "), text)
    assert.is_truthy(text:find("\na   (2, 3)  x.lua:7      1 ", 1, true), text)
    assert.is_truthy(text:find("\na   ()                   1 ", 1, true), text)
    assert.is_truthy(averages(rows, nil, {by = "module"}):table():find "^module ")
    assert.is_truthy(averages(rows, nil, {by = "line"}):table():find "^line ")
  end)

  it("marks a range that is named like an op", function()
    local rows = {{key = "add"}, {key = "add", kind = "range"}, {key = "own", kind = "range"}}
    local text = averages(rows):table()
    assert.is_truthy(text:find("\nadd (range) ", 1, true))
    assert.is_truthy(text:find("\nadd  ", 1, true))
    assert.is_truthy(text:find("\nown  ", 1, true))
    assert.is_nil(text:find("own (range)", 1, true))
  end)

  it("writes times and bytes in their units", function()
    for us, text in pairs {[0] = "0.0 us", [999.94] = "999.9 us", [999.96] = "1.000 ms",
      [1500] = "1.500 ms", [999949] = "999.949 ms", [999951] = "1.000 s", [2.5e6] = "2.500 s"} do
      assert.is_truthy(averages({{}}, {time = us}):table():find(", in " .. text, 1, true), text)
    end
    for bytes, text in pairs {[0] = "0 B", [1023] = "1023 B", [1024] = "1.00 KiB",
      [-2048] = "-2.00 KiB", [2 ^ 20] = "1.00 MiB", [1.5 * 2 ^ 30] = "1.50 GiB",
      [2 ^ 40] = "1.00 TiB", [2 ^ 50] = "1024.00 TiB"} do
      local prof = {profile_memory = true, peak_bytes = bytes}
      assert.is_truthy(averages({{}}, prof):table():find("at most " .. text .. " live", 1, true),
        text)
    end
  end)

  it("names what it lacks", function()
    check("an EventList has no 'tabel'; did you mean 'table'",
      function() return averages(ROWS).tabel end)
    assert.is_nil(averages(ROWS)[9])
    check("an EventList is made by prof:key_averages()",
      function() require("moth.profiler.averages").EventList({}, "op") end)
  end)
end)

-- ---- timers ----

describe("a measurement", function()
  local timer = {num_threads = 1}

  it("has a median, a mean and quartiles between its times", function()
    local one = Measurement(10, {40, 10, 20, 30}, timer)
    assert.same({4, 1, 2, 3}, one:times())
    assert.near(2.5, one:median(), 1e-12)
    assert.near(2.5, one:mean(), 1e-12)
    assert.near(1.5, one:iqr(), 1e-12) -- 3.25 - 1.75
    local three = Measurement(1, {5, 1, 9}, timer)
    assert.same({5, 5, 4}, {three:median(), three:mean(), three:iqr()})
    local skew = Measurement(1, {1, 1, 1, 1, 6}, timer)
    assert.same({1, 2, 0}, {skew:median(), skew:mean(), skew:iqr()})
    local single = Measurement(2, {6}, timer)
    assert.same({3, 3, 0}, {single:median(), single:mean(), single:iqr()})
  end)

  it("is shown in its unit, with its texts", function()
    local function shown(seconds, options)
      return tostring(Measurement(1, {seconds}, options or timer))
    end
    for seconds, text in pairs {[2] = "2.00 s", [1] = "1.00 s", [0.5] = "500.00 ms",
      [1e-3] = "1.00 ms", [9.99e-4] = "999.00 us", [2e-7] = "200.00 ns", [1e-10] = "0.10 ns"} do
      assert.equal("moth.timer\n  " .. text .. "\n  1 measurement, 1 runs, 1 thread",
        shown(seconds))
    end
    assert.equal("a: b: c\n  1.00 s\n  1 measurement, 1 runs, 4 threads",
      shown(1, {num_threads = 4, label = "a", sub_label = "b", description = "c"}))
    assert.equal("b", Measurement(1, {1}, {sub_label = "b"}):title())
    assert.equal("moth.timer\n  Median: 2.00 s\n  IQR:    1.00 s\n  3 measurements, 5 runs per "
      .. "measurement, 1 thread", tostring(Measurement(5, {5, 10, 15}, timer)))
  end)
end)

describe("a timer", function()
  -- A timer whose calls take `cost` seconds; reading its clock takes `overhead`.
  local function fake(cost, overhead)
    local state = {time = 0, calls = 0, setups = 0}
    local timer = moth.timer(function()
      state.calls, state.time = state.calls + 1, state.time + cost
    end, {setup = function() state.setups = state.setups + 1 end, timer = function()
      state.time = state.time + (overhead or 0)
      return state.time
    end})
    return timer, state
  end

  it("calls a hundredth before it measures, twice at least", function()
    for number, warm in pairs {[1] = 2, [199] = 2, [300] = 3, [1000] = 10} do
      local timer, state = fake(1)
      assert.equal(number, timer:timeit(number).number_per_run)
      assert.same({warm + number, 2}, {state.calls, state.setups})
    end
  end)

  it("measures runs until the time is over, each long enough for the clock", function()
    local timer = fake(0.25)
    local m = timer:blocked_autorange {min_run_time = 1}
    assert.same({1, 4}, {m.number_per_run, #m.raw_times})
    -- A clock of 1 us: runs of 10^4 us and more.
    timer = fake(1e-5, 1e-6)
    m = timer:blocked_autorange {min_run_time = 0.5}
    assert.is_true(m.number_per_run >= 1000, m.number_per_run)
    assert.is_true(m:mean() >= 1e-5 and m:mean() < 1.01e-5)
    local total = 0
    for _, seconds in ipairs(m.raw_times) do total = total + seconds end
    assert.is_true(total >= 0.5 and total - m.raw_times[#m.raw_times] < 0.5)
    -- A call that is longer than all runs is measured once.
    timer = fake(3)
    assert.equal(1, #timer:blocked_autorange {min_run_time = 1}.raw_times)
  end)

  it("measures until the quartiles are near, or the time is over", function()
    local state = {time = 0, n = 0}
    local timer = moth.timer(function()
      state.n = state.n + 1
      state.time = state.time + (state.n % 2 == 0 and 1 or 2)
    end, {timer = function() return state.time end})
    local m = timer:adaptive_autorange {threshold = 0.1, max_run_time = 30}
    local total = 0
    for _, seconds in ipairs(m.raw_times) do total = total + seconds end
    assert.is_true(total >= 30 and total < 33)
    m = timer:adaptive_autorange {threshold = 2, max_run_time = 30}
    assert.equal(3, #m.raw_times)
    m = timer:adaptive_autorange {threshold = 2, min_run_time = 9, max_run_time = 30}
    total = 0
    for _, seconds in ipairs(m.raw_times) do total = total + seconds end
    assert.is_true(total >= 9 and total < 11)
  end)

  it("refuses numbers at its bounds", function()
    check("bad argument 'num_threads' to 'Timer' (a number from 1 is needed, got 0",
      function() moth.timer(print, {num_threads = 0}) end)
    local timer = fake(1)
    check("bad argument 'number' to 'timeit' (a number above 0 is needed, got 0",
      function() timer:timeit(0) end)
    check("bad argument 'min_run_time' to 'blocked_autorange' (a number above 0 is needed, got 0",
      function() timer:blocked_autorange(0) end)
    check("bad argument 'min_run_time' to 'adaptive_autorange' (a number above 0 is needed, got -1",
      function() timer:adaptive_autorange {min_run_time = -1} end)
  end)
end)
