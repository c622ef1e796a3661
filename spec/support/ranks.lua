--- ranks.lua -- runs claims in several processes, for spec/distributed.
--
-- As a module it returns run(file, mpi, n, backend): runs the claims of a file by `mpirun -n`, and
-- returns a table claim -> "ok" or the messages of the ranks that failed. As a script
-- (moth spec/support/ranks.lua FILE BACKEND) it is what each process runs. A file of claims returns
-- a list of {name, function(rank, size)}. All ranks run a claim; then they compare their results.

local moth = require "moth"

local function in_process(file, backend)
  local dist = moth.distributed
  dist.init_process_group {backend = backend, timeout = 60}
  local rank, size = dist.get_rank(), dist.get_world_size()
  for _, claim in ipairs(dofile(file)) do
    moth.manual_seed(1)
    local ok, problem = pcall(claim[2], rank, size)
    local all = {}
    dist.all_gather_object(all, ok and "ok" or tostring(problem))
    for r, text in ipairs(all) do
      if rank == 0 and text ~= "ok" then
        io.write(("@%s\t(rank %d) %s\n"):format(claim[1], r - 1, (text:gsub("\n", " "))))
      end
    end
    if rank == 0 then io.write("@", claim[1], "\tdone\n") end
  end
  dist.destroy_process_group()
  if rank == 0 then io.write "@finished\n" end
end

if arg and arg[0] and arg[0]:find "ranks%.lua$" then
  in_process(arg[1], arg[2])
  return
end

local ranks = {}

local ENV = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 MOTH_NUM_THREADS=1 "
  .. "OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 "
  .. "OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_plm_rsh_agent=false"

ranks.environment = ENV -- settings of the launchers, for a shell

--- The MPI launchers that are installed: {name, program}.
function ranks.launchers()
  local list = {}
  for _, name in ipairs {"openmpi", "mpich"} do
    local program = "mpirun." .. name
    if os.execute("command -v " .. program .. " >/dev/null 2>&1") == 0 then
      list[#list + 1] = {name, program}
    end
  end
  return list
end

--- NCCL of the GPU emulator (cuda/emulator/nccl.cpp), or nil.
function ranks.emulated_nccl()
  local path = (os.getenv "MOTH_BACKEND_PATH" or "") .. "/libmoth_nccl.so"
  local file = io.open(path, "rb")
  if file then file:close() end
  return file and path or nil
end

--- Runs a script in n processes. @return what it printed, and seconds
function ranks.output(program, n, script, seconds)
  local launcher = debug.getregistry()["moth.launcher"]
  local nccl = ranks.emulated_nccl()
  local env = ENV .. (nccl and " MOTH_NCCL=" .. nccl or "")
  local command = ("%s timeout -k 10 %d %s -n %d %s %s 2>&1 </dev/null"):format(env, seconds or 60,
    program, n, launcher and launcher.program or "moth", script)
  local pipe = io.popen(command)
  local text = pipe:read "*a"
  pipe:close()
  return text
end

--- Runs the claims of a file. @return claim -> "ok" or messages
function ranks.run(file, program, n, backend)
  local text =
    ranks.output(program, n, "spec/support/ranks.lua " .. file .. " " .. (backend or "mpi"), 240)
  local results = {finished = text:find "@finished" ~= nil, text = text}
  for name, result in text:gmatch "@([^\t\n]*)\t([^\n]*)" do
    if result == "done" then results[name] = results[name] or "ok"
    else results[name] = (results[name] and results[name] .. "; " or "") .. result end
  end
  return results
end

return ranks
