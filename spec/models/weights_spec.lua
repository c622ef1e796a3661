-- moth.models: loading weights of other programs and of other heads, initial values, features by
-- name, replaced heads, and generation.

local files = require "spec.support.files"
local moth = require "moth"
local nn, models = moth.nn, moth.models
local extraction = models.feature_extraction
local skip = require("moth.nn.initialization").skip

setup(files.setup)
teardown(files.teardown)
after_each(function() collectgarbage() collectgarbage() end)

local function save(name, dict)
  local path = files.path(name .. ".safetensors")
  moth.save(dict, path)
  return path
end

local function plain(dict, rename)
  local copy = {}
  for name, x in dict:items() do copy[rename and rename(name) or name] = x end
  return copy
end

local function equal(a, b) assert.is_true(moth.equal(a, b)) end

-- Small models of the files' kinds.
local BERT = {vocab_size = 20, hidden_size = 24, num_hidden_layers = 1, num_attention_heads = 2,
              max_position_embeddings = 16}
local GPT2 = {vocab_size = 20, n_positions = 16, n_embd = 24, n_layer = 2, n_head = 2}
local VIT = {num_classes = 5, image_size = 32}
local tiny_vit = models.VisionTransformer

describe("weights", function()
  local net, path
  setup(function()
    net = models.resnet18 {num_classes = 5}
    path = save("resnet18", net:state_dict())
  end)

  it("load from a file or a state dict, with the file's number of classes", function()
    for _, weights in ipairs {path, net:state_dict(), plain(net:state_dict())} do
      local other = models.resnet18 {weights = weights}
      assert.equal("(5, 512)", tostring(other.fc.weight.shape))
      for name, x in net:state_dict():items() do equal(x, other:state_dict()[name]) end
      assert.is_true(other.training and other.fc.weight.requires_grad)
    end
  end)

  it("do not change the file or the state dict when the model is trained", function()
    local before = net.fc.bias:clone()
    for _, weights in ipairs {path, net:state_dict()} do
      local other = models.resnet18 {weights = weights}
      moth.no_grad(function() other.fc.bias:add_(1) end)
      equal(before, net.fc.bias)
      equal(before, moth.load(path)["fc.bias"])
    end
  end)

  it("load from a checkpoint, from DataParallel, and without counters of batches", function()
    local dict = plain(net:state_dict(), function(name) return "module." .. name end)
    equal(net.fc.weight, models.resnet18 {weights = save("parallel", dict)}.fc.weight)
    for _, key in ipairs {"state_dict", "model"} do
      local inside = save("inside", {epoch = 3, [key] = net:state_dict()})
      equal(net.fc.weight, models.resnet18 {weights = inside}.fc.weight)
    end
    dict = plain(net:state_dict())
    for name in pairs(dict) do
      if name:find "num_batches_tracked$" then dict[name] = nil end
    end
    local other = models.resnet18 {weights = save("old", dict)}
    equal(net.layer4[1].bn1.weight, other.layer4[1].bn1.weight)
    assert.equal(0, tonumber(other.bn1.num_batches_tracked:item()))
  end)

  it("of half precision become float32", function()
    local dict = {}
    for name, x in net:state_dict():items() do
      dict[name] = x.dtype == moth.float32 and x:half() or x
    end
    local other = models.resnet18 {weights = save("half", dict)}
    assert.equal(moth.float32, other.conv1.weight.dtype)
    equal(net.conv1.weight:half():float(), other.conv1.weight)
  end)

  it("of another head raise, and name the parameters that differ", function()
    local ok, message = pcall(models.resnet18, {weights = path, num_classes = 3})
    assert.is_false(ok)
    for _, text in ipairs {"bad argument 'weights' to 'models.resnet18'", path,
                           "fc.weight is (5, 512) and the model's is (3, 512)",
                           "fc.bias is (5) and the model's is (3)", "strict = false"} do
      assert.is_truthy(message:find(text, 1, true), message)
    end
  end)

  it("of another head load with strict = false; the head has initial values", function()
    moth.manual_seed(3)
    local other = models.resnet18 {weights = path, num_classes = 3, strict = false}
    equal(net.layer4[2].conv2.weight, other.layer4[2].conv2.weight)
    assert.equal("(3, 512)", tostring(other.fc.weight.shape))
    local bound = 1 / math.sqrt(512)
    local most = other.fc.weight:abs():max():item()
    assert.is_true(most <= bound and most > 0.99 * bound)
  end)

  it("that lack parameters, have others or are of another model raise", function()
    local dict = plain(net:state_dict())
    dict["layer1.0.conv1.weight"], dict["layer9.weight"] = nil, moth.ones(2)
    local ok, message = pcall(models.resnet18, {weights = dict})
    assert.is_false(ok)
    assert.is_truthy(message:find("missing: layer1.0.conv1.weight", 1, true), message)
    assert.is_truthy(message:find("unexpected: layer9.weight", 1, true), message)
    ok, message = pcall(models.mobilenet_v3_small, {weights = {bias = moth.ones(3)},
      strict = false})
    assert.is_false(ok)
    assert.is_truthy(message:find("has no parameter of this model", 1, true), message)
    ok, message = pcall(models.resnet18, {weights = 5})
    assert.is_false(ok)
    assert.is_truthy(message:find("a file or a state dict is needed", 1, true), message)
    ok, message = pcall(models.resnet18, {weights = files.path "none.safetensors"})
    assert.is_false(ok)
    assert.is_truthy(message:find("none.safetensors", 1, true), message)
  end)

  it("warn when parameters outside the head keep their initial values", function()
    local dict, kept, warnings = plain(net:state_dict()), moth.warn, {}
    dict["layer1.0.conv1.weight"], dict["fc.bias"] = nil, nil
    moth.warn = function(text) warnings[#warnings + 1] = text end
    local ok, other = pcall(models.resnet18, {weights = dict, strict = false})
    moth.warn = kept
    assert.is_true(ok, other)
    assert.equal(1, #warnings)
    assert.is_truthy(warnings[1]:find("layer1.0.conv1.weight", 1, true), warnings[1])
    assert.is_nil(warnings[1]:find("fc.bias", 1, true))
    equal(net.fc.weight, other.fc.weight)
  end)
end)

describe("files of other programs", function()
  it("of old versions of torchvision name a ViT's layers linear_1 and linear_2", function()
    local net = skip(models.vit_b_32, VIT)
    local dict = plain(net:state_dict(), function(name)
      return (name:gsub("mlp%.0%.", "mlp.linear_1."):gsub("mlp%.3%.", "mlp.linear_2."))
    end)
    assert.is_truthy(dict["encoder.layers.encoder_layer_0.mlp.linear_1.weight"])
    local other = models.vit_b_32 {weights = dict}
    assert.equal(32, other.image_size)
    assert.equal(5, other.heads.head.out_features)
  end)

  it("have GPT-2's names without `transformer.`, its masks, and no last layer", function()
    local net, dict = models.gpt2(GPT2), {}
    for name, x in net:state_dict():items() do
      if name ~= "lm_head.weight" then dict[name:gsub("^transformer%.", "")] = x end
    end
    dict["h.0.attn.bias"], dict["h.1.attn.masked_bias"] = moth.ones(1, 1, 16, 16), moth.ones(1)
    local other = models.gpt2 {weights = save("gpt2", dict), n_embd = 24, n_layer = 2, n_head = 2}
    equal(net.transformer.h[2].attn.c_attn.weight, other.transformer.h[2].attn.c_attn.weight)
    assert.equal(other.transformer.wte.weight, other.lm_head.weight) -- one parameter
    assert.equal(20, other.config.vocab_size)
    assert.equal(#net:parameters(), #other:parameters())
  end)

  it("have BERT's names with `bert.`, a head, gamma and beta", function()
    local net, dict = models.bert_base(BERT), {}
    for name, x in net:state_dict():items() do
      dict["bert." .. name:gsub("LayerNorm%.weight$", "LayerNorm.gamma")
        :gsub("LayerNorm%.bias$", "LayerNorm.beta")] = x
    end
    dict["cls.predictions.bias"] = moth.ones(20)
    dict["bert.embeddings.position_ids"] = moth.arange(16):view(1, 16)
    local other = models.bert_base {weights = save("bert", dict), hidden_size = 24,
      num_hidden_layers = 1, num_attention_heads = 2}
    equal(net.pooler.dense.weight, other.pooler.dense.weight)
    equal(net.embeddings.LayerNorm.weight, other.embeddings.LayerNorm.weight)
    dict["bert.pooler.dense.weight"], dict["bert.pooler.dense.bias"] = nil, nil
    other = models.bert_base {weights = dict, hidden_size = 24, num_hidden_layers = 1,
      num_attention_heads = 2}
    assert.is_nil(other.pooler)
  end)

  it("for pictures fit an audio net: the first convolution is summed", function()
    local net = models.resnet18 {num_classes = 5}:eval()
    local other = models.audio_resnet18 {weights = net:state_dict()}:eval()
    local x = moth.randn(2, 1, 40, 33)
    local y, wanted = other(x), net(x:expand(-1, 3, -1, -1))
    assert.is_true(moth.allclose(y, wanted, 1e-4, 1e-4))
    assert.is_true(moth.allclose(other(x:squeeze(2)), y))
  end)
end)

describe("initial values", function()
  local function deviation(x) return x:std():item() end
  local function near(got, wanted)
    assert.is_true(math.abs(got - wanted) < 0.05 * wanted, got .. ", not " .. wanted)
  end

  it("are torchvision's", function()
    local net = models.resnet18 {num_classes = 10}
    near(deviation(net.layer4[2].conv2.weight), math.sqrt(2 / (512 * 9)))
    near(net.fc.weight:abs():max():item(), 1 / math.sqrt(512))
    equal(moth.ones(64), net.bn1.weight)
    net = models.resnet18 {num_classes = 10, zero_init_residual = true}
    equal(moth.zeros(64), net.layer1[1].bn2.weight)
    equal(moth.ones(64), net.layer1[1].bn1.weight)
    net = models.mobilenet_v3_small {num_classes = 10}
    near(deviation(net.classifier[1].weight), 0.01)
    assert.equal(0, net.classifier[1].bias:abs():max():item())
    net = models.efficientnet_b0 {num_classes = 10}
    near(net.classifier[2].weight:abs():max():item(), 1 / math.sqrt(10))
    net = models.VisionTransformer(32, 16, 1, 4, 64, 128, {num_classes = 10})
    assert.equal(0, net.heads.head.weight:abs():max():item())
    near(deviation(net.encoder.pos_embedding), 0.02)
  end)

  it("are transformers'", function()
    local net = models.gpt2(GPT2)
    near(deviation(net.transformer.h[1].attn.c_attn.weight), 0.02)
    near(deviation(net.transformer.h[1].mlp.c_proj.weight), 0.02 / math.sqrt(4))
    assert.equal(0, net.transformer.h[1].attn.c_attn.bias:abs():max():item())
    net = models.bert_base(BERT)
    near(deviation(net.encoder.layer[1].intermediate.dense.weight), 0.02)
    equal(moth.zeros(24), net.embeddings.word_embeddings.weight[1]) -- padding
  end)
end)

describe("create_feature_extractor", function()
  local net, x
  setup(function()
    net, x = models.resnet18 {num_classes = 5}:eval(), moth.randn(1, 3, 64, 64)
  end)

  it("returns the results of inner modules under their names or other names", function()
    local y = extraction.create_feature_extractor(net, {"layer2", layer1 = "low"})(x)
    local low = net.layer1(net.maxpool(net.relu(net.bn1(net.conv1(x)))))
    assert.is_true(moth.allclose(low, y.low))
    assert.is_true(moth.allclose(net.layer2(low), y.layer2))
    y = extraction.create_feature_extractor(net, {"layer1.0.bn2", "fc"})(x)
    assert.is_true(moth.allclose(net(x), y.fc))
    assert.is_true(y["layer1.0.bn2"]:min():item() < 0) -- not changed by the addition after it
  end)

  it("stops after the last of them, and leaves no hook", function()
    local calls = 0
    local handle = net.layer4:register_forward_hook(function() calls = calls + 1 end)
    local f = extraction.create_feature_extractor(net, {"layer2"})
    f(x)
    assert.equal(0, calls)
    net(x)
    assert.equal(1, calls)
    handle:remove()
    assert.has_error(function() f(moth.ones(2)) end)
    assert.is_true(moth.allclose(net(x), net(x)))
  end)

  it("gives the first result of a module that is called twice", function()
    local y = extraction.create_feature_extractor(net, {"layer1.0.relu", "layer1.0.conv2"})(x)
    local start = net.maxpool(net.relu(net.bn1(net.conv1(x))))
    local block = net.layer1[1]
    assert.is_true(moth.allclose(block.relu(block.bn1(block.conv1(start))), y["layer1.0.relu"]))
  end)

  it("trains: gradients reach the parameters before the feature", function()
    local own = models.resnet18 {num_classes = 5}
    extraction.create_feature_extractor(own, {"layer2"})(x).layer2:sum():backward()
    assert.is_truthy(own.conv1.weight.grad)
    assert.is_nil(own.layer3[1].conv1.weight.grad)
  end)

  it("lists the names, and raises for others", function()
    local names = extraction.get_graph_node_names(net)
    assert.equal("conv1", names[1])
    assert.equal("fc", names[#names])
    local ok, message = pcall(extraction.create_feature_extractor, net, {"layer5"})
    assert.is_false(ok)
    assert.is_truthy(message:find("no module 'layer5'; did you mean 'layer", 1, true), message)
    assert.has_error(function() extraction.create_feature_extractor(net, {}) end)
    assert.has_error(function() extraction.create_feature_extractor(net, {layer1 = 3}) end)
  end)
end)

describe("a model", function()
  it("is made by name, and names are listed by patterns", function()
    assert.same({"audio_resnet18", "audio_resnet34", "audio_resnet50"},
      models.list_models "audio*")
    assert.same({"vgg11", "vgg13", "vgg16", "vgg19"},
      models.list_models {include = {"vgg*"}, exclude = "*_bn"})
    assert.equal(7, models.get_model("resnet18", {num_classes = 7}).fc.out_features)
    assert.equal(models.resnet50, models.get_model_builder "resnet50")
    local ok, message = pcall(models.get_model, "resnet81")
    assert.is_false(ok)
    assert.is_truthy(message:find("no model 'resnet81'; did you mean", 1, true), message)
  end)

  it("trains only a new head when the rest is frozen", function()
    local net = models.resnet18 {num_classes = 5}:requires_grad_(false)
    net.fc = nn.Linear(512, 2)
    local before = net.conv1.weight:clone()
    local optimizer = moth.optim.SGD(net.fc:parameters(), {lr = 0.1})
    local x, y = moth.randn(4, 3, 32, 32), moth.tensor({1, 2, 1, 2}):long()
    nn.functional.cross_entropy(net(x), y):backward()
    optimizer:step()
    equal(before, net.conv1.weight)
    assert.is_nil(net.conv1.weight.grad)
    assert.equal("(4, 2)", tostring(net(x).shape))
  end)

  it("has dilation instead of stride where requested", function()
    local net = models.resnet50 {num_classes = 2,
      replace_stride_with_dilation = {false, true, true}}:eval()
    local y = extraction.create_feature_extractor(net, {"layer4"})(moth.randn(1, 3, 64, 64))
    assert.equal("(1, 2048, 8, 8)", tostring(y.layer4.shape))
    assert.has_error(function()
      models.resnet18 {replace_stride_with_dilation = {false, true, true}}
    end)
  end)

  it("raises for images of another size than the ViT's", function()
    local net = tiny_vit(32, 16, 1, 4, 16, 32)
    local ok, message = pcall(net, moth.randn(1, 3, 64, 64))
    assert.is_false(ok)
    assert.is_truthy(message:find("(N, 3, 32, 32) is needed", 1, true), message)
  end)
end)

describe("GPT-2", function()
  local net, ids
  setup(function()
    moth.manual_seed(5)
    net = models.gpt2(GPT2)
    for _, p in ipairs(net:parameters()) do moth.no_grad(function() p:mul_(5) end) end
    ids = moth.randint {1, 21, {2, 5}}
  end)

  it("generates the same tokens with its cache as without", function()
    local got, wanted = net:generate {ids, max_new_tokens = 8}, ids
    assert.is_true(net.training) -- again
    net:eval()
    for _ = 1, 8 do wanted = moth.cat({wanted, net(wanted):select(2, -1):argmax(2, true)}, 2) end
    net:train()
    equal(wanted, got)
    equal(wanted[1], net:generate {ids[1], max_new_tokens = 8})
  end)

  it("computes new positions after those in a cache", function()
    net:eval()
    moth.no_grad(function()
      local cache = net:new_cache(2)
      local first = net(ids:narrow(2, 1, 2), cache)
      local second = net {ids:narrow(2, 3, 3), cache = cache}
      assert.equal(5, cache.length)
      assert.is_true(moth.allclose(net(ids), moth.cat({first, second}, 2), 1e-4, 1e-5))
    end)
    net:train()
  end)

  it("draws tokens: the same with the same generator, from the top_k only", function()
    local function drawn(seed, k)
      return (net:generate {ids, max_new_tokens = 8, do_sample = true, temperature = 2, top_k = k,
        generator = moth.Generator():manual_seed(seed)})
    end
    equal(drawn(1), drawn(1))
    assert.is_false(moth.equal(drawn(1), drawn(2)))
    equal(net:generate {ids, max_new_tokens = 8}, drawn(3, 1))
  end)

  it("ends at eos_token_id, and fills with it", function()
    local all = net:generate {ids, max_new_tokens = 8}
    local eos = tonumber(all[1][7]:item())
    local got = net:generate {ids, max_new_tokens = 8, eos_token_id = eos}
    local ended = false
    for i = 6, got:size(2) do
      local id = tonumber(got[1][i]:item())
      assert.is_true(not ended or id == eos)
      ended = ended or id == eos
    end
    assert.is_true(ended)
  end)

  it("raises for more positions than it has", function()
    assert.has_error(function() net:generate {ids, max_new_tokens = 12} end)
    assert.has_error(function() net(moth.ones(1, 17):long()) end)
  end)
end)
