/* picture_warp_level.h -- the loops of picture_warp.c for one level. TARGET chooses the
** instructions, NAME makes the function names.
*/

/* The sources of n pixels from (first, row) on. Positions far outside are moved to the nearest
** position without any pixel, also NaN, which division by 0 makes. */
TARGET static void NAME(places)(const moth_warp *w, int64_t first, int64_t row, int64_t n,
                                float *restrict xs, float *restrict ys) {
  const double *c = w->at, y = (double)row, right = (double)w->in[1] + 1,
               bottom = (double)w->in[0] + 1;
  const double x0 = c[1] * y + c[2], y0 = c[4] * y + c[5], z0 = c[7] * y + c[8];
  for (int64_t i = 0; i < n; i++) {
    const double x = (double)(first + i), by = c[6] * x + z0;
    double px = (c[0] * x + x0) / by, py = (c[3] * x + y0) / by;
    px = px > -2 ? px : -2;
    py = py > -2 ? py : -2;
    xs[i] = (float)(px < right ? px : right);
    ys[i] = (float)(py < bottom ? py : bottom);
  }
}

/* The offset and the weight of each of the four pixels around each position; the weight of a pixel
** outside is 0. */
TARGET static void NAME(corners)(const moth_warp *w, int64_t n, const float *xs, const float *ys,
                                 around *restrict a) {
  const int32_t wide = (int32_t)w->in[1], high = (int32_t)w->in[0];
  const int32_t pixel = (int32_t)w->step[3], line = (int32_t)w->step[2];
  for (int64_t i = 0; i < n; i++) {
    const float fx = floorf(xs[i]), fy = floorf(ys[i]), right = xs[i] - fx, down = ys[i] - fy;
    const int32_t x = (int32_t)fx, y = (int32_t)fy;
    const int32_t l = x < 0 ? 0 : x < wide ? x : wide - 1, t = y < 0 ? 0 : y < high ? y : high - 1;
    const int32_t r = x + 1 < 0 ? 0 : x + 1 < wide ? x + 1 : wide - 1;
    const int32_t b = y + 1 < 0 ? 0 : y + 1 < high ? y + 1 : high - 1;
    const float wl = l == x ? 1 - right : 0, wr = r == x + 1 ? right : 0;
    const float wt = t == y ? 1 - down : 0, wb = b == y + 1 ? down : 0;
    a->at[0][i] = t * line + l * pixel;
    a->at[1][i] = t * line + r * pixel;
    a->at[2][i] = b * line + l * pixel;
    a->at[3][i] = b * line + r * pixel;
    a->weight[0][i] = wt * wl;
    a->weight[1][i] = wt * wr;
    a->weight[2][i] = wb * wl;
    a->weight[3][i] = wb * wr;
  }
}

/* The offset of the nearest pixel; the weight is 0 outside. */
TARGET static void NAME(closest)(const moth_warp *w, int64_t n, const float *xs, const float *ys,
                                 around *restrict a) {
  const int32_t wide = (int32_t)w->in[1], high = (int32_t)w->in[0];
  const int32_t pixel = (int32_t)w->step[3], line = (int32_t)w->step[2];
  for (int64_t i = 0; i < n; i++) {
    const int32_t x = (int32_t)rintf(xs[i]), y = (int32_t)rintf(ys[i]);
    const int32_t l = x < 0 ? 0 : x < wide ? x : wide - 1, t = y < 0 ? 0 : y < high ? y : high - 1;
    a->at[0][i] = t * line + l * pixel;
    a->weight[0][i] = l == x && t == y ? 1 : 0;
  }
}

#define MIX(real)                                                                               \
  TARGET static void NAME(mix_##real)(int64_t n, const around *a, const real *x, bool filled,   \
                                      float fill, float *restrict y) {                          \
    for (int64_t i = 0; i < n; i++) {                                                           \
      float sum = 0, all = 0;                                                                   \
      UNROLL for (int k = 0; k < 4; k++) {                                                      \
        sum += a->weight[k][i] * (float)x[a->at[k][i]];                                         \
        all += a->weight[k][i];                                                                 \
      }                                                                                         \
      y[i] = filled ? (sum - fill) * all + fill : sum;                                          \
    }                                                                                           \
  }
MIX(uint8_t)
MIX(float)
#undef MIX

TARGET static void NAME(round_bytes)(int64_t n, const float *from, uint8_t *restrict y) {
  for (int64_t i = 0; i < n; i++) {
    const float v = rintf(from[i]);
    y[i] = (uint8_t)(int32_t)(v > 0 ? v < 255 ? v : 255 : 0);
  }
}

TARGET static void NAME(rows)(int64_t first, int64_t last, int thread, const void *arg) {
  const job *j = arg;
  const moth_warp *w = j->w;
  around a;
  float xs[RUN], ys[RUN], mixed[RUN];
  (void)thread;
  for (int64_t at = first; at < last; at++) {
    const int64_t image = at / w->out[0], row = at % w->out[0];
    for (int64_t i = 0; i < w->out[1]; i += RUN) {
      const int64_t n = w->out[1] - i < RUN ? w->out[1] - i : RUN;
      NAME(places)(w, i, row, n, xs, ys);
      if (w->nearest) NAME(closest)(w, n, xs, ys, &a);
      else NAME(corners)(w, n, xs, ys, &a);
      for (int64_t c = 0; c < w->channels; c++) {
        const int64_t from = image * w->step[0] + c * w->step[1];
        const int64_t to = ((image * w->channels + c) * w->out[0] + row) * w->out[1] + i;
        const float fill = w->nfill ? (float)w->fill[w->nfill == 1 ? 0 : c] : 0;
        if (w->nearest && j->dtype == MOTH_U8) {
          const uint8_t *x = (const uint8_t *)j->x + from;
          const float value = fill > 0 ? fill < 255 ? fill : 255 : 0;
          uint8_t *y = (uint8_t *)j->y + to;
          for (int64_t k = 0; k < n; k++)
            y[k] = a.weight[0][k] > 0 ? x[a.at[0][k]] : (uint8_t)value;
        } else if (w->nearest) {
          const float *x = (const float *)j->x + from;
          float *y = (float *)j->y + to;
          for (int64_t k = 0; k < n; k++) y[k] = a.weight[0][k] > 0 ? x[a.at[0][k]] : fill;
        } else if (j->dtype == MOTH_U8) {
          NAME(mix_uint8_t)(n, &a, (const uint8_t *)j->x + from, w->nfill > 0, fill, mixed);
          NAME(round_bytes)(n, mixed, (uint8_t *)j->y + to);
        } else {
          NAME(mix_float)(n, &a, (const float *)j->x + from, w->nfill > 0, fill,
                          (float *)j->y + to);
        }
      }
    }
  }
}
