-- Classes: inheritance, super calls, metamethods, mixins, and errors of wrong use.

local class = require "moth.base.class"
local moth = require "moth"
local nn = moth.nn

describe("a class", function()
  it("makes instances by being called, with the arguments of init", function()
    local Point = class("Point")
    function Point:init(x, y) self.x, self.y = x, y end
    function Point:sum() return self.x + self.y end
    assert.equal(7, Point(3, 4):sum())
  end)

  it("makes instances without its own constructor", function()
    local Empty = class("Empty")
    assert.equal("Empty", class.typename(Empty()))
  end)

  it("passes trailing nils on to init", function()
    local Count = class("Count")
    function Count:init(...) self.n = select("#", ...) end
    assert.equal(3, Count(1, nil, nil).n)
  end)

  it("keeps instances apart", function()
    local Box = class("Box")
    function Box:init(v) self.v = v end
    local a, b = Box(1), Box(2)
    a.v = 5
    assert.equal(2, b.v)
  end)

  it("prints its name, as its instances do by default", function()
    local Thing = class("Thing")
    assert.equal("class Thing", tostring(Thing))
    assert.equal("Thing", tostring(Thing()))
  end)
end)

describe("inheritance", function()
  local A = class("A")
  function A:init(x) self.x = x end
  function A:get() return self.x end
  function A:__tostring() return "A" .. self.x end
  function A:__add(other) return self.x + other.x end
  function A:__len() return self.x end

  it("finds methods three levels up", function()
    local C = class("C", class("B", A))
    assert.equal(5, C(5):get())
  end)

  it("runs super calls through three levels", function()
    local log = {}
    local One = class("One")
    function One:init(x) log[#log + 1] = "one" self.x = x end
    function One:describe() return "one" .. self.x end
    local Two = class("Two", One)
    function Two:init(x, y) One.init(self, x) log[#log + 1] = "two" self.y = y end
    function Two:describe() return One.describe(self) .. " two" .. self.y end
    local Three = class("Three", Two)
    function Three:init(x, y, z) Two.init(self, x, y) log[#log + 1] = "three" self.z = z end
    function Three:describe() return Two.describe(self) .. " three" .. self.z end
    assert.equal("one1 two2 three3", Three(1, 2, 3):describe())
    assert.same({"one", "two", "three"}, log)
  end)

  it("passes metamethods to subclasses of subclasses", function()
    local C = class("C", class("B", A))
    assert.equal("A4", tostring(C(4)))
    assert.equal(3, C(1) + C(2))
    assert.equal(7, A.__len(C(7)))
  end)

  it("sees a metamethod that a base got after the subclass was made", function()
    local Base = class("Base")
    local Sub = class("Sub", class("Middle", Base))
    function Base:__call(a) return "called with " .. a end
    assert.equal("called with 3", Sub()(3))
  end)

  it("lets a subclass replace a metamethod, call the base's, and remove it again", function()
    local B = class("B", A)
    local C = class("C", B)
    function B:__tostring() return "B" .. A.__tostring(self) end
    assert.equal("BA4", tostring(C(4)))
    B.__tostring = nil
    assert.equal("A4", tostring(C(4)))
  end)

  it("calls __index only for keys that neither the instance nor its classes have", function()
    local C = class("C", A)
    function C:__index(key) return key .. "!" end
    local D = class("D", C)
    assert.equal("foo!", D(1).foo)
    assert.equal(1, D(1):get())
    assert.equal(1, D(1).x)
  end)

  it("does not leak a subclass's methods into its base", function()
    local B = class("B", A)
    function B:only() return true end
    assert.is_nil(A(1).only)
  end)

  it("accepts mixins", function()
    local Greeting = {hello = function(self) return "hello " .. self.x end}
    local E = class("E", A, Greeting)
    assert.equal("hello 3", E(3):hello())
    assert.is_true(class.isinstance(E(1), Greeting))
    assert.equal("A3", tostring(E(3)))
  end)
end)

describe("a query", function()
  local A = class("A")
  local B = class("B", A)

  it("isinstance knows subclasses, not superclasses, classes or other values", function()
    assert.is_true(class.isinstance(B(), A))
    assert.is_true(class.isinstance(B(), B))
    assert.is_false(class.isinstance(A(), B))
    assert.is_false(class.isinstance(B, A))
    for _, other in ipairs {3, "A", {}, moth.ones(1)} do
      assert.is_false(class.isinstance(other, A))
    end
    assert.is_false(class.isinstance(nil, A))
  end)

  it("typename names instances and classes", function()
    assert.equal("B", class.typename(B()))
    assert.equal("B", class.typename(B))
    assert.is_nil(class.typename {})
  end)

  it("of and base return classes", function()
    assert.equal(B, class.of(B()))
    assert.equal(A, class.base(B))
    assert.is_true(class.isclass(B))
    assert.is_false(class.isclass(B()))
  end)
end)

describe("a wrong class definition", function()
  it("raises if the name is not first", function()
    local A = class("A")
    assert.has_error_like(function() class(A) end,
      "bad argument 'name' to 'class' %(a string is needed, got the class A%)")
    assert.has_error_like(function() class("B", 3) end, "a class is needed, got 3; the name comes")
  end)

  it("names the method that a subclass lacks, and suggests a near name", function()
    local A = class("A")
    function A:must() class.abstract(self, "must", ":must(x)") end
    local B = class("B", A)
    function B:musst() end
    assert.has_error_like(function() B():must() end,
      "class 'B' has no method ':must%(x%)'; did you mean 'musst'%?")
  end)
end)

describe("nn.class", function()
  it("accepts any class of Moth as base", function()
    for _, base in ipairs {nn.Module, nn.Linear, moth.data.Dataset, moth.optim.Optimizer,
                           moth.autograd.Function} do
      local Sub = nn.class("Sub", base)
      assert.equal(base, class.base(Sub))
    end
  end)

  it("passes arguments to a user's constructor unchanged", function()
    local Mine = nn.class("Mine", nn.Linear)
    local seen
    function Mine:init(...)
      seen = {...}
      nn.Linear.init(self, 2, 3)
    end
    Mine({a = 1}, "x")
    assert.same({{a = 1}, "x"}, seen)
  end)

  it("accepts named arguments in a super call, as the class itself does", function()
    local Square = nn.class("Square", nn.Linear)
    function Square:init(n) nn.Linear.init(self, n, n, {bias = false}) end
    local m = Square(4)
    assert.equal(4, m.out_features)
    assert.is_nil(m.bias)
  end)

  it("uses the base's constructor if it has none, also with named arguments", function()
    local Mine = nn.class("Mine", nn.Conv2d)
    local m = Mine{1, 2, kernel_size = 3}
    assert.same({3, 3}, m.kernel_size)
    assert.is_true(nn.isinstance(m, nn.Conv2d))
    assert.equal("Mine", nn.typename(m))
  end)
end)
