--- Cases: the prompt, the command line, forked processes, and the search for the library.

local moth = require "moth"
local complete = require "moth.repl.complete"
local evaluate = require "moth.repl.evaluate"
local files = require "spec.support.files"
local lib = require "moth.binding.lib"
local process = require "spec.support.process"
local show = require "moth.repl.show"

setup(files.setup)
teardown(files.teardown)

local function command(words) return process.shell(process.program .. " " .. words) end

describe("the prompt", function()
  it("shows nested tables", function()
    assert.equal("{{1, 2}, {3, 4}}", show.value { { 1, 2 }, { 3, 4 } })
    assert.equal("{a = {b = {1}}, list = {}}", show.value { a = { b = { 1 } }, list = {} })
  end)

  it("shortens tables that are long, deep or contain themselves", function()
    local long = {}
    for i = 1, 200 do long[i] = i end
    local text = show.value { long, 1 }
    assert.matches("^{\n  {\n    1, 2, 3, .*60, %.%.%. 140 more\n  },\n  1,\n}$", text)
    local deep = "1"
    for _ = 1, 20 do deep = "{" .. deep .. "}" end
    assert.equal(("{"):rep(12) .. "{...1}" .. ("}"):rep(12), show.value(loadstring("return "
      .. deep)()))
    assert.equal("{{{{{{1}}}}}}", show.value { { { { { { 1 } } } } } })
    local own = { 1 }
    own.own = own
    assert.equal("{1, own = {...2}}", show.value(own))
  end)

  it("runs statements and shows the expression after the last semicolon", function()
    local seen
    local chunk, shown = evaluate.compile("prompt_t = {5}; prompt_t", "[1]")
    assert.is_true(shown)
    assert.is_true(evaluate.run(chunk, function(x) seen = x end))
    assert.same({ 5 }, seen)
    chunk = evaluate.compile("local prompt_u = 3; prompt_u + 1", "[2]")
    assert.is_true(evaluate.run(chunk, function(x) seen = x end))
    assert.equal(4, seen)
    rawset(_G, "prompt_t", nil)
    rawset(_G, "prompt_u", nil)
  end)

  it("reads more lines if a statement is not complete", function()
    for _, text in ipairs { "t =", "f(1,", "a = 1; b =", "if x then y = 1;", "t = {1; 2" } do
      local chunk, _, more = evaluate.compile(text, "[1]")
      assert.is_nil(chunk)
      assert.is_true(more, text)
    end
  end)

  it("offers string methods after a string", function()
    local _, list = complete.find '("abc"):up'
    assert.same({ "upper" }, list)
    _, list = complete.find 'f("abc"):argma'
    assert.same({ "argmax" }, list)
  end)

  it("is as wide as COLUMNS says", function()
    local list = {}
    for i = 1, 50 do list[i] = i end
    local code = ([[print(require("moth.repl.show").value(%s))]]):format("{" ..
      table.concat(list, ",") .. "}")
    local text = process.shell(("COLUMNS=60 %s -e '%s'"):format(process.program, code))
    for line in text:gmatch "[^\n]+" do assert.is_true(#line <= 60, line) end
    text = process.shell(("COLUMNS=200 %s -e '%s'"):format(process.program, code))
    assert.matches("^{1, 2, .* 49, 50}\n", text)
  end)
end)

describe("the command", function()
  it("accepts a name after help", function()
    local text = command "help nn.Conv2d"
    assert.matches("kernel_size", text)
    assert.matches("rc=0", text)
    text = command "help nn.Conv2dd"
    assert.matches("did you mean 'Conv2d'", text)
    assert.matches("rc=1", text)
    assert.matches("moth test", (command "help"))
  end)

  it("runs the code of several -e in order", function()
    assert.equal("1\n2\t3\nrc=0\n", command "-e 'x = 1 print(x)' -e 'print(x + 1, ...)' 3")
    assert.matches("%-e needs a line of code", (command "-e 'x = 1' -e"))
  end)

  it("never removes packages", function()
    local text = files.read "moth"
    assert.matches("%-%-no%-remove", text)
  end)
end)

it("moth.progress counts a vector as one sample, and batches by their samples", function()
  local function count(source)
    local bar = moth.progress { source, out = { write = function() end, flush = function() end } }
    for _ in bar do end
    return bar.count, bar.unit
  end
  assert.equal(2, (count { moth.ones(50), moth.ones(70) }))
  assert.equal(6, (count { moth.ones(3, 5), moth.ones(3, 5) }))
  local tokens = moth.data.TensorDataset(moth.ones(6, 9):long())
  local batches, unit = count(moth.data.DataLoader(tokens, { batch_size = 3 }))
  assert.same({ 6, "samples" }, { batches, unit })
  assert.equal(6, (count(moth.data.DataLoader(tokens, { batch_size = moth.none }))))
end)

describe("a forked process", function()
  local code = [[
    local ffi = require "ffi"
    local moth = require "moth"
    ffi.cdef "int fork(void); int waitpid(int, int *, int);"
    moth.manual_seed(1)
    moth.rand(1)
    for _ = 1, 2 do
      local pid = ffi.C.fork()
      if pid == 0 then
        SEED print(moth.rand(1, {dtype = moth.float64}):item(), moth.initial_seed())
        os.exit(0, true)
      end
      ffi.C.waitpid(pid, nil, 0)
    end
    print(moth.rand(1, {dtype = moth.float64}):item(), moth.initial_seed())]]

  it("draws other numbers than its parent and its siblings", function()
    local drawn = {}
    for line in process.lua((code:gsub("SEED", ""))):gmatch "0%.%d+" do drawn[#drawn + 1] = line end
    assert.equal(3, #drawn)
    assert.is_true(drawn[1] ~= drawn[2] and drawn[2] ~= drawn[3] and drawn[1] ~= drawn[3])
  end)

  it("draws the same numbers again after its state is restored", function()
    local again = [[local s = moth.get_rng_state()
      local first = moth.rand(3)
      moth.set_rng_state(s)
      print(moth.equal(first, moth.rand(3)))]]
    local text = process.lua((code:gsub("SEED", function() return again end)))
    assert.equal(2, select(2, text:gsub("true", "")))
  end)

  it("draws the numbers of its seed after manual_seed", function()
    local drawn = {}
    for line in process.lua((code:gsub("SEED", "moth.manual_seed(7)"))):gmatch "0%.%d+" do
      drawn[#drawn + 1] = line
    end
    assert.equal(drawn[1], drawn[2])
    assert.is_true(drawn[3] ~= drawn[1])
  end)
end)

it("an installed tree is found by luajit with LUA_PATH alone", function()
  if not io.popen("command -v luajit"):read "*l" then return pending "luajit is not installed" end
  if process.sanitized then return pending "luajit does not load a sanitizer first" end
  local root = require("moth.error").root
  local prefix = files.path "prefix"
  local text = process.shell(([[
    mkdir -p '%s/share/lua/5.1' '%s/lib' && cp -r '%slua/moth' '%s/share/lua/5.1/' &&
    cp -r '%snn' '%s/share/lua/5.1/moth/nn' && cp '%s' '%s/lib/' && cd / &&
    env -u LUA_CPATH -u MOTH_LIB LUA_PATH='%s/share/lua/5.1/?.lua;%s/share/lua/5.1/?/init.lua' \
      luajit -e 'print(require("moth").ones(2):sum():item())']]):gsub("%%s", (function()
    local list, i = { prefix, prefix, root, prefix, root, prefix, lib.path, prefix, prefix,
      prefix }, 0
    return function()
      i = i + 1
      return list[i]
    end
  end)()))
  assert.matches("2\nrc=0", text)
end)
