--- window.lua -- what layers with windows share: sizes along some dimensions, and their text.

local lib = require "moth.binding.lib"

local window = {}

--- What layers take, by the number of dimensions.
window.INPUT = {"sequences, (N, C, L) or (C, L)", "images, (N, C, H, W) or (C, H, W)",
                "volumes, (N, C, D, H, W) or (C, D, H, W)"}

--- A number n times, or a list as it is; a name as it is.
function window.list(v, n)
  if type(v) ~= "number" then return type(v) == "table" and { unpack(v, 1, n) } or v end
  return lib.filled(n, v)
end

--- "3", "(3, 2)", "(3, none)" or "same".
function window.text(v)
  if not lib.is_plain(v) then
    return type(v) == "table" and "none" or tostring(v)
  end
  local parts = {}
  for i = 1, #v do parts[i] = window.text(v[i]) end
  return "(" .. table.concat(parts, ", ") .. ")"
end

--- Whether all numbers of a list are n.
function window.all(list, n)
  if type(list) ~= "table" then return false end
  for i = 1, #list do
    if list[i] ~= n then return false end
  end
  return true
end

return window
