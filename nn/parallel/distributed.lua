--- distributed.lua -- nn.parallel.DistributedDataParallel: the same net in each process, each with
-- its own part of the batch. Backward passes average the gradients over the processes.
--
-- The gradients are reduced in units. A large parameter is a unit by itself, and its .grad is
-- reduced in place. Small parameters of one dtype share a unit, a bucket: their gradients are
-- copied into one flat tensor. Units are in the order in which a backward pass completes them: at
-- first the reverse order of the parameters, after the first pass the order that rank 0 observed. A
-- unit is reduced as soon as its gradients and all units before it are ready, so that all processes
-- reduce them in the same order.

local autograd = require "moth.autograd"
local calls = require "moth.binding.calls"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local Module = require "moth.nn.module"

local moth = lib.anchor.moth
local dist = moth.distributed
local groups = require "moth.distributed.group"

local parallel = {}

local FIRST_BYTES = 2 ^ 20 -- capacity of the first bucket, which is full early
local LARGE = 2 ^ 20       -- bytes from which a parameter is reduced by itself

local DDP = require("moth.base.class")("DistributedDataParallel", Module)
parallel.DistributedDataParallel = DDP
DDP.signature = define.signature("DistributedDataParallel", {
  {"any", "module", "the net; its parameters and buffers become those of rank 0"},
  {"any", "process_group", "processes that take part; default: all", optional = true},
  {"float", "bucket_cap_mb", "MiB of small gradients that are reduced together", default = 25,
    bounds = {0, 4096}},
  {"bool", "find_unused_parameters", "may a pass leave out parameters?", default = false},
  {"bool", "broadcast_buffers", "copy the buffers of rank 0 before each forward in training?",
    default = true},
  {"bool", "gradient_as_bucket_view", "let .grad be a view of the bucket? It saves a copy",
    default = false},
  {"bool", "static_graph", "does each pass use the same parameters? Those that the first pass "
    .. "leaves out are left out later", default = false},
})

-- ---- the nets of the processes ----

-- What must be the same in all processes: a text for each parameter and buffer.
local function layout_of(module)
  local list = {}
  local function add(name, x, note)
    list[#list + 1] = ("%s %s %s%s"):format(name, tostring(x.dtype):gsub("^moth%.", ""),
      tostring(x.shape), note)
  end
  for name, p in module:named_parameters() do
    add(name, p, p.requires_grad and "" or " without gradient")
  end
  for name, x in module:named_buffers() do add(name, x, "") end
  return list
end

