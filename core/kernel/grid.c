/* grid.c -- grid_sample: samples images or volumes at the points of a grid. */
#include "grid.h"

#include <string.h>

#include "base/threads.h"
#include "level.h"

#if MOTH_HAS_LEVELS
#include <immintrin.h>
#endif

enum { RUN = MOTH_GRID_RUN, SHARED = 16 }; /* RUN: points, SHARED: channels, that share taps */

typedef struct job {
  const moth_gridded *s;
  const void *x, *dy;
  void *y;
  int64_t *at;
  moth_grid_find *find;
} job;

/* v[i] := x[at[i]], or 0 if at[i] is -1. There are no branches, because random grids would
** mispredict them. */
#define TAPS(name, real, bits)                                           \
  INLINED void name(const real *x, const int32_t *at, real *v) {         \
    for (int i = 0; i < RUN; i++) {                                      \
      const bits inside = ~(at[i] >> 31);                                \
      bits value;                                                        \
      memcpy(&value, x + (at[i] & ~(at[i] >> 31)), sizeof value);        \
      value &= inside;                                                   \
      memcpy(v + i, &value, sizeof value);                               \
    }                                                                    \
  }
TAPS(taps_f32, float, int32_t)
TAPS(taps_f64, double, int64_t)

#if MOTH_HAS_LEVELS
/* Intrinsics: compilers do not use vector gathers here, although they are faster for taps. */
MOTH_AVX2 INLINED void taps_avx2(const float *x, const int32_t *at, float *v) {
  for (int i = 0; i < RUN; i += 8) {
    const __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)(at + i));
    const __m256 inside = _mm256_castsi256_ps(_mm256_andnot_si256(a, _mm256_set1_epi32(-1)));
    _mm256_storeu_ps(v + i, _mm256_mask_i32gather_ps(_mm256_setzero_ps(), x, a, inside, 4));
  }
}

MOTH_AVX512 INLINED void taps_avx512(const float *x, const int32_t *at, float *v) {
  for (int i = 0; i < RUN; i += 16) {
    const __m512i a = _mm512_loadu_si512(at + i);
    const __mmask16 inside = _mm512_cmpge_epi32_mask(a, _mm512_setzero_si512());
    _mm512_storeu_ps(v + i, _mm512_mask_i32gather_ps(_mm512_setzero_ps(), inside, a, x, 4));
  }
}
#endif

#define LOOPS "kernel/grid_real.h"
#include "each_level.h"

#define BEST(f) (dtype == MOTH_F32 ? MOTH_BEST(f) : f##_f64)
#define TAP_COST 8 /* ns to compute a tap */

int moth_grid_sample(moth_ctx *ctx, int dtype, const moth_gridded *s, const void *x, void *y) {
  const job j = {.s = s, .x = x, .y = y, .find = moth_grid_finder(dtype, &s->g, false)};
  const int64_t runs = (s->points + RUN - 1) / RUN;
  const double cost = RUN * (double)moth_grid_count(&s->g) * (TAP_COST + (double)s->channels);
  return moth_parallel(ctx, s->samples * runs, 1, cost, BEST(sample), &j);
}

int moth_grid_back(moth_ctx *ctx, int dtype, const moth_gridded *s, const void *dy, void *dx) {
  const job j = {.s = s, .x = dy, .y = dx, .find = moth_grid_finder(dtype, &s->g, false)};
  const int64_t parts = (s->channels + SHARED - 1) / SHARED;
  const double cost = (double)s->points * moth_grid_count(&s->g) * (TAP_COST + SHARED);
  return moth_parallel(ctx, s->samples * parts, 1, cost, BEST(back), &j);
}

int moth_grid_points_back(moth_ctx *ctx, int dtype, const moth_gridded *s, const void *x,
                          const void *dy, void *dgrid) {
  const job j = {.s = s, .x = x, .dy = dy, .y = dgrid,
                 .find = moth_grid_finder(dtype, &s->g, true)};
  const int64_t runs = (s->points + RUN - 1) / RUN;
  const double cost = RUN * (double)moth_grid_count(&s->g) * (TAP_COST + (double)s->channels);
  return moth_parallel(ctx, s->samples * runs, 1, cost * s->g.sides, BEST(points_back), &j);
}

#define LIST(name, real)                                                       \
  static void name(int64_t first, int64_t last, int thread, const void *arg) { \
    const job *j = arg;                                                        \
    const moth_grid *g = &j->s->g;                                             \
    const int count = moth_grid_count(g);                                      \
    (void)thread;                                                              \
    for (int64_t i = first; i < last; i++) {                                   \
      const real *grid = (const real *)j->s->grid + i * g->sides;              \
      int64_t at[MOTH_GRID_TAPS];                                              \
      double where[3], w[MOTH_GRID_TAPS];                                      \
      for (int k = 0; k < g->sides; k++) where[k] = (double)grid[k];           \
      moth_grid_taps(g, where, at, w);                                         \
      for (int k = 0; k < count; k++) {                                        \
        if (j->y) ((real *)j->y)[i * count + k] = (real)w[k];                  \
        else j->at[i * count + k] = at[k];                                     \
      }                                                                        \
    }                                                                          \
  }
LIST(list_f32, float)
LIST(list_f64, double)

int moth_grid_list(moth_ctx *ctx, int dtype, const moth_gridded *s, void *weight, int64_t *at) {
  const job j = {.s = s, .y = weight, .at = at};
  return moth_parallel(ctx, s->samples * s->points, 64,
                       (double)moth_grid_count(&s->g) * TAP_COST,
                       dtype == MOTH_F32 ? list_f32 : list_f64, &j);
}
