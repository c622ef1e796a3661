-- Profiles of ops: shapes, bytes, lines, modules; their tables and traces.

local moth = require "moth"
local chrome = require "spec.support.chrome"
local support = require "spec.support.profiler"

local nn, F = moth.nn, moth.nn.functional
local profile, record_function = moth.profiler.profile, moth.profiler.record_function
local rows_of, is_sound = support.rows_of, support.is_sound

-- The line of the call of this function.
local function here()
  return ("spec/tools/profiler_rows_spec.lua:%d"):format(debug.getinfo(2, "l").currentline)
end

local function is_line(want, got)
  assert.truthy(got and got:sub(-#want) == want, tostring(got) .. ", wanted " .. want)
end

describe("a profile of an op", function()
  it("has the shapes of its tensors", function()
    local x, w, b = moth.randn(4, 3), moth.randn(2, 3), moth.randn(2)
    local prof = profile{function()
      F.linear(x, w, b)
      F.linear(x, w)
      for _ = 1, 3 do local _ = x + 1 end
      moth.cat({x, x, moth.zeros(0, 3)}, 1)
    end, record_shapes = true}
    local found = {}
    for _, row in ipairs(prof:key_averages(true)) do
      found[row.key .. " " .. row.input_shapes] = row.count
    end
    assert.equal(1, found["linear (4, 3), (2, 3), (2)"])
    assert.equal(1, found["linear (4, 3), (2, 3)"])
    assert.equal(3, found["add (4, 3), ()"])
    assert.equal(1, found["cat (4, 3), (4, 3), (0, 3)"])
  end)

  it("has the shapes of each of many thousand calls", function()
    local list = {}
    for n = 1, 7 do list[n] = moth.ones(n, n + 1) end
    local prof = profile{function()
      for k = 0, 13999 do
        local x = list[k % 7 + 1]
        x:add_(x)
      end
    end, record_shapes = true}
    local events = prof:events()
    assert.equal(14000, #events)
    for k, e in ipairs(events) do
      local n = (k - 1) % 7 + 1
      assert.equal(("(%d, %d), (%d, %d)"):format(n, n + 1, n, n + 1), e.input_shapes)
    end
  end)

  it("has the bytes that it added to the live bytes", function()
    moth.collect()
    local peak = moth.memory().peak_bytes
    local x = moth.zeros(1000)
    local prof = profile{function()
      moth.scope(function()
        local y = x + 1
        y:add_(1)
        record_function("two", function() return moth.zeros(500), moth.zeros(500) end)
      end)
    end, profile_memory = true}
    local rows = rows_of(prof)
    assert.same({4000, 4000}, {rows.add.cpu_memory_usage, rows.add.self_cpu_memory_usage})
    assert.equal(0, rows.add_.cpu_memory_usage)
    assert.same({4000, 0}, {rows.two.cpu_memory_usage, rows.two.self_cpu_memory_usage})
    assert.is_true(prof.peak_bytes >= 12000)
    assert.is_true(moth.memory().peak_bytes >= math.max(peak, prof.peak_bytes))
    assert.truthy(tostring(prof):find("self memory", 1, true))
  end)

  it("has the line of its call; a gradient has the line of the forward pass", function()
    local x = moth.randn(3):requires_grad_()
    local made, passed, compiled
    local prof = profile{function()
      local y = x:exp() made = here()
      y:sum():backward() passed = here()
      for _ = 1, 100 do x:sin() end compiled = here()
      moth.summary(nn.Linear(2, 2), {1, 2})
    end, with_stack = true}
    local lines, sines = {}, 0
    for _, e in ipairs(prof:events()) do
      lines[e.name] = e.line
      if e.name == "sin" and e.line:sub(-#compiled) == compiled then sines = sines + 1 end
    end
    is_line(made, lines.exp)
    is_line(passed, lines.backward)
    is_line(made .. " backward", lines["exp backward"])
    is_line(passed .. " backward", lines["sum backward"])
    assert.equal(100, sines)
    local rows = {}
    for _, row in ipairs(prof:key_averages{group_by = "line"}) do
      rows[row.key:match "[^/]*$"] = row
    end
    local exp = rows[made:match "[^/]*$"]
    assert.equal(1, exp.count)
    assert.is_true(exp.cpu_time_total > 0)
    for _, row in ipairs(prof:key_averages{group_by_stack_n = 1}) do
      if row.key == "sin" then
        is_line(compiled, row.line)
        assert.equal(100, row.count)
      end
    end
  end)

  it("has the line of the call that fails, and not of an earlier op", function()
    local x, gone = moth.randn(10), nil
    moth.scope(function() gone = moth.randn(10) end)
    local fine, refused, passed
    local prof = profile{function()
      x:exp() fine = here()
      pcall(function() local y = gone:sin() return y end)
      pcall(function() local y = x:reshape(3) return y end) refused = here()
      local y = moth.ones(2):requires_grad_()
      pcall(function() y:cos():backward() end) passed = here()
    end, with_stack = true}
    local lines = {}
    for _, e in ipairs(prof:events()) do lines[e.name] = e.line end
    is_line(fine, lines.exp)
    is_line(refused, lines.reshape)
    is_line(passed, lines.backward)
  end)

  it("has the op's line in a table whose first row has no line", function()
    local called
    local prof = profile{function() moth.ones(2):exp() called = here() end, with_stack = true}
    local averages = prof:key_averages{group_by_stack_n = 1}
    averages[1].line = nil
    local text = averages:table()
    assert.truthy(text:find("^op +line "), text)
    assert.truthy(text:find(called, 1, true), text)
  end)

  it("has the module that called the op; a gradient has the module of the forward pass", function()
    local Net = nn.class("Net", nn.Module)
    function Net:init()
      self.first = nn.Linear(3, 4)
      self.rest = nn.Sequential(nn.Tanh(), nn.Linear(4, 2))
    end
    function Net:forward(x) return self.rest(self.first(x)):sigmoid() end
    local net, other = Net(), Net()
    local x = moth.randn(5, 3)
    local prof = profile{function()
      for _ = 1, 2 do net(x):sum():backward() end
      other(x)
    end, with_modules = true}
    is_sound(prof)
    local rows = rows_of(prof, {group_by = "module"})
    assert.equal(2, rows.Net.count)
    assert.equal(1, rows["Net 2"].count)
    assert.equal(2, rows["Net.first"].count)
    assert.equal(2, rows["Net.rest"].count)
    assert.equal(2, rows["Net.rest[2]"].count)
    assert.equal(2, rows["Net.first backward"].count)
    assert.equal(2, rows["Net backward"].count) -- sigmoid's
    assert.is_nil(rows["Net 2 backward"])
    assert.is_true(rows.Net.cpu_time_total > rows["Net.rest"].cpu_time_total)
    assert.is_true(rows.Net.self_cpu_time_total < rows.Net.cpu_time_total)
    local by_op = rows_of(prof)
    assert.equal(2, by_op["Net.rest[2]"].count)
  end)

  it("has the same module with hooks, and after an error in a module", function()
    local net = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
    local seen = 0
    local handle = net[1]:register_forward_hook(function() seen = seen + 1 end)
    local prof = profile{function()
      pcall(net, moth.ones(2, 7))
      net(moth.ones(2, 3))
    end, with_modules = true}
    handle:remove()
    is_sound(prof)
    assert.equal(1, seen)
    local rows = rows_of(prof, {group_by = "module"})
    assert.equal(2, rows.Sequential.count)
    assert.equal(2, rows["Sequential[1]"].count)
    assert.equal(1, rows["Sequential[2]"].count)
    local seen_after = profile(function() net(moth.ones(2, 3)) end)
    assert.is_nil(rows_of(seen_after).Sequential)
  end)
end)

describe("the text of a profile", function()
  local prof = profile(function()
    local x = moth.ones(3)
    for _ = 1, 3 do x:mul(2) end
    for _ = 1, 2 do x:add(2) end
  end)

  it("is a table of its ops", function()
    local lines = {}
    for line in tostring(prof):gmatch "[^\n]+" do lines[#lines + 1] = line end
    assert.truthy(lines[1]:find("^op +calls +self CPU +%% +CPU total +per call$"), lines[1])
    assert.equal(5, #lines)
    assert.truthy(lines[5]:find("^self CPU in all "), lines[5])
  end)

  it("is sorted and limited as requested", function()
    local text = prof:key_averages():table{sort_by = "count", row_limit = 2, header = "Ops"}
    assert.truthy(text:find("^Ops\nop "), text)
    assert.truthy(text:find("\nmul +3 .*\nadd +2 "), text)
    assert.falsy(text:find("\nones", 1, true))
    assert.truthy(text:find("2 of 3 rows", 1, true))
    assert.equal("ones", prof:key_averages()[1].key)
    assert.truthy(prof:key_averages():table{sort_by = "self_cuda_time_total"})
  end)

  it("has all rows with row_limit = -1, and none with 0", function()
    local all = prof:key_averages():table{row_limit = -1}
    assert.truthy(all:find("\nones ", 1, true) and all:find("\nadd ", 1, true), all)
    assert.falsy(all:find("of 3 rows", 1, true), all)
    assert.truthy(prof:key_averages():table{row_limit = 0}:find("0 of 3 rows", 1, true))
  end)
end)

describe("the names in a profile", function()
  it("distinguish ranges from ops of the same name", function()
    local x = moth.ones(3)
    local prof = profile(function()
      record_function("mul", function() x:add(1):mul(2):mul(2) end)
      record_function("load", function() end)
    end)
    local found = {}
    for _, row in ipairs(prof:key_averages()) do found[row.key .. " " .. row.kind] = row.count end
    assert.same({["mul range"] = 1, ["add op"] = 1, ["mul op"] = 2, ["load range"] = 1}, found)
    local text = tostring(prof)
    assert.truthy(text:find("\nmul (range) ", 1, true), text)
    assert.truthy(text:find("\nload  ", 1, true), text)
    local kinds = {}
    for i, e in ipairs(prof:events()) do kinds[i] = e.kind end
    assert.same({"range", "op", "op", "op", "range"}, kinds)
  end)

  it("are the names of kernels, also for gradients", function()
    local twice = moth.kernel(function(x) return x * 2 + 1 end)
    local square = moth.kernel(function(x) return x * x + 1 end)
    local x = moth.ones(3):requires_grad_()
    local function both() (twice(x) + square(x)):sum():backward() end
    both()
    local rows = rows_of(profile(function() both() both() end))
    for _, kernel in ipairs{twice, square} do
      local name = tostring(kernel):match "^moth%.(kernel .-)%("
      assert.equal(2, rows[name] and rows[name].count, name)
      assert.equal(2, rows[name .. " backward"] and rows[name .. " backward"].count, name)
    end
    assert.is_true(rows.fused.count >= 4)
  end)

  it("are in the text of an event and of a row", function()
    local prof = profile(function() moth.ones(3):exp() end)
    assert.truthy(tostring(prof:events()[2]):find "^exp: [%d.]+ [um]?s, at [%d.]+ [um]?s$")
    assert.truthy(tostring(prof:key_averages()[2]):find "^exp: 1 call, [%d.]+ [um]?s$")
  end)
end)

describe("the trace of a profile", function()
  it("is a JSON file with each event at its time", function()
    local net = nn.Linear(3, 2)
    local prof = profile{function()
      record_function('a "name"\n\255', function() net(moth.ones(4, 3)):sum():backward() end)
      pcall(function() moth.ones(3):view(2) end)
    end, record_shapes = true, with_stack = true, with_modules = true}
    local trace = chrome.trace_of(prof)
    local whole, kinds = {}, {}
    for _, e in ipairs(trace.traceEvents) do
      if e.ph == "X" then
        whole[#whole + 1] = e
        kinds[e.cat] = true
      end
    end
    local events = prof:events()
    assert.equal(#events, #whole)
    for i, e in ipairs(events) do
      assert.near(e.start, whole[i].ts, 1e-3)
      assert.near(e.cpu_time_total, whole[i].dur, 1e-3)
    end
    assert.equal('a "name"\n?', whole[1].name)
    assert.same({op = true, gradient = true, engine = true, range = true, module = true}, kinds)
    assert.equal("E_SHAPE", whole[#whole].args.error)
    assert.has_error_like(function() prof:export_chrome_trace("/nowhere/trace.json") end,
      "bad argument 'path' to 'export_chrome_trace' %(cannot write '/nowhere/trace.json': No such")
    assert.has_error_like(function() prof:export_chrome_trace("a\0b") end, "cannot hold a NUL")
    assert.has_error_like(function() prof:export_chrome_trace("/dev/full") end, "No space left")
  end)
end)
