-- The functions of a sandbox's scripts against those of plain Lua, by many arguments; the sizes at
-- which they refuse; options, messages, and what a sandbox keeps.

local moth = require "moth"
local measure = require "moth.sandbox.measure"
local pattern = require "moth.sandbox.library_pattern"
local text = require "moth.sandbox.text"

local env = moth.sandbox().env

-- The results of a call as a list, or the message without its place.
local function outcome(f, ...)
  local results = {n = select("#", pcall(f, ...)), pcall(f, ...)}
  if results[1] then return results end
  return {false, (tostring(results[2]):gsub("^[^:]*:%d+: ", ""))}
end

local function check(wanted, f, ...)
  local ok, problem = pcall(f, ...)
  assert.is_false(ok, "was taken: " .. wanted)
  local message = tostring(type(problem) == "table" and problem.message or problem)
  if not message:find(wanted, 1, true) then error(message .. "\nlacks: " .. wanted, 2) end
end

describe("the pattern matching of a sandbox finds what Lua's finds:", function()
  local PATTERNS = {"", "a", ".", "a*", "a+", "a-", "a?", "^a", "a$", "^$", "$", "^", "%a+", "%A",
    "[abc]+", "[^abc]+", "[a-c]*b", "[]]", "[^]]", "[]a]", "[%]a]", "[%a_]+", "[a%-c]", "[a-]",
    "%d%d?", "(a)(b)", "()a()", "(a*(.)%w(%s*))", "((a)(b))", "(a)%1", "(.)(.)%2%1", "%b()",
    "%bxx", "%b(]", "%f[%w]%w+", "%f[^%w]", "%f[%z]", "%%", "%.", "%s*$", "^%s*(.-)%s*$", "a.-b",
    "a.*b", ".-b$", "x*", "(x*)", "()", "(a-)b", "a?a?b", "[^%s]+%s", "%S+", "%w%W", "[%w.]+",
    "a%", "%", "[a", "[a-", "(a", "(a))", "%f", "%fa", "%b", "%ba", "%1", "(a)%2", "(%1)", "[",
    "[^", "[]", "%z", "%c", "%x+", "%l%u", "^(a)$", "a^", "a$b", "(((((a)))))", "[%%]", "[$]",
    "[^^]", "[\1-\31]", "\255", "*a", "+", "-", "?", "a**", "a-?"}
  local TEXTS = {"", "a", "b", "ab", "aab", "aaab", "abab", "abba", "a b", " a ", "a(b(c)d)e",
    "((", "))", "xax", "a]b", "a-c", "a.b%c", "THE (quick) fox", "k = v", "1a 22 333b", "a\0b",
    "\255a", "a^b$", "a_b", "bAaB", "aXbb]\n"}

  -- A literal part of a pattern, as a set of one character where Lua's own matcher is the judge.
  for _, p in ipairs(PATTERNS) do
    it(("%q"):format(p), function()
      for _, s in ipairs(TEXTS) do
        for init = 1, math.min(#s + 1, 3) do
          -- string.find takes a text without special characters as plain.
          local wanted = outcome(string.find, s, p, init)
          local got = outcome(function()
            local a, b, list = pattern.find(s, p, init, true)
            if not a then return nil end
            return a, b, unpack(list)
          end)
          if wanted[1] == false then
            assert.is_false(got[1], s)
            local short = got[2]
            assert.is_truthy(wanted[2]:find(short, 1, true) or short:find "malformed pattern"
              or short:find "capture" or short:find "unbalanced" or short:find "missing",
              wanted[2] .. " / " .. short)
          else
            assert.same(wanted, got, ("%q from %d"):format(s, init))
          end
        end
      end
    end)
  end

  it("32 captures, not 33", function()
    local s = ("a"):rep(40)
    local list = select(3, pattern.find(s, ("(a)"):rep(32), 1))
    assert.equal(32, #list)
    check("too many captures", pattern.find, s, ("(a)"):rep(33), 1)
  end)

  it("a depth of 200", function()
    local s = ("a"):rep(300)
    assert.equal(1, (pattern.find(s, ("a?"):rep(190), 1)))
    check("pattern too complex", pattern.find, s, ("a?"):rep(210), 1)
  end)

  it("only at the beginning of a pattern ^", function()
    assert.is_nil((pattern.find("ba", "^a", 1, true)))
    assert.equal(2, (pattern.find("ba", "^a", 2, true)))
    assert.is_nil((pattern.find("ba", "^a", 1, false)))
    assert.equal(1, (pattern.find("^a", "^a", 1, false)))
  end)
end)

-- ---- string functions ----

describe("the string functions of a sandbox equal Lua's:", function()
  -- A text that is long enough for the sandbox's own matcher.
  local long = ("ab cd(e(f)g)=1, "):rep(20) .. ("z"):rep(300) .. " end; x = y"
  local CALLS = {
    find = {{"abc", "b"}, {"abc", "b", -1}, {"abc", "b", -9}, {"abc", "b", 0}, {"abc", "b", 9},
      {"abc", "", 4}, {"abc", "", 5}, {"a.c", ".", 2, true}, {"a.c", "%."}, {12321, 3},
      {"abc", "c", -1}, {"x", "%"}, {"abc", "(b)()"}, {long, "z.-z.-;"}, {long, "z.-z.-;", -5},
      {long, "z.-z.-;", 400}, {long, "(%w+)%s*=%s*(%w+)$"}, {long, "q.-z.-;"}, {"a", nil}, {nil,
        "a"},
      {long, "x", -6}, {{}, "x"}, {"x", {}}},
    match = {{"key = v", "(%w+) = (%w+)"}, {"abc", "b"}, {"abc", "x"}, {"abc", "()b"},
      {"abc", "b", 3}, {123, 2}, {long, "z.-z.-;"}, {long, "(z.-)(z.-);"}, {long, "q.-z.-;"},
      {long, "^.-%((.-)%)"}, {long, "z.-z.-;", -8}, {nil, "a"}, {"a", true}},
    gsub = {{"abc", "b", "x"}, {"abc", "", "-"}, {"abc", "%w", "%0%0"}, {"abc", "(b)", "[%1]"},
      {"abc", "b", "%%"}, {"abc", "b", "%1"}, {"abc", "b", "%2"}, {"abc", "(a)(b)", "%2%1"},
      {"abc", ".", {a = "1", b = false}}, {"abc", ".",
        function(c) return c ~= "b" and "<" or nil end},
      {"aaa", "a", "b", 2}, {"aaa", "a", "b", 0}, {"aaa", "a", "b", -1}, {"aaa", "^a", "b"},
      {"abc", "b", 7}, {121, 2, 3}, {"abc", ".", {a = true}}, {"abc", ".", {a = {}}}, {"a", "a"},
      {"a", "a", true}, {"a", "a", "b", "x"}, {nil, "a", "b"}, {"a", nil, "b"},
      {long, "(%w+)%s*=%s*(%w+)%s*,", "%2:%1;"}, {long, "(%w+)%s*=%s*(%w+)%s*,", "%0", 3},
      {long, "z.-z.-;", "<%0>"}, {long, "z.-z.-;", {}}, {long, "x*z*", "-"},
      {long, "(x*)(z*)", function(a, b) return #a .. "," .. #b end, 40},
      {long, "(z.-)(z.-);", function(a, b) return #a + #b end}, {long, "^a.-z.-;", "-"},
      {long, "z.-z.-;", "%%%0%%"}, {long, "z.-z.-;", "%3"}},
    rep = {{"ab", 3}, {"ab", 0}, {"ab", -1}, {"ab", 2, ","}, {"ab", 1, ","}, {12, 2}, {"a"}, {nil,
      2},
      {"", 5}, {"a", 3, ""}},
    byte = {{"abc"}, {"abc", 2}, {"abc", -1}, {"abc", 1, -1}, {"abc", 2, 9}, {"abc", -2, -1}, {"",
      1},
      {"abc", 3, 2}, {"abc", 1, 0}, {"abc", -9}, {"abc", -3, -3},
      {"abc", -9, -2}, {"abc", 0}, {"abc", 4}},
    format = {{"%d %s %5.1f|%-4s|%q", 3, "a", 2.25, "b", "c\n"}, {"%%"}, {"%s", nil}, {"%s", true},
      {"%5.2s|", "abc"}, {"%x %X %o %e %g", 255, 255, 8, 1.5, 1e10}, {"%c", 65}, {"%d", "x"},
      {"%s"}, {12}, {nil}, {"%i", 3.0}},
    lower = {{"AbC"}}, upper = {{"AbC"}}, len = {{"abc"}, {""}}, reverse = {{"abc"}},
    sub = {{"abc", 2}, {"abc", -2, -2}, {"abc", 0}, {"abc", 2, 9}}, char = {{65, 66}, {}},
  }
  for name, list in pairs(CALLS) do
    it(name, function()
      for i, arguments in ipairs(list) do
        local wanted = outcome(string[name], unpack(arguments, 1, 4))
        local got = outcome(env.string[name], unpack(arguments, 1, 4))
        if wanted[1] == false then
          assert.is_false(got[1], i)
          local number = wanted[2]:match "^bad argument (#%d+)"
          if number then assert.is_truthy(got[2]:find(number, 1, true), name .. " " .. i) end
          local kind = wanted[2]:match "%((.-) expected"
          if kind and kind ~= "value" then
            assert.is_truthy(got[2]:find(kind, 1, true) or got[2]:find "expected",
              got[2] .. " / " .. wanted[2])
          end
        else
          assert.same(wanted, got, name .. " " .. i)
        end
      end
    end)
  end

  it("gmatch", function()
    for _, row in ipairs {{"a1b22", "%d+"}, {"k=v, x=y", "(%w)=(%w)"}, {"abc", ""}, {"", ""},
      {"abc", "()"}, {long, "(%w+)%s*=%s*(%w+)%s*,"}, {long, "%(.-%)"}, {long, "x*z*"},
      {long, "z.-z.-;"}, {"aaa", "^a"}} do
      local wanted, got = {}, {}
      for a, b in row[1]:gmatch(row[2]) do wanted[#wanted + 1] = tostring(a) .. tostring(b) end
      for a, b in env.string.gmatch(row[1], row[2]) do
        got[#got + 1] = tostring(a) .. tostring(b)
        if #got > 5000 then break end
      end
      assert.same(wanted, got, row[2])
    end
    local step = env.string.gmatch(long, "z.-z.-;")
    step()
    assert.is_nil((step()))
    assert.is_nil((step())) -- also after the end
    check("bad argument #1 to 'gmatch' (string expected, got no value", env.string.gmatch)
    check("bad argument #2 to 'gmatch' (string expected, got table", env.string.gmatch, "a", {})
  end)

  it("find of a long plain text, in pieces", function()
    local s = ("ab"):rep(300000) .. "needle" .. ("ab"):rep(10)
    local p = ("ab"):rep(500) .. "needle"
    for _, init in ipairs {1, 2, 599001, 599002, -700, 600100, -1} do
      assert.same({s:find(p, init, true)}, {env.string.find(s, p, init, true)}, init)
    end
    assert.is_nil((env.string.find(s, p .. "x", 1, true)))
    assert.same({s:find("abneedle", 1, true)}, {env.string.find(s, "abneedle", 1, true)})
  end)
end)

describe("a sandbox refuses sizes:", function()
  local small = moth.sandbox {string = 100}
  local own = small.env

  it("of repeated texts", function()
    assert.equal(100, #own.string.rep("ab", 50))
    check("rep: a string of 102 bytes; this sandbox allows 100", own.string.rep, "ab", 51)
    assert.equal(99, #own.string.rep("a", 50, ","))
    check("rep: a string of 102 bytes; this sandbox allows 100", own.string.rep, "a", 51, ",")
    assert.equal("", own.string.rep("ab", -1000))
  end)

  it("of replaced texts, by each kind of replacement", function()
    local ten = ("a"):rep(10)
    assert.equal(100, #(own.string.gsub(ten, "a", ("b"):rep(10))))
    check("gsub: a string of 110 bytes", own.string.gsub, ten, "a", ("b"):rep(11))
    check("gsub", own.string.gsub, ten, "a+", ("%0"):rep(11))
    check("gsub", own.string.gsub, ten, "a", function() return ("b"):rep(11) end)
    check("gsub", own.string.gsub, ten, "a", {a = ("b"):rep(11)})
    assert.equal(90, #(own.string.gsub(ten, "a", function() return ("b"):rep(9) end)))
    assert.equal(100, #(own.string.gsub(("a"):rep(99), "a", "bb", 1)))
  end)

  it("of joined texts", function()
    assert.equal(100, #own.table.concat({("a"):rep(50), ("b"):rep(50)}))
    check("concat: a string of 101 bytes", own.table.concat, {("a"):rep(50), ("b"):rep(51)})
    assert.equal(100, #own.table.concat({("a"):rep(49), ("b"):rep(50)}, ","))
    check("concat: a string of 101 bytes", own.table.concat, {("a"):rep(50), ("b"):rep(50)}, ",")
    check("concat", own.table.concat, {1, 2, 3, 4, 5, 6, 7, 8, 9})
    assert.equal("b,c", own.table.concat({"a", "b", "c"}, ",", 2))
    assert.equal("a,b", own.table.concat({"a", "b", "c"}, ",", 1, 2))
    check("bad argument #1 to 'concat' (table expected, got string", own.table.concat, "a")
    check("invalid value", own.table.concat, {{}})
    assert.equal(100, #small:run "return ('a'):rep(50) .. ('b'):rep(50)")
    check("..: a string of 101 bytes; this sandbox allows 100", small.run, small,
      "return ('a'):rep(50) .. ('b'):rep(51)")
  end)

  it("of formatted texts, by the number of their marks", function()
    check("format: a string of", own.string.format, "%s", "a")
    local wide = moth.sandbox({string = 115}).env.string.format
    assert.equal("abc", wide("%s", "abc"))
    check("format: a string of 116 bytes; this sandbox allows 115", wide, "%s", "abcd")
    check("'%p' shows addresses", wide, "%5p", {})
    assert.equal("%p", moth.sandbox().env.string.format "%%p")
  end)

  it("of texts to load, of lists and of dates", function()
    local fn, problem = own.load(("x = 1 "):rep(17))
    assert.is_nil(fn)
    assert.equal("a text of 102 bytes; this sandbox allows 100", problem)
    assert.is_function((own.load("return " .. ("1"):rep(93))))
    local n = 0
    fn, problem = own.load(function()
      n = n + 1
      return n < 20 and ("x = 1 ") or nil
    end)
    assert.same({nil, "the text is too long"}, {fn, problem})
    assert.equal(2000, select("#", env.unpack({}, 1, 2000)))
    check("unpack: too many values; a sandbox allows 2000", env.unpack, {}, 1, 2001)
    check("unpack: too many values; a sandbox allows 2000", env.table.unpack, {}, -1000, 1001)
    local s = ("a"):rep(3000)
    assert.equal(2000, select("#", env.string.byte(s, 1, 2000)))
    check("byte: too many values; a sandbox allows 2000", env.string.byte, s, 1, 2001)
    check("byte: too many values; a sandbox allows 2000", env.string.byte, s, 1, -1)
    assert.equal(2000, select("#", env.string.byte(s, 1001, -1)))
    assert.equal(2000, select("#", env.string.byte(s, -2000, -1)))
    check("byte: too many values; a sandbox allows 2000", env.string.byte, s, -2001, -1)
    assert.equal(2000, select("#", env.string.byte(s, 1001, 9000)))
    assert.is_string(env.os.date(("x"):rep(100)))
    check("date: the format is too long", env.os.date, ("x"):rep(101))
    assert.is_string(env.os.date())
  end)
end)

-- ---- tables and values ----

describe("other functions of a sandbox", function()
  it("sort as Lua's do, few values and many", function()
    for _, n in ipairs {0, 1, 2, 199, 200, 201, 500} do
      for _, order in ipairs {false, function(a, b) return a > b end} do
        local t, other = {}, {}
        for i = 1, n do t[i] = i * 7919 % 503 other[i] = t[i] end
        env.table.sort(t, order or nil)
        table.sort(other, order or nil)
        assert.same(other, t)
      end
    end
    check("bad argument #1 to 'sort' (table expected, got no value", env.table.sort)
  end)

  it("move values between overlapping places", function()
    for from = 1, 4 do
      for to = 1, 6 do
        for last = from - 1, 5 do
          local t, wanted = {1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}
          for k = 0, last - from do wanted[to + k] = ({1, 2, 3, 4, 5})[from + k] end
          assert.same(wanted, env.table.move(t, from, last, to))
        end
      end
    end
    local into = {9}
    assert.equal(into, env.table.move({1, 2}, 1, 2, 2, into))
    assert.same({9, 1, 2}, into)
    check("bad argument #1 to 'move' (table expected, got number", env.table.move, 1)
  end)

  it("visit tables until a value is returned", function()
    local seen = {}
    assert.equal("b", env.table.foreachi({"a", "b", "c"}, function(i, v)
      seen[i] = v
      if i == 2 then return v end
    end))
    assert.same({"a", "b"}, seen)
    assert.equal(1, env.table.foreach({x = 1}, function(_, v) return v end))
    assert.is_nil(env.table.foreach({x = 1}, function() end))
  end)

  it("draw random numbers in their ranges, by a seed", function()
    local math = moth.sandbox().env.math
    math.randomseed(7)
    local list, counts = {}, {0, 0, 0}
    for i = 1, 3000 do
      local x = math.random()
      assert.is_true(x >= 0 and x < 1)
      list[i] = x
      local k = math.random(3)
      counts[k] = counts[k] + 1
      local low = math.random(-2, 0)
      assert.is_true(low >= -2 and low <= 0 and low % 1 == 0)
    end
    for k = 1, 3 do assert.is_true(counts[k] > 850 and counts[k] < 1150, counts[k]) end
    assert.equal(5, math.random(5, 5))
    math.randomseed(7)
    assert.equal(list[1], math.random())
    math.randomseed(8)
    assert.is_true(list[1] ~= math.random())
    math.randomseed(-1) -- as 0
    local negative = math.random()
    math.randomseed(0)
    assert.equal(negative, math.random())
    check("bad argument to 'random' (interval is empty)", math.random, 2, 1)
    local mean = 0
    for i = 1, 3000 do mean = mean + list[i] / 3000 end
    assert.near(0.5, mean, 0.03)
    assert.equal(_G.math.floor, math.floor)
  end)

  it("run coroutines of the sandbox only", function()
    local co = env.coroutine
    local thread = co.create(function(a) return co.isyieldable(), co.running() ~= nil,
      co.yield(a) end)
    assert.same({true, 1}, {co.resume(thread, 1)})
    assert.equal("suspended", co.status(thread))
    assert.same({true, true, true, 2}, {co.resume(thread, 2)})
    assert.equal("dead", co.status(thread))
    check("cannot resume a coroutine of another owner", co.resume, coroutine.create(print))
    check("bad argument #1 to 'create' (function expected, got no value", co.create)
    check("bad argument #1 to 'wrap' (function expected, got number", co.wrap, 1)
    check("inner", co.wrap(function() error("inner", 0) end))
    assert.is_false(co.isyieldable())
    assert.is_nil(co.running())
    check("attempt to yield from outside a coroutine", co.yield)
  end)

  it("show values by numbers, or as their metatables say", function()
    local t, f = {}, function() end
    local first = env.tostring(t)
    assert.is_truthy(first:find "^table: %d+$")
    assert.equal(first, env.tostring(t))
    assert.are_not.equal(first, env.tostring {})
    assert.is_truthy(env.tostring(f):find "^function: %d+$")
    assert.equal("x", env.tostring(setmetatable({}, {__tostring = function() return "x" end})))
    for _, value in ipairs {1, "a", true} do assert.equal(tostring(value), env.tostring(value)) end
    assert.equal("nil", env.tostring(nil))
    check("bad argument #1 to 'tostring' (value expected", env.tostring)
    assert.equal(env.tostring(t), env.string.format("%s", t))
  end)

  it("protect metatables of others", function()
    local mine, meta = {}, {}
    assert.equal(mine, env.setmetatable(mine, meta))
    assert.equal(meta, env.getmetatable(mine))
    assert.equal(mine, env.setmetatable(mine, nil))
    assert.is_nil(env.getmetatable(mine))
    assert.is_nil(env.getmetatable "text")
    local foreign = setmetatable({}, {})
    assert.is_false(env.getmetatable(foreign))
    check("cannot change a protected metatable", env.setmetatable, foreign, {})
    check("rawset: this table is protected", env.rawset, foreign, 1, 2)
    local shielded = env.setmetatable({}, {__metatable = "no"})
    assert.equal("no", env.getmetatable(shielded))
    check("cannot change a protected metatable", env.setmetatable, shielded, {})
    check("rawset: this table is protected", env.rawset, shielded, 1, 2)
    assert.same({5}, env.rawset({}, 1, 5))
    check("bad argument #1 to 'setmetatable' (table expected, got number", env.setmetatable, 1, {})
    check("bad argument #2 to 'setmetatable' (nil or table expected", env.setmetatable, {}, 1)
    check("bad argument #1 to 'rawset' (table expected, got string", env.rawset, "a", 1, 2)
  end)

  it("call a handler after an error, and pass all results on", function()
    assert.same({true, 1, nil, 3}, {env.xpcall(function(...) return ... end, print, 1, nil, 3)})
    assert.same({false, "handled x"}, {env.xpcall(function() error("x", 0) end, function(e)
      return "handled " .. e
    end)})
  end)

  it("know the collector's count only", function()
    assert.same({0, 0, 0}, {env.collectgarbage(), env.collectgarbage "collect",
      env.collectgarbage "step"})
    local box = moth.sandbox()
    assert.equal(0, box.env.collectgarbage "count")
    box.kept, box.since = 2048, 1024
    assert.equal(3, box.env.collectgarbage "count")
    check("collectgarbage: only 'count' is available", env.collectgarbage, "stop")
  end)

  it("print lines of values, separated by tabs", function()
    local lines = {}
    local box = moth.sandbox {print = function(line) lines[#lines + 1] = line end}
    box:run "print(1, nil, 'a', true) print()"
    assert.same({"1\tnil\ta\ttrue", ""}, lines)
  end)

  it("concatenate as plain Lua does", function()
    local box = moth.sandbox()
    check("attempt to concatenate a nil value", box.run, box, "return 'a' .. nil")
    check("attempt to concatenate a table value", box.run, box, "return {} .. 'a'")
    check("attempt to concatenate a boolean value", box.run, box, "return 1 .. true")
    assert.equal("12", box:run "return 1 .. 2")
    assert.equal("a1b", box:run "return 'a' .. 1 .. 'b'")
  end)
end)

-- ---- texts ----

describe("the text of a script", function()
  local function prepared(s)
    local got = text.prepare(s)
    return got:match "^local __moth_concat=%.%.%.;return function%(%.%.%.%) (.*)\nend$"
  end

  it("has a check at each operator .., and nowhere else", function()
    local C = "..__moth_concat.."
    for source, wanted in pairs {
      ["return a..b"] = "return a" .. C .. "b",
      ["return a .. b .. c"] = "return a " .. C .. " b " .. C .. " c",
      ["return ..."] = "return ...", ["return a.b.c"] = "return a.b.c",
      ["return 'a..b'"] = "return 'a..b'", ['return "a..b"'] = 'return "a..b"',
      ["return [[a..b]]..c"] = "return [[a..b]]" .. C .. "c",
      ["return [=[a]]..b]=]..c"] = "return [=[a]]..b]=]" .. C .. "c",
      ["-- a..b\nreturn a..b"] = "-- a..b\nreturn a" .. C .. "b",
      ["--[[ a..b ]] return a..b"] = "--[[ a..b ]] return a" .. C .. "b",
      ["--[==[ a]]..b ]==] return a..b"] = "--[==[ a]]..b ]==] return a" .. C .. "b",
      ["--[ a..b\rreturn a..b"] = "--[ a..b\rreturn a" .. C .. "b",
      ["return 1.5e+3 ..b"] = "return 1.5e+3 " .. C .. "b",
      ["return 0x1p-4 ..b"] = "return 0x1p-4 " .. C .. "b",
      ["return 0xe+1"] = "return 0xe+1", ["return 1e-2"] = "return 1e-2",
      ["return a-.5 ..b"] = "return a-.5 " .. C .. "b",
      ["return 'a\\'..b'..c"] = "return 'a\\'..b'" .. C .. "c",
      ["return 'a\\\\'..c"] = "return 'a\\\\'" .. C .. "c",
      ["return 'a\\\r\n..b'..c"] = "return 'a\\\r\n..b'" .. C .. "c",
      ["return 'a\\\n\r..b'..c"] = "return 'a\\\n\r..b'" .. C .. "c",
      ["return 'a\\\n'..c"] = "return 'a\\\n'" .. C .. "c",
      ["#!/bin/lua a..b\nreturn a..b"] = "\nreturn a" .. C .. "b",
      ["\239\187\191return a..b"] = "return a" .. C .. "b",
      ["return x.__concat"] = "return x.__moth_concat_field",
      ["return x['__concat']"] = "return x['__moth_concat_field']",
      ['return x["__concat"]'] = 'return x["__moth_concat_field"]',
      ["return x.__concats, '__concat '"] = "return x.__concats, '__concat '",
      ["return \228\184..b"] = "return \228\184" .. C .. "b",
      ["return '"] = "return '", ["return [["] = "return [[", ["-- end"] = "-- end",
    } do
      assert.equal(wanted, prepared(source), source)
    end
  end)

  it("may not use the reserved name", function()
    local got, problem = text.prepare "return __moth_concat"
    assert.same({nil, "the name '__moth_concat' is reserved"}, {got, problem})
    assert.is_string((text.prepare "return __moth_concat2, '__moth_concat'"))
  end)
end)

-- ---- the interface ----

describe("a sandbox's interface", function()
  it("has these defaults", function()
    local box = moth.sandbox()
    assert.same({2 ^ 24, 2 ^ 26, 0.1, 2 ^ 20}, {box.memory, box.tensors, box.time, box.string})
    assert.equal("a sandbox", tostring(box))
    assert.is_true(box.seconds == 0)
    box:run "for i = 1, 1e4 do end"
    assert.is_true(box.seconds > 0 and box.seconds < 0.1)
  end)

  it("refuses options and arguments", function()
    check("bad argument 'options' to 'sandbox' (a table is needed, got 3", moth.sandbox, 3)
    check("bad argument 'tim' to 'sandbox' (there is no such option; did you mean 'time'",
      moth.sandbox, {tim = 1})
    for _, name in ipairs {"memory", "tensors", "time", "string"} do
      check(("bad argument '%s' to 'sandbox' (a number above 0 is needed, got 0"):format(name),
        moth.sandbox, {[name] = 0})
      check(("bad argument '%s' to 'sandbox' (a number above 0 is needed"):format(name),
        moth.sandbox, {[name] = 0 / 0})
      check(("bad argument '%s' to 'sandbox' (a number above 0 is needed"):format(name),
        moth.sandbox, {[name] = "1"})
    end
    check("bad argument 'modules' to 'sandbox' (a table is needed, got 3", moth.sandbox,
      {modules = 3})
    check("bad argument 'print' to 'sandbox' (a function is needed, got 3", moth.sandbox,
      {print = 3})
    check("bad argument 'folder' to 'sandbox' (a string is needed, got 3", moth.sandbox,
      {folder = 3})
    local box = moth.sandbox()
    check("bad argument 'code' to 'run' (a text or a function's name is needed, got 3", box.run,
      box,
      3)
    check("sandbox: 'nothing' is not a function of its scripts, it is "
      .. "nil", box.call, box, "nothing")
    check("sandbox: 'x' is not a function of its scripts, it is 3", function()
      box:run "x = 3;"
      box:call "x"
    end)
    check("sandbox: sandbox:script:1:", box.run, box, "return return")
    check("sandbox: bytecode is refused in a sandbox", box.run, box, "\27LJ")
  end)

  it("runs a file", function()
    local path = os.tmpname()
    local file = assert(io.open(path, "w"))
    file:write "#!/usr/bin/lua\nlocal a, b = ... return a .. b, debug == nil"
    file:close()
    local box = moth.sandbox()
    local joined, hidden = box:run_file(path, "x", "y")
    assert.same({"xy", true}, {joined, hidden})
    file = assert(io.open(path, "w"))
    file:write "error 'ouch'"
    file:close()
    check(path .. ":1: ouch", box.run_file, box, path)
    file = assert(io.open(path, "w"))
    file:write "error error"
    file:close()
    check("sandbox: ", box.run_file, box, path)
    os.remove(path)
    check("sandbox: " .. path .. ": No such file", box.run_file, box, path)
  end)

  it("calls a function that a script returned", function()
    local box = moth.sandbox()
    assert.equal(5, box:call(box:run "return function(a) return a + 1 end", 4))
  end)

  it("loads texts: strings and readers, in an environment", function()
    local box = moth.sandbox()
    assert.equal(3, box:run [[local p = {'return ', '1 + 2', ''} local i = 0
      return load(function() i = i + 1 return p[i] end)()]])
    assert.same({nil, "reader function must return a string"},
      {box:run "return load(function() return 3 end)"})
    assert.same({nil, "a text is needed"}, {box:run "return load(3)"})
    local wanted = "only text can be loaded in a sandbox"
    assert.same({nil, wanted}, {box:run "return load('', 'n', 'b')"})
    assert.equal(1, box:run "return load('return 1', 'n', 'bt')()")
    local _, problem = box:run "return load('x x', '@my \"name\"')"
    assert.is_truthy(problem:find("sandbox:my  name :1:", 1, true), problem)
    _, problem = box:run "return load('x x')"
    assert.is_truthy(problem:find("sandbox:script:1:", 1, true), problem)
  end)

  it("requires modules once: tables, texts and the standard ones", function()
    local box = moth.sandbox {modules = {t = {1}, code = "count = (count or 0) + 1 return {...}",
      none = "local x = 1", wrong = "x x"}}
    assert.equal(1, box:run "return require 't'[1]")
    assert.equal("code", box:run "return require 'code'[1]")
    assert.is_true((box:run "return require 'code' == require 'code'"))
    assert.equal(1, box:run "return count")
    assert.is_true((box:run "return require 'none'"))
    assert.is_true((box:run "return require 'string' == string and require 'math' == math"))
    check("sandbox:wrong:1:", box.run, box, "require 'wrong'")
    check("module 'other' is not available in this sandbox", box.run, box, "require 'other'")
  end)

  it("has the globals that it is given", function()
    local box = moth.sandbox {globals = {answer = 42, twice = function(x) return 2 * x end}}
    assert.equal(84, box:run "return twice(answer)")
    assert.is_true((box:run "return _G._G == _G and _VERSION ~= nil"))
  end)
end)

describe("the bytes of a sandbox", function()
  it("count each value once, tables by their entries", function()
    local function bytes(value) return (measure({value}, {})) - 64 - 32 end
    assert.equal(24 + 3, bytes "abc")
    assert.equal(0, bytes(3))
    assert.equal(64, bytes {})
    assert.equal(64 + 2 * 32 + 25, bytes {1, a = true})
    local shared = {}
    assert.equal(64 + 2 * 32 + 64, bytes {shared, shared})
    local loop = {}
    loop[1] = loop
    assert.equal(64 + 32, bytes(loop))
    assert.equal(0, bytes(print))
    assert.equal(0, bytes(setmetatable({1}, {__metatable = false})))
  end)

  it("count what functions and coroutines of scripts hold", function()
    local box = moth.sandbox()
    local function bytes(code) return (measure({box:run(code)}, {})) - 64 - 32 end
    assert.equal(48, bytes "return function() end")
    assert.equal(48 + 8 + 24 + 2, bytes "local s = 'ab' return function() return s end")
    local base = bytes "return coroutine.create(function() end)"
    assert.is_true(base >= 1024)
    assert.is_true(bytes("local c = coroutine.create(function() local s = ('x'):rep(5000) "
      .. "coroutine.yield() return s end) coroutine.resume(c) return c") > base + 5000)
  end)

  it("count the tensors, each storage once", function()
    local x = moth.ones(10)
    assert.equal(40, select(2, measure({x, x:view(2, 5)}, {})))
    assert.equal(80, select(2, measure({x, moth.ones(10)}, {})))
    assert.equal(0, select(2, measure({}, {})))
  end)

  it("count the metatables that scripts have set", function()
    local box = moth.sandbox()
    box:run "held = setmetatable({}, {big = ('x'):rep(4000)})"
    assert.is_true((measure(box.env, box.metatables)) > 4000)
    assert.is_true((measure({box.env.held}, {})) < 300)
  end)
end)
