/* depthwise.c -- depthwise f32 convolution: each filter has one input channel.
**
** A plane is copied with its border, its columns sorted by their phase of the horizontal stride.
** The elements that a tap multiplies in a row of windows are then contiguous.
*/
#include "depthwise.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "base/alloc.h"

#include "base/threads.h"
#include "kernel/level.h"
#include "kernel/gemm/tile.h"

#define MOST_FILTERS 4       /* with more filters per channel, matrix products are faster */
#define MOST_PLANE (4 << 20) /* maximal number of floats in a plane */
#define MOST_TAPS 1024
#define NS_PER_FMA 0.04
#define SLACK 64 /* floats after a plane that vectors may read */

/* The arguments of the loops: a plane with its border, and the results. */
typedef struct plane_loop {
  int64_t rows, width, taps;
  const int64_t *off;
  const float *weight;
  float start;
  bool add; /* adds to y, instead of starting with `start` */
  float *x;
  int64_t ld; /* from one row of windows to the next */
  float *y;
  int64_t ldy;
} plane_loop;

typedef struct loops {
  int lanes;
  void (*see)(const plane_loop *s);
  void (*put)(const plane_loop *s);
  void (*sum)(const plane_loop *s, double *sum);
  void (*copy)(int64_t rows, int64_t n, const float *from, int64_t ld, float *to, int64_t ldt);
} loops;

#define TARGET
#define NAME(f) f##_plain
#define LANES 4
#include "depthwise_level.h"
#undef TARGET
#undef NAME
#undef LANES

#if MOTH_HAS_LEVELS

#define TARGET MOTH_AVX2
#define NAME(f) f##_avx2
#define LANES 8
#include "depthwise_level.h"
#undef TARGET
#undef NAME
#undef LANES

#define TARGET MOTH_AVX512
#define NAME(f) f##_avx512
#define LANES 16
#include "depthwise_level.h"

static const loops *best(void) {
  int level = moth_level();
  return level == MOTH_LEVEL_AVX512 ? &loops_avx512
         : level == MOTH_LEVEL_AVX2 ? &loops_avx2
                                    : &loops_plain;
}

#else

static const loops *best(void) { return &loops_plain; }

#endif

typedef struct job {
  const moth_conv *c;
  moth_window w;    /* the windows over the plane */
  const loops *loops;
  int64_t filters;  /* filters of a channel */
  /* phases of columns; rows of the plane; floats of a row and of a phase */
  int64_t phases, rows, ld, area;
  int64_t plane;    /* floats of all phases */
  int64_t ldy, thread_floats;
  const int64_t *off;
  const float *x, *dy, *bias;
  float *to, *scratch;
  const float *weight;
  bool flipped;      /* the windows are those of the image gradient */
} job;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Computes the sizes of the plane for windows w. Returns false if it is too large. */
static bool plane_of(job *j, const moth_window *w) {
  int64_t reach[2], size;
  for (int i = 0; i < 2; i++) reach[i] = (w->kernel[i] - 1) * w->dilation[i];
  j->w = *w;
  j->loops = best();
  j->phases = least(w->stride[1], reach[1] + 1);
  j->rows = (w->out[0] - 1) * w->stride[0] + reach[0] + 1;
  j->ldy = (w->out[1] + j->loops->lanes - 1) / j->loops->lanes * j->loops->lanes;
  j->ld = j->ldy + reach[1] / w->stride[1];
  if (moth_mul_overflow(j->rows, j->ld, &j->area) || moth_mul_overflow(j->area, j->phases, &size) ||
      size > MOST_PLANE)
    return false;
  j->plane = j->area * j->phases + SLACK;
  return true;
}

bool moth_is_depthwise(const moth_conv *c) {
  job j;
  return c->channels == c->groups && c->filters / c->groups <= MOST_FILTERS && c->n > 0 &&
         c->w.kernel[0] * c->w.kernel[1] <= MOST_TAPS && plane_of(&j, &c->w);
}

