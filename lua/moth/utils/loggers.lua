--- loggers.lua -- moth.utils.CSVLogger and moth.utils.JSONLogger: SummaryWriter's calls, written as
-- text.
--
--     local logger = moth.utils.CSVLogger("runs/first")
--     logger:add_scalar("loss/train", 0.5, step)       runs/first/metrics.csv
--
-- The numbers of one step are one row. CSVLogger writes a table with a column for each name;
-- JSONLogger writes an object a line.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local json = require "moth.json"
local lib = require "moth.binding.lib"
local Lines = require "moth.utils.lines"
local machine = require "moth.base.machine"

local loggers = {}

local function summaries() return require "moth.utils.tensorboard.summaries" end

-- ---- numbers as text ----

-- The shortest text that is read as the same number.
local function shortest(x)
  for _, form in ipairs {"%.15g", "%.16g"} do
    local text = form:format(x)
    if tonumber(text) == x then return text end
  end
  return ("%.17g"):format(x)
end

local function csv_number(x)
  if x ~= x then return "nan" end
  if x == math.huge then return "inf" end
  return x == -math.huge and "-inf" or shortest(x)
end

-- JSON has no NaN and no infinity.
local function json_value(x)
  if type(x) == "number" then return x - x == 0 and shortest(x) or "null" end
  if type(x) == "boolean" then return tostring(x) end
  if json.bad_utf8(x) then x = x:gsub("[\128-\255]", "?") end
  return json.string(x)
end

-- An object of the keys in a list.
local function json_object(keys, values)
  local parts = {}
  for i, key in ipairs(keys) do parts[i] = json_value(key) .. ": " .. json_value(values[key]) end
  return "{" .. table.concat(parts, ", ") .. "}"
end

-- ---- methods of both loggers ----

local Logger = class("Logger")

local function arguments(name)
  return define.signature(name, {
    {"string", "log_dir", "folder of the run; default: runs/, the date and the computer's name",
     optional = true},
    {"string", "comment", "the end of the default folder's name", default = ""},
    {"int", "purge_step", "removes the rows of this step and later from existing files",
     optional = true},
    {"int", "max_queue", "the number of rows that are collected before they are written",
     default = 10},
    {"float", "flush_secs", "the first row after this many seconds writes all", default = 120},
  })
end

function Logger:init(fname, log_dir, comment, purge_step, max_queue, flush_secs)
  self.log_dir = log_dir and log_dir ~= "" and log_dir
    or "runs/" .. os.date("%b%d_%H-%M-%S") .. "_" .. machine.host() .. comment
  self.fname, self.purge_step = fname, purge_step
  self.max_queue, self.flush_secs = max_queue, flush_secs
  machine.make_folders(self.log_dir)
  self.names, self.values = {}, {} -- the row of the current step
end

-- Writes the current row.
local function emit(self)
  if #self.names == 0 then return end
  local names, values = self.names, self.values
  self.names, self.values = {}, {}
  self:_row(names, values, self.step, self.time)
end

-- At the end of the program the row of the current step is written.
local function last_row_to(self, lines)
  lines.before_end = function() emit(self) end
  return lines
end

-- Opens one of the logger's files; `step_of` returns the step of a line.
local function lines_of(self, name, step_of)
  local from = self.purge_step
  return Lines(self.log_dir .. "/" .. name, self.max_queue, self.flush_secs, self.fname,
    from and function(text)
      return (text:gsub("[^\n]*\n", function(line)
        local step = step_of(line)
        return step and step >= from and "" or nil
      end))
    end)
end

local function json_step(line)
  local object = json.decode(line)
  return type(object) == "table" and tonumber(object.step) or nil
end

