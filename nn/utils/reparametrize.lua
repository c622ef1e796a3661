--- reparametrize.lua -- nn.utils.weight_norm, spectral_norm and their removal. They use the tensor
-- names of PyTorch's older functions: weight_g and weight_v; weight_orig, weight_u and weight_v.
-- nn.utils.parametrizations has the newer functions.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local Module = require "moth.nn.module"
local parameter = require "moth.nn.module.parameter"
local parametrizations = require "moth.nn.utils.parametrizations"
local parametrize = require "moth.nn.utils.parametrize"

local reparametrize = {}

local STORE = Module.store_key

-- Removes a tensor from a module; its name becomes a computed field.
local function replace(module, name, how)
  module:_compute(name, how.get, function(self)
    errors.raise(("%s.%s is computed from %s; assign to these"):format(
      class.typename(self), name, how.text), "E_STATE")
  end)
  module[STORE].computed[name].how = how
end

-- Raises unless the named tensor can be replaced.
local function check_plain(fname, module, name)
  if parametrize.check(fname, module, name) ~= "parameter" then
    errors.argument(fname, "name", ("'%s' is a buffer; a parameter is needed"):format(name))
  end
end

local function made_by(fname, module, name, what)
  local computed = class.isinstance(module, Module) and module[STORE].computed
  local row = computed and computed[name]
  if not row or not row.how or row.how.what ~= what then
    errors.argument(fname, "name", ("%s has no %s of '%s'"):format(errors.describe(module), what,
      tostring(name)))
  end
  return row.how
end

-- Makes the computed field a plain parameter with its current value; removes the tensors `gone`.
local function restore(module, name, how)
  local value = require("moth").no_grad(function() return module[name]:detach():clone() end)
  local wants = module[how.wants].requires_grad
  module:_compute(name, nil)
  for _, field in ipairs(how.gone) do module[field] = nil end
  module[name] = parameter.Parameter(value, wants)
  return module
end

local function numbers(module, name, how, fields)
  how.wants, how.gone = fields[1], fields
  how.text = table.concat(fields, ", ")
  replace(module, name, how)
end

reparametrize.weight_norm = define {
  name = "weight_norm",
  doc = "Computes a weight from a norm, `weight_g`, and a direction, `weight_v`: g v / |v| "
    .. "(Salimans and Kingma, 2016). nn.utils.parametrizations.weight_norm is the newer function.",
  examples = "moth.nn.Linear(2, 3)\nmoth.nn.Conv1d(2, 3, 2), {name = 'weight', dim = 2}",
  args = parametrizations.rows,
  outputs = "module",
  run = function(module, name, dim)
    check_plain("weight_norm", module, name)
    local weight = module[name]
    dim = parametrizations.dim_of("weight_norm", weight, dim)
    local norm = require("moth").no_grad(parametrizations.slice_norm, weight, dim)
    local g, v = name .. "_g", name .. "_v"
    module[name] = nil
    module[g] = parameter.Parameter(norm, weight.requires_grad)
    module[v] = parameter.Parameter(weight:detach():clone(), weight.requires_grad)
    numbers(module, name, {what = "weight_norm", get = function(self)
      local direction = self[v]
      return direction * (self[g] / parametrizations.slice_norm(direction, dim))
    end}, {g, v})
    return module
  end,
}

local MODULE, NAME = parametrizations.rows[1], parametrizations.rows[2]

reparametrize.remove_weight_norm = define {
  name = "remove_weight_norm",
  doc = "Makes a weight a plain parameter again, with its current value.",
  examples = "moth.nn.utils.weight_norm(moth.nn.Linear(2, 3))\n"
    .. "moth.nn.utils.weight_norm(moth.nn.Linear(2, 3), 'bias'), {name = 'bias'}",
  args = {MODULE, NAME},
  outputs = "module",
  run = function(module, name)
    return (restore(module, name, made_by("remove_weight_norm", module, name, "weight_norm")))
  end,
}

reparametrize.spectral_norm = define {
  name = "spectral_norm",
  doc = "Divides a weight, `weight_orig`, by its largest singular value. In training the power "
    .. "method estimates it, with the buffers `weight_u` and `weight_v` (Miyato et al., 2018). "
    .. "nn.utils.parametrizations.spectral_norm is the newer function.",
  examples = "moth.nn.Linear(2, 3)\nmoth.nn.Conv2d(2, 3, 2), {name = 'weight', "
    .. "n_power_iterations = 2, eps = 1e-6, dim = 2}",
  args = parametrizations.power_rows,
  outputs = "module",
  run = function(module, name, n, eps, dim)
    check_plain("spectral_norm", module, name)
    dim = parametrizations.check_power(module, name, n, dim)
    local weight, normalize = module[name], parametrizations.normalize
    local as_matrix, randn = parametrizations.as_matrix, require("moth").randn
    local matrix = as_matrix(weight:detach(), dim)
    local to = {dtype = weight.dtype, device = weight.device}
    local original, u, v = name .. "_orig", name .. "_u", name .. "_v"
    local how = {n_power_iterations = n, eps = eps, right_first = true} -- as in PyTorch
    module[name] = nil
    module[original] = weight
    module[u] = parameter.Buffer(normalize(randn(matrix:size(1), to), eps))
    module[v] = parameter.Buffer(normalize(randn(matrix:size(2), to), eps))
    numbers(module, name, {what = "spectral_norm", get = function(self)
      local now = as_matrix(self[original], dim)
      if self.training then parametrizations.power_method(now, self[u], self[v], how) end
      -- clones: the next reading writes to the originals while backward may still need them
      local sigma = self[u]:clone():dot(now:matmul(self[v]:clone()))
      return self[original] / sigma
    end}, {original, u, v})
    return module
  end,
}

reparametrize.remove_spectral_norm = define {
  name = "remove_spectral_norm",
  doc = "Makes a weight a plain parameter again, with its current value.",
  examples = "moth.nn.utils.spectral_norm(moth.nn.Linear(2, 3))\n"
    .. "moth.nn.utils.spectral_norm(moth.nn.Linear(2, 3)), {name = 'weight'}",
  args = {MODULE, NAME},
  outputs = "module",
  run = function(module, name)
    local how = made_by("remove_spectral_norm", module, name, "spectral_norm")
    local was = module.training
    module.training = false -- the current value, without another power iteration
    local ok, result = pcall(restore, module, name, how)
    module.training = was
    if not ok then error(result, 0) end
    return result
  end,
}

return reparametrize
