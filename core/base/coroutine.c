/* coroutine.c -- each coroutine has its own modes and scopes. Modes: grad mode, autocast, anomaly
** mode, the GPU that "cuda" means.
**
** A mode that no_grad and other functions set belongs to the coroutine that called them. It holds
** while that coroutine is on the C stack: while it runs, and while it waits for a coroutine that it
** resumed. If several set a mode, the innermost one holds; the modes of the main coroutine come
** last. While a coroutine sleeps, its modes have no effect on others. (PEP 568 proposes this for
** generators of Python.)
**
** C code may resume coroutines (a web server's event loop does), so no Lua function sees each
** switch. Instead the core reads the running coroutine from LuaJIT's global state (`cur_L`). A
** search finds the offset of that field once: the core reads the state in several known coroutines.
** The field is read only while a coroutine other than the main one has set a mode or a scope.
** Otherwise every entry point tests one number.
**
** A coroutine may be collected, or reset and used for other code (lua_resetthread), inside no_grad.
** Then its address identifies nothing. So its record has a probe: an open upvalue of Lua that holds
** a token while that call of no_grad is on the coroutine's stack.
*/
#include "coroutine.h"
#include "error.h"
#include "alloc.h"
#include "call/autocast.h"

#include "call/frame.h"

typedef struct moth_coroutine {
  const char *state;      /* its lua_State */
  const char *probe;      /* a GCupval, open while the record is valid; NULL: not needed */
  uint64_t token;         /* the value of the upvalue, as bits */
  bool held;              /* the host keeps the coroutine and reports its end */
  int32_t own[MOTH_MODES];
  uint32_t scope;         /* its own innermost scope, or 0 */
} moth_coroutine;

#define MOST_OFFSETS 96 /* searched words of global_State: cur_L is at 47 to 60 */

struct moth_coroutines {
  moth_coroutine *at;
  uint32_t capacity;
  bool known;             /* the fields below are found */
  bool wide;              /* GC64: references have 8 bytes, else 4 */
  const char *global;     /* global_State */
  const char *main;       /* the main coroutine */
  uint32_t current;       /* offset of cur_L in global_State */
  uint8_t turns;          /* states that the search has seen */
  bool out[2 * MOST_OFFSETS];
};

/* -- reading LuaJIT's structs. Their first fields are the same in all of LuaJIT 2.1. -- */

static uintptr_t read_word(const char *at) {
  uintptr_t v;
  memcpy(&v, at, sizeof v);
  return v;
}

static uintptr_t read_reference(const char *at, bool wide) {
  uint32_t v;
  if (wide) return read_word(at);
  memcpy(&v, at, sizeof v);
  return v;
}

static const char *global_of(const char *state, bool wide) {
  return (const char *)read_reference(state + (wide ? 16 : 8), wide);
}

/* The address of the coroutine's frame on the C stack. 0: it sleeps or has ended. Inner frames have
** lower addresses. */
static uintptr_t frame_of(const char *state, bool wide) {
  return read_word(state + (wide ? 80 : 48)) & ~(uintptr_t)3;
}

static bool probe_open(const char *probe, bool wide, uint64_t token) {
  uint64_t found;
  if (probe[wide ? 10 : 6]) return false;
  const char *slot = (const char *)read_reference(probe + (wide ? 32 : 16), wide);
  memcpy(&found, slot, sizeof found);
  return found == token;
}

static const char *running(const struct moth_coroutines *c) {
  return (const char *)read_reference(c->global + c->current, c->wide);
}

/* -- the search for cur_L -- */

enum { SEARCH_TURNS = 6 };

/* LuaJIT allocates the main coroutine and the global state in one block, in this order, and stores
** a reference to the main coroutine in the global state. */
static const char *find_main(const char *global, bool wide) {
  const size_t step = wide ? 8 : 4;
  for (size_t i = 0; i < (wide ? 1 : 2) * MOST_OFFSETS; i++) {
    const char *m = (const char *)read_reference(global + i * step, wide);
    const ptrdiff_t before = global - m;
    if (before >= 64 && before <= 256 && before % 8 == 0 && global_of(m, wide) == global) return m;
  }
  return NULL;
}

static bool on_this_stack(uintptr_t frame) {
  char here = 0;
  const uintptr_t at = (uintptr_t)&here;
  return here == 0 && frame > at && frame - at < ((uintptr_t)1 << 20);
}

