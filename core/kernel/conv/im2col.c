/* im2col.c -- im2col along the width: sizes of the blocks, and the copies. */
#include "im2col.h"
#include "tensor/shape.h"

#define BAND_BYTES (400 << 10) /* bytes of xs, the copied rows: half of a common L2 cache */
#define MOST_BYTES (16 << 20)  /* bytes of xs if even a few lines need more than BAND_BYTES */
#define WINDOWS 256            /* windows of a band; channels are split into blocks to reach it */
#define LEAST_TAPS 256         /* minimal number of taps in a block of channels */
#define MOST_NARROW 16         /* maximal number of copies and phases of narrow rows */

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t moth_im2col_size(const moth_im2col *l) {
  return l->block * l->copies * l->phases * l->rows * l->line + MOTH_TILE_COLUMNS;
}

bool moth_im2col_plan(moth_im2col *l, int64_t n, int64_t side) {
  int64_t row = (int64_t)sizeof(float), all;
  l->phases = l->step[0] <= l->reach ? l->step[0] : l->reach + 1;
  l->halo = l->reach / l->step[0];
  l->side = ceil_div(n, ceil_div(n, side < n ? side : n));
  l->line = l->side * l->width;
  int64_t factor[] = {l->copies, l->phases, l->line};
  for (int i = 0; i < 3; i++)
    if (moth_mul_overflow(row, factor[i], &row)) return false;
  int64_t wanted = ceil_div(WINDOWS, l->line); /* wanted: lines of windows */
  if (wanted > l->lines) wanted = l->lines;
  if (moth_mul_overflow(row, wanted + l->halo, &all) || all > MOST_BYTES) return false;
  int64_t least = ceil_div(LEAST_TAPS, l->area);
  l->block = BAND_BYTES / all > least ? BAND_BYTES / all : least;
  if (l->block > l->channels) l->block = l->channels;
  l->block = ceil_div(l->channels, ceil_div(l->channels, l->block));
  if (moth_mul_overflow(row, l->block, &row)) return false;
  int64_t band = BAND_BYTES / row - l->halo;
  if (band < wanted) band = wanted;
  if (band < l->halo + 1) band = l->halo + 1; /* no row is copied more than twice */
  if (band > l->lines) band = l->lines;
  if (moth_mul_overflow(row, band + l->halo, &all) || all > MOST_BYTES) return false;
  moth_im2col_set_band(l, ceil_div(l->lines, ceil_div(l->lines, band)));
  return true;
}

/* -- copying -- */

static inline void zero_row(float *to, int64_t n) {
  for (int64_t i = 0; i < n; i++) to[i] = 0;
}

/* Rows first to last - 1, of n rows from row `from` on with the given step, are inside the
** image. */
static void rows_inside(int64_t n, int64_t from, int64_t step, int64_t height, int64_t *first,
                        int64_t *last) {
  *first = from < 0 ? ceil_div(-from, step) : 0;
  *last = from < height ? ceil_div(height - from, step) : 0;
  if (*last > n) *last = n;
  if (*first > *last) *first = *last;
}

/* Fills the rows of one plane of xs for one image. */
static void copy_plane(const moth_im2col *l, const float *x, int64_t left, int64_t oy,
                        float *to) {
  int64_t step = l->step[1], span = l->in[1] - left;
  int64_t first = left < 0 ? ceil_div(-left, step) : 0;
  int64_t last = span > 0 ? ceil_div(span, step) : 0;
  if (last > l->width) last = l->width;
  if (first > last) first = last;
  for (int64_t phase = 0; phase < l->phases; phase++) {
    int64_t iy = oy * l->step[0] + phase + l->top, top, bottom;
    rows_inside(l->rows, iy, l->step[0], l->in[0], &top, &bottom);
    for (int64_t row = 0; row < top; row++, to += l->line) zero_row(to, l->width);
    if (top < bottom)
      l->tile->copy_rows(bottom - top, step, first, last - first, l->width,
                     x + (iy + top * l->step[0]) * l->in[1] + left + first * step,
                     l->in[1] * l->step[0], to, l->line);
    to += (bottom - top) * l->line;
    for (int64_t row = bottom; row < l->rows; row++, to += l->line) zero_row(to, l->width);
  }
}

