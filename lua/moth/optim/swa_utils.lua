--- swa_utils.lua -- moth.optim.swa_utils: running averages of a network's weights, with equal
-- weights (SWA) or exponential weights (EMA), and the learning rate schedule of SWA.
--
--     local average = swa_utils.AveragedModel(net)
--     -- in training, now and then:
--     average:update_parameters(net)
--     -- at its end, where there are BatchNorms:
--     swa_utils.update_bn(loader, average)

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lazy = require "moth.base.lazy"
local lib = require "moth.binding.lib"
local Module = require "moth.nn.module"
local named = require "moth.nn.module.named"
local norm = require "moth.nn.layer.norm"
local parameter = require "moth.nn.module.parameter"
local LRScheduler = require "moth.optim.schedule.base"

local swa = {}

local function moth() return require "moth" end

-- ---- averaging functions ----

local DECAY = {"float", "decay", "factor of the old average", default = 0.999}

local function check_decay(fname, decay)
  if not (decay >= 0 and decay <= 1) then
    errors.argument(fname, "decay", ("a number from 0 to 1 is needed, got %g"):format(decay),
      "E_DOMAIN")
  end
end

-- average := average + share (current - average), for numbers of any dtype.
local function move(average, now, share)
  if average.dtype.is_floating_point then average:lerp_(now, share)
  else average:copy_(average + (now - average) * share) end
end

local function move_all(averages, currents, share)
  moth().no_grad(function()
    for i, average in ipairs(averages) do move(average, currents[i], share) end
  end)
end

local function functions(rows)
  for _, row in ipairs(rows) do
    swa[row.name] = define {
      name = row.name, doc = row.doc, examples = row.examples, args = row.args, run = row.run,
      outputs = "fn",
    }
  end
end

functions {
  {
    name = "get_ema_multi_avg_fn", examples = "0.99", args = {DECAY},
    doc = "For AveragedModel's multi_avg_fn: an exponential moving average.",
    run = function(decay)
      check_decay("get_ema_multi_avg_fn", decay)
      return function(averages, currents) move_all(averages, currents, 1 - decay) end
    end,
  },
  {
    name = "get_ema_avg_fn", examples = "0.99", args = {DECAY},
    doc = "For AveragedModel's avg_fn: an exponential moving average.",
    run = function(decay)
      check_decay("get_ema_avg_fn", decay)
      return function(average, current)
        return moth().no_grad(function() return average * decay + current * (1 - decay) end)
      end
    end,
  },
}

--- Returns a function for AveragedModel's multi_avg_fn: the mean of all updates (the default).
function swa.get_swa_multi_avg_fn()
  return function(averages, currents, n) move_all(averages, currents, 1 / (n + 1)) end
end

--- Returns a function for AveragedModel's avg_fn: the mean of all updates.
function swa.get_swa_avg_fn()
  return function(average, current, n)
    return moth().no_grad(function() return average + (current - average) / (n + 1) end)
  end
end

-- ---- the averaged network ----

--- A copy of a network whose weights are means of the network's weights at each update_parameters
-- (Izmailov et al., 2018; Polyak and Juditsky, 1992), or exponential moving averages (EMA) with
-- `multi_avg_fn = swa_utils.get_ema_multi_avg_fn()`.
local AveragedModel = class("AveragedModel", Module)
swa.AveragedModel = AveragedModel

AveragedModel.signature = define.signature("AveragedModel", {
  {"any", "model", "the network; it is copied"},
  {"device", "device", "the copy's device; default: the network's",
    optional = true},
  {"any", "avg_fn", "function(average, current, n) -> the new average of one tensor, after n "
    .. "updates; functions are not saved", optional = true},
  {"any", "multi_avg_fn", "function(averages, currents, n) that writes the new averages; both are "
    .. "lists of tensors of one dtype and device; default: the mean of all updates",
    optional = true},
  {"bool", "use_buffers", "average buffers too? if false, they are copied at each update",
    default = false},
})

local function check_function(name, fn)
  if fn ~= nil and type(fn) ~= "function" then
    errors.refuse("AveragedModel", name, "a function is needed", fn, "E_TYPE")
  end
