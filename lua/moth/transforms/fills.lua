--- fills.lua -- the argument `fill` of transforms: the value outside a picture.

local errors = require "moth.error"
local lib = require "moth.binding.lib"

local fills = {}

local KINDS = {image = true, mask = true, others = true}

--- Raises unless `fill` is nil, a number, a list of numbers or a table by kind.
function fills.checked(fname, fill)
  local wrong = not (fill == nil or type(fill) == "number" or lib.is_plain(fill))
  if type(fill) == "table" then
    for key, value in pairs(fill) do
      wrong = wrong or not (KINDS[key] or type(key) == "number" and type(value) == "number")
    end
  end
  if wrong then
    errors.refuse(fname, "fill", "a number, a list of numbers, or {image = , mask = , others = } "
      .. "is needed", fill, "E_TYPE")
  end
  return fill
end

--- The value for a kind: a number, a list or nil.
function fills.of(fill, kind)
  if type(fill) ~= "table" or #fill > 0 then return fill end
  if fill[kind] ~= nil then return fill[kind] end
  return fill.others
end

return fills
