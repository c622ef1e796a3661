/* capture_bytes.c -- the memory of a capture: its chunks and lists, the storages that it
** registered, and the pool of blocks for results. tensor.c calls it during a capture.
*/
#include "capture_parts.h"
#include "base/alloc.h"

#define MIN_CHUNK ((int64_t)16 << 10)
#define KEPT_BYTES 4096 /* smaller constant results are kept instead of computed again */

/* -- chunks -- */

void *moth_capture_alloc(moth_capture *c, int64_t n) {
  n = (n + 15) / 16 * 16;
  if (!c->chunks || c->chunks->used + n > c->chunks->bytes) {
    int64_t bytes = (int64_t)sizeof(moth_chunk) + (n > MIN_CHUNK / 4 ? n : MIN_CHUNK);
    moth_chunk *chunk = moth_alloc(c->ctx, bytes);
    if (!chunk) return NULL;
    *chunk = (moth_chunk){c->chunks, bytes, (int64_t)sizeof *chunk};
    c->chunks = chunk;
  }
  void *at = (char *)c->chunks + c->chunks->used;
  c->chunks->used += n;
  return at;
}

/* -- storages -- */

int moth_capture_adopt(moth_capture *c, moth_storage *s, uint8_t held) {
  int status = moth_grow(c->ctx, &c->stores, c->nstores, &c->store_capacity, sizeof *c->stores);
  if (status) return status;
  c->stores[c->nstores++] = (moth_held){s, MOTH_HELD_NOT, held & MOTH_C_INSIDE};
  s->capture = c->id;
  s->held = held;
  return MOTH_OK;
}

moth_capture *moth_capture_put_aside(moth_ctx *ctx) {
  moth_capture *c = ctx->capture;
  ctx->capture = NULL;
  ctx->capture_id = 0;
  return c;
}

void moth_capture_take_up(moth_ctx *ctx, moth_capture *c) {
  if (!c) return;
  ctx->capture = c;
  ctx->capture_id = c->id;
}

bool moth_capture_inside(const moth_capture *c, const moth_storage *s) {
  return s->capture == c->id && (s->held & MOTH_C_INSIDE);
}

bool moth_capture_constant(moth_observer *o, const moth_tensor *x) {
  const moth_capture *c = (const moth_capture *)o;
  if (!moth_capture_records(c) || (x->flags & MOTH_T_NUMBER)) return true;
  const moth_storage *s = x->storage;
  const uint8_t changes = MOTH_C_POOLED | MOTH_C_WRITTEN | MOTH_C_AGAIN;
  return moth_capture_inside(c, s) && !s->root && !(s->held & changes);
}

/* -- blocks -- */

/* Can a block for n bytes hold m bytes? Without a cache sizes must be equal, so that overruns are
** detected. */
static bool same_block(const moth_ctx *ctx, int64_t n, int64_t m) {
  return ctx->keeps_blocks ? moth_class_of(n) == moth_class_of(m) : n == m;
}

/* Gives s, a result, a block of the pool if one fits. */
static void reuse_block(moth_capture *c, moth_storage *s, int device, int64_t nbytes) {
  moth_ctx *ctx = c->ctx;
  s->held |= MOTH_C_POOLED;
  for (uint32_t i = c->npool; i-- > 0;) {
    moth_spare spare = c->pool[i];
    if (spare.device != device || !same_block(ctx, spare.nbytes, nbytes)) continue;
    if (device) moth_device_recount(ctx, device, nbytes - spare.nbytes);
    else ctx->mem.live_bytes -= spare.nbytes;
    c->pool[i] = c->pool[--c->npool];
    if (device) s->owner = spare.owner;
    s->data = spare.block;
    return;
  }
}

int moth_capture_born(moth_observer *o, moth_storage *s, int device, int64_t nbytes) {
  moth_capture *c = (moth_capture *)o;
  if (!moth_capture_records(c)) return MOTH_OK;
  int status = moth_capture_adopt(c, s, MOTH_C_INSIDE);
  if (status || !nbytes || !c->fresh || (c->fresh == MOTH_FRESH_LARGE && nbytes <= KEPT_BYTES))
    return status;
  reuse_block(c, s, device, nbytes);
  return MOTH_OK;
}

bool moth_capture_died(moth_observer *o, moth_storage *s) {
  moth_capture *c = (moth_capture *)o;
  moth_ctx *ctx = c->ctx;
  if (s->capture != c->id) return false;
  s->refs = 1;
  s->held |= MOTH_C_BURIED;
  if (!(s->held & MOTH_C_POOLED) || !s->data) return true;
  /* If memory for the list runs out, the block is not used again. */
  int64_t after = ctx->fail_after;
  ctx->fail_after = 0;
  moth_error_state error = ctx->error;
  if (!moth_grow(ctx, &c->pool, c->npool, &c->pool_capacity, sizeof *c->pool)) {
    c->pool[c->npool++] = (moth_spare){s->data, s->owner, s->nbytes, s->device};
  } else {
    ctx->error = error;
    s->held &= (uint8_t)~MOTH_C_POOLED; /* the block stays with this storage and is freed with it */
  }
  ctx->fail_after = after;
  return true;
}

void moth_capture_free_block(moth_ctx *ctx, const moth_spare *block) {
  if (block->device) {
    moth_device_free(ctx, block->device, block->owner, block->nbytes);
    return;
  }
  ctx->mem.live_bytes -= block->nbytes;
  moth_dealloc(ctx, block->block, block->nbytes);
}

int moth_capture_initial(moth_capture *c, moth_storage *s) {
  if (!moth_capture_inside(c, s) || s->root || s->held & (MOTH_C_POOLED | MOTH_C_WRITTEN) ||
      s->nbytes == 0 || !s->data)
    return MOTH_OK;
  moth_initial *first = moth_capture_alloc(c, (int64_t)sizeof *first);
  if (!first || (!s->device && !moth_count_data(c->ctx, s->nbytes))) return c->ctx->error.code;
  void *owner = NULL, *bytes = s->device ? moth_device_alloc(c->ctx, s->device, s->nbytes, &owner)
                                         : moth_alloc(c->ctx, s->nbytes);
  if (!bytes) {
    if (!s->device) c->ctx->mem.live_bytes -= s->nbytes;
    return c->ctx->error.code;
  }
  *first = (moth_initial){c->initial, s, bytes, owner};
  c->initial = first;
  return moth_bytes_move(c->ctx, s->device, bytes, s->device, s->data, s->nbytes);
}
