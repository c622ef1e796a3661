--- webdataset.lua -- data.WebDataset: a stream of samples from tar archives ("shards"), as the
-- Python package webdataset reads them. Files of the same name up to its first dot are one sample:
--
--     0001.jpg 0001.cls 0002.jpg 0002.cls ...     {__key__ = "0001", jpg = ..., cls = ...}, ...
--
-- Each archive is read from its start to its end, so that large sets are read at the speed of the
-- disk. Workers, and the processes of `shard`, read different archives.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local json = require "moth.json"
local lib = require "moth.binding.lib"
local iterable = require "moth.data.iterable"
local sources = require "moth.data.source"
local tar = require "moth.data.tar"
local workers = require "moth.data.workers"

local MOST_PATHS = 10 ^ 6
local DRAWN = 256 -- random numbers that are drawn at once

local function refuse(name, text, code) errors.argument("WebDataset", name, text, code) end

-- ---- paths ----

-- The alternatives inside a pair of braces.
local function choices(inside)
  local first, last = inside:match "^(%d+)%.%.(%d+)$"
  local list = {}
  if first then
    if tonumber(last) - tonumber(first) >= MOST_PATHS then
      refuse("urls", ("{%s} makes more than %d paths"):format(inside, MOST_PATHS))
    end
    local width = first:find "^0%d" and #first or 1
    local form = "%0" .. width .. "d"
    for n = tonumber(first), tonumber(last) do list[#list + 1] = form:format(n) end
    return list
  end
  for text in (inside .. ","):gmatch "([^,]*)," do list[#list + 1] = text end
  return list
end

local function expand(pattern, into)
  local before, inside, after = pattern:match "^(.-){([^{}]*)}(.*)$"
  if not before then
    if #into == MOST_PATHS then refuse("urls", ("more than %d paths"):format(MOST_PATHS)) end
    into[#into + 1] = pattern
    return
  end
  for _, text in ipairs(choices(inside)) do expand(before .. text .. after, into) end
end

-- The paths of all shards.
local function paths_of(urls)
  if type(urls) == "string" then urls = {urls} end
  if not lib.is_plain(urls) or #urls == 0 then
    errors.refuse("WebDataset", "urls", "a path, or a list of paths, is needed", urls, "E_TYPE")
  end
  local list = {}
  for _, url in ipairs(urls) do
    if type(url) ~= "string" then
      errors.refuse("WebDataset", "urls", "paths are needed", url, "E_TYPE")
    elseif url:find "^%a[%w+]+:" then
      refuse("urls", "only files are read, got " .. errors.shown(url), "E_UNSUPPORTED")
    end
    expand(url, list)
  end
  return list
end

-- ---- decoding ----

local MOST = "9223372036854775807" -- of int64

local function integer(text, path)
  local sign, digits = text:match "^%s*([+-]?)0*(%d+)%s*$"
  if not digits or #digits > 19 or (#digits == 19 and digits > MOST) then
    errors.raise(("%s is no integer: %s"):format(path, errors.shown(text:sub(1, 40))), "E_FORMAT")
  end
  local value = 0LL
  for digit in digits:gmatch "%d" do value = value * 10 + (digit:byte() - 48) end
  return sign == "-" and -value or value
end

local function as_tensor(text)
  local moth = require "moth"
  return moth.frombuffer(text, {dtype = moth.uint8})
end

local function picture(text, path, mode)
  local fine, x = pcall(require("moth").io.decode_image, as_tensor(text), {mode = mode})
  if not fine then errors.raise(("%s: %s"):format(path, tostring(x)), errors.code()) end
  return x
end

local function loaded(text, path)
  local fine, x = pcall(require("moth").load, {bytes = text})
  if not fine then errors.raise(("%s: %s"):format(path, tostring(x)), errors.code()) end
  return x
end

local function parsed(text, path)
  local value, why = json.decode(text)
  if value == nil then errors.raise(("%s: %s"):format(path, why), "E_FORMAT") end
  return value
end

local DECODERS = {}
local function decoder(endings, decode)
  for ending in endings:gmatch "%S+" do DECODERS[ending] = decode end
end
decoder("jpg jpeg png webp gif", picture)
decoder("npy npz pth safetensors", loaded)
decoder("json jsn", parsed)
decoder("index inx id", integer)
decoder("cls cls2", function(text, path) return integer(text, path) + 1 end) -- a class from 1

-- Decodes the files of a sample, in place.
local function decode_sample(self, sample)
  for name, text in pairs(sample) do
    local own = type(self.decode) == "table" and self.decode[name]
    local decode = own or DECODERS[name:match "[^.]*$"]
    if decode and name:sub(1, 2) ~= "__" then
      sample[name] = decode(text, ("%s: %s.%s"):format(errors.path(sample.__url__),
        sample.__key__, name), self.mode)
    end
  end
  return sample
end

-- ---- samples ----

-- The name of a file up to the first dot of its last part, and the rest; nil for other files.
local function split(name)
  local folder, last = name:match "^(.*/)([^/]*)$"
  local base, ending = (last or name):match "^([^.]+)%.(.+)$"
  if not base or base:find "^__.*__$" or ending:find "^__" then return nil end
  return (folder or "") .. base, ending:lower()
end

-- An iterator over the samples of an archive: tables of strings.
local function samples_of(path)
  local archive, key, ending, text = tar.open(path, "WebDataset"), nil, nil, nil
  local function advance()
    local name
    name, text = archive:next(split)
    if name then key, ending = split(name) else key = nil end
  end
  local function read()
    if not key then return nil end
    local sample = {__key__ = key, __url__ = path}
    local own = key
    while key == own do
      if sample[ending] then
        errors.raise(("%s: sample %s has two files .%s"):format(errors.path(path),
          errors.shown(own), errors.shown(ending)), "E_FORMAT")
      end
      sample[ending] = text
      advance()
    end
    return sample
  end
  advance()
  return read, archive
end

-- Random numbers from 0 to 1, drawn in blocks.
local function random_numbers(generator)
  local list, at = {}, 0
  return function()
    if at == #list then
      local x = require("moth").rand(DRAWN, {generator = generator, device = "cpu"})
      list, at = x:tolist(), 0
      x:free()
    end
    at = at + 1
    return list[at]
  end
end

-- An integer from 1 to n.
local function draw(random, n) return math.min(math.floor(random() * n) + 1, n) end

local function shuffled(list, random)
  for i = #list, 2, -1 do
    local k = draw(random, i)
    list[i], list[k] = list[k], list[i]
  end
  return list
end

-- Every `count`th element, from element `first` on.
local function share(list, first, count)
  local part = {}
  for i = first, #list, count do part[#part + 1] = list[i] end
  return part
end

-- An iterator over the samples of all archives in a list.
local function chain(paths)
  local at, read, archive = 0, nil, nil
  return function()
    while true do
      local sample = read and read()
      if sample then return sample end
      if archive then archive:close() end
      at, read, archive = at + 1, nil, nil
      if not paths[at] then return nil end
      read, archive = samples_of(paths[at])
    end
  end
end

-- An iterator in random order: each step returns a random one of `size` samples that it holds.
local function buffered(read, size, random)
  local held, ended = {}, false
  return function()
    while not ended and #held < size do
      local sample = read()
      held[#held + 1], ended = sample, sample == nil
    end
    if #held == 0 then return nil end
    local k = draw(random, #held)
    local sample = held[k]
    held[k] = held[#held]
    held[#held] = nil
    return sample
  end
end

-- ---- the dataset ----

--- A stream of the samples of tar archives, as of the Python package webdataset. A sample is a
-- table: `__key__`, its name; `__url__`, the archive; and its files by their endings, as strings.
-- Archives are plain or gzip. Workers read different archives, so there should be more archives
-- than workers.
-- @param urls      the path of an archive, or a list of paths; `shard-{000..009}.tar` is ten
-- @param shuffle   the size of a buffer from which samples are drawn at random (default 0: none)
-- @param shardshuffle  a new order of the archives in each pass (default: if `shuffle` is above 0)
-- @param decode    true: pictures become uint8 tensors (C, H, W), npy, npz, pth and safetensors
-- tensors, json tables, index and id int64; cls, which counts from 0 in files, becomes an int64
-- class from 1. A table of functions by ending, f(bytes), decodes these endings itself
-- @param mode      the mode of decoded pictures (default "rgb")
-- @param to_tuple  a list of endings, such as {"jpg;png", "cls"}: a sample is these values in order
-- @param map       a function, or a data.source for workers: a sample is its results
-- @param shard     {rank, count}: which part of the archives this process reads; rank counts from
-- 0. Default: with moth.distributed the part of this process; {0, 1}: all archives
-- @param generator  for shuffling (default: the default generator)
-- Raises E_FORMAT for broken archives, with the position.
local WebDataset = class("WebDataset", iterable.IterableDataset)

WebDataset.signature = define.signature("WebDataset", {
  {"any", "urls", "the path of an archive, or a list; {000..009} and {a,b} stand for several"},
  {"int", "shuffle", "the number of samples in the buffer for shuffling; 0: none", default = 0},
  {"bool", "shardshuffle", "a new order of the archives in each pass; default: if shuffle is set",
    optional = true},
  {"any", "decode", "true: decode files by their endings; or a table of functions by ending",
    default = false},
  {"string", "mode", "the mode of decoded pictures, as for moth.io.decode_image", default = "rgb"},
  {"any", "to_tuple", "a list of endings: a sample is their values, instead of a table",
    optional = true},
  {"any", "map", "a function of the sample, or a data.source: the sample is its results",
    optional = true},
  {"any", "shard", "{rank, count}: the number of this process, from 0, and of processes; default: "
    .. "as in moth.distributed", optional = true},
  {"any", "generator", "for shuffling, instead of the default generator", optional = true},
})

local function check_shard(shard)
  if shard == nil then return end
  local rank, count = nil, nil
  if lib.is_plain(shard) then rank, count = shard[1], shard[2] end
  if type(rank) ~= "number" or type(count) ~= "number" or count < 1 or rank < 0 or rank >= count
    or rank % 1 ~= 0 or count % 1 ~= 0 then
    errors.refuse("WebDataset", "shard", "{rank, count} with rank from 0 to count - 1 is needed",
      shard)
  end
end

local function check_functions(self)
  if self.map ~= nil and type(self.map) ~= "function" and not sources.is(self.map) then
    errors.refuse("WebDataset", "map", "a function or a data.source is needed", self.map, "E_TYPE")
  end
  if type(self.decode) ~= "boolean" and not lib.is_plain(self.decode) then
    errors.refuse("WebDataset", "decode", "a bool or a table of functions is needed", self.decode,
      "E_TYPE")
  end
  if self.to_tuple ~= nil and not lib.is_plain(self.to_tuple) then
    errors.refuse("WebDataset", "to_tuple", "a list of endings is needed", self.to_tuple, "E_TYPE")
  end
end

-- The rank, from 0, and the number of processes that share the archives.
local function shard_of(self)
  local rank, count = workers.ranks()
  if self.shard then rank, count = self.shard[1], self.shard[2] end
  if #self.paths < count then
    refuse("shard", ("%d archives cannot be shared out to %d processes; shard = {0, 1} reads all "
      .. "archives in each"):format(#self.paths, count))
  end
  return rank, count
end

function WebDataset:init(urls, shuffle, shardshuffle, decode, mode, to_tuple, map, shard, generator)
  self.decode, self.mode, self.to_tuple, self.map = decode, mode, to_tuple, map
  self.shard, self.generator = shard or false, generator -- a field: shard is also a method
  if shuffle < 0 then
    errors.refuse("WebDataset", "shuffle", "a number from 0 on is needed", shuffle, "E_DOMAIN")
  end
  check_shard(shard)
  check_functions(self)
  self.paths, self.shuffle = paths_of(urls), shuffle
  self.shardshuffle = shardshuffle
  if shardshuffle == nil then self.shardshuffle = shuffle > 0 end
  shard_of(self)
end

-- The value of the first of several endings, "jpg;png", that the sample has.
local function one_of(sample, endings)
  for ending in endings:gmatch "[^;]+" do
    if sample[ending] ~= nil then return sample[ending] end
  end
  errors.raise(("%s: sample %s has no file .%s"):format(errors.path(sample.__url__),
    errors.shown(sample.__key__), errors.shown(endings)), "E_FORMAT")
end

local function finished(self, sample)
  if self.decode then decode_sample(self, sample) end
  if not self.to_tuple then
    if self.map then return self.map(sample) end
    return sample
  end
  local values = {}
  for i, endings in ipairs(self.to_tuple) do values[i] = one_of(sample, endings) end
  if self.map then return self.map(unpack(values, 1, #self.to_tuple)) end
  return unpack(values, 1, #self.to_tuple)
end

function WebDataset:iter()
  local rank, count = shard_of(self)
  local paths = share(self.paths, rank + 1, count)
  local info = workers.get_worker_info()
  if info then paths = share(paths, info.id, info.num_workers) end
  local random = random_numbers(self.generator)
  if self.shardshuffle then paths = shuffled(share(paths, 1, 1), random) end
  local read = chain(paths)
  if self.shuffle > 1 then read = buffered(read, self.shuffle, random) end
  return function()
    local sample = read()
    if sample == nil then return nil end
    return finished(self, sample)
  end
end

-- The source for workers; functions cannot be sent to them.
function WebDataset:worker()
  if class.of(self) ~= WebDataset or self.generator or type(self.map) == "function"
    or type(self.decode) == "table" then
    return nil
  end
  return sources.source("moth.data.webdataset:WebDataset", {urls = self.paths,
    shuffle = self.shuffle, shardshuffle = self.shardshuffle, decode = self.decode,
    mode = self.mode, to_tuple = self.to_tuple, map = self.map,
    shard = self.shard or nil})
end

function WebDataset:__tostring()
  return ("WebDataset of %d archives"):format(#self.paths)
end

return {WebDataset = WebDataset, expand = paths_of}
