--- recording.lua -- one recording of a captured step: how it is created and replayed.
--
-- The core keeps the kernel calls of the run (core/capture/capture.h). Lua adds the inputs and
-- results, the modules that ran and their training mode, and a cell for each optimizer op: before a
-- replay the cell writes the current values of the parameter groups into the op's arguments.
-- lib.capture is the current recording; layers, optimizers and the scaler report to it.

local ffi = require "ffi"
local autograd = require "moth.autograd"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local look = require "moth.capture.outer_compare"
local outside = require "moth.capture.outer_values"
local scope = require "moth.tensor.scope"

local C, ctx, Handle = lib.C, lib.ctx, lib.Handle

lib.declare "capture"

local istensor, loadstring = lib.istensor, lib.loadstring

local STALE, WANT = C.MOTH_CAPTURE_STALE, C.MOTH_WANT
local MOST_INPUTS = 64 -- tensors
local MOST_ARGS = 100 -- a Lua function has 200 variables; the runner needs some of them
local MOST_VALUES, MOST_DEPTH = 1000, 32 -- values with their tables, and the depth of nesting

local recording = {}

-- ---- reports to the current recording, lib.capture ----

local positions = {}

-- The slots of an op's arguments: name -> number.
local function positions_of(name)
  local found = positions[name]
  if not found then
    found = {}
    local sig = require("moth.binding.registry").describe(name)
    for _, arg in ipairs(sig.args) do found[arg.name] = arg.slot end
    found.op = C.moth_op_find(name)
    positions[name] = found
  end
  return found
end

