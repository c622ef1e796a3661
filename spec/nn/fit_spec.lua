-- moth.fit: the bits of the written-out loop, validation, metrics, callbacks, checkpoint files that
-- continue a run exactly, signals; moth.lr_find.

local moth = require "moth"
local child = require "spec.support.child"
local fit_run = require "spec.support.fit_run"
local process = require "spec.support.process"

local nn, F, optim, data, callbacks = moth.nn, moth.nn.functional, moth.optim, moth.data,
  moth.callbacks

local function model()
  return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
end

-- A small regression: a net, a loader, an optimizer, and the data.
local function problem(options)
  options = options or {}
  moth.manual_seed(options.seed or 5)
  local x = moth.randn(options.n or 20, 3)
  local y = x:sum(2, true):sin()
  local net = model()
  local loader = data.DataLoader{data.TensorDataset(x, y), batch_size = options.batch_size or 4,
    shuffle = options.shuffle ~= false}
  return net, loader, optim.SGD(net:parameters(), {lr = 0.1, momentum = 0.9}), x, y
end

local function same_weights(a, b)
  for name, value in pairs(a:state_dict()) do
    if not value:equal(b:state_dict()[name]) then return false end
  end
  return true
end

-- The loop of docs/guide/training.md.
local function written_out(net, loader, optimizer, epochs)
  local losses = {}
  for epoch = 1, epochs do
    local total, count = 0, 0
    for input, target in loader do
      moth.scope(function()
        local loss = F.mse_loss(net(input), target)
        optimizer:zero_grad()
        loss:backward()
        optimizer:step()
        total, count = total + loss:item() * input:size(1), count + input:size(1)
      end)
    end
    losses[epoch] = total / count
  end
  return losses
end

local folder = os.tmpname()
os.remove(folder)

local function file(name) return folder .. "/" .. name .. ".safetensors" end

local function exists(path)
  local found = io.open(path)
  if found then found:close() end
  return found ~= nil
end

local function clear()
  for _, name in ipairs {"last", "best", "epoch_0001", "epoch_0002", "epoch_0003", "epoch_0004"} do
    os.remove(file(name))
  end
  fit_run.clear(folder)
  os.remove(folder)
end

