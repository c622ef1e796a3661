-- bf16 products and convolutions with AMX tile registers, on any processor with AVX-512. Without
-- AMX core/kernel/gemm/amx_emulated.c emulates its instructions. The emulation is in
-- build/emulated/libmoth_amx.so, which these specs load with MOTH_LIB.

local lib = require "moth.binding.lib"
local process = require "spec.support.process"

local root, build = require("moth.error").root, lib.path:match "^(.*)/[^/]*$"
local config = require("ffi").string(lib.C.moth_config(lib.ctx))
local why = not config:find("loops avx512", 1, true) and "tiles want a processor with AVX-512"
  or jit.os ~= "Linux" and "only Linux lends tiles"
  or not io.open(build .. "/CMakeCache.txt") and "the emulator is built with a checkout's library"
if why then return pending(why) end

local library = build .. "/emulated/libmoth_amx.so"

-- The number of tile products; -1 if the processor itself has AMX.
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

describe("with AMX tile registers", function()
  lazy_setup(function()
    local said = process.shell(("cmake --build '%s' --target moth_amx_emulated"):format(build))
    assert(said:match "rc=0%s*$", said)
  end)

  it("instructions compute what the manual says", function()
    local program = os.tmpname()
    local said = process.shell(("cd '%s' && cc -std=gnu11 -D_GNU_SOURCE -O2 -Icore -o %s "
      .. "spec/host/tiles.c core/kernel/level.c -lm && %s"):format(root, program, program))
    os.remove(program)
    assert.equal("as the manual says\nrc=0\n", said)
  end)

  it("specs of bf16 products and convolutions pass", function()
    local said = process.shell(("cd '%s' && MOTH_LIB='%s' '%s/moth' test --filter='in bf16' "
      .. "--filter='half types' --filter-out='every level' spec/ops/conv_spec.lua "
      .. "spec/ops/gemm_spec.lua")
      :format(root, library, build))
    assert.matches("[1-9] passed, 0 failed.*rc=0%s*$", said)
  end)

  it("bf16 products use the tiles", function()
    local said = process.shell(("MOTH_LIB='%s' '%s/moth' -e '%s'"):format(library, build, COUNTED))
    local wanted = "before\tfalse\nmatmul\ttrue\nconv2d\ttrue\n"
      .. "gradient of images\ttrue\ngradient of filters\ttrue\nrc=0\n"
    assert.equal(wanted, (said:gsub("before\ttrue", "before\tfalse")))
  end)
end)
