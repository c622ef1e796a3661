-- Pictures: moth.io's readers and writers against torchvision's and PIL's pixels (golden files),
-- hostile files, and the drawings of moth.utils.

local moth = require "moth"
local files = require "spec.support.files"
local json = require "moth.json"
local io_, utils = moth.io, moth.utils

setup(files.setup)
teardown(files.teardown)

local uint8 = moth.uint8

local function read_whole(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "*a"
  file:close()
  return text
end

local blob = read_whole "spec/golden/pictures.bin"
local index = json.decode(read_whole "spec/golden/pictures.json")

local function part(row) return blob:sub(row.at + 1, row.at + row.size) end

local function sorted(t)
  local list = {}
  for key in pairs(t) do list[#list + 1] = key end
  table.sort(list)
  return list
end

-- Are the libraries for a file installed? jpeg, png, webp
local function has(...)
  for _, name in ipairs {...} do
    if not require("moth.io.image." .. name).find() then return false end
  end
  return true
end

local NEEDS = {jpg = "jpeg", png = "png", webp = "webp", gif = "gif"}

local function can_read(name)
  local codec = require("moth.io.image." .. NEEDS[name:match "%.(%a+)$"])
  return not codec.find or codec.find()
end

local function golden(name) return part(index.files[name]) end

local function error_of(f, ...)
  local fine, text = pcall(f, ...)
  assert.is_false(fine)
  return text, moth.errcode()
end

local function bytes_of(x)
  local out = {}
  for i, v in ipairs(x:contiguous():view(-1):tolist()) do
    out[i] = x.dtype == uint8 and string.char(v) or string.char(v % 256, math.floor(v / 256))
  end
  return table.concat(out)
end

describe("read_image", function()
  for _, name in ipairs(sorted(index.files)) do
    it("reads " .. name .. " as torchvision or PIL does, in each mode", function()
      if not can_read(name) then return pending "its library is not installed" end
      local row = index.files[name]
      local path = files.write(name, part(row))
      for _, want in ipairs(row.pixels) do
        local x = io_.read_image(path, want.mode, want.upright)
        assert.same(want.shape, {unpack(x.shape)})
        assert.equal(want.wide and moth.int32 or uint8, x.dtype)
        assert.is_true(bytes_of(x) == part(want), name .. " " .. want.mode)
      end
    end)
  end

  it("reads JPEG and PNG by libstb where the other libraries are missing", function()
    local stb = require "moth.io.image.stb"
    if not stb.find() then return pending "libstb is not installed" end
    local jpeg, png = require "moth.io.image.jpeg", require "moth.io.image.png"
    local find_jpeg, find_png = jpeg.find, png.find
    jpeg.find, png.find = function() return false end, function() return false end
    local fine, problem = pcall(function()
      for _, name in ipairs {"444.jpg", "420.jpg", "gray.jpg", "rgb.png", "rgb16.png",
                             "interlaced.png", "palette.png", "exif6.jpg"} do
        local want
        for _, row in ipairs(index.files[name].pixels) do
          if row.mode == "rgb" then want = row end
        end
        local x = io_.decode_image(golden(name), "rgb", want.upright)
        local exact = moth.tensor({part(want):byte(1, -1)}, {dtype = moth.int32})
        if want.wide then
          local low, high = exact:view(-1, 2):select(2, 1), exact:view(-1, 2):select(2, 2)
          exact = low + high * 256
        end
        local off = (x:to(moth.int32) - exact:view(want.shape)):abs():max():item()
        assert.is_true(off <= (name:find "png" and 0 or 4), name .. " differs by " .. off)
      end
    end)
    jpeg.find, png.find = find_jpeg, find_png
    if not fine then error(problem, 0) end
  end)

  it("decodes a JPEG at a part of its size", function()
    if not has "jpeg" then return pending "libturbojpeg is not installed" end
    local x = moth.full({3, 100, 163}, 77, {dtype = uint8})
    local jpeg = io_.encode_jpeg(x)
    for _, row in ipairs { {{100, 163}, {100, 163}}, {{50, 82}, {50, 82}}, {{26, 20}, {50, 82}},
                           {{25, 41}, {25, 41}}, {{1, 1}, {13, 21}} } do
      local y = io_.decode_image(jpeg, {min_size = row[1]})
      assert.same({3, row[2][1], row[2][2]}, {unpack(y.shape)})
      assert.equal(77, y:min():item())
      assert.equal(77, y:max():item())
    end
    assert.same({3, 50, 82}, {unpack(io_.decode_jpeg(jpeg, {min_size = 40}).shape)})
  end)

  it("takes the first frame of an animation that is smaller than its canvas", function()
    -- A canvas of 3 x 2, a frame of 1 x 1 at (1, 1), red.
    local gif = "GIF89a\3\0\2\0\128\0\0\10\20\30\255\0\0,\1\0\1\0\1\0\1\0\0\2\2\76\1\0;"
    local x = io_.decode_gif(gif)
    assert.same({3, 2, 3}, {unpack(x.shape)})
    assert.same({{10, 10, 10}, {10, 255, 10}}, x:select(1, 1):tolist())
    assert.same({{30, 30, 30}, {30, 0, 30}}, x:select(1, 3):tolist())
  end)

  it("takes torchvision's names of modes, too, and refuses others", function()
    local gif = golden "rgb.gif"
    assert.same({1, 9, 13}, {unpack(io_.decode_image(gif, "GRAY").shape)})
    local text = error_of(io_.decode_image, gif, "rgba")
    assert.is_truthy(text:find("'mode' to 'decode_image' ('unchanged', 'gray', 'gray_alpha', 'rgb' "
      .. "or 'rgb_alpha' is needed, got a string ('rgba'))", 1, true), text)
  end)

  it("does not change the tensor of bytes, nor share it", function()
    local gif = golden "rgb.gif"
    local input = moth.tensor({gif:byte(1, -1)}, {dtype = uint8})
    local x = io_.decode_image(input)
    local before = x:clone()
    input:zero_()
    assert.is_true(x:equal(before))
  end)
end)

describe("a broken picture", function()
  local function each_file(f)
    for _, name in ipairs(sorted(index.files)) do
      if can_read(name) then f(name, golden(name)) end
    end
  end

  it("is an error with its path and what is wrong, where it is truncated", function()
    each_file(function(name, text)
      for _, share in ipairs {0.05, 0.3, 0.6, 0.9} do
        local cut = text:sub(1, math.floor(#text * share))
        local path = files.write("cut " .. name, cut)
        local fine, problem = pcall(io_.read_image, path)
        if not fine then
          assert.is_truthy(problem:find("cut " .. name, 1, true), problem)
          assert.equal("E_FORMAT", moth.errcode())
        else -- of animations and of files with a trailer the first picture may be complete
          assert.is_true(name:find "moving" ~= nil or share == 0.9, name .. " at " .. share)
        end
      end
    end)
  end)

  it("is an error where it claims more pixels than the limit, before memory is taken", function()
    if not has("png", "jpeg", "webp") then return pending "a library is not installed" end
    local png = golden "rgb.png"
    local crc = require("moth.io.gzip").crc32
    local head = "IHDR\0\0\255\255\0\0\255\255\8\2\0\0\0"
    local sum = crc(head)
    local huge = png:sub(1, 12) .. head .. string.char(math.floor(sum / 2 ^ 24),
      math.floor(sum / 2 ^ 16) % 256, math.floor(sum / 2 ^ 8) % 256, sum % 256) .. png:sub(34)
    local text, code = error_of(io_.decode_image, huge)
    assert.is_truthy(text:find("65535 x 65535 pixels, above the limit of 178956970", 1, true), text)
    assert.equal("E_LIMIT", code)
    text = error_of(io_.decode_image, {huge, max_pixels = 2 ^ 33})
    assert.is_truthy(text:find("is truncated: it claims", 1, true), text)
    local gif = golden "rgb.gif"
    text = error_of(io_.decode_image, gif:sub(1, 6) .. "\255\255\255\255" .. gif:sub(11))
    assert.is_truthy(text:find("65535 x 65535 pixels", 1, true), text)
    moth.reset_peak_memory()
    local before = moth.memory().peak_bytes
    text = error_of(io_.decode_gif, "GIF89a\0\16\0\16\0\0\0,\0\0\0\0\0\16\0\16\0\8\2\0\1\0;")
    assert.is_truthy(text:find("is truncated", 1, true), text)
    assert.is_true(moth.memory().peak_bytes - before < 2 ^ 20)
    text = error_of(io_.decode_image, {golden "lossless.webp", max_pixels = 100})
    assert.is_truthy(text:find("13 x 9 pixels, above the limit of 100", 1, true), text)
    local jpeg = golden "420.jpg"
    local at = jpeg:find("\255\192", 1, true)
    text = error_of(io_.decode_image, jpeg:sub(1, at + 4) .. "\255\0\255\0" .. jpeg:sub(at + 9))
    assert.is_truthy(text:find("pixels, above the limit", 1, true), text)
    text = error_of(io_.decode_image, jpeg:sub(1, at + 4) .. "\16\0\16\0" .. jpeg:sub(at + 9))
    assert.is_truthy(text:find("is truncated: it claims 4096 x 4096 pixels in", 1, true), text)
  end)

  it("never crashes Moth, whatever bytes are changed", function()
    local generator = moth.Generator():manual_seed(3)
    each_file(function(name, text)
      for _ = 1, 20 do
        local at = moth.randint(1, #text + 1, {3}, {generator = generator}):tolist()
        local with = moth.randint(0, 256, {3}, {generator = generator}):tolist()
        local changed = text
        for i = 1, 3 do
          changed = changed:sub(1, at[i] - 1) .. string.char(with[i]) .. changed:sub(at[i] + 1)
        end
        local fine, problem = pcall(io_.decode_image, {changed, max_pixels = 1e6})
        assert.is_true(fine or problem:find "bad argument 'input'" ~= nil, name .. ": "
          .. tostring(problem))
      end
    end)
  end)

  it("is an error that names another format, an empty file, or another decoder's file", function()
    for _, row in ipairs { {"BM12345678", "is in the format BMP; JPEG, PNG, WebP and GIF can"},
                           {"", "is empty"}, {"hello", "is no picture in a known format"},
                           {"\137PNG\r\n\26\n", "is broken"}, {"GIF89a", "is broken"} } do
      local text = error_of(io_.read_image, files.write("wrong", row[1]))
      if row[1]:find "PNG" and not has "png" then row[2] = "PNG" end
      assert.is_truthy(text:find(row[2], 1, true), text)
    end
    local text = error_of(io_.decode_png, golden "rgb.gif")
    assert.is_truthy(text:find("'decode_png' (this data is a GIF file, not a PNG file)", 1, true),
      text)
    text = error_of(io_.decode_image, "pictures/cat.png")
    assert.is_truthy(text:find("read_image takes the path of a file", 1, true), text)
    text = error_of(io_.read_image, files.path "missing.png")
    assert.is_truthy(text:find("missing.png", 1, true))
    assert.equal("E_IO", moth.errcode())
  end)
end)

describe("write_png and write_jpeg", function()
  local x = moth.arange(0, 4 * 6 * 7):view(4, 6, 7):to(uint8)

  it("write what read_image reads", function()
    if not has "png" then return pending "libspng is not installed" end
    for channels = 1, 4 do
      local path, want = files.path "written.png", x:narrow(1, 1, channels)
      io_.write_png(want, path)
      assert.is_true(io_.read_image(path):equal(want))
      assert.is_true(io_.decode_image(io_.encode_png(want:flip(3), 0)):equal(want:flip(3)))
    end
  end)

  it("write PNG files without libspng, by libdeflate or zlib, smaller at a higher level", function()
    if not can_read "rgb.png" then return pending "PNG files cannot be read" end
    local gzip, png = require "moth.io.gzip", require "moth.io.image.png"
    local find, find_png = gzip.find_deflate, png.find
    local rows = moth.arange(0, 64):view(64, 1)
    local slope = (rows * 3 + moth.arange(0, 48) * 5):remainder(256):to(uint8)
    local noise = moth.randint(0, 256, {64, 48}, {generator = moth.Generator():manual_seed(1)})
      :to(uint8)
    local edges = (rows:gt(20):to(uint8) * 255):expand(64, 48)
    local picture = moth.stack {slope, noise, edges}
    local function check()
      png.find = function() return false end
      local written = {}
      for level, bytes in pairs {[0] = io_.encode_png(picture, 0), [1] = io_.encode_png(picture, 1),
                                 [9] = io_.encode_png(picture, 9)} do
        written[level] = bytes
      end
      local drawing = require("moth.io.png").encode(picture:permute(2, 3, 1):contiguous())
      png.find = find_png
      for _, bytes in pairs(written) do assert.is_true(io_.decode_png(bytes):equal(picture)) end
      assert.is_true(io_.decode_png(drawing):equal(picture))
      assert.is_true(written[9]:numel() < written[0]:numel())
      for channels = 1, 3 do
        local some = picture:narrow(1, 1, channels)
        assert.is_true(io_.decode_png(io_.encode_png(some)):equal(some))
      end
      return written[9]:numel()
    end
    local fine, problem = pcall(check)
    if fine and gzip.find_zlib() then
      gzip.find_deflate = function() return false end
      fine, problem = pcall(check)
    end
    gzip.find_deflate, png.find = find, find_png
    if not fine then error(problem, 0) end
  end)

  it("choose a filter for each row of a PNG", function()
    if not can_read "rgb.png" then return pending "PNG files cannot be read" end
    local rows, columns = moth.arange(0, 200):view(200, 1), moth.arange(0, 200)
    for _, plane in ipairs {rows + columns, rows * 3 - columns, columns:expand(200, 200)} do
      local smooth = plane:remainder(256):to(uint8):unsqueeze(1)
      local bytes = io_.encode_png(smooth)
      assert.is_true(bytes:numel() < 1000, bytes:numel())
      assert.is_true(io_.decode_png(bytes):equal(smooth))
    end
    local large = moth.randint(0, 4, {3, 301, 400}):cumsum(3):remainder(256):to(uint8)
    assert.is_true(io_.decode_png(io_.encode_png(large)):equal(large))
    local wide = moth.randint(0, 256, {1, 3, 150000}):to(uint8)
    assert.is_true(io_.decode_png(io_.encode_png(wide, 1)):equal(wide))
  end)

  it("write JPEG files of a quality", function()
    if not has("png", "jpeg") then return pending "a library is not installed" end
    local picture = io_.decode_image(golden "rgb.png")
    local coarse, fine = io_.encode_jpeg(picture, 20), io_.encode_jpeg(picture, 95)
    assert.is_true(coarse:numel() < fine:numel())
    io_.write_jpeg(picture, files.path "written.jpg", 95)
    assert.is_true(io_.read_file(files.path "written.jpg"):equal(fine))
    local function off(bytes)
      local by = io_.decode_image(bytes):to(moth.int32) - picture:to(moth.int32)
      return by:abs():to(moth.float32):mean():item()
    end
    assert.is_true(off(fine) < off(coarse))
    local gray = io_.decode_jpeg(io_.encode_jpeg(picture:narrow(1, 1, 1)))
    assert.same({1, 9, 13}, {unpack(gray.shape)})
  end)

  it("refuse other dtypes, shapes and options", function()
    local text = error_of(io_.write_png, x:to(moth.float32), files.path "no.png")
    assert.is_truthy(text:find("'write_png' (uint8 (channels, height, width) is needed", 1, true),
      text)
    text = error_of(io_.encode_jpeg, x)
    assert.is_truthy(text:find("1 or 3 channels are needed", 1, true), text)
    text = error_of(io_.encode_png, x:narrow(2, 1, 0))
    assert.is_truthy(text:find("at least one pixel is needed", 1, true), text)
    text = error_of(io_.encode_jpeg, x:narrow(1, 1, 3), 101)
    assert.is_truthy(text:find("quality", 1, true), text)
    assert.is_nil(io.open(files.path "no.png"))
  end)
end)

describe("a picture's functions", function()
  it("say what to install where a library is missing", function()
    local webp = require "moth.io.image.webp"
    local find = webp.find
    webp.find = function() return false end
    local text, code = error_of(io_.decode_image, golden "lossy.webp")
    webp.find = find
    assert.is_truthy(text:find("decode_image: a WebP file needs libwebp, which was not found "
      .. "(Debian: apt-get install libwebp7)", 1, true), text)
    assert.equal("E_UNSUPPORTED", code)
  end)

  it("free what they allocate", function()
    if not can_read "rgb.png" then return pending "libspng is not installed" end
    local png = golden "rgb.png"
    local function live() collectgarbage() collectgarbage() return moth.memory().live_bytes end
    io_.decode_image(png)
    local before = live()
    for _ = 1, 50 do
      io_.decode_image(png)
      pcall(io_.decode_image, png:sub(1, -30))
    end
    assert.is_true(live() <= before)
  end)
end)

-- ---- moth.utils ----

local function drawn(name)
  local row = index.drawn[name]
  local x = moth.frombuffer(part(row), {dtype = moth[row.dtype]})
  return x:view(row.shape)
end

local function same(name, x)
  local want = drawn(name)
  assert.equal(want.dtype, x.dtype)
  assert.same({unpack(want.shape)}, {unpack(x.shape)})
  local off = (want:to(moth.float64) - x:to(moth.float64)):abs():max():item()
  assert.is_true(off <= (x.dtype == uint8 and 0 or 1e-6), name .. " differs by " .. off)
end

describe("moth.utils", function()
  it("arranges pictures as torchvision's make_grid", function()
    local batch = drawn "batch"
    same("grid", utils.make_grid(batch))
    same("grid_normalized", utils.make_grid{batch, nrow = 3, padding = 1, normalize = true,
      pad_value = 0.5})
    same("grid_range", utils.make_grid{batch, normalize = true, value_range = {0.2, 0.7},
      scale_each = true})
    local two = utils.make_grid{batch[1], batch[2]}
    assert.is_true(two:equal(utils.make_grid(batch:narrow(1, 1, 2))))
    assert.same({3, 5, 4}, {unpack(utils.make_grid(batch[1][1]).shape)})
  end)

  it("draws boxes and masks as torchvision", function()
    local base, boxes, masks = drawn "base", drawn "boxes", drawn "masks":to(moth.bool)
    same("boxes_plain", utils.draw_bounding_boxes(base, boxes))
    same("boxes_filled", utils.draw_bounding_boxes{base, boxes, colors = "red", fill = true,
      width = 2})
    same("boxes_gray", utils.draw_bounding_boxes{base:narrow(1, 1, 1):to(moth.float32) / 255, boxes,
      width = 3, colors = {"#0f0", "Blue", {1, 2, 3}, "crimson"}})
    same("masks_plain", utils.draw_segmentation_masks(base, masks))
    same("masks_named", utils.draw_segmentation_masks(base:to(moth.float32) / 255, masks, 0.5,
      {"red", "green", "blue"}))
  end)

  it("writes labels into boxes", function()
    local base = moth.zeros({3, 30, 60}, {dtype = uint8})
    local boxes = moth.tensor{{2, 3, 55, 26}, {50, 20, 90, 40}}
    local x = utils.draw_bounding_boxes{base, boxes, {"cat", "dog"}, colors = "blue",
      label_colors = {"red", "#00ff00"}}
    assert.is_true(x:select(1, 1):gt(200):sum():item() > 10) -- red strokes
    assert.equal(0, x:select(1, 1):narrow(1, 20, 10):sum():item())
    assert.is_true(x:select(1, 2):narrow(2, 50, 10):sum():item() > 0) -- cut at the edge
    local filled = utils.draw_bounding_boxes{base, boxes, {"cat", "dog"}, colors = "blue",
      fill_labels = true, label_background_colors = "white"}
    assert.equal(255, filled[1][6][6]:item())
  end)

  it("refuses wrong boxes, masks and colors", function()
    local base = drawn "base"
    local text = error_of(utils.draw_bounding_boxes, base, moth.tensor{{5, 5, 2, 9}})
    assert.is_truthy(text:find("row 1 is {5, 5, 2, 9}", 1, true), text)
    text = error_of(utils.draw_bounding_boxes, base, moth.tensor{{1, 1, 2, 9}}, {colors = "rde"})
    assert.is_truthy(text:find("a color is needed", 1, true), text)
    text = error_of(utils.draw_bounding_boxes, base, moth.ones(2, 4), {colors = {"red"}})
    assert.is_truthy(text:find("1 color", 1, true), text)
    text = error_of(utils.draw_bounding_boxes, base, moth.ones(2, 4), {"cat"})
    assert.is_truthy(text:find("a list of 2 texts, one for each box, is needed", 1, true), text)
    text = error_of(utils.draw_segmentation_masks, base, moth.ones(3, 3):to(moth.bool))
    assert.is_truthy(text:find("bool (n, 14, 18) is needed", 1, true), text)
  end)

  it("saves pictures as files", function()
    if not has("png", "jpeg") then return pending "a library is not installed" end
    local batch = drawn "batch"
    utils.save_image(batch, files.path "grid.png")
    local x = io_.read_image(files.path "grid.png")
    assert.is_true(x:equal(utils.make_grid(batch):mul(255):add(0.5):to(uint8)))
    utils.save_image(drawn "base", files.path "one.png")
    assert.is_true(io_.read_image(files.path "one.png"):equal(drawn "base"))
    utils.save_image(batch, files.path "grid.JPG", {nrow = 2})
    assert.same({3, 2 + 4 * 7, 2 + 2 * 6}, {unpack(io_.read_image(files.path "grid.JPG").shape)})
    local text = error_of(utils.save_image, batch, files.path "grid.bmp")
    assert.is_truthy(text:find("'png' or 'jpeg' is needed, got 'bmp'", 1, true), text)
  end)
end)

