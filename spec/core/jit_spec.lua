-- Loops of ops are compiled, and compute the same bits as interpreted.

local moth = require "moth"
local traces = require "spec.support.traces"

local nn, F, optim = moth.nn, moth.nn.functional, moth.optim

local x, y = moth.randn(4, 4), moth.randn(4, 4)
local image, filters = moth.randn(1, 2, 6, 6), moth.randn(3, 2, 3, 3)
local positions = moth.tensor{ 1LL, 3LL }
local row = moth.randn(4)
local target = moth.tensor{ 1LL, 2LL, 3LL, 4LL }

-- The most common ops, in their most common forms.
local ops = {
  ["x + y"] = function() return x + y end,
  ["x - 1"] = function() return x - 1 end,
  ["2 * x"] = function() return 2 * x end,
  ["x / y"] = function() return x / y end,
  ["-x"] = function() return -x end,
  ["x ^ 2"] = function() return x ^ 2 end,
  ["x:add_(y)"] = function() return row:add_(row) end,
  ["x:mul_(0.5)"] = function() return row:mul_(0.5) end,
  ["x:matmul(y)"] = function() return x:matmul(y) end,
  ["x:t()"] = function() return x:t() end,
  ["x:sum()"] = function() return x:sum() end,
  ["x:sum(1)"] = function() return x:sum(1) end,
  ["x:mean(2, true)"] = function() return x:mean(2, true) end,
  ["x:max(2)"] = function() return (x:max(2)) end,
  ["x:exp()"] = function() return x:exp() end,
  ["x:view(2, 8)"] = function() return x:view(2, 8) end,
  ["x[2]"] = function() return x[2] end,
  ["x[2][3]"] = function() return x[2][3] end,
  ["x[2]:sum():item()"] = function() return x[2]:sum():item() end,
  ["x:size(1)"] = function() return x:size(1) end,
  ["#x"] = function() return #x end,
  ["x:eq(y)"] = function() return x:eq(y) end,
  ["x:argmax(2)"] = function() return x:argmax(2) end,
  ["x:clone()"] = function() return x:clone() end,
  ["x:index_select(1, positions)"] = function() return x:index_select(1, positions) end,
  ["F.relu(x)"] = function() return F.relu(x) end,
  ["F.linear(x, y)"] = function() return F.linear(x, y, row) end,
  ["F.softmax(x, 2)"] = function() return F.softmax(x, 2) end,
  ["F.log_softmax(x, 2)"] = function() return F.log_softmax(x, 2) end,
  ["F.nll_loss(x, target)"] = function() return F.nll_loss(x, target) end,
  ["F.conv2d(image, filters)"] = function() return F.conv2d(image, filters) end,
  ["F.max_pool2d(image, 2)"] = function() return F.max_pool2d(image, 2) end,
  ["F.dropout(x, 0.5)"] = function() return F.dropout(x, 0.5) end,
  ["moth.zeros(4, 4)"] = function() return moth.zeros(4, 4) end,
  ["moth.randn(4, 4)"] = function() return moth.randn(4, 4) end,
}

