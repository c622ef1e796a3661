-- A rank that is killed at a random moment of a training, at its start too: the others end within
-- 2 s, with a message of the launcher, and leave no processes, shared memory or files.
--
-- Each launcher is tested with 2 and with 4 ranks. MOTH_KILLS=100 kills 100 times in all.

local ffi = require "ffi"
local lfs = require "lfs"
local lib = require "moth.binding.lib"
local ranks = require "spec.support.ranks"

pcall(ffi.cdef, "int usleep(unsigned microseconds);")
pcall(ffi.cdef, "int kill(int pid, int signal);")
local C = ffi.C
local seconds = lib.C.moth_seconds

local KILLS = tonumber(os.getenv "MOTH_KILLS")
local WITHIN = KILLS and 2 or 10 -- seconds; other specs may run at the same time as a short run
local STUCK = 10                 -- seconds until the launcher is ended, if no rank is left
local LIMIT = 60                 -- seconds until the spec ends what hangs
local KILL, INT, TERM = 9, 2, 15
local LATEST = 3            -- the latest moment: the training has begun by then

-- Steps of a training without end; its gradients have two buckets and a large unit.
local TRAINING = [[
local moth = require "moth"
local nn, dist = moth.nn, moth.distributed
dist.init_process_group{timeout = 60}
local net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 600), nn.Tanh(),
  nn.Linear(600, 600), nn.Tanh(), nn.Linear(600, 3)))
local optimizer = moth.optim.SGD(net:parameters(), {lr = 1e-3})
local x = moth.randn(16, 64)
while true do
  moth.scope(function()
    optimizer:zero_grad()
    net(x):square():mean():backward()
    optimizer:step()
  end)
end
]]

local function read(path)
  local file = io.open(path, "rb")
  local text = file and file:read "*a" or ""
  if file then file:close() end
  return text
end

local function write(path, text)
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
end

