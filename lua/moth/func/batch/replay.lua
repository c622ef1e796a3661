--- replay.lua -- runs the calls that log.lua logged again, once for a whole batch.
--
-- A tensor that depends on the sample gets the batch as its first dimension; other tensors stay.
-- Each call then runs once, by the rule of its op (rules.lua); an op without a rule is called for
-- each sample. If the log does not describe the function fully, the replay stops, and the caller
-- loops over the samples. Each result must have the dtype and the shape of the first sample's
-- result.

local bit = require "bit"
local ffi = require "ffi"
local autograd = require "moth.autograd"
local bind = require "moth.binding.bind"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local log = require "moth.func.batch.log"
local look = require "moth.tensor.look"
local rules = require "moth.func.batch.rules"

local C, ctx, Handle = lib.C, lib.ctx, lib.Handle
local ops = bind.ops
local GRAD = C.MOTH_IS_GRAD
local GRAD_MODE = lib.modes.grad

local Replay = {}
Replay.__index = Replay

-- ---- tensors of the log ----

local function facts_from(t)
  return {ndim = t.ndim, shape = lib.sizes(t), dtype = t.dtype, numel = tonumber(t.numel),
          storage = tonumber(t.storage), requires = bit.band(t.flags, GRAD) ~= 0,
          version = tonumber(t.version)}
end

local function inspect(x) return look.several(x, "vmap", facts_from) end

--- The metadata of a logged tensor in the first sample.
function Replay:facts(x)
  local known = self.known[x._slot]
  if not known then
    known = inspect(x)
    self.known[x._slot] = known
  end
  return known
end

--- The batch value of a logged tensor, or nil if it is equal for all samples.
function Replay:batched(x) return self.values[x._slot] end

--- The value of a logged tensor: the batch value, or the value for all samples.
function Replay:value(x)
  return self.values[x._slot] or x
end

--- The value with the batch as first dimension; an expanded view if it is equal for all samples.
function Replay:whole(x)
  local y = self.values[x._slot]
  if y then return y end
  return (ops.expand(self:value(x), {self.size, unpack(self:facts(x).shape)}))
end

-- Stops the replay. @return nothing
local STOP = {}
local function stop() error(STOP, 0) end
Replay.stop = stop

-- ---- checks before the replay ----

-- The storages that calls write; and true for a tensor that needs a value for each sample although
-- it does not depend on the sample: differentiated tensors, and targets of writes of sample
-- values.
local function survey(self, entries, inputs)
  local made, written, needed, first = {}, {}, {}, self.first
  for i = 1, #inputs do made[self:facts(inputs[i]).storage] = "input" end
  for _, entry in ipairs(entries) do
    if entry.event == "other" and not self.pass then stop() end
    for slot in pairs(entry.numbers or {}) do self.numbers[slot] = true end
    if entry.event == "op" then
      local meta = entry.meta
      if meta.name:find "_$" and not meta.mutates or rules.keeps_state(entry, meta) then stop() end
      if entry.writes then
        local storage = self:facts(entry.results[1]).storage
        if made[storage] ~= "op" then stop() end
        written[storage] = true
      else
        for _, y in ipairs(entry.results) do
          local storage = self:facts(y).storage
          if storage > first then made[storage] = made[storage] or "op" end
        end
      end
    elseif entry.event == "data" then
      made[self:facts(entry.tensors[1]).storage] = "data"
    elseif entry.event == "grad" then
      for _, x in ipairs(entry.inputs) do needed[x._slot] = true end
      for _, x in pairs(entry.results) do
        local storage = self:facts(x).storage
        made[storage] = made[storage] or "grad"
      end
    end
  end
  self.made, self.written, self.needed = made, written, needed
end

-- Stops if a tensor of the calls was written by anything but a logged call.
local function check_versions(self, entries)
  for _, entry in ipairs(entries) do
    for k, x in ipairs(entry.event == "op" and entry.tensors or {}) do
      if x and not self.numbers[x._slot] then
        local facts = self:facts(x)
        if facts.version ~= entry.versions[k] and not self.written[facts.storage] then stop() end
      end
    end
  end
