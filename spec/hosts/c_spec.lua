--- Moth inside C programs: those of examples/hosts/c, built with an installed Moth by pkg-config,
-- by CMake and as C++; and those of docs/guide/embedding.md.

local lib = require "moth.binding.lib"
local process = require "spec.support.process"

local root = require("moth.error").root
local libdir = lib.path:match("^(.*)/[^/]*$")
local SANITIZE = process.sanitized and "-fsanitize=" .. os.getenv "MOTH_SANITIZED" or ""

-- Makes a folder with a copy of examples/hosts/c.
local function copy_examples()
  local folder = os.tmpname()
  os.remove(folder)
  assert(os.execute(("cp -r '%sexamples/hosts/c' '%s'"):format(root, folder)) == 0)
  return folder
end

describe("the programs of examples/hosts/c", function()
  local folder, prefix

  local function run(command)
    local text = process.shell(("cd '%s' && %s"):format(folder, command))
    assert.is_truthy(text:find("rc=0\n$"), text)
    return text
  end

  local function make(words)
    return run(("make --silent %s PREFIX='%s' CFLAGS='-O2 -Wall -Wextra -Wpedantic -Werror %s'")
      :format(words, prefix, SANITIZE))
  end

  -- Runs a program with the Lua files of the prefix.
  local function run_lua(command)
    return run(("LUA_PATH='%s/share/lua/5.1/?.lua;%s/share/lua/5.1/?/init.lua' "
      .. "LUA_CPATH='%s/lib/?.so' %s"):format(prefix, prefix, prefix, command))
  end

  local LINE = table.concat({"step 0: loss 7.3684", "step 50: loss 0.0000",
    "step 100: loss 0.0000", "step 150: loss 0.0000", "weight 3.000 -2.000, bias 1.000",
    "loaded 3.000 -2.000", "rc=0", ""}, "\n")
  local SHARED = "^8 of 8 threads have the outputs of the main state\n"

  setup(function()
    folder = copy_examples()
    prefix = folder .. "/prefix"
    run(("cmake --install '%s' --prefix '%s'"):format(libdir, prefix))
  end)
  teardown(function() os.execute("rm -r '" .. folder .. "'") end)

  it("compile by pkg-config without a warning", function()
    assert.equal("rc=0\n", make "all")
  end)

  it("train in C over the program's memory, save and load", function()
    assert.equal(LINE, run "./abi line.safetensors")
  end)

  it("run eight Lua states on one copy of the weights", function()
    local text = run_lua "./threads"
    assert.matches(SHARED, text)
    local one, all = text:match "resident: ([%d.]+) MiB with one state, ([%d.]+) with 8 more"
    -- Eight more copies of the weights would be 98 MiB. A sanitizer keeps freed memory.
    if not process.sanitized then assert.is_true(all - one < 30, text) end
  end)

  it("survive a script's error, its memory limit and its endless loop", function()
    local text = run_lua "./frame 600"
    assert.matches("confused: brain.lua:%d+: in net%[1%]: bad argument", text)
    assert.matches("greedy: [^\n]*memory limit of 67108864 bytes reached", text)
    assert.matches("lost: brain.lua:%d+: interrupted", text)
  end)

  it("run frame after frame with constant memory, on weights from the file", function()
    local text = run_lua "./frame 20000"
    local early, late = text:match("resident: ([%d.]+) MiB at frame 1000, ([%d.]+) at")
    assert.is_truthy(early, text)
    if not process.sanitized then assert.is_true(late - early < 2, text) end
    assert.is_true(tonumber(text:match("([%d.]+) from the lamp")) < 0.5, text)
  end)

  it("need under 100 lines for a game loop", function()
    local lines = 0
    for _ in io.lines(root .. "examples/hosts/c/frame.c") do lines = lines + 1 end
    assert.is_true(lines < 100)
  end)

  it("compile by find_package, which also knows the folder of the Lua files", function()
    local text = run(("cmake -B cmake -DCMAKE_PREFIX_PATH='%s' -DCMAKE_C_FLAGS='%s' && "
      .. "cmake --build cmake"):format(prefix, SANITIZE))
    assert.is_truthy(text:find("Moth's Lua files are in " .. prefix .. "/share/lua/5.1\n", 1, true))
    assert.equal(LINE, run "cmake/abi line.safetensors")
    assert.matches(SHARED, run_lua "cmake/threads")
    assert.matches("0%.%d+ from the lamp", run_lua "cmake/frame 1000")
  end)

  it("compile as C++, with and without Lua", function()
    if process.shell("command -v g++ >/dev/null") ~= "rc=0\n" then
      return pending "there is no g++ (Debian: apt-get install g++)"
    end
    assert.equal("rc=0\n", make "clean abi threads CC=g++")
    assert.equal(LINE, run "./abi line.safetensors")
    assert.matches(SHARED, run_lua "./threads")
  end)

  it("compile with a prefix that was moved after the installation", function()
    run "mv prefix elsewhere && rm -rf cmake"
    prefix = folder .. "/elsewhere"
    make "clean abi"
    assert.equal(LINE, run "./abi line.safetensors")
    run(("cmake -B cmake -DCMAKE_PREFIX_PATH='%s' -DCMAKE_C_FLAGS='%s' && "
      .. "cmake --build cmake --target abi"):format(prefix, SANITIZE))
    assert.equal(LINE, run "cmake/abi line.safetensors")
  end)
end)

describe("the C programs of docs/guide/embedding.md", function()
  local folder
  setup(function()
    folder = os.tmpname()
    os.remove(folder)
    os.execute("mkdir '" .. folder .. "'")
    local file = assert(io.open(root .. "docs/guide/embedding.md"))
    local text = file:read "*a"
    file:close()
    for _, name in ipairs{"mind.lua", "host.c", "plain.c"} do
      local mark = (name:find "lua$" and "-- %s\n" or "/* %s */\n"):format(name)
      local block = text:match("```c?\n(" .. mark:gsub("%p", "%%%0") .. ".-\n)```")
      local code = assert(io.open(folder .. "/" .. name, "w"))
      code:write(block)
      code:close()
    end
  end)
  teardown(function() os.execute("rm -r '" .. folder .. "'") end)

  -- Compiles a program with these flags and runs it in the folder. @return its output
  local function run(name, flags)
    local paths = ("LUA_PATH='%slua/?.lua;%slua/?/init.lua' LUA_CPATH='%s/?.so'"):format(root,
      root, libdir)
    return process.shell(([[cd '%s' && cc -std=c11 -Wall -Wextra -Werror %s %s.c -o %s %s &&
      %s ./%s]]):format(folder, SANITIZE, name, name, flags, paths, name))
  end

  it("run a trained net", function()
    local moth = require "moth"
    local nn = moth.nn
    local net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    moth.save(net:state_dict(), folder .. "/mind.safetensors")
    local y = moth.no_grad(function() return net(moth.tensor{0.5, -1, 2, 0}):softmax(1) end)
    local line = ("%.3f %.3f\n"):format(y[1]:item(), y[2]:item())
    assert.are.equal(line:rep(3) .. "rc=0\n", run("host", "$(pkg-config --cflags --libs luajit)"))
  end)

  it("call an op without Lua", function()
    assert.are.equal("12 34\nrc=0\n", run("plain",
      ("-I'%score' -L'%s' -lmoth -Wl,-rpath,'%s'"):format(root, libdir, libdir)))
  end)
end)
