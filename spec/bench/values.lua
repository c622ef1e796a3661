--- Descriptions of tensors that both sides of `moth bench` can draw: {shape, draw, dtype, low,
-- high}. peer/records.py has the same kinds of `draw`:
--
--   normal      randn
--   uniform     evenly between low and high
--   integers    evenly from low to high, both included, in the dtype
--   ids         positions: integers from 1 to high here, from 0 to high - 1 in PyTorch
--   ordered     uniform numbers, ascending along the last dimension
--   constant    low everywhere
--   matrix      randn / sqrt(n) + 2 on the diagonal
--   symmetric   A A' / n + 1 on the diagonal, A of randn
--   triangle    the lower triangle of such a `matrix`
--   pairs       randn, the last dimension being the two parts of complex numbers in PyTorch

local values = {}

local Description = {}

--- Returns true for a description.
function values.is(value) return getmetatable(value) == Description end

--- Makes one of a table.
function values.new(fields)
  fields.dtype = fields.dtype or "float32"
  return setmetatable(fields, Description)
end

local function of(draw, low, high, dtype)
  return function(...)
    return values.new{shape = {...}, draw = draw, low = low, high = high, dtype = dtype}
  end
end

--- The functions that a handwritten example may call.
values.words = {
  randn = of("normal"), rand = of("uniform", 0, 1), matrix = of "matrix",
  symmetric = of "symmetric", triangle = of "triangle", pairs = of "pairs",
  ordered = of("ordered", 0, 1), mask = of("integers", 0, 1, "bool"),
  zeros = of("constant", 0), ones = of("constant", 1),
  uniform = function(low, high, ...) return of("uniform", low, high)(...) end,
  integers = function(low, high, ...) return of("integers", low, high, "int64")(...) end,
  whole = function(low, high, ...) return of("integers", low, high)(...) end,
  ids = function(count, ...) return of("ids", 1, count, "int64")(...) end,
  int32 = function(low, high, ...) return of("integers", low, high, "int32")(...) end,
  lengths = function(length, ...) return of("constant", length, length, "int64")(...) end,
}

local function tensors(moth)
  local draws = {}
  function draws.normal(v) return moth.randn(v.shape) end
  draws.pairs = draws.normal
  function draws.uniform(v) return moth.rand(v.shape) * (v.high - v.low) + v.low end
  function draws.ordered(v) return (moth.sort(draws.uniform(v))) end
  function draws.integers(v)
    return moth.randint(v.low, v.high + 1, v.shape)
  end
  draws.ids = draws.integers
  function draws.constant(v) return moth.full(v.shape, v.low) end
  function draws.matrix(v)
    local m, n = v.shape[#v.shape - 1], v.shape[#v.shape]
    if not m then return moth.randn(v.shape) end
    return moth.randn(v.shape) / math.sqrt(n) + moth.eye(m, n) * 2
  end
  function draws.symmetric(v)
    local n = v.shape[#v.shape]
    if #v.shape < 2 then return moth.randn(v.shape) end
    local a = moth.randn(v.shape)
    return a:matmul(a:transpose(-1, -2)) / n + moth.eye(n)
  end
  function draws.triangle(v) return draws.matrix(v):tril() end
  return draws
end

local draws

--- A new tensor of a description.
function values.draw(v)
  local moth = require "moth"
  draws = draws or tensors(moth)
  return draws[v.draw](v):to(moth[v.dtype]):contiguous()
end

--- A copy of a value, with tables, in which each description is replaced by fn(description).
function values.map(value, fn)
  if values.is(value) then return fn(value) end
  if type(value) ~= "table" or getmetatable(value) ~= nil then return value end
  local copy = {}
  for key, part in pairs(value) do copy[key] = values.map(part, fn) end
  return copy
end

-- ---- from the tensors of an example ----

local function range_of(tensors_of_runs)
  local low, high, integral = math.huge, -math.huge, true
  for _, x in ipairs(tensors_of_runs) do
    if x:numel() > 0 then
      local y = x:double()
      low, high = math.min(low, y:min():item()), math.max(high, y:max():item())
      integral = integral and y:eq(y:round()):all():item()
    end
  end
  return low, high, integral
end

local BY_DOMAIN = {
  prob = {"uniform", 0.05, 0.95}, positive = {"uniform", 0.5, 1.5}, unit = {"uniform", -0.9, 0.9},
  large = {"uniform", 1.2, 2.2}, symmetric = {"symmetric"}, matrix = {"matrix"},
}

-- {draw, low, high} of an argument's tensors in several runs of an example.
local function draw_of(runs, domain, ids)
  local low, high, integral = range_of(runs)
  local name = runs[1].dtype.name
  if ids and name == "int64" then return {"ids", 1, high} end
  if not name:find "float" then return {"integers", math.min(low, high), high} end
  if BY_DOMAIN[domain] then return BY_DOMAIN[domain] end
  if low == high then return {"constant", low, high} end
  if integral then return {"integers", low, high} end
  if low >= 0 then return {"uniform", math.floor(low), math.ceil(high)} end
  return {"normal"}
end

--- The description of an argument from several runs of an example.
-- @param runs    its tensors
-- @param domain  the example's
-- @param ids     true if the argument takes positions
-- @param complex true if a last dimension of 2 holds complex numbers
function values.describe(runs, domain, ids, complex)
  local x = runs[1]
  local draw = draw_of(runs, domain, ids)
  local shape = {}
  for d = 1, x:dim() do shape[d] = x:size(d) end
  if complex and shape[#shape] == 2 and x.dtype.name == "float32" then draw = {"pairs"} end
  local dtype = x.dtype.name
  return values.new{shape = shape, draw = draw[1], low = draw[2], high = draw[3], dtype = dtype}
end

return values
