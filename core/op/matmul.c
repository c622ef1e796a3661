/* matmul.c -- matrix products in all of PyTorch's forms; all share one loop over batches. */
#include "matmul.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include "vendor/blas.h"
#include "capture/capture_fuse_pairs.h"
#include "kernel/math/unary.h"
#include "gradient_formula.h"
#include "reduce.h"

/* -- operands as batches of matrices -- */

typedef struct batches { /* a tensor of at least two dimensions; the last two are the matrix */
  const moth_tensor *x;
  int64_t rows, cols, rs, cs;
} batches;

/* Treats a vector as a row on the left, as a column on the right. */
static batches batches_of(const moth_tensor *x, bool left) {
  int n = x->l.ndim;
  const int64_t *shape = x->l.shape, *stride = x->l.stride;
  if (n == 1 && left) return (batches){x, 1, shape[0], 0, stride[0]};
  if (n == 1) return (batches){x, shape[0], 1, stride[0], 0};
  return (batches){x, shape[n - 2], shape[n - 1], stride[n - 2], stride[n - 1]};
}

static int32_t leading(const moth_tensor *x) { return x->l.ndim > 2 ? x->l.ndim - 2 : 0; }

/* The offset in elements between matrices along batch dim d (counted in the result's n batch
** dims). */
static int64_t batch_step(const moth_tensor *x, int d, int n) {
  int at = d - (n - leading(x));
  return at < 0 || x->l.shape[at] == 1 ? 0 : x->l.stride[at];
}

/* If the right operand has no batch dims, batch dims of the left operand that continue its rows in
** memory become rows: (B, T, K) x (K, N) is one product. Returns the number of batch dims left. */
static int join_rows(batches *a, const batches *b, int n) {
  while (n > 0 && leading(b->x) == 0) {
    int64_t size = a->x->l.shape[n - 1], step = a->x->l.stride[n - 1];
    if (size != 1 && a->rows != 1 && step != a->rs * a->rows) break;
    if (size != 1 && a->rows == 1) a->rs = step;
    a->rows *= size;
    n--;
  }
  return n;
}

/* c := a b over all batches; c is contiguous. */
static int product(moth_ctx *ctx, const moth_tensor *a, const moth_tensor *b, moth_tensor *c,
                   int32_t nbatch, const int64_t *shape) {
  batches p = batches_of(a, true), q = batches_of(b, false);
  moth_batch batch = {.ndim = join_rows(&p, &q, nbatch)};
  for (int d = 0; d < batch.ndim; d++) {
    batch.shape[d] = shape[d];
    batch.step_a[d] = batch_step(a, d, nbatch);
    batch.step_b[d] = batch_step(b, d, nbatch);
  }
  const moth_product one = {.dtype = c->l.dtype, .device = c->l.device, .m = p.rows,
                            .n = q.cols, .k = p.cols,
                            .a = moth_at(a), .rs_a = p.rs, .cs_a = p.cs, .b = moth_at(b),
                            .rs_b = q.rs, .cs_b = q.cs, .c = moth_at(c), .ldc = q.cols};
  batch.step_c = p.rows * q.cols;
  return moth_multiply_batch(ctx, &one, &batch);
}

/* -- matmul -- */

/* Computes the batch dims of the result. */
static int batch_shape(const matmul_args *a, moth_layout *y) {
  moth_layout other;
  y->ndim = leading(a->input);
  memcpy(y->shape, a->input->l.shape, sizeof(int64_t) * (size_t)y->ndim);
  other.ndim = leading(a->other);
  memcpy(other.shape, a->other->l.shape, sizeof(int64_t) * (size_t)other.ndim);
  if (moth_layout_broadcast(y, &other)) return MOTH_OK;
  return moth_fail(a->ctx, MOTH_E_SHAPE, "other",
                   "the leading dimensions of %s and %s do not match", moth_str(a->other),
                   moth_str(a->input));
}

