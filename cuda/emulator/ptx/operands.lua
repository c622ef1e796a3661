-- operands.lua -- translates operands of PTX instructions to C: registers, numbers, addresses.
--
-- A register is a variable of unsigned bits. Shared memory is addressed from 0, all else as the CPU
-- does (ptx.h).

local operands = {}

--- Bits of each type.
local BITS = {
  u8 = 8, s8 = 8, b8 = 8, u16 = 16, s16 = 16, b16 = 16, f16 = 16, bf16 = 16, u32 = 32, s32 = 32,
  b32 = 32, f32 = 32, f16x2 = 32, bf16x2 = 32, tf32 = 32, u64 = 64, s64 = 64, b64 = 64, f64 = 64,
  pred = 1,
}
operands.BITS = BITS

--- Declarations of the current function. registers: name -> its bits; addresses: names that are C
-- variables; offsets: name -> its offset in shared memory, of which `size` bytes are used.
local registers, addresses, offsets, size
local variables = {} -- of the file, in shared memory: name -> {size, align}; no size: the rest
local globals = {} -- of the file: names that are addresses

function operands.begin()
  registers, offsets, size = {}, {}, 0
  addresses = setmetatable({}, { __index = globals })
end

--- Bytes of shared memory that the function declares.
function operands.shared_size() return math.ceil(size / 16) * 16 end

function operands.is_float(t) return t == "f32" or t == "f64" end
function operands.is_signed(t) return t:sub(1, 1) == "s" end

--- The C types: unsigned with that many bits; with the same meaning.
local function bits_type(t) return t == "pred" and "u8" or "u" .. math.max(BITS[t], 8) end
local function c_type(t) return operands.is_signed(t) and t or bits_type(t) end
operands.bits_type, operands.c_type = bits_type, c_type

function operands.fail(what, text) error(what .. " that is not known: " .. text, 0) end

-- -- declarations --

--- ".align 8 .b8 name[32]" -> name, bytes (nil: open), align, type
function operands.declared(line)
  local align = tonumber(line:match "%.align%s+(%d+)")
  local rest = line:gsub("%.align%s+%d+", ""):gsub("%.ptr", "")
  local t, name, count = rest:match "%.([busf]%d+)%s+([%w_$]+)%s*(%b[])"
  if not t then t, name = rest:match "%.([busf]%d+)%s+([%w_$]+)" end
  if not t then operands.fail("a declaration", line) end
  local n = count and tonumber(count:sub(2, -2)) or not count and 1
  return name, n and n * BITS[t] / 8, align or BITS[t] / 8, t
end

function operands.add_address(name, for_file) (for_file and globals or addresses)[name] = true end

function operands.add_shared(line)
  local name, bytes, align = operands.declared(line)
  variables[name] = { size = bytes, align = align }
end

--- ".reg .b32 %r<11>" -> lines of C
function operands.add_registers(line)
  local t, names = line:match "^%.reg%s+%.(%w+)%s+(.*)$"
  local lines = {}
  for name in names:gmatch "[^,%s]+" do
    local stem, count = name:match "^%%?([%w_]+)<(%d+)>$"
    local list = {}
    for i = 0, (count or 1) - 1 do
      local own = stem and stem .. i or name:gsub("^%%", "")
      registers[own] = BITS[t]
      list[#list + 1] = own
    end
    lines[#lines + 1] = bits_type(t) .. " " .. table.concat(list, ", ") .. ";"
  end
  return table.concat(lines, "\n")
end

-- -- reading and writing --

local function shared_offset(name)
  local is = variables[name]
  if offsets[name] or not is then return offsets[name] end
  if not is.size then return "SHARED_END" end
  local at = math.ceil(size / is.align) * is.align
  offsets[name], size = at, at + is.size
  return at
end

local function symbol_address(text)
  local symbol, more = text:match "^([%w_$]+)%+?(%-?%d*)$"
  local at = symbol and shared_offset(symbol)
  if not at and not (symbol and addresses[symbol]) then operands.fail("an operand", text) end
  return ("(%s%s)"):format(at or "(u64)" .. symbol, more ~= "" and "+" .. more or "")
end

--- Translates an operand to C of that type: bits, an integer, a float or double.
function operands.read(text, t)
  local name = text:gsub("^%%", "")
  local value
  if registers[name] then value = name
  elseif text:find "^0[fF]%x+$" then value = "0x" .. text:sub(3) .. "u"
  elseif text:find "^0[dD]%x+$" then value = "0x" .. text:sub(3) .. "ull"
  elseif text == "-9223372036854775808" then value = "(s64)0x8000000000000000ull"
  elseif text:find "^%-%d" then value = "(s64)" .. text .. "ll"
  elseif text:find "^%d" then value = text:gsub("U$", "") .. "ull"
  elseif text:find "^%%" then value = "SPECIAL_" .. name:gsub("%.", "_") -- %tid.x and others
  else value = symbol_address(text) end
  if t == "pred" then return registers[name] and value or "(" .. value .. " != 0)" end
  if t == "f32" then return "F((u32)" .. value .. ")" end
  if t == "f64" then return "D((u64)" .. value .. ")" end
  return "(" .. c_type(t) .. ")" .. value
end

--- A statement that writes a value of that type to a register; "_" discards the value.
function operands.write(text, t, value)
  local name = text:gsub("^%%", "")
  if text == "_" then return "(void)(" .. value .. ");" end
  if not registers[name] then operands.fail("a register", text) end
  if t == "f32" then value = "B(" .. value .. ")" end
  if t == "f64" then value = "Q(" .. value .. ")" end
  return name .. " = " .. value .. ";"
end

--- "{a, b}" -> {"a", "b"}
function operands.parts(text)
  local list = {}
  for part in text:sub(2, -2):gmatch "[^%s,]+" do list[#list + 1] = part end
  return list
end

--- Translates "[a+4]" to a C pointer to `count` numbers of type t.
function operands.place(text, t, space, count)
  local base, more = text:match "^%[%s*([%%%w_$.]+)%s*%+?%s*(%-?%d*)%s*%]$"
  if not base then operands.fail("an address", text) end
  local at = operands.read(base, "u64")
  if more ~= "" then at = at .. "+(" .. more .. ")" end
  if space == "shared" then at = ("SHARED(%s, %d)"):format(at, BITS[t] / 8 * (count or 1)) end
  return ("AT(%s, %s, %d)"):format(bits_type(t), at, count or 1)
end

return operands
