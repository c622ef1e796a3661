--- init.lua -- moth.capture: a step that runs once and is then replayed as one call of C.
--
--     local step = moth.capture(function(x, y)
--       optimizer:zero_grad()
--       local loss = F.cross_entropy(net(x), y)
--       loss:backward()
--       optimizer:step()
--       return loss
--     end)
--     for x, y in loader do total = total + step(x, y):item() end
--
-- A step stores a few recordings (recording.lua). It replays the recording that fits the
-- arguments, and records again if none fits.

local ffi = require "ffi"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local recording = require "moth.capture.recording"

local C, ctx = lib.C, lib.ctx

lib.declare "capture"

local STALE, WANT, PAUSED = C.MOTH_CAPTURE_STALE, C.MOTH_WANT, C.MOTH_E_PAUSED
local MAX_RECORDINGS = 8  -- recordings stored for one step
local MAX_EMPTY = 3 -- runs in a row without a recording

local capture = {}

-- ---- steps ----

local Step = {}
Step.__index = Step

local function add(self, r)
  table.insert(self.list, 1, r)
  self.last = r
  self.made = self.made + 1
  while #self.list > MAX_RECORDINGS do
    recording.free(table.remove(self.list))
  end
end

local function give(results)
  local list = results.template and recording.fresh(results.template) or results
  return unpack(list, 1, results.n)
end

local function prune(self)
  for i = #self.list, 1, -1 do
    local r = self.list[i]
    if not recording.has_results(r) then
      recording.free(table.remove(self.list, i))
      if self.last == r then self.last = nil end
    end
  end
end

local there_out, here_out = ffi.new "int32_t[1]", ffi.new "int32_t[1]"

-- The number of CUDA graphs of a recording, of its ops on a GPU, and of its other ops.
local function graphs_of(r)
  if not r then return 0, 0, 0 end
  local graphs = C.moth_capture_graphs(ctx, r.id, there_out, here_out)
  if graphs < 0 then errors.status(graphs, "capture") end
  return graphs, there_out[0], here_out[0]
end

local function check_gpu(r)
  local graphs, there = graphs_of(r)
  if graphs + there > 0 then return end
  recording.free(r)
  errors.raise("moth.cuda.graph is for steps that run on a GPU, and this one has no GPU op; move "
    .. "its modules and inputs there, as with net:to('cuda'), or use moth.capture", "E_DEVICE")
end

-- The reason for another recording of a recorded step.
local function why_again(self, ...)
  if self.made == 0 then return nil end
  local why, furthest = "the results of its calls were freed, which ends a recording", 0
  for _, r in ipairs(self.list) do
    local reason, fits = require("moth.capture.explain")(r, select("#", ...), ...)
    if fits > furthest then why, furthest = reason, fits end
  end
  return why
end

local function warn(why)
  require("moth").warn(("this captured step was recorded for the %dth time, and the last %d "
    .. "recordings are kept: where most calls record, it is slower than its function; this time %s")
    :format(MAX_RECORDINGS + 1, MAX_RECORDINGS, why))
end

-- Raises: each run starts from another state. `changed`: the name of a value that it reads and
-- sets.
local function refuse_changed(self, changed)
  local text = ("the captured function changed its initial state in each of %d runs (%s), so no "
    .. "recording of it can be replayed"):format(self.empty, changed
    and ("'%s', which it also reads: in a replay it would be a constant"):format(changed)
    or "an optimizer's state made again?")
  if changed then self.left, self.wrong = math.huge, text end -- each further call raises it
  errors.raise(text, "E_STATE")
end

-- Runs and records the step; no recording fits.
local function run_and_record(self, ...)
  local why = why_again(self, ...)
  local results, r, expected, changed = recording.record(self.fn, ...)
  if r and self.gpu then check_gpu(r) end
  if r then
    add(self, r)
    self.empty, self.why = 0, why
    if self.made == MAX_RECORDINGS + 1 then warn(why) end
  elseif not expected then
    self.empty = self.empty + 1
    if self.empty >= MAX_EMPTY then refuse_changed(self, changed) end
  end
  return give(results)
