--- container.lua -- moth.transforms: several transforms as one.

local base = require "moth.transforms.transform"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local draw = require "moth.transforms.draw"
local errors = require "moth.error"
local types = require "moth.tensor.dtype".by_name

local Transform = base.Transform
local container = {}

local LIST = {"modules", "transforms", "transforms, or functions of a sample"}

local function check_list(self, list)
  if #list == 0 then
    errors.argument(class.typename(self), "transforms", "one transform or more are needed")
  end
  for i, each in ipairs(list) do
    if not (type(each) == "function" or type(each) == "table" and getmetatable(each)) then
      errors.refuse(class.typename(self), "transforms",
        ("a transform or a function is needed at %d"):format(i), each, "E_TYPE")
    end
  end
  self.transforms = list
end

local function pass_on(...) return ... end

-- Applies transforms from number i on.
local function apply(list, i, ...)
  local t = list[i]
  if t == nil then return ... end
  return apply(list, i + 1, t(...))
end

-- ---- Compose ----

-- ToDtype to f32 with its range, then Normalize: one pass over the bytes.
local Both = class("ToNormalized", Transform)

function Both:init(first, second) self.first, self.second = first, second end

function Both:transform(x, params, kind)
  if kind ~= "image" then
    return self.second:transform(self.first:transform(x, params, kind), params, kind)
  end
  return (require("moth.transforms.pixels").to_normalized(x, self.second.mean, self.second.std))
end

-- Returns true if t only converts pictures to f32 from 0 to 1.
local function to_float(t)
  local own, of = require "moth.transforms.types", class.of(t)
  return (of == own.ToDtype and t.scale or of == own.ConvertImageDtype)
    and t.dtype == types.float32
end

-- The transforms that are run.
local function planned(list)
  local plan, i = {}, 1
  while i <= #list do
    local t, after = list[i], list[i + 1]
    if after and to_float(t) and class.of(after) == require("moth.transforms.types").Normalize then
      plan[#plan + 1] = Both(t, after)
      i = i + 2
    else
      plan[#plan + 1] = t
      i = i + 1
    end
  end
  return plan
end

local Compose = class("Compose", Transform)
container.Compose = Compose
Compose.signature = define.signature("Compose", {LIST})

--- Applies transforms one after the other. The field `transforms` is their list.
-- @param transforms  transforms, or functions of a sample: T.Compose{T.Resize(256), f}
function Compose:init(list)
  check_list(self, list)
  self._plan, self._of = planned(list), {unpack(list)}
end

-- Returns true if the list of transforms is the one that was planned.
local function same(list, planned_for)
  if #list ~= #planned_for then return false end
  for i = 1, #list do
    if list[i] ~= planned_for[i] then return false end
  end
  return true
end

function Compose:forward(...)
  if not same(self.transforms, self._of) then Compose.init(self, {self.transforms}) end
  return apply(self._plan, 1, ...)
end

local function lines(self)
  local list = {class.typename(self) .. "("}
  for _, t in ipairs(self.transforms) do
    list[#list + 1] = "  " .. tostring(t):gsub("\n", "\n  ")
  end
  return table.concat(list, "\n") .. "\n)"
end
Compose.__tostring = lines

-- ---- random containers ----

local RandomApply = class("RandomApply", Transform)
container.RandomApply = RandomApply
RandomApply.signature = define.signature("RandomApply", {
  LIST, {"float", "p", "the probability", default = 0.5},
})

--- Applies a list of transforms, all or none of them.
-- @param transforms  transforms, or functions of a sample
-- @param p           the probability (default 0.5)
function RandomApply:init(list, p)
  check_list(self, list)
  self.p = base.Maybe.check_p("RandomApply", p)
end

function RandomApply:forward(...)
  if draw.numbers(self.generator, 1)[1] >= self.p then return ... end
  return apply(self.transforms, 1, ...)
end
RandomApply.__tostring = lines

local RandomChoice = class("RandomChoice", Transform)
container.RandomChoice = RandomChoice
RandomChoice.signature = define.signature("RandomChoice", {
  LIST, {"floats?", "p", "the weight of each transform; default: equal"},
})

--- Applies one transform of a list.
-- @param transforms  transforms, or functions of a sample
-- @param p           the weight of each (default: equal)
function RandomChoice:init(list, p)
  check_list(self, list)
  if type(p) == "number" then p = {p} end
  if p and #p ~= #list then
    errors.argument("RandomChoice", "p", ("%d numbers are needed, one for each transform, got %d")
      :format(#list, #p))
  end
  local total = 0
  for i = 1, #list do total = total + (p and p[i] or 1) end
  self.p = {}
  for i = 1, #list do self.p[i] = (p and p[i] or 1) / total end
end

function RandomChoice:forward(...)
  local u, at = draw.numbers(self.generator, 1)[1], 1
  while at < #self.p and u >= self.p[at] do u, at = u - self.p[at], at + 1 end
  return pass_on(self.transforms[at](...))
end
RandomChoice.__tostring = lines

local RandomOrder = class("RandomOrder", Transform)
container.RandomOrder = RandomOrder
RandomOrder.signature = define.signature("RandomOrder", {LIST})

--- Applies all transforms of a list in a random order.
-- @param transforms  transforms, or functions of a sample
function RandomOrder:init(list) check_list(self, list) end

function RandomOrder:forward(...)
  local list = {}
  for i, at in ipairs(draw.order(self.generator, #self.transforms)) do
    list[i] = self.transforms[at]
  end
  return apply(list, 1, ...)
end
RandomOrder.__tostring = lines

return container