/* -- rows of at most one vector -- */

/* For each copy of a row: its first column, and for each element the offset from there, or -1 in a
** border. For each phase: rows top to bottom - 1 are inside, and `row` is the image row of the
** first. */
typedef struct narrow {
  int64_t column[MOST_NARROW], top[MOST_NARROW], bottom[MOST_NARROW], row[MOST_NARROW];
  int32_t beyond[MOST_NARROW][MOTH_TILE_LANES];
} narrow;

static bool is_narrow(const moth_im2col *l) {
  return l->width <= l->tile->lanes && l->step[1] <= 2 && l->copies <= MOST_NARROW &&
         l->phases <= MOST_NARROW;
}

static void look(const moth_im2col *l, int64_t oy, narrow *z) {
  for (int64_t i = 0; i < l->copies; i++) {
    int64_t left = l->left + i * l->apart, step = l->step[1], first = 0;
    while (first < l->width && left + first * step < 0) first++;
    z->column[i] = left + first * step;
    for (int64_t k = 0; k < MOTH_TILE_LANES; k++) {
      int64_t at = left + k * step;
      z->beyond[i][k] = k >= first && k < l->width && at < l->in[1] ? (int32_t)(at - z->column[i])
                                                                    : -1;
    }
    if (first == l->width || z->column[i] >= l->in[1]) z->column[i] = 0;
  }
  for (int64_t p = 0; p < l->phases; p++) {
    int64_t iy = oy * l->step[0] + p + l->top;
    rows_inside(l->rows, iy, l->step[0], l->in[0], &z->top[p], &z->bottom[p]);
    z->row[p] = iy + z->top[p] * l->step[0];
  }
}

static void lower_narrow(const moth_im2col *l, const float *x, int64_t images, int64_t apart,
                         int64_t channels, int64_t oy, float *xs) {
  const int64_t size = l->in[0] * l->in[1], line = l->line, rest = (l->side - images) * l->width;
  const float *end = x + (images - 1) * apart + channels * size;
  narrow z;
  look(l, oy, &z);
  for (int64_t c = 0; c < channels; c++, x += size)
    for (int64_t i = 0; i < l->copies; i++)
      for (int64_t p = 0; p < l->phases; p++, xs += l->rows * line) {
        const int64_t top = z.top[p], bottom = z.bottom[p];
        if (top) zero_row(xs, top * line);
        if (top < bottom)
          l->tile->copy_short_rows(bottom - top, images, l->width, z.beyond[i],
                             x + z.row[p] * l->in[1] + z.column[i], l->in[1] * l->step[0], apart,
                             end, xs + top * line, line);
        for (int64_t row = top; rest && row < bottom; row++)
          zero_row(xs + (row + 1) * line - rest, rest);
        if (bottom < l->rows) zero_row(xs + bottom * line, (l->rows - bottom) * line);
      }
}

void moth_im2col_run(const moth_im2col *l, const float *x, int64_t images, int64_t apart,
                int64_t channels, int64_t oy, float *xs) {
  const int64_t plane = l->phases * l->rows * l->line, size = l->in[0] * l->in[1];
  if (is_narrow(l)) {
    lower_narrow(l, x, images, apart, channels, oy, xs);
    /* tiles read these floats, but do not use them */
    zero_row(xs + channels * l->copies * plane, MOTH_TILE_COLUMNS);
    return;
  }
  for (int64_t c = 0; c < channels; c++, x += size)
    for (int64_t i = 0; i < l->copies; i++, xs += plane)
      for (int64_t k = 0; k < l->side; k++) {
        if (k < images)
          copy_plane(l, x + k * apart, l->left + i * l->apart, oy, xs + k * l->width);
        else
          for (int64_t row = 0; row < l->phases * l->rows; row++)
            zero_row(xs + row * l->line + k * l->width, l->width);
      }
  zero_row(xs, MOTH_TILE_COLUMNS); /* tiles read these floats, but do not use them */
}
