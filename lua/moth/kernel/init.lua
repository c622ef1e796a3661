--- init.lua -- moth.kernel: a function of elements, written in Lua, as one pass over memory.
--
--     local swiglu = moth.kernel(function(x, y) return x * moth.sigmoid(x) * y end)
--     local z = swiglu(a, b)
--
-- A call looks up the program for its arguments (trace.lua reads it at the first such call) by a
-- number: six bits for each argument. What runs is a straight line that is written for each kernel
-- and each program, as for ops (writer.lua). Gradients are a program of their own, read when they
-- are asked for first; their graph is one node, which keeps the arguments and nothing else.

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

local M = {}

local MOST_ARGS, MOST_RESULTS = 8, 4
local MOST_READ = 32 -- programs of one kernel; what comes then runs as the function does

local Kernel = { __name = "kernel" }

-- ---- reading the function at its first call ----

local function describe_args(self, n, ...)
  local specs, tensors = {}, {}
  for i = 1, n do
    local v = select(i, ...)
    local kind = type(v)
    if istensor(v) then
      local info = lib.inspect(v, self.name, self.params[i])
      local spec = { dtype = info.dtype, zero = info.ndim == 0, from = #tensors + 1,
                     device = info.device > 0 and v.device }
      specs[i], tensors[spec.from] = spec, spec
    elseif kind == "number" or kind == "boolean" or kind == "string" or kind == "nil" then
      specs[i] = { value = v }
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

-- What is wrong with the function itself, whatever the shapes of its arguments.
local function misfit(call, why, code)
  call.told = true
  errors.raise(why, code)
end

-- What runs instead where there is no program; why, unless that goes without saying.
local function warn(self, why)
  if self.warned then return end
  self.warned = true
  require "moth.base.warn"(format("%s runs op by op: %s", self.name, why))
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
      and " goes by the shape of its arguments; pass sizes to it as numbers"
      or " is another program each time it is read (a number from math.random or a clock?); pass "
        .. "what changes to it as a tensor of one element"), "E_UNSUPPORTED")
  end
end

local OTHER_SHAPES = "; a kernel's function is read with small tensors of other shapes and values, "
  .. "so it cannot go by these, and tensors from outside are to be arguments"

-- The program for arguments like these, or one that is plain.
local function make(self, n, ...)
  local specs, tensors = describe_args(self, n, ...)
  local p = { kernel = self, specs = specs, tensors = tensors, backwards = {},
              autocast = C.moth_autocast(ctx, -2), default = C.moth_default_dtype(ctx, -1),
              flows = {}, differs = false, all_zero = true }
  if self.nread >= MOST_READ then
    warn(self, "it was read for " .. MOST_READ .. " kinds of arguments; a number that is another "
      .. "at each call had better be a tensor of one element, moth.tensor(x)")
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
  local call = { fn = self.fn, name = self.name }
  local ok, problem = pcall(read_forward, self, p, call, function(reading)
    q, why = program.new(reading, tensors, reading.wanted)
    if not q then return end
    q.inputs, q.run = {}, program.compile(q, nil, failing)
    for k = 1, q.results do q.inputs[k] = k end
    if not agree_all({ q }, reading) then
      q, why = nil, "its results would not be those of the function"
      return
    end
    program.bring(q, p.device)
  end)
  if not ok then
    local clear = call.told or errors.code() == "E_UNSUPPORTED"
    if not clear then M.run_plain(self, ...) end -- which may say it better
    error(problem .. (clear and "" or OTHER_SHAPES), 0)
  end
  if not q then
    warn(self, why)
    p.plain = true
    return p
  end
  p.program, p.results, p.apart = q, q.results, q.apart -- q holds its constants
  for k = 1, q.results do
    p.flows[k] = q.dtypes[k] >= C.MOTH_F16 and q.dtypes[k]
    p.differs = p.differs or p.flows[k] and true
  end
  for i, from in ipairs(q.uses) do -- from here on by the arguments' own places
    for place, spec in ipairs(specs) do
      if spec.from == from then q.uses[i] = place end
    end
  end
  p.run = program.compile(q, n, function(st, ...)
    local results = lib.pack(M.run_plain(self, ...))
    p.failed, p.lacking = true, st == C.MOTH_E_UNSUPPORTED
    return unpack(results, 1, results.n)
  end)
  p.tie = p.differs and compile_tie(p)
  return p
end

-- ---- calls ----

