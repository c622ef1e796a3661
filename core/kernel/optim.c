/* optim.c -- one step of an optimizer for one parameter, for every dtype and layout. */
#include "optim.h"

#include "kernel/math/exp_f64.h"

MOTH_INLINE float moth_sqrt_f32(float x) { return sqrtf(x); }
MOTH_INLINE double moth_sqrt_f64(double x) { return sqrt(x); }

#define LOOPS "kernel/optim_real.h"
#include "each_level.h"

#define NS_PER_ELEMENT 0.4 /* ns per element whose operands are not in cache */
#define MOST MOTH_STEP_OPERANDS
#define CONVERTED 256 /* elements converted at a time, of strided or half-precision tensors */

typedef struct job {
  const moth_step *step;
  int dtype, state, operands; /* state: the dtype of operands 2 and later */
} job;

static int dtype_of(const job *j, int k) { return k < 2 ? j->dtype : j->state; }

static void step_real(const job *j, int real, int64_t n, void *const *x) {
  if (real == MOTH_F64) {
    double *y[MOST];
    for (int k = 0; k < MOST; k++) y[k] = x[k];
    rules_f64[j->step->rule](n, y, j->step, j->operands);
  } else {
    float *y[MOST];
    for (int k = 0; k < MOST; k++) y[k] = x[k];
    MOTH_BEST(rules)[j->step->rule](n, y, j->step, j->operands);
  }
}

static bool in_a_row(const job *j, const int64_t *step) {
  for (int k = 0; k < j->operands; k++)
    if (step[k] != moth_dtype_size[j->dtype]) return false;
  return j->dtype == j->state && (j->dtype == MOTH_F32 || j->dtype == MOTH_F64);
}

/* Copies strided elements through blocks of f32 or f64. The gradient is not written back. */
static void run_blocks(const job *j, int64_t n, char *const *at, const int64_t *step) {
  double scratch[MOST][CONVERTED];
  int real = j->dtype == MOTH_F64 ? MOTH_F64 : MOTH_F32;
  int64_t size = moth_dtype_size[real];
  for (int64_t i = 0; i < n; i += CONVERTED) {
    int64_t count = n - i < CONVERTED ? n - i : CONVERTED;
    void *x[MOST] = {NULL};
    for (int k = 0; k < j->operands; k++) {
      x[k] = scratch[k];
      moth_convert(count, dtype_of(j, k), at[k] + i * step[k], step[k], real, x[k], size);
    }
    step_real(j, real, count, x);
    for (int k = 0; k < j->operands; k++)
      if (k != 1)
        moth_convert(count, real, x[k], size, dtype_of(j, k), at[k] + i * step[k], step[k]);
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
  step_real(j, j->dtype, n, x);
}

int moth_step_run(const moth_step *s, moth_tensor *const *x, int n) {
  job j = {.step = s, .dtype = x[0]->l.dtype, .state = x[n > 2 ? 2 : 0]->l.dtype, .operands = n};
  moth_loop loop;
  const moth_tensor *operand[MOST] = {NULL};
  for (int k = 0; k < n; k++) operand[k] = x[k];
  moth_loop_over(&loop, x[0]->ctx, &x[0]->l, n, operand);
  return moth_loop_share(&loop, inner, &j, NS_PER_ELEMENT);
}
