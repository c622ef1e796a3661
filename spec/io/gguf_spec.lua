-- GGUF files are read as the gguf package of llama.cpp reads them. spec/support/tiny.gguf is
-- written by that package (gguf.py in that folder); the bad files are made here, byte by byte.

local files = require "spec.support.files"
local moth = require "moth"

setup(files.setup)
teardown(files.teardown)

local PATH = "spec/support/tiny.gguf"

-- ---- handmade files ----

local le8 = files.le8
local function le(n, width) return le8(n):sub(1, width) end
local function text(s) return le8(#s) .. s end
local function entry(key, kind, value) return text(key) .. le(kind, 4) .. value end

-- A tensor's entry: name, sizes (innermost first), type, offset.
local function tensor(name, sizes, kind, offset)
  local list = {}
  for i, n in ipairs(sizes) do list[i] = type(n) == "string" and n or le8(n) end
  return text(name) .. le(#sizes, 4) .. table.concat(list) .. le(kind, 4) .. le8(offset)
end

local function gguf(parts)
  local keys, tensors = parts.keys or {}, parts.tensors or {}
  local head = "GGUF" .. le(parts.version or 3, 4) .. le8(parts.count or #tensors)
    .. le8(parts.nkeys or #keys) .. table.concat(keys) .. table.concat(tensors)
  return head .. ("\0"):rep(-#head % (parts.align or 32)) .. (parts.data or "")
end

local function refused(bytes, wanted, code)
  local path = files.write("bad.gguf", bytes)
  moth.collect()
  local before = moth.memory().live_bytes
  local ok, message = pcall(moth.gguf.load, path)
  assert.is_false(ok)
  assert.matches("bad argument 'path' to 'gguf.load' ('" .. path .. "' ", message, 1, true)
  assert.matches(wanted, message, 1, true)
  assert.equal(code or "E_FORMAT", moth.errcode())
  moth.collect()
  assert.is_true(moth.memory().live_bytes <= before)
end

describe("a GGUF file", function()
  it("has plain tensors unchanged, quantised ones as the reference reads them", function()
    local tensors = moth.gguf.load(PATH)
    for name in ("Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K"):gmatch "%S+" do
      local x, wanted = tensors[name], tensors["want." .. name]
      assert.equal(moth.float32, x.dtype)
      assert.same({unpack(wanted.shape)}, {unpack(x.shape)})
      assert.is_true(moth.allclose(x, wanted, {rtol = 1e-6, atol = 1e-5}), name)
    end
    for name, dtype in pairs {F32 = "float32", F16 = "float16", BF16 = "bfloat16", F64 = "float64",
      I8 = "int8", I16 = "int16", I32 = "int32", I64 = "int64"} do
      assert.equal(moth[dtype], tensors[name].dtype)
      assert.same({{-2, -1, 0}, {1, 2, 3}}, tensors[name]:double():tolist())
    end
  end)

  it("has metadata as a table", function()
    local _, meta = moth.gguf.load(PATH)
    assert.same({200, -5, 60000, -30000, 4000000000, -2000000000, 2 ^ 40, 0.5, 0.1, true},
      {meta["a.u8"], meta["a.i8"], meta["a.u16"], meta["a.i16"], meta["a.u32"], meta["a.i32"],
       meta["a.u64"], meta["a.f32"], meta["a.f64"], meta["a.bool"]})
    assert.is_true(meta["a.i64"] == -2LL ^ 60 - 1)
    assert.equal("moth \195\169", meta["a.text"])
    assert.same({1, 2, 3}, meta["a.list"])
    assert.same({"x", "", "yz"}, meta["a.texts"])
    assert.equal("tiny", meta["general.architecture"])
  end)

  it("is also read by moth.load, in another dtype, and one tensor at a time", function()
    local tensors = moth.load(PATH)
    local file = moth.gguf.open(PATH, {mmap = false})
    assert.same(tensors.Q6_K:tolist(), file:tensor("Q6_K"):tolist())
    assert.same(tensors.Q6_K:half():tolist(), file:tensor("Q6_K", moth.float16):tolist())
    assert.equal(moth.float16, moth.gguf.load(PATH, {dtype = moth.float16}).Q8_0.dtype)
    assert.same({type = "Q4_K", shape = {3, 512}, nbytes = 864}, file:info "Q4_K")
    assert.equal("Q4_0", file:names()[1])
    assert.error_matches(function() file:tensor "Q4_k" end, "has no tensor a string ('Q4_k'); "
      .. "did you mean 'Q4_K'?", 1, true)
    assert.equal(moth.float16, file:tensor{"Q4_0", dtype = moth.float16}.dtype)
    for _, wrong in ipairs {
      { "bad argument 'dtype' to 'tensor' (", "float16" },
      { "bad argument 'dtype' to 'tensor' (a floating-point dtype is needed, got", moth.int8 },
    } do
      assert.error_matches(function() file:tensor("Q4_0", wrong[2]) end, wrong[1], 1, true)
    end
  end)

  it("is mapped, and writes to its tensors do not change it", function()
    local path = files.write("own.gguf", gguf {tensors = {tensor("a", {2}, 26, 0)},
      data = le(5, 4) .. le(7, 4)})
    local a = moth.load(path).a
    a:add_(1)
    assert.same({6, 8}, a:tolist())
    assert.same({5, 7}, moth.load(path).a:tolist())
    moth.collect()
    assert.same({6, 8}, a:tolist())
  end)

  it("has tensors with separate versions: a write to one keeps gradients of others", function()
    local t = moth.gguf.load "spec/support/tiny.gguf"
    local a, b = t.F32:requires_grad_(), t.F64:requires_grad_()
    local y = (b * b):sum()
    moth.no_grad(function() a:add_(1) end)
    y:backward()
    assert.is_true(moth.allclose(b.grad, 2 * b:detach()))
  end)

  it("of empty tensors alone may end before its data would begin", function()
    local bytes = gguf {tensors = {tensor("a", {0}, 0, 0), tensor("b", {32, 0}, 2, 0)}}
    local tensors = moth.gguf.load(files.write("empty.gguf", bytes:sub(1, 98)))
    assert.same({0}, {unpack(tensors.a.shape)})
    assert.same({0, 32}, {unpack(tensors.b.shape)})
  end)

  it("has tensors with separate storages: a captured step copies no more", function()
    local large = 2 ^ 20
    local path = files.write("large.gguf", gguf {data = ("\0"):rep(4 * large + 32),
      tensors = {tensor("a", {2}, 0, 0), tensor("b", {large}, 0, 32)}})
    local a = moth.gguf.load(path).a
    local step = moth.capture(function(x) return a:add_(x) end, {verify = 2})
    moth.collect()
    local before = moth.memory().cached_bytes
    for _ = 1, 8 do step(moth.ones(2)) end
    assert.is_true(moth.memory().cached_bytes - before < large)
  end)

  it("with NaN of any bits has ordinary values", function()
    local _, meta = moth.gguf.load(files.write("nan.gguf", gguf {keys = {
      entry("f", 6, "\255\255\255\255"), entry("d", 12, ("\255"):rep(8)),
      entry("i", 12, "\0\0\0\0\0\0\240\127"), entry("e", 9, le(4, 4) .. le8(0))}}))
    assert.is_true(meta.f ~= meta.f and meta.d ~= meta.d)
    assert.equal("number", type(meta.d))
    assert.equal(math.huge, meta.i)
    assert.same({}, meta.e)
  end)

  it("that is malformed raises an error that names the fault", function()
    local one = tensor("a", {2}, 0, 0)
    local eight = ("\0"):rep(8)
    refused("", "is no GGUF file")
    refused("GGUX" .. ("\0"):rep(40), "is no GGUF file")
    refused(gguf {version = 1}, "is of version 1; 2 and 3 are read", "E_UNSUPPORTED")
    refused(gguf {version = 2 ^ 24 * 3}, "is of version 50331648", "E_UNSUPPORTED")
    refused(gguf {count = 2 ^ 40}, "is broken: 1099511627776 tensors and 0 keys in")
    refused(gguf {nkeys = 2 ^ 50}, "keys in")
    refused(gguf {keys = {("\255"):rep(8) .. "x"}}, "is broken: a text, 184467")
    refused(gguf {keys = {entry("k", 99, eight)}}, "a value of the unknown type 99")
    refused(gguf {keys = {entry("k", 9, le(0, 4) .. le8(2 ^ 45))}},
      "a list of 35184372088832 values in")
    refused(gguf {keys = {entry("k", 9, (le(9, 4) .. le8(1)):rep(9))}}, "nested too deeply")
    refused(gguf {keys = {entry("k", 0, "x"), entry("k", 0, "y")}}, "has the key 'k' twice")
    refused(gguf {keys = {entry("general.alignment", 4, le(0, 4))}}, "its alignment is 0")
    refused(gguf {tensors = {one, one}, data = eight}, "has the tensor 'a' twice")
    local path = files.write("bad.gguf", gguf {keys = {entry(files.evil, 0, "x"),
      entry(files.evil, 0, "y")}})
    files.refusal(path, moth.load, path)
    files.write("bad.gguf", gguf {tensors = {tensor(files.evil, {1}, 99, 0)}})
    files.refusal(path, moth.load, path)
    refused(gguf {tensors = {one}}, "has the tensor 'a' at bytes 0 to 8 of data, but there are 0")
    refused(gguf {tensors = {tensor("a", {2}, 0, 8)}, data = eight:rep(9)}, "no multiple of 32")
    refused(gguf {tensors = {tensor("a", {16}, 0, 0), tensor("b", {2}, 0, 32)},
      data = eight:rep(9)}, "has the tensor 'b' overlapping another tensor")
    refused(gguf {tensors = {tensor("a", {2 ^ 40, 2 ^ 40}, 0, 0)}}, "of an impossible size")
    refused(gguf {tensors = {tensor("a", {("\255"):rep(8), 0}, 0, 0)}}, "of an impossible size")
    refused(gguf {tensors = {tensor("a", {1, 1, 1, 1, 1, 1, 1, 1, 1}, 0, 0)}, data = eight},
      "of 9 dimensions, at most 8", "E_UNSUPPORTED")
    refused(gguf {tensors = {tensor("a", {2}, 77, 0)}, data = eight},
      "of type 77, which Moth does not read", "E_UNSUPPORTED")
    refused(gguf {tensors = {tensor("a", {33}, 2, 0)}, data = eight:rep(9)},
      "of type Q4_0 with rows of 33 numbers, no multiple of 32")
    refused(gguf {tensors = {one}, data = eight}:sub(1, 40), "is broken: 1 tensor ")
    refused(gguf {keys = {entry("kk", 4, le(1, 4)), entry("key", 8, text "long")}}:sub(1, 68),
      "would lie beyond its end")
  end)

  it("may end at the last byte that it needs, and raises one byte before", function()
    local function loaded(parts, cut)
      local head = gguf(parts):sub(1, cut)
      return moth.gguf.load(files.write("end.gguf", head))
    end
    assert.same({{}, {}}, {loaded({}, 24)})
    refused(gguf {}:sub(1, 23), "is no GGUF file")
    local key = entry("", 7, "\1")
    assert.same({{}, {[""] = true}}, {loaded({keys = {key}}, 24 + 13)})
    assert.same({{}, {[""] = {1, 2, 3}}}, {loaded({keys = {entry("", 9, le(0, 4) .. le8(3)
      .. "\1\2\3")}}, 24 + 12 + 15)})
    for _, row in ipairs {
      {{count = 1}, 24, "has the tensor '' at bytes 0 to 4 of data, but there are 0"},
      {{count = 1}, 23, "is broken: 1 tensor and 0 keys in 23 bytes"},
      {{count = 2, nkeys = 1}, 60, "is broken: 2 tensors and 1 key in 60 bytes"},
      {{keys = {key}}, 12, "is broken: 0 tensors and 1 key in 12 bytes"},
      {{count = 1, nkeys = 2}, 24 + 25, "is broken: 1 tensor and 2 keys in 49 bytes"},
      {{keys = {entry("k", 9, le(0, 4) .. le8(3) .. "\1\2")}}, 27,
       "is broken: a list of 3 values in 2 bytes"},
    } do
      local head = gguf(row[1]) .. ("\0"):rep(64)
      refused(head:sub(1, 24 + row[2]), row[3])
    end
  end)

  it("has lists of up to 8 levels", function()
    local nested = (le(9, 4) .. le8(1)):rep(7)
    local _, meta = moth.gguf.load(files.write("deep.gguf", gguf {keys = {
      entry("k", 9, nested .. le(0, 4) .. le8(2) .. "\5\6")}}))
    assert.same({{{{{{{{5, 6}}}}}}}}, meta.k)
    refused(gguf {keys = {entry("k", 9, nested .. le(9, 4) .. le8(1) .. le(0, 4) .. le8(1)
      .. "\5")}}, "is broken: its lists are nested too deeply")
  end)

  it("has empty tensors anywhere, of the dtype that is wanted; others do not overlap", function()
    local tensors = {tensor("a", {4}, 0, 0), tensor("e", {0}, 26, 4), tensor("q", {32, 0}, 2, 8),
      tensor("h", {0, 2}, 1, 4096)}
    local align = {entry("general.alignment", 4, le(4, 4))}
    local path = files.write("empty.gguf", gguf {keys = align, tensors = tensors,
      data = ("\0"):rep(16)})
    for _, case in ipairs {{nil, moth.float32}, {moth.float64, moth.float64},
                           {moth.bfloat16, moth.bfloat16}} do
      local read = moth.gguf.load(path, {dtype = case[1]})
      assert.same({0, 0, 0, 0}, read.a:tolist())
      assert.same({moth.float32, moth.int32, case[2], moth.float16},
        {read.a.dtype, read.e.dtype, read.q.dtype, read.h.dtype})
      assert.same({{0}, {0, 32}, {2, 0}}, {{unpack(read.e.shape)}, {unpack(read.q.shape)},
        {unpack(read.h.shape)}})
    end
    refused(gguf {keys = align, tensors = {tensor("a", {4}, 0, 0), tensor("e", {0}, 26, 4),
      tensor("b", {1}, 0, 8)}, data = ("\0"):rep(16)}, "has the tensor 'b' overlapping another")
    local key = {entry("general.alignment", 4, le(1, 4))}
    local function bytes(tensors_of, data)
      return gguf {align = 1, keys = key, tensors = tensors_of, data = data}
    end
    local one, other = tensor("a", {1}, 24, 0), tensor("b", {1}, 24, 0)
    refused(bytes({one}), "has the tensor 'a' at bytes 0 to 1 of data, but there are 0")
    refused(bytes({one, other}, "\1"), "overlapping another tensor")
    local read = moth.gguf.load {bytes = bytes({one, tensor("b", {1}, 24, 1)}, "\1\2")}
    assert.same({{1}, {2}}, {read.a:tolist(), read.b:tolist()})
  end)

  it("has at most 2^52 numbers in a tensor, and whole blocks in each row", function()
    refused(gguf {tensors = {tensor("big", {2 ^ 26, 2 ^ 26}, 24, 0)}},
      "has the tensor 'big' at bytes 0 to 4503599627370496 of data, but there are 0")
    refused(gguf {tensors = {tensor("big", {2 ^ 26, 2 ^ 26 + 1}, 24, 0)}},
      "has the tensor 'big' of an impossible size")
    for kind, row in pairs {[2] = {"Q4_0", 32}, [14] = {"Q6_K", 256}} do
      for sizes, n in pairs {[{}] = 1, [{row[2] - 1}] = row[2] - 1, [{1, row[2]}] = 1} do
        refused(gguf {tensors = {tensor("q", sizes, kind, 0)}, data = ("\0"):rep(9999)},
          ("has the tensor 'q' of type %s with rows of %d number%s, no multiple of %d"):format(
            row[1], n, n == 1 and "" or "s", row[2]))
      end
    end
  end)

  it("cut at any byte raises, or is complete if the cut is after its last tensor", function()
    local file = io.open(PATH, "rb")
    local whole = file:read "*a"
    file:close()
    for _, n in ipairs {0, 3, 23, 24, 100, 500, 700, 1000, 1500, 1999, 10000, #whole - 40} do
      local ok = pcall(moth.gguf.load, files.write("cut.gguf", whole:sub(1, n)))
      assert.is_false(ok, n)
    end
  end)
end)
