--- spaces.lua -- biject_to and transform_to: a transform from all real numbers to a constraint's
-- values.
--
--     local d = moth.distributions
--     local to = d.transform_to(d.Normal.arg_constraints.scale)    -- exp
--     local scale = to(free)                                       -- above 0, whatever free is

local class = require "moth.base.class"
local constraints = require "moth.distributions.constraints"
local errors = require "moth.error"
local transforms = require "moth.distributions.transforms"
local vectors = require "moth.distributions.vectors"

local spaces = {}

--- Functions of a constraint that return a transform from all real numbers to its valid values:
-- biject_to's is bijective, transform_to's is suited to optimization.
local Registry = class("ConstraintRegistry")

function Registry:init(name) self.name, self.made = name, {} end

local function checked(fname, constraint)
  if not class.isinstance(constraint, constraints.Constraint) then
    errors.refuse(fname, "constraint", "a constraint is needed", constraint, "E_TYPE")
  end
  return constraint.kind
end

--- Registers a factory of transforms for a kind of constraint.
-- @param constraint  a constraint of the kind
-- @param factory     function(constraint) -> the transform
function Registry:register(constraint, factory)
  local kind = checked(self.name .. ".register", constraint)
  if kind == nil then
    errors.argument(self.name .. ".register", "constraint",
      "one with a kind is needed; Constraint's fourth argument names it")
  elseif type(factory) ~= "function" then
    errors.refuse(self.name .. ".register", "factory", "a function is needed", factory, "E_TYPE")
  end
  self.made[kind] = factory
end

--- Returns the transform from all real numbers to the valid values of the constraint.
function Registry:__call(constraint)
  local factory = self.made[checked(self.name, constraint)]
  if not factory then
    errors.argument(self.name, "constraint", ("no transform leads to %s"):format(
      tostring(constraint)), "E_UNSUPPORTED")
  end
  local transform = factory(constraint)
  return transform
end

--- biject_to: bijective; transform_to: reaches all values, and is suited to optimization.
spaces.biject_to, spaces.transform_to = Registry("biject_to"), Registry("transform_to")

local function both(kind, factory)
  spaces.biject_to.made[kind], spaces.transform_to.made[kind] = factory, factory
end

-- Returns a transform followed by loc + scale x.
local function shifted(first, loc, scale)
  if loc == 0 and scale == 1 then return (first()) end
  return (transforms.ComposeTransform {first(), transforms.AffineTransform(loc, scale)})
end

both("real", function() return transforms.identity_transform end)
both("greater_than", function(c) return (shifted(transforms.ExpTransform, c.lower_bound, 1)) end)
both("less_than", function(c) return (shifted(transforms.ExpTransform, c.upper_bound, -1)) end)
both("interval", function(c)
  return (shifted(transforms.SigmoidTransform, c.lower_bound, c.upper_bound - c.lower_bound))
end)
both("lower_cholesky", function() return (vectors.LowerCholeskyTransform()) end)
both("positive_definite", function() return (vectors.PositiveDefiniteTransform()) end)
both("corr_cholesky", function() return (vectors.CorrCholeskyTransform()) end)
spaces.biject_to.made.simplex = function() return (vectors.StickBreakingTransform()) end
spaces.transform_to.made.simplex = function() return (vectors.SoftmaxTransform()) end

for _, registry in pairs(spaces) do
  registry.made.independent = function(c)
    local base = registry(c.base_constraint)
    return (transforms.IndependentTransform(base, c.reinterpreted_batch_ndims))
  end
  local function all(list)
    local made = {}
    for i, c in ipairs(list) do made[i] = registry(c) end
    return made
  end
  registry.made.cat = function(c)
    return (vectors.CatTransform(all(c.cseq), c.dim, c.lengths))
  end
  registry.made.stack = function(c) return (vectors.StackTransform(all(c.cseq), c.dim)) end
end

return spaces
