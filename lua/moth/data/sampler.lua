--- sampler.lua -- samplers: the order of a dataset's samples. A sampler has `:len()` and `:iter()`,
-- which starts a pass and returns an iterator: a function that returns one position at a time, then
-- nil.

local bind = require "moth.binding.bind"
local calls = require "moth.binding.calls"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local ops = bind.ops -- randperm for the CPU
local sampler = {}

--- The base of samplers; subclasses define `:iter()` and `:len()`.
local Sampler = class("Sampler")
sampler.Sampler = Sampler

function Sampler:iter()
  class.abstract(self, "iter", ":iter()")
end

function Sampler:len()
  class.abstract(self, "len", ":len()")
end

local function length_of(source, fname)
  if type(source) == "table" and type(rawget(source, 1)) == "number" then source = source[1] end
  if type(source) == "number" then return source end
  return (require("moth.data.dataset").of(source, fname, "data_source"):len())
end

local function walk(list)
  local i = 0
  return function()
    i = i + 1
    return list[i]
  end
end

-- ---- samplers of positions ----

local SequentialSampler = class("SequentialSampler", Sampler)
sampler.SequentialSampler = SequentialSampler

--- The positions 1, 2, ... to the end. data_source is a dataset, a tensor or a number of samples.
function SequentialSampler:init(data_source)
  self.data_source = data_source
end

function SequentialSampler:len()
  return length_of(self.data_source, "SequentialSampler")
end

function SequentialSampler:iter()
  local i, n = 0, self:len()
  return function()
    i = i + 1
    return i <= n and i or nil
  end
end

-- Returns all positions of a pass in one i64 tensor, for the loader's fast path.
function SequentialSampler:positions()
  return require("moth").arange(1, self:len() + 1)
end

local RandomSampler = class("RandomSampler", Sampler)
sampler.RandomSampler = RandomSampler
RandomSampler.signature = define.signature("RandomSampler", {
  {"any", "data_source", "a dataset, a tensor or a number of samples"},
  {"bool", "replacement", "draw with replacement?", default = false},
  {"int", "num_samples", "the number of draws; default: all", optional = true},
  {"generator", "generator", "random generator", optional = true},
})

--- A new random order in every pass.
function RandomSampler:init(data_source, replacement, num_samples, generator)
  self.data_source, self.replacement = data_source, replacement
  self.num_samples, self.generator = num_samples, generator
  if num_samples and num_samples < 1 then
    errors.argument("RandomSampler", "num_samples", "a number from 1 on is needed, got " ..
      errors.describe(num_samples), "E_DOMAIN")
  end
end

function RandomSampler:len()
  return self.num_samples or length_of(self.data_source, "RandomSampler")
end

