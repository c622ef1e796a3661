--- types_spec.lua -- limits of dtypes, and type promotion.

local moth = require "moth"
local dtypes = require "moth.tensor.dtype"
local intact = require "spec.support.intact"

local refuses = intact.refuses

describe("finfo and iinfo", function()
  it("are the limits of tensors", function()
    for _, name in ipairs { "float16", "bfloat16", "float32", "float64" } do
      local dtype = moth[name]
      local limits = moth.finfo(dtype)
      local function held(v) return (moth.tensor({ v }, { dtype = dtype }):double():item()) end
      assert.equal(limits.max, held(limits.max))
      assert.equal(limits.tiny, held(limits.tiny))
      assert.equal(1 + limits.eps, held(1 + limits.eps))
      assert.equal(1, held(1 + limits.eps / 4))
      assert.equal(-limits.max, limits.min)
      assert.equal(dtype.itemsize * 8, limits.bits)
      assert.equal(name, limits.dtype)
    end
    for _, name in ipairs { "uint8", "int8", "int16", "int32", "int64" } do
      local dtype = moth[name]
      local limits = moth.iinfo(dtype)
      local x = moth.tensor({ 0 }, { dtype = dtype })
      assert.equal(limits.max, x:clone():fill_(limits.max):item())
      assert.equal(limits.min, x:clone():fill_(limits.min):item())
      assert.is_true((x:clone():fill_(limits.max) + 1):lt(0):any():item() or name == "uint8")
    end
    assert.equal(0x7fffffffffffffffLL, moth.iinfo(moth.int64).max)
    assert.equal(255, moth.iinfo(moth.uint8).max)
  end)

  it("print", function()
    assert.equal("finfo(resolution=0.001, min=-65504, max=65504, eps=0.000976562, "
      .. "tiny=6.10352e-05, dtype=float16)", (tostring(moth.finfo(moth.half))
      :gsub("0.000976563", "0.000976562")))
    assert.equal("iinfo(min=-2147483648, max=2147483647, dtype=int32)",
      tostring(moth.iinfo(moth.int)))
    assert.equal("iinfo(min=-9223372036854775808, max=9223372036854775807, dtype=int64)",
      tostring(moth.iinfo{ dtype = moth.int64 }))
  end)

  it("raise for the other sort of dtype", function()
    assert.equal("float32", moth.finfo().dtype)
    refuses(function() return (moth.finfo(moth.int32)) end, "moth.iinfo is for integers")
    refuses(function() return (moth.iinfo(moth.float32)) end, "moth.finfo is for floats")
    refuses(function() return (moth.iinfo(moth.bool)) end, "got moth.bool")
    refuses(function() return (moth.iinfo()) end, "'dtype' to 'iinfo'")
  end)
end)

describe("the dtype of a result", function()
  it("is the ops' dtype, for all pairs of dtypes", function()
    for a = 0, 9 do
      for b = 0, 9 do
        local x = moth.ones(2, { dtype = dtypes.by_code[a] })
        local y = moth.ones(2, { dtype = dtypes.by_code[b] })
        local wanted = moth.mul(x, y).dtype
        assert.equal(wanted, moth.promote_types(x.dtype, y.dtype))
        assert.equal(wanted, moth.result_type(x, y))
        assert.equal(moth.mul(x, y[1]).dtype, moth.result_type(x, y[1]))
        assert.equal(moth.mul(x[1], y).dtype, moth.result_type(x[1], y))
      end
      local x = moth.ones(2, { dtype = dtypes.by_code[a] })
      for _, v in ipairs { 2, 1.5, true, 3LL } do
        assert.equal(moth.mul(x, v).dtype, moth.result_type(x, v))
        assert.equal(moth.mul(x[1], v).dtype, moth.result_type(v, x[1]))
      end
    end
    assert.equal(moth.int16, moth.promote_types(moth.uint8, moth.int8))
    assert.equal(moth.float32, moth.promote_types(moth.half, moth.bfloat16))
    assert.equal(moth.float32, moth.result_type(moth.ones(3), moth.ones(4, 5))) -- no shapes
    assert.equal(moth.float32, moth.result_type(1, 2))
    assert.equal(moth.int64, moth.result_type(1LL, 2LL))
    refuses(function() return (moth.result_type("a", 2)) end, "'tensor1' to 'result_type'")
    refuses(function() return (moth.promote_types(moth.half)) end, "'type2' to 'promote_types'")
  end)

  it("may be written if can_cast says so", function()
    for a = 0, 9 do
      for b = 0, 9 do
        local from, to = dtypes.by_code[a], dtypes.by_code[b]
        local target = moth.zeros(2, { dtype = to })
        local ok = pcall(moth.maximum, moth.ones(2, { dtype = from }),
          moth.ones(2, { dtype = from }), { out = target })
        assert.equal(ok, moth.can_cast(from, to), tostring(from) .. " " .. tostring(to))
      end
    end
  end)
end)

