--- graphics.lua -- pictures on terminals that show them: kitty's protocol, or sixel.
--
-- The terminal is queried once: for kitty's protocol, then for its attributes (DA1). Every terminal
-- answers the second query; attribute 4 is sixel. If the variable MOTH_GRAPHICS is kitty, sixel or
-- none, no query is sent.
--
-- Formats: kitty, "Terminal graphics protocol"; DEC, "VT330/VT340 Programmer Reference Manual".

local ffi = require "ffi"
local lib = require "moth.binding.lib"
local machine = require "moth.base.machine"

local graphics = {}

local WAIT = 1 -- seconds

local QUERY = "\27_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\27\\\27[c"

--- The protocol that an answer of the terminal reports: "kitty", "sixel" or "none".
function graphics.meaning(answer)
  if not answer then return "none" end
  if answer:find("_Gi=31;OK", 1, true) then return "kitty" end
  local attributes = answer:match "\27%[%?([%d;]*)c"
  return attributes and (";" .. attributes .. ";"):find(";4;", 1, true) and "sixel" or "none"
end

local known

--- The protocol of the terminal: "kitty", "sixel" or "none".
function graphics.protocol()
  if not known then
    local said = os.getenv "MOTH_GRAPHICS"
    if said == "kitty" or said == "sixel" or said == "none" then
      known = said
    elseif os.getenv "TERM" == "dumb" then
      known = "none"
    else
      known = graphics.meaning(machine.ask_terminal(QUERY, "\27%[%?[%d;]*c", WAIT))
    end
  end
  return known
end

local CHUNK = 4096 -- bytes of base64 in one command

--- A PNG file as commands of kitty's protocol.
function graphics.kitty(png)
  local text, out = require("moth.plot.base64")(png), {}
  for at = 1, #text, CHUNK do
    local more = at + CHUNK <= #text and 1 or 0
    out[#out + 1] = ("\27_G%sm=%d;%s\27\\"):format(at == 1 and "a=T,f=100," or "", more,
      text:sub(at, at + CHUNK - 1))
  end
  return table.concat(out)
end

-- ---- sixel ----

local LEVELS = 6 -- of each of red, green and blue

local DITHER = ffi.new("uint8_t[16]", {0, 8, 2, 10, 12, 4, 14, 6, 3, 11, 1, 9, 15, 7, 13, 5})

-- The level in the palette of a value from 0 to 255, by ordered dithering.
local function level(value, threshold)
  local at = value * (LEVELS - 1) / 255
  local low = math.floor(at)
  return at - low > threshold and low + 1 or low
end

-- The palette index of each pixel.
local function indexed(pixels, h, w)
  local from = ffi.cast("const uint8_t *", lib.data(pixels, "plot"))
  local to = lib.array("uint8_t", h * w)
  for y = 0, h - 1 do
    for x = 0, w - 1 do
      local at = y * w + x
      local threshold = (DITHER[y % 4 * 4 + x % 4] + 0.5) / 16
      to[at] = (level(from[3 * at], threshold) * LEVELS + level(from[3 * at + 1], threshold))
        * LEVELS + level(from[3 * at + 2], threshold)
    end
  end
  return to
end

-- One color's part of a band of six rows.
local function band_of(index, color, top, h, w)
  local out, last, count = {}, nil, 0
  local function flush()
    if count > 3 then out[#out + 1] = ("!%d%s"):format(count, last)
    elseif last then out[#out + 1] = last:rep(count) end
  end
  for x = 0, w - 1 do
    local bits = 0
    for k = 0, math.min(6, h - top) - 1 do
      if index[(top + k) * w + x] == color then bits = bits + 2 ^ k end
    end
    local c = string.char(63 + bits)
    if c == last then
      count = count + 1
    else
      flush()
      last, count = c, 1
    end
  end
  flush()
  return table.concat(out)
end

--- Pixels as a sixel command.
-- @param pixels  uint8 tensor (H, W, 3), contiguous, on the CPU
function graphics.sixel(pixels)
  local h, w = pixels:size(1), pixels:size(2)
  local index = indexed(pixels, h, w)
  local out = {("\27P0;1q\"1;1;%d;%d"):format(w, h)}
  for color = 0, LEVELS ^ 3 - 1 do
    local r, g, b = math.floor(color / LEVELS ^ 2), math.floor(color / LEVELS) % LEVELS,
      color % LEVELS
    local share = 100 / (LEVELS - 1)
    out[#out + 1] = ("#%d;2;%d;%d;%d"):format(color, r * share, g * share, b * share)
  end
  for top = 0, h - 1, 6 do
    local used = {}
    for at = top * w, math.min(top + 6, h) * w - 1 do used[index[at]] = true end
    local parts = {}
    for color = 0, LEVELS ^ 3 - 1 do
      if used[color] then
        parts[#parts + 1] = ("#%d%s"):format(color, band_of(index, color, top, h, w))
      end
    end
    out[#out + 1] = table.concat(parts, "$") .. "-"
  end
  return table.concat(out) .. "\27\\"
end

return graphics
