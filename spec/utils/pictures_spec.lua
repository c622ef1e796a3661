-- Grids, boxes, masks and texts on pictures with torchvision's values; names of colors; the bins of
-- histograms with NumPy's; and the refusals of moth.utils, at both sides of each bound.

local moth = require "moth"
local colors = require "moth.utils.colors"
local histogram = require "moth.utils.tensorboard.histogram"
local label = require "moth.utils.label"

local utils = moth.utils

local function black(h, w) return (moth.zeros({3, h, w}, {dtype = moth.uint8})) end

local function check(text, f)
  local ok, problem = pcall(f)
  assert.is_false(ok, "was taken: " .. text)
  local message = tostring(type(problem) == "table" and problem.message or problem)
  if not message:find(text, 1, true) then error(message .. "\nlacks: " .. text, 2) end
end

describe("make_grid", function()
  local batch = moth.arange(12):float():view(3, 1, 2, 2)

  it("places pictures in rows, with a border", function()
    assert.same({{9, 9, 9, 9, 9, 9, 9}, {9, 0, 1, 9, 4, 5, 9}, {9, 2, 3, 9, 6, 7, 9},
      {9, 9, 9, 9, 9, 9, 9}, {9, 8, 9, 9, 9, 9, 9}, {9, 10, 11, 9, 9, 9, 9},
      {9, 9, 9, 9, 9, 9, 9}}, utils.make_grid(batch, 2, 1, {pad_value = 9})[1]:tolist())
    assert.same({3, 6, 14}, {unpack(utils.make_grid(batch).shape)})
    assert.same({3, 14, 6}, {unpack(utils.make_grid(batch, 1).shape)})
  end)

  it("normalizes all pictures, each one, or a range", function()
    local function row(options, k)
      options.nrow, options.padding, options.normalize = 3, 0, true
      return utils.make_grid(batch, options)[k]:tolist()
    end
    local all = row({}, 2)
    assert.near(4 / 11, all[1][3], 1e-6)
    assert.near(1, all[2][6], 1e-6)
    local each = row({scale_each = true}, 3)
    assert.near(1 / 3, each[1][2], 1e-6)
    assert.near(2 / 3, each[2][5], 1e-6)
    assert.same({{0, 0, 0.5, 0.75, 1, 1}, {0, 0.25, 1, 1, 1, 1}}, row({value_range = {2, 6}}, 3))
    assert.equal(11, batch:max():item())
  end)

  it("is the picture itself, without a border, for one", function()
    assert.same({3, 2, 2}, {unpack(utils.make_grid(batch[1], {padding = 3}).shape)})
    local one = moth.rand(3, 2, 2)
    assert.is_true(moth.equal(one, utils.make_grid(one)))
  end)

  for _, row in ipairs {
    {"'tensor' to 'make_grid' (a tensor is needed at 2, got 3",
      function() utils.make_grid {moth.ones(1, 2, 2), 3} end},
    {"'tensor' to 'make_grid' (at least one picture is needed", function() utils.make_grid({}) end},
    {"'tensor' to 'make_grid' (a tensor or a list of tensors is needed, got 3",
      function() utils.make_grid(3) end},
    {"'tensor' to 'make_grid' (pictures (n, channels, height, width) are needed",
      function() utils.make_grid(moth.ones(1, 1, 1, 2, 2)) end},
    {"'tensor' to 'make_grid' (pictures (n, channels, height, width) are needed",
      function() utils.make_grid(moth.ones(0, 1, 2, 2)) end},
    {"'value_range' to 'make_grid' ({least, most} is needed",
      function() utils.make_grid(batch, {normalize = true, value_range = {1}}) end},
    {"'tensor' to 'make_grid' (normalize needs pictures of a floating-point dtype",
      function() utils.make_grid(black(2, 2), {normalize = true}) end},
    {"'nrow' to 'make_grid'", function() utils.make_grid(batch, 0) end},
    {"'padding' to 'make_grid'", function() utils.make_grid(batch, 1, -1) end},
    {"'fp' to 'save_image' ('png' or 'jpeg' is needed, got a name without an ending",
      function() utils.save_image(batch, "name") end},
    {"'format' to 'save_image' ('png' or 'jpeg' is needed, got 'gif'",
      function() utils.save_image(batch, "a.png", "gif") end},
  } do
    it("refuses: " .. row[1], function() check("bad argument " .. row[1], row[2]) end)
  end
end)

