-- One Lua state for each thread; tensors pass between states by tokens. Built and run as a C host.

local function run(command)
  local pipe = io.popen(command .. " 2>&1; echo rc=$?")
  local text = pipe:read "*a"
  pipe:close()
  return text
end

local moth = require "moth"

--- Builds spec/host/<name>.c and runs it: it must report no failure.
local function host(name, rounds)
  local lib = require("moth.binding.lib").path
  local root, libdir = require("moth.error").root, lib:match("^(.*)/[^/]*$")
  local program = os.tmpname()
  local sanitize = os.getenv("MOTH_SANITIZED") -- a sanitized library needs such a host
  local built = run(("cc -std=gnu11 -O1 %s -o %s %s/spec/host/%s.c "
    .. "$(pkg-config --cflags --libs luajit) -lpthread")
    :format(sanitize and "-fsanitize=" .. sanitize or "", program, root, name))
  assert.matches("rc=0", built)
  local text = run(("MOTH_SPLIT=1 %s %s %s %d"):format(program, root, libdir, rounds))
  os.remove(program)
  assert.matches("0 failures", text)
  assert.matches("rc=0", text)
end

describe("a token", function()
  it("opens once, also in its own context, without history", function()
    local x = moth.ones(3):requires_grad_()
    local token = moth.token(x)
    local y = moth.open_token(token)
    assert.is_false(y.requires_grad)
    y[1] = 5
    assert.equal(5, x[1]:item())
    assert.has_error_like(function() moth.open_token(token) end, "no such token")
    assert.has_error_like(function() moth.open_token(12345) end, "token")
  end)

  it("carries tensors between threads that write at once", function() host("threads", 500) end)
end)

describe("jobs of several Lua states", function()
  it("keep the number of threads for which they allocated memory", function()
    host("thread_counts", 100)
  end)
end)

describe("a GPU", function()
  it("is used by several states at once, which pass pinned memory to each other", function()
    local cuda = require "spec.support.cuda"
    if not cuda.here then
      pending(cuda.why)
      return
    end
    host("devices", 10)
  end)
end)

describe("an op that was cancelled", function()
  it("writes its whole result or none, also if the cancel is withdrawn", function()
    host("cancels", 300)
  end)
end)

describe("a host's own memory", function()
  local ffi = require "ffi"
  local lib = require "moth.binding.lib"
  local C, ctx = lib.C, lib.ctx
  ffi.cdef "void *malloc(size_t size); void free(void *block);"

  it("becomes a tensor without a copy, and is freed by its deleter", function()
    moth.collect()
    local before = moth.memory().live_storages
    local block = ffi.cast("int32_t *", ffi.C.malloc(12))
    for i = 0, 2 do block[i] = 10 * i end
    local h, shape = lib.Handle(), ffi.new("int64_t[1]", 3)
    assert.equal(0, C.moth_from_memory(ctx, C.MOTH_I32, shape, 1, block, 12, ffi.C.free, block, h))
    local x = lib.adopt(h, 0)
    block[1] = 77
    assert.same({0, 77, 20}, x:tolist())
    x:free() -- the deleter runs here; a sanitizer would detect a missing or a second call
    assert.equal(before, moth.memory().live_storages)
  end)

  it("still belongs to the host after an error", function()
    local block = ffi.gc(ffi.C.malloc(12), ffi.C.free)
    local h, shape = lib.Handle(), ffi.new("int64_t[1]", 4)
    local status = C.moth_from_memory(ctx, C.MOTH_I32, shape, 1, block, 12, ffi.C.free, block, h)
    assert.is_true(status < 0)
    assert.matches("12 bytes", ffi.string(C.moth_error(ctx, 1)))
  end)
end)

describe("a token whose tensor was freed", function()
  it("passes the bytes to the state that opens it, which counts them as live", function()
    for _, n in ipairs {10, 10000} do -- in the block of the storage, and in a separate block
      moth.collect()
      local x = moth.ones(n)
      local before = moth.memory()
      local token = moth.token(x)
      x:free()
      assert.equal(before.live_bytes - 4 * n, moth.memory().live_bytes)
      assert.equal(before.shared_bytes + 4 * n, moth.memory().shared_bytes)
      local y = moth.open_token(token)
      assert.equal(before.live_bytes, moth.memory().live_bytes)
      assert.equal(before.shared_bytes, moth.memory().shared_bytes)
      y:add_(y)
      local again = moth.open_token(moth.token(y)) -- and once more, with two references
      assert.equal(2, again[1]:item())
      y:free()
      assert.equal(2, again[-1]:item())
      again:free()
      moth.collect() -- the views that read it
      assert.equal(before.live_bytes - 4 * n, moth.memory().live_bytes)
      assert.equal(before.shared_bytes, moth.memory().shared_bytes)
    end
  end)

  it("raises at the memory limit of the other state, and keeps the bytes", function()
    moth.collect()
    local x = moth.ones(10000)
    local token = moth.token(x)
    x:free()
    moth.set_memory_limit(moth.memory().live_bytes + 1000)
    assert.has_error_like(function() moth.open_token(token) end, "memory limit")
    moth.set_memory_limit(0)
    assert.equal(10000, moth.open_token(token):sum():item())
  end)
end)

describe("a token that is never opened", function()
  it("frees its bytes when it is dropped, once", function()
    local ffi = require "ffi"
    local lib = require "moth.binding.lib"
    local before = moth.memory().shared_bytes
    local token = ffi.new "uint64_t[1]"
    local x = moth.ones(1000)
    assert.equal(0, lib.C.moth_token(lib.ctx, x, token))
    assert.equal(before + 4000, moth.memory().shared_bytes)
    assert.equal(0, lib.C.moth_token_drop(lib.ctx, token[0]))
    x:free()
    assert.equal(before, moth.memory().shared_bytes)
    assert.is_true(lib.C.moth_token_drop(lib.ctx, token[0]) < 0)
  end)
end)
