/* norm_real.h -- the loops of norm.c for one REAL and one TARGET, the attribute that chooses
** instructions. Sums run in vectors over at most SUM_BLOCK elements and go on in double.
*/

#include "sums_real.h"

VECTOR_SUM(norm_sum, v)
VECTOR_SUM(norm_squares, (v - m) * (v - m))

/* The sums of dy and of dy (x - mean). */
TARGET INLINED void NAME(products)(int64_t n, const REAL *x, const REAL *dy, REAL mean,
                                   double *sums) {
  sums[0] = sums[1] = 0;
  for (int64_t at = 0; at < n; at += SUM_BLOCK) {
    int64_t end = n - at < SUM_BLOCK ? n : at + SUM_BLOCK, i = at;
    VEC s0 = {0}, s1 = {0}, t0 = {0}, t1 = {0};
    REAL s = 0, t = 0;
    for (; i + 2 * PER <= end; i += 2 * PER) {
      const VEC a = VEC_AT(dy + i), b = VEC_AT(dy + i + PER);
      s0 += a, s1 += b;
      t0 += a * (VEC_AT(x + i) - mean), t1 += b * (VEC_AT(x + i + PER) - mean);
    }
    for (; i < end; i++) {
      s += dy[i];
      t += dy[i] * (x[i] - mean);
    }
    s0 += s1, t0 += t1;
    sums[0] += (double)(NAME(total)(&s0) + s);
    sums[1] += (double)(NAME(total)(&t0) + t);
  }
}

/* -- rows -- */

