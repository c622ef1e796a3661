/* pool.c -- pooling: plane by plane, a window at a time. */
#include "pool.h"

#include <math.h>

/* What the sum over a window is divided by; 0: it has no element. */
static int64_t divisor(const moth_pool *p, int64_t oy, int64_t ox) {
  int64_t n = 1, at[2] = {oy, ox};
  for (int i = 0; i < 2; i++) {
    int64_t first, last;
    moth_window_clip(&p->w, i, at[i], &first, &last);
    if (first >= last) return 0;
    int64_t start = at[i] * p->w.stride[i] - p->w.padding[i];
    int64_t room = p->w.in[i] + p->w.padding[i] - start; /* the far border counts, beyond it not */
    n *= !p->count_padding ? last - first : room < p->w.kernel[i] ? room : p->w.kernel[i];
  }
  return p->divisor ? p->divisor : n;
}

static int64_t share_from(const moth_shares *p, int axis, int64_t at) {
  return at * p->in[axis] / p->out[axis];
}
static int64_t share_to(const moth_shares *p, int axis, int64_t at) {
  return ((at + 1) * p->in[axis] + p->out[axis] - 1) / p->out[axis];
}

#define REAL float
#define NAME(f) f##_f32
#include "pool_real.h"
#undef REAL
#undef NAME
#define REAL double
#define NAME(f) f##_f64
#include "pool_real.h"
#undef REAL
#undef NAME

#define EACH_PLANE(planes) \
  for (int64_t plane = 0; plane < (planes); plane++) \
    if ((plane & 63) == 0 && moth_cancelled(ctx)) return moth_poll(ctx); \
    else

int moth_max_pool(moth_ctx *ctx, int dtype, const moth_pool *p, const void *x, void *y,
                  int64_t *index) {
  const moth_window *w = &p->w;
  int64_t room = w->in[0] * w->in[1], n = w->out[0] * w->out[1];
  bool inside = true;
  for (int i = 0; i < 2; i++) {
    int64_t last = (w->out[i] - 1) * w->stride[i] + (w->kernel[i] - 1) * w->dilation[i];
    inside = inside && !w->padding[i] && last < w->in[i];
  }
  int64_t size = inside && w->kernel[0] == w->kernel[1] ? w->kernel[0] : 0;
  EACH_PLANE(p->planes) {
    int64_t *k = index + plane * n;
    if (dtype == MOTH_F32) {
      const float *from = (const float *)x + plane * room;
      float *to = (float *)y + plane * n;
      if (size == 2) max_plane_inside_f32(w, from, to, k, 2);
      else if (size == 3) max_plane_inside_f32(w, from, to, k, 3);
      else max_plane_f32(w, from, to, k);
    } else {
      const double *from = (const double *)x + plane * room;
      double *to = (double *)y + plane * n;
      if (size == 2) max_plane_inside_f64(w, from, to, k, 2);
      else max_plane_f64(w, from, to, k);
    }
  }
  return MOTH_OK;
}

int moth_mean_pool(moth_ctx *ctx, int dtype, const moth_pool *p, const void *x, void *y) {
  int64_t room = p->w.in[0] * p->w.in[1], n = p->w.out[0] * p->w.out[1];
  EACH_PLANE(p->planes) {
    if (dtype == MOTH_F32)
      mean_plane_f32(p, (const float *)x + plane * room, (float *)y + plane * n);
    else mean_plane_f64(p, (const double *)x + plane * room, (double *)y + plane * n);
  }
  return MOTH_OK;
}

int moth_mean_pool_back(moth_ctx *ctx, int dtype, const moth_pool *p, const void *dy, void *dx) {
  int64_t room = p->w.in[0] * p->w.in[1], n = p->w.out[0] * p->w.out[1];
  if (p->planes) memset(dx, 0, (size_t)(p->planes * room) * moth_dtype_size[dtype]);
  EACH_PLANE(p->planes) {
    if (dtype == MOTH_F32)
      mean_plane_back_f32(p, (const float *)dy + plane * n, (float *)dx + plane * room);
    else mean_plane_back_f64(p, (const double *)dy + plane * n, (double *)dx + plane * room);
  }
  return MOTH_OK;
}

