--- progress.lua -- the display of moth.fit on stderr: moth.progress during an epoch, and one line
-- after each epoch.

local base = require "moth.callbacks.base"
local class = require "moth.base.class"
local lib = require "moth.binding.lib"
local Progress = require "moth.progress"

local now = lib.C.moth_seconds

local Display = class("Display", base.Callback)

local EVERY = 0.1 -- seconds between two reads of the loss

function Display:init() self.due = 0 end

local function say(text)
  io.stderr:write(text, "\n")
  io.stderr:flush()
end

local function title(run)
  return run.epochs < 1e6 and ("epoch %d/%d"):format(run.epoch, run.epochs)
    or ("epoch %d"):format(run.epoch)
end

function Display:on_train_begin(run)
  if run.epoch == 0 then return end
  if run.phase == "finished" and run.epoch >= run.epochs then
    say(("all %d epochs are done; more epochs continue the run, another checkpoint folder begins a "
      .. "new one"):format(run.epochs))
  else
    say(("resumed in epoch %d after step %d"):format(run.epoch, run.step))
  end
end

function Display:on_batch_end(run)
  if not self.bar then
    self.bar = Progress(run.batches or 0, {desc = title(run), unit = "batches", leave = false,
      initial = run.batch - 1})
  end
  local time = now()
  if time > self.due then
    self.due = time + EVERY
    self.bar:set_postfix{loss = run.sum / run.count}
  end
  self.bar:update()
end

-- Removes the bar from a terminal.
local function close(self)
  if self.bar and self.bar.live then self.bar:close() end
  self.bar = nil
end

function Display:on_epoch_end(run)
  close(self)
  say(("%s  %s  %.1f s"):format(title(run), run.history:row(run.history:len()),
    run.results.seconds))
end

function Display:on_train_end(run)
  close(self)
  local stopped = run.history.stopped
  if stopped then
    say(("stopped in epoch %d after step %d: %s"):format(run.epoch, run.step, stopped))
  end
end

return Display
