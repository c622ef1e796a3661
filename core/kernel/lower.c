/* lower.c -- convolution by tiles over images that are lowered along the width only.
**
** For a band of output rows, xs[c][s][phase][row][ox] holds what tap s of the kernel's width sees
** in channel c, for every input row that the band needs (rows of one phase are a vertical stride
** apart), with padding and stride worked in. Then what tap k = (c, r, s) sees in all windows q of
** the band lies in a row, at xs + off[k] + q: KW copies of the image instead of KH * KW, no edge
** cases, and no vector is wasted whatever the width. The layout is from Cho & Brand 2017 (MEC).
*/
#include "lower.h"

#define BAND_BYTES (400 << 10)   /* of xs: half of a common L2 cache */
#define MOST_BYTES (16 << 20)    /* of xs where a single row of windows needs more than a band */
#define COLUMN_BYTES (256 << 10) /* of the columns of a gradient that are added up at a time */
#define CHAIN 384                /* products added in one go: longer sums lose digits */
#define BLOCK 128                /* windows of a band summed in one go: they stay in L1 */

typedef struct lowering {
  const moth_conv *c;
  const moth_tile *tile;
  int64_t channels, filters; /* of a group */
  int64_t k, p;              /* taps of a group, windows of an image */
  int64_t phases, halo;      /* rows beyond the band's own */
  int64_t band, rows;        /* output rows at a time, rows of a phase */
  float *room, *xs, *more;   /* one block: xs, and what else is needed */
  int64_t *off, bytes;
} lowering;

static int64_t xs_size(const lowering *l, int64_t band) {
  return l->channels * l->c->w.kernel[1] * l->phases * (band + l->halo) * l->c->w.out[1];
}

static void offsets(lowering *l) {
  const moth_window *w = &l->c->w;
  for (int64_t k = 0; k < l->k; k++) {
    int64_t s = k % w->kernel[1], r = k / w->kernel[1] % w->kernel[0];
    int64_t c = k / (w->kernel[0] * w->kernel[1]), down = r * w->dilation[0];
    int64_t plane = (c * w->kernel[1] + s) * l->phases + down % w->stride[0];
    l->off[k] = (plane * l->rows + down / w->stride[0]) * w->out[1];
  }
}

/* Chooses the band and allocates xs, the offsets and `more` floats; refuses what does not suit. */
static int lowering_open(moth_ctx *ctx, lowering *l, const moth_conv *c, int64_t more) {
  const moth_window *w = &c->w;
  int64_t reach = (w->kernel[0] - 1) * w->dilation[0], row = 1, all, size;
  *l = (lowering){.c = c, .tile = moth_tile_best(), .channels = c->channels / c->groups,
                  .filters = c->filters / c->groups, .p = w->out[0] * w->out[1]};
  l->k = l->channels * w->kernel[0] * w->kernel[1];
  l->phases = w->stride[0] <= reach ? w->stride[0] : reach + 1;
  l->halo = reach / w->stride[0];
  if (!l->tile) return MOTH_NOT_LOWERED;
  int64_t factor[] = {l->channels, w->kernel[1], l->phases, w->out[1], (int64_t)sizeof(float)};
  for (int i = 0; i < 5; i++)
    if (moth_mul_overflow(row, factor[i], &row)) return MOTH_NOT_LOWERED;
  if (moth_mul_overflow(row, l->halo + 1, &all) || all > MOST_BYTES) return MOTH_NOT_LOWERED;
  l->band = BAND_BYTES / row - l->halo;
  if (l->band < l->halo + 1) l->band = l->halo + 1; /* copies no row more than twice */
  if (l->band > w->out[0]) l->band = w->out[0];
  l->rows = l->band + l->halo;
  size = xs_size(l, l->band) + MOTH_TILE_COLUMNS;
  l->bytes = (size + more) * (int64_t)sizeof(float) + l->k * (int64_t)sizeof *l->off;
  l->off = moth_alloc(ctx, l->bytes);
  if (!l->off) return ctx->error.code;
  offsets(l);
  l->xs = (float *)(void *)(l->off + l->k);
  l->more = l->xs + size;
  memset(l->more - MOTH_TILE_COLUMNS, 0, MOTH_TILE_COLUMNS * sizeof(float)); /* read, not used */
  return MOTH_OK;
}

static void lowering_close(moth_ctx *ctx, lowering *l) {
  if (l->off) moth_dealloc(ctx, l->off, l->bytes);
}

