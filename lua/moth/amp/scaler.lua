--- scaler.lua -- moth.GradScaler: scales the loss so that float16 gradients do not underflow.
--
-- float16 has no numbers below 6e-8. The loss is multiplied by a scale, and the gradients are
-- divided by it before the optimizer's step. If a gradient overflowed, the step is skipped and
-- the scale halved; after many steps without overflow the scale doubles. bfloat16 needs no
-- scaling.

local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local devices = require "moth.tensor.device"
local errors = require "moth.error"
local guard = require "moth.capture.conditional"
local lib = require "moth.binding.lib"
local recording = require "moth.capture.recording"
local sparse = require "moth.sparse"

local GradScaler = class("GradScaler")

local MAX_SCALE = 3.4e38 -- the largest scale: a finite float32

local function moth() return require "moth" end

local parse = define.signature("GradScaler", {
  {"float", "init_scale", "the initial scale", default = 65536},
  {"float", "growth_factor", "factor of the scale's growth", default = 2},
  {"float", "backoff_factor", "factor of the scale after an overflow", default = 0.5},
  {"float", "growth_interval", "steps in a row without overflow before the scale grows",
    default = 2000},
  {"bool", "enabled", "false: no scaling, all steps are taken", default = true},
  {"device", "device", "accepted as in PyTorch, also as the first value, without effect",
    optional = true},
})

-- As torch.amp.GradScaler(device, init_scale, ...), or without the device.
function GradScaler.signature(first, ...)
  if not devices.name(first) then return parse(first, ...) end
  if not devices.codes[first] then
    errors.argument("GradScaler", "device", devices.missing(first), "E_DEVICE")
  end
  return parse(...)
end
define.takes(GradScaler.signature, parse)

local function demand(ok, name, wanted, got)
  if ok then return end
  errors.refuse("GradScaler", name, wanted .. " is needed", got, "E_DOMAIN")
end

--- Scales losses for float16 gradients, as torch.amp.GradScaler (Micikevicius et al., 2018):
--
--     local scaler = moth.GradScaler()
--     local loss = moth.autocast("cpu", moth.float16, function() return F.mse_loss(net(x), y) end)
--     optimizer:zero_grad()
--     scaler:scale(loss):backward()
--     scaler:step(optimizer)
--     scaler:update()
--
-- moth.capture supports it: each replay decides about its step and adapts the scale.
-- @param init_scale       the initial scale (default 65536)
-- @param growth_factor    factor of the scale's growth, above 1 (default 2)
-- @param backoff_factor   factor of the scale after an overflow, below 1 (default 0.5)
-- @param growth_interval  steps in a row without overflow before the scale grows (default 2000)
-- @param enabled          false: no scaling, all steps are taken (default true)
-- @param device           accepted as in PyTorch, also as the first value: GradScaler("cuda")
function GradScaler:init(init_scale, growth_factor, backoff_factor, growth_interval, enabled)
  demand(init_scale > 0 and init_scale <= MAX_SCALE, "init_scale",
    "a finite float32 number above 0",
    init_scale)
  demand(growth_factor > 1, "growth_factor", "a number above 1", growth_factor)
  demand(backoff_factor > 0 and backoff_factor < 1, "backoff_factor", "a number between 0 and 1",
    backoff_factor)
  demand(growth_interval >= 1 and growth_interval % 1 == 0, "growth_interval",
    "an integer from 1 on", growth_interval)
  self.factor, self.tracker = init_scale, 0
 -- the scale for captured steps; a CPU tensor of one element combines with any device
  self.multiplier = moth().tensor(init_scale, {dtype = moth().float32, device = "cpu"})
  lib.check(lib.C.moth_keep_always(lib.ctx, self.multiplier), "GradScaler")
  self.growth_factor, self.backoff_factor = growth_factor, backoff_factor
  self.growth_interval, self.enabled = growth_interval, enabled
  -- optimizer -> {found = list, skipped = bool, recording = its number}, since the last update
  self.seen = {}
end

-- Sets another scale outside of a capture; replays read the new value.
local function set_factor(self, factor)
  self.factor = factor
  if lib.capture then return end
  moth().no_grad(self.multiplier.fill_, self.multiplier, factor)
end

