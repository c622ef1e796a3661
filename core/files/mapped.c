/* mapped.c -- files of any format as tensors of bytes, and parts of these as tensors, for the
** readers written in Lua.
*/
#include <stdlib.h>

#include "file.h"
#include "tensor/loop.h"
#include "call/observer.h"
#include "call/op.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "tensor/handles.h"
#include "tensor/collect.h"
#include "tensor/tensor.h"

typedef struct mapping { /* a mapped file; closed with the last storage over its pages */
  moth_source source;
  uint32_t refs;
} mapping;

static void drop(void *owner) {
  mapping *m = owner;
  if (__atomic_sub_fetch(&m->refs, 1, __ATOMIC_ACQ_REL)) return;
  moth_source_close(&m->source);
  free(m);
}

/* A tensor over bytes of the file. Its storage has only these bytes, so keeping or copying the
** tensor takes no more memory. */
static moth_tensor *part(moth_ctx *ctx, mapping *m, const moth_layout *l, char *data,
                         int64_t nbytes) {
  __atomic_add_fetch(&m->refs, 1, __ATOMIC_RELAXED);
  moth_storage *s = moth_storage_foreign(ctx, data, nbytes, drop, m);
  if (!s) {
    drop(m);
    return NULL;
  }
  moth_tensor *x = moth_tensor_like(ctx, l, s);
  moth_storage_release(ctx, s);
  return x;
}

/* Takes the source over, except on failure. */
static moth_tensor *mapped(moth_ctx *ctx, const moth_source *s, const moth_layout *l) {
  mapping *m = malloc(sizeof *m);
  if (!m) {
    moth_fail(ctx, MOTH_E_MEM, "path", "out of memory");
    return NULL;
  }
  *m = (mapping){.source = *s, .refs = 1};
  moth_tensor *x = part(ctx, m, l, s->map, s->size);
  x ? drop(m) : free(m);
  return x;
}

int32_t moth_file_open(moth_ctx *ctx, const moth_text *path, int32_t map, moth_handle *out) {
  MOTH_NEED(ctx, path && out, MOTH_E_ARG);
  moth_source s = {.fd = -1};
  moth_error_clear(ctx);
  int status = moth_source_open(ctx, path, &s);
  if (status) return status;
  moth_layout l = {.ndim = 1, .dtype = MOTH_U8, .numel = s.size, .shape = {s.size}, .stride = {1}};
  const bool shares = map && s.size && moth_source_map(&s);
  moth_tensor *x = shares ? mapped(ctx, &s, &l) : moth_tensor_new(ctx, &l);
  status = x ? MOTH_OK : ctx->error.code;
  if (x && !shares) status = moth_source_read(ctx, &s, 0, moth_at(x), s.size);
  if (!x || !shares) moth_source_close(&s);
  if (!status) return moth_hand_out(ctx, x, out);
  moth_tensor_release(x);
  return status;
}

/* A tensor over bytes that were read, with its own version. */
static moth_tensor *within(moth_ctx *ctx, moth_storage *of, moth_layout *l, const char *at) {
  moth_storage *s = moth_storage_alias(ctx, of);
  if (!s) return NULL;
  l->offset = (at - s->data) / moth_dtype_size[l->dtype];
  moth_tensor *x = moth_tensor_like(ctx, l, s);
  moth_storage_release(ctx, s);
  return x;
}

/* Checks that x holds enough bytes from `from` on, and fills in the layout of the elements. */
static int elements_layout(moth_ctx *ctx, const moth_tensor *x, int64_t from, int32_t dtype,
                           const int64_t *shape, int32_t ndim, moth_layout *l) {
  int status = moth_layout_given(ctx, dtype, shape, ndim, l);
  if (status) return status;
  const int64_t left = from < 0 ? -1 : x->l.numel - from;
  if (x->l.dtype != MOTH_U8 || x->l.device || !moth_contiguous(x))
    return moth_fail(ctx, MOTH_E_TYPE, "bytes", "contiguous u8 is needed, got %s", moth_str(x));
  if (left < 0 || l->numel > left / moth_dtype_size[dtype])
    return moth_fail(ctx, MOTH_E_INDEX, "from", "%lld %s elements from byte %lld on, of %lld",
                     (long long)l->numel, moth_dtype_name(dtype), (long long)from,
                     (long long)x->l.numel);
  return MOTH_OK;
}

int32_t moth_reinterpret(moth_ctx *ctx, const moth_handle *bytes, int64_t from, int32_t dtype,
                         const int64_t *shape, int32_t ndim, moth_handle *out) {
  MOTH_NEED(ctx, bytes && (shape || !ndim) && out, MOTH_E_ARG);
  MOTH_NOTICE(ctx, OTHER);
  moth_error_clear(ctx);
  const moth_tensor *x = moth_resolve(ctx, bytes, "bytes");
  moth_layout l;
  int status = x ? elements_layout(ctx, x, from, dtype, shape, ndim, &l) : ctx->error.code;
  if (status) return status;
  const int64_t size = moth_dtype_size[dtype], nbytes = l.numel * size;
  char *at = moth_at(x) + from;
  if (dtype == MOTH_BOOL || (at - x->storage->data) % size ||
      (uintptr_t)x->storage->data % (uintptr_t)size)
    return moth_from_bytes(ctx, dtype, shape, ndim, at, (size_t)nbytes, out);
  moth_tensor *y = x->storage->deleter == drop /* x is a mapped file */
                     ? part(ctx, x->storage->owner, &l, at, nbytes)
                     : within(ctx, x->storage, &l, at);
  return y ? moth_hand_out(ctx, y, out) : ctx->error.code;
}

#define SWAP_LOOP(type, swap)                                              \
  for (int64_t i = 0; i < n; i++, to += sizeof(type), from += sizeof(type)) { \
    type word;                                                             \
    memcpy(&word, from, sizeof word);                                      \
    word = swap(word);                                                     \
    memcpy(to, &word, sizeof word);                                        \
  }

/* Copies n elements of `size` bytes, the bytes of each in reverse order. */
static void copy_swapped(char *to, const char *from, int64_t n, int64_t size) {
  if (size == 2) {
    SWAP_LOOP(uint16_t, __builtin_bswap16)
  } else if (size == 4) {
    SWAP_LOOP(uint32_t, __builtin_bswap32)
  } else {
    SWAP_LOOP(uint64_t, __builtin_bswap64)
  }
}

int32_t moth_from_swapped(moth_ctx *ctx, const moth_handle *bytes, int64_t from, int32_t dtype,
                          const int64_t *shape, int32_t ndim, moth_handle *out) {
  MOTH_NEED(ctx, bytes && (shape || !ndim) && out, MOTH_E_ARG);
  MOTH_NOTICE(ctx, OTHER);
  moth_error_clear(ctx);
  const moth_tensor *x = moth_resolve(ctx, bytes, "bytes");
  moth_layout l;
  int status = x ? elements_layout(ctx, x, from, dtype, shape, ndim, &l) : ctx->error.code;
  if (status) return status;
  const int64_t size = moth_dtype_size[dtype];
  const char *at = moth_at(x) + from;
  if (size == 1)
    return moth_from_bytes(ctx, dtype, shape, ndim, at, (size_t)l.numel, out);
  moth_tensor *y = moth_tensor_new(ctx, &l);
  if (!y) return ctx->error.code;
  copy_swapped(moth_at(y), at, l.numel, size);
  MOTH_NOTICE(ctx, DATA, .x = y);
  status = moth_hand_out(ctx, y, out);
  return status ? status : moth_due(ctx);
}
