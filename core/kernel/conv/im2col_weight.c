/* im2col_weight.c -- the gradient of convolution's filters: for each tap, the sum over all windows
** of the tap's element times the transposed dy. Rows of a tile are taps, its vectors are filters. A
** tile reads one number of an image at a time, so images are not copied per tap: they only get
** borders, or are read in place without borders. Tables have the offsets of windows and of taps.
*/
#include "im2col.h"
#include "base/alloc.h"

#define WINDOWS_AT_ONCE 128 /* windows in one sum: their part of a panel of dy fits in L1 */
#define SIDE_WINDOWS 64
#define NS_PER_FMA 0.011
#define LEAST_TASKS 8 /* minimal number of tasks if there is enough work */
#define NS_OF_TASK 4e4
#define MOST_SUMS (1 << 18) /* maximal number of floats in the sums of all parts */

/* Sums are stored as [group][part][panel of filters][tap][filter]. A part has some of the bands of
** all images, and its own sums. Parts depend on shapes only, so that results do not depend on the
** number of threads. */
typedef struct job {
  moth_im2col l;
  const moth_tile *tile;
  int64_t n, groups, filters, padded; /* padded: filters rounded up to whole vectors */
  int64_t taps;                       /* taps of all channels */
  int64_t p, across;                  /* windows of an image, and of a line */
  int64_t stride[2];
  bool inside;                        /* images are read in place */
  /* blocks of channels; bands of an image; bands of all images; parts */
  int64_t blocks, bands, units, parts;
  int64_t xs, thread_floats, window_slots; /* floats of xs and of a thread; offsets of a band */
  const float *x, *dy;
  float *dweight, *sums, *scratch;
  const int64_t *off; /* offsets of the taps */
  int64_t *window_at;      /* offsets of windows, image by image, for each thread */
} job;

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The number of vectors of the panel if `left` filters remain. */
static int panel_vectors(const moth_tile *tile, int64_t left) {
  int64_t vectors = ceil_div(left, tile->lanes);
  return vectors >= 4 && tile->vectors >= 4 ? 4 : vectors >= 2 ? 2 : 1;
}

typedef struct task {
  const job *j;
  int64_t side, images, oy, lines, c, channels; /* c: the first of `channels` channels */
  int64_t at_band[2];   /* images and lines of `window_at` */
  const float *x, *dy; /* first channel or filter of the group in the first image */
  float *xs, *gt, *rows; /* rows: dy of the windows that gt has */
  int64_t *window_at;
} task;

/* Computes the offsets of the windows of a band. */
static void window_offsets(task *t) {
  const job *j = t->j;
  const moth_im2col *l = &j->l;
  const int64_t plane = l->in[0] * l->in[1], across = j->across, step = j->stride[1];
  const int64_t image = j->inside ? j->groups * l->channels * plane : l->width;
  const int64_t line = j->inside ? j->stride[0] * l->in[1] : l->line;
  int64_t *to = t->window_at;
  if (t->at_band[0] == t->images && t->at_band[1] == t->lines) return;
  for (int64_t k = 0; k < t->images; k++)
    for (int64_t i = 0; i < t->lines; i++, to += across)
      for (int64_t ox = 0; ox < across; ox++) to[ox] = k * image + i * line + ox * step;
  t->at_band[0] = t->images;
  t->at_band[1] = t->lines;
}

/* gt := transposed dy of filters from i on, for windows q to q + n - 1 of the band. Short pieces
** are first joined to rows. */
static void transpose(const task *t, int64_t i, int64_t filters, int64_t width, int64_t q,
                      int64_t n) {
  const job *j = t->j;
  const float *dy = t->dy + i * j->p + t->oy * j->across;
  int64_t apart = j->groups * j->filters * j->p, run = t->lines * j->across;
  bool together = run < j->tile->lanes;
  for (int64_t at = 0, some; at < n; at += some) {
    int64_t k = (q + at) / run, first = (q + at) % run;
    const float *from = dy + k * apart + first;
    some = least(n - at, run - first);
    if (!together) j->tile->transpose(filters, some, from, j->p, t->gt + at * width, width);
    else
      for (int64_t f = 0; f < filters; f++) {
        float *to = t->rows + f * WINDOWS_AT_ONCE + at;
        if (some == 4) memcpy(to, from + f * j->p, 4 * sizeof *to);
        else
          for (int64_t m = 0; m < some; m++) to[m] = from[f * j->p + m];
      }
  }
  if (together) j->tile->transpose(filters, n, t->rows, WINDOWS_AT_ONCE, t->gt, width);
}

