--- library.lua -- Lua's standard functions as a sandbox's scripts see them.
--
-- What reaches outside of the sandbox is absent. Functions in C that could run long or allocate
-- much check sizes first. No function here is compiled by LuaJIT, so the hook runs in their loops.

jit.off(true, true)

local pattern = require "moth.sandbox.library_pattern"
local text = require "moth.sandbox.text"

local string = {} -- as values of their own: s:find() is a function of the sandbox during its calls
for name, fn in pairs(_G.string) do string[name] = fn end

local rawget, rawset, type, select, error, pcall = rawget, rawset, type, select, error, pcall
local native_tostring, native_setmetatable, next = tostring, setmetatable, next
local metatable_of = debug.getmetatable
local running, create, yield, resume = coroutine.running, coroutine.create, coroutine.yield,
  coroutine.resume
local min, max = math.min, math.max
local concat, sort = table.concat, table.sort
local pack = function(...) return {n = select("#", ...), ...} end
local unpack = unpack

local library = {}

local STEPS = 2 ^ 20 -- steps of C's pattern matching that may run without a check
local SORTED = 200   -- values that C's sort may compare without a check

local function bad(fname, n, wanted, got)
  error(string.format("bad argument #%d to '%s' (%s expected, got %s)", n, fname, wanted,
    got == nil and "no value" or type(got)), 3)
end

local function plain(value) return type(value) == "string" or type(value) == "number" end

-- Many values on Lua's stack would overflow it between two checks; see core/host/sandbox.c.
local MOST_VALUES = 2000

