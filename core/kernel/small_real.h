/* small_real.h -- the loops of small.c for one type and level: REAL, TARGET, NAME(f). Masks come
** from comparisons of floats, since comparing 64-bit integers needs AVX2.
*/
typedef REAL NAME(lanes) __attribute__((vector_size(MOTH_SIDE_BYTES)));
typedef __typeof__(__builtin_choose_expr(sizeof(REAL) == 4, (int32_t)0, (int64_t)0)) NAME(number);
typedef NAME(number) NAME(integers) __attribute__((vector_size(MOTH_SIDE_BYTES)));
#define LANES NAME(lanes)
#define INTEGERS NAME(integers)
#define COUNT ((int)(MOTH_SIDE_BYTES / sizeof(REAL)))
#define CHOSEN(mask, p, q) ((LANES)(((mask) & (INTEGERS)(p)) | (~(mask) & (INTEGERS)(q))))
#define ALL(number) ((LANES){0} + (REAL)(number))
#define SIZE(v) ((LANES)((INTEGERS)(v) & ~(INTEGERS)(-(LANES){0})))

/* Swaps p and q in the lanes whose mask is set. */
TARGET INLINED void NAME(exchange)(const INTEGERS *mask, LANES *p, LANES *q) {
  const INTEGERS d = *mask & ((INTEGERS)*p ^ (INTEGERS)*q);
  *p = (LANES)((INTEGERS)*p ^ d);
  *q = (LANES)((INTEGERS)*q ^ d);
}

/* *pivot := for each lane the row, from k on, with the largest element of column k; *most := the
** size of that element. */
TARGET INLINED void NAME(pivot)(int n, int k, const LANES *x, LANES *pivot, LANES *most) {
  LANES at = ALL(k);
  *most = SIZE(x[k * n + k]);
  for (int r = k + 1; r < n; r++) {
    const LANES v = SIZE(x[r * n + k]);
    const INTEGERS more = v > *most;
    *most = CHOSEN(more, v, *most);
    at = CHOSEN(more, ALL(r), at);
  }
  *pivot = at;
}

TARGET static void NAME(lu)(int n, void *matrices, void *pivots, void *sign, void *info) {
  LANES *x = matrices, *p = pivots, most, parity = ALL(1), broken = {0};
  for (int k = 0; k < n; k++) {
    NAME(pivot)(n, k, x, &p[k], &most);
    for (int r = k + 1; r < n; r++) {
      const INTEGERS here = p[k] == (REAL)r;
      for (int c = 0; c < n; c++) NAME(exchange)(&here, &x[k * n + c], &x[r * n + c]);
    }
    parity = CHOSEN(p[k] == (REAL)k, parity, -parity);
    const INTEGERS gone = most == (REAL)0;
    broken = CHOSEN(gone & (broken == (REAL)0), ALL(k + 1), broken);
    const LANES v = CHOSEN(gone, ALL(1), x[k * n + k]);
    for (int r = k + 1; r < n; r++) {
      const LANES by = x[r * n + k] /= v;
      for (int c = k + 1; c < n; c++) x[r * n + c] -= by * x[k * n + c];
    }
  }
  *(LANES *)sign = parity;
  *(LANES *)info = broken;
}

TARGET static void NAME(swap)(int n, int k, const void *pivots, void *sides) {
  const LANES *p = pivots;
  LANES *y = sides;
  for (int i = 0; i < n; i++)
    for (int r = i + 1; r < n; r++) {
      const INTEGERS here = p[i] == (REAL)r;
      for (int c = 0; c < k; c++) NAME(exchange)(&here, &y[i * k + c], &y[r * k + c]);
    }
}

TARGET static void NAME(substitute)(int n, int k, const void *matrices, bool upper,
                                    bool unit, void *sides) {
  const LANES *x = matrices;
  LANES *y = sides;
  for (int step = 0; step < n; step++) {
    const int j = upper ? n - 1 - step : step, end = upper ? j : n;
    for (int c = 0; c < k && !unit; c++) y[j * k + c] /= x[j * n + j];
    for (int i = upper ? 0 : j + 1; i < end; i++) {
      const LANES by = x[i * n + j];
      for (int c = 0; c < k; c++) y[i * k + c] -= by * y[j * k + c];
    }
  }
}

INLINED REAL NAME(root)(REAL v) {
  return sizeof v == sizeof(float) ? (REAL)sqrtf((float)v) : (REAL)sqrt((double)v);
}

TARGET static void NAME(cholesky)(int n, void *matrices, void *info) {
  LANES *x = matrices;
  LANES broken = {0};
  for (int j = 0; j < n; j++) {
    LANES d = x[j * n + j];
    for (int t = 0; t < j; t++) d -= x[j * n + t] * x[j * n + t];
    broken = CHOSEN(~(d > (REAL)0) & (broken == (REAL)0), ALL(j + 1), broken);
    REAL root[COUNT];
    memcpy(root, &d, sizeof root);
    for (int l = 0; l < COUNT; l++) root[l] = NAME(root)(root[l]);
    memcpy(&d, root, sizeof root);
    x[j * n + j] = d;
    for (int r = j + 1; r < n; r++) {
      LANES v = x[r * n + j];
      for (int t = 0; t < j; t++) v -= x[r * n + t] * x[j * n + t];
      x[r * n + j] = v / d;
    }
  }
  *(LANES *)info = broken;
}

static const moth_small NAME(small) = {NAME(lu), NAME(swap), NAME(substitute), NAME(cholesky)};

#undef LANES
#undef INTEGERS
#undef COUNT
#undef CHOSEN
#undef SIZE
#undef ALL
