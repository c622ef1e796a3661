-- The parts of messages: descriptions of values, suggested names, singular nouns, safe texts, and
-- what a layer needs, each at both sides of its bounds.

local ffi = require "ffi"
local moth = require "moth"
local errors = require "moth.error"
local shown = require "moth.error.shown"
local fails = require("spec.support.refusals").fails
local nn = moth.nn

describe("a description of a value", function()
  it("shows numbers exactly up to 2^53, and short texts and lists in full", function()
    for _, row in ipairs {
      {1, "1"}, {1.5, "1.5"}, {-3, "-3"}, {2 ^ 53 - 1, "9007199254740991"},
      {2 ^ 53, "9.007199254741e+15"}, {-2 ^ 53, "-9.007199254741e+15"}, {0 / 0, "nan"},
      {1 / 0, "inf"}, {-1 / 0, "-inf"}, {true, "true"}, {5LL, "5LL"}, {5ULL, "5ULL"},
      {("x"):rep(40), "a string ('" .. ("x"):rep(40) .. "')"},
      {("x"):rep(41), "a string ('" .. ("x"):rep(40) .. "...')"},
      {{}, "{}"}, {{1, "a"}, "{1, 'a'}"}, {{1, ("a"):rep(19)}, "{1, '" .. ("a"):rep(19) .. "'}"},
      {{1, ("a"):rep(20)}, "a table"}, {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
      "{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}"}, {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13},
      "a table"}, {{1, a = 2}, "a table"}, {{1, {}}, "a table"}, {nn.Linear(1, 1), "a Linear"},
      {nn.Linear, "the class Linear"}, {moth.optim.Adam {moth.ones(1)}, "an Adam"},
      {setmetatable({}, {}), "a table"}, {moth.ones(2, 3), "f32 (2, 3)"}, {print, "a function"},
      {setmetatable({}, {__tostring = function() return "mine" end}), "mine"},
      {coroutine.create(print), "a thread"}, {moth.float32, "moth.float32"},
      {ffi.new "int[3]", "a cdata (ctype<int [3]>)"}, {moth.ones(2).shape, "(2)"},
    } do assert.equal(row[2], errors.describe(row[1])) end
    assert.equal("nil", errors.describe(nil))
  end)

  it("of a class has its article", function()
    for name, wanted in pairs {
      Adam = "an Adam", Linear = "a Linear", LSTM = "an LSTM", RNN = "an RNN", GRU = "a GRU",
      Embedding = "an Embedding", Identity = "an Identity", Unfold = "an Unfold",
      Upsample = "an Upsample", Uniform = "a Uniform", SGD = "an SGD", MLP = "an MLP",
      ["NAdam"] = "an NAdam", ReLU = "a ReLU", Fold = "a Fold", HTTP = "an HTTP", XNet = "an XNet",
      other = "an other", ["UNet"] = "a UNet", ["Object"] = "an Object", CELU = "a CELU",
    } do assert.equal(wanted, shown.one(name)) end
  end)
end)

describe("a message about one thing", function()
  it("has the singular", function()
    for text, wanted in pairs {
      ["at least 1 dimensions are needed"] = "at least 1 dimension is needed",
      ["1 elements, 2 elements"] = "1 element, 2 elements", ["11 elements"] = "11 elements",
      ["0.1 elements"] = "0.1 elements", ["-1 elements"] = "-1 elements", ["1 boxes"] = "1 box",
      ["1 classes are"] = "1 class is", ["1 indices"] = "1 index", ["1 batches"] = "1 batch",
      ["there are 1 rows"] = "there is 1 row", ["1 bus"] = "1 bus", ["1 entries"] = "1 entry",
      ["1 tensors, got 1 numbers"] = "1 tensor, got 1 number", ["1 keys in"] = "1 key in",
      ["1 axes"] = "1 axis", ["1 processes are"] = "1 process is",
      ["1 frequencies"] = "1 frequency",
    } do assert.equal(wanted, shown.singular(text)) end
  end)
end)

describe("a text from outside in a message", function()
  it("is cut at whole characters, without control characters", function()
    for _, row in ipairs {
      {"abc", nil, "abc"}, {("x"):rep(60), nil, ("x"):rep(60)},
      {("x"):rep(61), nil, ("x"):rep(60) .. "..."}, {"abcd", 3, "abc..."}, {"abc", 3, "abc"},
      {"ab\195\169", 4, "ab\195\169"}, {"ab\195\169d", 3, "ab..."}, {"ab\195\169d", 4,
      "ab..."}, {"a\27b", nil, "a\\x1bb"}, {"a\tb\n", nil, "a\\x09b\\x0a"}, {"\127", nil, "\\x7f"},
      {"\194\128", nil, "\\xc2\\x80"}, {"\194\159", nil, "\\xc2\\x9f"}, {"\194\160", nil,
      "\194\160"}, {"a\255b\254", nil, "a\\xffb\\xfe"}, {"\195", nil, "\\xc3"},
      {"\0", nil, "\\x00"},
    } do assert.equal(row[3], (errors.bare(row[1], row[2]))) end
    assert.equal("'a\\x1b'", errors.shown "a\27")
    assert.equal("'ab...'", errors.shown("abc", 2))
  end)

  it("that is a path keeps its end", function()
    local path = ("d"):rep(199)
    assert.equal("'" .. path .. "e'", errors.path(path .. "e"))
    assert.equal("'..." .. path .. "e'", errors.path("x" .. path .. "e"))
    assert.equal("'..." .. ("d"):rep(199) .. "'", errors.path("x\195\169" .. ("d"):rep(199)))
  end)

  it("is escaped, except tabs and line ends", function()
    fails("a\\x1b[2Jb\tc\nd", errors.raise, "a\27[2Jb\tc\nd")
    fails("\\x00\\x08\\x0b\\x1f\\x7f ~", errors.raise, "\0\8\11\31\127 ~")
  end)
end)

