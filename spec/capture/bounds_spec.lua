-- moth.capture at both sides of its bounds: numbers of inputs, variables and watched values; which
-- of many values has changed; reasons, messages and what a refused call leaves.

local moth = require "moth"
local fails = require("spec.support.refusals").fails
local nn = moth.nn

local function made(step) return step.made end

local one = moth.ones(1)

describe("the inputs of a captured step", function()
  it("are at most 100 arguments, 64 tensors and 1000 values, 32 tables deep", function()
    local function first(x) return (moth.is_tensor(x) and x or one) + 1 end
    local function run(...) return moth.capture(first)(...):item() end
    local args = {}
    for i = 1, 101 do args[i] = i end
    assert.equal(2, run(unpack(args, 1, 100)))
    fails("at most 100 arguments are needed, got 101; put them in a table", run, unpack(args))
    local tensors = {}
    for i = 1, 64 do tensors[i] = one end
    assert.equal(2, run(tensors))
    fails("at most 64 tensors", run, one, tensors)
    local values = {}
    for i = 1, 999 do values[i] = i end -- and the table
    assert.equal(2, run(values))
    values[1000] = 1
    fails("1000 values, tables included", run, values)
    local deep = {}
    for _ = 2, 32 do deep = {deep} end
    assert.equal(2, run(deep))
    fails("bad argument 'input 1", run, {deep})
    fails("tables nest 32 levels at most", run, {deep})
  end)

  it("may be the same table twice, but none contains itself", function()
    local step = moth.capture(function(a, b) return a[1] + b[1].x end)
    local t = {one, x = one}
    for _ = 1, 3 do assert.equal(2, step(t, {t}):item()) end
    local shared = {one}
    local both = moth.capture(function(p) return p.a[1] + p.b[1] end)
    assert.equal(2, both({a = shared, b = shared}):item())
    t.self = t
    fails("bad argument 'input 1.self' to 'capture' (a table that contains itself", step, t, {t})
  end)

  it("are named in messages by their place", function()
    local step = moth.capture(function() return one + 1 end)
    local wrong = nn.Linear(1, 1)
    for _, row in ipairs {
      {{x = wrong}, "'input 1.x'"}, {{wrong}, "'input 1[1]'"}, {{a_1 = {[true] = wrong}},
      "'input 1.a_1[true]'"}, {{["a b"] = wrong}, "'input 1[\"a b\"]'"},
      {{["1a"] = wrong}, "'input 1[\"1a\"]'"}, {{[0.5] = wrong}, "'input 1[0.5]'"},
    } do fails("bad argument " .. row[2] .. " to 'capture'", step, row[1]) end
    fails("bad argument 'input 2' to 'capture'", step, one, wrong)
    fails("bad argument 'input 1' to 'capture' (the keys of a table are strings, finite numbers",
      step, {[math.huge] = 1})
    fails("strings, finite numbers and booleans here", step, {[-math.huge] = 1})
    fails("strings, finite numbers and booleans here", step, {[one] = 1})
    fails("its gradient would not leave the step", step, moth.ones(1, {requires_grad = true}))
    assert.equal(2, moth.no_grad(step, moth.ones(1, {requires_grad = true})):item())
    fails("bad argument 'verify' to 'capture' (a number from 0 on is needed, got -1", moth.capture,
      print, -1)
    fails("bad argument 'fn' to 'capture'", moth.capture, 5)
  end)

  it("that are constants differ by type, sign of 0 and NaN", function()
    local step = moth.capture(function(x, v) return x + (type(v) == "number" and v or 0) end, 0)
    local nan = 0 / 0
    local calls = {1, 1, "1", "1", true, true, 0, 0, -0.0, -0.0, nan, nan, false, false}
    local counts = {1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7}
    for i, v in ipairs(calls) do
      step(one, v)
      assert.equal(counts[i], made(step), i)
    end
    step(one, nil)
    assert.equal(8, made(step))
    step(one)
    assert.equal(9, made(step)) -- a nil is an argument
    step(one, nan)
    assert.equal(9, made(step))
  end)
end)

