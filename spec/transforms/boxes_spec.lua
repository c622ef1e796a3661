-- Boxes in all formats, as floats and integers, with torchvision's numbers; kinds of values; labels
-- of a sample; dtypes by kind.

local moth = require "moth"
local T = moth.transforms
local F = T.functional

local FORMATS = {"XYXY", "XYWH", "CXCYWH"}
local ROWS = {{1, 2, 6, 9}, {-2, -1, 3, 4}, {5, 5, 5, 5}, {3, 2, 12, 7}}

-- From one format to another: floats, integers.
local CONVERTED = {
  XYXY = {XYWH = {{{1, 2, 5, 7}, {-2, -1, 5, 5}, {5, 5, 0, 0}, {3, 2, 9, 5}}},
    CXCYWH = {{{3.5, 5.5, 5, 7}, {0.5, 1.5, 5, 5}, {5, 5, 0, 0}, {7.5, 4.5, 9, 5}},
      {{3, 5, 5, 7}, {0, 1, 5, 5}, {5, 5, 0, 0}, {7, 4, 9, 5}}}},
  XYWH = {XYXY = {{{1, 2, 7, 11}, {-2, -1, 1, 3}, {5, 5, 10, 10}, {3, 2, 15, 9}}},
    CXCYWH = {{{4, 6.5, 6, 9}, {-0.5, 1, 3, 4}, {7.5, 7.5, 5, 5}, {9, 5.5, 12, 7}},
      {{4, 6, 6, 9}, {-1, 1, 3, 4}, {7, 7, 5, 5}, {9, 5, 12, 7}}}},
  CXCYWH = {
    XYXY = {{{-2, -2.5, 4, 6.5}, {-3.5, -3, -0.5, 1}, {2.5, 2.5, 7.5, 7.5}, {-3, -1.5, 9, 5.5}},
      {{-2, -2, 4, 6}, {-3, -3, 0, 1}, {2, 2, 7, 7}, {-3, -1, 9, 5}}},
    XYWH = {{{-2, -2.5, 6, 9}, {-3.5, -3, 3, 4}, {2.5, 2.5, 5, 5}, {-3, -1.5, 12, 7}},
      {{-2, -2, 6, 8}, {-3, -3, 3, 4}, {2, 2, 5, 5}, {-3, -1, 12, 6}}}},
}
-- Clipped to 6 x 8.
local CLAMPED = {
  XYXY = {{{1, 2, 6, 6}, {0, 0, 3, 4}, {5, 5, 5, 5}, {3, 2, 8, 6}}},
  XYWH = {{{1, 2, 6, 4}, {0, 0, 1, 3}, {5, 5, 3, 1}, {3, 2, 5, 4}}},
  CXCYWH = {{{2, 3, 4, 6}, {0, 0.5, 0, 1}, {5, 4.25, 5, 3.5}, {4, 2.75, 8, 5.5}},
    {{2, 3, 4, 6}, {0, 0, 0, 1}, {5, 4, 5, 3}, {4, 2, 8, 5}}},
}
-- Valid in 9 x 12.
local VALID = {XYXY = {true, false, false, true}, XYWH = {false, false, false, false},
  CXCYWH = {false, false, true, false}}

local function tensor(integers)
  return moth.tensor(ROWS, {dtype = integers and moth.int64 or moth.float32})
end

local function same(wanted, got) assert.same(wanted, got:double():tolist()) end

