-- The orientation in a picture's EXIF data: both byte orders, each value, each place where the data
-- may be missing or broken (then it is 1).

local ffi = require "ffi"
local exif = require "moth.io.image.exif"

local function number(n, width, big)
  local list = {}
  for i = 1, width do
    list[i] = string.char(n % 256)
    n = math.floor(n / 256)
  end
  local text = table.concat(list)
  return big and text:reverse() or text
end

-- A TIFF structure. entries: {tag, type, count, value}. o: big, magic, first (the place of the
-- entries), n (their number).
local function tiff(entries, o)
  o = o or {}
  local function u16(n) return number(n, 2, o.big) end
  local function u32(n) return number(n, 4, o.big) end
  local first = o.first or 8
  local list = {o.order or (o.big and "MM" or "II"), u16(o.magic or 42), u32(first),
    ("\0"):rep((o.pad or first) - 8), u16(o.n or #entries)}
  for _, e in ipairs(entries) do
    list[#list + 1] = u16(e[1]) .. u16(e[2]) .. u32(e[3]) .. u16(e[4]) .. u16(0)
  end
  return table.concat(list)
end

local ORIENTATION, SHORT, LONG = 0x0112, 3, 4
local other = {0x010F, 2, 1, 9}

local function segment(marker, body)
  return "\255" .. string.char(marker) .. number(#body + 2, 2, true) .. body
end
local function jpeg(...) return "\255\216" .. table.concat {...} end
local function app1(text) return segment(0xE1, "Exif\0\0" .. text) end
local function png(...) return "\137PNG\r\n\26\n" .. table.concat {...} end
local function chunk(name, body) return number(#body, 4, true) .. name .. body .. "\0\0\0\0" end

-- A copy of exactly these bytes.
local function call(f, text)
  local bytes = ffi.new("uint8_t[?]", #text)
  ffi.copy(bytes, text, #text)
  return f(bytes, #text)
end

local function both(wanted, text, what)
  assert.equal(wanted, call(exif.of_jpeg, jpeg(app1(text))), what)
  assert.equal(wanted, call(exif.of_png, png(chunk("eXIf", text))), what)
end

describe("the orientation of a picture", function()
  it("is a number from 1 to 8 in either byte order, else 1", function()
    for value = 0, 10 do
      local wanted = value >= 1 and value <= 8 and value or 1
      for _, big in ipairs {false, true} do
        both(wanted, tiff({{ORIENTATION, SHORT, 1, value}}, {big = big}), value)
        both(wanted, tiff({other, other, {ORIENTATION, SHORT, 1, value}, other}, {big = big}),
          value)
      end
    end
    both(1, tiff({{ORIENTATION, SHORT, 1, 256 + 6}}), "two bytes")
  end)

  it("is 1 if there is none, or if it is of another kind", function()
    both(1, tiff {other})
    both(1, tiff {})
    both(1, tiff {{ORIENTATION, LONG, 1, 6}})
    both(1, tiff {{ORIENTATION, SHORT, 2, 6}})
    both(1, tiff {{ORIENTATION, SHORT, 0, 6}})
    both(6, tiff {{ORIENTATION, SHORT, 1, 6}, {ORIENTATION, SHORT, 1, 8}}, "the first counts")
  end)

  it("is 1 if the structure is broken", function()
    local six = {ORIENTATION, SHORT, 1, 6}
    both(1, tiff({six}, {magic = 43}))
    both(1, tiff({six}, {order = "IM"}))
    both(1, tiff({six}, {order = "MM"})) -- with the numbers of "II"
    both(6, tiff({six}, {first = 20}))
    both(1, tiff({six}, {first = 2 ^ 31, pad = 8}))
    local whole = tiff({other, six})
    for size = 0, #whole - 1 do both(1, whole:sub(1, size), size) end
    both(6, whole .. "\0")
    both(6, tiff({other, six}, {n = 99}))
    both(1, tiff({other, six}, {n = 1}))
  end)
end)

describe("a JPEG file", function()
  local six = app1(tiff {{ORIENTATION, SHORT, 1, 6}})
  local function of(...) return call(exif.of_jpeg, jpeg(...)) end
  local empty = segment(0xE0, "JFIF\0")

  it("has its orientation after other segments and fill bytes, before the picture", function()
    assert.equal(6, of(empty, segment(0xE1, "http://ns.adobe.com"), six))
    assert.equal(6, of(empty, "\255\255", six))
    assert.equal(6, of(segment(0xE1, "Exif\0"), six)) -- too short for the name
    assert.equal(6, of(segment(0xFE, ""), six))
    assert.equal(1, of(segment(0xDA, ""), six))
    assert.equal(1, of(segment(0xD9, ""), six))
    assert.equal(1, of("\0", six))
    assert.equal(1, of("\255\224\0\1", six)) -- a length below 2
    assert.equal(1, of("\255\224\255\255", six)) -- beyond the file
    assert.equal(1, of())
  end)

  it("may be cut anywhere", function()
    local text = jpeg(empty, six)
    for size = 0, #text do
      assert.equal(size == #text and 6 or 1, call(exif.of_jpeg, text:sub(1, size)), size)
    end
  end)
end)

describe("a PNG file", function()
  local six = chunk("eXIf", tiff {{ORIENTATION, SHORT, 1, 6}})
  local function of(...) return call(exif.of_png, png(...)) end

  it("has its orientation in a chunk before the end", function()
    assert.equal(6, of(chunk("IHDR", ("\0"):rep(13)), chunk("IDAT", ""), six))
    assert.equal(1, of(chunk("IEND", ""), six))
    assert.equal(1, of(number(2 ^ 31, 4, true) .. "IDAT", six))
    assert.equal(1, of())
  end)

  it("may be cut anywhere", function()
    local text = png(chunk("IHDR", ("\0"):rep(13)), six)
    for size = 0, #text do
      assert.equal(size == #text and 6 or 1, call(exif.of_png, text:sub(1, size)), size)
    end
  end)
end)
