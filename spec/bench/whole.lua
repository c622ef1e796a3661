--- Workloads of new processes on Moth's side: start-up, size on disk, a whole program, and the
-- peak memory of training steps. Each returns a function(variant, round) -> {{part, unit, value},
-- ...}.

local timing = require "timing"

local whole = {}

local here = arg[0]:match "^(.*)/" or "."
local launcher = debug.getregistry()["moth.launcher"] or {}

local function quoted(word) return "'" .. word:gsub("'", "'\\''") .. "'" end

--- Runs this Moth with some words; calls line(text) for each line of its output.
local function run(words, line)
  local command = {"exec", quoted(launcher.program)}
  for _, word in ipairs(words) do command[#command + 1] = quoted(tostring(word)) end
  local pipe = assert(io.popen(table.concat(command, " ")))
  for text in pipe:lines() do line(text) end
  pipe:close()
end

local IMPORT = [[
  local moth = require "moth"
  local _ = moth.ones(1) + 1
  print(io.open "/proc/self/status":read "*a")
]]

whole["import"] = function()
  local function once()
    local start, peak = timing.wall(), nil
    run({"-e", IMPORT}, function(line) peak = peak or line:match "^VmHWM:%s*(%d+)" end)
    return {{"wall", "us", (timing.wall() - start) * 1e6}, {"peak_rss", "MiB", peak / 1024}}
  end
  once() -- fills the caches
  return once
end

--- The installed files that programs need: the launcher, the library, the Lua files.
function whole.disk()
  return function()
    local bytes = 0
    local words = quoted(launcher.program) .. " " .. quoted(require("moth.binding.lib").path)
    for _, folder in ipairs {"lua", "nn"} do
      words = words .. " " .. quoted(launcher.root .. "/" .. folder)
    end
    local pipe = assert(io.popen("find " .. words .. " -type f -printf '%s\\n'"))
    for size in pipe:lines() do bytes = bytes + size end
    pipe:close()
    local mib = bytes / 2 ^ 20
    return {{"package", "MiB", mib}, {"with_nvidia", "MiB", mib}}
  end
end

--- The first round trains three epochs, the others one.
function whole.fashion_mnist()
  return function(_, round)
    local epochs, parts = round == 1 and 3 or 1, {}
    local start, epoch = timing.wall(), 0
    run({here .. "/fashion_mnist.lua", round, epochs}, function(line)
      local seconds, accuracy = line:match "^(%S+) (%S+)$"
      epoch = epoch + 1
      if epoch == 1 then
        parts[1] = {"wall_1_epoch", "us", (timing.wall() - start) * 1e6}
        parts[2] = {"epoch", "us", seconds * 1e6}
        parts[3] = {"accuracy_1", "%", tonumber(accuracy)}
      elseif epoch == 3 then
        parts[4] = {"accuracy_3", "%", tonumber(accuracy)}
      end
    end)
    return parts
  end
end

function whole.memory(row)
  return function(variant)
    local parts = {}
    run({here .. "/memory.lua", row.options.net, variant, row.options.steps}, function(line)
      local name, unit, value = line:match "^(%S+) (%S+) (%S+)$"
      parts[#parts + 1] = {name, unit, tonumber(value)}
    end)
    return parts
  end
end

return whole
