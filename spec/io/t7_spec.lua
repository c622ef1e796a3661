-- Torch7's files are read as data. The files are made here, byte by byte, as its File.lua and
-- Tensor.c write them.

local ffi = require "ffi"
local files = require "spec.support.files"
local moth = require "moth"

setup(files.setup)
teardown(files.teardown)

-- ---- values as Torch7 writes them ----

local function int(n) return ffi.string(ffi.new("int32_t[1]", n), 4) end
local function long(n) return ffi.string(ffi.new("int64_t[1]", n), 8) end
local function double(x) return ffi.string(ffi.new("double[1]", x), 8) end
local function raw(s) return int(#s) .. s end

local NIL = int(0)
local function number(x) return int(1) .. double(x) end
local function text(s) return int(2) .. raw(s) end
local function bool(b) return int(5) .. int(b and 1 or 0) end

-- Pairs of key and value, already written.
local function map(index, ...)
  return int(3) .. int(index) .. int(select("#", ...) / 2) .. table.concat {...}
end

local function object(index, class, body) return int(4) .. int(index) .. raw "V 1" .. raw(class)
  .. body end

local function storage(index, kind, ctype, values)
  local array = ffi.new(ctype .. "[" .. #values .. "]", values)
  return object(index, "torch." .. kind .. "Storage", long(#values)
    .. ffi.string(array, ffi.sizeof(array)))
end

local function tensor(index, kind, sizes, strides, offset, data)
  local body = {int(#sizes)}
  for _, n in ipairs(sizes) do body[#body + 1] = long(n) end
  for _, n in ipairs(strides) do body[#body + 1] = long(n) end
  return object(index, "torch." .. kind .. "Tensor", table.concat(body) .. long(offset) .. data)
end

local function load(bytes, ...) return moth.load(files.write("a.t7", bytes), ...) end

local function refused(bytes, wanted, code)
  local ok, message = pcall(load, bytes)
  assert.is_false(ok)
  assert.matches("bad argument 'path' to 'load' ('", message, 1, true)
  assert.matches(wanted, message, 1, true)
  assert.equal(code or "E_FORMAT", moth.errcode())
end

describe("a .t7 file", function()
  it("has numbers, texts, booleans and tables", function()
    assert.equal(0.1, load(number(0.1)))
    assert.equal("moth\0", load(text "moth\0"))
    assert.equal(true, load(bool(true)))
    assert.is_nil(load(NIL))
    assert.same({"x", {y = false}, n = -1}, load(map(1, number(1), text "x", number(2),
      map(2, text "y", bool(false)), text "n", number(-1))))
    local nan = load(number(0 / 0))
    assert.is_true(nan ~= nan)
    assert.equal("number", type(load(int(1) .. ("\255"):rep(8))))
  end)

  it("has tables that refer to each other, or to themselves", function()
    local again = int(3) .. int(2)
    local t = load(map(1, text "a", map(2, text "self", again), text "b", again))
    assert.equal(t.a, t.b)
    assert.equal(t.a, t.a.self)
  end)

  it("has tensors of every type, in their layout", function()
    for kind, row in pairs {Byte = {"uint8_t", "uint8"}, Char = {"int8_t", "int8"},
      Short = {"int16_t", "int16"}, Int = {"int32_t", "int32"}, Long = {"int64_t", "int64"},
      Float = {"float", "float32"}, Double = {"double", "float64"}, Cuda = {"float", "float32"},
      CudaDouble = {"double", "float64"}} do
      local x = load(tensor(1, kind, {2, 2}, {1, 3}, 2, storage(2, kind, row[1],
        {9, 1, 2, 9, 3, 4})))
      assert.equal(moth[row[2]], x.dtype)
      assert.same({{1, 3}, {2, 4}}, x:double():tolist())
    end
    assert.same({0}, {unpack(load(tensor(1, "Float", {}, {}, 1, NIL)).shape)})
    assert.same({3, 0}, {unpack(load(tensor(1, "Float", {3, 0}, {1, 1}, 1,
      storage(2, "Float", "float", {}))).shape)})
    assert.same({1, 2}, load(storage(1, "Long", "int64_t", {1, 2})):tolist())
  end)

  it("keeps shared storages shared", function()
    local data = storage(3, "Float", "float", {1, 2, 3})
    local t = load(map(1, text "a", tensor(2, "Float", {3}, {1}, 1, data), text "b",
      tensor(4, "Float", {2}, {1}, 2, int(4) .. int(3)), text "c", int(4) .. int(2)))
    t.a:fill_(7)
    assert.same({7, 7}, t.b:tolist())
    assert.equal(t.a, t.c)
    assert.same({1, 2, 3}, moth.load(files.path "a.t7", {mmap = false}).a:tolist())
  end)

  it("has nn's objects as tables of their fields, with the class's name", function()
    local linear = object(2, "nn.Linear", map(3, text "weight", tensor(4, "Double", {1, 2}, {2, 1},
      1, storage(5, "Double", "double", {0.5, 0.25})), text "train", bool(true)))
    local net = load(object(1, "nn.Sequential", map(6, text "modules", map(7, number(1), linear))))
    assert.equal("nn.Sequential", net.torch_type)
    assert.equal("nn.Linear", net.modules[1].torch_type)
    assert.same({{0.5, 0.25}}, net.modules[1].weight:tolist())
    local old = int(4) .. int(1) .. raw "nn.ReLU" .. map(2) -- an old file without versions
    assert.same({torch_type = "nn.ReLU"}, load(old))
  end)

  it("with any function in it raises", function()
    for kind = 6, 8 do
      refused(map(1, text "f", int(kind) .. int(2) .. raw "os.exit(1)" .. NIL),
        "holds a function, which is code and is never read", "E_UNSUPPORTED")
    end
  end)

  it("that is safetensors with this extension is read as safetensors", function()
    local path = files.path "own.safetensors"
    moth.save({ weight = moth.ones(2) }, path)
    assert(os.rename(path, files.path "own.t7"))
    path = files.path "own.t7"
    assert.same({ 1, 1 }, moth.load(path).weight:tolist())
  end)

  it("that is malformed raises an error that names the fault", function()
    local three = storage(2, "Float", "float", {1, 2, 3})
    refused("", "is broken: a number, 4 bytes at byte 0, would lie beyond its end at 0")
    refused(number(1):sub(1, 9), "would lie beyond its end at 9")
    refused(number(1) .. "x", "is no file of Torch7: its value ends 1 byte before the end")
    refused(int(9), "a value of the unknown type 9 at byte 0")
    refused(int(-1), "a value of the unknown type -1")
    refused(int(2) .. int(-5), "a text, -5 bytes at byte 8")
    refused(int(2) .. int(2 ^ 30), "a text, 1073741824 bytes at byte 8")
    refused(int(3) .. int(1) .. int(2 ^ 30), "1073741824 entries of a table in 0 bytes")
    refused(map(1, NIL, number(1)), "a table has a key that is none")
    refused(map(1, number(0 / 0), number(1)), "a table has a key that is none")
    refused(object(1, "torch.FloatStorage", long(2 ^ 60)), "elements of a storage in 0 bytes")
    refused(object(1, "torch.FloatStorage", long(-1)), "-1 elements of a storage")
    refused(object(1, "torch.Generator", number(1)),
      "holds an object of torch.Generator, which is no table of fields", "E_UNSUPPORTED")
    refused(tensor(1, "Float", {4}, {1}, 1, three), "a tensor reaches beyond its storage")
    refused(tensor(1, "Float", {2}, {1}, 0, three), "a tensor reaches beyond its storage")
    refused(tensor(1, "Float", {2}, {-1}, 2, three), "a size or a stride that is none")
    refused(tensor(1, "Float", {2 ^ 62, 4}, {2 ^ 62, 0}, 1, three), "is none")
    refused(tensor(1, "Float", {2 ^ 30, 2 ^ 30}, {0, 0}, 1, three), "impossible sizes")
    refused(tensor(1, "Float", {0, 2 ^ 30, 2 ^ 30}, {0, 0, 0}, 1, three), "impossible sizes")
    local path = files.write("a.t7", object(1, files.evil, number(1)))
    files.refusal(path, moth.load, path)
    refused(tensor(1, "Double", {1}, {1}, 1, three), "a tensor without its storage")
    refused(tensor(1, "Float", {1}, {1}, 1, text "x"), "a tensor without its storage")
    refused(tensor(1, "Float", {1, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1}, 1, three),
      "a tensor of 9 dimensions", "E_UNSUPPORTED")
    local deep = {}
    for i = 1, 200 do deep[i] = int(3) .. int(i) .. int(1) .. number(1) end
    refused(table.concat(deep) .. NIL, "nests deeper than any checkpoint")
    assert.has_error_like(function() moth.load(files.path "none.t7") end, "cannot open")
  end)
end)
