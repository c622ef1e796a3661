-- moth.sandbox: limits of scripts, and the known escapes of Lua sandboxes.

local moth = require "moth"

local function fails(box, code, ...)
  local ok, problem = pcall(box.run, box, code, ...)
  assert.is_false(ok)
  return tostring(problem), moth.errcode()
end

-- Seconds by which a text runs longer than its limit: the least of a few runs, because other
-- processes may hold this one up.
local function overrun(code, options)
  local least = math.huge
  options = options or {}
  options.time = options.time or 0.02
  for run = 1, 20 do
    if run > 3 and least < 0.005 then break end
    local box = moth.sandbox(options)
    local problem, name = fails(box, code)
    assert.is_truthy(name == "E_INTERRUPT" or name == "E_LIMIT", problem)
    least = math.min(least, box.seconds - options.time)
  end
  return least
end

local function stops(code, options) assert.is_true(overrun(code, options) < 0.05) end

describe("a sandbox", function()
  it("runs a text and returns its values", function()
    local box = moth.sandbox()
    assert.same({3, "a"}, {box:run("local x, y = ... return x + 1, y", 2, "a")})
  end)

  it("keeps its globals between calls, apart from the host's", function()
    local box = moth.sandbox()
    box:run "count = 0 function add(n) count = count + n return count end"
    box:call("add", 2)
    assert.equal(5, box:call("add", 3))
    assert.equal(5, box.env.count)
    assert.is_nil(rawget(_G, "count"))
    assert.equal(6, box:run("add", 1))
  end)

  it("trains a net", function()
    local box = moth.sandbox {time = 5}
    local first, last = box:run [[
      local nn = require "moth.nn"
      local Net = nn.class("Net", nn.Module)
      function Net:init()
        nn.Module.init(self)
        self.hidden, self.out = nn.Linear(2, 8), nn.Linear(8, 1)
      end
      function Net:forward(x) return self.out(self.hidden(x):tanh()) end
      local net = Net()
      local x = moth.tensor {{0, 0}, {0, 1}, {1, 0}, {1, 1}}
      local y = moth.tensor {{0}, {1}, {1}, {0}}
      local step = moth.optim.Adam(net:parameters(), {lr = 0.05})
      local first, last
      for i = 1, 100 do
        step:zero_grad()
        local loss = nn.functional.mse_loss(net(x), y)
        loss:backward()
        step:step()
        last = loss:item()
        first = first or last
      end
      return first, last
    ]]
    assert.is_true(last < first / 4)
  end)

  it("shares tensors with the host", function()
    local x = moth.ones(3)
    moth.sandbox():run("local x = ... x:mul_(2)", x)
    assert.same({2, 2, 2}, x:tolist())
  end)

  it("draws random numbers of its own", function()
    moth.manual_seed(3)
    local wanted = moth.rand(4):tolist()
    moth.manual_seed(3)
    moth.sandbox():run "moth.rand(100) math.random() math.randomseed(1)"
    assert.same(wanted, moth.rand(4):tolist())
  end)

  it("names the line of an error", function()
    local problem = fails(moth.sandbox(), "\nlocal x = nil + 1")
    assert.is_truthy(problem:find("sandbox:script:2:", 1, true))
  end)

  it("has modules that the host passes", function()
    local box = moth.sandbox {modules = {game = {speed = 3}, util = "return {double = 2}"}}
    assert.equal(6, box:run "return require('game').speed * require('util').double")
  end)

  it("gives scripts a copy of such a module", function()
    local game = {speed = 3}
    moth.sandbox({modules = {game = game}}):run "require('game').speed = 4"
    assert.equal(3, game.speed)
  end)

  it("saves and loads in its folder only", function()
    local folder = os.tmpname()
    os.remove(folder)
    os.execute("mkdir " .. folder)
    local box = moth.sandbox {folder = folder, time = 5}
    assert.equal(3, box:run [[
      moth.save({w = moth.ones(3)}, "a.safetensors")
      return moth.load("a.safetensors").w:sum():item()
    ]])
    for _, path in ipairs {"../x.safetensors", "/tmp/x.safetensors", ".x", "a/b"} do
      fails(box, "moth.save({w = moth.ones(3)}, ...)", path)
    end
    os.execute("rm -r " .. folder)
  end)

  it("refuses options that do not exist", function()
    assert.has_error(function() moth.sandbox {memroy = 1} end)
    assert.has_error(function() moth.sandbox {time = -1} end)
  end)

  it("is not entered twice", function()
    local box
    box = moth.sandbox {globals = {again = function() box:run "return 1 + 1" end}}
    fails(box, "again()")
    assert.equal(2, box:run "return 1 + 1")
  end)
end)

