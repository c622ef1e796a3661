--- control.lua -- nodes of an ONNX graph that run subgraphs: If, Loop, Scan.
--
-- These rows get `env` before their operands: env.run(body, operands) runs a subgraph and returns
-- its results as a list; env.device is the device of the net. A subgraph reads values of the outer
-- graphs directly.

local M = require "moth"
local proto = require "moth.onnx.proto"
local rows = require "moth.onnx.load.rows"
local by_code = require("moth.tensor.dtype").by_code

local N, row, refuse, dim = rows.N, rows.row, rows.refuse, rows.dim

N.If = row("then_branch:graph! else_branch:graph!", function(a, env, condition)
  return unpack(env.run(condition[1] ~= 0 and a.then_branch or a.else_branch, {}))
end, "1", "control")

-- The results of a loop without iterations: empty tensors with the dtype and shape of the body.
local function nothing(info, device)
  local shape, code = {0}, proto.dtypes[info.elem_type or 1]
  for d, size in ipairs(info.dims or {}) do
    shape[d + 1] = type(size) == "number" and math.max(size, 0) or 0
  end
  return M.zeros(shape, {dtype = by_code[code], device = device})
end

-- Stacks the results of all iterations along dimension d.
local function gathered(list, info, d, device, backward)
  if #list == 0 then return nothing(info, device) end
  if backward then
    local n = #list
    for k = 1, math.floor(n / 2) do list[k], list[n + 1 - k] = list[n + 1 - k], list[k] end
  end
  return M.stack(list, d)
end

local function is_true(x)
  local value = x:reshape(-1)[1]:item()
  return value ~= false and value ~= 0
end

N.Loop = row("0 body:graph!", function(a, env, most, condition, ...)
  local body, values, lists = a.body, {...}, {}
  local n = #body.inputs - 2
  local going, limit, step = not condition or condition[1] ~= 0, most and most[1] or math.huge, 0
  for k = n + 2, #body.outputs do lists[k] = {} end
  while going and step < limit do
    local operands = {M.tensor(step, {dtype = M.int64}):to(env.device),
                       M.tensor(true):to(env.device)}
    for k = 1, n do operands[k + 2] = values[k] end
    local results = env.run(body, operands)
    for k = 1, n do values[k] = results[k + 1] end
    for k = n + 2, #body.outputs do table.insert(lists[k], results[k]) end
    going, step = is_true(results[1]), step + 1
  end
  local results = {}
  for k = 1, n do results[k] = values[k] end
  for k = n + 2, #body.outputs do
    results[k - 1] = gathered(lists[k], body.declared[k], 1, env.device)
  end
  return unpack(results, 1, #body.outputs - 1)
end, "1 2", "control")

N.Scan = row("0 body:graph! num_scan_inputs:int! scan_input_axes:ints scan_input_directions:ints "
  .. "scan_output_axes:ints scan_output_directions:ints", function(a, env, ...)
  if a.opset < 9 then refuse "its form before opset 9, with a batch and lengths" end
  local body, values, lists = a.body, {...}, {}
  local n = #body.inputs - a.num_scan_inputs -- states
  local steps, along = nil, {}
  for k = 1, a.num_scan_inputs do
    along[k] = dim(a.scan_input_axes and a.scan_input_axes[k] or 0)
    local length = values[n + k]:size(along[k])
    steps = steps or length
    if length ~= steps then refuse("inputs of %d and %d steps", steps, length) end
  end
  for k = n + 1, #body.outputs do lists[k] = {} end
  for step = 1, steps do
    local operands = {unpack(values, 1, n)}
    for k = 1, a.num_scan_inputs do
      local back = a.scan_input_directions and a.scan_input_directions[k] == 1
      operands[n + k] = values[n + k]:select(along[k], back and steps + 1 - step or step)
    end
    local results = env.run(body, operands)
    for k = 1, n do values[k] = results[k] end
    for k = n + 1, #body.outputs do table.insert(lists[k], results[k]) end
  end
  local results = {unpack(values, 1, n)}
  for k = n + 1, #body.outputs do
    local at = k - n
    results[k] = gathered(lists[k], body.declared[k], dim(a.scan_output_axes
      and a.scan_output_axes[at] or 0), env.device, a.scan_output_directions
      and a.scan_output_directions[at] == 1)
  end
  return unpack(results, 1, #body.outputs)
end, nil, "control")

-- ---- optional values: absent only as operands ----

N.OptionalHasElement = row("0", function(_, x) return M.tensor(x ~= nil) end)
N.OptionalGetElement = row("", function(_, x) return x end)

return rows
