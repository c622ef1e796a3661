/* tensor.c -- storages and tensors: creation, reference counts, release. */
#include <stdlib.h>

#include "device/device.h"
#include "call/observer.h"
#include "autograd/tape.h"
#include "shape.h"
#include "base/error.h"
#include "base/alloc.h"
#include "tensor.h"

/* -- storages. Only these atomic functions access refs and version of a shared storage -- */

static int64_t shared_bytes; /* of all contexts; atomic */

static uint32_t add_fetch(moth_storage *s, uint32_t *count, uint32_t by) {
  if (s->shared) return __atomic_add_fetch(count, by, __ATOMIC_ACQ_REL);
  return *count += by;
}

/* Makes a storage for a block of nbytes on a device. An observer may have set its block. */
static moth_storage *storage_raw(moth_ctx *ctx, int64_t more, int device, int64_t nbytes) {
  moth_storage *s = moth_alloc(ctx, (int64_t)sizeof *s + more);
  if (!s) return NULL;
  *s = (moth_storage){.refs = 1, .id = ++ctx->ids};
  if (ctx->observer && moth_observe_born(ctx, s, device, nbytes)) {
    moth_dealloc(ctx, s, (int64_t)sizeof *s + more);
    return NULL;
  }
  ctx->mem.live_storages++;
  return s;
}

/* Up to so many bytes are stored in the block of the storage itself. */
#define FEW_BYTES 1024
_Static_assert(sizeof(moth_storage) % MOTH_ALIGN == 0, "data behind it lies aligned");

static moth_storage *storage_on_device(moth_ctx *ctx, int device, int64_t nbytes) {
  moth_storage *s = storage_raw(ctx, 0, device, nbytes);
  if (!s) return NULL;
  if (!nbytes) s->data = (char *)s;
  else if (!s->data) s->data = moth_device_alloc(ctx, device, nbytes, &s->owner);
  if (!s->data) {
    moth_storage_release(ctx, s);
    return NULL;
  }
  s->device = (uint8_t)device;
  s->nbytes = nbytes;
  return s;
}

moth_storage *moth_storage_new(moth_ctx *ctx, int device, int64_t nbytes) {
  if (device) return storage_on_device(ctx, device, nbytes);
  bool few = nbytes <= FEW_BYTES;
  if (!moth_count_data(ctx, nbytes)) return NULL;
  moth_storage *s = storage_raw(ctx, few ? nbytes : 0, 0, few ? 0 : nbytes);
  if (s && few) s->data = (char *)(s + 1);
  else if (s && !s->data) s->data = moth_alloc(ctx, nbytes);
  if (s && s->data) {
    s->nbytes = nbytes;
    return s;
  }
  ctx->mem.live_bytes -= nbytes;
  moth_storage_release(ctx, s);
  return NULL;
}

/* Blocks of a shared storage return to the system, since its last user may have no context. */
static void free_shared(moth_storage *s) {
  const bool own = !s->root && !s->foreign, few = s->data == (char *)(s + 1);
  if (own) {
    __atomic_sub_fetch(&shared_bytes, s->nbytes, __ATOMIC_RELAXED);
    if (!s->deleter && !few && s->data) moth_block_free(s->data, s->nbytes);
  }
  if (!s->root && s->deleter) s->deleter(s->owner);
  moth_block_free(s, (int64_t)sizeof *s + (own && few ? s->nbytes : 0));
}

/* The block is not cached: the cache of a context that only receives tensors would keep them
** all. */
static void free_received(moth_ctx *ctx, moth_storage *s) {
  moth_block_left(ctx, s->nbytes);
  moth_block_free(s->data, s->nbytes);
}

static void free_storage(moth_ctx *ctx, moth_storage *s) {
  if (s->shared) {
    free_shared(s);
    return;
  }
  if (s->device) {
    if (!s->root && s->nbytes) moth_device_free(ctx, s->device, s->owner, s->nbytes);
    ctx->mem.live_storages--;
    moth_dealloc(ctx, s, sizeof *s);
    return;
  }
  bool few = s->data == (char *)(s + 1);
  if (!s->root && !s->foreign) {
    ctx->mem.live_bytes -= s->nbytes;
    if (s->deleter) s->deleter(s->owner);
    else if (s->received) free_received(ctx, s);
    else if (!few) moth_dealloc(ctx, s->data, s->nbytes);
  } else if (s->foreign && s->deleter) {
    s->deleter(s->owner);
  }
  ctx->mem.live_storages--;
  moth_dealloc(ctx, s, (int64_t)sizeof *s + (few ? s->nbytes : 0));
}

moth_storage *moth_storage_alias(moth_ctx *ctx, moth_storage *of) {
  moth_storage *root = moth_storage_root(of), *s = storage_raw(ctx, 0, 0, 0);
  if (!s) return NULL;
  if (root->device) moth_ones_shared(ctx, root);
  s->root = moth_storage_retain(root);
  s->data = root->data;
  s->device = root->device;
  s->nbytes = root->nbytes;
  s->id = root->id;
  return s;
}

moth_storage *moth_storage_foreign(moth_ctx *ctx, void *data, int64_t nbytes,
                                   void (*deleter)(void *), void *owner) {
  moth_storage *s = storage_raw(ctx, 0, 0, 0);
  if (!s) return NULL;
  s->foreign = true;
  s->data = data;
  s->nbytes = nbytes;
  s->deleter = deleter;
  s->owner = owner;
  return s;
}

void moth_storage_release(moth_ctx *ctx, moth_storage *s) {
  while (s && add_fetch(s, &s->refs, UINT32_MAX) == 0) {
    moth_storage *root = s->root;
    if (!s->capture || !ctx->observer || !moth_observe_died(ctx, s)) free_storage(ctx, s);
    s = root;
  }
}

