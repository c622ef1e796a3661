--- types.lua -- moth.transforms: dtypes and ranges of pixels, functions, formats of boxes.

local base = require "moth.transforms.transform"
local box = require "moth.transforms.boxes"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local kernels = require "moth.transforms.kernels"
local labels = require "moth.transforms.labels"
local lib = require "moth.binding.lib"
local pixels = require "moth.transforms.pixels"
local values = require "moth.transforms.values"
local dtypes = require "moth.tensor.dtype"

local Transform, run = base.Transform, kernels.run
local types = {}

-- ---- dtypes ----

local ToDtype = class("ToDtype", Transform)
types.ToDtype = ToDtype
ToDtype.signature = define.signature("ToDtype", {
  {"any", "dtype", "the new dtype of pictures, or a table by kind, {image = , mask = , boxes = }"},
  {"bool", "scale", "convert the range of pictures, too?", default = false},
})

--- Another dtype.
-- @param dtype  the new dtype of pictures, or a table by kind: {image = moth.float32, mask =
-- moth.int64}; kinds that are not in the table keep their dtype
-- @param scale  convert the range of pictures, too: 255 of uint8 becomes 1 of float32 (default
-- false)?
function ToDtype:init(dtype, scale)
  local list = lib.is_plain(dtype) and dtype or {image = dtype}
  for _, each in pairs(list) do
    if not dtypes.codes[each] then
      errors.refuse("ToDtype", "dtype", "a dtype such as moth.float32, or a table of them by kind, "
        .. "is needed", each, "E_TYPE")
    end
  end
  self.dtype, self.scale, self._by_kind = dtype, scale, list
end

function ToDtype:transform(x, _, kind)
  local wanted = self._by_kind[kind]
  if not wanted then return x end
  if kind == "boxes" then return (values.like(x, x.data:to(wanted))) end
  return (run("to_dtype", kind, x, wanted, self.scale))
end

local ConvertImageDtype = class("ConvertImageDtype", Transform)
types.ConvertImageDtype = ConvertImageDtype
ConvertImageDtype.signature = define.signature("ConvertImageDtype", {
  {"dtype?", "dtype", "the new dtype; default: float32"},
})

--- Pictures in another dtype, with their range: 255 of uint8 becomes 1 of float32.
-- @param dtype  the new dtype (default float32)
function ConvertImageDtype:init(dtype) self.dtype = dtype or dtypes.by_name.float32 end

function ConvertImageDtype:transform(x, _, kind)
  if kind ~= "image" then return x end
  return (run("to_dtype", kind, x, self.dtype, true))
end

local Normalize = class("Normalize", Transform)
types.Normalize = Normalize
Normalize.signature = define.signature("Normalize", {
  {"floats", "mean", "of each channel"},
  {"floats", "std", "the standard deviation of each channel"},
  {"bool", "inplace", "change the picture itself?", default = false},
})

--- Subtracts the mean of each channel and divides by the standard deviation. Pictures must be in
-- floating point; after ToDtype(moth.float32, true) in a Compose both are one pass.
-- @param mean     of each channel, or a number
-- @param std      standard deviation of each channel, or a number
-- @param inplace  change the picture itself (default false)?
function Normalize:init(mean, std, inplace)
  pixels.check_std(std)
  self.mean, self.std, self.inplace = mean, std, inplace
end

function Normalize:transform(x, _, kind)
  return (run("normalize", kind, x, self.mean, self.std, self.inplace))
end

-- ---- functions ----

local Identity = class("Identity", Transform)
types.Identity = Identity

--- Changes nothing.
function Identity:forward(...) return ... end

local Lambda = class("Lambda", Transform)
types.Lambda = Lambda
Lambda.signature = define.signature("Lambda", {
  {"function", "lambd", "function(x), which returns the changed value"},
  {"string?", "kind", "change only values of this kind: image, mask or boxes; default: pictures"},
})

--- Applies a function to the pictures of a sample.
-- @param lambd  function(x), which returns the changed value
-- @param kind   "image" (default), "mask", or "boxes", which are passed as BoundingBoxes
function Lambda:init(lambd, kind)
  self.lambd, self.kind = lambd, kind or "image"
end

function Lambda:transform(x, _, kind)
  if kind ~= self.kind then return x end
  return (self.lambd(x))
end

