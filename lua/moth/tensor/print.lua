--- print.lua -- prints a tensor.
--
--   > moth.tensor{{1, 2.5}, {-3, 4}}
--   {{ 1.0000,  2.5000},
--    {-3.0000,  4.0000}}
--   [moth.float32 of size 2x2]
--
-- The whole tensor has one column width. Numbers have four digits after the point, none if all
-- values are integers, and powers of ten if their magnitudes differ too much. Above 1000 elements
-- only the first and last three of each dimension are read and printed. The footer has the dtype,
-- sizes, a GPU's name, and requires_grad or grad_fn. The braces are Lua's: a printed small tensor
-- can be pasted into moth.tensor.

local ffi = require "ffi"
local dtype = require "moth.tensor.dtype"
local lib = require "moth.binding.lib"

local C = lib.C
local concat, rep, floor, min, max = table.concat, string.rep, math.floor, math.min, math.max
local format = string.format
local huge = math.huge

local printing = {}

local options = {precision = 4, threshold = 1000, edgeitems = 3, linewidth = 80}
local defaults = {precision = 4, threshold = 1000, edgeitems = 3, linewidth = 80}

local BOOL, FLOATS = C.MOTH_BOOL, C.MOTH_F16 -- FLOATS: the first floating-point dtype

--- Sets how tensors are printed.
-- @param settings table of: precision (digits after the point, 4), threshold (tensors with more
-- elements are shortened, 1000), edgeitems (elements at each end of a shortened dimension, 3),
-- linewidth (80), sci_mode (true or false: powers of ten always or never; nil: as needed), profile
-- ("default", "short" or "full")
function printing.set_printoptions(settings)
  local errors = require "moth.error"
  local profiles = {
    default = defaults,
    short = {precision = 2, threshold = 1000, edgeitems = 2, linewidth = 80},
    full = {precision = 4, threshold = huge, edgeitems = 3, linewidth = 80},
  }
  local known = {"precision", "threshold", "edgeitems", "linewidth", "sci_mode", "profile"}
  if type(settings) ~= "table" then
    errors.refuse("set_printoptions", "settings", "a table of named options is needed", settings)
  end
  local new = {}
  for name, value in pairs(settings) do
    if name == "profile" then
      if not profiles[value] then
        errors.refuse("set_printoptions", "profile", "default, short or full is needed", value)
      end
    elseif name == "sci_mode" then
      if type(value) ~= "boolean" then
        errors.refuse("set_printoptions", name, "a boolean is needed", value)
      end
    elseif defaults[name] then
      local digits = name == "precision" -- string.format has at most 99
      if type(value) ~= "number" or value < 0 or digits and value > 99
         or value % 1 ~= 0 and (digits or value ~= huge) then
        errors.refuse("set_printoptions", name, "an integer from 0 " .. (digits and "to 99" or "on")
          .. " is needed", value)
      end
    else
      errors.raise("set_printoptions has no option '" .. tostring(name) .. "'"
        .. errors.nearest(tostring(name), known))
    end
    new[name] = value
  end
  if new.profile then
    for name, value in pairs(profiles[new.profile]) do options[name] = value end
    options.sci_mode = nil
    new.profile = nil
  end
  for name, value in pairs(new) do options[name] = value end
end

-- ---- reading ----