static void add_band(const task *t, bool first, float *sums) {
  const job *j = t->j;
  const moth_tile *tile = j->tile;
  int64_t windows = t->images * t->lines * j->across, taps = t->channels * j->l.area;
  int64_t block = ceil_div(windows, ceil_div(windows, WINDOWS_AT_ONCE)), lanes = tile->lanes;
  const float *x = t->xs;
  if (j->inside)
    x = t->x + t->c * j->l.in[0] * j->l.in[1] + t->oy * j->stride[0] * j->l.in[1];
  block = ceil_div(block, lanes) * lanes;
  for (int64_t q = 0; q < windows; q += block) {
    int64_t n = least(windows - q, block), width;
    for (int64_t i = 0; i < j->filters; i += width) {
      int v = panel_vectors(tile, j->filters - i), height = moth_tile_height(taps, tile->taps[v]);
      width = v * lanes;
      transpose(t, i, least(j->filters - i, width), width, q, n);
      float *to = sums + i * j->taps + t->c * j->l.area * width;
      for (int64_t k = 0; k < taps; k += height)
        tile->sum((int)least(taps - k, height), v, n, x, j->off + k, t->window_at + q, t->gt, width,
                  q || !first, to + k * width);
      moth_pause();
    }
  }
}

static void run_tasks(int64_t first, int64_t last, int thread, const void *arg) {
  const job *j = arg;
  const moth_im2col *l = &j->l;
  int64_t plane = l->in[0] * l->in[1], image = j->groups * l->channels * plane;
  task t = {
      .j = j, .xs = j->scratch + thread * j->thread_floats,
      .window_at = j->window_at + thread * j->window_slots};
  t.gt = t.xs + j->xs;
  t.rows = t.gt + WINDOWS_AT_ONCE * j->tile->vectors * j->tile->lanes;
  for (int64_t at = first; at < last; at++) {
    int64_t part = at % j->parts, g = at / j->parts / j->blocks;
    float *sums = j->sums + (g * j->parts + part) * j->taps * j->padded;
    t.c = at / j->parts % j->blocks * l->block;
    t.channels = least(l->channels - t.c, l->block);
    const int64_t begin = j->units * part / j->parts, end = j->units * (part + 1) / j->parts;
    for (int64_t u = begin; u < end; u++) {
      t.side = u / j->bands * l->side;
      t.oy = u % j->bands * l->band;
      t.images = least(j->n - t.side, l->side);
      t.lines = least(l->lines - t.oy, l->band);
      t.x = j->x + t.side * image + g * l->channels * plane;
      t.dy = j->dy + (t.side * j->groups + g) * j->filters * j->p;
      if (!j->inside)
        moth_im2col_run(l, t.x + t.c * plane, t.images, image, t.channels, t.oy, t.xs);
      window_offsets(&t);
      add_band(&t, u == begin, sums);
    }
  }
}

/* Adds the parts of a panel of filters, and transposes the sum into dweight. */
static void gather(int64_t first, int64_t last, int thread, const void *arg) {
  const job *j = arg;
  int64_t lanes = j->tile->lanes, width, whole = j->taps / lanes * lanes;
  (void)thread;
  for (int64_t g = first; g < last; g++)
    for (int64_t i = 0; i < j->filters; i += width) {
      width = panel_vectors(j->tile, j->filters - i) * lanes;
      int64_t n = least(j->filters - i, width), size = j->taps * j->padded;
      float *sums = j->sums + g * j->parts * size + i * j->taps;
      float *to = j->dweight + (g * j->filters + i) * j->taps;
      for (int64_t part = 1; part < j->parts; part++) {
        const float *more = sums + part * size;
        for (int64_t k = 0; k < j->taps * width; k++) sums[k] += more[k];
      }
      j->tile->transpose(whole, n, sums, width, to, j->taps);
      for (int64_t k = whole; k < j->taps; k++)
        for (int64_t f = 0; f < n; f++) to[f * j->taps + k] = sums[k * width + f];
      moth_pause();
    }
}