/* Checks that `state` runs and is the innermost on the stack, and that `sleeper` sleeps. */
static bool looks_right(const struct moth_coroutines *c, const char *state, const char *sleeper,
                        const char *outer) {
  const uintptr_t frame = frame_of(state, c->wide);
  return global_of(state, c->wide) == c->global && on_this_stack(frame) &&
         (!sleeper || (global_of(sleeper, c->wide) == c->global && !frame_of(sleeper, c->wide))) &&
         (!outer || frame_of(outer, c->wide) > frame);
}

int32_t moth_coroutine_find(moth_ctx *ctx, int32_t wide, const void *state, const void *sleeper,
                            const void *outer) {
  MOTH_NEED(ctx, state && sleeper, MOTH_E_ARG);
  struct moth_coroutines *c = ctx->coroutines;
  if (ctx->closed) return moth_fail_closed(ctx);
  if (c && c->known) return 1;
  if (!c) {
    c = moth_alloc(ctx, sizeof *c);
    if (!c) return ctx->error.code;
    memset(c, 0, sizeof *c);
    c->wide = wide != 0;
    c->global = global_of(state, c->wide);
    ctx->coroutines = c;
    if (c->global && (uintptr_t)c->global % 8 == 0 && sleeper &&
        global_of(sleeper, c->wide) == c->global)
      c->main = find_main(c->global, c->wide);
  }
  if (!c->main || !looks_right(c, state, sleeper, outer)) return 0;
  uint32_t left = 0;
  const uint32_t step = c->wide ? 8 : 4, n = (c->wide ? 1 : 2) * MOST_OFFSETS;
  for (uint32_t i = 0; i < n; i++) {
    if (c->out[i]) continue;
    if (read_reference(c->global + i * step, c->wide) != (uintptr_t)state) {
      c->out[i] = true;
      continue;
    }
    c->current = i * step;
    left++;
  }
  c->known = ++c->turns >= SEARCH_TURNS && left == 1;
  return c->known;
}

int32_t moth_coroutine_probe(moth_ctx *ctx, const void *probe, double token) {
  MOTH_NEED(ctx, probe, MOTH_E_ARG);
  uint64_t bits;
  memcpy(&bits, &token, sizeof bits);
  return ctx->coroutines && probe && probe_open(probe, ctx->coroutines->wide, bits);
}

/* -- records -- */

static void drop(moth_ctx *ctx, moth_coroutine *r) {
  struct moth_coroutines *c = ctx->coroutines;
  const uint32_t scope = r->scope;
  const bool casts = r->own[MOTH_MODE_AUTOCAST] != MOTH_UNSET;
  *r = c->at[--ctx->ncoroutines];
  if (scope) moth_scope_abandon(ctx, scope);
  if (casts) moth_autocast_forget(ctx);
}

static void drop_dead(moth_ctx *ctx) {
  struct moth_coroutines *c = ctx->coroutines;
  for (uint32_t i = 0; i < ctx->ncoroutines;) {
    moth_coroutine *r = &c->at[i];
    if (r->probe && !r->held && !probe_open(r->probe, c->wide, r->token)) drop(ctx, r);
    else i++;
  }
}

static moth_coroutine *find(const moth_ctx *ctx, const char *state) {
  for (uint32_t i = 0; i < ctx->ncoroutines; i++)
    if (ctx->coroutines->at[i].state == state) return &ctx->coroutines->at[i];
  return NULL;
}

static bool is_empty(const moth_coroutine *r) {
  for (int k = 0; k < MOTH_MODES; k++)
    if (r->own[k] != MOTH_UNSET) return false;
  return !r->scope && !r->probe && !r->held;
}

/* Finds or adds the record of the running coroutine. Returns NULL with an error set. */
static moth_coroutine *need(moth_ctx *ctx) {
  struct moth_coroutines *c = ctx->coroutines;
  const char *state = running(c);
  drop_dead(ctx);
  moth_coroutine *r = find(ctx, state);
  if (r) return r;
  if (moth_grow(ctx, &c->at, ctx->ncoroutines, &c->capacity, sizeof *c->at)) return NULL;
  r = &c->at[ctx->ncoroutines++];
  *r = (moth_coroutine){.state = state};
  for (int k = 0; k < MOTH_MODES; k++) r->own[k] = MOTH_UNSET;
  return r;
}

