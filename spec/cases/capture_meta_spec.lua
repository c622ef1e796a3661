-- Captured steps that read through metatables: metamethods, raw reads of objects, and metatables
-- that are added, removed or changed after the recording.

local moth = require "moth"
local support = require "spec.support.bits"

local x = moth.tensor {1, 2}

-- Compares a captured step with its function, in three calls.
local function pair(fn)
  local step = moth.capture(fn, {verify = 0})
  return step, function(value)
    for _ = 1, 3 do
      local got = support.of(step(x))
      assert.are.equal(support.of(fn(x)), got)
      if value then assert.are.equal(value, got) end
    end
  end
end

describe("a captured step sees changes through metatables", function()
  -- x * read(C), and C._s changes from 5 to 6.
  local function follows(index, read)
    local C = setmetatable({_s = 5}, {__index = index})
    local _, check = pair(function(input) return input * read(C) end)
    check "5 10"
    C._s = 6
    check "6 12"
  end
  local function field(t) return t.s end

  it("rawget in __index, by a constant and by a computed name", function()
    follows(function(t) return rawget(t, "_s") end, field)
    follows(function(t, k) return rawget(t, "_" .. k) end, field)
    follows(function(t, k)
      local value = rawget(t, "_" .. k)
      return value
    end, field)
  end)

  it("rawget in a function that __index returns", function()
    follows(function(t) return function() return rawget(t, "_s") end end,
      function(t) return t.s() end)
  end)

  it("rawget and loops in functions that __index calls", function()
    local get = rawget
    local function helper(t, k) return get(t, "_" .. k) end
    follows(function(t, k) return helper(t, k) end, field)
    follows(function(t)
      local sum = 0
      for _, v in pairs(t) do sum = sum + v end
      return sum
    end, field)
    follows(function(t)
      local sum = 0
      for _, v in next, t do sum = sum + v end
      return sum
    end, field)
    follows(function(t) return (select(2, next(t))) end, field)
  end)

  it("rawget and loops over an object in a variable and in a field", function()
    local C = setmetatable({_s = 5}, {})
    local holder = {one = C}
    for i, fn in ipairs {
      function(v) return v * rawget(C, "_s") end,
      function(v) for _, s in pairs(C) do v = v * s end return v end,
      function(v) for _, s in next, C do v = v * s end return v end,
      function(v)
        local get = rawget
        return v * get(C, "_s")
      end,
      function(v)
        local _, s = pcall(rawget, C, "_s")
        return v * s
      end,
      function(v)
        local each = next
        for _, s in each, C do v = v * s end
        return v
      end,
      function(v)
        local function get(t) return rawget(t.c, "_s") end
        return v * get {c = C}
      end,
      function(v) for _, s in pairs(holder.one) do v = v * s end return v end,
      function(v) return v * rawget(holder.one, "_s") end,
    } do
      C._s = 5
      local _, check = pair(fn)
      check "5 10"
      C._s = 5 + i
      check()
    end
  end)

  it("elements of an object that is a list, by ipairs and unpack", function()
    local list = setmetatable({1, 2}, {})
    local function sum(t)
      local total = 0
      for _, v in ipairs(t) do total = total + v end
      return total + #{unpack(t)}
    end
    local _, check = pair(function(input) return input * sum(list) end)
    check "5 10"
    list[2] = 3
    check "6 12"
    list[3] = 1
    check "8 16"
  end)

  it("a metamethod that is replaced", function()
    local two = function(_, v) return v * 2 end
    local three = function(_, v) return v * 3 end
    for name, fn in pairs {
      __call = function(C, v) return C(v) end,
      __mul = function(C, v) return C * v end,
      __concat = function(C, v) return C .. v end,
      __pow = function(C, v) return C ^ v end,
    } do
      local mt = {[name] = two}
      local C = setmetatable({}, mt)
      local _, check = pair(function(input) return fn(C, input) end)
      check "2 4"
      mt[name] = three
      check "3 6"
    end
  end)

  it("__index and __eq that are replaced, added and removed", function()
    local mt = {}
    local C, D = setmetatable({}, mt), setmetatable({}, mt)
    local _, check = pair(function(input)
      return input * (C.k or 2) * (C == D and 5 or 1)
    end)
    check "2 4"
    mt.__index = {k = 3}
    check "3 6"
    mt.__index = function() return 4 end
    check "4 8"
    mt.__eq = function() return true end
    check "20 40"
    mt.__index, mt.__eq = nil, nil
    check "2 4"
  end)

  it("rawget in the __index of a base", function()
    local base = setmetatable({_s = 5}, {__index = function(t, k) return rawget(t, "_" .. k) end})
    local C = setmetatable({}, {__index = base})
    local _, check = pair(function(input) return input * C.s end)
    check "5 10"
    base._s = 6
    check "6 12"
  end)

  it("a protected metatable", function()
    local function field_of(t) return rawget(t, "_s") end
    local C = setmetatable({_s = 5}, {__index = field_of, __metatable = "protected"})
    local _, check = pair(function(input) return input * C.s end)
    check "5 10"
    C._s = 6
    check "6 12"
  end)

  it("a metatable that is set later", function()
    local key = "k"
    for _, read in ipairs {
      function(t) return t.k or 2 end,
      function(t) return t[key] or 2 end,
      function(t) if t.k then return t.k end return 2 end,
    } do
      local C, outer = {}, {}
      outer.inner = {}
      local _, check = pair(function(input) return input * read(C) * read(outer.inner) end)
      check "4 8"
      setmetatable(C, {__index = {k = 3}})
      check "6 12"
      setmetatable(outer.inner, {__index = function() return 5 end})
      check "15 30"
      setmetatable(C, nil)
      check "10 20"
    end
  end)

  it("a global that a function of the environment's metatable returns", function()
    local hidden = {factor = 2}
    local fn = loadstring "return function(input) return input * factor end"
    setfenv(fn, setmetatable({}, {__index = function(_, k) return hidden[k] end}))
    local _, check = pair(fn())
    check "2 4"
    hidden.factor = 3
    check "3 6"
  end)

  it("is recorded once if it reads only elements and other fields are assigned", function()
    local agent = setmetatable({list = {1, 2}, last = 0}, {__index = {}})
    local n = 0
    local function run(self, input)
      for _, v in ipairs(self.list) do input = input * v end
      self.last = os.clock()
      n = n + 1
      return input
    end
    local step = moth.capture(function(input) return run(agent, input) end, {verify = 0})
    for _ = 1, 5 do assert.are.same({2, 4}, step(x):tolist()) end
    assert.are.equal(1, n)
  end)
end)
