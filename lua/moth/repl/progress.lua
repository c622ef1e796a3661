--- progress.lua -- moth.progress: a progress bar on stderr for the loops of `for`.
--
--     local bar = moth.progress(loader, {desc = "epoch 1"})
--     for input, target in bar do
--       ...
--       bar:set{loss = loss:item()}
--     end
--
--     epoch 1  45% |#########           | 422/938 [00:05<00:06, 5120 images/s] loss 0.5312
--
-- On a terminal one line is redrawn, at most ten times a second; else a line is written at most
-- every ten seconds, and one at the end.

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
})

-- ---- the terminal ----

local now = lib.C.moth_seconds

local function is_terminal()
  local found, answer = pcall(machine.is_terminal, 2)
  return found and answer and os.getenv("TERM") ~= "dumb"
end

local function columns()
  return math.max(tonumber(os.getenv("COLUMNS")) or 100, 40)
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
-- tensors
-- of two dimensions or more, else "it")
-- @param every   seconds between two lines when not on a terminal (default 10)
-- @param out     a file to write to (default io.stderr)
function Progress:init(source, desc, total, unit, every, out)
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
  self.out = out or io.stderr
  self.live = out == nil and is_terminal()
  self.names, self.values = {}, {}
  self:restart()
end

function Progress:restart()
  self.step, self.count, self.start = 0, 0, now()
  self.drawn, self.width, self.ended = self.start, 0, false
  self.next = nil
end

-- ---- drawing ----

local function clock(seconds)
  if seconds ~= seconds or seconds > 3.6e6 then return "?" end
  seconds = math.floor(seconds + 0.5)
  local hours = math.floor(seconds / 3600)
  local rest = ("%02d:%02d"):format(math.floor(seconds / 60) % 60, seconds % 60)
  return hours > 0 and hours .. ":" .. rest or rest
end

local function rate_text(rate)
  if rate ~= rate or rate == math.huge then return "?" end
  if rate >= 100 then return ("%d"):format(rate) end
  return ("%.3g"):format(rate)
end

local function value_text(value)
  if type(value) == "number" and value ~= math.floor(value) then return ("%.4g"):format(value) end
  return tostring(value)
end

-- "422/938 [00:05<00:06, 5120 samples/s] loss 0.5312"
local function facts(self)
  local elapsed = now() - self.start
  local parts = {self.total and self.step .. "/" .. self.total or tostring(self.step)}
  local left = self.total and self.step > 0
    and "<" .. clock(elapsed / self.step * (self.total - self.step)) or ""
  if self.ended then left = "" end
  parts[2] = (" [%s%s, %s %s/s]"):format(clock(elapsed), left, rate_text(self.count / elapsed),
    self.unit or "it")
  for _, name in ipairs(self.names) do
    parts[#parts + 1] = " " .. name .. " " .. value_text(self.values[name])
  end
  return table.concat(parts)
end

local function text(self, bar)
  local head = self.desc ~= "" and self.desc .. "  " or ""
  local tail = facts(self)
  if not self.total or self.total == 0 then return head .. tail end
  local share = math.min(self.step / self.total, 1)
  head = head .. ("%3d%% "):format(math.floor(share * 100))
  local room = math.min(bar and columns() - #head - #tail - 4 or 0, 30)
  if room < 5 then return head .. tail end
  local full = math.floor(share * room)
  return head .. "|" .. ("#"):rep(full) .. (" "):rep(room - full) .. "| " .. tail
end

local function draw(self)
  self.drawn = now()
  if self.live then
    local line = text(self, true):sub(1, columns() - 1)
    self.out:write("\r", line, (" "):rep(self.width - #line), self.ended and "\n" or "")
    self.width = #line
  else
    self.out:write(text(self, false), "\n")
  end
  self.out:flush()
end

--- Shows values after the bar: `bar:set{loss = 0.53, acc = "81 %"}`.
function Progress:set(values)
  local fresh = {}
  for name, value in pairs(values) do
    if self.values[name] == nil then fresh[#fresh + 1] = name end
    self.values[name] = value
  end
  table.sort(fresh)
  for _, name in ipairs(fresh) do self.names[#self.names + 1] = name end
end

--- Writes a line above the bar.
function Progress:print(...)
  local parts = {}
  for i = 1, select("#", ...) do parts[i] = tostring((select(i, ...))) end
  local line = table.concat(parts, "\t")
  if self.live and self.width > 0 and not self.ended then
    self.out:write("\r", line, (" "):rep(self.width - #line), "\n")
    draw(self)
  else
    self.out:write(line, "\n")
  end
end

--- Ends the bar before its source does, as after `break`.
function Progress:close()
  if self.ended or self.step == 0 then return end
  self.ended = true
  draw(self)
end

-- ---- iteration ----

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
    if now() - self.drawn > (self.live and 0.1 or self.every) then draw(self) end
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