-- Raises in all processes if the net of one is not like that of the group's first: else messages of
-- different sizes would meet.
local function check_equal(module, group)
  local mine, problem = layout_of(module), false
  local shared = {mine}
  dist.broadcast_object_list(shared, group.ranks[1], group)
  local first = shared[1]
  for i = 1, math.max(#mine, #first) do
    if mine[i] ~= first[i] then
      problem = ("rank %d has %s, rank %d has %s"):format(dist.get_rank(),
        mine[i] or "nothing more", group.ranks[1], first[i] or "nothing more")
      break
    end
  end
  local problems = {}
  dist.all_gather_object(problems, problem, group)
  for i = 1, #group.ranks do
    if problems[i] then
      errors.argument("DistributedDataParallel", "module", "the nets of the processes differ: "
        .. problems[i], "E_SHAPE")
    end
  end
end

-- ---- units ----

-- Splits parameters into units. The list has the order in which their gradients arrive.
local function plan(list, capacity)
  local units, open = {}, {} -- open: dtype -> a bucket that is not full
  for i, p in ipairs(list) do
    if p.nbytes >= LARGE then
      units[#units + 1] = {p, last = i}
    else
      local bucket = open[p.dtype]
      if not bucket or bucket.bytes + p.nbytes > bucket.capacity then
        bucket = {bytes = 0, capacity = next(open) and capacity or math.min(capacity, FIRST_BYTES)}
        units[#units + 1], open[p.dtype] = bucket, bucket
      end
      bucket[#bucket + 1], bucket.bytes, bucket.last = p, bucket.bytes + p.nbytes, i
    end
  end
  table.sort(units, function(a, b) return a.last < b.last end)
  return units
end

local function reversed(list)
  local result = {}
  for i = #list, 1, -1 do result[#result + 1] = list[i] end
  return result
end

local function keep(x)
  lib.check(lib.C.moth_keep_always(lib.ctx, x), "DistributedDataParallel")
  return x
end

-- The flat tensor of a bucket, and its views with the shapes of the parameters. They stay when the
-- moth.scope of the first pass ends.
local function make_flat(unit)
  local n, at = 0, 1
  for _, p in ipairs(unit) do n = n + p:numel() end
  local like = {dtype = unit[1].dtype, device = unit[1].device}
  unit.flat, unit.views = keep(moth.zeros({n}, like)), {}
  for i, p in ipairs(unit) do
    unit.views[i] = keep(unit.flat:narrow(1, at, p:numel()):view(p.shape))
    at = at + p:numel()
  end
end

-- Copies values of one process (default: the first) to all, those of one dtype and device in one
-- message.
local function broadcast_all(tensors, group, src)
  local by_kind, order = {}, {}
  for _, x in ipairs(tensors) do
    local kind = tostring(x.dtype) .. " " .. tostring(x.device)
    if not by_kind[kind] then
      by_kind[kind] = {}
      order[#order + 1] = by_kind[kind]
    end
    table.insert(by_kind[kind], x)
  end
  for _, list in ipairs(order) do
    local parts, at = {}, 1
    for i, x in ipairs(list) do parts[i] = x:detach():reshape(-1) end
    local flat = moth.cat(parts)
    dist.broadcast(flat, src or group.ranks[1], group)
    for _, x in ipairs(list) do
      x:detach():copy_(flat:narrow(1, at, x:numel()):view(x.shape))
      at = at + x:numel()
    end
  end
end

-- ---- a backward pass ----

local function start_unit(self, unit)
  local flat
  if #unit == 1 and not unit.flat then
    local p = unit[1]
    if p.grad == nil then p.grad = moth.zeros_like(p) end
    flat = p.grad:detach()
  else
    for i, p in ipairs(unit) do
      if p.grad == nil then
        unit.views[i]:zero_()
      elseif not unit.is_grad or not p.grad:is_set_to(unit.views[i]) then
        unit.views[i]:copy_(p.grad)
      end
    end
    flat = unit.flat
  end
  unit.reduced = self._divisor and flat
  unit.work = dist.all_reduce(flat, self._divisor and "sum" or "mean", self._group, true)
end

-- Starts the units that are ready, in order.
local function start_ready(self)
  local units = self._units
  while self._next <= #units and units[self._next].left == 0 do
    moth.no_grad(start_unit, self, units[self._next])
    self._next = self._next + 1
  end
end

-- Makes the units. list: the parameters that are reduced, in the order of their gradients.
local function set_units(self, list)
  local units, unit_of = plan(list, self._capacity), {}
  for _, unit in ipairs(units) do
    if #unit > 1 then make_flat(unit) end
    unit.is_grad = self._as_view and unit.flat ~= nil
    for _, p in ipairs(unit) do unit_of[p] = unit end
  end
  self._units, self._unit_of = units, unit_of
end

-- After the first pass: the units follow the order in which rank 0 got its gradients.
local function order_units(self, used)
  local order, place = moth.zeros({#self._params}, {dtype = moth.int32}), {}
  for i, p in ipairs(self._arrivals) do place[p] = i end
  for i, p in ipairs(self._params) do order[i] = place[p] or 2 * #self._params - i end
  order = order:to(groups.device())
  dist.broadcast(order, self._group.ranks[1], self._group)
  local list = {}
  order = order:tolist()
  for i, p in ipairs(self._params) do
    if not used or used[i] > 0 then list[#list + 1] = p end
    place[p] = order[i]
  end
  table.sort(list, function(a, b) return place[a] < place[b] end)
  set_units(self, list)
  self._arrivals = false
end

local function reset(self)
  for _, unit in ipairs(self._units) do unit.left, unit.work = #unit, nil end
  self._next, self._seen, self._active = 1, {}, false
  if self._arrivals then self._arrivals = {} end
end

-- Which parameters got a gradient in some process?
local function find_used(self)
  local flags = moth.zeros({#self._params}, {dtype = moth.int32})
  for i, p in ipairs(self._params) do
    if self._seen[p] then flags[i] = 1 end
  end
  flags = flags:to(groups.device())
  dist.all_reduce(flags, "max", self._group)
  return flags
end

local function missing_names(self)
  local names = {}
  for _, p in ipairs(self._params) do
    if self._unit_of[p] and not self._seen[p] and #names < 8 then
      names[#names + 1] = self._names[p]
    end
  end
  return table.concat(names, ", ")
end

-- The end of a backward pass: waits for the reductions, and copies the results to .grad.
local function finish(self)
  local used
  if self._next <= #self._units then
    if not self._find_unused then
      local names = missing_names(self)
      reset(self)
      errors.raise("DistributedDataParallel: the backward pass computed no gradient of " .. names
        .. "; all processes wait for it. Pass find_unused_parameters = true if a pass may leave "
        .. "out parameters", "E_STATE")
    end
    for _, unit in ipairs(self._units) do unit.left = 0 end
    start_ready(self)
  end
  if self._find_unused then used = find_used(self):tolist() end
  local index = {}
  for i, p in ipairs(self._params) do index[p] = i end
  for _, unit in ipairs(self._units) do
    unit.work:wait()
    if unit.reduced then unit.reduced:div_(self._divisor) end
    for i, p in ipairs(unit) do
      if used and used[index[p]] == 0 then
        if not unit.flat then p.grad = nil end
      elseif unit.is_grad then
        p.grad = unit.views[i]
      elseif unit.flat and p.grad == nil then
        p.grad = unit.views[i]:clone()
      elseif unit.flat then
        p.grad:copy_(unit.views[i])
      end
    end
  end
  if self._arrivals and not (lib.capture or lib.verifying) then
    order_units(self, self._static and used)
    if self._static then self._find_unused = false end
  end
  reset(self)
end

-- The gradient of p is complete.
local function arrived(self, p)
  if not self._sync or self._seen[p] then return end
  local unit = self._unit_of[p]
  if not unit then
    errors.raise("DistributedDataParallel: " .. self._names[p] .. " got a gradient, and the first "
      .. "pass left it out; static_graph = true is for passes that use the same parameters",
      "E_STATE")
  end
  if not self._active then
    self._active = true
    autograd.at_end(function() if self._active then moth.no_grad(finish, self) end end)
  end
  if p.grad.is_sparse then
    errors.raise("DistributedDataParallel: the sparse gradient of " .. self._names[p]
      .. " cannot be reduced; use a layer with sparse = false", "E_UNSUPPORTED")
  end
  self._seen[p] = true
  if self._arrivals then table.insert(self._arrivals, p) end
  unit.left = unit.left - 1
  if unit.left == 0 then start_ready(self) end
end

-- Takes part in a pass of the other processes, without a batch: .grad is their mean gradient.
-- keeps: add to .grad, instead of zeros
local function shadow(self, reduces, copies, keeps)
  if copies then broadcast_all(self.module:buffers(), self._group, self._src or nil) end
  if not reduces then return end
  if not keeps then
    for _, p in ipairs(self._params) do p.grad = nil end
  end
  for _, unit in ipairs(self._units) do unit.left = 0 end
  start_ready(self)
  finish(self)
end

-- ---- the module ----

local HIDDEN = {"_group", "_units", "_unit_of", "_params", "_names", "_seen", "_handles",
                "_arrivals", "_join", "_src", "_divisor"}

--- Wraps a net for training by several processes, as torch.nn.parallel.DistributedDataParallel:
-- each process computes the loss of its own samples, and backward averages the gradients.
--
--     moth.distributed.init_process_group()
--     local net = nn.parallel.DistributedDataParallel(Net())
--
-- The net is net.module. Parameters that need no gradient are left out. Every process must run
-- the same number of backward passes, except in net:join(f).
function DDP:init(module, group, bucket_cap_mb, find_unused, broadcast_buffers, as_view, static)
  if not moth.nn.isinstance(module, Module) then
    errors.refuse("DistributedDataParallel", "module", "a module is needed", module, "E_TYPE")
  end
  group = groups.of("DistributedDataParallel", group, "process_group")
  self.module = module
  local params, names, handles = {}, {}, {}
  for name, p in module:named_parameters() do
    if p.requires_grad then params[#params + 1], names[p] = p, name end
  end
  if #params == 0 then
    errors.argument("DistributedDataParallel", "module", "no parameter needs a gradient", "E_ARG")
  end
  check_equal(module, group)
  for i, p in ipairs(params) do
    handles[i] = p:register_post_accumulate_grad_hook(function(x) arrived(self, x) end)
  end
  for _, key in ipairs(HIDDEN) do rawset(self, key, false) end
  self._group, self._params, self._names, self._handles = group, params, names, handles
  for key, value in pairs {_find_unused = find_unused or static, _static = static,
                           _broadcast = broadcast_buffers, _sync = true, _as_view = as_view,
                           _capacity = bucket_cap_mb * 2 ^ 20, _arrivals = {}} do
    rawset(self, key, value)
  end
  set_units(self, reversed(params))
  reset(self)
  broadcast_all(module:parameters(), group)
  broadcast_all(module:buffers(), group)
end

function DDP:forward(...)
  if self._join then require("moth.nn.parallel.join").notify(self) end
  if self._broadcast and self.training and self._sync then
    broadcast_all(self.module:buffers(), self._group, self._src or nil)
  end
  return self.module(...)
end

--- Backward passes inside f only add to .grad, without a reduction; the next pass outside reduces
-- the sums. For gradient accumulation.
-- @param f    a function
-- @param ...  its arguments
-- @return its results
function DDP:no_sync(f, ...)
  if not calls.is_callable(f) then
    errors.refuse("no_sync", "f", "a function is needed", f, "E_TYPE")
  end
  local before = self._sync
  rawset(self, "_sync", false)
  local results = lib.pack(pcall(f, ...))
  rawset(self, "_sync", before)
  if not results[1] then error(results[2], 0) end
  return unpack(results, 2, results.n)
end

--- Calls f, a training loop, where the processes have different numbers of batches. A process that
-- has run out of batches takes part in the reductions of the others with zeros. At the end all
-- processes have the parameters and buffers of a process that had the last batch.
--
--     net:join(function()
--       for input, target in loader do ... end
--     end)
--
-- As in PyTorch the state of the optimizer is not copied. moth.fit needs no join.
-- @param f  the loop
-- @param divide_by_initial_world_size  divide the sum of the gradients by the number of all
-- processes (default true); false: by the number of those that have a batch
-- @param enable  false: only call f
-- @param throw_on_early_termination  raise in all processes when the first has no more batches
-- @return the results of f
function DDP:join(...)
  return require("moth.nn.parallel.join").run(self, shadow, broadcast_all, ...)
end

-- Takes part in a pass of the other processes, in which they reduce gradients and copy buffers.
function DDP:_shadow(src)
  rawset(self, "_src", src)
  moth.no_grad(shadow, self, true, self._broadcast and self.training, true)
end

return parallel
