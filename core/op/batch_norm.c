/* batch_norm.c -- batch_norm and instance_norm: channels normalised over the batch or over their
** own plane, and the running statistics. norm.h declares the arguments; norm.c lists the ops.
**
** batch_norm records one node, channel_norm. Its mean and variance are hidden results; batch_norm
** updates the running statistics with them, without recording. If a relu follows the norm in the
** same op, or a captured step may fuse one (capture_fuse_pairs.c), `map` is another hidden result.
** The gradient computes the sign of the relu's input from `map` and the input, bit for bit, and
** does not read the result.
*/
#include <math.h>

#include "capture/capture_fuse_pairs.h"
#include "device/device.h"
#include "call/frame.h"
#include "kernel/math/arith.h"
#include "kernel/norm.h"
#include "kernel/real.h"
#include "kernel/math/unary.h"
#include "autograd/tape.h"
#include "gradient_formula.h"
#include "norm.h"
#include "reduce.h"
#include "view.h"
#include "tensor/shape.h"
#include "autograd/gradient.h"
#include "base/error.h"
#include "base/alloc.h"
#include "tensor/tensor.h"

static void release(moth_tensor **at, int n) {
  while (n) moth_tensor_release(at[--n]);
}

/* Splits the shape (N, C, ...) into n, c and inner. Returns the number of elements per channel, or
** -1 if it exceeds an integer. */
static int64_t channels_of(const moth_tensor *x, moth_channel_norm *p) {
  int64_t each;
  p->n = x->l.shape[0];
  p->c = x->l.shape[1];
  p->inner = 1;
  for (int32_t i = 2; i < x->l.ndim; i++)
    if (moth_mul_overflow(p->inner, x->l.shape[i], &p->inner)) return -1;
  return moth_mul_overflow(p->n, p->inner, &each) ? -1 : each;
}

static int check_input(const moth_tensor *x) {
  moth_channel_norm p;
  if (x->l.ndim < 2)
    return moth_fail(x->ctx, MOTH_E_SHAPE, "input", "(N, C, ...) is needed, got %s", moth_str(x));
  if (channels_of(x, &p) < 0)
    return moth_fail(x->ctx, MOTH_E_LIMIT, "input", "%s is too large", moth_str(x));
  return MOTH_OK;
}

/* Checks that an argument has one number per channel. Its dtype is that of x; it may be f32 if x
** has a half type. */
static int check_column(const moth_tensor *x, const char *arg, const moth_tensor *column) {
  int status = moth_norm_fits(x->ctx, arg, column, 1, &x->l.shape[1]);
  return status ? status : moth_real_alike(arg, column, x);
}

/* -- tables of doubles, one number per channel -- */

enum {
  MEAN, VAR, RSTD, SCALE, SHIFT, BY, DYSUM, DYXSUM,
  WAS_MEAN, WAS_SCALE, WAS_SHIFT, /* of the forward pass; used if it had a relu */
  COLUMNS
};
enum { MAP_MEAN, MAP_SCALE, MAP_SHIFT, MAP_COLUMNS = 4 }; /* padded to 16 bytes, four f32 */

typedef struct table {
  moth_ctx *ctx;
  int64_t c, bytes;
  double *at;
} table;

static int table_new(table *t, moth_ctx *ctx, int64_t c) {
  *t = (table){.ctx = ctx, .c = c};
  if (moth_mul_overflow(c, COLUMNS * (int64_t)sizeof(double), &t->bytes))
    return moth_fail(ctx, MOTH_E_LIMIT, "input", "%lld channels are too many", (long long)c);
  t->at = moth_alloc(ctx, t->bytes);
  return t->at ? MOTH_OK : ctx->error.code;
}

static void table_free(table *t) {
  if (t->at) moth_dealloc(t->ctx, t->at, t->bytes);
}

static double *column(const table *t, int which) { return t->at + which * t->c; }

/* Reads a column from a tensor, or fills it with `otherwise` if the tensor is NULL. */
static void column_read(const table *t, int which, const moth_tensor *x, double otherwise) {
  double *to = column(t, which);
  if (x)
    moth_convert(t->c, x->l.dtype, moth_at(x), x->l.stride[0] * moth_dtype_size[x->l.dtype],
                 MOTH_F64, (char *)to, sizeof *to);
  else
    for (int64_t i = 0; i < t->c; i++) to[i] = otherwise;
}

static void column_write(const table *t, int which, moth_tensor *y) {
  if (y->l.numel)
    moth_convert(t->c, MOTH_F64, (const char *)column(t, which), sizeof(double), y->l.dtype,
                 moth_at(y), moth_dtype_size[y->l.dtype]);
}

