--- batched.lua -- moth.autograd.grad{is_grads_batched = true}: a batch of gradients of the outputs
-- gives a batch of gradients of the inputs.

local errors = require "moth.error"
local lib = require "moth.lib"

local ops = require("moth.bind").ops

local function listed(value) return lib.istensor(value) and { value } or value end

-- The number of gradients in the batch. Raises where there is none, or they differ.
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

-- The gradients of one input in a row; nil where there is none.
local function stacked(list, size, input)
  if size == 0 then return input:new_zeros({ 0, unpack(input.shape) }) end
  local found
  for k = 1, size do found = found or list[k] end
  if type(found) == "nil" then return nil end
  for k = 1, size do
    if type(list[k]) == "nil" then list[k] = ops.zeros_like(found) end
  end
  return (ops.stack(list, 1))
end

--- The gradients by each input, as several values.
-- @param grad     moth.autograd.grad
-- @param grads    for each output a tensor with the batch as its first dimension
-- @param options  the other arguments of grad by name
return function(grad, outputs, inputs, grads, options)
  outputs, inputs, grads = listed(outputs), listed(inputs), listed(grads)
  local size, results = size_of(grads, outputs), {}
  local retain = options.retain_graph
  for i = 1, #inputs do results[i] = {} end
  for k = 1, size do
    local row = {}
    for i = 1, #outputs do row[i] = grads[i]:select(1, k) end
    options.grad_outputs = row
    if k < size then options.retain_graph = true else options.retain_graph = retain end
    local got = { grad(outputs, inputs, options) }
    for i = 1, #inputs do results[i][k] = got[i] end
  end
  for i = 1, #inputs do results[i] = stacked(results[i], size, inputs[i]) end
  return unpack(results, 1, #inputs)
end
