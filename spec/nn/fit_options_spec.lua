-- moth.fit's arguments and callbacks, one by one: defaults, both sides of each bound, messages of
-- refusals, what a callback's state holds, the text of the display.

local moth = require "moth"
local base = require "moth.callbacks.base"
local History = require "moth.callbacks.history"
local measures = require "moth.callbacks.measures"
local raises = require("spec.support.refusals").fails

local nn, F, optim, data, callbacks = moth.nn, moth.nn.functional, moth.optim, moth.data,
  moth.callbacks

-- The arguments of a run on 8 samples in batches of 2.
local function arguments(more)
  moth.manual_seed(3)
  local x = moth.randn(8, 2)
  local net = nn.Linear(2, 1)
  local all = {net, data.DataLoader(data.TensorDataset(x, x:sum(2, true)), 2), loss = F.mse_loss,
    optimizer = optim.SGD(net:parameters(), 0.01), progress = false}
  for key, value in pairs(more or {}) do all[key] = value end
  return all
end

local function fit(more) return moth.fit(arguments(more)) end

local function stderr_of(f)
  local parts, kept = {}, io.stderr
  rawset(io, "stderr", {write = function(self, ...)
    parts[#parts + 1] = table.concat {...}
    return self
  end, flush = function() end})
  local ok, problem = pcall(f)
  rawset(io, "stderr", kept)
  assert.is_true(ok, tostring(problem))
  return table.concat(parts)
end

describe("an argument of moth.fit is refused:", function()
  for _, row in ipairs {
    {"net' to 'fit' (a module is needed, got 3", {[1] = 3}},
    {"loader' to 'fit' (a DataLoader is needed, got 3", {[2] = 3}},
    {"optimizer' to 'fit' (an optimizer is needed, got {}", {optimizer = {}}},
    {"val_loader' to 'fit' (a DataLoader is needed, got {}", {val_loader = {}}},
    {"scheduler' to 'fit' (a schedule of optim.lr_scheduler is needed, got 0.1",
      {scheduler = 0.1}},
    {"loss' to 'fit' (a function(output, target), such as F.cross_entropy, is needed, "
      .. "got 3", {loss = 3}},
    {"logger' to 'fit' (an object with add_scalar(name, value, step), is needed, got 3",
      {logger = {3}}},
    {"accumulate_grad_batches' to 'fit' (a number from 1 on is needed, got 0",
      {accumulate_grad_batches = 0}},
    {"log_every_n_steps' to 'fit' (a number from 1 on is needed, got 0",
      {log_every_n_steps = 0}},
    {"capture' to 'fit' (works only without accumulate_grad_batches",
      {capture = true, accumulate_grad_batches = 2}},
    {"autocast' to 'fit' (moth.bfloat16, moth.float16 or true, is needed, got 1",
      {autocast = 1}},
    {"autocast' to 'fit' (", {autocast = moth.float32}},
    {"metrics' to 'fit' (a table of names is needed: metrics = {acc = metric}, where "
      .. "metric has update, compute and reset, or is a function(output, target); got 3",
      {metrics = {a = 3}}},
    {"metrics' to 'fit' (a table of names is needed", {metrics = {F.mse_loss}}},
    {"metrics' to 'fit' (a function has to return a number or a tensor of one element, "
      .. "got f32 (2, 1)", {metrics = {a = function(output) return output end}}},
    {"callbacks' to 'fit' (element 2 is 3; a callback has methods such as on_epoch_end",
      {callbacks = {print, 3}}},
    {"resume' to 'fit' (true needs the argument checkpoint, or a ModelCheckpoint "
      .. "among the callbacks", {resume = true}},
    {"resume' to 'fit' (the path of a file, or true, is needed, got 3", {resume = 3}},
    {"scheduler_interval' to 'fit'", {scheduler_interval = "batch"}},
  } do
    local text = "bad argument '" .. row[1]
    it(row[1], function() raises(text, function() fit(row[2]) end) end)
  end

  it("a captured step with accumulate_grad_batches = 1 is taken", function()
    assert.equal(1, fit {capture = true, accumulate_grad_batches = 1}:len())
  end)
end)

describe("moth.fit", function()
  it("has these defaults", function()
    local seen
    local history = fit {callbacks = function(run) seen = run end}
    assert.same({1, "loss", false, 1, 50}, {seen.epochs, seen.monitor, seen.capture,
      seen.accumulate_grad_batches, seen.log_every_n_steps})
    assert.is_nil(seen.scaler)
    assert.is_nil(seen.autocast)
    assert.is_true(seen.is_first)
    assert.equal(seen.net, seen.module)
    assert.same({4, 4, 4}, {seen.length, seen.batch, seen.step})
    assert.equal(1, history:len())
    fit {val_loader = arguments()[2], callbacks = function(run) seen = run end}
    assert.equal("val_loss", seen.monitor)
    fit {autocast = true, callbacks = function(run) seen = run end}
    assert.equal(moth.bfloat16, seen.autocast)
    fit {autocast = false, callbacks = function(run) seen = run end}
    assert.is_nil(seen.autocast)
  end)

  it("restores the mode of the net, also after an error", function()
    for _, training in ipairs {true, false} do
      local all = arguments()
      all[1]:train(training)
      moth.fit(all)
      assert.equal(training, all[1].training)
      all.callbacks = function() error "stop" end
      assert.has_error(function() moth.fit(all) end)
      assert.equal(training, all[1].training)
    end
  end)

  it("takes one metric, a list of metrics, callable tables and booleans", function()
    local M = moth.metrics
    local history = fit {metrics = M.MeanSquaredError()}
    assert.same({"epoch", "loss", "MeanSquaredError", "lr", "seconds"}, history:names())
    assert.near(history.loss[1], history.MeanSquaredError[1], 1e-5)
    local callable = setmetatable({}, {__call = function() return 2 end})
    history = fit {metrics = {two = callable, yes = function() return true end,
      no = function() return false end, long = function() return moth.tensor(7LL) end,
      wide = function() return 5LL end}}
    assert.same({2, 1, 0, 7, 5}, {history.two[1], history.yes[1], history.no[1], history.long[1],
      history.wide[1]})
  end)

  it("weights the loss and functions by the samples of a batch", function()
    local x = moth.tensor {{1}, {1}, {4}}
    local net = nn.Linear(1, 1)
    local history = moth.fit {net, data.DataLoader(data.TensorDataset(x, x), 2), progress = false,
      optimizer = optim.SGD(net:parameters(), 0), metrics = {mean = function(_, y)
        return y:mean()
      end}, loss = function(output, y) return output:sum() * 0 + y:mean() end}
    assert.near(2, history.loss[1], 1e-6)
    assert.near(2, history.mean[1], 1e-6)
  end)

  it("counts the samples of the input, also if the target has another number", function()
    local counts = {}
    local net = nn.Linear(2, 1)
    local loader = data.DataLoader {data.TensorDataset(moth.ones(6, 2)), batch_size = 3,
      collate_fn = function(list) return moth.stack(list), moth.ones(1) end}
    moth.fit {net, loader, loss = function(y) return y:mean() end, progress = false,
      optimizer = optim.SGD(net:parameters(), 0), callbacks = {{on_batch_end = function(_, run)
        counts[#counts + 1] = run.count
      end}}}
    assert.same({3, 6}, counts)
  end)

  it("takes batches of other tables as one sample", function()
    assert.equal(3, measures.samples(moth.ones(3, 2), moth.ones(5)))
    assert.equal(5, measures.samples({}, moth.ones(5)))
    assert.equal(1, measures.samples({}, {}))
    assert.equal(1, measures.samples(moth.tensor(3), moth.ones(5)))
  end)

  it("sends values to all loggers and flushes them after each epoch", function()
    local rows, flushes = {}, 0
    local function logger()
      return {add_scalar = function(_, name, _, step) rows[#rows + 1] = name .. step end,
        flush = function() flushes = flushes + 1 end}
    end
    fit {logger = {logger(), logger()}, epochs = 2, log_every_n_steps = 3}
    table.sort(rows)
    assert.same({"epoch4", "epoch4", "epoch8", "epoch8", "loss4", "loss4", "loss8", "loss8",
      "loss_step3", "loss_step3", "loss_step6", "loss_step6", "lr4", "lr4", "lr8", "lr8",
      "seconds4", "seconds4", "seconds8", "seconds8"}, rows)
    assert.equal(4, flushes)
  end)

  it("begins each epoch of a distributed sampler with its number", function()
    local epochs = {}
    local Sampler = moth.class("Sampler")
    function Sampler.iter()
      local i = 0
      return function()
        i = i + 1
        return i <= 4 and i or nil
      end
    end
    function Sampler.len() return 4 end
    function Sampler.set_epoch(_, epoch) epochs[#epochs + 1] = epoch end
    local all = arguments {epochs = 3}
    all[2] = data.DataLoader {all[2].dataset, batch_size = 2, sampler = Sampler()}
    moth.fit(all)
    assert.same({1, 2, 3}, epochs)
  end)

  it("stops before the first epoch, and at exactly max_steps", function()
    local last
    local function note(run) last = {run.epoch, run.step} end
    local history = fit {epochs = 5, max_steps = 4, callbacks = note}
    assert.same({1, 4}, last)
    assert.equal(1, history:len())
    history = fit {epochs = 5, max_steps = 5, callbacks = note}
    assert.same({2, 5}, last)
    assert.equal(2, history:len())
    assert.equal(0, fit({epochs = 0}):len())
    assert.equal(0, fit({epochs = 2, callbacks = {{on_train_begin = function(_, run)
      run.stop = "not today"
    end}}}):len())
  end)

  it("writes no plot without epochs", function()
    local path = os.tmpname() .. ".svg"
    fit {epochs = 0, plot = path}
    assert.is_nil(io.open(path))
    fit {epochs = 1, plot = path}
    assert.is_true(os.remove(path))
    fit {epochs = 1, plot = false}
    local printed, print = nil, _G.print
    _G.print = function(text) printed = text end
    local ok, problem = pcall(fit, {epochs = 2, plot = true})
    _G.print = print
    assert.is_true(ok, problem)
    assert.is_truthy(printed:find("epoch", 1, true))
  end)

  it("steps a schedule by epoch, unless it is one of steps", function()
    local function rates(interval)
      local all = arguments {epochs = 2, scheduler_interval = interval}
      all.scheduler = optim.lr_scheduler.ExponentialLR(all.optimizer, 0.5)
      return moth.fit(all).lr, all.optimizer.param_groups[1].lr
    end
    local lr, last = rates()
    assert.same({0.01, 0.005}, lr)
    assert.near(0.0025, last, 1e-12)
    lr, last = rates "step"
    assert.near(0.01 / 16, lr[1], 1e-12)
    assert.near(0.01 / 256, last, 1e-12)
  end)

  it("gives the display of an epoch and the reason of its end", function()
    local text = stderr_of(function()
      fit {epochs = 2, progress = true, callbacks = function(run)
        if run.epoch == 2 then run.stop = "enough" end
      end}
    end)
    assert.is_truthy(text:find("epoch 1/2  loss [%d.e-]+  lr 0.01  %d+%.%d s\n"), text)
    assert.is_truthy(text:find("epoch 2/2  loss", 1, true))
    assert.is_truthy(text:find("stopped in epoch 2 after step 8: enough\n$"))
    local endless = stderr_of(function()
      fit {epochs = 1e6, progress = true, max_steps = 4}
    end)
    assert.is_truthy(endless:find("epoch 1  loss", 1, true), endless)
    local most = stderr_of(function() fit {epochs = 999999, progress = true, max_steps = 4} end)
    assert.is_truthy(most:find("epoch 1/999999  loss", 1, true), most)
  end)
end)

describe("callbacks", function()
  it("are called in their order, those that save after all others", function()
    local order = {}
    local function named(name, saves)
      return {saves = saves, on_epoch_end = function() order[#order + 1] = name end}
    end
    fit {callbacks = {named("a", true), named "b", named("c", true), named("d", false)}}
    assert.same({"b", "d", "a", "c"}, order)
  end)

  it("are one function, one object, or a list", function()
    local n = 0
    local function count() n = n + 1 end
    fit {callbacks = count}
    fit {callbacks = {count}}
    fit {callbacks = {on_epoch_end = count}}
    fit {callbacks = {{on_epoch_end = count}, count}}
    fit {callbacks = {}}
    assert.equal(5, n)
    for _, name in ipairs {"on_train_begin", "on_epoch_begin", "on_batch_end", "on_epoch_end",
      "on_interrupt", "on_train_end"} do
      assert.equal(1, #base.list {{[name] = print}})
      assert.equal(0, #base.hooks({callbacks.Callback()})[name])
      assert.is_nil(callbacks.Callback()[name](callbacks.Callback(), {}))
    end
  end)

  it("choose the better of two values by the metric, else by the name", function()
    local function mode(monitor, metrics, given)
      return base.mode(given or "auto", monitor, {metrics = metrics or {}})
    end
    for _, name in ipairs {"acc", "val_accuracy", "AUC", "val_f1", "precision", "val_recall", "iou",
      "dice", "r2", "bleu", "mAP"} do assert.equal("max", mode(name), name) end
    for _, name in ipairs {"loss", "val_loss", "mae", "error"} do
      assert.equal("min", mode(name), name)
    end
    assert.equal("min", mode("acc", {acc = {higher_is_better = false}}))
    assert.equal("max", mode("mae", {mae = {higher_is_better = true}}))
    assert.equal("max", mode("val_mae", {mae = {higher_is_better = true}}))
    assert.equal("min", mode("acc", {}, "min"))
    assert.equal("max", mode("loss", {}, "max"))
  end)

  -- Calls on_epoch_end with the values of m in turn. Returns the reason of the end and its epoch.
  local function epochs(callback, values)
    local run = {results = {}, metrics = {}, monitor = "m", module = nn.Linear(1, 1)}
    for i, value in ipairs(values) do
      run.epoch, run.results.m = i, value
      callback:on_epoch_end(run)
      if run.stop then return run.stop, i end
    end
  end

  it("EarlyStopping has patience 3 by default; equal values are no improvement", function()
    local stop = callbacks.EarlyStopping()
    assert.same({0, 3, "auto", false}, {stop.min_delta, stop.patience, stop.mode,
      stop.restore_best})
    local why, at = epochs(stop, {5, 5, 5, 5, 5})
    assert.same({"m has not improved for 3 epochs", 4}, {why, at})
    assert.is_nil(epochs(callbacks.EarlyStopping(), {5, 5, 5, 4, 4, 4, 3, 3, 3}))
    stop = callbacks.EarlyStopping {min_delta = 1, patience = 1}
    assert.same({"m has not improved for 1 epochs", 3}, {epochs(stop, {5, 3, 2, 1})})
    stop = callbacks.EarlyStopping {mode = "max", patience = 2}
    assert.same({"m has not improved for 2 epochs", 4}, {epochs(stop, {1, 2, 1.5, 2})})
    assert.same({2, 2, 2}, {stop.best, stop.best_epoch, stop.wait})
  end)

  it("EarlyStopping continues from its state", function()
    local one = callbacks.EarlyStopping {restore_best = true, patience = 2}
    epochs(one, {5, 3, 4})
    local state = one:state_dict()
    assert.same({3, 2, 1}, {state.best, state.best_epoch, state.wait})
    local two = callbacks.EarlyStopping {restore_best = true, patience = 2}
    two:load_state_dict(state)
    assert.same({"m has not improved for 2 epochs", 1}, {epochs(two, {4})})
    assert.equal(state.weights, two.weights)
    local plain = callbacks.EarlyStopping()
    plain:load_state_dict(state)
    assert.is_nil(plain.weights)
  end)

  it("ModelCheckpoint keeps the best of its value, not NaN", function()
    local saved, removed = {}, {}
    local function run_of(callback, values)
      saved, removed = {}, {}
      local run = {results = {}, metrics = {}, monitor = "m", is_first = true}
      function run.save(_, path) saved[#saved + 1] = path:match "([^/]*)%.safetensors$" end
      local remove = os.remove
      os.remove = function(path) -- luacheck: ignore 122
        removed[#removed + 1] = path:match "([^/]*)%.safetensors$"
      end
      local ok, problem = pcall(function()
        for i, value in ipairs(values) do
          run.epoch, run.results.m = i, value
          callback:on_epoch_end(run)
        end
      end)
      os.remove = remove -- luacheck: ignore 122
      assert.is_true(ok, tostring(problem))
    end
    run_of(callbacks.ModelCheckpoint "f", {3, 3, 2, 0 / 0, 4})
    assert.same({"best", "last", "last", "best", "last", "last", "last"}, saved)
    assert.same({}, removed)
    local two = callbacks.ModelCheckpoint {"f//", save_top_k = 2, mode = "max"}
    assert.equal("f/epoch_0012.safetensors", two:path(12))
    assert.equal("f/last.safetensors", two:path "last")
    run_of(two, {1, 3, 2, 3, 0})
    assert.same({"epoch_0001", "best", "last", "epoch_0002", "best", "last", "epoch_0003", "last",
      "epoch_0004", "last", "last"}, saved)
    assert.same({"epoch_0001", "epoch_0003"}, removed)
    assert.same({{epoch = 2, value = 3}, {epoch = 4, value = 3}}, two:state_dict().kept)
    local again = callbacks.ModelCheckpoint {"f", save_top_k = 2, mode = "max"}
    again:load_state_dict(two:state_dict())
    run_of(again, {5})
    assert.same({"epoch_0001", "best", "last"}, saved)
    assert.same({"epoch_0004"}, removed)
    run_of(callbacks.ModelCheckpoint {"f", save_top_k = 0}, {1, 0})
    assert.same({"last", "last"}, saved)
  end)

  it("ModelCheckpoint also saves after each n steps, and when the run is interrupted", function()
    local saved = {}
    local one = callbacks.ModelCheckpoint {"f", every_n_train_steps = 3}
    local run = {save = function(self) saved[#saved + 1] = self.step end}
    for step = 1, 7 do
      run.step, run.updated = step, true
      one:on_batch_end(run)
      run.updated = false
      one:on_batch_end(run)
    end
    assert.same({3, 6}, saved)
    one:on_interrupt(run)
    assert.same({3, 6, 7}, saved)
    callbacks.ModelCheckpoint("f"):on_batch_end {step = 3, updated = true}
  end)
end)

describe("a history", function()
  local function filled()
    local history = History()
    for i = 1, 2 do
      history:append {seconds = 1.5 * i, lr = 0.1, val_b = i, a = 1 / 3, val_loss = 2, loss = i,
        epoch = i, z = 12345678, text = "no"}
    end
    return history
  end

  it("has its columns in order", function()
    local history = filled()
    assert.same({"epoch", "loss", "a", "z", "val_loss", "val_b", "lr", "seconds"}, history:names())
    assert.equal(2, history:len())
    assert.equal(0, History():len())
    assert.equal("loss 2  a 0.33333  z 1.2346e+07  val_loss 2  val_b 2  lr 0.1", history:row(2))
    assert.equal(table.concat({
      "epoch  loss        a           z  val_loss  val_b   lr  seconds",
      "    1     1  0.33333  1.2346e+07         2      1  0.1      1.5",
      "    2     2  0.33333  1.2346e+07         2      2  0.1      3.0",
    }, "\n"), tostring(history))
  end)

  it("returns from its state", function()
    local other = History()
    other:load_state_dict(filled():state_dict())
    assert.equal(tostring(filled()), tostring(other))
  end)

  it("draws a value of the training, of the validation, or of both", function()
    local function names(figure)
      local list = {}
      for i, layer in ipairs(figure.layers) do list[i] = layer.name end
      return table.concat(list, " ") .. " " .. figure.title .. " " .. figure.xlabel
    end
    local history = filled()
    assert.equal("train validation loss epoch", names(history:plot()))
    assert.equal("train a epoch", names(history:plot "a"))
    assert.equal("validation b epoch", names(history:plot "b"))
    assert.same({1, 2}, history:plot().layers[1].x)
    raises("bad argument 'name' to 'plot' (there is no value 'c'; there are epoch, loss, a, z, "
      .. "val_loss, val_b, lr, seconds", function() history:plot "c" end)
  end)

  it("shows an empty cell for a value that an epoch lacks", function()
    local history = History()
    history:append {epoch = 1, loss = 1}
    history:append {epoch = 2, loss = 2, late = 3}
    assert.equal("epoch  loss  late\n    1     1     3\n    2     2      ", tostring(history))
  end)
end)

describe("moth.lr_find", function()
  local Finder = require("moth.callbacks.lr_finder").LRFinder

  -- Feeds losses. Returns the finder and the run.
  local function fed(losses, options)
    options = options or {start_lr = 1e-4, end_lr = 1, num_training = #losses}
    local finder = Finder(options)
    local run = {optimizer = {param_groups = {{lr = 9}, {lr = 9}}}, updated = true}
    finder:on_train_begin(run)
    for _, loss in ipairs(losses) do
      run.loss = loss
      finder:on_batch_end(run)
      if run.stop then break end
    end
    finder:on_train_end()
    return finder, run
  end

  it("raises the rate of all groups by equal factors, from the first to the last", function()
    local finder, run = fed {1, 1, 1, 1, 1}
    for i = 1, 5 do assert.near(1, finder.lr[i] / 10 ^ (i - 5), 1e-12) end
    assert.equal(run.optimizer.param_groups[1].lr, run.optimizer.param_groups[2].lr)
    assert.near(10, run.optimizer.param_groups[1].lr, 1e-9)
    local seen
    local all = arguments {num_training = 3, start_lr = 0.01, end_lr = 1}
    all.progress = nil
    seen = moth.lr_find(all)
    assert.near(0.01, seen.lr[1], 1e-12)
    assert.near(0.1, seen.lr[2], 1e-12)
    assert.near(1, seen.lr[3], 1e-12)
    assert.equal(3, #seen.lr)
  end)

  it("has these defaults", function()
    local finder = Finder()
    assert.same({1e-7, 10, 100, true}, {finder.start_lr, finder.end_lr, finder.num_training,
      finder.stop_div})
    assert.equal("LRFinder (0 rates from 0 to 0, suggestion none)", tostring(finder))
  end)

  it("smooths the losses with weight 0.98, without a bias to 0", function()
    local finder = fed {1, 2, 4}
    local mean = 0
    for i, loss in ipairs {1, 2, 4} do
      mean = 0.98 * mean + 0.02 * loss
      assert.near(mean / (1 - 0.98 ^ i), finder.loss[i], 1e-12)
    end
  end)

  it("suggests the middle of the longest decrease", function()
    local finder = fed {9, 8, 7, 6, 5, 4}
    -- All six decrease: 6 - 6 + 3.
    assert.equal(finder.lr[3], finder.suggestion)
    assert.equal(("LRFinder (6 rates from 0.0001 to 1, suggestion %.3g)"):format(finder.lr[3]),
      tostring(finder))
    finder = fed {9, 8, 7}
    assert.equal(finder.lr[1], finder.suggestion)
    finder = fed {1, 9, 8, 7, 6, 5, 4, 3}
    assert.is_nil(fed({9, 8}).suggestion)
    assert.is_true(finder.suggestion == nil or finder.suggestion > 0)
  end)

  it("ends when the smoothed loss is above four times its least, or NaN", function()
    local losses = {1, 1, 1, 1e3, 1, 1}
    local finder, run = fed(losses)
    assert.equal("the loss diverges", run.stop)
    assert.equal(4, #finder.lr)
    finder, run = fed(losses, {start_lr = 1e-4, end_lr = 1, num_training = 6, stop_div = false})
    assert.is_nil(run.stop)
    assert.equal(6, #finder.lr)
    finder, run = fed({1, 0 / 0, 1}, {num_training = 3, stop_div = false})
    assert.equal("the loss diverges", run.stop)
    assert.equal(2, #finder.lr)
  end)

  it("counts steps of the optimizer", function()
    local finder = Finder {num_training = 4}
    finder:on_batch_end {updated = false}
    assert.equal(0, #finder.lr)
    local all = arguments {num_training = 3, accumulate_grad_batches = 2}
    all.progress = nil
    assert.equal(3, #moth.lr_find(all).lr)
  end)

  it("restores the net, the optimizer and random numbers after an error", function()
    local all = arguments {training_step = function() error("stop", 0) end}
    all.progress = nil
    local weight, random = all[1].weight:clone(), moth.get_rng_state()
    assert.has_error(function() moth.lr_find(all) end, "stop")
    assert.is_true(weight:equal(all[1].weight))
    assert.is_true(random:equal(moth.get_rng_state()))
    assert.equal(0.01, all.optimizer.param_groups[1].lr)
  end)

  it("refuses rates of 0 and a single step", function()
    raises("bad argument 'start_lr' to 'LRFinder' (a number above 0 is needed, got 0",
      function() Finder {start_lr = 0} end)
    raises("bad argument 'end_lr' to 'LRFinder' (a number above 0 is needed, got -1",
      function() Finder {end_lr = -1} end)
    raises("bad argument 'start_lr' to 'LRFinder'", function() Finder {start_lr = 0 / 0} end)
    raises("bad argument 'num_training' to 'LRFinder' (a number from 2 on is needed, got 1",
      function() Finder {num_training = 1} end)
    assert.equal(2, Finder({num_training = 2}).num_training)
    local all = arguments {num_training = 1}
    all.progress = nil
    raises("bad argument 'num_training' to 'lr_find' (a number from 2 on is needed, got 1",
      function() moth.lr_find(all) end)
  end)
end)
