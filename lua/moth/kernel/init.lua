--- init.lua -- moth.kernel: compiles an elementwise Lua function to one pass over memory.
--
--     local swiglu = moth.kernel(function(x, y) return x * moth.sigmoid(x) * y end)
--     local z = swiglu(a, b)
--
-- A call finds the program for its arguments by a key: six bits for each argument. The first such
-- call traces the function (trace.lua). Calls run straight-line code that is generated for each
-- kernel and each program, as for ops (writer.lua). Gradients have a separate program, traced at
-- the first backward pass; the graph has one node, which saves only the arguments.

local ffi = require "ffi"
local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local dtypes = require "moth.tensor.dtype"
local errors = require "moth.error"
local grads = require "moth.kernel.grad"
local lib = require "moth.binding.lib"
local program = require "moth.kernel.program"
local trace = require "moth.kernel.trace"

local C, ctx, Handle = lib.C, lib.ctx, lib.Handle
local plainly, agree_all = grads.plainly, grads.agree_all
local failing, compile_tie = grads.failing, grads.compile_tie
local istensor = lib.istensor
local concat, format = table.concat, string.format

local kernels = {}

local MOST_ARGS, MOST_RESULTS = 8, 4
local MAX_TRACES = 32 -- programs of one kernel; further kinds run the plain function

local Kernel = {__name = "kernel"}

-- ---- tracing the function at its first call ----

local function describe_args(self, n, ...)
  local specs, tensors = {}, {}
  for i = 1, n do
    local v = select(i, ...)
    local kind = type(v)
    if istensor(v) then
      local info = lib.inspect(v, self.name, self.params[i])
      local spec = {dtype = info.dtype, zero = info.ndim == 0, from = #tensors + 1,
                    device = info.device > 0 and v.device}
      specs[i], tensors[spec.from] = spec, spec
    elseif kind == "number" or kind == "boolean" or kind == "string" or kind == "nil" then
      specs[i] = {value = v}
    else
      errors.argument(self.name, self.params[i], "a tensor, number, boolean or string is needed, "
        .. "got " .. errors.describe(v), "E_TYPE")
    end
  end
  if #tensors == 0 then
    errors.raise(self.name .. ": at least one tensor is needed", "E_TYPE")
  end
  return specs, tensors
end

-- Raises an error of the function itself, which does not depend on the shapes of its arguments.
local function misfit(call, why, code)
  call.explained = true
  errors.raise(why, code)
end

-- Warns once that the plain function runs instead of a program, and why.
local function warn(self, why)
  if self.warned then return end
  self.warned = true
  require("moth.base.warn")(format("%s runs op by op: %s", self.name, why))
end

local function read_forward(self, p, call, use)
  local agree, steady = trace.read(p.tensors, function(inputs)
    local results = trace.in_modes(p, false, plainly, call, p, inputs)
    if results.n == 0 or results.n > MOST_RESULTS then
      misfit(call, format("%s returns %d values; 1 to %d tensors are wanted", self.name, results.n,
        MOST_RESULTS), "E_TYPE")
    end
    for k = 1, results.n do
      if not istensor(results[k]) then
        misfit(call, format("%s returns %s as value %d; a tensor is wanted", self.name,
          errors.describe(results[k]), k), "E_TYPE")
      end
    end
    return results
  end, use)
  if not agree then
    errors.raise(self.name .. (steady
      and " depends on the shape of its arguments; pass sizes to it as numbers"
      or " differs in each trace (a number from math.random or a clock?); pass "
        .. "changing values as a tensor of one element"), "E_UNSUPPORTED")
  end
end

local OTHER_SHAPES = "; a kernel's function is traced with small tensors of other shapes and "
  .. "values, so it cannot depend on them; pass outside tensors as arguments"

