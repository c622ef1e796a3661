/* tile_level.h -- the loops of tile.c for one level: LANES floats in a vector, ROWS rows in a
** product's tile, TAPS in a sum's, TARGET the attribute that chooses instructions. Heights are
** constants where the loops are inlined, so that all accumulators stay in registers.
*/
typedef float NAME(vector) __attribute__((vector_size(4 * LANES)));
typedef float NAME(loose) __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
#define VECTOR NAME(vector)
#define LOOSE NAME(loose)

TARGET static inline __attribute__((always_inline)) void NAME(product_of)(
    const int m, int64_t n, const float *a, const float *b, const int64_t *off,
    const float *start, float *y, int64_t ldy) {
  VECTOR s[ROWS][2];
  UNROLL for (int i = 0; i < m; i++) {
    s[i][0] = (VECTOR){0} + (start ? start[i] : 0);
    s[i][1] = s[i][0];
  }
  for (int64_t t = 0; t < n; t++, a += m) {
    const LOOSE *from = (const LOOSE *)(const void *)(b + off[t]);
    VECTOR b0 = from[0], b1 = from[1];
    UNROLL for (int i = 0; i < m; i++) {
      s[i][0] += a[i] * b0;
      s[i][1] += a[i] * b1;
    }
  }
  UNROLL for (int i = 0; i < m; i++) {
    LOOSE *to = (LOOSE *)(void *)(y + i * ldy);
    if (!start) {
      s[i][0] += to[0];
      s[i][1] += to[1];
    }
    to[0] = s[i][0];
    to[1] = s[i][1];
  }
}

TARGET static void NAME(product)(int m, int64_t n, const float *a, const float *b,
                                 const int64_t *off, const float *start, float *y, int64_t ldy) {
  switch (m) {
#define HEIGHT(k) \
  case k: NAME(product_of)(k, n, a, b, off, start, y, ldy); break;
    HEIGHT(1) HEIGHT(2) HEIGHT(3) HEIGHT(4) HEIGHT(5) HEIGHT(6)
#if ROWS > 6
    HEIGHT(7) HEIGHT(8) HEIGHT(9) HEIGHT(10) HEIGHT(11) HEIGHT(12)
#endif
#undef HEIGHT
  }
}

TARGET static inline __attribute__((always_inline)) void NAME(sum_of)(
    const int m, const int wide, int64_t n, const float *x, const int64_t *off, const float *b,
    int64_t ldb, float *y) {
  VECTOR s[TAPS][2];
  const float *at[TAPS];
  UNROLL for (int i = 0; i < m; i++) {
    s[i][0] = s[i][1] = (VECTOR){0};
    at[i] = x + off[i];
  }
  for (int64_t q = 0; q < n; q++, b += ldb) {
    const LOOSE *from = (const LOOSE *)(const void *)b;
    VECTOR b0 = from[0], b1 = wide ? from[1] : from[0];
    UNROLL for (int i = 0; i < m; i++) {
      s[i][0] += at[i][q] * b0;
      if (wide) s[i][1] += at[i][q] * b1;
    }
  }
  UNROLL for (int i = 0; i < m; i++) {
    LOOSE *to = (LOOSE *)(void *)(y + i * ldb);
    to[0] += s[i][0];
    if (wide) to[1] += s[i][1];
  }
}

TARGET static void NAME(sum)(int m, bool wide, int64_t n, const float *x, const int64_t *off,
                             const float *b, int64_t ldb, float *y) {
  switch (wide ? -m : m) {
#define HEIGHT(k)                                                     \
  case k: NAME(sum_of)(k, 0, n, x, off, b, ldb, y); break; \
  case -k: NAME(sum_of)(k, 1, n, x, off, b, ldb, y); break;
    HEIGHT(1) HEIGHT(2) HEIGHT(3) HEIGHT(4) HEIGHT(5) HEIGHT(6)
#if TAPS > 6
    HEIGHT(7) HEIGHT(8)
#endif
#undef HEIGHT
  }
}

static const moth_tile NAME(tile) = {.level = LEVEL, .rows = ROWS, .columns = 2 * LANES,
                                     .taps = TAPS, .lanes = LANES, .product = NAME(product),
                                     .sum = NAME(sum)};
#undef VECTOR
#undef LOOSE
