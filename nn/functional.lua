--- functional.lua -- moth.nn.functional, F for short: every op of the engine by its name, bound at
-- first use.
--
--     x = F.relu(F.max_pool2d(x, 2))
--
-- What is better said in Lua than in C stands here too, declared like an op.

local bind = require "moth.bind"
local errors = require "moth.error"

local functional = {cross_entropy = (require "moth.dispatch").cross_entropy}

-- Functions written in Lua, by the module that they stand in; loaded at first use.
local in_lua = {}
for name in ("cosine_similarity margin_ranking_loss hinge_embedding_loss cosine_embedding_loss "
    .. "triplet_margin_loss poisson_nll_loss gaussian_nll_loss"):gmatch("%S+") do
  in_lua[name] = "moth.nn.margins"
end

-- Ops under the names they have here: as a method, unfold is a view along one dimension.
local renamed = {unfold = "im2col"}

local function known_names()
  local names = {}
  for _, more in ipairs {in_lua, renamed} do
    for name in pairs(more) do
      if rawget(functional, name) == nil then names[#names + 1] = name end
    end
  end
  for name in pairs(functional) do names[#names + 1] = name end
  for _, name in ipairs(bind.names()) do names[#names + 1] = name end
  return names
end

return setmetatable(functional, {
  __names = known_names, -- for completion
  __index = function(_, name)
    local op
    if in_lua[name] then op = require(in_lua[name])[name]
    elseif renamed[name] then op = bind.as(renamed[name], name)
    elseif type(name) == "string" then op = bind.public(name) end
    if op == nil then
      errors.raise(("moth.nn.functional has no '%s'%s (moth.help() lists what there is)"):format(
        tostring(name), errors.nearest(tostring(name), known_names())))
    end
    rawset(functional, name, op)
    return op
  end,
})
