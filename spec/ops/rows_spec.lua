-- Functions of rows of every length, along every dimension, in every layout and dtype, compared
-- with loops over Lua's numbers. Lengths are next to the sizes of vectors and of blocks.

local moth = require "moth"

local LENGTHS = {1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 47, 63, 64, 65, 100, 127,
  128, 129, 191, 192, 193, 255, 256, 257, 300, 511, 513, 1023, 1025, 1300}
local NAN, INF = 0 / 0, 1 / 0

local function nan(v) return v ~= v end

-- Sorted copy with NaN at the end; equal numbers keep their order. Returns values and positions.
local function sorted(row, descending)
  local at = {}
  for i = 1, #row do at[i] = i end
  table.sort(at, function(i, j)
    local p, q = row[i], row[j]
    if nan(p) ~= nan(q) then return nan(p) == (descending or false) end
    if p == q or nan(p) then return i < j end
    if descending then return p > q end
    return p < q
  end)
  local values = {}
  for i = 1, #row do values[i] = row[at[i]] end
  return values, at
end

local function fold(row, start, step)
  local v = start
  for i = 1, #row do v = step(v, row[i], i) end
  return v
end

local function running(row, start, step)
  local y, v = {}, start
  for i = 1, #row do
    v = step(v, row[i], i)
    y[i] = v
  end
  return y
end

local function sum(row) return fold(row, 0, function(s, v) return s + v end) end
local function best(row, better)
  local v, at = row[1], 1
  for i = 2, #row do
    if not nan(v) and (nan(row[i]) or better(row[i], v)) then v, at = row[i], i end
  end
  return v, at
