-- Reductions on a GPU where the work is split: rows and columns long enough for several blocks,
-- dims in any order, and strided elements. The samples of golden_spec are small.

local moth = require "moth"
local cuda = require "spec.support.cuda"

-- Shapes and dims that cover each way to split the work.
local CUTS = {
  {"a row for many blocks", {40000}, {1}},
  {"a few long rows", {3, 9001}, {2}},
  {"many short rows", {700, 5}, {2}},
  {"rows of a warp", {9, 130}, {2}},
  {"long columns", {1000, 40}, {1}},
  {"a few columns", {600, 3}, {1}},
  {"columns between others", {3, 200, 35}, {2}},
  {"a channel of images", {6, 5, 12, 11}, {1, 3, 4}},
  {"outer and inner dims", {5, 30, 7}, {1, 3}},
  {"a channel of planes of many bytes", {6, 5, 4, 8}, {1, 3, 4}},
  {"a channel for many blocks", {70, 3, 16, 16}, {1, 3, 4}},
}

local VIEWS = {
  function(x) return x end,
  function(x) return x.ndim > 1 and x:transpose(1, x.ndim) end,
  function(x) return x:narrow(1, 2, x:size(1) - 1) end,
}

--- Calls fn(x, dims, name) with inputs on the CPU.
local function each_cut(fn)
  for _, cut in ipairs(CUTS) do
    for _, view in ipairs(VIEWS) do
      local x = view(moth.randn(cut[2]))
      if x then fn(x, cut[3], cut[1]) end
    end
  end
end

local function alike(wanted, got, tolerance, name)
  local limit = tolerance * (1 + wanted:abs():max():item())
  local off = (got:cpu():double() - wanted:double()):abs():max():item()
  assert(off <= limit, ("%s: %g off, %g allowed"):format(name, off, limit))
end

describe("a reduction on a GPU", function()
  if not cuda.here then
    pending("gives the values of the CPU: " .. cuda.why)
    return
  end

  it("sums with every split of the work", function()
    each_cut(function(x, dims, name)
      alike(x:sum(dims), x:cuda():sum(dims), 1e-4, name)
      alike(x:mean(dims), x:cuda():mean(dims), 1e-5, name)
      local whole = (x * 100):long()
      assert.is_true(whole:cuda():sum(dims):cpu():equal(whole:sum(dims)), name)
      alike(x:half():sum(dims), x:half():cuda():sum(dims), 2e-3, name)
    end)
  end)

  it("reads vectors of contiguous elements, at any alignment", function()
    for _, dtype in ipairs { moth.float32, moth.float16, moth.float64, moth.uint8 } do
      local all = (moth.rand(6 * 5 * 48 + 3) * 100):floor():to(dtype)
      for offset = 1, 3 do
        local here = all:narrow(1, offset, 6 * 5 * 48):view(6, 5, 48)
        local there = all:cuda():narrow(1, offset, 6 * 5 * 48):view(6, 5, 48)
        for _, columns in ipairs { 48, 32, 20 } do
          local x, y = here:narrow(3, 1, columns), there:narrow(3, 1, columns)
          alike(x:double():sum({1, 3}), y:to(moth.float64):sum({1, 3}), 0, "float64")
          alike(x:sum({1, 3}):double(), y:sum({1, 3}), 1e-3, tostring(dtype))
          assert.is_true(x:amax({1, 3}):equal(y:amax({1, 3}):cpu()))
          assert.equal(x:argmax():item(), y:argmax():item())
        end
      end
    end
  end)

  it("has sums of f32 with at most twice the CPU's error", function()
    local function off(y, wanted) return ((y:cpu():double() - wanted) ^ 2):mean():sqrt():item() end
    for _, size in ipairs { {2, 150000}, {150, 2000}, {9000, 30} } do
      local x, dim = moth.rand(size), size[2] == 30 and 1 or 2
      local wanted = x:double():sum(dim)
      local most = 2 * off(x:sum(dim), wanted) + 1e-7 * wanted:max():item()
      local here = off(x:cuda():sum(dim), wanted)
      assert(here <= most, ("%g off, %g allowed"):format(here, most))
    end
  end)

  it("returns the same bits each time", function()
    local x = moth.randn(50000):cuda()
    assert.is_true(x:sum():cpu():equal(x:sum():cpu()))
  end)

  it("computes norms of every order, also with NaN", function()
    local most = { float64 = 1e-5, float32 = 1e-5, float16 = 4e-3, bfloat16 = 2e-2 }
    for name, tolerance in pairs(most) do
      local dtype = moth[name]
      for _, size in ipairs { { 3, 37 }, { 2, 5000 }, { 400, 3 }, { 2, 60000 } } do
        local x = moth.randn(size, { dtype = dtype })
        x[2]:fill_(0)
        x[{ 1, 3 }] = 0
        for _, nan in ipairs { false, true } do
          if nan then x[{ 1, 2 }] = 0 / 0 end
          for _, p in ipairs { 0, 1, 2, 3, -1, 0.5, math.huge, -math.huge } do
            for dim = 1, 2 do
              local y, z = x:norm(p, dim):double(), x:cuda():norm(p, dim):cpu():double()
              assert.is_true(moth.allclose(z, y, { rtol = tolerance, atol = 1e-6,
                equal_nan = true }), ("%g along %d in %s"):format(p, dim, name))
            end
          end
        end
      end
    end
  end)

  it("computes variances, norms and sums of exponentials", function()
    each_cut(function(x, dims, name)
      alike(x:var(dims), x:cuda():var(dims), 1e-5, name)
      alike(x:norm(2, dims), x:cuda():norm(2, dims), 1e-5, name)
      alike(x:norm(3, dims), x:cuda():norm(3, dims), 1e-5, name)
      alike(x:logsumexp(dims), x:cuda():logsumexp(dims), 1e-5, name)
      assert.is_true(x:cuda():amax(dims):cpu():equal(x:amax(dims)), name)
    end)
  end)
end)