local function values(t, i, j)
  if (j or type(t) == "table" and #t or 0) - (i or 1) >= MOST_VALUES then
    error("unpack: too many values; a sandbox allows " .. MOST_VALUES, 2)
  end
  return unpack(t, i, j)
end

-- ---- strings ----

-- Quantifiers that may be tried in several ways. One at the end of the pattern succeeds at once.
local function branches(p)
  local n = 0
  for at in string.gmatch(string.gsub(p, "%%[^bf]", "x"), "()[%*%+%-%?]") do
    if at > 1 then n = n + 1 end
  end
  for _ in string.gmatch(p, "%%[bf%d]") do n = n + 1 end
  if string.find(p, "[%*%+%-%?]%)?$") and not string.find(p, "%%.%)?$") then n = n - 1 end
  return max(n, 0)
end

-- May matching take long?
local function long(s, p, fname)
  local n = branches(p)
  if string.byte(p) ~= 94 or fname == "gmatch" then n = n + 1 end
  return (#s + 1) ^ n * #p > STEPS
end

-- Where a search begins: a position from 1 to that after the end.
local function first(s, init)
  init = init or 1
  if init < 0 then init = #s + init + 1 end
  return min(max(init, 1), #s + 1)
end

-- string.find without patterns, in pieces.
local function find_plain(s, p, init)
  local piece = max(1, STEPS / (#p + 1) - #p / 8)
  piece = piece - piece % 1
  while init + #p - 1 <= #s do
    local a, b = string.find(string.sub(s, init, init + piece + #p - 1), p, 1, true)
    if a then return init + a - 1, init + b - 1 end
    init = init + piece
  end
  return nil
end

local function strings(box)
  local lib = {}
  for name in string.gmatch("char len lower upper reverse sub", "%a+") do
    lib[name] = string[name]
  end

  local function check(size, fname)
    if size > box.string then
      error(string.format("%s: a string of %.0f bytes; this sandbox allows %d", fname, size,
        box.string), 3)
    end
  end
  box.check_string = check

  function lib.byte(s, i, j)
    if not plain(s) then bad("byte", 1, "string", s) end
    s = s .. ""
    local from = tonumber(i) or 1
    if from < 0 then from = max(#s + from + 1, 1) end
    j = tonumber(j) or j
    if type(j) == "number" and (j < 0 and #s + j + 1 or min(j, #s)) - from >= MOST_VALUES then
      error("byte: too many values; a sandbox allows " .. MOST_VALUES, 2)
    end
    return string.byte(s, i, j)
  end

  function lib.rep(s, n, separator)
    if not plain(s) then bad("rep", 1, "string", s) end
    if type(n) ~= "number" then bad("rep", 2, "number", n) end
    check((#(s .. "") + (separator and #separator or 0)) * max(n, 0), "rep")
    if separator then return string.rep(s, n, separator) end
    return string.rep(s, n)
  end

  function lib.find(s, p, init, is_plain)
    if not plain(s) then bad("find", 1, "string", s) end
    if not plain(p) then bad("find", 2, "string", p) end
    s, p = s .. "", p .. ""
    if is_plain or not string.find(p, "[%^%$%*%+%?%.%(%[%%%-]") then
      if #s * #p <= STEPS * 8 then return string.find(s, p, init, true) end
      return find_plain(s, p, first(s, init))
    end
    if not long(s, p) then return string.find(s, p, init) end
    local a, b, list = pattern.find(s, p, first(s, init), true)
    if not a then return nil end
    return a, b, unpack(list)
  end

  function lib.match(s, p, init)
    if not plain(s) then bad("match", 1, "string", s) end
    if not plain(p) then bad("match", 2, "string", p) end
    s, p = s .. "", p .. ""
    if not long(s, p) then return string.match(s, p, init) end
    local a, b, list = pattern.find(s, p, first(s, init), true)
    if not a then return nil end
    if #list == 0 then return string.sub(s, a, b) end
    return unpack(list)
  end

  function lib.gmatch(s, p)
    if not plain(s) then bad("gmatch", 1, "string", s) end
    if not plain(p) then bad("gmatch", 2, "string", p) end
    s, p = s .. "", p .. ""
    if not long(s, p, "gmatch") then
      local step = string.gmatch(s, p)
      return function() return step(s) end -- measure.lua counts s, an upvalue of this function
    end
    local at = 1
    return function()
      if at > #s + 1 then return nil end
      local a, b, list = pattern.find(s, p, at)
      if not a then
        at = #s + 2
        return nil
      end
      at = b >= a and b + 1 or a + 1
      if #list == 0 then return string.sub(s, a, b) end
      return unpack(list)
    end
  end

  -- The replacement of one match as a string; nil: the match stays.
  local function replacement(new, all, list)
    local value
    local key = list[1] == nil and all or list[1]
    if type(new) == "string" then
      value = string.gsub(new, "%%(.)", function(c)
        if c == "0" then return all end
        local k = tonumber(c)
        if not k then return c end
        if k == 1 and #list == 0 then return all end
        if list[k] == nil then error("invalid capture index", 0) end
        return list[k] .. ""
      end)
    elseif type(new) == "table" then
      value = new[key]
    elseif list[1] == nil then
      value = new(all)
    else
      value = new(unpack(list))
    end
    if not value then return nil end
    if not plain(value) then
      error("invalid replacement value (a " .. type(value) .. ")", 0)
    end
    return value .. ""
  end

  -- gsub in Lua: the size of the result is checked after each match.
  local function substitute(s, p, new, most)
    local out, n, size, at, count = {}, 0, 0, 1, 0
    local anchored = string.byte(p) == 94
    local function add(piece)
      size = size + #piece
      check(size, "gsub")
      n = n + 1
      out[n] = piece
    end
    while count < most and at <= #s + 1 do
      local a, b, list = pattern.find(s, p, at, true)
      if not a then break end
      count = count + 1
      add(string.sub(s, at, a - 1))
      local all = string.sub(s, a, b)
      add(replacement(new, all, list) or all)
      if b >= a then
        at = b + 1
      else
        add(string.sub(s, a, a))
        at = a + 1
      end
      if anchored then break end
    end
    if at <= #s then add(string.sub(s, at)) end
    return concat(out), count
  end

  -- A replacement that adds up the sizes, for string.gsub.
  local function counted(new, size)
    return function(...)
      local value
      if type(new) == "table" then value = new[(...)] else value = new(...) end
      if plain(value) then
        size = size + #(value .. "")
        check(size, "gsub")
      end
      return value
    end
  end

  function lib.gsub(s, p, new, most)
    if not plain(s) then bad("gsub", 1, "string", s) end
    if not plain(p) then bad("gsub", 2, "string", p) end
    s, p = s .. "", p .. ""
    local kind = type(new)
    if kind == "number" then new, kind = new .. "", "string" end
    if kind ~= "string" and kind ~= "table" and kind ~= "function" then
      error("bad argument #3 to 'gsub' (string/function/table expected)", 2)
    end
    if most ~= nil and type(most) ~= "number" then bad("gsub", 4, "number", most) end
    local slow = long(s, p, "gsub")
    if kind == "string" and not slow then
      local _, marks = string.gsub(new, "%%%d", "")
      local each = #new + marks * (#s + 1)
      slow = #s + min(most or #s + 1, #s + 1) * each > box.string
    end
    if slow then return substitute(s, p, new, most or #s + 1) end
    if kind ~= "string" then new = counted(new, #s) end
    if most then return string.gsub(s, p, new, most) end
    return string.gsub(s, p, new)
  end

  function lib.format(form, ...)
    if not plain(form) then bad("format", 1, "string", form) end
    form = form .. ""
    local list, size = pack(...), #form
    local _, marks = string.gsub(form, "%%", "")
    size = size + 110 * marks
    if string.find(string.gsub(form, "%%%%", ""), "%%[^%a]*p") then
      error("format: '%p' shows addresses, which a sandbox hides", 2)
    end
    for i = 1, list.n do
      local value = list[i]
      local kind = type(value)
      if kind == "string" then
        size = size + #value
      elseif kind == "table" or kind == "function" or kind == "thread" or kind == "userdata" then
        list[i] = box.tostring(value)
        size = size + #list[i]
      end
    end
    check(size, "format")
    local result = string.format(form, unpack(list, 1, list.n))
    check(#result, "format")
    return result
  end

  return lib
end

-- ---- tables ----

local function less(a, b) return a < b end

local function tables(box)
  local lib = {}
  for name in string.gmatch("insert remove maxn getn", "%a+") do lib[name] = table[name] end
  lib.unpack = values

  function lib.concat(t, separator, i, j)
    if type(t) ~= "table" then bad("concat", 1, "table", t) end
    i, j = i or 1, j or #t
    local size, between = 0, separator and #(separator .. "") or 0
    for k = i, j do
      local value = rawget(t, k)
      if not plain(value) then break end -- table.concat raises its error
      size = size + (k > i and between or 0) + (type(value) == "string" and #value or 14)
      if size > box.string then box.check_string(size, "concat") end
    end
    return concat(t, separator, i, j)
  end

  function lib.sort(t, order)
    if type(t) ~= "table" then bad("sort", 1, "table", t) end
    if order == nil and #t > SORTED then order = less end
    return sort(t, order)
  end

  function lib.move(from, i, j, to, into)
    if type(from) ~= "table" then bad("move", 1, "table", from) end
    into = into or from
    if to > i and to <= j and into == from then
      for k = j - i, 0, -1 do into[to + k] = from[i + k] end
    else
      for k = 0, j - i do into[to + k] = from[i + k] end
    end
    return into
  end

  function lib.foreach(t, f)
    for key, value in next, t do
      local result = f(key, value)
      if result ~= nil then return result end
    end
  end

  function lib.foreachi(t, f)
    for i = 1, #t do
      local result = f(i, t[i])
      if result ~= nil then return result end
    end
  end

  return lib
end

-- ---- coroutines, numbers, the clock ----

local function coroutines()
  local own = native_setmetatable({}, {__mode = "k"}) -- coroutines of this sandbox
  local lib = {status = coroutine.status}

  local function mine(f, fname)
    if type(f) ~= "function" then bad(fname, 1, "function", f) end
    local thread = create(f)
    own[thread] = true
    return thread
  end

  function lib.create(f) return (mine(f, "create")) end

  local function results(ok, ...)
    if not ok then error((...), 0) end
    return ...
  end

  function lib.wrap(f)
    local thread = mine(f, "wrap")
    return function(...) return results(resume(thread, ...)) end
  end

  function lib.resume(thread, ...)
    if not own[thread] then error("cannot resume a coroutine of another owner", 2) end
    return resume(thread, ...)
  end

  function lib.running()
    local thread = running()
    return own[thread or false] and thread or nil
  end

  function lib.isyieldable() return own[running() or false] == true end

  function lib.yield(...)
    if not own[running() or false] then
      error("attempt to yield from outside a coroutine", 2)
    end
    return yield(...)
  end

  return lib
end

-- Two multiplicative generators (L'Ecuyer 1988): math.random must not change the host's numbers.
local function numbers()
  local lib = {}
  for name, value in next, math do lib[name] = value end
  local a, b = 12345, 67890

  local function draw()
    a = a * 40014 % 2147483563
    b = b * 40692 % 2147483399
    return (a - b) % 2147483562 / 2147483562
  end

  function lib.randomseed(seed)
    seed = max(0, (tonumber(seed) or 0)) % 2147483398
    a, b = seed - seed % 1 + 1, 67890
    for _ = 1, 8 do draw() end
  end

  function lib.random(low, high)
    local x = draw()
    if not low then return x end
    if not high then low, high = 1, low end
    if high < low then error("bad argument to 'random' (interval is empty)", 2) end
    local n = x * (high - low + 1)
    return low + (n - n % 1)
  end

  return lib
end

local function clock()
  local lib = {time = os.time, clock = os.clock, difftime = os.difftime}
  function lib.date(form, ...)
    if form ~= nil and #(form .. "") > 100 then error("date: the format is too long", 2) end
    return os.date(form, ...)
  end
  return lib
end

-- ---- values and metatables ----

local serial, ids = 0, native_setmetatable({}, {__mode = "k"}) -- shown in place of addresses

local function shown(value)
  local kind = type(value)
  if kind ~= "table" and kind ~= "function" and kind ~= "thread" and kind ~= "userdata" then
    return native_tostring(value)
  end
  local meta = metatable_of(value)
  if type(meta) == "table" and rawget(meta, "__tostring") then return native_tostring(value) end
  if not ids[value] then
    serial = serial + 1
    ids[value] = serial
  end
  return kind .. ": " .. ids[value]
end

-- The metatable of the values CAT and CAT .. b; see text.lua.
local function concatenation(box)
  local cat, held = {}, {}
  local CAT = native_setmetatable({}, cat)
  cat.__metatable, held.__metatable = false, false
  function cat.__concat(a, b)
    if a ~= CAT then error("attempt to concatenate an operator", 2) end
    return native_setmetatable({b}, held)
  end
  local function own(value)
    local meta = type(value) == "table" and metatable_of(value)
    return meta and (rawget(meta, text.FIELD) or rawget(meta, "__concat"))
  end
  function held.__concat(a, h)
    local b = rawget(h, 1)
    if plain(a) and plain(b) then
      if type(a) == "string" and type(b) == "string" and #a + #b > box.string then
        box.check_string(#a + #b, "..")
      end
      return a .. b
    end
    local f = own(a) or own(b)
    if f then return (f(a, b)) end
    error("attempt to concatenate a " .. (plain(a) and type(b) or type(a)) .. " value", 2)
  end
  return CAT
end

local function metatables(box, env)
  local own = native_setmetatable({}, {__mode = "k"}) -- metatables that scripts have set
  box.metatables = own

  function env.getmetatable(value)
    if type(value) ~= "table" then return nil end
    local meta = metatable_of(value)
    if meta == nil then return nil end
    local shield = rawget(meta, "__metatable")
    if shield ~= nil then return shield end
    return own[meta] and meta or false
  end

  local function changeable(t) -- by raw writes, and by another metatable
    local meta = metatable_of(t)
    return meta == nil or own[meta] and rawget(meta, "__metatable") == nil
  end

  function env.setmetatable(t, meta)
    if type(t) ~= "table" then bad("setmetatable", 1, "table", t) end
    if meta ~= nil and type(meta) ~= "table" then
      error("bad argument #2 to 'setmetatable' (nil or table expected)", 2)
    end
    if not changeable(t) then error("cannot change a protected metatable", 2) end
    if meta then own[meta] = true end
    return native_setmetatable(t, meta)
  end

  function env.rawset(t, key, value)
    if type(t) ~= "table" then bad("rawset", 1, "table", t) end
    if not changeable(t) then error("rawset: this table is protected", 2) end
    return rawset(t, key, value)
  end
end

-- xpcall calls its handler where the error was raised. If that is in the hook, no hook runs in the
-- handler. So here the handler runs after the call has ended.
local function protected_call(f, handler, ...)
  local results = pack(pcall(f, ...))
  if results[1] then return unpack(results, 1, results.n) end
  return false, handler(results[2])
end

--- The globals of a sandbox, without Moth's namespace, require and load.
-- @param box  gets CAT, tostring, strings, metatables; has the field string, the longest string
function library.globals(box)
  local env = {}
  for name in string.gmatch("assert error ipairs next pairs pcall rawequal rawget select tonumber "
    .. "type", "%a+") do env[name] = _G[name] end
  env._G, env._VERSION, env.xpcall, env.unpack = env, _VERSION, protected_call,
    values
  box.tostring = shown
  env.tostring = function(...)
    if select("#", ...) == 0 then error("bad argument #1 to 'tostring' (value expected)", 2) end
    return (shown((...)))
  end
  metatables(box, env)
  box.strings = strings(box)
  env.string, env.table, env.math = box.strings, tables(box), numbers()
  env.coroutine, env.os, env.bit = coroutines(), clock(), {}
  for name, fn in next, bit do env.bit[name] = fn end
  function env.collectgarbage(what)
    if what == nil or what == "collect" or what == "step" then return 0 end
    if what == "count" then return box.counted() / 1024 end
    error("collectgarbage: only 'count' is available", 2)
  end
  function env.print(...)
    local list = pack(...)
    for i = 1, list.n do list[i] = shown(list[i]) end
    local line = env.table.concat(list, "\t")
    box.print(line)
  end
  box.CAT = concatenation(box)
  return env
end

return library
