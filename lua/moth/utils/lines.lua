--- lines.lua -- a text file to which whole lines are added: for loggers.
--
-- Lines are collected and written by one call of the system, so that a crash leaves whole lines.
-- An existing file is continued; a last line without an end is removed. After a fork the child
-- writes to a file of its own, whose name has the process id.

local bytes = require "moth.io.bytes"
local class = require "moth.base.class"
local errors = require "moth.error"
local machine = require "moth.base.machine"

local Lines = class("Lines")

--- The content of a file; nil if there is none.
function Lines.content(path)
  local file = io.open(path, "rb")
  if not file then return nil end
  local text = file:read "*a"
  file:close()
  return text
end

local function open(self)
  local file, problem = io.open(self.path, "ab")
  if not file then
    errors.raise(("%s: the file cannot be written: %s"):format(self.fname, problem), "E_IO")
  end
  file:setvbuf "no"
  self.file, self.process = file, machine.process()
end

--- Opens a file.
-- @param path        the file; its folder exists
-- @param max_queue   the number of lines that are collected before they are written
-- @param flush_secs  seconds after which the next line writes all
-- @param fname       the function that errors name
-- @param keep        function(text) returns the lines of an existing file that are kept; optional
function Lines:init(path, max_queue, flush_secs, fname, keep)
  self.path, self.max_queue, self.flush_secs, self.fname = path, max_queue, flush_secs, fname
  self.list, self.flushed = {}, machine.time()
  local before = Lines.content(path)
  if before and before ~= "" then
    local kept = before:match("^(.*\n)") or ""
    if keep then kept = keep(kept) end
    if kept ~= before then bytes.save(path, {kept}, fname, false) end
  end
  open(self)
  self.guard = newproxy(true) -- writes what is left at the end of the program
  getmetatable(self.guard).__gc = function()
    if self.file and machine.process() == self.process then
      pcall(function()
        open(self) -- the collector may have closed the file before
        if self.before_end then self.before_end() end
        self:flush()
        self.file:close()
      end)
    end
  end
end

-- In a child process: drops the parent's lines.
local function after_fork(self)
  local folder, name, ending = self.path:match "^(.-)([^/\\]-)(%.[^./\\]*)$"
  self.path = ("%s%s.%d%s"):format(folder, name, machine.process(), ending)
  self.list = {}
  open(self)
end

--- Adds a line, without its end.
-- @return true if the process is a child and the line is the first of its file
function Lines:add(text)
  local forked = machine.process() ~= self.process
  if forked then after_fork(self) end
  self.list[#self.list + 1] = text
  if #self.list >= self.max_queue or machine.time() - self.flushed > self.flush_secs then
    self:flush()
  end
  return forked
end

--- Writes the collected lines.
function Lines:flush()
  self.flushed = machine.time()
  if #self.list == 0 or machine.process() ~= self.process then return end
  local done, problem = self.file:write(table.concat(self.list, "\n"), "\n")
  if not done then
    errors.raise(("%s: %s: %s"):format(self.fname, errors.path(self.path), problem), "E_IO")
  end
  self.list = {}
end

--- Replaces the whole file by f(its content), all or nothing.
function Lines:rewrite(f)
  self:flush()
  bytes.save(self.path, {f(Lines.content(self.path) or "")}, self.fname, false)
  self.file:close()
  open(self)
end

function Lines:close()
  self:flush()
  if self.file then self.file:close() end
  self.file = nil
end

return Lines
