-- Files of torch.save are read as data. spec/support/torch.pth is written by PyTorch (torch_pth.py
-- in that folder); the bad files are made here, byte by byte.

local moth = require "moth"
local files = require "spec.support.files"

setup(files.setup)
teardown(files.teardown)

local PATH, OLD = "spec/support/torch.pth", "spec/support/torch_old.pth"

local archive, pth = files.archive, files.pth
local function le(n, width) return files.le8(n):sub(1, width) end

local function load(bytes) return moth.load(files.write("bad.pth", bytes)) end

local function refused(bytes, text, code)
  local ok, message = pcall(load, bytes)
  assert.is_false(ok)
  assert.matches("bad argument 'path' to 'load'", message, 1, true)
  assert.matches(text, message)
  assert.equal(code or "E_FORMAT", moth.errcode())
end

local function word(text) return "X" .. le(#text, 4) .. text end
local function tensor(class, count, offset, size, stride)
  return "ctorch._utils\n_rebuild_tensor_v2\n((" .. word "storage" .. "ctorch\n" .. class .. "\n"
    .. word "0" .. word "cpu" .. "K" .. string.char(count) .. "tQK" .. string.char(offset) .. size
    .. stride .. "\137ccollections\nOrderedDict\n)RtR."
end

-- ---- the specs ----

describe("moth.load of a file of torch.save", function()
  local saved
  before_each(function() saved = moth.load(PATH) end)

  it("reads tables, numbers, texts and booleans", function()
    assert.equal(3, saved.epoch)
    assert.equal(2LL ^ 62, saved.big)
    assert.equal(-70000, saved.negative)
    assert.equal(1 / 3, saved.third)
    assert.equal(math.huge, saved.infinite)
    assert.is_nil(saved.nothing)
    assert.equal("ä", saved.text)
    assert.same({2, 3}, saved.size)
    assert.same({1, moth.none, "a", {2, 3}}, saved.list)
  end)

  it("reads tensors of every dtype with their values", function()
    assert.same({{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}}, saved.base:tolist())
    assert.equal(5, saved.scalar:item())
    assert.equal(moth.int64, saved.scalar.dtype)
    assert.same({true, false}, saved.truth:tolist())
    assert.equal(moth.float16, saved.half.dtype)
    assert.equal(moth.bfloat16, saved.brain.dtype)
    assert.same({1, 1}, saved.brain:tolist())
    assert.same({0, 1, 2}, saved.bytes:tolist())
    assert.same({1, 1}, saved.parameter:tolist())
    assert.equal("(0, 3)", tostring(saved.empty.shape))
  end)

  it("keeps views of one storage as views of one storage", function()
    saved.base[{2, 3}] = 99
    assert.same({4, 5, 99, 7}, saved.row:tolist())
    assert.same({{0, 4, 8}, {1, 5, 9}, {2, 99, 10}, {3, 7, 11}}, saved.turned:tolist())
  end)

  it("maps the file if its numbers are aligned; writes do not change the file", function()
    local shared = 0
    for pad = 0, 3 do -- the lengths of names decide the alignment
      local root = "a" .. ("a"):rep(pad)
      local code = tensor("FloatStorage", 2, 0, "K\2\133", "K\1\133")
      local path = files.write("shared.pth", archive { { root .. "/data.pkl", "\128\2" .. code },
        { root .. "/data/0", ("\0"):rep(8) } })
      moth.collect()
      local before = moth.memory().live_bytes
      local x = moth.load(path)
      if moth.memory().live_bytes == before then shared = shared + 1 end
      x:fill_(1)
      assert.same({0, 0}, moth.load(path, {mmap = false}):tolist())
    end
    assert.is_true(shared > 0 or jit.os == "Windows") -- Windows reads files
  end)

  it("reads state dicts of a module and an optimizer", function()
    local net = moth.nn.Linear(3, 2)
    net:load_state_dict(saved.model)
    assert.same({-1.5, 0.5}, net.bias:tolist())
    local optimizer = moth.optim.SGD(net:parameters(), {lr = 0.1})
    local state = {state = saved.optimizer.state, param_groups = {}}
    for i, group in ipairs(saved.optimizer.param_groups) do
      state.param_groups[i] = {lr = group.lr, momentum = group.momentum, params = group.params}
    end
    optimizer:load_state_dict(state)
    assert.equal(0.75, optimizer.param_groups[1].momentum)
    assert.same({1, 1}, optimizer.state[net.bias].momentum_buffer:tolist())
  end)

  it("reads a Counter's elements, in which a schedule keeps its milestones", function()
    local function counter(items) return pth("ccollections\nCounter\n}(" .. items .. "u\133R.") end
    assert.same({2, 5, 5}, load(counter "K\5K\2K\2K\1"))
    assert.same({}, load(pth "ccollections\nCounter\n}\133R."))
    local many = "J" .. le(6e5, 4)
    refused(counter("K\1" .. many .. "K\2" .. many), "of very many elements", "E_UNSUPPORTED")
    assert.same({a = 1}, load(counter(word "a" .. "K\1")))
    refused(counter("K\1" .. word "a"), "a collections.Counter of something else than numbers",
      "E_UNSUPPORTED")
  end)

  it("calls no function that the file names", function()
    refused(pth("cos\nsystem\n(" .. word "touch /tmp/x" .. "tR."),
      "names os.system, which is code", "E_UNSUPPORTED")
    refused(pth("cposix\nsystem\n."), "names posix.system, which is code", "E_UNSUPPORTED")
    refused(pth("cbuiltins\neval\n)\129."), "names builtins.eval", "E_UNSUPPORTED")
    refused(pth("}" .. word "x" .. "cos\nsystem\ns."), "names os.system", "E_UNSUPPORTED")
    for _, code in ipairs { "%s.", "}X\1\0\0\0x%ss.", "](%se.", "]%sa.", "%s\133." } do
      refused(pth((code:gsub("%%s", "ccollections\nOrderedDict\n"))),
        "holds collections.OrderedDict itself, which is code", "E_UNSUPPORTED")
    end
    local path = files.write("bad.pth", pth("c" .. files.evil:gsub("\n", "") .. "\nname\n."))
    files.refusal(path, moth.load, path)
    refused(pth("(ios\nsystem\n."), "the instruction 0x69", "E_UNSUPPORTED")
  end)

  it("raises for tensors that exceed their storage", function()
    local two, one = "K\2\133", "K\1\133"
    assert.same({0, 0}, load(pth(tensor("FloatStorage", 2, 0, two, one))):tolist())
    refused(pth(tensor("FloatStorage", 2, 1, two, one)), "reaches beyond its storage")
    refused(pth(tensor("FloatStorage", 2, 0, two, two)), "reaches beyond its storage")
    refused(pth(tensor("FloatStorage", 2, 0, "J\255\255\255\255\133", one)), "that is no count")
    refused(pth(tensor("FloatStorage", 9, 0, two, one)), "has 8 bytes, 9 float32 elements")
    refused(pth(tensor("ComplexFloatStorage", 2, 0, one, one)), "has 8 bytes, 4 float32 elements")
  end)

  it("accepts any number of numbers", function()
    local one = "G\63\248" .. ("\0"):rep(6)
    local list = load(pth("](" .. one:rep(70000) .. "e."))
    assert.equal(70000, #list)
    assert.equal(1.5, list[70000])
  end)

  it("raises for malformed pickles", function()
    refused(pth("."), "takes too much")
    refused(pth("K\1"), "ends too early")
    refused(pth("t."), "lacks a mark")
    refused(pth("h\9."), "reads a memo that it never wrote")
    refused(pth("K\1K\2a."), "adds to a value that is not a list")
    refused(pth("}(K\1u."), "a key without a value")
    refused(pth("}]K\1s."), "keys are {}", "E_UNSUPPORTED")
    refused(archive {{"a/data.pkl", "\128\7."}}, "protocol 7", "E_UNSUPPORTED")
    refused(pth("K\1K\2."), "leaves values behind")
    refused(pth("\128\2K\1."), "begins twice")
    refused(pth("q\1."), "keeps a value that is not there")
    refused(pth("](q\1K\1e."), "keeps a value that is not there")
    refused(pth("]K\1K\2s."), "adds to a value that is not a dict")
    refused(pth("}K\1a."), "adds to a value that is not a list")
    refused(pth(")K\1a."), "adds to a value that is not a list")
    refused(pth("\149\255\0\0\0\0\0\0\0K\1."), "a frame of its pickle reaches beyond its end")
  end)

  it("reads dtypes and sizes as values", function()
    assert.equal(moth.bfloat16, load(pth("}" .. word "dtype" .. "ctorch\nbfloat16\ns.")).dtype)
    assert.same({2, 3}, load(pth "ctorch\nSize\nK\2K\3\134\133R."))
    refused(pth("ctorch\nSize\n" .. word "abc" .. "\133R."), "sizes that are no list")
    local most = "\138\7" .. ("\0"):rep(6) .. "\8" -- 2^51
    for _, start in ipairs { most, "K\0" } do -- sizes of one element, and of none
      local size = start .. most .. most .. "\135"
      refused(pth(tensor("FloatStorage", 2, 0, size, "K\0K\0K\0\135")), "impossible sizes")
    end
  end)

  it("raises for malformed archives", function()
    refused(archive {{"a/b", "c"}}, "without data.pkl")
    refused(archive {{"a/data.pkl", "N.", 8}}, "'a/data.pkl' does not expand to the bytes")
    refused(archive {{"a", "x"}, {"a", "y"}}, "two members 'a'")
    refused((pth("N."):gsub("N%.", "K.")), "has a wrong checksum")
    refused("PK\3\4", "no complete zip archive")
    local large = ("x"):rep(1000)
    refused(archive {{"a/data/0", large}, {"a/data/1", large, again = true}}, "members overlap")
  end)

  it("survives any cut and any changed byte", function()
    local bytes = files.read(PATH)
    for size = 0, #bytes - 1, 61 do
      assert.is_false((pcall(load, bytes:sub(1, size))))
    end
    local gzip = require "moth.io.gzip"
    local crc = gzip.crc32
    finally(function() gzip.crc32 = crc end)
    for at = 1, #bytes, 7 do
      gzip.crc32 = at % 2 == 0 and crc or function() end -- also past the checksums
      local ok, message = pcall(load, bytes:sub(1, at - 1) .. string.char(255 - bytes:byte(at))
        .. bytes:sub(at + 1))
      assert(ok or message:find("bad argument 'path' to 'load'", 1, true), message)
    end
    assert.equal(3, moth.load(PATH).epoch)
  end)
end)

describe("a file of torch.save before PyTorch 1.6", function()
  local function same(one, other)
    if moth.is_tensor(one) then
      assert.equal(one.dtype, other.dtype)
      assert.same(one.shape, other.shape)
      assert.is_true(moth.equal(one, other))
    elseif type(one) == "table" then
      for key, value in pairs(one) do same(value, other[key]) end
      for key in pairs(other) do assert.is_not_nil(one[key]) end
    else
      assert.equal(one, other)
    end
  end

  it("is read like newer files", function()
    same(moth.load(PATH), moth.load(OLD))
    same(moth.load(PATH), moth.load(OLD, {mmap = false}))
  end)

  it("keeps views of one storage as views of one storage", function()
    local saved = moth.load(OLD)
    saved.base[{2, 3}] = 99
    assert.same({4, 5, 99, 7}, saved.row:tolist())
    assert.equal(99, saved.turned[{3, 2}]:item())
  end)

  it("survives any cut and any changed byte, and raises if it is malformed", function()
    local bytes = files.read(OLD)
    for size = 0, #bytes - 1, 19 do
      assert.is_false((pcall(load, bytes:sub(1, size))))
    end
    for at = 1, #bytes, 3 do
      local ok, message = pcall(load, bytes:sub(1, at - 1) .. string.char(255 - bytes:byte(at))
        .. bytes:sub(at + 1))
      assert(ok or message:find("bad argument 'path' to 'load'", 1, true), message)
    end
    refused(bytes:sub(1, 15) .. "\128\2}.abcd", "a pickle that torch.save did not write",
      "E_UNSUPPORTED")
    refused((bytes:gsub("little_endian(q.)\136", "little_endian%1\137")), "a big.endian machine",
      "E_UNSUPPORTED")
    refused((bytes:gsub("K\12N", "K\13N")), "storage %S+ has 12 elements, 13 in its pickle")
    refused((bytes:gsub("K\12N", "J\0\0\0\64N")), "would have more than 2504 bytes")
  end)
end)

describe("a checkpoint with the other values of training scripts", function()
  local saved = moth.load "spec/support/torch_objects.pth"

  it("has Python's objects as tables, lists, texts and numbers", function()
    assert.same({ lr = 0.1, layers = { 2, 3 }, name = "net", out = "a/b" }, saved.args)
    assert.same({ depth = 3 }, saved.simple)
    assert.same({ { 3 }, { "x" }, { 1, 2, 3 } }, { saved.seen, saved.fixed, saved.recent })
    assert.same({ a = { 1, 2 } }, saved.by_name)
    assert.same({ the = 2, a = 1 }, saved.words)
    assert.same({ "\0\255A", "\1\128" }, { saved.raw, saved.array })
    assert.same({ "cuda:1", "cpu" }, { saved.device, saved.cpu })
    assert.same({ 1, 2 }, saved.turn)
  end)

  it("has NumPy's scalars as numbers, and the weights", function()
    assert.same({ 0.75, 1.5, 0.25, 200, true }, { saved.best, saved.small, saved.half,
      tonumber(saved.byte), saved.flag })
    assert.equal(-3, tonumber(saved.count))
    assert.same({ { 0, 1 }, { 2, 3 } }, saved.weight:tolist())
  end)

  it("raises if they are malformed", function()
    local function call(name, arguments) return "c" .. name .. "\n" .. arguments .. "\133R." end
    refused(pth(call("builtins\nset", word "ab")), "holds a set or list of something else",
      "E_UNSUPPORTED")
    refused(pth(call("_codecs\nencode", word "ab")), "holds bytes in an unknown way",
      "E_UNSUPPORTED")
    refused(pth(call("numpy\ndtype", "K\1")), "a dtype of NumPy without a name", "E_UNSUPPORTED")
    refused(pth(call("numpy._core.multiarray\nscalar", "K\1")), "scalar in an unknown way",
      "E_UNSUPPORTED")
    refused(pth(call("pathlib\nPosixPath", "K\1")), "a path of something else", "E_UNSUPPORTED")
    refused(pth(call("torch\ndevice", "K\1")), "a device without a name", "E_UNSUPPORTED")
    refused(pth(call("builtins\neval", word "1")), "names builtins.eval, which is code",
      "E_UNSUPPORTED")
  end)
end)

describe("a NumPy array of a big-endian machine in a file of torch.save", function()
  it("has its values", function()
    local code = files.unhex(""
      .. "80027d7100285801000000787101636e756d70792e5f636f72652e6d756c746961727261790a5f726563"
      .. "6f6e7374727563740a7102636e756d70790a6e6461727261790a71034b00857104635f636f646563730a"
      .. "656e636f64650a7105580100000062710658060000006c6174696e31710786710852710987710a52710b"
      .. "284b014b0285710c636e756d70790a64747970650a710d58020000006634710e898887710f527110284b"
      .. "0358010000003e71114e4e4e4affffffff4affffffff4b0074711262896805580a0000003fc3800000c3"
      .. "80000000711368078671145271157471166258010000006e7117680268034b0085711868098771195271"
      .. "1a284b014b0185711b680d58020000007532711c898887711d52711e284b0368114e4e4e4affffffff4a"
      .. "ffffffff4b0074711f628968055802000000012c7120680786712152712274712362752e")
    local warn = moth.warn
    rawset(moth, "warn", function() end) -- uint16 becomes int32
    finally(function() rawset(moth, "warn", warn) end)
    local saved = moth.load {bytes = files.archive {{"a/data.pkl", code}}}
    assert.same({1.5, -2}, saved.x:tolist())
    assert.equal(moth.float32, saved.x.dtype)
    assert.same({300}, saved.n:tolist())
  end)
end)
