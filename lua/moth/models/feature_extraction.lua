--- feature_extraction.lua -- results of inner layers by name, with torchvision's names.
--
--     local extraction = moth.models.feature_extraction
--     local f = extraction.create_feature_extractor(net, {"layer2", layer4 = "x"})
--     local y = f(images)
--     print(y.layer2.shape, y.x.shape)

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lazy = require "moth.base.lazy"
local nn = require "moth.nn"

local extraction = {}

-- The names of a model's modules in order, without the model itself.
local function names_of(net)
  local names = {}
  for name in net:named_modules() do
    if name ~= "" then names[#names + 1] = name end
  end
  return names
end

-- Converts a list of names, or names with the names of results, to a map.
local function nodes_of(fname, net, return_nodes)
  local nodes, count, known = {}, 0, names_of(net)
  local have = {}
  for _, name in ipairs(known) do have[name] = true end
  for name, result in pairs(return_nodes) do
    if type(name) == "number" then name = result end
    if type(name) ~= "string" or not have[name] then
      errors.argument(fname, "return_nodes", ("%s has no module '%s'%s"):format(nn.typename(net),
        tostring(name), errors.nearest(tostring(name), known)))
    elseif type(result) ~= "string" then
      errors.argument(fname, "return_nodes", ("the result of '%s' needs a name, got %s"):format(
        name, errors.describe(result)), "E_TYPE")
    end
    nodes[name], count = result, count + 1
  end
  if count == 0 then
    errors.argument(fname, "return_nodes", "the name of at least one module is needed")
  end
  return nodes, count
end

-- ---- the extractor ----

local DONE = setmetatable({}, {__tostring = function() return "all features are computed" end})

--- A module that runs another one up to the last of some inner modules, and returns their results.
-- The field `net` is the model; the two share parameters, and the mode of training.
local FeatureExtractor = class("FeatureExtractor", nn.Module)

function FeatureExtractor:init(net, nodes, count)
  self.net = net
  self.nodes, self.count = nodes, count
  self.training = net.training
end

-- Adds hooks that collect results, and end the call when all have been computed.
local function watch(self, found)
  local handles, missing = {}, self.count
  for name, result in pairs(self.nodes) do
    handles[#handles + 1] = self.net:get_submodule(name):register_forward_hook(
      function(_, _, output)
        if found[result] ~= nil then return end
        found[result], missing = output, missing - 1
        if missing == 0 then error(DONE, 0) end
      end)
  end
  return handles
end

function FeatureExtractor:forward(...)
  local found = {}
  local handles = watch(self, found)
  local fine, problem = pcall(self.net, ...)
  for _, handle in ipairs(handles) do handle:remove() end
  if not fine and problem ~= DONE then error(problem, 0) end
  for name, result in pairs(self.nodes) do
    if found[result] == nil then
      errors.raise(("the model did not call its module '%s'"):format(name), "E_STATE")
    end
  end
  return found
end

-- ---- functions ----

extraction.create_feature_extractor = define {
  name = "models.feature_extraction.create_feature_extractor",
  doc = "A module that returns the results of inner modules as a table. It runs the model up to "
    .. "the last of them. A module that is called several times gives its first result.",
  outputs = "extractor",
  examples = "moth.nn.Sequential(moth.nn.Linear(2, 3), moth.nn.ReLU()), {\"0\"}",
  args = {
    {"any", "model", "a module"},
    {"map", "return_nodes", "a list of names of inner modules, or {name = name of the result}, or "
      .. "both: {\"layer2\", layer4 = \"x\"}"},
  },
  run = function(net, return_nodes)
    local fname = "create_feature_extractor"
    if not nn.isinstance(net, nn.Module) then
      errors.refuse(fname, "model", "a module is needed", net, "E_TYPE")
    end
    return (FeatureExtractor(net, nodes_of(fname, net, return_nodes)))
  end,
}

extraction.get_graph_node_names = define {
  name = "models.feature_extraction.get_graph_node_names",
  doc = "The names of a model's inner modules, for create_feature_extractor.",
  outputs = "names",
  examples = "moth.nn.Sequential(moth.nn.Linear(2, 3), moth.nn.ReLU())",
  args = {{"any", "model", "a module"}},
  run = function(net)
    if not nn.isinstance(net, nn.Module) then
      errors.refuse("get_graph_node_names", "model", "a module is needed", net, "E_TYPE")
    end
    return (names_of(net))
  end,
}

return (lazy.namespace("moth.models.feature_extraction", extraction, {}, {hint = lazy.HELP}))
