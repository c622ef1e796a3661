--- outer_values.lua -- watches the values that a captured step reads from outside: variables,
-- globals, fields of tables, objects and modules, present or not. The step is recorded again if
-- one changes.
--
-- bytecode_reads.lua finds in the bytecode which variables and fields the step's functions read.
-- This file resolves them to values, from the step to every function, table and module that it can
-- reach. A field of a table with a known path is watched there; a field of an unknown table
-- (`self.beta`) is watched in every reached table. Tables that are passed to a function are
-- watched fully.
--
-- `note` collects values before the step runs, `settle` decides after it: a value that the step
-- changes and reads cannot be a constant.

local class = require "moth.base.class"
local errors = require "moth.error"
local ffi = require "ffi"
local lib = require "moth.binding.lib"
local kinds = require "moth.capture.table_kinds"
local look = require "moth.capture.outer_compare"
local reads = require "moth.capture.bytecode_reads"

local outside = {}

-- Also returns a metatable that __metatable protects.
local shown = getmetatable
local getmetatable = debug and debug.getmetatable or getmetatable

local MAX_ROWS = 20000 -- rows
local MAX_NAME = 200 -- characters of a name; the middle of longer names is omitted

-- Methods that Moth's code calls, although no user function names them.
local CALLED = {"forward", "backward", "setup_context", "init"}

-- Metamethods whose absence on a table causes no error.
local OPTIONAL = {"__index", "__newindex", "__len", "__eq", "__pairs", "__ipairs"}

local FILE = io and io.stdout and debug and debug.getmetatable(io.stdout)

-- The kind of functions that coroutine.wrap creates.
local wrapped = reads.possible and reads.sort(coroutine.wrap(function() end))

local is_own, equal, same_shape = errors.is_own, look.equal, look.same_shape
local UPVALUES = look.UPVALUES

local LIBRARIES, own_class, is_chained = kinds.LIBRARIES, kinds.own_class, kinds.is_chained

--- The kind of a table.
outside.sort_of = kinds.sort_of
local sort_of = outside.sort_of

-- ---- rows ----

local function refuse(all, place, why)
  errors.raise(("moth.capture cannot watch '%s', which the step at %s reads: %s"):format(place,
    all.step, why), "E_UNSUPPORTED")
end

local now_of = {
  raw = function(row) return rawget(row.table, row.key) end,
  index = function(row) return row.table[row.key] end,
  meta = function(row) return shown(row.table) end,
  count = function(row) return look.holds(row.table, row.value) and row.value or -1 end,
}

local function now(row)
  if row.fn then return (select(2, debug.getupvalue(row.fn, row.at))) end
  return now_of[row.kind](row)
end

