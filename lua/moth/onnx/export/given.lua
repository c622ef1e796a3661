--- given.lua -- what moth.onnx.export is given: names of inputs and results, and axes that may
-- vary, held against the inputs.

local errors = require "moth.error"

local given = {}

--- Raises that an argument is wrong.
function given.refuse(argument, text, code)
  errors.argument("onnx.export", argument, text, code)
end
local refuse = given.refuse

--- A list of n different names: those wanted, or `name`, counted if there are several.
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
      refuse(argument, ("'%s' stands twice in it"):format(list[i]))
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

-- An axis: what input it is of, its dimension from 0, its name, its sizes in three readings.
local function axis_of(x, at, input, key, value, sizes)
  local dim, name = key, value
  if type(value) == "number" then dim, name = value, nil end
  local n = x:dim()
  if type(dim) ~= "number" or dim ~= math.floor(dim) or dim == 0 or math.abs(dim) > n then
    refuse("dynamic_axes", ("'%s' has dimensions 1 to %d, got %s"):format(input, n,
      errors.describe(dim)))
  elseif name ~= nil and (type(name) ~= "string" or name == "") then
    refuse("dynamic_axes", "names of axes are strings, got " .. errors.describe(name), "E_TYPE")
  end
  if dim < 0 then dim = dim + n + 1 end
  name = name or ("%s_dynamic_axes_%d"):format(input, dim)
  local size = x:size(dim)
  if size == 0 then refuse("dynamic_axes", ("'%s' is empty"):format(input)) end
  if sizes[name] and sizes[name][1] ~= size then
    refuse("dynamic_axes", ("'%s' is %d and %d in the inputs"):format(name, sizes[name][1], size))
  end
  if not sizes[name] then -- each axis grows by another number
    sizes.n = sizes.n + 1
    sizes[name] = { size, size + 2 * sizes.n - 1, size + 3 * sizes.n + 1 }
  end
  return { at = at, dim = dim - 1, name = name, sizes = sizes[name] }
end

--- The dynamic axes of the inputs, in order.
function given.axes(wanted, names, inputs, output_names)
  local list, place, sizes, known = {}, {}, { n = 0 }, {}
  if wanted and type(wanted) ~= "table" then
    refuse("dynamic_axes", "a table is needed, such as {input = {'batch'}}, got "
      .. errors.describe(wanted), "E_TYPE")
  end
  for i, name in ipairs(names) do place[name], known[#known + 1] = i, name end
  local outputs = {}
  for _, name in ipairs(type(output_names) == "table" and output_names or { "output" }) do
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
      list[#list + 1] = axis_of(inputs[at], at, name, key, value, sizes)
    end
  end
  table.sort(list, function(a, b) return a.at < b.at or a.at == b.at and a.dim < b.dim end)
  return list
end

return given
