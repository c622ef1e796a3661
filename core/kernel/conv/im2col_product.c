/* im2col_product.c -- convolution and the gradient of its images: filters times columns.
**
** The gradient is also a convolution, of dy with the flipped filters. With a stride, its rows and
** columns have phases, each with other taps (Dumoulin & Visin 2016). The phases share the columns,
** and their results are interleaved. Blocks of channels are summed in y. A 1x1 kernel without
** stride reads its images in place.
*/
#include "im2col.h"
#include "base/alloc.h"

/* maximal taps of a chain if there are several phases or a dilation */
#define SHORT_CHAIN 64
#define NS_PER_FMA 0.01
#define FEW_WINDOWS 256 /* up to this many windows, filters may be read without packing */
/* filters with at most this many floats may be read again for each of many small images */
#define SMALL_WEIGHTS (64 << 10)
#define SIDE_WINDOWS 128
#define PART_FILTERS 64    /* minimal number of filters in a part: each part repeats the im2col */
#define MOST_TRANSPOSED 64 /* filters with at most this many taps are transposed in registers */
#define FEW_CHANNELS 4     /* with fewer channels, most of a tile is unused */

typedef struct phase {
  int64_t down, right;  /* position of its first result in an image */
  int64_t taps, first;  /* taps of a channel; index of the first in j->tap, j->copy and j->reach */
  int64_t k, packed; /* taps of all channels; offset of the phase's filters in those of a group */
  const int64_t *off;   /* offsets in xs for the taps of a block of channels */
} phase;

/* A product: `filters` results from the l.channels channels of each group. */
typedef struct job {
  moth_im2col l;
  const moth_tile *tile;
  int64_t n, groups, filters;
  int64_t rs, cs;       /* steps in weight between filters, and between channels */
  int64_t of_group;     /* floats of the filters of a group */
  int64_t out[2], step[2]; /* rows and columns of y; steps between results of a phase */
  int phases;
  phase *phase;
  int64_t *tap;         /* offsets of a phase's taps in weight */
  int64_t *copy, *reach; /* the copy and the row of xs for each tap */
  bool straight;        /* the taps of a filter are contiguous */
  bool in_place;        /* ... and are read in place */
  bool plain;           /* images are read in place */
  bool direct;          /* results are written to y directly */
  int height;           /* filters of a panel */
  int64_t sides, bands, parts, panels; /* tasks of a group; panels of a part */
  int64_t xs, ys, edge, thread_floats; /* floats of the buffers, and of all buffers of a thread */
  const float *x, *weight, *bias;
  float *y, *packed, *start, *scratch;
} job;

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* -- packing -- */

/* Packs the taps of some channels; for each tap, the m filters of a panel are contiguous. */
static void pack_channels(const job *j, const phase *h, int64_t m, const float *from,
                            int64_t channels, float *to) {
  const int64_t *tap = j->tap + h->first, rs = j->rs, cs = j->cs, taps = h->taps;
  for (int64_t c = 0; c < channels; c++, from += cs)
    for (int64_t t = 0; t < taps; t++, to += m) {
      const float *w = from + tap[t];
      if (m == MOTH_TILE_ROWS)
        for (int r = 0; r < MOTH_TILE_ROWS; r++) to[r] = w[r * rs];
      else
        for (int64_t r = 0; r < m; r++) to[r] = w[r * rs];
    }
}

