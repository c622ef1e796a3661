/* pointloss_real.h -- elementwise losses for one REAL and one TARGET. They are computed into a
** short block, whose sum is added in double. pointloss.h defines the losses. Loops compute whole
** vectors only, so that a loss has the same bits at every position.
*/
#include "sums_real.h"

VECTOR_SUM(loss_sum, v)

#define PAIR(f, LOSS)                                                                      \
  TARGET static void NAME(f)(int64_t n, const REAL *x0, const REAL *t0, const REAL a,      \
                             REAL *restrict y) {                                           \
    (void)a;                                                                               \
    for (int64_t i = 0; i < MOTH_WHOLE(n); i++) {                                          \
      const REAL x = x0[i], t = t0[i], d = x - t, far = d < 0 ? -d : d;                    \
      (void)far;                                                                           \
      y[i] = LOSS;                                                                         \
    }                                                                                      \
  }
/* log(1 + exp(-|x|)), corrected for the rounding of 1 + e, where e <= 1. */
TARGET INLINED REAL NAME(log_tail)(REAL x) {
  const REAL e = MATH(exp)(-MATH(abs)(x)), u = 1 + e;
  return MATH(log)(u) + (e - (u - 1)) / u;
}

#define FLOOR(v) ((v) < -100 ? -100 : (v))
PAIR(square, d *d)
PAIR(distance, far)
PAIR(smooth, far < a ? (REAL)0.5 * d * d / a : far - (REAL)0.5 * a)
PAIR(huber, far <= a ? (REAL)0.5 * d * d : a * (far - (REAL)0.5 * a))
PAIR(logits, (x < 0 ? -t : 1 - t) * x + NAME(log_tail)(x))
PAIR(chances, -(t * FLOOR(MATH(log)(x)) + (1 - t) * FLOOR(MATH(log1p)(-x))))
PAIR(kl, (t == 0 ? 0 : t * MATH(log)(t)) - t * x)
PAIR(kl_log, MATH(full_exp)(t) * (t - x))
#undef FLOOR
#undef PAIR

typedef void NAME(pair_loop)(int64_t, const REAL *, const REAL *, REAL, REAL *restrict);

/* Elements after the last whole vector are copied through a buffer. */
TARGET static void NAME(run_pairs)(NAME(pair_loop) *loop, int64_t n, const REAL *x, const REAL *t,
                                   REAL a, REAL *y) {
  const int64_t whole = MOTH_WHOLE(n);
  REAL scratch[3][MOTH_VECTOR] = {{0}};
  const size_t rest = (size_t)(n - whole) * sizeof *x;
  loop(whole, x, t, a, y);
  if (!rest) return;
  memcpy(scratch[0], x + whole, rest);
  memcpy(scratch[1], t + whole, rest);
  loop(MOTH_VECTOR, scratch[0], scratch[1], a, scratch[2]);
  memcpy(y + whole, scratch[2], rest);
}

TARGET static void NAME(pairs)(int64_t first, int64_t last, int thread, const void *arg) {
#define LOOP(LOSS, f) [MOTH_LOSS_##LOSS] = NAME(f),
  static NAME(pair_loop) *const loops[] = {MOTH_PAIR_LOSSES(LOOP)};
#undef LOOP
  const pair_job *j = arg;
  REAL block[512];
  (void)thread;
  for (int64_t b = first; b < last; b++) {
    double sum = 0;
    int64_t end = (b + 1) * PAIR_BLOCK < j->n ? (b + 1) * PAIR_BLOCK : j->n;
    for (int64_t i = b * PAIR_BLOCK; i < end; i += 512) {
      int64_t n = end - i < 512 ? end - i : 512;
      REAL *y = j->y ? (REAL *)j->y + i : block;
      NAME(run_pairs)(loops[j->which], n, (const REAL *)j->x + i, (const REAL *)j->target + i,
                      (REAL)j->a, y);
      if (!j->y) sum += (double)NAME(loss_sum_block)(n, y, 0);
    }
    if (!j->y) j->sums[b] = sum;
  }
}

/* True if all n numbers are from 0 to 1. */
TARGET static bool NAME(inside)(int64_t n, const void *from) {
  const REAL *x = from;
  bool all = true;
  for (int64_t i = 0; i < n; i++) all &= x[i] >= 0 && x[i] <= 1;
  return all;
}
