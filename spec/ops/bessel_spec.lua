-- moth.special's Bessel, Airy and orthogonal functions: more exact than PyTorch's, and with
-- gradients that PyTorch lacks.

local moth = require "moth"
local special = moth.special

local function f64(x) return moth.tensor(x, { dtype = moth.float64 }) end

local EXACT = { -- arguments and values by mpmath
  bessel_j0 = { { 0, 1 }, { 1e-6, 0.99999999999975 }, { 0.5, 0.9384698072408129 },
    { 1.9375, 0.26004565867589034 }, { 2, 0.22389077914123567 }, { 3.5, -0.38012773998726338 },
    { 20, 0.16702466434058315 }, { -500, -0.034100556880731998 }, { math.huge, 0 } },
  bessel_j1 = { { 0, 0 }, { 1e-6, 4.9999999999993748e-7 }, { -0.5, -0.24226845767487389 },
    { 1.9375, 0.57996904844665894 }, { 2, 0.57672480775687339 }, { 3.5, 0.13737752736232719 },
    { 20, 0.066833124175850046 }, { -500, -0.010472613470372293 } },
  bessel_y0 = { { 1e-6, -8.8690314816594437 }, { 0.5, -0.44451873350670656 },
    { 1.9375, 0.50257668364475076 }, { 2, 0.51037567264974512 }, { 3.5, 0.18902194392082651 },
    { 20, 0.062640596809383831 }, { 500, 0.010506708739831374 }, { 0, -math.huge } },
  bessel_y1 = { { 1e-6, -636619.77237217504 }, { 0.5, -1.4714723926702431 },
    { 1.9375, -0.14266350852541655 }, { 2, -0.10703243154093755 }, { 3.5, 0.41018841788751188 },
    { 20, -0.1655116143625213 }, { 500, 0.034111080629137136 }, { math.huge, 0 } },
  modified_bessel_k0 = { { 1e-6, 13.931442073626419 }, { 0.5, 0.92441907122766586 },
    { 1.9375, 0.1230056705255543 }, { 2, 0.11389387274953344 }, { 20, 5.7412378153365243e-10 },
    { 500, 3.9923216091177929e-219 }, { 0, math.huge } },
  modified_bessel_k1 = { { 1e-6, 999999.99999278432 }, { 0.5, 1.6564411200033009 },
    { 1.9375, 0.151894691359947 }, { 2, 0.13986588181652243 }, { 20, 5.8830579695570382e-10 },
    { 500, 3.9963119385460033e-219 } },
  scaled_modified_bessel_k0 = { { 0.5, 1.5241093857739095 }, { 1.9375, 0.85382858725621143 },
    { 3.5, 0.64902633768868843 }, { 500, 0.056035915417234515 },
    { 1e300, 1.2533141373155003e-150 } },
  scaled_modified_bessel_k1 = { { 0.5, 2.7310097082117857 }, { 1.9375, 1.0543581379741223 },
    { 3.5, 0.73646754802891241 }, { 500, 0.056091923370555569 } },
  airy_ai = { { -30, -0.087968188456842163 }, { -4, -0.070265532949289515 },
    { -0.9375, 0.53390234657634995 }, { 0.5, 0.23169360648083349 }, { 1, 0.13529241631288142 },
    { 2, 0.034924130423274379 }, { 9, 2.4711684308724898e-9 }, { 50, 4.5849417240748285e-104 } },
}

