-- Errors in the middle of a first use leave no module half loaded, and NULL in the C ABI is an
-- error code.
--
-- MOTH_FAULTS=600 tries that many positions of each first use in place of a few.

local process = require "spec.support.process"

local POSITIONS = tonumber(os.getenv "MOTH_FAULTS") or 12

-- Uses separate Lua states, in which a debug hook raises once.
local SWEEP = [=[
local ffi = require "ffi"
ffi.cdef [[
typedef struct lua_State lua_State;
lua_State *luaL_newstate(void);
void luaL_openlibs(lua_State *L);
int luaL_loadstring(lua_State *L, const char *text);
int lua_pcall(lua_State *L, int nargs, int nresults, int handler);
const char *lua_tolstring(lua_State *L, int index, size_t *size);
void lua_pushinteger(lua_State *L, ptrdiff_t n);
void lua_pushstring(lua_State *L, const char *text);
void lua_close(lua_State *L);
]]

-- Raises once, n instructions after the start of the use, then uses it again.
local STATE = [[
  local path, cpath, use, at, from = ...
  jit.off()
  package.path, package.cpath = path, cpath
  local moth = from ~= "require" and require "moth"
  local use = assert(loadstring(use))
  local fired = false
  debug.sethook(function()
    debug.sethook()
    fired = true
      error("raised by a hook", 0)
  end, "", at)
  local ok, problem = pcall(use)
  debug.sethook()
  if not fired then return ok and "not reached" or "first: " .. tostring(problem) end
  local again, result = pcall(use)
  if not again then return "next use: " .. tostring(result) end
  local moth = require "moth"
  if not moth.is_grad_enabled() then return "gradients are off" end
  if moth.is_autocast_enabled() then return "autocast is on" end
  return "works"
]]

local function try(use, at, from)
  local L = ffi.C.luaL_newstate()
  ffi.C.luaL_openlibs(L)
  assert(ffi.C.luaL_loadstring(L, STATE) == 0)
  ffi.C.lua_pushstring(L, package.path)
  ffi.C.lua_pushstring(L, package.cpath)
  ffi.C.lua_pushstring(L, use)
  ffi.C.lua_pushinteger(L, at)
  ffi.C.lua_pushstring(L, from or "")
  ffi.C.lua_pcall(L, 5, 1, 0)
  local text = ffi.string(ffi.C.lua_tolstring(L, -1, nil))
  ffi.C.lua_close(L)
  return text
end

-- The approximate number of instructions of a use.
local function length(use, from)
  local low, high = 1, 1024
  local whole = try(use, 2^30, from)
  if whole ~= "not reached" then error(whole) end
  while try(use, high, from) ~= "not reached" do low, high = high, high * 2 end
  while high - low > math.max(1, low / 64) do
    local middle = math.floor((low + high) / 2)
    if try(use, middle, from) == "not reached" then high = middle else low = middle end
  end
  return low
end

local function sweep(name, use, positions, from)
  local last = length(use, from)
  local works, wrong = 0, {}
  for i = 1, math.min(positions, last) do
    local at = positions >= last and i or 1 + math.floor((i - 0.37) * last / positions)
    local text = try(use, at, from)
    if text == "works" or text == "not reached" then works = works + 1
    else wrong[#wrong + 1] = ("%s, after %d of %d: %s"):format(name, at, last, text) end
  end
  print(("%s: %d instructions, %d positions, %d wrong"):format(name, last, works + #wrong, #wrong))
  for i = 1, math.min(#wrong, 3) do print("wrong: " .. wrong[i]) end
end
]=]

local USES = {
  {"F", [[
    assert(moth.nn.functional.softmax(moth.ones(2), 1):sum():item() == 1)]]},
  {"nn, Sequential and attention", [[
    local nn = moth.nn
    local net
    = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(),
    nn.LSTM(8, 2))
    net(moth.ones(2, 1, 4, 4))]]},
  {"optim", [[
    local p = moth.nn.Parameter(moth.ones(2)); local o = moth.optim.Adam({p}, {lr = 0.1})
    p:sum():backward(); o:step(); assert(p[1]:item() < 0.95)
    local l = moth.optim.lr_scheduler.StepLR(o, 2); o:step(); l:step()]]},
  {"backward with hooks", [[
    local x = moth.ones(2):requires_grad_(); x:register_hook(function(g) return g * 2 end)
    x:sum():backward(); assert(x.grad[1]:item() == 2)]]},
  {"data", [[
    local n = 0
    for x in moth.utils.data.DataLoader(moth.utils.data.TensorDataset(moth.ones(4, 2)),
    {batch_size = 2}) do n = n + 1 end
    assert(n == 2)]]},
  {"linalg", [[
    assert(moth.linalg.det(moth.eye(2)):item() == 1); moth.linalg.svd(moth.eye(2));
    moth.linalg.solve(moth.eye(2), moth.ones(2))]]},
  {"fft", [[
    assert(moth.fft.rfft(moth.ones(4)):sum():item() == 4)]]},
  {"special", [[
    assert(moth.special.gammaln(moth.ones(1)):item() == 0)]]},
  {"distributions", [[
    local d = moth.distributions.Normal(0, 1); d:sample(); d:log_prob(moth.zeros(1))
    moth.distributions.kl_divergence(d, d)]]},
  {"onnx", [[
    local path = os.tmpname();
    moth.onnx.export(moth.nn.Linear(2, 1), {moth.ones(1, 2)}, path)
    local m = moth.onnx.load(path); os.remove(path)
    m(moth.ones(1, 2))]]},
  {"save and load", [[
    local path = os.tmpname(); moth.save({a = moth.ones(2)}, path)
    local t = moth.load(path); os.remove(path); assert(t.a[1]:item() == 1)]]},
  {"capture", [[
    local f = moth.capture(function(x) return x * 2 + 1 end)
    for _ = 1, 4 do assert(f(moth.ones(2))[1]:item() == 3) end]]},
  {"func", [[
    local g = moth.func.grad(function(x) return (x * x):sum() end)(moth.ones(2));
    assert(g[1]:item() == 2)
    moth.func.vmap(function(x) return x * 2 end)(moth.ones(2, 2))]]},
  {"profiler", [[
    local p = moth.profiler.profile(function() return moth.ones(2) + 1 end)]]},
  {"amp", [[
    moth.autocast("cpu", function() return moth.mm(moth.ones(2, 2), moth.ones(2,
    2)) end); moth.GradScaler()]]},
  {"no_grad", [[
    moth.no_grad(function() return moth.ones(2) + 1 end);
    moth.enable_grad(function() return moth.ones(2) end)]]},
  {"checkpoint", [[
    local x = moth.ones(2):requires_grad_()
    moth.utils.checkpoint.checkpoint(function(x) return x * x end, x):sum():backward();
    assert(x.grad[1]:item() >= 2)]]},
  {"print and help", [[
    assert(#tostring(moth.randn(3, 3)) > 5);]]},
  {"scope", [[
    moth.scope(function() return moth.ones(2) end);
    moth.einsum("ij->ji", moth.ones(2, 3)); moth.quantile(moth.ones(3), 0.5)]]},
  {"class", [[
    local Net = moth.class("Net", moth.nn.Module)
    function Net:init() self.fc = moth.nn.Linear(2, 2) end
    function Net:forward(x) return self.fc(x) end
    Net()(moth.ones(1, 2))]]},
  {"errors", [[
    assert(not pcall(function() return moth.ones(2):view(3) end));
    assert(not pcall(function() return moth.onse end))
    assert(not pcall(moth.nn.Linear, "a"))]]},
  {"index and shapes", [[
    local x = moth.arange(6):view(2, 3); assert(x[{1, {2, 3}}]:sum():item() == 3);
    x[{1, 1}] = 5; x:max(2); x:float():std()]]},
}

-- Runs the sweep of one use. @return its output
local function swept(name, use, first)
  return process.lua(("%s\nsweep(%q, %q, %d, %q)"):format(SWEEP, name,
    'local moth = require "moth"\n' .. use, POSITIONS, first or ""))
end

describe("after an error of a debug hook", function()
  it("in require, the next one works", function()
    local text = swept("require", "assert((moth.ones(2) + 1):sum():item() == 4)", "require")
    assert.matches("positions, 0 wrong\nrc=0", text)
  end)

  for _, row in ipairs(USES) do
    it("in a first use of " .. row[1] .. ", the next use works and modes are as before", function()
      assert.matches("positions, 0 wrong\nrc=0", (swept(row[1], row[2])))
    end)
  end
end)

describe("after a stack overflow", function()
  it("in a first use, the next use works", function()
    local text = process.lua [[
      local moth = require "moth"
      local failed, worked = 0, 0
      local function use() return moth.nn.Linear(2, 1)(moth.ones(1, 2)):sum():item() end
      local function f(n)
        pcall(f, n + 1)
        if pcall(use) then worked = worked + 1 else failed = failed + 1 end
      end
      f(1)
      print(failed > 0, worked > 0, (pcall(use)), moth.is_grad_enabled())]]
    assert.matches("^true%s+true%s+true%s+true\nrc=0", text)
  end)
end)

describe("NULL in the C ABI", function()
  it("for each pointer is E_ARG, 0 or NULL, and never a crash", function()
    local text = process.lua [=[
local lib = require "moth.binding.lib"
local ffi = require "ffi"
local C = lib.C
local text = ffi.string(C.moth_header())
for part in text:gmatch "@(%a+)" do lib.declare(part) end

-- May be NULL: an owner, gradients of scalars, unused output rows, a missing gradient.
local OPTIONAL = { ["moth_task_begin grads"] = true, ["moth_profile_take events"] = true,
  ["moth_profile_take sizes"] = true, ["moth_profile_stop info"] = true,
  ["moth_set_grad grad"] = true, ["moth_task_put grad"] = true,
  ["moth_from_memory deleter"] = true, ["moth_from_memory owner"] = true,
  ["moth_coroutine_find outer"] = true, ["moth_error_storage version"] = true,
  ["moth_backward grads"] = true, ["moth_mpi_open path"] = true,
  ["moth_transfer_wait source"] = true }
-- These return no status.
local ANSWERS = { moth_alive = true, moth_slot_used = true, moth_above_goal = true,
  moth_interrupted = true, moth_capture_uses = true, moth_mpi_found = true }

local ctx = ffi.cast("moth_ctx *", C.moth_open())
local op = C.moth_op_find "add"
local keep = {}

local function argument(name, arg)
  if arg.is_pointer then
    if arg.name == "ctx" then return ctx end
    if arg.name == "op" then return op end
    if arg.name == "deleter" or arg.name == "work" then return nil end
    local space = ffi.new "uint64_t[4096]"
    keep[#keep + 1] = space
    return ffi.cast("void *", space)
  end
  return 1
end

local calls, wrong = 0, {}

local function call(result, name, args, which)
  local values, n = {}, #args
  for i, arg in ipairs(args) do values[i] = argument(name, arg) end
  for i, arg in ipairs(args) do
    if arg.is_pointer and (which == 0 or which == i) then values[i] = nil end
  end
  local y = C[name](unpack(values, 1, n))
  calls = calls + 1
  local arg = args[which]
  if which > 0 and OPTIONAL[name .. " " .. arg.name] or name:find "^moth_error" then return end
  local good
  if result == "void" then good = y == nil
  elseif name == "moth_config" then good = ffi.string(y) == "no context"
  elseif result:find "%*" then good = y == nil
  elseif result:find "^u" then good = y == 0
  else good = tonumber(y) == C.MOTH_E_ARG or ANSWERS[name] and y == 0 end
  if not good then wrong[#wrong + 1] = name .. " " .. which .. " gave " .. tostring(y) end
end

for result, name, list in text:gmatch "\n([%w_ ]+[ %*]+)(moth_[%w_]+)(%b())" do
  local args, pointers = {}, 0
  list = list:sub(2, -2):gsub("void %(%*deleter%)%b()", "void *deleter")
  for part in list:gmatch "[^,]+" do
    local arg = { is_pointer = part:find("*", 1, true) ~= nil or part:find "_function " ~= nil,
      name = part:match "([%w_]+)%s*$" }
    args[#args + 1] = arg
    if arg.is_pointer then pointers = pointers + 1 end
  end
  if pointers > 0 then
    call(result:match "^%s*(.-)%s*$", name, args, 0)
    for i, arg in ipairs(args) do
      if arg.is_pointer then call(result:match "^%s*(.-)%s*$", name, args, i) end
    end
  end
end
for _, name in ipairs { "moth_error_arg", "moth_error_op" } do
  print(name, ffi.string(C[name](nil)))
end
print("moth_error", ffi.string(C.moth_error(nil, 0)))
C.moth_close(ctx)
for _, text in ipairs(wrong) do print("wrong", text) end
print(("%d calls, %d wrong"):format(calls, #wrong))
]=]
    assert.matches("moth_error\tno context", text)
    assert.matches("moth_error_arg\tno context", text)
    assert.matches("moth_error_op\tno context", text)
    assert.is_nil(text:match "wrong\t[^\n]*")
    assert.matches("[4-9]%d%d calls, 0 wrong\nrc=0", text)
  end)
end)
