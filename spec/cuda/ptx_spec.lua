-- Kernels as PTX, the output of nvcc, run on the CPU (.ci/ptx): each instruction computes what
-- NVIDIA's "Parallel Thread Execution ISA" says, and an unknown one raises an error with its name.
-- The PTX is written here, so that no toolkit is needed.

local ffi = require "ffi"
local process = require "spec.support.process"

local root = require("moth.error").root
local why = jit.os ~= "Linux" and "objects are Linux's"
  or not process.shell "command -v luajit cc":find "rc=0" and "they want luajit and a C compiler"
if why then return pending("PTX runs on the CPU: " .. why) end

-- A kernel reads four words (%r1 to %r4, also as %f1 to %f4, and in pairs as %rd3 and %rd4), and
-- writes the values that `body` computes in %r5 to %r8.
local KERNEL = [[
.visible .entry %s(.param .u64 .ptr .align 1 to, .param .u64 .ptr .global .align 16 from)
{
  .reg .pred %%p<4>;
  .reg .b16 %%rs<4>;
  .reg .b32 %%r<20>;
  .reg .f32 %%f<8>;
  .reg .f64 %%fd<4>;
  .reg .b64 %%rd<12>;
  ld.param.u64 %%rd1, [to];
  ld.param.u64 %%rd2, [from];
  cvta.to.global.u64 %%rd5, %%rd1;
  cvta.to.global.u64 %%rd6, %%rd2;
  ld.global.v2.u32 {%%r1, %%r2}, [%%rd6];
  ld.global.u32 %%r3, [%%rd6+8];
  ld.global.u32 %%r4, [%%rd6+12];
  ld.global.v2.u64 {%%rd3, %%rd4}, [%%rd6];
  mov.b32 %%f1, %%r1;
  mov.b32 %%f2, %%r2;
  mov.b32 %%f3, %%r3;
  mov.b32 %%f4, %%r4;
  mov.u32 %%r5, 0;
  mov.u32 %%r6, 0;
  mov.u32 %%r7, 0;
  mov.u32 %%r8, 0;
  %s
  st.global.v4.u32 [%%rd5], {%%r5, %%r6, %%r7, %%r8};
  ret;
}
]]

