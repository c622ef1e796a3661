-- An option arrives in its own place: each option of an optimizer, alone and in position, sets its
-- own entry of the group and no other; further refusals of sizes, and parts that a call leaves out.

local moth = require "moth"
local bind = require "moth.binding.bind"

local nn, optim = moth.nn, moth.optim
local parametrize = nn.utils.parametrize

local IGNORED = {params = true, foreach = true, fused = true, capturable = true}
-- Values of options that are no number and no boolean.
local OTHERS = {
  betas = {0.5, 0.75}, etas = {0.25, 1.5}, step_sizes = {0.125, 2}, max_eval = 7,
  ns_coefficients = {3, -4, 2}, adjust_lr_fn = "original", line_search_fn = "strong_wolfe",
  eps = {0.5, 0.25}, -- Adafactor's
}

local function other(arg)
  if type(arg.default) == "boolean" then return not arg.default end
  if type(arg.default) ~= "number" then return (assert(OTHERS[arg.name], arg.name)) end
  if arg.default == 0 then return 0.25 end
  if arg.default >= 1 then return arg.default * (arg.kind == "int" and 2 or 1.5) end
  return arg.default * 0.75
end

local function group_of(name, ...)
  return optim[name]({moth.ones(2, 2):requires_grad_()}, ...).param_groups[1]
end

local function options_of(name)
  local list = {}
  for _, arg in ipairs(bind.signature(optim[name].signature).args) do
    local key = arg.name or arg[2]
    if not IGNORED[key] then
      list[#list + 1] = {key, other({kind = arg.kind or arg[1], name = key,
                                     default = arg.default})}
    end
  end
  return list
end

local names = {}
for _, name in ipairs(getmetatable(optim).__names(optim)) do
  local class = optim[name]
  if type(class) == "table" and rawget(class, "signature") then names[#names + 1] = name end
end

describe("an option of", function()
  for _, name in ipairs(names) do
    it(name .. " alone sets its own entry", function()
      local plain = group_of(name)
      for _, option in ipairs(options_of(name)) do
        local key, value = unpack(option)
        local given = {[key] = value}
        if key == "nesterov" and value then given.momentum = 0.5 end
        local group, expected = group_of(name, given), {}
        for k, v in pairs(plain) do expected[k] = v end
        if key == "max_iter" then expected.max_eval = math.floor(value * 5 / 4) end
        for k, v in pairs(given) do expected[k] = v end
        expected.params, group.params = nil, nil
        assert.same(expected, group)
      end
    end)

    it(name .. " has its position", function()
      local values, given, n = {}, {}, 0
      for i, option in ipairs(options_of(name)) do
        values[i], n = option[2], i
        if option[1] == "dampening" then values[i] = 0 end -- nesterov needs none
        given[option[1]] = values[i]
      end
      local by_position, by_name = group_of(name, unpack(values, 1, n)), group_of(name, given)
      by_position.params, by_name.params = nil, nil
      assert.same(by_name, by_position)
      for key, value in pairs(given) do assert.same(value, by_position[key]) end
    end)
  end

  it("every optimizer was read", function() assert.is_true(#names >= 15) end)
end)

describe("a refusal names the sizes that are possible:", function()
  for _, row in ipairs {
    {"one less than the least", 8}, {"the stride more than the least", 11},
  } do
    it(row[1], function()
      local layer = nn.ConvTranspose1d(2, 3, 3, {stride = 2})
      local ok, message = pcall(layer, moth.zeros(1, 2, 4), row[2])
      assert.is_false(ok)
      assert.equal(("in ConvTranspose1d: bad argument 'output_size' to 'ConvTranspose1d' (9 to 10 "
        .. "are possible for f32 (1, 2, 4), got (%d))"):format(row[2]),
        (message:gsub("^[^:]*:%d+: ", "")))
      assert.equal(9, layer(moth.zeros(1, 2, 4), 9):size(-1))
      assert.equal(10, layer(moth.zeros(1, 2, 4), 10):size(-1))
    end)
  end

  it("the wrong one of two", function()
    local layer = nn.ConvTranspose2d(2, 3, 3, {stride = {1, 2}, padding = {1, 0}})
    local x = moth.zeros(1, 2, 4, 4)
    assert.same({1, 3, 4, 10}, {unpack(layer(x, {4, 10}).shape)})
    for _, row in ipairs {{{3, 9}, "4 to 4", "3, 9"}, {{5, 9}, "4 to 4", "5, 9"},
                          {{4, 8}, "9 to 10", "4, 8"}, {{4, 11}, "9 to 10", "4, 11"}} do
      local ok, message = pcall(layer, x, row[1])
      assert.is_false(ok)
      assert(message:find(row[2] .. " are possible for f32 (1, 2, 4, 4), got", 1, true), message)
      assert(message:find(row[3], 1, true), message)
    end
  end)

  it("too many combinations", function()
    local ok, message = pcall(moth.combinations, moth.zeros(1000), 3)
    assert.is_false(ok)
    assert(message:find("the result may have at most 100000000 elements, not 1.66e+08 rows of 3",
      1, true), message)
  end)
end)

it("lu_unpack leaves out what is not asked for, with no element", function()
  local lu, pivots = moth.linalg.lu_factor(moth.randn(2, 3, 4))
  local p, l, u = moth.lu_unpack(lu, pivots, false, true)
  assert.same({{0}, {0}, {2, 3, 3}}, {{unpack(l.shape)}, {unpack(u.shape)}, {unpack(p.shape)}})
  p, l, u = moth.lu_unpack(lu, pivots, true, false)
  assert.same({{2, 3, 3}, {2, 3, 4}, {0}},
    {{unpack(l.shape)}, {unpack(u.shape)}, {unpack(p.shape)}})
end)

describe("a second parametrization", function()
  local function counting(inverse)
    local Counting = moth.class("Counting", nn.Module)
    function Counting.forward(_, x) return x * 2 end
    local made = Counting()
    made.calls = 0
    if inverse then
      function Counting:right_inverse(x)
        self.calls = self.calls + 1
        return x / 2
      end
    end
    return made
  end

  it("without right_inverse leaves the original as it is", function()
    local layer, first = nn.Linear(2, 2), counting(true)
    parametrize.register_parametrization(layer, "weight", first)
    local calls, original = first.calls, layer.parametrizations.weight.original:clone()
    parametrize.register_parametrization(layer, "weight", counting(false))
    assert.equal(calls, first.calls)
    assert.is_true(original:equal(layer.parametrizations.weight.original))
    assert.is_true((original * 4):equal(layer.weight))
  end)

  it("with right_inverse assigns through the first", function()
    local layer, first, second = nn.Linear(2, 2), counting(true), counting(true)
    local weight = layer.weight:detach():clone()
    parametrize.register_parametrization(layer, "weight", first)
    local calls = first.calls
    parametrize.register_parametrization(layer, "weight", second)
    assert.equal(calls + 1, first.calls)
    assert.equal(1, second.calls)
    assert.is_true((weight / 4):equal(layer.parametrizations.weight.original))
    assert.is_true(weight:equal(layer.weight))
  end)
end)