static int matmul_shape(const matmul_args *a, moth_layout *y) {
  const moth_tensor *x = a->input, *w = a->other;
  if (x->l.ndim == 0 || w->l.ndim == 0)
    return moth_fail(a->ctx, MOTH_E_SHAPE, x->l.ndim == 0 ? "input" : "other",
                     "a vector or a matrix is needed, got %s", moth_str(x->l.ndim == 0 ? x : w));
  batches p = batches_of(x, true), q = batches_of(w, false);
  if (p.cols != q.rows)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "other", "%s cannot be multiplied with %s: %lld columns "
                     "on the left, %lld rows on the right", moth_str(x), moth_str(w),
                     (long long)p.cols, (long long)q.rows);
  int status = batch_shape(a, y);
  if (status) return status;
  if (x->l.ndim > 1) y->shape[y->ndim++] = p.rows;
  if (w->l.ndim > 1) y->shape[y->ndim++] = q.cols;
  return MOTH_OK;
}

/* Returns true if operands of y's dtype are multiplied without a conversion. */
static bool is_multiplied(const moth_tensor *y) {
  int dtype = y->l.dtype;
  return y->l.device || moth_compute_dtype(dtype) == dtype || moth_half_products(dtype);
}

/* Converts half types to f32 once for all batches. */
static int matmul_half(const matmul_args *a, moth_tensor *y, const moth_layout *batch) {
  moth_layout l = y->l;
  l.dtype = MOTH_F32;
  moth_tensor *x = moth_cast(a->input, MOTH_F32), *w = moth_cast(a->other, MOTH_F32);
  moth_tensor *work = x && w ? moth_tensor_new(a->ctx, &l) : NULL;
  int status = work ? product(a->ctx, x, w, work, batch->ndim, batch->shape) : a->ctx->error.code;
  if (!status) status = moth_copy_into(y, work);
  moth_tensor_release(x);
  moth_tensor_release(w);
  moth_tensor_release(work);
  return status;
}

static int matmul_cpu(const matmul_args *a, moth_tensor **out) {
  moth_layout batch;
  int status = batch_shape(a, &batch);
  if (status) return status;
  if (!is_multiplied(out[0])) return matmul_half(a, out[0], &batch);
  return product(a->ctx, a->input, a->other, out[0], batch.ndim, batch.shape);
}

#define UNSQUEEZED(p, at) GRAD(g, unsqueeze, .input = p, .dim = at)

static moth_tensor *summed(moth_grad *g, moth_tensor *x, int64_t dim) {
  return GRAD(g, sum, .input = x, .dim = {&dim, 1}, .dtype = -1);
}

/* Gradients of products with vectors. A vector is a matrix of one row or one column. */
static int vector_grad(const matmul_args *a, moth_grad *g) {
  bool row = a->input->l.ndim == 1, column = a->other->l.ndim == 1;
  if (row && column) {
    if (moth_wants(g, a->input)) moth_flow(g, a->input, TIMES(g->dy, a->other));
    if (moth_wants(g, a->other)) moth_flow(g, a->other, TIMES(g->dy, a->input));
  } else if (row) { /* y (..., n) = x (k) W (..., k, n) */
    moth_tensor *dy = UNSQUEEZED(g->dy, -2);
    if (moth_wants(g, a->input))
      moth_flow(g, a->input, summed(g, TIMES(a->other, dy), -1));
    if (moth_wants(g, a->other)) moth_flow(g, a->other, TIMES(UNSQUEEZED(a->input, -1), dy));
  } else { /* y (..., m) = A (..., m, k) x (k) */
    moth_tensor *dy = UNSQUEEZED(g->dy, -1);
    if (moth_wants(g, a->input)) moth_flow(g, a->input, TIMES(dy, a->other));
    if (moth_wants(g, a->other))
      moth_flow(g, a->other, summed(g, TIMES(a->input, dy), -2));
  }
  return g->status;
}

static int matmul_grad(const matmul_args *a, moth_grad *g) {
  if (a->input->l.ndim == 1 || a->other->l.ndim == 1) return vector_grad(a, g);
  if (moth_wants(g, a->other)) {
    /* one matrix for all batches: its gradient is a sum */
    bool sum = a->other->l.ndim == 2 && a->input->l.ndim > 2;
    if (sum || a->other->l.ndim == 2) moth_flow_outer(g, a->other, a->input, g->dy);
    else moth_flow(g, a->other, PRODUCT(TRANSPOSED(a->input), g->dy));
  }
  moth_spent(g, a->input);
  if (moth_wants(g, a->input)) moth_flow(g, a->input, PRODUCT(g->dy, TRANSPOSED(a->other)));
  return g->status;
}

