--- draw.lua -- the picture of a frame: 800 x 600 pixels, 200 for a unit of the world.

local g = love.graphics

local function draw_moth(one, time)
  local x, y, wing = one.x * 200, one.y * 200, 6 + 5 * math.abs(math.sin(time * 25))
  g.ellipse("fill", x - wing, y - 3, wing, 6)
  g.ellipse("fill", x + wing, y - 3, wing, 6)
  g.setColor(1, 1, 1)
  g.ellipse("fill", x, y, 2.5, 8)
end

return function(game, lamp, moths)
  g.clear(0.05, 0.06, 0.12)
  for radius = 110, 10, -10 do
    g.setColor(1, 0.9, 0.6, radius > 15 and 0.035 or 1)
    g.circle("fill", lamp.x * 200, lamp.y * 200, radius)
  end
  g.setColor(1, 1, 1, 0.75)
  g.print(("Move the lamp with the mouse. Escape saves and ends.\nStep %d, loss %.2f; Moth takes "
    .. "%.2f ms of a frame."):format(game.steps, game.loss, game.cost * 1000), 15, 15)
  g.print("catches a minute", 385, 440)
  g.line(380, 460, 380, 580, 785, 580)
  for i, one in ipairs(moths) do
    g.setColor(one.color)
    g.print(("%s: %d catches"):format(one.title, one.caught), 15, 35 + 20 * i)
    for k = 2, #one.curve do
      g.line(378 + 2 * k, 580 - 3 * one.curve[k - 1], 380 + 2 * k, 580 - 3 * one.curve[k])
    end
    draw_moth(one, game.time)
  end
end
