--- init.lua -- moth.profiler: records ops, their counts, times and memory.
--
--     local prof = moth.profiler.profile(function()
--       for _ = 1, 10 do train_step() end
--     end)
--     print(prof)                                  -- the ops by the time that they took
--     prof:export_chrome_trace("trace.json")       -- for ui.perfetto.dev or chrome://tracing
--
-- The core records the events (core/capture/profile.c), so that compiled loops, backward passes
-- and replays of captured steps are included. The Lua side adds names of ranges and modules, the
-- user's source lines, and the reports (averages.lua, trace.lua).

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local ffi = require "ffi"
local calls = require "moth.binding.calls"
local lazy = require "moth.base.lazy"
local lib = require "moth.binding.lib"

local C, ctx = lib.C, lib.ctx

lib.declare "profile"

local RANGE = tonumber(C.MOTH_EVENT_RANGE)
local MODULE = RANGE + 1

local profiler = {}

-- ---- the active profile ----

-- lib.profile: its Lua side, or nil. Only the function that runs the profile holds it, so the
-- profile of a dropped coroutine ends with the next collection.

local current = setmetatable({}, {__mode = "v"})
local info = ffi.new "moth_profile_info"

-- The number of an interned text; 0 means no text.
local function number_of(list, text)
  local n = list[text]
  if not n then
    n = #list + 1
    list[n], list[text] = text, n
  end
  return n
end

local function line_of(state) return number_of(state.lines, errors.where() or "?") end

-- Passes the source line of the last call to the core. (After each call, by lib.due.)
local function note_line() C.moth_profile_line(ctx, line_of(lib.profile)) end

local function sight() return require("moth.nn.module").sight end

-- Ends the active profile. Returns a status: the profile has ended even if the status is an error.
local function finish()
  if lib.profile.with_modules then sight().profile(nil) end
  lib.profile, lib.note_line, current[1] = nil, nil, nil
  return (C.moth_profile_stop(ctx, info))
end

function lib.on_sweep.profiler()
  if lib.profile and not current[1] then finish() end
end

-- ---- ranges ----

local function finish_range(range, ok, ...)
  C.moth_profile_end(ctx, range)
  if not ok then error((...), 0) end
  return ...
end

-- Runs run(...) inside a range of that kind.
local function within(kind, name, run, ...)
  local state = lib.profile
  local line = state.with_stack and line_of(state) or 0
  local range = C.moth_profile_begin(ctx, kind, number_of(state.names, name), line)
  return finish_range(range, pcall(run, ...))
end

--- For functions of Moth's own, if lib.profile is set: calls run(...) as a range of that name.
function profiler.within(name, run, ...) return within(RANGE, name, run, ...) end

local parse_range = define.signature("record_function", {
  {"string", "name", "the name of the range"},
  {"function", "f", "the function that runs in the range"},
})

--- Calls f(...) and returns its results. In an active profile the call is an event of this name,
-- and events that run inside are nested. Without a profile there is no overhead. (As
-- torch.profiler.record_function, whose `with` is a function here.) Replays of a captured step
-- run none of its Lua, so that ranges within the step have no events: put the range around the
-- call of the step.
-- @param name  the name of the range
-- @param f     a function
-- @param ...   its arguments
function profiler.record_function(name, f, ...)
  if type(name) ~= "string" or not calls.is_callable(f) then name, f = parse_range(name, f) end
  if lib.profile then return within(RANGE, name, f, ...) end
  return finish_range(0, true, f(...))
end

define.takes(profiler.record_function, parse_range)

-- ---- modules ----

-- "Net", or "Net 2" for the second root module of that class.
local function root_of(state, module)
  local name = state.roots[module]
  if not name then
    name = class.typename(module)
    local n = (state.counts[name] or 0) + 1
    state.counts[name] = n
    if n > 1 then name = name .. " " .. n end
    state.roots[module] = name
  end
  return name
end

-- "Net.layers[1]": the path from the running module.
local function path_of(state, module)
  local outer = state.module
  if not outer then return root_of(state, module) end
  local known = state.paths[state.path] or {}
  state.paths[state.path] = known
  if not known[module] then
    known[module] = state.path .. (sight().way(outer, module) or " > " .. class.typename(module))
  end
  return known[module]
end

local function leave_module(state, outer, path, ok, ...)
  state.module, state.path = outer, path
  if not ok then error((...), 0) end
  return ...
end

-- Runs a module's call as a range; for nn/module/call.lua.
local function in_module(run, module, ...)
  local state = lib.profile
  local outer, path = state.module, state.path
  local here = path_of(state, module)
  state.module, state.path = module, here
  return leave_module(state, outer, path, pcall(within, MODULE, here, run, module, ...))
end

-- ---- profiles ----

local Profile = class("profile")
profiler.profile = Profile

