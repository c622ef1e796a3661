--- algorithms.lua -- moth.distributed.algorithms.model_averaging: processes that train alone and
-- average their parameters now and then, which needs fewer messages than the average of gradients.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local groups = require "moth.distributed.group"
local lazy = require "moth.base.lazy"
local lib = require "moth.binding.lib"

local moth = lib.anchor.moth
local dist = moth.distributed

local LARGE = 2 ^ 20 -- bytes from which a parameter is a message by itself

-- The parameters of a list of parameters or of parameter groups.
-- @param trained  only those that need a gradient?
local function list_of(fname, params, trained)
  if not lib.is_plain(params) or #params == 0 then
    errors.refuse(fname, "params", "a list of parameters is needed", params, "E_TYPE")
  end
  local list = {}
  for _, p in ipairs(params) do
    if moth.is_tensor(p) then
      list[#list + 1] = p
    elseif lib.is_plain(p) and lib.is_plain(p.params) then
      for _, q in ipairs(p.params) do list[#list + 1] = q end
    else
      errors.refuse(fname, "params", "a list of parameters is needed", p, "E_TYPE")
    end
  end
  if not trained then return list end
  local kept = {}
  for _, p in ipairs(list) do if p.requires_grad then kept[#kept + 1] = p end end
  return kept
end

local function average(fname, params, group, trained)
  group = groups.of(fname, group)
  local works, small = {}, {}
  for _, p in ipairs(list_of(fname, params, trained)) do
    if p.nbytes >= LARGE then
      works[#works + 1] = dist.all_reduce(p, "mean", group, true)
    else
      small[p.dtype] = small[p.dtype] or {}
      table.insert(small[p.dtype], p)
    end
  end
  for _, dtype in ipairs {"float64", "float32", "float16", "bfloat16"} do -- a fixed order
    local list = small[moth[dtype]]
    if list then
      local flat = groups.joined(list)
      dist.all_reduce(flat, "mean", group)
      local at = 1
      for _, p in ipairs(list) do
        p:detach():copy_(flat:narrow(1, at, p:numel()):view(p.shape))
        at = at + p:numel()
      end
    end
  end
  for _, work in ipairs(works) do work:wait() end
end

local utils = {}

--- Replaces each parameter by its mean over the processes. All processes of the group call it.
-- @param params         list of parameters, the same in all processes, or the optimizer's
-- param_groups
-- @param process_group  processes that take part; default: all
function utils.average_parameters(params, process_group)
  moth.no_grad(average, "average_parameters", params, process_group)
end

local Averager = class "PeriodicModelAverager"
Averager.signature = define.signature("PeriodicModelAverager", {
  {"int", "period", "steps from one average to the next", bounds = {1, 2 ^ 31 - 1}},
  {"int", "warmup_steps", "steps before the first average", default = 0,
    bounds = {0, 2 ^ 31 - 1}},
  {"any", "process_group", "processes that take part; default: all", optional = true},
})

--- Averages the parameters of all processes after every `period` steps (local SGD).
--
--     local averager = dist.algorithms.model_averaging.averagers.PeriodicModelAverager(8)
--     ...
--     optimizer:step()
--     averager:average_parameters(net:parameters())
--
-- The net is not wrapped in DistributedDataParallel, or only for the first warmup_steps steps.
-- @param period         steps from one average to the next
-- @param warmup_steps   steps before the first average
-- @param process_group  processes that take part; default: all
function Averager:init(period, warmup_steps, process_group)
  self.period, self.warmup_steps = period, warmup_steps
  self.process_group = groups.of("PeriodicModelAverager", process_group, "process_group")
  self.step = 0
end

--- Counts a step. Averages the parameters that need a gradient if warmup_steps and a multiple of
-- `period` have passed.
-- @param params  list of parameters, or the optimizer's param_groups
function Averager:average_parameters(params)
  if self.step >= self.warmup_steps and (self.step - self.warmup_steps) % self.period == 0 then
    moth.no_grad(average, "average_parameters", params, self.process_group, true)
  end
  self.step = self.step + 1
end

local PATH = "moth.distributed.algorithms"

local function space(name, fields) return (lazy.namespace(PATH .. name, fields, {})) end

return space("", {model_averaging = space(".model_averaging", {
  averagers = space(".model_averaging.averagers", {PeriodicModelAverager = Averager}),
  utils = space(".model_averaging.utils", utils),
})})
