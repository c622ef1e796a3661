-- `moth run` (lua/moth/distributed/launch.lua): its words, and the environment of mpirun. Programs
-- written here stand in for mpirun, nproc and id.

local files = require "spec.support.files"
local process = require "spec.support.process"

local launcher = debug.getregistry()["moth.launcher"]
if not launcher then
  pending("moth run: these specs run under ./moth test")
  return
end

local NAMES = {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
  "OMPI_MCA_rmaps_base_oversubscribe", "OMPI_MCA_mpi_yield_when_idle", "MOTH_NUM_THREADS"}

local function quoted(word) return "'" .. word:gsub("'", "'\\''") .. "'" end

local function program(name, text)
  local path = files.write(name, "#!/bin/sh\n" .. text)
  os.execute("chmod +x " .. quoted(path))
  return path
end

local mpirun

setup(function()
  files.setup()
  mpirun = program("it's mpirun", 'for word in "$@"; do printf "<%s>" "$word"; done\n'
    .. "for name in " .. table.concat(NAMES, " ")
    .. "; do eval \"printf ' %s' \\${$name:--}\"; done\n")
  program("nproc", 'echo "${OMP_NUM_THREADS:-${PROCESSORS:-4}}"\n')
  program("id", 'echo "${USER_ID:-1000}"\n')
end)
teardown(files.teardown)

-- Runs `moth run`. @return its output, errors included, and "rc=STATUS"
local function run(environment, words)
  return process.shell(("env -u %s -u OMP_NUM_THREADS -u MOTH_MPIRUN PATH='%s':\"$PATH\" %s %s "
    .. "run %s"):format(table.concat(NAMES, " -u "), files.folder, environment, process.program,
    words))
end

local function start(words) return ("--mpirun %s %s"):format(quoted(mpirun), words) end

describe("moth run", function()
  it("passes the number of processes, the program and the script's words to mpirun", function()
    local own = launcher.program
    for words, wanted in pairs {
      ["-n 2 a.lua"] = "<-n><2><%s><a.lua>", ["-np 3 a.lua"] = "<-n><3><%s><a.lua>",
      ["-n 1 a.lua 'b c' -n 5 --mpirun x"] = "<-n><1><%s><a.lua><b c><-n><5><--mpirun><x>",
      ["-n 2 -n 4 a.lua"] = "<-n><4><%s><a.lua>",
    } do
      local text = run("", start(words))
      assert.equal(wanted:format(own), text:match "^<.*>", text)
      assert.matches("rc=0\n$", text)
    end
    local text = run("MOTH_MPIRUN=" .. quoted(mpirun), "-n 2 a.lua")
    assert.equal(1, (text:find(("<-n><2><%s><a.lua>"):format(own), 1, true)))
    text = run("MOTH_MPIRUN=/nonexistent", start "-n 2 a.lua")
    assert.equal(1, (text:find("<-n><2>", 1, true)))
  end)

  it("shares the processors out; Open MPI may run as root, and more processes than they are",
    function()
      for _, row in ipairs {
        {"", 1, "- - - - 4"}, {"", 2, "- - - - 2"}, {"", 3, "- - - - 1"}, {"", 4, "- - - - 1"},
        {"", 5, "- - 1 1 1"}, {"PROCESSORS=1", 1, "- - - - 1"}, {"PROCESSORS=1", 2, "- - 1 1 1"},
        {"USER_ID=0", 2, "1 1 - - 2"}, {"USER_ID=01", 2, "- - - - 2"},
        {"USER_ID=0 MOTH_NUM_THREADS=7 OMPI_ALLOW_RUN_AS_ROOT=0", 5, "0 1 1 1 7"},
        {"OMP_NUM_THREADS=9", 5, "- - 1 1 1"}, {"OMP_NUM_THREADS=1", 2, "- - - - 2"},
        {"PROCESSORS=none", 1, "- - - - 1"}, {"PROCESSORS=none", 2, "- - 1 1 1"},
      } do
        local text = run(row[1], start(("-n %d a.lua"):format(row[2])))
        assert.equal(row[3], text:match "<a.lua> (.-)rc=0\n$", row[1] .. " " .. row[2])
      end
    end)

  it("prints its words if they are wrong, and names a launcher that is missing", function()
    local usage = run("", "")
    assert.matches("^moth run %-n N %[%-%-mpirun PROGRAM%] FILE%.lua %[ARGUMENTS%]\n", usage)
    assert.matches("\nrc=1\n$", usage)
    for _, word in ipairs {"-h", "--help"} do assert.equal(usage, run("", word)) end
    local need = "-n N is needed, the number of processes"
    for words, why in pairs {
      ["-n"] = need, ["-n 0 a.lua"] = need, ["-n -1 a.lua"] = need, ["-n 1.5 a.lua"] = need,
      ["-n x a.lua"] = need, ["a.lua"] = need, ["a.lua -n 2"] = need, ["-n inf a.lua"] = need,
      ["-n nan a.lua"] = need, ["--mpirun x a.lua"] = need, ["-n 2"] = "a script is needed",
      ["-n 2 --mpirun"] = "a script is needed", ["-n 2 --mpirun x"] = "a script is needed",
      ["-x -n 2 a.lua"] = "there is no option -x", ["-n 2 -x a.lua"] = "there is no option -x",
    } do assert.equal(("moth run: %s\n%s"):format(why, usage), run("", words)) end
    assert.equal("moth run: /nonexistent is not installed: apt-get install openmpi-bin, or mpich\n"
      .. "rc=1\n", run("", "-n 2 --mpirun /nonexistent a.lua"))
  end)
end)
