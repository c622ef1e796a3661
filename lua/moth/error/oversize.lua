--- oversize.lua -- names the layer whose constructor requests a tensor larger than memory:
--
--     bad arguments to 'Linear' (in_features = 2147483648, out_features = 2147483648: a tensor of
--     {2147483648, 2147483648} takes 18446744073709551616 bytes)

local class = require "moth.base.class"
local errors = require "moth.error"

local MAKERS = {empty = true, zeros = true, ones = true, full = true, randn = true, rand = true}

local oversize = {}

-- The arguments of a constructor at a level of the stack, as text.
local function arguments(level, count)
  local parts = {}
  for i = 2, count do
    local name, value = debug.getlocal(level + 1, i)
    local plain = type(value) == "number" or type(value) == "table" and getmetatable(value) == nil
    if name and plain then parts[#parts + 1] = name .. " = " .. errors.describe(value) end
  end
  return table.concat(parts, ", ")
end

-- Returns true if a function is the constructor of an instance's class or of one of its base
-- classes.
local function constructs(object, fn)
  local of = class.of(object)
  while of do
    local init = rawget(of, "init")
    if init ~= nil and class.written(init) == fn then return true end
    of = class.base(of)
  end
  return false
end

-- The text with the number of bytes for a tensor that is too large to address.
local function bytes_text(text)
  local sizes = text:match "^({[%d, ]+}) is more elements than can be addressed$"
  if not sizes then return text end
  local bytes = require("moth").get_default_dtype() == require("moth").float64 and 8 or 4
  for n in sizes:gmatch "%d+" do bytes = bytes * tonumber(n) end
  return ("a tensor of %s takes %.0f bytes"):format(sizes, bytes)
end

--- Raises the error of an op with the arguments of the constructor that called it: the outermost
-- constructor of Moth. Returns if there is none.
-- @param fname  the op
-- @param text   its message
-- @param code   the error's code
function oversize.blame(fname, text, code)
  if not MAKERS[fname] or not (code == "E_MEM" or code == "E_LIMIT" or code == "E_SHAPE") then
    return
  end
  local found, shown
  for level = 3, 60 do
    local info = debug.getinfo(level, "fu")
    if not info or not errors.is_own(info.func) then break end
    local name, object = debug.getlocal(level, 1)
    if name == "self" and type(object) == "table" and class.of(object)
        and constructs(object, info.func) then
      found, shown = class.typename(object), arguments(level, info.nparams)
    end
  end
  if not found then return end
  if shown ~= "" then shown = shown .. ": " end
  errors.raise(("bad arguments to '%s' (%s%s)"):format(found, shown, bytes_text(text)), code)
end

return oversize
