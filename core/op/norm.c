/* norm.c -- layer_norm, rms_norm and group_norm: rows normalised by their own mean and variance.
** The kernels treat all three as rows of (channels, inner) elements. A channel has one weight;
** consecutive rows use `groups` sets of weights in turn.
**
** The gradient is one fused call; under create_graph it is composed of ops.
*/
#include "norm.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "base/alloc.h"
#include "tensor/tensor.h"

#include <float.h>

#include "autograd/backward_parts.h"
#include "call/frame.h"
#include "kernel/norm.h"
#include "kernel/real.h"
#include "gradient_formula.h"
#include "reduce.h"

typedef struct row_form {
  int64_t rows, groups, channels, inner;
} row_form;

int moth_norm_fits(moth_ctx *ctx, const char *arg, const moth_tensor *x, int32_t ndim,
                   const int64_t *shape) {
  if (!x) return MOTH_OK;
  moth_layout wanted = {.ndim = ndim};
  memcpy(wanted.shape, shape, sizeof *shape * (size_t)ndim);
  if (moth_shape_same(&wanted, &x->l)) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_SHAPE, arg, "%s is needed, got %s", moth_str_shape(ctx, ndim, shape),
                   moth_str(x));
}

int moth_norm_eps(moth_ctx *ctx, double eps) {
  if (eps >= 0) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_DOMAIN, "eps", "a number from 0 on is needed, got %g", eps);
}

/* -- forward -- */

/* y has the input's shape. The statistics have one element per row, in the dtype of computation. */
static void result_shapes(const moth_tensor *input, const row_form *f, int stats, moth_layout *y) {
  y[0].ndim = input->l.ndim;
  memcpy(y[0].shape, input->l.shape, sizeof y[0].shape);
  for (int i = 1; i <= stats; i++) {
    y[i].dtype = (uint8_t)moth_compute_dtype(input->l.dtype);
    y[i].ndim = 1;
    y[i].shape[0] = f->rows;
  }
}

/* Layout of a second result: a copy in a half type, for products in a region of autocast. Only made
** where the kernel writes it in the same pass. */
static void half_copy_shape(int64_t half, const moth_layout *result, moth_layout *y) {
  y->ndim = MOTH_NO_RESULT;
  if (half < 0 || !moth_is_half((int)half) || !result->device || result->dtype != MOTH_F32) return;
  y->ndim = result->ndim;
  memcpy(y->shape, result->shape, sizeof y->shape);
  y->dtype = (uint8_t)half;
}

/* If mean is NULL, it is not subtracted. */
static int rows_run(const moth_tensor *input, const moth_tensor *weight, const moth_tensor *bias,
                    const row_form *f, double eps, moth_tensor *out, moth_tensor *mean,
                    moth_tensor *rstd) {
  moth_ctx *ctx = input->ctx;
  moth_tensor *x = moth_real(input), *y = moth_real_out(out);
  moth_tensor *w = weight ? moth_real(weight) : NULL, *b = bias ? moth_real(bias) : NULL;
  int status = x && y && (w || !weight) && (b || !bias) ? MOTH_OK : ctx->error.code;
  if (!status) {
    moth_row_norm p = {.dtype = x->l.dtype, .rows = f->rows, .groups = f->groups,
                       .channels = f->channels, .inner = f->inner, .centred = mean != NULL,
                       .eps = eps, .x = moth_at(x), .y = moth_at(y), .rstd = moth_at(rstd)};
    p.mean = mean ? moth_at(mean) : NULL;
    p.weight = w ? moth_at(w) : NULL;
    p.bias = b ? moth_at(b) : NULL;
    status = moth_row_norm_run(ctx, &p);
  }
  moth_tensor_release(x);
  moth_tensor_release(w);
  moth_tensor_release(b);
  return moth_real_done(y, out, status);
}

/* -- backward, fused -- */

