/* scatter.c -- scatter_reduce: values gathered at positions along a dimension and made one. Its
** face, and the list it is in, are index's.
*/
#include "../kernel/pick.h"
#include "../kernel/real.h"
#include "../loop.h"
#include "arith.h"
#include "compare.h"
#include "copy.h"
#include "create.h"
#include "index.h"
#include "strided.h"
#include "unary.h"
#include "view.h"

enum { SUM, PROD, MEAN, AMAX, AMIN };

/* -- the kernel: where each value comes from and goes to, then one loop per type -- */

static bool covers(const moth_tensor *x, const moth_tensor *index, int32_t but) {
  bool fits = x->l.ndim == index->l.ndim;
  for (int32_t d = 0; d < x->l.ndim && fits; d++)
    fits = d == but || index->l.shape[d] <= x->l.shape[d];
  return fits;
}

static int scatter_reduce_shape(const scatter_reduce_args *a, moth_layout *y) {
  int32_t dim;
  int status = moth_dim(a->ctx, "dim", a->dim, a->input->l.ndim, &dim);
  if (status) return status;
  const bool fits = covers(a->input, a->index, dim);
  const moth_tensor *x = fits ? a->src : a->input;
  if (!fits || !covers(a->src, a->index, -1))
    return moth_fail(a->ctx, MOTH_E_SHAPE, "index", "%s does not fit %s, which is %s",
                     moth_str(a->index), x == a->src ? "src" : "the input", moth_str(x));
  y->ndim = a->input->l.ndim;
  memcpy(y->shape, a->input->l.shape, sizeof y->shape);
  return MOTH_OK;
}

/* Fills to[k] and from[k], offsets in packed tensors shaped as input and src, for each position. */
static void places(const scatter_reduce_args *a, int32_t dim, const moth_tensor *list, int64_t *to,
                   int64_t *from) {
  const int64_t *at = (const int64_t *)(const void *)moth_at(list), first = list->l.index_base;
  moth_layout x = a->input->l, v = a->src->l;
  const moth_layout *index = &a->index->l;
  int64_t here[MOTH_MAX_DIMS] = {0};
  moth_layout_pack(&x);
  moth_layout_pack(&v);
  for (int64_t k = 0; k < index->numel; k++) {
    to[k] = from[k] = 0;
    for (int32_t d = 0; d < index->ndim; d++) {
      to[k] += (d == dim ? at[k] - first : here[d]) * x.stride[d];
      from[k] += here[d] * v.stride[d];
    }
    for (int32_t d = index->ndim - 1; d >= 0 && ++here[d] == index->shape[d]; d--) here[d] = 0;
  }
}

/* seen[i] counts what went to element i, itself included where that takes part. */
#define REDUCE_LOOP(T, name)                                                                  \
  static void reduce_##name(int64_t how, int64_t n, const int64_t *to, const int64_t *from,   \
                            const T *src, int64_t *seen, T *y) {                              \
    for (int64_t k = 0; k < n; k++) {                                                         \
      T v = src[from[k]], *at = &y[to[k]];                                                    \
      if (seen[to[k]]++ == 0) *at = v;                                                        \
      else if (how == SUM || how == MEAN) *at = (T)(*at + v);                                 \
      else if (how == PROD) *at = (T)(*at * v);                                               \
      else if (how == AMAX ? v > *at : v < *at) *at = v;                                      \
      else if (v != v) *at = v;                                                               \
    }                                                                                         \
  }
REDUCE_LOOP(float, f32)
REDUCE_LOOP(double, f64)
REDUCE_LOOP(uint64_t, wrap) /* sums and products of integers wrap around */
REDUCE_LOOP(int64_t, i64)

static void run_typed(const scatter_reduce_args *a, const int64_t *to, const int64_t *from,
                      moth_tensor *src, int64_t *seen, moth_tensor *y) {
  const int64_t n = a->index->l.numel, how = a->reduce, size = y->l.numel;
  void *p = (void *)moth_at(y);
  const void *v = (const void *)moth_at(src);
  if (y->l.dtype == MOTH_F32) {
    reduce_f32(how, n, to, from, v, seen, p);
    for (int64_t i = 0; i < size && how == MEAN; i++)
      if (seen[i] > 1) ((float *)p)[i] /= (float)seen[i];
  } else if (y->l.dtype == MOTH_F64) {
    reduce_f64(how, n, to, from, v, seen, p);
    for (int64_t i = 0; i < size && how == MEAN; i++)
      if (seen[i] > 1) ((double *)p)[i] /= (double)seen[i];
  } else {
    if (how <= MEAN) reduce_wrap(how, n, to, from, v, seen, p);
    else reduce_i64(how, n, to, from, v, seen, p);
    for (int64_t i = 0; i < size && how == MEAN; i++) {
      int64_t *q = &((int64_t *)p)[i], rest = seen[i] > 1 ? *q % seen[i] : 0;
      if (seen[i] > 1) *q = *q / seen[i] - (rest < 0);
    }
  }
}

