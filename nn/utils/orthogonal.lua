--- orthogonal.lua -- nn.utils.parametrizations.orthogonal: weights with orthonormal columns, or
-- with orthonormal rows if there are fewer rows.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local Module = require "moth.nn.module"
local parametrizations = require "moth.nn.utils.parametrizations"
local parametrize = require "moth.nn.utils.parametrize"

local function moth() return require "moth" end

local function eye(n, like) return moth().eye(n, {dtype = like.dtype, device = like.device}) end

-- Returns the skew-symmetric matrix, A' = -A, made of the lower triangle of x, of n rows and k <= n
-- columns.
local function skew(x, n, k)
  x = x:tril()
  if n > k then
    local sizes = {unpack(x.shape)}
    sizes[#sizes] = n - k
    x = moth().cat({x, x:new_zeros(sizes)}, -1)
  end
  return x - x.mT
end

-- Functions that map any x, of n rows and k <= n columns, to a matrix with orthonormal columns.
local maps = {}

function maps.matrix_exp(x, n, k)
  return moth().linalg.matrix_exp(skew(x, n, k)):narrow(-1, 1, k)
end

-- (1 - A / 2)^-1 (1 + A / 2)
function maps.cayley(x, n, k)
  local half, one = skew(x, n, k) * 0.5, eye(n, x)
  return moth().linalg.solve(one - half, one + half):narrow(-1, 1, k)
end

-- The product of the Householder reflections in the columns below x's diagonal; the diagonal
-- contains signs.
function maps.householder(x)
  local below = x:tril(-1)
  local tau = 2 / ((below * below):sum(-2) + 1)
  return moth().linalg.householder_product(below, tau) * x:diagonal(0, -2, -1):sign():unsqueeze(-2)
end

local Orthogonal = class("_Orthogonal", Module)

function Orthogonal:init(orthogonal_map) self.orthogonal_map = orthogonal_map end

function Orthogonal:forward(x)
  local tall = x:size(-2) >= x:size(-1)
  if not tall then x = x.mT end
  local q = maps[self.orthogonal_map](x, x:size(-2), x:size(-1))
  if self.base ~= nil then q = self.base:matmul(q) end
  return tall and q or q.mT
end

function Orthogonal:extra_repr() return "orthogonal_map=" .. self.orthogonal_map end

-- Trivialized: at the start of training the maps return the identity; the base is the
-- orthogonalized initial weight (Lezcano-Casado, 2019).
local Trivialized = class("_Orthogonal", Orthogonal)

local function is_orthogonal(q)
  local n, eps = q:size(-1), moth().finfo(q.dtype).eps
  return moth().allclose(q.mT:matmul(q), eye(n, q):expand_as(q), {atol = 10 * n * eps})
end

function Trivialized:right_inverse(weight)
  local q = weight:size(-2) >= weight:size(-1) and weight or weight.mT
  local n, k = q:size(-2), q:size(-1)
  if n > k or not is_orthogonal(q) then
    if n > k then
      local sizes = {unpack(q.shape)}
      sizes[#sizes] = n - k
      q = moth().cat({q, q:new_empty(sizes):normal_()}, -1)
    end
    local Q, R = moth().linalg.qr(q)
    q = Q * R:diagonal(0, -2, -1):sign():unsqueeze(-2)
  end
  q = q:clone()
  if self.base == nil then self:register_buffer("base", q) else self.base = q end
  local start = weight:new_zeros(weight.shape)
  start:diagonal(0, -2, -1):fill_(-1)
  return start
end

-- Represents a weight with orthonormal columns as a product of reflections (Householder, 1958).
local Reflected = class("_Orthogonal", Orthogonal)

function Reflected:right_inverse(weight)
  local tall = weight:size(-2) >= weight:size(-1)
  local x = (tall and weight or weight.mT):clone()
  for j = 1, x:size(-1) do
    local right = x:narrow(-2, j, x:size(-2) + 1 - j):narrow(-1, j, x:size(-1) + 1 - j)
    local v = right:narrow(-1, 1, 1):clone()
    local first = v:narrow(-2, 1, 1)
    local sign = moth().where(first:lt(0), -1, 1)  -- v[1] is 1; the diagonal gets -sign
    v = v / (first + sign * v:norm(2, -2, true))
    v:narrow(-2, 1, 1):fill_(1)
    right:sub_((v * (2 / (v * v):sum(-2, true))):matmul(v.mT:matmul(right)))
    right:narrow(-1, 1, 1):copy_(v)
    right:narrow(-1, 1, 1):narrow(-2, 1, 1):copy_(-sign)
  end
  return tall and x or x.mT
end

local orthogonal = {}

orthogonal.orthogonal = define {
  name = "orthogonal",
  doc = "Keeps the columns of a weight orthonormal, or its rows if there are fewer rows. A map "
    .. "computes them from any matrix: `matrix_exp`, `cayley` or `householder`. The default is "
    .. "matrix_exp for a square weight, else householder.",
  examples = "moth.nn.Linear(2, 3)\nmoth.nn.Linear(3, 3), {name = 'weight', "
    .. "orthogonal_map = 'cayley', use_trivialization = false}",
  args = {parametrizations.rows[1], parametrizations.rows[2],
    {"enum", "orthogonal_map", "how", choices = {"matrix_exp", "cayley", "householder"},
      optional = true},
    {"bool", "use_trivialization", "start with the current weight, where the map is the identity? "
      .. "Only then, or with householder, may you assign to the weight", default = true}},
  outputs = "module",
  run = function(module, name, map, use_trivialization)
    if not parametrize.is_parametrized(module, name) then
      parametrize.check("orthogonal", module, name)
    end
    local weight = module[name]
    if weight:dim() < 2 then
      errors.refuse("orthogonal", "module", "a weight of two dimensions or more is needed", weight,
        "E_SHAPE")
    end
    map = map or weight:size(-2) == weight:size(-1) and "matrix_exp" or "householder"
    local kind = use_trivialization and Trivialized or map == "householder" and Reflected
      or Orthogonal
    return (parametrize.register_parametrization(module, name, kind(map)))
  end,
}

return orthogonal
