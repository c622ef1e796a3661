-- Small parts with their exact texts: print options, generators, sizes, limits of dtypes, the
-- layers of moth.ops, composed constraints, refusals of moth.fft, warnings.

local moth = require "moth"
local process = require "spec.support.process"

local constraints = moth.distributions.constraints
local fft, ops = moth.fft, moth.ops
local i64 = {dtype = moth.int64}

local function refuses(text, f, ...)
  local ok, message = pcall(f, ...)
  assert.is_false(ok)
  assert.equal(text, (message:gsub("^[^:]*:%d+: ", "")))
end

local function contains(text, whole) assert(whole:find(text, 1, true), whole) end

-- A claim for each row {what, wanted, f}: f returns the value, or raises the text.
local function table_of(rows)
  for _, row in ipairs(rows) do
    local what, wanted, f = unpack(row)
    it(what, function()
      local ok, value = pcall(f)
      if not ok then value = tostring(value):gsub("^[^:]*:%d+: ", "") end
      if type(wanted) == "string" then value = tostring(value) end
      assert.equal(wanted, value)
    end)
  end
end

describe("print options:", function()
  after_each(function() moth.set_printoptions{profile = "default"} end)

  for _, row in ipairs {
    {"no digits", {precision = 0}, "{ 1,  3, -3}"},
    {"99 digits", {precision = 99}, ",\n"},
    {"a width of 0", {linewidth = 0}, "{ 1.2500,\n  2.7500,\n -3.0000}"},
    {"no elements at the ends", {edgeitems = 0, threshold = 0}, "{...}"},
    {"one element at the ends", {edgeitems = 1, threshold = 2}, "{ 1.2500, ..., -3.0000}"},
    {"as many elements as the threshold", {edgeitems = 1, threshold = 3},
      "{ 1.2500,  2.7500, -3.0000}"},
    {"all elements at the ends", {edgeitems = math.huge, threshold = 0},
      "{ 1.2500,  2.7500, -3.0000}"},
    {"the short profile", {profile = "short"}, "{ 1.25,  2.75, -3.00}"},
    {"a profile and an option", {profile = "short", precision = 3}, "{ 1.250,  2.750, -3.000}"},
    {"powers of ten", {precision = 2, sci_mode = true}, "{ 1.25e+00,  2.75e+00, -3.00e+00}"},
  } do
    it(row[1], function()
      moth.set_printoptions(row[2])
      contains(row[3], tostring(moth.tensor{1.25, 2.75, -3}))
    end)
  end

  it("the short profile shows 2 elements at each end from 1001 on, the full one all", function()
    local x, y = moth.zeros(1000, i64), moth.zeros(1001, i64)
    moth.set_printoptions{profile = "short"}
    assert.is_nil(tostring(x):find("...", 1, true))
    contains("{0, 0, ..., 0, 0}", tostring(y))
    moth.set_printoptions{profile = "full"}
    assert.is_nil(tostring(y):find("...", 1, true))
    moth.set_printoptions{profile = "default"}
    contains("{0, 0, 0, ..., 0, 0, 0}", tostring(y))
  end)

  it("a profile ends sci_mode", function()
    moth.set_printoptions{sci_mode = true}
    moth.set_printoptions{profile = "default"}
    contains("{1.2500}", tostring(moth.tensor{1.25}))
  end)

  for _, row in ipairs {
    {"precision", -1, "to 99"}, {"precision", 100, "to 99"}, {"precision", 1.5, "to 99"},
    {"precision", math.huge, "to 99"}, {"edgeitems", -1, "on"}, {"edgeitems", 1.5, "on"},
    {"linewidth", 0 / 0, "on"}, {"threshold", "3", "on"},
  } do
    local name, value, range = unpack(row)
    it(("%s = %s is refused, and no other option is set"):format(name, value), function()
      refuses(("bad argument '%s' to 'set_printoptions' (an integer from 0 %s is needed, got %s)")
        :format(name, range, type(value) == "string" and "a string ('3')"
        or value ~= value and "nan" or tostring(value)), moth.set_printoptions,
        {[name] = value, profile = "short"})
      contains("{1.2500}", tostring(moth.tensor{1.25}))
    end)
  end
end)