local ACTIVITIES = {cpu = true, cuda = true}

local function check_activities(list)
  if list == nil then return {cpu = true, cuda = true} end
  local set = {}
  local plain = lib.is_plain(list)
  for _, name in ipairs(plain and list or {}) do
    if not ACTIVITIES[name] then plain = false else set[name] = true end
  end
  if not plain or next(set) == nil then
    errors.argument("profile", "activities", 'a list of "cpu" and "cuda" is needed, got '
      .. errors.describe(list), "E_TYPE")
  end
  local moth = require "moth"
  if set.cuda and not moth.cuda.is_available() then
    moth.warn "profile: there is no GPU here, so the activity 'cuda' records nothing"
  end
  return set
end

Profile.signature = define.signature("profile", {
  {"function", "fn", "the function to profile; without it: see :start()", optional = true},
  {"any", "activities", 'a list of "cpu" and "cuda"; both, if there is a GPU',
   optional = true},
  {"bool", "record_shapes", "record the shapes of each op's tensors?", default = false},
  {"bool", "profile_memory", "show bytes in tables?", default = false},
  {"bool", "with_stack", "record the line of Lua that called each op?", default = false},
  {"bool", "with_modules", "record calls of modules?", default = false},
  {"int", "max_events", "how many events are stored; others are counted", default = 1000000},
  {"function", "schedule", "selects the profiled steps: moth.profiler.schedule{...}; see :step()",
   optional = true},
  {"function", "on_trace_ready", "called with the profile after each series of profiled steps",
   optional = true},
})

local function run_on(self, ok, problem)
  local ended, late = pcall(self.stop, self)
  if not ok then error(problem, 0) end
  if not ended then error(late, 0) end
end

--- Runs fn and records each op: ops called from Lua, nested ops, backward passes and replays of
-- captured steps. In a replay the instructions of the recording are the events, and a CUDA graph
-- is one event. Printing a profile shows the ops sorted by time; key_averages and events return
-- the figures. An error in fn ends the profile and is raised again.
--
-- Without fn, call `:start()` and `:stop()`. Only one profile is active at a time.
--
-- The profiler does not synchronize GPUs: CUDA events measure when each op's kernels began and
-- ended and are read when the profile ends. For a short op they include the launch time.
--
-- Recording an op reads the clock twice, some 0.1 us; with_stack takes 10 us, and LuaJIT does not
-- compile code that calls ops while it is on.
-- @param fn              the function to profile; its results are dropped
-- @param activities      a list of "cpu" and "cuda" (default: both, if there is a GPU)
-- @param record_shapes   record the shapes of each op's tensors? (default false)
-- @param profile_memory  show bytes in tables? (default false)
-- @param with_stack      record the line of Lua that called each op? (default false)
-- @param with_modules    record calls of modules, by their paths? (default false)
-- @param max_events      the maximal number of stored events; later ones are only counted
-- (default 1000000)
-- @param schedule        selects the profiled steps; fn, which gets the profile, calls
-- prof:step()
-- @param on_trace_ready  called with the profile after each series of profiled steps
-- @return the profile; after its end it has the fields time (microseconds), peak_bytes, dropped
function Profile:init(fn, activities, record_shapes, profile_memory, with_stack, with_modules,
                      max_events, schedule, on_trace_ready)
  if max_events < 1 then
    errors.argument("profile", "max_events", "a number from 1 on is needed, got " .. max_events,
      "E_DOMAIN")
  end
  self.activities = check_activities(activities)
  self.record_shapes, self.profile_memory = record_shapes, profile_memory
  self.with_stack, self.with_modules, self.max_events = with_stack, with_modules, max_events
  self.schedule, self.on_trace_ready, self.step_num = schedule, on_trace_ready, 0
  if fn ~= nil then
    self:start()
    run_on(self, pcall(fn, self))
  end
end

local function refuse_second()
  if lib.profile then lib.collect(true) -- a profile without references ends here
  else C.moth_profile_stop(ctx, nil) end -- `begin` may have raised
  if lib.profile then
    errors.raise("a profile is already active, started at " .. lib.profile.begun
      .. "; profiles do not nest: mark parts with moth.profiler.record_function", "E_STATE")
  end
end

-- Starts recording. Events of an earlier run are deleted.
local function begin(self)
  refuse_second()
  local flags = (self.record_shapes and C.MOTH_PROFILE_SHAPES or 0)
    + (self.activities.cuda and C.MOTH_PROFILE_DEVICES or 0)
    + (self.with_stack and C.MOTH_PROFILE_LINES or 0)
  lib.check(C.moth_profile_start(ctx, flags, self.max_events), "profile")
  local state = {begun = errors.where() or "?", names = {}, lines = {}, roots = {}, counts = {},
                 paths = {}, with_stack = self.with_stack, with_modules = self.with_modules}
  self.state, self.recorded, self.time = state, nil, nil
  lib.profile, current[1] = state, self
  lib.note_line = self.with_stack and note_line or nil
  if self.with_modules then sight().profile(in_module) end
