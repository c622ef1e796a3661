-- programs.lua -- random programs of elementwise ops, views, sums and in-place writes; specs
-- compare a captured step of each with the program itself.

local moth = require "moth"
local bits = require("spec.support.bits").of

local programs = {}

local SHAPES = {{4, 96}, {96}, {600}, {3, 5, 70}, {2, 3}, {}, {16, 64}}
local DTYPES = {moth.float32, moth.float32, moth.float64, moth.float16, moth.bfloat16, moth.int32,
                moth.int64}
local ONE = {"neg", "abs", "relu", "sign", "square", "positive"}
local CURVE = {"exp", "tanh", "sigmoid", "sqrt", "sin", "log1p", "erf", "rsqrt", "floor", "round"}
local TWO = {"add", "sub", "mul", "maximum", "minimum"}
local ASK = {"gt", "lt", "eq", "ne", "ge", "le"}

local function one_of(list, n) return list[1 + n % #list] end

-- b if it broadcasts with a, else a number
local function matching(a, b, s)
  local fits = b.dtype ~= moth.bool and s.n % 3 > 0 and (b.ndim == 0 or a.shape == b.shape)
  return fits and b or s.number
end

local function write(t, b, s)
  if not t.dtype.is_floating_point then return end
  if s.n % 4 == 0 then t:mul_(s.number)
  elseif s.n % 4 == 1 then t:add_(1)
  elseif s.n % 4 == 2 then t:relu_()
  elseif b.ndim == 0 or t.shape == b.shape then t:add_(b:to(t.dtype))
  end
end

-- {weight, function}: a and b are earlier values, s the step, old the values from outside
local STEPS = {
  {18, function(a, _, s) return a[one_of(ONE, s.n)](a) end},
  {16, function(a, _, s)
    return a.dtype.is_floating_point and a[one_of(CURVE, s.n)](a) or a * 2
  end},
  {20, function(a, b, s) return a[one_of(TWO, s.n)](a, matching(a, b, s)) end},
  {6, function(a, _, s) return a[one_of(ASK, s.n)](a, s.number) end},
  {6, function(a, b, s) return moth.where(a:gt(0), a, matching(a, b, s)) end},
  {4, function(a, _, s)
    return a.dtype.is_floating_point and a:clamp(-0.5 - s.n / 500, 1.5) or a:clone()
  end},
  {4, function(a) return a:float() * 1 end},
  {4, function(a, _, s) return a:to(one_of(DTYPES, s.n)) end},
  {4, function(a) return a:sum() end},
  {4, function(a) return a.ndim == 2 and a:t() or a end},
  {3, function(a) return a.ndim > 1 and a[1] or a end},
  {3, function(a) return a.ndim > 0 and a:size(1) > 2 and a[{{2, a:size(1)}}] or a end},
  {8, function(a, b, s)
    write(a, b, s)
    return a
  end},
  {2, function(_, _, _, old)
    write(old[2], old[2], {n = 0, number = 0.5})
    return old[2] + 1
  end},
  {3, function(a) return a:detach():clone() end},
}

local function drawn()
  local list = {}
  for i = 1, math.random(3, 24) do
    local k, at = math.random(105), 1
    while k > STEPS[at][1] and STEPS[at + 1] do k, at = k - STEPS[at][1], at + 1 end
    list[i] = {run = STEPS[at][2], a = math.random(), b = math.random(), n = math.random(1000),
               number = math.random(-4, 4) / 2, gives = math.random() < 0.05}
  end
  return list
end

-- The results of a program on the values `old`; it writes the second.
local function run(program, old)
  local values, given = {unpack(old)}, {}
  local function one(r) return values[1 + math.floor(r * #values)] end
  for _, s in ipairs(program) do
    local a = s.a < 0.6 and values[#values] or one(s.a)
    if a.dtype == moth.bool then a = a:float() end
    local y = s.run(a, one(s.b), s, old)
    values[#values + 1] = y
    if s.gives then given[#given + 1] = y end
    if #values > 8 and s.n % 2 == 0 then table.remove(values, 4 + s.n % 4) end -- it dies here
  end
  given[#given + 1] = values[#values]
  for i = 1, #given do given[i] = given[i]:clone() end
  return given
end

--- The difference between the program of this seed and its captured step, each run four times; nil
-- if there is none.
function programs.differs(seed)
  math.randomseed(seed)
  moth.manual_seed(seed)
  local program, shape = drawn(), SHAPES[math.random(#SHAPES)]
  local dtype = DTYPES[math.random(#DTYPES)]
  local function fresh(...) return (moth.randn(...) * 2):to(dtype) end
  local x, state, row = fresh(shape), fresh(shape), fresh(#shape > 0 and {shape[#shape]} or {})
  local twin, line = state:clone(), row:clone()
  local step = moth.capture(function(v) return unpack(run(program, {v, state, row})) end)
  local trouble
  for k = 1, 4 do
    local got, wanted = {step(x:clone())}, run(program, {x:clone(), twin, line})
    for i = 1, #wanted do
      if got[i].dtype ~= wanted[i].dtype or bits(got[i]) ~= bits(wanted[i]) then
        trouble = trouble or ("seed %d: result %d of run %d"):format(seed, i, k)
      end
    end
    if bits(state) ~= bits(twin) then
      trouble = trouble or ("seed %d: the state after run %d"):format(seed, k)
    end
    x = x + fresh(shape)
  end
  step:free()
  return trouble
end

return programs
