--- train.lua -- the whole steps of `moth bench cuda`: small networks and inference (launch), the
-- update of an Adam (memory), training (train), new processes (process). `eager` is the plain
-- step, `graph` the step in moth.capture.

local moth = require "moth"
local nets = require "nets"
local rows = require "gpu.rows"
local timing = require "timing"

local nn, F, optim = moth.nn, moth.nn.functional, moth.optim

local EAGER_AND_GRAPH = { "eager", "graph" }

-- The step itself, or a captured step.
local function in_mode(step, mode)
  if mode ~= "graph" then return step end
  local captured = moth.capture(step)
  return function() return captured() end
end

local function every_token(scores, ids)
  return F.cross_entropy(scores:flatten(1, 2), ids:flatten())
end

--- Adds NAME/VARIANT/MODE: zero_grad, forward, loss, backward, optimizer step on a fixed batch.
-- @param options  build, inputs, loss, optim (a name), settings (of it), variant, clip, unit (one
--                 of them an element of y), flop(net) for each of them, fixed (false: a dry run
--                 may shrink the inputs), modes
local function train(name, text, options)
  if options.variant then name = name .. "/" .. options.variant end
  rows.add(name, ("Train step: %s Inputs %s."):format(text, options.inputs), function(mode)
    local net, inputs = options.build(), {}
    for spec in options.inputs:gmatch "%S+" do
      inputs[#inputs + 1] = rows.input(spec, false, nil, options.fixed ~= false)
    end
    local x, y = unpack(inputs)
    if rows.is_channels_last(options.variant) then
      net:to { memory_format = moth.channels_last }
      x = x:to { memory_format = moth.channels_last }
    end
    local parameters = net:parameters()
    local optimizer = optim[options.optim](parameters, options.settings)
    local function forward() return options.loss(net(x), y) end
    local half = (options.variant or ""):find "^bf16"
    local amounts = {}
    if options.unit then amounts[options.unit] = y:numel() end
    if options.flop then amounts.flop = options.flop(net) * y:numel() end
    amounts.mfu = amounts.flop
    return in_mode(function()
      optimizer:zero_grad()
      local loss = half and moth.autocast("cuda", moth.bfloat16, forward) or forward()
      loss:backward()
      if options.clip then nn.utils.clip_grad_norm_(parameters, options.clip) end
      optimizer:step()
    end, mode), amounts
  end, "warm", options.modes or EAGER_AND_GRAPH)
end

-- ---- launch: small steps ----

train("launch/xor_step", "MLP 2-8-1, tanh (XOR), SGD.", {
  build = function() return nets.mlp({ 2, 8, 1 }, nn.Tanh) end, inputs = "[4,2] [4,1]",
  loss = F.mse_loss, optim = "SGD", settings = { lr = 0.1 },
})
train("launch/agent_step", "MLP 4-64-64-2, relu, Adam.", {
  build = function() return nets.mlp { 4, 64, 64, 2 } end, inputs = "[32,4] [32,2]",
  loss = F.mse_loss, optim = "Adam", settings = { lr = 1e-3 },
})

rows.add("launch/agent_infer", "Inference: MLP 4-64-64-2, input [1,4] on the device; act: copied "
  .. "from the CPU, the place of the largest output read back.", function(mode)
  local net, state = nets.mlp { 4, 64, 64, 2 }, moth.randn { 1, 4, device = "cpu" }
  local there = state:to "cuda"
  local step = in_mode(function() return (net(there)) end, mode)
  if mode == "act" then
    step = function() return net(state:to "cuda"):argmax():item() end
  end
  return function() return moth.no_grad(step) end
end, "warm", { "eager", "graph", "act" })

rows.add("launch/lstmcell_loop", "LSTMCell 64-64, batch 1, 32 steps in a loop of Lua, backward of "
  .. "the sum of the last h.", function(mode)
  local cell, x = nn.LSTMCell(64, 64), moth.randn(32, 1, 64)
  return in_mode(function()
    cell:zero_grad()
    local h, c = moth.zeros(1, 64), moth.zeros(1, 64)
    for t = 1, 32 do h, c = cell(x[t], { h, c }) end
    h:sum():backward()
  end, mode)
end, "warm", EAGER_AND_GRAPH)

-- ---- a GPT whose head shares the weights of its embedding ----

local TiedGpt = nn.class("TiedGpt", nets.Gpt)

function TiedGpt:init(vocabulary, context, width, heads, layers)
  local cap = rows.cap
  nets.Gpt.init(self, cap(vocabulary), cap(context), cap(width, 8 * heads), heads, cap(layers, 2))
  nn.init.normal_(self.token.weight, 0, 0.02)
  self.head.weight = self.token.weight
end

function TiedGpt:forward(ids)
  local x = self.token(ids) + self.place.weight:narrow(1, 1, ids:size(2))
  for _, block in ipairs(self.blocks) do x = block(x) end
  return self.head(self.ln(x))
end

--- Flop per token: 6 a parameter (without positions), 12 * layers * width * T for attention (T x
-- T).
local function gpt_flop(net)
  local size, positions = 0, net.place.weight:numel()
  for _, p in ipairs(net:parameters()) do size = size + p:numel() end
  return 6 * (size - positions) + 12 * #net.blocks * positions
end

local GPT2 = { 50257, 1024, 768, 12, 12 } -- 124 million parameters

rows.add("memory/adam_step_124M", "One update of the parameters of train/gpt124m, lr 1e-3, fixed "
  .. "gradients. 7 passes: 4 read, 3 written.", function()
  local parameters, bytes = TiedGpt(unpack(GPT2)):parameters(), 0
  for _, p in ipairs(parameters) do
    p.grad = moth.randn_like(p)
    bytes = bytes + 7 * p:numel() * p:element_size()
  end
  local optimizer = optim.Adam(parameters, { lr = 1e-3 })
  return function() optimizer:step() end, { bytes = bytes }
end, "cold", { "default" })

-- ---- train ----

for _, batch in ipairs { 64, 1024 } do
  train("train/mnist_net_b" .. batch, "the classic network of MNIST examples, SGD.", {
    build = nets.mnist_net, inputs = ("[%d,1,28,28] ids[%d]<10"):format(batch, batch),
    loss = F.nll_loss, optim = "SGD", settings = { lr = 0.01, momentum = 0.5 }, variant = "tf32",
    unit = "images",
  })
end
train("train/mlp784", "MLP 784-512-512-10, relu, Adam.", {
  build = function() return nets.mlp { 784, 512, 512, 10 } end, inputs = "[128,784] ids[128]<10",
  loss = F.cross_entropy, optim = "Adam", settings = { lr = 1e-3 }, variant = "tf32",
  unit = "images",
})
for _, variant in ipairs { "tf32", "bf16" } do
  train("train/resnet18", "ResNet-18 for 3x32x32, SGD.", {
    build = nets.resnet18, inputs = "[128,3,32,32] ids[128]<10", loss = F.cross_entropy,
    optim = "SGD", settings = { lr = 0.01, momentum = 0.9, weight_decay = 5e-4 },
    variant = variant == "bf16" and "bf16_cl" or variant, unit = "images",
  })
  train("train/char_lstm", "Embedding 65-512, two LSTM layers of 512, Linear 512-65, Adam.", {
    build = function() return nets.char_lstm(512) end, inputs = "ids[64,128]<65 ids[64,128]<65",
    loss = every_token, optim = "Adam", settings = { lr = 1e-3 }, variant = variant,
    unit = "tokens",
  })
end
for _, gpt in ipairs { { "gpt10m", 64, { 65, 256, 384, 6, 6 } }, { "gpt124m", 16, GPT2 } } do
  local name, batch, sizes = unpack(gpt)
  local ids = ("ids[%d,%d]<%d"):format(rows.cap(batch, 1), sizes[2], sizes[1])
  train("train/" .. name, "GPT, tied weights; vocabulary, context, width, heads, blocks "
    .. table.concat(sizes, ", ") .. "; AdamW, clip 1.", {
    build = function() return TiedGpt(unpack(sizes)) end, inputs = ids .. " " .. ids,
    loss = every_token, optim = "AdamW", settings = { lr = 3e-4, weight_decay = 0.1 }, clip = 1,
    variant = "bf16", unit = "tokens", flop = gpt_flop, fixed = false,
  })
end

rows.add("train/dcgan/tf32", "DCGAN 3x64x64, batch 128, ngf = ndf = 64, Adam on both.",
  function(mode)
  local n = rows.cap(128, 4)
  local step = require("train").dcgan_step(n, 64)
  return in_mode(step, mode), { images = n }
end, "warm", EAGER_AND_GRAPH)

-- ---- process ----

local CHILD = [[
  local ffi = require "ffi"
  ffi.cdef "typedef struct at { long s, ns; } at; int clock_gettime(int clock, at *time);"
  local at = ffi.new "at"
  local function now()
    ffi.C.clock_gettime(1, at)
    return tonumber(at.s) + tonumber(at.ns) * 1e-9
  end
  local begin = now()
  local moth = require "moth"
  local imported = now()
  local F, x = moth.nn.functional, moth.ones { 1, 1, 64, 64, device = "cuda" }
  local y = (CALL):cpu()
  local done = now()
  local free, peak = moth.cuda.mem_get_info(), nil
  for line in io.lines "/proc/self/status" do peak = peak or line:match "^VmHWM:%s*(%d+)" end
  print(imported - begin, done - imported, peak / 1024, free / 2 ^ 20, F and y and 1)
]]

local CALLS = { add = "x + 1", matmul = "x:matmul(x)",
  conv = "F.conv2d(x, x[{{}, {}, {1, 3}, {1, 3}}])" }

-- One new process: seconds from start to exit, its output, and its peak of device memory.
local function fresh(call)
  local launcher = debug.getregistry()["moth.launcher"]
  local free, begin = moth.cuda.mem_get_info() / 2 ^ 20, timing.wall()
  local code = CHILD:gsub("CALL", CALLS[call])
  local pipe = assert(io.popen(("'%s' -e '%s'"):format(launcher.program, code)))
  local import, first, peak, left = pipe:read("*n", "*n", "*n", "*n")
  pipe:close()
  assert(left, "the process gave no figures")
  return { (timing.wall() - begin) * 1e6, import * 1e6, first * 1e6, peak, free - left }
end

local PARTS = { { "wall", "us" }, { "import", "us" }, { "first_op", "us" }, { "peak_rss", "MiB" },
  { "device_memory", "MiB" } }

rows.add("process/first", "A fresh process loads Moth, puts 64x64 ones on the device, calls once, "
  .. "reads the result. wall: start to exit; device_memory: context included.", function(mode)
  fresh(mode) -- fills the caches
  local columns = { {}, {}, {}, {}, {} }
  for i = 1, rows.dry and 1 or 3 do
    for k, value in ipairs(fresh(mode)) do columns[k][i] = value end
  end
  local parts = {}
  for k, part in ipairs(PARTS) do parts[k] = { part[1], part[2], columns[k] } end
  return { parts = parts }
end, "warm", { "add", "matmul", "conv" })
