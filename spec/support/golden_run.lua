--- golden_run.lua -- runs a golden sample and compares results, gradients and a second derivative,
-- with the inputs in each layout that the sample lists.

local ffi = require "ffi"
local moth = require "moth"
local lib = require "moth.binding.lib"
local golden = require "spec.support.golden"
local tolerance = require "spec.support.tolerance"

local C = lib.C
local run = {}

--- The device of the inputs: nil for the CPU, or "cuda".
run.device = nil

--- Tolerance classes of ops that differ from the class of their samples, by name.
run.classes = {}

local function moved(x)
  return run.device and x:to(run.device) or x
end

local FLOATS = {float64 = true, float32 = true, float16 = true, bfloat16 = true}
local CODES = {bool = 0, uint8 = 1, int8 = 2, int16 = 3, int32 = 4, int64 = 5, float16 = 6,
  bfloat16 = 7, float32 = 8, float64 = 9}

-- ---- functions and samples ----

local function member(t, name)
  local ok, value = pcall(function() return t[name] end)
  return ok and type(value) == "function" and value or nil
end

--- The public function of that name: of moth, of F, a method of tensors, "linalg.NAME" and so on.
function run.find(name)
  local space, inner = name:match "^(%a+)%.(.+)"
  if inner then return member(moth[space], inner) end
  return member(moth, name) or member(moth.nn.functional, name)
    or member(moth.zeros(1), name)
end

-- Checks that the op's record names the dtype. Functions written in Lua accept what their ops
-- accept.
local function declares(name, dtype)
  local op = C.moth_op_find(name)
  if op == nil then return true end
  return bit.band(C.moth_op_describe(op).dtypes, bit.lshift(1, CODES[dtype])) ~= 0
end

