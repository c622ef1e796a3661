-- Details of tensors, classes, settings and the graph: both sides of a condition, what an option's
-- other value does, what a refused call leaves behind.

local moth = require "moth"
local fails = require("spec.support.refusals").fails

local nn, autograd = moth.nn, moth.autograd

local function shape(x) return tostring(x.shape) end

describe("moth.tensor", function()
  local big = 2LL ^ 62 + 1
  it("chooses the dtype by the kinds of values", function()
    local rows = {
      {{1, 2}, "float32"}, {{true, false}, "bool"}, {{1LL, 2LL}, "int64"}, {{true, 1}, "float32"},
      {{true, 1LL}, "int64"}, {{1, 2LL}, "float32"}, {{{1.5}, {2LL}}, "float32"},
      {true, "bool"}, {3LL, "int64"}, {3, "float32"}, {{}, "float32"},
    }
    for i, row in ipairs(rows) do
      assert(moth.tensor(row[1]).dtype.name == row[2], i)
    end
    local before = moth.get_default_dtype()
    moth.set_default_dtype(moth.float64)
    local ok, problem = pcall(function()
      assert.equal(moth.float64, moth.tensor({true, 1}).dtype)
      assert.equal(moth.int64, moth.tensor({true, 1LL}).dtype)
      assert.equal(moth.float64, moth.logspace(0, 1, 2).dtype)
    end)
    moth.set_default_dtype(before)
    assert(ok, problem)
  end)

  it("keeps int64s exact, next to booleans and to whole numbers", function()
    assert.same({1, 0}, {tonumber(moth.tensor({true, false}, {dtype = moth.int64})[1]:item()),
      tonumber(moth.tensor({true, false}, {dtype = moth.int64})[2]:item())})
    local x = moth.tensor({big, 1, true}, {dtype = moth.int64})
    assert.is_true(x[1]:item() == big)
    assert.is_true(x[3]:item() == 1)
    local y = moth.tensor({{big}, {7}}, {dtype = moth.int64})
    assert.is_true(y[1][1]:item() == big and y[2][1]:item() == 7)
    assert.same({1, 0.5}, moth.tensor({1LL, 0.5}):tolist())
    assert.same({1, 0, 1}, moth.tensor({true, false, 1}):tolist())
    assert.same({{1}, {0.5}}, moth.tensor({{1LL}, {0.5}}):tolist())
  end)

  it("joins tensors and numbers, and casts them", function()
    local x = moth.tensor {moth.tensor(1.0), 2}
    assert.same({1, 2}, x:tolist())
    local y = moth.tensor({{moth.tensor(1.0), 2}, {3, moth.tensor(4.0)}}, {dtype = moth.float64})
    assert.same({{1, 2}, {3, 4}}, y:tolist())
    assert.equal(moth.float64, y.dtype)
    local z = moth.tensor(moth.ones(2, {requires_grad = true}) * 3, {dtype = moth.int64})
    assert.equal(moth.int64, z.dtype)
    assert.is_false(z.requires_grad)
    local leaf = moth.ones(2, {requires_grad = true})
    assert.is_false(moth.tensor(leaf).requires_grad)
    assert.is_true(moth.tensor(leaf, {requires_grad = true}).is_leaf)
    assert.not_equal(leaf:data_ptr(), moth.tensor(leaf):data_ptr())
    assert.equal(leaf, moth.as_tensor(leaf))
    assert.equal(moth.float64, moth.as_tensor(leaf, {dtype = moth.float64}).dtype)
    assert.is_true(moth.as_tensor(leaf, {dtype = moth.float64}).requires_grad)
  end)

  it("names the place of a wrong value", function()
    fails("value 2 is nil", moth.tensor, {1, nil, 3})
    fails("data[2][1] is nil", moth.tensor, {{1, 2}, {nil, 2}})
    fails("data[2] is a single value where others are tables", moth.tensor, {{1}, 2})
    fails("data[2] is a table where others are single values", moth.tensor, {1, {2}})
    fails("data[2][1] is a single value where others are tables", moth.tensor, {{{1}}, {1}})
  end)

  it("of a dtype by another tensor: new_tensor, new_full and others", function()
    local x = moth.ones(2, {dtype = moth.float64})
    assert.equal(moth.float64, x:new_tensor({1, 2}).dtype)
    assert.equal(moth.bool, x:new_tensor({1, 0}, {dtype = moth.bool}).dtype)
    assert.is_true(x:new_tensor({1}, {requires_grad = true}).requires_grad)
    for _, name in ipairs {"zeros", "ones", "empty"} do
      local new = "new_" .. name
      assert.equal(moth.float64, x[new](x, {3}).dtype)
      assert.equal(moth.int32, x[new](x, {3}, {dtype = moth.int32}).dtype)
      assert.is_false(x[new](x, {3}).requires_grad)
      assert.is_true(x[new](x, {3}, {requires_grad = true}).requires_grad)
    end
    assert.same({7, 7}, x:new_full({2}, 7):tolist())
    assert.is_true(x:new_full({2}, 7, {requires_grad = true}).requires_grad)
    assert.is_true(moth.logspace(0, 1, 2, {requires_grad = true}).requires_grad)
    assert.is_false(moth.logspace(0, 1, 2).requires_grad)
  end)
end)

