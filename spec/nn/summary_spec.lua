-- moth.summary: one line for each module, totals, and an unchanged network.

local moth = require "moth"
local nn = moth.nn

local Block = nn.class("Block", nn.Module)
function Block:init(n)
  self.fc, self.act = nn.Linear(n, n), nn.ReLU()
end
function Block:forward(x, y) return self.act(self.fc(x)) + y end

local Net = nn.class("Net", nn.Module)
function Net:init()
  self.first = nn.Linear(4, 8)
  self.blocks = nn.ModuleList {Block(8), Block(8)}
  self.head = nn.Sequential {nn.Dropout(), nn.Linear(8, 1000, {bias = false})}
  self.unused = nn.Linear(2, 2)
end
function Net:forward(x, y)
  x = self.blocks[1](self.first(x), y)
  return self.blocks[2](x, x), {self.head(x)}
end

describe("moth.help.summary", function()
  it("has a line for each module, with type, output and parameters", function()
    local net = Net()
    net.head[2].weight.requires_grad = false
    local s = moth.summary(net, {{2, 4}, {2, 8}})
    local by_path = {}
    for _, row in ipairs(s.rows) do by_path[row.path] = row end
    assert.equal("{(2, 8), {(2, 1000)}}", by_path[""].output)
    assert.same({"Linear", "(2, 8)", 72, 72}, {by_path["blocks[2].fc"].type,
      by_path["blocks[2].fc"].output, by_path["blocks[2].fc"].parameters,
      by_path["blocks[2].fc"].trainable})
    assert.same({8000, 0}, {by_path["head[2]"].parameters, by_path["head[2]"].trainable})
    assert.same({40 + 72 + 72 + 8000 + 6, 190}, {s.parameters, s.trainable})
    assert.equal("(2, 4), (2, 8)", s.input)
    local text = tostring(s)
    assert.is_truthy(text:find("head[2]    Linear      (2, 1000)                   8,000", 1, true))
    assert.is_truthy(text:find("input (2, 4), (2, 8); 8,190 parameters, 190 trainable, 32.0 KiB",
      1, true))
    assert.is_truthy(text:find("unused       Linear      not called", 1, true))
  end)

  it("does not change modes, hooks, gradients and random numbers, also after an error", function()
    local net = Net()
    net.head:eval()
    local random = moth.get_rng_state():tolist()
    moth.summary(net, {moth.ones(2, 4), moth.ones(2, 8)})
    assert.is_false(pcall(moth.summary, net, {2, 4}))
    assert.same({true, false, true, true}, {net.training, net.head.training,
      net.blocks[1].training, moth.is_grad_enabled()})
    assert.same(random, moth.get_rng_state():tolist())
    assert.is_nil(net.first.weight.grad)
    local norm = nn.Sequential {nn.Linear(2, 2)}
    moth.summary(norm, {3, 2})
    assert.is_true(norm(moth.ones(3, 2)).requires_grad)
  end)

  it("shows results in tables, up to four of them", function()
    local Nested = nn.class("Nested", nn.Module)
    function Nested:init() self.fc = nn.Linear(2, 3) end
    function Nested:forward(x)
      local y = self.fc(x)
      return { { { { y, { y } } } } }
    end
    local text = tostring(moth.summary(Nested(), moth.ones(1, 2)))
    assert.truthy(text:find("{{{{(1, 3), table}}}}", 1, true), text)
    assert.truthy(text:find("36 bytes", 1, true), text)
  end)

  it("counts a parameter once if two modules share it", function()
    local a, b = nn.Linear(3, 3), nn.Linear(3, 3)
    b.weight = a.weight
    assert.equal(9 + 3 + 3, moth.summary(nn.Sequential {a, b}).parameters)
  end)

  it("works without an input, and says what it needs", function()
    assert.is_truthy(tostring(moth.summary(nn.Linear(3, 4))):find("16 parameters", 1, true))
    assert.has_error_like(function() moth.summary(3) end, "a module is needed, got 3")
    assert.has_error_like(function() moth.summary(Net(), "x") end,
      "a size such as {2, 1, 28, 28} or a tensor is needed")
    assert.has_error_like(function() moth.summary(Net(), {2, 3}) end, "in .*first")
  end)
end)
