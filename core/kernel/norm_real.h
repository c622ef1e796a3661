/* norm_real.h -- the loops of norm.c for one REAL and one TARGET, the attribute that chooses
** instructions. Sums run in LANES partial sums over at most BLOCK elements and go on in double.
*/

TARGET static inline double NAME(lanes_total)(const REAL *s) {
  double total = 0;
  for (int k = 0; k < LANES; k++) total += (double)s[k];
  return total;
}

TARGET static double NAME(sum)(int64_t n, const REAL *x) {
  double total = 0;
  for (int64_t at = 0; at < n; at += BLOCK) {
    int64_t end = n - at < BLOCK ? n : at + BLOCK, i = at;
    REAL s[LANES] = {0};
    for (; i + LANES <= end; i += LANES)
      for (int k = 0; k < LANES; k++) s[k] += x[i + k];
    for (int k = 0; i < end; i++, k++) s[k] += x[i];
    total += NAME(lanes_total)(s);
  }
  return total;
}

TARGET static double NAME(squares)(int64_t n, const REAL *x, REAL mean) {
  double total = 0;
  for (int64_t at = 0; at < n; at += BLOCK) {
    int64_t end = n - at < BLOCK ? n : at + BLOCK, i = at;
    REAL s[LANES] = {0};
    for (; i + LANES <= end; i += LANES)
      for (int k = 0; k < LANES; k++) s[k] += (x[i + k] - mean) * (x[i + k] - mean);
    for (int k = 0; i < end; i++, k++) s[k] += (x[i] - mean) * (x[i] - mean);
    total += NAME(lanes_total)(s);
  }
  return total;
}

/* The sums of dy and of dy (x - mean). */
TARGET static void NAME(products)(int64_t n, const REAL *x, const REAL *dy, REAL mean,
                                  double *sums) {
  sums[0] = sums[1] = 0;
  for (int64_t at = 0; at < n; at += BLOCK) {
    int64_t end = n - at < BLOCK ? n : at + BLOCK, i = at;
    REAL s[LANES] = {0}, t[LANES] = {0};
    for (; i + LANES <= end; i += LANES)
      for (int k = 0; k < LANES; k++) {
        s[k] += dy[i + k];
        t[k] += dy[i + k] * (x[i + k] - mean);
      }
    for (int k = 0; i < end; i++, k++) {
      s[k] += dy[i];
      t[k] += dy[i] * (x[i] - mean);
    }
    sums[0] += NAME(lanes_total)(s);
    sums[1] += NAME(lanes_total)(t);
  }
}

/* -- rows -- */

TARGET static void NAME(row_write)(const moth_row_norm *p, const REAL *x, REAL mean, REAL rstd,
                                   const REAL *w, const REAL *b, REAL *y) {
  int64_t channels = p->channels, inner = p->inner;
  if (!w && !b) {
    for (int64_t i = 0; i < channels * inner; i++) y[i] = (x[i] - mean) * rstd;
  } else if (inner == 1) {
    if (w && b)
      for (int64_t i = 0; i < channels; i++) y[i] = (x[i] - mean) * rstd * w[i] + b[i];
    else if (w)
      for (int64_t i = 0; i < channels; i++) y[i] = (x[i] - mean) * rstd * w[i];
    else
      for (int64_t i = 0; i < channels; i++) y[i] = (x[i] - mean) * rstd + b[i];
  } else {
    for (int64_t c = 0; c < channels; c++, x += inner, y += inner) {
      REAL by = w ? rstd * w[c] : rstd, more = b ? b[c] : 0;
      for (int64_t i = 0; i < inner; i++) y[i] = (x[i] - mean) * by + more;
    }
  }
}

TARGET static int NAME(rows_run)(moth_ctx *ctx, const moth_row_norm *p) {
  int64_t n = p->channels * p->inner;
  const REAL *x = p->x, *weight = p->weight, *bias = p->bias;
  REAL *y = p->y, *means = p->mean, *rstds = p->rstd;
  for (int64_t r = 0; r < p->rows; r++, x += n, y += n) {
    if ((r & 255) == 0 && moth_cancelled(ctx)) return moth_poll(ctx);
    int64_t first = r % p->groups * p->channels;
    REAL mean = p->centred ? (REAL)(NAME(sum)(n, x) / (double)n) : 0;
    REAL rstd = (REAL)(1 / sqrt(NAME(squares)(n, x, mean) / (double)n + p->eps));
    NAME(row_write)(p, x, mean, rstd, weight ? weight + first : NULL, bias ? bias + first : NULL,
                    y);
    if (p->centred) means[r] = mean;
    rstds[r] = rstd;
  }
  return MOTH_OK;
}

