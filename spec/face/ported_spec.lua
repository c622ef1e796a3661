-- Calls in scripts ported from PyTorch, in forms that the registry does not show.

local moth = require "moth"
local F, data = moth.nn.functional, moth.data

describe("calls in a ported script", function()
  it("cat of an empty vector with a matrix raises; with vectors it adds nothing", function()
    assert.same({1, 1}, moth.cat({moth.zeros(0), moth.ones(2)}):tolist())
    assert.error_matches(function() return moth.cat({moth.zeros(0), moth.ones(2, 3)}) end,
      "number 2 is f32 %(2, 3%), the first is f32 %(0%)")
    assert.equal("E_SHAPE", moth.errcode())
  end)

  it("one_hot accepts PyTorch's -1: the number of classes from the data", function()
    assert.same({ { 1, 0, 0 }, { 0, 0, 1 } }, F.one_hot({ 1, 3 }, -1):tolist())
  end)

  it("a number in place of positions is not called too large", function()
    local ok, text = pcall(function() return F.cross_entropy(moth.zeros(1, 3), 2) end)
    assert.is_false(ok)
    assert.truthy(tostring(text):find("list of positions is needed, got 2)", 1, true))
  end)

  it("the _like forms take device and requires_grad", function()
    local x = moth.zeros(2)
    for _, name in ipairs { "zeros_like", "ones_like", "empty_like", "rand_like", "randn_like" } do
      assert.is_true(moth[name](x, { requires_grad = true, device = "cpu" }).requires_grad)
      assert.is_false(moth[name](x).requires_grad)
    end
    assert.is_true(moth.full_like(x, 3, { requires_grad = true }).requires_grad)
  end)

  it("datasets and samplers take their arguments by name", function()
    local rows = moth.arange(5)
    assert.equal(2, data.Subset { rows, indices = { 1, 5 } }:len())
    assert.equal(4, data.Subset(rows, { 1, 5 }):get(2):item())
    assert.equal(7, data.ConcatDataset { datasets = { rows, moth.arange(2) } }:len())
    assert.equal(7, data.ConcatDataset { rows, moth.arange(2) }:len())
    local g = moth.Generator()
    assert.equal(3, data.SubsetRandomSampler({ 1, 2, 3 }, { generator = g }):len())
    assert.equal(3, data.SubsetRandomSampler { 1, 2, 3 }:len())
  end)

  it("meshgrid and broadcast_tensors also accept separate tensors", function()
    local a, b = moth.arange(2), moth.arange(3)
    local rows, columns = unpack(moth.meshgrid(a, b))
    assert.same({ { 0, 0, 0 }, { 1, 1, 1 } }, rows:tolist())
    assert.same({ { 0, 1, 2 }, { 0, 1, 2 } }, columns:tolist())
    assert.same({ 3, 2 }, { unpack(moth.meshgrid(a, b, { indexing = "xy" })[1].shape) })
    local p, q = unpack(moth.broadcast_tensors(moth.zeros(2, 1), b))
    assert.same({ 2, 3 }, { unpack(p.shape) })
    assert.same({ 2, 3 }, { unpack(q.shape) })
  end)

  it("outer and kron accept operands of different dtypes, as mul does", function()
    local places, rates = moth.arange(3), moth.tensor { 0.5, 2 }
    assert.same({ { 0, 0 }, { 0.5, 2 }, { 1, 4 } }, moth.outer(places, rates):tolist())
    assert.equal(moth.float32, moth.outer(places, rates).dtype)
    assert.equal(moth.float64, moth.outer(rates, rates:double()).dtype)
    assert.same({ 0, 0, 0.5, 2, 1, 4 }, moth.kron(places, rates):tolist())
    local w = moth.ones(2, { requires_grad = true })
    moth.outer(places, w):sum():backward()
    assert.same({ 3, 3 }, w.grad:tolist())
  end)

  it("find inf, nan, pi, e and numel where PyTorch has them", function()
    assert.same({ math.huge, math.pi, math.exp(1) }, { moth.inf, moth.pi, moth.e })
    assert.is_true(moth.nan ~= moth.nan)
    assert.equal(6, moth.numel(moth.ones(2, 3)))
    assert.has_error_like(function() moth.numel(3) end, "'input' to 'numel' %(a tensor is needed")
  end)

  it("TransformerEncoder takes PyTorch's switches of its fast path", function()
    local layer = moth.nn.TransformerEncoderLayer { 8, 2, dropout = 0, batch_first = true }
    local net = moth.nn.TransformerEncoder(layer, 1, { enable_nested_tensor = false })
    local x = moth.randn(2, 3, 8)
    local pad = moth.tensor { { false, false, true }, { false, false, false } }
    local same = moth.nn.TransformerEncoder { layer, num_layers = 1, mask_check = false }
    assert.is_true(moth.equal(net(x, { src_key_padding_mask = pad }),
      same(x, { src_key_padding_mask = pad })))
  end)
end)
