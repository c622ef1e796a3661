-- The parameters that random transforms make of random numbers, at both ends of their ranges. The
-- ranges are those of torchvision.transforms.v2. The numbers are given: `draws` replaces them.

local moth = require "moth"
local draw = require "moth.transforms.draw"
local T = moth.transforms

local kept = {}
for name, f in pairs(draw) do kept[name] = f end
local END = 1 - 2 ^ -24 -- the largest random f32 below 1

local given, used

-- Makes the transforms draw these numbers, in turn; then zeros.
local function draws(list)
  given, used = list, 0
  local function following()
    used = used + 1
    return given[used] or 0
  end
  function draw.numbers(_, n)
    local out = {}
    for i = 1, n do out[i] = following() end
    return out
  end
  function draw.uniform(_, low, high) return low + (high - low) * following() end
  function draw.integer(_, low, high) return draw.whole(following(), low, high) end
  function draw.order(_, n)
    local out = {}
    for i = 1, n do out[i] = n + 1 - i end
    return out
  end
  function draw.beta() return following() end
end

after_each(function()
  for name, f in pairs(kept) do draw[name] = f end
end)

-- The parameters for a picture of a height and a width.
local function params(t, list, height, width, channels)
  draws(list)
  local p = t:make_params {{kind = "image", value = moth.zeros(channels or 3, height, width)}}
  return p, used
end

local function near(wanted, got)
  if type(wanted) ~= "table" then
    if type(wanted) ~= "number" then return assert.equal(wanted, got) end
    return assert.near(wanted, got, 1e-5)
  end
  for key, value in pairs(wanted) do near(value, got[key]) end
  for key in pairs(got) do assert.is_true(wanted[key] ~= nil, tostring(key)) end
end

local function refuses(f, text)
  local fine, problem = pcall(f)
  assert.is_false(fine)
  assert.is_true(tostring(problem):find(text, 1, true) ~= nil, tostring(problem))
end

