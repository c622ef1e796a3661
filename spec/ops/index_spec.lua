-- Reads and writes by brackets are compared with plain Lua tables; also their derivatives.

local moth = require "moth"
local intact = require "spec.support.intact"
local reference = require "spec.support.reference"

local f64, i64 = moth.float64, moth.int64
local newaxis = moth.newaxis
local all, pick = reference.all, reference.gather

local SIZES = { 4, 5, 6 }
local function table_of() return reference.make(SIZES, function(k) return k + 0.5 end) end
local function tensor_of() return moth.tensor(table_of(), { dtype = f64 }) end
local function integers(list) return moth.tensor(list, { dtype = i64 }) end

-- Index tables, and their positions in each dimension of a 4 x 5 x 6 tensor.
local basic = {
  { "a position", { 2 }, { 2 } },
  { "a negative position", { -1 }, { 4 } },
  { "positions of all dims", { 2, 3, 4 }, { 2, 3, 4 } },
  { "negative positions of all dims", { -4, -5, -1 }, { 1, 1, 6 } },
  { "a range", { { 2, 3 } }, { { 2, 3 } } },
  { "a range of one", { { 3, 3 } }, { { 3 } } },
  { "a negative range of one", { { -1, -1 } }, { { 4 } } },
  { "a range to the end", { { 2, -1 } }, { { 2, 3, 4 } } },
  { "a range from the end", { { -3, -2 } }, { { 2, 3 } } },
  { "the whole dim as a range", { { 1, -1 } }, { all(4) } },
  { "a step", { { 1, 4, 2 } }, { { 1, 3 } } },
  { "a step that does not meet the end", { { 1, -1, 3 } }, { { 1, 4 } } },
  { "a step beyond the end", { { 2, 4, 9 } }, { { 2 } } },
  { "a range of nothing", { { 3, 2 } }, { {} } },
  { "everything", { {} }, { all(4) } },
  { "everything, then a position", { {}, 2 }, { all(4), 2 } },
  { "ranges of all dims", { { 2, 3 }, { 1, 5, 2 }, { -2, -1 } }, { { 2, 3 }, { 1, 3, 5 },
    { 5, 6 } } },
  { "a position between ranges", { { 1, 2 }, -1, { 2, 6, 4 } }, { { 1, 2 }, 5, { 2, 6 } } },
  { "dots, then a position", { "...", 3 }, { all(4), all(5), 3 } },
  { "a position, then dots", { 3, "..." }, { 3 } },
  { "dots between", { 2, "...", { 1, 2 } }, { 2, all(5), { 1, 2 } } },
  { "dots for nothing", { 1, 2, "...", 3 }, { 1, 2, 3 } },
  { "dots alone", { "..." }, {} },
}

-- Items with lists of positions have the same positions, since each list names one dimension.
local advanced = {
  { "an integer tensor", { integers{ 4, 1, 1 } }, { { 4, 1, 1 } } },
  { "negative positions in a tensor", { integers{ -1, -4 } }, { { 4, 1 } } },
  { "a list of positions", { { { 4, 1, 1 } } }, { { 4, 1, 1 } } },
  { "a list of one position", { { { 3 } } }, { { 3 } } },
  { "an empty tensor of positions", { moth.zeros(0, { dtype = i64 }) }, { {} } },
  { "positions in the second dim", { {}, integers{ 5, 2 } }, { all(4), { 5, 2 } } },
  { "positions in the last dim", { "...", integers{ 6, 1 } }, { all(4), all(5), { 6, 1 } } },
  { "a range and positions", { { 2, 3 }, integers{ 5, 5, 1 } }, { { 2, 3 }, { 5, 5, 1 } } },
  { "positions and a range", { integers{ 3, 1 }, { 1, 5, 2 } }, { { 3, 1 }, { 1, 3, 5 } } },
  { "a position and positions", { 2, integers{ 3, 1 } }, { 2, { 3, 1 } } },
  { "positions and a position", { integers{ 3, 1 }, 2 }, { { 3, 1 }, 2 } },
  { "positions between ranges", { { 1, 2 }, { { 2, 4 } }, { 5, 6 } }, { { 1, 2 }, { 2, 4 },
    { 5, 6 } } },
  { "int32 positions", { moth.tensor({ 2, 4 }, { dtype = moth.int32 }) }, { { 2, 4 } } },
}

