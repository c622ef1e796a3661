--- progress.lua -- moth.progress: a progress bar on stderr for the loops of `for`, as tqdm.
--
--     local bar = moth.progress(loader, {desc = "epoch 1"})
--     for input, target in bar do
--       ...
--       bar:set_postfix{loss = loss}
--     end
--
--     epoch 1:  45%|██████████▍            | 422/938 [00:05<00:06, 5120 samples/s, loss=0.5312]
--
-- On a terminal one line is redrawn, at most ten times a second; else, as in a log, a line without
-- the bar is written at most every ten seconds, and one at the end.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local machine = require "moth.base.machine"

local Progress = class("Progress")

Progress.signature = define.signature("progress", {
  {"any", "source", "a DataLoader, a list, a number of steps, or an iterator function"},
  {"string", "desc", "a text before the bar", default = ""},
  {"int", "total", "the number of steps; default: the length of the source", optional = true},
  {"string", "unit", "the unit of the count; 'it' counts steps", optional = true},
  {"float", "every", "seconds between two lines when not on a terminal", default = 10},
  {"any", "out", "a file to write to instead of stderr", optional = true},
  {"bool", "leave", "leave the last line on the terminal? default: true at position 1",
   optional = true},
  {"bool", "disable", "true: write nothing", default = false},
  {"float", "mininterval", "seconds between two redraws on a terminal", default = 0.1},
  {"bool", "ascii", "draw the bar with '#'? default: unless the locale is UTF-8", optional = true},
  {"int", "ncols", "the width of the line; default: of the terminal", optional = true},
  {"int", "initial", "the steps done before", default = 0},
  {"int", "position", "the line on the terminal, from 1: for a bar inside the loop of another",
   default = 1},
})

-- ---- the terminal ----

local now = lib.C.moth_seconds

local function is_terminal()
  local found, answer = pcall(machine.is_terminal, 2)
  return found and answer and os.getenv("TERM") ~= "dumb"
end

local function columns(self)
  return self.ncols or math.max(machine.columns(2) or 100, 20)
end

-- The number of characters of a UTF-8 text.
local function width_of(text)
  local _, n = text:gsub("[^\128-\191]", "")
  return n
end

-- ---- the source ----

local function length_of(source)
  if type(source) == "number" then return math.floor(source) end
  local found, n = pcall(function()
    if type(source) ~= "table" then return nil end
    if getmetatable(source) == nil then return #source end
    return source:len()
  end)
  return found and n or nil
end

-- A function that returns the next values, for each kind of source.
local function walker(source)
  if type(source) == "function" then
    local last
    local function keep(first, ...)
      last = first
      return first, ...
    end
    return function() return keep(source(nil, last)) end
  elseif type(source) == "number" then
    local i = 0
    return function()
      i = i + 1
      return i <= source and i or nil
    end
  elseif getmetatable(source) == nil then
    local i = 0
    return function()
      i = i + 1
      return source[i]
    end
  end
  return source:iter()
end

--- A bar over a source; see the top of this file.
-- @param source  a DataLoader (or anything with :iter()), a list, a number of steps, or a function
-- @param desc    a text before the bar
-- @param total   the number of steps (default: the length of the source)
-- @param unit    the unit of the count (default "samples" for the batches of a DataLoader and for
-- tensors of two dimensions or more, else "it")
-- @param every   seconds between two lines when not on a terminal (default 10)
-- @param out     a file to write to (default io.stderr)
-- @param leave   leave the last line on the terminal? (default: true at position 1)
-- @param disable      true: write nothing
-- @param mininterval  seconds between two redraws on a terminal (default 0.1)
-- @param ascii   draw the bar with '#'? (default: unless the locale is UTF-8)
-- @param ncols   the width of the line (default: of the terminal)
-- @param initial the steps done before, which do not count for the rate (default 0)
-- @param position  the line on the terminal, from 1: 2 for a bar inside the loop of another
function Progress:init(source, desc, total, unit, every, out, leave, disable, mininterval, ascii,
                       ncols, initial, position)
  local walkable = type(source) == "number" or type(source) == "function"
    or (type(source) == "table" and (getmetatable(source) == nil or source.iter))
  if not walkable then
    errors.refuse("progress", "source", "a DataLoader, a list, a number or a function is needed",
      source, "E_TYPE")
  end
  self.source, self.desc, self.unit, self.every = source, desc, unit, every
  self.total = total or length_of(source)
  -- true if a DataLoader returns batches; nil for another source
  if type(source) == "table" and class.typename(source) == "DataLoader" then
    self.batched = source.batched
  end
  self.out, self.disable = out or io.stderr, disable
  self.live = out == nil and is_terminal()
  self.interval = mininterval
  self.position, self.leave = position, leave
  if leave == nil then self.leave = position == 1 end
  self.ascii = ascii
  if ascii == nil then self.ascii = not machine.is_utf8() end
  self.ncols, self.initial = ncols, initial
  self.names, self.values = {}, {}
  self:restart()
