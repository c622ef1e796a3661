--- batched.lua -- moth.autograd.grad{is_grads_batched = true}: computes a batch of gradients of the
-- inputs from a batch of gradients of the outputs.
--
-- A backward pass runs for the first gradient while the core logs its ops; then each op runs once
-- for the whole batch (batch/replay.lua). With hooks, Functions written in Lua, or ops that the
-- core does not log, one pass runs for each gradient.

local autograd = require "moth.autograd"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local ops = require("moth.binding.bind").ops

local MIN_ROWS = 16 -- rows; below it separate passes are faster than a list of ops

local function listed(value) return lib.istensor(value) and {value} or value end

-- The number of gradients in the batch. Raises if there is no batch dimension, or if sizes differ.
local function size_of(grads, outputs)
  local size
  for i = 1, #outputs do
    local g = type(grads) == "table" and grads[i]
    if not lib.istensor(g) or g:dim() ~= outputs[i]:dim() + 1 then
      errors.refuse("grad", "grad_outputs", ("a batch of gradients of %s is needed, with one "
        .. "dimension more"):format(errors.describe(outputs[i])), g, "E_SHAPE")
    end
    size = size or g:size(1)
    if g:size(1) ~= size then
      errors.refuse("grad", "grad_outputs", ("batches of one size, %d, are needed"):format(size), g,
        "E_SHAPE")
    end
  end
  return size
end

-- The gradients of one input, stacked; nil if there is none.
local function stacked(list, size, input)
  if size == 0 then return input:new_zeros({0, unpack(input.shape)}) end
  local found
  for k = 1, size do found = found or list[k] end
  if type(found) == "nil" then return nil end
  for k = 1, size do
    if type(list[k]) == "nil" then list[k] = ops.zeros_like(found) end
  end
  return ops.stack(list, 1)
end

-- Row k of each of the gradients.
local function row_of(grads, k)
  local row = {}
  for i = 1, #grads do row[i] = grads[i]:select(1, k) end
  return row
end

-- The gradients for the rows from #first + 1 on, one pass for each. `first`: the gradients of
-- earlier rows.
local function loop(run, first)
  local options, results, from = run.options, {}, first and 2 or 1
  local retain = options.retain_graph
  for i = 1, #run.inputs do results[i] = {first and first[i]} end
  for k = from, run.size do
    options.grad_outputs = row_of(run.grads, k)
    if k < run.size then options.retain_graph = true else options.retain_graph = retain end
    local got = {run.grad(run.outputs, run.inputs, options)}
    for i = 1, #run.inputs do results[i][k] = got[i] end
  end
  for i = 1, #run.inputs do results[i] = stacked(results[i], run.size, run.inputs[i]) end
  return results
end

-- The gradients of all rows, by the ops of the first row's pass; nil if it cannot be replayed.
local function replayed(run, entries, row, first, id)
  local outputs, places, results = {}, {}, {}
  for i = 1, #run.inputs do
    if first[i] ~= nil then
      outputs[#outputs + 1] = first[i]
      places[#outputs] = i
    end
  end
  local mode = run.options.create_graph and autograd.enable_grad or autograd.no_grad
  local got = mode(require("moth.func.batch.replay").run, {size = run.size, entries = entries,
    inputs = row, values = run.grads, outputs = outputs, first = id, pass = true})
  if not got then return nil end
  for k, y in ipairs(outputs) do
    results[places[k]] = got[k] or ops.clone(ops.expand(y:detach(), {run.size, unpack(y.shape)}),
      {memory_format = "contiguous_format"})
  end
  return results
end

-- The gradients of the first row; and the gradients of all rows, if one pass could compute them.
local function at_once(run)
  local row, first = row_of(run.grads, 1), nil
  local id = tonumber(lib.inspect(ops.empty {}).storage)
  local options = {}
  for name, value in pairs(run.options) do options[name] = value end
  -- A logged pass must not use fused code, which is not in the list of ops.
  options.grad_outputs, options.retain_graph, options.create_graph = row, true, true
  local results = require("moth.func.batch.log").with(true, function()
    first = {run.grad(run.outputs, run.inputs, options)}
  end, function(entries) return entries and replayed(run, entries, row, first, id) or false end)
  for i = 1, first and not run.options.create_graph and #run.inputs or 0 do
    first[i] = first[i] and first[i]:detach()
  end
  return results or nil, first
end

--- The gradients by each input, as several values.
-- @param grad     moth.autograd.grad
-- @param grads    for each output a tensor with the batch as its first dimension
-- @param options  the other arguments of grad by name
return function(grad, outputs, inputs, grads, options)
  outputs, inputs, grads = listed(outputs), listed(inputs), listed(grads)
  local run = {grad = grad, outputs = outputs, inputs = inputs, grads = grads, options = options,
               size = size_of(grads, outputs)}
  local results, first
  if run.size >= MIN_ROWS and not (lib.coroutine() or lib.capture) then
    results, first = at_once(run)
  end
  results = results or loop(run, first)
  return unpack(results, 1, #inputs)
end