local function shape_of(t)
  local sizes = {}
  while type(t) == "table" do
    sizes[#sizes + 1] = #t
    t = t[1]
  end
  return sizes
end

local function value(k) return 1000 + k end

for _, group in ipairs{ basic, advanced } do
  it("scatters only values of the tensor's own dtype, and any number", function()
    local z, at = moth.zeros(2), moth.tensor {1LL}
    assert.has_error_like(function() z:scatter(1, at, moth.ones(1, {dtype = moth.float64})) end,
      "'src' to 'scatter' %(f64 %(1%) does not match 'input', f32 %(2%); convert")
    assert.same({0.5, 0}, z:scatter(1, at, 0.5):tolist())
  end)

  describe("scatter_reduce", function()
  it("accepts one tensor as input and as source", function()
    local x = moth.tensor{{1, 2}, {3, 4}}
    local y = x:scatter_reduce(1, moth.tensor{{1LL, 1LL}, {1LL, 1LL}}, x, "sum")
    assert.same({{5, 8}, {3, 4}}, y:tolist())
  end)

  it("reduces the rows of an expanded index as it reduces elements", function()
    local x, rows = moth.randn(7, 5), moth.randn(40, 5)
    rows[3][2] = 0 / 0
    local list = moth.randint(1, 8, {40}):unsqueeze(2)
    for _, how in ipairs{ "sum", "prod", "mean", "amax", "amin" } do
      for _, own in ipairs{ true, false } do
        local named = {include_self = own}
        local y = x:scatter_reduce(1, list:expand(40, 5), rows, how, named)
        local z = x:scatter_reduce(1, list:expand(40, 5):clone(), rows, how, named)
        assert.same(tostring(z), tostring(y))
        assert.is_true(y:isnan():any():item())
      end
    end
  end)
end)

describe(group == basic and "x[{...}] with" or "x[{...}] by", function()
    for _, case in ipairs(group) do
      local name, key, positions = unpack(case)

      it(name .. " reads as in a table", function()
        local got = tensor_of()[key]
        assert.same(pick(table_of(), positions), got:tolist())
      end)

      it(name .. " writes a number, a tensor and a table", function()
        local x, t = tensor_of(), table_of()
        x[key] = -1
        local full = { unpack(positions) }
        for d = #full + 1, 3 do full[d] = all(SIZES[d]) end
        assert.same(reference.put(t, full, function() return -1 end), x:tolist())
        local selected = pick(t, full)
        local sizes = shape_of(selected)
        local unique = {}
        for _, p in ipairs(full) do
          if type(p) == "table" then
            local seen = {}
            for _, i in ipairs(p) do
              if seen[i] then unique.no = true end
              seen[i] = true
            end
          end
        end
        if unique.no then return end
        local values = reference.make(sizes, value)
        x = tensor_of()
        x[key] = moth.tensor(values, { dtype = f64 }):view(x[key].shape)
        assert.same(reference.put(t, full, value), x:tolist())
        if type(values) == "table" and #values > 0 then
          x = tensor_of()
          x[key] = values
          assert.same(reference.put(t, full, value), x:tolist())
        end
      end)

      it(name .. " has gradients for base and value", function()
        local x = (tensor_of() / 50):requires_grad_()
        assert.is_true(moth.autograd.gradcheck(function(a) return a[key] * a[key] end, { x }))
        if x[key]:numel() == 0 then return end
        local v = moth.rand(x[key].shape, { dtype = f64 }):requires_grad_()
        local function write(a, b)
          local y = a * 1
          y[key] = b
          return y * y
        end
        local repeated = name == "an integer tensor" or name == "a list of positions"
          or name == "a range and positions"
        if repeated then return end -- the order of writes is undefined
        assert.is_true(moth.autograd.gradcheck(write, { x, v }))
        assert.is_true(moth.autograd.gradcheck(function(a, b)
          local y = write(a, b:sum())
          return y
        end, { x, v }))
      end)
    end
  end)
end

describe("x[i]", function()
  it("is a row, x[i][j] is a row of it, down to a 0-d tensor", function()
    local sizes = { 2, 3, 4, 5, 6 }
    local t = reference.make(sizes, function(k) return k end)
    local data = moth.tensor(t)
    assert.equal(t[1][2][3][4][5], data[1][2][3][4][5]:item())
    assert.equal(t[2][3][4][5][6], data[-1][-1][-1][-1][-1]:item())
    assert.equal(0, data[1][2][3][4][5]:dim())
    assert.same(t[2][1], data[2][1]:tolist())
    data[1][2][3][4][5] = -7
    t[1][2][3][4][5] = -7
    assert.same(t, data:tolist())
  end)

  it("is a view: writes go through it", function()
    local x = moth.zeros(2, 3)
    local row = x[2]
    row[3] = 5
    x[{ {}, 1 }] = 7
    assert.same({ { 7, 0, 0 }, { 7, 0, 5 } }, x:tolist())
    assert.same({ 7, 0, 5 }, row:tolist())
    x[{ 1, { 2, 3 } }]:add_(10)
    assert.same({ 7, 10, 10 }, x[1]:tolist())
    local whole = x[{}]
    whole[{ 1, 1 }] = 9
    assert.equal(9, x[{ 1, 1 }]:item())
  end)

  it("accepts a value with more dims, if the first ones have size 1", function()
    local x, row = moth.zeros(3, 4), moth.tensor{{{1, 2, 3, 4}}}:requires_grad_()
    x[1] = row
    x[{2, {1, 2}}] = row[{{}, {}, {1, 2}}]
    x[moth.tensor({3}, moth.int64)] = row
    assert.same({{1, 2, 3, 4}, {1, 2, 0, 0}, {1, 2, 3, 4}}, x:tolist())
    x[x:eq(0)] = moth.full({1, 1}, 9)
    x[{1, 1}] = moth.full({1}, 8)
    assert.same({{8, 2, 3, 4}, {1, 2, 9, 9}, {1, 2, 3, 4}}, x:tolist())
    x:sum():backward()
    assert.same({{{2, 3, 2, 2}}}, row.grad:tolist())
    assert.has_error(function() x[1] = moth.ones(2, 4) end)
    assert.has_error(function() x[1] = moth.ones(1, 2, 4) end)
  end)

  it("accepts a tensor with another dtype or fewer dims as a value", function()
    local x = moth.zeros(2, 3)
    x[1] = moth.tensor({ 1, 2, 3 }, { dtype = f64 })
    x[2] = moth.tensor(4)
    assert.same({ { 1, 2, 3 }, { 4, 4, 4 } }, x:tolist())
    x[{ {}, 2 }] = moth.tensor{ 8, 9 }
    assert.same({ { 1, 8, 3 }, { 4, 9, 4 } }, x:tolist())
    x[{ {}, { 1, 2 } }] = moth.tensor{ { 5 }, { 6 } }
    assert.same({ { 5, 5, 3 }, { 6, 6, 4 } }, x:tolist())
    local i = moth.zeros(2, { dtype = i64 })
    i[1] = 9007199254740993LL
    assert.equal(9007199254740993LL, i[1]:item())
    local b = moth.zeros(2, { dtype = moth.bool })
    b[2] = true
    assert.same({ false, true }, b:tolist())
  end)
end)

describe("moth.newaxis", function()
  it("adds a dim of size 1 at its place", function()
    local x = tensor_of()
    assert.same({ 1, 4, 5, 6 }, { unpack(x[{ newaxis }].shape) })
    assert.same({ 1, 4, 5, 6 }, { unpack(x[newaxis].shape) })
    assert.same({ 4, 1, 5, 6 }, { unpack(x[{ {}, newaxis }].shape) })
    assert.same({ 1, 5, 1, 2 }, { unpack(x[{ newaxis, 2, {}, newaxis, { 1, 2 } }].shape) })
    assert.same({ 4, 5, 6, 1 }, { unpack(x[{ "...", newaxis }].shape) })
    assert.same({ { table_of()[2] } }, x[{ newaxis, { 2, 2 } }]:tolist())
  end)

  it("is also valid in writes", function()
    local x = moth.zeros(2, 2)
    x[{ {}, newaxis, 1 }] = moth.tensor{ { 3 }, { 4 } }
    assert.same({ { 3, 0 }, { 4, 0 } }, x:tolist())
  end)
end)

describe("a mask", function()
  local mask3 = reference.make(SIZES, function(k) return k % 7 == 2 end)

  it("of the tensor's shape selects elements in order", function()
    local x = tensor_of()
    assert.same(reference.masked(table_of(), mask3), x[moth.tensor(mask3)]:tolist())
    assert.same(reference.masked(table_of(), mask3), x[{ moth.tensor(mask3) }]:tolist())
    assert.same({ 0 }, { unpack(x[x:lt(0)].shape) })
  end)

  it("of fewer dims selects rows", function()
    local x, t = tensor_of(), table_of()
    local rows = moth.tensor{ true, false, false, true }
    assert.same({ t[1], t[4] }, x[rows]:tolist())
    assert.same({ pick(t, { 1, 2 }), pick(t, { 4, 2 }) }, x[{ rows, 2 }]:tolist())
    local m = reference.make({ 4, 5 }, function(k) return k % 6 == 1 end)
    assert.same(reference.masked(t, m), x[moth.tensor(m)]:tolist())
    local columns = moth.tensor{ false, true, false, false, true }
    assert.same(pick(t, { all(4), { 2, 5 } }), x[{ {}, columns }]:tolist())
    assert.same(pick(t, { { 2, 3 }, { 2, 5 }, { 1, 3 } }),
      x[{ { 2, 3 }, columns, { 1, 3, 2 } }]:tolist())
  end)

  it("of no dims keeps all or nothing", function()
    local x = tensor_of()
    assert.same({ 1, 4, 5, 6 }, { unpack(x[moth.tensor(true)].shape) })
    assert.same({ 0, 4, 5, 6 }, { unpack(x[moth.tensor(false)].shape) })
  end)

  it("is written with a number, or with as many values as are true", function()
    local x, t = tensor_of(), table_of()
    x[moth.tensor(mask3)] = 0
    local function walk(a, m)
      for i = 1, #m do
        if type(m[i]) == "table" then walk(a[i], m[i]) elseif m[i] then a[i] = 0 end
      end
    end
    walk(t, mask3)
    assert.same(t, x:tolist())
    local y = moth.tensor{ 1, -2, 3, -4 }
    y[y:lt(0)] = moth.tensor{ 20, 40 }
    assert.same({ 1, 20, 3, 40 }, y:tolist())
    y[y:gt(3)] = { 7, 8 }
    assert.same({ 1, 7, 3, 8 }, y:tolist())
    intact.refuses(function() y[y:gt(3)] = moth.ones(3) end, "index_put_", { y })
  end)

  it("has derivatives to base and value", function()
    local x = moth.rand(4, 5, { dtype = f64 }):requires_grad_()
    local mask = moth.tensor(reference.make({ 4, 5 }, function(k) return k % 3 == 0 end))
    local rows = moth.tensor{ true, false, true, true }
    local v = moth.rand(7, { dtype = f64 }):requires_grad_()
    local r = moth.rand(3, 5, { dtype = f64 }):requires_grad_()
    local check = moth.autograd.gradcheck
    assert.is_true(check(function(a) return a[mask]:mul(a[mask]) end, { x }))
    assert.is_true(check(function(a) return a[rows] * 2 end, { x }))
    assert.is_true(check(function(a, b)
      local y = a * 1
      y[mask] = b * b
      return y * y
    end, { x, v }))
    assert.is_true(check(function(a, b)
      local y = a * 1
      y[rows] = b
      return y * y
    end, { x, r }))
  end)

  it("of another dtype or shape raises", function()
    local x = moth.zeros(2, 3)
    intact.refuses(function() return (x[moth.ones(2, 3)]) end, "f32 (2, 3)", { x })
    local short = moth.ones(3, { dtype = moth.bool })
    intact.refuses(function() return (x[short]) end, "the mask (3)", { x })
    intact.refuses(function() return (x:masked_select(moth.ones(2, 3, { dtype = moth.uint8 }))) end,
      "'mask' to 'masked_select'", { x })
    assert.equal("E_DTYPE", moth.errcode())
  end)
end)

describe("several tensors of positions", function()
  local rows, columns = integers{ 1, 4, 2 }, integers{ 5, 1, -1 }

  it("are used in pairs", function()
    local x, t = tensor_of(), table_of()
    assert.same({ t[1][5], t[4][1], t[2][5] }, x[{ rows, columns }]:tolist())
    assert.same({ t[1][5][3], t[4][1][3], t[2][5][3] }, x[{ rows, columns, 3 }]:tolist())
    assert.same({ t[1][5][1], t[4][1][2], t[2][5][3] },
      x[{ rows, columns, integers{ 1, 2, 3 } }]:tolist())
    assert.same({ t[1][5], t[4][1], t[2][5] }, x[{ { { 1, 4, 2 } }, { { 5, 1, 5 } } }]:tolist())
  end)

  it("are broadcast with each other", function()
    local x, t = tensor_of(), table_of()
    local grid = x[{ integers{ { 1 }, { 3 } }, integers{ 2, 4 } }]
    assert.same({ { t[1][2], t[1][4] }, { t[3][2], t[3][4] } }, grid:tolist())
    intact.refuses(function() return (x[{ integers{ 1, 2 }, integers{ 1, 2, 3 } }]) end, "index",
      { x })
  end)

  it("with a range between them have their dims first in the result", function()
    local x, t = tensor_of(), table_of()
    local got = x[{ rows, {}, integers{ 1, 2, 3 } }]
    assert.same({ 3, 5 }, { unpack(got.shape) })
    assert.same(pick(t, { 4, all(5), 2 }), got[2]:tolist())
  end)

  it("apart from each other treat a 0-d tensor as a number, as PyTorch does", function()
    local x, one, two = tensor_of(), moth.tensor(2LL), integers{ 1, 2 }
    for _, items in ipairs{ { {}, two }, { "...", two }, { { 2, 3 }, two } } do
      assert.is_true(x[{ one, unpack(items) }]:equal(x[{ 2, unpack(items) }]))
    end
    assert.is_true(x[{ two, {}, one }]:equal(x[{ two, {}, 2 }]))
    x[{ one, {}, two }] = moth.zeros(5, 2, { dtype = f64 })
    assert.equal(0, x[{ 2, {}, { 1, 2 } }]:abs():sum():item())
    intact.refuses(function() return (x[{ one:double(), {}, two }]) end, "integers are needed")
  end)

  it("are written in pairs", function()
    local x, t = tensor_of(), table_of()
    x[{ rows, columns, 2 }] = moth.tensor({ 10, 20, 30 }, { dtype = f64 })
    t[1][5][2], t[4][1][2], t[2][5][2] = 10, 20, 30
    assert.same(t, x:tolist())
    local base = moth.rand(4, 5, 6, { dtype = f64 }):requires_grad_()
    local v = moth.rand(3, 6, { dtype = f64 }):requires_grad_()
    assert.is_true(moth.autograd.gradcheck(function(a, b)
      local y = a * 1
      y[{ rows, columns }] = b
      return y * y
    end, { base, v }))
  end)

  it("of more dims give the result their shape", function()
    local x = moth.arange(5):mul(10)
    assert.same({ { 0, 10 }, { 40, 30 } }, x[integers{ { 1, 2 }, { 5, -2 } }]:tolist())
  end)
end)

describe("an index outside of the tensor", function()
  local x = tensor_of()

  it("raises with position, dim and size, and is not clipped", function()
    local cases = {
      { { 5 }, "position 5 is out of range for dim 1 of f64 (4, 5, 6), which has size 4" },
      { { 0 }, "positions count from 1, got 0" },
      { { -5 }, "position -5 is out of range" },
      { { {}, 6 }, "position 6 is out of range" },
      { { 1, 6 }, "position 6 is out of range for dim 2 of f64 (4, 5, 6), which has size 5" },
      { { 1, "...", -7 }, "position -7 is out of range for dim 3 of f64 (4, 5, 6)" },
      { { moth.newaxis, 5 }, "position 5 is out of range for dim 1 of f64 (4, 5, 6)" },
      { { { 2, 5 } }, "range {2, 5} leaves dim 1 of size 4" },
      { { { 0, 2 } }, "range {0, 2} leaves dim 1 of size 4" },
      { { {}, { -6, 2 } }, "range {-6, 2} leaves dim 2 of size 5" },
      { { { 4, 2 } }, "range {4, 2} runs backwards" },
      { { { 1, 4, 0 } }, "needs a positive step" },
      { { { 1, 4, -1 } }, "needs a positive step" },
      { { { 1.5, 2 } }, "must hold integers" },
      { { { 1, 2, 3, 4 } }, "index 1 is a list of 4 numbers, which is no range" },
      { { 1, 2, 3, 4 }, "too many indices: 4 for f64 (4, 5, 6) with 3 dimensions" },
      { { "...", "..." }, "one \"...\" only" },
      { { 1, "a" }, "index 2 is a string ('a')" },
      { { true }, "index 1 is true" },
      { { 1.5 }, "1.5" },
      { { integers{ 1, 5 } }, "5" },
      { { integers{ 0 } }, "count from 1, got 0" },
      { { { { 1, 9 } } }, "9" },
      { { moth.ones(2) }, "f32 (2)" },
    }
    for _, case in ipairs(cases) do
      local key = case[1]
      local message = intact.refuses(function() return (x[key]) end, case[2], { x })
      local writing = intact.refuses(function() x[key] = 1 end, case[2], { x })
      assert.truthy(message and writing)
    end
  end)

  it("raises for a 0-d tensor as well", function()
    local s = moth.tensor(3)
    intact.refuses(function() return (s[1]) end, "f32 ()", { s })
    intact.refuses(function() s[1] = 1 end, "f32 ()", { s })
    assert.equal(3, s[{}]:item())
    s[{}] = 4
    assert.equal(4, s:item())
    s[{ "..." }] = 5
    assert.equal(5, s:item())
  end)

  it("raises for keys of other types", function()
    for _, key in ipairs{ true, print, setmetatable({}, {}) } do
      intact.message(function() return (x[key]) end, { x })
      intact.message(function() x[key] = 1 end, { x })
    end
  end)
end)

describe("zero-size tensors", function()
  it("are indexed like others", function()
    local x = moth.zeros(0, 3)
    assert.same({ 0 }, { unpack(x[{ {}, 2 }].shape) })
    assert.same({ 0, 2 }, { unpack(x[{ {}, { 2, 3 } }].shape) })
    assert.same({ 0, 3 }, { unpack(x[{ { 1, 0 } }].shape) })
    assert.same({ 0, 3 }, { unpack(x[moth.zeros(0, { dtype = moth.bool })].shape) })
    x[{ {}, 2 }] = 5
    assert.same({ 0, 3 }, { unpack(x.shape) })
    assert.has_error_like(function() return (x[1]) end, "size 0")
  end)
end)
