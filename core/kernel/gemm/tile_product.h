/* tile_product.h -- a tile's product and sum for one level: LANES floats in a vector, ROWS rows of
** a product's tile, TAPS1, TAPS2 and TAPS4 rows of a sum's tile of 1, 2 and 4 vectors, TARGET the
** attribute that chooses instructions, MORE(sum, number, numbers) one multiply-add. Heights are
** constants where the loops are inlined, so all accumulators stay in registers.
*/
TARGET INLINED void NAME(product_of)(const int m, const int wide, const int packed, int64_t n,
                                     const float *a, const int64_t rs, const float *b,
                                     const int64_t *off, const float *start, float *y,
                                     int64_t ldy) {
  VECTOR s[ROWS][2];
  const NUMBER *one = (const NUMBER *)(const void *)a;
  /* four pointers, because more need too many registers */
  const NUMBER *at[4] = {one, one + 3 * rs, one + 6 * rs, one + 9 * rs};
  UNROLL for (int i = 0; i < m; i++) {
    s[i][0] = (VECTOR){0} + (start ? start[i] : 0);
    s[i][1] = s[i][0];
  }
  for (int64_t t = 0; t < n; t++) {
    const LOOSE_NUMBERS *from = (const LOOSE_NUMBERS *)(const void *)(b + off[t]);
    NUMBERS b0 = from[0], b1 = wide ? from[1] : from[0];
    UNROLL for (int i = 0; i < m; i++) {
      const NUMBER f = packed ? one[i] : at[i / 3][i % 3 * rs];
      s[i][0] = MORE(s[i][0], f, b0);
      if (wide) s[i][1] = MORE(s[i][1], f, b1);
    }
    if (packed) one += m;
    else
      UNROLL for (int i = 0; i < m; i += 3) at[i / 3]++;
  }
  UNROLL for (int i = 0; i < m; i++) {
    LOOSE *to = (LOOSE *)(void *)(y + i * ldy);
    if (!start) {
      s[i][0] += to[0];
      if (wide) s[i][1] += to[1];
    }
    to[0] = s[i][0];
    if (wide) to[1] = s[i][1];
  }
}

TARGET static void NAME(product)(int m, bool wide, int64_t n, const float *a, int64_t rs,
                                 const float *b, const int64_t *off, const float *start,
                                 float *y, int64_t ldy) {
  switch ((wide ? m : -m) + (rs ? 32 : 0)) {
#define HEIGHT(k) \
  case k: NAME(product_of)(k, 1, 1, n, a, 0, b, off, start, y, ldy); break;           \
  case -k: NAME(product_of)(k, 0, 1, n, a, 0, b, off, start, y, ldy); break;          \
  case 32 + k: NAME(product_of)(k, 1, 0, n, a, rs, b, off, start, y, ldy); break;     \
  case 32 - k: NAME(product_of)(k, 0, 0, n, a, rs, b, off, start, y, ldy); break;
    HEIGHT(1) HEIGHT(2) HEIGHT(3) HEIGHT(4) HEIGHT(5) HEIGHT(6)
#if ROWS > 6
    HEIGHT(7) HEIGHT(8) HEIGHT(9) HEIGHT(10) HEIGHT(11) HEIGHT(12)
#endif
#undef HEIGHT
  }
}

TARGET INLINED void NAME(sum_of)(const int m, const int v, int64_t n, const float *x,
                                 const int64_t *off, const int64_t *at, const float *b,
                                 int64_t ldb, bool add, float *y) {
  VECTOR s[TAPS1][4];
  NUMBERS c[4];
  const NUMBER *tap[TAPS1];
  UNROLL for (int i = 0; i < m; i++) {
    UNROLL for (int j = 0; j < v; j++) s[i][j] = (VECTOR){0};
    tap[i] = (const NUMBER *)(const void *)(x + off[i]);
  }
  for (int64_t q = 0; q < n; q++, b += ldb) {
    const LOOSE_NUMBERS *from = (const LOOSE_NUMBERS *)(const void *)b;
    UNROLL for (int j = 0; j < v; j++) c[j] = from[j];
    UNROLL for (int i = 0; i < m; i++)
      UNROLL for (int j = 0; j < v; j++) s[i][j] = MORE(s[i][j], tap[i][at[q]], c[j]);
  }
  UNROLL for (int i = 0; i < m; i++) {
    LOOSE *to = (LOOSE *)(void *)(y + i * ldb);
    UNROLL for (int j = 0; j < v; j++) to[j] = add ? (VECTOR)to[j] + s[i][j] : s[i][j];
  }
}

TARGET static void NAME(sum)(int m, int v, int64_t n, const float *x, const int64_t *off,
                             const int64_t *at, const float *b, int64_t ldb, bool add, float *y) {
  switch (v * 16 + m) {
#define HEIGHT(k, v) case v * 16 + k: NAME(sum_of)(k, v, n, x, off, at, b, ldb, add, y); break;
    HEIGHT(1, 1) HEIGHT(2, 1) HEIGHT(3, 1) HEIGHT(4, 1) HEIGHT(5, 1) HEIGHT(6, 1)
    HEIGHT(1, 2) HEIGHT(2, 2) HEIGHT(3, 2) HEIGHT(4, 2) HEIGHT(5, 2) HEIGHT(6, 2)
#if TAPS1 > 6
    HEIGHT(7, 1) HEIGHT(8, 1) HEIGHT(9, 1) HEIGHT(10, 1)
#endif
#if TAPS2 > 6
    HEIGHT(7, 2) HEIGHT(8, 2)
#endif
#if TAPS4
    HEIGHT(1, 4) HEIGHT(2, 4) HEIGHT(3, 4) HEIGHT(4, 4) HEIGHT(5, 4) HEIGHT(6, 4)
#endif
#undef HEIGHT
  }
}
