/* resize_real.h -- the loops of resize.c for one REAL and one TARGET. A row of the image is
** resampled along its width once; then rows are combined along the height. The rows in use are
** stored in N slots, one for each tap of an axis. N is a constant where the loops are inlined.
*/
#define TAPS TARGET INLINED void

TAPS NAME(mix_row)(const int N, const taps *right, const REAL *x, REAL *restrict y) {
  const int64_t n = right->n;
  const REAL *w = right->weight;
  for (int64_t i = 0; i < n; i++) {
    REAL sum = 0;
    for (int k = 0; k < N; k++) sum += w[k * n + i] * x[right->at[k * n + i]];
    y[i] = sum;
  }
}

TAPS NAME(gather)(const int N, const job *j, const REAL *x, REAL *y, REAL *slots) {
  const taps *down = &j->t[0], *right = &j->t[1];
  const REAL *weight = down->weight;
  int64_t holds[4] = {-1, -1, -1, -1}, n = right->n;
  for (int64_t oy = 0; oy < down->n; oy++, y += n) {
    const REAL *row[4];
    REAL by[4];
    for (int k = 0; k < N; k++) {
      int64_t r = down->at[k * down->n + oy], slot = r % N;
      if (holds[slot] != r) NAME(mix_row)(N, right, x + r * j->r->in[1], slots + slot * n);
      holds[slot] = r;
      row[k] = slots + slot * n;
      by[k] = weight[k * down->n + oy];
    }
    REAL *restrict to = y;
    for (int64_t i = 0; i < n; i++) {
      REAL sum = 0;
      for (int k = 0; k < N; k++) sum += by[k] * row[k][i];
      to[i] = sum;
    }
    if (n >= PAUSE_ROW) moth_pause();
  }
}

TAPS NAME(spread_row)(const int N, const taps *right, const REAL *restrict from,
                      REAL *restrict dx) {
  const int64_t n = right->n;
  const REAL *w = right->weight;
  for (int64_t i = 0; i < n; i++)
    for (int k = 0; k < N; k++) dx[right->at[k * n + i]] += w[k * n + i] * from[i];
}

/* Reads rows of the image in order; a row is complete before its slot is used again. */
TAPS NAME(scatter)(const int N, const job *j, const REAL *dy, REAL *dx, REAL *slots) {
  const taps *down = &j->t[0], *right = &j->t[1];
  const REAL *weight = down->weight;
  int64_t holds[4] = {-1, -1, -1, -1}, n = right->n, wide = j->r->in[1];
  for (int64_t oy = 0; oy < down->n; oy++, dy += n) {
    if (n >= PAUSE_ROW) moth_pause();
    for (int k = 0; k < N; k++) {
      int64_t r = down->at[k * down->n + oy], slot = r % N;
      REAL by = weight[k * down->n + oy], *restrict to = slots + slot * n;
      const bool fresh = holds[slot] != r;
      if (fresh && holds[slot] >= 0) NAME(spread_row)(N, right, to, dx + holds[slot] * wide);
      holds[slot] = r;
      if (fresh)
        for (int64_t i = 0; i < n; i++) to[i] = by * dy[i];
      else
        for (int64_t i = 0; i < n; i++) to[i] += by * dy[i];
    }
  }
  for (int slot = 0; slot < N; slot++)
    if (holds[slot] >= 0) NAME(spread_row)(N, right, slots + slot * n, dx + holds[slot] * wide);
}

/* Copies, since one tap with weight 0 would compute 0 * inf. */
TARGET static void NAME(copy_plane)(const job *j, const REAL *x, REAL *y) {
  const taps *down = &j->t[0], *right = &j->t[1];
  for (int64_t oy = 0; oy < down->n; oy++, y += right->n) {
    if (oy && down->at[oy] == down->at[oy - 1]) {
      memcpy(y, y - right->n, (size_t)right->n * sizeof *y);
      continue;
    }
    const REAL *row = x + down->at[oy] * j->r->in[1];
    for (int64_t ox = 0; ox < right->n; ox++) y[ox] = row[right->at[ox]];
  }
}

TARGET static void NAME(planes)(int64_t first, int64_t last, int thread, const void *arg) {
  const job *j = arg;
  REAL *slots = (REAL *)j->scratch + thread * j->each;
  for (int64_t p = first; p < last; p++) {
    const REAL *x = (const REAL *)j->x + p * j->from;
    REAL *y = (REAL *)j->y + p * j->to;
    if (j->count == 1) NAME(copy_plane)(j, x, y);
    else if (j->count == 2) NAME(gather)(2, j, x, y, slots);
    else NAME(gather)(4, j, x, y, slots);
  }
}

TARGET static void NAME(planes_back)(int64_t first, int64_t last, int thread, const void *arg) {
  const job *j = arg;
  REAL *slots = (REAL *)j->scratch + thread * j->each;
  for (int64_t p = first; p < last; p++) {
    const REAL *dy = (const REAL *)j->x + p * j->to;
    REAL *dx = (REAL *)j->y + p * j->from;
    memset(dx, 0, (size_t)j->from * sizeof *dx);
    if (j->count == 1) NAME(scatter)(1, j, dy, dx, slots);
    else if (j->count == 2) NAME(scatter)(2, j, dy, dx, slots);
    else NAME(scatter)(4, j, dy, dx, slots);
  }
}

#undef TAPS
