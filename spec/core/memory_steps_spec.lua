-- Memory of training steps: tensors that are freed without a collection, and the time of
-- collections.

local moth = require "moth"
local lib = require "moth.binding.lib"

local nn, F, optim = moth.nn, moth.nn.functional, moth.optim
local C, ctx = lib.C, lib.ctx

local ROWS, WIDTH = 64, 1024
local BYTES = ROWS * WIDTH * 4

-- The peak of f() beyond the live bytes before, with its garbage: there is no collection.
local function peak_of(f)
  moth.collect()
  local collect, before = lib.collect, moth.memory().live_bytes
  lib.collect = function() return false end
  collectgarbage "stop"
  moth.reset_peak_memory()
  local ok, problem = pcall(f)
  collectgarbage "restart"
  lib.collect = collect
  assert(ok, problem)
  return moth.memory().peak_bytes - before
end

local function at_most(bytes, peak)
  assert.is_true(peak <= bytes, ("%d bytes, not %d"):format(peak, bytes))
end

-- Handles that f() leaves without a collection.
local function left_by(f)
  f()
  moth.collect()
  local before, results = moth.memory().live_handles, nil
  peak_of(function() results = { f() } end)
  return moth.memory().live_handles - before, results
end

describe("a composite function", function()
  local a, b = moth.randn(40, 8), moth.randn(40, 8)
  local sign = moth.ones(40)
  local at, images = moth.range(1, 40), moth.randn(2, 3, 8, 8)

  it("frees its intermediate tensors when it returns", function()
    for name, f in pairs {
      cdist = function() return moth.cdist(a, b) end,
      einsum = function() return moth.einsum("ij,kj,kl->il", a, b, a) end,
      quantile = function() return moth.quantile(a, 0.3, 2) end,
      gumbel_softmax = function() return F.gumbel_softmax(a, { hard = true }) end,
      bilinear = function() return F.bilinear(a, b, moth.ones(3, 8, 8)) end,
      pairwise_distance = function() return F.pairwise_distance(a, b) end,
      triplet_margin_loss = function() return F.triplet_margin_loss(a, b, a * 2) end,
      cosine_embedding_loss = function() return F.cosine_embedding_loss(a, b, sign) end,
      poisson_nll_loss = function() return F.poisson_nll_loss(a, sign:unsqueeze(2)) end,
      pdist = function() return F.pdist(a) end,
      cov = function() return a:cov() end,
      corrcoef = function() return a:corrcoef() end,
      trapezoid = function() return moth.trapezoid(a) end,
      logaddexp2 = function() return moth.logaddexp2(a, a) end,
      cartesian_prod = function() return moth.cartesian_prod(sign, sign) end,
      block_diag = function() return moth.block_diag(a, b) end,
      tensordot = function() return moth.tensordot(a, b, {dims = {{2}, {2}}}) end,
      renorm = function() return a:renorm(2, 1, 0.5) end,
      triu_indices = function() return moth.triu_indices(4, 4) end,
      index_reduce = function() return a:index_reduce(1, at, b, "prod") end,
      entr = function() return moth.special.entr(sign) end,
      xlog1py = function() return moth.special.xlog1py(sign, sign) end,
      alpha_dropout = function() return F.alpha_dropout(a, {training = true}) end,
      ctc_loss = function() return F.ctc_loss(a:log_softmax(2), {2, 3, 2}, 40, 3) end,
      fractional_max_pool2d = function() return F.fractional_max_pool2d(images, 2, 5) end,
      interpolate = function()
        return F.interpolate(images, {3, 4}, {mode = "bicubic", antialias = true})
      end,
      trunc_normal_ = function() return nn.init.trunc_normal_(moth.empty(9, 5)) end,
      orthogonal_ = function() return nn.init.orthogonal_(moth.empty(9, 5)) end,
    } do
      local extra = ({ bilinear = 1, triplet_margin_loss = 1, poisson_nll_loss = 1,
                        ctc_loss = 1 })[name] or 0
      assert.equal(1 + extra, (left_by(f)), name)
    end
    assert.equal(2, (left_by(function() return moth.nanmedian(a, 1) end)))
    assert.equal(2, (left_by(function() return moth.gradient(a) end)))
  end)

  it("keeps those that gradients need, and frees all after an error", function()
    local x, y = moth.randn(4, 3):requires_grad_(), moth.randn(5, 3):double()
    local near = moth.cdist(x, y:float())
    near:sum():backward()
    local far = (x:detach():unsqueeze(2) - y:float())
    local wanted = (far / far:norm(2, -1, true)):sum(2)
    assert.is_true(x.grad:allclose(wanted, 1e-4, 1e-5))
    local short = moth.randn(2)
    moth.collect()
    local before = moth.memory().live_handles
    assert.has_error(function() F.cosine_similarity(x, short) end)
    assert.equal(before, moth.memory().live_handles)
  end)
end)

