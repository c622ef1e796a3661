/* threads.c -- eight threads, each with a Lua state, run one network on one copy of its weights.
**
**     threads [threads.lua]
**
** The main state owns the weights and sends them as tokens. All threads compute an output. Then the
** main state changes the weights, and all threads compute the output again. At the end the program
** prints the memory that the eight additional states needed.
*/
#ifdef __cplusplus
#include <lua.hpp>
#else
#include <lauxlib.h>
#include <lualib.h>
#endif
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 8 };

typedef struct worker {
  pthread_t thread;
  lua_State *L;
  const char *tokens;
  double before, after; /* outputs, with the old and the new weights */
} worker;

static const char *script = "threads.lua";
static pthread_barrier_t computed, changed;

static void check(lua_State *L, int status) {
  if (status == 0) return;
  fprintf(stderr, "%s\n", lua_tostring(L, -1));
  exit(1);
}

/* A state with the script's module at the bottom of its stack. */
static lua_State *state_new(void) {
  lua_State *L = luaL_newstate();
  if (!L) exit(1);
  luaL_openlibs(L);
  check(L, luaL_dofile(L, script));
  return L;
}

/* Calls module[name] with n arguments (0 or 1) from the stack; leaves the result on the stack. */
static void call(lua_State *L, const char *name, int n) {
  lua_getfield(L, 1, name);
  lua_insert(L, -1 - n);
  check(L, lua_pcall(L, n, 1, 0));
}

static double think(lua_State *L) {
  lua_pushnumber(L, 0.1);
  call(L, "think", 1);
  const double output = lua_tonumber(L, -1);
  lua_settop(L, 1);
  return output;
}

static void *run(void *argument) {
  worker *w = (worker *)argument;
  w->L = state_new(); /* a state is used by one thread at a time */
  lua_pushstring(w->L, w->tokens);
  call(w->L, "borrow", 1);
  w->before = think(w->L);
  pthread_barrier_wait(&computed);
  pthread_barrier_wait(&changed); /* nobody reads the weights while they change */
  w->after = think(w->L);
  return NULL;
}

static double resident_mib(void) {
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%*s %ld", &pages) != 1) pages = 0;
  if (file) fclose(file);
  return (double)(pages * sysconf(_SC_PAGESIZE)) / 1048576;
}

int main(int argc, char **argv) {
  worker workers[THREADS];
  if (argc > 1) script = argv[1];
  lua_State *L = state_new();
  call(L, "create", 0);
  const double output = think(L), resident = resident_mib();
  pthread_barrier_init(&computed, NULL, THREADS + 1);
  pthread_barrier_init(&changed, NULL, THREADS + 1);
  for (int i = 0; i < THREADS; i++) {
    call(L, "lend", 0); /* a token is opened once, so each thread has its own */
    workers[i].tokens = lua_tostring(L, -1);
    if (pthread_create(&workers[i].thread, NULL, run, &workers[i])) return 1;
  }
  pthread_barrier_wait(&computed);
  call(L, "change", 0);
  pthread_barrier_wait(&changed);
  int equal = 0;
  for (int i = 0; i < THREADS; i++) {
    pthread_join(workers[i].thread, NULL);
    equal += workers[i].before == output && workers[i].after == 2 * output;
  }
  printf("%d of %d threads have the outputs of the main state\n", equal, THREADS);
  printf("resident: %.1f MiB with one state, %.1f with %d more\n", resident, resident_mib(),
         THREADS);
  for (int i = 0; i < THREADS; i++) lua_close(workers[i].L);
  lua_close(L);
  return 0;
}