describe("a sandbox stops", function()
  local loops = {
    ["an endless loop"] = "while true do end",
    ["a loop of pcall"] = "while true do pcall(function() while true do end end) end",
    ["a handler of xpcall that loops"] = [[
      local function loop() while true do end end
      while true do xpcall(loop, loop) end]],
    ["a coroutine that loops"] = [[
      local co = coroutine.wrap(function() while true do pcall(coroutine.yield) end end)
      while true do pcall(co) end]],
    ["a metamethod that loops"] = [[
      local t = setmetatable({}, {__index = function() while true do end end})
      while true do pcall(function() return t.x end) end]],
    ["a comparison of sort that loops"] = [[
      table.sort({3, 1, 2}, function() while true do end end)]],
    ["a sort of many values"] = [[
      local t = {}
      for i = 1, 1e5 do t[i] = i * 7919 % 100003 end
      while true do table.sort(t) table.sort(t, function(a, b) return a > b end) end]],
    ["a callback of gsub that loops"] = [[
      string.gsub("aaa", "a", function() while true do end end)]],
    ["a __tostring that loops"] = [[
      tostring(setmetatable({}, {__tostring = function() while true do end end}))]],
    ["a pattern that backtracks"] = [[
      return ("a"):rep(1000):find(("a*"):rep(20) .. "b")]],
    ["optional characters"] = [[
      return ("a"):rep(40):match(("a?"):rep(40) .. ("a"):rep(40))]],
    ["a search in a long text"] = [[
      local s = ("a"):rep(2 ^ 19)
      while true do s:find(s:sub(1, 2 ^ 18) .. "b", 1, true) end]],
    ["table.move of many values"] = "table.move({}, 1, 1e15, 2)",
    ["a loop of loaded text"] = "load('while true do end')()",
    ["ops in a loop"] = "local x = moth.ones(10) while true do x:add_(1) end",
    ["ops in a loop of pcall"] = [[
      local x = moth.ones(10)
      while true do pcall(function() while true do x = x + 1 end end) end]],
    ["a gradient in a loop"] = [[
      local w = moth.ones(10, {requires_grad = true})
      while true do w:pow(2):sum():backward() end]],
    ["no_grad around a loop"] = "moth.no_grad(function() while true do end end)",
    ["a module that loops"] = [[
      local Net = moth.nn.class("Net", moth.nn.Module)
      function Net:forward() while true do end end
      Net()(moth.ones(1))]],
  }
  for name, code in pairs(loops) do
    it(name, function() stops(code) end)
  end

  local nested = {
    ["pcall in pcall"] = [[
      local function deep(n) while true do pcall(deep, n + 1) end end
      deep(1)]],
    ["a coroutine in a coroutine"] = [[
      local function make()
        return coroutine.wrap(function() while true do pcall(make()) end end)
      end
      make()()]],
    ["a recursion with many arguments"] = [[
      local t = {}
      for i = 1, 1900 do t[i] = i end
      local function deep(...) while true do pcall(deep, 1, 2, 3, ...) end end
      deep(unpack(t))]],
    ["a recursion of a metamethod"] = [[
      local t = setmetatable({}, {})
      getmetatable(t).__index = function(_, k) return t[k + 1] end
      while true do pcall(function() return t[1] end) end]],
  }
  for name, code in pairs(nested) do -- each level raises again
    it(name, function() assert.is_true(overrun(code) < 0.5) end)
  end

  -- Ops of a few tenths of a second. A ratio of times holds on machines of any speed.
  local x, keys = moth.ones(5000, 400), moth.rand(2e6)
  for name, row in pairs {
    product = {"x:matmul(x:t())", x}, sort = {"x:sort()", keys},
    convolution = {"moth.nn.functional.conv2d(x, w)", moth.ones(8, 64, 56, 56),
      moth.ones(64, 64, 3, 3)},
    ["an elementwise op"] = {"x:erfinv()", keys:repeat_interleave(20)},
  } do
    it("a single op before its half: " .. name, function()
      local function seconds(time, done) -- the least of a few runs
        local least = math.huge
        for _ = 1, 5 do
          local box = moth.sandbox {time = time, tensors = 2 ^ 30}
          box.env.x, box.env.w = row[2], row[3]
          assert.equal(done, (pcall(box.run, box, row[1])))
          least = math.min(least, box.seconds)
        end
        return least
      end
      local whole = seconds(60, true)
      local least = seconds(whole / 10, false)
      assert.is_true(least < whole / 2, ("%g s of %g s"):format(least, whole))
    end)
  end

  it("a long kernel", function()
    assert.is_true(overrun([[
      local x = moth.ones(1500, 1500)
      while true do x = x:matmul(x) end]], {tensors = 2 ^ 28}) < 0.1)
  end)

  it("a script's later calls too, each at its own limit", function()
    local box = moth.sandbox {time = 0.01}
    fails(box, "while true do end")
    assert.equal(2, box:run "return 1 + 1")
    fails(box, "while true do end")
  end)
end)