describe("a Transformer layer", function()
  local x = moth.randn(5, 2, 8)

  local function layers()
    return nn.TransformerEncoderLayer(8, 2, 16), nn.TransformerDecoderLayer(8, 2, 16)
  end

  it("frees its intermediate tensors when it returns, and those of earlier layers", function()
    local encoder, decoder = layers()
    assert.equal(1, (left_by(function() return encoder(x) end)))
    assert.equal(1, (left_by(function() return decoder(x, x) end)))
    assert.equal(2, (left_by(function() return encoder.self_attn(x, x, x) end)))
    local several = nn.TransformerEncoder(encoder, 3, nn.LayerNorm(8))
    assert.equal(1, (left_by(function() return several(x) end)))
    assert.equal(5, several(x):size(1))
    several = nn.TransformerDecoder(decoder, 3)
    assert.equal(1, (left_by(function() return several(x, x) end)))
  end)

  it("keeps them for a hook, a Lua activation and a module written by the user", function()
    local seen
    local function keeps(y)
      seen = y
      return y
    end
    local function check(encoder)
      seen = nil
      encoder(x)
      assert.equal(5, seen:size(1))
    end
    local hooked = layers()
    hooked(x)
    local hook = hooked.self_attn.out_proj:register_forward_hook(function(_, _, y) seen = y end)
    check(hooked)
    hook:remove()
    check(nn.TransformerEncoderLayer{ 8, 2, 16, activation = keeps })
    local Mine = nn.class("Mine", nn.Module)
    function Mine:forward(y) return (keeps(y)) end -- luacheck: ignore 212
    local replaced = layers()
    replaced(x)
    replaced.norm1 = Mine()
    check(replaced)
    local patched = layers()
    patched(x)
    function patched.dropout2.forward(_, y) return (keeps(y)) end
    check(patched)
    local swapped = layers()
    swapped(x)
    swapped.norm1 = nil
    swapped.norm1 = keeps
    check(swapped)
    local attention = nn.MultiheadAttention(8, 2)
    attention(x, x, x)
    attention.out_proj = nil
    attention.out_proj = keeps
    check(function(z) attention(z, z, z) end)
    local last = nn.TransformerEncoder(layers(), 2, Mine())
    local y = last(x)
    assert.equal(seen, y)
    last.layers[1] = Mine()
    last(x)
    assert.equal(5, seen:size(1))
  end)

  it("keeps those that gradients need", function()
    local net = nn.TransformerEncoder(layers(), 2):eval()
    local parameters = net:parameters()
    net(x):square():sum():backward()
    local grads = {}
    for i, p in ipairs(parameters) do grads[i], p.grad = p.grad, nil end
    local hook = net.layers[1].norm1:register_forward_hook(function() end) -- no early frees
    net(x):square():sum():backward()
    hook:remove()
    for i, p in ipairs(parameters) do assert.is_true(grads[i]:equal(p.grad)) end
  end)
end)