/* Reads column k of a map (C, 4). */
static void map_read(const table *t, int which, const moth_tensor *map, int k) {
  const int64_t *step = map->l.stride, size = moth_dtype_size[map->l.dtype];
  moth_convert(t->c, map->l.dtype, moth_at(map) + k * step[1] * size, step[0] * size, MOTH_F64,
               (char *)column(t, which), sizeof(double));
}

static void map_write(const table *t, const moth_tensor *map) {
  double *to = (double *)(void *)moth_at(map);
  for (int64_t i = 0; i < t->c; i++, to += MAP_COLUMNS) {
    to[MAP_MEAN] = column(t, MEAN)[i];
    to[MAP_SCALE] = column(t, SCALE)[i];
    to[MAP_SHIFT] = column(t, SHIFT)[i];
    to[MAP_COLUMNS - 1] = 0;
  }
}

static void find_rstd(const table *t, double eps) {
  for (int64_t i = 0; i < t->c; i++) column(t, RSTD)[i] = 1 / sqrt(column(t, VAR)[i] + eps);
}

/* -- channel_norm -- */

static int check_residual(const moth_tensor *x, const moth_tensor *residual) {
  if (!residual || (residual->l.dtype == x->l.dtype && moth_shape_same(&residual->l, &x->l)))
    return MOTH_OK;
  return moth_fail(x->ctx, residual->l.dtype == x->l.dtype ? MOTH_E_SHAPE : MOTH_E_DTYPE,
                   "residual", "%s is needed, got %s", moth_str(x), moth_str(residual));
}

/* Shape rules call this, so it raises no warnings. */
static bool wants_map(const channel_norm_args *a) {
  const moth_ctx *ctx = a->ctx;
  return ctx->grad_mode && !a->residual && (a->activation || (ctx->capture && ctx->quiet <= 1));
}

static int channel_norm_shape(const channel_norm_args *a, moth_layout *y) {
  int status = check_input(a->input);
  if (status) return status;
  const int64_t *c = &a->input->l.shape[1];
  status = check_column(a->input, "weight", a->weight);
  if (!status) status = check_column(a->input, "bias", a->bias);
  if (!status) status = check_column(a->input, "mean", a->mean);
  if (!status) status = check_column(a->input, "var", a->var);
  if (!status && !a->mean != !a->var)
    status = moth_fail(a->ctx, MOTH_E_ARG, a->mean ? "var" : "mean",
                       "is needed, since the other of mean and var is given");
  if (!status) status = check_residual(a->input, a->residual);
  y[0].ndim = a->input->l.ndim;
  memcpy(y[0].shape, a->input->l.shape, sizeof y[0].shape);
  y[1].dtype = y[2].dtype = (uint8_t)moth_compute_dtype(a->input->l.dtype);
  y[1].ndim = y[2].ndim = 1;
  y[1].shape[0] = y[2].shape[0] = a->mean ? 0 : *c;
  y[3].ndim = wants_map(a) ? 2 : MOTH_NO_RESULT;
  y[3].shape[0] = *c;
  y[3].shape[1] = MAP_COLUMNS;
  y[3].dtype = y[0].device ? y[1].dtype : MOTH_F64;
  return status;
}

/* Computes mean and variance of every channel in two passes. They are 0 for channels without
** elements. */
static int find_statistics(const table *t, const moth_channel_norm *p, int64_t each) {
  if (each == 0) each = 1;
  int status = moth_channel_sums(t->ctx, p, NULL, column(t, MEAN));
  for (int64_t i = 0; i < t->c; i++) column(t, MEAN)[i] /= (double)each;
  if (!status) status = moth_channel_sums(t->ctx, p, column(t, MEAN), column(t, VAR));
  for (int64_t i = 0; i < t->c; i++) column(t, VAR)[i] /= (double)each;
  return status;
}

/* Applies the relu and adds the residual to a half-precision result, after rounding. */
static int finish_half(const channel_norm_args *a, moth_tensor *y) {
  const moth_tensor *operands[] = {y, y, a->residual};
  int status = MOTH_OK;
  if (a->residual)
    status = moth_map(a->ctx, moth_arith.add, y->l.dtype, 3, operands, NULL);
  if (!status && a->activation)
    status = moth_map(a->ctx, moth_unary.relu, y->l.dtype, 2, operands, NULL);
  return status;
}