/* One row of xs: what tap s sees in an input row. */
static void lower_row(const moth_window *w, int64_t first, int64_t last, const float *x,
                      float *restrict to) {
  int64_t step = w->stride[1], width = w->out[1], i = 0;
  for (; i < first; i++) to[i] = 0;
  if (step == 1)
    for (; i + 8 <= last; i += 8) memcpy(to + i, x + i, 8 * sizeof *to);
  for (; i < last; i++) to[i] = x[i * step];
  for (; i < width; i++) to[i] = 0;
}

/* Fills xs for the output rows from oy on; x is the image's group of channels. */
static void lower(const lowering *l, const float *x, int64_t oy) {
  const moth_window *w = &l->c->w;
  float *to = l->xs;
  for (int64_t c = 0; c < l->channels; c++, x += w->in[0] * w->in[1])
    for (int64_t s = 0; s < w->kernel[1]; s++) {
      int64_t left = s * w->dilation[1] - w->padding[1], first, last;
      moth_window_seen(w, left, &first, &last);
      for (int64_t phase = 0; phase < l->phases; phase++)
        for (int64_t row = 0; row < l->rows; row++, to += w->out[1]) {
          int64_t iy = (oy + row) * w->stride[0] + phase - w->padding[0];
          bool inside = iy >= 0 && iy < w->in[0];
          lower_row(w, inside ? first : 0, inside ? last : 0, x + iy * w->in[1] * inside + left,
                    to);
        }
    }
}

/* Lays `total` rows of n floats out as panels of equal height, each with its rows side by side:
** the panel that begins at row i lies at i * n. rs and cs are the steps of `from`. */
static void pack(int64_t total, int height, int64_t n, const float *from, int64_t rs, int64_t cs,
                 float *to) {
  for (int64_t i = 0; i < total; i += height) {
    int64_t m = total - i < height ? total - i : height;
    for (int64_t t = 0; t < n; t++)
      for (int64_t j = 0; j < m; j++) *to++ = from[(i + j) * rs + t * cs];
  }
}

/* A tile's product of any length, in chains; width < columns goes through a scratch tile. */
static void multiply(const moth_tile *tile, int m, int64_t n, const float *a, const float *b,
                     const int64_t *off, const float *start, float *y, int64_t ldy,
                     int64_t width) {
  float scratch[MOTH_TILE_ROWS * MOTH_TILE_COLUMNS];
  bool whole = width >= tile->columns;
  float *to = whole ? y : scratch;
  int64_t ld = whole ? ldy : tile->columns;
  for (int64_t t = 0; t < n; t += CHAIN)
    tile->product(m, n - t < CHAIN ? n - t : CHAIN, a + t * m, b, off + t, t ? NULL : start, to,
                  ld);
  if (!whole)
    for (int i = 0; i < m; i++) memcpy(y + i * ldy, scratch + i * ld, (size_t)width * sizeof *y);
}

/* -- forward: filters times taps -- */

/* The windows of the band in xs that starts at output row oy, for one image and group. */
static void forward_band(const lowering *l, const float *packed, const float *start, int64_t oy,
                         float *y) {
  int64_t width = l->c->w.out[1], left = l->c->w.out[0] - oy;
  int64_t windows = (left < l->band ? left : l->band) * width;
  int height = moth_tile_height(l->filters, l->tile->rows);
  for (int64_t q = 0; q < windows; q += l->tile->columns)
    for (int64_t i = 0; i < l->filters; i += height) {
      int64_t m = l->filters - i < height ? l->filters - i : height;
      multiply(l->tile, (int)m, l->k, packed + i * l->k, l->xs + q, l->off, start + i,
               y + i * l->p + oy * width + q, l->p, windows - q);
    }
}

int moth_lower_forward(moth_ctx *ctx, const moth_conv *c, const float *x, const float *weight,
                       const float *bias, float *y) {
  lowering l;
  int64_t filters = c->filters / c->groups;
  int64_t taps = c->channels / c->groups * c->w.kernel[0] * c->w.kernel[1];
  int status = lowering_open(ctx, &l, c, filters * taps + filters);
  float *start = l.more + filters * taps;
  for (int64_t g = 0; !status && g < c->groups; g++) {
    pack(filters, moth_tile_height(filters, l.tile->rows), taps, weight + g * filters * taps, taps,
         1, l.more);
    for (int64_t i = 0; i < filters; i++) start[i] = bias ? bias[g * filters + i] : 0;
    for (int64_t n = 0; !status && n < c->n; n++) {
      const float *image = x + (n * c->channels + g * l.channels) * c->w.in[0] * c->w.in[1];
      for (int64_t oy = 0; oy < c->w.out[0]; oy += l.band) {
        lower(&l, image, oy);
        forward_band(&l, l.more, start, oy, y + (n * c->filters + g * filters) * l.p);
      }
      status = moth_poll(ctx);
    }
  }
  lowering_close(ctx, &l);
  return status;
}

