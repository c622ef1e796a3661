--- transform.lua -- moth.transforms.Transform, the base of transforms: which parts of a sample are
-- changed.
--
-- A transform is called with a sample: one value, several values, or a table.
--
--   - A tensor is a picture. Of several values the first tensor is the picture: `t(x, label)`
--     returns x changed, and label.
--   - Mask(m), BoundingBoxes(b, ...) and Image(x) are changed wherever they are.
--   - In a table the keys `image` and `images`, `mask` and `masks`, and `boxes` name what a tensor
--     is; boxes are {left, top, right, bottom} in pixels. Other values are passed on. Tables may
--     contain tables: `t(x, {boxes = ..., labels = ...})`.
--
-- All parts get the same random numbers. The sample is not changed: the result is another one.
--
-- A subclass defines `transform(x, params, kind)`: x is a tensor if kind is "image" or "mask", and
-- a BoundingBoxes if it is "boxes". It may define `make_params(parts)`, which draws the random
-- numbers: parts is a list of {kind = , value = }.

local class = require "moth.base.class"
local draw = require "moth.transforms.draw"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local values = require "moth.transforms.values"

local istensor, plain = lib.istensor, lib.is_plain

local Transform = class("Transform")

--- The base of transforms. `t(sample)` returns the changed sample. The field `generator`, a
-- moth.Generator, is used for random numbers if it is set.
function Transform:init() end

--- Draws the random numbers of one call.
-- @param parts  a list of {kind = "image", "mask" or "boxes", value = }
-- @return any value, for `transform`
function Transform:make_params() end

--- Changes one part of a sample.
-- @param x       a tensor, or a BoundingBoxes
-- @param params  what make_params returned
-- @param kind    "image", "mask" or "boxes"
function Transform:transform(x, params, kind) -- luacheck: ignore
  class.abstract(self, "transform", ":transform(x, params, kind)")
end

-- ---- the parts of a sample ----

local KEYS = {image = "image", images = "image", mask = "mask", masks = "mask", boxes = "boxes"}