/* The same for all phases, if the taps of a filter are contiguous. Taps are transposed in
** registers, which reads a few floats after the panel. Returns the number of channels done. (One
** channel at a time for all panels reads in order, but its writes alias in the cache: half as
** fast.) */
static int64_t pack_transposed(const job *j, int64_t i, int64_t m, const float *from, float *to) {
  float transposed[MOST_TRANSPOSED * MOTH_TILE_LANES];
  int64_t area = j->rs, wide = ceil_div(area, MOTH_TILE_LANES) * MOTH_TILE_LANES;
  if (j->straight || area < 4 || wide > MOST_TRANSPOSED || j->cs < wide) return 0;
  for (int64_t c = 0; c < j->l.channels - 1; c++, from += j->cs) {
    j->tile->transpose(m, wide, from, area, transposed, MOTH_TILE_LANES);
    for (int p = 0; p < j->phases; p++) {
      const phase *h = &j->phase[p];
      float *at = to + h->packed + i * h->k + c * h->taps * m;
      for (int64_t t = 0; t < h->taps; t++, at += m) {
        const float *row = transposed + j->tap[h->first + t] * MOTH_TILE_LANES;
        if (m == MOTH_TILE_ROWS) memcpy(at, row, MOTH_TILE_ROWS * sizeof *at);
        else
          for (int64_t r = 0; r < m; r++) at[r] = row[r];
      }
    }
  }
  return j->l.channels - 1;
}

/* Packs one filter after another, each with the taps of a phase in a row. */
static void pack_rows(const job *j, const phase *h, int64_t m, const float *from, float *to) {
  const int64_t *tap = j->tap + h->first, cs = j->cs, rs = j->rs, taps = h->taps, k = h->k;
  int64_t done = rs == 1 ? j->l.channels / MOTH_TILE_LANES * MOTH_TILE_LANES : 0;
  if (!taps) return; /* a phase without taps has no space */
  j->tile->transpose(done, m, from, cs, to, k);
  for (int64_t i = 0; i < m; i++)
    for (int64_t c = done; c < j->l.channels; c++)
      for (int64_t t = 0; t < taps; t++) to[i * k + c * taps + t] = from[i * rs + c * cs + tap[t]];
}

/* Packs panel by panel and phase by phase, with contiguous filters. Filters with contiguous taps
** are transposed in registers, which writes a few floats after the end, except for the last
** channels. */
static void pack_panels(int64_t first, int64_t last, int thread, const void *arg) {
  const job *j = arg;
  int64_t panels = ceil_div(j->filters, j->height);
  (void)thread;
  for (int64_t at = first; at < last; at++) {
    int64_t g = at / panels, i = at % panels * j->height, m = least(j->filters - i, j->height);
    const float *from = j->weight + g * j->of_group + i * j->rs;
    int64_t done = j->tile->by_rows ? 0
                                    : pack_transposed(j, i, m, from, j->packed + g * j->of_group);
    for (int p = 0; p < j->phases; p++) {
      const phase *h = &j->phase[p];
      float *to = j->packed + g * j->of_group + h->packed + i * h->k;
      int64_t some = j->straight ? j->l.channels - ceil_div(MOTH_TILE_LANES, h->taps) : done;
      if (j->tile->by_rows) {
        pack_rows(j, h, m, from, to);
        continue;
      }
      if (some < 0) some = 0;
      if (j->straight) j->tile->transpose(m, some * h->taps, from, j->rs, to, m);
      pack_channels(j, h, m, from + some * j->cs, j->l.channels - some, to + some * h->taps * m);
    }
  }
}

/* -- one task -- */

/* A task: filters i0 to i1 - 1 of a group, a side of images, lines from oy on. */
typedef struct task {
  const job *j;
  int64_t g, side, images, oy, lines, i0, i1;
  float *xs, *ys, *edge;
} task;

/* The input of columns q to q + valid - 1 of a phase, for channels from c0 on. */
typedef struct strip {
  const task *t;
  const phase *h;
  int64_t c0, taps, some; /* some: taps of one chain */
  const float *b;
  const int64_t *off;
  float *to;
  int64_t ld;
  bool wide;
} strip;

