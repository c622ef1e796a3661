--- labels.lua -- the labels in a sample, for transforms that change them.

local errors = require "moth.error"
local lib = require "moth.binding.lib"

local labels = {}

--- The row of an argument `labels_getter`.
labels.ARGUMENT = {"any", "labels_getter", "function(sample), which returns the labels; default: "
  .. "the second value, or the key `labels`, or a key with \"label\" in its name",
  default = "default", optional = true}

-- The labels of a sample: the second value, or a value by key.
local function found(fname, first, second)
  local from = second == nil and first or second
  if lib.istensor(from) then return from end
  local best
  for key, value in pairs(lib.is_plain(from) and from or {}) do
    local name = type(key) == "string" and key:lower() or ""
    if name == "labels" then return value end
    if name:find "label" and (not best or key < best) then best = key end
  end
  if best then return from[best] end
  errors.raise(fname .. ": the sample has no labels: pass (x, labels), a table with the key "
    .. "'labels', or a labels_getter", "E_TYPE")
end

--- The labels of a sample.
-- @param getter  the argument `labels_getter`
function labels.of(fname, getter, ...)
  if getter == "default" then return (found(fname, ...)) end
  return getter and (getter(...)) or nil
end

--- A copy of a value in which tensors are replaced by f(tensor), unless f returns nil.
function labels.replaced(value, f)
  if lib.istensor(value) then return f(value) or value end
  if not lib.is_plain(value) then return value end
  local copy = {}
  for key, each in pairs(value) do copy[key] = labels.replaced(each, f) end
  return copy
end

return labels
