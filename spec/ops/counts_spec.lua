-- Ops of order and of counts, compared with loops over Lua's numbers: top k on both sides of each
-- method's limits, unique, searchsorted, histograms, reductions by index, for all dtypes.

local moth = require "moth"

local NAN, INF = 0 / 0, 1 / 0

local function list(x)
  local y = x:flatten():tolist()
  if type(y) ~= "table" then y = {y} end
  for i = 1, #y do
    if type(y[i]) == "cdata" then y[i] = tonumber(y[i]) end
  end
  return y
end

local function same(want, x, note)
  local got = list(x)
  if #want ~= #got then error(("%s: %d elements, not %d"):format(note, #got, #want), 0) end
  for i = 1, #want do
    local p, q = want[i], got[i]
    if p ~= q and not (p ~= p and q ~= q) then
      error(("%s: element %d is %s, not %s"):format(note, i, tostring(q), tostring(p)), 0)
    end
  end
end

local DTYPES = {moth.uint8, moth.int8, moth.int16, moth.int32, moth.int64, moth.float16,
  moth.bfloat16, moth.float32, moth.float64}
local function draw(dtype, n, range)
  range = range or 100
  return moth.randint(dtype == moth.uint8 and 0 or -range, range, {n}):to(dtype)
end

local function by_value(x, descending)
  local at = {}
  for i = 1, #x do at[i] = i end
  table.sort(at, function(i, j)
    local p, q = x[i], x[j]
    if p ~= p or q ~= q then
      if (p ~= p) == (q ~= q) then return i < j end
      return (p ~= p) == (descending or false)
    end
    if p == q then return i < j end
    if descending then return p > q end
    return p < q
  end)
  return at
end

local function taken(x, at, k)
  local y = {}
  for i = 1, k or #at do y[i] = x[at[i]] end
  return y
end

before_each(function() moth.manual_seed(9) end)

describe("topk", function()
  it("has the k first elements in order for every k, whatever the order of the row", function()
    for _, n in ipairs {1, 5, 17, 64, 129, 200, 1000, 9000} do
      for _, form in ipairs {"random", "ascending", "descending", "equal", "nan"} do
        local x = draw(moth.float32, n, 1000)
        if form == "ascending" then x = moth.arange(0, n):float()
        elseif form == "descending" then x = -moth.arange(0, n):float()
        elseif form == "equal" then x = moth.ones(n)
        elseif form == "nan" then x = x:masked_fill(moth.rand(n):lt(0.1), NAN) end
        local values = list(x)
        for _, largest in ipairs {true, false} do
          local at = by_value(values, largest)
          for _, k in ipairs {1, 2, 3, 31, 32, 33, 40, 100, 140, 141, 249, 250, 251, 2249, 2250,
            n} do
            if k <= n then
              local v, p = x:topk(k, {largest = largest})
              local note = ("%s, %d of %d"):format(form, k, n)
              same(taken(values, at, k), v, note)
              local first = {}
              for i = 1, k do first[i] = at[i] end
              same(first, p, note) -- equal elements keep their order
            end
          end
        end
      end
    end
  end)

  it("has no elements for k = 0", function()
    local v, p = moth.ones(3, 5):topk(0)
    assert.same({3, 0}, {unpack(v.shape)})
    assert.same({3, 0}, {unpack(p.shape)})
  end)
end)

describe("sort", function()
  it("orders long rows of each dtype", function()
    for _, dtype in ipairs(DTYPES) do
      for _, n in ipairs {2, 16, 17, 33, 191, 192, 193, 500, 20000} do
        local x = draw(dtype, n, n > 200 and 100 or 20)
        local values = list(x)
        for _, descending in ipairs {false, true} do
          local v, p = x:sort(1, descending)
          local at = by_value(values, descending)
          same(taken(values, at), v, ("%s of %d"):format(dtype, n))
          same(at, p, ("%s of %d, positions"):format(dtype, n))
          assert.equal(dtype, v.dtype)
        end
      end
    end
  end)

  it("orders the ends of each integer dtype, and infinities", function()
    local ends = {[moth.uint8] = {0, 255}, [moth.int8] = {-128, 127}, [moth.int16] = {-32768,
      32767},
      [moth.int32] = {-2147483648, 2147483647}}
    for dtype, two in pairs(ends) do
      local x = moth.tensor({two[2], 1, two[1], 0, two[2] - 1, two[1] + 1}, {dtype = dtype})
      same(dtype == moth.uint8 and {0, 0, 1, 1, 254, 255}
        or {two[1], two[1] + 1, 0, 1, two[2] - 1, two[2]}, (x:sort()), tostring(dtype))
      assert.equal(two[2], x:amax():item())
      assert.equal(two[1], x:amin():item())
      assert.equal(two[2], (x:sort(1, true))[1]:item())
    end
    for _, dtype in ipairs {moth.float16, moth.bfloat16, moth.float32, moth.float64} do
      local x = moth.tensor({INF, -1, NAN, 0, -INF, 2}, {dtype = dtype})
      same({-INF, -1, 0, 2, INF, NAN}, (x:sort()), tostring(dtype))
      same({NAN, INF, 2, 0, -1, -INF}, (x:sort(1, true)), tostring(dtype))
      same({5, 2, 4, 6, 1, 3}, x:argsort(), tostring(dtype))
    end
  end)
end)

