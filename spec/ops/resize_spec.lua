-- Convolution and pooling with PyTorch's special cases, padding, interpolation, and their layers.
-- Numbers are PyTorch's or computed by hand.

local moth = require "moth"
local nn, F = moth.nn, moth.nn.functional

local function row(...) return moth.tensor {{{...}}} end

local function refuses(text, f)
  assert.has_error_like(f, text)
end

local function shape(x) return tostring(x.shape) end

describe("convolution", function()
  it("accepts its padding by name; odd padding has its larger side at the end", function()
    local x, w = moth.ones(1, 1, 2, 2), moth.ones(1, 1, 2, 2)
    assert.same({{{{4, 2}, {2, 1}}}}, F.conv2d(x, w, {padding = "same"}):tolist())
    assert.same({{{{4}}}}, F.conv2d(x, w, {padding = "valid"}):tolist())
    assert.same({{{6, 10, 14, 12, 9}}}, F.conv1d(row(1, 2, 3, 4, 5), moth.ones(1, 1, 4),
      {padding = "same"}):tolist())
    refuses("'padding' to 'conv1d' %('same' needs stride 1", function()
      return (F.conv1d(row(1, 2, 3), moth.ones(1, 1, 2), {padding = "same", stride = 2}))
    end)
    refuses("one of 'valid', 'same' is needed, got 'sane'; did you mean 'same'",
      function() return (F.conv2d(x, w, {padding = "sane"})) end)
  end)

  it("transposed, has the requested output_size", function()
    local m = nn.ConvTranspose2d(1, 2, 3, {stride = 2, padding = 1})
    assert.equal("(1, 2, 7, 7)", shape(m(moth.ones(1, 1, 4, 4))))
    assert.equal("(1, 2, 8, 7)", shape(m(moth.ones(1, 1, 4, 4), {8, 7})))
    refuses("'output_size' to 'ConvTranspose2d' %(7 to 8 are possible for f32 %(1, 1, 4, 4%)",
      function() return (m(moth.ones(1, 1, 4, 4), 9)) end)
  end)

  it("has parameters of PyTorch's names and layouts", function()
    local function layout(m) return shape(m.weight) .. " " .. shape(m.bias) end
    assert.equal("(6, 2, 3) (6)", layout(nn.Conv1d {4, 6, 3, groups = 2}))
    assert.equal("(4, 3, 5) (6)", layout(nn.ConvTranspose1d {4, 6, 5, groups = 2}))
    assert.equal("(4, 3, 5, 2) (6)", layout(nn.ConvTranspose2d {4, 6, {5, 2}, groups = 2}))
    local bound = nn.ConvTranspose2d(3, 64, 5).weight:abs():amax():item() -- fan in: 64 * 25
    assert.is_true(bound <= 1 / 40 and bound > 0.99 / 40)
  end)
end)

describe("pooling", function()
  it("returns flat positions from 1 on if requested", function()
    local x = moth.tensor {{{1, 5, 2}, {4, 3, 6}}}
    local y, at = F.max_pool2d(x, 2, 1, {return_indices = true})
    assert.same({{{5, 6}}}, y:tolist())
    assert.same({{{2, 6}}}, at:tolist())
    assert.equal(1, select("#", F.max_pool2d(x, 2)))
    local z, where = nn.MaxPool1d(2, {return_indices = true})(row(3, 9, 1, 4))
    assert.same({{{9, 4}}}, z:tolist())
    assert.same({{{2, 4}}}, where:tolist())
  end)

  it("in ceil mode drops windows that begin in the padding at the end", function()
    assert.same({{{1.5, 3}}}, F.avg_pool1d(row(1, 2, 3), 2, {ceil_mode = true}):tolist())
    assert.same({{{2}}}, F.max_pool1d(row(1, 2), 4, {ceil_mode = true}):tolist())
    assert.equal("(1, 1, 1)", shape(F.max_pool1d(row(1, 2, 3), 2, 4, {ceil_mode = true})))
  end)

  it("to a given size divides the input; a side of none stays", function()
    assert.same({{{1.5, 3, 4.5}}}, F.adaptive_avg_pool1d(row(1, 2, 3, 4, 5), 3):tolist())
    local y, at = F.adaptive_max_pool1d(row(1, 7, 3, 4, 5), 2, {return_indices = true})
    assert.same({{{7, 5}}}, y:tolist())
    assert.same({{{2, 5}}}, at:tolist())
    local x = moth.randn(2, 3, 7, 5)
    assert.equal("(2, 3, 2, 5)", shape(nn.AdaptiveAvgPool2d {2, moth.none}(x)))
    assert.equal("(2, 3, 1, 1)", shape(nn.AdaptiveMaxPool2d(1)(x)))
    refuses("each of which may be moth.none",
      function() return (F.adaptive_avg_pool2d(x, moth.none)) end)
  end)
end)

