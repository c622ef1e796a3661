-- Printing, conversion, sizes, values and fields of tensors: each form, both sides of each bound.

local moth = require "moth"
local fails = require("spec.support.refusals").fails
local f32, f64, i64 = moth.float32, moth.float64, moth.int64

local function body(x) return (tostring(x):gsub("\n%[[^\n]*%]$", "")) end

describe("a printed tensor", function()
  after_each(function() moth.set_printoptions {profile = "default"} end)

  it("has powers of ten outside of fixed bounds of magnitudes", function()
    for _, row in ipairs {
      {{1e8}, "{100000000}"}, {{1e8 + 8}, "{1.0000e+08}"}, {{1e8, 0.5}, "{1.0000e+08, 5.0000e-01}"},
      {{1e-4, 1}, "{0.0001, 1.0000}"}, {{0.99e-4, 1}, "{9.9000e-05, 1.0000e+00}"},
      {{1e-4, 9.5}, "{0.0001, 9.5000}"}, {{1e-3, 100}, "{1.0000e-03, 1.0000e+02}", true},
      {{0.5, 50000}, "{    0.5000, 50000.0000}"}, {{0.5, 50001}, "{5.0000e-01, 5.0001e+04}"},
      {{0, 1e8}, "{        0, 100000000}"}, {{-1e9, 1}, "{-1.0000e+09,  1.0000e+00}"},
      {{0, 0}, "{0, 0}"}, {{-0.0, 1}, "{0, 1}"}, {{-0.0, 0.5}, "{-0.0000,  0.5000}"},
      {{1, 1 / 0}, "{  1, inf}"}, {{0.5, 1 / 0, 1e-3}, "{0.5000,    inf, 0.0010}"},
    } do
      local x = moth.tensor(row[1], {dtype = f64})
      if not row[3] then assert.equal(row[2], body(x)) end
    end
    assert.equal("{1000.0000,    0.0100}", body(moth.tensor({1000, 0.01}, {dtype = f64})))
    assert.equal("{1.0001e+03, 1.0000e-02}", body(moth.tensor({1000.1, 0.01}, {dtype = f64})))
  end)

  it("of one number has no zeros at its end", function()
    for _, row in ipairs {{0.5, "0.5"}, {100, "100"}, {1.25, "1.25"}, {1e-5, "1.0000e-05"},
      {-0.0, "0"}, {1e9, "1.0000e+09"}, {0.10004, "0.1"}, {2.00001, "2"}} do
      assert.equal(row[2] .. " [moth.float64]", tostring(moth.tensor(row[1], {dtype = f64})))
    end
  end)

  it("is cut above the threshold, in dimensions of more than twice the edge", function()
    moth.set_printoptions {threshold = 6, edgeitems = 2}
    assert.equal("{0, 1, 2, 3, 4, 5}", body(moth.arange(6)))
    assert.equal("{0, 1, ..., 5, 6}", body(moth.arange(7)))
    assert.equal("{{0, 1, 2, 3},\n {4, 5, 6, 7}}", body(moth.arange(8):view(2, 4)))
    assert.equal("{{0, 1, ..., 3, 4},\n {5, 6, ..., 8, 9}}", body(moth.arange(10):view(2, 5)))
    assert.equal("{{0, 1},\n {2, 3},\n ...,\n {6, 7},\n {8, 9}}", body(moth.arange(10):view(5, 2)))
    assert.equal("{{{ 0,  1}},\n\n {{ 2,  3}},\n\n ...,\n\n {{ 8,  9}},\n\n {{10, 11}}}",
      body(moth.arange(12):view(6, 1, 2)))
    moth.set_printoptions {edgeitems = 0}
    assert.equal("{...}", body(moth.arange(7)))
  end)

  it("wraps where one more element would pass the line width", function()
    moth.set_printoptions {linewidth = 30}
    assert.equal("{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}", body(moth.arange(10)))
    moth.set_printoptions {linewidth = 29}
    assert.equal("{0, 1, 2, 3, 4, 5, 6, 7, 8,\n 9}", body(moth.arange(10)))
    moth.set_printoptions {linewidth = 13}
    assert.equal("{{0, 1, 2, 3},\n {4, 5, 6, 7}}", body(moth.arange(8):view(2, 4)))
    moth.set_printoptions {linewidth = 12}
    assert.equal("{{0, 1, 2,\n  3},\n {4, 5, 6,\n  7}}", body(moth.arange(8):view(2, 4)))
    moth.set_printoptions {linewidth = 0}
    assert.equal("{0,\n 1}", body(moth.arange(2)))
  end)

  it("follows its options and profiles", function()
    local x = moth.tensor {1.23456, 2}
    moth.set_printoptions {precision = 0}
    assert.equal("{1, 2}", body(x))
    moth.set_printoptions {profile = "short"}
    assert.equal("{1.23, 2.00}", body(x))
    moth.set_printoptions {profile = "short", precision = 3}
    assert.equal("{1.235, 2.000}", body(x))
    moth.set_printoptions {sci_mode = true}
    assert.equal("{1.235e+00, 2.000e+00}", body(x))
    moth.set_printoptions {profile = "full"}
    assert.equal("{1.2346, 2.0000}", body(x))
    assert.is_nil(body(moth.arange(1001)):find("...", 1, true))
    moth.set_printoptions {profile = "default"}
    assert.is_truthy(body(moth.arange(1001)):find("...", 1, true))
    for name, wanted in pairs {precision = "an integer from 0 to 99 is needed",
      sci_mode = "a boolean is needed", profile = "default, short or full is needed"} do
      fails("bad argument '" .. name .. "' to 'set_printoptions' (" .. wanted,
        moth.set_printoptions, {[name] = "a"})
    end
    fails("an integer from 0 on is needed, got nan", moth.set_printoptions, {linewidth = 0 / 0})
  end)
end)

