-- IDX files, the format of MNIST: plain and gzip files, and errors for malformed files.

local moth = require "moth"
local gzip = require "moth.io.gzip"
local files = require "spec.support.files"
local data = moth.data

setup(files.setup)
teardown(files.teardown)

local function write(bytes, name) return files.write(name or "x.idx", bytes) end

local function shell(command)
  local status = os.execute(command)
  assert(status == 0 or status == true, command)
end

local function gzipped(path)
  shell("gzip -kf '" .. path .. "'")
  return path .. ".gz"
end

-- u8 (3 * 2 ^ 20 + 17)
local LARGE = "\0\0\8\1\0\48\0\17" .. ("moth"):rep(3 * 2 ^ 18 + 5):sub(1, 3 * 2 ^ 20 + 17)

-- u8 (2, 3)
local GOOD = "\0\0\8\2\0\0\0\2\0\0\0\3abcdef"

describe("data.idx", function()
  it("reads bytes", function()
    local x = data.idx(write(GOOD))
    assert.equal(moth.uint8, x.dtype)
    assert.same({{97, 98, 99}, {100, 101, 102}}, x:tolist())
  end)

  it("reads gzip the same", function()
    local path = write(GOOD)
    assert.is_true(data.idx(gzipped(path)):equal(data.idx(path)))
  end)

  it("reads gzip of several megabytes, which it reads in pieces", function()
    local n = 3 * 2 ^ 20 + 17
    local path = write(LARGE)
    local x = data.idx(gzipped(path))
    assert.equal(n, x:size(1))
    assert.is_true(x:equal(data.idx(path)))
    assert.equal(("m"):byte(), tonumber(x[n]:item()))
  end)

  it("reads large gzip the same without libdeflate, and from several streams", function()
    local path = write(LARGE)
    local x, whole = data.idx(path), files.read(gzipped(path))
    local first = files.read(gzipped(write(LARGE:sub(1, 2 ^ 20), "a")))
    local second = files.read(gzipped(write(LARGE:sub(2 ^ 20 + 1), "b")))
    assert.is_true(data.idx(write(first .. second, "two.gz")):equal(x))
    local at_once = gzip.at_once
    finally(function() gzip.at_once = at_once end)
    function gzip.at_once() return false end
    assert.is_true(data.idx(write(whole, "whole.gz")):equal(x))
  end)

  local types = {
    {"i8", "\9", "\255\127", "int8", {-1, 127}},
    {"i16", "\11", "\1\2\255\254", "int16", {258, -2}},
    {"i32", "\12", "\0\1\0\0\255\255\255\255", "int32", {65536, -1}},
    {"f32", "\13", "\63\128\0\0\192\32\0\0", "float32", {1, -2.5}},
    {"f64", "\14", "\63\240\0\0\0\0\0\0\192\4\0\0\0\0\0\0", "float64", {1, -2.5}},
  }
  for _, case in ipairs(types) do
    it("reads big-endian " .. case[1], function()
      local x = data.idx(write("\0\0" .. case[2] .. "\1\0\0\0\2" .. case[3]))
      assert.equal(moth[case[4]], x.dtype)
      assert.same(case[5], x:to(moth.float64):tolist())
    end)
  end

  it("reads NaNs with any bits, which become no other Lua values", function()
    local x = data.idx(write("\0\0\14\1\0\0\0\1\255\255\255\255\255\255\255\255"))
    assert.is_true(x[1]:item() ~= x[1]:item())
  end)

  it("reads empty sets and up to 8 dimensions", function()
    local x = data.idx(write "\0\0\8\2\0\0\0\0\0\0\0\3")
    assert.same({0, 3}, {x:size(1), x:size(2)})
    assert.equal(8, data.idx(write("\0\0\8\8" .. ("\0\0\0\1"):rep(8) .. "a")):dim())
  end)
end)

