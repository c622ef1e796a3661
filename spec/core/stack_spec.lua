-- A chain of a million ops on a small C stack: freed and run backward, compiled and interpreted.

local process = require "spec.support.process"

-- Sanitizers need more stack and time; a recursive version would overflow that stack, too.
local OPS = process.sanitized and 100000 or 1000000
local STACK = process.sanitized and 1024 or 256

local function child(code, options)
  options = options or {}
  options.stack = STACK
  return process.lua(("local OPS = %d\n"):format(OPS) .. code, options)
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

for _, options in ipairs{ {}, { jit = false } } do
  local how = options.jit == nil and "compiled" or "interpreted"

  describe("a chain of a million ops, " .. how .. ",", function()
    it("runs backward", function()
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

    it("is freed with its last output", function()
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
  it("runs backward in order", function()
    local text = child([[
      local moth = require "moth"
      local w = moth.ones(1, {dtype = moth.float64}):requires_grad_()
      local y = w * 1
      for i = 1, 20000 do y = y * 0.5 + y * 0.5 end
      y:sum():backward()
      print(w.grad:item())]])
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
      print(w.grad:sum():item())]])
    assert.equal("4\nrc=0\n", text)
  end)
end)
