--- cli.lua -- Moth's commands: `moth test`, `moth bench`, `moth doctor`, `moth help`. The launcher
-- calls `main` with the command line. The launcher runs scripts and code itself, without this
-- file.

local cli = {}

local USAGE = [[
moth FILE.lua [ARGUMENTS]   runs a script
moth                        a prompt; reads a script when standard input is a pipe
moth -i FILE.lua            runs a script, then opens a prompt with its variables
moth -e 'CODE' [ARGUMENTS]  runs a line of code; several -e run in turn
moth test [PATHS]           runs the specs (--sanitize: with sanitizers; --clang: clang builds;
                            --racecheck: searches the GPU kernels for races;
                            --device=cuda: runs the GPU specs on a real GPU;
                            --cases: inputs that failed once, with the right values;
                            --hosts: the programs of examples/hosts that embed Moth;
                            --distributed: several processes under Open MPI and MPICH;
                            --jobs=N: N files at a time; default: the number of processors;
                            --coverage: ops without golden values or gradchecks;
                            other options are passed to busted: --filter='a name')
moth run -n N FILE.lua      runs a script in N processes, by mpirun (moth.distributed)
moth bench [GROUP] [--help] measures speed; --peer PYTHON measures PyTorch too
moth doctor                 prints what Moth found on this machine and what is missing
moth help NAME              prints the help on a name: ./moth help nn.Conv2d
moth docs FOLDER            writes the reference as Markdown (--site: a site, by MkDocs;
                            --stubs: annotation files for editors)
moth jupyter install        makes Moth a kernel of Jupyter
moth version

MOTH_JIT=off                runs everything without LuaJIT's compiler
MOTH_NUM_THREADS=N          threads for large ops (else OMP_NUM_THREADS, else all processors)
MOTH_ISA=avx2, =plain       uses older instructions than this processor has
MOTH_BLAS=PATH, =builtin    another BLAS for float64, or none
MOTH_CUDA_BLOCKING=1        waits for each GPU kernel: an error is raised by the call that failed
MOTH_CACHE=FOLDER, =none    where compiled GPU kernels are cached (~/.cache/moth)
MOTH_NO_INSTALL=1           never installs packages]]

--- Facts from the launcher: program, root (of the checkout, nil when installed), version. An empty
-- table in other hosts.
function cli.launcher()
  return debug.getregistry()["moth.launcher"] or {}
end

local function fail(text)
  io.stderr:write("moth: ", text, "\n")
  os.exit(1)
end

local function checkout(command)
  local root = cli.launcher().root
  if not root then
    fail("'moth " .. command .. "' needs a checkout of Moth: the installed files have no specs")
  end
  return root
end

--- Sets the global `arg` like the interpreter `luajit`.
local function set_arguments(name, words)
  local list = {[0] = name}
  for i, word in ipairs(words) do list[i] = word end
  _G.arg = list
end

-- Lists the ops without golden values or gradient checks; see spec/support/coverage.lua.
local function coverage(root)
  package.path = root .. "/?.lua;" .. package.path
  local found, lfs = pcall(require, "lfs")
  if not found or not lfs.chdir(root) then fail("cannot enter " .. root) end
  os.exit(require("spec.support.coverage").report(true) and 0 or 1)
end

-- Runs one file or Busted in this process, with these arguments.
local function busted(words)
  -- `.busted` has the other options. It names LuaJIT for a plain `busted`; here LuaJIT runs
  -- already.
  table.insert(words, 1, "--ignore-lua")
  set_arguments("busted", words)
  -- Busted ends a failed run by error(nil) unless it may exit the process.
  local run = require "busted.runner"
  local ok, message = pcall(run, {standalone = false})
  if not ok and message ~= nil then error(message, 0) end
  if not ok then os.exit(1) end
end

local OURS = {["--sanitize"] = true, ["--clang"] = true, ["--racecheck"] = true,
  ["--device=cuda"] = true}

local FOLDERS = {["--cases"] = "spec/cases", ["--hosts"] = "spec/hosts",
  ["--distributed"] = "spec/distributed"}