local claims = {}
local function claim(name, body, given, wanted)
  claims[#claims + 1] = {name = name, body = body, given = given, wanted = wanted}
end

local function bits(x)
  local cell = ffi.new("union { float x; uint32_t bits; }", {x = x})
  return cell.bits
end

claim("products have a high half, signed or not", [[
  mul.hi.u32 %r5, %r1, %r2;
  mul.hi.s32 %r6, %r1, %r2;
  mad.lo.s32 %r7, %r1, %r2, %r3;
  mul.wide.u32 %rd7, %r1, %r2;
  shr.u64 %rd7, %rd7, 32;
  cvt.u32.u64 %r8, %rd7;]], {0xffffffff, 5, 7, 0}, {4, 0xffffffff, 2, 4})

claim("carries go from one sum to the next", [[
  add.cc.u32 %r5, %r1, %r2;
  addc.u32 %r6, %r3, %r4;
  sub.cc.u32 %r7, %r3, %r1;
  subc.u32 %r8, %r4, %r2;]], {0xffffffff, 2, 3, 4}, {1, 8, 4, 1})

claim("bits are counted, put and permuted", [[
  clz.b32 %r5, %r1;
  popc.b32 %r6, %r1;
  bfi.b32 %r7, %r1, %r2, 8, 8;
  prmt.b32 %r8, %r1, %r2, 0x4321;]], {0x00f0f0a0, 0x12345678, 0, 0},
  {8, 10, 0x1234a078, 0x7800f0f0})

claim("bits are taken out, with their sign or without", [[
  bfe.u32 %r5, %r1, 8, 8;
  bfe.s32 %r6, %r1, 16, 8;
  bfe.u32 %r7, %r1, 28, 8;
  bfe.s32 %r8, %r1, 40, 8;]], {0x92f45678, 0, 0, 0}, {0x56, 0xfffffff4, 9, 0xffffffff})

claim("words are turned round, and their highest bits found", [[
  brev.b32 %r5, %r1;
  bfind.u32 %r6, %r1;
  bfind.shiftamt.u32 %r7, %r1;
  bfind.shiftamt.u32 %r8, %r2;]], {0x00000018, 0, 0, 0}, {0x18000000, 4, 27, 0xffffffff})

claim("two words are shifted as one", [[
  shf.l.wrap.b32 %r5, %r1, %r2, 36;
  shf.r.wrap.b32 %r6, %r1, %r2, 4;
  shf.l.clamp.b32 %r7, %r1, %r2, 40;
  shf.r.clamp.b32 %r8, %r1, %r2, 32;]], {0x87654321, 0x12345678, 0, 0},
  {0x23456788, 0x88765432, 0x87654321, 0x12345678})

claim("shifts past the end leave nothing, or the sign", [[
  shl.b32 %r5, %r1, 32;
  shr.u32 %r6, %r1, 40;
  shr.s32 %r7, %r1, 40;
  not.b32 %r8, %r1;]], {0x80000001, 0, 0, 0}, {0, 0, 0xffffffff, 0x7ffffffe})

claim("a product and a sum are rounded once where they are one instruction", [[
  mul.rn.f32 %f5, %f1, %f1;
  add.rn.f32 %f5, %f5, %f2;
  fma.rn.f32 %f6, %f1, %f1, %f2;
  mov.b32 %r5, %f5;
  mov.b32 %r6, %f6;
  mul.rz.f32 %f5, %f1, %f1;
  mov.b32 %r7, %f5;
  mul.rp.f32 %f5, %f1, %f1;
  mov.b32 %r8, %f5;]], {bits(1 + 2 ^ -12), bits(-1 - 2 ^ -11), 0, 0},
  {0, bits(2 ^ -24), bits(1 + 2 ^ -11), bits(1 + 2 ^ -11 + 2 ^ -23)})

claim("the smaller and larger of a NaN and a number are the number", [[
  min.f32 %f5, %f1, %f2;
  max.f32 %f6, %f2, %f1;
  mov.b32 %r5, %f5;
  mov.b32 %r6, %f6;
  setp.lt.f32 %p1, %f1, %f2;
  setp.ltu.f32 %p2, %f1, %f2;
  selp.u32 %r7, 1, 0, %p1;
  selp.u32 %r8, 1, 0, %p2;]], {0x7fc00000, bits(3), 0, 0}, {bits(3), bits(3), 0, 1})

claim("conversions saturate, and round as they are told", [[
  cvt.rni.s32.f32 %r5, %f1;
  cvt.rzi.s32.f32 %r6, %f1;
  cvt.rzi.u32.f32 %r7, %f2;
  cvt.rn.f32.s32 %f5, %r3;
  mov.b32 %r8, %f5;]], {bits(2.5000002), bits(-7), 0x01000003, 0}, {3, 2, 0, bits(16777220)})

claim("half types are converted to the nearest, ties to even", [[
  cvt.rn.f16.f32 %rs1, %f1;
  cvt.f32.f16 %f5, %rs1;
  mov.b32 %r5, %f5;
  cvt.rn.bf16.f32 %rs2, %f2;
  cvt.u32.u16 %r6, %rs2;]], {bits(2049), 0x3f808000, 0, 0}, {bits(2048), 0x3f80, 0, 0})

claim("branches loop, and predicates guard", [[
  mov.u32 %r9, 0;
LOOP:
  add.u32 %r5, %r5, %r9;
  add.u32 %r9, %r9, 1;
  setp.le.u32 %p1, %r9, %r1;
  @%p1 bra LOOP;
  setp.eq.u32 %p2, %r5, 5050;
  @%p2 mov.u32 %r6, 1;
  @!%p2 mov.u32 %r7, 1;]], {100, 0, 0, 0}, {5050, 1, 0, 0})

claim("words of 64 bits are divided and compared with their sign", [[
  div.s64 %rd7, %rd3, %rd4;
  mov.b64 {%r5, %r6}, %rd7;
  rem.s64 %rd8, %rd3, %rd4;
  mov.b64 {%r7, %r10}, %rd8;
  setp.lt.s64 %p1, %rd3, %rd4;
  selp.u32 %r8, 1, 0, %p1;]], {0xfffffff9, 0xffffffff, 2, 0},
  {0xfffffffd, 0xffffffff, 0xffffffff, 1})

claim("reciprocals are of all bits, also after one of the upper half alone", [[
  cvt.f64.f32 %fd1, %f1;
  rcp.approx.ftz.f64 %fd2, %fd1;
  rcp.rn.f64 %fd3, %fd1;
  mov.b64 {%r5, %r6}, %fd2;
  mov.b64 {%r7, %r8}, %fd3;]], {bits(3), 0, 0, 0}, {0, 0x3fd55555, 0x55555555, 0x3fd55555})

local function object(text)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write(".version 8.4\n.target sm_90\n.address_size 64\n", text)
  file:close()
  local said = process.shell(("'%s/.ci/ptx' object '%s' '%s.so'"):format(root, path, path))
  os.remove(path)
  return path .. ".so", said
end

describe("PTX on the CPU:", function()
  local kernels, library, path = {}, nil, nil

  setup(function()
    local text, said = {}
    for i, c in ipairs(claims) do text[i] = KERNEL:format("claim" .. i, c.body) end
    path, said = object(table.concat(text))
    assert.matches("rc=0\n$", said)
    local header = assert(io.open(root .. "/cuda/emulator/ptx/machine.h"))
    ffi.cdef((header:read("*a"):gsub("#[^\n]*", "")))
    header:close()
    ffi.cdef [[
      const struct moth_ptx_kernel *const *moth_ptx_kernels(size_t *count);
      typedef struct { uint32_t at[4] __attribute__((aligned(16))); } words;
    ]]
    library = ffi.load(path)
    local count = ffi.new "size_t[1]"
    local list = library.moth_ptx_kernels(count)
    for i = 0, tonumber(count[0]) - 1 do kernels[ffi.string(list[i].name)] = list[i] end
  end)
  teardown(function() os.remove(path) end)

  for i, c in ipairs(claims) do
    it(c.name, function()
      local to, from = ffi.new "words", ffi.new("words", {c.given})
      local params = ffi.new("void *[2]", {to, from})
      kernels["claim" .. i].run(ffi.new "char[16]", 16, "claim", ffi.cast("char *", params))
      assert.same(c.wanted, {to.at[0], to.at[1], to.at[2], to.at[3]})
    end)
  end

  it("an unknown instruction is refused by its name", function()
    local at, said = object(KERNEL:format("odd", "frobnicate.rn.f32 %f1, %f2;"))
    os.remove(at)
    assert.matches("frobnicate", said)
    assert.matches("rc=[1-9]", said)
  end)
end)
