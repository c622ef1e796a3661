--- sent.lua -- transforms of moth.transforms as values that can be sent to the workers of a
-- DataLoader, and back.
--
--     local value, why = sent.write(Compose{RandomCrop(32), Normalize(mean, std)})
--     local transform = sent.read(value)       -- in a worker

local class = require "moth.base.class"
local dataset = require "moth.data.dataset"
local dtypes = require "moth.tensor.dtype"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local sources = require "moth.data.source"

local sent = {}

local OBJECT = "moth.object" -- the key of an object's class in the table that replaces the object

-- The class of moth.transforms that an object is of; nil for others.
local function class_of(value)
  local name = class.typename(value)
  local space = name and require "moth.transforms"
  local found = space and getmetatable(space).__built_in(name)
  return found ~= nil and class.of(value) == found and name or nil
end

local write

local function write_fields(value, seen, named)
  if seen[value] then return nil, "a table that contains itself" end
  seen[value] = true
  local copy = {[OBJECT] = named}
  for key, field in pairs(value) do
    local is_plan = named == "Compose" and (key == "_plan" or key == "_of")
    if not is_plan then
      local written, why = write(field, seen)
      if written == nil then return nil, why end
      copy[key] = written
    end
  end
  seen[value] = nil
  return copy
end

write = function(value, seen)
  local kind = type(value)
  if kind == "boolean" or kind == "number" or kind == "string" or lib.istensor(value) then
    return value
  elseif sources.is(value) or dtypes.codes[value] then
    return value
  elseif lib.is_plain(value) then
    return write_fields(value, seen)
  end
  local name = class_of(value)
  if name then return write_fields(value, seen, name) end
  local source = dataset.source_of(value)
  if source then return source end
  return nil, errors.describe(value)
end

--- A value that pack.lua can serialize; nil and the part that cannot be sent.
-- @param value  a data.source, an object with a method `worker`, or a transform of moth.transforms
-- whose fields are values, not functions
function sent.write(value) return write(value, {}) end

--- The value that was written.
function sent.read(value)
  if not lib.is_plain(value) then return value end
  local copy, name = {}, value[OBJECT]
  for key, field in pairs(value) do
    if key ~= OBJECT then copy[key] = sent.read(field) end
  end
  if not name then return copy end
  local transforms = require "moth.transforms"
  if name == "Compose" then
    return (transforms.Compose(copy.transforms))
  end
  class.become(copy, transforms[name])
  return copy
end

return sent
