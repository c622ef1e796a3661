--- tar_writer.lua -- data.TarWriter: writes the samples that data.WebDataset reads.

local ffi = require "ffi"
local bytes = require "moth.io.bytes"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local json = require "moth.json"
local lib = require "moth.binding.lib"

local BLOCK = 512

local function refuse(text, code) errors.argument("write", "sample", text, code or "E_TYPE") end

-- ---- encoding ----

local function raw(x) return ffi.string(bytes.address(x), x:numel() * x.dtype.itemsize) end

local function npy(x, name)
  if not lib.istensor(x) then refuse(name .. ": a tensor is needed, got " .. errors.describe(x)) end
  local head, y = require("moth.io.npy").pieces(x, refuse)
  return head .. raw(y:cpu():contiguous())
end

local function picture(encode)
  return function(x) return raw(require("moth").io[encode](x)) end
end

-- Lua's numbers are exact up to 2^53; int64 and uint64 above it are written digit by digit.
local function integer(shift)
  return function(x, name)
    if lib.istensor(x) and x:numel() == 1 then x = x:item() end
    local n = not lib.istensor(x) and tonumber(x)
    local exact = type(x) == "cdata"
    if not n or n % 1 ~= 0 or n < shift or n > 2 ^ 53 and not exact then
      refuse(("%s: an integer from %d on is needed, got %s"):format(name, shift,
        errors.describe(x)))
    end
    return exact and (tostring(x - shift):gsub("U?LL$", "")) or ("%d"):format(n - shift)
  end
end

local function json_text(x, name)
  local text, why = json.encode(x)
  return text or refuse(("%s: %s"):format(name, why))
end

local ENCODERS = {npy = npy, png = picture "encode_png", jpg = picture "encode_jpeg",
  jpeg = picture "encode_jpeg", cls = integer(1), cls2 = integer(1), index = integer(0),
  inx = integer(0), id = integer(0), json = json_text, jsn = json_text}

local function encode(name, value)
  if type(value) == "string" then return value end
  local encoder = ENCODERS[name:match "[^.]*$"]
  if not encoder then
    refuse(("%s: a string is needed, got %s"):format(name, errors.describe(value)))
  end
  return encoder(value, name)
end

-- ---- blocks ----

local function octal(n, width) return ("%0" .. width - 1 .. "o\0"):format(n) end

local function block(name, size, kind)
  local before = name .. ("\0"):rep(100 - #name) .. octal(420, 8) .. octal(0, 8) .. octal(0, 8)
    .. octal(size, 12) .. octal(0, 12)
  local after = kind .. ("\0"):rep(100) .. "ustar\00000" .. ("\0"):rep(247)
  local sum = 8 * 32
  for i = 1, #before do sum = sum + before:byte(i) end
  for i = 1, #after do sum = sum + after:byte(i) end
  return before .. ("%06o\0 "):format(sum) .. after
end

local function padded(text) return text .. ("\0"):rep(-#text % BLOCK) end

-- A record of a pax header, whose length counts itself.
local function record(key, value)
  local rest = (" %s=%s\n"):format(key, value)
  local size = #rest + 1
  while #tostring(size) + #rest ~= size do size = #tostring(size) + #rest end
  return size .. rest
end

local function member(name, text)
  local long = ""
  if #name > 100 then
    local records = record("path", name)
    long, name = block("pax", #records, "x") .. padded(records), name:sub(-100)
  end
  return long .. block(name, #text, "0") .. padded(text)
end

-- ---- the writer ----

--- Writes a tar archive of samples for data.WebDataset. The archive appears at `path` when the
-- writer is closed.
-- @param path  the archive
-- `writer:write(sample)` adds {__key__ = "0001", jpg = ..., cls = ...}: a string is written as it
-- is; a tensor as .npy, .png or .jpg; a class from 1 as .cls, which counts from 0 in the file; a
-- table as .json. `writer:close()` ends the archive. Raises E_IO.
local TarWriter = class("TarWriter")

TarWriter.signature = define.signature("TarWriter", {{"string", "path", "the archive to write"}})

local function check(self, good, why)
  if good then return good end
  errors.raise(("cannot write %s: %s"):format(errors.path(self.path), tostring(why)), "E_IO")
end

function TarWriter:init(path)
  self.path, self.part, self.count = path, path .. ".part", 0
  self.file = check(self, io.open(self.part, "wb"))
end

--- Adds a sample.
-- @param sample  a table: `__key__`, a name without a dot in its last part; and files by ending
function TarWriter:write(sample)
  if not self.file then errors.raise("write: the archive is closed", "E_STATE") end
  local key = lib.is_plain(sample) and sample.__key__
  if type(key) ~= "string" or not key:find "^[^%z]*[^/%z]$" or key:find "%.[^/]*$" then
    refuse "a table with a name __key__ is needed, without a dot in the name"
  end
  local names, parts = {}, {}
  for name in pairs(sample) do
    if type(name) ~= "string" then refuse("names are strings, got " .. errors.describe(name)) end
    if not name:find "^[^/%z]+$" then
      refuse("names are endings of files, without / and NUL, got " .. errors.describe(name))
    end
    if name:sub(1, 2) ~= "__" then names[#names + 1] = name end
  end
  table.sort(names)
  for i, name in ipairs(names) do
    parts[i] = member(key .. "." .. name, encode(name, sample[name]))
  end
  check(self, self.file:write(unpack(parts)))
  self.count = self.count + 1
end

--- Ends the archive and gives it its name.
function TarWriter:close()
  if not self.file then return end
  local file = self.file
  self.file = nil
  local good, why = file:write(("\0"):rep(2 * BLOCK))
  local closed, failed = file:close()
  check(self, good and closed, why or failed)
  check(self, os.rename(self.part, self.path))
end

function TarWriter:__tostring()
  return ("TarWriter of %s, %d samples"):format(errors.path(self.path), self.count)
end

return {TarWriter = TarWriter}