static int row_norm_back_shape(const row_norm_back_args *a, moth_layout *y) {
  int64_t weights, rows = a->rstd->l.numel, n = a->input->l.numel;
  int status = moth_real_alike("grad", a->grad, a->input);
  if (!status && a->sum) status = moth_real_alike("sum", a->sum, a->input);
  if (status) return status;
  if (a->sum && !moth_shape_same(&a->sum->l, &a->input->l))
    return moth_fail(a->ctx, MOTH_E_SHAPE, "sum", "%s does not match %s", moth_str(a->sum),
                     moth_str(a->input));
  if (!moth_shape_same(&a->grad->l, &a->input->l))
    return moth_fail(a->ctx, MOTH_E_SHAPE, "grad", "%s does not match %s", moth_str(a->grad),
                     moth_str(a->input));
  if (a->groups < 1 || a->channels < 0 || moth_mul_overflow(a->groups, a->channels, &weights))
    return moth_fail(a->ctx, MOTH_E_ARG, "groups", "%lld groups of %lld channels are not possible",
                     (long long)a->groups, (long long)a->channels);
  bool fits = n == 0 || (rows > 0 && a->channels > 0 && n % rows == 0 &&
                         n / rows % a->channels == 0 && rows % a->groups == 0);
  if (!fits || (a->mean && a->mean->l.numel != rows) ||
      (a->weight && a->weight->l.numel != weights))
    return moth_fail(a->ctx, MOTH_E_SHAPE, "rstd", "%s does not match %s", moth_str(a->rstd),
                     moth_str(a->input));
  y[0].dtype = y[1].dtype = y[2].dtype = a->input->l.dtype;
  y[0].ndim = a->input->l.ndim;
  memcpy(y[0].shape, a->input->l.shape, sizeof y[0].shape);
  y[1].ndim = y[2].ndim = 1;
  y[1].shape[0] = y[2].shape[0] = a->affine ? weights : 0;
  half_copy_shape(a->half, &y[0], &y[3]);
  return MOTH_OK;
}

/* Converts sums in double to the gradients of weight and bias. */
static int put_sums(moth_tensor *y, const double *sums) {
  moth_convert(y->l.numel, MOTH_F64, (const char *)sums, sizeof *sums, y->l.dtype, moth_at(y),
               moth_dtype_size[y->l.dtype]);
  return MOTH_OK;
}

static int back_into(const row_norm_back_args *a, moth_row_norm *p, moth_tensor **out) {
  int64_t weights = a->affine ? a->groups * a->channels : 0, size = (int64_t)sizeof(double), bytes;
  if (moth_mul_overflow(weights, 4 * size, &bytes))
    return moth_fail(a->ctx, MOTH_E_LIMIT, "channels", "too many");
  double *sums = moth_alloc(a->ctx, bytes);
  if (!sums) return a->ctx->error.code;
  if (a->affine && weights) {
    memset(sums, 0, (size_t)bytes);
    p->dweight = sums;
    p->dbias = sums + weights;
    p->part = sums + 2 * weights;
  }
  int status = moth_row_norm_back(a->ctx, p);
  if (!status) status = put_sums(out[1], sums);
  if (!status) status = put_sums(out[2], sums + weights);
  moth_dealloc(a->ctx, sums, bytes);
  return status;
}

static int row_norm_back_cpu(const row_norm_back_args *a, moth_tensor **out) {
  int dtype = moth_compute_dtype(a->input->l.dtype);
  int64_t rows = a->rstd->l.numel, inner = 1;
  if (a->input->l.numel) inner = a->input->l.numel / rows / a->channels;
  else rows = 0;
  moth_tensor *x = moth_real(a->input), *dy = moth_real(a->grad), *dx = moth_real_out(out[0]);
  moth_tensor *w = a->weight ? moth_cast(a->weight, dtype) : NULL;
  moth_tensor *mean = a->mean ? moth_cast(a->mean, dtype) : NULL;
  moth_tensor *rstd = moth_cast(a->rstd, dtype);
  bool ready = x && dy && dx && rstd && (w || !a->weight) && (mean || !a->mean);
  int status = ready ? MOTH_OK : a->ctx->error.code;
  if (!status) {
    moth_row_norm p = {.dtype = dtype, .rows = rows, .groups = a->groups, .inner = inner,
                       .channels = a->channels, .centred = mean != NULL, .x = moth_at(x),
                       .dy = moth_at(dy), .dx = moth_at(dx), .rstd = moth_at(rstd)};
    p.mean = mean ? moth_at(mean) : NULL;
    p.weight = w ? moth_at(w) : NULL;
    status = back_into(a, &p, out);
  }
  moth_tensor_release(x);
  moth_tensor_release(dy);
  moth_tensor_release(w);
  moth_tensor_release(mean);
  moth_tensor_release(rstd);
  status = moth_real_done(dx, out[0], status);
  if (status || !a->sum) return status;
  add_args args = {.ctx = a->ctx, .input = out[0], .other = a->sum, .alpha = {.as.number = 1}};
  return moth_run_into(&moth_op_add, &args, out[0]);
}

