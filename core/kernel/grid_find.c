/* grid_find.c -- the taps of a run of grid points. Taps of images are computed in vectors, unless
** the border reflects; other taps are computed point by point (grid_taps.h). Both ways return the
** same bits, because this file is compiled without contraction to fma.
*/
#include <math.h>

#include "grid.h"
#include "level.h"

enum { RUN = MOTH_GRID_RUN };

/* Computes taps point by point, with weights for values or for derivatives. */
#define ONE_BY_ONE(name, real)                                                        \
  static void name(const moth_grid *g, int64_t n, const void *grid, bool derivatives, \
                   int32_t(*at)[RUN], void *weights) {                                \
    const real *from = grid;                                                          \
    real(*weight)[MOTH_GRID_TAPS][RUN] = weights;                                     \
    const int count = moth_grid_count(g), sets = derivatives ? g->sides : 1;          \
    moth_grid by = *g;                                                                \
    for (int64_t i = 0; i < RUN; i++, from += g->sides) {                             \
      int64_t place[MOTH_GRID_TAPS];                                                  \
      double where[3] = {0}, w[MOTH_GRID_TAPS] = {0};                                 \
      for (int k = 0; k < count; k++) place[k] = -1;                                  \
      for (int k = 0; k < g->sides && i < n; k++) where[k] = (double)from[k];         \
      for (int set = 0; set < sets; set++) {                                          \
        for (int k = 0; k < 3; k++) by.order[k] = derivatives && k == set;            \
        if (i < n) moth_grid_taps(&by, where, place, w);                              \
        for (int k = 0; k < count; k++) weight[set][k][i] = (real)w[k];               \
      }                                                                               \
      for (int k = 0; k < count; k++) at[k][i] = (int32_t)place[k];                   \
    }                                                                                 \
  }
ONE_BY_ONE(single_f32, float)
ONE_BY_ONE(single_f64, double)

/* The taps along one side, as doubles: positions (-1: outside), weights and their derivatives. */
typedef struct side {
  double at[4][RUN], weight[2][4][RUN];
} side;

/* -- in vectors of four doubles: the steps of grid_taps.h, each for a whole run. Wider vectors are
** hardly faster; plain code gains nothing. -- */

#if MOTH_HAS_LEVELS

#define EACH for (int i = 0; i < RUN; i++)

/* Clips x to the image if the border counts as inside. *derivative becomes 0 where x was clipped;
** it may be NULL. */
MOTH_AVX2 INLINED void clip(double most, double *x, double *derivative) {
  EACH {
    const double at = x[i], least = at > 0 ? at : 0, in = least < most ? least : most;
    if (derivative) derivative[i] = at > 0 && at < most ? derivative[i] : 0;
    x[i] = at != at ? at : in;
  }
}

/* to := x where x is a position inside, -1 where it is outside, 0 for NaN. */
MOTH_AVX2 INLINED void inside(double size, const double *x, double *restrict to) {
  EACH {
    const double in = x[i] >= 0 && x[i] < size ? x[i] : -1;
    to[i] = x[i] != x[i] ? 0 : in;
  }
}

MOTH_AVX2 static void cubic(const moth_grid *g, double size, bool derivatives, const double *x,
                            const double *derivative, side *s) {
  static const double keys[4][4] = MOTH_GRID_KEYS;
  double at[RUN];
  for (int k = 0; k < 4; k++) {
    const double *c = keys[k], c0 = c[0], c1 = c[1], c2 = c[2], c3 = c[3];
    EACH at[i] = floor(x[i]) - 1 + k;
    if (g->padding == MOTH_GRID_BORDER) clip(size - 1, at, NULL);
    inside(size, at, s->at[k]);
    EACH {
      const double t = x[i] - floor(x[i]);
      s->weight[0][k][i] = ((c3 * t + c2) * t + c1) * t + c0;
      if (derivatives) s->weight[1][k][i] = ((3 * c3 * t + 2 * c2) * t + c1) * derivative[i];
    }
  }
}

MOTH_AVX2 static void along(const moth_grid *g, int k, bool derivatives, const double *where,
                            side *s) {
  const double size = (double)g->size[k], most = (double)(g->size[k] - 1);
  const double steep = g->align ? 0.5 * most : 0.5 * size;
  double x[RUN], derivative[RUN], high[RUN];
  if (g->align) EACH x[i] = (where[i] + 1) * 0.5 * most;
  else EACH x[i] = ((where[i] + 1) * size - 1) * 0.5;
  EACH derivative[i] = steep;
  if (g->padding == MOTH_GRID_BORDER && g->mode != MOTH_GRID_CUBIC) clip(most, x, derivative);
  EACH {
    const double at = fabs(x[i]) < 1e15 ? x[i] : -100;
    x[i] = where[i] != where[i] ? where[i] : at;
    derivative[i] = where[i] != where[i] ? where[i] : derivative[i];
  }
  if (g->mode == MOTH_GRID_CUBIC) {
    cubic(g, size, derivatives, x, derivative, s);
  } else if (g->mode == MOTH_GRID_NEAREST) {
    EACH x[i] = rint(x[i]);
    inside(size, x, s->at[0]);
    EACH s->weight[0][0][i] = where[i] != where[i] ? where[i] : 1;
  } else {
    EACH {
      const double low = floor(x[i]), t = x[i] - low;
      s->weight[0][0][i] = 1 - t;
      s->weight[0][1][i] = t;
      s->weight[1][0][i] = -derivative[i];
      s->weight[1][1][i] = derivative[i];
      x[i] = low;
      high[i] = low + 1;
    }
    inside(size, x, s->at[0]);
    inside(size, high, s->at[1]);
  }
}

#define REAL double
#define NAME(f) f##_f64
#include "grid_find_real.h"
#undef REAL
#undef NAME

#define REAL float
#define NAME(f) f##_f32
#include "grid_find_real.h"

#else

#define find_f32 single_f32
#define find_f64 single_f64

#endif

moth_grid_find *moth_grid_finder(int dtype, const moth_grid *g, bool derivatives) {
  const bool vectors = moth_level() != MOTH_LEVEL_PLAIN && g->sides == 2 &&
                       g->padding != MOTH_GRID_REFLECTION &&
                       !(derivatives && g->mode == MOTH_GRID_NEAREST);
  if (dtype == MOTH_F32) return vectors ? find_f32 : single_f32;
  return vectors ? find_f64 : single_f64;
}
