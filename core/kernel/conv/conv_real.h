/* conv_real.h -- im2col and col2im for one REAL; included by conv.c.
**
** A column matrix has a row for each tap (channel, r, s) of the kernel and a column for each
** window. Its elements are those that the tap multiplies in the window, or 0 outside the image.
*/

static void NAME(image_to_columns)(const moth_window *w, int64_t channels, const REAL *x,
                                   REAL *col) {
  const int64_t width = w->out[1], step = w->stride[1];
  for (int64_t tap = 0; tap < channels * w->kernel[0] * w->kernel[1]; tap++) {
    int64_t s = tap % w->kernel[1], r = tap / w->kernel[1] % w->kernel[0];
    const REAL *plane = x + tap / (w->kernel[0] * w->kernel[1]) * w->in[0] * w->in[1];
    int64_t left = s * w->dilation[1] - w->padding[1], first, last;
    moth_window_seen(w, left, &first, &last);
    for (int64_t oy = 0; oy < w->out[0]; oy++, col += width) {
      int64_t iy = oy * w->stride[0] - w->padding[0] + r * w->dilation[0];
      if (iy < 0 || iy >= w->in[0]) {
        for (int64_t ox = 0; ox < width; ox++) col[ox] = 0;
        continue;
      }
      const REAL *row = plane + iy * w->in[1] + left;
      for (int64_t ox = 0; ox < first; ox++) col[ox] = 0;
      if (step == 1)
        for (int64_t ox = first; ox < last; ox++) col[ox] = row[ox];
      else
        for (int64_t ox = first; ox < last; ox++) col[ox] = row[ox * step];
      for (int64_t ox = last; ox < width; ox++) col[ox] = 0;
    }
    moth_pause();
  }
}

/* Adds each element of the columns to its element of the image. */
static void NAME(columns_to_image)(const moth_window *w, int64_t channels, const REAL *col,
                                   REAL *x) {
  const int64_t width = w->out[1], step = w->stride[1];
  for (int64_t tap = 0; tap < channels * w->kernel[0] * w->kernel[1]; tap++) {
    int64_t s = tap % w->kernel[1], r = tap / w->kernel[1] % w->kernel[0];
    REAL *plane = x + tap / (w->kernel[0] * w->kernel[1]) * w->in[0] * w->in[1];
    int64_t left = s * w->dilation[1] - w->padding[1], first, last;
    moth_window_seen(w, left, &first, &last);
    for (int64_t oy = 0; oy < w->out[0]; oy++, col += width) {
      int64_t iy = oy * w->stride[0] - w->padding[0] + r * w->dilation[0];
      if (iy < 0 || iy >= w->in[0]) continue;
      REAL *row = plane + iy * w->in[1] + left;
      if (step == 1)
        for (int64_t ox = first; ox < last; ox++) row[ox] += col[ox];
      else
        for (int64_t ox = first; ox < last; ox++) row[ox * step] += col[ox];
    }
    moth_pause();
  }
}
