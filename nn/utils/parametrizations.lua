--- parametrizations.lua -- nn.utils.parametrizations: weight normalization and spectral
-- normalization; orthogonal.lua has the orthogonal parametrization.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lazy = require "moth.base.lazy"
local Module = require "moth.nn.module"
local parameter = require "moth.nn.module.parameter"
local parametrize = require "moth.nn.utils.parametrize"

local parametrizations = {}

local function moth() return require "moth" end

-- ---- weight normalization ----

--- The norm of each slice of x along dim, or of all elements, in a shape that broadcasts to x.
-- @param dim  position of a dimension, or nil
function parametrizations.slice_norm(x, dim)
  local others = {}
  for d = 1, x:dim() do
    if d ~= dim then others[#others + 1] = d end
  end
  if dim == nil then return (x:norm()) end
  if #others == 0 then return (x:abs()) end
  return (x:norm(2, others, true))
end

--- Converts a user's dimension number to a position; nil for none. For weight_norm -1 means none,
-- as in PyTorch.
function parametrizations.dim_of(fname, x, dim)
  if dim == nil or dim == -1 and fname == "weight_norm" then return nil end
  local at = dim < 0 and x:dim() + 1 + dim or dim
  if at < 1 or at > x:dim() then
    errors.argument(fname, "dim", ("%d is no dimension of %s"):format(dim, errors.describe(x)),
      "E_SHAPE")
  end
  return at
end

local WeightNorm = class("WeightNorm", Module)

function WeightNorm:init(dim) self.dim = dim end

function WeightNorm:forward(g, v)
  return v * (g / parametrizations.slice_norm(v, self.dim))
end

function WeightNorm:right_inverse(weight)
  return parametrizations.slice_norm(weight, self.dim), weight
end

function WeightNorm:extra_repr() return "dim=" .. tostring(self.dim) end

local MODULE = {"object", "module", "the module that has the weight"}
local NAME = {"string", "name", "the name of the parameter", default = "weight"}
--- Argument rows that other files share.
parametrizations.rows = {MODULE, NAME,
  {"int", "dim", "dimension whose slices each have a norm; none or -1: one norm for all",
    default = 1, optional = true}}

parametrizations.weight_norm = define {
  name = "weight_norm",
  doc = "Computes a weight from a norm, g = `original0`, and a direction, v = `original1`: g v / "
    .. "|v| (Salimans and Kingma, 2016).",
  examples = "moth.nn.Linear(2, 3)\nmoth.nn.Conv1d(2, 3, 2), {name = 'weight', dim = 2}",
  args = parametrizations.rows,
  outputs = "module",
  run = function(module, name, dim)
    if not parametrize.is_parametrized(module, name) then
      parametrize.check("weight_norm", module, name)
    end
    dim = parametrizations.dim_of("weight_norm", module[name], dim)
    return (parametrize.register_parametrization(module, name, WeightNorm(dim)))
  end,
}

-- ---- spectral normalization ----

local function normalize(x, eps)
  return x / x:norm():clamp {min = eps}
end
parametrizations.normalize = normalize

--- Returns a weight as a matrix; the slices along a dimension are its rows.
function parametrizations.as_matrix(weight, dim)
  if dim ~= 1 then weight = weight:movedim(dim, 1) end
  return (weight:reshape(weight:size(1), -1))
end

--- Power iterations, which write their results to u and v.
-- @param how  {n_power_iterations =, eps =, right_first =}; with right_first a step computes v
-- first
-- @param n    the number of iterations; overrides n_power_iterations
function parametrizations.power_method(matrix, u, v, how, n)
  moth().no_grad(function()
    for _ = 1, n or how.n_power_iterations do
      if how.right_first then v:copy_(normalize(matrix:t():matmul(u), how.eps)) end
      u:copy_(normalize(matrix:matmul(v), how.eps))
      if not how.right_first then v:copy_(normalize(matrix:t():matmul(u), how.eps)) end
    end
  end)
end

--- Returns the output dimension of a layer's weight, as in PyTorch.
function parametrizations.output_dim(module)
  return class.typename(module):find "^ConvTranspose" and 2 or 1
end

local SpectralNorm = class("SpectralNorm", Module)

function SpectralNorm:init(weight, n_power_iterations, eps, dim)
  self.n_power_iterations, self.eps, self.dim = n_power_iterations, eps, dim
  if weight:dim() < 2 then return end
  local matrix = parametrizations.as_matrix(weight:detach(), dim)
  local u = moth().randn(matrix:size(1), {dtype = weight.dtype, device = weight.device})
  local v = moth().randn(matrix:size(2), {dtype = weight.dtype, device = weight.device})
  self._u = parameter.Buffer(normalize(u, eps))
  self._v = parameter.Buffer(normalize(v, eps))
  parametrizations.power_method(matrix, self._u, self._v, self, 15)
end

function SpectralNorm:forward(weight)
  if weight:dim() < 2 then return (normalize(weight, self.eps)) end
  local matrix = parametrizations.as_matrix(weight, self.dim)
  if self.training then
    parametrizations.power_method(matrix, self._u, self._v, self)
  end
  -- clones: the next call writes to the originals while backward may still need them
  local u, v = self._u:clone(), self._v:clone()
  return weight / u:dot(matrix:matmul(v))
end

function SpectralNorm:extra_repr()
  return ("n_power_iterations=%d, eps=%g, dim=%d"):format(self.n_power_iterations, self.eps,
    self.dim)
end

--- Argument rows of the power iteration.
parametrizations.power_rows = {MODULE, NAME,
  {"int", "n_power_iterations", "steps of the power method each time, in training",
    default = 1},
  {"float", "eps", "lower bound of a norm before the division by it", default = 1e-12},
  {"int", "dim", "the output dimension; default: 1, or 2 for transposed convolutions",
    optional = true}}

--- Checks the arguments of spectral norms. @return the dimension
function parametrizations.check_power(module, name, n, dim)
  if not parametrize.is_parametrized(module, name) then
    parametrize.check("spectral_norm", module, name)
  end
  if n < 1 then
    errors.argument("spectral_norm", "n_power_iterations", "a number from 1 on is needed, got "
      .. n, "E_DOMAIN")
  end
  return parametrizations.dim_of("spectral_norm", module[name],
    dim or parametrizations.output_dim(module))
end

parametrizations.spectral_norm = define {
  name = "spectral_norm",
  doc = "Divides a weight by its largest singular value, which the power method estimates in "
    .. "training (Miyato et al., 2018).",
  examples = "moth.nn.Linear(2, 3)\nmoth.nn.Conv2d(2, 3, 2), {name = 'weight', "
    .. "n_power_iterations = 2, eps = 1e-6, dim = 2}",
  args = parametrizations.power_rows,
  outputs = "module",
  run = function(module, name, n_power_iterations, eps, dim)
    dim = parametrizations.check_power(module, name, n_power_iterations, dim)
    return (parametrize.register_parametrization(module, name,
      SpectralNorm(module[name], n_power_iterations, eps, dim)))
  end,
}

return (lazy.namespace("moth.nn.utils.parametrizations", parametrizations,
  {orthogonal = {"moth.nn.utils.orthogonal", "orthogonal"}}))
