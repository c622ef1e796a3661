--- The step of a row of records.lua on Moth's side, from a call as JSON. (This process does not
-- load the tables of records.lua: the more Lua objects exist, the longer its collections take.)

local bind = require "moth.binding.bind"
local json = require "moth.json"
local lib = require "moth.binding.lib"
local moth = require "moth"
local values = require "values"

local recorded = {}

local function function_at(path)
  local method = path:match "^Tensor%.(.+)$"
  if method then return bind.method(method) end
  local value = moth
  for name in path:gmatch "[^.]+" do value = value[name] end
  return value
end

-- A value of the call; tensors that require a gradient are added to the leaves.
local function decoded(v, leaves)
  if v == json.null then return lib.none end
  if type(v) ~= "table" then return v end
  if v.number then return v.number == "inf" and math.huge or -math.huge end
  if v.constant then return moth[v.constant] end
  if v.draw then
    local x = values.draw(v)
    if v.grad then leaves[#leaves + 1] = x:requires_grad_() end
    return x
  end
  local copy = {}
  for key, part in pairs(v) do copy[key] = decoded(part, leaves) end
  return copy
end

--- The tensors of a (nested) list of results.
function recorded.tensors(list)
  local tensors = {}
  local function walk(v)
    if lib.istensor(v) then
      tensors[#tensors + 1] = v
    elseif type(v) == "table" and getmetatable(v) == nil then
      for _, part in ipairs(v) do walk(part) end
    end
  end
  for i = 1, list.n or #list do walk(list[i]) end
  return tensors
end

local function outputs(...)
  local list = {}
  for _, y in ipairs(recorded.tensors{n = select("#", ...), ...}) do
    if y.requires_grad then list[#list + 1] = y end
  end
  return list
end

local FORWARD = [[
  local fn, %s = ...
  return function() return fn(%s) end
]]

local BACKWARD = [[
  local fn, leaves, outputs, grads, backward, %s = ...
  return function()
    for i = 1, #leaves do leaves[i].grad = nil end
    backward(outputs(fn(%s)), grads)
  end
]]

local SINGLE = [[
  local fn, leaves, grad, %s = ...
  return function()
    for i = 1, #leaves do leaves[i].grad = nil end
    local y = fn(%s)
    y:backward(grad)
  end
]]

local function written(source, n)
  local names = {}
  for i = 1, n do names[i] = "a" .. i end
  names = n > 0 and table.concat(names, ", ") or "_"
  return assert(loadstring(source:format(names, names), "=bench"))
end

--- A call, or a call and its backward pass, as a function.
function recorded.step(text)
  local row, leaves = json.decode(text), {}
  local fn, args = function_at(row.fn), decoded(row.args, leaves)
  local n = #args
  if next(row.named) then
    n = n + 1
    args[n] = decoded(row.named, leaves)
  end
  if not row.backward then return written(FORWARD, n)(fn, unpack(args, 1, n)) end
  local first, grads = {fn(unpack(args, 1, n))}, {}
  for i, y in ipairs(outputs(unpack(first))) do grads[i] = moth.randn(y.shape):to(y.dtype) end
  if #first == 1 and lib.istensor(first[1]) then
    return written(SINGLE, n)(fn, leaves, grads[1], unpack(args, 1, n))
  end
  return written(BACKWARD, n)(fn, leaves, outputs, grads, moth.autograd.backward,
    unpack(args, 1, n))
end

return recorded
