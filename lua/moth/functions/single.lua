--- single.lua -- 0-d tensors in ops that need dimensions: they are treated as tensors of one
-- element. Also ops without any positions.
--
-- The core refuses such a call by its shapes; bind.lua then calls `instead` for a result.

local attach = require("moth.autograd.attach").attach
local bind = require "moth.binding.bind"
local lib = require "moth.binding.lib"

local ops, istensor = bind.ops, lib.istensor

local single = {}

local function is_single(x) return istensor(x) and x:dim() == 0 end

-- Returns a 0-d tensor as a vector of one element; other tensors unchanged.
local function flat(x) return is_single(x) and x:reshape(1) or x end

-- Returns positions as a vector, from a tensor or a list.
local function positions(index)
  if lib.is_plain(index) then index = require("moth.tensor.create").integers(index, "index",
    "index") end
  return flat(index)
end

local function first_dim(dim) return dim == 1 or dim == -1 end

-- Runs the op on x as a vector, and returns a 0-d result; the in-place form writes to x.
local function again(name, x, ...)
  local y = ops[name](x:reshape(1), ...)
  return name:sub(-1) == "_" and x or y:reshape {}
end

local function index_select(_, x, dim, index)
  if not is_single(x) or not first_dim(dim) then return nil end
  index = positions(index)
  if index:numel() ~= 1 then return nil end
  return (again("index_select", x, dim, index))
end

-- index_add, index_copy: with a source of one element.
local function with_source(sig, x, dim, index, source, ...)
  if not is_single(x) or not first_dim(dim) or not istensor(source) or source:numel() ~= 1
    or source:dim() > 1 then
    return nil
  end
  return (again(sig.op_name, x, dim, positions(index), flat(source), ...))
end

local function index_fill(sig, x, dim, index, value)
  if not is_single(x) or not first_dim(dim) then return nil end
  return (again(sig.op_name, x, dim, positions(index), value))
end

local function gather(_, x, dim, index, ...)
  if not istensor(x) then return nil end
  index = lib.is_plain(index) and positions(index) or index
  if index:numel() == 0 then return (attach(ops.empty(index.shape, x.dtype, x.device), x)) end
  if not (is_single(x) or is_single(index)) or x:dim() > 1 or index:dim() > 1
    or not first_dim(dim) then
    return nil
  end
  return (ops.gather(flat(x), dim, flat(index), ...):reshape(index.shape))
end

local function scatter(sig, x, dim, index, src, ...)
  if not istensor(x) then return nil end
  index = lib.is_plain(index) and positions(index) or index
  local name = sig.op_name
  local inplace = name:sub(-1) == "_"
  if index:numel() == 0 then
    return inplace and x or attach(x:clone(), istensor(src) and src or nil)
  end
  if x:dim() > 1 or index:dim() > 1 or istensor(src) and src:dim() > 1 or not first_dim(dim) then
    return nil
  end
  if not is_single(x) and not is_single(index) and not is_single(src) then return nil end
  local y = ops[name](flat(x), dim, flat(index), flat(src), ...)
  return inplace and x or y:reshape(x.shape)
end

-- linear for a weight that is a vector: it returns one number for each row.
local function linear(_, x, weight, bias)
  if not istensor(x) or not istensor(weight) or weight:dim() ~= 1 or x:dim() == 0
    or x:size(-1) ~= weight:size(1) or istensor(bias) and bias:dim() ~= 0 then
    return nil
  end
  local y = x:matmul(weight)
  return istensor(bias) and y + bias or y
end

-- batch_norm of an empty tensor.
local function batch_norm(_, x)
  return istensor(x) and x:dim() == 1 and x:size(1) == 0 and x:clone() or nil
end

local ROWS = {index_select = index_select, gather = gather, linear = linear,
               batch_norm = batch_norm}
for name, row in pairs {index_add = with_source, index_copy = with_source,
                         index_fill = index_fill, scatter = scatter, scatter_add = scatter,
                         scatter_reduce = scatter} do
  ROWS[name], ROWS[name .. "_"] = row, row
end

--- Returns the result of an op for 0-d tensors that the core refuses; nil if there is none.
-- @param sig  the op's signature
-- @param ...  its arguments in position
function single.instead(sig, ...)
  local run, out = ROWS[sig.op_name], sig.index.out
  if not run then return nil end
  local target = out and select(out, ...)
  if not istensor(target) then return (run(sig, ...)) end
  local args = {...}
  local y = run(sig, unpack(args, 1, out - 1))
  return y and require("moth.binding.out").write(sig, target, y)
end

return single
