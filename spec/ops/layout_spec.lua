-- Memory formats: PyTorch's names for layouts of images, and the ops that keep a layout.

local moth = require "moth"
local cuda = require "spec.support.cuda"

local nn, F = moth.nn, moth.nn.functional
local LAST, LAST_3D = moth.channels_last, moth.channels_last_3d

local function strides(x)
  local list = {}
  for d = 1, x:dim() do list[d] = x:stride(d) end
  return list
end

local function images(...) return moth.randn(...):to { memory_format = LAST } end
local function is_last(x)
  return x:is_contiguous { memory_format = x:dim() == 5 and LAST_3D or LAST }
end
local function close(x, y, most)
  local off = (x:cpu():double() - y:cpu():double()):abs():max():item()
  return off <= most * math.max(1, y:abs():max():item())
end

before_each(function() moth.manual_seed(1) end)

describe("channels_last", function()
  it("has PyTorch's strides, with the same shape and values", function()
    local x = moth.arange(0, 120):view(2, 3, 4, 5)
    local y = x:to { memory_format = LAST }
    assert.same({ 60, 1, 15, 3 }, strides(y))
    assert.same({ 60, 20, 5, 1 }, strides(y:contiguous()))
    assert.same(x:tolist(), y:tolist())
    assert.same({ 60, 20, 5, 1 }, strides(y:to { memory_format = moth.contiguous_format }))
    assert.same({ 60, 1, 15, 3 }, strides(y:to { memory_format = moth.preserve_format }))
    assert.same({ 60, 1, 15, 3 }, strides(x:contiguous { memory_format = LAST }))
    assert.same({ 60, 1, 15, 3 }, strides(x:clone { memory_format = LAST }))
    assert.same({ 60, 1, 15, 3 }, strides(x:to { copy = true, memory_format = LAST }))
  end)

  it("is called channels_last_3d for volumes", function()
    local x = moth.arange(0, 720):view(2, 3, 4, 5, 6)
    local y = x:to { memory_format = LAST_3D }
    assert.same({ 360, 1, 90, 18, 3 }, strides(y))
    assert.same(x:tolist(), y:tolist())
    assert.is_true(y:is_contiguous(LAST_3D))
    assert.is_false(y:is_contiguous(LAST))
    assert.is_false(y:is_contiguous())
    assert.is_false(x:is_contiguous(LAST_3D))
    assert.is_false(images(2, 3, 4, 5):is_contiguous(LAST_3D))
    assert.equal(y, y:contiguous(LAST_3D))
    for _, z in ipairs { y * 2, y:clone(), moth.relu(y), moth.zeros_like(y), y:double(),
      x:contiguous(LAST_3D), moth.ones_like(x, { memory_format = LAST_3D }) } do
      assert.same({ 360, 1, 90, 18, 3 }, strides(z))
    end
    assert.same(y:mul(2):tolist(), x:mul(2):tolist())
    assert.same({ 360, 120, 30, 6, 1 }, strides(y:contiguous()))
    local leaf = y:double():requires_grad_()
    leaf:pow(2):sum():backward()
    assert.is_true(is_last(leaf.grad))
    assert.same((x * 2):tolist(), leaf.grad:tolist())
  end)

  it("is recognized by is_contiguous, also together with contiguous for sizes of 1", function()
    local x = images(2, 3, 4, 5)
    assert.is_true(is_last(x))
    assert.is_true(x:is_contiguous(LAST))
    assert.is_false(x:is_contiguous())
    assert.is_false(is_last(x:contiguous()))
    assert.is_false(is_last(moth.ones(3, 4)))
    for _, both in ipairs { images(2, 1, 4, 5), images(2, 3, 1, 1), images(0, 3, 4, 5) } do
      assert.is_true(is_last(both))
      assert.is_true(both:is_contiguous())
    end
  end)

  it("returns the tensor itself if it has that layout", function()
    local x = images(2, 3, 4, 5)
    assert.equal(x, x:to { memory_format = LAST })
    assert.equal(x, x:contiguous { memory_format = LAST })
  end)

  it("raises for other than four dimensions, and for other formats by name", function()
    for _, copy in ipairs { false, true } do
      assert.has_error_like(function()
        moth.ones(2, 3):to { copy = copy, dtype = moth.float64, memory_format = LAST }
      end, "'memory_format' to 'to' %(.*%(N, C, H, W%), got %(2, 3%)")
      assert.has_error_like(function() moth.ones(3):to { copy = copy, memory_format = LAST } end,
        "'memory_format' to 'to' %(.*%(N, C, H, W%), got %(3%)")
    end
    assert.has_error_like(function() moth.ones(2, 3):contiguous(LAST) end,
      "'memory_format' to 'contiguous' %(.*%(N, C, H, W%), got %(2, 3%)")
    assert.has_error_like(function() images(2, 3, 4, 5):contiguous(LAST_3D) end,
      "channels_last_3d is for %(N, C, D, H, W%), got %(2, 3, 4, 5%)")
    assert.has_error_like(function() moth.ones(1, 2, 3, 4, 5):to { memory_format = LAST } end,
      "channels_last is for %(N, C, H, W%), got %(1, 2, 3, 4, 5%)")
    assert.has_error_like(function() moth.zeros_like { moth.ones(3), memory_format = LAST } end,
      "memory_format")
    assert.has_error_like(function() moth.ones(2):to { memory_format = "nhwc" } end,
      "memory_format.*got a string %('nhwc'%)")
    assert.has_error_like(function() moth.ones(2):is_contiguous(moth.preserve_format) end,
      "memory_format")
    assert.has_error_like(function() moth.ones(2):contiguous { memory_format = "rows" } end,
      "channels_last")
  end)

  it("is kept by elementwise functions, copies and casts", function()
    local x, y = images(2, 3, 4, 5), images(2, 3, 4, 5)
    for name, z in pairs { relu = F.relu(x), sum = x + y, number = x * 2, more = x:gt(0),
      cast = x:double(), clone = x:clone(), zeros = moth.zeros_like(x), randn = moth.randn_like(x),
      row = x + moth.randn(5), spread = moth.randn(2, 3, 1, 1):expand(2, 3, 4, 5) * x } do
      assert.is_true(is_last(z), name)
    end
  end)

  it("is not kept if the first of two operands is contiguous, or if a format is given", function()
    local x = images(2, 3, 4, 5)
    assert.is_true((moth.randn(2, 3, 4, 5) + x):is_contiguous())
    assert.is_true(x:clone { memory_format = moth.contiguous_format }:is_contiguous())
    assert.is_true(moth.zeros_like(x, { memory_format = moth.contiguous_format }):is_contiguous())
    assert.is_true(is_last(moth.ones_like(x:contiguous(), { memory_format = LAST })))
  end)

  it("makes view raise and reshape copy", function()
    local x = images(2, 3, 4, 5)
    assert.has_error_like(function() x:view(2, 60) end, "without a copy")
    assert.same(x:contiguous():view(2, 60):tolist(), x:reshape(2, 60):tolist())
    assert.same(x:contiguous():view(2, 60):tolist(), x:flatten(2):tolist())
  end)

  it("can be written in place, through views too", function()
    local x = images(2, 3, 4, 5)
    local y = x:contiguous()
    for _, z in ipairs { x, y } do
      z:mul_(2)
      z[{ {}, 2 }] = 7
      z:narrow(4, 2, 2):add_(1)
    end
    assert.same(y:tolist(), x:tolist())
    assert.is_true(is_last(x))
  end)
end)

