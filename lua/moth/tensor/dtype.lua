--- dtype.lua -- the dtypes: moth.float32, moth.long, ...
--
-- A dtype is one object, compared by identity: `x.dtype == moth.float32`. Names and aliases are
-- PyTorch's.

local dtype = {}

-- By the core's number: the name that is printed, then the aliases.
local ROWS = {
  [0] = {"bool"},
  {"uint8"},
  {"int8"},
  {"int16", "short"},
  {"int32", "int"},
  {"int64", "long"},
  {"float16", "half"},
  {"bfloat16"},
  {"float32", "float"},
  {"float64", "double"},
}
local BYTES = {[0] = 1, 1, 1, 2, 4, 8, 2, 2, 4, 8}
local FLOATS = 6 -- the first floating-point dtype

local meta = {__name = "dtype"}
meta.__index = meta
function meta:__tostring() return "moth." .. self.name end

--- name -> dtype, aliases included.
dtype.by_name = {}
--- dtype -> the core's number.
dtype.codes = {}
--- The core's number -> dtype.
dtype.by_code = {}

for code = 0, #ROWS do
  local names = ROWS[code]
  local object = setmetatable({
    name = names[1],          -- "float32"
    code = code,              -- the core's number
    itemsize = BYTES[code],   -- bytes of an element
    is_floating_point = code >= FLOATS,
    is_signed = code >= 2,
  }, meta)
  dtype.by_code[code] = object
  dtype.codes[object] = code
  for _, name in ipairs(names) do dtype.by_name[name] = object end
end

return dtype
