/* optim.c -- steps of SGD and Adam. PyTorch's rules, term by term. */
#include "optim.h"

#include <math.h>

#define REAL float
#define NAME(f) f##_f32
#define SQRT sqrtf
#include "optim_real.h"
#undef REAL
#undef NAME
#undef SQRT
#define REAL double
#define NAME(f) f##_f64
#define SQRT sqrt
#include "optim_real.h"

#define MOST 4    /* operands: parameter, gradient, two running means */
#define BLOCK 256 /* elements converted at a time where they are not in a row or half types */

typedef struct job {
  const moth_sgd *sgd; /* one of the two */
  const moth_adam *adam;
  int dtype, operands;
} job;

static void step_f32(const job *j, int64_t n, float *const *x) {
  if (j->sgd) sgd_f32(n, x[0], x[1], x[2], j->sgd);
  else adam_f32(n, x[0], x[1], x[2], x[3], j->adam);
}

static void step_f64(const job *j, int64_t n, double *const *x) {
  if (j->sgd) sgd_f64(n, x[0], x[1], x[2], j->sgd);
  else adam_f64(n, x[0], x[1], x[2], x[3], j->adam);
}

static bool in_a_row(const job *j, const int64_t *step) {
  for (int k = 0; k < j->operands; k++)
    if (step[k] != moth_dtype_size[j->dtype]) return false;
  return j->dtype == MOTH_F32 || j->dtype == MOTH_F64;
}

/* Elements that lie anywhere go through blocks of f32 or f64; the gradient is not written back. */
static void run_blocks(const job *j, int64_t n, char *const *at, const int64_t *step) {
  double room[MOST][BLOCK];
  int real = j->dtype == MOTH_F64 ? MOTH_F64 : MOTH_F32;
  int64_t size = moth_dtype_size[real];
  for (int64_t i = 0; i < n; i += BLOCK) {
    int64_t count = n - i < BLOCK ? n - i : BLOCK;
    void *x[MOST] = {NULL};
    for (int k = 0; k < j->operands; k++) {
      x[k] = room[k];
      moth_convert(count, j->dtype, at[k] + i * step[k], step[k], real, x[k], size);
    }
    if (real == MOTH_F64) step_f64(j, count, (double *[MOST]){x[0], x[1], x[2], x[3]});
    else step_f32(j, count, (float *[MOST]){x[0], x[1], x[2], x[3]});
    for (int k = 0; k < j->operands; k++)
      if (k != 1)
        moth_convert(count, real, x[k], size, j->dtype, at[k] + i * step[k], step[k]);
  }
}

static void inner(int64_t n, char *const *at, const int64_t *step, const void *arg) {
  const job *j = arg;
  void *x[MOST] = {NULL};
  if (!in_a_row(j, step)) {
    run_blocks(j, n, at, step);
    return;
  }
  for (int k = 0; k < j->operands; k++) x[k] = at[k];
  if (j->dtype == MOTH_F64) step_f64(j, n, (double *[MOST]){x[0], x[1], x[2], x[3]});
  else step_f32(j, n, (float *[MOST]){x[0], x[1], x[2], x[3]});
}

static int run(job *j, moth_tensor *const *x) {
  moth_loop loop;
  const moth_tensor *operand[MOST] = {x[0], x[1], x[2], x[3]};
  j->dtype = x[0]->l.dtype;
  for (j->operands = 0; j->operands < MOST && x[j->operands];) j->operands++;
  moth_loop_over(&loop, x[0]->ctx, &x[0]->l, j->operands, operand);
  return moth_loop_run(&loop, inner, j);
}

int moth_sgd_step(const moth_sgd *s, moth_tensor *param, moth_tensor *grad, moth_tensor *buffer) {
  job j = {.sgd = s};
  return run(&j, (moth_tensor *[MOST]){param, grad, buffer, NULL});
}

int moth_adam_step(const moth_adam *s, moth_tensor *param, moth_tensor *grad, moth_tensor *mean,
                   moth_tensor *square) {
  job j = {.adam = s};
  return run(&j, (moth_tensor *[MOST]){param, grad, mean, square});
}