local function check_ahead(self, fname)
  if self.ahead then
    errors.raise(fname .. " after update in the same captured step; capture them as two",
      "E_UNSUPPORTED")
  end
end

--- A loss, or a list of losses, multiplied by the scale. @return the product; call backward on it
function GradScaler:scale(outputs)
  if not self.enabled then return outputs end
  check_ahead(self, "scale")
  if lib.istensor(outputs) then return (outputs * self.multiplier) end
  if not lib.is_plain(outputs) then
    errors.refuse("scale", "outputs", "a tensor or a list of tensors is needed", outputs, "E_TYPE")
  end
  local list = {}
  for i, x in ipairs(outputs) do list[i] = self:scale(x) end
  return list
end

local function check_optimizer(fname, optimizer)
  if type(optimizer) == "table" and type(optimizer.param_groups) == "table" then return end
  errors.refuse(fname, "optimizer", "an optimizer is needed", optimizer, "E_TYPE")
end

-- The gradients of an optimizer's parameters: a list for each device.
local function gradients(optimizer)
  local lists = {}
  for _, group in ipairs(optimizer.param_groups) do
    for _, p in ipairs(group.params) do
      local grad = p.grad
      if grad ~= nil then
        local list = lists[grad.device] or {}
        lists[grad.device] = list
        list[#list + 1] = sparse.is(grad) and grad:_values() or grad
      end
    end
  end
  return lists
end

-- Registers the scaler with the step that is being captured.
local function join(self)
  self.rows = self.rows or function() -- the state that verification restores
    local seen = {}
    for optimizer, one in pairs(self.seen) do
      seen[optimizer] = {found = one.found, skipped = one.skipped}
    end
    return {{self, "seen", seen}, {self, "factor", self.factor}, {self, "tracker", self.tracker}}
  end
  lib.capture.states[self.rows] = true
end

-- Writes 1 / scale: each replay divides by its current scale.
local function note_factor(self)
  recording.cell("unscale_", {write = function(_, s, at)
    s[at.factor].number = 1 / self.factor
    return true
  end})
end

local function unscale(self, optimizer)
  local lists = gradients(optimizer)
  if next(lists) == nil then
    errors.raise("GradScaler: no parameter of the optimizer has a gradient; call "
      .. "scaler:scale(loss):backward() first", "E_STATE")
  end
  check_ahead(self, "unscale_")
  local seen = {found = {}, recording = lib.capture and lib.capture.id}
  for device, grads in pairs(lists) do
    local found = moth().zeros(1, {device = device})
    lib.check(lib.C.moth_keep_always(lib.ctx, found), "GradScaler")
    moth().no_grad(bind.ops.unscale_, grads, found, 1 / self.factor)
    if lib.capture then note_factor(self) end
    seen.found[#seen.found + 1] = found
  end
  self.seen[optimizer] = seen
  if not lib.capture then return end
  join(self)
  recording.cell(nil, {
    write = function() return self.seen[optimizer] == nil end,
    done = function() self.seen[optimizer] = {found = seen.found} end,
  })
end

--- Divides the gradients of an optimizer's parameters by the scale, for operations before the
-- step, such as clipping. Call it at most once between two updates.
function GradScaler:unscale_(optimizer)
  if not self.enabled then return end
  check_optimizer("unscale_", optimizer)
  local seen = self.seen[optimizer]
  if seen then
    errors.raise(seen.skipped ~= nil and "unscale_ comes before step, and update after both"
      or "unscale_ was called for this optimizer already since the last update", "E_STATE")
  end
  unscale(self, optimizer)
end

-- The results of f(...), unless a gradient was infinite or NaN.
local function unless_found(self, optimizer, f, ...)
  local seen = self.seen[optimizer]
  if lib.capture and seen.recording ~= lib.capture.id then
    errors.raise("step in a captured step after an unscale_ outside of it: replays would not see "
      .. "its overflows; call unscale_ in the captured step", "E_UNSUPPORTED")
  end
  local function on_replay(skipped) self.seen[optimizer].skipped = skipped end
  local skipped, result = guard.unless(seen.found, on_replay, f, ...)
  seen.skipped = skipped
  return result
end

--- Takes a step of the optimizer, unless a gradient is infinite or NaN. Unscales the gradients
-- first if unscale_ was not called.
-- @param ...  for optimizer:step
-- @return the results of optimizer:step, or nothing
function GradScaler:step(optimizer, ...)
  check_optimizer("step", optimizer)
  if not self.enabled then return optimizer:step(...) end
  if select("#", ...) > 0 and (...) ~= nil then
    errors.raise("GradScaler: a closure cannot be used, since its gradients are not scaled",
      "E_UNSUPPORTED")
  end
  local seen = self.seen[optimizer]
  if seen and seen.skipped ~= nil then
    errors.raise("step was called for this optimizer already since the last update", "E_STATE")
  end
  if not seen then unscale(self, optimizer) end
  return (unless_found(self, optimizer, optimizer.step, optimizer))
end

local function check_scale(new_scale)
  if lib.istensor(new_scale) then new_scale = new_scale:item() end
  if type(new_scale) ~= "number" or not (new_scale > 0 and new_scale <= MAX_SCALE) then
    errors.refuse("update", "new_scale", "a finite float32 number above 0 is needed", new_scale,
      "E_DOMAIN")
  end
  return new_scale
end

local function nothing() end

-- The next scale, from the overflows of the steps since the last update.
local function adapt(self)
  local skipped = false
  for _, seen in pairs(self.seen) do skipped = skipped or seen.skipped end
  if skipped then
    set_factor(self, self.factor * self.backoff_factor)
    self.tracker = 0
  else
    self.tracker = self.tracker + 1
    if self.tracker == self.growth_interval then
      local grown = self.factor * self.growth_factor
      if grown <= MAX_SCALE then set_factor(self, grown) end
      self.tracker = 0
    end
  end
  self.seen = {}
end

--- Adapts the scale, after all steps of an iteration.
-- @param new_scale  the new scale (default: by the rule)
function GradScaler:update(new_scale)
  if not self.enabled then return end
  if new_scale ~= nil then
    if lib.capture then recording.refuse("update(new_scale) of a GradScaler") end
    set_factor(self, check_scale(new_scale))
    self.seen = {}
    return
  end
  if next(self.seen) == nil then
    errors.raise("GradScaler: call step before update: there was no step since the last update",
      "E_STATE")
  end
  local inside = true -- true if the replay also takes the steps
  for optimizer, seen in pairs(self.seen) do
    inside = inside and lib.capture ~= nil and seen.recording == lib.capture.id
    if seen.skipped == nil then unless_found(self, optimizer, nothing) end -- unscale_ without step
  end
  adapt(self)
  if not lib.capture then return end
  self.ahead = true -- the scale is ahead of the multiplier
  recording.later(function()
    self.ahead = nil
    set_factor(self, self.factor)
  end)
  join(self)
  recording.cell(nil, {
    write = function() return inside or next(self.seen) ~= nil end,
    done = function() adapt(self) end,
  })
end

--- The current scale; 1 if the scaler is disabled.
function GradScaler:get_scale() return self.enabled and self.factor or 1 end

--- Returns true if the scaler is enabled.
function GradScaler:is_enabled() return self.enabled end

local KEPT = {scale = "factor", growth_factor = "growth_factor", backoff_factor = "backoff_factor",
              growth_interval = "growth_interval", _growth_tracker = "tracker"}

--- The state, as a table with PyTorch's names; empty if the scaler is disabled.
function GradScaler:state_dict()
  local dict = {}
  if self.enabled then
    for name, field in pairs(KEPT) do dict[name] = self[field] end
  end
  return dict
end

--- Loads the state that state_dict returned.
function GradScaler:load_state_dict(state_dict)
  if not self.enabled then return end
  if lib.capture then recording.refuse("load_state_dict of a GradScaler") end
  for name in pairs(KEPT) do
    if type(state_dict) ~= "table" or type(state_dict[name]) ~= "number" then
      errors.argument("load_state_dict", "state_dict", ("a table with the number '%s', as by "
        .. "state_dict() of an enabled GradScaler, is needed, got %s"):format(name,
        errors.describe(state_dict)), "E_TYPE")
    end
  end
  for name, field in pairs(KEPT) do self[field] = state_dict[name] end
  set_factor(self, self.factor)
end

return {GradScaler = GradScaler}
