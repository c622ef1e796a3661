--- csv.lua -- data.csv: delimited text tables (RFC 4180), plain or compressed by gzip.
--
--     local iris = data.csv("iris.csv", {header = false, skip = 1})
--     local x = iris:tensor({1, 2, 3, 4})        -- f32 (150, 4)
--     local species = iris:column(5)             -- i64 (150)
--
-- Quoted fields may contain delimiters, line ends and "" for a quote. Lines end in LF or CRLF; a
-- byte order mark and empty lines are skipped. Every row has as many fields as the first. A column
-- of integers becomes an i64 tensor, a column of numbers a tensor of `dtype`, any other column a
-- list of strings.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local dtypes = require "moth.tensor.dtype"
local errors = require "moth.error"
local gzip = require "moth.io.gzip"
local lib = require "moth.binding.lib"
local Dataset = require("moth.data.dataset").Dataset

local ffi = require "ffi"
local byte, find, gsub, sub = string.byte, string.find, string.gsub, string.sub

local LIMIT = 2 ^ 31 - 2 ^ 10 -- bytes of text: close to the longest LuaJIT string
local QUOTE, LF, CR = 34, 10, 13

local function refuse(path, line, text)
  gzip.refuse(path, ("line %d%s"):format(line, text))
end

local shown = errors.shown

-- ---- fields ----

-- Reads the field that begins with the quote at i. Returns its text, its end, and its number of
-- line ends.
local function quoted(path, text, i, line)
  local from, breaks = i + 1, 0
  local at = from
  while true do
    local close = find(text, '"', at, true)
    if not close then refuse(path, line, ": a quoted field does not end") end
    if byte(text, close + 1) ~= QUOTE then
      local value = sub(text, from, close - 1)
      if find(value, "\n", 1, true) then
        local _, n = gsub(value, "\n", "")
        breaks = n
      end
      return (gsub(value, '""', '"')), close + 1, breaks
    end
    at = close + 2
  end
end

