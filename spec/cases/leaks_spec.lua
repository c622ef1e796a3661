--- Cases: no op keeps memory that its results do not need, after a call, a backward pass or an
-- error. Rare paths are in rare_leaks_spec.lua.

local moth = require "moth"
local bind = require "moth.binding.bind"
local measured = require "spec.support.leaks"
local mistakes = require "spec.support.wrong_values"
local registry = require "spec.support.registry"

-- The op's results in a list; none if the op raises for the arguments.
local function results(op, arguments)
  local got = {pcall(op.fn, unpack(arguments, 1, arguments.n))}
  if not table.remove(got, 1) then return {} end
  return op.list and got[1] or got
end

-- An example with its float tensors as leaves that require gradients.
local function differentiated(op, example)
  local arguments = registry.map(example.arguments(), function(x)
    return registry.isfloat(x) and x:clone():requires_grad_() or x
  end)
  for _, y in ipairs(results(op, arguments)) do
    if registry.isfloat(y) and y.requires_grad then
      y:sum():backward{retain_graph = true}
    end
  end
end

-- Each argument in turn replaced by the first wrong value of its kind.
local function raising(op, example)
  local calls = {}
  for i, argument in ipairs(op.args) do
    local names = mistakes.of(argument.kind, op.numbers)
    calls[i] = mistakes.values[names[1]]
  end
  return function()
    for i = 1, #calls do
      local arguments = example.arguments()
      arguments[i], arguments.n = calls[i](), math.max(i, arguments.n)
      results(op, arguments)
    end
  end
end

local function leaks(make)
  local list = {}
  for _, op in ipairs(registry.ops()) do
    for _, example in ipairs(op.examples) do
      local fn = make(op, example)
      if fn then
        local text = measured.of(fn)
        if text ~= "" then
          list[#list + 1] = ("%s(%s): %s"):format(op.name, example.code, text)
        end
      end
    end
  end
  return table.concat(list, "\n")
end

describe("every op of the registry, called four times in a scope,", function()
  it("leaves as many bytes, tensors, nodes and handles as before", function()
    assert.equal("", leaks(function(op, example)
      return function() results(op, example.arguments()) end
    end))
  end)

  it("leaves nothing after a backward pass", function()
    assert.equal("", leaks(function(op, example)
      return op.grad and function() differentiated(op, example) end
    end))
  end)

  it("leaves nothing when it raises", function()
    assert.equal("", leaks(function(op, example)
      return example == op.examples[1] and raising(op, example)
    end))
  end)
end)

-- Scopes of functions free their intermediate tensors at once: without a collection only results
-- are left, and what is made of arguments (a table becomes a tensor). Metrics leave their states.
-- EXCEPT: linear_cross_entropy keeps tensors for its backward pass, a sparse tensor has several,
-- and fit and lr_find call the user's functions.
local EXCEPT = {linear_cross_entropy = 20, sparse_coo_tensor = 6, fit = math.huge,
  lr_find = math.huge}

describe("every function with examples,", function()
  local spaces = {[""] = 3, ["nn.functional"] = 3, linalg = 3, fft = 3, special = 3, ops = 3,
    ["signal.windows"] = 3, ["metrics.functional"] = 8}

  local function names_in(space)
    local meta, list = getmetatable(space), {}
    if meta and meta.__names then return meta.__names() end
    for name in pairs(space) do list[#list + 1] = name end
    return list
  end

  local function tensors_in(value)
    if moth.is_tensor(value) then return 1 end
    local n = 0
    for _, item in pairs(type(value) == "table" and value or {}) do n = n + tensors_in(item) end
    return n
  end

  local function extra(fn, example)
    local arguments = example.arguments()
    for _ = 1, 2 do pcall(fn, unpack(arguments, 1, arguments.n)) end -- loads what it needs
    moth.collect()
    collectgarbage "stop"
    local before = moth.memory().live_handles
    local got = {pcall(fn, unpack(arguments, 1, arguments.n))}
    local after = moth.memory().live_handles
    collectgarbage "restart"
    return got[1] and after - before - tensors_in(got) or 0
  end

  for space, most in pairs(spaces) do
    it(("keeps at most %d tensors besides its results: moth.%s"):format(most, space), function()
      local at, found = moth, {}
      for key in space:gmatch "[^.]+" do at = at[key] end
      for _, name in ipairs(names_in(at)) do
        local ok, sig = pcall(bind.signature, at[name])
        local reads = name:find "load" or name:find "save" or name:find "seed" or name:find "^set_"
        if ok and sig and sig.lua and type(sig.examples) == "string" and not reads
          and EXCEPT[name] ~= math.huge then
          for _, example in ipairs(registry.examples(sig.examples)) do
            local n = extra(at[name], example)
            if n > (EXCEPT[name] or most) then
              found[#found + 1] = ("%s(%s): %d"):format(name, example.code, n)
            end
          end
        end
      end
      assert.same({}, found)
    end)
  end
end)
