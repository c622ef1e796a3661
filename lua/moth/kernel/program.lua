--- program.lua -- converts a traced function (trace.lua) to a program for the op `fused`, and
-- generates the Lua function that runs it.

local bit = require "bit"
local lib = require "moth.binding.lib"

local C, ctx, Handle = lib.C, lib.ctx, lib.Handle
local bor, lshift = bit.bor, bit.lshift
local concat, format = table.concat, string.format

local program = {}

local CONVERT = -1
local INPUTS, RESULTS, STEPS, BETWEEN = 8, 4, 48, 48 -- the limits of core/op/fused.h

-- ---- from a trace to a program ----

-- Removes conversions to the dtype that the operand already has.
local function same_values(steps)
  local same = {}
  for _, s in ipairs(steps) do
    for k = 2, #s.values do s.values[k] = same[s.values[k]] or s.values[k] end
    if s.code == CONVERT and s.dtypes[1] == s.dtypes[2] then same[s.values[1]] = s.values[2] end
  end
  return same
end

-- The steps that the values in `needed` depend on, in order; their operands are added to `needed`.
local function living(steps, needed)
  local list = {}
  for i = #steps, 1, -1 do
    local s = steps[i]
    if needed[s.values[1]] then
      table.insert(list, 1, s)
      for k = 2, #s.values do needed[s.values[k]] = true end
    end
  end
  return list
end