end

function Progress:restart()
  self.step, self.count, self.start = self.initial, 0, now()
  self.drawn, self.width, self.ended = self.start, 0, false
  self.read = -1 -- the time when tensors were last read
  self.last_step, self.last_count = self.step, 0
  self.seconds, self.steps, self.counts = 0, 0, 0 -- moving sums
  self.next = nil
end

-- ---- drawing ----

local SMOOTHING = 0.3 -- the share of the last interval in the rate, as tqdm's

-- Updates the moving sums by what happened since the last line.
local function measure(self, time)
  local keep = 1 - SMOOTHING
  self.seconds = keep * self.seconds + SMOOTHING * (time - self.drawn)
  self.steps = keep * self.steps + SMOOTHING * (self.step - self.last_step)
  self.counts = keep * self.counts + SMOOTHING * (self.count - self.last_count)
  self.last_step, self.last_count = self.step, self.count
end

local function clock(seconds)
  if seconds ~= seconds or seconds > 3.6e6 then return "?" end
  seconds = math.floor(seconds + 0.5)
  local hours = math.floor(seconds / 3600)
  local rest = ("%02d:%02d"):format(math.floor(seconds / 60) % 60, seconds % 60)
  return hours > 0 and hours .. ":" .. rest or rest
end

local function rate_text(rate, unit)
  if rate ~= rate or rate == math.huge or rate <= 0 then return "? " .. unit .. "/s" end
  if rate < 1 then return ("%.3g s/%s"):format(1 / rate, unit:gsub("samples", "sample")) end
  if rate >= 100 then return ("%d %s/s"):format(rate, unit) end
  return ("%.3g %s/s"):format(rate, unit)
end

local function value_text(value)
  if type(value) == "number" and value ~= math.floor(value) then return ("%.4g"):format(value) end
  return tostring(value)
end

