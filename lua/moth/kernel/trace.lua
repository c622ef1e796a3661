--- trace.lua -- traces an elementwise function: records its steps. program.lua converts them to a
-- program that the op `fused` runs in one pass.
--
-- The function runs three times on small sample tensors of different shapes and values
-- (core/capture/trace.c logs its steps): the steps must be the same each time. The backward of a
-- function is traced in the same way.

local ffi = require "ffi"
local frames = require("moth.autograd").frames
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local C, ctx, Handle = lib.C, lib.ctx, lib.Handle

lib.declare "trace"

local concat = table.concat

local trace = {}

--- True while a function is traced: kernels that it calls are traced with it.
trace.reading = false

local F16 = C.MOTH_F16 -- the first floating-point dtype

-- ---- sample arguments ----

local SHAPES = {{5, 7}, {2}, {3, 2, 4}}

-- A tensor of different values on both sides of 0; tensors with different `turn` differ.
local function sample_tensor(dtype, shape, turn)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  local values, sizes = lib.slots(n), lib.int64s(math.max(#shape, 1))
  for d, size in ipairs(shape) do sizes[d - 1] = size end
  for i = 0, n - 1 do
    local v = (i * 0.6180339887 + turn * 0.3819660113 + 0.137) % 1
    if dtype == C.MOTH_BOOL then v = v < 0.5 and 1 or 0
    elseif dtype < F16 then v = 1 + math.floor(v * 7)
    else v = v * 2.2 - 0.9 end
    values[i].number = v
  end
  local x = Handle()
  lib.check(C.moth_from_slots(ctx, dtype, sizes, #shape, values, n, 0, x), "kernel")
  return lib.adopt(x, 0)
end

-- ---- tracing ----

-- Runs f() in the modes of a call; the modes are always restored.
local function in_modes(modes, grad, f, ...)
  local default = C.moth_default_dtype(ctx, modes.default)
  local results = lib.pack(pcall(frames.run, modes.autocast, "kernel", lib.modes.autocast,
    frames.run, grad and 1 or 0, "kernel", lib.modes.grad, f, ...))
  C.moth_default_dtype(ctx, default)
  if not results[1] then error(results[2], 0) end
  return unpack(results, 2, results.n)
end

--- f(...) in an autocast mode and with a default dtype.
trace.in_modes = in_modes

local function bytes_of(x)
  local info = lib.inspect(x)
  local size = tonumber(info.numel * info.itemsize)
  local buffer = lib.array("uint8_t", math.max(size, 1))
  lib.check(C.moth_bytes(ctx, x, buffer, size), "kernel")
  return ffi.string(buffer, size)
end

-- The logged steps, as tables.
local function logged_steps()
  local list, step = {}, ffi.new "moth_traced"
  while C.moth_trace_step(ctx, #list, step) == 1 do
    local s = {name = ffi.string(step.name), code = step["function"], dtype = step.dtype,
               values = {}, dtypes = {}, numbers = {}}
    for k = 1, step.nvalues do
      s.values[k], s.dtypes[k] = step.value[k - 1], step.dtypes[k - 1]
    end
    for k = 1, 3 do s.numbers[k] = step.told ~= 0 and step.numbers[k - 1] or 0 end
    list[#list + 1] = s
  end
  return list
end

-- The constants among the operands and results: number of the value -> {tensor, dtype, bytes}.
local function logged_constants(steps, wanted)
  local found = {}
  local function look(v)
    if found[v] ~= nil then return end
    local h = Handle()
    lib.check(C.moth_trace_constant(ctx, v, h), "kernel")
    if h._slot == 0 then
      found[v] = false
      return
    end
    lib.adopt(h, 0)
    C.moth_keep_always(ctx, h)
    found[v] = {tensor = h, dtype = lib.inspect(h).dtype, bytes = bytes_of(h)}
  end
  for _, s in ipairs(steps) do
    for k = 2, #s.values do look(s.values[k]) end
  end
  for i = 1, wanted.n do
    if wanted[i] then look(wanted[i]) end
  end
  return found
end

-- A text of all properties that two traces must share.
local function text_of(reading)
  local parts = {}
  for _, s in ipairs(reading.steps) do
    parts[#parts + 1] = concat({s.code, s.dtype, concat(s.values, " "), concat(s.dtypes, " "),
      ("%.17g %.17g %.17g"):format(unpack(s.numbers))}, ",")
    for k = 2, #s.values do
      local c = reading.constants[s.values[k]]
      if c then parts[#parts + 1] = c.dtype .. ":" .. c.bytes end
    end
  end
  for i = 1, reading.wanted.n do parts[#parts + 1] = tostring(reading.wanted[i] or "-") end
  return concat(parts, "\n")
end

-- Traces body(inputs), which returns a list of n tensors (with holes): the values to return.
-- specs: of the inputs, {dtype, zero (0-d)}.
local function read(specs, shape, turn, body, use)
  lib.check(C.moth_trace_begin(ctx), "kernel")
  trace.reading = true
  local reading = {ninputs = #specs, inputs = {}, dtypes = {}, wanted = {}}
  local ok, problem = errors.unyielding("a kernel's function", function()
    local handles = lib.handles(math.max(#specs, 1))
    for i, spec in ipairs(specs) do
      local x = sample_tensor(spec.dtype, spec.zero and {} or shape, turn + i)
      reading.inputs[i], reading.dtypes[i], handles[i - 1] = x, spec.dtype, x
    end
    lib.check(C.moth_trace_inputs(ctx, handles, #specs), "kernel")
    reading.results = body(reading.inputs)
    reading.wanted.n = reading.results.n
    for i = 1, reading.results.n do
      local y = reading.results[i]
      reading.wanted[i] = y and lib.check(C.moth_trace_value(ctx, y), "kernel") or false
    end
  end)
  C.moth_trace_end(ctx)
  trace.reading = false
  if ok then
    ok, problem = pcall(function()
      reading.steps = logged_steps()
      reading.constants = logged_constants(reading.steps, reading.wanted)
      reading.text = text_of(reading)
      if use then use(reading) end
    end)
  end
  C.moth_trace_free(ctx)
  if not ok then error(problem, 0) end
  return reading
end

--- Traces body three times. If all traces agree, calls use(reading) with the last one: the ops
-- that `use` runs are not part of a capture, and it may read values.
-- @param specs  a list for the inputs: {dtype =, zero = true for 0-d}
-- @param body   function(list of tensors) -> list of results with their number n; false for no
-- result
-- @return true if the traces agree; else false, and true if body is the same each time for one
-- shape
function trace.read(specs, body, use)
  local first = read(specs, SHAPES[1], 0, body)
  local agree = first.text == read(specs, SHAPES[2], 3, body).text
  if agree then
    read(specs, SHAPES[3], 5, body, function(last)
      agree = first.text == last.text
      if agree then use(last) end
    end)
  end
  if not agree then return false, read(specs, SHAPES[1], 0, body).text == first.text end
  return true
end

--- Returns true if two lists of tensors have the same bytes.
function trace.same_bytes(a, b, n)
  for i = 1, n do
    if (a[i] or false) ~= (b[i] or false) and (not a[i] or not b[i]
        or bytes_of(a[i]) ~= bytes_of(b[i])) then
      return false
    end
  end
  return true
end

return trace
