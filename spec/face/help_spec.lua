-- help: signature, arguments, example and source of every callable.

local moth = require "moth"
local bind = require "moth.binding.bind"
local help = require "moth.help"
local intact = require "spec.support.intact"
local registry = require "spec.support.registry"

local nn, F = moth.nn, moth.nn.functional

local function has(text, part) assert.truthy(text:find(part, 1, true), part .. " in:\n" .. text) end

describe("help", function()
  it("shows an op's signature, arguments, example and source", function()
    local text = help.text(F.max_pool2d)
    has(text, "max_pool2d(input, kernel_size, stride = kernel_size, padding = 0")
    has(text, "-> y")
    has(text, "kernel_size")
    has(text, "example: moth.max_pool2d(moth.randn(2, 3, 8, 8), 2)")
    has(text, "core/op/pool.c")
    has(text, "x:max_pool2d(")
    assert.equal(text, help.text("max_pool2d"))
    assert.equal(text, help.text("F.max_pool2d"))
  end)

  it("counts dims and positions from 1", function()
    has(help.text "moth.fft.fft2", "dim = {-2, -1}")
    has(help.text(moth.cat), "dim = 1")
    has(help.text(moth.flatten), "start_dim = 1")
    has(help.text(moth.flatten), "end_dim = -1")
    has(help.text(moth.add), "alpha = 1")
  end)

  it("knows every op, with all arguments and an example", function()
    for _, op in ipairs(registry.ops()) do
      if not op.hidden then
        local text = help.text(moth[op.name])
        has(text, op.name .. "(")
        for _, arg in ipairs(op.args) do has(text, "  " .. arg.name) end
        local call = text:match("example: ([^\n]+)")
        assert.is_string(call, op.name)
        assert.is_nil(text:find(require("moth.error").root, 1, true))
      end
    end
  end)

  it("describes functions written in Lua, classes and their objects", function()
    has(help.text(moth.arange), "arange(start")
    has(help.text(moth.tensor), "tensor(data")
    has(help.text(nn.Conv2d), "Conv2d(in_channels, out_channels, kernel_size")
    assert.equal(help.text(nn.Conv2d), help.text("nn.Conv2d"))
    has(help.text(nn.Linear(2, 3)), "Linear(")
    has(help.text(moth.optim.SGD), "SGD(")
    has(help.text(function() end), "a function, written at spec/face/help_spec.lua:")
    assert.equal("f32 (2, 3)", help.text(moth.ones(2, 3)))
    has(help.text(), "conv2d")
  end)

  it("suggests the nearest name for an unknown name", function()
    intact.refuses(function() return (help.text("conv3dd")) end,
      "there is no 'conv3dd'; did you mean")
  end)

  it("prints", function()
    local kept, out = io.write, {}
    io.write = function(...) out[#out + 1] = table.concat({ ... }) end -- luacheck: ignore 122
    moth.help(moth.add)
    io.write = kept -- luacheck: ignore 122
    has(table.concat(out), "add(input, other, alpha = 1")
  end)
end)

-- The names under which examples are printed.
local scope = { moth = moth, nn = nn, F = F, optim = moth.optim, data = moth.data,
                print = function() end }
setmetatable(scope, { __index = _G })

-- Runs the example of a page; fails with the page.
local function run_example(text, what)
  local code = text:match("\n  example: ([^\n]+)")
  local chunk
  if code then
    chunk = loadstring("return " .. code) or loadstring(code)
  else
    code = text:match("\n  example:\n(.-)\n\n") or text:match("\n  example:\n(.*)$")
    assert.is_string(code, what .. " has no example:\n" .. text)
    chunk = loadstring(code)
  end
  assert.is_function(chunk, text)
  local stderr = io.stderr
  io.stderr = { write = function() end, flush = function() end } -- luacheck: ignore 122
  local ok, problem = pcall(setfenv(chunk, scope))
  io.stderr = stderr -- luacheck: ignore 122
  assert.is_true(ok, what .. ": " .. tostring(problem) .. "\n" .. text)
end

-- Runs all examples of a function's record. Help shows the first one.
local function run_all(fn, what)
  local sig = bind.signature(fn)
  for _, example in ipairs(sig.lua and registry.examples(sig.examples) or {}) do
    local arguments = example.arguments()
    local ok, problem = pcall(fn, unpack(arguments, 1, arguments.n))
    assert.is_true(ok, ("%s(%s): %s"):format(what, example.code, tostring(problem)))
  end
end

describe("help of every public name", function()
  local places = require "moth.help.places"
  local class = require "moth.base.class"

  -- Are the libraries of pictures installed?
  local function has_pictures()
    for _, name in ipairs {"jpeg", "png", "webp"} do
      if not require("moth.io.image." .. name).find() then return false end
    end
    return true
  end

  it("uses its public name; its example runs, its method exists", function()
    local pages = 0
    for _, place in ipairs(places.list) do
      for _, name in ipairs(places.names(place)) do
        local value = places.space(place)[name]
        local text = help.text(value)
        assert.is_true(#text > 0)
        local reads_files = name == "idx" or name == "mnist" or name == "csv"
          or value == moth.onnx.load or place.path == "moth.gguf"
          or name == "ImageFolder" or name == "DatasetFolder"
          or place.path == "moth.io" and not has_pictures()
          -- in spec/distributed
          or place.path:find "^moth%.distributed" and place.path ~= "moth.distributed.checkpoint"
          or place.path == "moth.nn.parallel"
        if bind.signature(value) and not reads_files then
          pages = pages + 1
          local example = place.path .. "." .. name
          if place.path == "moth.models" then -- without drawing 10^9 initial values
            moth.set_memory_limit(0) -- the example of set_memory_limit has set one
            require("moth.nn.initialization").skip(run_example, text, example)
          else
            run_example(text, example)
            run_all(value, example)
          end
          local first = text:match("^[%w_.]+")
          local reached = assert(loadstring("return " .. first:gsub("%.repeat$", '["repeat"]')))
          assert.equal(value, setfenv(reached, scope)(), text)
          local method = text:match("method:  x:([%w_]+)")
          if method then assert.is_function(moth.ones(2)[method], text) end
        elseif not reads_files
               and (class.isclass(value) or text:find("\n  example:", 1, true)) then
          pages = pages + 1
          run_example(text, place.path .. "." .. name)
        end
      end
    end
    assert.is_true(pages > 600)
    moth.set_memory_limit(0) -- the examples of settings
    moth.set_memory_floor()
  end)

  it("shows the tags of comments as arguments and results", function()
    for _, place in ipairs(places.list) do
      for _, name in ipairs(places.names(place)) do
        local text = help.text(places.space(place)[name])
        assert.is_nil(("\n" .. text):find "\n@%l", text)
      end
    end
    has(help.text "ZeroRedundancyOptimizer", "\n  params           list of parameters")
    has(help.text "moth.seed", "\n  returns: the seed")
  end)

  it("knows each method of tensors by its name", function()
    for _, name in ipairs(bind.method_names()) do
      local text = help.text(name)
      assert.truthy(text:find(name, 1, true), text)
    end
    has(help.text "renorm_", "x:renorm_(")
    has(help.text "new_full", "x:new_full(")
  end)

  it("lists a method only where x:name() is this function", function()
    has(help.text "nn.init.xavier_uniform_", "nn.init.xavier_uniform_(tensor, gain = 1")
    has(help.text "pad_sequence", "nn.utils.rnn.pad_sequence(")
    for _, name in ipairs { "nn.init.xavier_uniform_", "nn.init.normal_", "F.cosine_similarity",
                            "nn.utils.rnn.pad_sequence", "F.unfold", "moth.normal",
                            "moth.tensordot" } do
      assert.is_nil(help.text(name):find("method:", 1, true), name)
    end
    has(help.text "moth.sum", "method:  x:sum(...)")
    has(help.text "moth.max", "method:  x:max(...)")
  end)
end)

describe("help of a name", function()
  it("is a page for a namespace: a description and its names", function()
    has(help.text "nn", "Conv2d")
    has(help.text "moth.optim", "SGD")
    has(help.text "data", "DataLoader")
    has(help.text "nn.parallel", "DistributedDataParallel")
    has(help.text "ZeroRedundancyOptimizer", "optimizer_class  such as moth.optim.Adam")
    has(help.text "autograd", "Function")
    has(help.text "nn.init", "xavier_uniform_")
    has(help.text "nn.utils", "clip_grad_norm_")
    has(help.text "optim.lr_scheduler", "StepLR")
    has(help.text "F", "conv2d")
    assert.equal(help.text "optim", help.text(moth.optim))
    for _, name in ipairs { "moth.nn", "moth.nn.functional", "moth.nn.init", "moth.nn.utils.rnn",
                            "moth.optim.lr_scheduler", "moth.data", "moth.autograd" } do
      has(help.text(), name)
    end
    assert.is_nil(help.text("autograd"):find("tensor_backward", 1, true))
  end)

  it("finds values of Moth that are no functions", function()
    has(help.text "float32", "4 bytes")
    has(help.text(moth.long), "int64")
    has(help.text "newaxis", "x[{")
    has(help.text "none", "None")
    has(help.text "summary", "summary(")
  end)

  it("finds it in any namespace, with or without the path", function()
    for _, name in ipairs { "StepLR", "lr_scheduler.StepLR", "optim.lr_scheduler.StepLR",
                            "moth.optim.lr_scheduler.StepLR" } do
      has(help.text(name), "StepLR(optimizer, step_size")
    end
    has(help.text "nn.utils.clip_grad_norm_", "max_norm")
    has(help.text "clip_grad_norm_", "nn.utils.clip_grad_norm_(")
    has(help.text "register_forward_hook", "hook")
    has(help.text "net:named_parameters", "named_parameters")
    has(help.text "Conv2d", "in_channels")
    has(help.text "nn.Transformer.generate_square_subsequent_mask", "(size, device")
    assert.equal(1, help.text("load_state_dict"):find("nn.Module:", 1, true))
    assert.equal(1, help.text("step"):find("optim.Optimizer:", 1, true))
    intact.refuses(function() return (help.text "conv2D") end, "did you mean 'Conv2d'")
    intact.refuses(function() return (help.text "nn.init.xavier") end, "xavier_")
  end)

  it("describes a method without a text by its base's text", function()
    local Normal = moth.distributions.Normal
    for _, what in ipairs { Normal.log_prob, Normal(0, 1).log_prob,
                            "distributions.Normal.log_prob" } do
      has(help.text(what), "The logarithm of the density")
      has(help.text(what), "continuous.lua")
    end
  end)

  it("says where numbers are rounded", function()
    has(help.text(moth.optim.Muon), "bfloat16")
  end)

  it("lists other functions of that name", function()
    local text = help.text "normal_"
    has(text, "nn.init.normal_")
    has(text, "moth.normal_(")
    has(help.text "state_dict", "optim.Optimizer:state_dict")
    has(help.text "Conv2d.forward", "nn.Conv2d:forward(input)")
    assert.is_nil(help.text("forward"):find("nn.Linear", 1, true))
    has(help.text():match("In moth.nn.init.-\n\n"), "uniform_")
  end)
end)

describe("help of a class", function()
  it("has the constructor, the call with its arguments, the methods", function()
    local text = help.text(nn.LSTM)
    has(text, "nn.LSTM(input_size, hidden_size")
    has(text, "Long short-term memory")
    has(text, "net(input, hx = none)")
    has(text, "reset_parameters")
    assert.is_nil(text:find("forward_signature", 1, true))
    has(help.text(nn.MultiheadAttention), "key_padding_mask")
    has(help.text(nn.TransformerEncoder), "net(src, mask = none, src_key_padding_mask = none")
    has(help.text(nn.ConvTranspose2d), "output_size")
    has(help.text(nn.Bilinear), "net(input1, input2)")
    has(help.text(nn.Linear), "net(input)")
    has(help.text(nn.LeakyReLU), "As F.leaky_relu: ")
  end)

  it("shows how to write your own Module, Dataset, Function", function()
    has(help.text(nn.Module), "nn.class(")
    has(help.text(nn.Module), "The base of all networks")
    has(help.text(moth.optim.RMSprop), "RMSprop (Hinton, 2012)")
    has(help.text(moth.autograd.Function), "base class of user-defined ops")
    has(help.text "data.Dataset", ":get(i)")
    has(help.text "autograd.Function", "save_for_backward")
    has(help.text "nn.ModuleList", "nn.ModuleList")
    has(help.text(moth.data.DataLoader), "batch_size")
  end)

  it("shows the parameters of a user's function", function()
    local Net = nn.class("Net", nn.Module)
    --- Adds a shift.
    function Net:forward(x, shift) return x + shift end
    local text = help.text(Net().forward)
    has(text, "(self, x, shift)")
    has(help.text "data.random_split", "data.random_split(dataset, lengths, generator = none)")
    has(help.text "nn.Parameter", "A tensor that becomes one of")
    has(help.text "Module.register_buffer", "nn.Module:register_buffer(name, tensor = none")
    has(help.text "no_grad", "moth.no_grad(f, ...)")
    has(help.text(moth.no_grad), "moth.no_grad(f, ...)")
    has(text, "Adds a shift.")
    has(help.text(Net), "net(x, shift)")
  end)
end)

describe("help of the profiler", function()
  it("names its arguments and results, and finds the methods of profiles", function()
    local text = help.text "moth.profiler.profile.export_chrome_trace"
    assert.truthy(text:find("\n  path  the file's path", 1, true), text)
    assert.truthy(help.text(moth.profiler.profile.start):find("\n  returns: the profile", 1, true))
    for _, name in ipairs{"profile.start", "profile.events", "EventList.table", "profile"} do
      assert.falsy(help.text("moth.profiler." .. name):find("@", 1, true), name)
    end
    for _, name in ipairs{"moth.profiler.EventList.table", "moth.profiler.profile.table"} do
      assert.truthy(help.text(name):find("row_limit", 1, true), name)
    end
    local averages = moth.profiler.profile(function() end):key_averages()
    assert.truthy(help.text(averages):find("table", 1, true))
    assert.truthy(help.text(moth.profiler):find("ProfilerActivity", 1, true))
    assert.truthy(help.text "ProfilerActivity":find('"cuda"', 1, true))
  end)
end)

describe("moth.names", function()
  it("lists each name once, sorted, and each exists", function()
    local names = moth.names()
    for i, name in ipairs(names) do
      assert.is_true(i == 1 or names[i - 1] < name)
      assert.is_not_nil(moth[name])
    end
    assert.is_true(#names > 150)
  end)

  it("knows moth.ops, moth.darknet and moth.gguf, with examples", function()
    for _, path in ipairs { "moth.ops.nms", "moth.darknet.parse", "moth.gguf.open" } do
      has(help.text(path), path .. "(")
      has(help.text(path), "example: " .. path .. "(")
    end
    has(help.text "box_iou", "moth.ops.box_iou(boxes1, boxes2)")
    has(help.text(moth.ops.nms), "example: moth.ops.nms(")
    has(help.text(moth.ops), "generalized_box_iou")
    has(help.text(moth.darknet), "Darknet boxes load")
    has(help.text(moth.gguf), "load open")
  end)

  it("has a text and an example for a constructor that another function makes", function()
    has(help.text "moth.distributions.CatTransform", "Applies each transform to its piece")
    has(help.text "moth.distributions.ContinuousBernoulli", "density proportional to")
    has(help.text "moth.distributions.Multinomial", "The number of draws of each category")
    has(help.text "nn.UninitializedParameter", "p:materialize(2, 3)")
    has(help.text "nn.UninitializedBuffer", "A buffer whose shape is not known yet")
    has(help.text "moth.distributions.biject_to", "bijective")
    has(help.text "moth.distributions.biject_to", "print(d.biject_to(d.constraints.positive)(")
    has(help.text(moth.distributions.constraints), "positive_definite")
  end)
end)

describe("help of a layer class that is a function", function()
  it("names the function", function()
    local known = 0
    for _, name in ipairs(moth.nn.names()) do
      local layer = moth.nn[name]
      local doc = type(layer) == "table" and rawget(layer, "_doc") or ""
      local called = doc:match "^F%.(.-) as a layer"
      if called then
        known = known + 1
        assert(pcall(function() return moth.nn.functional[called] end), name .. ": " .. called)
        assert(name:lower():find(called:gsub("_", ""), 1, true), name .. ": " .. called)
      end
    end
    assert.is_true(known > 1, known)
  end)
end)

describe("help for words that are no name", function()
  it("finds texts that contain all of the words", function()
    has(help.text "convolution of images", "moth.conv2d")
    has(help.text "memory limit", "moth.set_memory_limit")
    has(help.text "random seed", "moth.manual_seed")
    has(help.text "cosine similarity", "F.cosine_similarity")
  end)

  it("finds sections of the guide, and other forms of words", function()
    has(help.text "freeze", "docs/guide/modules.md     Freezing layers")
    has(help.text "freeze layers", "docs/guide/modules.md  Freezing layers")
  end)

  it("answers the questions of PyTorch users", function()
    for question, answer in pairs {
      ["gradient clipping"] = "nn.utils.clip_grad_norm_",
      ["out of memory"] = "docs/guide/errors.md",
      ["load checkpoint"] = "nn.Module:load_state_dict",
      ["cross entropy with label smoothing"] = "moth.cross_entropy",
      ["move to gpu"] = "nn.Module:cuda",
      ["concatenate tensors"] = "moth.cat",
      ["matrix multiplication"] = "moth.matmul",
      ["weight decay"] = "optim.AdamW",
      ["transfer learning"] = "docs/guide/recipes.md",
      ["turn off gradients"] = "moth.no_grad",
      ["exponential moving average"] = "optim.swa_utils.AveragedModel",
      ["initialize weights xavier"] = "nn.init.xavier_uniform_",
      ["custom autograd function"] = "moth.autograd.Function",
      ["reproducibility"] = "moth.use_deterministic_algorithms",
      ["convert to numpy"] = "x:tolist",
      ["pad sequences"] = "nn.utils.rnn.pad_sequence",
      ["get value of tensor"] = "x:item",
      ["zero gradients"] = "optim.Optimizer:zero_grad",
      ["data augmentation"] = "docs/guide/recipes.md",
      ["mean and standard deviation"] = "moth.std_mean",
      ["nll loss"] = "moth.nll_loss",
    } do
      has(help.text(question), "  " .. answer)
    end
  end)

  it("suggests the nearest name for a misspelt one, and raises for unknown words", function()
    assert.has_error_like(function() help.text "conv3dd" end, "did you mean 'Conv3d'?")
    assert.has_error_like(function() help.text "qqqq" end, "there is no 'qqqq'")
    assert.has_error_like(function() help.text "run" end,
      "there is no 'run'; ./moth run is a command, and ./moth help lists them")
  end)
end)