-- The positions of a dimension that are shown, from 0; -1 marks the gap.
local function shown(size, summarise)
  local edge = options.edgeitems
  local list = {}
  if summarise and size > 2 * edge then
    for i = 0, edge - 1 do list[#list + 1] = i end
    list[#list + 1] = -1
    for i = size - edge, size - 1 do list[#list + 1] = i end
  else
    for i = 0, size - 1 do list[#list + 1] = i end
  end
  return list
end

-- Nested lists of the shown values, with false for a gap. `all` collects the values in one list.
local function gather(x, info, sizes, summarise, all)
  local ndim, code = #sizes, info.dtype
  local buffer, capacity = ffi.new "moth_slot[64]", 64
  local function values(first, count)
    if count > capacity then buffer, capacity = lib.slots(count), count end
    lib.check(C.moth_read(lib.ctx, x, first, count, buffer), "tostring")
    local list = {}
    for i = 0, count - 1 do
      local v
      if code >= FLOATS then v = buffer[i].number
      elseif code == BOOL then v = buffer[i].integer ~= 0
      else v = buffer[i].integer end
      list[#list + 1] = v
      all[#all + 1] = v
    end
    return list
  end
  local function walk(dim, base)
    local size = sizes[dim]
    if dim == ndim then
      local edge = options.edgeitems
      if not (summarise and size > 2 * edge) then return values(base, size) end
      local list = values(base, edge)
      list[#list + 1] = false
      for _, v in ipairs(values(base + size - edge, edge)) do list[#list + 1] = v end
      list.gap = edge + 1
      return list
    end
    local inner = 1
    for d = dim + 1, ndim do inner = inner * sizes[d] end
    local list = {}
    for _, i in ipairs(shown(size, summarise)) do
      if i < 0 then
        list[#list + 1] = false
        list.gap = #list
      else
        list[#list + 1] = walk(dim + 1, base + i * inner)
      end
    end
    return list
  end
  return walk(1, 0)
end

-- ---- one number ----

local function integer_text(v) return (tostring(v):gsub("U?LL$", "")) end

local function odd_text(v) return v ~= v and "nan" or v > 0 and "inf" or "-inf" end

-- A function from a value to its text, with one format for all values.
local function formatter(code, all)
  if code == BOOL then return tostring end
  if code < FLOATS then return integer_text end
  local whole, least, most = true, huge, 0
  for i = 1, #all do
    local v = all[i]
    local size = v < 0 and -v or v
    if size > 0 and size < huge then
      least, most = min(least, size), max(most, size)
      if v ~= floor(v) then whole = false end
    end
  end
  local scientific = options.sci_mode
  if scientific == nil then
    if whole then scientific = most > 1e8
    else scientific = most > 1e8 or least < 1e-4 or most / least > 1e5 end
  end
  local pattern = "%." .. options.precision .. (scientific and "e" or "f")
  if whole and not scientific then pattern = "%.0f" end
  return function(v)
    if v ~= v or v == huge or v == -huge then return odd_text(v) end
    if v == 0 and pattern == "%.0f" then v = 0 end -- no "-0"
    return format(pattern, v)
  end
end

-- ---- layout ----

local function widest(all, text)
  local width = 0
  for i = 1, #all do width = max(width, #text(all[i])) end
  return width
end

-- The innermost rows wrap at the line width. Rows are on separate lines, with an empty line
-- between blocks.
local function layout(list, depth, ndim, text, width)
  local indent = rep(" ", depth)
  local parts = {}
  if depth == ndim then
    local per_line = max(1, floor((options.linewidth - depth + 1) / (width + 2)))
    local lines, line = {}, {}
    for i = 1, #list do
      if i == list.gap then
        line[#line + 1] = "..."
      else
        local s = text(list[i])
        line[#line + 1] = rep(" ", width - #s) .. s
      end
      if #line == per_line and i < #list then
        lines[#lines + 1], line = concat(line, ", "), {}
      end
    end
    if #line > 0 or #lines == 0 then lines[#lines + 1] = concat(line, ", ") end
    return "{" .. concat(lines, ",\n" .. indent) .. "}"
  end
  for i = 1, #list do
    parts[i] = i == list.gap and "..." or layout(list[i], depth + 1, ndim, text, width)
  end
  return "{" .. concat(parts, "," .. rep("\n", ndim - depth) .. indent) .. "}"
end

-- "max_pool2d" -> "MaxPool2d", the name in grad_fn.
function printing.node_name(name)
  if name:find "%u" then return name end -- a Function's class
  name = name:gsub("_+$", "")
  return (("_" .. name):gsub("_+(%w)", string.upper))
end

-- @param kind  a word before the dtype, with a space, or ""
-- @param more  text at the end; optional
local function footer(x, info, sizes, kind, more)
  local parts = {kind .. tostring(dtype.by_code[info.dtype])}
  if #sizes > 0 then parts[1] = parts[1] .. " of size " .. require("moth.tensor.size").text(sizes,
    "x") end
  if info.device > 0 then
    parts[2] = "device=" .. require("moth.tensor.device").by_code[info.device].name
  end
  local node = C.moth_node_name(lib.ctx, x)
  if node ~= nil then
    parts[#parts + 1] = "grad_fn=<" .. printing.node_name(ffi.string(node)) .. ">"
  elseif bit.band(info.flags, C.MOTH_IS_GRAD) ~= 0 then
    parts[#parts + 1] = "requires_grad"
  end
  parts[#parts + 1] = more
  return "[" .. concat(parts, ", ") .. "]"
end

-- For 0-d tensors: the text without trailing zeros.
local function short(s)
  if s:find "e" or not s:find "%." then return s end
  return (s:gsub("0+$", ""):gsub("%.$", ""))
end

--- The text of a tensor, for `tostring(x)` and `print(x)`.
function printing.tostring(x)
  local info = ffi.new "moth_tensor_info"
  if C.moth_inspect(lib.ctx, x, info) < 0 then return "[moth tensor, released]" end
  local sizes = lib.sizes(info)
  local numel = tonumber(info.numel)
  if bit.band(info.flags, C.MOTH_IS_SPARSE) ~= 0 then
    local sparse = require "moth.sparse"
    return sparse.text(x) .. footer(x, info, sizes, "sparse ", "nnz=" .. sparse._nnz(x))
  end
  if bit.band(info.flags, C.MOTH_IS_SHAPELESS) ~= 0 then
    return footer(x, info, {}, "uninitialized ")
  end
  local tail = footer(x, info, sizes, "")
  local all = {}
  if #sizes == 0 then
    local slot = ffi.new "moth_slot[1]"
    lib.check(C.moth_read(lib.ctx, x, 0, 1, slot), "tostring")
    if info.dtype >= FLOATS then all[1] = slot[0].number
    elseif info.dtype == BOOL then all[1] = slot[0].integer ~= 0
    else all[1] = slot[0].integer end
    return short(formatter(info.dtype, all)(all[1])) .. " " .. tail
  end
  if numel == 0 then return "{}\n" .. tail end
  local list = gather(x, info, sizes, numel > options.threshold, all)
  local text = formatter(info.dtype, all)
  return layout(list, 1, #sizes, text, widest(all, text)) .. "\n" .. tail
end

return printing
