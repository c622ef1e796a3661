--- pool_spec.lua -- pooling with windows of many sizes, compared with reductions of unfold.

local moth = require "moth"
local F, ops = moth.nn.functional, require("moth.binding.bind").ops

-- The elements of each window of x, (N, C, taps, windows); outside of the image they are `edge`.
local function windows(x, k, stride, padding, dilation, edge)
  local n, c = x:size(1), x:size(2)
  local wide = F.pad(x, { padding, padding, padding, padding }, "constant", edge)
  local cut = F.unfold(wide, k, { stride = stride, dilation = dilation })
  return cut:reshape(n, c, k * k, -1)
end

local function each_geometry(run)
  for _, width in ipairs { 4, 7, 8, 15, 24, 33, 50 } do
    for k = 1, 4 do
      for stride = 1, 3 do
        for padding = 0, math.floor(k / 2) do
          for dilation = 1, 2 do
            if (k - 1) * dilation < 5 and width > (k - 1) * dilation then
              run(moth.randn(2, 3, 5, width), k, stride, padding, dilation)
            end
          end
        end
      end
    end
  end
end

describe("pooling", function()
  it("finds the largest of each window, of any size", function()
    each_geometry(function(x, k, stride, padding, dilation)
      local how = { stride = stride, padding = padding, dilation = dilation,
        return_indices = true }
      local y, at = F.max_pool2d(x, k, how)
      local wanted = windows(x, k, stride, padding, dilation, -math.huge):amax { dim = 3 }
      assert.is_true(y:equal(wanted:reshape(y.shape)))
      local found = x:reshape(2, 3, -1):gather(3, at:reshape(2, 3, -1))
      assert.is_true(y:equal(found:reshape(y.shape)))
    end)
  end)

  it("computes the mean of each window, of any size", function()
    each_geometry(function(x, k, stride, padding, dilation)
      if dilation > 1 then return end
      local y = F.avg_pool2d(x, k, { stride = stride, padding = padding })
      local wanted = windows(x, k, stride, padding, 1, 0):mean { dim = 3 }
      assert.is_true(y:allclose(wanted:reshape(y.shape), 1e-5, 1e-6))
    end)
  end)

  it("passes the gradient to the largest element, or to all of a mean, for any size", function()
    each_geometry(function(x, k, stride, padding, dilation)
      local z = x:clone():requires_grad_()
      x:requires_grad_()
      local y = F.max_pool2d(x, k, { stride = stride, padding = padding, dilation = dilation })
      local other = windows(z, k, stride, padding, dilation, -math.huge):amax { dim = 3 }
      local g = moth.randn_like(y:detach())
      y:backward(g)
      other:backward(g:reshape(other.shape))
      assert.is_true(x.grad:allclose(z.grad, 1e-5, 1e-6))
      if dilation > 1 then return end
      x.grad, z.grad = nil, nil
      F.avg_pool2d(x, k, { stride = stride, padding = padding }):backward(g)
      other = windows(z, k, stride, padding, 1, 0):mean { dim = 3 }
      other:backward(g:reshape(other.shape))
      assert.is_true(x.grad:allclose(z.grad, 1e-5, 1e-6))
    end)
  end)

  it("names the first of equal elements and the last NaN in a window", function()
    local x = moth.zeros(1, 1, 2, 32)
    local y, at = F.max_pool2d(x, 2, { return_indices = true })
    assert.are.equal(0, y:sum():item())
    for i = 1, 16 do assert.are.equal(2 * i - 1, at[{ 1, 1, 1, i }]:item()) end
    x[{ 1, 1, 1, 3 }] = 0 / 0
    x[{ 1, 1, 2, 20 }] = 0 / 0
    y, at = F.max_pool2d(x, 2, { return_indices = true })
    assert.are.equal(2, y:isnan():sum():item())
    assert.are.equal(3, at[{ 1, 1, 1, 2 }]:item())
    assert.are.equal(52, at[{ 1, 1, 1, 10 }]:item())
  end)

  it("divides an image evenly", function()
    for _, width in ipairs { 4, 13, 64, 300 } do
      for _, size in ipairs { 1, 2, 3, 5 } do
        local x = moth.randn(2, 2, 9, width):requires_grad_()
        local y = F.adaptive_avg_pool2d(x, size)
        for i = 1, size do
          for j = 1, size do
            local r = { math.floor((i - 1) * 9 / size) + 1, math.ceil(i * 9 / size) }
            local c = { math.floor((j - 1) * width / size) + 1, math.ceil(j * width / size) }
            local mean = x[{ {}, {}, r, c }]:mean { dim = { 3, 4 } }
            assert.is_true(mean:allclose(y[{ {}, {}, i, j }], 1e-5, 1e-6))
          end
        end
        y:sum():backward()
        assert.is_true(math.abs(x.grad:sum():item() - y:numel()) < 1e-3)
      end
    end
  end)
end)

describe("pools with empty results", function()
  it("have a zero gradient", function()
    for _, size in ipairs { { 0, 1 }, { 1, 0 }, { 0, 0 } } do
      local x = moth.ones(1, 2, 3, 4):requires_grad_()
      F.adaptive_avg_pool2d(x, size):sum():backward()
      assert.equal(0, x.grad:abs():sum():item())
    end
    for _, size in ipairs { { 0, 1, 1 }, { 1, 0, 1 }, { 1, 1, 0 } } do
      local x = moth.ones(1, 2, 3, 4, 2):requires_grad_()
      F.adaptive_avg_pool3d(x, size):sum():backward()
      assert.equal(0, x.grad:abs():sum():item())
    end
  end)
end)

describe("positions of max_unpool", function()
  it("raise if they are outside, and are skipped if there is none", function()
    local function positions(at) return moth.tensor({{at}}, {dtype = moth.int64}) end
    for n = 2, 40 do
      local at = {}
      for i = 1, n do at[i] = i end
      local x = moth.randn(1, 1, n)
      assert.is_true(ops.max_pool2d_back(x, positions(at), {1, n}):equal(x))
      at[n] = -1 -- a window in the padding
      assert.equal(0, ops.max_pool2d_back(x, positions(at), {1, n})[{1, 1, n}]:item())
      for _, wrong in ipairs{n + 1, 2 ^ 40, -2 ^ 40} do
        at[n] = wrong
        assert.has_error_like(function() ops.max_pool2d_back(x, positions(at), {1, n}) end,
          "'indices'")
      end
    end
  end)
end)
