-- What the analysis of bytecode finds in a function: its variables, globals and fields with their
-- paths, in order. c: the read counts, it has another use than a store; t: another use than a call;
-- e: it is passed on, returned or used beyond its block; s: it is stored elsewhere.

local moth = require "moth"
local reads = require "moth.capture.bytecode_reads"

local HEAD = "local n, t, f, log, cfg, x, g = 1, {}, print, {}, {}, 2, 3 "

local ROWS = {
    {"local a = {k = n} return a.k", "n:ctes ?.k:cte"},
    {"log[#log + 1] = {k = n}", "log: log: log<number>: n:s"},
    {"local a = {k = n * 2} return a", "n:ct"},
    {"f {k = n}", "f:c n:ctes passed(f, -)"},
    {"t.a = n return t.a", "t: n:ctes t:c t.a:cte"},
    {"t.a = n return t.b", "t: n:s t:c t.b:cte"},
    {"g = n return g", "n:ctes g:cte"},
    {"glob = n return glob", "n:ctes _G.glob:cte"},
    {"g = n x = g return x", "n:ctes g:ctes x:cte"},
    {"return n", "n:cte"},
    {"n = n + 1", "n:"},
    {"n = n * 2 - x", "n: x:"},
    {"t[1] = n", "t: n:s"},
    {"t.a = t.a + 1", "t: t: t.a:"},
    {"return t.a + 1", "t:c t.a:ct"},
    {"log[#log + 1] = 5", "log: log: log<number>:"},
    {"return #log", "log:c log<number>:ct"},
    {"f(n)", "f:c n:cte passed(f, n)"},
    {"f()", "f:c"},
    {"f(t.a.b)", "f:c t:c t.a:c t.a.b:cte passed(f, t.a.b)"},
    {"return f(t)", "f:cte t:cte passed(f, t)"},
    {"t.a.b = 1", "t: t.a:"},
    {"if t.a then return 1 end", "t:c t.a:ct"},
    {"if n == 1 then return 1 end", "n:ct"},
    {"if not t.a then return end", "t:c t.a:ct"},
    {"local a = t.a; return a.b.c", "t:c t.a:c t.a.b:c t.a.b.c:cte"},
    {"return t[n]", "t:c n:ct t<key>:cte"},
    {"return t[1]", "t:c t.1:cte"},
    {"return t[300]", "t:c t<number>:cte"},
    {"return t[n + 1]", "t:c n:ct t<number>:cte"},
    {"local k = 'key' return t[k]", "t:c t.key:cte"},
    {"return (...)[n]", "n:ct ?<key>:cte"},
    {"local a = ... return a.b", "?.b:cte"},
    {"local a = ... a.b = 1", ""},
    {"local a = ... a:go(n)", "?.go:c n:cte passed(?.go, -)"},
    {"t:go()", "t:cte t.go:c passed(t.go, t)"},
    {"for i = 1, n do end", "n:cte"},
    {"for i = 1, n do f(i) end", "n:cte f:c passed(f, -)"},
    {"for k, v in pairs(t) do f(v) end", "_G.pairs:c t:cte passed(_G.pairs, t) f:c passed(f, -)"},
    {"for i, v in ipairs(t) do end", "_G.ipairs:c t:cte passed(_G.ipairs, t)"},
    {"table.insert(log, n)",
      "_G.table:c _G.table.insert:c log: n:s passed(_G.table.insert, log)"},
    {"table.concat(log)", "_G.table:c _G.table.concat:c log:cte passed(_G.table.concat, log)"},
    {"return rawget(t, 'a')", "_G.rawget:cte t:cte passed(_G.rawget, t)"},
    {"return next(t)", "_G.next:cte t:cte passed(_G.next, t)"},
    {"local a = require 'm' return a.b.c",
      "_G.require:c passed(_G.require, -) loaded.m.b:c loaded.m.b.c:cte"},
    {"return math.pi", "_G.math:c _G.math.pi:cte"},
    {"math.x = n", "_G.math: n:s"},
    {"glob = n", "n:s"},
    {"return glob", "_G.glob:cte"},
    {"glob = glob + 1", "_G.glob:"},
    {"return function() return n end", "n:cte"},
    {"return function() n = n + 1 end", "n:"},
    {"local s = n return function() return s end", "n:cte"},
    {"return n .. x", "n:cte x:cte"},
    {"return -n", "n:ct"},
    {"return not n", "n:ct"},
    {"local a = n and x return a", "n:cte x:cte"},
    {"t = {n, x}", "n:s x:s"},
    {"t = {n, k = x}", "n:s x:s"},
    {"while n > 0 do n = n - 1 end", "n:ct n:ct"},
    {"repeat n = n - 1 until n < 0", "n:ct n:ct"},
    {"return t.a(n)", "t:c t.a:cte n:cte passed(t.a, n)"},
    {"return t.a.b:go(x)", "t:c t.a:c t.a.b:cte t.a.b.go:cte x:cte passed(t.a.b.go, t.a.b)"},
    {"local a = n local b = a return b", "n:cte"},
    {"g = n", "n:s"},
    {"g = t.a", "t: t.a:s"},
    {"t.f = f", "t: f:s"},
    {"return f(f(n))", "f:cte f:c n:cte passed(f, n) passed(f, -)"},
    {"local a = f(n) return a.b", "f:c n:cte passed(f, n) ?.b:cte"},
    {"f(n, ...)", "f:cte n:cte passed(f, n)"},
    {"return f(...)", "f:cte passed(f, -)"},
    {"f(t, ...)", "f:cte t:cte passed(f, t)"},
    {"return t.a, t.b", "t:c t.a:cte t:c t.b:cte"},
    {"return t, n", "t:cte n:cte"},
    {"return ...", ""},
    {"t[n] = x", "t: n: x:s"},
    {"t[n], t[x] = x, n", "t: n: t: x: x:s n:s"},
    {"goto done f(n) ::done::", "f:c n:cte passed(f, n)"},
    {"local a if x then a = n end return a", "x:ct n:cte"},
    {"local a = n a = 1 return a", "n:"},
    {"return select('#', n)", "_G.select:cte n:cte passed(_G.select, -)"},
    {"t.a[n] = 1", "t: t.a: n:"},
    {"local s = 0 for i = 1, #t do s = s + t[i] end return s", "t:c t<number>:ct t:c t<key>:ct"},
}

