/* conv3d.c -- convolution of volumes by convolution of images. A window covers KD slices of a
** channel. If these slices become channels, filters (O, C, KD, KH, KW) are, without a copy, filters
** (O, C KD, KH, KW) of images with C KD channels. A chunk of images at a time is gathered and
** convolved, and the results are scattered. The size of a chunk does not depend on the number of
** threads.
**
** If the filters extend along the depth only, a volume already is an image of D rows, and a row has
** the elements of a slice. If one window covers all slices, the volume already has the gathered
** layout.
*/
#include "conv3d.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "base/alloc.h"

#include "base/threads.h"

#define CHUNK_BYTES (4 << 20) /* bytes of slices and results if a chunk has several images */
#define BYTES_PER_NS 8.0

/* The slices of volumes (n, channels, depth) that windows along the depth cover: (n out, channels
** taps). For results, taps is 1 and out is depth. */
typedef struct slices {
  int64_t channels, depth, out, taps, stride, padding, step;
  int64_t plane; /* elements of a slice */
  int dtype;
  bool in_place;   /* volumes have the gathered layout */
  int64_t first, images; /* the images, of n out, that `at` has */
  char *volume, *scratch, *at;
} slices;

typedef struct job {
  moth_conv flat;
  slices x, y;
  int64_t images, chunk, bytes;
  char *scratch, *part; /* part: the gradient of the filters from one chunk */
} job;

static int real_of(int dtype) { return dtype == MOTH_BF16 ? MOTH_F32 : dtype; }

static slices read_from(int dtype, const void *volume) {
  return (slices){.dtype = dtype, .volume = (char *)(uintptr_t)volume};
}

static slices written_to(int dtype, void *volume) {
  return (slices){.dtype = real_of(dtype), .volume = volume};
}

static int64_t slice_bytes(const slices *s) { return s->plane * moth_dtype_size[s->dtype]; }

/* -- gathering and scattering slices -- */

static void gather_some(int64_t first, int64_t last, int thread, const void *arg) {
  const slices *s = arg;
  const int64_t bytes = slice_bytes(s), taps = s->taps, depth = s->depth;
  (void)thread;
  for (int64_t i = first; i < last; i++) { /* an item is a channel of an image */
    const int64_t image = s->first + i / s->channels, c = i % s->channels;
    const char *from = s->volume + (image / s->out * s->channels + c) * depth * bytes;
    char *to = s->at + i * taps * bytes;
    int64_t d = image % s->out * s->stride - s->padding;
    for (int64_t k = 0; k < taps; k++, d += s->step, to += bytes)
      if (d >= 0 && d < depth) memcpy(to, from + d * bytes, (size_t)bytes);
      else memset(to, 0, (size_t)bytes);
  }
}

static void put_some(int64_t first, int64_t last, int thread, const void *arg) {
  const slices *s = arg;
  const int64_t bytes = slice_bytes(s);
  (void)thread;
  for (int64_t i = first; i < last; i++) {
    const int64_t image = s->first + i / s->channels, c = i % s->channels;
    const int64_t slice = (image / s->out * s->channels + c) * s->depth + image % s->out;
    memcpy(s->volume + slice * bytes, s->at + i * bytes, (size_t)bytes);
  }
}

static void add(int dtype, int64_t n, const char *from, char *to) {
  if (dtype == MOTH_F32) {
    const float *x = (const float *)(const void *)from;
    float *y = (float *)(void *)to;
    for (int64_t i = 0; i < n; i++) y[i] += x[i];
  } else {
    const double *x = (const double *)(const void *)from;
    double *y = (double *)(void *)to;
    for (int64_t i = 0; i < n; i++) y[i] += x[i];
  }
}

/* Adds the gathered slices to the volume, in the order of windows. An item is a channel of a
** volume. */
static void add_some(int64_t first, int64_t last, int thread, const void *arg) {
  const slices *s = arg;
  const int64_t bytes = slice_bytes(s), taps = s->taps, out = s->out, end = s->first + s->images;
  (void)thread;
  for (int64_t i = first; i < last; i++) {
    const int64_t n = s->first / out + i / s->channels, c = i % s->channels;
    char *to = s->volume + (n * s->channels + c) * s->depth * bytes;
    int64_t image = n * out > s->first ? n * out : s->first;
    for (; image < end && image < (n + 1) * out; image++) {
      const char *from = s->at + ((image - s->first) * s->channels + c) * taps * bytes;
      int64_t d = (image - n * out) * s->stride - s->padding;
      for (int64_t k = 0; k < taps; k++, d += s->step, from += bytes)
        if (d >= 0 && d < s->depth) add(s->dtype, s->plane, from, to + d * bytes);
    }
  }
}

/* Selects `images` images, from `first` on. */
static void select_images(slices *s, int64_t first, int64_t images) {
  s->first = first;
  s->images = images;
  s->at = s->in_place ? s->volume + first * s->channels * s->taps * slice_bytes(s) : s->scratch;
}

