--- sparse.lua -- sparse tensors: some rows of a tensor that is 0 elsewhere. The gradients of
-- embeddings with `sparse = true` are sparse tensors.
--
-- A sparse tensor consists of two ordinary tensors: the positions of its rows, and their values.
-- Its operations use these tensors. Ops raise for sparse tensors, except the ops defined below
-- under the op's name (bind.lua checks this table before it raises).

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local C, ctx, Handle, ops = lib.C, lib.ctx, lib.Handle, bind.ops

lib.declare "sparse"

local istensor = lib.istensor

local sparse = {}

--- Returns true if a value is a sparse tensor.
function sparse.is(x)
  return istensor(x) and bit.band(lib.inspect(x).flags, C.MOTH_IS_SPARSE) ~= 0
end

-- ---- calls of the core ----

-- The status of `call` for x. Calls again after memory was freed.
local function call_core(fname, x, call)
  local status = call()
  if lib.recover(status) then status = call() end
  lib.check(status, fname, x)
  return status
end

--- The rows, counted from 0, and the values of a sparse tensor; both share its memory.
function sparse.parts(x, fname)
  local rows, values = Handle(), Handle()
  call_core(fname or "sparse", x, function() return C.moth_sparse_parts(ctx, x, rows, values) end)
  values = lib.adopt(values, 0)
  return lib.adopt(rows, 0), values
end

local function make(rows, values, size, coalesced)
  local h = Handle()
  local status = call_core("sparse_coo_tensor", values, function()
    return C.moth_sparse_make(ctx, rows, values, size, coalesced and 1 or 0, h)
  end)
  return lib.adopt(h, status)
end

local function coalesced(x, fname)
  if not istensor(x) then errors.no_self(fname, "x") end
  local flags = lib.inspect(x, fname).flags
  if bit.band(flags, C.MOTH_IS_SPARSE) == 0 then
    errors.raise(fname .. ": a sparse tensor is needed, got " .. errors.describe(x),
      "E_UNSUPPORTED")
  end
  return bit.band(flags, C.MOTH_IS_COALESCED) ~= 0
end

-- ---- methods ----

--- x with sorted, unique rows: the values of repeated rows are added. Returns x itself if it is
-- coalesced.
function sparse.coalesce(x)
  if coalesced(x, "coalesce") then return x end
  local h = Handle()
  local status = call_core("coalesce", x, function() return C.moth_sparse_coalesce(ctx, x, h) end)
  return lib.adopt(h, status)
end

--- Returns true if the rows are sorted and each is stored once.
function sparse.is_coalesced(x) return coalesced(x, "is_coalesced") end

--- The positions of the rows, (1, n), in storage order.
function sparse._indices(x)
  coalesced(x, "_indices")
  return (ops.unsqueeze(ops.from_index((sparse.parts(x))), 1))
end

--- The values of the rows, (n, ...), in storage order; x shares them.
function sparse._values(x)
  coalesced(x, "_values")
  return (select(2, sparse.parts(x)))
end

local function once(x, name)
  if coalesced(x, name) then return end
  errors.raise(("%s: rows may come twice in this tensor; call :coalesce() first, or read _%s()")
    :format(name, name), "E_STATE")
end

--- The positions of the rows of a coalesced tensor, (1, n).
function sparse.indices(x)
  once(x, "indices")
  return (sparse._indices(x))
end

--- The values of the rows of a coalesced tensor, (n, ...); x shares them.
function sparse.values(x)
  once(x, "values")
  return (sparse._values(x))
end

--- The number of stored rows.
function sparse._nnz(x)
  coalesced(x, "_nnz")
  local rows = sparse.parts(x)
  return rows:size(1)
end

--- The dense tensor; x itself if it is dense.
function sparse.to_dense(x)
  if not istensor(x) then errors.no_self("to_dense", "x") end
  if not sparse.is(x) then return x end
  local rows, values = sparse.parts(x)
  local y = require("moth").zeros(x.shape, {dtype = x.dtype, device = x.device})
  return (y:index_add_(1, ops.from_index(rows), values))
end

-- ---- ops ----

local of = {}

-- Returns true for a number or a 0-d tensor.
local function is_factor(v)
  return type(v) == "number" or istensor(v) and not sparse.is(v) and v:dim() == 0
end

local function with_values(x, f, ...)
  local rows, values = sparse.parts(x)
  return make(rows, f(values, ...), x:size(1), coalesced(x, "sparse"))
end

for name in ("clone neg cast"):gmatch "%S+" do
  of[name] = function(x, ...) return (with_values(x, ops[name], ...)) end
end

for name in ("mul div"):gmatch "%S+" do
  of[name] = function(x, other, ...)
    if not sparse.is(x) then x, other = other, name == "mul" and x or nil end
    return is_factor(other) and with_values(x, ops[name], other, ...) or nil
  end
  of[name .. "_"] = function(x, other, ...)
    if not is_factor(other) then return nil end
    ops[name .. "_"](sparse._values(x), other, ...)
    return x
  end
end

function of.zero_(x)
  ops.zero_(sparse._values(x))
  return x
end

function of.zeros_like(x)
  local rows, values = sparse.parts(x)
  return (make(rows:narrow(1, 1, 0), values:narrow(1, 1, 0), x:size(1), true))
end

function of.to_device(x, ...)
  local rows, values = sparse.parts(x)
  return (make(ops.to_device(rows, ...), ops.to_device(values, ...), x:size(1),
    coalesced(x, "to")))
end

-- Makes the op that adds into a dense tensor, or into a new tensor.
local function add_to(name)
  return function(x, other, alpha)
    if sparse.is(x) or not sparse.is(other) or x.shape ~= other.shape then return nil end
    local rows, values = sparse.parts(other)
    return (ops[name](x, 1, ops.from_index(rows), values, alpha))
  end