local function text_of(fn)
  local names, list = {}, {}
  for i = 1, 60 do
    local name = debug.getupvalue(fn, i)
    if not name then break end
    names[i] = name
  end
  local function path(site)
    if site.root == "up" then return names[site.key] end
    if site.root == "global" then return "_G." .. site.key end
    if site.root == "loaded" then return "loaded." .. site.key end
    local base = site.base and path(site.base) or "?"
    if site.kind == "field" then return base .. "." .. tostring(site.name) end
    return base .. "<" .. site.kind .. ">"
  end
  for i, site in ipairs(reads.of(fn)) do
    if site.kind == "passed" then
      list[i] = ("passed(%s, %s)"):format(path(site.callee), site.of and path(site.of) or "-")
    else
      list[i] = path(site) .. ":" .. (site.counts and "c" or "") .. (site.tested and "t" or "")
        .. (site.escapes and "e" or "") .. (site.stored and "s" or "")
    end
  end
  return table.concat(list, " ")
end

describe("the reads of a function:", function()
  for _, row in ipairs(ROWS) do
    it(row[1], function()
      local function make()
        return assert(loadstring(HEAD .. "return function(...) " .. row[1] .. " end"))()
      end
      assert.equal(row[2], text_of(make()))
    end)
  end

  it("are the same after LuaJIT has compiled its loops", function()
    local source = HEAD .. "return function(m) local s = 0 for i = 1, m do s = s + n end "
      .. "for _, v in ipairs(log) do s = s + v end while s > 1e9 do s = s - cfg.a end "
      .. "repeat s = s + 1 until s > x return s end"
    local cold, hot = loadstring(source)(), loadstring(source)()
    for _ = 1, 200 do hot(200) end
    assert.equal(text_of(cold), text_of(hot))
  end)
end)

describe("a value that a captured step puts into a list", function()
  it("is watched by the fields that are read there, for each way to put it", function()
    local one, cfg = moth.ones(1), {k = 2}
    for _, step in ipairs {
      moth.capture(function(x) local l = {} table.insert(l, cfg) return x * l[1].k end),
      moth.capture(function(x) local l = {} table.insert(l, 1, cfg) return x * l[1].k end),
      moth.capture(function(x) local l = {} l[#l + 1] = cfg return x * l[1].k end),
      moth.capture(function(x) local l = {cfg} return x * l[1].k end),
      moth.capture(function(x) local l = {a = cfg} return x * l.a.k end),
      moth.capture(function(x) local l = {} l.a = cfg return x * l.a.k end),
    } do
      for _, k in ipairs {2, 2, 2, 5, 5, 2} do
        cfg.k = k
        assert.equal(k, step(one):item())
      end
    end
  end)
end)
