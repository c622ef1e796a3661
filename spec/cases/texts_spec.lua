-- Cases: small readers and writers of text, each by a table of texts: JSON, the sandbox's string
-- functions, pickles.

local json = require "moth.json"
local moth = require "moth"
local files = require "spec.support.files"

setup(files.setup)
teardown(files.teardown)

describe("JSON", function()
  -- text, its value
  local READ = {
    {"0", 0}, {"-0.5", -0.5}, {"1e3", 1000}, {"1E+2", 100}, {"25e-1", 2.5}, {"1.5e1", 15},
    {"10", 10}, {" \t\r\n7 ", 7}, {"true", true}, {"false", false}, {"null", json.null},
    {'""', ""}, {'"a\127b"', "a\127b"}, {[["\"\\\/\b\f\n\r\t"]], '"\\/\b\f\n\r\t'},
    {[["\u0041\u007f"]], "A\127"}, {[["\u0080\u07ff"]], "\194\128\223\191"},
    {[["\u0800\uffff"]], "\224\160\128\239\191\191"},
      {[["\ud7ff\ue000"]], "\237\159\191\238\128\128"},
    {[["\ud800\udc00x"]], "\240\144\128\128x"}, {[["\uDBFF\uDFFF"]], "\244\143\191\191"},
    {"[]", {}}, {"{}", {}}, {"[ 1 , [2] ,3 ]", {1, {2}, 3}},
    {'{ "a" : 1 , "b":{"c":[true]}}', {a = 1, b = {c = {true}}}},
  }
  for _, row in ipairs(READ) do
    it("is read: " .. row[1], function() assert.same(row[2], (json.decode(row[1]))) end)
  end

  -- text, the message
  local BROKEN = {
    {"", "expected a value at byte 1"}, {"tru", "expected a value at byte 1"},
    {"01", "expected a value at byte 1"}, {"1.", "expected a value at byte 1"},
    {".5", "expected a value at byte 1"}, {"-", "expected a value at byte 1"},
    {"1e", "expected a value at byte 1"}, {"+1", "expected a value at byte 1"},
    {"1e999", "expected a value at byte 1"}, {"1.e2", "expected a value at byte 1"},
    {"NaN", "expected a value at byte 1"}, {"1 2", "expected the end at byte 3"},
    {"[] ]", "expected the end at byte 4"}, {"[1 2]", "expected ',' or ']' at byte 4"},
    {"[1,]", "expected a value at byte 4"}, {"[1", "expected ',' or ']' at byte 3"},
    {'{"a":1 "b":2}', "expected ',' or '}' at byte 8"}, {'{"a" 1}', "expected ':' at byte 6"},
    {"{1:2}", "expected a key at byte 2"}, {'{"a":1,}', "expected a key at byte 8"},
    {'{"a":1,"a":2}', "expected a key that was not there before at byte 8"},
    {'"ab', "expected the end of a string at byte 4"},
    {'"a\nb"', "expected no control character in a string at byte 3"},
    {[["\x"]], "expected a valid escape at byte 2"},
    {[["\u12g4"]], "expected four hexadecimal digits at byte 4"},
    {[["\ud800x"]], "expected a pair of surrogates at byte 4"},
    {[["\udc00\ud800"]], "expected a pair of surrogates at byte 4"},
    {[["\ud800\udbff"]], "expected a pair of surrogates at byte 4"},
    {[["\ud800\ue000"]], "expected a pair of surrogates at byte 4"},
    {'"\255"', "invalid UTF-8 at byte 2"},
    {("["):rep(1001), "expected at most 1000 levels of nesting at byte 1001"},
  }
  for _, row in ipairs(BROKEN) do
    it("is not read: " .. row[1]:sub(1, 20):gsub("%c", "?"), function()
      local value, message = json.decode(row[1])
      assert.is_nil(value)
      assert.equal(row[2], message)
    end)
  end

  it("nests up to 1000 levels", function()
    local text = ("["):rep(1000) .. ("]"):rep(1000)
    assert.is_table((json.decode(text)))
    local value, deep = json.decode(text), 0
    while value[1] do value, deep = value[1], deep + 1 end
    assert.equal(999, deep)
  end)

  local list, chain = {1, 2}, {}
  list.name = 3
  local inner = chain
  for _ = 1, 1000 do inner.a = {} inner = inner.a end
  -- value, its text
  local WRITTEN = {
    {{}, "{}"}, {{1, {2}, "a"}, '[1,[2],"a"]'},
      {{b = 1, a = {true, false}}, '{"a":[true,false],"b":1}'},
    {json.null, "null"}, {0.1, "0.1"}, {1 / 3, "0.3333333333333333"}, {2 ^ 53, "9007199254740992"},
    {2 ^ 53 - 1, "9007199254740991"}, {-2 ^ 53 + 1, "-9007199254740991"}, {1e300, "1e+300"},
    {5LL, "5"}, {-5LL, "-5"}, {18446744073709551615ULL, "18446744073709551615"},
    {'a"\\\n\r\t\1', [["a\"\\\n\r\t\u0001"]]}, {"\127", [["\u007f"]]},
  }
  for _, row in ipairs(WRITTEN) do
    it("is written: " .. row[2], function() assert.equal(row[2], (json.encode(row[1]))) end)
  end

  it("has tensors as nested lists", function()
    assert.equal("[[1,2],[3,4]]", (json.encode(moth.tensor {{1, 2}, {3, 4}})))
    assert.equal('{"a":2.5}', (json.encode {a = moth.tensor(2.5)}))
    assert.equal("[true,false]", (json.encode(moth.tensor {true, false})))
  end)

  -- value, the message without its end "cannot be written as JSON"
  local REFUSED = {
    {0 / 0, "nan"}, {math.huge, "inf"}, {list, "a table with names and a list"},
    {{a = {0, -1 / 0}}, "-inf", "a[2]"}, {{a = {b = print}}, "a function", "a.b"},
    {{[true] = 1}, "a table with the key true"}, {{["\255"] = 1}, "a key that is not UTF-8"},
    {{a = "\255"}, "a string that is not UTF-8", "a"}, {{{[1.5] = 2}}, "a table with the key 1.5",
      "[1]"},
    {chain, "a table of more levels, or in itself,"},
  }
  for _, row in ipairs(REFUSED) do
    it("cannot hold " .. row[2], function()
      local text, message = json.encode(row[1])
      assert.is_nil(text)
      local wanted = row[2] .. " cannot be written as JSON" ..
        (row[3] and " (at '" .. row[3] .. "')" or "")
      assert.equal(wanted, (message:gsub("%-nan", "nan")))
    end)
  end

  it("has the characters of code points", function()
    for code, wanted in pairs {[0x7f] = "\127", [0x80] = "\194\128", [0x7ff] = "\223\191",
      [0x800] = "\224\160\128", [0xffff] = "\239\191\191", [0x10000] = "\240\144\128\128",
      [0x10ffff] = "\244\143\191\191"} do
      assert.equal(wanted, json.utf8_char(code))
    end
  end)
end)

