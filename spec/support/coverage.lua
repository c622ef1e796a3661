--- coverage.lua -- lists ops without golden values, and differentiable ops without a gradcheck:
--
--     ./moth test --coverage
--
-- It checks all public ops of the registry, and the functions written in Lua that take tensors.
-- In-place forms count as their base; hidden ops (mostly gradients) are reached through the ops
-- that use them. An op that cannot have golden values says why by `exempt` in its sample file.

local bind = require "moth.binding.bind"
local golden = require "spec.support.golden"
local moth = require "moth"
local registry = require "spec.support.registry"

local coverage = {}

local TENSORS = {tensor = true, tensors = true, number = true, mask = true, index = true}

-- Composite functions of a namespace, by name, with their signatures.
local function collect(found, namespace, names, prefix)
  prefix = prefix or ""
  for _, name in ipairs(names) do
    local ok, fn = pcall(function() return namespace[name] end)
    local sig = ok and type(fn) == "function" and bind.signature(fn)
    if sig and sig.lua and not found[prefix .. name] then
      for _, arg in ipairs(sig.args) do
        if TENSORS[arg.row.name] then found[prefix .. name] = {fn = fn, sig = sig} end
      end
    end
  end
end

local function keys(t)
  local list = {}
  for name in pairs(t) do list[#list + 1] = name end
  table.sort(list)
  return list
end

--- name -> {fn, sig} of the functions written in Lua that take tensors.
function coverage.functions()
  local found = {}
  collect(found, moth, moth.names())
  collect(found, moth.nn.functional, getmetatable(moth.nn.functional).__names())
  collect(found, moth.zeros(1), require("moth.tensor").names(true))
  collect(found, moth.linalg, getmetatable(moth.linalg).__names(), "linalg.")
  collect(found, moth.fft, getmetatable(moth.fft).__names(), "fft.")
  collect(found, moth.ops, getmetatable(moth.ops).__names(), "ops.")
  collect(found, moth.special, getmetatable(moth.special).__names(), "special.")
  return found
end

--- Two sorted lists of names: without golden values, differentiable without gradcheck.
function coverage.missing()
  local known, why, ungolden, unchecked, differentiable = {}, {}, {}, {}, {}
  for _, shard in ipairs(golden.all()) do
    for name, samples in pairs(shard.ops) do
      known[name] = true
      for _, sample in ipairs(samples) do
        differentiable[name] = differentiable[name] or sample.grads ~= nil
      end
    end
    for name, reason in pairs(shard.exempt) do why[name] = reason end
  end
  local function ask(name)
    if not known[name] and not why[name] then ungolden[#ungolden + 1] = name end
  end
  local functions = coverage.functions()
  for _, op in ipairs(registry.ops()) do
    if not op.derived and not op.hidden then
      ask(op.name)
      if op.grad and not coverage.differentiated(op) then unchecked[#unchecked + 1] = op.name end
    end
    functions[op.name] = nil
  end
  for name, f in pairs(functions) do
    ask(name)
    local op = {outputs = "", examples = registry.examples(f.sig.examples)}
    if differentiable[name] and not coverage.differentiated(op) then
      unchecked[#unchecked + 1] = name
    end
  end
  table.sort(ungolden)
  return ungolden, unchecked, why
end

--- Checks that ops_spec or coverage_spec finds floats to differentiate in the op's examples.
-- Positions have no gradient.
function coverage.differentiated(op)
  if op.outputs:match "^%w+: position$" then return true end
  for _, example in ipairs(op.examples) do
    for _, x in ipairs(registry.tensors(example.arguments())) do
      if registry.isfloat(x) then return true end
    end
  end
  return false
end

--- Prints both lists; returns true if they are empty.
function coverage.report(verbose)
  local ungolden, unchecked, why = coverage.missing()
  local function say(title, list)
    print(("ops without %s: %s"):format(title, #list > 0 and table.concat(list, " ") or "none"))
  end
  say("golden values", ungolden)
  say("gradcheck", unchecked)
  if verbose then
    print "without golden values for a reason:"
    for _, name in ipairs(keys(why)) do print(("  %-20s %s"):format(name, why[name])) end
  end
  return #ungolden + #unchecked == 0
end

return coverage
