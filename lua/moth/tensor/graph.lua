--- graph.lua -- a tensor in the autograd graph: x.grad, x.requires_grad, x:backward(), x:detach().

local ffi = require "ffi"
local autograd = require "moth.autograd"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local look = require "moth.tensor.look"

local C, ctx, Handle = lib.C, lib.ctx, lib.Handle
local istensor, take = lib.istensor, autograd.take
local own, inspect = look.own, look.inspect
local band = bit.band

local IS_LEAF, IS_GRAD, IS_RETAIN = C.MOTH_IS_LEAF, C.MOTH_IS_GRAD, C.MOTH_IS_RETAIN

local methods, getters, setters = {}, {}, {}

function getters.requires_grad(x) return band(inspect(x, "requires_grad").flags, IS_GRAD) ~= 0 end
function getters.is_leaf(x) return band(inspect(x, "is_leaf").flags, IS_LEAF) ~= 0 end
function getters.retains_grad(x) return band(inspect(x, "retains_grad").flags, IS_RETAIN) ~= 0 end

--- The node that created a tensor (node.lua); nil for a leaf.
function getters.grad_fn(x)
  inspect(x, "grad_fn")
  if C.moth_node_name(ctx, x) == nil then return nil end
  return (require("moth.autograd.node").of(x))
end

-- Raises the core's error for an assignment `x.field = v`.
local function assigned(status, field, x)
  if status >= 0 then return end
  if C.moth_alive(ctx, x) == 0 then errors.status(status, field, nil, x) end
  errors.raise("x." .. field .. " cannot be assigned: " .. ffi.string(C.moth_error(ctx, 1)),
    ffi.string(C.moth_error_name(status)))
end

function getters.grad(x)
  local h = Handle()
  return take(h, C.moth_get_grad(ctx, x, h), "grad", x)
end

function setters.grad(x, value)
  if value == nil or value == lib.none then
    assigned(C.moth_set_grad(ctx, x, lib.NONE), "grad", x)
  elseif istensor(value) then
    assigned(C.moth_set_grad(ctx, x, value), "grad", x)
  else
    errors.raise("x.grad takes a tensor or nil, got " .. errors.describe(value), "E_TYPE")
  end
end

function getters.data(x)
  local h = Handle()
  return take(h, C.moth_get_data(ctx, x, h), "data", x)
end

function setters.data(x, value)
  if not istensor(value) then
    errors.raise("x.data takes a tensor, got " .. errors.describe(value), "E_TYPE")
  end
  assigned(C.moth_set_data(ctx, x, value), "data", x)
end

function setters.requires_grad(x, value)
  if type(value) ~= "boolean" then
    errors.raise("x.requires_grad takes a boolean, got " .. errors.describe(value), "E_TYPE")
  end
  assigned(C.moth_requires_grad(ctx, x, value and 1 or 0), "requires_grad", x)
end

methods.backward = autograd.tensor_backward

--- A tensor with the elements and the version counter of x, without its history.
function methods.detach(x)
  own(x, "detach")
  local h = Handle()
  return take(h, C.moth_detach(ctx, x, h), "detach", x)
end

--- Removes the history of x. @return x
function methods.detach_(x)
  own(x, "detach_")
  lib.check(C.moth_detach_(ctx, x), "detach_", x)
  return x
end

local parse_requires

--- Sets if gradients for x are recorded (default true). @return x
function methods.requires_grad_(x, on, ...)
  own(x, "requires_grad_")
  if on == nil then
    on = true
  elseif type(on) ~= "boolean" or select("#", ...) > 0 then
    parse_requires = parse_requires or require("moth.binding.define").signature("requires_grad_", {
      {"tensor", "input", "tensor"},
      {"bool", "requires_grad", "record gradients for it?", default = true}})
    on = select(2, parse_requires(x, on, ...))
  end
  lib.check(C.moth_requires_grad(ctx, x, on and 1 or 0), "requires_grad_", x)
  return x
end

--- Makes backward passes set x.grad although x is no leaf.
function methods.retain_grad(x)
  own(x, "retain_grad")
  lib.check(C.moth_retain_grad(ctx, x), "retain_grad", x)
end

--- Frees the tensor now. A later use of it raises.
function methods.free(x)
  own(x, "free")
  lib.check(C.moth_free(ctx, x), "free", x)
end

return {methods = methods, getters = getters, setters = setters}
