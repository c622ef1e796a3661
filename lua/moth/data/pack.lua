--- pack.lua -- serializes values to text and tokens (of tensors), and back. A DataLoader and its
-- workers exchange these messages.
--
--     local text, tensors = pack.write(2, "abc", {1, x})    -- tensors: {x}
--     local a, b = pack.read(text, pack.tokens(tensors), 1)
--
-- Each value is a letter and its data: z nil, t true, f false, n12.5; a number, i-3; an int64,
-- s3:abc a string, x2; the second tensor, d3:f32 a dtype, {...} a table's keys and values, l1,2,3;
-- a list of integers, (...) a Size, [...] a source.

local dtypes = require "moth.tensor.dtype"
local errors = require "moth.error"
local ffi = require "ffi"
local lib = require "moth.binding.lib"
local size = require "moth.tensor.size"
local sources = require "moth.data.source"

local C, ctx = lib.C, lib.ctx
local concat, format, sub, find = table.concat, string.format, string.sub, string.find

local pack = {}

-- ---- writing ----

local write

local function string_text(letter, text) return letter .. #text .. ":" .. text end

-- Returns "1,2,3" for a table that is a list of integers, else nil.
local function whole_text(t)
  local n, keys = #t, 0
  if n == 0 then return nil end
  for _ in pairs(t) do keys = keys + 1 end
  if keys ~= n then return nil end
  for i = 1, n do
    local v = t[i]
    if type(v) ~= "number" or v % 1 ~= 0 or v > 1e14 or v < -1e14 then return nil end
  end
  return concat(t, ",")
end

local function refuse(out, text, code) (out.refuse or errors.raise)(text, code) end

