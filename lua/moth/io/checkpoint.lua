--- checkpoint.lua -- converts nested tables to a flat list of named tensors and a JSON text, and
-- back.
--
--     {epoch = 3, model = {["fc.weight"] = w}, losses = {0.9, 0.5}}
--
-- becomes the tensor `model/fc.weight` and the text
--
--     {"epoch":3,"losses":[0.90000000000000002,0.5],"model":{"fc.weight":
--      {"$tensor":"model/fc.weight"}}}
--
-- A value that JSON cannot express is an object with one key that begins with `$`: $tensor (its
-- name), $number (nan, inf, -inf), $i64, $u64, $bytes (a string that is not UTF-8, in
-- hexadecimal), $size, $none, and $table, a list of {key, value} pairs for tables with keys other
-- than strings. A plain state_dict (names to tensors) needs no text, and its names have no prefix.

local ffi = require "ffi"
local class = require "moth.base.class"
local errors = require "moth.error"
local json = require "moth.json"
local lib = require "moth.binding.lib"
local size = require "moth.tensor.size"

local concat, format, sort = table.concat, string.format, table.sort

local MAX_DEPTH = 300 -- tables in tables; the text nests at most three levels for each

local checkpoint = {}

-- ---- packing ----

local function refuse(text) error({text = text}, 0) end

-- The path of a value, for messages: value.model["a b"][1].
local function place(path)
  local parts = {"value"}
  for i = 1, #path do
    local key = path[i]
    if type(key) == "string" and key:find("^[%a_][%w_]*$") then
      parts[i + 1] = "." .. key
    else
      parts[i + 1] = "[" .. (type(key) == "string" and format("%q", key) or tostring(key)) .. "]"
    end
  end
  return concat(parts)
end

-- Tables that are saved by content: plain tables and the results of :state_dict().
local function is_plain(t) return getmetatable(t) == nil or class.typename(t) == "StateDict" end

local function hex(bytes)
  return (bytes:gsub(".", function(c) return format("%02x", c:byte()) end))
end

-- The part of a tensor's name for a key: always UTF-8.
local function component(key)
  if type(key) == "number" then return json.number(key) end
  key = tostring(key)
  if not json.bad_utf8(key) then return key end
  return (key:gsub("[%%\128-\255]", function(c) return format("%%%02X", c:byte()) end))
end

local function unique(state, name)
  local result, n = name, 1
  while state.used[result] do
    n = n + 1
    result = name .. "#" .. n
  end
  state.used[result] = true
  return result
end

local function put(state, text)
  state.n = state.n + 1
  state.parts[state.n] = text
end

