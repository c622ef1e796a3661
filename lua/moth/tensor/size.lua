--- size.lua -- moth.Size, the list of a tensor's sizes: `x.shape`.
--
--   moth.zeros(2, 3).shape == moth.Size{2, 3}     true
--   tostring(moth.zeros(2, 3).shape)              (2, 3)
--
-- Otherwise it is a list: shape[1], #shape, ipairs(shape), unpack(shape). shape[-1] is the last
-- size; a dimension that does not exist raises.

local methods = {}
local Size = {__name = "Size"}

-- Called for fields that the list does not have.
function Size.__index(self, key)
  if type(key) ~= "number" then return methods[key] end
  local n = #self
  if key < 0 and key >= -n and key % 1 == 0 then return rawget(self, n + 1 + key) end
  require("moth.error").raise(key == 0 and "dimensions count from 1, got 0"
    or ("dim %s is out of range for the %d dimension%s of %s"):format(tostring(key), n,
      n == 1 and "" or "s", tostring(self)), "E_INDEX")
end

--- The number of elements of a tensor with these sizes: their product, 1 for no sizes.
function methods:numel()
  local n = 1
  for i = 1, #self do n = n * self[i] end
  return n
end

function Size.__eq(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do
    if a[i] ~= b[i] then return false end
  end
  return true
end

function Size.__call()
  require("moth.error").raise("a shape is a field, not a method: x.shape, or x:size(1)", "E_TYPE")
end

local size_module = {}

--- The sizes with all digits: Lua writes 10^14 and more as powers of ten.
function size_module.text(sizes, between)
  return (("%d" .. between):rep(#sizes):sub(1, -1 - #between):format(unpack(sizes)))
end

function Size:__tostring() return "(" .. size_module.text(self, ", ") .. ")" end

function Size.__concat(a, b) return tostring(a) .. tostring(b) end

--- Makes a list a Size, in place.
function size_module.wrap(list) return setmetatable(list, Size) end

--- Returns true if a value is a Size.
function size_module.is(value) return getmetatable(value) == Size end

--- moth.Size{2, 3} or moth.Size(2, 3): a list of sizes that compares with `==`.
-- Raises if an element is no integer.
function size_module.new(...)
  local list = ...
  if type(list) ~= "table" then list = {...} end
  local size = {}
  for i = 1, #list do
    local n = list[i]
    if type(n) ~= "number" or n % 1 ~= 0 then
      local errors = require "moth.error"
      errors.argument("Size", "sizes", "integers are needed, got " .. errors.describe(n)
        .. " at position " .. i)
    end
    size[i] = n
  end
  return setmetatable(size, Size)
end

return size_module
