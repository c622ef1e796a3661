--- tools.lua -- the prompt's globals who and time, and the pager of long texts.

local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local machine = require "moth.base.machine"

local tools = {}

-- ---- who ----

local known = {} -- globals that the prompt itself has defined

--- Takes the globals that exist now as the prompt's own.
function tools.remember_globals()
  for name, value in pairs(_G) do known[name] = value end
end

local UNITS = {"B", "KiB", "MiB", "GiB", "TiB"}

local function size_text(bytes)
  local unit = 1
  while bytes >= 1024 and unit < #UNITS do bytes, unit = bytes / 1024, unit + 1 end
  return (unit == 1 and "%d %s" or "%.1f %s"):format(bytes, UNITS[unit])
end

local function bytes_of(x) return x:numel() * tonumber(lib.inspect(x).itemsize) end

local function alive(x) return lib.C.moth_alive(lib.ctx, x) == 1 end

-- Calls f(tensor) for the tensors of a value: a tensor, a module, or a table of these.
local function each_tensor(value, f, seen)
  if lib.istensor(value) then
    if alive(value) then f(value) end
  elseif type(value) == "table" and not seen[value] then
    seen[value] = true
    if class.typename(value) and type(value.parameters) == "function" then
      for _, p in ipairs(value:parameters()) do f(p) end
      for _, b in ipairs(value.buffers and value:buffers() or {}) do f(b) end
    elseif lib.is_plain(value) then
      for _, item in pairs(value) do each_tensor(item, f, seen) end
    end
  end
end

-- A row of the table: name, kind, shape, dtype, device, bytes.
local function row_of(name, value)
  local bytes, device, count = 0, nil, 0
  local fine = pcall(each_tensor, value, function(x)
    bytes, count = bytes + bytes_of(x), count + 1
    local where = tostring(x.device)
    device = (device == nil or device == where) and where or "several"
  end, {})
  if lib.istensor(value) then
    if not alive(value) then return {name, "tensor", "freed", "", "", "", bytes = 0} end
    return {name, "tensor", tostring(value.shape), tostring(value.dtype):gsub("^moth%.", ""),
            device, size_text(bytes), bytes = bytes}
  end
  local kind = class.typename(value) or bind.signature(value) and "function" or type(value)
  if type(value) == "cdata" then kind = errors.describe(value) end
  if not fine or count == 0 then return {name, kind, "", "", "", "", bytes = 0} end
  return {name, kind, ("%d tensors"):format(count), "", device, size_text(bytes), bytes = bytes}
end

local HEAD = {"name", "type", "shape", "dtype", "device", "bytes"}

--- Returns the table of the variables that the user has defined, as text: types, shapes, dtypes,
-- devices, bytes.
function tools.who_text()
  local names, rows, widths, total = {}, {HEAD}, {}, 0
  for name, value in pairs(_G) do
    local own = type(name) == "string" and not rawequal(known[name], value)
    if own and name ~= "ans" and not name:find "^_%d*$" then names[#names + 1] = name end
  end
  table.sort(names)
  for _, name in ipairs(names) do
    rows[#rows + 1] = row_of(name, _G[name])
    total = total + rows[#rows].bytes
  end
  for _, row in ipairs(rows) do
    for i, cell in ipairs(row) do widths[i] = math.max(widths[i] or 0, #cell) end
  end
  local lines = {}
  for k, row in ipairs(rows) do
    local cells = {}
    for i, cell in ipairs(row) do
      local space = (" "):rep(widths[i] - #cell)
      cells[i] = i == #row and space .. cell or cell .. space
    end
    lines[k] = table.concat(cells, "  "):gsub("%s+$", "")
  end
  if #names == 0 then lines = {"no variables"} end
  local memory = require("moth").memory()
  lines[#lines + 1] = ("%s in variables, %s in all tensors"):format(size_text(total),
    size_text(memory.live_bytes))
  return table.concat(lines, "\n")
end

--- who(): prints the variables that you have defined, with shapes, dtypes, devices and bytes.
function tools.who() print(tools.who_text()) end

-- ---- time ----

local function duration(seconds)
  if seconds < 1e-3 then return ("%.3g us"):format(seconds * 1e6) end
  return seconds < 1 and ("%.3g ms"):format(seconds * 1e3) or ("%.3f s"):format(seconds)
end

local function wait()
  local cuda = package.loaded["moth.cuda"]
  if cuda and cuda.is_available() then cuda.synchronize() end
end

--- time(f, ...): calls f(...), prints how long it took, also on a GPU, and returns its results. A
-- text is compiled first: time "x:matmul(y)".
function tools.time(f, ...)
  if type(f) == "string" then
    local chunk, message = loadstring("return " .. f, "=time")
    if not chunk then chunk, message = loadstring(f, "=time") end
    if not chunk then error(message, 0) end
    f = chunk
  end
  wait()
  local start = lib.C.moth_seconds()
  local function report(...)
    wait()
    print(duration(lib.C.moth_seconds() - start))
    return ...
  end
  return report(f(...))
end

-- ---- the pager ----

--- Shows a text: with $PAGER, or `less -R`, if it is longer than the terminal, else by print.
function tools.page(text)
  local rows = machine.is_terminal(0) and machine.is_terminal(1) and machine.rows()
  local _, lines = text:gsub("\n", "")
  local pager = os.getenv "PAGER" or "less -R"
  if not rows or lines + 2 <= rows or pager == "" then return print(text) end
  io.flush()
  local pipe = io.popen(pager, "w")
  if not pipe then return print(text) end
  pipe:write(text, "\n")
  pipe:close()
end

return tools
