-- Each kind of argument of a function written with moth.define and of ops: which values it takes
-- and what the function gets, which it refuses and how, by position, by name, absent and none.

local moth = require "moth"
local fails = require("spec.support.refusals").fails

-- A function with one argument of a kind, which returns what it gets.
local function of_kind(kind, more)
  local row = {kind, "a", "an argument"}
  for key, value in pairs(more or {}) do row[key] = value end
  return moth.define {name = "f", args = {row}, run = function(a) return a end}
end

local x = moth.rand(2)
local big = 2 ^ 53
local f, g = function() end, moth.Generator()
local called = setmetatable({}, {__call = function() end})

-- kind, the words of its message, values that it takes, values that it refuses
local KINDS = {
  {"tensor", "a tensor is needed", {x}, {1, "a", true, f}},
  {"mask", "a bool tensor is needed", {x:gt(0)}, {1, "a"}},
  {"index", "an integer tensor or a list of positions is needed", {x}, {1, "a", true}},
  {"tensors", "a list of tensors is needed", {}, {1, "a", true}},
  {"generator", "a moth.Generator is needed", {g, g.state}, {1, "a", true}},
  {"scalar", "a number is needed", {1, -1.5, true, 3LL}, {"a", f}},
  {"float", "a number is needed", {1, -1.5, 1 / 0}, {"a", true, f}},
  {"int", "an integer is needed", {0, 1, -1, big, -big}, {1.5, big + 2, -big - 2, 1 / 0, 0 / 0, "1",
    true}},
  {"dim", "a dimension is needed, an integer from 1 or from -1 down", {1, -1, big, -big}, {1.5,
    "1", true, big + 2, -big - 2}},
  {"position", "a position is needed, an integer from 1 or from -1 down", {1, -1}, {1.5, "1"}},
  {"ignored", "an integer is needed", {0, 1, -100}, {1.5, "a", true}},
  {"int1", "an integer is needed", {1}, {1.5, "a", true}},
  {"int2", "an integer or a list of 2 integers is needed", {1}, {1.5, "a", true}},
  {"int3", "an integer or a list of 3 integers is needed", {1}, {1.5, "a", true}},
  {"ints", "an integer or a list of integers is needed", {1, -1}, {1.5, "a", true, f}},
  {"shape", "sizes are needed, integers in a row or in a list", {1}, {1.5, "a", true}},
  {"dims", "a dimension or a list of them is needed", {1, -1}, {1.5, "a", true}},
  {"floats", "a number or a list of numbers is needed", {1, 1.5}, {"a", true, f}},
  {"bool", "true or false is needed", {true, false}, {1, 0, "true", f}},
  {"dtype", "a dtype such as moth.float32 is needed", {moth.float32}, {1, "float32", true}},
  {"device", "a device such as", {moth.device "cpu", "cpu"}, {1, true, f}},
  {"string", "a string is needed", {"", "a"}, {1, true, f}},
  {"function", "a function is needed", {f, print, called}, {1, "a", true}},
  {"object", "an object is needed", {1, "a", called}, {}},
  {"modules", "a list of modules is needed", {}, {1, "a", true}},
  {"params", "a list of parameters is needed, such as net:parameters()", {f}, {1, "a", true}},
}

-- Kinds of which an empty table may be a value.
local LISTS = {index = true, tensors = true, int1 = true, int2 = true, int3 = true, ints = true,
  shape = true, dims = true, floats = true, modules = true, params = true}

local function same(got, value)
  return rawequal(got, value) or got == value
    or type(got) == "table" and #got == 1 and got[1] == value -- a size in a row
end