-- The row of a field; each field has one row. nil if there is none.
local function add_row(all, kind, t, key, value, name)
  local seen = all.rows_of[t]
  if not seen then
    seen = {}
    all.rows_of[t] = seen
  end
  local id = kind == "raw" and key or kind
  if kind == "index" then id = "index " .. tostring(key) end
  if seen[id] then return seen[id] end
  if #all.rows >= MAX_ROWS then
    refuse(all, name, ("more than %d values are read; pass the needed values as tensors among the "
      .. "arguments"):format(MAX_ROWS))
  end
  local row = {kind = kind, table = t, key = key, value = value, name = name}
  all.rows[#all.rows + 1] = row
  seen[id] = row
  return row
end

local function place_of(place, key)
  if #place > MAX_NAME then
    place = place:sub(1, MAX_NAME / 4) .. "..." .. place:sub(-MAX_NAME / 4)
  end
  if type(key) == "string" then return place .. "." .. key end
  -- tostring would read the values of a tensor
  return ("%s[%s]"):format(place, lib.istensor(key) and "a tensor" or tostring(key))
end

-- ---- following values ----

local add_function, add_module, contents

-- Adds a row that t has no metatable, because a metatable may define absent fields later.
local function add_no_metatable(all, t, place)
  if getmetatable(t) == nil then add_row(all, "meta", t, nil, nil, "the metatable of " .. place) end
end

-- Adds a value that is read. how: {tested, escapes}; escapes: it is passed on, so its contents
-- count.
local function reach(all, value, place, escapes)
  local sort = type(value)
  if sort == "function" then
    if wrapped and reads.sort(value) == wrapped then
      refuse(all, place, "it is a coroutine, whose state a replay cannot see")
    end
    add_function(all, value, place)
  elseif sort == "thread" then
    refuse(all, place, "it is a coroutine, whose state a replay cannot see")
  elseif sort == "userdata" then
    local meta = debug.getmetatable(value)
    if meta and meta ~= FILE then
      refuse(all, place, "it is userdata, which may change unseen; use a table or a tensor")
    end
  elseif sort == "table" then
    outside.add_table(all, value, place, escapes)
  elseif sort == "cdata" and not lib.istensor(value) then
    local text = tostring(ffi.typeof(value))
    if text:find "[%*%[]" and not text:find "moth" or text:find "^ctype<struct" and
       not text:find "moth" then
      refuse(all, place, "it is C data, which may change unseen; use a table or a tensor")
    end
  end
end

-- Adds one named field of a table that was reached.
local function add_name(all, t, name, how, place)
  local value = rawget(t, name)
  if value ~= nil then
    add_row(all, "raw", t, name, value, place_of(place, name)).strict = how.counts
    if how.raw then outside.add_raw(all, value, place_of(place, name)) end
    return reach(all, value, place_of(place, name), how.escapes)
  end
  if getmetatable(t) == nil then
    if how.tested then
      add_row(all, "raw", t, name, nil, place_of(place, name)).strict = true
      add_no_metatable(all, t, place)
    end
    return
  end
  if not is_chained(t, name) then
    add_row(all, "raw", t, name, nil, place_of(place, name)).strict = how.counts
    return
  end
  value = t[name]
  if value == nil and not how.tested then return end
  add_row(all, "index", t, name, value, place_of(place, name)).strict = how.counts
  reach(all, value, place_of(place, name), how.escapes)
end

-- Adds a field of a module if it is a field of the class: the module's own fields are watched as a
-- whole.
local function add_module_name(all, module, name, how, place)
  local store = module[all.STORE]
  local value = store.fields[name]
  if value == nil then
    value = rawget(store, "class")[name]
    if type(value) == "function" and not is_own(class.written(value)) then
      add_row(all, "index", store.class, name, value, place_of(place, name))
    end
  end
  if type(value) == "table" and sort_of(value) == "module" then return end
  reach(all, value, place_of(place, name), how.escapes)
end

-- Returns true if a read of this value counts. Tensors always count: ops read their elements. A
-- value that is stored elsewhere may be read there.
local function matters(how, value)
  return how.counts or lib.istensor(value)
    or how.stored and (type(value) == "table" or type(value) == "function")
end

-- Adds a field of an object of Moth, such as an optimizer's param_groups.
local function add_opaque_name(all, t, name, how, place)
  local value = rawget(t, name)
  if value == nil or not how.counts then return end
  add_row(all, "raw", t, name, value, place_of(place, name)).own = true
  reach(all, value, place_of(place, name))
end

local function apply(all, entry, name, how)
  local t = entry.table
  if entry.sort == "module" then
    if type(name) == "string" then add_module_name(all, t, name, how, entry.place) end
  elseif entry.sort == "opaque" then
    add_opaque_name(all, t, name, how, entry.place)
  elseif entry.sort == "table" and matters(how, rawget(t, name)) then
    add_name(all, t, name, how, entry.place)
  end
end

-- Adds the positions of an object that is a list.
local function numbers(all, t, place)
  for key, value in next, t do
    if type(key) == "number" then
      add_row(all, "raw", t, key, value, place_of(place, key)).whole = true
      reach(all, value, place_of(place, key), true)
    end
  end
  add_row(all, "raw", t, #t + 1, nil, place_of(place, #t + 1)).whole = true
end

local function add_contents(all, t, place)
  local n = 0
  for key, value in next, t do
    n = n + 1
    local at = place_of(place, key)
    if type(key) ~= "string" or key ~= all.STORE then
      local row = add_row(all, "raw", t, key, value, at)
      row.whole = true
      reach(all, value, at, true)
    end
  end
  add_no_metatable(all, t, place)
  add_row(all, "count", t, nil, n, place .. " (the number of its entries)").whole = true
end

-- Adds the contents of a table and of its plain tables. It uses a list of pending tables instead
-- of recursion, because a linked list may be long.
contents = function(all, t, place)
  if all.whole[t] then return end
  all.whole[t] = true
  local waiting = all.waiting
  if waiting then
    waiting[#waiting + 1] = {t, place}
    return
  end
  all.waiting = {{t, place}}
  for _, one in ipairs(all.waiting) do add_contents(all, one[1], one[2]) end
  all.waiting = nil
end

local function add_metatable(all, t, place)
  local meta = getmetatable(t)
  if type(meta) ~= "table" then return end
  add_row(all, "meta", t, nil, shown(t), "the metatable of " .. place)
  if all.metas then outside.add_table(all, meta, "the metatable of " .. place) end
  for _, key in ipairs(OPTIONAL) do
    if rawget(meta, key) == nil then add_row(all, "raw", meta, key, nil, place_of(place, key)) end
  end
  for key, value in next, meta do
    if type(key) == "string" and key:find "^__" then
      local kind = type(value)
      if kind == "function" or kind == "table" then
        add_row(all, "raw", meta, key, value, place_of(place, key))
      end
      if kind == "function" then
        add_function(all, value, place .. "." .. key)
      elseif kind == "table" and key == "__index" and not is_chained(t) then
        outside.add_table(all, value, place_of(place, key))
      end
    end
  end
end

--- Adds a table that the step can reach.
-- @param escapes  true: it is passed to functions, which may read all of it
function outside.add_table(all, t, place, escapes)
  local entry = all.tables[t]
  if not entry then
    local sort = sort_of(t)
    entry = {table = t, place = place, sort = sort}
    all.tables[t] = entry
    if sort == "module" then return add_module(all, t, place) end
    if sort == "data" then contents(all, t, place) end
    if sort ~= "table" and sort ~= "opaque" then return end
    all.list[#all.list + 1] = entry
    if sort == "opaque" then
      for name, how in pairs(all.names) do apply(all, entry, name, how) end
      return
    end
    add_metatable(all, t, place)
    for _, name in ipairs(CALLED) do
      local value = not lib.is_plain(t) and is_chained(t) and t[name]
      if type(value) == "function" then reach(all, value, place_of(place, name)) end
    end
    for name, how in pairs(all.names) do apply(all, entry, name, how) end
    if all.any and not lib.is_plain(t) then contents(all, t, place) end
    if all.numbered and not lib.is_plain(t) then numbers(all, t, place) end
  end
  if escapes and lib.is_plain(t) and entry.sort == "table" then contents(all, t, place) end
end

-- ---- modules ----

local function snapshot(store)
  local copy = setmetatable({}, {__mode = "v"})
  for name, value in pairs(store.fields) do copy[name] = value end
  return copy
end

-- shallow: without submodules, for a parent of a module that runs.
add_module = function(all, module, place, shallow)
  local Module = package.loaded["moth.nn.module"]
  local STORE = Module.store_key
  all.STORE, all.sight = STORE, Module.sight
  local store = module[STORE]
  local entry = all.tables[module] or {table = module, place = place, sort = "module"}
  all.tables[module] = entry
  if all.stores[store] then return end
  all.stores[store] = true
  all.list[#all.list + 1] = entry
  all.modules[#all.modules + 1] = {module = module, store = store, fields = snapshot(store),
                                   changed = {}, place = place}
  for i = 1, #module do
    local name = ("'[%d]' of %s"):format(i, class.typename(module))
    local row = add_row(all, "raw", module, i, rawget(module, i), name)
    row.part, row.module, row.own = true, module, true
  end
  if store.names then
    local name = ("'[%d]' of %s"):format(#module + 1, class.typename(module))
    local row = add_row(all, "raw", module, #module + 1, nil, name)
    row.part, row.module, row.own = true, module, true
  end
  local forward = module.forward
  if type(forward) == "function" then add_function(all, class.written(forward), place) end
  if not is_own(class.written(forward)) and not rawget(store.fields, "forward") then
    add_row(all, "index", store.class, "forward", store.class.forward,
      class.typename(module) .. ".forward").part = true
  end
  for _, list in pairs(store.hooks or {}) do
    for _, hook in ipairs(list) do
      if type(hook.fn) == "function" then add_function(all, hook.fn, place .. "'s hook") end
    end
  end
  for name, how in pairs(all.names) do apply(all, entry, name, how) end
  for _, child in ipairs(shallow and {} or module:_children()) do
    add_module(all, child[2], place .. "." .. child[1])
  end
end

--- Adds a module that runs while the step is recorded, and its parents: a step may call net.head
-- without calling net.
function outside.module(all, module)
  if all.stores[module[package.loaded["moth.nn.module"].store_key]] then return end
  add_module(all, module, class.typename(module))
  local parent = all.sight.parents[module]
  while parent and not all.stores[parent[all.STORE]] do
    add_module(all, parent, class.typename(parent), true)
    parent = all.sight.parents[parent]
  end
end

-- ---- functions ----

-- Adds a function of Moth that wraps a user's function, such as moth.func.grad(f).
local function add_own(all, fn)
  for i = 1, UPVALUES do
    local name, value = debug.getupvalue(fn, i)
    if not name then return end
    if type(value) == "function" then add_function(all, value, name) end
  end
end

-- The value of a read with a known path, and its name; adds rows along the path.
local function resolve(all, fn, site)
  local done = all.sites[site]
  if done and done.fn == fn then return done.value, done.place end
  local value, place
  if site.root == "up" then
    local name, found = debug.getupvalue(fn, site.key)
    value, place = found, name ~= "" and name or "upvalue " .. site.key
    local id = debug.upvalueid(fn, site.key)
    local cell = all.cells_of[id]
    if not cell and matters(site, value) then
      cell = {fn = fn, at = site.key, value = value, name = place}
      all.cells[#all.cells + 1], all.cells_of[id] = cell, cell
    end
    if cell then cell.strict = true end
  elseif site.root == "global" then
    local env = getfenv(fn)
    local kind = "raw"
    all.globals[#all.globals + 1] = {env, site.key}
    value, place = rawget(env, site.key), site.key
    if value == nil and site.tested then add_no_metatable(all, env, "_G") end
    if value == nil and getmetatable(env) ~= nil and is_chained(env, site.key) then
      kind, value = "index", env[site.key]
    end
    local seen = value
    if value == nil and not is_chained(env, site.key) then -- libraries are followed
      local found, indexed = pcall(function() return env[site.key] end)
      if found and indexed ~= nil then kind, seen = "index", indexed end
      if found and indexed ~= nil and LIBRARIES[indexed] then value = indexed end
    end
    if matters(site, seen) then
      add_row(all, kind, env, site.key, seen, place).strict = true
    end
  elseif site.root == "loaded" then
    value, place = package.loaded[site.key], site.key
    add_row(all, "raw", package.loaded, site.key, value, "package.loaded." .. place).own = true
  end
  all.sites[site] = {fn = fn, value = value, place = place}
  return value, place
end

local function is_rooted(site)
  while site.base do site = site.base end
  return site.root ~= nil
end

local FLAGS = {"counts", "tested", "escapes", "stored", "raw"}

-- Adds a method of a string. Returns it and its name.
local function add_string_method(all, name)
  local value, place = string[name], "string." .. name
  add_row(all, "raw", string, name, value, place).own = true
  reach(all, value, place)
  return value, place
end

local function floating(all, name, site)
  local how, more = all.names[name] or {}, false
  if not all.names[name] and type(name) == "string" and string[name] then
    add_string_method(all, name)
  end
  all.names[name] = how
  for _, flag in ipairs(FLAGS) do
    if site[flag] and not how[flag] then how[flag], more = true, true end
  end
  for i = 1, more and #all.list or 0 do apply(all, all.list[i], name, how) end
end

-- From now on every object may be read by computed keys. Plain tables were passed on before.
local function computed(all, flag, add)
  if all[flag] then return end
  all[flag] = true
  for i = 1, #all.list do
    local entry = all.list[i]
    if entry.sort == "table" and not lib.is_plain(entry.table) then
      add(all, entry.table, entry.place)
    end
  end
end

local visit

-- Adds a field of a table whose path is known.
local function add_field(all, fn, site)
  local t, place = visit(all, fn, site.base)
  if type(t) ~= "table" then
    if type(t):find "data$" and site.counts then reach(all, t, place) end
    if type(t) == "string" and type(site.name) == "string" and string[site.name] then
      return add_string_method(all, site.name)
    end
    return nil
  end
  local sort = sort_of(t)
  if site.kind ~= "field" then
    if sort == "library" and site.counts then refuse(all, place, "it is read by computed names") end
    if sort == "table" and site.counts then
      outside.add_table(all, t, place)
      contents(all, t, place)
    end
    return nil
  end
  local name = site.name
  local value = rawget(t, name)
  if sort == "library" then
    if value == nil and not LIBRARIES[t] then -- loads it
      local there, found = pcall(function() return t[name] end)
      value = there and found or nil
    end
    if site.counts then
      add_row(all, "raw", t, name, rawget(t, name), place_of(place, name)).own = true
    end
  elseif sort == "module" then
    outside.add_table(all, t, place)
    if type(name) == "string" then
      all.named[name] = all.named[name] or site.counts
      add_module_name(all, t, name, site, place)
    end
    value = t[all.STORE].fields[name]
    if value == nil and type(name) == "number" then value = rawget(t, name) end
    if value == nil then value = t[all.STORE].class[name] end
  elseif sort == "table" then
    outside.add_table(all, t, place)
    if value == nil and is_chained(t, name) then value = t[name] end
    if matters(site, value) then add_name(all, t, name, site, place) end
  elseif sort == "opaque" then
    outside.add_table(all, t, place)
    if value == nil and site.counts then
      add_row(all, "raw", t, name, nil, place_of(place, name)).own = true
    end
    add_opaque_name(all, t, name, site, place)
  end
  return value, place_of(place, name)
end

-- Adds the value of a read, as far as it is known, and returns it with its name.
visit = function(all, fn, site)
  if site.root then return resolve(all, fn, site) end
  local done = all.sites[site]
  if done and done.fn == fn then return done.value, done.place end
  local value, place = add_field(all, fn, site)
  all.sites[site] = {fn = fn, value = value, place = place}
  return value, place
end

--- Adds an object whose fields are read by rawget, pairs or a similar function.
function outside.add_raw(all, value, place)
  if type(value) ~= "table" or lib.is_plain(value) or sort_of(value) ~= "table" then return end
  outside.add_table(all, value, place)
  contents(all, value, place)
end

-- The function that is called at a site. A global may come from an environment's __index function.
local function callee_of(all, fn, site)
  if not is_rooted(site) then return nil end
  local value = visit(all, fn, site)
  if value ~= nil or not site.root and site.base.root ~= "global" then return value end
  local found, indexed = pcall(function()
    local env = getfenv(fn)
    return site.root and env[site.key] or env[site.base.key][site.name]
  end)
  return found and indexed or nil
end

-- For an unknown table: the fields of every object count; for a list, the positions.
local function add_unknown(all, reader)
  if reads.raw[reader] == "numbers" then return computed(all, "numbered", numbers) end
  computed(all, "any", contents)
end

-- From now on the fields of metatables count: the step calls getmetatable.
local function add_metatables(all)
  if all.metas then return end
  all.metas = true
  for i = 1, #all.list do
    local entry = all.list[i]
    local meta = entry.sort == "table" and getmetatable(entry.table)
    if type(meta) == "table" then
      outside.add_table(all, meta, "the metatable of " .. entry.place)
    end
  end
end

-- Adds the first argument of a call.
local function add_passed(all, fn, site)
  local reader = callee_of(all, fn, site.callee)
  if reader == shown or reader ~= nil and reader == getmetatable then add_metatables(all) end
  if not reads.raw[reader or false] then return end
  local of = site.of
  if of and is_rooted(of) then
    local value, place = visit(all, fn, of)
    outside.add_raw(all, value, place)
  elseif of and of.kind == "field" and reader ~= rawget then
    of.raw = true
    floating(all, of.name, of)
  else
    add_unknown(all, reader)
  end
end

-- Adds the reads of a user's function.
local function add_sites(all, fn, place)
  for _, site in ipairs(reads.of(fn)) do
    if site.kind == "passed" then
      add_passed(all, fn, site)
    elseif is_rooted(site) then
      if site.counts and site.kind == "field" then all.read[site.name] = true end
      local value, at = visit(all, fn, site)
      if site.escapes and reads.raw[callee_of(all, fn, site) or false] then
        add_unknown(all, callee_of(all, fn, site)) -- other functions call it
      end
      if matters(site, value) then
        reach(all, value, at or place, site.escapes or site.stored)
      end
    elseif site.kind == "field" then
      floating(all, site.name, site)
    elseif site.counts then
      if site.kind == "key" then computed(all, "any", contents)
      else computed(all, "numbered", numbers) end
    end
  end
end

add_function = function(all, fn, place)
  fn = class.written(fn)
  if all.functions[fn] then return end
  all.functions[fn] = true
  if is_own(fn) then
    if debug.getinfo(fn, "S").what ~= "C" then add_own(all, fn) end
    return
  end
  all.written[#all.written + 1] = fn
  add_sites(all, fn, place)
end

-- Returns true if the step reads the place of a store in a function.
local function is_read(all, fn, place)
  if place.root == "up" then return all.cells_of[debug.upvalueid(fn, place.key)] ~= nil end
  if place.root then
    local rows = all.rows_of[getfenv(fn)]
    return rows ~= nil and rows[place.key] ~= nil
  end
  if place.kind == "key" then return all.any or all.numbered end
  local how = all.names[place.name]
  return how and how.counts or all.read[place.name]
end

-- A value that one function stores and another one reads counts: self.k = n, and later o.k.
local function add_stored(all)
  local more
  repeat
    more = false
    for i = 1, #all.written do
      local fn = all.written[i]
      local sites, found = reads.of(fn), false
      for _, one in ipairs(sites.stores) do
        if not one.done and is_read(all, fn, one.place) then
          reads.used(one)
          found = true
        end
      end
      if found then
        more = true
        for _, site in ipairs(sites) do all.sites[site] = nil end
        add_sites(all, fn, "fn")
      end
    end
  until not more
end

-- ---- before and after the run ----

--- Collects the values that fn and functions among its n arguments read from outside, for `settle`.
function outside.note(fn, args, n)
  if not reads.possible then
    errors.raise("moth.capture needs LuaJIT's `debug` and `jit.util`, which this host hides, to "
      .. "see what the step reads from outside", "E_UNSUPPORTED")
  end
  local info = debug.getinfo(class.written(fn), "S")
  local all = {step = info.short_src .. ":" .. info.linedefined, cells = {}, cells_of = {},
               rows = {}, rows_of = {}, tables = {}, list = {}, whole = {}, names = {},
               named = {}, modules = {}, stores = {}, functions = {}, sites = {}, written = {},
               globals = {}, read = {}}
  add_function(all, fn, "fn")
  for i = 1, n do
    if type(args[i]) == "function" then add_function(all, args[i], "input " .. i) end
  end
  add_stored(all)
  return all
end

--- Adds a hook that a backward pass of the step calls.
function outside.hook(all, fn)
  if type(fn) == "function" then add_function(all, fn, "a hook") end
end

-- The effect of the run on a value that the step reads: nil if the next run does the same,
-- "rebound" if it reads a tensor and then replaces it, else "changed".
local function effect(before, after, used)
  if lib.istensor(before) then
    if used(before) then return "rebound" end
    if lib.istensor(after) then return nil end
  end
  return not same_shape(before, after, 0) and "changed" or nil
end

local function raise_rebound(name)
  errors.raise(("the captured step assigns '%s', a tensor that it also reads: a replay would read "
    .. "the same one again; write into it: %s:copy_(...)"):format(name, name), "E_STATE")
end

-- Keeps the rows that the run did not change. A changed row is dropped, or is a reason to drop the
-- recording.
local function unchanged(all, rows, used, problem)
  local left = {}
  for _, row in ipairs(rows) do
    local value = now(row)
    if equal(value, row.value) then
      left[#left + 1] = row
    elseif not row.own then
      local how = effect(row.value, value, used)
      local name = type(row.key) == "string" and all.names[row.key]
      local counts = row.strict or row.whole and not (name and not name.counts)
      if how == "rebound" then raise_rebound(row.name) end
      if how and counts then problem = problem or row.name end
    end
  end
  return left, problem
end

local function settle_modules(all, used, problem)
  for _, one in ipairs(all.modules) do
    local fields, kind = one.store.fields, one.store.kind
    local own = own_class(one.store.class)
    local function check(name, before, after)
      if rawequal(before, after) or one.changed[name] then return end
      one.changed[name] = true
      if own or kind[name] then return end
      local how = effect(before, after, used)
      local named = all.names[name]
      local place = one.place .. "." .. tostring(name)
      if how == "rebound" then raise_rebound(place) end
      if how and (all.any or named and named.counts or all.named[name]) then
        problem = problem or place
      end
    end
    for name, before in pairs(one.fields) do check(name, before, rawget(fields, name)) end
    for name, after in pairs(fields) do check(name, rawget(one.fields, name), after) end
  end
  return problem
end

--- Prepares the comparisons before a replay, after the step has run.
-- @param used  function(tensor): true if the recorded ops read it
-- @return a table for `find`. Its look(V, T, K) returns true if all values are unchanged, its
-- same(watch) if the fields of modules are; or nil and the name of a value that the step changed
-- and reads
function outside.settle(all, used)
  local cells, rows, problem
  cells, problem = unchanged(all, all.cells, used)
  rows, problem = unchanged(all, all.rows, used, problem)
  problem = settle_modules(all, used, problem)
  if problem then return nil, problem end
  local watch = look.make(cells, rows)
  watch.cells, watch.rows, watch.modules = cells, rows, all.modules
  watch.sight, watch.same = all.sight, outside.same
  watch.written, watch.globals, watch.list = all.written, all.globals, all.list
  watch.fields, watch.parts = all.sight and all.sight.fields, all.sight and all.sight.parts
  return watch
end

-- The module with a changed field, and the name of the field.
local function find_field(watch)
  for _, one in ipairs(watch.modules) do
    local fields, before, changed = one.store.fields, one.fields, one.changed
    for name, value in pairs(fields) do
      if not rawequal(rawget(before, name), value) and not changed[name] then
        return one.module, name
      end
    end
    for name in pairs(before) do
      if rawget(fields, name) == nil and not changed[name] then return one.module, name end
    end
  end
end

--- Returns true if the fields of modules are unchanged. Called when any module's fields have
-- changed.
function outside.same(watch)
  if find_field(watch) then return false end
  watch.fields, watch.parts = watch.sight.fields, watch.sight.parts
  return true
end

--- The first changed value: its row {name, value, module if it is a position of a module} and the
-- value; or {module, field} for a field of a module.
function outside.find(watch)
  local module, field = find_field(watch)
  if module then return {module = module, field = field} end
  for _, list in ipairs {watch.rows, watch.cells} do
    for _, row in ipairs(list) do
      local value = now(row)
      if not equal(value, row.value) then
        return row, value
      end
    end
  end
end

--- Releases upvalues after a recording was freed.
outside.drop = look.drop

return outside
