-- ParameterList and ParameterDict register their parameters in their module.

local moth = require "moth"
local nn = moth.nn

local function names(module)
  local list = {}
  for name in module:named_parameters() do list[#list + 1] = name end
  return list
end

describe("ParameterList", function()
  local Net = nn.class("Net", nn.Module)
  function Net:init() self.weights = nn.ParameterList{nn.Parameter(moth.zeros(2)), moth.ones(3)} end

  it("registers its parameters under PyTorch's names", function()
    local net = Net()
    assert.same({"weights.0", "weights.1"}, names(net))
    assert.is_true(net.weights[2].requires_grad)
  end)

  it("is a list: #, ipairs, append, extend, assignment, positions from the end", function()
    local list = Net().weights
    list:append(moth.ones(4)):extend{moth.ones(5)}
    list[1] = moth.ones(6)
    list[5] = moth.ones(7)
    local sizes = {}
    for i, p in ipairs(list) do sizes[i] = p:numel() end
    assert.same({6, 3, 4, 5, 7}, sizes)
    assert.equal(5, #list)
    assert.equal(7, list[-1]:numel())
    assert.same({"0", "1", "2", "3", "4"}, names(list))
    assert.equal(6, list:parameters()[1]:numel())
  end)

  it("loads a state dict, by copying and by assigning", function()
    local from, to = Net(), Net()
    from.weights[1] = moth.full({2}, 7)
    to:load_state_dict(from:state_dict())
    assert.same({7, 7}, to.weights[1]:tolist())
    to:load_state_dict(Net():state_dict(), {assign = true})
    assert.same({0, 0}, to.weights[1]:tolist())
    assert.equal(to.weights[1], to:get_parameter("weights.0"))
  end)

  it("raises for values that are no tensors, and positions beyond its end", function()
    assert.error_matches(function() nn.ParameterList{1} end, "a list of tensors is needed, got 1")
    local list = Net().weights
    assert.error_matches(function() list[4] = moth.ones(1) end, "positions are 1 to 3")
    list[1] = "text"
    assert.error_matches(function() list:parameters() end, "a tensor is needed, got a string")
  end)
end)

describe("ParameterDict", function()
  it("registers a table in sorted order, pairs in their order", function()
    assert.same({"a", "b"}, names(nn.ParameterDict{b = moth.ones(1), a = moth.ones(2)}))
    assert.same({"b", "a"}, names(nn.ParameterDict{{"b", moth.ones(1)}, {"a", moth.ones(2)}}))
  end)

  it("reads, assigns, removes and clears", function()
    local dict = nn.ParameterDict{a = moth.ones(2)}
    dict.center = moth.ones(3)
    assert.same({"a", "center"}, dict:keys())
    assert.is_true(dict.center.requires_grad)
    assert.equal(2, dict:pop("a"):numel())
    assert.is_false(dict:contains("a"))
    assert.error_matches(function() dict:pop("centre") end, "did you mean 'center'")
    dict:clear()
    assert.equal(0, dict:len())
  end)

  it("returns a parameter under each of its names", function()
    local p = nn.Parameter(moth.ones(2))
    local dict = nn.ParameterDict{{"a", p}, {"b", p}}
    local found = {}
    for name, value in dict:items() do
      assert.equal(p, value)
      found[#found + 1] = name
    end
    assert.same({"a", "b"}, found)
    assert.equal(2, #dict:values())
    assert.same({"a", "b"}, nn.ParameterDict(dict):keys())
    assert.equal(1, #dict:parameters())
  end)
end)