static void offsets(const job *j, int64_t *off) {
  const moth_window *w = &j->w;
  for (int64_t r = 0; r < w->kernel[0]; r++)
    for (int64_t s = 0; s < w->kernel[1]; s++) {
      int64_t right = s * w->dilation[1];
      *off++ = right % w->stride[1] * j->area + r * w->dilation[0] * j->ld + right / w->stride[1];
    }
}

/* Returns the number of image columns that phase p of a plane has. *first is the first of these
** columns in the plane, *from is its column in the image. */
static int64_t columns_of(const job *j, int64_t p, int64_t *first, int64_t *from) {
  const moth_window *w = &j->w;
  int64_t step = w->stride[1], start = p - w->padding[1];
  int64_t seen = w->out[1] + (w->kernel[1] - 1) * w->dilation[1] / step;
  *first = start < 0 ? (-start + step - 1) / step : 0;
  *from = start + *first * step;
  int64_t n = *from < w->in[1] ? (w->in[1] - *from + step - 1) / step : 0;
  return n < seen - *first ? n : seen > *first ? seen - *first : 0;
}

/* Returns the number of image rows that a plane has; *first and *from are as for columns_of. */
static int64_t rows_of(const job *j, int64_t *first, int64_t *from) {
  int64_t start = -j->w.padding[0];
  *first = start < 0 ? -start : 0;
  *from = start + *first;
  int64_t n = j->w.in[0] - *from, seen = j->rows - *first;
  n = n < seen ? n : seen;
  return n > 0 ? n : 0;
}

/* Copies an image to a plane whose border is 0 already. */
static void fill(const job *j, const float *x, float *plane) {
  int64_t row, down, n = rows_of(j, &row, &down), step = j->w.stride[1], wide = j->w.in[1];
  for (int64_t p = 0; p < j->phases; p++) {
    int64_t first, from, columns = columns_of(j, p, &first, &from);
    float *to = plane + p * j->area + row * j->ld + first;
    const float *image = x + down * wide + from;
    if (columns <= 0) continue;
    if (step == 1) j->loops->copy(n, columns, image, wide, to, j->ld);
    else if (step == 2)
      for (int64_t i = 0; i < n; i++, to += j->ld, image += wide)
        for (int64_t k = 0; k < columns; k++) to[k] = image[2 * k];
    else
      for (int64_t i = 0; i < n; i++, to += j->ld, image += wide)
        for (int64_t k = 0; k < columns; k++) to[k] = image[step * k];
  }
}

/* Copies a plane to an image. Elements that no window covers stay unchanged. */
static void take(const job *j, const float *plane, float *x) {
  int64_t row, down, n = rows_of(j, &row, &down), step = j->w.stride[1], wide = j->w.in[1];
  int64_t first, from, other, columns = columns_of(j, 0, &first, &from), pairs = 0;
  if (step == 2 && j->phases == 2) { /* both phases in one pass, in vectors */
    int64_t second, more = columns_of(j, 1, &second, &other), even = from != 0;
    const float *a = plane + row * j->ld + first, *b = plane + j->area + row * j->ld + second;
    pairs = columns < more ? columns : more;
    if (pairs < 0 || from + other != 1) pairs = 0;
    for (int64_t i = 0; i < n; i++) {
      const float *p = (even ? b : a) + i * j->ld, *q = (even ? a : b) + i * j->ld;
      float *restrict image = x + (down + i) * wide;
      for (int64_t k = 0; k < pairs; k++) {
        image[2 * k] = p[k];
        image[2 * k + 1] = q[k];
      }
    }
  }
  for (int64_t p = 0; p < j->phases; p++) {
    columns = columns_of(j, p, &first, &from);
    const float *of = plane + p * j->area + row * j->ld + first;
    float *image = x + down * wide + from;
    for (int64_t i = 0; i < n; i++, of += j->ld, image += wide)
      for (int64_t k = pairs; k < columns; k++) image[step * k] = of[k];
  }
}