-- The processes whose environment has the mark, and those of them that run a script of Moth.
local function processes(mark)
  local program = debug.getregistry()["moth.launcher"].program
  local all, running = {}, {}
  for name in lfs.dir "/proc" do
    if name:find "^%d+$" and read("/proc/" .. name .. "/environ"):find(mark, 1, true) then
      all[#all + 1] = tonumber(name)
      if read("/proc/" .. name .. "/cmdline"):sub(1, #program + 1) == program .. "\0" then
        running[#running + 1] = tonumber(name)
      end
    end
  end
  return all, running
end

local function shared_memory()
  local list = {}
  for name in lfs.dir "/dev/shm" do
    if name ~= "." and name ~= ".." then list[name] = true end
  end
  return list
end

-- New segments of shared memory that no process uses. Other programs may run at the same time.
-- MPICH leaves a file mpich_shar_tmp* if a rank is killed inside MPI_Init.
local function left_segments(before)
  local left
  for name in pairs(shared_memory()) do
    if not before[name] and not name:find "^mpich_shar_tmp"
        and os.execute(("grep -qsF /dev/shm/%s /proc/[0-9]*/maps"):format(name)) ~= 0 then
      left = (left and left .. " " or "") .. name
    end
  end
  return left
end

local function files_below(folder)
  local pipe = io.popen(("find '%s' -mindepth 1 ! -type d"):format(folder))
  local text = pipe:read "*a"
  pipe:close()
  return text
end

local function wait_for(limit, f)
  local began = seconds()
  while not f() do
    if seconds() - began > limit then return nil end
    C.usleep(10000)
  end
  return seconds() - began
end

-- Starts n ranks, sends a signal to one of them at the moment. With at_launcher it goes to
-- `moth run`: Ctrl-C to its process group, as a terminal does.
-- @return seconds until the last rank ended, or nil; the output; files and segments left;
-- whether only the launcher was left, which Open MPI 4.1 may do: mpirun waits for a lock of its own
-- if a rank is killed while it connects to mpirun, in the first 0.2 s
local function strike(program, n, moment, signal, at_launcher)
  local folder = os.tmpname()
  os.remove(folder)
  lfs.mkdir(folder)
  write(folder .. "/train.lua", TRAINING)
  lfs.mkdir(folder .. "/tmp")
  local before, mark = shared_memory(), "MOTH_MARK=" .. folder .. "/"
  local launcher = debug.getregistry()["moth.launcher"].program
  local line = at_launcher and ("%s run -n %d --mpirun %s"):format(launcher, n, program)
    or ("%s -n %d %s"):format(program, n, launcher)
  local pipe = io.popen(("%s %s TMPDIR=%s/tmp env --default-signal=INT setsid %s %s/train.lua "
    .. ">%s/out 2>&1 </dev/null & echo $!"):format(mark, ranks.environment, folder, line, folder,
    folder))
  local pid = tonumber(pipe:read "*a")
  pipe:close()
  C.usleep(moment * 1e6)
  wait_for(LIMIT, function()
    local _, running = processes(mark)
    local victim = running[math.random(math.max(1, #running))]
    if at_launcher then victim = signal == INT and -pid or pid end
    return victim and C.kill(victim, signal) == 0
  end)
  local taken = wait_for(LIMIT, function() return #select(2, processes(mark)) == 0 end)
  wait_for(STUCK, function() return #processes(mark) == 0 end)
  local all = processes(mark)
  local output = read(folder .. "/out")
  for _, process in ipairs(all) do C.kill(process, 9) end
  wait_for(3, function() return not left_segments(before) end)
  local left = (#all > 0 and "" or files_below(folder .. "/tmp")) .. (left_segments(before) or "")
  os.execute("rm -r " .. folder)
  return taken, output, left, #all > 0
end

describe("a training of several ranks", function()
  local launchers = ranks.launchers()
  if #launchers == 0 then
    pending "needs an MPI: apt-get install openmpi-bin mpich"
    return
  end
  math.randomseed(os.time())
  local count = KILLS and math.ceil(KILLS / (2 * #launchers)) or 1

  for _, launcher in ipairs(launchers) do
    for _, n in ipairs {2, 4} do
      it(("under %s, %d ranks: one is killed, all end within 2 s"):format(launcher[1], n),
        function()
          local longest, late, hung = 0, {}, 0
          for i = 1, count do
            local moment = math.random() * LATEST
            local taken, output, left, stuck = strike(launcher[2], n, moment, KILL)
            local when = ("kill %d, after %.2f s: "):format(i, moment)
            assert.truthy(taken, when .. "a process hangs\n" .. output)
            if taken > WITHIN then
              late[#late + 1] = ("%sended after %.2f s"):format(when, taken)
            end
            assert.truthy(output:find "exited on signal 9" or output:find "BAD TERMINATION"
              or output:find "the job has been aborted", when .. "no message\n" .. output)
            assert.are.equal("", left, when .. "left")
            if stuck then
              assert.is_true(launcher[1] == "openmpi" and moment < 1, when .. "mpirun hangs")
              hung = hung + 1
            end
            longest = math.max(longest, taken)
          end
          if KILLS then
            io.stderr:write(("\n%s, %d ranks: %d kills, all ended within %.2f s\n"):format(
              launcher[1], n, count, longest))
            io.stderr:write(("  mpirun alone was left %d times\n"):format(hung))
          end
          assert.are.equal("", table.concat(late, "\n"))
        end)
    end

    for name, signal in pairs {["Ctrl-C"] = INT, SIGTERM = TERM} do
      it(("under %s, %s ends all ranks of ./moth run"):format(launcher[1], name), function()
        for i = 1, count do
          local moment = i == 1 and LATEST or math.random() * LATEST
          local taken, output, left = strike(launcher[2], 2, moment, signal, true)
          local when = ("signal %d, after %.2f s: "):format(i, moment)
          assert.truthy(taken, when .. "a process hangs\n" .. output)
          assert.is_true(taken < WITHIN, when .. taken)
          assert.are.equal("", left, when .. "left")
        end
      end)
    end
  end
end)