TARGET static void NAME(row_write)(const moth_row_norm *p, const REAL *x, REAL mean, REAL rstd,
                                   const REAL *w, const REAL *b, REAL *restrict y) {
  const int64_t channels = p->channels, inner = p->inner;
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

TARGET static void NAME(rows_run)(int64_t from, int64_t last, int lane, const void *arg) {
  const moth_row_norm *p = arg;
  const int64_t n = p->channels * p->inner;
  const REAL *weight = p->weight, *bias = p->bias;
  REAL *means = p->mean, *rstds = p->rstd;
  (void)lane;
  for (int64_t r = from; r < last; r++) {
    const REAL *x = (const REAL *)p->x + r * n;
    int64_t first = r % p->groups * p->channels;
    REAL mean = p->centred ? (REAL)(NAME(norm_sum)(n, x, 0) / (double)n) : 0;
    REAL rstd = (REAL)(1 / sqrt(NAME(norm_squares)(n, x, mean) / (double)n + p->eps));
    NAME(row_write)(p, x, mean, rstd, weight ? weight + first : NULL, bias ? bias + first : NULL,
                    (REAL *)p->y + r * n);
    if (p->centred) means[r] = mean;
    rstds[r] = rstd;
  }
}

/* One channel to each element: the sums over the row of g and g (x - mean), g = dy w, and the
** row's share of the gradients of weight and bias, all in one pass. */
TARGET INLINED void NAME(row_sums_of)(const bool share, const bool weighted, int64_t n,
                                      const REAL *x, const REAL *dy, const REAL *w, REAL mean,
                                      REAL rstd, REAL *restrict dw, REAL *restrict db,
                                      double *sums) {
  sums[0] = sums[1] = 0;
  for (int64_t at = 0; at < n; at += SUM_BLOCK) {
    int64_t end = n - at < SUM_BLOCK ? n : at + SUM_BLOCK, i = at;
    VEC s0 = {0}, t0 = {0};
    REAL s = 0, t = 0;
    for (; i + PER <= end; i += PER) {
      const VEC d = VEC_AT(dy + i), c = VEC_AT(x + i) - mean;
      const VEC g = weighted ? d * VEC_AT(w + i) : d;
      s0 += g, t0 += g * c;
      if (share) {
        *(NAME(loose) *)(void *)(dw + i) += d * (c * rstd);
        *(NAME(loose) *)(void *)(db + i) += d;
      }
    }
    for (; i < end; i++) {
      const REAL d = dy[i], c = x[i] - mean, g = weighted ? d * w[i] : d;
      s += g, t += g * c;
      if (share) dw[i] += d * (c * rstd), db[i] += d;
    }
    sums[0] += (double)(NAME(total)(&s0) + s);
    sums[1] += (double)(NAME(total)(&t0) + t);
  }
}

TARGET static void NAME(row_sums)(int64_t n, const REAL *x, const REAL *dy, const REAL *w,
                                  REAL mean, REAL rstd, REAL *dw, REAL *db, double *sums) {
  if (dw && w) NAME(row_sums_of)(true, true, n, x, dy, w, mean, rstd, dw, db, sums);
  else if (dw) NAME(row_sums_of)(true, false, n, x, dy, w, mean, rstd, dw, db, sums);
  else if (w) NAME(row_sums_of)(false, true, n, x, dy, w, mean, rstd, dw, db, sums);
  else NAME(row_sums_of)(false, false, n, x, dy, w, mean, rstd, dw, db, sums);
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
                                  REAL *restrict dx) {
  const int64_t channels = p->channels, inner = p->inner;
  double n = (double)(channels * inner), r = (double)rstd;
  REAL even = p->centred ? (REAL)(-r * sums[0] / n) : 0;
  REAL along = (REAL)(-r * r * r * sums[1] / n);
  if (inner == 1 && w) {
    for (int64_t i = 0; i < channels; i++)
      dx[i] = dy[i] * w[i] * rstd + (x[i] - mean) * along + even;
    return;
  }
  if (!w) { /* all of them alike */
    for (int64_t i = 0; i < channels * inner; i++)
      dx[i] = dy[i] * rstd + (x[i] - mean) * along + even;
    return;
  }
  for (int64_t c = 0; c < channels; c++, x += inner, dy += inner, dx += inner) {
    REAL by = rstd * w[c];
    for (int64_t i = 0; i < inner; i++) dx[i] = dy[i] * by + (x[i] - mean) * along + even;
  }
}

/* Gradients of weights gather in `part` for a while, so that long sums stay exact. */
TARGET static void NAME(flush)(const moth_row_norm *p) {
  int64_t n = p->groups * p->channels;
  REAL *restrict dw = p->part, *restrict db = dw + n;
  double *restrict dweight = p->dweight, *restrict dbias = p->dbias;
  for (int64_t i = 0; i < n; i++) {
    dweight[i] += (double)dw[i];
    dbias[i] += (double)db[i];
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
    if ((r & 255) == 0 && moth_cancelled(ctx)) return moth_stopped(ctx);
    int64_t first = r % p->groups * p->channels;
    const REAL *w = weight ? weight + first : NULL;
    REAL mean = p->centred ? means[r] : 0, *dw = affine ? part + first : NULL;
    REAL *db = affine ? part + all + first : NULL;
    double sums[2];
    if (p->inner == 1) NAME(row_sums)(n, x, dy, w, mean, rstds[r], dw, db, sums);
    else NAME(channel_sums_of_row)(p, x, dy, w, mean, rstds[r], dw, db, sums);
    NAME(row_back)(p, x, dy, w, mean, rstds[r], sums, dx);
    if (affine && r % (32 * p->groups) == 32 * p->groups - 1) NAME(flush)(p);
  }
  if (affine) NAME(flush)(p);
  return MOTH_OK;
}

/* -- channels --
** A plane is what one sample has of one channel. Samples whose planes are single elements are rows
** of channels, which are read as they lie. */

TARGET static void NAME(row_of_sums)(int64_t n, const REAL *x, double *restrict sum) {
  for (int64_t c = 0; c < n; c++) sum[c] += (double)x[c];
}

TARGET static void NAME(row_of_squares)(int64_t n, const REAL *x, const double *mean,
                                        double *restrict sum) {
  for (int64_t c = 0; c < n; c++) {
    const double d = (double)x[c] - mean[c];
    sum[c] += d * d;
  }
}

TARGET static void NAME(row_of_products)(int64_t n, const REAL *x, const REAL *dy,
                                         const double *mean, double *restrict dysum,
                                         double *restrict dyxsum) {
  for (int64_t c = 0; c < n; c++) {
    const double d = (double)dy[c];
    dysum[c] += d;
    dyxsum[c] += d * ((double)x[c] - mean[c]);
  }
}

TARGET static void NAME(plane)(int64_t n, const REAL *x, REAL m, REAL a, REAL b, REAL *restrict y) {
  for (int64_t i = 0; i < n; i++) y[i] = (x[i] - m) * a + b;
}

TARGET static void NAME(plane_back)(int64_t n, const REAL *x, const REAL *dy, REAL m, REAL a,
                                    REAL b, REAL d, REAL *restrict y) {
  for (int64_t i = 0; i < n; i++) y[i] = dy[i] * d + (x[i] - m) * a + b;
}

/* Channels first to last - 1 of all samples: of x, or of (x - mean)^2, or with dy both sums. */
TARGET static void NAME(channel_sums)(int64_t first, int64_t last, int lane, const void *arg) {
  const channel_job *j = arg;
  const int64_t c = j->p->c, inner = j->p->inner, n = last - first;
  const REAL *x = j->p->x, *dy = j->p->dy;
  const double *mean = j->mean;
  double *sum = j->sum, *more = j->more;
  (void)lane;
  for (int64_t k = first; k < last; k++) sum[k] = 0;
  for (int64_t k = first; dy && k < last; k++) more[k] = 0;
  for (int64_t s = 0; s < j->p->n; s++) {
    const int64_t at = s * c * inner;
    if (inner == 1) {
      if (dy)
        NAME(row_of_products)(n, x + at + first, dy + at + first, mean + first, sum + first,
                              more + first);
      else if (mean) NAME(row_of_squares)(n, x + at + first, mean + first, sum + first);
      else NAME(row_of_sums)(n, x + at + first, sum + first);
      continue;
    }
    for (int64_t k = first; k < last; k++) {
      const REAL *plane = x + at + k * inner;
      if (dy) {
        double own[2];
        NAME(products)(inner, plane, dy + at + k * inner, (REAL)mean[k], own);
        sum[k] += own[0];
        more[k] += own[1];
      } else {
        sum[k] += mean ? NAME(norm_squares)(inner, plane, (REAL)mean[k])
                       : NAME(norm_sum)(inner, plane, 0);
      }
    }
  }
}

/* Samples first to last - 1 where planes are single elements, else planes. */
TARGET static void NAME(channel_apply)(int64_t first, int64_t last, int lane, const void *arg) {
  const channel_job *j = arg;
  const int64_t c = j->p->c, inner = j->p->inner;
  const REAL *x = j->p->x, *dy = j->p->dy;
  const double *mean = j->mean, *by = j->by, *scale = j->scale, *shift = j->shift;
  (void)lane;
  for (int64_t i = first; i < last; i++) {
    const int64_t at = i * (inner == 1 ? c : inner), k = inner == 1 ? 0 : i % c;
    REAL *restrict y = (REAL *)j->y + at;
    const REAL *from = x + at, *back = dy ? dy + at : NULL;
    if (inner != 1) {
      if (dy)
        NAME(plane_back)(inner, from, back, (REAL)mean[k], (REAL)scale[k], (REAL)shift[k],
                         (REAL)by[k], y);
      else NAME(plane)(inner, from, (REAL)mean[k], (REAL)scale[k], (REAL)shift[k], y);
    } else if (dy) {
      for (int64_t q = 0; q < c; q++)
        y[q] = (REAL)(((double)from[q] - mean[q]) * scale[q] + shift[q] + (double)back[q] * by[q]);
    } else {
      for (int64_t q = 0; q < c; q++)
        y[q] = (REAL)(((double)from[q] - mean[q]) * scale[q] + shift[q]);
    }
  }
}

static const norm_level NAME(level) = {NAME(rows_run), NAME(rows_back), NAME(channel_sums),
                                       NAME(channel_apply)};
