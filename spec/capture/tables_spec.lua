-- moth.capture with tables: lists and maps of tensors, also nested, as arguments and results. Their
-- structure belongs to a recording, as shapes do.

local moth = require "moth"
local support = require "spec.support.bits"
local nn, F, optim, data = moth.nn, moth.nn.functional, moth.optim, moth.data

local bits, state_of = support.of, support.state_of

local function recordings(step) return tonumber(tostring(step):match "%d+") end

describe("a captured step whose argument is a table", function()
  -- Losses and the network after 6 steps on the batches of pack(x, y), captured or plain.
  local function train(pack, open, captured)
    moth.manual_seed(5)
    local net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.2), nn.Linear(4, 2))
    local opt = optim.Adam(net:parameters())
    local function step(...)
      local x, y = open(...)
      opt:zero_grad()
      local loss = F.mse_loss(net(x), y)
      loss:backward()
      opt:step()
      return loss
    end
    if captured then step = moth.capture(step, {verify = captured == 2 and 3 or 0}) end
    local text = {}
    for i = 1, 6 do text[i] = bits(step(pack(moth.randn(4, 3), moth.randn(4, 2)))) end
    return table.concat(text) .. state_of(net), captured and recordings(step)
  end

  local forms = {
    ["a list"] = {function(x, y) return {x, y} end, function(b) return b[1], b[2] end},
    ["a map"] = {
      function(x, y) return {input = x, target = y} end,
      function(b) return b.input, b.target end,
    },
    ["a nest of lists and maps"] = {
      function(x, y) return {{x, name = "a"}, [7] = {{{y}}}, [true] = 3, ["end"] = {}}, 2 end,
      function(b) return b[1][1] * b[true], b[7][1][1][1] end,
    },
    ["a table among tensors"] = {
      function(x, y) return x, {y = y}, x end,
      function(x, b, z) return x + z, b.y end,
    },
  }
  for name, form in pairs(forms) do
    it("trains with " .. name .. " as without moth.capture, from one recording", function()
      local eager = train(form[1], form[2])
      for verify = 1, 2 do
        local captured, count = train(form[1], form[2], verify)
        assert.are.equal(eager, captured)
        assert.are.equal(1, count)
      end
    end)
  end

  it("accepts the batches that a DataLoader collates", function()
    local Pairs = nn.class("Pairs", data.Dataset)
    function Pairs:len() return 8 end
    function Pairs:get(i) return {input = moth.full({2}, i), pair = {i, moth.ones(1) * i}} end
    local step = moth.capture(function(batch)
      return batch.input:sum() + batch.pair[1]:sum() * 10 + batch.pair[2]:sum() * 100
    end)
    local total = 0
    for batch in data.DataLoader(Pairs(), {batch_size = 2}) do
      total = total + step(batch):item()
    end
    assert.are.equal(36 * 112, total)
    assert.are.equal(1, recordings(step))
  end)

  it("is recorded again for other keys, nesting, shapes, dtypes and constants", function()
    local step = moth.capture(function(b)
      local sum = moth.zeros(1)
      local function add(t)
        for _, v in pairs(t) do
          if moth.is_tensor(v) then sum = sum + v:sum()
          elseif type(v) == "table" then add(v)
          elseif type(v) == "number" then sum = sum + v end
        end
      end
      add(b)
      return sum
    end)
    local x = moth.ones(2)
    local function expect(value, count, b)
      for _ = 1, 2 do assert.are.equal(value, step(b):item()) end
      assert.are.equal(count, recordings(step))
    end
    expect(2, 1, {x})
    expect(4, 2, {x, x})
    expect(6, 3, {x, x, more = x})
    expect(4, 4, {x, more = x})
    expect(4, 4, {more = x * 0.5, x * 1.5})
    expect(4, 5, {x, {x}})
    expect(5, 6, {x, moth.ones(3)})
    expect(4, 7, {x, x:double()})
    expect(9, 8, {x, 7})
    expect(10, 8, {x, 8}) -- the oldest recording was dropped
    expect(2, 8, {x})
    assert.are.equal(2, step {x}:item())
  end)

  it("recognizes a constant NaN", function()
    local step = moth.capture(function(b, c) return b.x + (c == c and c or 1) end)
    for _ = 1, 3 do assert.are.equal(2, step({x = moth.ones(1), fill = 0 / 0}, 0 / 0):item()) end
    assert.are.equal(1, recordings(step))
    assert.are.equal(3, step({x = moth.ones(1), fill = 0 / 0}, 2):item())
    assert.are.equal(3, step({x = moth.ones(1), fill = 5}, 2):item())
    assert.are.equal(2, step({x = moth.ones(1), fill = "a"}, 0 / 0):item())
    assert.are.equal(4, recordings(step))
  end)

  it("passes its own tables to the function, which may change them", function()
    local step = moth.capture(function(b)
      b.more = b.x + 1
      b.x = nil
      return b.more * 2
    end)
    for i = 1, 3 do
      local b = {x = moth.full({1}, i)}
      assert.are.equal(2 * i + 2, step(b):item())
      assert.is_nil(b.more)
      assert.are.equal(i, b.x:item())
    end
    assert.are.equal(1, recordings(step))
  end)

  it("raises for other values in a table, with their path", function()
    local step = moth.capture(function(b) return b end)
    local function expect(text, b) assert.has_error_like(function() step(b) end, text) end
    expect("input 1.net.*Linear", {net = nn.Linear(1, 1)})
    expect("input 1%[2%]%.co.*thread", {1, {co = coroutine.create(print)}})
    expect("input 1.x.*detach", {x = moth.ones(1):requires_grad_()})
    expect("keys.*string", {[moth.ones(1)] = 1})
    local loop = {}
    loop.inner = {loop}
    expect("input 1.inner%[1%].*contains itself", loop)
    local many = {}
    for i = 1, 65 do many[i] = moth.ones(1) end
    expect("at most 64 tensors", many)
    local values, tree = {}, {moth.ones(1)}
    for i = 1, 1000 do values[i] = i end
    expect("1000 values, tables included, are needed as inputs, got more", values)
    for _ = 1, 30 do tree = {tree, tree} end -- 2^30 paths to one tensor: not all are followed
    expect("at most 64 tensors.*got more", tree)
    many[65] = nil
    for i = 1, 2 do
      for k = 1, 64 do many[k] = moth.full({1}, i * k) end
      assert.are.equal(64 * i, step(many)[64]:item())
    end
  end)
