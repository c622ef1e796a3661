-- The policies of AutoAugment and the ranges of its relatives are torchvision's.

local moth = require "moth"
local policies = require "moth.transforms.policies"

-- name, probability and number of the magnitude, twice in each line
local PAIRS = {}
PAIRS.imagenet = [[
Posterize 0.4 8 Rotate 0.6 9
Solarize 0.6 5 AutoContrast 0.6 -
Equalize 0.8 - Equalize 0.6 -
Posterize 0.6 7 Posterize 0.6 6
Equalize 0.4 - Solarize 0.2 4
Equalize 0.4 - Rotate 0.8 8
Solarize 0.6 3 Equalize 0.6 -
Posterize 0.8 5 Equalize 1 -
Rotate 0.2 3 Solarize 0.6 8
Equalize 0.6 - Posterize 0.4 6
Rotate 0.8 8 Color 0.4 0
Rotate 0.4 9 Equalize 0.6 -
Equalize 0 - Equalize 0.8 -
Invert 0.6 - Equalize 1 -
Color 0.6 4 Contrast 1 8
Rotate 0.8 8 Color 1 2
Color 0.8 8 Solarize 0.8 7
Sharpness 0.4 7 Invert 0.6 -
ShearX 0.6 5 Equalize 1 -
Color 0.4 0 Equalize 0.6 -
Equalize 0.4 - Solarize 0.2 4
Solarize 0.6 5 AutoContrast 0.6 -
Invert 0.6 - Equalize 1 -
Color 0.6 4 Contrast 1 8
Equalize 0.8 - Equalize 0.6 -
]]
PAIRS.cifar10 = [[
Invert 0.1 - Contrast 0.2 6
Rotate 0.7 2 TranslateX 0.3 9
Sharpness 0.8 1 Sharpness 0.9 3
ShearY 0.5 8 TranslateY 0.7 9
AutoContrast 0.5 - Equalize 0.9 -
ShearY 0.2 7 Posterize 0.3 7
Color 0.4 3 Brightness 0.6 7
Sharpness 0.3 9 Brightness 0.7 9
Equalize 0.6 - Equalize 0.5 -
Contrast 0.6 7 Sharpness 0.6 5
Color 0.7 7 TranslateX 0.5 8
Equalize 0.3 - AutoContrast 0.4 -
TranslateY 0.4 3 Sharpness 0.2 6
Brightness 0.9 6 Color 0.2 8
Solarize 0.5 2 Invert 0 -
Equalize 0.2 - AutoContrast 0.6 -
Equalize 0.2 - Equalize 0.6 -
Color 0.9 9 Equalize 0.6 -
AutoContrast 0.8 - Solarize 0.2 8
Brightness 0.1 3 Color 0.7 0
Solarize 0.4 5 AutoContrast 0.9 -
TranslateY 0.9 9 TranslateY 0.7 9
AutoContrast 0.9 - Solarize 0.8 3
Equalize 0.8 - Invert 0.1 -
TranslateY 0.7 9 AutoContrast 0.9 -
]]
PAIRS.svhn = [[
ShearX 0.9 4 Invert 0.2 -
ShearY 0.9 8 Invert 0.7 -
Equalize 0.6 - Solarize 0.6 6
Invert 0.9 - Equalize 0.6 -
Equalize 0.6 - Rotate 0.9 3
ShearX 0.9 4 AutoContrast 0.8 -
ShearY 0.9 8 Invert 0.4 -
ShearY 0.9 5 Solarize 0.2 6
Invert 0.9 - AutoContrast 0.8 -
Equalize 0.6 - Rotate 0.9 3
ShearX 0.9 4 Solarize 0.3 3
ShearY 0.8 8 Invert 0.7 -
Equalize 0.9 - TranslateY 0.6 6
Invert 0.9 - Equalize 0.6 -
Contrast 0.3 3 Rotate 0.8 4
Invert 0.8 - TranslateY 0 2
ShearY 0.7 6 Solarize 0.4 8
Invert 0.6 - Rotate 0.8 4
ShearY 0.3 7 TranslateX 0.9 3
ShearX 0.1 6 Invert 0.6 -
Solarize 0.7 2 TranslateY 0.6 7
ShearY 0.8 4 Invert 0.8 -
ShearX 0.7 9 TranslateY 0.8 3
ShearY 0.8 5 AutoContrast 0.7 -
ShearX 0.7 2 Invert 0.1 -
]]

