/* clip.c -- the norm of many tensors as one vector, and scaling of many tensors by the norm or by a
** number. One call handles all tensors. The ops are not differentiable; optimizers use them.
*/
#include "clip.h"
#include "tensor/shape.h"
#include "base/error.h"

#include <math.h>

#include "tensor/loop.h"
#include "autograd/tape.h"

#define BLOCK 512
#define LANES 8

/* -- the norm -- */

typedef struct norm {
  double p;
  int dtype;
  double *sum; /* sum of |x|^p, or the maximum or minimum of |x| */
} norm;

static double merge(double p, double sum, double x) {
  if (p == HUGE_VAL) return x > sum || x != x ? x : sum;
  if (p == -HUGE_VAL) return x < sum || x != x ? x : sum;
  return sum + x;
}

static double share(double p, double x) {
  x = fabs(x);
  if (p == HUGE_VAL || p == -HUGE_VAL || p == 1) return x;
  return p == 0 ? (x != 0) : pow(x, p);
}

static void add_block(const norm *job, int64_t n, const double *x) {
  double lane[LANES] = {0}, sum = *job->sum;
  if (job->p == 2) { /* several sums at once, so that the loop vectorizes */
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
      for (int k = 0; k < LANES; k++) lane[k] += x[i + k] * x[i + k];
    for (; i < n; i++) sum += x[i] * x[i];
    for (int k = 0; k < LANES; k++) sum += lane[k];
  } else {
    for (int64_t i = 0; i < n; i++) sum = merge(job->p, sum, share(job->p, x[i]));
  }
  *job->sum = sum;
}

static void norm_run(int64_t n, char *const *at, const int64_t *step, const void *arg) {
  const norm *job = arg;
  double x[BLOCK];
  for (int64_t i = 0; i < n; i += BLOCK) {
    int64_t count = n - i < BLOCK ? n - i : BLOCK;
    moth_convert(count, job->dtype, at[0] + i * step[0], step[0], MOTH_F64, (char *)x,
                 (int64_t)sizeof *x);
    add_block(job, count, x);
  }
}

static int total_norm_shape(const total_norm_args *a, moth_layout *y) {
  y->ndim = 0;
  if (a->norm_type != a->norm_type)
    return moth_fail(a->ctx, MOTH_E_DOMAIN, "norm_type", "is NaN");
  if (a->tensors.n == 0)
    return moth_fail(a->ctx, MOTH_E_ARG, "tensors", "at least one tensor is needed");
  return MOTH_OK;
}

static int total_norm_cpu(const total_norm_args *a, moth_tensor **out) {
  double p = a->norm_type, sum = p == -HUGE_VAL ? HUGE_VAL : 0;
  for (int64_t i = 0; i < a->tensors.n; i++) {
    const moth_tensor *x = a->tensors.at[i];
    double before = sum;
    norm job = {p, x->l.dtype, &sum};
    moth_loop loop;
    moth_loop_over(&loop, a->ctx, &x->l, 1, &x);
    int status = moth_loop_run(&loop, norm_run, &job);
    if (status) return status;
    /* PyTorch computes the norm of the tensors' norms */
    if (p == 0 && sum > before) sum = before + 1;
  }
  if (p == 2) sum = sqrt(sum);
  else if (p != 0 && p != 1 && p != HUGE_VAL && p != -HUGE_VAL) sum = pow(sum, 1 / p);
  if (a->error_if_nonfinite && !(sum - sum == 0))
    return moth_fail(a->ctx, MOTH_E_DOMAIN, "error_if_nonfinite",
                     "the norm of order %g is %s; the gradients cannot be clipped", p,
                     sum != sum ? "NaN" : "infinite");
  moth_convert(1, MOTH_F64, (char *)&sum, 0, out[0]->l.dtype, moth_at(out[0]), 0);
  return MOTH_OK;
}

MOTH_OP_CONST(total_norm, TOTAL_NORM,
  .doc = "The norm of several tensors, concatenated to one vector: a scalar.",
  .examples =
    "{moth.randn(3), moth.randn(2, 2)}\n"
    "{moth.randn(3)}, {norm_type = 1, error_if_nonfinite = true}",
  .dtypes = MOTH_FLOATS | MOTH_PROMOTE,
  .flags = MOTH_OP_HIDDEN, .public_name = "clip_grad_norm_")

/* -- clipping -- */

typedef struct scale {
  double factor;
  int dtype;
  bool *found; /* set to true if a number is not finite; may be NULL */
} scale;

static void scale_f32(int64_t n, float *x, float factor) {
  for (int64_t i = 0; i < n; i++) x[i] *= factor;
}