describe("a generator", function()
  local SEED = "bad argument 'seed' to '%s' (an integer from 0 to 2^53 is needed, got %s)"
  local STATE = "bad argument 'state' to 'set_state' (i64 (2) is needed, got %s)"
  table_of {
    {"begins with seed 0", "Generator{seed = 0}", moth.Generator},
    {"prints all digits of its seed", "Generator{seed = 9007199254740992}",
      function() return moth.Generator{seed = 2 ^ 53} end},
    {"prints its new seed", "Generator{seed = 9}",
      function() return moth.Generator(3):manual_seed(9) end},
    {"has no seed below 0", SEED:format("Generator", -1), function() moth.Generator(-1) end},
    {"has no seed above 2^53", SEED:format("Generator", 2 ^ 53 + 2),
      function() moth.Generator(2 ^ 53 + 2) end},
    {"has no seed between integers", SEED:format("manual_seed", 0.5),
      function() moth.Generator():manual_seed(0.5) end},
    {"has no state of floats", STATE:format "f32 (2)",
      function() moth.Generator():set_state(moth.zeros(2)) end},
    {"has no state of 3 numbers", STATE:format "i64 (3)",
      function() moth.Generator():set_state(moth.zeros(3, i64)) end},
    {"has no state in columns", STATE:format "i64 (2, 1)",
      function() moth.Generator():set_state(moth.zeros(2, 1, i64)) end},
  }

  it("keeps its stream when a seed or a state is refused", function()
    local a, b = moth.Generator(5), moth.Generator(5)
    pcall(a.manual_seed, a, -1)
    pcall(a.set_state, a, moth.zeros(2))
    assert.is_true(moth.rand(4, {generator = a}):equal(moth.rand(4, {generator = b})))
  end)

  it("has a copy as its state", function()
    local g = moth.Generator(5)
    g:get_state():fill_(9)
    assert.equal(5, g:initial_seed())
    local state = g:get_state()
    g:set_state(moth.Generator(8):get_state())
    assert.equal(8, g:initial_seed())
    assert.same({5, 0}, state:tolist())
  end)

  it("takes a seed from the clock, and returns it", function()
    local g = moth.Generator(5)
    local seed = g:seed()
    assert.equal(seed, g:initial_seed())
    assert.is_true(seed >= 0 and seed < 2 ^ 48 and seed % 1 == 0)
    local before = moth.get_rng_state()
    seed = moth.seed()
    assert.equal(seed, moth.initial_seed())
    moth.set_rng_state(before)
  end)

  it("is restored by fork_rng after results and after errors, unless not enabled", function()
    moth.manual_seed(4)
    local first = moth.rand(1):item()
    moth.manual_seed(4)
    local none, two, three = moth.random.fork_rng(function() return nil, moth.rand(2), 3 end)
    assert.is_nil(none)
    assert.equal(first, two[1]:item())
    assert.equal(3, three)
    refuses("broken", moth.random.fork_rng, function() moth.rand(3) error("broken", 0) end)
    assert.equal(first, moth.rand(1):item())
    moth.manual_seed(4)
    moth.random.fork_rng(function() moth.rand(1) end, {enabled = false})
    assert.is_false(first == moth.rand(1):item())
  end)
end)

describe("a size", function()
  local shape = moth.zeros(2, 3).shape
  table_of {
    {"counts from the end with negative positions", 2, function() return shape[-2] end},
    {"has no position 0", "dimensions count from 1, got 0", function() return shape[0] end},
    {"has no position after the last", "dim 3 is out of range for the 2 dimensions of (2, 3)",
      function() return shape[3] end},
    {"has no position before the first", "dim -3 is out of range for the 2 dimensions of (2, 3)",
      function() return shape[-3] end},
    {"has no position between", "dim -1.5 is out of range for the 2 dimensions of (2, 3)",
      function() return shape[-1.5] end},
    {"of one dimension is named so", "dim 2 is out of range for the 1 dimension of (3)",
      function() return moth.zeros(3).shape[2] end},
    {"is no method", "a shape is a field, not a method: x.shape, or x:size(1)",
      function() return shape() end},
    {"joins a string", "a(2, 3)b", function() return "a" .. shape .. "b" end},
    {"is printed with all digits", "(1000000000000000, 2)",
      function() return moth.Size{1e15, 2} end},
    {"is made of integers", "bad argument 'sizes' to 'Size' (integers are needed, got a string "
      .. "('a') at position 2)", function() return moth.Size(2, "a") end},
  }
end)

