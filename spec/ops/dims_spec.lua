-- Copies, broadcasts, sums, joins and padding of tensors with up to eight dimensions in any order;
-- steps of optimizers for parameters of every size and layout.

local moth = require "moth"

local F, optim, nn = moth.nn.functional, moth.optim, moth.nn
local DTYPES = {moth.bool, moth.uint8, moth.int16, moth.int32, moth.int64, moth.float16,
  moth.bfloat16, moth.float32, moth.float64}

local seed = 1
local function below(n) -- a random number from 1 to n
  seed = (seed * 16807) % 2147483647
  return seed % n + 1
end

local function shuffled(n)
  local y = {}
  for i = 1, n do y[i] = i end
  for i = n, 2, -1 do
    local k = below(i)
    y[i], y[k] = y[k], y[i]
  end
  return y
end

local function inverse(order)
  local y = {}
  for i, d in ipairs(order) do y[d] = i end
  return y
end

local function shape_of(ndim, most)
  local y = {}
  for d = 1, ndim do y[d] = below(most) end
  return y
end

local function range(shape, dtype)
  local n = 1
  for _, s in ipairs(shape) do n = n * s end
  return (moth.arange(0, n) % 97):to(dtype or moth.float64):view(shape)
end

-- The same tensor with its dimensions in another order in memory.
local function turned(x)
  local order = shuffled(x:dim())
  return x:permute(unpack(order)):contiguous():permute(unpack(inverse(order)))
end

local function equal(a, b, note)
  if tostring(a.shape) ~= tostring(b.shape) then
    error(("%s: %s, not %s"):format(note, tostring(b.shape), tostring(a.shape)), 0)
  end
  if a.dtype ~= b.dtype then
    error(("%s: %s, not %s"):format(note, tostring(b.dtype), tostring(a.dtype)), 0)
  end
  if a:numel() > 0 and not a:eq(b):all():item() then error(note .. " differs", 0) end
end

before_each(function() seed = 12345 end)

