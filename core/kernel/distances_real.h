/* distances_real.h -- the loops of distances.c, for one REAL and one TARGET. A tile has TILE_ROWS
** rows of x1 and two vectors of rows of x2, which is transposed. Up to REAL_TERMS terms are summed
** in REAL; longer sums add these partial sums in double.
*/
typedef REAL NAME(part_vec) __attribute__((vector_size(VECTOR_BYTES)));
typedef REAL NAME(part_loose)
  __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
typedef __typeof__((NAME(part_vec)){0} < (NAME(part_vec)){0}) NAME(part_mask);
#define VEC NAME(part_vec)
#define MASK NAME(part_mask)
#define PER ((int64_t)(VECTOR_BYTES / sizeof(REAL)))
#define SUMS (int)(TILE_ROWS * 2 * VECTOR_BYTES / sizeof(REAL))

/* sum := the partial sums of terms from .. end - 1 of a tile. */
TARGET INLINED void NAME(add_parts)(const moth_distances *o, const bool squares,
                                    const REAL *const *row, const REAL *transposed, int64_t from,
                                    int64_t end, REAL *sum) {
  VEC part[TILE_ROWS][2];
  UNROLL for (int i = 0; i < TILE_ROWS; i++) part[i][0] = part[i][1] = (VEC){0};
  for (int64_t k = from; k < end; k++) {
    const REAL *at = transposed + k * o->padded;
    const VEC p = *(const NAME(part_loose) *)(const void *)at;
    const VEC q = *(const NAME(part_loose) *)(const void *)(at + PER);
    UNROLL for (int i = 0; i < TILE_ROWS; i++) {
      const VEC d = row[i][k] - p, e = row[i][k] - q;
      if (squares) {
        part[i][0] += d * d;
        part[i][1] += e * e;
      } else {
        const MASK size = ~((MASK)(-(VEC){0}));
        part[i][0] += (VEC)((MASK)d & size);
        part[i][1] += (VEC)((MASK)e & size);
      }
    }
  }
  memcpy(sum, part, sizeof part);
}

/* The distance of one pair whose squares overflow, with scaled differences. */
TARGET static double NAME(length_of)(int64_t m, const REAL *a, const REAL *b) {
  double most = 0, sum = 0;
  for (int64_t k = 0; k < m; k++) {
    const double d = fabs((double)(REAL)(a[k] - b[k]));
    most = d > most || d != d ? d : most;
  }
  if (most == 0 || most - most != 0) return most;
  for (int64_t k = 0; k < m; k++) {
    const double d = (double)(REAL)(a[k] - b[k]) / most;
    sum += d * d;
  }
  return most * sqrt(sum);
}

/* Writes n results of a row of a tile. Checks their range first, so that the loop vectorizes. */
#define WRITE_ROW(name, real)                                                                  \
  TARGET static void NAME(name)(const moth_distances *o, const REAL *row, const REAL *other,   \
                                int64_t n, const real *restrict sum, REAL *restrict y) {       \
    const real least = sizeof(REAL) == 4 ? (real)1e-25 : (real)1e-280;                         \
    const real far = sizeof(REAL) == 4 ? (real)1e35 : (real)1e290;                             \
    int wrong = 0;                                                                             \
    if (o->p != 2) {                                                                           \
      for (int64_t j = 0; j < n; j++) y[j] = (REAL)sum[j];                                     \
      return;                                                                                  \
    }                                                                                          \
    for (int64_t j = 0; j < n; j++) {                                                          \
      wrong |= !((sum[j] > least) & (sum[j] < far));                                           \
      y[j] = sizeof(REAL) == 4 ? (REAL)sqrtf((float)sum[j]) : (REAL)sqrt((double)sum[j]);      \
    }                                                                                          \
    for (int64_t j = 0; wrong && j < n; j++)                                                   \
      if (!(sum[j] > least && sum[j] < far))                                                   \
        y[j] = (REAL)NAME(length_of)(o->m, row, other + j * o->m);                             \
  }
WRITE_ROW(write_row, double)
WRITE_ROW(write_part, REAL)
#undef WRITE_ROW

