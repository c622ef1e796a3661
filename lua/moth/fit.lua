--- fit.lua -- moth.fit: the training loop of docs/guide/training.md, and around it what a long run
-- needs.
--
--     local history = moth.fit{net, loader, loss = F.cross_entropy, optimizer = optimizer,
--       epochs = 10, val_loader = test_loader, metrics = {acc = accuracy}, checkpoint = "run"}
--
-- The loop is the one that the guide shows:
--
--     for _ = 1, epochs do
--       for input, target in loader do
--         moth.scope(function()
--           optimizer:zero_grad()
--           local loss = loss_fn(net(input), target)
--           loss:backward()
--           optimizer:step()
--         end)
--       end
--     end
--
-- Below, `step_of` is the inner part, `train` the inner loop and `run_epochs` the outer loop. Copy
-- them into your program when a run needs something that moth.fit lacks.
--
-- The object `run` has everything that a run knows. Callbacks get it (moth.callbacks), and
-- Run:state_dict lists the part of it that a checkpoint file has.

local base = require "moth.callbacks.base"
local calls = require "moth.binding.calls"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local device = require "moth.tensor.device"
local errors = require "moth.error"
local History = require "moth.callbacks.history"
local lib = require "moth.binding.lib"
local measures = require "moth.callbacks.measures"
local Module = require "moth.nn.module"
local moth = require "moth"

lib.declare "stop"

local C, istensor, is_plain = lib.C, lib.istensor, lib.is_plain
local scope, call_hooks = moth.scope, base.call
local now, stop_requested = C.moth_seconds, C.moth_stop_requested
local SIGINT = 2

local Run = class("Run")

-- ---- one batch ----

-- Copies the tensors of a batch to the device of the net.
local function to_device(value, where)
  if istensor(value) then
    if value.device == where then return value end
    return (value:to(where, {non_blocking = true}))
  elseif is_plain(value) then
    local copy = {}
    for key, item in pairs(value) do copy[key] = to_device(item, where) end
    return copy
  end
  return value
end

-- The training_step of most nets.
local function usual_step(loss_fn)
  return function(net, input, target, third)
    if target == nil or third ~= nil then
      errors.argument("fit", "training_step", "is needed, since the loader returns "
        .. (target == nil and "no target" or "more than an input and a target")
        .. ": function(net, ...) return loss, output, target end", "E_TYPE")
    end
    local output = net(input)
    return loss_fn(output, target), output, target
  end
end

-- The forward pass of a batch, on the net's device and with autocast.
local function forward_of(run)
  local net, where, dtype, step = run.net, run.device, run.autocast, run.training_step
  local function forward(input, target, third, fourth)
    local loss, output, goal = step(net, to_device(input, where), to_device(target, where),
      to_device(third, where), to_device(fourth, where))
    if istensor(loss) then return loss, output, goal end
    errors.argument("fit", "loss", "the loss of a batch has to be a tensor, got "
      .. errors.describe(loss), "E_TYPE")
  end
  if dtype == nil then return forward end
  local kind, autocast = where.type, moth.autocast
  return function(...) return autocast(kind, dtype, forward, ...) end
end

