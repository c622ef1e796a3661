--- vmap.lua -- moth.func.vmap: maps a function of single samples over a batch; and
-- stack_module_state, several modules' parameters as one batch of them.
--
--     local each = moth.func.vmap(moth.func.grad(loss), {moth.none, 1, 1})
--     local grads = each(params, inputs, targets)     -- by name, a gradient for each sample
--
-- The function runs for the first sample while the core logs its calls (batch/log.lua). Then each
-- call runs once for the whole batch (batch/replay.lua). If the log does not describe the function
-- fully, for example because it reads values of a sample, the function is called for each sample
-- and the results are stacked.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local C, ctx = lib.C, lib.ctx
local plain, istensor, none = lib.is_plain, lib.istensor, lib.none
local ops = bind.ops

local vmap = {}

local function refuse(argument, text, code) errors.argument("vmap", argument, text, code) end

-- ---- arguments ----

-- f(x, dim) for each tensor in a value, in tables of the same form. dim is a number for all
-- tensors, or a table of the same form. Other values and tensors without a dim stay.
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

-- The number of samples.
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
    refuse("in_dims", "the batch is empty, so the results of func are unknown", "E_SHAPE")
  end
  return size
end

-- in_dims or out_dims for each of n values: a list has one for each value; another value is for
-- all.
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

-- f(x, dim) for the mapped tensors, for each of the arguments.
local function mapped(args, dims, f)
  local out = {n = args.n}
  for k = 1, args.n do out[k] = over(args[k], dims[k], f) end
  return out
end

local function sample(args, dims, i)
  return mapped(args, dims, function(x, dim) return (x:select(dim, i)) end)
end

-- ---- results ----

-- f(values, dim) for the tensors at one place in the results of all samples; `list` has one for
-- each sample. If dim is none, the first sample's tensor.
local function joined(list, dim, f)
  local head = list[1]
  if dim == none then return head end
  if istensor(head) then return f(list, dim) end
  if not plain(head) then
    refuse("func", "must return tensors, or tables of them; it returned " .. errors.describe(head),
      "E_TYPE")
  end
  local out = {}
  for key in pairs(head) do
    local column = {}
    for i, one in ipairs(list) do column[i] = one[key] end
    local at = dim
    if plain(dim) then at = dim[key] end
    out[key] = joined(column, at, f)
  end
  return out
end

local function stacked_along(list, dim) return ops.stack(list, dim) end

-- The results of all samples (packed lists), combined to one value for each result.
local function combined(all, out_dims, f)
  local count = all[1].n
  local places, results = each(out_dims, count, "out_dims"), {n = count}
  for k = 1, count do
    local column = {}
    for i, made in ipairs(all) do column[i] = made[k] end
    results[k] = joined(column, places[k], f)
  end
  return results
end

-- ---- random numbers ----

-- Returns a function that returns true if the default generator has been used since.
local function draws_since()
  local generator, words = lib.Handle(), lib.slots(4)
  lib.check(C.moth_generator(ctx, generator), "vmap")
  generator = lib.adopt(generator, 0)
  lib.check(C.moth_read(ctx, generator, 0, 2, words), "vmap")
  return function()
    lib.check(C.moth_read(ctx, generator, 0, 2, words + 2), "vmap")
    return words[0].integer ~= words[2].integer or words[1].integer ~= words[3].integer
  end
end

local function refuse_draws(what)
  refuse("randomness", what .. " draws random numbers; say 'different' or 'same', or draw outside "
    .. "of func", "E_STATE")
end

-- ---- one call for each sample ----

local function loop(run, all)
  local moth = require "moth"
  local drawn = run.randomness == "error" and not lib.capture and draws_since()
  for i = #all + 1, run.size do
    local one = sample(run.args, run.dims, i)
    if run.state then moth.set_rng_state(run.state) end
    all[i] = lib.pack(run.func(unpack(one, 1, one.n)))
    if drawn and drawn() then refuse_draws "func" end
  end
  return combined(all, run.out_dims, stacked_along)
end

-- ---- one replay for the batch ----

