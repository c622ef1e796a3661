--- answers.lua -- the batches of a DataLoader as plain values to compare.

local moth = require "moth"

local answers = {}

-- Tensors as {dtype, values}.
function answers.plain(x)
  if moth.is_tensor(x) then return {tostring(x.dtype), x:tolist()} end
  if type(x) ~= "table" then return x end
  local out = {}
  for key, value in pairs(x) do out[key] = answers.plain(value) end
  return out
end

-- A pass of at most this many batches.
function answers.batches(loader, most)
  local list, step = {}, loader:iter()
  local function add(...)
    if (...) == nil then return false end
    list[#list + 1] = answers.plain {...}
    return #list ~= most
  end
  while add(step()) do end
  return list
end

return answers
