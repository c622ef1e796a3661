--- lowrank.lua -- singular value decompositions of low rank by random projections: svd_lowrank,
-- pca_lowrank.

local define = require "moth.binding.define"
local errors = require "moth.error"

local ops = require("moth.binding.bind").ops
local lowrank = {}

local function refuse(fname, arg, wanted, got, code)
  errors.refuse(fname, arg, wanted, got, code or "E_SHAPE")
end

-- ---- Halko, Martinsson and Tropp, "Finding structure with randomness" (2011) ----

-- Returns q orthonormal columns that nearly span the range of A.
local function range_of(A, q, niter)
  local linalg = require("moth").linalg
  local sizes = {unpack(A.shape)}
  sizes[#sizes - 1], sizes[#sizes] = A:size(-1), q
  local Q = linalg.qr(A:matmul(ops.randn(sizes, {dtype = A.dtype, device = A.device})))
  for _ = 1, niter do
    Q = linalg.qr(A:transpose(-1, -2):matmul(Q))
    Q = linalg.qr(A:matmul(Q))
  end
  return Q
end

local function low_rank(name, A, q, niter)
  if A:dim() < 2 then refuse(name, "A", "matrices, (..., M, N), are needed", A) end
  local least = math.min(A:size(-1), A:size(-2))
  if q < 0 or q > least then
    refuse(name, "q", ("0 to %d are possible"):format(least), q, "E_ARG")
  end
  if niter < 0 then refuse(name, "niter", "a number from 0 on is needed", niter, "E_ARG") end
  local Q = range_of(A, q, niter)
  local U, S, Vh = require("moth").linalg.svd(Q:transpose(-1, -2):matmul(A),
    {full_matrices = false})
  return Q:matmul(U), S, (Vh:transpose(-1, -2))
end

local NITER = {"int", "niter", "number of additional multiplications by A", default = 2}

--- moth.svd_lowrank(A, q, niter, M) -> U, S, V: A - M is approximately U diag(S) V^T.
lowrank.svd_lowrank = define {
  name = "svd_lowrank",
  doc = "The q largest singular values of matrices and their vectors, by random projections. They "
    .. "are accurate if the other singular values are small.",
  examples = "moth.randn(5, 4), 2\nmoth.randn(5, 4), {q = 4, niter = 1, M = moth.randn(1, 4)}",
  outputs = "U, S, V",
  args = {{"tensor", "A", "matrices, (..., M, N)"},
           {"int", "q", "number of singular values; at most the smaller size", default = 6},
             NITER,
           {"tensor", "M", "subtracted from A first, broadcast with it", optional = true}},
  scoped = true,
  run = function(A, q, niter, M)
    if M ~= nil then A = A - M end
    return low_rank("svd_lowrank", A, q, niter)
  end,
}

--- moth.pca_lowrank(A, q, center, niter) -> U, S, V: V's columns are the principal directions.
lowrank.pca_lowrank = define {
  name = "pca_lowrank",
  doc = "The first q principal components of observations (rows): V's columns are their "
    .. "directions, and A:matmul(V) are the projected observations.",
  examples = "moth.randn(5, 4), {q = 2}\nmoth.randn(5, 4), {q = 3, center = false, niter = 1}",
  outputs = "U, S, V",
  args = {{"tensor", "A", "observations, (..., M, N)"},
           {"int", "q", "number of components; default: 6, or the smaller size", optional = true},
           {"bool", "center", "subtract the mean of each column?", default = true}, NITER},
  scoped = true,
  run = function(A, q, center, niter)
    if A:dim() < 2 then refuse("pca_lowrank", "A", "matrices, (..., M, N), are needed", A) end
    q = q or math.min(6, A:size(-1), A:size(-2))
    if center then A = A - A:mean(-2, true) end
    return low_rank("pca_lowrank", A, q, niter)
  end,
}

return lowrank
