-- One Lua state a thread, tensors crossing by token, built and run as a C host.

local function run(command)
  local pipe = io.popen(command .. " 2>&1; echo rc=$?")
  local text = pipe:read "*a"
  pipe:close()
  return text
end

local moth = require "moth"

--- Builds spec/host/<name>.c and runs it: it must find no failure.
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
  it("opens once, in its own context too, without history", function()
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
  it("keep the number of threads that their memory was laid out for", function()
    host("lanes", 100)
  end)
end)

describe("a GPU", function()
  it("is used by several states at once, which hand each other pinned memory", function()
    local cuda = require "spec.support.cuda"
    if not cuda.here then
      pending(cuda.why)
      return
    end
    host("devices", 10)
  end)
end)

describe("an op that was asked to stop", function()
  it("gives its whole result or none, also where the cancel is withdrawn", function()
    host("cancels", 300)
  end)
end)

describe("memory of a host's own", function()
  local ffi = require "ffi"
  local lib = require "moth.binding.lib"
  local C, ctx = lib.C, lib.ctx
  ffi.cdef "void *malloc(size_t size); void free(void *block);"

  it("becomes a tensor without a copy, and goes back through its deleter", function()
    moth.collect()
    local before = moth.memory().live_storages
    local block = ffi.cast("int32_t *", ffi.C.malloc(12))
    for i = 0, 2 do block[i] = 10 * i end
    local h, shape = lib.Handle(), ffi.new("int64_t[1]", 3)
    assert.equal(0, C.moth_from_memory(ctx, C.MOTH_I32, shape, 1, block, 12, ffi.C.free, block, h))
    local x = lib.adopt(h, 0)
    block[1] = 77
    assert.same({0, 77, 20}, x:tolist())
    x:free() -- the deleter runs here; a sanitizer would see it missing or twice
    assert.equal(before, moth.memory().live_storages)
  end)

  it("stays the host's when it is refused", function()
    local block = ffi.gc(ffi.C.malloc(12), ffi.C.free)
    local h, shape = lib.Handle(), ffi.new("int64_t[1]", 4)
    local status = C.moth_from_memory(ctx, C.MOTH_I32, shape, 1, block, 12, ffi.C.free, block, h)
    assert.is_true(status < 0)
    assert.matches("12 bytes", ffi.string(C.moth_error(ctx, 1)))
  end)
end)

describe("a token whose tensor nobody holds any more", function()
  it("moves the bytes to the state that opens it, where they count as live", function()
    for _, n in ipairs {10, 10000} do -- in the storage's own block, and beside it
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
      local again = moth.open_token(moth.token(y)) -- and once more, held by two
      assert.equal(2, again[1]:item())
      y:free()
      assert.equal(2, again[-1]:item())
      again:free()
      moth.collect() -- the views by which it was read
      assert.equal(before.live_bytes - 4 * n, moth.memory().live_bytes)
      assert.equal(before.shared_bytes, moth.memory().shared_bytes)
    end
  end)

  it("gives them to no state where its memory is at the limit, and loses nothing", function()
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

describe("a token that nobody opens", function()
  it("gives its bytes back when it is dropped, once", function()
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
