--- init.lua -- nn.utils: gradient clipping, and parameters as one vector; other functions are
-- loaded at their first use.

local calls = require "moth.binding.calls"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lazy = require "moth.base.lazy"
local lib = require "moth.binding.lib"
local sparse = require "moth.sparse"

local utils = {}

local function moth() return require "moth" end
local function ops() return require("moth.binding.bind").ops end

-- ---- lists of parameters ----

-- Converts a tensor, a list, or a module's iterator to a list of tensors.
local function listed(fname, name, value)
  if lib.istensor(value) then return {value} end
  if not lib.is_plain(value) then
    errors.refuse(fname, name, "a tensor or a list of tensors, for example net:parameters(), is "
      .. "needed",
      value, "E_TYPE")
  end
  for i, x in ipairs(calls.whole_list(fname, name, value)) do
    if not lib.istensor(x) then
      errors.argument(fname, name, ("element %d is %s, not a tensor"):format(i,
        errors.describe(x)), "E_TYPE")
    end
  end
  return value
end

-- Returns the tensor for norms and factors: for a sparse gradient its coalesced values. The
-- coalesced gradient becomes p's gradient.
local function elements(fname, x, p)
  if not sparse.is(x) then return x end
  x = require("moth.optim.rows").once(x, fname)
  if p ~= nil then p.grad = x end
  return (x:values())
end