/* Adds taps n to n + z->some - 1, for the panel of filters from filter i on. */
static void chain(const strip *z, int64_t i, int64_t n) {
  const task *t = z->t;
  const job *j = t->j;
  int64_t m = least(t->i1 - i, j->height), some = least(z->taps - n, z->some);
  int64_t rs = j->in_place ? j->rs : j->tile->by_rows ? z->h->k : 0, cs = rs ? 1 : m;
  const float *a = j->in_place ? j->weight : j->packed;
  a += t->g * j->of_group + z->h->packed + i * z->h->k + (z->c0 * z->h->taps + n) * cs;
  const float *bias = n || z->c0 ? NULL : j->start + t->g * j->filters + i;
  j->tile->product((int)m, z->wide, some, a, rs, z->b, z->off + n, bias,
                   z->to + (i - t->i0) * z->ld, z->ld);
}

/* The length of equal chains that add `taps` taps. */
static int64_t equal_chain(const job *j, int64_t taps) {
  const int64_t whole = j->tile->by_rows ? MOTH_TILE_LANES : 1;
  int64_t chains = ceil_div(taps, j->tile->chain);
  /* phases and dilated taps are summed one by one in PyTorch */
  const bool few = j->phases > 1 || j->l.apart > 1;
  if (chains == 1 && few && !j->tile->by_rows) chains = ceil_div(taps, SHORT_CHAIN);
  return chains ? ceil_div(ceil_div(taps, chains), whole) * whole : 1;
}

/* Writes the results to y + i * ldy + q. Filters that are read in place are read to their ends,
** since the processor prefetches them. */
static void tile_columns(const task *t, const phase *h, int64_t c0, int64_t taps, const float *b,
                         const int64_t *off, float *y, int64_t ldy, int64_t valid) {
  const job *j = t->j;
  bool whole = valid == j->tile->columns || valid == j->tile->lanes;
  const int64_t some = equal_chain(j, taps);
  strip z = {t, h, c0, taps, some, b, off, y, ldy, valid > j->tile->lanes};
  if (!whole) {
    z.to = t->edge;
    z.ld = MOTH_TILE_COLUMNS;
    for (int64_t i = 0; c0 && i < t->i1 - t->i0; i++)
      memcpy(z.to + i * z.ld, y + i * ldy, (size_t)valid * sizeof *y);
  }
  if (j->in_place)
    for (int64_t i = t->i0; i < t->i1; i += j->height) {
      for (int64_t n = 0; n < taps || n == 0; n += some) chain(&z, i, n);
      moth_pause();
    }
  else
    for (int64_t n = 0; n < taps || n == 0; n += some)
      for (int64_t i = t->i0; i < t->i1; i += j->height) {
        chain(&z, i, n);
        moth_pause();
      }
  for (int64_t i = 0; !whole && i < t->i1 - t->i0; i++)
    memcpy(y + i * ldy, z.to + i * z.ld, (size_t)valid * sizeof *y);
}

/* Interleaves a row of results of all phases along the width. */
static void interleave_row(const job *j, const float *from, int64_t apart, int64_t width,
                           float *to) {
  int64_t step = j->step[1], wide = j->out[1];
  if (step == 1) {
    memcpy(to, from, (size_t)wide * sizeof *to);
    return;
  }
  if (step == 2) {
    const float *next = from + apart;
    for (int64_t i = 0; i < wide / 2; i++) {
      to[2 * i] = from[i];
      to[2 * i + 1] = next[i];
    }
    if (wide % 2) to[wide - 1] = from[wide / 2];
    return;
  }
  for (int64_t p = 0; p < step; p++, from += apart)
    for (int64_t i = 0; i < width && i * step + p < wide; i++) to[i * step + p] = from[i];
}