end

of.add_ = add_to "index_add_"
local add_dense = add_to "index_add"

function of.add(x, other, alpha)
  if not istensor(x) or not istensor(other) or x.shape ~= other.shape then return nil end
  if not sparse.is(x) then return (add_dense(x, other, alpha)) end
  if not sparse.is(other) then return (add_dense(other * (alpha or 1), x, 1)) end
  local rows, values = sparse.parts(x)
  local more, added = sparse.parts(other)
  return (make(ops.cat {rows, more}, ops.cat {values, added * (alpha or 1)}, x:size(1)))
end

for name in ("sub sub_"):gmatch "%S+" do
  local add = of[name:gsub("sub", "add")]
  of[name] = function(x, other, alpha) return (add(x, other, -(alpha or 1))) end
end

function of.sum(x, dim, ...)
  return dim == nil and ops.sum(sparse._values(x), nil, ...) or nil
end

function of.norm(x, p, dim, ...)
  return dim == nil and ops.norm_p(sparse._values(sparse.coalesce(x)), p, nil, ...) or nil
end

--- The result of an op that this file defines for its sparse arguments; else nil.
-- @param sig  the op's signature; `out` is not supported here
function sparse.instead(sig, ...)
  local run, out = of[sig.name], sig.index and sig.index.out
  if not run or (out and select(out, ...) ~= nil) then return nil end
  if not (sparse.is((...)) or sparse.is((select(2, ...)))) then return nil end
  return (run(...))
end

-- ---- creation and printing ----

local function refuse(argument, text, code)
  errors.argument("sparse_coo_tensor", argument, text, code)
end

-- The number of rows of the dense tensor, after a check of the positions. While a step is captured
-- the positions cannot be read. The replay checks them; on a GPU the ops that use them check them.
local function size_of(rows, values, size)
  local last = 0
  if rows:size(1) > 0 and not lib.capture then
    local first = rows:min():item()
    last = rows:max():item()
    if first < 1 then refuse("indices", "positions count from 1, got " .. first, "E_INDEX") end
  end
  if size == nil and lib.capture then
    refuse("size", "sizes are needed in a captured step: the rows are not known before a replay",
      "E_UNSUPPORTED")
  elseif size == nil then
    return last
  end
  if type(size) == "number" then size = {size} end
  local fits = #size == values:dim()
  for d = 2, #size do fits = fits and size[d] == values:size(d) end
  if not fits then
    refuse("size", ("(n, ...) as the values %s is needed, got %s"):format(errors.describe(values),
      tostring(require("moth").Size(size))), "E_SHAPE")
  elseif last > size[1] then
    refuse("indices", ("row %d is out of range for %d"):format(last, size[1]), "E_INDEX")
  end
  if lib.capture then
    require("moth.capture.tensor_check")(rows:lt(1):logical_or(rows:gt(size[1])), function()
      refuse("indices", ("rows from 1 to %d are needed"):format(size[1]), "E_INDEX")
    end)
  end
  return size[1]
end

--- moth.sparse_coo_tensor(indices, values, size): a tensor that is 0 except for the given rows.
sparse.sparse_coo_tensor = define {
  name = "sparse_coo_tensor",
  doc = "A sparse tensor: rows `indices[1]` are `values`, repeated rows are added up, others are "
    .. "0. One dimension is sparse, the first; all others are dense.",
  examples = "moth.tensor({{3, 1}}, {dtype = moth.int64}), moth.randn(2, 4), {5, 4}\n"
    .. "{{1, 2, 4}}, moth.randn(3), {size = {6}, dtype = moth.float64, device = 'cpu', "
    .. "is_coalesced = true}",
  args = {
    {"any", "indices", "positions of the rows, (1, n)"},
    {"tensor", "values", "those rows, (n, ...)"},
    {"ints", "size", "sizes of the dense tensor; inferred when absent", optional = true},
    {"dtype", "dtype", "element type; default: the dtype of the values", optional = true},
    {"device", "device", "device; default: the device of the values", optional = true},
    {"bool", "is_coalesced", "are the rows sorted and unique?", default = false},
  },
  run = function(indices, values, size, dtype, device, is_coalesced)
    if not istensor(indices) then
      indices = require("moth.tensor.create").integers(indices, "sparse_coo_tensor", "indices")
    end
    if values:dim() == 0 then
      refuse("values", "(n, ...) is needed, got " .. errors.describe(values), "E_SHAPE")
    elseif indices:dim() ~= 2 or indices:size(2) ~= values:size(1) then
      refuse("indices", ("(1, %d) is needed for the values %s, got %s"):format(values:size(1),
        errors.describe(values), errors.describe(indices)), "E_SHAPE")
    elseif indices.dtype.is_floating_point or indices.dtype.name == "bool" then
      refuse("indices", "integers are needed as positions, got " .. errors.describe(indices)
        .. "; convert with :long()", "E_DTYPE")
    elseif indices:size(1) ~= 1 then
      refuse("indices", ("only the first dimension can be sparse, (1, n) is needed, got %s")
        :format(errors.describe(indices)), "E_UNSUPPORTED")
    end
    if dtype then values = values:to(dtype) end
    if device then values = values:to(device) end
    local rows = indices[1]:to(values.device)
    local n = size_of(rows, values, size)
    if lib.capture and not rows.is_cuda then rows = rows:clamp(1, math.max(n, 1)) end
    return make(ops.to_index(rows), values, n, is_coalesced)
  end,
}

--- The text of a sparse tensor, above its footer.
function sparse.text(x)
  return ("indices = %s\nvalues = %s\n"):format(tostring(sparse._indices(x)),
    tostring(sparse._values(x)))
end

return sparse
