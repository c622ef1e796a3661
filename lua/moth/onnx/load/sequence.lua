--- sequence.lua -- nodes of an ONNX graph on sequences, which are Lua lists of tensors. Sequences
-- may be values of a graph and results of a net, but not its inputs.

local M = require "moth"
local rows = require "moth.onnx.load.rows"

local N, refuse = rows.N, rows.refuse

local function row(attributes, run, lists) return rows.row(attributes, run, lists, "sequence") end

-- The index in a sequence of n of a position from 0 or from the end; `more` is 1 if n is allowed.
local function place(at, n, more)
  local k = at < 0 and at + n or at
  if k < 0 or k >= n + more then
    refuse("position %d (from 0) is out of range for a sequence of %d", at, n)
  end
  return k + 1
end

N.SequenceConstruct = row("", function(_, ...) return {...} end)
N.SequenceEmpty = row("0 dtype=1", function() return {} end)
N.SequenceLength = row("", function(_, list) return M.tensor(#list, {dtype = M.int64}) end)
N.SequenceAt = row("2", function(_, list, at) return list[place(at[1], #list, 0)] end, "2")
N.SequenceInsert = row("2", function(_, list, x, at)
  local new = {unpack(list)}
  table.insert(new, at and place(at[1], #list, 1) or #list + 1, x)
  return new
end, "3")
N.SequenceErase = row("", function(_, list, at)
  local new = {unpack(list)}
  table.remove(new, at and place(at[1], #list, 0) or #list)
  return new
end, "2")

N.ConcatFromSequence = row("axis:int! new_axis=0", function(a, list)
  if a.new_axis == 1 then return M.stack(list, rows.dim(a.axis)) end
  return M.cat(list, rows.dim(a.axis))
end)
N.SplitToSequence = row("axis=0 keepdims=1", function(a, x, sizes)
  local d, size = rows.place(x, a.axis), 1
  local n = x:size(d)
  if sizes and sizes:dim() == 0 then size = tonumber(sizes:item())
  elseif sizes then size = sizes:tolist() end
  local list
  if n == 0 then list = {} else list = {unpack(x:split(size, d))} end
  if not sizes and a.keepdims == 0 then
    for k, part in ipairs(list) do list[k] = part:squeeze(d) end
  end
  return list
end)

N.SequenceMap = rows.row("body:graph!", function(a, env, list, ...)
  local more, results = {...}, {}
  for k = 1, #a.body.outputs do results[k] = {} end
  for at, x in ipairs(list) do
    local operands = {x}
    for k, other in ipairs(more) do
      operands[k + 1] = type(other) == "table" and other[at] or other
    end
    for k, y in ipairs(env.run(a.body, operands)) do results[k][at] = y end
  end
  return unpack(results)
end, nil, "control")

return rows
