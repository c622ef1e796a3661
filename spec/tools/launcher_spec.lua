-- The program `moth` (core/host/launcher.c): where it finds its files, its options, the global arg,
-- tracebacks, functions for the prompt, and the exit status. command_spec has its commands.

local files = require "spec.support.files"
local process = require "spec.support.process"

local launcher = debug.getregistry()["moth.launcher"]
if not launcher then
  pending("the program: these specs run under ./moth test")
  return
end

setup(files.setup)
teardown(files.teardown)

local function quoted(word) return "'" .. word:gsub("'", "'\\''") .. "'" end

-- Runs the program. @return its output, errors included, then its status
local function moth(...)
  local words = {process.program}
  for i, word in ipairs {...} do words[i + 1] = quoted(word) end
  local text, status = process.shell(table.concat(words, " ")):match "^(.*)rc=(%d+)\n$"
  return text, tonumber(status)
end

local function says(wanted, status, ...)
  local text, ended = moth(...)
  assert.same({wanted, status}, {text, ended})
end

-- Runs the program on a text of standard input.
local function piped(input, ...)
  local words = {"printf '" .. input .. "' |", process.program}
  for _, word in ipairs {...} do words[#words + 1] = quoted(word) end
  return process.shell(table.concat(words, " "))
end

describe("the program finds its files", function()
  local SHOW = 'local l = debug.getregistry()["moth.launcher"] print(l.root) print(l.program) '
    .. "print(package.path) print(package.cpath)"

  -- Runs a copy of the program in a folder. @return root, program, the first entries of its paths
  local function copy(folder)
    local program = files.path(folder) .. "/bin/moth"
    local text = process.shell(("mkdir -p '%s' && cp %s '%s'; echo %s | LUA_PATH='own;;' "
      .. "LUA_CPATH='more;;' '%s'"):format(files.path(folder) .. "/bin", process.program, program,
      quoted(SHOW), program))
    local root, found, path, cpath = text:match "^(.-)\n(.-)\n(.-)\n(.-)\nrc=0\n$"
    assert.equal(program, found, text)
    return root, path, cpath
  end

  local function own(path, entries)
    local wanted = entries:gsub("HOME", files.folder)
    assert.equal(wanted, path:sub(1, #wanted))
  end

  it("of an installation, a checkout around it, or one that .root names", function()
    local root, path, cpath = copy "installed"
    assert.equal("nil", root)
    own(path, "HOME/installed/bin/../share/lua/5.1/?.lua;"
      .. "HOME/installed/bin/../share/lua/5.1/?/init.lua;own;")
    own(cpath, "HOME/installed/bin/../lib/?.so;more;")

    os.execute(("mkdir -p '%s' '%s'"):format(files.path "tree/lua/moth", files.path "tree/core"))
    for i, name in ipairs {"lua/moth/init.lua", "core/moth.h", "lua/moth/init.lua"} do
      if i == 2 then os.remove(files.path "tree/lua/moth/init.lua") end
      files.write("tree/" .. name, "")
      root, path, cpath = copy "tree"
      assert.equal(i < 3 and "nil" or files.path "tree", root) -- one of both is no checkout
    end
    own(path, "HOME/tree/lua/?.lua;HOME/tree/lua/?/init.lua;own;")
    own(cpath, "HOME/tree/bin/?.so;more;")

    files.write("installed/bin/.root", "/some where\nsecond line")
    root, path, cpath = copy "installed"
    assert.equal("/some where", root)
    own(path, "/some where/lua/?.lua;/some where/lua/?/init.lua;own;")
    own(cpath, "HOME/installed/bin/?.so;more;")
    files.write("installed/bin/.root", "")
    assert.equal("nil", (copy "installed"))
  end)

  it("of a script after all others", function()
    local path = launcher.root .. "/lua/?.lua;" .. launcher.root .. "/lua/?/init.lua;"
    assert(require("lfs").mkdir(files.path "a?b") and require("lfs").mkdir(files.path "a;b"))
    for _, name in ipairs {"", "a?b/", "a;b/"} do
      files.write(name .. "show.lua", "print(package.path)")
      local text = moth(files.path(name .. "show.lua"))
      assert.equal(path, text:sub(1, #path))
      local tail = (";%s/?.lua;%s/?/init.lua\n"):format(files.folder, files.folder)
      assert.equal(name == "", text:sub(-#tail) == tail, text)
    end
    local here = process.shell(("cd '%s' && %s show.lua"):format(files.folder, process.program))
    assert.equal(piped "print(package.path)", here)
    files.write("near.lua", "return 42")
    files.write("run.lua", "x = require 'near'")
    local text = piped("x\\n", "-i", files.path "run.lua")
    assert.matches("42", text)
    assert.matches("\nrc=0\n$", text)
  end)

  it("not libmoth.so of MOTH_LIB, if that is empty or no file", function()
    for value, wanted in pairs {[""] = "1\n", ["/nonexistent.so"] = "the library"} do
      local text = process.shell(("MOTH_LIB=%s %s -e 'print(moth.ones(1):item())'"):format(value,
        process.program))
      assert.truthy(text:find(wanted, 1, true), text)
    end
  end)
end)

describe("the program's words", function()
  local SHOW = "local list = {...} for i = -3, 3 do list[#list + 1] = tostring(arg[i]) end "
    .. 'print(table.concat(list, "|"))'

  it("are in the global arg, as LuaJIT has them, and the script's arguments", function()
    local path = files.write("arg.lua", SHOW)
    local program = launcher.program
    says(("a|b c|nil|nil|%s|%s|a|b c|nil\n"):format(program, path), 0, path, "a", "b c")
    says(("nil|nil|%s|%s|nil|nil|nil\n"):format(program, path), 0, path)
    says(("a|nil|%s|-e|%s|a|nil|nil\n"):format(program, SHOW), 0, "-e", SHOW, "a")
    says(("1\na|-e|print(1)|-e|%s|a|nil|nil\n"):format(SHOW), 0, "-e", "print(1)", "-e", SHOW,
      "a")
    assert.equal(("a|nil|nil|%s|-|a|nil|nil\nrc=0\n"):format(program), piped(SHOW, "-", "a"))
    assert.equal(("nil|nil|nil|%s|nil|nil|nil\nrc=0\n"):format(program), piped(SHOW))
  end)

  it("may have several -e, which stop at the first error", function()
    says("1\n2\n3\n", 0, "-e", "print(1)", "-e", "print(2)", "-e", "print(...)", "3")
    local text, status = moth("-e", "print(1)", "-e", "error('no', 0)", "-e", "print(3)")
    assert.matches("^1\nno\nstack traceback:\n\t%[C%]", text:gsub("%(command line%)", "[C]"))
    assert.falsy(text:find("\n3\n", 1, true))
    assert.equal(1, status)
    for _, words in ipairs {{"-e"}, {"-e", "print(1)", "-e"}} do
      says("moth: -e needs a line of code behind it\n", 1, unpack(words))
    end
  end)

  it("name a file, an option or a command; each mistake has a message", function()
    for _, name in ipairs {"./no", "no.lua", "a/no"} do
      says(("moth: cannot open '%s': No such file or directory\n"):format(name), 1, name)
    end
    says("moth: cannot open 'no': No such file or directory (moth --help lists the commands)\n", 1,
      "no")
    for _, word in ipairs {"-x", "--no", "-i", "-ee", "--"} do
      says(("moth: unknown option '%s' (moth --help lists what there is)\n"):format(word), 1, word)
    end
    local version = ("Moth %s, %s\n"):format(launcher.version, jit.version)
    for _, word in ipairs {"version", "-v", "--version"} do says(version, 0, word) end
    local help, status = moth "help"
    assert.matches("^moth FILE%.lua", help)
    assert.equal(0, status)
    for _, word in ipairs {"-h", "--help"} do says(help, 0, word) end
    says("moth: 'moth docs' wants a folder\n", 1, "docs")
    says("moth: there is no spec/no\n", 1, "test", "spec/no")
    assert.matches("moth jupyter install, or moth jupyter run", (moth "jupyter"))
    assert.matches("^moth run %-n N", (moth "run"))
    assert.matches("^Usage: moth bench ", (moth("bench", "--help")))
    local text, ended = moth(files.write("python.lua", "import torch\nx = 1\n"))
    local hint = ":1: '=' expected near 'torch' (Lua's import is a function: local x = require "
    assert.equal(files.path "python.lua" .. hint .. '"x")\n', text)
    assert.equal(1, ended)
    says("(command line)" .. hint .. '"x")\n', 1, "-e", "import torch")
  end)
end)

describe("an error in a script", function()
  it("has a traceback of the user's functions by name, place and kind", function()
    local path = files.write("deep.lua", "local function inner() error('no luck', 0) end\n"
      .. "function outer() inner() end\n"
      .. "local t = {m = function() outer() end}\n"
      .. "('x'):gsub('x', function() t.m() end)\n")
    local at = "\n\t" .. path
    says("no luck\nstack traceback:" .. at .. ":1: in function 'inner'" .. at
      .. ":2: in function 'outer'" .. at .. ":3: in function 'm'" .. at .. ":4: in function <"
      .. path .. ":4>" .. at .. ":4: in main chunk\n", 1, path)
    local function with(value)
      return process.shell(("MOTH_TRACEBACK=%s %s '%s'"):format(value, process.program, path))
    end
    assert.falsy(with("short"):find("[C]", 1, true))
    assert.truthy(with("full"):find("\n\t[C]: in function 'gsub'", 1, true))
    local first = "no luck\nstack traceback:\n\t[C]: in function 'error'\n"
    assert.equal(first, with("full"):sub(1, #first))
  end)

  it("has no line of Moth in its traceback, unless all are wanted", function()
    local path = files.write("own.lua", "local moth = require 'moth'\n"
      .. "local function ask() return moth.ones(2):view(3) .. '' end\nask()\n")
    local at = "\n\t" .. path
    local _, text = moth(path):match "^([^\n]*)(.*)$"
    assert.equal("\nstack traceback:" .. at .. ":2: in function 'ask'" .. at
      .. ":3: in main chunk\n", text)
    local all = process.shell("MOTH_TRACEBACK=full " .. process.program .. " " .. quoted(path))
    assert.matches("\n\t" .. launcher.root .. "/lua/moth/", all, 1, true)
  end)

  it("of a value that is no text has its __tostring, or its kind", function()
    for code, text in pairs {
      ["error({})"] = "(the error is a table value)", ["error()"] = "(the error is a nil value)",
      ["error(true)"] = "(the error is a boolean value)",
      ["error(12, 0)"] = "12", ["error('text', 0)"] = "text",
      ["error(setmetatable({}, {__tostring = function() return 5 end}))"] = "5",
      ["error(setmetatable({}, {__tostring = function() return {} end}))"] =
        "(the error is a table value)",
    } do
      local said, status = moth("-e", code)
      assert.same({text, 1}, {said:match "^[^\n]*", status}, code)
    end
  end)

  it("names Python's words, and what a script without require needs", function()
    local path = files.path "words.lua"
    for word, text in pairs {True = "true", False = "false",
                             None = "nil, or moth.none in a list of arguments"} do
      files.write("words.lua", "local x = " .. word)
      assert.equal(("%s:1: '%s' is no word of Lua; write %s"):format(path, word, text),
        moth(path):match "^[^\n]*")
    end
    files.write("words.lua", "print(true_, none, _G[1], _G[True == nil])")
    assert.matches("'True' is no word", (moth(path)))
    files.write("words.lua", "print(true_, none, _G[1], _G[{}])")
    says("nil\tnil\tnil\tnil\n", 0, path)
    files.write("words.lua", "moth.ones(1)")
    assert.equal(path .. ":1: attempt to index global 'moth' (a nil value) (write first: local "
      .. "moth = require \"moth\")", moth(path):match "^[^\n]*")
  end)

  it("is extended by moth.hint, if that is a function that returns a text", function()
    local set = "local moth = debug.getregistry().moth moth.hint = %s error('no', 0)"
    for hint, text in pairs {
      ["function(s) return s .. ', a hint' end"] = "no, a hint",
      ["function() return nil end"] = "no",
      ["function() error 'late' end"] = "no", ["function() return {} end"] = "no", ["3"] = "no",
      ["nil"] = "no",
    } do
      says(text .. "\nstack traceback:\n\t(command line):1: in main chunk\n", 1, "-e",
        set:format(hint))
    end
  end)

  it("ends with status 1, also if its text speaks of an interrupt", function()
    says("interrupted!\nstack traceback:\n\t(command line):1: in main chunk\n", 1, "-e",
      "error('interrupted!', 0)")
  end)
end)

describe("the end of a script", function()
  it("calls moth.finish with true after an error, and fails if that fails", function()
    local set = "debug.getregistry().moth.finish = function(failed) print('finish', failed) end "
    says("finish\tfalse\n", 0, "-e", set)
    local text, status = moth("-e", set .. "error('no', 0)")
    assert.matches("finish\ttrue\n", text)
    assert.equal(1, status)
    text, status = moth("-e", "debug.getregistry().moth.finish = function() error('late', 0) end")
    assert.matches("^late\n", text)
    assert.equal(1, status)
    says("", 0, files.write("none.lua", "debug.getregistry().moth = {}"))
    says("", 0, files.write("none.lua", "debug.getregistry().moth = 3"))
  end)
end)

describe("functions of the program for the prompt", function()
  it("guarded runs a function and returns true, or false and a message", function()
    says("1\t2\t3\ntrue\n", 0, "-e", "local g = debug.getregistry()['moth.launcher'].guarded "
      .. "print(g(print, 1, 2, 3))")
    local text = moth("-e", "local g = debug.getregistry()['moth.launcher'].guarded "
      .. "print(select('#', g(error, 'no', 0)), g(error, 'no', 0)) print(pcall(g)) "
      .. "print(g(function() end))")
    assert.matches("^2\tfalse\tno\n", text)
    assert.matches("\nfalse\tbad argument #1 to '[^\n]*' %(value expected%)\ntrue\n$", text)
  end)

  it("read_line reads lines of standard input", function()
    local path = files.write("lines.lua", "local read = debug.getregistry()['moth.launcher']"
      .. ".read_line for _ = 1, 5 do local s = read() print(s and #s, s) end")
    assert.equal("3\tone\n0\t\n4\tlast\nnil\tnil\nnil\tnil\nrc=0\n", piped("one\\n\\nlast", path))
    assert.equal("3\ta\0b\n1\tc\nnil\tnil\nnil\tnil\nnil\tnil\nrc=0\n", piped("a\\0b\\nc\\n", path))
  end)

  -- The process sends itself SIGINT, as Ctrl-C does.
  local INTERRUPT = [[
    local ffi = require "ffi"
    ffi.cdef "int raise(int signal); int usleep(unsigned microseconds);"
    local l = debug.getregistry()["moth.launcher"]
    jit.off()
    local function loop()
      ffi.C.raise(2)
      while true do end
    end
  ]]

  it("end at an interrupt; between them it is only recorded", function()
    local path = files.write("stop.lua", INTERRUPT .. [[
      local function stopped(...)
        local good, text = l.guarded(...)
        return tostring(good) .. " " .. tostring(text):match "[^\n]*"
      end
      print(stopped(loop))
      ffi.C.raise(2)
      ffi.C.raise(2)
      print(stopped(print, "on"))
      print(stopped(error, "other", 0))
      ffi.C.usleep(500000)
      print(stopped(function() return pcall(loop) end))
      print(l.read_line())
      ffi.C.raise(2)
      print(l.read_line())
      ffi.C.raise(2)
      print(l.read_line(), "end")]])
    local text = piped("one\\ntwo\\n", path)
    assert.equal("false interrupted!\non\ntrue nil\nfalse other\ntrue nil\none\ntwo\nnil\tend\n"
      .. "rc=0\n", text)
    local flag = files.path "flag"
    local waits = files.write("wait.lua", ([[
      local read = debug.getregistry()["moth.launcher"].read_line
      local pipe = io.popen "sleep 0.2; kill -INT $PPID"
      print(read())
      pipe:close()
      io.open(%q, "w"):close()
      print(read())
      print(read())]]):format(flag))
    text = process.shell(("{ printf par; while [ ! -e '%s' ]; do sleep 0.05; done; "
      .. "printf 'tial\\nlast\\n'; } | timeout 20 %s '%s'"):format(flag, process.program, waits))
    assert.equal("false\ntial\nlast\nrc=0\n", text)
  end)

  it("that interrupts a script has status 130; two in a row end one that catches errors", function()
    for code, row in pairs {
      ["loop()"] = {"interrupted!", 130},
      ["pcall(loop) error('interrupted', 0)"] = {"interrupted", 130},
      ["pcall(loop) error('another', 0)"] = {"another", 1},
      ["pcall(loop) print 'saved'"] = {"saved", 0},
      ["pcall(loop) ffi.C.usleep(500000) pcall(loop) print 'saved'"] = {"saved", 0},
      ["pcall(loop) pcall(loop) print 'saved'"] = {"interrupted!", 130},
    } do
      local text, status = moth(files.write("stop.lua", INTERRUPT .. code))
      assert.same({row[1], row[2]}, {text:match "^[^\n]*":match "[%a!]+$", status}, code .. text)
    end
  end)

  it("MOTH_JIT=off turns the compiler off, other values do not", function()
    for value, on in pairs {off = "false", on = "true", [""] = "true"} do
      local text = process.shell(("MOTH_JIT=%s %s -e 'print((jit.status()))'"):format(value,
        process.program))
      assert.equal(on .. "\nrc=0\n", text)
    end
  end)
end)
