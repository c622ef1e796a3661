-- Error messages: they name the called function and its argument, positions count from 1, and
-- tracebacks show the user's frames.

local moth = require "moth"
local process = require "spec.support.process"

local nn, F, L, T = moth.nn, moth.nn.functional, moth.linalg, moth.tensor

local function says(fn, ...)
  local ok, text = pcall(fn)
  assert.is_false(ok, "nothing was raised")
  for _, wanted in ipairs { ... } do
    assert.truthy(text:find(wanted, 1, true), ("wanted '%s' in: %s"):format(wanted, text))
  end
  return text
end

describe("a composite function raises with its own name:", function()
  local function answers(name, fn, ...)
    local wanted = { ... }
    it(name, function() says(fn, unpack(wanted)) end)
  end

  answers("multi_margin_loss", function()
    return (F.multi_margin_loss(T { { .1, .2, .7 } }, T { 9LL }))
  end, "bad argument 'target' to 'multi_margin_loss' (class 9 is out of range for 3 classes")
  answers("max_unpool2d", function()
    return (F.max_unpool2d(moth.ones(1, 1, 2, 2), T { { { { 1LL, 2LL }, { 3LL, 400LL } } } }, 2))
  end, "bad argument 'indices' to 'max_unpool2d' (position 400", "indices is i64 (1, 1, 2, 2)")
  answers("triplet_margin_with_distance_loss", function()
    return (F.triplet_margin_with_distance_loss(moth.ones(2, 3), moth.ones(2, 3), moth.ones(4, 5)))
  end, "bad argument 'negative' to 'triplet_margin_with_distance_loss' (f32 (4, 5)")
  answers("gradient", function() return (moth.gradient(moth.ones(3), { dim = { 9 } })) end,
    "bad argument 'dim' to 'gradient' (dim 9 is out of range: wanted 1 to 1")
  answers("logcumsumexp", function() return (moth.logcumsumexp(moth.ones(3), 9)) end,
    "bad argument 'dim' to 'logcumsumexp' (dim 9 is out of range: wanted 1 to 1")
  answers("hsplit", function() return (moth.hsplit(moth.ones(3), 9)) end,
    "bad argument 'indices_or_sections' to 'hsplit' (a divisor of 3")
  answers("nn.Embedding", function() return (nn.Embedding(-1, 3)) end,
    "bad argument 'num_embeddings' to 'Embedding' (a number from 0 on is needed, got -1)")
  answers("linalg.cond", function() return (L.cond(moth.eye(3):long(), "fro")) end,
    "bad argument 'A' to 'cond'")
  answers("linalg.diagonal", function() return (L.diagonal(moth.ones(7))) end,
    "bad argument 'A' to 'diagonal' (at least 2 dimensions")
  answers("linalg.vector_norm", function() return (L.vector_norm(moth.ones(7):long())) end,
    "bad argument 'x' to 'vector_norm'")
  answers("linalg.norm", function() return (L.norm(moth.ones(2), 0 / 0)) end,
    "bad argument 'ord' to 'norm' (a number is needed, got nan)")
  answers("pinverse", function() return (moth.pinverse(moth.ones(7))) end,
    "bad argument 'input' to 'pinverse'")
  answers("put", function()
    return (moth.put(moth.ones(7), moth.ones(2):to(moth.uint8), moth.ones(2)))
  end, "bad argument 'index' to 'put'")
  answers("func.jvp", function() return (moth.func.jvp(moth.exp, { moth.ones(2) }, {})) end,
    "bad argument 'tangents' to 'jvp'")
  answers("corrcoef", function() return (moth.corrcoef(moth.ones(2, 3, 4))) end,
    "bad argument 'input' to 'corrcoef' (a matrix or a vector is needed, got f32 (2, 3, 4))")
  answers("CosineSimilarity", function()
    return (nn.CosineSimilarity()(moth.ones(2, 3, 4), moth.ones(5)))
  end, "in CosineSimilarity: bad argument 'x2' to 'cosine_similarity'")
  answers("fake_quantize_per_tensor_affine", function()
    return (moth.fake_quantize_per_tensor_affine(moth.ones(2), T(.1), T(true), -128, 127))
  end, "bad argument 'zero_point' to 'fake_quantize_per_tensor_affine'")
  answers("histogram", function() return (moth.histogram(moth.ones(20), 4, { range = 5 })) end,
    "bad argument 'range' to 'histogram'")
  answers("normal", function() return (moth.normal(moth.ones(2), moth.ones(2):bool())) end,
    "bad argument 'std' to 'normal'")

  it("an op within a module, with the module's path", function()
    says(function() return (nn.Sequential(nn.Linear(3, 2))(moth.ones(4))) end, "[1]: bad argument "
      .. "'input' to 'linear'")
  end)

  it("an op in a user's function, with the user's line", function()
    local text = says(function()
      return (moth.func.vmap(function(x) return (x:add(moth.ones(7))) end)(moth.ones(2, 3)))
    end, "'other' to 'add'")
    assert.truthy(text:find "^spec/cases/messages_spec.lua:%d+: ")
  end)
end)

