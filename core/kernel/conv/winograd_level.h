/* winograd_level.h -- the transforms of winograd.c for one level; tile_level.h includes it and
** defines LANES and other macros. A vector has the same number of the 16 for LANES patches, filters
** or results.
**
**     patches: B' d B, rows of B' 1 0 -1 0, 0 1 1 0, 0 -1 1 0, 0 1 0 -1
**     filters: G g G', rows of G 1 0 0, 1/2 1/2 1/2, 1/2 -1/2 1/2, 0 0 1
**     results: A' m A, rows of A' 1 1 1 0, 0 1 -1 -1
*/
typedef float NAME(vector) __attribute__((vector_size(4 * LANES)));
typedef float NAME(loose) __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
#define VECTOR NAME(vector)
#define LOOSE NAME(loose)
#define AT(p) (*(const LOOSE *)(const void *)(p))
#define TO(p) (*(LOOSE *)(void *)(p))

/* The even and the odd numbers of 2 LANES numbers. */
#define EVEN_OF(a, b) __builtin_shufflevector(a, b, EVENS)
#define ODD_OF(a, b) __builtin_shufflevector(a, b, ODDS)

TARGET static void NAME(patches)(const float *const row[4], int64_t first, int64_t n,
                                 int64_t patches, int64_t ahead, float *to, int64_t ldt) {
  float line[4][2 * MOTH_WINOGRAD_PATCHES + 5 * LANES];
  const float *const r0 = row[0], *const r1 = row[1], *const r2 = row[2], *const r3 = row[3];
  UNROLL for (int r = 0; r < 4; r++) { /* unrolled: a loop would become a call of memset */
    TO(line[r]) = (VECTOR){0};
    UNROLL for (int v = 0; v < 4; v++) TO(line[r] + first + n + v * LANES) = (VECTOR){0};
    for (int64_t k = LANES; k < first; k++) line[r][k] = 0;
    for (int64_t k = first + n + LANES; k < 2 * patches + 2; k++) line[r][k] = 0;
  }
  int64_t k = 0;
  for (; k + LANES <= n; k += LANES) {
    VECTOR a = AT(r0 + k), b = AT(r1 + k), c = AT(r2 + k), d = AT(r3 + k);
    TO(line[0] + first + k) = a - c;
    TO(line[1] + first + k) = b + c;
    TO(line[2] + first + k) = c - b;
    TO(line[3] + first + k) = b - d;
    UNROLL for (int r = 0; r < 4; r++) __builtin_prefetch(row[r] + k + ahead);
  }
  for (; k < n; k++) {
    line[0][first + k] = r0[k] - r2[k];
    line[1][first + k] = r1[k] + r2[k];
    line[2][first + k] = r2[k] - r1[k];
    line[3][first + k] = r1[k] - r3[k];
  }
  for (k = 0; k < patches; k += LANES)
    UNROLL for (int r = 0; r < 4; r++) {
      const float *from = line[r] + 2 * k;
      VECTOR a = AT(from), b = AT(from + LANES), c = AT(from + 2), d = AT(from + 2 + LANES);
      VECTOR d0 = EVEN_OF(a, b), d1 = ODD_OF(a, b), d2 = EVEN_OF(c, d), d3 = ODD_OF(c, d);
      TO(to + (4 * r + 0) * ldt + k) = d0 - d2;
      TO(to + (4 * r + 1) * ldt + k) = d1 + d2;
      TO(to + (4 * r + 2) * ldt + k) = d2 - d1;
      TO(to + (4 * r + 3) * ldt + k) = d1 - d3;
    }
}

TARGET static void NAME(filters)(const float *taps, bool flip, float *to, int64_t ldt) {
  VECTOR g[3][3], t[4][3];
  UNROLL for (int i = 0; i < 9; i++) g[i / 3][i % 3] = AT(taps + (flip ? 8 - i : i) * LANES);
  UNROLL for (int s = 0; s < 3; s++) {
    t[0][s] = g[0][s];
    t[1][s] = 0.5f * (g[0][s] + g[2][s] + g[1][s]);
    t[2][s] = 0.5f * (g[0][s] + g[2][s] - g[1][s]);
    t[3][s] = g[2][s];
  }
  UNROLL for (int r = 0; r < 4; r++) {
    TO(to + (4 * r + 0) * ldt) = t[r][0];
    TO(to + (4 * r + 1) * ldt) = 0.5f * (t[r][0] + t[r][2] + t[r][1]);
    TO(to + (4 * r + 2) * ldt) = 0.5f * (t[r][0] + t[r][2] - t[r][1]);
    TO(to + (4 * r + 3) * ldt) = t[r][2];
  }
}

TARGET static void NAME(results)(const float *from, int64_t ldf, int64_t n, float start,
                                 float *upper, float *lower) {
  for (int64_t k = 0; k < n; k += LANES) {
    VECTOR m[4][4], t[2][4];
    UNROLL for (int i = 0; i < 16; i++) m[i / 4][i % 4] = AT(from + i * ldf + k);
    UNROLL for (int s = 0; s < 4; s++) {
      t[0][s] = m[0][s] + m[1][s] + m[2][s];
      t[1][s] = m[1][s] - m[2][s] - m[3][s];
    }
    UNROLL for (int r = 0; r < 2; r++) {
      float *to = (r ? lower : upper) + 2 * k;
      VECTOR left = t[r][0] + t[r][1] + t[r][2] + start;
      VECTOR right = t[r][1] - t[r][2] - t[r][3] + start;
      TO(to) = __builtin_shufflevector(left, right, LOW);
      TO(to + LANES) = __builtin_shufflevector(left, right, HIGH);
    }
  }
}
#undef VECTOR
#undef LOOSE
#undef AT
#undef TO
#undef EVEN_OF
#undef ODD_OF