/* Writes y, of f32 or f64. Applies relu and residual only if y is the op's result. */
static int norm_into(const channel_norm_args *a, const table *t, const moth_tensor *x,
                     const moth_tensor *residual, bool is_result, moth_tensor *y) {
  int status = MOTH_OK;
  moth_channel_norm p = {.dtype = x->l.dtype, .x = moth_at(x)};
  int64_t each = channels_of(x, &p);
  column_read(t, MEAN, a->mean, 0);
  column_read(t, VAR, a->var, 0);
  column_read(t, SCALE, a->weight, 1);
  column_read(t, SHIFT, a->bias, 0);
  if (!a->mean) status = find_statistics(t, &p, each);
  find_rstd(t, a->eps);
  for (int64_t i = 0; i < p.c; i++) column(t, SCALE)[i] *= column(t, RSTD)[i];
  if (is_result && residual) p.sum = moth_at(residual);
  p.relu = is_result && a->activation;
  return status ? status
                : moth_channel_apply(a->ctx, &p, column(t, MEAN), NULL, column(t, SCALE),
                                     column(t, SHIFT), moth_at(y));
}

static int channel_norm_cpu(const channel_norm_args *a, moth_tensor **out) {
  table t;
  const bool is_result = !moth_is_half(out[0]->l.dtype);
  int status = table_new(&t, a->ctx, a->input->l.shape[1]);
  if (status) return status;
  moth_tensor *x = moth_real(a->input), *y = moth_real_out(out[0]);
  moth_tensor *residual = is_result && a->residual ? moth_real(a->residual) : NULL;
  if (!x || !y || (is_result && a->residual && !residual)) status = a->ctx->error.code;
  if (!status) status = norm_into(a, &t, x, residual, is_result, y);
  column_write(&t, MEAN, out[1]);
  column_write(&t, VAR, out[2]);
  if (out[3]) map_write(&t, out[3]);
  moth_tensor_release(x);
  moth_tensor_release(residual);
  table_free(&t);
  status = moth_real_done(y, out[0], status);
  return status || is_result ? status : finish_half(a, out[0]);
}

/* xhat = (x - mean) rstd, g = dy weight. If the statistics are computed from the input,
** dx = rstd (g - mean(g) - xhat mean(g xhat)), with means over each channel. Else mean and var get
** gradients. */
static int with_ops(const channel_norm_args *a, moth_grad *g) {
  int64_t over[MOTH_MAX_DIMS], wide[MOTH_MAX_DIMS], n = 0;
  for (int32_t d = 0; d < a->input->l.ndim; d++) {
    wide[d] = d == 1 ? a->input->l.shape[1] : 1;
    if (d != 1) over[n++] = d;
  }
#define PER_CHANNEL(p) GRAD(g, reshape, .input = p, .shape = {wide, a->input->l.ndim})
#define CHANNEL_MEAN(p) GRAD(g, mean, .input = p, .dim = {over, n}, .keepdim = true, .dtype = -1)
#define CHANNEL_SUM(p) GRAD(g, sum, .input = p, .dim = {over, n}, .dtype = -1)
  bool own = !a->mean;
  moth_tensor *x = MINUS(a->input, own ? CHANNEL_MEAN(a->input) : PER_CHANNEL(a->mean));
  moth_tensor *var = own ? CHANNEL_MEAN(OF(square, x)) : PER_CHANNEL(a->var);
  moth_tensor *rstd = GRAD(g, rsqrt, .input = PLUS(var, NUMBER(a->eps)));
  moth_tensor *xhat = TIMES(x, rstd), *gw = g->dy;
  if (a->weight && (moth_wants(g, a->input) || moth_wants(g, a->mean) || moth_wants(g, a->var)))
    gw = TIMES(gw, PER_CHANNEL(a->weight));
  if (moth_wants(g, a->input)) {
    moth_tensor *dx = gw;
    if (own)
      dx = MINUS(MINUS(gw, CHANNEL_MEAN(gw)), TIMES(xhat, CHANNEL_MEAN(TIMES(gw, xhat))));
    moth_flow(g, a->input, TIMES(dx, rstd));
  }
  if (moth_wants(g, a->mean))
    moth_flow(g, a->mean, GRAD(g, neg, .input = CHANNEL_SUM(TIMES(gw, rstd))));
  if (moth_wants(g, a->var)) {
    moth_tensor *slope = TIMES(TIMES(gw, xhat), TIMES(OF(square, rstd),
                                                      NUMBER(-0.5)));
    moth_flow(g, a->var, CHANNEL_SUM(slope));
  }
  if (moth_wants(g, a->weight)) moth_flow(g, a->weight, CHANNEL_SUM(TIMES(g->dy, xhat)));
  if (moth_wants(g, a->bias)) moth_flow(g, a->bias, CHANNEL_SUM(g->dy));
  return g->status;
}

