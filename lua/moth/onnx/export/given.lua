--- given.lua -- checks the arguments of moth.onnx.export: names of inputs and results, and dynamic
-- axes, against the inputs.

local errors = require "moth.error"

local given = {}

--- Raises an error about an argument.
function given.refuse(argument, text, code)
  errors.argument("onnx.export", argument, text, code)
end
local refuse = given.refuse

--- Returns a list of n different names: the user's, or `name`, numbered if there are several.
function given.names(wanted, n, argument, name)
  local list, seen = {}, {}
  if wanted and type(wanted) ~= "table" then
    refuse(argument, "a list of names is needed, got " .. errors.describe(wanted), "E_TYPE")
  elseif wanted and #wanted ~= n then
    refuse(argument, ("%d names for %d tensors"):format(#wanted, n))
  end
  for i = 1, n do
    list[i] = wanted and wanted[i] or n == 1 and name or name .. "_" .. i
    if type(list[i]) ~= "string" or list[i] == "" then
      refuse(argument, "strings are needed, got " .. errors.describe(list[i]), "E_TYPE")
    elseif seen[list[i]] then
      refuse(argument, ("'%s' occurs twice"):format(list[i]))
    end
    seen[list[i]] = true
  end
  for key in pairs(wanted or {}) do
    if type(key) ~= "number" then
      refuse(argument, "a list is needed, got a table with '" .. tostring(key) .. "'", "E_TYPE")
    end
  end
  return list
end

-- Returns the name and the step of an axis from a name or a table of both.
local function name_of(input, value)
  if type(value) ~= "table" then return value, nil end
  for key in pairs(value) do
    if key ~= "name" and key ~= "step" then
      refuse("dynamic_axes", ("an axis of '%s' has a name and a step, got '%s'"):format(input,
        tostring(key)))
    end
  end
  local step = value.step
  if step ~= nil and (type(step) ~= "number" or step < 1 or step ~= math.floor(step)) then
    refuse("dynamic_axes", "a step is an integer from 1 on, got " .. errors.describe(step))
  end
  return value.name, step
end

-- Returns an axis: its input, its dimension from 0, its name, and its step or nil.
local function axis_of(x, at, input, key, value)
  local dim, name, step = key, nil, nil
  if type(value) == "number" then dim = value else name, step = name_of(input, value) end
  local n = x:dim()
  if type(dim) ~= "number" or dim ~= math.floor(dim) or dim == 0 or math.abs(dim) > n then
    refuse("dynamic_axes", ("'%s' has dimensions 1 to %d, got %s"):format(input, n,
      errors.describe(dim)))
  elseif name ~= nil and (type(name) ~= "string" or name == "") then
    refuse("dynamic_axes", "names of axes are strings, got " .. errors.describe(name), "E_TYPE")
  end
  if dim < 0 then dim = dim + n + 1 end
  if x:size(dim) == 0 then refuse("dynamic_axes", ("'%s' is empty"):format(input)) end
  return {at = at, dim = dim - 1, name = name or ("%s_dynamic_axes_%d"):format(input, dim),
           step = step, size = x:size(dim)}
end

-- Chooses the sizes of each axis in the three runs; axes with the same name have the same sizes.
-- The sizes of each name increase by a different number of steps.
local function choose_sizes(list)
  local known, count = {}, 0
  for _, axis in ipairs(list) do
    local same = known[axis.name]
    if same and same.size ~= axis.size then
      refuse("dynamic_axes", ("axis '%s' has the sizes %d and %d in the inputs"):format(axis.name,
        same.size, axis.size))
    elseif same and axis.step and same.step and axis.step ~= same.step then
      refuse("dynamic_axes", ("axis '%s' has the steps %d and %d"):format(axis.name, same.step,
        axis.step))
    end
    if not same then
      count = count + 1
      axis.nth, known[axis.name] = count, axis
    else
      same.step = same.step or axis.step
    end
  end
  for _, axis in ipairs(list) do
    local first = known[axis.name]
    local size, step, k = first.size, first.step or 1, first.nth
    axis.step = first.step
    axis.sizes = {size, size + step * (2 * k - 1), size + step * (3 * k + 1)}
  end
end

--- Returns the axes with larger steps, so that each size stays divisible by the powers of 2 (up to
-- 32) that divide it; or nil if no step changes.
function given.widened(list)
  local wider, changed = {}, false
  for i, axis in ipairs(list) do
    local step = 1
    while not axis.step and step < 32 and axis.size % (2 * step) == 0 do step = 2 * step end
    wider[i] = {at = axis.at, dim = axis.dim, name = axis.name, size = axis.size,
                 step = axis.step or step > 1 and step or nil}
    changed = changed or wider[i].step ~= axis.step
  end
  if not changed then return nil end
  choose_sizes(wider)
  return wider
end

--- Returns the dynamic axes of the inputs, in order.
function given.axes(wanted, names, inputs, output_names)
  local list, place, known = {}, {}, {}
  if wanted and type(wanted) ~= "table" then
    refuse("dynamic_axes", "a table is needed, such as {input = {'batch'}}, got "
      .. errors.describe(wanted), "E_TYPE")
  end
  for i, name in ipairs(names) do place[name], known[#known + 1] = i, name end
  local outputs = {}
  for _, name in ipairs(type(output_names) == "table" and output_names or {"output"}) do
    outputs[name], known[#known + 1] = true, name
  end
  local order = {}
  for name in pairs(wanted or {}) do order[#order + 1] = name end
  table.sort(order, function(a, b) return tostring(a) < tostring(b) end)
  for _, name in ipairs(order) do
    local at = place[name]
    if not at and not outputs[name] then
      refuse("dynamic_axes", ("there is no input '%s'%s"):format(tostring(name),
        errors.nearest(tostring(name), known)))
    elseif type(wanted[name]) ~= "table" then
      refuse("dynamic_axes", ("a table is needed for '%s', such as {'batch'}, got %s"):format(name,
        errors.describe(wanted[name])), "E_TYPE")
    end
    for key, value in pairs(at and wanted[name] or {}) do
      list[#list + 1] = axis_of(inputs[at], at, name, key, value)
    end
  end
  table.sort(list, function(a, b) return a.at < b.at or a.at == b.at and a.dim < b.dim end)
  choose_sizes(list)
  return list
end

return given
