/* handles.c -- handles, scopes and sweeps: how Lua keeps and frees tensors.
**
** The slot table owns one reference per live handle. A slot belongs to the scope that was open when
** it was filled. The slots of a scope are chained, so closing a scope is one walk. Slots 1 to
** MOTH_NUMBER_SLOTS hold numbers as operands and are never handed out. The end of this file keeps
** the results of ops with any number of results until the caller takes them.
*/
#include "base/coroutine.h"
#include "device/device.h"
#include "autograd/tape.h"
#include "shape.h"
#include "base/error.h"
#include "base/alloc.h"
#include "handles.h"
#include "collect.h"
#include "tensor.h"

static int grow_slots(moth_ctx *ctx) {
  return moth_grow(ctx, &ctx->slots, ctx->nslots, &ctx->slot_capacity, sizeof *ctx->slots);
}

static void chain(moth_ctx *ctx, uint32_t i, uint32_t scope) {
  moth_entry *e = &ctx->slots[i];
  e->scope = scope;
  e->prev = e->next = 0;
  if (!scope) return;
  uint32_t *first = &ctx->scopes[scope].first;
  e->next = *first;
  if (*first) ctx->slots[*first].prev = i;
  *first = i;
}

static void unchain(moth_ctx *ctx, uint32_t i) {
  moth_entry *e = &ctx->slots[i];
  if (!e->scope) return;
  if (e->prev) ctx->slots[e->prev].next = e->next;
  else ctx->scopes[e->scope].first = e->next;
  if (e->next) ctx->slots[e->next].prev = e->prev;
  e->scope = 0;
}

int moth_hand_out(moth_ctx *ctx, moth_tensor *take, moth_handle *h) {
  if (take->slot) { /* return its handle */
    *h = (moth_handle){take->slot, ctx->slots[take->slot].gen};
    moth_tensor_release(take);
    return MOTH_OK;
  }
  uint32_t i = ctx->free_slot;
  if (i) {
    ctx->free_slot = ctx->slots[i].next;
  } else {
    if (ctx->nslots == ctx->slot_capacity && grow_slots(ctx)) {
      moth_tensor_release(take);
      return ctx->error.code;
    }
    i = ctx->nslots++;
    ctx->slots[i] = (moth_entry){.gen = 1};
  }
  moth_entry *e = &ctx->slots[i];
  e->tensor = take;
  take->slot = i;
  chain(ctx, i, moth_current_scope(ctx));
  ctx->live_slots++;
  *h = (moth_handle){i, e->gen};
  return MOTH_OK;
}

void moth_take_handle(moth_tensor *y, moth_tensor *x) {
  x->ctx->slots[x->slot].tensor = moth_tensor_retain(y);
  y->slot = x->slot;
  x->slot = 0;
  moth_tensor_release(x);
}

static void free_slot(moth_ctx *ctx, uint32_t i, uint32_t scope_id) {
  moth_entry *e = &ctx->slots[i];
  moth_tensor *x = e->tensor;
  unchain(ctx, i);
  e->tensor = NULL;
  e->gen++;
  e->died_in = scope_id;
  e->next = ctx->free_slot;
  ctx->free_slot = i;
  ctx->live_slots--;
  x->slot = 0;
  moth_tensor_release(x);
}

moth_tensor *moth_lookup(const moth_ctx *ctx, const moth_handle *h) {
  if (h->_slot >= ctx->nslots || h->_slot == 0) return NULL;
  const moth_entry *e = &ctx->slots[h->_slot];
  if (h->_slot <= MOTH_NUMBER_SLOTS && !(ctx->numbers >> h->_slot & 1)) return NULL;
  return e->gen == h->_gen ? e->tensor : NULL;
}

moth_tensor *moth_resolve_any(moth_ctx *ctx, const moth_handle *h, const char *arg) {
  moth_tensor *x = h ? moth_lookup(ctx, h) : NULL;
  if (!x) moth_fail(ctx, MOTH_E_STATE, arg, "this tensor was released");
  return x;
}

moth_tensor *moth_resolve(moth_ctx *ctx, const moth_handle *h, const char *arg) {
  moth_tensor *x = moth_resolve_any(ctx, h, arg);
  if (!x || !(x->flags & (MOTH_T_SPARSE | MOTH_T_SHAPELESS))) return x;
  if (x->flags & MOTH_T_SHAPELESS)
    moth_fail(ctx, MOTH_E_STATE, arg, "uninitialized until its layer's first call; run the net "
              "once before this");
  else
    moth_fail(ctx, MOTH_E_UNSUPPORTED, arg, "a dense tensor is needed, got %s; convert with "
              ":to_dense()", moth_str(x));
  return NULL;
}

int32_t moth_alive(moth_ctx *ctx, const moth_handle *x) {
  MOTH_NEED(ctx, x, 0);
  return moth_lookup(ctx, x) != NULL;
}

