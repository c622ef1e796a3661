-- Tensors from Lua values and back.

local moth = require "moth"
local intact = require "spec.support.intact"

local refuses = intact.refuses
local floats = { moth.float16, moth.bfloat16, moth.float32, moth.float64 }
local integers = { moth.uint8, moth.int8, moth.int16, moth.int32, moth.int64 }

describe("linspace", function()
  local f64 = { dtype = moth.float64 }

  it("rounds each number once: a quotient of integers is Lua's quotient", function()
    for _, n in ipairs { 2, 3, 10, 11, 99, 255, 256, 257, 513, 1001 } do
      local wide = moth.linspace(-1, 2, n, f64):tolist()
      local narrow = moth.linspace(-1, 2, n)
      for i = 1, n do assert.equal((2 * (i - 1) - (n - i)) / (n - 1), wide[i]) end
      assert.is_true(narrow:equal(moth.tensor(wide)))
    end
    local bound = moth.linspace(0.3, 0.7, 1001, f64)
    assert.equal(0.3, bound[1]:item())
    assert.equal(0.7, bound[1001]:item())
    assert.is_true(bound:equal(moth.linspace(0.7, 0.3, 1001, f64):flip(1)))
  end)

  it("has exact zeros and integers", function()
    assert.equal(0, moth.linspace(-0.1, 0.2, 4, f64)[2]:item())
    assert.equal(0, moth.linspace(-0.1, 0.2, 4)[2]:item())
    assert.equal(1, moth.linspace(0, 2, 99, f64)[50]:item())
    assert.equal(1LL, moth.linspace(0, 2, 99, { dtype = moth.int64 })[50]:item())
    assert.same({ 0, 0, 1, 2, 3 }, moth.linspace(-0.9, 3, 5, { dtype = moth.int32 }):tolist())
  end)

  it("does not overflow between bounds of the largest magnitude", function()
    local x = moth.linspace(-0x1p1023, 0x1p1023, 5, f64)
    assert.same({ -0x1p1023, -0x1p1022, 0, 0x1p1022, 0x1p1023 }, x:tolist())
  end)
end)

