/* embedding.c -- embedding: rows of a table by index. The gradient sums rows in the order of the
** tokens, so that the sums have the same bits each time.
*/
#include "embedding.h"
#include "tensor/shape.h"
#include "autograd/gradient.h"
#include "base/error.h"
#include "base/alloc.h"
#include "tensor/tensor.h"

#include <math.h>

#include "kernel/copy.h"
#include "kernel/real.h"
#include "tensor/sparse.h"
#include "autograd/tape.h"
#include "base/threads.h"

#include "compare.h"
#include "copy.h"
#include "gradient_formula.h"
#include "position.h"
#include "view.h"

#define NUDGE 1e-7 /* added to the norm in the divisor, as in PyTorch */

/* -- tokens and their factors -- */

moth_tensor *moth_tokens_of(const moth_tensor *index, int64_t rows, const char *arg) {
  moth_tensor *list = moth_positions(index);
  if (!list) return NULL;
  const int64_t *at = (const int64_t *)(const void *)moth_at(list);
  if (moth_positions_within(list->l.numel, at, 0, rows)) return list;
  for (int64_t i = 0; i < list->l.numel; i++) {
    if (at[i] >= 0 && at[i] < rows) continue;
    moth_fail(index->ctx, MOTH_E_INDEX, arg,
              "token " MOTH_POS " is out of range: there are %lld, from " MOTH_POS " on",
              (long long)at[i], (long long)rows, 0LL);
    moth_tensor_release(list);
    return NULL;
  }
  return list;
}

int moth_real_padding(moth_ctx *ctx, int64_t padding, int64_t rows, int64_t *y) {
  *y = -1;
  if (padding == MOTH_NO_INT) return MOTH_OK;
  *y = padding < 0 ? padding + rows : padding;
  if (*y >= 0 && *y < rows) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_INDEX, "padding_idx", MOTH_POS " is out of range for %lld tokens",
                   (long long)padding, (long long)rows);
}

typedef struct shares {
  moth_ctx *ctx;
  int64_t padding, bytes, *count; /* count: occurrences of each token; NULL if not needed */
} shares;

static int shares_new(shares *s, moth_ctx *ctx, const moth_tensor *list, int64_t rows,
                      int64_t padding, bool by_count) {
  *s = (shares){.ctx = ctx};
  int status = moth_real_padding(ctx, padding, rows, &s->padding);
  if (status || !by_count) return status;
  if (moth_mul_overflow(rows, (int64_t)sizeof *s->count, &s->bytes))
    return moth_fail(ctx, MOTH_E_LIMIT, "weight", "%lld rows are too many", (long long)rows);
  s->count = moth_alloc(ctx, s->bytes);
  if (!s->count) return ctx->error.code;
  if (s->bytes) memset(s->count, 0, (size_t)s->bytes);
  const int64_t *at = (const int64_t *)(const void *)moth_at(list);
  for (int64_t i = 0; i < list->l.numel; i++) s->count[at[i]]++;
  return MOTH_OK;
}

static void shares_free(shares *s) {
  if (s->count) moth_dealloc(s->ctx, s->count, s->bytes);
}

static double share(const shares *s, int64_t token) {
  if (token == s->padding) return 0;
  return s->count ? 1 / (double)s->count[token] : 1;
}

/* -- reading rows of the table -- */

static int embedding_rows_shape(const embedding_rows_args *a, moth_layout *y) {
  const moth_layout *x = &a->input->l;
  int64_t padding;
  if (a->weight->l.ndim != 2)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "weight", "(tokens, features) is needed, got %s",
                     moth_str(a->weight));
  if (x->ndim == MOTH_MAX_DIMS)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input", "%s has too many dimensions to add one",
                     moth_str(a->input));
  y->ndim = x->ndim + 1;
  if (a->sparse && a->scale_grad_by_freq)
    return moth_fail(a->ctx, MOTH_E_UNSUPPORTED, "scale_grad_by_freq",
                     "needs dense gradients: a sparse gradient keeps each occurrence of a token as "
                     "its own row");
  memcpy(y->shape, x->shape, sizeof y->shape);
  y->shape[x->ndim] = a->weight->l.shape[1];
  return moth_real_padding(a->ctx, a->padding_idx, a->weight->l.shape[0], &padding);
}

/* copies rows of w to y, scaled by the factors of their tokens if there are any */
typedef struct row_copy {
  const shares *s;
  const int64_t *at;
  int64_t d, bytes; /* number of elements and of bytes of a row */
  int dtype;
  const char *from;
  char *to;
} row_copy;

#define SCALE_ROW(real)                                                                  \
  do {                                                                                   \
    real *row = (real *)(void *)(t->to + i * bytes);                                     \
    for (int64_t k = 0; k < d; k++) row[k] = by == 0 ? 0 : row[k] * (real)by;            \
  } while (0)