local function put(self, name, value, step, walltime)
  if #self.names > 0 and (self.step ~= step or self.values[name] ~= nil) then emit(self) end
  if #self.names == 0 then self.step, self.time = step, walltime or machine.time() end
  self.names[#self.names + 1], self.values[name] = name, value
end

-- An object as a line: step and wall_time, then the given text of other fields.
local function json_line(step, time, rest)
  return ("{%s\"wall_time\": %s, %s}"):format(
    step and ("\"step\": %s, "):format(shortest(step)) or "", ("%.6f"):format(time), rest)
end

local function note(self, step, walltime, rest)
  self:_notes():add(json_line(step, walltime or machine.time(), rest))
end

local STEP = {"int", "global_step", "step of the training", optional = true}
local TIME = {"float", "walltime", "seconds since 1970; default: now", optional = true}
local TAG = {"string", "tag", "name of the series"}

local parse_scalar = define.signature("add_scalar", {
  TAG, {"any", "scalar_value", "a number, or a tensor of one element"}, STEP, TIME,
})

--- Adds one number to the row of its step.
-- @param tag           name of the series
-- @param scalar_value  a number, or a tensor of one element
-- @param global_step   step of the training
-- @param walltime      seconds since 1970 (default: now)
function Logger:add_scalar(...)
  local tag, value, step, walltime = parse_scalar(...)
  if type(value) ~= "number" then
    value = summaries().number(value, "add_scalar", "scalar_value")
  end
  put(self, tag, value, step, walltime)
end
define.takes(Logger.add_scalar, parse_scalar)

local parse_scalars = define.signature("add_scalars", {
  {"string", "main_tag", "name of the group"},
  {"map", "tag_scalar_dict", "name -> number, or tensor of one element"}, STEP, TIME,
})

--- Adds numbers to the row of their step, with the names main_tag/name.
-- @param main_tag         name of the group
-- @param tag_scalar_dict  name -> number, or tensor of one element
-- @param global_step      step of the training
-- @param walltime         seconds since 1970 (default: now)
function Logger:add_scalars(...)
  local main_tag, map, step, walltime = parse_scalars(...)
  local names, values = summaries().plain_map(map, "add_scalars", "tag_scalar_dict")
  for _, name in ipairs(names) do
    local value = summaries().number(values[name], "add_scalars", "tag_scalar_dict")
    put(self, main_tag .. "/" .. name, value, step, walltime)
  end
end
define.takes(Logger.add_scalars, parse_scalars)

local parse_text = define.signature("add_text", {TAG, {"string", "text_string", "the text"}, STEP,
  TIME})

--- Adds a text, as a line {"tag": ..., "text": ...}.
-- @param tag          name of the series
-- @param text_string  the text
-- @param global_step  step of the training
-- @param walltime     seconds since 1970 (default: now)
function Logger:add_text(...)
  local tag, text, step, walltime = parse_text(...)
  note(self, step, walltime, ("\"tag\": %s, \"text\": %s"):format(json_value(tag),
    json_value(text)))
end
define.takes(Logger.add_text, parse_text)

local parse_hparams = define.signature("add_hparams", {
  {"map", "hparam_dict", "name -> number, string or boolean"},
  {"map", "metric_dict", "name -> number"},
  {"map", "hparam_domain_discrete", "not written", optional = true},
  {"string", "run_name", "a name for the line", optional = true}, STEP,
})

--- Adds hyperparameters and results, as a line {"hparams": {...}, "metrics": {...}}.
-- @param hparam_dict  name -> number, string or boolean
-- @param metric_dict  name -> number, or tensor of one element: the results
-- @param hparam_domain_discrete  not written
-- @param run_name     a name for the line
-- @param global_step  step of the training
function Logger:add_hparams(...)
  local hparams, metrics, _, run_name, step = parse_hparams(...)
  local plain = summaries().plain_map
  note(self, step, nil, ("%s\"hparams\": %s, \"metrics\": %s"):format(
    run_name and ("\"run\": %s, "):format(json_value(run_name)) or "",
    json_object(plain(hparams, "add_hparams", "hparam_dict")),
    json_object(plain(metrics, "add_hparams", "metric_dict"))))
end
define.takes(Logger.add_hparams, parse_hparams)

local parse_histogram = define.signature("add_histogram", {
  TAG, {"any", "values", "a tensor of any shape, or a list of numbers"}, STEP,
  {"any", "bins", "not used", optional = true}, TIME,
  {"int", "max_bins", "not used", optional = true},
})

local MOMENTS = {"min", "max", "num", "sum", "sum_squares"}

--- Adds the extremes, the count and the sums of a tensor, as a line {"tag": ..., "histogram":
-- {"min": ..., "max": ..., "num": ..., "sum": ..., "sum_squares": ...}}.
-- @param tag          name of the series
-- @param values       a tensor of any shape, or a list of numbers
-- @param global_step  step of the training
-- @param bins         not used
-- @param walltime     seconds since 1970 (default: now)
-- @param max_bins     not used
function Logger:add_histogram(...)
  local tag, values, step, _, walltime = parse_histogram(...)
  local moments = require("moth.utils.tensorboard.histogram").of(values, 1)
  note(self, step, walltime, ("\"tag\": %s, \"histogram\": %s"):format(json_value(tag),
    json_object(MOMENTS, moments)))
end
define.takes(Logger.add_histogram, parse_histogram)

-- Calls for pictures, sounds and curves do nothing.
for _, name in ipairs {"add_image", "add_images", "add_image_with_boxes",
  "add_audio", "add_figure", "add_graph",
  "add_embedding", "add_pr_curve", "add_pr_curve_raw", "add_histogram_raw",
  "add_custom_scalars"} do
  Logger[name] = function() end
end

--- The folder of the run.
function Logger:get_logdir() return self.log_dir end

--- Writes all rows that were added, also that of the current step.
function Logger:flush()
  emit(self)
  if self.metrics then self.metrics:flush() end
  if self.notes then self.notes:flush() end
end

--- Writes all rows and closes the files.
function Logger:close()
  self:flush()
  if self.metrics then self.metrics:close() end
  if self.notes then self.notes:close() end
  self.metrics, self.notes = nil, nil
end

--- Calls f(logger, ...), then closes the logger, also after an error. Returns f's results.
function Logger:with(f, ...)
  local results = lib.pack(pcall(f, self, ...))
  self:close()
  if not results[1] then error(results[2], 0) end
  return unpack(results, 2, results.n)
end

function Logger:__tostring() return ("%s of %s"):format(class.typename(self), self.log_dir) end

-- ---- JSON ----

local JSONLogger = class("JSONLogger", Logger)
loggers.JSONLogger = JSONLogger

JSONLogger.signature = arguments "JSONLogger"

function JSONLogger:_notes()
  self.metrics = self.metrics
    or last_row_to(self, lines_of(self, "metrics.jsonl", json_step))
  return self.metrics
end

--- Writes numbers, texts and hyperparameters of a run to metrics.jsonl in its folder, an object a
-- line: {"step": 1, "wall_time": 1767225600.5, "loss": 0.5, "acc": 0.9}. NaN and infinite numbers
-- are null. Pictures, sounds, graphs and curves are ignored. An existing file is continued.
-- @param log_dir     folder of the run (default: runs/, the date and the computer's name)
-- @param comment     the end of the default folder's name
-- @param purge_step  removes the rows of this step and later from an existing file
-- @param max_queue   the number of rows that are collected before they are written (default 10)
-- @param flush_secs  the first row after this many seconds writes all (default 120)
function JSONLogger:init(...)
  Logger.init(self, "JSONLogger", ...)
  self:_notes()
end

function JSONLogger:_row(names, values, step, time)
  local parts = {}
  for i, name in ipairs(names) do
    parts[i] = json_value(name) .. ": " .. json_value(values[name])
  end
  self:_notes():add(json_line(step, time, table.concat(parts, ", ")))
end

-- ---- CSV ----

local CSVLogger = class("CSVLogger", Logger)
loggers.CSVLogger = CSVLogger

CSVLogger.signature = arguments "CSVLogger"

local function csv_text(text)
  text = text:gsub("[\r\n]", " ")
  if not text:find '[",]' then return text end
  return '"' .. text:gsub('"', '""') .. '"'
end

local function csv_step(line) return tonumber(line:match "^[^,]*") end

-- The names in the first line of a table that this logger wrote.
local function columns_of(header)
  local list, at = {}, 1
  while at <= #header do
    local text, after = header:match("^([^,]*)()", at)
    if header:sub(at, at) == '"' then
      local stop = at
      repeat stop = header:find('"', stop + 1, true) or #header + 1
        local doubled = header:sub(stop + 1, stop + 1) == '"'
        if doubled then stop = stop + 1 end
      until not doubled
      text, after = header:sub(at + 1, stop - 1):gsub('""', '"'), stop + 1
    end
    list[#list + 1] = text
    at = after + 1
  end
  return list
end

function CSVLogger:_notes()
  self.notes = self.notes or lines_of(self, "notes.jsonl", json_step)
  return self.notes
end

local function open_csv(self)
  self.metrics = last_row_to(self, lines_of(self, "metrics.csv", csv_step))
  local before = Lines.content(self.metrics.path)
  self.columns = columns_of(before:match "^([^\n]*)\n" or "")
  self.known = {}
  for _, name in ipairs(self.columns) do self.known[name] = true end
end

local function header_of(columns)
  local cells = {}
  for i, name in ipairs(columns) do cells[i] = csv_text(name) end
  return table.concat(cells, ",")
end

-- Adds columns for the names that have none. The rows before get empty cells.
local function add_columns(self, names)
  local columns, first = self.columns, #self.columns == 0
  if first then columns[1], columns[2] = "step", "wall_time" end
  local before = #columns
  for _, name in ipairs(names) do
    if not self.known[name] then
      columns[#columns + 1], self.known[name] = name, true
    end
  end
  if first then
    self.metrics:add(header_of(columns))
  elseif #columns > before then
    local empty = (","):rep(#columns - before) .. "\n"
    self.metrics:rewrite(function(text)
      local rows = text:gsub("^[^\n]*\n", ""):gsub("\n", empty)
      return header_of(columns) .. "\n" .. rows
    end)
  end
end

--- Writes the numbers of a run to metrics.csv in its folder: the columns step, wall_time and one
-- for each name, a row for each step. Texts, hyperparameters and the extremes of histograms are
-- lines of notes.jsonl. Pictures, sounds, graphs and curves are ignored. Existing files are
-- continued.
-- @param log_dir     folder of the run (default: runs/, the date and the computer's name)
-- @param comment     the end of the default folder's name
-- @param purge_step  removes the rows of this step and later from existing files
-- @param max_queue   the number of rows that are collected before they are written (default 10)
-- @param flush_secs  the first row after this many seconds writes all (default 120)
function CSVLogger:init(...)
  Logger.init(self, "CSVLogger", ...)
  open_csv(self)
end

function CSVLogger:_row(names, values, step, time)
  if not self.metrics then open_csv(self) end
  if machine.process() ~= self.metrics.process then -- a child writes a table of its own
    self.columns, self.known = {}, {}
  end
  add_columns(self, names)
  local cells = {step and shortest(step) or "", ("%.6f"):format(time)}
  for i = 3, #self.columns do
    local value = values[self.columns[i]]
    cells[i] = value and csv_number(value) or ""
  end
  self.metrics:add(table.concat(cells, ","))
end

for _, one in ipairs {Logger, JSONLogger, CSVLogger} do class.guard(one, "logger") end

return loggers
