/* bag_real.h -- the loop of bag.c, for one REAL and one TARGET. Up to REAL_ROWS rows of a bag are
** summed in REAL, in two alternating sums. These sums are added in double.
*/
typedef REAL NAME(row_part) __attribute__((vector_size(VECTOR_BYTES)));
typedef REAL NAME(row_loose)
  __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));

/* v vectors of columns, from the first columns of w and y on. */
TARGET INLINED void NAME(bag_vectors)(const moth_bags *o, const int v, const bool factors,
                                      int64_t t, int64_t stop, const REAL *w, REAL *y) {
  enum { PER = VECTOR_BYTES / sizeof(REAL) };
  const REAL *factor = o->factor;
  const int64_t padding = o->padding, features = o->features, *token = o->token;
  const int64_t base = o->base;
  double total[4 * PER];
  for (int k = 0; k < v * PER; k++) total[k] = 0;
  while (t < stop) {
    const int64_t end = stop - t < REAL_ROWS ? stop : t + REAL_ROWS;
    NAME(row_part) sum[4], odd[4];
    UNROLL for (int k = 0; k < v; k++) sum[k] = odd[k] = (NAME(row_part)){0};
    for (; t + 2 <= end; t += 2) {
      const REAL *a = w + (token[t] - base) * features, *b = w + (token[t + 1] - base) * features;
      const REAL f = factors ? factor[t] : 1, g = factors ? factor[t + 1] : 1;
      const bool p = token[t] != padding, q = token[t + 1] != padding;
      if (p)
        UNROLL for (int k = 0; k < v; k++) {
          const NAME(row_part) x = *(const NAME(row_loose) *)(const void *)(a + k * PER);
          sum[k] += factors ? f * x : x;
        }
      if (q)
        UNROLL for (int k = 0; k < v; k++) {
          const NAME(row_part) x = *(const NAME(row_loose) *)(const void *)(b + k * PER);
          odd[k] += factors ? g * x : x;
        }
    }
    for (; t < end; t++) {
      const REAL *a = w + (token[t] - base) * features, f = factors ? factor[t] : 1;
      if (token[t] == padding) continue;
      UNROLL for (int k = 0; k < v; k++) {
        const NAME(row_part) x = *(const NAME(row_loose) *)(const void *)(a + k * PER);
        sum[k] += factors ? f * x : x;
      }
    }
    UNROLL for (int k = 0; k < v; k++) {
      REAL part[PER];
      sum[k] += odd[k];
      memcpy(part, &sum[k], sizeof part);
      for (int i = 0; i < PER; i++) total[k * PER + i] += (double)part[i];
    }
  }
  for (int k = 0; k < v * PER; k++) y[k] = (REAL)total[k];
}

/* One column. The order of additions is that of bag_vectors. */
TARGET static REAL NAME(bag_column)(const moth_bags *o, int64_t t, int64_t stop, const REAL *w) {
  const REAL *factor = o->factor;
  double total = 0;
  while (t < stop) {
    const int64_t first = t, end = stop - t < REAL_ROWS ? stop : t + REAL_ROWS;
    REAL sum[2] = {0, 0};
    for (; t < end; t++) {
      const REAL x = w[(o->token[t] - o->base) * o->features];
      if (o->token[t] != o->padding) sum[(t - first) & 1] += factor ? factor[t] * x : x;
    }
    total += (double)(sum[0] + sum[1]);
  }
  return (REAL)total;
}

TARGET static void NAME(bag_sums)(int64_t bag, int64_t end, int thread, const void *arg) {
  enum { PER = VECTOR_BYTES / sizeof(REAL) };
  const moth_bags *o = arg;
  (void)thread;
  for (; bag < end; bag++) {
    const int64_t first = o->start ? o->start[bag] : bag * o->each, d = o->features;
    const int64_t stop = o->start ? o->start[bag + 1] : first + o->each;
    const REAL *w = o->weight;
    REAL *y = (REAL *)o->y + bag * d;
    int64_t k = 0;
    for (; k + 4 * PER <= d; k += 4 * PER)
      if (o->factor) NAME(bag_vectors)(o, 4, true, first, stop, w + k, y + k);
      else NAME(bag_vectors)(o, 4, false, first, stop, w + k, y + k);
    for (; k + PER <= d; k += PER)
      if (o->factor) NAME(bag_vectors)(o, 1, true, first, stop, w + k, y + k);
      else NAME(bag_vectors)(o, 1, false, first, stop, w + k, y + k);
    for (; k < d; k++) y[k] = NAME(bag_column)(o, first, stop, w + k);
  }
}
