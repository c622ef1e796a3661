--- prune.lua -- nn.utils.prune: sets a part of a parameter to 0. `net.weight` is then
-- `net.weight_orig`, which is trained, times the buffer `net.weight_mask`; a second pruning
-- removes more of the remaining elements.
--
-- An amount below 1 is a fraction of the remaining elements; an integer from 1 on is a count. Lua
-- has one number type, so that an amount of 1 means one element.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lazy = require "moth.base.lazy"
local lib = require "moth.binding.lib"
local Module = require "moth.nn.module"
local parameter = require "moth.nn.module.parameter"
local parametrize = require "moth.nn.utils.parametrize"

local prune = {}

local STORE = Module.store_key

local function moth() return require "moth" end

-- ---- masks ----

local function pruned(module, name)
  local computed = module[STORE].computed
  return computed and computed[name] and computed[name].pruned or false
end

-- Returns the original tensor of a parameter, and its mask or nil. Raises for other names.
local function target(fname, module, name)
  if class.isinstance(module, Module) and pruned(module, name) then
    return module[name .. "_orig"], module[name .. "_mask"]
  end
  if parametrize.check(fname, module, name) ~= "parameter" then
    errors.argument(fname, "name", ("'%s' is a buffer; a parameter is needed"):format(name))
  end
  return module[name]
end

-- Multiplies the mask by another mask.
local function mask_more(module, name, mask)
  local original, before = target("prune", module, name)
  if before ~= nil then
    moth().no_grad(before.mul_, before, mask)
    return
  end
  local orig, masked = name .. "_orig", name .. "_mask"
  module[name] = nil
  module[orig] = original
  module[masked] = parameter.Buffer(mask)
  module:_compute(name, function(self) return self[orig] * self[masked] end, function(self)
    errors.raise(("%s.%s is pruned; assign to %s, or call prune.remove first"):format(
      class.typename(self), name, orig), "E_STATE")
  end)
  module[STORE].computed[name].pruned = true
end

-- Converts an amount to a number of elements, of n.
local function count_of(fname, amount, n)
  if not (amount >= 0) or amount > 1 and amount % 1 ~= 0 then
    errors.argument(fname, "amount", ("a share from 0 to below 1 or an integer is needed, got "
      .. "%g"):format(amount), "E_DOMAIN")
  end
  if amount < 1 then
    local count = amount * n
    local low = math.floor(count)
    local rest = count - low
    if rest == 0.5 then return low + low % 2 end -- round half to even, as PyTorch does
    return rest > 0.5 and low + 1 or low
  elseif amount > n then
    errors.argument(fname, "amount", ("cannot prune %d elements, only %d remain"):format(amount, n),
      "E_DOMAIN")
  end
  return amount
end

-- Creates a mask with the shape of x: 0 at the positions of a list or flat tensor, 1 elsewhere.
local function mask_without(x, positions)
  local mask = moth().ones(x:numel(), {dtype = x.dtype, device = x.device})
  if positions:numel() > 0 then mask:index_fill_(1, positions, 0) end
  return (mask:view(x.shape))
end

-- Returns the flat positions of the elements of x that are not yet pruned.
local function left_of(x, mask)
  if mask == nil then
    return (moth().range(1, x:numel(), {dtype = moth().int64, device = x.device}))
  end
  return (mask:reshape(-1):nonzero():reshape(-1))
end

-- Returns the n positions with the lowest scores.
local function lowest(scores, positions, n)
  if n == 0 then return positions:narrow(1, 1, 0) end
  local _, at = scores:topk(n, {largest = false})
  return (positions:index_select(1, at))
end

local function scores_for(fname, x, importance)
  if importance == nil then return x:detach() end
  if importance.shape ~= x.shape then
    errors.refuse(fname, "importance_scores",
      ("the shape of %s is needed"):format(errors.describe(x)), importance, "E_SHAPE")
  end
  return importance:detach()
end

-- ---- pruning of single elements ----

local function unstructured(fname, module, name, amount, score)
  local x, mask = target(fname, module, name)
  local mine = moth().no_grad(function()
    local left = left_of(x, mask)
    local n = count_of(fname, amount, left:numel())
    return mask_without(x, lowest(score(x):reshape(-1):index_select(1, left), left, n))
  end)
  mask_more(module, name, mine)
  return module
end