static void take_part(int64_t first, int64_t last, int lane, const void *arg) {
  const row_copy *t = arg;
  const int64_t *at = t->at, d = t->d, bytes = t->bytes;
  (void)lane;
  for (int64_t i = first; i < last; i++) {
    memcpy(t->to + i * bytes, t->from + at[i] * bytes, (size_t)bytes);
    const double by = t->s ? share(t->s, at[i]) : 1;
    if (by == 1) continue;
    if (t->dtype == MOTH_F32) SCALE_ROW(float);
    else SCALE_ROW(double);
  }
}

/* y := rows of w; y is f32 or f64 if the tokens have factors */
static int take_rows(const embedding_rows_args *a, const moth_tensor *w, const moth_tensor *list,
                     moth_tensor *y) {
  shares s = {.padding = -1};
  const int64_t d = w->l.shape[1], n = list->l.numel;
  const row_copy t = {.s = a->shared ? &s : NULL, .d = d, .bytes = d * moth_dtype_size[w->l.dtype],
                      .at = (const int64_t *)(const void *)moth_at(list), .dtype = w->l.dtype,
                      .from = moth_at(w), .to = moth_at(y)};
  int status = MOTH_OK;
  if (a->shared)
    status = shares_new(&s, a->ctx, list, w->l.shape[0], a->padding_idx, a->scale_grad_by_freq);
  const double cost = 3 + 0.1 * (double)t.bytes;
  if (status) return status;
  if (d == 0 || (double)n * cost < 2000) take_part(0, d ? n : 0, 0, &t);
  else status = moth_parallel(a->ctx, n, 4, cost, take_part, &t);
  shares_free(&s);
  return status;
}

static int embedding_rows_cpu(const embedding_rows_args *a, moth_tensor **out) {
  moth_tensor *list = moth_tokens_of(a->input, a->weight->l.shape[0], "input");
  if (!list) return a->ctx->error.code;
  moth_tensor *w = a->shared ? moth_real(a->weight) : moth_packed(a->weight);
  moth_tensor *y = a->shared ? moth_real_out(out[0]) : moth_tensor_retain(out[0]);
  int status = w && y ? take_rows(a, w, list, y) : a->ctx->error.code;
  moth_tensor_release(w);
  moth_tensor_release(list);
  return moth_real_done(y, out[0], status);
}

/* Returns a sparse tensor of the used rows and their gradients; the gradient of padding is 0. The
** tensors are copied, since the caller may change the originals. */
static moth_tensor *used_rows(const embedding_rows_args *a, moth_grad *g) {
  const int64_t n = a->input->l.numel, shape[] = {n, a->weight->l.shape[1]}, column[] = {n, 1};
  int64_t padding;
  moth_tensor *list = a->input->l.index_base ? GRAD(g, to_index, .input = a->input)
                                             : GRAD(g, clone, .input = a->input);
  moth_tensor *rows = GRAD(g, reshape, .input = list, .shape = {shape, 1});
  moth_tensor *values = GRAD(g, reshape, .input = g->dy, .shape = {shape, 2});
  if (!g->status)
    g->status = moth_real_padding(a->ctx, a->padding_idx, a->weight->l.shape[0], &padding);
  if (!g->status && padding >= 0) {
    moth_tensor *is = GRAD(g, eq, .input = rows, .other = moth_grad_number(g, (double)padding));
    is = GRAD(g, reshape, .input = is, .shape = {column, 2});
    values = FILLED(values, is, 0);
  }
  if (!g->status) values = moth_grad_own(g, moth_packed(values));
  return g->status ? NULL : moth_grad_own(g, moth_sparse_new(&a->weight->l, rows, values));
}

static int embedding_rows_grad(const embedding_rows_args *a, moth_grad *g) {
  const moth_node *to = moth_wants(g, a->weight) ? g->edges[a->weight->arg].node : NULL;
  if (a->sparse && to && to->flags & MOTH_N_LEAF && !g->ctx->grad_mode)
    return moth_flow(g, a->weight, used_rows(a, g));
  return moth_flow(g, a->weight,
                   GRAD(g, embedding_back, .input = g->dy, .index = a->input,
                        .num_embeddings = a->weight->l.shape[0], .padding_idx = a->padding_idx,
                        .scale_grad_by_freq = a->scale_grad_by_freq));
}

