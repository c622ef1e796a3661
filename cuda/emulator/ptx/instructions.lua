-- instructions.lua -- translates PTX instructions to C; ptx.h has those without an operator.
--
-- PTX ISA, version 9.0. Supports the instructions that nvcc uses; others are an error.

local operands = require "operands"

local BITS, read, write, place = operands.BITS, operands.read, operands.write, operands.place
local parts, fail, is_float, is_signed = operands.parts, operands.fail, operands.is_float,
  operands.is_signed
local bits_type, c_type = operands.bits_type, operands.c_type

local SPACES = { param = true, global = true, shared = true, ["local"] = true, const = true }

local COMPARE = { eq = "==", ne = "!=", lt = "<", le = "<=", gt = ">", ge = ">=", lo = "<",
                  ls = "<=", hi = ">", hs = ">=" }
local OPPOSITE = { equ = "!=", neu = "==", ltu = ">=", leu = ">", gtu = "<=", geu = "<" }

local function comparison(how, t, a, b)
  if how == "num" then return ("(%s == %s && %s == %s)"):format(a, a, b, b) end
  if how == "nan" then return ("(%s != %s || %s != %s)"):format(a, a, b, b) end
  if not is_float(t) then return ("(%s %s %s)"):format(a, COMPARE[how], b) end
  if how == "neu" then return ("!(%s == %s)"):format(a, b) end
  if how == "equ" then return ("!(%s < %s || %s > %s)"):format(a, b, a, b) end
  if OPPOSITE[how] then return ("!(%s %s %s)"):format(a, OPPOSITE[how], b) end
  if how == "ne" then return ("(%s < %s || %s > %s)"):format(a, b, a, b) end
  return ("(%s %s %s)"):format(a, COMPARE[how] or fail("a comparison", how), b)
end

-- Floating-point results: rounding mode, saturation to [0, 1], flush of subnormals to 0.
local function rounded(m, t, form, ...)
  local how = m.rz and "FE_TOWARDZERO" or m.rm and "FE_DOWNWARD" or m.rp and "FE_UPWARD"
  local from = { ... }
  for i = 1, how and #from or 0 do from[i] = "HIDDEN(" .. from[i] .. ")" end
  local value = form:format(unpack(from))
  if how then value = ("ROUNDED(%s, %s)"):format(how, value) end
  if m.ftz and t == "f32" then value = "FLUSH(" .. value .. ")" end
  if m.sat then value = "SAT(" .. value .. ")" end
  return value
end

-- op -> function(m, o, t): the modifiers (as a set and a list), the operands, and the last type;
-- returns C.
local ops = {}

local function arithmetic(sign)
  return function(m, o, t)
    if is_float(t) then
      return write(o[1], t, rounded(m, t, "%s" .. sign .. "%s", read(o[2], t), read(o[3], t)))
    end
    local u = bits_type(t)
    if m.cc or m.takes_carry then
      return ("{ u128 w_ = %s(%s, %s, %s, %s); %s }"):format(sign == "+" and "ADD" or "SUB", u,
        read(o[2], u), read(o[3], u), m.takes_carry and "CC" or "0",
        write(o[1], t, "(" .. u .. ")w_") .. (m.cc and " CC = CARRY(" .. u .. ", w_);" or ""))
    end
    if m.sat then
      return write(o[1], t, ("sat_s32((s64)%s %s (s64)%s)"):format(read(o[2], t), sign,
                                                                   read(o[3], t)))
    end
    return write(o[1], t, ("(%s)(%s %s %s)"):format(u, read(o[2], u), sign, read(o[3], u)))
  end
end
ops.add, ops.sub = arithmetic "+", arithmetic "-"
function ops.addc(m, o, t) m.takes_carry = true return ops.add(m, o, t) end
function ops.subc(m, o, t) m.takes_carry = true return ops.sub(m, o, t) end

local WIDE = { u16 = "u32", s16 = "s32", u32 = "u64", s32 = "s64" }