uint32_t moth_died_in(moth_ctx *ctx, const moth_handle *x) {
  MOTH_NEED(ctx, x, 0);
  return x->_slot < ctx->nslots ? ctx->slots[x->_slot].died_in : 0;
}

int32_t moth_free(moth_ctx *ctx, const moth_handle *x) {
  MOTH_NEED(ctx, x, MOTH_E_ARG);
  if (!moth_resolve_any(ctx, x, NULL)) return ctx->error.code;
  if (x->_slot <= MOTH_NUMBER_SLOTS)
    return moth_fail(ctx, MOTH_E_STATE, NULL, "the handle of a number cannot be freed");
  free_slot(ctx, x->_slot, 0);
  return MOTH_OK;
}

/* -- numbers as operands -- */

int32_t moth_number(moth_ctx *ctx, uint32_t which, int32_t type, const moth_slot *value) {
  MOTH_NEED(ctx, value, MOTH_E_ARG);
  if (ctx->closed) return moth_fail_closed(ctx);
  if (which < 1 || which > MOTH_NUMBER_SLOTS)
    return moth_fail(ctx, MOTH_E_ARG, NULL, "number %u of %d", which, MOTH_NUMBER_SLOTS);
  moth_tensor **at = &ctx->slots[which].tensor, *x = *at;
  int dtype = type == 0 ? MOTH_F64 : type == 1 ? MOTH_I64 : MOTH_BOOL;
  if (!x || x->refs > 1 || x->l.dtype != dtype || !moth_storage_unique(x->storage)) {
    moth_layout l = {.dtype = (uint8_t)dtype, .numel = 1};
    moth_tensor *fresh = moth_tensor_new(ctx, &l);
    if (!fresh) return ctx->error.code;
    if (x) x->slot = 0;
    moth_tensor_release(x);
    *at = x = fresh;
    x->slot = which;
  }
  ctx->numbers |= 1u << which;
  x->flags = MOTH_T_NUMBER;
  if (type == 0) {
    double v = value->number;
    memcpy(x->storage->data, &v, 8);
    if (v >= -9007199254740992.0 && v <= 9007199254740992.0 && v == (double)(int64_t)v)
      x->flags |= MOTH_T_WHOLE;
  } else if (type == 1) {
    memcpy(x->storage->data, &value->integer, 8);
    x->flags |= MOTH_T_WHOLE;
  } else {
    *x->storage->data = value->integer != 0;
  }
  return MOTH_OK;
}

/* -- scopes -- */

static int grow_scopes(moth_ctx *ctx) {
  return moth_grow(ctx, &ctx->scopes, ctx->nscopes + 1, &ctx->scope_capacity, sizeof *ctx->scopes);
}

uint32_t moth_scope_open(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, 0);
  uint32_t i = ctx->free_scope, *top = moth_own_scope(ctx);
  if (!top || (!i && ctx->nscopes + 1 == ctx->scope_capacity && grow_scopes(ctx))) return 0;
  if (i) ctx->free_scope = ctx->scopes[i].outer;
  else i = ++ctx->nscopes;
  if (++ctx->scope_id == 0) ctx->scope_id = 1;
  ctx->scopes[i] = (moth_frame){.id = ctx->scope_id, .outer = *top};
  *top = i;
  return ctx->scope_id;
}

static void free_scope(moth_ctx *ctx, uint32_t k) {
  ctx->scopes[k] = (moth_frame){.outer = ctx->free_scope};
  ctx->free_scope = k;
}

/* Frees the tensors of scope k. Gradients of live leaves move to the scope `around`. */
static void close_scope(moth_ctx *ctx, uint32_t k, uint32_t around) {
  uint32_t id = ctx->scopes[k].id, i = ctx->scopes[k].first;
  while (i) {
    moth_entry *e = &ctx->slots[i];
    uint32_t next = e->next;
    if ((e->tensor->flags & MOTH_T_IS_GRAD) && e->tensor->refs > 1) {
      unchain(ctx, i);
      chain(ctx, i, around);
    } else {
      free_slot(ctx, i, id);
    }
    i = next;
  }
  free_scope(ctx, k);
}

int32_t moth_scope_close(moth_ctx *ctx, uint32_t scope) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  uint32_t *top = moth_own_scope(ctx), k = top ? *top : 0;
  while (k && ctx->scopes[k].id != scope) k = ctx->scopes[k].outer;
  if (!k && top && top != &ctx->base.scope) { /* opened before coroutines were distinguished */
    top = &ctx->base.scope;
    for (k = *top; k && ctx->scopes[k].id != scope;) k = ctx->scopes[k].outer;
  }
  if (!k) return moth_fail(ctx, MOTH_E_STATE, NULL, "this scope is closed already");
  for (uint32_t next = 0; next != k;) {
    next = *top;
    const uint32_t around = moth_scope_around(ctx, next);
    *top = ctx->scopes[next].outer;
    close_scope(ctx, next, around);
  }
  moth_coroutines_tidy(ctx);
  moth_lower_goal(ctx);
  return MOTH_OK;
}

