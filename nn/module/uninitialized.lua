--- uninitialized.lua -- nn.UninitializedParameter and nn.UninitializedBuffer: tensors of a module
-- whose shape is determined later. The lazy layers use them.
--
-- The core raises for any use of their shape or values; parameter.waiting has the owner's name for
-- the message. They are leaves: an optimizer may hold them, and skips them while they have no
-- gradient.

local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local parameter = require "moth.nn.module.parameter"

local uninitialized = {}

local waiting = parameter.waiting

local function moth() return require "moth" end

errors.add_explainer(function(x)
  return waiting[x] or nil
end)

--- Creates an uninitialized tensor.
-- @param kind   "parameter", "buffer" or "transient"
-- @param fname  the function's name in errors
function uninitialized.new(kind, requires_grad, device, dtype, fname)
  local x = moth().empty({0}, {dtype = dtype, device = device})
  if requires_grad then
    lib.check(lib.C.moth_requires_grad(lib.ctx, x, 1), fname or "uninitialized", x)
  end
  lib.check(lib.C.moth_shapeless(lib.ctx, x), "uninitialized")
  waiting[x] = false
  return (parameter.mark(x, kind))
end

--- Moves the content of `data` to x; x stays the same Lua object.
function uninitialized.become(x, data, fname)
  lib.check(lib.C.moth_become(lib.ctx, x, data), fname, x, data)
  waiting[x] = nil
end

--- Converts an uninitialized tensor to another device or dtype.
-- @param make  function(tensor) -> the converted tensor
function uninitialized.convert(x, make)
  local old = moth().empty({0}, {dtype = x.dtype, device = x.device})
  local owner, new = waiting[x], make(old)
  uninitialized.become(x, new, "to")
  lib.check(lib.C.moth_shapeless(lib.ctx, x), "to")
  waiting[x] = owner
end

--- Returns an uninitialized tensor like x that does not belong to a module.
function uninitialized.like(x)
  return (uninitialized.new(parameter.kind(x), x.requires_grad, x.device, x.dtype))
end

local parse_materialize = define.signature("materialize", {
  {"tensor", "input", "an nn.UninitializedParameter or UninitializedBuffer"},
  {"shape", "shape", "its sizes"},
  {"device", "device", "its device; default: unchanged", optional = true},
  {"dtype", "dtype", "its element type; default: unchanged", optional = true},
})

--- x:materialize(shape): x becomes an ordinary Parameter or buffer of that shape. Its values are
-- undefined; initialize them, for example with nn.init. Optimizers and modules that hold x keep it.
function uninitialized.materialize(...)
  local x, shape, device, dtype = parse_materialize(...)
  if waiting[x] == nil then
    errors.raise(("materialize: an uninitialized tensor is needed, got %s"):format(
      errors.describe(x)), "E_STATE")
  end
  if lib.capture then require("moth.capture.recording").void() end
  uninitialized.become(x, moth().empty(shape, {device = device or x.device,
    dtype = dtype or x.dtype}), "materialize")
end

local function kind_of_tensor(name, kind, rows)
  local parse = define.signature(name, rows)
  local class = setmetatable({signature = parse}, {
    __call = function(_, ...)
      local requires_grad, device, dtype, persistent = parse(...)
      return (uninitialized.new(persistent == false and "transient" or kind, requires_grad, device,
        dtype, name))
    end,
    __tostring = function() return "class " .. name end,
  })
  parameter.uninitialized[class] = kind
  uninitialized[name] = class
end

local DEVICE = {"device", "device", "its device", optional = true}
local DTYPE = {"dtype", "dtype", "its element type; default: the default dtype", optional = true}

--- A Parameter whose shape is not known yet: `nn.UninitializedParameter(requires_grad = true,
-- device, dtype)`. Uses of its shape or values raise until `p:materialize(shape)`.
kind_of_tensor("UninitializedParameter", "parameter", {
  {"bool", "requires_grad", "does it require a gradient?", default = true}, DEVICE, DTYPE,
})

--- A buffer whose shape is not known yet: `nn.UninitializedBuffer(requires_grad = false, device,
-- dtype, persistent = true)`; see nn.UninitializedParameter.
kind_of_tensor("UninitializedBuffer", "buffer", {
  {"bool", "requires_grad", "does it require a gradient?", default = false}, DEVICE, DTYPE,
  {"bool", "persistent", "is it part of the state_dict?", default = true},
})

return uninitialized