describe("boxes", function()
  for _, from in ipairs(FORMATS) do
    it("in " .. from .. " have the numbers of other formats", function()
      for k, integers in ipairs {false, true} do
        for _, to in ipairs(FORMATS) do
          local rows = from == to and ROWS or CONVERTED[from][to][k] or CONVERTED[from][to][1]
          same(rows, F.convert_bounding_box_format(tensor(integers), from:lower(), to))
          local b = T.BoundingBoxes(tensor(integers), from, {6, 8})
          local y = F.convert_bounding_box_format(b, {new_format = to:lower()})
          same(rows, y.data)
          assert.same({to, 6, 8, "soft"}, {y.format, y.canvas_size[1], y.canvas_size[2],
            y.clamping_mode})
          same(rows, T.ConvertBoundingBoxFormat(to)(b).data)
        end
      end
    end)

    it("in " .. from .. " are clipped and sanitized", function()
      for k, integers in ipairs {false, true} do
        local rows = CLAMPED[from][k] or CLAMPED[from][1]
        local y = F.clamp_bounding_boxes(tensor(integers), from, {6, 8})
        assert.equal(integers and moth.int64 or moth.float32, y.dtype)
        same(rows, y)
        same(rows, T.ClampBoundingBoxes()(T.BoundingBoxes(tensor(integers), from, {6, 8})).data)
        local kept, good = F.sanitize_bounding_boxes(tensor(integers), from, {9, 12})
        assert.same(VALID[from], good:tolist())
        assert.equal(good:sum():item(), kept:size(1))
        local b, mask = F.sanitize_bounding_boxes(T.BoundingBoxes(tensor(integers), from, {9, 12}))
        assert.same(VALID[from], mask:tolist())
        assert.equal(from, b.format)
      end
    end)
  end

  it("at the edges of a picture and of a size are valid", function()
    local y = moth.tensor {{0, 0, 8, 6}, {0, 0, 8.1, 6}, {0, 0, 8, 6.1}, {-0.1, 0, 8, 6},
      {0, -0.1, 8, 6}, {0, 0, 1, 1}, {0, 0, 0.9, 2}, {0, 0, 2, 0.9}, {1, 1, 3, 3}}
    local function good(...)
      return (select(2, F.sanitize_bounding_boxes(y, "XYXY", {6, 8}, ...))):tolist()
    end
    assert.same({true, false, false, false, false, true, false, false, true}, good())
    assert.same({true, false, false, false, false, false, false, false, true}, good(2, 4))
    assert.same({true, false, false, false, false, false, false, false, false}, good(1, 4.5))
  end)

  it("are not clipped with clamping_mode none", function()
    local b = T.BoundingBoxes(tensor(), "XYXY", {6, 8}, "none")
    assert.equal(b, T.ClampBoundingBoxes()(b))
    same(ROWS, b.data)
    assert.same({{5, 2, 2, 9}}, (function()
      local y = F.horizontal_flip(T.BoundingBoxes({{6, 2, 3, 9}}, "xyxy", {6, 8}, "none"))
      return y.data:double():tolist()
    end)())
  end)

  it("are shown with their format and canvas", function()
    local b = T.BoundingBoxes({{1, 2, 3, 4}}, "xywh", {6, 8})
    assert.is_truthy(tostring(b):find("^BoundingBoxes%({{1, 2, 3, 4}}"))
    assert.is_truthy(tostring(b):find("format = XYWH, canvas_size = {6, 8})", 1, true))
  end)
end)