describe("positions count from 1 in", function()
  it("roll", function()
    says(function() return (moth.roll(moth.ones(3, 3), { 1, 2 }, { 2 })) end,
      "bad argument 'shifts' to 'roll' (one shift for each of the dims {2} is needed, got 2)")
  end)
  it("rot90", function()
    says(function() return (moth.rot90(moth.ones(3, 3), 1, { 2 })) end,
      "two dimensions are needed, got {2}")
  end)
end)

describe("a message", function()
  it("names logical_not for -mask", function()
    local mask = T { true, false }
    says(function() return -mask end, "logical_not")
    says(function() return (moth.neg(mask)) end, "logical_not")
    says(function() return (mask:neg()) end, "logical_not")
  end)

  it("names the feature count that a cell or a recurrent net needs", function()
    for _, name in ipairs { "GRUCell", "LSTMCell", "RNNCell", "GRU", "LSTM", "RNN" } do
      local x = name:find "Cell" and moth.ones(3, 11) or moth.ones(4, 3, 11)
      says(function() return (nn[name](10, 20)(x)) end, "in " .. name .. ": bad argument 'input'",
        "10 features are needed")
    end
  end)

  it("writes nan without a sign", function()
    for _, x in ipairs { 0 / 0, -(0 / 0) } do
      local text = says(function() return (F.huber_loss(moth.ones(2), moth.ones(2), "mean", x)) end,
        "nan")
      assert.is_nil(text:find("-nan", 1, true))
    end
  end)

  it("has the singular for one dimension", function()
    says(function() return (moth.hsplit(T(1), 2)) end, "at least 1 dimension is needed")
    says(function() return (moth.ones(7)[{ 1, 1 }]) end, "with 1 dimension")
  end)
end)

