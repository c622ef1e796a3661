-- arguments.lua -- a search for bad messages and for wrong acceptances, run by hand.
--
--     ./moth spec/search/arguments.lua              everything
--     ./moth spec/search/arguments.lua conv         names that match a Lua pattern
--     MOTH_SEARCH_SHOW=part ./moth spec/search/arguments.lua     calls refused in part too
--     MOTH_SEARCH_SHOW=accepted ./moth spec/search/arguments.lua calls that were accepted
--
-- Every public function, method and class with a known signature is called as its first example
-- says, with one argument at a time replaced by a wrong value: a string, a fraction, NaN, -1, a
-- table, a tensor of another rank, of another dtype, of another size; classes also when their
-- instances are called. The outcome of a call:
--
--   well      refused, and the message names the function (or the layer) and the argument, or
--             another argument of the call
--   part      refused, and the message names one of the two
--   badly     refused, and the message names neither
--   accepted  nothing was raised
--
-- Printed are the calls refused badly, a table of the outcomes by the kind of argument, and totals.

local mistaken = require "spec.support.mistaken_calls"

local only, show = arg and arg[1], os.getenv "MOTH_SEARCH_SHOW" or "badly"

local outcomes = {"well", "part", "badly", "accepted"}
local totals, by_kind, lines = {}, {}, {}
for _, name in ipairs(outcomes) do totals[name] = 0 end

local function word(text, name)
  return text:find("%f[%w_]" .. name:gsub("%W", "%%%0") .. "%f[^%w_]") ~= nil
end

-- A relation of two arguments may blame the other one.
local function outcome_of(text, names, argument, args)
  local named = word(text, argument)
  for _, other in ipairs(args) do
    named = named or text:find("bad argument '" .. other.name .. "' to", 1, true) ~= nil
  end
  local known = text:find "^%S+ in [%w_%.%[%]]+: " ~= nil -- the path of a layer
  for _, name in ipairs(names) do known = known or word(text, name) end
  if named and known then return "well" end
  return (named or known) and "part" or "badly"
end

local function count(kind, wrong, outcome)
  totals[outcome] = totals[outcome] + 1
  local key = ("%-14s %-9s"):format(kind, wrong)
  by_kind[key] = by_kind[key] or {}
  by_kind[key][outcome] = (by_kind[key][outcome] or 0) + 1
end

local function visit(title, names, argument, wrong, args, fine, text)
  local outcome = fine and "accepted" or outcome_of(tostring(text), names, argument.name, args)
  count(argument.row.name, wrong, outcome)
  if show == "all" or show == outcome or outcome == "badly" then
    text = fine and "" or ": " .. tostring(text):gsub("^[^:]+:%d+: ", "")
    lines[#lines + 1] = ("%-9s%s, %s = %s (%s)%s"):format(outcome, title, argument.name, wrong,
      argument.row.name, text)
  end
end

local functions, classes, unsearched = mistaken.each {only = only, visit = visit}

table.sort(lines)
for _, line in ipairs(lines) do print((line:gsub("\n.*", ""))) end
print()
local keys = {}
for key in pairs(by_kind) do keys[#keys + 1] = key end
table.sort(keys)
print(("%-24s %8s %8s %8s %8s"):format("kind, wrong value", unpack(outcomes)))
for _, key in ipairs(keys) do
  local row = by_kind[key]
  print(("%-24s %8d %8d %8d %8d"):format(key, row.well or 0, row.part or 0, row.badly or 0,
    row.accepted or 0))
end
print()
print(("not searched: %d: %s"):format(#unsearched, table.concat(unsearched, " ")))
print(("%d functions, %d classes: %d calls refused well, %d in part, %d badly, %d accepted"):format(
  functions, classes, totals.well, totals.part, totals.badly, totals.accepted))
