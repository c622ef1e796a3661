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
