-- Calls of a sandbox's functions, as texts of scripts, have the results and messages of Lua's own;
-- limits of values on the stack hold at their bounds.

local moth = require "moth"
local fails = require("spec.support.refusals").fails

local function pack(...) return {n = select("#", ...), ...} end

describe("a sandbox's function", function()
  local box = moth.sandbox {time = 60, memory = 2 ^ 28, tensors = 2 ^ 28, string = 2 ^ 20}

  -- The results of a text here and in the sandbox.
  local function same(code, ...)
    local host = pack(pcall(assert(loadstring(code, "@sandbox:script")), ...))
    local own = pack(pcall(box.run, box, code, ...))
    if not host[1] then
      assert.is_false(own[1], code)
      local function bare(problem)
        return (tostring(problem):gsub("^.-:%d+: ", ""):gsub("to '[%w?]+'", "to a function"))
      end
      assert.equal(bare(host[2]), bare(own[2]))
      return
    end
    if not own[1] then error(code .. ": " .. tostring(own[2])) end
    assert.equal(host.n, own.n, code)
    for i = 2, host.n do assert.same(host[i], own[i], code .. " value " .. i) end
  end

  it("returns what Lua's returns, for each of these arguments", function()
    for line in ([[
      ("abc"):byte(), ("abc"):byte(2, 3), ("abc"):byte(-2, -1), ("abc"):byte(4)
      ("abc"):byte(1, -1), ("abc"):byte(1, 99), string.byte(12, 2), ("ab"):rep(3), ("ab"):rep(0)
      ("ab"):rep(-1), ("ab"):rep(3, ","), ("ab"):rep(1, ","), (5 .. ""):rep(2), string.rep(5, 2)
      ("x"):rep(2.9), ("hello"):find("l"), ("hello"):find("l", 4), ("hello"):find("l", -1)
      ("hello"):find("l", -99), ("hello"):find(""), ("hello"):find("", 6), ("hello"):find("", 7)
      ("hello"):find("", 99), ("a.b"):find(".", 1, true), ("a.b"):find("."), ("a.b"):find("%.")
      ("a+b"):find("+", 1, true), ("a[b"):find("[", 1, true), ("a-b"):find("-"), ("a$b"):find("$")
      ("x"):find("y"), string.find(155, 5), string.find(155, 5, 3), ("abc"):find("b", nil, false)
      ("aXb"):find("(X)"), ("hello"):match("l+"), ("hello"):match("(h)(e)"), ("hello"):match("x")
      ("hello"):match("()ll()"), ("hello"):match("l", 5), ("hello"):match("o", -1)
      string.match(123, 2), ("abc"):gsub("b", "%0%0"), ("abc"):gsub("", "-")
      ("abc"):gsub("%w", "%%"), ("abc"):gsub("b", ""), ("abc"):gsub("(b)(c)", "%2%1")
      ("abc"):gsub("b", 5), ("abc"):gsub("[ac]", {a = 1, c = false})
      ("abc"):gsub("%w", {a = "x"})
      ("abc"):gsub("%w", function(c) if c == "b" then return 7 end end)
      ("abc"):gsub("%w", "x", 2), ("abc"):gsub("%w", "x", 0), ("abc"):gsub("%w", "x", 9)
      ("abc"):gsub("^a", "x"), ("abcabc"):gsub("^a", "x"), ("a b"):gsub("%s*", "_")
      ("abc"):gsub("(a)(b)", {a = "z"}), ("abc"):gsub("b$", "x"), ("abc"):gsub("()", "%1")
      string.gsub(121, 1, 3), ("abc"):gsub("b*", "-")
      ("%d %s %q %5.1f %x %c %i %%"):format(3, "a", "q\n", 2.55, 255, 65, 7)
      ("%s %s"):format(nil, true), string.format(5), ("%10s|%-10s|"):format("ab", "ab")
      ("%s"):format(1e100), ("%.3s"):format("abcdef"), ("aBc"):upper(), ("aBc"):lower()
      ("abc"):reverse(), ("abc"):len(), ("abc"):sub(2), string.char(65, 66)
      table.concat({1, 2, 3}), table.concat({1, 2, 3}, ", "), table.concat({1, 2, 3}, "-", 2)
      table.concat({}, "x"), table.concat({1, 2, 3}, "-", 2, 3)
      table.concat({1, 2, 3}, "-", 3, 2), table.concat({"a", 1.5}, 0), table.concat({1, {}, 3})
      table.concat({1, nil, 3}, ",", 1, 3), unpack({1, 2, 3}), unpack({1, 2, 3}, 2)
      unpack({1, 2, 3}, 2, 3), unpack({1, nil, 3}, 1, 3), unpack({}, 1, 2), unpack({1}, 2)
      unpack({}), unpack(nil), unpack({1, 2}, -1, 1), table.maxn({1, 2, [9] = 1})
      table.getn({1, 2}), select("#", 1, nil), select(-1, 1, 2), select(2, "a", "b")
      math.floor(2.5), math.huge, math.max(1, 3, 2), math.pi, tonumber("0x10"), tonumber("z", 36)
      tonumber("x"), type(nil), rawequal("a", "a"), rawget({5}, 1), next({}), pcall(error, "x")
      pcall(error), pcall(error, nil), xpcall(error, function(m) return m .. "!" end, "x")
      xpcall(function(...) return ... end, print, 1, nil, 3), bit.band(12, 10), bit.bor(12, 10)
      bit.bxor(12, 10), bit.lshift(1, 4), bit.tohex(255), bit.bnot(0), tostring(nil)
      tostring(true), tostring(1.5), tostring("a"), tostring(2^53), tostring(-0.0), tostring(1/0)
      tostring(setmetatable({}, {__tostring = function() return "mine" end})), tostring()
      ("%s"):format(setmetatable({}, {__tostring = function() return "mine" end}))
      os.difftime(5, 3), os.time({year = 2020, month = 1, day = 2, hour = 12}), os.date("!%Y", 0)
      type(os.clock()), coroutine.status(coroutine.create(print))
      coroutine.wrap(function(...) return ... end)(1, 2)
      coroutine.resume(coroutine.create(function(...) return ... end), 1, 2), coroutine.wrap(5)
      coroutine.create(5), coroutine.resume(coroutine.create(function() error("oops", 0) end))
      coroutine.wrap(function() error("oops", 0) end)(), assert(1, 2), assert(false, "m")
      ipairs(5), setmetatable(5, {}), setmetatable({}, 5), rawset(5, 1, 1)
      setmetatable({}, {__metatable = 7}), getmetatable(setmetatable({}, {__metatable = 7}))
      getmetatable({}), setmetatable(setmetatable({}, {__metatable = 7}), {}), table.sort(5)
      table.concat(5), ("x"):byte("y"), table.insert(5, 1), string.rep(), ("x"):rep({})
      string.find(), ("x"):find({}), string.match(), ("x"):match({}), string.gmatch()
      ("x"):gmatch({}), string.gsub(), ("x"):gsub({}, "a"), ("x"):gsub("x", true), ("x"):gsub("x")
      ("x"):gsub("x", "y", {}), string.format(), string.format({})
      ("abc"):gsub("b", function() return {} end), ("abc"):gsub("b", "%2")
      ("abc"):gsub("(b", "x"), ("x"):find("["), ("x"):match("%"), ("abc"):gsub("b", {b = {}})
      ("abc"):gsub("b", {b = true}), string.byte(12, 1, 2), ("abc"):byte(-2)
      ("abc"):byte(-99, -1), ("abc"):byte(3, 2)
    ]]):gmatch "[^\n]+" do
      -- Calls of a line are separated by commas at depth 0.
      local depth, from, quote = 0, 1, nil
      line = line .. ","
      local at = 1
      while at <= #line do
        local c = line:sub(at, at)
        if quote then
          if c == "\\" then at = at + 1 elseif c == quote then quote = nil end
        elseif c == '"' then quote = c
        elseif c:find "[%(%{%[]" then depth = depth + 1
        elseif c:find "[%)%}%]]" then depth = depth - 1
        elseif c == "," and depth == 0 then
          local call = line:sub(from, at - 1)
          if call:find "%S" then same("return " .. call) end
          from = at + 1
        end
        at = at + 1
      end
    end
  end)

  it("returns what Lua's returns for long texts, too", function()
    local subject = ("ab=1; cd=22; "):rep(90) .. "end"
    for _, code in ipairs {
      [[return s:find("(%w+)=(%d+).-(c)d")]], [[return s:find("(%w+)=(%d+).-(c)d", 700)]],
      [[return s:find("(%w+)=(%d+).-(c)d", -30)]], [[return s:find("%w+=%d+.-x%w+")]],
      [[return s:find("^%w+=%d+.-;", 7)]], [[return s:find("^%w+=%d+.-c%w+")]],
      [[return s:match("%w+=%d+.-c%w+")]], [[return s:match("(%w+)=(%d+).-c(%w+)", 5)]],
      [[return s:match("%w+=%d+.-x%w+")]], [[return s:match("%w+%d+.-c%w+", 99999)]],
      [[return s:match("%w*=?%d*x*", 99999)]], [[return s:match("%w+=%d+.-c%w+", -40)]],
      [[return s:gsub("%w+=%d+.-%s+", "<%0>")]], [[return s:gsub("(%w+)=(%d+).-%s+", "%2%1%%%x")]],
      [[return s:gsub("%w+=%d+.-%s+", "<%1>", 3)]], [[return s:gsub("%w*=*%d*x*", "-")]],
      [[return s:gsub("%w+=%d+.-%s+", "", 0)]], [[return s:gsub("^%w+=%d+.-%s*%s*", "-")]],
      [[return s:gsub("(%w+)=(%d+).-%s+", {ab = "x", cd = false})]],
      [[return s:gsub("%w+=%d+.-%s+", {["ab=1; "] = 5})]],
      [[return s:gsub("(%w+)=(%d+).-%s+", function(a, b) return a ~= "ab" and b .. a end)]],
      [[return s:gsub("%w+=%d+.-%s+", function(...) return select("#", ...) end)]],
      [[return s:gsub("()%w+=%d+.-%s+", "%1,")]], [[return s:gsub("%w+=%d+.-%s+x*", 7)]],
      [[return s:gsub("%w+=%d+.-%s+x*", function() return {} end)]],
      [[return s:gsub("%w+=%d+.-%s+x*", "%2")]], [[return s:gsub("(%w+)=%d+.-%s+x*", "%2")]],
      [[local t = {} for k in s:gmatch("%w+=%d+.-%s+") do t[#t + 1] = k end return t]],
      [[local t = {} for k, v in s:gmatch("(%w+)=(%d+).-%s+") do t[#t + 1] = k .. v end return t]],
      [[local t = {} for k in s:gmatch("%w*=*%d*x*") do t[#t + 1] = k end return t]],
      [[local t = {} for k in s:gmatch("^%w*=*%d*") do t[#t + 1] = k end return t]],
      [[local t = {} for k in s:gmatch("()%w-=%d*()") do t[#t + 1] = k end return t]],
    } do same("local s = ... " .. code, subject) end
  end)

  it("finds a long text in a longer one, at each place", function()
    local find = box.env.string.find
    local needle = ("a"):rep(3000) .. "b"
    for _, before in ipairs {0, 1, 17, 346, 347, 348, 349, 350, 2750, 5000} do
      local s = ("a"):rep(before) .. needle .. ("c"):rep(3000)
      assert.same({s:find(needle, 1, true)}, {find(s, needle, 1, true)})
      assert.same({s:find(needle, before + 1, true)}, {find(s, needle, before + 1, true)})
      assert.same({s:find(needle, before + 2, true)}, {find(s, needle, before + 2, true)})
      assert.same({s:find(needle, 1, true)}, {find(s, needle, -#s, true)})
      s = ("c"):rep(3000) .. ("a"):rep(before) .. needle -- at the end
      assert.same({s:find(needle, 1, true)}, {find(s, needle)})
    end
  end)
end)

describe("a sandbox's limit of strings holds at its bound", function()
  local box = moth.sandbox {time = 5}

  it("values on the stack", function()
    assert.equal(2000, (box:run "return select('#', unpack({}, 1, 2000))"))
    assert.equal(2000, (box:run "return select('#', unpack({}, -1999, 0))"))
    fails("unpack: too many values; a sandbox allows 2000", box.run, box,
      "return select('#', unpack({}, 1, 2001))")
    assert.equal(2000, (box:run "return select('#', ('x'):rep(5000):byte(1, 2000))"))
    assert.equal(2000, (box:run "return select('#', ('x'):rep(5000):byte(-2000, -1))"))
    for _, range in ipairs {"1, 2001", "1, -1", "1, 99999"} do
      fails("byte: too many values; a sandbox allows 2000", box.run, box,
        "return ('x'):rep(5000):byte(" .. range .. ")")
    end
  end)
end)
