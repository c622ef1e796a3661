--- undo.lua -- undoes the changes of a captured step to Lua's variables and tables, so that a
-- replay can be compared with the step itself.

local look = require "moth.capture.outer_compare"
local sort_of = require("moth.capture.outer_values").sort_of

local rewind = {}

local function copy(t)
  local list = {}
  for key, value in next, t do list[key] = value end
  return list
end

local function add_copy(saved, t)
  if saved.copies[t] == nil then saved.copies[t] = copy(t) end
end

local function add_upvalues(saved, fn)
  for i = 1, look.UPVALUES do
    local name, value = debug.getupvalue(fn, i)
    if not name then return end
    local id = debug.upvalueid(fn, i)
    if not saved.ids[id] then
      saved.ids[id] = true
      saved.upvalues[#saved.upvalues + 1] = {fn = fn, at = i, value = value}
      if type(value) == "table" and sort_of(value) == "table" then add_copy(saved, value) end
    end
  end
end

--- The current values of the variables, tables and module fields that the step may assign.
function rewind.save(watch)
  local saved = {upvalues = {}, ids = {}, copies = {}, globals = {}}
  for _, fn in ipairs(watch.written) do add_upvalues(saved, fn) end
  for _, entry in ipairs(watch.list) do
    if entry.sort == "table" then add_copy(saved, entry.table) end
  end
  for _, one in ipairs(watch.modules) do add_copy(saved, one.store.fields) end
  for i, place in ipairs(watch.globals) do
    saved.globals[i] = {place[1], place[2], rawget(place[1], place[2])}
  end
  return saved
end

--- Restores saved values. @return the replaced values, for another call
function rewind.restore(saved)
  local old = {upvalues = {}, copies = {}, globals = {}}
  for i, row in ipairs(saved.upvalues) do
    local _, value = debug.getupvalue(row.fn, row.at)
    old.upvalues[i] = {fn = row.fn, at = row.at, value = value}
    if not rawequal(value, row.value) then debug.setupvalue(row.fn, row.at, row.value) end
  end
  for t, before in pairs(saved.copies) do
    local present = copy(t)
    old.copies[t] = present
    for key in next, present do
      if before[key] == nil then rawset(t, key, nil) end
    end
    for key, value in next, before do
      if not rawequal(present[key], value) then rawset(t, key, value) end
    end
  end
  for i, row in ipairs(saved.globals) do
    old.globals[i] = {row[1], row[2], rawget(row[1], row[2])}
    rawset(row[1], row[2], row[3])
  end
  return old
end

return rewind