-- Returns the gradients of parameters, and the handles that the function frees at its end
-- (give_back).
local function grads_of(fname, parameters)
  local grads, borrowed = {}, {}
  for _, p in ipairs(listed(fname, "parameters", parameters)) do
    local grad, ours = lib.borrow_grad(p, fname)
    if grad ~= nil then grads[#grads + 1] = elements(fname, grad, p) end
    if ours then borrowed[#borrowed + 1] = grad end
  end
  return grads, borrowed
end

local function give_back(borrowed)
  for _, grad in ipairs(borrowed) do lib.C.moth_free(lib.ctx, grad) end
end

local function total_norm(fname, tensors, norm_type, error_if_nonfinite)
  if #tensors == 0 then return (moth().tensor(0.0)) end
  if norm_type ~= norm_type then
    errors.argument(fname, "norm_type", "is NaN", "E_DOMAIN")
  end
  return (moth().no_grad(ops().total_norm, tensors, norm_type, error_if_nonfinite))
end

local function check_bound(fname, name, value)
  if not (value >= 0) then
    errors.refuse(fname, name, "a number from 0 on is needed", value, "E_DOMAIN")
  end
end

local function clip(grads, max_norm, total)
  if #grads > 0 then moth().no_grad(ops().clip_norm_, grads, total, max_norm) end
end

local PARAMETERS = {"any", "parameters", "a tensor, or a list, for example net:parameters()"}
local NORM_TYPE = {"float", "norm_type", "order of the norm; math.huge: the largest absolute value",
  default = 2}
local FINITE = {"bool", "error_if_nonfinite", "raise when the norm is infinite or NaN?",
  default = false}

local function functions(rows)
  for _, row in ipairs(rows) do
    utils[row.name] = define {
      name = row.name, doc = row.doc, examples = row.examples, args = row.args, run = row.run,
      outputs = row.outputs,
    }
  end
end

functions {
  {
    name = "clip_grad_norm_", outputs = "total_norm",
    doc = "Scales the gradients of all parameters by one factor, so that their norm, as one long "
      .. "vector, is at most max_norm. Returns the norm before scaling (Pascanu et al., 2013).",
    examples = "{moth.nn.Parameter(moth.randn(3))}, 1\n"
      .. "moth.nn.Linear(2, 3):parameters(), {max_norm = 0.5, norm_type = 1, "
      .. "error_if_nonfinite = true}",
    args = {PARAMETERS, {"float", "max_norm", "the maximal norm"}, NORM_TYPE, FINITE},
    run = function(parameters, max_norm, norm_type, error_if_nonfinite)
      check_bound("clip_grad_norm_", "max_norm", max_norm)
      local grads, borrowed = grads_of("clip_grad_norm_", parameters)
      local total = total_norm("clip_grad_norm_", grads, norm_type, error_if_nonfinite)
      clip(grads, max_norm, total)
      give_back(borrowed)
      return total
    end,
  },
  {
    name = "clip_grad_value_", outputs = "nothing",
    doc = "Clamps every element of the parameters' gradients to [-clip_value, clip_value].",
    examples = "moth.nn.Linear(2, 3):parameters(), 0.5",
    args = {PARAMETERS, {"float", "clip_value", "the largest absolute value"}},
    run = function(parameters, clip_value)
      check_bound("clip_grad_value_", "clip_value", clip_value)
      local grads, borrowed = grads_of("clip_grad_value_", parameters)
      moth().no_grad(function()
        for _, grad in ipairs(grads) do grad:clamp_(-clip_value, clip_value) end
      end)
      give_back(borrowed)
    end,
  },
  {
    name = "get_total_norm", outputs = "total_norm",
    doc = "The norm of several tensors, as one long vector; it has no gradient.",
    examples = "{moth.randn(3), moth.randn(2, 2)}\n"
      .. "{moth.randn(3)}, {norm_type = 1, error_if_nonfinite = true}",
    args = {{"any", "tensors", "a tensor or a list of tensors"}, NORM_TYPE, FINITE},
    run = function(tensors, norm_type, error_if_nonfinite)
      local list = {}
      for i, x in ipairs(listed("get_total_norm", "tensors", tensors)) do
        list[i] = elements("get_total_norm", x)
      end
      return (total_norm("get_total_norm", list, norm_type, error_if_nonfinite))
    end,
  },
  {
    name = "clip_grads_with_norm_", outputs = "nothing",
    doc = "Scales the parameters' gradients as clip_grad_norm_ does, with a norm that you pass.",
    examples = "moth.nn.Linear(2, 3):parameters(), 0.5, moth.tensor(2.0)",
    args = {PARAMETERS, {"float", "max_norm", "the maximal norm"},
            {"tensor", "total_norm", "the gradients' norm, as get_total_norm returns it"}},
    run = function(parameters, max_norm, total)
      check_bound("clip_grads_with_norm_", "max_norm", max_norm)
      local grads, borrowed = grads_of("clip_grads_with_norm_", parameters)
      clip(grads, max_norm, total)
      give_back(borrowed)
    end,
  },
  {
    name = "parameters_to_vector", outputs = "vector",
    doc = "All elements of several tensors in one vector, tensor by tensor.",
    examples = "moth.nn.Linear(2, 3):parameters()",
    args = {{"any", "parameters", "a tensor or a list of tensors"}},
    run = function(parameters)
      local parts = {}
      for i, p in ipairs(listed("parameters_to_vector", "parameters", parameters)) do
        parts[i] = p:reshape(-1)
      end
      if #parts == 0 then
        errors.argument("parameters_to_vector", "parameters", "the list is empty")
      end
      return (moth().cat(parts))
    end,
  },
  {
    name = "vector_to_parameters", outputs = "nothing",
    doc = "Makes several tensors views of consecutive parts of a vector, whose storage they share.",
    examples = "moth.randn(9), moth.nn.Linear(2, 3):parameters()",
    args = {{"tensor", "vec", "as many elements as all parameters together"},
            {"any", "parameters", "a tensor or a list of tensors"}},
    run = function(vec, parameters)
      local list, total = listed("vector_to_parameters", "parameters", parameters), 0
      for _, p in ipairs(list) do total = total + p:numel() end
      if vec:dim() ~= 1 or vec:numel() ~= total then
        errors.argument("vector_to_parameters", "vec", ("a vector of %d elements, the number of "
          .. "the parameters' elements, is needed, got %s"):format(total, errors.describe(vec)),
          "E_SHAPE")
      end
      local at = 1
      vec = vec:detach()
      for _, p in ipairs(list) do
        local n = p:numel()
        p.data = vec:narrow(1, at, n):view(p.shape)
        at = at + n
      end
    end,
  },
}

--- Sequences of different lengths: nn.utils.rnn.pad_sequence and related functions.
utils.rnn = lazy.namespace("moth.nn.utils.rnn", require "moth.nn.utils.sequence", {})

local rows = {
  parametrize = {"moth.nn.utils.parametrize"}, parametrizations =
    {"moth.nn.utils.parametrizations"},
  prune = {"moth.nn.utils.prune"},
}
lazy.from(rows, "moth.nn.utils.reparametrize",
  "weight_norm remove_weight_norm spectral_norm remove_spectral_norm")
lazy.from(rows, "moth.nn.utils.fusion",
  "fuse_conv_bn_eval fuse_conv_bn_weights fuse_linear_bn_eval "
  .. "fuse_linear_bn_weights skip_init")

return (lazy.namespace("moth.nn.utils", utils, rows))
