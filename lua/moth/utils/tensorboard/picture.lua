--- picture.lua -- tensors as pictures of TensorBoard: layouts, batches, PNG.

local errors = require "moth.error"
local scope = require "moth.tensor.scope"

local picture = {}

-- Dimensions in the order of `wanted`; a format has each of its letters once.
local function arranged(x, format, wanted, fname)
  local dims = {}
  for letter in wanted:gmatch "." do
    local at = format:find(letter, 1, true)
    if not at then
      errors.argument(fname, "dataformats", ("a permutation of %s is needed for a tensor of %d "
        .. "dimensions, got '%s'"):format(wanted, x:dim(), format), "E_DOMAIN")
    end
    dims[#dims + 1] = at
  end
  return x:permute(unpack(dims))
end

local function three_channels(x) -- (H, W, C)
  if x:size(3) == 1 then return x:expand(x:size(1), x:size(2), 3) end
  return x
end

-- Pictures (N, H, W, C) side by side, at most 8 in a row: (H', W', C).
local function grid(x)
  local moth = require "moth"
  local n, h, w, c = unpack(x.shape)
  local columns = math.min(n, 8)
  local rows = math.ceil(n / columns)
  local out = moth.zeros(rows * columns, h, w, c, {dtype = x.dtype})
  out:narrow(1, 1, n):copy_(x)
  return out:view(rows, columns, h, w, c):permute(1, 3, 2, 4, 5):reshape(rows * h, columns * w, c)
end

local WANTED = {[2] = "HW", [3] = "HWC", [4] = "NHWC"}

--- A tensor as bytes of pixels: uint8 (H, W, C). Floats are scaled by 255 and clamped; uint8 stays.
-- @param x       a tensor of 2, 3 or 4 dimensions; 4: a batch, placed in a grid
-- @param format  the letters of its dimensions: "CHW", "HW", "NHWC"
-- @param fname   the function that errors name
picture.pixels = scope.inside(function(x, format, fname)
  local moth = require "moth"
  format = format:upper()
  if not WANTED[x:dim()] or #format ~= x:dim() then
    errors.argument(fname, "img_tensor", ("%s does not have the dimensions of dataformats '%s'")
      :format(errors.describe(x), format), "E_SHAPE")
  end
  x = arranged(x:detach():cpu(), format, WANTED[x:dim()], fname)
  if x:dim() == 4 then x = grid(x) end
  if x:dim() == 2 then x = x:unsqueeze(3) end
  local channels = x:size(3)
  if x:numel() == 0 or channels > 4 then
    errors.argument(fname, "img_tensor", ("1 to 4 channels and at least one pixel are needed, got "
      .. "%s in dataformats '%s'"):format(errors.describe(x), format), "E_SHAPE")
  end
  if x.dtype ~= moth.uint8 then
    x = moth.nan_to_num(x:float() * 255):clamp(0, 255):to(moth.uint8)
  end
  return three_channels(x):contiguous()
end)

--- The message of a picture.
function picture.of(x, format, fname)
  local pixels = picture.pixels(x, format, fname)
  local h, w, c = unpack(pixels.shape)
  local text = require("moth.io.png").encode(pixels, fname)
  pixels:free()
  return {height = h, width = w, colorspace = c, encoded_image_string = text}
end

return picture
