-- Attention: masks, blocks, shared heads, and the layer.

local moth = require "moth"

local nn, F = moth.nn, moth.nn.functional
local sdpa = F.scaled_dot_product_attention

local function list(x) return x:flatten():tolist() end

local function draw(...) return moth.randn({...}, {dtype = moth.float64}) end

-- Attention by its formula.
local function plain(q, k, v, bias)
  local s = q:matmul(k:transpose(-2, -1)) / math.sqrt(q:size(-1))
  if bias then s = s + bias end
  return F.softmax(s, -1):matmul(v)
end

describe("scaled_dot_product_attention", function()
  it("equals its formula across blocks of queries and keys", function()
    local q, k, v = draw(2, 70, 8) * 3, draw(2, 600, 8), draw(2, 600, 5)
    assert.close(list(plain(q, k, v)), list(sdpa(q, k, v)), 1e-12)
    local one = moth.ones(70, 600, {dtype = moth.float64})
    local bias = (one * -math.huge):triu(2)
    bias = moth.where(one:triu(2):gt(0), bias, 0)
    local seen = moth.ones(70, 600):tril(1):gt(0)
    assert.close(list(plain(q, k, v, bias)), list(sdpa(q, k, v, seen)), 1e-12)
  end)

  it("accepts any number of keys in f32, also with unaligned rows", function()
    for _, keys in ipairs { 17, 33, 37, 101 } do
      local q, k, v = draw(2, 5, 8), draw(2, keys, 8), draw(2, keys, 3)
      local y = sdpa(q:to(moth.float32), k:to(moth.float32), v:to(moth.float32))
      assert.close(list(plain(q, k, v)), list(y), 1e-5)
    end
  end)

  it("has the same gradients in one op as written with ops", function()
    local q, k, v = draw(3, 70, 4), draw(300, 4), draw(3, 300, 2)
    local inputs = {q:requires_grad_(), k:requires_grad_(), v:requires_grad_()}
    for _, causal in ipairs{false, true} do
      local function input_gradients(create)
        local y = sdpa(q, k, v, {is_causal = causal})
        return {moth.autograd.grad((y * y):sum(), inputs, {create_graph = create})}
      end
      local a, b = input_gradients(false), input_gradients(true)
      for i = 1, 3 do assert.close(list(b[i]), list(a[i]), 1e-10) end
    end
  end)

  it("returns the layout of the query: joining heads that were split needs no copy",
    function()
      local rows = draw(2, 70, 3, 4):requires_grad_() -- (batch, row, head, size)
      local q = rows:transpose(2, 3)
      local k, v = draw(2, 3, 90, 4):requires_grad_(), draw(3, 90, 5):requires_grad_()
      local inputs, weight = {rows, k, v}, draw(2, 3, 70, 5)
      local y = sdpa(q, k, v)
      assert.is_true(y:transpose(2, 3):is_contiguous())
      assert.close(list(plain(q, k, v)), list(y), 1e-12)
      local wanted = {moth.autograd.grad((plain(q, k, v) * weight):sum(), inputs)}
      for _, create in ipairs{false, true} do
        local got = {moth.autograd.grad((sdpa(q, k, v) * weight):sum(), inputs,
                                        {create_graph = create})}
        for i = 1, 3 do assert.close(list(wanted[i]), list(got[i]), 1e-11) end
      end
    end)

  it("returns a new tensor, which may be written in place, also without gradients", function()
    local q, k = moth.randn(2, 5, 3, 4):transpose(2, 3), moth.randn(2, 3, 6, 4)
    local by = moth.randn(1):requires_grad_()
    local y = moth.no_grad(function() return sdpa(q, k, k) end)
    local wanted = list(y * by)
    assert.close(wanted, list(y:mul_(by)), 1e-6)
  end)

  it("is 0 for a fully masked query, without NaN in the backward pass", function()
    local q, k, v = draw(2, 3):requires_grad_(), draw(4, 3), draw(4, 1)
    local seen = moth.tensor{{true, true, false, true}, {false, false, false, false}}
    for _, p in ipairs{0, 0.5} do
      local y = sdpa(q, k, v, seen, p)
      assert.equal(0, y[2]:item())
      y:sum():backward()
      assert.is_true(moth.isfinite(q.grad):all():item())
    end
    assert.same({0, 0, 0}, list(q.grad[2]))
  end)

  it("lets causal queries see keys up to their own position, for any lengths", function()
    local v = moth.eye(4)
    local y = sdpa(moth.zeros(2, 3), moth.zeros(4, 3), v, {is_causal = true})
    assert.close({1, 0, 0, 0, 0.5, 0.5, 0, 0}, list(y))
  end)

  it("supports shared heads of key and value", function()
    local q, k, v = draw(2, 6, 3, 4), draw(2, 2, 5, 4), draw(2, 2, 5, 4)
    local wanted = sdpa(q, k:repeat_interleave(3, 2), v:repeat_interleave(3, 2))
    assert.close(list(wanted), list(sdpa(q, k, v, {enable_gqa = true})), 1e-12)
    assert.has_error_like(function()
      sdpa(q, draw(2, 4, 5, 4), draw(2, 4, 5, 4), {enable_gqa = true})
    end, "'key'.*6 heads")
  end)

  it("is 0 without keys, and empty without queries", function()
    assert.same({0, 0}, list(sdpa(moth.ones(1, 3), moth.ones(0, 3), moth.ones(0, 2))))
    assert.equal("(0, 2)", tostring(sdpa(moth.ones(0, 3), moth.ones(4, 3), moth.ones(4, 2)).shape))
  end)

  it("names the wrong argument", function()
    local q, k, v = moth.ones(2, 3), moth.ones(4, 3), moth.ones(4, 3)
    assert.has_error_like(function() sdpa(q, moth.ones(4, 2), v) end, "'key'")
    assert.has_error_like(function() sdpa(q, k, moth.ones(5, 3)) end, "'value'")
    assert.has_error_like(function() sdpa(q, k, v, moth.ones(3, 4)) end, "'attn_mask'")
    assert.has_error_like(function()
      sdpa(q, k, v, moth.ones(2, 4), {is_causal = true})
    end, "'is_causal'")
    assert.has_error_like(function() sdpa(q, k, v:double()) end, "'value'")
  end)
end)

