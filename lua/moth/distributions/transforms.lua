--- transforms.lua -- elementwise invertible functions for TransformedDistribution, and compositions
-- of transforms; vectors.lua has the transforms of vectors and matrices.

local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local constraints = require "moth.distributions.constraints"
local define = require "moth.binding.define"
local Distribution = require "moth.distributions.distribution"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local C, ctx = lib.C, lib.ctx
local ops, tools, real = bind.ops, Distribution.tools, constraints.real

local transforms = {}

--- The base of transforms: `t(x)` applies it, `t.inv(y)` inverts it, log_abs_det_jacobian(x, y) is
-- the log of the absolute Jacobian determinant; `t.domain` and `t.codomain` are the constraints of
-- x and y. Your subclass defines _call(x), _inverse(y), log_abs_det_jacobian(x, y) and, for vector
-- values, the field event_dim, or domain and codomain. sign() must be -1 if the transform is
-- decreasing. t:with_cache(), or the argument cache_size = 1 of most transforms, stores the last x
-- and y: t.inv(y) is then the exact x, without rounding.
local Transform = class("Transform")
transforms.Transform = Transform

Transform.event_dim = 0
Transform.bijective = true

function Transform:__call(x)
  if not lib.istensor(x) then
    errors.refuse(class.typename(self), "x", "a tensor is needed", x, "E_TYPE")
  end
  return (self:_call(x))
end

-- Stores the last pair of x and y in a transform. The pair of a captured step is valid only in that
-- step.
local function remember(self, size)
  if size == 0 then return self end
  if size ~= 1 then
    errors.refuse(class.typename(self), "cache_size", "0 or 1 is needed", size, "E_DOMAIN")
  end
  local call, undo, x, y, step = self._call, self._inverse, nil, nil, nil
  local function knows(mine, given)
    return mine ~= nil and mine == given and step == lib.capture
      and C.moth_alive(ctx, x) == 1 and C.moth_alive(ctx, y) == 1
  end
  function self._call(t, given)
    if not knows(x, given) then x, y, step = given, call(t, given), lib.capture end
    return y
  end
  function self._inverse(t, given)
    if not knows(y, given) then x, y, step = undo(t, given), given, lib.capture end
    return x
  end
  return self
end

local CACHE = {"int", "cache_size", "1: store the last x and y; t.inv(y) is then this x",
                default = 0}

--- Returns the same transform, with (1) or without (0) a cache of the last x and y.
function Transform:with_cache(cache_size)
  local copy = setmetatable({}, getmetatable(self))
  for key, value in pairs(self) do copy[key] = value end
  copy._call, copy._inverse = nil, nil
  return remember(copy, cache_size or 1)
end

--- 1 if y increases with x, -1 if it decreases: a number or a tensor.
function Transform.sign() return 1 end

--- log |dy / dx|.
function Transform:log_abs_det_jacobian()
  class.abstract(self, "log_abs_det_jacobian", ":log_abs_det_jacobian(x, y)")
end

--- Returns the shape of the result for an input shape; and the inverse.
function Transform.forward_shape(_, shape) return shape end
function Transform.inverse_shape(_, shape) return shape end

local function with_dims(constraint, n)
  return n > 0 and constraints.independent(constraint, n) or constraint
end

local Inverse = class("InverseTransform", Transform)

function Inverse:init(of)
  self.of, self.domain, self.codomain, self.bijective = of, of.codomain, of.domain, of.bijective
end
function Inverse:_call(y) return (self.of:_inverse(y)) end
function Inverse:_inverse(x) return (self.of(x)) end
function Inverse:sign() return (self.of:sign()) end
function Inverse:forward_shape(shape) return (self.of:inverse_shape(shape)) end
function Inverse:inverse_shape(shape) return (self.of:forward_shape(shape)) end
function Inverse:log_abs_det_jacobian(y, x) return -self.of:log_abs_det_jacobian(x, y) end

function Transform:__index(name)
  if name == "inv" then
    if self.of then return self.of end
    return (Inverse(self))
  elseif name == "domain" or name == "codomain" then
    return (with_dims(real, self.event_dim))
  end
end

--- Raises unless x is a transform.
function transforms.checked(fname, name, x)
  if not class.isinstance(x, Transform) then
    errors.refuse(fname, name, "a transform is needed", x, "E_TYPE")
  end
  return x
end

--- Defines a class of transforms without arguments, in `module`; bijective by default.
local function plain(module, name, domain, codomain, bijective)
  local new = class(name, Transform)
  module[name] = new
  new.signature = define.signature(name, {CACHE})
  function new:init(cache_size) remember(self, cache_size) end
  new.domain, new.codomain, new.bijective = domain, codomain, bijective
  return new
