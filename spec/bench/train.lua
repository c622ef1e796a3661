--- Training and inference on Moth's side: `train` and `infer` rows of workloads.txt and the steps
-- that it names.

local moth = require "moth"
local nets = require "nets"
local workloads = require "workloads"

local nn, F, optim = moth.nn, moth.nn.functional, moth.optim

local train = {step = {}}

local losses = setmetatable({
  --- Cross entropy over all positions of a batch of texts.
  every_token = function(scores, ids)
    return F.cross_entropy(scores:flatten(1, 2), ids:flatten())
  end,
}, {__index = F})

--- One step: loss() runs the forward pass; clip is the largest norm of the gradients, or nil.
local function trainer(net, optimizer, loss, clip)
  local parameters = net:parameters()
  return function(...)
    optimizer:zero_grad()
    loss(...):backward()
    if clip then nn.utils.clip_grad_norm_(parameters, clip) end
    optimizer:step()
  end
end

local OPTIMIZER_OPTIONS = {"lr", "momentum", "weight_decay"}

local function optimizer_of(net, options)
  local chosen = {}
  for _, name in ipairs(OPTIMIZER_OPTIONS) do chosen[name] = options[name] end
  return optim[options.optim](net:parameters(), chosen)
end

--- A row of kind `train`. @return the step, and its inputs
function train.train(row)
  local options = row.options
  local net, loss = nets.build(options), losses[options.loss]
  local x, y = unpack(workloads.inputs(row))
  local step = trainer(net, optimizer_of(net, options),
    function(input, target) return loss(net(input), target) end, options.clip)
  return step, x, y
end

--- A row of kind `infer`.
function train.infer(row)
  local net, x = nets.build(row.options):eval(), workloads.inputs(row)[1]
  return function(input) return (net(input)) end, x
end

-- ---- special steps ----

--- 32 calls of a cell in a loop of Lua, then back.
function train.step.lstmcell_loop()
  local cell, x = nn.LSTMCell(64, 64), moth.randn(32, 1, 64)
  return function()
    cell:zero_grad()
    local h, c = moth.zeros(1, 64), moth.zeros(1, 64)
    for t = 1, 32 do h, c = cell(x[t], {h, c}) end
    h:sum():backward()
  end
end

function train.step.optim_step(row)
  local parameters = train.many_parameters()
  for _, p in ipairs(parameters) do
    p:requires_grad_()
    p.grad = moth.randn(p.shape)
  end
  local options = {lr = 1e-3, momentum = row.options.momentum}
  local optimizer = optim[row.options.optim](parameters, options)
  return function() optimizer:step() end
end

--- 30 matrices and 30 vectors: 60 tensors, 10,998,000 numbers.
function train.many_parameters()
  local list = {}
  for _ = 1, 30 do
    list[#list + 1] = moth.randn(600, 610) * 0.01
    list[#list + 1] = moth.randn(600) * 0.01
  end
  return list
end

function train.step.vae()
  local net, x = nets.Vae(), moth.rand(128, 784)
  local function loss()
    local y, mean, logvar = net(x)
    local bce = F.binary_cross_entropy{y, x, reduction = "sum"}
    return bce - 0.5 * (1 + logvar - mean:pow(2) - logvar:exp()):sum()
  end
  return trainer(net, optim.Adam(net:parameters()), loss)
end

function train.step.dcgan() return train.dcgan_step(16, 32) end

--- A step of both nets on n images; width is their ngf and ndf.
function train.dcgan_step(n, width)
  local generator, judge = nets.generator(width), nets.discriminator(width)
  local options = {lr = 2e-4, betas = {0.5, 0.999}}
  local of_generator = optim.Adam(generator:parameters(), options)
  local of_judge = optim.Adam(judge:parameters(), options)
  local real, ones, zeros = moth.randn(n, 3, 64, 64), moth.ones(n), moth.zeros(n)
  return function()
    of_judge:zero_grad()
    F.binary_cross_entropy(judge(real), ones):backward()
    local fake = generator(moth.randn(n, 100, 1, 1))
    F.binary_cross_entropy(judge(fake:detach()), zeros):backward()
    of_judge:step()
    of_generator:zero_grad()
    F.binary_cross_entropy(judge(fake), ones):backward()
    of_generator:step()
  end
end

function train.step.dqn()
  local policy, target = nets.mlp {4, 128, 128, 2}, nets.mlp {4, 128, 128, 2}
  local state, after, reward = moth.randn(64, 4), moth.randn(64, 4), moth.randn(64)
  local action, done = moth.randint(1, 3, {64, 1}), moth.randint(0, 2, {64}):float()
  local function wanted()
    local best = target(after):max(2)
    return reward + 0.99 * (1 - done) * best
  end
  local function loss()
    local goal = moth.no_grad(wanted)
    return F.smooth_l1_loss(policy(state):gather(2, action):squeeze(2), goal)
  end
  return trainer(policy, optim.Adam(policy:parameters(), {lr = 1e-3}), loss)
end

--- 64 tokens after a prompt of 64, each the most likely one: from all earlier tokens, or from the
-- last one with cached keys and values.
function train.step.generate(row)
  local net, prompt = nets.gpt():eval(), moth.randint(1, 66, {1, 64})
  local function generate()
    local caches = row.options.cache and {{}, {}, {}, {}}
    local ids, start = prompt, 0
    for _ = 1, 64 do
      local new = net(ids, caches, start)[{{}, {-1, -1}}]:argmax(3)
      if caches then
        ids, start = new, start + ids:size(2)
      else
        ids = moth.cat({ids, new}, 2)
      end
    end
  end
  return function() moth.no_grad(generate) end
end

return train