MOTH_OP_CONST(row_norm_back, ROW_NORM_BACK,
  .doc = "The gradients of layer_norm, rms_norm and group_norm.",
  .examples =
    "moth.randn(2, 6), moth.randn(2, 6), moth.randn(3), moth.randn(2), moth.rand(2), 1, 3\n"
    "moth.randn(2, 6), moth.randn(2, 6), moth.none, moth.none, moth.rand(2),"
    " {groups = 2, channels = 3, affine = false, sum = moth.randn(2, 6), half = moth.float16}",
  .outputs = "dx, dweight, dbias, half_copy: hidden",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_CHANNELS_LAST | MOTH_OP_HIDDEN | MOTH_OP_MIXED, .public_name = "layer_norm")

/* -- backward, composed of ops -- */

typedef struct row_grad {
  moth_tensor *input, *weight, *bias, *mean, *rstd;
  row_form f;
  bool centred;
  double eps;
} row_grad;

/* Returns x itself if possible, since a leaf can take over a gradient without other references. */
static moth_tensor *shaped(moth_grad *g, moth_tensor *x, const moth_tensor *as) {
  if (x && moth_shape_same(&x->l, &as->l)) return x;
  return GRAD(g, reshape, .input = x, .shape = {as->l.shape, as->l.ndim});
}

/* With g = dy weight: dx = rstd (g - mean(g) - xhat mean(g xhat)), with means over each row. */
static int with_ops(moth_grad *g, const row_grad *r) {
  int64_t four[4] = {r->f.rows / r->f.groups, r->f.groups, r->f.channels, r->f.inner};
  int64_t row[2] = {2, 3}, rest[2] = {0, 3};
#define ROW_MEAN(p) GRAD(g, mean, .input = p, .dim = {row, 2}, .keepdim = true, .dtype = -1)
#define WEIGHT_SUM(p) GRAD(g, sum, .input = p, .dim = {rest, 2}, .dtype = -1)
  moth_tensor *x = GRAD(g, reshape, .input = r->input, .shape = {four, 4});
  moth_tensor *dy = GRAD(g, reshape, .input = g->dy, .shape = {four, 4}), *gw = dy;
  if (r->centred) x = MINUS(x, ROW_MEAN(x));
  moth_tensor *var = ROW_MEAN(OF(square, x));
  moth_tensor *rstd = GRAD(g, rsqrt, .input = PLUS(var, NUMBER(r->eps)));
  moth_tensor *xhat = TIMES(x, rstd);
  if (moth_wants(g, r->input)) {
    int64_t affine[3] = {r->f.groups, r->f.channels, 1};
    if (r->weight)
      gw = TIMES(dy, GRAD(g, reshape, .input = r->weight, .shape = {affine, 3}));
    moth_tensor *dx = r->centred ? MINUS(gw, ROW_MEAN(gw)) : gw;
    dx = TIMES(MINUS(dx, TIMES(xhat, ROW_MEAN(TIMES(gw, xhat)))), rstd);
    moth_flow(g, r->input, dx ? shaped(g, dx, r->input) : NULL);
  }
  if (moth_wants(g, r->weight))
    moth_flow(g, r->weight, shaped(g, WEIGHT_SUM(TIMES(dy, xhat)), r->weight));
  if (moth_wants(g, r->bias)) moth_flow(g, r->bias, shaped(g, WEIGHT_SUM(dy), r->bias));
  return g->status;
}

