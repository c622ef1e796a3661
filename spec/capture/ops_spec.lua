-- Every op of the registry, and its gradient, recorded and replayed with other values: the bits of
-- a plain call, or an error during recording; on the CPU and on a GPU.

local moth = require "moth"
local lib = require "moth.binding.lib"
local cuda = require "spec.support.cuda"
local registry = require "spec.support.registry"

lib.declare "capture"

local function values_of(x)
  if x:is_floating_point() then x = x:to(moth.float64) end
  local list = x:detach():flatten():tolist()
  if type(list) ~= "table" then list = {list} end
  for i = 1, #list do list[i] = tostring(list[i]) end
  return tostring(x.shape) .. " " .. table.concat(list, " ")
end

local function all_values(list)
  local text = {}
  for i, x in ipairs(list) do text[i] = values_of(x) end
  return table.concat(text, "\n")
end

-- The arguments of the example with tensors[1], tensors[2], ... in place of their tensors.
local function with(arguments, tensors)
  local own = registry.tensors(arguments)
  local place = {}
  for i, x in ipairs(own) do place[x] = tensors[i] end
  return registry.map(arguments, function(x) return place[x] end)
end

-- A step that calls the op, and with `backward` also computes the gradients of its inputs.
local function step_of(op, arguments, backward)
  return function(...)
    local given, leaves = {...}, {}
    for i, x in ipairs(backward and given or {}) do
      if x:is_floating_point() then
        leaves[#leaves + 1] = x:detach():requires_grad_()
        given[i] = leaves[#leaves] * 1 -- an op may write to it in place
      end
    end
    local used = with(arguments, given)
    local results = registry.tensors {n = 1, {op.fn(unpack(used, 1, used.n))}}
    if lib.capture and op.name:find "_step_$" then -- the host writes the step count: 1
      lib.C.moth_capture_slots(lib.ctx, lib.C.moth_op_find(op.name))
    end
    if op.outputs == "" then results = given end
    if not backward then return unpack(results) end
    local loss
    for _, y in ipairs(results) do
      if y:is_floating_point() and y.requires_grad then
        local part = (y * y):sum():to(moth.float64)
        loss = loss and loss + part or part
      end
    end
    if not loss then return unpack(results) end
    loss:backward()
    local grads = {loss}
    for _, x in ipairs(leaves) do
      if x.grad ~= nil then grads[#grads + 1] = x.grad end
    end
    return unpack(grads)
  end
end

local function drawn(example, seed, place)
  moth.manual_seed(seed)
  local arguments = registry.map(example.arguments(), place)
  return arguments, registry.tensors(arguments)
end

-- Seeds the default generator and the generators among the arguments again.
local function seed(arguments, number)
  moth.manual_seed(number)
  for i = 1, arguments.n do
    local v = arguments[i]
    if type(v) == "table" and getmetatable(v) == nil then v = v.generator end
    local generator = type(v) == "table" and getmetatable(v) ~= nil and v.manual_seed
    if generator then v:manual_seed(number) end
  end
end

local function check(op, example, backward, place, around)
  local arguments, first = drawn(example, 1, place)
  local _, second = drawn(example, 2, place)
  if #first == 0 or #first > 16 then return end
  local run = around(step_of(op, arguments, backward))
  local step = moth.capture(run)
  seed(arguments, 3)
  local ok, message = pcall(step, unpack(first))
  if not ok then
    if tostring(message):find("moth.capture", 1, true) then return end
    if pcall(run, unpack(first)) then error(message, 0) end
    return -- the plain call raises
  end
  seed(arguments, 4)
  local replayed = all_values {step(unpack(second))}
  if not tostring(step):find "^captured step %(1 recording[;)]" then
    error("it was recorded again", 0)
  end
  seed(arguments, 4)
  for i, x in ipairs(second) do second[i] = x:detach():clone() end
  local wanted = all_values {run(unpack(second))}
  step:free()
  if replayed ~= wanted then
    error(("a replay gave\n%s\nwanted\n%s"):format(replayed:sub(1, 300), wanted:sub(1, 300)), 0)
  end
end

local pattern = os.getenv("MOTH_SPEC_OP") or "."

local function each_op(place, around)
  for _, op in ipairs(registry.ops()) do
    local reshapes = op.view and op.mutates -- raises for a tensor from outside of the step
    if op.name:find(pattern) and not op.name:find "^empty" and not reshapes then
      it(op.name .. " equals a plain call", function()
        for _, example in ipairs(op.examples) do
          for _, backward in ipairs {false, op.grad or nil} do
            local ok, message = pcall(check, op, example, backward, place, around)
            if not ok then
              error(("%s(%s)%s: %s"):format(op.name, example.code, backward and ", gradient" or "",
                tostring(message)), 0)
            end
          end
        end
        moth.collect()
      end)
    end
  end
end

describe("a recording of", function()
  each_op(function(x) return x end, function(run) return run end)
end)

describe("a recording on a GPU of", function()
  if not cuda.here then
    pending("all ops gives what calls give: " .. cuda.why)
    return
  end
  -- Few launches make no graph, so this step has more launches before them.
  local function among_others(run)
    return function(...)
      local more = moth.zeros(2, {device = "cuda"})
      for _ = 1, 4 do more = more:exp() end
      return run(...)
    end
  end
  each_op(function(x) return x:cuda() end, among_others)
end)
