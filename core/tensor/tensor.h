/* tensor.h -- makes and releases tensors and storages. Tensors belong to one context, and their
** reference counts are not atomic. `retain` and `release` change the counts.
*/
#ifndef MOTH_TENSOR_H
#define MOTH_TENSOR_H

#include "shape.h"

/* Returns NULL with the error set. */
moth_storage *moth_storage_new(moth_ctx *ctx, int device, int64_t nbytes);
moth_storage *moth_storage_alias(moth_ctx *ctx, moth_storage *of);
moth_storage *moth_storage_foreign(moth_ctx *ctx, void *data, int64_t nbytes,
                                   void (*deleter)(void *), void *owner);
static inline moth_storage *moth_storage_retain(moth_storage *s) {
  if (s->shared) __atomic_add_fetch(&s->refs, 1, __ATOMIC_ACQ_REL);
  else s->refs++;
  return s;
}
void moth_storage_release(moth_ctx *ctx, moth_storage *s);
void moth_storage_share(moth_ctx *ctx, moth_storage *s); /* makes its counts atomic */
bool moth_storage_unique(const moth_storage *s); /* one reference, and its own bytes */
int64_t moth_shared_bytes(void); /* of storages that have tokens */
void moth_storage_discard(moth_storage *s); /* releases a shared storage without a context */
/* Takes a reference to a shared storage and returns s. If it is the last reference, moves the bytes
** to a storage of this context and returns that. NULL: an error; s is unchanged. */
moth_storage *moth_storage_receive(moth_ctx *ctx, moth_storage *s);
static inline moth_storage *moth_storage_root(moth_storage *s) { return s->root ? s->root : s; }

/* Constructors return an owned tensor, or NULL with the context's error set. */
moth_tensor *moth_tensor_new(moth_ctx *ctx, const moth_layout *l); /* packed, uninitialised */
moth_tensor *moth_tensor_new_channels_last(moth_ctx *ctx, const moth_layout *l); /* channels_last */
moth_tensor *moth_tensor_like(moth_ctx *ctx, const moth_layout *l, moth_storage *s); /* retains s */
bool moth_tensor_unshared(const moth_tensor *x); /* one reference to it and to its bytes */
/* An empty tensor that represents `owner`. drop(owner) runs when the tensor is freed, but not if
** this returns NULL. */
moth_tensor *moth_tensor_standing(moth_ctx *ctx, void *owner, void (*drop)(void *));
moth_tensor *moth_tensor_bare(moth_ctx *ctx, const moth_layout *l); /* no storage */
moth_tensor *moth_tensor_alias(moth_tensor *x); /* same storage, no history */
static inline moth_tensor *moth_tensor_retain(moth_tensor *x) {
  x->refs++;
  return x;
}
void moth_tensor_end(moth_tensor *x); /* frees a tensor without references */
static inline void moth_tensor_release(moth_tensor *x) { /* x may be NULL */
  if (x && --x->refs == 0) moth_tensor_end(x);
}

/* Choices of an argument `memory_format`: the layout of the result. */
enum { MOTH_PRESERVE_FORMAT, MOTH_CONTIGUOUS_FORMAT, MOTH_CHANNELS_LAST, MOTH_CHANNELS_LAST_3D };
/* The choice for images or for volumes. */
static inline int64_t moth_channels_last_of(int32_t ndim) {
  return ndim == 5 ? MOTH_CHANNELS_LAST_3D : MOTH_CHANNELS_LAST;
}
/* The memory format of a gradient of x, if nothing else decides. */
static inline int64_t moth_format_of(const moth_tensor *x) {
  return moth_channels_last(x) ? moth_channels_last_of(x->l.ndim) : (int64_t)MOTH_PRESERVE_FORMAT;
}

#endif