static int channel_norm_grad(const channel_norm_args *a, moth_grad *g) {
  const bool ops = g->ctx->grad_mode || moth_wants(g, a->mean) || moth_wants(g, a->var);
  const bool apart = a->activation && (ops || a->residual);
  if (apart) g->dy = GRAD_OVER(g, relu_back, .grad = g->dy, .output = g->out[0]);
  moth_flow(g, a->residual, g->dy);
  if (g->status) return g->status;
  if (ops) return with_ops(a, g);
  if (!moth_wants(g, a->input) && !moth_wants(g, a->weight) && !moth_wants(g, a->bias))
    return g->status;
  moth_tensor *d[MOTH_MAX_OUTPUTS] = {NULL};
  const moth_tensor *map = g->out[3];
  g->status = MOTH_CALL(g->ctx, d, channel_norm_back, .grad = g->dy, .input = a->input,
                        .weight = moth_wants(g, a->input) ? a->weight : NULL,
                        .mean = a->mean ? a->mean : g->out[1],
                        .var = a->var ? a->var : g->out[2], .eps = a->eps, .training = !a->mean,
                        .activation = apart ? NORM_PLAIN : a->activation,
                        .map = map && map->storage ? g->out[3] : NULL);
  if (g->status) return g->status;
  for (int i = 0; i < 3; i++) moth_grad_own(g, d[i]);
  moth_flow(g, a->input, d[0]);
  moth_flow(g, a->weight, d[1]);
  return moth_flow(g, a->bias, d[2]);
}

/* -- in a captured step: fuses the norm with a relu of its result or with the sum of it and a
** residual -- */

static bool norm_with_relu(const moth_pair *p) {
  channel_norm_args *a = p->first->args;
  const moth_tensor *x = ((const relu_args *)p->next->args)->input, *y = p->first->out[0];
  if (a->activation || !moth_same_bytes(x, y) || !moth_lie_alike(x, y) ||
      !moth_lie_alike(y, p->next->out[0]) || !moth_pair_early(p, true))
    return false;
  a->activation = NORM_RELU;
  return true;
}

static bool is_one(moth_scalar s) { return s.type == 0 ? s.as.number == 1 : s.as.integer == 1; }

/* Returns true if the norm may write its result over the residual. */
static bool is_added_to(const moth_tensor *residual, const moth_tensor *y) {
  return moth_same_bytes(residual, y) && moth_lie_alike(residual, y) &&
         (y->l.device || !moth_is_half(y->l.dtype));
}

/* The other operand of the sum must exist when the norm runs, and must not be freed before the
** sum. */
static bool norm_with_add(const moth_pair *p) {
  channel_norm_args *a = p->first->args;
  const add_args *sum = p->next->args;
  const moth_tensor *y = p->next->out[0], *x = p->first->out[0];
  const bool first = sum->input->storage == x->storage;
  const moth_tensor *summand = first ? sum->input : sum->other;
  moth_tensor *residual = first ? sum->other : sum->input;
  if (a->activation || a->residual || !is_one(sum->alpha) || !moth_same_bytes(summand, x) ||
      !moth_lie_alike(summand, x) || !moth_lie_alike(x, y) || residual->l.dtype != y->l.dtype ||
      !moth_shape_same(&residual->l, &y->l) ||
      moth_storages_overlap(residual->storage, x->storage) ||
      (moth_storages_overlap(residual->storage, y->storage) && !is_added_to(residual, y)) ||
      moth_capture_touches(p->c, p->a, p->b, residual, false) || !moth_pair_early(p, true))
    return false;
  a->residual = residual;
  return true;
}

static const moth_fusion norm_fusions[] = {
  {&moth_op_add, norm_with_add, false}, {&moth_op_relu, norm_with_relu, false}, {0}};

MOTH_OP(channel_norm, CHANNEL_NORM,
  .doc = "batch_norm without running statistics: the mean and variance are arguments or are "
         "computed from the input.",
  .examples =
    "moth.randn(4, 3)\n"
    "moth.randn(3, 2, 2), moth.randn(2), moth.randn(2), {eps = 0.1}\n"
    "moth.rand(2, 3, 2), {weight = moth.rand(3), mean = moth.rand(3), var = moth.rand(3)}"
    "  -- domain: positive\n"
    "moth.randn(3, 2, 2), {activation = \"relu\", residual = moth.randn(3, 2, 2)}",
  .outputs = "y, batch_mean: hidden, batch_var: hidden, map: hidden",
  .dtypes = MOTH_FLOATS,
  .saves = "input mean var batch_mean batch_var map weight:input weight:mean weight:var "
           "y:activation",
  .flags = MOTH_OP_CHANNELS_LAST | MOTH_OP_HIDDEN | MOTH_OP_MIXED, .autocast = MOTH_AUTOCAST_OFF,
  .fuses_with = norm_fusions, .public_name = "batch_norm")

