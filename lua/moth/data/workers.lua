--- workers.lua -- a DataLoader's num_workers and related arguments, and passes with workers
-- (crew.lua). With num_workers = 0 crew.lua is not loaded.

local class = require "moth.base.class"
local dataset = require "moth.data.dataset"
local errors = require "moth.error"
local calls = require "moth.binding.calls"
local seeds = require "moth.data.seeds"
local sources = require "moth.data.source"

-- Set by worker.lua in a worker's state: info, and processes, {rank, size} of the process group.
local workers = {info = nil, processes = nil}

--- In a worker of a DataLoader, returns a table with `id`, from 1 to `num_workers`; `num_workers`;
-- `seed`, the seed of Moth's and of Lua's random numbers for the current batch; and `dataset`, this
-- worker's copy. In other states returns nil.
--
-- Each pass has a seed, from the loader's `generator` or the default generator. Each batch has a
-- seed from the pass's seed and the batch's number: Moth's random numbers in `get` do not depend on
-- the worker, the number of workers (0, too), or a manual_seed in worker_init_fn. (For a stream
-- each worker numbers its own batches. Without workers Lua's math.random is not seeded.)
function workers.get_worker_info()
  workers.asked = true
  return workers.info
end

--- The rank of this process, from 0, and the number of processes: 0 and 1 without a process group.
function workers.ranks()
  if workers.info then
    if workers.processes then return workers.processes[1], workers.processes[2] end
    return 0, 1
  end
  local groups = package.loaded["moth.distributed.group"]
  local state = groups and groups.get()
  if state then return state.rank, state.size end
  return 0, 1
end

--- The part of a stream that this state reads: a table with `id`, from 1 to `num_shards`, and
-- `num_shards`, the number of processes of moth.distributed times the number of workers. A stream
-- that yields every num_shards-th sample from number id on yields each sample once over all
-- processes and workers: for i = info.id, n, info.num_shards do.
function workers.get_shard_info()
  workers.asked = true
  local rank, size = workers.ranks()
  local info = workers.info or {id = 1, num_workers = 1}
  return {id = rank * info.num_workers + info.id, num_shards = size * info.num_workers}
end

local function refuse(name, text, code) errors.argument("DataLoader", name, text, code) end

-- ---- arguments ----

local function check_alone(options)
  for _, name in ipairs {"timeout", "prefetch_factor", "persistent_workers"} do
    local given = options[name]
    if given and given ~= 0 then
      refuse(name, "needs workers, but num_workers is 0")
    end
  end
end

local function check_numbers(options)
  local n, ahead = options.num_workers, options.prefetch_factor
  if n < 0 or n > 256 then
    refuse("num_workers", ("a number from 0 to 256 is needed, got %d"):format(n), "E_DOMAIN")
  elseif ahead and (ahead < 1 or ahead > 1e6) then
    refuse("prefetch_factor", ("a number from 1 on is needed, got %d"):format(ahead), "E_DOMAIN")
  elseif not (options.timeout >= 0 and options.timeout < 1e9) then
    refuse("timeout", ("seconds from 0 on are needed, got %g"):format(options.timeout), "E_DOMAIN")
  elseif options.worker_init_fn ~= nil and not sources.is(options.worker_init_fn) then
    refuse("worker_init_fn", "a worker is another Lua state, to which functions cannot be sent; " ..
      "pass its name: data.source(\"module\"), got " .. errors.describe(options.worker_init_fn),
      "E_TYPE")
  end
end

local function source_of(set)
  local source = dataset.source_of(set)
  if source then return source end
  local name = class.typename(set) or "dataset"
  refuse("num_workers", ("a worker is another Lua state, which must create the %s: put its " ..
    "class into a module and pass data.source(\"module\", ...), or a method %s:worker() that " ..
    "returns it; or leave num_workers at 0"):format(name, name), "E_UNSUPPORTED")
end

--- Stores the arguments of a DataLoader that concern workers; raises if workers are impossible.
function workers.init(self, options)
  if options.num_workers == 0 then return check_alone(options) end
  check_numbers(options)
  if workers.info then
    refuse("num_workers", "a worker cannot have workers; leave it at 0", "E_STATE")
  end
  local collate = sources.is(self.collate_fn) and self.collate_fn or nil
  self.workers = {
    timeout = options.timeout, persistent = options.persistent_workers,
    ahead = options.prefetch_factor or 2, crews = {},
    samples = self.collate_fn ~= nil and not collate,
    job = {source = source_of(self.dataset), num_workers = options.num_workers, collate = collate,
           init = options.worker_init_fn},
  }
  if self.stream then
    self.workers.job.stream = {batch_size = self.batch_size, drop_last = self.drop_last}
  end
  require("moth.data.crew").check(self.workers.job)
end

-- ---- passes ----

local function state_of(self)
  local generator = self.generator or require("moth").default_generator
  return calls.state_of(generator):tolist()
end

--- Returns the seed of a new pass, from the state of the loader's generator.
-- @param resume  the seed from load_state_dict, if the pass continues another one
function workers.seed(self, pass, resume)
  if resume and resume.seed then
    pass.seed = resume.seed
    return
  end
  local state = state_of(self)
  pass.seed, pass.before = seeds.mixed(state[1], state[2]), state
end

--- Ensures that the next pass has another seed. If the order was drawn from the same generator, the
-- generator's state has already changed: a shuffled pass draws as many numbers as without workers.
function workers.seeded(self, pass)
  local before, now = pass.before, state_of(self)
  if before and before[1] == now[1] and before[2] == now[2] then
    require("moth").rand(1, {generator = self.generator, device = "cpu"})
  end
end

-- Returns the crew with workers `first` to `last` for a pass; persistent workers are reused.
local function crew_of(self, first, last, seed, whole)
  local w, crew = self.workers, require "moth.data.crew"
  local old = w.crews[first]
  if old and crew.lives(old) then return old end
  local job = {whole = whole, samples = w.samples, seed = seed}
  for key, value in pairs(w.job) do job[key] = value end
  local started = crew.start(job, first, last)
  if w.persistent then w.crews[first] = started end
  return started
end

--- Starts a pass.
-- @param next_batch  function that returns lists of positions, then nil
-- @param pass        {batch = the number of batches before it, seed}
-- @param whole       true if the dataset returns whole batches
-- @return a function that returns one batch, or one list of samples, at a time, then nil
function workers.begin(self, next_batch, pass, whole)
  local w, n, seed = self.workers, self.workers.job.num_workers, pass.seed
  return (require("moth.data.crew").pass(crew_of(self, 1, n, seed, whole), next_batch, {
    ahead = n * w.ahead, seed = seed, skip = pass.batch, timeout = w.timeout,
    once = not w.persistent,
  }))
end

-- Returns the requests to a worker with a stream: a start, then one for each batch.
local function asks()
  local begun = false
  return function()
    local ask = {begin = not begun}
    begun = true
    return ask
  end
end

--- Starts a pass of a stream: each worker has a copy of the stream, and their batches alternate.
-- @return as workers.begin
function workers.begin_stream(self, pass)
  local w, seed, steps, at = self.workers, pass.seed, {}, 1
  local crew = require "moth.data.crew"
  for id = 1, w.job.num_workers do
    local own = seeds.mixed(seed, id)
    steps[id] = crew.pass(crew_of(self, id, id, own), asks(), {
      ahead = w.ahead, seed = own, skip = 0, timeout = w.timeout, once = not w.persistent,
    })
  end
  local give
  local function turn(first, ...)
    if first == nil then -- the end of this worker's copy
      table.remove(steps, at)
      return give()
    end
    at = at + 1
    return first, ...
  end
  give = function()
    if #steps == 0 then return nil end
    if at > #steps then at = 1 end
    return turn(steps[at]())
  end
  for _ = 1, pass.batch do give() end
  return give, w.samples and self.collate_fn or nil
end

return workers