end

-- Ends the recording and waits for GPUs. Deferred errors are raised here.
local function end_recording(self)
  self.state = nil
  local state = lib.profile
  local status = finish()
  local n, nsizes = tonumber(info.events), tonumber(info.sizes)
  local recorded = {n = n, names = state.names, lines = state.lines, module = MODULE,
                 at = lib.array("moth_profile_event", math.max(n, 1)),
                 sizes = lib.int64s(math.max(nsizes, 1))}
  self.time, self.dropped = info.time, tonumber(info.dropped)
  self.peak_bytes = tonumber(info.peak_bytes)
  local _, late = pcall(lib.check, status, "profile")
  lib.check(C.moth_profile_take(ctx, recorded.at, recorded.sizes), "profile")
  self.recorded = recorded
  if status < 0 then error(late, 0) end
end

-- ---- steps ----

--- The action of a schedule for a step.
profiler.ProfilerAction = {NONE = "NONE", WARMUP = "WARMUP", RECORD = "RECORD",
                    RECORD_AND_SAVE = "RECORD_AND_SAVE"}

local RECORDS = {RECORD = true, RECORD_AND_SAVE = true}

local function action_of(self)
  if not self.schedule then return "RECORD" end
  local action = self.schedule(self.step_num)
  if not profiler.ProfilerAction[action] then
    errors.raise(("the schedule of a profile returns one of moth.profiler.ProfilerAction, got %s "
      .. "for step %d"):format(errors.describe(action), self.step_num), "E_TYPE")
  end
  return action
end

-- Switches from the last step's action to the next step's action (nil: there is no next step).
local function change(self, before, after)
  if self.range and lib.profile == self.state then C.moth_profile_end(ctx, self.range) end
  self.range = nil
  local saves = before == "RECORD_AND_SAVE" or RECORDS[before] and not after
  if RECORDS[before] and (saves or not RECORDS[after]) then
    end_recording(self)
    if saves and self.on_trace_ready then self.on_trace_ready(self) end
  end
  if RECORDS[after] and not self.state then begin(self) end
  if self.schedule and RECORDS[after] then
    local name = "ProfilerStep#" .. self.step_num
    self.range = C.moth_profile_begin(ctx, RANGE, number_of(self.state.names, name), 0)
  end
  self.action = after
end

local function require_started(self, fname)
  if not self.action or self.state and lib.profile ~= self.state then
    errors.raise(fname .. ": this profile is not active; start it with :start()", "E_STATE")
  end
end

--- Starts recording or, with a schedule, starts step 0. Events of an earlier run are deleted.
-- @return the profile
function Profile:start()
  self.step_num = 0
  change(self, nil, action_of(self))
  return self
end

--- Ends a step and starts the next one. With a schedule, only some of the steps are recorded.
-- After each series of recorded steps on_trace_ready(prof) is called, and key_averages and events
-- refer to that series. (As torch.profiler.profile.step.)
function Profile:step()
  require_started(self, "step")
  self.step_num = self.step_num + 1
  change(self, self.action, action_of(self))
end

--- Ends the profile and waits for GPUs. Deferred errors are raised here.
-- @return the profile
function Profile:stop()
  require_started(self, "stop")
  local before = self.action
  self.action = nil
  change(self, before, nil)
  return self
end

local parse_schedule = define.signature("schedule", {
  {"int", "wait", "steps without recording at the start of a cycle"},
  {"int", "warmup", "further steps without recording"},
  {"int", "active", "recorded steps"},
  {"int", "repeat", "the number of cycles; 0: until the end", default = 0},
  {"int", "skip_first", "steps before the first cycle", default = 0},
  {"int", "skip_first_wait", "not 0: the first cycle has no wait", default = 0},
})

--- moth.profiler.schedule{wait = 1, warmup = 1, active = 3}: which steps a profile records, for its
-- argument `schedule`. Steps count from 0. (As torch.profiler.schedule.)
-- @param wait             steps without recording at the start of a cycle
-- @param warmup           further steps without recording
-- @param active           recorded steps, which end a cycle
-- @param repeat           the number of cycles; 0: until the end
-- @param skip_first       steps before the first cycle
-- @param skip_first_wait  not 0: the first cycle has no wait
-- @return function(step) -> a ProfilerAction
function profiler.schedule(...)
  local wait, warmup, active, cycles, skip, early = parse_schedule(...)
  local least = {wait = 0, warmup = 0, active = 1, ["repeat"] = 0, skip_first = 0}
  for name, value in pairs {wait = wait, warmup = warmup, active = active, ["repeat"] = cycles,
                            skip_first = skip} do
    if value < least[name] then
      errors.argument("schedule", name, ("a number from %d is needed, got %d"):format(least[name],
        value), "E_DOMAIN")
    end
  end
  local length = wait + warmup + active
  return function(step)
    if step < skip then return "NONE" end
    step = step - skip + (early ~= 0 and wait or 0)
    if cycles > 0 and step >= cycles * length then return "NONE" end
    step = step % length
    if step < wait then return "NONE" end
    if step < wait + warmup then return "WARMUP" end
    return step < length - 1 and "RECORD" or "RECORD_AND_SAVE"
  end
