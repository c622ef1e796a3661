/* thread_counts.c -- a host whose Lua states compute while another thread changes the number of
** threads.
**
** Usage: thread_counts ROOT LIBDIR [rounds]. Built and run by spec/core/threads_spec.lua.
*/
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 2 };

static const char *root, *libdir;
static int rounds = 300, failures, over;

static const char work[] =
    "local root, libdir, rounds, changes = ...\n"
    "package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path\n"
    "package.cpath = libdir .. '/?.so;' .. package.cpath\n"
    "local moth = require 'moth'\n"
    "if changes then return moth.set_num_threads end\n"
    "local F = moth.nn.functional\n"
    "local x, w = moth.randn(6, 4, 9, 9), moth.randn(8, 4, 3, 3)\n"
    "local d, q, s = moth.randn(4, 1, 3, 3), moth.randn(5, 40, 8), moth.randn(6, 30, 20)\n"
    "local function results()\n"
    "  return { F.interpolate(x, {size = {14, 15}, mode = 'bilinear'}), F.conv2d(x, w),\n"
    "    F.conv2d(x, d, {groups = 4}), F.scaled_dot_product_attention(q, q, q),\n"
    "    s:transpose(2, 3):matmul(s) }\n"
    "end\n"
    "local first = results()\n"
    "for i = 1, rounds do\n"
    "  for k, y in ipairs(results()) do\n"
    "    assert(moth.equal(y, first[k]), 'result ' .. k .. ' of round ' .. i)\n"
    "    y:free()\n"
    "  end\n"
    "end\n";

static lua_State *state_new(int nargs, int nresults) {
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  luaL_loadstring(L, work);
  lua_pushstring(L, root);
  lua_pushstring(L, libdir);
  lua_pushinteger(L, rounds);
  if (nargs > 3) lua_pushboolean(L, 1);
  if (lua_pcall(L, nargs, nresults, 0)) {
    fprintf(stderr, "%s\n", lua_tostring(L, -1));
    __atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);
  }
  return L;
}

static void *computes(void *argument) {
  lua_close(state_new(3, 0));
  return argument;
}

static void *changes(void *L) {
  for (int n = 1; !__atomic_load_n(&over, __ATOMIC_RELAXED); n = n % 6 + 1) {
    lua_pushvalue(L, -1);
    lua_pushinteger(L, n);
    lua_call(L, 1, 0);
  }
  return NULL;
}

int main(int argc, char **argv) {
  pthread_t threads[THREADS], changer;
  if (argc < 3) return 2;
  root = argv[1];
  libdir = argv[2];
  if (argc > 3) rounds = atoi(argv[3]);
  lua_State *L = state_new(4, 1);
  if (failures) return 1;
  pthread_create(&changer, NULL, changes, L);
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, computes, NULL);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
  pthread_join(changer, NULL);
  lua_close(L);
  printf("%d failures\n", failures);
  return failures != 0;
}
