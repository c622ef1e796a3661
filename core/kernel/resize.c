/* resize.c -- resampling: tables of taps for both axes, then loops over planes.
**
** Where an element of the result stands in the image, and in which precision that is worked out, is
** PyTorch's to the bit: half a step decides which neighbour `nearest` takes.
*/
#include "resize.h"

#include <math.h>

typedef struct taps { /* element i of the result is the sum of weight[i][k] * x[at[i][k]] */
  int count;
  int64_t *at;
  double *weight;
  int64_t bytes;
} taps;

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

static void fill(const moth_resize *r, int dtype, int axis, const taps *t) {
  for (int64_t i = 0; i < r->out[axis]; i++) {
    int64_t *to = t->at + i * t->count;
    double *weight = t->weight + i * t->count;
    double step = step_of(r, axis), at;
    if (r->mode <= MOTH_NEAREST_EXACT) {
      to[0] = nearest(r, axis, i);
      weight[0] = 1;
      continue;
    }
    if (dtype == MOTH_F32) {
      float s = (float)step;
      at = r->align ? s * (float)i : s * ((float)i + 0.5f) - 0.5f;
    } else {
      at = r->align ? step * (double)i : step * ((double)i + 0.5) - 0.5;
    }
    if (r->mode == MOTH_LINEAR && r->in[axis] == r->out[axis]) at = (double)i;
    if (r->mode == MOTH_LINEAR) linear(r, axis, at, to, weight);
    else cubic(r, axis, at, to, weight);
  }
}

static int make_taps(moth_ctx *ctx, const moth_resize *r, int dtype, taps t[2]) {
  int count = r->mode == MOTH_LINEAR ? 2 : r->mode == MOTH_CUBIC ? 4 : 1;
  for (int axis = 0; axis < 2; axis++) {
    t[axis] = (taps){.count = count, .bytes = r->out[axis] * count * 8};
    t[axis].at = moth_alloc(ctx, 2 * t[axis].bytes);
    if (!t[axis].at) {
      if (axis) moth_dealloc(ctx, t[0].at, 2 * t[0].bytes);
      return ctx->error.code;
    }
    t[axis].weight = (double *)(void *)(t[axis].at + r->out[axis] * count);
    fill(r, dtype, axis, &t[axis]);
  }
  return MOTH_OK;
}

static void drop_taps(moth_ctx *ctx, taps t[2]) {
  for (int axis = 0; axis < 2; axis++) moth_dealloc(ctx, t[axis].at, 2 * t[axis].bytes);
}

/* N, the number of taps, is a constant where these are called: the compiler unrolls them. */
#define PLANES(name, REAL)                                                                        \
  static inline void gather_##name(const moth_resize *r, const taps *t, const REAL *x, REAL *y,   \
                                   const int N) {                                                 \
    for (int64_t oy = 0; oy < r->out[0]; oy++)                                                    \
      for (int64_t ox = 0; ox < r->out[1]; ox++) {                                                \
        const int64_t *rows = t[0].at + oy * N, *cols = t[1].at + ox * N;                         \
        const double *down = t[0].weight + oy * N, *right = t[1].weight + ox * N;                 \
        REAL sum = 0;                                                                             \
        for (int i = 0; i < N; i++) {                                                             \
          const REAL *row = x + rows[i] * r->in[1];                                               \
          REAL part = 0;                                                                          \
          for (int k = 0; k < N; k++) part += (REAL)right[k] * row[cols[k]];                      \
          sum += (REAL)down[i] * part;                                                            \
        }                                                                                         \
        *y++ = sum;                                                                               \
      }                                                                                           \
  }                                                                                               \
  static inline void scatter_##name(const moth_resize *r, const taps *t, const REAL *dy,          \
                                    REAL *dx, const int N) {                                      \
    for (int64_t oy = 0; oy < r->out[0]; oy++)                                                    \
      for (int64_t ox = 0; ox < r->out[1]; ox++, dy++) {                                          \
        const int64_t *rows = t[0].at + oy * N, *cols = t[1].at + ox * N;                         \
        const double *down = t[0].weight + oy * N, *right = t[1].weight + ox * N;                 \
        for (int i = 0; i < N; i++)                                                               \
          for (int k = 0; k < N; k++)                                                             \
            dx[rows[i] * r->in[1] + cols[k]] += (REAL)down[i] * (REAL)right[k] * *dy;             \
      }                                                                                           \
  }                                                                                               \
  static void plane_##name(const moth_resize *r, const taps *t, const REAL *x, REAL *y) {         \
    if (t->count == 1) /* a copy: 0 * inf must not come in */                                     \
      for (int64_t oy = 0; oy < r->out[0]; oy++)                                                  \
        for (int64_t ox = 0; ox < r->out[1]; ox++)                                                \
          *y++ = x[t[0].at[oy] * r->in[1] + t[1].at[ox]];                                         \
    else if (t->count == 2) gather_##name(r, t, x, y, 2);                                         \
    else gather_##name(r, t, x, y, 4);                                                            \
  }                                                                                               \
  static void plane_back_##name(const moth_resize *r, const taps *t, const REAL *dy, REAL *dx) {  \
    if (t->count == 1) scatter_##name(r, t, dy, dx, 1);                                           \
    else if (t->count == 2) scatter_##name(r, t, dy, dx, 2);                                      \
    else scatter_##name(r, t, dy, dx, 4);                                                         \
  }
PLANES(f32, float)
PLANES(f64, double)

int moth_resize_forward(moth_ctx *ctx, int dtype, const moth_resize *r, const void *x, void *y) {
  taps t[2];
  const int64_t from = r->in[0] * r->in[1], to = r->out[0] * r->out[1];
  int status = make_taps(ctx, r, dtype, t);
  if (status) return status;
  for (int64_t p = 0; p < r->planes && !status; p++) {
    if (dtype == MOTH_F32) plane_f32(r, t, (const float *)x + p * from, (float *)y + p * to);
    else plane_f64(r, t, (const double *)x + p * from, (double *)y + p * to);
    if ((p & 15) == 15 && moth_cancelled(ctx)) status = moth_poll(ctx);
  }
  drop_taps(ctx, t);
  return status;
}

int moth_resize_back(moth_ctx *ctx, int dtype, const moth_resize *r, const void *dy, void *dx) {
  taps t[2];
  const int64_t from = r->in[0] * r->in[1], to = r->out[0] * r->out[1];
  int status = make_taps(ctx, r, dtype, t);
  if (status) return status;
  if (r->planes) memset(dx, 0, (size_t)(r->planes * from) * moth_dtype_size[dtype]);
  for (int64_t p = 0; p < r->planes && !status; p++) {
    if (dtype == MOTH_F32)
      plane_back_f32(r, t, (const float *)dy + p * to, (float *)dx + p * from);
    else plane_back_f64(r, t, (const double *)dy + p * to, (double *)dx + p * from);
    if ((p & 15) == 15 && moth_cancelled(ctx)) status = moth_poll(ctx);
  }
  drop_taps(ctx, t);
  return status;
}