end
local function greater(p, q) return p > q end
local function less(p, q) return p < q end
local function variance(row, correction)
  local m, s = sum(row) / #row, 0
  for i = 1, #row do s = s + (row[i] - m) ^ 2 end
  return s / math.max(#row - correction, 0)
end
local function logsumexp(row)
  local m, s = best(row, greater), 0
  if nan(m) or m == INF or m == -INF then return m end
  for i = 1, #row do s = s + math.exp(row[i] - m) end
  return m + math.log(s)
end
local function map(row, f)
  local y = {}
  for i = 1, #row do y[i] = f(row[i], i) end
  return y
end
local function quantile(row, q)
  local y = sorted(row)
  if nan(y[#y]) then return NAN end
  local at = q * (#y - 1)
  local low = math.floor(at)
  local p, r = y[low + 1], y[math.min(low + 2, #y)]
  return p + (r - p) * (at - low)
end
local function norm(row, p)
  return fold(row, 0, function(s, v) return s + math.abs(v) ^ p end) ^ (1 / p)
end
local function cumextreme(row, better)
  local values, at = {}, {}
  local v, k = row[1], 1
  for i = 1, #row do
    local x = row[i]
    if nan(x) or not nan(v) and (x == v or better(x, v)) then v, k = x, i end
    values[i], at[i] = v, k
  end
  return values, at
end

-- {f(x, dim), the same for a table; "scan" for functions with as many results as elements}
local ROWS = {
  sum = {function(x, d) return x:sum(d) end, sum},
  mean = {function(x, d) return x:mean(d) end, function(r) return sum(r) / #r end, float = true},
  nansum = {function(x, d) return x:nansum(d) end, function(r)
    return fold(r, 0, function(s, v) return nan(v) and s or s + v end)
  end},
  nanmean = {function(x, d) return x:nanmean(d) end, function(r)
    local s, n = 0, 0
    for i = 1, #r do if not nan(r[i]) then s, n = s + r[i], n + 1 end end
    return s / n
  end, float = true},
  amax = {function(x, d) return x:amax(d) end, function(r) return (best(r, greater)) end},
  amin = {function(x, d) return x:amin(d) end, function(r) return (best(r, less)) end},
  max = {function(x, d) return x:max(d) end, function(r) return best(r, greater) end},
  min = {function(x, d) return x:min(d) end, function(r) return best(r, less) end},
  argmax = {function(x, d) return x:argmax(d) end,
    function(r) return (select(2, best(r, greater))) end},
  argmin = {function(x, d) return x:argmin(d) end,
    function(r) return (select(2, best(r, less))) end},
  aminmax = {function(x, d) return moth.aminmax(x, {dim = d}) end,
    function(r) return best(r, less), (best(r, greater)) end, pair = true},
  count_nonzero = {function(x, d) return x:count_nonzero(d) end, function(r)
    return fold(r, 0, function(s, v) return s + (v ~= 0 and 1 or 0) end)
  end},
  var = {function(x, d) return x:var(d) end, function(r) return variance(r, 1) end, float = true},
  std = {function(x, d) return x:std(d, {correction = 0}) end,
    function(r) return math.sqrt(variance(r, 0)) end, float = true},
  logsumexp = {function(x, d) return x:logsumexp(d) end, logsumexp, float = true},
  norm2 = {function(x, d) return moth.linalg.vector_norm(x, 2, d) end,
    function(r) return norm(r, 2) end, float = true},
  norm1 = {function(x, d) return moth.linalg.vector_norm(x, 1, d) end,
    function(r) return norm(r, 1) end, float = true},
  norm3 = {function(x, d) return moth.linalg.vector_norm(x, 3, d) end,
    function(r) return norm(r, 3) end, float = true},
  norm_half = {function(x, d) return moth.linalg.vector_norm(x, 0.5, d) end,
    function(r) return norm(r, 0.5) end, float = true},
  norm_inf = {function(x, d) return moth.linalg.vector_norm(x, INF, d) end,
    function(r) return (best(map(r, math.abs), greater)) end, float = true},
  norm_least = {function(x, d) return moth.linalg.vector_norm(x, -INF, d) end,
    function(r) return (best(map(r, math.abs), less)) end, float = true},
  norm0 = {function(x, d) return moth.linalg.vector_norm(x, 0, d) end, function(r)
    return fold(r, 0, function(s, v) return s + (v ~= 0 and 1 or 0) end)
  end, float = true},
  median = {function(x, d) return x:median(d) end, function(r)
    for i = 1, #r do if nan(r[i]) then return NAN, i end end
    local values, at = sorted(r)
    local k = math.floor((#r + 1) / 2)
    local first = k
    while first > 1 and values[first - 1] == values[k] do first = first - 1 end
    return values[k], at[first], true
  end},
  kthvalue = {function(x, d) return x:kthvalue(math.ceil(x:size(d) / 3), d) end, function(r)
    local k = math.ceil(#r / 3)
    return sorted(r)[k]
  end, only = 1},
  quantile = {function(x, d) return x:quantile(0.3, d) end, function(r)
    return quantile(r, 0.3)
  end, float = true, wide = true},
  cumsum = {function(x, d) return x:cumsum(d) end, function(r)
    return running(r, 0, function(s, v) return s + v end)
  end, scan = true},
  cumprod = {function(x, d) return x:cumprod(d) end, function(r)
    return running(r, 1, function(s, v) return s * v end)
  end, scan = true, float = true},
  logcumsumexp = {function(x, d) return x:logcumsumexp(d) end, function(r)
    local m, s = -INF, 0
    return map(r, function(v)
      local top = math.max(m, v)
      s = s * math.exp(m - top) + math.exp(v - top)
      m = top
      if nan(v) then m = NAN end
      return m + math.log(s)
    end)
  end, scan = true, float = true},
  cummax = {function(x, d) return x:cummax(d) end,
    function(r) return cumextreme(r, greater) end, scan = true},
  cummin = {function(x, d) return x:cummin(d) end,
    function(r) return cumextreme(r, less) end, scan = true},
  softmax = {function(x, d) return x:softmax(d) end, function(r)
    local l = logsumexp(r)
    return map(r, function(v) return math.exp(v - l) end)
  end, scan = true, float = true},
  log_softmax = {function(x, d) return x:log_softmax(d) end, function(r)
    local l = logsumexp(r)
    return map(r, function(v) return v - l end)
  end, scan = true, float = true},
  sort = {function(x, d) return x:sort(d) end, sorted, scan = true},
  sort_descending = {function(x, d) return x:sort(d, true) end,
    function(r) return sorted(r, true) end, scan = true},
  argsort = {function(x, d) return x:argsort(d) end,
    function(r) return (select(2, sorted(r))) end, scan = true},
  flip = {function(x, d) return x:flip(d) end, function(r)
    return map(r, function(_, i) return r[#r + 1 - i] end)
  end, scan = true},
  roll = {function(x, d) return x:roll(3, d) end, function(r)
    return map(r, function(_, i) return r[(i - 4) % #r + 1] end)
  end, scan = true},
}

local MAKES = {
  float64 = function(r, n) return moth.randn(r, n, {dtype = moth.float64}) end,
  float32 = function(r, n) return moth.randn(r, n) end,
  int64 = function(r, n) return moth.randint(-5, 6, {r, n}) end,
  int32 = function(r, n) return moth.randint(-400, 401, {r, n}):to(moth.int32) end,
  int16 = function(r, n) return moth.randint(-300, 300, {r, n}):to(moth.int16) end,
  uint8 = function(r, n) return moth.randint(0, 256, {r, n}):to(moth.uint8) end,
  int8 = function(r, n) return moth.randint(-128, 128, {r, n}):to(moth.int8) end,
  -- few values, so that many are equal, and some are NaN
  ties = function(r, n) return moth.randint(-2, 3, {r, n}):to(moth.float32) end,
  nans = function(r, n)
    local x = moth.randint(-9, 10, {r, n}):to(moth.float32)
    return x:masked_fill(moth.rand(r, n):lt(0.7 / n), NAN)
  end,
}

-- The rows of x as tensors of another layout, the dimension of a row, and a function that returns
-- the results of a scan to the layout of x.
local function forms(x)
  local function same(y) return y end
  local columns = x:t():contiguous()
  local stepped = moth.stack({x + 1, x, x - 1}, 3):select(3, 2)
  local middle = moth.stack({x, x + 1}, 3)
  return {
    {x, 2, same}, {x, -1, same},
    {columns, 1, function(y) return y:t() end},
    {columns:t(), 2, same}, {x:t(), 1, function(y) return y:t() end},
    {stepped, 2, same}, {stepped:t(), -2, function(y) return y:t() end},
    {middle, 2, function(y) return y:select(y:dim(), 1) end},
    {middle:unsqueeze(1):expand(2, -1, -1, -1), 3, function(y)
      return y:select(1, 2):select(y:dim() - 1, 1)
    end},
  }
end

local function close(want, got, tolerance)
  if type(want) == "cdata" or type(got) == "cdata" then
    want, got = tonumber(want), tonumber(got)
  end
  if nan(want) or nan(got) then return nan(want) and nan(got) end
  if tolerance > 1e-6 and math.abs(want) > 3.4e38 then want = want / 0 end -- beyond float32
  return want == got or math.abs(want - got) <= tolerance * math.max(1, math.abs(want))
end

local function numbers(x) -- of a tensor of one dimension
  return map(x:tolist(), function(v) return tonumber(v) end)
end

local function check(name, rows, got, row, tolerance, note)
  local wanted = {}
  for i, r in ipairs(rows) do wanted[i] = {row[2](r)} end
  for k = 1, row.only or #got do
    local y = got[k]
    for i = 1, #rows do
      local want = wanted[i][k]
      local list = row.scan and numbers(y:select(1, i)) or {tonumber((y[i]:item()))}
      if not row.scan then want = {want} end
      for j = 1, math.max(#want, #list) do
        if not close(want[j], list[j], tolerance) then
          error(("%s of %s: result %d, row %d, element %d is %s, not %s"):format(name, note, k, i,
            j, tostring(list[j]), tostring(want[j])), 0)
        end
      end
    end
  end
end

local names = {}
for name in pairs(ROWS) do names[#names + 1] = name end
table.sort(names)

before_each(function() moth.manual_seed(3) end)

for _, name in ipairs(names) do
  local row = ROWS[name]
  describe("rows of " .. name, function()
    it("have the results of loops for every length", function()
      for i, n in ipairs(LENGTHS) do
        for _, kind in ipairs(i % 2 == 1 and {"float32", "nans"} or {"float64", "ties"}) do
          local x = MAKES[kind](i % 3 == 0 and 5 or 2, n)
          local rows = x:tolist()
          local tolerance = kind == "float64" and 1e-9 or 2e-5
          check(name, rows, {row[1](x, 2)}, row, tolerance, kind .. " " .. n)
          local y = {row[1](x:t():contiguous(), 1)}
          for k = 1, #y do y[k] = row.scan and y[k]:t() or y[k] end
          check(name, rows, y, row, tolerance, kind .. " columns of " .. n)
        end
      end
    end)

    it("have them in every layout", function()
      for _, shape in ipairs {{3, 1}, {4, 5}, {2, 17}, {9, 4}, {33, 6}, {130, 3}, {5, 70}} do
        local x = MAKES.float64(shape[1], shape[2])
        local rows = x:tolist()
        for f, form in ipairs(forms(x)) do
          local y = {row[1](form[1], form[2])}
          for k = 1, #y do
            if row.scan then y[k] = form[3](y[k])
            elseif f == 8 then y[k] = y[k]:select(2, 1)
            elseif f == 9 then y[k] = y[k]:select(1, 2):select(2, 1) end
          end
          check(name, rows, y, row, 1e-9, ("layout %d, %dx%d"):format(f, shape[1], shape[2]))
        end
      end
    end)

    if not row.float then
      it("have them for integers", function()
        for _, kind in ipairs {"int64", "int32", "int16", "int8", "uint8"} do
          for i, n in ipairs(LENGTHS) do
            if i % 3 == 1 then
              local x = MAKES[kind](3, n)
              local rows = map(x:tolist(), function(r)
                return map(r, function(v) return tonumber(v) end)
              end)
              check(name, rows, {row[1](x, 2)}, row, 0, kind .. " " .. n)
              local y = {row[1](x:t():contiguous(), 1)}
              for k = 1, #y do y[k] = row.scan and y[k]:t() or y[k] end
              check(name, rows, y, row, 0, kind .. " columns of " .. n)
            end
          end
        end
      end)
    end
  end)
end

describe("the deviation", function()
  it("of rows of NaN is NaN, and of a single zero without degrees of freedom too", function()
    for _, dtype in ipairs {moth.float32, moth.float64, moth.float16} do
      local x = moth.tensor({{NAN, NAN}, {0, 0}, {INF, INF}, {-INF, 0}, {3, 3}}, {dtype = dtype})
      for _, f in ipairs {moth.var, moth.std} do
        for i, v in ipairs(f(x, 2):tolist()) do assert.equal(i == 1 or i == 3 or i == 4, nan(v)) end
        for _, v in ipairs(f(x[{{}, {1, 1}}], 2):tolist()) do assert.is_true(nan(v)) end
        assert.equal(0, f(x, {dim = 2, correction = 0})[2]:item())
      end
    end
  end)
end)

describe("a reduction without elements", function()
  local rows = {
    sum = {0}, mean = {NAN}, prod = {1}, nansum = {0}, count_nonzero = {0}, logsumexp = {-INF},
    any = {false}, all = {true}, amax = "raises", amin = "raises", max = "raises", min = "raises",
    median = "raises", argmax = "raises", var = {NAN}, std = {NAN}, norm = {0},
  }
  local empty = { -- layouts of (2, 3, 0, 4)
    function(dtype) return moth.zeros({2, 3, 0, 4}, {dtype = dtype}) end,
    function(dtype) return moth.zeros({4, 0, 3, 2}, {dtype = dtype}):permute(4, 3, 2, 1) end,
    function(dtype) return moth.ones({2, 3, 5, 8}, {dtype = dtype})[{{}, {}, {1, 0}, {1, 8,
      2}}] end,
    function(dtype) return moth.zeros({2, 1, 0, 4}, {dtype = dtype}):expand(2, 3, 0, 4) end,
  }
  for name, want in pairs(rows) do
    it("has its neutral element or raises: " .. name, function()
      for _, dtype in ipairs {moth.float32, moth.float64, moth.float16} do
        for f, form in ipairs(empty) do
          local x = form(dtype)
          local many = not (name == "max" or name == "min" or name == "median" or name == "argmax")
          for _, dims in ipairs(many and {{3}, {1, 3}, {2, 3}, {3, 4}, {1, 3, 4}, {2, 3,
            4}} or {3}) do
            local function call()
              if name == "norm" then return x:norm(2, dims) end
              return x[name](x, dims)
            end
            if want == "raises" then
              assert.is_false((pcall(call)), name)
            else
              local y = call()
              local shape = {2, 3, 0, 4}
              for k = #dims, 1, -1 do table.remove(shape, dims[k]) end
              assert.same(shape, {unpack(y.shape)})
              for _, v in ipairs(y:flatten():tolist()) do
                v = type(v) == "cdata" and tonumber(v) or v
                assert(v == want[1] or v ~= v and want[1] ~= want[1],
                  ("%s, layout %d: %s"):format(name, f, tostring(v)))
              end
            end
          end
          if name ~= "argmax" and many then -- a dimension with elements: an empty result
            local y = name == "norm" and x:norm(2, {4}) or x[name](x, {4})
            assert.same({2, 3, 0}, {unpack(y.shape)})
          end
        end
      end
    end)
  end
end)
