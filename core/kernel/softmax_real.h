/* softmax_real.h -- the loops of softmax.c for one REAL and one TARGET, the attribute that chooses
** instructions. A block is up to WIDE lanes side by side: `step` elements lie between the positions
** of a lane. A lane of its own (inner == 1) goes through the row functions, which read along it.
*/

/* Largest of n, -inf when n is 0. A NaN is passed over here and gets into the sum. */
TARGET static REAL NAME(row_max)(int64_t n, const REAL *x) {
  REAL m[16];
  int64_t i = 0;
  for (int k = 0; k < 16; k++) m[k] = (REAL)-INFINITY;
  for (; i + 16 <= n; i += 16)
    for (int k = 0; k < 16; k++) m[k] = x[i + k] > m[k] ? x[i + k] : m[k];
  for (; i < n; i++) m[0] = x[i] > m[0] ? x[i] : m[0];
  for (int k = 1; k < 16; k++) m[0] = m[k] > m[0] ? m[k] : m[0];
  return m[0];
}

/* Writes exp(x - m) for up to WIDE elements and returns the sum. */
TARGET static inline REAL NAME(exp_block)(int64_t n, const REAL *x, REAL m, REAL *restrict y) {
  REAL s[8] = {0};
  int64_t i = 0;
  for (; i < n; i++) y[i] = MATH(exp)(x[i] - m);
  for (i = 0; i + 8 <= n; i += 8)
    for (int k = 0; k < 8; k++) s[k] += y[i + k];
  for (; i < n; i++) s[0] += y[i];
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

TARGET static void NAME(row)(int64_t n, bool logarithm, const REAL *x, REAL *y) {
  REAL m = NAME(row_max)(n, x), sum = 0, block[WIDE];
  for (int64_t i = 0; i < n; i += WIDE) {
    int64_t k = n - i < WIDE ? n - i : WIDE;
    sum += NAME(exp_block)(k, x + i, m, logarithm ? block : y + i);
  }
  if (logarithm) {
    REAL by = MATH(log)(sum);
    for (int64_t i = 0; i < n; i++) y[i] = x[i] - m - by;
  } else {
    REAL by = 1 / sum;
    for (int64_t i = 0; i < n; i++) y[i] *= by;
  }
}

TARGET static void NAME(block)(int64_t n, int64_t wide, int64_t step, bool logarithm,
                               const REAL *x, REAL *y) {
  REAL m[WIDE], sum[WIDE];
  for (int64_t k = 0; k < wide; k++) m[k] = (REAL)-INFINITY, sum[k] = 0;
  for (int64_t i = 0; i < n; i++) {
    const REAL *xi = x + i * step;
    for (int64_t k = 0; k < wide; k++) m[k] = xi[k] > m[k] ? xi[k] : m[k];
  }
  for (int64_t i = 0; i < n; i++) {
    const REAL *xi = x + i * step;
    REAL *yi = y + i * step;
    for (int64_t k = 0; k < wide; k++) {
      yi[k] = MATH(exp)(xi[k] - m[k]);
      sum[k] += yi[k];
    }
  }
  for (int64_t k = 0; k < wide; k++) sum[k] = logarithm ? MATH(log)(sum[k]) : 1 / sum[k];
  for (int64_t i = 0; i < n; i++) {
    const REAL *xi = x + i * step;
    REAL *yi = y + i * step;
    if (logarithm)
      for (int64_t k = 0; k < wide; k++) yi[k] = xi[k] - m[k] - sum[k];
    else
      for (int64_t k = 0; k < wide; k++) yi[k] *= sum[k];
  }
}

TARGET static void NAME(row_back)(int64_t n, bool logarithm, const REAL *dy, const REAL *y,
                                  REAL *dx) {
  REAL s[4] = {0};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int k = 0; k < 4; k++) s[k] += logarithm ? dy[i + k] : dy[i + k] * y[i + k];
  for (; i < n; i++) s[0] += logarithm ? dy[i] : dy[i] * y[i];
  REAL sum = (s[0] + s[2]) + (s[1] + s[3]);
  if (logarithm)
    for (i = 0; i < n; i++) dx[i] = dy[i] - MATH(exp)(y[i]) * sum;
  else
    for (i = 0; i < n; i++) dx[i] = y[i] * (dy[i] - sum);
}

TARGET static void NAME(block_back)(int64_t n, int64_t wide, int64_t step, bool logarithm,
                                    const REAL *dy, const REAL *y, REAL *dx) {
  REAL sum[WIDE];
  for (int64_t k = 0; k < wide; k++) sum[k] = 0;
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = 0; k < wide; k++) {
      int64_t at = i * step + k;
      sum[k] += logarithm ? dy[at] : dy[at] * y[at];
    }
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = 0; k < wide; k++) {
      int64_t at = i * step + k;
      dx[at] = logarithm ? dy[at] - MATH(exp)(y[at]) * sum[k] : y[at] * (dy[at] - sum[k]);
    }
}

TARGET static int NAME(lanes)(moth_ctx *ctx, const moth_lanes *l, bool logarithm, const REAL *x,
                              REAL *y) {
  int64_t plane = l->n * l->inner;
  for (int64_t o = 0; o < l->outer; o++, x += plane, y += plane) {
    if ((o & 255) == 0 && moth_cancelled(ctx)) return moth_poll(ctx);
    if (l->inner == 1) NAME(row)(l->n, logarithm, x, y);
    else
      for (int64_t k = 0; k < l->inner; k += WIDE) {
        int64_t wide = l->inner - k < WIDE ? l->inner - k : WIDE;
        NAME(block)(l->n, wide, l->inner, logarithm, x + k, y + k);
      }
  }
  return MOTH_OK;
}

TARGET static int NAME(lanes_back)(moth_ctx *ctx, const moth_lanes *l, bool logarithm,
                                   const REAL *dy, const REAL *y, REAL *dx) {
  int64_t plane = l->n * l->inner;
  for (int64_t o = 0; o < l->outer; o++, dy += plane, y += plane, dx += plane) {
    if ((o & 255) == 0 && moth_cancelled(ctx)) return moth_poll(ctx);
    if (l->inner == 1) NAME(row_back)(l->n, logarithm, dy, y, dx);
    else
      for (int64_t k = 0; k < l->inner; k += WIDE) {
        int64_t wide = l->inner - k < WIDE ? l->inner - k : WIDE;
        NAME(block_back)(l->n, wide, l->inner, logarithm, dy + k, y + k, dx + k);
      }
  }
  return MOTH_OK;
}
