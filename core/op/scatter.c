/* scatter.c -- scatter_reduce: reduces values at positions along a dimension. index.h declares the
** arguments; index.c lists the op.
*/
#include <math.h>

#include "kernel/copy.h"
#include "kernel/gather.h"
#include "kernel/real.h"
#include "tensor/loop.h"
#include "arith.h"
#include "compare.h"
#include "copy.h"
#include "create.h"
#include "index.h"
#include "strided.h"
#include "unary.h"
#include "view.h"
#include "scan.h"
#include "tensor/shape.h"
#include "autograd/gradient.h"
#include "base/error.h"
#include "tensor/tensor.h"

enum { SUM, PROD, MEAN, AMAX, AMIN };

/* -- the kernel -- */

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

/* Returns a tensor of the neutral element of a reduction, in the shape of `index`. For sums it is
** -0, because
** -0 + 0 is 0 and -0 + -0 is -0. For extremes it is the value that every other value exceeds. */
static moth_tensor *neutral(moth_ctx *ctx, int64_t how, int dtype, const moth_layout *index) {
  static const double real[] = {-0.0, 1, -0.0, -INFINITY, INFINITY};
  static const int64_t integers[] = {0, 1, 0, INT64_MIN, INT64_MAX};
  moth_layout l = {.numel = 1, .dtype = (uint8_t)dtype};
  moth_tensor *x = moth_tensor_new(ctx, &l);
  if (!x) return NULL;
  void *to = (void *)moth_at(x);
  if (dtype == MOTH_F32) *(float *)to = (float)real[how];
  else if (dtype == MOTH_F64) *(double *)to = real[how];
  else *(int64_t *)to = integers[how];
  l = *index;
  l.dtype = (uint8_t)dtype;
  l.offset = 0;
  memset(l.stride, 0, sizeof l.stride);
  moth_tensor *y = moth_tensor_like(ctx, &l, x->storage);
  moth_tensor_release(x);
  return y;
}

/* Divides by counts, where a position has more than one value. */
static void divide(moth_tensor *y, const moth_tensor *counts) {
  const int64_t n = y->l.numel, *seen = (const int64_t *)(const void *)moth_at(counts);
  void *at = (void *)moth_at(y);
  float *f = at;
  double *d = at;
  int64_t *q = at;
  if (y->l.dtype == MOTH_F32) {
    for (int64_t i = 0; i < n; i++) f[i] = seen[i] > 1 ? f[i] / (float)seen[i] : f[i];
  } else if (y->l.dtype == MOTH_F64) {
    for (int64_t i = 0; i < n; i++) d[i] = seen[i] > 1 ? d[i] / (double)seen[i] : d[i];
  } else {
    for (int64_t i = 0; i < n; i++)
      if (seen[i] > 1) q[i] = q[i] / seen[i] - (q[i] % seen[i] < 0);
  }
}

static int mean_of(const scatter_reduce_args *a, int32_t dim, moth_tensor *y) {
  const moth_tensor *index = a->index;
  moth_layout l = y->l;
  l.dtype = MOTH_I64;
  moth_tensor *counts = moth_tensor_new(a->ctx, &l);
  moth_tensor *one = counts ? neutral(a->ctx, PROD, MOTH_I64, &index->l) : NULL;
  int status = one ? MOTH_OK : a->ctx->error.code;
  if (!status) {
    const int64_t own = a->include_self;
    moth_fill(sizeof own, l.numel, (void *)moth_at(counts), &own);
    status = moth_scatter(MOTH_GATHER_ADD, a->input, counts, dim, index, one);
  }
  if (!status) divide(y, counts);
  moth_tensor_release(one);
  moth_tensor_release(counts);
  return status;
}

static int join(const scatter_reduce_args *a, int32_t dim, const moth_tensor *src,
                moth_tensor *y) {
  static const int modes[] = {MOTH_GATHER_ADD, MOTH_GATHER_MUL, MOTH_GATHER_ADD, MOTH_GATHER_MAX,
                              MOTH_GATHER_MIN};
  int status = MOTH_OK;
  if (!a->include_self) {
    moth_tensor *none = neutral(a->ctx, a->reduce, y->l.dtype, &a->index->l);
    status = none ? moth_scatter(MOTH_GATHER_PUT, a->input, y, dim, a->index, none)
                  : a->ctx->error.code;
    moth_tensor_release(none);
  }
  if (!status) status = moth_scatter(modes[a->reduce], a->input, y, dim, a->index, src);
  return !status && a->reduce == MEAN ? mean_of(a, dim, y) : status;
}

static int scatter_reduce_cpu(const scatter_reduce_args *a, moth_tensor **out) {
  moth_ctx *ctx = a->ctx;
  int32_t dim;
  int status = moth_dim(ctx, "dim", a->dim, a->input->l.ndim, &dim);
  if (status) return status;
  const int own = out[0]->l.dtype, type = moth_is_float(own) ? moth_compute_dtype(own) : MOTH_I64;
  moth_tensor *src = a->src->l.dtype == type ? moth_tensor_retain(a->src) : moth_cast(a->src, type);
  moth_tensor *y = src ? moth_cast(a->input, type) : NULL;
  status = y ? join(a, dim, src, y) : ctx->error.code;
  if (!status) status = moth_copy_into(out[0], y);
  moth_tensor_release(y);
  moth_tensor_release(src);
  return status;
}

