/* matrix_level.h -- the loops of matrix.c for one level: LANES floats in the widest vector, TARGET
** the attribute that chooses instructions, STRIPS the table of strips for them.
**
** A tile of C stays in registers for all of k. A is read in place, one number at a time, with one
** pointer for three rows. B is read a few vectors at a time; the last vector of a row may overlap
** the previous one, so no width needs masks or a buffer. The code prefetches the tile of C, the
** rows of A of the next tile, and the next panel of B.
*/

/* Scalar products are fused explicitly. Compilers vectorize neighboring rows only partly, so the
** bits of an element would depend on the number of rows of a tile. */
#define ADD_LANES(s, a, x) s += (a) * (x)
#define ADD_ONE(s, a, x) s = __builtin_fmaf(a, x, s)
#define PER_LINE(lanes) ((lanes) < 16 ? 16 / (lanes) : 1) /* vectors per cache line */

/* One strip: tiles of m rows and nv vectors, one below the other. After p->chain products the sums
** are added to C, which is in L1 then; longer sums lose digits. */
#define TILES(f, V, U, lanes, ADD, RELU)                                                         \
  TARGET INLINED void NAME(f)(moth_strip *p, const int m, const int nv) {                        \
    const float *from = p->a, *ahead = p->ahead;                                                 \
    float *c = p->c;                                                                             \
    const int64_t rs = p->rs, cs = p->cs, ldb = p->ldb, ldc = p->ldc, last = p->last;            \
    const int64_t below = p->below, few = p->few, apart = LANES > 8 ? p->ldb : p->apart;         \
    for (int64_t tile = 0; tile < p->tiles; tile++, from += p->next, c += m * ldc) {             \
      V s[12][4], x[4];                                                                          \
      const float *b = p->b, *a[4] = {from, from + 3 * rs, from + 6 * rs, from + 9 * rs};        \
      int64_t left = p->k;                                                                       \
      bool add = p->add;                                                                         \
      UNROLL for (int i = 0; i < m; i++)                                                         \
        UNROLL for (int v = 0; v < nv; v += PER_LINE(lanes))                                     \
          __builtin_prefetch(c + i * ldc + v * lanes, 1);                                        \
      do {                                                                                       \
        const int64_t some = left < p->chain ? left : p->chain;                                  \
        for (int64_t t = 0; t < few; t++, ahead += apart)                                        \
          UNROLL for (int v = 0; v < nv; v += PER_LINE(lanes))                                   \
            __builtin_prefetch(ahead + v * lanes, 0, 2);                                         \
        for (int64_t t = 0; below && t < some; t += 16)                                          \
          UNROLL for (int i = 0; i < m; i++)                                                     \
            __builtin_prefetch(a[i / 3] + i % 3 * rs + below + t, 0, 2);                         \
        UNROLL for (int i = 0; i < m; i++)                                                       \
          UNROLL for (int v = 0; v < nv; v++) s[i][v] = (V){0};                                  \
        for (int64_t t = 0; t < some; t++, b += ldb) {                                           \
          UNROLL for (int v = 0; v < nv; v++)                                                    \
            x[v] = *(const U *)(const void *)(b + (v && v == nv - 1 ? last : v * lanes));        \
          UNROLL for (int i = 0; i < m; i++)                                                     \
            UNROLL for (int v = 0; v < nv; v++) ADD(s[i][v], a[i / 3][i % 3 * rs], x[v]);        \
          UNROLL for (int g = 0; 3 * g < m; g++) a[g] += cs;                                     \
        }                                                                                        \
        left -= some;                                                                            \
        if (p->bias && !left) {                                                                  \
          UNROLL for (int v = 0; v < nv; v++)                                                    \
            x[v] = *(const U *)(const void *)(p->bias + (v && v == nv - 1 ? last : v * lanes));  \
          UNROLL for (int i = 0; i < m; i++)                                                     \
            UNROLL for (int v = 0; v < nv; v++) s[i][v] += x[v];                                 \
        }                                                                                        \
        if (add)                                                                                 \
          UNROLL for (int i = 0; i < m; i++)                                                     \
            UNROLL for (int v = 0; v < nv; v++)                                                  \
              s[i][v] += *(const U *)(const void *)(c + i * ldc +                                \
                                                    (v && v == nv - 1 ? last : v * lanes));      \
        if (p->relu && !left)                                                                    \
          UNROLL for (int i = 0; i < m; i++)                                                     \
            UNROLL for (int v = 0; v < nv; v++) s[i][v] = RELU(s[i][v]);                         \
        UNROLL for (int i = 0; i < m; i++) {                                                     \
          float *row = c + i * ldc;                                                              \
          UNROLL for (int v = 0; v < nv; v++)                                                    \
            *(U *)(void *)(row + (v && v == nv - 1 ? last : v * lanes)) = s[i][v];               \
        }                                                                                        \
        add = true;                                                                              \
      } while (left);                                                                            \
    }                                                                                            \
    p->ahead = ahead;                                                                            \
  }
