-- A captured step and the function itself after changes from outside: each way in which a step may
-- read a value.

local moth = require "moth"

-- A row: what is read; variables; the step's body, of x; a change; and perhaps another. The text of
-- a step has the tensor `one`, and `moth`.
local ROWS = {
  {"a number", "local n = 2", "return x * n", "n = 3", "n = -3"},
  {"a boolean", "local b = true", "return b and x or x * 2", "b = false", "b = nil"},
  {"a nil", "local n", "return n and x * n or x", "n = 5", "n = false"},
  {"a string", "local s = 'ab'", "return x * #s", "s = 'abc'", "s = ''"},
  {"0 and -0", "local z = 0", "return 1 / (x * z)", "z = -0.0", "z = 0"},
  {"a bound of a loop", "local n = 2", "for _ = 1, n do x = x * 3 end return x", "n = 4", "n = 0"},
  {"a step of a loop", "local n = 1", "for i = 1, 6, n do x = x + i end return x", "n = 2",
    "n = 3"},
  {"a condition of while", "local n = 4", "local i = 0 while i < n do i = i + 1 end return x * i",
    "n = 6"},
  {"a condition of repeat", "local n = 4",
    "local i = 0 repeat i = i + 1 until i >= n return x * i",
    "n = 6"},
  {"an operand of or", "local a, b = nil, 3", "return x * (a or b)", "a = 2", "a, b = nil, 7"},
  {"an operand of and", "local a, b = true, 3", "return x * ((a and b) or 1)", "a = false",
    "b = 9"},
  {"an operand of not", "local a = true", "return not a and x or x * 2", "a = false", "a = nil"},
  {"a comparison", "local a, b = 1, 2", "return a < b and x or x * 2", "a = 3", "b = 4"},
  {"an equality", "local a, b = 1, 2", "return a == b and x or x * 2", "a = 2", "b = 3"},
  {"a concatenation", "local a, b = 'a', 1", "return x * #(a .. b)", "a = 'abc'", "b = 12345"},
  {"a power", "local a, b = 2, 3", "return x * a ^ b % 5", "a = 3", "b = 2"},
  {"a negated number", "local a = 2", "return x * -a", "a = 3"},
  {"a field", "local t = {a = 2, b = 1}", "return x * t.a", "t.a = 3", "t = {a = 4}"},
  {"a field five tables deep", "local t = {a = {b = {c = {d = {e = 2}}}}}",
    "return x * t.a.b.c.d.e", "t.a.b.c.d.e = 3", "t.a.b = {c = {d = {e = 4}}}"},
  {"a field that is absent", "local t = {}", "return x * (t.a or 1)", "t.a = 3", "t.a = nil"},
  {"a field of a metatable set later", "local t = {}", "return x * (t.a or 1)",
    "setmetatable(t, {__index = {a = 5}})"},
  {"a computed field", "local t, k = {a = 2, b = 3}, 'a'", "return x * t[k]", "k = 'b'", "t.b = 7"},
  {"a boolean key", "local t = {[true] = 2}", "return x * t[true]", "t[true] = 4"},
  {"a key with a fraction", "local t = {[0.5] = 2}", "return x * t[0.5]", "t[0.5] = 4"},
  {"a table as a key", "local k = {} local t = {[k] = 2}", "return x * t[k]", "t[k] = 4"},
  {"an element", "local t = {2, 3}", "return x * t[2]", "t[2] = 5", "t = {1, 9}"},
  {"the last element", "local t = {2, 3}", "return x * t[#t]", "t[3] = 5", "t[3] = nil"},
  {"a sum of a list", "local t = {2, 3}", "for i = 1, #t do x = x + t[i] end return x", "t[3] = 5",
    "t[1] = 9"},
  {"ipairs", "local t = {2, 3}", "for i, v in ipairs(t) do x = x + v * i end return x",
    "t[3] = 5", "t[1] = nil"},
  {"pairs", "local t = {a = 2}", "for k, v in pairs(t) do x = x + v * #k end return x",
    "t.bcd = 5", "t.a = nil"},
  {"next", "local t = {a = 2}", "return x * (next(t) and 3 or 1)", "t.a = nil", "t.b = 1"},
  {"unpack", "local t = {2, 3}", "local a, b = unpack(t) return x * a + (b or 0)", "t[2] = 5",
    "t[2] = nil"},
  {"select", "local t = {2, 3}", "return x * select('#', unpack(t))", "t[3] = 5"},
  {"table.concat", "local t = {2, 3}", "return x * tonumber(table.concat(t))", "t[3] = 5"},
  {"table.maxn", "local t = {2, 3}", "return x * table.maxn(t)", "t[9] = 5"},
  {"table.remove", "local t = {2, 3}", "local c = {unpack(t)} return x * table.remove(c)",
    "t[3] = 5"},
  {"table.sort", "local t = {2, 3}", "local c = {unpack(t)} table.sort(c) return x * c[1]",
    "t[2] = 1"},
  {"table.insert", "local t, c = {2, 3}, {5}", "local l = {} table.insert(l, t) return x * l[1][2]",
    "t[2] = 5"},
  {"a nested list", "local t = {{1, 2}, {3, 4}}", "return x * t[2][1]", "t[2][1] = 5",
    "t[2] = {6}"},
  {"rawget", "local t = setmetatable({a = 2}, {})", "return x * rawget(t, 'a')", "t.a = 3"},
  {"rawequal", "local a, b = {}, {}", "return rawequal(a, b) and x or x * 2", "b = a"},
  {"type", "local t = {a = 2}", "return type(t.a) == 'number' and x or x * 2", "t.a = 'b'"},
  {"tostring", "local n = 2", "return x * #tostring(n)", "n = 200"},
  {"tonumber", "local s = '2'", "return x * tonumber(s)", "s = '200'"},
  {"a format", "local n = 2", "return x * #('%d'):format(n)", "n = 200"},
  {"a gsub by a table", "local t = {a = 'bb'}", "return x * #('aa'):gsub('a', t)", "t.a = 'ccc'"},
  {"a gsub by a function", "local t = {a = 'bb'}",
    "return x * #('aa'):gsub('a', function(c) return t[c] end)", "t.a = 'ccc'"},
  {"a function", "local function f(v) return v * 2 end", "return f(x)",
    "f = function(v) return v * 3 end"},
  {"a variable of a function", "local n = 2 local function f(v) return v * n end", "return f(x)",
    "n = 3"},
  {"a variable two functions deep",
    "local n = 2 local function g(v) return v * n end local function f(v) return g(v) end",
    "return f(x)", "n = 3", "g = function(v) return v * 7 end"},
  {"a function in a table", "local n = 2 local t = {f = function(v) return v * n end}",
    "return t.f(x)", "n = 3", "t.f = function(v) return v end"},
  {"a function in a list", "local n = 2 local t = {function(v) return v * n end}",
    "for _, f in ipairs(t) do x = f(x) end return x", "n = 3",
    "t[2] = function(v) return v + 1 end"},
  {"a method", "local o = {n = 2} function o:go(v) return v * self.n end", "return o:go(x)",
    "o.n = 3", "function o:go(v) return v end"},
  {"a method of a class", "local C = {n = 2} C.__index = C function C:go(v) return v * self.n end "
    .. "local o = setmetatable({}, C)", "return o:go(x)", "o.n = 3", "o.n = nil C.n = 4"},
  {"an inherited method", "local A = {} A.__index = A function A:go(v) return v * self.n end "
    .. "local B = setmetatable({}, A) B.__index = B local o = setmetatable({n = 2}, B)",
    "return o:go(x)", "o.n = 3", "function B:go(v) return v end"},
  {"a class of Moth", "local C = moth.class 'C' function C:init() self.n = 2 end "
    .. "function C:go(v) return v * self.n end local o = C()", "return o:go(x)", "o.n = 3",
    "function C:go(v) return v end"},
  {"__call", "local n = 2 local o = setmetatable({}, {__call = function(_, v) return v * n end})",
    "return o(x)", "n = 3", "getmetatable(o).__call = function(_, v) return v end"},
  {"__index", "local n = 2 local o = setmetatable({}, {__index = function() return n end})",
    "return x * o.any", "n = 3"},
  {"__len of a proxy", "local o = setmetatable({}, {__index = {1, 2, 3}})", "return x * o[2]",
    "getmetatable(o).__index[2] = 5"},
  {"__add", "local n = 2 local o = setmetatable({}, {__add = function(_, v) return v * n end})",
    "return o + 3 == 6 and x or x * 2", "n = 3"},
  {"__lt", "local n = 2 local m = {__lt = function() return n == 2 end} "
    .. "local a, b = setmetatable({}, m), setmetatable({}, m)", "return a < b and x or x * 2",
    "n = 3"},
  {"__concat", "local n = 'a' local o = setmetatable({}, {__concat = function() return n end})",
    "return x * #(o .. 'z')", "n = 'abc'"},
  {"__tostring", "local n = 'a' local o = setmetatable({}, {__tostring = function() return n end})",
    "return x * #tostring(o)", "n = 'abc'"},
  {"__unm", "local n = 2 local o = setmetatable({}, {__unm = function() return n end})",
    "return x * -o", "n = 3"},
  {"getmetatable", "local o = setmetatable({}, {k = 2})", "return x * getmetatable(o).k",
    "getmetatable(o).k = 3", "setmetatable(o, {k = 4})"},
  {"pcall", "local n = 2 local function f(v) return v * n end", "return (select(2, pcall(f, x)))",
    "n = 3"},
  {"an error", "local n = 2 local function f() error({k = n}) end",
    "local _, e = pcall(f) return x * e.k", "n = 3"},
  {"a global", "N = 2", "return x * N", "N = 3", "N = nil N = 4"},
  {"a field of a global", "T = {a = 2}", "return x * T.a", "T.a = 3", "T = {a = 4}"},
  {"a global function", "local n = 2 function F(v) return v * n end", "return F(x)", "n = 3",
    "F = function(v) return v end"},
  {"a module of package.loaded", "package.loaded.my_part = {k = 2}",
    "return x * require('my_part').k", "package.loaded.my_part.k = 3",
    "package.loaded.my_part = {k = 4}"},
  {"a function of a module", "local m = {} function m.f(v) return v * m.k end m.k = 2",
    "return m.f(x)", "m.k = 3"},
  {"a string by a method", "local s = 'ab'", "return x * #s:rep(2)", "s = 'abc'"},
  {"a stored table", "local t = {k = 2}", "local l = {t} return x * l[1].k", "t.k = 3"},
  {"a table passed through a function", "local t = {k = 2} local function id(v) return v end",
    "return x * id(t).k", "t.k = 3"},
  {"a table from a function", "local t = {k = 2} local function get() return t end",
    "return x * get().k", "t.k = 3", "t = {k = 4}"},
  {"a table in a closure", "local t = {k = 2}",
    "local function inner() return t.k end return x * inner()", "t.k = 3"},
  {"a table behind varargs", "local t = {k = 2} local function f(...) return (...).k end",
    "return x * f(t)", "t.k = 3"},
  {"a swapped pair", "local a, b = 2, 3", "local c, d = b, a return x * (c - d)", "a = 5", "b = 9"},
  {"a default argument", "local d = 2 local function f(v, k) k = k or d return v * k end",
    "return f(x)", "d = 3"},
  {"a recursion", "local n = 3 local function f(k) if k == 0 then return 1 end return k * f(k - 1) "
    .. "end", "return x * f(n)", "n = 4"},
  {"a linked list", "local list = {v = 2, next = {v = 3}}",
    "local l = list while l do x = x * l.v l = l.next end return x", "list.next.v = 5",
    "list.next.next = {v = 7}"},
  {"a dispatch by name", "local ops, name = {a = function(v) return v * 2 end, b = function(v) "
    .. "return v * 3 end}, 'a'", "return ops[name](x)", "name = 'b'",
    "ops.b = function(v) return v * 5 end"},
  {"the mode of a module", "local d = moth.nn.Dropout(1)", "return d(x) + 1", "d:eval()",
    "d:train()"},
  {"a tensor replaced", "local w = one * 2", "return x * w", "w = one * 3"},
  {"a tensor in a table", "local t = {w = one * 2}", "return x * t.w", "t.w = one * 3"},
  {"a tensor written in place", "local w = one * 2", "return x * w", "w:mul_(3)"},
  {"a value of math", "", "return x * math.floor(2.5)",
    "math.floor_before = math.floor math.floor = function() return 7 end",
    "math.floor = math.floor_before math.floor_before = nil"},
  {"a number in a table that the step makes", "local n = 2", "local t = {k = n} return x * t.k",
    "n = 3"},
  {"a number in a list that the step makes", "local n = 2",
    "local t = {} t[#t + 1] = n return x * t[1]", "n = 3"},
  {"a number that table.insert adds", "local n = 2",
    "local t = {} table.insert(t, n) return x * t[1]", "n = 3"},
  {"a number in tables that the step makes", "local n = 2",
    "local t = {a = {k = n * 2}} return x * t.a.k", "n = 3"},
  {"a named argument", "local n = 2", "return moth.add(x, 1, {alpha = n})", "n = 3"},
  {"a number in a table that a function returns", "local n = 2 local function f() return {k = n} "
    .. "end", "return x * f().k", "n = 3"},
  {"a number in a table that a function gets", "local n = 2 local function f(t) return t.k end",
    "return x * f {k = n}", "n = 3"},
  {"a number that the step assigns to a field", "local n, t = 2, {}", "t.k = n return x * t.k",
    "n = 3"},
  {"a number that the step assigns to a variable", "local n, m = 2", "m = n return x * m", "n = 3"},
  {"a number that the step assigns to a global", "local n = 2", "N = n return x * N", "n = 3"},
  {"a number that another function assigns",
    "local n, m = 2 local function set() m = n end", "set() return x * m", "n = 3"},
  {"a number that an inner function assigns", "local n = 2",
    "local m local function set() m = n end set() return x * m", "n = 3"},
  {"a number that a method assigns", "local n, o = 2, {} function o:set() self.m = n end "
    .. "function o:get() return self.m end", "o:set() return x * o:get()", "n = 3"},
  {"a number that a function assigns to a field",
    "local n, o = 2, {} local function put(t) t.m = n end", "put(o) return x * o.m", "n = 3"},
  {"a number that a constructor reads", "local n = 2 local C = moth.class 'C' "
    .. "function C:init() self.k = n end", "return x * C().k", "n = 3"},
  {"a number that a constructor gets", "local n = 2 local C = moth.class 'C' "
    .. "function C:init(k) self.k = k end", "return x * C(n).k", "n = 3"},
  {"a number in a list that varargs make", "local n = 2 local function f(...) local t = {...} "
    .. "return t[1] end", "return x * f(n)", "n = 3"},
  {"a number behind two assignments", "local n, a, b = 2", "a = n b = a return x * b", "n = 3"},
  {"a number in a closure made before", "local n = 2 local function make(k) return function() "
    .. "return k() end end local g = make(function() return n end)", "return x * g()", "n = 3"},
  {"a number that rawset stores", "local n = 2",
    "local t = {} rawset(t, 'k', n) return x * t.k", "n = 3"},
  {"a number in a metatable that the step makes", "local n = 2",
    "local o = setmetatable({}, {__index = {k = n}}) return x * o.k", "n = 3"},
  {"a number that a base's constructor gets", "local n = 2 local A = moth.class 'A' "
    .. "function A:init(k) self.k = k end local B = moth.class('B', A) "
    .. "function B:init() A.init(self, n) end", "return x * B().k", "n = 3"},
  {"a number in a chain of methods", "local n = 2 local B = moth.class 'B' "
    .. "function B:set(k) self.k = k return self end function B:get() return self.k end",
    "return x * B():set(n):get()", "n = 3"},
  {"a number in merged tables", "local n = 2 local function merge(a, b) local o = {} "
    .. "for k, v in pairs(a) do o[k] = v end for k, v in pairs(b) do o[k] = v end return o end",
    "return x * merge({k = 1}, {k = n}).k", "n = 3"},
  {"a number that orders a list", "local n = 2", "local l = {{k = n}, {k = 1}} "
    .. "table.sort(l, function(p, q) return p.k < q.k end) return x * l[1].k", "n = -3"},
  {"a number of a module that the step makes", "local n = 2 local M = moth.nn.class('M', "
    .. "moth.nn.Module) function M:init() self.k = n end function M:forward(v) return v * self.k "
    .. "end", "return M()(x)", "n = 3"},
}

