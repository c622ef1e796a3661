-- moth.io.bytes, by which the readers of file formats read: numbers of each width at both sides of
-- each bound, positions, bytes in memory, sources, tensors over a file's pages, written files.

local bytes = require "moth.io.bytes"
local ffi = require "ffi"
local files = require "spec.support.files"
local lib = require "moth.binding.lib"
local moth = require "moth"
local fails = require("spec.support.refusals").fails

setup(files.setup)
teardown(files.teardown)

local function open(text) return bytes.open(bytes.memory(text), "reader") end

describe("a number in a file", function()
  it("is unsigned, of 1 to 8 bytes, the lowest first", function()
    for width = 1, 8 do
      local file = open("\1" .. ("\0"):rep(width - 1) .. ("\255"):rep(width) .. "\7")
      assert.equal(1, file:uint(width))
      assert.equal(256 ^ width - 1, file:uint(width))
      assert.equal(2 * width, file.at)
      assert.equal(7, file:uint(1))
    end
    local file = open "\1abc"
    file:uint(1)
    assert.equal("abc", file:text(3))
    assert.equal(0x04030201, open "\1\2\3\4":uint(4))
    assert.equal(0x060504030201, open "\1\2\3\4\5\6":uint(6))
  end)

  it("is signed", function()
    for width = 1, 6 do
      local zeros, ones = ("\0"):rep(width - 1), ("\255"):rep(width - 1)
      local half = 2 ^ (8 * width - 1)
      assert.equal(half - 1, open(ones .. "\127"):int(width))
      assert.equal(-half, open(zeros .. "\128"):int(width))
      if width > 1 then
        assert.equal(1 - half, open("\1" .. zeros:sub(2) .. "\128"):int(width))
      end
      assert.equal(-1, open("\255" .. ones):int(width))
      assert.equal(0, open("\0" .. zeros):int(width))
    end
  end)

  it("of 8 bytes is a Lua number if that is exact, else an int64 or a uint64", function()
    for _, row in ipairs {
      {"\0\0\0\0\0\0\0\0", 0, 0}, {"\255\255\255\255\255\255\31\0", 2 ^ 53 - 1, 2 ^ 53 - 1},
      {"\0\0\0\0\0\0\32\0", 9007199254740992LL, 9007199254740992LL},
      {"\1\0\0\0\0\0\32\0", 9007199254740993LL, 9007199254740993LL},
      {"\255\255\255\255\255\255\255\127", 2 ^ 63 - 1ULL, 9223372036854775807LL, "int64_t"},
      {"\0\0\0\0\0\0\0\64", 2LL ^ 62, 2LL ^ 62, "int64_t"},
      {"\0\0\0\0\0\0\0\128", 2ULL ^ 63, -9223372036854775807LL - 1, "uint64_t"},
      {"\255\255\255\255\255\255\255\255", 18446744073709551615ULL, -1, "uint64_t"},
      {"\1\0\0\0\0\0\224\255", 18437736874454810625ULL, 1 - 2 ^ 53, "uint64_t"},
      {"\0\0\0\0\0\0\224\255", 18437736874454810624ULL, -9007199254740992LL, "uint64_t"},
    } do
      local unsigned, signed = open(row[1]):uint64(), open(row[1]):int(8)
      assert.equal(tostring(row[2]):gsub("ULL$", "LL"), (tostring(unsigned):gsub("ULL$", "LL")))
      assert.equal(type(row[3]), type(signed))
      assert.is_true(row[3] == signed)
      if row[4] then assert.is_true(ffi.istype(row[4], unsigned)) end
    end
  end)

  -- The bits of a double.
  local Bits = ffi.typeof "union { double number; uint64_t word; }"
  local function bits(x)
    local value = Bits()
    value.number = x
    return tostring(value.word)
  end

  it("is a double or a float; a NaN of any bits is the one of Lua", function()
    for _, row in ipairs {
      {"\0\0\0\0\0\0\240\63", 1}, {"\0\0\0\0\0\0\4\192", -2.5}, {"\0\0\0\0\0\0\240\127", math.huge},
      {"\0\0\0\0\0\0\240\255", -math.huge},
      {"\255\255\255\255\255\255\239\127", (2 - 2 ^ -52) * 2 ^ 1023},
      {"\1\0\0\0\0\0\0\0", 4.9406564584124654e-324},
      {"\24\45\68\84\251\33\9\64", math.pi},
    } do assert.equal(("%.17g"):format(row[2]), ("%.17g"):format(open(row[1]):double())) end
    for _, nan in ipairs {"\1\0\0\0\0\0\240\127", "\0\0\0\0\0\0\248\127", "\0\0\0\0\0\0\248\255",
                          "\255\255\255\255\255\255\255\255", "\0\0\0\0\1\0\240\255"} do
      local value = open(nan):double()
      assert.is_true(value ~= value and type(value) == "number")
      assert.equal(bits(0 / 0), bits(value))
    end
    for _, row in ipairs {
      {"\0\0\128\63", 1}, {"\0\0\32\192", -2.5}, {"\0\0\128\127", math.huge},
      {"\0\0\128\255", -math.huge}, {"\255\255\127\127", 2 ^ 128 - 2 ^ 104}, {"\1\0\0\0", 2 ^ -149},
      {"\0\0\0\128", -0},
    } do assert.equal(row[2], open(row[1]):single()) end
    for _, nan in ipairs {"\1\0\128\127", "\0\0\192\127", "\255\255\255\255", "\0\1\128\255"} do
      local value = open(nan):single()
      assert.is_true(value ~= value and type(value) == "number")
      assert.equal(bits(0 / 0), bits(value))
    end
  end)

  it("may end with the file, and not after it", function()
    local where = "bad argument 'bytes' to 'reader' (this data is broken: %s, %d bytes at byte %d, "
      .. "would lie beyond its end at 3)"
    for _, row in ipairs {
      {where:format("a number", 4, 0), "uint", 4}, {where:format("a number", 8, 0), "double"},
      {where:format("a number", 4, 0), "single"}, {where:format("a value", 4, 0), "text", 4},
      {where:format("a word", 5, 0), "text", 5, "a word"},
    } do
      local file = open "abc"
      fails(row[1], file[row[2]], file, row[3], row[4])
      assert.equal("E_FORMAT", moth.errcode())
      assert.equal(0, file.at)
      assert.equal("abc", file:text(3))
      assert.equal("", file:text(0))
      fails((where:format("a value", 1, 3):gsub("1 bytes", "1 byte")), file.text, file, 1)
      fails("a value, -1 bytes at byte 3", file.take, file, -1)
      fails("a value, nan bytes at byte 3", file.take, file, 0 / 0)
    end
    local path = files.write("short", "abc")
    local file = bytes.open(path, "load", "file")
    fails(("bad argument 'file' to 'load' ('%s' is broken: a value, 4 bytes at byte 0, would lie "
      .. "beyond its end at 3)"):format(path), file.text, file, 4)
    fails(("bad argument 'file' to 'load' ('%s' is odd)"):format(path), file.refuse, file, "is odd",
      "E_UNSUPPORTED")
    assert.equal("E_UNSUPPORTED", moth.errcode())
  end)
end)

