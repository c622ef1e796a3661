--- threads.lua -- the network of threads.c: each Lua state has the module, all share one copy of
-- its weights.

local moth = require "moth"
local nn = moth.nn

local shared = {}

local function linear(...) return nn.utils.skip_init(nn.Linear, ...) end -- weights are not set

local net = nn.Sequential(linear(512, 1536), nn.Tanh(), linear(1536, 1536), nn.Tanh(),
                          linear(1536, 4))
moth.set_grad_enabled(false)

--- Initializes the weights, in the state that owns them.
function shared.create()
  moth.manual_seed(1)
  for _, parameter in ipairs(net:parameters()) do parameter:normal_(0, 0.03) end
end

--- Returns a line for each tensor: its name and a token. Another state can open it once.
function shared.lend()
  local lines = {}
  for name, tensor in pairs(net:state_dict()) do
    lines[#lines + 1] = name .. " " .. moth.token(tensor)
  end
  return table.concat(lines, "\n")
end

--- Uses the tensors of another state as weights.
function shared.borrow(text)
  local weights = {}
  for name, token in text:gmatch "(%S+) (%S+)" do weights[name] = moth.open_token(token) end
  net:load_state_dict(weights, {assign = true})
end

--- Doubles the last layer, in place: other states see the new values.
function shared.change()
  net[5].weight:mul_(2)
  net[5].bias:mul_(2)
end

--- Returns the first output for an input that consists of one number.
function shared.think(number)
  return moth.scope(function() return net(moth.full({512}, number))[1]:item() end)
end

return shared