describe("a sandbox limits", function()
  local bombs = {
    ["a table that grows"] = "local t = {} for i = 1, 1e9 do t[i] = i end",
    ["tables in tables"] = "local t = {} while true do t = {t, {}, {}} end",
    ["strings in a table"] = "local t, i = {}, 0 while true do i = i + 1 t[i] = 'x' .. i end",
    ["closures"] = "local t = {} while true do local x = t t = function() return x end end",
    ["coroutines"] = [[
      local t = {} while true do t[#t + 1] = coroutine.create(function() end) end]],
    ["a table that grows in pcall"] = [[
      local t = {} while true do pcall(function() for i = #t + 1, 1e9 do t[i] = i end end) end]],
  }
  for name, code in pairs(bombs) do
    it(name, function()
      local box = moth.sandbox {memory = 2 ^ 22, time = 5}
      local before = collectgarbage "count"
      local _, code_of = fails(box, code)
      assert.equal("E_LIMIT", code_of)
      assert.is_true(collectgarbage "count" - before < 3 * 4096)
      collectgarbage()
      assert.equal(2, box:run "return 1 + 1")
    end)
  end

  local strings = {
    rep = "('x'):rep(1e9)",
    ["rep with a separator"] = "('x'):rep(1000, ('y'):rep(10000))",
    concat = "local t = {} for i = 1, 1000 do t[i] = ('x'):rep(1e5) end table.concat(t)",
    ["concat with a separator"] = "local t = {} for i = 1, 1000 do t[i] = 1 end "
      .. "table.concat(t, ('x'):rep(1e5))",
    ["gsub of each character"] = "('a'):rep(1e5):gsub('a', ('b'):rep(1e5))",
    ["gsub of captures"] = "('a'):rep(1e5):gsub('.', '%0%0%0%0%0%0%0%0%0%0%0%0')",
    ["gsub by a function"] = "local b = ('b'):rep(1e5); ('a'):rep(1e4):gsub('a', function() "
      .. "return b end)",
    ["gsub by a table"] = "('a'):rep(1e4):gsub('a', {a = ('b'):rep(1e5)})",
    format = "local s = ('x'):rep(2 ^ 19) string.format('%s%s%s%s', s, s, s, s)",
    ["the operator .."] = "local s = 'x' while true do s = s .. s end",
    ["many operands of .."] = "local s = ('x'):rep(2 ^ 19) local t = s .. s .. s .. s .. s .. s",
    [".. in loaded text"] = "load('local s = \"x\" while true do s = s .. s end')()",
    [".. after a comment that ends with a carriage return"] =
      "local s = 'x' while true do -- \r s = s .. s\nend",
    [".. after a string over two lines"] =
      "local a, s = 'x\\\r\n', 'x' while true do s = s .. s end",
  }
  for name, code in pairs(strings) do
    it("strings: " .. name, function()
      local box = moth.sandbox {time = 5, memory = 2 ^ 26}
      assert.is_truthy(fails(box, code):find("this sandbox allows", 1, true))
    end)
  end

  it("tensors", function()
    local box = moth.sandbox {tensors = 2 ^ 20}
    moth.collect()
    local before = moth.memory().live_bytes
    local _, code = fails(box, "x = {} for i = 1, 100 do x[i] = moth.ones(10000) end")
    assert.equal("E_LIMIT", code)
    assert.is_true(moth.memory().live_bytes - before <= 2 ^ 20)
    moth.zeros(2 ^ 20) -- the host has no limit
  end)

  it("one large tensor", function()
    local _, code = fails(moth.sandbox(), "moth.zeros(1e6, 1e5)")
    assert.equal("E_LIMIT", code)
  end)

  it("what its calls keep together", function()
    local box = moth.sandbox {memory = 2 ^ 20, time = 5}
    box:run "all = {}  function more() for i = 1, 2000 do all[#all + 1] = {i} end end"
    local ok
    for _ = 1, 50 do ok = pcall(box.call, box, "more") end
    assert.is_false(ok)
  end)

  it("nothing of what its calls drop again", function()
    local box = moth.sandbox {memory = 2 ^ 20, time = 5}
    for _ = 1, 50 do box:run "local t = {} for i = 1, 5000 do t[i] = {i} end" end
  end)
end)

describe("a script cannot reach", function()
  local function is_nil(code)
    assert.is_nil((moth.sandbox():run("return " .. code)))
  end
  for name in ("debug ffi io jit package dofile loadfile getfenv setfenv newproxy module gcinfo "
    .. "string.dump os.execute os.exit os.getenv os.remove os.rename os.tmpname os.setlocale")
    :gmatch "[%w.]+" do it(name, function() is_nil(name) end) end

  local refused = {
    ["ffi by require"] = "require 'ffi'",
    ["a module of the host by require"] = "require 'moth.binding.lib'",
    ["the debug library by require"] = "require 'debug'",
    ["bytecode by load"] = "assert(load('\\27LJ\\2\\0'))",
    ["bytecode in pieces"] = [[
      local p = {'\27', 'LJ\2', nil} local i = 0
      assert(load(function() i = i + 1 return p[i] end))]],
    ["the mode b of load"] = "assert(load('return 1', 'x', 'b'))",
    ["moth.open"] = "moth.open('x')",
    ["moth.save without a folder"] = "moth.save({}, 'x')",
    ["moth.load without a folder"] = "moth.load('/etc/passwd')",
    ["moth.context"] = "moth.context()",
    ["moth.token"] = "moth.token(moth.ones(1))",
    ["moth.open_token"] = "moth.open_token('1')",
    ["moth.set_memory_limit"] = "moth.set_memory_limit(0)",
    ["moth.set_num_threads"] = "moth.set_num_threads(1)",
    ["moth.define"] = "moth.define{}",
    ["moth.kernel"] = "moth.kernel(function(x) return x end)",
    ["moth.capture"] = "moth.capture(function() end)",
    ["moth.frombuffer"] = "moth.frombuffer('abcd')",
    ["moth.data"] = "moth.data.DataLoader({}, {num_workers = 2})",
    ["moth.sandbox"] = "moth.sandbox()",
    ["moth.leaks"] = "moth.leaks()",
    ["moth.set_grad_enabled"] = "moth.set_grad_enabled(false)",
    ["moth.manual_seed"] = "moth.manual_seed(1)",
    ["nn's hooks of all modules"] = "moth.nn.register_module_forward_hook(print)",
    ["the address of a tensor's memory"] = "moth.ones(1):data_ptr()",
    ["%p"] = "string.format('%p', {})",
    ["a write to moth"] = "moth.ones = nil",
    ["a write to a namespace"] = "moth.nn.functional.relu = nil",
    ["a write to a class"] = "moth.nn.Linear.forward = nil",
    ["a write to a dtype"] = "moth.float32.itemsize = 1",
    ["a raw write to a dtype"] = "rawset(moth.float32, 'itemsize', 1)",
    ["a raw write to a class"] = "rawset(moth.nn.Linear, 'forward', 1)",
    ["the metatable of moth"] = "setmetatable(moth, {})",
    ["the metatable of a string"] = "getmetatable('').__index = nil",
    ["the metatable of a string by setmetatable"] = "setmetatable('', {})",
    ["the metatable of a tensor"] = "getmetatable(moth.ones(1)).__index = nil",
    ["the concatenation operand"] = "return __moth_concat",
    ["a yield out of the sandbox"] = "coroutine.yield(1)",
  }
  for name, code in pairs(refused) do
    it(name, function() fails(moth.sandbox {time = 1}, code) end)
  end

  it("the host's string functions by methods of strings", function()
    assert.is_true((moth.sandbox():run "return ('').rep == string.rep and ('').dump == nil"))
  end)

  it("the host's globals", function()
    moth.sandbox():run "_G.print = nil string.rep = nil table.insert = nil math.floor = nil x = 1"
    assert.is_truthy(print)
    assert.equal("aa", ("a"):rep(2))
    assert.is_nil(rawget(_G, "x"))
    moth.sandbox():run "assert(print and string.rep)"
  end)

  it("addresses by tostring", function()
    for _, value in ipairs {"{}", "print", "function() end", "coroutine.create(print)"} do
      assert.is_nil(moth.sandbox():run("return tostring(" .. value .. ")"):find "0x")
      assert.is_nil(moth.sandbox():run("return ('%s'):format(" .. value .. ")"):find "0x")
    end
  end)

  it("the metatable of an object of Moth", function()
    assert.is_false((moth.sandbox():run "return getmetatable(moth.nn.Linear(1, 1))"))
    assert.is_false((moth.sandbox():run "return getmetatable(moth)"))
  end)

  it("the coroutine of the host", function()
    local inside
    coroutine.wrap(function()
      inside = moth.sandbox():run "return tostring(coroutine.running())"
    end)()
    assert.equal("nil", inside)
  end)

  it("the environment of a loaded text's caller", function()
    assert.equal(1, (moth.sandbox():run "x = 1 return load('return x', 'n', 't', nil)()"))
    assert.equal(2, (moth.sandbox():run "return load('return y', 'n', 't', {y = 2})()"))
  end)

  it("a finalizer", function()
    local box = moth.sandbox()
    box:run "setmetatable({}, {__gc = function() ran = true end})"
    collectgarbage()
    collectgarbage()
    assert.is_nil(box.env.ran)
  end)
end)

describe("after a sandbox was stopped", function()
  local x = moth.ones(4)

  local function host_works()
    assert.is_nil((debug.gethook()))
    assert.same({2, 2, 2, 2}, (x + 1):tolist())
    assert.is_true(moth.is_grad_enabled())
    assert.equal(string, debug.getmetatable("").__index)
    assert.equal("AB", ("ab"):upper())
    moth.collect()
  end

  it("the host's ops work", function()
    pcall(function() moth.sandbox({time = 0.01}):run "while true do moth.ones(10) end" end)
    host_works()
  end)

  it("grad mode is as before", function()
    pcall(function()
      moth.sandbox({time = 0.01}):run "moth.no_grad(function() while true do moth.ones(1) end end)"
    end)
    host_works()
  end)

  it("scopes are closed", function()
    pcall(function()
      moth.sandbox({time = 0.01}):run "moth.scope(function() while true do moth.ones(1) end end)"
    end)
    local y = moth.ones(2)
    assert.same({1, 1}, y:tolist())
    host_works()
  end)

  it("another sandbox works, also inside a call of one", function()
    local inner = moth.sandbox {time = 0.005}
    local outer = moth.sandbox {time = 1, globals = {
      ask = function() return (pcall(inner.run, inner, "while true do end")) end,
    }}
    assert.is_false((outer:run "return ask()"))
    assert.equal(2, outer:run "return 1 + 1")
    host_works()
  end)

  it("a debug hook of the host is set again", function()
    local function hook() end
    debug.sethook(hook, "", 1000000)
    pcall(function() moth.sandbox({time = 0.01}):run "while true do end" end)
    local set = debug.gethook()
    debug.sethook()
    assert.equal(hook, set)
  end)
end)

describe("in a sandbox", function()
  local function same(code)
    local box = moth.sandbox {time = 5}
    local wanted = {assert(loadstring(code))()}
    assert.same(wanted, {box:run(code)})
  end
  local texts = {
    [===[return "a" .. 1 .. "b" .. 2.5 .. "c"]===],
    [===[local t = {...} return #t .. "", "x" .. "y"]===],
    [===[return "\z
        a" .. 'b\'' .. "\"c" .. [==[d]]==] .. "e" -- f .. g
    ]===],
    [===[local s = "" for i = 1, 10 do s = s .. i .. "," end return s]===],
    [===[local m = {__concat = function(a, b) return (type(a) == "table" and a[1] or a) .. "+"
        .. (type(b) == "table" and b[1] or b) end}
      local a, b = setmetatable({"a"}, m), setmetatable({"b"}, m)
      return a .. b, a .. "x", "x" .. b, a .. "y" .. b, 1 .. a]===],
    [===[return (select(2, pcall(function() return "a" .. {} end)):find "to concatenate a table")
      ~= nil]===],
    [===[return ("hello world"):find "o w", ("hello"):match "l+", ("abc"):gsub("%w", "%0%0")]===],
    [===[return ("x=1, y=2"):gsub("(%w+)=(%w+)", "%2=%1"), ("abc"):gsub("", "-"),
        ("abc"):gsub("b", {b = "[b]"}), ("abc"):gsub(".", function(c) return c:upper() end, 2)]===],
    [===[local t = {} for k, v in ("a=1,b=2"):gmatch "(%w+)=(%w+)" do t[#t + 1] = k .. v end
      return table.concat(t, ";")]===],
    [===[local t = {} for i = 1, 500 do t[i] = i * 7919 % 503 end table.sort(t)
      return t[1], t[250], t[500]]===],
    [===[return xpcall(function() error({1}) end, function(e) return e[1] end)]===],
    [===[local co = coroutine.wrap(function(a) local b = coroutine.yield(a + 1) return b * 2 end)
      return co(1), co(5)]===],
    [===[return string.format("%5.2f|%-5s|%q|%d|%%|%x", 3.14159, "ab", "a\nb", 7, 255)]===],
    [===[goto done do return 1 end ::done:: return 2]===],
    [===[local a = {n = 0} function a:inc() self.n = self.n + 1 return self end
      return a:inc():inc().n, #"abc" .. "", -2 ^ 2, 5 % 3, 0x1p4, 1e+2]===],
  }
  for i, code in ipairs(texts) do
    it("a text has the values that plain Lua computes: " .. i, function() same(code) end)
  end

  -- Long texts take the other matcher.
  local patterns = {
    {"find", "(%w+)%s*=%s*(%b())"}, {"match", "^(.-)%s*;(.*)$"}, {"find", "%f[%d]%d+()"},
    {"match", "(['\"])(.-)%1"}, {"find", "[^%w%s]+%-?x*y"}, {"match", "a.-b.-c.-d"},
    {"find", "x*$"}, {"match", "()(l+)()o*"}, {"find", "^%s+a*b*"}, {"match", "[%]a-c]+[^]]*"},
  }
  local subject = ("ab cd = (e(f)g); 'q u' 42 "):rep(3) .. ("z"):rep(1500) .. " l.lo ]abc] d"
  for _, p in ipairs(patterns) do
    it("the pattern " .. p[2] .. " matches as in plain Lua", function()
      local wanted = {string[p[1]](subject, p[2])}
      local code = "local s, p = ... return string." .. p[1] .. "(s, p)"
      assert.same(wanted, {moth.sandbox({time = 20}):run(code, subject, p[2])})
    end)
  end

  it("gsub and gmatch of long texts are as in plain Lua", function()
    local s = ("key = value; "):rep(200)
    local box = moth.sandbox {time = 20}
    local p, new = "(%w+)%s*=%s*(%w+)%s*;", "%2:%1,"
    assert.same({s:gsub(p, new)}, {box:run("return string.gsub(...)", s, p, new)})
    assert.same({s:gsub(p, new, 3)}, {box:run("return string.gsub(...)", s, p, new, 3)})
    assert.equal(200, (box:run("local n = 0 for k, v in string.gmatch(...) do n = n + #k - 2 end "
      .. "return n", s, p)))
  end)
end)
