-- Nodes of ONNX graphs on sequences: each form, positions at both sides of each bound, SequenceMap
-- over several sequences. A sequence is a Lua list of tensors.

local moth = require "moth"
local files = require "spec.support.files"
local fails = require("spec.support.refusals").fails
local models = require "spec.support.onnx_models"

local node, graph, load = models.node, models.graph, models.load

setup(files.setup)
teardown(files.teardown)

local function i64(value) return moth.tensor(value, {dtype = moth.int64}) end

-- The results of a graph of these nodes as nested lists; x is 1, 2, 3 and y is 10, 20, 30.
local function run(outputs, nodes, constants)
  local x, y = moth.tensor {1, 2, 3}, moth.tensor {10, 20, 30}
  local net = load(graph(nodes, "x y", outputs, constants), {x, y})
  local list = {net(x, y)}
  for k, value in ipairs(list) do
    if moth.is_tensor(value) then
      list[k] = value:tolist()
    else
      for i, item in ipairs(value) do value[i] = item:tolist() end
    end
  end
  return unpack(list)
end

local pair = node("SequenceConstruct", "x y", "s")

describe("a position in a sequence of two", function()
  local at = {[-2] = 1, [-1] = 2, [0] = 1, [1] = 2}
  for k = -3, 2 do
    it(("is from -2 to 1 in SequenceAt: %d"):format(k), function()
      local function get()
        return run("r", {pair, node("SequenceAt", "s k", "r")}, {k = i64(k)})
      end
      if not at[k] then
        return fails(("position %d (from 0) is out of range for a sequence of 2"):format(k), get)
      end
      assert.same(at[k] == 1 and {1, 2, 3} or {10, 20, 30}, get())
    end)

    it(("is from -2 to 1 in SequenceErase: %d"):format(k), function()
      local function get()
        return run("r", {pair, node("SequenceErase", "s k", "r")}, {k = i64(k)})
      end
      if not at[k] then return fails("position " .. k .. " (from 0)", get) end
      assert.same({at[k] == 2 and {1, 2, 3} or {10, 20, 30}}, get())
    end)
  end

  for k, wanted in pairs {[-3] = false, [-2] = 1, [-1] = 2, [0] = 1, [1] = 2, [2] = 3, [3] = false}
  do
    it(("is from -2 to 2 in SequenceInsert: %d"):format(k), function()
      local function get()
        return run("r", {pair, node("Add", "x y", "z"), node("SequenceInsert", "s z k", "r")},
          {k = i64(k)})
      end
      if not wanted then return fails("position " .. k .. " (from 0)", get) end
      local list = {{1, 2, 3}, {10, 20, 30}}
      table.insert(list, wanted, {11, 22, 33})
      assert.same(list, get())
    end)
  end

  it("is the end if there is none", function()
    local erased, longer, n = run("e r n", {pair, node("SequenceErase", "s", "e"),
      node("SequenceInsert", "s x", "r"), node("SequenceLength", "r", "n")})
    assert.same({{1, 2, 3}}, erased)
    assert.same({{1, 2, 3}, {10, 20, 30}, {1, 2, 3}}, longer)
    assert.equal(3, n)
  end)
end)

describe("SplitToSequence", function()
  -- attributes, sizes, the parts of 1, 2, 3
  for name, case in pairs {
    ["has parts of 1 by default"] = {{}, nil, {{1}, {2}, {3}}},
    ["can drop the dimension"] = {{keepdims = 0}, nil, {1, 2, 3}},
    ["keeps the dimension of parts with a size"] = {{keepdims = 0}, i64(1), {{1}, {2}, {3}}},
    ["has a shorter last part"] = {{axis = -1}, i64(2), {{1, 2}, {3}}},
    ["has parts of several sizes"] = {{axis = 0}, i64 {1, 0, 2}, {{1}, {}, {2, 3}}},
  } do
    it(name, function()
      local split = node("SplitToSequence", case[2] and "x n" or "x", "r", case[1])
      assert.same(case[3], (run("r", {split}, {n = case[2]})))
    end)
  end
end)

describe("ConcatFromSequence", function()
  it("joins along a dimension, or along a new one", function()
    local a, b, c = run("a b c", {pair, node("ConcatFromSequence", "s", "a", {axis = 0}),
      node("ConcatFromSequence", "s", "b", {axis = 0, new_axis = 1}),
      node("ConcatFromSequence", "s", "c", {axis = -1, new_axis = 1})})
    assert.same({1, 2, 3, 10, 20, 30}, a)
    assert.same({{1, 2, 3}, {10, 20, 30}}, b)
    assert.same({{1, 10}, {2, 20}, {3, 30}}, c)
  end)
end)

describe("SequenceMap", function()
  local turned = node("SequenceConstruct", "y x", "t")

  it("gives the body each element, with those of other sequences and whole tensors", function()
    local body = graph({node("Mul", "b k", "bk"), node("Sub", "a bk", "d"),
      node("ReduceSum", "a", "n", {keepdims = 0})}, "a b k", "d n")
    local d, n = run("d n", {pair, turned, node("SequenceMap", "s t y", "d n", {body = body})})
    assert.same({{1 - 100, 2 - 400, 3 - 900}, {10 - 10, 20 - 40, 30 - 90}}, d)
    assert.same({6, 60}, n)
  end)

  it("has empty results for an empty sequence", function()
    local body = graph({node("Neg", "a", "b")}, "a", "b")
    local y, n = run("r n", {node("SequenceEmpty", "", "e"),
      node("SequenceMap", "e", "r", {body = body}), node("SequenceLength", "r", "n")})
    assert.same({}, y)
    assert.equal(0, n)
  end)
end)