-- "422/938 [00:05<00:06, 5120 samples/s, loss=0.5312]"
local function facts(self)
  local elapsed = now() - self.start
  local parts = {self.total and self.step .. "/" .. self.total or tostring(self.step)}
  local rate, left = self.counts / self.seconds, ""
  if self.ended then
    rate = self.count / elapsed
  elseif self.total and self.step > self.initial then
    left = "<" .. clock(self.seconds / self.steps * (self.total - self.step))
  end
  parts[2] = (" [%s%s, %s"):format(clock(elapsed), left, rate_text(rate, self.unit or "it"))
  for _, name in ipairs(self.names) do
    parts[#parts + 1] = ", " .. name .. "=" .. value_text(self.values[name])
  end
  parts[#parts + 1] = "]"
  return table.concat(parts)
end

local EIGHTHS = {[0] = " ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}
local WIDEST, NARROWEST = 40, 5 -- columns of the bar

local function bar_text(share, room, ascii)
  local full = math.floor(share * room)
  if ascii then return ("#"):rep(full) .. (" "):rep(room - full) end
  if full == room then return ("█"):rep(room) end
  return ("█"):rep(full) .. EIGHTHS[math.floor((share * room - full) * 8)]
    .. (" "):rep(room - full - 1)
end

local function text(self, bar)
  local head = self.desc ~= "" and self.desc .. ": " or ""
  local tail = facts(self)
  if not self.total or self.total == 0 then return head .. tail end
  local share = math.min(self.step / self.total, 1)
  head = head .. ("%3d%%"):format(math.floor(share * 100))
  local room = math.min(bar and columns(self) - width_of(head) - width_of(tail) - 4 or 0, WIDEST)
  if room < NARROWEST then return head .. " " .. tail end
  return head .. "|" .. bar_text(share, room, self.ascii) .. "| " .. tail
end

-- The first n characters of a UTF-8 text.
local function cut(line, n)
  if #line <= n or width_of(line) <= n then return line end
  local at = 1
  for _ = 1, n do at = line:find("[^\128-\191]", at + 1) end
  return line:sub(1, at - 1)
end

-- Writes a line over the bar's line on the terminal.
local function overwrite(self, line)
  local width, down = width_of(line), self.position - 1
  self.out:write(("\n"):rep(down), "\r", line, (" "):rep(self.width - width),
    ("\27[A"):rep(down))
  self.width = width
end

local function draw(self)
  local time = now()
  measure(self, time)
  self.drawn = time
  if self.disable then return end
  if not self.live then
    self.out:write(text(self, false), "\n")
  elseif self.ended and not self.leave then
    overwrite(self, "")
    self.out:write "\r"
  else
    overwrite(self, cut(text(self, true), columns(self) - 1))
    if self.ended then self.out:write "\n" end
  end
  self.out:flush()
end

-- ---- values and texts ----

local READ_EVERY = 0.1 -- seconds between two reads of a tensor: the line is not redrawn more often

--- Shows values behind the rate: `bar:set_postfix{loss = loss, acc = "81 %"}`. A tensor of one
-- element is read at most ten times a second, since reading waits for a GPU.
-- @param values  name -> value
function Progress:set_postfix(values)
  local time, fresh = now(), nil
  local due = time - self.read >= READ_EVERY
  for name, value in pairs(values) do
    if lib.istensor(value) then
      if due or self.values[name] == nil then
        self.read, value = time, value:item()
      else
        value = self.values[name]
      end
    end
    if self.values[name] == nil then
      fresh = fresh or {}
      fresh[#fresh + 1] = name
    end
    self.values[name] = value
  end
  if not fresh then return end
  table.sort(fresh)
  for _, name in ipairs(fresh) do self.names[#self.names + 1] = name end
end

--- Another name of set_postfix.
Progress.set = Progress.set_postfix

--- Changes the text before the bar.
function Progress:set_description(desc) self.desc = desc end

--- Writes a line above the bar; values are separated by tabs, as `print` does.
function Progress:write(...)
  local parts = {}
  for i = 1, select("#", ...) do parts[i] = tostring((select(i, ...))) end
  local line = table.concat(parts, "\t")
  if self.live and self.width > 0 and not self.ended then
    self.out:write("\r", line, (" "):rep(self.width - width_of(line)), "\n")
    self.width = 0
    draw(self)
  else
    self.out:write(line, "\n")
  end
end

--- Another name of write.
Progress.print = Progress.write

--- Draws the line now.
function Progress:refresh() draw(self) end

--- Ends the bar before its source does, as after `break`.
function Progress:close()
  if self.ended or self.step == self.initial then return end
  self.ended = true
  draw(self)
end

-- ---- counting ----

local function draw_if_due(self)
  if now() - self.drawn > (self.live and self.interval or self.every) then draw(self) end
end

--- Counts steps that the program does itself: `local bar = moth.progress(100)`, then
-- `bar:update(5)` after each 5 steps, and `bar:close()`.
-- @param n  the number of steps (default 1)
function Progress:update(n)
  n = n or 1
  self.step, self.count = self.step + n, self.count + n
  draw_if_due(self)
end

-- Counts the finished step: the samples of the last batch.
local function count(self, last)
  self.step = self.step + 1
  local n = 1
  local least = self.batched and 1 or 2 -- a vector may be one sample: the tokens of a text
  if self.batched ~= false and lib.istensor(last) and last:dim() >= least then
    n = last:size(1)
    self.unit = self.unit or "samples"
  end
  self.count = self.count + (self.unit ~= nil and self.unit ~= "it" and n or 1)
end

local function advance(self, first, ...)
  if first == nil then
    self.ended = true
    draw(self)
    self.next = nil
  end
  return first, ...
end

function Progress:__call(_, last)
  if last == nil then
    self:restart()
    self.next = walker(self.source)
    if self.live then draw(self) end
  else
    count(self, last)
    draw_if_due(self)
  end
  return advance(self, self.next())
end

--- The bar as an iterator: `for input, target in bar:iter() do`.
function Progress:iter()
  local last, over
  local function keep(first, ...)
    last, over = first, first == nil
    return first, ...
  end
  return function()
    if over then return nil end
    return keep(self(nil, last))
  end
end

return Progress
