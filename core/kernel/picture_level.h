/* picture_level.h -- the loops of picture.c for one level. TARGET chooses the instructions, NAME
** makes the function names.
*/

/* to[i] := the weighted sum of the N bytes at x[k * step + i], for i < RUN. */
TARGET INLINED void NAME(weigh_few)(const int N, const uint8_t *x, int64_t step,
                                    const int32_t *weight, int shift, uint8_t *restrict to) {
  int32_t w[FEW];
  for (int k = 0; k < N; k++) w[k] = weight[k];
  for (int i = 0; i < RUN; i++) {
    int32_t sum = 1 << (shift - 1);
    UNROLL for (int k = 0; k < N; k++) sum += w[k] * x[k * step + i];
    sum >>= shift;
    sum = sum < 0 ? 0 : sum;
    to[i] = (uint8_t)(sum > 255 ? 255 : sum);
  }
}

/* The same for any number of bytes. */
TARGET static void NAME(weigh_many)(const uint8_t *x, int64_t step, const int32_t *weight,
                                    int count, int shift, uint8_t *restrict to) {
  int32_t sum[RUN];
  for (int i = 0; i < RUN; i++) sum[i] = 1 << (shift - 1);
  for (; count >= 4; count -= 4, x += 4 * step, weight += 4)
    for (int i = 0; i < RUN; i++)
      sum[i] += weight[0] * x[i] + weight[1] * x[step + i] + weight[2] * x[2 * step + i]
                + weight[3] * x[3 * step + i];
  for (; count > 0; count--, x += step, weight++)
    for (int i = 0; i < RUN; i++) sum[i] += weight[0] * x[i];
  for (int i = 0; i < RUN; i++) {
    int32_t y = sum[i] >> shift;
    y = y < 0 ? 0 : y;
    to[i] = (uint8_t)(y > 255 ? 255 : y);
  }
}

TARGET INLINED void NAME(weigh)(const uint8_t *x, int64_t step, const int32_t *weight, int count,
                                int shift, uint8_t *to) {
#define TERMS(n) case n: NAME(weigh_few)(n, x, step, weight, shift, to); break;
  switch (count) {
    TERMS(1) TERMS(2) TERMS(3) TERMS(4) TERMS(5) TERMS(6)
    default: NAME(weigh_many)(x, step, weight, count, shift, to);
  }
#undef TERMS
}

/* Columns x of RUN rows, transposed in t, to rows of the middle picture. */
TARGET static void NAME(rows_of)(const job *j, const uint8_t *t, int64_t rows, uint8_t *middle) {
  const taps *right = &j->right;
  uint8_t columns[16 * RUN], square[16 * 16];
  const int64_t pixel = j->pixel * RUN, low = j->low * pixel;
  for (int64_t x = 0; x < right->n; x += 16) {
    const int64_t n = right->n - x < 16 ? right->n - x : 16;
    for (int64_t i = 0; i < n; i++)
      NAME(weigh)(t + right->first[x + i] * pixel - low, pixel,
                  right->fixed + (x + i) * right->most, right->count[x + i], right->shift,
                  columns + i * RUN);
    for (int64_t r = 0; r < rows; r += 16) {
      const int64_t m = rows - r < 16 ? rows - r : 16;
      transpose16(columns + r, RUN, square, 16);
      for (int64_t i = 0; i < m; i++) {
        uint8_t *to = middle + (r + i) * right->n + x;
        if (n == 16) memcpy(to, square + i * 16, 16);
        else memcpy(to, square + i * 16, (size_t)n);
      }
    }
  }
}

TARGET static void NAME(row_blocks)(int64_t first, int64_t last, int thread, const void *arg) {
  const job *j = arg;
  const moth_picture *p = j->p;
  const int64_t blocks = (p->in[0] + RUN - 1) / RUN, wide = j->right.n;
  uint8_t *t = j->scratch + thread * j->each;
  for (int64_t at = first; at < last; at++) {
    const int64_t group = at / blocks, top = at % blocks * RUN;
    const int64_t rows = p->in[0] - top < RUN ? p->in[0] - top : RUN;
    const int64_t image = group / j->groups, channel = group % j->groups;
    const uint8_t *x = j->x + image * p->step[0] + channel * p->step[1] + top * p->step[2]
                       + j->low * j->pixel;
    columns_of(x, p->step[2], rows, j->bytes, t);
    for (int64_t c = 0; c < p->channels / j->groups; c++)
      NAME(rows_of)(j, t + c * RUN, rows,
                    j->middle + ((image * p->channels + channel + c) * p->in[0] + top) * wide);
  }
}

TARGET static void NAME(column_rows)(int64_t first, int64_t last, int thread, const void *arg) {
  const job *j = arg;
  const taps *down = &j->down;
  const int64_t wide = j->right.n;
  (void)thread;
  for (int64_t at = first; at < last; at++) {
    const int64_t plane = at / down->n, y = at % down->n;
    const uint8_t *x = j->middle + (plane * j->p->in[0] + down->first[y]) * wide;
    const int32_t *weight = down->fixed + y * down->most;
    uint8_t *to = j->y + at * wide;
    for (int64_t i = 0; wide >= RUN && i < wide; i += RUN) {
      if (i > wide - RUN) i = wide - RUN;
      NAME(weigh)(x + i, wide, weight, down->count[y], down->shift, to + i);
    }
    if (wide >= RUN) continue;
    int32_t sum[RUN];
    for (int64_t i = 0; i < wide; i++) sum[i] = 1 << (down->shift - 1);
    for (int k = 0; k < down->count[y]; k++)
      for (int64_t i = 0; i < wide; i++) sum[i] += weight[k] * x[k * wide + i];
    for (int64_t i = 0; i < wide; i++) {
      const int32_t v = sum[i] >> down->shift;
      to[i] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
    }
  }
}

TARGET static void NAME(normalize)(int64_t n, int64_t step, const uint8_t *x, float scale,
                                   float mean, float deviation, float *restrict y) {
  if (step == 1)
    for (int64_t i = 0; i < n; i++) y[i] = ((float)x[i] * scale - mean) / deviation;
  else
    for (int64_t i = 0; i < n; i++) y[i] = ((float)x[i * step] * scale - mean) / deviation;
}
