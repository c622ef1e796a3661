--- launch.lua -- `moth run -n 4 train.lua`: runs a script in several processes, by mpirun.

local ffi = require "ffi"

ffi.cdef "int execvp(const char *file, char *const *argv);"

local USAGE = [[
moth run -n N [--mpirun PROGRAM] FILE.lua [ARGUMENTS]
  runs FILE.lua in N processes on this machine, by mpirun. The script calls
  moth.distributed.init_process_group(). Each process gets its share of the threads, unless
  MOTH_NUM_THREADS is set. For several machines call mpirun or srun yourself.]]

-- nproc prints OMP_NUM_THREADS instead, if that is set.
local PROCESSORS = "env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc"

local function quoted(word) return "'" .. word:gsub("'", "'\\''") .. "'" end

local function succeeds(command)
  local status = os.execute(command .. " >/dev/null 2>&1")
  return status == 0 or status == true
end

local function output(command)
  local pipe = io.popen(command .. " 2>/dev/null")
  local text = pipe and pipe:read "*a" or ""
  if pipe then pipe:close() end
  return text
end

local function fail(text)
  io.stderr:write("moth run: ", text, "\n")
  return 1
end

-- Reads the options. Returns the number of processes, the launcher, and the words of the script; or
-- nil and what is wrong.
local function read(words)
  local n, program, i = nil, nil, 1
  while words[i] and words[i]:sub(1, 1) == "-" do
    local word = words[i]
    if word == "-n" or word == "-np" then n, i = tonumber(words[i + 1]), i + 2
    elseif word == "--mpirun" then program, i = words[i + 1], i + 2
    else return nil, "there is no option " .. word end
  end
  if not n or n < 1 or n % 1 ~= 0 then return nil, "-n N is needed, the number of processes" end
  if not words[i] then return nil, "a script is needed" end
  return n, program, {unpack(words, i)}
end

-- Settings by which Open MPI runs more processes than there are processors, and runs as root in a
-- container. MPICH needs none.
local function settings(n, processors)
  local list = {}
  local function set(name, value)
    if not os.getenv(name) then list[#list + 1] = name .. "=" .. value end
  end
  if output "id -u":match "^0%s" then
    set("OMPI_ALLOW_RUN_AS_ROOT", "1")
    set("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
  end
  if n > processors then
    set("OMPI_MCA_rmaps_base_oversubscribe", "1")
    set("OMPI_MCA_mpi_yield_when_idle", "1")
  end
  set("MOTH_NUM_THREADS", tostring(math.max(1, math.floor(processors / n))))
  return list
end

-- Replaces this process by a program, so that signals to it reach mpirun. Returns only if it fails.
local function replace_by(words)
  local argv = ffi.new(("const char *[%d]"):format(#words + 1), words)
  ffi.C.execvp(words[1], ffi.cast("char *const *", argv))
  return fail("cannot start " .. words[1])
end

--- @param launcher  a table; its field `program` is the path of ./moth
-- @param words     the command line after `run`
-- @return the exit status, if the processes were not started
return function(launcher, words)
  local n, program, script = read(words)
  if not n then
    if words[1] and words[1] ~= "--help" and words[1] ~= "-h" then fail(program) end
    io.stderr:write(USAGE, "\n")
    return 1
  end
  program = program or os.getenv "MOTH_MPIRUN" or "mpirun"
  if not succeeds("command -v " .. quoted(program)) then
    return fail(program .. " is not installed: apt-get install openmpi-bin, or mpich")
  end
  local line = {"env"}
  local processors = tonumber(output(PROCESSORS)) or 1
  for _, setting in ipairs(settings(n, processors)) do
    line[#line + 1] = setting
  end
  for _, word in ipairs {program, "-n", tostring(n), launcher.program, unpack(script)} do
    line[#line + 1] = word
  end
  return replace_by(line)
end
