--- doctor.lua -- `moth doctor`: prints what Moth found on this machine, what is missing, and what
-- makes it slow.

local ffi = require "ffi"
local machine = require "moth.base.machine"
local system = require "moth.base.system"

local doctor = {}

local launcher = debug.getregistry()["moth.launcher"] or {}

--- Packages of `.packages` that dpkg does not list as installed: {group, name} pairs, without those
-- of the group `host`, which Moth itself does not use. Nil without a checkout or dpkg.
function doctor.missing_packages(root)
  local file = root and io.open(root .. "/.packages")
  if not file then return nil end
  local text = file:read("*a")
  file:close()
  if system.windows or not machine.output_of("command -v dpkg-query") then return nil end
  local missing = {}
  for line in text:gmatch("[^\n]+") do
    local group, name = line:match("^(%w+) ([%w%-%.%+]+)$")
    local query = "dpkg-query -W -f '${db:Status-Status}\\n' "
    if group and group ~= "host" and machine.output_of(query .. name) ~= "installed" then
      missing[#missing + 1] = {group, name}
    end
  end
  return missing
end

local function processor()
  local model, cores = machine.processor()
  return ("%s, %d logical cores"):format(model or ffi.arch, cores or 0)
end

local function luajit()
  local fork = jit.prngstate and " (OpenResty's)" or ""
  local state = jit.status() and "on" or "OFF: everything runs many times slower"
  return ("%s%s, %s, compiler %s"):format(jit.version, fork, jit.arch, state)
end

local function editor()
  local found = require("moth.repl.editor").found()
  return found and found .. " edits its lines"
    or (system.windows and "isocline was not" or "neither isocline nor libedit (libedit2) was")
    .. " found: no editing, no completion"
end

local CODECS = {{"JPEG", "turbojpeg", "stb"}, {"PNG", "spng", "stb"}, {"WebP", "webp"},
                {"FLAC, Ogg and MP3", "sndfile"}}

-- The formats of pictures and sounds that need a library, and the libraries.
local function codecs()
  local library = require "moth.io.image.library"
  local list = {}
  for _, row in ipairs(CODECS) do
    local found
    for i = 2, #row do
      found = found or library.open(row[i]) and ("%s by lib%s"):format(row[1], row[i])
    end
    local _, package = library.open(row[2])
    list[#list + 1] = found or ("no %s (apt-get install %s)"):format(row[1], package)
  end
  return table.concat(list, ", ")
end

-- Can several processes exchange tensors?
local function processes()
  return require("moth").distributed.is_available()
    and "an MPI library, for ./moth run -n 2 FILE.lua"
    or "no MPI library (apt-get install openmpi-bin), for ./moth run"
end

-- Environment variables that have no effect, as lines of advice.
local function unheard(list)
  local levels = {plain = true, neon = jit.arch == "arm64", avx2 = true, avx512 = true}
  local isa, threads = os.getenv "MOTH_ISA", os.getenv "MOTH_NUM_THREADS"
  if isa and not levels[isa] then
    list[#list + 1] = ("MOTH_ISA=%s is no instruction level, so the processor's highest is "
      .. "used; examples are avx2 and plain"):format(isa)
  end
  local count = threads and tonumber(threads:match "^%s*%+?(%d+)[ \t]*$")
  if threads and not (count and count >= 1) then
    list[#list + 1] = ("MOTH_NUM_THREADS=%s is no number of threads, so that OMP_NUM_THREADS or "
      .. "all processors count"):format(threads)
  end
end

--- Problems that slow Moth down or stop it, as lines of advice.
local function warnings(missing)
  local list = {}
  unheard(list)
  local core = os.getenv "OPENBLAS_CORETYPE"
  if core then
    list[#list + 1] = ("OPENBLAS_CORETYPE=%s in the environment sets OpenBLAS's kernels by "
      .. "hand and can halve its speed; unset it (env -u OPENBLAS_CORETYPE ...)"):format(core)
  end
  if not jit.status() then
    list[#list + 1] = "LuaJIT's compiler is off" ..
      (os.getenv "MOTH_JIT" == "off" and ": MOTH_JIT=off is set"
       or jit.arch == "arm64" and ": code that this version compiles for ARM may crash"
       or "")
  end
  if missing and #missing > 0 then
    local names = {}
    for i, entry in ipairs(missing) do names[i] = ("%s (%s)"):format(entry[2], entry[1]) end
    list[#list + 1] = "missing Debian packages: " .. table.concat(names, ", ")
  end
  return list
end

--- The BLAS is opened at its first use: a matrix product of sufficient size.
local function open_blas()
  local moth = require "moth"
  local x = moth.ones(64, 64, {dtype = moth.float64})
  x:matmul(x)
end

--- The GPU support, as {name, text} rows: the plugin, the driver, the devices, NVIDIA's libraries,
-- and what works without the missing ones.
function doctor.gpus(lib)
  local C, ctx = lib.C, lib.ctx
  local buffer = ffi.new("char[4096]")
  if C.moth_device_report(ctx, buffer, 4096) < 0 then
    return {{"GPU", ffi.string(C.moth_error(ctx, 1))}}
  end
  local rows = {}
  for name, text in ffi.string(buffer):gmatch("([^\t\n]*)\t([^\n]*)") do
    rows[#rows + 1] = {name, text}
  end
  local cuda = require "moth.cuda"
  local count = tonumber(C.moth_device_count(ctx))
  if count < 0 then rows[#rows + 1] = {"GPU", ffi.string(C.moth_error(ctx, 1))} end
  for i = 0, count - 1 do
    local major, minor = cuda.get_device_capability(i)
    local free, total = cuda.mem_get_info(i)
    local what = "%s, compute capability %d.%d, %.1f of %.1f GiB free"
    rows[#rows + 1] = {"cuda:" .. i, what:format(cuda.get_device_name(i), major, minor,
      free / 2 ^ 30, total / 2 ^ 30)}
  end
  return rows
end

--- Prints the diagnosis; returns true if Moth can run here.
function doctor.main()
  local function row(name, text) print(("%-10s %s"):format(name, text)) end

  local found, lib = pcall(require, "moth.binding.lib")
  if found then
    row("Moth", ("%s, ABI %d"):format(ffi.string(lib.C.moth_version()), lib.C.moth_abi_version()))
    row("library", lib.path)
    open_blas()
    row("engine", ffi.string(lib.C.moth_config(lib.ctx)))
  else
    row("Moth", "the library cannot be loaded: " .. tostring(lib))
  end
  row("LuaJIT", luajit())
  row("machine", processor())
  for _, entry in ipairs(found and doctor.gpus(lib) or {}) do row(entry[1], entry[2]) end
  row("files", codecs())
  if found then row("processes", processes()) end
  if found then row("prompt", editor()) end -- the editor's completion needs the library
  row("checkout", launcher.root or "none: installed files")

  local list = warnings(doctor.missing_packages(launcher.root))
  for _, text in ipairs(list) do print("! " .. text) end
  if found and #list == 0 then print("all is well") end
  return found
end

doctor.warnings = warnings

return doctor
