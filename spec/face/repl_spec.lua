--- The prompt: evaluation of a line, completion with TAB, and its behaviour on a terminal.

local moth = require "moth"
local complete = require "moth.repl.complete"
local editor = require "moth.repl.editor"
local evaluate = require "moth.repl.evaluate"
local history = require "moth.repl.history"
local lexer = require "moth.repl.lexer"
local repl = require "moth.repl"
local show = require "moth.repl.show"
local terminal = require "spec.support.terminal"
local tools = require "moth.repl.tools"

local launcher = debug.getregistry()["moth.launcher"]

-- ---- without a terminal ----

describe("a line at the prompt", function()
  -- The values of a line: a list with n; or nil, the message, and true if the line is incomplete.
  local function give(text)
    local chunk, message, more = evaluate.compile(text, "[7]")
    if not chunk then return nil, message, more end
    local got = { n = 0 }
    chunk(function(...)
      got = { shown = message, n = select("#", ...), ... }
    end)
    return got
  end

  it("prints its values if it is an expression", function()
    assert.are.same({ 2, shown = true, n = 1 }, give "1 + 1")
    assert.are.same({ 1, nil, 3, shown = true, n = 3 }, give "1, nil, 3")
    assert.are.same({ 5, shown = true, n = 1 }, give "= 5 -- five")
    assert.are.same({ 5, shown = true, n = 1 }, give "return 5")
    assert.are.same({ n = 0 }, give "returned_in_spec = nil")
    assert.are.same({ "a;", shown = true, n = 1 }, give "'a;'")
  end)

  it("prints nothing with a semicolon at its end", function()
    assert.are.same({ 3, shown = false, n = 1 }, give "3;")
    assert.are.same({ 3, shown = false, n = 1 }, give "3 ; -- no matter")
  end)

  it("continues on the next line while it is not complete", function()
    for _, text in ipairs { "for i = 1, 2 do", "f(", "x = {1,", "s = [[long", "--[[ note" } do
      local chunk, _, more = give(text)
      assert.is_nil(chunk)
      assert.is_true(more, text)
    end
    local _, message, more = give "x = = 1"
    assert.is_false(more)
    assert.are.equal("[7]:1:", message:match("^%S+"))
  end)

  it("keeps its local variables for the next line", function()
    local function kept(text) return (lexer.globalized(text):gsub(" +", " "):gsub("^ ", "")) end
    assert.are.equal("x = 1", kept "local x = 1")
    assert.are.equal("x = nil; y, z = nil", kept "local x; local y, z")
    assert.are.equal("function f() local a = 1 end", kept "local function f() local a = 1 end")
    assert.are.equal("for i = 1, 2 do local a = i end b = 2",
      kept "for i = 1, 2 do local a = i end local b = 2")
    assert.are.equal("s = 'local t = 1'", kept "local s = 'local t = 1'")
  end)

  it("reads the rest of an expression, and names the line of an error in it", function()
    for _, text in ipairs { "x +", "f(1,", "{1, 2", "1 ==", "not", "x.y.", "for i = 1, 2 do" } do
      local chunk, _, more = evaluate.compile(text, "[3]")
      assert.is_nil(chunk)
      assert.is_true(more, text)
    end
    for _, text in ipairs { "x + )", "1 2", "x y" } do
      assert.is_false(select(3, evaluate.compile(text, "[3]")), text)
    end
    local chunk = evaluate.compile("moth_of_spec.no_such", "[5]")
    assert.is_truthy(select(2, pcall(chunk, print)):find("[5]:1: ", 1, true))
    assert.is_function(evaluate.compile("1 -- a comment", "[6]"))
  end)

  it("shows the user's lines of a traceback, without Moth's and the prompt's", function()
    local lines = {
      "\t[C]: in function 'error'",
      "\t/users/me/net.lua:7: in function 'forward'",
      "\t/users/me/lua/moth/error/init.lua:20: in function 'raise'",
      "\t/users/me/nn/layer/linear.lua:31: in function 'forward'",
      "\tC:\\me\\nn\\layer\\linear.lua:31: in function 'forward'",
      "\t[builtin:pcall]: in function 'pcall'",
      "\t[moth]:3: in function 'f'",
      "\t(command line):1: in function 'g'",
      "\t[3]:1: in main chunk",
      "\t/users/me/after.lua:1: in function 'h'",
    }
    local message = "ouch\nstack traceback:\n" .. table.concat(lines, "\n")
    assert.equal("ouch\nstack traceback:\n" .. lines[2] .. "\n" .. lines[8],
      evaluate.shortened(message))
    table.remove(lines, 8)
    table.remove(lines, 2)
    assert.equal("ouch", evaluate.shortened("ouch\nstack traceback:\n"
      .. table.concat(lines, "\n")))
    assert.equal("ouch", evaluate.shortened "ouch")
    local prompt = "\t/users/me/lua/moth/repl/init.lua:1: in function 'x'\n\tuser.lua:1: in f"
    assert.equal("ouch", evaluate.shortened("ouch\nstack traceback:\n" .. prompt))
    assert.equal("ouch", evaluate.shortened("ouch\nstack traceback:\n\t[3]:1: in function "
      .. "'chunk'\n\tuser.lua:1: in f"))
  end)

  it("names the line of an error in code of several lines", function()
    local chunk = evaluate.compile("x_of_spec = 1\nerror('ouch')", "[7]")
    local ok, message = pcall(chunk, print)
    _G.x_of_spec = nil
    assert.is_false(ok)
    assert.are.equal("[7]:2: ouch", message)
  end)
end)