-- Returns paths; options for Busted; both, in the order of the words; the number of parallel jobs
-- (nil: default); true if all specs must run in one process. Only options that select specs work
-- with several processes.
local function test_words(words)
  local paths, options, all, count, alone = {}, {}, {}, nil, false
  for _, word in ipairs(words) do
    if word == "--device=cuda" then count = count or 1 end -- the specs share the GPU's memory
    word = FOLDERS[word] or word
    if word:find "^%-%-jobs=" then
      count = tonumber(word:match "=(%d+)$") or fail("--jobs wants a number: " .. word)
    elseif word:sub(1, 1) ~= "-" then
      paths[#paths + 1], all[#all + 1] = word, word
    elseif not OURS[word] then
      options[#options + 1], all[#all + 1] = word, word
      alone = alone or not word:find "^%-%-[%a-]+=" or word:find "^%-%-repeat="
    end
  end
  return paths, options, all, count, alone
end

local function test(words)
  local root = checkout("test")
  if words[1] == "--coverage" then coverage(root) end
  local lfs_found, lfs = pcall(require, "lfs")
  if not lfs_found or not pcall(require, "busted.core") then
    fail("the specs need Busted (Debian: apt-get install lua-busted)")
  end
  if not lfs.chdir(root) then fail("cannot enter " .. root) end

  local paths, options, all, count, alone = test_words(words)
  local found = false
  for _, path in ipairs(paths) do
    if lfs.attributes(path) then found = true
    elseif not alone then fail("there is no " .. path) end
  end
  local jobs = dofile "spec/support/jobs.lua"
  local files = not (alone and found) and jobs.files(found and paths or {"spec"}) or {}
  if alone and not found then
    for _, path in ipairs(files) do all[#all + 1] = path end
  end
  if alone or (#files < 2 and not count) then
    busted(all) -- an option may be followed by its value
  elseif not jobs.run(cli.launcher(), files, options, count or jobs.processors()) then
    os.exit(1)
  end
end

local function bench(words)
  local file = checkout("bench") .. "/spec/bench/run.lua"
  local chunk, message = loadfile(file)
  if not chunk then fail(message) end
  set_arguments(file, words)
  chunk(unpack(words))
end

-- Help on a name; without a name, on the commands.
local function help(words)
  if not words[1] then return print(USAGE) end
  local fine, problem = pcall(function()
    for _, word in ipairs(words) do require("moth").help(word) end
  end)
  if not fine then fail((tostring(problem):gsub("^[^\n]-:%d+: ", ""))) end
end

local function docs(words)
  local site = words[1] == "--site" and table.remove(words, 1)
  local stubs = words[1] == "--stubs" and table.remove(words, 1)
  local folder = words[1]
  if not folder or folder:sub(1, 1) == "-" then fail "'moth docs' wants a folder" end
  local root = site and checkout "docs --site"
  local fine, problem = pcall(function()
    local lfs = require "lfs"
    lfs.mkdir(folder)
    if not lfs.attributes(folder, "mode") then error("there is no folder " .. folder, 0) end
    if folder:sub(1, 1) ~= "/" then folder = lfs.currentdir() .. "/" .. folder end
    if site then require("moth.help.docs").site(root, folder)
    elseif stubs then require("moth.help.stubs").write(folder)
    else require("moth.help.docs").reference(folder) end
  end)
  if not fine then fail(tostring(problem)) end
end

local commands = {
  run = function(words) os.exit(require("moth.distributed.launch")(cli.launcher(), words)) end,
  docs = docs,
  test = test,
  bench = bench,
  jupyter = function(words) require("moth.jupyter").main(words, cli.launcher().program) end,
  doctor = function() os.exit(require("moth.doctor").main() and 0 or 1) end,
  help = help,
  version = function()
    print(("Moth %s, %s"):format(cli.launcher().version or "?", jit.version))
  end,
}
commands["-h"], commands["--help"] = commands.help, commands.help
commands["-v"], commands["--version"] = commands.version, commands.version

--- Runs the command named by the first word.
function cli.main(command, ...)
  local run = commands[command or "help"]
  if not run then fail(("unknown command '%s'\n\n%s"):format(tostring(command), USAGE)) end
  run {...}
end

return cli
