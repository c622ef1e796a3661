--- values.lua -- the values of a tensor as Lua numbers and booleans: x:item(), x:tolist().

local ffi = require "ffi"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local look = require "moth.tensor.look"

local C, ctx = lib.C, lib.ctx
local inspect, sizes_of = look.inspect, look.sizes_of

local BOOL, I64 = C.MOTH_BOOL, C.MOTH_I64
local FLOATS = C.MOTH_F16 -- the first floating-point dtype

local methods = {}

-- The value in a slot that moth_read filled.
local function value_of(slot, dtype)
  if dtype >= FLOATS then return slot.number end
  if dtype == BOOL then return slot.integer ~= 0 end
  if dtype < I64 then return tonumber(slot.integer) end
  local v = slot.integer
  local n = tonumber(v)
  if n < 2 ^ 63 and ffi.cast("int64_t", n) == v then return n end -- ARM saturates 2^63
  return v
end

local slot1 = ffi.new "moth_slot[1]"

--- The value of a tensor with one element: a number, a boolean for bool, an int64 cdata if a number
-- would lose bits. Raises for any other number of elements.
function methods.item(x)
  local t = inspect(x, "item")
  if t.numel ~= 1 then
    -- Read a value first: moth_read raises if the tensor cannot be read.
    if t.numel > 0 then lib.check(C.moth_read(ctx, x, 0, 1, slot1), "item", x) end
    errors.raise("item: only a tensor with one element has an item, got " .. errors.describe(x),
      "E_SHAPE")
  end
  local dtype = t.dtype
  lib.check(C.moth_read(ctx, x, 0, 1, slot1), "item", x)
  if lib.on_read then lib.on_read(x) end
  return value_of(slot1[0], dtype)
end

local BLOCK = 4096

--- The values as nested plain tables of numbers or booleans (int64 cdata if a number would lose
-- bits); for a 0-d tensor the value itself.
function methods.tolist(x)
  local sizes = sizes_of(x, "tolist")
  local ndim, dtype, total = #sizes, inspect(x, "tolist").dtype, 1
  for d = 1, ndim do total = total * sizes[d] end
  if ndim == 0 then return methods.item(x) end
  if lib.on_read then lib.on_read(x) end
  local buffer = lib.slots(math.min(total, BLOCK) + 1)
  local first, filled, at = 0, 0, 0
  local function next_value()
    if at == filled then
      first = first + filled
      filled, at = math.min(BLOCK, total - first), 0
      lib.check(C.moth_read(ctx, x, first, filled, buffer), "tolist", x)
    end
    at = at + 1
    return value_of(buffer[at - 1], dtype)
  end
  local function build(d)
    local list = {}
    for i = 1, sizes[d] do
      if d == ndim then list[i] = next_value() else list[i] = build(d + 1) end
    end
    return list
  end
  return build(1)
end

return {methods = methods}