static bool in_main(const moth_ctx *ctx) {
  const struct moth_coroutines *c = ctx->coroutines;
  return !c || !c->known || running(c) == c->main;
}

void moth_coroutines_free(moth_ctx *ctx) {
  struct moth_coroutines *c = ctx->coroutines;
  if (!c) return;
  moth_dealloc(ctx, c->at, c->capacity * (int64_t)sizeof *c->at);
  moth_dealloc(ctx, c, sizeof *c);
  ctx->coroutines = NULL;
  ctx->ncoroutines = 0;
}

/* -- modes and scopes of the running coroutine -- */

/* The innermost record on the C stack outside of `frame`; sets *frame to the record's frame. */
static const moth_coroutine *outward(const moth_ctx *ctx, uintptr_t *frame) {
  const struct moth_coroutines *c = ctx->coroutines;
  const moth_coroutine *found = NULL;
  uintptr_t best = UINTPTR_MAX;
  for (uint32_t i = 0; i < ctx->ncoroutines; i++) {
    const uintptr_t at = frame_of(c->at[i].state, c->wide);
    if (at <= *frame || at >= best) continue;
    found = &c->at[i];
    best = at;
  }
  *frame = best;
  return found;
}

static void load(moth_ctx *ctx, const int32_t *modes) {
  ctx->grad_mode = modes[MOTH_MODE_GRAD] != 0;
  ctx->autocast = modes[MOTH_MODE_AUTOCAST];
  ctx->anomaly = modes[MOTH_MODE_ANOMALY] != 0;
  ctx->gpu = modes[MOTH_MODE_GPU];
}

/* Returns the only record if it belongs to the running coroutine, the usual case; else NULL. */
static const moth_coroutine *alone(const moth_ctx *ctx) {
  const struct moth_coroutines *c = ctx->coroutines;
  const moth_coroutine *r = c->at;
  if (ctx->ncoroutines != 1 || r->state != running(c)) return NULL;
  return !r->probe || r->held || probe_open(r->probe, c->wide, r->token) ? r : NULL;
}

void moth_coroutines_settle_now(moth_ctx *ctx) {
  int32_t modes[MOTH_MODES];
  uintptr_t frame = 0;
  const moth_coroutine *r = alone(ctx);
  for (int k = 0; k < MOTH_MODES; k++) modes[k] = r ? r->own[k] : MOTH_UNSET;
  if (!r) {
    drop_dead(ctx);
    while ((r = outward(ctx, &frame)))
      for (int k = 0; k < MOTH_MODES; k++)
        if (modes[k] == MOTH_UNSET) modes[k] = r->own[k];
  }
  for (int k = 0; k < MOTH_MODES; k++)
    if (modes[k] == MOTH_UNSET) modes[k] = ctx->base.modes[k];
  load(ctx, modes);
}

uint32_t moth_coroutines_scope_now(moth_ctx *ctx) {
  uintptr_t frame = 0;
  const moth_coroutine *r = alone(ctx);
  if (r) return r->scope ? r->scope : ctx->base.scope;
  drop_dead(ctx);
  while ((r = outward(ctx, &frame)))
    if (r->scope) return r->scope;
  return ctx->base.scope;
}

uint32_t moth_scope_around(moth_ctx *ctx, uint32_t scope) {
  uintptr_t frame = 0;
  bool found = false;
  if (ctx->scopes[scope].outer) return ctx->scopes[scope].outer;
  for (const moth_coroutine *r; (r = outward(ctx, &frame));) {
    if (found && r->scope) return r->scope;
    found |= r->scope == scope;
  }
  return found ? ctx->base.scope : 0;
}

void moth_coroutines_tidy(moth_ctx *ctx) {
  moth_coroutine *r = ctx->ncoroutines ? find(ctx, running(ctx->coroutines)) : NULL;
  if (r && is_empty(r)) drop(ctx, r);
}

uint32_t *moth_own_scope(moth_ctx *ctx) {
  if (in_main(ctx)) return &ctx->base.scope;
  moth_coroutine *r = need(ctx);
  return r ? &r->scope : NULL;
}

/* -- functions of moth_lua.h -- */

