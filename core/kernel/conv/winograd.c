/* winograd.c -- convolution by many 3x3 filters and the gradient of its images, with 16
** multiplications instead of 36: F(2x2, 3x3) of Winograd 1980, as in Lavin & Gray 2016.
**
** Images are cut into patches of 4x4, two rows and columns apart. Patches and filters are
** transformed to 16 numbers each. These are multiplied in 16 matrix products over the channels, and
** transformed back to the 2x2 results of each patch. Sums are 9 times shorter, and errors no larger
** than those of direct convolution. (Patches of 6x6 save as much again, at ten times the error.) An
** infinite, NaN or very large pixel affects all results of its patches.
*/
#include "im2col.h"
#include "base/alloc.h"

#define CHAIN_CHANNELS 32 /* channels in one sum: errors are then as small as PyTorch's */
#define NS_PER_FMA 0.01
#define NS_PER_PATCH 10
#define AT_ONCE 16        /* channels whose taps are transposed together */
#define LEAST_CHANNELS 16 /* with fewer channels or filters the transforms are not worth it */
/* minimal share, in sixteenths, of useful elements in the vectors of a row of patches */
#define LEAST_FILLED 12
#define LEAST_PATCHES 48    /* with fewer patches the transform of the filters is not worth it */
#define L2_FLOATS (1 << 18) /* transformed patches of this size stay in L2 */

typedef struct job {
  const moth_tile *tile;
  int64_t n, channels, filters, groups; /* channels and filters of a group */
  int64_t in[2], out[2], top, left;     /* window (0, 0) starts at (top, left) */
  int64_t rs, cs;       /* steps in weight between filters, and between channels */
  bool flip;            /* the taps are in reverse order */
  int64_t down, across; /* patches of an image */
  int64_t some, bunches; /* patches of a bunch; number of bunches */
  int height;           /* filters of a panel */
  /* panels of a group's filters; tasks of a bunch; panels of a task */
  int64_t panels, parts, of_part;
  int64_t step, plane;  /* floats of a bunch for a channel, and for one of 16 products; */
  int64_t of_panel;     /* ... of a panel for all 16 */
  bool shared;          /* tasks share the transformed patches of all bunches */
  int64_t thread_floats;         /* floats of scratch for a thread */
  const float *x, *weight, *bias;
  float *y, *scratch, *packed, *zero, *patches;
  const int64_t *off;
} job;

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* -- filters -- */

/* The number of taps to transpose: whole vectors are faster, if the floats after the taps can be
** read. */
static int64_t transposed_taps(const job *j, int64_t begin, int64_t m, int64_t channels) {
  int64_t taps = 9 * channels, all = j->groups * j->filters * j->channels * 9;
  int64_t wide = ceil_div(taps, MOTH_TILE_LANES) * MOTH_TILE_LANES;
  return begin + (m - 1) * j->rs + wide <= all ? wide : taps;
}

/* Writes a panel of filters to to[i][c][filter], i < 16, and a few floats after each i. */
static void pack_panels(int64_t first, int64_t last, int thread, const void *arg) {
  const job *j = arg;
  int64_t lanes = j->tile->lanes, at_once = j->cs == 9 ? AT_ONCE : 1;
  float transposed[9 * AT_ONCE * MOTH_TILE_LANES];
  (void)thread;
  for (int64_t at = first; at < last; at++) {
    int64_t g = at / j->panels, i = at % j->panels * j->height;
    int64_t m = least(j->filters - i, j->height), ldt = j->channels * m + MOTH_TILE_LANES;
    int64_t begin = g * j->filters * j->channels * 9 + i * j->rs;
    float *to = j->packed + at * j->of_panel;
    for (int64_t c = 0, some; c < j->channels; c += some, begin += some * j->cs) {
      some = least(j->channels - c, at_once);
      j->tile->transpose(m, transposed_taps(j, begin, m, some), j->weight + begin, j->rs,
                         transposed, lanes);
      for (int64_t k = 0; k < some; k++, to += m)
        j->tile->filters(transposed + 9 * k * lanes, j->flip, to, ldt);
    }
  }
}