end

-- Repeats a replay that a slice of moth.budget has paused. Returns its status.
local function resume(r, ...)
  local status
  repeat
    lib.pause()
    status = r.run(true, select("#", ...), ...)
  until status ~= PAUSED
  return status
end

-- Tries the older recordings; the one that fits becomes the last.
local function others(self, ...)
  for i = 1, #self.list do
    local r = self.list[i]
    local status = r ~= self.last and r.run(true, select("#", ...), ...) or STALE
    if status == PAUSED then status = resume(r, ...) end
    if status ~= STALE then
      self.last = r
      table.insert(self.list, 1, table.remove(self.list, i))
      return status, r
    end
  end
  return STALE
end

local verified -- below

local function slow(self, status, ...)
  if self.freed then errors.raise("this captured step was freed", "E_STATE") end
  local r = self.last
  if status == STALE then
    prune(self)
    status, r = others(self, ...)
    if status == STALE then return run_and_record(self, ...) end
  end
  if status == WANT then
    lib.due()
  elseif status < 0 then
    local op = ffi.string(C.moth_error_op(ctx))
    errors.status(status, require("moth.binding.registry").public_name(op))
  end
  return give(r.results)
end

local function run(self, ...)
  local r = self.last
  local status = STALE
  if r then
    status = r.run(true, select("#", ...), ...)
    if status == 0 then
      local results = r.results
      if results.one then return results[1] end
      return give(results)
    end
    if status == PAUSED then status = resume(r, ...) end
  end
  return slow(self, status, ...)
end

--- Runs the step.
-- @param ...  tensors, and plain tables of tensors, nested or not; numbers, strings and booleans
-- are constants of a recording
-- @return the results of fn from its recording, in new tables; their tensors hold this run's
-- values
function Step:__call(...)
  if self.left > 0 then return verified(self, ...) end
  return run(self, ...)
end

--- Frees the recordings. The step cannot be called any more.
function Step:free()
  for _, r in ipairs(self.list) do recording.free(r) end
  self.list, self.last, self.freed = {}, nil, true
  self.left, self.wrong = 0, nil
end

local function count(n, what) return ("%d %s%s"):format(n, what, n == 1 and "" or "s") end

