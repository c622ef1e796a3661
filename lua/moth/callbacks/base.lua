--- base.lua -- moth.callbacks.Callback, and the calls of callbacks by moth.fit.
--
--     local Stop = moth.class("Stop", moth.callbacks.Callback)
--     function Stop:on_epoch_end(run)
--       if run.results.loss < 0.1 then run.stop = "the loss is below 0.1" end
--     end

local calls = require "moth.binding.calls"
local class = require "moth.base.class"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local base = {}

--- The base of callbacks for moth.fit. A subclass defines the methods that it needs; each gets the
-- object `run`. Its fields: net, optimizer, scheduler, loader, val_loader, metrics; epoch, epochs,
-- batch (in the epoch, from 1), step (of the optimizer, from 1); loss (of the last batch); results
-- (name -> number, of the epoch); history; monitor; updated (true if the last batch ended with a
-- step of the optimizer). Its methods: run:save(path) writes a checkpoint file for `resume`,
-- run:log(name, number) sends a number to the loggers. Assign a text to run.stop to end the run.
-- In several processes (docs/guide/distributed.md) all run the callbacks, and all call run:save,
-- which writes in the first: run.is_first. run.module is the net inside DistributedDataParallel.
-- A callback with state_dict and load_state_dict is saved with the run.
local Callback = class("Callback")
base.Callback = Callback

--- Called before the first epoch, after `resume` has loaded its file.
function Callback:on_train_begin(run) end -- luacheck: ignore

--- Called before each epoch.
function Callback:on_epoch_begin(run) end -- luacheck: ignore

--- Called after each batch of the training data.
function Callback:on_batch_end(run) end -- luacheck: ignore

--- Called after each epoch: run.results has the values of the training and of the validation.
function Callback:on_epoch_end(run) end -- luacheck: ignore

--- Called when a signal (Ctrl-C, SIGTERM) ends the run, before on_train_end.
function Callback:on_interrupt(run) end -- luacheck: ignore

--- Called once at the end.
function Callback:on_train_end(run) end -- luacheck: ignore

local HOOKS = {"on_train_begin", "on_epoch_begin", "on_batch_end", "on_epoch_end", "on_interrupt",
               "on_train_end"}

-- The method of a callback, unless it is the empty one of the base class.
local function method_of(callback, name)
  local method = callback[name]
  return method ~= Callback[name] and method or nil
end

--- Checks the argument `callbacks`. @return a list of callbacks
function base.list(given)
  local list = {}
  if not lib.is_plain(given) or #given == 0 and next(given) ~= nil then given = {given} end
  for i, callback in ipairs(given or {}) do
    if type(callback) == "function" then
      local call = callback
      callback = {on_epoch_end = function(_, run) return call(run) end}
    end
    local known = false
    if type(callback) == "table" then
      for _, name in ipairs(HOOKS) do known = known or calls.is_callable(callback[name]) end
    end
    if not known then
      errors.argument("fit", "callbacks", ("element %d is %s; a callback has methods such as "
        .. "on_epoch_end (help of moth.callbacks.Callback)"):format(i, errors.describe(callback)),
        "E_TYPE")
    end
    list[i] = callback
  end
  return list
end

--- The calls of each hook: name -> list of functions. Callbacks with `saves` come last, so that a
-- checkpoint file has the state of all others.
function base.hooks(list)
  local order, hooks = {}, {}
  for _, saves in ipairs {false, true} do
    for _, callback in ipairs(list) do
      if (callback.saves or false) == saves then order[#order + 1] = callback end
    end
  end
  for _, name in ipairs(HOOKS) do
    hooks[name] = {}
    for _, callback in ipairs(order) do
      local method = method_of(callback, name)
      if method then
        table.insert(hooks[name], function(run) return method(callback, run) end)
      end
    end
  end
  return hooks
end

--- Calls the functions of one hook.
function base.call(hook, run)
  for i = 1, #hook do hook[i](run) end
end

--- An optimizer from the argument `optimizer`: an optimizer, or its class.
function base.optimizer(given, net)
  return class.isclass(given) and given(net:parameters()) or given
end

-- ---- the monitored value ----

local HIGHER = {"acc", "auc", "f1", "precision", "recall", "iou", "dice", "r2", "bleu", "map"}

--- "min" or "max" for a mode and the name of a value: "auto" chooses as the metric says (its field
-- higher_is_better), else "max" for accuracies and similar names.
function base.mode(mode, monitor, run)
  if mode ~= "auto" then return mode end
  local name = monitor:lower()
  local metric = run.metrics[monitor] or run.metrics[monitor:gsub("^val_", "")]
  local higher = metric and metric.higher_is_better
  if higher ~= nil then return higher and "max" or "min" end
  for _, word in ipairs(HIGHER) do
    if name:find(word, 1, true) then return "max" end
  end
  return "min"
end

--- The value that a callback monitors.
-- @param fname  for messages; default: the callback's class
function base.monitored(callback, run, fname)
  local name = callback.monitor or run.monitor
  local value = run.results[name]
  if type(value) == "number" then return value, name end
  local known = {}
  for each in pairs(run.results) do known[#known + 1] = each end
  table.sort(known)
  errors.argument(fname or class.typename(callback), "monitor", ("there is no value '%s' in this "
    .. "run; it has %s"):format(name, table.concat(known, ", ")))
end

return base
