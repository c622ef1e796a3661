-- translate.lua -- translates PTX, the output of nvcc for the plugin's kernels, to C for a CPU.
--
--   luajit cuda/emulator/ptx/translate.lua FILE.ptx >FILE.c
--
-- Each instruction becomes one or two statements. .ci/ptx compiles them to a shared object, whose
-- kernels replace those that a C++ compiler built from the same source. The emulator then runs the
-- code of nvcc, with its fused multiply-adds and CUDA's math functions.

local here = arg[0]:match "^(.*/)" or ""
package.path = here .. "?.lua;" .. package.path

local operands = require "operands"
local instruction = require "instructions"

local printed = {}
local function print_line(...) printed[#printed + 1] = table.concat { ... } end

-- -- the body of a function --

local function statement(line, tables)
  if line:find "^%.reg" then return operands.add_registers(line) end
  if line:find "^%.local" or line:find "^%.param" then
    local name, bytes, align = operands.declared(line)
    operands.add_address(name)
    return ("char %s[%d] __attribute__((aligned(%d)));"):format(name, bytes, math.max(align, 8))
  elseif line:find "^%.shared" then
    operands.add_shared(line)
  elseif not line:find "^%.pragma" then
    return "I_ " .. instruction(line, tables)
  end
end

local function body(text)
  local out, tables, at = {}, {}, 1
  text = text:gsub("([%w_$]+):%s*%.branchtargets%s+(.-);", function(name, list)
    tables[name] = {}
    for to in list:gmatch "[^,%s]+" do table.insert(tables[name], to) end
    return ""
  end)
  while true do
    at = text:match("^%s*()", at)
    if at > #text then return table.concat(out, "\n") end
    local brace, label, after = text:match("^[{}]", at), text:match("^([%w_$]+):()", at)
    if brace then
      out[#out + 1], at = brace, at + 1
    elseif label then
      out[#out + 1], at = label:gsub("%$", "_") .. ":;", after
    else
      local to = text:find(";", at, true) or operands.fail("a line", text:sub(at, at + 60))
      out[#out + 1] = statement(text:sub(at, to - 1):gsub("%s+", " "):gsub(" $", ""), tables)
      at = to + 1
    end
  end
end

-- -- kernels and functions --

--- ".param .u64 a, .param .align 8 .b8 b[32]" -> {{name, offset, bytes} ...} and the total size
local function parameters(text)
  local list, size = {}, 0
  for line in text:gmatch "[^,]+" do
    if line:find "%.param" then
      line = line:gsub("%.ptr[%w%s.]*%.align%s+%d+", "") -- the alignment of a pointer's target
      local name, bytes, align = operands.declared(line)
      size = math.ceil(size / align) * align
      list[#list + 1] = { name, size, bytes }
      operands.add_address(name)
      size = size + bytes
    end
  end
  return list, size
end

local function kernel(name, taken, text)
  operands.begin()
  local list, size = parameters(taken)
  local inside, places = body(text), {}
  local shared = operands.shared_size()
  print_line("#undef SHARED_END\n#define SHARED_END ", shared)
  print_line("static void ", name, "(PTX_TAKE, const char *params) {\nu32 CC;")
  for i, p in ipairs(list) do
    print_line("const char *const ", p[1], " = params + ", p[2], ";")
    places[i] = p[2] .. ", " .. p[3]
  end
  print_line(inside, "\n}")
  print_line(("PTX_KERNEL(%s, %d, %d, %d, {%s})"):format(name, size, shared, #list,
    places[1] and table.concat(places, ", ") or "0"))
end

local function device_function(result, name, taken, text)
  operands.begin()
  local names = {}
  for _, some in ipairs { result, taken } do
    for _, p in ipairs((parameters(some))) do names[#names + 1] = ", char *" .. p[1] end
  end
  local inside = text and " {\nu32 CC;\n" .. body(text) .. "\n}" or ";"
  if operands.shared_size() > 0 then operands.fail("shared memory of a function", name) end
  print_line("static void ", name, "(PTX_TAKE", table.concat(names), ")", inside)
end

-- -- a file --

local function variable(line)
  if line:find "%.shared" then return operands.add_shared(line) end
  if line:find "%.extern" then operands.fail("a variable of another file", line) end
  local head, values = line:match "^(.-)%s*=%s*{?(.-)}?$"
  local name, size, align, t = operands.declared(head or line)
  operands.add_address(name, true)
  print_line(("static %s %s[%d] __attribute__((aligned(%d))) = {%s};"):format(operands.bits_type(t),
    name, size / (operands.BITS[t] / 8), align,
    (values or "0"):gsub("0[fF](%x+)", "0x%1u"):gsub("0[dD](%x+)", "0x%1ull")))
end

local function file(text)
  local at = 1
  text = text:gsub("//[^\n]*", "")
  print_line('#define PTX_FILE "', (arg[1]:match "([^/]-)%.?p?t?x?$"), '.cu"\n#include "ptx.h"')
  while true do
    at = text:match("^%s*()", at)
    if at > #text then return end
    local name, taken, inside, after =
      text:match("^[%w_.%s]-%.entry%s+([%w_$]+)%s*(%b())[^{]*(%b{})()", at)
    local func, open = text:match("^[%w_.%s]-%.func%s+([^{;]-)%s*()[{;]", at)
    if text:find("^%.version", at) or text:find("^%.target", at)
        or text:find("^%.address_size", at) then
      at = text:find("\n", at, true)
    elseif name then
      kernel(name, taken:sub(2, -2), inside:sub(2, -2))
      at = after
    elseif func then
      local result, own, of = func:match "^(%b())%s*([%w_$]+)%s*(%b())"
      if not own then result, own, of = "()", func:match "^([%w_$]+)%s*(%b())" end
      inside, after = text:match("^(%b{})()", open)
      device_function(result:sub(2, -2), own, of:sub(2, -2), inside and inside:sub(2, -2))
      at = after or open + 1
    else
      local to = text:find(";", at, true)
      variable(text:sub(at, to - 1):gsub("%s+", " "))
      at = to + 1
    end
  end
end

local from = assert(io.open(arg[1]))
local good, why = pcall(file, from:read "*a")
from:close()
if not good then
  io.stderr:write("translate.lua: ", arg[1], ": ", tostring(why), "\n")
  os.exit(1)
end
io.write(table.concat(printed, "\n"), "\n")
