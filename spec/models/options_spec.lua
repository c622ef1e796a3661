-- Options of the models: what each changes, which are refused, and initial values.

local moth = require "moth"
local fails = require("spec.support.refusals").fails

local nn, models = moth.nn, moth.models

local function shape(x) return table.concat({unpack(x.shape)}, " ") end

local function close(want, got)
  assert.is_true(got:allclose(want, {rtol = 1e-4, atol = 1e-5}))
end

describe("the names of models", function()
  it("are chosen by patterns to include and to leave out", function()
    assert.same({"resnet101", "resnet18", "resnet50"},
      models.list_models({"resnet1*", "resnet50"}, "*152"))
    assert.same({"resnet18"}, models.list_models "resnet18")
    assert.same({"audio_resnet18"}, models.list_models("*resnet18", {exclude = {"resnet*"}}))
    assert.same({}, models.list_models "resnet")
    assert.is_true(#models.list_models() == #models.list_models "*")
    fails("bad argument 'include' to 'models.list_models' (a text or a list is needed, got 5",
      models.list_models, 5)
    fails("bad argument 'exclude' to 'models.list_models' (a text or a list is needed, got true",
      models.list_models, {exclude = {"vgg11", true}})
    fails("there is no model 'resnet19'; did you mean 'resnet18'", models.get_model, "resnet19")
    assert.equal(models.resnet18, models.get_model_builder "resnet18")
  end)

  it("that torchvision downloads are refused", function()
    for _, name in ipairs {"DEFAULT", "IMAGENET1K_V1"} do
      fails("'" .. name .. "' names a file that torchvision downloads", models.resnet18,
        {weights = name})
    end
    fails("bad argument 'weights' to 'models.resnet18' (a file or a state dict is needed, got 5",
      models.resnet18, {weights = 5})
    fails("the state dict has no parameter of this model", models.resnet18, {weights = {}})
    fails("conv1.weight is 5", models.resnet18, {weights = {["conv1.weight"] = 5,
      ["bn1.weight"] = moth.ones(64)}})
  end)
end)

describe("a ResNet", function()
  local function tiny(block, options)
    return models.ResNet(models[block], {1, 1, 1, 1}, options)
  end

  it("starts with zeros in the last norm of each block, if requested", function()
    for block, last in pairs {BasicBlock = "bn2", Bottleneck = "bn3"} do
      local plain = tiny(block, {num_classes = 2})
      local zero = tiny(block, {num_classes = 2, zero_init_residual = true})
      assert.equal(64 * models[block].expansion, plain.layer1[1][last].weight:sum():item())
      assert.equal(0, zero.layer1[1][last].weight:abs():sum():item())
      assert.equal(0, zero.layer4[1][last].weight:abs():sum():item())
      assert.equal(64, zero.layer1[1].bn1.weight:sum():item())
    end
  end)

  it("has its groups, its width and another norm", function()
    local net = tiny("Bottleneck", {groups = 2, width_per_group = 32, num_classes = 3})
    assert.equal("64 32 3 3", shape(net.layer1[1].conv2.weight))
    assert.equal("512 256 3 3", shape(net.layer4[1].conv2.weight))
    assert.equal("3 2048", shape(net.fc.weight))
    local other = tiny("BasicBlock", {norm_layer = function(n) return nn.GroupNorm(2, n) end})
    assert.equal("GroupNorm", nn.typename(other.bn1))
    assert.equal("GroupNorm", nn.typename(other.layer2[1].bn2))
    assert.equal("1000 512", shape(other.fc.weight))
  end)

  it("refuses blocks, layers and dilations of another form", function()
    fails("bad argument 'block' to 'ResNet' (BasicBlock, Bottleneck or a class with a field",
      models.ResNet, nn.Linear, {1, 1, 1, 1})
    fails("bad argument 'block' to 'ResNet'", models.ResNet, 5, {1, 1, 1, 1})
    fails("bad argument 'layers' to 'ResNet' (4 numbers are needed, got {1, 1, 1}", models.ResNet,
      models.BasicBlock, {1, 1, 1})
    for _, wrong in ipairs {{true}, {true, true, true, true}, true} do
      fails("bad argument 'replace_stride_with_dilation' to 'ResNet' (a list of 3 booleans",
        models.ResNet, models.BasicBlock, {1, 1, 1, 1}, {replace_stride_with_dilation = wrong})
    end
  end)
end)

describe("a ResNet of BasicBlocks", function()
  local ONLY = "(only a Bottleneck supports this; use resnet50 or a larger model)"
  for name, value in pairs {groups = 2, width_per_group = 32,
                            replace_stride_with_dilation = {false, true, false}} do
    it("refuses " .. name, function()
      local options = {[name] = value}
      fails(("bad argument '%s' to 'models.resnet18' %s"):format(name, ONLY), models.resnet18,
        options)
      fails(("bad argument '%s' to 'models.resnet34' %s"):format(name, ONLY), models.resnet34,
        options)
    end)
  end

  it("accepts a dilation that no second convolution has, as in torchvision", function()
    local function net(layers, dilate)
      return models.ResNet(models.BasicBlock, layers, {replace_stride_with_dilation = dilate})
    end
    local text = "bad argument 'replace_stride_with_dilation' to 'ResNet' " .. ONLY
    assert.same({1, 1}, net({1, 1, 1, 1}, {false, false, true}).layer4[1].conv1.stride)
    assert.same({2, 2}, net({2, 2, 2, 2}, {false, false, false}).layer4[1].conv1.stride)
    fails(text, net, {1, 1, 1, 2}, {false, false, true})
    fails(text, net, {1, 1, 1, 1}, {false, true, false})
    fails(text, net, {1, 1, 1, 1}, {true, false, false})
  end)
end)

describe("a model's sizes are refused:", function()
  it("a list of blocks that is none", function()
    fails("bad argument 'inverted_residual_setting' to 'EfficientNet' (a list of lists is needed",
      models.EfficientNet, {5}, 0.2)
    fails("bad argument 'inverted_residual_setting' to 'MobileNetV3' (a list of lists is needed",
      models.MobileNetV3, {5}, 10)
  end)

  it("an image that patches do not fill", function()
    fails("bad argument 'image_size' to 'VisionTransformer' (a multiple of patch_size, 16, is "
      .. "needed, got 40", models.VisionTransformer, {image_size = 40, patch_size = 16,
      num_layers = 1, num_heads = 1, hidden_dim = 4, mlp_dim = 4})
  end)

  it("an odd number of channels", function()
    fails("bad argument 'base_channels' to 'UNet' (an even number is needed, got 3", models.UNet,
      {base_channels = 3})
    fails("'base_channels' to 'UNet'", models.UNet, {base_channels = 1})
  end)

  it("heads that do not divide the features", function()
    fails("bad argument 'n_head' to 'models.gpt2' (6 features cannot be divided into 4 heads",
      models.gpt2, {vocab_size = 5, n_embd = 6, n_head = 4, n_layer = 1})
    fails("bad argument 'num_attention_heads' to 'models.bert_base' (6 features cannot be divided "
      .. "into 4 heads", models.bert_base, {vocab_size = 5, hidden_size = 6,
      num_attention_heads = 4, num_hidden_layers = 1})
  end)
end)

describe("a UNet", function()
  it("upsamples by interpolation or by transposed convolutions, for any size", function()
    for _, bilinear in ipairs {false, true} do
      local net = models.unet {in_channels = 1, base_channels = 2, bilinear = bilinear}:eval()
      assert.equal("1 2 17 22", shape(net(moth.randn(1, 1, 17, 22))))
      assert.equal(bilinear and "Upsample" or "ConvTranspose2d", nn.typename(net.up1.up))
      local factor = bilinear and 2 or 1
      assert.equal(("%d 16 3 3"):format(32 / factor),
        shape(net.down4.maxpool_conv[2].double_conv[4].weight):gsub("^(%d+) %d+", "%1 16"))
      -- the parts by hand
      local x = moth.randn(1, 1, 16, 16)
      local x1 = net.inc(x)
      local x2 = net.down1(x1)
      local x3 = net.down2(x2)
      local x4 = net.down3(x3)
      local y = net.down4(x4)
      for i, skip in ipairs {x4, x3, x2, x1} do
        local up = net["up" .. i]
        y = up.conv(moth.cat({skip, up.up(y)}, 2))
      end
      close(net.outc(y), net(x))
    end
  end)

  it("pads the smaller side: the larger part at the end", function()
    local net = models.unet {in_channels = 1, base_channels = 2}:eval()
    local x, skip = moth.randn(1, 4, 2, 2), moth.randn(1, 2, 7, 5)
    local up = net.up4
    local wide = nn.functional.pad(up.up(x), {0, 1, 1, 2})
    close(up.conv(moth.cat({skip, wide}, 2)), up(x, skip))
  end)

  it("has other channels between the convolutions if requested", function()
    local block = models.DoubleConv(3, 5, 7)
    assert.equal("7 3 3 3", shape(block.double_conv[1].weight))
    assert.equal("5 7 3 3", shape(block.double_conv[4].weight))
    assert.equal("5 3 3 3", shape(models.DoubleConv(3, 5).double_conv[1].weight))
  end)
end)

describe("a VGG", function()
  it("classifies the pooled features of any module", function()
    local net = nn.utils.skip_init(models.VGG, nn.Conv2d(3, 512, 1), 2):eval()
    assert.equal("2 4096", shape(net.classifier[7].weight))
    net.classifier = nn.Linear(512 * 7 * 7, 2)
    nn.init.normal_(net.features.weight)
    nn.init.zeros_(net.features.bias)
    local x = moth.randn(1, 3, 9, 8)
    close(net.classifier(net.avgpool(net.features(x)):flatten(2)), net(x))
  end)
end)

describe("BERT", function()
  local function tiny(options)
    local all = {vocab_size = 7, hidden_size = 4, num_hidden_layers = 1, num_attention_heads = 2,
      max_position_embeddings = 5}
    for name, value in pairs(options or {}) do all[name] = value end
    return models.bert_base(all):eval()
  end

  it("returns features, and the pooler's unless it is left out", function()
    local ids = moth.tensor {{1LL, 2LL, 3LL}}
    local x, pooled = tiny()(ids)
    assert.equal("1 3 4", shape(x))
    assert.equal("1 4", shape(pooled))
    local y, none = tiny({add_pooling_layer = false})(ids)
    assert.equal("1 3 4", shape(y))
    assert.is_nil(none)
    assert.equal(16, tiny().encoder.layer[1].intermediate.dense.out_features)
  end)

  it("ignores tokens where the mask is 0 or false, and counts types and positions from 1",
    function()
      local net = tiny()
      local ids = moth.tensor {{1LL, 2LL, 3LL}}
      local a = net {ids, attention_mask = moth.tensor {{1, 1, 0}}}
      local b = net {moth.tensor {{1LL, 2LL, 5LL}},
        attention_mask = moth.tensor {{true, true, false}}}
      close(a[{{}, {1, 2}}], b[{{}, {1, 2}}])
      close((net(ids)), (net {ids, token_type_ids = moth.tensor {{1LL, 1LL, 1LL}},
        position_ids = moth.tensor {1LL, 2LL, 3LL}}))
      local x = net(ids)
      for _, other in ipairs {{token_type_ids = moth.tensor {{1LL, 2LL, 1LL}}},
                              {position_ids = moth.tensor {1LL, 3LL, 2LL}}} do
        local y = net(ids, other)
        assert.is_false(x:allclose(y))
      end
    end)

  it("raises for a mask, types or positions of other sizes than the ids", function()
    local net, ids = tiny(), moth.ones(2, 4, {dtype = moth.int64})
    local text = "bad argument '%s' to 'BertModel' ((2, 4) is needed, got i64 (%s))"
    for _, name in ipairs {"attention_mask", "token_type_ids", "position_ids"} do
      for _, sizes in ipairs {{2, 3}, {4, 2}, {3, 4}, {5}, {2}, {1, 2, 4}, {}} do
        fails(text:format(name, table.concat(sizes, ", ")), net, ids,
          {[name] = moth.ones(sizes, {dtype = moth.int64})})
      end
      local wanted = net(ids)
      for _, sizes in ipairs {{1, 4}, {4}} do
        local given = {[name] = moth.ones(sizes, {dtype = moth.int64})}
        if name == "attention_mask" then
          fails(text:format(name, table.concat(sizes, ", ")), net, ids, given)
        else
          if name == "position_ids" then given[name]:copy_(moth.range(1, 4)) end
          close(wanted, (net(ids, given)))
        end
      end
    end
  end)

  it("raises for more positions than it has, and for ids of one dimension", function()
    local net = tiny()
    assert.equal("1 5 4", shape((net(moth.ones(1, 5, {dtype = moth.int64})))))
    fails("at most 5 positions are possible, got 6", net, moth.ones(1, 6, {dtype = moth.int64}))
    fails("bad argument 'input_ids' to 'BertModel' ((N, L) is needed, got i64 (3)", net,
      moth.tensor {1LL, 2LL, 3LL})
  end)
end)

describe("GPT-2", function()
  it("prints its linear layers, and restores the mode after an error in generate", function()
    local net = models.gpt2 {vocab_size = 5, n_embd = 4, n_head = 2, n_layer = 1, n_positions = 6}
    assert.is_truthy(tostring(net):find("Conv1D(nf=12, nx=4)", 1, true))
    net:train()
    net.transformer.h[1]:eval()
    local ids = moth.tensor {{1LL, 2LL}}
    assert.equal("1 6", shape(net:generate {ids, max_new_tokens = 4}))
    assert.is_true(net.training)
    assert.is_false(net.transformer.h[1].training)
    fails("2 tokens and 5 new ones are more than 6 positions", net.generate, net,
      {ids, max_new_tokens = 5})
    net.transformer.ln_f.forward = function() error "mine" end
    fails("mine", net.generate, net, {ids, max_new_tokens = 2})
    assert.is_true(net.training)
    assert.is_false(net.transformer.h[1].training)
  end)
end)

describe("an extractor of features", function()
  local extraction = models.feature_extraction
  it("refuses what is no module, and names that are none", function()
    local net = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    fails("bad argument", extraction.create_feature_extractor, 5, {"0"})
    fails("bad argument", extraction.get_graph_node_names, 5)
    fails("Sequential has no module '7'", extraction.create_feature_extractor, net, {"7"})
    fails("the result of '0' needs a name, got 5", extraction.create_feature_extractor, net,
      {["0"] = 5})
    fails("the name of at least one module is needed", extraction.create_feature_extractor, net,
      {})
    local f = extraction.create_feature_extractor(net, {["0"] = "a", ["1"] = "b"})
    local y = f(moth.ones(1, 2))
    assert.is_true(y.a:relu():equal(y.b))
  end)

  it("raises if a module did not run", function()
    local Net = nn.class("Net", nn.Module)
    function Net:init() self.used, self.unused = nn.Linear(2, 2), nn.Linear(2, 2) end
    function Net:forward(x) return (self.used(x)) end
    local f = extraction.create_feature_extractor(Net(), {"used", "unused"})
    fails("unused", f, moth.ones(1, 2))
  end)
end)

describe("a VisionTransformer", function()
  it("names the pictures it needs, by height, width and dimensions", function()
    local net = models.VisionTransformer{image_size = 32, patch_size = 16, num_layers = 1,
      num_heads = 2, hidden_dim = 8, mlp_dim = 8}:eval()
    assert.equal("2 1000", shape(net(moth.zeros(2, 3, 32, 32))))
    for _, sizes in ipairs {{1, 3, 32, 48}, {1, 3, 48, 32}, {3, 32, 32}, {1, 1, 3, 32, 32}} do
      fails(("bad argument 'input' to 'VisionTransformer' ((N, 3, 32, 32) is needed, got f32 (%s)")
        :format(table.concat(sizes, ", ")), net, moth.zeros(unpack(sizes)))
    end
  end)
end)

-- The defaults of transformers' GPT2Config and BertConfig, by the names of their arguments.
describe("a model's configuration", function()
  local bind = require "moth.binding.bind"
  local GPT2 = {vocab_size = "50257", n_positions = "1024", n_embd = "768", n_layer = "12",
    n_head = "12", n_inner = "none", resid_pdrop = "0.1", embd_pdrop = "0.1", attn_pdrop = "0.1",
    layer_norm_epsilon = "1e-05"}
  local BERT = {vocab_size = "30522", hidden_size = "768", num_hidden_layers = "12",
    num_attention_heads = "12", intermediate_size = "none", hidden_dropout_prob = "0.1",
    attention_probs_dropout_prob = "0.1", max_position_embeddings = "512",
    type_vocab_size = "2", layer_norm_eps = "1e-12", add_pooling_layer = "true"}

  for name, want in pairs {GPT2Model = GPT2, GPT2LMHeadModel = GPT2, BertModel = BERT} do
    it("has transformers' defaults in its help: " .. name, function()
      local got = {}
      for _, arg in ipairs(bind.signature(models[name].signature).args) do
        got[arg.name] = tostring(arg.fallback)
      end
      assert.same(want, got)
    end)
  end

  it("has these sizes if none are given", function()
    local gpt2 = models.GPT2Model {n_embd = 2, n_layer = 1, n_head = 1}
    assert.equal("50257 2", shape(gpt2.wte.weight))
    assert.equal("1024 2", shape(gpt2.wpe.weight))
    assert.equal("2 8", shape(gpt2.h[1].mlp.c_fc.weight))
    local bert = models.BertModel {hidden_size = 2, num_hidden_layers = 1, num_attention_heads = 1}
    assert.equal("30522 2", shape(bert.embeddings.word_embeddings.weight))
    assert.equal("512 2", shape(bert.embeddings.position_embeddings.weight))
    assert.equal("2 2", shape(bert.embeddings.token_type_embeddings.weight))
  end)
end)