describe("pad", function()
  local x = moth.tensor {{1, 2, 3}, {4, 5, 6}}

  it("counts its pairs from the last dimension; a negative number removes elements", function()
    assert.same({{0, 1, 2, 3}, {0, 4, 5, 6}}, F.pad(x, {1, 0}):tolist())
    assert.same({{2, 3, 9}, {5, 6, 9}, {9, 9, 9}},
      F.pad(x, {-1, 1, 0, 1}, {value = 9}):tolist())
  end)

  it("reflects, replicates or wraps", function()
    local r = row(1, 2, 3)
    assert.same({{{3, 2, 1, 2, 3, 2}}}, F.pad(r, {2, 1}, "reflect"):tolist())
    assert.same({{{1, 1, 1, 2, 3, 3}}}, F.pad(r, {2, 1}, "replicate"):tolist())
    assert.same({{{2, 3, 1, 2, 3, 1}}}, F.pad(r, {2, 1}, "circular"):tolist())
  end)

  it("wraps the elements that a negative pair leaves, as PyTorch does", function()
    local r = row(0, 1, 2, 3, 4, 5):requires_grad_()
    local after, before = F.pad(r, {-1, 2}, "circular"), F.pad(r, {4, -2}, "circular")
    assert.same({{{1, 2, 3, 4, 5, 1, 2}}}, after:tolist())
    assert.same({{{0, 1, 2, 3, 0, 1, 2, 3}}}, before:tolist())
    after:sum():backward()
    assert.same({{{0, 2, 2, 1, 1, 1}}}, r.grad:tolist())
    r.grad = nil
    before:sum():backward()
    assert.same({{{2, 2, 2, 2, 0, 0}}}, r.grad:tolist())
    refuses("5 in mode 'circular' is too large for a dimension of 6 elements",
      function() return (F.pad(r, {5, -2}, "circular")) end)
  end)

  it("raises for unsupported arguments", function()
    refuses("'pad' to 'pad' %(an even number of integers", function()
      return (F.pad(x, {1, 2, 3}))
    end)
    refuses("'pad' to 'pad' %(3 pairs exceed",
      function() return (F.pad(x, {1, 1, 1, 1, 1, 1})) end)
    refuses("3 in mode 'reflect' is too large for a dimension of 3",
      function() return (F.pad(x, {3, 0}, "reflect")) end)
    refuses("removes more elements than there are", function() return (F.pad(x, {-2, -2})) end)
    refuses("'padding' to 'ReflectionPad2d' %(a number or {left, right, top, bottom}",
      function() return (nn.ReflectionPad2d {1, 2}) end)
  end)

  it("as layers", function()
    local y = moth.ones(1, 2, 3, 3)
    assert.equal("(1, 2, 3, 6)", shape(nn.ZeroPad2d {1, 2, 0, 0}(y)))
    assert.equal("(1, 2, 5, 5)", shape(nn.CircularPad2d(1)(y)))
    assert.equal(7, nn.ConstantPad1d(1, 7)(row(1, 2))[{1, 1, 4}]:item())
    assert.equal("ConstantPad2d(padding=(1, 1, 1, 1), value=0)", tostring(nn.ConstantPad2d(1, 0)))
  end)
end)