/* Copies ys[phase][filter][line][image][column] to y. */
static void interleave(const task *t, int64_t ldy) {
  const job *j = t->j;
  const moth_im2col *l = &j->l;
  int64_t plane = j->out[0] * j->out[1], apart = (t->i1 - t->i0) * ldy;
  for (int64_t i = t->i0; i < t->i1; i++)
    for (int64_t k = 0; k < t->images; k++) {
      int64_t image = (t->side * l->side + k) * j->groups * j->filters;
      float *y = j->y + (image + t->g * j->filters + i) * plane;
      const float *from = t->ys + (i - t->i0) * ldy + k * l->width;
      for (int64_t line = 0; line < t->lines; line++, from += l->line)
        for (int64_t down = 0; down < j->step[0]; down++) {
          int64_t row = (t->oy + line) * j->step[0] + down;
          if (row < j->out[0])
            interleave_row(j, from + down * j->step[1] * apart, apart, l->width,
                           y + row * j->out[1]);
        }
    }
}

/* Copies the last columns of an image that is read in place, so that nothing after its end is
** read. The rest of the tile is 0: products with subnormal numbers in old memory would be slow. */
static void plain_rest(const task *t, const float *x, int64_t plane, int64_t channels,
                       int64_t valid) {
  for (int64_t c = 0; c < channels; c++) {
    float *to = t->xs + c * MOTH_TILE_COLUMNS;
    memcpy(to, x + c * plane, (size_t)valid * sizeof *x);
    memset(to + valid, 0, (size_t)(t->j->tile->columns - valid) * sizeof *to);
  }
}

static void run_task(const task *t) {
  const job *j = t->j;
  const moth_im2col *l = &j->l;
  int64_t plane = l->in[0] * l->in[1], windows = t->lines * l->line, columns = j->tile->columns;
  int64_t image = j->groups * l->channels * plane;
  int64_t ldy = ceil_div(windows, columns) * columns, out = j->out[0] * j->out[1];
  float *y = t->ys;
  if (j->direct) {
    ldy = out;
    y = j->y + ((t->side * j->groups + t->g) * j->filters + t->i0) * out + t->oy * l->width;
  }
  for (int64_t c = 0; c < l->channels; c += l->block) {
    int64_t channels = least(l->channels - c, l->block);
    const float *x = j->x + t->side * l->side * image + (t->g * l->channels + c) * plane;
    const float *b = t->xs;
    if (j->plain) b = x + t->oy * l->width;
    else moth_im2col_run(l, x, t->images, image, channels, t->oy, t->xs);
    for (int64_t q = 0; q < windows; q += columns)
      for (int p = 0; p < j->phases; p++) {
        const phase *h = &j->phase[p];
        int64_t valid = least(windows - q, columns);
        const float *at = b + q;
        const int64_t *off = h->off;
        if (j->plain && valid < columns) {
          plain_rest(t, at, plane, channels, valid);
          at = t->xs;
          off += l->block;
        }
        if (!j->direct) valid = valid > j->tile->lanes ? columns : j->tile->lanes;
        tile_columns(t, h, c, channels * h->taps, at, off,
                     y + p * (t->i1 - t->i0) * ldy + q, ldy, valid);
      }
  }
  if (!j->direct) interleave(t, ldy);
}

static void run_tasks(int64_t first, int64_t last, int thread, const void *arg) {
  const job *j = arg;
  const moth_im2col *l = &j->l;
  task t = {.j = j, .xs = j->scratch + thread * j->thread_floats};
  t.ys = t.xs + j->xs;
  t.edge = t.ys + j->ys;
  for (int64_t at = first; at < last; at++) {
    int64_t left = at, panel = left % j->parts * j->panels;
    left /= j->parts;
    t.i0 = panel * j->height;
    t.i1 = least(t.i0 + j->panels * j->height, j->filters);
    t.oy = left % j->bands * l->band;
    left /= j->bands;
    t.side = left % j->sides;
    t.g = left / j->sides;
    t.lines = least(l->lines - t.oy, l->band);
    t.images = least(j->n - t.side * l->side, l->side);
    if (t.i0 < t.i1) run_task(&t);
  }
}

/* -- division of the work -- */

