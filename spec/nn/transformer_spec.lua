-- nn.Transformer and its decoder: names, masks, and a user's layers.

local moth = require "moth"
local nn = moth.nn

local function small(options)
  options = options or {}
  local t = {8, 2, 1, 2, 16, 0}
  for k, v in pairs(options) do t[k] = v end
  return (nn.Transformer(t):eval())
end

describe("nn.Transformer", function()
  it("has PyTorch's parameters in PyTorch's order", function()
    local names = {}
    for name in small{batch_first = true}:named_parameters() do names[#names + 1] = name end
    assert.equal(12 + 2 + 2 * 18 + 2, #names)
    assert.equal("encoder.layers.0.self_attn.in_proj_weight", names[1])
    assert.equal("encoder.norm.weight", names[13])
    assert.equal("decoder.layers.0.multihead_attn.in_proj_weight", names[19])
    assert.equal("decoder.norm.bias", names[#names])
  end)

  it("ignores positions of a causal mask and padding", function()
    for _, norm_first in ipairs{true, false} do
      local net = small{batch_first = true, norm_first = norm_first}
      local mask = nn.Transformer.generate_square_subsequent_mask(4)
      local src, tgt = moth.randn(2, 3, 8), moth.randn(2, 4, 8)
      local padding = moth.tensor{{false, false, true}, {false, false, true}}
      local function run()
        return (net(src, tgt, {tgt_mask = mask, src_key_padding_mask = padding,
          memory_key_padding_mask = padding}))
      end
      local before = run()
      tgt[{{}, 4}] = 9
      src[{{}, 3}] = 9
      local after = run()
      assert.is_true(before[{{}, {1, 3}}]:allclose(after[{{}, {1, 3}}], {atol = 1e-5}))
      assert.is_false(before[{{}, 4}]:allclose(after[{{}, 4}]))
    end
  end)

  it("trains every parameter", function()
    local net = small():train()
    net(moth.randn(3, 2, 8), moth.randn(4, 2, 8)):square():sum():backward()
    for name, p in net:named_parameters() do assert(p.grad, name) end
  end)

  it("names the number of features that it needs", function()
    assert.error_matches(function() small()(moth.randn(3, 2, 8), moth.randn(3, 2, 7)) end,
      "bad argument 'tgt' to 'Transformer' (8 features", 1, true)
  end)
end)

describe("a transformer's layer", function()
  local x, memory = moth.randn(3, 2, 8), moth.randn(4, 2, 8)
  local function attention(module, q, k) return (module(q, k, k, {need_weights = false})) end
  local function forward(layer, y) return layer.linear2(layer.linear1(y):relu()) end
  local function close(want, got)
    assert.is_true(got:allclose(want, {rtol = 1e-4, atol = 1e-5}), tostring(got))
  end

  it("of an encoder normalizes before or after each block", function()
    local layer = nn.TransformerEncoderLayer(8, 2, 16, 0)
    local y = layer.norm1(x + attention(layer.self_attn, x, x))
    close(layer.norm2(y + forward(layer, y)), layer(x))
    layer.norm_first = true
    local z = layer.norm1(x)
    y = x + attention(layer.self_attn, z, z)
    close(y + forward(layer, layer.norm2(y)), layer(x))
  end)

  it("of a decoder normalizes before or after each block", function()
    local layer = nn.TransformerDecoderLayer(8, 2, 16, 0)
    local y = layer.norm1(x + attention(layer.self_attn, x, x))
    y = layer.norm2(y + attention(layer.multihead_attn, y, memory))
    close(layer.norm3(y + forward(layer, y)), layer(x, memory))
    layer.norm_first = true
    local z = layer.norm1(x)
    y = x + attention(layer.self_attn, z, z)
    y = y + attention(layer.multihead_attn, layer.norm2(y), memory)
    close(y + forward(layer, layer.norm3(y)), layer(x, memory))
  end)
end)

describe("nn.TransformerEncoder", function()
  it("repeats any layer, with its own values", function()
    local Layer = nn.class("Layer", nn.Module)
    function Layer:init() self.fc = nn.Linear(8, 8) end
    function Layer:forward(x) return (self.fc(x)) end
    local layer = Layer()
    local net = nn.TransformerEncoder(layer, 2)
    local x = moth.randn(3, 8)
    assert.is_true(net(x):equal(layer(layer(x))))
    assert.not_equal(net.layers[1].fc.weight, net.layers[2].fc.weight)
  end)

  it("does not free tensors that a forward stores, if its class got it after a first call",
    function()
      local layer, x = nn.TransformerEncoderLayer(8, 2, 16, 0), moth.randn(3, 2, 8)
      local kept, forward = {}, nn.Linear.forward
      layer(x)
      nn.Linear.forward = function(self, input)
        kept[#kept + 1] = input
        return forward(self, input)
      end
      local ok, problem = pcall(layer, x)
      nn.Linear.forward = forward
      assert.is_true(ok, problem)
      assert.equal(3, #kept) -- out_proj, linear1, linear2
      for i = 2, 3 do assert.equal(3, kept[i]:size(1)) end
    end)
end)