describe("elementwise functions", function()
  local base = moth.arange(0, 120):view(2, 3, 4, 5):float()
  --- By name: a tensor, and PyTorch's strides of the results.
  local layouts = {
    permuted = { base:permute(2, 3, 1, 4), { 20, 5, 60, 1 } },
    transposed = { base:transpose(3, 4), { 60, 20, 1, 5 } },
    reversed = { base:permute(4, 3, 2, 1), { 1, 5, 20, 60 } },
    narrowed = { base:permute(2, 3, 1, 4):narrow(4, 2, 3), { 12, 3, 36, 1 } },
    stepped = { base:permute(4, 1, 2, 3)[{ { 1, -1, 2 } }], { 1, 36, 12, 3 } },
    of_one = { base:narrow(2, 2, 1):permute(4, 2, 1, 3), { 1, 20, 20, 5 } },
    repeated = { base:narrow(2, 1, 1):expand(2, 3, 4, 5):permute(4, 3, 2, 1), { 1, 15, 5, 60 } },
  }
  local ops = {
    exp = function(x) return x:exp() end,
    sum = function(x) return x + x end,
    product = function(x) return x * 2 end,
    difference = function(x) return 1 - x end,
    comparison = function(x) return x:gt(3) end,
    choice = function(x) return moth.where(x:gt(3), x, 0) end,
    cast = function(x) return x:double() end,
    half = function(x) return x:half() end,
    clone = function(x) return x:clone() end,
    zeros = function(x) return moth.zeros_like(x) end,
    three = function(x) return moth.addcmul(x, x, x) end,
    gelu = function(x) return F.gelu(x) end,
    clamp = function(x) return x:clamp(1, 2) end,
    lerp = function(x) return x:lerp(x, 0.5) end,
    remainder = function(x) return x:remainder(3) end,
    whole = function(x) return x:long() end,
    power = function(x) return x:pow(x * 0.01) end,
  }

  it("keep the memory order of the input's dimensions, and the bits of the values", function()
    for layout, case in pairs(layouts) do
      for name, f in pairs(ops) do
        local x, wanted = unpack(case)
        local y, z = f(x), f(x:contiguous())
        assert.same(wanted, strides(y), name .. " of " .. layout)
        assert.is_true(z:is_contiguous())
        assert.is_true(z:equal(y:contiguous()), name .. " of " .. layout)
      end
      assert.is_true(case[1]:contiguous():is_contiguous())
    end
  end)

  it("use the order of the first input with different strides", function()
    local x, c = layouts.permuted[1], moth.rand(3, 4, 2, 5)
    local own, rows = { 20, 5, 60, 1 }, { 40, 10, 5, 1 }
    for _, case in ipairs { { x + c, own }, { c + x, rows }, { moth.rand(5) + x, own },
      { x + moth.rand(5), own }, { moth.rand(2, 1) + x, own },
      { moth.where(x:gt(3), c, 0), own }, { moth.where(c:gt(3), x, 0), rows } } do
      assert.same(case[2], strides(case[1]))
    end
    local d = moth.rand(3, 4):t()
    for _, y in ipairs { moth.rand(1, 3) + d, moth.rand(4, 1) + d, moth.rand(3):expand(4, 3) + d,
      moth.rand(6, 4):t()[{ {}, { 1, -1, 2 } }] + d } do
      assert.same({ 1, 4 }, strides(y))
    end
  end)

  it("are right for many elements in short rows, and for two orders", function()
    local x = moth.rand(40, 12, 10, 6)
    for name, y in pairs { permuted = x:permute(2, 3, 1, 4), narrowed = x:narrow(4, 2, 3),
      reversed = x:permute(4, 3, 2, 1), stepped = x[{ {}, {}, {}, { 1, -1, 2 } }] } do
      local z = y:contiguous()
      local mask, w = z:gt(0.5), moth.rand_like(z)
      for f, pair in pairs { exp = { y:exp(), z:exp() }, sum = { y + w, z + w },
        turned = { w - y, w - z }, choice = { moth.where(mask, y, w), moth.where(mask, z, w) },
        masked = { moth.where(y:gt(0.5), w, y), moth.where(mask, w, z) },
        half = { y:half():exp(), z:half():exp() }, power = { y:pow(w), z:pow(w) },
        row = { y + w[1][1][1], z + w[1][1][1] }, three = { moth.addcmul(w, y, y),
          moth.addcmul(w, z, z) }, whole = { (y * 9):long() * 2, (z * 9):long() * 2 } } do
        assert.is_true(pair[2]:equal(pair[1]:contiguous()), f .. " of " .. name)
      end
    end
  end)

  it("return results for which view raises and suggests reshape", function()
    local x = moth.rand(2, 3, 4)
    local y = x:transpose(2, 3):exp()
    assert.has_error_like(function() y:view(-1) end, "without a copy.*use reshape")
    assert.is_true(y:reshape(-1):equal(x:transpose(2, 3):contiguous():exp():view(-1)))
  end)

  it("give a dense leaf a gradient in its order, and other leaves a contiguous one", function()
    local function gradient(p, f, options)
      p = p:requires_grad_()
      f(p):sum():backward(options)
      return p.grad, f
    end
    local x, w = moth.rand(3, 4):double(), moth.rand(4, 3):double()
    local exp = function(p) return p:exp() end
    local grad = gradient(x:t(), exp)
    assert.same({ 1, 4 }, strides(grad))
    assert.is_true(grad:equal(x:t():exp()))
    grad = gradient(x:t():detach(), function(p) return moth.softmax(p * w, 1):pow(2) end)
    assert.same({ 1, 4 }, strides(grad))
    local plain = gradient(x:t():contiguous(),
      function(p) return moth.softmax(p * w, 1):pow(2) end)
    assert.same({ 3, 1 }, strides(plain))
    assert.is_true(close(grad, plain, 1e-12))
    grad = gradient(x:t():detach(), exp, { create_graph = true })
    assert.same({ 1, 4 }, strides(grad))
    assert.is_true(grad.requires_grad)
    grad = gradient(moth.rand(6, 4):t()[{ {}, { 1, -1, 2 } }]:detach(), exp)
    assert.same({ 3, 1 }, strides(grad))
  end)

  it("have the same second derivatives in every order", function()
    assert.is_true(moth.autograd.gradgradcheck(function(a, b)
      return moth.tanh(a:transpose(1, 2) * b):exp() / (b + 3)
    end, { moth.rand(3, 2):double():requires_grad_(), moth.rand(2, 3):double():requires_grad_() }))
  end)

  it("are replayed by a captured step, joined too, and recomputed by a checkpoint", function()
    local function f(x)
      local y = x:permute(2, 3, 1)
      return ((y * 2 + 1):tanh() - y:mean(3, true)):exp()
    end
    local step = moth.capture(function(x) return f(x) end)
    for i = 1, 3 do
      local x = moth.rand(5, 6, 7) * i
      local y = moth.no_grad(step, x)
      assert.is_true(y:contiguous():equal(f(x):contiguous()))
      assert.same(strides(f(x)), strides(y))
    end
    local x = moth.rand(5, 6, 7):double():requires_grad_()
    local a = moth.autograd.grad(f(x):sum(), { x })
    local b = moth.autograd.grad(moth.utils.checkpoint.checkpoint(f, x):sum(), { x })
    if type(a) == "table" then a, b = a[1], b[1] end
    assert.is_true(a:equal(b))
  end)

  it("are reduced, multiplied, saved and loaded like contiguous tensors", function()
    local x = moth.rand(4, 5, 6):permute(3, 1, 2):exp()
    local c = x:contiguous()
    for d = 1, 3 do
      assert.is_true(close(x:sum(d), c:sum(d), 1e-6))
      assert.is_true((x:max(d)):equal((c:max(d))))
      assert.is_true(close(moth.softmax(x, d), moth.softmax(c, d), 1e-6))
    end
    local w = moth.rand(5, 3)
    assert.is_true(close(x:matmul(w), c:matmul(w), 1e-6))
    assert.same(c:tolist(), x:tolist())
    local path = os.tmpname()
    moth.save(x, path)
    local y = moth.load(path)
    os.remove(path)
    assert.is_true(y:is_contiguous() and y:equal(c))
  end)
end)