static int scatter_reduce_cpu(const scatter_reduce_args *a, moth_tensor **out) {
  moth_ctx *ctx = a->ctx;
  int32_t dim;
  int status = moth_dim(ctx, "dim", a->dim, a->input->l.ndim, &dim);
  if (status) return status;
  const int type = moth_is_float(out[0]->l.dtype) ? moth_compute_dtype(out[0]->l.dtype) : MOTH_I64;
  const int64_t n = a->index->l.numel, size = a->input->l.numel;
  const int64_t bytes = (2 * n + size + 1) * 8; /* both exist, so this does not overflow */
  const moth_reach reach = {a->input, dim, a->input->l.ndim ? a->input->l.shape[dim] : 1};
  moth_tensor *at = moth_pick_positions(a->index, &reach);
  moth_tensor *src = at ? moth_cast(a->src, type) : NULL;
  moth_tensor *y = src ? moth_cast(a->input, type) : NULL;
  int64_t *to = y ? moth_alloc(ctx, bytes) : NULL;
  status = to ? MOTH_OK : ctx->error.code;
  if (!status) {
    int64_t *from = to + n, *seen = from + n;
    for (int64_t i = 0; i < size; i++) seen[i] = a->include_self;
    places(a, dim, at, to, from);
    run_typed(a, to, from, src, seen, y);
    status = moth_copy_into(out[0], y);
    moth_dealloc(ctx, to, bytes);
  }
  moth_tensor_release(y);
  moth_tensor_release(src);
  moth_tensor_release(at);
  return status;
}

/* -- the gradient -- */

#define NUMBER(value) moth_grad_number(g, value)
#define TIMES(p, q) GRAD(g, mul, .input = p, .other = q)
#define OVER(p, q) GRAD(g, div, .input = p, .other = q, .rounding_mode = MOTH_ROUND_NONE)
#define SAME(p, q) GRAD(g, eq, .input = p, .other = q)
#define PICK(p) GRAD(g, gather, .input = p, .dim = a->dim, .index = a->index)
#define ADDED(p, q) GRAD(g, scatter_add, .input = p, .dim = a->dim, .index = a->index, .src = q)
#define TO(p, like) GRAD(g, cast, .input = p, .dtype = (like)->l.dtype)
#define FILLED(p, where, v) \
  GRAD(g, masked_fill, .input = p, .mask = where, .value = {.type = 1, .as.integer = v})
#define AGAIN(self, values)                                                                 \
  GRAD(g, scatter_reduce, .input = self, .dim = a->dim, .index = a->index, .src = values,   \
       .reduce = a->reduce, .include_self = a->include_self)

/* The part of src that index covers. */
static moth_tensor *covered(const scatter_reduce_args *a, moth_grad *g) {
  moth_tensor *x = a->src;
  for (int32_t d = 0; d < a->src->l.ndim; d++)
    if (x && a->index->l.shape[d] < a->src->l.shape[d])
      x = GRAD(g, narrow, .input = x, .dim = d, .start = 0, .length = a->index->l.shape[d]);
  return x;
}

/* d: the gradient of what index covers of src; the rest has none. */
static void src_flow(const scatter_reduce_args *a, moth_grad *g, moth_tensor *d) {
  moth_layout base = a->src->l;
  moth_layout_pack(&base);
  if (!moth_shape_same(&base, &a->index->l))
    d = GRAD(g, strided_sum, .input = d, .base_size = {base.shape, base.ndim},
             .base_stride = {base.stride, base.ndim}, .base_offset = 0,
             .size = {a->index->l.shape, a->index->l.ndim}, .stride = {base.stride, base.ndim},
             .offset = 0);
  moth_flow(g, a->src, d);
}

