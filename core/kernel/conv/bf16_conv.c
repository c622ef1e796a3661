/* bf16_conv.c -- convolution of bf16 on processors that multiply pairs of bf16. Two neighbors along
** the summed dimension (channels, filters or images) become one 32-bit word. im2col.h copies words
** like f32 numbers; its tile multiplies the pairs in them.
*/
#include "im2col.h"
#include "kernel/gemm/bf16_product.h"
#include "base/alloc.h"

#define INTERLEAVED_PER_NS 6.0
#define LEAST_FILTERS 16 /* with fewer filters, tiles would be mostly empty */

/* Interleaves pairs of rows: in each of `items` groups, k rows become (k + 1) / 2 rows of words. */
typedef struct interleave {
  int64_t items, k, length; /* length: of a row */
  int64_t apart, from;      /* steps from row to row and from group to group; */
  int64_t step, into;       /* ... and the same for the words */
  const void *x;
  uint32_t *words;
} interleave;

static int64_t half(int64_t k) { return (k + 1) / 2; }

static void interleave_some(int64_t first, int64_t last, int thread, const void *arg) {
  const interleave *v = arg;
  (void)thread;
  for (int64_t i = first; i < last; i++)
    moth_bf16_pack(v->words + i * v->into, v->step, (const uint16_t *)v->x + i * v->from, v->k,
                    v->apart, 1, v->length, v->length);
}

/* The layout of contiguous rows, group after group. */
static interleave in_order(const void *x, int64_t items, int64_t k, int64_t length) {
  return (interleave){.items = items, .k = k, .length = length, .apart = length, .from = k * length,
                 .step = length, .into = half(k) * length, .x = x};
}

/* The layout of images that are paired with each other, for each channel. */
static interleave of_images(const void *x, int64_t items, int64_t n, int64_t length) {
  return (interleave){.items = items, .k = n, .length = length, .apart = items * length,
                 .from = length, .step = items * length, .into = length, .x = x};
}

/* Two operands as words. */
typedef struct pair {
  moth_tile tile;
  char *scratch;
  int64_t bytes;
  const float *a, *b;
} pair;

static int weave_both(moth_ctx *ctx, interleave a, interleave b, pair *p) {
  if (a.k < 2 || !moth_tile_bf16(&p->tile)) return MOTH_DECLINED;
  int64_t first = half(a.k) * a.items * a.length, second = half(b.k) * b.items * b.length;
  p->bytes = (first + second) * (int64_t)sizeof(uint32_t);
  p->scratch = moth_alloc(ctx, p->bytes);
  if (!p->scratch) return ctx->error.code;
  a.words = (uint32_t *)(void *)p->scratch;
  b.words = a.words + first;
  p->a = (const float *)(const void *)a.words;
  p->b = (const float *)(const void *)b.words;
  int status = moth_parallel(ctx, a.items, 1, (double)(a.k * a.length) / INTERLEAVED_PER_NS,
                             interleave_some, &a);
  if (!status)
    status = moth_parallel(ctx, b.items, 1, (double)(b.k * b.length) / INTERLEAVED_PER_NS,
                           interleave_some, &b);
  if (status) moth_dealloc(ctx, p->scratch, p->bytes);
  return status;
}

int moth_bf16_conv_forward(moth_ctx *ctx, const moth_conv *c, const void *x, const void *weight,
                       const float *bias, float *y) {
  int64_t k = c->channels / c->groups, area = c->w.kernel[0] * c->w.kernel[1];
  moth_conv halved = *c;
  halved.channels = half(k) * c->groups;
  pair p;
  int status = weave_both(ctx, in_order(x, c->n * c->groups, k, c->w.in[0] * c->w.in[1]),
                          in_order(weight, c->filters, k, area), &p);
  if (status) return status;
  status = moth_im2col_forward(ctx, &p.tile, &halved, p.a, p.b, bias, y);
  moth_dealloc(ctx, p.scratch, p.bytes);
  return status;
}

int moth_bf16_conv_input(moth_ctx *ctx, const moth_conv *c, const void *dy, const void *weight,
                     float *dx) {
  int64_t k = c->filters / c->groups, area = c->w.kernel[0] * c->w.kernel[1];
  if (k < LEAST_FILTERS) return MOTH_DECLINED;
  moth_conv halved = *c;
  halved.filters = half(k) * c->groups;
  pair p;
  int status = weave_both(ctx, in_order(dy, c->n * c->groups, k, c->w.out[0] * c->w.out[1]),
                          in_order(weight, c->groups, k, c->channels / c->groups * area), &p);
  if (status) return status;
  status = moth_im2col_input(ctx, &p.tile, &halved, p.a, p.b, dx);
  moth_dealloc(ctx, p.scratch, p.bytes);
  return status;
}

int moth_bf16_conv_weight(moth_ctx *ctx, const moth_conv *c, const void *x, const void *dy,
                      float *dweight) {
  moth_conv halved = *c;
  halved.n = half(c->n);
  pair p;
  int status = weave_both(ctx, of_images(x, c->channels, c->n, c->w.in[0] * c->w.in[1]),
                          of_images(dy, c->filters, c->n, c->w.out[0] * c->w.out[1]), &p);
  if (status) return status;
  status = moth_im2col_weight(ctx, &p.tile, &halved, p.a, p.b, dweight);
  moth_dealloc(ctx, p.scratch, p.bytes);
  return status;
}
