/* faults.c -- hosts that treat Moth badly, or that have little to give: one case each.
**
** Usage: faults ROOT LIBDIR CASE. Built and run by spec/hosts/faults_spec.lua. Prints "fine" or the
** first problem.
*/
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <lauxlib.h>
#include <lualib.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../core/moth.h"

static const char *root, *libdir;

static void fail(const char *what) {
  printf("%s\n", what);
  fflush(stdout);
  _exit(1);
}

static const char setup[] =
    "local root, libdir = ...\n"
    "package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path\n"
    "package.cpath = libdir .. '/?.so;' .. package.cpath\n"
    "moth = require 'moth'\n"
    "moth.set_num_threads(4)\n"
    "local a = moth.ones(384, 384)\n"
    "function product()\n" /* uses the pool */
    "  local y = a:matmul(a)\n"
    "  assert(y[1][1]:item() == 384 and y[384][384]:item() == 384)\n"
    "end\n";

static void run(lua_State *L, const char *code) {
  if (luaL_loadstring(L, code) || lua_pcall(L, 0, 0, 0)) fail(lua_tostring(L, -1));
}

static lua_State *state_new(void) {
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  luaL_loadstring(L, setup);
  lua_pushstring(L, root);
  lua_pushstring(L, libdir);
  if (lua_pcall(L, 2, 0, 0)) fail(lua_tostring(L, -1));
  return L;
}

static double resident_mib(void) {
  long pages = 0;
#ifdef __SANITIZE_ADDRESS__
  return 0; /* AddressSanitizer keeps freed memory */
#endif
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%*s %ld", &pages) != 1) fail("no statm");
  fclose(file);
  return (double)(pages * sysconf(_SC_PAGESIZE)) / 1048576;
}

static int threads_of_process(void) {
  int n = 0;
  DIR *folder = opendir("/proc/self/task");
  for (struct dirent *entry; folder && (entry = readdir(folder));) n += entry->d_name[0] != '.';
  if (folder) closedir(folder);
  return n;
}

/* -- a state that is closed while a backward pass waits in a hook, or is paused -- */

static const char waiting[] =
    "local w = moth.ones(64, 64):requires_grad_()\n"
    "local y = w:matmul(w)\n"
    "y:register_hook(function() coroutine.yield() end)\n"
    "resume = coroutine.wrap(function() y:sum():backward() end)\n"
    "resume()\n"
    "local x = moth.ones(200, 200):requires_grad_()\n"
    "function deep()\n"
    "  local z = x\n"
    "  for _ = 1, 300 do z = z:matmul(x) * 0.005 end\n"
    "  z:sum():backward()\n"
    "end\n"
    "assert(not moth.budget(1e-3, deep))\n";

static void backward(void) {
  double early = 0;
  for (int i = 0; i < 60; i++) {
    lua_State *L = state_new();
    run(L, waiting);
    lua_close(L);
    if (i == 20) early = resident_mib();
  }
  if (resident_mib() - early > 4) fail("each state leaves memory behind");
}

/* -- forks while the pool computes -- */

static int stop;

static void *compute(void *L) {
  while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) run(L, "product()");
  return NULL;
}

static void forks(void) {
  lua_State *busy = state_new(), *L = state_new();
  pthread_t thread;
  pthread_create(&thread, NULL, compute, busy);
  for (int i = 0; i < 30; i++) {
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      run(L, "product()");
      _exit(0);
    }
    waitpid(child, &status, 0);
    if (status) fail("a child failed");
  }
  __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
  pthread_join(thread, NULL);
  run(L, "product()");
}

/* -- a library that is loaded and unloaded, with its pool -- */

#define FUNCTION(name) __typeof__(name) *const f_##name = (__typeof__(name) *)dlsym(library, #name)

static void load_once(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  static float ones[256 * 256];
  const int64_t shape[2] = {256, 256};
  moth_slot args[2], y;
  moth_handle out;
  if (!library) fail(dlerror());
  FUNCTION(moth_open);
  FUNCTION(moth_close);
  FUNCTION(moth_call);
  FUNCTION(moth_op_find);
  FUNCTION(moth_from_bytes);
  FUNCTION(moth_read);
  moth_ctx *ctx = f_moth_open();
  for (int i = 0; i < 256 * 256; i++) ones[i] = 1;
  f_moth_from_bytes(ctx, MOTH_F32, shape, 2, ones, sizeof ones, &args[0].handle);
  args[1] = args[0];
  if (f_moth_call(ctx, f_moth_op_find("matmul"), args, 2, 3, &out, 1) < 0 ||
      f_moth_read(ctx, &out, 0, 1, &y) < 0 || y.number != 256)
    fail("a wrong product");
  f_moth_close(ctx);
  dlclose(library);
}

static void unload(void) {
  char path[4096];
  double early = 0;
  int threads = 0;
  snprintf(path, sizeof path, "%s/libmoth.so", libdir);
  for (int i = 0; i < 1000; i++) {
    load_once(path);
    if (i == 100) early = resident_mib(), threads = threads_of_process();
  }
  if (resident_mib() - early > 2) fail("memory grows");
  if (threads_of_process() != threads) fail("threads are left");
}

/* -- the host's signal handlers, its alternate stack and its mask -- */

static pthread_t host;
static int handled, elsewhere;

static void handler(int number) {
  handled++, (void)number;
  if (!pthread_equal(pthread_self(), host)) elsewhere++;
}