static int channel_norm_back_shape(const channel_norm_back_args *a, moth_layout *y) {
  int status = check_input(a->input);
  if (!status) status = moth_real_alike("grad", a->grad, a->input);
  if (status) return status;
  const int64_t *c = &a->input->l.shape[1];
  status = moth_norm_fits(a->ctx, "grad", a->grad, a->input->l.ndim, a->input->l.shape);
  if (!status) status = check_column(a->input, "weight", a->weight);
  if (!status) status = check_column(a->input, "mean", a->mean);
  if (!status) status = check_column(a->input, "var", a->var);
  if (!status)
    status = moth_norm_fits(a->ctx, "map", a->map, 2, (const int64_t[]){*c, MAP_COLUMNS});
  if (!status && a->activation && !a->map)
    status = moth_fail(a->ctx, MOTH_E_ARG, "map", "is needed if a relu follows the norm");
  y[0].ndim = a->input->l.ndim;
  memcpy(y[0].shape, a->input->l.shape, sizeof y[0].shape);
  y[1].dtype = y[2].dtype = (uint8_t)moth_compute_dtype(a->input->l.dtype);
  y[1].ndim = y[2].ndim = 1;
  y[1].shape[0] = y[2].shape[0] = *c;
  return status;
}

static void back_factors(const channel_norm_back_args *a, const table *t, double each) {
  for (int64_t i = 0; i < t->c; i++) {
    double rstd = column(t, RSTD)[i], by = column(t, BY)[i] * rstd;
    column(t, BY)[i] = by;
    column(t, SHIFT)[i] = a->training ? -by * column(t, DYSUM)[i] / each : 0;
    column(t, SCALE)[i] = a->training ? -by * rstd * rstd * column(t, DYXSUM)[i] / each : 0;
    column(t, DYXSUM)[i] *= rstd;
  }
}

/* The greatest number that rounds to 0 in a half type: half of the smallest subnormal, rounded to
** even. */
static double least_of(int dtype) {
  return dtype == MOTH_F16 ? 0x1p-25 : dtype == MOTH_BF16 ? 0x1p-134 : 0;
}

static int back_into(const channel_norm_back_args *a, const table *t, const moth_tensor *x,
                     const moth_tensor *dy, moth_tensor *dx) {
  moth_channel_norm p = {.dtype = x->l.dtype, .x = moth_at(x), .dy = moth_at(dy)};
  int64_t each = channels_of(x, &p);
  column_read(t, MEAN, a->mean, 0);
  column_read(t, VAR, a->var, 0);
  column_read(t, BY, a->weight, 1);
  find_rstd(t, a->eps);
  if (a->activation) {
    map_read(t, WAS_MEAN, a->map, MAP_MEAN);
    map_read(t, WAS_SCALE, a->map, MAP_SCALE);
    map_read(t, WAS_SHIFT, a->map, MAP_SHIFT);
    p.mask = (moth_channel_mask){.mean = column(t, WAS_MEAN), .scale = column(t, WAS_SCALE),
                                 .shift = column(t, WAS_SHIFT),
                                 .least = least_of(a->input->l.dtype)};
  }
  int status = moth_channel_back_sums(a->ctx, &p, column(t, MEAN), column(t, DYSUM),
                                      column(t, DYXSUM));
  back_factors(a, t, (double)each);
  return status ? status
                : moth_channel_apply(a->ctx, &p, column(t, MEAN), column(t, BY), column(t, SCALE),
                                     column(t, SHIFT), moth_at(dx));
}

static int channel_norm_back_cpu(const channel_norm_back_args *a, moth_tensor **out) {
  table t;
  int status = table_new(&t, a->ctx, a->input->l.shape[1]);
  if (status) return status;
  moth_tensor *x = moth_real(a->input), *dy = moth_real(a->grad), *dx = moth_real_out(out[0]);
  if (!x || !dy || !dx) status = a->ctx->error.code;
  if (!status) status = back_into(a, &t, x, dy, dx);
  column_write(&t, DYXSUM, out[1]);
  column_write(&t, DYSUM, out[2]);
  moth_tensor_release(x);
  moth_tensor_release(dy);
  table_free(&t);
  return moth_real_done(dx, out[0], status);
}

/* Returns true if a channel_norm with a relu wrote both `map` and `relued`. The elements that the
** relu kept can then be computed from `map`. */
static bool is_masked_by(const moth_pair *p, const moth_tensor *map, const moth_tensor *relued) {
  for (uint32_t k = 0; map && k < p->a; k++) {
    const moth_instruction *in = &p->c->code[k];
    if (in->joined || in->op != &moth_op_channel_norm || !in->run || !in->out[3]) continue;
    const channel_norm_args *a = in->args;
    if (in->out[3]->storage == map->storage)
      return a->activation && !a->residual && moth_same_bytes(in->out[0], relued) &&
             moth_capture_written_once(p->c, k, relued->storage);
  }
  return false;
}

