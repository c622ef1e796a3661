-- The race checker of the GPU emulator (cuda/emulator/watch.cpp, `./moth test --racecheck`) must
-- report each deliberate mistake in spec/host/watched.cpp with its line, and must report nothing
-- where threads synchronize correctly.

local process = require "spec.support.process"
local root = require("moth.error").root

local BUILD = [[
  cd '%s/cuda/emulator' || exit
  for file in counts.cpp emulated.cpp memory.cpp ptx.cpp streams.cpp watch.cpp; do
    c++ -std=c++17 -O1 -g1 -DMOTH_WATCHED -c $file -o %s.$file.o & jobs="$jobs $!"
  done
  c++ -std=c++17 -O1 -g1 -DMOTH_WATCHED -I. -fsanitize=thread \
    --param=tsan-instrument-func-entry-exit=0 --param=tsan-distinguish-volatile=1 \
    -c ../../spec/host/watched.cpp -o %s.o || exit
  for job in $jobs; do wait $job || exit; done
  c++ -o %s %s.*o -lpthread -ldl -Wl,--wrap=memcpy,--wrap=memset,--wrap=memmove
  rm -f %s.*o]]

describe("the race checker", function()
  if not process.shell("echo | c++ -x c++ -fsanitize=thread --param=tsan-distinguish-volatile=1"
    .. " -c -o /dev/null -"):find "rc=0" then
    pending("sees races: there is no C++ compiler whose code can be looked at")
    return
  end
  local program

  setup(function()
    program = os.tmpname()
    local text = process.shell((BUILD:gsub("%%s", root, 1):gsub("%%s", program)))
    assert.equal("rc=0\n", text)
  end)
  teardown(function() os.remove(program) end)

  local function run(name)
    return process.shell(("env -u MOTH_EMULATED_REPORTS -u MOTH_EMULATED_ORDER %s '%s'")
      :format(program, name))
  end

  local function sees(name, what)
    it("reports " .. name, function()
      local text = run(name)
      assert.truthy(text:find("watched CUDA: " .. what, 1, true), text)
      assert.truthy(text:find "rc=66\n$", text)
      if process.shell "command -v addr2line":find "rc=0" then
        assert.truthy(text:find "watched%.cpp:%d+", text)
      end
    end)
  end

  local function accepts(name, result)
    it("accepts " .. name, function()
      assert.equal(("done %d\nrc=0\n"):format(result), run(name))
    end)
  end

  sees("no barrier", "race")
  sees("shuffle", "race")
  sees("written again", "race")
  sees("same value", "race")
  sees("two blocks", "race")
  sees("half atomic", "race")
  sees("no fence", "race")
  sees("no count", "race")
  sees("not awaited", "a copy was not awaited")
  sees("apart", "threads wait at different places")
  sees("beyond", "outside of all tensors")
  sees("beyond shared", "memory of the CPU")
  sees("host", "memory of the CPU")
  sees("unwritten", "never written")
  sees("unwritten shared", "never written")

  accepts("barrier", 33)
  accepts("syncwarp", 0)
  accepts("bytes", 0x01010101)
  accepts("atomics", 192)
  accepts("volatile", 0)
  accepts("awaited", 0)
  accepts("last block", 6)
end)
