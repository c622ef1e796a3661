-- Checks of ops with several operands: gradients of each operand alone equal differences of
-- float64;
-- float32 and half types have the results and gradients of float64; every layout of an operand has
-- the same results.

local moth = require "moth"

local operands = {}

local function isfloat(x)
  return moth.is_tensor(x) and (x.dtype == moth.float64 or x.dtype == moth.float32
    or x.dtype == moth.float16 or x.dtype == moth.bfloat16)
end

local function apply(list, f)
  local y = {}
  for i = 1, #list do y[i] = isfloat(list[i]) and f(list[i], i) or list[i] end
  return y
end

-- The float tensors among results.
local function floats(...)
  local y = {}
  local function walk(v)
    if isfloat(v) then y[#y + 1] = v
    elseif type(v) == "table" and not moth.is_tensor(v) then
      for i = 1, #v do walk(v[i]) end
    end
  end
  for i = 1, select("#", ...) do walk((select(i, ...))) end
  return y
end

-- Weights of a result, the same in each call.
local function weights(y)
  local n = y:numel()
  return (moth.arange(0, n):double() * 0.7 + 0.3):sin():add(0.2):view_as(y)
end

local function total(list)
  local sum
  for _, y in ipairs(list) do
    local part = (y:double() * weights(y)):sum()
    sum = sum and sum + part or part
  end
  return sum
end

local function same_dtype(note, dtype, x)
  if x.dtype ~= dtype then
    error(("%s: %s, not %s"):format(note, tostring(x.dtype), tostring(dtype)), 0)
  end
end

local function near(note, want, got, tolerance)
  if tostring(want.shape) ~= tostring(got.shape) then
    error(("%s: shape %s, not %s"):format(note, tostring(got.shape), tostring(want.shape)), 0)
  end
  if want:numel() == 0 then return end
  want, got = want:detach():double(), got:detach():double()
  local size = math.max(want:abs():max():item(), 1e-3)
  local off = (got - want):abs():max():item()
  if not (off <= tolerance * size) then
    error(("%s: off by %g of %g"):format(note, off, size), 0)
  end
end

local function gradients(f, list, only)
  local leaves = apply(list, function(x, i)
    x = x:detach()
    if only == nil or i == only then x:requires_grad_() end
    return x
  end)
  local y = floats(f(unpack(leaves)))
  local sum = total(y)
  sum:backward()
  return apply(leaves, function(x) return x.grad or false end), y
end

local LAYOUTS = {
  transposed = function(x)
    return x:dim() > 1 and x:transpose(1, x:dim()):contiguous():transpose(1, x:dim()) or x
  end,
  stepped = function(x) return x:dim() > 0 and moth.stack({x, x}, -1):select(-1, 2) or x end,
  offset = function(x)
    return x:dim() > 0 and moth.cat({x, x}, 1):narrow(1, x:size(1) + 1, x:size(1)) or x
  end,
  last = function(x)
    return x:dim() == 4 and x:contiguous {memory_format = moth.channels_last}
      or x:dim() == 5 and x:contiguous {memory_format = moth.channels_last_3d} or x
  end,
}

-- options: single, half: tolerances of float32 and of half types (false: not tested); layouts =
-- false; smooth = false: no differences.
function operands.check(name, f, list, options)
  options = options or {}
  moth.manual_seed(11)
  local together, y = gradients(f, list)
  for i = 1, #list do
    if isfloat(list[i]) and together[i] then
      local note = ("%s, gradient of operand %d"):format(name, i)
      local alone = gradients(f, list, i)[i]
      near(note .. " alone", together[i], alone, 1e-9)
      if options.smooth ~= false then
        local v = weights(list[i]) + 0.3
        local h = 1e-6
        local function value(step)
          return total(floats(f(unpack(apply(list, function(x, k)
            return k == i and x + v * step or x
          end))))):item()
        end
        local want = (value(h) - value(-h)) / (2 * h)
        local got = (together[i] * v):sum():item()
        local size = (together[i] * v):abs():sum():item() + 1e-2
        if not (math.abs(want - got) <= 2e-5 * size) then
          error(("%s is %g, not %g"):format(note, got, want), 0)
        end
      end
    end
  end
  for _, dtype in ipairs {moth.float32, moth.float16, moth.bfloat16} do
    local tolerance = options.single or 3e-5
    if dtype ~= moth.float32 then
      tolerance = options.half
      if tolerance == nil then tolerance = 0.03 end
      if tolerance and dtype == moth.bfloat16 then tolerance = tolerance * 5 end
    end
    if tolerance then
      local narrow = apply(list, function(x) return x:to(dtype) end)
      local exact, right = gradients(f, apply(narrow, function(x) return x:double() end))
      local got, results = gradients(f, narrow)
      for k = 1, #right do
        local once = dtype == moth.float32 and tolerance or options.rounds
          or (dtype == moth.float16 and 1.2e-3 or 1e-2)
        near(("%s, %s, result %d"):format(name, dtype, k), right[k], results[k], once)
        same_dtype(name, dtype, results[k])
      end
      for k = 1, #list do
        if isfloat(list[k]) and exact[k] then
          near(("%s, %s, gradient %d"):format(name, dtype, k), exact[k], got[k], tolerance)
          same_dtype(name, dtype, got[k])
        end
      end
    end
  end
  for layout, change in pairs(options.layouts == false and {} or LAYOUTS) do
    for _, dtype in ipairs {moth.float64, moth.float32} do
      local plain = apply(list, function(x) return x:to(dtype) end)
      local first, want = gradients(f, plain)
      for only = 1, #list do
        if isfloat(list[only]) then
          local got, results = gradients(f, apply(plain, function(x, k)
            return k == only and change(x) or x
          end))
          local tolerance = dtype == moth.float64 and 1e-10 or 1e-5
          for k = 1, #want do
            near(("%s, operand %d %s, result %d"):format(name, only, layout, k), want[k],
              results[k], tolerance)
          end
          for k = 1, #list do
            if first[k] then
              near(("%s, operand %d %s, gradient %d"):format(name, only, layout, k), first[k],
                got[k], tolerance * 5)
            end
          end
        end
      end
    end
  end
  return y
end

function operands.r(...) return moth.randn(...):double() end
function operands.u(...) return moth.rand(...):double() end
function operands.ints(high, ...) return moth.randint(1, high + 1, {...}) end
-- different numbers, far enough from each other for differences
function operands.apart(...)
  local n = 1
  for i = 1, select("#", ...) do n = n * (select(i, ...)) end
  return ((moth.randperm(n):double() / n - 0.5) * 4 + 0.01):view(...)
end

--- A claim for each row {name, f, make, options}: operands.check of f with what make() returns.
-- @param it  Busted's `it`, which only specs see
function operands.claims(it, rows)
  for _, row in ipairs(rows) do
    it("has the right results and gradients: " .. row[1], function()
      moth.manual_seed(2)
      operands.check(row[1], row[2], row[3](), row[4])
    end)
  end
end

return operands
