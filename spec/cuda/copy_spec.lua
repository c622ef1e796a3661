-- Copies between the CPU and a GPU: from pinned and other memory, synchronous or not; memory with
-- a copy in progress is not reused; batches in pinned memory.

local moth = require "moth"
local cuda = require "spec.support.cuda"
local files = require "spec.support.files"
local process = require "spec.support.process"

local data = moth.data
local emulated = cuda.name:find("emulated", 1, true)

describe("pinned memory", function()
  if not cuda.here then
    pending("holds a copy: " .. cuda.why)
    return
  end

  it("holds a copy in every dtype and layout, and is pinned itself", function()
    for _, name in ipairs { "bool", "uint8", "int64", "float16", "float32", "float64" } do
      local x = (moth.randn(3, 4) * 40):to(moth[name])
      for _, y in ipairs { x, x:t(), x:narrow(1, 2, 0), x[1][1] } do
        local pinned = y:pin_memory()
        assert.is_true(pinned:is_pinned())
        assert.is_false(y:is_pinned())
        assert.is_true(pinned:equal(y) and pinned:cuda():cpu():equal(y))
        assert.equal(pinned, pinned:pin_memory())
        assert.is_true(pinned:view(-1):is_pinned())
      end
    end
  end)

  it("is for tensors of the CPU", function()
    local x = moth.ones(2, { device = "cuda" })
    assert.is_false(x:is_pinned())
    assert.has_error_like(function() x:pin_memory() end,
      "memory of the CPU can be page%-locked, but f32 %(2%) is on cuda:0")
  end)

  it("is counted as other memory, and is freed", function()
    moth.collect()
    local before = moth.memory().live_bytes
    local x = moth.ones(1000):pin_memory()
    moth.collect()
    assert.equal(before + 4000, moth.memory().live_bytes)
    x:free()
    assert.equal(before, moth.memory().live_bytes)
  end)

  it("is passed to another state and back", function()
    local x = moth.ones(3):pin_memory()
    local y = moth.open_token(moth.token(x))
    x:free()
    assert.is_true(y:is_pinned() and y:equal(moth.ones(3)))
  end)
end)

describe("a copy to a GPU", function()
  if not cuda.here then
    pending("from pinned memory is not waited for: " .. cuda.why)
    return
  end

  local function late(x) return x:to("cuda", { non_blocking = true }) end

  it("from pinned memory does not wait with non_blocking", function()
    local x = moth.ones(1000):pin_memory()
    for _, y in ipairs { late(x), x:cuda { non_blocking = true },
                         moth.zeros_like(x:cuda()):copy_(x, { non_blocking = true }) } do
      moth.cuda.synchronize()
      assert.is_true(y:cpu():equal(moth.ones(1000)))
    end
    if not emulated then return end
    local y = late(x)
    x:fill_(2)
    assert.is_true(y:cpu():equal(moth.full({ 1000 }, 2)))
  end)

  it("from pinned memory waits otherwise", function()
    local x = moth.ones(1000):pin_memory()
    local y = x:cuda()
    x:fill_(2)
    assert.is_true(y:cpu():equal(moth.ones(1000)))
  end)

  it("is complete for every stream, also a later one, unless it is non_blocking", function()
    local x, number = moth.randn(3, 4), moth.tensor(3)
    local function found(wanted, y)
      local s = moth.cuda.Stream()
      assert.is_true(moth.cuda.stream(s, function() return (y * 2):cpu() end):equal(wanted * 2))
    end
    for _ = 1, 2 do
      for _, from in ipairs { x, x:t(), x:pin_memory(), number } do found(from, from:cuda()) end
      found(x, moth.zeros(3, 4, { device = "cuda" }):copy_(x))
      local s, t = moth.cuda.Stream(), moth.cuda.Stream()
      local y = moth.cuda.stream(s, function() return x:cuda() end)
      local z = moth.cuda.stream(t, function() return x:cuda() end)
      found(x, y)
      found(x, z)
    end
  end)

  it("from other memory has read its bytes before later writes", function()
    for _, n in ipairs { 3, 5000, 3000000 } do -- the last in several pieces
      local x = moth.arange(n)
      local wanted, y = x:clone(), late(x)
      x:zero_()
      local z = late(wanted:view(-1, 1)):t()
      assert.is_true(y:cpu():equal(wanted) and z:cpu():view(-1):equal(wanted))
    end
  end)

  it("keeps its memory until it is done, though the tensor is freed", function()
    local kept = {}
    for i = 1, 5 do
      local x = moth.full({ 700 }, i):pin_memory()
      kept[i] = late(x)
      x:free()
      moth.full({ 700 }, -1):pin_memory():free()
    end
    for i = 1, 5 do assert.is_true(kept[i]:cpu():equal(moth.full({ 700 }, i))) end
  end)

  it("on a separate stream overlaps with work, and is ordered", function()
    local copies, here = moth.cuda.Stream(), moth.cuda.current_stream()
    local x = moth.randn(6, 400):pin_memory()
    local total = moth.zeros(400, { device = "cuda" })
    local function fetch(i)
      return moth.cuda.stream(copies, function() return late(x[i]) end)
    end
    local next_row = fetch(1)
    for i = 1, 6 do
      here:wait_stream(copies)
      local row = next_row
      next_row = i < 6 and fetch(i + 1)
      total = total + row
      row:free()
    end
    assert.is_true(moth.allclose(total:cpu(), x:sum(1), { atol = 1e-5 }))
  end)

  it("converts and broadcasts on the way", function()
    local x = moth.randn(3, 1):pin_memory()
    local y = moth.zeros(3, 4, { device = "cuda", dtype = moth.float64 })
    y:copy_(x, { non_blocking = true })
    assert.is_true(y:cpu():equal(x:double():expand(3, 4)))
    assert.is_true(x:to("cuda", moth.float16, { non_blocking = true }):cpu():equal(x:half()))
  end)
end)

