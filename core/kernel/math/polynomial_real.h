/* polynomial_real.h -- the loops of polynomial.c, for one REAL and one TARGET: blocks of elements,
** computed in double.
*/
TARGET static void NAME(polynomial)(int64_t n, char *const *at, const int64_t *step,
                                    const void *arg) {
  enum { TERM_BLOCK = 16 * MOTH_VECTOR };
  if (moth_needs_blocks(n, step, 2, sizeof(REAL))) {
    moth_run_blocks(n, at, step, arg, 2, sizeof(REAL), 0, NAME(polynomial));
    return;
  }
  const REAL *number = arg;
  const int kind = (int)number[0];
  const int64_t degree = (int64_t)number[1];
  const double scale = number[2] != 0 ? 2 : 1, shift = number[2] != 0 ? -1 : 0;
  for (int64_t i = 0; i < n; i += TERM_BLOCK) {
    const int64_t m = MOTH_WHOLE(n - i < TERM_BLOCK ? n - i : TERM_BLOCK);
    const REAL *from = (const REAL *)(const void *)at[1] + i;
    REAL *to = (REAL *)(void *)at[0] + i;
    double x[TERM_BLOCK], first[TERM_BLOCK], second[TERM_BLOCK], *before = first, *now = second;
    moth_recurrence r = moth_polynomial_step(kind, 0);
    MOTH_IVDEP for (int64_t j = 0; j < m; j++) {
      x[j] = (double)from[j] * scale + shift;
      first[j] = 1;
      second[j] = r.a * x[j] + r.b;
    }
    for (int64_t k = 1; k < degree; k++) {
      r = moth_polynomial_step(kind, k);
      double *restrict y = before;
      const double *restrict last = now;
      MOTH_IVDEP for (int64_t j = 0; j < m; j++) y[j] = (r.a * x[j] + r.b) * last[j] - r.c * y[j];
      before = now, now = y;
    }
    const double *result = degree > 0 ? now : first;
    MOTH_IVDEP for (int64_t j = 0; j < m; j++) to[j] = degree < 0 ? 0 : (REAL)result[j];
  }
}
