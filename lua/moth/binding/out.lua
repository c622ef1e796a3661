--- out.lua -- the argument `out`: the tensor, or the list of tensors, that receives the results.
--
--     moth.sort(x, {out = {values, indices}})      moth.linalg.inv(a, {out = b})
--
-- `out` is always passed by name. If the table of named arguments has it, forms.lua calls `into`
-- with the arguments in position; calls without `out` do not reach this file. Ops with MOTH_OP_OUT
-- in their record write to it directly, without a copy.

local bind = require "moth.binding.bind"
local calls = require "moth.binding.calls"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local istensor = lib.istensor

local outs = {}

-- PyTorch's functions with `out` whose op does not handle `out` itself; by namespace.
local NAMES = " " .. table.concat({
  "aminmax arange argmax argmin argsort bernoulli bucketize chain_matmul cholesky "
    .. "cholesky_inverse cholesky_solve clamp_max clamp_min column_stack cross cummax cummin diag "
    .. "diff dstack empty eye float_power frexp full ger hardshrink histc histogram hstack "
    .. "index_copy index_reduce inverse isin kthvalue ldexp linspace logcumsumexp "
    .. "logspace lu_solve lu_unpack masked_select matrix_power max median min mode msort "
    .. "multinomial mvlgamma nanmean nanmedian nanquantile nansum narrow_copy nonzero norm normal "
    .. "ones orgqr ormqr outer polygamma qr quantile rand randint randn randperm range renorm "
    .. "row_stack scatter scatter_reduce searchsorted slice_scatter slogdet sort svd take "
    .. "take_along_dim tensordot threshold topk vstack zeros std var",
  -- linalg
  "cholesky_ex cond det eig eigh eigvals eigvalsh householder_product inv inv_ex ldl_factor "
    .. "ldl_factor_ex ldl_solve lu lu_factor lu_factor_ex matrix_norm matrix_rank multi_dot pinv "
    .. "polar solve solve_ex solve_triangular svdvals tensorinv tensorsolve vecdot vector_norm",
  -- special
  "airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 chebyshev_polynomial_t chebyshev_polynomial_u "
    .. "chebyshev_polynomial_v chebyshev_polynomial_w entr erfcx expit gammainc gammaincc gammaln "
    .. "hermite_polynomial_h hermite_polynomial_he i0e i1 i1e laguerre_polynomial_l "
    .. "legendre_polynomial_p log_ndtr modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 "
    .. "modified_bessel_k1 multigammaln ndtr ndtri psi scaled_modified_bessel_k0 "
    .. "scaled_modified_bessel_k1 shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u "
    .. "shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w spherical_bessel_j0 xlog1py "
    .. "zeta",
  -- fft
  "fft fft2 fftfreq fftn hfft hfft2 hfftn ifft ifft2 ifftn ihfft ihfft2 ihfftn irfft irfft2 "
    .. "irfftn rfft rfft2 rfftfreq rfftn",
  -- nn.functional
  "avg_pool2d avg_pool3d gelu linear logsigmoid normalize softplus softshrink",
}, " ") .. " "

--- Returns true if `out` of a function with this signature is written by this file.
function outs.takes(sig)
  return sig.outputs ~= nil and #sig.outputs > 0
    and NAMES:find(" " .. sig.name .. " ", 1, true) ~= nil
end

--- The names of all functions whose `out` is written by this file.
function outs.names() return NAMES end

local function refuse(sig, text, code) return errors.argument(sig.name, "out", text, code) end

-- The tensors of `out` as a list, and true if `out` was a list.
local function targets_of(sig, out)
  if istensor(out) then return {out}, false end
  if not lib.is_plain(out) or #out == 0 then
    refuse(sig, "a tensor or a list of tensors is needed, got " .. errors.describe(out), "E_TYPE")
  end
  for k = 1, #out do
    if not istensor(out[k]) then
      refuse(sig, ("a tensor is needed for result %d, got %s"):format(k,
        errors.describe(out[k])), "E_TYPE")
    end
    for j = 1, k - 1 do
      if out[j] == out[k] then
        refuse(sig, ("results %d and %d have the same tensor"):format(j, k))
      end
    end
  end
  return out, true
end

local function requires_grad(values, n)
  for k = 1, n do
    local v = values[k]
    if istensor(v) and v.requires_grad then return true end
    if lib.is_plain(v) and requires_grad(v, #v) then return true end
  end
  return false
end

-- A factory function creates its tensor with the dtype and device of `out`.
local function as_target(sig, args, target)
  local dtype, device = sig.index.dtype, sig.index.device
  if not dtype or not device then return end
  for i = 1, #sig.args do
    if istensor(args[i]) then return end
  end
  if args[dtype] == nil then args[dtype] = target.dtype end
  if args[device] == nil then args[device] = target.device end
end

-- Returns true if results of dtype `from` fit into tensors of dtype `to`: no fraction, and no
-- integer except 0 and 1, is lost silently.
local function fits(from, to)
  if from == to then return true end
  if from.is_floating_point then return to.is_floating_point end
  return from == require("moth").bool or to ~= require("moth").bool
end

local function check(sig, target, y, which)
  if not (target.shape == y.shape) then
    refuse(sig, ("%s is %s, which does not fit %s"):format(which, tostring(y.shape),
      errors.describe(target)), "E_SHAPE")
  elseif not fits(y.dtype, target.dtype) then
    refuse(sig, ("%s is %s and cannot be written into %s"):format(which,
      errors.describe(y), errors.describe(target)), "E_DTYPE")
  elseif not (target.device == y.device) then
    refuse(sig, ("%s is on %s, the tensor on %s"):format(which, tostring(y.device),
      tostring(target.device)), "E_DEVICE")
  end
end

local writers = {} -- name -> copy_ with that function's name in messages

local function write(sig, target, y)
  local name = sig.name
  writers[name] = writers[name] or bind.as("copy_", name, {input = "out", source = "out"})
  writers[name](target, y)
end

--- Writes one result. @return the tensor
function outs.write(sig, target, y)
  check(sig, target, y, "the result")
  write(sig, target, y)
  return target
end

--- Runs a function and writes its results.
-- @param sig  its signature
-- @param run  the function, with positional arguments
-- @param out  a tensor, or a list with one tensor for each result
-- @param ...  the arguments
-- @return the tensors of `out`
function outs.into(sig, run, out, ...)
  local targets, listed = targets_of(sig, out)
  local args, n = {...}, #sig.args
  if require("moth.autograd").is_grad_enabled()
    and (requires_grad(targets, #targets) or requires_grad(args, n)) then
    refuse(sig, "gradients cannot flow through `out`; use no_grad", "E_GRAPH")
  end
  as_target(sig, args, targets[1])
  args[n + 1] = calls.RESOLVED
  local results = {run(unpack(args, 1, n + 1))}
  if #results ~= #targets or listed ~= (#results > 1) then
    refuse(sig, ("%s needed for %d result%s, got %s"):format(#results > 1
      and ("a list of %d tensors is"):format(#results) or "a tensor is", #results,
      #results > 1 and "s" or "", listed and ("a list of %d"):format(#targets)
      or errors.describe(out)), "E_TYPE")
  end
  for k, y in ipairs(results) do
    check(sig, targets[k], y, #results > 1 and ("result %d"):format(k) or "the result")
  end
  for k, y in ipairs(results) do write(sig, targets[k], y) end
  return unpack(targets)
end

return outs