describe("moth.tensor", function()
  it("gives numbers the default dtype, for any values", function()
    assert.equal(moth.float32, moth.tensor(3).dtype)
    assert.equal(moth.float32, moth.tensor{ 1, 2, 3 }.dtype)
    assert.equal(moth.float32, moth.tensor{ { 1.5 } }.dtype)
    assert.equal(moth.bool, moth.tensor{ true, false }.dtype)
    assert.equal(moth.bool, moth.tensor(false).dtype)
    assert.equal(moth.int64, moth.tensor{ 1LL, 2LL }.dtype)
    assert.equal(moth.int64, moth.tensor(1LL).dtype)
    assert.equal(moth.float32, moth.tensor{ 1LL, 2 }.dtype)
    assert.equal(moth.float32, moth.tensor{}.dtype)
    assert.same({ 2, 0 }, { unpack(moth.tensor{ {}, {} }.shape) })
    assert.same({ 0 }, { unpack(moth.tensor{}.shape) })
    assert.same({}, { unpack(moth.tensor(3).shape) })
  end)

  it("takes the processor by each of its names", function()
    local cpu = moth.device "cpu"
    for _, name in ipairs {"cpu", "cpu:0", "cpu:1", moth.device("cpu", 0)} do
      assert.equal(cpu, moth.ones(2, {device = name}).device)
      assert.equal(cpu, moth.tensor({1, 2}, {device = name}).device)
      assert.equal(cpu, moth.ones(2):to(name).device)
      assert.equal(cpu, moth.nn.Linear(2, 2, {device = name}).weight.device)
    end
    moth.set_default_device "cpu:0"
    assert.equal(cpu, moth.ones(2).device)
    moth.set_default_device "cpu"
    refuses(function() moth.ones(2, {device = "cpu:"}) end, "the device 'cpu:' is not there")
  end)

  it("follows the default dtype", function()
    moth.set_default_dtype(moth.float64)
    local ok, message = pcall(function()
      assert.equal(moth.float64, moth.tensor{ 1 }.dtype)
      assert.equal(moth.float64, moth.zeros(1).dtype)
      assert.equal(moth.float64, moth.randn(1).dtype)
      assert.equal(moth.float64, (moth.tensor{ 1LL } + 0.5).dtype)
      assert.equal(moth.float64, (moth.tensor{ 1LL } / 2).dtype)
      assert.equal(moth.int64, moth.arange(3).dtype)
      assert.equal(moth.float64, moth.arange(0, 1, 0.5).dtype)
    end)
    moth.set_default_dtype(moth.float32)
    assert.is_true(ok, message)
    refuses(function() moth.set_default_dtype(moth.int64) end, "a float dtype is needed")
    assert.equal(moth.float32, moth.get_default_dtype())
  end)

  it("converts to tables and back in every dtype", function()
    for _, dtype in ipairs(floats) do
      local t = { { 1, -2.5 }, { 0, 1024 } }
      assert.same(t, moth.tensor(t, { dtype = dtype }):tolist())
    end
    for _, dtype in ipairs(integers) do
      local t = { { { 1, 2, 3 } }, { { 4, 5, 127 } } }
      assert.same(t, moth.tensor(t, { dtype = dtype }):tolist())
      assert.equal(127, moth.tensor(127, { dtype = dtype }):item())
    end
    assert.same({ true, false }, moth.tensor({ 5, 0 }, { dtype = moth.bool }):tolist())
    assert.is_true(moth.tensor(true):item())
  end)

  it("keeps all bits of int64", function()
    for _, v in ipairs{ 9007199254740993LL, -9007199254740993LL, 0x7fffffffffffffffLL,
      -0x8000000000000000LL } do
      assert.equal(v, moth.tensor(v):item())
      assert.equal(v, moth.tensor{ v, 1LL }:tolist()[1])
      assert.equal(v, moth.full({ 2 }, v)[2]:item())
      assert.equal(v, (moth.tensor(v) + 0):item())
      assert.equal(v, (moth.zeros(1, { dtype = moth.int64 }) + v):item())
    end
    assert.equal("cdata", type(moth.tensor(9007199254740993LL):item()))
    assert.equal("number", type(moth.tensor(-0x8000000000000000LL):item()))
    assert.equal("number", type(moth.tensor(9007199254740992LL):item()))
    assert.equal(9007199254740995LL, (moth.tensor(9007199254740993LL) + 2):item())
  end)

  it("copies tensors, alone and within tables", function()
    local x = moth.ones(2, { dtype = moth.float64, requires_grad = true })
    local y = moth.tensor(x)
    assert.equal(moth.float64, y.dtype)
    assert.is_false(y.requires_grad)
    moth.no_grad(function() x[1] = 5 end)
    assert.same({ 1, 1 }, y:tolist())
    assert.same({ { 1, 2 }, { 3, 4 } },
      moth.tensor{ moth.tensor{ 1, 2 }, moth.tensor{ 3, 4 } }:tolist())
    assert.same({ 1, 2 }, moth.tensor{ moth.tensor(1), 2 }:tolist())
    assert.is_true(rawequal(x, moth.as_tensor(x)))
    assert.is_false(rawequal(x, moth.as_tensor(x, { dtype = moth.float32 })))
    assert.same({ 3, 4 }, moth.as_tensor{ 3, 4 }:tolist())
  end)

  it("sets requires_grad", function()
    assert.is_true(moth.tensor(1, { requires_grad = true }).requires_grad)
    assert.is_true(moth.zeros(2, { requires_grad = true }).requires_grad)
    refuses(function() return (moth.tensor({ 1LL }, { requires_grad = true })) end, "requires_grad")
  end)

  it("names the position of a ragged row or a wrong value", function()
    refuses(function() return (moth.tensor{ { 1, 2 }, { 3 } }) end,
      "row 2 has 1 element where row 1 has 2")
    refuses(function() return (moth.tensor{ { { 1 } }, { { 2, 3 } } }) end,
      "data[2][1] has 2 elements")
    refuses(function() return (moth.tensor{ { 1 }, 2 }) end, "data[2] is a single value")
    refuses(function() return (moth.tensor{ 1, { 2 } }) end, "data[2] is a table")
    refuses(function() return (moth.tensor{ 1, "2" }) end, "data[2] is a string ('2')")
    refuses(function() return (moth.tensor{ { 1, print } }) end, "data[1][2] is a function")
    refuses(function() return (moth.tensor("abc")) end, "'data' to 'tensor'")
    refuses(function() return (moth.tensor()) end, "'data' to 'tensor'")
    refuses(function() return (moth.tensor(nil)) end, "'data' to 'tensor'")
    refuses(function() return (moth.tensor{ a = 1 }) end, "no argument 'a'")
    refuses(function() return (moth.tensor{ { a = 1 } }) end, "data")
    local deep = 1
    for _ = 1, 9 do deep = { deep } end
    refuses(function() return (moth.tensor(deep)) end, "more than 8")
  end)

  it("raises for a table that contains itself", function()
    local t = {}
    t[1] = t
    refuses(function() return (moth.tensor(t)) end, "more than 8")
  end)
end)