describe("moth.special", function()
  for name, rows in pairs(EXACT) do
    it(name .. " has 13 right digits", function()
      for _, row in ipairs(rows) do
        local got, wanted = special[name](f64(row[1])):item(), row[2]
        assert.is_true(got == wanted or math.abs(got - wanted) <= 1e-13 * math.abs(wanted),
          ("%g: wanted %.17g, got %.17g"):format(row[1], wanted, got))
      end
    end)

    it(name .. " has second derivatives, on both sides of a change of method", function()
      local x = f64 { 0.4, 0.97, 1.2, 1.9, 2.2, 5 }:requires_grad_()
      assert.is_true(moth.autograd.gradcheck(special[name], { x }))
      assert.is_true(moth.autograd.gradgradcheck(special[name], { x }))
      if name:find "_j" or name == "airy_ai" then
        assert.is_true(moth.autograd.gradcheck(special[name], { f64 { -0.4, -1.2, -4, 0 }
          :requires_grad_() }))
      end
    end)
  end

  it("polynomials with a tensor of degrees equal those of each degree", function()
    local x, n = moth.rand(4, { dtype = moth.float64 }), moth.tensor { -3LL, 0LL, 5LL, 12LL }
    for _, name in ipairs { "hermite_polynomial_he", "laguerre_polynomial_l",
        "shifted_chebyshev_polynomial_w" } do
      local got = special[name](x, n)
      for i = 1, 4 do
        local each = special[name](x[i], n[i]:item())
        assert.close(each:item(), got[i]:item(), 1e-13 * math.max(1, math.abs(each:item())))
      end
      local leaf = x:clone():requires_grad_()
      assert.is_true(moth.autograd.gradcheck(function(v) return special[name](v, n) end, { leaf }))
    end
    assert.close(math.cos(40 * math.acos(0.3)),
      special.chebyshev_polynomial_t(f64(0.3), 40):item(), 1e-13)
  end)

  it("polynomials are the same with and without a gradient, for any strides", function()
    local x = moth.randn(37, 21)
    for _, dtype in ipairs { "float32", "float64", "bfloat16" } do
      for name, kind in pairs { chebyshev_polynomial_t = 0, shifted_chebyshev_polynomial_v = 1,
          legendre_polynomial_p = 2, hermite_polynomial_h = 3, laguerre_polynomial_l = 4 } do
        for _, v in ipairs { x, x:t(), x[1], x[2][3], moth.ones(0) } do
          v = v:to(moth[dtype])
          for _, n in ipairs { -1, 0, 1, kind + 2 } do
            local plain = special[name](v, n)
            local leaf = v:detach():clone():requires_grad_()
            assert.equal(v.dtype, plain.dtype)
            assert.is_true(plain:allclose(special[name](leaf, n):detach(),
              { rtol = dtype == "float64" and 1e-13 or dtype == "float32" and 1e-6 or 1e-2 }))
          end
        end
      end
    end
  end)

  it("accepts a number for either argument", function()
    local n = moth.tensor { 0LL, 2LL, 3LL }
    assert.is_true(special.legendre_polynomial_p(0.3, n):allclose(moth.tensor {1, -0.365, -0.3825}))
    assert.is_true(special.shifted_chebyshev_polynomial_t(0.3, n):allclose(
      special.shifted_chebyshev_polynomial_t(moth.full({ 3 }, 0.3), n)))
    local x = moth.tensor { 2, 3 }
    assert.is_true(special.zeta(x, 1.5):equal(special.zeta(x, moth.full({ 2 }, 1.5))))
    assert.has_error_like(function() special.zeta(2, 1.5) end,
      "'input' to 'zeta' %(at least one tensor is needed, got 2")
  end)

  it("entr has an infinite derivative at 0, and the derivative 0 below", function()
    local p = moth.tensor { -1, 0, 0.5, 2 }:requires_grad_(true)
    special.entr(p):sum():backward()
    local slope = p.grad:tolist()
    assert.is_true(slope[1] ~= slope[1])
    assert.are.equal(math.huge, slope[2])
    assert.is_true(p.grad[{ { 3, 4 } }]:allclose(-1 - p.detach(p)[{ { 3, 4 } }]:log()))
  end)

  it("has values down to the smallest number", function()
    local least = f64(2 ^ -1074)
    assert.close(-473.999073423004, special.bessel_y0(least):item(), 1e-10)
    assert.equal(-math.huge, special.bessel_y1(least):item())
    assert.close(744.55600343704, special.modified_bessel_k0(least):item(), 1e-10)
    assert.equal(math.huge, special.modified_bessel_k1(least):item())
  end)

  it("scaled_modified_bessel_k0 and k1 are infinite at 0", function()
    for _, name in ipairs { "scaled_modified_bessel_k0", "scaled_modified_bessel_k1" } do
      local x = f64 { 0, 1 }:requires_grad_()
      special[name](x):sum():backward()
      assert.equal(-math.huge, x.grad[1]:item())
      assert.is_true(x.grad[2]:item() < 0)
    end
  end)

  it("raises for unsupported arguments", function()
    local x = moth.rand(3)
    assert.has_error_like(function() special.bessel_j0("x") end, "'input' to 'bessel_j0'")
    assert.has_error_like(function() special.bessel_j2(x) end, "has no 'bessel_j2'; did you mean")
    assert.has_error_like(function() special.hermite_polynomial_h(x, math.huge) end,
      "'n' to 'hermite_polynomial_h' %(degrees up to 100000 are needed, got inf")
    assert.has_error_like(function() special.legendre_polynomial_p(x) end, "'n'")
    for _, degree in ipairs { 1e9, moth.tensor { 2LL, 1000000000LL } } do
      assert.has_error_like(function() special.legendre_polynomial_p(moth.rand(2), degree) end,
        "degrees up to 100000 are needed, got 1000000000")
    end
    assert.has_error_like(function() special.laguerre_polynomial_l(0.3, 2) end,
      "'input' to 'laguerre_polynomial_l' %(at least one tensor is needed, got 0.3")
    local n = moth.tensor { 1LL, 2LL, 3LL }
    assert.has_error_like(function()
      moth.capture(function(v) return special.legendre_polynomial_p(v, n) end)(x)
    end, "a captured step needs a number")
  end)
end)
