--- golden.lua -- reads spec/golden/data, FAMILY.json with FAMILY.bin, and the recorded runs of
-- optimizers and schedulers next to it. It shares no code with Moth's own readers, so that a
-- fault in them is not hidden.

local ffi = require "ffi"
local lfs = require "lfs"

local golden = {}

-- ---- JSON, as far as json.dumps of our generator needs it ----

local ESCAPES = {n = "\n", t = "\t", r = "\r", b = "\b", f = "\f"}
golden.null = {}
local WORDS = {["true"] = true, ["false"] = false, null = golden.null}

local value_at

local function string_at(text, at)
  local last = text:find('["\\]', at + 1)
  while text:sub(last, last) == "\\" do last = text:find('["\\]', last + 2) end
  local s = text:sub(at + 1, last - 1):gsub("\\u(%x%x%x%x)", function(code)
    return string.char(tonumber(code, 16)) -- our files are ASCII
  end):gsub("\\(.)", function(c) return ESCAPES[c] or c end)
  return s, last + 1
end

local function list_at(text, at)
  local list, n = {}, 0
  at = text:find("%S", at + 1)
  while text:sub(at, at) ~= "]" do
    n = n + 1
    list[n], at = value_at(text, at)
    at = text:find("[^%s,]", at)
  end
  return list, at + 1
end

local function object_at(text, at)
  local object = {}
  at = text:find("%S", at + 1)
  while text:sub(at, at) ~= "}" do
    local key, after = string_at(text, at)
    object[key], at = value_at(text, text:find("[^%s:]", after))
    at = text:find("[^%s,]", at)
  end
  return object, at + 1
end

function value_at(text, at)
  local c = text:sub(at, at)
  local read = c == '"' and string_at or c == "[" and list_at or c == "{" and object_at
  if read then return read(text, at) end
  local word = text:match("^[%w+.-]+", at)
  if WORDS[word] ~= nil then return WORDS[word], at + #word end
  return assert(tonumber(word), "bad JSON at byte " .. at), at + #word
end

-- ---- shards ----

local FOLDER = "spec/golden/data/"

local function read(name)
  local file = assert(io.open(FOLDER .. name, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

--- The cases of NAME.json: a run of PyTorch, written by NAME.py next to it.
function golden.cases(name)
  return value_at(read("../" .. name .. ".json"), 1).cases
end

--- One family: {ops = {name -> samples}, exempt = {name -> why}, made = provenance, blob = bytes}.
function golden.load(family)
  local shard = value_at(read(family .. ".json"), 1)
  shard.family, shard.blob = family, read(family .. ".bin")
  assert(#shard.blob == shard.made.bytes, family .. ".bin has another size than its manifest says")
  return shard
end

--- All families, sorted by name.
function golden.all()
  local list, names = {}, {}
  for name in lfs.dir(FOLDER) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local family = name:match("^(.+)%.json$")
    if family then list[#list + 1] = golden.load(family) end
  end
  return list
end

-- ---- elements ----

local SIZES = {float64 = 8, float32 = 4, float16 = 2, bfloat16 = 2, int64 = 8, int32 = 4,
  int16 = 2, int8 = 1, uint8 = 1, bool = 1}
local TYPES = {int64 = "const int64_t *", int32 = "const int32_t *", int16 = "const int16_t *",
  int8 = "const int8_t *", uint8 = "const uint8_t *", bool = "const uint8_t *"}

-- Sign, exponent and fraction of a float; no NaN is ever read through a float pointer.
local function float(negative, exponent, fraction, bias, most)
  local x
  if exponent == most then x = fraction == 0 and math.huge or 0 / 0
  elseif exponent == 0 then x = fraction * 2 ^ (1 - bias)
  else x = (1 + fraction) * 2 ^ (exponent - bias) end
  return negative and -x or x
end

local FLOATS = {
  float64 = function(p, k)
    local words = ffi.cast("const uint32_t *", p)
    local low, high = words[2 * k], words[2 * k + 1]
    return float(high >= 2 ^ 31, math.floor(high / 2 ^ 20) % 2048,
      (high % 2 ^ 20 + low / 2 ^ 32) / 2 ^ 20, 1023, 2047)
  end,
  float32 = function(p, k)
    local bits = ffi.cast("const uint32_t *", p)[k]
    return float(bits >= 2 ^ 31, math.floor(bits / 2 ^ 23) % 256, bits % 2 ^ 23 / 2 ^ 23, 127, 255)
  end,
  float16 = function(p, k)
    local bits = ffi.cast("const uint16_t *", p)[k]
    return float(bits >= 2 ^ 15, math.floor(bits / 1024) % 32, bits % 1024 / 1024, 15, 31)
  end,
  bfloat16 = function(p, k)
    local bits = ffi.cast("const uint16_t *", p)[k]
    return float(bits >= 2 ^ 15, math.floor(bits / 128) % 256, bits % 128 / 128, 127, 255)
  end,
}

--- The number of stored elements of a tensor: dimensions of stride 0 count once.
function golden.stored(entry)
  local n, sizes = 1, {}
  for d, size in ipairs(entry.s) do sizes[d] = size end
  for _, d in ipairs(entry.e or {}) do sizes[d] = 1 end
  for d = 1, #sizes do n = n * sizes[d] end
  return n, sizes
end

--- The bytes of its stored elements.
function golden.bytes(shard, entry)
  local s = shard.blob:sub(entry.o + 1, entry.o + golden.stored(entry) * SIZES[entry.t])
  return s
end

--- Its stored elements as a list: numbers, booleans, int64 cdata where a number would lose bits.
function golden.values(shard, entry)
  local list, p = {}, ffi.cast("const char *", shard.blob) + entry.o
  local float_at, typed = FLOATS[entry.t], TYPES[entry.t] and ffi.cast(TYPES[entry.t], p)
  for k = 0, golden.stored(entry) - 1 do
    local v = float_at and float_at(p, k) or typed and typed[k]
    if entry.t == "bool" then v = v ~= 0 end
    if entry.t == "int64" and v >= -2LL ^ 53 and v <= 2LL ^ 53 then v = tonumber(v) end
    list[k + 1] = v
  end
  return list
end

return golden
