/* norm_real.h -- the loops of norm.c for one REAL and one TARGET, the attribute that chooses
** instructions. Blocks of at most SUM_BLOCK elements are summed in vectors, and block sums are
** added in double.
*/

#include "sums_real.h"
#include "base/error.h"
#include "base/threads.h"

#ifndef NEAR_MEAN
#define PAUSE_PLANE 4096 /* after a plane of so many elements moth_pause is called */
#define NEAR_MEAN (sizeof(REAL) == sizeof(float) ? 1e-12 : 1e-28)
#endif

VECTOR_SUM(norm_sum, v)
VECTOR_SUM(norm_squares, (v - m) * (v - m))

/* The sum of (x - mean)^2, in double if f32 squares would overflow. */
TARGET INLINED double NAME(squares_about)(int64_t n, const REAL *x, REAL mean) {
  double sum = NAME(norm_squares)(n, x, mean);
  if (sum > 1e35) {
    sum = 0;
    for (int64_t i = 0; i < n; i++) {
      const double off = (double)x[i] - (double)mean;
      sum += off * off;
    }
  }
  return sum;
}

/* The mask of a relu of (x - mean) by + more, for one channel. */
typedef struct NAME(mask) {
  REAL mean, by, more, least;
} NAME(mask);

/* Sums of dy, where the mask is true, and of dy (x - mean). */
TARGET INLINED void NAME(products_of)(const bool masked, int64_t n, const REAL *x, const REAL *dy,
                                      REAL mean, NAME(mask) k, double *sums) {
  const VEC none = {0};
  sums[0] = sums[1] = 0;
  for (int64_t at = 0; at < n; at += SUM_BLOCK) {
    int64_t end = n - at < SUM_BLOCK ? n : at + SUM_BLOCK, i = at;
    VEC s0 = {0}, s1 = {0}, t0 = {0}, t1 = {0};
    REAL s = 0, t = 0;
    for (; i + 2 * PER <= end; i += 2 * PER) {
      const VEC u = VEC_AT(x + i), v = VEC_AT(x + i + PER);
      VEC a = VEC_AT(dy + i), b = VEC_AT(dy + i + PER);
      if (masked) {
        a = CHOOSE((u - k.mean) * k.by + k.more <= k.least, none, a);
        b = CHOOSE((v - k.mean) * k.by + k.more <= k.least, none, b);
      }
      s0 += a, s1 += b;
      t0 += a * (u - mean), t1 += b * (v - mean);
    }
    for (; i < end; i++) {
      REAL d = dy[i];
      if (masked) d = (x[i] - k.mean) * k.by + k.more <= k.least ? 0 : d;
      s += d;
      t += d * (x[i] - mean);
    }
    s0 += s1, t0 += t1;
    sums[0] += (double)(NAME(total)(&s0) + s);
    sums[1] += (double)(NAME(total)(&t0) + t);
  }
}

TARGET INLINED void NAME(products)(int64_t n, const REAL *x, const REAL *dy, REAL mean,
                                   double *sums) {
  NAME(products_of)(false, n, x, dy, mean, (NAME(mask)){0, 0, 0, 0}, sums);
}

TARGET static void NAME(open_products)(int64_t n, const REAL *x, const REAL *dy, REAL mean,
                                       NAME(mask) k, double *sums) {
  NAME(products_of)(true, n, x, dy, mean, k, sums);
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
      if (inner >= PAUSE_PLANE) moth_pause();
    }
  }
}

/* Mean and 1 / deviation of a row, from scaled elements: for rows whose sums leave the range, and
** for rows that are constant except for the rounding of the mean. */
TARGET static void NAME(scaled_row)(const moth_row_norm *p, const REAL *x, REAL *mean, REAL *rstd) {
  const int64_t n = p->channels * p->inner;
  double most = 0, sum = 0, rest = 0, squares = 0;
  int power;
  for (int64_t i = 0; i < n; i++) { /* a reduction by fmax makes GCC 12 for ARM fail */
    const double size = fabs((double)x[i]);
    if (size > most) most = size;
  }
  if (!(most > 0 && isfinite(most))) return;
  frexp(most, &power);
  const double down = ldexp(1, -(power / 2)), more = ldexp(1, power / 2 - power);
  for (int64_t i = 0; i < n && p->centred; i++) sum += (double)x[i] * down * more;
  for (int64_t i = 0; i < n && p->centred; i++)
    rest += (double)x[i] * down * more - sum / (double)n;
  const REAL m = (REAL)((sum / (double)n + rest / (double)n) / down / more);
  for (int64_t i = 0; i < n; i++) {
    const double off = (double)x[i] * down * more - (double)m * down * more;
    squares += off * off;
  }
  *mean = m;
  *rstd = (REAL)(1 / hypot(sqrt(squares / (double)n) / down / more, sqrt(p->eps)));
}

