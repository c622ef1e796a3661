-- A chain of a million ops on a small C stack: released and walked, compiled and interpreted.

local lib = require "moth.lib"

local OPS = 1000000

-- Runs Lua code in a process with a C stack of 256 KB.
local function child(code, options)
  local root = require("moth.error").root
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write(("package.path = %q .. package.path\nlocal OPS = %d\n"):format(root .. "lua/?.lua;"
    .. root .. "lua/?/init.lua;", OPS), code)
  file:close()
  local pipe = io.popen(("ulimit -s 256; MOTH_LIB='%s' luajit %s '%s' 2>&1; echo rc=$?")
    :format(lib.path, options, path))
  local text = pipe:read "*a"
  pipe:close()
  os.remove(path)
  return text
end

local CHAIN = [[
local moth = require "moth"
local function chain(x)
  local y = x
  for _ = 1, OPS do
    local z = y + 1
    y:free()
    y = z
  end
  return y
end
local function start() return moth.ones(1):requires_grad_() * 1 end
]]

for _, options in ipairs{ "", "-joff" } do
  local how = options == "" and "compiled" or "interpreted"

  describe("a chain of a million ops, " .. how .. ",", function()
    it("is walked backward", function()
      local text = child(CHAIN .. [[
        local w = moth.ones(1):requires_grad_()
        local y = chain(w * 3)
        y:sum():backward()
        print(w.grad:item(), y:item() == OPS + 3)
        y = nil
        moth.collect()
        print(moth.memory().live_nodes)]], options)
      assert.equal("3\ttrue\n1\nrc=0\n", text)
    end)

    it("is released with its last output", function()
      local text = child(CHAIN .. [[
        local y = chain(start())
        print(moth.memory().live_nodes > OPS)
        y:free()
        moth.collect()
        print(moth.memory().live_nodes)]], options)
      assert.equal("true\n0\nrc=0\n", text)
    end)
  end)
end

describe("a wide and deep graph", function()
  it("is walked backward in order", function()
    local text = child([[
      local moth = require "moth"
      local w = moth.ones(1, {dtype = moth.float64}):requires_grad_()
      local y = w * 1
      for i = 1, 20000 do y = y * 0.5 + y * 0.5 end
      y:sum():backward()
      print(w.grad:item())]], "")
    assert.equal("1\nrc=0\n", text)
  end)

  it("of views written in place, two thousand deep, too", function()
    local text = child([[
      local moth = require "moth"
      local w = moth.ones(2, 2):requires_grad_()
      local y = w * 1
      local view = y
      for i = 1, 2000 do
        view = view:t()
        if i % 100 == 0 then view[1]:mul_(1) end
      end
      view:sum():backward()
      print(w.grad:sum():item())]], "")
    assert.equal("4\nrc=0\n", text)
  end)
end)
