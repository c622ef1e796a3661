-- The commands of ./moth, one by one: how `moth test` sorts its words, what the commands print
-- and how they end. The programs that they start are replaced, so that each row is quick.

local cli = require "moth.cli"
local files = require "spec.support.files"

local launcher = debug.getregistry()["moth.launcher"]
if not launcher then
  pending("the commands: these specs run under ./moth test")
  return
end

local lfs = require "lfs"
local real = {stderr = io.stderr, exit = os.exit, dofile = dofile, loadfile = loadfile,
  print = print, root = launcher.root, version = launcher.version, chdir = lfs.chdir}
local replaced -- modules

before_each(function()
  files.setup()
  replaced = {}
end)
after_each(function()
  rawset(io, "stderr", real.stderr)
  rawset(os, "exit", real.exit)
  lfs.chdir = real.chdir
  _G.dofile, _G.loadfile, _G.print = real.dofile, real.loadfile, real.print
  launcher.root, launcher.version = real.root, real.version
  for name, module in pairs(replaced) do package.loaded[name] = module or nil end
  files.teardown()
end)

local function replace(name, module)
  replaced[name] = package.loaded[name] or false
  package.loaded[name] = module
end

-- Runs a command. @return what it printed, errors included; its status, nil if it returned
local function run(...)
  local said, status = {}, nil
  rawset(io, "stderr", {write = function(_, ...) said[#said + 1] = table.concat {...} end})
  _G.print = function(text) said[#said + 1] = tostring(text) .. "\n" end
  rawset(os, "exit", function(code)
    status = code
    error(replaced, 0) -- stops the command
  end)
  local arguments = _G.arg
  local ok, problem = pcall(cli.main, ...)
  local given = _G.arg
  _G.arg, _G.print = arguments, real.print
  rawset(io, "stderr", real.stderr)
  rawset(os, "exit", real.exit)
  if not ok and problem ~= replaced then said[#said + 1] = "error: " .. tostring(problem) end
  return table.concat(said), status, given
end

local function ends(...)
  local said, status = run(...)
  return {said, status}
end

describe("moth test", function()
  -- Replaces Busted and the runner of several processes. `found`: the files of all paths.
  local function test(found, ...)
    local calls = {}
    _G.dofile = function(path)
      assert.equal("spec/support/jobs.lua", path)
      return {
        processors = function() return 5 end,
        files = function(paths)
          calls.searched = table.concat(paths, " ")
          return found
        end,
        run = function(program, list, options, count)
          assert.equal(launcher, program)
          calls.jobs = ("%d: %s | %s"):format(count, table.concat(list, " "),
            table.concat(options, " "))
          return not calls.searched:find "core"
        end,
      }
    end
    replace("busted.runner", function(options)
      assert.same({standalone = false}, options)
      calls.busted = table.concat(arg, " ", 0)
    end)
    local said, status = run("test", ...)
    return {calls.searched, calls.busted or calls.jobs, said, status}
  end

  local ONE, TWO = {"a_spec"}, {"a_spec", "b_spec"}

  it("runs files in several processes, one file and options of one process in this one", function()
    for _, row in ipairs {
      {TWO, {}, "spec", "5: a_spec b_spec | "},
      {TWO, {"spec/io"}, "spec/io", "5: a_spec b_spec | "},
      {TWO, {"spec/io", "spec/nn"}, "spec/io spec/nn", "5: a_spec b_spec | "},
      {TWO, {"--jobs=3"}, "spec", "3: a_spec b_spec | "},
      {TWO, {"--jobs=12", "spec/io"}, "spec/io", "12: a_spec b_spec | "},
      {ONE, {"spec/io"}, "spec/io", "busted --ignore-lua spec/io"},
      {ONE, {"--jobs=1", "spec/io"}, "spec/io", "1: a_spec | "},
      {{}, {}, "spec", "busted --ignore-lua"},
      {ONE, {"--device=cuda", "spec/io"}, "spec/io", "1: a_spec | "},
      {TWO, {"--device=cuda", "--jobs=2"}, "spec", "2: a_spec b_spec | "},
      {TWO, {"--jobs=2", "--device=cuda"}, "spec", "2: a_spec b_spec | "},
      {TWO, {"--sanitize", "--clang", "--racecheck"}, "spec", "5: a_spec b_spec | "},
      {TWO, {"--cases", "--hosts", "--distributed"}, "spec/cases spec/hosts spec/distributed",
       "5: a_spec b_spec | "},
      {TWO, {"--filter=x y", "--exclude-tags=z"}, "spec",
       "5: a_spec b_spec | --filter=x y --exclude-tags=z"},
      {ONE, {"spec/io", "--filter=x"}, "spec/io", "busted --ignore-lua spec/io --filter=x"},
      {ONE, {"--repeat=2", "spec/io"}, nil, "busted --ignore-lua --repeat=2 spec/io"},
      {TWO, {"--repeat=2"}, "spec", "busted --ignore-lua --repeat=2 a_spec b_spec"},
      {TWO, {"-v", "--clang"}, "spec", "busted --ignore-lua -v a_spec b_spec"},
      {TWO, {"--filter", "x", "spec/io"}, nil, "busted --ignore-lua --filter x spec/io"},
      {TWO, {"spec/io", "--filter", "x"}, nil, "busted --ignore-lua spec/io --filter x"},
      {TWO, {"--cases", "--filter", "x", "--jobs=1"}, nil,
       "busted --ignore-lua spec/cases --filter x"},
      {TWO, {"--filter", "x"}, "spec", "busted --ignore-lua --filter x a_spec b_spec"},
    } do
      local wanted = {row[3], row[4], ""}
      assert.same(wanted, test(row[1], unpack(row[2])), table.concat(row[2], " "))
    end
  end)

  it("fails with a message for wrong words, and with status 1 after a failed claim", function()
    assert.same({nil, nil, "moth: there is no spec/no\n", 1}, test(TWO, "spec/io", "spec/no"))
    for _, word in ipairs {"--jobs=", "--jobs=x", "--jobs=-1", "--jobs=2x"} do
      assert.same({nil, nil, "moth: --jobs wants a number: " .. word .. "\n", 1}, test(TWO, word))
    end
    assert.same({"spec/core", "5: a_spec b_spec | ", "", 1}, test(TWO, "spec/core"))
    replace("busted.runner", nil)
    for _, row in ipairs {{"a problem", "error: a problem"}, {nil, "", 1}} do
      local function failing() error(row[1], 0) end
      replace("busted.runner", failing)
      assert.same({row[2], row[3]}, ends("test", "-v", "spec/io"))
    end
  end)

  it("needs a checkout and Busted", function()
    for _, command in ipairs {"test", "bench", "docs"} do
      launcher.root = nil
      local said, status = run(command, command == "docs" and "--site" or nil, files.path "site")
      local name = command == "docs" and "docs --site" or command
      assert.equal(("moth: 'moth %s' needs a checkout of Moth: the installed files have no specs\n")
        :format(name), said)
      assert.equal(1, status)
      launcher.root = real.root
    end
    assert.is_nil(lfs.attributes(files.path "site"))
    for _, name in ipairs {"busted.core", "lfs"} do
      local search = package.loaders
      local own = {unpack(search)}
      replace(name, nil)
      for i = 1, #search do search[i] = function() return "" end end
      local ended = ends "test"
      for i, f in ipairs(own) do search[i] = f end
      package.loaded[name] = replaced[name]
      assert.same({"moth: the specs need Busted (Debian: apt-get install lua-busted)\n", 1}, ended)
    end
    lfs.chdir = function(path) return path ~= real.root end
    assert.same({"moth: cannot enter " .. real.root .. "\n", 1}, ends "test")
  end)

  it("--coverage ends with the status of the report, of the checkout's files", function()
    local path = package.path
    for status, good in pairs {[0] = true, [1] = false} do
      local asked
      replace("spec.support.coverage", {report = function(all)
        asked = {all, package.path:sub(1, #real.root + 7)}
        return good
      end})
      local said, ended = run("test", "--coverage")
      package.path = path
      assert.same({"", status, {true, real.root .. "/?.lua;"}}, {said, ended, asked})
    end
  end)
end)

describe("moth bench", function()
  it("runs its file with the words as arguments", function()
    local given, opened
    _G.loadfile = function(path)
      opened = path
      return function(...) given = {...} end
    end
    local said, status, arguments = run("bench", "matmul", "--help")
    assert.same({"", nil, {"matmul", "--help"}}, {said, status, given})
    local file = real.root .. "/spec/bench/run.lua"
    assert.equal(file, opened)
    assert.same({[0] = file, "matmul", "--help"}, arguments)
    _G.loadfile = function() return nil, "a mistake" end
    assert.same({"moth: a mistake\n", 1}, ends "bench")
  end)
end)

describe("the other commands", function()
  it("help prints the commands, or the help on each name", function()
    local commands = run "help"
    assert.matches("^moth FILE%.lua %[ARGUMENTS%] .*\nMOTH_NO_INSTALL=1 [%l ]+\n$", commands)
    for _, name in ipairs {"-h", "--help"} do assert.equal(commands, (run(name))) end
    assert.equal(commands, (run()))
    local asked = {}
    replace("moth", {help = function(name)
      asked[#asked + 1] = name
      if name == "bad" then error("x.lua:3: there is no 'bad'") end
    end})
    assert.same({""}, ends("help", "a", "b"))
    local said, status = run("help", "a", "bad", "b")
    assert.matches("^moth: [^\n]*there is no 'bad'\n$", said)
    assert.falsy(said:find("cli_spec", 1, true))
    assert.same({1, {"a", "b", "a", "bad"}}, {status, asked})
  end)

  it("version prints the versions of Moth and LuaJIT", function()
    for _, name in ipairs {"version", "-v", "--version"} do
      assert.same({("Moth %s, %s\n"):format(real.version, jit.version)}, ends(name))
    end
    launcher.version = nil
    assert.equal(("Moth ?, %s\n"):format(jit.version), (run "version"))
  end)

  it("an unknown one fails, and prints the commands", function()
    local said, status = run "tests"
    assert.equal("moth: unknown command 'tests'\n\n" .. run "help", said)
    assert.equal(1, status)
  end)

  it("run, doctor and jupyter end with the status of their functions", function()
    local given
    replace("moth.distributed.launch", function(...)
      given = {...}
      return 7
    end)
    local said, status = run("run", "-n", "2", "a.lua")
    assert.same({"", 7, {launcher, {"-n", "2", "a.lua"}}}, {said, status, given})
    for code, good in pairs {[0] = true, [1] = false} do
      replace("moth.doctor", {main = function() return good end})
      assert.same({"", code}, ends "doctor")
    end
    replace("moth.jupyter", {main = function(...) given = {...} end})
    run("jupyter", "install")
    assert.same({{"install"}, launcher.program}, given)
  end)

  it("docs writes the reference, stubs or a site into a folder, which it creates", function()
    local calls
    local function note(kind)
      return function(...) calls[#calls + 1] = {kind, ...} end
    end
    replace("moth.help.docs", {site = note "site", reference = note "reference"})
    replace("moth.help.stubs", {write = note "stubs"})
    local here, folder = lfs.currentdir(), files.path "new"
    for _, row in ipairs {
      {{folder}, {"reference", folder}}, {{"--stubs", folder}, {"stubs", folder}},
      {{"--site", folder}, {"site", real.root, folder}},
    } do
      calls = {}
      lfs.rmdir(folder)
      assert.same({""}, ends("docs", unpack(row[1])))
      assert.same({row[2]}, calls)
      assert.equal("directory", lfs.attributes(folder, "mode"))
    end
    calls = {}
    lfs.chdir(files.folder)
    local said = run("docs", "new")
    lfs.chdir(here)
    assert.same({"", {{"reference", folder}}}, {said, calls})
    for _, words in ipairs {{}, {"--site"}, {"--stubs"}, {"--stub", folder},
                            {"--stubs", "--site", folder}, {"-h"}} do
      assert.same({"moth: 'moth docs' wants a folder\n", 1},
        ends("docs", unpack(words)))
    end
    local deep = files.path "no/folder"
    assert.same({"moth: there is no folder " .. deep .. "\n", 1},
      ends("docs", deep))
    replace("moth.help.stubs", {write = function() error("a mistake", 0) end})
    assert.equal("moth: a mistake\n", (run("docs", "--stubs", folder)))
  end)
end)