local function write_table(out, t)
  local depth = out.depth + 1
  if depth > 100 then
    refuse(out, "a table that contains itself, or is nested 100 deep, cannot be sent to a worker",
      "E_TYPE")
  end
  local whole = whole_text(t)
  if whole then
    out[#out + 1] = "l" .. whole .. ";"
    return
  end
  out.depth = depth
  out[#out + 1] = "{"
  for key, value in pairs(t) do
    write(out, key)
    write(out, value)
  end
  out[#out + 1] = "}"
  out.depth = depth - 1
end

local function write_object(out, value)
  if dtypes.codes[value] then
    out[#out + 1] = string_text("d", value.name)
  elseif size.is(value) then
    out[#out + 1] = "(" .. concat(value, ",") .. ")"
  elseif sources.is(value) then
    out[#out + 1] = "[" .. string_text("s", value.module) .. string_text("s", value.field)
    write(out, value.n)
    for i = 1, value.n do write(out, value.args[i]) end
  else
    return false
  end
  return true
end

write = function(out, value)
  local kind = type(value)
  if kind == "nil" then
    out[#out + 1] = "z"
  elseif kind == "boolean" then
    out[#out + 1] = value and "t" or "f"
  elseif kind == "number" then
    out[#out + 1] = format("n%.17g;", value)
  elseif kind == "string" then
    out[#out + 1] = string_text("s", value)
  elseif lib.istensor(value) then
    if value.requires_grad and not out.refuse then -- a source without workers may have one
      errors.raise(errors.describe(value) .. " requires a gradient and cannot be sent to or from a "
        .. "worker, which would lose the graph; send x:detach(), or compute it in no_grad",
        "E_GRAPH")
    end
    local at = out.seen[value]
    if not at then
      at = #out.tensors + 1
      out.tensors[at], out.seen[value] = value, at
    end
    out[#out + 1] = "x" .. at .. ";"
  elseif ffi.istype("int64_t", value) then
    out[#out + 1] = "i" .. tostring(value):gsub("LL$", ";")
  elseif kind == "table" and getmetatable(value) == nil then
    write_table(out, value)
  elseif kind ~= "table" or not write_object(out, value) then
    refuse(out, errors.describe(value) .. " cannot be sent to or from a worker; numbers, "
      .. "strings, " ..
      "booleans, tensors, plain tables of these and data.source(...) can", "E_TYPE")
  end
end

--- Serializes values. @param n  their number
-- @return the text, and a list of the tensors among the values
function pack.write(n, ...)
  local out = {depth = 0, tensors = {}, seen = {}}
  out[1] = n .. ";"
  for i = 1, n do write(out, (select(i, ...))) end
  return concat(out), out.tensors
end

--- Raises if an argument of a source cannot be serialized.
function pack.check(...)
  for i = 1, select("#", ...) do
    local function refused(text, code)
      errors.argument("source", "...", ("argument %d: %s"):format(i, text), code)
    end
    write({depth = 0, tensors = {}, seen = {}, refuse = refused}, (select(i, ...)))
  end
end

local one = ffi.new("uint64_t[1]")

--- Creates tokens for a list of tensors. @return an array of uint64_t
function pack.tokens(tensors)
  local tokens = lib.array("uint64_t", #tensors + 1)
  for i, x in ipairs(tensors) do
    local status = C.moth_token(ctx, x, one)
    if status < 0 then
      pack.drop(tokens, i - 1)
      lib.check(status, "DataLoader", x)
    end
    tokens[i - 1] = one[0]
  end
  return tokens
end

--- Frees tokens that will not be opened.
function pack.drop(tokens, n)
  for i = 0, n - 1 do C.moth_token_drop(ctx, tokens[i]) end
end

-- ---- reading ----

local function number_at(text, i, stop)
  local at = find(text, stop, i, true)
  return sub(text, i, at - 1), at + 1
end

local function string_at(text, i)
  local n, from = number_at(text, i, ":")
  return sub(text, from, from + n - 1), from + n
end

local read

local readers = {
  z = function(_, i) return nil, i end,
  t = function(_, i) return true, i end,
  f = function(_, i) return false, i end,
  n = function(text, i)
    local digits, after = number_at(text, i, ";")
    return tonumber(digits), after
  end,
  s = string_at,
  d = function(text, i)
    local name, after = string_at(text, i)
    return dtypes.by_name[name], after
  end,
  i = function(text, i)
    local digits, after = number_at(text, i, ";")
    return lib.loadstring("return " .. digits .. "LL")(), after
  end,
  x = function(text, i, tensors)
    local digits, after = number_at(text, i, ";")
    return tensors[tonumber(digits)], after
  end,
  l = function(text, i)
    local digits, after = number_at(text, i, ";")
    local list = {}
    for number in digits:gmatch("[^,]+") do list[#list + 1] = tonumber(number) end
    return list, after
  end,
  ["("] = function(text, i)
    local digits, after = number_at(text, i, ")")
    local list = {}
    for number in digits:gmatch("[^,]+") do list[#list + 1] = tonumber(number) end
    return size.new(list), after
  end,
  ["{"] = function(text, i, tensors)
    local t = {}
    while sub(text, i, i) ~= "}" do
      local key, after = read(text, i, tensors)
      t[key], i = read(text, after, tensors)
    end
    return t, i + 1
  end,
  ["["] = function(text, i, tensors)
    local module, field, n
    module, i = read(text, i)
    field, i = read(text, i)
    n, i = read(text, i)
    local args = {}
    for k = 1, n do args[k], i = read(text, i, tensors) end
    if field ~= "" then module = module .. ":" .. field end
    return sources.source(module, unpack(args, 1, n)), i
  end,
}

read = function(text, i, tensors)
  return readers[sub(text, i, i)](text, i + 1, tensors)
end

--- Reads the values of a text.
-- @param tokens   the tokens of its tensors, counted from 0
-- @param ntokens  their number
-- @param opened   a list for the tensors: after an error, for example insufficient memory, the next
-- call with this list continues after the opened tensors
-- @return the values
function pack.read(text, tokens, ntokens, opened)
  local tensors = opened or {}
  for k = #tensors + 1, ntokens do
    local h = lib.Handle()
    local status = C.moth_token_open(ctx, tokens[k - 1], h)
    if lib.recover(status) then status = C.moth_token_open(ctx, tokens[k - 1], h) end
    tensors[k] = lib.adopt(h, lib.check(status, "DataLoader"))
  end
  local n, i = number_at(text, 1, ";")
  local values = {}
  n = tonumber(n)
  for k = 1, n do values[k], i = read(text, i, tensors) end
  return unpack(values, 1, n)
end

return pack