/* If there are too few tasks for all threads: uses smaller bands, then fewer filters in a task. */
static void cut(job *j, double cost, int lanes) {
  moth_im2col *l = &j->l;
  j->sides = ceil_div(j->n, l->side);
  j->bands = ceil_div(l->lines, l->band);
  j->panels = ceil_div(j->filters, j->height);
  int64_t wanted = cost > 5e4 && lanes > 1 ? 4 * lanes : 1, tasks = j->groups * j->sides;
  if (tasks * j->bands < wanted) {
    int64_t band = ceil_div(l->lines, ceil_div(wanted, tasks));
    int64_t some = ceil_div(2 * MOTH_TILE_COLUMNS, l->line);
    if (band < some) band = some;
    if (band < 2 * l->halo) band = 2 * l->halo;
    if (band < l->band) moth_im2col_set_band(l, band);
    j->bands = ceil_div(l->lines, l->band);
  }
  j->parts = 1;
  /* each part of the filters repeats the im2col */
  wanted = wanted == 1 ? 1 : j->plain ? 2 * lanes : lanes;
  if (tasks * j->bands < wanted) {
    int64_t most = j->plain ? j->panels : j->filters / PART_FILTERS;
    j->parts = least(ceil_div(wanted, tasks * j->bands), most > 0 ? most : 1);
  }
  j->panels = ceil_div(j->panels, j->parts);
  j->parts = ceil_div(ceil_div(j->filters, j->height), j->panels);
}

/* Computes the offsets of the taps of a block's channels, phase by phase. Images that are read in
** place have two tables. */
static void offsets(job *j, int64_t *off) {
  const moth_im2col *l = &j->l;
  int64_t plane = l->in[0] * l->in[1];
  for (int p = 0; p < j->phases; p++) {
    phase *h = &j->phase[p];
    h->off = off;
    for (int64_t c = 0; c < l->block; c++)
      for (int64_t t = h->first; t < h->first + h->taps; t++)
        *off++ = j->plain ? c * plane : moth_im2col_at(l, c, j->copy[t], j->reach[t]);
  }
  for (int64_t c = 0; j->plain && c < l->block; c++) *off++ = c * MOTH_TILE_COLUMNS;
}

/* Runs the product that j describes, for n > 0. */
static int run(moth_ctx *ctx, job *j) {
  moth_im2col *l = &j->l;
  int64_t taps = 0, columns = j->tile->columns;
  for (int p = 0; p < j->phases; p++) {
    j->phase[p].k = j->phase[p].taps * l->channels;
    j->phase[p].packed = taps * l->channels * j->filters;
    taps += j->phase[p].taps;
  }
  j->of_group = taps * l->channels * j->filters;
  j->plain = taps == 1 && l->copies == 1 && l->step[0] == 1 && l->step[1] == 1 && !l->top &&
             !l->left && l->lines == l->in[0] && l->width == l->in[1];
  bool small = j->of_group <= SMALL_WEIGHTS && l->lines * l->width % j->tile->lanes == 0;
  int64_t side = j->plain || small ? 1 : ceil_div(SIDE_WINDOWS, l->lines * l->width);
  if (!moth_im2col_plan(l, j->n, side)) return MOTH_DECLINED;
  j->height = moth_tile_height(j->filters, j->tile->rows);
  j->in_place = j->straight && (j->n * l->lines * l->width <= FEW_WINDOWS || j->tile->by_rows);
  double fma = (double)(j->of_group * j->groups) * (double)(j->n * l->lines * l->width);
  cut(j, fma * NS_PER_FMA, moth_lanes(ctx));
  j->direct = l->side == 1 && j->phases == 1 && j->step[0] == 1 && j->step[1] == 1;
  int64_t tasks = j->groups * j->sides * j->bands * j->parts, part = j->panels * j->height;
  j->xs = j->plain ? l->block * MOTH_TILE_COLUMNS : moth_im2col_size(l);
  j->ys = j->direct ? 0 : j->phases * part * ceil_div(l->band * l->line, columns) * columns;
  j->edge = part * MOTH_TILE_COLUMNS;
  j->thread_floats = ceil_div(j->xs + j->ys + j->edge, 16) * 16;
  int64_t lanes = tasks > 1 ? moth_lanes(ctx) : 1;
  int64_t table = l->block * (taps + 1), starts = j->groups * j->filters;
  int64_t packed = j->in_place ? 0 : j->groups * j->of_group;
  int64_t floats = lanes * j->thread_floats + ceil_div(packed + starts, 2) * 2;
  int64_t bytes = floats * (int64_t)sizeof(float) + table * (int64_t)sizeof(int64_t);
  char *scratch = moth_alloc(ctx, bytes);
  if (!scratch) return ctx->error.code;
  j->scratch = (float *)(void *)scratch;
  j->packed = j->scratch + lanes * j->thread_floats;
  j->start = j->packed + packed;
  int64_t *off = (int64_t *)(void *)(scratch + (bytes - table * (int64_t)sizeof *off));
  memset(j->start, 0, (size_t)starts * sizeof *j->start);
  if (j->bias) memcpy(j->start, j->bias, (size_t)(j->groups * j->filters) * sizeof *j->bias);
  offsets(j, off);
  int64_t panels = ceil_div(j->filters, j->height);
  int status = MOTH_OK;
  if (!j->in_place)
    status = moth_parallel(ctx, j->groups * panels, 1, (double)(j->of_group / panels) * 0.5,
                           pack_panels, j);
  if (!status)
    status = moth_parallel(ctx, tasks, 1, fma * NS_PER_FMA / (double)tasks, run_tasks, j);
  moth_dealloc(ctx, scratch, bytes);
  return status;
}

