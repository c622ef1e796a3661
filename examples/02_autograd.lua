-- Gradients: backward, second derivatives, in-place writes, your own gradients. Run it with:
-- ./moth examples/02_autograd.lua

local moth = require "moth"
require "argparse"("02_autograd", "Gradients, their gradients, and views written to."):parse()
local grad = moth.autograd.grad

local function near(a, b) assert(math.abs(a - b) < 1e-5, a .. " is not " .. b) end

-- ---- a gradient ----

local w = moth.tensor({1.0, 2.0, 3.0}, {requires_grad = true})
local loss = (w * w):sum()
print(loss)
loss:backward()
print("d sum(w^2) / dw =", w.grad)
near(w.grad[3]:item(), 6)

-- ---- the gradient of a gradient ----

local x = moth.tensor(2.0, {requires_grad = true})
local y = x ^ 3
local first = grad(y, x, {create_graph = true})
local second = grad(first, x)
print("x^3 at 2:", y:item(), first:item(), second:item())
near(first:item(), 12)
near(second:item(), 12)

-- ---- two training steps without an optimizer ----
-- Assigning to .data changes the value without recording; .grad accumulates until it is cleared.

x, y = moth.tensor(2.0):requires_grad_(), moth.tensor(3.0):requires_grad_()
local seen, z = {}, nil
for _ = 1, 2 do
  z = x * y
  z:backward()
  print(x.grad)
  seen[#seen + 1] = x.grad:item()
  x.data = x.data - 0.1 * x.grad
  x.grad.data:zero_()
  print(x)
  seen[#seen + 1] = x:item()
end
print(z)
assert(z.grad_fn:name() == "Mul")
for i, want in ipairs{3, 1.7, 3, 1.4} do near(seen[i], want) end
near(z:item(), 5.1)

-- ---- writes in place are recorded, also through views ----

local v = moth.tensor({10.0, 20.0}, {requires_grad = true})
local b = moth.zeros(3)
b[{{2, 3}}] = v * v
b[1] = b[3] * 2
b:sum():backward()
print("through the write:", v.grad)
near(v.grad[1]:item(), 20)
near(v.grad[2]:item(), 120)

-- ---- changing a saved tensor raises an error; the gradient is never wrong ----

local h = v * 1
local square = h * h
moth.no_grad(function() h:add_(1) end)
local ok, message = pcall(function() square:sum():backward() end)
assert(not ok and message:match("version"))
print(message)

-- ---- a Function with its own gradient ----

local Clip = moth.nn.class("Clip", moth.autograd.Function)

function Clip.forward(ctx, input, limit)
  ctx.limit = limit
  return input * 1
end

function Clip.backward(ctx, dy)
  return dy:clamp(-ctx.limit, ctx.limit), nil
end

local p = moth.tensor({1.0, 2.0}, {requires_grad = true});
(Clip.apply(p, 0.5) * moth.tensor{10.0, 0.25}):sum():backward()
print("clipped:", p.grad)
near(p.grad[1]:item(), 0.5)
near(p.grad[2]:item(), 0.25)

-- ---- a hook prints a gradient ----

local passing
local q = p * 3
q:register_hook(function(g) passing = g:sum():item() end)
q:sum():backward()
near(passing, 2)

-- ---- a numerical check of the gradient ----

assert(moth.autograd.gradcheck(function(a, c) return (a * c):sum() * a[1] end,
  {moth.randn(3, {dtype = moth.float64}):requires_grad_(),
   moth.randn(3, {dtype = moth.float64}):requires_grad_()}))
print "gradients agree with finite differences"
