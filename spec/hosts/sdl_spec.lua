--- A game loop of SDL2 in C: examples/hosts/sdl/game.c, in which a network learns for 2 ms of each
-- frame. MOTH_HOST_FRAMES=100000 plays longer.

local lib = require "moth.binding.lib"
local process = require "spec.support.process"

local root = require("moth.error").root
local FRAMES = tonumber(os.getenv "MOTH_HOST_FRAMES") or 1000

describe("a game loop of SDL2", function()
  if process.shell("pkg-config --exists sdl2") ~= "rc=0\n" then
    return pending "learns: there is no SDL2 (Debian: apt-get install libsdl2-dev)"
  end

  local program, compiled, text

  setup(function()
    program = os.tmpname()
    local libdir = lib.path:match("^(.*)/[^/]*$")
    local sanitize = process.sanitized and "-fsanitize=" .. os.getenv "MOTH_SANITIZED" or ""
    compiled = process.shell(([[cd '%s' && cc -O2 -Wall -Wextra -Wpedantic -Werror %s -Icore \
      examples/hosts/sdl/game.c -o '%s' $(pkg-config --cflags --libs sdl2) -L'%s' -lmoth -lm \
      -Wl,-rpath,'%s']]):format(root, sanitize, program, libdir, libdir))
    text = process.shell(("SDL_VIDEODRIVER=dummy MOTH_NUM_THREADS=1 bash -c 'time -p %s %d'")
      :format(program, FRAMES))
  end)
  teardown(function() os.remove(program) end)

  it("compiles without a warning", function() assert.equal("rc=0\n", compiled) end)

  it("learns while it plays", function()
    local early, late = text:match "misses the lamp by ([%d.]+) at first, ([%d.]+) at the end"
    assert.is_truthy(early, text)
    assert.is_true(tonumber(late) < early / 2, text)
    assert.is_truthy(text:find("rc=0\n$"), text)
  end)

  it("trains for 2 ms of each frame, and reports the worst frame", function()
    local steps = text:match "(%d+) training steps in "
    local mean, worst = text:match "part of a frame: ([%d.]+) ms mean, ([%d.]+) worst"
    assert.is_true(tonumber(steps) > FRAMES, text)
    assert.is_true(tonumber(mean) > 1 and tonumber(worst) >= tonumber(mean), text)
    -- CPU time, with that of the drawing: other processes may delay a frame
    local user, system = text:match "user ([%d.]+)\nsys ([%d.]+)"
    if not process.sanitized then assert.is_true((user + system) / FRAMES < 0.004, text) end
  end)
end)
