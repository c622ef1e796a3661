/* states.c -- a host with two Lua states in one thread: each has its own context, and a handle of
** one is invalid in the other.
**
** Usage: states ROOT LIBDIR. Built and run by spec/core/context_spec.lua.
*/
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct handle {
  uint32_t slot, gen;
} handle;

static const char setup[] =
    "local root, libdir = ...\n"
    "package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path\n"
    "package.cpath = libdir .. '/?.so;' .. package.cpath\n"
    "ffi, moth = require 'ffi', require 'moth'\n"
    "kept = moth.full({3}, 7)\n"
    "for i = 1, 20 do _G['x' .. i] = moth.full({2}, i) end\n"
    "x20:free()\n"
    "function numbers(x) return x._slot, x._gen end\n"
    "function forge(slot, gen)\n"
    "  local h = ffi.new('moth_handle')\n"
    "  h._slot, h._gen = slot, gen\n"
    "  return h\n"
    "end\n";

/* In the second state: a handle with the numbers of a handle of the first. */
static const char foreign[] =
    "local slot, gen = ...\n"
    "local x = forge(slot, gen)\n"
    "for _, use in ipairs{function() return x + 1 end, function() return x.shape end,\n"
    "    function() return moth.cat{x, x} end, function() x[1] = 2 end,\n"
    "    function() x:free() end, function() x:sum():backward() end} do\n"
    "  local ok, message = pcall(use)\n"
    "  if ok or not message:find('released', 1, true) then error(tostring(message)) end\n"
    "end\n"
    "assert(tostring(x):find('released', 1, true))\n"
    "assert(moth.ones(2):sum():item() == 2)\n";

static int failures;

static void check(lua_State *L, int status, const char *what) {
  if (!status) return;
  fprintf(stderr, "%s: %s\n", what, lua_tostring(L, -1));
  lua_pop(L, 1);
  failures++;
}

static void run(lua_State *L, const char *code) {
  check(L, luaL_loadstring(L, code) || lua_pcall(L, 0, 0, 0), code);
}

static lua_State *state_new(const char *root, const char *libdir) {
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  check(L, luaL_loadstring(L, setup), "setup");
  lua_pushstring(L, root);
  lua_pushstring(L, libdir);
  check(L, lua_pcall(L, 2, 0, 0), "setup");
  return L;
}

static handle numbers_of(lua_State *L, const char *name) {
  handle h = {0, 0};
  lua_getglobal(L, "numbers");
  lua_getglobal(L, name);
  if (lua_pcall(L, 1, 2, 0)) {
    check(L, 1, "numbers");
    return h;
  }
  h.slot = (uint32_t)lua_tonumber(L, -2);
  h.gen = (uint32_t)lua_tonumber(L, -1);
  lua_pop(L, 2);
  return h;
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  lua_State *a = state_new(argv[1], argv[2]), *b = state_new(argv[1], argv[2]);
  run(a, "for i = 1, 100 do _G['more' .. i] = moth.full({2}, i) end");
  handle h = numbers_of(a, "more100");
  check(b, luaL_loadstring(b, foreign), "foreign");
  lua_pushnumber(b, h.slot);
  lua_pushnumber(b, h.gen);
  check(b, lua_pcall(b, 2, 0, 0), "foreign");

  /* Modes, seeds, limits and memory are not shared. */
  run(a, "moth.set_grad_enabled(false) moth.set_default_dtype(moth.float64)\n"
         "moth.manual_seed(1) first = moth.rand(3) moth.set_memory_limit(2^30)\n"
         "moth.autograd.set_detect_anomaly(true)");
  run(b, "assert(moth.is_grad_enabled()) assert(moth.get_default_dtype() == moth.float32)\n"
         "assert(moth.memory().limit_bytes == 0)\n"
         "assert(not moth.autograd.is_anomaly_enabled())\n"
         "moth.manual_seed(1) assert(moth.rand(3).dtype == moth.float32)\n"
         "moth.collect() local live = moth.memory().live_bytes big = moth.ones(1000000)\n"
         "assert(moth.memory().live_bytes - live >= 4000000)");
  run(a, "assert(moth.memory().live_bytes < 2000000) assert(kept:sum():item() == 21)");

  /* A token passes bytes; closing the context that made it keeps them. */
  run(a, "shared = moth.arange(5) token = moth.token(shared)");
  lua_getglobal(a, "token");
  lua_pushstring(b, lua_tostring(a, -1));
  lua_setglobal(b, "token");
  run(b, "y = moth.open_token(token) y[1] = 9");
  run(a, "assert(shared[1]:item() == 9)");
  lua_close(a);
  run(b, "assert(y[1]:item() == 9 and y:sum():item() == 19)\n"
         "assert(not pcall(moth.open_token, token))\n"
         "w = moth.ones(2):requires_grad_() y = w * w y:sum():backward()\n"
         "assert(w.grad[1]:item() == 2)");
  lua_State *c = state_new(argv[1], argv[2]);
  run(c, "assert(kept:sum():item() == 21)");
  lua_close(b);
  run(c, "assert((kept * 2):sum():item() == 42)");
  lua_close(c);
  printf("%d failures\n", failures);
  return failures != 0;
}