void moth_storage_share(moth_ctx *ctx, moth_storage *s) {
  if (s->shared) return;
  s->shared = true; /* from here on it counts for no context */
  ctx->mem.live_storages--;
  const bool own = !s->root && !s->foreign, few = s->data == (char *)(s + 1);
  moth_block_left(ctx, (int64_t)sizeof *s + (own && few ? s->nbytes : 0));
  if (s->root) {
    moth_storage_share(ctx, s->root);
  } else if (own) {
    if (!few && !s->deleter) moth_block_left(ctx, s->nbytes);
    ctx->mem.live_bytes -= s->nbytes;
    __atomic_add_fetch(&shared_bytes, s->nbytes, __ATOMIC_RELAXED);
  }
}

void moth_storage_discard(moth_storage *s) {
  while (s && add_fetch(s, &s->refs, UINT32_MAX) == 0) {
    moth_storage *root = s->root;
    free_shared(s);
    s = root;
  }
}

moth_storage *moth_storage_receive(moth_ctx *ctx, moth_storage *s) {
  const bool few = s->data == (char *)(s + 1);
  if (s->root || s->foreign || s->deleter || ctx->capture ||
      __atomic_load_n(&s->refs, __ATOMIC_ACQUIRE) > 1)
    return s;
  moth_storage *own;
  if (few) {
    own = moth_storage_new(ctx, 0, s->nbytes);
    if (own) memcpy(own->data, s->data, (size_t)s->nbytes);
  } else {
    if (!moth_count_data(ctx, s->nbytes)) return NULL;
    own = storage_raw(ctx, 0, 0, 0);
    if (own) {
      own->data = s->data;
      own->nbytes = s->nbytes;
      own->received = true;
      moth_block_came(ctx, s->nbytes);
      s->data = NULL;
    } else {
      ctx->mem.live_bytes -= s->nbytes;
    }
  }
  if (!own) return NULL;
  own->version = s->version;
  free_shared(s);
  return own;
}

int64_t moth_shared_bytes(void) { return __atomic_load_n(&shared_bytes, __ATOMIC_RELAXED); }

bool moth_storage_unique(const moth_storage *s) {
  return !s->shared && !s->root && !s->deleter && !s->foreign && s->refs == 1;
}

/* -- tensors -- */

moth_tensor *moth_tensor_bare(moth_ctx *ctx, const moth_layout *l) {
  moth_tensor *x = moth_alloc(ctx, sizeof *x);
  if (!x) return NULL;
  x->refs = 1;
  x->slot = x->flags = x->arg = x->output = x->epoch = x->base_epoch = 0;
  x->ctx = ctx;
  x->capture = ctx->capture_id;
  x->storage = NULL;
  x->node = x->leaf = NULL;
  x->base = NULL;
  moth_layout_copy(&x->l, l);
  ctx->mem.live_tensors++;
  return x;
}

moth_tensor *moth_tensor_like(moth_ctx *ctx, const moth_layout *l, moth_storage *s) {
  moth_tensor *x = moth_tensor_bare(ctx, l);
  if (x) x->storage = moth_storage_retain(s);
  return x;
}

moth_tensor *moth_tensor_standing(moth_ctx *ctx, void *owner, void (*drop)(void *)) {
  static char nothing;
  const moth_layout none = {.ndim = 1, .dtype = MOTH_U8, .stride = {1}};
  moth_storage *s = moth_storage_foreign(ctx, &nothing, 0, NULL, owner);
  moth_tensor *x = s ? moth_tensor_like(ctx, &none, s) : NULL;
  if (x) {
    s->symbolic = true;
    s->deleter = drop;
  }
  moth_storage_release(ctx, s);
  return x;
}

moth_tensor *moth_tensor_new(moth_ctx *ctx, const moth_layout *l) {
  moth_tensor *x = moth_tensor_bare(ctx, l);
  if (!x) return NULL;
  x->l.index_base = 0;
  if (!moth_layout_pack(&x->l)) {
    moth_fail(ctx, MOTH_E_SHAPE, NULL, "%s is more elements than can be addressed",
              moth_str_shape(ctx, l->ndim, l->shape));
  } else {
    x->storage = moth_storage_new(ctx, l->device, x->l.numel * moth_dtype_size[l->dtype]);
  }
  if (x->storage) return x;
  moth_tensor_release(x);
  return NULL;
}

moth_tensor *moth_tensor_new_channels_last(moth_ctx *ctx, const moth_layout *l) {
  moth_tensor *x = moth_tensor_new(ctx, l);
  if (x) moth_layout_pack_channels_last(&x->l);
  return x;
}

moth_tensor *moth_tensor_alias(moth_tensor *x) {
  moth_tensor *y = moth_tensor_like(x->ctx, &x->l, x->storage);
  if (!y || !(x->flags & MOTH_T_SPARSE)) return y;
  y->flags = x->flags & (MOTH_T_SPARSE | MOTH_T_COALESCED);
  y->rows = moth_tensor_retain(x->rows);
  return y;
}

void moth_tensor_end(moth_tensor *x) {
  do {
    moth_ctx *ctx = x->ctx;
    moth_tensor *base = x->base; /* a base is not a view: at most one more iteration */
    if (x->flags & MOTH_T_SPARSE) moth_tensor_release(x->rows);
    moth_storage_release(ctx, x->storage);
    moth_node_release(x->node);
    moth_node_release(x->leaf);
    ctx->mem.live_tensors--;
    moth_dealloc(ctx, x, sizeof *x);
    x = base;
  } while (x && --x->refs == 0);
}

bool moth_tensor_unshared(const moth_tensor *x) {
  return x->refs == 1 && moth_storage_unique(x->storage) && moth_dense(x);
}