TARGET static void NAME(rows_run)(int64_t from, int64_t last, int thread, const void *arg) {
  const moth_row_norm *p = arg;
  const int64_t n = p->channels * p->inner;
  const REAL *weight = p->weight, *bias = p->bias;
  REAL *means = p->mean, *rstds = p->rstd;
  (void)thread;
  for (int64_t r = from; r < last; r++) {
    const REAL *x = (const REAL *)p->x + r * n;
    int64_t first = r % p->groups * p->channels;
    REAL mean = p->centred ? (REAL)(NAME(norm_sum)(n, x, 0) / (double)n) : 0;
    const double var = NAME(squares_about)(n, x, mean) / (double)n;
    REAL rstd = (REAL)(1 / sqrt(var + p->eps));
    if (!(var >= NEAR_MEAN * (double)mean * (double)mean && var < 1e300))
      NAME(scaled_row)(p, x, &mean, &rstd);
    NAME(row_write)(p, x, mean, rstd, weight ? weight + first : NULL, bias ? bias + first : NULL,
                    (REAL *)p->y + r * n);
    if (p->centred) means[r] = mean;
    rstds[r] = rstd;
  }
}

/* For channels of one element. In one pass, the sums over the row of g = dy w and of g (x - mean),
** and the row's terms of the gradients of weight and bias. */
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

/* The same sums for channels of several elements. */
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
    if (p->inner >= PAUSE_PLANE) moth_pause();
  }
}

/* Sums of g and g xhat of a row, in double: for rows whose sums left the range. */
TARGET static void NAME(sums_in_double)(const moth_row_norm *p, const REAL *x, const REAL *dy,
                                    const REAL *w, REAL mean, REAL rstd, double *sums) {
  sums[0] = sums[1] = 0;
  for (int64_t c = 0; c < p->channels; c++, x += p->inner, dy += p->inner)
    for (int64_t i = 0; i < p->inner; i++) {
      const double g = (double)dy[i] * (w ? (double)w[c] : 1);
      sums[0] += g;
      sums[1] += g * (((double)x[i] - (double)mean) * (double)rstd);
    }
}

/* dx = rstd (g - mean of g - xhat mean of (g xhat)). */
TARGET static void NAME(row_back)(const moth_row_norm *p, const REAL *x, const REAL *dy,
                                  const REAL *w, REAL mean, REAL rstd, const double *sums,
                                  REAL *restrict dx) {
  const int64_t channels = p->channels, inner = p->inner;
  double n = (double)(channels * inner), r = (double)rstd;
  REAL even = p->centred ? (REAL)(-r * sums[0] / n) : 0;
  /* multiplied by rstd below, since rstd^3 may underflow */
  REAL along = (REAL)(-r * (sums[1] / n));
  if (inner == 1 && w) {
    for (int64_t i = 0; i < channels; i++)
      dx[i] = dy[i] * w[i] * rstd + (x[i] - mean) * rstd * along + even;
    return;
  }
  if (!w) { /* all weights are 1 */
    for (int64_t i = 0; i < channels * inner; i++)
      dx[i] = dy[i] * rstd + (x[i] - mean) * rstd * along + even;
    return;
  }
  for (int64_t c = 0; c < channels; c++, x += inner, dy += inner, dx += inner) {
    REAL by = rstd * w[c];
    for (int64_t i = 0; i < inner; i++)
      dx[i] = dy[i] * by + (x[i] - mean) * rstd * along + even;
    if (inner >= PAUSE_PLANE) moth_pause();
  }
}

/* Adds `part` to the gradients of the weights. `part` has the sums of few rows, so that long sums
** keep their last digits. */
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
    sums[1] *= (double)rstds[r];
    if (!isfinite(sums[0] + sums[1])) NAME(sums_in_double)(p, x, dy, w, mean, rstds[r], sums);
    NAME(row_back)(p, x, dy, w, mean, rstds[r], sums, dx);
    if (affine && r % (32 * p->groups) == 32 * p->groups - 1) NAME(flush)(p);
  }
  if (affine) NAME(flush)(p);
  return MOTH_OK;
}

