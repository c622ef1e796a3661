--- bytecode_reads.lua -- finds in a function's bytecode its reads from outside: upvalues, globals,
-- and fields of tables. For captured steps (outer_values.lua).
--
-- The analysis follows registers within a basic block. A value from an upvalue or a global has a
-- path, as `cfg.loss.beta`. For any other value (a parameter, a result) only the field's name is
-- known. A read counts if the value has another use than a store: `n = n + 1` and `log[#log + 1] =
-- x` only write, if nothing else reads `n` or `log`.

local bit = require "bit"
local lib = require "moth.binding.lib"

local band, rshift = bit.band, bit.rshift

local reads = {}

local found, util = pcall(require, "jit.util")
local funcbc, funck, funcuvname, funcinfo
if found then
  funcbc, funck, funcuvname, funcinfo = util.funcbc, util.funck, util.funcuvname, util.funcinfo
end

-- ---- the instruction set ----

local NAMES = "ISLT ISGE ISLE ISGT ISEQV ISNEV ISEQS ISNES ISEQN ISNEN ISEQP ISNEP ISTC ISFC IST "
  .. "ISF ISTYPE ISNUM MOV NOT UNM LEN ADDVN SUBVN MULVN DIVVN MODVN ADDNV SUBNV MULNV DIVNV MODNV "
  .. "ADDVV SUBVV MULVV DIVVV MODVV POW CAT KSTR KCDATA KSHORT KNUM KPRI KNIL UGET USETV USETS "
  .. "USETN USETP UCLO FNEW TNEW TDUP GGET GSET TGETV TGETS TGETB TGETR TSETV TSETS TSETB TSETM "
  .. "TSETR CALLM CALL CALLMT CALLT ITERC ITERN VARG ISNEXT RETM RET RET0 RET1 FORI JFORI FORL "
  .. "IFORL JFORL ITERL IITERL JITERL LOOP ILOOP JLOOP JMP FUNCF"
local NAME = {} -- by number

