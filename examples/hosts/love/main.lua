--- main.lua -- two moths learn to fly to a lamp, which the mouse moves. The blue one learns in each
-- frame, the orange one on a thread. A moth that catches the lamp scores and starts elsewhere.
-- The world is 4 x 3 units.

require "native"
local moth = require "moth"
moth.set_num_threads(1) -- networks of this size are faster on one
local Agent = require "agent"
local draw = require "draw"

local inbox, outbox = love.thread.newChannel(), love.thread.newChannel()
local lamp = {x = 2, y = 1.5, moved = -10} -- moved: when the mouse moved
local game = {time = 0, steps = 0, cost = 0} -- cost: seconds of a frame in Moth
local thread, moths, blue, orange

local function new_moth(title, color, agent)
  return {title = title, color = color, agent = agent, x = math.random() * 4, y = math.random() * 3,
    vx = 0, vy = 0, caught = 0, rate = 0, curve = {}}
end

-- Everything that Moth does in a frame.
local function think()
  for _, one in ipairs(moths) do
    one.ax, one.ay = one.agent:push(lamp.x - one.x, lamp.y - one.y, one.vx - lamp.vx,
      one.vy - lamp.vy)
  end
  game.loss = blue.agent:practice()
  local token = outbox:pop()
  if token then orange.agent:set_weights(token) end
end

local function move_lamp(dt)
  local x, y = love.mouse.getX() / 200, love.mouse.getY() / 200
  if game.time - lamp.moved > 3 then -- nobody plays
    x, y = 2 + 1.6 * math.sin(game.time * 0.5), 1.5 + 1.1 * math.sin(game.time * 0.83)
  end
  lamp.vx, lamp.vy = (x - lamp.x) * 8, (y - lamp.y) * 8
  lamp.x, lamp.y = lamp.x + lamp.vx * dt, lamp.y + lamp.vy * dt
end

local function fly(one, dt)
  one.vx, one.vy = one.vx + one.ax * dt, one.vy + one.ay * dt
  one.x, one.y = (one.x + one.vx * dt) % 4, (one.y + one.vy * dt) % 3
  one.rate = one.rate * (1 - dt / 20) -- catches a minute, over the last 20 seconds
  if (lamp.x - one.x) ^ 2 + (lamp.y - one.y) ^ 2 < 0.15 ^ 2 then
    one.x, one.y, one.vx, one.vy = math.random() * 4, math.random() * 3, 0, 0
    one.caught, one.rate = one.caught + 1, one.rate + 3
  end
  if game.steps % 15 == 0 then table.insert(one.curve, one.rate) end
  if #one.curve > 200 then table.remove(one.curve, 1) end
end

function love.load()
  moth.manual_seed(os.time())
  blue = new_moth("blue, learns in each frame", {0.45, 0.72, 1}, Agent "blue")
  orange = new_moth("orange, learns on a thread", {1, 0.62, 0.25}, Agent "orange")
  moths = {blue, orange}
  thread = love.thread.newThread "trainer.lua"
  thread:start(inbox, outbox, "orange")
  inbox:push(moth.token(blue.agent.memories)) -- both networks learn from the same memories
  move_lamp(0)
  outbox:push(orange.agent:token())
  -- The first runs are slow: Moth records, LuaJIT compiles. `reserve` keeps the memory of a frame.
  for _ = 1, 100 do moth.reserve(moth.scope, think) end
end

function love.update(dt)
  dt = math.min(dt, 1 / 30)
  game.time, game.steps = game.time + dt, game.steps + 1
  move_lamp(dt)
  local began = love.timer.getTime()
  moth.scope(think) -- frees the tensors of the frame
  game.cost = game.cost + (love.timer.getTime() - began - game.cost) / 30
  for _, one in ipairs(moths) do fly(one, dt) end
  collectgarbage "step" -- a little in each frame, never much at once
end

function love.draw() draw(game, lamp, moths) end

function love.mousemoved() lamp.moved = game.time end

function love.keypressed(key) if key == "escape" then love.event.quit() end end

function love.quit()
  inbox:push "stop"
  thread:wait()
  for _, one in ipairs(moths) do one.agent:save() end
end

function love.threaderror(_, message) error(message) end