describe("draw_bounding_boxes", function()
  it("draws frames of a width, and tints their inside", function()
    local image = utils.draw_bounding_boxes(black(6, 6), moth.tensor {{1, 1, 4, 4}},
      {colors = {255, 100, 7}, fill = true})
    assert.same({{0, 255, 100, 100, 255, 0}, {0, 100, 39, 39, 100, 0}, {0, 7, 3, 3, 7, 0}},
      image:select(2, 3):tolist())
    image = utils.draw_bounding_boxes(black(6, 6), moth.tensor {{1, 1, 4, 4}}, {colors = "red",
      width = 2})
    assert.same({{0, 0, 0, 0, 0, 0}, {0, 255, 255, 255, 255, 0}, {0, 255, 255, 255, 255, 0},
      {0, 255, 255, 255, 255, 0}, {0, 255, 255, 255, 255, 0}, {0, 0, 0, 0, 0, 0}},
      image[1]:tolist())
    assert.equal(0, image[2]:max():item())
  end)

  it("has torchvision's colors by default", function()
    local image = utils.draw_bounding_boxes(black(6, 6),
      moth.tensor {{1, 1, 4, 4}, {2, 2, 5, 5}, {0, 0, 1, 1}, {3, 0, 5, 2}})
    assert.same({{2, 3, 2, 3}, {254, 126, 254, 126}, {62, 93, 62, 93}},
      {{image[1][2][2]:item(), image[1][3][6]:item(), image[1][1][1]:item(),
        image[1][1][5]:item()}, {image[2][2][2]:item(), image[2][3][6]:item(),
        image[2][1][1]:item(), image[2][1][5]:item()}, {image[3][2][2]:item(),
        image[3][3][6]:item(), image[3][1][1]:item(), image[3][1][5]:item()}})
  end)

  it("keeps the dtype and a picture without boxes or masks", function()
    local x = moth.rand(3, 4, 4)
    assert.is_true(moth.equal(x, utils.draw_bounding_boxes(x, moth.zeros(0, 4))))
    assert.is_true(moth.equal(x, utils.draw_segmentation_masks(x,
      moth.zeros({0, 4, 4}, {dtype = moth.bool}))))
    assert.equal(moth.float32, utils.draw_bounding_boxes(x, moth.tensor {{0, 0, 1, 1}}).dtype)
    local gray = utils.draw_bounding_boxes(x:narrow(1, 1, 1), moth.tensor {{0, 0, 1, 1}})
    assert.equal(3, gray:size(1))
  end)

  it("fills the rectangle behind a label, which is black then", function()
    local image = utils.draw_bounding_boxes(black(20, 40), moth.tensor {{1, 2, 38, 18}}, {"H"},
      {colors = "white", fill_labels = true, width = 2, font_size = 8})
    local wide, high = label.size("H", 8)
    assert.equal(8, high)
    -- The frame begins at (1, 2); the text at (4, 5), its ground a pixel before.
    assert.equal(255, image[1][5][4]:item())
    assert.equal(255, image[1][5 + high + 2][4 + wide + 2]:item())
    assert.equal(0, image[1][5 + high + 3][4 + wide + 3]:item())
    local inside = image[1]:narrow(1, 6, high):narrow(2, 5, wide)
    assert.is_true(inside:lt(60):sum():item() > 8)
  end)

  for _, row in ipairs {
    {"'image' to 'draw_bounding_boxes' (uint8 or floating point is needed",
      function() utils.draw_bounding_boxes(black(2, 2):int(), moth.ones(1, 4)) end},
    {"'image' to 'draw_bounding_boxes' (one picture (1 or 3, height, width) is needed",
      function() utils.draw_bounding_boxes(moth.rand(2, 2, 2), moth.ones(1, 4)) end},
    {"'image' to 'draw_segmentation_masks' (one picture (3, height, width) is needed",
      function() utils.draw_segmentation_masks(moth.rand(1, 2, 2), moth.ones(2, 2):bool()) end},
    {"'boxes' to 'draw_bounding_boxes' ((n, 4) is needed: left, top, right, bottom",
      function() utils.draw_bounding_boxes(black(2, 2), moth.ones(4)) end},
    {"'boxes' to 'draw_bounding_boxes' ((n, 4) is needed: left, top, right, bottom",
      function() utils.draw_bounding_boxes(black(2, 2), moth.ones(1, 3)) end},
    {"'boxes' to 'draw_bounding_boxes' (row 2 is {0, 3, 1, 2}",
      function() utils.draw_bounding_boxes(black(4, 4), moth.tensor {{0, 0, 0, 0}, {0, 3, 1,
        2}}) end},
    {"'masks' to 'draw_segmentation_masks' (bool (n, 2, 2) is needed",
      function() utils.draw_segmentation_masks(black(2, 2), moth.ones(1, 2, 2)) end},
    {"'masks' to 'draw_segmentation_masks' (bool (n, 2, 3) is needed",
      function() utils.draw_segmentation_masks(black(2, 3), moth.ones(1, 2, 2):bool()) end},
    {"'colors' to 'draw_bounding_boxes' (1 color for 2 objects",
      function() utils.draw_bounding_boxes(black(2, 2), moth.zeros(2, 4), {colors = {"red"}}) end},
    {"'colors' to 'draw_bounding_boxes' (a color is needed: a name, '#rrggbb' or {red, green, "
      .. "blue},"
      .. " 0 to 255", function()
      utils.draw_bounding_boxes(black(2, 2), moth.zeros(1, 4), {colors = {0, 0, 256}})
    end},
    {"'label_colors' to 'draw_bounding_boxes' (a color is needed", function()
      utils.draw_bounding_boxes(black(2, 2), moth.zeros(1, 4), {"a"}, {label_colors = "nocolor"})
    end},
    {"'label_background_colors' to 'draw_bounding_boxes' (a color is needed", function()
      utils.draw_bounding_boxes(black(2, 2), moth.zeros(1, 4), {"a"}, {fill_labels = true,
        label_background_colors = "nocolor"})
    end},
    {"'width' to 'draw_bounding_boxes'", function()
      utils.draw_bounding_boxes(black(2, 2), moth.zeros(1, 4), {width = 0})
    end},
    {"'alpha' to 'draw_segmentation_masks'", function()
      utils.draw_segmentation_masks(black(2, 2), moth.ones(2, 2):bool(), 1.1)
    end},
  } do
    it("refuses: " .. row[1], function() check("bad argument " .. row[1], row[2]) end)
  end

  it("mixes masks by alpha; pixels of two masks are black", function()
    local masks = moth.tensor({{{true, true, false}}, {{false, true, false}}})
    local x = moth.full({3, 1, 3}, 100, {dtype = moth.uint8})
    local y = utils.draw_segmentation_masks(x, masks, 0.5, {{200, 0, 50}, "white"})
    assert.same({{{150, 50, 100}}, {{50, 50, 100}}, {{75, 50, 100}}}, y:tolist())
    assert.same({{{180, 20, 100}}},
      utils.draw_segmentation_masks(x, masks, {colors = {{200, 0, 50}, "red"}}):narrow(1, 1, 1)
        :tolist())
  end)
end)

