/* fft.c -- Fourier transforms: plans, and the division of signals among threads. fft_plan.h
** describes the methods, fft_level.h has the loops.
*/
#include "fft.h"
#include "base/error.h"
#include "base/alloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "fft_plan.h"
#include "level.h"

#if MOTH_HAS_LEVELS
#include <immintrin.h>
#endif

/* a chirp transform takes as long as a pass with this many steps per number */
#define CHIRP_STEPS 48
#define MOST_PLANS 16         /* maximal number of plans that a context caches */
#define MOST_BYTES (64 << 20) /* maximal bytes of the cached plans */

/* -- loops: for each type and level -- */

#define TARGET
#define REAL float
#define EACH_LANES 4
#define LANES 4
#define NAME(f) f##_f32
#include "fft_lanes.h"

#define TARGET
#define REAL double
#define EACH_LANES 2
#define LANES 2
#define NAME(f) f##_f64
#include "fft_lanes.h"

#if MOTH_HAS_LEVELS
#define TARGET MOTH_AVX2
#define REAL float
#define EACH_LANES 4
#define LANES 8
#define NAME(f) f##_avx2
#include "fft_lanes.h"

#define TARGET MOTH_AVX2
#define REAL double
#define EACH_LANES 2
#define LANES 4
#define NAME(f) f##_avx2_f64
#include "fft_lanes.h"

#define TARGET MOTH_AVX512
#define REAL float
#define EACH_LANES 4
#define LANES 16
#define NAME(f) f##_avx512
#include "fft_lanes.h"