describe("tensors of many dimensions", function()
  it("are copied from any order to any order, for each size of elements", function()
    for _, dtype in ipairs(DTYPES) do
      for ndim = 1, 8 do
        for _ = 1, 4 do
          local shape = shape_of(ndim, ndim < 4 and 19 or ndim < 6 and 5 or 3)
          local x = range(shape, dtype)
          local y = turned(x)
          local list = x:flatten():tolist()
          equal(x, y, "permuted")
          equal(x, y:contiguous(), "contiguous")
          assert.same(list, y:flatten():tolist())
          local z = turned(moth.zeros_like(x))
          z:copy_(y)
          equal(x, z, "copy_")
          if ndim < 8 then
            local wide = moth.zeros({2, unpack(shape)}, {dtype = dtype})
            wide[2]:copy_(y)
            equal(x, wide[2], "copy_ to a part")
            assert.is_false(wide[1]:ne(moth.zeros_like(x)):any():item())
          end
          equal(x:to(moth.float64), y:to(moth.float64), "to float64")
          equal(x:to(moth.uint8), turned(x:to(moth.float64)):to(moth.uint8), "to uint8")
          equal(x:to(moth.float16), turned(x):to(moth.float16), "to float16")
        end
      end
    end
  end)

  it("are transposed in blocks of every size", function()
    for _, dtype in ipairs {moth.uint8, moth.int16, moth.float32, moth.float64} do
      for _, m in ipairs {1, 3, 4, 7, 8, 15, 16, 17, 33, 70} do
        for _, n in ipairs {1, 2, 4, 5, 8, 9, 16, 31, 64, 65} do
          local x = range({m, n}, dtype)
          local y = x:t():contiguous()
          assert.same({n, m}, {unpack(y.shape)})
          for _ = 1, 5 do
            local i, j = below(m), below(n)
            assert.equal(x[{i, j}]:item(), y[{j, i}]:item())
          end
          equal(x[{m, n}], y[{n, m}], "last")
          equal(x, y:t(), "transposed")
        end
      end
    end
  end)

  it("are broadcast against each other", function()
    for ndim = 1, 8 do
      for _ = 1, 12 do
        local full = shape_of(ndim, ndim < 4 and 9 or 3)
        local operands = {}
        for k = 1, 3 do
          local shape = {}
          for d = 1, ndim do shape[d] = below(3) == 1 and 1 or full[d] end
          for _ = 1, below(3) - 1 do -- leading dims may be missing
            if #shape > 1 and shape[1] == 1 then table.remove(shape, 1) end
          end
          operands[k] = turned(range(shape) + k)
        end
        local a, b, c = unpack(operands)
        local sum = a + b + c
        local same = {}
        for k, x in ipairs(operands) do
          while x:dim() < sum:dim() do x = x:unsqueeze(1) end
          same[k] = x:expand(unpack(sum.shape)):contiguous()
        end
        equal(same[1] + same[2] + same[3], sum, "a sum")
        equal(same[1] * same[2], (a * b):expand(unpack(sum.shape)), "a product")
        equal(moth.addcmul(same[1], same[2], same[3]), moth.addcmul(a, b, c), "addcmul")
        equal(moth.where(same[1]:gt(20), same[2], same[3]), moth.where(a:gt(20), b, c)
          :expand(unpack(sum.shape)), "where")
        equal(same[1]:lt(same[2]), a:lt(b):expand(unpack(sum.shape)), "lt")
        -- gradients are sums over the broadcast dims
        local leaf = b:detach():clone():requires_grad_()
        local result = a * leaf + c
        result:sum():backward()
        local grad = same[1]
        while grad:dim() > leaf:dim() do grad = grad:sum(1) end
        for d = 1, leaf:dim() do
          if leaf:size(d) == 1 and grad:size(d) ~= 1 then grad = grad:sum(d, {keepdim = true}) end
        end
        local repeated = sum:numel() / result:numel()
        equal(grad / repeated, leaf.grad, "a gradient")
      end
    end
  end)

  it("are reduced over any set of dims", function()
    for ndim = 2, 8 do
      for _ = 1, 12 do
        local x = turned(range(shape_of(ndim, ndim < 5 and 7 or 3)))
        local order, dims = shuffled(ndim), {}
        for k = 1, below(ndim) do dims[k] = order[k] end
        local sum, most, all, count = x, x, x:gt(3), x:ne(0):long()
        for d = 1, ndim do
          for _, k in ipairs(dims) do
            if k == d then
              sum, most = sum:sum(d, {keepdim = true}), most:amax(d, {keepdim = true})
              all, count = all:all(d, {keepdim = true}), count:sum(d, {keepdim = true})
            end
          end
        end
        equal(sum, x:sum(dims, {keepdim = true}), "sum")
        equal(most, x:amax(dims, {keepdim = true}), "amax")
        equal(all, x:gt(3):all(dims, {keepdim = true}), "all")
        local plain = sum
        table.sort(dims)
        for k = #dims, 1, -1 do plain = plain:squeeze(dims[k]) end
        equal(plain, x:sum(dims), "sum without keepdim")
        equal(count:sum(), x:count_nonzero(), "count_nonzero")
        equal(sum:sum(), x:sum(), "sum of all")
        local n = x:numel() / sum:numel()
        assert.is_true((x:mean(dims) - plain / n):abs():max():item() < 1e-12)
        local half = x:half():sum(dims):double()
        assert.is_true((half - plain):abs():le(plain * 5e-4):all():item())
      end
    end
  end)

  it("are joined along every dim, from any layout and dtype", function()
    for ndim = 1, 7 do
      for _ = 1, 6 do
        local shape, dim = shape_of(ndim, ndim < 4 and 9 or 3), below(ndim)
        local list, total = {}, 0
        for k = 1, below(4) do
          local own = {unpack(shape)}
          own[dim] = below(5) - 1
          list[k] = turned(range(own) + k)
          total = total + own[dim]
        end
        shape[dim] = total
        local want, at = moth.zeros(shape, {dtype = moth.float64}), 1
        for _, x in ipairs(list) do
          if x:size(dim) > 0 then want:narrow(dim, at, x:size(dim)):copy_(x) end
          at = at + x:size(dim)
        end
        equal(want, moth.cat(list, dim), "cat")
        local sizes = {}
        for k, x in ipairs(list) do sizes[k] = x:size(dim) end
        for k, part in ipairs(want:split(sizes, dim)) do equal(list[k], part, "split") end
        local stack = moth.stack({list[1], list[1] * 2}, dim)
        equal(list[1] * 2, stack:select(dim, 2), "stack")
      end
    end
  end)
end)

