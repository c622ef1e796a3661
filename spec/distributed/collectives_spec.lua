-- moth.distributed under each installed MPI, with 2 and 4 processes (or MOTH_RANKS="2"): the claims
-- of spec/distributed/claims. One run of mpirun checks all claims of a file.

local ranks = require "spec.support.ranks"

local FILES = {"collectives", "objects", "training", "metrics", "data", "join",
               "checkpoint", "fit"}

describe("moth.distributed", function()
  local launchers = ranks.launchers()
  if #launchers == 0 then
    pending "needs an MPI: apt-get install openmpi-bin mpich"
    return
  end
  for _, launcher in ipairs(launchers) do
    for n in (os.getenv "MOTH_RANKS" or "2 4"):gmatch "%d+" do
      for _, file in ipairs(FILES) do
        describe(("under %s, %d processes, %s:"):format(launcher[1], n, file), function()
          local path = ("spec/distributed/claims/%s.lua"):format(file)
          local results
          for _, claim in ipairs(dofile(path)) do
            it(claim[1], function()
              results = results or ranks.run(path, launcher[2], n)
              assert.are.equal("ok", results[claim[1]] or results.text)
            end)
          end
        end)
      end
    end
  end
end)
