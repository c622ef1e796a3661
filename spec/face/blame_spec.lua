-- Which argument of the called function an inner function's error names; what classes check; how
-- arange, range, randint, max, min and norm read their arguments.

local moth = require "moth"
local blame = require "moth.error.blame"
local class = require "moth.base.class"
local fails = require("spec.support.refusals").fails
local nan = 0 / 0

-- A call name(a, b, c) with these values, by position.
local function call(name, ...)
  return {name = name, names = {"a", "b", "c", "d"}, values = {...}, n = select("#", ...)}
end

-- The error of inner(index = value) in the call `outer`.
local function of(value, outer, text, argname)
  local inner = {name = "inner", names = {"index"}, values = {value}, n = 1}
  return blame({fname = "inner", argname = argname or "index", text = text or "is wrong"}, inner,
    outer)
end

local function named(name) return ("bad argument '%s' to 'outer' (is wrong)"):format(name) end

describe("an error of an inner function names the argument", function()
  local x, y, z = moth.rand(2, 3), moth.rand(4), moth.rand(2, 3)

  it("that is the refused object, or a list with it", function()
    assert.equal(named "b", of(x, call("outer", y, x)))
    assert.equal(named "b", of(print, call("outer", y, {y, print})))
    assert.equal(named "c", of(x, call("outer", {x}, y, x))) -- the object before the list
    local f = function() end
    assert.equal(named "b", of(f, call("outer", x, f)))
    local t = {}
    assert.equal(named "b", of(t, call("outer", x, t)))
    assert.equal(named "b", of({y, x}, call("outer", z, x))) -- of a list, an element
    assert.equal(named "b", of({{x}}, call("outer", z, x)))
  end)

  it("that shares its memory, with its own shape", function()
    assert.equal("bad argument 'b' to 'outer' (is wrong; b is f32 (2, 3))",
      of(x:t(), call("outer", y, x)))
    assert.equal("bad argument 'b' to 'outer' (got f32 (2, 3))",
      of(x:view(2, 3), call("outer", y, x), "got f32 (2, 3)"))
  end)

  it("that has its shape, if only one has", function()
    assert.equal("bad argument 'a' to 'outer' (is wrong; a is f32 (2, 3))",
      of(moth.rand(2, 3), call("outer", x, y)))
    assert.equal("outer: is wrong", of(moth.rand(2, 3), call("outer", x, z)))
    assert.equal("bad argument 'a' to 'outer' (is wrong; a is f32 (4))",
      of(moth.rand(2, 2), call("outer", y, 5))) -- else the only tensor
  end)

  it("of a list of sizes: the negative one, or the tensor of these sizes", function()
    assert.equal(named "b", of({2, -3}, call("outer", 2, -3)))
    assert.equal("outer: is wrong", of({2, -3}, call("outer", -3, -3)))
    assert.equal(named "a", of({2, 3}, call("outer", x, y)))
    assert.equal("outer: is wrong", of({2, 5}, call("outer", x, y)))
  end)

  it("number n of a list, as the text says", function()
    local text = "number 2 is wrong"
    assert.equal("bad argument 'b' to 'outer' (number 2 is wrong)",
      of({x, y}, call("outer", x, y), text))
    assert.equal("bad argument 'a' to 'outer' (number 1 is wrong)",
      of({x, y}, call("outer", x, y), "number 1 is wrong"))
  end)

  it("with the same name and value, else the only one with the value", function()
    local outer = call("outer", 3, 3)
    outer.names = {"other", "index"}
    assert.equal("bad argument 'index' to 'outer' (is wrong)", of(3, outer))
    assert.equal("outer: is wrong", of(4, outer))
    assert.equal("outer: is wrong", of(3, call("outer", 3, 3)))
    assert.equal(named "b", of(3, call("outer", 4, 3)))
    assert.equal(named "b", of(nan, call("outer", 4, nan)))
    assert.equal(named "b", of("s", call("outer", 4, "s")))
    assert.equal(named "b", of(true, call("outer", 1, true)))
    assert.equal(named "b", of(3, call("outer", 4, {5, 3})))
    for _, row in ipairs {{3, {3, 3}, true}, {{3, 3}, 3, true}, {3, {3, 4}, false}, {3, {}, false},
      {{3, 4}, 3, false}} do
      outer = call("outer", row[2])
      outer.names = {"index"}
      local named_so = "bad argument 'index' to 'outer' (is wrong)"
      if row[3] then assert.equal(named_so, of(row[1], outer)) end
    end
    outer = call("outer", x, y)
    outer.names = {"other", "index"}
    assert.equal("bad argument 'index' to 'outer' (is wrong; index is f32 (4))",
      of(moth.rand(7), outer)) -- another object of that name
  end)

  it("is kept if the outer call is no better place", function()
    local plain = call("outer", 3)
    plain.plain = true
    assert.is_nil(of(5, plain))
    assert.is_nil(of(5, call("INNER", 3)))
    assert.is_nil(of(5, call("outer", 3, function() end)))
    assert.equal("outer: is wrong", of(5, call("outer", 3)))
    local made = call("outer")
    made.names, made.n = {"index"}, 0
    assert.equal("bad argument 'index' to 'outer' (is wrong)", of(5, made)) -- a base's constructor
    assert.equal("bad argument 'a' to 'outer' (is wrong)",
      blame({fname = "inner", argname = "index", text = "is wrong"}, nil, call("outer", x, 5)))
  end)
end)

