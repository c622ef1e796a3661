--- transforms_spec.lua -- the classes of moth.transforms: samples, random numbers, workers, boxes
-- and masks.

local moth = require "moth"
local T, data = moth.transforms, moth.data
local F = T.functional

local here = debug.getinfo(1, "S").source:match("^@(.*[/\\])") or "./"
package.path = here .. "?.lua;" .. package.path
local pictures = require "pictures"

local function bytes(...) return (moth.randint(0, 256, {...}, {dtype = moth.uint8})) end
local function same(a, b) return a.shape == b.shape and moth.equal(a, b) end

describe("a sample", function()
  it("is a picture, or a picture and other values", function()
    local x, flip = bytes(3, 4, 5), T.RandomHorizontalFlip(1)
    assert.is_true(same(x:flip{-1}, flip(x)))
    local y, label = flip(x, 3LL)
    assert.is_true(same(x:flip{-1}, y))
    assert.equal(3LL, label)
    local target = moth.zeros(3, 4, 5)
    local _, second = flip(x, target)
    assert.equal(target, second)
  end)

  it("is a table, which is not changed", function()
    local x, boxes = bytes(3, 10, 20), moth.tensor{{1, 2, 5, 6}}
    local masks, labels = bytes(1, 10, 20), moth.tensor{1LL}
    local sample = {image = x, target = {boxes = boxes, masks = masks, labels = labels}}
    local y = T.RandomHorizontalFlip(1)(sample)
    assert.same({{15, 2, 19, 6}}, y.target.boxes:tolist())
    assert.is_true(same(masks:flip{-1}, y.target.masks))
    assert.is_true(same(x:flip{-1}, y.image))
    assert.equal(labels, y.target.labels)
    assert.equal(x, sample.image)
    assert.equal(boxes, sample.target.boxes)
  end)

  it("has Mask, Image and BoundingBoxes at any place", function()
    local x, m = bytes(3, 10, 20), bytes(10, 20)
    local b = T.BoundingBoxes({{1, 2, 4, 5}}, "xywh", {10, 20})
    local y, mask, boxes = T.RandomVerticalFlip(1)(x, T.Mask(m), b)
    assert.is_true(same(x:flip{-2}, y))
    assert.is_true(same(m:flip{-2}, mask.data))
    assert.same({{1, 3, 4, 5}}, boxes.data:tolist())
    assert.equal("XYWH", boxes.format)
    local z = T.RandomVerticalFlip(1){left = T.Image(x), other = x}
    assert.is_true(same(x:flip{-2}, z.left.data))
    assert.equal(x, z.other)
    local plain = T.ToPureTensor(){a = T.Mask(m), b = b}
    assert.equal(m, plain.a)
    assert.equal(b.data, plain.b)
  end)

  it("has one size, and a picture", function()
    assert.error_matches(function()
      T.RandomCrop(2){image = bytes(3, 4, 5), mask = bytes(5, 5)}
    end, "different sizes: 4 by 5 and 5 by 5")
    assert.error_matches(function() T.RandomCrop(2){boxes = moth.ones(1, 4)} end,
      "boxes need a picture")
    assert.error_matches(function() T.Resize(2)(3) end, "Resize: the sample has no picture")
  end)
end)