describe("bytes", function()
  it("in memory are a string, an FFI array or a uint8 tensor on the CPU", function()
    local array = ffi.new("uint8_t[4]", {1, 2, 3, 4})
    local sized = ffi.new("char[?]", 3, "ab")
    local words = ffi.new("uint16_t[2]", {0x0201, 0x0403})
    local tensor = moth.tensor({{1, 9}, {2, 9}, {3, 9}}, {dtype = moth.uint8})
    for _, row in ipairs {{"\1\2", "\1\2"}, {"", ""}, {array, "\1\2\3\4"}, {sized, "ab\0"},
                          {words, "\1\2\3\4"}, {tensor:select(2, 1), "\1\2\3"}} do
      local memory = bytes.memory(row[1])
      assert.is_true(bytes.is_memory(memory))
      assert.equal(#row[2], tonumber(memory.size))
      local text = bytes.text_of(memory)
      assert.equal(row[2], ffi.string(text[0].at, text[0].size))
      local file = bytes.open(memory, "reader")
      assert.equal(#row[2], file.size)
      assert.equal(row[2], file:text(#row[2]))
    end
    for _, other in ipairs {3, true, {}, moth.ones(2), ffi.new "int", ffi.new("int64_t", 3),
                            ffi.cast("char *", "abc"), ffi.new "struct { int x; }"} do
      assert.is_nil(bytes.memory(other))
      fails("bad argument 'bytes' to 'reader' (a string, an array of the FFI's or a uint8 tensor "
        .. "on the CPU is needed, got ", bytes.source, nil, other, "reader")
      assert.equal("E_TYPE", moth.errcode())
    end
    assert.is_false(bytes.is_memory "path")
    local path = bytes.text_of "a path"
    assert.equal("a path", ffi.string(path[0].at, path[0].size))
  end)

  it("come from a path or from memory, not from both", function()
    assert.equal("a", bytes.source("a", nil, "reader"))
    assert.is_true(bytes.is_memory(bytes.source(nil, "a", "reader")))
    fails("bad argument 'path' to 'reader' (a path is needed, or bytes = a string)", bytes.source,
      nil, nil, "reader")
    fails("bad argument 'path' to 'reader' (there are bytes as well)", bytes.source, "a", "b",
      "reader")
    fails("bad argument 'path' to 'reader' (a path cannot hold a NUL; the bytes of a file are "
      .. "given by name: {bytes = s})", bytes.source, "a\0", nil, "reader")
    fails("bad argument 'path' to 'reader' (", bytes.open, files.path "absent", "reader")
    assert.equal("E_IO", moth.errcode())
    fails("bad argument 'name' to 'reader' (", bytes.open, files.path "absent", "reader", "name")
  end)

  it("are tensors at any offset; those of a mapped file do not change it", function()
    local path = files.write("t", "x\1\0\2\0\3\0\4\0")
    for _, mmap in ipairs {true, false} do
      local file = bytes.open(path, "load", "path", mmap)
      for _, row in ipairs {{{2, 2}, 1, {{1, 2}, {3, 4}}}, {{1}, 7, {4}}, {{0}, 9, {}},
                            {{}, 3, 2}} do
        local x = file:tensor("int16", row[1], row[2])
        assert.equal(moth.int16, x.dtype)
        assert.same(row[3], x:dim() == 0 and x:item() or x:tolist())
      end
      fails("load", file.tensor, file, "int16", {4}, 2)
      fails("load", file.tensor, file, "int16", {-1}, 0)
      local x = file:tensor("uint8", {2}, 0)
      x:add_(1)
      file:close()
      assert.same({121, 2}, x:tolist())
      assert.equal("x\1", files.read(path):sub(1, 2))
    end
    fails("bad argument 'path' to 'load' (", bytes.open(path, "load").refuse, bytes.open(path,
      "load"), "is odd")
    local all = bytes.open(path, "load").all
    assert.same({256, 512}, bytes.as(all, "int16", {2}, 1, "load", true):tolist())
    assert.same({1, 2, 3, 4}, bytes.as(all:narrow(1, 2, 8):contiguous(), "int16", {4}, nil, "load")
      :tolist())
  end)

  it("of a file are mapped, unless mmap is false", function()
    local path = files.write("large", ("x"):rep(2 ^ 20))
    local maps = io.open "/proc/self/maps"
    if not maps then return pending "no /proc/self/maps" end
    maps:close()
    local function mapped(...)
      local file = bytes.open(path, "load", "path", ...)
      local found = files.read "/proc/self/maps":find(path, 1, true) ~= nil
      assert.equal("x", file:text(1))
      file:close()
      assert.is_nil(files.read "/proc/self/maps":find(path, 1, true))
      return found
    end
    assert.same({true, true, false}, {mapped(), mapped(true), mapped(false)})
  end)

  it("are read again after memory was freed", function()
    local all = moth.tensor({9, 1, 0, 2, 0}, {dtype = moth.uint8})
    local recover, statuses = lib.recover, {}
    finally(function() lib.recover = recover end)
    lib.recover = function(status)
      statuses[#statuses + 1] = status
      return true
    end
    assert.same({1, 2}, bytes.as(all, "int16", {2}, 1, "load"):tolist())
    assert.same({9, 1}, bytes.as(all, "uint8", {2}, nil, "load"):tolist())
    assert.same({0, 0}, statuses)
    lib.recover = function() return false end
    assert.same({{256}, {512}}, bytes.as(all, "int16", {2, 1}, 1, "load", true):tolist())
  end)

  it("are written as a whole: strings and tensors, in order", function()
    local path = files.path "out"
    for _, durable in ipairs {true, false} do
      bytes.save(path, {"a", moth.tensor({1, 2}, {dtype = moth.int16}), "", "\0z"}, "save", durable)
      assert.equal("a\1\0\2\0\0z", files.read(path))
    end
    bytes.save(path, {}, "save")
    assert.equal("", files.read(path))
    fails("bad argument 'path' to 'save' (", bytes.save, files.path "no/out", {"a"}, "save")
    assert.equal("E_IO", moth.errcode())
    fails("bad argument 'file' to 'save' (", bytes.save, files.path "no/out", {"a"}, "save", false,
      "file")
    assert.equal("", files.read(path))
  end)

  it("of a file next to another are found with links resolved", function()
    local lfs = require "lfs"
    assert(lfs.mkdir(files.path "in") and lfs.mkdir(files.path "in/deep"))
    local main = files.write("in/main", "")
    files.write("outside", "")
    assert(lfs.link(files.path "outside", files.path "in/link", true))
    for name, near in pairs {["in/a"] = true, ["in/main"] = true, ["in/deep/b"] = true,
                             outside = false, ["in/../outside"] = false, ["in/link"] = false} do
      if name ~= "in/main" and not name:find "outside" and name ~= "in/link" then
        files.write(name, "")
      end
      assert.equal(near, bytes.beside(files.path(name), main), name)
    end
  end)
end)
