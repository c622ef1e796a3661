--- reload.lua -- moth.reload: runs a changed script again, and keeps what it has learned.
--
--     -- model.lua returns {net = net, optimizer = optimizer, step = 0}
--     local model = moth.reload "model.lua"          -- the first time
--     model = moth.reload("model.lua", model)        -- after the file has changed

local errors = require "moth.error"
local lib = require "moth.binding.lib"

local reload = {}

local function has_state(value)
  return type(value) == "table" and type(value.state_dict) == "function"
    and type(value.load_state_dict) == "function"
end

-- The differences of two state dicts of modules, one line each, and the tensors that fit.
local function compare(name, old, new, lines)
  local fitting, keys = {}, {}
  for key in pairs(old) do keys[#keys + 1] = key end
  for key in pairs(new) do
    if old[key] == nil then keys[#keys + 1] = key end
  end
  table.sort(keys)
  for _, key in ipairs(keys) do
    local was, is = old[key], new[key]
    local before = was == nil and "none" or errors.describe(was)
    local after = is == nil and "none" or errors.describe(is)
    if before == after then
      fitting[key] = was
    else
      lines[#lines + 1] = ("  %s.%s: %s -> %s"):format(name, key, before, after)
    end
  end
  return fitting
end

-- A state dict of tensors by name, as modules have.
local function of_tensors(state)
  for key, value in pairs(state) do
    if type(key) ~= "string" or not lib.istensor(value) then return false end
  end
  return true
end

--- Runs the script at `path`, which returns a table, and carries the state of an older table over:
-- modules, optimizers and schedulers by state_dict, and numbers, by their names in the table.
-- @param path    the script
-- @param old     the table of an earlier call; nil: the first call
-- @param strict  default true: tensors whose shape or dtype has changed, or that are missing, raise
--   E_SHAPE with a line for each. false: what fits is carried over, and optimizers begin again if
--   something does not fit
-- @return the new table, and the list of the differences. If the script raises, `old` is as before
function reload.reload(path, old, strict)
  if type(path) ~= "string" then
    errors.refuse("reload", "path", "a path is needed", path, "E_TYPE")
  end
  if old ~= nil and type(old) ~= "table" then
    errors.refuse("reload", "old", "a table is needed", old, "E_TYPE")
  end
  local chunk, problem = loadfile(path)
  if not chunk then errors.raise("reload: " .. problem, "E_IO") end
  local new = chunk()
  if type(new) ~= "table" then
    errors.raise("reload: the script " .. path .. " has to return a table, got "
      .. errors.describe(new), "E_TYPE")
  end
  local lines, modules, others = {}, {}, {}
  for name, value in pairs(old or {}) do
    local target = new[name]
    if has_state(value) and has_state(target) then
      local state = value:state_dict()
      if of_tensors(state) then
        modules[name] = compare(tostring(name), state, target:state_dict(), lines)
      else
        others[name] = state
      end
    elseif type(value) == "number" and type(target) == "number" then
      new[name] = value
    end
  end
  if #lines > 0 and strict ~= false then
    errors.raise("reload: the state does not fit the new script:\n" .. table.concat(lines, "\n"),
      "E_SHAPE")
  end
  for name, state in pairs(modules) do new[name]:load_state_dict(state, #lines == 0) end
  if #lines == 0 then
    for name, state in pairs(others) do new[name]:load_state_dict(state) end
  end
  return new, lines
end

return reload
