-- The refusals of moth.transforms at both sides of each bound: the name of the function, of the
-- argument, and the values; and inputs without elements.

local moth = require "moth"
local T = moth.transforms
local F = T.functional

local function bytes(...) return (moth.randint(0, 256, {...}, {dtype = moth.uint8})) end
local function long(list) return moth.tensor(list, {dtype = moth.int64}) end

local x, batch = bytes(3, 6, 8), bytes(2, 3, 6, 8)
local box = T.BoundingBoxes({{1, 1, 3, 3}}, "xyxy", {6, 8})
local mask = T.Mask(bytes(6, 8))
local labels = long {1, 2}
local list = {T.Resize(2), T.Resize(3)}

-- Rows: the argument, the function, the text after "(", a call that is refused, and a call at the
-- bound that is taken.
local BAD = {
  {"scale", "RandomErasing", "{least, most} is needed", function() T.RandomErasing(1, 0.5) end},
  {"scale", "RandomErasing", "{least, most} from 0 to 1 is needed",
    function() T.RandomErasing(1, {-0.1, 0.5}) end, function() T.RandomErasing(1, {0, 1}) end},
  {"scale", "RandomErasing", "{least, most} from 0 to 1 is needed",
    function() T.RandomErasing(1, {0.1, 1.1}) end},
  {"scale", "RandomErasing", "{least, most} from 0 to 1 is needed",
    function() T.RandomErasing(1, {0.6, 0.5}) end, function() T.RandomErasing(1, {0.5, 0.5}) end},
  {"scale", "RandomErasing", "{least, most} from 0 to 1 is needed",
    function() T.RandomErasing(1, {0.1, 0.2, 0.3}) end},
  {"ratio", "RandomErasing", "{least, most} above 0 is needed",
    function() T.RandomErasing(1, {0, 1}, {0, 1}) end,
    function() T.RandomErasing(1, {0, 1}, {1, 1}) end},
  {"ratio", "RandomErasing", "{least, most} above 0 is needed",
    function() T.RandomErasing(1, {0, 1}, {2, 1}) end},
  {"ratio", "RandomErasing", "{least, most} above 0 is needed",
    function() T.RandomErasing(1, {0, 1}, {1}) end},
  {"value", "RandomErasing", "a number, a list or \"random\" is needed",
    function() T.RandomErasing {value = "noise"} end, function()
      T.RandomErasing {p = 1, value = "random"}(x)
      T.RandomErasing {p = 1, value = {1}}(x)
      T.RandomErasing {p = 1, value = {1, 2, 3}}(x)
    end},
  {"value", "RandomErasing", "of 2 numbers does not fit 3 channels",
    function() T.RandomErasing {p = 1, value = {1, 2}}(x) end},
  {"alpha", "MixUp", "a number above 0 is needed, got 0", function() T.MixUp(0) end,
    function() T.MixUp {alpha = 1e-3, num_classes = 3}(batch, labels) end},
  {"alpha", "CutMix", "a number above 0 is needed, got -1", function() T.CutMix(-1) end},
  {"num_classes", "MixUp", "is needed for labels that are class numbers",
    function() T.MixUp()(batch, labels) end,
    function() T.MixUp()(batch, moth.eye(2)) end},
  {"num_classes", "CutMix", "is 3, but the labels have 2",
    function() T.CutMix {num_classes = 3}(batch, moth.eye(2)) end,
    function() T.CutMix {num_classes = 2}(batch, moth.eye(2)) end},
  {"num_ops", "RandAugment", "a number from 0 on is needed, got -1",
    function() T.RandAugment(-1) end, function() T.RandAugment(0)(x) end},
  {"magnitude", "RandAugment", "a number from 0 to 30 is needed, got 31",
    function() T.RandAugment(1, 31) end, function() T.RandAugment(1, 30) end},
  {"magnitude", "RandAugment", "a number from 0 to 4 is needed, got -1",
    function() T.RandAugment(1, -1, 5) end, function() T.RandAugment(1, 0, 5) end},
  {"num_magnitude_bins", "TrivialAugmentWide", "a number from 2 on is needed, got 1",
    function() T.TrivialAugmentWide(1) end, function() T.TrivialAugmentWide(2)(x) end},
  {"severity", "AugMix", "a number from 1 to 10 is needed, got 0", function() T.AugMix(0) end,
    function() T.AugMix(1) end},
  {"severity", "AugMix", "a number from 1 to 10 is needed, got 11", function() T.AugMix(11) end,
    function() T.AugMix(10) end},
  {"num_output_channels", "rgb_to_grayscale", "1 or 3 is needed, got 2",
    function() F.rgb_to_grayscale(x, 2) end, function()
      assert.equal(1, F.rgb_to_grayscale(x, 1):size(1))
      assert.equal(3, F.rgb_to_grayscale(x, 3):size(1))
    end},
  {"hue_factor", "adjust_hue", "a number from -0.5 to 0.5 is needed, got 0.51",
    function() F.adjust_hue(x, 0.51) end, function() F.adjust_hue(x, 0.5) end},
  {"hue_factor", "adjust_hue", "a number from -0.5 to 0.5 is needed, got -0.51",
    function() F.adjust_hue(x, -0.51) end, function() F.adjust_hue(x, -0.5) end},
  {"hue_factor", "adjust_hue", "a number from -0.5 to 0.5 is needed",
    function() F.adjust_hue(x, 0 / 0) end},
  {"bits", "posterize", "a number from 0 to 8 is needed, got -1", function() F.posterize(x, -1) end,
    function() assert.equal(0, F.posterize(x, 0):max():item()) end},
  {"bits", "posterize", "a number from 0 to 8 is needed, got 9", function() F.posterize(x, 9) end,
    function() assert.is_true(moth.equal(x, F.posterize(x, 8))) end},
  {"threshold", "solarize", "is above the largest value of moth.uint8, 255, got 256",
    function() F.solarize(x, 256) end, function() F.solarize(x, 255) end},
  {"threshold", "solarize", "is above the largest value of moth.float32, 1, got 1.5",
    function() F.solarize(moth.rand(3, 2, 2), 1.5) end,
    function() F.solarize(moth.rand(3, 2, 2), 1) end},
  {"permutation", "permute_channels", "3 positions are needed",
    function() F.permute_channels(x, {1, 2}) end, function() F.permute_channels(x, {3, 2, 1}) end},
  {"brightness", "ColorJitter", "one number is from 0 on, got -0.1",
    function() T.ColorJitter(-0.1) end, function() T.ColorJitter(0)(x) end},
  {"brightness", "ColorJitter", "a number, or {least, most} from 0 to inf, is needed",
    function() T.ColorJitter {brightness = {2, 1}} end,
    function() T.ColorJitter {brightness = {1, 1}} end},
  {"contrast", "ColorJitter", "a number, or {least, most} from 0 to inf, is needed",
    function() T.ColorJitter {contrast = {-0.1, 1}} end,
    function() T.ColorJitter {contrast = {0, 1}} end},
  {"saturation", "ColorJitter", "a number, or {least, most} from 0 to inf, is needed",
    function() T.ColorJitter {saturation = {1}} end},
  {"hue", "ColorJitter", "a number, or {least, most} from -0.5 to 0.5, is needed",
    function() T.ColorJitter {hue = 0.6} end, function() T.ColorJitter {hue = 0.5} end},
  {"hue", "ColorJitter", "a number, or {least, most} from -0.5 to 0.5, is needed",
    function() T.ColorJitter {hue = {-0.6, 0}} end,
    function() T.ColorJitter {hue = {-0.5, 0.5}} end},
  {"sigma", "GaussianBlur", "numbers above 0, {least, most}, are needed",
    function() T.GaussianBlur(3, 0) end, function() T.GaussianBlur(3, 0.1) end},
  {"sigma", "GaussianBlur", "numbers above 0, {least, most}, are needed",
    function() T.GaussianBlur(3, {2, 1}) end, function() T.GaussianBlur(3, {1, 1}) end},
  {"kernel_size", "GaussianBlur", "odd numbers from 1 on are needed, got 2",
    function() T.GaussianBlur({3, 2}) end, function() T.GaussianBlur({3, 1}) end},
  {"kernel_size", "gaussian_blur", "odd numbers from 1 on are needed, got -1",
    function() F.gaussian_blur(x, -1) end, function() F.gaussian_blur(x, 1) end},
  {"kernel_size", "gaussian_blur", "one or two numbers are needed",
    function() F.gaussian_blur(x, {3, 3, 3}) end, function() F.gaussian_blur(x, {3}) end},
  {"sigma", "gaussian_blur", "numbers above 0 are needed",
    function() F.gaussian_blur(x, 3, 0) end},
  {"sigma", "gaussian_blur", "numbers above 0 are needed",
    function() F.gaussian_blur(x, 3, {1, 0}) end},
  {"sigma", "gaussian_noise", "a number from 0 on is needed, got -1",
    function() F.gaussian_noise(x, 0, -1) end, function()
      assert.is_true(moth.equal(x, F.gaussian_noise(x, 0, 0)))
    end},
  {"inpt", "gaussian_noise", "uint8 or floating point is needed",
    function() F.gaussian_noise(long {{{1}}}) end},
  {"i", "erase", "a window inside the picture is needed, got rows 4 to 7 and columns 0 to 1 of "
      .. "{6, 8}",
    function() F.erase(x, 4, 0, 3, 1, 0) end, function() F.erase(x, 4, 0, 2, 1, 0) end},
  {"i", "erase", "a window inside the picture is needed, got rows 0 to 1 and columns 5 to 9 of "
      .. "{6, 8}",
    function() F.erase(x, 0, 5, 1, 4, 0) end, function() F.erase(x, 0, 5, 1, 3, 0) end},
  {"i", "erase", "a window inside the picture is needed",
    function() F.erase(x, -1, 0, 1, 1, 0) end},
  {"i", "erase", "a window inside the picture is needed",
    function() F.erase(x, 0, -1, 1, 1, 0) end},
  {"transforms", "Compose", "one transform or more are needed", function() T.Compose {} end},
  {"transforms", "RandomApply", "a transform or a function is needed at 2",
    function() T.RandomApply {print, 3} end},
  {"p", "RandomChoice", "2 numbers are needed, one for each transform, got 1",
    function() T.RandomChoice(list, {1}) end, function() T.RandomChoice(list, {1, 0})(x) end},
  {"p", "RandomGrayscale", "a probability from 0 to 1 is needed, got 1.1",
    function() T.RandomGrayscale(1.1) end, function() T.RandomGrayscale(1) end},
  {"p", "RandomVerticalFlip", "a probability from 0 to 1 is needed, got -0.1",
    function() T.RandomVerticalFlip(-0.1) end, function() T.RandomVerticalFlip(0) end},
  {"p", "RandomErasing", "a probability from 0 to 1 is needed", function()
    T.RandomErasing(0 / 0)
  end},
  {"scale", "RandomResizedCrop", "two numbers above 0 in order, {least, most}, are needed",
    function() T.RandomResizedCrop(3, {0, 1}) end,
    function() T.RandomResizedCrop(3, {0.1, 0.1}) end},
  {"scale", "RandomResizedCrop", "two numbers above 0 in order, {least, most}, are needed",
    function() T.RandomResizedCrop(3, {1, 0.5}) end},
  {"ratio", "RandomResizedCrop", "two numbers above 0 in order, {least, most}, are needed",
    function() T.RandomResizedCrop(3, {0.5, 1}, {1}) end},
  {"size", "CenterCrop", "height and width are needed", function() T.CenterCrop {1, 2, 3} end,
    function() T.CenterCrop {1} end},
  {"size", "resize", "one or two numbers are needed", function() F.resize(x, {1, 2, 3}) end},
  {"size", "resize", "one number or {height, width} is needed", function() F.resize(x, {}) end},
  {"size", "resize", "size or max_size is needed", function() F.resize(x) end,
    function() assert.same({6, 8}, {unpack(F.resize(x, nil, {max_size = 8}).shape, 2)}) end},
  {"max_size", "resize", "needs a size of one number, the shorter side",
    function() F.resize(x, {3, 4}, {max_size = 9}) end},
  {"max_size", "resize", "must be greater than the size of the shorter side, 4, got 4",
    function() F.resize(x, 4, {max_size = 4}) end, function()
      local y = F.resize(bytes(3, 2, 8), 3, {max_size = 5}) -- 3 x 12: 1.25 x 5
      assert.same({1, 5}, {y:size(2), y:size(3)})
    end},
  {"size", "resize", "of 0 by 4 pixels is empty", function() F.resize(x, {0, 4}) end,
    function() F.resize(x, {1, 1}) end},
  {"padding", "pad", "1, 2 or 4 numbers are needed", function() F.pad(x, {1, 2, 3}) end,
    function() F.pad(x, {1, 2, 3, 4}) end},
  {"padding", "pad", "of mode 'reflect' is at most 5 for 6 pixels, got 6",
    function() F.pad(x, {0, 0, 0, 6}, {padding_mode = "reflect"}) end,
    function() F.pad(x, {7, 5, 7, 5}, {padding_mode = "reflect"}) end},
  {"padding", "pad", "of mode 'reflect' is at most 7 for 8 pixels, got 9",
    function() F.pad(x, {9, 0, 8, 0}, {padding_mode = "reflect"}) end},
  {"padding", "pad", "of mode 'symmetric' is at most 6 for 6 pixels, got 7",
    function() F.pad(x, {0, 7, 0, 0}, {padding_mode = "symmetric"}) end,
    function() F.pad(x, {8, 6, 8, 6}, {padding_mode = "symmetric"}) end},
  {"fill", "pad", "of each channel is for padding_mode = 'constant'",
    function() F.pad(x, 1, {fill = {1, 2, 3}, padding_mode = "edge"}) end,
    function() F.pad(x, 20, {padding_mode = "edge"}) end},
  {"fill", "pad", "of a mask is one number", function() F.pad(mask, 1, {fill = {1, 2}}) end,
    function() F.pad(mask, 1, {fill = {1}}) end},
  {"padding_mode", "pad", "'edge' is not possible with boxes",
    function() F.pad(box, 1, {padding_mode = "edge"}) end, function() F.pad(box, 1) end},
  {"size", "five_crop", "{7, 2} is larger than the picture, {6, 8}",
    function() F.five_crop(x, {7, 2}) end, function() F.five_crop(x, {6, 8}) end},
  {"size", "five_crop", "{2, 9} is larger than the picture, {6, 8}",
    function() F.five_crop(x, {2, 9}) end},
  {"scale", "to_dtype", "is not possible for bool", function() F.to_dtype(x, moth.bool, true) end,
    function() F.to_dtype(x, moth.bool) end},
  {"dtype", "to_dtype", "moth.int32 has more digits than moth.float32",
    function() F.to_dtype(moth.rand(3, 2, 2), moth.int32, true) end,
    function() F.to_dtype(moth.rand(3, 2, 2, {dtype = moth.float64}), moth.int32, true) end},
  {"dtype", "to_dtype", "moth.int64 has more digits than moth.float64",
    function() F.to_dtype(moth.rand(3, 2, 2, {dtype = moth.float64}), moth.int64, true) end},
  {"image", "convert_image_dtype", "a picture is needed, got 3",
    function() F.convert_image_dtype(3) end},
  {"inpt", "normalize", "(..., C, H, W) is needed",
      function() F.normalize(moth.rand(2, 2), 0, 1) end},
  {"std", "normalize", "is 0, which divides by 0",
    function() F.normalize(moth.rand(3, 2, 2), {0, 0, 0}, {1, 0, 1}) end},
  {"max_size", "RandomResize", "must be greater than min_size, 3, got 3",
    function() T.RandomResize(3, 3) end, function() T.RandomResize(3, 4) end},
  {"scale_range", "ScaleJitter", "{least, most} from 0 on is needed",
    function() T.ScaleJitter({4, 4}, {2, 1}) end, function() T.ScaleJitter({4, 4}, {1, 1}) end},
  {"side_range", "RandomZoomOut", "{least, most} from 1 on is needed",
    function() T.RandomZoomOut {side_range = {0.9, 2}} end,
    function() T.RandomZoomOut {side_range = {1, 1}} end},
  {"side_range", "RandomZoomOut", "{least, most} from 1 on is needed",
    function() T.RandomZoomOut {side_range = {1}} end},
  {"dtype", "ToDtype", "a dtype such as moth.float32, or a table of them by kind, is needed",
    function() T.ToDtype "float32" end, function() T.ToDtype {dtype = {mask = moth.int64}} end},
  {"min_size", "SanitizeBoundingBoxes", "a number from 1 on is needed, got 0.9",
    function() T.SanitizeBoundingBoxes(0.9) end, function() T.SanitizeBoundingBoxes(1) end},
  {"min_area", "SanitizeBoundingBoxes", "a number from 1 on is needed, got 0",
    function() T.SanitizeBoundingBoxes(1, 0) end},
  {"format", "BoundingBoxes", "one of 'XYXY', 'XYWH' and 'CXCYWH' is needed",
    function() T.BoundingBoxes({{1, 1, 2, 2}}, "xy", {6, 8}) end},
  {"canvas_size", "BoundingBoxes", "height and width are needed",
    function() T.BoundingBoxes({{1, 1, 2, 2}}, "xyxy", {6}) end},
  {"data", "BoundingBoxes", "four numbers for each box are needed, (..., 4)",
    function() T.BoundingBoxes({{1, 1, 2}}, "xyxy", {6, 8}) end,
    function() T.BoundingBoxes({1, 1, 2, 3}, "xyxy", {6, 8}) end},
  {"data", "BoundingBoxes", "a tensor is needed, got 3",
    function() T.BoundingBoxes(3, "xyxy", {6, 8}) end},
  {"inpt", "convert_bounding_box_format", "BoundingBoxes or a tensor are needed, got 3",
    function() F.convert_bounding_box_format(3, {new_format = "xywh"}) end},
  {"old_format", "convert_bounding_box_format", "is for tensors: BoundingBoxes know their format",
    function() F.convert_bounding_box_format(box, "xyxy", "xywh") end},
  {"inpt", "clamp_bounding_boxes", "BoundingBoxes or a tensor are needed, got 3",
    function() F.clamp_bounding_boxes(3) end},
  {"format", "clamp_bounding_boxes", "is for tensors: BoundingBoxes know their format and",
    function() F.clamp_bounding_boxes(box, {format = "xyxy"}) end},
  {"canvas_size", "clamp_bounding_boxes", "is for tensors: BoundingBoxes know their format and",
    function() F.clamp_bounding_boxes(box, {canvas_size = {3, 3}}) end},
  {"bounding_boxes", "sanitize_bounding_boxes", "BoundingBoxes or a tensor are needed, got 3",
    function() F.sanitize_bounding_boxes(3) end},
  {"fill", "affine", "of 2 numbers does not fit 3 channels",
    function() F.affine(x, 0, {0, 0}, 1, 0, {fill = {1, 2}}) end,
    function() F.affine(x, 0, {0, 0}, 1, 0, {fill = {1, 2, 3}}) end},
  {"fill", "Pad", "a number, a list of numbers, or {image = , mask = , others = } is needed",
    function() T.Pad(1, {fill = {pictures = 3}}) end,
    function() T.Pad(1, {fill = {image = 3, mask = 0, others = 1}}) end},
  {"inpt", "rotate", "(..., C, H, W) is needed", function() F.rotate(moth.rand(3, 3), 30) end},
  {"shear", "affine", "one or two numbers are needed",
    function() F.affine(x, 0, {0, 0}, 1, {1, 2, 3}) end,
    function() F.affine(x, 0, {0, 0}, 1, {1}) end},
  {"translate", "affine", "two numbers, across and down, are needed",
    function() F.affine(x, 0, {0}, 1, 0) end},
  {"scale", "affine", "a number above 0 is needed, got 0",
    function() F.affine(x, 0, {0, 0}, 0, 0) end, function() F.affine(x, 0, {0, 0}, 0.1, 0) end},
  {"startpoints", "perspective", "four corners are needed, got 1",
    function() F.perspective(x, {{0, 0}}, {{0, 0}, {1, 0}, {1, 1}, {0, 1}}) end},
  {"endpoints", "perspective", "four corners are needed, got 2",
    function() F.perspective(x, {{0, 0}, {1, 0}, {1, 1}, {0, 1}}, {{0, 0}, {1, 1}}) end},
  {"endpoints", "perspective", "three of the corners are on a line",
    function()
      F.perspective(x, {{0, 0}, {1, 0}, {1, 1}, {0, 1}}, {{0, 0}, {1, 0}, {2, 0}, {3, 0}})
    end},
  {"coefficients", "perspective", "cannot be combined with points", function()
    F.perspective(x, {{0, 0}}, nil, {coefficients = {1, 0, 0, 0, 1, 0, 0, 0}})
  end},
  {"coefficients", "perspective", "8 numbers are needed, got 2",
    function() F.perspective(x, {coefficients = {1, 2}}) end,
    function()
      local y = F.perspective(x, {coefficients = {1, 0, 0, 0, 1, 0, 0, 0}})
      assert.is_true(moth.equal(x, y))
    end},
  {"coefficients", "perspective", "cannot be inverted, which boxes need",
    function() F.perspective(box, {coefficients = {1, 1, 0, 1, 1, 0, 0, 0}}) end},
  {"startpoints", "perspective", "is needed, unless coefficients are given",
    function() F.perspective(x) end},
  {"endpoints", "perspective", "is needed, unless coefficients are given",
    function() F.perspective(x, {{0, 0}, {1, 0}, {1, 1}, {0, 1}}) end},
  {"displacement", "elastic", "(1, 6, 8, 2) is needed",
    function() F.elastic(x, moth.zeros(1, 8, 6, 2)) end,
    function() F.elastic(x, moth.zeros(1, 6, 8, 2)) end},
  {"displacement", "elastic", "(1, 6, 8, 2) is needed",
    function() F.elastic(x, moth.zeros(2, 6, 8, 2)) end},
  {"displacement", "elastic", "(1, 6, 8, 2) is needed",
    function() F.elastic(x, moth.zeros(6, 8, 2)) end},
  {"degrees", "RandomRotation", "one number is from 0 on, got -1",
    function() T.RandomRotation(-1) end, function() T.RandomRotation(0)(x) end},
  {"degrees", "RandomAffine", "one number, or {least, most}, is needed",
    function() T.RandomAffine {1, 2, 3} end, function() T.RandomAffine {-1, 2} end},
  {"translate", "RandomAffine", "parts from 0 to 1 are needed, got 1.1",
    function() T.RandomAffine(1, {0, 1.1}) end, function() T.RandomAffine(1, {0, 1}) end},
  {"translate", "RandomAffine", "parts from 0 to 1 are needed, got -0.1",
    function() T.RandomAffine(1, {-0.1, 0}) end},
  {"translate", "RandomAffine", "two numbers are needed", function() T.RandomAffine(1, {0.1}) end},
  {"scale", "RandomAffine", "factors above 0 are needed, got 0",
    function() T.RandomAffine(1, nil, {0, 1}) end},
  {"scale", "RandomAffine", "two numbers are needed",
    function() T.RandomAffine(1, nil, {1, 1, 1}) end},
  {"shear", "RandomAffine", "one number, or {least, most}, is needed",
    function() T.RandomAffine(1, nil, nil, {1, 2, 3}) end,
    function() T.RandomAffine(1, nil, nil, {1, 2, 3, 4})(x) end},
}

