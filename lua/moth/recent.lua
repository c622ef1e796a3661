--- recent.lua -- what can be made again, and goes when it was not wanted for a while.
--
-- Each collection walks over all of Lua's heap. So what is wanted seldom, and follows from what is
-- there, is kept for some collections only: what was made of a key, and the modules below, which
-- have no state. They write functions and messages; `require` reads them again.

local TOOLS = { "moth.forms", "moth.instead", "moth.kinds", "moth.registry", "moth.writer" }
local HINTS = "^moth%.instead%." -- the files of moth.instead
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

--- Counts a collection.
-- @param loaded  the modules that stay when package.loaded is cleared
function recent.passed(loaded)
  rounds = rounds + 1
  if rounds % ROUNDS ~= 0 then return end
  now, before = {}, now
  for _, name in ipairs(TOOLS) do package.loaded[name], loaded[name] = nil, nil end
  for name in pairs(loaded) do
    if name:find(HINTS) then package.loaded[name], loaded[name] = nil, nil end
  end
end

return recent