describe("x:to", function()
  local x = moth.ones(2, 3)
  it("takes a dtype, a device, a tensor, booleans and names in any order", function()
    local y = moth.zeros(1, {dtype = f64})
    for i, call in ipairs {
      {f64}, {"cpu", f64}, {y}, {{dtype = f64}}, {{f64}}, {{other = y}}, {f64, true},
      {f64, true, true}, {f64, {copy = true}}, {"cpu", {dtype = f64}},
      {{device = "cpu", dtype = f64}},
      {{"cpu", dtype = f64}}, {f64, {copy = moth.none}}, {{dtype = f64, non_blocking = true}},
      {moth.device "cpu", f64},
    } do assert.equal(f64, x:to(unpack(call)).dtype, i) end
    for i, call in ipairs {{}, {f32}, {"cpu"}, {x}, {{dtype = moth.none}}, {{device = moth.none}},
      {"cpu", false}, {"cpu", false, false}, {{copy = false}}, {{memory_format =
      moth.preserve_format}}} do
      assert.equal(x, x:to(unpack(call)), i)
    end
    for i, call in ipairs {{f32, false, true}, {"cpu", {copy = true}}, {{copy = true}}, {x, true,
      true}} do
      assert.not_equal(x:data_ptr(), x:to(unpack(call)):data_ptr(), i)
    end
    fails("bad argument 'copy' to 'to' (given twice", x.to, x, f64, true, true, true)
    fails("'to' has no argument 'dtyp'; did you mean 'dtype'", x.to, x, {dtyp = f64})
    fails("bad argument 'dtype' to 'to' (a dtype is needed, got 5", x.to, x, {dtype = 5})
    fails("bad argument 'copy' to 'to' (a boolean is needed, got 1", x.to, x, {copy = 1})
    fails("bad argument 'dtype' to 'to' (write moth.float64", x.to, x, "float64")
    fails("bad argument 'device' to 'to' (the device 'gpu' is not there", x.to, x, "gpu")
    fails("channels_last is for (N, C, H, W), got (2, 3)", x.to, x, {memory_format =
      moth.channels_last})
    fails("bad argument 'memory_format' to 'to' (moth.contiguous_format, moth.preserve_format, "
      .. "moth.channels_last or moth.channels_last_3d is needed, got a string ('rows')", x.to, x,
      {memory_format = "rows"})
    fails("bad argument 'memory_format' to 'is_contiguous' (moth.contiguous_format, "
      .. "moth.channels_last or", x.is_contiguous, x, moth.preserve_format)
  end)

  it("has short forms for each dtype", function()
    for name, dtype in pairs {bool = moth.bool, byte = moth.uint8, char = moth.int8,
      short = moth.int16, int = moth.int32, long = i64, half = moth.float16,
      bfloat16 = moth.bfloat16, float = f32, double = f64} do
      assert.equal(dtype, x[name](x).dtype)
      assert.equal(dtype, x:type(dtype).dtype)
      assert.equal(dtype, x:type_as(moth.zeros(1, {dtype = dtype})).dtype)
    end
    assert.equal("moth.float32", x:type())
    assert.equal(x, x:float())
    assert.equal(x, x:cpu())
    fails("bad argument 'other' to 'type_as' (a tensor is needed, got 5", x.type_as, x, 5)
  end)

  it("changes the order in memory only if it is asked to", function()
    local image = moth.rand(2, 3, 4, 5)
    local last = image:to {memory_format = moth.channels_last}
    assert.same({60, 1, 15, 3}, last:stride())
    assert.is_true(last:is_contiguous(moth.channels_last))
    assert.is_false(last:is_contiguous())
    assert.is_false(image:is_contiguous {memory_format = moth.channels_last})
    assert.is_true(image:is_contiguous(moth.contiguous_format))
    assert.is_false(x:is_contiguous(moth.channels_last))
    assert.same({60, 20, 5, 1}, last:to({memory_format = moth.contiguous_format}):stride())
    assert.same({60, 1, 15, 3}, last:to({copy = true}):stride())
    assert.same({60, 20, 5, 1}, last:to({copy = true, memory_format = moth.contiguous_format})
      :stride())
    assert.same({60, 1, 15, 3}, last:double():stride())
    assert.is_true(moth.equal(image, last))
  end)
end)

