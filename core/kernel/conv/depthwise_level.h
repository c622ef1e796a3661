/* depthwise_level.h -- the loops of depthwise.c for one level: LANES floats in a vector, TARGET the
** attribute that chooses instructions. The length of a row is a multiple of the vector, or the row
** ends in zeros.
*/
typedef float NAME(vector) __attribute__((vector_size(4 * LANES)));
typedef float NAME(loose) __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
#define VECTOR NAME(vector)
#define LOOSE NAME(loose)
#define AT(p) (*(const LOOSE *)(const void *)(p))

/* Computes `rows` rows by v vectors of results. x has rows ld apart. */
TARGET INLINED void NAME(rows_of_results)(const int rows, const int v, const plane_loop *s,
                                          const float *x, const float *from, int64_t from_ld,
                                          float *to, int64_t to_ld) {
  VECTOR sum[4][2];
  UNROLL for (int i = 0; i < rows; i++)
    UNROLL for (int j = 0; j < v; j++)
      sum[i][j] = (VECTOR){0} + s->start;
  UNROLL for (int i = 0; from && i < rows; i++)
    UNROLL for (int j = 0; j < v; j++) sum[i][j] = AT(from + i * from_ld + j * LANES);
  for (int64_t k = 0; k < s->taps; k++) {
    const float *p = x + s->off[k];
    float w = s->weight[k];
    UNROLL for (int i = 0; i < rows; i++)
      UNROLL for (int j = 0; j < v; j++) sum[i][j] += w * AT(p + i * s->ld + j * LANES);
  }
  UNROLL for (int i = 0; i < rows; i++)
    UNROLL for (int j = 0; j < v; j++) *(LOOSE *)(void *)(to + i * to_ld + j * LANES) = sum[i][j];
}

TARGET static void NAME(see)(const plane_loop *s) {
  for (int64_t row = 0, rows; row < s->rows; row += rows) {
    rows = s->rows - row >= 4 ? 4 : 1;
    for (int64_t at = 0, next; at < s->width; at = next) {
      int v = s->width - at > LANES ? 2 : 1;
      float edge[4 * 2 * LANES], *to = s->y + row * s->ldy + at;
      const float *x = s->x + row * s->ld + at;
      int64_t ld = s->ldy, left = s->width - at;
      bool whole = left >= v * LANES;
      next = at + v * LANES;
      if (!whole) {
        ld = v * LANES;
        for (int64_t i = 0; s->add && i < rows; i++)
          memcpy(edge + i * ld, to + i * s->ldy, (size_t)left * sizeof *to);
        to = edge;
      }
      const float *from = s->add ? to : NULL;
      if (rows == 4 && v == 2) NAME(rows_of_results)(4, 2, s, x, from, ld, to, ld);
      else if (rows == 4) NAME(rows_of_results)(4, 1, s, x, from, ld, to, ld);
      else if (v == 2) NAME(rows_of_results)(1, 2, s, x, from, ld, to, ld);
      else NAME(rows_of_results)(1, 1, s, x, from, ld, to, ld);
      for (int64_t i = 0; !whole && i < rows; i++)
        memcpy(s->y + (row + i) * s->ldy + at, edge + i * ld, (size_t)left * sizeof *edge);
    }
  }
}

/* The transposed loop: x + off[k] += weight[k] * y for all taps. Rows of y end in zeros. */
TARGET static void NAME(add_taps)(const plane_loop *s) {
  for (int64_t k = 0; k < s->taps; k++)
    for (int64_t row = 0; row < s->rows; row++) {
      float *to = s->x + row * s->ld + s->off[k];
      const float *y = s->y + row * s->ldy;
      for (int64_t at = 0; at < s->width; at += LANES)
        *(LOOSE *)(void *)(to + at) = AT(to + at) + s->weight[k] * AT(y + at);
    }
}

/* sum[k] += (x + off[k]) times y, for the m taps from k on. Rows of y end in zeros. */
TARGET INLINED void NAME(sum_of)(const int m, const plane_loop *s, int64_t k, double *sum) {
  VECTOR part[10];
  UNROLL for (int i = 0; i < m; i++) part[i] = (VECTOR){0};
  for (int64_t row = 0; row < s->rows; row++) {
    const float *x = s->x + row * s->ld, *y = s->y + row * s->ldy;
    for (int64_t at = 0; at < s->width; at += LANES) {
      VECTOR g = AT(y + at);
      UNROLL for (int i = 0; i < m; i++) part[i] += g * AT(x + s->off[k + i] + at);
    }
  }
  UNROLL for (int i = 0; i < m; i++) {
    float all = 0;
    for (int j = 0; j < LANES; j++) all += part[i][j];
    sum[k + i] += (double)all;
  }
}

TARGET static void NAME(sum)(const plane_loop *s, double *sum) {
  int most = LANES > 4 ? 10 : 5, height = moth_tile_height(s->taps, most);
  for (int64_t k = 0; k < s->taps; k += height)
    switch (s->taps - k < height ? (int)(s->taps - k) : height) {
#define HEIGHT(m) case m: NAME(sum_of)(m, s, k, sum); break;
      HEIGHT(1) HEIGHT(2) HEIGHT(3) HEIGHT(4) HEIGHT(5)
      HEIGHT(6) HEIGHT(7) HEIGHT(8) HEIGHT(9) HEIGHT(10)
#undef HEIGHT
    }
}

/* Copies rows of floats. */
TARGET static void NAME(copy)(int64_t rows, int64_t n, const float *from, int64_t ld, float *to,
                              int64_t ldt) {
  for (int64_t i = 0; i < rows; i++, from += ld, to += ldt) {
    int64_t at = 0;
    for (; at + LANES <= n; at += LANES) *(LOOSE *)(void *)(to + at) = AT(from + at);
    if (at < n && n >= LANES)
      *(LOOSE *)(void *)(to + n - LANES) = AT(from + n - LANES);
    else
      for (; at < n; at++) to[at] = from[at];
  }
}

static const loops NAME(loops) = {LANES, NAME(see), NAME(add_taps), NAME(sum), NAME(copy)};
#undef VECTOR
#undef LOOSE
#undef AT
