--- recent.lua -- what is rarely used and can be computed or read again: it is dropped after a
-- while.
--
-- Each collection walks over all of Lua's heap. So what was computed from a key is kept for some
-- collections only. So are the modules below when Moth alone uses them: they write functions and
-- messages, and hold no state. A module that a program has required is in package.loaded and stays,
-- with all that the program put there.

local TOOLS = {
  ["moth.binding.forms"] = true, ["moth.binding.kinds"] = true,
  ["moth.binding.registry"] = true, ["moth.binding.writer"] = true,
}
local HINTS = "^moth%.error%.instead%f[.%z]" -- moth.error.instead and its files
local ROUNDS = 16 -- collections from one look at what is wanted to the next

local recent = {}

local now, before, rounds = {}, {}, 0

--- make(key), kept while it is asked for.
function recent.of(key, make)
  local value = now[key]
  if value == nil then
    value = before[key]
    if value == nil then value = make(key) end
    now[key] = value
  end
  return value
end

--- Whether a module goes while no program has required it. Moth's own `require` (init.lua) keeps
-- such modules out of package.loaded.
function recent.goes(name) return TOOLS[name] or name:find(HINTS) ~= nil end

--- Counts a collection.
-- @param loaded  Moth's modules, by name
function recent.passed(loaded)
  rounds = rounds + 1
  if rounds % ROUNDS ~= 0 then return end
  now, before = {}, now
  for name in pairs(loaded) do
    if recent.goes(name) and package.loaded[name] == nil then loaded[name] = nil end
  end
end

return recent
