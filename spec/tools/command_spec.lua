--- The command `moth`: what it runs and prints, its exit status; and the contents of libmoth.so.

local launcher = debug.getregistry()["moth.launcher"]

local function quoted(word) return "'" .. word:gsub("'", "'\\''") .. "'" end

--- Runs a shell command; returns its output (errors included) and its exit status.
local function shell(command)
  local pipe = assert(io.popen("{ " .. command .. "\n} 2>&1; echo \"status $?\""))
  local text = pipe:read("*a")
  pipe:close()
  local output, status = text:match("^(.*)status (%d+)\n$")
  return output, tonumber(status)
end

--- Runs the program with these arguments.
local function moth(...)
  local words = { quoted(launcher.program) }
  for _, word in ipairs { ... } do words[#words + 1] = quoted(word) end
  return shell(table.concat(words, " "))
end

--- A file with this text that is removed after the spec.
local function with_file(text, use)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
  local ok, message = pcall(use, path)
  os.remove(path)
  if not ok then error(message, 0) end
end

if not launcher then
  pending("the command: these specs run under ./moth test")
  return
end

describe("moth", function()
  it("runs a line of code with its arguments", function()
    local code = "print(select('#', ...), arg[1], arg[2])"
    assert.are.same({ "2\tone\ttwo\n", 0 }, { moth("-e", code, "one", "two") })
  end)

  it("runs a script with its arguments and its name in arg[0]", function()
    with_file("print(arg[0] == arg[1], arg[2], select('#', ...))", function(path)
      assert.are.same({ "true\tb c\t2\n", 0 }, { moth(path, path, "b c") })
    end)
  end)

  it("runs a script that requires a module in its folder, from any folder", function()
    local folder = os.tmpname()
    os.remove(folder)
    local output, status = shell(("mkdir %s && cd %s && echo 'print(require(\"beside\"))' >run.lua"
      .. " && echo 'return \"found\"' >beside.lua && cd / && %s %s/run.lua; rm -r %s"):format(
      quoted(folder), quoted(folder), quoted(launcher.program), quoted(folder), quoted(folder)))
    assert.are.same({ "found\n", 0 }, { output, status })
  end)

  it("has a doctor that reports unknown environment variables", function()
    local output = shell("MOTH_ISA=foo MOTH_NUM_THREADS=many " .. quoted(launcher.program)
      .. " doctor")
    assert.truthy(output:find("! MOTH_ISA=foo is no instruction level", 1, true), output)
    assert.truthy(output:find("! MOTH_NUM_THREADS=many is no number of threads", 1, true), output)
    output = shell("MOTH_ISA=avx2 MOTH_NUM_THREADS=1 " .. quoted(launcher.program) .. " doctor")
    assert.falsy(output:find("! MOTH_", 1, true), output)
  end)

  it("has a doctor that lists the libraries of pictures and sounds", function()
    local output = shell(quoted(launcher.program) .. " doctor")
    for _, format in ipairs {"JPEG", "PNG", "WebP", "FLAC, Ogg and MP3"} do
      assert.truthy(output:find("\nfiles [^\n]*" .. format .. " by lib%l+")
        or output:find("\nfiles [^\n]*no " .. format .. " %(apt%-get install lib%w+%)"), output)
    end
  end)

  it("never runs OpenBLAS's kernels of 2004 on a processor with AVX2", function()
    local output = shell("env -u OPENBLAS_CORETYPE " .. quoted(launcher.program) .. " doctor")
    if output:find("core Prescott", 1, true) then -- of 2004
      assert.falsy(output:find("loops avx", 1, true), output)
    end
  end)

  it("runs a script from a pipe", function()
    local output, status = shell("echo 'print(6 * 7)' | " .. quoted(launcher.program))
    assert.are.same({ "42\n", 0 }, { output, status })
  end)

  it("finds Moth and computes", function()
    local output, status = moth("-e", "print(require('moth').ones(2):sum():item())")
    assert.are.same({ "2\n", 0 }, { output, status })
  end)

  it("shows the user's message first, then the traceback, and fails", function()
    with_file("local function f() error('no luck') end\nf()\n", function(path)
      local output, status = moth(path)
      assert.are.equal(path .. ":1: no luck", output:match("^[^\n]*"))
      assert.is_truthy(output:find("stack traceback:", 1, true))
      assert.are.equal(1, status)
    end)
  end)

  it("names functions in the traceback, at most 22 of them, or all if that is requested", function()
    local code = "local function f() error('no luck') end\n"
      .. "local function g(n) if n == 0 then f() end g(n - 1) return 1 end\n"
      .. "local function each(h) h() end\n"
      .. "each(function() g(%d) end)\n"
    with_file(code:format(1), function(path)
      local at = "\n\t" .. path
      assert.equal(path .. ":1: no luck\nstack traceback:" .. at .. ":1: in function 'f'" .. at
        .. ":2: in function 'g'" .. at .. ":2: in function 'g'" .. at .. ":4: in function 'h'" .. at
        .. ":3: in function 'each'" .. at .. ":4: in main chunk\n", (moth(path)))
      local all = shell("MOTH_TRACEBACK=full " .. quoted(launcher.program) .. " " .. quoted(path))
      assert.truthy(all:find("\n\t[C]: in function 'error'" .. at .. ":1: in function 'f'" .. at, 1,
        true), all)
    end)
    with_file(code:format(40), function(path)
      local text = moth(path)
      assert.equal(22, select(2, text:gsub("\n\t[^\n]*: in function", "")))
      assert.equal("'g'\n\t...\n", text:match "'g'\n\t%.%.%.\n$")
    end)
  end)

  it("says how a script defines moth, nn, F, optim and data", function()
    local how = {moth = 'moth = require "moth"', nn = "nn = moth.nn",
                 F = "F = moth.nn.functional", optim = "optim = moth.optim",
                 data = "data = moth.data"}
    for name, text in pairs(how) do
      local first = name == "moth" and "" or "local moth = require 'moth'; "
      with_file(first .. "return " .. name .. ".x", function(path)
        local wanted = "%s:1: attempt to index global '%s' (a nil value) (write first: local %s)"
        assert.are.equal(wanted:format(path, name, text), moth(path):match("^[^\n]*"))
      end)
    end
  end)

  it("shows error values that are not strings", function()
    local output = moth("-e", "error(setmetatable({}, {__tostring = function() return 'odd' end}))")
    assert.are.equal("odd", output:match("^[^\n]*"))
    assert.are.equal("(the error is a nil value)", moth("-e", "error()"):match("^[^\n]*"))
  end)

  it("fails if its output cannot be written", function()
    local text, status = shell(quoted(launcher.program) .. " -e 'print(1)' 2>&1 >/dev/full")
    assert.are.same({"moth: not all that was printed could be written; is the disk full?\n", 1},
      {text, status})
  end)

  it("passes on the script's exit status", function()
    assert.are.same({ "", 7 }, { moth("-e", "os.exit(7)") })
  end)

  it("has moth, nn, F, optim and data ready for -e, as the prompt has", function()
    local output = moth("-e", 'print(F.relu(moth.ones(1)):item(), nn.ReLU, optim.SGD, data)')
    assert.are.equal("1\tclass ReLU\tclass SGD\tmoth.data\n", output)
  end)

  it("writes the reference into a folder, which it creates", function()
    local folder = os.tmpname()
    os.remove(folder)
    local code = "local file = io.open(... .. '/index.md') print(file ~= nil)"
    local written = { moth("docs", folder) }
    local found = { moth("-e", code, folder) }
    shell("rm -r " .. quoted(folder))
    assert.are.same({ "", 0 }, written)
    assert.are.same({ "true\n", 0 }, found)
    assert.are.same({ "moth: 'moth docs' wants a folder\n", 1 }, { moth "docs" })
  end)

  it("names the mistake in a file name or an option", function()
    local output, status = moth("no such file.lua")
    assert.is_truthy(output:find("no such file.lua", 1, true))
    assert.are.equal(1, status)
    output, status = moth("tset")
    assert.matches("moth: cannot open 'tset': .*%(moth %-%-help lists the commands%)", output)
    assert.are.equal(1, status)
    output, status = moth("--nonsense")
    assert.is_truthy(output:find("unknown option '--nonsense'", 1, true))
    assert.are.equal(1, status)
    assert.are.equal(1, select(2, moth("-e", "x =")))
  end)

  it("raises for more arguments than Lua accepts", function()
    local output, status = shell(quoted(launcher.program) .. " -e 'print(#arg)' $(seq 20000)")
    assert.are.equal("moth: too many arguments\n", output)
    assert.are.equal(1, status)
  end)

  it("runs without the compiler when MOTH_JIT=off", function()
    local output = shell("MOTH_JIT=off " .. quoted(launcher.program) .. " -e 'print(jit.status())'")
    assert.are.equal("false", output:match("^%a+"))
  end)

  it("echoes expressions at the prompt, continues lines, survives errors", function()
    local lines = "1 + 1\\n= 3;\\nx = 5\\nx\\nfor i = 8, 8 do\\nprint(i) end\\n"
      .. "error('ouch')\\nx + 1\\n"
    local output, status = shell(("printf \"%s\" | %s -e 'require(\"moth.repl\").main()'")
      :format(lines, quoted(launcher.program)))
    assert.are.equal(0, status)
    local shown = {}
    for line in output:gmatch("[^\n]+") do
      local value = line:match("[>.] (%d+)$")
      if value then shown[#shown + 1] = value end
    end
    assert.are.same({ "2", "5", "8", "6" }, shown)
    assert.is_truthy(output:find("ouch", 1, true))
  end)

  it("shows help at the prompt, and no value after it", function()
    local output = shell(("echo 'help(F.relu)' | %s -e 'require(\"moth.repl\").main()'")
      :format(quoted(launcher.program)))
    assert.is_truthy(output:find("max(x, 0)", 1, true))
    assert.falsy(output:find("\nnil", 1, true), output)
  end)

  --- Starts code in the background, interrupts it `times` times, returns its output and status.
  local function interrupt(code, times, pause)
    local lines = {
      -- A shell's background jobs ignore SIGINT; the program overrides this.
      ("%s -e %s & job=$!; sleep 1"):format(quoted(launcher.program), quoted(code)),
    }
    for _ = 1, times do lines[#lines + 1] = "kill -INT $job; sleep " .. (pause or 0.6) end
    lines[#lines + 1] = "(sleep 20; kill -KILL $job) >/dev/null 2>&1 & guard=$!"
    lines[#lines + 1] = "wait $job; ended=$?; kill $guard; (exit $ended)"
    return shell(table.concat(lines, "\n"))
  end

  it("stops at Ctrl-C in an interpreted loop", function()
    local output, status = interrupt("jit.off() while true do end", 1)
    assert.is_truthy(output:find("interrupted!", 1, true))
    assert.are.equal(130, status)
  end)

  it("stops at Ctrl-C in a compiled loop that calls an op", function()
    local code = "local m = require('moth') local x = m.ones(8) while true do x = x * 1 end"
    local output, status = interrupt(code, 1)
    assert.is_truthy(output:find("interrupted", 1, true))
    assert.are.equal(130, status)
  end)

  it("stops at Ctrl-C inside a single sum of any size", function()
    local code = "local m = require('moth') local x = m.ones(1):expand(2 ^ 40) print(x:sum())"
    local output, status = interrupt(code, 1)
    assert.is_truthy(output:find("interrupted", 1, true))
    assert.are.equal(130, status)
  end)

  it("reacts to another Ctrl-C after a script has caught the first", function()
    local loop = "pcall(function() while true do x = x * 1 end end) "
    local code = "local m = require('moth') local x = m.ones(8) " .. loop .. loop
      .. "jit.off() pcall(function() while true do end end) print('saved')"
    local output, status = interrupt(code, 3)
    assert.is_truthy(output:find("saved", 1, true))
    assert.are.equal(0, status)
  end)

  it("ends a loop of pcalls at two Ctrl-C in a row", function()
    local step = "local m = require('moth') local x = m.ones(8) local n = 0 "
      .. "local function step() for _ = 1, 1e5 do x = x * 1 end end "
    for _, loop in ipairs { "while true do pcall(step) end",
                            "while true do pcall(pcall, step) n = n + 1 end",
                            "jit.off() while true do pcall(function() while true do end end) end",
                            "while true do pcall(function() pcall(step) end) end" } do
      local output, status = interrupt(step .. loop, 2, 0.2)
      assert.is_truthy(output:find("interrupted", 1, true), output)
      assert.are.equal(130, status)
    end
  end)

  it("exits with a later error's status after an interrupt that a script has caught", function()
    local _, status = interrupt("local m = require('moth') local x = m.ones(8) "
      .. "pcall(function() while true do x = x * 1 end end) error('another')", 1)
    assert.are.equal(1, status)
  end)

  it("exits at the second Ctrl-C if nothing else can stop it", function()
    local _, status = interrupt("local i = 0 while true do i = i + 1 end", 2)
    assert.are.equal(130, status)
  end)
end)

describe("moth test", function()
  -- A checkout with only the script, a program that prints its arguments, and a cmake that fails.
  local function checkout(use)
    local dir = shell("mktemp -d"):match "^[^\n]+"
    local function fill(path, text)
      local file = assert(io.open(dir .. "/" .. path, "w"))
      file:write(text)
      file:close()
    end
    shell(("cd %s && mkdir core cuda build spec bin && cp %s . && touch .packages CMakeLists.txt "
      .. "CMakePresets.json cuda/plugin.cmake"):format(dir, quoted(launcher.root .. "/moth")))
    fill("build/moth", '#!/bin/sh\necho "ran $* with $MOTH_BACKEND_PATH"\n')
    fill("bin/cmake", "#!/bin/sh\nexit 1\n")
    fill("spec/plain_spec.lua", "print(moth.ones(2))\n")
    fill("spec/gpu_spec.lua", "print(moth.cuda.is_available())\n")
    fill("spec/place_spec.lua", "print(pcall(x.to, x, 'cpu'), pcall(x.to, x, \"cuda:99\"))\n")
    fill("spec/move_spec.lua", "net:cuda(1)\n")
    shell(("mkdir %s/spec/hosts"):format(dir))
    shell(("cd %s && chmod +x build/moth bin/cmake && touch build/.data-asked build/.stamp")
      :format(dir))
    local ok, message = pcall(use, dir, function(words)
      local output, status = shell(("env -u MOTH_SANITIZED PATH=%s/bin:$PATH "
        .. "MOTH_NO_INSTALL=1 %s/moth test %s"):format(dir, dir, words))
      return output, status
    end)
    shell("rm -r " .. dir)
    if not ok then error(message, 0) end
  end

  it("says before the build that a file does not exist", function()
    checkout(function(dir, test)
      os.remove(dir .. "/build/.stamp")
      local wanted = { "moth: there is no spec/typo_spec.lua\n", 1 }
      assert.are.same(wanted, { test "spec/typo_spec.lua" })
      assert.are.same(wanted, { test "--clang --filter=a spec/plain_spec.lua spec/typo_spec.lua" })
    end)
  end)

  it("continues if packages are missing that it cannot install", function()
    checkout(function(dir, test)
      local list = assert(io.open(dir .. "/.packages", "w"))
      list:write("test no-such-package\n")
      list:close()
      local output, status = test "spec/plain_spec.lua"
      assert.is_truthy(output:find("missing Debian packages: no-such-package", 1, true), output)
      assert.is_truthy(output:find("ran test spec/plain_spec.lua", 1, true), output)
      assert.are.equal(0, status)
    end)
  end)

  it("builds the GPU emulator only for specs that may use one", function()
    checkout(function(dir, test)
      assert.are.same({ "ran test spec/plain_spec.lua with /nonexistent\n", 0 },
        { test "spec/plain_spec.lua" })
      assert.are.equal(0, select(2, test(dir .. "/spec/plain_spec.lua")))
      assert.are.same({ "ran test --hosts with /nonexistent\n", 0 }, { test "--hosts" })
      for _, words in ipairs { "", "spec", "spec --hosts", "--cases", "spec/gpu_spec.lua",
                               "--filter 'a name'", "spec/place_spec.lua", "spec/move_spec.lua",
                               "spec/plain_spec.lua spec/gpu_spec.lua" } do
        local output, status = test(words)
        assert.is_truthy(output:find("building the GPU emulator", 1, true), words)
        assert.are.equal(1, status)
      end
    end)
  end)
end)

describe("libmoth.so", function()
  local path = package.searchpath("libmoth", package.cpath)
  local sanitized = os.getenv "MOTH_SANITIZED"

  it("needs only the C library", function()
    if sanitized then return pending("a sanitizer's library is linked in") end
    local output, status = shell("readelf -d " .. quoted(path))
    assert.are.equal(0, status)
    for name in output:gmatch("%(NEEDED%)[^%[]*%[([^%]]+)%]") do
      assert.is_truthy(name:find("^libm%.so") or name:find("^libc%.so") or name:find("^libdl%.so")
        or name:find("^libpthread%.so") or name:find("^ld%-linux"), "needs " .. name)
    end
    assert.is_truthy(output:find("NODELETE", 1, true))
  end)

  it("exports only names with Moth's prefix", function()
    local output = shell("nm -D --defined-only " .. quoted(path))
    local count = 0
    for name in output:gmatch("%x+ %a ([%w_]+)") do
      if not name:find("^__") then
        assert.are.equal("moth_", name:sub(1, 5), "exports " .. name)
        count = count + 1
      end
    end
    assert.is_true(count > 50)
  end)

  it("is below 5.3 MB after installation", function()
    if sanitized then return pending("a sanitized build is larger") end
    local installed = os.tmpname()
    assert.are.same({ "", 0 }, { shell(("strip -o %s %s"):format(installed, quoted(path))) })
    local file = assert(io.open(installed, "rb"))
    local size = file:seek("end")
    file:close()
    os.remove(installed)
    assert.is_true(size < 5.3e6, ("%d bytes"):format(size))
  end)

  it("has no unwind tables, except where a worker opens Lua's libraries", function()
    if sanitized then return pending("sanitizers keep them") end
    local size = shell("readelf -SW " .. quoted(path)):match("%.eh_frame +PROGBITS +%x+ %x+ (%x+)")
    assert.is_true(tonumber(size, 16) < 8192, size)
  end)
end)