describe("nn.Sequential", function()
  local function chain(...)
    local list = {}
    for _ = 1, 8 do
      for _, make in ipairs { ... } do list[#list + 1] = make() end
    end
    return nn.Sequential(list)
  end

  local x = moth.randn(ROWS, WIDTH)

  it("frees a result as soon as the next of Moth's layers has read it", function()
    at_most(3 * BYTES, peak_of(function() moth.no_grad(chain(nn.Tanh, nn.ReLU), x) end))
  end)

  it("does so if layers return their input, and for many layers", function()
    local net = chain(nn.Tanh, nn.Identity, function() return nn.ReLU{ inplace = true } end)
    at_most(3 * BYTES, peak_of(function() moth.no_grad(net, x) end))
    local long = nn.Sequential()
    for _ = 1, 70 do long:append(nn.Tanh()) end
    at_most(3 * BYTES, peak_of(function() moth.no_grad(long, x) end))
  end)

  it("keeps the caller's input and the result", function()
    local net = nn.Sequential(nn.Identity(), nn.Tanh(), nn.Identity())
    local y = net(x)
    assert.equal(ROWS, y:size(1))
    assert.equal(ROWS, x:size(1))
    assert.is_true(moth.equal(y, x:tanh()))
  end)

  it("keeps results for a user's module, a hook, and a replaced forward of a layer", function()
    local Keeping = nn.class("Keeping", nn.Module)
    function Keeping:forward(input)
      self.input = input
      return input * 1
    end
    local net = nn.Sequential(nn.Tanh(), Keeping(), nn.Tanh())
    net(x)
    assert.is_true(moth.equal(net[2].input, x:tanh()))

    local seen
    net = nn.Sequential(nn.Tanh(), nn.Tanh(), nn.Tanh())
    net(x)
    local hook = net[2]:register_forward_hook(function(_, args) seen = args[1] end)
    net(x)
    assert.is_true(moth.equal(seen, x:tanh()))
    hook:remove()

    net = nn.Sequential(nn.Tanh(), nn.Tanh(), nn.Tanh())
    net(x)
    net[2].forward = function(_, input)
      seen = input
      return input * 1
    end
    net(x)
    assert.is_true(moth.equal(seen, x:tanh()))
    net[2] = Keeping()
    net(x)
    assert.is_true(moth.equal(net[2].input, x:tanh()))
  end)

  it("keeps those that gradients need", function()
    local net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Dropout(0), nn.Linear(5, 1))
    local input = moth.randn(3, 4)
    net(input):sum():backward()
    local h = net[2](net[1](input))
    local expected = moth.autograd.grad(net[4](h):sum(), net[1].weight)
    assert.is_true(moth.allclose(net[1].weight.grad, expected))
  end)
end)

describe("a backward pass", function()
  it("writes the gradient of an elementwise function over the gradient of its result", function()
    local x = moth.randn(ROWS, WIDTH):requires_grad_()
    local y = x:tanh():sigmoid():relu()
    local g = y:sum()
    at_most(2 * BYTES + 64, peak_of(function() g:backward() end))
    x.grad = nil
    local first = x:tanh():sigmoid()
    local expected = moth.autograd.grad(first:sum(), x, { create_graph = true })
    first:sum():backward()
    assert.is_true(moth.allclose(expected, x.grad))
  end)

  it("does not overwrite a gradient with other references", function()
    local x = moth.randn(ROWS, WIDTH):requires_grad_()
    local dy = moth.ones(ROWS, WIDTH)
    x:tanh():backward(dy)
    assert.equal(dy:numel(), dy:sum():item())
    local seen
    local y = x:tanh()
    y:register_hook(function(grad) seen = grad end)
    local z = y * 3
    z:retain_grad()
    z:sigmoid():sum():backward()
    assert.is_true(moth.allclose(seen, z.grad * 3))
  end)

  it("frees a layer's saved tensors before it allocates the gradient", function()
    local layer = nn.Linear(WIDTH, 8)
    local h = moth.randn(ROWS, WIDTH):requires_grad_():tanh()
    local loss = layer(h * 1):sum()
    local weight = WIDTH * 8 * 4
    at_most(weight + ROWS * 8 * 4 + 8 * 4 + 64, peak_of(function() loss:backward() end) - BYTES)
  end)

  it("can run again on a retained graph", function()
    local layer = nn.Linear(WIDTH, 8)
    local loss = layer(moth.randn(ROWS, WIDTH)):sum()
    loss:backward{ retain_graph = true }
    local first = layer.weight.grad:clone()
    loss:backward()
    assert.is_true(moth.allclose(layer.weight.grad, first * 2))
    assert.has_error(function() loss:backward() end)
  end)
end)

