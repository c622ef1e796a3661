--- evenly.lua -- numbers at equal distances with the bits of torch.linspace in f32, for thresholds
-- and filters, whose results depend on the last bit.
--
-- torch.linspace counts from both ends, and rounds the step and each number once.

local ffi = require "ffi"

local function f32(x) return tonumber(ffi.cast("float", x)) end

--- A list of n numbers from first to last.
return function(first, last, n)
  first, last = f32(first), f32(last)
  local step, list = n > 1 and f32((last - first) / (n - 1)) or 0, {}
  for i = 0, n - 1 do
    list[i + 1] = i < n / 2 and f32(first + step * i) or f32(last - step * (n - 1 - i))
  end
  return list
end
