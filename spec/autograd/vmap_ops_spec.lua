-- The examples of each op under vmap, and their gradients, equal a loop over the samples, for each
-- choice of batched tensors. MOTH_SPEC_OP=pattern selects ops.

local moth = require "moth"
local raised = require "spec.support.batching"
local registry = require "spec.support.registry"
local lib = require "moth.binding.lib"

local SAMPLES, ROWS = 3, 16 -- vmap loops over a smaller batch of gradients
local pattern = os.getenv "MOTH_SPEC_OP" or "."

-- ---- samples ----

-- The arguments of the example; floats are redrawn in f64 within their domain.
local function drawn(example)
  local arguments, i = example.arguments(), 0
  return (registry.map(arguments, function(x)
    i = i + 1
    if not registry.isfloat(x) then return x end
    return registry.redraw(x, example.domain, i)
  end))
end

-- The tensors of several samples: stacked if `which` selects them, else those of the first sample.
-- Returns nil if the shapes of an example differ from draw to draw.
local function batch_of(samples, which)
  local columns, dims, firsts = {}, {}, registry.tensors(samples[1])
  for k = 1, #firsts do
    columns[k], dims[k] = firsts[k], moth.none
    if which(k) then
      local column = {}
      for i = 1, SAMPLES do
        column[i] = registry.tensors(samples[i])[k]
        if column[i].shape ~= firsts[k].shape then return nil end
      end
      columns[k], dims[k] = moth.stack(column), 1
    end
  end
  return columns, dims
end

local function row_of(columns, dims, i)
  local row = {}
  for k, x in ipairs(columns) do row[k] = dims[k] == 1 and x:select(1, i) or x end
  return row
end

-- ---- results ----

-- The tensors among the results of a call, with lists flattened.
local function flat(...)
  local list = {}
  local function walk(v)
    if lib.istensor(v) then list[#list + 1] = v
    elseif type(v) == "table" then for _, x in ipairs(v) do walk(x) end end
  end
  for i = 1, select("#", ...) do walk((select(i, ...))) end
  return list
end

local function close(want, got)
  if want.dtype ~= got.dtype or want.shape ~= got.shape then return false end
  if not want.dtype.is_floating_point then return moth.equal(want, got) end
  local loose = want.dtype == moth.float64 and 1e-9 or want.dtype == moth.float32 and 1e-4 or 2e-2
  return moth.allclose(want, got, {rtol = loose, atol = loose, equal_nan = true})
end

-- The call of an op with tensors as arguments; in place on a copy.
local function call_of(op, arguments)
  return function(...)
    local list = {...}
    if op.mutates then list[1] = list[1]:clone() end
    local full = registry.replace(arguments, list)
    return (flat(op.fn(unpack(full, 1, full.n))))
  end
end

-- The gradient of the sum of the float results with respect to the float tensors.
local function gradient_of(f, columns)
  local floats = {}
  for k, x in ipairs(columns) do
    if registry.isfloat(x) then floats[#floats + 1] = k end
  end
  if #floats == 0 then return nil end
  local function loss(...)
    local sum = 0
    for k, y in ipairs(f(...)) do
      if registry.isfloat(y) then sum = sum + (y * (1 + 0.1 * k)):sin():sum() end
    end
    return sum
  end
  return moth.func.grad(loss, {argnums = floats})
end

local function compare(f, columns, dims)
  local rows = {}
  for i = 1, SAMPLES do
    local ok, result = pcall(f, unpack(row_of(columns, dims, i)))
    if not ok then return end -- the op takes no tensors of this dtype
    rows[i] = result
  end
  local calls = 0
  local got = moth.vmap(function(...)
    calls = calls + 1
    return f(...)
  end, {in_dims = dims, randomness = "different"})(unpack(columns))
  for k = 1, #rows[1] do
    local column = {}
    for i = 1, SAMPLES do column[i] = rows[i][k] end
    local same, want = pcall(moth.stack, column)
    if same and not close(want, got[k]) then
      error(("result %d is\n%s\nwanted\n%s"):format(k, tostring(got[k]), tostring(want)), 0)
    end
  end
  return calls
end

-- A batch of gradients of the first float result with respect to the float tensors.
local function compare_passes(f, columns)
  local inputs = {}
  for k, x in ipairs(columns) do
    if registry.isfloat(x) then
      columns[k] = x:detach():clone():requires_grad_()
      inputs[#inputs + 1] = columns[k]
    end
  end
  local ok, results = pcall(f, unpack(columns))
  local y = ok and results[1]
  if not (y and registry.isfloat(y) and y.requires_grad) then return end
  local size = {ROWS, unpack(y.shape)}
  local grads = moth.randn(size, {dtype = moth.float64}):to(y.dtype)
  for _, again in ipairs {false, true} do
    local options = {grad_outputs = {grads}, is_grads_batched = true, retain_graph = true,
                     create_graph = again, allow_unused = true}
    local fine, got = pcall(function() return {moth.autograd.grad({y}, inputs, options)} end)
    options.is_grads_batched = false
    local rows = {}
    for i = 1, ROWS do
      options.grad_outputs = {grads[i]}
      rows[i] = {moth.autograd.grad({y}, inputs, options)}
    end
    for k = 1, #inputs do
      local column = {}
      for i = 1, ROWS do column[i] = rows[i][k] end
      if column[1] ~= nil and column[1].is_sparse then return end
      if not fine then error(got, 0) end
      if (got[k] == nil) ~= (column[1] == nil) or got[k] and not close(moth.stack(column), got[k])
      then
        error(("gradient %d is\n%s\nwanted\n%s"):format(k, tostring(got[k]),
          tostring(column[1] and moth.stack(column))), 0)
      end
    end
  end
end

-- Ops that vmap runs in a loop: they keep state between calls. In-place ops without a batching rule
-- also run in a loop.
local LOOPED = {embedding = true, instance_norm = true}

local function check(op, example)
  local samples = {}
  for i = 1, SAMPLES do samples[i] = drawn(example) end
  local n = #registry.tensors(samples[1])
  if n == 0 or n > 8 then return end
  for some = 0, n > 1 and n or 0 do
    local columns, dims = batch_of(samples, function(k) return some == 0 or k == some end)
    if columns and not (op.mutates and dims[1] ~= 1) then
      local f = call_of(op, samples[1])
      if not op.random then
        local calls = compare(f, columns, dims)
        if calls and calls > 1 and not LOOPED[op.name] and not op.mutates then
          error("was called for each sample", 0)
        end
      end
      local gradient = op.grad and not op.random and gradient_of(f, columns)
      if gradient then compare(gradient, columns, dims) end
      if gradient and some == 0 then compare_passes(f, registry.tensors(samples[1])) end
    end
  end
end

describe("vmap of", function()
  for _, op in ipairs(registry.ops()) do
    local reshapes = op.view and op.mutates
      or op.name:find "_$" and not op.mutates -- steps of optimizers, without a result
    if op.name:find(pattern) and not op.name:find "^empty" and not reshapes then
      it(op.name .. " equals a loop over the samples", function()
        for _, example in ipairs(op.examples) do
          local ok, message = pcall(check, op, example)
          if not ok then
            error(("%s(%s): %s"):format(op.name, example.code, tostring(message)), 0)
          end
        end
        assert.same({}, raised())
        moth.collect()
      end)
    end
  end
end)