describe("padding", function()
  it("of each dim alone is a copy into a larger tensor", function()
    for ndim = 1, 6 do
      for d = 1, ndim do
        for _, ends in ipairs {{1, 0}, {0, 2}, {3, 1}, {-1, 0}, {0, -1}, {-1, 2}, {0, 0}} do
          local shape = shape_of(ndim, 4)
          shape[d] = shape[d] + 2
          for _, x in ipairs {range(shape), turned(range(shape)), range(shape, moth.int64)} do
            local pad = {}
            for k = ndim, d, -1 do
              pad[#pad + 1], pad[#pad + 2] = k == d and ends[1] or 0, k == d and ends[2] or 0
            end
            local larger = {unpack(shape)}
            larger[d] = shape[d] + ends[1] + ends[2]
            local want = moth.full(larger, 7, {dtype = x.dtype})
            local first, last = math.max(0, -ends[1]), shape[d] - math.max(0, -ends[2])
            want:narrow(d, math.max(0, ends[1]) + 1, last - first)
              :copy_(x:narrow(d, first + 1, last - first))
            equal(want, F.pad(x, pad, {value = 7}), ("dim %d of %d"):format(d, ndim))
          end
        end
      end
    end
  end)

  it("with elements of the tensor selects them by their positions", function()
    local function positions(mode, n, left, right)
      local y = {}
      for i = -left, n + right - 1 do
        local k = i
        if mode == "replicate" then k = math.max(0, math.min(n - 1, i))
        elseif mode == "circular" then k = i % n
        else
          if k < 0 then k = -k end
          if k >= n then k = 2 * (n - 1) - k end
        end
        y[#y + 1] = k + 1
      end
      return moth.tensor(y, {dtype = moth.int64})
    end
    for _, mode in ipairs {"reflect", "replicate", "circular"} do
      for count = 1, 3 do
        for _ = 1, 6 do
          local shape = {2, 3}
          for k = 1, count do shape[k + 2] = below(5) + 3 end
          local x = range(shape)
          local want, pad = x, {}
          for k = count, 1, -1 do
            local left, right = below(4) - 1, below(4) - 1
            pad[#pad + 1], pad[#pad + 2] = left, right
            want = want:index_select(k + 2, positions(mode, shape[k + 2], left, right))
          end
          equal(want, F.pad(x, pad, {mode = mode}), mode)
          equal(want, F.pad(turned(x), pad, {mode = mode}), mode)
          equal(want:float(), F.pad(x:float(), pad, {mode = mode}), mode)
          equal(want:half(), F.pad(x:half(), pad, {mode = mode}), mode)
        end
      end
    end
  end)
end)

local STEPS = {
  SGD = {{lr = 0.1}, {lr = 0.1, momentum = 0.9}, {lr = 0.1, momentum = 0.9, nesterov = true},
    {lr = 0.1, momentum = 0.8, dampening = 0.3, weight_decay = 0.2},
    {lr = 0.1, maximize = true}},
  Adam = {{lr = 0.1}, {lr = 0.1, amsgrad = true, weight_decay = 0.1}, {lr = 0.1, maximize = true}},
  AdamW = {{lr = 0.1, weight_decay = 0.3}, {lr = 0.1, amsgrad = true}},
  NAdam = {{lr = 0.1, weight_decay = 0.1}}, RAdam = {{lr = 0.1, weight_decay = 0.1}},
  Adamax = {{lr = 0.1, weight_decay = 0.1}}, Adagrad = {{lr = 0.1, lr_decay = 0.1,
    weight_decay = 0.1}},
  Adadelta = {{lr = 0.5, rho = 0.8, weight_decay = 0.1}},
  RMSprop = {{lr = 0.1}, {lr = 0.1, centered = true}, {lr = 0.1, momentum = 0.7, centered = true},
    {lr = 0.1, momentum = 0.7, weight_decay = 0.1}},
  Rprop = {{lr = 0.1}}, ASGD = {{lr = 0.1, t0 = 2, weight_decay = 0.1}},
}

describe("a step of", function()
  for name, all in pairs(STEPS) do
    it(name .. " is the same for one parameter, its parts, every size, layout and dtype", function()
      for _, options in ipairs(all) do
        local function run(values, grads)
          local list = {}
          for i, v in ipairs(values) do list[i] = nn.Parameter(v) end
          local opt = optim[name](list, options)
          for k = 1, 4 do
            for i, p in ipairs(list) do p.grad = grads(p, i, k) end
            opt:step()
          end
          return list
        end
        moth.manual_seed(3)
        local x = moth.randn(1, 83, {dtype = moth.float64})[1]
        local g = moth.randn(4, 83, {dtype = moth.float64})
        local whole = run({x:clone()}, function(_, _, k) return g[k]:clone() end)[1]:detach()
        local values, cuts = {}, {1, 2, 4, 8, 9, 16, 43}
        local at, first = 1, {}
        for i, n in ipairs(cuts) do
          values[i], first[i] = x:narrow(1, at, n):clone(), at
          at = at + n
        end
        local parts = run(values, function(_, i, k) return g[k]:narrow(1, first[i],
          cuts[i]):clone() end)
        for i, p in ipairs(parts) do
          equal(whole:narrow(1, first[i], cuts[i]), p:detach(), name .. " of a part")
        end
        local grid = run({x:narrow(1, 1, 80):view(8, 10):t()}, function(_, _, k)
          return g[k]:narrow(1, 1, 80):view(8, 10):t()
        end)[1]:detach()
        equal(whole:narrow(1, 1, 80):view(8, 10):t(), grid, name .. " of a transposed parameter")
        for _, dtype in ipairs {moth.float32, moth.float16, moth.bfloat16} do
          local y = run({x:to(dtype)}, function(_, _, k) return g[k]:to(dtype) end)[1]:detach()
          local exact = run({x:to(dtype):double()}, function(_, _, k)
            return g[k]:to(dtype):double()
          end)[1]:detach()
          local off = (y:double() - exact):abs():max():item()
          local most = dtype == moth.float32 and 2e-5 or dtype == moth.float16 and 0.02 or 0.1
          if name ~= "Rprop" and not (off <= most) then
            error(("%s in %s: off by %g"):format(name, tostring(dtype), off), 0)
          end
        end
      end
    end)
  end
end)
