-- moth.distributed with backend "nccl": tensors of GPUs, on the GPU emulator and its NCCL
-- (cuda/emulator/nccl.cpp). With moth.cuda the emulator is built for this file.

local process = require "spec.support.process"
local ranks = require "spec.support.ranks"

local launcher = debug.getregistry()["moth.launcher"]
local nccl = ranks.emulated_nccl()
local ENV = "MOTH_NUM_THREADS=1 MOTH_NCCL=" .. (nccl or "none")

local function script(text)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write('local moth = require "moth"\nlocal dist = moth.distributed\n', text)
  file:close()
  return path
end

-- Runs a script in n processes under an MPI. Returns what they printed.
local function run(program, n, text)
  local path = script(text)
  local output = ranks.output(program, n, path, 60)
  os.remove(path)
  return output
end

-- Runs a script in one process, without a launcher.
local function alone(text, settings)
  local path = script(text)
  local output = process.shell(("env %s %s %s %s </dev/null"):format(ENV, settings or "",
    launcher.program, path))
  os.remove(path)
  return output
end

-- Runs a script in n processes that torchrun's variables describe. Returns what they printed.
local port = 20000 + math.floor(os.clock() * 1e6 + os.time() * 7) % 20000
local function without_mpi(n, text, missing)
  local path, commands = script(text), {}
  port = port + 2
  for rank = 0, n - 1 do
    if rank ~= missing then
      commands[#commands + 1] = ("env %s RANK=%d LOCAL_RANK=%d WORLD_SIZE=%d MASTER_ADDR=127.0.0.1 "
        .. "MASTER_PORT=%d timeout 60 %s %s </dev/null & "):format(ENV, rank, rank, n, port,
        launcher.program, path)
    end
  end
  local output = process.shell("{ " .. table.concat(commands) .. "wait; }")
  os.remove(path)
  return output
end