-- The optimizer's step, with clipped gradients.
local function update_of(run)
  local optimizer, scaler = run.optimizer, run.scaler
  local norm, value, parameters = run.clip_grad_norm, run.clip_grad_value, {}
  for _, group in ipairs(optimizer.partitioned and {optimizer} or optimizer.param_groups) do
    for _, p in ipairs(group.params) do parameters[#parameters + 1] = p end
  end
  local utils = (norm or value) and moth.nn.utils
  return function()
    if scaler and utils then scaler:unscale_(optimizer) end
    if norm then utils.clip_grad_norm_(parameters, norm) end
    if value then utils.clip_grad_value_(parameters, value) end
    if scaler then
      scaler:step(optimizer)
      scaler:update()
    else
      optimizer:step()
    end
  end
end

-- The work on one batch. With accumulate_grad_batches = n the optimizer takes a step after n
-- batches. `window` has their number, and whether the batch is the first or the last of them.
local function step_of(run)
  local optimizer, scaler, window = run.optimizer, run.scaler, run.window
  local forward, update = run.forward, run.update
  local function passes(input, target, third, fourth)
    local loss, output, goal = forward(input, target, third, fourth)
    local share = window.size == 1 and loss or loss / window.size
    if scaler then share = scaler:scale(share) end
    share:backward()
    return loss, output, goal
  end
  local compute = run.ranks and run.ranks:passes(run, passes) or passes
  return function(input, target, third, fourth)
    if window.first then optimizer:zero_grad() end
    local loss, output, goal = compute(input, target, third, fourth)
    if window.last then update() end
    return loss, output, goal
  end
end

-- The same for LBFGS, which computes the loss several times in a step.
local function closure_step_of(run)
  local optimizer, forward = run.optimizer, run.forward
  return function(input, target, third, fourth)
    local first, output, goal
    optimizer:step(function()
      optimizer:zero_grad()
      local loss
      loss, output, goal = forward(input, target, third, fourth)
      loss:backward()
      first = first or loss
      if run.ranks then loss = run.ranks:mean(loss) end -- all line searches take the same steps
      return loss
    end)
    return first, output, goal
  end
end

-- A step that frees its tensors and returns the loss as a number. Metrics get the output and the
-- target, which stay.
local function scoped(run, step)
  local measured = next(run.metrics) ~= nil
  local function inner(...)
    local loss, output, goal = step(...)
    if measured then return loss:item(), output, goal end
    return (loss:item())
  end
  return function(input, target, third, fourth)
    return scope(inner, input, target, third, fourth)
  end
end

-- The same as a captured step (docs/guide/capture.md).
local function captured(run, step)
  local measured, replay = next(run.metrics) ~= nil, moth.capture(step)
  return function(...)
    local loss, output, goal = replay(...)
    if not measured then return (loss:item()) end
    return loss:item(), output:clone(), goal:clone() -- the next call overwrites them
  end
end

-- ---- random generators ----

-- The states of the default generator, and of those that determine the order of the samples.
local function generators_of(run)
  local list = {calls.state_of(moth.default_generator)}
  for _, loader in pairs {run.loader, run.val_loader} do
    if class.typename(loader) == "DataLoader" then
      local batches = loader.batch_sampler
      for _, object in ipairs {loader, loader.sampler or {}, batches or {},
                               batches and batches.sampler or {}} do
        if object.generator then list[#list + 1] = calls.state_of(object.generator) end
      end
    end
  end
  return list
end

local function random_state(run)
  local states = {}
  for i, generator in ipairs(generators_of(run)) do states[i] = generator:clone() end
  return states
end

local function set_random_state(run, states)
  for i, generator in ipairs(generators_of(run)) do
    if states[i] then moth.no_grad(generator.copy_, generator, states[i]) end
  end
end

-- ---- one epoch ----

-- The batches that belong to one step of the optimizer: see step_of.
local function move_window(run)
  local window, n = run.window, run.accumulate_grad_batches
  local most = run.batches
  local at = run.batch % n
  window.first = at == 0
  window.last = at == n - 1 or run.batch + 1 == most
  if at == 0 then window.size = most and math.min(n, most - run.batch) or n end
end

-- The batches of the epoch that are left. A DataLoader knows its position after `resume`.
local function batches_of(run)
  local next_batch = run.loader:iter()
  if not calls.is_callable(run.loader.load_state_dict) then
    for _ = 1, run.batch do next_batch() end
  end
  return next_batch
end

-- Chooses the order of a sampler for the epoch.
local function set_epoch(run)
  if class.typename(run.loader) ~= "DataLoader" then return end
  local batches, done = run.loader.batch_sampler, {}
  for _, object in ipairs {run.loader.sampler or {}, batches or {}, batches and batches.sampler} do
    if not done[object] and calls.is_callable(object.set_epoch) then object:set_epoch(run.epoch) end
    done[object] = true
  end
end

-- Counts a step of the optimizer, and calls the scheduler and the loggers.
local function after_step(run)
  run.step = run.step + 1
  if run.by_steps then run.scheduler:step() end
  if run.loggers and run.step % run.log_every_n_steps == 0 then run:log("loss_step", run.loss) end
end

-- Is it time to leave the loop, after a step?
local function ends(run)
  local signal = stop_requested()
  local wanted = run.stop or run.step == run.max_steps or signal ~= 0
  if run.ranks then return run.ranks:agree(run, wanted, signal) end
  return wanted
end

-- The signal that ends the run, or 0: of several processes that on which they agreed.
local function signal_of(run)
  if run.ranks then return run.signal or 0 end
  return stop_requested()
end

-- Counts what a batch has left.
local function count_batch(run, loss, input, target)
  local n = measures.samples(input, target)
  run.loss, run.sum, run.count = loss, run.sum + loss * n, run.count + n
end

-- The mean loss of an epoch, over all processes.
local function mean_of(run, sum, count)
  if run.ranks then sum, count = run.ranks:sums(sum, count) end
  return sum / count
end

-- One pass over the training data. Returns false if a signal ends it.
local function train(run)
  local take, window, metrics = run.take, run.window, next(run.metrics) and run.metrics
  local accumulates, on_batch_end = run.accumulate_grad_batches > 1, run.hooks.on_batch_end
  local ranks = run.ranks
  run.net:train()
  if ranks then ranks:begin_epoch(run) end
  local next_batch = batches_of(run)
  for input, target, third, fourth in ranks and ranks:batches(next_batch) or next_batch do
    if accumulates then move_window(run) end
    if ranks and not ranks.active then
      ranks:idle_step(run)
    else
      local loss, output, goal = take(input, target, third, fourth)
      count_batch(run, loss, input, target)
      if metrics then moth.no_grad(measures.update, metrics, output, goal) end
    end
    run.batch, run.updated = run.batch + 1, window.last
    if window.last then after_step(run) end
    call_hooks(on_batch_end, run)
    if window.last and ends(run) then break end
  end
  if not window.last then -- a stream has ended within a window
    run.update()
    window.last = true
    after_step(run)
  end
  if signal_of(run) ~= 0 then return false end
  local results = run.results
  results.loss, results.lr = mean_of(run, run.sum, run.count), run.optimizer.param_groups[1].lr
  measures.finish(run.metrics, results, "", ranks)
  return true
end

-- One pass over the validation data. Returns false if a signal ends it: the resumed run begins it
-- again.
local function validate(run)
  local take, metrics = run.take_validation, next(run.metrics) and run.metrics
  local sum, count, random = 0, 0, random_state(run)
  run.net:eval()
  for input, target, third, fourth in run.val_loader:iter() do
    local loss, output, goal = moth.no_grad(take, input, target, third, fourth)
    local n = measures.samples(input, target)
    sum, count = sum + loss * n, count + n
    if metrics then moth.no_grad(measures.update, metrics, output, goal) end
    if not run.ranks and stop_requested() ~= 0 then
      for _, metric in pairs(run.metrics) do metric:reset() end
      set_random_state(run, random)
      return false
    end
  end
  run.results.val_loss = mean_of(run, sum, count)
  measures.finish(run.metrics, run.results, "val_", run.ranks)
  return true
end

-- Ends an epoch: the scheduler, the history, the loggers and the callbacks.
local function finish_epoch(run)
  local scheduler, results = run.scheduler, run.results
  if scheduler and class.typename(scheduler) == "ReduceLROnPlateau" then
    scheduler:step((base.monitored(run, run, "fit")))
  elseif scheduler and not run.by_steps then
    scheduler:step()
  end
  results.epoch, results.seconds = run.epoch, now() - run.began
  run.history:append(results)
  for name, value in pairs(run.loggers and results or {}) do
    if type(value) == "number" then run:log(name, value) end
  end
  for _, logger in ipairs(run.loggers or {}) do
    if calls.is_callable(logger.flush) then logger:flush() end
  end
  run.phase = "finished"
  call_hooks(run.hooks.on_epoch_end, run)
end

-- ---- all epochs ----

-- phase is "training", "validation" or "finished", of the epoch run.epoch; a resumed run begins
-- there.
local function run_epochs(run)
  while true do
    if run.phase == "finished" then
      if run.epoch >= run.epochs or ends(run) then return end
      run.epoch, run.batch, run.sum, run.count, run.results = run.epoch + 1, 0, 0, 0, {}
      run.phase = "training"
      set_epoch(run)
      call_hooks(run.hooks.on_epoch_begin, run)
    end
    run.began = now()
    if run.phase == "training" then
      if not train(run) then return end
      run.phase = "validation"
    end
    if run.val_loader and not validate(run) then return end
    finish_epoch(run)
  end
end

-- ---- checkpoint files ----

local function numbers_in(results)
  local numbers = {}
  for name, value in pairs(results) do
    if type(value) == "number" then numbers[name] = value end
  end
  return numbers
end

-- Calls f(callback, key) for each callback with a state; the key is its class.
local function each_state(run, f)
  local seen = {}
  for _, callback in ipairs(run.callbacks) do
    local key = class.typename(callback) or "callback"
    seen[key] = (seen[key] or 0) + 1
    if calls.is_callable(callback.state_dict) then f(callback, key .. " " .. seen[key]) end
  end
end

-- A state_dict if the object has one.
local function state_of(object)
  return object and calls.is_callable(object.state_dict) and object:state_dict() or nil
end

-- The part of the state that differs between processes.
local function own_state(run)
  return {
    sum = run.sum, count = run.count, metrics = measures.state(run.metrics),
    random = random_state(run),
    loader = run.phase == "training" and state_of(run.loader) or nil,
    ended = run.ranks and not run.ranks.active, -- has this process no more batches?
  }
end

--- The whole state of the run, as a checkpoint file has it. In several processes all of them call
-- it; the first one gets the states of all.
function Run:state_dict()
  local state = self.ranks and {ranks = self.ranks:gather(own_state(self))} or own_state(self)
  for name, value in pairs {
    epoch = self.epoch, batch = self.batch, step = self.step, phase = self.phase,
    results = numbers_in(self.results), history = self.history:state_dict(),
    model = self.module:state_dict(), optimizer = self.optimizer:state_dict(), callbacks = {},
  } do state[name] = value end
  state.stop = self.stop
  state.scheduler, state.scaler = state_of(self.scheduler), state_of(self.scaler)
  each_state(self, function(callback, key) state.callbacks[key] = callback:state_dict() end)
  return state
end

--- Writes a checkpoint file, which `resume` reads. moth.load(path).model is the state of the net.
-- In several processes all of them call it, and the first one writes.
function Run:save(path)
  local state = self:state_dict()
  if self.is_first then moth.save(state, path) end
end

-- The position in an epoch that `from` processes began and `to` processes continue: they have
-- processed batch * from batches.
local function moved(run, own, from, to)
  run.batch = math.floor(run.batch * from / to)
  if own.loader then own.loader.batch = run.batch end
end

-- Loads the parts of a state that differ between processes. After a change of their number the
-- first one gets the sums and metrics of all.
local function load_own_state(run, all)
  local rank, size = run.ranks and run.ranks.rank or 0, run.ranks and run.ranks.size or 1
  local own = all[rank + 1] or {random = {}, loader = all[1].loader}
  if own.random then set_random_state(run, own.random) end
  if #all == size then
    run.sum, run.count = own.sum, own.count
    if run.ranks then run.ranks.ended = own.ended end
    measures.load(run.metrics, own.metrics)
  else
    moved(run, own, #all, size)
    run.sum, run.count = 0, 0
    for _, each in ipairs(rank == 0 and all or {}) do
      run.sum, run.count = run.sum + each.sum, run.count + each.count
      measures.merge(run.metrics, each.metrics)
    end
  end
  if own.loader and calls.is_callable(run.loader.load_state_dict) then
    run.loader:load_state_dict(own.loader)
  end
end

--- Continues at the state of a file, also one that another number of processes has written.
function Run:load_state_dict(state)
  for _, name in ipairs {"epoch", "batch", "step", "phase", "results", "stop"} do
    self[name] = state[name]
  end
  self.history:load_state_dict(state.history)
  self.module:load_state_dict(state.model)
  for _, name in ipairs {"optimizer", "scheduler", "scaler"} do
    if state[name] and self[name] then self[name]:load_state_dict(state[name]) end
  end
  set_epoch(self)
  load_own_state(self, state.ranks or {state})
  each_state(self, function(callback, key)
    if state.callbacks[key] then callback:load_state_dict(state.callbacks[key]) end
  end)
end

-- Reads the file of the argument `resume`: a path, or true for the last file of a ModelCheckpoint.
local function resume(run, from)
  if from == true then
    for _, callback in ipairs(run.callbacks) do
      if class.typename(callback) == "ModelCheckpoint" then from = callback:path "last" end
    end
    if from == true then
      errors.argument("fit", "resume", "true needs the argument checkpoint, or a ModelCheckpoint "
        .. "among the callbacks", "E_STATE")
    end
    local file = not run.ranks and io.open(from)
    if not (file or run.ranks and run.ranks:exists(from)) then return end -- the first start
    if file then file:close() end
  end
  if type(from) ~= "string" then
    errors.refuse("fit", "resume", "the path of a file, or true, is needed", from, "E_TYPE")
  end
  local state = moth.load(from)
  if type(state) ~= "table" or state.phase == nil or state.model == nil then
    errors.argument("fit", "resume", errors.path(from) .. " is not a checkpoint file of moth.fit; "
      .. "load weights by net:load_state_dict(moth.load(path))", "E_FORMAT")
  end
  run:load_state_dict(state)
end

--- Sends a number to the loggers.
function Run:log(name, value)
  for _, logger in ipairs(self.loggers or {}) do logger:add_scalar(name, value, self.step) end
end

-- ---- the arguments ----

local function need(condition, name, what, value)
  if not condition then
    local comma = what:find ", " and "," or ""
    errors.refuse("fit", name, what .. comma .. " is needed", value, "E_TYPE")
  end
end

local function has(value, ...)
  if type(value) ~= "table" then return false end
  for _, name in ipairs {...} do
    if not calls.is_callable(value[name]) then return false end
  end
  return true
end

local function check(run, loss)
  need(class.isinstance(run.net, Module), "net", "a module", run.net)
  run.optimizer = base.optimizer(run.optimizer, run.net)
  need(has(run.loader, "iter"), "loader", "a DataLoader", run.loader)
  need(has(run.optimizer, "step", "zero_grad"), "optimizer", "an optimizer", run.optimizer)
  need(run.val_loader == nil or has(run.val_loader, "iter"), "val_loader", "a DataLoader",
    run.val_loader)
  need(run.scheduler == nil or has(run.scheduler, "step"), "scheduler",
    "a schedule of optim.lr_scheduler", run.scheduler)
  need(run.training_step or calls.is_callable(loss), "loss",
    "a function(output, target), such as F.cross_entropy", loss)
  for _, logger in ipairs(run.loggers or {}) do
    need(has(logger, "add_scalar"), "logger", "an object with add_scalar(name, value, step)",
      logger)
  end
  for _, name in ipairs {"accumulate_grad_batches", "log_every_n_steps"} do
    if run[name] < 1 then
      errors.refuse("fit", name, "a number from 1 on is needed", run[name], "E_DOMAIN")
    end
  end
  if run.capture and run.accumulate_grad_batches > 1 then
    errors.argument("fit", "capture", "works only without accumulate_grad_batches", "E_UNSUPPORTED")
  end
end

local function device_of(net)
  local first = net:parameters()[1]
  return first ~= nil and first.device or device.new "cpu"
end

-- The dtype of the argument autocast: nil, or as moth.autocast takes it.
local function autocast_dtype(given, where)
  if given == nil or given == false then return nil end
  if given == true then given = where.type == "cpu" and moth.bfloat16 or moth.float16 end
  need(given == moth.bfloat16 or given == moth.float16, "autocast",
    "moth.bfloat16, moth.float16 or true", given)
  return given
end

-- A list from one object or a list of them; nil for none.
local function listed(given)
  if given == nil or is_plain(given) and next(given) == nil then return nil end
  return is_plain(given) and #given > 0 and given or {given}
end

local function length_of(loader)
  local known, n = pcall(function() return loader:len() end)
  return known and n or nil
end

-- The processes that train a net together; nil for one process.
local function ranks_of(net)
  local groups = package.loaded["moth.distributed.group"]
  local state = groups and groups.get()
  if not state or state.size == 1 or not class.isinstance(net, Module) then return nil end
  local parallel = package.loaded["moth.nn.parallel.distributed"]
  if parallel and class.isinstance(net, parallel.DistributedDataParallel) then
    return require "moth.callbacks.ranks"(rawget(net, "_group"))
  end
  if state.rank == 0 then
    moth.warn(("fit: the net is no DistributedDataParallel: each of %d processes trains its own")
      :format(state.size))
  end
end

-- Completes a run from the arguments.
local function prepare(run, loss, given)
  run.ranks = ranks_of(run.net)
  run.is_first = not run.ranks or run.ranks.rank == 0
  run.module = run.ranks and run.net.module or run.net
  run.loggers = listed(given.logger)
  check(run, loss)
  run.device = device_of(run.net)
  run.autocast = autocast_dtype(given.autocast, run.device)
  if not run.is_first then run.loggers = nil end
  run.metrics, run.callbacks = measures.table(given.metrics), base.list(given.callbacks)
  local list = run.callbacks
  if given.checkpoint then
    list[#list + 1] = moth.callbacks.ModelCheckpoint(given.checkpoint)
  end
  if given.progress and run.is_first then list[#list + 1] = require "moth.callbacks.progress"() end
  run.hooks = base.hooks(list)
  if run.scaler == nil and run.autocast == moth.float16 then
    run.scaler = moth.GradScaler{device = run.device.type}
  end
  run.by_steps = run.scheduler and given.scheduler_interval == "step"
  run.monitor = given.monitor or run.val_loader and "val_loss" or "loss"
  run.training_step = run.training_step or usual_step(loss)
  run.window = {first = true, last = true, size = 1}
  run.length = length_of(run.loader)
  run.batches = run.length
  run.epoch, run.batch, run.step, run.sum, run.count = 0, 0, 0, 0, 0
  run.phase, run.results, run.history = "finished", {}, History()
end

-- Chooses the functions that work on a batch.
local function build(run)
  run.forward, run.update = forward_of(run), update_of(run)
  run.closure = class.typename(run.optimizer) == "LBFGS"
  local step = (run.closure and closure_step_of or step_of)(run)
  run.take = (run.capture and captured or scoped)(run, step)
  run.take_validation = scoped(run, run.forward)
end

-- The reason of an early end, or nil.
local function reason_of(run, signal)
  if signal ~= 0 then return signal == SIGINT and "interrupted by Ctrl-C" or "ended by SIGTERM" end
  return run.stop
end

-- Runs everything. The first Ctrl-C or SIGTERM lets the current step finish; the second one acts as
-- without moth.fit.
local function guarded(run, from)
  local training = run.net.training
  C.moth_stop_watch(1)
  local signal
  local ok, problem = pcall(function()
    if from then resume(run, from) end
    call_hooks(run.hooks.on_train_begin, run)
    run_epochs(run)
    if run.ranks then ends(run) end
    signal = signal_of(run)
    if signal ~= 0 then call_hooks(run.hooks.on_interrupt, run) end
    run.history.stopped = reason_of(run, signal)
    call_hooks(run.hooks.on_train_end, run)
  end)
  C.moth_stop_watch(0)
  run.net:train(training)
  if not ok then error(problem, 0) end
  if signal ~= 0 and signal ~= SIGINT then C.moth_stop_repeat() end
  return run.history
end

--- Trains a net: the loop of docs/guide/training.md with validation, metrics, checkpoint files and
-- more. A DataLoader returns `input, target`, or up to four values if there is a training_step.
-- Batches are copied to the device of the net's first parameter.
--
-- An epoch is a pass over `loader` and then, without gradients, over `val_loader`; then the
-- schedule and the callbacks are called. The first Ctrl-C ends the run after the current step: the
-- checkpoint file is written, and moth.fit returns. SIGTERM does the same, and then ends the
-- process.
--
-- A run with `checkpoint` and `resume = true` continues after a crash or a kill where its last file
-- was written, and ends with the same bits as a run without a break, if all random numbers are
-- Moth's. The file has the net, the optimizer, the schedule, the scaler, the position in the data,
-- random generators, metrics and callbacks with a state_dict, and the history.
--
-- A net that is a DistributedDataParallel is trained by all processes: docs/guide/distributed.md.
-- @param net        the module
-- @param loader     the training data: a DataLoader, or another object with :iter()
-- @param loss       function(output, target), for example F.cross_entropy or nn.MSELoss()
-- @param optimizer  an optimizer of moth.optim, or its class for the default options
-- @param epochs     passes over the training data, in all runs together
-- @param val_loader  the validation data
-- @param metrics    a table of names: {acc = moth.metrics.MulticlassAccuracy(10), mae = F.l1_loss}.
-- An object has update(output, target), compute and reset; a function(output, target) is averaged
-- over the samples. The history has `acc` and `val_acc`
-- @param callbacks  a list of callbacks (moth.callbacks), or functions that are called with the run
-- after each epoch
-- @param scheduler  a schedule of the learning rate; ReduceLROnPlateau gets the value `monitor`
-- @param scheduler_interval  call the schedule after each "epoch" or "step"
-- @param monitor    the value for schedules and callbacks (default "val_loss", or "loss" without
-- val_loader)
-- @param accumulate_grad_batches  batches whose mean gradient is one step of the optimizer
-- @param clip_grad_norm  largest norm of the gradients, as for nn.utils.clip_grad_norm_
-- @param clip_grad_value  largest absolute value of a gradient
-- @param autocast   moth.bfloat16 or moth.float16 for mixed precision; true: bfloat16 on a CPU,
-- float16 on a GPU
-- @param scaler     a GradScaler (default: one for float16, else none)
-- @param training_step  function(net, ...batch) that returns the loss, and for metrics the output
-- and the target; instead of `loss`
-- @param capture    run the step as a captured step (moth.capture)
-- @param checkpoint  a folder for last.safetensors and best.safetensors; ModelCheckpoint has more
-- choices
-- @param resume     the path of a checkpoint file, or true: the last one if there is one
-- @param max_steps  end after this many steps of the optimizer
-- @param logger     an object, or a list of objects, with add_scalar(name, value, step), such as
-- moth.utils.tensorboard.SummaryWriter(). They get all values of an epoch, and `loss_step`
-- @param log_every_n_steps  steps between two `loss_step`
-- @param progress   show the progress on stderr
-- @param plot       show the curves of the loss at the end: true, or an SVG or PNG file to write
-- @return the history, a moth.callbacks history: history.loss[3] is the loss of the third epoch
return define {
  name = "fit", outputs = "history",
  doc = "Trains a net: the loop over epochs and batches with validation, metrics, early "
    .. "stopping, checkpoint files, gradient accumulation, clipping, mixed precision and "
    .. "schedules. The history has a list of numbers for each value: history.val_loss[3]. "
    .. "Ctrl-C ends the run after the current step: the checkpoint file is written, and fit "
    .. "returns; SIGTERM does the same and then ends the process. With checkpoint and resume ="
    .. " true the next start continues where the last file was written, also within an epoch "
    .. "and after a crash, and ends with the same bits as a run without a break.",
  examples = "{moth.nn.Linear(2, 1), moth.data.DataLoader(moth.data.TensorDataset(moth.randn(8, "
    .. "2), moth.randn(8, 1)), 4), loss = moth.nn.functional.mse_loss, optimizer = "
    .. "moth.optim.Adam, epochs = 2, progress = false}",
  args = {
    {"object", "net", "the module"},
    {"any", "loader", "the training data: a DataLoader"},
    {"any", "loss", "function(output, target)", optional = true},
    {"any", "optimizer", "an optimizer, or its class for the default options"},
    {"int", "epochs", "passes over the training data", default = 1},
    {"any", "val_loader", "the validation data: a DataLoader", optional = true},
    {"any", "metrics", "names and metrics: {acc = metric}", optional = true},
    {"any", "callbacks", "a list of callbacks", optional = true},
    {"any", "scheduler", "a schedule of the learning rate", optional = true},
    {"enum", "scheduler_interval", "call the schedule after each epoch or each step",
      choices = {"epoch", "step"}},
    {"string", "monitor", "the value for schedules and callbacks; default: 'val_loss', or 'loss' "
      .. "without val_loader", optional = true},
    {"int", "accumulate_grad_batches", "batches for one step of the optimizer", default = 1},
    {"float", "clip_grad_norm", "largest norm of the gradients", optional = true},
    {"float", "clip_grad_value", "largest absolute value of a gradient", optional = true},
    {"any", "autocast", "moth.bfloat16, moth.float16 or true: mixed precision", optional = true},
    {"any", "scaler", "a GradScaler; default: one for float16", optional = true},
    {"function", "training_step", "function(net, ...batch) that returns loss, output, target",
      optional = true},
    {"bool", "capture", "run the step as a captured step?", default = false},
    {"string", "checkpoint", "a folder for checkpoint files", optional = true},
    {"any", "resume", "a checkpoint file, or true: the last one of this run", optional = true},
    {"int", "max_steps", "end after this many steps of the optimizer", optional = true},
    {"any", "logger", "an object with add_scalar, or a list of them", optional = true},
    {"int", "log_every_n_steps", "steps between two values of loss_step", default = 50},
    {"bool", "progress", "show the progress on stderr?", default = true},
    {"any", "plot", "show the curves of the loss at the end: true, or an SVG or PNG file",
      optional = true},
  },
  order = "moth.fit{net, loader, loss = ..., optimizer = ..., epochs = ...}",
  run = function(net, loader, loss, optimizer, epochs, val_loader, metrics, callbacks, scheduler,
                 interval, monitor, accumulate, clip_norm, clip_value, autocast, scaler,
                 training_step, capture, checkpoint, from, max_steps, logger, log_every, progress,
                 plot)
    local run = Run()
    run.net, run.loader, run.epochs = net, loader, epochs
    run.optimizer = optimizer
    run.val_loader, run.scheduler, run.scaler = val_loader, scheduler, scaler
    run.training_step, run.capture, run.max_steps = training_step, capture, max_steps
    run.clip_grad_norm, run.clip_grad_value = clip_norm, clip_value
    run.accumulate_grad_batches, run.log_every_n_steps = accumulate, log_every
    prepare(run, loss, {metrics = metrics, callbacks = callbacks, monitor = monitor,
      scheduler_interval = interval, autocast = autocast, checkpoint = checkpoint, logger = logger,
      progress = progress})
    build(run)
    local history = guarded(run, from)
    if not run.is_first then plot = nil end
    if plot == true and history:len() > 0 then history:plot():show()
    elseif plot and history:len() > 0 then history:plot():save(plot) end
    return history
  end,
}
