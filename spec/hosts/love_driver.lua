--- love_driver.lua -- main.lua of a copy of examples/hosts/love, whose own main.lua is game.lua
-- there. It plays DRIVER_FRAMES frames without pauses, and prints figures for love_spec.lua.

local ffi = require "ffi"

ffi.cdef [[
typedef struct { long seconds, nanoseconds; } driver_time;
int clock_gettime(int, driver_time *);
]]
local WALL, CPU = 1, 3 -- CLOCK_MONOTONIC, CLOCK_THREAD_CPUTIME_ID of Linux
local read = ffi.new "driver_time"

local function milliseconds(clock)
  ffi.C.clock_gettime(clock, read)
  return tonumber(read.seconds) * 1e3 + tonumber(read.nanoseconds) * 1e-6
end

local function resident() -- MiB
  local file = io.open "/proc/self/statm"
  local pages = file:read("*a"):match "%S+ (%S+)"
  file:close()
  return pages * 4 / 1024
end

local function draw(last)
  love.graphics.origin()
  love.draw()
  if last then love.graphics.captureScreenshot "screenshot.png" end
  love.graphics.present()
end

local function report(name, value) print(("%s = %s"):format(name, value)) end

local function report_times(name, list)
  table.sort(list)
  local n = #list
  report(name, ("median %.3f, p99 %.3f, worst %.3f ms"):format(list[math.ceil(n / 2)],
    list[math.ceil(n * 0.99)], list[n]))
end

local function play(frames)
  local wall, cpu, memory = {}, {}, {}
  for i = 1, frames do wall[i], cpu[i] = 0, 0 end
  local every = frames > 5000 and 200 or 10 -- drawing by software is slow
  for i = 1, frames do
    love.event.pump()
    local wall_before, cpu_before = milliseconds(WALL), milliseconds(CPU)
    love.update(1 / 60)
    wall[i], cpu[i] = milliseconds(WALL) - wall_before, milliseconds(CPU) - cpu_before
    if i == 1 or i == 1000 or i == frames then
      memory[#memory + 1] = ("%.1f MiB at frame %d"):format(resident(), i)
    end
    if i % every == 0 then draw(i + every > frames) end
    if i <= 5000 then love.timer.sleep(0.001) end -- the thread learns too
  end
  report("library", require("moth.binding.lib").path)
  report_times("frame", wall)
  report_times("frame, CPU time", cpu)
  report("resident", table.concat(memory, ", "))
end

-- The mean distance from a lamp that does not move, 2 s after 64 starts at rest.
local function distance(agent)
  local moth = require "moth"
  return moth.no_grad(moth.scope, function()
    local side = moth.linspace(-1.5, 1.5, 8)
    local x, speed = moth.cartesian_prod(side, side), moth.zeros(64, 2)
    for _ = 1, 120 do
      speed = speed + agent.net(moth.cat({-x, speed}, 2)) * (4 / 60)
      x = x + speed / 60
    end
    return x:square():sum(2):sqrt():mean():item()
  end)
end

function love.run()
  require "native"
  require "game"
  local Agent = require "agent"
  local init, set_weights, save, received = Agent.init, Agent.set_weights, Agent.save, 0
  function Agent.init(self, ...)
    init(self, ...)
    report("distance before, " .. self.file, distance(self))
  end
  function Agent.set_weights(...)
    received = received + 1
    set_weights(...)
  end
  function Agent.save(self)
    report("distance after, " .. self.file, distance(self))
    save(self)
  end
  love.load()
  play(tonumber(os.getenv "DRIVER_FRAMES"))
  report("weights received", received)
  love.quit()
  return function() return 0 end
end