static int gather(moth_ctx *ctx, const slices *s) {
  const double bytes = (double)(s->taps * slice_bytes(s));
  if (s->in_place) return MOTH_OK;
  return moth_parallel(ctx, s->images * s->channels, 1, bytes / BYTES_PER_NS, gather_some, s);
}

static int put(moth_ctx *ctx, const slices *s) {
  const double bytes = (double)slice_bytes(s);
  if (s->in_place) return MOTH_OK;
  return moth_parallel(ctx, s->images * s->channels, 1, bytes / BYTES_PER_NS, put_some, s);
}

static int put_sum(moth_ctx *ctx, const slices *s) {
  const int64_t volumes = (s->first + s->images - 1) / s->out - s->first / s->out + 1;
  const double bytes = (double)(s->images * s->taps * slice_bytes(s)) / (double)volumes;
  if (s->in_place) return MOTH_OK;
  return moth_parallel(ctx, volumes * s->channels, 1, bytes / BYTES_PER_NS * 2, add_some, s);
}

static void clear_some(int64_t first, int64_t last, int thread, const void *arg) {
  const slices *s = arg;
  const int64_t bytes = slice_bytes(s);
  (void)thread;
  memset(s->volume + first * bytes, 0, (size_t)((last - first) * bytes));
}

typedef struct sum {
  int dtype;
  const char *from;
  char *to;
} sum;

static void sum_some(int64_t first, int64_t last, int thread, const void *arg) {
  const sum *s = arg;
  const int64_t size = moth_dtype_size[s->dtype];
  (void)thread;
  add(s->dtype, last - first, s->from + first * size, s->to + first * size);
}

/* -- a convolution -- */

/* True if filters extend along the depth only; *flat is then the convolution of images. */
static bool is_along_depth(const moth_conv *c, moth_conv *flat) {
  const moth_window *w = &c->w;
  for (int i = 1; i < 3; i++)
    if (w->kernel[i] != 1 || w->stride[i] != 1 || w->padding[i] || w->extra[i]) return false;
  *flat = (moth_conv){
    .w = {.in = {w->in[0], w->in[1] * w->in[2]}, .out = {w->out[0], w->out[1] * w->out[2]},
          .kernel = {w->kernel[0], 1}, .stride = {w->stride[0], 1},
          .padding = {w->padding[0], 0}, .dilation = {w->dilation[0], 1},
          .extra = {w->extra[0], 0}},
    .n = c->n, .channels = c->channels, .filters = c->filters, .groups = c->groups};
  return true;
}

/* The number of images in a chunk: even if bf16 numbers are paired over images. */
static int64_t chunk_of(int64_t images, int64_t each, bool pairs) {
  const int64_t least = pairs ? 2 : 1, most = CHUNK_BYTES / each;
  int64_t chunk = most > least ? most : least;
  if (chunk >= images) return images;
  const int64_t chunks = (images + chunk - 1) / chunk;
  chunk = (images + chunks - 1) / chunks;
  while (pairs && chunk > 2 && images % chunk == 1) chunk--;
  return chunk;
}

static void describe(const moth_conv *c, job *j) {
  const moth_window *w = &c->w;
  j->x.channels = c->channels;
  j->x.depth = w->in[0];
  j->x.taps = w->kernel[0];
  j->x.stride = w->stride[0];
  j->x.padding = w->padding[0];
  j->x.step = w->dilation[0];
  j->x.plane = w->in[1] * w->in[2];
  j->x.in_place = w->out[0] == 1 && w->kernel[0] == w->in[0] && !w->padding[0];
  j->y.channels = c->filters;
  j->y.depth = w->out[0];
  j->y.taps = j->y.stride = j->y.step = 1;
  j->y.plane = w->out[1] * w->out[2];
  j->y.in_place = w->out[0] == 1;
  j->x.out = j->y.out = w->out[0];
  j->images = c->n * w->out[0];
  j->flat = (moth_conv){
    .w = {.in = INT2(w->in + 1), .out = INT2(w->out + 1), .kernel = INT2(w->kernel + 1),
          .stride = INT2(w->stride + 1), .padding = INT2(w->padding + 1),
          .dilation = INT2(w->dilation + 1), .extra = INT2(w->extra + 1)},
    .channels = c->channels * w->kernel[0], .filters = c->filters, .groups = c->groups};
}

/* *bytes := the size of an image's input or output, in whole cache lines. Returns false on
** overflow. */
static bool image_bytes(const slices *s, int64_t *bytes) {
  *bytes = 0;
  if (s->in_place) return true;
  if (moth_mul_overflow(s->channels, s->taps, bytes) ||
      moth_mul_overflow(*bytes, slice_bytes(s), bytes) || *bytes > INT64_MAX / 4)
    return false;
  *bytes = (*bytes + 63) / 64 * 64;
  return true;
}