describe("an argument of kind", function()
  for _, row in ipairs(KINDS) do
    it(row[1], function()
      local required = of_kind(row[1])
      local optional = of_kind(row[1], {optional = true})
      for _, value in ipairs(row[3]) do
        for _, one in ipairs {required, optional} do
          local got = one(value)
          assert.is_true(same(got, value))
          assert.is_true(same(one {a = value}, value))
        end
      end
      for _, value in ipairs(row[4]) do
        for _, one in ipairs {required, optional} do
          local listed = row[1] == "modules" or row[1] == "tensors" -- f(1) is f {1}
          if not listed then fails("bad argument 'a' to 'f' (" .. row[2], one, value) end
          fails("bad argument 'a' to 'f' (" .. row[2], one, {a = value})
        end
      end
      fails("bad argument 'a' to 'f' (" .. row[2], required)
      if row[1] ~= "object" then fails("bad argument 'a' to 'f'", required, moth.none) end
      assert.is_nil((optional()))
      assert.is_nil((optional(nil)))
      if not LISTS[row[1]] then assert.is_nil((optional {})) end
      assert.is_nil((optional(moth.none)))
      assert.is_nil((optional {a = moth.none}))
      if not row[1]:find "int%d" then assert.is_nil((of_kind(row[1] .. "?")())) end
      fails("bad argument 'a' to 'f' (given twice, by position and by name)", of_kind(row[1]),
        row[3][1] or x, {a = row[3][1] or x})
      fails("'f' has no argument 'b'", required, {b = 1})
    end)
  end

  it("dim and position has no 0", function()
    fails("bad argument 'a' to 'f' (dimensions count from 1, got 0", of_kind "dim", 0)
    fails("bad argument 'a' to 'f' (positions count from 1, got 0", of_kind "position", 0)
    fails("bad argument 'a' to 'f' (dimensions count from 1, got 0 at position 2", of_kind "dims",
      {a = {1, 0}})
  end)

  it("with a default has that value if it is absent, not for none", function()
    for _, row in ipairs {{"int", 5}, {"float", 0.5}, {"bool", false}, {"bool", true}, {"string",
      "s"}, {"dim", -1}, {"dtype", moth.int64}} do
      local one = of_kind(row[1], {default = row[2]})
      assert.equal(row[2], one())
      assert.equal(row[2], one(nil))
      assert.equal(row[2], one {})
      fails("bad argument 'a' to 'f'", one, moth.none)
    end
    local two = moth.define {name = "f", args = {{"int", "a", ""}, {"int", "b", "", same = "a"}},
      run = function(a, b) return a * 10 + b end}
    assert.equal(33, two(3))
    assert.equal(34, two(3, 4))
    assert.equal(34, two(3, {b = 4}))
    assert.equal(34, two {b = 4, a = 3})
    assert.equal(34, two {3, b = 4})
    assert.equal(34, two {3, 4})
    fails("'f' takes 2 arguments, got one more: 5", two, 3, 4, 5)
    fails("'f' takes 2 arguments, got one more: 5", two {3} and two, {3, 4, 5})
    fails("bad argument 'b' to 'f' (given twice", two, 3, 4, {b = 4})
  end)

  it("with bounds includes its ends, unless it is open", function()
    for _, row in ipairs {
      {{1, 3}, {1, 2, 3}, {0.5, 3.5, 0 / 0, -1}, "a number from 1 to 3 is needed"},
      {{0}, {0, 1e300}, {-1e-300, -1}, "a number from 0 on is needed"},
      {{0, open = true}, {1e-300, 5}, {0, -1}, "a number above 0 is needed"},
      {{0, 1, open = true}, {1e-300, 1}, {0, 1.5}, "a number above 0 to 1 is needed"},
    } do
      local one, many = of_kind("float", {bounds = row[1]}), of_kind("floats", {bounds = row[1]})
      for _, v in ipairs(row[2]) do
        assert.equal(v, one(v))
        assert.same({v, v}, many {a = {v, v}})
      end
      for _, v in ipairs(row[3]) do
        fails("bad argument 'a' to 'f' (" .. row[4], one, v)
        fails("bad argument 'a' to 'f' (" .. row[4], many, {a = {row[2][1], v}})
        assert.equal("E_DOMAIN", moth.errcode())
      end
    end
  end)

  it("with choices has the first as default, unless it is required or optional", function()
    local choices = {"mean", "sum", "none"}
    local one = of_kind("enum", {choices = choices})
    for _, name in ipairs(choices) do
      assert.equal(name, one(name))
      assert.equal(name, one {a = name})
    end
    assert.equal("mean", one())
    fails("bad argument 'a' to 'f' (one of 'mean', 'sum', 'none' is needed, got 'men'; did you "
      .. "mean 'mean'", one, "men")
    fails("one of 'mean', 'sum', 'none' is needed, got 1", one, 1)
    fails("one of 'mean', 'sum', 'none' is needed, got nothing",
      of_kind("enum", {choices = choices, required = true}))
    assert.is_nil((of_kind("enum", {choices = choices, optional = true})()))
    assert.equal("sum", of_kind("enum", {choices = choices, default = "sum"})())
  end)

  it("of lists takes them whole, without gaps", function()
    local ints = of_kind "ints"
    assert.same({1, 2, 3, 4, 5, 6}, ints {1, 2, 3, 4, 5, 6})
    assert.same({}, ints {a = {}})
    assert.same({1, 2}, {unpack(of_kind "shape"(moth.zeros(1, 2).shape))})
    for n = 1, 6 do
      local list = {}
      for i = 1, n do list[i] = i end
      for i = 1, n do
        local wrong = {unpack(list)}
        wrong[i] = 0.5
        fails(("got 0.5 at position %d"):format(i), ints, {a = wrong})
        wrong[i] = "x"
        fails(("got a string ('x') at position %d"):format(i), ints, {a = wrong})
      end
      local dims = {unpack(list)}
      dims[n] = 0
      fails(("dimensions count from 1, got 0 at position %d"):format(n), of_kind "dims", {a = dims})
    end
    for gap = 2, 4 do
      local list = {1}
      list[gap + 1] = 2
      fails("value 2 is nil", ints, {a = list})
    end
    fails("lists count from 1, and this one has an element 0", ints, {a = {[0] = 1, 2}})
    local long = {}
    for i = 1, 65 do long[i] = i end
    assert.equal(65, #ints {a = long})
    long[65] = 0.5
    fails("got 0.5 at position 65", ints, {a = long})
    long[65] = nil
    assert.equal(64, #ints {a = long})
    assert.equal(2, #of_kind "floats" {a = {0.5, 1}})
    fails("bad argument 'a' to 'f'", of_kind "floats", {a = {0.5, "x"}})
    assert.equal(2, #of_kind "tensors" {x, x})
    assert.equal(2, #of_kind "tensors"(x, x))
    fails("got 5 at position 2", of_kind "tensors", {x, 5})
  end)

  it("of 2 or 3 integers takes one for all, or a list of one", function()
    for n = 2, 3 do
      local one = of_kind("int" .. n)
      assert.equal(4, one(4))
      assert.equal(4, one {a = {4}})
      local list = {unpack({5, 6, 7}, 1, n)}
      assert.same(list, one {a = list})
      list[n + 1] = 8
      fails("bad argument 'a' to 'f'", one, {a = list})
      fails("bad argument 'a' to 'f'", one, {a = {1, 0.5, 2}})
      fails("bad argument 'a' to 'f'", one, {a = {}})
    end
    for n = 2, 3 do
      local one = of_kind("int" .. n .. "?") -- none keeps a size
      assert.equal(4, one(4))
      local list = {unpack({moth.none, 6, moth.none}, 1, n)}
      assert.same(list, one {a = list})
      fails("each of which may be moth.none, is needed", one, {a = {1, 2, 3, 4}})
      fails("each of which may be moth.none, is needed", one, {a = {1}})
    end
  end)
end)

describe("a number in a tensor", function()
  it("is taken for one number only where PyTorch does", function()
    local single = of_kind("int", {single = true})
    assert.equal(3, single(moth.tensor(3LL)))
    assert.equal(1, single(moth.tensor(true)))
    assert.equal(2.5, of_kind("float", {single = true})(moth.tensor(2.5)))
    for _, wrong in ipairs {moth.tensor(3), moth.tensor {3LL}, moth.ones(2)} do
      fails("bad argument 'a' to 'f' (an integer is needed", single, wrong)
    end
    fails("bad argument 'a' to 'f' (a number is needed", of_kind("float", {single = true}),
      moth.tensor(2.5, {requires_grad = true}))
    fails("bad argument 'a' to 'f' (a number is needed", of_kind "float", moth.tensor(2.5))
    fails("dimensions count from 1, got 0", of_kind("dim", {single = true}), moth.tensor(0LL))
    assert.equal(2, of_kind("dim", {single = true})(moth.tensor(2LL)))
    local v = moth.arange(5)
    assert.same({1, 2}, v:narrow(1, moth.tensor(2LL), 2):tolist())
    assert.same({7, 7}, moth.full({2}, moth.tensor(7.0)):tolist())
    fails("bad argument 'length' to 'narrow'", v.narrow, v, 1, 1, moth.tensor(2LL))
  end)
end)

describe("sizes as separate arguments", function()
  it("may be followed by a table of names", function()
    assert.equal("(2, 3)", tostring(moth.zeros(2, 3).shape))
    assert.equal("(2, 3)", tostring(moth.zeros({2, 3}).shape))
    assert.equal("()", tostring(moth.zeros({}).shape))
    assert.equal(moth.int64, moth.zeros(2, 3, {dtype = moth.int64}).dtype)
    assert.equal(moth.int64, moth.zeros(2, {dtype = moth.int64}).dtype)
    assert.equal("(1, 1, 1, 1, 1, 1, 1, 2)", tostring(moth.zeros(1, 1, 1, 1, 1, 1, 1, 2).shape))
    assert.equal(moth.int64, moth.zeros(1, 1, 1, 1, 1, 1, 1, 2, {dtype = moth.int64}).dtype)
    fails("at most 8", moth.zeros, 1, 1, 1, 1, 1, 1, 1, 1, 1)
    fails("value 1 is nil", moth.zeros, nil, 2)
    fails("value 2 is nil", moth.zeros, 2, nil, 3)
    fails("value 3 is nil", moth.zeros, 2, 3, nil, 4)
    fails("bad argument 'size' to 'zeros'", moth.zeros, 2, "a")
    fails("bad argument 'size' to 'zeros'", moth.zeros, 2, 0.5)
    local y = moth.arange(6)
    assert.equal("(3, 2)", tostring(y:view(3, 2).shape))
    assert.equal("(3, 2)", tostring(y:view(3, -1).shape))
    assert.equal("(2, 3, 1)", tostring(y:reshape(2, 3, 1).shape))
    assert.equal("(3, 1, 2)", tostring(y:view(3, 2, 1):permute(1, 3, 2).shape))
    assert.equal("(2, 6)", tostring(y:expand(2, 6).shape))
    fails("'view' takes 2 arguments, got one more: {2}", y.view, y, 3, {2})
  end)
end)