describe("the output of the prompt", function()
  it("is a plain table with its nested tables", function()
    assert.are.equal('{1, "two", {1, 2, 3}, lr = 0.1, on = true}',
      show.value { 1, "two", { 1, 2, 3 }, on = true, lr = 0.1 })
    assert.are.equal("{<f32 (2, 3)>, <a Linear>}",
      show.value { moth.ones(2, 3), moth.nn.Linear(2, 2) })
    assert.is_truthy(show.value(setmetatable({}, nil)) == "{}")
  end)

  it("opens nested tables over several lines if one is too short", function()
    local row = {}
    for i = 1, 6 do row[i] = "number " .. i end
    assert.equal([[{
  name = "a run",
  steps = {
    {"number 1", 7},
    {
      inner = {
        "number 1", "number 2", "number 3", "number 4", "number 5", "number 6"
      },
      x = {{1}},
    },
  },
}]], show.value { name = "a run", steps = { { unpack(row), 7 }, { inner = row, x = {{1}} } } })
  end)

  it("shows some hundred entries of many nested tables", function()
    local t = {}
    for i = 1, 60 do
      t[i] = {}
      for k = 1, 60 do t[i][k] = k end
    end
    local _, lines = show.value({ t, t, t, t }):gsub("\n", "")
    assert.is_true(lines < 700)
  end)

  it("has colours only where they are wanted", function()
    local function plain(text) return (text:gsub("\27%[%d*m", "")) end
    local t = { 1, -2.5, "a", true, x = moth.ones(2), { y = "b c" } }
    local text = show.colored(t)
    assert.equal(show.value(t), plain(text))
    for _, painted in ipairs { "\27[36m1\27[0m", '\27[32m"a"\27[0m', "\27[33mtrue\27[0m",
                               "\27[35m<f32 (2)>\27[0m", '{y = \27[32m"b c"\27[0m}' } do
      assert.is_truthy(text:find(painted, 1, true), painted)
    end
    assert.is_truthy(show.colored(moth.ones(2)):find "\27%[90m%[moth.float32 of size 2%]\27%[0m$")
    assert.equal("plain text", show.colored "plain text")
    assert.is_false(show.has_colors(99))
  end)

  it("cuts a long table short", function()
    local t = {}
    for i = 1, 1000 do t[i] = i end
    local text = show.value(t)
    assert.is_truthy(text:find("... 940 more", 1, true))
    for line in text:gmatch("[^\n]+") do assert.is_true(#line <= 82, line) end
  end)

  it("is the signature of a function", function()
    assert.is_truthy(show.value(moth.relu):find("function relu(input", 1, true))
  end)

  it("puts short values in a row and long values below each other", function()
    assert.are.equal("1\tnil\ttrue", show.values({ 1, nil, true }, 3))
    local _, lines = show.values({ moth.ones(2), moth.ones(2) }, 2):gsub("\n", "")
    assert.are.equal(3, lines)
  end)
end)

describe("tools of the prompt:", function()
  it("who lists variables with shapes, dtypes, devices and bytes", function()
    tools.remember_globals()
    _G.spec_x, _G.spec_n, _G.spec_net = moth.ones(3, 4), 7, moth.nn.Linear(2, 3)
    _G.spec_list, _G.spec_f = { moth.ones(256), { moth.zeros(256) } }, function() end
    local text = tools.who_text()
    for _, name in ipairs { "spec_x", "spec_n", "spec_net", "spec_list", "spec_f" } do
      _G[name] = nil
    end
    assert.equal([[
name       type      shape      dtype    device    bytes
spec_f     function
spec_list  table     2 tensors           cpu     2.0 KiB
spec_n     number
spec_net   Linear    2 tensors           cpu        36 B
spec_x     tensor    (3, 4)     float32  cpu        48 B
2.1 KiB in variables, ]], text:match "^.*in variables, ")
  end)

  it("who counts the buffers of a module, too, and tensors that are freed as nothing", function()
    tools.remember_globals()
    _G.spec_norm, _G.spec_gone = moth.nn.BatchNorm1d(4), moth.ones(5)
    _G.spec_nets = { moth.nn.Linear(2, 3), { moth.nn.BatchNorm1d(4) } }
    _G.spec_gone:free()
    local text = tools.who_text()
    for _, name in ipairs { "spec_norm", "spec_gone", "spec_nets" } do _G[name] = nil end
    assert.matches("spec_norm +BatchNorm1d +5 tensors +cpu +72 B\n", text) -- 4 * 4 floats, a count
    assert.matches("spec_nets +table +7 tensors +cpu +108 B\n", text)
    assert.matches("spec_gone +tensor +freed *\n", text)
  end)

  it("time prints a duration and returns the results", function()
    local lines, original = {}, print
    _G.print = function(line) lines[#lines + 1] = line end
    local a, b = tools.time(function(x) return x, 2 end, 1)
    local c = tools.time "1 + 1"
    local fine, message = pcall(tools.time, "1 +")
    _G.print = original
    assert.same({ 1, 2, 2 }, { a, b, c })
    assert.is_truthy(#lines == 2 and lines[1]:find "^[%d.]+ %a+$")
    assert.is_truthy(not fine and message:find "^time:1:")
  end)
end)

describe("help at the prompt", function()
  it("explains values in scope, methods and names of Moth", function()
    assert.is_truthy(repl.help("moth.relu"):find("max(x, 0)", 1, true))
    assert.is_truthy(repl.help("conv2d"):find("stride", 1, true))
    _G.spec_x = moth.ones(2)
    assert.is_truthy(repl.help("spec_x:sum"):find("keepdim", 1, true))
    _G.spec_x = moth.optim
    assert.is_truthy(repl.help("spec_x"):find("AdamW", 1, true))
    _G.spec_x = { inner = 1 }
    assert.equal("In spec_x: inner", repl.help("spec_x"))
    _G.spec_x = moth.float32
    assert.is_truthy(repl.help("spec_x"):find("4 bytes", 1, true))
    _G.spec_x = nil
    assert.is_truthy(repl.help("nn.Module"):find("nn.class(", 1, true))
    assert.is_truthy(repl.help("no_such_thing"):find("there is no 'no_such_thing'", 1, true))
  end)
end)

describe("completion", function()
  local function offers(text)
    local _, list = complete.find(text)
    local set = {}
    for _, name in ipairs(list) do set[name] = true end
    return set, list
  end

  setup(function()
    _G.spec_x, _G.spec_moth, _G.spec_nn = moth.ones(3), moth, moth.nn
    _G.spec_net = moth.nn.Sequential(moth.nn.Linear(2, 2))
    _G.spec_net.head = moth.nn.Linear(2, 2)
  end)
  teardown(function()
    _G.spec_x, _G.spec_moth, _G.spec_nn, _G.spec_net = nil, nil, nil, nil
  end)

  it("knows globals and keywords", function()
    local set = offers "print(spec_"
    assert.is_true(set.spec_x and set.spec_net)
    assert.is_true(offers("if true th")["then"])
    assert.are.same({}, (offers "-- spec_"))
  end)

  it("knows names of a namespace that load at first use", function()
    assert.is_true(offers("spec_moth.nn.Con").Conv2d)
    assert.is_true(offers("spec_moth.nn.functional.max_po").max_pool2d)
    assert.is_true(offers("spec_moth.optim.Ad").AdamW)
    assert.is_true(offers("spec_moth.floa").float64)
  end)

  it("knows a tensor's methods and fields", function()
    assert.is_true(offers("spec_x:su").sum)
    assert.is_true(offers("spec_x.sh").shape)
    assert.is_nil(offers("spec_x:sh").shape)
    assert.is_true(offers("spec_x:abs():su").sum)
  end)

  it("knows a module's fields, children and methods", function()
    assert.is_true(offers("spec_net.he").head)
    assert.is_true(offers("spec_net[1].wei").weight)
    assert.is_true(offers("spec_net:para").parameters)
  end)

  it("knows the names of the remaining arguments", function()
    assert.are.same({ ["kernel_size = "] = true }, (offers "spec_nn.Conv2d{1, 10, ker"))
    assert.is_true(offers("spec_moth.conv2d(spec_x, {pad")["padding = "])
    local set = offers "spec_nn.Conv2d{1, 10, stride = 2,\n "
    assert.is_true(set["kernel_size = "])
    assert.is_nil(set["stride = "])
    assert.is_nil(set["in_channels = "])
    assert.is_true(offers("spec_x:sum{1, keep")["keepdim = "])
    assert.are.same({}, (offers "spec_x:sum{1, keepdim = "))
  end)

  it("knows the choices of an argument", function()
    assert.are.same({ "mean'" }, select(2, offers "spec_nn.MSELoss{reduction = 'm"))
    assert.are.same({ 'sum"' }, select(2, offers 'spec_moth.mse_loss(spec_x, spec_x, "s'))
  end)

  it("knows the signature of the call that begins", function()
    _G.spec_m = moth
    assert.is_truthy(complete.signature("y = spec_m.relu("):find "^relu%(input")
    assert.is_truthy(complete.signature("spec_m.nn.Linear(3, "):find "\n  out_features: ")
    assert.is_truthy(complete.signature("spec_m.nn.Linear{3, "):find "\n  out_features: ")
    assert.is_nil(complete.signature "spec_m.nn.Linear(3")
    assert.is_nil(complete.signature "print(")
    assert.is_nil(complete.signature "x = {1, ")
    _G.spec_m = nil
  end)

  it("knows file names in other strings", function()
    local folder = os.tmpname()
    os.remove(folder)
    os.execute(("mkdir -p '%s/inner' && touch '%s/input.csv' '%s/.input'"):format(folder, folder,
      folder))
    local _, list = offers("open('" .. folder .. "/in")
    os.execute(("rm -r '%s'"):format(folder))
    assert.are.same({ folder .. "/inner/", folder .. "/input.csv'" }, list)
  end)

  it("calls no functions", function()
    local called = false
    _G.spec_f = function() called = true return moth end
    complete.find "spec_f().nn.Con"
    complete.find "spec_f{"
    _G.spec_f = nil
    assert.is_false(called)
  end)
end)

-- ---- on a terminal ----

if not launcher then
  pending("the prompt on a terminal: these specs run under ./moth test")
  return
end

describe("the history", function()
  it("works if no file can be written", function()
    for _, path in ipairs { false, "/proc/no/such/history" } do
      local past = setmetatable({ path = path, lines = {} }, { __index = history })
      assert.is_true(past:add "x")
      assert.is_false(past:add "x")
    end
  end)
end)

describe("the prompt on a terminal", function()
  local home, t

  before_each(function()
    home = os.tmpname()
    os.remove(home)
    os.execute(("mkdir -p '%s/config/moth'"):format(home))
  end)
  after_each(function()
    t:close()
    os.execute(("rm -rf '%s'"):format(home))
  end)

  -- Interrupts code that has begun to run: the code prints a line first.
  local function interrupted(code)
    t:enter("print('be' .. 'gun') " .. code, "begun\n")
    t:type("\3")
    t:wait("interrupted")
    t:wait("]> ")
  end

  it("shows values, continues over several lines, survives errors, explains, exits", function()
    t = terminal.moth(home)
    t:wait("[1]> ")
    t:enter("moth.ones(2, 2):sum()", "4 [moth.float32]\n[2]> ")
    t:enter("local a = ans + 1;", "[3]> ")
    t:enter("for i = 1, 2 do", ".. ")
    t:enter("print(i * a:item())", ".. ")
    t:enter("end", "5\n10\n[4]> ")
    t:enter("F.relu('no')", "[4]:1: bad argument 'input' to 'relu'")
    t:wait("[5]> ")
    t:enter("? F.relu", "max(x, 0)")
    t:wait("[6]> ")
    t:type("\4")
    assert.is_true(t:ended())
  end)

  it("returns at once after Ctrl-C in a loop, with ops or without", function()
    t = terminal.moth(home)
    t:wait("[1]> ")
    interrupted("while true do end")
    interrupted("local x = moth.ones(8) while true do x = x * 1 end")
    interrupted("loadstring('while true do end')()")
    interrupted("moth.scope(function() while true do end end)")
    t:enter("6 * 7", "42\n[6]> ")
  end)

  it("drops the typed line at Ctrl-C", function()
    t = terminal.moth(home)
    t:wait("[1]> ")
    t:type("\3")
    t:wait("[1]> ")
    t:enter("if true then", ".. ")
    t:type("\3")
    t:wait("[1]> ")
    t:enter("6 * 7", "42\n[2]> ")
  end)

  it("keeps results in _ and in _N", function()
    t = terminal.moth(home)
    t:wait("[1]> ")
    t:enter("6 * 7", "42\n[2]> ")
    t:enter("_ + 1", "43\n[3]> ")
    t:enter("_1 + _2", "85\n[4]> ")
  end)

  it("shows colours unless NO_COLOR is set", function()
    for _, case in ipairs { { "NO_COLOR=", true }, { "NO_COLOR=1", false } } do
      t = terminal.moth(home, case[1])
      t:wait("[1]> ")
      t:type("{'x'}\r")
      repeat t:_more(200) until t.text:find("[2]> ", 1, true)
      assert.equal(case[2], t.seen:find('{\27[32m"x"\27[0m}', 1, true) ~= nil)
      assert.is_truthy(t.text:find('{"x"}', 1, true))
      if case[2] then t:close() end
    end
  end)

  it("shows long help in the pager", function()
    t = terminal.moth(home, "PAGER='sed s/^/P:/'")
    t:wait("[1]> ")
    t:enter("? nn.Transformer", "P:")
    t:wait("[2]> ")
    t:enter("? nn.Identity", "Identity")
    assert.is_nil(t:wait("[3]> "):find("P:", 1, true))
  end)

  it("recalls a block of several lines whole, also later", function()
    if not editor.found() then
      t = terminal.moth(home)
      return pending("neither isocline nor libedit is here")
    end
    t = terminal.moth(home)
    t:wait("[1]> ")
    t:enter("for i = 1, 2 do", ".. ")
    t:enter("print('turn', i)", ".. ")
    t:enter("end", "turn\t2\n[2]> ")
    t:type("\27[A\r") -- up
    t:wait("turn\t2\n[3]> ")
    t:type("\4")
    assert.is_true(t:ended())
    t:close()
    t = terminal.moth(home)
    t:wait("[1]> ")
    t:type("\27[A\r")
    t:wait("turn\t2\n[2]> ")
  end)

  it("shows the signature at TAB behind a bracket", function()
    if not editor.found() then
      t = terminal.moth(home)
      return pending("neither isocline nor libedit is here")
    end
    t = terminal.moth(home)
    t:wait("[1]> ")
    t:type("F.relu(\t")
    t:wait("relu(input")
    t:wait("[1]> F.relu(")
  end)

  it("runs a file first with -i, whose local variables stay", function()
    local path = home .. "/config/moth/file.lua"
    local file = assert(io.open(path, "w"))
    file:write("#!/usr/bin/env moth\nlocal answer = 40\nlocal two = ...\nprint(arg[0] == '" .. path
      .. "', two)\n")
    file:close()
    t = terminal.start(("env XDG_STATE_HOME=%s/state XDG_CONFIG_HOME=%s/config %s -i %s 2"):format(
      home, home, launcher.program, path))
    t:wait("true\t2\n")
    t:wait("[1]> ")
    t:enter("answer + two", "42\n[2]> ")
    t:close()
    file = assert(io.open(path, "w"))
    file:write("local a = 1\nerror 'ouch'")
    file:close()
    t = terminal.start(("env XDG_STATE_HOME=%s/state XDG_CONFIG_HOME=%s/config %s -i %s"):format(
      home, home, launcher.program, path))
    t:wait("file.lua:2: ouch")
    t:wait("[1]> ")
    t:enter("a", "1\n[2]> ")
  end)

  it("says what is wrong with the user's startup file, and goes on", function()
    for _, row in ipairs {{"answer = = 42", "init.lua:1: unexpected symbol near '='"},
        {"answer = 6\nerror 'ouch'", "init.lua:2: ouch"}} do
      local file = assert(io.open(home .. "/config/moth/init.lua", "w"))
      file:write(row[1])
      file:close()
      t = terminal.moth(home)
      t:wait(row[2])
      t:wait("[1]> ")
      t:enter("6 * 7", "42\n")
      assert.is_nil(t.text:find("attempt to", 1, true))
      t:close()
    end
    t = terminal.moth(home)
  end)

  it("runs the user's startup file", function()
    local file = assert(io.open(home .. "/config/moth/init.lua", "w"))
    file:write("answer = 42")
    file:close()
    t = terminal.moth(home)
    t:wait("[1]> ")
    t:enter("answer + 1", "43\n")
  end)

  it("completes with TAB and remembers the lines of earlier runs", function()
    if not editor.found() then
      t = terminal.moth(home)
      return pending("neither isocline nor libedit is here")
    end
    t = terminal.moth(home)
    t:wait("[1]> ")
    t:type("c = moth.nn.MSEL\t{reduc\t'su\t}\r")
    t:wait("[2]> ")
    t:enter("c.reduction", "sum\n[3]> ")
    t:type("moth.ran\t")
    t:wait("randperm")
    t:wait("[3]> moth.ran")
    t:type("\3\4")
    assert.is_true(t:ended())
    t:close()
    t = terminal.moth(home)
    t:wait("[1]> ")
    t:type("\27[A\27[A\r") -- up, up
    t:wait("reduction = 'sum'}")
    t:wait("[2]> ")
  end)
end)