/* -- forward -- */

int moth_im2col_forward(moth_ctx *ctx, const moth_tile *tile, const moth_conv *c, const float *x,
                       const float *weight, const float *bias, float *y) {
  const moth_window *w = &c->w;
  int64_t area = w->kernel[0] * w->kernel[1], bytes = 3 * area * (int64_t)sizeof(int64_t);
  phase all = {.taps = area};
  job j = {.tile = tile, .n = c->n, .groups = c->groups,
           .filters = c->filters / c->groups, .cs = area, .straight = true,
           .out = INT2(w->out), .step = {1, 1}, .phases = 1, .phase = &all, .x = x,
           .weight = weight, .bias = bias, .y = y};
  j.l = (moth_im2col){
    .tile = j.tile, .channels = c->channels / c->groups, .in = INT2(w->in), .lines = w->out[0],
    .width = w->out[1], .step = INT2(w->stride), .top = -w->padding[0], .left = -w->padding[1],
    .copies = w->kernel[1], .apart = w->dilation[1],
    .reach = (w->kernel[0] - 1) * w->dilation[0], .area = area};
  if (!j.tile) return MOTH_DECLINED;
  j.rs = j.l.channels * area;
  j.tap = moth_alloc(ctx, bytes);
  if (!j.tap) return ctx->error.code;
  j.copy = j.tap + area;
  j.reach = j.copy + area;
  for (int64_t t = 0; t < area; t++) {
    j.tap[t] = t;
    j.copy[t] = t % w->kernel[1];
    j.reach[t] = t / w->kernel[1] * w->dilation[0];
  }
  int status = run(ctx, &j);
  moth_dealloc(ctx, j.tap, bytes);
  return status;
}

/* -- the gradient of the images -- */

/* True if a window multiplies column (or row) `at` of an image by tap k; *window is that window. */
static bool seen_by(const moth_window *w, int axis, int64_t at, int64_t k, int64_t *window) {
  int64_t from = at + w->padding[axis] - k * w->dilation[axis], step = w->stride[axis];
  if (from % step) return false;
  *window = from / step;
  return true;
}