/* -- the gradient of the filters: taps times windows, summed -- */

/* gt[q][i] := dy[i][q] for the band's windows, with filters up to `padded` zero. */
static void turn(const lowering *l, const float *dy, int64_t windows, int64_t padded, float *gt) {
  memset(gt, 0, (size_t)(windows * padded) * sizeof *gt);
  for (int64_t q0 = 0; q0 < windows; q0 += 16)
    for (int64_t i = 0; i < l->filters; i++)
      for (int64_t q = q0; q < q0 + 16 && q < windows; q++) gt[q * padded + i] = dy[i * l->p + q];
}

static void weight_band(const lowering *l, int64_t windows, int64_t padded, const float *gt,
                        float *ga) {
  const moth_tile *tile = l->tile;
  int height = moth_tile_height(l->k, tile->taps);
  for (int64_t q = 0; q < windows; q += BLOCK) {
    int64_t n = windows - q < BLOCK ? windows - q : BLOCK;
    for (int64_t k = 0; k < l->k; k += height) {
      int64_t m = l->k - k < height ? l->k - k : height;
      for (int64_t i = 0; i < padded;) {
        bool wide = padded - i >= 2 * tile->lanes;
        tile->sum((int)m, wide, n, l->xs + q, l->off + k, gt + q * padded + i, padded,
                  ga + k * padded + i);
        i += wide ? 2 * tile->lanes : tile->lanes;
      }
    }
  }
}

int moth_lower_weight(moth_ctx *ctx, const moth_conv *c, const float *x, const float *dy,
                      float *dweight) {
  lowering l;
  const moth_tile *tile = moth_tile_best();
  int64_t lanes = tile ? tile->lanes : 1, filters = c->filters / c->groups;
  int64_t padded = (filters + lanes - 1) / lanes * lanes;
  int64_t taps = c->channels / c->groups * c->w.kernel[0] * c->w.kernel[1];
  int status = lowering_open(ctx, &l, c, padded * (taps + c->w.out[0] * c->w.out[1]));
  float *ga = l.more, *gt = l.more + padded * taps;
  for (int64_t g = 0; !status && g < c->groups; g++) {
    memset(ga, 0, (size_t)(padded * taps) * sizeof *ga);
    for (int64_t n = 0; !status && n < c->n; n++) {
      const float *image = x + (n * c->channels + g * l.channels) * c->w.in[0] * c->w.in[1];
      const float *up = dy + (n * c->filters + g * filters) * l.p;
      for (int64_t oy = 0; oy < c->w.out[0]; oy += l.band) {
        int64_t left = c->w.out[0] - oy, rows = left < l.band ? left : l.band;
        lower(&l, image, oy);
        turn(&l, up + oy * c->w.out[1], rows * c->w.out[1], padded, gt);
        weight_band(&l, rows * c->w.out[1], padded, gt, ga);
      }
      status = moth_poll(ctx);
    }
    for (int64_t i = 0; !status && i < filters; i++)
      for (int64_t k = 0; k < taps; k++)
        dweight[(g * filters + i) * taps + k] = ga[k * padded + i];
  }
  lowering_close(ctx, &l);
  return status;
}

/* -- the gradient of the images: filters turned times dy, and the columns added up -- */

typedef struct gathering {
  const moth_conv *c;
  const moth_tile *tile;
  int64_t filters, channels, p, padded; /* windows of an image, and a whole number of tiles */
  int64_t at_once;                      /* channels whose columns are made at a time */
  int64_t area;                         /* taps of a channel */
  float *packed, *dy, *col;
  int64_t *off;
} gathering;

/* Rows are short: eights of constant length cost half of a general loop. */
static void add_row(float *restrict to, int64_t step, const float *restrict col, int64_t n) {
  int64_t i = 0;
  if (step == 1)
    for (; i + 8 <= n; i += 8)
      for (int k = 0; k < 8; k++) to[i + k] += col[i + k];
  for (; i < n; i++) to[i * step] += col[i];
}