describe("a label", function()
  it("is drawn from its upper left corner, cut at all edges", function()
    local canvas = black(14, 30)
    label.draw(canvas, "H", 4, 2, 10, {255, 128, 0})
    local ink = canvas[1]:gt(0)
    local rows, columns = ink:any(2):nonzero():flatten(), ink:any(1):nonzero():flatten()
    -- Capital letters are 7 high, and end at 0.85 of the size.
    assert.near(2 + 8.5 - 7, rows:min():item(), 2)
    assert.near(2 + 8.5, rows:max():item(), 2)
    assert.is_true(columns:min():item() >= 5 and columns:max():item() <= 4 + 9)
    assert.equal(0, canvas[3]:max():item())
    assert.is_true(canvas[1]:max():item() > 200 and canvas[2]:max():item() > 100)
    for _, at in ipairs {{-5, 2}, {26, 2}, {4, -6}, {4, 10}, {-50, 2}, {60, 2}, {4, 60}, {4,
      -60}} do
      local other = black(14, 30)
      label.draw(other, "HHH", at[1], at[2], 10, {255, 255, 255})
      local whole = black(134, 190)
      label.draw(whole, "HHH", at[1] + 70, at[2] + 60, 10, {255, 255, 255})
      assert.is_true(moth.equal(other, whole:narrow(2, 61, 14):narrow(3, 71, 30)))
    end
  end)
end)