describe("boxes", function()
  it("follow all changes of place together with the picture", function()
    -- A white rectangle: its box still contains its pixels.
    local x = moth.zeros(1, 60, 80, {dtype = moth.uint8})
    x[{{}, {21, 40}, {31, 50}}] = 255
    local sample = {image = x, boxes = moth.tensor{{30, 20, 50, 40}}}
    for _, t in ipairs {T.RandomResizedCrop(50), T.RandomCrop(40), T.RandomAffine(30, {.2, .2}),
                        T.RandomRotation(40), T.RandomRotation(40, {expand = true}),
                        T.RandomPerspective(0.4, 1), T.Resize(30), T.Pad(7), T.CenterCrop(50),
                        T.RandomZoomOut{p = 1}, T.ScaleJitter({50, 50}, {0.5, 1})} do
      for seed = 1, 5 do
        moth.manual_seed(seed)
        local y = t(sample)
        local inside = y.image[1]:gt(200):nonzero()
        if inside:size(1) > 0 then
          local low, high = inside:amin({1}):tolist(), inside:amax({1}):tolist()
          local b = y.boxes[1]:tolist()
          local what = tostring(t) .. " " .. tostring(y.boxes)
          assert.is_true(b[1] <= low[2] - 1 + 1.5 and b[2] <= low[1] - 1 + 1.5, what)
          assert.is_true(b[3] >= high[2] - 1.5 and b[4] >= high[1] - 1.5, what)
        end
      end
    end
  end)

  it("that are outside or too small are removed with their labels and masks", function()
    local sample = {image = bytes(3, 10, 20), boxes = moth.tensor{{1, 1, 5, 5}, {3, 3, 3, 8},
                    {10, 2, 30, 5}}, labels = moth.tensor{1LL, 2LL, 3LL}, masks = bytes(3, 10, 20)}
    local y = T.SanitizeBoundingBoxes()(sample)
    assert.same({{1, 1, 5, 5}}, y.boxes:tolist())
    assert.same({1}, y.labels:tolist())
    assert.is_true(same(sample.masks[{{1, 1}}], y.masks))
    local clipped = T.Compose{T.Lambda(function(b) return b end, "boxes"), T.Pad(0),
                              T.SanitizeBoundingBoxes()}(sample)
    assert.equal(2, clipped.boxes:size(1))
  end)

  it("change their format", function()
    local b = T.BoundingBoxes({{1, 2, 5, 8}}, "XYXY", {10, 20})
    local c = T.ConvertBoundingBoxFormat("CXCYWH")(b)
    assert.same({{3, 5, 4, 6}}, c.data:tolist())
    assert.error_matches(function() T.ConvertBoundingBoxFormat("abc") end,
      "bad argument 'format' to 'ConvertBoundingBoxFormat'")
  end)

  it("outside a random window become empty in RandomIoUCrop", function()
    local sample = {image = bytes(3, 40, 60), boxes = moth.tensor{{2, 2, 20, 20}, {40, 20, 58, 38}}}
    local t, smaller = T.RandomIoUCrop(), 0
    for seed = 1, 30 do
      moth.manual_seed(seed)
      local y = t(sample)
      local h, w = y.image:size(2), y.image:size(3)
      if h < 40 or w < 60 then smaller = smaller + 1 end
      for _, b in ipairs(y.boxes:tolist()) do
        assert.is_true(b[3] <= w and b[4] <= h)
      end
    end
    assert.is_true(smaller > 10)
    local window = {top = 3, left = 5, height = 20, width = 7, inside = moth.tensor {true, false}}
    local y = t:transform(sample.image, window, "image")
    assert.is_true(moth.equal(y, sample.image[{{}, {4, 23}, {6, 12}}]))
    local boxes = T.BoundingBoxes(sample.boxes, "XYXY", {40, 60})
    assert.same({{0, 0, 7, 17}, {0, 0, 0, 0}}, t:transform(boxes, window, "boxes").data:tolist())
  end)
end)