MOTH_OP(matmul, MATMUL, .doc = "The matrix product; leading dimensions are batches.",
        .examples = "moth.randn(2, 3), moth.randn(3, 4)\nmoth.randn(3), moth.randn(3)\n"
                    "moth.randn(2, 3), moth.randn(3)\nmoth.randn(3), moth.randn(2, 3, 4)\n"
                    "moth.randn(5, 2, 3), moth.randn(3, 4)\n"
                    "moth.randn(5, 1, 2, 3), moth.randn(2, 3, 4)",
        .dtypes = MOTH_NUMERIC, .saves = "input:other other:input",
        .flags = MOTH_OP_OUT | MOTH_OP_METHOD | MOTH_OP_PORTABLE, .autocast = MOTH_AUTOCAST_HALF)

/* -- mm, bmm, mv, dot: matmul with checks of the operands' dimensions -- */

static int insist(moth_ctx *ctx, const char *arg, const moth_tensor *x, int32_t ndim,
                  const char *what) {
  if (x->l.ndim == ndim) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_SHAPE, arg, "%s is needed, got %s; matmul takes any dimensions",
                   what, moth_str(x));
}

/* Computes the product. An error of matmul for its argument `other` gets this op's argument
** name. */
static int multiplied(moth_ctx *ctx, const char *name, moth_tensor *x, moth_tensor *w,
                      moth_tensor **out) {
  int status = MOTH_CALL(ctx, out, matmul, .input = x, .other = w);
  return moth_error_as(ctx, status, "other", name);
}

#define INSISTS(op, LIST, second, left, right, left_text, right_text, text, ...)               \
  static int op##_compose(const op##_args *a, moth_tensor **out) {                             \
    int status = insist(a->ctx, "input", a->input, left, left_text);                           \
    if (!status) status = insist(a->ctx, #second, a->second, right, right_text);               \
    if (status) return status;                                                                 \
    return multiplied(a->ctx, #second, a->input, a->second, out);                              \
  }                                                                                            \
  MOTH_OP_COMPOSES(op, LIST, .doc = text, .dtypes = MOTH_NUMERIC,                              \
                   .flags = MOTH_OP_OUT | MOTH_OP_METHOD, __VA_ARGS__)

INSISTS(mm, MM, mat2, 2, 2, "a matrix", "a matrix", "The product of two matrices.",
        .examples = "moth.randn(2, 3), moth.randn(3, 4)", .autocast = MOTH_AUTOCAST_HALF)
INSISTS(mv, MV, vec, 2, 1, "a matrix", "a vector", "The product of a matrix and a vector.",
        .examples = "moth.randn(2, 3), moth.randn(3)", .autocast = MOTH_AUTOCAST_HALF)
INSISTS(dot, DOT, tensor, 1, 1, "a vector", "a vector", "The dot product of two vectors: sum(input "
                                                        "* other).",
        .examples = "moth.randn(3), moth.randn(3)")

static int bmm_compose(const bmm_args *a, moth_tensor **out) {
  int status = insist(a->ctx, "input", a->input, 3, "a batch of matrices");
  if (!status) status = insist(a->ctx, "mat2", a->mat2, 3, "a batch of matrices");
  if (status) return status;
  if (a->input->l.shape[0] != a->mat2->l.shape[0])
    return moth_fail(a->ctx, MOTH_E_SHAPE, "mat2", "%s and %s have different numbers of matrices",
                     moth_str(a->mat2), moth_str(a->input));
  return multiplied(a->ctx, "mat2", a->input, a->mat2, out);
}
MOTH_OP_COMPOSES(bmm, BMM, .doc = "The matrix products of two batches of matrices: y[b] = input[b] "
                                  "mat2[b].",
                 .examples = "moth.randn(5, 2, 3), moth.randn(5, 3, 4)", .dtypes = MOTH_NUMERIC,
                 .flags = MOTH_OP_OUT | MOTH_OP_METHOD, .autocast = MOTH_AUTOCAST_HALF)

/* -- linear -- */

static int linear_shape(const linear_args *a, moth_layout *y) {
  const moth_tensor *x = a->input, *w = a->weight;
  if (w->l.ndim != 2)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "weight",
                     "(out features, in features) is needed, got %s", moth_str(w));
  int32_t n = x->l.ndim;
  if (n == 0 || x->l.shape[n - 1] != w->l.shape[1])
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input",
                     "the last dimension should have the %lld features that the weight %s takes, "
                     "got %s", (long long)w->l.shape[1], moth_str(w), moth_str(x));
  if (a->bias && (a->bias->l.ndim != 1 || a->bias->l.shape[0] != w->l.shape[0]))
    return moth_fail(a->ctx, MOTH_E_SHAPE, "bias", "(%lld,) is needed for the weight %s, got %s",
                     (long long)w->l.shape[0], moth_str(w), moth_str(a->bias));
  y->ndim = n;
  memcpy(y->shape, x->l.shape, sizeof(int64_t) * (size_t)n);
  y->shape[n - 1] = w->l.shape[0];
  return MOTH_OK;
}

