-- `out`: every function with `out` in PyTorch writes its results there; a tensor that does not fit
-- raises an error that names `out`. The lists are PyTorch 2.15's, for functions that exist here.

local moth = require "moth"
local bind = require "moth.binding.bind"
local registry = require "spec.support.registry"
local F, lib = moth.nn.functional, require "moth.binding.lib"

local LISTS = {
  {moth, "abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr all amax amin "
    .. "aminmax angle any arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax "
    .. "argmin argsort asin asinh atan atan2 atanh baddbmm bernoulli bitwise_and "
    .. "bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bmm "
    .. "bucketize cat ceil chain_matmul cholesky cholesky_inverse cholesky_solve clamp "
    .. "clamp_max clamp_min clip column_stack concat concatenate copysign cos cosh cross "
    .. "cummax cummin cumprod cumsum deg2rad diag diff digamma div divide dot dstack empty "
    .. "eq erf erfc erfinv exp exp2 expm1 eye fix float_power floor floor_divide fmax fmin "
    .. "fmod frac frexp full gather gcd ge ger greater greater_equal gt hardshrink heaviside "
    .. "histc histogram hstack hypot i0 igamma igammac index_add index_copy index_reduce "
    .. "index_select inner inverse isin isneginf isposinf kron kthvalue lcm ldexp le lerp "
    .. "less less_equal lgamma linspace log log10 log1p log2 log_softmax logaddexp "
    .. "logaddexp2 logcumsumexp logical_and logical_not logical_or logical_xor logit "
    .. "logspace logsumexp lt lu_solve lu_unpack masked_select matmul matrix_power max "
    .. "maximum mean median min minimum mm mode msort mul multinomial multiply mv mvlgamma "
    .. "nan_to_num nanmean nanmedian nanquantile nansum narrow_copy ne neg negative "
    .. "nextafter nonzero norm normal not_equal ones orgqr ormqr outer polygamma pow prod qr "
    .. "quantile rad2deg rand randint randn randperm range reciprocal remainder renorm round "
    .. "row_stack rsqrt scatter scatter_add scatter_reduce searchsorted sgn sigmoid sign "
    .. "signbit sin sinc sinh slice_scatter slogdet softmax sort sqrt square stack std sub "
    .. "subtract sum svd take take_along_dim tan tanh tensordot threshold topk tril triu "
    .. "true_divide trunc var vdot vstack where xlogy zeros"},
  {moth.linalg, "cholesky cholesky_ex cond cross det eig eigh eigvals eigvalsh householder_product "
    .. "inv inv_ex lu lu_factor lu_factor_ex lu_solve matmul matrix_norm matrix_power "
    .. "matrix_rank multi_dot norm pinv polar qr slogdet solve solve_ex solve_triangular svd "
    .. "svdvals tensorinv tensorsolve vecdot vector_norm"},
  {moth.special, "airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 chebyshev_polynomial_t "
    .. "chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w digamma entr "
    .. "erf erfc erfcx erfinv exp2 expit expm1 gammainc gammaincc gammaln "
    .. "hermite_polynomial_h hermite_polynomial_he i0 i0e i1 i1e laguerre_polynomial_l "
    .. "legendre_polynomial_p log1p log_ndtr logit logsumexp modified_bessel_i0 "
    .. "modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 multigammaln ndtr ndtri "
    .. "polygamma psi round scaled_modified_bessel_k0 scaled_modified_bessel_k1 "
    .. "shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u "
    .. "shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w sinc "
    .. "spherical_bessel_j0 xlog1py xlogy zeta"},
  {moth.fft, "fft fft2 fftfreq fftn hfft hfft2 hfftn ifft ifft2 ifftn ihfft ihfft2 ihfftn irfft "
    .. "irfft2 irfftn rfft rfft2 rfftfreq rfftn"},
  {F, "avg_pool2d avg_pool3d gelu hardshrink linear logsigmoid normalize softplus "
    .. "softshrink"},
}

