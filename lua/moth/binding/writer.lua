--- writer.lua -- generates the Lua function that calls an op.
--
-- The function is straight-line code: it checks each argument, stores it in the buffers of
-- moth_call, and calls. It has no varargs and no closures, so LuaJIT compiles it into the caller's
-- loop. `print(require("moth.binding.bind").text("add"))` prints one.
--
-- All calls of an op share the buffers that C reads. A collection may run while they are filled,
-- and a finalizer may call the same op. So every call increments `state.calls`. If the count has
-- changed before moth_call, the call starts over.

local calls = require "moth.binding.calls"
local forms = require "moth.binding.forms"

local concat, format = table.concat, string.format

local writer = {}

-- ---- arguments ----

local HEAD = [[
local sig, op, s, T, B = ...
local type, C, ctx, Handle, istype, int64 = type, T.C, T.ctx, T.Handle, T.istype, T.int64
local live, none, NONE, state, due, adopt = T.live, T.none, T.NONE, T.state, T.due, T.adopt
local fill_ints, fill_dims, fill_handles = T.fill_ints, T.fill_dims, T.fill_handles
local fill_floats, is_list, NO_INT = T.fill_floats, T.is_list, -0x8000000000000000LL
local operand1, operand2 = B.operands[1], B.operands[2]
local operand3, operand4 = B.operands[3], B.operands[4] ]]

-- The slot values of `moth.none`, for an optional argument with another default.
local ABSENT = {
  tensor = "s[$k].handle = NONE", index = "s[$k].handle = NONE", number = "s[$k].handle = NONE",
  int = "s[$k].integer = NO_INT", dim = "s[$k].integer = NO_INT",
  dtype = "s[$k].integer = -1",
  dims = "s[$k].integer = 0 s[$k1].integer = 0", ints = "s[$k].integer = 0 s[$k1].integer = 0",
  floats = "s[$k].integer = 0 s[$k1].integer = 0",
}

-- The code that stores argument i in its slots if it was passed.
local function store(sig, i, operand, out)
  local arg = sig.args[i]
  local row = arg.row
  if arg.lua then
    out("  %s", forms.fill('if type($v) ~= "nil" and type($v) ~= "boolean" then '
      .. "T.bad(sig, $i, $v) end", i, "a" .. i, 0, 0))
    return
  end
  local v = (row.prepare and "p" or "a") .. i
  local function fill(text) return forms.fill(text, i, v, arg.slot, operand) end
  if arg.required then
    out("  %s", fill(row.store))
    return
  end
  local given = format("given = given + %d", 2 ^ (i - 1))
  local absent = ABSENT[row.name] -- for an enum "none|trunc" moth.none is the first choice too
  local none = not arg.fallback:find "^none%f[|%z]"
    and (absent and absent .. " " .. given or "T.bad(sig, $i, none)")
  if row.name == "tensor" or row.name == "number" or row.name == "mask" then
    out("  if istype(Handle, %s) then s[%d].handle = %s %s", v, arg.slot, v, given)
    out("  elseif %s == none then %s", v, none and fill(none) or "")
    out('  elseif type(%s) ~= "nil" then %s %s end', v, fill(row.store), given)
  elseif row.prepare then
    if none then out("  if a%d == none then %s end", i, fill(none)) end
    out("  if %s then %s %s end", v, fill(row.store), given)
  else
    out('  if type(%s) ~= "nil" then', v)
    out("    if %s ~= none then", v)
    out("  %s\n    %s", fill(row.store), given)
    if none then out("    else %s", fill(none)) end
    out("    end\n  end")
  end
end

-- ", a1, a2": the arguments before argument i.
local function before(i)
  local names = {}
  for k = 1, i - 1 do names[k] = ", a" .. k end
  return concat(names)
end

-- Conversions and buffers for lists. They may allocate, so they run before anything is stored.
local function prepare(sig, out)
  for i, arg in ipairs(sig.args) do
    if arg.row.prepare then
      local expression = forms.fill(arg.row.prepare, i, "a" .. i, 0, 0)
      local ignored = arg.row.name == "index" and sig.ignored
      if ignored then expression = format("T.to_index(sig, %d, a%d, a%d)", i, i, ignored) end
      if arg.required then
        if i > 1 then
          out('  if type(a%d) == "nil" then T.missing(sig, %d%s) end', i, i, before(i))
        end
        out("  local p%d = %s", i, expression)
      else
        out("  local p%d", i)
        out('  if type(a%d) ~= "nil" and (istype(Handle, a%d) or a%d ~= none) then p%d = %s end',
        i, i, i, i, expression)
      end
    end
    if arg.row.buffer == "handles" then
      local v = (arg.row.prepare and "p" or "a") .. i
      out('  if type(%s) == "table" then T.reserve(b%d, #%s) end', v, i, v)
    end
  end
end

-- ---- results ----

-- The slot of a new tensor may hold a dead handle or none. Code that checked this would have two
-- branches, and LuaJIT would compile only one.
local function finish_one(sig, out)
  out("  if st == 0 then live[r._slot] = r else r = adopt(r, st) end")
  if sig.outputs[1].position then
    local target = sig.index.out
    out("  r = T.from_index(sig, r, %s)", target and "a" .. target or "nil")
  end
  for i, arg in ipairs(sig.args) do
    if arg.lua then out("  if a%d then T.require_grad(r) end", i) end
  end
  out("  return r")
end