/* Fuses the gradient of the relu that follows the norm with the gradient of the norm. */
static bool norm_back_with_relu_back(const moth_pair *p) {
  const relu_back_args *relu = p->first->args;
  channel_norm_back_args *a = p->next->args;
  moth_tensor *dy = relu->grad;
  const moth_tensor *g = p->first->out[0];
  if (a->activation || !moth_same_bytes(a->grad, g) || !moth_lie_alike(g, dy) ||
      !moth_lie_alike(g, a->grad) || !is_masked_by(p, a->map, relu->output) ||
      moth_capture_touches(p->c, p->a + 1, p->b + 1, dy, false) ||
      !moth_capture_only_reader(p->c, p->a, p->b, g->storage))
    return false;
  a->activation = NORM_RELU;
  a->grad = dy;
  return true;
}

static const moth_fusion norm_back_fusions[] = {
  {&moth_op_relu_back, norm_back_with_relu_back, true}, {0}};

MOTH_OP_CONST(channel_norm_back, CHANNEL_NORM_BACK,
  .doc = "The gradients of channel_norm.",
  .examples =
    "moth.randn(4, 3), moth.randn(4, 3), moth.randn(3), moth.randn(3), moth.rand(3)\n"
    "moth.randn(2, 3, 2), moth.randn(2, 3, 2), {mean = moth.randn(3), var = moth.rand(3),"
    " eps = 0.1, training = false}\n"
    "moth.randn(2, 3, 2), moth.randn(2, 3, 2), {mean = moth.randn(3), var = moth.rand(3),"
    " activation = \"relu\", map = moth.randn(3, 4)}",
  .outputs = "dx, dweight, dbias",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_CHANNELS_LAST | MOTH_OP_HIDDEN | MOTH_OP_MIXED,
  .fuses_with = norm_back_fusions, .public_name = "batch_norm")

/* -- running statistics -- */

static int check_running(const moth_tensor *input, moth_tensor *mean, moth_tensor *var,
                         bool update) {
  moth_ctx *ctx = input->ctx;
  const char *name[2] = {"running_mean", "running_var"};
  moth_tensor *both[2] = {mean, var};
  if (!mean != !var)
    return moth_fail(ctx, MOTH_E_ARG, name[mean != NULL],
                     "is needed, since the other running statistic is given");
  if (mean && mean->l.ndim == 1 && moth_shape_same(&mean->l, &var->l) &&
      mean->l.shape[0] != input->l.shape[1])
    return moth_fail(ctx, MOTH_E_SHAPE, "input",
                     "%s has %lld channels, but the running statistics have %lld", moth_str(input),
                     (long long)input->l.shape[1], (long long)mean->l.shape[0]);
  for (int i = 0; i < 2 && mean; i++) {
    int status = moth_norm_fits(ctx, name[i], both[i], 1, &input->l.shape[1]);
    if (!status && update && ctx->grad_mode && moth_needs_grad(both[i]))
      status = moth_fail(ctx, MOTH_E_GRAPH, name[i],
                         "requires a gradient, so it cannot be updated in place");
    if (!status && update) status = moth_check_write(both[i], name[i], false);
    if (status) return status;
  }
  return MOTH_OK;
}

/* Returns (1 - momentum) running + momentum factor value, computed in f64. Owned; NULL after an
** error. */
static moth_tensor *moved(const moth_tensor *running, const moth_tensor *value, double momentum,
                          double factor) {
  moth_tensor *y = moth_cast(running, MOTH_F64), *by = y ? moth_cast(value, MOTH_F64) : NULL;
  if (!by) {
    moth_tensor_release(y);
    return NULL;
  }
  const double keep = 1 - momentum, add = momentum * factor;
  int status = MOTH_OK;
  if (y->l.device) {
    status = moth_device_map(y->ctx, "move_running", MOTH_F64, 2, (const moth_tensor *[]){y, by},
                             (const double[]){keep, add});
  } else {
    double *r = (double *)(void *)moth_at(y);
    const double *v = (const double *)(const void *)moth_at(by);
    for (int64_t i = 0; i < y->l.numel; i++) r[i] = keep * r[i] + add * v[i];
  }
  moth_tensor_release(by);
  if (!status) return y;
  moth_tensor_release(y);
  return NULL;
}

/* Returns true if a device can update both statistics in one pass: all four tensors are f32, and no
** written tensor shares memory with another one. */
static bool moves_at_once(const moth_tensor **t) {
  for (int i = 0; i < 4; i++) {
    if (t[i]->l.dtype != MOTH_F32 || !moth_layout_contiguous(&t[i]->l)) return false;
    for (int k = 0; k < i; k++) {
      const bool read = i == 3 && k == 1; /* tensors 1 and 3 are only read: they may share memory */
      if (t[i]->storage == t[k]->storage && !read) return false;
    }
  }
  return t[0]->l.device;
}