describe("item and tolist", function()
  it("return the canonical NaN for NaN of any bits", function()
    local nan = string.char(0xff, 0xff, 0xff, 0xff, 0, 0, 0xf0, 0xff)
    local x = moth.frombuffer(nan, { dtype = moth.float32 })
    for _, v in ipairs(x:tolist()) do
      assert.equal("number", type(v))
      assert.is_true(v ~= v or v == -math.huge)
    end
    local d = moth.frombuffer("\65\65\65\65\0\0\250\255" .. "\0\0\0\0\0\0\248\127",
      { dtype = moth.float64 })
    for i = 1, 2 do
      assert.equal("number", type(d[i]:item()))
      assert.is_true(d[i]:item() ~= d[i]:item())
    end
    for _, dtype in ipairs{ moth.float16, moth.bfloat16 } do
      local h = moth.frombuffer("\255\255\255\127", { dtype = dtype })
      for _, v in ipairs(h:tolist()) do assert.is_true(type(v) == "number" and v ~= v) end
    end
    assert.equal("nan [moth.float64]", tostring(d[1]))
  end)

  it("need one element; tolist accepts any number", function()
    assert.equal(3, moth.tensor{ { 3 } }:item())
    refuses(function() return (moth.ones(2):item()) end, "only a tensor with one element")
    refuses(function() return (moth.ones(0):item()) end, "only a tensor with one element")
    assert.same({}, moth.ones(0):tolist())
    assert.same({ {}, {} }, moth.ones(2, 0):tolist())
    assert.equal(3, moth.tensor(3):tolist())
  end)

  it("read more than a block, and views in their own order", function()
    local list = moth.arange(10000):view(100, 100):t():tolist()
    assert.equal(9901, list[2][100])
    assert.equal(100 * 99 + 99, list[100][100])
  end)
end)

describe("moth.frombuffer", function()
  it("copies a string's bytes", function()
    assert.same({ 1, 2, 3 }, moth.frombuffer("\1\2\3", { dtype = moth.uint8 }):tolist())
    assert.same({ 1, 256 }, moth.frombuffer("\1\0\0\1", { dtype = moth.int16 }):tolist())
    assert.same({ 256 }, moth.frombuffer("\1\0\0\1\7",
      { dtype = moth.int16, count = 1, offset = 2 }):tolist())
    assert.same({ 1 }, moth.frombuffer("\0\0\128\63"):tolist())
    assert.equal(1LL + 2LL ^ 32, moth.frombuffer("\1\0\0\0\1\0\0\0",
      { dtype = moth.int64 }):item() + 0LL)
    assert.same({ 0 }, { unpack(moth.frombuffer("", { dtype = moth.uint8 }).shape) })
  end)

  it("raises for a size that does not match", function()
    refuses(function() return (moth.frombuffer("\1\2\3", { dtype = moth.int16 })) end,
      "3 bytes are no multiple of int16 elements")
    refuses(function() return (moth.frombuffer("\1\2", { dtype = moth.uint8, offset = 3 })) end,
      "'offset' to 'frombuffer'")
    refuses(function() return (moth.frombuffer("\1\2", { dtype = moth.uint8, offset = -1 })) end,
      "'offset'")
    refuses(function() return (moth.frombuffer("\1\2", { dtype = moth.uint8, count = 3 })) end,
      "3 elements need 3 bytes, got 2")
    refuses(function() return (moth.frombuffer("\1\2", { dtype = moth.uint8, count = 2 ^ 53 })) end,
      "'count'")
    refuses(function() return (moth.frombuffer(3)) end, "'buffer'")
  end)
end)