describe("random numbers of transforms", function()
  it("are integers below the end, and numbers between the ends", function()
    assert.equal(2, draw.whole(0, 2, 5))
    assert.equal(3, draw.whole(1 / 3 + 1e-9, 2, 5))
    assert.equal(4, draw.whole(END, 2, 5))
    assert.equal(4, draw.whole(1, 2, 5))
    assert.equal(2, draw.whole(END, 2, 3))
    local g = moth.Generator {seed = 1}
    local seen, low, high = {}, 1, -1
    for _ = 1, 300 do
      seen[draw.integer(g, 1, 4)] = true
      local x = draw.uniform(g, -2, 3)
      low, high = math.min(low, x), math.max(high, x)
    end
    assert.same({true, true, true}, seen)
    assert.is_true(low >= -2 and low < -1.9 and high > 2.9 and high <= 3)
    local order = draw.order(g, 5)
    table.sort(order)
    assert.same({1, 2, 3, 4, 5}, order)
    assert.equal(3, #draw.numbers(g, 3))
  end)

  it("are rounded as in Python, halves to the even integer", function()
    for x, wanted in pairs {[0.5] = 0, [1.5] = 2, [2.5] = 2, [3.5] = 4, [-0.5] = 0, [-1.5] = -2,
                            [-2.5] = -2, [0.49] = 0, [0.51] = 1, [2] = 2, [-1.2] = -1,
                            [-1.7] = -2} do
      assert.equal(wanted, draw.round(x) + 0, tostring(x))
    end
  end)

  it("of Beta have its mean and variance", function()
    local g = moth.Generator {seed = 2}
    for _, alpha in ipairs {0.2, 1, 4} do
      local sum, squares, n = 0, 0, 2000
      for _ = 1, n do
        local x = draw.beta(g, alpha)
        assert.is_true(x >= 0 and x <= 1)
        sum, squares = sum + x, squares + (x - 0.5) ^ 2
      end
      assert.near(0.5, sum / n, 0.04)
      assert.near(1 / (4 * (2 * alpha + 1)), squares / n, 0.02)
    end
    local x = draw.beta(g, 1e-9) -- both gamma numbers are the smallest
    assert.is_true(x == 0 or x == 1)
  end)
end)

describe("a transform with a probability", function()
  it("is applied if the number is below it", function()
    local x = moth.zeros(1, 2, 2, {dtype = moth.uint8})
    for _, make in ipairs {function(p) return T.RandomInvert(p) end,
                           function(p) return T.RandomApply({T.RandomInvert(1)}, p) end} do
      for _, case in ipairs {{0, 0, false}, {0.5, 0.5, false}, {0.5, 0.499, true}, {1, END, true},
                             {0.5, END, false}, {0.5, 0, true}} do
        draws {case[2], 0}
        assert.equal(case[3], make(case[1])(x):sum():item() > 0, ("p %g"):format(case[1]))
      end
    end
  end)

  it("is one of a list, by weight", function()
    local function chosen(u, p)
      local got
      local list = {}
      for i = 1, 3 do
        list[i] = function(x)
          got = i
          return x
        end
      end
      local t = T.RandomChoice(list, p)
      draws {u}
      t(moth.zeros(1, 1, 1))
      return got
    end
    for _, case in ipairs {
      {0, 1}, {0.333, 1}, {0.334, 2}, {0.666, 2}, {0.667, 3}, {END, 3}, {1, 3},
    } do
      assert.equal(case[2], chosen(case[1]), tostring(case[1]))
    end
    for _, case in ipairs {{0, 1}, {0.249, 1}, {0.25, 2}, {0.74, 2}, {0.75, 3}, {END, 3}} do
      assert.equal(case[2], chosen(case[1], {2, 4, 2}), tostring(case[1]))
    end
    assert.equal(2, chosen(0, {0, 1, 0}))
    assert.equal(2, chosen(END, {0, 1, 0}))
  end)

  it("RandomOrder applies all transforms in the drawn order", function()
    local text = ""
    local t = T.RandomOrder {function(x) text = text .. "a" return x end,
                             function(x) text = text .. "b" return x end}
    draws {}
    t(moth.zeros(1, 1, 1))
    assert.equal("ba", text)
  end)
end)

describe("windows", function()
  it("RandomCrop takes each place, with a border", function()
    local function wanted(top, left, height, width, padding)
      return {top = top, left = left, height = height, width = width, padding = padding or false}
    end
    local t = T.RandomCrop {3, 2}
    near(wanted(0, 0, 3, 2), (params(t, {0, 0}, 5, 7)))
    near(wanted(2, 5, 3, 2), (params(t, {END, END}, 5, 7)))
    near(wanted(1, 3, 3, 2), (params(t, {0.5, 0.5}, 5, 7)))
    near(wanted(0, 0, 5, 7), (params(T.RandomCrop {5, 7}, {END, END}, 5, 7)))
    t = T.RandomCrop {size = {3, 2}, padding = {1, 2, 3, 4}}
    near(wanted(8, 9, 3, 2, {1, 2, 3, 4}), (params(t, {END, END}, 5, 7)))
    t = T.RandomCrop {size = {3, 2}, padding = {1, 2}}
    near(wanted(6, 7, 3, 2, {1, 2, 1, 2}), (params(t, {END, END}, 5, 7)))
    t = T.RandomCrop {size = {8, 3}, pad_if_needed = true}
    near(wanted(3, 4, 8, 3, {0, 3, 0, 3}), (params(t, {END, END}, 5, 7)))
    t = T.RandomCrop {size = {3, 9}, padding = 1, pad_if_needed = true}
    near(wanted(4, 0, 3, 9, {1, 1, 1, 1}), (params(t, {END, END}, 5, 7)))
    t = T.RandomCrop {size = {3, 10}, padding = 1, pad_if_needed = true}
    near(wanted(4, 1, 3, 10, {2, 1, 2, 1}), (params(t, {END, END}, 5, 7)))
    refuses(function() params(T.RandomCrop(6), {}, 5, 7) end, "RandomCrop: the size {6, 6} is "
      .. "larger than the picture, {5, 7}; padding or pad_if_needed adds a border")
    refuses(function() params(T.RandomCrop(8, 1), {}, 5, 6) end, "RandomCrop: the size {8, 8} is "
      .. "larger than the picture, {7, 8} with its padding")
  end)

  it("RandomResizedCrop draws areas and ratios; after ten windows it takes the middle", function()
    local function of(scale, ratio, list)
      return params(T.RandomResizedCrop {8, scale = scale, ratio = ratio}, list, 100, 200)
    end
    local function wanted(top, left, height, width)
      return {top = top, left = left, height = height, width = width}
    end
    near(wanted(0, 0, 71, 71), (of({0.25, 0.25}, {1, 1}, {0, 0, 0, 0})))
    near(wanted(29, 129, 71, 71), (of({0.25, 0.25}, {1, 1}, {0, 0, END, END})))
    near(wanted(0, 0, 63, 32), (of({0.1, 0.2}, {0.5, 2}, {0, 0, 0, 0})))
    near(wanted(0, 0, 32, 63), (of({0.1, 0.2}, {0.5, 2}, {0, 1, 0, 0})))
    near(wanted(0, 0, 45, 45), (of({0.1, 0.2}, {0.5, 2}, {0, 0.5, 0, 0})))
    near(wanted(0, 0, 63, 63), (of({0.1, 0.2}, {0.5, 2}, {1, 0.5, 0, 0})))
    near(wanted(0, 0, 100, 200), (of({1, 1}, {2, 2}, {0, 0, END, END})))
    local p, n = of({0.25, 1}, {1, 1}, {1, 0, 0, 0, 0, 0, 0, 0}) -- 141 rows do not fit
    near(wanted(0, 0, 71, 71), p)
    assert.equal(8, n)
    p, n = of({1, 1}, {0.5, 1}, {})
    near(wanted(0, 50, 100, 100), p)
    assert.equal(40, n)
    near(wanted(16, 0, 67, 200), (of({1, 1}, {3, 4}, {})))
    near(wanted(0, 0, 100, 200), (of({1.1, 1.1}, {1, 2}, {})))
    near(wanted(0, 0, 100, 200), (of({1.1, 1.1}, {2, 3}, {})))
  end)

  it("RandomErasing draws rectangles that are smaller than the picture", function()
    local function of(scale, ratio, list, height, width)
      local t = T.RandomErasing {1, scale = {scale, scale}, ratio = {ratio, ratio}, value = 5}
      return params(t, list, height, width)
    end
    near({i = 0, j = 0, h = 7, w = 7, v = 5}, (of(0.25, 1, {}, 10, 20)))
    near({i = 3, j = 13, h = 7, w = 7, v = 5}, (of(0.25, 1, {0, 0, END, END}, 10, 20)))
    near({i = 12, j = 13, h = 28, w = 7, v = 5}, (of(0.25, 4, {0, 0, END, END}, 40, 20)))
    local p, n = of(0.5, 1, {}, 10, 20) -- 10 rows of 10
    near({}, p)
    assert.equal(40, n)
    near({}, (of(0.5, 1, {}, 20, 10)))
    local t = T.RandomErasing {1, scale = {0.1, 0.4}, ratio = {0.25, 4}}
    near({i = 0, j = 0, h = 11, w = 45, v = 0}, (params(t, {0, 0, 0, 0}, 50, 100)))
    near({i = 0, j = 0, h = 22, w = 22, v = 0}, (params(t, {0, 0.5, 0, 0}, 50, 100)))
    near({i = 0, j = 0, h = 45, w = 45, v = 0}, (params(t, {1, 0.5, 0, 0}, 50, 100)))
    refuses(function() params(T.RandomErasing {1, value = {1, 2}}, {}, 9, 9) end,
      "bad argument 'value' to 'RandomErasing' (of 2 numbers does not fit 3 channels)")
    params(T.RandomErasing {1, value = {1, 2, 3}}, {}, 9, 9)
    params(T.RandomErasing {1, value = {1}}, {}, 9, 9)
    local v = params(T.RandomErasing {1, scale = {0.25, 0.25}, ratio = {1, 1}, value = "random"},
      {}, 10, 20).v
    assert.same({3, 7, 7}, {unpack(v.shape)})
    local x = moth.ones(3, 10, 20)
    draws {}
    local y = T.RandomErasing {1, scale = {0.25, 0.25}, ratio = {1, 1}}(x)
    assert.equal(3 * (200 - 49), y:sum():item())
    assert.equal(600, x:sum():item())
    T.RandomErasing {1, scale = {0.25, 0.25}, ratio = {1, 1}, inplace = true}(x)
    assert.equal(3 * (200 - 49), x:sum():item())
  end)

  it("RandomIoUCrop tries windows, then another overlap", function()
    local function of(list, options, corners, more)
      local t = T.RandomIoUCrop {min_scale = 0.5, sampler_options = options}
      for name, value in pairs(more or {}) do t[name] = value end
      draws(list)
      local box = T.BoundingBoxes(moth.tensor {corners or {0, 0, 10, 10}}, "XYXY", {20, 40})
      local p = t:make_params {{kind = "image", value = moth.zeros(3, 20, 40)},
                               {kind = "boxes", value = box}}
      p.inside = p.inside and p.inside:tolist()
      return p, used
    end
    local function window(left, top, width, height)
      return {left = left, top = top, width = width, height = height, inside = {true}}
    end
    local p, n = of({0, 0, 1, 0, 0}, {0})
    near(window(0, 0, 20, 20), p)
    assert.equal(5, n)
    near(window(0, 0, 20, 10), (of({0, 0, 0, 0, 0}, {0}))) -- a ratio of 2 is the last
    near(window(0, 0, 20, 20), (of({0, 0, 0, 0, 0, 0, 1, 0, 0}, {0}, nil,
      {max_aspect_ratio = 1.9})))
    near(window(4, 0, 20, 20), (of({0, 0, 1, 0.2, 0}, {0})))
    near(window(0, 5, 20, 10), (of({0, 0, 0, 0, 0.5}, {0}, {0, 4, 10, 14})))
    near(window(0, 0, 20, 20), (of({0, 0, 1, 0.25, 0, 0, 1, 0, 0}, {0}))) -- the centre is its edge
    near(window(0, 0, 20, 20), (of({0, 0, 1, 0, 0}, {0.25})))
    p, n = of({0, 0, 1, 0, 0, END}, {0.26, 1}, nil, {trials = 1})
    near({}, p)
    assert.equal(6, n)
    near({}, (of({0}, {1})))
    assert.equal(40, T.RandomIoUCrop().trials)
  end)
end)

describe("sizes and borders", function()
  it("RandomResize takes sizes below the end", function()
    near({size = {5}}, (params(T.RandomResize(5, 9), {0}, 4, 4)))
    near({size = {8}}, (params(T.RandomResize(5, 9), {END}, 4, 4)))
    refuses(function() T.RandomResize(5, 5) end, "must be greater than min_size, 5, got 5")
    T.RandomResize(5, 6)
  end)

  it("RandomShortestSize chooses from a list, up to a longer side", function()
    local t = T.RandomShortestSize {min_size = {10, 20}, max_size = 25}
    near({size = {10, 20}}, (params(t, {0}, 20, 40)))
    near({size = {12, 25}}, (params(t, {END}, 20, 40)))
    near({size = {25, 12}}, (params(t, {END}, 40, 20)))
    near({size = {20, 40}}, (params(T.RandomShortestSize {10, 20}, {END}, 20, 40)))
    near({size = {30, 60}}, (params(T.RandomShortestSize(30), {END}, 20, 40)))
  end)

  it("ScaleJitter fits the picture into a size, times a factor", function()
    near({size = {10, 20}}, (params(T.ScaleJitter({40, 60}, {0.5, 1}), {0}, 20, 40)))
    near({size = {20, 40}}, (params(T.ScaleJitter({40, 60}, {0.5, 1}), {1}, 20, 40)))
    near({size = {10, 20}}, (params(T.ScaleJitter({100, 10}, {1, 1}), {1}, 20, 40)))
    near({size = {1, 1}}, (params(T.ScaleJitter({1, 1}, {0, 1}), {0}, 20, 40)))
    near({size = {2, 4}}, (params(T.ScaleJitter {40, 60}, {0}, 20, 40)))
    near({size = {40, 80}}, (params(T.ScaleJitter {40, 60}, {1}, 20, 40)))
  end)

  it("RandomZoomOut puts the picture at each place of a larger one", function()
    local t = T.RandomZoomOut()
    near({padding = {0, 0, 0, 0}}, (params(t, {0, END, END}, 10, 20)))
    near({padding = {30, 15, 30, 15}}, (params(t, {1, 0.5, 0.5}, 10, 20)))
    near({padding = {60, 30, 0, 0}}, (params(t, {1, 1, 1}, 10, 20)))
    near({padding = {0, 0, 30, 15}}, (params(t, {0.5, 0, 0}, 10, 20)))
    t = T.RandomZoomOut {side_range = {2, 2}}
    near({padding = {20, 0, 0, 10}}, (params(t, {1, 1, 0}, 10, 20)))
    draws {0, 1, 0.5, 0.5}
    assert.same({3, 16, 24}, {unpack(T.RandomZoomOut {p = 1}(moth.zeros(3, 4, 6)).shape)})
  end)
end)

describe("rotations, shifts and corners", function()
  it("RandomRotation takes both ends", function()
    near({angle = -30}, (params(T.RandomRotation(30), {0}, 4, 4)))
    near({angle = 30}, (params(T.RandomRotation(30), {1}, 4, 4)))
    near({angle = 10}, (params(T.RandomRotation {10, 20}, {0}, 4, 4)))
    near({angle = 20}, (params(T.RandomRotation {10, 20}, {1}, 4, 4)))
  end)

  it("RandomAffine takes both ends of each range", function()
    local t = T.RandomAffine(10, {0.1, 0.2}, {0.5, 2}, {1, 2, 3, 4})
    near({angle = -10, translate = {-3, -10}, scale = 0.5, shear = {1, 3}},
      (params(t, {}, 50, 30)))
    near({angle = 10, translate = {3, 10}, scale = 2, shear = {2, 4}},
      (params(t, {1, 1, 1, 1, 1, 1}, 50, 30)))
    near({angle = 0, translate = {0, 0}, scale = 1, shear = {0, 0}},
      (params(T.RandomAffine(0), {}, 50, 30)))
    near({angle = 0, translate = {0, 0}, scale = 1, shear = {-5, 0}},
      (params(T.RandomAffine {0, shear = 5}, {}, 50, 30)))
    near({angle = 0, translate = {0, 0}, scale = 1, shear = {7, 0}},
      (params(T.RandomAffine {0, shear = {5, 7}}, {1, 1, 1}, 50, 30)))
    near({angle = 0, translate = {-2, 2}, scale = 1, shear = {0, 0}}, -- 2.5, halves to even
      (params(T.RandomAffine {0, translate = {0.25, 0.25}}, {0, 0, 1}, 10, 10)))
  end)

  it("RandomPerspective moves each corner inwards", function()
    local coefficients = require("moth.transforms.warp").coefficients
    local from = {{0, 0}, {29, 0}, {29, 19}, {0, 19}}
    for _, case in ipairs {
      {0.5, 0, {{0, 0}, {22, 0}, {22, 14}, {0, 14}}},
      {0.5, END, {{7, 5}, {29, 5}, {29, 19}, {7, 19}}},
      {0, END, {{0, 0}, {29, 0}, {29, 19}, {0, 19}}},
      {1, 0, {{0, 0}, {14, 0}, {14, 9}, {0, 9}}},
    } do
      local u = {}
      for i = 1, 8 do u[i] = case[2] end
      local p, n = params(T.RandomPerspective(case[1], 1), u, 20, 30)
      assert.equal(8, n)
      near(coefficients(from, case[3]), p.coefficients)
    end
    local p = params(T.RandomPerspective(0.5, 1), {END, 0, 0, END, END, 0, 0, END}, 20, 30)
    near(coefficients(from, {{7, 0}, {22, 5}, {29, 14}, {0, 19}}), p.coefficients)
  end)

  it("ElasticTransform's displacements are noise of its size, and blurred", function()
    local function noise(seed)
      local g = moth.Generator {seed = seed}
      local options = {generator = g}
      return moth.rand(1, 1, 5, 8, options) * 2 - 1, moth.rand(1, 1, 5, 8, options) * 2 - 1
    end
    for _, case in ipairs {{{16, 10}, {0, 0}}, {16, {0, 0}}, {{16, 10}, {0.5, 0.4}},
                           {{16, 10}, {0.9, 0.4}, 9}} do
      local t = T.ElasticTransform(case[1], case[2])
      t.generator = moth.Generator {seed = 4}
      local d = t:make_params {{kind = "image", value = moth.zeros(3, 5, 8)}}.displacement
      local dx, dy = noise(4)
      if case[2][1] > 0 then
        dx = T.functional.gaussian_blur(dx, {case[3] or 5, case[3] or 5}, case[2])
        dy = T.functional.gaussian_blur(dy, {5, 5}, case[2])
      end
      local down = type(case[1]) == "number" and case[1] or case[1][2]
      assert.same({1, 5, 8, 2}, {unpack(d.shape)})
      assert.is_true(moth.allclose(d:select(4, 1), (dx * 16 / 8):squeeze(1)))
      assert.is_true(moth.allclose(d:select(4, 2), (dy * down / 5):squeeze(1)))
    end
  end)
end)

describe("colors and mixtures", function()
  it("ColorJitter takes both ends of each range", function()
    local t = T.ColorJitter(0.4, {0.5, 2}, 0, 0.1)
    near({fn_idx = {4, 3, 2, 1}, factors = {0.6, 0.5, false, -0.1}}, (params(t, {}, 4, 4)))
    near({fn_idx = {4, 3, 2, 1}, factors = {1.4, 2, false, 0.1}}, (params(t, {1, 1, 1}, 4, 4)))
    near({fn_idx = {4, 3, 2, 1}, factors = {0, false, false, false}},
      (params(T.ColorJitter(2), {0}, 4, 4)))
    near({fn_idx = {4, 3, 2, 1}, factors = {3, false, 1.5, false}},
      (params(T.ColorJitter {2, saturation = 0.5}, {1, 1}, 4, 4)))
  end)

  it("RandomPhotometricDistort applies each change with its probability", function()
    local t = T.RandomPhotometricDistort()
    near({brightness = 0.875, contrast = 0.5, saturation = 0.5, hue = -0.05,
          contrast_before = true, order = {3, 2, 1}}, (params(t, {}, 4, 4)))
    near({brightness = 1.125, contrast = 1.5, saturation = 1.5, hue = 0.05,
          contrast_before = true, order = {3, 2, 1}},
      (params(t, {0.49, 1, 0.49, 1, 0.49, 1, 0.49, 1, 0.49, 0.49}, 4, 4)))
    near({brightness = false, contrast = false, saturation = false, hue = false,
          contrast_before = false, order = false},
      (params(t, {0.5, 1, 0.5, 1, 0.5, 1, 0.5, 1, 0.5, 0.5}, 4, 4)))
    local x = moth.arange(3):view(3, 1, 1):to(moth.uint8)
    draws {0.5, 1, 0.5, 1, 0.5, 1, 0.5, 1, 0.5, 0}
    assert.same({2, 1, 0}, t(x):flatten():tolist())
  end)

  it("RandomPhotometricDistort changes the contrast before or after the others", function()
    local F = T.functional
    local x = (moth.arange(48):view(3, 4, 4) * 5):to(moth.uint8)
    local t = T.RandomPhotometricDistort {contrast = {2, 2}, brightness = {0.5, 0.5}}
    draws {0, 0, 0, 0, 0.9, 0, 0.9, 0, 0.1, 0.9}
    assert.is_true(t(x):equal(F.adjust_contrast(F.adjust_brightness(x, 0.5), 2)))
    t = T.RandomPhotometricDistort {contrast = {2, 2}, saturation = {0, 0}, hue = {0.25, 0.25}}
    draws {0.9, 0, 0, 0, 0, 0, 0, 0, 0.1, 0.9}
    assert.is_true(t(x):equal(F.adjust_hue(F.adjust_saturation(F.adjust_contrast(x, 2), 0), 0.25)))
    draws {0.9, 0, 0, 0, 0, 0, 0, 0, 0.9, 0.9}
    local others = F.adjust_hue(F.adjust_saturation(x, 0), 0.25)
    assert.is_true(t(x):equal(F.adjust_contrast(others, 2)))
  end)

  it("GaussianBlur takes both ends", function()
    near({sigma = 0.1}, (params(T.GaussianBlur(3), {0}, 4, 4)))
    near({sigma = 2}, (params(T.GaussianBlur(3), {1}, 4, 4)))
    near({sigma = 1.5}, (params(T.GaussianBlur(3, 1.5), {1}, 4, 4)))
    near({sigma = 1.5}, (params(T.GaussianBlur(3, {1.5}), {0.5}, 4, 4)))
  end)

  it("CutMix cuts a rectangle at the border of the picture", function()
    local function of(...)
      return (params(T.CutMix {num_classes = 2}, {...}, 10, 20))
    end
    near({box = {0, 0, 20, 10}, lam = 0}, of(0, 0.5, 0.5))
    near({box = {10, 5, 10, 5}, lam = 1}, of(1, 0.5, 0.5))
    near({box = {0, 0, 5, 2}, lam = 0.95}, of(0.75, 0, 0))
    near({box = {14, 7, 20, 10}, lam = 0.91}, of(0.75, END, END))
    near({box = {5, 3, 15, 7}, lam = 0.8}, of(0.75, 0.5, 0.5))
  end)

  it("CutMix and MixUp mix with the previous picture of the batch", function()
    local x = moth.stack {moth.zeros(1, 4, 4), moth.ones(1, 4, 4), moth.full({1, 4, 4}, 2)}
    local labels = moth.tensor {1LL, 2LL, 3LL}
    draws {0.75}
    local y, l = T.MixUp {num_classes = 3}(x, labels)
    assert.same({0.5, 0.75, 1.75}, y:mean({2, 3, 4}):tolist())
    assert.same({{0.75, 0, 0.25}, {0.25, 0.75, 0}, {0, 0.25, 0.75}}, l:tolist())
    draws {0.75, 0, 0} -- 1 of 16 pixels
    y, l = T.CutMix {num_classes = 3}(x, labels)
    near({2 / 16, 15 / 16, 31 / 16}, y:mean({2, 3, 4}):tolist())
    assert.equal(2, y[1][1][1][1]:item())
    near({{15 / 16, 0, 1 / 16}, {1 / 16, 15 / 16, 0}, {0, 1 / 16, 15 / 16}}, l:tolist())
    draws {1, 0, 0}
    y, l = T.CutMix {num_classes = 3}(x, labels)
    assert.is_true(y:equal(x))
    assert.same({{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}, l:tolist())
    draws {0.5}
    local _, soft = T.MixUp()(x, moth.eye(3))
    assert.same({0.5, 0, 0.5}, soft[1]:tolist())
    assert.equal(moth.float32, soft.dtype)
    for _, case in ipairs {
      {T.MixUp(), x, labels, "argument 'num_classes' to 'MixUp' (is needed for labels that are"},
      {T.MixUp {num_classes = 4}, x, moth.eye(3), "(is 4, but the labels have 3)"},
      {T.MixUp {num_classes = 3}, x, moth.eye(4):narrow(2, 1, 3),
       "MixUp: a batch of 4 pictures is needed, (N, C, H, W), got f32 (3, 1, 4, 4)"},
      {T.CutMix {num_classes = 3}, x[1], labels, "CutMix: a batch of 3 pictures is needed"},
      {T.CutMix {num_classes = 3}, x, moth.tensor(1LL), "CutMix: labels of a batch are needed"},
      {T.CutMix {num_classes = 3}, x, moth.zeros(3, 3, 1), "CutMix: labels of a batch are needed"},
    } do
      refuses(function() case[1](case[2], case[3]) end, case[4])
    end
  end)
end)