/* Returns true if all rows of x have the same stride, and returns the stride. */
static bool rows_step(const moth_tensor *x, int64_t *rows, int64_t *rs, int64_t *cs) {
  int n = x->l.ndim;
  *rows = 1;
  *rs = 0;
  *cs = x->l.stride[n - 1];
  for (int d = n - 2; d >= 0; d--) {
    if (x->l.shape[d] == 1) continue;
    if (*rows == 1) *rs = x->l.stride[d];
    else if (x->l.stride[d] != *rs * *rows && x->l.numel) return false;
    *rows *= x->l.shape[d];
  }
  return true;
}

/* Returns x as one matrix whose columns are the last dim: x itself, retained, or a packed copy.
** Owned. */
static moth_tensor *matrix_of(const moth_tensor *x, int64_t *rows, int64_t *rs, int64_t *cs) {
  if (rows_step(x, rows, rs, cs)) return moth_tensor_retain((moth_tensor *)(uintptr_t)x);
  moth_tensor *y = moth_packed(x);
  if (y) rows_step(y, rows, rs, cs);
  return y;
}

/* Applies relu where the product's kernel does not. */
static int relu_over(moth_tensor *y) {
  const moth_tensor *operands[] = {y, y};
  return moth_map(y->ctx, moth_unary.relu, y->l.dtype, 2, operands, NULL);
}

static int linear_real(const moth_tensor *input, const moth_tensor *w, const moth_tensor *bias,
                       bool relu, moth_tensor *y) {
  moth_product p = {.dtype = y->l.dtype, .device = y->l.device, .n = w->l.shape[0],
                    .k = w->l.shape[1], .b = moth_at(w),
                    .rs_b = w->l.stride[1], .cs_b = w->l.stride[0], .c = moth_at(y)};
  p.ldc = p.n;
  p.relu = relu && moth_multiply_relus(&p);
  if (y->l.numel == 0) return MOTH_OK;
  moth_tensor *row = bias ? moth_packed(bias) : NULL;
  moth_tensor *x = row || !bias ? matrix_of(input, &p.m, &p.rs_a, &p.cs_a) : NULL;
  if (x) p.a = moth_at(x);
  if (row) p.bias = moth_at(row);
  int status = x ? moth_multiply(y->ctx, &p) : y->ctx->error.code;
  moth_tensor_release(x);
  moth_tensor_release(row);
  return status || p.relu || !relu ? status : relu_over(y);
}

