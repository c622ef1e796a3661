--- Cases: files that are written and read.

local ffi = require "ffi"
local lfs = require "lfs"
local moth = require "moth"
local child = require "spec.support.child"
local files = require "spec.support.files"
local process = require "spec.support.process"

local warn, told = moth.warn, nil

setup(files.setup)
teardown(files.teardown)
before_each(function()
  told = {}
  moth.warn = function(text) told[#told + 1] = text end -- luacheck: ignore 122
end)
after_each(function() moth.warn = warn end) -- luacheck: ignore 122

local function saved(value)
  local path = files.path "saved.safetensors"
  moth.save(value, path)
  return path
end

describe("moth.load", function()
  it("accepts map_location and weights_only", function()
    local path = saved { w = moth.ones(2) }
    local state = moth.load { path, map_location = "cpu", weights_only = true }
    assert.same({ 1, 1 }, state.w:tolist())
    assert.same({ 1, 1 }, moth.load(path, { weights_only = false }).w:tolist())
  end)

  it("accepts a string of bytes", function()
    local bytes = files.read(saved { w = moth.ones(2), epoch = 3 })
    local state = moth.load { bytes = bytes }
    assert.same({ 1, 1 }, state.w:tolist())
    assert.equal(3, state.epoch)
  end)

  it("accepts an array of the FFI and a uint8 tensor", function()
    local bytes = files.read(saved(moth.ones(2)))
    local array = ffi.new("uint8_t[?]", #bytes)
    ffi.copy(array, bytes, #bytes)
    assert.same({ 1, 1 }, moth.load({ bytes = array }):tolist())
    assert.same({ 1, 1 }, moth.load({ bytes = moth.frombuffer(bytes, moth.uint8) }):tolist())
  end)

  it("accepts the bytes of other formats", function()
    assert.is_table(moth.load { bytes = files.read "spec/support/torch.pth" })
    assert.is_table(moth.load { bytes = files.read "spec/support/torch_old.pth" })
    assert.is_table(moth.load { bytes = files.read "spec/support/tiny.gguf" })
  end)

  it("names the argument bytes in errors", function()
    assert.has_error_like(function() moth.load { bytes = 3 } end,
      "bad argument 'bytes' to 'load' %(a string, .* is needed, got 3%)")
    local bytes = files.read(saved(moth.ones(2)))
    assert.has_error_like(function() moth.load { bytes = bytes:sub(1, -2) } end,
      "bad argument 'bytes' to 'load' %(this data: tensor .* ends at byte 8")
    assert.has_error_like(function() moth.load(bytes) end,
      "a path cannot hold a NUL; the bytes of a file are given by name")
    assert.has_error_like(function() moth.load() end, "a path is needed, or bytes = a string")
    assert.has_error_like(function() moth.load { "x", bytes = bytes } end,
      "there are bytes as well")
  end)

  it("keeps tensors after the bytes are freed", function()
    local bytes = files.read(saved(moth.ones(1000)))
    local x = moth.load { bytes = bytes }
    bytes = nil -- luacheck: ignore 311
    collectgarbage()
    assert.equal(1000, x:sum():item())
  end)

  for name, case in pairs {
    ["x.png"] = { "\137PNG\r\n\26\n", "is a PNG picture; use moth.io.read_image" },
    ["x.jpg"] = { "\255\216\255\224", "is a JPEG picture; use moth.io.read_image" },
    ["x.wav"] = { "RIFF\0\0\0\0WAVEfmt ", "is a WAV sound; use moth.audio.load" },
    ["x.npy"] = { "\147NUMPY\1\0", "ends within its header" },
    ["x.h5"] = { "\137HDF\r\n\26\n", "is an HDF5 file" },
    ["x.gz"] = { "\31\139\8\0", "is compressed by gzip" },
    ["x.idx"] = { "\0\0\8\3\0\0\0\1", "is an idx file; use moth.data.idx" },
    ["x.html"] = { "<!DOCTYPE html>", "is HTML or XML" },
    ["x.csv"] = { "a,b\n1,2\n", "is text" },
    ["x.pkl"] = { "\128\4K\1.", "is a pickle that torch.save did not write" },
    ["empty"] = { "", "is empty" },
  } do
    it("says that " .. name .. " " .. case[2]:gsub("[.;].*", ""), function()
      assert.has_error_like(function() moth.load(files.write(name, case[1])) end,
        "bad argument 'path' to 'load' %('[^']*" .. name:gsub("%.", "%%.") .. "' " .. case[2])
      assert.equal("E_FORMAT", moth.errcode())
    end)
  end

  it("loads an ONNX model as a module", function()
    local path = files.path "net.onnx"
    local net = moth.nn.Linear(2, 1)
    moth.onnx.export(net, moth.ones(1, 2), path)
    assert.is_true(moth.allclose(net(moth.ones(1, 2)), moth.load(path)(moth.ones(1, 2))))
  end)
end)

describe("moth.save", function()
  for ending in ("pt pth t7 gguf onnx h5"):gmatch "%S+" do
    it("raises for the extension ." .. ending, function()
      local path = files.path("a." .. ending)
      assert.has_error_like(function() moth.save(moth.ones(1), path) end,
        "bad argument 'path' to 'save' %(save writes %.safetensors, %.npy and %.npz files")
      assert.is_nil(io.open(path, "rb"))
    end)
  end

  it("uses the temporary file of a killed save again, and leaves none", function()
    local path = files.path "often.safetensors"
    local big = { w = moth.ones(2 ^ 21) }
    moth.save { big, path, durable = false }
    for i = 1, 12 do
      child.kill_after(i * 500, function() moth.save { big, path, durable = false } end)
    end
    moth.save(big, path)
    for _, name in ipairs(files.list()) do assert.is_nil(name:find "%.tmp$", name) end
    assert.equal(2 ^ 21, moth.load(path).w:sum():item())
  end)

  it("lets several processes save to one path at the same time", function()
    local path = files.path "shared.safetensors"
    local script = files.write("save.lua", ([[
      local moth = require "moth"
      for k = 1, 20 do moth.save { { w = moth.full({ 1000 }, k) }, "%s", durable = false } end
    ]]):format(path))
    local one = ("%s '%s' &"):format(process.program, script)
    process.shell(one .. one .. one .. " wait")
    local w = moth.load(path).w
    assert.equal(20000, w:sum():item())
    for _, name in ipairs(files.list()) do assert.is_nil(name:find "%.tmp$", name) end
  end)
end)

describe("a safetensors file", function()
  local function one(format, shape, bytes)
    local header = ([[{"w":{"dtype":"%s","shape":%s,"data_offsets":[0,%d]},]]
      .. [["ok":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}}]]):format(format, shape, #bytes,
      #bytes, #bytes + 1)
    return files.write("one.safetensors", files.safetensors(header, bytes .. "\7"))
  end

  for format, case in pairs {
    U16 = { "[2]", "\1\0\255\255", moth.int32, { 1, 65535 } },
    U32 = { "[1]", "\255\255\255\255", moth.int64, { 4294967295 } },
    U64 = { "[1]", "\1\0\0\0\1\0\0\0", moth.int64, { 4294967297 } },
    F8_E4M3 = { "[3]", "\60\254\1", moth.float32, { 1.5, -448, 2 ^ -9 } },
    F8_E5M2 = { "[2]", "\62\124", moth.float32, { 1.5, math.huge } },
    C64 = { "[1]", "\0\0\128\63\0\0\0\64", moth.float32, { { 1, 2 } } },
  } do
    it("of " .. format .. " is loaded as " .. case[3].name .. ", which is said", function()
      local state = moth.load(one(format, case[1], case[2]))
      assert.equal(case[3], state.w.dtype)
      assert.same(case[4], state.w:double():tolist())
      assert.same({ 7 }, state.ok:tolist())
      assert.matches("a tensor of " .. format .. " is loaded as " .. case[3].name, told[1])
      assert.equal(1, #told)
    end)
  end

  it("is loaded although Moth cannot hold a tensor of it, which is reported", function()
    local state = moth.load(one("U64", "[1]", ("\255"):rep(8)))
    assert.same({ 7 }, state.ok:tolist())
    assert.equal("<not loaded: tensor 'w' of dtype U64, with numbers beyond int64>",
      tostring(state.w))
    assert.has_error_like(function() return state.w + 1 end, "this was not loaded: tensor 'w'")
    assert.has_error_like(function() return state.w.shape end, "this was not loaded: tensor 'w'")
    assert.matches("a tensor of U64 is not loaded", told[1])
  end)
end)

describe("a .pth file", function()
  local state
  before_each(function() state = moth.load "spec/support/torch_kinds.pth" end)

  it("has 8-bit floats and unsigned integers converted", function()
    assert.same({ 1, 65535 }, state.uint16:double():tolist())
    assert.same({ { 1 }, { 4294967295 } }, state.uint32:double():tolist())
    assert.is_true(state.uint64:eq(9223372036854775807LL):all():item())
    assert.same({ 1.5, -448, 2 ^ -9 }, state.e4m3:tolist())
    assert.same({ 1.5, math.huge }, state.e5m2:tolist())
    assert.matches("a tensor of uint16 is loaded as int32", told[1])
  end)

  it("has complex numbers as pairs", function()
    assert.same({ { { 1, 2 }, { 0, 0 } }, { { 3, -1 }, { 0, 1 } } }, state.complex:tolist())
    assert.same({ { 1, -2 } }, state.conjugated:tolist())
    assert.same({ 1, 2 }, state.scalar)
  end)

  it("has NumPy arrays as tensors", function()
    assert.same({ { 0, 1, 2 }, { 3, 4, 5 } }, state.array:tolist())
    assert.equal(moth.float32, state.array.dtype)
    assert.same({ { 0, 1, 2 }, { 3, 4, 5 } }, state.fortran:double():tolist())
    assert.is_true(state.fortran:is_contiguous())
  end)

  it("is loaded although Moth cannot hold values of it, which is reported", function()
    assert.same({ { 0, 1 }, { 2, 3 } }, state.weight:tolist())
    assert.equal("<not loaded: an integer of more than 64 bits, 1180591620717411303424>",
      tostring(state.large))
    assert.matches("%-1180591620717411303424", tostring(state.negative))
    assert.equal("<not loaded: a tensor of uint64 with numbers beyond int64>",
      tostring(state.large64))
    assert.equal("<not loaded: a NumPy array of NumPy's dtype 'U1'>", tostring(state.words))
    assert.equal("<not loaded: a quantized tensor>", tostring(state.quantized))
    assert.equal("<not loaded: a sparse tensor, torch.sparse_coo; save it dense, by to_dense()>",
      tostring(state.sparse))
    assert.matches("a sparse tensor, torch.sparse_csr", tostring(state.rows), 1, true)
    assert.equal("<not loaded: a nested tensor>", tostring(state.nested))
  end)
end)

describe("a GGUF file", function()
  -- One key of one type, no tensors.
  local function gguf(key, kind, bytes)
    return files.write("one.gguf", "GGUF" .. files.le8(3):sub(1, 4) .. files.le8(0) .. files.le8(1)
      .. files.le8(#key) .. key .. files.le8(kind):sub(1, 4) .. bytes)
  end

  it("keeps all bits of its unsigned metadata", function()
    local _, metadata = moth.gguf.load(gguf("n", 10, "\1\0\0\0\0\0\32\0"))
    assert.equal(9007199254740993LL, metadata.n)
    _, metadata = moth.gguf.load(gguf("n", 10, ("\255"):rep(8)))
    assert.equal(18446744073709551615ULL, metadata.n)
    _, metadata = moth.gguf.load(gguf("n", 10, files.le8(12)))
    assert.equal(12, metadata.n)
  end)

  it("has an alignment that is a power of 2", function()
    assert.has_error_like(function()
      moth.gguf.load(gguf("general.alignment", 4, files.le8(3):sub(1, 4)))
    end, "its alignment is 3, which is no power of 2")
  end)
end)

it("a malformed pickle raises", function()
  for code, text in pairs {
    ["K\1K\2."] = "leaves values behind", ["K\1\128\2."] = "begins twice",
    ["q\1K\1."] = "keeps a value that is not there",
    ["}K\1a."] = "adds to a value that is not a list",
    [")K\1a."] = "adds to a value that is not a list",
    ["]K\1K\2s."] = "adds to a value that is not a dict",
  } do
    assert.has_error_like(function() moth.load(files.write("a.pth", files.pth(code))) end,
      "is broken: its pickle " .. text)
  end
end)

it("a data file is in the folder of its file or below it, and no link", function()
  local beside = require("moth.io.bytes").beside
  local data, main = files.write("data.bin", "1"), files.write("main.onnx", "2")
  assert.is_true(beside(data, main))
  assert.is_false(beside(files.path "none.bin", main))
  assert.is_false(beside(data, files.path "none/main.onnx"))
  assert.is_false(beside("/proc/self/status", main))
  lfs.mkdir(files.path "sub")
  assert.is_true(beside(files.write("sub/data.bin", "1"), main))
  assert.is_false(beside(data, files.path "sub/main.onnx"))
  lfs.mkdir(files.path "su")
  assert.is_false(beside(files.path "sub/data.bin", files.path "su/main.onnx"))
  os.execute(("ln -s /etc/hostname '%s'"):format(files.path "link.bin"))
  assert.is_false(beside(files.path "link.bin", main))
  os.execute(("ln '%s' '%s'"):format(data, files.path "second.bin"))
  assert.is_false(beside(data, main))
end)