describe("moth.", function()
  local NEEDS_FLAG = "bad argument 'requires_grad' to 'requires_grad_' (true or false is needed, "
    .. "got 1)"
  table_of {
    {"finfo has no integers", "bad argument 'dtype' to 'finfo' (a float dtype is needed, got "
      .. "moth.int8; moth.iinfo is for integers)", function() moth.finfo(moth.int8) end},
    {"iinfo has no floats", "bad argument 'dtype' to 'iinfo' (an integer dtype is needed, got "
      .. "moth.float32; moth.finfo is for floats)", function() moth.iinfo(moth.float32) end},
    {"iinfo has no bools", "bad argument 'dtype' to 'iinfo' (an integer dtype is needed, got "
      .. "moth.bool)", function() moth.iinfo(moth.bool) end},
    {"result_type needs a first tensor or number", "bad argument 'tensor1' to 'result_type' (a "
      .. "tensor or a number is needed, got {})", function() moth.result_type({}, 1) end},
    {"result_type needs a second tensor or number", "bad argument 'tensor2' to 'result_type' (a "
      .. "tensor or a number is needed, got a string ('a'))",
      function() moth.result_type(1, "a") end},
    {"can_cast bool into bool", true, function() return moth.can_cast(moth.bool, moth.bool) end},
    {"can_cast no uint8 into bool", false,
      function() return moth.can_cast(moth.uint8, moth.bool) end},
    {"can_cast no float16 into int64", false,
      function() return moth.can_cast(moth.float16, moth.int64) end},
    {"can_cast int64 into float16", true,
      function() return moth.can_cast(moth.int64, moth.float16) end},
    {"get_device is -1 on the CPU", -1, function() return moth.get_device(moth.zeros(2)) end},
    {"get_device needs a tensor", "bad argument 'input' to 'get_device' (a tensor is needed, got "
      .. "3)", function() moth.get_device(3) end},
    {"warn needs a string", "bad argument 'text' to 'warn' (a string is needed, got 3)",
      function() moth.warn(3) end},
    {"zeros(2):requires_grad_ needs a boolean", NEEDS_FLAG,
      function() moth.zeros(2):requires_grad_(1) end},
    {"zeros(2):requires_grad_ has one argument", "'requires_grad_' takes 2 arguments, got one "
      .. "more: 1", function() moth.zeros(2):requires_grad_(true, 1) end},
    {"zeros(2):requires_grad_ accepts its name", false,
      function() return moth.zeros(2):requires_grad_{requires_grad = false}.requires_grad end},
    {"zeros(2):requires_grad_ knows no other name", "'requires_grad_' has no argument 'on'",
      function() moth.zeros(2):requires_grad_{on = false} end},
    {"zeros(2):requires_grad_ has no integers", "requires_grad_: only floating tensors can require "
      .. "grad, got i64 (2)", function() moth.zeros(2, i64):requires_grad_() end},
    {"zeros(2):requires_grad_(false) accepts integers", false,
      function() return moth.zeros(2, i64):requires_grad_(false).requires_grad end},
  }

  it("warn writes the position and the text to stderr", function()
    local text = process.lua("local moth = require 'moth'\n\nmoth.warn('too hot')\n")
    assert.matches("^moth: warning: [^\n]*:3: too hot\nrc=0\n$", text)
  end)
end)