/* The least and the greatest window whose results depend on the first element of a phase. */
static void range(const moth_window *w, int axis, int64_t *low, int64_t *high) {
  int64_t at = 0;
  bool any = false;
  for (int64_t p = 0; p < w->stride[axis]; p++)
    for (int64_t k = 0; k < w->kernel[axis]; k++) {
      if (!seen_by(w, axis, p, k, &at)) continue;
      *low = any && *low < at ? *low : at;
      *high = any && *high > at ? *high : at;
      any = true;
    }
}

/* Finds the phases of the gradient and their taps. */
static void phases(job *j, const moth_window *w) {
  int64_t n = 0, row = 0, column = 0;
  for (int p = 0; p < j->phases; p++) {
    phase *h = &j->phase[p];
    *h = (phase){.down = p / w->stride[1], .right = p % w->stride[1], .first = n};
    for (int64_t t = 0; t < w->kernel[0] * w->kernel[1]; t++) {
      int64_t r = t / w->kernel[1], s = t % w->kernel[1];
      if (!seen_by(w, 0, h->down, r, &row) || !seen_by(w, 1, h->right, s, &column)) continue;
      j->tap[n] = t;
      j->reach[n] = row - j->l.top;
      j->copy[n++] = (column - j->l.left) / j->l.apart;
    }
    h->taps = n - h->first;
  }
}

/* True if the gradient is efficient as a convolution: there are enough channels for tiles, and not
** many more windows than elements of dy. Large padding relative to the image makes many windows. */
static bool is_product(const moth_conv *c) {
  const moth_window *w = &c->w;
  double phases = (double)w->stride[0] * (double)w->stride[1];
  double windows = (double)ceil_div(w->in[0], w->stride[0]) * (double)ceil_div(w->in[1],
                                                                               w->stride[1]);
  return c->channels / c->groups >= FEW_CHANNELS && phases <= 64 &&
         windows <= 1.5 * (double)w->out[0] * (double)w->out[1];
}

int moth_im2col_input(moth_ctx *ctx, const moth_tile *tile, const moth_conv *c, const float *dy,
                     const float *weight, float *dx) {
  const moth_window *w = &c->w;
  int64_t area = w->kernel[0] * w->kernel[1], low[2] = {0, 0}, high[2] = {0, 0};
  if (!is_product(c)) return moth_col2im_input(ctx, tile, c, dy, weight, dx);
  int count = (int)(w->stride[0] * w->stride[1]);
  for (int i = 0; i < 2; i++) range(w, i, &low[i], &high[i]);
  job j = {.tile = tile, .n = c->n, .groups = c->groups,
           .filters = c->channels / c->groups, .rs = area, .out = INT2(w->in),
           .step = INT2(w->stride), .phases = count, .x = dy, .weight = weight, .y = dx};
  j.l = (moth_im2col){
    .tile = j.tile, .channels = c->filters / c->groups, .in = INT2(w->out),
    .lines = ceil_div(w->in[0], w->stride[0]), .width = ceil_div(w->in[1], w->stride[1]),
    .step = {1, 1}, .top = low[0], .left = low[1],
    .apart = w->stride[1] == 1 ? w->dilation[1] : 1, .reach = high[0] - low[0],
    .area = ceil_div(area, count)};
  j.l.copies = (high[1] - low[1]) / j.l.apart + 1;
  j.cs = j.filters * area;
  if (!j.tile) return MOTH_DECLINED;
  int64_t bytes = count * (int64_t)sizeof(phase) + 3 * area * (int64_t)sizeof(int64_t);
  j.phase = moth_alloc(ctx, bytes);
  if (!j.phase) return ctx->error.code;
  j.tap = (int64_t *)(void *)(j.phase + count);
  j.copy = j.tap + area;
  j.reach = j.copy + area;
  phases(&j, w);
  int status = run(ctx, &j);
  moth_dealloc(ctx, j.phase, bytes);
  return status == MOTH_DECLINED ? moth_col2im_input(ctx, tile, c, dy, weight, dx) : status;
}
