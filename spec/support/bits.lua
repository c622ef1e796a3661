--- bits.lua -- numbers as text that tells any two apart, to compare runs to the last bit.

local moth = require "moth"

local bits = {}

--- The numbers of a tensor, wherever it lies.
function bits.of(x)
  local list = x:detach():cpu():to(moth.float64):flatten():tolist()
  return table.concat(type(list) == "table" and list or {list}, " ")
end

--- Those of a network's parameters and buffers, by their names.
function bits.state_of(net)
  local list = {}
  for name, x in pairs(net:state_dict()) do list[#list + 1] = name .. ": " .. bits.of(x) end
  table.sort(list)
  return table.concat(list, "\n")
end

return bits
