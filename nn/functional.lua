--- functional.lua -- moth.nn.functional, F for short: every op of the engine by its name, bound at
-- first use.
--
--     x = F.relu(F.max_pool2d(x, 2))
--
-- What is better said in Lua than in C stands here too, declared like an op.

local bind = require "moth.bind"
local errors = require "moth.error"

local functional = {cross_entropy = (require "moth.dispatch").cross_entropy}

local function known_names()
  local names = {}
  for name in pairs(functional) do names[#names + 1] = name end
  for _, name in ipairs(bind.names()) do names[#names + 1] = name end
  return names
end

return setmetatable(functional, {
  __names = known_names, -- for completion
  __index = function(_, name)
    local op = type(name) == "string" and bind.public(name) or nil
    if op == nil then
      errors.raise(("moth.nn.functional has no '%s'%s (moth.help() lists what there is)"):format(
        tostring(name), errors.nearest(tostring(name), known_names())))
    end
    rawset(functional, name, op)
    return op
  end,
})
