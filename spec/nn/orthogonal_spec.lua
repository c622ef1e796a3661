--- orthogonal_spec.lua -- nn.utils.parametrizations.orthogonal: PyTorch's numbers and names; the
-- weight stays orthonormal when it is trained, saved, cast, captured and made plain.

local moth = require "moth"
local golden = require "spec.support.golden"
local cuda = require "spec.support.cuda"

local nn, optim = moth.nn, moth.optim
local orthogonal = nn.utils.parametrizations.orthogonal
local parametrize = nn.utils.parametrize

local function flat(x) return x:detach():reshape(-1):tolist() end

local function tensor(list, ...)
  return moth.tensor(list, {dtype = moth.float64}):view(...)
end

-- The distance of rows or columns, whichever are fewer, from orthonormal.
local function off(w)
  if w:size(-2) < w:size(-1) then w = w.mT end
  return (w.mT:matmul(w) - moth.eye(w:size(-1), {dtype = w.dtype, device = w.device})):abs():max()
    :item()
end

describe("an orthogonal weight", function()
  for _, case in ipairs(golden.cases "orthogonal") do
    local rows, columns = case.rows, case.columns
    it(("of %d x %d by %s%s equals PyTorch's"):format(rows, columns, case.map,
        case.trivial and "" or ", not trivialized,"), function()
      local net = nn.Linear(columns, rows, {bias = false}):double()
      net.weight.data = tensor(case.weight, rows, columns)
      orthogonal(net, {orthogonal_map = case.map, use_trivialization = case.trivial})
      local part = net.parametrizations.weight
      assert.close(case.original, flat(part.original), 1e-12)
      if case.trivial then part[1].base:copy_(tensor(case.base, part[1].base.shape)) end
      assert.close(case.first, flat(net.weight), 1e-12)
      local n = 5 * columns
      local x = moth.arange(50, 50 + n, {dtype = moth.float64}):sin():view(5, columns)
      local opt, losses = optim.SGD(net:parameters(), {lr = 0.1}), {}
      for i = 1, 3 do
        local loss = (net(x) - x:sum(2, true)):square():mean()
        opt:zero_grad()
        loss:backward()
        opt:step()
        losses[i] = loss:item()
      end
      assert.close(case.losses, losses, 1e-12)
      assert.close(case.last, flat(net.weight), 1e-12)
    end)
  end

  it("stays orthonormal in a captured step, saved, copied, assigned and made plain", function()
    for _, map in ipairs {"matrix_exp", "cayley", "householder"} do
      local net = orthogonal(nn.Linear(3, 5), {orthogonal_map = map})
      local opt = optim.Adam(net:parameters(), {lr = 0.1, weight_decay = 0.1})
      local function step(x)
        opt:zero_grad()
        local loss = (net(x) - 1):square():mean()
        loss:backward()
        opt:step()
        return loss
      end
      if map ~= "matrix_exp" then step = moth.capture(step) end -- the other map reads values
      local first = step(moth.ones(4, 3)):item()
      for _ = 1, 20 do step(moth.ones(4, 3)) end
      assert.is_true(step(moth.ones(4, 3)):item() < first)
      assert.is_true(off(net.weight) < 1e-5)
      local other = orthogonal(nn.Linear(3, 5), {orthogonal_map = map})
      other:load_state_dict(net:state_dict())
      assert.is_true(moth.equal(net.weight, other.weight))
      assert.is_true(moth.equal(net.weight, net:deepcopy().weight))
      local q = moth.linalg.qr(moth.randn(5, 3))
      other.weight = q
      assert.is_true(moth.allclose(q, other.weight, {atol = 1e-6}))
      parametrize.remove_parametrizations(other, "weight")
      assert.is_true(moth.allclose(q, other.weight, {atol = 1e-6}))
    end
  end)

  it("may be a batch of matrices, and be on a GPU", function()
    local net = nn.Module()
    net.w = nn.Parameter(moth.randn(2, 4, 3))
    assert.is_true(off(orthogonal(net, "w").w) < 1e-5)
    if not cuda.here then return end
    net:to("cuda")
    net.w:sum():backward()
    assert.equal("cuda", net.parametrizations.w.original.grad.device.type)
    assert.is_true(off(orthogonal(nn.Linear(3, 4):to("cuda")).weight) < 1e-5)
  end)

  it("raises for vectors and unknown maps", function()
    assert.has_error_like(function() orthogonal(nn.Linear(3, 2), "bias") end,
      "'module' to 'orthogonal' %(a weight of two dimensions or more is needed, got f32 %(2%)")
    assert.has_error_like(function() orthogonal(nn.Linear(3, 2), {orthogonal_map = "qr"}) end,
      "one of 'matrix_exp', 'cayley', 'householder' is needed, got 'qr'")
    assert.has_error_like(function() orthogonal(nn.Linear(3, 2), "wait") end, "'wait'")
  end)
end)
