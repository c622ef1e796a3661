/* attention_real.h -- the loops of attention.c over a block of scores, for one REAL and one TARGET,
** the attribute that chooses instructions.
*/

/* s := s scale + bias; -inf for keys after the query if causal. */
TARGET static void NAME(finish_row)(const block *b, int64_t r, REAL *s) {
  const moth_attention *p = b->p;
  REAL scale = (REAL)p->scale;
  int64_t n = b->cols;
  if (p->bias.data) {
    const REAL *bias = (const REAL *)(const void *)p->bias.data + p->bias.at[b->batch] +
                       (b->row + r) * p->bias.rs + b->col * p->bias.cs;
    if (p->bias.cs == 1)
      for (int64_t c = 0; c < n; c++) s[c] = s[c] * scale + bias[c];
    else
      for (int64_t c = 0; c < n; c++) s[c] = s[c] * scale + bias[c * p->bias.cs];
  } else {
    for (int64_t c = 0; c < n; c++) s[c] *= scale;
  }
  if (p->causal)
    for (int64_t c = b->row + r + 1 - b->col < 0 ? 0 : b->row + r + 1 - b->col; c < n; c++)
      s[c] = (REAL)-INFINITY;
}

/* A LANES value holds sixteen f32, or eight f64, in as many registers as needed. Longer vectors are
** too long for GCC, which would split them element by element in comparisons. */
typedef REAL NAME(lanes) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)),
                                        may_alias));
typedef __typeof__((NAME(lanes)){0} > (NAME(lanes)){0}) NAME(choice);
#define LANES NAME(lanes)
#define EACH ((int)(sizeof(LANES) / sizeof(REAL)))
#define VECTORS (64 / VECTOR_BYTES)
#define ELEMENTS (VECTORS * EACH)
#define LARGER(a, b) \
  ((LANES)((((a) > (b)) & (NAME(choice))(a)) | (~((a) > (b)) & (NAME(choice))(b))))

/* Vectors are explicit, because GCC does not reorder comparisons and additions of floats. */
TARGET static REAL NAME(largest)(int64_t n, const REAL *x, REAL least) {
  LANES m[VECTORS];
  int64_t i = 0;
  UNROLL for (int v = 0; v < VECTORS; v++) m[v] = least - (LANES){0};
  for (; i + ELEMENTS <= n; i += ELEMENTS)
    UNROLL for (int v = 0; v < VECTORS; v++) {
      const LANES a = *(const LANES *)(const void *)(x + i + v * EACH);
      m[v] = LARGER(a, m[v]);
    }
  for (; i < n; i++) least = x[i] > least ? x[i] : least;
  UNROLL for (int half = VECTORS / 2; half > 0; half /= 2)
    UNROLL for (int v = 0; v < half; v++) m[v] = LARGER(m[v + half], m[v]);
  REAL part[EACH];
  *(LANES *)(void *)part = m[0];
  UNROLL for (int half = EACH / 2; half > 0; half /= 2)
    UNROLL for (int k = 0; k < half; k++)
      part[k] = part[k + half] > part[k] ? part[k + half] : part[k];
  return part[0] > least ? part[0] : least;
}

/* x := exp(x - m). Returns the sum of the results. */
TARGET static REAL NAME(exp_sum)(int64_t n, REAL *x, REAL m) {
  LANES all[VECTORS] = {{0}};
  REAL sum = 0;
  int64_t i = 0;
  for (; i < n; i++) x[i] = MATH(exp)(x[i] - m);
  for (i = 0; i + ELEMENTS <= n; i += ELEMENTS)
    UNROLL for (int v = 0; v < VECTORS; v++)
      all[v] += *(const LANES *)(const void *)(x + i + v * EACH);
  for (; i < n; i++) sum += x[i];
  UNROLL for (int half = VECTORS / 2; half > 0; half /= 2)
    UNROLL for (int v = 0; v < half; v++) all[v] += all[v + half];
  REAL part[EACH];
  *(LANES *)(void *)part = all[0];
  UNROLL for (int half = EACH / 2; half > 0; half /= 2)
    UNROLL for (int k = 0; k < half; k++) part[k] += part[k + half];
  return sum + part[0];
}