describe("gradients that an optimizer or clipping has read", function()
  it("are freed by zero_grad, without a collection", function()
    for _, name in ipairs { "SGD", "Adam", "NAdam", "RMSprop" } do
      local p = nn.Parameter(moth.randn(WIDTH, WIDTH))
      local optimizer = optim[name]({ p }, { lr = 0.1 })
      p.grad = moth.ones(WIDTH, WIDTH)
      moth.collect()
      local handles = moth.memory().live_handles
      nn.utils.clip_grad_norm_({ p }, 1)
      nn.utils.clip_grad_value_({ p }, 1)
      optimizer:step()
      local states = 0
      for _, own in pairs(optimizer.state) do
        for _, value in pairs(own) do states = states + (lib.istensor(value) and 1 or 0) end
      end
      local before = moth.memory().live_bytes
      optimizer:zero_grad()
      assert.equal(WIDTH * WIDTH * 4, before - moth.memory().live_bytes, name)
      assert.is_true(moth.memory().live_handles <= handles + states + 2, name) -- the norm, a loss
    end
  end)

  it("stay alive if they have other references", function()
    local p = nn.Parameter(moth.randn(4))
    p.grad = moth.ones(4)
    local grad = p.grad
    nn.utils.clip_grad_norm_({ p }, 100)
    optim.SGD({ p }, { lr = 0.1, momentum = 0.9 }):step()
    assert.equal(4, grad:sum():item())
  end)
end)

describe("a collection", function()
  local MIB = 2 ^ 20
  after_each(moth.collect)

  -- As if the last collection had just ended.
  local function took(seconds, heap)
    C.moth_swept(ctx, 1, seconds, 0, heap)
  end

  -- True if a collection is due after an allocation of so many bytes.
  local function asked_after(bytes)
    local collect, asked = lib.collect, false
    lib.collect = function() asked = true end
    moth.empty(math.floor(bytes / 4)):free()
    lib.collect = collect
    return asked
  end

  it("runs for a MiB of garbage if it costs nothing", function()
    took(0, 0)
    assert.is_true(asked_after(moth.memory().live_bytes / 32 + 2 * MIB))
  end)

  it("waits until live bytes are near the last peak, and not longer", function()
    local live = moth.empty(16 * MIB) -- 64 MiB
    took(0, 0)
    live:free()
    moth.scope(function() end) -- bytes may have fallen at the end of a collection
    assert.is_false(asked_after(20 * MIB))
    assert.is_true(asked_after(62 * MIB))
  end)

  it("waits if it would use more than its share of the time", function()
    moth.collect()
    local live = moth.memory().live_bytes
    took(1000, 0)
    assert.is_false(asked_after(14 * MIB))
    took(1000, 100 * MIB)
    assert.is_false(asked_after(390 * MIB))
    took(1000, 0)
    assert.is_true(asked_after(math.max(16 * MIB, live) + MIB))
    took(1000, 100 * MIB)
    assert.is_true(asked_after(math.max(400 * MIB, live) + MIB))
    took(1000, 2 ^ 40)
    assert.is_true(asked_after(math.max(1024 * MIB, live) + MIB))
    took(0, 0)
  end)

  it("runs earlier if its garbage would leave the CPU's caches", function()
    moth.collect()
    took(0.002, 200 * MIB) -- its limit is 800 MiB
    assert.is_false(asked_after(100 * MIB))
    took(0.002, 200 * MIB)
    assert.is_true(asked_after(700 * MIB))
    took(0, 0)
  end)

  it("runs before a backward pass", function()
    local live = moth.empty(64 * MIB) -- 256 MiB: without it, 3 MiB are enough at any time
    local w = moth.randn(512, 512):requires_grad_()
    local loss = (w * 2):sum()
    moth.collect()
    took(0, 0)
    local before = moth.memory().collections
    moth.empty(3 * MIB / 4)
    assert.equal(before, moth.memory().collections)
    loss:backward()
    assert.equal(before + 1, moth.memory().collections)
    assert.equal(2 * 512 * 512, w.grad:sum():item())
    live:free()
  end)
end)

describe("training steps in a scope", function()
  it("need no more memory than without a scope", function()
    local net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    local optimizer = optim.SGD(net:parameters(), { lr = 0.1, momentum = 0.9 })
    local x, y = moth.randn(256, 64), moth.randint(1, 11, { 256 })
    local function step()
      optimizer:zero_grad()
      F.cross_entropy(net(x), y):backward()
      optimizer:step()
    end
    for _ = 1, 3 do moth.scope(step) end
    local after = moth.memory().live_bytes
    for _ = 1, 3 do moth.scope(step) end
    assert.equal(after, moth.memory().live_bytes)
    local peak = peak_of(function() moth.scope(step) end)
    at_most(4 * 256 * 256 * 4, peak)
  end)
end)