describe("a layer of moth.ops prints its options:", function()
  for _, row in ipairs {
    {"RoIAlign(output_size=3, spatial_scale=0.5, sampling_ratio=2, aligned=false)",
      function() return ops.RoIAlign(3, 0.5, 2) end},
    {"RoIAlign(output_size=(3, 4), spatial_scale=0.25, sampling_ratio=2, aligned=true)",
      function() return ops.RoIAlign({3, 4}, 0.25, 2, true) end},
    {"RoIPool(output_size=3, spatial_scale=0.5)", function() return ops.RoIPool(3, 0.5) end},
    {"PSRoIAlign(output_size=(2, 3), spatial_scale=1, sampling_ratio=0)",
      function() return ops.PSRoIAlign({2, 3}, 1, 0) end},
    {"PSRoIPool(output_size=(2, 3), spatial_scale=1)",
      function() return ops.PSRoIPool({2, 3}, 1) end},
    {"DropBlock2d(p=0.25, block_size=3, inplace=false, eps=1e-06)",
      function() return ops.DropBlock2d(0.25, 3) end},
    {"DropBlock3d(p=0.25, block_size=3, inplace=true, eps=0.001)",
      function() return ops.DropBlock3d(0.25, 3, {inplace = true, eps = 0.001}) end},
    {"StochasticDepth(p=0.2, mode=row)", function() return ops.StochasticDepth(0.2, "row") end},
    {"DeformConv2d(4, 6, kernel_size=(2, 3))",
      function() return ops.DeformConv2d(4, 6, {2, 3}, {bias = false, groups = 2}) end},
    {"FrozenBatchNorm2d(5, eps=1e-05)", function() return ops.FrozenBatchNorm2d(5) end},
    {"FrozenBatchNorm2d(5, eps=0.001)",
      function() return ops.FrozenBatchNorm2d(5, {eps = 0.001}) end},
    {"MultiScaleRoIAlign(featmap_names={a, b}, output_size=(7, 7), sampling_ratio=2)",
      function() return ops.MultiScaleRoIAlign({"a", "b"}, 7, 2) end},
  } do
    it(row[1], function() assert.equal(row[1], tostring(row[2]())) end)
  end
end)

describe("a composed constraint", function()
  local real, positive = constraints.real, constraints.positive
  it("independent: the further dimensions must hold together", function()
    local x = moth.ones(2, 3, 4)
    x[2][3][1] = -1
    assert.same({{true, true, true}, {true, true, false}},
      constraints.independent(positive, 1):check(x):tolist())
    assert.same({true, false}, constraints.independent(positive, 2):check(x):tolist())
    assert.equal(2, constraints.independent(positive, 2).event_dim)
    assert.equal(3, constraints.independent(constraints.simplex, 2).event_dim)
    assert.equal(x:gt(0):tolist()[2][3][1],
      constraints.independent(positive, 0):check(x):tolist()[2][3][1])
  end)

  it("cat: pieces of their lengths, one element each without lengths", function()
    local x = moth.tensor{{-1, -2, 3}, {-1, 2, -3}}
    assert.same({{true, true, true}, {true, true, false}},
      constraints.cat({real, positive}, 2, {2, 1}):check(x):tolist())
    assert.same({{true, false}, {true, true}},
      constraints.cat({real, positive}, 2):check(x):tolist())
    assert.same({{true, true, true}, {false, true, false}},
      constraints.cat({real, positive}, 1):check(x):tolist())
  end)

  it("stack: slices along its dimension", function()
    local x = moth.tensor{{-1, -2, 3}, {-1, 2, -3}}
    assert.same({{true, true, true}, {false, true, false}},
      constraints.stack({real, positive}, 1):check(x):tolist())
    assert.same({{true, false}, {true, true}},
      constraints.stack({real, positive}, -1):check(x[{{}, {1, 2}}]):tolist())
    assert.equal(1, constraints.stack({real, real}, -1).event_dim)
    assert.equal(0, constraints.stack({real, real}, 1).event_dim)
    assert.equal(1, constraints.stack({constraints.simplex, real}, -1).event_dim)
    assert.equal(2, constraints.stack({constraints.simplex, real}, -2).event_dim)
  end)

  it("prints its bounds", function()
    assert.equal("numbers from 0 to a tensor",
      tostring(constraints.interval(0, moth.ones(2))))
    assert.equal("numbers above 2", tostring(constraints.greater_than(moth.tensor(2))))
    assert.equal("numbers from 0.5 on", tostring(constraints.greater_than_eq(0.5)))
    assert.equal("numbers below -1", tostring(constraints.less_than(-1)))
    assert.equal("numbers from 1 to below 2", tostring(constraints.half_open_interval(1, 2)))
    assert.equal("integers from 1 to 2", (tostring(constraints.integer_interval(1, 2))
      :gsub("^the ", "")))
  end)
end)

