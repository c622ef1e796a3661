--- npz.lua -- reads and writes NumPy's archives of arrays: zip files with a member `NAME.npy` for
-- each array.
--
-- Stored arrays share the file's pages if they are aligned: in Moth's files they are, in most of
-- NumPy's they are not.

local bytes = require "moth.io.bytes"
local errors = require "moth.error"
local foreign = require "moth.io.foreign"
local lib = require "moth.binding.lib"
local npy = require "moth.io.npy"
local zip = require "moth.io.zip"

local npz = {}

local shown = errors.shown

--- Reads the arrays of an open archive.
-- @return a table of name to tensor. A member that is no .npy file is a string; an array whose
-- type cannot be read is a placeholder, with a warning
function npz.read(archive, fname, device)
  local result, notes, arrays = {}, {}, 0
  for _, member in ipairs(archive.names) do
    lib.poll()
    local name = member:match "^(.*)%.npy$"
    if result[name or member] ~= nil then
      archive.file:refuse("has two members " .. shown(name or member))
    elseif name then
      arrays = arrays + 1
      local all, from, size = archive:bytes(member)
      local x, why = npy.decode(all, from, size, fname, function(text, code)
        archive.file:refuse(("has a member %s that %s"):format(shown(member), text), code)
      end, notes)
      if x == nil then
        local text = ("array %s %s"):format(shown(name), why)
        notes[text .. " and is not loaded"] = 1
        x = foreign.unread(text)
      end
      result[name] = npy.moved(x, device)
    elseif not member:find "/$" then -- a folder
      result[member] = archive:read(member)
    end
  end
  if arrays == 0 and #archive.names > 0 then
    archive.file:refuse("is a zip archive without data.pkl and without arrays (.npy): neither "
      .. "torch.save nor numpy.savez wrote it")
  end
  if next(notes) then foreign.warn(archive.file.shown, notes) end
  return result
end

--- Reads a .npz file.
-- @param source  the path, or bytes.memory(...)
-- @param fname   the function that errors name
-- @param device  the device of the tensors (default "cpu")
-- @param mmap    share the file's pages instead of reading it (default true)
function npz.load(source, fname, device, mmap)
  local archive = zip.open(source, fname, mmap)
  local result = npz.read(archive, fname, device)
  archive:close()
  return result
end

-- ---- writing ----

local function refuse(text, code) errors.argument("save", "value", text, code) end

-- Lists of the names and the tensors of a value, sorted by name; lists are named as by numpy.savez.
local function members_of(value)
  if lib.istensor(value) then value = {value} end
  if not lib.is_plain(value) then
    errors.refuse("save", "value", "a tensor, or a table of names to tensors is needed", value,
      "E_TYPE")
  end
  local names, tensors = {}, {}
  for key, x in pairs(value) do
    local name = type(key) == "number" and ("arr_%d"):format(key - 1) or key
    if type(name) ~= "string" or name == "" or name:find "%z" then
      refuse("names of arrays are texts, got " .. errors.describe(key), "E_TYPE")
    elseif not lib.istensor(x) then
      refuse(("a .npz file holds tensors by name, and '%s' is %s; a .safetensors file holds "
        .. "nested tables"):format(name, errors.describe(x)), "E_TYPE")
    elseif tensors[name] then
      refuse("two arrays are named " .. shown(name))
    end
    names[#names + 1], tensors[name] = name, x
  end
  table.sort(names)
  return names, tensors
end

--- Writes tensors to a .npz file.
-- @param value       a table of names to tensors; a list, whose names are arr_0, arr_1, ...; or
-- one tensor, arr_0
-- @param compressed  by deflate
function npz.save(value, path, compressed, durable)
  local names, tensors = members_of(value)
  local writer = require("moth.io.zip_writer").new(compressed)
  for _, name in ipairs(names) do
    local head, x = npy.pieces(tensors[name], function(text, code)
      refuse(("array %s: %s"):format(shown(name), text), code)
    end)
    writer:add(name .. ".npy", head, x)
  end
  bytes.save(path, writer:finish(), "save", durable)
end

return npz