describe("random transforms", function()
  -- The part of n draws in which f is true.
  local function part(n, f)
    local count = 0
    for _ = 1, n do if f() then count = count + 1 end end
    return count / n
  end

  it("are applied with their probability", function()
    moth.manual_seed(1)
    local x = bytes(3, 6, 6)
    for _, p in ipairs {0, 0.3, 1} do
      for _, t in ipairs {T.RandomHorizontalFlip(p), T.RandomInvert(p), T.RandomErasing(p),
                          T.RandomApply({T.RandomInvert(1)}, p), T.RandomGrayscale(p)} do
        local changed = part(400, function() return not same(x, t(x)) end)
        assert.is_true(math.abs(changed - p) < 0.08, tostring(t) .. changed)
      end
    end
  end)

  it("RandomResizedCrop draws areas and ratios within its limits, evenly", function()
    moth.manual_seed(2)
    local t, area, ratio, n = T.RandomResizedCrop(8), 0, 0, 2000
    local parts = {{kind = "image", value = bytes(3, 300, 400)}}
    for _ = 1, n do
      local p = t:make_params(parts)
      local a, r = p.height * p.width / (300 * 400), p.width / p.height
      assert.is_true(a > 0.078 and a < 1.002 and r > 0.74 and r < 1.345)
      assert.is_true(p.top >= 0 and p.top + p.height <= 300 and p.left >= 0
        and p.left + p.width <= 400)
      area, ratio = area + a / n, ratio + math.log(r) / n
    end
    assert.is_true(math.abs(area - 0.432) < 0.02, area) -- torchvision's means
    assert.is_true(math.abs(ratio - 0.029) < 0.02, ratio)
    local wide = t:make_params{{kind = "image", value = bytes(3, 10, 400)}}
    assert.equal(13, wide.width) -- no window fits: the middle
    assert.equal(10, wide.height)
  end)

  it("RandomCrop draws every place", function()
    moth.manual_seed(3)
    local t, seen = T.RandomCrop(3, {pad_if_needed = true}), {}
    local parts = {{kind = "image", value = bytes(3, 5, 4)}}
    for _ = 1, 200 do
      local p = t:make_params(parts)
      seen[p.top * 10 + p.left] = true
    end
    local n = 0
    for _ in pairs(seen) do n = n + 1 end
    assert.equal(6, n)
    assert.error_matches(function() T.RandomCrop(9)(bytes(3, 5, 4)) end,
      "the size {9, 9} is larger than the picture, {5, 4}")
  end)

  it("ColorJitter and RandomRotation draw numbers within their limits", function()
    moth.manual_seed(4)
    local jitter, turn = T.ColorJitter(0.4, {0.5, 2}, 0, 0.1), T.RandomRotation({-10, 30})
    local low, high = math.huge, -math.huge
    for _ = 1, 500 do
      local f = jitter:make_params().factors
      assert.is_true(f[1] >= 0.6 and f[1] <= 1.4 and f[2] >= 0.5 and f[2] <= 2)
      assert.is_false(f[3])
      assert.is_true(math.abs(f[4]) <= 0.1)
      local angle = turn:make_params().angle
      low, high = math.min(low, angle), math.max(high, angle)
    end
    assert.is_true(low >= -10 and low < -9 and high <= 30 and high > 29)
  end)

  it("RandomChoice chooses by weight, RandomOrder applies all", function()
    moth.manual_seed(5)
    local counts = {0, 0}
    local choice = T.RandomChoice({function(x) counts[1] = counts[1] + 1 return x end,
                                   function(x) counts[2] = counts[2] + 1 return x end}, {1, 3})
    for _ = 1, 400 do choice(bytes(1, 1, 1)) end
    assert.is_true(math.abs(counts[2] - 300) < 40, counts[2])
    local seen = {}
    local order = T.RandomOrder{function(x) seen[#seen + 1] = "a" return x end,
                                function(x) seen[#seen + 1] = "b" return x end}
    for _ = 1, 20 do order(bytes(1, 1, 1)) end
    assert.equal(40, #seen)
    local text = table.concat(seen)
    assert.is_true(text:find "ab" ~= nil and text:find "ba" ~= nil)
  end)

  it("use the field `generator` if it is set", function()
    local t = T.RandomResizedCrop(4)
    local x = bytes(3, 9, 9)
    t.generator = moth.Generator{seed = 7}
    moth.manual_seed(1)
    local a = t(x)
    t.generator = moth.Generator{seed = 7}
    moth.manual_seed(2)
    assert.is_true(same(a, t(x)))
  end)

  it("AutoAugment and its relatives keep the size and the dtype", function()
    for _, t in ipairs {T.AutoAugment(), T.AutoAugment("cifar10"), T.AutoAugment("svhn"),
                        T.RandAugment(), T.TrivialAugmentWide(), T.AugMix()} do
      local x, changed = bytes(3, 20, 24), 0
      for seed = 1, 25 do
        moth.manual_seed(seed)
        local y = t(x)
        assert.equal(x.shape, y.shape)
        assert.equal(moth.uint8, y.dtype)
        if not same(x, y) then changed = changed + 1 end
      end
      assert.is_true(changed > 5, tostring(t))
    end
    assert.error_matches(function()
      T.RandAugment(){image = bytes(3, 4, 4), mask = bytes(4, 4)}
    end, "without masks and boxes")
  end)
end)

describe("Compose", function()
  it("equals its transforms one by one, with any dtype before Normalize", function()
    local x, normalize = bytes(3, 5, 7), T.Normalize({0.5, 0.25, 0.4}, {0.2, 0.3, 0.25})
    for _, dtype in ipairs {moth.float16, moth.bfloat16, moth.float32, moth.float64} do
      for _, first in ipairs {T.ToDtype(dtype, {scale = true}), T.ToDtype(dtype),
          T.ConvertImageDtype(dtype)} do
        local want, got = normalize(first(x)), T.Compose{first, normalize}(x)
        assert.equal(want.dtype, got.dtype)
        assert.is_true(moth.allclose(got, want, {rtol = 1e-6, atol = 1e-6}))
      end
    end
  end)

  it("converts and normalizes in one pass, with the same bits", function()
    local mean, std = {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}
    local x = bytes(3, 33, 47)
    local y = T.Compose{T.ToDtype(moth.float32, {scale = true}), T.Normalize(mean, std)}(x)
    local z = F.normalize(F.to_dtype(x, moth.float32, true), mean, std)
    assert.is_true(same(z, y))
    local view = x:permute(2, 3, 1):contiguous():permute(3, 1, 2)
    assert.is_true(same(z, T.Compose{T.ConvertImageDtype(), T.Normalize(mean, std)}(view)))
  end)

  it("takes functions, and follows changes of its list", function()
    local c = T.Compose{function(x) return x * 2 end}
    assert.same({2, 4}, c(moth.tensor{1, 2}):tolist())
    c.transforms[2] = function(x) return x + 1 end
    assert.same({3, 5}, c(moth.tensor{1, 2}):tolist())
    assert.error_matches(function() T.Compose{} end, "one transform or more are needed")
    assert.error_matches(function() T.Compose{3} end, "a transform or a function is needed at 1")
  end)
end)

describe("mixtures of a batch", function()
  it("mix pictures and labels by the same part", function()
    moth.manual_seed(1)
    local x, y = moth.rand(4, 3, 8, 8), moth.tensor{1LL, 2LL, 3LL, 4LL}
    local a, b = T.MixUp{num_classes = 4, alpha = 0.3}(x, y)
    local lam = b[{1, 1}]:item()
    assert.is_true(((x[1] * lam + x[4] * (1 - lam)) - a[1]):abs():max():item() < 1e-6)
    assert.is_true(math.abs(b[{1, 4}]:item() - (1 - lam)) < 1e-6)
    local c = T.CutMix{num_classes = 4}{image = x, labels = y}
    local from_other = c.image[2]:eq(x[1]):logical_and(c.image[2]:ne(x[2])):sum():item() / 192
    assert.is_true(math.abs(c.labels[{2, 1}]:item() - from_other) < 1e-6)
    assert.error_matches(function() T.MixUp()(x, y) end, "num_classes")
  end)
end)

describe("the layout of a picture", function()
  it("does not change the result: views of pixels with their channels adjacent", function()
    local x = bytes(41, 50, 3)
    local view, packed = x:permute(3, 1, 2), x:permute(3, 1, 2):contiguous()
    for _, t in ipairs {T.Resize({30, 20}), T.Resize({77, 20}, "bicubic"), T.CenterCrop(17),
                        T.Pad(2, 0, "reflect"), T.Grayscale(), T.Resize({9, 9}, "nearest")} do
      assert.is_true(same(t(packed), t(view)), tostring(t))
      assert.is_true(same(t(packed[{{}, {3, 30}, {5, 45}}]:contiguous()),
        t(view[{{}, {3, 30}, {5, 45}}])), tostring(t))
    end
    assert.is_true(same(F.rotate(packed, 30), F.rotate(view, 30)))
  end)

  it("may have gradients", function()
    local x = moth.rand(3, 9, 7):requires_grad_()
    for _, f in ipairs {function(v) return F.resize(v, {4, 5}) end,
                        function(v) return F.rotate(v, 20, "bilinear") end,
                        function(v) return F.adjust_contrast(v, 1.2) end,
                        function(v) return F.normalize(v, {0.5}, {0.2}) end} do
      f(x):mul(moth.rand(1)):sum():backward()
      assert.is_true(x.grad:abs():sum():item() > 0)
      x.grad = nil
    end
    local plain = x:detach()
    assert.is_true((F.resize(x, {4, 5}) - F.resize(plain, {4, 5})):abs():max():item() < 1e-6)
    assert.is_true((F.rotate(x, 20, "bilinear") - F.rotate(plain, 20, "bilinear")):abs():max()
      :item() < 1e-5)
  end)
end)

describe("in a DataLoader", function()
  -- All batches of a pass of a loader, from batch `first` on.
  local function run(loader)
    local list = {}
    for x, y in loader do list[#list + 1] = {x:clone(), y:clone()} end
    return list
  end

  local function loader(workers, shuffle)
    return data.DataLoader(pictures.Pictures(8, pictures.all()), {batch_size = 3,
      shuffle = shuffle, num_workers = workers})
  end

  local function same_batches(a, b, from)
    assert.equal(#a, #b + (from or 0))
    for i, batch in ipairs(b) do
      assert.is_true(same(a[i + (from or 0)][1], batch[1]))
      assert.is_true(same(a[i + (from or 0)][2], batch[2]))
    end
  end

  for _, shuffle in ipairs {true, false} do
    it("the bits are the same for 0, 1 and 3 workers, and another in each pass"
       .. (shuffle and ", shuffled" or ""), function()
      local passes, state = {}, nil
      for _, n in ipairs {0, 1, 3} do
        moth.manual_seed(11)
        local l = loader(n, shuffle)
        local first, second = run(l), run(l)
        if passes[1] then
          same_batches(passes[1], first)
          same_batches(passes[2], second)
          assert.is_true(same(state, moth.get_rng_state()))
        end
        passes, state = {first, second}, moth.get_rng_state()
      end
      assert.is_false(same(passes[1][1][1], passes[2][1][1]))
    end)
  end

  it("a resumed pass has the same bits, with another number of workers, too", function()
    moth.manual_seed(12)
    local whole = run(loader(0, true))
    for _, n in ipairs {{0, 0}, {0, 2}, {2, 0}} do
      moth.manual_seed(12)
      local l = loader(n[1], true)
      local step = l:iter()
      step()
      step()
      local state = l:state_dict()
      moth.manual_seed(99)
      local again = loader(n[2], true)
      again:load_state_dict(state)
      same_batches(whole, run(again), 2)
    end
  end)

  it("the random numbers of the training loop do not change those of samples", function()
    moth.manual_seed(13)
    local a = run(loader(0, true))
    moth.manual_seed(13)
    local list = {}
    for x, y in loader(0, true) do
      moth.rand(5)
      list[#list + 1] = {x:clone(), y:clone()}
    end
    same_batches(a, list)
  end)

  it("a transform without a name for workers is refused", function()
    local set = pictures.Pictures(4, T.Compose{function(x) return x end})
    assert.error_matches(function() data.DataLoader(set, {num_workers = 1}) end,
      "Compose cannot be sent to a worker, because it has a function")
    set.transform = T.Lambda(function(x) return x end)
    assert.error_matches(function() data.DataLoader(set, {num_workers = 1}) end,
      "Lambda cannot be sent to a worker, because it has a function")
  end)

  it("each built-in transform is the same after it was sent", function()
    local x = bytes(3, 12, 14)
    local list = pictures.all().transforms
    for _, t in ipairs {T.Resize({5, 6}), T.Resize{max_size = 9}, T.GaussianNoise(), T.RGB(),
                        T.RandomZoomOut(), T.ScaleJitter({9, 9}), T.ElasticTransform(9, 1),
                        T.RandomPosterize(3, 1), T.RandomCrop{5, padding = {1, 2, 3, 4}},
                        T.Pad{2, fill = {image = 3, mask = 1}}} do list[#list + 1] = t end
    for _, t in ipairs(list) do
      local z = tostring(t):find "^Normalize" and x:float() or x
      moth.manual_seed(3)
      local a = t(z)
      moth.manual_seed(3)
      assert.is_true(same(a, t:worker()(z)), tostring(t))
    end
  end)
end)

describe("errors of transforms", function()
  it("name the function, the argument and the values", function()
    for want, f in pairs {
      ["bad argument 'p' to 'RandomHorizontalFlip' %(a probability from 0 to 1"] =
        function() T.RandomHorizontalFlip(2) end,
      ["bad argument 'std' to 'Normalize' %(is 0"] = function() T.Normalize({0}, {0}) end,
      ["bad argument 'inpt' to 'normalize' %(a floating%-point picture is needed"] = function()
        F.normalize(bytes(3, 2, 2), {0}, {1})
      end,
      ["bad argument 'size' to 'CenterCrop'"] = function() T.CenterCrop({1, 2, 3}) end,
      ["bad argument 'brightness_factor' to 'adjust_brightness'"] = function()
        F.adjust_brightness(bytes(3, 2, 2), -1)
      end,
      ["a picture with 1 or 3 channels is needed"] = function()
        F.adjust_contrast(bytes(2, 2, 2), 1)
      end,
      ["bad argument 'kernel_size' to 'GaussianBlur' %(odd numbers"] = function()
        T.GaussianBlur(4)
      end,
      ["bad argument 'inpt' to 'resize' %(a picture, a Mask or BoundingBoxes is needed"] =
        function() F.resize(3, 4) end,
      ["bad argument 'padding' to 'pad' %(of mode 'reflect' is at most 1"] = function()
        F.pad(bytes(3, 2, 2), 2, {padding_mode = "reflect"})
      end,
    } do assert.error_matches(f, want) end
  end)
end)
