--- averages.lua -- the events of a profile: as a list, as averages, and as a text table.
--
--     print(prof:key_averages():table{sort_by = "count", row_limit = 10})

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local ffi = require "ffi"
local lib = require "moth.binding.lib"

local C = lib.C
local format = string.format

lib.declare "profile"

local GRADIENT, RANGE = tonumber(C.MOTH_EVENT_GRADIENT), tonumber(C.MOTH_EVENT_RANGE)

local averages = {}

-- ---- names of events ----

local KINDS = {[tonumber(C.MOTH_EVENT_OP)] = "op", [GRADIENT] = "gradient",
               [tonumber(C.MOTH_EVENT_WHOLE)] = "engine", [RANGE] = "range"}

--- "op", "gradient", "engine" for backward passes and replays, "range" or "module".
function averages.kind(recorded, i) return KINDS[recorded.at[i].kind] or "module" end

--- A function of a profile's events that returns the name of the event at i, from 0.
function averages.namer(recorded)
  local at, known = recorded.at, {}
  return function(i)
    local e = at[i]
    if e.kind >= RANGE then return recorded.names[e.label] end
    local address = tonumber(ffi.cast("intptr_t", e.name))
    local name = known[address]
    if not name then
      name = ffi.string(e.name)
      known[address] = name
    end
    return e.kind == GRADIENT and name .. " backward" or name
  end
end

--- The shapes of the event's tensors: "(64, 20), (30, 20), ()"; nil if they were not recorded.
function averages.shapes(recorded, i)
  local from = tonumber(recorded.at[i].sizes)
  if from < 0 then return nil end
  local sizes, list = recorded.sizes, {}
  local n, k = tonumber(sizes[from]), from + 1
  for t = 1, n do
    local shape, ndim = {}, tonumber(sizes[k])
    for d = 1, ndim do shape[d] = format("%d", tonumber(sizes[k + d])) end
    list[t], k = "(" .. table.concat(shape, ", ") .. ")", k + ndim + 1
  end
  return table.concat(list, ", ")
end

local function parent_of(at, i) return tonumber(at[i].parent) end

-- The device time of each event and all nested events.
local function device_totals(recorded)
  local at, total = recorded.at, {}
  for i = 0, recorded.n - 1 do total[i] = at[i].device_self end
  for i = recorded.n - 1, 0, -1 do
    local up = parent_of(at, i)
    if up >= 0 then total[up] = total[up] + total[i] end
  end
  return total
end

-- ---- attribution ----

-- An event is attributed to the innermost enclosing event that matches. A gradient belongs to the
-- event in which its node was created: each event stores the range of node ids created in it, and
-- ids increase.

