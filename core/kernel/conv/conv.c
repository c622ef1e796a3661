/* conv.c -- convolution as a matrix product, image by image: the windows become the columns of a
** matrix (im2col; Chellapilla, Puri & Simard 2006), which is multiplied by the filters. A 1x1
** kernel without stride or padding needs no copy. This code computes f64, machines without vector
** instructions, and shapes that the faster methods decline. f32 tries im2col.c first, bf16
** bf16_conv.c.
*/
#include "conv.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "base/alloc.h"
#include "base/threads.h"

#include "vendor/blas.h"
#include "depthwise.h"
#include "im2col.h"

#define REAL float
#define NAME(f) f##_f32
#include "conv_real.h"
#undef REAL
#undef NAME
#define REAL double
#define NAME(f) f##_f64
#include "conv_real.h"

/* True if im2col.c may compute this convolution. */
static bool suits(int dtype, const moth_conv *c) {
  return dtype == MOTH_F32 && c->n;
}

/* The sizes of the products of one image: filters (m, k) times columns (k, p) for each group. */
typedef struct plan {
  int64_t size;          /* bytes of an element */
  int64_t m, k, p;       /* filters and taps of a group; windows of an image */
  int64_t channels;      /* channels of a group */
  int64_t image;          /* elements of a group's channels */
  bool direct;           /* the image itself is the column matrix */
  int64_t bytes;
  char *col;
} plan;

static int plan_open(moth_ctx *ctx, int dtype, const moth_conv *c, plan *q) {
  const moth_window *w = &c->w;
  q->size = moth_dtype_size[dtype];
  q->m = c->filters / c->groups;
  q->channels = c->channels / c->groups;
  q->k = q->channels * w->kernel[0] * w->kernel[1];
  q->p = w->out[0] * w->out[1];
  q->image = q->channels * w->in[0] * w->in[1];
  q->direct = moth_window_is_plain(w);
  q->bytes = 0;
  q->col = NULL;
  if (q->direct) return MOTH_OK;
  if (moth_mul_overflow(q->k, q->p, &q->bytes) || moth_mul_overflow(q->bytes, q->size, &q->bytes))
    return moth_fail(ctx, MOTH_E_MEM, NULL, "the windows of one image are too many to lay out");
  q->col = moth_alloc(ctx, q->bytes);
  return q->col ? MOTH_OK : ctx->error.code;
}

static void plan_close(moth_ctx *ctx, plan *q) {
  if (q->col) moth_dealloc(ctx, q->col, q->bytes);
}

static const void *columns_of(int dtype, const moth_conv *c, const plan *q, const void *x) {
  if (q->direct) return x;
  if (dtype == MOTH_F32)
    image_to_columns_f32(&c->w, q->channels, x, (float *)(void *)q->col);
  else image_to_columns_f64(&c->w, q->channels, x, (double *)(void *)q->col);
  return q->col;
}

static void fill_bias(int dtype, int64_t m, int64_t p, const void *bias, void *y) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < p; j++) {
      if (dtype == MOTH_F32) ((float *)y)[i * p + j] = ((const float *)bias)[i];
      else ((double *)y)[i * p + j] = ((const double *)bias)[i];
    }
}

/* -- windows as large as their images: one matrix product for all images -- */

static bool is_whole(const moth_window *w) {
  for (int i = 0; i < 2; i++)
    if (w->out[i] != 1 || w->kernel[i] != w->in[i] || w->padding[i]) return false;
  return true;
}

static int whole_forward(moth_ctx *ctx, int dtype, const moth_conv *c, const char *x,
                         const char *weight, const char *bias, char *y) {
  int64_t m = c->filters / c->groups, size = moth_dtype_size[dtype], row = c->filters * size;
  int64_t k = c->channels / c->groups * c->w.in[0] * c->w.in[1];
  int status = MOTH_OK;
  for (int64_t n = 0; bias && n < c->n; n++) memcpy(y + n * row, bias, (size_t)row);
  for (int64_t g = 0; !status && g < c->groups; g++)
    status = moth_gemm(ctx, dtype, c->n, m, k, x + g * k * size, c->groups * k, 1,
                       weight + g * m * k * size, 1, k, y + g * m * size, c->filters,
                       bias != NULL);
  return status;
}

