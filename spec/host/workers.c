/* workers.c -- a host whose scripts use DataLoaders with workers: states are closed in the middle
** of a pass, and no thread may remain.
**
** Usage: workers ROOT LIBDIR [rounds]. Built and run by spec/core/workers_spec.lua, also with a
** LuaJIT in the program itself, which libraries cannot find: there a loader raises for workers.
*/
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const char setup[] =
    "local root, libdir = ...\n"
    "package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. root .. '/?.lua;' ..\n"
    "  package.path\n"
    "package.cpath = libdir .. '/?.so;' .. package.cpath\n"
    "moth = require 'moth'\n"
    "local set = require('spec.support.sets').Squares(20)\n"
    "local fine, loader = pcall(moth.data.DataLoader, set, {batch_size = 2, num_workers = 2})\n"
    "if not fine then return print(moth.errcode(), loader) end\n"
    "step = loader:iter()\n"
    "assert(step()[2][1]:item() == 2)\n"
    "other = moth.data.DataLoader(set, {num_workers = 2, persistent_workers = true})\n"
    "for x in other do break end\n";

static int threads(void) {
  int n = 0;
  DIR *folder = opendir("/proc/self/task");
  while (folder && readdir(folder)) n++;
  if (folder) closedir(folder);
  return n - 2;
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  int failures = 0;
  for (int i = 0; i < (argc > 3 ? atoi(argv[3]) : 1); i++) {
    lua_State *L = luaL_newstate();
    luaL_openlibs(L);
    int status = luaL_loadstring(L, setup);
    lua_pushstring(L, argv[1]);
    lua_pushstring(L, argv[2]);
    if (status || lua_pcall(L, 2, 0, 0)) {
      fprintf(stderr, "%s\n", lua_tostring(L, -1));
      failures++;
    }
    int during = threads();
    lua_close(L);
    for (int k = 0; k < 200 && threads() > 1; k++) /* the system removes them a little later */
      nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    if (threads() > 1 || during < 1) {
      fprintf(stderr, "%d threads, %d after\n", during, threads());
      failures++;
    }
  }
  printf("%d failures\n", failures);
  return failures != 0;
}