static plane_loop windows_of(const job *j, float *plane) {
  return (plane_loop){.rows = j->w.out[0], .width = j->w.out[1],
                  .taps = j->w.kernel[0] * j->w.kernel[1], .off = j->off, .x = plane,
                  .ld = j->ld * j->w.stride[0], .ldy = j->w.out[1]};
}

/* Runs work over n items. Each thread gets a plane and `floats` more floats of scratch. */
static int run(moth_ctx *ctx, job *j, int64_t floats, int64_t n, moth_work *work) {
  const moth_window *w = &j->w;
  int64_t taps = w->kernel[0] * w->kernel[1], all = j->c->filters * taps;
  int64_t lanes = n > 1 ? moth_lanes(ctx) : 1;
  j->thread_floats = (j->plane + floats + 15) / 16 * 16;
  int64_t floats_all = lanes * j->thread_floats + all;
  int64_t bytes = taps * (int64_t)sizeof(int64_t) + floats_all * (int64_t)sizeof(float);
  int64_t *off = moth_alloc(ctx, bytes);
  if (!off) return ctx->error.code;
  offsets(j, off);
  j->off = off;
  j->scratch = (float *)(void *)(off + taps);
  float *flipped = j->scratch + lanes * j->thread_floats;
  for (int64_t k = 0; j->flipped && k < all; k++)
    flipped[k] = j->weight[k / taps * taps + taps - 1 - k % taps];
  if (j->flipped) j->weight = flipped;
  double fma = (double)j->c->n * (double)all * (double)(w->out[0] * w->out[1]);
  int status = moth_parallel(ctx, n, 1, fma * NS_PER_FMA / (double)n, work, j);
  moth_dealloc(ctx, off, bytes);
  return status;
}

/* -- forward, and the gradient of images without a stride: an item is a channel of an image -- */

static void see_planes(int64_t first, int64_t last, int thread, const void *arg) {
  const job *j = arg;
  float *plane = j->scratch + thread * j->thread_floats;
  plane_loop s = windows_of(j, plane);
  int64_t m = j->filters, in = j->w.in[0] * j->w.in[1], out = j->w.out[0] * j->w.out[1];
  memset(plane, 0, (size_t)j->plane * sizeof *plane);
  for (int64_t at = first; at < last; at++) {
    int64_t channel = at % j->c->channels;
    if (!j->flipped) fill(j, j->x + at * in, plane);
    for (int64_t f = 0; f < m; f++) {
      if (j->flipped) fill(j, j->x + (at * m + f) * in, plane);
      s.weight = j->weight + (channel * m + f) * s.taps;
      s.start = j->bias ? j->bias[channel * m + f] : 0;
      s.add = j->flipped && f;
      s.y = j->to + (j->flipped ? at : at * m + f) * out;
      j->loops->see(&s);
    }
  }
}

int moth_depthwise_forward(moth_ctx *ctx, const moth_conv *c, const float *x, const float *weight,
                           const float *bias, float *y) {
  job j = {.c = c, .filters = c->filters / c->groups, .x = x, .weight = weight, .bias = bias,
           .to = y};
  if (!plane_of(&j, &c->w)) return moth_fail(ctx, MOTH_E_MEM, NULL, "the images are too large");
  return run(ctx, &j, 0, c->n * c->channels, see_planes);
}

/* -- the gradient of images with a stride: adds to the elements of each window -- */

/* Copies rows of dy to rows that end in zeros, unless the length is a multiple of the vector. */
static float *with_zeros(const job *j, const float *dy, float *scratch) {
  const moth_window *w = &j->w;
  for (int64_t i = 0; i < w->out[0]; i++) {
    memcpy(scratch + i * j->ldy, dy + i * w->out[1], (size_t)w->out[1] * sizeof *scratch);
    for (int64_t k = w->out[1]; k < j->ldy; k++) scratch[i * j->ldy + k] = 0;
  }
  return scratch;
}

