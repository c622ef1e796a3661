-- wav.lua -- reads mutated WAVE files. Each is read, or refused with E_FORMAT or E_UNSUPPORTED; no
-- result has more bytes than the file could contain. From the top of the checkout:
--
--     ./moth spec/fuzz/wav.lua [FILES] [SEED]          10^6 files take a minute
--     build-asan/moth spec/fuzz/wav.lua 100000         after ./moth test --sanitize has built it
--
-- The mutations know the format: they replace numbers of headers by extreme ones, cut, repeat and
-- exchange chunks.

local moth = require "moth"
local json = require "moth.json"
local io_ = moth.io

local count, seed = tonumber(arg[1]) or 100000, tonumber(arg[2]) or 1
math.randomseed(seed)
local random = math.random

local seeds = {}
do
  local file = assert(io.open("spec/golden/sounds.json", "rb"))
  for _, case in ipairs(json.decode(file:read "*a")) do
    if case.format:find "WAV" then
      seeds[#seeds + 1] = case.hex:gsub("..", function(pair)
        return string.char(tonumber(pair, 16))
      end)
    end
  end
  file:close()
end

local function u16(n) return string.char(n % 256, math.floor(n / 256) % 256) end
local function u32(n) return u16(n % 65536) .. u16(math.floor(n / 65536)) end

local EXTREMES = { 0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 24, 32, 40, 64, 127, 128, 255, 256, 32767,
  32768, 65534, 65535, 65536, 2 ^ 24, 2 ^ 31 - 1, 2 ^ 31, 2 ^ 32 - 2, 2 ^ 32 - 1 }
local NAMES = { "RIFF", "WAVE", "fmt ", "data", "LIST", "fact", "RIFX", "RF64" }

local function put(text, at, piece)
  return text:sub(1, at - 1) .. piece .. text:sub(at + #piece)
end

local function extreme() return EXTREMES[random(#EXTREMES)] end

local mutations = {
  function(text) return put(text, random(#text), string.char(random(0, 255))) end,
  function(text) return put(text, random(#text), u16(extreme())) end,
  function(text) return put(text, random(#text), u32(extreme())) end,
  function(text) return put(text, random(math.min(#text, 48)), u32(extreme())) end,
  function(text) return put(text, random(math.min(#text, 48)), u16(extreme())) end,
  function(text) return text:sub(1, random(0, #text)) end,
  function(text) return put(text, random(#text), NAMES[random(#NAMES)]) end,
  function(text) -- repeats a piece
    local from, at = random(#text), random(#text)
    return text:sub(1, at) .. text:sub(from, from + random(0, 40)) .. text:sub(at + 1)
  end,
  function(text) -- removes a piece
    local at = random(#text)
    return text:sub(1, at) .. text:sub(at + random(0, 40))
  end,
}

local OPTIONS = { {}, { normalize = false }, { frame_offset = 2, num_frames = 2 },
  { frame_offset = 2 ^ 40 }, { channels_first = false, num_frames = 3 } }

local function check(text, options)
  options.bytes = text
  local ok, x, rate = pcall(io_.read_wav, options)
  if not ok then
    local code = moth.errcode()
    if code == "E_FORMAT" or code == "E_UNSUPPORTED" then return false end
    return nil, ("%s: %s"):format(code, tostring(x))
  end
  local bytes = x:numel() * (options.normalize == false and x.dtype.itemsize or 1)
  if bytes > 2 * #text then return nil, "a result of " .. tostring(x.shape) end
  if not (rate >= 1 and rate < 2 ^ 32) then return nil, "a rate of " .. tostring(rate) end
  return true
end

local read = 0
for i = 1, count do
  local text = seeds[random(#seeds)]
  for _ = 1, random(1, 4) do
    if #text > 0 then text = mutations[random(#mutations)](text) end
  end
  local good, problem = check(text, OPTIONS[random(#OPTIONS)])
  if problem then
    print(("file %d of seed %d: %s\n%s"):format(i, seed, problem, text:gsub(".", function(c)
      return ("%02x"):format(c:byte())
    end)))
    os.exit(1)
  end
  if good then read = read + 1 end
end
print(("%d files, %d read, %d refused; peak memory %d KiB"):format(count, read, count - read,
  moth.memory().peak_bytes / 1024))
