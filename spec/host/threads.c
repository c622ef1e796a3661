/* threads.c -- a host with one Lua state a thread: tensors pass by token, and counts are right.
**
** Usage: threads ROOT LIBDIR [rounds]. Built and run by spec/core/threads_spec.lua.
*/
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4 };

static const char *root, *libdir;
static char tokens[THREADS][32];
static int failures;

static const char setup[] =
    "local root, libdir = ...\n"
    "package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path\n"
    "package.cpath = libdir .. '/?.so;' .. package.cpath\n"
    "moth = require 'moth'\n"
    "shared = moth.zeros(1000)\n"
    "function token() return moth.token(shared) end\n";

static const char work[] =
    "local moth, token, rounds = moth, ...\n"
    "local x = moth.open_token(token)\n"
    "local w = moth.randn(8, 8):requires_grad_()\n"
    "for i = 1, rounds do\n"
    "  x:add_(1)\n"
    "  local y = moth.randn(100) * 2 + x[1]\n"
    "  if i % 50 == 0 then w:matmul(w):sum():backward() end\n"
    "end\n"
    "assert(not pcall(moth.open_token, token))\n"
    "assert(x._version >= rounds)\n"
    "collectgarbage() return x[1]:item()\n";

static lua_State *state_new(void) {
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  if (luaL_loadstring(L, setup)) return L;
  lua_pushstring(L, root);
  lua_pushstring(L, libdir);
  if (lua_pcall(L, 2, 0, 0)) {
    fprintf(stderr, "%s\n", lua_tostring(L, -1));
    __atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);
  }
  return L;
}

static int rounds = 2000;

static void *thread(void *argument) {
  lua_State *L = state_new();
  luaL_loadstring(L, work);
  lua_pushstring(L, argument);
  lua_pushinteger(L, rounds);
  if (lua_pcall(L, 2, 1, 0)) {
    fprintf(stderr, "%s\n", lua_tostring(L, -1));
    __atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);
  }
  lua_close(L);
  return NULL;
}

int main(int argc, char **argv) {
  pthread_t threads[THREADS];
  if (argc < 3) return 2;
  root = argv[1];
  libdir = argv[2];
  if (argc > 3) rounds = atoi(argv[3]);
  lua_State *L = state_new();
  for (int i = 0; i < THREADS; i++) {
    lua_getglobal(L, "token");
    if (lua_pcall(L, 0, 1, 0)) {
      fprintf(stderr, "%s\n", lua_tostring(L, -1));
      return 1;
    }
    snprintf(tokens[i], sizeof tokens[i], "%s", lua_tostring(L, -1));
    lua_pop(L, 1);
  }
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, thread, tokens[i]);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  lua_close(L); /* the last owner may be any of them */
  printf("%d failures\n", failures);
  return failures != 0;
}
