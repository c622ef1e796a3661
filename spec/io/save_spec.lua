-- moth.save, moth.load and moth.open: values are restored exactly, PyTorch reads and writes the
-- same files, and a failed save keeps the old file. Bad files: hostile_files_spec.lua.

local ffi = require "ffi"
local errors = require "moth.error"
local moth = require "moth"
local child = require "spec.support.child"
local files = require "spec.support.files"

local path_of, write, read, list_folder, unhex, file_of, entry, round =
  files.path, files.write, files.read, files.list, files.unhex, files.safetensors, files.entry,
  files.round

setup(files.setup)
teardown(files.teardown)

-- Bytes that safetensors 0.8 wrote from PyTorch tensors.
local from_pytorch = unhex(
  "a8020000000000007b225f5f6d657461646174615f5f223a7b226ec3a95c6e223a225c22715c22222c22"
  .. "666f726d6174223a227074227d2c22693634223a7b226474797065223a22493634222c22736861706522"
  .. "3a5b325d2c22646174615f6f666673657473223a5b302c31365d7d2c22663634223a7b22647479706522"
  .. "3a22463634222c227368617065223a5b5d2c22646174615f6f666673657473223a5b31362c32345d7d2c"
  .. "22656d707479223a7b226474797065223a22463332222c227368617065223a5b302c335d2c2264617461"
  .. "5f6f666673657473223a5b32342c32345d7d2c22663332223a7b226474797065223a22463332222c2273"
  .. "68617065223a5b312c325d2c22646174615f6f666673657473223a5b32342c33325d7d2c22693332223a"
  .. "7b226474797065223a22493332222c227368617065223a5b325d2c22646174615f6f666673657473223a"
  .. "5b33322c34305d7d2c2262663136223a7b226474797065223a2242463136222c227368617065223a5b32"
  .. "5d2c22646174615f6f666673657473223a5b34302c34345d7d2c22663136223a7b226474797065223a22"
  .. "463136222c227368617065223a5b325d2c22646174615f6f666673657473223a5b34342c34385d7d2c22"
  .. "693136223a7b226474797065223a22493136222c227368617065223a5b325d2c22646174615f6f666673"
  .. "657473223a5b34382c35325d7d2c226938223a7b226474797065223a224938222c227368617065223a5b"
  .. "325d2c22646174615f6f666673657473223a5b35322c35345d7d2c227538223a7b226474797065223a22"
  .. "5538222c227368617065223a5b325d2c22646174615f6f666673657473223a5b35342c35365d7d2c2262"
  .. "6f6f6c223a7b226474797065223a22424f4f4c222c227368617065223a5b335d2c22646174615f6f6666"
  .. "73657473223a5b35362c35395d7d7d200000000000000080ffffffffffffff7f9a9999999999b93fcdcc"
  .. "cc3d000020c000000080ffffff7fc03f807f003e00800080ff7f807f00ff010001")

local linear_from_pytorch = unhex(
  "78000000000000007b2262696173223a7b226474797065223a22463332222c227368617065223a5b315d"
  .. "2c22646174615f6f666673657473223a5b302c345d7d2c22776569676874223a7b226474797065223a22"
  .. "463332222c227368617065223a5b312c325d2c22646174615f6f666673657473223a5b342c31325d7d7d"
  .. "2020000040400000803f00000040")