/* -- channels --
**
** A plane has the elements of one channel in one sample. If planes have a single element, a sample
** is a row of channels and is read in this order. */

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

TARGET INLINED void NAME(row_of_products)(const bool masked, int64_t n, const REAL *x,
                                          const REAL *dy, const double *mean,
                                          const moth_channel_mask *k, int64_t first,
                                          double *restrict dysum, double *restrict dyxsum) {
  const double *m = masked ? k->mean + first : NULL, *by = masked ? k->scale + first : NULL;
  const double *more = masked ? k->shift + first : NULL;
  const REAL least = (REAL)k->least;
  for (int64_t c = 0; c < n; c++) {
    double d = (double)dy[c];
    if (masked) d = (REAL)(((double)x[c] - m[c]) * by[c] + more[c]) <= least ? 0 : d;
    dysum[c] += d;
    dyxsum[c] += d * ((double)x[c] - mean[c]);
  }
}

/* -- elementwise loops over a plane; y may be x or s -- */

TARGET INLINED void NAME(plane_of)(const bool summed, const bool relu, int64_t n, const REAL *x,
                                   REAL m, REAL a, REAL b, const REAL *s, REAL *y) {
  MOTH_IVDEP for (int64_t i = 0; i < n; i++) {
    REAL v = (x[i] - m) * a + b;
    if (summed) v += s[i];
    y[i] = relu && v < 0 ? 0 : v;
  }
}

/* s: a term added to the result, or NULL. */
TARGET static void NAME(plane)(int64_t n, const REAL *x, REAL m, REAL a, REAL b, const REAL *s,
                               bool relu, REAL *y) {
  if (s && relu) NAME(plane_of)(true, true, n, x, m, a, b, s, y);
  else if (s) NAME(plane_of)(true, false, n, x, m, a, b, s, y);
  else if (relu) NAME(plane_of)(false, true, n, x, m, a, b, s, y);
  else NAME(plane_of)(false, false, n, x, m, a, b, s, y);
}

TARGET INLINED void NAME(plane_back_of)(const bool masked, int64_t n, const REAL *x,
                                        const REAL *dy, REAL m, REAL a, REAL b, REAL d,
                                        NAME(mask) k, REAL *restrict y) {
  for (int64_t i = 0; i < n; i++) {
    REAL g = dy[i];
    if (masked) g = (x[i] - k.mean) * k.by + k.more <= k.least ? 0 : g;
    y[i] = (x[i] - m) * a + b + g * d; /* compilers contract this form in one way only */
  }
}

/* k: the mask of dy, or NULL. */
TARGET static void NAME(plane_back)(int64_t n, const REAL *x, const REAL *dy, REAL m, REAL a,
                                    REAL b, REAL d, const NAME(mask) *k, REAL *y) {
  if (k) NAME(plane_back_of)(true, n, x, dy, m, a, b, d, *k, y);
  else NAME(plane_back_of)(false, n, x, dy, m, a, b, d, (NAME(mask)){0, 0, 0, 0}, y);
}

static inline NAME(mask) NAME(mask_of)(const moth_channel_mask *k, int64_t c) {
  return (NAME(mask)){(REAL)k->mean[c], (REAL)k->scale[c], (REAL)k->shift[c], (REAL)k->least};
}

/* One sample, if planes have a single element: a row of n channels. */
TARGET static void NAME(row_of_results)(const channel_job *j, const REAL *x, const REAL *s,
                                        REAL *y) {
  const int64_t n = j->p->c;
  const double *mean = j->mean, *scale = j->scale, *shift = j->shift;
  const bool relu = j->p->relu;
  MOTH_IVDEP for (int64_t q = 0; !s && q < n; q++)
    y[q] = (REAL)(((double)x[q] - mean[q]) * scale[q] + shift[q]);
  MOTH_IVDEP for (int64_t q = 0; s && q < n; q++)
    y[q] = (REAL)(((double)x[q] - mean[q]) * scale[q] + shift[q]) + s[q];
  for (int64_t q = 0; relu && q < n; q++) y[q] = y[q] < 0 ? 0 : y[q];
}

