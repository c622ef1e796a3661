-- Extending Moth: a Function with its own gradient, classes with three levels of inheritance, and
-- hooks that print and change gradients. A network learns with weights of only -1, 0 and 1.
-- Run it with: ./moth examples/07_extending.lua [--steps N]

local moth = require "moth"
local nn, F, optim = moth.nn, moth.nn.functional, moth.optim

local parser = require "argparse"("07_extending", "Functions, subclasses and hooks.")
parser:option("--steps", "Training steps.", "500"):convert(tonumber)
parser:option("--seed", "Seed of the random numbers.", "1"):convert(tonumber)
parser:option("--device", "Device: cpu or cuda.", "cpu")
local args = parser:parse()

moth.manual_seed(args.seed)

-- ---- Functions: a forward and its gradient ----

-- x sigmoid(x), saving only x for the gradient (as nn.SiLU does in C).
local Swish = nn.class("Swish", moth.autograd.Function)

function Swish.forward(ctx, x)
  ctx:save_for_backward(x)
  return x * x:sigmoid()
end

function Swish.backward(ctx, grad)
  local x = unpack(ctx.saved_tensors)
  local s = x:sigmoid()
  return grad * (s + x * s * (1 - s))
end

local x = moth.randn(4, 3, {dtype = moth.float64, requires_grad = true})
assert(moth.autograd.gradcheck(Swish.apply, {x}))
print("the gradient of Swish agrees with finite differences")

-- Rounds weights to -1, 0 or 1 times their mean absolute value. The derivative of rounding is 0, so
-- the gradient is passed through unchanged (straight-through estimator, Bengio et al., 2013).
local Ternary = nn.class("Ternary", moth.autograd.Function)

function Ternary.forward(_, weight)
  local size = weight:abs():mean()
  return (weight / size):round():clamp(-1, 1) * size
end

function Ternary.backward(_, grad)
  return grad
end

-- ---- classes: a layer, a block with that layer, and a block with a skip connection ----

-- A Linear whose forward rounds the weights to ternary values.
local TernaryLinear = nn.class("TernaryLinear", nn.Linear)

function TernaryLinear:forward(input)
  return F.linear(input, Ternary.apply(self.weight), self.bias)
end

local Block = nn.class("Block", nn.Module)

function Block:init(width)
  self.inner = TernaryLinear(width, width)
  self.norm_weight = nn.Parameter(moth.ones(width))
end

function Block:forward(input)
  return Swish.apply(self.inner(input) * self.norm_weight)
end

local Residual = nn.class("Residual", Block)

function Residual:init(width, scale)
  Block.init(self, width)
  self.scale = scale
end

function Residual:forward(input)
  return input + self.scale * Block.forward(self, input)
end

function Residual:extra_repr()
  return "scale=" .. self.scale
end

-- The third level of inheritance: the scale is a parameter.
local Gated = nn.class("Gated", Residual)

function Gated:init(width)
  Residual.init(self, width, 1)
  self.scale = nn.Parameter(moth.tensor(0.5))
end

function Gated:extra_repr()
  return ("scale=%.3f, learned"):format(self.scale:item())
end

local net = nn.Sequential{
  nn.Linear(1, 32), Residual(32, 0.5), Gated(32), nn.Linear(32, 1),
}:to(args.device)
assert(nn.isinstance(net[3], Block) and nn.typename(net[3]) == "Gated")
print(net)

-- ---- hooks ----

-- A forward hook that prints the size of the results of each block.
local sizes = {}
for name, module in net:named_modules() do
  if nn.isinstance(module, Block) then
    module:register_forward_hook(function(_, _, output)
      sizes[name] = output:detach():abs():mean():item()
    end)
  end
end

-- A hook that limits the norm of the first layer's gradient to 0.1.
local clipped = 0
local hook = net[1].weight:register_hook(function(grad)
  local norm = grad:square():sum():sqrt():item()
  if norm > 0.1 then
    clipped = clipped + 1
    return grad * (0.1 / norm)
  end
end)

-- ---- training ----

local optimizer = optim.Adam(net:parameters(), {lr = 0.01})
local input = moth.linspace(-1, 1, 128):view(-1, 1):to(args.device)
local target = (input * 4):sin()
local loss
for step = 1, args.steps do
  moth.scope(function()
    optimizer:zero_grad()
    local off = F.mse_loss(net(input), target)
    off:backward()
    optimizer:step()
    loss = off:item()
  end)
  if step % 100 == 0 then
    print(("step %4d  loss %.5f  %s"):format(step, loss, tostring(net[3]:extra_repr())))
  end
end
hook:remove()

local kinds = Ternary.apply(net[2].inner.weight):unique():numel()
print(("mean size of results: %.2f and %.2f; %d gradients were clipped; %d different weights")
  :format(sizes["1"] or 0, sizes["2"] or 0, clipped, kinds))
if args.steps < 500 then print("the sine takes some 500 steps to learn") end
assert(args.steps < 500 or loss < 0.02, "the sine was not learned")
assert(kinds <= 3, "the weights are not ternary")