describe("moth.fft refuses", function()
  local COMPLEX = "bad argument '%s' to '%s' (complex numbers are needed, pairs in a last "
    .. "dimension of 2, got %s)"
  local x = moth.zeros(4, 8, 2)
  table_of {
    {"a dimension before the first", "bad argument 'dim' to 'rfft' (-4 is no dimension of signals "
      .. "in f32 (4, 8, 2))", function() fft.rfft(x, {dim = -4}) end},
    {"the dimension of the pairs", "bad argument 'dim' to 'ifft' (3 is no dimension of signals in "
      .. "f32 (4, 8, 2))", function() fft.ifft(x, {dim = 3}) end},
    {"a dimension twice", "bad argument 'dim' to 'fftn' (-2 is there twice)",
      function() fft.fftn(x, {dim = {1, -2}}) end},
    {"no dimension", "bad argument 'dim' to 'irfftn' (a dimension is needed)",
      function() fft.irfftn(x, {dim = {}}) end},
    {"more lengths than dimensions", "bad argument 'dim' to 'fftn' (-3 is no dimension of signals "
      .. "in f32 (4, 8, 2))", function() fft.fftn(x, {s = {2, 3, 4}}) end},
    {"fewer lengths than dim", "bad argument 's' to 'rfftn' (2 lengths for 3 dimensions)",
      function() fft.rfftn(x, {2, 3}, {1, 2, 3}) end},
    {"a length of 0", "bad argument 's' to 'fft2' (a length from 1 on is needed, got 0)",
      function() fft.fft2(x, {2, 0}) end},
    {"a single coefficient without n", "bad argument 'n' to 'irfft' (a length from 1 on is needed, "
      .. "got 0)", function() fft.irfft(moth.zeros(4, 1, 2)) end},
    {"numbers without pairs: abs", COMPLEX:format("input", "abs", "f32 (3)"),
      function() fft.abs(moth.zeros(3)) end},
    {"numbers without pairs: angle", COMPLEX:format("input", "angle", "f32 ()"),
      function() fft.angle(moth.tensor(3.5)) end},
    {"numbers without pairs: mul's first", COMPLEX:format("input", "mul", "f32 (3)"),
      function() fft.mul(moth.zeros(3), moth.zeros(2)) end},
    {"numbers without pairs: mul's second", COMPLEX:format("other", "mul", "f32 (3)"),
      function() fft.mul(moth.zeros(2), moth.zeros(3)) end},
    {"to shift a dimension that is not there", "bad argument 'dim' to 'fftshift' (3 is no "
      .. "dimension of signals in f32 (4, 2))", function() fft.fftshift(moth.zeros(4, 2), 3) end},
  }

  it("no single coefficient with n = 1", function()
    assert.same({{0.5}, {-2}}, fft.irfft(moth.tensor{{{0.5, 0}}, {{-2, 7}}}, 1):tolist())
  end)

  it("no shift of 0 dimensions, and shifts pairs in one dimension", function()
    assert.equal(3.5, fft.fftshift(moth.tensor(3.5)):item())
    assert.same({2, 1}, fft.fftshift(moth.tensor{1, 2}):tolist())
    assert.same({{5, 6}, {1, 2}, {3, 4}},
      fft.fftshift(moth.tensor{{1, 2}, {3, 4}, {5, 6}}):tolist())
  end)
end)

-- torchvision's _make_divisible.
it("numbers of channels are multiples of 8, and at least 90 % of the wanted number", function()
  local divisible = require("moth.models.mobilenetv3").divisible
  for value, wanted in pairs {[1] = 8, [4] = 8, [8] = 8, [11] = 16, [12] = 16, [13.4] = 16,
                              [16] = 16, [17.8] = 24, [18] = 24, [20] = 24, [26.6] = 24,
                              [26.7] = 32, [36] = 40, [44] = 48, [60] = 64, [100] = 104} do
    assert.equal(wanted, divisible(value))
  end
end)