local MODULE = {"object", "module", "the module that has the parameter"}
local NAME = {"string", "name", "the name of the parameter"}
local AMOUNT = {"float", "amount", "share of the remaining elements, below 1, or a count"}
local SCORES = {"tensor", "importance_scores", "values to compare instead of the parameter's",
  optional = true}

local function functions(rows)
  for _, row in ipairs(rows) do
    prune[row.name] = define {
      name = row.name, doc = row.doc, examples = row.examples, args = row.args, run = row.run,
      outputs = row.outputs or "module",
    }
  end
end

-- ---- pruning of whole slices ----

local function structured(fname, module, name, amount, dim, score)
  local x, mask = target(fname, module, name)
  local at = dim < 0 and x:dim() + 1 + dim or dim
  if x:dim() < 2 or at < 1 or at > x:dim() then
    errors.argument(fname, "dim", ("%d is not a dimension of %s, or it has no slices"):format(dim,
      errors.describe(x)), "E_SHAPE")
  end
  local mine = moth().no_grad(function()
    local rows = x:size(at)
    local left = moth().range(1, rows, {dtype = moth().int64, device = x.device})
    if mask ~= nil then
      local any = mask:movedim(at, 1):reshape(rows, -1):sum(2):ne(0)
      left = any:nonzero():reshape(-1)
    end
    local n = count_of(fname, amount, left:numel())
    local kept = moth().ones(rows, {dtype = x.dtype, device = x.device})
    local scores = score(x, function(y) return y:movedim(at, 1):reshape(rows, -1) end)
    local out = lowest(scores:index_select(1, left), left, n)
    if n > 0 then kept:index_fill_(1, out, 0) end
    return (kept:view(lib.filled(x:dim(), 1, at, rows)):expand(x.shape):clone())
  end)
  mask_more(module, name, mine)
  return module
end

local DIM = {"int", "dim", "the dimension of the slices", default = -1}

functions {
  {
    name = "l1_unstructured",
    doc = "Prunes the smallest elements of a parameter.",
    examples = "moth.nn.Linear(4, 3), 'weight', 0.5\n"
      .. "moth.nn.Linear(4, 3), 'weight', 3, {importance_scores = moth.rand(3, 4)}",
    args = {MODULE, NAME, AMOUNT, SCORES},
    run = function(module, name, amount, importance)
      return (unstructured("l1_unstructured", module, name, amount, function(x)
        return scores_for("l1_unstructured", x, importance):abs()
      end))
    end,
  },
  {
    name = "random_unstructured",
    doc = "Prunes random elements of a parameter.",
    examples = "moth.nn.Linear(4, 3), 'weight', 0.5",
    args = {MODULE, NAME, AMOUNT},
    run = function(module, name, amount)
      return (unstructured("random_unstructured", module, name, amount, function(x)
        return (moth().rand(x.shape, {device = x.device}))
      end))
    end,
  },
  {
    name = "ln_structured",
    doc = "Prunes the slices of a parameter with the smallest norm.",
    examples = "moth.nn.Linear(4, 3), 'weight', 0.5, 2, 1\n"
      .. "moth.nn.Linear(4, 3), 'weight', 1, 1, {dim = 2, importance_scores = moth.rand(3, 4)}",
    args = {MODULE, NAME, AMOUNT, {"float", "n",
      "order of the norm; math.huge: the largest absolute value"},
            DIM, SCORES},
    run = function(module, name, amount, n, dim, importance)
      target("ln_structured", module, name)
      -- Scores the current slices: pruned elements count as 0 in the norm.
      local scores = scores_for("ln_structured", module[name], importance)
      return (structured("ln_structured", module, name, amount, dim, function(_, rows)
        return rows(scores):norm(n, 2)
      end))
    end,
  },
  {
    name = "random_structured",
    doc = "Prunes random slices of a parameter.",
    examples = "moth.nn.Linear(4, 3), 'weight', 0.5, 1\n"
      .. "moth.nn.Linear(4, 3), 'weight', 1, {dim = 2}",
    args = {MODULE, NAME, AMOUNT, DIM},
    run = function(module, name, amount, dim)
      return (structured("random_structured", module, name, amount, dim, function(x, rows)
        return moth().rand(rows(x):size(1), {device = x.device})
      end))
    end,
  },
  {
    name = "custom_from_mask",
    doc = "Prunes the elements of a parameter where a mask is 0.",
    examples = "moth.nn.Linear(4, 3), 'bias', moth.tensor{1, 0, 1}",
    args = {MODULE, NAME, {"tensor", "mask", "ones and zeros in the parameter's shape"}},
    run = function(module, name, mask)
      local x = target("custom_from_mask", module, name)
      if mask.shape ~= x.shape then
        errors.refuse("custom_from_mask", "mask",
          ("the shape of %s is needed"):format(errors.describe(x)), mask, "E_SHAPE")
      end
      mask_more(module, name, mask:detach():ne(0):to(x.dtype):to(x.device))
      return module
    end,
  },
  {
    name = "identity",
    doc = "Prunes nothing: the parameter gets a mask of ones.",
    examples = "moth.nn.Linear(4, 3), 'weight'",
    args = {MODULE, NAME},
    run = function(module, name)
      local x = target("identity", module, name)
      mask_more(module, name, moth().ones_like(x:detach()))
      return module
    end,
  },
  {
    name = "remove",
    doc = "Makes a pruned parameter a plain one again; the zeros remain.",
    examples = "moth.nn.utils.prune.identity(moth.nn.Linear(4, 3), 'weight'), 'weight'",
    args = {MODULE, NAME},
    run = function(module, name)
      if not class.isinstance(module, Module) or not pruned(module, name) then
        errors.argument("remove", "name", ("'%s' of %s is not pruned"):format(name,
          errors.describe(module)))
      end
      local original, mask = target("remove", module, name)
      moth().no_grad(original.mul_, original, mask)
      module:_compute(name, nil)
      module[name .. "_orig"], module[name .. "_mask"] = nil, nil
      module[name] = original
      return module
    end,
  },
}

