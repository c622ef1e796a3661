--- recent.lua -- caches that are emptied after a few collections.
--
-- Each collection visits all of Lua's heap. So a value that can be computed again is cached for a
-- few collections only. The same applies to the modules below, if only Moth uses them: they write
-- functions and messages and have no state. A module that the program has required stays in
-- package.loaded, with all fields that the program set.

local TOOLS = {
  ["moth.binding.forms"] = true, ["moth.binding.kinds"] = true,
  ["moth.binding.registry"] = true, ["moth.binding.writer"] = true,
}
local HINTS = "^moth%.error%.instead%f[.%z]" -- moth.error.instead and its files
local ROUNDS = 16 -- collections between two checks of which values were used

local recent = {}

local now, before, rounds = {}, {}, 0

--- Returns make(key). The value is cached as long as it is used.
function recent.of(key, make)
  local value = now[key]
  if value == nil then
    value = before[key]
    if value == nil then value = make(key) end
    now[key] = value
  end
  return value
end

--- Returns true if Moth may unload a module: the program has not required it itself. Moth's own
-- `require` (init.lua) does not put these modules into package.loaded.
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