describe("moth.distributed with NCCL", function()
  local launchers = ranks.launchers()
  if not nccl or #launchers == 0 then
    pending "needs an MPI, and a C++ compiler to build the GPU emulator"
    return
  end

  for i, n in ipairs {2, 3} do
    local mpi = launchers[i] or launchers[1]
    describe(("under %s, %d processes:"):format(mpi[1], n), function()
      local path = "spec/distributed/claims/nccl.lua"
      local results
      for _, claim in ipairs(dofile(path)) do
        it(claim[1], function()
          results = results or ranks.run(path, mpi[2], n, "nccl")
          assert.are.equal("ok", results[claim[1]] or results.text)
        end)
      end
    end)
  end

  local program = launchers[1][2]

  it("raises after the timeout where the CPU waits for the device, and then refuses the group",
    function()
      local output = run(program, 2, [[
        dist.init_process_group{backend = "nccl", timeout = 1}
        local x = moth.ones(4, {device = "cuda"})
        if dist.get_rank() == 1 then os.execute "sleep 4" os.exit(0) end
        dist.all_reduce(x, {async_op = true}):wait()
        print(pcall(x.sum, x), pcall(function() return x:sum():item() end))
        print(pcall(dist.all_reduce, x))
        io.stdout:flush()
        os.exit(1)]])
      assert.truthy(output:find("'all_reduce', which was started before, has no result after 1 s; "
        .. "rank 1 ", 1, true), output)
      assert.truthy(output:find("the process group has failed", 1, true), output)
    end)

  it("raises when another process has died", function()
    local output = without_mpi(2, [[
      dist.init_process_group{backend = "nccl", timeout = 30}
      dist.barrier()
      if dist.get_rank() == 1 then os.execute "kill -9 $PPID" end
      local x = moth.ones(4, {device = "cuda"})
      local ok, problem = pcall(function() dist.all_reduce(x) return x:sum():item() end)
      print(ok, problem)
      os.exit(1)]])
    assert.truthy(output:find "false.*all_reduce.*remote process exited", output)
  end)

  it("raises an error of NCCL, and refuses the group", function()
    local output = alone([[
      dist.init_process_group{backend = "nccl"}
      local x = moth.ones(4, {device = "cuda"})
      dist.all_reduce(x)
      print(pcall(dist.all_reduce, x))
      print(pcall(dist.all_reduce, x))
      print(x:sum():item())]], "MOTH_EMULATED_NCCL_FAILS=2")
    assert.truthy(output:find("all_reduce: NCCL: unhandled system error", 1, true), output)
    assert.truthy(output:find("the process group has failed: NCCL", 1, true), output)
    assert.truthy(output:find("\n4\n", 1, true), output)
  end)

  it("raises when processes call different collectives", function()
    local output = run(program, 2, [[
      dist.init_process_group{backend = "nccl", timeout = 20}
      local x = moth.ones(4, {device = "cuda"})
      if dist.get_rank() == 0 then dist.all_reduce(x) else dist.broadcast(x, 1) end
      print(x:sum():item())]])
    assert.truthy(output:find("failed", 1, true), output)
  end)

  it("joins the processes without MPI, by torchrun's variables", function()
    local output = without_mpi(3, [[
      dist.init_process_group{backend = "nccl", timeout = 60}
      local rank, n = dist.get_rank(), dist.get_world_size()
      local x = moth.full({3}, rank + 1, {device = "cuda"})
      dist.all_reduce(x)
      dist.barrier()
      local list = {}
      dist.all_gather_object(list, {rank = rank, x = x})
      local group = dist.new_group {2, 1}
      local y = moth.full({1}, rank, {device = "cuda"})
      if rank > 0 then dist.all_reduce(y, {group = group}) end
      local ok, problem = pcall(dist.all_reduce, moth.ones(2))
      assert(not ok and tostring(problem):find "need MPI")
      assert(dist.get_version() == nil and dist.get_backend() == "nccl")
      io.write(("%d of %d: %g %g %g\n"):format(rank, n, x:sum():item(), list[2].rank,
        y:item()))]])
    local lines = {}
    for line in output:gmatch "%d of 3: [^\n]*" do lines[#lines + 1] = line end
    table.sort(lines)
    assert.are.equal("0 of 3: 18 1 0\n1 of 3: 18 1 3\n2 of 3: 18 1 3",
      table.concat(lines, "\n"), output)
  end)

  it("names the ranks that do not come", function()
    local output = without_mpi(3, [[dist.init_process_group{backend = "nccl", timeout = 1}]], 1)
    assert.truthy(output:find("these ranks of 3 have not connected to port %d+ within 1 s: 1\n"),
      output)
  end)

  it("closes its connections at the end of the group", function()
    local output = without_mpi(3, [[
      local function sockets()
        local pipe = io.popen "ls -l /proc/$PPID/fd | grep -c socket:"
        local n = tonumber(pipe:read "*a")
        pipe:close()
        return n
      end
      local before = sockets()
      dist.init_process_group{backend = "nccl", timeout = 60}
      dist.barrier()
      local during, rank = sockets(), dist.get_rank()
      dist.destroy_process_group()
      io.write(("%d: %d, then %d\n"):format(rank, during - before, sockets() - before))]])
    assert.matches("0: [2-9], then 0\n", output)
    assert.matches("1: [1-9], then 0\n", output)
    assert.matches("2: [1-9], then 0\n", output)
  end)

  it("runs in one process without a launcher", function()
    local output = alone [[
      dist.init_process_group{backend = "nccl"}
      local x = moth.ones(4, {device = "cuda"})
      dist.all_reduce(x, "mean")
      dist.barrier()
      print(dist.get_rank(), dist.get_world_size(), x:sum():item())]]
    assert.truthy(output:find("0\t1\t4", 1, true), output)
  end)

  it("takes the GPU with the number of the process on its machine, or the one that is named",
    function()
      local output = alone([[
        dist.init_process_group{backend = "nccl"}
        print(moth.cuda.current_device(), moth.ones(1, {device = "cuda"}).device)
        print(pcall(dist.all_reduce, moth.ones(1, {device = "cuda:0"})))]],
        "MOTH_EMULATED_DEVICES=2 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_ALLOW_RUN_AS_ROOT=1 "
        .. "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
      assert.truthy(output:find("1\tcuda:1", 1, true), output)
      assert.truthy(output:find("the tensor is on cuda:0, but this process joined the group with "
        .. "cuda:1", 1, true), output)
      output = alone([[
        dist.init_process_group{backend = "nccl", device_id = "cuda:1"}
        local x = moth.ones(3, {device = "cuda:1"})
        dist.all_reduce(x)
        print(x:sum():item())]], "MOTH_EMULATED_DEVICES=2 OMPI_ALLOW_RUN_AS_ROOT=1 "
        .. "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
      assert.truthy(output:find("3\n", 1, true), output)
    end)

  it("says what is missing: the GPU, the library, a newer one", function()
    local begin = [[print(pcall(dist.init_process_group, {backend = "nccl"}))]]
    local output = alone(begin, "MOTH_BACKEND_PATH=/nonexistent")
    assert.truthy(output:find("no CUDA device", 1, true), output)
    output = alone(begin, "MOTH_NCCL=/nonexistent.so")
    assert.truthy(output:find("NCCL was not found (/nonexistent.so)", 1, true), output)
    assert.truthy(output:find("apt-get install libnccl2", 1, true), output)
    output = alone(begin, "MOTH_EMULATED_NCCL=21212")
    assert.truthy(output:find("NCCL 2.14 or later is needed, and this is 2.12.12", 1, true), output)
  end)

  it("with backend mpi refuses a tensor of a GPU, and torchrun's processes", function()
    local output = run(program, 2, [[
      dist.init_process_group()
      print(pcall(dist.all_reduce, moth.ones(4, {device = "cuda"})))]])
    assert.truthy(output:find("MPI moves tensors of the CPU, and this one is on cuda:0: use "
      .. "init_process_group{backend = \"nccl\"}", 1, true), output)
    output = without_mpi(2, "dist.init_process_group()")
    assert.truthy(output:find("rank 1 of 2 by torchrun's variables, but backend \"mpi\" needs "
      .. "mpirun", 1, true), output)
  end)

  it("leaves no shared memory behind", function()
    local list = process.shell "ls /dev/shm | grep moth-nccl"
    assert.are.equal("rc=1\n", list)
  end)
end)