static int whole_input(moth_ctx *ctx, int dtype, const moth_conv *c, const char *dy,
                       const char *weight, char *dx) {
  int64_t m = c->filters / c->groups, size = moth_dtype_size[dtype];
  int64_t k = c->channels / c->groups * c->w.in[0] * c->w.in[1];
  int status = MOTH_OK;
  for (int64_t g = 0; !status && g < c->groups; g++)
    status = moth_gemm(ctx, dtype, c->n, k, m, dy + g * m * size, c->filters, 1,
                       weight + g * m * k * size, k, 1, dx + g * k * size, c->groups * k, 0);
  return status;
}

static int whole_weight(moth_ctx *ctx, int dtype, const moth_conv *c, const char *x,
                        const char *dy, char *dweight) {
  int64_t m = c->filters / c->groups, size = moth_dtype_size[dtype];
  int64_t k = c->channels / c->groups * c->w.in[0] * c->w.in[1];
  int status = MOTH_OK;
  for (int64_t g = 0; !status && g < c->groups; g++)
    status = moth_gemm(ctx, dtype, m, k, c->n, dy + g * m * size, 1, c->filters,
                       x + g * k * size, c->groups * k, 1, dweight + g * m * k * size, k, 0);
  return status;
}

/* -- forward, and the two gradients -- */

static bool suits_bf16(const moth_conv *c) {
  return c->n && !is_whole(&c->w) && !moth_is_depthwise(c);
}

int moth_conv_forward(moth_ctx *ctx, int dtype, const moth_conv *c, const void *x,
                      const void *weight, const void *bias, void *y) {
  plan q;
  int status = MOTH_DECLINED;
  if (dtype == MOTH_BF16)
    return suits_bf16(c) ? moth_bf16_conv_forward(ctx, c, x, weight, bias, y) : status;
  if (c->n && is_whole(&c->w)) return whole_forward(ctx, dtype, c, x, weight, bias, y);
  if (suits(dtype, c) && moth_is_depthwise(c))
    return moth_depthwise_forward(ctx, c, x, weight, bias, y);
  if (suits(dtype, c)) status = moth_winograd_forward(ctx, c, x, weight, bias, y);
  if (status == MOTH_DECLINED && suits(dtype, c))
    status = moth_im2col_forward(ctx, moth_tile_best(), c, x, weight, bias, y);
  if (status != MOTH_DECLINED) return status;
  status = plan_open(ctx, dtype, c, &q);
  for (int64_t i = 0; !status && i < c->n * c->groups; i++) { /* an item is a group of an image */
    int64_t group = i % c->groups;
    const char *xi = (const char *)x + i * q.image * q.size;
    const char *wi = (const char *)weight + group * q.m * q.k * q.size;
    char *yi = (char *)y + i * q.m * q.p * q.size;
    if (bias) fill_bias(dtype, q.m, q.p, (const char *)bias + group * q.m * q.size, yi);
    const void *col = columns_of(dtype, c, &q, xi);
    status = moth_gemm(ctx, dtype, q.m, q.p, q.k, wi, q.k, 1, col, q.p, 1, yi, q.p, bias != NULL);
    if (!status) status = moth_poll(ctx);
  }
  plan_close(ctx, &q);
  return status;
}