end)

describe("a captured step of many arguments", function()
  it("accepts 100 tensors, also deep in tables", function()
    local args = {}
    for i = 1, 99 do args[i] = i end
    local deep = {}
    for i = 1, 64 do deep[i] = moth.full({1}, i) end
    for _ = 1, 31 do deep = {deep} end
    args[100] = deep
    local step = moth.capture(function(...)
      local b = select(100, ...)
      while not moth.is_tensor(b[1]) do b = b[1] end
      return b[64] * select(99, ...)
    end)
    for _ = 1, 3 do assert.are.equal(64 * 99, step(unpack(args)):item()) end
    assert.are.equal(1, recordings(step))
  end)

  it("raises for more, before it runs", function()
    local ran, args = 0, {}
    for i = 1, 250 do args[i] = i end
    local step = moth.capture(function() ran = ran + 1 end)
    for _ = 1, 2 do
      assert.has_error_like(function() step(unpack(args)) end,
        "at most 100 arguments are needed, got 250; put them in a table")
    end
    assert.are.equal(0, ran)
    assert.are.equal("captured step (0 recordings)", tostring(step))
  end)
end)

describe("a captured step whose result is a table", function()
  it("returns tables with the values of this call", function()
    local step = moth.capture(function(b)
      return {sum = b[1] + b[2], parts = {b[1] * 1, {b[2] * 2}}, name = "a"}
    end)
    for i = 1, 4 do
      local r = step {moth.full({2}, i), moth.ones(2)}
      assert.are.same({i + 1, i + 1}, r.sum:tolist())
      assert.are.same({i, i}, r.parts[1]:tolist())
      assert.are.same({2, 2}, r.parts[2][1]:tolist())
      assert.are.equal("a", r.name)
    end
  end)

  it("returns new tables at each call, which callers may change", function()
    for verify = 0, 2, 2 do
      local step = moth.capture(function(b)
        local parts = {b.x + 1}
        return {loss = b.x * 2, parts = parts, again = parts, [3] = false}, b.x, nil
      end, {verify = verify})
      for i = 1, 5 do
        local r, x, last = step {x = moth.full({1}, i)}
        assert.are.equal(2 * i, r.loss:item())
        assert.are.equal(i + 1, r.parts[1]:item())
        assert.is_true(rawequal(r.parts, r.again))
        assert.is_false(r[3])
        assert.are.equal(i, x:item())
        assert.is_nil(last)
        r.loss, r.parts[1], r.again, r[3], r.more = r.loss:item(), nil, nil, nil, 1
      end
      assert.are.equal(1, recordings(step))
    end
  end)

  it("keeps the structure of a table that contains itself", function()
    local step = moth.capture(function(x)
      local r = {x = x + 1}
      r.self = {r}
      return r
    end)
    for i = 1, 3 do
      local r = step(moth.full({1}, i))
      assert.are.equal(i + 1, r.x:item())
      assert.is_true(rawequal(r, r.self[1]))
    end
  end)

  it("can be the argument of the next call", function()
    local step = moth.capture(function(state) return {h = state.h * 2, c = state.h + state.c} end)
    local state = {h = moth.ones(1), c = moth.zeros(1)}
    for _ = 1, 5 do state = step(state) end
    assert.are.same({32, 31}, {state.h:item(), state.c:item()})
  end)
end)

describe("a captured step that reads a table with tensors as keys", function()
  it("is recorded, and again after a value changes", function()
    local scales = {[moth.ones(2)] = 3}
    local step = moth.capture(function(x)
      for _, scale in pairs(scales) do x = x * scale end
      return x
    end)
    for _ = 1, 3 do assert.are.equal(3, step(moth.ones(1)):item()) end
    for key in pairs(scales) do scales[key] = 5 end
    assert.are.equal(5, step(moth.ones(1)):item())
  end)
end)