describe("a suggested name", function()
  local function of(name, list)
    local hint = errors.nearest(name, list)
    return hint:match "^; did you mean '(.*)'%?$" or hint
  end
  local many = {}
  for i = 1, 20 do many[i] = "unrelated_name_" .. i end
  local function among(name, list)
    local all = {unpack(many)}
    for _, one in ipairs(list) do all[#all + 1] = one end
    return of(name, all)
  end

  it("has at most as many edits as its length allows", function()
    for _, row in ipairs {
      -- up to 4 letters: 1 edit; up to 8: 2; more: 3
      {"abcd", "abce", true}, {"abcd", "abef", false}, {"abcde", "abcfg", true},
      {"abcde", "abfgh", false}, {"abcdefgh", "abcdefij", true}, {"abcdefgh", "abcdeijk", false},
      {"abcdefghi", "abcdefjkl", true}, {"abcdefghi", "abcdejklm", false},
      {"abcd", "abc", true}, {"abcd", "abcde", true}, {"abcd", "abdc", true},
      {"abcde", "badce", false}, {"abcd", "xbcd", true}, {"abcde", "xbcdf", false},
      {"abcde", "Abcfg", true}, {"ABCD", "abcd", true}, {"a", "b", false}, {"ab", "b", false},
      {"ab", "cb", true}, {"abcdef", "abcdefgh", true}, {"abcdef", "abcdefghi", false},
    } do assert.equal(row[3] and row[2] or "", of(row[1], {row[2]}), row[1] .. " " .. row[2]) end
  end)

  it("is nearer among many", function()
    for _, row in ipairs {
      {"abcd", "abce", false}, {"abcd", "abcde", true}, {"abcd", "abdc", true},
      {"abcde", "abcdf", true}, {"abcde", "abcfg", false}, {"abcdefgh", "abcdefij", true},
      {"abcdefgh", "abcdeijk", false}, {"abcdefghijkl", "abcdefghixyz", true},
      {"abcdefghijklmnop", "abcdefghijklwxyz", false}, {"abc", "abd", false},
    } do assert.equal(row[3] and row[2] or "", among(row[1], {row[2]}), row[1]) end
  end)

  it("is the nearest, then the first in order; names of other libraries are known", function()
    assert.equal("abcde", of("abcdx", {"abcxy", "abcde"}))
    assert.equal("abca", of("abcx", {"abcb", "abca", "abcc"}))
    assert.equal("abca", of("abcx", {"abca", "abcb"}))
    assert.equal("dim", of("axis", {"axes", "dim"}))
    assert.equal("lr", of("learning_rate", {"lr", "learning_rates"}))
    assert.equal("", of("learning_rate", {"weight"}))
    assert.equal("", of(("x"):rep(61), {("x"):rep(60)}))
    assert.equal(("x"):rep(59), of(("x"):rep(60), {("x"):rep(59)}))
    assert.equal("", of("abc", {5, true}))
  end)
end)

describe("a dimension in a function of Lua", function()
  it("is from 1 to n, or from -1 to -n", function()
    assert.equal(1, errors.dim("f", "dim", 1, 3))
    assert.equal(3, errors.dim("f", "dim", 3, 3))
    assert.equal(3, errors.dim("f", "dim", -1, 3))
    assert.equal(1, errors.dim("f", "dim", -3, 3))
    for _, dim in ipairs {0, 4, -4} do
      fails(("bad argument 'dim' to 'f' (dim %d is out of range: wanted 1 to 3 or -3 to -1")
        :format(dim), errors.dim, "f", "dim", dim, 3)
      assert.equal("E_INDEX", moth.errcode())
    end
  end)
end)

describe("a layer of Moth", function()
  local function says(wanted, net, ...)
    fails("bad argument 'input' to '" .. nn.typename(net) .. "' (" .. wanted, net, ...)
  end
  local function rand(...) return moth.rand(...) end

  it("names the shape that it needs", function()
    says("(..., 4) is needed, got f32 (2, 3, 5)", nn.LayerNorm(4), rand(2, 3, 5))
    says("(..., 3, 4) is needed, got f32 (3, 5)", nn.LayerNorm {3, 4}, rand(3, 5))
    says("(..., 3, 4) is needed, got f32 (4)", nn.LayerNorm {3, 4}, rand(4))
    says("(..., 4) is needed, got f32 (5)", nn.RMSNorm(4), rand(5))
    says("(N, 4, ...) is needed, got f32 (2, 6, 3)", nn.GroupNorm(2, 4), rand(2, 6, 3))
    says("(N, 4, ...) is needed, got f32 (4)", nn.GroupNorm(2, 4), rand(4))
    for n = 1, 3 do
      local sizes, sides = {}, ({"L", "H, W", "D, H, W"})[n]
      for i = 1, n do sizes[i] = 5 end
      local x = rand(2, 3, unpack(sizes))
      local wanted = ("(N, 4, %s) or (4, %s) is needed, got %s"):format(sides, sides,
        errors.describe(x))
      says(wanted, nn["Conv" .. n .. "d"](4, 2, 3), x)
      says(wanted, nn["ConvTranspose" .. n .. "d"](4, 2, 3), x)
      says(wanted, nn["InstanceNorm" .. n .. "d"](4, {affine = true}), x)
      assert.has_no.errors(function()
        local fine = rand(2, 4, unpack(sizes))
        local one = rand(4, unpack(sizes))
        for _, name in ipairs {"Conv", "ConvTranspose"} do
          nn[name .. n .. "d"](4, 2, 3)(fine)
          nn[name .. n .. "d"](4, 2, 3)(one)
        end
        nn["InstanceNorm" .. n .. "d"](4)(fine)
        nn["InstanceNorm" .. n .. "d"](4)(one)
      end)
    end
    says("(N, 3, ...) is needed, got f32 (2, 4)", nn.PReLU(3), rand(2, 4))
    says("(N, 3, ...) is needed, got f32 (4)", nn.PReLU(3), rand(4))
    fails("bad argument 'input1' to 'Bilinear' ((..., 3) is needed, got f32 (2, 5)",
      nn.Bilinear(3, 4, 2), rand(2, 5), rand(2, 4))
    fails("bad argument 'input2' to 'Bilinear' ((..., 4) is needed, got f32 (2, 5)",
      nn.Bilinear(3, 4, 2), rand(2, 3), rand(2, 5))
  end)

  it("inside others is named by its path, with the outer input", function()
    local net = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(5))
    fails("in Sequential[2]: bad argument 'input' to 'LayerNorm' ((..., 5) is needed, got f32",
      net, rand(2, 3))
    fails("in TransformerEncoderLayer: bad argument 'src' to 'TransformerEncoderLayer' (8 is",
      nn.TransformerEncoderLayer(8, 2), rand(2, 3, 6))
    fails("does not match the layer's weight, f32 (2, 3); convert one of them with :to()",
      nn.Linear(3, 2), rand(2, 3):double())
  end)
end)

