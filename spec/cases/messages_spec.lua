-- Claims on messages: the function that was called and its argument are named, positions count from
-- 1, and tracebacks show the user's frames.

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

describe("a function made of others answers in its own name:", function()
  local function answers(name, fn, ...)
    local wanted = { ... }
    it(name, function() says(fn, unpack(wanted)) end)
  end

  answers("multi_margin_loss", function()
    return (F.multi_margin_loss(T { { .1, .2, .7 } }, T { 9LL }))
  end, "bad argument 'target' to 'multi_margin_loss' (position 9 is out of range")
  answers("max_unpool2d", function()
    return (F.max_unpool2d(moth.ones(1, 1, 2, 2), T { { { { 1LL, 2LL }, { 3LL, 400LL } } } }, 2))
  end, "bad argument 'indices' to 'max_unpool2d' (position 400", "indices is i64 (1, 1, 2, 2)")
  answers("triplet_margin_with_distance_loss", function()
    return (F.triplet_margin_with_distance_loss(moth.ones(2, 3), moth.ones(2, 3), moth.ones(4, 5)))
  end, "bad argument 'negative' to 'triplet_margin_with_distance_loss' (f32 (4, 5)")
  answers("gradient", function() return (moth.gradient(moth.ones(3), { dim = { 9 } })) end,
    "gradient: 9 is out of range for 1 dimension")
  answers("logcumsumexp", function() return (moth.logcumsumexp(moth.ones(3), 9)) end,
    "bad argument 'dim' to 'logcumsumexp' (dim 9 is out of range: wanted 1 to 1")
  answers("hsplit", function() return (moth.hsplit(moth.ones(3), 9)) end,
    "bad argument 'indices_or_sections' to 'hsplit' (a divisor of 3")
  answers("nn.Embedding", function() return (nn.Embedding(-1, 3)) end, "Embedding", "{-1, 3}")
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

  it("an op within a module, by the module's path", function()
    says(function() return (nn.Sequential(nn.Linear(3, 2))(moth.ones(4))) end, "[1]: bad argument "
      .. "'input' to 'linear'")
  end)

  it("an op in a function of the user's, at the user's line", function()
    local text = says(function()
      return (moth.func.vmap(function(x) return (x:add(moth.ones(7))) end)(moth.ones(2, 3)))
    end, "'other' to 'add'")
    assert.truthy(text:find "^spec/cases/messages_spec.lua:%d+: ")
  end)
end)

describe("positions count from 1 in", function()
  it("roll", function()
    says(function() return (moth.roll(moth.ones(3, 3), { 1, 2 }, { 2 })) end,
      "bad argument 'shifts' to 'roll' (one for each of the dims {2} is needed, got 2)")
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

  it("tells a cell and a recurrent net the features of the input", function()
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

  it("has one dimension in the singular", function()
    says(function() return (moth.hsplit(T(1), 2)) end, "at least 1 dimension is needed")
    says(function() return (moth.ones(7)[{ 1, 1 }]) end, "with 1 dimension")
  end)
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

  it("shows all with MOTH_TRACEBACK=full", function()
    local text = run("MOTH_TRACEBACK=full")
    assert.truthy(text:find("lua/moth", 1, true), text)
    assert.truthy(text:find("[C]", 1, true), text)
  end)
end)

describe("an error in a replay", function()
  it("names the function that the step called, not an op that it is made of", function()
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

it("plain Lua is told that Moth needs LuaJIT", function()
  local root = require("moth.error").root
  local env = { _VERSION = "Lua 5.4", rawget = rawget, error = error }
  env._G = env
  local chunk = setfenv(assert(loadfile(root .. "lua/moth/init.lua")), env)
  says(chunk, "Moth needs LuaJIT 2.1 and was loaded by Lua 5.4", "run the program with luajit")
end)