local CALL = [[
local M, C, ctx, Handle, istype, info, programs, lib, trace, bor, band, IS_GRAD = ...
local type = type
return function(self%s, extra)
  local key, flags = 0, 0
%s
  local p = programs[key]
  if not p or p.autocast ~= C.moth_autocast(ctx, -2) or p.default ~= C.moth_default_dtype(ctx, -1)
      or (p.matches and not p.matches(%s)) or trace.reading or lib.trace
      or type(extra) ~= "nil" then
    p = M.look(self, key, extra, %d%s)
  end
  if not p or p.plain or (p.apart and not M.one_shape(p%s)) then
    return M.run_plain(self%s)
  end
  local run = p.run
  if lib.profile then run = M.noted(self, run) end
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

-- Six bits of the key: a dtype, whether it has dims, where it lies; 63: no tensor.
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
  return assert(lib.loadstring(text, "=[moth.kernel]"))(M, C, ctx, Handle, ffi.istype,
    ffi.new "moth_tensor_info", self.programs, lib, trace, bits.bor, bits.band, C.MOTH_IS_GRAD)
end

--- Calls a kernel's function as it is.
function M.call_plain(call, ...)
  local results = lib.pack(call.fn(...))
  call.returned = true
  return unpack(results, 1, results.n)
end
errors.user_call(M.call_plain)

--- The function itself.
function M.run_plain(self, ...)
  local call = { fn = self.fn, name = self.name }
  return M.call_plain(call, ...)
end

--- A program as a range of a profile, which has the kernel's name.
function M.noted(self, run)
  return function(...) return require "moth.profiler".within(self.name, run, ...) end
end

--- Whether all tensors with dims among the arguments have one shape.
function M.one_shape(p, ...)
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

-- A function that tells whether the constants among the arguments are those of p: 0 and -0 are two
-- numbers, NaN is one.
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

--- The program for a call whose key has none at hand; nil where the function itself is to run.
function M.look(self, key, extra, n, ...)
  if type(extra) ~= "nil" then
    errors.argument(self.name, "#" .. n + 1, format("it takes %d arguments", n))
  end
  if trace.reading or lib.trace then return nil end -- as a part of another; in anomaly mode
  for i = 1, n do -- what was released is left to the function
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
      line = line .. " -> " .. named({ unpack(q.dtypes, 1, q.results) }) .. ": "
        .. concat(q.names, ", ") .. format("; %d read, %d between, %d written",
          #q.uses + #q.constants, q.between, q.results)
    end
    lines[#lines + 1] = line
  end
  if #lines == 1 then lines[2] = "  not called yet" end
  return concat(lines, "\n")
end

local parse = define.signature("kernel", {
  { "function", "fn", "a function of elements: tensors and numbers in, 1 to 4 tensors out" },
})

-- What help shows of a kernel.
local function read_signature(record)
  local args, any = {}, require("moth.binding.kinds").find "any"
  for i, name in ipairs(record.params) do
    args[i] = { name = name, kind = "any", row = any, required = true, fallback = "", doc = "" }
  end
  return { name = record.name, args = args, doc = "A kernel: one pass over its arguments.",
           examples = "", outputs = {}, lua = true, method = false, file = record.file }
end

--- Makes a function of elements one pass over memory, on the CPU and on the GPU.
--
-- fn is ordinary code over tensors (operators, methods, moth.nn.functional), in which each element
-- of the results follows from the elements at its place: arithmetic, comparisons, where, clamp,
-- activations, conversions. What lies between two of its functions is never written to memory. The
-- results are those of fn, bit for bit.
--
-- fn is read at its first call, once for each kind of arguments: their dtypes and devices, which of
-- them are single elements, the values of numbers, booleans and strings. Branches on those are
-- fine. All else is as it was at that reading, for good: what fn takes from outside (upvalues,
-- globals, a module's `training`), and what it asks of tensors in Lua (`requires_grad`,
-- `is_contiguous`, whether `a == b` are one tensor). Gradients are read at the first backward pass,
-- which raises on the CPU where fn gives other values by then. Pass what changes as an argument: a
-- number, boolean or string where it has few values, and where it is another at each call a tensor
-- of one element, since no more than 32 kinds are read; beyond these fn runs as it is, with a
-- warning.
--
-- Sums, products of matrices, indexing, views, random numbers, values that are read (`item`) and
-- tensors that are no arguments raise when fn is read. More than 8 arguments raise at once. Where
-- there are more than 8 tensors and constants in all, or 48 functions, fn runs as it is, and a
-- warning says so.
--
-- Gradients are one pass too, which computes again from the arguments what it needs: these alone
-- are kept for it. That takes less memory (42 to 11 MiB at most for a gelu written out, of a
-- million elements), and is faster where memory is the limit: from about a million
-- elements on the CPU. Smaller tensors train slower than with plain code (1.1 to 1.7 times the time
-- at 64 to 100 thousand elements); GPUs have not been measured. Where no argument is broadcast
-- gradients are those of fn, bit for bit, else nearly. A gradient that is to be differentiated
-- again goes through fn. Results may be written in place; arguments may not before the backward
-- pass.
-- @param fn  a function with 1 to 8 arguments
-- @return the kernel: call it as fn; `kernel.fn` is fn, `print(kernel)` shows what it became
function M.kernel(...)
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
  local self = { fn = fn, name = "kernel of " .. name, params = params, programs = {}, lists = {},
                 nread = 0, warned = false, read = {} }
  local call = written(self)
  local meta = {}
  for key, value in pairs(Kernel) do meta[key] = value end
  meta.__call = call
  setmetatable(self, meta)
  bind.register(self, { name = self.name, params = params, read = read_signature,
                        file = info.source:gsub("^@", "") })
  return self
end

define.takes(M.kernel, parse)

return M
