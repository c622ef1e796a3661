/* forks.c -- a host that forks while its threads, each with a Lua state, pass tensors by token. A
** child must find no lock that another thread held.
**
** Usage: forks ROOT LIBDIR. Built and run by spec/core/context_spec.lua.
*/
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 2, FORKS = 60 };

static const char *root, *libdir;
static int stop;

static const char setup[] =
    "local root, libdir = ...\n"
    "package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path\n"
    "package.cpath = libdir .. '/?.so;' .. package.cpath\n"
    "local moth = require 'moth'\n"
    "local x = moth.zeros(2)\n"
    "function turn(n) for _ = 1, n do moth.open_token(moth.token(x)):free() end end\n";

static lua_State *state_new(void) {
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  int failed = luaL_loadstring(L, setup);
  lua_pushstring(L, root);
  lua_pushstring(L, libdir);
  if (!failed && !lua_pcall(L, 2, 0, 0)) return L;
  fprintf(stderr, "%s\n", lua_tostring(L, -1));
  exit(1);
}

static int turn(lua_State *L, int n) {
  lua_getglobal(L, "turn");
  lua_pushinteger(L, n);
  return lua_pcall(L, 1, 0, 0);
}

static void *run(void *state) {
  while (!__atomic_load_n(&stop, __ATOMIC_RELAXED) && !turn(state, 100)) continue;
  return NULL;
}

int main(int argc, char **argv) {
  lua_State *states[THREADS + 1];
  pthread_t threads[THREADS];
  int bad = 0;
  if (argc < 3) return 1;
  root = argv[1], libdir = argv[2];
  for (int i = 0; i <= THREADS; i++) states[i] = state_new();
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, run, states[i]);
  for (int i = 0; i < FORKS && bad < 3; i++) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
      alarm(10);
      _exit(turn(states[THREADS], 3));
    }
    waitpid(child, &status, 0);
    if (status) bad++;
  }
  __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i <= THREADS; i++) lua_close(states[i]);
  printf("%d children failed\n", bad);
  return bad != 0;
}
