-- moth.models against torchvision and transformers: names and shapes of parameters, results on
-- weights that both sides compute (spec/golden/models.py), and what each model must be able to do:
-- train, half precision, capture, ONNX.

local files = require "spec.support.files"
local json = require "moth.json"
local moth = require "moth"
local nn, F, models = moth.nn, moth.nn.functional, moth.models
local skip = require("moth.nn.initialization").skip

local golden = json.decode(files.read "spec/golden/models.json")

setup(files.setup)
teardown(files.teardown)
after_each(function() collectgarbage() collectgarbage() end)

local function close(got, wanted, most, what)
  assert.is_true(math.abs(got - wanted) <= most, ("%s: %.9g, not %.9g"):format(what or "value", got,
    wanted))
end

-- ---- weights that the golden file's program computes in the same way ----

local P = 10007
local base = {}
for i = 0, P - 1 do base[i + 1] = (i * i * 31 + i * 7919) % P / P - 0.5 end
base = moth.tensor(base)

local function hash(text, modulus)
  local h = 7
  for i = 1, #text do h = (h * 31 + text:byte(i)) % modulus end
  return h
end

local function pseudo(name, shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return base:roll(-hash(name, P)):tile(math.ceil(n / P)):narrow(1, 1, n):view(shape)
end

local function fill(net)
  local done = {}
  for name, x in net:state_dict():items() do
    if x.dtype ~= moth.int64 and not done[x:data_ptr()] then
      done[x:data_ptr()] = true
      local u = pseudo(name, x.shape)
      if name:find "running_var$" or (x:dim() == 1 and name:find "weight$") then
        u = u + 1
      elseif x:dim() < 2 then
        u = u * 0.5
      else
        u = u * math.sqrt(24 / (x:numel() / x:size(1)))
      end
      x:copy_(u)
    end
  end
  return net:eval()
end

local function ids(n, length, most)
  local list = {}
  for i = 1, n do
    list[i] = {}
    for j = 1, length do list[i][j] = (37 * (i - 1) + 101 * (j - 1) + 5) % most + 1 end
  end
  return moth.tensor(list):long()
end

local BERT = {vocab_size = 97, hidden_size = 48, num_hidden_layers = 3, num_attention_heads = 4,
              max_position_embeddings = 32}
local GPT2 = {vocab_size = 97, n_positions = 32, n_embd = 48, n_layer = 3, n_head = 4}

-- Small models, or the usual ones with 10 classes: name -> the net and an input.
local function small(name)
  if name == "gpt2" then return models.gpt2(GPT2), ids(2, 20, 97) end
  if name == "bert_base" then return models.bert_base(BERT), ids(2, 20, 97) end
  if name == "unet" then
    return models.unet {num_classes = 4, base_channels = 8}, 2 * pseudo("input", {2, 3, 40, 56})
  elseif name == "vision_transformer" then
    return models.VisionTransformer(64, 16, 3, 4, 48, 96, {num_classes = 10}),
      2 * pseudo("input", {2, 3, 64, 64})
  elseif name:find "^audio" then
    return models[name] {num_classes = 10}, 2 * pseudo("input", {2, 1, 40, 50})
  elseif name:find "_features$" then
    return models[name:gsub("_features$", "")] {num_classes = 1}.features,
      2 * pseudo("input", {2, 3, 64, 64})
  end
  return models[name] {num_classes = 10}, 2 * pseudo("input", {2, 3, 64, 64})
end

-- The models that the claims below train, capture and so on.
local SMALL = {"resnet18", "audio_resnet18", "mobilenet_v3_small", "efficientnet_b0",
               "vision_transformer", "unet", "gpt2", "bert_base"}

describe("moth.models", function()
  -- Not those of 10^9 bytes, whose layers are those of smaller ones: check_models.lua checks them.
  it("lists its models, each with PyTorch's names, shapes and number of parameters", function()
    local names, count = models.list_models {exclude = {"vit_l*", "vit_h*", "gpt2_*", "*t_large"}},
      0
    for _, name in ipairs(names) do
      local net, wanted, rows, parameters = skip(models[name]), golden.state[name], {}, 0
      for _, p in ipairs(net:parameters()) do parameters = parameters + p:numel() end
      for key, x in net:state_dict():items() do
        rows[#rows + 1] = key .. " " .. table.concat(x.shape, ",")
      end
      table.sort(rows)
      assert.equal(wanted.parameters, parameters, name)
      assert.equal(wanted.tensors, #rows, name)
      assert.equal(wanted.hash, hash(table.concat(rows, "\n"), 2 ^ 31 - 1), name)
      net = nil -- luacheck: ignore 311
      collectgarbage()
      count = count + 1
    end
    for name in pairs(golden.state) do assert.is_function(models[name], name) end
    assert.equal(31, count)
    assert.equal(38, #models.list_models())
  end)

  for name, wanted in pairs(golden.outputs) do
    it(name .. " returns PyTorch's values on the same weights", function()
      local net, x = skip(small, name)
      fill(net)
      local more = name == "bert_base" and {token_type_ids = ids(2, 20, 2),
        attention_mask = moth.ones(2, 20)} or nil
      if more then more.attention_mask[{2, {14, 20}}] = 0 end
      local results = moth.no_grad(function() return {net(x, more)} end)
      for i, result in ipairs(wanted) do
        local y, flat = results[i], results[i]:reshape(-1)
        assert.equal(table.concat(result.shape, ","), table.concat(y.shape, ","))
        close(y:abs():max():item(), result.scale, 1e-4 * result.scale, name .. " scale")
        for k, value in ipairs(result.values) do
          close(flat[(k - 1) * result.step + 1]:item(), value, 1e-4 * result.scale, name)
        end
      end
    end)
  end
end)

-- ---- what each model must be able to do ----

-- The first result of a model, for a target of its shape.
local function run(net, x) return (net(x)) end

describe("each model", function()
  for _, name in ipairs(SMALL) do
    it(name .. " learns: a few steps lower the loss on one batch", function()
      moth.manual_seed(1)
      local net, x = small(name)
      for _, m in ipairs(net:modules()) do
        if nn.isinstance(m, nn.Dropout) then m.p = 0 end
        if nn.typename(m) == "StochasticDepth" then m.p = 0 end
      end
      local optimizer = moth.optim.Adam(net:parameters(), {lr = 1e-4})
      local target, losses = nil, {}
      for step = 1, 4 do
        moth.scope(function()
          optimizer:zero_grad()
          local y = run(net, x)
          target = target or moth.keep(moth.randn_like(y))
          local loss = F.mse_loss(y, target)
          loss:backward()
          for key, p in net:named_parameters() do
            assert.is_truthy(p.grad or key:find "^pooler", key .. " has no gradient")
          end
          optimizer:step()
          losses[step] = loss:item()
        end)
      end
      assert.is_true(losses[4] < losses[1], table.concat(losses, " "))
    end)

    it(name .. " agrees with itself in bfloat16, and in a captured step", function()
      local net, x = skip(small, name)
      fill(net)
      moth.no_grad(function()
        local y = run(net, x)
        local step = moth.capture(function(v) return run(net, v) end)
        for _ = 1, 3 do assert.is_true(moth.allclose(step(x), y, 1e-4, 1e-4)) end
        net:bfloat16()
        local near = run(net, x.dtype == moth.int64 and x or x:bfloat16()):float()
        local error = ((near - y):norm() / y:norm()):item()
        assert.is_true(error < 0.1, "relative error " .. error)
      end)
    end)
  end

  for _, name in ipairs {"mobilenet_v3_small", "unet", "vision_transformer", "bert_base"} do
    it(name .. " is written as ONNX, and read again", function()
      local net, x = skip(small, name)
      fill(net)
      local path = files.path(name .. ".onnx")
      moth.onnx.export(net, x, path)
      local y, again = run(net, x), run(moth.onnx.load(path), x)
      assert.is_true(moth.allclose(y, again, 1e-4, 1e-4 * y:abs():max():item()))
    end)
  end

  it("has a summary", function()
    local text = tostring(moth.summary(skip(models.resnet18), {1, 3, 64, 64}))
    assert.is_truthy(text:find("11,689,512 parameters", 1, true), text)
    assert.is_truthy(text:find("layer4", 1, true))
  end)
end)
