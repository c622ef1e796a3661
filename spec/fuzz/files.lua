-- files.lua -- reads files with random changes: no input may crash a reader, hang it, make it
-- allocate more than the file can hold, or raise an error without a code and a short message.
--
--   ./moth spec/fuzz/files.lua [npy|npz|tar|jsonl] [CASES] [SEED]
--   MOTH_SANITIZED=address,undefined ASAN_OPTIONS=detect_leaks=0 ./moth spec/fuzz/files.lua ...
--
-- The changes know the formats: they replace numbers and words of headers, and correct lengths and
-- checksums, so that inputs pass the first checks. Each case depends only on the seed and its
-- number. webdataset_spec.lua runs a few thousand cases.

local bit = require "bit"
local moth = require "moth"
local bytes = require "moth.io.bytes"
local errors = require "moth.error"
local files = require "spec.support.files"
local json = require "moth.json"
local tar = require "moth.data.tar"

local fuzz = {}

-- ---- random numbers ----

local state

local function random(n) -- 0 to n - 1
  state = bit.bxor(state, bit.lshift(state, 13))
  state = bit.bxor(state, bit.rshift(state, 17))
  state = bit.bxor(state, bit.lshift(state, 5))
  return state % 2 ^ 32 % n
end

local function pick(list) return list[1 + random(#list)] end

-- ---- changes of any bytes ----

local NUMBERS = {"0", "1", "2", "3", "7", "8", "9", "255", "65536", "4294967296",
  "9007199254740992", "18446744073709551616", "-1", "1e3", "00", "(2,)", "1L"}
local WORDS = {"'descr'", "'shape'", "'fortran_order'", "True", "False", "None", "'<f4'", "'>i8'",
  "'|b1'", "'<c16'", "'>U3'", "'|S2'", "'|O'", "'<f16'", "'<M8[ns]'", "'|S0'", "'<u8'", "(", ")",
  "[", "]", "{", "}", ",", ":", "'\\x00'", "[('a', '<f4'), ('b', '|S2', (2,))]", "(0, 3)", "(2, 3)",
  "\0", "\255", "..", "path=a.b", "size=3", "GNU.sparse.major=1", "{\"a\": [1, null]}", "\n"}

local function cut(text, from, to, with)
  return text:sub(1, from - 1) .. with .. text:sub(to + 1)
end

local changes = {
  function(text) -- a byte
    local at = 1 + random(#text)
    return cut(text, at, at, string.char(random(256)))
  end,
  function(text) -- a bit
    local at = 1 + random(#text)
    return cut(text, at, at, string.char(bit.bxor(text:byte(at), 2 ^ random(8))))
  end,
  function(text) return text:sub(1, random(#text)) end, -- the end
  function(text) -- a piece is removed, or repeated
    local at = 1 + random(#text)
    local piece = text:sub(at, at + random(40))
    return cut(text, at, at + #piece - 1, random(2) == 0 and "" or piece .. piece)
  end,
  function(text) -- a number of the header
    local at, to = text:find("%d+", 1 + random(math.min(#text, 600)))
    return at and cut(text, at, to, pick(NUMBERS)) or text
  end,
  function(text) -- a word of the header
    local at = 1 + random(math.min(#text, 600))
    local to = text:find("[,:)}%z ]", at) or at
    return cut(text, at, random(3) == 0 and at - 1 or to, pick(WORDS))
  end,
  function(text) -- four bytes with a large or small number
    local at = 1 + random(#text)
    return cut(text, at, at + 3, pick {"\0\0\0\0", "\255\255\255\255", "\255\255\255\127",
      "\1\0\0\0"})
  end,
}

local function change(text)
  for _ = 0, random(3) do
    if #text == 0 then return "" end
    text = pick(changes)(text)
  end
  return text
end

-- ---- the formats ----

local seeds = {}

-- Corrects the length of the header: up to its last line end or brace.
local function mend_npy(text)
  if #text < 12 or random(4) == 0 then return text end
  local start = text:byte(7) == 1 and 10 or 12
  local stop = text:find("}[ ]*\n", start) or text:find("}", start, true) or #text
  local _, last = text:find("}[ ]*\n?", stop)
  local size = math.max((last or #text) - start, 0)
  local field = files.le8(size):sub(1, start - 8)
  return text:sub(1, 8) .. field .. text:sub(start + 1)
end

local function npy_of(descr, shape, fortran, data)
  local head = ("{'descr': %s, 'fortran_order': %s, 'shape': %s, }\n"):format(descr, fortran, shape)
  return "\147NUMPY\1\0" .. files.le8(#head):sub(1, 2) .. head .. data
end

seeds.npy = {
  npy_of("'<f4'", "(2, 3)", "False", ("\0\0\128\63"):rep(6)),
  npy_of("'>i8'", "(3, 2)", "True", ("abcdefgh"):rep(6)),
  npy_of("'|b1'", "(5,)", "False", "\0\1\2\3\255"),
  npy_of("'<c8'", "()", "False", "12345678"),
  npy_of("'<U2'", "(2, 2)", "True", ("a\0\0\0é\0\0"):rep(4)),
  npy_of("'>u2'", "(3,)", "False", "\1\2\255\254\0\0"),
  npy_of("[('a', '<i4'), ('b', '>f8'), ('', '|V3'), ('s', '|S3', (2,))]", "(2,)", "False",
    ("x"):rep(42)),
  npy_of("'|u1'", "(0, 4)", "False", ""),
}

-- Types with the bytes of an element, and shapes with the number of elements.
local DESCRS = {{"'<f4'", 4}, {"'>f8'", 8}, {"'|b1'", 1}, {"'<c16'", 16}, {"'>U3'", 12},
  {"'|S2'", 2}, {"'|O'", 8}, {"'<f16'", 16}, {"'<u8'", 8}, {"'<M8[ns]'", 8}, {"'|S0'", 0},
  {"'>i2'", 2}, {"'|u1'", 1}, {"'>u4'", 4}, {"[('a', '<f4'), ('b', '|S2', (2,))]", 8},
  {"[('a', '>i2'), ('', '|V2'), ('b', [('c', '|u1'), ('d', '>c8', (1, 2))])]", 21},
  {"[('x', '<f4', (0,)), ('y', '|S0', (99999999,))]", 0}, {"[]", 0}, {"('<f4', (2,))", 8},
  {"[('a', '|O')]", 8}}
local SHAPES = {{"()", 1}, {"(2,)", 2}, {"(2, 3)", 6}, {"(3, 2)", 6}, {"(0, 3)", 0}, {"[2]", 2},
  {"(1, 1, 1, 1, 1, 1, 1, 1)", 1}, {"(1, 1, 1, 1, 1, 1, 1, 1, 1)", 1}, {"(4, 1, 2)", 8},
  {"(999999999999,)", 99}, {"(0, 4503599627370496)", 0}, {"(67108864, 67108864)", 1},
  {"(4503599627370496, 0)", 0}, {"(2, 2, 2)", 8}, {"(-1,)", 1}}

-- A well-formed header with any type, shape and number of bytes.
local function any_npy()
  local descr, shape, parts = pick(DESCRS), pick(SHAPES), {}
  local size = random(5) == 0 and random(200) or descr[2] * shape[2]
  for i = 1, size do parts[i] = string.char(random(3) == 0 and random(256) or 0) end
  return npy_of(descr[1], shape[1], pick {"True", "False"}, table.concat(parts))
end

local function changed_npy()
  local kind = random(4)
  if kind == 0 then return any_npy() end
  return mend_npy(change(kind == 1 and any_npy() or pick(seeds.npy)))
end

local function zip_of(parts)
  local members = {}
  for i, part in ipairs(parts) do members[i] = {("a%d.npy"):format(i), part} end
  return files.archive(members)
end

local compressed

-- Changes arrays before the archive is made, with right checksums, or the archive itself.
local function changed_npz()
  if not compressed then
    local path = os.tmpname() .. ".npz"
    moth.save {{a = moth.arange(300), b = moth.ones(2, 3)}, path, compressed = true}
    compressed = files.read(path)
    os.remove(path)
  end
  local kind = random(4)
  if kind == 0 then return change(compressed) end
  local text = zip_of {kind == 1 and pick(seeds.npy) or changed_npy(), pick(seeds.npy)}
  return kind == 1 and change(text) or text
end

local function octal(n, width) return ("%0" .. width - 1 .. "o\0"):format(n) end

local function tar_head(name, size, kind)
  return name .. ("\0"):rep(100 - #name) .. octal(420, 8) .. octal(0, 8) .. octal(0, 8)
    .. octal(size, 12) .. octal(0, 12) .. (" "):rep(8) .. kind .. ("\0"):rep(100) .. "ustar\00000"
    .. ("\0"):rep(247)
end

-- Corrects the checksum of each block that looks like a header.
local function mend_tar(text, always)
  if not always and random(6) == 0 then return text end
  local blocks = {}
  for at = 1, #text, 512 do
    local block = text:sub(at, at + 511)
    if #block == 512 and block:find("^[^%z]") and block:sub(258, 262) == "ustar" then
      block = block:sub(1, 148) .. (" "):rep(8) .. block:sub(157)
      local sum = 0
      for i = 1, 512 do sum = sum + block:byte(i) end
      block = block:sub(1, 148) .. ("%06o\0 "):format(sum) .. block:sub(157)
    end
    blocks[#blocks + 1] = block
  end
  return table.concat(blocks)
end

-- An archive of {name, bytes, kind of the header, size in the header}.
local function tar_of(members)
  local parts = {}
  for _, m in ipairs(members) do
    parts[#parts + 1] = tar_head(m[1], m[4] or #m[2], m[3] or "0") .. m[2]
      .. ("\0"):rep(-#m[2] % 512)
  end
  return mend_tar(table.concat(parts) .. ("\0"):rep(1024), true)
end

-- A record of a pax header with the right or a wrong length.
local function record(key, value)
  local rest = (" %s=%s\n"):format(key, value)
  local size = #rest + (#rest > 97 and 3 or #rest > 7 and 2 or 1)
  return (random(10) == 0 and random(40) or size) .. rest
end

-- An archive whose headers are right, with any members.
local function any_tar()
  local members = {}
  for i = 1, 1 + random(5) do
    local name = pick {"a.txt", "a.cls", "b/c.json", ".x", "d/", "no"}
    local text = ("x"):rep(random(1100))
    local kind = pick {"0", "0", "\0", "7", "5", "2", "1", "g", "x", "x", "L", "K", "S", "Z"}
    if kind == "x" or kind == "g" then
      text = record(pick {"path", "size", "mtime", "GNU.sparse.size"}, pick {"1", "600", "0",
        "d/e.txt", ("n"):rep(300), "999999999999", "-1", ""})
    end
    local size = random(6) == 0 and pick {0, 1, 511, 513, 2 ^ 33 - 1, 10 ^ 6} or nil
    members[i] = {name, text, kind, size}
  end
  return tar_of(members)
end

seeds.tar = {
  tar_of {{"a.txt", "text"}, {"a.cls", "3"}, {"b.txt", ("long"):rep(300)}, {"b.cls", "4"}},
  tar_of {{"x", "33 path=d/" .. ("p"):rep(18) .. ".txt\n", "x"}, {"short.txt", "abc"},
    {"x", "17 size=00000006\n", "x"}, {"y.bin", "defghi"}},
  tar_of {{"././@LongLink", ("n"):rep(150) .. ".json\0", "L"}, {"n.json", "{\"a\": 1}"},
    {"folder/", "", "5"}, {"link", "", "2"}, {"g", "11 a=bcdef\n", "g"}, {"z.npy", seeds.npy[1]}},
}

seeds.jsonl = {'{"a": [1, 2, null], "b": "\\u00e9"}\n\n[true]\r\n"x"\n3',
  '{}\n' .. ("[1]\n"):rep(9)}

local inputs = {
  npy = changed_npy,
  npz = changed_npz,
  tar = function()
    local kind = random(3)
    if kind == 0 then return any_tar() end
    return mend_tar(change(kind == 1 and any_tar() or pick(seeds.tar)))
  end,
  jsonl = function() return change(pick(seeds.jsonl)) end,
}

-- Uses each byte of a result.
local function touch(value, depth)
  if moth.is_tensor(value) then
    if value:numel() < 10000 then tostring(value:sum()) end
  elseif type(value) == "table" and getmetatable(value) == nil then
    for _, part in pairs(value) do touch(part, depth + 1) end
  end
end

local readers = {
  npy = function(text) touch(moth.load {bytes = text}, 0) end,
  npz = function(text) touch(moth.load {bytes = text}, 0) end,
  tar = function(text)
    local archive = tar.open(bytes.memory(text), "fuzz")
    local most = #text
    local name, content = archive:next()
    while name do
      most = most - #content
      assert(type(name) == "string" and most >= 0, "more bytes than the archive has")
      name, content = archive:next()
    end
    archive:close()
  end,
  jsonl = function(text)
    for line in text:gmatch "[^\n]+" do
      local value = json.decode(line)
      if value ~= nil then assert(json.encode(value), "no text") end
    end
  end,
}

local ALLOWED = {E_FORMAT = true, E_UNSUPPORTED = true}

-- Reads one input. @return what is wrong with the reader, or nil
local function trouble(kind, text)
  errors.forget()
  moth.reset_peak_memory()
  local before, start = moth.memory().peak_bytes, os.clock()
  local fine, problem = pcall(readers[kind], text)
  local used, seconds = moth.memory().peak_bytes - before, os.clock() - start
  if used > 2 ^ 20 + 2100 * #text then return ("%.0f bytes for %d"):format(used, #text) end
  if seconds > 5 then return ("%.1f seconds"):format(seconds) end
  if fine then return nil, true end
  if not ALLOWED[moth.errcode()] then return moth.errcode() .. ": " .. tostring(problem) end
  if type(problem) ~= "string" or #problem > 1500 or problem:find "%c" then
    return "the message: " .. tostring(problem)
  end
end

fuzz.seeds, fuzz.tar_of = seeds, tar_of

--- Runs cases of a kind. @return the number of inputs that were read without an error; or raises
-- with the number of the first case that shows a mistake, and its bytes.
function fuzz.run(kind, count, seed)
  local warn, good = moth.warn, 0
  rawset(moth, "warn", function() end)
  for i = 1, count do
    state = bit.tobit((seed or 1) * 7919 + i * 104729)
    if state == 0 then state = 1 end
    for _ = 1, 4 do random(2) end
    local text = inputs[kind]()
    local wrong, read = trouble(kind, text)
    good = good + (read and 1 or 0)
    if wrong then
      rawset(moth, "warn", warn)
      error(("%s, case %d of seed %d: %s\n%q"):format(kind, i, seed or 1, wrong, text), 0)
    end
    if i % 1000 == 0 then moth.collect() end
  end
  rawset(moth, "warn", warn)
  return good
end

if arg and arg[0] and arg[0]:find "fuzz/files.lua$" then
  local kind, count, seed = arg[1], tonumber(arg[2]) or 10000, tonumber(arg[3])
  for name in pairs(inputs) do
    if not kind or kind == name then
      local good = fuzz.run(name, count, seed)
      print(("%s: %d cases, %d of them read, no finding"):format(name, count, good))
    end
  end
end

return fuzz