/* One channel to each element: the sums over the row of g and g (x - mean), g = dy w, and the
** row's share of the gradients of weight and bias. */
TARGET static void NAME(row_sums)(int64_t n, const REAL *x, const REAL *dy, const REAL *w,
                                  REAL mean, REAL rstd, REAL *dw, REAL *db, double *sums) {
  sums[0] = sums[1] = 0;
  if (dw)
    for (int64_t i = 0; i < n; i++) {
      dw[i] += dy[i] * ((x[i] - mean) * rstd);
      db[i] += dy[i];
    }
  if (!w) {
    NAME(products)(n, x, dy, mean, sums);
    return;
  }
  for (int64_t at = 0; at < n; at += BLOCK) {
    int64_t end = n - at < BLOCK ? n : at + BLOCK, i = at;
    REAL s[LANES] = {0}, t[LANES] = {0};
    for (; i + LANES <= end; i += LANES)
      for (int k = 0; k < LANES; k++) {
        REAL g = dy[i + k] * w[i + k];
        s[k] += g;
        t[k] += g * (x[i + k] - mean);
      }
    for (int k = 0; i < end; i++, k++) {
      REAL g = dy[i] * w[i];
      s[k] += g;
      t[k] += g * (x[i] - mean);
    }
    sums[0] += NAME(lanes_total)(s);
    sums[1] += NAME(lanes_total)(t);
  }
}

/* The same for channels of several elements. */
TARGET static void NAME(channel_sums_of_row)(const moth_row_norm *p, const REAL *x, const REAL *dy,
                                             const REAL *w, REAL mean, REAL rstd, REAL *dw,
                                             REAL *db, double *sums) {
  sums[0] = sums[1] = 0;
  for (int64_t c = 0; c < p->channels; c++, x += p->inner, dy += p->inner) {
    double own[2], by = w ? (double)w[c] : 1;
    NAME(products)(p->inner, x, dy, mean, own);
    sums[0] += own[0] * by;
    sums[1] += own[1] * by;
    if (dw) dw[c] += (REAL)(own[1] * (double)rstd), db[c] += (REAL)own[0];
  }
}

/* dx = rstd (g - mean of g - xhat mean of (g xhat)) */
TARGET static void NAME(row_back)(const moth_row_norm *p, const REAL *x, const REAL *dy,
                                  const REAL *w, REAL mean, REAL rstd, const double *sums,
                                  REAL *dx) {
  double n = (double)(p->channels * p->inner), r = (double)rstd;
  REAL even = p->centred ? (REAL)(-r * sums[0] / n) : 0;
  REAL along = (REAL)(-r * r * r * sums[1] / n);
  if (p->inner == 1 && w) {
    for (int64_t i = 0; i < p->channels; i++)
      dx[i] = dy[i] * w[i] * rstd + (x[i] - mean) * along + even;
    return;
  }
  for (int64_t c = 0; c < p->channels; c++, x += p->inner, dy += p->inner, dx += p->inner) {
    if (!w) { /* all of them alike */
      for (int64_t i = 0; i < p->channels * p->inner; i++)
        dx[i] = dy[i] * rstd + (x[i] - mean) * along + even;
      return;
    }
    REAL by = rstd * w[c];
    for (int64_t i = 0; i < p->inner; i++) dx[i] = dy[i] * by + (x[i] - mean) * along + even;
  }
}

/* Gradients of weights gather in `part` for a while, so that long sums stay exact. */
TARGET static void NAME(flush)(const moth_row_norm *p) {
  int64_t n = p->groups * p->channels;
  REAL *dw = p->part, *db = dw + n;
  for (int64_t i = 0; i < n; i++) {
    p->dweight[i] += (double)dw[i];
    p->dbias[i] += (double)db[i];
    dw[i] = db[i] = 0;
  }
}