local function sorted(t)
  local list = {}
  for name in pairs(t) do list[#list + 1] = name end
  table.sort(list)
  return list
end

local function step_of(seed)
  moth.manual_seed(seed)
  local net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
  local opt = optim.SGD(net:parameters(), { lr = 0.05, momentum = 0.9 })
  local input, class = moth.randn(5, 4), moth.tensor{ 1LL, 2LL, 3LL, 1LL, 2LL }
  return net, function()
    opt:zero_grad()
    local loss = F.cross_entropy(net(input), class)
    loss:backward()
    opt:step()
    return loss
  end
end

if traces.possible then
  describe("a loop of", function()
    for _, name in ipairs(sorted(ops)) do
      it(name .. " is compiled", function()
        local op = ops[name]
        op() -- generates its function
        local result = traces.watch(function()
          for _ = 1, 200 do op() end
        end)
        assert.same({}, traces.blame(result))
        assert.is_true(result.made >= 1, "no trace was made: " .. traces.text(result))
      end)
    end

    it("ops is still compiled after they ran long in code that is not compiled", function()
      for _, name in ipairs(sorted(ops)) do
        local op = ops[name]
        for _ = 1, 4000 do
          op()
          loadstring "" -- LuaJIT does not compile this
        end
        local result = traces.watch(function()
          for _ = 1, 200 do op() end
        end)
        assert.same({}, traces.blame(result), name)
        assert.is_true(result.made >= 1, name .. ": " .. traces.text(result))
      end
    end)

    it("recorded ops is compiled", function()
      local w = moth.randn(4, 4):requires_grad_()
      assert((w * 2 + x):relu():sum())
      local result = traces.watch(function()
        for _ = 1, 200 do
          local z = (w * 2 + x):relu():sum()
          assert(z)
        end
      end)
      assert.same({}, traces.blame(result))
      assert.is_true(result.made >= 1)
    end)

    it("scopes is compiled, except the scope's own frame", function()
      local result = traces.watch(function()
        for _ = 1, 200 do
          moth.scope(function() return (x + y):sum():item() end)
        end
      end)
      assert.is_true(result.made >= 1)
    end)

    it("training steps makes traces without aborts in Moth's code", function()
      local _, step = step_of(1)
      step()
      local result = traces.watch(function()
        for _ = 1, 200 do step() end
      end)
      assert.is_true(result.made >= 1)
      assert.same({}, traces.blame(result))
    end)
  end)
else
  pending("traces: the compiler is off, or its modules are not there")
end

describe("compiled and interpreted code", function()
  local function both(f)
    local was = jit.status()
    jit.off()
    jit.flush()
    local a = f()
    if was then jit.on() end
    jit.flush()
    local b = f()
    return a, b
  end

  local function values(t)
    if moth.is_tensor(t) then return t:tolist() end
    return t
  end

  for _, name in ipairs(sorted(ops)) do
    it("compute the same bits for " .. name, function()
      local a, b = both(function()
        moth.manual_seed(3)
        row:fill_(0.25)
        local list = {}
        for i = 1, 120 do list[i] = values(ops[name]()) end
        return list
      end)
      assert.same(a, b)
    end)
  end

  it("train a net to the same bits", function()
    local a, b = both(function()
      local net, step = step_of(5)
      local losses = {}
      for i = 1, 150 do losses[i] = step():item() end
      return { losses, net[1].weight:tolist(), net[3].bias:tolist() }
    end)
    assert.same(a, b)
    assert.is_true(b[1][150] < b[1][1])
  end)

  it("raise the same errors", function()
    local a, b = both(function()
      local list = {}
      for i = 1, 150 do
        local ok, message = pcall(function() return (x + (i < 120 and y or row[{ { 1, 3 } }])) end)
        list[i] = ok or message
      end
      return list
    end)
    assert.same(a, b)
    assert.matches("jit_spec.lua:%d+: bad argument 'other' to 'add' %(f32 %(3%)", b[150])
  end)

  it("index in all forms with the same results", function()
    local a, b = both(function()
      local list = {}
      for i = 1, 120 do
        local z = x:clone()
        z[{ { 1, 2 }, { 2, 4, 2 } }] = i
        z[2] = -i
        z[z:gt(100)] = 0
        list[i] = { z:tolist(), z[{ "...", -1 }]:tolist(), z[i % 4 + 1][2]:item() }
      end
      return list
    end)
    assert.same(a, b)
  end)

  it("run a loop with garbage and finalizers correctly", function()
    local a, b = both(function()
      local sum = 0
      for i = 1, 3000 do
        if i % 100 == 0 then
          local proxy = newproxy(true)
          local t = moth.full({ 2 }, i)
          getmetatable(proxy).__gc = function() sum = sum + (t * 2):sum():item() * 0 end
        end
        local z = x[i % 4 + 1] * i + i
        if i % 500 == 0 then collectgarbage() end
        sum = sum + z[1]:item() * 0 + 1
      end
      return sum
    end)
    assert.equal(3000, a)
    assert.equal(3000, b)
  end)
end)

-- LuaJIT may delay the read of a struct's field until after a C call that writes it again.
describe("a property of a tensor", function()
  it("keeps its value when another tensor's property is read, in compiled loops", function()
    local vector, matrix, wrong = moth.zeros(3), moth.zeros(2, 3), 0
    local half, whole = moth.zeros(3, {dtype = moth.float16}), moth.zeros(3):long()
    for _ = 1, 300 do
      if vector:dim() ~= matrix:dim() - 1 then wrong = wrong + 1 end
      if vector.ndim == matrix.ndim then wrong = wrong + 1 end
      if half:is_floating_point() == whole:is_floating_point() then wrong = wrong + 1 end
      if half.dtype == whole.dtype then wrong = wrong + 1 end
    end
    assert.equal(0, wrong)
  end)
end)

-- LuaJIT issue 829: see core/host/traverse.c.
describe("a traversal of a table", function()
  local broken = jit.version:find("beta3", 1, true)

  it("is not compiled if LuaJIT may truncate its pointers", function()
    if not broken then
      pending("this LuaJIT compiles traversals rightly: " .. jit.version)
      return
    end
    local function number(f) return require("jit.util").funcinfo(f).ffid end
    assert.is_number(number(rawget)) -- functions that LuaJIT can compile
    assert.is_nil(number(next))
    assert.equal(next, (pairs {}))
  end)

  it("has the same results as before", function()
    local seen, n = {}, 0
    for _ = 1, 200 do
      for key, value in pairs {5, 6, name = "x", [2.5] = true} do seen[key], n = value, n + 1 end
    end
    assert.same({5, 6, name = "x", [2.5] = true}, seen)
    assert.equal(800, n)
    assert.equal(nil, (next {}))
    assert.equal(1, (next {7}))
    assert.error_matches(function() pairs() end, "to 'pairs' %(table expected, got n[io]")
    assert.is_false((pcall(next, {}, "no key")))
  end)
end)