describe("MultiheadAttention", function()
  it("ignores the positions where a mask is true", function()
    local layer = nn.MultiheadAttention(4, 2, {batch_first = true})
    local x = moth.randn(1, 3, 4)
    local padding = moth.tensor{{false, false, true}}
    local y, weights = layer(x, x, x, {key_padding_mask = padding})
    assert.equal("(1, 3, 3)", tostring(weights.shape))
    assert.same({0, 0, 0}, list(weights:select(3, 3)))
    local z, none = layer(x, x, x, {key_padding_mask = padding, need_weights = false})
    assert.is_nil(none)
    assert.close(list(y), list(z), 1e-5)
  end)

  it("has PyTorch's parameters in PyTorch's order", function()
    local function names(layer)
      local found = {}
      for name in layer:named_parameters() do found[#found + 1] = name end
      return found
    end
    assert.same({"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"},
      names(nn.MultiheadAttention(4, 2)))
    assert.same({"q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias", "bias_k",
      "bias_v", "out_proj.weight", "out_proj.bias"},
      names(nn.MultiheadAttention{4, 2, kdim = 3, add_bias_kv = true}))
  end)

  it("accepts a sample without a batch", function()
    local layer = nn.MultiheadAttention(4, 2)
    local q, k = moth.randn(3, 4), moth.randn(5, 4)
    local y, weights = layer(q, k, k)
    assert.equal("(3, 4)", tostring(y.shape))
    assert.equal("(3, 5)", tostring(weights.shape))
    local batch = layer(q:unsqueeze(2), k:unsqueeze(2), k:unsqueeze(2))
    assert.close(list(y), list(batch), 1e-5)
  end)

  it("names the wrong argument", function()
    assert.has_error_like(function() nn.MultiheadAttention(5, 2) end, "'num_heads'")
    local layer = nn.MultiheadAttention(4, 2)
    local x = moth.randn(3, 1, 4)
    assert.has_error_like(function() layer(x, x, moth.randn(3, 1, 5)) end, "'value'")
    assert.has_error_like(function()
      layer(x, x, x, {attn_mask = moth.ones(2, 2)})
    end, "'attn_mask'.*%(3, 3%)")
  end)
end)

describe("an option of attention", function()
  it("that puts the heads last transposes the result and its gradients, for any rank", function()
    local attention = require("moth.binding.bind").ops.attention
    for _, lead in ipairs { { 3 }, { 2, 3 }, { 2, 2, 3 } } do
      local x = {}
      for i, rows in ipairs { 4, 5, 5 } do
        local shape = { unpack(lead) }
        shape[#shape + 1], shape[#shape + 2] = rows, 2
        x[i] = draw(unpack(shape)):requires_grad_()
      end
      local function grads(y)
        local first = { moth.autograd.grad((y * y):sum(), x, { create_graph = true }) }
        local total = 0
        for _, g in ipairs(first) do total = total + (g * g):sum() end
        local all = { y, unpack(first) }
        for _, g in ipairs { moth.autograd.grad(total, x) } do all[#all + 1] = g end
        return all
      end
      local last = attention(x[1], x[2], x[3], { heads_last = true })
      local plain_first = attention(x[1], x[2], x[3]):transpose(-3, -2)
      local got, wanted = grads(last), grads(plain_first)
      for i = 1, #wanted do
        assert.equal(wanted[i].shape, got[i].shape)
        assert.close(list(wanted[i]), list(got[i]), 1e-12)
      end
    end
  end)
end)

describe("TransformerEncoder", function()
  local function small(options)
    options[1], options[2], options.dim_feedforward, options.dropout = 4, 2, 6, 0
    return nn.TransformerEncoderLayer(options)
  end

  it("repeats a layer with its values, in new parameters", function()
    local layer = small{}
    local encoder = nn.TransformerEncoder(layer, 2)
    local x = moth.randn(3, 1, 4)
    assert.close(list(layer((layer(x)))), list(encoder(x)), 1e-5)
    assert.equal(2 * #layer:parameters(), #encoder:parameters())
    assert.is_not_nil(encoder:state_dict()["layers.1.self_attn.in_proj_weight"])
  end)

  it("ignores the positions where its mask is true", function()
    local layer = small{batch_first = true, norm_first = true}
    local causal = moth.ones(3, 3):triu(1):gt(0)
    local x = moth.randn(1, 3, 4)
    local a = layer(x, causal)
    x[{1, 3}] = 7
    local b = layer(x, causal)
    assert.close(list(a[{1, {1, 2}}]), list(b[{1, {1, 2}}]), 1e-6)
  end)

  it("names an unknown activation", function()
    assert.has_error_like(function() small{activation = "rely"} end, "'activation'")
  end)
end)
