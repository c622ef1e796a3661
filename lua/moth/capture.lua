--- capture.lua -- moth.capture: a step that is run once and then replayed as one call of C.
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
-- The engine keeps the kernel calls of the recorded run (core/capture.h). What Lua adds: inputs and
-- results; which modules ran, and whether in training; and cells, one for each optimizer op of the
-- recording: before a replay they write what the groups say now into the op's arguments.

local ffi = require "ffi"
local define = require "moth.define"
local errors = require "moth.error"
local lib = require "moth.lib"
local scope = require "moth.scope"

local C, ctx, Handle = lib.C, lib.ctx, lib.Handle
local istensor, loadstring = lib.istensor, lib.loadstring

local STALE, WANT = C.MOTH_CAPTURE_STALE, C.MOTH_WANT
local MOST_INPUTS = 16
local MOST = 8       -- recordings kept for one step: of so many shapes, modes and ways
local MOST_EMPTY = 3 -- recordings in a row that could not be kept

local capture = {}

-- ---- what others tell of the recording under way, lib.capture ----

local positions = {}

-- Where the arguments of an op lie in its slots: name -> number.
local function positions_of(name)
  local found = positions[name]
  if not found then
    found = {}
    for _, arg in ipairs(require("moth.bind").describe(name).args) do found[arg.name] = arg.slot end
    found.op = C.moth_op_find(name)
    positions[name] = found
  end
  return found
end