describe("many gradients on a GPU", function()
  if not cuda.here then
    pending("are clipped as on the CPU: " .. cuda.why)
    return
  end

  local function parameters(device)
    local list = {}
    moth.manual_seed(1)
    for i = 1, 70 do -- more than fit one launch, some larger than a block's piece
      local p = moth.zeros(i % 30 == 0 and 20000 or i, { device = device })
      p.requires_grad = true
      p.grad = moth.randn(p:size()):to(device)
      list[i] = p
    end
    return list
  end

  it("are clipped as on the CPU, by every order of the norm", function()
    for _, order in ipairs { 2, 1, 0, 3, math.huge, -math.huge } do
      local here, there = parameters "cpu", parameters "cuda"
      local wanted = moth.nn.utils.clip_grad_norm_(here, 0.5, { norm_type = order })
      local got = moth.nn.utils.clip_grad_norm_(there, 0.5, { norm_type = order })
      alike(wanted, got, 1e-5, "the norm")
      for i, p in ipairs(here) do alike(p.grad, there[i].grad, 1e-6, "gradient " .. i) end
    end
  end)

  it("are clipped at any alignment, in every dtype", function()
    for _, dtype in ipairs { moth.float64, moth.float32, moth.float16, moth.bfloat16 } do
      local sizes, all = { 1, 5, 33, 1000, 16384, 16391 }, moth.randn(40000):to(dtype)
      for _, order in ipairs { 2, 1, 0, 2.5, math.huge, -math.huge } do
        local grads, norms = {}, {}
        for _, device in ipairs { "cpu", "cuda" } do
          local list, flat, at = {}, all:to(device):clone(), 1
          for i, n in ipairs(sizes) do -- the difference of neighbouring numbers
            list[i] = moth.zeros(n, { device = device, dtype = dtype }):requires_grad_()
            list[i].grad = flat:narrow(1, at + 1, n)
            at = at + n + 1
          end
          norms[device] = moth.nn.utils.clip_grad_norm_(list, 0.01, { norm_type = order })
          grads[device] = flat:cpu():double()
        end
        local most = dtype == moth.bfloat16 and 1e-2 or dtype == moth.float16 and 2e-3 or 1e-5
        alike(norms.cpu:double(), norms.cuda, most, "the norm")
        alike(grads.cpu, grads.cuda, most, "gradients")
      end
    end
  end)

  it("are scaled twice if they are listed twice or overlap, as on the CPU", function()
    local function clipped(device)
      local base = moth.arange(24):float():view(4, 6):to(device)
      local lists = {
        { base:clone(), base:clone():t(), base:clone()[{ {}, { 2, 4 } }] },
        { base[{ { 1, 3 } }], base[{ { 2, 4 } }] },
      }
      local results = {}
      for i, list in ipairs(lists) do
        local twice = {}
        for j, grad in ipairs(list) do
          local p = moth.zeros(grad:size(), { device = device }):requires_grad_()
          p.grad = grad
          twice[j], twice[#list + j] = p, p
        end
        results[10 * i] = moth.nn.utils.clip_grad_norm_(twice, 20)
        for j, grad in ipairs(list) do results[10 * i + j] = grad:clone() end
      end
      return results
    end
    local wanted, got = clipped "cpu", clipped "cuda"
    for i, y in pairs(wanted) do alike(y, got[i], 1e-5, "result " .. i) end
  end)

  it("are refused if they are not finite and error_if_nonfinite is set", function()
    local list = parameters "cuda"
    list[3].grad:fill_(0 / 0)
    assert.has_error_like(function()
      moth.nn.utils.clip_grad_norm_(list, 1, { error_if_nonfinite = true })
    end, "the norm of order 2 is NaN")
  end)
end)