-- ---- global pruning ----

local METHODS = {l1_unstructured = true, random_unstructured = true}

local function method_name(method)
  for name in pairs(METHODS) do
    if method == name or method == prune[name] then return name end
  end
  errors.refuse("global_unstructured", "pruning_method", "prune.l1_unstructured or "
    .. "prune.random_unstructured is needed", method)
end

functions {
  {
    name = "global_unstructured", outputs = "nothing",
    doc = "Prunes elements of several parameters, which are compared with each other.",
    examples = "{{moth.nn.Linear(4, 3), 'weight'}, {moth.nn.Linear(3, 2), 'weight'}}, "
      .. "moth.nn.utils.prune.l1_unstructured, 0.5",
    args = {{"data", "parameters", "list of {module, name}"},
            {"any", "pruning_method", "prune.l1_unstructured or prune.random_unstructured"},
            AMOUNT},
    run = function(parameters, method, amount)
      local random = method_name(method) == "random_unstructured"
      local all, scores, sizes = {}, {}, {}
      moth().no_grad(function()
        for i, pair in ipairs(type(parameters) == "table" and parameters or {}) do
          if type(pair) ~= "table" then
            errors.refuse("global_unstructured", "parameters", "a list of {module, name} is needed",
              pair, "E_TYPE")
          end
          local module, name = pair[1], pair[2]
          local x, mask = target("global_unstructured", module, name)
          local left = left_of(x, mask)
          all[i] = {module = module, name = name, x = x, left = left}
          local own = random and moth().rand(x.shape, {device = x.device}) or x:detach():abs()
          scores[i], sizes[i] = own:reshape(-1):index_select(1, left), left:numel()
        end
        if #all == 0 then
          errors.refuse("global_unstructured", "parameters", "a list of {module, name} is needed",
            parameters, "E_TYPE")
        end
        local together = moth().cat(scores)
        local n = count_of("global_unstructured", amount, together:numel())
        local keep = moth().ones_like(together)
        if n > 0 then keep:index_fill_(1, (select(2, together:topk(n, {largest = false}))), 0) end
        local at = 1
        for i, row in ipairs(all) do
          local gone = keep:narrow(1, at, sizes[i]):eq(0):nonzero():reshape(-1)
          row.mask = mask_without(row.x, row.left:index_select(1, gone))
          at = at + sizes[i]
        end
      end)
      for _, row in ipairs(all) do mask_more(row.module, row.name, row.mask) end
    end,
  },
}

--- Returns true if a parameter of a module, or of a submodule, is pruned.
-- @param module  a module
function prune.is_pruned(module)
  if not class.isinstance(module, Module) then return false end
  for _, below in ipairs(module:modules()) do
    for name in pairs(below[STORE].computed or {}) do
      if pruned(below, name) then return true end
    end
  end
  return false
end

return (lazy.namespace("moth.nn.utils.prune", prune, {}))