describe("samples", function()
  local x = moth.rand(2, 3, 6, 8)
  local eye = moth.eye(2)

  it("have their labels as second value or by name, or as a function finds them", function()
    moth.manual_seed(3)
    local mix = T.MixUp()
    local _, y = mix(x, eye)
    assert.same({2, 2}, {y:size(1), y:size(2)})
    assert.is_false(moth.equal(y, eye))
    local sample = mix {image = x, labels = eye, label = "kept"}
    assert.is_false(moth.equal(sample.labels, eye))
    assert.equal("kept", sample.label)
    sample = mix {image = x, my_Label = eye, zlabel = "kept"}
    assert.is_false(moth.equal(sample.my_Label, eye))
    sample = T.MixUp {labels_getter = function(s) return s.target end} {image = x, target = eye}
    assert.is_false(moth.equal(sample.target, eye))
    local ok, problem = pcall(mix, {image = x, target = eye})
    assert.is_false(ok)
    assert.is_truthy(tostring(problem):find("MixUp: the sample has no labels", 1, true))
  end)

  it("lose boxes with their labels and masks, without labels on demand", function()
    local sanitize = T.SanitizeBoundingBoxes {labels_getter = moth.none}
    local sample = sanitize {image = x[1], boxes = moth.tensor {{0, 0, 2, 2}, {0, 0, 0, 0}},
      labels = moth.tensor {1LL, 2LL}}
    assert.equal(1, sample.boxes:size(1))
    assert.equal(2, sample.labels:size(1))
    sample = T.SanitizeBoundingBoxes() {image = x[1], boxes = moth.tensor {{0, 0, 0, 0},
      {0, 0, 2, 2}}, labels = moth.tensor {1LL, 2LL}, masks = moth.zeros(2, 6, 8)}
    assert.same({1, 1, 1}, {sample.boxes:size(1), sample.labels:size(1), sample.masks:size(1)})
    assert.equal(2LL, sample.labels[1]:item())
    local two = T.SanitizeBoundingBoxes {labels_getter = function(s) return {s.a, s.b} end} {
      image = x[1], boxes = moth.tensor {{0, 0, 0, 0}, {0, 0, 2, 2}}, a = moth.tensor {1LL, 2LL},
      b = moth.tensor {3LL, 4LL}, c = moth.tensor {5LL, 6LL}}
    assert.same({1, 1, 2}, {two.a:size(1), two.b:size(1), two.c:size(1)})
    two = T.SanitizeBoundingBoxes {min_size = 2, min_area = 5} {image = x[1], labels = moth.tensor
      {1LL, 2LL, 3LL}, boxes = moth.tensor {{0, 0, 2, 2}, {0, 0, 3, 2}, {0, 0, 6, 1}}}
    assert.same({2LL}, two.labels:tolist())
  end)

  it("get dtypes by kind", function()
    local m, b = T.Mask(moth.ones(6, 8)), T.BoundingBoxes(tensor(), "XYXY", {6, 8})
    local image, mask, boxes = T.ToDtype(moth.float64)(x[1], m, b)
    assert.same({moth.float64, moth.float32, moth.float32}, {image.dtype, mask.data.dtype,
      boxes.data.dtype})
    image, mask, boxes = T.ToDtype {{image = moth.uint8, mask = moth.int64, boxes = moth.float16},
      scale = true}(x[1], m, b)
    assert.same({moth.uint8, moth.int64, moth.float16}, {image.dtype, mask.data.dtype,
      boxes.data.dtype})
    assert.is_true(image:max():item() > 200)
    assert.equal(1LL, mask.data:max():item())
    assert.equal(moth.float32, T.ConvertImageDtype()(moth.zeros({3, 2, 2},
      {dtype = moth.uint8})).dtype)
    local same_mask = select(2, T.ConvertImageDtype(moth.float64)(x[1], m))
    assert.equal(moth.float32, same_mask.data.dtype)
  end)

  it("are passed to functions by kind", function()
    local m, b = T.Mask(moth.ones(6, 8)), T.BoundingBoxes(tensor(), "XYXY", {6, 8})
    for kind, at in pairs {image = 1, mask = 2, boxes = 3} do
      local seen
      local out = {T.Lambda(function(v) seen = v return v end, kind)(x[1], m, b)}
      assert.equal(3, #out)
      assert.equal(({moth.typename(x[1]), "Tensor", "BoundingBoxes"})[at],
        kind == "mask" and "Tensor" or moth.typename(seen), kind)
    end
    local doubled = T.Lambda(function(v) return v * 2 end)(x[1])
    assert.is_true(moth.equal(x[1] * 2, doubled))
    local a, c = T.Identity()(x, 3)
    assert.same({true, 3}, {rawequal(a, x), c})
    local plain = {T.ToPureTensor()(T.Image(x[1]), m, b, {deep = {b}}, 5)}
    assert.same({5, true, true}, {plain[5], moth.is_tensor(plain[2]),
      moth.is_tensor(plain[4].deep[1])})
  end)
end)
