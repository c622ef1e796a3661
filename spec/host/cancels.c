/* cancels.c -- a host that cancels ops from another thread, and withdraws the cancel at once.
**
** Usage: cancels ROOT LIBDIR [rounds]. Built and run by spec/core/threads_spec.lua.
*/
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int armed, over; /* true while ops may be cancelled; true at the end */
static void (*cancel)(void *, int32_t);
static void *context;

static const char work[] =
    "local root, libdir, rounds, arm = ...\n"
    "package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path\n"
    "package.cpath = libdir .. '/?.so;' .. package.cpath\n"
    "local moth, ffi, lib = require 'moth', require 'ffi', require 'moth.binding.lib'\n"
    "local function address(p) return tonumber(ffi.cast('intptr_t', p)) end\n"
    "moth.set_num_threads(2)\n"
    "arm(address(lib.C.moth_cancel), address(lib.ctx))\n"
    "local lstm = moth.nn.LSTM(8, 8):double()\n"
    "local x, steps = moth.randn(300000), moth.randn(20, 256, 8):double()\n"
    "local list = moth.randn(20000)\n"
    "local function no_grad(f) return function() return moth.no_grad(f) end end\n"
    "local ops = {\n"
    "  lstm = no_grad(function() return (lstm(steps)) end),\n"
    "  sum = function() return x:sum() end,\n"
    "  sort = function() return (list:sort()) end,\n"
    "}\n"
    "local right, stopped, failures = {}, 0, 0\n"
    "for name, op in pairs(ops) do right[name] = op() end\n"
    "for i = 1, rounds do\n"
    "  for name, op in pairs(ops) do\n"
    "    arm(true)\n"
    "    local done, y = pcall(op)\n"
    "    arm(false)\n"
    "    if not done then\n"
    "      stopped = stopped + 1\n"
    "      if not tostring(y):find 'interrupted' then error(y) end\n"
    "    else\n"
    "      if not moth.equal(y, right[name]) then failures = failures + 1 print(name) end\n"
    "      y:free()\n"
    "    end\n"
    "  end\n"
    "end\n"
    "print(failures .. ' failures')\n"
    "return stopped\n";

/* arm(function, context), once; arm(true), and arm(false) when no op must be cancelled. */
static int arm(lua_State *L) {
  if (lua_isnumber(L, 1)) {
    context = (void *)(uintptr_t)lua_tonumber(L, 2);
    *(void **)(void *)&cancel = (void *)(uintptr_t)lua_tonumber(L, 1);
    return 0;
  }
  __atomic_store_n(&armed, lua_toboolean(L, 1), __ATOMIC_SEQ_CST);
  while (!lua_toboolean(L, 1) && __atomic_load_n(&armed, __ATOMIC_SEQ_CST) != 2) sched_yield();
  return 0;
}

static void pause_for(long ns) {
  struct timespec from, now;
  clock_gettime(CLOCK_MONOTONIC, &from);
  do clock_gettime(CLOCK_MONOTONIC, &now);
  while ((now.tv_sec - from.tv_sec) * 1000000000L + now.tv_nsec - from.tv_nsec < ns);
}

static void *cancels(void *unused) {
  while (!__atomic_load_n(&over, __ATOMIC_SEQ_CST)) {
    if (__atomic_load_n(&armed, __ATOMIC_SEQ_CST) == 1) {
      pause_for(20000);
      cancel(context, 1);
      pause_for(2000);
      cancel(context, 0);
    } else {
      __atomic_store_n(&armed, 2, __ATOMIC_SEQ_CST); /* acknowledged: no more cancels */
    }
  }
  return unused;
}

int main(int argc, char **argv) {
  pthread_t thread;
  if (argc < 3) return 2;
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  luaL_loadstring(L, work);
  lua_pushstring(L, argv[1]);
  lua_pushstring(L, argv[2]);
  lua_pushinteger(L, argc > 3 ? atoi(argv[3]) : 20);
  lua_pushcfunction(L, arm);
  pthread_create(&thread, NULL, cancels, NULL);
  int failed = lua_pcall(L, 4, 1, 0);
  if (failed) fprintf(stderr, "%s\n", lua_tostring(L, -1));
  else if (lua_tointeger(L, -1) == 0) printf("nothing was stopped\n");
  __atomic_store_n(&over, 1, __ATOMIC_SEQ_CST);
  pthread_join(thread, NULL);
  lua_close(L);
  return failed;
}
