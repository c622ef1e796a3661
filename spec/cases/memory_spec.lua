--- Cases: the memory that the process keeps, with and without a limit.

local moth = require "moth"
local files = require "spec.support.files"
local process = require "spec.support.process"

local MIB = 2 ^ 20

-- Under AddressSanitizer the resident memory is the sanitizer's, and no block is cached.
local plain = not process.sanitized and io.open "/proc/self/status"
if plain then plain:close() end

-- The first lines of each child: status(name) and mib(counter) in MiB; page faults without disk
-- access.
local HEAD = [[
local moth = require "moth"
local function status(name)
  for line in io.lines "/proc/self/status" do
    local kib = line:match("^" .. name .. ":%s+(%d+)")
    if kib then return tonumber(kib) / 1024 end
  end
end
local function faults()
  local file = assert(io.open "/proc/self/stat")
  local text = file:read "*a"
  file:close()
  return tonumber((text:match "%) %S+ %S+ %S+ %S+ %S+ %S+ %S+ (%d+)"))
end
local MIB = 2 ^ 20
local function mib(name) return moth.memory()[name] / MIB end
-- Makes this many tensors of zeros, which live at once, and frees them.
local function fill(count, n)
  moth.scope(function()
    local all = {}
    for i = 1, count do all[i] = moth.zeros(n) end
  end)
end
math.randomseed(7)
moth.zeros(10)
local start = status "VmRSS"
]]

setup(files.setup)
teardown(files.teardown)

