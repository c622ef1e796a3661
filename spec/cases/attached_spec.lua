-- A result that depends on an input has a history for any numbers and sizes: an exponent of 0, one
-- row, no elements. A program checks every function with examples.

local moth = require "moth"
local lib = require "moth.binding.lib"
local coverage = require "spec.support.coverage"
local registry = require "spec.support.registry"

local function functions()
  local list = {}
  for _, op in ipairs(registry.ops()) do
    if not op.hidden and not op.mutates and op.source ~= "" then
      list[#list + 1] = { name = op.name, fn = op.fn, source = op.source }
    end
  end
  for name, f in pairs(coverage.functions()) do
    if not name:find "^new_" and not name:find "_$" then -- these write, or use only a shape
      list[#list + 1] = { name = name, fn = f.fn, source = f.sig.examples }
    end
  end
  return list
end

local function floats(values, list)
  for _, x in pairs(values) do
    if registry.isfloat(x) then list[#list + 1] = x
    elseif type(x) == "table" and getmetatable(x) == nil then floats(x, list) end
  end
  return list
end

-- The results with a history if the i-th float tensor requires a gradient, and the error of a
-- backward pass; nil if the call raises.
local function attached(fn, arguments, i)
  local order, at, target = registry.tensors(arguments), 0, nil
  for j, x in ipairs(order) do
    if registry.isfloat(x) then
      at = at + 1
      if at == i then
        target = x:detach():requires_grad_()
        order[j] = target
      end
    end
  end
  local list = registry.replace(arguments, order)
  moth.manual_seed(1)
  local results = lib.pack(pcall(fn, unpack(list, 1, list.n)))
  if not results[1] then return nil end
  local flags, loss, why = {}, nil, nil
  for k, y in ipairs(floats({ unpack(results, 2, results.n) }, {})) do
    flags[k] = y.requires_grad
    if y.requires_grad then loss = (loss or 0) + y:sum() end
  end
  if loss then
    local ok, problem = pcall(loss.backward, loss)
    why = not ok and problem or target.grad == nil and "no gradient"
  end
  return flags, why
end

-- Other numbers and sizes for a call: calls each(arguments, what) with changed arguments.
local function variants(arguments, each)
  local function numbers(t)
    for key, value in pairs(t) do
      if type(value) == "number" and key ~= "n" then
        for number = 0, 2 do
          t[key] = number
          each(arguments, ("%s = %d"):format(key, number))
        end
        t[key] = value
      elseif type(value) == "table" and getmetatable(value) == nil then
        numbers(value)
      end
    end
  end
  numbers(arguments)
  local sizes = {}
  for _, x in ipairs(registry.tensors(arguments)) do
    for d = 1, x:dim() do sizes[x:size(d)] = true end
  end
  for size in pairs(sizes) do
    for new = 0, 1 do
      local order = registry.tensors(arguments)
      for j, x in ipairs(order) do
        local shape = {}
        for d = 1, x:dim() do shape[d] = x:size(d) == size and new or x:size(d) end
        order[j] = registry.isfloat(x) and moth.rand(shape, { dtype = x.dtype })
          or moth.ones(shape):to(x.dtype)
      end
      each(registry.replace(arguments, order), ("sizes %d as %d"):format(size, new))
    end
  end
end

local function troubles(f)
  local list = {}
  for _, example in ipairs(registry.examples(f.source)) do
    local arguments = example.arguments()
    for i = 1, #floats(registry.tensors(arguments), {}) do
      local usual = attached(f.fn, arguments, i) or {}
      variants(arguments, function(other, what)
        local flags, why = attached(f.fn, other, i)
        if why then list[#list + 1] = ("%s, %s: %s"):format(example.code, what, why) end
        for k, flag in ipairs(flags or {}) do
          if usual[k] and not flag then
            list[#list + 1] = ("%s, %s: result %d knows nothing of tensor %d"):format(
              example.code, what, k, i)
          end
        end
      end)
    end
  end
  return list
end

describe("a result has a history", function()
  it("for any numbers and sizes", function()
    local all, count = {}, 0
    for _, f in ipairs(functions()) do
      count = count + 1
      for _, text in ipairs(troubles(f)) do all[#all + 1] = f.name .. ": " .. text end
    end
    assert(count > 500, count)
    assert.same({}, all)
  end)

  it("if the factor of the input is 0", function()
    local x, a, b = moth.full({ 2, 4 }, 0 / 0):requires_grad_(), moth.rand(2, 3), moth.rand(3, 4)
    local y = moth.addmm(x, a, b, { beta = 0 })
    y:sum():backward()
    assert(y:isfinite():all():item())
    assert.same({ { 0, 0, 0, 0 }, { 0, 0, 0, 0 } }, x.grad:tolist())
  end)
end)
