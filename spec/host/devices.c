/* devices.c -- a host whose Lua states use a GPU at the same time, each on its own thread, and pass
** page-locked memory to each other.
**
** Usage: devices ROOT LIBDIR [rounds]. Built and run by spec/core/threads_spec.lua.
*/
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 3 };

static const char *root, *libdir;
static int rounds = 10, failures;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char token[64]; /* of a tensor that a state passes to the next one */

static const char work[] =
    "local root, libdir, rounds, swap = ...\n"
    "package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path\n"
    "package.cpath = libdir .. '/?.so;' .. package.cpath\n"
    "local moth = require 'moth'\n"
    "local F = moth.nn.functional\n"
    "local copies, here = moth.cuda.Stream(), moth.cuda.current_stream()\n"
    "local function train()\n"
    "  moth.manual_seed(7)\n"
    "  local net = moth.nn.Linear(6, 4):cuda()\n"
    "  local optimizer = moth.optim.Adam(net:parameters(), {lr = 0.1})\n"
    "  for _ = 1, 4 do\n"
    "    local x, y = moth.randn(9, 6):pin_memory(), moth.randint(1, 5, {9})\n"
    "    local there = moth.cuda.stream(copies, function()\n"
    "      return x:to('cuda', {non_blocking = true}) end)\n"
    "    here:wait_stream(copies)\n"
    "    optimizer:zero_grad()\n"
    "    F.cross_entropy(net(there), y:cuda()):backward()\n"
    "    optimizer:step()\n"
    "  end\n"
    "  return net.weight:cpu()\n"
    "end\n"
    "local wanted = train()\n"
    "for i = 1, rounds do\n"
    "  assert(moth.equal(train(), wanted), 'round ' .. i)\n"
    "  local x = moth.full({500}, 3):pin_memory()\n"
    "  local y = x:to('cuda', {non_blocking = true})\n"
    "  local theirs = swap(moth.token(x))\n"
    "  x:free()\n"
    "  if theirs ~= '' then\n"
    "    local z = moth.open_token(theirs)\n"
    "    assert(z:is_pinned() and z:cuda():cpu():equal(moth.full({500}, 3)))\n"
    "  end\n"
    "  assert(y:cpu():equal(moth.full({500}, 3)))\n"
    "  moth.collect()\n"
    "end\n";

/* Stores a token and returns the previous one. */
static int swap(lua_State *L) {
  char old[sizeof token];
  pthread_mutex_lock(&lock);
  memcpy(old, token, sizeof old);
  snprintf(token, sizeof token, "%s", luaL_checkstring(L, 1));
  pthread_mutex_unlock(&lock);
  lua_pushstring(L, old);
  return 1;
}

static void *computes(void *argument) {
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  luaL_loadstring(L, work);
  lua_pushstring(L, root);
  lua_pushstring(L, libdir);
  lua_pushinteger(L, rounds);
  lua_pushcfunction(L, swap);
  if (lua_pcall(L, 4, 0, 0)) {
    fprintf(stderr, "%s\n", lua_tostring(L, -1));
    __atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);
  }
  lua_close(L);
  return argument;
}

int main(int argc, char **argv) {
  pthread_t threads[THREADS];
  if (argc < 3) return 2;
  root = argv[1];
  libdir = argv[2];
  if (argc > 3) rounds = atoi(argv[3]);
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, computes, NULL);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  printf("%d failures\n", failures);
  return failures != 0;
}