describe("moth.frombuffer", function()
  local bytes = "\1\0\2\0\3\0"
  it("reads a part of the bytes, up to the last", function()
    local function read(options) return moth.frombuffer(bytes, options):tolist() end
    local i16 = moth.int16
    assert.same({1, 2, 3}, read {dtype = i16})
    assert.same({2, 3}, read {dtype = i16, offset = 2})
    assert.same({1, 2, 3}, read {dtype = i16, count = 3})
    assert.same({}, read {dtype = i16, count = 0})
    assert.same({}, read {dtype = i16, offset = 6})
    assert.is_true(moth.frombuffer("\0\0\0\0", {requires_grad = true}).requires_grad)
    fails("bad argument 'count' to 'frombuffer' (4 elements need 8 bytes, got 6", moth.frombuffer,
      bytes, {dtype = i16, count = 4})
    fails("bad argument 'count' to 'frombuffer' (-2 elements need", moth.frombuffer, bytes,
      {dtype = i16, count = -2})
    fails("bad argument 'offset' to 'frombuffer' (7 lies outside of 6 bytes", moth.frombuffer,
      bytes, {dtype = i16, offset = 7})
    fails("bad argument 'offset' to 'frombuffer' (-1 lies outside of 6 bytes", moth.frombuffer,
      bytes, {dtype = i16, offset = -1})
    fails("bad argument 'buffer' to 'frombuffer' (5 bytes are no multiple of int16 elements",
      moth.frombuffer, bytes, {dtype = i16, offset = 1})
  end)
end)

