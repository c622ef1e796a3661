--- loader.lua -- data.DataLoader: batches of a dataset.
--
--     local loader = data.DataLoader{train, batch_size = 64, shuffle = true}
--     for input, target in loader do ... end
--
-- Each `for` starts a new pass in a new order. Datasets that can return a whole batch do so:
-- TensorDataset needs one index_select per tensor. For other datasets each sample is read, and
-- collate_fn combines the samples. A stream (IterableDataset) is split into batches in its order.
--
-- `loader:state_dict()` during a pass records its position: after load_state_dict the next pass
-- continues there, in the same order.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local dataset = require "moth.data.dataset"
local errors = require "moth.error"
local iterable = require "moth.data.iterable"
local calls = require "moth.binding.calls"
local lib = require "moth.binding.lib"
local sampler = require "moth.data.sampler"
local seeds = require "moth.data.seeds"
local sources = require "moth.data.source"
local workers = require "moth.data.workers"

local loader = {}

-- ---- collation ----

local plain = lib.is_plain

local function is_picture(x)
  return lib.istensor(x) and x:dim() == 3 and (x:size(1) == 1 or x:size(1) == 3)
end

local function mismatch(i, a, b)
  local sizes = is_picture(a) and is_picture(b) and a.dtype == b.dtype and a:size(1) == b:size(1)
  errors.raise(("samples 1 and %d of a batch cannot be combined: %s and %s (%s)"):format(i,
    errors.describe(a), errors.describe(b), sizes and "moth.transforms.Resize({height, width}) "
    .. "gives pictures one size" or "pass the DataLoader a collate_fn"), "E_SHAPE")
end

local collate

local function stack(list)
  local first = list[1]
  for i = 2, #list do
    if not lib.istensor(list[i]) or list[i].shape ~= first.shape
       or list[i].dtype ~= first.dtype then
      mismatch(i, first, list[i])
    end
  end
  return (require("moth").stack(list))
end

local function collate_tables(list)
  local first, out = list[1], {}
  for i = 2, #list do
    if not plain(list[i]) then mismatch(i, first, list[i]) end
    for key in pairs(list[i]) do
      if first[key] == nil then mismatch(i, first, list[i]) end
    end
  end
  for key in pairs(first) do
    local column = {}
    for i, sample in ipairs(list) do
      if sample[key] == nil then mismatch(i, first, sample) end
      column[i] = sample[key]
    end
    out[key] = collate(column)
  end
  return out
end

-- Records tensors of samples that are passed on unchanged: a worker sends copies of them.
local function note_untouched(list)
  for _, value in pairs(list) do
    if lib.istensor(value) then loader.untouched[value] = true
    elseif plain(value) then note_untouched(value) end
  end
end

-- Combines one component of all samples of a batch.
collate = function(list)
  local first = list[1]
  local kind = type(first)
  if lib.istensor(first) then return stack(list) end
  if kind == "number" or kind == "boolean" or kind == "cdata" then
    for i = 2, #list do
      if type(list[i]) ~= kind or lib.istensor(list[i]) then mismatch(i, first, list[i]) end
    end
    return (require("moth").tensor(list))
  end
  if plain(first) then return collate_tables(list) end
  if loader.untouched then note_untouched(list) end
  return list
end

--- The default collate_fn: tensors are stacked; numbers, booleans and int64s become a tensor as by
-- moth.tensor (use tensors or int64s, 3LL, for class labels); tables are combined entry by entry;
-- other values become a list.
-- @param samples  a list of samples; a sample with several components is a list with `n`
-- @return one value for each component
function loader.default_collate(samples)
  if type(samples) ~= "table" then
    errors.refuse("default_collate", "samples", "a list of samples is needed", samples, "E_TYPE")
  end
  local first = samples[1]
  if not (plain(first) and type(first.n) == "number") then
    return (collate(samples))
  end
  local out = {}
  for k = 1, first.n do
    local column = {}
    for i, sample in ipairs(samples) do
      if sample.n ~= first.n then
        errors.raise(("sample 1 of a batch has %d components, sample %d has %d"):format(first.n, i,
          sample.n), "E_SHAPE")
      end
      column[i] = sample[k]
      if sample[k] == nil then
        errors.raise(("component %d of sample %d of a batch is nil"):format(k, i), "E_TYPE")
      end
    end
    out[k] = collate(column)
  end
  return unpack(out, 1, first.n)
end

-- ---- the loader ----

