-- Many Lua states in a process, each with Moth, on one copy of the weights.
-- MOTH_STATES=1000 creates that many.

local moth = require "moth"
local ffi = require "ffi"

ffi.cdef [[
typedef struct lua_State lua_State;
lua_State *luaL_newstate(void);
void luaL_openlibs(lua_State *L);
int luaL_loadstring(lua_State *L, const char *text);
int lua_pcall(lua_State *L, int nargs, int nresults, int handler);
const char *lua_tolstring(lua_State *L, int index, size_t *size);
void lua_settop(lua_State *L, int index);
void lua_close(lua_State *L);
]]

local COUNT = tonumber(os.getenv "MOTH_STATES") or 50

local function resident()
  local file = io.open "/proc/self/statm"
  local pages = file:read("*a"):match "%d+ (%d+)"
  file:close()
  return tonumber(pages) * 4096
end

local function run(L, code)
  local status = ffi.C.luaL_loadstring(L, code)
  if status == 0 then status = ffi.C.lua_pcall(L, 0, 1, 0) end
  local text = ffi.C.lua_tolstring(L, -1, nil)
  text = text ~= nil and ffi.string(text) or ""
  ffi.C.lua_settop(L, 0)
  assert(status == 0, text)
  return text
end

-- A collector with a small pause keeps the heap small while Moth is loaded.
local START = ("collectgarbage('setpause', 110) package.path, package.cpath = %q, %q "
  .. "moth = require 'moth'")
  :format(package.path, package.cpath)

describe("many states in one process", function()
  it("share one copy of the weights, and stay small", function()
    local w = moth.arange(1, 2 ^ 18):float()
    moth.collect()
    local states, seconds, heap = {}, 0, 0
    local before = resident()
    for i = 1, COUNT do
      local start = os.clock()
      local L = ffi.C.luaL_newstate()
      ffi.C.luaL_openlibs(L)
      run(L, START)
      seconds = seconds + os.clock() - start
      states[i] = L
      run(L, ("w = moth.open_token %q"):format(moth.token(w)))
      heap = heap + tonumber(run(L, "collectgarbage() return collectgarbage 'count' * 1024"))
    end
    local each = (resident() - before) / COUNT
    for i = 1, COUNT do
      assert.equal("6", run(states[i], "return tostring(w[{{1, 3}}]:sum():item())"))
    end
    w[1] = 3
    assert.equal("8", run(states[COUNT], "return tostring(w[{{1, 3}}]:sum():item())"))
    assert.equal(w.nbytes, moth.memory().shared_bytes)
    for i = 1, COUNT do ffi.C.lua_close(states[i]) end
    if os.getenv "MOTH_STATES" then
      print(("%d states: %.0f KB resident and %.0f KB of Lua each, %.2f ms of CPU to start one")
        :format(COUNT, each / 1024, heap / COUNT / 1024, seconds / COUNT * 1e3))
    end
    -- a sanitizer's allocator takes more
    assert.is_true(each < 550 * 1024 or os.getenv "MOTH_SANITIZED" ~= nil)
  end)
end)