static int rows_grad(moth_grad *g, const row_grad *r) {
  if (g->ctx->grad_mode) return with_ops(g, r);
  moth_tensor *d[MOTH_MAX_OUTPUTS] = {NULL};
  bool affine = moth_wants(g, r->weight) || moth_wants(g, r->bias);
  /* gradients from other uses of the input, if the kernel can add them in the same pass */
  moth_tensor *sum = r->input->l.device && r->input->l.dtype == MOTH_F32
                       ? moth_flow_take(g, r->input) : NULL;
  const int half = moth_flow_half(g, r->input);
  g->status = MOTH_CALL(g->ctx, d, row_norm_back, .grad = g->dy, .input = r->input,
                        .weight = moth_wants(g, r->input) ? r->weight : NULL, .mean = r->mean,
                        .rstd = r->rstd, .groups = r->f.groups, .channels = r->f.channels,
                        .affine = affine, .sum = sum, .half = half);
  if (g->status) return g->status;
  for (int i = 0; i < 3; i++) moth_grad_own(g, d[i]);
  if (d[3]) moth_flow_keep(g, d[0], d[3]);
  moth_flow(g, r->input, d[0]);
  if (moth_wants(g, r->weight)) moth_flow(g, r->weight, shaped(g, d[1], r->weight));
  if (moth_wants(g, r->bias)) moth_flow(g, r->bias, shaped(g, d[2], r->bias));
  return g->status;
}

/* -- layer_norm -- */

/* Checks that the last dimensions of x have the sizes `shape`. The dimensions before them are the
** rows. */
static int last_dims(const moth_tensor *x, moth_ints shape, row_form *f) {
  moth_ctx *ctx = x->ctx;
  int64_t first = x->l.ndim - shape.n;
  if (shape.n < 1)
    return moth_fail(ctx, MOTH_E_SHAPE, "normalized_shape", "at least one size is needed, got {}");
  bool fits = first >= 0;
  for (int64_t i = 0; fits && i < shape.n; i++) fits = x->l.shape[first + i] == shape.at[i];
  if (!fits)
    return moth_fail(ctx, MOTH_E_SHAPE, "normalized_shape", "%s are not the last sizes of %s",
                     moth_str_ints(ctx, shape.n, shape.at), moth_str(x));
  *f = (row_form){.rows = 1, .groups = 1, .channels = 1, .inner = 1};
  bool over = false;
  for (int64_t i = 0; i < x->l.ndim; i++) {
    int64_t *to = i < first ? &f->rows : &f->channels;
    over |= moth_mul_overflow(*to, x->l.shape[i], to);
  }
  if (over) return moth_fail(ctx, MOTH_E_LIMIT, "input", "%s has too many rows", moth_str(x));
  return MOTH_OK;
}

static int layer_norm_shape(const layer_norm_args *a, moth_layout *y) {
  row_form f;
  moth_ints shape = a->normalized_shape;
  int status = last_dims(a->input, shape, &f);
  if (!status) status = moth_norm_eps(a->ctx, a->eps);
  if (!status) status = moth_norm_fits(a->ctx, "weight", a->weight, (int32_t)shape.n, shape.at);
  if (!status) status = moth_norm_fits(a->ctx, "bias", a->bias, (int32_t)shape.n, shape.at);
  if (!status) result_shapes(a->input, &f, 2, y);
  if (!status) half_copy_shape(a->ctx->autocast, &y[0], &y[3]);
  return status;
}

static int layer_norm_cpu(const layer_norm_args *a, moth_tensor **out) {
  row_form f;
  int status = last_dims(a->input, a->normalized_shape, &f);
  if (status) return status;
  return rows_run(a->input, a->weight, a->bias, &f, a->eps, out[0], out[1], out[2]);
}

static int layer_norm_grad(const layer_norm_args *a, moth_grad *g) {
  row_grad r = {a->input, a->weight, a->bias, g->out[1], g->out[2], {0, 0, 0, 0}, true, a->eps};
  g->status = last_dims(a->input, a->normalized_shape, &r.f);
  return g->status ? g->status : rows_grad(g, &r);
}

