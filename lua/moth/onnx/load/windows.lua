--- windows.lua -- the geometry of windows of convolutions and pools; for conv.lua and pool.lua.

local lib = require "moth.binding.lib"
local M = require "moth"
local rows = require "moth.onnx.load.rows"

local F, refuse = M.nn.functional, rows.refuse
local windows = {}

--- The attributes of all windows.
windows.ATTRIBUTES = " strides:ints pads:ints dilations:ints auto_pad=NOTSET "

--- The stride and the dilation of windows in n dimensions.
function windows.steps(a, n)
  return a.strides or lib.filled(n, 1), a.dilations or lib.filled(n, 1)
end

--- The padding before and after each dimension, for windows of these sizes.
function windows.padding(a, x, kernel, strides, dilations)
  local n, before, after = #kernel, {}, {}
  for d = 1, n do
    if a.auto_pad == "NOTSET" then
      before[d], after[d] = a.pads and a.pads[d] or 0, a.pads and a.pads[d + n] or 0
    elseif a.auto_pad == "VALID" then
      before[d], after[d] = 0, 0
    elseif a.auto_pad == "SAME_UPPER" or a.auto_pad == "SAME_LOWER" then
      local size, last = x:size(d + 2), (kernel[d] - 1) * dilations[d]
      local total = math.max((math.ceil(size / strides[d]) - 1) * strides[d] + last + 1 - size, 0)
      local less, more = math.floor(total / 2), math.ceil(total / 2)
      before[d], after[d] = less, more
      if a.auto_pad == "SAME_LOWER" then before[d], after[d] = more, less end
    else
      refuse("auto_pad %s", rows.quoted(a.auto_pad))
    end
  end
  return before, after
end

--- Compares two lists.
function windows.equal(a, b)
  for i = 1, #a do
    if a[i] ~= b[i] then return false end
  end
  return true
end

--- Pads the last dimensions of x.
function windows.padded(x, before, after, value)
  local list, any = {}, false
  for d = #before, 1, -1 do
    list[#list + 1], list[#list + 2] = before[d], after[d]
    any = any or before[d] ~= 0 or after[d] ~= 0
  end
  return any and F.pad(x, list, {value = value}) or x
end

--- x and the remaining padding; only equal padding on both sides can remain.
function windows.sides(a, x, kernel, strides, dilations, value)
  local before, after = windows.padding(a, x, kernel, strides, dilations)
  if windows.equal(before, after) then return x, before end
  return windows.padded(x, before, after, value), lib.filled(#kernel, 0)
end

--- The function for windows of `rank` dimensions.
function windows.ranked(name, rank)
  if rank < 1 or rank > 3 then refuse("%d dimensions after batch and channels", rank) end
  return F[name .. rank .. "d"]
end

return windows