describe("a layer names its input, and the needed shape:", function()
  local function layer(name, fn, ...)
    local wanted = { ... }
    it(name, function() says(fn, unpack(wanted)) end)
  end
  local x = moth.ones(2, 3, 5)

  layer("LayerNorm", function() return (nn.LayerNorm(4)(x)) end,
    "in LayerNorm: bad argument 'input' to 'LayerNorm' ((..., 4) is needed, got f32 (2, 3, 5))")
  layer("LayerNorm called by name", function() return (nn.LayerNorm { 2, 4 } { input = x }) end,
    "bad argument 'input' to 'LayerNorm' ((..., 2, 4) is needed, got f32 (2, 3, 5))")
  layer("RMSNorm", function() return (nn.RMSNorm(4)(x)) end,
    "bad argument 'input' to 'RMSNorm' ((..., 4) is needed, got f32 (2, 3, 5))")
  layer("GroupNorm", function() return (nn.GroupNorm(2, 4)(x)) end,
    "bad argument 'input' to 'GroupNorm' ((N, 4, ...) is needed, got f32 (2, 3, 5))")
  layer("Conv1d", function() return (nn.Conv1d(4, 2, 3)(x)) end,
    "bad argument 'input' to 'Conv1d' ((N, 4, L) or (4, L) is needed, got f32 (2, 3, 5))")
  layer("Conv2d with a border of its own", function()
    return (nn.Conv2d { 4, 2, 3, padding = 1, padding_mode = "circular" }(moth.ones(2, 3, 5, 5)))
  end, "'input' to 'Conv2d' ((N, 4, H, W) or (4, H, W) is needed, got f32 (2, 3, 5, 5))")
  layer("ConvTranspose3d", function() return (nn.ConvTranspose3d(4, 2, 3)(x)) end,
    "'input' to 'ConvTranspose3d' ((N, 4, D, H, W) or (4, D, H, W) is needed, got f32 (2, 3, 5))")
  layer("InstanceNorm2d", function()
    return (nn.InstanceNorm2d { 4, affine = true }(moth.ones(2, 3, 5, 5)))
  end, "bad argument 'input' to 'InstanceNorm2d' ((N, 4, H, W) or (4, H, W) is needed")
  layer("PReLU", function() return (nn.PReLU(4)(x)) end,
    "bad argument 'input' to 'PReLU' ((N, 4, ...) is needed, got f32 (2, 3, 5))")
  layer("Bilinear, the first", function()
    return (nn.Bilinear(4, 2, 3)(moth.ones(2, 3), moth.ones(2, 2)))
  end, "bad argument 'input1' to 'Bilinear' ((..., 4) is needed, got f32 (2, 3))")
  layer("Bilinear, the second", function()
    return (nn.Bilinear(3, 4, 3)(moth.ones(2, 3), moth.ones(2, 2)))
  end, "bad argument 'input2' to 'Bilinear' ((..., 4) is needed, got f32 (2, 2))")
  layer("MultiheadAttention", function() return (nn.MultiheadAttention(4, 2)(x, x, x)) end,
    "bad argument 'query' to 'MultiheadAttention' (4 is needed as the last size")
  layer("TransformerEncoderLayer", function() return (nn.TransformerEncoderLayer(4, 2)(x)) end,
    "in TransformerEncoderLayer: bad argument 'src' to 'TransformerEncoderLayer' (4 is needed")
  layer("TransformerEncoder", function()
    return (nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2), 2)(x))
  end, "in TransformerEncoder: bad argument 'src' to 'TransformerEncoder' (4 is needed")
  layer("TransformerDecoderLayer", function()
    return (nn.TransformerDecoderLayer(4, 2)(moth.ones(2, 3, 4), x))
  end, "bad argument 'memory' to 'TransformerDecoderLayer' (4 is needed")
  layer("a layer of another dtype", function()
    return (nn.Conv2d(3, 2, 3)(moth.ones(2, 3, 5, 5):double()))
  end, "bad argument 'input' to 'Conv2d' (f64 (2, 3, 5, 5) does not match the layer's weight, "
    .. "f32 (2, 3, 3, 3)")
  layer("LSTM of another dtype", function() return (nn.LSTM(5, 2)(x:double())) end,
    "bad argument 'input' to 'LSTM' (f64 (2, 3, 5) does not match the layer's weight_ih_l0")
  layer("a layer within a net of the user's, by its path", function()
    local net = nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(4))
    local y = net(moth.ones(2, 3))
    return y
  end, "in net[2]: bad argument 'input' to 'LayerNorm' ((..., 4) is needed, got f32 (2, 2))")

  it("an invalid setting is named, not the input", function()
    says(function() return (nn.MaxPool2d(9)(moth.ones(2, 3, 8, 8))) end,
      "in MaxPool2d: bad argument 'kernel_size' to 'max_pool2d'")
  end)
end)

