-- The line of an error: the user's own line, in scripts, networks and return calls.

local moth = require "moth"
local intact = require "spec.support.intact"

local nn = moth.nn

local function message_of(f, ...)
  local ok, message = pcall(f, ...)
  assert.is_false(ok)
  return message
end

-- Loads a chunk as a user's file.
local function script(name, text) return assert(loadstring(text, "@" .. name)) end

describe("the line of an error", function()
  it("is the caller's line, at any depth inside Moth", function()
    local run = script("train.lua", [[
      local moth = require "moth"
      local x = moth.ones(2, 3)

      local y = x + moth.ones(4)
      return y]])
    assert.matches("^train.lua:4: bad argument 'other' to 'add' %(", message_of(run))
    run = script("train.lua", [[
      local moth = require "moth"
      local x = moth.ones(2, 3)
      local function deep(n)
        if n > 0 then deep(n - 1) return end
        x[{{}, 9}] = 1
      end
      deep(20)]])
    assert.matches("^train.lua:5: ", message_of(run))
  end)

  it("is the same inside no_grad, a scope and a coroutine", function()
    local run = script("train.lua", [[
      local moth, wrap = require "moth", ...
      wrap(moth, function()
        moth.ones(2):view(3)
      end)]])
    local wraps = {
      function(m, f) m.no_grad(f) end,
      function(m, f) m.scope(f) end,
      function(m, f) m.scope(function() m.enable_grad(f) end) end,
      function(_, f) assert(coroutine.resume(coroutine.create(f))) end,
      function(_, f) coroutine.wrap(f)() end,
    }
    for _, wrap in ipairs(wraps) do
      assert.matches("train.lua:3: bad argument 'shape' to 'view'", message_of(run, wrap))
    end
  end)

  it("does not depend on compilation of the call", function()
    local run = script("loop.lua", [[
      local moth = require "moth"
      local x, small = moth.ones(3), moth.ones(2)
      for i = 1, 300 do
        local y = x + x
        if i == 300 then x = small y:free()
          y = y + x end
      end]])
    assert.matches("^loop.lua:6: bad argument 'input' to 'add' %(this tensor was released%)",
      message_of(run))
  end)

  it("names the call that a return removed from the stack", function()
    local run = script("net.lua", [[
      local moth = require "moth"
      local function layer(x)
        return moth.mm(x, x)
      end
      local y = layer(moth.ones(2, 3))
      return y]])
    local message = message_of(run)
    assert.matches("^net.lua:5: bad argument 'mat2' to 'mm'", message)
    assert.matches("%(in a return call of layer, net.lua:2%)$", message)
  end)

  it("does so for a network's forward", function()
    local run = script("net.lua", [[
      local moth = require "moth"
      local nn = moth.nn
      local Net = nn.class("Net", nn.Module)
      function Net:init() self.fc = nn.Linear(4, 2) end
      function Net:forward(x)
        return self.fc(x)
      end
      local net = Net()
      local y = net(moth.ones(3))
      return y]])
    local message = message_of(run)
    assert.matches("^net.lua:9: in net.fc: bad argument", message)
    assert.matches("in a return call of Net.forward, net.lua:5", message)
  end)
end)

describe("the module's path", function()
  it("uses Lua's form: names and positions from 1", function()
    local Net = nn.class("Net", nn.Module)
    function Net:init()
      self.body = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(5, 2))
    end
    function Net:forward(x)
      local y = self.body(x)
      return y
    end
    local net = Net()
    pcall(net, moth.ones(1, 3)) -- parameters get a node in the graph at their first use
    local message = intact.message(function() net(moth.ones(1, 3)) end)
    assert.matches("^spec/face/places_spec.lua:%d+: in net%.body%[3%]: bad argument", message)
    assert.matches("f32 %(1, 4%)", message)
  end)

  it("is the path of the innermost module", function()
    local inner = nn.Sequential(nn.Linear(3, 4))
    local net = nn.Sequential(nn.ReLU(), inner)
    assert.matches("in net%[2%]%[1%]: bad argument", message_of(function()
      net(moth.ones(1, 2))
    end))
  end)
end)

describe("errors", function()
  it("from user code in a hook, a scope or no_grad pass unchanged", function()
    local thrown = {}
    for _, wrap in ipairs{ moth.scope, moth.no_grad, moth.enable_grad } do
      local ok, value = pcall(wrap, function() error(thrown) end)
      assert.is_false(ok)
      assert.equal(thrown, value)
      ok, value = pcall(wrap, function() error(nil) end)
      assert.is_false(ok)
      assert.is_nil(value)
    end
    local x = moth.ones(1):requires_grad_()
    x:register_hook(function() error(thrown) end)
    local ok, value = pcall(function() (x * 2):backward() end)
    assert.is_false(ok)
    assert.equal(thrown, value)
  end)

  it("have a code", function()
    local codes = {
      E_ARG = function() return (moth.sum(nil)) end,
      E_TYPE = function() return (moth.sum("x")) end,
      E_DTYPE = function() return (moth.ones(2):index_select(1, moth.ones(1))) end,
      E_SHAPE = function() return (moth.ones(2):view(3)) end,
      E_INDEX = function() return (moth.ones(2)[3]) end,
      E_DEVICE = function() return (moth.ones(2, { device = "cuda:99" })) end,
      E_ALIAS = function() return (moth.ones(1):expand(3):add_(1)) end,
      E_GRAPH = function() return (moth.ones(2):backward()) end,
      E_DOMAIN = function() return (moth.tensor{ 1LL } % 0) end,
      E_STATE = function()
        local x = moth.ones(2)
        x:free()
        return (x + 1)
      end,
    }
    for code, f in pairs(codes) do
      intact.message(f)
      assert.equal(code, moth.errcode())
    end
  end)

  it("do not depend on tail calls: a wrapped call returns all of its results", function()
    assert.same({ 1, nil, 3, n = 3 }, (function(...)
      return { n = select("#", ...), ... }
    end)(moth.scope(function() return 1, nil, 3 end)))
    assert.equal(3, select("#", moth.no_grad(function() return nil, nil, nil end)))
  end)
end)

describe("the program", function()
  local launcher = debug.getregistry()["moth.launcher"]
  if not launcher then
    pending("the line in a script: this spec runs under ./moth test")
    return
  end

  it("shows the script's own line", function()
    local path = os.tmpname()
    local file = assert(io.open(path, "w"))
    file:write('local moth = require "moth"\nlocal x = moth.ones(2)\n\nx:view(3, 4)\n')
    file:close()
    local pipe = io.popen(("'%s' '%s' 2>&1"):format(launcher.program, path))
    local text = pipe:read "*a"
    pipe:close()
    os.remove(path)
    assert.truthy(text:find(path .. ":4: bad argument 'shape' to 'view' ({3, 4} does not fit the "
      .. "2 elements of f32 (2))", 1, true), text)
  end)
end)