int moth_max_shares(moth_ctx *ctx, int dtype, const moth_shares *p, const void *x, void *y,
                    int64_t *index) {
  int64_t room = p->in[0] * p->in[1], n = p->out[0] * p->out[1];
  EACH_PLANE(p->planes) {
    int64_t *k = index + plane * n;
    if (dtype == MOTH_F32)
      max_shares_f32(p, (const float *)x + plane * room, (float *)y + plane * n, k);
    else max_shares_f64(p, (const double *)x + plane * room, (double *)y + plane * n, k);
  }
  return MOTH_OK;
}

int moth_mean_shares(moth_ctx *ctx, int dtype, const moth_shares *p, const void *x, void *y) {
  int64_t room = p->in[0] * p->in[1], n = p->out[0] * p->out[1];
  EACH_PLANE(p->planes) {
    if (dtype == MOTH_F32)
      mean_shares_f32(p, (const float *)x + plane * room, (float *)y + plane * n);
    else mean_shares_f64(p, (const double *)x + plane * room, (double *)y + plane * n);
  }
  return MOTH_OK;
}

int moth_mean_shares_back(moth_ctx *ctx, int dtype, const moth_shares *p, const void *dy,
                          void *dx) {
  int64_t room = p->in[0] * p->in[1], n = p->out[0] * p->out[1];
  if (p->planes) memset(dx, 0, (size_t)(p->planes * room) * moth_dtype_size[dtype]);
  EACH_PLANE(p->planes) {
    if (dtype == MOTH_F32)
      mean_shares_back_f32(p, (const float *)dy + plane * n, (float *)dx + plane * room);
    else mean_shares_back_f64(p, (const double *)dy + plane * n, (double *)dx + plane * room);
  }
  return MOTH_OK;
}

/* Do all positions lie in their plane, or are they -1? */
static int check_positions(moth_ctx *ctx, int64_t planes, int64_t n, int64_t room,
                           const int64_t *index) {
  EACH_PLANE(planes) {
    const int64_t *at = index + plane * n;
    bool outside = false;
    for (int64_t i = 0; i < n; i++) outside |= (uint64_t)at[i] + 1 > (uint64_t)room;
    if (outside)
      return moth_fail(ctx, MOTH_E_INDEX, "indices",
                       "a position lies outside the plane's %lld elements", (long long)room);
  }
  return MOTH_OK;
}

int moth_pool_scatter(moth_ctx *ctx, int dtype, int64_t planes, int64_t n, int64_t room,
                      const void *dy, const int64_t *index, void *dx) {
  int status = check_positions(ctx, planes, n, room, index);
  if (status) return status;
  if (planes) memset(dx, 0, (size_t)(planes * room) * moth_dtype_size[dtype]);
  EACH_PLANE(planes) {
    const int64_t *at = index + plane * n;
    if (dtype == MOTH_F32)
      scatter_plane_f32(n, (const float *)dy + plane * n, at, (float *)dx + plane * room);
    else scatter_plane_f64(n, (const double *)dy + plane * n, at, (double *)dx + plane * room);
  }
  return MOTH_OK;
}

int moth_pool_gather(moth_ctx *ctx, int dtype, int64_t planes, int64_t n, int64_t room,
                     const void *x, const int64_t *index, void *y) {
  int status = check_positions(ctx, planes, n, room, index);
  if (status) return status;
  EACH_PLANE(planes) {
    const int64_t *at = index + plane * n;
    if (dtype == MOTH_F32)
      gather_plane_f32(n, (const float *)x + plane * room, at, (float *)y + plane * n);
    else gather_plane_f64(n, (const double *)x + plane * room, at, (double *)y + plane * n);
  }
  return MOTH_OK;
}
