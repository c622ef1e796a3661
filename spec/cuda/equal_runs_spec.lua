-- Long runs of equal keys on a GPU, which are cut into pieces (cuda/lib/equal_runs.cuh): sums for
-- one position equal the CPU's, and are the same bits each time.

local moth = require "moth"
local cuda = require "spec.support.cuda"

local F = moth.nn.functional

describe("a long run of one position on a GPU", function()
  if not cuda.here then
    pending("is added up in pieces: " .. cuda.why)
    return
  end

  -- Lengths of runs. The kernel splits lists into pieces of 128 elements, and pieces into groups of
  -- 128 pieces: the runs fill pieces, end near borders of pieces, or cross borders.
  local LISTS = {
    { 1000, 127, 128, 129, 1, 40000, 3, 383 },
    { 0, 0, 16384, 16383, 1, 0, 129 },
    { 2048 },
    { 2047 },
    { 0, 130, 0, 2000 },
  }

  -- Positions from 1 on, in no order, and one more position that is never used.
  local function positions(lengths)
    local parts = {}
    for k, n in ipairs(lengths) do parts[k] = moth.full({ n }, k):long() end
    local at = moth.cat(parts)
    return at[{ moth.randperm(at:size(1)) }], #lengths + 1
  end

  local function agree(f, ...)
    local here, there = {}, {}
    for i, x in ipairs { ... } do here[i], there[i] = x, x:cuda() end
    local function found() return f(unpack(there)):cpu():double() end
    local y, z = f(unpack(here)), found()
    assert.is_true(z:allclose(y:double(), { rtol = 1e-5, atol = 1e-5, equal_nan = true }))
    assert.is_true(found():nan_to_num():equal(z:nan_to_num()))
  end

  -- f(positions, number of positions, one of these dtypes)
  local function each(types, f)
    moth.manual_seed(11)
    for k, lengths in ipairs(LISTS) do
      local at, places = positions(lengths)
      f(at, places, moth[types[(k - 1) % #types + 1]])
    end
  end

  -- Small integers, whose sums are the same in any order.
  local function whole(...) return moth.randint(-4, 5, { ... }) end

  it("is reduced in each mode, in each dtype", function()
    local types = { "float32", "int64", "float64", "bfloat16", "int32" }
    each(types, function(at, places, dtype)
      local n = at:size(1)
      for _, how in ipairs { "sum", "prod", "mean", "amax", "amin" } do
        local v = how == "prod" and whole(n):ge(0):long() * 2 - 1 or whole(n)
        for _, self in ipairs { true, false } do
          agree(function(x, a, src)
            return x:scatter_reduce(1, a, src, how, { include_self = self })
          end, whole(places):to(dtype), at, v:to(dtype))
        end
      end
    end)
  end)

  it("keeps a NaN", function()
    local at, v = moth.ones(5000):long(), moth.randn(5000)
    v[4000] = 0 / 0
    for _, how in ipairs { "sum", "prod", "mean", "amax", "amin" } do
      agree(function(x, a, src) return x:scatter_reduce(1, a, src, how) end, moth.zeros(3), at, v)
    end
  end)

  it("is summed for whole slices, along each dimension", function()
    each({ "float32", "int16", "float16", "bool", "float64" }, function(at, places, dtype)
      local n = at:size(1)
      agree(function(x, a, v) return x:index_add(1, a, v) end, moth.zeros(places, 2):to(dtype), at,
        whole(n, 2):to(dtype))
      agree(function(x, a, v) return x:index_add(2, a, v) end, moth.randn(2, places, 3), at,
        whole(2, n, 3):float())
      agree(function(x, a, v) return x:scatter_add(1, a, v) end, moth.randn(places), at,
        whole(n):float())
    end)
  end)

  it("is counted and weighted", function()
    each({ "float32", "float64" }, function(at, _, dtype)
      agree(function(a, w) return a:bincount { weights = w, minlength = 12 } end, at,
        whole(at:size(1)):to(dtype))
      agree(function(a) return a:bincount() end, at)
    end)
  end)

  it("works for repeated indices of max_unpool2d", function()
    moth.manual_seed(12)
    for _, dtype in ipairs { "float32", "float64", "bfloat16" } do
      local at = moth.randint(1, 4, { 2, 3, 40, 30 })
      at[{ 1, 2 }] = 7
      agree(function(v, a) return F.max_unpool2d(v, a, 2) end,
        whole(2, 3, 40, 30):to(moth[dtype]), at)
    end
  end)

  it("works for points of grid_sample outside of the image", function()
    moth.manual_seed(13)
    local grid = moth.rand(2, 60, 50, 2) * 8 - 4
    for _, mode in ipairs { "bilinear", "nearest", "bicubic" } do
      for _, padding in ipairs { "border", "zeros" } do
        agree(function(x, g)
          local leaf = x:detach():requires_grad_()
          F.grid_sample(leaf, g, { mode = mode, padding_mode = padding }):pow(2):sum():backward()
          return leaf.grad
        end, moth.randn(2, 11, 3, 4, { dtype = moth.float64 }), grid:double())
      end
    end
    for _, dtype in ipairs { moth.float16, moth.bfloat16 } do -- rounded once, at the end
      local found = {}
      for _, device in ipairs { "cpu", "cuda" } do
        local leaf = moth.full({ 2, 11, 3, 4 }, 0.5):to(dtype):to(device):requires_grad_()
        F.grid_sample(leaf, grid:to(dtype):to(device), { padding_mode = "border" }):sum():backward()
        found[#found + 1] = leaf.grad:cpu():double()
      end
      assert.is_true(found[2]:allclose(found[1], { rtol = 2e-2, atol = 0.1 }))
    end
  end)

  it("works for an embedding's gradient", function()
    each({ "float32", "float16" }, function(at, places, dtype)
      agree(function(a, w)
        local leaf = w:detach():requires_grad_()
        F.embedding(a, leaf):sum():backward()
        return leaf.grad
      end, at, moth.randn(places, 5):to(dtype))
    end)
  end)
end)
