-- Half types: what reductions make of them, beside the same numbers as floats.

local moth = require "moth"

local LAYOUTS = {
  function(x) return x end,
  function(x) return x:transpose(1, 3) end,
  function(x) return x:transpose(2, 3) end,
  function(x) return x:numel() > 0 and x[{ {}, { 1, -1, 2 } }] or x end,
  function(x) return x:numel() > 0 and x[{ {}, {}, { 2, -1, 3 } }] or x end,
  function(x) return x[1]:expand(4, -1, -1) end,
}
local SIZES = { { 3, 4, 5 }, { 2, 9, 1100 }, { 40, 130, 7 }, { 1, 3, 9000 }, { 2, 0, 3 } }
local DIMS = { { 1 }, { 2 }, { 3 }, { 1, 3 }, { 2, 3 }, { 1, 2, 3 } }

local function reductions(x, dim)
  local y = { x:any(dim), x:all(dim), x:count_nonzero(dim) }
  y[4], y[5], y[6] = x:sum(dim), x:mean(dim), x:norm(2, dim)
  if x:numel() > 0 then y[7], y[8] = x:amax(dim), x:amin(dim) end
  return y
end

local function each(f)
  for _, dtype in ipairs { moth.float16, moth.bfloat16 } do
    for _, size in ipairs(SIZES) do
      local x = (moth.rand(size) + 0.5):to(dtype)
      for _, layout in ipairs(LAYOUTS) do f(layout(x), dtype) end
    end
  end
end

describe("reductions of half types", function()
  it("are those of the same numbers as floats, however they lie", function()
    each(function(x, dtype)
      for _, dim in ipairs(DIMS) do
        local wanted = reductions(x:float(), dim)
        for i, y in ipairs(reductions(x, dim)) do
          local w = wanted[i]
          if y.dtype == dtype then y, w = y:float(), w:to(dtype):float() end
          assert.is_true(w.shape == y.shape)
          assert.is_true(i >= 4 and i <= 6 and moth.allclose(w, y, 0.01, 0, true)
            or moth.equal(w, y))
        end
      end
    end)
  end)

  it("multiply as floats do", function()
    each(function(x)
      if x:numel() == 0 then return end
      local few = x[{ 1, 1, { 1, math.min(3, x:size(3)) } }]
      assert.is_true(moth.allclose(few:float():prod(), few:prod():float(), 0.01))
    end)
  end)
end)
