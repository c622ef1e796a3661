/* frame.c -- a game with a model: a moth follows a lamp, steered by the network of brain.lua.
**
**     frame [frames = 100000] [brain.lua] [brain.safetensors]
**
** At the start the script makes three errors: a Lua error, an allocation above its memory limit,
** and an endless loop. Each prints a message, and the game continues. At the end the program
** prints the memory of the process, early and late, and the time of a frame.
*/
#include <lauxlib.h>
#include <lualib.h>
#include <math.h>
#include <moth.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static double microseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static double resident_mib(void) {
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%*s %ld", &pages) != 1) pages = 0;
  if (file) fclose(file);
  return (double)(pages * sysconf(_SC_PAGESIZE)) / 1048576;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Finishes a call of the script: keeps the results on the stack, or prints the error. */
static int done(lua_State *L, const char *what, int status) {
  if (status != 0) printf("%s: %s\n", what, lua_tostring(L, -1));
  return status == 0;
}

static int lua(lua_State *L, const char *code) {
  return done(L, "lua", luaL_loadstring(L, code) || lua_pcall(L, 0, 0, 0));
}

/* brain[name](numbers); the module `brain` is at the bottom of the stack. */
static int ask(lua_State *L, const char *name, int n, const double *numbers, int results) {
  lua_settop(L, 1);
  lua_getfield(L, 1, name);
  for (int i = 0; i < n; i++) lua_pushnumber(L, numbers[i]);
  return done(L, name, lua_pcall(L, n, results, 0));
}

static void time_is_up(int number) { moth_interrupt(), (void)number; } /* the next op fails */

static void make_mistakes(lua_State *L) {
  ask(L, "confused", 0, NULL, 0);
  ask(L, "greedy", 0, NULL, 0);
  lua(L, "moth.collect() moth.empty_cache()"); /* returns memory to the system */
  signal(SIGALRM, time_is_up);
  setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {.tv_usec = 20000}}, NULL);
  ask(L, "lost", 0, NULL, 0);
}

int main(int argc, char **argv) {
  long frames = argc > 1 ? atol(argv[1]) : 100000;
  double *cost = malloc((size_t)frames * sizeof *cost), early = 0;
  lua_State *L = luaL_newstate();
  if (frames < 1 || frames > 1 << 28 || !cost || !L) return 1;
  memset(cost, 255, (size_t)frames * sizeof *cost); /* allocates the pages before the measurement */
  luaL_openlibs(L);
  /* Limits of the script: bytes; and unreferenced tensors before a collection. */
  lua(L, "moth = require 'moth' moth.set_memory_limit(2^26) moth.set_memory_floor(2^20, 1024)");
  if (!done(L, "frame", luaL_dofile(L, argc > 2 ? argv[2] : "brain.lua"))) return 1;
  lua_getfield(L, 1, "wake");
  lua_pushstring(L, argc > 3 ? argv[3] : "brain.safetensors");
  if (!done(L, "wake", lua_pcall(L, 1, 0, 0))) return 1;

  double at[2] = {0, 0}, speed[2] = {0, 0}, lamp[2] = {1, 0};
  for (long i = 0; i < frames; i++) {
    if (i + 1 == 1000) early = resident_mib();
    if (i == 500) make_mistakes(L);
    double began = microseconds(), seen[] = {lamp[0] - at[0], lamp[1] - at[1], speed[0], speed[1]};
    if (!ask(L, "frame", 4, seen, 2)) return 1;
    for (int d = 0; d < 2; d++) at[d] += 0.02 * (speed[d] += 0.06 * lua_tonumber(L, 2 + d));
    lamp[0] = cos(0.003 * (double)i), lamp[1] = sin(0.003 * (double)i);
    cost[i] = microseconds() - began;
  }
  printf("resident: %.1f MiB at frame 1000, %.1f at frame %ld\n", early, resident_mib(), frames);
  qsort(cost, (size_t)frames, sizeof *cost, ascending);
  printf("a frame: %.1f us median, %.1f us worst\n", cost[frames / 2], cost[frames - 1]);
  printf("the moth is %.2f from the lamp\n", hypot(lamp[0] - at[0], lamp[1] - at[1]));
  lua_close(L);
  free(cost);
}