-- An example of a function as a call with `out`: the results without `out`, the tensors passed as
-- `out`, and the results with `out`.
local function written(fn, example)
  local function call(out)
    moth.manual_seed(3)
    local arguments = example.arguments()
    local last = arguments[arguments.n]
    if out and lib.is_plain(last) and #last == 0 and next(last) ~= nil then
      last.out = out
    elseif out then
      arguments.n = arguments.n + 1
      arguments[arguments.n] = {out = out}
    end
    moth.manual_seed(4)
    return {fn(unpack(arguments, 1, arguments.n))}
  end
  local plain, into = call(), {}
  if lib.is_plain(plain[1]) then return {}, {}, {} end -- lists of tensors have no `out`
  for k, y in ipairs(plain) do
    into[k] = y.dtype == moth.bool and y:logical_not() or y:detach() * 0 - 7
  end
  return plain, into, call(#into > 1 and into or into[1])
end

describe("out receives the results of", function()
  for _, row in ipairs(LISTS) do
    for name in row[2]:gmatch "%S+" do
      it((tostring(row[1]):gsub("^Moth .*", "moth")) .. "." .. name, function()
        local fn = row[1][name]
        local sig = bind.signature(fn)
        for _, example in ipairs(registry.examples(sig.examples)) do
          local plain, into, got = written(fn, example)
          assert.are.equal(#plain, #got)
          for k, y in ipairs(plain) do
            assert.is_true(rawequal(got[k], into[k]) or got[k] == into[k])
            if name ~= "empty" then
              assert.is_true(moth.equal(y, into[k])
                or moth.allclose(y, into[k], {equal_nan = true, rtol = 1e-6}))
            end
          end
        end
      end)
    end
  end
end)

describe("out", function()
  local x = moth.randn(3, 4)

  it("of several results is a list with one tensor for each", function()
    local values, indices = moth.empty(3, 4), moth.empty(3, 4, {dtype = moth.int64})
    local v, i = moth.sort(x, {out = {values, indices}})
    assert.is_true(v == values and i == indices)
    assert.are.same(x:argsort():tolist(), indices:tolist())
    assert.has_error_like(function() moth.sort(x, {out = values}) end,
      "bad argument 'out' to 'sort' %(a list of 2 tensors is needed for 2 results, got f32 %(3, 4")
    assert.has_error_like(function() moth.max(x, 1, {out = {values}}) end,
      "bad argument 'out' to 'max' %(a list of 2 tensors is needed for 2 results, got a list of 1")
    assert.has_error_like(function() moth.linalg.inv(moth.eye(2), {out = {values}}) end,
      "bad argument 'out' to 'inv' %(a tensor is needed for 1 result, got a list of 1")
    assert.has_error_like(function() moth.sort(x, {out = {values, 3}}) end,
      "'out' to 'sort' %(a tensor is needed for result 2, got 3")
    assert.has_error_like(function() moth.sort(x, {out = {values, values}}) end,
      "'out' to 'sort' %(results 1 and 2 have the same tensor")
  end)

  it("of the wrong shape, dtype or kind raises an error that names it", function()
    local a = moth.eye(3)
    for _, case in ipairs {
      {moth.linalg.inv, a, moth.zeros(2),
        "'out' to 'inv' %(the result is %(3, 3%), which does not"},
      {moth.linalg.inv, a, moth.zeros(3, 3, {dtype = moth.int64}),
        "'out' to 'inv' %(the result is f32 %(3, 3%) and cannot be written into i64"},
      {moth.linalg.inv, a, 3, "'out' to 'inv' %(a tensor or a list of tensors is needed, got 3"},
      {moth.argmax, a, moth.zeros({}, {dtype = moth.bool}),
        "'out' to 'argmax' %(the result is i64"},
      {moth.linalg.inv, a, moth.zeros(1, 3):expand(3, 3), "'out' to 'inv' .*its elements overlap"},
      {moth.add, a, moth.zeros(2), "'out'", 1},
      {F.gelu, a, moth.zeros(2), "'out' to 'gelu'"},
    } do
      local fn, input, out, text, other = unpack(case, 1, 5)
      assert.has_error_like(function()
        return other and fn(input, other, {out = out}) or fn(input, {out = out})
      end, text)
    end
  end)

  it("raises if gradients would flow through it", function()
    local a = moth.eye(3):requires_grad_()
    local text = "gradients cannot flow through `out`; use no_grad"
    assert.has_error_like(function() moth.linalg.inv(a, {out = moth.zeros(3, 3)}) end, text)
    assert.has_error_like(function() moth.linalg.inv(moth.eye(3), {out = a}) end, text)
    assert.has_error_like(function() moth.hstack({a, a}, {out = moth.zeros(3, 6)}) end, text)
    local y = moth.zeros(3, 3)
    moth.no_grad(function() moth.linalg.inv(a, {out = y}) end)
    assert.are.same(moth.eye(3):tolist(), y:tolist())
  end)

  it("determines the dtype of creation functions", function()
    local y = moth.arange(0, 1, 0.25, {out = moth.empty(4, {dtype = moth.float64})})
    assert.are.equal(moth.float64, y.dtype)
    assert.are.same({0, 0.25, 0.5, 0.75}, y:tolist())
    local n = moth.zeros(2, {out = moth.ones(2, {dtype = moth.int64})})
    assert.are.same({0, 0}, n:tolist())
  end)

  it("may be a view, or an input", function()
    local y = moth.zeros(3, 8)
    moth.cummax(x, 2, {out = {y[{{}, {1, 4}}], moth.empty(3, 4, {dtype = moth.int64})}})
    assert.are.same((x:cummax(2)):tolist(), y[{{}, {1, 4}}]:tolist())
    local a = moth.tensor{{2, 0}, {0, 4}}
    moth.linalg.inv(a, {out = a})
    assert.are.same({{0.5, 0}, {0, 0.25}}, a:tolist())
  end)

  it("is also written by captured steps", function()
    local y = moth.zeros(2, 2)
    local step = moth.capture(function(a)
      moth.linalg.inv(a, {out = y})
      return y * 2
    end)
    for _, k in ipairs {1, 2, 4, 8, 16} do
      assert.are.same({{2 / k, 0}, {0, 2 / k}}, step(moth.eye(2, {dtype = moth.float64}) * k)
        :tolist())
    end
  end)

  it("is no argument of functions that have none in PyTorch", function()
    assert.has_error_like(function() F.relu(x, {out = x}) end, "'relu' has no argument 'out'")
    assert.has_error_like(function() moth.nn.Linear {3, 4, out = x} end, "no argument 'out'")
    assert.has_error_like(function() moth.roll(x, 1, {out = x}) end, "no argument 'out'")
  end)

  it("is in the help of functions that take it", function()
    local text = require("moth.help").text
    assert.is_truthy(text(moth.linalg.inv):find("out = none", 1, true))
    assert.is_truthy(text(moth.add):find("out = none", 1, true))
    assert.is_nil(text(F.relu):find("out = none", 1, true))
  end)
end)
