/* norm.c -- normalisation of rows and of channels, forward and backward; the loops stand in
** norm_real.h and are compiled for f64 once and for f32 at several levels of instructions.
*/
#include "norm.h"

#include <math.h>

#define LANES 16   /* partial sums side by side */
#define BLOCK 1024 /* elements summed before the sum goes on in double */

typedef struct norm_level {
  int (*rows_run)(moth_ctx *, const moth_row_norm *);
  int (*rows_back)(moth_ctx *, const moth_row_norm *);
  int (*sums)(moth_ctx *, const moth_channel_norm *, const double *, double *);
  int (*back_sums)(moth_ctx *, const moth_channel_norm *, const double *, double *, double *);
  int (*apply)(moth_ctx *, const moth_channel_norm *, const double *, const double *,
               const double *, const double *, void *);
} norm_level;

#define TARGET
#define REAL double
#define NAME(f) f##_f64
#include "norm_real.h"
#undef REAL
#undef NAME

#define REAL float
#define NAME(f) f##_f32
#include "norm_real.h"
#undef NAME
#undef TARGET

#if defined(__x86_64__) && defined(__GNUC__)

#define TARGET __attribute__((target("avx2,fma")))
#define NAME(f) f##_avx2
#include "norm_real.h"
#undef NAME
#undef TARGET
#define TARGET __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,fma")))
#define NAME(f) f##_avx512
#include "norm_real.h"

static const norm_level *level_for(int dtype) {
  if (dtype != MOTH_F32) return &level_f64;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return &level_f32;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"))
    return &level_avx512;
  return &level_avx2;
}

#else

static const norm_level *level_for(int dtype) {
  return dtype == MOTH_F32 ? &level_f32 : &level_f64;
}

#endif

int moth_row_norm_run(moth_ctx *ctx, const moth_row_norm *p) {
  return level_for(p->dtype)->rows_run(ctx, p);
}

int moth_row_norm_back(moth_ctx *ctx, const moth_row_norm *p) {
  return level_for(p->dtype)->rows_back(ctx, p);
}

int moth_channel_sums(moth_ctx *ctx, const moth_channel_norm *p, const double *mean, double *sum) {
  return level_for(p->dtype)->sums(ctx, p, mean, sum);
}

int moth_channel_back_sums(moth_ctx *ctx, const moth_channel_norm *p, const double *mean,
                           double *dysum, double *dyxsum) {
  return level_for(p->dtype)->back_sums(ctx, p, mean, dysum, dyxsum);
}

int moth_channel_apply(moth_ctx *ctx, const moth_channel_norm *p, const double *mean,
                       const double *by, const double *scale, const double *shift, void *y) {
  return level_for(p->dtype)->apply(ctx, p, mean, by, scale, shift, y);
}
