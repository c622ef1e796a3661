/* shape.h -- layouts and shapes: strides, broadcasting, the shape rules of ops, shapes as text. */
#ifndef MOTH_SHAPE_H
#define MOTH_SHAPE_H

#include "types.h"

bool moth_mul_overflow(int64_t a, int64_t b, int64_t *y);
bool moth_add_overflow(int64_t a, int64_t b, int64_t *y);

/* Sets row-major strides and numel for the shape in l. Returns false if the size overflows. */
bool moth_layout_pack(moth_layout *l);
bool moth_layout_contiguous(const moth_layout *l);
/* The same for channels_last: (N, C, H, W) stored in the order N, H, W, C, and (N, C, D, H, W) in
** the order N, D, H, W, C, which PyTorch calls channels_last_3d. Strides of sizes of 1 do not
** count, so a layout may be both. */
bool moth_layout_pack_channels_last(moth_layout *l);
bool moth_layout_channels_last(const moth_layout *l);
/* Compares layouts of one shape. Strides of sizes of 1 do not count. */
static inline bool moth_same_strides(const moth_layout *a, const moth_layout *b) {
  if (a->ndim != b->ndim) return false;
  for (int d = 0; d < a->ndim; d++)
    if (a->stride[d] != b->stride[d] && a->shape[d] != 1) return false;
  return true;
}
/* Sets the strides of y to the order of dimensions that the inputs have in memory; the inputs
** broadcast to y. For two dimensions, the first input with different steps along them decides which
** is inner. If none decides, the later dimension is inner. */
void moth_layout_follow(moth_layout *y, int n, const moth_layout *const *inputs);
bool moth_layout_overlaps(const moth_layout *l); /* do two indices reach one element? */
bool moth_layout_dense(const moth_layout *l); /* any order, no gaps, each element once */
bool moth_layout_same(const moth_layout *a, const moth_layout *b); /* equal except for the dtype */
bool moth_shape_same(const moth_layout *a, const moth_layout *b);
/* A packed layout from a host's shape. Fails if the shape is invalid. */
int moth_layout_given(moth_ctx *ctx, int32_t dtype, const int64_t *shape, int32_t ndim,
                      moth_layout *l);
/* The first element, and one past the last, relative to the storage. */
void moth_layout_span(const moth_layout *l, int64_t *lo, int64_t *hi);
/* Broadcasts y with x in place, except the dtype. Returns false if the shapes do not fit. */
bool moth_layout_broadcast(moth_layout *y, const moth_layout *x);

/* -- helpers for shape rules; each returns a status and sets the error -- */

int moth_dim(moth_ctx *ctx, const char *arg, int64_t dim, int32_t ndim, int32_t *out);
/* The set of dims as a bit mask. Absent or empty means all dims. */
int moth_dim_mask(moth_ctx *ctx, const char *arg, moth_ints dims, int32_t ndim, uint32_t *mask);
/* y := the shape of x reduced along `dims`; *mask := these dims. */
int moth_reduced_shape(moth_ctx *ctx, const moth_tensor *x, moth_ints dims, bool keepdim,
                       moth_layout *y, uint32_t *mask);
/* y := the shape of x, without its dtype. Always returns MOTH_OK, for the end of shape rules. */
int moth_shape_like(const moth_tensor *x, moth_layout *y);
/* y := a broadcast with b. Errors name the argument `arg`. */
int moth_broadcast(moth_ctx *ctx, const char *arg, moth_layout *y, const moth_tensor *a,
                   const moth_tensor *b);
/* y := a shape from a list of sizes, without dtype. Fails for negative sizes and overflow. */
int moth_shape_of(moth_ctx *ctx, const char *arg, moth_ints sizes, moth_layout *y);

static inline char *moth_at(const moth_tensor *x) {
  return x->storage->data + x->l.offset * moth_dtype_size[x->l.dtype];
}
static inline bool moth_contiguous(const moth_tensor *x) { return moth_layout_contiguous(&x->l); }
/* True for channels_last tensors that are not row-major too. */
static inline bool moth_channels_last(const moth_tensor *x) {
  return moth_layout_channels_last(&x->l) && !moth_layout_contiguous(&x->l);
}
static inline bool moth_dense(const moth_tensor *x) { return moth_layout_dense(&x->l); }

/* -- text for messages: "f32 (2, 3)", "(2, 3)". Buffers come from a ring in the context. -- */

const char *moth_str(const moth_tensor *x);
const char *moth_str_shape(moth_ctx *ctx, int32_t ndim, const int64_t *shape);
const char *moth_str_ints(moth_ctx *ctx, int64_t n, const int64_t *at); /* "{9, 9}" */
/* The same for dims and positions, which are rendered in the reader's base: see MOTH_POS. */
const char *moth_str_dims(moth_ctx *ctx, int64_t n, const int64_t *at);
/* The same: one position for each of the last n dimensions of x. */
const char *moth_str_axes(const moth_tensor *x, int64_t n, const int64_t *at);

#endif