end
transforms.without_arguments = plain

--- loc + scale x.
local AffineTransform = class("AffineTransform", Transform)
transforms.AffineTransform = AffineTransform

AffineTransform.signature = define.signature("AffineTransform", {
  tools.number("loc", "the offset"), tools.number("scale", "the factor, not 0"),
  {"int", "event_dim", "the number of last dimensions that form one value", default = 0}, CACHE})

function AffineTransform:init(loc, scale, event_dim, cache_size)
  self.loc, self.scale, self.event_dim = loc, scale, event_dim
  remember(self, cache_size)
end
function AffineTransform:_call(x) return x * self.scale + self.loc end
function AffineTransform:_inverse(y) return (y - self.loc) / self.scale end

function AffineTransform:sign()
  local scale = self.scale
  if lib.istensor(scale) then return (scale:sign()) end
  return scale < 0 and -1 or 1
end

function AffineTransform:log_abs_det_jacobian(x)
  local scale = self.scale
  if not lib.istensor(scale) then scale = ops.full_like(x, scale) end
  local each = scale:abs():log():expand(tools.broadcast_shape(x.shape, scale.shape))
  return (tools.sum_last(each, self.event_dim))
end

function AffineTransform:forward_shape(shape)
  for _, x in ipairs {self.loc, self.scale} do
    if lib.istensor(x) then shape = tools.broadcast_shape(shape, x.shape) or shape end
  end
  return shape
end
AffineTransform.inverse_shape = AffineTransform.forward_shape

--- exp(x).
local ExpTransform = plain(transforms, "ExpTransform", real, constraints.positive)

function ExpTransform._call(_, x) return (x:exp()) end
function ExpTransform._inverse(_, y) return (y:log()) end
function ExpTransform.log_abs_det_jacobian(_, x) return x end

--- 1 / (1 + exp(-x)).
local SigmoidTransform = plain(transforms, "SigmoidTransform", real, constraints.unit_interval)

function SigmoidTransform._call(_, x) return (x:sigmoid()) end
function SigmoidTransform._inverse(_, y) return (y:logit(tools.eps(y))) end

function SigmoidTransform.log_abs_det_jacobian(_, x)
  return ops.logsigmoid(x) + ops.logsigmoid(-x)
end

--- tanh(x). A y that was rounded to 1 or -1 is clamped to the nearest smaller float, so that the
-- inverse is finite.
local TanhTransform = plain(transforms, "TanhTransform", real, constraints.interval(-1, 1))

function TanhTransform._call(_, x) return (x:tanh()) end

function TanhTransform._inverse(_, y)
  local most = 1 - tools.eps(y)
  return (y:clamp(-most, most):atanh())
end

-- log(1 - tanh(x)^2), exact for large x too
function TanhTransform.log_abs_det_jacobian(_, x)
  return (ops.logsigmoid(x * 2) - x + math.log(2)) * 2
end

--- |x|, which is not injective: the inverse returns the nonnegative x.
local AbsTransform = plain(transforms, "AbsTransform", real, constraints.nonnegative, false)

function AbsTransform._call(_, x) return (x:abs()) end
function AbsTransform._inverse(_, y) return y end

--- log(1 + exp(x)).
local SoftplusTransform = plain(transforms, "SoftplusTransform", real, constraints.positive)

function SoftplusTransform._call(_, x) return -ops.logsigmoid(-x) end
function SoftplusTransform._inverse(_, y) return (-(-y):expm1()):log() + y end
function SoftplusTransform.log_abs_det_jacobian(_, x) return (ops.logsigmoid(x)) end

--- x ^ exponent, for x above 0.
local PowerTransform = class("PowerTransform", Transform)
transforms.PowerTransform = PowerTransform
PowerTransform.domain, PowerTransform.codomain = constraints.positive, constraints.positive
PowerTransform.signature = define.signature("PowerTransform", {
  tools.number("exponent", "the power, not 0"), CACHE})

function PowerTransform:init(exponent, cache_size)
  self.exponent = lib.istensor(exponent) and exponent or ops.full({}, exponent)
  remember(self, cache_size)
end
function PowerTransform:_call(x) return (x:pow(self.exponent:to(x.dtype))) end
function PowerTransform:_inverse(y) return (y:pow(self.exponent:to(y.dtype):reciprocal())) end
function PowerTransform:sign() return (self.exponent:sign()) end

function PowerTransform:log_abs_det_jacobian(x, y)
  return ((self.exponent * y / x):abs():log())
end

function PowerTransform:forward_shape(shape)
  return tools.broadcast_shape(shape, self.exponent.shape) or shape
