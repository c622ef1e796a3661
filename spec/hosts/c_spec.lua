--- Moth inside C programs: those of examples/hosts/c and of docs/guide/embedding.md, compiled as
-- the guide says, and run.

local lib = require "moth.binding.lib"
local process = require "spec.support.process"

local root = require("moth.error").root
local libdir = lib.path:match("^(.*)/[^/]*$")

describe("a C program with a Lua script", function()
  local folder, program, compiled

  -- Runs it for a number of frames. @return its output
  local function run(frames)
    return process.shell(([[cd '%s' && LUA_PATH="lua/?.lua;lua/?/init.lua" LUA_CPATH='%s/?.so' \
      '%s' %d examples/hosts/c/brain.lua '%s/brain.safetensors']]):format(root, libdir, program,
      frames, folder))
  end

  setup(function()
    folder = os.tmpname()
    os.remove(folder)
    os.execute("mkdir '" .. folder .. "'")
    program = folder .. "/frame"
    local sanitize = process.sanitized and "-fsanitize=" .. os.getenv "MOTH_SANITIZED" or ""
    compiled = process.shell(([[cd '%s' && cc -std=gnu11 -O2 -Wall -Wextra -Werror %s -Icore \
      examples/hosts/c/frame.c -o '%s' $(pkg-config --cflags --libs luajit) -L'%s' -lmoth -lm \
      -Wl,-rpath,'%s']]):format(root, sanitize, program, libdir, libdir))
  end)
  teardown(function() os.execute("rm -r '" .. folder .. "'") end)

  it("compiles without a warning, below 100 lines", function()
    assert.are.equal("rc=0\n", compiled)
    local lines = 0
    for _ in io.lines(root .. "examples/hosts/c/frame.c") do lines = lines + 1 end
    assert.is_true(lines < 100)
  end)

  it("survives an error, a memory limit and an endless loop", function()
    local text = run(600)
    assert.is_truthy(
      text:find("confused: examples/hosts/c/brain.lua:%d+: in net%[1%]: bad argument"), text)
    assert.is_truthy(text:find("greedy: [^\n]*memory limit of 67108864 bytes reached"), text)
    assert.is_truthy(text:find("lost: examples/hosts/c/brain.lua:%d+: interrupted"), text)
    assert.is_truthy(text:find("rc=0", 1, true), text)
  end)

  it("runs frame after frame with constant memory, on weights from the file", function()
    local text = run(20000)
    local early, late = text:match("resident: ([%d.]+) MiB at frame 1000, ([%d.]+) at")
    assert.is_truthy(early, text)
    -- a sanitizer keeps freed memory
    if not process.sanitized then assert.is_true(late - early < 2, text) end
    assert.is_true(tonumber(text:match("([%d.]+) from the lamp")) < 0.5, text)
    assert.is_truthy(text:find("rc=0", 1, true), text)
  end)
end)

describe("a C program that includes only moth.h", function()
  it("trains over its own memory, saves and loads", function()
    local program, file = os.tmpname(), os.tmpname()
    local sanitize = process.sanitized and "-fsanitize=" .. os.getenv "MOTH_SANITIZED" or ""
    local text = process.shell(([[cd '%s' && cc -std=c11 -Wall -Wextra -Werror %s -Icore \
      examples/hosts/c/train.c -o '%s' -L'%s' -lmoth -lm -Wl,-rpath,'%s' && '%s' '%s']]):format(
      root, sanitize, program, libdir, libdir, program, file))
    os.remove(program)
    os.remove(file)
    assert.equal(table.concat({"step 0: loss 7.3684", "step 50: loss 0.0000",
      "step 100: loss 0.0000", "step 150: loss 0.0000", "weight 3.000 -2.000, bias 1.000",
      "loaded 3.000 -2.000", "rc=0", ""}, "\n"), text)
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
    local sanitize = process.sanitized and "-fsanitize=" .. os.getenv "MOTH_SANITIZED" or ""
    local paths = ("LUA_PATH='%slua/?.lua;%slua/?/init.lua' LUA_CPATH='%s/?.so'"):format(root,
      root, libdir)
    return process.shell(([[cd '%s' && cc -std=c11 -Wall -Wextra -Werror %s %s.c -o %s %s &&
      %s ./%s]]):format(folder, sanitize, name, name, flags, paths, name))
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