/* Items are groups of TILE_ROWS rows of x1, counted over all matrices. */
TARGET static void NAME(distances)(int64_t group, int64_t end, int thread, const void *arg) {
  const moth_distances *o = arg;
  const int64_t groups = (o->rows + TILE_ROWS - 1) / TILE_ROWS, m = o->m;
  (void)thread;
  for (; group < end; group++) {
    const int64_t matrix = group / groups, first = group % groups * TILE_ROWS;
    const REAL *x = (const REAL *)o->x1 + (matrix * o->rows + first) * m;
    const REAL *other = (const REAL *)o->x2 + matrix * o->columns * m;
    const REAL *transposed = (const REAL *)o->transposed + matrix * o->padded * m;
    const REAL *row[TILE_ROWS];
    const int64_t rows = o->rows - first < TILE_ROWS ? o->rows - first : TILE_ROWS;
    for (int i = 0; i < TILE_ROWS; i++) row[i] = x + (i < rows ? i : 0) * m;
    for (int64_t j = o->pairs ? first + 1 : 0; j < o->columns; j += 2 * PER) {
      REAL part[SUMS];
      double sum[SUMS];
      for (int64_t k = 0; k < m; k += REAL_TERMS) {
        const int64_t stop = m - k < REAL_TERMS ? m : k + REAL_TERMS;
        if (o->p == 2) NAME(add_parts)(o, true, row, transposed + j, k, stop, part);
        else NAME(add_parts)(o, false, row, transposed + j, k, stop, part);
        for (int i = 0; i < SUMS && m > REAL_TERMS; i++)
          sum[i] = (k ? sum[i] : 0) + (double)part[i];
      }
      const int64_t n = o->columns - j < 2 * PER ? o->columns - j : 2 * PER;
      for (int64_t i = 0; i < rows; i++) {
        const int64_t at = first + i, skip = o->pairs && at + 1 > j ? at + 1 - j : 0;
        REAL *y = (REAL *)o->y + (o->pairs ? PAIR(o->rows, at, j + skip)
                                           : (matrix * o->rows + at) * o->columns + j);
        const REAL *to = other + (j + skip) * m;
        const int64_t from = i * 2 * PER + skip;
        if (skip < n && m > REAL_TERMS) NAME(write_row)(o, row[i], to, n - skip, sum + from, y);
        else if (skip < n) NAME(write_part)(o, row[i], to, n - skip, part + from, y);
      }
    }
  }
}

/* -- the gradient: for row i, the sum over j of s[j] (x1[i] - x2[j]), or of s[j] sign(x1[i] -
** x2[j]) -- */

/* The factor of each distance of row i: dy / y for p = 2, dy for p = 1; 0 if the distance is 0. */
TARGET INLINED REAL NAME(share_of)(const moth_distances *o, int64_t matrix, int64_t i, int64_t j) {
  int64_t at = (matrix * o->rows + i) * o->columns + j;
  if (o->pairs && i == j) return 0;
  if (o->pairs) at = i < j ? PAIR(o->rows, i, j) : PAIR(o->rows, j, i);
  const REAL dy = ((const REAL *)o->dy)[at], y = ((const REAL *)o->y)[at];
  return o->p != 2 ? dy : y == 0 ? 0 : dy / y;
}

TARGET static void NAME(distances_back)(int64_t item, int64_t end, int thread, const void *arg) {
  const moth_distances *o = arg;
  const int64_t m = o->m;
  (void)thread;
  for (; item < end; item++) {
    const int64_t matrix = item / o->rows, i = item % o->rows;
    const REAL *x = (const REAL *)o->x1 + item * m;
    const REAL *other = (const REAL *)o->x2 + matrix * o->columns * m;
    for (int64_t from = 0; from < m; from += GRAD_COLUMNS) { /* a block of columns */
      const int64_t n = m - from < GRAD_COLUMNS ? m - from : GRAD_COLUMNS;
      REAL part[GRAD_COLUMNS];
      double sum[GRAD_COLUMNS] = {0};
      for (int64_t j = 0; j < o->columns;) {
        const int64_t stop = o->columns - j < REAL_TERMS ? o->columns : j + REAL_TERMS;
        for (int64_t k = 0; k < n; k++) part[k] = 0;
        for (; j < stop; j++) {
          const REAL s = NAME(share_of)(o, matrix, i, j), *at = other + j * m + from;
          if (o->p == 2)
            for (int64_t k = 0; k < n; k++) part[k] += s * (x[from + k] - at[k]);
          else
            for (int64_t k = 0; k < n; k++) part[k] += SIGNED(s, x[from + k] - at[k]);
        }
        for (int64_t k = 0; k < n; k++) sum[k] += (double)part[k];
      }
      for (int64_t k = 0; k < n; k++) ((REAL *)o->dx)[item * m + from + k] = (REAL)sum[k];
    }
  }
}
#undef VEC
#undef MASK
#undef PER
#undef SUMS