describe("a copy from a GPU", function()
  if not cuda.here then
    pending("into pinned memory arrives: " .. cuda.why)
    return
  end

  it("into pinned memory is complete when the stream is synchronized", function()
    local x, to = moth.randn(1000), moth.zeros(1000):pin_memory()
    to:copy_(x:cuda(), { non_blocking = true })
    local done = moth.cuda.current_stream():record_event()
    if emulated then assert.is_true(to:equal(moth.zeros(1000))) end
    done:synchronize()
    assert.is_true(to:equal(x))
  end)

  it("into other memory, or without non_blocking, is complete at once", function()
    local x = moth.randn(1000)
    local other, pinned = moth.zeros(1000), moth.zeros(1000):pin_memory()
    other:copy_(x:cuda(), { non_blocking = true })
    pinned:copy_(x:cuda())
    assert.is_true(other:equal(x) and pinned:equal(x))
    assert.is_true(x:cuda():to("cpu", { non_blocking = true }):equal(x))
  end)
end)

describe("a DataLoader with pin_memory", function()
  it("puts all tensors of a batch in pinned memory", function()
    if not cuda.here then
      pending(cuda.why)
      return
    end
    local set = data.TensorDataset(moth.randn(10, 3), moth.arange(10))
    local n = 0
    for x, y in data.DataLoader { set, batch_size = 4, pin_memory = true } do
      assert.is_true(x:is_pinned() and y:is_pinned())
      n = n + x:size(1)
    end
    assert.equal(10, n)
    local Own = moth.nn.class("Own", data.Dataset)
    function Own.len() return 4 end
    function Own.get(_, i)
      return { image = moth.full({ 2 }, i), list = { moth.ones(1) } }, "name"
    end
    for batch, names in data.DataLoader { Own(), batch_size = 2, pin_memory = true } do
      assert.is_true(batch.image:is_pinned() and batch.list[1]:is_pinned())
      assert.same({ "name", "name" }, names)
    end
  end)
end)