--- For optimizers, after an op of theirs: what its arguments are to be in a replay.
-- cell.write(cell, slots, at) puts them there and returns true, or returns false if the step would
-- go another way now; cell.done(cell), if it has one, follows a replay that went well.
-- @param name  of the op, or nil: then cell.write only looks
-- @param cell  a table with `write`, and what that needs
function capture.cell(name, cell)
  local active = lib.capture
  if name then
    cell.at = positions_of(name)
    cell.slots = C.moth_capture_slots(ctx, cell.at.op)
  end
  cell.guard = active.guard
  active.cells[#active.cells + 1] = cell
end

--- This run does what later ones will not, as making the optimizer's state: none is recorded yet.
-- @param expected  it may be so any number of times in a row
function capture.void(expected)
  local active = lib.capture
  if not active then return end
  C.moth_capture_void(ctx)
  if active.expected ~= false then active.expected = expected or false end
end

--- Calls f when the recording under way is over: what it does to tensors is no part of that.
function capture.later(f)
  local list = lib.capture.later
  list[#list + 1] = f
end

--- Raises while a step is recorded.
-- @param what  what cannot be part of it: "a hook"
function capture.refuse(what)
  errors.raise(what .. " cannot run while moth.capture records the step: a replay would not call "
    .. "it; do this outside of the captured function", "E_UNSUPPORTED")
end

-- ---- values in and out ----

local function check_input(x, i)
  if istensor(x) then
    if x.requires_grad and C.moth_grad_mode(ctx, -1) == 1 then
      errors.argument("capture", "input " .. i, "its gradient would not leave the step; detach it, "
        .. "or make it a parameter", "E_GRAPH")
    end
  elseif type(x) == "table" or type(x) == "userdata" or type(x) == "thread" then
    errors.argument("capture", "input " .. i, "tensors, and numbers, strings and booleans as "
      .. "constants, are needed, got " .. errors.describe(x), "E_TYPE")
  end
end

-- The step's own copies of its inputs, which replays fill.
local function own_inputs(args, n)
  local list, handles = {}, {}
  for i = 1, n do
    local x = args[i]
    check_input(x, i)
    if istensor(x) then
      x = x:detach():clone()
      C.moth_keep_always(ctx, x)
      handles[#handles + 1] = x
    end
    list[i] = x
  end
  if #handles > MOST_INPUTS then
    errors.argument("capture", "fn", ("at most %d tensors are needed as inputs, got %d"):format(
      MOST_INPUTS, #handles))
  end
  return list, handles
end

-- Calls visit(table, key) for each tensor in a list of results, those in plain tables included.
local function each_tensor(list, n, visit, seen)
  seen = seen or {}
  for i = 1, n do
    local value = list[i]
    if istensor(value) then
      visit(list, i)
    elseif type(value) == "table" and getmetatable(value) == nil and not seen[value] then
      seen[value] = true
      for key, item in pairs(value) do
        if istensor(item) then visit(value, key)
        elseif type(item) == "table" then each_tensor({item}, 1, visit, seen) end
      end
    end
  end
end

-- Ends the recording under way. The results lose their history, which no replay goes on.
local function finish(results)
  local places = {}
  each_tensor(results, results.n, function(t, key) places[#places + 1] = {t, key} end)
  local handles = lib.handles(math.max(#places, 1))
  for i, place in ipairs(places) do handles[i - 1] = place[1][place[2]] end
  local status = C.moth_capture_end(ctx, handles, #places)
  if status < 0 then errors.status(status, "capture") end
  for i, place in ipairs(places) do
    local h = Handle(handles[i - 1]._slot, handles[i - 1]._gen)
    h = lib.adopt(h, 0)
    C.moth_keep_always(ctx, h)
    place[1][place[2]] = h
  end
  return status
end

local function pack(...) return {n = select("#", ...), ...} end

-- ---- recordings ----

-- Those that Lua still holds: the others are freed by the next sweep.
local open, held = {}, setmetatable({}, {__mode = "v"})

table.insert(lib.on_sweep, function()
  for id in pairs(open) do
    if held[id] == nil then
      open[id] = nil
      C.moth_capture_free(ctx, id)
    end
  end
end)

-- Calls fn, in a scope; results packed, as of pcall. gsub is a function in C, and coroutines cannot
-- yield through one: what others did meanwhile would be recorded too.
local function run(fn, inputs, n)
  local results
  string.gsub("x", "x", function()
    results = pack(pcall(scope.scope, fn, unpack(inputs, 1, n)))
  end)
  if not results[1] and tostring(results[2]):find("yield across", 1, true) then
    results[2] = select(2, pcall(errors.raise,
      "a captured function cannot yield while it is run or recorded", "E_STATE"))
  end
  return results
end

-- Whether the modules, results and cells of a recording are as they were; cells write what is to
-- be used.
local function ready(r)
  local shown = r.shown
  for i = 1, #shown do
    if C.moth_alive(ctx, shown[i]) == 0 then return false end
  end
  local modules, training = r.modules, r.training
  for i = 1, #modules do
    if modules[i].training ~= training[i] then return false end
  end
  local cells = r.cells
  for i = 1, #cells do
    local cell = cells[i]
    if not cell.write(cell, cell.slots, cell.at) then return false end
  end
  return true
end

local function counted(r)
  local cells = r.cells
  for i = 1, #cells do
    local cell = cells[i]
    if cell.done and not (cell.guard and cell.guard.skipped) then cell.done(cell) end
  end
end

local WEAK = {__mode = "v"}

-- One function for each recording, so that LuaJIT compiles it for its inputs. What was compiled may
-- keep this function for good, so it does not keep the recording.
local function runner(r)
  local text, args = {}, {}
  for i = 1, r.n do args[i] = "a" .. i end
  local list = table.concat(args, ", ")
  text[1] = "local box, C, ctx, istype, Handle, h, id, K, ready, counted, type = ..."
  text[2] = ("return function(n%s)"):format(r.n > 0 and ", " .. list or "")
  text[3] = ("  if n ~= %d then return %d end"):format(r.n, STALE)
  local k = 0
  for i = 1, r.n do
    if r.is_tensor[i] then
      text[#text + 1] = ("  if not istype(Handle, a%d) then return %d end"):format(i, STALE)
    else
      text[#text + 1] = ("  if type(a%d) ~= type(K[%d]) or a%d ~= K[%d] then return %d end"):format(
        i, i, i, i, STALE)
    end
  end
  text[#text + 1] = ("  local r = box[1]\n  if not ready(r) then return %d end"):format(STALE)
  for i = 1, r.n do
    if r.is_tensor[i] then
      text[#text + 1] = ("  h[%d] = a%d"):format(k, i)
      k = k + 1
    end
  end
  text[#text + 1] = ("  local st = C.moth_capture_replay(ctx, id, h, %d)"):format(k)
  text[#text + 1] = ("  if st == 0 or st == %d then counted(r) end"):format(WANT)
  text[#text + 1] = "  return st\nend"
  local chunk = assert(loadstring(table.concat(text, "\n"), "=[moth.capture]"))
  local box = setmetatable({r}, WEAK)
  return chunk(box, C, ctx, ffi.istype, Handle, r.handles, r.id, r.constants, ready, counted, type)
end

local id_out = ffi.new "uint32_t[1]"

-- Runs fn on copies of the inputs, recorded. Returns its results, packed, and the recording, or
-- nil in its place if the next run will go another way, and whether that may be so many times.
local function record(fn, ...)
  local n = select("#", ...)
  local args = {...}
  local inputs, tensors = own_inputs(args, n)
  local handles = lib.handles(math.max(#tensors, 1))
  for i, x in ipairs(tensors) do handles[i - 1] = x end
  local status = C.moth_capture_begin(ctx, handles, #tensors, id_out)
  if status < 0 then errors.status(status, "capture") end
  local r = {id = id_out[0], n = n, handles = handles, inputs = inputs, cells = {}, modules = {},
             training = {}, seen = {}, is_tensor = {}, constants = {}, states = {}, guards = 0,
             later = {}}
  for i = 1, n do
    r.is_tensor[i] = istensor(args[i])
    if not r.is_tensor[i] then r.constants[i] = args[i] end
  end
  lib.capture = r
  local results = run(fn, inputs, n)
  lib.capture = nil
  local ok, problem = results[1], results[2]
  if ok then
    table.remove(results, 1)
    results.n = results.n - 1
    ok, problem = pcall(finish, results)
  end
  if not ok then C.moth_capture_abort(ctx) end
  for _, f in ipairs(r.later) do f() end
  if not ok then error(problem, 0) end
  if problem == STALE then return results, nil, r.expected end
  r.results, r.shown, r.seen = results, {}, nil
  each_tensor(results, results.n, function(t, key) r.shown[#r.shown + 1] = t[key] end)
  open[r.id], held[r.id] = true, r
  r.run = runner(r)
  return results, r
end

-- ---- steps ----

local Step = {}
Step.__index = Step

local function add(self, r)
  table.insert(self.list, 1, r)
  self.last = r
  while #self.list > MOST do
    local old = table.remove(self.list)
    open[old.id] = nil
    C.moth_capture_free(ctx, old.id)
  end
end

local function give(results)
  return unpack(results, 1, results.n)
end

-- Recordings whose results were freed can give nothing any more.
local function prune(self)
  for i = #self.list, 1, -1 do
    local r = self.list[i]
    for _, x in ipairs(r.shown) do
      if C.moth_alive(ctx, x) == 0 then
        table.remove(self.list, i)
        open[r.id] = nil
        C.moth_capture_free(ctx, r.id)
        if self.last == r then self.last = nil end
        break
      end
    end
  end
end

local there_out, here_out = ffi.new "int32_t[1]", ffi.new "int32_t[1]"

-- How many graphs a call of a recording is, and how many ops on a GPU and elsewhere beside them.
local function graphs_of(r)
  if not r then return 0, 0, 0 end
  local graphs = C.moth_capture_graphs(ctx, r.id, there_out, here_out)
  if graphs < 0 then errors.status(graphs, "capture") end
  return graphs, there_out[0], here_out[0]
end

local function check_gpu(r)
  local graphs, there = graphs_of(r)
  if graphs + there > 0 then return end
  open[r.id] = nil
  C.moth_capture_free(ctx, r.id)
  errors.raise("moth.cuda.graph is for steps that run on a GPU, and no op of this one did; move "
    .. "its modules and inputs there, as with net:to('cuda'), or use moth.capture", "E_DEVICE")
end

-- No recording fits: the step is run and recorded.
local function run_and_record(self, ...)
  local results, r, expected = record(self.fn, ...)
  if r and self.gpu then check_gpu(r) end
  if r then
    add(self, r)
    self.empty = 0
  elseif not expected then
    self.empty = self.empty + 1
    if self.empty >= MOST_EMPTY then
      errors.raise(("the captured function changed what it begins with in each of %d runs (an "
        .. "optimizer's state made anew?), so no recording of it can be replayed"):format(
        self.empty), "E_STATE")
    end
  end
  return give(results)
end

-- The recordings but the last; the one that fits becomes the last.
local function others(self, ...)
  for i = 1, #self.list do
    local r = self.list[i]
    local status = r ~= self.last and r.run(select("#", ...), ...) or STALE
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
    errors.status(status, ffi.string(C.moth_error_op(ctx)))
  end
  return give(r.results)
end

--- Runs the step.
-- @param ...  tensors; numbers, strings and booleans are constants of a recording
-- @return what fn returned when it was recorded; its tensors hold this run's values
function Step:__call(...)
  if self.left > 0 then return verified(self, ...) end
  local r = self.last
  local status = STALE
  if r then
    status = r.run(select("#", ...), ...)
    if status == 0 then
      local results = r.results
      if results.n == 1 then return results[1] end
      return give(results)
    end
  end
  return slow(self, status, ...)
end

--- Gives back what the recordings hold. The step cannot be called any more.
function Step:free()
  for _, r in ipairs(self.list) do
    open[r.id] = nil
    C.moth_capture_free(ctx, r.id)
  end
  self.list, self.last, self.freed = {}, nil, true
end

local function count(n, what) return ("%d %s%s"):format(n, what, n == 1 and "" or "s") end

--- "captured step (1 recording)"; on a GPU also what a call asks of it now.
function Step:__tostring()
  local text = count(#self.list, "recording")
  local graphs, there, here = graphs_of(self.last)
  if graphs > 0 then
    text = text .. "; a call is " .. count(graphs, "graph")
    if there > 0 then text = text .. ", " .. count(there, "op") .. " on the GPU" end
    if here > 0 then text = text .. ", " .. count(here, "op") .. " on the CPU" end
  end
  return "captured step (" .. text .. ")"
end

-- ---- verifying ----

-- The bytes of all tensors among results, as one list of strings.
local function bytes_of(results)
  local list = {}
  each_tensor(results, results.n, function(t, key)
    local x = t[key]
    local size = x:numel() * tonumber(lib.inspect(x).itemsize)
    local buffer = lib.array("uint8_t", math.max(size, 1))
    lib.check(C.moth_bytes(ctx, x, buffer, size), "capture")
    list[#list + 1] = ffi.string(buffer, size)
  end)
  return list
end

-- The numbers in the optimizers' states and what functions among these tell: rows of table, key and
-- value, to be put back.
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
  self.left = 0
  errors.raise(what .. " is another after a replay than after the step itself: something that the "
    .. "recording holds as a constant (a Lua number, a branch) has changed", "E_STATE")
end

-- Runs the step itself, takes that back, replays it, and compares.
verified = function(self, ...)
  local r = self.last
  if not r then return run_and_record(self, ...) end
  lib.check(C.moth_capture_keep(ctx, r.id), "capture")
  local numbers = numbers_of(r)
  local inputs = own_inputs({...}, select("#", ...))
  local results = run(self.fn, inputs, select("#", ...))
  lib.check(C.moth_capture_swap(ctx, r.id), "capture")
  for _, row in ipairs(numbers) do row[1][row[2]] = row[3] end
  if not results[1] then error(results[2], 0) end
  table.remove(results, 1)
  results.n = results.n - 1
  local status = r.run(select("#", ...), ...)
  if status == STALE then
    C.moth_capture_differs(ctx, r.id) -- forgets
    return slow(self, status, ...)
  end
  if status < 0 then return slow(self, status, ...) end
  self.left = self.left - 1
  compare(self, r, bytes_of(results))
  return give(r.results)
end

-- ---- moth.capture ----

local ARGS = {
  {"function", "fn", "the step: tensors in, tensors out"},
  {"int", "verify", "how many replays are compared with the step itself", default = 0},
}
local parse = define.signature("capture", ARGS)

-- gpu: some of it must run on one
local function step_of(fname, gpu, fn, verify)
  if verify < 0 then
    errors.argument(fname, "verify", "a number from 0 on is needed, got " .. verify, "E_DOMAIN")
  end
  return setmetatable({fn = fn, left = verify, list = {}, empty = 0, gpu = gpu}, Step)
end

--- Records a training or inference step at its first call, and replays it as one call of the engine
-- at the later ones: nothing is looked up, allocated or recorded for gradients any more.
--
-- The arguments of fn are its inputs: each replay copies them in. What fn returns is overwritten by
-- each replay, and has no history. Learning rates and the other options of Moth's optimizers, their
-- step counts, what a GradScaler decides, and random numbers go on as in an ordinary step. Every
-- other number, string, boolean and branch of fn is a constant of the recording, and so are tensors
-- that it takes from outside: they are read where they lay. What fn makes and does not return ends
-- with it, as in moth.scope.
--
-- Other shapes or dtypes of the inputs, another `training` of a module that ran, another grad mode,
-- parameters with other storage: then the step is run and recorded again; the last 8 recordings are
-- kept. The first runs of an optimizer that make its state are not kept.
--
-- On a GPU, ops in a row become CUDA graphs, each asked for by one request; copies from and to the
-- CPU, and what waits for the GPU, stand between them; fewer than 4 launches in a row stay single
-- ops. `tostring(step)` counts the graphs, where there are any.
--
-- While it is recorded, these raise: reading values (`item`, `tolist`, print), results whose shape
-- depends on values (nonzero, masks as index), hooks, Functions written in Lua, schedules, seeding,
-- BatchNorm with `momentum = moth.none`, `scaler:update(new_scale)`, scaling after an update.
-- @param fn      the step
-- @param verify  the first so many replays are compared, bit for bit, with the step itself, run on
--                the same state; raises if they differ (default 0)
-- @return the step: call it as fn; `:free()` gives back what it holds
function capture.capture(...)
  return (step_of("capture", false, parse(...)))
end

define.takes(capture.capture, parse)

local parse_graph = define.signature("graph", ARGS)

--- moth.cuda.graph, which device.lua documents.
function capture.graph(...)
  local device = require "moth.device"
  local fn, verify = parse_graph(...)
  if not device.cuda.is_available() then
    errors.raise("moth.cuda.graph: " .. device.missing "cuda", "E_DEVICE")
  end
  return (step_of("graph", true, fn, verify))
end

return capture
