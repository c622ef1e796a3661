-- Coverage: every op has golden values and, if it has a gradient, a gradcheck. Functions written in
-- Lua are differentiated by their examples here, as ops are in ops_spec.

local moth = require "moth"
local coverage = require "spec.support.coverage"
local golden = require "spec.support.golden"
local registry = require "spec.support.registry"

local only = os.getenv "MOTH_SPEC_OP"

local function floats(results)
  local kept = {}
  local function walk(v)
    if registry.isfloat(v) then kept[#kept + 1] = v
    elseif type(v) == "table" and getmetatable(v) == nil then
      for _, x in ipairs(v) do walk(x) end
    end
  end
  walk(results)
  return kept
end

describe("coverage", function()
  local ungolden, unchecked, exempt = coverage.missing()

  it("includes every op", function()
    assert.same({}, ungolden)
    assert.same({}, unchecked)
  end)

  it("has at least six samples for each op", function()
    local few = {}
    for _, shard in ipairs(golden.all()) do
      for name, samples in pairs(shard.ops) do
        if #samples < 6 then few[#few + 1] = name end
      end
    end
    assert.same({}, few)
  end)

  for name, f in pairs(coverage.functions()) do
    if not exempt[name] and (not only or name:match(only)) then
      it("includes the gradient of " .. name .. ", twice", function()
        for _, example in ipairs(registry.examples(f.sig.examples)) do
          local arguments = example.arguments()
          local order, inputs, at = registry.tensors(arguments), {}, {}
          for i, x in ipairs(order) do
            if registry.isfloat(x) then
              order[i] = registry.redraw(x, example.domain, i):requires_grad_()
              inputs[#inputs + 1] = order[i]
              at[#at + 1] = i
            end
          end
          local function call(...)
            for k, x in ipairs{...} do order[at[k]] = registry.inside(x, example.domain) end
            if name:find "_$" then order[1] = order[1]:clone() end -- it is written
            moth.manual_seed(1) -- random ops draw the same numbers
            local list = registry.replace(arguments, order)
            return unpack(floats{f.fn(unpack(list, 1, list.n))})
          end
          local y = #inputs > 0 and call(unpack(inputs))
          if y and y.requires_grad then
            moth.autograd.gradcheck(call, inputs)
            moth.autograd.gradgradcheck(call, inputs)
          end
        end
      end)
    end
  end
end)