static int move_at_once(const move_running__args *a, const moth_tensor **t) {
  const double by[] = {1 - a->momentum, a->momentum, a->momentum * a->factor};
  int status = moth_device_map(a->ctx, "move_running", MOTH_F32, 4, t, by);
  for (int i = 0; !status && i < 4; i += 2) moth_storage_bump(t[i]->storage);
  return status;
}

/* Updates both statistics, or neither after an error. */
static int move_running__compose(const move_running__args *a, moth_tensor **out) {
  const moth_tensor *all[4] = {a->mean, a->batch_mean, a->var, a->batch_var};
  (void)out;
  for (int i = 1; i < 4; i++)
    if (moth_norm_fits(a->ctx, "mean", all[i], 1, a->mean->l.shape)) return a->ctx->error.code;
  if (moves_at_once(all) && a->mean->l.numel) return move_at_once(a, all);
  moth_tensor *m = moved(a->mean, a->batch_mean, a->momentum, 1);
  moth_tensor *v = m ? moved(a->var, a->batch_var, a->momentum, a->factor) : NULL;
  int status = v ? moth_copy_into(a->mean, m) : a->ctx->error.code;
  if (!status) status = moth_copy_into(a->var, v);
  if (v && a->mean->l.numel) {
    moth_storage_bump(a->mean->storage);
    moth_storage_bump(a->var->storage);
  }
  moth_tensor_release(m);
  moth_tensor_release(v);
  return status;
}

MOTH_OP_COMPOSES(move_running_, MOVE_RUNNING_,
  .doc = "Moves running statistics towards those of a batch: (1 - momentum) running + momentum "
         "batch.",
  .examples = "moth.zeros(3), moth.randn(3), moth.ones(3), moth.rand(3)\n"
              "moth.zeros(3), moth.randn(3), moth.ones(3), moth.rand(3), "
              "{momentum = 0.2, factor = 1.5}",
  .outputs = "", .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_HIDDEN | MOTH_OP_MIXED | MOTH_OP_WHOLE | MOTH_OP_PORTABLE,
  .public_name = "batch_norm")

/* -- batch_norm -- */

static int check_batch(const batch_norm_args *a) {
  moth_channel_norm p;
  int status = check_input(a->input);
  if (!status) status = moth_norm_eps(a->ctx, a->eps);
  if (!status) status = check_running(a->input, a->running_mean, a->running_var, a->training);
  if (status) return status;
  if (!a->training && !a->running_mean)
    return moth_fail(a->ctx, MOTH_E_ARG, "running_mean", "is needed in evaluation mode");
  if (a->training && channels_of(a->input, &p) == 1)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input",
                     "more than one value per channel is needed in training, got %s",
                     moth_str(a->input));
  return MOTH_OK;
}

static int batch_norm_compose(const batch_norm_args *a, moth_tensor **out) {
  moth_channel_norm p;
  moth_tensor *y[MOTH_MAX_OUTPUTS] = {NULL};
  int status = check_batch(a);
  if (!status)
    status = MOTH_CALL(a->ctx, y, channel_norm, .input = a->input, .weight = a->weight,
                       .bias = a->bias, .eps = a->eps, .activation = a->activation,
                       .residual = a->residual,
                       .mean = a->training ? NULL : a->running_mean,
                       .var = a->training ? NULL : a->running_var);
  if (status) return status;
  double n = (double)channels_of(a->input, &p);
  if (a->training && a->running_mean && n > 0)
    status = MOTH_CALL(a->ctx, NULL, move_running_, .mean = a->running_mean, .batch_mean = y[1],
                       .var = a->running_var, .batch_var = y[2], .momentum = a->momentum,
                       .factor = n / (n - 1));
  release(y + 1, 3);
  if (status) moth_tensor_release(y[0]);
  else out[0] = y[0];
  return status;
}

MOTH_OP_COMPOSES(batch_norm, BATCH_NORM,
  .doc = "(x - mean) / sqrt(var + eps) * weight + bias for each channel. In training, mean and "
         "variance are those of the batch, and the running statistics are updated: running = (1 - "
         "momentum) running + momentum batch, with the unbiased variance. Otherwise mean and "
         "variance are the running statistics (Ioffe and Szegedy 2015). The result has the input's "
         "dtype; with a half-precision input the other tensors may be f32.",
  .examples =
    "moth.randn(4, 3), {training = true}\n"
    "moth.randn(3, 2, 2), moth.randn(2), moth.rand(2), moth.randn(2), moth.randn(2),"
    " {eps = 0.1}  -- domain: positive\n"
    "moth.randn(4, 2, 2), {weight = moth.randn(2), training = true, momentum = 0.2}\n"
    "moth.randn(4, 2, 2), {training = true, activation = \"relu\", "
    "residual = moth.randn(4, 2, 2)}\n"
    "moth.randn(4, 3), {training = true, activation = \"relu\"}",
  .dtypes = MOTH_FLOATS, .flags = MOTH_OP_MIXED, .autocast = MOTH_AUTOCAST_OFF)

