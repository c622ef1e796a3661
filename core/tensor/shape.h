/* shape.h -- layouts and shapes: strides, broadcasting, the shape rules of ops, shapes as text. */
#ifndef MOTH_SHAPE_H
#define MOTH_SHAPE_H

#include "types.h"

bool moth_mul_overflow(int64_t a, int64_t b, int64_t *y);
bool moth_add_overflow(int64_t a, int64_t b, int64_t *y);

/* Row-major strides and numel for the shape in l; false when the size overflows. */
bool moth_layout_pack(moth_layout *l);
bool moth_layout_contiguous(const moth_layout *l);
/* The same for channels_last, which is a layout of (N, C, H, W) in memory: images, their rows,
** pixels, and the channels of a pixel side by side; and of (N, C, D, H, W), whose users call it
** channels_last_3d. Where the order of sizes of 1 is all that differs, a layout is both. */
bool moth_layout_pack_channels_last(moth_layout *l);
bool moth_layout_channels_last(const moth_layout *l);
/* Of layouts of one shape; the strides of dimensions of 1 do not matter. */
static inline bool moth_same_strides(const moth_layout *a, const moth_layout *b) {
  if (a->ndim != b->ndim) return false;
  for (int d = 0; d < a->ndim; d++)
    if (a->stride[d] != b->stride[d] && a->shape[d] != 1) return false;
  return true;
}
/* Gives y, whose strides are replaced, the order of dimensions that the inputs have in memory; they
** broadcast to its shape. The first input that steps along both of two dimensions, and further
** along one, decides which is the inner one; where none does, the last is. */
void moth_layout_follow(moth_layout *y, int n, const moth_layout *const *inputs);
bool moth_layout_overlaps(const moth_layout *l); /* two indices reach one element */
bool moth_layout_dense(const moth_layout *l); /* any order, no gaps, each element once */
bool moth_layout_same(const moth_layout *a, const moth_layout *b); /* all of it but the dtype */
bool moth_shape_same(const moth_layout *a, const moth_layout *b);
/* A packed one as a host gives it, which may be none: then an error is set. */
int moth_layout_given(moth_ctx *ctx, int32_t dtype, const int64_t *shape, int32_t ndim,
                      moth_layout *l);
/* First and one-past-last element reached, relative to the storage. */
void moth_layout_span(const moth_layout *l, int64_t *lo, int64_t *hi);
/* Broadcasts y with x in place; false when they do not fit. y->dtype is not touched. */
bool moth_layout_broadcast(moth_layout *y, const moth_layout *x);

/* -- helpers for shape rules; each returns a status and has set the error -- */

int moth_dim(moth_ctx *ctx, const char *arg, int64_t dim, int32_t ndim, int32_t *out);
/* The set of dims as a bit mask; absent or empty means all of them. */
int moth_dim_mask(moth_ctx *ctx, const char *arg, moth_ints dims, int32_t ndim, uint32_t *mask);
/* y := the shape that is left of x's, reduced along `dims`, and which dims those are. */
int moth_reduced_shape(moth_ctx *ctx, const moth_tensor *x, moth_ints dims, bool keepdim,
                       moth_layout *y, uint32_t *mask);
/* y := x's shape, without its dtype. Always MOTH_OK, so that a shape rule can end with it. */
int moth_shape_like(const moth_tensor *x, moth_layout *y);
/* y := a broadcast with b; blames `arg`. */
int moth_broadcast(moth_ctx *ctx, const char *arg, moth_layout *y, const moth_tensor *a,
                   const moth_tensor *b);
/* The shape from a list of sizes, without its dtype; refuses negative sizes and overflow. */
int moth_shape_of(moth_ctx *ctx, const char *arg, moth_ints sizes, moth_layout *y);

static inline char *moth_at(const moth_tensor *x) {
  return x->storage->data + x->l.offset * moth_dtype_size[x->l.dtype];
}
static inline bool moth_contiguous(const moth_tensor *x) { return moth_layout_contiguous(&x->l); }
/* channels_last, and not in row-major order as well. */
static inline bool moth_channels_last(const moth_tensor *x) {
  return moth_layout_channels_last(&x->l) && !moth_layout_contiguous(&x->l);
}
static inline bool moth_dense(const moth_tensor *x) { return moth_layout_dense(&x->l); }

/* -- text for messages: "f32 (2, 3)", "(2, 3)"; from a ring of buffers in the context -- */

const char *moth_str(const moth_tensor *x);
const char *moth_str_shape(moth_ctx *ctx, int32_t ndim, const int64_t *shape);
const char *moth_str_ints(moth_ctx *ctx, int64_t n, const int64_t *at); /* "{9, 9}" */
/* The same of dims and other positions, which the reader's base is added to: see MOTH_POS. */
const char *moth_str_dims(moth_ctx *ctx, int64_t n, const int64_t *at);
/* The same, one for each of the last n dimensions of x. */
const char *moth_str_axes(const moth_tensor *x, int64_t n, const int64_t *at);

#endif
