--- idx.lua -- IDX files, the format of MNIST and Fashion-MNIST, plain or compressed by gzip.
--
--     bytes 0, 0, type, rank;  rank sizes, u32 big-endian;  the elements, row-major, big-endian
--
-- Every number is checked before it is used, and memory is allocated only as bytes arrive: a file
-- with a false size costs at most its own length.

local ffi = require "ffi"
local bytes = require "moth.io.bytes"
local define = require "moth.binding.define"
local errors = require "moth.error"
local gzip = require "moth.io.gzip"
local lib = require "moth.binding.lib"

local idx = {}

local LIMIT = 2 ^ 36 -- bytes of elements; larger sizes raise
local types = { -- IDX type -> Moth's dtype, bytes per element
  [0x08] = {"uint8", 1}, [0x09] = {"int8", 1}, [0x0B] = {"int16", 2}, [0x0C] = {"int32", 4},
  [0x0D] = {"float32", 4}, [0x0E] = {"float64", 8},
}

local refuse = gzip.refuse

-- ---- the header ----

local function u32(buffer, at)
  return buffer[at] * 2 ^ 24 + buffer[at + 1] * 2 ^ 16 + buffer[at + 2] * 2 ^ 8 + buffer[at + 3]
end

-- Reads the header.
-- @return the type's row, the sizes as a list, the number of bytes of elements
local function header(reader)
  local path = reader.path
  local head = ffi.new("uint8_t[4]")
  if reader:some(head, 4) < 4 then refuse(path, "is too short for an IDX file") end
  local kind, rank = types[head[2]], head[3]
  if head[0] ~= 0 or head[1] ~= 0 then
    refuse(path, ("is not an IDX file: it begins with the bytes %d, %d instead of 0, 0"):format(
      head[0], head[1]))
  elseif not kind then
    refuse(path, ("has elements of the unknown type 0x%02X"):format(head[2]))
  elseif rank < 1 or rank > 8 then
    refuse(path, ("has %d dimensions; 1 to 8 are possible"):format(rank))
  end
  local sizes = lib.array("uint8_t", rank * 4)
  if reader:some(sizes, rank * 4) < rank * 4 then refuse(path, "ends within its sizes") end
  local shape, size = {}, kind[2]
  for d = 1, rank do
    shape[d] = u32(sizes, (d - 1) * 4)
    size = size * math.max(shape[d], 1)
  end
  if size > LIMIT then
    refuse(path, ("claims the shape (%s), more than %d GiB"):format(table.concat(shape, ", "),
      LIMIT / 2 ^ 30))
  end
  for d = 1, rank do
    if shape[d] == 0 then size = 0 end
  end
  return kind, shape, size
end

-- Converts big-endian elements to this machine's byte order in place, as integers: read as floats
-- they could be invalid Lua values.
local function swap(at, size, width)
  if width == 1 or ffi.abi("be") then return end
  for from = 0, size - width, width do
    for k = 0, width / 2 - 1 do
      local low, high = from + k, from + width - 1 - k
      at[low], at[high] = at[high], at[low]
    end
  end
end

local function read(path, fname, argument)
  local reader = gzip.open(path, fname, argument)
  local ok, x = pcall(function()
    local kind, shape, size = header(reader)
    reader:expect(size, "elements")
    local moth = require "moth"
    local elements = moth.empty(shape, {dtype = moth[kind[1]]})
    local at = ffi.cast("uint8_t *", lib.data(elements, "load_idx"))
    reader:fill(at, size, "elements")
    swap(at, size, kind[2])
    return elements
  end)
  reader:close()
  if not ok then error(x, 0) end
  return x
end

local parse_idx = define.signature("idx", {
  {"string", "path", "the file, plain or gzip"},
})

--- Reads an IDX file, plain or compressed by gzip.
-- `data.idx("train-images-idx3-ubyte.gz")` -> u8 (60000, 28, 28)
-- @param path  the file
-- @return a tensor: u8, i8, i16, i32, f32 or f64 as the file says
-- Errors: E_IO if it cannot be read, E_FORMAT if it is not a complete IDX file.
function idx.idx(...)
  return (read((parse_idx(...)), "idx"))
end

define.takes(idx.idx, parse_idx)

-- ---- MNIST and similar datasets ----

local FASHION = "/usr/share/datasets/fashion-mnist"

local function find(folder, name)
  for _, ending in ipairs {".gz", ""} do
    for _, base in ipairs {name, (name:gsub("%-idx", ".idx"))} do
      local path = folder .. "/" .. base .. ending
      local found, file = pcall(bytes.open, path, "mnist", "folder")
      if found then
        file:close()
        return path
      end
    end
  end
end

local function missing(folder, name)
  errors.raise(("%s was not found or cannot be read; Fashion-MNIST is in the " ..
    "Debian package dataset-fashion-mnist (apt-get install dataset-fashion-mnist; its folder is " ..
    "%s); MNIST's four files may be in any folder"):format(
    errors.path(folder .. "/" .. name .. "(.gz)"), FASHION), "E_IO")
end

local function pair(folder, part)
  local image_name, label_name = part .. "-images-idx3-ubyte", part .. "-labels-idx1-ubyte"
  local image_path = find(folder, image_name) or missing(folder, image_name)
  local label_path = find(folder, label_name) or missing(folder, label_name)
  local images, labels = read(image_path, "mnist", "folder"), read(label_path, "mnist", "folder")
  local count = labels:dim() == 1 and labels:size(1)
  if images:dim() ~= 3 or images.dtype ~= labels.dtype or images.dtype ~= require("moth").uint8 then
    refuse(image_path, "holds " .. errors.describe(images) .. ", not u8 images")
  elseif not count then
    refuse(label_path, "holds " .. errors.describe(labels) .. ", not one label per image")
  elseif count ~= images:size(1) then
    refuse(label_path, ("has %d labels for %d images"):format(count, images:size(1)))
  end
  return images, labels:to(require("moth").int64) + 1
end

local parse_mnist = define.signature("mnist", {
  {"string", "folder", "the folder of the four files", default = FASHION},
})

--- Reads MNIST, Fashion-MNIST or another dataset of the same four files, each plain or gzip.
-- @param folder  the folder of the files (default: the one of Debian's dataset-fashion-mnist)
-- @return {train_images, train_labels, test_images, test_labels}: images u8 (N, 28, 28), 0 to 255;
-- labels i64 (N), classes 1 to 10
function idx.mnist(...)
  local folder = (parse_mnist(...))
  local train_images, train_labels = pair(folder, "train")
  local test_images, test_labels = pair(folder, "t10k")
  return {train_images = train_images, train_labels = train_labels,
          test_images = test_images, test_labels = test_labels}
end

define.takes(idx.mnist, parse_mnist)

return idx
