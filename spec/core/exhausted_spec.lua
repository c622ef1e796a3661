-- Out of memory during a gradient: the examples of every op, forward, backward and the second
-- derivative, with each allocation failing in turn. Each failure must be an error, and the same
-- call must later have the same values. memory_spec checks for leaks.

local moth = require "moth"
local lib = require "moth.binding.lib"
local registry = require "spec.support.registry"

local C, ctx = lib.C, lib.ctx

local function float_results(op, arguments)
  moth.manual_seed(7)
  local got, kept = {op.fn(unpack(arguments, 1, arguments.n))}, {}
  for _, y in ipairs(op.list and got[1] or got) do
    if registry.isfloat(y) and y.requires_grad then kept[#kept + 1] = y end
  end
  return kept
end

local function sum(list)
  local total = 0
  for _, y in pairs(list) do
    if y.requires_grad then total = total + (y * y):sum() end
  end
  return total
end

local function input_gradients(loss, inputs, create_graph)
  if not lib.istensor(loss) then return {} end
  return {moth.autograd.grad({loss}, inputs, {create_graph = create_graph, allow_unused = true})}
end

-- An example's call with its float tensors as leaves: a function that computes second derivatives.
local function twice(op, example)
  local arguments, leaves = example.arguments(), {}
  local order = registry.tensors(arguments)
  moth.manual_seed(3)
  for i, x in ipairs(order) do
    if registry.isfloat(x) then
      order[i] = registry.redraw(x, example.domain, i):requires_grad_()
      leaves[#leaves + 1] = order[i]
    end
  end
  arguments = registry.replace(arguments, order)
  return function()
    local first = input_gradients(sum(float_results(op, arguments)), leaves, true)
    return input_gradients(sum(first), leaves, false)
  end
end

local function fails(f, k)
  C.moth_fail_allocation(ctx, k)
  local ok, message = pcall(f)
  C.moth_fail_allocation(ctx, 0)
  if not ok then assert.matches("out of memory", message) end
  return not ok
end

describe("out of memory in a gradient", function()
  local collect = lib.collect
  before_each(function() lib.collect = function() return false end end) -- no second try
  after_each(function() lib.collect = collect end)

  for _, op in ipairs(registry.ops()) do
    if op.grad and not op.derived and not op.mutates then
      it("raises an error of " .. op.name, function()
        for _, example in ipairs(op.examples) do
          local f = twice(op, example)
          f()
          local k = 1
          while fails(f, k) do k = k + 1 + math.floor(k / 40) end
        end
      end)
    end
  end
end)

-- The call of an example with its f32 tensors in f16; nil if the op refuses f16.
local function halved(op, example)
  local arguments = registry.map(example.arguments(), function(x)
    return lib.istensor(x) and x.dtype == moth.float32 and x:to(moth.float16) or x
  end)
  local function f()
    local copies = op.mutates and registry.map(arguments, function(x)
      return lib.istensor(x) and x:clone() or x
    end) or arguments
    return op.fn(unpack(copies, 1, copies.n))
  end
  return pcall(f) and f or nil
end

describe("out of memory in f16", function()
  local collect = lib.collect
  before_each(function() lib.collect = function() return false end end)
  after_each(function() lib.collect = collect end)

  for _, op in ipairs(registry.ops()) do
    it("raises an error of " .. op.name, function()
      for _, example in ipairs(op.examples) do
        local f = halved(op, example)
        local k = 1
        while f and fails(f, k) do k = k + 1 end
      end
    end)
  end
end)