local DataLoader = class("DataLoader")
loader.DataLoader = DataLoader

DataLoader.signature = define.signature("DataLoader", {
  {"any", "dataset", "a dataset (with :len() and :get(i)), a stream (:iter()), a tensor "
    .. "or a list of samples",
    hint = " (from random_split? it returns one list: local a, b = unpack(list))"},
  {"int", "batch_size", "samples in a batch; moth.none: no batches, single samples",
    default = 1, optional = true},
  {"bool", "shuffle", "a new random order in every pass?", default = false},
  {"any", "sampler", "yields the positions, or a list of positions; excludes shuffle",
    optional = true},
  {"any", "batch_sampler", "yields lists of positions, or a list of lists; excludes the "
    .. "above", optional = true},
  {"function", "collate_fn", "makes a batch from a list of samples", optional = true},
  {"bool", "drop_last", "drop the last batch if it is not full?", default = false},
  {"generator", "generator", "random generator for shuffle and workers", optional = true},
  {"int", "num_workers", "threads that make batches; 0: none. The dataset needs " ..
    ":worker() (help of data.Dataset)", default = 0},
  {"bool", "pin_memory", "put batches into pinned memory? (needs a GPU)", default = false},
  {"float", "timeout", "seconds to wait for a batch of the workers; 0: no limit", default = 0},
  {"any", "worker_init_fn", "a data.source that each worker calls with its id; each batch has " ..
    "its own seed", optional = true},
  {"int", "prefetch_factor", "batches that each worker makes in advance; default: 2",
    optional = true},
  {"bool", "persistent_workers", "keep the workers after a pass?", default = false},
})

local function check_pinning(pin_memory)
  if pin_memory and not require("moth.cuda").is_available() then
    errors.argument("DataLoader", "pin_memory", "there is no GPU to copy to; leave it at false",
      "E_DEVICE")
  end
end

-- Returns a part of a batch with its tensors in pinned memory. Values other than tensors and plain
-- tables are unchanged.
local function pinned(x)
  if lib.istensor(x) then return (x:pin_memory()) end
  if not plain(x) then return x end
  local out = {}
  for key, value in pairs(x) do out[key] = pinned(value) end
  return out
end

-- Converts a list or a tensor of positions to a sampler; a sampler is unchanged.
local function sampler_of(given, name)
  if lib.istensor(given) and given:dim() > 0 then given = given:tolist() end
  if plain(given) and #given > 0 then
    return (sampler.ListSampler(calls.whole_list("DataLoader", name, given)))
  end
  if given ~= nil and not (type(given) == "table" and given.iter and given.len) then
    errors.refuse("DataLoader", name, "a sampler with :iter() and :len(), or a list, is needed",
      given, "E_TYPE")
  end
  return given
end

-- Checks the arguments for a stream, which determines its own order.
local function init_stream(self, source, excluded)
  for name, given in pairs(excluded) do
    if given then
      errors.argument("DataLoader", name, ("cannot be used with %s: a stream has no positions, "
        .. "its " ..
        "samples have a fixed order"):format(class.typename(source) or "an iterable"))
    end
  end
  self.dataset, self.stream = source, true
end

-- Returns the collate function for single samples, if there is no batching.
local function alone(collate_fn)
  return function(list)
    local one = list[1]
    if collate_fn then return loader.checked(collate_fn(one)) end
    if plain(one) and type(one.n) == "number" then return unpack(one, 1, one.n) end
    return one
  end
end

