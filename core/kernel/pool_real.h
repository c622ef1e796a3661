/* pool_real.h -- the loops of pool.c for one REAL and one TARGET. Items are planes. Windows inside
** a row are computed together, one tap at a time, so that the compiler vectorizes over neighboring
** results. Windows over an edge are computed one by one.
*/
#define TAPS TARGET INLINED void

/* -- maxima -- */

/* The position of the largest of a window's taps [r0, r1) x [c0, c1). The first of equal values
** wins, NaN wins over all. */
TARGET static inline int64_t NAME(largest)(const moth_window *w, const REAL *x, int64_t at,
                                           int64_t r0, int64_t r1, int64_t c0, int64_t c1,
                                           REAL *y) {
  int64_t down = w->dilation[0] * w->in[1], right = w->dilation[1];
  int64_t found = at + r0 * down + c0 * right;
  REAL best = x[found];
  for (int64_t r = r0; r < r1; r++) {
    int64_t i = at + r * down + c0 * right;
    for (int64_t c = c0; c < c1; c++, i += right) {
      REAL v = x[i];
      bool more = v > best || v != v;
      best = more ? v : best;
      found = more ? i : found;
    }
  }
  *y = best;
  return found;
}

/* max_L: the maxima of L windows, s elements apart and k taps wide. x is the first tap of the first
** window; `index` counts from it. Equal taps of neighboring windows are one vector. */
#define CHUNK(L, EVEN, ODD)                                                                    \
  typedef REAL NAME(v##L) __attribute__((vector_size(L * sizeof(REAL))));                      \
  typedef NAME(bits) NAME(b##L) __attribute__((vector_size(L * sizeof(REAL))));                \
  typedef int64_t NAME(w##L) __attribute__((vector_size(L * 8)));                              \
  TAPS NAME(load##L)(const int64_t k, const int64_t s, const REAL *x, int64_t tap,             \
                     NAME(v##L) *to) {                                                         \
    NAME(v##L) a, b;                                                                           \
    if (s == 1) {                                                                              \
      memcpy(to, x + tap, sizeof *to);                                                         \
    } else if (s == 2 && k > 1) { /* elements after the last tap are not read */           \
      memcpy(&a, x + tap - (tap > 0), sizeof a);                                               \
      memcpy(&b, x + tap - (tap > 0) + L, sizeof b);                                           \
      *to = tap > 0 ? __builtin_shufflevector(a, b, ODD)                                       \
                    : __builtin_shufflevector(a, b, EVEN);                                     \
    } else {                                                                                   \
      a = (NAME(v##L)){0};                                                                     \
      for (int i = 0; i < L; i++) a[i] = x[i * s + tap];                                       \
      *to = a;                                                                                 \
    }                                                                                          \
  }                                                                                            \
  TAPS NAME(max##L)(const int64_t k, const int64_t s, int64_t rows, int64_t down,              \
                    int64_t right, const REAL *x, int64_t start, REAL *y, int64_t *index) {    \
    NAME(b##L) more, found = {0}, bits, old;                                                   \
    NAME(v##L) best, v;                                                                        \
    NAME(load##L)(k, s, x, 0, &best);                                                         \
    for (int64_t r = 0; r < rows; r++)                                                         \
      for (int64_t c = r ? 0 : 1; c < k; c++) {                                                \
        NAME(load##L)(k, s, x + r * down, c * right, &v);                                      \
        more = (v > best) | (v != v);                                                          \
        memcpy(&bits, &v, sizeof v);                                                           \
        memcpy(&old, &best, sizeof old);                                                       \
        found = (more & (NAME(bits))(r * down + c * right)) | (~more & found);                 \
        bits = (more & bits) | (~more & old);                                                  \
        memcpy(&best, &bits, sizeof best);                                                     \
      }                                                                                        \
    memcpy(y, &best, sizeof best);                                                             \
    NAME(w##L) at = __builtin_convertvector(found, NAME(w##L)), number;                        \
    memcpy(&number, numbers, sizeof number);                                                   \
    at += number * s + start;                                                                  \
    memcpy(index, &at, sizeof at);                                                             \
  }                                                                                            \
  TAPS NAME(sum##L)(const int64_t k, const int64_t s, int64_t rows, int64_t down,              \
                    const REAL *x, REAL by, REAL *y) {                                         \
    NAME(v##L) sum = {0}, v;                                                                   \
    for (int64_t r = 0; r < rows; r++)                                                         \
      for (int64_t c = 0; c < k; c++) {                                                        \
        NAME(load##L)(k, s, x + r * down, c, &v);                                                 \
        sum += v;                                                                              \
      }                                                                                        \
    sum /= by;                                                                                 \
    memcpy(y, &sum, sizeof sum);                                                               \
  }
#define LIST(...) __VA_ARGS__
CHUNK(2, LIST(0, 2), LIST(1, 3))
CHUNK(4, LIST(0, 2, 4, 6), LIST(1, 3, 5, 7))
#if VECTOR_BYTES >= 32
CHUNK(8, LIST(0, 2, 4, 6, 8, 10, 12, 14), LIST(1, 3, 5, 7, 9, 11, 13, 15))
#endif
#if VECTOR_BYTES >= 64
CHUNK(16, LIST(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
      LIST(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31))
#endif
#undef LIST
#undef CHUNK

/* Runs THIS(L, i) for n windows, n >= 4: for L windows from window i on. The last vector starts
** earlier and computes some windows again, which avoids a shorter vector. If `available` windows
** may be written, a single vector may also write windows after the n-th. No vector is wider than a
** register: compilers would compute selects of wider vectors element by element. */
#define CHUNKS(L, n, available, THIS)                                     \
  if (n >= L) {                                                           \
    for (int64_t i = 0; i < n; i += L) THIS(L, (i <= n - L ? i : n - L)); \
  } else if (n > L / 2 && available >= L) {                               \
    THIS(L, 0);                                                           \
  } else
#if VECTOR_BYTES >= 64
#define WIDE_CHUNKS(n, available, THIS) CHUNKS(16, n, available, THIS) CHUNKS(8, n, available, THIS)
#elif VECTOR_BYTES >= 32
#define WIDE_CHUNKS(n, available, THIS) CHUNKS(8, n, available, THIS)
#else
#define WIDE_CHUNKS(n, available, THIS)
#endif
#define EACH_CHUNK(n, available, THIS)                                      \
  do {                                                                      \
    WIDE_CHUNKS(n, available, THIS)                                         \
    if (sizeof(REAL) == 4)                                                  \
      for (int64_t i = 0; i < n; i += 4) THIS(4, (i <= n - 4 ? i : n - 4)); \
    else                                                                    \
      for (int64_t i = 0; i < n; i += 2) THIS(2, (i <= n - 2 ? i : n - 2)); \
  } while (0)

/* n windows of a row, all inside. `spare` more results may be written; they are overwritten
** later. */
TARGET static void NAME(max_row)(const moth_window *w, int64_t n, int64_t spare, int64_t rows,
                                 const REAL *x, int64_t start, REAL *y, int64_t *index) {
  const int64_t k = w->kernel[1], s = w->stride[1], right = w->dilation[1];
  const int64_t down = w->dilation[0] * w->in[1], available = n + spare;
  (void)available; /* unused without wider vectors */
#define PLAIN22(L, i) NAME(max##L)(2, 2, rows, down, 1, x + i * 2, start + i * 2, y + i, index + i)
#define PLAIN32(L, i) NAME(max##L)(3, 2, rows, down, 1, x + i * 2, start + i * 2, y + i, index + i)
#define DENSE(L, i) NAME(max##L)(k, 1, rows, down, right, x + i, start + i, y + i, index + i)
#define ANY(L, i) \
  NAME(max##L)(k, s, rows, down, right, x + i * s, start + i * s, y + i, index + i)
  if (k == 2 && s == 2 && right == 1) EACH_CHUNK(n, available, PLAIN22);
  else if (k == 3 && s == 2 && right == 1) EACH_CHUNK(n, available, PLAIN32);
  else if (s == 1) EACH_CHUNK(n, available, DENSE);
  else EACH_CHUNK(n, available, ANY);
#undef PLAIN22
#undef PLAIN32
#undef DENSE
#undef ANY
}

/* Windows ox to end - 1 of a row. Their rows r0 to r1 - 1 are inside. */
TARGET static void NAME(max_edge)(const moth_window *w, const REAL *x, int64_t row, int64_t r0,
                                  int64_t r1, int64_t ox, int64_t end, REAL *y, int64_t *index) {
  for (; ox < end; ox++) {
    int64_t c0, c1;
    moth_window_clip(w, 1, ox, &c0, &c1);
    y[ox] = (REAL)-INFINITY;
    index[ox] = r0 < r1 && c0 < c1
                    ? NAME(largest)(w, x, row + ox * w->stride[1], r0, r1, c0, c1, y + ox) : -1;
  }
}

/* Each row computes the windows inside first, since they may overwrite the windows after them. */
TARGET static void NAME(max_plane)(const job *j, const REAL *x, REAL *y, int64_t *index) {
  const moth_window *w = &j->p->w;
  const int64_t width = w->out[1], step = w->stride[0] * w->in[1];
  int64_t row = -w->padding[0] * w->in[1] - w->padding[1];
  for (int64_t oy = 0; oy < w->out[0]; oy++, row += step, y += width, index += width) {
    int64_t r0 = 0, r1 = w->kernel[0], from = j->from, to = j->to, spare = 0;
    if (oy < j->top || oy >= j->bottom) moth_window_clip(w, 0, oy, &r0, &r1);
    else if (oy + 1 < j->bottom) spare = j->spare;
    if (r0 >= r1) from = to = width;
    if (from < to) {
      int64_t start = row + from * w->stride[1] + r0 * w->dilation[0] * w->in[1];
      NAME(max_row)(w, to - from, spare, r1 - r0, x + start, start, y + from, index + from);
    }
    if (from > 0) NAME(max_edge)(w, x, row, r0, r1, 0, from, y, index);
    if (to < width) NAME(max_edge)(w, x, row, r0, r1, to, width, y, index);
    if (oy % PAUSE_ROWS == PAUSE_ROWS - 1) moth_pause();
  }
}

TARGET static void NAME(max_planes)(int64_t first, int64_t last, int thread, const void *arg) {
  const job *j = arg;
  for (int64_t plane = first; plane < last; plane++)
    NAME(max_plane)(j, (const REAL *)j->x + plane * j->area, (REAL *)j->y + plane * j->n,
                    j->index + plane * j->n);
  (void)thread;
}

/* -- the mean -- */

TARGET static void NAME(mean_row)(const moth_window *w, int64_t n, int64_t rows, const REAL *x,
                                  REAL by, REAL *y) {
  const int64_t k = w->kernel[1], s = w->stride[1], down = w->in[1];
#define PLAIN22(L, i) NAME(sum##L)(2, 2, rows, down, x + i * 2, by, y + i)
#define PLAIN32(L, i) NAME(sum##L)(3, 2, rows, down, x + i * 2, by, y + i)
#define DENSE(L, i) NAME(sum##L)(k, 1, rows, down, x + i, by, y + i)
#define ANY(L, i) NAME(sum##L)(k, s, rows, down, x + i * s, by, y + i)
  if (k == 2 && s == 2) EACH_CHUNK(n, 0, PLAIN22);
  else if (k == 3 && s == 2) EACH_CHUNK(n, 0, PLAIN32);
  else if (s == 1) EACH_CHUNK(n, 0, DENSE);
  else EACH_CHUNK(n, 0, ANY);
#undef PLAIN22
#undef PLAIN32
#undef DENSE
#undef ANY
}

TARGET static void NAME(mean_plane)(const job *j, const REAL *x, REAL *y) {
  const moth_window *w = &j->p->w;
  int64_t s = w->stride[1];
  for (int64_t oy = 0; oy < w->out[0]; oy++, y += w->out[1]) {
    int64_t r0, r1, c0, c1, row = (oy * w->stride[0] - w->padding[0]) * w->in[1] - w->padding[1];
    moth_window_clip(w, 0, oy, &r0, &r1);
    int64_t from = r0 < r1 ? j->from : w->out[1], to = r0 < r1 ? j->to : w->out[1];
    for (int64_t ox = 0; ox < w->out[1]; ox++) {
      if (ox == from) ox = to;
      if (ox == w->out[1]) break;
      moth_window_clip(w, 1, ox, &c0, &c1);
      REAL sum = 0;
      for (int64_t r = r0; r < r1; r++)
        for (int64_t c = c0; c < c1; c++) sum += x[row + ox * s + r * w->in[1] + c];
      int64_t n = divisor(j->p, oy, ox);
      y[ox] = n ? sum / (REAL)n : 0;
    }
    if (from < to)
      NAME(mean_row)(w, to - from, r1 - r0, x + row + from * s + r0 * w->in[1],
                     (REAL)divisor(j->p, oy, from), y + from);
    if (oy % PAUSE_ROWS == PAUSE_ROWS - 1) moth_pause();
  }
}

TARGET static bool NAME(finite)(int64_t n, const REAL *y) {
  int32_t odd = 0;
  for (int64_t i = 0; i < n; i++) odd |= !(y[i] - y[i] == 0);
  return !odd;
}

/* The mean of a rectangle whose sum overflowed: the sum of quotients, in double. */
TARGET static REAL NAME(mean_again)(int64_t rows, int64_t n, const REAL *x, int64_t down,
                                    int64_t by) {
  double sum = 0;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < n; c++) sum += (double)x[r * down + c] / (double)by;
  return (REAL)sum;
}

TARGET static void NAME(mean_plane_again)(const job *j, const REAL *x, REAL *y) {
  const moth_window *w = &j->p->w;
  for (int64_t oy = 0; oy < w->out[0]; oy++)
    for (int64_t ox = 0; ox < w->out[1]; ox++, y++) {
      int64_t r0, r1, c0, c1, by = divisor(j->p, oy, ox);
      const int64_t row = (oy * w->stride[0] - w->padding[0]) * w->in[1] - w->padding[1];
      moth_window_clip(w, 0, oy, &r0, &r1);
      moth_window_clip(w, 1, ox, &c0, &c1);
      if (*y - *y == 0 || !by) continue;
      *y = NAME(mean_again)(r1 - r0, c1 - c0, x + row + ox * w->stride[1] + r0 * w->in[1] + c0,
                            w->in[1], by);
    }
}

TARGET static void NAME(mean_planes)(int64_t first, int64_t last, int thread, const void *arg) {
  const job *j = arg;
  for (int64_t plane = first; plane < last; plane++) {
    const REAL *x = (const REAL *)j->x + plane * j->area;
    REAL *y = (REAL *)j->y + plane * j->n;
    NAME(mean_plane)(j, x, y);
    if (!NAME(finite)(j->n, y)) NAME(mean_plane_again)(j, x, y);
  }
  (void)thread;
}

/* Adds share[i] to the k taps of window i. fresh: writes them instead, for windows that neither
** overlap nor leave gaps. */
TAPS NAME(share_taps)(const int64_t k, const int64_t s, const bool fresh, int64_t n,
                      const REAL *restrict share, REAL *restrict x) {
  for (int64_t i = 0; i < n; i++)
    for (int64_t c = 0; c < k; c++) x[i * s + c] = (fresh ? 0 : x[i * s + c]) + share[i];
}

TARGET static void NAME(share_row)(int64_t k, int64_t s, bool fresh, int64_t n, const REAL *share,
                                   REAL *x) {
  if (k == 2 && s == 2 && fresh) NAME(share_taps)(2, 2, true, n, share, x);
  else if (k == 2 && s == 2) NAME(share_taps)(2, 2, false, n, share, x);
  else if (s == 1 && !fresh)
    for (int64_t c = 0; c < k; c++) NAME(share_taps)(1, 1, false, n, share, x + c);
  else if (fresh) NAME(share_taps)(k, s, true, n, share, x);
  else NAME(share_taps)(k, s, false, n, share, x);
}

TARGET static void NAME(mean_plane_back)(const job *j, const REAL *dy, REAL *dx) {
  const moth_window *w = &j->p->w;
  REAL share[ROW_RESULTS];
  int64_t s = w->stride[1];
  if (!j->tiles) memset(dx, 0, (size_t)j->area * sizeof(REAL));
  for (int64_t oy = 0; oy < w->out[0]; oy++, dy += w->out[1]) {
    int64_t r0, r1, c0, c1, row = (oy * w->stride[0] - w->padding[0]) * w->in[1] - w->padding[1];
    moth_window_clip(w, 0, oy, &r0, &r1);
    int64_t from = r0 < r1 ? j->from : w->out[1], to = r0 < r1 ? j->to : w->out[1];
    for (int64_t ox = 0; ox < w->out[1]; ox++) {
      if (ox == from) ox = to;
      if (ox == w->out[1]) break;
      moth_window_clip(w, 1, ox, &c0, &c1);
      int64_t n = divisor(j->p, oy, ox);
      REAL one = n ? dy[ox] / (REAL)n : 0;
      for (int64_t r = r0; r < r1; r++)
        for (int64_t c = c0; c < c1; c++) dx[row + ox * s + r * w->in[1] + c] += one;
    }
    if (oy % PAUSE_ROWS == PAUSE_ROWS - 1) moth_pause();
    if (from >= to) continue;
    REAL by = (REAL)divisor(j->p, oy, from);
    for (int64_t ox = from; ox < to; ox += ROW_RESULTS) {
      int64_t n = to - ox < ROW_RESULTS ? to - ox : ROW_RESULTS;
      for (int64_t i = 0; i < n; i++) share[i] = dy[ox + i] / by;
      for (int64_t r = r0; r < r1; r++)
        NAME(share_row)(w->kernel[1], s, j->tiles, n, share, dx + row + ox * s + r * w->in[1]);
    }
  }
}

TARGET static void NAME(mean_planes_back)(int64_t first, int64_t last, int thread,
                                          const void *arg) {
  const job *j = arg;
  for (int64_t plane = first; plane < last; plane++)
    NAME(mean_plane_back)(j, (const REAL *)j->x + plane * j->n, (REAL *)j->y + plane * j->area);
  (void)thread;
}

/* -- adaptive pooling -- */

typedef REAL NAME(lanes)
  __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));

/* The sum of n elements, in blocks. Lanes have 64 bytes together, in as many registers as this
** level needs; wider vector types would go through memory. */
TARGET static double NAME(sum)(int64_t n, const REAL *x) {
  enum { PER = VECTOR_BYTES / sizeof(REAL), PARTS = 64 / VECTOR_BYTES };
  enum { LANES = PARTS * PER, LONGEST = 8192 };
  double all = 0;
  for (int64_t from = 0; from < n; from += LONGEST) {
    int64_t i = from, to = n - from < LONGEST ? n : from + LONGEST;
    NAME(lanes) s[4][PARTS] = {{{0}}};
    for (; i + 4 * LANES <= to; i += 4 * LANES) {
      const NAME(lanes) *at = (const NAME(lanes) *)(const void *)(x + i);
      UNROLL for (int k = 0; k < 4; k++)
        UNROLL for (int p = 0; p < PARTS; p++) s[k][p] += at[k * PARTS + p];
    }
    for (; i + LANES <= to; i += LANES) {
      const NAME(lanes) *at = (const NAME(lanes) *)(const void *)(x + i);
      UNROLL for (int p = 0; p < PARTS; p++) s[0][p] += at[p];
    }
    UNROLL for (int p = 0; p < PARTS; p++) s[0][p] = (s[0][p] + s[1][p]) + (s[2][p] + s[3][p]);
    REAL part = 0;
    UNROLL for (int p = 0; p < PARTS; p++)
      UNROLL for (int k = 0; k < PER; k++) part += s[0][p][k];
    for (; i < to; i++) part += x[i];
    all += (double)part;
  }
  return all;
}

/* Adds the rows of a share first if a row fits in `total`. */
TARGET static void NAME(mean_shares_of)(const moth_shares *p, const REAL *x, REAL *y) {
  int64_t wide = p->in[1];
  REAL total[ROW_RESULTS];
  for (int64_t oy = 0; oy < p->out[0]; oy++) {
    int64_t r0 = share_from(p, 0, oy), r1 = share_to(p, 0, oy), rows = r1 - r0;
    const REAL *from = x + r0 * wide;
    if (oy) moth_pause();
    if (p->out[1] == 1) {
      *y++ = (REAL)(NAME(sum)(rows * wide, from) / (double)(rows * wide));
      continue;
    }
    if (wide <= ROW_RESULTS) {
      for (int64_t i = 0; i < wide; i++) total[i] = from[i];
      for (int64_t r = 1; r < rows; r++)
        for (int64_t i = 0; i < wide; i++) total[i] += from[r * wide + i];
    }
    for (int64_t ox = 0; ox < p->out[1]; ox++) {
      int64_t c0 = share_from(p, 1, ox), c1 = share_to(p, 1, ox);
      REAL sum = 0;
      if (wide <= ROW_RESULTS)
        for (int64_t c = c0; c < c1; c++) sum += total[c];
      else
        for (int64_t r = 0; r < rows; r++) sum += (REAL)NAME(sum)(c1 - c0, from + r * wide + c0);
      *y++ = sum / (REAL)(rows * (c1 - c0));
    }
  }
}

TARGET static void NAME(mean_shares_again)(const moth_shares *p, const REAL *x, REAL *y) {
  for (int64_t oy = 0; oy < p->out[0]; oy++)
    for (int64_t ox = 0; ox < p->out[1]; ox++, y++) {
      const int64_t r0 = share_from(p, 0, oy), rows = share_to(p, 0, oy) - r0;
      const int64_t c0 = share_from(p, 1, ox), n = share_to(p, 1, ox) - c0;
      if (*y - *y == 0) continue;
      *y = NAME(mean_again)(rows, n, x + r0 * p->in[1] + c0, p->in[1], rows * n);
    }
}

TARGET static void NAME(mean_shares)(int64_t first, int64_t last, int thread, const void *arg) {
  const job *j = arg;
  for (int64_t plane = first; plane < last; plane++) {
    const REAL *x = (const REAL *)j->x + plane * j->area;
    REAL *y = (REAL *)j->y + plane * j->n;
    NAME(mean_shares_of)(j->s, x, y);
    if (!NAME(finite)(j->n, y)) NAME(mean_shares_again)(j->s, x, y);
  }
  (void)thread;
}

/* The gradient of one row of results whose input ranges do not overlap: writes one row of dx, and
** copies it to the other rows. */
TARGET static void NAME(mean_row_back)(const moth_shares *p, int64_t rows, const REAL *dy,
                                       REAL *dx) {
  const int64_t wide = p->in[1], n = wide / p->out[1];
  for (int64_t ox = 0; ox < p->out[1]; ox++) {
    const REAL share = dy[ox] / (REAL)(rows * n);
    for (int64_t c = 0; c < n; c++) dx[ox * n + c] = share;
  }
  for (int64_t r = 1; r < rows; r++) memcpy(dx + r * wide, dx, (size_t)wide * sizeof(REAL));
}

TARGET static void NAME(mean_shares_back_of)(const moth_shares *p, const REAL *dy, REAL *dx) {
  const int64_t wide = p->in[1];
  /* apart: shares do not overlap */
  bool apart = p->out[0] && p->out[1] && p->in[0] % p->out[0] == 0 && wide % p->out[1] == 0;
  if (!apart) memset(dx, 0, (size_t)(p->in[0] * wide) * sizeof(REAL));
  for (int64_t oy = 0; oy < p->out[0]; oy++, dy += p->out[1]) {
    int64_t r0 = share_from(p, 0, oy), r1 = share_to(p, 0, oy);
    if (apart) NAME(mean_row_back)(p, r1 - r0, dy, dx + r0 * wide);
    for (int64_t ox = 0; ox < p->out[1] && !apart; ox++) {
      int64_t c0 = share_from(p, 1, ox), c1 = share_to(p, 1, ox);
      REAL share = dy[ox] / (REAL)((r1 - r0) * (c1 - c0)), *to = dx + r0 * wide;
      for (int64_t r = r0; r < r1; r++, to += wide)
        for (int64_t c = c0; c < c1; c++) to[c] += share;
    }
  }
}

TARGET static void NAME(mean_shares_back)(int64_t first, int64_t last, int thread,
                                          const void *arg) {
  const job *j = arg;
  for (int64_t plane = first; plane < last; plane++)
    NAME(mean_shares_back_of)(j->s, (const REAL *)j->x + plane * j->n,
                              (REAL *)j->y + plane * j->area);
  (void)thread;
}

TARGET static void NAME(max_shares)(int64_t first, int64_t last, int thread, const void *arg) {
  const job *j = arg;
  const moth_shares *p = j->s;
  const moth_window w = {.in = {p->in[0], p->in[1]}, .dilation = {1, 1}};
  for (int64_t plane = first; plane < last; plane++) {
    const REAL *x = (const REAL *)j->x + plane * j->area;
    REAL *y = (REAL *)j->y + plane * j->n;
    int64_t *index = j->index + plane * j->n;
    for (int64_t oy = 0; oy < p->out[0]; oy++)
      for (int64_t ox = 0; ox < p->out[1]; ox++)
        *index++ = NAME(largest)(&w, x, 0, share_from(p, 0, oy), share_to(p, 0, oy),
                                 share_from(p, 1, ox), share_to(p, 1, ox), y++);
  }
  (void)thread;
}

/* -- positions: -1 is skipped, a position outside the plane sets j->outside -- */

/* Sets a sign bit for each position below -1 or above the last element. */
TARGET static bool NAME(outside)(const job *j, const int64_t *at) {
  const uint64_t area = (uint64_t)j->area;
  const int64_t n = j->n;
  uint64_t signs = 0;
  for (int64_t i = 0; i < n; i++) signs |= ((uint64_t)at[i] + 1) | (area - 1 - (uint64_t)at[i]);
  if (signs >> 63) atomic_store(j->outside, true);
  return signs >> 63;
}

TARGET static void NAME(scatter_planes)(int64_t first, int64_t last, int thread, const void *arg) {
  const job *j = arg;
  const int64_t n = j->n, area = j->area;
  for (int64_t plane = first; plane < last; plane++) {
    const int64_t *at = j->index + plane * n;
    const REAL *dy = (const REAL *)j->x + plane * n;
    REAL *dx = (REAL *)j->y + plane * area;
    memset(dx, 0, (size_t)area * sizeof(REAL));
    if (NAME(outside)(j, at)) continue;
    for (int64_t i = 0; i < n; i++)
      if (at[i] >= 0) dx[at[i]] += dy[i];
  }
  (void)thread;
}

TARGET static void NAME(gather_planes)(int64_t first, int64_t last, int thread, const void *arg) {
  const job *j = arg;
  const int64_t n = j->n, area = j->area;
  for (int64_t plane = first; plane < last; plane++) {
    const int64_t *at = j->index + plane * n;
    const REAL *x = (const REAL *)j->x + plane * area;
    REAL *y = (REAL *)j->y + plane * n;
    if (NAME(outside)(j, at)) continue;
    for (int64_t i = 0; i < n; i++) y[i] = at[i] >= 0 ? x[at[i]] : 0;
  }
  (void)thread;
}

#undef TAPS
#undef CHUNKS
#undef WIDE_CHUNKS
#undef EACH_CHUNK
