--- json_lines.lua -- files of one JSON value a line (.jsonl), read as a dataset and written.
--
-- The file is mapped, and searched once for its line ends. A sample is parsed when it is read.

local ffi = require "ffi"
local bytes = require "moth.io.bytes"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local gzip = require "moth.io.gzip"
local json = require "moth.json"
local lib = require "moth.binding.lib"
local datasets = require "moth.data.dataset"

local json_lines = {}

local LIMIT = 2 ^ 31 - 2 ^ 10 -- bytes of a gzip file's text
local NEWLINE = 10

if not pcall(function() return ffi.C.moth_jl_memchr end) then -- once per state
  ffi.cdef [[void *moth_jl_memchr(const void *at, int c, size_t n) __asm__("memchr");]]
end

-- The offset of the next line end from `at`, or the end of the text.
local function line_end(self, at)
  local found = ffi.C.moth_jl_memchr(self.start + at, NEWLINE, self.size - at)
  if found == nil then return self.size end
  return tonumber(ffi.cast("const uint8_t *", found) - self.start)
end

-- Is there a character other than blanks?
local function has_text(start, from, stop)
  for i = from, stop - 1 do
    if start[i] > 32 then return true end
  end
  return false
end

-- An int64 tensor of the offsets of all lines that are not blank.
local function find_lines(self)
  local moth, room, n = require "moth", 256, 0
  local function new(size) return moth.empty(size, {dtype = moth.int64}) end
  local function numbers(x) return ffi.cast("int64_t *", lib.data(x, "JSONLines")) end
  local offsets = new(room)
  local list, at = numbers(offsets), 0
  while at < self.size do
    local stop = line_end(self, at)
    if has_text(self.start, at, stop) then
      if n == room then
        local larger = new(room * 2)
        ffi.copy(numbers(larger), list, room * 8)
        offsets, list, room = larger, numbers(larger), room * 2
      end
      list[n], n = at, n + 1
      if n % 1024 == 0 then lib.poll() end
    end
    at = stop + 1
  end
  return offsets:narrow(1, 1, n):clone()
end

local function read_text(path)
  local file = bytes.open(path, "JSONLines")
  if file.size < 2 or file.start[0] ~= 31 or file.start[1] ~= 139 then return file end
  file:close()
  local reader = gzip.open(path, "JSONLines")
  local fine, text = pcall(reader.all, reader, LIMIT)
  reader:close()
  if not fine then error(text, 0) end
  return bytes.open(bytes.memory(text), "JSONLines")
end

--- A dataset of the lines of a JSON lines file. A sample is the value of a line: a table, a string,
-- a number, a boolean, or moth.json's null. Blank lines are left out.
-- @param path  the file, plain or compressed by gzip
-- Raises E_IO; reading a sample raises E_FORMAT with the number of the line.
local JSONLines = class("JSONLines", datasets.Dataset)
json_lines.JSONLines = JSONLines

JSONLines.signature = define.signature("JSONLines", {
  {"string", "path", "the file, plain or .gz"},
})

local known -- the offsets of the dataset that a worker copies

function JSONLines:init(path)
  self.path = path
  local file = read_text(path)
  lib.C.moth_keep_always(lib.ctx, file.all)
  self.file, self.start, self.size = file, file.start, file.size
  self.offsets = known or find_lines(self)
  lib.C.moth_keep_always(lib.ctx, self.offsets)
  self.n = self.offsets:numel()
  if self.n > 0 and not (self.offsets[-1]:item() < self.size) then
    gzip.refuse(path, "was changed after its lines were counted")
  end
end

--- The number of lines that are not blank.
function JSONLines:len() return self.n end

-- The number of the line at an offset, for errors.
local function line_number(self, offset)
  local n, at = 1, 0
  while at < offset do
    n, at = n + 1, line_end(self, at) + 1
  end
  return n
end

function JSONLines:get(i)
  i = datasets.position("get", i, self.n)
  local from = tonumber(ffi.cast("int64_t *", lib.data(self.offsets, "JSONLines"))[i - 1])
  local text = ffi.string(self.start + from, line_end(self, from) - from)
  local value, why = json.decode(text)
  if value == nil then
    gzip.refuse(self.path, ("line %d: %s"):format(line_number(self, from), why))
  end
  return value
end

-- Workers map the file again and share the offsets.
function JSONLines:worker()
  if class.of(self) ~= JSONLines then return nil end
  return require("moth.data.source").source("moth.data.json_lines:again", self.path, self.offsets)
end

-- A copy of a dataset, in a worker.
function json_lines.again(path, offsets)
  known = offsets
  local fine, set = pcall(JSONLines, path)
  known = nil
  if not fine then error(set, 0) end
  return set
end

function JSONLines:__tostring()
  return ("JSONLines of %d lines: %s"):format(self.n, errors.path(self.path))
end

-- ---- writing ----

local PIECE = 1000 -- lines that are joined to one string

-- A function that returns the rows one by one.
local function each(rows)
  if type(rows) == "function" then return rows end
  local i = 0
  return function()
    i = i + 1
    return rows[i]
  end
end

--- Writes a JSON lines file, all or nothing: a value a line.
-- @param rows  a list, or a function that returns the next value, then nil: tables of strings,
-- numbers, booleans, int64s, moth.json's null, and tensors, which become nested lists
-- @param path  the file
-- @return the number of lines. Raises E_ARG for a value that JSON cannot hold, with its place.
json_lines.write_json_lines = define {
  name = "write_json_lines",
  doc = "Writes a list of values to a file, one JSON value a line.",
  examples = "{{name = 'a', x = 1}, {name = 'b', x = 2}}, os.tmpname()",
  args = {
    {"any", "rows", "a list of values, or a function that returns the next value"},
    {"string", "path", "the file to write"},
  },
  order = "moth.data.write_json_lines(rows, path)",
  outputs = "n",
  run = function(rows, path)
    if not lib.is_plain(rows) and type(rows) ~= "function" then
      errors.refuse("write_json_lines", "rows", "a list or a function is needed", rows, "E_TYPE")
    end
    local pieces, lines, n = {}, {}, 0
    for row in each(rows) do
      local text, why = json.encode(row)
      n = n + 1
      if not text then
        errors.argument("write_json_lines", "rows", ("row %d: %s"):format(n, why), "E_TYPE")
      end
      lines[#lines + 1] = text
      if #lines == PIECE then
        lines[PIECE + 1] = ""
        pieces[#pieces + 1], lines = table.concat(lines, "\n"), {}
      end
      if n % 256 == 0 then lib.poll() end
    end
    if #lines > 0 then
      lines[#lines + 1] = ""
      pieces[#pieces + 1] = table.concat(lines, "\n")
    end
    bytes.save(path, pieces, "write_json_lines", false)
    return n
  end,
}

return json_lines