end
PowerTransform.inverse_shape = PowerTransform.forward_shape

--- The distribution function of a univariate distribution.
local Cumulative = class("CumulativeDistributionTransform", Transform)
transforms.CumulativeDistributionTransform = Cumulative
Cumulative.codomain = constraints.unit_interval
Cumulative.signature = define.signature("CumulativeDistributionTransform", {
  {"any", "distribution", "a distribution with cdf and icdf"}})

function Cumulative:init(distribution)
  if not class.isinstance(distribution, Distribution) then
    errors.argument("CumulativeDistributionTransform", "distribution",
      "a distribution is needed, got " .. errors.describe(distribution), "E_TYPE")
  end
  self.distribution, self.domain = distribution, distribution.support
end
function Cumulative:_call(x) return (self.distribution:cdf(x)) end
function Cumulative:_inverse(y) return (self.distribution:icdf(y)) end
function Cumulative:log_abs_det_jacobian(x) return (self.distribution:log_prob(x)) end

-- ---- compositions ----

--- Applies transforms in order.
local ComposeTransform = class("ComposeTransform", Transform)
transforms.ComposeTransform = ComposeTransform

ComposeTransform.signature = define.signature("ComposeTransform", {
  {"modules", "parts", "a list of transforms, in the order of application"}})

function ComposeTransform:init(parts)
  local after, bijective = 0, true
  for i, part in ipairs(parts) do
    transforms.checked("ComposeTransform", ("parts[%d]"):format(i), part)
    bijective = bijective and part.bijective
    after = math.max(after, part.domain.event_dim)
      + part.codomain.event_dim - part.domain.event_dim
  end
  local before = after
  for i = #parts, 1, -1 do
    local part = parts[i]
    before = math.max(before, part.codomain.event_dim)
      + part.domain.event_dim - part.codomain.event_dim
  end
  self.parts, self.event_dim, self.bijective = parts, before, bijective
  if parts[1] then
    local first, last = parts[1].domain, parts[#parts].codomain
    self.domain = with_dims(first, before - first.event_dim)
    self.codomain = with_dims(last, after - last.event_dim)
  end
end

function ComposeTransform:_call(x)
  for _, part in ipairs(self.parts) do x = part(x) end
  return x
end

function ComposeTransform:_inverse(y)
  for i = #self.parts, 1, -1 do y = self.parts[i]:_inverse(y) end
  return y
end

function ComposeTransform:sign()
  local sign = 1
  for _, part in ipairs(self.parts) do sign = part:sign() * sign end
  return sign
end

function ComposeTransform:forward_shape(shape)
  for _, part in ipairs(self.parts) do shape = part:forward_shape(shape) end
  return shape
end

function ComposeTransform:inverse_shape(shape)
  for i = #self.parts, 1, -1 do shape = self.parts[i]:inverse_shape(shape) end
  return shape
end

function ComposeTransform:log_abs_det_jacobian(x)
  local total, events = nil, self.domain.event_dim
  for _, part in ipairs(self.parts) do
    local y = part(x)
    local n = part.domain.event_dim
    local more = tools.sum_last(part:log_abs_det_jacobian(x, y), events - n)
    total, x, events = total and total + more or more, y, events + part.codomain.event_dim - n
  end
  return total or ops.zeros_like(x)
end

--- The identity.
transforms.identity_transform = ComposeTransform {}

--- A transform whose values have n more dimensions.
local IndependentTransform = class("IndependentTransform", Transform)
transforms.IndependentTransform = IndependentTransform
IndependentTransform.signature = define.signature("IndependentTransform", {
  {"any", "base_transform", "the transform"},
  {"int", "reinterpreted_batch_ndims", "the number of additional dimensions"}})

function IndependentTransform:init(base, n)
  transforms.checked("IndependentTransform", "base_transform", base)
  self.base_transform, self.reinterpreted_batch_ndims, self.bijective = base, n, base.bijective
  self.domain, self.codomain = with_dims(base.domain, n), with_dims(base.codomain, n)
end

function IndependentTransform:_call(x) return (self.base_transform(x)) end
function IndependentTransform:_inverse(y) return (self.base_transform:_inverse(y)) end
function IndependentTransform:sign() return (self.base_transform:sign()) end
function IndependentTransform:forward_shape(shape)
  return (self.base_transform:forward_shape(shape))
end
function IndependentTransform:inverse_shape(shape)
  return (self.base_transform:inverse_shape(shape))
end

function IndependentTransform:log_abs_det_jacobian(x, y)
  return (tools.sum_last(self.base_transform:log_abs_det_jacobian(x, y),
    self.reinterpreted_batch_ndims))
end

return transforms