/* -- the gradient -- */

#define NUMBER(value) moth_grad_number(g, value)
#define TIMES(p, q) GRAD(g, mul, .input = p, .other = q)
#define OVER(p, q) GRAD(g, div, .input = p, .other = q, .rounding_mode = MOTH_ROUND_NONE)
#define SAME(p, q) GRAD(g, eq, .input = p, .other = q)
#define GATHERED(p) GRAD(g, gather, .input = p, .dim = a->dim, .index = a->index)
#define ADDED(p, q) GRAD(g, scatter_add, .input = p, .dim = a->dim, .index = a->index, .src = q)
#define TO(p, like) GRAD(g, cast, .input = p, .dtype = (like)->l.dtype)
#define FILLED(p, where, v) \
  GRAD(g, masked_fill, .input = p, .mask = where, .value = {.type = 1, .as.integer = v})
#define AGAIN(self, values)                                                                 \
  GRAD(g, scatter_reduce, .input = self, .dim = a->dim, .index = a->index, .src = values,   \
       .reduce = a->reduce, .include_self = a->include_self)

/* Returns the part of src with the sizes of `index`. */
static moth_tensor *covered(const scatter_reduce_args *a, moth_grad *g) {
  moth_tensor *x = a->src;
  for (int32_t d = 0; d < a->src->l.ndim; d++)
    if (x && a->index->l.shape[d] < a->src->l.shape[d])
      x = GRAD(g, narrow, .input = x, .dim = d, .start = 0, .length = a->index->l.shape[d]);
  return x;
}

/* Adds d, the gradient of the part of src with the sizes of `index`. The other elements of src get
** 0. */
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

/* Adds the gradient of the input, if include_self; else the input has no gradient at these
** positions. */
static void self_flow(const scatter_reduce_args *a, moth_grad *g, moth_tensor *d) {
  if (!a->include_self)
    d = GRAD(g, scatter, .input = d, .dim = a->dim, .index = a->index, .src = NUMBER(0));
  moth_flow(g, a->input, d);
}

/* The gradient of a product: the result divided by each factor. If a factor is the only 0, it is
** the product of the others. */
static int prod_grad(const scatter_reduce_args *a, moth_grad *g, moth_tensor *src) {
  src = moth_grad_wide(g, src); /* in f64, which products of several f32 fit */
  moth_tensor *x = moth_grad_wide(g, a->input), *dy = moth_grad_wide(g, g->dy);
  moth_tensor *zero = SAME(x, NUMBER(0)), *gap = SAME(src, NUMBER(0));
  if (moth_wants(g, a->input)) {
    moth_tensor *safe = FILLED(x, zero, 1);
    self_flow(a, g, TIMES(dy, OVER(AGAIN(safe, src), safe)));
  }
  if (moth_wants(g, a->src)) {
    moth_tensor *none = GRAD(g, zeros_like, .input = x, .dtype = -1);
    moth_tensor *zeros = GATHERED(ADDED(none, TO(gap, x)));
    moth_tensor *lone = GRAD(g, logical_and, .input = gap, .other = SAME(zeros, NUMBER(1)));
    moth_tensor *rest = GATHERED(TIMES(dy, AGAIN(x, FILLED(src, lone, 1))));
    moth_tensor *plain = OVER(GATHERED(TIMES(dy, AGAIN(x, src))), FILLED(src, gap, 1));
    src_flow(a, g, GRAD(g, where, .condition = lone, .input = rest, .other = plain));
  }
  return g->status;
}

/* The gradient of an extreme is shared by all elements that are equal to it. */
static int extreme_grad(const scatter_reduce_args *a, moth_grad *g, moth_tensor *src) {
  moth_tensor *x = a->input, *y = g->out[0];
  moth_tensor *mine = TO(SAME(x, y), x), *theirs = TO(SAME(src, GATHERED(y)), x);
  if (!a->include_self)
    mine = GRAD(g, scatter, .input = mine, .dim = a->dim, .index = a->index, .src = NUMBER(0));
  moth_tensor *share = OVER(g->dy, ADDED(mine, theirs));
  if (moth_wants(g, x)) self_flow(a, g, TIMES(mine, share));
  if (moth_wants(g, a->src)) src_flow(a, g, TIMES(theirs, GATHERED(share)));
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
  if (moth_wants(g, a->src)) src_flow(a, g, GATHERED(d));
  return g->status;
}

MOTH_OP(scatter_reduce, SCATTER_REDUCE, .dtypes = MOTH_NUMERIC, .saves = "index input src y",
        .flags = MOTH_OP_INPLACE | MOTH_OP_METHOD | MOTH_OP_FROM_ONE,
        .doc = "The input with the values of `src` reduced into positions along a dimension: "
               "values for one position are combined to their sum, product, mean, minimum or "
               "maximum.",
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