describe("a wrong argument", function()
  local x = moth.rand(2, 3)
  it("is explained by what came", function()
    for _, row in ipairs {
      {"'dim' to 'softmax' (dimensions count from 1, got 0", x.softmax, x, 0},
      {"'dim' to 'sum' (dimensions count from 1, got 0 at position 2", x.sum, x, {1, 0}},
      {"at position 2", x.sum, x, {1, "a"}},
      {"got {1.5} at position", moth.cat, {x, {1.5}}},
      {"'tensors' to 'cat' (a list of tensors is needed, got 5 at position 2", moth.cat, {x, 5}},
      {"take one pair of braces away", x.sum, x, {{1}}},
      {"'dtype' to 'to'", x.to, x, 5},
      {"an int64; write 2", x.softmax, x, 2LL},
      {"'p' to 'dropout' (a number is needed, got f32 () (x:item() is its number; a second result "
        .. "passed on?", nn.functional.dropout, x, moth.tensor(0.5)},
      {"'inplace' to 'relu' (true or false is needed, got 3", x.relu, x, 3},
      {"'reduction' to 'mse_loss' (one of 'mean', 'sum', 'none' is needed, got 'men'; did you "
        .. "mean 'mean'", nn.functional.mse_loss, x, x, {reduction = "men"}},
      {"one of 'mean', 'sum', 'none' is needed, got 5", nn.functional.mse_loss, x, x,
        {reduction = 5}},
      {"'sum' has no argument 'dims'; did you mean 'dim'", x.sum, x, {dims = 1}},
      {"given twice, by position and by name", x.sum, x, 1, {dim = 1}},
      {"'exp' takes 1 argument by position, got one more: 3", x.exp, x, 3},
      {"wrap the call in parentheses", x.relu, x, x},
      {"x:softmax()", moth.softmax},
    } do fails(row[1], unpack(row, 2, 6)) end
    fails("which is beyond 2^53", x.softmax, x, 2 ^ 60)
    fails("in_features", nn.Linear, "a", 2)
    fails("nn.Linear(...) makes a module; that is then called with tensors", nn.Linear, x, 2)
  end)
end)