TARGET static void NAME(row_of_back)(const channel_job *j, const REAL *x, const REAL *dy,
                                  REAL *y) {
  const int64_t n = j->p->c;
  const double *mean = j->mean, *by = j->by, *scale = j->scale, *shift = j->shift;
  const moth_channel_mask *k = &j->p->mask;
  const double *m = k->mean, *was = k->scale, *more = k->shift;
  const REAL least = (REAL)k->least;
  if (!m) {
    MOTH_IVDEP for (int64_t q = 0; q < n; q++)
      y[q] = (REAL)(((double)x[q] - mean[q]) * scale[q] + shift[q] + (double)dy[q] * by[q]);
    return;
  }
  MOTH_IVDEP for (int64_t q = 0; q < n; q++) {
    const bool shut = (REAL)(((double)x[q] - m[q]) * was[q] + more[q]) <= least;
    const double g = shut ? 0 : (double)dy[q];
    y[q] = (REAL)(((double)x[q] - mean[q]) * scale[q] + shift[q] + g * by[q]);
  }
}

/* Items are channels; sums over all samples. Without dy, sums of x or of (x - mean)^2; with dy,
** both sums. */
TARGET static void NAME(channel_sums)(int64_t first, int64_t last, int thread, const void *arg) {
  const channel_job *j = arg;
  const int64_t c = j->p->c, inner = j->p->inner, n = last - first;
  const REAL *x = j->p->x, *dy = j->p->dy;
  const double *mean = j->mean;
  const moth_channel_mask *k = &j->p->mask;
  double *sum = j->sum, *more = j->more;
  (void)thread;
  for (int64_t q = first; q < last; q++) sum[q] = 0;
  for (int64_t q = first; dy && q < last; q++) more[q] = 0;
  for (int64_t s = 0; s < j->p->n; s++) {
    const int64_t at = s * c * inner;
    if (inner == 1) {
      if (dy && k->mean)
        NAME(row_of_products)(true, n, x + at + first, dy + at + first, mean + first, k, first,
                              sum + first, more + first);
      else if (dy)
        NAME(row_of_products)(false, n, x + at + first, dy + at + first, mean + first, k, first,
                              sum + first, more + first);
      else if (mean) NAME(row_of_squares)(n, x + at + first, mean + first, sum + first);
      else NAME(row_of_sums)(n, x + at + first, sum + first);
      continue;
    }
    for (int64_t q = first; q < last; q++) {
      const REAL *plane = x + at + q * inner;
      if (dy) {
        double own[2];
        if (k->mean)
          NAME(open_products)(inner, plane, dy + at + q * inner, (REAL)mean[q], NAME(mask_of)(k, q),
                              own);
        else NAME(products)(inner, plane, dy + at + q * inner, (REAL)mean[q], own);
        sum[q] += own[0];
        more[q] += own[1];
      } else {
        sum[q] += mean ? NAME(squares_about)(inner, plane, (REAL)mean[q])
                       : NAME(norm_sum)(inner, plane, 0);
      }
      if (inner >= PAUSE_PLANE) moth_pause();
    }
  }
}

/* Items are samples if planes have a single element, else planes. */
TARGET static void NAME(channel_apply)(int64_t first, int64_t last, int thread, const void *arg) {
  const channel_job *j = arg;
  const int64_t c = j->p->c, inner = j->p->inner;
  const REAL *x = j->p->x, *dy = j->p->dy, *sum = j->p->sum;
  const bool relu = j->p->relu, masked = j->p->mask.mean != NULL;
  const double *mean = j->mean, *by = j->by, *scale = j->scale, *shift = j->shift;
  (void)thread;
  for (int64_t i = first; i < last; i++) {
    const int64_t at = i * (inner == 1 ? c : inner), k = inner == 1 ? 0 : i % c;
    REAL *y = (REAL *)j->y + at;
    if (inner == 1) {
      if (dy) NAME(row_of_back)(j, x + at, dy + at, y);
      else NAME(row_of_results)(j, x + at, sum ? sum + at : NULL, y);
      continue;
    }
    const REAL m = (REAL)mean[k], a = (REAL)scale[k], b = (REAL)shift[k];
    if (!dy) {
      NAME(plane)(inner, x + at, m, a, b, sum ? sum + at : NULL, relu, y);
      continue;
    }
    NAME(mask) mask = {0, 0, 0, 0};
    if (masked) mask = NAME(mask_of)(&j->p->mask, k);
    NAME(plane_back)(inner, x + at, dy + at, m, a, b, (REAL)by[k], masked ? &mask : NULL, y);
  }
}

static const norm_level NAME(level) = {NAME(rows_run), NAME(rows_back), NAME(channel_sums),
                                       NAME(channel_apply)};
