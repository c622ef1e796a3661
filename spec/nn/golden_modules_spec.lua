-- Modules with their options equal PyTorch's: results, gradients of inputs and parameters, the
-- state dict after a training step (names, order, shapes, values), and the results of evaluation.
-- spec/golden/modules.py wrote the numbers.

local moth = require "moth"
local golden = require "spec.support.golden"

local f64 = {dtype = moth.float64}

-- An input of modules.py. Integers count from 1 here.
local function made(kind, shape, start, n)
  if kind == "l" then return moth.tensor(shape, {dtype = moth.int64}) end
  local count = 1
  for _, size in ipairs(shape) do count = count * size end
  local x = moth.arange(start, start + count, f64):sin():view(shape)
  if kind == "p" then return x:square() + 0.125 end
  if kind == "u" then return x / 2.5 + 0.5 end
  if kind == "t" then return moth.where(x:gt(0), 1.0, -1.0):double() end
  if kind == "b" then return x:gt(0.75) end
  if kind == "i" then return ((x + 1) * n / 2):floor():long() + 1 end
  return x
end

local function cosines(x)
  return moth.arange(1, x:numel() + 1, f64):cos():view(x.shape)
end

local function weighed(x)
  return (x:detach():double() * cosines(x)):sum():item()
end

-- All tensors among the values, also in tables.
local function flat(list, ...)
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    if moth.is_tensor(value) then
      list[#list + 1] = value
    elseif type(value) == "table" then
      flat(list, unpack(value))
    end
  end
  return list
end

local function run(code, given)
  local f = setfenv(assert(loadstring("return " .. code)), given)
  return f()
end

local function close(name, wanted, got)
  assert(math.abs(wanted - got) <= 1e-9 * math.max(1, math.abs(got)),
    ("%s: %.12g is needed, got %.12g"):format(name, wanted, got))
end

local function check(name, wanted, x)
  assert.same(wanted[#wanted - 1], {unpack(x.shape)}, name)
  close(name, wanted[#wanted], weighed(x))
end

local function inputs_of(case, net)
  local given, leaves = {moth = moth, nn = moth.nn, m = net}, {}
  for k, row in ipairs(case.inputs) do
    local kind, shape, n = unpack(row)
    local x = made(kind, shape, 50 * (k - 1) + 7, n)
    if kind == "x" or kind == "p" or kind == "u" and k == 1 then
      leaves[#leaves + 1] = x:requires_grad_()
    end
    given[kind .. k] = x
  end
  return given, leaves
end

local function learn(results)
  local loss = 0
  for _, y in ipairs(results) do
    if y.requires_grad then loss = loss + (y * cosines(y)):sum() end
  end
  loss:backward()
end

local function compare(case)
  local net = run(case.make, {moth = moth, nn = moth.nn}):double()
  for k, p in ipairs(net:parameters()) do
    p.data = made("x", {unpack(p.shape)}, 3 * (k - 1) + 1) * 0.75
  end
  local given, leaves = inputs_of(case, net)
  local results = flat({}, run(case.call, given))
  assert.equal(#case.results, #results)
  for i, y in ipairs(results) do check("result " .. i, case.results[i], y) end
  learn(results)
  for i, x in ipairs(leaves) do
    check("gradient of input " .. i, case.input_grads[i], x.grad or moth.zeros_like(x))
  end
  local n = 0
  for name, p in net:named_parameters() do
    n = n + 1
    assert.equal(case.grads[n][1], name)
    check("gradient of " .. name, case.grads[n], p.grad)
  end
  assert.equal(#case.grads, n)
  n = 0
  for name, x in net:state_dict():items() do
    n = n + 1
    assert.equal(case.state[n][1], name)
    check(name, case.state[n], x)
  end
  assert.equal(#case.state, n)
  given.m = net:eval()
  local again = moth.no_grad(function() return flat({}, run(case.call, given)) end)
  for i, wanted in ipairs(case.evaluated) do
    close("result " .. i .. " of evaluation", wanted, weighed(again[i]))
  end
end

describe("a module equals PyTorch's:", function()
  for _, case in ipairs(golden.cases "modules") do
    local sizes = {}
    for i, row in ipairs(case.inputs) do sizes[i] = row[1] .. table.concat(row[2], "x") end
    it(("%s, %s of %s"):format(case.make, case.call, table.concat(sizes, " ")), function()
      compare(case)
    end)
  end
end)