function RandomSampler:positions()
  local moth = require "moth"
  local n, wanted = length_of(self.data_source, "RandomSampler"), self:len()
  local generator = self.generator
  if self.replacement then
    return (moth.randint(1, n + 1, {wanted}, {generator = generator, device = "cpu"}))
  end
  local order = ops.randperm(n, generator)
  if wanted == n then return order end
  local parts, have = {order}, n
  while have < wanted do
    parts[#parts + 1] = ops.randperm(n, generator)
    have = have + n
  end
  return (moth.cat(parts):narrow(1, 1, wanted))
end

function RandomSampler:iter()
  return walk(self:positions():tolist())
end

local DistributedSampler = class("DistributedSampler", Sampler)
sampler.DistributedSampler = DistributedSampler

DistributedSampler.signature = define.signature("DistributedSampler", {
  {"any", "dataset", "a dataset, a tensor or a number of samples"},
  {"int", "num_replicas", "number of processes; default: that of the process group",
    optional = true},
  {"int", "rank", "this process, from 0; default: its rank", optional = true},
  {"bool", "shuffle", "a new order in every epoch?", default = true},
  {"int", "seed", "of the order; the same in all processes", default = 0},
  {"bool", "drop_last", "leave out the last samples, so that all processes have the same "
    .. "number? Otherwise some samples occur twice", default = false},
  {"bool", "even", "repeat samples so that all processes have the same number? false: each sample "
    .. "occurs once, for validation", default = true},
})

--- The samples of one process: rank r of n gets every n-th position of an order that all processes
-- share. Call sampler:set_epoch(epoch) before each epoch, or the order stays the same. As
-- torch.utils.data.distributed.DistributedSampler; the shuffled orders are Moth's.
function DistributedSampler:init(dataset, num_replicas, rank, shuffle, seed, drop_last, even)
  local dist = (num_replicas == nil or rank == nil) and require("moth").distributed
  if dist and not dist.is_initialized() then
    errors.raise("DistributedSampler: there is no process group; call "
      .. "moth.distributed.init_process_group first, or pass num_replicas and rank", "E_STATE")
  end
  self.data_source = dataset
  self.num_replicas = num_replicas or dist.get_world_size()
  self.rank = rank or dist.get_rank()
  if self.num_replicas < 1 or self.rank < 0 or self.rank >= self.num_replicas then
    errors.argument("DistributedSampler", "rank",
      ("a number from 0 to %d is needed, got %d"):format(self.num_replicas - 1, self.rank),
      "E_DOMAIN")
  end
  self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
  self.even = even
end

--- Chooses the order of the next pass.
-- @param epoch  a number from 0 on, the same in all processes
function DistributedSampler:set_epoch(epoch)
  local number = tonumber(epoch)
  if not number or number < 0 or number % 1 ~= 0 then
    errors.refuse("set_epoch", "epoch", "an integer from 0 on is needed", epoch, "E_ARG")
  end
  self.epoch = number
end

function DistributedSampler:len()
  local n, replicas = length_of(self.data_source, "DistributedSampler"), self.num_replicas
  if self.drop_last then return math.floor(n / replicas) end
  return math.max(0, math.ceil(self.even and n / replicas or (n - self.rank) / replicas))
end

function DistributedSampler:positions()
  local moth = require "moth"
  local n, mine = length_of(self.data_source, "DistributedSampler"), self:len()
  local order
  if self.shuffle then
    local generator = moth.Generator()
    generator:manual_seed(self.seed + self.epoch)
    order = ops.randperm(n, generator)
  else
    order = moth.arange(1, n + 1)
  end
  local at = moth.arange(mine) * self.num_replicas + self.rank
  return (order:index_select(1, at % n + 1))
end

function DistributedSampler:iter() return walk(self:positions():tolist()) end

local SubsetRandomSampler = class("SubsetRandomSampler", Sampler)
sampler.SubsetRandomSampler = SubsetRandomSampler

SubsetRandomSampler.signature = define.signature("SubsetRandomSampler", {
  {"any", "indices", "a list or a tensor of positions"},
  {"generator", "generator", "random generator", optional = true},
})

--- The given positions, in a new random order in every pass.
-- @param indices    a list or tensor of positions
-- @param generator  random generator (optional)
function SubsetRandomSampler:init(indices, generator)
  if lib.istensor(indices) then indices = indices:tolist() end
  if type(indices) ~= "table" then
    errors.argument("SubsetRandomSampler", "indices", "a list of positions is needed, got " ..
      errors.describe(indices), "E_TYPE")
  end
  self.indices = calls.whole_list("SubsetRandomSampler", "indices", indices)
  self.generator = generator
end

function SubsetRandomSampler:len()
  return #self.indices
end

function SubsetRandomSampler:iter()
  local order = ops.randperm(#self.indices, self.generator):tolist()
  for k, at in ipairs(order) do order[k] = self.indices[at] end
  return walk(order)
end

local WeightedRandomSampler = class("WeightedRandomSampler", Sampler)
sampler.WeightedRandomSampler = WeightedRandomSampler
WeightedRandomSampler.signature = define.signature("WeightedRandomSampler", {
  {"any", "weights", "a weight for each sample; they need not add up to 1"},
  {"int", "num_samples", "the number of draws in a pass"},
  {"bool", "replacement", "draw with replacement?", default = true},
  {"generator", "generator", "random generator", optional = true},
})

local function check_weights(weights)
  local x = lib.istensor(weights) and weights or require("moth").tensor(weights)
  x = x:to(require("moth").float64)
  if x:dim() ~= 1 or x:numel() == 0 then
    errors.argument("WeightedRandomSampler", "weights", "a list of numbers is needed, got " ..
      errors.describe(weights), "E_SHAPE")
  elseif not (x:min():item() >= 0 and x:sum():item() < math.huge) then
    errors.argument("WeightedRandomSampler", "weights", "finite numbers from 0 on are needed",
      "E_DOMAIN")
  end
  return x
end

--- Random positions, with a probability proportional to a weight.
function WeightedRandomSampler:init(weights, num_samples, replacement, generator)
  local x = check_weights(weights)
  local some = x:gt(0):sum():item()
  if num_samples < 1 or some == 0 or (not replacement and num_samples > some) then
    errors.argument("WeightedRandomSampler", some == 0 and "weights" or "num_samples",
      some == 0 and "are all 0" or num_samples < 1
      and "a number from 1 on is needed, got " .. num_samples
      or ("%d samples cannot be drawn without replacement from %d with a weight"):format(
        num_samples, some), "E_DOMAIN")
  end
  lib.check(lib.C.moth_keep_always(lib.ctx, x), "WeightedRandomSampler")
  self.weights, self.num_samples = x, num_samples
  self.replacement, self.generator = replacement, generator
end

function WeightedRandomSampler:len()
  return self.num_samples
end

-- With replacement: inverse transform sampling with the running sum of the weights. Without
-- replacement: the positions of the largest values of log(u) / weight, where u is uniform
-- (Efraimidis and Spirakis, 2006).
function WeightedRandomSampler:positions()
  local moth = require "moth"
  local options = {dtype = moth.float64, generator = self.generator}
  if self.replacement then
    local ends = self.weights:cumsum(1)
    local total = ends[-1]:item()
    local at = moth.rand(self.num_samples, options) * total
    return (moth.searchsorted(ends, at, {right = true}):clamp {max = ends:size(1)})
  end
  local keys = moth.rand(self.weights:size(1), options):log() / self.weights
  local _, order = keys:topk(self.num_samples)
  return order
end

function WeightedRandomSampler:iter()
  return walk(self:positions():tolist())
end

local ListSampler = class("ListSampler", Sampler)
sampler.ListSampler = ListSampler

--- The elements of a list, in the same order in every pass: positions, or lists of positions.
function ListSampler:init(list) self.list = list end
function ListSampler:len() return #self.list end
function ListSampler:iter() return walk(self.list) end

-- ---- samplers of batches ----

local BatchSampler = class("BatchSampler", Sampler)
sampler.BatchSampler = BatchSampler
BatchSampler.signature = define.signature("BatchSampler", {
  {"any", "sampler", "yields the positions"},
  {"int", "batch_size", "the size of a batch"},
  {"bool", "drop_last", "drop the last batch if it is not full?", default = false},
})

--- Groups the positions of another sampler into lists.
function BatchSampler:init(inner, batch_size, drop_last)
  if batch_size < 1 then
    errors.argument("BatchSampler", "batch_size", "a number from 1 on is needed, got " ..
      errors.describe(batch_size), "E_DOMAIN")
  end
  self.sampler, self.batch_size, self.drop_last = inner, batch_size, drop_last
end

function BatchSampler:len()
  local whole = self.sampler:len() / self.batch_size
  return self.drop_last and math.floor(whole) or math.ceil(whole)
end

function BatchSampler:iter()
  local next_position = self.sampler:iter()
  return function()
    local list = {}
    for k = 1, self.batch_size do
      local at = next_position()
      if at == nil then break end
      list[k] = at
    end
    if #list == 0 or (self.drop_last and #list < self.batch_size) then return nil end
    return list
  end
end

return sampler