#if LANES > 8
TILES(tiles16, vector16, loose16, 16, ADD_LANES, RELU_LANES)
#endif
TILES(tiles8, vector8, loose8, 8, ADD_LANES, RELU_LANES)
TILES(tiles4, vector4, loose4, 4, ADD_LANES, RELU_LANES)
TILES(tiles1, float, loose1, 1, ADD_ONE, RELU_ONE)
#undef TILES
#undef ADD_LANES
#undef ADD_ONE
#undef PER_LINE

#define STRIP(lanes, nv, m)                                              \
  TARGET static void NAME(strip_##lanes##_##nv##_##m)(moth_strip *p) {  \
    NAME(tiles##lanes)(p, m, nv);                                        \
  }
#define ROW(lanes, nv, m) [m] = NAME(strip_##lanes##_##nv##_##m),
#define SIX(X, lanes, nv) \
  X(lanes, nv, 1) X(lanes, nv, 2) X(lanes, nv, 3) X(lanes, nv, 4) X(lanes, nv, 5) X(lanes, nv, 6)
#define TWELVE(X, lanes, nv)                                                                   \
  SIX(X, lanes, nv)                                                                            \
  X(lanes, nv, 7) X(lanes, nv, 8) X(lanes, nv, 9) X(lanes, nv, 10) X(lanes, nv, 11) X(lanes, nv, 12)

#if LANES > 8
TWELVE(STRIP, 16, 1) TWELVE(STRIP, 16, 2) SIX(STRIP, 16, 3) SIX(STRIP, 16, 4)
#endif
SIX(STRIP, 8, 1) SIX(STRIP, 8, 2) SIX(STRIP, 4, 1) SIX(STRIP, 4, 2)
SIX(STRIP, 1, 1) SIX(STRIP, 1, 2) SIX(STRIP, 1, 3)

static strip_loop *const NAME(strips)[4][4][MOTH_MATRIX_ROWS + 1] = {
  {{SIX(ROW, 1, 1)}, {SIX(ROW, 1, 2)}, {SIX(ROW, 1, 3)}},
  {{SIX(ROW, 4, 1)}, {SIX(ROW, 4, 2)}},
  {{SIX(ROW, 8, 1)}, {SIX(ROW, 8, 2)}},
#if LANES > 8
  {{TWELVE(ROW, 16, 1)}, {TWELVE(ROW, 16, 2)}, {SIX(ROW, 16, 3)}, {SIX(ROW, 16, 4)}},
#endif
};
#undef STRIP
#undef ROW
#undef SIX
#undef TWELVE

/* -- packing: contiguous rows of B, as wide as a panel -- */

/* to[t * w + j] := b[j * ld + t] for LANES j and LANES t */
TARGET INLINED void NAME(transpose)(float *to, int64_t w, const float *b, int64_t ld) {
  NAME(vector) r[LANES], s[LANES];
  UNROLL for (int i = 0; i < LANES; i++) r[i] = *(const NAME(loose) *)(const void *)(b + i * ld);
  UNROLL for (int i = 0; i < LANES; i += 2) { /* pairs of numbers, */
    s[i] = LOW1(r[i], r[i + 1]);
    s[i + 1] = HIGH1(r[i], r[i + 1]);
  }
  UNROLL for (int i = 0; i < LANES; i += 4) { /* fours, */
    UNROLL for (int j = 0; j < 2; j++) {
      r[i + 2 * j] = LOW2(s[i + j], s[i + j + 2]);
      r[i + 2 * j + 1] = HIGH2(s[i + j], s[i + j + 2]);
    }
  }
#if LANES > 8
  UNROLL for (int i = 0; i < 16; i += 8) { /* eights, */
    UNROLL for (int j = 0; j < 4; j++) {
      s[i + j] = EVEN4(r[i + j], r[i + j + 4]);
      s[i + j + 4] = ODD4(r[i + j], r[i + j + 4]);
    }
  }
  UNROLL for (int j = 0; j < 8; j++) { /* ... and all; s[j] starts with column j or 8 + j - 4 */
    r[j] = EVEN4(s[j], s[j + 8]);
    r[j + 8] = ODD4(s[j], s[j + 8]);
  }
#else
  UNROLL for (int j = 0; j < 4; j++) {
    s[j] = LOW4(r[j], r[j + 4]);
    s[j + 4] = HIGH4(r[j], r[j + 4]);
  }
  UNROLL for (int j = 0; j < 8; j++) r[j] = s[j];
#endif
  UNROLL for (int i = 0; i < LANES; i++) *(NAME(loose) *)(void *)(to + i * w) = r[i];
}

/* Copies a transposed panel of B, whose columns are contiguous and ld apart. Its rows are then
** `step` apart. */
TARGET static void NAME(pack_transposed)(float *to, int64_t step, int64_t k, int64_t w,
                                         const float *b, int64_t ld) {
  if (w < LANES || k < LANES) {
    for (int64_t t = 0; t < k; t++)
      for (int64_t j = 0; j < w; j++) to[t * step + j] = b[j * ld + t];
    return;
  }
  for (int64_t j = 0;; j = j + 2 * LANES > w ? w - LANES : j + LANES) {
    for (int64_t t = 0;; t = t + 2 * LANES > k ? k - LANES : t + LANES) {
      NAME(transpose)(to + t * step + j, step, b + j * ld + t, ld);
      if (t + LANES == k) break;
    }
    if (j + LANES == w) break;
  }
}

/* -- a matrix times a vector -- */

/* The sum of each of four vectors. */
TARGET INLINED vector4 NAME(four_sums)(NAME(vector) a, NAME(vector) b, NAME(vector) c,
                                       NAME(vector) d) {
  NAME(vector) ab = LOW1(a, b) + HIGH1(a, b), cd = LOW1(c, d) + HIGH1(c, d);
  NAME(vector) all = LOW2(ab, cd) + HIGH2(ab, cd);
#if LANES > 8
  vector8 half = SHUFFLE(all, all, 0, 1, 2, 3, 4, 5, 6, 7) +
                 SHUFFLE(all, all, 8, 9, 10, 11, 12, 13, 14, 15);
#else
  vector8 half = all;
#endif
  return SHUFFLE(half, half, 0, 1, 2, 3) + SHUFFLE(half, half, 4, 5, 6, 7);
}

/* Writes four sums for neighboring rows of w. */
TARGET INLINED void NAME(write_four)(const moth_dots *p, int i, int64_t j, bool add, bool last,
                                    vector4 sum) {
  float *y = p->y + i * p->ldy + j * p->step;
  const float *bias = p->bias + i * p->bias_x + j * p->bias_w;
  if (p->step == 1 && p->bias_w) {
    if (last && p->bias) sum += *(const loose4 *)(const void *)bias;
    if (add) sum += *(const loose4 *)(const void *)y;
    *(loose4 *)(void *)y = sum;
    return;
  }
  UNROLL for (int r = 0; r < 4; r++, y += p->step, bias += p->bias_w) {
    const float one = last && p->bias ? sum[r] + *bias : sum[r];
    *y = add ? *y + one : one;
  }
}

/* The products after the last whole vector. Not inlined: it would be copied 24 times for each
** number of vectors. */
TARGET __attribute__((noinline)) static float NAME(rest)(const float *x, const float *w,
                                                         int64_t n) {
  float sum = 0;
  for (int64_t q = 0; q < n; q++) sum += x[q] * w[q];
  return sum;
}

/* Products of m vectors x with `rows` rows of w (1, or a multiple of 4), from row j on, for n
** numbers from t on. Each product has a vector of sums. */
TARGET INLINED void NAME(dots_of)(const moth_dots *p, const int m, const int rows, int64_t j,
                                  int64_t t, const int64_t n) {
  NAME(vector) s[24 + 3];
  const float *w = p->w + j * p->ldw;
  const int64_t k = t + n;
  const bool first = !t, last = k == p->k;
  UNROLL for (int e = 0; e < (m * rows + 3) / 4 * 4; e++) s[e] = (NAME(vector)){0};
  for (; t + LANES <= k; t += LANES)
    UNROLL for (int r = 0; r < rows; r++) {
      NAME(vector) v = *(const NAME(loose) *)(const void *)(w + r * p->ldw + t);
      UNROLL for (int i = 0; i < m; i++)
        s[i * rows + r] += v * *(const NAME(loose) *)(const void *)(p->x + i * p->ldx + t);
    }
  UNROLL for (int e = 0; e < m * rows; e += 4) {
    vector4 sum = NAME(four_sums)(s[e], s[e + 1], s[e + 2], s[e + 3]);
    if (t < k) {
      float rest[4] = {0};
      UNROLL for (int l = 0; l < 4; l++) {
        const int f = e + l < m * rows ? e + l : e;
        rest[l] = NAME(rest)(p->x + f / rows * p->ldx + t, w + f % rows * p->ldw + t, k - t);
      }
      sum += *(const loose4 *)(const void *)rest;
    }
    if (rows >= 4) {
      NAME(write_four)(p, e / rows, j + e % rows, p->add || !first, last, sum);
      continue;
    }
    for (int i = e; i < m && i < e + 4; i++) {
      float *y = p->y + i * p->ldy + j * p->step, one = sum[i - e];
      if (last && p->bias) one += p->bias[i * p->bias_x + j * p->bias_w];
      *y = p->add || !first ? *y + one : one;
    }
  }
}

/* Sums of DOTS numbers are added to y, since longer sums lose digits. */
TARGET static void NAME(dots)(const moth_dots *p, int64_t first, int64_t last) {
  enum { DOTS = 512 * LANES };
  const int64_t k = p->k;
  int64_t j = first;
  switch (p->m) {
#define SOME(m, rows)                                                    \
  for (; j + rows <= last; j += rows)                                    \
    for (int64_t t = 0; t < k || !t; t += DOTS)                          \
      NAME(dots_of)(p, m, rows, j, t, k - t < DOTS ? k - t : DOTS);
#define VECTORS(m, rows)                                                 \
  case m:                                                                \
    SOME(m, rows) SOME(m, 4) SOME(m, 1)                                  \
    break;
#if LANES > 8
    VECTORS(1, 16) VECTORS(2, 8) VECTORS(3, 8) VECTORS(4, 4) VECTORS(5, 4) VECTORS(6, 4)
#else
    VECTORS(1, 8) VECTORS(2, 4) VECTORS(3, 4) VECTORS(4, 4) VECTORS(5, 4) VECTORS(6, 4)
#endif
#undef VECTORS
#undef SOME
  }
}

/* y (+)= the rows of b, ldb apart, times x[0], x[step], ...; eight rows at a time, so that b is
** read in long streams. */
TARGET static void NAME(sums)(const moth_sums *p, int64_t first, int64_t last) {
  enum { ROWS = 8 };
  const float *x = p->x, *b = p->b;
  const float *bias = p->bias;
  float *sum = p->y;
  if (!p->add && last > first) memset(sum + first, 0, (size_t)(last - first) * sizeof *sum);
  for (int64_t j = first; bias && j < last; j++) sum[j] += bias[j];
  int64_t t = 0;
  for (; t + ROWS <= p->k; t += ROWS, x += ROWS * p->step, b += ROWS * p->ldb) {
    float f[ROWS];
    for (int r = 0; r < ROWS; r++) f[r] = x[r * p->step];
    int64_t j = first;
    for (; j + LANES <= last; j += LANES) {
      NAME(loose) *y = (NAME(loose) *)(void *)(p->y + j);
      NAME(vector) s[2] = {(NAME(vector)){0}, (NAME(vector)){0}};
      UNROLL for (int r = 0; r < ROWS; r++)
        s[r % 2] += f[r] * *(const NAME(loose) *)(const void *)(b + r * p->ldb + j);
      *y += s[0] + s[1];
    }
    for (; j < last; j++) {
      float s[2] = {0, 0};
      for (int r = 0; r < ROWS; r++) s[r % 2] += f[r] * b[r * p->ldb + j];
      p->y[j] += s[0] + s[1];
    }
  }
  for (; t < p->k; t++, x += p->step, b += p->ldb)
    for (int64_t j = first; j < last; j++) p->y[j] += *x * b[j];
}