/* The input's gradient is nothing where it takes no part. */
static void self_flow(const scatter_reduce_args *a, moth_grad *g, moth_tensor *d) {
  if (!a->include_self)
    d = GRAD(g, scatter, .input = d, .dim = a->dim, .index = a->index, .src = NUMBER(0));
  moth_flow(g, a->input, d);
}

/* Of a product: the result over each factor, or the others' product where it is the only 0. */
static int prod_grad(const scatter_reduce_args *a, moth_grad *g, moth_tensor *src) {
  moth_tensor *x = a->input, *zero = SAME(x, NUMBER(0)), *gap = SAME(src, NUMBER(0));
  if (moth_wants(g, x)) {
    moth_tensor *safe = FILLED(x, zero, 1);
    self_flow(a, g, TIMES(g->dy, OVER(AGAIN(safe, src), safe)));
  }
  if (moth_wants(g, a->src)) {
    moth_tensor *none = GRAD(g, zeros_like, .input = x, .dtype = -1);
    moth_tensor *zeros = PICK(ADDED(none, TO(gap, x)));
    moth_tensor *lone = GRAD(g, logical_and, .input = gap, .other = SAME(zeros, NUMBER(1)));
    moth_tensor *rest = PICK(TIMES(g->dy, AGAIN(x, FILLED(src, lone, 1))));
    moth_tensor *plain = OVER(PICK(TIMES(g->dy, AGAIN(x, src))), FILLED(src, gap, 1));
    src_flow(a, g, GRAD(g, where, .condition = lone, .input = rest, .other = plain));
  }
  return g->status;
}

/* Of an extreme: shared by all that have it. */
static int extreme_grad(const scatter_reduce_args *a, moth_grad *g, moth_tensor *src) {
  moth_tensor *x = a->input, *y = g->out[0];
  moth_tensor *mine = TO(SAME(x, y), x), *theirs = TO(SAME(src, PICK(y)), x);
  if (!a->include_self)
    mine = GRAD(g, scatter, .input = mine, .dim = a->dim, .index = a->index, .src = NUMBER(0));
  moth_tensor *share = OVER(g->dy, ADDED(mine, theirs));
  if (moth_wants(g, x)) self_flow(a, g, TIMES(mine, share));
  if (moth_wants(g, a->src)) src_flow(a, g, TIMES(theirs, PICK(share)));
  return g->status;
}

static int scatter_reduce_grad(const scatter_reduce_args *a, moth_grad *g) {
  moth_tensor *src = covered(a, g), *d = g->dy;
  if (a->reduce == PROD) return prod_grad(a, g, src);
  if (a->reduce > MEAN) return extreme_grad(a, g, src);
  if (a->reduce == MEAN) {
    moth_tensor *n = a->include_self ? GRAD(g, ones_like, .input = d, .dtype = -1)
                                     : GRAD(g, zeros_like, .input = d, .dtype = -1);
    n = ADDED(n, GRAD(g, ones_like, .input = TO(src, d), .dtype = -1));
    d = OVER(d, FILLED(n, SAME(n, NUMBER(0)), 1));
  }
  if (moth_wants(g, a->input)) self_flow(a, g, d);
  if (moth_wants(g, a->src)) src_flow(a, g, PICK(d));
  return g->status;
}

MOTH_OP(scatter_reduce, SCATTER_REDUCE, .dtypes = MOTH_NUMERIC, .saves = "index input src y",
        .flags = MOTH_OP_INPLACE | MOTH_OP_METHOD | MOTH_OP_FROM_ONE,
        .doc = "Values at positions along a dimension, where several meet their sum, product, "
               "mean or extreme.",
        .examples =
          "moth.randn(3, 4), 2, moth.tensor{{1LL, 1LL}, {4LL, 2LL}, {2LL, 2LL}}, "
          "moth.randn(3, 2), 'sum'\n"
          "moth.randn(3), 1, moth.tensor{2LL, 2LL, 1LL}, moth.randn(4), {reduce = 'prod', "
          "include_self = false}\n"
          "moth.randn(3), 1, moth.tensor{2LL, 2LL, 1LL}, moth.randn(3), 'mean'\n"
          "moth.randn(3), 1, moth.tensor{2LL, 2LL, 1LL}, moth.randn(3), 'amax'"
          "  -- domain: distinct\n"
          "moth.randn(3), 1, moth.tensor{2LL, 2LL, 1LL}, moth.randn(3), {reduce = 'amin', "
          "include_self = false}  -- domain: distinct")