describe("sizes", function()
  local x = moth.zeros(2, 3, 4)
  it("are read by dimensions from 1 to n and from -1 to -n", function()
    for d, n in ipairs {2, 3, 4} do
      assert.equal(n, x:size(d))
      assert.equal(n, x:size(d - 4))
      assert.equal(n, x.shape[d - 4])
      assert.equal(({12, 4, 1})[d], x:stride(d))
      assert.equal(({12, 4, 1})[d], x:stride(d - 4))
    end
    assert.equal(3, x:size {dim = 2})
    assert.equal(4, x:stride {dim = 2})
    for _, d in ipairs {0, 4, -4} do
      fails(("bad argument 'dim' to 'size' (%d is out of range for 3 dimensions"):format(d), x.size,
        x, d)
      fails(("bad argument 'dim' to 'stride' (%d is out of range for 3 dimensions"):format(d),
        x.stride, x, d)
      fails(d == 0 and "dimensions count from 1, got 0"
        or ("dim %d is out of range for the 3 dimensions of (2, 3, 4)"):format(d),
        function() return x.shape[d] end)
    end
    fails("out of range for 1 dimension)", moth.ones(1).size, moth.ones(1), 2)
    fails("out of range for 0 dimensions", moth.tensor(1).size, moth.tensor(1), -1)
    fails("dim 2 is out of range for the 1 dimension of (2)",
      function() return moth.ones(2).shape[2] end)
    fails("bad argument 'dim' to 'size' (an integer is needed, got 1.5", x.size, x, 1.5)
    fails("dim -1.5 is out of range", function() return x.shape[-1.5] end)
    fails("a shape is a field, not a method", function() return x.shape(1) end)
    assert.is_nil(x.shape.none)
  end)

  it("compare by all elements and count them", function()
    local S = moth.Size
    assert.is_true(S {1, 2, 3} == S(1, 2, 3))
    for _, other in ipairs {S {1, 2}, S {1, 2, 4}, S {0, 2, 3}, S {1, 2, 3, 4}, S {}} do
      assert.is_false(S {1, 2, 3} == other)
    end
    assert.equal(24, x.shape:numel())
    assert.equal(0, S(2, 0):numel())
    assert.equal("(2, 3, 4) x", x.shape .. " x")
    assert.equal("()", tostring(S {}))
    fails("bad argument 'sizes' to 'Size' (integers are needed, got a string ('a') at position 2",
      S, {1, "a"})
    fails("integers are needed, got 0.5 at position 1", S, 0.5)
  end)
end)

