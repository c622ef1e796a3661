-- Darknet's nets: a cfg becomes a module, weights are read and written in the file's order, errors
-- name file, section and counts.

local ffi = require "ffi"
local files = require "spec.support.files"
local moth = require "moth"

local darknet = moth.darknet

setup(files.setup)
teardown(files.teardown)

-- ---- cfgs ----

local function section(name, options)
  local lines, keys = {"[" .. name .. "]"}, {}
  for key in pairs(options or {}) do keys[#keys + 1] = key end
  table.sort(keys)
  for _, key in ipairs(keys) do lines[#lines + 1] = key .. "=" .. tostring(options[key]) end
  return table.concat(lines, "\n") .. "\n"
end

local function conv(filters, size, plain)
  return section("convolutional", {filters = filters, size = size, stride = 1, pad = 1,
    batch_normalize = plain and 0 or 1, activation = plain and "linear" or "leaky"})
end

local function net(width, height, channels, ...)
  return section("net", {width = width, height = height, channels = channels, batch = 1})
    .. table.concat({...}, "\n# a comment\n")
end

local ANCHORS = "10,14,  23,27,  37,58,  81,82,  135,169,  344,319"

local function yolo(mask)
  return section("yolo", {mask = mask, anchors = ANCHORS, classes = 80, num = 6, jitter = ".3",
    ignore_thresh = ".7"})
end

local half, same = section("maxpool", {size = 2, stride = 2}),
  section("maxpool", {size = 2, stride = 1})

local TINY = net(416, 416, 3, conv(16, 3), half, conv(32, 3), half, conv(64, 3), half, conv(128, 3),
  half, conv(256, 3), half, conv(512, 3), same, conv(1024, 3), conv(256, 1), conv(512, 3),
  conv(255, 1, true), yolo "3,4,5", section("route", {layers = "-4"}), conv(128, 1),
  section("upsample", {stride = 2}), section("route", {layers = "-1, 8"}), conv(256, 3),
  conv(255, 1, true), yolo "0,1,2")

-- ---- handmade weights: the numbers 1, 2, 3 ... ----

local function weights(name, n, head)
  local numbers = ffi.new("float[?]", n)
  for i = 0, n - 1 do numbers[i] = i + 1 end
  local start = head or "\0\0\0\0\2\0\0\0\5\0\0\0" .. ("\0"):rep(8)
  return files.write(name, start .. ffi.string(numbers, 4 * n))
end

local function range(first, last)
  local list = {}
  for i = first, last do list[#list + 1] = i end
  return list
end

local function refuses(code, text, ...)
  local ok, message = pcall(darknet.load, ...)
  assert.is_false(ok)
  assert.matches(text, message, 1, true)
  assert.equal(code, moth.errcode())
end

describe("yolov3-tiny", function()
  moth.manual_seed(3)
  local tiny = darknet.load(TINY)
  local path, images = files.path "tiny.weights", moth.rand(1, 3, 416, 416)

  it("is the net of its cfg, and its weight file has the known size", function()
    assert.equal(24, #tiny.layers)
    local heads = tiny(images)
    assert.same({1, 3, 13, 13, 85}, {unpack(heads[1].shape)})
    assert.same({1, 3, 26, 26, 85}, {unpack(heads[2].shape)})
    darknet.save(tiny, path)
    local file = io.open(path, "rb")
    assert.equal(35434956, file:seek "end") -- the size of the published yolov3-tiny.weights
    file:close()
  end)

  it("finds the same boxes after its weights were saved and loaded", function()
    local again = darknet.load(TINY, path)
    for name, x in tiny:state_dict():items() do
      assert.is_true(name:find "tracked" ~= nil or moth.equal(x, again:state_dict()[name]), name)
    end
    tiny.layers[16].conv.bias:detach():narrow(1, 5, 2):fill_(1)
    again.layers[16].conv.bias:detach():narrow(1, 5, 2):fill_(1)
    local found, other = tiny:detect(images, 0.4)[1], again:detect(images, {threshold = 0.4})[1]
    assert.is_true(#found.scores > 10)
    assert.same(found.boxes:tolist(), other.boxes:tolist())
    assert.same(found.labels:tolist(), other.labels:tolist())
    assert.is_true(found.scores:ge(0.4):all():item())
    local iou = moth.ops.box_iou(found.boxes, found.boxes)
    local alike = found.labels:unsqueeze(1):eq(found.labels:unsqueeze(2))
    assert.is_true((iou * alike):triu(1):le(0.4501):all():item()) -- after nms
    assert.is_true(tiny.training)
  end)

  it("has each layer in its earlier mode after detect", function()
    tiny:train()
    tiny.layers[1].bn:eval()
    tiny:detect(images)
    assert.is_true(tiny.training and tiny.layers[1].training and tiny.layers[3].bn.training)
    assert.is_false(tiny.layers[1].bn.training)
    tiny:train()
  end)

  it("checks the argument names of detect", function()
    for _, wrong in ipairs {
      { "'detect' has no argument 'treshold'; did you mean 'threshold'?",
        function() tiny:detect(images, {treshold = 0.001}) end },
      { "bad argument 'threshold' to 'detect' (", function() tiny:detect(images, "high") end },
      { "bad argument 'found' to 'darknet.boxes' ((boxes, 5 + classes) is needed, got f32 (7, 5)",
        function() darknet.boxes(moth.rand(7, 5)) end },
    } do
      assert.error_matches(wrong[2], wrong[1], 1, true)
    end
    assert.equal(0, #tiny:detect{images, threshold = 2}[1].scores)
    assert.is_true(#darknet.boxes(moth.ones(1, 6)).scores == 1)
  end)
end)

describe("a file of weights", function()
  it("has bias, scale, mean, variance, filters; weights of connected layers are second", function()
    local cfg = net(1, 1, 2, section("convolutional", {filters = 2, size = 1, batch_normalize = 1,
      activation = "relu"}), section("connected", {output = 3, batch_normalize = 1}),
      section("connected", {output = 1, activation = "linear"}))
    local one = darknet.load(cfg, weights("order.weights", 12 + 18 + 4))
    local state = one:state_dict()
    local first = 0
    for name in ([[0.bn.bias 0.bn.weight 0.bn.running_mean 0.bn.running_var 0.conv.weight
      1.bn.bias 1.linear.weight 1.bn.weight 1.bn.running_mean 1.bn.running_var
      2.linear.bias 2.linear.weight]]):gmatch "%S+" do
      local x = state["layers." .. name]
      assert.same(range(first + 1, first + x:numel()), x:flatten():tolist(), name)
      first = first + x:numel()
    end
    assert.equal(34, first)
    local saved = files.path "again.weights"
    one.seen = 2 ^ 33 + 7
    darknet.save(one, saved)
    assert.equal(2 ^ 33 + 7, darknet.load(cfg, saved).seen)
  end)

  it("of old versions counts images in four bytes", function()
    local cfg = net(1, 1, 1, section("connected", {output = 1}))
    local old = weights("old.weights", 2, "\0\0\0\0\1\0\0\0\0\0\0\0\9\0\0\0")
    local one = darknet.load(cfg, old)
    assert.equal(9, one.seen)
    assert.equal(2, one.layers[1].linear.weight:item())
  end)

  it("of a version above 1000 has transposed weights of connected layers", function()
    local cfg = net(1, 1, 3, section("connected", {output = 2}))
    local old = weights("turned.weights", 8, "\233\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0")
    assert.same({{3, 5, 7}, {4, 6, 8}}, darknet.load(cfg, old).layers[1].linear.weight:tolist())
  end)

  it("keeps an image count of any size", function()
    local cfg = net(1, 1, 1, section("connected", {output = 1}))
    local one = darknet.load(cfg)
    one.seen = 2LL ^ 60 + 3
    darknet.save(one, files.path "seen.weights")
    assert.equal(2LL ^ 60 + 3, darknet.load(cfg, files.path "seen.weights").seen)
  end)

  it("that is too short or too long raises an error with the layer and counts", function()
    local cfg = net(4, 4, 1, conv(2, 3), conv(1, 1, true)) -- 26 and 3 numbers
    refuses("E_FORMAT", "short.weights' ends within layer 1, [convolutional]: 1 of 2 numbers are "
      .. "left; the net needs 29, the file has 28", cfg, weights("short.weights", 28))
    refuses("E_FORMAT", "long.weights' has 30 numbers, but the net needs 29", cfg,
      weights("long.weights", 30))
    refuses("E_FORMAT", "' is broken: a value, 4 bytes at byte 8, would lie beyond its end at 9",
      cfg, files.write("head.weights", "\0\0\0\0\2\0\0\0\5"))
    refuses("E_IO", "'weights' to 'darknet.load' (cannot open", cfg, files.path "none.weights")
  end)
end)

describe("a cfg", function()
  local image = section("net", {width = 4, height = 4})

  it("is read fast, with any number of spaces, and raises if it is too long", function()
    local spaces = (" "):rep(200000)
    local began = os.clock()
    darknet.load(image .. spaces .. "\n" .. section("convolutional", {filters = 2}) .. "size"
      .. spaces .. "=" .. spaces .. "1" .. spaces .. "\n")
    assert.is_true(os.clock() - began < 2)
    refuses("E_FORMAT", "long.cfg' has more than 16777216 bytes",
      files.write("long.cfg", image .. ("#"):rep(2 ^ 24)))
  end)

  it("is read from a file too, and parsed into its sections", function()
    local path = files.write("a.cfg", "; of mine\r\n[net]\r\nwidth = 4 \r\nheight=6 # rows\r\n\r\n"
      .. "[dropout]\r\nprobability=.25\r\n")
    assert.same({{type = "net", options = {width = "4", height = "6"}, line = 2},
      {type = "dropout", options = {probability = ".25"}, line = 6}}, darknet.parse(path))
    assert.same({2, 3, 6, 4}, {unpack(darknet.load(path)(moth.rand(2, 3, 6, 4)).shape)})
  end)

  it("that is wrong raises an error with its section and line", function()
    local function bad(text, cfg, code) refuses(code or "E_FORMAT", text, cfg) end
    bad("sections [convolution] are unknown to Moth; did you mean 'convolutional'?",
      image .. "[convolution]\n", "E_UNSUPPORTED")
    bad("section 0, [convolutional], line 4: filters=1e9 is no integer from 1 to 1048576",
      image .. "[convolutional]\nfilters=1e9\n")
    bad("section 0, [convolutional], line 4: bad arguments to 'Darknet' (out of memory", image
      .. "[convolutional]\nfilters=1048576\nsize=65535\npadding=65535\n", "E_MEM")
    bad("filters=x is no integer", image .. "[convolutional]\nfilters=x\n")
    bad("the activation 'gleu' is unknown; did you mean 'gelu'?",
      image .. "[convolutional]\nactivation=gleu\n", "E_UNSUPPORTED")
    bad("the activation 'leeky' is unknown; did you mean 'leaky'?",
      image .. "[convolutional]\nactivation=leeky\n", "E_UNSUPPORTED")
    bad("the result has no elements: -3 x -3", image .. "[convolutional]\nsize=8\n")
    bad("layers=-1 is no earlier layer; there are 0", image .. "[route]\nlayers=-1\n")
    bad("layers= is missing", image .. "[route]\n")
    bad("3 channels come in; 1 anchor of 5 + 2 numbers need 7",
      image .. "[yolo]\nanchors=1,2\nclasses=2\n")
    bad("mask=3, of 1 anchor", image .. "[yolo]\nmask=3\nanchors=1,2\n")
    bad("line 4 is neither [section] nor key=value: 'what'", image .. "what\n")
    bad("does not begin with [net]", "[dropout]\n")
    bad("width= and height= are needed", "[net]\nwidth=4\n")
    bad("has no layers", image)
    bad("3 x 2 x 2 cannot be added to 3 x 1 x 1", image .. half .. half .. section("shortcut",
      {from = "-2"}), "E_UNSUPPORTED")
    refuses("E_IO", "none.cfg': No such file", files.path "none.cfg")
  end)
end)

describe("its layers", function()
  local function run(x, ...)
    local one = darknet.load(net(x:size(4), x:size(3), x:size(2), ...)):eval()
    return one(x), one
  end

  it("compute what Darknet's layers do", function()
    local x = moth.arange(9):float():view(1, 1, 3, 3)
    assert.same({{{{4, 5, 5}, {7, 8, 8}, {7, 8, 8}}}}, (run(x, same)):tolist())
    assert.same({{{{4, 5}, {7, 8}}}}, (run(x, half)):tolist())
    assert.same({{{{8}}}}, (run(x, section("maxpool", {size = 3, stride = 3, padding = 0})))
      :tolist())
    assert.same({{{{4}}}}, (run(x, section "avgpool")):tolist())
    assert.same({{{{2, 2}, {2, 2}}}}, (run(moth.ones(1, 1, 1, 1), section("upsample",
      {stride = 2, scale = 2}))):tolist())
    for _, scale in ipairs {0, 0.5, 1} do
      assert.same({{{{3 * scale}}}}, (run(moth.full({1, 1, 1, 1}, 3), section("upsample",
        {stride = 1, scale = scale}))):tolist())
    end
    local drop = section("dropout", {probability = 0.5})
    assert.same(x:tolist(), (run(x, drop)):tolist())
    assert.same((x * 3):tolist(), (run(x, drop, drop, section("shortcut", {from = "-2, 0"})))
      :tolist())
    assert.near(1, (run(x, section "softmax", section "cost")):sum():item(), 1e-6)
    local four = moth.arange(4):float():view(1, 4, 1, 1)
    assert.same({2, 3, 0, 1, 2, 3}, (run(four, drop, section("route", {layers = "0", groups = 2,
      group_id = 1}), section("route", {layers = "1,0"}))):flatten():tolist())
  end)

  it("place boxes by the formula of the head", function()
    local head = section("yolo", {anchors = "3,4, 5,6", mask = "1,0", classes = 1,
      scale_x_y = 1.2})
    local x = moth.randn(1, 12, 2, 3)
    local y = (run(x, head)):tolist()[1]
    local raw = x:view(2, 6, 2, 3):tolist()
    local function sigmoid(v) return 1 / (1 + math.exp(-v)) end
    for a, anchor in ipairs {{5, 6}, {3, 4}} do
      for i = 1, 2 do
        for j = 1, 3 do
          local got, t = y[((a - 1) * 2 + i - 1) * 3 + j], {}
          for k = 1, 6 do t[k] = raw[a][k][i][j] end
          local wanted = {sigmoid(t[1]) * 1.2 - 0.1 + j - 1, sigmoid(t[2]) * 1.2 - 0.1 + i - 1,
            math.exp(t[3]) * anchor[1], math.exp(t[4]) * anchor[2], sigmoid(t[5]), sigmoid(t[6])}
          for k = 1, 6 do assert.near(wanted[k], got[k], 1e-4) end
        end
      end
    end
    local row = {anchors = "3,4, 5,6", mask = "1,0", classes = 1}
    local plain = run(x, section("yolo", row))
    row.scale_x_y = 1
    assert.is_true(moth.equal(plain, (run(x, section("yolo", row)))))
  end)

  it("name the called function in errors", function()
    local text = "[net]\nwidth=8\nheight=8\n[circle]\n"
    for _ = 1, 2 do
      for name, make in pairs { ["darknet.load"] = darknet.load, Darknet = darknet.Darknet } do
        assert.has_error_like(function() make(text) end, "bad argument 'cfg' to '" .. name .. "'")
      end
    end
  end)

  it("name what they need", function()
    local _, one = run(moth.rand(1, 2, 4, 4), conv(2, 3))
    assert.error_matches(function() one(moth.ones(1, 3, 4, 4)) end,
      "bad argument 'input' to 'Darknet' ((N, 2, 4, 4) is needed, got f32 (1, 3, 4, 4))", 1, true)
    assert.error_matches(function() one:detect(moth.ones(1, 2, 4, 4)) end, "no [yolo] section", 1,
      true)
    assert.error_matches(function() darknet.save(moth.nn.Linear(1, 1), "x") end,
      "a net of darknet.load is needed", 1, true)
  end)
end)

it("warn of a misspelt key, and not of keys that only training reads", function()
  local kept, told = moth.warn, {}
  moth.warn = function(text) told[#told + 1] = text end
  finally(function() moth.warn = kept end)
  darknet.load(TINY)
  assert.same({}, told)
  darknet.load "[net]\nwidth=8\nheight=8\nbatch=4\nangle=0\n[convolutional]\nfliters=2\n"
  assert.same({ "the cfg section 0, [convolutional], line 6: the key 'fliters' is not read; "
    .. "did you mean 'filters'?" }, told)
end)
