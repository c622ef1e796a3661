-- Random programs that change variables, fields, lists, modules, modes and values that a captured
-- step reads, between its calls. The results of the step must equal those of its function.

local moth = require "moth"
local support = require "spec.support.bits"
local nn = moth.nn

local ROUNDS = tonumber(os.getenv "MOTH_FUZZ") or 60

local Layer = nn.class("Layer", nn.Module)
function Layer:init(k) self.k, self.cfg = k, {add = 0} end
function Layer:forward(x)
  local y = x * self.k + self.cfg.add
  if self.extra then y = y + self.extra end
  if self.training then y = y * 2 end
  return y
end

local Agent = {}
Agent.__index = Agent
function Agent:run(x)
  local y = x * self.beta
  if self.bonus then y = y + self.bonus end
  for i = 1, #self.list do y = y + self.list[i] end
  for _, layer in ipairs(self.layers) do y = layer(y) end
  for name, value in pairs(self.options) do y = y + value * #name end
  local act = self.act
  return act and act(y) or y
end

-- A program: a function of x, and changes of the values that it reads.
local function program(random)
  local function number() return random(-3, 3) end
  local function maybe(value) return random() < 0.7 and value or nil end
  local agent = setmetatable({beta = 1, list = {1}, layers = nn.ModuleList {Layer(1)},
                              options = {a = 1}}, Agent)
  local scale, offset, flag, f, tensor, map = 1, nil, true, nil, moth.tensor {1, 2}, {deep = {}}
  local names, key = {p = 1, q = 2}, "p"
  local function fn(x)
    local y = agent:run(x) * scale + tensor
    if offset then y = y + offset end
    if flag then y = -y end
    if f then y = f(y) end
    local deep = map.deep
    if deep.value then y = y * deep.value end
    y = y + names[key]
    return y
  end
  local changes = {
    function() scale = number() end,
    function() offset = maybe(number()) end,
    function() flag = maybe(random() < 0.5) end,
    function()
      local k = number()
      f = maybe(function(y) return y * k end)
    end,
    function() tensor = moth.tensor {number(), number()} end,
    function() map.deep.value = maybe(number()) end,
    function() map.deep = {value = maybe(number())} end,
    function() map = {deep = {value = number()}} end,
    function() key = random() < 0.5 and "p" or "q" end,
    function() names[key] = number() end,
    function() agent.beta = random() < 0.5 and number() or moth.tensor {number(), 1} end,
    function() agent.bonus = maybe(number()) end,
    function() agent.list[#agent.list + 1] = number() end,
    function() agent.list[math.max(#agent.list, 1)] = nil end,
    function() agent.list = {number(), number()} end,
    function() agent.options[random() < 0.5 and "a" or "bb"] = maybe(number()) end,
    function() agent.layers[random(#agent.layers)] = Layer(number()) end,
    function() if #agent.layers < 4 then agent.layers:append(Layer(number())) end end,
    function() if #agent.layers > 1 then agent.layers:pop(1) end end,
    function() agent.layers:train(random() < 0.5) end,
    function() agent.layers[1].k = number() end,
    function() agent.layers[1].cfg.add = number() end,
    function() agent.layers[1].cfg = {add = number()} end,
    function() agent.layers[1].extra = maybe(number()) end,
    function()
      local k = number()
      agent.act = maybe(function(y) return y + k end)
    end,
    function()
      local k = number()
      agent.layers[1].forward = maybe(function(_, x) return x + k end)
    end,
    function() agent = setmetatable({beta = number(), list = {}, layers = agent.layers,
                                     options = {}}, Agent) end,
  }
  return fn, changes
end

describe("random changes of what a captured step reads", function()
  it("are always detected", function()
    local warn = moth.warn
    moth.warn = function() end
    finally(function() moth.warn = warn end)
    for seed = 1, ROUNDS do
      math.randomseed(seed)
      local random = math.random
      local fn, changes = program(random)
      local step = moth.capture(fn, {verify = seed % 3})
      local x, last = moth.tensor {1, 2}, "nothing"
      for i = 1, 30 do
        local got, wanted = support.of(step(x)), support.of(fn(x))
        assert(got == wanted, ("seed %d, call %d, after change %s: %s for %s"):format(seed, i, last,
          got, wanted))
        if random() < 0.7 then
          last = random(#changes)
          changes[last]()
        end
      end
    end
  end)
end)
