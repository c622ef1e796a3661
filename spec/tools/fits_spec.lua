-- .ci/fits.lua must report what a GPU would refuse. The inputs are nvcc's output for two kernels,
-- launches that fit a GPU and launches that do not.

local process = require "spec.support.process"
local root = require("moth.error").root

local OUTPUT = [[
ptxas info    : Compiling entry function '%s' for 'sm_%d'
ptxas info    : Function properties for %s
    %d bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used %d registers, used 1 barriers, 256 bytes smem, 360 bytes cmem[0]
]]

local function nvcc(name, card, stack, registers)
  return OUTPUT:format(name, card, name, stack, registers)
end

-- The last output of nvcc for a kernel counts.
local KERNELS = nvcc("wide", 75, 8, 255) .. nvcc("wide", 80, 0, 20) .. nvcc("thin", 75, 8, 20)
  .. nvcc("thin", 75, 0, 32) .. nvcc("gone", 75, 0, 32)

describe("the launches of specs", function()
  if not process.shell "command -v luajit && command -v cc && command -v nm":find "rc=0" then
    return pending("are compared with what a card has: luajit, cc or nm is missing")
  end
  local path, places = os.tmpname(), {}

  local function write(name, text)
    local file = assert(io.open(path .. name, "w"))
    file:write(text)
    file:close()
  end

  setup(function()
    write(".c", "void wide(void) {}\nvoid thin(void) {}\nvoid other(void) {}\n")
    write(".kernels", KERNELS)
    process.shell(("cc -shared -fPIC -o %s.so %s.c"):format(path, path))
    for at, name in process.shell("nm " .. path .. ".so"):gmatch "0*(%x+) T (%w+)" do
      places[name] = at
    end
  end)
  teardown(function() process.shell("rm -f " .. path .. "*") end)

  local function fits(kernel, high, threads, shared, more)
    write(".log", ("kernel 9 %s 1 %d 1 %d 1 1 %d\n"):format(places[kernel], high, threads, shared))
    return process.shell(("cd '%s' && luajit .ci/fits.lua %s.kernels %s.so 75=%s.log %s"):format(
      root, path, path, path, more and more .. path .. ".log" or ""))
  end

  it("fit a GPU", function()
    local text = fits("thin", 65535, 1024, 65536 - 256)
    assert.truthy(text:find "each launch fits\nrc=0\n$", text)
    assert.truthy(text:find("never launched: wide", 1, true), text)
    assert.falsy(text:find("values in memory", 1, true), text)
    assert.truthy(fits("wide", 1, 32, 0):find("values in memory", 1, true))
  end)

  it("lists kernels that no spec launched on a GPU", function()
    local text = fits("wide", 1, 32, 0, "80=")
    assert.truthy(text:find("never launched: thin", 1, true), text) -- compiled only for 75
    assert.falsy(text:find("never launched: gone", 1, true), text) -- removed from the source
  end)

  it("are reported if a GPU would refuse them", function()
    for why, text in pairs {
      ["too many registers"] = fits("wide", 1, 512, 0),
      ["too much shared memory"] = fits("thin", 1, 32, 65536 - 255),
      ["too large a block or grid"] = fits("thin", 65536, 32, 0),
      ["not compiled"] = fits("other", 1, 32, 0),
    } do
      assert.truthy(text:find(why, 1, true), text)
      assert.truthy(text:find "1 launches do not fit\nrc=1\n$", text)
    end
  end)
end)
