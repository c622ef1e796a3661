--- dataset.lua -- datasets: objects with a length, and samples that are read by position.

local calls = require "moth.binding.calls"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local dataset = {}

-- ---- the base class ----

--- The base of datasets. Subclasses define `:len()` and `:get(i)`, i from 1. Several results of
-- `get` are one sample: write `return x, y`. A list, `return {x, y}`, is one component; a
-- DataLoader returns it as one table of batches. The length is `dataset:len()`; `#dataset` is
-- always 0. For num_workers a class must be in a module, here images.lua, and define how a worker
-- creates it: `function Train:worker() return data.source("images:Train", self.folder) end`.
local Dataset = class("Dataset")
dataset.Dataset = Dataset

function Dataset:len()
  class.abstract(self, "len", ":len()")
end

function Dataset:get()
  class.abstract(self, "get", ":get(i)")
end

function Dataset:__tostring()
  return ("%s of %d samples"):format(class.typename(self), self:len())
end

-- Raises for dataset[i], which would silently be nil. (`#dataset` cannot raise: LuaJIT has no __len
-- for tables.)
function Dataset:__index(key)
  if type(key) == "number" and rawget(self, 1) == nil then -- a dataset may store a list in itself
    errors.raise(("%s has no [%s]; write dataset:get(%s)"):format(
      errors.one(class.typename(self)), key, key), "E_TYPE")
  end
end

--- Raises unless i is a position in a dataset of n samples; a negative i counts from the end.
-- @return the position, from 1 to n
function dataset.position(fname, i, n)
  if type(i) ~= "number" or i ~= math.floor(i) then
    errors.refuse(fname, "i", "a position is needed", i, "E_TYPE")
  end
  local at = i < 0 and n + 1 + i or i
  if at < 1 or at > n then
    errors.argument(fname, "i", ("position %d of %d samples"):format(i, n), "E_INDEX")
  end
  return at
end

--- Calls a source. Workers create the resulting dataset from the same source, unless it has a
-- `worker` method.
function dataset.made(source)
  local made = source()
  if type(made) == "table" and dataset.source_of(made) == nil then
    rawset(made, "worker", function() return source end)
  end
  return made
end