--- For optimizers, after one of their ops: how a replay sets the op's arguments. cell.write(cell,
-- slots, at) sets them and returns true, or returns false if the step would take another way now.
-- cell.done(cell), if present, is called after a successful replay.
-- @param name  of the op, or nil: then cell.write only checks
-- @param cell  a table with `write` and its data
function recording.cell(name, cell)
  local active = lib.capture
  if name then
    cell.at = positions_of(name)
    cell.slots = C.moth_capture_slots(ctx, cell.at.op)
  end
  cell.guard = active.guard
  active.cells[#active.cells + 1] = cell
end

--- Marks this run as different from later runs, for example because it creates the optimizer's
-- state: no recording is stored.
-- @param expected  true: any number of runs in a row may be so
function recording.void(expected)
  local active = lib.capture
  if not active then return end
  C.moth_capture_void(ctx)
  if active.expected ~= false then active.expected = expected or false end
end

-- Returns true if the hooks of a node are the hooks that ran in the recording.
local function same_hooks(cell)
  local list, ran = cell.list, cell.ran
  if not list then
    local entry = autograd.nodes[cell.id]
    return not (entry and entry[cell.kind])
  end
  for i = 1, #ran do
    if list[i] ~= ran[i] then return false end
  end
  return #list == #ran
end

--- A backward pass calls the hooks in `list`, or finds no hooks any more, at the node with this id.
-- kind: "hooks", or "after" a leaf's gradient was added.
function recording.hooked(id, kind, list)
  local r, ran = lib.capture, {unpack(list or {})}
  for _, hook in ipairs(ran) do outside.hook(r.taken, hook.fn) end
  local cell = {write = same_hooks, id = id, kind = kind, list = list, ran = ran}
  recording.later(function()
    if list and not autograd.nodes[id] then return end -- of a node that was freed with the step
    r.cells[#r.cells + 1] = cell
  end)
end

--- After each replay, calls `fail`, which raises, if an element of the bool tensor `bad` is true.
function recording.check(bad, fail)
  local flag = bad:any()
  C.moth_keep_always(ctx, flag)
  table.insert(lib.capture.checks, {flag = flag, fail = fail})
end

--- Calls f when the current recording has ended: its tensor ops are not recorded.
function recording.later(f)
  local list = lib.capture.later
  list[#list + 1] = f
end

--- Raises while a step is recorded.
-- @param what  the thing that cannot be part of a step: "a hook"
function recording.refuse(what)
  errors.raise(what .. " cannot run while moth.capture records the step: a replay would not call "
    .. "it; do this outside of the captured function", "E_UNSUPPORTED")
end

-- ---- inputs and results ----

local function refuse_input(place, text, code)
  errors.argument("capture", place, text, code)
end

local function check_value(x, place)
  if istensor(x) then
    if x.requires_grad and C.moth_grad_mode(ctx, -1) == 1 then
      refuse_input(place, "its gradient would not leave the step; detach it, or make it a "
        .. "parameter", "E_GRAPH")
    end
  elseif type(x) == "table" or type(x) == "userdata" or type(x) == "thread" then
    refuse_input(place, "tensors, plain tables of them, and numbers, strings and booleans as "
      .. "constants, are needed, got " .. errors.describe(x), "E_TYPE")
  end
end

local KEYS = {string = true, number = true, boolean = true}

local function place_of(place, key)
  if not KEYS[type(key)] or key == math.huge or key == -math.huge then
    refuse_input(place, "the keys of a table are strings, finite numbers and booleans here, got "
      .. errors.describe(key), "E_TYPE")
  end
  local name = type(key) == "string" and key:match "^[%a_][%w_]*$"
  if name then return place .. "." .. name end
  return ("%s[%s]"):format(place, type(key) == "string" and ("%q"):format(key) or tostring(key))
end

local own_table

local function refuse_more()
  refuse_input("fn", ("at most %d tensors and %d values, tables included, are needed as inputs, "
    .. "got more"):format(MOST_INPUTS, MOST_VALUES))
end

-- The step's copy of an argument or of a value in a table, and a note of its form: {tensor = true,
-- own = x}, {constant = value} or {keys, notes}.
local function own_value(x, place, all)
  all.n = all.n + 1
  if all.n > MOST_VALUES then refuse_more() end
  if lib.is_plain(x) then return own_table(x, place, all) end
  check_value(x, place)
  if not istensor(x) then return x, {constant = x} end
  if #all.tensors == MOST_INPUTS then refuse_more() end
  x = x:detach():clone()
  C.moth_keep_always(ctx, x)
  all.tensors[#all.tensors + 1] = x
  return x, {tensor = true, own = x}
end

own_table = function(t, place, all)
  if all.open[t] then refuse_input(place, "a table that contains itself", "E_TYPE") end
  all.open[t], all.depth = true, all.depth + 1
  if all.depth > MOST_DEPTH then
    refuse_input(place, ("tables nest %d levels at most"):format(MOST_DEPTH))
  end
  local own, keys, notes = {}, {}, {}
  for key, value in pairs(t) do
    local n = #keys + 1
    own[key], notes[n] = own_value(value, place_of(place, key), all)
    keys[n] = key
  end
  all.open[t], all.depth = nil, all.depth - 1
  return own, {keys = keys, notes = notes}
end

--- The step's copies of its inputs, which replays fill: a list with constants and tables, a list of
-- only the tensors, and the notes of the arguments.
function recording.own_inputs(args, n)
  if n > MOST_ARGS then
    refuse_input("fn", ("at most %d arguments are needed, got %d; put them in a table"):format(
      MOST_ARGS, n))
  end
  local list, notes = {}, {}
  local all = {tensors = {}, open = {}, depth = 0, n = 0}
  for i = 1, n do list[i], notes[i] = own_value(args[i], "input " .. i, all) end
  return list, all.tensors, notes
end

--- Calls visit(table, key) for each tensor in a list of results, also in nested plain tables.
local function each_tensor(list, n, visit, seen)
  seen = seen or {}
  for i = 1, n do
    local value = list[i]
    if istensor(value) then
      visit(list, i)
    elseif lib.is_plain(value) and not seen[value] then
      seen[value] = true
      for key, item in pairs(value) do
        if istensor(item) then visit(value, key)
        elseif type(item) == "table" then each_tensor({item}, 1, visit, seen) end
      end
    end
  end
end
recording.each_tensor = each_tensor

-- Appends the entries of a plain table and its nested tables to `made`: rows of table, key, value,
-- and the number of the table that the value is. A table that occurs twice, or in itself, is one.
local function add_rows(t, made)
  local id = made.tables + 1
  made.tables, made.seen[t] = id, id
  for key, value in pairs(t) do
    local inner = lib.is_plain(value)
    inner = inner and (made.seen[value] or add_rows(value, made))
    local n = #made.at + 1
    made.at[n], made.keys[n], made.values[n], made.inner[n] = id, key, value, inner
  end
  return id
end

-- Stores how results are returned: directly, or, if there are tables among them, as copies of a
-- template, so that changes by a caller do not affect later calls.
local function set_template(results)
  local made = {tables = 0, at = {}, keys = {}, values = {}, inner = {}, seen = {}}
  add_rows(results, made)
  made.seen = nil
  if made.tables > 1 then results.template = made end
  results.one = results.n == 1 and made.tables == 1
end

--- The results in new tables.
function recording.fresh(template)
  local at, keys, values, inner = template.at, template.keys, template.values, template.inner
  local tables = {}
  for i = 1, template.tables do tables[i] = {} end
  for i = 1, #at do
    local id = inner[i]
    tables[at[i]][keys[i]] = id and tables[id] or values[i]
  end
  return tables[1]
end

-- Ends the current recording. The results and the flags of checks lose their history, because
-- replays do not continue it.
local function finish(results, checks)
  local places = {}
  for i, check in ipairs(checks) do places[i] = {check, "flag"} end
  each_tensor(results, results.n, function(t, key) places[#places + 1] = {t, key} end)
  local handles = lib.handles(math.max(#places, 1))
  for i, place in ipairs(places) do handles[i - 1] = place[1][place[2]] end
  local status = C.moth_capture_end(ctx, handles, #places)
  if status < 0 then errors.status(status, "capture") end
  for i, place in ipairs(places) do
    local h = Handle(handles[i - 1]._slot, handles[i - 1]._gen)
    h = lib.adopt(h, 0)
    C.moth_keep_always(ctx, h)
    place[1][place[2]] = h
  end
  return status
end

-- The recordings that Lua still holds: the next sweep frees the others.
local open, held = {}, setmetatable({}, {__mode = "v"})
local looks = {} -- of outer_values.lua: functions that are joined to upvalues

local function drop_look(id)
  if looks[id] then outside.drop(looks[id]) end
  looks[id] = nil
end

function lib.on_sweep.recording()
  for id in pairs(open) do
    if held[id] == nil then
      open[id] = nil
      drop_look(id)
      C.moth_capture_free(ctx, id)
    end
  end
end

--- Frees the core's part of a recording.
function recording.free(r)
  drop_look(r.id)
  open[r.id] = nil
  C.moth_capture_free(ctx, r.id)
end

-- ---- replay ----

local function has_results(r)
  local shown = r.shown
  for i = 1, #shown do
    if C.moth_alive(ctx, shown[i]) == 0 then return false end
  end
  return true
end

--- Returns true if the results of a recording still exist: it cannot be replayed without them.
recording.has_results = has_results

-- Returns true if results, modules, cells and values from outside are unchanged. Cells write the
-- current values.
local function ready(r)
  if not has_results(r) then return false end
  local noted, watch = r.noted, r.outside -- noted: the parts of modules, by nn/module/call.lua
  if noted and noted.parts ~= noted.sight.parts and not noted.same(noted) then return false end
  local sight = watch.sight
  if sight and (watch.fields ~= sight.fields or watch.parts ~= sight.parts)
     and not watch.same(watch) then
    return false
  end
  if not watch.look(watch.V, watch.T, watch.K) then return false end
  local cells = r.cells
  for i = 1, #cells do
    local cell = cells[i]
    if not cell.write(cell, cell.slots, cell.at) then return false end
  end
  return true
end

local function counted(r)
  local cells = r.cells
  for i = 1, #cells do
    local cell = cells[i]
    if cell.done and not (cell.guard and cell.guard.skipped) then cell.done(cell) end
  end
end

-- Runs the checks of functions written in Lua on the computed values.
local function checked(r)
  for _, check in ipairs(r.checks) do
    if check.flag:item() then check.fail() end
  end
end

local WEAK = {__mode = "v"}

-- Appends code that compares a value, the variable `name`, with its note. Tensors in tables go to
-- extra variables, which are declared first.
local function add_check(text, note, name, made)
  local stale = (" then return %d end"):format(STALE)
  if note.tensor then
    local k = #made.tensors + 1
    made.tensors[k] = name
    if made.depth > 0 then
      made.tensors[k] = "t" .. k
      text[#text + 1] = ("t%d = %s"):format(k, name)
    end
    text[#text + 1] = ("if not istype(Handle, %s)%s"):format(made.tensors[k], stale)
  elseif not note.keys then
    local k = made.constants.n + 1
    made.constants.n, made.constants[k] = k, note.constant
    if note.constant == note.constant then
      text[#text + 1] = ("if type(%s) ~= type(K[%d]) or %s ~= K[%d]%s"):format(name, k, name, k,
        stale)
      if note.constant == 0 then -- 0 and -0 differ
        text[#text + 1] = ("if 1 / %s ~= 1 / K[%d]%s"):format(name, k, stale)
      end
    else -- NaN
      text[#text + 1] = ("if %s == %s%s"):format(name, name, stale)
    end
  else
    made.depth = made.depth + 1
    text[#text + 1] = ('if type(%s) ~= "table" or getmetatable(%s) ~= nil or not holds(%s, %d)%s')
      :format(name, name, name, #note.keys, stale)
    for i, key in ipairs(note.keys) do
      local inner = "v" .. made.depth
      key = type(key) == "string" and ("%q"):format(key)
        or type(key) == "number" and ("%.17g"):format(key) or tostring(key)
      text[#text + 1] = ("do local %s = %s[%s]"):format(inner, name, key)
      add_check(text, note.notes[i], inner, made)
      text[#text + 1] = "end"
    end
    made.depth = made.depth - 1
  end
end

-- Generates one function for each recording, so that LuaJIT compiles it for its inputs: run(go, n,
-- ...). With go = false it only returns if the recording fits. LuaJIT's compiled code may keep
-- this function forever, so the function does not hold the recording.
local function runner(r)
  local text, args, checks = {}, {}, {}
  local made = {tensors = {}, constants = {n = 0}, depth = 0}
  for i = 1, r.n do
    args[i] = "a" .. i
    add_check(checks, r.notes[i], args[i], made)
  end
  local list = table.concat(args, ", ")
  text[1] = "local box, C, ctx, istype, Handle, h, id, K, ready, counted, checked, type, "
    .. "getmetatable, holds"
    .. " = ..."
  text[2] = ("return function(go, n%s)"):format(r.n > 0 and ", " .. list or "")
  text[3] = ("  if n ~= %d then return %d end"):format(r.n, STALE)
  for k, name in ipairs(made.tensors) do
    if name == "t" .. k then text[#text + 1] = "local " .. name end
  end
  text[#text + 1] = table.concat(checks, "\n")
  text[#text + 1] = ("  local r = box[1]\n  if not ready(r) then return %d end"):format(STALE)
  for k, name in ipairs(made.tensors) do text[#text + 1] = ("  h[%d] = %s"):format(k - 1, name) end
  text[#text + 1] = ("  if not go then return C.moth_capture_fits(ctx, id, h, %d) end"):format(
    #made.tensors)
  text[#text + 1] = ("  local st = C.moth_capture_replay(ctx, id, h, %d)"):format(#made.tensors)
  text[#text + 1] = ("  if st == 0 or st == %d then counted(r) end"):format(WANT)
  if #r.checks > 0 then
    text[#text + 1] = ("  if st == 0 or st == %d then checked(r) end"):format(WANT)
  end
  text[#text + 1] = "  return st\nend"
  local chunk = assert(loadstring(table.concat(text, "\n"), "=[moth.capture]"))
  local box = setmetatable({r}, WEAK)
  return chunk(box, C, ctx, ffi.istype, Handle, r.handles, r.id, made.constants, ready, counted,
    checked, type, getmetatable, look.holds)
end

-- ---- recording ----

--- Calls fn, in a scope. fn must not yield: ops of other coroutines would be recorded too.
-- @return true and the results as a list, or false and the problem
function recording.run(fn, inputs, n)
  local results
  local ok, problem = errors.unyielding("a captured function", function()
    results = lib.pack(scope.scope(fn, unpack(inputs, 1, n)))
  end)
  return ok, ok and results or problem
end

local id_out = ffi.new "uint32_t[1]"

-- Returns true if the recorded ops read a tensor.
local function was_read(x) return C.moth_capture_uses(ctx, x) == 1 end

local function record(fn, ...)
  local n = select("#", ...)
  local args = {...}
  local inputs, tensors, notes = recording.own_inputs(args, n)
  local handles = lib.handles(math.max(#tensors, 1))
  for i, x in ipairs(tensors) do handles[i - 1] = x end
  local status = C.moth_capture_begin(ctx, handles, #tensors, id_out)
  if status < 0 then errors.status(status, "capture") end
  local r = {id = id_out[0], n = n, handles = handles, inputs = inputs, cells = {}, seen = {},
             checks = {}, notes = notes, states = {}, guards = 0, later = {},
             grad_enabled = autograd.is_grad_enabled()}
  local ok, results = pcall(outside.note, fn, args, n)
  r.taken = ok and results
  function r.watch(module) outside.module(r.taken, module) end
  lib.capture = r
  if ok then ok, results = recording.run(fn, inputs, n) end
  lib.capture = nil
  local problem, watch = results, nil
  if ok then ok, watch, problem = pcall(outside.settle, r.taken, was_read) end
  if ok and not watch then
    r.expected, r.changed = false, problem
    C.moth_capture_void(ctx)
  end
  r.taken, r.watch = nil, nil
  if ok then ok, problem = pcall(finish, results, r.checks) else problem = watch or results end
  if not ok then C.moth_capture_abort(ctx) end
  for _, f in ipairs(r.later) do f() end
  if not ok then error(problem, 0) end
  local stale = problem == STALE
  ok, problem = pcall(checked, r)
  if not ok then
    if watch then outside.drop(watch.joined) end
    if not stale then C.moth_capture_free(ctx, r.id) end
    error(problem, 0)
  end
  if stale then
    if watch then outside.drop(watch.joined) end
    return results, nil, r.expected, r.changed
  end
  r.outside, looks[r.id] = watch, watch.joined
  r.results, r.shown, r.seen = results, {}, nil
  each_tensor(results, results.n, function(t, key) r.shown[#r.shown + 1] = t[key] end)
  set_template(results)
  open[r.id], held[r.id] = true, r
  r.run = runner(r)
  return results, r
end

-- Ends the recording after an error at any point.
local function recorded(ok, ...)
  if not ok then
    lib.capture = nil
    C.moth_capture_abort(ctx)
    error((...), 0)
  end
  return ...
end

--- Runs fn on copies of the inputs and records it.
-- @return its results as a list; the recording, or nil if the next run will take another way; true
-- if that may happen any number of times; and the name of a value that the run reads and changes,
-- if that is the reason
function recording.record(fn, ...)
  if lib.capture then return record(fn, ...) end -- raises
  return recorded(pcall(record, fn, ...))
end

return recording
