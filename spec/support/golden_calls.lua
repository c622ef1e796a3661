--- golden_calls.lua -- runs the calls of modules.json and calls.json. The numbers are made as in
-- spec/golden/calls_kit.py; integers that are positions count from 1 here.

local moth = require "moth"

local f64 = {dtype = moth.float64}
local calls = {}

--- An input or a parameter: sines from `start` on, changed by its kind.
function calls.made(kind, shape, start, n)
  if kind == "l" then return moth.tensor(shape, {dtype = moth.int64}) end
  local count = 1
  for _, size in ipairs(shape) do count = count * size end
  local x = moth.arange(start, start + count, f64):sin():view(shape)
  if kind == "p" then return x:square() + 0.125 end
  if kind == "u" then return x / 2.5 + 0.5 end
  if kind == "t" then return moth.where(x:gt(0), 1.0, -1.0):double() end
  if kind == "b" then return x:gt(0.75) end
  if kind == "i" then return ((x + 1) * n / 2):floor():long() + 1 end
  if kind == "n" then
    local y = (x * 9):floor()
    return (n == "uint8" and y:abs() or y):to(moth[n])
  end
  return x
end

--- The inputs of a case by name, and the list of those that require gradients.
function calls.inputs(case, leaf)
  local given, leaves = {moth = moth, nn = moth.nn, F = moth.nn.functional, math = math}, {}
  for k, row in ipairs(case.inputs) do
    local kind, shape, n = unpack(row)
    local x = calls.made(kind, shape, 50 * (k - 1) + 7, n)
    if leaf(kind, k) then leaves[#leaves + 1] = x:requires_grad_() end
    given[kind .. k] = x
  end
  return given, leaves
end

local function cosines(x)
  return moth.arange(1, x:numel() + 1, f64):cos():view(x.shape)
end

--- The sum of the elements times cosines of their positions.
function calls.weighed(x)
  return (x:detach():double() * cosines(x)):sum():item()
end

--- All tensors among the values, also in tables.
function calls.flat(list, ...)
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    if moth.is_tensor(value) then
      list[#list + 1] = value
    elseif type(value) == "table" then
      calls.flat(list, unpack(value))
    end
  end
  return list
end

function calls.run(code, given)
  return setfenv(assert(loadstring("return " .. code)), given)()
end

function calls.close(name, wanted, got)
  assert(wanted == got or wanted ~= wanted and got ~= got
    or math.abs(wanted - got) <= 1e-9 * math.max(1, math.abs(got)),
    ("%s: %.12g is needed, got %.12g"):format(name, wanted, got))
end

--- Compares dtype, shape and elements; wanted ends with these three.
function calls.check(name, wanted, x)
  local n = #wanted
  local shape = table.concat({unpack(x.shape)}, ", ")
  assert(shape == table.concat(wanted[n - 1], ", "), ("%s: the shape (%s) is needed, got (%s)")
    :format(name, table.concat(wanted[n - 1], ", "), shape))
  assert(x.dtype.name == wanted[n - 2], ("%s: %s is needed, got %s"):format(name, wanted[n - 2],
    x.dtype.name))
  calls.close(name, wanted[n], calls.weighed(x))
end

--- Passes cosines back from all results that require gradients.
function calls.learn(results)
  local loss = 0
  for _, y in ipairs(results) do
    if y.requires_grad then loss = loss + (y * cosines(y)):sum() end
  end
  if moth.is_tensor(loss) then loss:backward() end
end

--- The inputs as text, for the name of a claim.
function calls.sizes(case)
  local sizes = {}
  for i, row in ipairs(case.inputs) do
    sizes[i] = row[1] .. table.concat(row[2], "x") .. (type(row[3]) == "string" and row[3] or "")
  end
  return table.concat(sizes, " ")
end

return calls