local function set_names()
  local there, vmdef = pcall(require, "jit.vmdef")
  local list = there and vmdef.bcnames or NAMES:gsub("%S+", function(name)
    return name .. (" "):rep(6 - #name)
  end):gsub("(......) ", "%1")
  for i = 0, #list / 6 - 1 do NAME[i] = list:sub(6 * i + 1, 6 * i + 6):match "%S+" end
end

-- In two-slot frames a call's arguments begin one register later.
local frame = 0

local function set_frame()
  local probe = assert(lib.loadstring "local f, t = ...; f(t)")
  local ops, last = {}, nil
  for pc = 1, 30 do
    local ins = funcbc(probe, pc)
    if not ins then break end
    ops[pc] = NAME[band(ins, 255)]
    if ops[pc] == "CALL" then last = pc end
  end
  if not last or ops[last - 1] ~= "MOV" or ops[last - 2] ~= "MOV" then return false end
  frame = band(rshift(funcbc(probe, last - 1), 8), 255)
    - band(rshift(funcbc(probe, last), 8), 255) - 1
  return frame == 0 or frame == 1
end

--- True if the host has the functions that the analysis needs.
reads.possible = found and funcbc and funck and funcuvname and debug ~= nil
  and debug.getupvalue ~= nil and debug.upvaluejoin ~= nil and debug.upvalueid ~= nil or false
if reads.possible then
  set_names()
  reads.possible = set_frame()
end

-- Operand modes, as returned by funcbc.
local DST, VAR, JUMP = 1, 3, 13

local function decode(fn)
  local code = {n = 0}
  while true do
    local pc = code.n + 1
    local ins, mode = funcbc(fn, pc)
    if not ins then break end
    local at = {
      op = NAME[band(ins, 255)], a = band(rshift(ins, 8), 255), b = rshift(ins, 24),
      c = band(rshift(ins, 16), 255), d = rshift(ins, 16), ma = band(mode, 7),
      mb = band(rshift(mode, 3), 15), mc = band(rshift(mode, 7), 15),
    }
    if at.mb == 0 then at.c = at.d end
    if at.mc == JUMP then at.to = pc + 1 + at.d - 0x8000 end
    code[pc], code.n = at, pc
  end
  return code
end

-- ---- control flow ----

local RETURN = {RETM = true, RET = true, RET0 = true, RET1 = true, CALLT = true, CALLMT = true}
local TEST = {ISTC = true, ISFC = true, IST = true, ISF = true}
local LOOP_END = {FORL = true, IFORL = true, JFORL = true, ITERL = true, IITERL = true,
                  JITERL = true}

-- Sets `next`, the successors of each instruction, and `starts`, the beginnings of blocks. A
-- compiled loop has lost the jump at its end; the jump at its beginning determines it.
local function link(code)
  local starts, back = {[1] = true}, {}
  for pc = 1, code.n do
    local at = code[pc]
    if (at.op == "FORI" or at.op == "JFORI") and at.to then back[at.to - 1] = pc + 1 end
    if (at.op == "JMP" or at.op == "ISNEXT") and at.to > pc then
      local last = code[at.to + 1]
      if last and LOOP_END[last.op] and code[at.to].op:sub(1, 4) == "ITER" then
        back[at.to + 1] = pc + 1
      end
    end
  end
  for pc = 1, code.n do
    local at, after = code[pc], {}
    if RETURN[at.op] then
      starts[pc + 1] = true
    elseif at.op == "JMP" or at.op == "UCLO" or at.op == "ISNEXT" then
      after[1] = at.to
    elseif at.op:sub(1, 2) == "IS" and (TEST[at.op] or at.ma == VAR) and at.op ~= "ISTYPE"
      and at.op ~= "ISNUM" then
      after[1], after[2] = pc + 1, pc + 2
    elseif at.op == "FORI" or at.op == "JFORI" then
      after[1], after[2] = pc + 1, at.to
    elseif LOOP_END[at.op] then
      after[1], after[2] = pc + 1, back[pc]
    else
      after[1] = pc + 1
      if at.op:find "LOOP$" then starts[pc] = true end
    end
    if after[2] or after[1] ~= pc + 1 then
      starts[pc + 1] = true
      for i = 1, #after do starts[after[i]] = true end
    end
    at.next = after
  end
  return starts
end

-- ---- registers that an instruction reads and writes ----

local ALL = 255

-- Calls use(first, last) and def(first, last).
local function registers(at, use, def)
  local op, a = at.op, at.a
  if op == "CALL" or op == "CALLT" then
    local n = op == "CALL" and at.c - 1 or at.d - 1
    use(a, a)
    if n > 0 then use(a + 1 + frame, a + frame + n) end
    def(a, ALL)
  elseif op == "CALLM" or op == "CALLMT" then
    use(a, ALL)
    def(a, ALL)
  elseif op == "RET" then
    if at.d > 1 then use(a, a + at.d - 2) end
  elseif op == "RET1" then
    use(a, a)
  elseif op == "RETM" then
    use(a, ALL)
  elseif op == "ITERC" or op == "ITERN" then
    use(a - 3, a - 1)
    def(a, ALL)
  elseif op == "ISNEXT" then
    use(a - 3, a - 1)
  elseif op == "FORI" or op == "JFORI" then
    use(a, a + 2)
    def(a + 3, a + 3)
  elseif op:find "FORL$" then
    use(a, a + 2)
    def(a + 3, a + 3)
  elseif op:find "ITERL$" then
    use(a, a)
  elseif op == "KNIL" then
    def(a, at.d)
  elseif op == "VARG" then
    def(a, ALL)
  elseif op == "TSETM" then
    use(a - 1, ALL)
  elseif op == "CAT" then
    use(at.b, at.c)
    def(a, a)
  elseif op == "FNEW" then
    if a > 0 then use(0, a - 1) end -- it may capture any variable
    def(a, a)
  elseif op ~= "LOOP" and op ~= "ILOOP" and op ~= "JLOOP" and op ~= "RET0" then
    if at.ma == VAR then use(a, a) end
    if at.mb == VAR then use(at.b, at.b) end
    if at.mc == VAR then use(at.c, at.c) end
    if at.ma == DST and not TEST[op] then def(a, a) end
  end
end

-- Returns true if a register may be read after the instruction at pc, before it is written.
local function live(code, pc, r)
  local seen, queue = {}, {unpack(code[pc].next)}
  while #queue > 0 do
    local i = table.remove(queue)
    local at = code[i]
    if at and not seen[i] then
      seen[i] = true
      local used, defined = false, false
      registers(at, function(first, last) used = used or first <= r and r <= last end,
        function(first, last) defined = defined or first <= r and r <= last end)
      if used then return true end
      if not defined then
        for _, k in ipairs(at.next) do queue[#queue + 1] = k end
      end
    end
  end
  return false
end

-- ---- sites ----

-- A site is one read: {root = "up", "global" or nil, key = of the root, base = site, name = field,
-- kind = "field", "key" or "number"}. `counts`: the value has another use than a store; `tested`:
-- another use than a call of it; `escapes`: it is passed to a function, returned, or used beyond
-- the block; `stored`: it is stored elsewhere.

local CALL, TEST_OF, PASS = 1, 2, 3 -- the value is called or indexed; compared; passed on

local function mark(site, how)
  if how >= TEST_OF then site.tested = true end
  if how == PASS then site.escapes = true end
  if site.counts then return end
  site.counts = true
  if site.base then mark(site.base, CALL) end
  if site.index then mark(site.index, TEST_OF) end
end

-- Marks all sites from which a value is computed. The values in a table that the function has
-- created count when the table is used: `f {k = n}` reads n, `log[#log + 1] = {k = n}` does not.
local function mark_value(value, how)
  if not value then return end
  if value.site then mark(value.site, how) end
  for _, site in ipairs(value.from or {}) do mark(site, TEST_OF) end
  local held = value.held
  if held and not held.used then
    held.used = true
    for _, inner in ipairs(held) do mark_value(inner, PASS) end
  end
end

-- A value is stored: in a table that the function has created, or elsewhere.
local function put(into, value)
  if not value then return end
  if value.site then value.site.stored = true end
  local held = into and into.held
  if not held then return end
  if held.used then mark_value(value, PASS) else held[#held + 1] = value end
end

local function mixed(...)
  local from = {}
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    if value and value.site then from[#from + 1] = value.site end
    for _, site in ipairs(value and value.from or {}) do from[#from + 1] = site end
  end
  return {number = true, from = from}
end

local function constant(fn, at)
  return funck(fn, -at.c - 1)
end

-- A read of a field: `value` has the path of the table, `index` the sites of the key.
local function field(walk, value, name, kind, index)
  if value and value.held then mark_value(value, PASS) end
  local site = {base = value and value.site, name = name, kind = kind or "field", index = index}
  walk.sites[#walk.sites + 1] = site
  return site
end

local ARITHMETIC = {}
for name in ("ADDVN SUBVN MULVN DIVVN MODVN ADDNV SUBNV MULNV DIVNV MODNV ADDVV SUBVV MULVV DIVVV "
  .. "MODVV POW UNM"):gmatch "%S+" do ARITHMETIC[name] = true end

local INSERT = "table.insert" -- a call of it appends, and reads nothing else

local function path_of(value)
  local site = value and value.site
  if not site then return nil end
  if site.root == "global" then return site.key end
  if site.root then return nil end
  local above = path_of {site = site.base}
  return above and type(site.name) == "string" and above .. "." .. site.name
end

-- The effect of each instruction: new values of registers, and uses.
local step = {}

function step.MOV(_, at, reg) reg[at.a] = reg[at.d] end

function step.KSTR(walk, at, reg) reg[at.a] = {text = constant(walk.fn, at)} end

function step.TNEW(_, at, reg) reg[at.a] = {held = {}} end
step.TDUP = step.TNEW

function step.KSHORT(_, at, reg) reg[at.a] = {number = true} end
step.KNUM = step.KSHORT

function step.UGET(walk, at, reg)
  local site = {root = "up", key = at.d}
  walk.sites[#walk.sites + 1] = site
  reg[at.a] = {site = site}
end

function step.GGET(walk, at, reg)
  local site = {root = "global", key = constant(walk.fn, at)}
  walk.sites[#walk.sites + 1] = site
  reg[at.a] = {site = site}
end

function step.TGETS(walk, at, reg)
  local site = field(walk, reg[at.b], constant(walk.fn, at))
  reg[at.a] = {site = site}
end

function step.TGETB(walk, at, reg)
  reg[at.a] = {site = field(walk, reg[at.b], at.c)}
end

function step.TGETV(walk, at, reg)
  local key = reg[at.c]
  mark_value(key, TEST_OF)
  local site
  if key and key.text then
    site = field(walk, reg[at.b], key.text)
  else
    site = field(walk, reg[at.b], nil, key and key.number and "number" or "key", key and key.site)
  end
  reg[at.a] = {site = site}
end

function step.LEN(walk, at, reg)
  local site = field(walk, reg[at.d], nil, "number")
  reg[at.a] = {number = true, from = {site}}
end

-- Stores: reading the table, the key and the value here does not count, unless the function reads
-- the place again (settle).
local function store(walk, at, reg)
  local op, value = at.op, reg[at.a]
  local into, place
  if op == "USETV" then
    value, place = reg[at.d], {root = "up", key = at.a}
  elseif op == "GSET" then
    place = {root = "global", key = constant(walk.fn, at)}
  else
    into = reg[at.b]
    local name = op == "TSETS" and constant(walk.fn, at) or op == "TSETB" and at.c
      or op == "TSETV" and reg[at.c] and reg[at.c].text or nil
    place = {base = into and into.site, name = name, kind = name and "field" or "key"}
  end
  put(into, value)
  if value and not (into and into.held) then
    walk.stores[#walk.stores + 1] = {place = place, value = value}
  end
end
for name in ("TSETV TSETS TSETB TSETR USETV GSET"):gmatch "%S+" do step[name] = store end
for name in ("USETS USETN USETP"):gmatch "%S+" do step[name] = function() end end

-- The first argument of a call, a "passed" site: `callee` may read it without the name of a field,
-- as rawget and pairs do. `of` is the site of the argument, nil if unknown.
local function passed(walk, callee, value)
  if not callee or not callee.site then return end
  walk.sites[#walk.sites + 1] = {kind = "passed", callee = callee.site, of = value and value.site}
end

local function clear(reg, from)
  for r in pairs(reg) do
    if r >= from then reg[r] = nil end
  end
end

function step.CALL(walk, at, reg)
  local callee = reg[at.a]
  local first, last = at.a + 1 + frame, at.a + frame + at.c - 1
  local path, loaded = path_of(callee), reg[first]
  if last >= first then passed(walk, callee, loaded) end
  mark_value(callee, CALL)
  for r = first, last do
    if path ~= INSERT then mark_value(reg[r], PASS)
    elseif r > first then put(loaded, reg[r]) end
  end
  clear(reg, at.a)
  if path == "require" and loaded and loaded.text then
    reg[at.a] = {site = {root = "loaded", key = loaded.text}}
  end
end

-- Any other instruction: its reads count, its results are unknown.
local function other(at, reg)
  local how = (at.op:sub(1, 2) == "IS" and at.op ~= "ISNEXT" or at.op == "NOT") and TEST_OF or PASS
  registers(at, function(first, last)
    for r, value in pairs(reg) do
      if r >= first and r <= last then mark_value(value, how) end
    end
  end, function(first, last)
    for r in pairs(reg) do
      if r >= first and r <= last then reg[r] = nil end
    end
  end)
end

local function run(walk, code, starts)
  local reg, closure = {}, nil -- closure: the highest register that one may have captured
  for pc = 1, code.n do
    if starts[pc] then reg = {} end
    local at = code[pc]
    local known = step[at.op]
    if ARITHMETIC[at.op] then
      reg[at.a] = mixed(at.mb == VAR and reg[at.b] or nil, at.mc == VAR and reg[at.c] or nil)
    elseif known then
      known(walk, at, reg)
    else
      if at.op:sub(1, 4) == "CALL" then passed(walk, reg[at.a], reg[at.a + 1 + frame]) end
      if at.op == "ISNEXT" then passed(walk, reg[at.a - 3], reg[at.a - 2]) end
      other(at, reg)
      if at.op == "FNEW" then
        walk.protos[#walk.protos + 1] = funck(walk.fn, -at.d - 1)
        closure = math.max(closure or 0, at.a)
      end
    end
    if closure and at.ma == DST and at.a < closure then mark_value(reg[at.a], PASS) end
    if starts[pc + 1] or pc == code.n then
      for r, value in pairs(reg) do
        local reads_more = value.site or value.held or value.from and #value.from > 0
        if reads_more and live(code, pc, r) then
          mark_value(value, PASS)
        end
      end
    end
  end
end

-- ---- functions ----

local known = setmetatable({}, {__mode = "k"})

-- Sets the number of a site's upvalue.
local function set_number(site, fn, names)
  if site.root == "up" and names.inner then
    local name = funcuvname(fn, site.key)
    site.key = name and names[name]
    if not site.key then site.root = nil end
  elseif site.root == "up" then
    site.key = site.key + 1
  end
end

-- The sites of a function's code and of the functions created in it; the upvalues of these are
-- known only by name. names: the outermost function's upvalues, name -> number.
local function collect(fn, names, list)
  local walk = {fn = fn, sites = {}, protos = {}, stores = {}}
  local code = decode(fn)
  run(walk, code, link(code))
  for _, site in ipairs(walk.sites) do
    set_number(site, fn, names)
    if site.root or site.kind then list[#list + 1] = site end
  end
  for _, one in ipairs(walk.stores) do
    set_number(one.place, fn, names)
    if one.place.root or one.place.kind then list.stores[#list.stores + 1] = one
    else mark_value(one.value, PASS) end -- a variable of the function around it
  end
  local inner = setmetatable({inner = true}, {__index = names})
  for _, proto in ipairs(walk.protos) do collect(proto, inner, list) end
end

-- Returns true if two sites may be the same place.
local function same_place(a, b)
  if a.root or b.root then return a.root == b.root and a.key == b.key end
  if a.kind == "passed" or b.kind == "passed" then return false end
  if a.kind == "field" and b.kind == "field" and a.name ~= b.name then return false end
  if not a.base or not b.base then return a.base == b.base end
  return same_place(a.base, b.base)
end

-- A value counts if it is stored in a place that the function reads: `t.k = n return x * t.k`.
local function settle(list)
  local more
  repeat
    more = false
    for _, one in ipairs(list.stores) do
      for _, site in ipairs(one.done and {} or list) do
        if site.counts and same_place(site, one.place) then
          one.done, more = true, true
          mark_value(one.value, PASS)
          break
        end
      end
    end
  until not more
end

--- Marks the value of a store, an element of reads.of(fn).stores: its place is read elsewhere.
function reads.used(one)
  one.done = true
  mark_value(one.value, PASS)
end

--- The reads of a Lua function: a list of sites. A site with `root` "up" or "global" is a variable,
-- `key` its number or name. Another site has `base`, the site of the table if its path is known,
-- and `name`, or for computed keys the `kind`, "key" or "number". See above for the other fields.
-- `stores` has the stores: {place = site, value, done = true if the value counts}.
function reads.of(fn)
  local list = known[fn]
  if list then return list end
  local names = {}
  for i = 1, 255 do
    local name = debug.getupvalue(fn, i)
    if not name then break end
    names[name] = i
  end
  list = {stores = {}}
  collect(fn, names, list)
  settle(list)
  known[fn] = list
  return list
end

--- Functions that read a table without the name of a field in the bytecode, and call no metamethod:
-- "fields", or "numbers" for functions that read only positions.
reads.raw = {[rawget] = "fields", [next] = "fields", [pairs] = "fields", [ipairs] = "numbers",
             [unpack] = "numbers"}
for _, name in ipairs {"unpack", "concat", "sort", "remove", "getn", "foreachi", "move"} do
  if table[name] then reads.raw[table[name]] = "numbers" end
end
for _, name in ipairs {"maxn", "foreach"} do
  if table[name] then reads.raw[table[name]] = "fields" end
end

--- The kind of a C function, to detect functions created by others, such as coroutine.wrap.
function reads.sort(fn) return funcinfo(fn).ffid end

return reads