end

define.takes(profiler.schedule, parse_schedule)

-- The events, if there are any.
local function recorded_of(self, fname)
  if not self.recorded then
    errors.raise(fname .. ": the profile has not ended; call :stop() first", "E_STATE")
  end
  return self.recorded
end

local parse_averages = define.signature("key_averages", {
  {"bool", "group_by_input_shape", "a row for each op and shapes of its tensors?",
   default = false},
  {"int", "group_by_stack_n", "above 0: a row for each op and line of Lua", default = 0},
  {"enum", "group_by", "the subject of a row", choices = {"op", "module", "line"}},
})

--- Computes averages: a list of rows with the fields key, count, cpu_time_total,
-- self_cpu_time_total (without nested events), cpu_time (of one call), cpu_memory_usage,
-- self_cpu_memory_usage, the same with `device` for `cpu`, kind (as in events), input_shapes and
-- line. Times are in microseconds. `:table()` formats them as text: moth.help "EventList.table".
--
-- A range and an op of the same name have separate rows.
--
-- The row of a module or of a line includes all that ran in it; `X backward` has the gradients of
-- its ops and counts them.
-- @param group_by_input_shape  a row for each op and shapes of its tensors? (needs record_shapes)
-- @param group_by_stack_n      above 0: a row for each op and line of Lua (needs with_stack)
-- @param group_by              "op", "module" (needs with_modules) or "line" (needs with_stack)
function Profile:key_averages(...)
  local by_shape, stack, by = parse_averages(...)
  local recorded = recorded_of(self, "key_averages")
  local function want(option, why)
    if not self[option] then
      errors.argument("key_averages", why, ("was not recorded: create the profile with %s = true")
        :format(option), "E_STATE")
    end
  end
  if by_shape then want("record_shapes", "group_by_input_shape") end
  if stack > 0 then want("with_stack", "group_by_stack_n") end
  if by == "module" then want("with_modules", "group_by") end
  if by == "line" then want("with_stack", "group_by") end
  return (require("moth.profiler.averages").of(self, recorded, by_shape, stack > 0, by))
end

define.takes(Profile.key_averages, parse_averages)

--- All events in the order of their start: a list of tables with name, start, cpu_time_total,
-- self_cpu_time_total, cpu_memory_usage, parent (its position in the list, or nil), device_time,
-- kind ("op", "gradient", "engine", "range" or "module"), input_shapes and line. Times are
-- microseconds from the start of the profile.
function Profile:events()
  return (require("moth.profiler.averages").events(recorded_of(self, "events")))
end

--- Writes the events as a file that ui.perfetto.dev and chrome://tracing show as a time line.
-- @param path  the file's path: "trace.json"
function Profile:export_chrome_trace(path)
  if type(path) ~= "string" then
    errors.refuse("export_chrome_trace", "path", "a string is needed", path, "E_TYPE")
  end
  require("moth.profiler.trace")(recorded_of(self, "export_chrome_trace"), path)
end

--- The ops sorted by their self time.
function Profile:__tostring()
  if not self.recorded then
    return "profile (" .. (self.state and "active" or "not started") .. ")"
  end
  return (self:key_averages():table {sort_by = "self_cpu_time_total", row_limit = 20})
end

class.guard(Profile, "prof")

local FIELDS = {"time", "peak_bytes", "dropped"} -- nil until it has ended
local unset = {state = true, recorded = true, range = true, action = true, schedule = true,
               on_trace_ready = true}
for _, name in ipairs(FIELDS) do unset[name] = true end

--- An unset field is nil; an unknown field raises.
function Profile:__index(name)
  if type(name) ~= "string" or unset[name] or name:sub(1, 1) == "_" then return nil end
  local known = class.methods(self)
  for _, field in ipairs(FIELDS) do known[#known + 1] = field end
  errors.raise(("a profile has no '%s'%s"):format(name, errors.nearest(name, known)))
end

--- PyTorch's names of the activities.
profiler.ProfilerActivity = {CPU = "cpu", CUDA = "cuda"}

local elsewhere = {EventList = {"moth.profiler.averages", "EventList"}}

return (lazy.namespace("moth.profiler", profiler, elsewhere, {hint = lazy.HELP}))