describe("an index", function()
  local x = moth.arange(24):view(2, 3, 4)

  it("selects ranges up to both ends, also by negative positions", function()
    local v = moth.arange(1, 6)
    local rows = {
      {{1, 5}, {1, 2, 3, 4, 5}}, {{-5, -1}, {1, 2, 3, 4, 5}}, {{2, 2}, {2}}, {{5, 5}, {5}},
      {{1, 5, 2}, {1, 3, 5}}, {{2, 5, 3}, {2, 5}}, {{-2, -1}, {4, 5}}, {{3, 2}, {}}, {{1, 0}, {}},
      {{6, 5}, {}},
    }
    for i, row in ipairs(rows) do assert.same(row[2], v[{row[1]}]:tolist(), i) end
    fails("range {0, 2} leaves dim 1 of size 5", function() return v[{{0, 2}}] end)
    fails("range {1, 6} leaves dim 1 of size 5", function() return v[{{1, 6}}] end)
    fails("range {-6, 2} leaves dim 1 of size 5", function() return v[{{-6, 2}}] end)
    fails("range {1, -6} leaves dim 1 of size 5", function() return v[{{1, -6}}] end)
    fails("range {4, 2} runs backwards (use flip) in dim 1", function() return v[{{4, 2}}] end)
    fails("range {1, 2, 0} needs a positive step (use flip)", function() return v[{{1, 2, 0}}] end)
    fails("range {1.5, 2} must hold integers, for dim 1", function() return v[{{1.5, 2}}] end)
    fails("range {1, 2, 0.5} must hold integers", function() return v[{{1, 2, 0.5}}] end)
    fails("range {1, x} must hold integers", function() return v[{{1, "x"}}] end)
  end)

  it("counts its dimensions", function()
    assert.equal("(2, 3)", shape(x[{"...", 1}]))
    assert.equal("(3, 4)", shape(x[{1, "..."}]))
    assert.equal("(3)", shape(x[{1, "...", 1}]))
    assert.equal("(2, 3, 4)", shape(x[{"..."}]))
    assert.equal("(1, 2, 3, 4)", shape(x[{moth.newaxis}]))
    assert.equal("(1, 2, 3, 4)", shape(x[moth.newaxis]))
    assert.equal("(2, 3, 4, 1)", shape(x[{"...", moth.newaxis}]))
    assert.equal("moth.newaxis", tostring(moth.newaxis))
    fails("too many indices: 4 for i64 (2, 3, 4) with 3 dimensions",
      function() return x[{1, 1, 1, 1}] end)
    fails("too many indices: 4 for i64 (2, 3, 4) with 3 dimensions",
      function() return x[{{}, {}, {}, {}}] end)
    fails("too many indices: 4 for i64 (2, 3, 4) with 3 dimensions",
      function() return x[{1, "...", 1, 1, 1}] end)
    fails("too many indices: 4 for i64 (2, 3, 4) with 3 dimensions",
      function() return x[{1, 1, 1, moth.tensor {1LL}}] end)
    fails([[an index has room for one "..." only]], function() return x[{"...", "..."}] end)
    fails("position 4 is out of range for dim 2 of i64 (2, 3, 4), which has size 3",
      function() return x[{1, 4}] end)
    fails("position -4 is out of range for dim 2 of i64 (2, 3, 4), which has size 3",
      function() return x[{1, -4}] end)
    assert.equal(x[{1, 1, 1}]:item(), x[{-2, -3, -4}]:item())
    fails("value 2 of an index is nil", function() return x[{1, nil, 1}] end)
    fails("index 2 is a list of 4 numbers, which is no range",
      function() return x[{1, {1, 2, 1, 1}}] end)
    fails("index 1 is a list of 1 number", function() return x[{{1}}] end)
    fails("index 2 is true; a position, a range", function() return x[{1, true}] end)
  end)

  it("by a 0-d mask adds a dimension of size 0 or 1", function()
    local v = moth.arange(3)
    local yes, no = moth.tensor(true), moth.tensor(false)
    assert.equal("(1, 3)", shape(v[yes]))
    assert.equal("(0, 3)", shape(v[no]))
    assert.equal("(1, 3)", shape(v[{yes}]))
    assert.equal("(1, 2)", shape(v[{yes, {2, 3}}]))
    v[no] = 5
    assert.same({0, 1, 2}, v:tolist())
    v[yes] = 7
    assert.same({7, 7, 7}, v:tolist())
    local one = moth.tensor(1.0)
    one[yes] = 4
    assert.equal(4, one:item())
  end)

  it("writes numbers, tables and wider tensors; it refuses others", function()
    local y = moth.zeros(2, 3)
    y[1] = {1, 2, 3}
    y[{2, {1, 2}}] = moth.ones(1, 1, 2)
    assert.same({{1, 2, 3}, {1, 1, 0}}, y:tolist())
    y[{{{2, 1}}, 3}] = {8, 9}
    assert.same({{1, 2, 9}, {1, 1, 8}}, y:tolist())
    y[y:gt(7)] = moth.full({1}, 4)
    assert.same({{1, 2, 4}, {1, 1, 4}}, y:tolist())
    y[moth.newaxis] = 6
    assert.equal(36, y:sum():item())
    local flags = moth.zeros(2, {dtype = moth.bool})
    flags[1] = true
    assert.same({true, false}, flags:tolist())
    local ints = moth.zeros(2, {dtype = moth.int64})
    ints[2] = 2LL ^ 62 + 1
    assert.is_true(ints[2]:item() == 2LL ^ 62 + 1)
    for _, wrong in ipairs {"a", print} do
      fails("a tensor takes numbers, booleans, tensors and tables of them, got",
        function() y[1] = wrong end)
      fails("a tensor takes numbers, booleans, tensors and tables of them, got",
        function() y[y:gt(0)] = wrong end)
      fails("a tensor takes numbers, booleans, tensors and tables of them, got",
        function() y[{{{1}}}] = wrong end)
    end
    assert.equal(36, y:sum():item())
  end)

  it("puts dimensions of positions first only if they are apart", function()
    local at = moth.tensor {1LL, 2LL}
    assert.equal("(2, 3)", shape(x[{at, {}, at}]))
    assert.equal("(2, 4)", shape(x[{at, at}]))
    assert.equal("(2, 3)", shape(x[{at, "...", at}]))
    assert.equal("(3, 2)", shape(x[{1, {}, at}]))
    assert.equal("(2, 2)", shape(x[{{}, at, at}]))
    assert.equal("(2, 2, 3, 4)", shape(x[{moth.tensor {{1LL, 2LL}, {2LL, 1LL}}}]))
  end)
end)