--- Batches of a dataset.
-- @param dataset        a dataset, an IterableDataset, or a tensor whose rows are the samples
-- @param batch_size     samples in a batch (default 1); moth.none: no batching: each sample is
-- returned by itself, after collate_fn if present
-- @param shuffle        a new random order in every pass (default false)
-- @param sampler        yields the positions; excludes shuffle
-- @param batch_sampler  yields lists of positions; excludes batch_size, shuffle, sampler and
-- drop_last
-- @param collate_fn     function(list of samples) -> the batch (default: default_collate)
-- @param drop_last      drop a last batch that is not full (default false)
-- @param generator      random generator for shuffle, and for the seed of a pass's workers;
-- default: the generator of moth.manual_seed
-- @param num_workers    threads that make batches, each with its own Lua state (default 0: this
-- state makes them). The batches and their order are the same. Another state must be able to create
-- the dataset: pass data.source("module", ...), or define :worker(), which returns a source:
-- function Train:worker() return data.source("images:Train", self.folder) end. TensorDataset,
-- datasets composed of it and data.csv have a :worker(). Each worker iterates over its own copy of
-- a stream, and their batches alternate: a stream with several workers must use
-- data.get_worker_info(). A collate_fn that is a data.source runs in the workers, a function runs
-- in this state
-- @param pin_memory     put the tensors of batches into pinned memory, from which x:to("cuda",
-- {non_blocking = true}) copies asynchronously
-- @param timeout        seconds to wait for a batch of the workers (default 0: no limit)
-- @param worker_init_fn  a data.source, called in each worker with its id, from 1. Each batch has
-- its own seed: manual_seed in this function does not change the random numbers of `get`
-- @param prefetch_factor  batches that each worker makes in advance (default 2)
-- @param persistent_workers  keep the workers after a pass? (default false)
function DataLoader:init(source, batch_size, shuffle, own, batches, collate_fn, drop_last,
                         generator, num_workers, pin_memory, timeout, init_fn, prefetch,
                         persistent)
  check_pinning(pin_memory)
  own, batches = sampler_of(own, "sampler"), sampler_of(batches, "batch_sampler")
  self.batched = batch_size ~= nil -- false: samples are returned one by one
  if not batch_size and (batches or drop_last) then
    errors.argument("DataLoader", batches and "batch_sampler" or "drop_last",
      "needs batches, but batch_size is moth.none")
  elseif not batch_size then
    batch_size, collate_fn = 1, alone(collate_fn)
  elseif batch_size < 1 then
    errors.refuse("DataLoader", "batch_size", "a number from 1 on is needed", batch_size,
      "E_DOMAIN")
  elseif own and shuffle then
    errors.argument("DataLoader", "shuffle", "cannot be combined with a sampler")
  elseif batches and (own or shuffle or drop_last or batch_size ~= 1) then
    errors.argument("DataLoader", "batch_sampler",
      "cannot be combined with batch_size, shuffle, sampler and drop_last")
  end
  self.batch_size, self.drop_last, self.collate_fn = batch_size, drop_last, collate_fn
  self.pin_memory, self.generator = pin_memory, generator
  self.passes = setmetatable({}, {__mode = "k"}) -- a batch's first value -> its pass
  self.recent = {} -- the same, for first values that are strings, numbers or booleans
  if lib.is_plain(source) and #source == 1 then
    source = source[1] -- DataLoader{dataset}: positional arguments
  end
  if sources.is(source) then source = dataset.made(source) end
  local options = {num_workers = num_workers, timeout = timeout, worker_init_fn = init_fn,
                   prefetch_factor = prefetch, persistent_workers = persistent}
  if iterable.is(source) then
    init_stream(self, source, {shuffle = shuffle, sampler = own, batch_sampler = batches})
    return workers.init(self, options)
  end
  self.dataset = dataset.of(source, "DataLoader", "dataset")
  if not own then
    own = shuffle and sampler.RandomSampler(self.dataset, false, nil, generator)
      or sampler.SequentialSampler(self.dataset)
  end
  self.sampler = own
  self.batch_sampler = batches or sampler.BatchSampler(own, batch_size, drop_last)
  self.own_batches = batches ~= nil
  workers.init(self, options)
end

-- Returns the number of samples, or nil if the stream's length is unknown.
local function samples_of(self)
  if self.stream then return iterable.length(self.dataset) end
  return self.dataset:len()
end

--- The number of batches in a pass.
function DataLoader:len()
  if not self.stream then return self.batch_sampler:len() end
  local n = samples_of(self)
  if not n then
    errors.raise(("a DataLoader of %s has no length: the stream has no :len()"):format(
      class.typename(self.dataset) or "an iterable"), "E_TYPE")
  end
  return self.drop_last and math.floor(n / self.batch_size) or math.ceil(n / self.batch_size)
end

-- A pass that reads each batch by one call to the dataset; positions are slices of one tensor. The
-- first `skip` batches are skipped.
local function fast_pass(self, skip)
  local source, size = self.dataset, self.batch_size
  local order = self.sampler:positions()
  local at, n = 1 + skip * size, order:size(1)
  return function()
    local count = math.min(size, n + 1 - at)
    if count < 1 or (self.drop_last and count < size) then return nil end
    local positions = order:narrow(1, at, count)
    at = at + count
    return source:batch(positions)
  end
end

local function packed(...)
  if select("#", ...) < 2 then return (...) end
  return {n = select("#", ...), ...}
end

