--- bits.lua -- numbers as exact text, to compare runs bit for bit.

local moth = require "moth"

local bits = {}

--- The numbers of a tensor on any device.
function bits.of(x)
  local list = x:detach():cpu():to(moth.float64):flatten():tolist()
  return table.concat(type(list) == "table" and list or {list}, " ")
end

--- The numbers of a network's parameters and buffers, by name.
function bits.state_of(net)
  local list = {}
  for name, x in pairs(net:state_dict()) do list[#list + 1] = name .. ": " .. bits.of(x) end
  table.sort(list)
  return table.concat(list, "\n")
end

return bits
