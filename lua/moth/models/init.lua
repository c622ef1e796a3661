--- init.lua -- moth.models: networks with the parameter names of torchvision and transformers, so
-- that their weights load unchanged.
--
--     local net = moth.models.resnet18{weights = "resnet18.safetensors"}:eval()
--     net.fc = moth.nn.Linear(512, 10)                -- another head
--     print(moth.models.list_models())
--
-- builder.lua defines the functions that make a model and loads weights; each of the other files
-- has the classes and builders of one architecture. Each is loaded at the first use of its names.

local define = require "moth.binding.define"
local errors = require "moth.error"
local lazy = require "moth.base.lazy"
local lib = require "moth.binding.lib"

local models, rows = {}, {}
rows.feature_extraction = {"moth.models.feature_extraction"}

-- The names of all builders, and of the classes of each file.
local builders = {}
local function from(file, made, classes)
  lazy.from(rows, "moth.models." .. file, made .. " " .. classes)
  for name in made:gmatch "%S+" do builders[#builders + 1] = name end
end

from("resnet", "resnet18 resnet34 resnet50 resnet101 resnet152", "ResNet BasicBlock Bottleneck")
from("audio", "audio_resnet18 audio_resnet34 audio_resnet50", "")
from("mobilenetv3", "mobilenet_v3_small mobilenet_v3_large", "MobileNetV3 InvertedResidual")
from("efficientnet", "efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3 "
  .. "efficientnet_b4 efficientnet_b5 efficientnet_b6 efficientnet_b7", "EfficientNet MBConv")
from("vgg", "vgg11 vgg11_bn vgg13 vgg13_bn vgg16 vgg16_bn vgg19 vgg19_bn", "VGG")
from("vision_transformer", "vit_b_16 vit_b_32 vit_l_16 vit_l_32 vit_h_14",
  "VisionTransformer EncoderBlock MLPBlock")
from("unet", "unet", "UNet DoubleConv")
from("gpt2", "gpt2 gpt2_medium gpt2_large gpt2_xl", "GPT2LMHeadModel GPT2Model GPT2Block Conv1D")
from("bert", "bert_base bert_large", "BertModel BertLayer")
table.sort(builders)

-- A name with * for any text, as a Lua pattern.
local function pattern_of(text)
  return "^" .. text:gsub("%p", "%%%0"):gsub("%%%*", ".*") .. "$"
end

local function matches(name, aname, patterns)
  if type(patterns) == "string" then patterns = {patterns} end
  for _, text in ipairs(lib.is_plain(patterns) and patterns or {patterns}) do
    if type(text) ~= "string" then
      errors.refuse("models.list_models", aname, "a text or a list is needed", text, "E_TYPE")
    end
    if name:find(pattern_of(text)) then return true end
  end
  return false
end

models.list_models = define {
  name = "models.list_models",
  doc = "The names of the models that get_model makes, sorted.",
  outputs = "names",
  examples = "\"resnet*\"\n{exclude = {\"*_bn\", \"audio*\"}}",
  args = {
    {"any", "include", "a name or a list of names to include; * matches any text",
     optional = true},
    {"any", "exclude", "a name or a list of names to leave out", optional = true},
  },
  run = function(include, exclude)
    local list = {}
    for _, name in ipairs(builders) do
      if (include == nil or matches(name, "include", include))
        and not (exclude ~= nil and matches(name, "exclude", exclude)) then
        list[#list + 1] = name
      end
    end
    return list
  end,
}

local function builder_of(fname, name)
  for _, known in ipairs(builders) do
    if known == name then return models[name] end
  end
  return errors.argument(fname, "name", ("there is no model '%s'%s; moth.models.list_models() "
    .. "lists them"):format(name, errors.nearest(name, builders)))
end

local NAME = {"string", "name", "one of list_models()"}

models.get_model_builder = define {
  name = "models.get_model_builder",
  doc = "The function that makes a model, such as moth.models.resnet18.",
  outputs = "builder", examples = "\"resnet18\"", args = {NAME},
  run = function(name) return (builder_of("models.get_model_builder", name)) end,
}

models.get_model = define {
  name = "models.get_model",
  doc = "Makes a model by its name: get_model(\"resnet18\", {num_classes = 10}) is "
    .. "moth.models.resnet18{num_classes = 10}.",
  outputs = "net", examples = "\"mobilenet_v3_small\", {num_classes = 10}",
  args = {NAME, {"map", "options", "the arguments of the model, by name", optional = true}},
  run = function(name, options) return (builder_of("models.get_model", name)(options or {})) end,
}

return (lazy.namespace("moth.models", models, rows, {hint = lazy.HELP}))
