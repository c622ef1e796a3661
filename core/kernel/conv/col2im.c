/* col2im.c -- the gradient of convolution's images if they have few channels or large borders. The
** product of the flipped filters and dy has a column for each window; columns are added to the
** images (col2im).
*/
#include "im2col.h"
#include "tensor/shape.h"
#include "base/alloc.h"

/* bytes of columns that are computed before they are added to the image */
#define PAUSE_WINDOWS 4096 /* windows of a panel between two calls of moth_pause */
#define COLUMN_BYTES (256 << 10)
#define MOST_BYTES (16 << 20)
#define NS_PER_FMA 0.02

typedef struct job {
  const moth_conv *c;
  const moth_tile *tile;
  /* p: windows of an image; padded: p rounded up to whole tiles */
  int64_t filters, channels, p, padded;
  int64_t area;                         /* taps of a channel */
  int64_t at_once, parts; /* channels whose columns are computed at a time; number of such parts */
  int64_t thread_floats;                         /* floats of scratch for a thread */
  float *packed, *scratch, *dx;
  const float *dy, *weight;
  int64_t *off;
} job;

/* Adds the columns of some channels to an image. */
static void scatter(const job *j, int64_t channels, const float *col, float *x) {
  const moth_window *w = &j->c->w;
  for (int64_t tap = 0; tap < channels * j->area; tap++, col += j->padded) {
    int64_t s = tap % w->kernel[1], r = tap / w->kernel[1] % w->kernel[0];
    float *plane = x + tap / j->area * w->in[0] * w->in[1];
    int64_t left = s * w->dilation[1] - w->padding[1], first, last;
    moth_window_seen(w, left, &first, &last);
    int64_t top = r * w->dilation[0] - w->padding[0], step = w->stride[0];
    int64_t oy = top < 0 ? (step - 1 - top) / step : 0;
    int64_t end = w->in[0] > top ? (w->in[0] - top + step - 1) / step : 0;
    if (end > w->out[0]) end = w->out[0];
    if (oy < end && first < last)
      j->tile->add(end - oy, last - first, col + oy * w->out[1] + first, w->out[1],
                   plane + (top + oy * step) * w->in[1] + left + first * w->stride[1],
                   step * w->in[1], w->stride[1]);
    moth_pause();
  }
}

/* Computes columns of the windows from q on: the product of a panel of m taps with dy. */
static void panel(const job *j, int m, const float *a, const float *dy, float *col) {
  static const float zero[MOTH_TILE_MOST];
  const int64_t chain = j->tile->chain;
  for (int64_t q = 0; q < j->padded; q += j->tile->columns) {
    if (q % PAUSE_WINDOWS == 0) moth_pause();
    for (int64_t t = 0; t < j->filters; t += chain) {
      int64_t n = j->filters - t < chain ? j->filters - t : chain;
      bool wide = j->p - q > j->tile->lanes;
      const bool rows = j->tile->by_rows;
      j->tile->product(m, wide, n, rows ? a + t : a + t * m, rows ? j->filters : 0, dy + q,
                       j->off + t, t ? NULL : zero, col + q, j->padded);
    }
  }
}

/* Computes the gradient of n channels, from c on, of one image and group. */
static void some_channels(const job *j, int64_t g, int64_t n, int64_t c, float *scratch) {
  const moth_window *w = &j->c->w;
  int64_t channels = j->channels - c < j->at_once ? j->channels - c : j->at_once;
  int64_t taps = channels * j->area, plane = w->in[0] * w->in[1];
  int height = moth_tile_height(taps, j->tile->rows);
  const float *packed = j->packed + (g * j->channels + c) * j->area * j->filters;
  const float *from = j->dy + (n * j->c->filters + g * j->filters) * j->p;
  float *dx = j->dx + (n * j->c->channels + g * j->channels + c) * plane;
  float *dy = scratch, *col = scratch + j->filters * j->padded;
  for (int64_t i = 0; i < j->filters; i++) {
    memcpy(dy + i * j->padded, from + i * j->p, (size_t)j->p * sizeof *dy);
    for (int64_t q = j->p; q < j->padded; q++) dy[i * j->padded + q] = 0;
    if (j->p >= PAUSE_WINDOWS) moth_pause();
  }
  for (int64_t k = 0; k < taps; k += height)
    panel(j, (int)(taps - k < height ? taps - k : height), packed + k * j->filters, dy,
          col + k * j->padded);
  memset(dx, 0, (size_t)(channels * plane) * sizeof *dx);
  scatter(j, channels, col, dx);
}

