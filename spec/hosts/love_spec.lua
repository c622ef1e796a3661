--- Moth inside LÖVE: the game of examples/hosts/love on a virtual screen. love_driver.lua plays
-- MOTH_HOST_FRAMES frames (600 by default) and prints the figures.

local lib = require "moth.binding.lib"
local process = require "spec.support.process"

local root = require("moth.error").root
local libdir = lib.path:match("^(.*)/[^/]*$")
local game = root .. "examples/hosts/love"
local frames = tonumber(os.getenv "MOTH_HOST_FRAMES") or 600

local function installed(program)
  return process.shell("command -v " .. program):find("rc=0", 1, true)
end

local missing
if not installed "love" then missing = "love" end
if not installed "Xvfb" then missing = (missing and missing .. " " or "") .. "xvfb" end

describe("a game in LÖVE", function()
  if missing or process.sanitized then
    pending(missing and "it is not installed: apt-get install " .. missing
      or "LÖVE does not load a library with sanitizers")
    return
  end

  local folder, saves, screen

  -- Runs LÖVE on the virtual screen. Without `paths` only the archive has Moth.
  local function love(what, options)
    return process.shell(([[cd '%s' && unset LUA_PATH LUA_CPATH MOTH_LIB && DISPLAY=%s \
      SDL_AUDIODRIVER=dummy XDG_DATA_HOME='%s' DRIVER_FRAMES=%d %s love '%s' ]]):format(folder,
      screen, folder .. "/data", options.frames or frames, (options.before or "")
      .. (options.paths and (" LUA_PATH='%slua/?.lua;%slua/?/init.lua' LUA_CPATH='%s/?.so'"):format(
        root, root, libdir) or ""), what))
  end

  local function number(text, name)
    return assert(tonumber(text:match(name:gsub("%p", "%%%0") .. " = (%S+)")), text)
  end

  -- The mean distance from the lamp after two seconds: "before" or "after" the frames.
  local function distance(text, when, moth)
    return number(text, ("distance %s, %s.safetensors"):format(when, moth))
  end

  local function exists(name)
    local file = io.open(saves .. name)
    if file then file:close() end
    return file ~= nil
  end

  local first, weights -- weights: the distance of the last saved ones

  setup(function()
    folder = os.tmpname()
    saves = folder .. "/data/love/moth-and-lamp/"
    -- Xvfb writes the number of a free display to file 3, and stays until it is ended below.
    os.execute(([[rm '%s' && mkdir -p '%s/play' && cd '%s' && cp '%s'/*.lua play && \
      mv play/main.lua play/game.lua && cp '%s/spec/hosts/love_driver.lua' play/main.lua && \
      { Xvfb -displayfd 3 -screen 0 1024x768x24 -nolisten tcp 3>display >xvfb.log 2>&1 & \
      echo $! >xvfb.pid; } && for i in $(seq 100); do [ -s display ] && break; sleep 0.1; done]])
      :format(folder, folder, folder, game, root))
    screen = ":" .. assert(io.open(folder .. "/display")):read "*l"
    first = love("play", {paths = true})
  end)
  teardown(function()
    os.execute(("kill $(cat '%s/xvfb.pid'); rm -r '%s'"):format(folder, folder))
  end)

  it("learns while it runs, in each frame and on a thread", function()
    print("\n" .. first:gsub("\nrc=0\n$", ""))
    assert.is_truthy(first:find("rc=0", 1, true), first)
    assert.is_true(number(first, "weights received") > 1, first)
    for _, moth in ipairs {"blue", "orange"} do
      local before, after = distance(first, "before", moth), distance(first, "after", moth)
      assert.is_true(after < 0.5 * before, first)
    end
  end)

  it("keeps the memory of its first thousand frames", function()
    if frames < 2000 then return end -- a longer run: MOTH_HOST_FRAMES=100000
    local early, late = first:match "([%d.]+) MiB at frame 1000, ([%d.]+) MiB"
    assert.is_true(tonumber(late) < early * 1.01, first)
  end)

  it("continues with the saved weights after a restart", function()
    assert.is_true(exists "blue.safetensors" and exists "orange.safetensors")
    local again = love("play", {paths = true, frames = 60})
    weights = distance(again, "after", "blue")
    for _, moth in ipairs {"blue", "orange"} do
      assert.are.equal(distance(first, "after", moth), distance(again, "before", moth))
    end
  end)

  it("draws frames", function()
    assert.is_true(exists "screenshot.png")
    local file = io.open(saves .. "screenshot.png", "rb")
    local bytes = file:read "*a"
    file:close()
    assert.is_true(#bytes > 8000, #bytes .. " bytes") -- an empty picture has about 3000
  end)

  it("runs from a .love archive, with the weights and the library in it", function()
    local text = process.shell(("cd '%s' && '%s/pack' game.love play/game.lua play/main.lua "
      .. "'%s'/*.safetensors && rm -r data"):format(folder, game, saves))
    assert.are.equal("rc=0\n", text)
    local packed = love("game.love", {frames = 60})
    assert.is_truthy(packed:find("library = " .. saves, 1, true), packed)
    assert.are.equal(distance(packed, "before", "blue"), weights, packed)
  end)

  it("saves when the system ends it", function()
    local pack = ("cd '%s' && '%s/pack' game.love && rm -r data"):format(folder, game)
    assert.are.equal("rc=0\n", process.shell(pack))
    local function saved() return exists "blue.safetensors" and exists "orange.safetensors" end
    for _, seconds in ipairs {6, 15, 30} do -- it starts in one second on a quiet machine
      love("game.love", {before = "timeout " .. seconds})
      if saved() then break end
    end
    assert.is_true(saved())
  end)
end)