--- "captured step (1 recording)", or "(8 recordings, 20 made)" if old ones were dropped, and the
-- reason of the last recording (step.why); for a GPU also the numbers of graphs and ops.
function Step:__tostring()
  local text = count(#self.list, "recording")
  if self.made > #self.list then text = text .. ", " .. self.made .. " made" end
  local graphs, there, here = graphs_of(self.last)
  if graphs > 0 then
    text = text .. "; a call is " .. count(graphs, "graph")
    if there > 0 then text = text .. ", " .. count(there, "op") .. " on the GPU" end
    if here > 0 then text = text .. ", " .. count(here, "op") .. " on the CPU" end
  end
  if self.why then text = text .. "; the last since " .. self.why end
  return "captured step (" .. text .. ")"
end

-- ---- verification ----

-- The bytes of all tensors among the results, as one list of strings.
local function bytes_of(results)
  local list = {}
  recording.each_tensor(results, results.n, function(t, key)
    local x = t[key]
    local size = x:numel() * tonumber(lib.inspect(x).itemsize)
    local buffer = lib.array("uint8_t", math.max(size, 1))
    lib.check(C.moth_bytes(ctx, x, buffer, size), "capture")
    list[#list + 1] = ffi.string(buffer, size)
  end)
  return list
end

-- The numbers in the optimizers' states and in tables that functions among them return: rows of
-- table, key and value, to restore them.
local function numbers_of(r)
  local list = {}
  for state in pairs(r.states) do
    if type(state) == "function" then
      for _, row in ipairs(state()) do list[#list + 1] = row end
    else
      for _, own in pairs(state) do
        for name, value in pairs(type(own) == "table" and own or {}) do
          if type(value) == "number" then list[#list + 1] = {own, name, value} end
        end
      end
    end
  end
  return list
end

local WHAT = {
  [C.MOTH_CAPTURE_VALUE] = "a tensor that the step changes",
  [C.MOTH_CAPTURE_GRADIENT] = "a gradient",
  [C.MOTH_CAPTURE_RANDOM] = "the state of the random numbers",
}

local function compare(self, r, eager)
  local differs = C.moth_capture_differs(ctx, r.id)
  if differs < 0 then errors.status(differs, "capture") end
  local what = WHAT[differs]
  local own = bytes_of(r.results)
  for i = 1, math.max(#own, #eager) do
    if own[i] ~= eager[i] then what = "result " .. i end
  end
  if not what then return end
  self.left = math.huge -- each further call raises it
  self.wrong = what .. " differs between a replay and the step itself: a constant of the "
    .. "recording (a Lua number, a branch) has changed"
  errors.raise(self.wrong, "E_STATE")
end

-- The recording that fits the call, or nil.
local function fitting(self, ...)
  local last = self.last
  if last and last.run(false, select("#", ...), ...) == 0 then return last end
  for i, r in ipairs(self.list) do
    if r ~= last and r.run(false, select("#", ...), ...) == 0 then
      self.last = r
      table.insert(self.list, 1, table.remove(self.list, i))
      return r
    end
  end
end

-- Restores numbers of tables; the rows then have the replaced numbers.
local function swap_numbers(rows)
  for _, row in ipairs(rows) do row[1][row[2]], row[3] = row[3], row[1][row[2]] end
end

-- Runs the step itself, undoes it, replays it, and compares. Lua assignments of the step are
-- undone too: a replay assigns nothing.
local function compare_replay(self, ...)
  if self.wrong then errors.raise(self.wrong, "E_STATE") end
  if lib.profile then return run(self, ...) end -- a profile shows only replays
  local n, r = select("#", ...), fitting(self, ...)
  if not r then return slow(self, STALE, ...) end
  local graphs, there = graphs_of(r)
  if graphs + there > 0 then
    if not self.verify_given then -- a GPU's libraries may return other last bits in each run
      self.left = 0
      return run(self, ...)
    end
    require("moth").cuda.synchronize() -- the step does not wait for replays on another stream
  end
  lib.check(C.moth_capture_keep(ctx, r.id), "capture")
  local rewind = require "moth.capture.undo"
  local numbers, saved = numbers_of(r), rewind.save(r.outside)
  local inputs = recording.own_inputs({...}, n)
  lib.verifying = true -- optimizers that draw extra numbers during a recording draw them here too
  local ok, results = recording.run(self.fn, inputs, n)
  lib.verifying = nil
  lib.check(C.moth_capture_swap(ctx, r.id), "capture")
  local after = rewind.restore(saved)
  swap_numbers(numbers)
  if not ok then error(results, 0) end
  local status = r.run(true, n, ...)
  if status == PAUSED then status = resume(r, ...) end
  if status == STALE then -- the step's own run counts
    lib.check(C.moth_capture_swap(ctx, r.id), "capture")
    rewind.restore(after)
    swap_numbers(numbers)
    C.moth_capture_differs(ctx, r.id) -- clears the saved state
    recording.each_tensor(results, results.n, function(t, key) t[key] = t[key]:detach() end)
    return unpack(results, 1, results.n)
  end
  if status < 0 then return slow(self, status, ...) end
  self.left = self.left - 1
  compare(self, r, bytes_of(results))
  if status == WANT then lib.due() end
  return give(r.results)
end

local function release(ok, ...)
  lib.hold(0)
  if not ok then error((...), 0) end
  return ...
end

-- A slice of moth.budget does not pause in a comparison: the host would change what is compared.
verified = function(self, ...)
  if not lib.hold then return compare_replay(self, ...) end
  lib.hold(1)
  return release(pcall(compare_replay, self, ...))
end

-- ---- moth.capture ----

local ARGS = {
  {"function", "fn", "the step: tensors in, tensors out"},
  {"int", "verify", "number of replays that are compared with the step itself; default 2, or 0 for "
    .. "a step that runs on a GPU", optional = true},
}
local parse = define.signature("capture", ARGS)

-- gpu: true if some ops must run on a GPU
local function step_of(fname, gpu, fn, verify)
  if verify and verify < 0 then
    errors.argument(fname, "verify", "a number from 0 on is needed, got " .. verify, "E_DOMAIN")
  end
  return setmetatable({fn = fn, left = verify or gpu and 0 or 2, verify_given = verify ~= nil,
    list = {},
    made = 0, empty = 0, gpu = gpu}, Step)
end

--- Records a training or inference step at its first call, and replays it as one call of the core
-- later: a replay looks up, allocates and records nothing.
--
-- The arguments of fn are its inputs. They are copied, so a step that changes an input in place
-- does not change the caller's tensor. Arguments and results may be plain tables of tensors, as
-- batches often are; fn and the caller get new tables at each call. A tensor that is passed twice
-- is two tensors in fn: an in-place change of one does not change the other. Each replay
-- overwrites the tensors that fn returned; they have no history.
-- Learning rates and other options of Moth's optimizers, their step counts, decisions of a
-- GradScaler, and random numbers continue as in an ordinary step. Every other number, string,
-- boolean and branch of fn is a constant of the recording. Tensors that fn creates and does not
-- return are freed, as in moth.scope.
--
-- Moth watches the values that fn reads from outside. If one changes, fn runs and is recorded
-- again: variables and globals of any type, also nil; fields of tables, objects and modules that
-- fn names, present or not, at any depth; metatables and their metamethods; all entries of a table
-- that is passed to a function, and of an object that rawget, next or pairs may read; lists and
-- their lengths; and the values that functions among these read.
-- fn is also recorded again for: other shapes or dtypes of the inputs, or other keys of their
-- tables; another `training` or another field of a module that ran or of its submodules; other
-- hooks; parameters with other storage, replaced, or computed now (prune, weight_norm); another
-- grad mode; other gradients if fn reads them before its backward pass.
-- The last 8 recordings are stored, and a ninth prints a warning. `tostring(step)` counts them,
-- and `step.why` is the reason of the last one. The first runs of an optimizer that create its
-- state are not stored.
--
-- Some values cannot be watched and raise when the step is recorded: coroutines, C data, userdata
-- with a metatable (except files), tables of more than 20,000 values. A tensor that fn reads and
-- then replaces raises too (`e = e * 0.5 + x`: write `e:copy_(e * 0.5 + x)`), and after three runs
-- any other value that fn reads and changes in each run. `n = n + 1` and `log[#log + 1] = name`
-- are allowed if nothing else reads `n` or `log`: a replay does not run them.
--
-- On a GPU, consecutive ops become CUDA graphs, each started by one call. Copies from and to the
-- CPU, and ops that wait for the GPU, run between the graphs; fewer than 4 consecutive launches
-- remain separate ops. `tostring(step)` counts the graphs, if there are any.
--
-- Functions written in Lua and hooks of modules and tensors run while the step is recorded.
-- Replays run only their ops.
--
-- These raise while the step is recorded: reading values (`item`, `tolist`, print), results whose
-- shape depends on values (nonzero, a mask as index; sparse gradients except in SGD's steps),
-- hooks of optimizers, schedules, seeding, BatchNorm with `momentum = moth.none`,
-- `scaler:update(new_scale)`, scaling after an update.
-- @param fn      the step
-- @param verify  the number of first replays that are compared, bit for bit, with the step itself,
-- which runs on the same state and is undone. If they differ, this call and all later calls raise
-- (default 2; 0 on a GPU, whose libraries may return other last bits)
-- @return the step: call it like fn; `:free()` frees its recordings
function capture.capture(...)
  return (step_of("capture", false, parse(...)))
end

define.takes(capture.capture, parse)

local parse_graph = define.signature("graph", ARGS)

--- moth.cuda.graph; its documentation is in device.lua.
function capture.graph(...)
  local device = require "moth.tensor.device"
  local fn, verify = parse_graph(...)
  if device.gpus() == 0 then
    errors.raise("moth.cuda.graph: " .. device.missing "cuda", "E_DEVICE")
  end
  return (step_of("graph", true, fn, verify))
end

return capture
