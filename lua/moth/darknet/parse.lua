--- parse.lua -- reads Darknet's .cfg files as lists of sections, and checks their options.
--
--     [convolutional]
--     filters=16        # a comment
--
-- Format: pjreddie/darknet, src/option_list.c and src/parser.c.

local bytes = require "moth.io.bytes"
local errors = require "moth.error"

local bare, shown = errors.bare, errors.shown

local parse = {}

local MAX_INT = 2 ^ 20 -- the largest integer
local MOST_SECTIONS = 10000
local MAX_BYTES = 2 ^ 24 -- bytes

--- Raises an error about a cfg; `section` may be nil.
function parse.refuse(cfg, section, text, code)
  local where = section and (" section %d, [%s], line %d"):format(section.index,
    bare(section.type), section.line) or ""
  errors.argument(cfg.fname, "cfg", ("%s%s: %s"):format(cfg.shown, where, text),
    code or "E_FORMAT")
end

--- Raises for a name that is not a key of `known`; `text` is the message, with a %s for the name.
function parse.refuse_unknown(section, text, name, known)
  local names = {}
  for other in pairs(known) do names[#names + 1] = other end
  table.sort(names)
  parse.refuse(section.cfg, section, text:format(bare(name)) .. errors.nearest(name, names),
    "E_UNSUPPORTED")
end

-- Keys of Darknet that are similar to a key that is read.
local OTHERS = {padding = true, pad = true, num = true, max = true, steps = true, scales = true,
                stride_x = true, stride_y = true, reverse = true}

--- Warns of unknown keys that are similar to a known key: they are probably misspelt.
function parse.warn_of_unread(section)
  local read = {}
  for key in pairs(section.read) do read[#read + 1] = key end
  table.sort(read)
  for key in pairs(section.options) do
    local unread = not section.read[key] and not OTHERS[key]
    local hint = unread and errors.nearest(key, read) or ""
    if hint ~= "" then
      require("moth").warn(("%s section %d, [%s], line %d: the key %s is not read%s"):format(
        section.cfg.shown, section.index, bare(section.type), section.line, shown(key),
        hint))
    end
  end
end

local Section = {}
Section.__index = Section

local function number_of(self, key, default, text)
  local value = self.options[key]
  self.read[key] = true
  if value == nil then return default end
  local number = tonumber(value)
  if not number or number ~= number or math.abs(number) == math.huge then
    parse.refuse(self.cfg, self, ("%s=%s is no %s"):format(key, bare(value), text))
  end
  return number
end

--- A number; the default if it is absent.
function Section:number(key, default) return number_of(self, key, default, "number") end

--- An integer, at least `least` (default 0).
function Section:int(key, default, least)
  local n = number_of(self, key, default, "integer")
  if n and (n % 1 ~= 0 or n < (least or 0) or n > MAX_INT) then
    parse.refuse(self.cfg, self, ("%s=%s is no integer from %d to %d"):format(key,
      self.options[key] and bare(self.options[key]) or n, least or 0, MAX_INT))
  end
  return n
end

--- A text.
function Section:text(key, default)
  self.read[key] = true
  return self.options[key] or default
end

--- A list of numbers, "10,14, 23,27"; integers if `whole`.
function Section:list(key, default, whole)
  local value, list = self.options[key], {}
  self.read[key] = true
  if value == nil then return default end
  for item in value:gmatch "[^,%s]+" do
    local number = tonumber(item)
    if not number or not (math.abs(number) <= MAX_INT) or whole and number % 1 ~= 0 then
      parse.refuse(self.cfg, self, ("%s=%s is no list of %snumbers"):format(key, bare(value),
        whole and "whole " or ""))
    end
    list[#list + 1] = number
  end
  return list
end

local function read(path, fname)
  local file = bytes.open(path, fname, "cfg")
  if file.size > MAX_BYTES then file:refuse(("has more than %d bytes"):format(MAX_BYTES)) end
  local text = file:text(file.size)
  file:close()
  return text
end

-- Removes the spaces at both ends, in linear time.
local function trimmed(text)
  local first = text:find "%S"
  return first and text:match(".*%S", first) or ""
end

--- The sections of a cfg.
-- @param given  the file, or its text, which has more than one line
-- @param fname  the function that errors name
-- @return a list of sections {type =, options =, index =, line =}: index counts from 0 like
-- Darknet's layers; [net] has -1
function parse.cfg(given, fname)
  local is_text = given:find("\n", 1, true) ~= nil
  local cfg = {fname = fname, shown = is_text and "the cfg" or errors.path(given)}
  local number, section = 0, nil
  for line in ((is_text and given or read(given, fname)) .. "\n"):gmatch "(.-)\r?\n" do
    number = number + 1
    line = trimmed(line:gsub("[#;].*", ""))
    local name = line:match "^%[%s*([%w_]+)%s*%]$"
    if name then
      if #cfg == MOST_SECTIONS then parse.refuse(cfg, nil, "more than 10000 sections") end
      section = setmetatable({type = name, options = {}, read = {}, index = #cfg - 1,
        line = number, cfg = cfg}, Section)
      cfg[#cfg + 1] = section
    elseif line ~= "" then
      local key, value = line:match "^([^=]*)=%s*(.*)$"
      key = trimmed(key or "")
      if key == "" or not section then
        parse.refuse(cfg, nil, ("line %d is neither [section] nor key=value: %s"):format(number,
          shown(line)))
      end
      section.options[key] = value
    end
  end
  local first = cfg[1]
  if not first or first.type ~= "net" and first.type ~= "network" then
    parse.refuse(cfg, nil, "does not begin with [net]")
  end
  return cfg
end

return parse
