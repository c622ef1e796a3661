-- Every combination of items in an index against a plain model: what it reads, what it writes, and
-- which gradients it has. Positions in tensors and masks are as in PyTorch: their dimensions come
-- first if other dimensions separate them.

local moth = require "moth"

local SIZES = {2, 3, 4}
local MASKS = {[2] = {true, true}, [3] = {true, false, true}, [4] = {false, true, true, false}}

-- Items for a dimension of n: name, item, and what it selects: one = position; list = positions
-- (view); or at = positions with their shape (tensor).
local function items_of(n)
  local last, all, odd, trues = n, {}, {}, {}
  for i = 1, n do
    all[i] = i
    if i % 2 == 1 then odd[#odd + 1] = i end
    if MASKS[n][i] then trues[#trues + 1] = i end
  end
  return {
    {"1", 1, {one = 1}}, {"-1", -1, {one = last}}, {"{}", {}, {list = all}},
    {"{2, -1}", {2, -1}, {list = {unpack(all, 2)}}}, {"{-n, n, 2}", {-n, n, 2}, {list = odd}},
    {"{2, 1}", {2, 1}, {list = {}}},
    {"mask", moth.tensor(MASKS[n]), {at = trues, shape = {2}}},
    {"tensor", moth.tensor({2, -n}, {dtype = moth.int64}), {at = {2, 1}, shape = {2}}},
    {"column", moth.tensor {{1LL}, {-1LL}}, {at = {1, n}, shape = {2, 1}}},
    {"list", {{2, 1}}, {at = {2, 1}, shape = {2}}},
  }
end

local function product(sizes)
  local n = 1
  for _, size in ipairs(sizes) do n = n * size end
  return n
end

-- The shape of the result, and for each of its elements the offset in x.
local function model(chosen, sizes)
  local strides, step = {}, 1
  for d = #sizes, 1, -1 do strides[d], step = step, step * sizes[d] end
  local base, dims, advanced, first, gap, apart = 0, {}, {}, nil, false, false
  local shape = {}
  for d, what in ipairs(chosen) do
    if what.one then
      base = base + (what.one - 1) * strides[d]
    elseif what.list then
      dims[#dims + 1] = {list = what.list, stride = strides[d]}
      gap = gap or first ~= nil
    else
      if first and gap then apart = true end
      first = first or #dims + 1
      gap = false
      advanced[#advanced + 1] = {at = what.at, shape = what.shape, stride = strides[d]}
      local rank = math.max(#shape, #what.shape)
      local both = {}
      for k = 1, rank do
        both[rank - k + 1] = math.max(shape[#shape - k + 1] or 1,
          what.shape[#what.shape - k + 1] or 1)
      end
      shape = both
    end
  end
  local offsets = {} -- of the broadcast positions
  for i = 0, first and product(shape) - 1 or -1 do
    local offset = 0
    for _, one in ipairs(advanced) do
      local rest, at, scale = i, 0, 1
      for k = 1, #shape do
        local size = shape[#shape - k + 1]
        local own = one.shape[#one.shape - k + 1] or 1
        local digit = rest % size
        rest = math.floor(rest / size)
        if own > 1 then at = at + digit * scale end
        scale = scale * own
      end
      offset = offset + (one.at[at + 1] - 1) * one.stride
    end
    offsets[i + 1] = offset
  end
  if first then table.insert(dims, apart and 1 or first, {offsets = offsets, shape = shape}) end
  local result, out = {}, {base}
  for _, dim in ipairs(dims) do
    local more, values = {}, dim.offsets
    if not values then
      values = {}
      for k, position in ipairs(dim.list) do values[k] = (position - 1) * dim.stride end
    end
    for _, size in ipairs(dim.shape or {#dim.list}) do result[#result + 1] = size end
    for _, before in ipairs(out) do
      for _, value in ipairs(values) do more[#more + 1] = before + value end
    end
    out = more
  end
  return result, out
end

local function check(key, chosen, name)
  local x = moth.arange(24):view(SIZES)
  local shape, offsets = model(chosen, SIZES)
  local y = x[key]
  assert.same(shape, {unpack(y.shape)}, name)
  assert.same(offsets, y:reshape(-1):tolist(), name)
  -- a number, and a tensor of the same shape
  local wanted = x:reshape(-1):tolist()
  for _, offset in ipairs(offsets) do wanted[offset + 1] = -1 end
  local z = x:clone()
  z[key] = -1
  assert.same(wanted, z:view(-1):tolist(), name)
  z = x:clone()
  z[key] = -y - 5
  for _, offset in ipairs(offsets) do wanted[offset + 1] = -offset - 5 end
  assert.same(wanted, z:view(-1):tolist(), name)
  -- gradients count the reads
  local w = x:float():requires_grad_()
  w[key]:sum():backward()
  local counts = {}
  for i = 1, 24 do counts[i] = 0 end
  for _, offset in ipairs(offsets) do counts[offset + 1] = counts[offset + 1] + 1 end
  assert.same(counts, w.grad:view(-1):tolist(), name)
end

describe("an index reads and writes the elements of its items:", function()
  local all = {items_of(2), items_of(3), items_of(4)}
  for i, a in ipairs(all[1]) do
    it("first " .. a[1], function()
      for _, b in ipairs(all[2]) do
        for _, c in ipairs(all[3]) do
          check({a[2], b[2], c[2]}, {a[3], b[3], c[3]}, a[1] .. ", " .. b[1] .. ", " .. c[1])
        end
        local rest = {list = {1, 2, 3, 4}}
        check({a[2], b[2]}, {a[3], b[3], rest}, a[1] .. ", " .. b[1])
        check({a[2], b[2], "..."}, {a[3], b[3], rest}, a[1] .. ", " .. b[1] .. ", ...")
        check({"...", b[2], {}}, {{list = {1, 2}}, b[3], rest}, "..., " .. b[1])
      end
      for _, c in ipairs(all[3]) do
        check({a[2], "...", c[2]}, {a[3], {list = {1, 2, 3}}, c[3]}, a[1] .. ", ..., " .. c[1])
        check({"...", c[2]}, {{list = {1, 2}}, {list = {1, 2, 3}}, c[3]}, "..., " .. c[1])
      end
      check({a[2]}, {a[3], {list = {1, 2, 3}}, {list = {1, 2, 3, 4}}}, a[1])
      if type(a[2]) == "number" or moth.is_tensor(a[2]) then
        check(a[2], {a[3], {list = {1, 2, 3}}, {list = {1, 2, 3, 4}}}, i)
      end
    end)
  end
end)

describe("a new dimension in an index", function()
  it("has size 1 at its place, also next to positions", function()
    local x = moth.arange(24):view(SIZES)
    local new, at = moth.newaxis, moth.tensor {2LL, 1LL, 2LL}
    for _, row in ipairs {
      {{new, 1}, x[1]:unsqueeze(1)}, {{1, new}, x[1]:unsqueeze(1)},
      {{{}, new, 2}, x[{{}, 2}]:unsqueeze(2)}, {{{}, 2, new}, x[{{}, 2}]:unsqueeze(2)},
      {{"...", new}, x:unsqueeze(4)}, {{new, "..."}, x:unsqueeze(1)}, {{new, new}, x:unsqueeze(1)
      :unsqueeze(1)}, {{new, {1, 1}, new, {2, 3}}, x[{{1, 1}, {2, 3}}]:unsqueeze(2):unsqueeze(1)},
      {{new, at}, x[at]:unsqueeze(1)}, {{at, new}, x[at]:unsqueeze(2)},
      {{{}, at, new}, x[{{}, at}]:unsqueeze(3)}, {{1, new, at}, x[{1, at}]:unsqueeze(1)},
    } do
      assert.same({unpack(row[2].shape)}, {unpack(x[row[1]].shape)})
      assert.is_true(moth.equal(row[2], x[row[1]]))
    end
  end)
end)

describe("a mask of several dimensions", function()
  it("applies to as many dimensions, at each place", function()
    local x = moth.arange(24):view(SIZES)
    local two = x[1]:remainder(3):eq(0) -- (3, 4)
    local front = x[{{}, {}, 1}]:gt(3) -- (2, 3)
    local function flat(y) return y:reshape(-1):tolist() end
    assert.same({0, 3, 6, 9, 12, 15, 18, 21}, flat(x[{{}, two}]))
    assert.same({0, 3, 6, 9}, flat(x[{1, two}]))
    assert.same({4, 5, 6, 7}, {unpack(flat(x[front]), 1, 4)})
    assert.same({20}, {unpack(x[x:gt(3)].shape)})
    assert.same({5, 4}, {unpack(x[front].shape)})
    assert.same({5, 2}, {unpack(x[{front, {2, 3}}].shape)})
    assert.same({5}, flat(x[{front, 1}]:gt(-1):sum()))
    assert.same({4, 8, 12, 16, 20}, flat(x[{front, 1}]))
    local y = x:clone()
    y[{{}, two}] = -1
    assert.same({-1, 1, 2, -1, 4}, {unpack(flat(y), 1, 5)})
    assert.equal(8, y:eq(-1):sum():item())
    y[{front, {1, 1}}] = moth.full({5, 1}, 50, {dtype = moth.int64})
    assert.equal(5, y:eq(50):sum():item())
  end)
end)