-- The inputs of a program: arguments, then constants, each once.
local function gather_inputs(reading, needed, p)
  local place, by_bytes = {}, {}
  for v = 0, reading.ninputs - 1 do
    if needed[v] then
      p.uses[#p.uses + 1] = v + 1
      place[v] = #p.uses - 1
    end
  end
  local order = {}
  for v, c in pairs(reading.constants) do
    if c and needed[v] then order[#order + 1] = v end
  end
  table.sort(order)
  for _, v in ipairs(order) do
    local c = reading.constants[v]
    local key = c.dtype .. ":" .. c.bytes
    if not by_bytes[key] then
      p.constants[#p.constants + 1] = c.tensor
      by_bytes[key] = #p.uses + #p.constants - 1
    end
    place[v] = by_bytes[key]
  end
  return place
end

-- The set of inputs with dimensions that a value depends on.
local function dependence(reading, specs, steps)
  local set = {}
  for v = 0, reading.ninputs - 1 do
    set[v] = specs[v + 1].zero and 0 or lshift(1, v)
  end
  for _, s in ipairs(steps) do
    local all = 0
    for k = 2, #s.values do all = bor(all, set[s.values[k]] or 0) end
    set[s.values[1]] = all
  end
  return set
end

-- Writes the steps with the program's numbers of values.
local function write(p, steps, place)
  local words, numbers = {}, {}
  for i, s in ipairs(steps) do
    local at = 9 * (i - 1)
    words[at + 1], words[at + 2], words[at + 3] = s.code, s.dtype, #s.values
    for k = 1, 6 do words[at + 3 + k] = s.values[k] and place[s.values[k]] or 0 end
    for k = 1, 3 do numbers[#numbers + 1] = s.numbers[k] end
    p.names[i] = s.name
  end
  p.words, p.numbers = words, numbers
end

--- A program for a trace: uses (indices of its inputs, from 1), constants (tensors after them),
-- words, numbers and dtypes in the form of `fused`, results (their number), names (of the
-- functions), between (number of intermediate values), depends (for each result: its inputs with
-- dimensions), apart (true if a result does not depend on all inputs with dimensions, so that
-- they must have one shape). nil and the reason if a limit is exceeded.
-- @param reading  the result of trace.read
-- @param specs    the specs of its inputs
-- @param wanted   a list of the values to return
function program.new(reading, specs, wanted)
  local same = same_values(reading.steps)
  local needed, targets = {}, {}
  for i, v in ipairs(wanted) do
    targets[i] = same[v] or v
    needed[targets[i]] = true
  end
  local steps = living(reading.steps, needed)
  local p = {uses = {}, constants = {}, names = {}, dtypes = {}, results = #wanted, between = 0,
             depends = {}}
  local place = gather_inputs(reading, needed, p)
  local nin = #p.uses + #p.constants
  local dtype_of, given = {}, {}
  for v, dtype in ipairs(reading.dtypes) do dtype_of[v - 1] = dtype end
  for v, c in pairs(reading.constants) do
    if c then dtype_of[v] = c.dtype end
  end
  for _, s in ipairs(steps) do given[s.values[1]], dtype_of[s.values[1]] = true, s.dtypes[1] end
  local depends, all = dependence(reading, specs, steps), 0
  for _, i in ipairs(p.uses) do all = bor(all, specs[i].zero and 0 or lshift(1, i - 1)) end
  for i, v in ipairs(targets) do
    p.dtypes[i], p.depends[i] = dtype_of[v], depends[v] or 0
    if (depends[v] or 0) ~= all then p.apart = true end
    if (depends[v] or 0) == 0 and all ~= 0 then return nil, "a result is the same everywhere" end
    if given[v] and not place[v] then
      place[v] = nin + i - 1
    else -- an input, a constant, or an earlier result
      local copy = -i
      steps[#steps + 1] = {name = "convert", code = CONVERT, dtype = dtype_of[v],
        values = {copy, v}, dtypes = {dtype_of[v], dtype_of[v]}, numbers = {0, 0, 0}}
      place[copy] = nin + i - 1
    end
  end
  for _, s in ipairs(steps) do
    local v = s.values[1]
    if not place[v] then
      place[v] = nin + #wanted + p.between
      p.between = p.between + 1
      p.dtypes[#p.dtypes + 1] = s.dtypes[1]
    end
  end
  if #p.uses == 0 then return nil, "its results do not depend on its arguments" end
  if nin > INPUTS then return nil, ("it reads %d values, of %d"):format(nin, INPUTS) end
  if #wanted > RESULTS then return nil, ("it returns %d values, of %d"):format(#wanted, RESULTS) end
  if #steps > STEPS or p.between > BETWEEN then
    return nil, ("it has %d steps, of %d"):format(#steps, STEPS)
  end
  write(p, steps, place)
  return p
end

-- ---- programs that run ----

local fused = require("moth.binding.registry").describe "fused"

local RUN = [[
local C, ctx, Handle, op, slots, at, live, adopt, state, failed, due = ...
return function(%s)
%s
  local mine = state.calls + 1
  state.calls = mine
%s
  if state.calls ~= mine then return failed(0, %s) end
  local st = C.moth_call(ctx, op, slots, %d, 31, %s)
  if st < 0 then return failed(st, %s) end
%s
end]]

local state = {calls = 0}

--- Copies the constants of a program to its device.
-- @param device  a device, or nil for the CPU
function program.bring(p, device)
  for i, x in ipairs(device and p.constants or {}) do
    p.constants[i] = x:to(device)
    C.moth_keep_always(ctx, p.constants[i])
  end
end

-- Fills the arguments of moth_call for a program. The arrays live as long as the program.
local function slots_of(p)
  local nin = #p.uses + #p.constants
  local s = lib.slots(fused.nslots)
  local words, codes, numbers = lib.int64s(#p.words), lib.int64s(#p.dtypes), lib.doubles(#p.numbers)
  for i, v in ipairs(p.words) do words[i - 1] = v end
  for i, v in ipairs(p.dtypes) do codes[i - 1] = v end
  for i, v in ipairs(p.numbers) do numbers[i - 1] = v end
  p.at, p.keep = lib.handles(nin), {words, codes, numbers}
  for i, x in ipairs(p.constants) do p.at[#p.uses + i - 1] = x end
  local function list(name, pointer, n)
    local k = fused.args[fused.index[name]].slot
    s[k].pointer, s[k + 1].integer = pointer, n
  end
  list("input", p.at, nin)
  list("steps", words, #p.words)
  list("dtypes", codes, #p.dtypes)
  list("numbers", numbers, #p.numbers)
  s[fused.args[fused.index.results].slot].integer = p.results
  return s
end

--- Generates the function that runs a program over n arguments; the program uses some of them.
-- @param n       their number; nil: they are passed as one list
-- @param failed  called with the status and the arguments after an error
function program.compile(p, n, failed)
  local args, made, fill, finish, results = {}, {}, {}, {}, {}
  local pattern = n and "  at[%d] = a%d" or "  at[%d] = args[%d]"
  for i = 1, n or 1 do args[i] = n and "a" .. i or "args" end
  for i, from in ipairs(p.uses) do fill[i] = format(pattern, i - 1, from) end
  for k = 1, p.results do
    results[k] = "r" .. k
    made[k] = format("  local r%d = Handle()", k)
  end
  if p.results == 1 then
    finish[1] = "  if st == 0 then live[r1._slot] = r1 else r1 = adopt(r1, st) end"
  else
    for k = 1, p.results do
      finish[#finish + 1] = format("  local k%d = C.moth_result(ctx, %d, r%d)", k, k - 1, k)
    end
    for k = 1, p.results do finish[#finish + 1] = format("  r%d = adopt(r%d, k%d)", k, k, k) end
    finish[#finish + 1] = "  if st == 1 then due(r1) end"
  end
  finish[#finish + 1] = "  return " .. concat(results, ", ")
  local all = concat(args, ", ")
  local text = format(RUN, all, concat(made, "\n"), concat(fill, "\n"), all, fused.nslots,
    p.results == 1 and "r1, 1" or "nil, 0", all, concat(finish, "\n"))
  local chunk = assert(lib.loadstring(text, "=[moth.kernel]"))
  local run
  run = chunk(C, ctx, Handle, fused.op, slots_of(p), p.at, lib.live, lib.adopt, state,
    function(st, ...)
      if st == 0 or lib.recover(st) then return run(...) end
      return failed(st, ...)
    end, lib.due)
  return run
end

return program
