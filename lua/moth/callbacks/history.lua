--- history.lua -- the result of moth.fit: the values of each epoch.
--
--     local history = moth.fit{...}
--     print(history)                      -- a table
--     print(history.val_loss[3])          -- the validation loss after the third epoch
--     print(history:plot())               -- the curves of loss and val_loss
--     history:plot("acc"):save "acc.svg"

local class = require "moth.base.class"
local errors = require "moth.error"

--- The values of a run of moth.fit. A field for each value is a list with one number for each
-- epoch: `epoch`, `loss`, `lr`, `seconds`, and with validation `val_loss`; for metrics their names.
-- `stopped` says why the run ended early.
local History = class("History")

local FIRST = {epoch = 1, loss = 2}
local LAST = {lr = 1, seconds = 2}

-- The names of the columns: epoch, loss, metrics, validation, lr, seconds.
local function names_of(self)
  local names = {}
  local function key(name)
    if FIRST[name] then return "0" .. FIRST[name] end
    if LAST[name] then return "3" .. LAST[name] end
    if name == "val_loss" then return "2" end
    return (name:find "^val_" and "2" or "1") .. name
  end
  for name, column in pairs(self) do
    if type(column) == "table" then names[#names + 1] = name end
  end
  table.sort(names, function(a, b) return key(a) < key(b) end)
  return names
end

--- The names of the values.
function History:names() return names_of(self) end

--- The number of epochs.
function History:len() return #(rawget(self, "epoch") or {}) end

-- Appends the numbers of an epoch.
function History:append(results)
  for name, value in pairs(results) do
    if type(value) == "number" then
      local column = rawget(self, name) or {}
      self[name], column[#column + 1] = column, value
    end
  end
end

--- The columns as a plain table, for a checkpoint file.
function History:state_dict()
  local state = {}
  for _, name in ipairs(names_of(self)) do state[name] = self[name] end
  return state
end

--- Loads the state of state_dict.
function History:load_state_dict(state)
  for name, column in pairs(state) do self[name] = column end
end

--- The curves of a value and of the same value of the validation, as a moth.plot figure: print
-- shows it, figure:save(path) writes an SVG or PNG file.
-- @param name  "loss" (the default), or the name of a metric
function History:plot(name)
  name = name or "loss"
  local series = {title = name, xlabel = "epoch"}
  local values = {train = name, validation = "val_" .. name}
  for label, column in pairs(values) do
    local y = rawget(self, column)
    if type(y) == "table" then series[label] = {x = self.epoch, y = y} end
  end
  if not series.train and not series.validation then
    errors.argument("plot", "name", ("there is no value '%s'; there are %s"):format(tostring(name),
      table.concat(names_of(self), ", ")))
  end
  return require("moth").plot.lines(series)
end

local function shown(name, value)
  if value == nil then return "" end
  if name == "epoch" then return ("%d"):format(value) end
  if name == "seconds" then return ("%.1f"):format(value) end
  return ("%.5g"):format(value)
end

--- One row as text, for the display of a run.
function History:row(i)
  local parts = {}
  for _, name in ipairs(names_of(self)) do
    if name ~= "epoch" and name ~= "seconds" then
      parts[#parts + 1] = name .. " " .. shown(name, self[name][i])
    end
  end
  return table.concat(parts, "  ")
end

function History:__tostring()
  local names, lines = names_of(self), {}
  local widths = {}
  for k, name in ipairs(names) do
    widths[k] = #name
    for _, value in ipairs(self[name]) do widths[k] = math.max(widths[k], #shown(name, value)) end
  end
  for i = 0, self:len() do
    local cells = {}
    for k, name in ipairs(names) do
      local text = i == 0 and name or shown(name, self[name][i])
      cells[k] = (" "):rep(widths[k] - #text) .. text
    end
    lines[#lines + 1] = table.concat(cells, "  ")
  end
  return table.concat(lines, "\n")
end

return History