/* Prepares the job for volumes x and y. part: bytes of the gradient of the filters of one chunk, if
** there are several chunks. */
static int job_open(moth_ctx *ctx, const moth_conv *c, slices x, slices y, int64_t part,
                    job *j) {
  int64_t seen, made;
  *j = (job){.x = x, .y = y};
  describe(c, j);
  bool fits = image_bytes(&j->x, &seen) && image_bytes(&j->y, &made);
  if (fits) {
    const bool pairs = x.dtype == MOTH_BF16 || y.dtype == MOTH_BF16;
    j->chunk = seen + made ? chunk_of(j->images, seen + made, pairs) : j->images;
    fits = !moth_mul_overflow(seen + made, j->chunk, &j->bytes);
  }
  if (j->chunk == j->images) part = 0;
  if (!fits || moth_add_overflow(j->bytes, part, &j->bytes))
    return moth_fail(ctx, MOTH_E_MEM, NULL, "the slices that windows see are too many to lay out");
  if (!j->bytes) return MOTH_OK;
  j->scratch = moth_alloc(ctx, j->bytes);
  if (!j->scratch) return ctx->error.code;
  j->x.scratch = j->scratch;
  j->y.scratch = j->scratch + seen * j->chunk;
  j->part = j->y.scratch + made * j->chunk;
  return MOTH_OK;
}

static void job_close(moth_ctx *ctx, job *j) {
  if (j->scratch) moth_dealloc(ctx, j->scratch, j->bytes);
}

/* Selects the chunk that starts with image `first`. */
static void next_chunk(job *j, int64_t first) {
  j->flat.n = j->images - first < j->chunk ? j->images - first : j->chunk;
  select_images(&j->x, first, j->flat.n);
  select_images(&j->y, first, j->flat.n);
}

int moth_conv3d_forward(moth_ctx *ctx, int dtype, const moth_conv *c, const void *x,
                        const void *weight, const void *bias, void *y) {
  moth_conv flat;
  job j;
  if (is_along_depth(c, &flat)) return moth_conv_forward(ctx, dtype, &flat, x, weight, bias, y);
  int status = job_open(ctx, c, read_from(dtype, x), written_to(dtype, y), 0, &j);
  for (int64_t at = 0; !status && at < j.images; at += j.chunk) {
    next_chunk(&j, at);
    status = gather(ctx, &j.x);
    if (!status) status = moth_conv_forward(ctx, dtype, &j.flat, j.x.at, weight, bias, j.y.at);
    if (!status) status = put(ctx, &j.y);
  }
  job_close(ctx, &j);
  return status;
}

int moth_conv3d_input(moth_ctx *ctx, int dtype, const moth_conv *c, const void *dy,
                      const void *weight, void *dx) {
  const int64_t volumes = c->n * c->channels * c->w.in[0];
  moth_conv flat;
  job j;
  if (is_along_depth(c, &flat)) return moth_conv_input(ctx, dtype, &flat, dy, weight, dx);
  int status = job_open(ctx, c, written_to(dtype, dx), read_from(dtype, dy), 0, &j);
  if (!status && !j.x.in_place)
    status = moth_parallel(ctx, volumes, 1, (double)slice_bytes(&j.x) / BYTES_PER_NS, clear_some,
                           &j.x);
  for (int64_t at = 0; !status && at < j.images; at += j.chunk) {
    next_chunk(&j, at);
    status = gather(ctx, &j.y);
    if (!status) status = moth_conv_input(ctx, dtype, &j.flat, j.y.at, weight, j.x.at);
    if (!status) status = put_sum(ctx, &j.x);
  }
  job_close(ctx, &j);
  return status;
}

int moth_conv3d_weight(moth_ctx *ctx, int dtype, const moth_conv *c, const void *x,
                       const void *dy, void *dweight) {
  const moth_window *w = &c->w;
  const int64_t numel = c->filters * (c->channels / c->groups) * w->kernel[0] * w->kernel[1] *
                        w->kernel[2];
  const int real = real_of(dtype);
  moth_conv flat;
  job j;
  if (is_along_depth(c, &flat)) return moth_conv_weight(ctx, dtype, &flat, x, dy, dweight);
  int status = job_open(ctx, c, read_from(dtype, x), read_from(dtype, dy),
                        numel * moth_dtype_size[real], &j);
  sum s = {real, j.part, dweight};
  if (!status && !j.images) memset(dweight, 0, (size_t)(numel * moth_dtype_size[real]));
  for (int64_t at = 0; !status && at < j.images; at += j.chunk) {
    next_chunk(&j, at);
    status = gather(ctx, &j.x);
    if (!status) status = gather(ctx, &j.y);
    if (!status)
      status = moth_conv_weight(ctx, dtype, &j.flat, j.x.at, j.y.at, at ? j.part : dweight);
    if (!status && at) status = moth_parallel(ctx, numel, 1 << 12, 0.2, sum_some, &s);
  }
  job_close(ctx, &j);
  return status;
}