local function product(m, o, t)
  local a, b, u = read(o[2], t), read(o[3], t), bits_type(t)
  if m.wide then return ("((%s)%s * (%s)%s)"):format(WIDE[t], a, WIDE[t], b), WIDE[t] end
  if m.hi and t:find "64" then
    local w = is_signed(t) and "s128" or "u128"
    return ("((%s)(((%s)%s * (%s)%s) >> 64))"):format(u, w, a, w, b), t
  elseif m.hi then
    local w = is_signed(t) and "s64" or "u64"
    return ("((%s)(((%s)%s * (%s)%s) >> %d))"):format(u, w, a, w, b, BITS[t]), t
  end
  return ("((%s)((u64)%s * (u64)%s))"):format(u, a, b), t
end

function ops.mul(m, o, t)
  if is_float(t) then
    return write(o[1], t, rounded(m, t, "%s * %s", read(o[2], t), read(o[3], t)))
  end
  local value, as = product(m, o, t)
  return write(o[1], as, value)
end

function ops.mad(m, o, t)
  if is_float(t) then return ops.fma(m, o, t) end
  local value, as = product(m, o, t)
  local u = bits_type(as)
  if m.cc or m.takes_carry then
    return ("{ u128 w_ = ADD(%s, %s, %s, %s); %s }"):format(u, value, read(o[4], u),
      m.takes_carry and "CC" or "0",
      write(o[1], as, "(" .. u .. ")w_") .. (m.cc and " CC = CARRY(" .. u .. ", w_);" or ""))
  end
  return write(o[1], as, ("(%s)(%s + %s)"):format(u, "(" .. u .. ")" .. value, read(o[4], u)))
end
function ops.madc(m, o, t) m.takes_carry = true return ops.mad(m, o, t) end

function ops.fma(m, o, t)
  local call = t == "f32" and "fmaf" or "fma"
  return write(o[1], t, rounded(m, t, call .. "(%s, %s, %s)", read(o[2], t),
    read(o[3], t), read(o[4], t)))
end

function ops.div(m, o, t)
  if is_float(t) then
    return write(o[1], t, rounded(m, t, "%s / %s", read(o[2], t), read(o[3], t)))
  end
  return write(o[1], t, ("DIV_%s(%s, %s)"):format(c_type(t), read(o[2], t), read(o[3], t)))
end
function ops.rem(_, o, t)
  return write(o[1], t, ("REM_%s(%s, %s)"):format(c_type(t), read(o[2], t), read(o[3], t)))
end

local function extreme(name, sign)
  return function(_, o, t)
    local a, b = read(o[2], t), read(o[3], t)
    if is_float(t) then
      return write(o[1], t, ("%s_%s(%s, %s)"):format(name, t, a, b))
    end
    return write(o[1], t, ("%s %s %s ? %s : %s"):format(a, sign, b, a, b))
  end
end
ops.min, ops.max = extreme("min", "<"), extreme("max", ">")

function ops.neg(_, o, t)
  if t == "f32" then return write(o[1], "b32", read(o[2], "b32") .. " ^ 0x80000000u") end
  if t == "f64" then return write(o[1], "b64", read(o[2], "b64") .. " ^ 0x8000000000000000ull") end
  return write(o[1], t, ("(%s)(0 - %s)"):format(bits_type(t), read(o[2], bits_type(t))))
end

function ops.abs(_, o, t)
  if t == "f32" then return write(o[1], "b32", read(o[2], "b32") .. " & 0x7fffffffu") end
  if t == "f64" then return write(o[1], "b64", read(o[2], "b64") .. " & 0x7fffffffffffffffull") end
  local a, u = read(o[2], t), bits_type(t)
  return write(o[1], t, ("%s < 0 ? (%s)(0 - (%s)%s) : (%s)%s"):format(a, u, u, a, u, a))
end

function ops.copysign(_, o, t) -- the sign of the first
  local call = t == "f32" and "copysignf" or "copysign"
  return write(o[1], t, ("%s(%s, %s)"):format(call, read(o[3], t), read(o[2], t)))
end