describe("x:to", function()
  local x = moth.ones(2, 3)
  it("returns x itself if nothing changes, and a copy if requested", function()
    assert.equal(x, x:to(moth.float32))
    assert.equal(x, x:to "cpu")
    assert.equal(x, x:to {dtype = moth.float32})
    assert.equal(x, x:to(moth.none))
    assert.not_equal(x, x:to(moth.float32, {copy = true}))
    assert.not_equal(x, x:to(moth.float32, false, true))
    assert.equal(x, x:to(moth.float32, true, false))
    assert.equal(x, x:to("cpu", {copy = moth.none}))
    assert.equal(moth.float64, x:to(moth.ones(1, {dtype = moth.float64})).dtype)
    assert.equal(moth.float64, x:to({other = moth.ones(1, {dtype = moth.float64})}).dtype)
    assert.equal(moth.float64, x:to({moth.float64}).dtype)
    assert.equal(x, x:to({"cpu"}))
    assert.equal(x, x:cpu())
    assert.equal("moth.float32", x:type())
    assert.equal(moth.int64, x:type(moth.int64).dtype)
    assert.equal(moth.int8, x:type_as(moth.ones(1, {dtype = moth.int8})).dtype)
    for name, dtype in pairs {bool = "bool", byte = "uint8", char = "int8", short = "int16",
        int = "int32", long = "int64", half = "float16", bfloat16 = "bfloat16", float = "float32",
        double = "float64"} do
      assert.equal(dtype, x[name](x).dtype.name)
    end
  end)

  it("is signed, floating and set to itself", function()
    local signs = {bool = false, uint8 = false, int8 = true, int16 = true, int32 = true,
      int64 = true, float16 = true, bfloat16 = true, float32 = true, float64 = true}
    for name, signed in pairs(signs) do
      local y = moth.ones(2, {dtype = moth[name]})
      assert.equal(signed, y:is_signed())
      assert.equal(name:find "float" ~= nil, y:is_floating_point())
      assert.equal(name:find "float" ~= nil, moth.is_floating_point(y))
    end
    assert.is_true(x:is_set_to(x))
    assert.is_true(x:is_set_to(x:view(2, 3)))
    assert.is_false(x:is_set_to(x:view(6)))
    assert.is_false(x:is_set_to(x:view(3, 2)))
    assert.is_false(x:is_set_to(moth.ones(2, 3)))
    assert.is_false(moth.ones(2, 2):t():is_set_to(moth.ones(2, 2)))
    local square = moth.ones(2, 2)
    assert.is_false(square:is_set_to(square:t()))
    assert.is_false(square[1]:is_set_to(square[2]))
    fails("bad argument 'other' to 'is_set_to' (a tensor is needed, got 5", x.is_set_to, x, 5)
  end)

  it("has the address of its first element, also as a view", function()
    local y = moth.arange(6):view(2, 3)
    assert.equal(y:data_ptr(), y:t():data_ptr())
    assert.equal(y:data_ptr() + 8, y[{{}, {2, 3}}]:data_ptr())
    assert.equal(y:data_ptr() + 24, y[2]:data_ptr())
    assert.equal(y:data_ptr() + 16, y[{{}, 3}]:data_ptr())
  end)
end)

describe("a transpose", function()
  it("needs its number of dimensions", function()
    local x = moth.ones(2, 3, 4)
    assert.equal("(4, 3, 2)", shape(x.T))
    assert.equal("(2, 4, 3)", shape(x.mT))
    assert.equal("(2, 4, 3)", shape(x.mH))
    assert.equal("(2, 4, 3)", shape(x:adjoint()))
    assert.equal("(3, 2)", shape(moth.ones(2, 3).H))
    fails("H needs two dimensions, got f32 (2, 3, 4)", function() return x.H end)
    fails("H needs two dimensions, got f32 (3)", function() return moth.ones(3).H end)
    fails("mT needs at least two dimensions, got f32 (3)", function() return moth.ones(3).mT end)
  end)
end)

