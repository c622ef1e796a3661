--- sets.lua -- datasets in a module, as users write them, for specs of workers.

local moth = require "moth"
local nn, data = moth.nn, moth.data

local sets = {}

local function dataset(name, get)
  local set = nn.class(name, data.Dataset)
  function set:init(n, shared) self.n, self.shared = n, shared end
  function set:len() return self.n end
  function set:worker() return data.source("spec.support.sets:" .. name, self.n, self.shared) end
  set.get = get
  sets[name] = set
end

dataset("Squares", function(_, i) return moth.tensor {i, i * i}, i % 2 == 0 and 1LL or 2LL end)

-- Samples of all kinds: a number, strings and a tensor, a table.
dataset("Mixed", function(_, i)
  return i / 2, i % 2 == 0, "s" .. i, {size = moth.full({2}, i), name = {"x", moth.tensor(i)}}
end)

-- Integers and fields, in tables that grew in different ways.
dataset("Named", function(_, i)
  local t = {x = i, y = 2, z = 3}
  t[1] = 5
  local grown = {}
  for k = 1, i do grown["k" .. k] = k end
  grown[1], grown[2] = i, 7
  return {t = t, grown = grown, list = {i, 2, 3}, last = {1, 2, [4] = i}}
end)

dataset("Noise", function() return moth.rand(2), math.random() end)

-- i + 2 i, by a kernel that is made at run time (spec/cuda/fused_spec.lua).
dataset("Fused", function(_, i)
  local fused = require("moth.binding.bind").ops.fused
  local x = moth.full({1000}, i, {device = "cuda"})
  return fused({x}, {1, -1, 3, 1, 0, 0, 0, 0, 0}, {-1}, 1, {2, 0, 0}):cpu()
end)

local thrown = {
  function() return {message = "no sample 1"} end,
  function() return setmetatable({}, {__tostring = function() return "thing 2" end}) end,
  function() return {3} end,
  function() return nil end,
}
dataset("Thrown", function(_, i) error(thrown[i]()) end)

dataset("Wrong", function(self, i)
  if i == 3 then error("sample 3 is broken") end -- the spec looks for this line
  if i == 5 then return moth.ones(2):view(3) end
  if i == 7 then return print end
  if i == 9 then return self.shared and self.shared[i] end
  return moth.tensor(i)
end)

dataset("Learned", function() return moth.ones(2, {requires_grad = true}) * 2 end)

-- Counts its calls in a tensor that all states share.
dataset("Counted", function(self, i)
  self.shared:add_(1)
  return moth.tensor(i)
end)

-- Keeps its samples, like a dataset with a cache.
dataset("Cached", function(self, i)
  self.kept = self.kept or {}
  self.kept[i] = self.kept[i] or moth.full({3}, i)
  return self.kept[i]
end)

-- Waits `shared` seconds for each sample, in small ops or without any.
dataset("Slow", function(self, i)
  local until_ = os.time() + self.shared
  while os.time() < until_ do moth.ones(2) end
  return moth.tensor(i)
end)
dataset("Busy", function(self, i)
  local until_ = os.clock() + self.shared
  while os.clock() < until_ do end
  return moth.tensor(i)
end)

dataset("Exits", function() os.exit(3) end)

-- Streams of 1 to n; Shared splits them between the workers.
local function stream(name, shared)
  local set = nn.class(name, data.IterableDataset)
  function set:init(n, size) self.n, self.size = n, size end
  function set:worker() return data.source("spec.support.sets:" .. name, self.n, self.size) end
  function set:iter()
    local info = shared and data.get_worker_info() or {id = 1, num_workers = 1}
    local i = info.id - info.num_workers
    return function()
      i = i + info.num_workers
      if i == 13 then error("13 is broken") end
      if i <= self.n and self.size then return moth.full({self.size}, i), moth.ones(self.size) end
      if i <= self.n then return moth.tensor(i), "s" .. i end
    end
  end
  sets[name] = set
end
stream("Stream")
stream("Shared", true)

local noise = nn.class("NoiseStream", sets.Stream)
function noise:worker() return data.source("spec.support.sets:NoiseStream", self.n) end
function noise:iter()
  local i = 0
  return function()
    i = i + 1
    if i <= self.n then return moth.rand(2), math.random() end
  end
end
sets.NoiseStream = noise

-- The worker that returned the sample.
dataset("Told", function(_, i)
  local info = data.get_worker_info()
  return moth.tensor {i, info.id, info.num_workers, info.dataset:len(), moth.get_num_threads(),
                      info.dataset.mark or 0}
end)

-- The first sample is the exit status of a process that was forked from the worker.
dataset("Forked", function(_, i)
  if i > 1 then return moth.tensor(i) end
  local ffi = require "ffi"
  pcall(ffi.cdef, "int fork(void); int waitpid(int pid, int *status, int options);")
  local pid, status = ffi.C.fork(), ffi.new("int[1]")
  if pid > 0 then ffi.C.waitpid(pid, status, 0) end
  return moth.tensor(status[0])
end)

function sets.mark(id, by) data.get_worker_info().dataset.mark = id * by end

function sets.total(samples, times)
  local sum = 0
  for _, sample in ipairs(samples) do sum = sum + sample[1]:sum():item() end
  return moth.tensor(sum * times)
end

function sets.dies(how) error(how or "no dataset today") end

return sets
