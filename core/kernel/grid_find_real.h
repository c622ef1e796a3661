/* grid_find_real.h -- the functions of grid_find.c that depend on REAL, the type of points and
** weights.
*/

/* to[i] := the product of two weights, or 0 outside. */
MOTH_AVX2 INLINED void NAME(weigh)(const double *ax, const double *ay, const double *wx,
                                   const double *wy, REAL *restrict to) {
  EACH {
    const double both = wx[i] * wy[i];
    to[i] = (REAL)(ax[i] >= 0 && ay[i] >= 0 ? both : 0);
  }
}

MOTH_AVX2 static void NAME(find)(const moth_grid *g, int64_t n, const void *grid, bool derivatives,
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
  along(g, 0, derivatives, where[0], &x);
  along(g, 1, derivatives, where[1], &y);
  for (int k = 0; k < taps * taps; k++) {
    const int a = k % taps, b = k / taps;
    const double *ax = x.at[a], *ay = y.at[b];
    EACH {
      const double place = ay[i] * wide + ax[i];
      at[k][i] = (int32_t)(ax[i] >= 0 && ay[i] >= 0 ? place : -1);
    }
    NAME(weigh)(ax, ay, x.weight[derivatives][a], y.weight[0][b], weight[0][k]);
    if (derivatives) NAME(weigh)(ax, ay, x.weight[0][a], y.weight[1][b], weight[1][k]);
  }
}