local function put_tensor(state, x)
  local name = #state.names_path == 0 and "tensor" or concat(state.names_path, "/")
  name = unique(state, name)
  state.names[#state.names + 1] = name
  state.tensors[#state.tensors + 1] = x
  put(state, format('{"$tensor":%s}', json.string(name)))
end

local function put_string(state, s)
  if json.bad_utf8(s) then put(state, format('{"$bytes":"%s"}', hex(s)))
  else put(state, json.string(s)) end
end

local function put_number(state, x)
  if x ~= x then put(state, '{"$number":"nan"}')
  elseif x == math.huge then put(state, '{"$number":"inf"}')
  elseif x == -math.huge then put(state, '{"$number":"-inf"}')
  else put(state, json.number(x)) end
end

local put_value

-- Packs a value that is stored under a key. part: the text for the key in names of tensors.
local function put_under(state, key, part, value)
  local path, names = state.path, state.names_path
  path[#path + 1], names[#names + 1] = key, part
  put_value(state, value)
  path[#path], names[#names] = nil, nil
end

local rank = {number = 1, string = 2, boolean = 3}

local function before(a, b)
  local x, y = type(a), type(b)
  if x ~= y then return rank[x] < rank[y] end
  if x == "boolean" then return b and not a end
  return a < b
end

-- The sorted keys; whether they are 1..n; whether they can be keys of a JSON object.
local function survey(state, t)
  local keys, n, plain = {}, 0, true
  for key in next, t do
    n = n + 1
    keys[n] = key
    local kind = type(key)
    if not rank[kind] then
      refuse(format("%s has a key that is a %s; keys are strings, numbers or booleans",
        place(state.path), kind))
    end
    if kind ~= "string" or key:sub(1, 1) == "$" or json.bad_utf8(key) then plain = false end
  end
  for i = 1, n do
    if rawget(t, i) == nil then
      sort(keys, before)
      return keys, false, plain
    end
  end
  return keys, true, plain
end

local function put_list(state, t, n)
  put(state, "[")
  for i = 1, n do
    if i > 1 then put(state, ",") end
    put_under(state, i, format("%d", i - 1), t[i]) -- names count from 0, as PyTorch's do
  end
  put(state, "]")
end

local function put_object(state, t, keys)
  put(state, "{")
  for i = 1, #keys do
    put(state, (i > 1 and "," or "") .. json.string(keys[i]) .. ":")
    put_under(state, keys[i], component(keys[i]), t[keys[i]])
  end
  put(state, "}")
end

local function put_pairs(state, t, keys)
  put(state, '{"$table":[')
  for i = 1, #keys do
    put(state, i > 1 and ",[" or "[")
    local key = keys[i]
    put_value(state, key)
    put(state, ",")
    put_under(state, key, component(key), t[key])
    put(state, "]")
  end
  put(state, "]}")
end

local function put_table(state, t)
  if t == lib.none then return put(state, '{"$none":true}') end
  if state.open[t] then
    refuse(format("%s is a table that contains itself", place(state.path)))
  end
  local is_size = size.is(t)
  if not is_size and not is_plain(t) then
    local name = class.typename(t)
    refuse(format("%s is %s; only plain tables can be saved%s", place(state.path),
      name and errors.one(name) or "a table with a metatable",
      type(t.state_dict) == "function" and ": save its :state_dict()" or ""))
  end
  if #state.path >= MAX_DEPTH then
    refuse(format("tables nest more than %d deep", MAX_DEPTH))
  end
  state.open[t] = true
  local keys, is_list, plain = survey(state, t)
  if is_size then put(state, '{"$size":') end
  if is_list then put_list(state, t, #keys)
  elseif plain then put_object(state, t, keys)
  else put_pairs(state, t, keys) end
  if is_size then put(state, "}") end
  state.open[t] = nil
end

function put_value(state, value)
  local kind = type(value)
  if kind == "table" then put_table(state, value)
  elseif kind == "string" then put_string(state, value)
  elseif kind == "number" then put_number(state, value)
  elseif kind == "boolean" then put(state, tostring(value))
  elseif lib.istensor(value) then put_tensor(state, value)
  elseif kind == "cdata" and ffi.istype("int64_t", value) then
    put(state, format('{"$i64":"%s"}', tostring(value):gsub("LL$", "")))
  elseif kind == "cdata" and ffi.istype("uint64_t", value) then
    put(state, format('{"$u64":"%s"}', tostring(value):gsub("ULL$", "")))
  else
    refuse(format("%s is a %s; tensors, numbers, strings, booleans and tables of them can be saved",
      place(state.path), kind))
  end
end

-- The sorted names if `value` is a plain table of names to tensors, else nil.
local function flat_names(value)
  if type(value) ~= "table" or not is_plain(value) then return nil end
  local names = {}
  for name, x in next, value do
    if type(name) ~= "string" or not lib.istensor(x) or name == "__metadata__"
      or json.bad_utf8(name) then return nil end
    names[#names + 1] = name
  end
  sort(names)
  return names
end

local function pack(value)
  local names, tensors = flat_names(value), {}
  if names then
    for i = 1, #names do tensors[i] = value[names[i]] end
    return {names = names, tensors = tensors}
  end
  local state = {parts = {}, n = 0, names = {}, tensors = {}, used = {__metadata__ = true},
    open = {}, path = {}, names_path = {}}
  put_value(state, value)
  return {names = state.names, tensors = state.tensors, text = concat(state.parts)}
end

--- Packs a value.
-- @param value  tensors, numbers, strings, booleans, int64 and (nested) plain tables of them
-- @return {names =, tensors =, text =}: lists of equal length, and the JSON text, nil for a plain
-- state_dict; or nil and a message that names the value that cannot be saved and its path
function checkpoint.pack(value)
  local fine, result = pcall(pack, value)
  if fine then return result end
  if type(result) ~= "table" then error(result, 0) end
  return nil, result.text
end

-- ---- unpacking ----

local numbers = {nan = 0 / 0, inf = math.huge, ["-inf"] = -math.huge}

-- A 64-bit integer from decimal digits, without loadstring: no text of a file is ever run.
local function integer(text, signed)
  if type(text) ~= "string" then return nil end
  local sign, digits = text:match("^(%-?)(%d+)$")
  if not digits or #digits > 20 or (sign == "-" and not signed) then return nil end
  local value = 0ULL
  for i = 1, #digits do
    local digit = digits:byte(i) - 48
    if value > (0xffffffffffffffffULL - digit) / 10 then return nil end
    value = value * 10 + digit
  end
  if not signed then return value end
  local most = sign == "-" and 0x8000000000000000ULL or 0x7fffffffffffffffULL
  if value > most then return nil end
  return ffi.cast("int64_t", sign == "-" and -value or value)
end

local build

local tags = {}

function tags.tensor(name, get)
  if type(name) ~= "string" then return nil end
  local x = get(name)
  if x == nil then refuse(format("the tensor %s is missing", errors.shown(name))) end
  return x
end

function tags.number(name) return type(name) == "string" and numbers[name] or nil end
function tags.i64(text) return integer(text, true) end
function tags.u64(text) return integer(text, false) end
function tags.none(value) return value == true and lib.none or nil end

function tags.bytes(text)
  if type(text) ~= "string" or #text % 2 == 1 or text:find("%X") then return nil end
  return (text:gsub("%x%x", function(pair) return string.char(tonumber(pair, 16)) end))
end

function tags.size(list)
  if type(list) ~= "table" or list == json.null then return nil end
  for key, n in next, list do
    if type(key) ~= "number" or type(n) ~= "number" or n % 1 ~= 0 then return nil end
  end
  return size.wrap(list)
end

function tags.table(list, get)
  if type(list) ~= "table" or list == json.null then return nil end
  if list[1] == nil and next(list) ~= nil then return nil end -- an object
  local result = {}
  for i = 1, #list do
    local pair = list[i]
    if type(pair) ~= "table" or pair == json.null or #pair ~= 2 then return nil end
    local key = build(pair[1], get)
    if not rank[type(key)] or key ~= key or result[key] ~= nil then return nil end
    result[key] = build(pair[2], get)
  end
  return result
end

function build(node, get)
  if type(node) ~= "table" then return node end
  if node == json.null then refuse("it has a null") end
  local key = next(node)
  if type(key) == "string" and key:sub(1, 1) == "$" then
    local tag = tags[key:sub(2)]
    local value
    if tag and next(node, key) == nil then value = tag(node[key], get) end
    if value == nil then refuse(format("a broken or unknown entry %s", errors.shown(key))) end
    return value
  end
  for k, value in next, node do
    if type(k) == "string" and k:sub(1, 1) == "$" then
      refuse(format("a broken or unknown entry %s", errors.shown(k)))
    end
    node[k] = build(value, get)
  end
  return node
end

--- Unpacks a value.
-- @param text  the JSON text that pack returned
-- @param get   function(name) -> the tensor of that name, or nil
-- @return the value; or nil and a message that says what is wrong with the text
function checkpoint.unpack(text, get)
  local node, why = json.decode(text)
  if node == nil then return nil, why end
  local fine, result = pcall(build, node, get)
  if fine then return result end
  if type(result) ~= "table" then error(result, 0) end
  return nil, result.text
end

return checkpoint
