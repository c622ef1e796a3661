-- NumPy's files, .npy and .npz: every type, order and version is read as NumPy reads it; Moth's
-- files are what NumPy writes; broken files raise errors. spec/golden/arrays.py wrote the golden
-- files.

local ffi = require "ffi"
local deflate = require "moth.io.deflate"
local gzip = require "moth.io.gzip"
local json = require "moth.json"
local literal = require "moth.io.literal"
local moth = require "moth"
local files = require "spec.support.files"
local zip_writer = require "moth.io.zip_writer"

setup(files.setup)
teardown(files.teardown)

local GOLDEN = "spec/golden/data/arrays.npz"

-- A .npy file with a header. version: 1, 2 or 3.
local function npy(header, data, version)
  local size = files.le8(#header):sub(1, (version or 1) == 1 and 2 or 4)
  return "\147NUMPY" .. string.char(version or 1, 0) .. size .. header .. (data or "")
end

local function header(descr, shape, fortran)
  return ("{'descr': %s, 'fortran_order': %s, 'shape': %s, }\n"):format(descr,
    fortran and "True" or "False", shape)
end

local function quiet(f, ...)
  local warn = moth.warn
  rawset(moth, "warn", function() end)
  finally(function() rawset(moth, "warn", warn) end)
  return f(...)
end

local function load_golden(options) return quiet(moth.load, GOLDEN, options or {}) end

describe("moth.load of a .npz file", function()
  it("reads each type of NumPy in both byte orders and in Fortran order", function()
    for _, mmap in ipairs {true, false} do
      local all = load_golden {mmap = mmap}
      local values, count = assert(json.decode(all.values)), 0
      for name, row in pairs(values) do
        local x = all[name]
        assert.equal(moth[row[1]], x.dtype, name)
        assert.same(row[2], {unpack(x.shape)}, name)
        local flat = x:reshape(-1):to(row[1] == "bool" and moth.bool or moth.float64):tolist()
        assert.same(row[3], flat, name)
        count = count + 1
      end
      assert.is_true(count > 35)
    end
  end)

  it("reads 64-bit integers with all their bits", function()
    local x = moth.load {bytes = npy(header("'>i8'", "(2,)"), "\127" .. ("\255"):rep(7) .. "\128"
      .. ("\0"):rep(7))}
    assert.same({0x7fffffffffffffffLL, -0x7fffffffffffffffLL - 1}, x:tolist())
  end)

  it("reads texts as nested lists of strings", function()
    local all = load_golden()
    assert.same({{"ab", "c"}, {"é€😀", ""}}, all.text)
    assert.same({"ab", "é€😀"}, all.text_big)
    assert.same({{"a", "b", "c"}, {"d", "e", "f"}}, all.text_fortran)
    assert.same({"ab", "c\0d"}, all.bytes)
    assert.equal("moth", all.word)
  end)

  it("reads records as a table of their fields", function()
    local all = load_golden()
    assert.same({1, 3}, all.records.a:tolist())
    assert.same({2.5, 4.5}, all.records.b:tolist())
    assert.equal(moth.float64, all.records.b.dtype)
    assert.same({"x", "yy"}, all.records.n)
    assert.same({{1, 2}, {3, 4}}, all.records.v:tolist())
    assert.same({2.5}, all.aligned["é"]:tolist())
    assert.is_nil(all.aligned[""])
  end)

  it("warns of types that Moth lacks, and leaves placeholders for those that it cannot hold",
    function()
      local text
      local warn = moth.warn
      rawset(moth, "warn", function(message) text = message end)
      finally(function() rawset(moth, "warn", warn) end)
      local all = moth.load(GOLDEN)
      for _, wanted in ipairs {"an array of <u2 is loaded as int32", "of >u4 is loaded as int64",
        "<c8 is loaded as float32 pairs", "of <M8[ns] is loaded as int64",
        "array 'objects' holds objects of Python, which only Python's pickle reads and is not load",
        "array 'beyond' has elements of <u8 with numbers beyond int64"} do
        assert.is_truthy(text:find(wanted, 1, true), wanted .. " is not in " .. text)
      end
      assert.matches("<not loaded: array 'objects' holds objects", tostring(all.objects))
      assert.has_error_like(function() return all.objects + 1 end, "this was not loaded: array 'ob")
      assert.equal("E_UNSUPPORTED", moth.errcode())
    end)

  it("reads compressed arrays, with libdeflate or zlib", function()
    local find = gzip.find_deflate
    finally(function() gzip.find_deflate = find end)
    for _, missing in ipairs {false, true} do
      if missing then function gzip.find_deflate() return false end end
      local all = moth.load "spec/golden/data/deflated.npz"
      assert.is_true(all.cube:equal(moth.arange(24):double():view(2, 3, 4)))
      assert.is_true(all.many:equal(moth.arange(5000):int()))
      assert.equal(3.5, all.single:item())
      assert.same({0, 3}, {unpack(all.empty.shape)})
    end
  end)

  it("reads from memory, onto a device, and returns members that are no arrays", function()
    local bytes = files.archive {{"a.npy", npy(header("'<f4'", "(1,)"), "\0\0\128\63")},
      {"folder/", ""}, {"note.txt", "text"}}
    local all = moth.load {bytes = bytes, device = "cpu"}
    assert.equal(1, all.a:item())
    assert.equal("text", all["note.txt"])
    assert.is_nil(all["folder/"])
    assert.same({}, moth.load {bytes = "PK\5\6" .. ("\0"):rep(18)})
  end)
end)

describe("moth.load of a .npy file", function()
  it("reads versions 1, 2 and 3", function()
    for version = 1, 3 do
      local path = files.write("v.npy", npy(header("'<i2'", "(2, 2)"), "\1\0\2\0\3\0\4\0", version))
      assert.same({{1, 2}, {3, 4}}, moth.load(path):tolist())
    end
    local bytes = npy("{'descr': [('\195\169', '<i2')], 'fortran_order': False, 'shape': (1,)}",
      "\7\0", 3)
    assert.equal(7, (moth.load {bytes = bytes})["é"]:item())
  end)

  it("maps the file, and writes to the tensor stay in memory", function()
    local x = moth.arange(1000):float()
    local path = files.path "x.npy"
    moth.save(x, path)
    local before = files.read(path)
    local y = moth.load(path)
    y:add_(1)
    assert.equal(2, y[2]:item())
    assert.equal(before, files.read(path))
    moth.collect()
    local live = moth.memory().live_bytes
    local z = moth.load(path) -- luacheck: ignore
    assert.at_most(live + 200, moth.memory().live_bytes)
  end)

  it("reads an array whose elements are not aligned, and bools of any byte", function()
    local odd = "{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}"
    assert.equal(1, moth.load {bytes = npy(odd, "\0\0\0\0\0\0\240\63")}:item())
    local y = moth.load {bytes = npy(header("'|b1'", "(3,)"), "\0\1\7")}
    assert.same({false, true, true}, y:tolist())
  end)

  it("refuses objects, wide floats and more than 8 dimensions", function()
    for descr, why in pairs {["'|O'"] = "holds objects of Python",
      ["'<f16'"] = "'<f16', which Moth", ["'|V3'"] = "'|V3', which Moth",
      ["[('a', '|O')]"] = "objects of Python"} do
      local path = files.write("object.npy", npy(header(descr, "(1,)"), ("x"):rep(16)))
      assert.matches(why, files.refusal(path, moth.load, path), 1, true)
      assert.equal("E_UNSUPPORTED", moth.errcode())
    end
    assert.has_error_like(function()
      moth.load {bytes = npy(header("'|u1'", "(1, 1, 1, 1, 1, 1, 1, 1, 1)"), "x")}
    end, "has 9 dimensions; Moth has at most 8")
  end)
end)

describe("moth.save to a .npy or .npz file", function()
  local values = {x = moth.randn(3, 4), t = moth.randn(4, 3):t(),
    strided = moth.randn(4, 6)[{{}, {1, 3}}], single = moth.tensor(2.5),
    empty = moth.zeros(0, 3), half = moth.randn(5):half(),
    ints = moth.tensor {1LL, -2LL}, bools = moth.tensor {true, false}, bytes = moth.zeros(3):byte()}

  it("writes what moth.load reads, in every dtype and layout", function()
    for _, compressed in ipairs {false, true} do
      local path = files.path "all.npz"
      moth.save {values, path, compressed = compressed}
      local all = moth.load(path)
      for name, x in pairs(values) do
        assert.is_true(all[name]:equal(x), name)
        assert.equal(x.dtype, all[name].dtype)
        all[name] = nil
      end
      assert.is_nil(next(all))
    end
    for name, x in pairs(values) do
      local path = files.path(name .. ".npy")
      moth.save(x, path)
      assert.is_true(moth.load(path):equal(x), name)
    end
  end)

  it("writes the bytes of numpy.save", function()
    local path = files.path "b.npy"
    moth.save(moth.tensor {{1, 2, 3}}, path)
    local head = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }"
    assert.equal("\147NUMPY\1\0\118\0" .. head .. (" "):rep(117 - #head) .. "\n"
      .. "\0\0\128\63\0\0\0\64\0\0\64\64", files.read(path))
    moth.save(moth.ones(2, 3):t(), path)
    assert.is_truthy(files.read(path):find("'fortran_order': True, 'shape': (3, 2), }", 1, true))
    moth.save(moth.ones(2), path)
    assert.is_truthy(files.read(path):find("'shape': (2,), }", 1, true))
    moth.save(moth.tensor(1), path)
    assert.is_truthy(files.read(path):find("'shape': (), }", 1, true))
  end)

  it("names a list as numpy.savez does, and aligns stored arrays so that they are mapped",
    function()
      local path = files.path "list.npz"
      moth.save({moth.ones(100), moth.zeros(3)}, path)
      moth.collect()
      local live = moth.memory().live_bytes
      local all = moth.load(path)
      assert.at_most(live + 300, moth.memory().live_bytes)
      assert.equal(100, all.arr_0:sum():item())
      assert.equal(0, all.arr_1:sum():item())
      moth.save(moth.ones(4), path)
      assert.equal(4, moth.load(path).arr_0:sum():item())
    end)

  it("writes the records of zip64 for large archives", function()
    local largest, most = zip_writer.largest, zip_writer.most_members
    finally(function() zip_writer.largest, zip_writer.most_members = largest, most end)
    zip_writer.largest, zip_writer.most_members = 1000, 2
    local path = files.path "wide.npz"
    local list = {a = moth.ones(300), b = moth.ones(2), c = moth.ones(400)}
    for _, compressed in ipairs {false, true} do
      moth.save {list, path, compressed = compressed}
      local all = moth.load(path)
      for name, x in pairs(list) do assert.is_true(all[name]:equal(x)) end
    end
  end)

  it("compresses with zlib where libdeflate is missing", function()
    local find = gzip.find_deflate
    finally(function() gzip.find_deflate = find end)
    local path, x = files.path "z.npz", moth.arange(100000)
    function gzip.find_deflate() return false end
    moth.save {{x = x}, path, compressed = true}
    assert.is_true(#files.read(path) < 400000)
    gzip.find_deflate = find
    assert.is_true(moth.load(path).x:equal(x))
    gzip.find_deflate = function() return false end
    assert.is_true(moth.load(path).x:equal(x))
  end)

  it("raises for values that NumPy's files cannot hold", function()
    local path = files.path "no.npz"
    local function refused(why, ...)
      local list = {...}
      assert.has_error_like(function() moth.save(unpack(list, 1, 3)) end, why)
    end
    refused("'a' is a table; a .safetensors file holds nested", {a = {moth.ones(1)}}, path)
    refused("'lr' is 0.1", {lr = 0.1}, path)
    refused("a tensor, or a table of names to tensors is needed", 3, path)
    refused("one tensor; several go into a .npz file", {moth.ones(1)}, files.path "no.npy")
    refused("has no dtype for moth.bfloat16; save x:float%(%)", moth.ones(1):bfloat16(),
      files.path "no.npy")
    refused("'metadata' to 'save' %(only safetensors files", moth.ones(1), path, {a = "b"})
    assert.has_error_like(function() moth.save {moth.ones(1), "a.npy", compressed = true} end,
      "only .npz files are compressed")
    assert.is_nil(io.open(path))
  end)

  it("names the known formats if a path ends otherwise", function()
    for name, why in pairs {["a.pt"] = "readers of torch.load %(.pt%)", ["a.parquet"] = "of tables",
      ["a.onnx"] = "use moth.onnx.export", ["a.jsonl"] = "use moth.data.write_json_lines"} do
      assert.has_error_like(function() moth.save(moth.ones(1), name) end,
        "save writes .safetensors, .npy and .npz files[,;] .*" .. why)
    end
  end)
end)

describe("a broken .npy file raises an error:", function()
  local good = header("'<f4'", "(2,)")
  local bad = {
    {"cut in its version", "\147NUMPY\1", "ends within its version"},
    {"version 4", npy(good, "12345678", 4), "has the version 4.0", "E_UNSUPPORTED"},
    {"cut in its header", npy(good):sub(1, 40), "ends within its header"},
    {"a header of 2 GiB", "\147NUMPY\2\0\0\0\0\128", "has a header of 2147483648 bytes"},
    {"a list", npy "[]", "it is no dict"},
    {"code", npy "__import__('os')", "expected a value at byte 1"},
    {"a comment", npy "{'descr': '<f4' # }", "expected ',' or '}' at byte 17"},
    {"an open string", npy "{'descr: 1}", "the end of a string"},
    {"an unknown escape", npy "{'\\q': 1}", "a known escape"},
    {"a key twice", npy "{'shape': (), 'shape': ()}", "a key that was not there before"},
    {"an unknown key", npy "{'a\1': 1}", "the unknown key 'a\\x01'"},
    {"text after the dict", npy "{} x", "expected the end"},
    {"no descr", npy "{'shape': (), 'fortran_order': False}", "descr is missing"},
    {"no order", npy "{'shape': (), 'descr': '<f4'}", "fortran_order is no bool"},
    {"deep nesting", npy(("("):rep(60000)), "less nesting"},
    {"a number as shape", npy(header("'<f4'", "3"), ""), "shape is no tuple"},
    {"a negative size", npy(header("'<f4'", "(-1,)"), ""), "an impossible size"},
    {"a huge size", npy(header("'<f4'", "(9999999999999999999999,)"), ""), "expected a value"},
    {"a size of 2^53", npy(header("'<f4'", "(9007199254740992,)"), ""), "an impossible size"},
    {"sizes that overflow", npy(header("'<f4'", "(4294967296, 4294967296)"), ""), "impossible sh"},
    {"a zero and a huge size", npy(header("'<f4'", "(0, 4294967296, 4294967296)"), ""),
      "claims the impossible shape"},
    {"a gigabyte that is not there", npy(header("'<f4'", "(268435456,)"), "1234"),
      "ends too early: 4 of 1073741824 bytes"},
    {"missing bytes", npy(good, "1234567"), "ends too early: 7 of 8 bytes"},
    {"more bytes", npy(good, "123456789"), "has 1 byte beyond its 8 of elements"},
    {"an unknown type", npy(header("'<q4'", "(2,)"), "12345678"), "the unknown type '<q4'"},
    {"an unknown size", npy(header("'<f3'", "(2,)"), "123456"), "'<f3', which", "E_UNSUPPORTED"},
    {"a type with a shape", npy(header("('<f4', (2,))", "(1,)"), "12345678"), "a type with a",
      "E_UNSUPPORTED"},
    {"a bad character", npy(header("'<U1'", "(1,)"), "\255\255\255\255"), "4294967295 is no char"},
    {"endless texts without bytes", npy(header("'|S0'", "(1000000000000,)")), "elements without b"},
    {"a bad field", npy(header("[('a',)]", "(1,)"), "1"), "is no (name, type) tuple"},
    {"a field twice", npy(header("[('a', '|u1'), ('a', '|u1')]", "(1,)"), "12"), "two fields 'a'"},
    {"a field with endless texts", npy(header("[('a', '|u1'), ('b', '|S0', (99999999999,))]",
      "(1,)"), "1"), "texts without bytes", "E_UNSUPPORTED"},
  }
  for _, case in ipairs(bad) do
    it(case[1], function()
      local path = files.write("bad.npy", case[2])
      for _, mmap in ipairs {true, false} do
        local problem = files.refusal(path, moth.load, path, {mmap = mmap})
        assert.is_truthy(problem:find(case[3], 1, true), problem)
        assert.equal(case[4] or "E_FORMAT", moth.errcode())
      end
      local inside = files.write("bad.npz", files.archive {{"a.npy", case[2]}})
      if not case[4] then
        local problem = files.refusal(inside, moth.load, inside)
        assert.is_truthy(problem:find("has a member 'a.npy' that ", 1, true), problem)
      end
    end)
  end

  it("a table of records without elements is no error", function()
    local x = moth.load {bytes = npy(header("[('a', '|u1'), ('t', '<U2')]", "(0, 5)"))}
    assert.same({0, 5}, {unpack(x.a.shape)})
    assert.same({}, x.t)
  end)
end)

describe("a broken .npz file raises an error:", function()
  local function npz(method, change)
    local path = files.path "good.npz"
    moth.save {{a = moth.arange(2000)}, path, compressed = method}
    return change(files.read(path))
  end

  it("a member that was changed, stored or compressed", function()
    for _, method in ipairs {false, true} do
      local path = files.write("bad.npz", npz(method, function(bytes)
        return bytes:sub(1, 1000) .. string.char((bytes:byte(1001) + 1) % 256) .. bytes:sub(1002)
      end))
      assert.matches("is damaged: its member 'a.npy' ", files.refusal(path, moth.load, path), 1,
        true)
      assert.equal("E_FORMAT", moth.errcode())
    end
  end)

  it("a size that deflate cannot reach, before memory is allocated", function()
    local bytes = npz(true, function(bytes)
      local at = bytes:find("PK\1\2", 1, true)
      return bytes:sub(1, at + 23) .. "\0\0\0\127" .. bytes:sub(at + 28)
    end)
    local path = files.write("bomb.npz", bytes)
    moth.reset_peak_memory()
    local before = moth.memory().peak_bytes
    assert.matches("claims to have 2130706432", files.refusal(path, moth.load, path), 1, true)
    assert.at_most(before + 2 ^ 16, moth.memory().peak_bytes)
  end)

  it("a size that is too small or too large for a compressed member", function()
    for _, size in ipairs {"\0\1\0\0", "\0\128\0\0"} do
      local find = gzip.find_deflate
      for _, library in ipairs {true, false} do
        gzip.find_deflate = library and find or function() return false end
        local path = files.write("size.npz", npz(true, function(bytes)
          local at = bytes:find("PK\1\2", 1, true)
          return bytes:sub(1, at + 23) .. size .. bytes:sub(at + 28)
        end))
        local problem = files.refusal(path, moth.load, path)
        gzip.find_deflate = find
        assert.is_truthy(problem:find("does not expand to the bytes that it claims", 1, true))
      end
    end
  end)

  it("an unknown method, and other archives", function()
    local path = files.write("m.npz", files.archive {{"a.npy", "x", 12}})
    assert.matches("compressed by method 12; deflate is known", files.refusal(path, moth.load,
      path), 1, true)
    path = files.write("other.zip", files.archive {{"a.txt", "x"}})
    assert.matches("neither torch.save nor numpy.savez wrote it", files.refusal(path, moth.load,
      path), 1, true)
  end)

  it("both libraries of deflate are missing", function()
    local deflater, zlib = gzip.find_deflate, gzip.find_zlib
    finally(function() gzip.find_deflate, gzip.find_zlib = deflater, zlib end)
    function gzip.find_deflate() return false end
    function gzip.find_zlib() return nil end
    assert.has_error_like(function() moth.load "spec/golden/data/deflated.npz" end,
      "compressed, but neither libdeflate nor zlib was found")
    assert.equal("E_UNSUPPORTED", moth.errcode())
    assert.has_error_like(function() deflate.compress(moth.zeros(3):byte()) end, "libdeflate0")
  end)
end)

describe("a text of Python", function()
  it("is parsed as a value", function()
    local value = literal.parse [[ {'a': (1, 2L, -3,), "b": [True, None, 'it\'s \x41\n'], } ]]
    assert.same({1, 2, -3}, value.a)
    assert.same({true, literal.none, "it's A\n"}, value.b)
    assert.equal("dict", literal.kind(value))
    assert.is_nil(literal.kind {})
    assert.equal("None", tostring(literal.none))
  end)
end)

describe("elements of the other byte order", function()
  it("are copied with their bytes reversed, in all sizes", function()
    local bytes = require "moth.io.bytes"
    local x = moth.frombuffer("\1\2\3\4\5\6\7\8\9", {dtype = moth.uint8})
    local function read(name, shape, from)
      return bytes.as(x, name, shape, from, "test", true):tolist()
    end
    assert.same({1 * 256 + 2, 3 * 256 + 4}, read("int16", {2}, 0))
    assert.same({2 * 256 + 3}, read("int16", {1}, 1))
    assert.same({0x05060708}, read("int32", {1}, 4))
    assert.same({0x0203040506070809LL}, read("int64", {1}, 1))
    assert.same({1, 2}, read("uint8", {2}, 0))
    assert.same({true}, read("bool", {1}, 3))
    assert.same({}, read("float64", {0}, 9))
    for _, case in ipairs {{"int16", {5}, 0}, {"int64", {1}, 2}, {"int16", {1}, -1}} do
      assert.has_error_like(function() read(unpack(case)) end, "'from' to 'as'")
    end
    local lib = require "moth.binding.lib"
    lib.declare "swapped"
    assert.is_true(lib.C.moth_from_swapped(lib.ctx, nil, 0, 0, ffi.new "int64_t[1]", 1, nil) < 0)
  end)
end)