local function sorted_keys(t)
  local keys = {}
  for key in pairs(t) do keys[#keys + 1] = key end
  table.sort(keys, function(a, b)
    if type(a) == type(b) then return a < b end
    return type(a) == "number"
  end)
  return keys
end

-- Appends the parts in a value to `parts`: {kind, value, at = table, key = key}; tensors by key are
-- marked `bare`. Returns a copy of the value, in which the results are stored.
local function collect(value, at, key, parts)
  if istensor(value) then
    local kind = type(key) == "string" and KEYS[key]
    if kind then parts[#parts + 1] = {kind = kind, value = value, at = at, key = key, bare = true}
    elseif type(key) ~= "string" and not parts.first then
      parts.first = {kind = "image", value = value, at = at, key = key, bare = true}
    end
    return value
  end
  local kind = type(value) == "table" and values.kind(value)
  if kind then
    parts[#parts + 1] = {kind = kind, value = kind == "boxes" and value or value.data, at = at,
                         key = key}
    return value
  end
  if not plain(value) then return value end
  local copy = {}
  for _, each in ipairs(sorted_keys(value)) do
    copy[each] = collect(value[each], copy, each, parts)
  end
  return copy
end

-- Boxes by key become BoundingBoxes in the picture of the sample.
local function mark_boxes(parts)
  local height, width
  for _, part in ipairs(parts) do
    if part.kind ~= "boxes" or not part.bare then
      height, width = values.size(part.kind == "mask" and values.Mask(part.value) or part.value)
      break
    end
  end
  for _, part in ipairs(parts) do
    if part.kind == "boxes" and part.bare then
      if not height then
        errors.raise("boxes need a picture in the same sample, or moth.transforms.BoundingBoxes("
          .. "boxes, format, canvas_size)", "E_TYPE")
      end
      part.value = values.BoundingBoxes(part.value, "XYXY", {height, width})
    end
  end
end

--- The parts of a sample, and a copy of it, a list of its values, to store results in.
local function parts_of(n, ...)
  local parts, copy = {}, {n = n}
  for i = 1, n do copy[i] = collect((select(i, ...)), copy, i, parts) end
  local first, pictures = parts.first, false
  parts.first = nil
  for _, part in ipairs(parts) do pictures = pictures or part.kind == "image" end
  if first and not pictures then table.insert(parts, 1, first) end
  mark_boxes(parts)
  return parts, copy
end

local function store(part, y)
  if part.bare and part.kind == "boxes" then y = y.data
  elseif not part.bare and part.kind ~= "boxes" then y = values.wrap(part.kind, y) end
  part.at[part.key] = y
end

-- The most frequent samples: a picture, or a picture and values that are passed on.
local function simple(n, x, second)
  return istensor(x) and (n == 1 or n == 2 and type(second) ~= "table")
end

--- Raises if there is nothing to change.
local function check_parts(self, parts)
  if #parts == 0 then
    errors.raise(("%s: the sample has no picture: pass a tensor, or a table with the key 'image'")
      :format(class.typename(self)), "E_TYPE")
  end
end

--- Changes a sample.
-- @param ...  one value, several values, or a table
-- @return the same, changed
function Transform:forward(...)
  local n = select("#", ...)
  if simple(n, ...) then
    local x, second = ...
    local y = self:transform(x, self:make_params({{kind = "image", value = x}}), "image")
    if n == 1 then return y end
    return y, second
  end
  local parts, copy = parts_of(n, ...)
  check_parts(self, parts)
  local params = self:make_params(parts)
  for _, part in ipairs(parts) do store(part, self:transform(part.value, params, part.kind)) end
  return unpack(copy, 1, n)
end

local function pass_on(...) return ... end

function Transform:__call(...) return pass_on(self:forward(...)) end

--- A data.source of the transform, for the workers of a DataLoader: a dataset's `worker` passes it
-- as an argument, and the source is called as the transform: source(sample).
function Transform:worker() return (require("moth.transforms.rebuild").source(self)) end

-- ---- sizes of a sample ----

--- Height, width and channels of the sample; raises if its parts have different sizes.
function Transform.size_of(parts)
  local height, width, channels
  for _, part in ipairs(parts) do
    local x = part.value
    local h, w, c = values.size(part.kind == "mask" and values.Mask(x) or x)
    if height and (h ~= height or w ~= width) then
      errors.raise(("the parts of a sample have different sizes: %d by %d and %d by %d"):format(
        height, width, h, w), "E_SHAPE")
    end
    height, width = h, w
    if part.kind == "image" then channels = c end
  end
  return height, width, channels
end

-- ---- for containers and workers ----

Transform.parts_of, Transform.store = parts_of, store

local function shown(value)
  if type(value) == "string" then return ("%q"):format(value) end
  if not plain(value) then return tostring(value) end
  local list = {}
  for i, each in ipairs(value) do list[i] = shown(each) end
  return "{" .. table.concat(list, ", ") .. "}"
end

function Transform:__tostring()
  local list = {}
  for _, key in ipairs(sorted_keys(self)) do
    local value = self[key]
    if type(key) == "string" and key:sub(1, 1) ~= "_" and type(value) ~= "function" then
      list[#list + 1] = key .. " = " .. shown(value)
    end
  end
  return class.typename(self) .. "(" .. table.concat(list, ", ") .. ")"
end

-- ---- transforms that are applied with a probability ----

local Maybe = class("RandomApplyTransform", Transform)

--- Raises unless p is a probability.
function Maybe.check_p(fname, p)
  if not (p >= 0 and p <= 1) then
    errors.refuse(fname, "p", "a probability from 0 to 1 is needed", p, "E_DOMAIN")
  end
  return p
end

function Maybe:init(p) self.p = Maybe.check_p(class.typename(self), p) end

function Maybe:forward(...)
  if draw.numbers(self.generator, 1)[1] >= self.p then return ... end
  return Transform.forward(self, ...)
end

return {Transform = Transform, Maybe = Maybe}
