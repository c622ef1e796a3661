--- fields.lua -- help texts of fields, which are not functions: x.grad, ctx.saved_tensors.

local fields = {}

local list = { -- by the names that examples use for these objects
  x = {
    shape = "the sizes, a moth.Size: x.shape[1], {unpack(x.shape)}; x:size(1) is one of them",
    ndim = "the number of dimensions, as x:dim()",
    dtype = "the element type, such as moth.float32; x:to(dtype) returns a copy of another dtype",
    device = "where the elements are stored; x:to(device) returns a copy on another device",
    is_cuda = "true if the elements are on a GPU",
    is_sparse = "true if only some rows are stored: gradients of nn.Embedding{sparse = true}",
    layout = "moth.strided, or moth.sparse_coo if it is sparse",
    itemsize = "bytes of one element",
    nbytes = "bytes of all elements",
    requires_grad = "true if ops on it are recorded for gradients; a leaf's may be set",
    is_leaf = "true if it is not the result of a recorded op; backward adds to the .grad of leaves",
    retains_grad = "true if backward sets its .grad although it is not a leaf",
    grad = "the sum of the gradients of all backward passes, or nil; x.grad = nil clears it",
    grad_fn = "the recorded op that computed it, or nil for a leaf",
    data = "the same elements without history, with a separate version; x.data = v sets "
      .. "x to another\nstorage of the same shape, dtype and device",
    T = "a matrix transposed: a view",
    mT = "the last two dimensions transposed: a view",
    _version = "how often the elements were written in place",
  },
  ctx = {
    saved_tensors = "in backward, the list of the tensors that ctx:save_for_backward(...) saved",
    needs_input_grad = "a list of booleans, one for each argument of forward: whether its "
      .. "gradient is\nwanted; in backward, by this pass",
  },
  net = {
    training = "true in training mode; net:train() and net:eval() set it, for "
      .. "those below too",
  },
  optimizer = {
    param_groups = "a list of groups, each a table of `params` and the options:\n"
      .. "optimizer.param_groups[1].lr = 0.01",
  },
}

--- The fields with that name: a list of {path = "x.grad", text =}; the owner named before the dot
-- comes first.
function fields.find(name, before)
  local found = {}
  for owner, known in pairs(list) do
    if known[name] then
      local path = owner .. "." .. name
      local row = {path = path, text = path .. ": " .. known[name] .. "."}
      table.insert(found, owner == before and 1 or #found + 1, row)
    end
  end
  return found
end

--- The fields of an owner such as "x": `names`, sorted, and `docs` by name.
function fields.of(owner)
  local names = {}
  for name in pairs(list[owner]) do names[#names + 1] = name end
  table.sort(names)
  return {names = names, docs = list[owner]}
end

--- All names of fields, for the suggestions of errors.
function fields.names()
  local names = {}
  for _, known in pairs(list) do
    for name in pairs(known) do names[#names + 1] = name end
  end
  return names
end

return fields