static void put_planes(int64_t first, int64_t last, int thread, const void *arg) {
  const job *j = arg;
  float *plane = j->scratch + thread * j->thread_floats, *dy = plane + j->plane;
  plane_loop s = windows_of(j, plane);
  int64_t m = j->filters, in = j->w.in[0] * j->w.in[1], out = j->w.out[0] * j->w.out[1];
  s.y = dy;
  s.ldy = j->ldy;
  for (int64_t at = first; at < last; at++) {
    memset(plane, 0, (size_t)j->plane * sizeof *plane);
    memset(j->to + at * in, 0, (size_t)in * sizeof *plane);
    for (int64_t f = 0; f < m; f++) {
      with_zeros(j, j->x + (at * m + f) * out, dy);
      s.weight = j->weight + (at % j->c->channels * m + f) * s.taps;
      j->loops->put(&s);
    }
    take(j, plane, j->to + at * in);
  }
}

int moth_depthwise_input(moth_ctx *ctx, const moth_conv *c, const float *dy, const float *weight,
                         float *dx) {
  job j = {.c = c, .filters = c->filters / c->groups, .x = dy, .weight = weight, .to = dx};
  moth_window w = c->w;
  j.flipped = w.stride[0] == 1 && w.stride[1] == 1;
  for (int i = 0; j.flipped && i < 2; i++) {
    w.in[i] = c->w.out[i];
    w.out[i] = c->w.in[i];
    w.padding[i] = (w.kernel[i] - 1) * w.dilation[i] - w.padding[i];
  }
  if (!plane_of(&j, &w)) {
    j.flipped = false;
    if (!plane_of(&j, &c->w)) return moth_fail(ctx, MOTH_E_MEM, NULL, "the images are too large");
  }
  return run(ctx, &j, j.flipped ? 0 : c->w.out[0] * j.ldy, c->n * c->channels,
             j.flipped ? see_planes : put_planes);
}

/* -- the gradient of the filters: an item is a channel -- */

static void sum_planes(int64_t first, int64_t last, int thread, const void *arg) {
  const job *j = arg;
  float *plane = j->scratch + thread * j->thread_floats, *dy = plane + j->plane;
  plane_loop s = windows_of(j, plane);
  int64_t m = j->filters, in = j->w.in[0] * j->w.in[1], out = j->w.out[0] * j->w.out[1];
  double sum[MOST_FILTERS * MOST_TAPS];
  memset(plane, 0, (size_t)j->plane * sizeof *plane);
  s.y = dy;
  s.ldy = j->ldy;
  for (int64_t channel = first; channel < last; channel++) {
    for (int64_t k = 0; k < m * s.taps; k++) sum[k] = 0;
    for (int64_t n = 0; n < j->c->n; n++) {
      int64_t at = n * j->c->channels + channel;
      fill(j, j->x + at * in, plane);
      for (int64_t f = 0; f < m; f++) {
        with_zeros(j, j->dy + (at * m + f) * out, dy);
        j->loops->sum(&s, sum + f * s.taps);
      }
    }
    for (int64_t k = 0; k < m * s.taps; k++) j->to[channel * m * s.taps + k] = (float)sum[k];
  }
}

int moth_depthwise_weight(moth_ctx *ctx, const moth_conv *c, const float *x, const float *dy,
                          float *dweight) {
  job j = {.c = c, .filters = c->filters / c->groups, .x = x, .dy = dy, .to = dweight};
  if (!plane_of(&j, &c->w)) return moth_fail(ctx, MOTH_E_MEM, NULL, "the images are too large");
  return run(ctx, &j, c->w.out[0] * j.ldy, c->channels, sum_planes);
}
