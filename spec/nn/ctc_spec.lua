-- ctc_loss: forms of the lengths, gradients of scores through log_softmax, and errors. PyTorch's
-- values and derivatives are in spec/golden/.

local moth = require "moth"
local cuda = require "spec.support.cuda"

local nn, F = moth.nn, moth.nn.functional

local function refuses(text, f) assert.has_error_like(f, text) end

local function scores(...) return moth.randn(..., { dtype = moth.float64 }) end

local TARGETS = { { 2LL, 3LL, 2LL }, { 4LL, 2LL, 0LL } }
local DEVICES = cuda.here and { "cpu", "cuda" } or { "cpu" }

describe("ctc_loss", function()
  before_each(function() moth.manual_seed(4) end)

  it("is the negative log-probability of the path, if there is only one", function()
    local x = scores { 2, 1, 3 }:log_softmax(3)
    local y = F.ctc_loss(x, moth.tensor { { 2LL, 3LL } }, { 2 }, { 2 }, { reduction = "sum" })
    assert.near(-(x[{ 1, 1, 2 }]:item() + x[{ 2, 1, 3 }]:item()), y:item(), 1e-12)
  end)

  it("accepts lengths as lists and tensors, targets in rows and concatenated", function()
    local x = scores { 7, 2, 4 }:log_softmax(3)
    local t = moth.tensor(TARGETS)
    local y = F.ctc_loss(x, t, { 7, 5 }, { 3, 2 })
    local lengths = { moth.tensor { 7LL, 5LL }, moth.tensor({ 3, 2 }, { dtype = moth.int32 }) }
    assert.is_true(y:equal(F.ctc_loss(x, t, lengths[1], lengths[2])))
    assert.is_true(y:equal(F.ctc_loss(x, { 2, 3, 2, 4, 2 }, { 7, 5 }, { 3, 2 })))
    assert.is_true(y:equal(F.ctc_loss { x, t, input_lengths = { 7, 5 },
                                        target_lengths = { 3, 2 } }))
    assert.is_true(y:equal(nn.CTCLoss()(x, t, { 7, 5 }, { 3, 2 })))
    assert.equal("()", tostring(F.ctc_loss(x[{ {}, 1 }], { 2, 3, 2 }, 7, 3).shape))
  end)

  it("has gradients of scores that sum to 0", function()
    for _, device in ipairs(DEVICES) do
      local x = scores { 6, 2, 4 }:to(device):requires_grad_()
      local y = F.ctc_loss(x:log_softmax(3), moth.tensor(TARGETS), { 6, 5 }, { 3, 2 },
        { reduction = "sum" })
      y:backward()
      assert.is_true(x.grad:sum(3):abs():max():item() < 1e-12)
      assert.equal(0, x.grad[{ 6, 2 }]:abs():sum():item()) -- after its length
      assert.is_true(x.grad[{ 1 }]:abs():min():item() > 0)
    end
  end)

  it("has the same gradient written with ops as in one pass", function()
    for _, device in ipairs(DEVICES) do
      for blank = 1, 4, 3 do
        local x = scores { 9, 3, 4 }:to(device):requires_grad_()
        local t = { { 2LL, 3LL, 3LL }, { 3LL, 2LL, 2LL }, { 2LL, 1LL, 1LL } }
        local function input_gradient(create_graph)
          local y = F.ctc_loss(x, moth.tensor(t), { 9, 7, 6 }, { 3, 2, 0 }, blank)
          local g = moth.autograd.grad(y, x, { create_graph = create_graph })
          return type(g) == "table" and g[1] or g
        end
        assert.is_true(input_gradient(false):allclose(input_gradient(true):detach(), 1e-10, 1e-12))
      end
    end
  end)

  it("has second derivatives, also in float32", function()
    local x = scores { 6, 2, 4 }:float():log_softmax(3):requires_grad_()
    local function input_gradient(create_graph)
      local y = F.ctc_loss(x, moth.tensor(TARGETS), { 6, 5 }, { 3, 2 })
      local g = moth.autograd.grad(y, x, { create_graph = create_graph })
      return type(g) == "table" and g[1] or g
    end
    assert.is_true(input_gradient(true):detach():allclose(input_gradient(false), 1e-4, 1e-6))
  end)

  it("without a path is infinite, or 0 with a zero gradient if zero_infinity is set", function()
    for _, device in ipairs(DEVICES) do
      local x = scores { 3, 2, 3 }:log_softmax(3):to(device):requires_grad_()
      local t = moth.tensor { { 2LL, 2LL }, { 2LL, 3LL } }
      local y = F.ctc_loss(x, t, { 2, 3 }, { 2, 2 }, { reduction = "none" })
      assert.equal(math.huge, y[1]:item())
      assert.is_true(y[2]:item() < 20)
      y = F.ctc_loss(x, t, { 2, 3 }, { 2, 2 }, { zero_infinity = true, reduction = "sum" })
      y:backward()
      assert.equal(0, x.grad[{ {}, 1 }]:abs():sum():item())
      assert.is_true(x.grad[{ {}, 2 }]:abs():sum():item() > 1)
    end
  end)

  it("stays exact over a thousand steps in float32", function()
    local x = (scores { 1000, 2, 20 } * 3):log_softmax(3)
    local t = moth.randint(2, 21, { 2, 90 })
    local wide = F.ctc_loss(x, t, { 1000, 900 }, { 90, 80 }, { reduction = "none" })
    local y = F.ctc_loss(x:float(), t, { 1000, 900 }, { 90, 80 }, { reduction = "none" })
    assert.is_true((y:double() / wide - 1):abs():max():item() < 1e-6)
  end)

  it("does not depend on the number of threads", function()
    local x = scores { 50, 8, 10 }:float():log_softmax(3):requires_grad_()
    local t, before = moth.randint(2, 11, { 8, 12 }), moth.get_num_threads()
    local found = {}
    for k = 1, 2 do
      moth.set_num_threads(k == 1 and 1 or 4)
      x.grad = nil
      F.ctc_loss(x, t, moth.full({ 8 }, 50LL), moth.full({ 8 }, 12LL)):backward()
      found[k] = x.grad
    end
    moth.set_num_threads(before)
    assert.is_true(found[1]:equal(found[2]))
  end)

  it("of half types is computed in float32", function()
    local x = scores { 7, 2, 4 }:log_softmax(3)
    local y = F.ctc_loss(x:bfloat16(), moth.tensor(TARGETS), { 7, 5 }, { 3, 2 })
    assert.equal(moth.bfloat16, y.dtype)
    assert.near(F.ctc_loss(x, moth.tensor(TARGETS), { 7, 5 }, { 3, 2 }):item(), y:item(), 0.05)
  end)

  it("can be recorded, with targets in rows", function()
    local t = moth.tensor(TARGETS)
    local step = moth.capture(function(x, steps, sizes)
      return F.ctc_loss(x:log_softmax(3), t, steps, sizes)
    end)
    for k = 1, 4 do
      local x, sizes = scores { 7, 2, 4 }, moth.tensor { 3LL, 1LL + k % 2 }
      local steps = moth.tensor { 7LL, 3LL + k }
      assert.is_true(step(x, steps, sizes):equal(F.ctc_loss(x:log_softmax(3), t, steps, sizes)))
    end
  end)

  it("raises for wrong lengths also on a GPU, at the next synchronization", function()
    if not cuda.here then return pending(cuda.why) end
    local x, t = scores { 7, 2, 4 }:cuda(), moth.tensor(TARGETS):cuda()
    assert.has_error_like(function()
      return F.ctc_loss(x, t, { 7, 8 }, { 3, 2 }):item()
    end, "got a sequence of 8 steps or targets, where there are 0 to 7")
    assert.has_error_like(function()
      return F.ctc_loss(x, t, { 7, 7 }, { 4, 2 }):item()
    end, "got a sequence of 4 steps or targets, where there are 0 to 3")
    assert.equal("E_SHAPE", moth.errcode())
  end)

  it("raises for wrong lengths and classes", function()
    local x, t = scores { 7, 2, 4 }, moth.tensor(TARGETS)
    local function loss(...) return F.ctc_loss(...) end
    refuses("'input_lengths' to 'ctc_loss' %(sequence 2 has 8 steps, but 0 to 7 are possible",
      function() local y = loss(x, t, { 7, 8 }, { 3, 2 }) return y end)
    refuses("'target_lengths' to 'ctc_loss' %(sequence 1 has 4 targets, but 0 to 3 are possible",
      function() local y = loss(x, t, { 7, 7 }, { 4, 2 }) return y end)
    refuses("'target_lengths' to 'ctc_loss' %(one for each of 2 sequences",
      function() local y = loss(x, t, { 7, 7 }, { 4, 2, 1 }) return y end)
    refuses("'target_lengths' to 'ctc_loss' %(their sum is 5, but targets are i64 %(6%)",
      function() local y = loss(x, t:view(-1), { 7, 7 }, { 3, 2 }) return y end)
    local flat, most = t:view(-1)[{ { 1, 3 } }], 0x7fffffffffffffffLL
    for _, wrong in ipairs { { 4, -1 }, moth.tensor { 4LL, -1LL } } do
      refuses("'target_lengths' to 'ctc_loss' %(lengths from 0 to 2^53 are needed, got %-1",
        function() local y = loss(x, t, { 7, 7 }, wrong) return y end)
      refuses("'target_lengths' to 'ctc_loss' %(lengths from 0 to 2^53 are needed, got %-1",
        function() local y = loss(x, flat, { 7, 7 }, wrong) return y end)
      refuses("'input_lengths' to 'ctc_loss' %(lengths from 0 to 2^53 are needed, got %-1",
        function() local y = loss(x, t, wrong, { 3, 2 }) return y end)
    end
    refuses("'input_lengths' to 'ctc_loss' %(lengths from 0 to 2^53 are needed, got 92233720",
      function() local y = loss(x, t, moth.tensor { 7LL, most }, { 3, 2 }) return y end)
    refuses("'input_lengths' to 'ctc_loss' %(lengths from 0 to 2^53 are needed, got 1e%+300",
      function() local y = loss(x, t, { 7, 1e300 }, { 3, 2 }) return y end)
    refuses("'targets' to 'ctc_loss' %(sequence 1 has class 5, but there are 4 classes",
      function() local y = loss(x, t + 2, { 7, 7 }, { 3, 2 }) return y end)
    refuses("'targets' to 'ctc_loss' %(positions count from 1",
      function() local y = loss(x, t * 0, { 7, 7 }, { 3, 2 }) return y end)
    refuses("'blank' to 'ctc_loss' %(class 5 is not among the 4",
      function() local y = loss(x, t, { 7, 7 }, { 3, 2 }, 5) return y end)
    refuses("'log_probs' to 'ctc_loss' %(%(T, N, C%) or %(T, C%)",
      function() local y = loss(x[{ 1, 1 }], t, { 7, 7 }, { 3, 2 }) return y end)
    refuses("'input_lengths' to 'ctc_loss' %(integers",
      function() local y = loss(x, t, { 7, 6.5 }, { 3, 2 }) return y end)
    refuses("'target_lengths' to 'ctc_loss' %(integers are needed, got f32",
      function() local y = loss(x, t, { 7, 6 }, moth.ones(2)) return y end)
  end)
end)