#define FOR_LANES(dtype, lanes, f)                                                      \
  ((dtype) == MOTH_F32 ? (lanes) == 16 ? f##_avx512 : (lanes) == 8 ? f##_avx2 : f##_f32 \
   : (lanes) == 4 ? f##_avx2_f64 : f##_f64)
#else
#define FOR_LANES(dtype, lanes, f) ((dtype) == MOTH_F32 ? f##_f32 : f##_f64)
#endif

/* f64 has no AVX-512 loops: f64 transforms are rare, and the loops have 20 KB of code. */
static int lanes_of(int dtype) {
  const int level = moth_level();
  return dtype == MOTH_F32 ? 4 << level : level ? 4 : 2;
}

/* -- plans -- */

typedef struct way {
  int way, lanes;
} way;

/* re + i im := e^(-2 pi i k / n), computed from an angle of at most 45 degrees. */
static void root_of(int64_t k, int64_t n, double *re, double *im) {
  /* the nearest multiple of a quarter turn */
  const int64_t eighths = 8 * k / n, quarter = (eighths + 1) / 2;
  const double angle = 1.57079632679489661923 * (double)(4 * k - quarter * n) / (double)n;
  const double c = cos(angle), s = sin(angle);
  *re = quarter % 4 == 0 ? c : quarter % 4 == 1 ? -s : quarter % 4 == 2 ? -c : s;
  *im = -(quarter % 4 == 0 ? s : quarter % 4 == 1 ? c : quarter % 4 == 2 ? -s : -c);
}

static void put(const moth_fft_plan *p, void *table, int64_t i, double value) {
  if (p->dtype == MOTH_F32) ((float *)table)[i] = (float)value;
  else ((double *)table)[i] = value;
}

static void *table_of(moth_fft_plan *p, int64_t n) {
  const int64_t bytes = n * moth_dtype_size[p->dtype];
  p->bytes += bytes;
  return malloc((size_t)(bytes ? bytes : 1));
}

/* The radices of n, eights first. Returns false if a prime factor is too large. */
static bool factor(moth_fft_plan *p, int64_t n) {
  p->passes = 0;
  while (n % 8 == 0 && n != 16) p->radix[p->passes++] = 8, n /= 8;
  while (n % 4 == 0) p->radix[p->passes++] = 4, n /= 4;
  if (n % 2 == 0) p->radix[p->passes++] = 2, n /= 2;
  for (int r = 3; r <= MOTH_FFT_PRIME; r += 2)
    while (n % r == 0) p->radix[p->passes++] = r, n /= r;
  return n == 1;
}

/* The largest prime factor of n, or 0 if it is too large for a pass. */
static int largest_factor(int64_t n) {
  moth_fft_plan p;
  return factor(&p, n) ? p.passes ? p.radix[p.passes - 1] : 1 : 0;
}

/* Fills the tables of roots. `all` has the roots of unity of order p->n as (re, im). */
static bool lay_roots(moth_fft_plan *p, const double *all) {
  const int64_t n = p->n;
  int64_t m = p->m, at = 0, size = 0;
  for (int i = 0; i < p->passes; i++) {
    m /= p->radix[i];
    size += 2 * m * (p->radix[i] - 1);
  }
  if (!(p->root = table_of(p, size))) return false;
  m = p->m;
  for (int i = 0; i < p->passes; i++) {
    const int r = p->radix[i];
    const int64_t step = n / m;
    m /= r;
    for (int64_t j = 0; j < m; j++)
      for (int k = 1; k < r; k++, at += 2) {
        put(p, p->root, at, all[2 * (j * k * step % n)]);
        put(p, p->root, at + 1, all[2 * (j * k * step % n) + 1]);
      }
    if (r % 2 == 0 || r <= 7) continue;
    if (!(p->unit[i] = table_of(p, 2 * r))) return false;
    for (int k = 0; k < r; k++) {
      put(p, p->unit[i], 2 * k, all[2 * (k * (n / r))]);
      put(p, p->unit[i], 2 * k + 1, -all[2 * (k * (n / r)) + 1]);
    }
  }
  return true;
}

static bool lay_turn(moth_fft_plan *p, const double *all) {
  const int64_t v = p->lanes, step = p->n / p->count, wide = (p->m + v - 1) / v * v;
  if (!(p->twiddle = table_of(p, 2 * v * wide))) return false;
  for (int64_t k = 0; k < wide; k++)
    for (int64_t j = 0; j < v; j++) {
      const int64_t at = 2 * v * (k / v * v + j) + k % v, root = j * (k % p->m) * step % p->n;
      put(p, p->twiddle, at, all[2 * root]);
      put(p, p->twiddle, at + v, all[2 * root + 1]);
    }
  return true;
}

static bool lay_half(moth_fft_plan *p, const double *all) {
  if (!(p->half = table_of(p, 2 * p->count))) return false;
  for (int64_t k = 0; k < p->count; k++) {
    put(p, p->half, k, all[2 * k]);
    put(p, p->half, p->count + k, all[2 * k + 1]);
  }
  return true;
}

static void drop(moth_fft_plan *p) {
  if (!p) return;
  drop(p->wide);
  for (int i = 0; i < p->passes; i++) free(p->unit[i]);
  free(p->root);
  free(p->twiddle);
  free(p->half);
  free(p->chirp);
  free(p->filter);
  free(p);
}

static moth_fft_plan *plan_new(moth_ctx *ctx, int dtype, int64_t n, bool halved, way w);

/* Fills the chirp and the transform of its inverse, which is computed in f64. */
static bool lay_chirp(moth_ctx *ctx, moth_fft_plan *p) {
  const int64_t n = p->count;
  int64_t all = 4 * (int64_t)p->lanes;
  while (all < 2 * n - 1) all *= 2;
  if (all / 4 * 3 >= 2 * n - 1 && all / 4 % p->lanes == 0) all = all / 4 * 3;
  p->wide = plan_new(ctx, p->dtype, all, false, (way){MOTH_FFT_ROWS, p->lanes});
  p->chirp = table_of(p, 2 * n);
  p->filter = table_of(p, 2 * all);
  double *z = calloc((size_t)(4 * all), sizeof *z), *y = z + 2 * all;
  bool done = p->wide && p->chirp && p->filter && z;
  for (int64_t k = 0, square = 0; done && k < n; k++) { /* square: k^2 modulo 2 n */
    double re, im;
    root_of(square, 2 * n, &re, &im);
    put(p, p->chirp, 2 * k, re);
    put(p, p->chirp, 2 * k + 1, im);
    z[2 * k] = z[2 * ((all - k) % all)] = re;
    z[2 * k + 1] = z[2 * ((all - k) % all) + 1] = -im;
    square = (square + 2 * k + 1) % (2 * n);
  }
  const moth_fft f = {.kind = MOTH_FFT_COMPLEX, .n = all, .outer = 1, .inner = 1,
                      .scale = 1 / (double)all};
  done = done && !moth_fft_run(ctx, MOTH_F64, &f, z, y);
  for (int64_t k = 0; done && k < 2 * all; k++) put(p, p->filter, k, y[k]);
  free(z);
  if (p->wide) p->bytes += p->wide->bytes;
  return done;
}

static moth_fft_plan *plan_new(moth_ctx *ctx, int dtype, int64_t n, bool halved, way w) {
  const bool chirp = w.way == MOTH_FFT_CHIRP;
  moth_fft_plan *p = calloc(1, sizeof *p);
  double *all = chirp && !halved ? NULL : malloc((size_t)(2 * n) * sizeof *all);
  bool done = p && (all || (chirp && !halved));
  for (int64_t k = 0; all && k < n; k++) root_of(k, n, &all[2 * k], &all[2 * k + 1]);
  if (done) {
    *p = (moth_fft_plan){.dtype = dtype, .way = w.way, .lanes = w.lanes, .halved = halved,
                         .n = n, .count = halved ? n / 2 : n};
    p->m = w.way == MOTH_FFT_ROWS ? p->count / p->lanes : p->count;
    done = chirp ? lay_chirp(ctx, p) : factor(p, p->m) && lay_roots(p, all);
    if (w.way == MOTH_FFT_ROWS) done = done && lay_turn(p, all);
    if (halved) done = done && lay_half(p, all);
  }
  free(all);
  if (done) return p;
  drop(p);
  if (!ctx->error.code)
    moth_fail(ctx, MOTH_E_MEM, NULL, "no memory for a transform of length %lld", (long long)n);
  return NULL;
}

void moth_fft_forget(moth_ctx *ctx) {
  while (ctx->ffts) {
    moth_fft_plan *p = ctx->ffts;
    ctx->ffts = p->next;
    drop(p);
  }
}

/* The context's plan for this transform; the least recently used plans are freed. */
static moth_fft_plan *plan_of(moth_ctx *ctx, int dtype, int64_t n, bool halved, way w) {
  moth_fft_plan **at = &ctx->ffts, *p;
  for (; (p = *at); at = &p->next)
    if (p->n == n && p->dtype == dtype && p->halved == halved && p->way == w.way &&
        p->lanes == w.lanes)
      break;
  if (p) *at = p->next;
  else if (!(p = plan_new(ctx, dtype, n, halved, w))) return NULL;
  p->next = ctx->ffts;
  ctx->ffts = p;
  int64_t bytes = p->bytes;
  int count = 1;
  for (at = &p->next; *at;) {
    moth_fft_plan *old = *at;
    bytes += old->bytes;
    if ((++count <= MOST_PLANS && bytes <= MOST_BYTES) || old->users) {
      at = &old->next;
      continue;
    }
    *at = old->next;
    drop(old);
  }
  return p;
}

/* Chooses the method. Long signals use ROWS: from lanes^2 numbers on, the last step fills all
** lanes. A few short signals use ROWS too, if need be with fewer lanes. */
static way way_of(int dtype, const moth_fft *f, int64_t count) {
  const int most = lanes_of(dtype), largest = largest_factor(count);
  const int64_t signals = f->outer * f->inner;
  if (!largest) return (way){MOTH_FFT_CHIRP, most};
  if (f->inner == 1 && count % most == 0 && count >= 2 * most && count >= most * most)
    return (way){MOTH_FFT_ROWS, most};
  for (int lanes = most; signals < most && 16 <= lanes * moth_dtype_size[dtype]; lanes /= 2)
    if (count % lanes == 0 && count >= 2 * lanes) return (way){MOTH_FFT_ROWS, lanes};
  if (largest > CHIRP_STEPS && (signals + most - 1) / most * largest > CHIRP_STEPS * signals)
    return (way){MOTH_FFT_CHIRP, most};
  return (way){MOTH_FFT_COLUMNS, most};
}

/* -- signals -- */

/* The layout of the input or of the output. Numbers are complex or real; real ones are read singly
** or in pairs. */
static moth_fft_side side_of(const moth_fft *f, const void *base, int64_t n, bool complex,
                             bool halved) {
  const int64_t unit = complex ? 2 : 1, inner = f->inner, pair = complex || halved ? 2 : 1;
  const int64_t reals = complex ? n : f->n;
  return (moth_fft_side){.base = (char *)(uintptr_t)base, .n = n, .inner = inner, .unit = unit,
                         .outer = reals * inner * unit, .step = pair * inner,
                         .other = complex ? 1 : halved ? inner : 0};
}

int moth_fft_run(moth_ctx *ctx, int dtype, const moth_fft *f, const void *x, void *y) {
  const bool from = f->kind == MOTH_FFT_FROM_HALF, to = f->kind == MOTH_FFT_TO_HALF;
  const bool halved = f->kind != MOTH_FFT_COMPLEX && f->n % 2 == 0;
  const int64_t count = halved ? f->n / 2 : f->n, coefficients = f->n / 2 + 1;
  const way w = way_of(dtype, f, count);
  if (f->outer * f->inner == 0) return MOTH_OK;
  moth_fft_plan *plan = plan_of(ctx, dtype, f->n, halved, w);
  moth_fft_job j = {.f = f, .plan = plan,
                    .from = side_of(f, x, from ? coefficients : count, !to, halved),
                    .to = side_of(f, y, to ? coefficients : count, !from, halved),
                    .signals = f->outer * f->inner};
  if (!j.plan) return ctx->error.code;
  const moth_fft_plan *p = j.plan, *wide = p->wide ? p->wide : p;
  const bool columns = w.way == MOTH_FFT_COLUMNS;
  j.scratch_size = columns ? 4 * p->lanes * (f->n + 1)
                   : 6 * (f->n + 1) + 4 * (wide->m + p->lanes) * p->lanes + 2 * wide->count;
  j.scratch_size = (j.scratch_size + 15) / 16 * 16;
  const int64_t items = columns ? (j.signals + p->lanes - 1) / p->lanes : j.signals;
  const int64_t lanes = items > 1 ? moth_lanes(ctx) : 1;
  const int64_t bytes = lanes * j.scratch_size * moth_dtype_size[dtype];
  if (!(j.scratch = moth_alloc(ctx, bytes))) return ctx->error.code;
  const double each = (double)wide->count * log2((double)wide->count + 1) * 0.05;
  const double cost = 50 + each * (columns ? p->lanes : p->wide ? 4 : 1);
  plan->users++;
  const int status = moth_parallel(ctx, items, 1, cost,
                                   columns ? FOR_LANES(dtype, w.lanes, columns)
                                           : FOR_LANES(dtype, w.lanes, rows), &j);
  plan->users--;
  moth_dealloc(ctx, j.scratch, bytes);
  return status;
}
