--- transforms.lua -- functions of single numbers that can be undone, for TransformedDistribution.

local bind = require "moth.bind"
local class = require "moth.class"
local define = require "moth.define"
local Distribution = require "moth.distributions.distribution"
local lib = require "moth.lib"

local ops, tools = bind.ops, Distribution.tools

local M = {}

--- The base of transforms: `t(x)` is a function, `t.inv(y)` undoes it, log_abs_det_jacobian(x, y)
-- is the logarithm of how far it stretches. A class of one's own has _call(x), _inverse(y),
-- log_abs_det_jacobian(x, y) and, where values are more than single numbers, the field event_dim;
-- sign() tells cdf whether it turns the order around.
local Transform = class("Transform")
M.Transform = Transform

Transform.event_dim = 0

function Transform:__call(x)
  return (self:_call(x))
end

--- 1 where y grows with x, -1 where it falls: a number or a tensor.
function Transform.sign() return 1 end

--- log |dy / dx|.
function Transform:log_abs_det_jacobian()
  class.abstract(self, "log_abs_det_jacobian", ":log_abs_det_jacobian(x, y)")
end

--- The sizes of what it makes of a tensor of these sizes.
function Transform.forward_shape(_, shape) return shape end

local Inverse = class("InverseTransform", Transform)

function Inverse:init(of) self.of = of end
function Inverse:_call(y) return (self.of:_inverse(y)) end
function Inverse:_inverse(x) return (self.of(x)) end
function Inverse:sign() return (self.of:sign()) end
function Inverse:forward_shape(shape) return (self.of:forward_shape(shape)) end
function Inverse:log_abs_det_jacobian(y, x) return -self.of:log_abs_det_jacobian(x, y) end

function Transform:__index(name)
  if name == "inv" then
    if self.of then return self.of end
    return (Inverse(self))
  end
end

--- loc + scale x.
local AffineTransform = class("AffineTransform", Transform)
M.AffineTransform = AffineTransform

AffineTransform.signature = define.signature("AffineTransform", {
  tools.number("loc", "what is added"), tools.number("scale", "the factor, not 0") })

function AffineTransform:init(loc, scale) self.loc, self.scale = loc, scale end
function AffineTransform:_call(x) return x * self.scale + self.loc end
function AffineTransform:_inverse(y) return (y - self.loc) / self.scale end

function AffineTransform:sign()
  local scale = self.scale
  if lib.istensor(scale) then return (scale:sign()) end
  return scale < 0 and -1 or 1
end

function AffineTransform:log_abs_det_jacobian(x)
  local scale = self.scale
  if not lib.istensor(scale) then return (ops.full_like(x, math.log(math.abs(scale)))) end
  return (scale:abs():log():expand(tools.broadcast_shape(x.shape, scale.shape)))
end

function AffineTransform:forward_shape(shape)
  for _, x in ipairs { self.loc, self.scale } do
    if lib.istensor(x) then shape = tools.broadcast_shape(shape, x.shape) or shape end
  end
  return shape
end

--- exp(x).
local ExpTransform = class("ExpTransform", Transform)
M.ExpTransform = ExpTransform
ExpTransform.signature = define.signature("ExpTransform", {})

function ExpTransform:init() end

function ExpTransform._call(_, x) return (x:exp()) end
function ExpTransform._inverse(_, y) return (y:log()) end
function ExpTransform.log_abs_det_jacobian(_, x) return x end

--- 1 / (1 + exp(-x)).
local SigmoidTransform = class("SigmoidTransform", Transform)
M.SigmoidTransform = SigmoidTransform
SigmoidTransform.signature = define.signature("SigmoidTransform", {})

function SigmoidTransform:init() end

function SigmoidTransform._call(_, x) return (x:sigmoid()) end
function SigmoidTransform._inverse(_, y) return (y:logit(tools.eps(y))) end

function SigmoidTransform.log_abs_det_jacobian(_, x)
  return ops.logsigmoid(x) + ops.logsigmoid(-x)
end

--- tanh(x). What rounding made 1 or -1 is undone as the number before it, so that it stays finite.
local TanhTransform = class("TanhTransform", Transform)
M.TanhTransform = TanhTransform
TanhTransform.signature = define.signature("TanhTransform", {})

function TanhTransform:init() end

function TanhTransform._call(_, x) return (x:tanh()) end

function TanhTransform._inverse(_, y)
  local most = 1 - tools.eps(y)
  return (y:clamp(-most, most):atanh())
end

-- log(1 - tanh(x)^2), exact for large x too
function TanhTransform.log_abs_det_jacobian(_, x)
  return (ops.logsigmoid(x * 2) - x + math.log(2)) * 2
end

--- One transform after the other.
local ComposeTransform = class("ComposeTransform", Transform)
M.ComposeTransform = ComposeTransform

ComposeTransform.signature = define.signature("ComposeTransform", {
  { "modules", "parts", "a list of transforms, the first one first" } })

function ComposeTransform:init(parts)
  self.parts = parts
  for _, part in ipairs(parts) do self.event_dim = math.max(self.event_dim, part.event_dim) end
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

function ComposeTransform:log_abs_det_jacobian(x)
  local total
  for _, part in ipairs(self.parts) do
    local y = part(x)
    local more = tools.sum_last(part:log_abs_det_jacobian(x, y), self.event_dim - part.event_dim)
    total, x = total and total + more or more, y
  end
  return total or ops.zeros_like(x)
end

return M