--- Converts a value to a dataset: a table with :len() and :get(i), a tensor (its rows are the
-- samples) or a list of samples. A dataset is returned unchanged.
-- @param fname  the calling function, for messages
-- @param name   the argument's name
function dataset.of(value, fname, name)
  if lib.is_plain(value) and #value == 1 then
    value = value[1] -- DataLoader{dataset}: positional arguments
  end
  if lib.istensor(value) then return (dataset.TensorDataset(value)) end
  if require("moth.data.source").is(value) then
    return (dataset.of(dataset.made(value), fname, name))
  end
  if class.isclass(value) then
    errors.argument(fname, name, ("got the class %s; create a dataset: %s(...)"):format(
      class.typename(value), class.typename(value)), "E_TYPE")
  end
  local found, fits = pcall(function()
    return type(value) == "table" and type(value.len) == "function"
      and type(value.get) == "function"
  end)
  if not (found and fits) then
    local parts = lib.is_plain(value) and value
    if parts and class.isinstance(parts[1], Dataset) then
      errors.argument(fname, name, type(parts[2]) == "number"
        and "got {dataset, number}; write the name: {dataset, batch_size = 2}"
        or ("got a list of %d datasets; write local a, b = unpack(list)"):format(#parts), "E_TYPE")
    end
    if parts and #parts > 0 then return (dataset.ListDataset(parts)) end
    errors.refuse(fname, name, "a dataset (with :len() and :get(i)), a tensor or a list of samples "
      .. "is needed", value, "E_TYPE")
  end
  return value
end

-- Returns the source from which workers create a dataset of one of Moth's classes. Subclasses of
-- users may override methods: they need their own `worker`.
local function remade(object, name, ...)
  if class.of(object) ~= dataset[name] then return nil end
  return require("moth.data.source").source("moth.data.dataset:" .. name, ...)
end

--- Returns the source from which workers create a dataset, from its `:worker()`; or nil.
function dataset.source_of(value)
  local found, worker = pcall(function() return value.worker end)
  if not found or type(worker) ~= "function" then return nil end
  local source = value:worker()
  if source == nil or require("moth.data.source").is(source) then return source end
  errors.raise(("%s:worker() returned %s; data.source(\"module\", ...) is needed"):format(
    class.typename(value) or "dataset", errors.describe(source)), "E_TYPE")
end

-- ---- datasets of tensors ----

local TensorDataset = class("TensorDataset", Dataset)
dataset.TensorDataset = TensorDataset

--- A dataset of the rows of one or more tensors with the same first size.
-- `data.TensorDataset(images, labels)`; `get(i)` returns one row of each tensor.
function TensorDataset:init(...)
  local n = select("#", ...)
  local tensors = {...}
  if n == 1 and lib.is_plain(tensors[1]) then
    tensors = calls.whole_list("TensorDataset", "tensors", tensors[1])
    n = #tensors
    for name in pairs(tensors) do
      if type(name) == "string" then
        errors.argument("TensorDataset", "tensors", ("its samples have no names, got '%s'; "
          .. "StackDataset{%s = ...} has"):format(name, name))
      end
    end
  end
  if n == 0 then
    errors.argument("TensorDataset", "tensors", "at least one tensor is needed, got none")
  end
  lib.few("TensorDataset", "tensors", n)
  for i = 1, n do
    local x = tensors[i]
    if not lib.istensor(x) then
      errors.argument("TensorDataset", "tensors", ("element %d is %s, not a tensor"):format(i,
        errors.describe(x)), "E_TYPE")
    elseif x:dim() == 0 then
      errors.argument("TensorDataset", "tensors", ("element %d has no rows: it is 0-d"):format(i),
        "E_SHAPE")
    elseif x:size(1) ~= tensors[1]:size(1) then
      errors.argument("TensorDataset", "tensors",
        ("element %d is %s, the first is %s: their first " ..
        "sizes differ"):format(i, errors.describe(x), errors.describe(tensors[1])), "E_SHAPE")
    end
    lib.check(lib.C.moth_keep_always(lib.ctx, x), "TensorDataset")
  end
  self.tensors = {unpack(tensors, 1, n)}
end

function TensorDataset:len()
  return (self.tensors[1]:size(1))
end

function TensorDataset:get(i)
  i = dataset.position("get", i, self:len())
  local row = {}
  for k, x in ipairs(self.tensors) do row[k] = x:select(1, i) end
  return unpack(row)
end

function TensorDataset:worker()
  return remade(self, "TensorDataset", unpack(self.tensors))
end

--- Returns the samples at a tensor of positions, as batches: the loader's fast path.
function TensorDataset:batch(positions)
  local out = {}
  for k, x in ipairs(self.tensors) do out[k] = x:index_select(1, positions) end
  return unpack(out)
end

--- Returns true if `:batch` returns new tensors each time, as the classes of Moth do.
function dataset.is_fresh(set)
  while class.of(set) == dataset.Subset do set = set.dataset end
  return class.of(set) == TensorDataset
end

-- ---- datasets composed of datasets ----

local Subset = class("Subset", Dataset)
dataset.Subset = Subset

-- Returns a batch by one call, if the dataset supports it.
local function batch_of_subset(self, positions)
  if not self.at then
    self.at = require("moth").tensor(self.indices, {dtype = require("moth").int64})
    lib.check(lib.C.moth_keep_always(lib.ctx, self.at), "Subset")
  end
  return self.dataset:batch(self.at:index_select(1, positions))
end

Subset.signature = define.signature("Subset", {
  {"object", "dataset", "a dataset or a tensor"},
  {"any", "indices", "a list or a tensor of positions in it, from 1"},
})

--- A subset of a dataset, by positions.
-- @param whole    a dataset
-- @param indices  a list or a tensor of positions in it, from 1
function Subset:init(whole, indices)
  self.dataset = dataset.of(whole, "Subset", "dataset")
  if lib.istensor(indices) then indices = indices:tolist() end
  if type(indices) ~= "table" then
    errors.refuse("Subset", "indices", "a list of positions is needed", indices, "E_TYPE")
  end
  local n, list = self.dataset:len(), {}
  for i, at in ipairs(calls.whole_list("Subset", "indices", indices)) do
    at = tonumber(at) or at
    if type(at) ~= "number" or at ~= math.floor(at) or at < 1 or at > n then
      errors.argument("Subset", "indices", ("element %d is %s; positions are 1 to %d"):format(i,
        errors.describe(at), n), "E_INDEX")
    end
    list[i] = at
  end
  self.indices = list
  if self.dataset.batch then self.batch = batch_of_subset end
end

function Subset:len()
  return #self.indices
end

function Subset:get(i)
  return self.dataset:get(self.indices[dataset.position("get", i, #self.indices)])
end

function Subset:worker()
  local inner = dataset.source_of(self.dataset)
  return inner and remade(self, "Subset", inner, self.indices)
end

local ListDataset = class("ListDataset", Dataset)
dataset.ListDataset = ListDataset

--- A dataset of the samples of a list, which it keeps. A sample that is a list, {x, y}, has several
-- components.
function ListDataset:init(list)
  self.samples = calls.whole_list("ListDataset", "samples", list)
end

function ListDataset:len() return #self.samples end

function ListDataset:get(i)
  local sample = self.samples[dataset.position("get", i, #self.samples)]
  if lib.is_plain(sample) and #sample > 0 then return unpack(sample) end
  return sample
end

-- Returns the sources of the parts of a dataset; nil if a part has no worker.
local function sources_of(parts)
  local list = {}
  for key, part in pairs(parts) do
    list[key] = dataset.source_of(part)
    if not list[key] then return nil end
  end
  return list
end

local ConcatDataset = class("ConcatDataset", Dataset)
dataset.ConcatDataset = ConcatDataset

ConcatDataset.signature = define.signature("ConcatDataset", {
  {"any", "datasets", "a list of datasets"},
})

--- Concatenates datasets.
-- @param datasets  a list of datasets
function ConcatDataset:init(datasets)
  if not lib.is_plain(datasets) or #datasets == 0 then
    errors.refuse("ConcatDataset", "datasets", "a list of datasets is needed", datasets, "E_TYPE")
  end
  self.datasets, self.ends = {}, {}
  local total = 0
  for i, part in ipairs(calls.whole_list("ConcatDataset", "datasets", datasets)) do
    self.datasets[i] = dataset.of(part, "ConcatDataset", "datasets")
    total = total + self.datasets[i]:len()
    self.ends[i] = total
  end
end

function ConcatDataset:len()
  return self.ends[#self.ends]
end

function ConcatDataset:get(i)
  i = dataset.position("get", i, self:len())
  local low, high = 1, #self.ends
  while low < high do
    local middle = math.floor((low + high) / 2)
    if self.ends[middle] < i then low = middle + 1 else high = middle end
  end
  return self.datasets[low]:get(i - (self.ends[low - 1] or 0))
end

function ConcatDataset:worker()
  local parts = sources_of(self.datasets)
  return parts and remade(self, "ConcatDataset", parts)
end

local StackDataset = class("StackDataset", Dataset)
dataset.StackDataset = StackDataset

--- Combines datasets of the same length. `StackDataset(images, labels)`: a sample has the first
-- component of each dataset's sample. `StackDataset{image = images, label = labels}`: a sample is a
-- table with these names.
function StackDataset:init(...)
  local first = ...
  local named = lib.is_plain(first)
  local given = named and first or {...}
  self.datasets, self.named, self.length = {}, false, nil
  for key, part in pairs(given) do
    if type(key) ~= "number" then self.named = true end
    part = dataset.of(part, "StackDataset", "datasets")
    self.datasets[key], self.length = part, self.length or part:len()
    if part:len() ~= self.length then
      errors.argument("StackDataset", "datasets", ("differ in length: %d and %d samples"):format(
        self.length, part:len()), "E_SHAPE")
    end
  end
  if not self.length then
    errors.argument("StackDataset", "datasets", "at least one dataset is needed, got none")
  end
  lib.few("StackDataset", "datasets", #self.datasets)
end

function StackDataset:len()
  return self.length
end

function StackDataset:get(i)
  i = dataset.position("get", i, self.length)
  local sample = {}
  for key, part in pairs(self.datasets) do sample[key] = (part:get(i)) end
  if self.named then return sample end
  return unpack(sample, 1, #self.datasets)
end

function StackDataset:worker()
  local parts = sources_of(self.datasets)
  if not parts then return nil end
  if self.named then return remade(self, "StackDataset", parts) end
  return remade(self, "StackDataset", unpack(parts))
end

-- ---- splitting ----

-- Returns the sizes of the parts: counts that add up to n, or fractions that add up to 1.
local function sizes_of(lengths, n)
  local total, sizes = 0, {}
  for i, length in ipairs(calls.whole_list("random_split", "lengths", lengths)) do
    if type(length) ~= "number" or not (length >= 0) then
      errors.argument("random_split", "lengths", ("element %d is %s, not a length"):format(i,
        errors.describe(length)), "E_TYPE")
    end
    total = total + length
    sizes[i] = length
  end
  if math.abs(total - 1) < 1e-6 and n ~= 1 then -- fractions; the first parts get the remainder
    local rest = n
    for i, share in ipairs(lengths) do
      sizes[i] = math.floor(n * share + 1e-9)
      rest = rest - sizes[i]
    end
    for i = 1, rest do
      local at = (i - 1) % #sizes + 1
      sizes[at] = sizes[at] + 1
    end
  elseif total ~= n then
    errors.argument("random_split", "lengths", ("%s add up to %g, the dataset has %d samples")
      :format(errors.describe(lengths), total, n), "E_DOMAIN")
  end
  return sizes
end

local parse_split = define.signature("random_split", {
  {"object", "dataset", "the dataset to split"},
  {"any", "lengths", "sizes of the parts, or fractions that add up to 1"},
  {"generator", "generator", "random generator", optional = true},
})

--- Splits a dataset randomly into parts that do not overlap.
-- `local train, test = unpack(data.random_split(all, {0.8, 0.2}))`
-- @return a list of Subsets
function dataset.random_split(...)
  local whole, lengths, generator = parse_split(...)
  whole = dataset.of(whole, "random_split", "dataset")
  if type(lengths) ~= "table" or #lengths == 0 then
    errors.refuse("random_split", "lengths", "a list of sizes is needed", lengths, "E_TYPE")
  end
  local n = whole:len()
  local sizes = sizes_of(lengths, n)
  local order = require("moth.binding.bind").ops.randperm(n, generator):tolist()
  local parts, at = {}, 0
  for i, size in ipairs(sizes) do
    local indices = {}
    for k = 1, size do indices[k] = order[at + k] end
    at = at + size
    parts[i] = Subset(whole, indices)
  end
  return parts
end

define.takes(dataset.random_split, parse_split, "parts")

return dataset