MOTH_OP(embedding_rows, EMBEDDING_ROWS,
  .doc = "Rows of a table, selected by index.",
  .examples =
    "moth.randn(4, 3), moth.tensor{{2LL, 1LL}, {4LL, 2LL}}\n"
    "moth.randn(4, 3), {2, 1, 4, 2}, {padding_idx = 2, scale_grad_by_freq = true, shared = true}\n"
    "moth.randn(4, 3), {1, 4, 1}, {scale_grad_by_freq = true, shared = true}\n"
    "moth.randn(4, 3), {1, 4, 1}, {padding_idx = 4, shared = true, sparse = true}",
  .dtypes = MOTH_FLOATS,
  .saves = "input",
  .flags = MOTH_OP_HIDDEN | MOTH_OP_FROM_ONE_THERE, .public_name = "embedding")

/* -- the gradient -- */

static int embedding_back_shape(const embedding_back_args *a, moth_layout *y) {
  int32_t n = a->index->l.ndim;
  bool fits = a->input->l.ndim == n + 1;
  for (int32_t i = 0; fits && i < n; i++) fits = a->input->l.shape[i] == a->index->l.shape[i];
  if (!fits)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input", "%s does not match %s", moth_str(a->input),
                     moth_str(a->index));
  if (a->num_embeddings < 0)
    return moth_fail(a->ctx, MOTH_E_ARG, "num_embeddings", "must be at least 0");
  y->ndim = 2;
  y->shape[0] = a->num_embeddings;
  y->shape[1] = a->input->l.shape[n];
  return MOTH_OK;
}

#define ADD_ROWS(real)                                                              \
  do {                                                                              \
    const real *from = (const real *)(const void *)moth_at(dy) + i * d;             \
    real *to = (real *)(void *)moth_at(y) + at[i] * d, f = (real)by;                \
    for (int64_t k = 0; k < d; k++) to[k] += from[k] * f;                           \
  } while (0)

static int add_rows(const embedding_back_args *a, const moth_tensor *list, const moth_tensor *dy,
                    moth_tensor *y) {
  shares s;
  const int64_t *at = (const int64_t *)(const void *)moth_at(list);
  int64_t d = y->l.shape[1];
  int status = shares_new(&s, a->ctx, list, a->num_embeddings, a->padding_idx,
                          a->scale_grad_by_freq);
  if (!status) status = moth_real_clear(y);
  for (int64_t i = 0; !status && d && i < list->l.numel; i++) {
    if ((i & 4095) == 0 && moth_cancelled(a->ctx)) status = moth_stopped(a->ctx);
    if (at[i] == s.padding) continue;
    double by = share(&s, at[i]);
    if (dy->l.dtype == MOTH_F32) ADD_ROWS(float);
    else ADD_ROWS(double);
  }
  shares_free(&s);
  return status;
}

static int embedding_back_cpu(const embedding_back_args *a, moth_tensor **out) {
  moth_tensor *list = moth_tokens_of(a->index, a->num_embeddings, "index");
  if (!list) return a->ctx->error.code;
  moth_tensor *dy = moth_real(a->input), *y = moth_real_out(out[0]);
  int status = dy && y ? add_rows(a, list, dy, y) : a->ctx->error.code;
  moth_tensor_release(dy);
  moth_tensor_release(list);
  return moth_real_done(y, out[0], status);
}

static int embedding_back_grad(const embedding_back_args *a, moth_grad *g) {
  return moth_flow(g, a->input,
                   GRAD(g, embedding_rows, .weight = g->dy, .input = a->index,
                        .padding_idx = a->padding_idx,
                        .scale_grad_by_freq = a->scale_grad_by_freq, .shared = true));
}

MOTH_OP(embedding_back, EMBEDDING_BACK,
  .doc = "The gradient of embedding: rows are summed by token.",
  .examples =
    "moth.randn(2, 2, 3), moth.tensor{{2LL, 1LL}, {4LL, 2LL}}, 4\n"
    "moth.randn(4, 3), {2, 1, 4, 2}, 4, {padding_idx = 1, scale_grad_by_freq = true}",
  .dtypes = MOTH_FLOATS,
  .saves = "index",
  .flags = MOTH_OP_HIDDEN | MOTH_OP_FROM_ONE_THERE)

/* -- embedding -- */

static double norm_of(int64_t n, const double *x, double p) {
  double sum = 0;
  if (p == 2) {
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum);
  }
  if (isinf(p)) {
    for (int64_t i = 0; i < n; i++) sum = fabs(x[i]) > sum ? fabs(x[i]) : sum;
    return sum;
  }
  for (int64_t i = 0; i < n; i++) sum += pow(fabs(x[i]), p);
  return pow(sum, 1 / p);
}

