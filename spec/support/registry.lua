-- Reads the registry for specs that loop over all ops: names, arguments, example calls.

local ffi = require "ffi"
local moth = require "moth"
local lib = require "moth.binding.lib"
local bind = require "moth.binding.bind"

local C = lib.C
local registry = {}

local FLAGS = {inplace = 1, out = 2, view = 4, grad = 8, method = 16, hidden = 32, random = 64,
  mutates = 128, list = 256, numbers = 512}

local function text(s) return s ~= nil and ffi.string(s) or "" end

--- "moth.randn(2, 3), {dim = 1}  -- domain: positive" -> the call's arguments, new ones each time.
local function example_of(line)
  local code, domain = line:match("^(.-)%s+%-%-%s*domain:%s*(%w+)%s*$")
  code = code or line
  local source = "local moth = ... return function(f) return f(" .. code .. ") end"
  local chunk, message = loadstring(source, "=example")
  if not chunk then error("example '" .. line .. "': " .. message) end
  local make = chunk(moth)
  return {
    code = code, domain = domain,
    arguments = function()
      local packed
      make(function(...) packed = {n = select("#", ...), ...} end)
      return packed
    end,
  }
end

--- The calls of a text of examples, one a line.
function registry.examples(source)
  local list = {}
  for line in source:gmatch("[^\n]+") do list[#list + 1] = example_of(line) end
  return list
end

--- One record per op, `name_` forms included, sorted by name.
function registry.ops()
  local list = {}
  for i = 0, C.moth_op_count() - 1 do
    local info = C.moth_op_describe(C.moth_op_at(i))
    local op = {name = text(info.name), family = text(info.family), file = text(info.file),
      doc = text(info.doc), outputs = text(info.outputs), dtypes = info.dtypes, args = {},
      examples = {}}
    for flag, bit_value in pairs(FLAGS) do op[flag] = bit.band(info.flags, bit_value) ~= 0 end
    for a = 0, info.nargs - 1 do
      local arg = info.args[a]
      op.args[a + 1] = {name = text(arg.name), kind = text(arg.kind), fallback = text(arg.fallback),
        doc = text(arg.doc)}
    end
    op.source = text(info.examples)
    op.examples = registry.examples(op.source)
    op.fn = bind.ops[op.name]
    op.derived = op.name:sub(-1) == "_" and C.moth_op_find(op.name:sub(1, -2)) ~= nil
    list[#list + 1] = op
  end
  return list
end

--- All tensors among values and plain lists of them, in order.
function registry.flat(...)
  local list = {}
  local function walk(...)
    for i = 1, select("#", ...) do
      local v = (select(i, ...))
      if moth.is_tensor(v) then list[#list + 1] = v
      elseif type(v) == "table" then walk(unpack(v)) end
    end
  end
  walk(...)
  return list
end

local floats = {[moth.float16] = true, [moth.bfloat16] = true, [moth.float32] = true,
  [moth.float64] = true}

function registry.isfloat(x) return lib.istensor(x) and floats[x.dtype] or false end

-- Matrices that are far from singular, with well separated singular values or eigenvalues;
-- symmetric ones are positive-definite. Other shapes are drawn without a change.
local function matrices(shape)
  local y = moth.rand(shape, {dtype = moth.float64}) * 0.3 - 0.15
  if #shape < 2 or shape[#shape - 1] == 1 or shape[#shape] == 1 then return y * 8 + 2 end
  local m, n = shape[#shape - 1], shape[#shape]
  return y + moth.eye(m, n, {dtype = moth.float64}) * moth.arange(1, n + 1):to(moth.float64)
end

--- Projects a perturbed value back into the domain: a gradient check moves single elements, so a
-- symmetric matrix is made symmetric again.
function registry.inside(x, domain)
  if domain ~= "symmetric" or x:dim() < 2 then return x end
  return (x + x:transpose(-1, -2)) / 2
end

--- New values for x, the i-th tensor of an example, from its domain, in f64, away from kinks and
-- ties.
function registry.redraw(x, domain, i)
  local shape = {}
  for d = 1, x:dim() do shape[d] = x:size(d) end
  local y
  if domain == "distinct" then
    y = moth.randperm(math.max(x:numel(), 1))[{{1, x:numel()}}]:to(moth.float64)
    y = (y * 0.37 - 1 + 0.11 * i):view(shape)
  elseif domain == "positive" then
    y = moth.rand(shape, {dtype = moth.float64}) + 0.5
  elseif domain == "prob" then
    y = moth.rand(shape, {dtype = moth.float64}) * 0.8 + 0.1
  elseif domain == "large" then
    y = moth.rand(shape, {dtype = moth.float64}) + 1.2
  elseif domain == "matrix" or domain == "symmetric" then
    y = matrices(shape)
  elseif domain == "unit" then
    y = moth.rand(shape, {dtype = moth.float64}) * 1.6 - 0.8
  else
    y = moth.rand(shape, {dtype = moth.float64}) + 0.3
    local sign = moth.rand(shape, {dtype = moth.float64}):lt(0.5)
    y = moth.where(sign, y, -y)
  end
  return y
end

--- Applies fn to every tensor of an example's arguments, also in lists and named arguments; a
-- copy.
function registry.map(arguments, fn)
  local function walk(v)
    if lib.istensor(v) then return fn(v) end
    if type(v) == "table" and getmetatable(v) == nil then
      local copy = {}
      for k, x in pairs(v) do copy[k] = walk(x) end
      return copy
    end
    return v
  end
  local copy = {n = arguments.n}
  for i = 1, arguments.n do copy[i] = walk(arguments[i]) end
  return copy
end

--- The tensors of an example's arguments, in a fixed order.
function registry.tensors(arguments)
  local list = {}
  local function walk(v)
    if lib.istensor(v) then
      list[#list + 1] = v
    elseif type(v) == "table" and getmetatable(v) == nil then
      local keys = {}
      for k in pairs(v) do keys[#keys + 1] = k end
      table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
      for _, k in ipairs(keys) do walk(v[k]) end
    end
  end
  for i = 1, arguments.n do walk(arguments[i]) end
  return list
end

--- Replaces the tensors of arguments, in the order of registry.tensors, by those of the list.
function registry.replace(arguments, list)
  local at, order = {}, registry.tensors(arguments)
  for i, x in ipairs(order) do at[x] = list[i] end
  return registry.map(arguments, function(x) return at[x] end)
end

return registry