-- The program for arguments of these kinds, or a marker that the plain function runs.
local function make(self, n, ...)
  local specs, tensors = describe_args(self, n, ...)
  local p = {kernel = self, specs = specs, tensors = tensors, backwards = {},
             autocast = C.moth_autocast(ctx, -2), default = C.moth_default_dtype(ctx, -1),
             flows = {}, differs = false, all_zero = true}
  if self.nread >= MAX_TRACES then
    warn(self, "it was traced for " .. MAX_TRACES .. " kinds of arguments; pass a number that "
      .. "differs at each call as a tensor of one element, moth.tensor(x)")
    return nil
  end
  self.nread = self.nread + 1
  for _, spec in ipairs(tensors) do
    p.all_zero = p.all_zero and spec.zero
    p.some_zero = p.some_zero or spec.zero
    p.device = p.device or spec.device
  end
  p.summed = p.some_zero and not p.all_zero
  local q, why
  local call = {fn = self.fn, name = self.name}
  local ok, problem = pcall(read_forward, self, p, call, function(reading)
    q, why = program.new(reading, tensors, reading.wanted)
    if not q then return end
    q.inputs, q.run = {}, program.compile(q, nil, failing)
    for k = 1, q.results do q.inputs[k] = k end
    if not agree_all({q}, reading) then
      q, why = nil, "its results would differ from the function's"
      return
    end
    program.bring(q, p.device)
  end)
  if not ok then
    local clear = call.explained or errors.code() == "E_UNSUPPORTED"
    if not clear then kernels.run_plain(self, ...) end -- its error may be clearer
    error(problem .. (clear and "" or OTHER_SHAPES), 0)
  end
  if not q then
    warn(self, why)
    p.plain = true
    return p
  end
  p.program, p.results, p.apart = q, q.results, q.apart -- q keeps its constants alive
  for k = 1, q.results do
    p.flows[k] = q.dtypes[k] >= C.MOTH_F16 and q.dtypes[k]
    p.differs = p.differs or p.flows[k] and true
  end
  for i, from in ipairs(q.uses) do -- from here on: positions of arguments
    for place, spec in ipairs(specs) do
      if spec.from == from then q.uses[i] = place end
    end
  end
  p.run = program.compile(q, n, function(st, ...)
    local results = lib.pack(kernels.run_plain(self, ...))
    p.failed, p.lacking = true, st == C.MOTH_E_UNSUPPORTED
    return unpack(results, 1, results.n)
  end)
  p.tie = p.differs and compile_tie(p)
  return p
end

-- ---- calls ----

local CALL = [[
local kernels, C, ctx, Handle, istype, info, programs, lib, trace, bor, band, IS_GRAD = ...
local type = type
return function(self%s, extra)
  local key, flags = 0, 0
%s
  local p = programs[key]
  if not p or p.autocast ~= C.moth_autocast(ctx, -2) or p.default ~= C.moth_default_dtype(ctx, -1)
      or (p.matches and not p.matches(%s)) or trace.reading or lib.trace
      or type(extra) ~= "nil" then
    p = kernels.look(self, key, extra, %d%s)
  end
  if not p or p.plain or (p.apart and not kernels.one_shape(p%s)) then
    return kernels.run_plain(self%s)
  end
  local run = p.run
  if lib.profile then run = kernels.profiled(self, run) end
  local y1, y2, y3, y4 = run(%s)
  if band(flags, IS_GRAD) ~= 0 and p.tie and not p.failed and C.moth_grad_mode(ctx, -1) == 1 then
    if p.results == 1 then p.tie(y1%s)
    elseif p.results == 2 then p.tie(y1, y2%s)
    elseif p.results == 3 then p.tie(y1, y2, y3%s)
    else p.tie(y1, y2, y3, y4%s) end
  end
  if p.failed then p.failed, p.plain = false, p.lacking end
  if p.results == 1 then return y1 end
  if p.results == 2 then return y1, y2 end
  if p.results == 3 then return y1, y2, y3 end
  return y1, y2, y3, y4
end]]

-- Six bits of the key: dtype, whether it is 0-d, device; 63: not a tensor.
local READ = [[
  if istype(Handle, $a) and C.moth_inspect(ctx, $a, info) >= 0 then
    key = key * 64 + info.dtype + (info.ndim == 0 and 10 or 0)
      + (info.device > 2 and 40 or info.device * 20)
    flags = bor(flags, info.flags)
  else key = key * 64 + 63 end]]

