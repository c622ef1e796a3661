/* resize.c -- resampling: tables of taps for both axes, then loops over planes.
**
** Where an element of the result stands in the image, and in which precision that is worked out, is
** PyTorch's to the bit: half a step decides which neighbour `nearest` takes.
*/
#include "resize.h"

#include <math.h>

#include "../threads.h"

typedef struct taps { /* element i of the result is the sum over k of w[k][i] * x[at[k][i]] */
  int64_t n, *at;
  void *weight; /* in the dtype computed in */
  int64_t bytes;
} taps;

typedef struct job {
  const moth_resize *r;
  taps t[2];
  int count;
  const void *x;
  void *y, *room;         /* room: rows of the result's width, `each` elements for a thread */
  int64_t from, to, each; /* elements of a plane of the image, and of the result */
} job;

/* Elements of the image per element of the result. */
static double step_of(const moth_resize *r, int axis) {
  const double in = (double)r->in[axis], out = (double)r->out[axis];
  if (r->align && r->mode >= MOTH_LINEAR) return out > 1 ? (in - 1) / (out - 1) : 0;
  return r->scale[axis] > 0 ? 1 / r->scale[axis] : in / out;
}

static int64_t nearest(const moth_resize *r, int axis, int64_t i) {
  const float step = (float)step_of(r, axis);
  const float at = r->mode == MOTH_NEAREST ? (float)i * step : ((float)i + 0.5f) * step;
  const int64_t last = r->in[axis] - 1;
  if (!(at < 0x1p62f)) return last; /* a tiny scale: no integer is that large */
  const int64_t found = (int64_t)floorf(at);
  return found < last ? found : last;
}

static void linear(const moth_resize *r, int axis, double at, int64_t *to, double *weight) {
  const int64_t last = r->in[axis] - 1;
  at = at > 0 ? at : 0;
  if (at > (double)last + 1) at = (double)last + 1;
  to[0] = (int64_t)floor(at);
  if (to[0] > last) to[0] = last;
  to[1] = to[0] + (to[0] < last);
  weight[1] = at - (double)to[0];
  if (weight[1] > 1) weight[1] = 1;
  weight[0] = 1 - weight[1];
}

/* Keys (1981), with the coefficient -0.75. */
static void cubic(const moth_resize *r, int axis, double at, int64_t *to, double *weight) {
  const int64_t last = r->in[axis] - 1;
  if (at > (double)last + 2) at = (double)last + 2;
  const double A = -0.75, whole = floor(at), t = at - whole;
  const double near[2] = {t, 1 - t}, far[2] = {t + 1, 2 - t};
  for (int k = 0; k < 2; k++) {
    weight[1 + k] = ((A + 2) * near[k] - (A + 3)) * near[k] * near[k] + 1;
    weight[3 * k] = ((A * far[k] - 5 * A) * far[k] + 8 * A) * far[k] - 4 * A;
  }
  for (int k = 0; k < 4; k++) {
    int64_t place = (int64_t)whole - 1 + k;
    to[k] = place < 0 ? 0 : place > last ? last : place;
  }
}

static void fill(const moth_resize *r, int dtype, int axis, int count, const taps *t) {
  for (int64_t i = 0; i < t->n; i++) {
    int64_t to[4] = {0};
    double weight[4] = {1}, step = step_of(r, axis), at;
    if (dtype == MOTH_F32) {
      float s = (float)step;
      at = r->align ? s * (float)i : s * ((float)i + 0.5f) - 0.5f;
    } else {
      at = r->align ? step * (double)i : step * ((double)i + 0.5) - 0.5;
    }
    if (r->mode == MOTH_LINEAR && r->in[axis] == r->out[axis]) at = (double)i;
    if (r->mode <= MOTH_NEAREST_EXACT) to[0] = nearest(r, axis, i);
    else if (r->mode == MOTH_LINEAR) linear(r, axis, at, to, weight);
    else cubic(r, axis, at, to, weight);
    for (int k = 0; k < count; k++) {
      t->at[k * t->n + i] = to[k];
      if (dtype == MOTH_F32) ((float *)t->weight)[k * t->n + i] = (float)weight[k];
      else ((double *)t->weight)[k * t->n + i] = weight[k];
    }
  }
}

static void drop(moth_ctx *ctx, job *j, int64_t size) {
  for (int axis = 0; axis < 2; axis++)
    if (j->t[axis].at) moth_dealloc(ctx, j->t[axis].at, j->t[axis].bytes);
  if (j->room) moth_dealloc(ctx, j->room, moth_lanes(ctx) * j->each * size);
}

/* Tables of taps, and a thread's rows. */
static int prepare(moth_ctx *ctx, job *j, int dtype, int64_t size) {
  const moth_resize *r = j->r;
  j->count = r->mode == MOTH_LINEAR ? 2 : r->mode == MOTH_CUBIC ? 4 : 1;
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
  if (j->t[1].at) j->room = moth_alloc(ctx, moth_lanes(ctx) * j->each * size);
  if (j->room) return MOTH_OK;
  drop(ctx, j, size);
  return ctx->error.code;
}

#define LOOPS "resize_real.h"
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
