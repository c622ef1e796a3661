--- fields.lua -- what help says of fields, which no function stands for: x.grad, ctx.saved_tensors.

local fields = {}

local list = { -- by what such objects are called in examples
  x = {
    shape = "the sizes, a moth.Size: x.shape[1], {unpack(x.shape)}; x:size(1) is one of them",
    ndim = "the number of dimensions, as x:dim()",
    dtype = "the element type, such as moth.float32; x:to(dtype) gives another",
    device = "where the elements live; x:to(device) gives a copy elsewhere",
    is_cuda = "whether it lies on a GPU",
    is_sparse = "whether it holds some rows alone, as gradients by nn.Embedding's `sparse` do",
    layout = "moth.strided, or moth.sparse_coo if it is sparse",
    itemsize = "bytes of one element",
    nbytes = "bytes of all elements",
    requires_grad = "whether ops on it are recorded for gradients; a leaf's may be set",
    is_leaf = "whether no recorded op made it: backward adds to the .grad of leaves",
    retains_grad = "whether x:retain_grad() asked for the .grad of what is no leaf",
    grad = "what backward passes have added up for it, or nil; x.grad = nil clears it",
    grad_fn = "the recorded op that made it, or nil for a leaf",
    data = "the same elements without history, with a version of their own; x.data = v gives x "
      .. "another\nstorage of the same shape, dtype and device",
    T = "a matrix transposed: a view",
    mT = "the last two dimensions transposed: a view",
    _version = "how often the elements were written in place",
  },
  ctx = {
    saved_tensors = "in backward, the list of what forward gave to ctx:save_for_backward(...)",
    needs_input_grad = "a list of booleans, one for each argument of forward: whether its "
      .. "gradient is\nwanted; in backward, by this pass",
  },
  net = {
    training = "whether the module is in training mode; net:train() and net:eval() set it, for "
      .. "those below too",
  },
  optimizer = {
    param_groups = "a list of groups, each a table of `params` and the options:\n"
      .. "optimizer.param_groups[1].lr = 0.01",
  },
}

--- The fields of that name: a list of {path = "x.grad", text =}, that of the owner named before the
-- dot first.
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
  return { names = names, docs = list[owner] }
end

--- All names of fields, for guesses.
function fields.names()
  local names = {}
  for _, known in pairs(list) do
    for name in pairs(known) do names[#names + 1] = name end
  end
  return names
end

return fields