static int32_t is_inside(moth_ctx *ctx) {
  if (!ctx->ncoroutines) return 0;
  drop_dead(ctx);
  const moth_coroutine *r = find(ctx, running(ctx->coroutines));
  return r && (r->probe || r->held);
}

static int32_t mode_now(moth_ctx *ctx, int32_t which) {
  if (which == MOTH_MODE_INSIDE) return is_inside(ctx);
  moth_settle_modes(ctx);
  return which == MOTH_MODE_GRAD       ? ctx->grad_mode
         : which == MOTH_MODE_AUTOCAST ? ctx->autocast
         : which == MOTH_MODE_ANOMALY  ? ctx->anomaly
                                       : ctx->gpu;
}

static int32_t set_main(moth_ctx *ctx, int32_t which, int32_t value) {
  const int32_t old = ctx->base.modes[which];
  if (value != MOTH_UNSET) ctx->base.modes[which] = value;
  if (ctx->ncoroutines) moth_coroutines_settle_now(ctx);
  else load(ctx, ctx->base.modes);
  return old;
}

int32_t moth_mode(moth_ctx *ctx, int32_t which, int32_t value) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  if (which < 0 || which > MOTH_MODES || (which == MOTH_MODES && value != MOTH_ASK))
    return moth_fail(ctx, MOTH_E_ARG, "which", "there is no mode %d", which);
  if (value == MOTH_ASK) return mode_now(ctx, which);
  int32_t old;
  if (in_main(ctx)) {
    old = set_main(ctx, which, value);
  } else {
    moth_coroutine *r = need(ctx);
    if (!r) return ctx->error.code;
    old = r->own[which];
    r->own[which] = value;
    if (is_empty(r)) drop(ctx, r);
    moth_coroutines_settle_now(ctx);
  }
  if (which == MOTH_MODE_AUTOCAST && ctx->autocast == MOTH_NO_DTYPE) moth_autocast_forget(ctx);
  return old;
}

int32_t moth_coroutine_enter(moth_ctx *ctx, const void *probe, double token) {
  MOTH_NEED(ctx, probe, MOTH_E_ARG);
  if (ctx->closed) return moth_fail_closed(ctx);
  if (!ctx->coroutines || !ctx->coroutines->known || in_main(ctx) ||
      !moth_coroutine_probe(ctx, probe, token))
    return moth_fail(ctx, MOTH_E_STATE, NULL, "this coroutine cannot be identified");
  moth_coroutine *r = need(ctx);
  if (!r) return ctx->error.code;
  r->probe = probe;
  memcpy(&r->token, &token, sizeof r->token);
  return MOTH_OK;
}

void moth_coroutine_leave(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, );
  moth_coroutine *r = ctx->ncoroutines ? find(ctx, running(ctx->coroutines)) : NULL;
  if (!r) return;
  if (r->held) r->probe = NULL;
  else drop(ctx, r); /* drops its modes, even if the function did not restore them */
  if (ctx->ncoroutines) moth_coroutines_settle_now(ctx);
  else load(ctx, ctx->base.modes);
}

int32_t moth_coroutine_hold(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  if (in_main(ctx)) return MOTH_OK;
  moth_coroutine *r = need(ctx);
  if (!r) return ctx->error.code;
  r->held = true;
  return MOTH_OK;
}

void moth_coroutine_forget(moth_ctx *ctx, const void *state) {
  MOTH_NEED(ctx, state, );
  moth_coroutine *r = ctx->ncoroutines ? find(ctx, state) : NULL;
  if (r) drop(ctx, r);
  if (ctx->ncoroutines) moth_coroutines_settle_now(ctx);
  else load(ctx, ctx->base.modes);
}

int32_t moth_coroutine_sweep(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  if (!ctx->ncoroutines) return 0;
  moth_coroutines_settle_now(ctx); /* drops records of dead coroutines */
  if (!ctx->ncoroutines) load(ctx, ctx->base.modes);
  return (int32_t)ctx->ncoroutines;
}

int32_t moth_coroutine_known(moth_ctx *ctx, double token) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  uint64_t bits;
  memcpy(&bits, &token, sizeof bits);
  for (uint32_t i = 0; i < ctx->ncoroutines; i++)
    if (ctx->coroutines->at[i].probe && ctx->coroutines->at[i].token == bits) return 1;
  return 0;
}
