-- The two C headers: moth.h for hosts, and moth_lua.h for the Lua files; their declarations, and
-- the version that the Lua files check.

local ffi = require "ffi"
local lib = require "moth.binding.lib"
local moth = require "moth"
local process = require "spec.support.process"

local C, root = lib.C, require("moth.error").root
local FUNCTION = "^[a-z][%w_ ]*[ *](moth_[%w_]+)%("

local function read(path)
  local file = assert(io.open(root .. path))
  local text = file:read "*a"
  file:close()
  return text
end

local HOST, LUA = read "core/moth.h", read "core/moth_lua.h"
local GUIDE = read "docs/guide/embedding.md"

-- The functions that a header declares, in order; for each, true if it has a comment above it or on
-- its lines.
local function functions(text)
  local names, commented, above = {}, {}, false
  local open
  for line in text:gmatch "([^\n]*)\n" do
    local name = line:match(FUNCTION)
    if name then
      names[#names + 1], open = name, name
      commented[name] = above
    end
    if open and line:find("/*", 1, true) then commented[open] = true end
    if open and line:find(";", 1, true) then open = nil end
    above = line:find "^[/*][*].*%*/$" ~= nil
  end
  return names, commented
end

-- The text of a header that ffi.cdef reads, without white space.
local function declarations(text)
  text = text:match "/%* %-%-%-%- cdef begins %-%-%-%- %*/(.*)/%* %-%-%-%- cdef ends"
  text = text:gsub("/%* %-%-%-%- cdef continues: (%a+) %-%-%-%- %*/", "@%1")
  return (text:gsub("/%*.-%*/", ""):gsub("%s+", " "))
end

describe("moth.h", function()
  it("has under 300 lines and about 60 functions", function()
    local _, lines = HOST:gsub("\n", "")
    local names = functions(HOST)
    assert.is_true(lines < 300, lines .. " lines")
    assert.is_true(#names >= 50 and #names <= 65, #names .. " functions")
  end)

  it("has a comment for each function", function()
    local names, commented = functions(HOST)
    for _, name in ipairs(names) do assert.is_true(commented[name], name) end
  end)

  it("has no function that docs/guide/embedding.md does not name", function()
    for _, name in ipairs((functions(HOST))) do
      assert.is_truthy(GUIDE:find("%f[%w_]" .. name .. "%f[^%w_]"), name)
    end
  end)

  it("has all functions that the examples for hosts and the guide call", function()
    local programs = GUIDE .. read "examples/hosts/c/frame.c" .. read "examples/hosts/c/abi.c"
      .. read "examples/hosts/sdl/game.c"
    for _, name in ipairs((functions(LUA))) do
      assert.is_nil(programs:find("%f[%w_]" .. name .. "%f[^%w_]"), name)
    end
  end)
end)

describe("both headers", function()
  it("compile as C11 and C++17 without a warning", function()
    for _, name in ipairs {"moth.h", "moth_lua.h"} do
      local header = ("'%score/%s'"):format(root, name)
      local flags = " -Wall -Wextra -Wpedantic -Werror -fsyntax-only "
      assert.equal("rc=0\n", process.shell("cc -std=c11 -x c" .. flags .. header))
      if process.shell("command -v g++ >/dev/null") == "rc=0\n" then
        assert.equal("rc=0\n", process.shell("g++ -std=c++17 -x c++" .. flags .. header))
      end
    end
  end)

  it("are in the library, without comments", function()
    local text = ffi.string(C.moth_header()):gsub("%s+", " ")
    assert.equal((declarations(HOST) .. declarations(LUA)):gsub("%s+", " "), text)
  end)

  it("declare the library's exports, and no function twice", function()
    local seen = {moth_lua_next = true, moth_sandbox_call = true} -- for package.loadlib
    for _, text in ipairs {HOST, LUA} do
      for _, name in ipairs((functions(text))) do
        assert.is_nil(seen[name], name)
        seen[name] = true
      end
    end
    local exported = process.shell(("nm -D --defined-only '%s'"):format(lib.path))
    for name in exported:gmatch " T (moth_[%w_]+)" do
      assert.is_true(seen[name], name .. " is in no header")
      seen[name] = nil
    end
    assert.is_nil(next(seen))
  end)
end)

describe("the Lua files", function()
  it("raise for a library of another version", function()
    local other = os.tmpname()
    local source = "unsigned moth_lua_abi_version(void) { return 7777; }"
    for _, case in ipairs {{source, "ABI 7777, not"}, {"int moth;", "ABI unknown, not"}} do
      assert.equal("rc=0\n", process.shell(("echo '%s' | cc -shared -fPIC -x c -o '%s' -"):format(
        case[1], other)))
      local text = process.shell(("MOTH_LIB='%s' %s -e 'print(pcall(require, \"moth\"))'"):format(
        other, process.program))
      assert.matches("is not of the version of these Lua files %(" .. case[2], text)
    end
    os.remove(other)
  end)

  it("leave free entries in LuaJIT's table of C types, which doubles at 1,024", function()
    local text = process.lua [[
      local moth = require "moth"
      local net = moth.nn.Sequential(moth.nn.Linear(2, 2), moth.nn.ReLU())
      local optimizer = moth.optim.SGD(net:parameters(), {lr = 0.1})
      for _ = 1, 3 do
        optimizer:zero_grad()
        net(moth.randn(3, 2)):sum():backward()
        optimizer:step()
      end
      print(tonumber(require("ffi").typeof "struct { int last; }"))]]
    assert.is_true(assert(tonumber(text:match "^%d+"), text) < 900, text)
  end)

  it("declare each part of moth_lua.h at its first use", function()
    local text = process.lua [[
      local lib = require "moth.binding.lib"
      local parts = 0
      for part in require("ffi").string(lib.C.moth_header()):gmatch "@(%a+)" do
        lib.declare(part)
        lib.declare(part)
        parts = parts + 1
      end
      print(parts)]]
    assert.matches("^%d+\nrc=0", text)
  end)
end)

describe("moth_backward", function()
  local out, three = ffi.new "moth_handle[2]", ffi.new "moth_handle[3]"

  local function pass(root_, inputs, flags, grads)
    for i, x in ipairs(inputs) do three[i - 1] = x end
    local roots = lib.handles(1)
    roots[0] = root_
    out[0], out[1] = lib.NONE, lib.NONE
    return C.moth_backward(lib.ctx, roots, grads, 1, three, #inputs, flags, out)
  end

  local function taken(i)
    local h = lib.Handle(out[i]._slot, out[i]._gen)
    return lib.adopt(h, 0):tolist()
  end

  it("adds to the gradients of the leaves, or returns the gradients of the inputs", function()
    local x = moth.tensor({2, 3}, {requires_grad = true})
    assert.equal(0, pass((x * x):sum(), {}, 0))
    assert.same({4, 6}, x.grad:tolist())
    assert.equal(0, pass((x * x):sum(), {x}, 0))
    assert.same({4, 6}, taken(0))
    assert.same({4, 6}, x.grad:tolist())
  end)

  it("accepts a gradient for a root that is no scalar", function()
    local x = moth.tensor({2, 3}, {requires_grad = true})
    local given = lib.handles(1)
    local dy = moth.tensor {1, 10}
    given[0] = dy
    assert.equal(0, pass(x * x, {x}, 0, given))
    assert.same({4, 60}, taken(0))
  end)

  it("returns none for an unused input, and fails without ALLOW_UNUSED", function()
    local x = moth.tensor({2, 3}, {requires_grad = true})
    local other = moth.ones(1, {requires_grad = true})
    local y = (x * x):sum()
    local handles = C.moth_slot_count(lib.ctx)
    assert.equal(C.MOTH_E_GRAPH, pass(y, {x, other}, C.MOTH_RETAIN_GRAPH))
    assert.equal(0, out[0]._slot)
    assert.equal(handles, C.moth_slot_count(lib.ctx))
    assert.equal(0, pass(y, {x, other}, C.MOTH_ALLOW_UNUSED))
    assert.same({4, 6}, taken(0))
    assert.equal(0, out[1]._slot)
  end)

  it("raises for hooks of Lua", function()
    local x = moth.tensor({2, 3}, {requires_grad = true})
    local y = x * x
    y:register_hook(function(g) return g end)
    assert.equal(C.MOTH_E_STATE, pass(y:sum(), {}, 0))
    assert.matches("hook of Lua", ffi.string(C.moth_error(lib.ctx, 1)))
  end)
end)