local function written(self)
  local names, reads, n = {}, {}, #self.params
  for i = 1, n do
    names[i] = "a" .. i
    reads[i] = READ:gsub("%$a", names[i])
  end
  local all = concat(names, ", ")
  local more = n > 0 and ", " .. all or ""
  local text = format(CALL, more, concat(reads, "\n"), all, n, more, more, more, all, more, more,
    more, more)
  local bits = require "bit"
  return assert(lib.loadstring(text, "=[moth.kernel]"))(kernels, C, ctx, Handle, ffi.istype,
    ffi.new "moth_tensor_info", self.programs, lib, trace, bits.bor, bits.band, C.MOTH_IS_GRAD)
end

--- Calls a kernel's function without a program.
function kernels.call_plain(call, ...)
  local results = lib.pack(call.fn(...))
  call.returned = true
  return unpack(results, 1, results.n)
end
errors.user_call(kernels.call_plain)

--- The function itself.
function kernels.run_plain(self, ...)
  local call = {fn = self.fn, name = self.name}
  return kernels.call_plain(call, ...)
end

--- Wraps a program in a range of the profiler with the kernel's name.
function kernels.profiled(self, run)
  return function(...) return require("moth.profiler").within(self.name, run, ...) end
end

--- Checks that all arguments with dimensions have the same shape.
function kernels.one_shape(p, ...)
  local first
  for i, spec in ipairs(p.specs) do
    if spec.from and not spec.zero then
      local shape = select(i, ...).shape
      if first and shape ~= first then return false end
      first = shape
    end
  end
  return true
end

