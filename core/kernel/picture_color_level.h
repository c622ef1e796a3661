/* picture_color_level.h -- the loops of picture_color.c for one level. TARGET chooses the
** instructions, NAME makes the function names.
*/

/* The brightness of n pixels, rounded down; one channel is grey already. */
TARGET static void NAME(grey)(int64_t n, int64_t channels, int64_t plane, const uint8_t *x,
                              float *restrict y) {
  const uint8_t *g = x + plane, *b = g + plane;
  if (channels == 1)
    for (int64_t i = 0; i < n; i++) y[i] = x[i];
  else
    for (int64_t i = 0; i < n; i++)
      y[i] = (float)(int32_t)((float)x[i] * 0.2989f + (float)g[i] * 0.587f + (float)b[i] * 0.114f);
}

TARGET static int64_t NAME(sum)(int64_t n, const float *x) {
  int32_t sum = 0;
  for (int64_t i = 0; i < n; i++) sum += (int32_t)x[i];
  return sum;
}

/* y := x * factor + other, clipped and truncated. */
TARGET static void NAME(shift)(int64_t n, const uint8_t *x, float factor, float other,
                               uint8_t *restrict y) {
  for (int64_t i = 0; i < n; i++) {
    float v = (float)x[i] * factor + other;
    v = v > 0 ? v : 0;
    y[i] = (uint8_t)(int32_t)(v < 255 ? v : 255);
  }
}

/* y := x * factor + other * rest, clipped and truncated. */
TARGET static void NAME(blend)(int64_t n, const uint8_t *x, float factor, const float *other,
                               float rest, uint8_t *restrict y) {
  for (int64_t i = 0; i < n; i++) {
    float v = (float)x[i] * factor + other[i] * rest;
    v = v > 0 ? v : 0;
    y[i] = (uint8_t)(int32_t)(v < 255 ? v : 255);
  }
}

TARGET static float NAME(mean)(const job *j, const uint8_t *x) {
  float grey[RUN];
  int64_t sum = 0;
  for (int64_t i = 0; i < j->plane; i += RUN) {
    const int64_t n = j->plane - i < RUN ? j->plane - i : RUN;
    NAME(grey)(n, j->channels, j->plane, x + i, grey);
    sum += NAME(sum)(n, grey);
  }
  return (float)((double)sum / (double)j->plane);
}

TARGET static void NAME(images)(int64_t first, int64_t last, int thread, const void *arg) {
  const job *j = arg;
  const float factor = (float)j->factor, rest = (float)(1 - j->factor);
  float grey[RUN];
  (void)thread;
  for (int64_t at = first; at < last; at++) {
    const uint8_t *x = j->x + at * j->channels * j->plane;
    uint8_t *y = j->y + at * j->channels * j->plane;
    if (j->what != MOTH_PICTURE_SATURATION) {
      const float other = j->what == MOTH_PICTURE_CONTRAST ? NAME(mean)(j, x) * rest : 0;
      NAME(shift)(j->channels * j->plane, x, factor, other, y);
      continue;
    }
    for (int64_t i = 0; i < j->plane; i += RUN) {
      const int64_t n = j->plane - i < RUN ? j->plane - i : RUN;
      NAME(grey)(n, j->channels, j->plane, x + i, grey);
      for (int64_t c = 0; c < j->channels; c++)
        NAME(blend)(n, x + c * j->plane + i, factor, grey, rest, y + c * j->plane + i);
    }
  }
}