/* -- patches and results -- */

/* Neighboring patches in a row of an image, in one bunch. */
typedef struct run {
  int64_t image, row, column, n, at; /* at: index of the first patch in the bunch */
} run;

/* Finds the runs of the patches from `patch` to end - 1. Returns their number. */
static int cut_runs(const job *j, int64_t patch, int64_t end, run *runs) {
  int count = 0;
  for (int64_t begin = patch; patch < end; patch += runs[count++].n) {
    int64_t column = patch % j->across, line = patch / j->across;
    runs[count] = (run){line / j->down, line % j->down, column,
                        least(j->across - column, end - patch), patch - begin};
  }
  return count;
}

/* Transforms patches of one channel to v[i * plane + patch]. Writes a few floats after each run,
** which the next run overwrites. The rest of the last tile becomes 0: products with subnormal
** numbers in old memory would be slow. */
static void transform_channel(const job *j, const float *x, const run *runs, int count, float *v) {
  int64_t image = j->groups * j->channels * j->in[0] * j->in[1];
  for (const run *r = runs; r < runs + count; r++) {
    int64_t left = j->left + 2 * r->column, from = left > 0 ? left : 0, width = 2 * r->n + 2;
    int64_t until = least(left + width, j->in[1]);
    const float *row[4];
    for (int64_t i = 0; i < 4; i++) {
      int64_t y = j->top + 2 * r->row + i;
      row[i] = y >= 0 && y < j->in[0] ? x + r->image * image + y * j->in[1] + from : j->zero;
    }
    j->tile->patches(row, least(from - left, width), until > from ? until - from : 0, r->n,
                     2 * j->in[0] * j->in[1], v + r->at, j->plane);
  }
  const int64_t n = runs[count - 1].at + runs[count - 1].n;
  const int64_t end = ceil_div(n, j->tile->columns) * j->tile->columns;
  for (int64_t i = 0; n < end && i < 16; i++)
    memset(v + i * j->plane + n, 0, (size_t)(end - n) * sizeof *v);
}

/* Transforms the results of one filter in n patches, from m[i][filter][patch], and writes them. */
static void write_results(const job *j, int64_t filter, const run *runs, int count, int64_t n,
                 const float *m) {
  float rows[2][2 * MOTH_WINOGRAD_PATCHES];
  int64_t filters = j->groups * j->filters, wide = j->out[1];
  j->tile->results(m, MOTH_TILE_ROWS * j->some, n, j->bias ? j->bias[filter] : 0, rows[0], rows[1]);
  for (const run *r = runs; r < runs + count; r++) {
    size_t bytes = (size_t)least(2 * r->n, wide - 2 * r->column) * sizeof *m;
    float *y = j->y + ((r->image * filters + filter) * j->out[0] + 2 * r->row) * wide;
    memcpy(y + 2 * r->column, rows[0] + 2 * r->at, bytes);
    if (2 * r->row + 1 < j->out[0])
      memcpy(y + wide + 2 * r->column, rows[1] + 2 * r->at, bytes);
  }
}

/* -- products -- */

/* Computes m[i][filter][patch], the 16 products of a panel with n patches. */
static void multiply(const job *j, int64_t m, int64_t n, const float *a, const float *v,
                     float *to) {
  static const float zero[MOTH_TILE_ROWS];
  int64_t columns = j->tile->columns, ldt = j->channels * m + MOTH_TILE_LANES;
  for (int i = 0; i < 16; i++, a += ldt, v += j->plane, to += MOTH_TILE_ROWS * j->some)
    for (int64_t q = 0; q < n; q += columns)
      for (int64_t c = 0; c < j->channels; c += CHAIN_CHANNELS)
        j->tile->product((int)m, n - q > j->tile->lanes, least(j->channels - c, CHAIN_CHANNELS),
                         a + c * m, 0, v + q, j->off + c, c ? NULL : zero, to + q, j->some);
}

