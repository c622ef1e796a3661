/* resize.c -- resize: tables of taps for both axes, then loops over planes. */
#include "resize.h"
#include "base/alloc.h"

#include "base/threads.h"

#define PAUSE_ROW 128 /* after a row of so many results moth_pause is called */

typedef struct taps { /* element i of the result is the sum over k of w[k][i] * x[at[k][i]] */
  int64_t n, *at;
  void *weight; /* in the compute dtype */
  int64_t bytes;
} taps;

typedef struct job {
  const moth_resize *r;
  taps t[2];
  int count;
  const void *x;
  void *y, *scratch;         /* scratch: rows of the result's width, `each` elements for a thread */
  int64_t from, to, each; /* elements of a plane of the image, and of the result */
} job;

static void fill(const moth_resize *r, int dtype, int axis, int count, const taps *t) {
  const moth_axis a = {r->in[axis], r->out[axis], r->mode, r->align, r->scale[axis]};
  const bool single = dtype == MOTH_F32;
  for (int64_t i = 0; i < t->n; i++) {
    int64_t to[MOTH_MOST_TAPS] = {0};
    double weight[MOTH_MOST_TAPS] = {0};
    moth_taps_of(&a, single, i, to, weight);
    for (int k = 0; k < count; k++) {
      t->at[k * t->n + i] = to[k];
      if (single) ((float *)t->weight)[k * t->n + i] = (float)weight[k];
      else ((double *)t->weight)[k * t->n + i] = weight[k];
    }
  }
}

static void drop(moth_ctx *ctx, job *j, int64_t size) {
  for (int axis = 0; axis < 2; axis++)
    if (j->t[axis].at) moth_dealloc(ctx, j->t[axis].at, j->t[axis].bytes);
  if (j->scratch) moth_dealloc(ctx, j->scratch, moth_lanes(ctx) * j->each * size);
}

/* Tables of taps, and a thread's rows. */
static int prepare(moth_ctx *ctx, job *j, int dtype, int64_t size) {
  const moth_resize *r = j->r;
  j->count = moth_taps_count(r->mode);
  j->from = r->in[0] * r->in[1];
  j->to = r->out[0] * r->out[1];
  j->each = r->out[1] * j->count;
  for (int axis = 0; axis < 2; axis++) {
    taps *t = &j->t[axis];
    t->n = r->out[axis];
    t->bytes = t->n * j->count * (8 + size);
    t->at = moth_alloc(ctx, t->bytes);
    if (!t->at) break;
    t->weight = t->at + t->n * j->count;
    fill(r, dtype, axis, j->count, t);
  }
  if (j->t[1].at) j->scratch = moth_alloc(ctx, moth_lanes(ctx) * j->each * size);
  if (j->scratch) return MOTH_OK;
  drop(ctx, j, size);
  return ctx->error.code;
}

#define LOOPS "kernel/resize_real.h"
#include "each_level.h"

#define RUN(f)                                                                             \
  moth_parallel(ctx, r->planes, 1, (double)(j.from + j.count * j.to) * 0.25,               \
                dtype == MOTH_F32 ? MOTH_BEST(f) : f##_f64, &j)

int moth_resize_forward(moth_ctx *ctx, int dtype, const moth_resize *r, const void *x, void *y) {
  job j = {.r = r, .x = x, .y = y};
  int status = prepare(ctx, &j, dtype, moth_dtype_size[dtype]);
  if (status) return status;
  status = RUN(planes);
  drop(ctx, &j, moth_dtype_size[dtype]);
  return status;
}

int moth_resize_back(moth_ctx *ctx, int dtype, const moth_resize *r, const void *dy, void *dx) {
  job j = {.r = r, .x = dy, .y = dx};
  int status = prepare(ctx, &j, dtype, moth_dtype_size[dtype]);
  if (status) return status;
  status = RUN(planes_back);
  drop(ctx, &j, moth_dtype_size[dtype]);
  return status;
}