describe("a class", function()
  it("finds values by the function that its base gets later, and by a miss", function()
    local A = class "A"
    local B = class("B", A)
    local b = B()
    class.lookup(A, function(self, key)
      local value = class.of(self)[key]
      if value == nil and key == "found" then value = 1 end
      return value
    end)
    assert.equal(1, b.found)
    assert.equal(1, B().found)
    assert.equal(1, A().found)
    function B.__index(_, key) return "missed " .. key end
    assert.equal("missed other", b.other)
    assert.equal(1, b.found)
    assert.is_nil(A().other)
    local C = class("C", B)
    assert.equal("missed other", C().other)
    assert.equal(1, C().found)
  end)

  it("is known by its instances, bases and names", function()
    local A = class "A"
    local mixin = class "Mixin"
    local B = class("B", A, mixin)
    local C = class("C", B)
    local c = C()
    assert.is_true(class.isinstance(c, A) and class.isinstance(c, mixin))
    assert.is_false(class.isinstance(A(), mixin) or class.isinstance(C, A)
      or class.isinstance({}, A) or class.isinstance(5, A))
    assert.is_true(class.issubclass(C, A) and class.issubclass(A, A))
    assert.is_false(class.issubclass(A, C) or class.issubclass(c, A) or class.issubclass(5, A))
    assert.is_true(class.isclass(A))
    assert.is_false(class.isclass(c) or class.isclass {} or class.isclass(nil))
    assert.equal("C", class.typename(c))
    assert.equal("C", class.typename(C))
    assert.is_nil(class.typename {})
    assert.equal(C, class.of(c))
    assert.is_nil(class.of(C))
    assert.equal(B, class.base(C))
    assert.is_nil(class.base(class.Object))
    assert.is_nil(class.base(c))
    assert.equal("C", tostring(c))
    assert.equal("class C", tostring(C))
    class.become(c, A)
    assert.equal(A, class.of(c))
    function A.first() end
    function C.second() end
    local names = " " .. table.concat(class.methods(C), " ") .. " "
    assert.is_truthy(names:find(" first ") and names:find(" second ") and names:find(" init "))
    assert.is_nil((" " .. table.concat(class.methods(A), " ") .. " "):find " second ")
    fails("bad argument 'base' to 'class' (a class is needed, got 5; the name comes first)", class,
      "D", 5)
    fails("bad argument 'base' to 'class' (a class is needed, got a C", class, "D", C())
  end)

  it("names what an abstract method lacks, and a near name of the user's", function()
    local A = class "A"
    function A:go() class.abstract(self, "go", ":go(x)") end
    local B = class("B", A)
    fails("class 'B' has no method ':go(x)'", function() B():go() end)
    function B.goo() end
    fails("class 'B' has no method ':go(x)'; did you mean 'goo'?", function() B():go() end)
    local C = class("C", A)
    C.__go = function() end
    fails("class 'C' has no method ':go(x)'; __go is not called for it", function() C():go() end)
  end)

  it("that is guarded checks calls with '.' and the number of values", function()
    local A = class "A"
    function A:forward(x) return self, x end
    function A:step(x, y) return self, x, y end
    function A:other(...) return self, select("#", ...) end
    function A._private(x) return x end
    local forward = A.forward
    class.guard(A, "thing")
    local a = A()
    assert.same({a, 1}, {a:forward(1)})
    assert.same({a, 1, 2}, {a:step(1, 2)})
    assert.same({a, 3}, {a:other(1, nil, nil)})
    assert.equal(5, A._private(5))
    assert.equal(forward, class.written(A.forward))
    assert.equal(print, class.written(print))
    fails("A takes 1 value, got more", a.forward, a, 1, 2)
    fails("A takes 2 values, got more", a.step, a, 1, 2, 3)
    fails("'forward' was called by '.', so it does not know its object; call it with ':' -- "
      .. "thing:forward()", a.forward, 1)
    fails("'step' was called by '.'", a.step, 1)
    fails("'other' was called by '.'", a.other, 1)
    fails("'other' was called by '.'", a.other, A)
    fails("'other' was called by '.'", a.other, {})
    local guarded = A.other
    class.guard(A, "thing")
    assert.equal(guarded, A.other)
  end)
end)

