-- Darknet's sections: defaults, each option against the same computation by moth.nn.functional, and
-- the bounds of each key.

local files = require "spec.support.files"
local moth = require "moth"
local darknet, F = moth.darknet, moth.nn.functional

setup(files.setup)
teardown(files.teardown)

local function net(c, h, w, ...)
  return ("[net]\nchannels=%d\nheight=%d\nwidth=%d\n"):format(c, h, w) .. table.concat({...}, "\n")
    .. "\n"
end

local function make(c, h, w, ...)
  moth.manual_seed(5)
  return darknet.load(net(c, h, w, ...)):eval()
end

local function near(wanted, got)
  assert.equal(wanted.shape, got.shape)
  assert.is_true(moth.allclose(wanted, got, 1e-5, 1e-6))
end

local function refuses(cfg, text)
  local fine, problem = pcall(darknet.load, cfg)
  assert.is_false(fine, cfg)
  assert.is_true(tostring(problem):find(text, 1, true) ~= nil, tostring(problem))
end

local ACTIVATIONS = {
  linear = function(x) return x end, leaky = function(x) return F.leaky_relu(x, 0.1) end,
  relu = F.relu, relu6 = F.relu6, logistic = moth.sigmoid, tanh = moth.tanh, elu = F.elu,
  selu = F.selu, mish = F.mish, swish = F.silu, gelu = F.gelu,
}

