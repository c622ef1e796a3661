/* sandbox.c -- the limits of a call into a sandbox (lua/moth/sandbox).
**
** moth_sandbox_call is a Lua C function: it calls a Lua function under a debug hook. The hook runs
** once in a few bytecode instructions and compares the clock and the size of Lua's heap with the
** limits of the guard. LuaJIT does not call hooks in compiled code, so the Lua side keeps the
** functions of a sandbox from being compiled. Kernels stop at the same time by the deadline of the
** context.
**
** After a limit is passed, the hook raises at each instruction of the sandbox's functions, so a
** pcall of the script does not catch the error for good. The hook never raises in other Lua code
** (Moth's, the host's): its data stay consistent. Such code runs until it calls an op, which fails,
** or returns to the script.
**
** The core links no Lua: the Lua functions are the host's. If the host does not export them,
** moth_sandbox_call returns nothing.
*/
#include <string.h>

#include "base/alloc.h"
#include "base/context.h"
#include "base/error.h"

typedef struct lua_State lua_State;

typedef struct lua_Debug { /* the ABI of Lua 5.1 and LuaJIT */
  int event;
  const char *name, *namewhat, *what, *source;
  int currentline, nups, linedefined, lastlinedefined;
  char short_src[60];
  int i_ci;
} lua_Debug;

typedef void (*lua_Hook)(lua_State *L, lua_Debug *ar);

#define WEAK __attribute__((weak))
WEAK int lua_sethook(lua_State *L, lua_Hook hook, int mask, int count);
WEAK lua_Hook lua_gethook(lua_State *L);
WEAK int lua_gethookmask(lua_State *L);
WEAK int lua_gethookcount(lua_State *L);
WEAK int lua_getinfo(lua_State *L, const char *what, lua_Debug *ar);
WEAK int lua_gc(lua_State *L, int what, int data);
WEAK int lua_pcall(lua_State *L, int nargs, int nresults, int handler);
WEAK int lua_gettop(lua_State *L);
WEAK double lua_tonumber(lua_State *L, int index);
WEAK void lua_pushboolean(lua_State *L, int value);
WEAK void lua_pushstring(lua_State *L, const char *text);
WEAK void lua_replace(lua_State *L, int index);
WEAK int lua_error(lua_State *L);

enum { MASK_COUNT = 8, GC_COLLECT = 2, GC_COUNT = 3, GC_COUNT_BYTES = 4, MULTIPLE = -1 };

#define STEP 32      /* instructions between two checks */
#define SLOW 100e-6  /* seconds: after a slower step each instruction is checked */
/* LuaJIT loses the hook for good when Lua's stack (65500 slots) overflows in the call of a hook. So
** a script's recursion ends before that. A call may push up to `depth` slots. */
#define DEEP 4000    /* slots: above them each instruction is checked */
#define DEEPEST 8000  /* each nested pcall catches the error of a limit again: 2 us each */
#define HANDLES 65536 /* tensors without an owner that may wait for a sweep */

static _Thread_local moth_limits *running; /* the innermost guard on this thread */

static int64_t heap(lua_State *L) {
  return (int64_t)lua_gc(L, GC_COUNT, 0) * 1024 + lua_gc(L, GC_COUNT_BYTES, 0);
}

/* Collects garbage before it decides that the heap has grown too much. The next collection runs
** after the heap has grown by an eighth of the limit at least. */
static bool heap_is_full(lua_State *L, moth_limits *g) {
  if (heap(L) <= g->check_at) return false;
  lua_gc(L, GC_COLLECT, 0);
  const int64_t now = heap(L), most = g->heap + g->bytes, more = now + g->bytes / 8;
  g->check_at = most > more ? most : more;
  return now > most;
}

static int32_t reached(lua_State *L, moth_limits *g, double now) {
  if (now >= g->until) return MOTH_GUARD_TIME;
  if (heap_is_full(L, g)) return MOTH_GUARD_MEMORY;
  if (g->ctx->live_slots > g->handles + HANDLES + g->bytes / 256) return MOTH_GUARD_MEMORY;
  return 0;
}

