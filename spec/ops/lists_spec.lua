-- Lists of a call count from 1 and have no gaps: element 0, or elements after a nil, would be
-- ignored silently.

local moth = require "moth"

local nn, F, optim, data = moth.nn, moth.nn.functional, moth.optim, moth.data

local a, b = moth.ones(2):requires_grad_(), moth.ones(2):requires_grad_()
local rows = data.TensorDataset(moth.ones(4))
local FROM_ZERO = "lists count from 1, and this one has an element 0"

describe("a list that counts from 0", function()
  local takers = {
    tensor = function() moth.tensor { [0] = 1, 2, 3 } end,
    ["a row of tensor"] = function() moth.tensor { { [0] = 1, 2, 3 }, { 4, 5, 6 } } end,
    ["rows of tensor"] = function() moth.tensor { [0] = { 1 }, { 2 } } end,
    stack = function() moth.stack { [0] = a, b } end,
    cat = function() moth.cat({ [0] = a, b }, 1) end,
    pad_sequence = function() nn.utils.rnn.pad_sequence { [0] = a, b } end,
    pack_padded_sequence = function()
      nn.utils.rnn.pack_padded_sequence(moth.ones(3, 2, 1), { [0] = 3, 2 })
    end,
    zeros = function() moth.zeros { [0] = 2, 3 } end,
    sum = function() moth.ones(2, 3):sum({ [0] = 1, 2 }) end,
    pad = function() F.pad(moth.ones(2, 3), { [0] = 1, 2, 3 }) end,
    ["positions in an index"] = function() return moth.ones(4)[{ { [0] = 1, 2 } }] end,
    ["an index"] = function() return moth.ones(4)[{ [0] = 1, 2 }] end,
    index_select = function() moth.ones(4):index_select(1, { [0] = 1, 2 }) end,
    ["an assignment"] = function() moth.ones(4)[{ { 1, 2 } }] = { [0] = 5, 6, 7 } end,
    WeightedRandomSampler = function() data.WeightedRandomSampler({ [0] = 1, 2 }, 3) end,
    Subset = function() data.Subset(rows, { [0] = 1, 2 }) end,
    random_split = function() data.random_split(rows, { [0] = 2, 2 }) end,
    SGD = function() optim.SGD({ [0] = a, b }, { lr = 1 }) end,
  }
  for name, take in pairs(takers) do
    it("raises in " .. name, function()
      assert.has_error_like(take, FROM_ZERO)
    end)
  end
end)

describe("a nil in a list", function()
  local takers = {
    SGD = function() optim.SGD({ a, nil, b }, { lr = 1 }) end,
    Adam = function() optim.Adam { a, nil, b } end,
    LBFGS = function() optim.LBFGS { a, nil, b } end,
    ["a group"] = function() optim.SGD({ { params = { a, nil, b } } }, { lr = 1 }) end,
    groups = function()
      optim.SGD({ { params = { a } }, nil, { params = { b } } }, { lr = 1 })
    end,
    ["named parameters"] = function() optim.SGD({ { "a", a }, nil, { "b", b } }, { lr = 1 }) end,
    clip_grad_norm_ = function() nn.utils.clip_grad_norm_({ a, nil, b }, 1) end,
    parameters_to_vector = function() nn.utils.parameters_to_vector { a, nil, b } end,
    ConcatDataset = function() data.ConcatDataset { rows, nil, rows } end,
    Subset = function() data.Subset(rows, { 1, nil, 2 }) end,
    SubsetRandomSampler = function() data.SubsetRandomSampler { 1, nil, 2 } end,
    ChainedScheduler = function()
      local schedule = optim.lr_scheduler.StepLR(optim.SGD({ a }, { lr = 1 }), 3)
      optim.lr_scheduler.ChainedScheduler { schedule, nil, schedule }
    end,
  }
  for name, take in pairs(takers) do
    it("raises in " .. name, function()
      assert.has_error_like(take, "value 2 is nil")
    end)
  end
end)

describe("a name in a list", function()
  it("raises in TensorDataset, whose samples have no names", function()
    assert.has_error_like(function() data.TensorDataset { a, y = b } end, "no names, got 'y'")
  end)
end)

describe("arguments in braces without names", function()
  it("may begin with an object, which cannot be a list of arguments", function()
    local optimizer = optim.SGD({ a }, { lr = 1 })
    assert.equal(3, optim.lr_scheduler.StepLR { optimizer, 3 }.step_size)
    assert.equal(2, #nn.TransformerEncoder { nn.TransformerEncoderLayer { 8, 2 }, 2 }.layers)
    assert.equal(2, data.Subset { rows, { 1, 3 } }:len())
    assert.equal(2, #data.random_split { rows, { 2, 2 } })
    local layer = nn.utils.parametrizations.spectral_norm { nn.Linear(2, 2), "weight", 2 }
    assert.equal("Linear", nn.typename(layer))
  end)
end)

describe("a list of numbers as an operand", function()
  local x = moth.ones(2, 2)

  it("raises if the second list would become alpha, or an extra argument", function()
    local lists = { sub = { 0.5, 0.2 }, add = { 1, 2 }, mul = { 1, 2 }, eq = { 1, 2, 3 } }
    for name, list in pairs(lists) do
      assert.has_error_like(function() x[name](x, list) end,
        "to '" .. name .. "' %(a list of numbers is no operand; write moth.tensor{")
      assert.has_error_like(function() moth[name](x, list) end, "is no operand")
    end
  end)

  it("is accepted as each of two operands; braces take one operand or names", function()
    assert.equal(0.5, x:clamp { 0, 0.5 }:max():item())
    assert.equal(2, x:add { 1 }:max():item())
    assert.equal(3, x:add { x, alpha = 2 }:max():item())
  end)
end)