describe("pinned memory without a GPU", function()
  it("is refused with an error that says what is missing", function()
    local pipe = io.popen("MOTH_BACKEND_PATH=/nonexistent " .. process.program .. [[ -e '
      local moth = require "moth"
      print(moth.ones(2):is_pinned(), pcall(function() return moth.ones(2):pin_memory() end))
      print(pcall(moth.data.DataLoader, {moth.ones(4), pin_memory = true}))' 2>&1]])
    local text = pipe:read "*a"
    pipe:close()
    assert.matches("^false\tfalse\t", text)
    assert.truthy(text:find("no CUDA device: libmoth_cuda.so was not found in /nonexistent", 1,
      true))
    assert.truthy(text:find("there is no GPU to copy to; leave it at false", 1, true))
  end)
end)

describe("moth.load", function()
  if not cuda.here then
    pending("puts tensors on a GPU: " .. cuda.why)
    return
  end

  setup(files.setup)
  teardown(files.teardown)

  it("puts tensors on `device`, and keeps shared tensors shared", function()
    local x = moth.randn(3, 4)
    local path = files.path("cuda.st")
    moth.save({ epoch = 3, net = { w = x, again = x } }, path)
    for _, options in ipairs { { device = "cuda" }, { device = moth.device "cuda:0" },
                               { device = "cuda", mmap = false } } do
      local t = moth.load(path, options)
      assert.equal("cuda:0", tostring(t.net.w.device))
      assert.is_true(t.net.w:cpu():equal(x) and rawequal(t.net.w, t.net.again))
    end
    assert.equal("cpu", tostring(moth.load(path).net.w.device))
    moth.save({ w = x }, path)
    assert.equal("cuda:0", tostring(moth.load(path, "cuda").w.device))
    assert.equal("cuda:0", tostring(moth.load(path, { map_location = "cuda" }).w.device))
    assert.has_error_like(function() moth.load(path, "cuda:99") end, "cuda:99")
  end)

  it("does so for files of torch.save: views stay views of one storage", function()
    local path = "spec/support/torch.pth"
    local function each(a, b)
      if moth.is_tensor(a) then
        assert.equal("cuda:0", tostring(b.device))
        assert.is_true(b.dtype == a.dtype and b:cpu():equal(a))
      elseif type(a) == "table" then
        for name, value in pairs(a) do each(value, b[name]) end
      end
    end
    local t = moth.load(path, { device = "cuda" })
    each(moth.load(path), t)
    t.base[{ 2, 3 }] = 99
    assert.same({ 4, 5, 99, 7 }, t.row:tolist())
  end)
end)

describe("x:to", function()
  it("takes non_blocking, then copy, after the device and dtype", function()
    local x = moth.ones(3)
    assert.is_true(rawequal(x, x:to("cpu", moth.float32, true)))
    assert.is_false(rawequal(x, x:to("cpu", moth.float32, false, true)))
    assert.is_false(rawequal(x, x:to(x, false, true)))
    assert.has_error_like(function() x:to("cpu", true, true, true) end, "given twice")
    assert.has_error_like(function() x:to { device = "cpu", copy = 1 } end,
      "'copy' to 'to' %(a boolean")
    assert.has_error_like(function() x:to("cpu", { non_blocking = "yes" }) end,
      "'non_blocking' to 'to' %(a boolean")
  end)
end)

describe("a transposed copy on a GPU", function()
  if not cuda.here then return pending("is the same elements: " .. cuda.why) end

  it("has each element in its position, in full tiles and at their edges", function()
    for _, name in ipairs { "bool", "int16", "float32", "int64" } do
      for _, case in ipairs { { { 70, 50 }, { 2, 1 } }, { { 3, 33, 31 }, { 1, 3, 2 } },
        { { 2, 17, 3, 40 }, { 1, 3, 4, 2 } }, { { 40, 2, 33, 2 }, { 4, 3, 2, 1 } },
        { { 5, 16, 200 }, { 3, 1, 2 } }, { { 2, 3, 8, 9 }, { 1, 3, 4, 2 } } } do
        local sizes, order = unpack(case)
        local x = (moth.randn(sizes) * 100):to(moth[name])
        local y = x:cuda():permute(order)
        assert.is_true(y:contiguous():cpu():equal(x:permute(order):contiguous()))
        assert.is_true((y[{ { 2, -1 } }]):contiguous():cpu():equal(x:permute(order)[{ { 2, -1 } }]))
      end
    end
  end)

  it("from the CPU and to the CPU can be channels_last", function()
    for _, dtype in ipairs { moth.float32, moth.float16 } do
      local x = moth.randn(2, 3, 5, 4):to { memory_format = moth.channels_last }
      local there = x:to { device = "cuda", dtype = dtype }
      assert.is_true(there:is_contiguous(moth.channels_last))
      local here = there:cpu()
      assert.is_true(here:is_contiguous(moth.channels_last))
      assert.is_true(here:equal(x:to(dtype)))
      local target = moth.zeros(2, 3, 5, 4, { dtype = dtype, device = "cuda" })
      assert.is_true(target:copy_(x):cpu():equal(x:to(dtype)))
    end
  end)
end)