for op, call in pairs { sqrt = "sqrt(%s)", rcp = "1 / (%s)", rsqrt = "1 / sqrt(%s)",
                        ex2 = "exp2(%s)", lg2 = "log2(%s)", sin = "sin(%s)", cos = "cos(%s)",
                        tanh = "tanh(%s)" } do
  ops[op] = function(m, o, t)
    local x = read(o[2], t)
    if t == "f64" then
      local form = m.approx and m.ftz and "UPPER(" .. call .. ")" or call
      return write(o[1], t, rounded({ rz = m.rz, rm = m.rm, rp = m.rp }, t, form, x))
    end
    if m.ftz then x = "FLUSH(" .. x .. ")" end
    local own = op == "sqrt" and "sqrtf(%s)" or op == "rcp" and "1.0f / %s"
    if m.approx or not own then own, x = "(float)(" .. call .. ")", "(double)" .. x end
    return write(o[1], t, rounded(m, t, own, x))
  end
end

for op, sign in pairs { ["and"] = "&", ["or"] = "|", xor = "^" } do
  ops[op] = function(_, o, t)
    return write(o[1], t, ("%s %s %s"):format(read(o[2], t), sign, read(o[3], t)))
  end
end
ops["not"] = function(_, o, t)
  return write(o[1], t, t == "pred" and "!" .. read(o[2], t)
                        or ("(%s)~%s"):format(bits_type(t), read(o[2], t)))
end
function ops.shl(_, o, t)
  local u, by = bits_type(t), read(o[3], "u32")
  return write(o[1], t, ("%s >= %d ? 0 : (%s)(%s << %s)"):format(by, BITS[t], u, read(o[2], u), by))
end
function ops.shr(_, o, t)
  local a, by, most = read(o[2], t), read(o[3], "u32"), BITS[t]
  if is_signed(t) then
    return write(o[1], t, ("%s >> (%s >= %d ? %d : %s)"):format(a, by, most, most - 1, by))
  end
  return write(o[1], t, ("%s >= %d ? 0 : %s >> %s"):format(by, most, a, by))
end
function ops.prmt(m, o)
  if #m > 1 then fail("prmt", table.concat(m, ".")) end
  return write(o[1], "b32", ("prmt(%s, %s, %s)"):format(read(o[2], "u32"), read(o[3], "u32"),
                                                        read(o[4], "u32")))
end
function ops.bfi(_, o, t)
  return write(o[1], t, ("bfi_%s(%s, %s, %s, %s)"):format(t, read(o[2], t), read(o[3], t),
    read(o[4], "u32"), read(o[5], "u32")))
end
function ops.shf(m, o)
  return write(o[1], "b32", ("shf_%s(%s, %s, %s, %d)"):format(m.l and "l" or "r",
    read(o[2], "u32"), read(o[3], "u32"), read(o[4], "u32"), m.wrap and 1 or 0))
end
function ops.bfe(_, o, t)
  return write(o[1], t, ("bfe_%s(%s, %s, %s)"):format(t, read(o[2], t), read(o[3], "u32"),
    read(o[4], "u32")))
end
for _, op in ipairs { "popc", "clz" } do
  ops[op] = function(_, o, t)
    return write(o[1], "b32", ("%s_%s(%s)"):format(op, t, read(o[2], t)))
  end
end
function ops.brev(_, o, t) return write(o[1], t, ("brev_%s(%s)"):format(t, read(o[2], t))) end
function ops.bfind(m, o, t)
  if t ~= "u32" and t ~= "u64" then fail("bfind", t) end -- signed forms are not supported
  return write(o[1], "b32", ("bfind_%s(%s, %d)"):format(t, read(o[2], t), m.shiftamt and 1 or 0))
end

function ops.selp(_, o, t)
  local u = bits_type(t)
  return write(o[1], u, ("%s ? %s : %s"):format(read(o[4], "pred"), read(o[2], u), read(o[3], u)))
end
function ops.setp(m, o, t)
  local value = comparison(m[1], t, read(o[2], t), read(o[3], t))
  local first, second = o[1]:match "^([^|]+)|(.+)$"
  local join = m["and"] and "&&" or m["or"] and "||" or m.xor and "^"
  local last = ""
  if join then
    local c = o[4]:gsub("^!", "")
    last = (" %s %s%s"):format(join, o[4]:find "^!" and "!" or "", read(c, "pred"))
  end
  if not second then return write(o[1], "pred", "(" .. value .. ")" .. last) end
  return ("{ u8 w_ = %s; %s %s }"):format(value, write(first, "pred", "w_" .. last),
                                          write(second, "pred", "!w_" .. last))
end

