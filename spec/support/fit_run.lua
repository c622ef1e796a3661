--- fit_run.lua -- a run of moth.fit that can be killed at any moment, for spec/nn/fit_spec.lua and
-- spec/search/fit_kill.lua.

local child = require "spec.support.child"
local moth = require "moth"
local nn, F, optim, data = moth.nn, moth.nn.functional, moth.optim, moth.data

local fit_run = {}

local FILES = {"last", "best", "final", "epoch_0001", "epoch_0002", "epoch_0003", "epoch_0004"}

local function path_of(folder, name) return folder .. "/" .. name .. ".safetensors" end

--- Trains with everything that has a state: dropout, running statistics, a shuffled loader with its
-- own generator, momenta, a schedule by steps, accumulated gradients, metrics, early stopping. A
-- folder with files of an earlier run is resumed; the result is final.safetensors.
function fit_run.train(folder)
  moth.manual_seed(7)
  local x = moth.randn(150, 6)
  local y = (x:sum(2):gt(0)):long() + 1
  local net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.2),
    nn.Linear(16, 2))
  local optimizer = optim.AdamW(net:parameters(), {lr = 0.02})
  local train = data.DataLoader{data.TensorDataset(x, y), batch_size = 8, shuffle = true,
    generator = moth.Generator{seed = 3}}
  local callbacks = moth.callbacks
  local history = moth.fit{net, train, loss = F.cross_entropy, optimizer = optimizer, epochs = 4,
    val_loader = data.DataLoader{data.TensorDataset(x, y), batch_size = 50, shuffle = true},
    metrics = {
      acc = function(output, target) return output:argmax(2):eq(target):float():mean() end,
    },
    scheduler = optim.lr_scheduler.OneCycleLR(optimizer, 0.05, {total_steps = 60}),
    scheduler_interval = "step", accumulate_grad_batches = 2, clip_grad_norm = 1,
    callbacks = {
      callbacks.ModelCheckpoint{folder, monitor = "val_acc", save_top_k = 2,
        every_n_train_steps = 3},
      callbacks.EarlyStopping{patience = 2, restore_best = true},
    },
    resume = true, progress = false}
  local columns = history:state_dict()
  columns.seconds = nil
  moth.save({net = net:state_dict(), optimizer = optimizer:state_dict(), history = columns,
    random = moth.get_rng_state()}, path_of(folder, "final"))
end

--- The bytes of the files that a finished run leaves. In a file of a state the times differ: only
-- the tensors are compared.
function fit_run.result(folder)
  local result = {}
  for _, name in ipairs(FILES) do
    local file = io.open(path_of(folder, name))
    if file then
      file:close()
      local state = moth.load(path_of(folder, name))
      for _, part in ipairs {state.net or state.model, state.random} do
        moth.save(part, path_of(folder, "part"))
        local bytes = assert(io.open(path_of(folder, "part"), "rb"))
        result[#result + 1] = name .. bytes:read "*a"
        bytes:close()
      end
      if name == "final" then
        for column, values in pairs(state.history) do
          for i, value in ipairs(values) do
            result[column .. i] = ("%.17g"):format(value)
          end
        end
      end
    end
  end
  return result
end

--- Removes the files of a run, not the folder.
function fit_run.clear(folder)
  for _, name in ipairs(FILES) do os.remove(path_of(folder, name)) end
  os.remove(path_of(folder, "part"))
end

--- Runs to the end in child processes, which are killed at random moments.
-- @param longest  the largest time before a kill, in microseconds
-- @param kills    the number of kills
-- @param random   function() -> a number from 0 to 1
-- @return the number of processes that a kill ended
function fit_run.killed(folder, longest, kills, random)
  local killed = 0
  for _ = 1, kills do
    if child.kill_after(math.floor(random() * longest), function() fit_run.train(folder) end) then
      killed = killed + 1
    end
  end
  assert(child.run(function() fit_run.train(folder) end), "the last run failed")
  return killed
end

return fit_run
