-- Ranks on different hosts, with TCP between them: a slow cable, a cable that is cut in the middle
-- of a training, and the restart from a checkpoint without that host. The hosts are network
-- namespaces: see spec/support/hosts.lua. MOTH_SHOW=1 prints what each rank said, and when.
--
-- MPICH 4.0 on UCX may hang in MPI_Finalize over TCP, if a rank calls it some milliseconds after
-- the others. The claims end with the last line of the ranks, before MPI_Finalize.

local hosts = require "spec.support.hosts"
local lib = require "moth.binding.lib"
local ranks = require "spec.support.ranks"

local seconds = lib.C.moth_seconds
local SHOW = os.getenv "MOTH_SHOW"
local TIMEOUT = 3 -- seconds, of collectives
local DELAY, LIMIT = 0.02, 100 -- seconds: of the slow cable; until a claim fails

-- train.lua FOLDER STEPS: goes on from FOLDER/last.moth; each rank writes FOLDER/RANK.log.
local TRAINING = [[
local moth = require "moth"
local nn, dist = moth.nn, moth.distributed
local folder, steps = arg[1], tonumber(arg[2])
dist.init_process_group{timeout = ]] .. TIMEOUT .. [[}
local rank = dist.get_rank()
local log = io.open(("%s/%d.log"):format(folder, rank), "w")
local now = require("moth.binding.lib").C.moth_seconds
local function say(...)
  log:write(("%.3f\t"):format(now()), string.format(...), "\n")
  log:flush()
end
moth.manual_seed(1)
local net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(16, 64), nn.Tanh(),
  nn.Linear(64, 1)))
local optimizer = moth.optim.Adam(net:parameters(), {lr = 1e-2})
local path, first = folder .. "/last.moth", 1
local file = io.open(path)
if file then
  file:close()
  local state = moth.load(path)
  net:load_state_dict(state.net)
  optimizer:load_state_dict(state.optimizer)
  first = state.step + 1
end
local ok, problem = pcall(function()
  for step = first, steps do
    moth.manual_seed(100 * step + rank)
    local x = moth.randn(32, 16)
    optimizer:zero_grad()
    local loss = nn.functional.mse_loss(net(x), x:sum(2, true):sin())
    loss:backward()
    optimizer:step()
    if rank == 0 then
      moth.save({step = step, net = net:state_dict(), optimizer = optimizer:state_dict()},
        path .. ".new")
      os.rename(path .. ".new", path)
    end
    say("step %d loss %.4f", step, loss:item())
  end
end)
say("%s", ok and "finished" or problem:match "[^\n]*")
log:close()
if not ok then error(problem, 0) end
]]

local COMMANDS = {
  openmpi = "%s %s --host %s -n %d --mca plm_rsh_agent %s --mca pml ob1 --mca btl tcp,self "
    .. "--mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 "
    .. "--mca oob_tcp_keepalive_time 5 --mca oob_tcp_keepalive_intvl 2 "
    .. "--mca oob_tcp_keepalive_probes 3 -x MOTH_NUM_THREADS %s",
  mpich = "%s UCX_TLS=tcp,self UCX_NET_DEVICES=eth0 %s -hosts %s -n %d -launcher rsh "
    .. "-launcher-exec %s -iface eth0 %s",
}

local function read(path)
  local file = io.open(path)
  local text = file and file:read "*a" or ""
  if file then file:close() end
  return text
end

local function wait_for(limit, f)
  local began = seconds()
  while not f() do
    if seconds() - began > limit then return nil end
    os.execute "sleep 0.05"
  end
  return seconds() - began
end

-- Starts a training on the first n hosts, in the background.
local function start(net, launcher, n, steps)
  local list = {}
  for i = 1, n do list[i] = hosts.address(i) end
  local file = io.open(net.folder .. "/train.lua", "w")
  file:write(TRAINING)
  file:close()
  os.execute(("rm -f %s/*.log"):format(net.folder))
  local script = ("%s %s/train.lua %s %d"):format(debug.getregistry()["moth.launcher"].program,
    net.folder, net.folder, steps)
  local command = COMMANDS[launcher[1]]:format(ranks.environment, launcher[2],
    table.concat(list, ","), n, net.agent, script)
  os.execute(("%s >%s/out 2>&1 </dev/null &"):format(net:on(1, command), net.folder))
end

