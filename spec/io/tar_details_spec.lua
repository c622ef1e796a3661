-- Tar archives block by block: forms of names and sizes, plain and compressed, broken headers; what
-- data.TarWriter writes and refuses; the bounds of GGUF files.

local bytes = require "moth.io.bytes"
local files = require "spec.support.files"
local moth = require "moth"
local tar = require "moth.data.tar"
local data = moth.data

setup(files.setup)
teardown(files.teardown)

local function refuses(f, text)
  local fine, problem = pcall(f)
  assert.is_false(fine, text)
  assert.is_true(tostring(problem):find(text, 1, true) ~= nil, tostring(problem))
end

local function zeros(n) return ("\0"):rep(n) end

-- ---- tar ----

-- A header: name (100), mode, owner, group (8 each), size (12), time (12), checksum (8), kind (1),
-- link (100), magic (6), version (2), ..., prefix (155, from byte 346 on).
local function header(t)
  local size = t.size or ("%011o\0"):format(#(t.text or ""))
  local before = t.name .. zeros(100 - #t.name) .. zeros(24) .. size .. zeros(12)
  local after = (t.kind or "0") .. zeros(100) .. (t.magic or "ustar\0") .. "00" .. zeros(80)
    .. (t.prefix or "") .. zeros(155 - #(t.prefix or "")) .. zeros(12)
  local sum = 8 * 32
  for i = 1, #before do sum = sum + before:byte(i) end
  for i = 1, #after do sum = sum + after:byte(i) end
  return before .. (t.checksum or ("%06o\0 "):format(sum)) .. after
end

local function member(t)
  local text = t.text or ""
  return header(t) .. text .. zeros(-#text % 512)
end

local function archive(...)
  local parts = {}
  for i, t in ipairs {...} do parts[i] = type(t) == "string" and t or member(t) end
  return table.concat(parts) .. zeros(1024)
end

local function all(source)
  local reader, list = tar.open(source, "test"), {}
  local name, text = reader:next()
  while name do
    list[#list + 1] = name .. "=" .. text
    name, text = reader:next()
  end
  reader:close()
  return list
end

-- The members, read from memory, from a file and from a compressed file.
local function each_way(text)
  local list = all(bytes.memory(text))
  assert.same(list, all(files.write("a.tar", text)))
  os.remove(files.path "a.tar.gz")
  assert.equal(0, os.execute("gzip -kf '" .. files.path "a.tar" .. "'"))
  assert.same(list, all(files.path "a.tar.gz"))
  return list
end

local function base256(n)
  local list = {}
  for i = 11, 1, -1 do
    list[i] = string.char(n % 256)
    n = math.floor(n / 256)
  end
  return "\128" .. table.concat(list)
end

describe("a tar archive", function()
  it("has names with a prefix, if it is of ustar", function()
    assert.same({"folder/a=x"}, each_way(archive {name = "a", prefix = "folder", text = "x"}))
    assert.same({"a=x"}, each_way(archive {name = "a", prefix = "folder", magic = "ustar ",
      text = "x"}))
    assert.same({"a=x"}, each_way(archive {name = "a", text = "x"}))
    local long = ("n"):rep(100)
    assert.same({long .. "=x"}, each_way(archive {name = long, text = "x"}))
    local folder = ("p"):rep(155)
    assert.same({folder .. "/" .. long .. "=x"}, each_way(archive {name = long, prefix = folder,
      text = "x"}))
  end)

  it("has sizes in octal digits with blanks or zeros, or in base 256", function()
    for _, size in ipairs {"00000000003\0", "         3 \0", "3" .. zeros(11), "3           ",
                           base256(3)} do
      assert.same({"a=abc", "b="}, each_way(archive({name = "a", size = size, text = "abc"},
        {name = "b"})))
    end
    local large = ("x"):rep(70000)
    assert.same({"a=" .. large, "b=y"}, each_way(archive({name = "a", size = base256(70000),
      text = large}, {name = "b", text = "y"})))
    assert.same({"a="}, each_way(archive {name = "a", size = zeros(12)}))
    for _, size in ipairs {"00000000008\0", "x0000000003\0", "0000000 003\0", "-0000000003\0",
                           "\128\1" .. zeros(10)} do
      refuses(function() all(bytes.memory(archive {name = "a", size = size, text = "abc"})) end,
        "member 1 at byte 0 is broken: its size is no number")
    end
  end)

  it("has files of 511, 512 and 513 bytes, and members of other kinds", function()
    for _, n in ipairs {0, 1, 511, 512, 513, 1024} do
      assert.same({"a=" .. ("x"):rep(n), "b=y"}, each_way(archive({name = "a",
        text = ("x"):rep(n)}, {name = "b", text = "y"})))
    end
    for _, kind in ipairs {"0", "\0", "7"} do
      assert.same({"a=x"}, each_way(archive {name = "a", kind = kind, text = "x"}))
    end
    for _, kind in ipairs {"1", "2", "3", "4", "6"} do -- links and devices have no bytes
      assert.same({"b=y"}, each_way(archive(header {name = "a", kind = kind,
        size = "00000000777\0"}, {name = "b", text = "y"})))
    end
    assert.same({"b=y"}, each_way(archive({name = "d/", kind = "5"}, {name = "d/"},
      {name = "g", kind = "g", text = "11 path=no\n"}, {name = "b", text = "y"})))
    for _, kind in ipairs {"S", "M"} do
      refuses(function() all(bytes.memory(archive {name = "a", kind = kind})) end,
        "is a sparse file, or a part of one")
      assert.equal("E_UNSUPPORTED", moth.errcode())
    end
  end)

  it("has names and sizes in headers before a member, for that member only", function()
    local pax = "18 path=long name\n"
    assert.same({"long name=x", "b=y"}, each_way(archive({name = "p", kind = "x", text = pax},
      {name = "a", text = "x"}, {name = "b", text = "y"})))
    assert.same({"long=x", "b=y"}, each_way(archive({name = "l", kind = "L", text = "long\0"},
      {name = "a", text = "x"}, {name = "b", text = "y"})))
    assert.same({"a=xyz"}, each_way(archive({name = "p", kind = "x", text = "9 size=3\n"},
      header {name = "a", size = zeros(12)}, "xyz" .. zeros(509))))
    assert.same({"new=x"}, each_way(archive({name = "p", kind = "x",
      text = "12 mtime=1.\n12 path=new\n"}, {name = "a", text = "x"})))
    for text, why in pairs {
      ["10 path=a\nx"] = "pax header is no list", ["11 path=a\n"] = "pax header is no list",
      ["8 path=a\n"] = "pax header is no list", ["x path=a\n"] = "pax header is no list",
      ["5 p=\nx"] = "pax header is no list", ["9 size=x\n"] = "its size is no number",
      ["9 size=-\n"] = "its size is no number",
      ["25 size=1234567890123456\n"] = "its size is no number",
      ["16 GNU.sparse=1\n"] = "is a sparse file", ["17 GNU.sparse=1\n"] = "pax header is no list",
      ["22 GNU.sparse.major=1\n"] = "is a sparse file",
    } do
      refuses(function()
        all(bytes.memory(archive({name = "p", kind = "x", text = text}, {name = "a"})))
      end, why)
    end
    local most = ("n"):rep(2 ^ 16)
    assert.same({most .. "="}, all(bytes.memory(archive({name = "l", kind = "L", text = most},
      {name = "a"}))))
    refuses(function()
      all(bytes.memory(archive({name = "l", kind = "L", text = most .. "n"}, {name = "a"})))
    end, "is broken: a name of 65537 bytes")
  end)

  it("that is cut says where, plain and compressed", function()
    local whole = archive({name = "a", text = ("x"):rep(600)}, {name = "b", text = "y"})
    for _, case in ipairs {
      {100, "member 1 at byte 0 ends in its header"}, {512, "member 1 at byte 0 "},
      {1000, "member 1 at byte 0 "}, {1112, "member 1 at byte 0 ends too early"},
      {1535, "member 1 at byte 0 ends too early"},
      {1536, "member 2 at byte 1536 is missing: the archive was cut short"},
      {1600, "member 2 at byte 1536 ends in its header"},
      {2560, "member 3 at byte 2560 is missing: the archive was cut short"},
    } do
      local cut = whole:sub(1, case[1])
      refuses(function() all(bytes.memory(cut)) end, case[2])
      files.write("cut.tar", cut)
      assert.equal(0, os.execute("gzip -kf '" .. files.path "cut.tar" .. "'"))
      refuses(function() all(files.path "cut.tar.gz") end, case[2])
    end
    assert.equal(2, #all(bytes.memory(whole:sub(1, 2560 + 512))))
    refuses(function() all(bytes.memory(archive {name = "a", checksum = "000001\0 "})) end,
      "member 1 at byte 0 is no tar header")
    refuses(function()
      all(bytes.memory(archive({name = "a"}, {name = "b", checksum = "000001\0 "})))
    end, "member 2 at byte 512 is broken: its header has a wrong checksum")
  end)

  it("skips the files that are not wanted", function()
    local reader = tar.open(bytes.memory(archive({name = "a", text = ("x"):rep(513)},
      {name = "b", text = "y"})), "test")
    assert.same({"b", "y"}, {reader:next(function(name) return name == "b" end)})
    assert.is_nil(reader:next())
  end)
end)

describe("data.TarWriter", function()
  it("writes names of 100 and 101 bytes, and reads them again", function()
    for _, n in ipairs {5, 99, 100, 101, 300} do
      local path = files.path "w.tar"
      local writer = data.TarWriter(path)
      local key = ("k"):rep(n - 4)
      writer:write {__key__ = key, txt = "x", __url__ = "no"}
      assert.equal(("TarWriter of '%s', 1 samples"):format(path),
        (tostring(writer):gsub("1 sample$", "1 samples")))
      writer:close()
      writer:close()
      assert.same({key .. ".txt=x"}, all(path))
      assert.equal(0, #files.read(path) % 512)
      refuses(function() writer:write {__key__ = "a", txt = "x"} end, "the archive is closed")
    end
  end)

  -- The fields of a POSIX header: offset from 0, bytes.
  local function fields(block)
    local sum = 0
    for i = 1, 512 do sum = sum + (i > 148 and i <= 156 and 32 or block:byte(i)) end
    local function at(from, n) return block:sub(from + 1, from + n) end
    return {name = at(0, 100):match "^%Z*", mode = at(100, 8), owner = at(108, 8),
      group = at(116, 8), size = at(124, 12), time = at(136, 12), right = at(148, 8)
      == ("%06o\0 "):format(sum), kind = at(156, 1), magic = at(257, 8),
      rest = at(157, 100):find "%Z" or at(265, 247):find "%Z"}
  end

  local function wanted(name, size, kind)
    return {name = name, mode = "0000644\0", owner = "0000000\0", group = "0000000\0",
      size = ("%011o\0"):format(size), time = "00000000000\0", right = true, kind = kind,
      magic = "ustar\00000"}
  end

  it("writes POSIX headers; a name above 100 bytes is in a pax record with its length", function()
    for _, n in ipairs {5, 100, 101, 102, 988, 989, 990, 991, 992, 993} do
      local path, name = files.path "p.tar", ("k"):rep(n - 4) .. ".txt"
      local writer = data.TarWriter {path = path}
      writer:write {__key__ = ("k"):rep(n - 4), txt = ("x"):rep(600)}
      writer:close()
      local text = files.read(path)
      if n > 100 then
        local length = tonumber(text:sub(513, 520):match "^%d+")
        assert.equal(("%d path=%s\n"):format(length, name), text:sub(513, 512 + length))
        assert.same(wanted("pax", length, "x"), fields(text))
        local padded = math.ceil(length / 512) * 512
        assert.equal(zeros(padded - length), text:sub(513 + length, 512 + padded))
        text = text:sub(513 + padded)
      end
      assert.same(wanted(name:sub(-100), 600, "0"), fields(text))
      assert.equal(("x"):rep(600) .. zeros(424 + 1024), text:sub(513))
      local pipe = io.popen(("tar -tf '%s'"):format(path))
      assert.equal(name .. "\n", pipe:read "*a")
      pipe:close()
    end
  end)

  it("raises on a full disk; the archive does not appear", function()
    local full = io.open("/dev/full", "wb")
    if not full then return pending "no /dev/full" end
    full:close()
    local path = files.path "full.tar"
    local why = ("cannot write '%s': No space left on device"):format(path)
    for _, small in ipairs {true, false} do
      local writer = data.TarWriter(path)
      writer.file:close()
      writer.file = io.open("/dev/full", "wb")
      if small then -- in the buffer until the end
        writer:write {__key__ = "a", txt = "x"}
        assert.matches("1 sample", tostring(writer))
      else
        writer.file:setvbuf "no"
        refuses(function() writer:write {__key__ = "a", txt = "x"} end, why)
        assert.matches("0 samples", tostring(writer))
      end
      refuses(function() writer:close() end, why)
      assert.equal("E_IO", moth.errcode())
      writer:close()
      assert.is_nil(io.open(path))
    end
    refuses(function() data.TarWriter(files.path "no/a.tar") end, ("cannot write '%s': "):format(
      files.path "no/a.tar"))
    local moved = data.TarWriter(path)
    os.remove(path .. ".part")
    refuses(function() moved:close() end, ("cannot write '%s': "):format(path))
  end)

  it("writes integers exactly, and reads those of int64 again", function()
    local path = files.path "i.tar"
    local writer = data.TarWriter(path)
    local most = 9223372036854775807LL
    writer:write {__key__ = "a", id = 2 ^ 53, index = most, inx = 18446744073709551615ULL,
      cls = most, ["x.id"] = moth.tensor(9007199254740993LL), ["y.id"] = moth.tensor {{7}}}
    for _, n in ipairs {2 ^ 53 + 2, 1e300, math.huge, 0 / 0, -1LL, -2 ^ 63} do
      refuses(function() writer:write {__key__ = "b", id = n} end,
        "bad argument 'sample' to 'write' (id: an integer from 0 on is needed, got ")
      assert.equal("E_TYPE", moth.errcode())
    end
    refuses(function() writer:write {__key__ = "b", cls = moth.tensor {1, 2}} end,
      "bad argument 'sample' to 'write' (cls: an integer from 1 on is needed, got f32 (2))")
    refuses(function() writer:write {__key__ = "b", npy = moth.ones(2):bfloat16()} end,
      "bad argument 'sample' to 'write' (")
    assert.equal("E_UNSUPPORTED", moth.errcode())
    writer:close()
    assert.same({"a.cls=9223372036854775806", "a.id=9007199254740992",
      "a.index=9223372036854775807", "a.inx=18446744073709551615", "a.x.id=9007199254740993",
      "a.y.id=7"}, all(path))
    files.write("i.tar", archive({name = "a.id", text = "9223372036854775807"},
      {name = "a.inx", text = "-0009223372036854775807\n"}, {name = "a.cls", text = "0"}))
    local sample = data.WebDataset {path, decode = true}:iter()()
    assert.same({most, -most, 1LL}, {sample.id, sample.inx, sample.cls})
    for _, text in ipairs {"9223372036854775808", "10000000000000000000", "", "1.0", "x"} do
      files.write("i.tar", archive {name = "a.id", text = text})
      refuses(function() data.WebDataset {path, decode = true}:iter()() end,
        "is no integer: '" .. text .. "'")
    end
  end)

  it("refuses keys and values that it cannot write", function()
    local writer = data.TarWriter(files.path "r.tar")
    for _, sample in ipairs {{txt = "x"}, {__key__ = "a.b"}, {__key__ = "a/"}, {__key__ = ""},
                             {__key__ = 3}, {__key__ = "a\0b"}, {__key__ = "x/a.b"}} do
      refuses(function() writer:write(sample) end,
        "a table with a name __key__ is needed, without a dot in the name")
    end
    refuses(function() writer:write(3) end, "a table with a name __key__ is needed")
    for _, case in ipairs {
      {{cls = 0}, "cls: an integer from 1 on is needed, got 0"},
      {{cls = 1.5}, "cls: an integer from 1 on is needed, got 1.5"},
      {{cls2 = 0}, "cls2: an integer from 1 on is needed"},
      {{id = -1}, "id: an integer from 0 on is needed, got -1"},
      {{index = {}}, "index: an integer from 0 on is needed"},
      {{txt = 3}, "txt: a string is needed, got 3"}, {{npy = 3}, "npy: a tensor is needed, got 3"},
      {{json = {print}}, "json: a function cannot be written as JSON"},
      {{[1] = "x"}, "names are strings, got 1"},
      {{[""] = "x"}, "names are endings of files, without / and NUL, got a string ('')"},
      {{["a/b.txt"] = "x"}, "names are endings of files, without / and NUL, got a string"},
      {{["a\0.txt"] = "x"}, "names are endings of files, without / and NUL, got a string"},
    } do
      case[1].__key__ = "a"
      refuses(function() writer:write(case[1]) end, case[2])
    end
    writer:write {__key__ = "a.b/c", cls = 1, id = 0, inx = moth.tensor(3LL), index = 4LL,
                  ["x.cls"] = 2, json = {1}}
    writer:close()
    assert.same({"a.b/c.cls=0", "a.b/c.id=0", "a.b/c.index=4", "a.b/c.inx=3", "a.b/c.json=[1]",
      "a.b/c.x.cls=1"}, all(files.path "r.tar"))
  end)
end)

-- ---- GGUF ----

local le8 = files.le8
local function le(n, width) return le8(n):sub(1, width) end
local function text(s) return le8(#s) .. s end

local function gguf(version, align, tensors, length)
  local keys = align and text "general.alignment" .. le(4, 4) .. le(align, 4) or ""
  local list = {}
  for i, t in ipairs(tensors) do
    local sizes = {}
    for k, n in ipairs(t.sizes) do sizes[k] = le8(n) end
    list[i] = text(t.name) .. le(#sizes, 4) .. table.concat(sizes) .. le(t.kind or 0, 4)
      .. le8(t.offset or 0)
  end
  local head = "GGUF" .. le(version, 4) .. le8(#tensors) .. le8(align and 1 or 0) .. keys
    .. table.concat(list)
  local pad = -#head % (align and align > 0 and align or 32)
  return moth.gguf.open(files.write("g.gguf", head .. zeros(pad) .. zeros(length)))
end

describe("a GGUF file", function()
  it("is of version 2 or 3, with an alignment of 1 to 2^20", function()
    local one = {{name = "a", sizes = {2}}}
    for _, version in ipairs {2, 3} do assert.same({"a"}, gguf(version, nil, one, 8):names()) end
    for _, version in ipairs {1, 4} do
      refuses(function() gguf(version, nil, one, 8) end,
        ("is of version %d; 2 and 3 are read, little-endian"):format(version))
    end
    for k = 0, 20 do
      local file = gguf(3, 2 ^ k, one, 8)
      assert.same({0, 0}, file:tensor("a"):tolist())
      assert.equal(2 ^ k, file.metadata["general.alignment"])
    end
    for _, align in ipairs {0, 3, 2 ^ 21} do
      refuses(function() gguf(3, align, one, 8) end, ("its alignment is %d, which is no power of 2 "
        .. "up to 2^20"):format(align))
    end
  end)

  it("has tensors next to each other, of up to 8 dimensions, and whole blocks", function()
    local file = gguf(3, 4, {{name = "b", sizes = {3}, offset = 8}, {name = "a", sizes = {2}}}, 20)
    assert.same({"b", "a"}, file:names())
    assert.same({type = "F32", shape = {3}, nbytes = 12}, file:info "b")
    assert.is_nil(file:info "c")
    assert.equal(("GGUF file '%s', 2 tensors"):format(files.path "g.gguf"), tostring(file))
    refuses(function() file:tensor "c" end, "bad argument 'name' to 'tensor' (")
    refuses(function() file:tensor("a", moth.int64) end,
      "bad argument 'dtype' to 'tensor' (a floating-point dtype is needed, got moth.int64)")
    refuses(function() gguf(3, 4, {{name = "b", sizes = {3}, offset = 4}, {name = "a",
      sizes = {2}}}, 20) end, "has the tensor 'b' overlapping another tensor")
    refuses(function() gguf(3, 4, {{name = "a", sizes = {2}, offset = 2}}, 20) end,
      "has the tensor 'a' at byte 2, no multiple of 4")
    refuses(function() gguf(3, 4, {{name = "a", sizes = {2}, offset = 4}}, 11) end,
      "has the tensor 'a' at bytes 4 to 12 of data, but there are 11")
    assert.same({1, 1, 1, 1, 1, 1, 1, 2}, {unpack(gguf(3, 4, {{name = "a",
      sizes = {2, 1, 1, 1, 1, 1, 1, 1}}}, 8):tensor("a").shape)})
    assert.same({3, 2}, {unpack(gguf(3, 4, {{name = "a", sizes = {2, 3}}}, 24):tensor("a").shape)})
    assert.same({2, 32}, {unpack(gguf(3, 4, {{name = "a", sizes = {32, 2}, kind = 2}}, 36)
      :tensor("a").shape)})
    refuses(function() gguf(3, 4, {{name = "a", sizes = {31, 32}, kind = 2}}, 999) end,
      "has the tensor 'a' of type Q4_0 with rows of 31 numbers, no multiple of 32")
    refuses(function() gguf(3, 4, {{name = "a", sizes = {128}, kind = 14}}, 999) end,
      "has the tensor 'a' of type Q6_K with rows of 128 numbers, no multiple of 256")
    assert.same({0}, {unpack(gguf(3, 4, {{name = "a", sizes = {0}, offset = 400}}, 0)
      :tensor("a").shape)})
  end)
end)
