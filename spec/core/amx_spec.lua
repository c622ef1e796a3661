-- Products and convolutions of bf16 by tiles as registers (AMX), on any processor with AVX-512:
-- where there are none, core/kernel/gemm/amx_emulated.c computes what their instructions would. It
-- is in build/emulated/libmoth_amx.so, which MOTH_LIB names to whatever is to run so.

local lib = require "moth.binding.lib"
local process = require "spec.support.process"

local root, build = require("moth.error").root, lib.path:match "^(.*)/[^/]*$"
local config = require("ffi").string(lib.C.moth_config(lib.ctx))
local why = not config:find("loops avx512", 1, true) and "tiles want a processor with AVX-512"
  or jit.os ~= "Linux" and "only Linux lends tiles"
  or not io.open(build .. "/CMakeCache.txt") and "the emulator is built with a checkout's library"
if why then return pending(why) end

local library = build .. "/emulated/libmoth_amx.so"

-- How often tiles were multiplied; where those of the processor are, it is -1.
local COUNTED = [[
local ffi, moth = require "ffi", require "moth"
ffi.cdef "int64_t moth_emulated_tiles(void);"
local library, seen = ffi.load(os.getenv "MOTH_LIB"), 0
local function count(name)
  local n = tonumber(library.moth_emulated_tiles())
  print(name, n > seen or n < 0)
  seen = n
end
moth.set_num_threads(2)
count "before"
local x, w = moth.randn(64, 32, 8, 8):bfloat16(), moth.randn(48, 32, 3, 3):bfloat16()
x:reshape(64, 2048):matmul(x:reshape(2048, 64))
count "matmul"
local y = moth.nn.functional.conv2d(x, w)
count "conv2d"
local ops = require("moth.binding.bind").ops
ops.conv2d_input(y, w, {8, 8}, {stride = 1})
count "gradient of images"
ops.conv2d_weight(x, y, {3, 3}, {stride = 1})
count "gradient of filters"
]]

describe("where registers hold tiles", function()
  lazy_setup(function()
    local said = process.shell(("cmake --build '%s' --target moth_amx_emulated"):format(build))
    assert(said:match "rc=0%s*$", said)
  end)

  it("their instructions do what the manual says", function()
    local program = os.tmpname()
    local said = process.shell(("cd '%s' && cc -std=gnu11 -D_GNU_SOURCE -O2 -Icore -o %s "
      .. "spec/host/tiles.c core/kernel/level.c -lm && %s"):format(root, program, program))
    os.remove(program)
    assert.equal("as the manual says\nrc=0\n", said)
  end)

  it("products and convolutions of bf16 keep their claims", function()
    local said = process.shell(("cd '%s' && MOTH_LIB='%s' '%s/moth' test --filter='in bf16' "
      .. "--filter='half types' --filter-out='every level' spec/ops/conv_spec.lua "
      .. "spec/ops/gemm_spec.lua")
      :format(root, library, build))
    assert.matches("[1-9] passed, 0 failed.*rc=0%s*$", said)
  end)

  it("they are what multiplies there", function()
    local said = process.shell(("MOTH_LIB='%s' '%s/moth' -e '%s'"):format(library, build, COUNTED))
    local wanted = "before\tfalse\nmatmul\ttrue\nconv2d\ttrue\n"
      .. "gradient of images\ttrue\ngradient of filters\ttrue\nrc=0\n"
    assert.equal(wanted, (said:gsub("before\ttrue", "before\tfalse")))
  end)
end)
