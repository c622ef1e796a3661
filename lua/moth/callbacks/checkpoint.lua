--- checkpoint.lua -- moth.callbacks.ModelCheckpoint: the files of a run.
--
--     run/last.safetensors         the last state; moth.fit{..., resume = true} continues there
--     run/best.safetensors         the state after the best epoch
--     run/epoch_0012.safetensors   with save_top_k = n: the n best epochs
--
-- moth.save replaces a file as a whole, so a crash leaves the old one. After a crash the run
-- repeats what it did since last.safetensors, and writes the same files. In several processes the
-- first one writes.

local base = require "moth.callbacks.base"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local machine = require "moth.base.machine"

local ModelCheckpoint = class("ModelCheckpoint", base.Callback)

ModelCheckpoint.signature = define.signature("ModelCheckpoint", {
  {"string", "dirpath", "the folder of the files; it is created"},
  {"string", "monitor", "the value that makes an epoch the best; default: 'val_loss', or 'loss' "
    .. "without validation", optional = true},
  {"enum", "mode", "is a lower or a higher value better? auto: as for EarlyStopping",
    choices = {"auto", "min", "max"}},
  {"int", "save_top_k", "how many of the best epochs are kept; 0: none", default = 1},
  {"int", "every_n_train_steps", "also save after each n steps of the optimizer", optional = true},
})

--- Writes checkpoint files of a run of moth.fit: `last.safetensors` after each epoch, after each
-- every_n_train_steps steps and after Ctrl-C, and `best.safetensors` after the best epoch. With
-- save_top_k = 3 the three best epochs are also kept as `epoch_0012.safetensors`. A file holds the
-- whole run; `moth.load(path).model` is the state_dict of the net.
function ModelCheckpoint:init(dirpath, monitor, mode, save_top_k, every_n_train_steps)
  self.dirpath, self.monitor, self.mode = dirpath:gsub("(.)/+$", "%1"), monitor, mode
  self.save_top_k, self.every_n_train_steps = save_top_k, every_n_train_steps
  self.kept = {} -- {epoch, value}, the best first
  self.saves = true -- is called after the other callbacks
end

--- The path of a file: "last", "best" or the number of an epoch.
function ModelCheckpoint:path(which)
  if type(which) == "number" then which = ("epoch_%04d"):format(which) end
  return self.dirpath .. "/" .. which .. ".safetensors"
end

function ModelCheckpoint:on_train_begin(run)
  if not run.is_first then return end
  for at in (self.dirpath .. "/"):gmatch "()/" do
    if at > 1 then machine.make_folder(self.dirpath:sub(1, at - 1)) end
  end
end

-- Puts an epoch among the best. Returns its rank, or nil if it is not among them.
local function rank(self, run)
  local value, name = base.monitored(self, run)
  local sign = base.mode(self.mode, name, run) == "min" and 1 or -1
  local at = #self.kept + 1
  while at > 1 and sign * value < sign * self.kept[at - 1].value do at = at - 1 end
  if value ~= value or at > self.save_top_k then return nil end
  table.insert(self.kept, at, {epoch = run.epoch, value = value})
  return at
end

function ModelCheckpoint:on_epoch_end(run)
  local at = self.save_top_k > 0 and rank(self, run)
  if at and self.save_top_k > 1 then
    run:save(self:path(run.epoch))
    local out = table.remove(self.kept, self.save_top_k + 1)
    if out and run.is_first then os.remove(self:path(out.epoch)) end
  elseif at then
    self.kept[2] = nil
  end
  if at == 1 then run:save(self:path "best") end
  run:save(self:path "last")
end

function ModelCheckpoint:on_batch_end(run)
  local n = self.every_n_train_steps
  if n and run.updated and run.step % n == 0 then run:save(self:path "last") end
end

function ModelCheckpoint:on_interrupt(run) run:save(self:path "last") end

--- The state for a checkpoint file.
function ModelCheckpoint:state_dict() return {kept = self.kept} end

--- Loads the state of state_dict.
function ModelCheckpoint:load_state_dict(state) self.kept = state.kept end

return ModelCheckpoint
