--- vmap.lua -- moth.func.vmap: a function of single samples as one of batches, by a loop over them;
-- and stack_module_state, several modules' parameters as one batch of them.
--
--     local each = moth.func.vmap(moth.func.grad(loss), {moth.none, 1, 1})
--     local grads = each(params, inputs, targets)     -- by name, a gradient for each sample

local bind = require "moth.bind"
local define = require "moth.define"
local errors = require "moth.error"
local lib = require "moth.lib"

local plain, istensor, none = lib.is_plain, lib.istensor, lib.none

local vmap = {}

local function refuse(argument, text, code) errors.argument("vmap", argument, text, code) end

-- ---- what goes in ----

-- f(x, dim) of each tensor in a value, in tables of the same form; dim is a number for all of it,
-- or a table of the same form. What is no tensor, or has no dim, stays.
local function over(value, dim, f)
  if dim == nil or dim == none then return value end
  if istensor(value) then
    if type(dim) ~= "number" then
      refuse("in_dims", "a dimension, or none, is needed for each tensor, got "
        .. errors.describe(dim), "E_TYPE")
    end
    return f(value, dim)
  end
  if not plain(value) then return value end
  local out = {}
  for key, part in pairs(value) do
    local at = dim
    if plain(dim) then at = dim[key] end
    out[key] = over(part, at, f)
  end
  return out
end

-- How many samples there are.
local function size_of(args, dims)
  local size
  for i = 1, args.n do
    over(args[i], dims[i], function(x, dim)
      local here = x:size(dim)
      if size and here ~= size then
        refuse("in_dims", ("the dimensions that are mapped over have one size, got %d and %d")
          :format(size, here), "E_SHAPE")
      end
      size = here
    end)
  end
  if not size then refuse("in_dims", "no tensor is mapped over") end
  if size == 0 then
    refuse("in_dims", "there are no samples, so what func would make is not known", "E_SHAPE")
  end
  return size
end

-- in_dims or out_dims for each of n values: a list has one for each, anything else is for all.
local function each(dims, n, argument)
  if plain(dims) and #dims > 0 then
    if #dims ~= n then
      refuse(argument, ("%d of them do not fit %d values"):format(#dims, n))
    end
    return dims
  end
  local list = {}
  for i = 1, n do list[i] = dims end
  return list
end

-- ---- what comes out ----

-- The results of all samples as one: tensors are stacked along dim; where that is none, the first.
local function joined(list, dim)
  local first = list[1]
  if dim == none then return first end
  if istensor(first) then return (bind.ops.stack(list, dim)) end
  if not plain(first) then
    refuse("func", "must return tensors, or tables of them; it returned " .. errors.describe(first),
      "E_TYPE")
  end
  local out = {}
  for key in pairs(first) do
    local column = {}
    for i, one in ipairs(list) do column[i] = one[key] end
    local at = dim
    if plain(dim) then at = dim[key] end
    out[key] = joined(column, at)
  end
  return out
end

vmap.vmap = define {
  name = "vmap",
  doc = "A function that calls func for each sample of a batch and puts its results together: as "
    .. "torch.vmap, but by a loop, with moth.capture in one call.",
  examples = "moth.dot\nmoth.mul, {in_dims = {1, moth.none}, out_dims = 2, randomness = 'same'}",
  outputs = "mapped",
  args = {
    {"function", "func", "function of single samples"},
    {"any", "in_dims", "the dimension of each argument that is mapped over: a number, none, or for "
      .. "a table of tensors a table; a list of such for several arguments", default = 1},
    {"any", "out_dims", "where that dimension is in the results, in the same way; none: the first "
      .. "sample's result alone", default = 1},
    {"enum", "randomness", "do samples draw different numbers?", choices = {"different", "same"}},
  },
  run = function(func, in_dims, out_dims, randomness)
    return function(...)
      local args, results, count = lib.pack(...), {}, nil
      local dims = each(in_dims, args.n, "in_dims")
      local moth = require "moth"
      local state = randomness == "same" and moth.get_rng_state()
      for i = 1, size_of(args, dims) do
        local one = {}
        for k = 1, args.n do
          one[k] = over(args[k], dims[k], function(x, dim) return (x:select(dim, i)) end)
        end
        if state then moth.set_rng_state(state) end
        local made = lib.pack(func(unpack(one, 1, args.n)))
        count = made.n
        for k = 1, count do
          results[k] = results[k] or {}
          results[k][i] = made[k]
        end
      end
      local places = each(out_dims, count, "out_dims")
      for k = 1, count do results[k] = joined(results[k], places[k]) end
      return unpack(results, 1, count)
    end
  end,
}

-- By name the tensors that list_of gives of each model, stacked, as leaves.
local function stacked(models, walk)
  local lists, out = {}, {}
  for i, model in ipairs(models) do
    for name, x in model[walk](model) do
      lists[name] = lists[name] or {}
      lists[name][i] = x
    end
  end
  for name, list in pairs(lists) do
    if #list ~= #models then
      errors.argument("stack_module_state", "models", ("not all of them have %s"):format(
        errors.shown(name)), "E_STATE")
    end
    out[name] = bind.ops.stack(list, 1):detach()
    if list[1].requires_grad then out[name]:requires_grad_() end
  end
  return out
end

vmap.stack_module_state = define {
  name = "stack_module_state",
  doc = "The parameters and the buffers of modules of one kind, by name, stacked: what vmap maps "
    .. "functional_call over. They are new tensors, and leaves.",
  examples = "{moth.nn.Linear(2, 3), moth.nn.Linear(2, 3)}",
  outputs = "params, buffers",
  args = {{"modules", "models", "a list of modules"}},
  run = function(models)
    if #models == 0 then
      errors.argument("stack_module_state", "models", "a list of modules is needed, got none")
    end
    for i, model in ipairs(models) do
      if not require("moth.class").isinstance(model, require "moth.nn.module") then
        errors.refuse("stack_module_state", "models", "modules are needed", model, "E_TYPE")
      elseif getmetatable(model) ~= getmetatable(models[1])
             or model.training ~= models[1].training then
        errors.argument("stack_module_state", "models", ("number %d is of another class, or mode, "
          .. "than the first"):format(i), "E_STATE")
      end
    end
    return stacked(models, "named_parameters"), stacked(models, "named_buffers")
  end,
}

return vmap
