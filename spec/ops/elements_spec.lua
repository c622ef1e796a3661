-- Elementwise ops of the registry: the result of an element does not depend on the number of
-- elements, on their place in a vector, on the memory layout or on the other operands. float32 and
-- half types have the values of float64, rounded. The same holds for gradients.

local moth = require "moth"
local registry = require "spec.support.registry"

local FILES = {}
for name in ("unary activation arith binary compare special exponent pointloss"):gmatch "%a+" do
  FILES["core/op/" .. name .. ".c"] = true
end

local DTYPES = {[0] = moth.bool, moth.uint8, moth.int8, moth.int16, moth.int32, moth.int64,
  moth.float16, moth.bfloat16, moth.float32, moth.float64}
local F16, BF16, F32, F64 = 6, 7, 8, 9
local N = 67 -- elements: some vectors of each width, and a tail

local function same_shape(x, y)
  return tostring(x.shape) == tostring(y.shape)
end

-- Examples whose tensors have one shape, which is also the result's.
local function examples_of(op)
  local list = {}
  if op.name == "softmin" then return list end -- of a row
  if op.random or op.mutates or op.derived or op.view or op.list then return list end
  for _, example in ipairs(op.examples) do
    local arguments = example.arguments()
    local order = registry.tensors(arguments)
    local fits = #order > 0 and not example.code:find "reduction" and not example.code:find "out ="
    for _, x in ipairs(order) do fits = fits and same_shape(x, order[1]) and x:dim() > 0 end
    if fits then
      moth.manual_seed(1)
      local y = {op.fn(unpack(arguments, 1, arguments.n))}
      fits = #y == 1 and moth.is_tensor(y[1]) and same_shape(y[1], order[1])
      if fits then list[#list + 1] = {example, arguments, order} end
    end
  end
  return list
end

local cases = {}
for _, op in ipairs(registry.ops()) do
  if FILES[op.file] then
    for _, found in ipairs(examples_of(op)) do
      local example, arguments, order = unpack(found)
      cases[#cases + 1] = {
        op = op, name = op.name .. "(" .. example.code .. ")", domain = example.domain,
        order = order,
        call = function(list)
          return (op.fn(unpack(registry.replace(arguments, list), 1, arguments.n)))
        end,
      }
    end
  end
end

local function declared(op, d) return bit.band(op.dtypes, bit.lshift(1, d)) ~= 0 end

-- N numbers for each tensor of a case: floats from its domain, integers from 1 on, or both signs.
local function draw(case, d)
  local list = {}
  for i, x in ipairs(case.order) do
    local y = registry.redraw(moth.zeros(N), case.domain, i)
    if not registry.isfloat(x) then
      y = x:flatten()[moth.arange(0, N) % x:numel() + 1]
    elseif d < F16 then
      y = (y:abs() * 3 + 1):to(DTYPES[d])
    else
      y = y:to(DTYPES[d])
    end
    list[i] = y
  end
  return list
end

local function apply(list, f)
  local y = {}
  for i, x in ipairs(list) do y[i] = f(x, i) end
  return y
end

local function exact(case, note, want, got)
  if want.dtype ~= got.dtype then
    error(("%s, %s: %s, not %s"):format(case.name, note, got.dtype, want.dtype), 0)
  end
  local equal = want:eq(got):logical_or(want:ne(want):logical_and(got:ne(got)))
  if not equal:all():item() then
    local at = equal:logical_not():nonzero()[1]:tolist()
    error(("%s, %s: differs at %s: %s, not %s"):format(case.name, note, table.concat(at, " "),
      tostring(got[at]), tostring(want[at])), 0)
  end
end

local function near(case, note, want, got, tolerance)
  local off = (got:double() - want:double()):abs()
  local most = want:double():abs():clamp(1) * tolerance
  local fine = off:le(most):logical_or(got:double():eq(want:double()))
  fine = fine:logical_or(want:ne(want):logical_and(got:ne(got)))
  if not fine:all():item() then
    local at = fine:logical_not():nonzero()[1]:tolist()
    error(("%s, %s: %s, not %s, at %s"):format(case.name, note, tostring(got[at]),
      tostring(want[at]), table.concat(at, " ")), 0)
  end
end

-- f with each case and each dtype for which its op is declared.
local function each(first, last, f)
  local done = 0
  for _, case in ipairs(cases) do
    for d = first, last do
      if declared(case.op, d) then
        local given = draw(case, d)
        local ok, y = pcall(case.call, given)
        if ok then -- a fraction does not fit integers
          f(case, d, given, y)
          done = done + 1
        end
      end
    end
  end
  assert.is_true(done > 100 * (last - first + 1), done .. " cases")
end

-- The gradients of all float tensors of a list, with the weights 1, 2, 3 of the result.
local function gradients(case, given)
  local leaves = apply(given, function(x)
    return registry.isfloat(x) and x:detach():requires_grad_() or x
  end)
  local y = case.call(leaves)
  if not y.requires_grad then return {} end
  local weight = (moth.arange(0, y:numel()) % 3 + 1):to(y.dtype):view(unpack(y.shape))
  y:backward(weight)
  return apply(leaves, function(x) return registry.isfloat(x) and x.grad or false end)
end

before_each(function() moth.manual_seed(5) end)

describe("elementwise ops", function()
  it("are many", function() assert.is_true(#cases > 150, #cases .. " cases") end)

  it("have the same results for one element and for many", function()
    each(0, F64, function(case, d, given, y)
      local dtype = tostring(DTYPES[d])
      local single = {}
      for i = 1, N do
        single[i] = case.call(apply(given, function(x) return x[{{i, i}}]:clone() end))
      end
      exact(case, dtype .. ", one by one", moth.cat(single), y)
      for _, n in ipairs {2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65} do
        local got = case.call(apply(given, function(x) return x[{{1, n}}]:clone() end))
        exact(case, dtype .. ", " .. n, y[{{1, n}}], got)
      end
      for _, times in ipairs(d >= F32 and {16, 300} or {16}) do
        local got = case.call(apply(given, function(x) return x:tile(times) end))
        exact(case, ("%s, %d"):format(dtype, N * times), y:tile(times), got)
      end
      local none = case.call(apply(given, function(x) return x[{{1, 0}}] end))
      assert.equal(0, none:numel())
      local zero_d = case.call(apply(given, function(x) return x[3] end))
      assert.equal(0, zero_d:dim())
      exact(case, dtype .. ", 0-d", y[{{3, 3}}], zero_d:view(1))
    end)
  end)

  it("have the same results in every layout", function()
    local layouts = {
      transposed = function(x) return x:t():contiguous():t() end,
      stepped = function(x) return moth.stack({x, x}, 3):select(3, 1) end,
      part = function(x) return moth.cat({x, x}, 2):narrow(2, 12, 11) end,
      ["in 5 dims"] = function(x)
        return x:view(1, 2, 3, 11, 1):permute(4, 3, 5, 1, 2):contiguous():permute(4, 5, 2, 1, 3)
      end,
    }
    each(0, F64, function(case, d, given)
      local dtype = tostring(DTYPES[d])
      local plain = apply(given, function(x) return x[{{1, 66}}]:view(6, 11) end)
      local y = case.call(plain)
      for name, layout in pairs(layouts) do
        for only = 0, #given > 1 and #given or 0 do
          local list = apply(plain, function(x, i)
            local other = only ~= 0 and i ~= only
            if name == "in 5 dims" then return other and x:view(1, 2, 3, 11, 1) or layout(x) end
            return other and x or layout(x)
          end)
          local got = case.call(list)
          exact(case, ("%s, %s, %d"):format(dtype, name, only), y, got:reshape(6, 11))
        end
      end
      if #given > 1 then -- each operand alone as a row, as a column, as one number
        for only = 1, #given do
          local x = plain[only]
          for name, shape in pairs {row = {1, 11}, column = {6, 1}, one = {1, 1}} do
            local small = x[{{1, shape[1]}, {1, shape[2]}}]:contiguous()
            local narrow = apply(plain, function(v, i) return i == only and small or v end)
            local wide = apply(plain, function(v, i)
              return i == only and small:expand(6, 11):contiguous() or v
            end)
            local ok, want = pcall(case.call, wide)
            local fits, got = pcall(case.call, narrow)
            if ok and fits then
              exact(case, ("%s, operand %d as %s"):format(dtype, only, name), want, got)
            end
          end
        end
      end
    end)
  end)

  it("of half types round the result of float32; float32 has that of float64", function()
    each(F16, F32, function(case, d, given, y)
      if not registry.isfloat(y) or case.op.name == "nextafter" then return end
      if case.op.name:find "divide" or case.op.name == "remainder" or case.op.name == "fmod" then
        return -- 0.3 differs
      end
      local wider = d == F32 and moth.float64 or moth.float32
      local want = case.call(apply(given, function(x)
        return registry.isfloat(x) and x:to(wider) or x
      end))
      local note = tostring(DTYPES[d])
      if d == F32 then near(case, note, want, y, 3e-6)
      else near(case, note, want:to(y.dtype), y, d == F16 and 1e-3 or 8e-3) end
    end)
  end)

  it("have the same gradients for one element and for many, and in float32", function()
    each(F16, F64, function(case, d, given)
      local got = gradients(case, given)
      local tolerance = ({[F16] = 4e-3, [BF16] = 3e-2, [F32] = 1e-5, [F64] = 1e-12})[d]
      if d < F32 and case.op.name:find "_back" then tolerance = 1 end -- composed
      local double = gradients(case, apply(given, function(x)
        return registry.isfloat(x) and x:double() or x
      end))
      for k, g in ipairs(got) do
        if g then
          local note = ("%s, gradient %d"):format(DTYPES[d], k)
          near(case, note, double[k], g, tolerance)
          assert.equal(given[k].dtype, g.dtype)
        end
      end
      if d < F32 then return end
      for i = 1, 9 do -- the weights 1, 2, 3 belong to places; the first of a list has the weight 1
        local first = (i - 1) * 3 + 1
        local one = gradients(case, apply(given, function(x)
          return x[{{first, first}}]:clone()
        end))
        for k, g in ipairs(got) do
          if g then exact(case, "one gradient", g[{{first, first}}], one[k]) end
        end
      end
      local many = gradients(case, apply(given, function(x) return x:tile(3 * 20) end))
      for k, g in ipairs(many) do
        if g then
          exact(case, "gradients of many", g:view(20, 3 * N)[1]:tile(20), g)
          near(case, "gradients of the first", got[k], g[{{1, N}}], tolerance)
        end
      end
      local turned = gradients(case, apply(given, function(x)
        return x[{{1, 66}}]:view(11, 6):t()
      end))
      local plain = gradients(case, apply(given, function(x)
        return x[{{1, 66}}]:view(11, 6):t():contiguous()
      end))
      for k, g in ipairs(plain) do
        if g then exact(case, "gradients of a transposed tensor", g, turned[k]) end
      end
    end)
  end)

  it("have the directional derivative of float64 differences, for each operand", function()
    each(F64, F64, function(case, _, given)
      local got = gradients(case, given)
      local weight = (moth.arange(0, N) % 3 + 1):double()
      for k, g in ipairs(got) do
        if g then
          local h = moth.full({N}, 1e-6, {dtype = moth.float64})
          local function value(step)
            local y = case.call(apply(given, function(x, i) return i == k and x + step or x end))
            return y:double() * weight
          end
          local wide, narrow = (value(h) - value(-h)) / 2e-6, (value(h / 4) - value(-h / 4)) / 5e-7
          local smooth = wide:sub(narrow):abs():le(wide:abs():clamp(1) * 1e-3) -- no jump
          near(case, "derivative " .. k, wide:where(smooth, g), g, 1e-4)
        end
      end
    end)
  end)

  it("have the sum of the gradients of all copies of an operand", function()
    each(F32, F64, function(case, d, given)
      if #given < 2 then return end
      local plain = apply(given, function(x) return x[{{1, 66}}]:view(6, 11) end)
      for only = 1, #given do
        for name, shape in pairs {row = {1, 11}, column = {6, 1}, one = {1, 1}} do
          local small = plain[only][{{1, shape[1]}, {1, shape[2]}}]:contiguous()
          local ok, wide = pcall(gradients, case, apply(plain, function(v, i)
            return i == only and small:expand(6, 11):contiguous() or v
          end))
          local fits, got = pcall(gradients, case, apply(plain, function(v, i)
            return i == only and small or v
          end))
          if ok and fits then
            for k, g in ipairs(got) do
              local want = wide[k]
              if g and k == only and name ~= "column" then want = want:sum(1, {keepdim = true}) end
              if g and k == only and name ~= "row" then want = want:sum(2, {keepdim = true}) end
              if g then
                near(case, ("%s, operand %d as %s, gradient %d"):format(DTYPES[d], only, name, k),
                  want, g, d == F32 and 3e-5 or 1e-11)
              end
            end
          end
        end
      end
    end)
  end)

  it("of float32 are those of float64 for zeros, infinities, NaN, huge and tiny numbers", function()
    local inf = 1 / 0
    local odd = {0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 3, 100, -100, 1e-30, -1e-30, 1e-42, 1e30, -1e30,
      inf, -inf, 0 / 0, 2 ^ 24, 1 - 2 ^ -24}
    local x, n = moth.tensor(odd), #odd * #odd
    local rows = {x:view(-1, 1):expand(#odd, #odd):flatten(), x:tile(#odd), x:tile(#odd):flip(1)}
    local signless = {lgamma = true, sinc = true, special_log_ndtr = true} -- of a result of 0
    local rounded = {floor_divide = true, remainder = true, fmod = true} -- 0.7 differs
    for _, case in ipairs(cases) do
      local name = case.op.name
      if declared(case.op, F32) and not name:find "_back" and not name:find "_slope"
        and not (rounded[name] and #case.order == 1) then
        local given = {}
        for i, y in ipairs(case.order) do
          local at = moth.arange(0, n) % y:numel() + 1
          given[i] = registry.isfloat(y) and rows[i] or y:flatten()[at]
        end
        local got = case.call(given)
        if registry.isfloat(got) and got.dtype == moth.float32 then
          local want = case.call(apply(given, function(y)
            return registry.isfloat(y) and y:double() or y
          end)):float()
          local close = got:sub(want):abs():le(want:abs() * 1e-5 + 1e-43):logical_or(got:eq(want))
          if not signless[name] then close = close:logical_and(got:signbit():eq(want:signbit())) end
          close = close:logical_or(got:ne(got):logical_and(want:ne(want)))
          for _, at in ipairs(close:logical_not():nonzero():flatten():tolist()) do
            at = tonumber(at)
            error(("%s of %g and %g is %g, not %g"):format(case.name, given[1][at]:item(),
              rows[2][at]:item(), got[at]:item(), want[at]:item()), 0)
          end
        end
      end
    end
  end)
end)