describe("a captured step sees changes of", function()
  local one = moth.ones(1)
  after_each(function()
    _G.N, _G.T, _G.F, package.loaded.my_part = nil, nil, nil, nil -- luacheck: ignore 122
  end)
  for _, row in ipairs(ROWS) do
    it(row[1], function()
      local list = {}
      for i = 4, #row do list[i - 3] = "function() " .. row[i] .. " end" end
      local code = ("local moth, one = ... %s return function(x) %s end, {%s}"):format(row[2],
        row[3], table.concat(list, ", "))
      local fn, changes = assert(loadstring(code, "@" .. row[1]))(moth, one)
      local step = moth.capture(fn)
      local x = moth.full({1}, 2)
      local function same(when)
        for _ = 1, 3 do
          local wanted, got = fn(x):item(), step(x):item()
          if wanted ~= got then error(("%s: %g, not %g"):format(when, got, wanted)) end
        end
      end
      same "at first"
      for i, change in ipairs(changes) do
        change()
        same("after change " .. i)
      end
      assert.is_true(step.made <= #changes + 1)
    end)
  end
end)

describe("a captured step that only stores what changes", function()
  it("is recorded once: counters, logs of numbers and of tables", function()
    local one, n, log, o = moth.ones(1), 0, {}, {n = 0}
    local step = moth.capture(function(x)
      n = n + 1
      o.n = o.n + 1
      log[#log + 1] = n
      log[#log + 1] = {step = n, more = {n * 2}}
      table.insert(log, {n})
      return x * 2
    end, 0)
    for _ = 1, 5 do assert.equal(2, step(one):item()) end
    assert.equal(1, step.made)
  end)
end)
