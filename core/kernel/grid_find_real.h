/* grid_find_real.h -- the loops of grid_find.c for one REAL: the steps of grid_taps.h, each over a
** whole run, so that the compiler makes vectors of them.
*/

#define EACH for (int i = 0; i < RUN; i++)

/* Into the image where the border counts as inside; *slope, if any, is 0 where that moved it. */
MOTH_AVX2 INLINED void NAME(clip)(double most, double *x, double *slope) {
  EACH {
    const double at = x[i], least = at > 0 ? at : 0, in = least < most ? least : most;
    if (slope) slope[i] = at > 0 && at < most ? slope[i] : 0;
    x[i] = at != at ? at : in;
  }
}

/* to := whole numbers inside, -1 elsewhere, 0 for NaN */
MOTH_AVX2 INLINED void NAME(inside)(double size, const double *x, double *restrict to) {
  EACH {
    const double in = x[i] >= 0 && x[i] < size ? x[i] : -1;
    to[i] = x[i] != x[i] ? 0 : in;
  }
}

MOTH_AVX2 static void NAME(cubic)(const moth_grid *g, double size, bool slopes, const double *x,
                               const double *slope, side *s) {
  static const double keys[4][4] = MOTH_GRID_KEYS;
  double at[RUN];
  for (int k = 0; k < 4; k++) {
    const double *c = keys[k], c0 = c[0], c1 = c[1], c2 = c[2], c3 = c[3];
    EACH at[i] = floor(x[i]) - 1 + k;
    if (g->padding == MOTH_GRID_BORDER) NAME(clip)(size - 1, at, NULL);
    NAME(inside)(size, at, s->at[k]);
    EACH {
      const double t = x[i] - floor(x[i]);
      s->weight[0][k][i] = ((c3 * t + c2) * t + c1) * t + c0;
      if (slopes) s->weight[1][k][i] = ((3 * c3 * t + 2 * c2) * t + c1) * slope[i];
    }
  }
}

MOTH_AVX2 static void NAME(along)(const moth_grid *g, int k, bool slopes, const double *where,
                               side *s) {
  const double size = (double)g->size[k], most = (double)(g->size[k] - 1);
  const double steep = g->align ? 0.5 * most : 0.5 * size;
  double x[RUN], slope[RUN], high[RUN];
  if (g->align) EACH x[i] = (where[i] + 1) * 0.5 * most;
  else EACH x[i] = ((where[i] + 1) * size - 1) * 0.5;
  EACH slope[i] = steep;
  if (g->padding == MOTH_GRID_BORDER && g->mode != MOTH_GRID_CUBIC) NAME(clip)(most, x, slope);
  EACH {
    const double at = fabs(x[i]) < 1e15 ? x[i] : -100;
    x[i] = where[i] != where[i] ? where[i] : at;
    slope[i] = where[i] != where[i] ? where[i] : slope[i];
  }
  if (g->mode == MOTH_GRID_CUBIC) {
    NAME(cubic)(g, size, slopes, x, slope, s);
  } else if (g->mode == MOTH_GRID_NEAREST) {
    EACH x[i] = rint(x[i]);
    NAME(inside)(size, x, s->at[0]);
    EACH s->weight[0][0][i] = where[i] != where[i] ? where[i] : 1;
  } else {
    EACH {
      const double low = floor(x[i]), t = x[i] - low;
      s->weight[0][0][i] = 1 - t;
      s->weight[0][1][i] = t;
      s->weight[1][0][i] = -slope[i];
      s->weight[1][1][i] = slope[i];
      x[i] = low;
      high[i] = low + 1;
    }
    NAME(inside)(size, x, s->at[0]);
    NAME(inside)(size, high, s->at[1]);
  }
}

/* to[i] := the product of two weights, 0 outside */
MOTH_AVX2 INLINED void NAME(weigh)(const double *ax, const double *ay, const double *wx,
                                const double *wy, REAL *restrict to) {
  EACH {
    const double both = wx[i] * wy[i];
    to[i] = (REAL)(ax[i] >= 0 && ay[i] >= 0 ? both : 0);
  }
}

MOTH_AVX2 static void NAME(find)(const moth_grid *g, int64_t n, const void *grid, bool slopes,
                              int32_t (*restrict at)[RUN], void *weights) {
  const REAL *from = grid;
  REAL (*weight)[MOTH_GRID_TAPS][RUN] = weights;
  const double wide = (double)g->size[0];
  const int taps = g->mode == MOTH_GRID_LINEAR ? 2 : g->mode == MOTH_GRID_NEAREST ? 1 : 4;
  double where[2][RUN] = {{0}};
  side x, y;
  for (int64_t i = 0; i < n; i++) {
    where[0][i] = (double)from[2 * i];
    where[1][i] = (double)from[2 * i + 1];
  }
  NAME(along)(g, 0, slopes, where[0], &x);
  NAME(along)(g, 1, slopes, where[1], &y);
  for (int k = 0; k < taps * taps; k++) {
    const int a = k % taps, b = k / taps;
    const double *ax = x.at[a], *ay = y.at[b];
    EACH {
      const double place = ay[i] * wide + ax[i];
      at[k][i] = (int32_t)(ax[i] >= 0 && ay[i] >= 0 ? place : -1);
    }
    NAME(weigh)(ax, ay, x.weight[slopes][a], y.weight[0][b], weight[0][k]);
    if (slopes) NAME(weigh)(ax, ay, x.weight[0][a], y.weight[1][b], weight[1][k]);
  }
}

#undef EACH