-- Rows: the text of a message that names no argument, and a call.
local RAISED = {
  {"MixUp: labels of a batch are needed, class numbers (N) or probabilities (N, classes), got "
      .. "f32 ()",
    function() T.MixUp(1, 2)(batch, moth.tensor(1)) end},
  {"MixUp: masks and boxes cannot be mixed",
    function() T.MixUp(1, 2) {image = batch, mask = mask, labels = labels} end},
  {"CutMix: a batch of 2 pictures is needed, (N, C, H, W), got u8 (3, 6, 8)",
    function() T.CutMix(1, 2)(x, labels) end},
  {"CutMix: a batch of 3 pictures is needed, (N, C, H, W), got u8 (2, 3, 6, 8)",
    function() T.CutMix(1, 2)(batch, long {1, 2, 1}) end},
  {"CutMix: the sample has no labels: pass (x, labels), a table with the key 'labels', or a "
    .. "labels_getter", function() T.CutMix(1, 2) {image = batch} end},
  {"AutoAugment: a sample with one picture, without masks and boxes, is needed",
    function() T.AutoAugment() {image = x, mask = mask} end},
  {"a picture with 1 or 3 channels is needed, (..., C, H, W)",
    function() F.adjust_saturation(bytes(2, 3, 3), 1) end},
  {"RandomCrop: the size {7, 2} is larger than the picture, {6, 8}; padding or pad_if_needed "
      .. "adds a "
    .. "border", function() T.RandomCrop {7, 2}(x) end},
  {"RandomCrop: the size {2, 11} is larger than the picture, {8, 10} with its padding",
    function() T.RandomCrop({2, 11}, {padding = 1})(x) end},
  {"FiveCrop: masks and boxes cannot follow", function() T.FiveCrop(2)(x, mask) end},
  {"TenCrop: masks and boxes cannot follow", function() T.TenCrop(2)(x, box) end},
  {"RandomIoUCrop: the sample has no boxes", function() T.RandomIoUCrop()(x) end},
  {"SanitizeBoundingBoxes: the sample has no boxes", function() T.SanitizeBoundingBoxes()(x) end},
  {"SanitizeBoundingBoxes: there is 1 box and 2 labels",
    function() T.SanitizeBoundingBoxes() {image = x, boxes = moth.ones(1, 4), labels = labels} end},
  {"RandomCrop: the sample has no picture: pass a tensor, or a table with the key 'image'",
    function() T.RandomCrop(2) {name = "x"} end},
  {"the parts of a sample have different sizes: 6 by 8 and 6 by 7",
    function() T.RandomCrop(2)(x, T.Mask(bytes(6, 7))) end},
  {"a picture has three dimensions or more, (..., C, H, W), got u8 (6, 8)",
    function() F.hflip(bytes(6, 8)) F.resize(bytes(6, 8), 3) end},
}