end

-- Raises if a tensor was created by no logged call.
local function check_origin(self, x)
  local storage = self:facts(x).storage
  if not self.made[storage] and storage > self.first then stop() end
end

-- ---- calls ----

local RESULTS, SLOTS = 8, 64 -- the largest numbers of an op

--- Runs an op with these slots. @return the list of its results, or nil after an error
function Replay:invoke(meta, slots)
  local out = self.out
  for k = 0, RESULTS - 1 do out[k]._slot, out[k]._gen = 0, 0 end
  local status
  repeat
    status = C.moth_call(ctx, meta.op, slots, meta.nslots, 2 ^ #meta.args - 1, out, RESULTS)
  until status ~= C.MOTH_E_PAUSED or not lib.pause()
  if status == C.MOTH_E_INTERRUPT then lib.check(status, "vmap") end
  if status < 0 then return nil end
  local list, waiting = {}, C.moth_result_count(ctx)
  for k = 0, RESULTS - 1 do
    if out[k]._slot ~= 0 then list[#list + 1] = Handle(out[k]._slot, out[k]._gen) end
  end
  for k = 0, waiting - 1 do
    local h = Handle()
    lib.check(C.moth_result(ctx, k, h), "vmap")
    list[#list + 1] = h
  end
  for k = 1, #list do list[k] = lib.adopt(list[k], k == #list and status or 0) end
  return list
end

--- The slots of a call, valid until the next call, with each tensor x replaced by of(x).
function Replay:slots_of(entry, of)
  local meta = entry.meta
  local slots = self.slots
  ffi.copy(slots, entry.slots, meta.nslots * ffi.sizeof "moth_slot")
  local anchors = {}
  for _, arg in ipairs(meta.args) do
    local k = arg.slot
    if arg.tensor then
      local number = tonumber(slots[k].integer)
      slots[k].integer = 0
      if number > 0 then slots[k].handle = of(entry.tensors[number]) end
    elseif arg.list then
      local first, n = tonumber(slots[k].integer), tonumber(slots[k + 1].integer)
      local list = lib.handles(math.max(n, 1))
      for i = 0, n - 1 do
        local x = entry.tensors[first + i]
        if x then list[i] = of(x) else list[i]._slot, list[i]._gen = 0, 0 end
      end
      anchors[#anchors + 1] = list
      slots[k].pointer = list
    end
  end
  return slots, anchors
end

-- Calls f(...) under the grad mode of the logged call.
local function in_mode(self, recorded, f, ...)
  if self.mode == recorded then return f(...) end
  local old = C.moth_mode(ctx, GRAD_MODE, recorded and 1 or 0)
  self.mode = recorded
  local results = lib.pack(pcall(f, ...))
  C.moth_mode(ctx, GRAD_MODE, old)
  self.mode = not recorded
  if not results[1] then error(results[2], 0) end
  return unpack(results, 2, results.n)
end

-- Returns true if the results have the dtypes and shapes of the first sample's, after a batch if
-- `batched`.
local function fits(self, got, want, batched)
  if #got < #want then return false end
  for k = 1, #want do
    local is, as = inspect(got[k]), self:facts(want[k])
    local skip = batched and 1 or 0
    if is.dtype ~= as.dtype or is.ndim ~= as.ndim + skip then return false end
    if batched and is.shape[1] ~= self.size then return false end
    for d = 1, as.ndim do
      if is.shape[d + skip] ~= as.shape[d] then return false end
    end
  end
  return true
end

-- The logged call with the values that are equal for all samples.
local function again(self, entry)
  local slots, anchors = self:slots_of(entry, function(x) return self:value(x) end)
  local got = self:invoke(entry.meta, slots)
  if not got or not fits(self, got, entry.results, false) or not anchors then stop() end
  return got
end

-- Calls the op for each sample and stacks the results.
local function each(self, entry)
  local meta = entry.meta
  if entry.writes or meta.mutates or rules.keeps_state(entry, meta) then stop() end
  local columns, rows = {}, {}
  for k = 1, entry.nin do
    local x = entry.tensors[k]
    local y = x and self:batched(x)
    if y then rows[x._slot] = ops.unbind(y, 1) end
  end
  for i = 1, self.size do
    local slots, anchors = self:slots_of(entry, function(x)
      local list = rows[x._slot]
      return list and list[i] or self:value(x)
    end)
    local got = self:invoke(meta, slots)
    if not got or not fits(self, got, entry.results, false) or not anchors then stop() end
    for k = 1, #entry.results do
      columns[k] = columns[k] or {}
      columns[k][i] = got[k]
    end
  end
  for k = 1, #columns do columns[k] = ops.stack(columns[k], 1) end
  return columns
end

local function by_rule(self, entry)
  local meta = entry.meta
  if meta.rule == nil then meta.rule = rules.find(meta) or false end
  if not meta.rule then return nil end
  local ok, got = pcall(meta.rule, self, entry, meta)
  if not ok then
    if got == STOP or errors.code() == "E_INTERRUPT" then error(got, 0) end
    return nil
  end
  if got and not fits(self, got, entry.results, true) then
    if entry.writes then stop() end
    return nil
  end
  return got
end

-- Stops the replay if a written storage has a view whose batched form is a copy.
local function check_views(self, entry, got)
  if next(self.written) == nil or entry.writes then return end
  for k, y in ipairs(entry.results) do
    local storage = self:facts(y).storage
    if self.written[storage] then
      for i = 1, entry.nin do
        local x = entry.tensors[i]
        if x and self:facts(x).storage == storage
           and inspect(self:value(x)).storage ~= inspect(got[k]).storage then
          stop()
        end
      end
    end
  end
end

local function keep(self, entry, got)
  for k, y in ipairs(entry.results) do self.values[y._slot] = got[k] end
end

-- Gives tensors that do not depend on the sample a value for each sample.
local function copies(self, list)
  local out = {}
  for k, y in ipairs(list) do
    local expanded = ops.expand(y, {self.size, unpack(inspect(y).shape)})
    out[k] = ops.clone(expanded, {memory_format = "contiguous_format"})
  end
  return out
end

-- relu{x, inplace = true} is relu_. A call with another `out` cannot be replayed.
local function in_place(entry)
  local op = C.moth_op_find(entry.meta.name .. "_")
  if entry.results[1] ~= entry.tensors[1] or op == nil then stop() end
  entry.meta = log.meta(op)
end

local function run_op(self, entry)
  if entry.writes and not entry.meta.mutates then in_place(entry) end
  local meta, depends = entry.meta, false
  for k = 1, entry.nin do
    local x = entry.tensors[k]
    if x and not self.numbers[x._slot] then
      check_origin(self, x)
      depends = depends or self.values[x._slot] ~= nil
    end
  end
  if meta.random and rules.has_generator(entry, meta) then stop() end
  local drawn = meta.random and self.draws
  if drawn and self.randomness == "same" and depends and not rules.like(meta) then stop() end
  if drawn and self.randomness == "different" then depends = true end
  if drawn and self.randomness == "same" then depends = false end
  if not depends then
    local needed, written = false, entry.writes
    for _, y in ipairs(entry.results) do
      needed = needed or self.needed[y._slot]
      written = written or self.written[self:facts(y).storage]
    end
    if not (needed or written) then return end -- all samples have the first sample's results
    if written and (entry.writes or meta.view) then stop() end
    keep(self, entry, copies(self, again(self, entry)))
    return
  end
  if entry.writes and not self:batched(entry.results[1]) then stop() end
  local got = by_rule(self, entry) or each(self, entry)
  check_views(self, entry, got)
  keep(self, entry, got)
end

-- ---- other events ----

local function run_detach(self, entry)
  local x, y = entry.tensors[1], entry.tensors[2]
  check_origin(self, x)
  local own = self:batched(x)
  if own or self.needed[y._slot] then
    self.values[y._slot] = (own or self:whole(x)):detach()
  end
end

local function run_requires(self, entry)
  local x = entry.tensors[1]
  check_origin(self, x)
  local own = self:batched(x)
  if own then own:requires_grad_(entry.writes) end
end

-- Makes a separate value of a differentiated tensor for each sample, so that gradients stay
-- separate.
local function separate(self, x)
  check_origin(self, x)
  return self:batched(x) or stop()
end

local function run_grad(self, entry)
  local options, outputs, inputs, grads = entry.options, {}, {}, {}
  for i, x in ipairs(entry.inputs) do inputs[i] = separate(self, x) end
  local batched = options.is_grads_batched
  for i, y in ipairs(entry.outputs) do
    check_origin(self, y)
    outputs[i] = self:whole(y)
    local g = options.grad_outputs and options.grad_outputs[i]
    if g == nil or g == lib.none then
      if batched then stop() end
      grads[i] = ops.ones_like(outputs[i])
    else
      check_origin(self, g)
      grads[i] = self:whole(g)
      if batched then grads[i] = ops.movedim(grads[i], 2, 1) end
    end
  end
  local got = {autograd.grad(outputs, inputs, {grad_outputs = grads,
    retain_graph = options.retain_graph, create_graph = options.create_graph, allow_unused = true,
    is_grads_batched = batched, materialize_grads = options.materialize_grads})}
  for i = 1, #entry.inputs do
    local as, is = entry.results[i], got[i]
    if (as == nil) ~= (is == nil) then stop() end
    if as ~= nil then
      if batched then is = ops.movedim(is, 2, 1) end
      if not fits(self, {is}, {as}, true) then stop() end
      self.values[as._slot] = is
    end
  end
end

local RUN = {
  op = run_op, detach = run_detach, requires = run_requires, grad = run_grad,
  other = function() end, -- in a backward pass: its own start
  data = function(self, entry)
    local x = entry.tensors[1]
    if self.needed[x._slot] then self.values[x._slot] = self:whole(x):detach() end
  end,
  read = function(self, entry)
    local x = entry.tensors[1]
    check_origin(self, x)
    if self:batched(x) then stop() end
  end,
}

-- ---- the replay ----

local function run(self, entries, inputs, outputs)
  survey(self, entries, inputs)
  check_versions(self, entries)
  for _, entry in ipairs(entries) do
    if entry.event == "op" or entry.event == "grad" then
      in_mode(self, entry.recorded, RUN[entry.event], self, entry)
    else
      RUN[entry.event](self, entry)
    end
  end
  local list = {}
  for i, y in ipairs(outputs) do
    check_origin(self, y)
    local own = self:batched(y)
    if own and self.mode and inspect(own).requires ~= self:facts(y).requires then
      stop()
    end
    list[i] = own or false
  end
  return list
end

local replay = {}

--- Runs entries for a batch.
-- @param task  {size =, entries =, inputs = the first sample's tensors, values = the batch's
-- tensors (batch first), outputs = requested tensors, first = the id of a storage created just
-- before, randomness =, draws = true if random numbers were drawn, pass = true for a backward
-- pass}
-- @return for each output its batch value, or false if it equals the first sample's for all
-- samples; nil if the log cannot be replayed
function replay.run(task)
  local self = setmetatable({size = task.size, known = {}, values = {}, numbers = {},
    first = task.first, randomness = task.randomness, draws = task.draws,
    out = lib.handles(RESULTS), slots = lib.slots(SLOTS), mode = C.moth_grad_mode(ctx, -1) == 1,
    pass = task.pass}, Replay)
  for i, x in ipairs(task.inputs) do self.values[x._slot] = task.values[i] end
  if task.pass then
    for _, entry in ipairs(task.entries) do entry.recorded = self.mode end
  end
  local ok, result = pcall(run, self, task.entries, task.inputs, task.outputs)
  if ok then return result end
  if result == STOP then return nil end
  error(result, 0)
end

return replay