local function sample(source, i)
  return (packed(source:get(i)))
end

-- Returns a batch; raises if its first value is nil, which would silently end the loop.
local function checked(first, ...)
  if first == nil then
    errors.raise("collate_fn returned nil; a batch is needed", "E_TYPE")
  end
  return first, ...
end

loader.checked = checked

--- The samples at a list or a tensor of positions.
function loader.samples(source, positions)
  if lib.istensor(positions) then positions = positions:tolist() end
  local list = {}
  for k, i in ipairs(positions) do
    list[k] = sample(source, i)
    if list[k] == nil then
      errors.raise(("sample %s of the dataset is nil: %s:get(%s) returned nothing"):format(
        tostring(i), class.typename(source) or "dataset", tostring(i)), "E_TYPE")
    end
  end
  return list
end

local function lists_of_positions(self, skip)
  local next_batch = self.batch_sampler:iter()
  for _ = 1, skip do next_batch() end
  return next_batch
end

-- A pass without workers, with the random numbers that a worker would draw. A collate_fn that is a
-- source runs with the batch's seed, as in a worker. A function runs without it.
local function slow_pass(self, skip, pass)
  local next_batch, number = lists_of_positions(self, skip), skip
  local source, join = self.dataset, self.collate_fn or loader.default_collate
  local function batch(positions) return checked(join(loader.samples(source, positions))) end
  local inside = sources.is(join)
  return function()
    local positions = next_batch()
    if positions == nil then return nil end
    number = number + 1
    local seed = seeds.mixed(pass.seed, number)
    if inside then return seeds.within(seed, batch, positions) end
    return checked(join(seeds.within(seed, loader.samples, source, positions)))
  end
end

-- Returns true if the dataset returns a whole batch by one call.
local function by_batches(self)
  return (self.dataset.batch and self.sampler.positions and not self.own_batches
    and not self.collate_fn) and true or false
end

-- A pass with workers. They return batches, or samples if collate_fn exists only in this state.
local function worker_pass(self, skip, pass)
  local step = workers.begin(self, lists_of_positions(self, skip), pass, by_batches(self))
  local join = self.collate_fn
  if not self.workers.samples then return step end
  local function joined(list)
    if list == nil then return nil end
    return checked(join(list))
  end
  return function() return joined(step()) end
end