-- ---- the sandbox's functions ----

-- The results of a function as a list; an error as its text without a position.
local function outcome(fn, ...)
  local list = {pcall(fn, ...)}
  if list[1] then return list end
  return {false, (tostring(list[2]):gsub("^[^ ]-:%d+: ", ""))}
end

describe("a pattern for which matching may take long", function()
  local pattern = require "moth.sandbox.library_pattern"
  local SUBJECTS = {"", "a", "ab", "hello world", "key = value; k2=v2", "((a)(b(c)))d", "aXbXc",
    "THE (quick) fox", "a.b-c^d$e%f]g[h", "\0x\0", "aaa", "aab aab"}
  local PATTERNS = {"", "a", "^a", "a$", "^a$", "a*", "a+", "a-", "a?", "a-b", ".", ".*", ".-$",
    "%a+",
    "%s", "%S+", "[a-c]+", "[^a-c]+", "[]]", "[^]]+", "[%]a]", "[%a_-]+", "%.", "%%", "%b()",
      "%bxx",
    "%f[%a]%a+", "%f[%A]", "(a)", "()", "(a)(b)", "((a)b)", "(a*)(b?)", "(%a)%1",
      "(%w+)%s*=%s*(%w+)",
    "()%a+()", "[$]", "[%^]", "$", "^", "^^", "a$b", "x?y?z?", "%z", "[%z]x", "(.)(.)(.)%2",
      "[a-]+", "b()%s"}
  it("matches as in plain Lua, from every position", function()
    for _, s in ipairs(SUBJECTS) do
      for _, p in ipairs(PATTERNS) do
        for init = 1, #s + 1 do
          local wanted = {string.find(s, p, init)}
          local a, b, captures = pattern.find(s, p, init, true)
          local got = {a, b}
          for _, c in ipairs(captures or {}) do got[#got + 1] = c end
          if #wanted ~= #got then error(("%q %q %d: %d"):format(s, p, init, #got)) end
          for k = 1, #wanted do
            if wanted[k] ~= got[k] then error(("%q %q %d: result %d"):format(s, p, init, k)) end
          end
        end
      end
    end
  end)

  it("has no anchor in gmatch", function()
    assert.is_nil((pattern.find("aa", "^a", 1)))
    local first, last = pattern.find("a^a", "^a", 1)
    assert.same({2, 3}, {first, last})
  end)

  local MALFORMED = {"%", "a%", "[a", "[", "[^", "[%", "[]", "%b", "%bx", "%f", "%fa", "(a", "()a)",
    "(()",
    "%1", "(a)%2", "(%1)", "%0"}
  for _, p in ipairs(MALFORMED) do
    it("raises as in plain Lua: " .. p, function()
      local wanted, got = outcome(string.find, "aaa", p), outcome(pattern.find, "aaa", p, 1, true)
      assert.is_false(wanted[1])
      assert.same(wanted, got)
    end)
  end

  it("has at most 32 captures and 200 levels", function()
    local _, _, list = pattern.find(("a"):rep(40), ("(a)"):rep(32), 1, true)
    assert.equal(32, #list)
    assert.same({false, "too many captures"}, outcome(pattern.find, ("a"):rep(40), ("(a)"):rep(33),
      1, true))
    assert.truthy((pattern.find(("a"):rep(300), ("a*"):rep(199) .. "b?", 1, true)))
    assert.same({false, "pattern too complex"},
      outcome(pattern.find, ("a"):rep(300), ("a*"):rep(201) .. "b", 1, true))
  end)
end)

describe("a sandbox's library", function()
  local box = moth.sandbox {time = 10}
  -- Expressions whose values or errors are those of plain Lua. `big` is long: it takes the loops
  -- that a sandbox can stop.
  local SAME = {
    "string.rep('ab', 3)", "string.rep('ab', 3, ',')", "string.rep('a', -1)", "string.rep(5, 2)",
    "string.rep({}, 2)", "string.rep('a', {})", "string.rep('a')",
    "string.find('abc', 'b')", "string.find('a.c', '.', 2, true)", "string.find('abc', 'b', -2)",
    "string.find('abc', 'c', -9)", "string.find('abc', 'b', 3)", "string.find('abc', '', 4)",
    "string.find('abc', '', 5)", "string.find('abc', 'b', 0)", "string.find(123, 2)",
    "string.find({}, 'a')", "string.find('a')", "string.match('key=5', '(%a+)=(%d)')",
    "string.match('abc', 'x')", "string.match('abc', 'b', 3)", "string.match({}, 'a')",
    "string.match('a')", "string.gmatch('a')", "string.gmatch({}, 'a')",
    "string.gsub('abc', 'b', '%0%0')", "string.gsub('abc', '', '-')",
      "string.gsub('abc', 'b', {b = 5})",
    "string.gsub('abc', 'b', {})", "string.gsub('abc', '(b)', '%1%1')",
      "string.gsub('abc', 'b', '%1')",
    "string.gsub('aaa', 'a', 'b', 2)", "string.gsub('aaa', 'a', 'b', 0)",
      "string.gsub('abc', '%w', '%%')",
    "string.gsub('abc', 'b', function() return nil end)", "string.gsub('abc', '^a', 'x')",
    "string.gsub('abc', 'b', 7)", "string.gsub('a', 'a')", "string.gsub('a', {}, 'b')",
    "string.gsub({}, 'a', 'b')", "string.gsub('a', 'a', 'b', {})", "string.gsub('abc', 'b', true)",
    "string.byte('abc', 1, -1)", "string.byte('abc', -1)", "string.byte('abc', 10)",
    "string.format('%d %s %q', 3, 'a', 'b')", "string.format('%5.1f|%%', 2.25)",
      "string.format({})",
    "string.format('%d', 'x')", "string.format('%s', nil)", "string.format('%s %s', 1)",
    "string.upper('aB')", "string.len('abc')", "string.reverse('abc')", "string.sub('abc', 2)",
    "table.concat({1, 2, 'a'}, ', ')", "table.concat({1, 2, 3}, '-', 2, 3)",
      "table.concat({1, 2, 3}, 0, 2)",
    "table.concat({})", "table.concat({1, {}})", "table.concat(5)",
      "table.concat({1, 2}, '', 1, 3)",
    "unpack({1, 2, 3})", "unpack({1, 2, 3}, 2)", "unpack({1, 2, 3}, 2, 5)",
      "table.unpack == unpack or 1",
    "table.sort(5)", "tostring(nil)", "tostring(1.5)", "tostring(true)", "select('#', 1, nil)",
    "setmetatable(5, {})", "setmetatable({}, 5)", "rawset(5, 1, 2)", "rawset({}, 1, 2)[1]",
    "coroutine.create(5)", "coroutine.wrap('a')", "getmetatable({})",
      "getmetatable(setmetatable({}, {__metatable = 7}))",
    "math.floor(2.5)", "bit.band(6, 3)", "os.date('!%Y', 0)", "os.difftime(5, 3)",
    "pcall(error, {1})", "xpcall(function(a) return a end, print, 4)", "next({})",
      "type(os.clock())",
    "string.gsub(big, '(a+)(b*)c', '%2%1')", "string.gsub(big, 'a(b)', {b = 'x'})",
    "string.gsub(big, 'ab', '<%0%1%%>')",
      "string.gsub(big, '(a)(b)', function(a, b) return b .. a end)",
    "string.gsub(big, '^ab', 'x')", "string.gsub(big, '%f[%w]b*', '-', 3)",
      "string.gsub(big, 'a-(b)', '%3')",
    "string.gsub(big, 'a*(b)c', function() return {} end)", "string.gsub(big, '(a*)b*()', '%2', 2)",
    "string.gsub(big, 'a*b*', function() return false end)", "string.gsub(big, 'a*b*', 5, 4)",
    "string.match(big, '(b+)(c*)(a+)', -9)", "string.match(big, 'a*b*c+', 5)",
      "string.match(big, 'x*y+z*')",
    "string.match(big, 'c*$')", "string.find(big, 'b*c*x', 3)", "string.find(big, '(b)(c*)', -4)",
    "string.find(big, 'a*b*', 99999)", "string.find(big, 'cab', 1, true)",
  }
  local big = ("abc"):rep(700)

  -- Plain Lua's messages name a function by its variable, and not all of them name what came.
  local function message(text)
    text = text:gsub("^%[string.-:1: ", ""):gsub("^sandbox:[^ ]* ", ""):gsub("\n.*", "")
    return (text:gsub("to '[^']*'", "to F"):gsub(", got [^)]*", ""))
  end

  for _, code in ipairs(SAME) do
    it("computes what plain Lua computes: " .. code, function()
      local plain = assert(loadstring("local big = ... return " .. code))
      local wanted, got = outcome(plain, big),
        outcome(box.run, box, "local big = ... return " .. code, big)
      if not wanted[1] then
        wanted[2], got[2] = message(wanted[2]), message(got[2])
      end
      assert.same(wanted, got)
    end)
  end

  local REFUSED = {
    ["unpack({}, 1, 2001)"] = "unpack: too many values; a sandbox allows 2000",
    ["string.byte(string.rep('a', 3000), 1, -1)"] = "byte: too many values; a sandbox allows 2000",
    ["string.format('%p', {})"] = "'%p' shows addresses, which a sandbox hides",
    ["os.date(string.rep('%Y', 51))"] = "date: the format is too long",
    ["collectgarbage 'stop'"] = "collectgarbage: only 'count' is available",
    ["math.random(2, 1)"] = "interval is empty",
    ["coroutine.yield(1)"] = "attempt to yield from outside a coroutine",
    ["setmetatable(setmetatable({}, {__metatable = 1}), {})"] =
      "cannot change a protected metatable",
    ["rawset(setmetatable({}, {__metatable = 1}), 1, 1)"] = "rawset: this table is protected",
    ["coroutine.resume(...)"] = "cannot resume a coroutine of another owner",
  }
  for code, text in pairs(REFUSED) do
    it("refuses " .. code, function()
      local ok, problem = pcall(box.run, box, "return " .. code, coroutine.create(function() end))
      assert.is_false(ok)
      assert.matches(text, problem, 1, true)
    end)
  end

  it("unpacks and lists up to 2000 values", function()
    assert.equal(2000, (box:run "return select('#', unpack({}, 1, 2000))"))
    assert.equal(2000, (box:run "return select('#', string.byte(string.rep('a', 2000), 1, -1))"))
    assert.equal(100, (box:run "return #os.date(string.rep('a', 100))"))
  end)

  it("moves and visits elements", function()
    assert.same({1, 1, 2, 3}, {box:run "local t = table.move({1, 2, 3}, 1, 3, 2) return unpack(t)"})
    assert.same({2, 3, 3}, {box:run "local t = table.move({1, 2, 3}, 2, 3, 1) return unpack(t)"})
    assert.same({9, 1, 2}, {box:run "return unpack(table.move({1, 2}, 1, 2, 2, {9}))"})
    assert.equal("a1", (box:run "return table.foreach({a = 1}, function(k, v) return k .. v end)"))
    assert.equal("2y", (box:run [[return table.foreachi({"x", "y"}, function(i, v)
      if i == 2 then return i .. v end end)]]))
    assert.is_nil((box:run "return table.foreachi({1}, function() end)"))
    assert.equal(500,
      (box:run "local t = {} for i = 1, 500 do t[501 - i] = i end table.sort(t) return t[500]"))
  end)

  it("draws the same numbers after the same seed, in their range", function()
    local draw = "local t = {} for i = 1, 500 do t[i] = math.random(3, 5) end return unpack(t)"
    local one = {box:run("math.randomseed(7) " .. draw)}
    assert.same(one, {box:run("math.randomseed(7) " .. draw)})
    assert.not_same(one, {box:run("math.randomseed(8) " .. draw)})
    local seen = {}
    for _, x in ipairs(one) do seen[x] = (seen[x] or 0) + 1 end
    for x = 3, 5 do assert.is_true(seen[x] > 120) end
    assert.equal(500, seen[3] + seen[4] + seen[5])
    assert.equal(1, (box:run "return math.random(1)"))
    local x = box:run "return math.random()"
    assert.is_true(x >= 0 and x < 1)
  end)

  it("runs its own coroutines", function()
    assert.same({true, 3, false, true}, {box:run [[
      local co = coroutine.create(function(a) coroutine.yield(a + 1) end)
      local ok, v = coroutine.resume(co, 2)
      local inside = coroutine.wrap(function() return coroutine.isyieldable() end)()
      return ok, v, coroutine.isyieldable(), inside]]})
    assert.is_nil((box:run "return coroutine.running()"))
    assert.equal("thread",
      (box:run "return type(coroutine.wrap(function() return coroutine.running() end)())"))
    assert.equal("dead",
      (box:run [[local c = coroutine.create(function() end)
        coroutine.resume(c)
        return coroutine.status(c)]]))
  end)

  it("collects the lines of print", function()
    local lines = {}
    local talker = moth.sandbox {print = function(line) lines[#lines + 1] = line end}
    talker:run [[print(1, nil, 'a')
      print(setmetatable({}, {__tostring = function() return 'T' end}))]]
    assert.same({"1\tnil\ta", "T"}, lines)
  end)

  it("shows numbers instead of addresses", function()
    local a, again, b = box:run "local t, u = {}, {} return tostring(t), tostring(t), tostring(u)"
    assert.matches("^table: %d+$", a)
    assert.equal(a, again)
    assert.not_equal(a, b)
    assert.matches("^function: %d+$", (box:run "return tostring(print)"))
  end)

  it("counts its memory", function()
    assert.same({0, 0, 0},
      {box:run "return collectgarbage(), collectgarbage 'collect', collectgarbage 'step'"})
    local before = box:run "return collectgarbage 'count'"
    box:run "kept = string.rep('x', 100000)"
    local after = box:run "return collectgarbage 'count'"
    assert.is_true(after - before > 97 and after - before < 300, after - before)
    box:run "kept = nil"
  end)

  it("concatenates by metamethods, of the left value first", function()
    local code = [[
      local A = setmetatable({}, {__concat = function(a, b) return 'A' end})
      local B = setmetatable({}, {__concat = function(a, b) return 'B' end})
      return A .. B, B .. A, 1 .. B, A .. 'x', 'x' .. 2, 1 .. 2]]
    assert.same({"A", "B", "B", "A", "x2", "12"}, {box:run(code)})
    for text, kind in pairs {["{} .. 'a'"] = "table", ["'a' .. {}"] = "table",
      ["nil .. 'a'"] = "nil",
      ["1 .. true"] = "boolean"} do
      local ok, problem = pcall(box.run, box, "return " .. text)
      assert.is_false(ok)
      assert.matches("attempt to concatenate a " .. kind .. " value", problem, 1, true)
    end
  end)
end)
