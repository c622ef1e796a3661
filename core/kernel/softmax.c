/* softmax.c -- softmax, its logarithm and their gradients: the largest is subtracted first, so
** that nothing overflows.
*/
#include "softmax.h"

#include <math.h>

#include "exp_small.h"

#define WIDE 128 /* lanes or elements at a time */

#define TARGET
#define REAL double
#define NAME(f) f##_f64
#define EXP exp
#define LOG log
#include "softmax_real.h"
#undef REAL
#undef NAME
#undef EXP
#undef LOG

/* f32 is compiled for several levels of instructions, since its exp is ours and vectorises. */
#define REAL float
#define EXP exp_small
#define LOG logf
#define NAME(f) f##_f32
#include "softmax_real.h"
#undef NAME
#undef TARGET

typedef struct lanes_level {
  int (*lanes)(moth_ctx *, const moth_lanes *, bool, const float *, float *);
  int (*back)(moth_ctx *, const moth_lanes *, bool, const float *, const float *, float *);
} lanes_level;

#if defined(__x86_64__) && defined(__GNUC__)

#define TARGET __attribute__((target("avx2,fma")))
#define NAME(f) f##_avx2
#include "softmax_real.h"
#undef NAME
#undef TARGET
#define TARGET __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,fma")))
#define NAME(f) f##_avx512
#include "softmax_real.h"

static lanes_level best_level(void) {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
    return (lanes_level){lanes_f32, lanes_back_f32};
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"))
    return (lanes_level){lanes_avx512, lanes_back_avx512};
  return (lanes_level){lanes_avx2, lanes_back_avx2};
}

#else

static lanes_level best_level(void) { return (lanes_level){lanes_f32, lanes_back_f32}; }

#endif

moth_lanes moth_lanes_of(const moth_layout *x, int32_t dim) {
  moth_lanes l = {1, 1, 1};
  for (int32_t i = 0; i < x->ndim; i++) {
    if (i < dim) l.outer *= x->shape[i];
    else if (i == dim) l.n = x->shape[i];
    else l.inner *= x->shape[i];
  }
  if (x->numel == 0) l.outer = 0;
  return l;
}

int moth_softmax(moth_ctx *ctx, int dtype, const moth_lanes *l, bool logarithm, const void *x,
                 void *y) {
  return dtype == MOTH_F32 ? best_level().lanes(ctx, l, logarithm, x, y)
                           : lanes_f64(ctx, l, logarithm, x, y);
}

int moth_softmax_back(moth_ctx *ctx, int dtype, const moth_lanes *l, bool logarithm,
                      const void *dy, const void *y, void *dx) {
  return dtype == MOTH_F32 ? best_level().back(ctx, l, logarithm, dy, y, dx)
                           : lanes_back_f64(ctx, l, logarithm, dy, y, dx);
}