describe("colors", function()
  it("have PIL's names", function()
    -- A hash of the values of PIL's 148 names, sorted.
    local names, n, hash = {}, 0, 0
    local source = assert(io.open "lua/moth/utils/colors.lua")
    for name in source:read("*a"):gmatch "%f[%a](%l+)=%x%x%x%x%x%x" do names[#names + 1] = name end
    source:close()
    table.sort(names)
    for _, name in ipairs(names) do
      local c = colors.read(name, "f", "c")
      n, hash = n + 1, (hash * 31 + c[1] * 65536 + c[2] * 256 + c[3]) % 1000003
    end
    assert.same({148, 331925}, {n, hash})
  end)

  it("are names in any case, digits of both lengths, or lists", function()
    local function read(value) return colors.read(value, "f", "c") end
    assert.same({255, 0, 0}, read "Red")
    assert.same({255, 0, 170}, read "#f0A")
    assert.same({16, 32, 255}, read "#1020FF")
    assert.same({0, 255, 7}, read {0, 255, 7})
    for _, wrong in ipairs {"re", "ed", "#12", "#12345", "#1234567", "#ggg", "", {1, 2}, {1, 2, 3,
      4},
      {-1, 0, 0}, {0, 0.5, 0}, {"1", 0, 0}} do
      check("bad argument 'c' to 'f' (a color is needed: a name, '#rrggbb' or {red, green, blue}, "
        .. "0 to 255", function() read(wrong) end)
    end
    assert.same({{1, 2, 3}, {1, 2, 3}}, colors.list({1, 2, 3}, 2, "f", "c"))
    assert.same({{255, 0, 0}, {0, 0, 255}}, colors.list({"red", "blue", "lime"}, 2, "f", "c"))
  end)
end)

describe("histograms have NumPy's bins:", function()
  local function vector(list) return (moth.tensor(list, {dtype = moth.float64})) end
  local a, b = {}, {}
  for i = 0, 199 do a[i + 1] = (i * 37) % 101 / 10 end
  a[201], a[202] = 50, -3
  for i = 0, 100 do b[i + 1] = math.exp((i * 37) % 101 / 25) end
  -- The number of bins and the counts of the first four.
  local A = {auto = {29, 1, 14, 36, 37}, doane = {14, 17, 75, 75, 34}, fd = {31, 1, 10, 34, 33},
    rice = {12, 31, 87, 83, 0}, scott = {21, 1, 42, 49, 49}, sqrt = {15, 13, 69, 69, 50},
    stone = {20, 1, 46, 53, 51}, sturges = {9, 58, 117, 26, 0}}
  local B = {auto = {8, 52, 15, 10, 7}, doane = {11, 45, 15, 9, 7}, fd = {8, 52, 15, 10, 7},
    rice = {10, 47, 15, 9, 7}, scott = {6, 58, 16, 10, 7}, sqrt = {11, 45, 15, 9, 7},
    stone = {23, 31, 13, 8, 7}, sturges = {8, 52, 15, 10, 7}}
  local THREE = {auto = {2, 0, 1}, doane = {2, 0, 0, 1}, fd = {2, 1}, rice = {2, 0, 1}, scott = {3},
    sqrt = {2, 1}, sturges = {2, 0, 1}}
  for name in pairs(A) do
    it(name, function()
      local function first(list)
        local counts = histogram.counts(vector(list), name, "f"):tolist()
        return {#counts, unpack(counts, 1, 4)}
      end
      assert.same(A[name], first(a))
      assert.same(B[name], first(b))
      if THREE[name] then
        assert.same(THREE[name], histogram.counts(vector {1, 1, 2}, name, "f"):tolist())
      else
        local counts = histogram.counts(vector {1, 1, 2}, name, "f"):tolist()
        assert.same({100, 2, 1}, {#counts, counts[1], counts[100]})
      end
      local counts, edges = histogram.counts(vector {2, 2}, name, "f")
      assert.same({{2}, {1.5, 2.5}}, {counts:tolist(), edges:tolist()})
      counts, edges = histogram.counts(vector {7}, name, "f")
      assert.same({{1}, {6.5, 7.5}}, {counts:tolist(), edges:tolist()})
    end)
  end

  it("a number of equal ones, or edges", function()
    local counts, edges, low, high = histogram.counts(vector {1, 2, 3, 4, 5}, 2, "f")
    assert.same({{2, 3}, {1, 3, 5}, 1, 5}, {counts:tolist(), edges:tolist(), low, high})
    counts, edges = histogram.counts(vector {2, 2}, 4, "f")
    assert.same({{0, 0, 2, 0}, {1.5, 1.75, 2, 2.25, 2.5}}, {counts:tolist(), edges:tolist()})
    counts, edges = histogram.counts(vector {1, 2, 3}, {0, 2, 3}, "f")
    assert.same({{1, 2}, {0, 2, 3}}, {counts:tolist(), edges:tolist()})
    check("bad argument 'bins' to 'counts' (a number from 1 is needed, got 0",
      function() histogram.counts(vector {1}, 0, "f") end)
    check("bad argument 'bins' to 'counts' (a number from 1 is needed, got 1.5",
      function() histogram.counts(vector {1}, 1.5, "f") end)
    check("bad argument 'bins' to 'counts' (one of tensorflow, auto, doane, fd, rice, scott, "
      .. "sqrt, stone, "
      .. "sturges, a number or a list of edges is needed, got 'rise'; did you mean 'rice'",
      function() histogram.counts(vector {1}, "rise", "f") end)
  end)

  it("at most 65536, whatever an estimator says", function()
    local x = moth.linspace(0, 1, 1000, {dtype = moth.float64})
    x[1] = 1e9
    assert.equal(65536, histogram.counts(x, "fd", "f"):size(1))
  end)

  it("joined, and without empty ones at the ends, in a message", function()
    local ffi = require "ffi"
    local function list(text)
      local p, out = ffi.cast("const double *", text), {}
      for i = 0, #text / 8 - 1 do out[i + 1] = tonumber(p[i]) end
      return out
    end
    local message = histogram.of({1, 2, 2, 6, 0 / 0, 1 / 0}, {-1, 0, 1, 2, 3, 4, 5, 6, 7})
    assert.same({1, 6, 4, 11, 45}, {message.min, message.max, message.num, message.sum,
      message.sum_squares})
    assert.same({0, 1, 2, 0, 0, 0, 1}, list(message.bucket))
    assert.same({1, 2, 3, 4, 5, 6, 7}, list(message.bucket_limit))
    message = histogram.of({1, 2, 2, 6}, {0, 1, 2, 3, 4, 5, 6, 7}, 3)
    assert.same({0, 1, 2, 0, 1}, list(message.bucket))
    assert.same({0, 2, 4, 6, 7}, list(message.bucket_limit))
    message = histogram.of({0 / 0, 1 / 0}, "auto")
    assert.same({0, {0}, {0}}, {message.num, list(message.bucket), list(message.bucket_limit)})
    check("bad argument 'values' to 'add_histogram' (there are no values",
      function() histogram.of({}, 2) end)
  end)
end)