int moth_conv_input(moth_ctx *ctx, int dtype, const moth_conv *c, const void *dy,
                    const void *weight, void *dx) {
  plan q;
  int status = MOTH_DECLINED;
  if (dtype == MOTH_BF16)
    return suits_bf16(c) ? moth_bf16_conv_input(ctx, c, dy, weight, dx) : status;
  if (c->n && is_whole(&c->w)) return whole_input(ctx, dtype, c, dy, weight, dx);
  if (suits(dtype, c) && moth_is_depthwise(c))
    return moth_depthwise_input(ctx, c, dy, weight, dx);
  if (suits(dtype, c)) status = moth_winograd_input(ctx, c, dy, weight, dx);
  if (status == MOTH_DECLINED && suits(dtype, c))
    status = moth_im2col_input(ctx, moth_tile_best(), c, dy, weight, dx);
  if (status != MOTH_DECLINED) return status;
  status = plan_open(ctx, dtype, c, &q);
  if (!status && !q.direct && c->n) /* columns are added to dx */
    memset(dx, 0, (size_t)(c->n * c->groups * q.image * q.size));
  for (int64_t i = 0; !status && i < c->n * c->groups; i++) {
    const char *wi = (const char *)weight + i % c->groups * q.m * q.k * q.size;
    const char *dyi = (const char *)dy + i * q.m * q.p * q.size;
    char *dxi = (char *)dx + i * q.image * q.size, *to = q.direct ? dxi : q.col;
    status = moth_gemm(ctx, dtype, q.k, q.p, q.m, wi, 1, q.k, dyi, q.p, 1, to, q.p, 0);
    if (status || q.direct) continue;
    if (dtype == MOTH_F32)
      columns_to_image_f32(&c->w, q.channels, (float *)(void *)q.col, (float *)(void *)dxi);
    else
      columns_to_image_f64(&c->w, q.channels, (double *)(void *)q.col, (double *)(void *)dxi);
    status = moth_poll(ctx);
  }
  plan_close(ctx, &q);
  return status;
}

int moth_conv_weight(moth_ctx *ctx, int dtype, const moth_conv *c, const void *x, const void *dy,
                     void *dweight) {
  plan q;
  int status = MOTH_DECLINED;
  if (dtype == MOTH_BF16)
    return suits_bf16(c) ? moth_bf16_conv_weight(ctx, c, x, dy, dweight) : status;
  if (c->n && is_whole(&c->w)) return whole_weight(ctx, dtype, c, x, dy, dweight);
  if (suits(dtype, c) && moth_is_depthwise(c))
    return moth_depthwise_weight(ctx, c, x, dy, dweight);
  if (suits(dtype, c)) status = moth_im2col_weight(ctx, moth_tile_best(), c, x, dy, dweight);
  if (status != MOTH_DECLINED) return status;
  status = plan_open(ctx, dtype, c, &q);
  if (!status && c->n == 0 && q.k)
    memset(dweight, 0, (size_t)(c->filters * q.k * q.size));
  for (int64_t i = 0; !status && i < c->n * c->groups; i++) {
    const char *xi = (const char *)x + i * q.image * q.size;
    const char *dyi = (const char *)dy + i * q.m * q.p * q.size;
    char *to = (char *)dweight + i % c->groups * q.m * q.k * q.size;
    const void *col = columns_of(dtype, c, &q, xi);
    status = moth_gemm(ctx, dtype, q.m, q.k, q.p, dyi, q.p, 1, col, 1, q.p, to, q.k,
                       i >= c->groups);
    if (!status) status = moth_poll(ctx);
  }
  plan_close(ctx, &q);
  return status;
}

/* -- im2col and col2im as ops -- */

int moth_columns(moth_ctx *ctx, int dtype, const moth_window *w, int64_t n, int64_t channels,
                 const void *x, void *columns) {
  const int64_t image = channels * w->in[0] * w->in[1];
  const int64_t size = channels * w->kernel[0] * w->kernel[1] * w->out[0] * w->out[1];
  for (int64_t i = 0; i < n; i++) {
    if (dtype == MOTH_F32)
      image_to_columns_f32(w, channels, (const float *)x + i * image, (float *)columns + i * size);
    else
      image_to_columns_f64(w, channels, (const double *)x + i * image,
                           (double *)columns + i * size);
    if (moth_cancelled(ctx)) return moth_stopped(ctx);
  }
  return MOTH_OK;
}

int moth_columns_back(moth_ctx *ctx, int dtype, const moth_window *w, int64_t n, int64_t channels,
                      const void *columns, void *x) {
  const int64_t image = channels * w->in[0] * w->in[1];
  const int64_t size = channels * w->kernel[0] * w->kernel[1] * w->out[0] * w->out[1];
  if (n) memset(x, 0, (size_t)(n * image) * moth_dtype_size[dtype]);
  for (int64_t i = 0; i < n; i++) {
    if (dtype == MOTH_F32)
      columns_to_image_f32(w, channels, (const float *)columns + i * size, (float *)x + i * image);
    else
      columns_to_image_f64(w, channels, (const double *)columns + i * size,
                           (double *)x + i * image);
    if (moth_cancelled(ctx)) return moth_stopped(ctx);
  }
  return MOTH_OK;
}
