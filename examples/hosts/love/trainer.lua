--- trainer.lua -- the training thread: a Lua state of its own, with its own network. Tensors cross
-- between threads as tokens, without a copy.

require "love.timer"
require "native"
local moth = require "moth"
moth.set_num_threads(1)

local inbox, outbox, name = ...
local agent = require "agent"(name, moth.open_token(inbox:demand())) -- the main thread's memories

while inbox:getCount() == 0 do -- until any message
  agent:practice()
  if outbox:getCount() == 0 then -- the main thread has taken the last weights
    outbox:push(moth.scope(agent.token, agent))
  end
  collectgarbage "step"
  love.timer.sleep(0.002)
end