/* Computes the results of the filters of a task for the patches of a bunch. */
static void results(const job *j, int64_t g, int64_t part, const run *runs, int count, int64_t n,
                    const float *v, float *m) {
  for (int64_t p = part * j->of_part; p < least((part + 1) * j->of_part, j->panels); p++) {
    int64_t i = p * j->height, some = least(j->filters - i, j->height);
    multiply(j, some, n, j->packed + (g * j->panels + p) * j->of_panel, v, m);
    for (int64_t f = 0; f < some; f++)
      write_results(j, g * j->filters + i + f, runs, count, n, m + f * j->some);
    moth_pause();
  }
}

/* The patches of a bunch of a group, and their runs. */
typedef struct bunch {
  int64_t at, g, n; /* n: number of patches */
  int count;
  run runs[MOTH_WINOGRAD_PATCHES];
} bunch;

static void take_bunch(const job *j, int64_t at, bunch *b) {
  if (b->at == at) return;
  int64_t patch = at % j->bunches * j->some;
  b->at = at;
  b->g = at / j->bunches;
  b->n = least(j->n * j->down * j->across - patch, j->some);
  b->count = cut_runs(j, patch, patch + b->n, b->runs);
}

static void see(const job *j, const bunch *b, int64_t c, int64_t channels, float *v) {
  const int64_t size = j->in[0] * j->in[1];
  for (int64_t i = c; i < c + channels; i++) {
    transform_channel(j, j->x + (b->g * j->channels + i) * size, b->runs, b->count,
                      v + i * j->step);
    if (i % 16 == 15) moth_pause();
  }
}

/* Items are channels of all bunches. */
static void transform_shared(int64_t first, int64_t last, int thread, const void *arg) {
  const job *j = arg;
  bunch b = {.at = -1};
  (void)thread;
  for (int64_t at = first; at < last; at++) {
    take_bunch(j, at / j->channels, &b);
    see(j, &b, at % j->channels, 1, j->patches + b.at * 16 * j->plane);
  }
}

static void run_tasks(int64_t first, int64_t last, int thread, const void *arg) {
  const job *j = arg;
  float *m = j->scratch + thread * j->thread_floats, *v = m + 16 * MOTH_TILE_ROWS * j->some;
  bunch b = {.at = -1};
  for (int64_t at = first; at < last; at++) {
    take_bunch(j, at / j->parts, &b);
    if (j->shared) v = j->patches + b.at * 16 * j->plane;
    else see(j, &b, 0, j->channels, v);
    results(j, b.g, at % j->parts, b.runs, b.count, b.n, v, m);
  }
}

/* -- division of the work -- */

static bool suits(const moth_conv *c, const int64_t out[2]) {
  const moth_window *w = &c->w;
  for (int i = 0; i < 2; i++)
    if (w->kernel[i] != 3 || w->stride[i] != 1 || w->dilation[i] != 1) return false;
  const double across = (double)ceil_div(out[1], 2), vectors = (double)ceil_div(out[1], 32) * 16;
  const int64_t channels = c->channels / c->groups, filters = c->filters / c->groups;
  if ((double)least(channels, filters) * across < LEAST_FILLED * vectors) return false;
  double patches = (double)c->n * (double)ceil_div(out[0], 2) * (double)ceil_div(out[1], 2);
  return patches >= LEAST_PATCHES && 4 * patches < 1.5 * (double)(c->n * out[0] * out[1]) &&
         channels >= LEAST_CHANNELS && filters >= LEAST_CHANNELS;
}

/* The size of bunches depends on shapes only. Bunches are as large as the cache allows, because
** each bunch reads all filters. */
static void cut(job *j, int lanes) {
  j->down = ceil_div(j->out[0], 2);
  j->across = ceil_div(j->out[1], 2);
  j->some = MOTH_WINOGRAD_PATCHES;
  if (16 * j->channels * j->some > L2_FLOATS) j->some /= 2;
  j->bunches = ceil_div(j->n * j->down * j->across, j->some);
  j->height = moth_tile_height(j->filters, j->tile->rows);
  j->panels = ceil_div(j->filters, j->height);
  j->of_panel = 16 * (j->channels * j->height + MOTH_TILE_LANES);
  int64_t wanted = lanes > 1 ? 2 * lanes : 1;
  j->parts = least(ceil_div(wanted, j->groups * j->bunches), j->panels);
  j->of_part = ceil_div(j->panels, j->parts);
  j->parts = ceil_div(j->panels, j->of_part);
  j->shared = j->parts > 1;
  /* threads only write after their own patches */
  j->step = j->some + (j->shared ? MOTH_TILE_LANES : 0);
  j->plane = j->channels * j->step + MOTH_TILE_LANES;
}