describe("a message names the argument", function()
  local x = moth.ones(2, 3)
  local function names(name, fn, ...)
    local wanted = { ... }
    it(name, function() says(fn, unpack(wanted)) end)
  end

  names("out, also where it is the first input", function()
    local own = moth.ones(2, 3):bool()
    return (moth.add(own, x, { out = own }))
  end, "bad argument 'out' to 'add' (the result is f32")
  names("out of a matrix product", function()
    local own = moth.ones(2, 3)
    return (moth.matmul(own, moth.ones(3, 2), { out = own }))
  end, "bad argument 'out' to 'matmul'")
  names("nonlinearity of kaiming_normal_", function()
    nn.init.kaiming_normal_ { moth.ones(2, 3), nonlinearity = "x" }
  end, "bad argument 'nonlinearity' to 'kaiming_normal_' (unknown: 'x'")
  names("target of multilabel_margin_loss, by the class", function()
    return (F.multilabel_margin_loss(moth.ones(1, 3), T { { 9LL, 1LL, 1LL } }))
  end, "bad argument 'target' to 'multilabel_margin_loss' (class 9 is out of range for 3 classes")
  names("modules of ModuleDict, with the name", function() return (nn.ModuleDict { a = 3 }) end,
    "bad argument 'modules' to 'ModuleDict' (a module is needed, got 3 under 'a')")
  names("modules of ModuleList, with the position", function()
    return (nn.ModuleList { nn.ReLU(), 3 })
  end, "bad argument 'modules' to 'ModuleList' (a module is needed, got 3 at position 2)")
  names("modules of Sequential, with the position", function()
    return (nn.Sequential { nn.ReLU(), 3 })
  end, "bad argument 'modules' to 'Sequential' (element 2 is 3")
  names("values of ParameterList, with the position", function()
    return (nn.ParameterList { x, 3 })
  end, "'ParameterList'", "position 2")
  names("parameters of ParameterDict, with the name", function()
    return (nn.ParameterDict { a = 3 })
  end, "bad argument 'parameters' to 'ParameterDict' (a tensor is needed, got 3 under 'a')")
  names("hidden_channels of MLP", function() return (moth.ops.MLP(3, { 4, -1 })) end,
    "bad argument 'hidden_channels' to 'MLP' (a number from 1 on is needed")
  names("sizes of Embedding", function() return (nn.Embedding(-1, 3)) end,
    "bad argument 'num_embeddings' to 'Embedding' (a number from 0 on is needed, got -1)")
  names("dim of gradient", function() return (moth.gradient { x, dim = { 9 } }) end,
    "bad argument 'dim' to 'gradient' (dim 9 is out of range")
  names("dtype of a window", function()
    return (moth.signal.windows.hann(5, { dtype = moth.int64 }))
  end, "bad argument 'dtype' to 'hann' (a floating dtype is needed, got moth.int64)")
  names("the order of save's", function() moth.save("net.safetensors", x) end,
    "bad argument 'path' to 'save'", "the order is moth.save(value, path)")
  names("the order of save's, of a table", function() moth.save("net.safetensors", { a = x }) end,
    "the order is moth.save(value, path)")
  names("a class by its own argument, not by that of a class it uses", function()
    return (nn.TransformerEncoderLayer(-1, 2))
  end, "bad argument 'd_model' to 'TransformerEncoderLayer' (a number from 1 on is needed, got -1)")
  names("a class by its own argument, also if the value became a list", function()
    return (moth.ops.Conv2dNormActivation { 2, 3, stride = -1 })
  end, "bad argument 'stride' to 'Conv2dNormActivation'")
  names("other of view_as, expand_as and reshape_as", function()
    return (moth.ones(2, 3):expand_as(moth.ones(5)))
  end, "bad argument 'other' to 'expand_as'")
  names("append of diff", function() return (moth.diff(x, { append = moth.ones(5, 5) })) end,
    "bad argument 'append' to 'diff'")
  names("bias of bilinear", function()
    return (F.bilinear(x, moth.ones(2, 4), moth.ones(5, 3, 4), moth.ones(1, 1, 5)))
  end, "bad argument 'bias' to 'bilinear' ((5) is needed, got f32 (1, 1, 5))")
  names("positive of triplet_margin_with_distance_loss", function()
    return (F.triplet_margin_with_distance_loss(x, moth.ones(1, 2, 3), x))
  end, "bad argument 'positive' to 'triplet_margin_with_distance_loss' (2 dimensions are needed")
  names("eps of a layer that learns its size", function()
    return (nn.LazyBatchNorm1d { eps = -1 })
  end, "bad argument 'eps' to 'LazyBatchNorm1d' (a number from 0 on is needed, got -1)")
  names("settings of layers of moth.ops", function()
    return (moth.ops.StochasticDepth(2, "row"))
  end, "bad argument 'p' to 'StochasticDepth' (a number from 0 to 1 is needed, got 2)")
  names("p of cond, also a tensor", function() return (L.cond(moth.eye(3), T(2))) end,
    "bad argument 'p' to 'cond' (the norms of matrices are")

  it("the only tensor of a function is the argument, if the message has none", function()
    says(function() return (F.alpha_dropout(moth.ones(3):long(), 0.5, true)) end,
      "bad argument 'input' to 'alpha_dropout' (a floating dtype is needed")
  end)
end)

