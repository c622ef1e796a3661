-- Bags of tokens: reductions, the bounds of bags, and errors. PyTorch's values and gradients are in
-- spec/golden/.

local moth = require "moth"
local cuda = require "spec.support.cuda"

local nn, F = moth.nn, moth.nn.functional

local function ints(list) return moth.tensor(list, { dtype = moth.int64 }) end
local function refuses(text, f) assert.has_error_like(f, text) end

describe("embedding_bag", function()
  local weight = moth.tensor { { 1, 8 }, { 2, 4 }, { 4, 2 } }

  it("accepts tokens from 1 on; an offset is the number of tokens before the bag", function()
    local bags = F.embedding_bag(ints { 1, 2, 3, 3 }, weight, ints { 0, 2 }, { mode = "sum" })
    assert.same({ { 3, 12 }, { 8, 4 } }, bags:tolist())
    assert.same({ { 1.5, 6 } }, F.embedding_bag(ints { { 1, 2 } }, weight):tolist())
    assert.same({ { 4, 8 } }, F.embedding_bag(ints { { 1, 3 } }, weight, { mode = "max" }):tolist())
  end)

  it("returns zeros for an empty bag and for padding only", function()
    for _, mode in ipairs { "sum", "mean", "max" } do
      local y = F.embedding_bag(ints { 1, 2, 2 }, -weight, ints { 0, 0, 1, 3 },
        { mode = mode, padding_idx = 2 })
      assert.same({ { 0, 0 }, { -1, -8 }, { 0, 0 }, { 0, 0 } }, y:tolist())
      assert.same({ { 0, 0 } }, F.embedding_bag(moth.zeros(1, 0):long(), weight,
        { mode = mode }):tolist())
    end
  end)

  it("ends at the last offset if include_last_offset is set", function()
    local y = F.embedding_bag(ints { 1, 2, 3 }, weight, ints { 0, 1, 2 },
      { mode = "sum", include_last_offset = true })
    assert.same({ { 1, 8 }, { 2, 4 } }, y:tolist())
  end)

  it("passes the gradient of a maximum to the first token that has it, as PyTorch does",
  function()
    local tokens = { 2, 1, 3, 4 }
    for _, form in ipairs { { ints { tokens } }, { ints(tokens), ints { 0 } },
                            { ints { 2, 1, 3, 4, 4 }, ints { 0, 4, 4 } } } do
      local v = moth.tensor { { 1, 5 }, { 1, 5 }, { 0, 5 }, { 1, 6 } }:requires_grad_()
      F.embedding_bag(form[1], v, form[2], { mode = "max" }):narrow(1, 1, 1):sum():backward()
      assert.same({ { 0, 0 }, { 1, 0 }, { 0, 0 }, { 0, 1 } }, v.grad:tolist())
    end
  end)

  it("counts tokens beyond the range of the offsets' dtype", function()
    local offsets = moth.tensor({ 0, 100 }, { dtype = moth.uint8 })
    local y = F.embedding_bag(moth.ones(300):long(), weight, offsets, { mode = "sum" })
    assert.same({ { 100, 800 }, { 200, 1600 } }, y:tolist())
  end)

  it("returns no bags for no offsets", function()
    for _, list in ipairs { {}, { 0 } } do
      local offsets = moth.tensor(list):long()
      for _, mode in ipairs { "sum", "mean", "max" } do
        local v = weight:clone():requires_grad_()
        local y = F.embedding_bag(ints { 1, 2 }, v, offsets,
          { mode = mode, include_last_offset = #list == 1 })
        assert.same({ 0, 2 }, { y:size(1), y:size(2) })
        y:sum():backward()
        assert.equal(0, v.grad:abs():sum():item())
      end
    end
  end)

  it("can be captured, with other offsets at each call", function()
    for _, mode in ipairs { "sum", "mean", "max" } do
      local step = moth.capture(function(tokens, offsets)
        return F.embedding_bag(tokens, weight, offsets, { mode = mode })
      end)
      for _, list in ipairs { { 0, 2 }, { 0, 1 }, { 0, 0 }, { 0, 4 } } do
        local tokens, offsets = ints { 1, 2, 3, 3 }, ints(list)
        assert.same(F.embedding_bag(tokens, weight, offsets, { mode = mode }):tolist(),
          step(tokens, offsets):tolist())
      end
      assert.equal("captured step (1 recording)", tostring(step))
    end
  end)

  it("raises for unsupported options", function()
    refuses("'offsets' to 'embedding_bag' %(a value is needed for concatenated tokens",
      function() return (F.embedding_bag(ints { 1 }, weight)) end)
    refuses("'offsets' to 'embedding_bag' %(the first must be 0, got 1",
      function() return (F.embedding_bag(ints { 1, 2 }, weight, ints { 1 })) end)
    for text, list in pairs {
      ["they must not exceed the number of tokens, got 3 for i64 %(2%)"] = { 0, 1, 3 },
      ["they must not decrease, got 1 after 2"] = { 0, 2, 1 },
      ["they must not decrease, got %-1 after 0"] = { 0, -1 },
    } do
      for _, last in ipairs { false, true } do
        refuses("'offsets' to 'embedding_bag' %(" .. text, function()
          return (F.embedding_bag(ints { 1, 2 }, weight, ints(list),
            { include_last_offset = last }))
        end)
      end
    end
    for _, dtype in ipairs { moth.float32, moth.bool } do
      refuses("'offsets' to 'embedding_bag' %(integers are needed, got", function()
        return (F.embedding_bag(ints { 1, 2 }, weight, moth.zeros(1, { dtype = dtype })))
      end)
    end
    refuses("'weight' to 'embedding_bag' %(%(tokens, features%) is needed, got",
      function() return (F.embedding_bag(ints { 1 }, moth.tensor(1), ints { 0 })) end)
    refuses("'per_sample_weights' to 'embedding_bag' %(is for the mode 'sum' only, got 'mean'",
      function()
        return (F.embedding_bag(ints { { 1 } }, weight, { per_sample_weights = moth.ones(1, 1) }))
      end)
    refuses("'padding_idx' to 'embedding_bag' %(4 is out of range for 3 tokens",
      function() return (F.embedding_bag(ints { { 1 } }, weight, { padding_idx = 4 })) end)
    refuses("count from 1", function() return (F.embedding_bag(ints { { 0 } }, weight)) end)
  end)

  if not cuda.here then
    pending("on a GPU is the CPU's: " .. cuda.why)
    return
  end
  it("on a GPU equals the CPU, and so does its gradient", function()
    local tokens, offsets = moth.randint(1, 8, { 30 }), ints { 0, 4, 4, 11, 29 }
    for _, mode in ipairs { "sum", "mean", "max" } do
      local here = moth.randn(7, 5):requires_grad_()
      local there = here:detach():cuda():requires_grad_()
      local dy = moth.randn(5, 5)
      local y = F.embedding_bag(tokens, here, offsets, { mode = mode, padding_idx = 2 })
      local z = F.embedding_bag(tokens:cuda(), there, offsets:cuda(),
        { mode = mode, padding_idx = 2 })
      assert.is_true(z:cpu():allclose(y, 1e-5, 1e-6))
      y:backward(dy)
      z:backward(dy:cuda())
      assert.is_true(there.grad:cpu():allclose(here.grad, 1e-5, 1e-6))
    end
  end)
end)

describe("EmbeddingBag", function()
  it("has PyTorch's parameter, and padding that is 0 at first", function()
    local bag = nn.EmbeddingBag { 5, 3, mode = "sum", padding_idx = -1 }
    assert.equal("EmbeddingBag(5, 3, mode='sum', padding_idx=5)", tostring(bag))
    assert.equal(0, bag.weight[5]:abs():sum():item())
    local y = bag(ints { { 5, 2 } })
    assert.is_true(y:equal(bag.weight[{ { 2, 2 } }]))
    assert.is_true(bag(ints { 5, 2 }, ints { 0 }):equal(y))
  end)

  it("accepts existing vectors", function()
    local vectors = moth.randn(4, 2)
    local bag = nn.EmbeddingBag { 4, 2, _weight = vectors }
    assert.is_true(bag(ints { { 1, 2, 3, 4 } }):allclose(vectors:mean { 1, keepdim = true }))
    refuses("'_weight' to 'EmbeddingBag' %(%(4, 3%) is needed",
      function() return nn.EmbeddingBag { 4, 3, _weight = vectors } end)
  end)
end)
