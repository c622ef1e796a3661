/* grid_real.h -- the loops of grid.c for one REAL and one TARGET: the taps of up to RUN places are
** found first, then used for all channels.
*/

typedef struct NAME(taps) {
  int64_t at[MOTH_GRID_TAPS][RUN];
  REAL weight[MOTH_GRID_TAPS][RUN];
} NAME(taps);

/* The taps of n places from a sample's `first` on, or of their derivative along one side. */
TARGET static void NAME(find)(const job *j, int64_t sample, int64_t first, int64_t n, int side,
                              NAME(taps) *t) {
  moth_grid g = j->s->g;
  const int count = moth_grid_count(&g);
  const REAL *grid = (const REAL *)j->s->grid + (sample * j->s->points + first) * g.sides;
  if (side >= 0) g.order[side]++;
  for (int64_t i = 0; i < n; i++) {
    int64_t at[MOTH_GRID_TAPS];
    double where[3], w[MOTH_GRID_TAPS];
    for (int k = 0; k < g.sides; k++) where[k] = (double)grid[i * g.sides + k];
    moth_grid_taps(&g, where, at, w);
    for (int k = 0; k < count; k++) {
      t->at[k][i] = at[k];
      t->weight[k][i] = (REAL)w[k];
    }
  }
}

TARGET INLINED void NAME(gather)(const int count, int64_t n, const NAME(taps) *t, const REAL *x,
                                 REAL *restrict y) {
  for (int64_t i = 0; i < n; i++) {
    REAL sum = 0;
    for (int k = 0; k < count; k++) {
      const int64_t at = t->at[k][i];
      const REAL v = x[at < 0 ? 0 : at];
      sum += at < 0 ? 0 : t->weight[k][i] * v;
    }
    y[i] = sum;
  }
}

TARGET static void NAME(gather_of)(int count, int64_t n, const NAME(taps) *t, const REAL *x,
                                   REAL *y) {
  if (count == 4) NAME(gather)(4, n, t, x, y);
  else NAME(gather)(count, n, t, x, y);
}

/* Items are runs of places. */
TARGET static void NAME(sample)(int64_t first, int64_t last, int lane, const void *arg) {
  const job *j = arg;
  const moth_gridded *s = j->s;
  const int64_t runs = (s->points + RUN - 1) / RUN;
  const int count = moth_grid_count(&s->g);
  NAME(taps) t;
  (void)lane;
  for (int64_t item = first; item < last; item++) {
    const int64_t sample = item / runs, from = item % runs * RUN;
    const int64_t n = s->points - from < RUN ? s->points - from : RUN;
    NAME(find)(j, sample, from, n, -1, &t);
    for (int64_t c = sample * s->channels; c < (sample + 1) * s->channels; c++)
      NAME(gather_of)(count, n, &t, (const REAL *)j->x + c * s->plane,
                      (REAL *)j->y + c * s->points + from);
  }
}

/* Items are SHARED channels of a sample. */
TARGET static void NAME(back)(int64_t first, int64_t last, int lane, const void *arg) {
  const job *j = arg;
  const moth_gridded *s = j->s;
  const int64_t parts = (s->channels + SHARED - 1) / SHARED;
  const int count = moth_grid_count(&s->g);
  NAME(taps) t;
  (void)lane;
  for (int64_t item = first; item < last; item++) {
    const int64_t sample = item / parts, from = item % parts * SHARED;
    const int64_t to = from + SHARED < s->channels ? from + SHARED : s->channels;
    const int64_t begin = sample * s->channels + from, end = sample * s->channels + to;
    memset((REAL *)j->y + begin * s->plane, 0, (size_t)((end - begin) * s->plane) * sizeof(REAL));
    for (int64_t p = 0; p < s->points; p += RUN) {
      const int64_t n = s->points - p < RUN ? s->points - p : RUN;
      NAME(find)(j, sample, p, n, -1, &t);
      for (int64_t c = begin; c < end; c++) {
        const REAL *dy = (const REAL *)j->x + c * s->points + p;
        REAL *dx = (REAL *)j->y + c * s->plane;
        for (int64_t i = 0; i < n; i++)
          for (int k = 0; k < count; k++)
            if (t.at[k][i] >= 0) dx[t.at[k][i]] += t.weight[k][i] * dy[i];
      }
    }
  }
}

/* Items are runs of places. */
TARGET static void NAME(turn)(int64_t first, int64_t last, int lane, const void *arg) {
  const job *j = arg;
  const moth_gridded *s = j->s;
  const int64_t runs = (s->points + RUN - 1) / RUN;
  const int count = moth_grid_count(&s->g), sides = s->g.sides;
  NAME(taps) t;
  (void)lane;
  for (int64_t item = first; item < last; item++) {
    const int64_t sample = item / runs, from = item % runs * RUN;
    const int64_t n = s->points - from < RUN ? s->points - from : RUN;
    for (int side = 0; side < sides; side++) {
      REAL value[RUN], sum[RUN] = {0};
      NAME(find)(j, sample, from, n, side, &t);
      for (int64_t c = sample * s->channels; c < (sample + 1) * s->channels; c++) {
        const REAL *dy = (const REAL *)j->dy + c * s->points + from;
        NAME(gather_of)(count, n, &t, (const REAL *)j->x + c * s->plane, value);
        for (int64_t i = 0; i < n; i++) sum[i] += dy[i] * value[i];
      }
      REAL *to = (REAL *)j->y + (sample * s->points + from) * sides + side;
      for (int64_t i = 0; i < n; i++) to[i * sides] = sum[i];
    }
  }
}

TARGET static void NAME(list)(int64_t first, int64_t last, int lane, const void *arg) {
  const job *j = arg;
  const moth_grid *g = &j->s->g;
  const int count = moth_grid_count(g);
  (void)lane;
  for (int64_t i = first; i < last; i++) {
    const REAL *grid = (const REAL *)j->s->grid + i * g->sides;
    int64_t at[MOTH_GRID_TAPS];
    double where[3], w[MOTH_GRID_TAPS];
    for (int k = 0; k < g->sides; k++) where[k] = (double)grid[k];
    moth_grid_taps(g, where, at, w);
    for (int k = 0; k < count; k++) {
      if (j->y) ((REAL *)j->y)[i * count + k] = (REAL)w[k];
      else j->at[i * count + k] = at[k] < 0 ? 0 : at[k];
    }
  }
}