static int run_job(moth_ctx *ctx, job *j) {
  j->tile = moth_tile_best();
  if (!j->tile) return MOTH_DECLINED;
  cut(j, moth_lanes(ctx));
  int64_t tasks = j->groups * j->bunches * j->parts, lanes = tasks > 1 ? moth_lanes(ctx) : 1;
  int64_t packed = ceil_div(j->groups * j->panels * j->of_panel, 16) * 16;
  int64_t zero = ceil_div(j->in[1], 16) * 16;
  int64_t shared = j->shared ? j->groups * j->bunches * 16 * j->plane : 0;
  j->thread_floats = 16 * (MOTH_TILE_ROWS * j->some + (shared ? 0 : j->plane));
  int64_t floats = packed + lanes * j->thread_floats + shared + zero;
  int64_t table = j->channels * (int64_t)sizeof(int64_t);
  int64_t bytes = floats * (int64_t)sizeof(float) + table;
  j->scratch = moth_alloc(ctx, bytes);
  if (!j->scratch) return ctx->error.code;
  j->packed = j->scratch + lanes * j->thread_floats;
  j->patches = j->packed + packed;
  j->zero = j->patches + shared;
  memset(j->zero, 0, (size_t)zero * sizeof *j->zero);
  int64_t *off = (int64_t *)(void *)(j->zero + zero);
  for (int64_t c = 0; c < j->channels; c++) off[c] = c * j->step;
  j->off = off;
  double fma = 16.0 * (double)(j->some * j->channels) * (double)(j->height * j->of_part);
  int status = moth_parallel(ctx, j->groups * j->panels, 1, (double)j->of_panel * 0.3, pack_panels,
                             j);
  if (!status && shared)
    status = moth_parallel(ctx, j->groups * j->bunches * j->channels, 1,
                           (double)j->some * NS_PER_PATCH, transform_shared, j);
  if (!status) status = moth_parallel(ctx, tasks, 1, fma * NS_PER_FMA, run_tasks, j);
  moth_dealloc(ctx, j->scratch, bytes);
  return status;
}

int moth_winograd_forward(moth_ctx *ctx, const moth_conv *c, const float *x, const float *weight,
                          const float *bias, float *y) {
  const moth_window *w = &c->w;
  if (!suits(c, w->out)) return MOTH_DECLINED;
  job j = {.n = c->n, .channels = c->channels / c->groups, .filters = c->filters / c->groups,
           .groups = c->groups, .in = INT2(w->in), .out = INT2(w->out), .top = -w->padding[0],
           .left = -w->padding[1], .cs = 9, .x = x, .weight = weight, .bias = bias, .y = y};
  j.rs = j.channels * 9;
  return run_job(ctx, &j);
}

/* The image gradient is a convolution of dy, with the padding that the size of the filters
** leaves. */
int moth_winograd_input(moth_ctx *ctx, const moth_conv *c, const float *dy, const float *weight,
                        float *dx) {
  const moth_window *w = &c->w;
  if (!suits(c, w->in)) return MOTH_DECLINED;
  job j = {.n = c->n, .channels = c->filters / c->groups, .filters = c->channels / c->groups,
           .groups = c->groups, .in = INT2(w->out), .out = INT2(w->in), .top = w->padding[0] - 2,
           .left = w->padding[1] - 2, .rs = 9, .flip = true, .x = dy, .weight = weight, .y = dx};
  j.cs = j.filters * 9;
  return run_job(ctx, &j);
}