-- name, first and last magnitude for pictures of 331 pixels, are half of them negative?
local AUTO, WIDE = [[
Identity none false
ShearX 0 0.3 true
ShearY 0 0.3 true
TranslateX 0 150 true
TranslateY 0 150 true
Rotate 0 30 true
Brightness 0 0.9 true
Color 0 0.9 true
Contrast 0 0.9 true
Sharpness 0 0.9 true
Posterize 8 4 false
Solarize 1 0 false
AutoContrast none false
Equalize none false
Invert none false
]], [[
Identity none false
ShearX 0 0.99 true
ShearY 0 0.99 true
TranslateX 0 32 true
TranslateY 0 32 true
Rotate 0 135 true
Brightness 0 0.99 true
Color 0 0.99 true
Contrast 0 0.99 true
Sharpness 0 0.99 true
Posterize 8 2 false
Solarize 1 0 false
AutoContrast none false
Equalize none false
]]

local function value(text) return text ~= "-" and tonumber(text) or nil end

describe("AutoAugment", function()
  for name, text in pairs(PAIRS) do
    it("has torchvision's pairs of operations: " .. name, function()
      local n = 0
      for line in text:gmatch "[^\n]+" do
        n = n + 1
        local words = {}
        for word in line:gmatch "%S+" do words[#words + 1] = word end
        assert.same({{words[1], tonumber(words[2]), value(words[3])},
          {words[4], tonumber(words[5]), value(words[6])}}, policies[name][n])
      end
      assert.equal(25, n)
      assert.equal(25, #policies[name])
    end)
  end

  for name, text in pairs {AUTO = AUTO, WIDE = WIDE} do
    it("has torchvision's ranges: " .. name, function()
      local n = 0
      for operation, rest, signed in text:gmatch "(%u%a+) ([^\n]+) (%a+)\n" do
        local rule = policies[name][operation]
        local first, last = rest:match "^(%S+) (%S+)$"
        local size = rule.side and 331 or 1
        assert.equal(signed == "true", rule.signed or false, operation)
        if first then
          first, last = tonumber(first), tonumber(last)
          assert.near(first, rule[1] * size, 1e-3, operation)
          assert.near(last, rule[2] * size, 1e-3, operation)
        else
          assert.is_nil(rule[1])
        end
        n = n + 1
      end
      local known = 0
      for _ in pairs(policies[name]) do known = known + 1 end
      assert.equal(n, known)
    end)
  end

  it("draws from all operations", function()
    for list, rules in pairs {RAND_NAMES = "WIDE", MIX_NAMES = "MIX"} do
      local names, known = {}, {}
      for i, name in ipairs(policies[list]) do names[i] = name end
      for name in pairs(policies[rules]) do known[#known + 1] = name end
      table.sort(names)
      table.sort(known)
      assert.same(known, names)
    end
  end)

  it("applies both operations of a pair with their probabilities", function()
    moth.manual_seed(3)
    local t, counts, n = moth.transforms.AutoAugment "svhn", {}, 4000
    local parts = {{kind = "image", value = moth.zeros(3, 20, 30, {dtype = moth.uint8})}}
    for _ = 1, n do
      for _, each in ipairs(t:make_params(parts)) do counts[each[1]] = (counts[each[1]] or 0) + 1
        end
    end
    local wanted = {}
    for _, pair in ipairs(policies.svhn) do
      for _, each in ipairs(pair) do wanted[each[1]] = (wanted[each[1]] or 0) + each[2] / 25 * n end
    end
    for name, count in pairs(wanted) do
      assert.is_true(math.abs((counts[name] or 0) - count) < 6 * math.sqrt(count) + 1, name)
    end
  end)
end)
