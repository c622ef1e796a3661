-- The graph of a net: as SVG by moth.summary(net, input):svg(), and as nodes for TensorBoard.

local moth = require "moth"
local files = require "spec.support.files"
local net_graph = require "moth.utils.net_graph"

local nn, F = moth.nn, moth.nn.functional

setup(files.setup)
teardown(files.teardown)

local Residual = nn.class("Residual", nn.Module)

function Residual:init()
  self.first = nn.Linear(4, 4)
  self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
  self.drop = nn.Dropout(0.5)
end

function Residual:forward(x)
  local _ = x:exp():tanh() -- no output needs them
  x = F.relu(self.first(x))
  return self.drop(x + self.body(x))
end

describe("the graph of a net", function()
  it("has a node for each call, with what it reads", function()
    local net = Residual()
    local nodes = net_graph.of(net, {moth.ones(2, 4)})
    local rows = {}
    for i, node in ipairs(nodes) do
      rows[i] = ("%s %s %s"):format(node.op, node.path, table.concat(node.inputs, ","))
    end
    assert.same({"input  ", "linear first 1", "relu  2", "linear body.0 3", "relu body.1 4",
      "linear body.2 5", "add  3,6", "output  7"}, rows)
    assert.same({"first.bias", "first.weight"}, nodes[2].parameters)
    assert.same({2, 4}, nodes[2].shape)
    assert.is_true(net.training)
    assert.is_true(net.drop.training)
  end)
end)

describe("summary", function()
  it("draws a box for each layer and op, and a curve for each that it reads", function()
    local net = Residual()
    local text = moth.summary(net, {2, 4}):svg()
    local labels = {}
    for label in text:gmatch 'font%-size="12"[^>]*>([^<]*)<' do labels[#labels + 1] = label end
    assert.same({"input", "first: Linear", "relu", "body[1]: Linear", "body[2]: ReLU",
      "body[3]: Linear", "add", "output"}, labels)
    assert.equal(8, select(2, text:gsub('marker%-end', "")))
    assert.is_truthy(text:find("(2, 8), 40 parameters", 1, true))
    assert.is_truthy(text:find("<title>Residual</title>", 1, true))
  end)

  it("draws modules down to a depth", function()
    local net = Residual()
    local text = moth.summary(net, {2, 4}):svg(1)
    assert.is_truthy(text:find(">body: Sequential<", 1, true))
    assert.is_truthy(text:find("76 parameters", 1, true))
    assert.is_nil(text:find("body[1]", 1, true))
    local path = files.path "net.svg"
    local summary = moth.summary(net, {2, 4})
    assert.equal(summary, summary:save{path, depth = 1})
    assert.equal(text, files.read(path))
  end)

  it("names what is wrong", function()
    local summary = moth.summary(Residual(), {2, 4})
    assert.has_error_like(function() moth.summary(Residual()):svg() end, "needs an input")
    assert.has_error_like(function() summary:save "net.png" end, "bad argument 'path' to 'save'")
    assert.has_error_like(function() summary:svg "x" end, "bad argument 'depth' to 'svg'")
  end)

  it("places boxes of a row next to each other, without overlap", function()
    local Wide = nn.class("Wide", nn.Module)
    function Wide:init()
      for i = 1, 4 do self["branch" .. i] = nn.Linear(4, 4) end
    end
    function Wide:forward(x)
      local list = {}
      for i = 1, 4 do list[i] = self["branch" .. i](x) end
      return moth.cat(list, 2) + moth.cat({x, x, x, x}, 2)
    end
    local text = moth.summary(Wide(), {1, 4}):svg()
    local boxes = {}
    local pattern = '<rect x="([%d.]+)" y="([%d.]+)" width="([%d.]+)" height="(%d+)"'
    for x, y, w, h in text:gmatch(pattern) do
      boxes[#boxes + 1] = {tonumber(x), tonumber(y), tonumber(w), tonumber(h)}
    end
    assert.is_true(#boxes >= 8)
    for i, a in ipairs(boxes) do
      for k = i + 1, #boxes do
        local b = boxes[k]
        assert.is_true(a[1] + a[3] <= b[1] or b[1] + b[3] <= a[1] or a[2] + a[4] <= b[2]
          or b[2] + b[4] <= a[2])
      end
    end
  end)
end)