describe("net:to{memory_format}", function()
  local function net()
    moth.manual_seed(2)
    return nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2),
      nn.Conv2d(6, 4, 2), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 2))
  end

  it("converts parameters of volumes only for channels_last_3d", function()
    local both = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv3d(3, 4, 3))
    local weight = both[2].weight
    both:to { memory_format = LAST_3D }
    assert.equal(weight, both[2].weight)
    assert.is_true(is_last(weight))
    assert.is_false(is_last(both[1].weight))
    both:to { memory_format = LAST }
    assert.is_true(is_last(both[1].weight))
  end)

  it("converts parameters of four dimensions in place", function()
    local model = net()
    local weight = model[1].weight
    assert.equal(model, model:to { memory_format = LAST })
    assert.equal(weight, model[1].weight)
    assert.is_true(is_last(weight) and not weight:is_contiguous())
    assert.is_true(model[8].weight:is_contiguous())
    model:to { dtype = moth.float64, memory_format = LAST }
    assert.equal(moth.float64, model[8].weight.dtype)
    assert.is_true(model:to { memory_format = moth.contiguous_format }[1].weight:is_contiguous())
  end)

  it("does not change results and gradients; gradients have the parameters' layout", function()
    local x = moth.randn(2, 3, 12, 12)
    local a, b = net(), net():to { memory_format = LAST }
    for _, each in ipairs { { a, x }, { b, x:to { memory_format = LAST } } } do
      each[1](each[2]):square():sum():backward()
    end
    for i, p in ipairs(a:parameters()) do
      local q = b:parameters()[i]
      assert.is_true(close(q.grad, p.grad, 1e-4))
      assert.same(strides(q), strides(q.grad))
    end
  end)

  it("trains as before, also with momentum", function()
    local x, y = moth.randn(4, 3, 12, 12), moth.randn(4, 2)
    local a, b = net(), net():to { memory_format = LAST }
    for _, model in ipairs { a, b } do
      local optimizer = moth.optim.SGD(model:parameters(), { lr = 0.01, momentum = 0.9 })
      for _ = 1, 3 do
        optimizer:zero_grad()
        F.mse_loss(model(x), y):backward()
        optimizer:step()
      end
    end
    for i, p in ipairs(a:parameters()) do
      assert.is_true(close(b:parameters()[i]:detach(), p:detach(), 1e-4))
    end
    assert.is_true(is_last(b[1].weight))
  end)