-- Runs the code in a separate process and returns the numbers that it prints.
local function numbers(code)
  local out = process.lua(HEAD .. code):gsub("rc=0%s*$", "")
  local list = {}
  for word in out:gmatch "%S+" do list[#list + 1] = assert(tonumber(word), out) end
  return unpack(list)
end

describe("a loop of tensors of random sizes", function()
  if not plain then return end

  it("keeps memory near the live bytes, not a block of each size", function()
    local grown, peak = numbers [[
      for _ = 1, 60 do
        moth.scope(function() return moth.zeros(math.random(1, 50) * MIB):numel() end)
      end
      print(status "VmHWM" - start, mib "peak_bytes")
    ]]
    assert.is_true(peak > 150)
    assert.is_true(grown <= 1.3 * peak + 64, grown .. " MiB for " .. peak)
  end)

  it("stays below a memory limit with its free blocks", function()
    local grown, held, made = numbers [[
      moth.set_memory_limit(200 * MIB)
      local held, made = 0, 0
      for _ = 1, 60 do
        moth.scope(function() made = made + moth.zeros(math.random(1, 49) * MIB):size(1) / MIB end)
        held = math.max(held, mib "live_bytes" + mib "cached_bytes")
      end
      print(status "VmHWM" - start, held, made)
    ]]
    assert.is_true(made > 500)
    assert.is_true(held <= 200, held .. " MiB live and cached")
    assert.is_true(grown <= 200 + 32, grown .. " MiB grown")
  end)

  it("stays below the limit for any sequence of block sizes", function()
    local grown, refused = numbers [[
      moth.set_memory_limit(100 * MIB)
      local refused = 0
      for _ = 1, 300 do
        moth.scope(function()
          local ok = pcall(function()
            local list = {}
            for i = 1, 4 do list[i] = moth.zeros(math.random(1, 25) * MIB / 4) + 1 end
          end)
          if not ok then refused = refused + 1 end
        end)
      end
      print(status "VmHWM" - start, refused)
    ]]
    assert.is_true(refused < 300)
    assert.is_true(grown <= 100 + 25, grown .. " MiB grown")
  end)

  it("keeps little memory of small tensors, too", function()
    local grown, peak = numbers [[
      for round = 1, 30, 3 do
        moth.scope(function()
          local all = {}
          for i = 1, 400 do all[i] = moth.zeros(8 * 1024 * round) end
        end)
      end
      print(status "VmHWM" - start, mib "peak_bytes")
    ]]
    assert.is_true(peak > 300)
    assert.is_true(grown <= 1.3 * peak + 64, grown .. " MiB for " .. peak)
  end)

  it("with gradients keeps memory near the live bytes", function()
    local grown, peak = numbers [[
      local w = moth.ones(1):requires_grad_()
      for _ = 1, 40 do
        moth.scope(function()
          local n = math.random(1, 16) * MIB
          local loss = (moth.ones(n) * w):sum()
          loss:backward()
          w.grad = nil
        end)
      end
      print(status "VmHWM" - start, mib "peak_bytes")
    ]]
    assert.is_true(grown <= 1.3 * peak + 64, grown .. " MiB for " .. peak)
  end)
end)

describe("the block cache", function()
  if not plain then return end

  it("serves every step of a steady loop without new pages", function()
    local made, faulted, steps = numbers [[
      local w = moth.randn(1024, 1024):requires_grad_()
      local x = moth.randn(2048, 1024)
      local function step()
        moth.scope(function()
          local loss = ((x:matmul(w)):tanh() * 2):pow(2):mean()
          loss:backward()
          moth.no_grad(function() w:sub_(w.grad * 0.01) end)
          w.grad = nil
        end)
      end
      for _ = 1, 4 do step() end
      moth.collect()
      local made, before = moth.memory().allocations, faults()
      for _ = 1, 40 do step() end
      print(moth.memory().allocations - made, faults() - before, 40)
    ]]
    assert.is_true(made < steps / 4, made .. " blocks")
    assert.is_true(faulted < 10 * steps, faulted .. " page faults")
  end)

  it("keeps the blocks of a steady loop after a rare larger block", function()
    local made = numbers [[
      local function step()
        moth.scope(function()
          local all = {}
          for n = 1, 4 do all[n] = moth.zeros(n * MIB) end
        end)
      end
      for i = 1, 60 do
        step()
        if i % 20 == 0 then moth.scope(function() moth.zeros(16 * MIB) end) end
      end
      print(moth.memory().allocations)
    ]]
    assert.is_true(made < 60, made .. " blocks")
  end)

  it("shrinks after a peak, after some time with fewer live bytes", function()
    local peak, after, resident = numbers [[
      fill(40, 2 * MIB)
      local peak = mib "cached_bytes"
      for _ = 1, 2500 do moth.scope(function() moth.zeros(MIB / 2) end) end
      print(peak, mib "cached_bytes", status "VmRSS" - start)
    ]]
    assert.is_true(peak > 300)
    assert.is_true(after < 40, after .. " MiB")
    assert.is_true(resident < 64, resident .. " MiB resident")
  end)

  it("shrinks after a peak if only small tensors follow and Lua collects", function()
    local after, resident = numbers [[
      fill(40, 2 * MIB)
      for _ = 1, 64 do
        for _ = 1, 100 do moth.zeros(100) end
        moth.collect()
      end
      print(mib "cached_bytes", status "VmRSS" - start)
    ]]
    assert.is_true(after < 40, after .. " MiB")
    assert.is_true(resident < 64, resident .. " MiB resident")
  end)

  it("is freed at once if a limit below the held memory is set", function()
    local before, after, resident = numbers [[
      fill(40, 2 * MIB)
      local before = mib "cached_bytes"
      moth.set_memory_limit(100 * MIB)
      print(before, mib "live_bytes" + mib "cached_bytes", status "VmRSS" - start)
    ]]
    assert.is_true(before > 300)
    assert.is_true(after <= 100)
    assert.is_true(resident < 132, resident .. " MiB resident")
  end)

  it("is freed for a tensor that fits the limit", function()
    local n = numbers [[
      moth.set_memory_limit(100 * MIB)
      fill(9, 2.5 * MIB)
      local x = moth.zeros(24 * MIB)
      print(x:numel() / MIB)
    ]]
    assert.equal(24, n)
  end)

  it("is empty after moth.empty_cache, and resident memory falls", function()
    local cached, resident = numbers [[
      fill(40, 2 * MIB)
      moth.empty_cache()
      print(mib "cached_bytes", status "VmRSS" - start)
    ]]
    assert.equal(0, cached)
    assert.is_true(resident < 16, resident .. " MiB resident")
  end)

  it("counts blocks that tokens pass to another state or back", function()
    local cached, resident = numbers [[
      for i = 1, 200 do
        moth.scope(function()
          local x = moth.zeros(math.random(1, 8) * MIB)
          local y = moth.open_token(moth.token(x))
          return y:numel()
        end)
      end
      print(mib "live_bytes" + mib "cached_bytes", status "VmHWM" - start)
    ]]
    assert.is_true(cached < 80, cached .. " MiB")
    assert.is_true(resident <= 1.3 * 32 + 64, resident .. " MiB resident")
  end)
end)

describe("moth.gguf.load", function()
  if not plain then return end

  -- A file of `count` tensors of type Q8_0, 1024 by a number of rows that differs from tensor to
  -- tensor.
  local function model(count)
    local function u32(n) return string.char(n % 256, math.floor(n / 256) % 256,
      math.floor(n / 65536) % 256, math.floor(n / 16777216)) end
    local function u64(n) return u32(n % 2 ^ 32) .. u32(math.floor(n / 2 ^ 32)) end
    local list, offset = {}, 0
    for i = 1, count do
      local name, rows = ("t%02d"):format(i), 1024 + 256 * i
      list[i] = u64(#name) .. name .. u32(2) .. u64(1024) .. u64(rows) .. u32(8) .. u64(offset)
      offset = offset + 1024 * rows / 32 * 34
    end
    local head = "GGUF" .. u32(3) .. u64(count) .. u64(0) .. table.concat(list)
    head = head .. ("\0"):rep(-#head % 32)
    return files.write("model.gguf", head .. ("\0"):rep(offset))
  end

  it("keeps little memory in addition to the tensors", function()
    local live, cached, resident = numbers(([[
      local tensors = moth.gguf.load(%q)
      print(mib "live_bytes", mib "cached_bytes", status "RssAnon" - start, tensors.t01:numel())
    ]]):format(model(16)))
    assert.is_true(live > 190)
    assert.is_true(cached <= 32, cached .. " MiB")
    assert.is_true(resident <= 1.1 * live + 64, resident .. " MiB for " .. live)
  end)
end)

describe("batches of workers", function()
  if not plain then return end

  it("return their memory to the system after use", function()
    local cached, grown = numbers [[
      local set = moth.data.TensorDataset(moth.zeros(16, MIB))
      start = status "VmRSS"
      for _ = 1, 10 do
        for _ in moth.data.DataLoader(set, { batch_size = 2, num_workers = 2 }) do end
      end
      moth.collect()
      print(mib "cached_bytes", status "VmRSS" - start)
    ]]
    assert.is_true(cached <= 16, cached .. " MiB")
    assert.is_true(grown <= 96, grown .. " MiB")
  end)
end)

describe("moth.memory", function()
  it("counts live and cached bytes of blocks that are allocated and freed", function()
    moth.collect()
    moth.empty_cache()
    local before = moth.memory()
    local x = moth.ones(MIB)
    assert.equal(4 * MIB, moth.memory().live_bytes - before.live_bytes)
    x:free()
    local after = moth.memory()
    assert.equal(before.live_bytes, after.live_bytes)
    if plain then assert.is_true(after.cached_bytes >= 4 * MIB) end
    moth.empty_cache()
    assert.equal(0, moth.memory().cached_bytes)
  end)
end)