describe("moth.fit", function()
  after_each(clear)

  it("has the bits of the written-out loop", function()
    local net, loader, optimizer = problem()
    local losses = written_out(net, loader, optimizer, 3)
    local other, its_loader, its_optimizer = problem()
    local history = moth.fit{other, its_loader, loss = F.mse_loss, optimizer = its_optimizer,
      epochs = 3, progress = false}
    assert.is_true(same_weights(net, other))
    assert.same(losses, history.loss)
    assert.same({1, 2, 3}, history.epoch)
    assert.same({0.1, 0.1, 0.1}, history.lr)
    assert.is_nil(history.stopped)
    assert.is_true(other.training)
  end)

  it("has the same bits as a captured step", function()
    local net, loader, optimizer = problem()
    local losses = written_out(net, loader, optimizer, 3)
    local other, its_loader, its_optimizer = problem()
    local history = moth.fit{other, its_loader, loss = F.mse_loss, optimizer = its_optimizer,
      epochs = 3, metrics = {mse = F.mse_loss}, capture = true, progress = false}
    assert.is_true(same_weights(net, other))
    assert.same(losses, history.loss)
    assert.close(losses, history.mse, 1e-6)
  end)

  it("captures mixed precision, a scaler, clipping and a smaller last batch", function()
    for _, dtype in ipairs {moth.bfloat16, moth.float16} do
      local nets = {}
      for i, capture in ipairs {false, true} do
        local net, loader, optimizer = problem{n = 22}
        moth.fit{net, loader, loss = F.mse_loss, optimizer = optimizer, epochs = 3,
          autocast = dtype, clip_grad_norm = 0.5, capture = capture, progress = false,
          scheduler = optim.lr_scheduler.ExponentialLR(optimizer, 0.8)}
        nets[i] = net
      end
      assert.is_true(same_weights(nets[1], nets[2]))
    end
  end)

  it("measures on the training and on the validation data, without gradients there", function()
    local net, loader, optimizer, x, y = problem()
    local valid = data.DataLoader(data.TensorDataset(x[{{1, 7}}], y[{{1, 7}}]), 4)
    local modes = {}
    local history = moth.fit{net, loader, optimizer = optimizer, epochs = 2, val_loader = valid,
      metrics = {mae = F.l1_loss}, progress = false,
      training_step = function(n, input, target)
        modes[#modes + 1] = (n.training and "t" or "v") .. (moth.is_grad_enabled() and "g" or "n")
        local output = n(input)
        return F.mse_loss(output, target), output, target
      end}
    assert.equal("tgtgtgtgtgvnvntgtgtgtgtgvnvn", table.concat(modes))
    net:eval()
    local output = net(x[{{1, 7}}])
    assert.close(F.mse_loss(output, y[{{1, 7}}]):item(), history.val_loss[2], 1e-6)
    assert.close(F.l1_loss(output, y[{{1, 7}}]):item(), history.val_mae[2], 1e-6)
    assert.same({"epoch", "loss", "mae", "val_loss", "val_mae", "lr", "seconds"}, history:names())
    assert.is_truthy(tostring(history):find("epoch +loss +mae +val_loss +val_mae +lr +seconds\n"
      .. " +1 "))
  end)

  it("takes objects with update, compute and reset as metrics", function()
    local seen = {}
    local metric = {n = 0}
    function metric:update(output, target)
      assert.same({output.shape}, {target.shape})
      self.n = self.n + output:size(1)
    end
    function metric:compute() return moth.tensor(self.n) end
    function metric:reset() seen[#seen + 1], self.n = self.n, 0 end
    local net, loader, optimizer = problem()
    local history = moth.fit{net, loader, loss = F.mse_loss, optimizer = optimizer, epochs = 2,
      val_loader = loader, metrics = {n = metric}, progress = false}
    assert.same({20, 20}, history.n)
    assert.same({20, 20}, history.val_n)
    assert.same({20, 20, 20, 20}, seen)
  end)

  it("takes moth.metrics and collections of them, whose higher_is_better EarlyStopping reads",
    function()
      local x = moth.randn(30, 3)
      local y = x:sum(2):gt(0):long() + 1
      local net, M = nn.Linear(3, 2), moth.metrics
      local loader = data.DataLoader(data.TensorDataset(x, y), 7)
      local stop = callbacks.EarlyStopping{monitor = "val_hits", patience = 9}
      local history = moth.fit{net, loader, loss = F.cross_entropy, epochs = 6,
        optimizer = optim.SGD(net:parameters(), 1), val_loader = loader, progress = false,
        callbacks = {stop},
        metrics = {hits = M.MulticlassAccuracy{num_classes = 2, average = "micro"},
          M.MetricCollection{f1 = M.MulticlassF1Score(2), again = M.MulticlassAccuracy(2)}}}
      local right = net(x):argmax(2):eq(y):float():mean():item()
      assert.close(right, history.val_hits[6], 1e-6)
      assert.is_true(history.val_f1[6] > 0.7 and history.again[6] > 0.7)
      assert.close(math.max(unpack(history.val_hits)), stop.best, 1e-12)
    end)

  it("calls the callbacks in order", function()
    local calls = {}
    local Log = moth.class("Log", callbacks.Callback)
    for _, name in ipairs {"on_train_begin", "on_epoch_begin", "on_batch_end", "on_epoch_end",
                           "on_train_end"} do
      Log[name] = function(_, run)
        calls[#calls + 1] = ("%s %d %d %d"):format(name:gsub("on_", ""), run.epoch, run.batch,
          run.step)
      end
    end
    local net, loader, optimizer = problem{n = 8}
    moth.fit{net, loader, loss = F.mse_loss, optimizer = optimizer, epochs = 2, progress = false,
      callbacks = {Log(), function(run) calls[#calls + 1] = "function " .. run.epoch end}}
    assert.same({"train_begin 0 0 0", "epoch_begin 1 0 0", "batch_end 1 1 1", "batch_end 1 2 2",
      "epoch_end 1 2 2", "function 1", "epoch_begin 2 0 2", "batch_end 2 1 3", "batch_end 2 2 4",
      "epoch_end 2 2 4", "function 2", "train_end 2 2 4"}, calls)
  end)

  it("draws the curves of the loss and of metrics", function()
    local net, loader, optimizer = problem()
    local path = os.tmpname() .. ".svg"
    local history = moth.fit{net, loader, loss = F.mse_loss, optimizer = optimizer, epochs = 3,
      val_loader = loader, metrics = {mae = F.l1_loss}, progress = false, plot = path}
    local svg = assert(io.open(path))
    local text = svg:read "*a"
    svg:close()
    os.remove(path)
    assert.is_truthy(text:find("validation", 1, true) and text:find("train", 1, true))
    assert.is_truthy(tostring(history:plot "mae"):find("mae", 1, true))
    assert.error_matches(function() history:plot "acc" end, "there are epoch, loss, mae", nil, true)
    local found = moth.lr_find{net, loader, loss = F.mse_loss, optimizer = optimizer}
    assert.is_truthy(tostring(found:plot()):find("lr", 1, true))
  end)

  it("ends when a callback says so, and after max_steps", function()
    local net, loader, optimizer = problem()
    local history = moth.fit{net, loader, loss = F.mse_loss, optimizer = optimizer, epochs = 9,
      callbacks = function(run) if run.epoch == 2 then run.stop = "enough" end end,
      progress = false}
    assert.same({2, "enough"}, {history:len(), history.stopped})
    local last
    history = moth.fit{net, loader, loss = F.mse_loss, optimizer = optimizer, epochs = 9,
      max_steps = 7, callbacks = function(run) last = run.step end, progress = false}
    assert.same({2, 7}, {history:len(), last})
  end)

  it("accumulates: the mean gradient of several batches, also of the last few", function()
    local net, _, _, x, y = problem{n = 10}
    local big = moth.deepcopy(net)
    local function train(a_net, size, n)
      local optimizer = optim.SGD(a_net:parameters(), {lr = 0.1})
      local steps
      moth.fit{a_net, data.DataLoader(data.TensorDataset(x, y), size), loss = F.mse_loss,
        optimizer = optimizer, accumulate_grad_batches = n, progress = false,
        callbacks = function(run) steps = run.step end}
      return steps
    end
    assert.equal(3, train(net, 1, 4))
    assert.equal(3, train(big, 4, 1))
    for name, value in pairs(net:state_dict()) do
      assert.close(big:state_dict()[name]:tolist(), value:tolist(), 1e-6)
    end
  end)

  it("takes the last step of a stream whose length is unknown", function()
    local net, _, optimizer, x, y = problem{n = 5}
    local stream = data.IterableDataset(function()
      local i = 0
      return function()
        i = i + 1
        if i <= 5 then return x[i], y[i] end
      end
    end)
    local steps
    moth.fit{net, data.DataLoader(stream), loss = F.mse_loss, optimizer = optimizer, epochs = 2,
      accumulate_grad_batches = 2, progress = false, callbacks = function(run) steps = run.step end}
    assert.equal(6, steps)
  end)

  it("clips gradients by norm and by value", function()
    for _, name in ipairs {"clip_grad_norm", "clip_grad_value"} do
      local net, loader, optimizer = problem()
      local largest = 0
      moth.fit{net, loader, loss = function(a, b) return F.mse_loss(a, b) * 1e4 end,
        optimizer = optimizer, [name] = 0.25, progress = false,
        callbacks = {{on_batch_end = function()
          local norm = name == "clip_grad_norm"
            and nn.utils.get_total_norm({net[1].weight.grad, net[1].bias.grad, net[3].weight.grad,
              net[3].bias.grad}) or net[3].weight.grad:abs():max()
          largest = math.max(largest, norm:item())
        end}}}
      assert.close(0.25, largest, 1e-5)
    end
  end)

  it("computes in mixed precision, with a scaler for float16", function()
    for _, dtype in ipairs {moth.bfloat16, moth.float16} do
      local net, loader, optimizer = problem()
      local seen
      net[1]:register_forward_hook(function(_, _, output) seen = output.dtype end)
      local scaler
      local history = moth.fit{net, loader, loss = F.mse_loss, optimizer = optimizer, epochs = 15,
        autocast = dtype, clip_grad_norm = 10, progress = false,
        callbacks = function(run) scaler = run.scaler end}
      assert.equal(dtype, seen)
      assert.equal(dtype == moth.float16, scaler ~= nil)
      assert.is_true(history.loss[15] < history.loss[1] / 2)
    end
  end)

  it("calls the schedule after each epoch, each step, or with the monitored value", function()
    local net, loader, optimizer = problem()
    local history = moth.fit{net, loader, loss = F.mse_loss, optimizer = optimizer, epochs = 3,
      scheduler = optim.lr_scheduler.StepLR(optimizer, 1, {gamma = 0.5}), progress = false}
    assert.same({0.1, 0.05, 0.025}, history.lr)
    net, loader, optimizer = problem()
    history = moth.fit{net, loader, loss = F.mse_loss, optimizer = optimizer, epochs = 2,
      scheduler = optim.lr_scheduler.StepLR(optimizer, 5, {gamma = 0.5}),
      scheduler_interval = "step", progress = false}
    assert.same({0.05, 0.025}, history.lr)
    net, loader, optimizer = problem()
    history = moth.fit{net, loader, loss = F.mse_loss, optimizer = optimizer, epochs = 4,
      val_loader = loader, metrics = {one = function() return 1 end}, monitor = "val_one",
      scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, {factor = 0.5, patience = 0}),
      progress = false}
    assert.same({0.1, 0.1, 0.05, 0.025}, history.lr)
  end)

  it("sends the values to loggers", function()
    local rows = {}
    local logger = {add_scalar = function(_, tag, value, step)
      rows[#rows + 1] = tag .. " " .. step
      assert.equal("number", type(value))
    end}
    local net, loader, optimizer = problem{n = 8}
    moth.fit{net, loader, loss = F.mse_loss, optimizer = optimizer, epochs = 2, logger = logger,
      log_every_n_steps = 2, progress = false, callbacks = function(run) run:log("mine", 1) end}
    table.sort(rows)
    assert.same({"epoch 2", "epoch 4", "loss 2", "loss 4", "loss_step 2", "loss_step 4", "lr 2",
      "lr 4", "mine 2", "mine 4", "seconds 2", "seconds 4"}, rows)
  end)

  it("creates the optimizer from its class", function()
    local net, loader = problem()
    local before, kind = net[1].weight:clone(), nil
    moth.fit{net, loader, loss = F.mse_loss, optimizer = optim.Adam, progress = false,
      callbacks = function(run) kind = moth.nn.isinstance(run.optimizer, optim.Adam) end}
    assert.is_true(kind)
    assert.is_false(before:equal(net[1].weight))
  end)

  it("takes LBFGS, batches that are tables, and steps of your own", function()
    local net, _, _, x, y = problem()
    local history = moth.fit{net, data.DataLoader(data.TensorDataset(x, y), 20), epochs = 4,
      loss = F.mse_loss, optimizer = optim.LBFGS(net:parameters(), {max_iter = 10}),
      progress = false}
    assert.is_true(history.loss[4] < history.loss[1] / 5)
    local rows = {}
    for i = 1, 20 do rows[i] = {x = x[i], y = y[i]} end
    net = model()
    history = moth.fit{net, data.DataLoader{rows, batch_size = 5}, epochs = 2, progress = false,
      optimizer = optim.SGD(net:parameters(), 0.1),
      training_step = function(n, batch) return F.mse_loss(n(batch.x), batch.y) end}
    assert.equal(2, history:len())
  end)

  it("frees the tensors of a step, and keeps what a metric keeps", function()
    local net, loader, optimizer = problem{n = 400}
    collectgarbage "stop"
    local at, kept = {}, {}
    moth.fit{net, loader, loss = F.mse_loss, optimizer = optimizer, progress = false,
      callbacks = {{on_batch_end = function(_, run) at[run.batch] = moth.memory().live_bytes end}}}
    collectgarbage "restart"
    assert.is_true(at[90] - at[10] < 80 * 200) -- a batch, which the loader made
    local metric = {reset = function() end, compute = function() return #kept end}
    function metric.update(_, output) kept[#kept + 1] = output end
    moth.fit{net, loader, loss = F.mse_loss, optimizer = optimizer, progress = false,
      metrics = {kept = metric}}
    assert.same({100, 4}, {#kept, kept[100]:size(1)})
  end)

  it("names the argument that is wrong", function()
    local net, loader, optimizer, x = problem()
    local function says(text, arguments)
      arguments.progress = false
      assert.error_matches(function() moth.fit(arguments) end, text, nil, true)
    end
    says("argument 'loss' to 'fit'", {net, loader, optimizer = optimizer})
    says("argument 'optimizer' to 'fit'", {net, loader, loss = F.mse_loss, optimizer = "adam"})
    says("argument 'loader' to 'fit'", {net, x, loss = F.mse_loss, optimizer = optimizer})
    says("argument 'val_loader' to 'fit'", {net, loader, loss = F.mse_loss, optimizer = optimizer,
      val_loader = 3})
    says("argument 'metrics' to 'fit'", {net, loader, loss = F.mse_loss, optimizer = optimizer,
      metrics = {acc = 3}})
    says("argument 'callbacks' to 'fit'", {net, loader, loss = F.mse_loss, optimizer = optimizer,
      callbacks = {{on_epoch = print}}})
    says("argument 'accumulate_grad_batches' to 'fit'", {net, loader, loss = F.mse_loss,
      optimizer = optimizer, accumulate_grad_batches = 0})
    says("argument 'training_step' to 'fit'", {net, data.DataLoader(x, 4), loss = F.mse_loss,
      optimizer = optimizer})
    says("there is no value 'val_loss' in this run; it has epoch, loss, lr, seconds", {net, loader,
      loss = F.mse_loss, optimizer = optimizer,
      callbacks = {callbacks.EarlyStopping{monitor = "val_loss"}}})
    says("'resume'", {net, loader, loss = F.mse_loss, optimizer = optimizer, resume = true})
    says("'val_loade", {net, loader, loss = F.mse_loss, optimizer = optimizer, val_loade = loader})
  end)
end)

-- Values of a metric that a test wants to see, one for each epoch.
local function scripted(values)
  local at = 0
  return {update = function() end, reset = function() end, compute = function()
    at = at + 1
    return values[at]
  end}
end

describe("callbacks:", function()
  after_each(clear)

  local function run(more)
    local net, loader, optimizer = problem()
    local arguments = {net, loader, loss = F.mse_loss, optimizer = optimizer, epochs = 8,
      progress = false}
    for name, value in pairs(more) do arguments[name] = value end
    return moth.fit(arguments), net
  end

  it("EarlyStopping waits for `patience` epochs without improvement by min_delta", function()
    local stop = callbacks.EarlyStopping{monitor = "m", patience = 2, min_delta = 0.1}
    local history = run{metrics = {m = scripted{1, 0.5, 0.45, 0.42, 0.2}}, callbacks = {stop}}
    assert.same({4, "m has not improved for 2 epochs"}, {history:len(), history.stopped})
    assert.same({0.5, 2}, {stop.best, stop.best_epoch})
    stop = callbacks.EarlyStopping{monitor = "accuracy", patience = 1}
    history = run{metrics = {accuracy = scripted{0.1, 0.2, 0.2, 0.9}}, callbacks = {stop}}
    assert.same({3, 2}, {history:len(), stop.best_epoch})
  end)

  it("EarlyStopping loads the weights of the best epoch", function()
    local weights = {}
    local _, net = run{metrics = {m = scripted{3, 1, 2, 4, 5, 6, 7, 8}}, callbacks = {
      callbacks.EarlyStopping{monitor = "m", restore_best = true},
      function(r) weights[r.epoch] = moth.deepcopy(r.net:state_dict()) end,
    }}
    assert.equal(5, #weights)
    for name, value in pairs(net:state_dict()) do assert.is_true(value:equal(weights[2][name])) end
  end)

  it("ModelCheckpoint keeps the last, the best and the k best epochs", function()
    run{epochs = 4, metrics = {m = scripted{3, 1, 2, 4}}, callbacks = {
      callbacks.ModelCheckpoint{folder, monitor = "m", save_top_k = 2}}}
    local found = {}
    for i = 1, 4 do found[i] = exists(file(("epoch_%04d"):format(i))) end
    assert.same({false, true, true, false}, found)
    assert.same({2, 4}, {moth.load(file "best").epoch, moth.load(file "last").epoch})
    assert.is_true(moth.load(file "best").model["1.weight"] == nil
      and moth.load(file "best").model["0.weight"] ~= nil)
  end)

  it("checkpoint = folder writes best.safetensors and last.safetensors", function()
    local history, net = run{epochs = 2, checkpoint = folder}
    assert.equal(2, history:len())
    local other = model()
    other:load_state_dict(moth.load(file "last").model)
    assert.is_true(same_weights(net, other) and exists(file "best"))
    assert.is_false(exists(file "epoch_0001"))
  end)
end)

-- Stops the run after some steps of the optimizer as Ctrl-C does.
local function interrupt(steps, signal)
  local C = require("ffi").C
  return {on_batch_end = function(_, run)
    if run.step == steps then C.kill(require("moth.base.machine").process(), signal or 2) end
  end}
end

local function without_seconds(history)
  local columns = history:state_dict()
  columns.seconds = nil
  return columns
end

describe("a resumed run ends with the same bits", function()
  after_each(clear)

  local function run(more, callback)
    local net, loader, optimizer = problem()
    net:append(nn.Dropout(0.1))
    local arguments = {net, loader, loss = F.mse_loss, optimizer = optimizer, epochs = 4,
      val_loader = loader, metrics = {mae = F.l1_loss}, callbacks = {callback}, progress = false,
      scheduler = optim.lr_scheduler.ExponentialLR(optimizer, 0.9)}
    for name, value in pairs(more) do arguments[name] = value end
    local history = moth.fit(arguments)
    return net, history
  end

  it("after an end between two epochs", function()
    local net, history = run {}
    run{epochs = 2, checkpoint = folder}
    local other, its_history = run{checkpoint = folder, resume = true}
    assert.is_true(same_weights(net, other))
    assert.same(without_seconds(history), without_seconds(its_history))
  end)

  it("after Ctrl-C within an epoch, or with the path of the file", function()
    local net, history = run {}
    local _, cut = run({checkpoint = folder}, interrupt(8))
    assert.same({1, "interrupted by Ctrl-C"}, {cut:len(), cut.stopped})
    local other, its_history = run{resume = file "last"}
    assert.is_true(same_weights(net, other))
    assert.same(without_seconds(history), without_seconds(its_history))
  end)

  it("after Ctrl-C in the validation", function()
    local net, history = run {}
    local C, n = require("ffi").C, 0
    local function mse(output, target)
      n = n + (moth.is_grad_enabled() and 0 or 1)
      if n == 7 then C.kill(require("moth.base.machine").process(), 2) end
      return F.mse_loss(output, target)
    end
    local _, cut = run{checkpoint = folder, loss = mse}
    assert.same({1, "interrupted by Ctrl-C"}, {cut:len(), cut.stopped})
    local other, its_history = run{checkpoint = folder, resume = true}
    assert.is_true(same_weights(net, other))
    assert.same(without_seconds(history), without_seconds(its_history))
  end)

  it("and does not train any more if it had ended", function()
    local _, history = run{checkpoint = folder}
    local other, its_history = run{checkpoint = folder, resume = true}
    assert.same(without_seconds(history), without_seconds(its_history))
    assert.is_true(same_weights(other, (run {})))
  end)

  it("and says so if it had ended", function()
    local lines, kept = {}, io.stderr
    rawset(io, "stderr", {write = function(_, ...) lines[#lines + 1] = table.concat {...} end,
                          flush = function() end})
    local fine, raised = pcall(function()
      run{checkpoint = folder}
      run{checkpoint = folder, resume = true, progress = true}
      run{checkpoint = folder, resume = true, progress = true, epochs = 5}
    end)
    rawset(io, "stderr", kept)
    assert.is_true(fine, raised)
    local text = table.concat(lines)
    assert.is_truthy(text:find("^all 4 epochs are done; more epochs continue the run, another "
      .. "checkpoint folder begins a new one\nresumed in epoch 4 after step %d+\n"), text)
  end)

  it("after kills at random moments", function()
    assert.is_true(child.run(function() fit_run.train(folder) end))
    local wanted = fit_run.result(folder)
    fit_run.clear(folder)
    fit_run.killed(folder, 3e5, 5, math.random)
    assert.same(wanted, fit_run.result(folder))
  end)

  it("but not from another file", function()
    moth.save({w = moth.ones(2)}, folder)
    assert.error_matches(function() run{resume = folder} end,
      "is not a checkpoint file of moth.fit", nil, true)
    os.remove(folder)
  end)
end)

describe("signals:", function()
  local PROGRAM = [[
    local moth = require "moth"
    local ffi = require "ffi"
    ffi.cdef "int kill(int pid, int signal);"
    local net, me = moth.nn.Linear(2, 1), require("moth.base.machine").process()
    local loader = moth.data.DataLoader(moth.data.TensorDataset(moth.ones(8, 2),
      moth.ones(8, 1)), 2)
    local history = moth.fit{net, loader, loss = moth.nn.functional.mse_loss, epochs = 5,
      optimizer = moth.optim.SGD(net:parameters(), 0.1), callbacks = {{
        on_batch_end = function(_, run)
          if run.step == 6 then for _ = 1, %d do ffi.C.kill(me, %d) end end
        end,
        on_interrupt = function(_, run) print("saving after step " .. run.step) end,
      }}}
    print(history.stopped)
  ]]

  it("Ctrl-C ends the run after the step, and the program goes on", function()
    local text = process.lua(PROGRAM:format(1, 2))
    assert.is_truthy(text:find("saving after step 6\ninterrupted by Ctrl-C\n", 1, true), text)
    assert.is_truthy(text:find("stopped in epoch 2 after step 6: interrupted by Ctrl-C", 1, true))
    assert.is_truthy(text:find("rc=0", 1, true))
  end)

  it("a second Ctrl-C ends the program at once", function()
    local text = process.lua(PROGRAM:format(2, 2))
    assert.is_nil(text:find("saving", 1, true))
    assert.is_truthy(text:find("interrupted", 1, true), text)
    assert.is_truthy(text:find("rc=130", 1, true))
  end)

  it("SIGTERM ends the program after the run has saved", function()
    local text = process.lua(PROGRAM:format(1, 15))
    assert.is_truthy(text:find("saving after step 6", 1, true), text)
    assert.is_nil(text:find("\nended by", 1, true))
    assert.is_truthy(text:find("rc=143", 1, true), text)
  end)
end)

describe("moth.lr_find", function()
  it("suggests a rate that trains, and restores the run", function()
    local net, loader, optimizer = problem{n = 80}
    local before, random = moth.deepcopy(net:state_dict()), moth.get_rng_state()
    local found = moth.lr_find{net, loader, loss = F.mse_loss, optimizer = optimizer}
    assert.is_true(found.suggestion > 1e-4 and found.suggestion < 1)
    assert.equal(#found.lr, #found.loss)
    assert.close(1e-7, found.lr[1], 1e-12)
    for name, value in pairs(net:state_dict()) do assert.is_true(value:equal(before[name])) end
    assert.is_true(random:equal(moth.get_rng_state()))
    assert.same({0.1, nil}, {optimizer.param_groups[1].lr, next(optimizer.state)})
  end)
end)