MOTH_OP(layer_norm, LAYER_NORM,
  .doc = "(x - mean) / sqrt(var + eps) * weight + bias, with mean and variance over the last "
         "dimensions, normalized_shape (Ba et al. 2016).",
  .examples =
    "moth.randn(2, 3, 4), {4}\n"
    "moth.randn(2, 3, 4), {3, 4}, moth.randn(3, 4), moth.randn(3, 4)\n"
    "moth.randn(2, 4), {4}, {bias = moth.randn(4), eps = 0.1}",
  .outputs = "y, mean: hidden, rstd: hidden, half_copy: hidden",
  .dtypes = MOTH_FLOATS,
  .saves = "input mean rstd weight:input",
  .flags = MOTH_OP_HALF_COPY | MOTH_OP_HALF_GRADIENT, .autocast = MOTH_AUTOCAST_F32)

/* -- rms_norm -- */

static double rms_eps(const rms_norm_args *a) {
  if (!moth_absent(a->eps)) return a->eps;
  return a->input->l.dtype == MOTH_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
}

static int rms_norm_shape(const rms_norm_args *a, moth_layout *y) {
  row_form f;
  moth_ints shape = a->normalized_shape;
  int status = last_dims(a->input, shape, &f);
  if (!status) status = moth_norm_eps(a->ctx, rms_eps(a));
  if (!status) status = moth_norm_fits(a->ctx, "weight", a->weight, (int32_t)shape.n, shape.at);
  if (!status) result_shapes(a->input, &f, 1, y);
  if (!status) half_copy_shape(a->ctx->autocast, &y[0], &y[2]);
  return status;
}

static int rms_norm_cpu(const rms_norm_args *a, moth_tensor **out) {
  row_form f;
  int status = last_dims(a->input, a->normalized_shape, &f);
  if (status) return status;
  return rows_run(a->input, a->weight, NULL, &f, rms_eps(a), out[0], NULL, out[1]);
}

static int rms_norm_grad(const rms_norm_args *a, moth_grad *g) {
  row_grad r = {a->input, a->weight, NULL, NULL, g->out[1], {0, 0, 0, 0}, false, rms_eps(a)};
  g->status = last_dims(a->input, a->normalized_shape, &r.f);
  return g->status ? g->status : rows_grad(g, &r);
}

MOTH_OP(rms_norm, RMS_NORM,
  .doc = "x / sqrt(mean(x^2) + eps) * weight, with the mean over the last dimensions, "
         "normalized_shape (Zhang and Sennrich 2019).",
  .examples =
    "moth.randn(2, 3, 4), {4}\n"
    "moth.randn(2, 3, 4), {3, 4}, moth.randn(3, 4), 0.1",
  .outputs = "y, rstd: hidden, half_copy: hidden",
  .dtypes = MOTH_FLOATS,
  .saves = "input rstd weight:input",
  .flags = MOTH_OP_HALF_COPY | MOTH_OP_HALF_GRADIENT, .autocast = MOTH_AUTOCAST_F32)

/* -- group_norm -- */

static int group_form(const group_norm_args *a, row_form *f) {
  const moth_layout *x = &a->input->l;
  if (x->ndim < 2)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input", "(N, C, ...) is needed, got %s",
                     moth_str(a->input));
  if (x->shape[1] == 0)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input", "at least one channel is needed, got %s",
                     moth_str(a->input));
  if (a->num_groups < 1 || x->shape[1] % a->num_groups)
    return moth_fail(a->ctx, MOTH_E_ARG, "num_groups",
                     "%lld channels do not make %lld groups",
                     (long long)x->shape[1], (long long)a->num_groups);
  *f = (row_form){.groups = a->num_groups, .channels = x->shape[1] / a->num_groups, .inner = 1};
  bool over = moth_mul_overflow(x->shape[0], a->num_groups, &f->rows);
  for (int32_t i = 2; i < x->ndim; i++)
    over |= moth_mul_overflow(f->inner, x->shape[i], &f->inner);
  if (over)
    return moth_fail(a->ctx, MOTH_E_LIMIT, "input", "%s has too many groups", moth_str(a->input));
  return MOTH_OK;
}