describe("a device", function()
  it("is compared by identity, and has a type and an index", function()
    local cpu = moth.device "cpu"
    assert.equal(cpu, moth.ones(1).device)
    assert.equal(cpu, moth.device(cpu))
    assert.equal("cpu", cpu.type)
    assert.is_nil(cpu.index)
    assert.equal("on cpu", "on " .. cpu)
    assert.equal(3, moth.device("cuda", 3).index)
    assert.equal("cuda:3", tostring(moth.device("cuda", 3)))
    assert.equal(moth.device "cuda:3", moth.device("cuda", 3))
    assert.equal("cuda", moth.device("cuda:3").type)
    assert.is_nil(moth.device("cuda").index)
    fails("bad argument 'name' to 'device' (expected 'cpu' or 'cuda', got 'gpu'", moth.device,
      "gpu")
    fails("bad argument 'name' to 'device' (expected 'cpu' or 'cuda', got 5", moth.device, 5)
    fails("bad argument 'name' to 'device' (expected 'cpu' or 'cuda', got 'cuda:x'", moth.device,
      "cuda:x")
  end)
end)

describe("a setting", function()
  it("is checked up to its bounds, and read back", function()
    local threads = moth.get_num_threads()
    moth.set_num_threads(1)
    assert.equal(1, moth.get_num_threads())
    fails("bad argument 'n' to 'set_num_threads' (0 to 4096 is needed, got 4097",
      moth.set_num_threads, 4097)
    fails("bad argument 'n' to 'set_num_threads' (0 to 4096 is needed, got -1",
      moth.set_num_threads, -1)
    assert.equal(1, moth.get_num_threads())
    moth.set_num_threads(threads)
    for _, precision in ipairs {"high", "medium", "highest"} do
      moth.set_float32_matmul_precision(precision)
      assert.equal(precision, moth.get_float32_matmul_precision())
      assert.equal(precision ~= "highest", moth.backends.cuda.matmul.allow_tf32)
    end
    fails("bad argument 'precision' to 'set_float32_matmul_precision' ('highest', 'high' or "
      .. "'medium' is needed, got a string ('low')", moth.set_float32_matmul_precision, "low")
    moth.backends.cuda.matmul.allow_tf32 = true
    assert.equal("high", moth.get_float32_matmul_precision())
    moth.set_float32_matmul_precision "medium"
    moth.backends.cuda.matmul.allow_tf32 = true
    assert.equal("medium", moth.get_float32_matmul_precision())
    moth.backends.cuda.matmul.allow_tf32 = false
    assert.equal("highest", moth.get_float32_matmul_precision())
    moth.use_deterministic_algorithms(true)
    assert.is_true(moth.are_deterministic_algorithms_enabled())
    moth.use_deterministic_algorithms(false)
    assert.is_false(moth.are_deterministic_algorithms_enabled())
  end)

  it("of a backend is a boolean", function()
    local cudnn = moth.backends.cudnn
    for _, name in ipairs {"enabled", "benchmark", "allow_tf32"} do
      local before = cudnn[name]
      for _, value in ipairs {false, true} do
        cudnn[name] = value
        assert.equal(value, cudnn[name])
      end
      cudnn[name] = before
      fails("bad argument '" .. name .. "' to 'backends.cudnn' (a boolean is needed, got 1",
        function() cudnn[name] = 1 end)
    end
    assert.is_true(cudnn.deterministic)
    cudnn.deterministic = false
    assert.is_true(cudnn.deterministic)
    assert.equal("boolean", type(cudnn.is_available()))
    assert.is_false(moth.backends.mps.is_available())
    assert.is_false(moth.backends.mps.is_built())
    local sdp = moth.backends.cuda.cudnn_sdp_enabled()
    for _, value in ipairs {not sdp, sdp} do
      moth.backends.cuda.enable_cudnn_sdp(value)
      assert.equal(value, moth.backends.cuda.cudnn_sdp_enabled())
    end
    fails("'enabled' to 'backends.cuda.enable_cudnn_sdp' (a boolean is needed, got 1",
      moth.backends.cuda.enable_cudnn_sdp, 1)
    fails("moth.backends.cudnn.is_available is a function and cannot be assigned",
      function() cudnn.is_available = true end)
    fails("moth.backends.cuda cannot be assigned; assign to its fields",
      function() moth.backends.cuda = 1 end)
    fails("moth.backends.cudnn has no 'enable'; did you mean 'enabled'",
      function() return cudnn.enable end)
    assert.is_nil(cudnn[1])
    assert.equal("moth.backends.cudnn", tostring(cudnn))
  end)

  it("of memory is not negative", function()
    fails("bad argument 'bytes' to 'set_memory_floor' (a number from 0", moth.set_memory_floor,
      -1, 1)
    fails("bad argument 'handles' to 'set_memory_floor' (a number from 0", moth.set_memory_floor,
      1, -1)
    moth.set_memory_floor(0, 0)
    moth.set_memory_floor()
    fails("bad argument 'bytes' to 'set_memory_limit' (a size is not negative, got -1",
      moth.set_memory_limit, -1)
    moth.set_memory_limit(moth.none)
    assert.equal(0, moth.memory().limit_bytes)
  end)

  it("lists at most 20 tensors, the largest first", function()
    local held = {}
    for i = 1, 25 do held[i] = moth.ones(1000 + i) end
    local text = tostring(moth.leaks())
    local _, lines = text:gsub("\n", "\n")
    assert.equal(21, lines)
    assert.matches("%.%.%. and %d+ more$", text)
    assert.is_true(moth.leaks().tensors[1].bytes >= 4 * 1025)
    assert.equal(25, #held)
  end)
end)

describe("facts of any value", function()
  it("are those of tensors; others raise", function()
    assert.equal("Tensor", moth.typename(moth.ones(1)))
    assert.equal("Linear", moth.typename(nn.Linear(1, 1)))
    assert.equal("number", moth.typename(1))
    assert.equal("nil", moth.typename(nil))
    assert.is_true(moth.is_tensor(moth.ones(1)))
    assert.is_false(moth.is_tensor(1))
    assert.equal(6, moth.numel(moth.ones(2, 3)))
    fails("bad argument 'input' to 'numel' (a tensor is needed, got 3", moth.numel, 3)
    fails("bad argument 'input' to 'is_floating_point' (a tensor is needed, got 3",
      moth.is_floating_point, 3)
    fails("bad argument 'x' to 'token' (a tensor is needed, got 3", moth.token, 3)
    fails("bad argument 'token' to 'open_token' (a token is needed", moth.open_token, "12x")
    fails("bad argument 'token' to 'open_token' (a token is needed", moth.open_token, "-1")
    local x = moth.arange(3)
    assert.same({0, 1, 2}, moth.open_token(moth.token(x)):tolist())
  end)
end)

describe("a class", function()
  it("finds fields in a table, in a base's, and by a mixin's function", function()
    local A = moth.class "A"
    A.__index = {color = "red"}
    assert.equal("red", A().color)
    assert.is_nil(A().size)
    local B = moth.class("B", A)
    assert.equal("red", B().color)
    B.__index = {color = "blue"}
    assert.equal("blue", B().color)
    B.__index = nil
    assert.equal("red", B().color)
    local mixin = moth.class "Mixin"
    mixin.__index = {shade = "dark"}
    mixin.__len = function() return 7 end
    mixin.walk = function() return "walked" end
    local C = moth.class("C", nil, mixin)
    assert.equal("dark", C().shade)
    assert.equal("walked", C():walk())
    assert.is_true(nn.isinstance(C(), C))
    fails("bad argument to 'class' (a mixin is a table of methods, got 5", moth.class, "D", nil, 5)
    fails("bad argument 'name' to 'class' (a string is needed", moth.class, "")
    fails("bad argument 'name' to 'class' (a string is needed", moth.class, 5)
    fails("__init__ has no meaning in a class; write function A:init(...)",
      function() function A.__init__() end end)
  end)

  it("does not copy a mixin's fields over its own", function()
    local C = moth.class("C", nil, {a = function() return 1 end, b = function() return 2 end})
    function C.a() return 3 end
    assert.equal(3, C().a())
    assert.equal(2, C().b())
  end)
end)

-- ---- autograd ----

describe("a Function", function()
  local function scaled(name)
    local F = moth.class(name, autograd.Function)
    function F.forward(ctx, x)
      ctx:save_for_backward(x, nil, x)
      ctx.factor = 2
      return x * 2, x:detach() * 3
    end
    return F
  end

  it("keeps its fields from forward to backward, and from one hook of it to the next", function()
    local F = scaled "F"
    local seen
    function F.backward(ctx, dy, dz)
      local saved = ctx.saved_tensors
      seen = {ctx.factor, saved[1] ~= nil, saved[2] == nil, saved[3] ~= nil,
        ctx.needs_input_grad[1]}
      ctx.factor = 5
      return dy * ctx.factor + dz
    end
    local x = moth.ones(2):requires_grad_()
    local y, z = F.apply(x)
    assert.is_true(y.requires_grad and z.requires_grad)
    autograd.grad(y:sum(), x, {retain_graph = true})
    assert.same({2, true, true, true, true}, seen)
    local g = autograd.grad((y + z):sum(), x)
    assert.same({6, 6}, g:tolist())
    assert.equal(5, seen[1])
  end)

  it("marks results that have no gradient, and gets nil for those", function()
    local F = moth.class("F", autograd.Function)
    local given
    function F.forward(ctx, x)
      local a, b, c = x * 2, x * 3, x:long()
      ctx:mark_non_differentiable(b)
      return a, b, c
    end
    function F.backward(_, ...)
      given = {n = select("#", ...), ...}
      return (...)
    end
    local x = moth.ones(2):requires_grad_()
    local a, b, c = F.apply(x)
    assert.same({true, false, false}, {a.requires_grad, b.requires_grad, c.requires_grad})
    a:sum():backward()
    assert.equal(3, given.n)
    assert.is_nil(given[2])
    assert.is_nil(given[3])
  end)

  it("gets zeros or nil for results on which nothing depends", function()
    for _, zeros in ipairs {true, false} do
      local F = moth.class("F", autograd.Function)
      local given
      function F.forward(ctx, x)
        ctx:set_materialize_grads(zeros)
        return x * 2, x * 3
      end
      function F.backward(_, dy, dz)
        given = dz
        return dy
      end
      F.apply(moth.ones(2):requires_grad_()):sum():backward()
      assert.equal(zeros, given ~= nil)
    end
  end)

  it("may return trailing nils for arguments without gradient, but no more values", function()
    local F = moth.class("F", autograd.Function)
    function F.forward(_, x, by) return x * by end
    function F.backward(_, dy) return dy * 4, nil, nil, nil end
    local x = moth.ones(2):requires_grad_()
    F.apply(x, 3):sum():backward()
    assert.same({4, 4}, x.grad:tolist())
    function F.backward(_, dy) return dy, nil, dy end
    fails("F.backward returned 3 gradients, but F.forward has 2 arguments", function()
      F.apply(x, 3):sum():backward()
    end)
  end)

  it("whose gradient has NaN raises in anomaly mode, and only there", function()
    local F = moth.class("NanGrad", autograd.Function)
    function F.forward(_, x, z) return x * 2 + z end
    function F.backward(_, dy) return dy, dy * (0 / 0) end
    local function run()
      local x, z = moth.ones(2):requires_grad_(), moth.ones(2):requires_grad_()
      F.apply(x, z):sum():backward()
      return z.grad
    end
    assert.is_true(run():isnan():all():item())
    fails("NanGrad.backward: gradient 2 holds NaN", function() autograd.detect_anomaly(run) end)
    assert.is_false(autograd.is_anomaly_enabled())
    assert.is_true(run():isnan():all():item())
  end)
end)

describe("a node", function()
  it("lists its next nodes and calls its hooks in order", function()
    local x, y = moth.ones(2):requires_grad_(), moth.ones(2)
    local z = x * y
    assert.equal("Mul", z.grad_fn:name())
    local next = z.grad_fn.next_functions
    assert.equal(2, #next)
    assert.equal("AccumulateGrad", next[1][1]:name())
    assert.is_nil(next[2][1])
    assert.equal(1, next[1][2])
    assert.is_nil(y.grad_fn)
    local calls = {}
    local before = z.grad_fn:register_prehook(function(grads)
      calls[#calls + 1] = "before"
      return {grads[1] * 10}
    end)
    z.grad_fn:register_hook(function(inputs, outputs)
      calls[#calls + 1] = inputs[1]:sum():item()
      assert.is_nil(inputs[2])
      assert.equal(20, outputs[1]:sum():item())
      return {inputs[1] * 2}
    end)
    z:sum():backward {retain_graph = true}
    assert.same({"before", 20}, calls)
    assert.same({20, 20}, x.grad:tolist())
    before:remove()
    before:remove()
    fails("a hook of register_hook returns a list of tensors or nothing, got 5", function()
      local w = x * 2
      w.grad_fn:register_hook(function() return 5 end)
      w:sum():backward()
    end)
    fails("a hook of register_prehook returns a list of tensors, got 5 at position 1", function()
      local w = x * 2
      w.grad_fn:register_prehook(function() return {5} end)
      w:sum():backward()
    end)
    fails("register_hook: a leaf's node takes no hooks", function()
      z.grad_fn.next_functions[1][1]:register_hook(print)
    end)
    fails("bad argument 'fn' to 'register_prehook' (a function is needed, got 5",
      z.grad_fn.register_prehook, z.grad_fn, 5)
    fails("a grad_fn has no 'nam'; did you mean 'name'", function() return z.grad_fn.nam end)
  end)

  it("whose hook returns nothing keeps its gradients", function()
    local x = moth.ones(2):requires_grad_()
    local z = x * 3
    z.grad_fn:register_prehook(function() end)
    z.grad_fn:register_hook(function() end)
    z:sum():backward()
    assert.same({3, 3}, x.grad:tolist())
  end)
end)

describe("saved tensors' hooks", function()
  local graph = autograd.graph

  it("may pack tables, which hold until the backward pass, within a scope too", function()
    local x = moth.full({2}, 3):requires_grad_()
    local loss
    moth.scope(function()
      loss = moth.keep(graph.saved_tensors_hooks(function(t) return {{t * 1}} end,
        function(v) return v[1][1] end, function() return (x * x):sum() end))
    end)
    collectgarbage()
    loss:backward()
    assert.same({6, 6}, x.grad:tolist())
  end)

  it("are ended by an error of the function or of a hook, and work again", function()
    local x = moth.ones(2):requires_grad_()
    local same = function(v) return v end
    fails("mine", graph.saved_tensors_hooks, same, same, function() error "mine" end)
    fails("pack's", graph.saved_tensors_hooks, function() error "pack's" end, same,
      function() return x * x end)
    local count = 0
    local y = graph.saved_tensors_hooks(function(t)
      count = count + 1
      return t
    end, same, function() return x * x end)
    assert.is_true(count > 0)
    local before = count
    moth.exp(x)
    assert.equal(before, count)
    y:sum():backward()
    fails("the unpack hook returned 5, and a tensor is needed", function()
      graph.saved_tensors_hooks(same, function() return 5 end, function()
        return (x * x):sum()
      end):backward()
    end)
  end)

  it("can be disabled, with their message, also after an error", function()
    local same = function(v) return v end
    fails("no hooks here", graph.disable_saved_tensors_hooks, "no hooks here", function()
      graph.saved_tensors_hooks(same, same, function() end)
    end)
    assert.equal(4, graph.saved_tensors_hooks(same, same, function() return 4 end))
    assert.equal(5, graph.disable_saved_tensors_hooks("x", function() return 5 end))
    local y = graph.save_on_cpu(function() return moth.ones(2):requires_grad_():exp() end)
    y:sum():backward()
  end)
end)

describe("a batch of gradients", function()
  it("equals one pass for each, for few and many rows, with inputs that some rows miss", function()
    for _, n in ipairs {0, 1, 15, 16, 17} do
      local x, unused = moth.randn(3):requires_grad_(), moth.randn(2):requires_grad_()
      local y = x * x
      local rows = moth.randn(n, 3)
      local got, none = autograd.grad(y, {x, unused}, {grad_outputs = rows,
        is_grads_batched = true, allow_unused = true, retain_graph = true})
      assert.equal(("(%d, 3)"):format(n), shape(got))
      assert.is_true(n == 0 or got:allclose(rows * x * 2))
      assert.is_true(n == 0 or none == nil)
    end
    local x = moth.randn(3):requires_grad_()
    local a, b = x * 2, x * 3
    fails("batches of one size, 2, are needed, got f32 (3, 3)", autograd.grad, {a, b}, {x},
      {grad_outputs = {moth.ones(2, 3), moth.ones(3, 3)}, is_grads_batched = true})
    fails("a batch of gradients of f32 (3) is needed, with one dimension more, got f32 (3)",
      autograd.grad, {a}, {x}, {grad_outputs = {moth.ones(3)}, is_grads_batched = true})
  end)
end)
