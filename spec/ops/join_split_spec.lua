-- Functions that join and split tensors: views, errors, forms of the call. Values and gradients are
-- in spec/golden/ and coverage_spec.

local moth = require "moth"

local function refuses(text, f) assert.has_error_like(f, text) end

describe("diagflat", function()
  it("writes all elements to a diagonal, as a method too", function()
    local x = moth.tensor{ { 1, 2 }, { 3, 4 } }
    assert.same({ { 1, 0, 0, 0 }, { 0, 2, 0, 0 }, { 0, 0, 3, 0 }, { 0, 0, 0, 4 } },
      moth.diagflat(x):tolist())
    assert.same({ { 0, 0 }, { 5, 0 } }, moth.tensor(5):diagflat(-1):tolist())
  end)
end)

describe("parts of tensors", function()
  it("are views if nothing is joined", function()
    local x = moth.zeros(4, 4, 4)
    x:hsplit(2)[1]:fill_(1)
    moth.atleast_3d(x[1][1])[{ {}, 1, {} }]:add_(1)
    assert.equal(33, x:sum():item())
    assert.equal("(1, 3, 1)", tostring(moth.atleast_3d(moth.zeros(3)).shape))
  end)

  it("are accepted as arguments or as a list", function()
    local a, b = moth.ones(2), moth.zeros(2)
    assert.is_true(moth.column_stack(a, b):equal(moth.column_stack { a, b }))
    assert.same({ { 1, 1, 0, 0 }, { 0, 0, 0, 0 } }, moth.block_diag(a, b):tolist())
    assert.equal("(4, 2)", tostring(moth.cartesian_prod(a, b).shape))
  end)

  it("are replaced in a copy, with gradients for both", function()
    local x, y = moth.zeros(2, 3):requires_grad_(), moth.ones(3):requires_grad_()
    local z = x:select_scatter(y, 1, -1)
    assert.same({ { 0, 0, 0 }, { 1, 1, 1 } }, z:tolist())
    assert.equal(0, x:sum():item())
    local doubled = z * 2
    doubled:sum():backward()
    assert.same({ { 2, 2, 2 }, { 0, 0, 0 } }, x.grad:tolist())
    assert.same({ 2, 2, 2 }, y.grad:tolist())
  end)

  it("name the wrong argument", function()
    local x = moth.zeros(4, 3)
    refuses("'indices_or_sections' to 'hsplit' %(a divisor of 3 is needed, got 2",
      function() x:hsplit(2) end)
    refuses("'input' to 'dsplit' %(at least 3 dimensions", function() x:dsplit(2) end)
    refuses("'src' to 'select_scatter' %(%(4%) is needed, got f32 %(3%)",
      function() x:select_scatter(moth.ones(3), 2, 1) end)
    refuses("'tensors' to 'block_diag' %(matrices are needed",
      function() moth.block_diag(moth.ones(2, 2, 2)) end)
    refuses("'input' to 'cov'", function() moth.cov(moth.ones(2, 2, 2)) end)
    refuses("'window_length' to 'hann_window' %(a number from 0 on is needed, got %-1",
      function() moth.hann_window(-1) end)
    refuses("'x' to 'trapezoid'", function() moth.trapezoid(x, moth.ones(2)) end)
    refuses("'r' to 'combinations' %(the result may have at most 100000000",
      function() moth.combinations(moth.arange(100), 50) end)
  end)

  it("are combined nearly completely without a search of impossible combinations", function()
    assert.same({ 30, 29 }, { unpack(moth.combinations(moth.arange(30), 29).shape) })
    assert.same({ 0, 40 }, { unpack(moth.combinations(moth.arange(39), 40).shape) })
  end)

  it("of a signal are weighted by windows that sum to one", function()
    local w = moth.hann_window(8, { dtype = moth.float64 })
    assert.is_true((w + w:roll(4, 1)):allclose(moth.ones(8, { dtype = moth.float64 })))
    assert.is_true(moth.hamming_window(7, false):equal(moth.hamming_window(7, false):flip(1)))
  end)

  it("have pairwise distances without memory for all differences", function()
    moth.manual_seed(1)
    local x = moth.randn(200, 100):requires_grad_()
    local at = moth.triu_indices(200, 200, 1)
    local want = (x:index_select(1, at[1]) - x:index_select(1, at[2])):norm(2, 2)
    local by = moth.randn(want:size(1))
    want:backward(by)
    local slope = x.grad
    x.grad = nil
    assert.is_true(moth.pdist(x):allclose(want, 1e-6, 1e-6))
    moth.pdist(x):backward(by)
    assert.is_true(x.grad:allclose(slope, 1e-4, 1e-4))
    moth.collect()
    moth.reset_peak_memory()
    local before = moth.memory().live_bytes
    moth.no_grad(function() moth.scope(function() return moth.pdist(x):sum():item() end) end)
    assert.is_true(moth.memory().peak_bytes - before < 2e6, "pairs are held")
  end)
end)

describe("distances of all pairs of rows", function()
  it("equal the norms of differences, also in gradients, for rows of any length", function()
    moth.manual_seed(3)
    local function near(x, y)
      local most = x.dtype == moth.float64 and 1e-12 or 1e-5
      assert.is_true(x:allclose(y, most, most))
    end
    for _, dtype in ipairs { "float32", "float64" } do
      for _, s in ipairs { { 2, 1 }, { 33, 17 }, { 9, 300 } } do
        for p = 1, 2 do
          local x = moth.randn(s[1], s[2]):to(moth[dtype]):requires_grad_()
          local z = moth.randn(s[1] + 3, s[2]):to(moth[dtype]):requires_grad_()
          for k = 1, 2 do
            local a, b = x, z
            if k == 2 then a, b = moth.stack { x, x * 2 }, moth.stack { z, z + 1 } end
            local want = (a:unsqueeze(-2) - b:unsqueeze(-3)):norm(p, -1)
            local by = moth.randn(want.shape):to(x.dtype)
            local y = moth.cdist(a, b, p, "donot_use_mm_for_euclid_dist")
            near(y, want)
            local g = moth.autograd.grad((want * by):sum(), { x, z }, { retain_graph = true })
            for _, how in ipairs { { retain_graph = true }, { create_graph = true } } do
              local h = moth.autograd.grad((y * by):sum(), { x, z }, how)
              near(h[1], g[1])
              near(h[2], g[2])
            end
          end
          local at = moth.triu_indices(s[1], s[1], 1)
          local want = (x:index_select(1, at[1]) - x:index_select(1, at[2])):norm(p, 2)
          local by = moth.randn(want:size(1)):to(x.dtype)
          near(moth.pdist(x, p), want)
          local g = moth.autograd.grad((want * by):sum(), x)
          near(moth.autograd.grad((moth.pdist(x, p) * by):sum(), x), g)
          near(moth.autograd.grad((moth.pdist(x, p) * by):sum(), x, { create_graph = true }), g)
        end
      end
    end
  end)

  it("stay in the range, and keep NaN and infinity", function()
    local x = moth.tensor { { 1e-30, 0 }, { 0, 0 }, { 3e25, 4e25 }, { 0 / 0, 1 }, { math.huge, 0 } }
    local want = moth.tensor { 1e-30, 5e25, 0 / 0, math.huge, 5e25, 0 / 0, math.huge, 0 / 0,
      math.huge, 0 / 0 }
    assert.is_true(moth.pdist(x):allclose(want, 1e-6, 0, { equal_nan = true }))
    assert.is_true(moth.pdist(x:double() * 1e200):allclose(want:double() * 1e200, 1e-6, 0,
      { equal_nan = true }))
  end)
end)
