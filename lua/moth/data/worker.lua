--- worker.lua -- the worker's side of a DataLoader, in its own Lua state and thread
-- (core/host/workers.c): creates the dataset, then one batch for each list of positions that it
-- receives. lua/moth/data/crew.lua is the host's side.

local autograd = require "moth.autograd"
local class = require "moth.base.class"
local datasets = require "moth.data.dataset"
local errors = require "moth.error"
local ffi = require "ffi"
local lib = require "moth.binding.lib"
local loader = require "moth.data.loader"
local pack = require "moth.data.pack"
local workers = require "moth.data.workers"

local C, ctx = lib.C, lib.ctx

lib.declare "workers"

local worker = {}

local info = {} -- the result of get_worker_info

-- ---- sending ----

local message = ffi.new("moth_message")

-- Sends values to the host. Fresh tensors have no other owner: they are moved. Other tensors, for
-- example those that a collate_fn returns unchanged, are copied: no two states may write to the
-- same bytes.
local function send(number, fresh, n, ...)
  local text, tensors = pack.write(n, ...)
  for i, x in ipairs(tensors) do
    if x.device.type ~= "cpu" then
      errors.raise(("a sample has a tensor on %s, but workers return CPU tensors: move the "
        .. "batch, for example "
        .. "with pin_memory = true"):format(tostring(x.device)), "E_DEVICE")
    end
    if not fresh or loader.untouched[x] then tensors[i] = autograd.no_grad(x.clone, x) end
  end
  local tokens = pack.tokens(tensors)
  for _, x in ipairs(tensors) do x:free() end
  message.number, message.tokens, message.ntokens = number, tokens, #tensors
  message.text.at, message.text.size = text, #text
  local status = C.moth_workers_send(ctx, nil, message, 0)
  if status >= 0 then return end
  pack.drop(tokens, #tensors)
  lib.check(status, "DataLoader")
end

-- ---- batches ----

local function seed_with(seed)
  info.seed = seed
  require("moth").manual_seed(seed)
  math.randomseed(seed)
end

-- Returns a function that returns the next batch of this worker's copy of a stream, or nothing at
-- the end.
local function stream_maker(job, stream, join)
  local step
  return function(what)
    if what.begin then step = loader.cut(stream, job.stream.batch_size, job.stream.drop_last) end
    local list = step()
    if info.num_workers > 1 and not workers.asked then
      errors.raise(("%s does not call data.get_worker_info(), so that each of %d workers would "
        .. "return all samples; use stream:shard(), skip the other workers' samples in :iter() "
        .. "(data.get_shard_info), or use one worker"):format(
        class.typename(stream) or "the stream", info.num_workers), "E_UNSUPPORTED")
    end
    if list == nil then return false end
    return join(list)
  end
end

-- Returns the function that makes a batch: function(positions) -> true if its tensors are fresh,
-- its values.
local function maker(job, dataset)
  if job.whole then
    local moth, fresh = require "moth", datasets.is_fresh(dataset)
    return function(positions)
      return fresh, dataset:batch(moth.tensor(positions, {dtype = moth.int64}))
    end
  end
  local collate, samples = job.collate, job.samples
  local function join(list)
    if samples then return false, list end
    if collate then return false, loader.checked(collate(list)) end
    return true, loader.default_collate(list)
  end
  if job.stream then return stream_maker(job, dataset, join) end
  return function(positions) return join(loader.samples(dataset, positions)) end
end

-- Sends the result of a batch.
local function answer(number, ok, fresh, ...)
  if not ok then error(fresh, 0) end
  send(number, fresh, 1 + select("#", ...), "batch", ...)
end

-- Returns " (get of the dataset: squares.lua:12)", for a message without a position: a tail call
-- `return f(x)` removes the position.
local function place_of(problem)
  local name = info.dataset.get and "get" or "iter"
  local get = class.written(info.dataset[name])
  local placed = problem:find "^[^\n]-:%d+: "
  if placed or type(get) ~= "function" or errors.is_own(get) then return "" end
  local where = debug.getinfo(get, "S")
  return (" (%s of the dataset: %s:%d)"):format(name, where.short_src, where.linedefined)
end

-- Converts an error to text: any Lua value may be raised.
local function text_of(problem)
  local kind, meta = type(problem), getmetatable(problem)
  if kind == "string" or type(meta) == "table" and meta.__tostring then return tostring(problem) end
  local given = kind == "table" and rawget(problem, "message")
  if type(given) == "string" then return given end
  return "the error is " .. errors.describe(problem)
end

local function failed(problem)
  local code = errors.code()
  if code == "E_INTERRUPT" then return "again" end -- a Ctrl-C in the host interrupts workers
  local told, text = pcall(text_of, problem)
  problem = told and text or "an error that cannot be sent: " .. tostring(text)
  return "error", problem .. place_of(problem), code ~= "OK" and code or "E_STATE"
end

local function batch(make, number, seed, positions)
  errors.forget()
  seed_with(seed)
  local fine, problem = pcall(function() answer(number, pcall(make, positions)) end)
  if fine then return end
  local kind, text, code = failed(problem)
  send(number, false, 4, kind, info.id, text, code)
end

-- ---- the main function ----

local function no_exit()
  error("os.exit was called in a worker of a DataLoader", 2)
end

local function run(text, tokens)
  local moth = require "moth"
  local list = lib.array("uint64_t", #tokens + 1)
  for i, token in ipairs(tokens) do list[i - 1] = token end
  local job = pack.read(text, list, #tokens)
  rawset(os, "exit", no_exit)
  info.id, info.num_workers, workers.info = job.id, job.num_workers, info
  workers.processes = job.processes
  loader.untouched = setmetatable({}, {__mode = "k"})
  moth.set_default_dtype(job.dtype)
  if job.limit > 0 then moth.set_memory_limit(job.limit) end
  seed_with(job.seed)
  info.dataset = job.source()
  if not job.stream then info.dataset = datasets.of(info.dataset, "DataLoader", "dataset") end
  if job.init then job.init(info.id) end
  local make, got = maker(job, info.dataset), ffi.new("moth_message")
  job = nil -- luacheck: ignore
  while lib.check(C.moth_workers_receive(ctx, nil, -1, got), "DataLoader") == 1 do
    local number = got.number
    batch(make, number, pack.read(ffi.string(got.text.at, got.text.size), got.tokens, 0))
  end
end
jit.off(run)

--- Runs a worker until its end.
-- @param text    its job: {id, num_workers, seed, source, ...}, written by crew.lua
-- @param tokens  the tokens of the job's tensors, a list of numbers
function worker.run(text, tokens)
  local fine, problem = pcall(run, text, tokens)
  if not fine then error(text_of(problem), 0) end
end
jit.off(worker.run)

return worker