-- The tensors among the results `made`, and a function that replaces them by f(number of the
-- tensor, dim).
local function outputs_of(made, out_dims)
  local list = {}
  combined({made}, out_dims, function(column)
    list[#list + 1] = column[1]
    return column[1]
  end)
  local function put(values)
    local k = 0
    return combined({made}, out_dims, function(_, dim)
      k = k + 1
      return values(k, dim)
    end)
  end
  return list, put
end

-- Raises if a random op ran, in mode "error".
local function check_draws(run, entries, draws)
  if run.randomness ~= "error" then return end
  for _, entry in ipairs(entries) do
    local meta = entry.meta
    if meta and meta.random
       and (draws or require("moth.func.batch.rules").has_generator(entry, meta)) then
      refuse_draws(("'%s'"):format(meta.name))
    end
  end
end

-- The results for the whole batch from the calls of the first sample; nil if the log cannot be
-- replayed.
local function replayed(run, entries, made, first, drawn)
  local draws = drawn()
  if not entries then return nil end
  check_draws(run, entries, draws)
  local outputs, put = outputs_of(made, run.out_dims)
  local inputs, values = {}, {}
  for k, pair in ipairs(run.rows) do
    inputs[k] = pair[1]
    values[k] = ops.movedim(pair[2], pair[3], 1)
  end
  local got = require("moth.func.batch.replay").run {
    size = run.size, entries = entries, inputs = inputs, values = values, outputs = outputs,
    first = first, randomness = run.randomness, draws = draws}
  if not got then return nil end
  return (put(function(k, dim)
    local y = got[k] or ops.clone(ops.expand(outputs[k], {run.size, unpack(outputs[k].shape)}),
      {memory_format = "contiguous_format"})
    if dim == 1 then return y end
    return (ops.movedim(y, 1, dim))
  end))
end

-- The results, or nil; and the results of the first sample, if it ran.
local function batched(run)
  run.rows = {}
  local one = mapped(run.args, run.dims, function(x, dim)
    local row = x:select(dim, 1)
    run.rows[#run.rows + 1] = {row, x, dim}
    return row
  end)
  local first = tonumber(lib.inspect(ops.empty {}).storage)
  local drawn, made = draws_since(), nil
  local results = require("moth.func.batch.log").with(false, function()
    made = lib.pack(run.func(unpack(one, 1, one.n)))
    return made
  end, function(entries) return replayed(run, entries, made, first, drawn) or false end)
  return results, made
end

local function whole(run)
  if run.size == 1 or lib.coroutine() or lib.capture then return loop(run, {}) end
  local results, made = batched(run)
  if results then return results end
  if made and lib.observer then lib.observer.lost() end -- the outer log lacks these ops
  return loop(run, {made})
end

-- Computes the batch in chunks.
local function chunks(run, args, chunk_size)
  local all, size = {}, run.size
  for from = 1, size, chunk_size do
    run.size = math.min(chunk_size, size - from + 1)
    run.args = mapped(args, run.dims, function(x, dim) return (x:narrow(dim, from, run.size)) end)
    if run.state then require("moth").set_rng_state(run.state) end
    all[#all + 1] = whole(run)
  end
  return combined(all, run.out_dims, function(list, dim) return (ops.cat(list, dim)) end)
end

vmap.vmap = define {
  name = "vmap",
  doc = "A function that applies func to each sample of a batch, and stacks the "
    .. "results, as torch.vmap. func is called once, for the first sample, and its calls "
    .. "run again for the whole batch. If they depend on values that func reads (x:item()), or "
    .. "on hooks and Functions written in Lua, func is called for each sample; also in a "
    .. "coroutine and inside moth.capture.",
  examples = "moth.dot\nmoth.mul, {in_dims = {1, moth.none}, out_dims = 2, randomness = 'same', "
    .. "chunk_size = 2}",
  outputs = "mapped",
  args = {
    {"function", "func", "function of single samples"},
    {"any", "in_dims", "the dimension of each argument to map over: a number, none, or for "
      .. "a table of tensors a table; a list of them for several arguments", default = 1},
    {"any", "out_dims", "that dimension in the results, in the same form; none: the first "
      .. "sample's result alone", default = 1},
    {"enum", "randomness", "may func draw random numbers, and do they differ between samples?",
      choices = {"error", "different", "same"}},
    {"int", "chunk_size", "number of samples computed at a time; default: all",
      optional = true},
  },
  run = function(func, in_dims, out_dims, randomness, chunk_size)
    if chunk_size and chunk_size < 1 then
      refuse("chunk_size", ("a positive number is needed, got %d"):format(chunk_size))
    end
    return function(...)
      local args = lib.pack(...)
      local run = {func = func, args = args, out_dims = out_dims, randomness = randomness,
                   dims = each(in_dims, args.n, "in_dims")}
      run.size = size_of(args, run.dims)
      run.state = randomness == "same" and require("moth").get_rng_state()
      local results
      if chunk_size and chunk_size < run.size then results = chunks(run, args, chunk_size)
      else results = whole(run) end
      return unpack(results, 1, results.n)
    end
  end,
}

-- By name the tensors that list_of returns for each model, stacked, as leaves.
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
  doc = "The stacked parameters and buffers, by name, of modules of one class, for vmap with "
    .. "functional_call. They are new tensors, and leaves.",
  examples = "{moth.nn.Linear(2, 3), moth.nn.Linear(2, 3)}",
  outputs = "params, buffers",
  args = {{"modules", "models", "a list of modules"}},
  run = function(models)
    if #models == 0 then
      errors.argument("stack_module_state", "models", "a list of modules is needed, got none")
    end
    for i, model in ipairs(models) do
      if not require("moth.base.class").isinstance(model, require "moth.nn.module") then
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
