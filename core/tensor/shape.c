/* shape.c -- layouts: packing, broadcasting, overlap; checks of dims; shapes as text. */
#include "base/context.h"
#include "shape.h"
#include "base/error.h"

bool moth_mul_overflow(int64_t a, int64_t b, int64_t *y) { return __builtin_mul_overflow(a, b, y); }
bool moth_add_overflow(int64_t a, int64_t b, int64_t *y) { return __builtin_add_overflow(a, b, y); }

bool moth_layout_pack(moth_layout *l) {
  int64_t step = 1, numel = 1;
  l->offset = 0;
  for (int d = l->ndim - 1; d >= 0; d--) {
    int64_t n = l->shape[d];
    l->stride[d] = step;
    if (moth_mul_overflow(step, n > 1 ? n : 1, &step)) return false;
    if (moth_mul_overflow(numel, n, &numel)) return false;
  }
  l->numel = numel;
  int64_t bytes; /* also if a zero size hides an overflow: step is the product of the other sizes */
  return !moth_mul_overflow(step, 8, &bytes);
}

/* The i-th dimension of (N, C, H, W) or (N, C, D, H, W) in memory, from the innermost on. */
static int channels_last_dim(const moth_layout *l, int i) {
  return i == 0 ? 1 : i == l->ndim - 1 ? 0 : l->ndim - i;
}

bool moth_layout_pack_channels_last(moth_layout *l) {
  int64_t step = 1;
  if (!moth_layout_pack(l)) return false;
  for (int i = 0; i < l->ndim; i++) {
    const int d = channels_last_dim(l, i);
    l->stride[d] = step;
    step *= l->shape[d] > 1 ? l->shape[d] : 1;
  }
  return true;
}

bool moth_layout_channels_last(const moth_layout *l) {
  int64_t step = 1;
  if (l->ndim != 4 && l->ndim != 5) return false;
  for (int i = 0; i < l->ndim; i++) {
    const int d = channels_last_dim(l, i);
    if (l->shape[d] == 1) continue;
    if (l->stride[d] != step) return l->numel < 2;
    step *= l->shape[d];
  }
  return true;
}

bool moth_layout_contiguous(const moth_layout *l) {
  int64_t step = 1;
  if (l->numel < 2) return true;
  for (int d = l->ndim - 1; d >= 0; d--) {
    if (l->shape[d] == 1) continue;
    if (l->stride[d] != step) return false;
    step *= l->shape[d];
  }
  return true;
}

/* The step of x along dimension d of y, to which it broadcasts; 0: x has size 1 there. */
static int64_t step_along(const moth_layout *x, const moth_layout *y, int d) {
  const int at = d + x->ndim - y->ndim;
  if (at < 0 || (x->shape[at] == 1 && y->shape[d] != 1)) return 0;
  return x->stride[at] < 0 ? -x->stride[at] : x->stride[at];
}

/* Compares dimensions of y by the inputs' layouts. Below 0: a is inside b; above 0: b is inside a;
** 0: no input decides. */
static int compare_dims(const moth_layout *y, int n, const moth_layout *const *inputs, int a,
                        int b) {
  for (int k = 0; k < n; k++) {
    const int64_t p = step_along(inputs[k], y, a), q = step_along(inputs[k], y, b);
    if (!p || !q) continue;
    if (p != q) return p < q ? -1 : 1;
    if (y->shape[a] > y->shape[b]) return 1;
  }
  return 0;
}

void moth_layout_follow(moth_layout *y, int n, const moth_layout *const *inputs) {
  int dims[MOTH_MAX_DIMS]; /* from the innermost on */
  int64_t step = 1;
  for (int i = 0; i < y->ndim; i++) {
    dims[i] = y->ndim - 1 - i;
    for (int j = i - 1, at = i; j >= 0; j--) {
      const int d = dims[j], order = compare_dims(y, n, inputs, d, dims[at]);
      if (order < 0) break;
      if (order == 0) continue;
      dims[j] = dims[at];
      dims[at] = d;
      at = j;
    }
  }
  for (int i = 0; i < y->ndim; i++) {
    y->stride[dims[i]] = step;
    step *= y->shape[dims[i]] > 1 ? y->shape[dims[i]] : 1;
  }
}