/* Scores become weights relative to the largest score so far. The sums so far are rescaled to the
** new largest score. */
TARGET static void NAME(add_scores)(const block *b) {
  REAL *s = b->scores, *max = b->max, *sum = b->sum, *y = b->y;
  int64_t n = b->cols, v = b->p->v;
  for (int64_t r = 0; r < b->rows; r++, s += n, y += v) {
    NAME(finish_row)(b, r, s);
    REAL m = NAME(largest)(n, s, max[r]);
    if (m == (REAL)-INFINITY) { /* no key is visible yet; NaN still propagates */
      for (int64_t c = 0; c < n; c++) {
        s[c] = s[c] == s[c] ? 0 : s[c];
        sum[r] += s[c];
      }
      continue;
    }
    REAL shrink = max[r] == (REAL)-INFINITY ? 0 : MATH(exp)(max[r] - m);
    sum[r] = sum[r] * shrink + NAME(exp_sum)(n, s, m);
    if (max[r] != m)
      for (int64_t k = 0; k < v; k++) y[k] *= shrink;
    max[r] = m;
  }
}

/* Writes the sum of weighted values, divided by the sum of weights, and lse. */
TARGET static void NAME(divide)(const block *b, char *lse_at, char *to_at) {
  const REAL *y = b->y, *max = b->max, *sum = b->sum;
  REAL *lse = (REAL *)(void *)lse_at, *to = (REAL *)(void *)to_at;
  const int64_t v = b->p->v, rs = b->p->y_rs;
  for (int64_t r = 0; r < b->rows; r++, y += v, to += rs) {
    bool blind = sum[r] == 0;
    REAL by = blind ? 0 : 1 / sum[r];
    for (int64_t k = 0; k < v; k++) to[k] = y[k] * by;
    lse[r] = blind ? (REAL)INFINITY : max[r] + MATH(log)(sum[r]);
  }
}

/* Computes the weights again, from scores and lse. */
TARGET static void NAME(weigh)(const block *b, const char *lse_at) {
  REAL *s = b->scores;
  const REAL *lse = (const REAL *)(const void *)lse_at;
  const int64_t n = b->cols;
  for (int64_t r = 0; r < b->rows; r++, s += n) {
    NAME(finish_row)(b, r, s);
    const REAL l = lse[r];
    for (int64_t c = 0; c < n; c++) s[c] = MATH(exp)(s[c] - l);
  }
}

/* sum := sum(dy y) for each row. */
TARGET static void NAME(dots)(const block *b, const char *dy_at, const char *y_at) {
  const REAL *dy = (const REAL *)(const void *)dy_at, *y = (const REAL *)(const void *)y_at;
  const int64_t n = b->p->v, rs = b->p->y_rs;
  REAL *d = b->sum;
  for (int64_t r = 0; r < b->rows; r++, dy += rs, y += rs) {
    REAL s[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
      for (int k = 0; k < 8; k++) s[k] += dy[i + k] * y[i + k];
    for (; i < n; i++) s[0] += dy[i] * y[i];
    d[r] = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
  }
}

/* other := the gradient of the products of queries and keys: weights (dweights - sum(dy y))
** scale. */
TARGET static void NAME(score_grad)(const block *b) {
  const REAL *s = b->scores, *d = b->sum;
  REAL *ds = b->other, scale = (REAL)b->p->scale;
  const int64_t n = b->cols;
  for (int64_t r = 0; r < b->rows; r++, s += n, ds += n) {
    const REAL sum = d[r];
    for (int64_t c = 0; c < n; c++) ds[c] = s[c] == 0 ? 0 : s[c] * (ds[c] - sum) * scale;
  }
}

static const attention_level NAME(level) = {NAME(add_scores), NAME(divide), NAME(weigh), NAME(dots),
                                            NAME(score_grad)};
#undef LANES
#undef EACH
#undef VECTORS
#undef ELEMENTS
#undef LARGER
