-- `moth doctor`, part by part, on replaced machines: packages, libraries, variables of the
-- environment, GPUs, the printed rows. Which numbers of threads the environment sets.

local doctor = require "moth.doctor"
local ffi = require "ffi"
local files = require "spec.support.files"
local library = require "moth.io.image.library"
local machine = require "moth.base.machine"
local moth = require "moth"
local process = require "spec.support.process"
local system = require "moth.base.system"

local launcher = debug.getregistry()["moth.launcher"]
if not launcher then
  pending("the doctor: these specs run under ./moth test")
  return
end

local editor = require "moth.repl.editor"
local real = {getenv = os.getenv, status = jit.status, print = print, root = launcher.root,
  windows = system.windows, output_of = machine.output_of, processor = machine.processor,
  open = library.open, found = editor.found, arch = jit.arch, prngstate = jit.prngstate,
  lib = package.loaded["moth.binding.lib"]}
local GPUS = "moth" .. ".cuda" -- in two parts: the file needs no emulated GPU
local environment
real.cuda = package.loaded[GPUS]

local function compiler_is_on() return true end

before_each(function()
  files.setup()
  rawset(jit, "status", compiler_is_on) -- also under MOTH_JIT=off
  environment = {}
  rawset(os, "getenv", function(name) return environment[name] end)
  machine.output_of = function() return "installed" end
end)
after_each(function()
  rawset(os, "getenv", real.getenv)
  rawset(jit, "status", real.status)
  rawset(jit, "arch", real.arch)
  rawset(jit, "prngstate", real.prngstate)
  _G.print, launcher.root, system.windows = real.print, real.root, real.windows
  machine.output_of, machine.processor = real.output_of, real.processor
  library.open, editor.found = real.open, real.found
  package.loaded[GPUS] = real.cuda
  files.teardown()
end)