/* In order of strides, each dim must step over the extent of all smaller ones. The test is exact
** for all views that ops make. Some as_strided layouts without overlap count as overlapping. */
bool moth_layout_overlaps(const moth_layout *l) {
  int64_t stride[MOTH_MAX_DIMS], shape[MOTH_MAX_DIMS], reach = 0;
  int n = 0;
  if (l->numel < 2) return false;
  for (int d = 0; d < l->ndim; d++) {
    if (l->shape[d] == 1) continue;
    int64_t s = l->stride[d] < 0 ? -l->stride[d] : l->stride[d];
    int i = n++;
    for (; i > 0 && stride[i - 1] > s; i--) stride[i] = stride[i - 1], shape[i] = shape[i - 1];
    stride[i] = s, shape[i] = l->shape[d];
  }
  for (int i = 0; i < n; i++) {
    if (stride[i] <= reach) return true;
    reach += stride[i] * (shape[i] - 1);
  }
  return false;
}

bool moth_layout_dense(const moth_layout *l) {
  int64_t lo, hi;
  if (moth_layout_contiguous(l)) return true;
  moth_layout_span(l, &lo, &hi);
  return lo == l->offset && hi - lo == l->numel && !moth_layout_overlaps(l);
}

bool moth_shape_same(const moth_layout *a, const moth_layout *b) {
  if (a->ndim != b->ndim) return false;
  for (int d = 0; d < a->ndim; d++)
    if (a->shape[d] != b->shape[d]) return false;
  return true;
}

bool moth_layout_same(const moth_layout *a, const moth_layout *b) {
  if (a->offset != b->offset || !moth_shape_same(a, b)) return false;
  for (int d = 0; d < a->ndim; d++)
    if (a->shape[d] != 1 && a->stride[d] != b->stride[d]) return false;
  return true;
}

void moth_layout_span(const moth_layout *l, int64_t *lo, int64_t *hi) {
  *lo = *hi = l->offset;
  if (l->numel == 0) return;
  for (int d = 0; d < l->ndim; d++) {
    int64_t reach = (l->shape[d] - 1) * l->stride[d];
    *(reach < 0 ? lo : hi) += reach;
  }
  *hi += 1;
}

bool moth_layout_broadcast(moth_layout *y, const moth_layout *x) {
  int ndim = y->ndim > x->ndim ? y->ndim : x->ndim;
  int64_t shape[MOTH_MAX_DIMS];
  for (int i = 1; i <= ndim; i++) {
    int64_t p = i <= y->ndim ? y->shape[y->ndim - i] : 1;
    int64_t q = i <= x->ndim ? x->shape[x->ndim - i] : 1;
    if (p != q && p != 1 && q != 1) return false;
    shape[ndim - i] = p == 1 ? q : p;
  }
  y->ndim = ndim;
  memcpy(y->shape, shape, sizeof(int64_t) * (size_t)ndim);
  return true;
}

/* -- helpers for shape rules -- */

int moth_dim(moth_ctx *ctx, const char *arg, int64_t dim, int32_t ndim, int32_t *out) {
  int32_t n = ndim > 0 ? ndim : 1; /* a 0-d tensor counts as 1-d here, as in PyTorch */
  if (dim < -n || dim >= n)
    return moth_fail(ctx, MOTH_E_INDEX, arg,
                     "dim " MOTH_POS " is out of range: wanted " MOTH_POS " to " MOTH_POS
                     " or -%d to -1",
                     (long long)dim, 0LL, (long long)n - 1, n);
  *out = (int32_t)(dim < 0 ? dim + n : dim);
  return MOTH_OK;
}

int moth_dim_mask(moth_ctx *ctx, const char *arg, moth_ints dims, int32_t ndim, uint32_t *mask) {
  *mask = 0;
  if (!dims.at || dims.n == 0) {
    *mask = (1u << ndim) - 1u;
    return MOTH_OK;
  }
  for (int64_t i = 0; i < dims.n; i++) {
    int32_t d = 0, status = moth_dim(ctx, arg, dims.at[i], ndim, &d);
    if (status) return status;
    if (*mask >> d & 1u)
      return moth_fail(ctx, MOTH_E_ARG, arg, "dim " MOTH_POS " is named twice", (long long)d);
    *mask |= 1u << d;
  }
  if (ndim == 0) *mask = 0;
  return MOTH_OK;
}

int moth_broadcast(moth_ctx *ctx, const char *arg, moth_layout *y, const moth_tensor *a,
                   const moth_tensor *b) {
  y->ndim = a->l.ndim;
  memcpy(y->shape, a->l.shape, sizeof y->shape);
  if (moth_shape_same(&a->l, &b->l)) return MOTH_OK;
  if (moth_layout_broadcast(y, &b->l)) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_SHAPE, arg, "%s cannot be broadcast with %s", moth_str(b),
                   moth_str(a));
}

