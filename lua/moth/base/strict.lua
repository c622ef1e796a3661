--- strict.lua -- moth.strict(): reading a global with a name from Python (False, None) raises.
--
-- Lua reads an undefined global as nil, so nn.Linear{3, 4, bias = False} would have a bias. Scripts
-- run by ./moth and its prompt check this without moth.strict() (core/host/launcher.c).

local WORDS = {True = "true", False = "false", None = "nil, or moth.none in a list of arguments"}

--- Makes a read of the globals True, False and None raise an error with Lua's word. If _G has a
-- metatable, it is kept and serves all other names.
return function()
  local meta = getmetatable(_G)
  if meta == nil then
    meta = {}
    setmetatable(_G, meta)
  end
  local before = meta.__index
  function meta.__index(space, name)
    local word = WORDS[name]
    if word then error(("'%s' is no word of Lua; write %s"):format(name, word), 2) end
    if type(before) == "function" then return before(space, name) end
    return before and before[name]
  end
end