-- Reads the row that begins at i. @return the start and the line number of the next row
local function read_row(path, text, i, line, stop, row)
  local n = 0
  while true do
    local value, after
    if byte(text, i) == QUOTE then
      local breaks
      value, after, breaks = quoted(path, text, i, line)
      line = line + breaks
    else
      after = find(text, stop, i) or #text + 1
      value = sub(text, i, after - 1)
    end
    n = n + 1
    row[n] = value
    local c = byte(text, after)
    if c == CR and (byte(text, after + 1) == LF or after == #text) then
      after, c = after + 1, LF
    end
    if c == nil or c == LF then return after + 1, line + 1, n end
    if find(text, stop, after) ~= after or c == CR then
      refuse(path, line, (", field %d: %s follows its closing quote"):format(n,
        shown(sub(text, after, after))))
    end
    i = after + 1
  end
end

-- Reads all rows. Returns columns of strings, and the line number of each row.
local function read_rows(path, text, stop, from, line)
  local columns, lines, count, wanted = {}, {}, 0, nil
  local i, row = from, {}
  while i <= #text do
    if count % 256 == 0 then lib.poll() end
    local start = line
    local c = byte(text, i)
    if c == LF or (c == CR and byte(text, i + 1) == LF) then
      i, line = i + (c == CR and 2 or 1), line + 1
    else
      local n
      i, line, n = read_row(path, text, i, line, stop, row)
      if not wanted then
        wanted = n
        for k = 1, n do columns[k] = {} end
      elseif n ~= wanted then
        refuse(path, start, (" has %d field%s, the first row %d"):format(n, n == 1 and "" or "s",
          wanted))
      end
      count = count + 1
      lines[count] = start
      for k = 1, n do columns[k][count] = row[k] end
    end
  end
  return columns, lines
end

-- ---- numbers ----

local WHOLE = "^%s*[+-]?%d+%s*$"
local NUMBER = "^%s*[+-]?%.?%d[%deE.+-]*%s*$" -- matches all numbers, and more: tonumber decides
local words = {nan = 0 / 0, ["+nan"] = 0 / 0, ["-nan"] = 0 / 0, inf = math.huge,
               ["+inf"] = math.huge, ["-inf"] = -math.huge, infinity = math.huge,
               ["-infinity"] = -math.huge}

local function number_of(field)
  if find(field, NUMBER) then return tonumber(field) end
  return words[field:lower()]
end

-- Converts an integer that a double may not represent exactly to int64; nil beyond int64.
local function integer_of(field)
  local value = tonumber(field)
  if math.abs(value) < 2 ^ 53 then return value end
  if math.abs(value) > 2 ^ 63 then return nil end
  local sign, digits = field:match("^%s*([+-]?)0*(%d-)%s*$")
  local whole = 0ULL
  for k = 1, #digits do whole = whole * 10 + (byte(digits, k) - 48) end
  if whole > (sign == "-" and 0x8000000000000000ULL or 0x7fffffffffffffffULL) then return nil end
  return ffi.cast("int64_t", sign == "-" and -whole or whole)
end

-- Returns the type of a column: "integer", "number" or "string".
local function kind_of(fields, missing)
  local kind, some = "integer", false
  for i = 1, #fields do
    if i % 1024 == 0 then lib.poll() end
    local field = fields[i]
    if missing[field] then
      kind = "number"
    elseif kind == "integer" and find(field, WHOLE) then
      some = true
      if integer_of(field) == nil then kind = "number" end
    elseif number_of(field) then
      kind, some = "number", true
    else
      return "string"
    end
  end
  return some and kind or "string"
end

-- Raises for a field of a column; the message names its row and column.
local function refuse_field(self, k, i, why)
  refuse(self.path, self.lines[i], (", column %d%s: %s %s"):format(k,
    self.named and (" (%s)"):format(shown(self.names[k])) or "", shown(self.fields[k][i]), why))
end

-- Converts a column to a tensor. Raises for a field that is not a number of its dtype.
local function to_tensor(self, k, dtype)
  local moth, fields, values = require "moth", self.fields[k], {}
  local whole = not dtype.is_floating_point
  for i = 1, #fields do
    if i % 1024 == 0 then lib.poll() end
    local field, value = fields[i], nil
    if whole then
      if find(field, WHOLE) then value = integer_of(field) end
    elseif self.missing[field] then
      value = 0 / 0
    else
      value = number_of(field)
    end
    if value == nil then
      refuse_field(self, k, i, whole and "is not a value of " .. tostring(dtype)
        or "is not a number")
    end
    values[i] = value
  end
  if #values == 0 then return (moth.zeros({0}, {dtype = dtype})) end
  local fits, x = pcall(moth.tensor, values, {dtype = dtype})
  if fits then return x end
  for i = 1, #values do
    if not pcall(moth.tensor, values[i], {dtype = dtype}) then
      refuse_field(self, k, i, "does not fit " .. tostring(dtype))
    end
  end
  error(x, 0)
end

-- ---- the table ----

--- The result of data.csv: named columns. It is also a dataset: a sample is a row, as a table of
-- name and value. Its field `names` is the list of the columns' names.
local Table = class("Table", Dataset)

function Table:init(path, columns, lines, names, named, options)
  self.path, self.fields, self.lines, self.names = path, columns, lines, names
  self.named, self.dtype, self.dtypes, self.missing = named, options.dtype, options.dtypes,
    options.missing
  self.places, self.made = {}, {}
  for k, name in ipairs(names) do
    if self.places[name] then
      refuse(path, 1, (": columns %d and %d are both named %s"):format(self.places[name], k,
        shown(name)))
    end
    self.places[name] = k
  end
end

--- The number of rows.
function Table:len()
  return #self.lines
end

-- Returns the position of a column from its name or position.
local function place_of(self, fname, column)
  local k = self.places[column] or type(column) == "number" and column
  if k and k < 0 then k = #self.names + 1 + k end
  if not k or not self.names[k] then
    local text = type(column) == "string"
    errors.argument(fname, "column", ("%s has no column %s%s"):format(errors.path(self.path),
      (text and shown or errors.describe)(column), text and errors.nearest(column, self.names)
      or ("; they are 1 to %d"):format(#self.names)), "E_INDEX")
  end
  return k
end

--- Returns a column: a tensor of its numbers, or a list of its strings.
-- @param column  its name or position
-- @param dtype   the required dtype, or "string" (default: inferred from the fields)
function Table:column(column, dtype)
  local k = place_of(self, "column", column)
  dtype = dtype or self.dtypes[self.names[k]] or self.dtypes[k]
  if self.shared and lib.istensor(self.made[k]) then
    return (self.made[k]:to(dtype or self.made[k].dtype))
  end
  if not dtype then
    local kind = kind_of(self.fields[k], self.missing)
    dtype = kind == "integer" and require("moth").int64 or kind == "number" and self.dtype
      or "string"
  end
  if dtype == "string" then
    local list = {}
    for i, field in ipairs(self.fields[k]) do list[i] = field end
    return list
  end
  if not dtypes.codes[dtype] then
    errors.refuse("column", "dtype", "a dtype or 'string' is needed", dtype, "E_TYPE")
  end
  return (to_tensor(self, k, dtype))
end

--- Returns several columns as one tensor, (rows, columns).
-- @param columns  a list of names and positions (default: all)
-- @param dtype    its dtype (default: data.csv's `dtype`)
function Table:tensor(columns, dtype)
  local moth, parts = require "moth", {}
  if columns == nil then
    columns = {}
    for k = 1, #self.names do columns[k] = k end
  elseif type(columns) ~= "table" then
    columns = {columns}
  end
  for i, column in ipairs(columns) do
    parts[i] = to_tensor(self, place_of(self, "tensor", column), dtype or self.dtype)
  end
  return (moth.stack(parts, {dim = 2}))
end

function Table:get(i)
  i = require("moth.data.dataset").position("get", i, self:len())
  local row = {}
  for k, name in ipairs(self.names) do
    local column = self.made[k]
    if column == nil then
      column = self:column(k)
      if lib.istensor(column) then lib.check(lib.C.moth_keep_always(lib.ctx, column), "csv") end
      self.made[k] = column
    end
    if lib.istensor(column) then row[name] = column:select(1, i) else row[name] = column[i] end
  end
  return row
end

-- Workers get the parsed columns as shared tensors and do not read the file again.
function Table:worker()
  if class.of(self) ~= Table then return nil end
  local options = {dtype = self.dtype, dtypes = self.dtypes, missing = self.missing}
  if self:len() > 0 then self:get(1) end -- converts columns of numbers to tensors
  local fields = {}
  for k, made in ipairs(self.made) do fields[k] = lib.istensor(made) and {} or made end
  return require("moth.data.source").source("moth.data.csv:again", self.path, fields, self.lines,
    self.names, self.named, options, self.made)
end

function Table:__tostring()
  return ("Table of %d rows: %s"):format(self:len(), table.concat(self.names, ", "))
end

-- ---- reading ----

local parse = define.signature("csv", {
  {"string", "path", "the file, plain or .gz"},
  {"bool", "header", "does the first row name the columns?", default = true},
  {"string", "delimiter", "the separator of fields: one character, or \"space\" for runs of blanks",
    default = ","},
  {"any", "columns", "the columns to read, by name or position; default: all", optional = true},
  {"int", "skip", "lines before the table", default = 0},
  {"dtype", "dtype", "dtype of columns of numbers with fractions", optional = true},
  {"any", "dtypes", "dtypes (or \"string\") of some columns, by name or position",
    optional = true},
  {"any", "missing", "a list of the texts of missing numbers; these become NaN",
    optional = true},
})

local MISSING = {"", "NA", "N/A", "nan", "NaN", "null"}

-- Returns a pattern that matches the end of an unquoted field.
local function stop_of(delimiter)
  if #delimiter ~= 1 or find(delimiter, '["\r\n]') then
    errors.refuse("csv", "delimiter", "one character or \"space\" is needed", delimiter)
  end
  return "[\n\r" .. gsub(delimiter, "[%^%]%-%%]", "%%%0") .. "]"
end

-- Replaces runs of blanks between fields by one tab; removes those at line ends.
local function squeeze(text)
  return (gsub(gsub(gsub(text, "[ \t]+", "\t"), "\t?(\r?\n)\t?", "%1"), "^\t", ""):gsub("\t$", ""))
end

local function skip_lines(path, text, skip)
  local i = sub(text, 1, 3) == "\239\187\191" and 4 or 1
  for line = 1, skip do
    local stop = find(text, "\n", i, true)
    if not stop then
      gzip.refuse(path, ("has %d lines, fewer than the %d to skip"):format(line, skip))
    end
    i = stop + 1
  end
  return i
end

-- Returns the names of the columns, from the first row if it is a header.
local function names_of(columns, lines, header)
  local names = {}
  for k, column in ipairs(columns) do
    names[k] = header and table.remove(column, 1) or "column" .. k
  end
  if header then table.remove(lines, 1) end
  return names
end

-- Returns the requested columns, in the requested order.
local function choose(self, wanted)
  if not lib.is_plain(wanted) then
    errors.refuse("csv", "columns", "a list of names or positions is needed", wanted, "E_TYPE")
  end
  local names, fields = {}, {}
  for i, column in ipairs(wanted) do
    local k = place_of(self, "csv", column)
    names[i], fields[i] = self.names[k], self.fields[k]
  end
  return fields, names
end

local function read_text(path)
  local reader = gzip.open(path, "csv")
  local ok, text = pcall(reader.all, reader, LIMIT)
  reader:close()
  if not ok then error(text, 0) end
  return text
end

--- Reads a table of text.
-- @param path       the file, plain or compressed by gzip
-- @param header     does the first row name the columns? (default true; else the names are
-- column1, column2, ...)
-- @param delimiter  between fields: one character (default ","), or "space" for runs of blanks
-- @param columns    the columns to read, a list of names and positions (default: all)
-- @param skip       the number of lines before the table (default 0)
-- @param dtype      dtype of columns with fractions (default: the default dtype, f32)
-- @param dtypes     dtypes of some columns, or "string": {id = "string", [2] = moth.float64}
-- @param missing    the texts of missing numbers (default "", NA, N/A, nan, NaN, null)
-- @return a Table, with :column(name), :tensor{names}, :len(), .names
local function csv(...)
  local path, header, delimiter, columns, skip, dtype, types, missing = parse(...)
  local text = read_text(path)
  local from = skip_lines(path, text, skip)
  if delimiter == "space" then
    text, from, delimiter = squeeze(sub(text, from)), 1, "\t"
  end
  local fields, lines = read_rows(path, text, stop_of(delimiter), from, skip + 1)
  if #lines == 0 then gzip.refuse(path, "has no rows") end
  local options = {dtype = dtype or require("moth").get_default_dtype(), dtypes = types or {},
                   missing = {}}
  for _, word in ipairs(missing or MISSING) do options.missing[word] = true end
  local names = names_of(fields, lines, header)
  local all = Table(path, fields, lines, names, header, options)
  if columns == nil then return all end
  fields, names = choose(all, columns)
  return (Table(path, fields, lines, names, header, options))
end

define.takes(csv, parse)

-- Creates a table from the data that Table:worker passes to a worker.
local function again(path, fields, lines, names, named, options, made)
  local self = Table(path, fields, lines, names, named, options)
  self.made, self.shared = made, true
  return self
end

return {csv = csv, Table = Table, again = again}
