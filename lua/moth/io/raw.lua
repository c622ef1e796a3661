--- raw.lua -- moth.io.read_file and write_file: the bytes of a file as a tensor.

local bytes = require "moth.io.bytes"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local raw = {}

--- Reads a file as it is.
-- @param path  the file
-- @return a uint8 tensor of one dimension. Raises E_IO. Source: torchvision.io.read_file
raw.read_file = define {
  name = "read_file",
  doc = "The bytes of a file, as a uint8 tensor of one dimension.",
  examples = "(function() local path = os.tmpname(); "
    .. "moth.io.write_file(path, moth.tensor({77}, {dtype = moth.uint8})); return path end)()",
  args = {{"string", "path", "the file to read"}},
  outputs = "bytes",
  run = function(path) return bytes.open(path, "read_file", "path", false).all end,
}

--- Writes the bytes of a tensor to a file, all or nothing. Does not wait for the disk.
-- @param filename  the file to write
-- @param data      a uint8 tensor of one dimension
-- Raises E_IO. Source: torchvision.io.write_file
raw.write_file = define {
  name = "write_file",
  doc = "Writes a uint8 tensor of one dimension to a file: the whole file or nothing.",
  examples = "os.tmpname(), moth.tensor({77, 111}, {dtype = moth.uint8})",
  args = {
    {"string", "filename", "the file to write"},
    {"tensor", "data", "the bytes: uint8, one dimension"},
  },
  order = "moth.io.write_file(filename, data)",
  outputs = "",
  run = function(filename, data)
    local info = lib.inspect(data, "write_file", "data")
    if info.dtype ~= lib.C.MOTH_U8 or info.ndim ~= 1 then
      errors.refuse("write_file", "data", "a uint8 tensor of one dimension is needed", data,
        "E_TYPE")
    end
    bytes.save(filename, {data:cpu():contiguous()}, "write_file", false,
      "filename")
  end,
}

return raw