local function check(text, f)
  local ok, problem = pcall(f)
  assert.is_false(ok, "was taken: " .. text)
  local message = tostring(type(problem) == "table" and problem.message or problem)
  if not message:find(text, 1, true) then error(message .. "\nlacks: " .. text, 0) end
end

describe("transforms refuse", function()
  for i, row in ipairs(BAD) do
    local text = ("bad argument '%s' to '%s' (%s"):format(row[1], row[2], row[3])
    it(("%d: %s"):format(i, text), function()
      check(text, row[4])
      if row[5] then row[5]() end
    end)
  end
  for i, row in ipairs(RAISED) do
    it(("%d: %s"):format(#BAD + i, row[1]), function() check(row[1], row[2]) end)
  end
end)

describe("transforms take inputs without elements", function()
  local empty = T.BoundingBoxes(moth.zeros(0, 4), "xyxy", {6, 8})
  for name, f in pairs {
    hflip = function(b) return F.hflip(b) end,
    rotate = function(b) return F.rotate(b, 30) end,
    affine = function(b) return F.affine(b, 30, {1, 2}, 1, 0) end,
    perspective = function(b) return F.perspective(b, {coefficients = {1, 0, 0, 0, 1, 0, 0,
      0}}) end,
    elastic = function(b) return F.elastic(b, moth.zeros(1, 6, 8, 2)) end,
    resize = function(b) return F.resize(b, {3, 4}) end,
    clamp = function(b) return F.clamp_bounding_boxes(b) end,
  } do
    it(name, function()
      local y = f(empty)
      assert.same({0, 4}, {y.data:size(1), y.data:size(2)})
      local canvas = name == "resize" and {3, 4} or {6, 8}
      assert.same(canvas, y.canvas_size)
    end)
  end

  it("and pictures without pixels", function()
    local none = moth.zeros(3, 0, 4)
    for _, f in ipairs {
      function() return F.adjust_hue(none, 0.2) end, function() return F.autocontrast(none) end,
      function() return F.equalize(none:to(moth.uint8)) end,
      function() return F.gaussian_blur(none, 3) end,
      function() return F.adjust_contrast(none, 2) end,
    } do assert.equal(0, f():numel()) end
  end)
end)