-- Both ways of reading must agree.
for _, mmap in ipairs { true, false } do
  local options = { mmap = mmap }

  describe(mmap and "saving and mapping" or "saving and reading", function()
    it("keeps all ten dtypes, bit by bit", function()
      for _, dtype in ipairs { "bool", "uint8", "int8", "int16", "int32", "int64", "float16",
        "bfloat16", "float32", "float64" } do
        local x = moth.arange(12):remainder(dtype == "bool" and 2 or 100):to(moth[dtype])
        x = x:view(3, 4)
        local y = round(x, options)
        assert.is_true(y.dtype == x.dtype)
        assert.same({ 3, 4 }, { y:size(1), y:size(2) })
        assert.same(x:tolist(), y:tolist())
      end
    end)

    it("keeps extreme values", function()
      local x = moth.tensor { 0x7fffffffffffffffLL, -0x7fffffffffffffffLL - 1 }
      assert.equal("9223372036854775807LL", tostring(round(x, options)[1]:item()))
      assert.equal(-2 ^ 63, round(x, options)[2]:item())
      local y = round(moth.tensor { 1 / 0, -1 / 0, 0 / 0 }, options):tolist()
      assert.same({ 1 / 0, -1 / 0 }, { y[1], y[2] })
      assert.is_true(y[3] ~= y[3])
    end)

    it("keeps 0-d and empty tensors", function()
      assert.equal(0, round(moth.tensor(7), options):dim())
      assert.equal(7, round(moth.tensor(7), options):item())
      assert.equal("(0, 3)", tostring(round(moth.zeros(0, 3), options).shape))
      local t = round({ a = moth.zeros(0), b = moth.zeros(2, 0, 4), c = moth.ones(1) }, options)
      assert.equal("(2, 0, 4)", tostring(t.b.shape))
      assert.equal(1, t.c:item())
    end)

    it("writes views contiguously", function()
      local x = moth.arange(24):view(2, 3, 4)
      local views = { x:transpose(1, 3), x:permute(3, 1, 2), x:select(2, 2), x:narrow(3, 2, 2),
        moth.arange(3):view(3, 1):expand(3, 5), x[{ {}, {}, { 1, 4, 2 } }] }
      for i, y in ipairs(round(views, options)) do assert.same(views[i]:tolist(), y:tolist()) end
    end)

    it("writes a view larger than its buffer", function()
      local x = moth.arange(300 * 400):to(moth.float32):view(300, 400):transpose(1, 2)
      assert.is_true((round(x, options):eq(x)):all():item())
    end)

    it("stores tied tensors once and loads one tensor", function()
      local w = moth.randn(64, 64)
      local path = path_of("tied.st")
      moth.save({ a = w, b = w, c = w:detach(), d = w:transpose(1, 2) }, path)
      assert.is_true(#read(path) < 2 * 64 * 64 * 4 + 1000)
      local t = moth.load(path, options)
      assert.is_true(t.a == t.b and t.b == t.c)
      assert.is_false(t.a == t.d)
      t.a:fill_(3)
      assert.equal(3, t.c[1][1]:item())
      t = round({ x = { w }, y = { deep = { w } } }, options)
      assert.is_true(t.x[1] == t.y.deep[1])
    end)

    it("keeps nested tables with all of their values", function()
      local value = {
        epoch = 3, lr = 0.1, tiny = 5e-324, name = "run \"1\"\n\0é", bytes = "\255\0\128",
        on = true, list = { 1, 2, { 3, {} }, false }, [1] = "int",
        ["1"] = "string", [-0.5] = "half",
        [false] = "false", ["$tensor"] = "no tensor", [""] = { ["a/b"] = 1 }, ["\255"] = "key",
        inf = 1 / 0, minus = -1 / 0, big = 2 ^ 63, int = -5LL, unsigned = 2ULL ^ 0,
        zero = -1 / math.huge, -- LuaJIT for ARM reads -0.0 as 0
        model = { ["fc.weight"] = moth.ones(2), deep = { moth.zeros(1), moth.ones(1) } },
        ["model/fc.weight"] = moth.zeros(3), size = moth.Size { 2, 3 },
      }
      local t = round(value, options)
      assert.same({ 1, 1 }, t.model["fc.weight"]:tolist())
      assert.same({ 1 }, t.model.deep[2]:tolist())
      assert.same({ 0, 0, 0 }, t["model/fc.weight"]:tolist())
      assert.equal("-5LL", tostring(t.int))
      assert.is_true(ffi.istype("int64_t", t.int) and ffi.istype("uint64_t", t.unsigned))
      assert.equal(-1 / 0, 1 / t.zero)
      assert.is_true(t.size == moth.Size { 2, 3 })
      for _, key in ipairs { "model", "model/fc.weight", "int", "unsigned", "size" } do
        value[key], t[key] = nil, nil
      end
      assert.same(value, t)
      local nan = round({ x = 0 / 0 }, options).x
      assert.is_true(nan ~= nan)
      assert.same({}, round({}, options))
      assert.equal("just this", round("just this", options))
      assert.equal(false, round(false, options))
      assert.equal(1 / 3, round(1 / 3, options))
    end)

    it("reads files of PyTorch", function()
      local t = moth.load(write("pytorch.st", from_pytorch), options)
      assert.same({ true, false, true }, t.bool:tolist())
      assert.same({ 0, 255 }, t.u8:tolist())
      assert.same({ -128, 127 }, t.i8:tolist())
      assert.same({ -32768, 32767 }, t.i16:tolist())
      assert.same({ -2 ^ 31, 2 ^ 31 - 1 }, t.i32:tolist())
      assert.equal(-2 ^ 63, t.i64[1]:item())
      assert.equal("9223372036854775807LL", tostring(t.i64[2]:item()))
      assert.equal(1.5, t.f16[1]:item())
      assert.equal(-1 / 0, 1 / t.f16[2]:item())
      assert.same({ 1.5, 1 / 0 }, t.bf16:tolist())
      assert.equal(moth.tensor(0.1):item(), t.f32[1][1]:item())
      assert.equal(-2.5, t.f32[1][2]:item())
      assert.equal(0.1, t.f64:item())
      assert.equal("(0, 3)", tostring(t.empty.shape))
    end)

    it("reads files whose data is not aligned", function()
      local header = "{" .. entry("a", "U8", 3, 0, 3) .. "," .. entry("b", "F32", 2, 3, 11) .. "}"
      for pad = 0, 8 do
        local path = write("odd.st", file_of(header .. (" "):rep(pad), "\1\2\3"
          .. unhex "0000803f000000c0"))
        local t = moth.load(path, options)
        assert.same({ 1, 2, 3 }, t.a:tolist())
        assert.same({ 1, -2 }, t.b:tolist())
      end
    end)

    it("reads any byte except 0 as true in a bool", function()
      local path = write("bool.st",
        file_of("{" .. entry("a", "BOOL", 4, 0, 4) .. "}", "\0\1\2\255"))
      local a = moth.load(path, options).a
      assert.same({ false, true, true, true }, a:tolist())
      assert.equal(3, a:sum():item())
      assert.same("\0\1\2\255", read(path):sub(-4))
    end)

    it("does not change loaded tensors when the file is replaced", function()
      local path = path_of("replaced.st")
      moth.save({ x = moth.zeros(1000) }, path)
      local old = moth.load(path, options).x
      moth.save({ x = moth.ones(1000) }, path)
      old[1] = 5
      assert.equal(5, old:sum():item())
      assert.equal(1000, moth.load(path, options).x:sum():item())
    end)

    it("saves to the file that its tensors were loaded from", function()
      local path = path_of("self.st")
      moth.save({ x = moth.arange(1000) }, path)
      for _ = 1, 3 do moth.save({ x = moth.load(path, options).x + 1 }, path) end
      moth.save(moth.load(path, options), path)
      assert.equal(3, moth.load(path, options).x[1]:item())
    end)
  end)
end

describe("a saved file", function()
  it("is the same, byte for byte, as safetensors writes", function()
    local path = path_of("linear.st")
    local state = { weight = moth.tensor { { 1, 2 } }, bias = moth.tensor { 3 } }
    moth.save(state, path)
    local bytes = read(path)
    assert.equal(0, (8 + bytes:byte(1) + 256 * bytes:byte(2)) % 8)
    assert.equal(linear_from_pytorch:sub(-12), bytes:sub(-12))
    assert.same({ format = "pt" }, moth.open(path):metadata())
    assert.equal(linear_from_pytorch:sub(10, -13):gsub(" +$", ""),
      (bytes:sub(9, -13):gsub('^{"__metadata__":{"format":"pt"},', ""):gsub(" +$", "")))
  end)

  it("is sorted by decreasing size of dtype, then by name", function()
    local path = path_of("order.st")
    moth.save({ b = moth.ones(1), a = moth.ones(1), u = moth.ones(3, { dtype = moth.uint8 }),
      d = moth.ones(2, { dtype = moth.float64 }) }, path)
    assert.same({ "d", "a", "b", "u" }, moth.open(path):names())
  end)

  it("has paths with slashes for checkpoints", function()
    local path = path_of("slash.st")
    moth.save({ model = { ["conv1.weight"] = moth.ones(1) },
      optimizer = { state = { [0] = { exp_avg = moth.ones(1) } } } }, path)
    assert.same({ "model/conv1.weight", "optimizer/state/0/exp_avg" }, moth.open(path):names())
  end)

  it("may have metadata for other readers", function()
    local path = path_of("meta.st")
    moth.save(moth.ones(1), path, { note = "by hand", ["né"] = "" })
    local metadata = moth.open(path):metadata()
    assert.equal("by hand", metadata.note)
    assert.equal("", metadata["né"])
    assert.has_error_like(function() moth.save(moth.ones(1), path, { moth = "x" }) end,
      "bad argument 'metadata' to 'save'")
  end)
end)

describe("moth.open", function()
  it("reads single tensors", function()
    local path = path_of("open.st")
    moth.save({ weight = moth.ones(2, 3), bias = moth.zeros(3), tied = moth.ones(1) }, path)
    local file = moth.open(path)
    assert.equal(6, file.weight:sum():item())
    assert.is_true(file["weight"] == file.weight)
    assert.is_true(file:has("bias") and not file:has("nothing"))
    assert.same({ dtype = "F32", shape = { 2, 3 }, nbytes = 24 }, file:info("weight"))
    assert.matches("open.st', 3 tensors", tostring(file))
    assert.has_error_like(function() return file.wieght end, "did you mean 'weight'")
    assert.equal("E_INDEX", errors.code())
    local bias = file.bias
    file:close()
    assert.same({ 0, 0, 0 }, bias:tolist())
    assert.has_error_like(function() return file.weight end, "the file is closed")
  end)

  it("finds each name among names with the same beginning", function()
    local path, state, metadata, value = path_of("prefixes.st"), {}, {}, 0
    for _, name in ipairs {"a", "b", "aa", "ab", "a.", "", "a.weight", "a.weight_v", "a.w"} do
      for _, more in ipairs {"", "1", "11", "1a"} do
        value = value + 1
        state["t" .. name .. more] = moth.tensor(value)
        metadata["m" .. name .. more] = tostring(value)
      end
    end
    moth.save(state, path, metadata)
    local file, back, last = moth.open(path), moth.load(path), ""
    for name, x in pairs(state) do
      assert.equal(x:item(), file[name]:item(), name)
      assert.equal(x:item(), back[name]:item(), name)
      assert.is_false(file:has(name .. "0"), name)
    end
    for name, text in pairs(metadata) do assert.equal(text, file:metadata()[name], name) end
    for _, name in ipairs(file:names()) do
      assert.is_true(last < name, last .. " before " .. name)
      last = name
    end
  end)

  it("outlives the scope it was opened in", function()
    local path, file = path_of("open.st"), nil
    moth.scope(function()
      file = moth.open(path)
      return nil
    end)
    assert.equal(6, file.weight:sum():item())
  end)

  it("skips tensors of a dtype that Moth lacks", function()
    local header = "{" .. entry("a", "F4", 2, 0, 1) .. "," .. entry("b", "U8", 1, 1, 2) .. "}"
    local file = moth.open(write("f4.st", file_of(header, "\1\7")))
    assert.equal(7, file.b:item())
    assert.has_error_like(function() return file.a end, "'a' has dtype F4, which Moth lacks")
    assert.equal("E_UNSUPPORTED", errors.code())
  end)
end)

describe("memory", function()
  it("is freed with the loaded tensors", function()
    local path = path_of("gone.st")
    moth.save({ a = moth.ones(1000), b = moth.ones(10, { dtype = moth.bool }) }, path)
    local lib = require "moth.binding.lib"
    local before, after = ffi.new("moth_memory_info"), ffi.new("moth_memory_info")
    require("jit").flush() -- compiled code may hold a result as a constant
    lib.collect()
    lib.collect()
    lib.C.moth_memory(lib.ctx, before)
    for _ = 1, 20 do
      moth.load(path)
      pcall(moth.load, write("bad.st", "no"))
    end
    require("jit").flush()
    lib.collect()
    lib.collect()
    lib.C.moth_memory(lib.ctx, after)
    assert.equal(tonumber(before.live_bytes), tonumber(after.live_bytes))
    assert.equal(tonumber(before.live_storages), tonumber(after.live_storages))
    local maps = read("/proc/self/maps")
    assert.is_nil(maps:find("gone.st", 1, true))
  end)

  it("that runs out, at any allocation, is an error that leaves nothing behind", function()
    local path = path_of("gone.st")
    local lib = require "moth.binding.lib"
    local info = ffi.new("moth_memory_info")
    local function live()
      lib.collect()
      lib.collect()
      lib.C.moth_memory(lib.ctx, info)
      return tonumber(info.live_bytes) + tonumber(info.live_storages) + tonumber(info.live_tensors)
    end
    for _, mmap in ipairs { true, false } do
      local before = live()
      for k = 1, 30 do
        lib.C.moth_fail_allocation(lib.ctx, k)
        local fine, message = pcall(moth.load, path, { mmap = mmap })
        lib.C.moth_fail_allocation(lib.ctx, 0)
        assert.is_true(fine or message:find("out of memory") ~= nil)
      end
      assert.at_most(before, live())
    end
  end)
end)

describe("a value that cannot be saved", function()
  local cases = {
    { { a = { b = print } }, "value%.a%.b is a function" },
    { { [1] = { ["a b"] = io.stdout } }, 'value%[1%]%["a b"%] is a userdata' },
    { { x = coroutine.create(print) }, "value%.x is a thread" },
    { { [{}] = 1 }, "value has a key that is a table" },
    { { x = setmetatable({}, {}) }, "value%.x is a table with a metatable" },
    { { x = ffi.new("int[1]") }, "value%.x is a cdata" },
  }
  local cycle = { inner = {} }
  cycle.inner.back = cycle
  cases[#cases + 1] = { cycle, "value%.inner%.back is a table that contains itself" }
  local deep = {}
  for _ = 1, 400 do deep = { deep } end
  cases[#cases + 1] = { deep, "tables nest more than 300 deep" }

  it("is named with its path, and no file is written", function()
    local path = path_of("never.st")
    for _, case in ipairs(cases) do
      assert.has_error_like(function() moth.save(case[1], path) end,
        "bad argument 'value' to 'save' %(" .. case[2])
      assert.is_nil(io.open(path))
    end
  end)

  it("may contain the same table twice", function()
    local shared = { 1 }
    assert.same({ a = { 1 }, b = { 1 } }, round { a = shared, b = shared })
  end)
end)

-- ---- when saving fails ----

describe("a save that fails", function()
  local path, before

  before_each(function()
    path = path_of("kept.st")
    moth.save({ x = moth.zeros(10) }, path)
    before = list_folder()
  end)

  local function untouched()
    assert.equal(0, moth.load(path).x:sum():item())
    assert.same(before, list_folder())
  end

  it("keeps the old file and leaves no other file when the disk is full", function()
    for _, limit in ipairs { 0, 7, 100, 4096, 100000 } do
      assert.is_true(child.run(function()
        child.limit_files(limit)
        local fine, message = pcall(moth.save, { x = moth.ones(100000) }, path)
        return not fine and message:find("cannot write '.*kept.st': File too large") ~= nil
          and errors.code() == "E_IO" and moth.load(path).x:sum():item() == 0
      end))
      untouched()
    end
  end)

  it("reports a full device, and does not replace it by a file", function()
    assert.has_error_like(function() moth.save({ x = moth.ones(100000) }, "/dev/full") end,
      "cannot write '/dev/full': No space left on device")
    assert.equal("E_IO", errors.code())
    assert.equal(0, os.execute("test -c /dev/full"))
    moth.save(moth.ones(3), "/dev/null")
  end)

  it("names a missing folder, or a folder in the place of the file", function()
    assert.has_error_like(function() moth.save(moth.ones(1), path_of("no/x.st")) end,
      "cannot write '.*no/x.st': No such file or directory")
    assert.has_error_like(function() moth.save(moth.ones(1), files.folder) end, "Is a directory")
    assert.has_error_like(function() moth.save(moth.ones(1), "") end, "an empty path")
    untouched()
  end)

  it("only in the folder's fsync has written the file, and says so", function()
    local process, shim = require "spec.support.process", path_of "shim.c"
    files.write("shim.c", [[
      #include <errno.h>
      #include <sys/stat.h>
      int fdatasync(int fd);
      int fsync(int fd) {
        struct stat is;
        if (fstat(fd, &is) || !S_ISDIR(is.st_mode)) return fdatasync(fd);
        errno = EIO;
        return -1;
      }]])
    files.write("save.lua", ("local moth = require 'moth' print(pcall(moth.save, "
      .. "{ x = moth.ones(10) }, %q))"):format(path))
    local build = ("cc -shared -fPIC -o '%s.so' '%s'"):format(shim, shim)
    local run = ("ASAN_OPTIONS=\"$ASAN_OPTIONS:verify_asan_link_order=0\" LD_PRELOAD='%s.so' "
      .. "%s '%s'"):format(shim, process.program, path_of "save.lua")
    local said = process.shell(build .. " && " .. run)
    for _, name in ipairs { "shim.c", "shim.c.so", "save.lua" } do os.remove(path_of(name)) end
    assert.matches("kept.st' is written, but a power failure may undo that: cannot sync its "
      .. "folder: Input/output error", said, 1, true)
    assert.equal(10, moth.load(path).x:sum():item())
    assert.same(before, list_folder())
  end)

  it("says that no file can be created next to a file that may be written", function()
    local folder = path_of "closed"
    os.execute(("mkdir '%s'; echo old > '%s/x.st'; chmod 666 '%s/x.st'; chmod 555 '%s'"):format(
      folder, folder, folder, folder))
    assert.is_true(child.run(function()
      child.be_nobody()
      local fine, message = pcall(moth.save, moth.ones(1), folder .. "/x.st")
      return not fine and message:find("cannot make a file next to '.*x.st': Permission denied")
    end))
    assert.equal("old\n", files.read(folder .. "/x.st"))
    os.execute(("chmod 755 '%s'; rm -r '%s'"):format(folder, folder))
  end)

  it("stops at an interrupt", function()
    local lib, value = require "moth.binding.lib", { x = moth.ones(10) }
    lib.C.moth_cancel(lib.ctx, 1)
    local fine, message = pcall(moth.save, value, path)
    lib.C.moth_cancel(lib.ctx, 0)
    assert.is_false(fine)
    assert.matches("interrupted", message)
    untouched()
  end)

  it("loses nothing if the process is killed at any moment", function()
    local killed = 0
    for i = 1, 20 do
      local fine = child.kill_after(i * 1500, function()
        for k = 1, 1e9 do moth.save({ x = moth.full({ 50000 }, k % 100), k = k }, path) end
      end)
      killed = killed + (fine and 1 or 0)
      local t = moth.load(path)
      local first = t.x[1]:item()
      assert.equal(first * (t.k and 50000 or 10), t.x:sum():item())
      assert.equal((t.k or 0) % 100, first)
    end
    assert.equal(20, killed)
  end)
end)

describe("the file that is written", function()
  it("follows a link and keeps permissions", function()
    local target, link = path_of("target.st"), path_of("link.st")
    moth.save(moth.zeros(1), target)
    os.execute(("chmod 640 '%s'; ln -sf target.st '%s'"):format(target, link))
    moth.save(moth.ones(1), link)
    assert.equal(1, moth.load(target):item())
    local pipe = io.popen(("stat -c %%a '%s'; readlink '%s'"):format(target, link))
    assert.same({ "640", "target.st" }, { pipe:read("*l"), pipe:read("*l") })
    pipe:close()
  end)

  it("is created at the target of a link, and the link stays", function()
    local first, second, target = path_of("first.st"), path_of("second.st"), path_of("new.st")
    os.execute(("ln -sf second.st '%s'; ln -sf '%s' '%s'"):format(first, target, second))
    moth.save({ a = moth.ones(1) }, first)
    local pipe = io.popen(("readlink '%s' '%s'"):format(first, second))
    assert.same({ "second.st", target }, { pipe:read("*l"), pipe:read("*l") })
    pipe:close()
    assert.equal(1, moth.load(target).a:item())
    for _, path in ipairs { first, second, target } do os.remove(path) end
  end)

  it("is not written if a link refers to itself", function()
    local link = path_of("loop.st")
    os.execute(("ln -sf loop.st '%s'"):format(link))
    assert.has_error_like(function() moth.save({ a = moth.ones(1) }, link) end,
      "cannot write .*symbolic links")
    os.remove(link)
  end)

  it("may have any name", function()
    for _, name in ipairs { "né #1.st", "with\nnewline", ("n"):rep(255) } do
      moth.save(moth.ones(1), path_of(name))
      assert.equal(1, moth.load(path_of(name)):item())
    end
  end)
end)

describe("moth.load of an ONNX file", function()
  it("returns the module, and needs a path", function()
    local net, path = moth.nn.Linear(3, 2), files.path "net.onnx"
    moth.onnx.export(net, moth.ones(1, 3), path)
    local x = moth.randn(1, 3)
    assert.is_true(moth.allclose(moth.load(path)(x), net(x)))
    assert.has_error_like(function() moth.load {bytes = files.read(path)} end,
      "an ONNX model is read from a file")
    assert.equal("E_UNSUPPORTED", moth.errcode())
    local box = moth.sandbox {folder = files.folder}
    assert.has_error_like(function() box:run "moth.load 'net.onnx'" end,
      "not available in a sandbox")
  end)
end)