local function tensors(value, list)
  if type(value) == "table" then
    if value.t then list[#list + 1] = value
    else for _, v in ipairs(value) do tensors(v, list) end end
  end
  return list
end

local function entries(sample)
  local list = {}
  for _, pair in ipairs(sample.args) do tensors(pair[2], list) end
  return list
end

-- f64 represents all floating dtypes, unless the sample is about dtypes.
local function generic(sample)
  if sample.fixed then return false end
  for _, entry in ipairs(entries(sample)) do
    if entry.t == "float64" then return true end
  end
  return false
end

--- The samples to run in that dtype; samples without floats run only with float64.
function run.samples(all, name, dtype)
  local list = {}
  for _, sample in ipairs(all) do
    local wanted = dtype == "float64" or (generic(sample) and not sample.error)
    if sample.dtypes then
      wanted = false
      for _, d in ipairs(sample.dtypes) do wanted = wanted or d == dtype end
    end
    if wanted and (dtype == "float64" or declares(name, dtype)) then list[#list + 1] = sample end
  end
  return list
end

-- ---- inputs ----

local lay = {}

function lay.contiguous(x) return moved(x) end

function lay.transposed(x)
  if x:dim() < 2 then return lay.strided(x) end
  return moved(x:transpose(1, -1):contiguous()):transpose(1, -1)
end

function lay.offset(x)
  if x:dim() == 0 then return moved(moth.stack({x + x, x}, 1))[2] end
  return moved(moth.cat({x, x, x}, 1)):narrow(1, x:size(1) + 1, x:size(1))
end

function lay.channels_last(x)
  return moved(x:dim() == 4 and x:contiguous{memory_format = moth.channels_last} or x)
end

function lay.strided(x)
  return moved(moth.stack({x, x}, x:dim() + 1)):select(x:dim() + 1, 2)
end

local function input(shard, entry, dtype, layout)
  local _, sizes = golden.stored(entry)
  local x = moth.frombuffer(golden.bytes(shard, entry), {dtype = moth[entry.t]}):view(sizes)
  if dtype and entry.t == "float64" then x = x:to(moth[dtype]) end
  if entry.e then return moved(x):expand(entry.s) end
  if layout and x.dtype ~= moth.bool and x:numel() > 0 then return lay[layout](x) end
  return moved(x)
end

-- The arguments by name, and the floating tensors among them in order.
local function arguments(shard, sample, dtype, layout, mutates)
  local leaves, named, first = {}, {}, true
  local function make(v)
    if v == golden.null then return moth.none end
    if type(v) ~= "table" then return v end
    if v.dtype then return moth[v.dtype] end
    if v.number then return tonumber((v.number:gsub("inf", "1e999"))) or 0 / 0 end
    if v.t then
      local x = input(shard, v, dtype, layout):detach()
      if not FLOATS[v.t] or v.c then return x end
      if sample.grads then x:requires_grad_() end
      leaves[#leaves + 1] = x
      return x
    end
    local list = {}
    for i, e in ipairs(v) do list[i] = make(e) end
    return list
  end
  for _, pair in ipairs(sample.args) do
    local name, v = pair[1], make(pair[2])
    if first and mutates then v = v:clone() end
    named[name], first = v, false
  end
  return named, leaves
end

--- The arguments of a sample by name, in float64.
function run.arguments(shard, sample)
  return (arguments(shard, sample, "float64"))
end

-- ---- results ----

local function flat(list, value)
  if type(value) == "table" and getmetatable(value) == nil then
    for _, v in ipairs(value) do flat(list, v) end
  elseif value ~= nil then
    list[#list + 1] = value
  end
  return list
end

local function sequence(x, first, step, modulus, minus)
  local c = {}
  for k = 0, x:numel() - 1 do c[k + 1] = (step * (k + first) % modulus - minus) / 8 end
  return moth.tensor(c, {dtype = x.dtype, device = x.device}):view(x.shape)
end

local function numbers(x)
  local list = x:reshape(-1):tolist()
  return type(list) == "table" and list or {list}
end

local function sizes_of(x)
  local list = {}
  for d = 1, x:dim() do list[d] = x:size(d) end
  return "(" .. table.concat(list, ", ") .. ")"
end

-- Compares one tensor with its golden entry. `broken` changes the golden value first.
local function compare(shard, what, entry, got, class, dtype, options)
  local wanted_dtype = dtype and entry.t == "float64" and dtype or entry.t
  if got.dtype ~= moth[wanted_dtype] then
    error(("%s is %s, wanted %s"):format(what, tostring(got.dtype), wanted_dtype), 0)
  end
  local wanted_sizes = "(" .. table.concat(entry.s, ", ") .. ")"
  if sizes_of(got) ~= wanted_sizes then
    error(("%s has sizes %s, wanted %s"):format(what, sizes_of(got), wanted_sizes), 0)
  end
  local want, have = golden.values(shard, entry), numbers(got)
  if entry.e then want = numbers(input(shard, entry)) end
  if options.broken and #want > 0 then
    local v = want[#want]
    want[#want] = type(v) == "boolean" and not v or v == v and v + 0.01 * (1 + math.abs(v)) or 0
    if v == math.huge or v == -math.huge then want[#want] = 0 end
    options.broken = nil
  end
  for k = 1, #want do
    if not tolerance.same(want[k], have[k], class, wanted_dtype, options.scale or 1,
        options.tol) then
      error(("%s, element %d of %s: %s, wanted %s"):format(what, k, wanted_sizes,
        tostring(have[k]), tostring(want[k])), 0)
    end
  end
end

-- A sample's own tolerance: one for all dtypes, or one for each.
local function allowed(sample, dtype)
  if type(sample.tol) == "table" then return sample.tol[dtype] end
  return sample.tol
end

local function zero(x)
  for _, v in ipairs(numbers(x)) do
    if v ~= 0 then return false end
  end
  return true
end

-- Compares gradients with golden ones; if PyTorch has none, ours must be nil or zero.
local function compare_all(shard, part, sample, found, class, dtype, broken)
  local options = {tol = allowed(sample, dtype), broken = broken}
  for i, entry in ipairs(sample[part]) do
    local what = ("%s %d"):format(part == "grads" and "gradient of input" or "second derivative of",
      i)
    if entry == golden.null then
      if found[i] ~= nil and not zero(found[i]) then error(what .. " should be zero", 0) end
    elseif found[i] == nil then
      if broken then error(what .. " is missing", 0) end
      local n = golden.values(shard, entry)
      for _, v in ipairs(n) do
        if v ~= 0 then error(what .. " is missing", 0) end
      end
    else
      compare(shard, what, entry, found[i], class, dtype, options)
    end
  end
end

local function gradients(shard, sample, outputs, leaves, dtype, broken)
  local twice = dtype == "float64" and sample.second ~= nil
  local ys, cs = {}, {}
  for j, y in ipairs(outputs) do
    if lib.istensor(y) and y.requires_grad then
      ys[#ys + 1], cs[#cs + 1] = y, sequence(y, 3 * (j - 1), 7, 11, 5)
    end
  end
  if #ys == 0 then error("no result carries a gradient", 0) end
  local grads = {moth.autograd.grad(ys, leaves, {grad_outputs = cs, create_graph = twice,
    allow_unused = true})}
  compare_all(shard, "grads", sample, grads, "grads", dtype, broken == "grads")
  if not twice then return end
  local gs, vs = {}, {}
  for i = 1, #leaves do
    local g = grads[i]
    if g ~= nil and sample.grads[i] ~= golden.null and g.requires_grad then
      gs[#gs + 1], vs[#vs + 1] = g, sequence(g, 2 * (i - 1), 5, 13, 6)
    end
  end
  local found = {}
  if #gs > 0 then
    found = {moth.autograd.grad(gs, leaves, {grad_outputs = vs, allow_unused = true})}
  end
  compare_all(shard, "second", sample, found, "second", dtype, broken == "second")
end

local function check_value(wanted, got)
  local function same(a, b)
    if type(a) == "table" then
      for i, v in ipairs(a) do if not same(v, b[i]) then return false end end
      return #a == #b
    end
    return a == b or tolerance.same(a, tonumber(b), "arith", "float32", 1)
  end
  if not same(wanted, got) then
    error(("gave %s, wanted %s"):format(tostring(got), tostring(wanted)), 0)
  end
end

-- Returns true if an op has an argument `device`.
local function makes(name)
  local op = C.moth_op_find(name)
  local info = op ~= nil and C.moth_op_describe(op)
  for i = 0, info and info.nargs - 1 or -1 do
    if ffi.string(info.args[i].name) == "device" then return true end
  end
  return false
end

local function check_once(shard, name, fn, sample, dtype, layout, broken)
  local varied = generic(sample) and dtype or nil
  local op = C.moth_op_find(name)
  local mutates = name:find "_$" and (op == nil
    or bit.band(C.moth_op_describe(op).flags, C.MOTH_OP_MUTATES) ~= 0)
  local named, leaves = arguments(shard, sample, varied, layout, mutates)
  if run.device and makes(name) then named.device = run.device end
  if sample.error then
    local ok, message = pcall(function()
      fn(named)
      if run.device then moth.cuda.synchronize() end -- raises errors that kernels found
    end)
    if ok then error("did not raise, wanted " .. sample.error, 0) end
    if moth.errcode() ~= sample.error then
      error(("raised %s (%s), wanted %s"):format(tostring(moth.errcode()), tostring(message),
        sample.error), 0)
    end
    return
  end
  local outputs = flat({}, {fn(named)})
  if sample.value ~= nil then return check_value(sample.value, outputs[1]) end
  local scales = sample.scale or {}
  local options = {tol = allowed(sample, dtype), broken = broken == "y"}
  if #outputs < #sample.y then
    error(("%d results, wanted %d"):format(#outputs, #sample.y), 0)
  end
  for j, entry in ipairs(sample.y) do
    options.scale = scales[j]
    compare(shard, #sample.y > 1 and "result " .. j or "result", entry, outputs[j],
      run.classes[name] or sample.kind, varied, options)
  end
  if sample.grads and (dtype == "float64" or dtype == "float32") then
    gradients(shard, sample, outputs, leaves, dtype, broken)
  end
end

-- The layouts that a sample lists, and channels_last for images if it lists any.
local function layouts_of(sample)
  local list = {unpack(sample.layouts or {})}
  for _, pair in ipairs(#list > 0 and sample.args or {}) do
    local sizes = type(pair[2]) == "table" and pair[2].s
    if sizes and #sizes == 4 and list[#list] ~= "channels_last" then
      list[#list + 1] = "channels_last"
    end
  end
  return list
end

--- Runs a sample, once for each of its layouts; raises at a difference.
-- @param broken  nil, or the part of the golden values to change first: "y", "grads", "second"
function run.check(shard, name, fn, sample, dtype, broken)
  check_once(shard, name, fn, sample, dtype, nil, broken)
  if dtype ~= "float64" or broken then return end
  for _, layout in ipairs(layouts_of(sample)) do
    local ok, message = pcall(check_once, shard, name, fn, sample, dtype, layout)
    if not ok then error(layout .. ": " .. tostring(message), 0) end
  end
end

--- Returns true if a sample has elements to compare in that part.
function run.has(sample, part)
  for _, entry in ipairs(sample[part] or {}) do
    if entry ~= golden.null and golden.stored(entry) > 0 then return true end
  end
  return false
end

return run
