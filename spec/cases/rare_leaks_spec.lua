--- Cases: rare paths leave nothing behind: gradients of large slices, deferred weight gradients,
-- sparse gradients, checkpoints, hooks, captured steps, traced kernels, call logs, autocast, writes
-- to tensors that overlap, errors in the middle of a pass.

local moth = require "moth"
local measured = require "spec.support.leaks"

local nn = moth.nn
local T = moth.tensor

local function leaf(...) return moth.randn(...):requires_grad_() end
local function I(values) return T(values):long() end

local programs = {}
local function program(name, fn) programs[#programs + 1] = {name, fn} end

-- ---- gradients of slices ----

local large = leaf(300, 120)
local function used(...)
  local loss = 0
  for _, v in ipairs {...} do loss = loss + (v * 2):sum() end
  loss:backward()
  large.grad = nil
end
program("some slices of a large tensor", function()
  local x = large * 1
  used(x:narrow(1, 1, 60), x:narrow(1, 200, 50))
end)
program("slices in the wrong order", function()
  local x = large * 1
  used(x:narrow(1, 100, 50), x:narrow(1, 200, 50), x:narrow(1, 1, 99), x:narrow(1, 150, 50))
end)
program("slices that overlap", function()
  local x = large * 1
  used(x:narrow(1, 1, 100), x:narrow(1, 50, 100), x:narrow(2, 3, 4), x[7])
end)
program("all slices of a split", function() used(unpack((large * 1):split(40, {dim = 2}))) end)
program("more slices than the list holds", function()
  local x, list = large * 1, {}
  for i = 1, 40 do list[i] = x[i * 7] end
  used(unpack(list))
end)
program("a slice and the whole tensor", function() local x = large * 1 used(x[3], x, x[4]) end)
program("slices with a hook and retain_grad", function()
  local x = large * 1
  local a, b = x[3], x[4]
  a:register_hook(function(g) return g * 2 end)
  b:retain_grad()
  used(a, b)
end)
program("requested gradients of slices", function()
  local x = large * 1
  local a, b = x[3], x[4]
  moth.autograd.grad((a * b):sum(), {a, x, large})
end)
program("second derivatives of slices", function()
  local x = large * 1
  local y = (x[3] * x[4]):sum()
  moth.autograd.grad(y, {large}, {create_graph = true}):pow(2):sum():backward()
  large.grad = nil
end)

-- ---- weights ----

local function clear(net) for _, p in ipairs(net:parameters()) do p.grad = nil end end
local cell, linear = nn.LSTMCell(64, 64), nn.Linear(128, 128)
local lstm, bilstm = nn.LSTM(8, 16), nn.LSTM(8, 16, {num_layers = 2, bidirectional = true})
program("a weight that many small steps share", function()
  local h, c = moth.zeros(1, 64), moth.zeros(1, 64)
  for _ = 1, 6 do h, c = cell(moth.randn(1, 64), {h, c}) end
  h:sum():backward()
  clear(cell)
end)
program("a layer that is called more often than products are kept", function()
  local loss = 0
  for _ = 1, 70 do loss = loss + linear(moth.randn(1, 128)):sum() end
  loss:backward()
  clear(linear)
end)
program("a layer that is called 3 times, with a recorded gradient", function()
  local loss = 0
  for _ = 1, 3 do loss = loss + linear(moth.randn(1, 128)):pow(2):sum() end
  local g = moth.autograd.grad(loss, linear:parameters(), {create_graph = true})
  g:pow(2):sum():backward()
  clear(linear)
end)
program("recurrent layers", function()
  (lstm(moth.randn(5, 2, 8))):sum():backward()
  ;(bilstm(moth.randn(5, 2, 8))):sum():backward()
  clear(lstm)
  clear(bilstm)
end)

-- ---- sparse gradients ----

local table_ = nn.Embedding(10, 4, {sparse = true})
program("sparse gradients, added and coalesced", function()
  table_(I {1, 2, 2}):sum():backward()
  table_(I {9, 2}):sum():backward()
  table_.weight.grad:coalesce():to_dense()
  table_.weight.grad = nil
end)
program("a sparse gradient with a dense one, in either order", function()
  (table_(I {1, 2}):sum() + table_.weight:sum()):backward()
  table_(I {3}):sum():backward()
  table_.weight.grad = nil
  table_(I {3}):sum():backward()
  table_.weight:sum():backward()
  table_.weight.grad = nil
end)
local short = nn.Embedding(3, 4, {sparse = true})
program("a sparse gradient with more rows than the table", function()
  for _ = 1, 3 do short(I {1, 2}):sum():backward() end
  short.weight.grad = nil
end)
program("a sparse gradient that a hook holds", function()
  local held = {}
  local hook = short.weight:register_hook(function(g) held[#held + 1] = g end)
  short(I {1, 2}):sum():backward()
  short(I {1, 2}):sum():backward()
  hook:remove()
  assert.equal(2, #held)
  short.weight.grad = nil
end)
program("sparse tensors", function()
  local s = moth.sparse_coo_tensor(I {{2, 1, 2}}, moth.ones(3, 4), {5, 4})
  s:coalesce():to_dense()
  ;(s + s):_values()
  s:clone()
  pcall(moth.sparse_coo_tensor, I {{2, 1, 2}}, moth.ones(2, 4), {5, 4})
end)
program("a sparse tensor that raises", function()
  table_(I {1, 2}):sum():backward()
  pcall(function() return table_.weight.grad + 1 end)
  pcall(function() return table_.weight.grad:relu() end)
  table_.weight.grad = nil
end)

-- ---- passes ----

local x = leaf(4, 5)
local net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
program("a checkpoint", function()
  moth.utils.checkpoint.checkpoint(net, x):sum():backward()
  clear(net)
  x.grad = nil
end)
program("a checkpoint that raises when it runs again", function()
  local runs = 0
  local y = moth.utils.checkpoint.checkpoint(function(a)
    runs = runs + 1
    if runs == 2 then error "again" end
    return net(a)
  end, x)
  pcall(y.backward, y:sum())
  clear(net)
  x.grad = nil
end)
program("a pass whose hook raises", function()
  local y = x * 2
  y:register_hook(function() error "hook" end)
  pcall(function() (y * x):sum():backward() end)
  x.grad = nil
end)
program("a pass through a freed graph", function()
  local y = (x * x):sum()
  y:backward()
  pcall(y.backward, y)
  x.grad = nil
end)
program("a pass that finds a changed tensor", function()
  local y = x * 1
  local z = y * y
  y:add_(1)
  pcall(function() z:sum():backward() end)
  x.grad = nil
end)
program("a gradient of a wrong shape", function()
  local y = x * 2
  pcall(y.backward, y, moth.ones(5, 4))
  pcall(moth.autograd.grad, y:sum(), {moth.ones(1)})
  pcall(y.backward, y)
end)
program("anomaly mode", function()
  moth.autograd.detect_anomaly(function()
    net(x):sum():backward()
    pcall(function() (x * 0 / 0):sum():backward() end)
  end)
  clear(net)
  x.grad = nil
end)
program("gradients of other layouts", function()
  local w = moth.randn(2, 3, 4, 5):to {memory_format = "channels_last"}:requires_grad_()
  ;(w * 2):sum():backward()
  ;(w:permute(4, 3, 2, 1) * 3):sum():backward()
  local t = moth.randn(3, 4):t():requires_grad_()
  ;(t * t):sum():backward()
end)
local Twice = moth.class("Twice", moth.autograd.Function)
function Twice.forward(ctx, a, b)
  ctx:save_for_backward(a, b)
  return a * 2, b * 3, a
end
function Twice.backward(_, g, h) return g * 2, h * 3 end
program("a Function with a result that is an input, and unused results", function()
  local a, b = Twice.apply(x, x * 1)
  ;(a:sum() + b:sum()):backward()
  a = Twice.apply(x, x * 1)
  a:sum():backward()
  x.grad = nil
end)
local Wrong = moth.class("Wrong", moth.autograd.Function)
function Wrong.forward(_, a) return a * 2 end
function Wrong.backward() return moth.ones(7) end
program("a Function with a wrong gradient", function()
  local y = Wrong.apply(x)
  pcall(y.backward, y:sum())
end)

-- ---- writes ----

program("writes to a part of the same tensor", function()
  local a = moth.randn(6, 6)
  a:narrow(1, 1, 5):add_(a:narrow(1, 2, 5))
  a:copy_(a:t())
  moth.add(a, a:t(), {out = a})
  a:mul_(a[1])
  a:index_copy_(1, I {1, 2}, a:narrow(1, 2, 2))
  a[a:gt(0)] = 0
end)
program("recorded writes", function()
  local a = x * 1
  a[1]:mul_(2)
  a:narrow(2, 1, 2):neg_()
  a:t():add_(1)
  a:pow_(2)
  a[{2, {1, 3}}] = 5
  a:sum():backward()
  x.grad = nil
end)
program("writes that raise", function()
  pcall(x.add_, x, 1)
  pcall(function() x[1]:mul_(2) end)
  pcall(function() moth.ones(1, 2):expand(3, 2):add_(1) end)
  pcall(moth.add, moth.ones(2), moth.ones(2), {out = moth.empty(3)})
  pcall(moth.add, moth.ones(2), moth.ones(2), {out = moth.empty(2):long()})
  pcall(function() moth.ones(2):long():div_(2) end)
  pcall(function() moth.ones(2):add_(moth.ones(3)) end)
end)
program("recorded writes to views that raise", function()
  local a = x * 1
  pcall(function() a[1]:index_add_(1, I {9}, moth.ones(1)) end)
  pcall(function() a[1][I {9}] = 2 end)
  pcall(function() a[{{}, I {9}}] = leaf(4, 1) end)
  pcall(function() a:t():scatter_(1, I {{9}}, moth.ones(1, 1)) end)
  a[1]:mul_(2)
end)
program("retain_grad, twice, of several results", function()
  local y = x * 2
  y:retain_grad()
  y:retain_grad()
  local std, mean = moth.std_mean(y)
  std:retain_grad()
  mean:retain_grad()
  ;(std * mean):backward()
  x.grad = nil
end)
program("changes of shape in place", function()
  local a, b = x * 1, moth.ones(1, 2)
  a:t_()
  a:unsqueeze_(1)
  a:sum():backward()
  pcall(x.t_, x)
  moth.no_grad(function() pcall(x.t_, x) end)
  b:squeeze_()
  b:as_strided_({2}, {0})
  x.grad = nil
end)
program("index lists, masks and their gradients", function()
  local m = x:gt(0)
  ;(x[m]:sum() + x[{I {1, 3}, I {2, 2}}]:sum() + x[{{}, I {5, 5, 1}}]:sum()
    + x:masked_fill(m, 0):sum()):backward()
  x.grad = nil
  pcall(function() return x[I {9}] end)
  pcall(function() return x[T {true, false}] end)
end)

-- ---- casts ----

local half = nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.Linear(8, 3))
program("autocast", function()
  moth.autocast("cpu", function()
    half(x):sum():backward()
    half(x * 1):float():sum():backward()
  end)
  clear(half)
  x.grad = nil
end)
program("autocast of parameters that change", function()
  moth.autocast("cpu", function()
    half(x):sum():backward()
    moth.no_grad(function()
      half[1].weight:mul_(1.5)
      half(x)
    end)
    half(x):sum():backward()
    half[3].weight.data = moth.randn(3, 8)
    half(x)
    local short_lived = leaf(5, 5)
    x:mm(short_lived)
    moth.no_grad(function() short_lived:mul_(2) end)
    x:mm(short_lived)
  end)
  clear(half)
  x.grad = nil
end)
program("half types", function()
  local h = moth.randn(40, 50):half():requires_grad_()
  local b = moth.randn(50, 30):bfloat16():requires_grad_()
  ;(h:float():mm(b:float())):sum():backward()
  h:matmul(h:t()):sum():backward()
  b:softmax(1):sum():backward()
  b:mul(b):add(1.5):norm():backward()
end)

-- ---- captures, kernels, logs ----

program("a captured step", function()
  local optimizer = moth.optim.Adam(net:parameters(), {lr = 0.1})
  local step = moth.capture(function(a)
    optimizer:zero_grad()
    local loss = net(a):pow(2):sum()
    loss:backward()
    optimizer:step()
    return loss
  end)
  for i = 1, 4 do step(moth.full({2, 5}, i)) end
  pcall(step, moth.ones(3, 4))
  step:free()
  clear(net)
end)
program("a captured step that raises", function()
  local step = moth.capture(function(a)
    if a:sum():item() > 0 then return a end
  end)
  pcall(step, x)
  local wrong = moth.capture(function(a) return a:reshape(7) end)
  pcall(wrong, x)
end)
program("vmap and derivatives of functions", function()
  moth.vmap(function(a) return (a * a):sum() end)(x:detach())
  moth.func.grad(function(a) return (a * a):sum() end)(x:detach())
  pcall(moth.vmap(function(a) return a:item() end), x:detach())
end)
program("deep copies and stacked results", function()
  local copy = require("moth.nn").Linear(3, 3)
  copy:state_dict()
  moth.stack(moth.ones(4, 3):unbind(1)):split {1, 3}
  moth.ones(4, 3):chunk(2)
  pcall(moth.stack, {moth.ones(1), moth.ones(2)})
  pcall(moth.cat, {moth.ones(1), moth.ones(2, 2)})
end)

describe("a program with", function()
  for _, p in ipairs(programs) do
    it(p[1] .. " leaves nothing behind", function() assert.equal("", measured.of(p[2])) end)
  end
end)
