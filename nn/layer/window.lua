--- window.lua -- helpers of layers with windows: checks and prints the sizes of a window's
-- dimensions.

local lib = require "moth.binding.lib"

local window = {}

--- Descriptions of the inputs of layers, by the number of dimensions.
window.INPUT = {"sequences, (N, C, L) or (C, L)", "images, (N, C, H, W) or (C, H, W)",
                "volumes, (N, C, D, H, W) or (C, D, H, W)"}

--- Repeats a number n times; returns a list or a name unchanged.
function window.list(v, n)
  if type(v) ~= "number" then return type(v) == "table" and {unpack(v, 1, n)} or v end
  return lib.filled(n, v)
end

--- Formats a window setting: "3", "(3, 2)", "(3, none)" or "same".
function window.text(v)
  if not lib.is_plain(v) then
    return type(v) == "table" and "none" or tostring(v)
  end
  local parts = {}
  for i = 1, #v do parts[i] = window.text(v[i]) end
  return "(" .. table.concat(parts, ", ") .. ")"
end

--- Returns true if all numbers of a list are n.
function window.all(list, n)
  if type(list) ~= "table" then return false end
  for i = 1, #list do
    if list[i] ~= n then return false end
  end
  return true
end

return window
