/* grid_real.h -- the loops of grid.c for one REAL and one TARGET. The taps of up to RUN points are
** computed once and used for all channels. A tap outside the image has position -1 and contributes
** exactly 0, even if the first element is not finite. A tap inside is read even if its weight is 0.
*/

typedef struct NAME(found) {
  int32_t at[MOTH_GRID_TAPS][RUN];
  REAL weight[3][MOTH_GRID_TAPS][RUN]; /* [side]: of derivatives; [0]: of values */
} NAME(found);

/* Computes the taps of n points of a sample, from point `first` on. */
TARGET INLINED void NAME(find)(const job *j, int64_t sample, int64_t first, int64_t n,
                               bool derivatives, NAME(found) * t) {
  const moth_gridded *s = j->s;
  const REAL *grid = (const REAL *)s->grid + (sample * s->points + first) * s->g.sides;
  j->find(&s->g, n, grid, derivatives, t->at, t->weight);
}

TARGET INLINED void NAME(gather)(const int count, int64_t n, const NAME(found) *t, const REAL *x,
                                 REAL *restrict y) {
  REAL sum[RUN] = {0}, v[RUN];
  for (int k = 0; k < count; k++) {
    NAME(taps)(x, t->at[k], v);
    for (int i = 0; i < RUN; i++) sum[i] += t->weight[0][k][i] * v[i];
  }
  memcpy(y, sum, (size_t)n * sizeof *y);
}

/* sum[side] += dy times the derivative along the side. Adds 0 if no tap is inside, even if dy is
** not finite. */
TARGET INLINED void NAME(derivative)(const int sides, const int count, int64_t n,
                                     const NAME(found) * t, const REAL *x, const REAL *dy,
                                     REAL (*restrict sum)[RUN]) {
  REAL of[3][RUN] = {{0}}, v[RUN], by[RUN] = {0};
  int32_t inside[RUN] = {0};
  memcpy(by, dy, (size_t)n * sizeof *dy);
  for (int k = 0; k < count; k++) {
    NAME(taps)(x, t->at[k], v);
    for (int i = 0; i < RUN; i++) inside[i] |= ~t->at[k][i];
    for (int side = 0; side < sides; side++)
      for (int i = 0; i < RUN; i++) of[side][i] += t->weight[side][k][i] * v[i];
  }
  for (int i = 0; i < RUN; i++) by[i] = inside[i] < 0 ? by[i] : 0;
  for (int side = 0; side < sides; side++)
    for (int i = 0; i < RUN; i++) sum[side][i] += of[side][i] * by[i];
}

TARGET INLINED void NAME(scatter)(const int count, int64_t n, const NAME(found) *t, const REAL *dy,
                                  REAL *dx) {
  for (int64_t i = 0; i < n; i++)
    for (int k = 0; k < count; k++) {
      const int32_t at = t->at[k][i];
      if (at >= 0) dx[at] += t->weight[0][k][i] * dy[i];
    }
}

/* Items are runs of points. */
TARGET static void NAME(sample)(int64_t first, int64_t last, int thread, const void *arg) {
  const job *j = arg;
  const moth_gridded *s = j->s;
  const int64_t runs = (s->points + RUN - 1) / RUN;
  const int count = moth_grid_count(&s->g);
  NAME(found) t;
  (void)thread;
  for (int64_t item = first; item < last; item++) {
    const int64_t sample = item / runs, from = item % runs * RUN;
    const int64_t n = s->points - from < RUN ? s->points - from : RUN;
    NAME(find)(j, sample, from, n, false, &t);
    for (int64_t c = sample * s->channels; c < (sample + 1) * s->channels; c++) {
      const REAL *x = (const REAL *)j->x + c * s->plane;
      REAL *y = (REAL *)j->y + c * s->points + from;
      if (count == 4) NAME(gather)(4, n, &t, x, y);
      else NAME(gather)(count, n, &t, x, y);
    }
  }
}

/* Items are groups of SHARED channels of a sample. */
TARGET static void NAME(back)(int64_t first, int64_t last, int thread, const void *arg) {
  const job *j = arg;
  const moth_gridded *s = j->s;
  const int64_t parts = (s->channels + SHARED - 1) / SHARED;
  const int count = moth_grid_count(&s->g);
  NAME(found) t;
  (void)thread;
  for (int64_t item = first; item < last; item++) {
    const int64_t sample = item / parts, from = item % parts * SHARED;
    const int64_t to = from + SHARED < s->channels ? from + SHARED : s->channels;
    const int64_t begin = sample * s->channels + from, end = sample * s->channels + to;
    memset((REAL *)j->y + begin * s->plane, 0, (size_t)((end - begin) * s->plane) * sizeof(REAL));
    for (int64_t p = 0; p < s->points; p += RUN) {
      const int64_t n = s->points - p < RUN ? s->points - p : RUN;
      NAME(find)(j, sample, p, n, false, &t);
      for (int64_t c = begin; c < end; c++) {
        const REAL *dy = (const REAL *)j->x + c * s->points + p;
        REAL *dx = (REAL *)j->y + c * s->plane;
        if (count == 1) NAME(scatter)(1, n, &t, dy, dx);
        else if (count == 4) NAME(scatter)(4, n, &t, dy, dx);
        else NAME(scatter)(count, n, &t, dy, dx);
      }
      moth_pause();
    }
  }
}

/* Items are runs of points. */
TARGET static void NAME(points_back)(int64_t first, int64_t last, int thread, const void *arg) {
  const job *j = arg;
  const moth_gridded *s = j->s;
  const int64_t runs = (s->points + RUN - 1) / RUN;
  const int count = moth_grid_count(&s->g), sides = s->g.sides;
  NAME(found) t;
  (void)thread;
  for (int64_t item = first; item < last; item++) {
    const int64_t sample = item / runs, from = item % runs * RUN;
    const int64_t n = s->points - from < RUN ? s->points - from : RUN;
    REAL sum[3][RUN] = {{0}};
    NAME(find)(j, sample, from, n, true, &t);
    for (int64_t c = sample * s->channels; c < (sample + 1) * s->channels; c++) {
      const REAL *x = (const REAL *)j->x + c * s->plane;
      const REAL *dy = (const REAL *)j->dy + c * s->points + from;
      NAME(derivative)(sides, count, n, &t, x, dy, sum);
    }
    REAL *to = (REAL *)j->y + (sample * s->points + from) * sides;
    for (int64_t i = 0; i < n; i++)
      for (int side = 0; side < sides; side++) to[i * sides + side] = sum[side][i];
  }
}