describe("quantile", function()
  it("interpolates in each way, for every length", function()
    for _, n in ipairs {1, 2, 3, 9, 64, 301} do
      local x = moth.randn(n, {dtype = moth.float64})
      local v = list((x:sort()))
      for _, q in ipairs {0, 0.1, 0.25, 0.5, 0.77, 1} do
        local at = q * (n - 1)
        local low, high = v[math.floor(at) + 1], v[math.ceil(at) + 1]
        local share = at - math.floor(at)
        local near = share < 0.5 and low or share > 0.5 and high
          or math.floor(at) % 2 == 0 and low or high -- ties to even
        local wanted = {linear = low + (high - low) * share, lower = low, higher = high,
          midpoint = (low + high) / 2, nearest = near}
        for how, want in pairs(wanted) do
          for _, y in ipairs {x:quantile(q, {interpolation = how}),
            x:nanquantile(q, {interpolation = how}),
            moth.cat {x, moth.tensor({NAN, NAN}, {dtype = moth.float64})}
              :nanquantile(q, {interpolation = how})} do
            local got = y:item()
            if math.abs(got - want) > 1e-12 then
              error(("%s of %d at %g: %g, not %g"):format(how, n, q, got, want), 0)
            end
          end
        end
      end
      assert.is_true(moth.cat {x, moth.tensor({NAN},
        {dtype = moth.float64})}:quantile(0.3):isnan():item())
    end
  end)
end)