/* Adds the columns of some channels to where they came from. */
static void scatter(const gathering *q, int64_t channels, float *x) {
  const moth_window *w = &q->c->w;
  const float *col = q->col;
  for (int64_t tap = 0; tap < channels * q->area; tap++, col += q->padded) {
    int64_t s = tap % w->kernel[1], r = tap / w->kernel[1] % w->kernel[0];
    float *plane = x + tap / q->area * w->in[0] * w->in[1];
    int64_t left = s * w->dilation[1] - w->padding[1], first, last;
    moth_window_seen(w, left, &first, &last);
    for (int64_t oy = 0; oy < w->out[0]; oy++) {
      int64_t iy = oy * w->stride[0] - w->padding[0] + r * w->dilation[0];
      if (iy < 0 || iy >= w->in[0]) continue;
      add_row(plane + iy * w->in[1] + left + first * w->stride[1], w->stride[1],
              col + oy * w->out[1] + first, last - first);
    }
  }
}

static void input_image(const gathering *q, const float *dy, float *dx) {
  static const float zero[MOTH_TILE_ROWS];
  const moth_window *w = &q->c->w;
  memset(dx, 0, (size_t)(q->channels * w->in[0] * w->in[1]) * sizeof *dx);
  for (int64_t i = 0; i < q->filters; i++)
    memcpy(q->dy + i * q->padded, dy + i * q->p, (size_t)q->p * sizeof *dy);
  for (int64_t c = 0; c < q->channels; c += q->at_once) {
    int64_t channels = q->channels - c < q->at_once ? q->channels - c : q->at_once;
    int64_t taps = channels * q->area;
    int height = moth_tile_height(taps, q->tile->rows);
    for (int64_t k = 0; k < taps; k += height) {
      int64_t m = taps - k < height ? taps - k : height;
      for (int64_t j = 0; j < q->p; j += q->tile->columns)
        multiply(q->tile, (int)m, q->filters, q->packed + (c * q->area + k) * q->filters,
                 q->dy + j, q->off, zero, q->col + k * q->padded + j, q->padded,
                 q->tile->columns);
    }
    scatter(q, channels, dx + c * w->in[0] * w->in[1]);
  }
}

/* Packs a group's filters, turned, panel by panel as input_image reads them. */
static void pack_turned(const gathering *q, const float *weight) {
  int64_t taps = q->channels * q->area;
  for (int64_t c = 0; c < q->channels; c += q->at_once) {
    int64_t some = (q->channels - c < q->at_once ? q->channels - c : q->at_once) * q->area;
    pack(some, moth_tile_height(some, q->tile->rows), q->filters, weight + c * q->area, 1, taps,
         q->packed + c * q->area * q->filters);
  }
}

int moth_lower_input(moth_ctx *ctx, const moth_conv *c, const float *dy, const float *weight,
                     float *dx) {
  const moth_window *w = &c->w;
  gathering q = {.c = c, .tile = moth_tile_best(), .filters = c->filters / c->groups,
                 .channels = c->channels / c->groups, .p = w->out[0] * w->out[1],
                 .area = w->kernel[0] * w->kernel[1]};
  if (!q.tile) return MOTH_NOT_LOWERED;
  int64_t taps = q.channels * q.area, column, columns = q.tile->columns;
  q.padded = (q.p + columns - 1) / columns * columns;
  if (moth_mul_overflow(q.area * (int64_t)sizeof(float), q.padded, &column) || column > MOST_BYTES)
    return MOTH_NOT_LOWERED;
  q.at_once = COLUMN_BYTES / column > 0 ? COLUMN_BYTES / column : 1;
  if (q.at_once > q.channels) q.at_once = q.channels;
  int64_t floats = q.filters * (taps + q.padded) + q.at_once * q.area * q.padded;
  int64_t bytes = floats * (int64_t)sizeof(float) + q.filters * (int64_t)sizeof *q.off;
  q.off = moth_alloc(ctx, bytes);
  if (!q.off) return ctx->error.code;
  q.packed = (float *)(void *)(q.off + q.filters);
  q.dy = q.packed + q.filters * taps;
  q.col = q.dy + q.filters * q.padded;
  memset(q.dy, 0, (size_t)(q.filters * q.padded) * sizeof *q.dy);
  for (int64_t i = 0; i < q.filters; i++) q.off[i] = i * q.padded;
  int status = MOTH_OK;
  for (int64_t g = 0; !status && g < c->groups; g++) {
    pack_turned(&q, weight + g * q.filters * taps);
    for (int64_t n = 0; !status && n < c->n; n++) {
      input_image(&q, dy + (n * c->filters + g * q.filters) * q.p,
                  dx + (n * c->channels + g * q.channels) * w->in[0] * w->in[1]);
      status = moth_poll(ctx);
    }
  }
  moth_dealloc(ctx, q.off, bytes);
  return status;
}
