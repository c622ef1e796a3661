--- stale.lua -- why a recording of a captured step does not fit a call, in words, for the warning
-- that a step is recorded again and again. What only the engine knows is told in general.

local autograd = require "moth.autograd"
local errors = require "moth.error"
local lib = require "moth.lib"

local istensor = lib.istensor

local function was(place, now, before)
  return ("%s is %s now, and was %s before"):format(place, now, before)
end

local find

local function find_in_table(t, note, place)
  if type(t) ~= "table" or getmetatable(t) ~= nil then
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

-- What is another in a value than in that of the recording, or nil.
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

--- The reason, a sentence without its end.
-- @param r    the recording
-- @param n    how many arguments the call has
-- @param ...  the arguments
return function(r, n, ...)
  if n ~= r.n then return was("the number of arguments", n, r.n) end
  for i = 1, n do
    local why = find((select(i, ...)), r.notes[i], "input " .. i)
    if why then return why end
  end
  if autograd.is_grad_enabled() ~= r.grad_enabled then return "the grad mode is another" end
  for i, module in ipairs(r.modules) do
    if module.training ~= r.training[i] then
      return ("`training` of a module that ran is %s now"):format(tostring(module.training))
    end
  end
  return "perhaps it reads gradients before its backward pass (clear them by zero_grad or p.grad = "
    .. "nil, unread), or a tensor, parameter, hook or mode that it uses is replaced between calls"
end