end

local function check_model(fname, model)
  if not class.isinstance(model, Module) then
    errors.refuse(fname, "model", "a module is needed", model, "E_TYPE")
  end
end

function AveragedModel:init(model, device, avg_fn, multi_avg_fn, use_buffers)
  check_model("AveragedModel", model)
  check_function("avg_fn", avg_fn)
  check_function("multi_avg_fn", multi_avg_fn)
  if avg_fn ~= nil and multi_avg_fn ~= nil then
    errors.argument("AveragedModel", "avg_fn", "pass this or multi_avg_fn, not both")
  end
  local copy = model:deepcopy()
  if device ~= nil then copy:to(device) end
  self.module = copy
  self.n_averaged = parameter.Buffer(moth().zeros({}, {dtype = moth().int64, device = device}))
  self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers
end

local function given(...) return ... end

function AveragedModel:forward(...)
  return given(self.module(...))
end
named.as_given(AveragedModel.forward)

-- Returns the parameters of a network, and its buffers if requested.
local function tensors_of(model, buffers)
  local list = model:parameters()
  for _, x in ipairs(buffers and model:buffers() or {}) do list[#list + 1] = x end
  return list
end

-- Returns pairs of lists of tensors, one pair for each dtype and device.
local function in_groups(averages, currents)
  local groups, by_key = {}, {}
  for i, x in ipairs(averages) do
    local key = tostring(x.dtype) .. tostring(x.device)
    local group = by_key[key]
    if not group then
      group = {{}, {}}
      by_key[key], groups[#groups + 1] = group, group
    end
    table.insert(group[1], x)
    table.insert(group[2], currents[i])
  end
  return groups
end

local function average_all(self, averages, currents, n)
  if self.avg_fn then
    for i, average in ipairs(averages) do
      average:copy_(self.avg_fn(average, currents[i], n))
    end
    return
  end
  local run = self.multi_avg_fn or swa.get_swa_multi_avg_fn()
  for _, group in ipairs(in_groups(averages, currents)) do run(group[1], group[2], n) end
end

local function update_all(self, model)
  local mine = tensors_of(self.module, self.use_buffers)
  local theirs = tensors_of(model, self.use_buffers)
  if #mine ~= #theirs then
    errors.argument("update_parameters", "model", ("the averaged network has %d tensors, "
      .. "this one %d"):format(#mine, #theirs), "E_SHAPE")
  end
  local averages, currents = {}, {}
  for i, x in ipairs(mine) do
    if x.shape ~= theirs[i].shape then
      errors.argument("update_parameters", "model", ("its tensor %d is %s, but the average is %s")
        :format(i, errors.describe(theirs[i]), errors.describe(x)), "E_SHAPE")
    end
    averages[i], currents[i] = x:detach(), theirs[i]:detach():to(x.device)
  end
  local n = tonumber(self.n_averaged:item())
  if n == 0 then
    for i, average in ipairs(averages) do average:copy_(currents[i]) end
  else
    average_all(self, averages, currents, n)
  end
  if not self.use_buffers then
    local buffers = model:buffers()
    for i, buffer in ipairs(self.module:buffers()) do buffer:copy_(buffers[i]) end
  end
  self.n_averaged:add_(1)
end

--- Updates the average with the network's current weights; the first call copies them.
-- @param model  the network, or another instance of the same architecture
function AveragedModel:update_parameters(model)
  check_model("update_parameters", model)
  if lib.capture then
    require("moth.capture.recording").refuse("update_parameters, which counts its calls,")
  end
  moth().no_grad(update_all, self, model)
end

-- ---- BatchNorm ----

local function is_batch_norm(module)
  for _, name in ipairs {"BatchNorm1d", "BatchNorm2d", "BatchNorm3d"} do
    if class.isinstance(module, norm[name]) then return true end
  end
  return false
end

local function refuse_loader(loader)
  errors.argument("update_bn", "loader", "a DataLoader, an iterator or a list of batches is needed,"
    .. " got " .. errors.describe(loader), "E_TYPE")
end

-- Returns the iterator for `for ... in` over a loader or a list.
local function batches_of(loader)
  local meta = type(loader) ~= "cdata" and getmetatable(loader)
  if type(loader) == "function" or type(meta) == "table" and meta.__call then return loader end
  if type(loader) ~= "table" or meta or #loader == 0 then refuse_loader(loader) end
  for _, batch in ipairs(loader) do
    if not lib.istensor(batch) and type(batch) ~= "table" then refuse_loader(loader) end
  end
  local i = 0
  return function()
    i = i + 1
    return loader[i]
  end
end

local function pass_all(batches, model, device)
  for input in batches do
    if lib.is_plain(input) then input = input[1] end
    if device ~= nil then input = input:to(device) end
    moth().no_grad(model, input)
  end
end

swa.update_bn = define {
  name = "update_bn",
  doc = "Recomputes the statistics of BatchNorms as the mean over one pass over the data: the "
    .. "statistics for averaged weights are not the average of the network's statistics.",
  examples = "moth.data.DataLoader(moth.randn(8, 3), {batch_size = 4}), moth.nn.BatchNorm1d(3)",
  args = {
    {"any", "loader", "an iterable or list of batches; the model gets each batch's first value"},
    {"any", "model", "the network"},
    {"device", "device", "the device to which batches are moved", optional = true},
  },
  outputs = "nothing",
  run = function(loader, model, device)
    check_model("update_bn", model)
    local batches, momenta = batches_of(loader), {}
    for _, module in ipairs(model:modules()) do
      if is_batch_norm(module) then
        module:reset_running_stats()
        momenta[#momenta + 1] = {module, module.momentum}
      end
    end
    if #momenta == 0 then return end
    local was_training = model.training
    model:train()
    for _, row in ipairs(momenta) do row[1].momentum = nil end
    local ok, problem = pcall(pass_all, batches, model, device)
    for _, row in ipairs(momenta) do row[1].momentum = row[2] end
    model:train(was_training)
    if not ok then error(problem, 0) end
  end,
}

-- ---- the learning rate ----

--- Changes each group's rate to swa_lr in anneal_epochs epochs; then the rate is constant.
local SWALR = class("SWALR", LRScheduler)
swa.SWALR = SWALR
SWALR.signature = define.signature("SWALR", {
  LRScheduler.OPTIMIZER, {"any", "swa_lr", "the final rate; a number or one for each group"},
  {"int", "anneal_epochs", "epochs of the annealing", default = 10},
  {"enum", "anneal_strategy", "the curve", choices = {"cos", "linear"}},
  LRScheduler.LAST_EPOCH,
})

function SWALR:init(optimizer, swa_lr, anneal_epochs, anneal_strategy, last_epoch)
  self:_attach(optimizer)
  if anneal_epochs < 0 then
    errors.argument("SWALR", "anneal_epochs", "a number from 0 on is needed, got "
      .. anneal_epochs, "E_DOMAIN")
  end
  for i, rate in ipairs(self:_numbers("swa_lr", swa_lr)) do
    optimizer.param_groups[i].swa_lr = rate
  end
  self.anneal_epochs, self._anneal_strategy = anneal_epochs, anneal_strategy
  LRScheduler.init(self, optimizer, last_epoch)
end

-- Returns the completed share of the annealing after a number of steps.
local function gone(self, step)
  local share = math.max(0, math.min(1, step / math.max(1, self.anneal_epochs)))
  return self._anneal_strategy == "cos" and (1 - math.cos(math.pi * share)) / 2 or share
end

function SWALR:get_lr()
  local step = self._step_count - 1
  if self.anneal_epochs == 0 then step = math.max(1, step) end
  local before, now = gone(self, step - 1), gone(self, step)
  return (self:_each(function(group)
    local last = group.swa_lr
    -- The rate at the start of the annealing, from the current rate: other schedules may have
    -- changed it.
    local first = before == 1 and last or (group.lr - before * last) / (1 - before)
    return last * now + first * (1 - now)
  end))
end

class.guard(AveragedModel, "average")
class.guard(SWALR, "scheduler")

return (lazy.namespace("moth.optim.swa_utils", swa, {}))
