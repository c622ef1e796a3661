--- iterable.lua -- datasets that are streams: samples in a fixed sequence, without positions.

local class = require "moth.base.class"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local iterable = {}

--- The base of streams. Subclasses define `:iter()`, which starts a pass and returns an iterator: a
-- function that returns the next sample (several results are one sample), then nil. They define
-- `:len()` if the length is known. Without a subclass: `data.IterableDataset(function() return
-- io.lines(path) end)`.
-- @param begin  function that starts a pass and returns an iterator
local IterableDataset = class("IterableDataset")
iterable.IterableDataset = IterableDataset

function IterableDataset:init(begin)
  if begin ~= nil and type(begin) ~= "function" then
    errors.refuse("IterableDataset", "begin", "a function that starts a pass is needed", begin,
      "E_TYPE")
  end
  self.begin = begin
end

function IterableDataset:iter()
  if not self.begin then class.abstract(self, "iter", ":iter()") end
  local step, state, at = self.begin()
  if type(step) ~= "function" then
    errors.raise("the function of an IterableDataset returned " .. errors.describe(step) ..
      "; a function that returns the next sample is needed", "E_TYPE")
  end
  local function keep(first, ...)
    at = first
    return first, ...
  end
  return function() return keep(step(state, at)) end
end

function IterableDataset:__tostring()
  return class.typename(self)
end

--- A stream of every num_shards-th sample of this one, from number index on.
-- @param num_shards  default: as many as there are processes and workers; each sample is then
-- read once over all of them. Each still iterates over the whole stream
-- @param index       from 0 to num_shards - 1
function IterableDataset:shard(num_shards, index)
  return (iterable.ShardDataset(self, num_shards, index))
end

--- Returns true if x is a stream: an IterableDataset, or an object with :iter() and without
-- :get(i).
function iterable.is(x)
  if class.isinstance(x, IterableDataset) then return true end
  local found, fits = pcall(function()
    return type(x) == "table" and not class.isclass(x) and type(x.iter) == "function"
      and x.get == nil
  end)
  return found and fits
end

--- The length of a stream, or nil if it is unknown.
function iterable.length(x)
  local len = x.len
  return type(len) == "function" and x:len() or nil
end

--- Concatenates streams.
-- @param datasets  a list of IterableDatasets
local ChainDataset = class("ChainDataset", IterableDataset)
iterable.ChainDataset = ChainDataset

function ChainDataset:init(datasets)
  if not lib.is_plain(datasets) then
    errors.refuse("ChainDataset", "datasets", "a list of IterableDatasets is needed", datasets,
      "E_TYPE")
  end
  local list = {}
  for i, part in ipairs(datasets) do
    if require("moth.data.source").is(part) then part = part() end
    list[i] = part
    if not iterable.is(part) then
      errors.argument("ChainDataset", "datasets", ("element %d is %s, not an IterableDataset")
        :format(i, errors.describe(part)), "E_TYPE")
    end
  end
  self.datasets = list
end

function ChainDataset:iter()
  local at, step = 0, nil
  local advance
  local function check(first, ...)
    if first == nil then
      step = nil
      return advance()
    end
    return first, ...
  end
  advance = function()
    if not step then
      at = at + 1
      if not self.datasets[at] then return nil end
      step = self.datasets[at]:iter()
    end
    return check(step())
  end
  return advance
end

local ShardDataset = class("ShardDataset", IterableDataset)
iterable.ShardDataset = ShardDataset

function ShardDataset:init(dataset, num_shards, index)
  if require("moth.data.source").is(dataset) then dataset = dataset() end
  if lib.is_plain(num_shards) then
    num_shards, index = num_shards.num_shards or num_shards[1], num_shards.index or num_shards[2]
  end
  if num_shards == nil and index == nil then
    self.dataset = dataset
    return
  end
  for name, value in pairs {num_shards = num_shards or false, index = index or false} do
    if type(value) ~= "number" or value % 1 ~= 0 or value < (name == "index" and 0 or 1) then
      errors.refuse("shard", name, "an integer is needed", value or nil, "E_DOMAIN")
    end
  end
  if index >= num_shards then
    errors.refuse("shard", "index", ("a number from 0 to %d is needed"):format(num_shards - 1),
      index, "E_DOMAIN")
  end
  self.dataset, self.num_shards, self.index = dataset, num_shards, index
end

-- The first sample, from 1, and the step between samples.
local function part_of(self)
  if self.num_shards then return self.index + 1, self.num_shards end
  local info = require("moth.data.workers").get_shard_info()
  return info.id, info.num_shards
end

function ShardDataset:iter()
  local step, first, every = self.dataset:iter(), part_of(self)
  local skip = first - 1
  return function()
    for _ = 1, skip do
      if step() == nil then return nil end
    end
    skip = every - 1
    return step()
  end
end

--- The number of samples of this process; of a stream without length: raises.
function ShardDataset:len()
  local n = iterable.length(self.dataset)
  if not n then
    errors.raise("ShardDataset has no length: its stream has no length", "E_TYPE")
  end
  local first, every = self.index, self.num_shards
  if not every then first, every = require("moth.data.workers").ranks() end
  return math.max(0, math.ceil((n - first) / every))
end

function ShardDataset:worker()
  local source = require("moth.data.dataset").source_of(self.dataset)
  if not source then return nil end
  return require("moth.data.source").source("moth.data.iterable:ShardDataset", source,
    self.num_shards, self.index)
end

-- The source for workers, as in dataset.lua; only for this class, not for subclasses.
function ChainDataset:worker()
  local list, source_of = {}, require("moth.data.dataset").source_of
  for i, part in ipairs(self.datasets) do list[i] = source_of(part) end
  if class.of(self) ~= ChainDataset or #list < #self.datasets then return nil end
  return require("moth.data.source").source("moth.data.iterable:ChainDataset", list)
end

--- The total number of samples; raises if the length of a stream is unknown.
function ChainDataset:len()
  local total = 0
  for i, part in ipairs(self.datasets) do
    local n = iterable.length(part)
    if not n then
      errors.raise(("ChainDataset has no length: its dataset %d has no length"):format(i), "E_TYPE")
    end
    total = total + n
  end
  return total
end

return iterable