describe("interpolate", function()
  it("names the modes for antialias, and the wrong argument", function()
    local x, options = moth.ones(2, 1, 4, 4), {mode = "bicubic", antialias = true}
    refuses("'antialias' to 'interpolate' %(is for the modes 'bilinear' and 'bicubic' only",
      function() return (F.interpolate(x, 2, {antialias = true})) end)
    refuses("'size' to 'interpolate' %(.- f32 %(2, 1, 4, 4%), got 3",
      function() return (F.interpolate(x, {1, 2, 3}, options)) end)
    refuses("'mode' to 'interpolate'", function() return (F.interpolate(x[1], 2, options)) end)
  end)

  it("repeats the nearest element, or interpolates with aligned corners or not", function()
    local x = row(1, 2, 4)
    assert.same({{{1, 1, 2, 2, 4, 4}}}, F.interpolate(x, {scale_factor = 2}):tolist())
    assert.same({{{1, 1.5, 2, 3, 4}}},
      F.interpolate(x, 5, {mode = "linear", align_corners = true}):tolist())
    assert.same({{{1, 1.25, 1.75, 2.5, 3.5, 4}}},
      F.interpolate(x, 6, {mode = "linear"}):tolist())
    assert.same({{{1.5, 3}}}, F.interpolate(x, 2, {mode = "area"}):tolist())
  end)

  it("stays inside the image for any scale, and raises for sizes that overflow", function()
    local resize = require("moth.binding.bind").ops.resize -- the op of interpolate and of C hosts
    local x = moth.arange(9):float():view(1, 1, 3, 3)
    for _, mode in ipairs {"nearest", "nearest_exact", "linear", "cubic"} do
      local y = resize(x, {1, 2}, {mode = mode, scale_h = 1e-300, scale_w = 1e-300})
      assert.equal(8, y[{1, 1, 1, 2}]:item())
    end
    refuses("'downscale_factor' to 'pixel_unshuffle' %(a factor of 1073741824 results in too many",
      function() return (F.pixel_unshuffle(moth.zeros(16, 0, 0), 2 ^ 30)) end)
  end)

  it("unfolds windows and folds them again", function()
    local x = moth.arange(6):float():view(1, 1, 2, 3)
    local columns = nn.Unfold(2)(x)
    assert.same({{{0, 1}, {1, 2}, {3, 4}, {4, 5}}}, columns:tolist())
    assert.same({{{{0, 2, 2}, {3, 8, 5}}}}, nn.Fold({2, 3}, 2)(columns):tolist())
    refuses("'input' to 'unfold' %(%(N, C, H, W%)",
      function() return (F.unfold(moth.ones(2), 2)) end)
    refuses("'kernel_size' to 'fold' %(numbers up to 2%^30 are needed",
      -- checked before the sizes are multiplied
      function() return (F.fold(moth.ones(4, 4), {4, 4}, {2 ^ 40, 2 ^ 40})) end)
  end)

  it("accepts sizes or factors, one for all sides or one for each", function()
    local x = moth.randn(1, 1, 4, 6)
    assert.equal("(1, 1, 2, 9)", shape(F.interpolate(x, {scale_factor = {0.5, 1.5}})))
    assert.equal("(1, 1, 3, 3)", shape(nn.Upsample(3)(x)))
    assert.equal("(1, 1, 8, 12)", shape(nn.UpsamplingBilinear2d {scale_factor = 2}(x)))
    local options = {scale_factor = 1.7, mode = "bilinear", recompute_scale_factor = true}
    assert.same(F.interpolate(x, options):tolist(), nn.Upsample(options)(x):tolist())
    refuses("'size' to 'interpolate' %(either size or scale_factor is needed, got neither",
      function() return (F.interpolate(x)) end)
    refuses("got both", function() return (F.interpolate(x, 2, 2)) end)
    refuses("'mode' to 'interpolate' %('linear' needs %(N, C, L%)",
      function() return (F.interpolate(x, 2, {mode = "linear"})) end)
    refuses("'align_corners' to 'interpolate'",
      function() return (F.interpolate(x, 2, {align_corners = true})) end)
  end)

  it("converts pixels to channels and channels to pixels", function()
    local x = moth.arange(8):view(1, 4, 1, 2)
    local y = nn.PixelShuffle(2)(x)
    assert.same({{{{0, 2, 1, 3}, {4, 6, 5, 7}}}}, y:tolist())
    assert.same(x:tolist(), nn.PixelUnshuffle(2)(y):tolist())
    refuses("'upscale_factor' to 'pixel_shuffle' %(the channels of i64 %(1, 4, 1, 2%)",
      function() return (F.pixel_shuffle(x, 3)) end)
  end)
end)