-- Returns a second result r2 if an argument requests it, else one result.
local function finish_asked(out)
  out("  if r2 then")
  out("    C.moth_result(ctx, 0, r2)")
  out("    r2 = adopt(r2, 0)")
  out("    r = adopt(r, st)")
  out("    r2 = T.from_index(sig, r2)")
  out("    return r, r2")
  out("  end")
  out("  r = adopt(r, st)")
  out("  return r")
end

-- Each result is adopted separately, from a handle that was created before the call. LuaJIT's
-- allocation sinking would lose the stores that copy from an array. An allocation here might run a
-- finalizer with an op, which would overwrite the results.
local function finish_several(sig, out)
  local names = {}
  for k = 1, #sig.outputs do
    names[k] = "r" .. k
    out("  local k%d = C.moth_result(ctx, %d, r%d)", k, k - 1, k)
  end
  for k = 1, #sig.outputs do
    out("  if k%d == 0 then live[r%d._slot] = r%d else r%d = adopt(r%d, k%d) end", k, k, k, k, k, k)
  end
  out("  if st == 1 then due(r1) end")
  for k, output in ipairs(sig.outputs) do
    if output.position then out("  r%d = T.from_index(sig, r%d)", k, k) end
  end
  out("  return %s", concat(names, ", "))
end

local function finish_list(sig, all, out)
  out("  local list = {}")
  out("  for k = 1, C.moth_result_count(ctx) do")
  out("    local h = Handle()")
  out("    C.moth_result(ctx, k - 1, h)")
  out("    list[k] = adopt(h, 0)")
  out("  end")
  out("  if state.calls ~= mine then return run(%sover or T.RESOLVED) end", all)
  out("  if st == 1 then T.due_list(list) end")
  if sig.outputs[1].position then
    out("  for k = 1, #list do list[k] = T.from_index(sig, list[k]) end")
  end
  out("  return list")
end

-- ---- the whole function ----

-- The call: results, arguments, moth_call, errors.
local function body(sig, out)
  if sig.other then
    out('  if (type(a2) == "cdata" and istype(Handle, a2)) or '
      .. '(type(a3) == "cdata" and istype(Handle, a3)) then')
    out("    local y = T.overload(sig, a2, a3)(a1, a2, a3%s)", sig.args[4] and ", a4" or "")
    out("    return y\n  end")
  end
  if sig.value then
    local v, list = "a" .. sig.value, {}
    for i = 1, sig.value do list[i] = "a" .. i end
    out('  if type(%s) == "cdata" and istype(Handle, %s) then', v, v)
    out("    return T.valued(sig, %s)\n  end", concat(list, ", "))
  end
  local n, given = #sig.args, 0
  local names = {}
  for i = 1, n do names[i] = "a" .. i end
  local all = concat(names, ", ") .. (n > 0 and ", " or "")
  local outputs = #sig.outputs
  local list, mutates = sig.list, sig.mutates
  prepare(sig, out)
  local asked = outputs == 2 and sig.outputs[2].asked
  local one = (outputs == 1 or asked) and not list and not mutates
  if one then out("  local r = Handle()") end
  if asked then
    local a = "a" .. sig.index[asked]
    out('  local r2 = type(%s) == "boolean" and %s and Handle()', a, a)
  end
  for k = 1, (one or list or mutates) and 0 or outputs do out("  local r%d = Handle()", k) end
  out("  local mine = state.calls + 1")
  out("  state.calls = mine")
  for i, arg in ipairs(sig.args) do
    if arg.required then given = given + 2 ^ (i - 1) end
  end
  out("  local given = %d", given)
  local operand = 0
  for i, arg in ipairs(sig.args) do
    if arg.number then operand = operand + 1 end
    store(sig, i, math.min(operand, calls.OPERANDS), out)
  end
  out("  if state.calls ~= mine then return run(%sover or T.RESOLVED) end", all)
  out("  local st = C.moth_call(ctx, op, s, %d, given, %s, %d)", sig.nslots,
    one and "r" or "nil", one and 1 or 0)
  out("  if st == T.PAUSED then st = T.again(op, s, %d, given, %s, %d) end", sig.nslots,
    one and "r" or "nil", one and 1 or 0)
  out("  if st < 0 then")
  out("    if over ~= T.AGAIN and T.recover(st) then return run(%sT.AGAIN) end", all)
  out("    return T.results(T.failed(sig, st%s))", n > 0 and ", " .. concat(names, ", ") or "")
  out("  end")
  if list then
    finish_list(sig, all, out)
  elseif mutates then
    out("  if st == 1 then due(a1) end")
    out("  return a1")
  elseif asked then finish_asked(out)
  elseif outputs == 1 then finish_one(sig, out)
  else finish_several(sig, out) end
end

--- The code of an op's function: a chunk that takes the signature, the op, its slots, the helpers
-- (bind.lua) and the buffers, and returns the function.
function writer.source(sig)
  local lines = {}
  local function out(pattern, ...)
    lines[#lines + 1] = select("#", ...) > 0 and format(pattern, ...) or pattern
  end
  body(sig, out)
  local head = {HEAD}
  for i, arg in ipairs(sig.args) do
    if arg.row.buffer then head[#head + 1] = format("local b%d = B[%d]", i, i) end
    if arg.choice then
      head[#head + 1] = format("local choices%d = sig.args[%d].choice", i, i)
    end
  end
  return forms.source(sig, concat(head, "\n"), concat(lines, "\n"))
end

return writer
