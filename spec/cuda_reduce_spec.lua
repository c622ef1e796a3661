-- Reductions on a GPU where the work is cut into parts: rows and columns long enough for several
-- blocks, dims in any order, and elements that lie apart. golden_spec's samples are small.

local moth = require "moth"
local cuda = require "spec.support.cuda"

-- Shapes and dims whose work is cut in each way that there is.
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

  it("sums however the work is cut", function()
    each_cut(function(x, dims, name)
      alike(x:sum(dims), x:cuda():sum(dims), 1e-4, name)
      alike(x:mean(dims), x:cuda():mean(dims), 1e-5, name)
      local whole = (x * 100):long()
      assert.is_true(whole:cuda():sum(dims):cpu():equal(whole:sum(dims)), name)
      alike(x:half():sum(dims), x:half():cuda():sum(dims), 2e-3, name)
    end)
  end)

  it("gives the same bits each time", function()
    local x = moth.randn(50000):cuda()
    assert.is_true(x:sum():cpu():equal(x:sum():cpu()))
  end)
end)