describe("get_device", function()
  it("is -1 on the CPU", function()
    assert.equal(-1, moth.ones(2):get_device())
    assert.equal(-1, moth.get_device(moth.ones(2)))
  end)
end)

describe("a comparison in place", function()
  it("keeps the dtype of its target", function()
    local x = moth.tensor{ 1, 2, 3 }
    assert.equal(x, x:ge_(2))
    assert.same({ 0, 1, 1 }, x:tolist())
    assert.equal(moth.float32, x.dtype)
    assert.same({ 1, 0 }, moth.tensor{ 1LL, 5LL }:lt_(3):tolist())
    assert.same({ 0, 1 }, moth.tensor{ 1LL, 5LL }:greater_(moth.tensor{ 3 }):tolist())
    local mask = moth.tensor{ true, false, false }
    mask:logical_not_():logical_and_(moth.tensor{ true, true, false }):logical_xor_(mask:clone())
    assert.same({ false, false, false }, mask:tolist())
    assert.same({ true, true, false },
      mask:logical_or_(moth.tensor{ 1, 2, 0 }):ne_(false):tolist())
    local y = moth.tensor{ { 1, 0 }, { 0, 2 } }
    y:t():logical_not_()
    assert.same({ { 0, 1 }, { 1, 0 } }, y:tolist())
    y[1]:eq_(y[1])
    assert.same({ { 1, 1 }, { 1, 0 } }, y:tolist())
    assert.same({}, moth.zeros(0):le_(1):tolist())
  end)

  it("ends the history of its target, and raises for leaves", function()
    local w = moth.ones(3, { requires_grad = true })
    refuses(function() w:eq_(1) end, "'input' to 'eq_' (a leaf that requires grad")
    local y = w * 2
    y:gt_(1)
    ;(y * w):sum():backward()
    assert.same({ 1, 1, 1 }, w.grad:tolist())
    refuses(function() moth.ones(2, 1):eq_(moth.ones(2, 2)) end, "does not fit f32 (2, 1)")
  end)
end)

describe("a cast", function()
  it("converts floats to integers as it does for single elements, and saturates", function()
    local edges = { 0 / 0, 1 / 0, -1 / 0, 1e30, -1e30, -0.9, 0.9, 254.7, 255, 256, 127.9, 128,
                    -128.9, -129, 32767.9, 32768, -32768.9, -32769, 2147483648, -2147483904 }
    for _, from in ipairs { moth.float32, moth.float64, moth.float16, moth.bfloat16 } do
      local x = moth.cat { moth.randn(200) * 300, moth.tensor(edges) }:to(from)
      for _, to in ipairs { moth.int8, moth.uint8, moth.int16, moth.int32, moth.int64 } do
        local y, apart = x:to(to), moth.stack({ x, x }, 2):t()[1]:to(to)
        assert(moth.equal(y, apart), tostring(from) .. " to " .. tostring(to))
        local info = moth.iinfo(to)
        assert.equal(0, tonumber(y[201]:item()))
        assert.equal(tonumber(info.max), tonumber(y[202]:item()))
        assert.equal(tonumber(info.min), tonumber(y[203]:item()))
      end
    end
  end)
end)