/* Scales the listed rows of w whose norm is above `most`; `row` is a buffer for one row. */
static int shorten(moth_tensor *w, const moth_tensor *list, double most, double p, double *row) {
  const int64_t *at = (const int64_t *)(const void *)moth_at(list);
  int64_t d = w->l.shape[1], size = moth_dtype_size[w->l.dtype], step = w->l.stride[1] * size;
  for (int64_t i = 0; i < list->l.numel; i++) {
    if ((i & 4095) == 4095 && moth_cancelled(w->ctx)) return moth_stopped(w->ctx);
    char *here = moth_at(w) + at[i] * w->l.stride[0] * size;
    moth_convert(d, w->l.dtype, here, step, MOTH_F64, (char *)row, sizeof *row);
    double norm = norm_of(d, row, p);
    if (!(norm > most)) continue;
    for (int64_t k = 0; k < d; k++) row[k] *= most / (norm + NUDGE);
    moth_convert(d, MOTH_F64, (const char *)row, sizeof *row, w->l.dtype, here, step);
  }
  return MOTH_OK;
}

static int embedding_renorm__compose(const embedding_renorm__args *a, moth_tensor **out) {
  moth_ctx *ctx = a->ctx;
  moth_tensor *w = a->weight;
  int64_t bytes;
  (void)out;
  if (w->l.ndim != 2)
    return moth_fail(ctx, MOTH_E_SHAPE, "weight", "a matrix is needed, got %s", moth_str(w));
  bool mode = ctx->grad_mode;
  ctx->grad_mode = false;
  int status = moth_check_write(w, "weight", false);
  ctx->grad_mode = mode;
  if (status) return status;
  if (moth_mul_overflow(w->l.shape[1], (int64_t)sizeof(double), &bytes))
    return moth_fail(ctx, MOTH_E_LIMIT, "weight", "%s is too large", moth_str(w));
  moth_tensor *list = moth_tokens_of(a->input, w->l.shape[0], "input");
  double *row = list ? moth_alloc(ctx, bytes) : NULL;
  if (!row) status = ctx->error.code;
  if (!status) {
    status = shorten(w, list, a->max_norm, a->norm_type, row);
    if (w->l.numel && list->l.numel) moth_storage_bump(w->storage);
    moth_dealloc(ctx, row, bytes);
  }
  moth_tensor_release(list);
  return status;
}

MOTH_OP_COMPOSES(embedding_renorm_, EMBEDDING_RENORM_,
  .doc = "Scales the vectors of the given tokens in place so that their norm is at most max_norm.",
  .examples = "moth.randn(4, 3), {2, 1, 4}, 0.5\n"
              "moth.randn(4, 3), {2, 1, 4}, {max_norm = 0.5, norm_type = 1}",
  .outputs = "",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_HIDDEN | MOTH_OP_WHOLE | MOTH_OP_FROM_ONE_THERE, .public_name = "embedding")

/* A device's kernel only writes. */
static int renorm_there(const embedding_args *a) {
  moth_tensor *w = a->weight;
  const bool mode = a->ctx->grad_mode;
  a->ctx->grad_mode = false;
  int status = moth_check_write(w, "weight", false);
  a->ctx->grad_mode = mode;
  if (!status)
    status = MOTH_CALL(a->ctx, NULL, embedding_renorm_, .weight = w, .input = a->input,
                       .max_norm = a->max_norm, .norm_type = a->norm_type);
  if (!status && w->l.numel && a->input->l.numel) moth_storage_bump(w->storage);
  return status;
}

static int embedding_compose(const embedding_args *a, moth_tensor **out) {
  const embedding_rows_args rows = {.ctx = a->ctx, .weight = a->weight, .input = a->input,
                                    .padding_idx = a->padding_idx,
                                    .scale_grad_by_freq = a->scale_grad_by_freq,
                                    .sparse = a->sparse};
  if (!moth_absent(a->max_norm)) {
    moth_layout y;
    /* if the arguments are wrong, nothing is written */
    int status = embedding_rows_shape(&rows, &y);
    if (!status && a->weight->l.device) status = renorm_there(a);
    else if (!status)
      status = MOTH_CALL(a->ctx, NULL, embedding_renorm_, .weight = a->weight, .input = a->input,
                         .max_norm = a->max_norm, .norm_type = a->norm_type);
    if (status) return status;
  }
  return moth_run(&moth_op_embedding_rows, &rows, out);
}

MOTH_OP_COMPOSES(embedding, EMBEDDING,
  .doc = "The rows of `weight` at the given tokens: (...) -> (..., features).",
  .examples =
    "moth.tensor{{2LL, 1LL}, {4LL, 2LL}}, moth.randn(4, 3)\n"
    "{2, 1, 4}, moth.randn(4, 3), {padding_idx = 3, scale_grad_by_freq = true, max_norm = 50,"
    " norm_type = 1}\n"
    "{2, 1, 2}, moth.randn(4, 3), {sparse = true}",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_FROM_ONE_THERE)

const moth_op *const moth_embedding_ops[] = {
  &moth_op_embedding, &moth_op_embedding_renorm_, &moth_op_embedding_rows,
  &moth_op_embedding_back, NULL,
};
