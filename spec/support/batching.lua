--- batching.lua -- records the batching rules that raise. vmap then calls the op once per sample:
-- the result is right, but slow, so specs of results do not notice.

local rules = require "moth.func.batch.rules"

local find, raised = rules.find, {}

function rules.find(meta)
  local rule = find(meta)
  return rule and function(...)
    local results = {pcall(rule, ...)}
    if not results[1] then
      -- a table without message: the rule gives up on purpose
      local given_up = type(results[2]) == "table" and next(results[2]) == nil
      if not given_up then
        raised[#raised + 1] = meta.name .. ": " .. tostring(results[2])
      end
      error(results[2], 0)
    end
    return unpack(results, 2, 10)
  end
end

--- Returns the errors of rules since the last call.
return function()
  local list = raised
  raised = {}
  return list
end