describe("arange and range", function()
  it("exclude and include their ends", function()
    assert.same({ 0, 1, 2 }, moth.arange(3):tolist())
    assert.same({ 1, 2, 3 }, moth.arange(1, 4):tolist())
    assert.same({ 5, 3, 1 }, moth.arange(5, 0, -2):tolist())
    assert.same({ 0, 0.25, 0.5, 0.75 }, moth.arange(0, 1, 0.25):tolist())
    assert.same({ 1, 2, 3 }, moth.range(1, 3):tolist())
    assert.same({ 3, 2, 1 }, moth.range(3, 1, -1):tolist())
    assert.same({ 0, 0.25, 0.5, 0.75, 1 }, moth.range(0, 1, 0.25):tolist())
    assert.same({ 1, 4 }, moth.range(1, 6, 3):tolist())
    assert.same({}, moth.range(3, 1):tolist())
    assert.same({}, moth.arange(0):tolist())
    assert.equal(11, moth.range(0, 1, 0.1):numel())
  end)

  it("return int64 if all arguments are integers, else the default dtype", function()
    assert.equal(moth.int64, moth.arange(3).dtype)
    assert.equal(moth.int64, moth.range(1, 3).dtype)
    assert.equal(moth.float32, moth.arange(0, 3, 0.5).dtype)
    assert.equal(moth.float32, moth.range(0.5, 3).dtype)
    assert.equal(moth.float64, moth.arange(3, { dtype = moth.float64 }).dtype)
    assert.equal(moth.int64, moth.arange{ 3 }.dtype)
    assert.equal(moth.int32, moth.range(1, 3, { dtype = moth.int32 }).dtype)
  end)

  it("raise for steps in the wrong direction", function()
    refuses(function() return (moth.arange(0, 3, 0)) end, "'step' to 'arange'")
    refuses(function() return (moth.range(0, 3, 0)) end, "'step' to 'range'")
    refuses(function() return (moth.arange(0, 3, -1)) end, "arange")
    refuses(function() return (moth.arange(0 / 0)) end, "arange")
    refuses(function() return (moth.arange(math.huge)) end, "arange")
    refuses(function() return (moth.range(1, math.huge)) end, "range")
    refuses(function() return (moth.arange()) end, "arange")
  end)
end)