static int linear_cpu(const linear_args *a, moth_tensor **out) {
  if (is_multiplied(out[0]))
    return linear_real(a->input, a->weight, a->bias, a->activation, out[0]);
  moth_layout l = out[0]->l;
  l.dtype = MOTH_F32;
  moth_tensor *x = moth_cast(a->input, MOTH_F32), *w = moth_cast(a->weight, MOTH_F32);
  moth_tensor *bias = a->bias ? moth_cast(a->bias, MOTH_F32) : NULL;
  moth_tensor *y = x && w && (bias || !a->bias) ? moth_tensor_new(a->ctx, &l) : NULL;
  int status = y ? linear_real(x, w, bias, false, y) : a->ctx->error.code;
  if (!status) status = moth_copy_into(out[0], y);
  if (!status && a->activation) status = relu_over(out[0]); /* after rounding; -0 stays -0 */
  moth_tensor_release(x);
  moth_tensor_release(w);
  moth_tensor_release(bias);
  moth_tensor_release(y);
  return status;
}

static int linear_grad(const linear_args *a, moth_grad *g) {
  moth_tensor *dy = g->dy;
  if (a->activation) dy = GRAD_OVER(g, relu_back, .grad = dy, .output = g->out[0]);
  if (!moth_flow_both(g, a->weight, a->bias, dy, a->input)) {
    if (moth_wants(g, a->weight)) moth_flow_outer(g, a->weight, dy, a->input);
    if (moth_wants(g, a->bias)) moth_flow_rows(g, a->bias, a->weight, dy);
  }
  moth_spent(g, a->input);
  if (moth_wants(g, a->input)) moth_flow(g, a->input, PRODUCT(dy, a->weight));
  return g->status;
}

/* Fuses a relu of the result in a captured step. */
static bool linear_with_relu(const moth_pair *p) {
  linear_args *a = p->first->args;
  const moth_tensor *x = ((const relu_args *)p->next->args)->input;
  if (a->activation || !moth_same_bytes(x, p->first->out[0]) ||
      !moth_same_elements(x, p->next->out[0]) || !moth_pair_early(p, false))
    return false;
  a->activation = LINEAR_RELU;
  return true;
}

static const moth_fusion linear_fusions[] = {{&moth_op_relu, linear_with_relu, false}, {0}};

MOTH_OP(linear, LINEAR, .doc = "input weight^T + bias.",
        .examples = "moth.randn(2, 3), moth.randn(4, 3), moth.randn(4)\n"
                    "moth.randn(3), moth.randn(4, 3)\n"
                    "moth.randn(5, 2, 3), moth.randn(4, 3), moth.randn(4)\n"
                    "moth.randn(2, 3), moth.randn(4, 3), moth.randn(4), {activation = \"relu\"}",
        .dtypes = MOTH_NUMERIC, .saves = "input:weight weight:input y:activation",
        .flags = MOTH_OP_PORTABLE, .autocast = MOTH_AUTOCAST_HALF,
        .fuses_with = linear_fusions)

/* -- outer_sum -- */

static int outer_sum_shape(const outer_sum_args *a, moth_layout *y) {
  const moth_layout *p = &a->input->l, *q = &a->other->l;
  bool same = p->ndim == q->ndim && p->ndim > 0;
  for (int d = 0; same && d < p->ndim - 1; d++) same = p->shape[d] == q->shape[d];
  if (!same)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "other", "%s and %s differ before their last dimension",
                     moth_str(a->other), moth_str(a->input));
  y->ndim = 2;
  y->shape[0] = p->shape[p->ndim - 1];
  y->shape[1] = q->shape[q->ndim - 1];
  return MOTH_OK;
}

/* y := input' other. If `rows` is not NULL, the kernel may also write the sum of input's rows to
** it; *summed is set to true if it did. */
static int outer_run(const moth_tensor *input, const moth_tensor *other, moth_tensor *y,
                     moth_tensor *rows, bool *summed) {
  moth_product one = {.dtype = y->l.dtype, .device = y->l.device, .m = y->l.shape[0],
                      .n = y->l.shape[1], .c = moth_at(y), .ldc = y->l.shape[1],
                      .summed = summed};
  moth_tensor *p = matrix_of(input, &one.k, &one.cs_a, &one.rs_a);
  moth_tensor *q = p ? matrix_of(other, &one.k, &one.rs_b, &one.cs_b) : NULL;
  if (p) one.a = moth_at(p);
  if (q) one.b = moth_at(q);
  if (rows && y->l.numel && one.k) one.sums = moth_at(rows);
  int status = q ? moth_multiply(y->ctx, &one) : y->ctx->error.code;
  moth_tensor_release(p);
  moth_tensor_release(q);
  return status;
}