/* -- instance_norm -- */

/* The mean and variance of each plane, averaged over the batch, update the running statistics. Not
** recorded in the graph. */
static int planes_on(const instance_norm_args *a) {
  moth_tensor *y[4] = {NULL};
  moth_ctx *ctx = a->ctx;
  int64_t planes[MOTH_MAX_DIMS], n = 0, first = 0;
  for (int32_t d = 2; d < a->input->l.ndim; d++) planes[n++] = d;
  bool mode = ctx->grad_mode;
  ctx->grad_mode = false;
  int status = MOTH_CALL(ctx, &y[0], mean, .input = a->input, .dim = {planes, n}, .dtype = -1);
  if (!status) status = MOTH_CALL(ctx, &y[1], mean, .input = y[0], .dim = {&first, 1}, .dtype = -1);
  if (!status)
    status = MOTH_CALL(ctx, &y[2], var, .input = a->input, .dim = {planes, n}, .correction = 1,
                       .unbiased = true);
  if (!status) status = MOTH_CALL(ctx, &y[3], mean, .input = y[2], .dim = {&first, 1}, .dtype = -1);
  ctx->grad_mode = mode;
  if (!status)
    status = MOTH_CALL(ctx, NULL, move_running_, .mean = a->running_mean, .batch_mean = y[1],
                       .var = a->running_var, .batch_var = y[3], .momentum = a->momentum,
                       .factor = 1);
  release(y, 4);
  return status;
}

static int check_instance(const instance_norm_args *a) {
  moth_channel_norm p;
  const int64_t *c = &a->input->l.shape[1];
  int status = check_input(a->input);
  if (!status) status = moth_norm_eps(a->ctx, a->eps);
  if (!status) status = moth_norm_fits(a->ctx, "weight", a->weight, 1, c);
  if (!status) status = moth_norm_fits(a->ctx, "bias", a->bias, 1, c);
  if (!status)
    status = check_running(a->input, a->running_mean, a->running_var, a->use_input_stats);
  if (status) return status;
  channels_of(a->input, &p);
  if (!a->use_input_stats && !a->running_mean)
    return moth_fail(a->ctx, MOTH_E_ARG, "running_mean",
                     "is needed if use_input_stats is false");
  if (a->use_input_stats && p.inner == 1)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input",
                     "more than one value per channel of each sample is needed, got %s",
                     moth_str(a->input));
  return MOTH_OK;
}

static int instance_norm_compose(const instance_norm_args *a, moth_tensor **out) {
  int status = check_instance(a);
  if (status) return status;
  if (!a->use_input_stats)
    return MOTH_CALL(a->ctx, out, channel_norm, .input = a->input, .weight = a->weight,
                     .bias = a->bias, .mean = a->running_mean, .var = a->running_var,
                     .eps = a->eps);
  int64_t channels = a->input->l.shape[1];
  moth_tensor *y[MOTH_MAX_OUTPUTS] = {NULL};
  if (channels == 0) {
    status = MOTH_CALL(a->ctx, out, reshape, .input = a->input,
                       .shape = {a->input->l.shape, a->input->l.ndim});
    if (!status && a->weight) status = moth_attach(out, a->weight);
    return status || !a->bias ? status : moth_attach(out, a->bias);
  }
  status = MOTH_CALL(a->ctx, y, group_norm, .input = a->input, .num_groups = channels,
                     .weight = a->weight, .bias = a->bias, .eps = a->eps);
  if (!status && a->running_mean && a->input->l.numel) status = planes_on(a);
  release(y + 1, 2);
  if (status) moth_tensor_release(y[0]);
  else out[0] = y[0];
  return status;
}

MOTH_OP_COMPOSES(instance_norm, INSTANCE_NORM,
  .doc = "(x - mean) / sqrt(var + eps) * weight + bias, with mean and variance of each channel of "
         "each sample, or the running statistics (Ulyanov et al. 2016).",
  .examples =
    "moth.randn(2, 3, 4)\n"
    "moth.randn(2, 3, 2, 2), {weight = moth.randn(3), bias = moth.randn(3), momentum = 0.2,"
    " eps = 0.1}\n"
    "moth.randn(2, 3, 4), moth.randn(3), moth.rand(3), {use_input_stats = false}"
    "  -- domain: positive",
  .dtypes = MOTH_FLOATS, .autocast = MOTH_AUTOCAST_F32)