describe("the section", function()
  it("convolutional has a size of 1, no padding or normalization, and the sigmoid", function()
    local x = moth.randn(2, 3, 5, 6)
    local one = make(3, 5, 6, "[convolutional]")
    local layer = one.layers[1]
    assert.is_nil(layer.bn)
    assert.same({1, 3, 1, 1}, {unpack(layer.conv.weight.shape)})
    near(F.conv2d(x, layer.conv.weight, layer.conv.bias):sigmoid(), one(x))
  end)

  it("convolutional has each option", function()
    local x = moth.randn(2, 4, 9, 8)
    for _, case in ipairs {
      {"size=3\npad=1", 3, 1, 1, 1, 1}, {"size=3\npadding=2", 3, 1, 2, 1, 1},
      {"size=5\npad=1\npadding=9", 5, 1, 2, 1, 1}, {"size=4\npad=1\nstride=2", 4, 2, 2, 1, 1},
      {"size=3\npad=1\ndilation=2", 3, 1, 2, 2, 1}, {"size=3\nstride=3", 3, 3, 0, 1, 1},
      {"size=2\ngroups=2\nstride=2", 2, 2, 0, 1, 2}, {"size=3\npad=0", 3, 1, 0, 1, 1},
    } do
      local text, size, stride, padding, dilation, groups = unpack(case)
      local one = make(4, 9, 8, "[convolutional]\nfilters=6\nactivation=linear\n" .. text)
      local conv = one.layers[1].conv
      assert.same({6, 4 / groups, size, size}, {unpack(conv.weight.shape)})
      near(F.conv2d(x, conv.weight, conv.bias, stride, padding, dilation, groups), one(x))
    end
  end)

  it("convolutional and connected have each activation, after normalization", function()
    local x = moth.randn(3, 2, 4, 5)
    for name, f in pairs(ACTIVATIONS) do
      local text = "\nbatch_normalize=1\nactivation=" .. name
      local one = make(2, 4, 5, "[convolutional]\nfilters=3" .. text)
      local layer = one.layers[1]
      layer.bn.running_mean:copy_(moth.tensor {0.5, -1, 0})
      layer.bn.running_var:copy_(moth.tensor {0.5, 2, 1})
      assert.equal(1e-6, layer.bn.eps)
      assert.equal(0.01, layer.bn.momentum)
      assert.is_nil(layer.conv.bias)
      near(f(layer.bn(F.conv2d(x, layer.conv.weight))), one(x))
      assert.is_true(tostring(layer):find(name, 1, true) ~= nil)
      for _, normalized in ipairs {0, 1} do
        one = make(2, 4, 5, ("[connected]\noutput=7\nbatch_normalize=%d\nactivation=%s"):format(
          normalized, name))
        layer = one.layers[1]
        assert.equal(normalized == 1, layer.bn ~= nil)
        assert.equal(normalized == 0, layer.linear.bias ~= nil)
        local y = F.linear(x:flatten(2), layer.linear.weight, layer.linear.bias)
        if layer.bn then y = layer.bn(y) end
        near(f(y):view(3, 7, 1, 1), one(x))
        assert.is_true(tostring(layer):find(name, 1, true) ~= nil)
      end
    end
    local one = make(2, 4, 5, "[connected]")
    assert.same({1, 40}, {unpack(one.layers[1].linear.weight.shape)})
    near(F.linear(x:flatten(2), one.layers[1].linear.weight, one.layers[1].linear.bias):sigmoid()
      :view(3, 1, 1, 1), one(x))
  end)

  -- Darknet: the first window begins padding / 2 before the picture; there are (h + padding -
  -- size) / stride + 1 windows.
  it("maxpool has windows that end outside of the picture", function()
    local x = moth.randn(1, 2, 7, 5):abs()
    for _, case in ipairs {
      {"", 1, 1, 0}, {"size=2", 2, 1, 1}, {"size=3", 3, 1, 2}, {"stride=2", 2, 2, 1},
      {"size=3\nstride=2", 3, 2, 2}, {"size=2\nstride=2\npadding=0", 2, 2, 0},
      {"size=5\nstride=1", 5, 1, 4}, {"size=3\nstride=3\npadding=1", 3, 3, 1},
    } do
      local text, size, stride, padding = unpack(case)
      local h, w = math.floor((7 + padding - size) / stride) + 1,
        math.floor((5 + padding - size) / stride) + 1
      local rows, values, first = x:tolist()[1], {}, -math.floor(padding / 2)
      for c = 1, 2 do
        for i = 0, h - 1 do
          for j = 0, w - 1 do
            local best = -math.huge
            for r = first + i * stride, first + i * stride + size - 1 do
              for k = first + j * stride, first + j * stride + size - 1 do
                if rows[c][r + 1] and rows[c][r + 1][k + 1] then
                  best = math.max(best, rows[c][r + 1][k + 1])
                end
              end
            end
            values[#values + 1] = best
          end
        end
      end
      near(moth.tensor(values):view(1, 2, h, w), make(2, 7, 5, "[maxpool]\n" .. text)(x))
    end
    assert.equal("Step(maxpool, size 3, stride 2)",
      tostring(make(1, 5, 5, "[maxpool]\nsize=3\nstride=2").layers[1]))
  end)

  it("softmax has groups and a temperature", function()
    local x = moth.randn(2, 6, 1, 2)
    near(x:reshape(2, 12):softmax(2):view(2, 6, 1, 2), make(6, 1, 2, "[softmax]")(x))
    near((x:reshape(2, 3, 4) / 2):softmax(3):view(2, 6, 1, 2),
      make(6, 1, 2, "[softmax]\ngroups=3\ntemperature=2")(x))
  end)

  it("upsample has a stride of 2 and a factor of 1", function()
    local x = moth.randn(1, 2, 2, 3)
    near(x:repeat_interleave(2, 3):repeat_interleave(2, 4), make(2, 2, 3, "[upsample]")(x))
    near(x:repeat_interleave(3, 3):repeat_interleave(3, 4) * 0.5,
      make(2, 2, 3, "[upsample]\nstride=3\nscale=.5")(x))
    assert.equal("Step(upsample, stride 3)",
      tostring(make(2, 2, 3, "[upsample]\nstride=3").layers[1]))
  end)

  it("dropout drops half in training, and nothing in evaluation", function()
    local x = moth.ones(1, 1, 50, 50)
    for text, p in pairs {[""] = 0.5, ["probability=.9"] = 0.9, ["probability=0"] = 0} do
      local one = make(1, 50, 50, "[dropout]\n" .. text)
      assert.is_true(one(x):equal(x))
      local y = one:train()(x)
      assert.near(p, y:eq(0):float():mean():item(), 0.05)
      if p < 1 then assert.near(1 / (1 - p), y:max():item(), 1e-4) end
    end
    assert.is_true(make(1, 50, 50, "[dropout]\nprobability=1"):train()(x):eq(0):all():item())
    assert.equal("Step(dropout, p 0.25)",
      tostring(make(1, 5, 5, "[dropout]\nprobability=.25").layers[1]))
  end)

  it("route takes layers by number, or relative to it, and groups of channels", function()
    local x = moth.randn(1, 4, 2, 2)
    local twice = "[upsample]\nstride=1\nscale=2"
    near(moth.cat({x * 4, x * 2}, 2), make(4, 2, 2, twice, twice, "[route]\nlayers=-1, 0")(x))
    near(x * 2, make(4, 2, 2, twice, twice, "[route]\nlayers=-2")(x))
    near(x:narrow(2, 3, 2) * 4, make(4, 2, 2, twice, twice,
      "[route]\nlayers=1\ngroups=2\ngroup_id=1")(x))
    near(moth.cat({x:narrow(2, 1, 1) * 2, x:narrow(2, 1, 1) * 4}, 2), make(4, 2, 2, twice, twice,
      "[route]\nlayers=0,1\ngroups=4")(x))
  end)

  it("shortcut adds earlier results, then has an activation", function()
    local x = moth.randn(1, 2, 2, 2)
    local twice = "[upsample]\nstride=1\nscale=2"
    near(x * 6, make(2, 2, 2, twice, twice, "[shortcut]\nfrom=-2")(x))
    near(x * 10, make(2, 2, 2, twice, twice, "[shortcut]\nfrom=0,1")(x))
    near(F.relu(x * 6), make(2, 2, 2, twice, twice, "[shortcut]\nfrom=0\nactivation=relu")(x))
  end)

  it("yolo has raw results in training, of each mask", function()
    local x = moth.randn(2, 14, 3, 4)
    local cfg = "[yolo]\nclasses=2\nanchors=1,2, 3,4, 5,6\nmask=2,0"
    local one = make(14, 3, 4, cfg)
    assert.equal("Yolo(2 anchors, 2 classes)", tostring(one.layers[1]))
    assert.same({{5, 6}, {1, 2}}, one.layers[1].anchors:tolist())
    assert.same({2, 24, 7}, {unpack(one(x).shape)})
    local raw = one:train()(x)
    assert.equal(1, #raw)
    near(x:view(2, 2, 7, 3, 4):permute(1, 2, 4, 5, 3), raw[1])
    near(one:eval()(x), one.layers[1]:decode(raw[1]):reshape(2, 24, 7))
    assert.same({{1, 2}, {3, 4}}, make(12, 1, 1, "[yolo]\nclasses=1\nanchors=1,2,3,4").layers[1]
      .anchors:tolist())
    assert.equal(20, make(25, 1, 1, "[yolo]\nanchors=1,2").layers[1].classes)
  end)
end)

describe("a cfg", function()
  it("has three channels by default, and no earlier results", function()
    local one = darknet.load "[network]\nheight=2\nwidth=3\n[cost]\n"
    assert.equal(3, one.channels)
    assert.equal(2, one.height)
    assert.equal(3, one.width)
    assert.equal("Step(cost)", tostring(one.layers[1]))
    local x = moth.randn(1, 3, 2, 3)
    assert.is_true(one(x):equal(x))
    for _, shape in ipairs {{1, 3, 3, 3}, {1, 3, 2, 2}, {1, 2, 2, 3}, {3, 2, 3}} do
      assert.has_error(function() one(moth.zeros(shape)) end)
    end
  end)

  it("is refused at the bounds of each key", function()
    local function cfg(text) return net(4, 4, 4, text) end
    local int = " is no integer from %d to 1048576"
    for _, case in ipairs {
      {"[convolutional]\nfilters=0", "filters=0" .. int:format(1)},
      {"[convolutional]\nfilters=1.5", "filters=1.5" .. int:format(1)},
      {"[convolutional]\nfilters=1048577", "filters=1048577" .. int:format(1)},
      {"[convolutional]\nfilters=nan", "filters=nan is no integer"},
      {"[convolutional]\nfilters=inf", "filters=inf is no integer"},
      {"[convolutional]\nsize=0", "size=0" .. int:format(1)},
      {"[convolutional]\nstride=0", "stride=0" .. int:format(1)},
      {"[convolutional]\ndilation=0", "dilation=0" .. int:format(1)},
      {"[convolutional]\ngroups=0", "groups=0" .. int:format(1)},
      {"[convolutional]\npad=-1", "pad=-1" .. int:format(0)},
      {"[convolutional]\npadding=-1", "padding=-1" .. int:format(0)},
      {"[convolutional]\nfilters=4\ngroups=3",
       "4 channels and 4 filters are no multiples of groups=3"},
      {"[convolutional]\nfilters=3\ngroups=2",
       "4 channels and 3 filters are no multiples of groups=2"},
      {"[convolutional]\nsize=5", "the result has no elements: 0 x 0"},
      {"[maxpool]\nsize=5\npadding=0", "the result has no elements: 0 x 0"},
      {"[connected]\noutput=0", "output=0" .. int:format(1)},
      {"[upsample]\nstride=0", "stride=0" .. int:format(1)},
      {"[upsample]\nscale=x", "scale=x is no number"},
      {"[dropout]\nprobability=1.1", "probability=1.1 is outside of 0 to 1"},
      {"[dropout]\nprobability=-0.1", "probability=-0.1 is outside of 0 to 1"},
      {"[softmax]\ngroups=3", "64 numbers are no multiple of groups=3"},
      {"[softmax]\ngroups=0", "groups=0" .. int:format(1)},
      {"[route]\nlayers=0", "layers=0 is no earlier layer; there are 0"},
      {"[cost]\n[route]\nlayers=-2", "layers=-2 is no earlier layer; there are 1"},
      {"[cost]\n[route]\nlayers=1", "layers=1 is no earlier layer; there are 1"},
      {"[cost]\n[route]\nlayers=0.5", "layers=0.5 is no list of whole numbers"},
      {"[cost]\n[route]\nlayers=0\ngroups=2\ngroup_id=2", "group_id=2 of groups=2, of 4 channels"},
      {"[cost]\n[route]\nlayers=0\ngroups=3", "group_id=0 of groups=3, of 4 channels"},
      {"[cost]\n[maxpool]\nstride=2\n[route]\nlayers=0,1",
       "layers of 4 x 4 x 4 and 4 x 2 x 2 cannot be concatenated"},
      {"[cost]\n[shortcut]\nfrom=2", "from=2 is no earlier layer; there are 1"},
      {"[shortcut]", "from= is missing"},
      {"[yolo]\nanchors=1,x", "anchors=1,x is no list of numbers"},
      {"[yolo]\nanchors=1,1048577", "anchors=1,1048577 is no list of numbers"},
      {"[yolo]\nmask=-1\nanchors=1,2", "mask=-1, of 1 anchor"},
      {"[yolo]\nmask=1\nanchors=1,2,3", "mask=1, of 1 anchor"},
      {"[yolo]\nclasses=1", "4 channels come in; 0 anchors of 5 + 1 number need 0"},
      {"[yolo]\nclasses=0\nanchors=1,2", "classes=0" .. int:format(1)},
    } do
      refuses(cfg(case[1]), case[2])
    end
    for _, text in ipairs {"[convolutional]\nsize=4", "[maxpool]\nsize=4\npadding=0",
        "[dropout]\nprobability=1", "[cost]\n[route]\nlayers=0\ngroups=4\ngroup_id=3",
        "[softmax]\ngroups=64", "[convolutional]\nfilters=2\ngroups=2"} do
      darknet.load(cfg(text))
    end
    refuses("[net]\nwidth=4\nheight=0\n[cost]\n", "height=0" .. int:format(1))
    refuses("[net]\nwidth=4\nheight=4\nchannels=0\n[cost]\n", "channels=0" .. int:format(1))
    refuses("[net]\nheight=4\n[cost]\n", "width= and height= are needed")
    refuses("width=3\n[net]\n", "line 1 is neither [section] nor key=value: 'width=3'")
    refuses("[net]\nwidth=4\nheight=4\n=3\n", "line 4 is neither [section] nor key=value: '=3'")
    refuses("\n\n", "does not begin with [net]")
  end)

  it("has at most 10000 sections", function()
    local function cfg(n) return "[net]\nwidth=1\nheight=1\n" .. ("[cost]\n"):rep(n - 1) end
    assert.equal(10000, #darknet.parse(cfg(10000)))
    local fine, problem = pcall(darknet.parse, cfg(10001))
    assert.is_false(fine)
    assert.is_true(problem:find("more than 10000 sections", 1, true) ~= nil, problem)
  end)
end)

describe("darknet.boxes", function()
  it("has boxes above the threshold, of each class, the best first", function()
    -- centre, size, objectness, two classes
    local x = moth.tensor {{5, 5, 4, 2, 0.5, 1, 0.5}, {5, 5, 4, 2, 1, 0.9, 0.2},
                           {20, 5, 4, 2, 0.5, 0.5, 1}}
    local found = darknet.boxes(x, 0.25, 0.45)
    assert.same({1, 2}, found.labels:tolist())
    assert.is_true(moth.allclose(found.scores, moth.tensor {0.9, 0.5}))
    assert.same({{3, 4, 7, 6}, {18, 4, 22, 6}}, found.boxes:tolist())
    assert.equal(1, darknet.boxes(x, 0.5).scores:numel()) -- 0.5 is not above 0.5
    assert.equal(1, darknet.boxes(x).scores:numel())
    assert.equal(3, darknet.boxes(x, 0.25, 1).scores:numel())
    local fine, problem = pcall(darknet.boxes, moth.zeros(3, 5))
    assert.is_false(fine)
    assert.is_true(problem:find("(boxes, 5 + classes) is needed, got f32 (3, 5)", 1, true) ~= nil)
    assert.same({0, 4}, {unpack(darknet.boxes(moth.zeros(3, 6)).boxes.shape)})
  end)
end)