describe("a captured step whose results", function()
  it("are nils, constants and tables returns as many", function()
    local function results(f) return select("#", moth.capture(f)(one)) end
    assert.equal(0, results(function() end))
    assert.equal(3, results(function(x) return x + 1, nil, nil end))
    assert.equal(1, results(function() return 5 end))
    local step = moth.capture(function(x) return {x + 1, name = "a"}, x * 2 end)
    for i = 1, 4 do
      local t, y = step(moth.full({1}, i))
      assert.same({i + 1, "a", 2 * i}, {t[1]:item(), t.name, y:item()})
      t.name = nil
    end
    local loop = moth.capture(function(x) local t = {x + 1} t.t = t return t, t end)
    for i = 1, 3 do
      local t, u = loop(moth.full({1}, i))
      assert.is_true(t == u and t.t == t)
      assert.equal(i + 1, t[1]:item())
    end
  end)
end)

describe("recordings of a captured step", function()
  it("are 8 at most, the last used first", function()
    local step = moth.capture(function(x, v) return x * v end, 0)
    assert.equal("captured step (0 recordings)", tostring(step))
    for v = 1, 8 do step(one, v) end
    assert.equal("captured step (8 recordings; the last since input 2 is 8 now, and was 7 before "
      .. "(numbers are constants of a recording; moth.tensor(x) is an input))", tostring(step))
    assert.equal(8, made(step))
    assert.equal(1, step(one, 1):item()) -- the oldest becomes the first
    step(one, 9)
    assert.equal(9, made(step))
    assert.is_truthy(tostring(step):find("8 recordings, 9 made", 1, true))
    assert.equal(1, step(one, 1):item())
    assert.equal(9, made(step))
    step(one, 2) -- that was dropped
    assert.equal(10, made(step))
    step:free()
    fails("this captured step was freed", step, one, 1)
    step:free()
  end)

  it("warn at the ninth only", function()
    local lines = {}
    local step = moth.capture(function(x, v) return x * v end, 0)
    local warn = moth.warn
    moth.warn = function(text) lines[#lines + 1] = text end
    local ok, problem = pcall(function()
      for v = 1, 12 do
        step(one, v)
        assert(#lines == (v < 9 and 0 or 1), v)
      end
    end)
    moth.warn = warn
    assert(ok, problem)
    assert.is_truthy(lines[1]:find("recorded for the 9th time, and the last 8", 1, true))
  end)
end)

describe("the state that a captured step changes", function()
  it("in each of three runs is an error, and then in each call", function()
    local n = 0
    local step = moth.capture(function(x)
      n = n + 1
      return x * n
    end)
    assert.equal(1, step(one):item())
    assert.equal(2, step(one):item())
    fails("changed its initial state in each of 3 runs ('n', which it also reads", step, one)
    assert.equal(3, n)
    fails("changed its initial state in each of 3 runs", step, one)
    assert.equal(3, n)
    step:free()
    fails("this captured step was freed", step, one)
  end)

  it("in two runs only is not", function()
    local n = 0
    local step = moth.capture(function(x)
      if n < 2 then n = n + 1 end
      return x * n
    end)
    for i, wanted in ipairs {1, 2, 2, 2} do assert.equal(wanted, step(one):item(), i) end
    assert.equal(1, made(step))
  end)

  it("counts if its contents differ, not if an equal table is made again", function()
    local function runs(change)
      local t = {a = {1, 2, 3, 4, 5}, b = one}
      local step = moth.capture(function(x)
        local y = x * t.a[1]
        t = change(t)
        return y
      end, 0)
      for _ = 1, 3 do
        local ok, problem = pcall(step, one)
        if not ok then return problem end
      end
      return made(step)
    end
    assert.equal("number", type(runs(function(t) return t end)))
    assert.equal("number", type(runs(function() return {a = {1, 2, 3, 4, 5}, b = one} end)))
    assert.equal("number", type(runs(function() return {a = {1, 2, 3, 4, 5}, b = one * 2} end)))
    local function list(first, n)
      local a = {}
      for i = 1, n do a[i] = i end
      a[1] = first
      return {a = a, b = one}
    end
    for _, change in ipairs {
      function(t) return list(t.a[1] + 1, 5) end,
      function(t) return list(1, #t.a + 1) end,
      function(t) return list(1, #t.a - 1) end,
      function(t) return {a = {1, t.a[2] + 1, 3, 4, 5}, b = one} end,
    } do
      assert.is_truthy(tostring(runs(change)):find("in each of 3 runs", 1, true))
    end
  end)
end)

-- The values that are compared before a replay are in functions of 50 variables and 100 fields;
-- above 300 fields a loop compares them.
describe("each of many values that a captured step reads is watched:", function()
  for _, n in ipairs {1, 49, 50, 51, 59} do
    it(n .. " variables", function()
      local source = {}
      for i = 1, n do source[i] = ("local v%d = %d"):format(i, i) end
      source[#source + 1] = "local function set(i, v)"
      for i = 1, n do source[#source + 1] = ("if i == %d then v%d = v end"):format(i, i) end
      source[#source + 1] = "end return function(x) return x * (0"
      for i = 1, n do source[#source + 1] = (" + v%d"):format(i) end
      source[#source + 1] = ") end, set"
      local fn, set = assert(loadstring(table.concat(source, "\n")))()
      local step, sum = moth.capture(fn, 0), n * (n + 1) / 2
      assert.equal(sum, step(one):item())
      for _, i in ipairs {1, math.ceil(n / 2), math.max(n - 1, 1), n} do
        set(i, i + 1000)
        assert.equal(sum + 1000, step(one):item())
        set(i, i)
        assert.equal(sum, step(one):item())
      end
    end)
  end

  for _, n in ipairs {1, 99, 100, 101, 199, 201, 297, 298, 299, 300, 301, 302, 450} do
    it(n .. " elements of a list", function()
      local t = {}
      for i = 1, n do t[i] = i end
      local function sum(list)
        local s = 0
        for i = 1, #list do s = s + list[i] end
        return s
      end
      local step, total = moth.capture(function(x) return x * sum(t) end, 0), n * (n + 1) / 2
      assert.equal(total, step(one):item())
      for _, i in ipairs {1, math.ceil(n / 2), math.max(n - 1, 1), n} do
        t[i] = i + 1000
        assert.equal(total + 1000, step(one):item())
        t[i] = i
        assert.equal(total, step(one):item())
      end
      t[n + 1] = 5
      assert.equal(total + 5, step(one):item())
      t[n + 1] = nil
      assert.equal(total, step(one):item())
    end)
  end

  it("fields of each kind of key and value, among few and many", function()
    for _, many in ipairs {0, 350} do
      local function f() end
      local long = ("k"):rep(120)
      local t = {[0.5] = 1, [-3] = 2, [2 ^ 40] = 3, [true] = 4, [long] = 5, ["a b"] = 6,
        nan = 0 / 0, zero = 0, text = "x", no = false, f = f, yes = true}
      for i = 1, many do t[i] = i end
      local function size(list)
        local n = 0
        for _ in pairs(list) do n = n + 1 end
        return n
      end
      for key, value in pairs {[0.5] = 7, [-3] = 7, [2 ^ 40] = 7, [true] = 7, [long] = 7,
        ["a b"] = 7, nan = 1, zero = -0.0, text = "y", no = true, f = print, yes = false} do
        local step, before = moth.capture(function(x) return x * size(t) end, 0), t[key]
        step(one)
        step(one)
        assert.equal(1, made(step))
        t[key] = value
        step(one)
        assert.equal(2, made(step), tostring(key))
        t[key] = before
        step(one)
        assert.equal(2, made(step), tostring(key))
      end
    end
  end)
end)

describe("step.why", function()
  it("names each kind of change", function()
    local mode, t
    local x = moth.ones(2)
    local rows = {
      {function(s) s({x}) s({x}, 1) end, "the number of arguments is 2 now, and was 1 before"},
      {function(s) s({x}) s(x) end, "input 1 is f32 (2) now, and was a table before"},
      {function(s) s(x) s(5) end, "input 1 is 5 now, and was f32 (2) before"},
      {function(s) s(x) s(moth.ones(3)) end, "input 1 is f32 (3) now, and was f32 (2) before"},
      {function(s) s(x) s(x:double()) end, "input 1 is f64 (2) now, and was f32 (2) before"},
      {function(s) s({a = x}) s({b = x}) end, "input 1 has no key 'a' now"},
      {function(s) s({a = x}) s({a = x, b = x}) end, "input 1 has other keys"},
      {function(s) s({a = {1}}) s({a = {2}}) end, "input 1[a][1] is 2 now, and was 1 before (num"
        .. "bers are constants of a recording; moth.tensor(x) is an input)"},
      {function(s) s("a") s("b") end, "input 1 is a string ('b') now, and was a string ('a') "
        .. "before"},
      {function(s) s(0 / 0) s(1) end, "input 1 is 1 now, and was "},
      {function(s) s(x) moth.no_grad(s, x) end, "the grad mode has changed"},
      {function(s) s(x) mode = 2 s(x) end, "'mode', which the function takes from outside, is 2 "
        .. "now, and was 1 before; pass a value that changes at each call as a tensor argument"},
      {function(s) s(x) t = {a = 1} s(x) end, "'t', which the function takes from outside, is "
        .. "another table; pass"},
    }
    for _, row in ipairs(rows) do
      mode, t = 1, {a = 1}
      local step = moth.capture(function(v)
        local y = moth.is_tensor(v) and v or one
        return y * mode + t.a
      end, 0)
      row[1](step)
      assert.equal(2, made(step))
      if not step.why or step.why:sub(1, #row[2]) ~= row[2] then
        error(tostring(step.why) .. "\nis not " .. row[2])
      end
    end
  end)
end)

describe("the verification of a captured step", function()
  local function counted(verify)
    local runs = 0
    local step = moth.capture(function(x)
      runs = runs + 1
      return x + 1
    end, verify)
    local list = {}
    for i = 1, 5 do
      step(one)
      list[i] = runs
    end
    return list
  end
  it("undoes the counts of the step itself", function()
    for verify = 0, 3 do assert.same({1, 1, 1, 1, 1}, counted(verify)) end
  end)

  it("names the result that differs", function()
    local step = moth.capture(function(x) return x + 1, x * os.clock() end)
    local ok, problem
    for _ = 1, 3 do
      ok, problem = pcall(step, one)
      if not ok then break end
    end
    assert.is_false(ok)
    assert.is_truthy(tostring(problem):find("result 2 differs between a replay and the step itself",
      1, true), problem)
    local _, again = pcall(step, one)
    assert.equal((tostring(problem):gsub("^.-result", "result")),
      (tostring(again):gsub("^.-result", "result")))
  end)

  it("names a tensor and a gradient", function()
    local function verdict(f)
      local step = moth.capture(f)
      for _ = 1, 3 do
        local ok, problem = pcall(step, one)
        if not ok then return tostring(problem):match "(%a[%a ]+) differs" end
      end
    end
    local x, w = moth.zeros(1), moth.ones(1, {requires_grad = true})
    assert.equal("a tensor that the step changes", verdict(function(v) x:add_(os.clock()) return v
      + 1 end))
    assert.equal("a gradient", verdict(function(v)
      w.grad = nil
      (w * os.clock()):sum():backward()
      return v + 1
    end))
  end)
end)