local ToPureTensor = class("ToPureTensor", Transform)
types.ToPureTensor = ToPureTensor

local function pure(value)
  if type(value) == "table" and values.kind(value) then return value.data end
  if not lib.is_plain(value) then return value end
  local copy = {}
  for key, each in pairs(value) do copy[key] = pure(each) end
  return copy
end

local function pure_all(n, value, ...)
  if n == 0 then return end
  return pure(value), pure_all(n - 1, ...)
end

--- Replaces Image, Mask and BoundingBoxes by their tensors, for a DataLoader.
function ToPureTensor:forward(...) return pure_all(select("#", ...), ...) end

-- ---- boxes ----

local ConvertBoundingBoxFormat = class("ConvertBoundingBoxFormat", Transform)
types.ConvertBoundingBoxFormat = ConvertBoundingBoxFormat
ConvertBoundingBoxFormat.signature = define.signature("ConvertBoundingBoxFormat", {
  {"string", "format", "XYXY, XYWH or CXCYWH"},
})

--- BoundingBoxes in another format.
-- @param format  "XYXY", "XYWH" or "CXCYWH"
function ConvertBoundingBoxFormat:init(format)
  self.format = values.format("ConvertBoundingBoxFormat", "format", format)
end

function ConvertBoundingBoxFormat:transform(x, _, kind)
  return kind == "boxes" and box.to(x, self.format) or x
end

local ClampBoundingBoxes = class("ClampBoundingBoxes", Transform)
types.ClampBoundingBoxes = ClampBoundingBoxes

--- Clips boxes to the picture, unless their clamping_mode is "none".
function ClampBoundingBoxes:init() end

function ClampBoundingBoxes:transform(x, _, kind)
  return kind == "boxes" and box.clamp(x) or x
end

local SanitizeBoundingBoxes = class("SanitizeBoundingBoxes", Transform)
types.SanitizeBoundingBoxes = SanitizeBoundingBoxes
SanitizeBoundingBoxes.signature = define.signature("SanitizeBoundingBoxes", {
  {"float", "min_size", "the smallest width and height", default = 1},
  {"float", "min_area", "the smallest area", default = 1},
  labels.ARGUMENT,
})

--- Removes boxes that are outside the picture or too small, together with their labels and masks.
-- @param min_size       the smallest width and height (default 1)
-- @param min_area       the smallest area (default 1)
-- @param labels_getter  function(sample), which returns the tensor of labels, or a list of tensors;
-- default: the second value, or the key `labels`, or a key with "label" in its name; moth.none:
-- there are no labels
function SanitizeBoundingBoxes:init(min_size, min_area, getter)
  for name, value in pairs {min_size = min_size, min_area = min_area} do
    if value < 1 then
      errors.refuse("SanitizeBoundingBoxes", name, "a number from 1 on is needed", value,
        "E_DOMAIN")
    end
  end
  self.min_size, self.min_area, self.labels_getter = min_size, min_area, getter
end

local function found_boxes(parts)
  for _, part in ipairs(parts) do
    if part.kind == "boxes" then return part.value end
  end
  errors.raise("SanitizeBoundingBoxes: the sample has no boxes", "E_TYPE")
end

function SanitizeBoundingBoxes:forward(...)
  local found = labels.of("SanitizeBoundingBoxes", self.labels_getter, ...)
  local parts, copy = Transform.parts_of(select("#", ...), ...)
  local b = found_boxes(parts)
  local good = box.valid(b.data, b.format, b.canvas_size, self.min_size, self.min_area)
  local n, chosen = b.data:size(1), {}
  for _, each in ipairs(lib.istensor(found) and {found} or found or {}) do
    if each:size(1) ~= n then
      errors.raise(("SanitizeBoundingBoxes: there are %d boxes and %d labels"):format(n,
        each:size(1)), "E_SHAPE")
    end
    chosen[each] = true
  end
  for _, part in ipairs(parts) do
    local x = part.value
    if part.kind == "boxes" then Transform.store(part, values.like(x, x.data[good]))
    elseif part.kind == "mask" and x:dim() > 2 and x:size(1) == n then
      Transform.store(part, x[good])
    end
  end
  local function kept(x) return chosen[x] and x[good] end
  for i = 1, copy.n do copy[i] = labels.replaced(copy[i], kept) end
  return unpack(copy, 1, copy.n)
end

return types