describe("the creation functions", function()
  it("have the right values", function()
    assert.same({ { 0, 0 }, { 0, 0 } }, moth.zeros(2, 2):tolist())
    assert.same({ 1, 1 }, moth.ones(2):tolist())
    assert.same({ 7, 7 }, moth.full({ 2 }, 7):tolist())
    assert.equal(moth.float32, moth.full({ 2 }, 7).dtype)
    assert.equal(moth.bool, moth.full({ 2 }, true).dtype)
    assert.equal(moth.int64, moth.full({ 2 }, 7LL).dtype)
    assert.same({ { 1, 0, 0 }, { 0, 1, 0 } }, moth.eye(2, 3):tolist())
    assert.same({ 0, 0.25, 0.5, 0.75, 1 }, moth.linspace(0, 1, 5):tolist())
    assert.same({ 3 }, moth.linspace(3, 9, 1):tolist())
    for _, n in ipairs { 255, 256, 257, 513, 1000 } do
      local whole = moth.arange(5, 5 - 3 * n, -3):tolist()
      for i = 1, n do assert.equal(8LL - 3 * i, whole[i]) end
    end
    assert.equal(0, moth.zeros(0):numel())
    assert.equal(1, moth.zeros({}):numel())
    local x = moth.zeros(2, 3, { dtype = moth.int32 })
    assert.equal(moth.int32, moth.ones_like(x).dtype)
    assert.equal(moth.float64, moth.zeros_like(x, { dtype = moth.float64 }).dtype)
    assert.same({ { 4, 4, 4 }, { 4, 4, 4 } }, moth.full_like(x, 4):tolist())
    assert.same({ 2, 3 }, { unpack(moth.empty_like(x).shape) })
    assert.equal(moth.int32, x:new_zeros(2, 3).dtype)
    assert.equal(moth.int32, x:new_full({ 2 }, 5).dtype)
    assert.equal(moth.int32, x:new_tensor{ 1, 2 }.dtype)
    assert.equal(moth.bool, x:new_ones{ 2, dtype = moth.bool }.dtype)
  end)

  it("convert between all dtypes: values saturate, NaN becomes 0", function()
    local x = moth.tensor{ 1.9, -1.9, 300, -300, 0 / 0, math.huge, -math.huge }
    assert.same({ 1, -1, 300, -300, 0, 32767, -32768 }, x:to(moth.int16):tolist())
    assert.same({ 1, 0, 255, 0, 0, 255, 0 }, x:to(moth.uint8):tolist())
    assert.same({ 1, -1, 127, -128, 0, 127, -128 }, x:char():tolist())
    assert.equal(0x7fffffffffffffffLL, x[6]:long():item())
    assert.equal(-0x8000000000000000LL, x[7]:long():item())
    assert.same({ true, true, true, true, true, true, true }, x:bool():tolist())
    assert.equal(math.huge, moth.tensor(1e6):half():item())
    assert.is_true(rawequal(x, x:to(moth.float32)))
    assert.is_false(rawequal(x, x:to(moth.float32, { copy = true })))
    assert.equal(moth.int64, x:to(moth.tensor(1LL)).dtype)
    assert.equal(moth.float64, x:to("cpu", { dtype = moth.float64 }).dtype)
    assert.equal(moth.float64, x:to("cpu", moth.float64).dtype)
    assert.equal(moth.float64, x:double().dtype)
    assert.equal(moth.float64, moth.double)
    assert.equal(moth.int64, moth.long)
    assert.equal("moth.float32", x:type())
  end)
end)

describe("new tensors like another", function()
  local x = moth.ones(2, {dtype = moth.float64})

  it("have its dtype, in every form of the call", function()
    for _, y in ipairs{x:new_zeros(2, 3), x:new_ones{2, 3}, x:new_full({2, 3}, 7),
        x:new_full{{2, 3}, 7, requires_grad = true}, x:new_empty({2, 3})} do
      assert.equal("moth.float64 (2, 3)", ("%s %s"):format(y.dtype, y.shape))
    end
    local y = x:new_zeros(2, {dtype = moth.int32})
    assert.equal(moth.int32, y.dtype)
    assert.is_true(x:new_ones(2, {requires_grad = true}).requires_grad)
  end)

  it("raise for unknown names", function()
    assert.error_matches(function() x:new_zeros(2, {dtpe = moth.int32}) end,
      "'new_zeros' has no argument 'dtpe'; did you mean 'dtype'?", 1, true)
  end)
end)

describe("size and stride", function()
  it("accept dim by name and raise for unknown names", function()
    local x = moth.ones(2, 3)
    assert.equal(3, x:size{dim = 2})
    assert.equal(3, x:stride{dim = 1})
    assert.error_matches(function() x:size{dm = 1} end, "did you mean 'dim'?", 1, true)
    assert.error_matches(function() x:size(1, 2) end, "takes 2 arguments, got one more", 1, true)
  end)
end)