static void run_tasks(int64_t first, int64_t last, int thread, const void *arg) {
  const job *j = arg;
  for (int64_t at = first; at < last; at++) {
    int64_t image = at / j->parts;
    some_channels(j, image % j->c->groups, image / j->c->groups, at % j->parts * j->at_once,
                  j->scratch + thread * j->thread_floats);
  }
}

/* Packs the flipped filters in panels, in the order in which some_channels reads them. */
static void pack_flipped(const job *j) {
  int64_t taps = j->channels * j->area;
  float *to = j->packed;
  for (int64_t g = 0; g < j->c->groups; g++)
    for (int64_t c = 0; c < j->channels; c += j->at_once) {
      int64_t some = (j->channels - c < j->at_once ? j->channels - c : j->at_once) * j->area;
      int height = moth_tile_height(some, j->tile->rows);
      const float *from = j->weight + g * j->filters * taps + c * j->area;
      for (int64_t i = 0; i < some; i += height)
        if (j->tile->by_rows)
          for (int64_t k = i; k < some && k < i + height; k++)
            for (int64_t t = 0; t < j->filters; t++) *to++ = from[k + t * taps];
        else
          for (int64_t t = 0; t < j->filters; t++)
            for (int64_t k = i; k < some && k < i + height; k++) *to++ = from[k + t * taps];
    }
}

int moth_col2im_input(moth_ctx *ctx, const moth_tile *tile, const moth_conv *c, const float *dy,
                       const float *weight, float *dx) {
  const moth_window *w = &c->w;
  job j = {.c = c, .tile = tile, .filters = c->filters / c->groups,
           .channels = c->channels / c->groups, .p = w->out[0] * w->out[1],
           .area = w->kernel[0] * w->kernel[1], .dx = dx, .dy = dy, .weight = weight};
  if (!j.tile) return MOTH_DECLINED;
  int64_t column, columns = j.tile->columns;
  j.padded = (j.p + columns - 1) / columns * columns;
  if (moth_mul_overflow(j.area * (int64_t)sizeof(float), j.padded, &column) || column > MOST_BYTES)
    return MOTH_DECLINED;
  j.at_once = COLUMN_BYTES / column > 0 ? COLUMN_BYTES / column : 1;
  if (j.at_once > j.channels) j.at_once = j.channels;
  j.parts = (j.channels + j.at_once - 1) / j.at_once;
  int64_t tasks = c->n * c->groups * j.parts, lanes = tasks > 1 ? moth_lanes(ctx) : 1;
  j.thread_floats = (j.filters + j.at_once * j.area) * j.padded;
  int64_t table = j.filters * (int64_t)sizeof *j.off;
  int64_t floats = c->channels * j.area * j.filters + lanes * j.thread_floats;
  int64_t bytes = table + floats * (int64_t)sizeof(float);
  j.off = moth_alloc(ctx, bytes);
  if (!j.off) return ctx->error.code;
  j.packed = (float *)(void *)(j.off + j.filters);
  j.scratch = j.packed + c->channels * j.area * j.filters;
  for (int64_t i = 0; i < j.filters; i++) j.off[i] = i * j.padded;
  pack_flipped(&j);
  double fma = (double)(j.filters * j.area * j.at_once) * (double)j.p;
  int status = moth_parallel(ctx, tasks, 1, fma * NS_PER_FMA, run_tasks, &j);
  moth_dealloc(ctx, j.off, bytes);
  return status;
}