static const char files[] =
    "local name = os.tmpname()\n"
    "for i = 1, 150 do\n"
    "  moth.save({x = moth.full({3000}, i)}, name)\n"
    "  assert(moth.load(name).x[3000]:item() == i)\n"
    "  product()\n"
    "end\n"
    "local set = moth.data.TensorDataset(moth.ones(8, 2))\n"
    "for _ = 1, 5 do\n"
    "  for _ in moth.data.DataLoader(set, {batch_size = 2, num_workers = 2}) do end\n"
    "end\n"    "os.remove(name)\n";

static void signals(void) {
  static char memory[1 << 16];
  const stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK}, now;
  sigset_t mask, mask_now;
  stack_t stack_now;
  host = pthread_self();
  sigaltstack(&stack, NULL);
  for (int s = 1; s < 32; s++) sigaction(s, &action, NULL);
  sigemptyset(&mask);
  sigaddset(&mask, SIGUSR2);
  pthread_sigmask(SIG_SETMASK, &mask, NULL);
  setitimer(ITIMER_REAL, &(struct itimerval){{0, 1000}, {0, 1000}}, NULL);
  lua_State *L = state_new();
  run(L, files);
  lua_close(L);
  setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
  for (int s = 1; s < 32; s++)
    if (s != SIGKILL && s != SIGSTOP && (sigaction(s, NULL, &now) || now.sa_handler != handler))
      fail("another handler");
  sigaltstack(NULL, &stack_now);
  if (stack_now.ss_sp != memory || stack_now.ss_size != sizeof memory) fail("another stack");
  pthread_sigmask(SIG_SETMASK, NULL, &mask_now);
  for (int s = 1; s < 32; s++)
    if (sigismember(&mask, s) != sigismember(&mask_now, s)) fail("another mask");
  if (handled < 10) fail("too few signals");
  if (elsewhere) fail("a handler ran in a thread of the pool");
}

/* -- a system that starts no threads -- */

static int refuse_threads;

/* Takes the place of the C library's function. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                   void *argument) {
  int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  *(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
  return refuse_threads ? refuse_threads++, EAGAIN : next(thread, attributes, start, argument);
}

static void no_threads(void) {
  refuse_threads = 1;
  lua_State *L = state_new();
  run(L, "for _ = 1, 20 do product() end");
  lua_close(L);
  if (refuse_threads == 1) fail("no thread was requested");
}

/* -- two threads in one context -- */

static struct {
  moth_ctx *ctx;
  const moth_op *product;
  moth_slot args[2];
  int32_t (*call)(moth_ctx *, const moth_op *, const moth_slot *, uint32_t, uint64_t,
                  moth_handle *, uint32_t);
  const char *(*message)(moth_ctx *, int32_t);
  int32_t (*release)(moth_ctx *, const moth_handle *);
  int inside;
} shared;

/* Multiplies once. Returns true if the context was busy. */
static int multiplies(void) {
  moth_handle y;
  const int32_t status = shared.call(shared.ctx, shared.product, shared.args, 2, 3, &y, 1);
  if (status >= 0) {
    shared.release(shared.ctx, &y);
    return 0;
  }
  if (!strstr(shared.message(shared.ctx, 0), "another thread")) fail("another message");
  return 1;
}

static void *first_thread(void *busy) {
  __atomic_store_n(&shared.inside, 1, __ATOMIC_SEQ_CST);
  *(int *)busy = multiplies();
  __atomic_store_n(&shared.inside, 0, __ATOMIC_SEQ_CST);
  return NULL;
}

/* The thread that comes second gets an error. After that the context may be used by any thread. */
static void two_threads(void) {
  enum { N = 1024 };
  static float numbers[N * N];
  const int64_t shape[] = {N, N};
  char path[4096];
  snprintf(path, sizeof path, "%s/libmoth.so", libdir);
  void *library = dlopen(path, RTLD_NOW);
  if (!library) fail(dlerror());
#define FIND(to, name) *(void **)(void *)&(to) = dlsym(library, name)
  moth_ctx *(*open)(void);
  const moth_op *(*find)(const char *);
  int32_t (*from_bytes)(moth_ctx *, int32_t, const int64_t *, int32_t, const void *, int64_t,
                        moth_handle *);
  void (*close)(moth_ctx *);
  FIND(open, "moth_open"), FIND(find, "moth_op_find"), FIND(from_bytes, "moth_from_bytes");
  FIND(close, "moth_close"), FIND(shared.call, "moth_call"), FIND(shared.message, "moth_error");
  FIND(shared.release, "moth_free");
  shared.ctx = open();
  shared.product = find("matmul");
  for (int i = 0; i < 2; i++)
    if (from_bytes(shared.ctx, MOTH_F32, shape, 2, numbers, sizeof numbers,
                   &shared.args[i].handle) < 0)
      fail("no tensor");
  int met = 0;
  for (int round = 0; round < 1000 && !met; round++) {
    pthread_t thread;
    int busy = 0;
    pthread_create(&thread, NULL, first_thread, &busy);
    while (!__atomic_load_n(&shared.inside, __ATOMIC_SEQ_CST)) sched_yield();
    usleep(2000);
    if (__atomic_load_n(&shared.inside, __ATOMIC_SEQ_CST)) met = multiplies();
    pthread_join(thread, NULL);
    met |= busy;
  }
  if (!met) fail("no error");
  if (multiplies()) fail("the context stays busy");
  close(shared.ctx);
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(void);
  } cases[] = {{"backward", backward}, {"forks", forks}, {"unload", unload},
               {"signals", signals}, {"no_threads", no_threads},
               {"two_threads", two_threads}};
  if (argc < 4) return 2;
  root = argv[1], libdir = argv[2];
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
    if (!strcmp(cases[i].name, argv[3])) {
      cases[i].run();
      printf("fine\n");
      return 0;
    }
  return 2;
}
