/* pool.c -- pooling: divides the planes among threads; pool_real.h has the loops. */
#include "pool.h"
#include "base/error.h"

#include <math.h>
#include <stdatomic.h>

#include "base/threads.h"

#define PAUSE_ROWS 16 /* rows of results between two calls of moth_pause */

#define ROW_RESULTS 256 /* results of a row that are computed at a time */
#define FEWEST_INSIDE 4 /* with fewer windows inside a row, the fast loops are not worth it */

typedef struct job {
  const moth_pool *p;
  const moth_shares *s;
  const void *x;
  void *y;
  int64_t *index;
  int64_t area, n;  /* elements of a plane of the input, and of the results */
  int64_t from, to; /* the windows from..to-1 of a row are inside it */
  int64_t top, bottom; /* the rows top..bottom-1 of windows are inside the plane */
  /* this many results after `to` may be computed: they read inside the plane, and the next row
  ** overwrites them */
  int64_t spare;
  bool tiles;       /* the windows cover the plane without overlap */
  atomic_bool *outside; /* set if a position is outside its plane */
} job;

/* The divisor of a window's sum; 0 if the window has no element. */
static int64_t divisor(const moth_pool *p, int64_t oy, int64_t ox) {
  int64_t n = 1, at[2] = {oy, ox};
  for (int i = 0; i < 2; i++) {
    int64_t first, last;
    moth_window_clip(&p->w, i, at[i], &first, &last);
    if (first >= last) return 0;
    int64_t start = at[i] * p->w.stride[i] - p->w.padding[i];
    /* left: elements up to the far border, with padding */
    int64_t left = p->w.in[i] + p->w.padding[i] - start;
    n *= !p->count_padding ? last - first : left < p->w.kernel[i] ? left : p->w.kernel[i];
  }
  return p->divisor ? p->divisor : n;
}

static int64_t share_from(const moth_shares *p, int axis, int64_t at) {
  return at * p->in[axis] / p->out[axis];
}
static int64_t share_to(const moth_shares *p, int axis, int64_t at) {
  return ((at + 1) * p->in[axis] + p->out[axis] - 1) / p->out[axis];
}