static bool all_finite_f32(int64_t n, const float *x) {
  uint32_t found = 0, bits; /* integers, so that the loop vectorizes */
  for (int64_t i = 0; i < n; i++) {
    memcpy(&bits, x + i, sizeof bits);
    found |= (bits & 0x7f800000u) + 0x00800000u;
  }
  return !(found >> 31);
}

static bool all_finite(int64_t n, const double *x) {
  for (int64_t i = 0; i < n; i++)
    if (!(x[i] - x[i] == 0)) return false;
  return true;
}

static void scale_run(int64_t n, char *const *at, const int64_t *step, const void *arg) {
  const scale *job = arg;
  double x[BLOCK];
  if (job->dtype == MOTH_F32 && step[0] == (int64_t)sizeof(float)) {
    if (job->found && !all_finite_f32(n, (const float *)(const void *)at[0])) *job->found = true;
    scale_f32(n, (float *)(void *)at[0], (float)job->factor);
    return;
  }
  for (int64_t i = 0; i < n; i += BLOCK) {
    int64_t count = n - i < BLOCK ? n - i : BLOCK, size = (int64_t)sizeof *x;
    char *from = at[0] + i * step[0];
    moth_convert(count, job->dtype, from, step[0], MOTH_F64, (char *)x, size);
    if (job->found && !all_finite(count, x)) *job->found = true;
    for (int64_t k = 0; k < count; k++) x[k] *= job->factor;
    moth_convert(count, MOTH_F64, (char *)x, size, job->dtype, from, step[0]);
  }
}

static int check_all(moth_tensors list) {
  for (int64_t i = 0; i < list.n; i++) {
    int status = moth_check_write(list.at[i], "tensors", false);
    if (status) return status;
  }
  return MOTH_OK;
}

static int scale_all(moth_ctx *ctx, moth_tensors list, double factor, bool *found) {
  for (int64_t i = 0; i < list.n; i++) {
    moth_tensor *x = list.at[i];
    const moth_tensor *operand = x;
    scale job = {factor, x->l.dtype, found};
    moth_loop loop;
    if (x->l.numel) moth_storage_bump(x->storage);
    moth_loop_over(&loop, ctx, &x->l, 1, &operand);
    int status = moth_loop_run(&loop, scale_run, &job);
    if (status) return status;
  }
  return MOTH_OK;
}

static int need_one(moth_ctx *ctx, const char *arg, const moth_tensor *x) {
  if (x->l.numel == 1) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_SHAPE, arg, "one element is needed, got %s", moth_str(x));
}

static int clip_norm__compose(const clip_norm__args *a, moth_tensor **out) {
  const moth_tensor *total = a->total_norm;
  double length;
  (void)out;
  int status = need_one(a->ctx, "total_norm", total);
  if (!status) status = check_all(a->tensors);
  if (status) return status;
  moth_convert(1, total->l.dtype, moth_at(total), 0, MOTH_F64, (char *)&length, 0);
  double factor = a->max_norm / (length + 1e-6);
  if (factor >= 1) return MOTH_OK; /* false for NaN: a NaN factor makes the gradients NaN */
  return scale_all(a->ctx, a->tensors, factor, NULL);
}

MOTH_OP_COMPOSES(clip_norm_, CLIP_NORM_,
  .doc = "Scales several tensors by one factor, so that their total norm is at most max_norm.",
  .examples = "{moth.randn(3), moth.randn(2, 2)}, moth.ones({}), 0.5",
  .outputs = "",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_HIDDEN | MOTH_OP_MIXED | MOTH_OP_WHOLE, .public_name = "clip_grad_norm_")

static int unscale__compose(const unscale__args *a, moth_tensor **out) {
  bool found = false;
  (void)out;
  int status = need_one(a->ctx, "found", a->found);
  if (!status) status = moth_check_write(a->found, "found", false);
  if (!status) status = check_all(a->tensors);
  if (!status) status = scale_all(a->ctx, a->tensors, a->factor, &found);
  if (status || !found) return status;
  const double one = 1;
  moth_storage_bump(a->found->storage);
  moth_convert(1, MOTH_F64, (const char *)&one, 0, a->found->l.dtype, moth_at(a->found), 0);
  return MOTH_OK;
}

MOTH_OP_COMPOSES(unscale_, UNSCALE_,
  .doc = "Multiplies several tensors by one factor, and sets `found` to 1 if they hold inf or NaN.",
  .examples = "{moth.randn(3), moth.randn(2, 2)}, moth.zeros({}), 0.5",
  .outputs = "",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_HIDDEN | MOTH_OP_MIXED | MOTH_OP_WHOLE)

const moth_op *const moth_clip_ops[] = {
  &moth_op_total_norm, &moth_op_clip_norm_, &moth_op_unscale_, NULL,
};