TARGET static int NAME(rows_back)(moth_ctx *ctx, const moth_row_norm *p) {
  int64_t n = p->channels * p->inner, all = p->groups * p->channels;
  const REAL *x = p->x, *dy = p->dy, *weight = p->weight, *means = p->mean, *rstds = p->rstd;
  REAL *dx = p->dx, *part = p->part;
  bool affine = p->dweight != NULL;
  if (affine)
    for (int64_t i = 0; i < 2 * all; i++) part[i] = 0;
  for (int64_t r = 0; r < p->rows; r++, x += n, dy += n, dx += n) {
    if ((r & 255) == 0 && moth_cancelled(ctx)) return moth_poll(ctx);
    int64_t first = r % p->groups * p->channels;
    const REAL *w = weight ? weight + first : NULL;
    REAL mean = p->centred ? means[r] : 0, *dw = affine ? part + first : NULL;
    REAL *db = affine ? part + all + first : NULL;
    double sums[2];
    if (p->inner == 1) NAME(row_sums)(n, x, dy, w, mean, rstds[r], dw, db, sums);
    else NAME(channel_sums_of_row)(p, x, dy, w, mean, rstds[r], dw, db, sums);
    NAME(row_back)(p, x, dy, w, mean, rstds[r], sums, dx);
    if (affine && r % (64 * p->groups) == 64 * p->groups - 1) NAME(flush)(p);
  }
  if (affine) NAME(flush)(p);
  return MOTH_OK;
}

/* -- channels -- */

TARGET static int NAME(channel_sums)(moth_ctx *ctx, const moth_channel_norm *p, const double *mean,
                                     double *sum) {
  const REAL *x = p->x;
  for (int64_t c = 0; c < p->c; c++) sum[c] = 0;
  for (int64_t n = 0; n < p->n; n++) {
    if ((n & 255) == 0 && moth_cancelled(ctx)) return moth_poll(ctx);
    if (p->inner == 1 && !mean)
      for (int64_t c = 0; c < p->c; c++) sum[c] += (double)x[c];
    else if (p->inner == 1)
      for (int64_t c = 0; c < p->c; c++)
        sum[c] += ((double)x[c] - mean[c]) * ((double)x[c] - mean[c]);
    else
      for (int64_t c = 0; c < p->c; c++)
        sum[c] += mean ? NAME(squares)(p->inner, x + c * p->inner, (REAL)mean[c])
                       : NAME(sum)(p->inner, x + c * p->inner);
    x += p->c * p->inner;
  }
  return MOTH_OK;
}

TARGET static int NAME(channel_back_sums)(moth_ctx *ctx, const moth_channel_norm *p,
                                          const double *mean, double *dysum, double *dyxsum) {
  const REAL *x = p->x, *dy = p->dy;
  for (int64_t c = 0; c < p->c; c++) dysum[c] = dyxsum[c] = 0;
  for (int64_t n = 0; n < p->n; n++) {
    if ((n & 255) == 0 && moth_cancelled(ctx)) return moth_poll(ctx);
    if (p->inner == 1)
      for (int64_t c = 0; c < p->c; c++) {
        dysum[c] += (double)dy[c];
        dyxsum[c] += (double)dy[c] * ((double)x[c] - mean[c]);
      }
    else
      for (int64_t c = 0; c < p->c; c++) {
        double own[2];
        NAME(products)(p->inner, x + c * p->inner, dy + c * p->inner, (REAL)mean[c], own);
        dysum[c] += own[0];
        dyxsum[c] += own[1];
      }
    x += p->c * p->inner;
    dy += p->c * p->inner;
  }
  return MOTH_OK;
}

TARGET static int NAME(channel_apply)(moth_ctx *ctx, const moth_channel_norm *p,
                                      const double *mean, const double *by, const double *scale,
                                      const double *shift, void *out) {
  const REAL *x = p->x, *dy = p->dy;
  REAL *y = out;
  for (int64_t n = 0; n < p->n; n++) {
    if ((n & 255) == 0 && moth_cancelled(ctx)) return moth_poll(ctx);
    if (p->inner == 1) {
      for (int64_t c = 0; c < p->c; c++)
        y[c] = (REAL)(((double)x[c] - mean[c]) * scale[c] + shift[c] +
                      (dy ? (double)dy[c] * by[c] : 0));
      x += p->c, y += p->c, dy = dy ? dy + p->c : NULL;
      continue;
    }
    for (int64_t c = 0; c < p->c; c++, x += p->inner, y += p->inner) {
      REAL m = (REAL)mean[c], a = (REAL)scale[c], b = (REAL)shift[c];
      if (!dy) {
        for (int64_t i = 0; i < p->inner; i++) y[i] = (x[i] - m) * a + b;
        continue;
      }
      REAL d = (REAL)by[c];
      for (int64_t i = 0; i < p->inner; i++) y[i] = dy[i] * d + (x[i] - m) * a + b;
      dy += p->inner;
    }
  }
  return MOTH_OK;
}

static const norm_level NAME(level) = {NAME(rows_run), NAME(rows_back), NAME(channel_sums),
                                       NAME(channel_back_sums), NAME(channel_apply)};