it("help shows defaults that are lists", function()
  local text = process.shell(process.program .. " -e 'local moth = require \"moth\" "
    .. "moth.help(moth.optim.Adam)' 2>&1")
  assert.truthy(text:find("betas = {0.9, 0.999}", 1, true))
end)

-- Ops that no user's argument reaches: shifts of positions, and parts of gradients.
local INTERNAL = " bessel_of binomial_of bounded chance_loss chance cell count_from_one "
  .. "distance frexp_of from_index fused gamma logit_loss outer_sum outer_sum_rows "
  .. "outer_sums positions polynomial_of positions_there quantile_of recur recurrent "
  .. "row_pick row_place shrink standard_gamma to_index unscale_ "

it("hidden ops have a public name in messages", function()
  local registry, blame = require "spec.support.registry", require "moth.error.blame"
  for _, op in ipairs(registry.ops()) do
    local name = blame.public(op.name)
    local known = pcall(function() return moth.ones(1)[name] end)
    for _, space in ipairs { moth, F, L, moth.special, moth.fft, moth.optim, moth.ops, nn.utils,
                          moth.transforms.functional } do
      known = known or pcall(function() return space[name] end)
    end
    known = known or INTERNAL:find(" " .. name .. " ", 1, true)
    assert.truthy(known, op.name .. " is told as " .. name)
  end
end)

describe("the traceback of an uncaught error", function()
  local code = [['local moth = require "moth"
    local function inner(x) local y = moth.corrcoef(x) return y end
    local function outer() local y = inner(moth.ones(2, 3, 4)) return y end outer()']]
  local function run(before)
    return process.shell(before .. " " .. process.program .. " -e " .. code .. " 2>&1")
  end

  it("shows the user's frames only", function()
    local text = run("")
    assert.truthy(text:find("in function 'inner'", 1, true), text)
    assert.truthy(text:find("in function 'outer'", 1, true), text)
    assert.is_nil(text:find("lua/moth", 1, true), text)
    assert.is_nil(text:find("[C]", 1, true), text)
  end)

  it("shows all frames with MOTH_TRACEBACK=full", function()
    local text = run("MOTH_TRACEBACK=full")
    assert.truthy(text:find("lua/moth", 1, true), text)
    assert.truthy(text:find("[C]", 1, true), text)
  end)
end)

describe("an error in a replay", function()
  it("names the function that the step called, not one of its ops", function()
    local embedding, y = nn.Embedding(5, 3), T { 1LL, 2LL }
    local step = moth.capture(function(tokens, target)
      local loss = F.cross_entropy(embedding(tokens), target)
      loss:backward()
      return loss
    end)
    for _ = 1, 4 do step(T { 1LL, 2LL }, y) end
    local text = says(function() return (step(T { 1LL, 9LL }, y)) end, "to 'embedding'", "token 9")
    assert.is_nil(text:find("embedding_rows", 1, true))
    text = says(function() return (step(y, T { 1LL, 9LL })) end, "'cross_entropy'", "class 9")
    assert.is_nil(text:find("class_entropy", 1, true))
  end)
end)

it("plain Lua says that Moth needs LuaJIT", function()
  local root = require("moth.error").root
  local env = { _VERSION = "Lua 5.4", rawget = rawget, error = error }
  env._G = env
  local chunk = setfenv(assert(loadfile(root .. "lua/moth/init.lua")), env)
  says(chunk, "Moth needs LuaJIT 2.1 and was loaded by Lua 5.4", "run the program with luajit")
end)