-- Returns a function that compares the constants among the arguments with those of p: 0 differs
-- from -0, NaN equals NaN.
local function matcher(p)
  local args, tests, values = {}, {}, {}
  for i, spec in ipairs(p.specs) do
    args[i] = "a" .. i
    if not spec.from then
      values[i] = spec.value
      local v = spec.value
      if v ~= v then tests[#tests + 1] = format("a%d ~= a%d", i, i)
      else tests[#tests + 1] = format("a%d == v[%d]", i, i) end
      if v == 0 then
        tests[#tests + 1] = format("1 / a%d == %shuge", i, 1 / v > 0 and "" or "-")
      end
    end
  end
  if #tests == 0 then return nil end
  return assert(lib.loadstring(format("local v, huge = ... return function(%s) return %s end",
    concat(args, ", "), concat(tests, " and ")), "=[moth.kernel]"))(values, math.huge)
end

--- The program for a call whose key is not cached; nil if the plain function must run.
function kernels.look(self, key, extra, n, ...)
  if type(extra) ~= "nil" then
    errors.argument(self.name, "#" .. n + 1, format("it takes %d arguments", n))
  end
  if trace.reading or lib.trace then return nil end -- inside another kernel; in anomaly mode
  for i = 1, n do -- the function raises for freed tensors
    local v = select(i, ...)
    if istensor(v) and C.moth_alive(ctx, v) == 0 then return nil end
  end
  local autocast, default = C.moth_autocast(ctx, -2), C.moth_default_dtype(ctx, -1)
  local list = self.lists[key] or {}
  self.lists[key] = list
  for _, p in ipairs(list) do
    if p.autocast == autocast and p.default == default and (not p.matches or p.matches(...)) then
      self.programs[key] = p
      return p
    end
  end
  local p = make(self, n, ...)
  if not p then return nil end
  p.matches = matcher(p)
  list[#list + 1] = p
  self.programs[key] = p
  self.read[#self.read + 1] = p
  return p
end

-- ---- moth.kernel ----

local function named(list)
  local names = {}
  for i, code in ipairs(list) do names[i] = dtypes.by_code[code].name end
  return concat(names, ", ")
end

function Kernel:__tostring()
  local lines = {}
  lines[1] = format("moth.%s(%s)", self.name, concat(self.params, ", "))
  for _, p in ipairs(self.read) do
    local from = {}
    for i, spec in ipairs(p.specs) do
      from[i] = spec.from and dtypes.by_code[spec.dtype].name .. (spec.zero and " ()" or "")
        or tostring(spec.value)
    end
    local line = "  " .. concat(from, ", ")
    if p.plain then
      line = line .. ": op by op"
    else
      local q = p.program
      line = line .. " -> " .. named({unpack(q.dtypes, 1, q.results)}) .. ": "
        .. concat(q.names, ", ") .. format("; %d read, %d between, %d written",
          #q.uses + #q.constants, q.between, q.results)
    end
    lines[#lines + 1] = line
  end
  if #lines == 1 then lines[2] = "  not called yet" end
  return concat(lines, "\n")
end

local parse = define.signature("kernel", {
  {"function", "fn", "a function of elements: tensors and numbers in, 1 to 4 tensors out"},
})

-- The help text of a kernel.
local function read_signature(record)
  local args, any = {}, require("moth.binding.kinds").find "any"
  for i, name in ipairs(record.params) do
    args[i] = {name = name, kind = "any", row = any, required = true, fallback = "", doc = ""}
  end
  return {name = record.name, args = args, doc = "A kernel: one pass over its arguments.",
          examples = "", outputs = {}, lua = true, method = false, file = record.file}
end

--- Compiles an elementwise function to one pass over memory, on the CPU and on the GPU.
--
-- fn is ordinary code on tensors (operators, methods, moth.nn.functional). Each element of a
-- result may depend only on the elements at the same position: arithmetic, comparisons, where,
-- clamp, activations, conversions. Intermediate values are never written to memory. The results
-- are those of fn, bit for bit.
--
-- fn is traced at its first call, once for each kind of arguments: their dtypes and devices,
-- which of them are single elements, the values of numbers, booleans and strings. fn may branch
-- on these. Everything else is fixed by the trace: upvalues, globals, a module's `training`, and
-- the properties of tensors in Lua (`requires_grad`, `is_contiguous`, whether `a == b` are the
-- same tensor). Gradients are traced at the first backward pass, which raises on the CPU if fn
-- returns other values by then. Pass a value that changes as an argument: a number, boolean or
-- string if it has few values, else a tensor of one element, because at most 32 kinds are traced;
-- for further kinds fn runs as it is, with a warning.
--
-- Sums, matrix products, indexing, views, random numbers, reading values (`item`) and tensors
-- that are not arguments raise when fn is traced. More than 8 arguments raise at once. With more
-- than 8 tensors and constants in all, or more than 48 functions, fn runs as it is, with a
-- warning.
--
-- Gradients are one pass too, which computes intermediate values again from the arguments; only
-- the arguments are saved. That takes less memory (42 to 11 MiB at most for a gelu written out,
-- of a million elements), and is faster if memory bandwidth is the limit: from about a million
-- elements on the CPU. Smaller tensors train slower than with plain code (1.1 to 1.7 times the
-- time at 64 to 100 thousand elements); GPUs have not been measured. Gradients are those of fn
-- bit for bit if no argument is broadcast, else nearly. Second derivatives run fn. Results may be
-- written in place; arguments may not be written before the backward pass.
-- @param fn  a function with 1 to 8 arguments
-- @return the kernel: call it like fn; `kernel.fn` is fn, `print(kernel)` shows its programs
function kernels.kernel(...)
  local fn = parse(...)
  if type(fn) ~= "function" then fn = rawget(fn, "fn") or fn end
  if type(fn) ~= "function" then
    errors.argument("kernel", "fn", "a module will not do; pass a function of tensors, such as "
      .. "function(x) return net(x) end", "E_TYPE")
  end
  local info = debug.getinfo(fn, "uS")
  if info.isvararg or info.nparams < 1 or info.nparams > MOST_ARGS then
    errors.argument("kernel", "fn", format("a function with 1 to %d arguments is needed, %s",
      MOST_ARGS, info.isvararg and "not with any number of them"
      or "got one with " .. (info.nparams == 0 and "none" or info.nparams)), "E_TYPE")
  end
  local params = {}
  for i = 1, info.nparams do params[i] = debug.getlocal(fn, i) end
  local name = info.short_src:match("[^/\\]+$") .. ":" .. info.linedefined
  local self = {fn = fn, name = "kernel of " .. name, params = params, programs = {}, lists = {},
                nread = 0, warned = false, read = {}}
  local call = written(self)
  local meta = {}
  for key, value in pairs(Kernel) do meta[key] = value end
  meta.__call = call
  setmetatable(self, meta)
  bind.register(self, {name = self.name, params = params, read = read_signature,
                       file = info.source:gsub("^@", "")})
  return self
end

define.takes(kernels.kernel, parse)

return kernels
