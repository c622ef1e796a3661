--- fit_kill.lua -- kills runs of moth.fit at random moments (SIGKILL) and resumes them, by hand.
--
--     ./moth spec/search/fit_kill.lua [KILLS] [SEED]
--
-- Each round trains in child processes. One to three of them are killed at a random moment; the
-- last one ends the run. All rounds must end with the bits of a run without a break: the weights,
-- the optimizer, the history, the random state, and the files of the best epochs.

package.path = "./?.lua;" .. package.path

local moth = require "moth"
moth.set_num_threads(1)
local child = require "spec.support.child"
local fit_run = require "spec.support.fit_run"

local kills, seed = tonumber(arg[1]) or 300, tonumber(arg[2]) or 1
math.randomseed(seed)

local folder = os.tmpname()
os.remove(folder)

local function equal(a, b)
  for key, value in pairs(a) do
    if b[key] ~= value then return false end
  end
  for key in pairs(b) do
    if a[key] == nil then return false end
  end
  return true
end

local clock = require("moth.binding.lib").C.moth_seconds
local start = clock()
assert(child.run(function() fit_run.train(folder) end))
local longest = (clock() - start) * 1e6
local wanted = fit_run.result(folder)

local done, rounds, differing = 0, 0, 0
while done < kills do
  fit_run.clear(folder)
  local most = math.min(math.random(3), kills - done)
  done = done + fit_run.killed(folder, longest, most, math.random)
  rounds = rounds + 1
  if not equal(wanted, fit_run.result(folder)) then differing = differing + 1 end
end
fit_run.clear(folder)
os.remove(folder)
print(("%d kills in %d rounds (a run takes %.0f ms): %d rounds end with other bits"):format(done,
  rounds, longest / 1e3, differing))
os.exit(differing == 0 and 0 or 1)