function ops.mov(_, o, t)
  if o[1]:find "^{" then
    local to, lines = parts(o[1]), {}
    local u = "u" .. BITS[t] / #to
    for i, part in ipairs(to) do
      lines[i] = write(part, u, ("(%s)(w_ >> %d)"):format(u, BITS[t] / #to * (i - 1)))
    end
    return ("{ u%d w_ = %s; %s }"):format(BITS[t], read(o[2], bits_type(t)),
                                          table.concat(lines, " "))
  elseif o[2]:find "^{" then
    local from, terms = parts(o[2]), {}
    local each = BITS[t] / #from
    for i, part in ipairs(from) do
      terms[i] = ("(u%d)%s << %d"):format(BITS[t], read(part, "u" .. each), each * (i - 1))
    end
    return write(o[1], bits_type(t), table.concat(terms, " | "))
  end
  local u = t == "pred" and t or bits_type(t)
  return write(o[1], u, read(o[2], u))
end

local function space_of(m)
  for _, word in ipairs(m) do
    if SPACES[word] then return word end
  end
end

function ops.ld(m, o, t)
  local u, space = c_type(t), space_of(m)
  if not o[1]:find "^{" then return write(o[1], u, "*(" .. u .. " *)" .. place(o[2], t, space)) end
  local to, lines = parts(o[1]), {}
  for i, part in ipairs(to) do lines[i] = write(part, u, ("w_[%d]"):format(i - 1)) end
  return ("{ %s w_[%d]; memcpy(w_, %s, sizeof w_); %s }"):format(u, #to, place(o[2], t, space, #to),
                                                          table.concat(lines, " "))
end

function ops.st(m, o, t)
  local u, space = bits_type(t), space_of(m)
  if not o[2]:find "^{" then return ("*%s = %s;"):format(place(o[1], t, space), read(o[2], u)) end
  local from, values = parts(o[2]), {}
  for i, part in ipairs(from) do values[i] = read(part, u) end
  return ("{ %s w_[] = {%s}; memcpy(%s, w_, sizeof w_); }"):format(u, table.concat(values, ", "),
                                                          place(o[1], t, space, #from))
end

function ops.cvta(m, o)
  local a = read(o[2], "u64")
  if m.shared then a = m.to and "UNSHARED(" .. a .. ")" or "SHARED(" .. a .. ", 0)" end
  return write(o[1], "u64", a)
end
-- Conversions: between floats, between integers, and from one to the other.
local HALVES = { f16 = true, bf16 = true }
local function widened(text, t) -- to float or double, or unchanged
  if HALVES[t] then return ("%s_to_f32(%s)"):format(t, read(text, "u16")), "f32" end
  return read(text, t), t
end

local TO_WHOLE = { rni = "rint", rzi = "trunc", rmi = "floor", rpi = "ceil" }

function ops.cvt(m, o)
  local to, from = m.types[1], m.types[2]
  if to == "f16x2" or to == "bf16x2" then
    local half = to:sub(1, -3)
    return write(o[1], "b32", ("(u32)f32_to_%s(%s) << 16 | f32_to_%s(%s)"):format(half,
      read(o[2], "f32"), half, read(o[3], "f32")))
  elseif to == "tf32" then
    return write(o[1], "b32", ("f32_to_tf32_%s(%s)"):format(m.rna and "rna" or "rn",
                                                            read(o[2], "f32")))
  end
  local value, as = widened(o[2], from)
  local round
  for word, call in pairs(TO_WHOLE) do
    if m[word] then round = call end
  end
  if is_float(as) and round then
    value = ("%s%s(%s)"):format(round, as == "f32" and "f" or "", value)
  end
  if HALVES[to] then
    if as == "f64" then return write(o[1], "u16", ("f64_to_%s(%s)"):format(to, value)) end
    if as ~= "f32" then value = "(float)" .. value end
    return write(o[1], "u16", ("f32_to_%s(%s)"):format(to, value))
  elseif is_float(to) then
    return write(o[1], to, rounded(m, to, to == "f32" and "(float)%s" or "(double)%s", value))
  elseif is_float(as) then
    return write(o[1], to, ("to_%s((double)%s, %d)"):format(to, value,
      (from == "f64" or BITS[to] == 64) and 1 or 0))
  elseif m.sat then
    return write(o[1], to, ("CLAMP_%s((s128)%s)"):format(to, value))
  end
  return write(o[1], to, ("(%s)%s"):format(c_type(to), value))
end

-- -- barriers and warp functions --

function ops.bar(m, o)
  if m.warp then return ("ptx->warp_barrier(%s);"):format(read(o[1], "u32")) end
  if m.red and m.popc then
    return write(o[1], "b32", ("(u32)ptx->barrier_count(%s)"):format(read(o[3], "pred")))
  elseif m.red then
    return write(o[1], "pred", ("barrier_%s(%s)"):format(m["or"] and "or" or "and",
                                                         read(o[3], "pred")))
  end
  if #o ~= 1 or o[1] ~= "0" then fail("a barrier", table.concat(o, ", ")) end
  return "ptx->barrier();"
end
ops.barrier = ops.bar
function ops.shfl(m, o)
  local to, there = o[1]:match "^([^|]+)|(.+)$"
  to = to or o[1]
  local how = m.up and 0 or m.down and 1 or m.bfly and 2 or 3
  local call = ("shfl(%d, %s, %s, %s, %s, &w_)"):format(how, read(o[2], "u32"), read(o[3], "u32"),
                                                        read(o[4], "u32"), read(o[5], "u32"))
  there = there and write(there, "pred", "w_") or ""
  return ("{ u8 w_; %s %s }"):format(write(to, "b32", call), there)
end
function ops.vote(m, o)
  local p = o[2]:find "^!" and "!" .. read(o[2]:sub(2), "pred") or read(o[2], "pred")
  local mask = read(o[3], "u32")
  if m.ballot then return write(o[1], "b32", ("ptx->ballot(%s, %s)"):format(mask, p)) end
  if m.any then return write(o[1], "pred", ("ptx->ballot(%s, %s) != 0"):format(mask, p)) end
  if m.all then return write(o[1], "pred", ("ptx->ballot(%s, !%s) == 0"):format(mask, p)) end
  fail("a vote", table.concat(m, "."))
end
function ops.activemask(_, o) return write(o[1], "b32", "1u << SPECIAL_laneid") end -- this thread
for _, op in ipairs { "membar", "fence", "prefetch", "prefetchu", "pragma", "griddepcontrol" } do
  ops[op] = function() return "" end
end
function ops.nanosleep() return "ptx->sleep();" end

-- One thread runs at a time, so atomics are plain operations.
local ATOMIC = {
  add = "%s + %s", exch = "%.0s%s", ["and"] = "%s & %s", ["or"] = "%s | %s", xor = "%s ^ %s",
}

local function atomic(m, o, t, to, at)
  local kind, bits, value = is_float(t) and t or c_type(t), bits_type(t), nil
  local own = read(o[at + 1], kind)
  local was = t == "f32" and "F(was_)" or t == "f64" and "D(was_)" or "(" .. kind .. ")was_"
  if m.cas then
    value = ("%s == %s ? %s : %s"):format(was, own, read(o[at + 2], kind), was)
  elseif m.min or m.max then
    value = ("%s %s %s ? %s : %s"):format(was, m.min and "<" or ">", own, was, own)
  end
  for word, form in pairs(ATOMIC) do
    if m[word] and not value then value = form:format(was, own) end
  end
  if not value then fail("an atomic operation", table.concat(m, ".")) end
  if is_float(t) then value = (t == "f32" and "B(" or "Q(") .. value .. ")" end
  return ("{ %s *m_ = %s, was_ = *m_; *m_ = %s; %s }"):format(bits, place(o[at], t, space_of(m)),
    value, to and write(to, bits, "was_") or "")
end
function ops.atom(m, o, t) return atomic(m, o, t, o[1], 2) end
function ops.red(m, o, t) return atomic(m, o, t, nil, 1) end

function ops.cp(m, o)
  if m.commit_group then return "ptx->copy_later(0, 0, 0);" end
  if m.wait_group then return ("ptx->await_copies(%s);"):format(o[1]) end
  if m.wait_all then return "ptx->await_copies(0);" end
  local n = tonumber(o[3])
  local to, from = place(o[1], "b8", "shared", n), place(o[2], "b8", "global", n)
  return ("copy_later(%s, %s, %s, %s);"):format(to, from, o[3], o[4] and read(o[4], "u32") or o[3])
end

local function array(text, t)
  local list = parts(text)
  for i, part in ipairs(list) do list[i] = read(part, t) end
  return "{" .. table.concat(list, ", ") .. "}"
end

function ops.ldmatrix(m, o)
  local to, lines = parts(o[1]), {}
  if not (m.m8n8 and m.x4 and m.b16) then fail("ldmatrix", table.concat(m, ".")) end
  for i, part in ipairs(to) do lines[i] = write(part, "b32", ("w_[%d]"):format(i - 1)) end
  return ("{ u32 w_[4]; load_matrices(w_, %s, %d); %s }"):format(
    place(o[2], "b8", "shared", 16), m.trans and 1 or 0, table.concat(lines, " "))
end

function ops.mma(m, o)
  local kind = m.tf32 and "TF32" or m.bf16 and "BF16" or m.f16 and "F16"
  local depth = m.m16n8k16 and 16 or m.m16n8k8 and 8
  if not kind or not depth or m.types[1] ~= "f32" then fail("mma", table.concat(m, ".")) end
  local to, lines = parts(o[1]), {}
  for i, part in ipairs(to) do lines[i] = write(part, "f32", ("c_[%d]"):format(i - 1)) end
  local form = "{ float c_[] = %s; u32 a_[] = %s, b_[] = %s; multiply(%s, %d, c_, a_, b_); %s }"
  return form:format(array(o[4], "f32"), array(o[2], "b32"), array(o[3], "b32"), kind, depth,
                     table.concat(lines, " "))
end

-- -- branches --

local function label(name) return (name:gsub("%$", "_")) end

function ops.bra(_, o) return "goto " .. label(o[1]) .. ";" end
function ops.ret() return "return;" end
ops.exit = ops.ret
function ops.trap() return "FAULT(\"trap\");" end

-- -- a line: "@%p1 add.f32 %f1, %f2, %f3" --

local function operand_list(text)
  local list, depth, from = {}, 0, 1
  for at, c in text:gmatch "()([%[%]{}(),])" do
    if c == "," and depth == 0 then
      list[#list + 1] = text:sub(from, at - 1)
      from = at + 1
    elseif c:find "[%[{(]" then depth = depth + 1
    elseif c ~= "," then depth = depth - 1 end
  end
  list[#list + 1] = text:sub(from)
  for i, one in ipairs(list) do list[i] = one:match "^%s*(.-)%s*$" end
  return list
end

--- Translates a line to C. tables: name -> target labels, for brx.
local function instruction(text, tables)
  local mark, rest = text:match "^@(!?%%?[%w_]+)%s+(.*)$"
  local name, more = (rest or text):match "^([%w_.:]+)%s*(.*)$"
  if not name then fail("a line", text) end
  local op, m = nil, { types = {} }
  for word in name:gmatch "[^.]+" do
    if not op then op = word
    else
      m[#m + 1], m[word] = word, true
      if BITS[word] then m.types[#m.types + 1] = word end
    end
  end
  local c
  local o = more ~= "" and operand_list(more) or {}
  if op == "call" then
    local to, f, args = more:match "^%((.-)%)%s*,%s*([%w_$]+)%s*,%s*%((.-)%)$"
    if not f then f, args = more:match "^([%w_$]+)%s*,%s*%((.-)%)$" end
    if not f then f, args = more:match "^([%w_$]+)$", "" end
    local list = (to and to:match "%S" and args:match "%S") and to .. ", " .. args or to or args
    c = ("%s(PTX_PASS%s);"):format(f, list:match "%S" and ", " .. list or "")
  elseif op == "brx" then
    local lines = {}
    for i, to in ipairs(tables[o[2]]) do
      lines[i] = ("case %d: goto %s;"):format(i - 1, label(to))
    end
    c = ("switch (%s) { %s }"):format(read(o[1], "u32"), table.concat(lines, " "))
  else
    if not ops[op] then fail("an instruction", text) end
    c = ops[op](m, o, m.types[#m.types])
  end
  if not mark then return c end
  local p = read(mark:gsub("^!", ""), "pred")
  return ("if (%s%s) { %s }"):format(mark:find "^!" and "!" or "", p, c)
end

return instruction