describe("functions that choose an op by their arguments:", function()
  local function list(x) return x:tolist() end
  it("arange excludes its end, range includes it", function()
    for _, row in ipairs {
      {{3}, {0, 1, 2}}, {{1, 4}, {1, 2, 3}}, {{0, 1, 0.25}, {0, 0.25, 0.5, 0.75}}, {{5, 0, -2},
      {5, 3, 1}}, {{0}, {}}, {{1, 1}, {}}, {{2, 1}, nil}, {{0, 1.1, 0.5}, {0, 0.5, 1}},
    } do
      if row[2] then assert.same(row[2], list(moth.arange(unpack(row[1])))) end
    end
    assert.same({0, 1}, list(moth.arange {stop = 2}))
    assert.same({1, 2}, list(moth.arange {start = 1, stop = 3}))
    assert.equal(moth.int64, moth.arange(3).dtype)
    assert.equal(moth.float32, moth.arange(3.5).dtype)
    assert.equal(moth.float32, moth.arange(0, 1, 0.5).dtype)
    assert.equal(moth.float64, moth.arange(3, {dtype = moth.float64}).dtype)
    assert.is_true(moth.arange(3, {dtype = moth.float32, requires_grad = true}).requires_grad)
    fails("bad argument 'stop' to 'arange'", moth.arange)
    for _, row in ipairs {
      {{1, 3}, {1, 2, 3}}, {{3, 1, -1}, {3, 2, 1}}, {{0, 1, 0.25}, {0, 0.25, 0.5, 0.75, 1}},
      {{1, 1}, {1}}, {{1, 4, 2}, {1, 3}}, {{1, 5, 2}, {1, 3, 5}}, {{0, 0.9, 0.5}, {0, 0.5}},
      {{1, 0}, {}}, {{0, 1, -1}, {}}, {{0.5, 2.5}, {0.5, 1.5, 2.5}},
    } do assert.same(row[2], list(moth.range(unpack(row[1])))) end
    assert.equal(11, moth.range(0, 1, 0.1):numel())
    assert.equal(moth.int64, moth.range(1, 3).dtype)
    assert.equal(moth.float32, moth.range(1, 3, 0.5).dtype)
    assert.equal(moth.float64, moth.range(1, 3, {dtype = moth.float64}).dtype)
    fails("bad argument 'step' to 'range' (a number other than 0 is needed, got 0", moth.range, 1,
      2, 0)
    fails("bad argument 'step' to 'range' (a number other than 0 is needed, got nan", moth.range, 1,
      2, nan)
  end)

  it("randint takes one or two bounds, in each form", function()
    local function ends(...)
      local x = moth.randint(...)
      return x:min():item(), x:max():item(), x:numel(), x.dtype
    end
    assert.same({0, 2, 2000, moth.int64}, {ends(3, {2000})})
    assert.same({-2, 2, 2000, moth.int64}, {ends(-2, 3, {2000})})
    assert.same({0, 2, 2000, moth.uint8}, {ends(3, {2000}, {dtype = moth.uint8})})
    assert.same({0, 2, 2000, moth.uint8}, {ends(0, 3, {2000}, {dtype = moth.uint8})})
    assert.same({0, 2, 2000, moth.int64}, {ends {high = 3, size = {2000}}})
    assert.same({0, 2, 2000, moth.int64}, {ends(3, {size = {2000}})})
    assert.same({5, 5, 4, moth.int64}, {ends(5, 6, {2, 2})})
    local a = moth.randint(9, {5}, {generator = moth.Generator {seed = 1}})
    assert.is_true(moth.equal(a, moth.randint(9, {5}, {generator = moth.Generator {seed = 1}})))
    local p = moth.randperm(50)
    assert.same(list(moth.range(1, 50)), list((p:sort())))
    assert.equal(moth.int32, moth.randperm(3, {dtype = moth.int32}).dtype)
    assert.same({}, list(moth.randperm(0)))
  end)

  it("max and min have one, two or three forms of results", function()
    local x = moth.tensor {{1, 5, 2}, {7, 0, 3}}
    assert.equal(7, x:max():item())
    assert.equal(0, moth.min(x):item())
    local v, i = x:max(2)
    assert.same({{5, 7}, {2, 1}}, {list(v), list(i)})
    v, i = x:min(1, true)
    assert.same({{{1, 0, 2}}, {{1, 2, 1}}}, {list(v), list(i)})
    v, i = moth.max(x, {dim = -1, keepdim = true})
    assert.same({{{5}, {7}}, {{2}, {1}}}, {list(v), list(i)})
    for _, y in ipairs {x:max(moth.full({2, 3}, 3)), moth.max(x, {other = moth.full({2, 3}, 3)}),
      moth.max(x, {other = 3}), moth.max(3, {other = x})} do
      assert.same({{3, 5, 3}, {7, 3, 3}}, list(y))
    end
    fails("bad argument 'other' to 'max' (given twice", moth.max, x, x, {other = x})
    fails("bad argument 'dim' to 'max'", x.max, x, 3)
    fails("bad argument 'dim' to 'min'", x.min, x, "a")
  end)

  it("norm takes numbers, 'fro' and 'nuc'", function()
    local x = moth.tensor({{3, 0}, {0, -4}}, {dtype = moth.float64})
    for _, row in ipairs {{nil, 5}, {2, 5}, {"fro", 5}, {moth.none, 5}, {1, 7}, {0, 2}, {math.huge,
      4}, {-math.huge, 0}, {"nuc", 7}, {3, 91 ^ (1 / 3)}} do
      assert.near(row[2], moth.norm(x, row[1]):item(), 1e-12)
    end
    assert.same({3, 4}, list(x:norm(2, 1)))
    assert.same({{3, 4}}, list(x:norm(2, {1}, true)))
    assert.same({3, 4}, list(x:norm {dim = 2}))
    assert.same({7, 7}, list(moth.stack({x, x}):norm("nuc", {2, 3})))
    assert.equal(moth.float32, x:norm(2, {dim = 1, dtype = moth.float32}).dtype)
    fails("bad argument 'p' to 'norm' (a number, 'fro' or 'nuc' is needed, got a string ('l2')",
      moth.norm, x, "l2")
  end)

  it("cross_entropy reads classes or probabilities by the target's dtype", function()
    local F = moth.nn.functional
    local scores, classes = moth.randn(4, 3), moth.tensor {1LL, 3LL, 2LL, 2LL}
    local probabilities = F.one_hot(classes, 3):float()
    assert.is_true(moth.allclose(F.cross_entropy(scores, classes),
      F.cross_entropy(scores, probabilities), 1e-6, 1e-6))
    assert.equal(4, F.cross_entropy(scores, probabilities, {reduction = "none"}):numel())
    fails("bad argument 'target' to 'cross_entropy' (targets are classes", F.cross_entropy, scores,
      probabilities[1])
    fails("bad argument 'ignore_index' to 'cross_entropy' (names a class", F.cross_entropy, scores,
      probabilities, {ignore_index = 1})
    assert.equal(1, F.cross_entropy(scores, probabilities, {ignore_index = 0}):numel())
  end)
end)