static int outer_sum_cpu(const outer_sum_args *a, moth_tensor **out) {
  return outer_run(a->input, a->other, out[0], NULL, NULL);
}

static int outer_sum_grad(const outer_sum_args *a, moth_grad *g) {
  if (moth_wants(g, a->input)) /* (..., n) times the transpose of (m, n) */
    moth_flow(g, a->input, GRAD(g, linear, .input = a->other, .weight = g->dy));
  if (moth_wants(g, a->other)) moth_flow(g, a->other, PRODUCT(a->input, g->dy));
  return g->status;
}

MOTH_OP(outer_sum, OUTER_SUM, .doc = "The sum of the outer products of the rows of two tensors: "
                                     "input^T other.",
        .examples = "moth.randn(2, 3), moth.randn(2, 4)\nmoth.randn(5, 2, 3), moth.randn(5, 2, 4)",
        .dtypes = MOTH_NUMERIC, .saves = "input:other other:input",
        .flags = MOTH_OP_HIDDEN | MOTH_OP_PORTABLE)

static int outer_sum_rows_shape(const outer_sum_rows_args *a, moth_layout *y) {
  const outer_sum_args of = {.ctx = a->ctx, .input = a->input, .other = a->other};
  y[1].ndim = 1;
  int status = outer_sum_shape(&of, y);
  y[1].shape[0] = y->shape[0];
  return status;
}

static int outer_sum_rows_cpu(const outer_sum_rows_args *a, moth_tensor **out) {
  bool summed = false;
  int64_t dims[MOTH_MAX_DIMS];
  sum_args all = {.ctx = a->ctx, .input = a->input, .dim = {dims, a->input->l.ndim - 1},
                  .dtype = -1};
  for (int i = 0; i < a->input->l.ndim - 1; i++) dims[i] = i;
  int status = outer_run(a->input, a->other, out[0], out[1], &summed);
  if (status || summed) return status;
  if (!all.dim.n) return moth_copy_into(out[1], a->input);
  return (all.input->l.device ? moth_op_sum.device : moth_op_sum.cpu)(&all, out + 1);
}

MOTH_OP_CONST(outer_sum_rows, OUTER_SUM,
              .doc = "outer_sum, and the sum of the rows of `input`: the gradients of a linear "
                     "layer for weight and bias.",
              .examples = "moth.randn(2, 3), moth.randn(2, 4)\n"
                          "moth.randn(5, 2, 3), moth.randn(5, 2, 4)\nmoth.randn(3), moth.randn(4)",
              .outputs = "y, rows", .dtypes = MOTH_FLOATS,
              .flags = MOTH_OP_HIDDEN | MOTH_OP_PORTABLE)

static int outer_compose(const outer_args *a, moth_tensor **out) {
  const moth_tensor *wrong = a->input->l.ndim != 1 ? a->input : a->vec2;
  if (wrong->l.ndim != 1)
    return moth_fail(a->ctx, MOTH_E_SHAPE, wrong == a->input ? "input" : "vec2",
                     "a vector is needed, got %s", moth_str(wrong));
  moth_tensor *column = NULL;
  int status = MOTH_CALL(a->ctx, &column, unsqueeze, .input = a->input, .dim = 1);
  if (!status) status = MOTH_CALL(a->ctx, out, mul, .input = column, .other = a->vec2);
  moth_tensor_release(column);
  return status;
}

MOTH_OP_COMPOSES(outer, OUTER, .doc = "The outer product of two vectors, (M, N): y[i][j] = "
                                      "input[i] vec2[j].",
                 .examples = "moth.randn(2), moth.randn(3)", .dtypes = MOTH_ANY | MOTH_PROMOTE,
                 .flags = MOTH_OP_METHOD | MOTH_OP_MIXED)

const moth_op *const moth_matmul_ops[] = {
  &moth_op_matmul, &moth_op_mm, &moth_op_bmm, &moth_op_mv, &moth_op_dot, &moth_op_linear,
  &moth_op_outer, &moth_op_outer_sum, &moth_op_outer_sum_rows, NULL,
};
