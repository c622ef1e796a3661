--- explain.lua -- explains why a recording of a captured step does not fit a call: step.why, and
-- the warning that a step is recorded too often.

local ffi = require "ffi"
local autograd = require "moth.autograd"
local class = require "moth.base.class"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local outside = require "moth.capture.outer_values"

local C, ctx, istensor = lib.C, lib.ctx, lib.istensor

lib.declare "capture"

local function was(place, now, before)
  return ("%s is %s now, and was %s before"):format(place, now, before)
end

local find

local function find_in_table(t, note, place)
  if not lib.is_plain(t) then
    return was(place, errors.describe(t), "a table")
  end
  local n = 0
  for _ in pairs(t) do n = n + 1 end
  for i, key in ipairs(note.keys) do
    if t[key] == nil then return ("%s has no key '%s' now"):format(place, tostring(key)) end
    local why = find(t[key], note.notes[i], ("%s[%s]"):format(place, tostring(key)))
    if why then return why end
  end
  return n ~= #note.keys and place .. " has other keys" or nil
end

-- The difference between a value and the recording's value, or nil.
find = function(x, note, place)
  if note.keys then return find_in_table(x, note, place) end
  if note.tensor then
    local now, before = errors.describe(x), errors.describe(note.own)
    if istensor(x) and now == before then return nil end
    return was(place, now, before)
  end
  local constant = note.constant
  if x == constant or x ~= x and constant ~= constant then return nil end
  local text = was(place, errors.describe(x), errors.describe(constant))
  if type(x) ~= "number" then return text end
  return text .. " (numbers are constants of a recording; moth.tensor(x) is an input)"
end

local function named(module, name)
  if type(name) == "number" then name = ("[%d]"):format(name) end
  return ("'%s' of %s"):format(tostring(name), class.typename(module))
end

-- A buffer that each call replaces causes a new recording each time.
local function replaced(module, name)
  local store = rawget(module, "(store)")
  return named(module, name) .. " has changed"
    .. (store and store.kind[name] == "buffer" and "; write into it: x:copy_(y), x:add_(1)" or "")
end

local HOOKS = {pre = true, forward = true, backward_pre = true, backward = true}

-- The change in the modules that ran.
local function find_part(r)
  local noted = r.noted
  if not noted or noted.parts == noted.sight.parts then return nil end
  local same, module, name = noted.same(noted)
  if same then return nil end
  if not HOOKS[name] then return replaced(module, name) end
  return "the forward, or a hook, of " .. class.typename(module) .. " has changed"
end

-- The reason why an optimizer, scaler or hook does not take the same way.
local function find_cell(r)
  for _, cell in ipairs(r.cells) do
    if not cell.write(cell, cell.slots, cell.at) then
      if cell.kind then return "the hooks of a tensor have changed" end
      return cell.optimizer and ("the state, groups or options of the %s have changed"):format(
        class.typename(cell.optimizer)) or "the optimizer or GradScaler is in another state"
    end
  end
end

-- The changed value outside of the step, and true if it is the mode of a module.
local function find_outside(r)
  local row, now = outside.find(r.outside)
  if not row then return nil end
  if row.field == "training" then
    return ("`training` of a module that ran is %s now"):format(tostring(row.module.training)), true
  elseif row.field then
    return replaced(row.module, row.field)
  elseif row.module then
    return replaced(row.module, row.key)
  end
  now = row.kind == "count" and "another number" or errors.describe(now)
  local before = errors.describe(row.value)
  local name = ("'%s', which the function takes from outside,"):format(row.name)
  return (now == before and name .. " is another " .. (type(row.value) == "cdata" and "tensor"
    or type(row.value)) or was(name, now, before))
    .. "; pass a value that changes at each call as a tensor argument"
end

-- The core's reason for the last failed replay.
local function find_in_engine(r)
  local x = lib.Handle()
  local text = C.moth_capture_why(ctx, r.id, x)
  if text == nil then return nil end
  text = ffi.string(text)
  local cure = text:find "gradient" and " (zero_grad and p.grad = nil clear it unread)" or ""
  if x._slot == 0 then return text .. " is another" .. cure end
  for _, module in ipairs(r.noted and r.noted.modules or {}) do
    for _, member in ipairs(module:_members()) do
      if member[2]._slot == x._slot then
        return ("%s of %s is another%s"):format(text, named(module, member[1]), cure)
      end
    end
  end
  return ("%s of %s is another%s"):format(text, errors.describe(x), cure)
end

--- The reason, a sentence without its end, and a number for how far the recording fits the call.
-- The recording that fits furthest has the reason to report.
-- @param r    the recording; its replay has just failed
-- @param n    the number of arguments of the call
-- @param ...  the arguments
return function(r, n, ...)
  if n ~= r.n then return was("the number of arguments", n, r.n), 1 end
  for i = 1, n do
    local why = find((select(i, ...)), r.notes[i], "input " .. i)
    if why then return why, 2 end
  end
  if autograd.is_grad_enabled() ~= r.grad_enabled then return "the grad mode has changed", 3 end
  local other, mode = find_outside(r)
  if mode then return other, 4 end
  return other or find_part(r) or find_cell(r) or find_in_engine(r)
    or "a value that it uses has changed", 5
end