describe("data.idx raises, with the path and the fault, for", function()
  local cases = {
    {"a file with more bytes than its sizes say", GOOD .. "x", "has bytes beyond its 6 of"},
    {"a file with fewer", GOOD:sub(1, -2), "ends too early: 5 of 6 bytes of elements"},
    {"a file that ends in its header", GOOD:sub(1, 9), "ends within its sizes"},
    {"a file of two bytes", "ab", "is too short for an IDX file"},
    {"an empty file", "", "is empty"},
    {"another format", "PK\3\4aaaa", "is not an IDX file: it begins with the bytes 80, 75 instead"},
    {"an unknown element type", "\0\0\7\1\0\0\0\1a", "the unknown type 0x07"},
    {"nine dimensions", "\0\0\8\9" .. ("\0\0\0\1"):rep(9) .. "a", "has 9 dimensions; 1 to 8"},
    {"no dimensions", "\0\0\8\0a", "has 0 dimensions"},
    {"sizes whose product overflows", "\0\0\14\8" .. ("\255\255\255\255"):rep(8) .. "a",
      "claims the shape %(4294967295, .*more than 64 GiB"},
    {"a size of 2 GiB with one byte behind it", "\0\0\8\1\127\255\255\255a",
      "ends too early: 1 of 2147483647 bytes"},
    {"a zero size beside a huge one, with bytes", "\0\0\8\2\0\0\0\0\0\0\0\3abc", "beyond its 0"},
  }
  for _, case in ipairs(cases) do
    it(case[1], function()
      local path = write(case[2], "bad.idx")
      local ok, message = pcall(data.idx, path)
      assert.is_false(ok)
      assert.is_truthy(message:find(path, 1, true), message)
      assert.is_truthy(message:find(case[3]), message)
    end)
  end

  it("a gzip file that is cut short or damaged", function()
    local gz = files.read(gzipped(write(GOOD .. ("abc"):rep(1000), "whole.idx")))
    for cut = 11, #gz - 1, 3 do
      assert.has_error_like(function() data.idx(write(gz:sub(1, cut), "bad.gz")) end, "bad%.gz': ")
    end
    local sum = gz:sub(1, -8) .. string.char((gz:byte(-7) + 1) % 256) .. gz:sub(-6)
    assert.has_error_like(function() data.idx(write(sum, "bad.gz")) end, "bad%.gz': ")
  end)

  it("a large gzip file that is damaged, cut, or has another length than its sizes say", function()
    local gz = files.read(gzipped(write(LARGE, "large.idx")))
    local sum = gz:sub(1, -8) .. string.char((gz:byte(-7) + 1) % 256) .. gz:sub(-6)
    local wrong = {[sum] = "is damaged", [gz:sub(1, -100)] = "is damaged",
      [files.read(gzipped(write(LARGE .. "x", "more")))] = "has bytes beyond its 3145745 of",
      [files.read(gzipped(write(LARGE:sub(1, -2), "less")))] = "ends too early: 3145744 of 3145745"}
    for bytes, text in pairs(wrong) do
      assert.has_error_like(function() data.idx(write(bytes, "bad.gz")) end, "bad%.gz': " .. text)
    end
  end)

  it("a missing path, or a folder", function()
    assert.has_error_like(function() data.idx(files.path "none") end,
      "cannot open '.*none': No such file")
    assert.has_error_like(function() data.idx(files.folder) end, "is a directory, not a file")
    assert.has_error_like(function() data.idx(3) end, "bad argument 'path' to 'idx'")
  end)

  it("1000 files with changed bytes, or reads them", function()
    local gz = files.read(gzipped(write(GOOD, "good.idx")))
    local seed = 12345
    local function random(n)
      seed = (seed * 1103515245 + 12345) % 2 ^ 31
      return math.floor(seed / 65536) % n
    end
    for i = 1, 1000 do
      local bytes = {(i % 2 == 0 and gz or GOOD):byte(1, -1)}
      for _ = 1, 1 + random(3) do bytes[1 + random(#bytes)] = random(256) end
      local ok, x = pcall(data.idx, write(string.char(unpack(bytes)), "fuzz"))
      if ok then
        assert.is_true(x:numel() >= 0)
      else
        assert.is_truthy(x:find("fuzz': ", 1, true), x)
      end
    end
  end)

  it("a gzip file with more or fewer elements than its sizes say", function()
    assert.has_error_like(function() data.idx(gzipped(write(GOOD .. "x", "more.idx"))) end,
      "has bytes beyond its 6 of elements")
    assert.has_error_like(function() data.idx(gzipped(write(GOOD:sub(1, -2), "fewer.idx"))) end,
      "ends too early: 5 of 6 bytes")
  end)

  it("short files with large sizes, without a large allocation", function()
    local path = write("\0\0\8\1\127\255\255\255a", "bad.idx")
    moth.collect()
    moth.reset_peak_memory()
    local before = moth.memory().peak_bytes
    assert.is_false(pcall(data.idx, path))
    assert.equal(before, moth.memory().peak_bytes)
  end)

  it("bad files, and leaks no memory", function()
    local path = write("\0\0\8\1\127\255\255\255a", "bad.idx")
    moth.collect()
    local before = moth.memory().live_bytes
    for _ = 1, 50 do pcall(data.idx, path) end
    moth.collect()
    assert.at_most(before, moth.memory().live_bytes)
  end)
end)

describe("data.mnist", function()
  local function u32(n)
    return string.char(math.floor(n / 2 ^ 24) % 256, math.floor(n / 2 ^ 16) % 256,
      math.floor(n / 256) % 256, n % 256)
  end

  local function part(name, n, labels)
    write("\0\0\8\3" .. u32(n) .. u32(28) .. u32(28) .. ("\1"):rep(n * 784),
      name .. "-images-idx3-ubyte")
    write("\0\0\8\1" .. u32(#labels) .. labels, name .. "-labels-idx1-ubyte")
  end

  it("reads the four files of a folder, and its labels count from 1", function()
    part("train", 3, "\0\4\9")
    part("t10k", 2, "\5\6")
    gzipped(files.path "t10k-labels-idx1-ubyte")
    os.remove(files.path "t10k-labels-idx1-ubyte")
    local set = data.mnist(files.folder)
    assert.equal("(3, 28, 28)", tostring(set.train_images.shape))
    assert.equal(moth.uint8, set.train_images.dtype)
    assert.same({1, 5, 10}, set.train_labels:to(moth.float64):tolist())
    assert.equal(moth.int64, set.train_labels.dtype)
    assert.same({6, 7}, set.test_labels:to(moth.float64):tolist())
  end)

  it("raises if labels and images have different lengths", function()
    part("train", 3, "\0\4")
    part("t10k", 2, "\5\6")
    assert.has_error_like(function() data.mnist(files.folder) end, "has 2 labels for 3 images")
  end)

  it("names the source of the data if they are missing", function()
    assert.has_error_like(function() data.mnist "nowhere" end,
      "nowhere/train%-images%-idx3%-ubyte%(%.gz%)' was not found.*dataset%-fashion%-mnist")
  end)
end)
