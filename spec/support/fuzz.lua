--- fuzz.lua -- random programs of the registry's ops, with views and in-place writes. Specs run a
-- program in several ways that must agree.
--
-- A step is a call that worked when the program was generated: an op's example with its tensors
-- replaced by earlier values and its options changed, or a call with random arguments of the right
-- kinds. Calls that raise are dropped, but must not change their arguments.

local moth = require "moth"
local bits = require("spec.support.bits").of
local registry = require "spec.support.registry"

local fuzz = {}

local SHAPES = {{}, {3}, {2, 3}, {2, 3}, {3, 2}, {4, 3}, {3, 1}, {2, 3, 4}, {2, 2, 4, 4}, {0, 3},
  {40, 30}, {1200}} -- the last two are large enough for several threads
local DTYPES = {moth.float32, moth.float32, moth.float64, moth.float64, moth.float16, moth.bfloat16}
local NUMBERS = {-2.5, -1, 0, 0.5, 1, 2, 3}
local INPUTS, TRIES, MOST = 5, 8, 4000 -- initial values; tries for a step; numbers of a value

local function one_of(list) return list[math.random(#list)] end
local function plain(v) return type(v) == "table" and getmetatable(v) == nil end

-- ---- the ops ----

-- Kinds of arguments that can be drawn without knowing the op.
local function number() return one_of(NUMBERS) end
local function flag() return math.random() < 0.5 end
local function place(x)
  local n = x:dim()
  return n == 0 and -1 or math.random(n) * (flag() and -1 or 1)
end

local DRAW = {
  scalar = number, element = number, float = number, ["float?"] = number, bool = flag,
  int = function() return math.random(0, 3) end, dim = place,
  position = function() return math.random(3) end, ["dim?"] = place,
  enum = function(_, arg) return one_of(arg.choices) end,
  dims = function(x)
    local list = {}
    for d = 1, x:dim() do if flag() then list[#list + 1] = d end end
    return list
  end,
}

--- The ops to draw from; `free` is true if all its arguments are of kinds that can be drawn.
local function ops_of()
  local list = {}
  for _, op in ipairs(registry.ops()) do
    if not op.hidden and op.outputs ~= "" and not op.name:find "^empty"
      and not op.name:find "^as_strided" then
      op.free = op.args[1] and op.args[1].kind == "tensor"
      for _, arg in ipairs(op.args) do
        if arg.kind == "enum" then
          arg.choices = {}
          for choice in arg.fallback:gmatch "[^|]+" do arg.choices[#arg.choices + 1] = choice end
        end
        local known = DRAW[arg.kind] or arg.kind == "tensor" or arg.fallback ~= ""
        op.free = op.free and known and true or false
      end
      list[#list + 1] = op
    end
  end
  return list
end

local OPS, SMOOTH, TANGLED = ops_of(), {}, {}
for _, op in ipairs(OPS) do
  if op.grad then SMOOTH[#SMOOTH + 1] = op end
  if op.free and (op.view or op.derived or op.inplace) then TANGLED[#TANGLED + 1] = op end
end

-- ---- a call ----

-- x, or another value of the same shape.
local function other(x, values, dtype)
  if not registry.isfloat(x) then return x end
  local fit = {}
  for _, y in ipairs(values) do
    if registry.isfloat(y) and y.shape == x.shape then fit[#fit + 1] = y end
  end
  return #fit > 0 and math.random() < 0.8 and one_of(fit) or x:to(dtype)
end

local function changed(v, arg)
  if math.random() < 0.75 then return v end
  if type(v) == "number" then return number() end
  if type(v) == "boolean" then return not v end
  return type(v) == "string" and arg.choices and one_of(arg.choices) or v
end

local function from_example(op, values, dtype)
  local list = registry.map(one_of(op.examples).arguments(), function(x)
    return other(x, values, dtype)
  end)
  local named = plain(list[list.n]) and list[list.n] or {}
  for i, arg in ipairs(op.args) do -- sorted: the order of pairs is undefined
    if i <= list.n then list[i] = changed(list[i], arg) end
    if named[arg.name] ~= nil then named[arg.name] = changed(named[arg.name], arg) end
  end
  return list
end

local function from_kinds(op, values)
  local names, x = {}, nil
  for _, arg in ipairs(op.args) do
    if arg.kind == "tensor" then
      local y = one_of(values)
      for _ = 1, 3 do if x and y.shape ~= x.shape then y = one_of(values) end end
      x, names[arg.name] = x or y, y
    elseif DRAW[arg.kind] and (arg.fallback == "" or math.random() < 0.4) then
      names[arg.name] = DRAW[arg.kind](x, arg)
    end
  end
  return {n = 1, names}
end

-- All names of a call's random seed begin with seed.
local function sow(arguments, seed)
  moth.manual_seed(seed)
  for i = 1, arguments.n do
    local v = arguments[i]
    if plain(v) and v.generator then v.generator:manual_seed(seed) end
  end
end

local function call(op, arguments)
  return registry.tensors {n = 1, {op.fn(unpack(arguments, 1, arguments.n))}}
end

local function copies(list)
  local new = {}
  for i, x in ipairs(list) do new[i] = x:detach():clone() end
  return new
end

local function text_of(list)
  local text = {}
  for i, x in ipairs(list) do
    text[i] = ("%s %s %s"):format(tostring(x.dtype), tostring(x.shape), bits(x))
  end
  return table.concat(text, "\n")
end

-- ---- a program ----

-- A call that works, as a step: the numbers of its values, and copies of its tensors and results.
-- Nil after TRIES calls that raise; those must not have written anything.
local function drawn(ops, values, dtype)
  for _ = 1, TRIES do
    local op, at = one_of(ops), {}
    local arguments = op.free and flag() and from_kinds(op, values)
      or from_example(op, values, dtype)
    local tensors = registry.tensors(arguments)
    for i, x in ipairs(tensors) do
      for k, y in ipairs(values) do if rawequal(x, y) then at[i] = k end end
    end
    local step = {op = op, arguments = arguments, at = at, before = copies(tensors),
                  seed = math.random(1e6)}
    sow(arguments, step.seed)
    local ok, results = pcall(call, op, arguments)
    if not ok and text_of(tensors) ~= text_of(step.before) then
      error(op.name .. " raised, and wrote: " .. results, 0)
    end
    local most = ok and #results > 0 and 0 or MOST
    for _, y in ipairs(ok and results or {}) do most = math.max(most, y:numel()) end
    if most < MOST then
      step.after = copies(results)
      return step, results
    end
  end
end

local function started(inputs, leaves)
  local values = copies(inputs)
  for i = 1, leaves do values[i]:requires_grad_() end
  return values
end

--- The program of a seed: inputs (the first `leaves` require gradients) and steps. A third of the
-- programs consists of views and elementwise ops that write into each other. A smooth program is
-- in float64 and uses only ops with gradients.
function fuzz.program(seed, smooth)
  math.randomseed(seed)
  moth.manual_seed(seed)
  local dtype, inputs = smooth and moth.float64 or one_of(DTYPES), {}
  for i = 1, INPUTS do inputs[i] = moth.randn(one_of(SHAPES), {dtype = moth.float64}):to(dtype) end
  local program = {seed = seed, inputs = inputs, leaves = smooth and 2 or math.random(0, 2),
                   steps = {}}
  local values = started(inputs, program.leaves)
  local ops = smooth and SMOOTH or math.random() < 0.3 and TANGLED or OPS
  for _ = 1, math.random(2, 12) do
    local step, results = drawn(ops, values, dtype)
    program.steps[#program.steps + 1] = step
    for _, y in ipairs(results or {}) do values[#values + 1] = y end
  end
  return program
end

-- The arguments of a step with its tensors replaced.
local function with(step, tensors) return registry.replace(step.arguments, tensors) end

--- Restarts the random generator for the next run; not in a captured step.
function fuzz.sow(program)
  for _, step in ipairs(program.steps) do sow(step.arguments, program.seed) end
end

-- The gradient of a leaf; a sparse gradient is made dense.
local function grad_of(x)
  local grad = x.grad
  return grad ~= nil and grad.is_sparse and grad:to_dense() or grad
end

-- The final values of a program and the gradients of its leaves, if any; the loss, as a tensor;
-- the values themselves.
local function walk(program, inputs)
  local values, loss = started(inputs, program.leaves), nil
  for _, step in ipairs(program.steps) do
    local tensors = {}
    for i, x in ipairs(step.before) do
      tensors[i] = step.at[i] and values[step.at[i]] or x:clone()
    end
    local results = call(step.op, with(step, tensors))
    for _, y in ipairs(results) do values[#values + 1] = y end
  end
  local given = copies(values)
  for i = program.leaves + 1, #values do
    local y = values[i]
    if y.requires_grad and registry.isfloat(y) then
      local weights = moth.arange(y:numel(), {dtype = moth.float64}):cos():reshape(y.shape)
      local part = (y:double() * weights):sum()
      loss = loss and loss + part or part
    end
  end
  if loss then
    loss:backward()
    for i = 1, program.leaves do given[#given + 1] = grad_of(values[i]) end
  end
  return given, loss, values
end

--- The results of a program on these inputs: final values, and gradients of the leaves.
function fuzz.run(program, inputs) return (walk(program, inputs)) end

--- The results of a run; nil and the error if it raises. The backward pass may raise after writes.
function fuzz.outcome(program, inputs)
  fuzz.sow(program)
  local ok, results = pcall(fuzz.run, program, inputs)
  return ok and results or nil, results
end

--- A single step, on copies of its tensors that `change` returns.
function fuzz.step(step, change)
  local tensors = {}
  for i, x in ipairs(step.before) do tensors[i] = change(x:clone()) end
  sow(step.arguments, step.seed)
  return call(step.op, with(step, tensors))
end

--- Other inputs for the same program: the same numbers permuted.
function fuzz.permuted(inputs)
  local new = {}
  for i, x in ipairs(inputs) do new[i] = x:flatten():flip {1}:reshape(x.shape):clone() end
  return new
end

local CLOSE = {[moth.float16] = 2e-2, [moth.bfloat16] = 1e-1, [moth.float32] = 1e-3,
  [moth.float64] = 1e-8}

-- The first word that differs between two texts, and its position.
local function apart(wanted, got)
  local words, k = {}, 0
  for word in wanted:gmatch "%S+" do words[#words + 1] = word end
  for word in got:gmatch "%S+" do
    k = k + 1
    if word ~= words[k] then
      return ("word %d is %s, wanted %s, of\n%s"):format(k, word, tostring(words[k]),
        #wanted > 600 and wanted:sub(1, 600) .. " ..." or wanted)
    end
  end
  return "it ends early"
end

--- The difference between two lists of results: bit for bit, or with `close` by more than the
-- rounding of the largest number; nil if there is none.
function fuzz.differ(wanted, got, close)
  if #wanted ~= #got then return ("%d results, wanted %d"):format(#got, #wanted) end
  for i, x in ipairs(wanted) do
    local y = got[i]:cpu()
    local near = text_of {x} == text_of {y}
    if not near and close and x.dtype == y.dtype and x.shape == y.shape then
      local a, b = x:double():nan_to_num(), y:double():nan_to_num()
      local most = math.max(1, a:abs():max():item())
      near = (a - b):abs():max():item() <= (CLOSE[x.dtype] or 0) * most
    end
    if not near then return ("result %d: %s"):format(i, apart(text_of {x}, text_of {y})) end
  end
end

--- The difference between a run on one thread and a run on four, in a scope.
function fuzz.again_differs(program)
  moth.set_num_threads(1)
  local wanted, refused = fuzz.outcome(program, program.inputs)
  local got, why
  moth.set_num_threads(4)
  moth.scope(function()
    got, why = fuzz.outcome(program, program.inputs)
    moth.keep(got or {})
  end)
  if got and wanted then return fuzz.differ(wanted, got) end
  return (got or wanted) and (wanted and why or refused)
end

local H = 1e-5

-- The loss of a program with its leaves moved by h.
local function moved(program, h)
  local inputs = copies(program.inputs)
  for i = 1, program.leaves do inputs[i] = inputs[i] + h * inputs[i]:cos() end
  fuzz.sow(program)
  return select(2, walk(program, inputs)):item()
end

--- Compares a program's gradient with the numerical derivative of its loss along one direction, if
-- both one-sided derivatives agree; nil if they match.
function fuzz.derivative_differs(program)
  fuzz.sow(program)
  local _, loss, values = walk(program, program.inputs)
  if not loss then return end
  local flow = 0
  for i = 1, program.leaves do
    local grad = grad_of(values[i])
    if grad ~= nil then flow = flow + (grad * program.inputs[i]:cos()):sum():item() end
  end
  local here, back, on = loss:item(), moved(program, -H), moved(program, H)
  local slope, left, right = (on - back) / (2 * H), (here - back) / H, (on - here) / H
  local unit = math.max(1, math.abs(slope), math.abs(here))
  if not (math.abs(left - right) < 1e-3 * unit) then return end -- a kink, a jump or not finite
  if not (math.abs(slope - flow) < 1e-4 * unit) then
    return ("the gradient along a direction is %.9g, the slope %.9g"):format(flow, slope)
  end
  return nil
end

--- The calls of a program, as text.
function fuzz.text(program)
  local lines = {}
  for k, step in ipairs(program.steps) do
    local tensors = {}
    for i, x in ipairs(step.before) do
      tensors[i] = (step.at[i] and "#" .. step.at[i] .. " " or "")
        .. x.dtype.name .. tostring(x.shape)
    end
    lines[k] = ("  %s(%s)"):format(step.op.name, table.concat(tensors, ", "))
  end
  return table.concat(lines, "\n")
end

--- Runs `check` on `count` programs, from the seed `first` on; it returns a text if something is
-- wrong. `smooth` selects smooth programs.
function fuzz.each(first, count, check, smooth)
  for seed = first, first + count - 1 do
    local program
    local ok, trouble = pcall(function()
      program = fuzz.program(seed, smooth)
      return check(program)
    end)
    if not ok or trouble then
      error(("MOTH_FUZZ_SEED=%d shows it again: %s\nof the program\n%s"):format(seed,
        tostring(trouble), program and fuzz.text(program) or "  (still drawn)"), 0)
    end
    if seed % 50 == 0 then moth.collect() end
  end
end

return fuzz
