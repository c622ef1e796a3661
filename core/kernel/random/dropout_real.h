/* dropout_real.h -- the loops of dropout.c for one type and level (each_level.h). */

TARGET static void NAME(drop)(int64_t n, const uint32_t *restrict word, uint32_t least,
                              uint8_t *restrict mask, const REAL *restrict x, REAL by,
                              REAL *restrict y) {
  for (int64_t i = 0; i < n; i++) {
    const REAL v = x[i] * by;
    mask[i] = word[i] >= least;
    y[i] = word[i] >= least ? v : 0;
  }
}

TARGET static void NAME(apply)(int64_t n, const uint8_t *restrict mask, const REAL *restrict x,
                               REAL by, REAL *restrict y) {
  for (int64_t i = 0; i < n; i++) {
    const REAL v = x[i] * by;
    y[i] = mask[i] ? v : 0;
  }
}

TARGET static void NAME(apply_runs)(int64_t n, int64_t run, const uint8_t *restrict mask,
                                    const REAL *restrict x, REAL by, REAL *restrict y) {
  for (int64_t i = 0; i < n; i++, x += run, y += run)
    if (mask[i])
      for (int64_t k = 0; k < run; k++) y[k] = x[k] * by;
    else
      for (int64_t k = 0; k < run; k++) y[k] = 0;
}