/* Is this function part of a sandbox? Chunks of scripts are named "@sandbox:...". */
static bool in_sandbox(const char *source) {
  static const char chunk[] = "@sandbox:";
  return !strncmp(source, chunk, sizeof chunk - 1) || strstr(source, "moth/sandbox/library");
}

static void raise(lua_State *L, lua_Debug *ar, const char *text) {
  if (!lua_getinfo(L, "S", ar) || !in_sandbox(ar->source)) return;
  lua_pushstring(L, text);
  lua_error(L);
}

static void watch(lua_State *L, lua_Debug *ar) {
  moth_limits *g = running;
  if (!g) return;
  const int depth = ar->i_ci & 0xffff; /* LuaJIT: the slot of the running function */
  if (!g->reason) {
    const double now = moth_seconds();
    const bool slow = depth > DEEP || now - g->last > SLOW;
    g->reason = reached(L, g, now);
    g->last = now;
    if (slow != g->slow && !g->reason) lua_sethook(L, watch, MASK_COUNT, slow ? 1 : STEP);
    g->slow = slow;
    if (!g->reason) {
      if (depth > DEEPEST) raise(L, ar, "stack overflow");
      return;
    }
    lua_sethook(L, watch, MASK_COUNT, 1);
    moth_deadline(g->ctx, now); /* ops fail from now on */
  }
  raise(L, ar, g->reason == MOTH_GUARD_TIME ? "sandbox: the time limit is reached"
                                            : "sandbox: the memory limit is reached");
}

static void enter(lua_State *L, moth_limits *g) {
  const moth_limits *outer = g->outer = running;
  moth_ctx *ctx = g->ctx;
  const double now = moth_seconds();
  g->until = now + g->seconds;
  if (ctx->deadline > 0 && ctx->deadline < g->until) g->until = ctx->deadline;
  g->heap = heap(L);
  g->check_at = g->heap + g->bytes;
  if (outer && outer->check_at < g->check_at) g->check_at = outer->check_at;
  g->handles = ctx->live_slots;
  g->last = now;
  g->slow = g->reason = 0;
  g->old_deadline = moth_deadline(ctx, g->until);
  g->old_limit = ctx->guard_bytes;
  const int64_t limit = ctx->mem.live_bytes + g->tensor_bytes;
  if (!g->old_limit || limit < g->old_limit) moth_guard_memory(ctx, limit);
  g->live = ctx->mem.live_bytes;
  running = g;
}

static void leave(lua_State *L, moth_limits *g) {
  running = g->outer;
  moth_deadline(g->ctx, g->old_deadline);
  moth_guard_memory(g->ctx, g->old_limit);
  g->grown = heap(L) - g->heap;
  g->live = g->ctx->mem.live_bytes - g->live;
  g->spent = moth_seconds() - (g->until - g->seconds);
}

static bool lua_is_there(void) {
  return lua_sethook && lua_gethook && lua_gethookmask && lua_gethookcount && lua_getinfo &&
         lua_gc && lua_pcall && lua_gettop && lua_tonumber && lua_pushboolean && lua_pushstring &&
         lua_replace && lua_error;
}

__attribute__((visibility("default"))) int moth_sandbox_call(lua_State *L);

/* Arguments: the address of a moth_limits as a number, a function and its arguments. Returns true
** and the results, or false and the error. Nothing yields across it. */
int moth_sandbox_call(lua_State *L) {
  if (!lua_is_there() || lua_gettop(L) < 2) return 0;
  moth_limits *g = (moth_limits *)(uintptr_t)lua_tonumber(L, 1); /* NOLINT */
  const lua_Hook hook = lua_gethook(L);
  const int mask = lua_gethookmask(L), count = lua_gethookcount(L);
  enter(L, g);
  lua_sethook(L, watch, MASK_COUNT, STEP);
  const int status = lua_pcall(L, lua_gettop(L) - 2, MULTIPLE, 0);
  leave(L, g);
  lua_sethook(L, hook, mask, count);
  lua_pushboolean(L, status == 0);
  lua_replace(L, 1);
  return lua_gettop(L);
}