-- Runs the doctor. @return its lines, the result of main
local function diagnose()
  local lines = {}
  _G.print = function(text) lines[#lines + 1] = text end
  local good = doctor.main()
  _G.print = real.print
  return lines, good
end

local function row(name)
  for _, line in ipairs((diagnose())) do
    local text = line:match("^" .. name .. " +(.*)")
    if text then return text end
  end
end

describe("moth doctor", function()
  it("lists the packages that dpkg has not installed, without those of hosts", function()
    files.write(".packages", "# comment\nbuild cmake\nrun libc6-dev\nhost nginx\ntest a.b+c-9\n"
      .. "run one two\n\nlonely\nrun gone\n")
    local asked
    local states = {cmake = "installed", ["libc6-dev"] = "config-files", ["a.b+c-9"] = "",
      nginx = "not-installed"}
    local function output_of(command)
      if command == "command -v dpkg-query" then return "/usr/bin/dpkg-query" end
      local name = command:match "^dpkg%-query %-W %-f '%${db:Status%-Status}\\n' ([^ ]+)$"
      asked[#asked + 1] = name or command
      return states[name]
    end
    machine.output_of, asked = output_of, {}
    assert.same({{"run", "libc6-dev"}, {"test", "a.b+c-9"}, {"run", "gone"}},
      doctor.missing_packages(files.folder))
    assert.same({"cmake", "libc6-dev", "a.b+c-9", "gone"}, asked)
    assert.is_nil(doctor.missing_packages(nil))
    assert.is_nil(doctor.missing_packages(files.path "absent"))
    system.windows = true
    assert.is_nil(doctor.missing_packages(files.folder))
    system.windows = real.windows
    machine.output_of = function() return nil end
    assert.is_nil(doctor.missing_packages(files.folder))
  end)

  it("reports variables of the environment that have no effect", function()
    for _, name in ipairs {"plain", "avx2", "avx512"} do
      environment = {MOTH_ISA = name}
      assert.same({}, doctor.warnings())
    end
    for arch, count in pairs {x64 = 1, arm64 = 0} do
      rawset(jit, "arch", arch)
      environment = {MOTH_ISA = "neon"}
      assert.equal(count, #doctor.warnings())
    end
    for _, name in ipairs {"AVX2", "", "sse2"} do
      environment = {MOTH_ISA = name}
      assert.same({("MOTH_ISA=%s is no instruction level, so the processor's highest is used; "
        .. "examples are avx2 and plain"):format(name)}, doctor.warnings())
    end
    for _, text in ipairs {"1", "2", "64", "+4", " 4 ", "007"} do
      environment = {MOTH_NUM_THREADS = text}
      assert.same({}, doctor.warnings(), text)
    end
    for _, text in ipairs {"0", "-1", "1.5", "x", "", "4x", "1e2", "0x8", "inf", "nan", "2,3"} do
      environment = {MOTH_NUM_THREADS = text}
      assert.same({("MOTH_NUM_THREADS=%s is no number of threads, so that OMP_NUM_THREADS or all "
        .. "processors count"):format(text)}, doctor.warnings(), text)
    end
  end)

  it("reports a BLAS set by hand, a compiler that is off, and missing packages", function()
    environment = {OPENBLAS_CORETYPE = "Prescott"}
    assert.same({"OPENBLAS_CORETYPE=Prescott in the environment sets OpenBLAS's kernels by hand "
      .. "and can halve its speed; unset it (env -u OPENBLAS_CORETYPE ...)"}, doctor.warnings())
    rawset(jit, "status", function() return false end)
    for _, case in ipairs {
      {"x64", "off", ": MOTH_JIT=off is set"}, {"arm64", "off", ": MOTH_JIT=off is set"},
      {"x64", "on", ""}, {"x64", nil, ""},
      {"arm64", nil, ": code that this version compiles for ARM may crash"},
    } do
      rawset(jit, "arch", case[1])
      environment = {MOTH_JIT = case[2]}
      assert.same({"LuaJIT's compiler is off" .. case[3]}, doctor.warnings())
    end
    rawset(jit, "status", compiler_is_on)
    environment = {}
    assert.same({}, doctor.warnings {})
    assert.same({"missing Debian packages: cmake (build), gone (run)"},
      doctor.warnings {{"build", "cmake"}, {"run", "gone"}})
    environment = {MOTH_ISA = "x", MOTH_NUM_THREADS = "y", OPENBLAS_CORETYPE = "z"}
    assert.equal(4, #doctor.warnings {{"build", "cmake"}})
  end)

  it("has a row for each part", function()
    local lines, good = diagnose()
    assert.is_true(good)
    local names = {}
    for _, line in ipairs(lines) do
      if not line:find "^[!a]" then names[#names + 1] = line:match "^(%S+)  *%S" end
    end
    local text = table.concat(names, " ")
    assert.matches("^Moth library engine LuaJIT machine .*files processes prompt checkout$", text)
    local lib = real.lib
    assert.equal(("Moth       %s, ABI %d"):format(launcher.version, lib.C.moth_abi_version()),
      lines[1])
    assert.equal("library    " .. lib.path, lines[2])
    assert.equal("engine     " .. ffi.string(lib.C.moth_config(lib.ctx)), lines[3])
    assert.equal("checkout   " .. real.root, "checkout   " .. row "checkout")
    local rows = doctor.gpus(lib)
    for i, entry in ipairs(rows) do
      assert.equal(("%-10s %s"):format(entry[1], entry[2]), lines[5 + i])
    end
    assert.matches("^files ", lines[6 + #rows])
    launcher.root = nil
    assert.equal("none: installed files", row "checkout")
  end)

  it("says that all is well if nothing is wrong", function()
    local lines = diagnose()
    assert.equal("all is well", lines[#lines])
    environment = {MOTH_ISA = "x", OPENBLAS_CORETYPE = "z"}
    lines = diagnose()
    assert.matches("^checkout ", lines[#lines - 2])
    assert.matches("^! MOTH_ISA=x ", lines[#lines - 1])
    assert.matches("^! OPENBLAS_CORETYPE=z ", lines[#lines])
  end)

  it("names the BLAS, which is opened for it", function()
    local text = process.shell(process.program .. " doctor")
    assert.matches("\nengine     [^\n]*, BLAS [^\n]*, compiler ", text)
    assert.falsy(text:find("not opened", 1, true), text)
    assert.matches("\nrc=0\n$", text)
  end)

  it("goes on without the library, and fails", function()
    local text = process.shell("MOTH_LIB=/nonexistent.so " .. process.program .. " doctor")
    assert.matches("^Moth       the library cannot be loaded: [^\n]*\n  /nonexistent.so: ", text)
    assert.matches("\nLuaJIT     [^\n]*\nmachine    [^\n]*\nfiles      [^\n]*\ncheckout   ", text)
    assert.matches("\nrc=1\n$", text)
    assert.falsy(text:find("all is well", 1, true))
  end)

  it("describes LuaJIT and the processor", function()
    rawset(jit, "prngstate", nil)
    assert.equal(("%s, %s, compiler on"):format(jit.version, jit.arch), row "LuaJIT")
    rawset(jit, "prngstate", function() end)
    rawset(jit, "status", function() return false end)
    assert.equal(("%s (OpenResty's), %s, compiler OFF: everything runs many times slower"):format(
      jit.version, jit.arch), row "LuaJIT")
    machine.processor = function() return "Fast", 12 end
    assert.equal("Fast, 12 logical cores", row "machine")
    machine.processor = function() return nil, nil end
    assert.equal(ffi.arch .. ", 0 logical cores", row "machine")
  end)

  it("names the library of each format, and the package of a missing one", function()
    local function with(found)
      library.open = function(name)
        local package = select(2, real.open(name))
        return (found):find(name, 1, true) and {} or nil, package
      end
      return row "files"
    end
    assert.equal("JPEG by libturbojpeg, PNG by libspng, WebP by libwebp, FLAC, Ogg and MP3 by "
      .. "libsndfile", with "turbojpeg spng webp sndfile stb")
    assert.equal("JPEG by libstb, PNG by libstb, no WebP (apt-get install libwebp7), no FLAC, Ogg "
      .. "and MP3 (apt-get install libsndfile1)", with "stb")
    assert.equal("no JPEG (apt-get install libturbojpeg0), PNG by libspng, no WebP (apt-get "
      .. "install libwebp7), FLAC, Ogg and MP3 by libsndfile", with "spng sndfile")
  end)

  it("says whether processes can exchange tensors", function()
    local with_none = process.shell("MOTH_MPI=/nonexistent.so " .. process.program .. " doctor")
    assert.matches("\nprocesses  no MPI library %(apt%-get install openmpi%-bin%), for ./moth run",
      with_none)
    if moth.distributed.is_available() then
      assert.equal("an MPI library, for ./moth run -n 2 FILE.lua", row "processes")
    end
  end)

  it("names the editor of the prompt", function()
    for _, name in ipairs {"isocline", "libedit"} do
      editor.found = function() return name end
      assert.equal(name .. " edits its lines", row "prompt")
    end
    editor.found = function() end
    assert.equal("neither isocline nor libedit (libedit2) was found: no editing, no completion",
      row "prompt")
    machine.processor = function() end -- reads /proc, which the other system has not
    system.windows = true
    assert.equal("isocline was not found: no editing, no completion", row "prompt")
  end)

  it("lists the GPUs, or why there are none", function()
    local cuda = {
      get_device_capability = function(i) return 8 + i, i end,
      mem_get_info = function(i) return (i + 1) * 2 ^ 29, (i + 2) * 2 ^ 30 end,
      get_device_name = function(i) return "GPU " .. i end,
    }
    local report, count
    local C = {
      moth_device_report = function(_, buffer, n)
        assert.equal(4096, n)
        if not report then return -1 end
        ffi.copy(buffer, report)
        return 0
      end,
      moth_device_count = function() return count end,
      moth_error = function(_, base)
        assert.equal(1, base)
        return ffi.cast("const char *", "no driver")
      end,
    }
    local function gpus()
      package.loaded[GPUS] = cuda
      local rows = doctor.gpus {C = C, ctx = {}}
      package.loaded[GPUS] = real.cuda
      return rows
    end
    assert.same({{"GPU", "no driver"}}, gpus())
    report, count = "driver\t12.4\nNCCL\t\nno tab\n", 2LL
    assert.same({{"driver", "12.4"}, {"NCCL", ""},
      {"cuda:0", "GPU 0, compute capability 8.0, 0.5 of 2.0 GiB free"},
      {"cuda:1", "GPU 1, compute capability 9.1, 1.0 of 3.0 GiB free"}}, gpus())
    count = 0LL
    assert.equal(2, #gpus())
    count = -1LL
    assert.same({"GPU", "no driver"}, gpus()[3])
    assert.equal(3, #gpus())
  end)
end)

describe("the number of threads", function()
  it("is MOTH_NUM_THREADS, else OMP_NUM_THREADS, else the processors, at most 64", function()
    local all = math.min(64, process.shell("env -u OMP_NUM_THREADS nproc"):match "^%d+")
    local rows = {
      {"3", "2", 3}, {"3", nil, 3}, {nil, "2", 2}, {nil, "2,5", 2}, {" 2 ", nil, 2}, {"+2", nil, 2},
      {"1", "7", 1}, {"63", nil, 63}, {"64", nil, 64}, {"65", nil, 64}, {("9"):rep(30), nil, 64},
      {"0", "7", 7}, {"-1", "7", 7}, {"x", "7", 7}, {"", "7", 7}, {"2.5", "7", 7}, {"4x", "7", 7},
      {"1e2", "7", 7}, {"2,5", "7", 7}, {nil, nil, all}, {"x", "x", all},
    }
    local lines, wanted = {}, {}
    for i, case in ipairs(rows) do
      local function set(name, value)
        return value and (" %s='%s'"):format(name, value) or ""
      end
      lines[i] = ("env -u MOTH_NUM_THREADS -u OMP_NUM_THREADS%s%s %s -e '%s'"):format(
        set("MOTH_NUM_THREADS", case[1]), set("OMP_NUM_THREADS", case[2]), process.program,
        "print(require([[moth.binding.lib]]).C.moth_get_num_threads())")
      wanted[i] = case[3]
    end
    assert.equal(table.concat(wanted, "\n") .. "\nrc=0\n", process.shell(table.concat(lines, "\n")))
  end)
end)