void moth_scope_abandon(moth_ctx *ctx, uint32_t scope) {
  while (scope) {
    const uint32_t outer = ctx->scopes[scope].outer;
    for (uint32_t i; (i = ctx->scopes[scope].first);) unchain(ctx, i);
    free_scope(ctx, scope);
    scope = outer;
  }
}

static int32_t move_to(moth_ctx *ctx, const moth_handle *x, uint32_t scope) {
  if (!moth_resolve_any(ctx, x, NULL)) return ctx->error.code;
  if (x->_slot <= MOTH_NUMBER_SLOTS) return MOTH_OK;
  unchain(ctx, x->_slot);
  chain(ctx, x->_slot, scope);
  return MOTH_OK;
}

int32_t moth_keep(moth_ctx *ctx, const moth_handle *x) {
  MOTH_NEED(ctx, x, MOTH_E_ARG);
  if (!moth_resolve_any(ctx, x, NULL)) return ctx->error.code;
  uint32_t scope = ctx->slots[x->_slot].scope;
  /* only from the innermost scope; a tensor of an outer scope stays there */
  return scope && scope == moth_current_scope(ctx)
           ? move_to(ctx, x, moth_scope_around(ctx, scope)) : MOTH_OK;
}

int32_t moth_keep_always(moth_ctx *ctx, const moth_handle *x) {
  MOTH_NEED(ctx, x, MOTH_E_ARG);
  return move_to(ctx, x, 0);
}

/* -- sweeps -- */

uint32_t moth_slot_count(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, 0);
  return ctx->nslots - 1;
}

int32_t moth_slot_used(moth_ctx *ctx, uint32_t slot) {
  MOTH_NEED(ctx, true, 0);
  return slot > MOTH_NUMBER_SLOTS && slot < ctx->nslots && ctx->slots[slot].tensor != NULL;
}

/* A sweep drops consecutive slots. Their tensors are no longer in the CPU caches, so the next ones
** are prefetched. */
#define AHEAD 8

void moth_drop(moth_ctx *ctx, uint32_t slot) {
  MOTH_NEED(ctx, true, );
  if (slot + AHEAD < ctx->nslots) {
    const moth_tensor *far = ctx->slots[slot + AHEAD].tensor;
    const moth_tensor *near = ctx->slots[slot + AHEAD / 2].tensor;
    if (far) __builtin_prefetch(far, 1);
    if (near && near->storage) __builtin_prefetch(near->storage, 1);
    const char *node = near ? (const char *)near->node : NULL;
    if (node) {
      __builtin_prefetch(node, 1);
      __builtin_prefetch(node + 64, 1);
      __builtin_prefetch(node + 128, 1);
    }
  }
  if (!moth_slot_used(ctx, slot)) return;
  ctx->dropped++;
  free_slot(ctx, slot, 0);
}

uint32_t moth_dead_ids(moth_ctx *ctx, uint64_t *ids, uint32_t max) {
  MOTH_NEED(ctx, (ids || !max), 0);
  uint32_t n = ctx->ndead_ids < max ? ctx->ndead_ids : max;
  if (n) memcpy(ids, ctx->dead_ids + (ctx->ndead_ids - n), n * sizeof *ids);
  ctx->ndead_ids -= n;
  return n;
}

/* -- results of ops with any number of results -- */

int moth_results_push(moth_results *r, moth_tensor *take) {
  if (!take) return r->ctx->error.code;
  if (r->n == r->capacity && moth_grow(r->ctx, &r->at, r->n, &r->capacity, sizeof take)) {
    moth_tensor_release(take);
    return r->ctx->error.code;
  }
  r->at[r->n++] = take;
  return MOTH_OK;
}

void moth_results_clear(moth_results *r) {
  while (r->n) moth_tensor_release(r->at[--r->n]);
}

uint32_t moth_result_count(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, 0);
  return ctx->results.n;
}

int32_t moth_result(moth_ctx *ctx, uint32_t i, moth_handle *out) {
  MOTH_NEED(ctx, out, MOTH_E_ARG);
  moth_results *r = &ctx->results;
  if (i >= r->n || !r->at[i])
    return moth_fail(ctx, MOTH_E_ARG, NULL, "there is no result %u to take", i);
  moth_tensor *x = r->at[i];
  int known = x->slot ? MOTH_KNOWN : 0, status = moth_hand_out(ctx, x, out);
  r->at[i] = NULL;
  return status ? status : known;
}