describe("values of a tensor", function()
  it("are exact: int64 cdata where a number would lose bits", function()
    local exact = 2LL ^ 53
    for _, v in ipairs {0LL, -1LL, exact, -exact, 2LL ^ 62, -0x8000000000000000LL} do
      assert.equal("number", type(moth.tensor(v):item()))
      assert.is_true(moth.tensor(v):item() == v)
    end
    for _, v in ipairs {exact + 1, -exact - 1, 0x7fffffffffffffffLL, 2LL ^ 62 + 1} do
      assert.equal("cdata", type(moth.tensor(v):item()))
      assert.is_true(moth.tensor({v, v})[2]:item() == v)
      assert.is_true(moth.tensor({v, 1LL}):tolist()[1] == v)
    end
    assert.equal("number", type(moth.tensor({200}, {dtype = moth.uint8}):item()))
    assert.equal(200, moth.tensor({200}, {dtype = moth.uint8}):item())
    assert.is_true(moth.tensor({true}):item())
    assert.same({{true}, {false}}, moth.tensor {{true}, {false}}:tolist())
  end)

  it("of many elements are read in blocks", function()
    for _, n in ipairs {1, 4095, 4096, 4097, 8192, 8193} do
      local list = moth.arange(n):tolist()
      assert.equal(n, #list)
      for i = 1, n do assert(list[i] == i - 1) end
    end
    local rows = moth.arange(3 * 2731):view(3, 2731):tolist()
    assert.equal(2731 * 2, rows[3][1])
    assert.equal(2731 * 3 - 1, rows[3][2731])
    assert.same({{}, {}}, moth.zeros(2, 0):tolist())
    assert.same({}, moth.zeros(0, 2):tolist())
    assert.equal(5, moth.tensor(5):tolist())
  end)

  it("are one for item", function()
    assert.equal(3, moth.full({1, 1, 1}, 3):item())
    for _, x in ipairs {moth.ones(2), moth.ones(0), moth.ones(1, 2)} do
      fails("item: only a tensor with one element has an item, got f32 " .. tostring(x.shape),
        x.item, x)
    end
  end)
end)

describe("fields of a tensor", function()
  local x = moth.ones(2, 3)
  it("are found, or a message names the nearest", function()
    assert.equal(2, #x)
    assert.equal(2, x.ndim)
    assert.equal(4, x.itemsize)
    assert.equal(24, x.nbytes)
    assert.equal(6, x:nelement())
    assert.equal(2, x:ndimension())
    assert.equal(4, x:element_size())
    assert.equal(3, x[2]:storage_offset())
    assert.equal("strided", x.layout)
    assert.is_false(x.is_sparse)
    assert.is_false(x.is_cuda)
    for dtype, signed in pairs {[moth.bool] = false, [moth.uint8] = false, [moth.int8] = true,
      [i64] = true, [moth.float16] = true, [f64] = true} do
      assert.equal(signed, moth.ones(1, {dtype = dtype}):is_signed())
    end
    for dtype, float in pairs {[moth.bool] = false, [i64] = false, [moth.float16] = true,
      [moth.bfloat16] = true, [f32] = true} do
      assert.equal(float, moth.ones(1, {dtype = dtype}):is_floating_point())
    end
    fails("a 0-d tensor has no length", function() return #moth.tensor(1) end)
    fails("a tensor has no field or method 'summ'; did you mean 'sum'",
      function() return x.summ end)
    fails("a tensor has no field 'requires_grd' to assign; did you mean 'requires_grad'",
      function() x.requires_grd = true end)
    fails("'shape' of a tensor cannot be assigned", function() x.shape = {6} end)
    fails("'sum' of a tensor cannot be assigned", function() x.sum = 1 end)
    fails("a tensor has no field 'true' to assign", function() x[true] = 1 end)
    fails("x.requires_grad takes a boolean, got 1", function() x.requires_grad = 1 end)
    fails("x.grad takes a tensor or nil, got 1", function() x.grad = 1 end)
    fails("x.data takes a tensor, got 1", function() x.data = 1 end)
    fails("a tensor is indexed by a position, a table, a mask or an integer tensor, got true",
      function() return x[true] end)
    fails("a tensor has no field 'values', which a sparse one has",
      function() return x.values end)
  end)

  it("operators refuse tables, and comparisons say what to write", function()
    for name, f in pairs {add = function(a, b) return a + b end, sub = function(a, b) return a - b
      end, mul = function(a, b) return a * b end, div = function(a, b) return a / b end,
      pow = function(a, b) return a ^ b end, remainder = function(a, b) return a % b end} do
      fails("bad argument 'other' to '" .. name .. "' (a tensor or a number is needed, got {1}", f,
        x, {1})
      fails("bad argument 'input' to '" .. name .. "' (a tensor or a number is needed, got {1}", f,
        {1}, x)
    end
    fails("use x:lt(y) for a mask", function() return x < "a" end)
    fails("use a:lt(b) or a:gt(b) for a mask", function() return x < x end)
    fails("use a:le(b) or a:ge(b) for a mask", function() return x >= x end)
    fails("== between a tensor and 5LL", function() return x == 5LL end)
    assert.is_false(x == moth.ones(2, 3))
    assert.is_true(x == x)
    fails("a tensor cannot be called; x[i] is a row", function() return x(1) end)
    assert.equal("{1}\n[moth.float32 of size 1]!", moth.ones(1) .. "!")
  end)
end)

describe("a generator", function()
  it("takes seeds from 0 to 2^53, and states of two int64", function()
    assert.equal("Generator{seed = 0}", tostring(moth.Generator()))
    for _, seed in ipairs {0, 7, 2 ^ 53} do
      local g = moth.Generator {seed = seed}
      assert.equal(seed, g:initial_seed())
      assert.equal(seed, moth.Generator():manual_seed(seed):initial_seed())
    end
    for _, seed in ipairs {-1, 2 ^ 53 + 2, 0.5, 0 / 0} do
      fails("bad argument 'seed' to 'Generator' (an integer from 0 to 2^53 is needed",
        moth.Generator, {seed = seed})
      fails("bad argument 'seed' to 'manual_seed' (an integer from 0 to 2^53 is needed",
        moth.manual_seed, seed)
    end
    local g = moth.Generator {seed = 3}
    local first = moth.rand(3, {generator = g})
    local state = g:get_state()
    local second = moth.rand(3, {generator = g})
    assert.is_true(moth.equal(second, moth.rand(3, {generator = g:set_state(state)})))
    assert.is_true(moth.equal(first, moth.rand(3, {generator = g:manual_seed(3)})))
    assert.is_true(g:seed() >= 0)
    for _, wrong in ipairs {moth.ones(2), moth.tensor {1LL, 2LL, 3LL}, moth.tensor {{1LL, 2LL}},
      moth.tensor({1, 2}, {dtype = moth.int32}), 5} do
      fails("bad argument 'state' to 'set_state' (i64 (2) is needed", g.set_state, g, wrong)
      fails("bad argument 'state' to 'set_rng_state' (i64 (2) is needed", moth.set_rng_state, wrong)
    end
  end)
end)

describe("limits of dtypes", function()
  it("are those of NumPy", function()
    for name, row in pairs {
      float16 = {16, 2 ^ -10, 65504, 2 ^ -14, 1e-3}, bfloat16 = {16, 2 ^ -7,
      3.3895313892515355e38, 2 ^ -126, 1e-2}, float32 = {32, 2 ^ -23, 3.4028234663852886e38,
      2 ^ -126, 1e-6}, float64 = {64, 2 ^ -52, 1.7976931348623157e308, 2 ^ -1022, 1e-15},
    } do
      local info = moth.finfo(moth[name])
      assert.same(row, {info.bits, info.eps, info.max, info.tiny, info.resolution})
      assert.equal(-info.max, info.min)
      assert.equal(info.tiny, info.smallest_normal)
      assert.equal(name, info.dtype)
    end
    for name, row in pairs {uint8 = {8, 0, 255}, int8 = {8, -128, 127}, int16 = {16, -32768,
      32767}, int32 = {32, -2147483648, 2147483647}} do
      local info = moth.iinfo(moth[name])
      assert.same(row, {info.bits, info.min, info.max})
    end
    assert.equal("iinfo(min=-9223372036854775808, max=9223372036854775807, dtype=int64)",
      tostring(moth.iinfo(i64)))
    assert.equal("iinfo(min=0, max=255, dtype=uint8)", tostring(moth.iinfo(moth.uint8)))
    assert.equal("finfo(resolution=1e-06, min=-3.40282e+38, max=3.40282e+38, eps=1.19209e-07, "
      .. "tiny=1.17549e-38, dtype=float32)", tostring(moth.finfo(f32)))
    assert.equal("float32", moth.finfo().dtype)
    fails("a float dtype is needed, got moth.int64; moth.iinfo is for integers", moth.finfo, i64)
    fails("an integer dtype is needed, got moth.float32; moth.finfo is for floats", moth.iinfo, f32)
    fails("an integer dtype is needed, got moth.bool)", moth.iinfo, moth.bool)
  end)

  it("are promoted and cast as in PyTorch", function()
    local order = {"bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16",
      "float32", "float64"}
    local rows = { -- torch.promote_types
      {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {2, 2, 4, 4, 5, 6, 7, 8, 9, 10},
      {3, 4, 3, 4, 5, 6, 7, 8, 9, 10}, {4, 4, 4, 4, 5, 6, 7, 8, 9, 10},
      {5, 5, 5, 5, 5, 6, 7, 8, 9, 10}, {6, 6, 6, 6, 6, 6, 7, 8, 9, 10},
      {7, 7, 7, 7, 7, 7, 7, 9, 9, 10}, {8, 8, 8, 8, 8, 8, 9, 8, 9, 10},
      {9, 9, 9, 9, 9, 9, 9, 9, 9, 10}, {10, 10, 10, 10, 10, 10, 10, 10, 10, 10},
    }
    for i, a in ipairs(order) do
      for j, b in ipairs(order) do
        assert.equal(moth[order[rows[i][j]]], moth.promote_types(moth[a], moth[b]), a .. b)
        local float = j > 6
        local can = (b == "bool" and a == "bool") or b ~= "bool" and (float or i <= 6)
        assert.equal(can, moth.can_cast(moth[a], moth[b]), a .. " " .. b)
      end
    end
    local half, one = moth.ones(2, {dtype = moth.float16}), moth.tensor(1.5, {dtype = f64})
    for _, row in ipairs {{half, 1.5, "float16"}, {half, one, "float16"}, {moth.ones(1, {dtype =
      i64}), 1.5, "float32"}, {moth.ones(1, {dtype = i64}), true, "int64"},
      {moth.ones(1, {dtype = moth.bool}), 2LL, "int64"}, {one, half,
      "float16"}, {one, moth.ones(1, {dtype = i64}), "float64"}} do
      assert.equal(moth[row[3]], moth.result_type(row[1], row[2]))
    end
    fails("bad argument 'tensor2' to 'result_type' (a tensor or a number is needed",
      moth.result_type, half, "a")
  end)
end)