typedef int32_t bits_f32, bits_avx2, bits_avx512;
typedef int64_t bits_f64;
static const int64_t numbers[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

#define LOOPS "kernel/pool_real.h"
#include "each_level.h"

#define RUN(f, planes, cost)                                                              \
  moth_parallel(ctx, planes, 1, cost, dtype == MOTH_F32 ? MOTH_BEST(f) : f##_f64, &j)

/* -- windows -- */

/* The windows first..last-1 of an axis that are inside the plane. */
static void inside(const moth_window *w, int axis, int64_t *first, int64_t *last) {
  int64_t s = w->stride[axis], reach = (w->kernel[axis] - 1) * w->dilation[axis];
  /* end: the start of the last window that fits */
  int64_t end = w->in[axis] - 1 - reach + w->padding[axis];
  *first = (w->padding[axis] + s - 1) / s;
  *last = end < 0 ? 0 : end / s + 1;
  if (*last > w->out[axis]) *last = w->out[axis];
}

static job windows(const moth_pool *p, const void *x, void *y) {
  const moth_window *w = &p->w;
  job j = {.p = p, .x = x, .y = y, .area = w->in[0] * w->in[1], .n = w->out[0] * w->out[1]};
  int64_t s = w->stride[1];
  inside(w, 0, &j.top, &j.bottom);
  inside(w, 1, &j.from, &j.to);
  if (j.area > INT32_MAX || j.to - j.from < FEWEST_INSIDE) j.from = j.to = w->out[1];
  j.spare = w->stride[0] * w->in[1] / s;
  if (j.spare > w->out[1]) j.spare = w->out[1];
  j.tiles = true;
  for (int i = 0; i < 2; i++)
    j.tiles = j.tiles && !w->padding[i] && w->kernel[i] == w->stride[i] &&
              w->in[i] == w->out[i] * w->stride[i];
  if (j.from > 0) j.tiles = false; /* windows computed one by one add to dx */
  return j;
}

/* Estimated ns for a plane; each: ns for a tap. */
static double cost_of(const moth_pool *p, double each) {
  const moth_window *w = &p->w;
  double taps = (double)w->kernel[0] * (double)w->kernel[1];
  return each * (double)(w->out[0] * w->out[1]) * (taps < 1e6 ? taps : 1e6);
}

int moth_max_pool(moth_ctx *ctx, int dtype, const moth_pool *p, const void *x, void *y,
                  int64_t *index) {
  job j = windows(p, x, y);
  j.index = index;
  return RUN(max_planes, p->planes, cost_of(p, 0.2));
}

int moth_mean_pool(moth_ctx *ctx, int dtype, const moth_pool *p, const void *x, void *y) {
  job j = windows(p, x, y);
  return RUN(mean_planes, p->planes, cost_of(p, 0.15));
}

int moth_mean_pool_back(moth_ctx *ctx, int dtype, const moth_pool *p, const void *dy, void *dx) {
  job j = windows(p, dy, dx);
  return RUN(mean_planes_back, p->planes, cost_of(p, 0.2));
}

/* -- adaptive pooling: each result has a share of the input -- */

static job shares(const moth_shares *p, const void *x, void *y) {
  return (job){.s = p, .x = x, .y = y, .area = p->in[0] * p->in[1], .n = p->out[0] * p->out[1]};
}

int moth_max_shares(moth_ctx *ctx, int dtype, const moth_shares *p, const void *x, void *y,
                    int64_t *index) {
  if (p->out[0] && p->out[1] && p->in[0] % p->out[0] == 0 && p->in[1] % p->out[1] == 0) {
    /* Windows of equal size have vector loops, three times as fast for windows of 16. */
    const int64_t high = p->in[0] / p->out[0], wide = p->in[1] / p->out[1];
    const moth_pool even = {.planes = p->planes,
                            .w = {.axes = 2, .in = {p->in[0], p->in[1]},
                                  .out = {p->out[0], p->out[1]}, .kernel = {high, wide},
                                  .stride = {high, wide}, .dilation = {1, 1}}};
    return moth_max_pool(ctx, dtype, &even, x, y, index);
  }
  job j = shares(p, x, y);
  j.index = index;
  return RUN(max_shares, p->planes, (double)(j.area + j.n));
}

int moth_mean_shares(moth_ctx *ctx, int dtype, const moth_shares *p, const void *x, void *y) {
  job j = shares(p, x, y);
  return RUN(mean_shares, p->planes, 0.2 * (double)j.area + (double)j.n);
}

int moth_mean_shares_back(moth_ctx *ctx, int dtype, const moth_shares *p, const void *dy,
                          void *dx) {
  job j = shares(p, dy, dx);
  return RUN(mean_shares_back, p->planes, 0.2 * (double)j.area + (double)j.n);
}

/* -- positions -- */

static int checked(moth_ctx *ctx, int status, const job *j) {
  if (status || !atomic_load(j->outside)) return status;
  return moth_fail(ctx, MOTH_E_INDEX, "indices",
                   "a position lies outside the plane's %lld elements", (long long)j->area);
}

int moth_pool_scatter(moth_ctx *ctx, int dtype, int64_t planes, int64_t n, int64_t area,
                      const void *dy, const int64_t *index, void *dx) {
  atomic_bool outside = false;
  job j = {.x = dy, .y = dx, .index = (int64_t *)(uintptr_t)index, .area = area, .n = n,
           .outside = &outside};
  return checked(ctx, RUN(scatter_planes, planes, 0.1 * (double)area + (double)n), &j);
}

int moth_pool_gather(moth_ctx *ctx, int dtype, int64_t planes, int64_t n, int64_t area,
                     const void *x, const int64_t *index, void *y) {
  atomic_bool outside = false;
  job j = {.x = x, .y = y, .index = (int64_t *)(uintptr_t)index, .area = area, .n = n,
           .outside = &outside};
  return checked(ctx, RUN(gather_planes, planes, (double)n), &j);
}