-- A function that returns the innermost event in which the node with that id was created, or -1.
local function maker(recorded)
  local at, list = recorded.at, {}
  for i = 0, recorded.n - 1 do
    if at[i].kind ~= GRADIENT then list[#list + 1] = i end
  end
  return function(id)
    local low, high = 0, #list -- list[low] began before the node was created
    while low < high do
      local middle = math.ceil((low + high) / 2)
      if at[list[middle]].first < id then low = middle else high = middle - 1 end
    end
    local i = low > 0 and list[low] or -1
    while i >= 0 and at[i].last < id do i = parent_of(at, i) end
    return i
  end
end

-- For each event, the value of `own(i)` at it or at the nearest enclosing event (nil: none has
-- one), with " backward" appended for gradients and events inside one.
local function belongings(recorded, own)
  local at, made_in, found = recorded.at, maker(recorded), {}
  for i = 0, recorded.n - 1 do
    local up = parent_of(at, i)
    local name = own(i)
    if name == nil and at[i].kind == GRADIENT then
      local there = made_in(at[i].first)
      if there >= 0 and found[there] then name = found[there] .. " backward" end
    end
    if name == nil and up >= 0 then name = found[up] end
    found[i] = name
  end
  return found
end

local function modules_of(recorded)
  local at = recorded.at
  return belongings(recorded, function(i)
    return at[i].kind == recorded.module and recorded.names[at[i].label] or nil
  end)
end

local function lines_of(recorded)
  local at = recorded.at
  return belongings(recorded, function(i)
    return at[i].line > 0 and recorded.lines[at[i].line] or nil
  end)
end

-- ---- the list of events ----

local time_text -- defined below

local Event = {}

function Event:__tostring()
  return format("%s: %s, at %s", self.name, time_text(self.cpu_time_total), time_text(self.start))
end

--- All events as tables.
function averages.events(recorded)
  local at, list = recorded.at, {}
  local name, lines, device = averages.namer(recorded), lines_of(recorded), device_totals(recorded)
  for i = 0, recorded.n - 1 do
    local e = at[i]
    local up = parent_of(at, i)
    list[i + 1] = setmetatable({
      name = name(i), kind = averages.kind(recorded, i), start = e.begin,
      cpu_time_total = e["end"] - e.begin,
      self_cpu_time_total = e.self, cpu_memory_usage = tonumber(e.bytes),
      self_cpu_memory_usage = tonumber(e.self_bytes), device_time_total = device[i],
      self_device_time_total = e.device_self, device_memory_usage = tonumber(e.device_bytes),
      self_device_memory_usage = tonumber(e.device_self_bytes), failed = e.status < 0,
      parent = up >= 0 and up + 1 or nil, input_shapes = averages.shapes(recorded, i),
      line = lines[i],
    }, Event)
  end
  return list
end

-- ---- averages ----

--- The result of prof:key_averages(): a list of rows; `:table()` formats it as text.
local EventList = class("EventList")
averages.EventList = EventList

function EventList:init(prof, by, by_shape, by_line)
  if class.typename(prof) ~= "profile" then
    errors.raise("an EventList is made by prof:key_averages()", "E_TYPE")
  end
  self.prof, self.by = prof, by
  self.by_shape, self.by_line = by == "op" and by_shape, by == "op" and by_line
end

local Row = {}

function Row:__tostring()
  return format("%s: %d call%s, %s", self.key, self.count, self.count == 1 and "" or "s",
    time_text(self.cpu_time_total))
end

-- Adds event i to a row. whole: no enclosing event is in the same row.
local function add(row, e, device, whole, call)
  row.self_cpu_time_total = row.self_cpu_time_total + e.self
  row.self_cpu_memory_usage = row.self_cpu_memory_usage + tonumber(e.self_bytes)
  row.self_device_time_total = row.self_device_time_total + e.device_self
  row.self_device_memory_usage = row.self_device_memory_usage + tonumber(e.device_self_bytes)
  if call then row.count = row.count + 1 end
  if not whole then return end
  row.cpu_time_total = row.cpu_time_total + e["end"] - e.begin
  row.cpu_memory_usage = row.cpu_memory_usage + tonumber(e.bytes)
  row.device_time_total = row.device_time_total + device
  row.device_memory_usage = row.device_memory_usage + tonumber(e.device_bytes)
end

local function new_row(key, kind)
  return setmetatable({
    key = key, kind = kind, count = 0,
    cpu_time_total = 0, self_cpu_time_total = 0, cpu_memory_usage = 0,
    self_cpu_memory_usage = 0, device_time_total = 0, self_device_time_total = 0,
    device_memory_usage = 0, self_device_memory_usage = 0,
  }, Row)
end

local function inside_same(at, keys, i)
  local up = parent_of(at, i)
  while up >= 0 do
    if keys[up] == keys[i] then return true end
    up = parent_of(at, up)
  end
  return false
end

-- The key of each event and, where rows are ops, the other fields that distinguish rows.
local function keys_of(recorded, by_shape, by_line, by)
  if by == "module" then return modules_of(recorded), {}, {} end
  if by == "line" then return lines_of(recorded), {}, {} end
  local keys, shapes, name = {}, {}, averages.namer(recorded)
  local lines = by_line and lines_of(recorded) or {}
  for i = 0, recorded.n - 1 do
    shapes[i] = by_shape and (averages.shapes(recorded, i) or "") or nil
    keys[i] = name(i)
    if recorded.at[i].kind >= RANGE then keys[i] = keys[i] .. "\0" .. averages.kind(recorded, i) end
    if by_shape or by_line then
      keys[i] = keys[i] .. "\0" .. (shapes[i] or "") .. "\0" .. (lines[i] or "")
    end
  end
  return keys, shapes, lines
end

--- Computes the rows of a profile.
function averages.of(prof, recorded, by_shape, by_line, by)
  local self = EventList(prof, by, by_shape, by_line)
  local at, rows, device = recorded.at, {}, device_totals(recorded)
  local keys, shapes, lines = keys_of(recorded, by_shape, by_line, by)
  for i = 0, recorded.n - 1 do
    local key = keys[i]
    if key then
      local row = rows[key]
      if not row then
        row = new_row(key:match "^[^%z]*", by == "op" and averages.kind(recorded, i) or by)
        row.input_shapes, row.line = shapes[i], lines[i]
        rows[key], self[#self + 1] = row, row
      end
      local whole = not inside_same(at, keys, i)
 -- a module's call; of a line the ops that it called
      local call = by == "op" or (by == "line" and whole) or at[i].kind == recorded.module
        or (whole and at[i].kind == GRADIENT)
      add(row, at[i], device[i], whole, call)
    end
  end
  for _, row in ipairs(self) do
    local n = math.max(row.count, 1)
    row.cpu_time, row.device_time = row.cpu_time_total / n, row.device_time_total / n
  end
  return self
end

-- ---- text ----

function time_text(us)
  if us < 999.95 then return format("%.1f us", us) end
  if us < 999950 then return format("%.3f ms", us / 1e3) end
  return format("%.3f s", us / 1e6)
end

local UNITS = {"KiB", "MiB", "GiB", "TiB"}

local function size_text(bytes)
  local at = 0
  while math.abs(bytes) >= 1024 and at < #UNITS do bytes, at = bytes / 1024, at + 1 end
  return at == 0 and format("%d B", bytes) or format("%.2f %s", bytes, UNITS[at])
end

local SORTS = {"self_cpu_time_total", "cpu_time_total", "cpu_time", "count", "cpu_memory_usage",
  "self_cpu_memory_usage", "device_time_total", "self_device_time_total", "device_time",
  "device_memory_usage", "self_device_memory_usage"}

local sorts = {}
for _, name in ipairs(SORTS) do
  sorts[name] = name
  sorts[name:gsub("device", "cuda")] = name -- PyTorch's other name
end

local HEADS = {op = "op", module = "module", line = "line"}

local function sum(rows, field)
  local total = 0
  for _, row in ipairs(rows) do total = total + row[field] end
  return total
end

-- The columns: heading and text function.
local function columns_of(self, width)
  local list, prof = {}, self.prof
  local function column(head, text, left)
    list[#list + 1] = {head = head, text = text, left = left}
  end
  local function time(field) return function(row) return time_text(row[field]) end end
  local function size(field) return function(row) return size_text(row[field]) end end
  local function share(field)
    local all = sum(self, field)
    return function(row) return format("%.1f%%", all > 0 and row[field] / all * 100 or 0) end
  end
  local function cut(text)
    return #text > width and text:sub(1, width - 3) .. "..." or text
  end
  local function times(what, cpu)
    column("self " .. what, time("self_" .. cpu .. "_time_total"))
    column("%", share("self_" .. cpu .. "_time_total"))
    column(what .. " total", time(cpu .. "_time_total"))
    column("per call", time(cpu .. "_time"))
  end
  local ops = {}
  for _, row in ipairs(self) do ops[row.key] = ops[row.key] or row.kind ~= "range" end
  column(HEADS[self.by], function(row)
    return cut(row.key) .. (row.kind == "range" and ops[row.key] and " (range)" or "")
  end, true)
  if self.by_shape then
    column("shapes", function(row) return cut(row.input_shapes) end, true)
  end
  if self.by_line then
    column("line", function(row) return row.line or "" end, true)
  end
  column("calls", function(row) return format("%d", row.count) end)
  if prof.activities.cpu then times("CPU", "cpu") end
  local gpu = sum(self, "self_device_time_total") > 0
  if gpu then times("CUDA", "device") end
  if prof.profile_memory then
    column("memory", size("cpu_memory_usage"))
    column("self memory", size("self_cpu_memory_usage"))
    if gpu then
      column("CUDA memory", size("device_memory_usage"))
      column("self CUDA memory", size("self_device_memory_usage"))
    end
  end
  return list
end

-- The lines below the rows.
local function foot(self, shown)
  local prof, parts = self.prof, {}
  parts[1] = ("self CPU in all %s, in %s"):format(time_text(sum(self, "self_cpu_time_total")),
    time_text(prof.time))
  local gpu = sum(self, "self_device_time_total")
  if gpu > 0 then parts[#parts + 1] = time_text(gpu) .. " on the GPU" end
  if prof.profile_memory then
    parts[#parts + 1] = "at most " .. size_text(prof.peak_bytes) .. " live"
  end
  if shown < #self then parts[#parts + 1] = ("%d of %d rows"):format(shown, #self) end
  if prof.dropped > 0 then
    parts[#parts + 1] = ("%d events dropped (max_events)"):format(prof.dropped)
  end
  return table.concat(parts, "; ")
end

local function laid_out(columns, rows)
  local lines, widths = {}, {}
  local cells = {{}}
  for k, column in ipairs(columns) do cells[1][k] = column.head end
  for i, row in ipairs(rows) do
    cells[i + 1] = {}
    for k, column in ipairs(columns) do cells[i + 1][k] = column.text(row) end
  end
  for k in ipairs(columns) do
    widths[k] = 0
    for _, line in ipairs(cells) do widths[k] = math.max(widths[k], #line[k]) end
  end
  for i, line in ipairs(cells) do
    for k, column in ipairs(columns) do
      local space = (" "):rep(widths[k] - #line[k])
      line[k] = column.left and line[k] .. space or space .. line[k]
    end
    lines[i] = table.concat(line, "  "):gsub(" +$", "")
  end
  return table.concat(lines, "\n")
end

local parse_table = define.signature("table", {
  {"string", "sort_by", "a field of the rows; default: by the first call",
   optional = true},
  {"int", "row_limit", "the maximal number of rows; -1: all", default = 100},
  {"string", "header", "a line above", optional = true},
  {"int", "max_name_column_width", "longer names are cut", default = 55},
})

--- The rows as text. Self times have a column with their share of the sum; totals have a column
-- with the time of one call.
-- @param sort_by    a field of the rows, such as "cpu_time_total"; default: by the first call
-- @param row_limit  the maximal number of rows (default 100); -1: all
-- @param header     a line above; optional
-- @param max_name_column_width  longer names are cut (default 55)
function EventList:table(...)
  local sort_by, row_limit, header, width = parse_table(...)
  local rows = {}
  for i, row in ipairs(self) do rows[i] = row end
  if sort_by then
    local field = sorts[sort_by]
    if not field then
      errors.argument("table", "sort_by", ("one of %s is needed, got '%s'%s"):format(
        table.concat(SORTS, ", "), sort_by, errors.nearest(sort_by, SORTS)), "E_DOMAIN")
    end
    for i, row in ipairs(rows) do row.place = i end
    table.sort(rows, function(a, b)
      if a[field] ~= b[field] then return a[field] > b[field] end
      return a.place < b.place
    end)
  end
  for i = #rows, row_limit < 0 and #rows + 1 or row_limit + 1, -1 do rows[i] = nil end
  local text = laid_out(columns_of(self, math.max(width, 8)), rows)
  return (header and header .. "\n" or "") .. text .. "\n" .. foot(self, #rows)
end

define.takes(EventList.table, parse_table)

function EventList:__tostring() return (self:table()) end

class.guard(EventList, "averages")

--- A nil field: rows return nil, a string raises as a misspelled name.
function EventList:__index(name)
  if type(name) ~= "string" or name:sub(1, 1) == "_" then return nil end
  errors.raise(("an EventList has no '%s'%s"):format(name,
    errors.nearest(name, class.methods(self))))
end

return averages