describe("unique", function()
  it("has the values, their positions and counts", function()
    for _, dtype in ipairs(DTYPES) do
      for _, n in ipairs {1, 2, 17, 65, 300, 5000} do
        local x = draw(dtype, n, n > 100 and 40 or 5)
        local values, count, index, order = list(x), {}, {}, {}
        for _, v in ipairs(values) do
          if not count[v] then order[#order + 1] = v end
          count[v] = (count[v] or 0) + 1
        end
        table.sort(order)
        local counts, inverse = {}, {}
        for i, v in ipairs(order) do index[v], counts[i] = i, count[v] end
        for i, v in ipairs(values) do inverse[i] = index[v] end
        local y, back, many = moth.unique(x, {return_inverse = true, return_counts = true})
        local note = ("%s of %d"):format(dtype, n)
        same(order, y, note)
        same(inverse, back, note)
        same(counts, many, note)
        same(order, (moth.unique(x)), note)
        local first, runs, at = {}, {}, {}
        for i, v in ipairs(values) do
          if i == 1 or v ~= values[i - 1] then
            first[#first + 1], runs[#runs + 1] = v, 0
          end
          runs[#runs] = runs[#runs] + 1
          at[i] = #first
        end
        y, back, many = moth.unique_consecutive(x, {return_inverse = true, return_counts = true})
        same(first, y, note)
        same(at, back, note)
        same(runs, many, note)
        same(first, (moth.unique_consecutive(x)), note)
      end
    end
  end)

  it("has the slices along each dimension in order", function()
    local x = moth.randint(0, 2, {40, 3})
    local seen, order = {}, {}
    for _, row in ipairs(x:tolist()) do
      local key = ("%d%d%d"):format(tonumber(row[1]), tonumber(row[2]), tonumber(row[3]))
      if not seen[key] then order[#order + 1] = key end
      seen[key] = (seen[key] or 0) + 1
    end
    table.sort(order)
    for _, d in ipairs {1, 2} do
      local y, back, many = moth.unique(d == 1 and x or x:t(), {dim = d, return_inverse = true,
        return_counts = true})
      y = d == 1 and y or y:t()
      for i, row in ipairs(y:tolist()) do
        local key = ("%d%d%d"):format(tonumber(row[1]), tonumber(row[2]), tonumber(row[3]))
        assert.equal(order[i], key)
        assert.equal(seen[key], tonumber(many[i]:item()))
      end
      assert.is_true(y:index_select(1, back):eq(x):all():item())
    end
  end)
end)

describe("searchsorted", function()
  it("finds the first place from the left or the right, in rows too", function()
    for _, dtype in ipairs(DTYPES) do
      for _, n in ipairs {1, 2, 9, 64, 100} do
        local edges = draw(dtype, n, 20):sort()
        local x = draw(dtype, 57, 25)
        local sorted, values = list(edges), list(x)
        for _, right in ipairs {false, true} do
          local want = {}
          for i, v in ipairs(values) do
            local at = 1
            while at <= n and (sorted[at] < v or right and sorted[at] == v) do at = at + 1 end
            want[i] = at
          end
          local note = ("%s of %d"):format(dtype, n)
          same(want, moth.searchsorted(edges, x, {right = right}), note)
          same(want, moth.searchsorted(edges, x, {side = right and "right" or "left"}), note)
          same(want, moth.bucketize(x, edges, {right = right}), note)
          local rows = moth.stack {edges, edges}
          same(want, moth.searchsorted(rows, moth.stack {x, x}, {right = right})[2], note)
          assert.equal(want[3], tonumber(moth.searchsorted(edges, x[3], {right = right}):item()))
        end
      end
    end
  end)
end)

describe("histograms", function()
  it("count each bin, the last with its upper end", function()
    for _, n in ipairs {1, 7, 100, 5000} do
      local x = (moth.randint(-60, 61, {n}) / 10):double()
      for _, bins in ipairs {1, 2, 5, 16, 33} do
        local want = {}
        for b = 1, bins do want[b] = 0 end
        for _, v in ipairs(list(x)) do
          if v >= -4 and v <= 4 then
            local b = math.min(math.floor((v + 4) / 8 * bins), bins - 1) + 1
            want[b] = want[b] + 1
          end
        end
        same(want, moth.histc(x, {bins = bins, min = -4, max = 4}), "histc")
      end
    end
  end)

  it("bincount counts and sums weights of each dtype", function()
    for _, dtype in ipairs {moth.uint8, moth.int8, moth.int16, moth.int32, moth.int64} do
      for _, n in ipairs {1, 9, 100, 5000} do
        local x = moth.randint(0, 37, {n}):to(dtype)
        local weights = moth.randint(-5, 6, {n}):double()
        local count, sum, most, w = {}, {}, 0, list(weights)
        for _, v in ipairs(list(x)) do most = math.max(most, v) end
        for v = 0, math.max(most, 19) do count[v + 1], sum[v + 1] = 0, 0 end
        for i, v in ipairs(list(x)) do
          count[v + 1], sum[v + 1] = count[v + 1] + 1, sum[v + 1] + w[i]
        end
        same(count, moth.bincount(x, {minlength = 20}), "bincount")
        same(sum, moth.bincount(x, {weights = weights, minlength = 20}), "weights")
        same(sum, moth.bincount(x, {weights = weights:float(), minlength = 20}), "float weights")
        assert.equal(most + 1, moth.bincount(x):numel())
        assert.equal(most + 1, moth.bincount(x, {minlength = most + 1}):numel())
        assert.equal(most + 2, moth.bincount(x, {minlength = most + 2}):numel())
      end
    end
  end)
end)

describe("reductions by index", function()
  local STEPS = {
    sum = function(a, b) return a + b end, prod = function(a, b) return a * b end,
    amax = math.max, amin = math.min, mean = function(a, b) return a + b end,
  }
  local START = {sum = 0, prod = 1, amax = -INF, amin = INF, mean = 0}

  local function wanted(how, input, index, source, include)
    local y, n = {}, {}
    for i = 1, #input do
      y[i], n[i] = include and input[i] or START[how], include and 1 or 0
    end
    for k = 1, #source do
      local i = index[k]
      y[i], n[i] = STEPS[how](y[i], source[k]), n[i] + 1
    end
    for i = 1, #input do
      if n[i] == 0 then y[i] = input[i] -- not reduced
      elseif how == "mean" then y[i] = y[i] / n[i] end
    end
    return y
  end

  it("are those of loops, with and without the input", function()
    for how in pairs(STEPS) do
      for _, include in ipairs {true, false} do
        for _, n in ipairs {1, 2, 9, 33, 300} do
          local m = how == "prod" and math.min(n, 9) or n
          local input, source = draw(moth.float64, 7, 4), draw(moth.float64, m, 4)
          local index = moth.randint(1, 8, {m})
          local want = wanted(how, list(input), list(index), list(source), include)
          local note = ("%s of %d, %s"):format(how, m, tostring(include))
          local function near(x)
            for i, v in ipairs(list(x)) do
              if math.abs(v - want[i]) > 1e-12 then
                error(("%s: %g, not %g"):format(note, v, want[i]), 0)
              end
            end
          end
          near(input:scatter_reduce(1, index, source, how, {include_self = include}))
          near(input:float():scatter_reduce(1, index, source:float(), how, {include_self = include})
            :double():sub(moth.tensor(want, {dtype = moth.float64})):div(1e7)
            :add(moth.tensor(want, {dtype = moth.float64})))
          if how ~= "sum" then
            near(input:index_reduce(1, index, source, how, {include_self = include}))
            local two = moth.stack({input, input}, 2):index_reduce(1, index,
              moth.stack({source, source}, 2), how, {include_self = include})
            near(two:select(2, 1))
            near(two:select(2, 2))
          end
          if how ~= "mean" then
            local whole = input:long():scatter_reduce(1, index, source:long(), how,
              {include_self = include})
            near(whole)
          end
        end
      end
    end
  end)
end)

describe("positions of elements", function()
  it("that are not zero come in order, for each dtype and number of dims", function()
    for _, dtype in ipairs {moth.bool, unpack(DTYPES)} do
      for _, shape in ipairs {{1}, {9}, {300}, {3, 5}, {7, 33}, {2, 3, 4}, {2, 1, 3, 2, 5}} do
        local n = 1
        for _, s in ipairs(shape) do n = n * s end
        local x = moth.randint(0, 3, {n}):sub(1):clamp(0):to(dtype):view(shape)
        local want = {}
        for i, v in ipairs(list(x)) do
          if v ~= 0 and v ~= false then
            local rest, at = i - 1, {}
            for d = #shape, 1, -1 do
              at[d] = rest % shape[d] + 1
              rest = math.floor(rest / shape[d])
            end
            for d = 1, #shape do want[#want + 1] = at[d] end
          end
        end
        same(want, moth.nonzero(x), tostring(dtype))
        same(want, moth.argwhere(x), tostring(dtype))
        assert.equal(#want / #shape, tonumber(x:count_nonzero():item()))
        local turned = x:transpose(1, -1):contiguous():transpose(1, -1)
        same(want, moth.nonzero(turned), tostring(dtype) .. " transposed")
      end
    end
  end)

  it("one_hot sets one element of each row", function()
    for _, n in ipairs {1, 5, 40} do
      local x = moth.randint(1, 8, {n})
      local y = moth.nn.functional.one_hot(x, 9)
      assert.same({n, 9}, {unpack(y.shape)})
      assert.equal(n, tonumber(y:sum():item()))
      same(list(x), y:argmax(2), "one_hot")
      assert.equal(list(x:amax())[1], moth.nn.functional.one_hot(x):size(2))
    end
  end)

  it("isin compares with every element", function()
    for _, dtype in ipairs(DTYPES) do
      local x, y = draw(dtype, 200, 30), draw(dtype, 9, 30)
      local set, want, other = {}, {}, {}
      for _, v in ipairs(list(y)) do set[v] = true end
      for i, v in ipairs(list(x)) do want[i], other[i] = set[v] or false, not set[v] end
      same(want, moth.isin(x, y), tostring(dtype))
      same(other, moth.isin(x, y, {invert = true}), tostring(dtype))
    end
  end)

  it("mode has the least of the most frequent values", function()
    for _, n in ipairs {1, 2, 9, 33, 300} do
      local x = moth.randint(0, 6, {4, n})
      local v, p = x:mode(2)
      for i = 1, 4 do
        local count, best = {}, nil
        local row = list(x[i])
        for _, e in ipairs(row) do count[e] = (count[e] or 0) + 1 end
        for e, c in pairs(count) do
          if not best or c > count[best] or c == count[best] and e < best then best = e end
        end
        assert.equal(best, tonumber(v[i]:item()))
        assert.equal(best, row[tonumber(p[i]:item())])
      end
    end
  end)
end)