--- Splits a stream into lists of samples.
-- @return a function that returns one list at a time, then nil
function loader.cut(stream, size, drop_last)
  local step, ended, list = stream:iter(), false, {}
  return function()
    while not ended and #list < size do
      local one = packed(step())
      if one == nil or type(one) == "table" and rawget(one, "n") and rawget(one, 1) == nil then
        ended = true
      else
        list[#list + 1] = one
      end
    end
    local full = list
    if #full == 0 or (drop_last and #full < size) then return nil end
    list = {}
    return full
  end
end

local function stream_pass(self, skip, pass)
  local step, join
  if self.workers then
    step, join = workers.begin_stream(self, pass)
  else
    step = loader.cut(self.dataset, self.batch_size, self.drop_last)
    join = self.collate_fn or loader.default_collate
    for _ = 1, skip do step() end
  end
  if not join then return step end
  return function()
    local list = step()
    if list == nil then return nil end
    return checked(join(list))
  end
end

local function begin(self, skip, pass)
  if self.stream then return (stream_pass(self, skip, pass)) end
  if self.workers then return (worker_pass(self, skip, pass)) end
  if by_batches(self) then return (fast_pass(self, skip)) end
  return (slow_pass(self, skip, pass))
end

-- ---- the position of a pass ----

-- Returns the state of the generator that determines the order.
local function randomness(self)
  local own = self.sampler and self.sampler.generator
    or self.batch_sampler and self.batch_sampler.generator
    or self.own_batches and self.batch_sampler.sampler and self.batch_sampler.sampler.generator
  return calls.state_of(own or require("moth").default_generator)
end

local function set_randomness(state, values)
  local moth = require "moth"
  moth.no_grad(state.copy_, state, moth.tensor(values, {dtype = moth.int64}))
end

local function all_pinned(first, ...)
  if select("#", ...) == 0 then return (pinned(first)) end
  return pinned(first), all_pinned(...)
end

-- Counts the batches that a pass has returned.
local function counted(self, pass, first, ...)
  if first ~= nil then
    pass.batch = pass.batch + 1
    if self.pin_memory then return all_pinned(first, ...) end
  elseif self.pass == pass then
    self.pass = nil
  end
  return first, ...
end

--- Starts a pass. @return a function that returns one batch at a time, then nil
function DataLoader:iter()
  local state, resume = randomness(self), self.resume
  local now = state:tolist()
  local pass = {batch = resume and resume.batch or 0, random = resume and resume.random or now}
  local seeded = self.workers or not self.stream and not by_batches(self)
  if seeded then workers.seed(self, pass, resume) end
  self.resume = nil
  if resume then set_randomness(state, resume.random) end
  local ok, step = pcall(begin, self, pass.batch, pass)
  if resume then set_randomness(state, now) end
  if not ok then error(step, 0) end
  if seeded then workers.seeded(self, pass) end
  self.pass = pass
  return function()
    if lib.profile then
      return counted(self, pass, require("moth.profiler").within("DataLoader", step))
    end
    return counted(self, pass, step())
  end
end

--- Returns the position of the current pass, as a plain table: the number of batches returned, the
-- generator's state at the start of the pass, and the seed of its workers. Between passes it
-- describes a new pass. A custom sampler must determine its whole order in :iter(). A stream is
-- iterated again up to the position.
function DataLoader:state_dict()
  local pass = self.pass or self.resume
  local state = {batch = pass and pass.batch or 0, batch_size = self.batch_size,
                 samples = samples_of(self)}
  if pass then state.random, state.seed = {unpack(pass.random)}, pass.seed end
  return state
end

--- Makes the next pass continue at the position of a state_dict. The generator itself is unchanged:
-- restore its state from the checkpoint file.
function DataLoader:load_state_dict(state_dict)
  if type(state_dict) ~= "table" or type(state_dict.batch) ~= "number"
     or (state_dict.random ~= nil and type(state_dict.random) ~= "table")
     or (state_dict.seed ~= nil and type(state_dict.seed) ~= "number") then
    errors.refuse("load_state_dict", "state_dict", "the result of a DataLoader's state_dict() is "
      .. "needed", state_dict, "E_TYPE")
  end
  for name, own in pairs {batch_size = self.batch_size, samples = samples_of(self)} do
    if state_dict[name] ~= nil and state_dict[name] ~= own then
      errors.argument("load_state_dict", "state_dict", ("is of a loader with %s = %s, this one " ..
        "has %s"):format(name, tostring(state_dict[name]), tostring(own)), "E_STATE")
    end
  end
  self.pass, self.resume = nil, nil
  if state_dict.random then
    self.resume = {batch = state_dict.batch, random = {unpack(state_dict.random)},
                   seed = state_dict.seed}
  end
end

-- ---- iteration ----

-- Maps a batch to its pass by its first value, which `for` passes back. Strings and numbers are
-- never removed from a weak table: of the passes whose batches begin with such a value only the
-- last two are kept, for nested loops.
local function remember(self, pass, first, ...)
  local recent = self.recent
  if type(first) == "string" or type(first) == "number" or type(first) == "boolean" then
    if #recent == 2 then table.remove(recent, 1) end
    recent[#recent + 1] = {first = first, pass = pass}
  elseif first ~= nil then
    self.passes[first] = pass
  end
  return first, ...
end

-- Returns the pass of a batch; later passes were left by `break`.
local function recall(self, last)
  local pass, recent = self.passes[last], self.recent
  self.passes[last] = nil
  while not pass and #recent > 0 do
    local each = table.remove(recent)
    if each.first == last then pass = each.pass end
  end
  return pass
end

--- Implements `for input, target in loader do`: `for` calls it with nil first, then with the first
-- value of the last batch.
function DataLoader:__call(_, last)
  local pass
  if last == nil then
    pass = self:iter()
  else
    pass = recall(self, last)
    if not pass then
      errors.raise("write `for input, target in loader do`, or loader:iter()",
        "E_STATE")
    end
  end
  return remember(self, pass, pass())
end

-- Raises for loader[1], which would silently be nil; ipairs(loader) and #loader do not call
-- __index.
function DataLoader:__index(key)
  if type(key) == "number" then
    errors.raise(("a DataLoader has no [%s]; write `for x, y in loader do`"):format(key), "E_TYPE")
  end
end

function DataLoader:__tostring()
  if self.stream and not samples_of(self) then
    return "DataLoader of " .. tostring(self.dataset)
  end
  return ("DataLoader of %d batches of %s"):format(self:len(), tostring(self.dataset))
end

class.guard(DataLoader, "loader")

return loader
