--- named_spec.lua -- Moth's layers accept named arguments, as ops do; a user's net receives its
-- arguments unchanged.

local moth = require "moth"
local class = require "moth.base.class"
local help = require "moth.help"
local intact = require "spec.support.intact"

local nn, F = moth.nn, moth.nn.functional
local refuses = intact.refuses

local function same(wanted, ...)
  for i = 1, select("#", ...) do assert.same(wanted:tolist(), (select(i, ...)):tolist()) end
end

describe("a layer called with names", function()
  local x = moth.randn(5, 3, 4)

  it("accepts a state", function()
    local h, c = moth.randn(1, 3, 6), moth.randn(1, 3, 6)
    local lstm, gru = nn.LSTM(4, 6), nn.GRU(4, 6)
    same((lstm(x, {h, c})), (lstm{x, {h, c}}), (lstm{x, hx = {h, c}}), (lstm(x, {hx = {h, c}})),
      (lstm{hx = {h, c}, input = x}))
    same((gru(x, h)), (gru{x, h}), (gru{x, hx = h}), (gru(x, {hx = h})))
    local cell = nn.LSTMCell(4, 6)
    local _, wanted = cell(x[1], {h[1], c[1]})
    local _, got = cell{x[1], hx = {h[1], c[1]}}
    same(wanted, got)
  end)

  it("accepts offsets, sizes and targets", function()
    local tokens, offsets = moth.tensor{1LL, 2LL, 3LL}, moth.tensor{0LL, 2LL}
    local bag = nn.EmbeddingBag{10, 3, mode = "sum"}
    local w = moth.rand(3)
    same(bag(tokens, offsets, w), bag{tokens, offsets, per_sample_weights = w},
      bag(tokens, {offsets = offsets, per_sample_weights = w}),
      bag(tokens, {offsets, per_sample_weights = w}))
    local up, image = nn.ConvTranspose2d(1, 1, 3, {stride = 2}), moth.randn(1, 1, 4, 4)
    same(up(image, {10, 9}), up{image, output_size = {10, 9}}, up(image, {output_size = {10, 9}}))
    local y, at = F.max_pool2d(moth.randn(1, 1, 5, 5), {kernel_size = 2, return_indices = true})
    local unpool = nn.MaxUnpool2d(2)
    same(unpool(y, at, {5, 5}), unpool{y, at, output_size = {5, 5}},
      unpool{y, indices = at, output_size = {5, 5}})
    local scores, loss = moth.randn(2, 3), nn.CrossEntropyLoss()
    same(loss(scores, {1, 3}), loss{input = scores, target = {1, 3}}, loss{scores, {1, 3}},
      loss(scores, {target = moth.tensor{1LL, 3LL}}))
    local ctc, logp = nn.CTCLoss(), F.log_softmax(moth.randn(6, 2, 4), 3)
    local targets = moth.tensor{{2LL, 3LL}, {4LL, 2LL}}
    same(ctc(logp, targets, {6, 5}, {2, 1}), ctc{logp, targets, {6, 5}, {2, 1}},
      ctc{logp, targets, target_lengths = {2, 1}, input_lengths = {6, 5}})
    local triplet = nn.TripletMarginLoss()
    same(triplet(x, x * 2, x - 1), triplet{x, negative = x - 1, positive = x * 2})
  end)

  it("accepts all arguments of a layer with one argument", function()
    local known = 0
    for _, name in ipairs(nn.names()) do
      local layer = nn[name]
      local forward = class.isclass(layer) and rawget(layer, "forward")
      local written = forward and class.written(forward)
      if written and written ~= forward and debug.getinfo(written, "u").nparams == 2
         and name ~= "Sequential" and name ~= "Identity" then
        local _, problem = pcall(forward, setmetatable({}, {}), {inputs = x})
        assert.has_match("no argument 'inputs'; did you mean 'input'", problem, name)
        known = known + 1
      end
    end
    assert.is_true(known > 60)
    same(nn.ReLU()(x), nn.ReLU(){input = x}, nn.ReLU(){x})
    local words = nn.Embedding(4, 2) -- for which a list is a value
    same(words({1, 3}), words{input = {1, 3}}, words{input = moth.tensor{1LL, 3LL}})
  end)

  it("accepts them also if it is a lazy layer", function()
    local linear, up = nn.LazyLinear(3), nn.LazyConvTranspose2d(1, 3, {stride = 2})
    assert.same({5, 3, 3}, {unpack(linear{input = x}.shape)})
    assert.same({5, 3, 3}, {unpack(linear{input = x}.shape)})
    for _ = 1, 2 do
      local y = up{moth.randn(1, 2, 4, 4), output_size = {10, 10}}
      assert.same({1, 1, 10, 10}, {unpack(y.shape)})
    end
    refuses(function() return (linear{inputs = x}) end, "'Linear' has no argument 'inputs'")
  end)

  it("accepts a list without names after the required arguments, and so does a function", function()
    local layer = nn.TransformerDecoderLayer(4, 2, 8, {dropout = 0})
    same(layer(x, x), layer(x, x, {}))
    same(F.linear(x, moth.ones(2, 4)), F.linear(x, moth.ones(2, 4), {}))
    refuses(function() return (layer(x, {})) end, "'memory' to 'TransformerDecoderLayer")
  end)

  it("raises for unknown, repeated and too many arguments", function()
    local lstm, relu = nn.LSTM(4, 6), nn.ReLU()
    refuses(function() return (lstm{x, h0 = x}) end,
      "'LSTM' has no argument 'h0'; did you mean 'hx'")
    refuses(function() return (lstm(x, {x, x}, {hx = x})) end, "'hx' to 'LSTM' (given twice")
    refuses(function() return (relu{x, input = x}) end, "'input' to 'ReLU' (given twice")
    refuses(function() return (relu{x, x}) end, "'ReLU' takes 1 argument, got one more: f32")
    refuses(function() return (lstm{hx = x}) end, "'input' to 'LSTM'")
    refuses(function() return (nn.MSELoss(){input = x, targ = x}) end, "has no argument 'targ'")
    refuses(function() return (nn.Linear(4, 2){}) end, "'input' to 'linear'")
  end)

  it("passes each argument to its hooks in its place", function()
    local lstm, seen = nn.LSTM(4, 6), nil
    local attention = nn.MultiheadAttention(4, 2)
    local function hook(_, args) seen = args end
    lstm:register_forward_pre_hook(hook)
    attention:register_forward_pre_hook(hook)
    local h = moth.randn(1, 3, 6)
    local wanted = nn.LSTM.forward(lstm, x, {h, h})
    same(wanted, (lstm{input = x, hx = {h, h}}))
    assert.equal(x, seen[1])
    assert.equal(h, seen[2][2])
    local _, weights = attention{x, x, x, need_weights = false}
    assert.is_nil(weights)
    assert.is_false(seen[5])
    local grads
    lstm:register_full_backward_hook(function(_, grad_input) grads = grad_input end)
    local input = moth.randn(5, 3, 4, {requires_grad = true})
    lstm{hx = {h, h}, input = input}:sum():backward()
    same(input.grad, grads[1])
  end)

  it("is described by help", function()
    local text = help.text(nn.EmbeddingBag)
    assert.is_truthy(text:find("net(input, offsets = none, per_sample_weights = none)", 1, true))
    assert.is_truthy(help.text(nn.CosineSimilarity):find("net(x1, x2)", 1, true))
  end)
end)

describe("a user's net", function()
  it("receives tables unchanged", function()
    local Net = nn.class("Net", nn.Module)
    local got
    function Net:forward(...) -- luacheck: ignore 212
      got = {...}
      return got[1].input or got[1]
    end
    local x = moth.ones(2)
    same(x, Net(){input = x}, nn.Sequential(Net()){input = x})
    assert.equal(x, got[1].input)
    local Plain = nn.class("Plain", nn.Module)
    function Plain:forward(batch, scale) -- luacheck: ignore 212
      return (batch.batch or batch[1]) * (scale or 1)
    end
    same(x, Plain(){x}, Plain(){x, x}, Plain(){batch = x}, Plain()({x}, 1))
    local Own = nn.class("Own", nn.Linear)
    function Own:forward(batch) return nn.Linear.forward(self, batch.images) end
    assert.same({3}, {unpack(Own(2, 3){images = x}.shape)})
    local hooked, args = Own(2, 3), nil
    hooked:register_forward_pre_hook(function(_, given) args = given end)
    hooked{images = x}
    assert.equal(x, args[1].images)
    local batch = {x = x}
    assert.equal(batch, nn.Identity()(batch))
  end)
end)