static int group_norm_shape(const group_norm_args *a, moth_layout *y) {
  row_form f;
  int status = group_form(a, &f);
  if (status) return status;
  const int64_t *channels = &a->input->l.shape[1];
  if (f.rows && f.channels * f.inner == 1 && a->input->l.shape[0] == 1)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input",
                     "%s has one value in each group: its variance is 0",
                     moth_str(a->input));
  status = moth_norm_eps(a->ctx, a->eps);
  if (!status) status = moth_norm_fits(a->ctx, "weight", a->weight, 1, channels);
  if (!status) status = moth_norm_fits(a->ctx, "bias", a->bias, 1, channels);
  if (!status) result_shapes(a->input, &f, 2, y);
  return status;
}

static int group_norm_cpu(const group_norm_args *a, moth_tensor **out) {
  row_form f;
  int status = group_form(a, &f);
  if (status) return status;
  return rows_run(a->input, a->weight, a->bias, &f, a->eps, out[0], out[1], out[2]);
}

static int group_norm_grad(const group_norm_args *a, moth_grad *g) {
  row_grad r = {a->input, a->weight, a->bias, g->out[1], g->out[2], {0, 0, 0, 0}, true, a->eps};
  g->status = group_form(a, &r.f);
  return g->status ? g->status : rows_grad(g, &r);
}

MOTH_OP(group_norm, GROUP_NORM,
  .doc = "(x - mean) / sqrt(var + eps) * weight + bias, with mean and variance of each group of "
         "channels of each sample (Wu and He 2018).",
  .examples =
    "moth.randn(2, 4, 3), 2\n"
    "moth.randn(2, 4, 2, 2), 2, moth.randn(4), moth.randn(4), 0.1\n"
    "moth.randn(3, 4), 1, {weight = moth.randn(4)}",
  .outputs = "y, mean: hidden, rstd: hidden",
  .dtypes = MOTH_FLOATS,
  .saves = "input mean rstd weight:input",
  .flags = MOTH_OP_CHANNELS_LAST | MOTH_OP_HALF_GRADIENT, .autocast = MOTH_AUTOCAST_F32)

/* -- normalize -- */

/* Half types are converted to f32: an eps of 1e-12 is 0 in f16, so that a zero vector becomes
** NaN. */
static int normalize_compose(const normalize_args *a, moth_tensor **out) {
  moth_ctx *ctx = a->ctx;
  moth_tensor *length = NULL, *least = NULL, *y = NULL;
  const int64_t dtype = a->input->l.dtype;
  const bool half = moth_is_half(a->input->l.dtype);
  int status = MOTH_CALL(ctx, &length, norm_p, .input = a->input, .p = a->p, .dim = {&a->dim, 1},
                         .keepdim = true, .dtype = half ? MOTH_F32 : -1);
  if (!status)
    status = MOTH_CALL(ctx, &least, clamp, .input = length, .min = a->eps,
                       .max = moth_absent_value());
  if (!status)
    status = MOTH_CALL(ctx, half ? &y : out, div, .input = a->input, .other = least,
                       .rounding_mode = MOTH_ROUND_NONE);
  if (!status && half) status = MOTH_CALL(ctx, out, cast, .input = y, .dtype = dtype);
  moth_tensor_release(y);
  moth_tensor_release(length);
  moth_tensor_release(least);
  return status;
}

MOTH_OP_COMPOSES(normalize, NORMALIZE,
  .doc = "x / max(norm(x), eps), with the p-norm of the vectors along a dimension.",
  .examples =
    "moth.randn(2, 3)\n"
    "moth.randn(2, 3), {p = 1, dim = -2, eps = 0.1}",
  .dtypes = MOTH_FLOATS, .autocast = MOTH_AUTOCAST_F32)

const moth_op *const moth_norm_ops[] = {
  &moth_op_normalize,
  &moth_op_layer_norm, &moth_op_rms_norm, &moth_op_group_norm, &moth_op_row_norm_back,
  &moth_op_batch_norm, &moth_op_move_running_, &moth_op_instance_norm, &moth_op_channel_norm,
  &moth_op_channel_norm_back,
  NULL,
};