int moth_reduced_shape(moth_ctx *ctx, const moth_tensor *x, moth_ints dims, bool keepdim,
                       moth_layout *y, uint32_t *mask) {
  int status = moth_dim_mask(ctx, "dim", dims, x->l.ndim, mask);
  if (status) return status;
  y->ndim = 0;
  for (int32_t d = 0; d < x->l.ndim; d++)
    if (!(*mask >> d & 1u)) y->shape[y->ndim++] = x->l.shape[d];
    else if (keepdim) y->shape[y->ndim++] = 1;
  return MOTH_OK;
}

int moth_shape_like(const moth_tensor *x, moth_layout *y) {
  y->ndim = x->l.ndim;
  memcpy(y->shape, x->l.shape, sizeof *y->shape * (size_t)y->ndim);
  return MOTH_OK;
}

int moth_shape_of(moth_ctx *ctx, const char *arg, moth_ints sizes, moth_layout *y) {
  if (sizes.n < 0 || sizes.n > MOTH_MAX_DIMS)
    return moth_fail(ctx, MOTH_E_SHAPE, arg, "at most %d dimensions are possible, got more",
                     MOTH_MAX_DIMS);
  y->ndim = (int32_t)sizes.n;
  for (int d = 0; d < y->ndim; d++) {
    if (sizes.at[d] < 0)
      return moth_fail(ctx, MOTH_E_SHAPE, arg, "a size cannot be negative: %s",
                       moth_str_ints(ctx, sizes.n, sizes.at));
    y->shape[d] = sizes.at[d];
  }
  if (!moth_layout_pack(y))
    return moth_fail(ctx, MOTH_E_SHAPE, arg, "%s is more elements than can be addressed",
                     moth_str_ints(ctx, sizes.n, sizes.at));
  return MOTH_OK;
}

/* -- text -- */

static char *ring(moth_ctx *ctx) { return ctx->str[ctx->str_next++ % MOTH_STR_RING]; }

/* Writes `open`, the numbers and `close` into buf; "..." replaces numbers that do not fit. */
static void list_text(char *buf, size_t size, char open, char close, bool positions, int64_t n,
                      const int64_t *at) {
  size_t used = 0;
  buf[used++] = open;
  for (int64_t i = 0; i < n; i++) {
    if (used + 32 > size) {
      used += (size_t)snprintf(buf + used, size - used, "...");
      break;
    }
    if (i) used += (size_t)snprintf(buf + used, size - used, ", ");
    if (positions) used += (size_t)snprintf(buf + used, size - used, MOTH_POS, (long long)at[i]);
    else used += (size_t)snprintf(buf + used, size - used, "%lld", (long long)at[i]);
  }
  buf[used++] = close;
  buf[used] = 0;
}

const char *moth_str_shape(moth_ctx *ctx, int32_t ndim, const int64_t *shape) {
  char *buf = ring(ctx);
  list_text(buf, MOTH_STR_SIZE - 8, '(', ')', false, ndim, shape);
  return buf;
}

const char *moth_str_ints(moth_ctx *ctx, int64_t n, const int64_t *at) {
  char *buf = ring(ctx);
  list_text(buf, MOTH_STR_SIZE - 8, '{', '}', false, n, at);
  return buf;
}

const char *moth_str_dims(moth_ctx *ctx, int64_t n, const int64_t *at) {
  char *buf = ring(ctx);
  list_text(buf, MOTH_STR_SIZE - 8, '{', '}', true, n, at);
  return buf;
}

const char *moth_str_axes(const moth_tensor *x, int64_t n, const int64_t *at) {
  const int64_t height = x->flags & MOTH_T_LINES ? 1 : 0;
  return moth_str_ints(x->ctx, n - height, at + height);
}

const char *moth_str(const moth_tensor *x) {
  char *buf = ring(x->ctx);
  if (x->flags & MOTH_T_NUMBER) return "a number";
  const char *kind = x->flags & MOTH_T_SPARSE ? "sparse " : "";
  if (x->flags & MOTH_T_SHAPELESS) return "an uninitialized tensor";
  int64_t shape[MOTH_MAX_DIMS];
  int32_t n = 0;
  for (int32_t d = 0; d < x->l.ndim; d++)
    if (!(x->flags & MOTH_T_LINES) || d != x->l.ndim - 2) shape[n++] = x->l.shape[d];
  int used = snprintf(buf, 24, "%s%s ", kind, moth_dtype_name(x->l.dtype));
  list_text(buf + used, MOTH_STR_SIZE - 32, '(', ')', false, n, shape);
  return buf;
}