end)

describe("channels_last on a GPU", function()
  if not cuda.here then return pending("is computed with: " .. cuda.why) end

  --- Converts images and volumes to the format, and returns other values unchanged.
  local function as_last(x)
    if x:dim() == 5 then return x:to { memory_format = LAST_3D } end
    return x:dim() == 4 and x:to { memory_format = LAST } or x
  end

  --- The results of f, and the gradients of its inputs, on the GPU: contiguous, or channels_last.
  local function both_ways(f, inputs, last)
    local leaves = {}
    for i, x in ipairs(inputs) do
      local y = x:cuda()
      if last then y = as_last(y) end
      leaves[i] = y:requires_grad_(y:is_floating_point())
    end
    local y = f(unpack(leaves))
    moth.manual_seed(5)
    local dy = moth.randn(y.shape, { dtype = y.dtype, device = "cuda" })
    y:backward(last and as_last(dy) or dy)
    local list = { y:detach() }
    for i, x in ipairs(leaves) do list[i + 1] = x.grad end
    return list
  end

  local function agrees(f, inputs, dtype, most)
    for i, x in ipairs(inputs) do inputs[i] = x:to(dtype or moth.float64) end
    local wanted, got = both_ways(f, inputs, false), both_ways(f, inputs, true)
    for i, x in ipairs(wanted) do
      assert.is_true(close(got[i], x, most or 1e-10), "result " .. i)
      if x:dim() > 3 then assert.is_true(is_last(got[i]), "layout of result " .. i) end
    end
  end

  local function r(...) return moth.randn(...) end

  it("is kept by convolution and its gradients", function()
    local function conv(options)
      return function(x, w, b) return F.conv2d(x, w, b, options) end
    end
    agrees(conv { padding = 1 }, { r(2, 5, 7, 6), r(4, 5, 3, 3), r(4) })
    agrees(conv { stride = 2 }, { r(2, 4, 7, 6), r(6, 4, 1, 1) })
    agrees(conv { groups = 4, padding = 1 }, { r(2, 4, 7, 6), r(4, 1, 3, 3) })
    agrees(conv { groups = 2, dilation = 2 }, { r(2, 4, 7, 6), r(6, 2, 2, 3) })
    agrees(conv { padding = 0 }, { r(2, 4, 3, 3), r(6, 4, 3, 3) })
    agrees(function(x, w) return F.conv_transpose2d(x, w, { stride = 2 }) end,
      { r(2, 4, 3, 3), r(4, 5, 3, 3) })
    agrees(conv { padding = 1 }, { r(2, 5, 7, 6), r(4, 5, 3, 3), r(4) }, moth.bfloat16, 0.02)
  end)

  it("is kept by ops of volumes", function()
    local function conv(options)
      return function(x, w, b) return F.conv3d(x, w, b, options) end
    end
    agrees(conv { padding = 1 }, { r(2, 5, 3, 7, 6), r(4, 5, 3, 3, 3), r(4) })
    agrees(conv { stride = { 1, 2, 2 } }, { r(2, 4, 3, 7, 6), r(6, 4, 1, 1, 1) })
    agrees(conv { groups = 4, padding = 1 }, { r(2, 4, 3, 5, 4), r(4, 1, 3, 3, 3) })
    agrees(conv { groups = 2, dilation = 2 }, { r(1, 4, 5, 7, 6), r(6, 2, 2, 2, 3), r(6) })
    agrees(conv { padding = 1 }, { r(2, 3, 3, 5, 6), r(4, 3, 3, 3, 3), r(4) }, moth.bfloat16, 0.02)
    agrees(function(x, w) return F.conv_transpose3d(x, w, { stride = 2 }) end,
      { r(2, 4, 2, 3, 3), r(4, 5, 2, 3, 3) })
    agrees(function(x, w) return F.batch_norm(x, { weight = w, training = true }) end,
      { r(3, 5, 2, 4, 3), r(5) })
    agrees(function(x, w, b) return F.group_norm(x, 2, w, b) end, { r(3, 8, 2, 5, 3), r(8), r(8) })
    agrees(function(x) return F.pad(x, { 2, 1, 1, 2, -1, 1 }) end, { r(2, 3, 3, 4, 5) })
    agrees(function(x) return F.pad(x, { 1, 2, 1, 0, 2, 1 }, "replicate") end, { r(2, 3, 3, 4, 5) })
    for dim = 1, 5 do
      agrees(function(x, y) return moth.cat({ x, y }, dim) end,
        { r(2, 3, 4, 2, 3), r(2, 3, 4, 2, 3) })
    end
    for _, drop in ipairs { F.dropout, F.dropout3d } do
      local x = r(2, 6, 3, 4, 5)
      local function seeded(z)
        moth.manual_seed(3)
        return (drop(z, 0.4))
      end
      agrees(seeded, { x })
      local y = seeded(as_last(x:float():cuda()))
      assert.is_true(is_last(y) and y:cpu():equal(seeded(x:float())))
    end
    local x, w = r(3, 4, 5, 6):cuda(), r(2, 3, 3, 3, 3):cuda() -- no batch
    local y = F.conv3d(as_last(x), w)
    assert.is_true(close(y, F.conv3d(x, w), 1e-5))
  end)

  it("passes from images or filters to the result", function()
    local x, w = r(2, 5, 7, 6):cuda(), r(4, 5, 3, 3):cuda()
    for _, pair in ipairs { { x:to { memory_format = LAST }, w },
      { x, w:to { memory_format = LAST } } } do
      local y = F.conv2d(pair[1], pair[2])
      assert.is_true(is_last(y) and not y:is_contiguous())
      assert.is_true(close(y, F.conv2d(x, w), 1e-5))
    end
    local y = F.conv2d(x[1], w:to { memory_format = LAST })
    assert.is_true(close(y, F.conv2d(x, w)[1], 1e-5))
  end)

  it("is kept by batch_norm, in training and with given statistics", function()
    local function norm(x, w, b)
      return F.batch_norm(x, { weight = w, bias = b, training = true })
    end
    for _, sizes in ipairs { { 3, 5, 4, 3 }, { 2, 8, 3, 3 }, { 5, 64, 9, 9 }, { 2, 136, 2, 2 },
      { 70, 4, 6, 7 } } do
      agrees(norm, { r(sizes), r(sizes[2]), r(sizes[2]) })
      agrees(norm, { r(sizes), r(sizes[2]), r(sizes[2]) }, moth.float32, 1e-4)
    end
    agrees(norm, { r(3, 16, 5, 5), r(16), r(16) }, moth.bfloat16, 0.05)
    agrees(function(x, w)
      return F.batch_norm(x, moth.zeros(8, { dtype = x.dtype, device = "cuda" }),
        moth.ones(8, { dtype = x.dtype, device = "cuda" }), w)
    end, { r(2, 8, 3, 3), r(8) })
  end)

  it("is kept by group_norm", function()
    local function norm(groups)
      return function(x, w, b) return F.group_norm(x, groups, w, b) end
    end
    for _, case in ipairs { { 2, { 3, 4, 5, 3 } }, { 4, { 2, 32, 7, 9 } }, { 3, { 2, 6, 40, 40 } },
      { 1, { 2, 8, 2, 2 } }, { 6, { 5, 6, 3, 2 } } } do
      local groups, sizes = unpack(case)
      agrees(norm(groups), { r(sizes), r(sizes[2]), r(sizes[2]) })
      agrees(norm(groups), { r(sizes), r(sizes[2]), r(sizes[2]) }, moth.float32, 1e-4)
      agrees(norm(groups), { r(sizes) }, moth.float64)
    end
    agrees(norm(2), { r(3, 16, 5, 5), r(16), r(16) }, moth.bfloat16, 0.05)
    agrees(function(x) return F.instance_norm(x) end, { r(2, 5, 4, 3) })
    local x, w = r(2, 8, 5, 3), r(8)
    local y = F.group_norm(x:cuda():to { memory_format = LAST }, 4, w:cuda())
    assert.is_true(is_last(y) and close(y:cpu(), F.group_norm(x, 4, w), 1e-5))
  end)

  it("is an input of layer_norm, which normalizes the given dims", function()
    local x, w = r(2, 4, 3, 5):cuda(), r(3, 5):cuda()
    local function grads(input)
      local leaf = input:detach():requires_grad_()
      local y = F.layer_norm(leaf, { 3, 5 }, w)
      y:mul(x):sum():backward()
      return y:detach(), leaf.grad
    end
    local y, dx = grads(x)
    local z, dz = grads(x:to { memory_format = LAST })
    assert.is_true(close(z, y, 1e-5) and close(dz, dx, 1e-5))
  end)

  it("is kept by pooling", function()
    local x = r(2, 5, 9, 8)
    agrees(function(z) return F.max_pool2d(z, 3, 2, 1) end, { x })
    agrees(function(z) return F.max_pool2d(z, { kernel_size = 2, stride = 1, dilation = 2 }) end,
      { x })
    agrees(function(z) return F.max_pool2d(z, { 9, 8 }) end, { x })
    agrees(function(z) return F.avg_pool2d(z, { 3, 2 }, 2, 1) end, { x })
    agrees(function(z) return F.adaptive_avg_pool2d(z, 1) end, { x })
    agrees(function(z) return F.adaptive_avg_pool2d(z, { 4, 3 }) end, { x })
    agrees(function(z) return F.adaptive_max_pool2d(z, { 4, 3 }) end, { x })
    agrees(function(z) return F.avg_pool2d(z, 10, 10, 5) end, { r(1, 40, 40, 40) })
    local y, at = F.max_pool2d(x:cuda():to { memory_format = LAST }, 2, { return_indices = true })
    local z, where = F.max_pool2d(x:cuda(), 2, { return_indices = true })
    assert.same(z:tolist(), y:tolist())
    assert.same(where:tolist(), at:tolist())
  end)

  it("is kept by dropout, which draws the CPU's mask", function()
    for name, drop in pairs { dropout = F.dropout, dropout2d = F.dropout2d } do
      for _, sizes in ipairs { { 2, 5, 3, 3 }, { 3, 4, 4, 2 }, { 1, 70, 5, 5 } } do
        local function seeded(x)
          moth.manual_seed(3)
          return (drop(x, 0.4))
        end
        agrees(seeded, { r(sizes) })
        agrees(seeded, { r(sizes) }, moth.bfloat16)
        local x = r(sizes)
        local y = seeded(x:cuda():to { memory_format = LAST })
        assert.is_true(is_last(y) and not y:is_contiguous(), name)
        assert.is_true(y:cpu():equal(seeded(x)), name)
        y = drop(x:cuda():to { memory_format = LAST }, { training = false })
        assert.is_true(is_last(y) and y:cpu():equal(x), name)
      end
    end
  end)

  it("is kept by padding", function()
    for _, mode in ipairs { "constant", "reflect", "replicate", "circular" } do
      agrees(function(x) return F.pad(x, { 2, 1, 1, 2 }, mode) end, { r(2, 3, 4, 5) })
      agrees(function(x) return F.pad(x, { -1, 2, 2, -2 }, mode) end, { r(2, 3, 4, 5) })
    end
    agrees(function(x) return F.pad(x, { -1, 1, 0, -2, 1, 2, 1, 0 }) end, { r(2, 3, 4, 5) })
    local x = r(2, 3, 4, 5)
    local y = F.pad(x:cuda():to { memory_format = LAST }, { 1, 2, 3, 0 }, { value = 0.5 })
    assert.is_true(is_last(y) and y:cpu():equal(F.pad(x, { 1, 2, 3, 0 }, { value = 0.5 })))
  end)

  it("is kept by cat", function()
    for dim = 1, 4 do
      agrees(function(x, y) return moth.cat({ x, y, x }, dim) end, { r(2, 3, 4, 5), r(2, 3, 4, 5) })
    end
  end)

  it("is kept by resampling", function()
    for _, options in ipairs { { scale_factor = 2 }, { size = { 5, 9 }, mode = "bilinear" },
      { size = { 4, 4 }, mode = "bicubic", align_corners = true }, { size = { 7, 3 } } } do
      agrees(function(z) return F.interpolate(z, options) end, { r(2, 3, 6, 5) })
    end
  end)

  it("is kept by a residual block in mixed precision, in a recorded step too", function()
    local function block()
      moth.manual_seed(3)
      local conv1, conv2 = nn.Conv2d(3, 8, 3, { padding = 1 }), nn.Conv2d(8, 8, 3, { padding = 1 })
      local norm, head = nn.BatchNorm2d(8), nn.Linear(8, 3)
      local net = nn.Module()
      net.conv1, net.conv2, net.norm, net.head = conv1, conv2, norm, head
      function net.forward(_, x)
        local first = F.relu(conv1(x))
        local y = F.relu(norm(conv2(first)) + first)
        net.kept = y:detach()
        return head(F.adaptive_avg_pool2d(y, 1):flatten(2))
      end
      return net:cuda()
    end
    local x, classes = r(4, 3, 8, 8):cuda(), moth.tensor({ 1, 2, 3, 1 }, { device = "cuda" }):long()
    local function trained(last, captured)
      local net, input = block(), x
      if last then
        net:to { memory_format = LAST }
        input = x:to { memory_format = LAST }
      end
      local optimizer = moth.optim.SGD(net:parameters(), { lr = 0.1, momentum = 0.9 })
      local function step()
        optimizer:zero_grad()
        moth.autocast("cuda", moth.bfloat16, function()
          return F.cross_entropy(net(input), classes)
        end):backward()
        optimizer:step()
      end
      if captured then step = moth.capture(step) end
      for _ = 1, 4 do step() end
      if last then
        assert.is_true(is_last(net.kept) and not net.kept:is_contiguous())
        assert.is_true(is_last(net.conv2.weight.grad) and not net.conv2.weight.grad:is_contiguous())
      end
      return net:parameters()
    end
    local wanted, got, replayed = trained(false), trained(true), trained(true, true)
    for i, p in ipairs(wanted) do
      assert.is_true(close(got[i]:detach(), p:detach(), 0.02), i)
      assert.is_true(replayed[i]:detach():cpu():equal(got[i]:detach():cpu()), i)
    end
  end)
end)
