--- valued.lua -- masked_fill, index_fill and fill_ with a 0-d tensor as the value, which gets a
-- gradient.

local bind = require "moth.binding.bind"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local valued = {}

-- Returns the value as an element of x's dtype.
local function element(sig, x, v)
  if lib.inspect(v, sig.name, "value").ndim ~= 0 then
    errors.refuse(sig.name, "value", "a number or a 0-d tensor is needed", v, "E_SHAPE")
  end
  if not lib.istensor(x) then return v end -- the op raises
  local to, from = x.dtype, v.dtype
  if from.is_floating_point and not to.is_floating_point then
    errors.argument(sig.name, "value", ("%s cannot be written into %s"):format(errors.describe(v),
      errors.describe(x)), "E_DTYPE")
  end
  return v:to(x.device, {dtype = to})
end

local bound = {}
local function as(op, sig, args)
  local key = op .. " " .. sig.name
  bound[key] = bound[key] or bind.as(op, sig.name, args)
  return bound[key]
end

-- For an in-place form: writes y to x.
local function done(sig, x, y)
  if sig.op_name:sub(-1) ~= "_" then return y end
  if not (y.shape == x.shape) then
    errors.argument(sig.name, "mask", ("the result %s does not fit %s"):format(tostring(y.shape),
      errors.describe(x)), "E_SHAPE")
  end
  return (x:copy_(y))
end

function valued.masked_fill(sig, x, mask, v)
  local where = as("where", sig, {condition = "mask", input = "value", other = "input"})
  return (done(sig, x, where(mask, element(sig, x, v), x)))
end

function valued.index_fill(sig, x, dim, index, v)
  v = element(sig, x, v)
  if lib.is_plain(index) then
    index = require("moth.tensor.create").integers(index, sig.name, "index")
  end
  local copy = as("index_copy", sig, {source = "value"})
  if not lib.istensor(x) or x:dim() == 0 then
    return (done(sig, x, copy(x, dim, index, v:reshape(1))))
  end
  local shape, d = {unpack(x.shape)}, errors.dim(sig.name, "dim", dim, x:dim())
  shape[d] = index:numel()
  return (done(sig, x, copy(x, dim, index, v:expand(shape))))
end

valued.masked_fill_, valued.index_fill_ = valued.masked_fill, valued.index_fill

function valued.fill_(sig, x, v)
  return (as("copy_", sig, {source = "value"})(x, element(sig, x, v)))
end

return valued
