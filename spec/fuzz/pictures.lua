-- pictures.lua -- decodes mutated pictures. Each is decoded, or refused with E_FORMAT, E_LIMIT or
-- E_UNSUPPORTED and a short message; memory and time of a case are limited. From the top of the
-- checkout:
--
--     ./moth spec/fuzz/pictures.lua [jpg|png|webp|gif|all] [FILES] [SEED] [stb]
--
-- The mutations know the formats: they replace numbers and markers, exchange pieces of files, and
-- correct the checksums of PNG chunks in three cases of four. The libraries are not instrumented.
-- AddressSanitizer's allocator still checks what they free, and what they pass to memcpy:
--
--     export ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=4:thread_local_quarantine_size_kb=64
--     LD_PRELOAD=$(gcc -print-file-name=libasan.so) build/moth spec/fuzz/pictures.lua all 100000
--
-- The decoder of GIF is Moth's own: gif.c in this folder runs it under all sanitizers.

local moth = require "moth"
local json = require "moth.json"
local gzip = require "moth.io.gzip"
local png = require "moth.io.image.png"
local stb = require "moth.io.image.stb"

local kind, count, seed = arg[1] or "all", tonumber(arg[2]) or 100000, tonumber(arg[3]) or 1
local use_stb = arg[4] == "stb"
math.randomseed(seed)
local random, char = math.random, string.char

local MOST_PIXELS, MOST_SECONDS, MOST_GROWTH = 300000, 2, 64 * 2 ^ 20

-- ---- the files ----

local seeds = {}
do
  local function whole(path)
    local file = assert(io.open(path, "rb"))
    local text = file:read "*a"
    file:close()
    return text
  end
  local blob = whole "spec/golden/pictures.bin"
  local names = {}
  local index = json.decode(whole "spec/golden/pictures.json").files
  for name in pairs(index) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local row, ending = index[name], name:match "%.(%a+)$"
    if kind == "all" or kind == ending then
      seeds[#seeds + 1] = {blob:sub(row.at + 1, row.at + row.size), ending}
    end
  end
end

-- ---- mutations ----

local function put(text, at, piece) return text:sub(1, at - 1) .. piece .. text:sub(at + #piece) end

local EXTREMES = {0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 63, 64, 127, 128, 254, 255, 256, 511, 32767,
  32768, 65534, 65535, 65536, 2 ^ 24 - 1, 2 ^ 31 - 1, 2 ^ 31, 2 ^ 32 - 1}

local function big(n, width)
  local text = ""
  for _ = 1, width do
    text, n = char(n % 256) .. text, math.floor(n / 256)
  end
  return text
end

local function number(width)
  local text = big(EXTREMES[random(#EXTREMES)], width)
  return random(2) == 1 and text or text:reverse()
end

local WORDS = {"\255\192", "\255\194", "\255\196", "\255\218", "\255\217", "\255\219", "\255\221",
  "\255\208", "\255\225", "\255\238", "\255\0", "IHDR", "IDAT", "PLTE", "tRNS", "IEND", "iCCP",
  "eXIf", "gAMA", "VP8 ", "VP8L", "VP8X", "ALPH", "ANMF", "ANIM", "RIFF", "!\249\4", ",", ";",
  "\0\0\0\0"}

local mutations = {
  function(text) return put(text, random(#text), char(random(0, 255))) end,
  function(text) return put(text, random(#text), char(random(0, 255))) end,
  function(text) return put(text, random(#text), number(2)) end,
  function(text) return put(text, random(#text), number(4)) end,
  function(text) return put(text, random(math.min(#text, 64)), number(2)) end,
  function(text) return put(text, random(math.min(#text, 64)), char(random(0, 255))) end,
  function(text) return put(text, random(#text), WORDS[random(#WORDS)]) end,
  function(text) return text:sub(1, random(0, #text)) end,
  function(text) -- repeats a piece
    local from, at = random(#text), random(#text)
    return text:sub(1, at) .. text:sub(from, from + random(0, 60)) .. text:sub(at + 1)
  end,
  function(text) -- removes a piece
    local at = random(#text)
    return text:sub(1, at) .. text:sub(at + random(0, 40))
  end,
  function(text) -- a piece of another file
    local other = seeds[random(#seeds)][1]
    local from, at = random(#other), random(#text)
    local n = random(1, 200)
    return text:sub(1, at) .. other:sub(from, from + n) .. text:sub(at + random(0, n))
  end,
}

-- Corrects the checksums of PNG chunks.
local function sealed(text)
  local at, parts = 9, {text:sub(1, 8)}
  while at + 11 <= #text do
    local a, b, c, d = text:byte(at, at + 3)
    local n = ((a * 256 + b) * 256 + c) * 256 + d
    if at + 11 + n > #text then break end
    local body = text:sub(at + 4, at + 7 + n)
    parts[#parts + 1] = text:sub(at, at + 3) .. body .. big(gzip.crc32(body), 4)
    at = at + 12 + n
  end
  return table.concat(parts) .. text:sub(at)
end

-- ---- the property ----

local MODES = {"unchanged", "gray", "gray_alpha", "rgb", "rgb_alpha"}
local CODES = {E_FORMAT = true, E_LIMIT = true, E_UNSUPPORTED = true}

local function resident()
  local file = io.open("/proc/self/statm")
  if not file then return 0 end
  local pages = file:read("*a"):match "%d+ (%d+)"
  file:close()
  return tonumber(pages) * 4096
end

local function check(text)
  local ok, x = pcall(moth.io.decode_image, {text, mode = MODES[random(5)],
    min_size = random(2) == 1 and random(40) or nil, apply_exif_orientation = random(2) == 1,
    max_pixels = MOST_PIXELS})
  if ok then
    if x:numel() > MOST_PIXELS * 4 then return nil, "a result of " .. tostring(x.shape) end
    x:sum()
    return true
  elseif not CODES[moth.errcode()] or #x > 600 then
    return nil, ("%s: %s"):format(moth.errcode(), tostring(x))
  end
  return false
end

if use_stb then
  require("moth.io.image.jpeg").find = function() return false end
  png.find = function() return false end
  assert(stb.find(), "libstb is not installed")
end

local read, slowest, before, growth = 0, 0, nil, 0
for i = 1, count do
  local row = seeds[random(#seeds)]
  local text = row[1]
  for _ = 1, random(1, 4) do
    if #text > 0 then text = mutations[random(#mutations)](text) end
  end
  if row[2] == "png" and random(4) > 1 then text = sealed(text) end
  local start = os.clock()
  local good, problem = check(text)
  local seconds = os.clock() - start
  slowest = math.max(slowest, seconds)
  if seconds > MOST_SECONDS then problem = ("it took %.1f s"):format(seconds) end
  if i == 1000 then
    moth.empty_cache()
    before = resident()
  end
  if i % 1000 == 0 then
    collectgarbage()
    moth.empty_cache() -- returns free memory of the allocator to the system
    growth = resident() - before
    if growth > MOST_GROWTH then problem = ("memory grew by %.0f MiB"):format(growth / 2 ^ 20) end
  end
  if problem then
    print(("file %d of seed %d: %s\n%s"):format(i, seed, problem, text:gsub(".", function(c)
      return ("%02x"):format(c:byte())
    end)))
    os.exit(1)
  end
  if good then read = read + 1 end
end
print(("%s: %d files, %d read, %d refused; slowest %.0f ms; memory grew by %.1f MiB"):format(kind,
  count, read, count - read, slowest * 1e3, growth / 2 ^ 20))
