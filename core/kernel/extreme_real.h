/* extreme_real.h -- argmax and argmin of a row or of columns, for one REAL and one TARGET. The
** first of equal values wins, the first NaN wins over all. A row is read twice, once for the value
** and once for its position, both in vectors; columns keep value and position together.
*/
#include "sums_real.h"

#define EXTREME_LOOPS(name, BETTER, WORST)                                                      \
  VECTOR_EXTREME(name##_of, BETTER, WORST)                                                      \
  TARGET static int64_t NAME(name##_row)(int64_t n, const REAL *x) {                            \
    bool nan;                                                                                   \
    const REAL v = NAME(name##_of)(n, x, &nan);                                                 \
    int64_t i = 0;                                                                              \
    for (; i + 64 <= n; i += 64) {                                                              \
      NAME(word) here = 0;                                                                      \
      for (int k = 0; k < 64; k++) here |= nan ? x[i + k] != x[i + k] : x[i + k] == v;          \
      if (here) break;                                                                          \
    }                                                                                           \
    while (i < n - 1 && (nan ? x[i] == x[i] : x[i] != v)) i++;                                  \
    return i;                                                                                   \
  }                                                                                             \
  TARGET static void NAME(name##_columns)(int64_t n, int64_t wide, int64_t step, const REAL *x, \
                                          int64_t *y) {                                         \
    REAL best[ITEM_COLUMNS];                                                                    \
    NAME(word) at[ITEM_COLUMNS];                                                                \
    for (int64_t k = 0; k < wide; k++) best[k] = x[k], at[k] = 0;                               \
    for (int64_t i = 1; i < n; i++) {                                                           \
      const REAL *from = x + i * step;                                                          \
      const NAME(word) here = (NAME(word))i;                                                    \
      for (int64_t k = 0; k < wide; k++) {                                                      \
        const REAL v = from[k], b = best[k];                                                    \
        const bool wins = (v BETTER b) | ((v != v) & (b == b));                                 \
        best[k] = wins ? v : b;                                                                 \
        at[k] = wins ? here : at[k];                                                            \
      }                                                                                         \
    }                                                                                           \
    for (int64_t k = 0; k < wide; k++) y[k] = at[k];                                            \
  }
EXTREME_LOOPS(most, >, -INFINITY)
EXTREME_LOOPS(least, <, INFINITY)
#undef EXTREME_LOOPS

/* Items are rows if inner is 1, else blocks of ITEM_COLUMNS columns. */
TARGET static void NAME(extremes)(int64_t first, int64_t last, int thread, const void *arg) {
  const extreme_job *j = arg;
  const int64_t n = j->n, inner = j->inner, blocks = (inner + ITEM_COLUMNS - 1) / ITEM_COLUMNS;
  (void)thread;
  for (int64_t i = first; i < last; i++) {
    int64_t k = i % blocks * ITEM_COLUMNS, o = i / blocks, wide = inner - k;
    const REAL *x = (const REAL *)j->x + o * n * inner + k;
    int64_t *y = j->y + o * inner + k;
    if (wide > ITEM_COLUMNS) wide = ITEM_COLUMNS;
    if (inner == 1) *y = j->least ? NAME(least_row)(n, x) : NAME(most_row)(n, x);
    else if (j->least) NAME(least_columns)(n, wide, inner, x, y);
    else NAME(most_columns)(n, wide, inner, x, y);
  }
}
