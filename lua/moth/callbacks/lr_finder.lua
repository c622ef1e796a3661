--- lr_finder.lua -- moth.lr_find: how the loss depends on the learning rate.
--
--     local found = moth.lr_find{net, loader, loss = F.cross_entropy, optimizer = optimizer}
--     optimizer.param_groups[1].lr = found.suggestion
--     print(found:plot())
--
-- After Smith 2015, "Cyclical learning rates for training neural networks". The rate grows
-- exponentially from step to step. The suggestion is in the middle of the longest decrease of the
-- smoothed loss (fast.ai's "valley").

local base = require "moth.callbacks.base"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"

local finder = {}

local SMOOTH = 0.98  -- weight of the earlier losses in the mean
local DIVERGED = 4   -- the run ends when the loss is this many times its minimum

--- The curve of moth.lr_find, and the callback that records it: `lr` and `loss` are lists of the
-- rates and of the smoothed losses, `suggestion` is a rate, or nil if the loss does not fall.
local LRFinder = class("LRFinder", base.Callback)
finder.LRFinder = LRFinder

LRFinder.signature = define.signature("LRFinder", {
  {"float", "start_lr", "the first rate", default = 1e-7},
  {"float", "end_lr", "the last rate", default = 10},
  {"int", "num_training", "the number of steps", default = 100},
  {"bool", "stop_div", "end when the loss diverges?", default = true},
})

function LRFinder:init(start_lr, end_lr, num_training, stop_div)
  for name, value in pairs {start_lr = start_lr, end_lr = end_lr} do
    if not (value > 0) then
      errors.refuse("lr_find", name, "a number above 0 is needed", value, "E_DOMAIN")
    end
  end
  if num_training < 2 then
    errors.refuse("lr_find", "num_training", "a number from 2 on is needed", num_training,
      "E_DOMAIN")
  end
  self.start_lr, self.end_lr, self.num_training = start_lr, end_lr, num_training
  self.stop_div = stop_div
  self.lr, self.loss, self.mean = {}, {}, 0
end

-- Sets the rate of the step after `done` steps.
local function set_rate(self, run, done)
  local rate = self.start_lr * (self.end_lr / self.start_lr) ^ (done / (self.num_training - 1))
  for _, group in ipairs(run.optimizer.param_groups) do group.lr = rate end
  self.rate = rate
end

function LRFinder:on_train_begin(run) set_rate(self, run, 0) end

function LRFinder:on_batch_end(run)
  if not run.updated then return end
  local n = #self.lr + 1
  local sum, count = run.loss, 1
  if run.ranks then sum, count = run.ranks:sums(sum, 1) end -- the mean of all processes
  self.mean = SMOOTH * self.mean + (1 - SMOOTH) * sum / count
  local loss = self.mean / (1 - SMOOTH ^ n)
  self.lr[n], self.loss[n] = self.rate, loss
  self.least = math.min(self.least or loss, loss)
  if loss ~= loss or self.stop_div and loss > DIVERGED * self.least then
    run.stop = "the loss diverges"
  else
    set_rate(self, run, n)
  end
end

-- The suggestion: the middle of the longest decreasing subsequence of the losses, as if its members
-- were consecutive.
function LRFinder:on_train_end()
  local loss, longest, last = self.loss, {}, 1
  for i = 1, #loss do
    longest[i] = 1
    for j = 1, i - 1 do
      if loss[i] < loss[j] and longest[i] < longest[j] + 1 then longest[i] = longest[j] + 1 end
    end
    if longest[i] > longest[last] then last = i end
  end
  local n = longest[last] or 0
  if n < 3 then return end
  self.suggestion = self.lr[last - n + math.floor(n / 2)]
end

--- The curve as a moth.plot figure: print shows it, figure:save(path) writes an SVG or PNG file.
function LRFinder:plot()
  return require("moth").plot.lines(self.lr, self.loss, {xscale = "log", xlabel = "lr",
    ylabel = "loss"})
end

function LRFinder:__tostring()
  return ("LRFinder (%d rates from %g to %g, suggestion %s)"):format(#self.lr, self.lr[1] or 0,
    self.lr[#self.lr] or 0, self.suggestion and ("%.3g"):format(self.suggestion) or "none")
end

--- Trains with a growing learning rate, and then restores the net, the optimizer and the default
-- random generator.
-- @param net        the module
-- @param loader     the training data; it starts again when it ends
-- @param loss       function(output, target)
-- @param optimizer  an optimizer, whose rates are restored; or its class
-- @param start_lr   the first rate
-- @param end_lr     the last rate
-- @param num_training  the number of steps
-- @param stop_div   end when the smoothed loss is four times its minimum
-- @param training_step  as for moth.fit
-- @param accumulate_grad_batches  as for moth.fit
-- @param autocast   as for moth.fit
-- @return an LRFinder with the lists `lr` and `loss`, and `suggestion`
finder.lr_find = define {
  name = "lr_find", outputs = "finder",
  doc = "Trains with a growing learning rate, and then restores the net, the optimizer and the "
    .. "default random generator. Returns an LRFinder with the lists lr and loss, a suggestion for "
    .. "the rate, and plot() (Smith 2015).",
  examples = "{moth.nn.Linear(2, 1), moth.data.DataLoader(moth.data.TensorDataset(moth.randn(8, "
    .. "2), moth.randn(8, 1)), 4), loss = moth.nn.functional.mse_loss, optimizer = "
    .. "moth.optim.Adam, num_training = 20}",
  args = {
    {"object", "net", "the module"},
    {"any", "loader", "the training data: a DataLoader"},
    {"any", "loss", "function(output, target)", optional = true},
    {"any", "optimizer", "an optimizer, or its class"},
    {"float", "start_lr", "the first rate", default = 1e-7},
    {"float", "end_lr", "the last rate", default = 10},
    {"int", "num_training", "the number of steps", default = 100},
    {"bool", "stop_div", "end when the loss diverges?", default = true},
    {"function", "training_step", "function(net, ...batch) that returns the loss", optional = true},
    {"int", "accumulate_grad_batches", "batches for one step of the optimizer", default = 1},
    {"any", "autocast", "moth.bfloat16, moth.float16 or true: mixed precision", optional = true},
  },
  run = function(net, loader, loss, optimizer, start_lr, end_lr, num_training, stop_div,
                 training_step, accumulate, autocast)
    local moth = require "moth"
    local self = LRFinder(start_lr, end_lr, num_training, stop_div)
    optimizer = base.optimizer(optimizer, net)
    local model, state = moth.deepcopy(net:state_dict()), moth.deepcopy(optimizer:state_dict())
    local random = moth.get_rng_state()
    local ok, problem = pcall(moth.fit, {
      net, loader, loss = loss, optimizer = optimizer, epochs = num_training * accumulate,
      max_steps = num_training, callbacks = {self}, training_step = training_step,
      accumulate_grad_batches = accumulate, autocast = autocast, progress = false,
    })
    net:load_state_dict(model)
    optimizer:load_state_dict(state)
    moth.set_rng_state(random)
    if not ok then error(problem, 0) end
    return self
  end,
}

return finder
