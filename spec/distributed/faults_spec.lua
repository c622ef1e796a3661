-- Processes that fail: what the others do, and when.

local ranks = require "spec.support.ranks"

local function script(text)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
  return path
end

-- Runs a script in n processes. Returns what it printed, and seconds.
local function run(program, n, text)
  local path, began = script(text), os.time()
  local output = ranks.output(program, n, path, 40)
  os.remove(path)
  return output, os.time() - began
end

local BEGIN = [[
local moth = require "moth"
local dist = moth.distributed
dist.init_process_group{timeout = 20}
local rank = dist.get_rank()
dist.barrier()
]]

describe("moth.distributed", function()
  local launchers = ranks.launchers()
  if #launchers == 0 then
    pending "needs an MPI: apt-get install openmpi-bin mpich"
    return
  end

  for _, launcher in ipairs(launchers) do
    local name, program = launcher[1], launcher[2]

    it("under " .. name .. ", an error of one process ends all, with its message", function()
      local output = run(program, 3, BEGIN .. [[
        if rank == 1 then error "the data are missing" end
        dist.all_reduce(moth.ones(4))]])
      assert.truthy(output:find("the data are missing", 1, true))
      assert.truthy(output:find("moth: rank 1 has failed: all processes end", 1, true))
      assert.falsy(output:find("no result after", 1, true))
    end)

    it("under " .. name .. ", a killed process ends all", function()
      local output, seconds = run(program, 3, BEGIN .. [[
        if rank == 1 then os.execute("kill -9 $PPID") end
        dist.all_reduce(moth.ones(4))
        print "not reached"]])
      assert.falsy(output:find("not reached", 1, true))
      assert.is_true(seconds < 15)
    end)

    it("under " .. name .. ", a kill during a save leaves the last checkpoint", function()
      local folder = os.tmpname()
      os.remove(folder)
      run(program, 3, BEGIN .. ([[
        local folder = %q
        dist.checkpoint.save({["r" .. rank] = moth.full({4}, rank), epoch = 1}, folder)
        if rank == 1 then moth.save = function() os.execute("kill -9 $PPID") end end
        dist.checkpoint.save({["r" .. rank] = moth.zeros(4), epoch = 2}, folder)]]):format(folder))
      local checkpoint = require("moth").distributed.checkpoint
      local state = checkpoint.load(folder)
      assert.are.equal(1, state.epoch)
      for r = 0, 2 do assert.are.equal(r, state["r" .. r][1]:item()) end
      checkpoint.save({epoch = 3}, folder)
      assert.are.same({epoch = 3}, checkpoint.load(folder))
      os.execute(("rm -r '%s'"):format(folder))
    end)

    it("under " .. name .. ", a process that does nothing is named after the timeout", function()
      local output = run(program, 3, [[
        local moth = require "moth"
        local dist = moth.distributed
        dist.init_process_group{timeout = 1}
        if dist.get_rank() == 2 then os.execute "sleep 30" end
        dist.all_reduce(moth.ones(4))]])
      assert.truthy(output:find("all_reduce: no result after 1 s; rank 2 does not answer", 1, true))
    end)

    it("under " .. name .. ", a process that ends before the others is named, and all end",
      function()
        local output, seconds = run(program, 3, [[
          local moth = require "moth"
          local dist = moth.distributed
          dist.init_process_group()
          for _ = 1, dist.get_rank() == 1 and 3 or 4 do dist.all_reduce(moth.ones(4)) end
          print(dist.get_rank() .. " ends")]])
        assert.truthy(output:find("all_reduce: no result after 5 s; rank 1 has not called it (it "
          .. "has ended)", 1, true), output)
        assert.truthy(output:find("1 ends", 1, true), output)
        assert.falsy(output:find("0 ends", 1, true), output)
        assert.falsy(output:find("2 ends", 1, true), output)
        assert.is_true(seconds < 20)
      end)

    it("under " .. name .. ", a process that waits at the end names those that it waits for",
      function()
        local output = run(program, 3, [[
          local moth = require "moth"
          local dist = moth.distributed
          dist.init_process_group{timeout = 1}
          if dist.get_rank() == 2 then dist.recv(moth.ones(4), {src = 0}) end]])
        assert.truthy(output:find("rank 2 has not called it (it waits in recv)", 1, true), output)
        assert.falsy(output:find("rank 1 has not called it", 1, true), output)
      end)
  end

  it("says what is wrong when MPI gets tensors of different sizes", function()
    if launchers[1][1] ~= "openmpi" then
      pending "MPICH reports no error"
      return
    end
    local output = run(launchers[1][2], 2, BEGIN .. [[
      dist.all_reduce(moth.ones(rank == 0 and 2 or 3000))]])
    assert.truthy(output:find("all_reduce: MPI: MPI_ERR_TRUNCATE: message truncated; all processes "
      .. "must call the same functions in the same order, with tensors of one size", 1, true),
      output)
  end)

  it("says what to install if there is no MPI", function()
    local launcher = debug.getregistry()["moth.launcher"]
    local path = script 'require("moth").distributed.init_process_group()'
    local pipe = io.popen(("MOTH_MPI=/nonexistent.so %s %s 2>&1"):format(launcher.program, path))
    local output = pipe:read "*a"
    pipe:close()
    os.remove(path)
    assert.truthy(output:find("init_process_group", 1, true))
    assert.truthy(output:find("/nonexistent.so", 1, true))
  end)

  it("says how to start processes of another launcher than MPI's", function()
    local launcher = debug.getregistry()["moth.launcher"]
    local path = script 'require("moth").distributed.init_process_group()'
    local pipe = io.popen(("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 RANK=0 "
      .. "WORLD_SIZE=2 %s %s 2>&1"):format(launcher.program, path))
    local output = pipe:read "*a"
    pipe:close()
    os.remove(path)
    assert.truthy(output:find("the launcher has started 2 processes (WORLD_SIZE)", 1, true),
      output)
  end)

  it("runs in one process without a launcher", function()
    local launcher = debug.getregistry()["moth.launcher"]
    local path = script [[
      local dist = require("moth").distributed
      dist.init_process_group()
      io.write(dist.get_rank(), " of ", dist.get_world_size())]]
    local pipe = io.popen(("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 %s %s 2>&1")
      :format(launcher.program, path))
    local output = pipe:read "*a"
    pipe:close()
    os.remove(path)
    assert.are.equal("0 of 1", output)
  end)

  it("raises when MPI was closed and is opened again", function()
    local launcher = debug.getregistry()["moth.launcher"]
    local path = script [[
      local dist = require("moth").distributed
      dist.init_process_group()
      local work = dist.barrier{async_op = true}
      work:wait()
      dist.destroy_process_group()
      print(pcall(dist.init_process_group))
      print(pcall(dist.barrier))]]
    local pipe = io.popen(("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 %s %s 2>&1")
      :format(launcher.program, path))
    local output = pipe:read "*a"
    pipe:close()
    os.remove(path)
    assert.truthy(output:find("a process can use MPI only once", 1, true), output)
    assert.truthy(output:find("there is no process group", 1, true), output)
  end)

  it("a forked process cannot use the MPI of its parent", function()
    local launcher = debug.getregistry()["moth.launcher"]
    local path = script [[
      local ffi = require "ffi"
      local moth = require "moth"
      local dist = moth.distributed
      ffi.cdef "int fork(void); int waitpid(int, int *, int);"
      dist.init_process_group()
      local child = ffi.C.fork()
      if child == 0 then
        print(pcall(dist.barrier))
        moth.randn(300, 300):matmul(moth.randn(300, 300))
      else
        ffi.C.waitpid(child, nil, 0)
        dist.barrier()
        print "the parent goes on"
      end]]
    local pipe = io.popen(("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
      .. "timeout 30 %s %s 2>&1"):format(launcher.program, path))
    local output = pipe:read "*a"
    pipe:close()
    os.remove(path)
    assert.truthy(output:find("barrier: MPI belongs to the process that this one was forked from",
      1, true), output)
    assert.truthy(output:find("the parent goes on", 1, true), output)
  end)

  it("raises if the launcher has started several processes, and MPI finds one", function()
    local launcher = debug.getregistry()["moth.launcher"]
    local path = script 'require("moth").distributed.init_process_group() print "not reached"'
    for _, name in ipairs {"SLURM_STEP_NUM_TASKS", "PMI_SIZE"} do
      local pipe = io.popen(("%s MOTH_MPI=%s %s=4 %s %s 2>&1"):format(ranks.environment,
        os.getenv "MOTH_MPI" or "", name, launcher.program, path))
      local output = pipe:read "*a"
      pipe:close()
      assert.truthy(output:find("the launcher has started 4 processes (" .. name, 1, true), output)
      assert.falsy(output:find("not reached", 1, true))
    end
    os.remove(path)
  end)

  it("./moth run says what is wrong with its options", function()
    local launcher = debug.getregistry()["moth.launcher"]
    local function says(options, text)
      local pipe = io.popen(("%s run %s 2>&1"):format(launcher.program, options))
      local output = pipe:read "*a"
      pipe:close()
      assert.truthy(output:find(text, 1, true), output)
      assert.truthy(output:find("moth run -n N", 1, true), output)
    end
    says("train.lua", "moth run: -n N is needed, the number of processes\n")
    says("-n 0 train.lua", "moth run: -n N is needed, the number of processes\n")
    says("-n two train.lua", "moth run: -n N is needed, the number of processes\n")
    says("-n 2", "moth run: a script is needed\n")
    says("--nproc-per-node 2 train.lua", "moth run: there is no option --nproc-per-node\n")
  end)

  it("./moth run starts the processes", function()
    local launcher = debug.getregistry()["moth.launcher"]
    local path = script [[
      local dist = require("moth").distributed
      dist.init_process_group()
      local list = {}
      dist.all_gather_object(list, arg[1] .. dist.get_rank())
      if dist.get_rank() == 0 then print(table.concat(list, " ")) end]]
    local pipe = io.popen(("%s run -n 2 --mpirun %s %s 'a b' 2>&1"):format(launcher.program,
      launchers[1][2], path))
    local output = pipe:read "*a"
    pipe:close()
    os.remove(path)
    assert.are.equal("a b0 a b1\n", output)
  end)
end)