/* Parts depend on shapes only. Blocks of channels have separate sums, so their number may depend on
** the threads. */
static void cut(job *j, double cost, int lanes) {
  moth_im2col *l = &j->l;
  double worth = cost / NS_OF_TASK;
  int64_t wanted = worth > LEAST_TASKS ? LEAST_TASKS : worth > 1 ? (int64_t)worth : 1;
  j->bands = ceil_div(l->lines, l->band);
  j->units = ceil_div(j->n, l->side) * j->bands;
  j->blocks = ceil_div(l->channels, l->block);
  int64_t tasks = j->groups * j->blocks, sums = j->groups * j->taps * j->padded;
  j->parts = least(ceil_div(wanted, tasks), j->units);
  if (j->parts > MOST_SUMS / sums) j->parts = MOST_SUMS / sums;
  if (j->parts < 1) j->parts = 1;
  if (wanted > 2 * lanes) wanted = 2 * lanes;
  if (lanes > 1 && tasks * j->parts < wanted) {
    int64_t blocks = ceil_div(wanted, j->groups * j->parts);
    int64_t most = ceil_div(j->taps, 96); /* each block of channels transposes all of dy again */
    if (blocks > most) blocks = most;
    if (blocks > j->blocks) l->block = ceil_div(l->channels, blocks);
    j->blocks = ceil_div(l->channels, l->block);
  }
}

/* Computes the offsets of the taps of a block's channels from the start of a window. */
static void offsets(const job *j, const moth_window *w, int64_t *off) {
  const moth_im2col *l = &j->l;
  for (int64_t c = 0; c < l->block; c++)
    for (int64_t t = 0; t < l->area; t++) {
      int64_t down = t / w->kernel[1] * w->dilation[0], right = t % w->kernel[1] * w->dilation[1];
      *off++ = right + (j->inside ? (c * l->in[0] + down) * l->in[1]
                                  : moth_im2col_at(l, c, 0, down));
    }
}

static int run(moth_ctx *ctx, job *j, const moth_window *w, double fma) {
  moth_im2col *l = &j->l;
  cut(j, fma * NS_PER_FMA, moth_lanes(ctx));
  int64_t tasks = j->groups * j->blocks * j->parts, lanes = tasks > 1 ? moth_lanes(ctx) : 1;
  j->window_slots = l->side * l->band * j->across;
  j->xs = j->inside ? 0 : moth_im2col_size(l);
  j->thread_floats =
      ceil_div(j->xs + 2 * WINDOWS_AT_ONCE * j->tile->vectors * j->tile->lanes, 16) * 16;
  int64_t floats = lanes * j->thread_floats + j->groups * j->parts * j->taps * j->padded;
  int64_t tables = l->block * l->area + lanes * j->window_slots;
  int64_t bytes = floats * (int64_t)sizeof(float) + tables * (int64_t)sizeof(int64_t);
  char *scratch = moth_alloc(ctx, bytes);
  if (!scratch) return ctx->error.code;
  j->scratch = (float *)(void *)scratch;
  j->sums = j->scratch + lanes * j->thread_floats;
  int64_t *off = (int64_t *)(void *)(scratch + floats * (int64_t)sizeof(float));
  offsets(j, w, off);
  j->off = off;
  j->window_at = off + l->block * l->area;
  int status = moth_parallel(ctx, tasks, 1, fma * NS_PER_FMA / (double)tasks, run_tasks, j);
  if (!status)
    status = moth_parallel(ctx, j->groups, 1,
                           (double)(j->parts * j->taps * j->padded) * 0.3, gather, j);
  moth_dealloc(ctx, scratch, bytes);
  return status;
}

static bool has_borders(const moth_window *w) {
  return w->padding[0] || w->padding[1] || w->extra[0] || w->extra[1];
}

int moth_im2col_weight(moth_ctx *ctx, const moth_tile *tile, const moth_conv *c, const float *x,
                      const float *dy, float *dweight) {
  const moth_window *w = &c->w;
  job j = {.tile = tile, .n = c->n, .groups = c->groups,
           .filters = c->filters / c->groups, .p = w->out[0] * w->out[1], .across = w->out[1],
           .stride = INT2(w->stride), .inside = !has_borders(w), .x = x, .dy = dy,
           .dweight = dweight};
  if (!j.tile) return MOTH_DECLINED;
  j.l = (moth_im2col){
    .tile = j.tile, .channels = c->channels / c->groups, .in = INT2(w->in), .lines = w->out[0],
    .width = (w->out[1] - 1) * w->stride[1] + (w->kernel[1] - 1) * w->dilation[1] + 1,
    .step = {w->stride[0], 1}, .top = -w->padding[0], .left = -w->padding[1], .copies = 1,
    .reach = (w->kernel[0] - 1) * w->dilation[0], .area = w->kernel[0] * w->kernel[1]};
  j.padded = ceil_div(j.filters, j.tile->lanes) * j.tile->lanes;
  j.taps = j.l.channels * j.l.area;
  if (!moth_im2col_plan(&j.l, j.n, ceil_div(SIDE_WINDOWS, j.p))) return MOTH_DECLINED;
  return run(ctx, &j, w, (double)(c->filters * j.taps) * (double)(j.n * j.p));
}