-- What a rank has said: lists of {time, text}.
local function log_of(net, rank)
  local list = {}
  for time, text in read(("%s/%d.log"):format(net.folder, rank)):gmatch "([%d.]+)\t([^\n]*)\n" do
    list[#list + 1] = {time = tonumber(time), text = text}
  end
  return list
end

local function show(...)
  if SHOW then io.stderr:write(string.format(...), "\n") end
end

local function has_step(net, step)
  return read(net.folder .. "/0.log"):find(("step %d "):format(step), 1, true) ~= nil
end

-- The shortest and the median time of a step.
local function pace(net)
  local list, times = log_of(net, 0), {}
  for i = 2, #list do
    if list[i].text ~= "finished" then times[#times + 1] = list[i].time - list[i - 1].time end
  end
  table.sort(times)
  return times[1], times[math.ceil(#times / 2)]
end

-- Have all ranks said that they have finished?
local function finished(net, n)
  for rank = 0, n - 1 do
    local list = log_of(net, rank)
    if #list == 0 or list[#list].text ~= "finished" then return false end
  end
  return true
end

-- Have all processes ended? MPICH's mpirun waits for a host that does not answer, until Ctrl-C.
local function ended(net, name)
  local list = net:processes()
  if name == "mpich" then
    list = list:gsub("host %d+: *%d+ sh [^\n]*\n", "")
    local waiting = list:match "^host 1: *(%d+) mpirun[^\n]*\n$"
    if waiting then os.execute("kill -INT " .. waiting) end
  end
  return list == ""
end

describe("ranks on different hosts", function()
  local launchers, missing = ranks.launchers(), hosts.missing()
  if #launchers == 0 or missing then
    pending(missing or "needs an MPI: apt-get install openmpi-bin mpich")
    return
  end

  for _, launcher in ipairs(launchers) do
    it("under " .. launcher[1] .. " train over TCP; a slow cable delays each step", function()
      local shortest = {}
      for i, delay in ipairs {0, DELAY} do
        local net = hosts.new(2, delay > 0 and {[2] = delay} or nil)
        finally(function() net:close() end)
        start(net, launcher, 2, 20)
        assert.truthy(wait_for(LIMIT, function() return finished(net, 2) end), read(net.folder
          .. "/out"))
        local least, median = pace(net)
        show("%s, %g ms of delay each way: %.1f ms a step", launcher[1], 1e3 * delay, 1e3 * median)
        shortest[i] = least
        net:close()
      end
      assert.is_true(shortest[2] > DELAY, table.concat(shortest, " "))
    end)

    it("under " .. launcher[1] .. " end when a cable is cut; two go on from the last step",
      function()
        local net = hosts.new(3)
        finally(function() net:close() end)
        start(net, launcher, 3, 1e6)
        assert.truthy(wait_for(LIMIT, function() return has_step(net, 20) end), read(net.folder
          .. "/out"))
        net:cut(3)
        local cut = seconds()
        local taken = wait_for(LIMIT, function() return ended(net, launcher[1]) end)
        local said = {}
        for rank = 0, 2 do
          local list = log_of(net, rank)
          local last = list[#list]
          show("%s, rank %d, %.1f s after the cut: %s", launcher[1], rank, last.time - cut,
            last.text)
          if last.text:find("no result after 3 s", 1, true) then
            said[rank] = last.text
            assert.is_true(last.time - cut < TIMEOUT + 5, last.time - cut)
          end
        end
        -- Of the first two, one may end the other before it has said anything.
        local problem = tostring(said[0] or said[1])
        assert.truthy(problem:find("rank 2 does not answer", 1, true), problem)
        problem = tostring(said[2])
        assert.truthy(problem:find("rank 0 does not answer", 1, true), problem)
        show("the launcher: %s", read(net.folder .. "/out"))
        show("the last process ended %s s after the cut", tostring(taken))
        assert.truthy(taken, net:processes())

        local saved = require("moth").load(net.folder .. "/last.moth").step
        start(net, launcher, 2, saved + 10)
        assert.truthy(wait_for(LIMIT, function() return finished(net, 2) end), read(net.folder
          .. "/out"))
        local list = log_of(net, 1)
        show("%s, rank 1 of 2: %s ... %s", launcher[1], list[1].text, list[#list - 1].text)
        assert.truthy(list[1].text:find(("step %d "):format(saved + 1), 1, true), list[1].text)
      end)
  end
end)
