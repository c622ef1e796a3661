/* distances.c -- distances of all pairs of rows, without a tensor of the differences. */
#include "distances.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "base/alloc.h"

#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "kernel/math/elementwise.h"
#include "transpose.h"

enum { TILE_ROWS = 4, REAL_TERMS = 32, GRAD_COLUMNS = 256 };

/* The position of the distance of rows i < j in the packed distances of n rows. */
#define PAIR(n, i, j) ((i) * (2 * (n) - (i) - 1) / 2 + (j) - (i) - 1)
/* s sign(d); NaN if d is NaN. */
#define SIGNED(s, d) ((d) > 0 ? (s) : (d) < 0 ? -(s) : (d) == 0 ? 0 : (d))

#define LEVELS_OF_F64
#define LOOPS "kernel/distances_real.h"
#include "each_level.h"

/* Items are columns of x2, counted over all matrices. Transposes columns and pads each with
** zeros. */
static void transpose_columns(int64_t from, int64_t end, int thread, const void *arg) {
  const moth_distances *o = arg;
  const int64_t size = moth_dtype_size[o->dtype], step = o->padded * size, row = o->m * size;
  (void)thread;
  for (int64_t n; from < end; from += n) {
    const int64_t matrix = from / o->m, first = from % o->m;
    const char *x = (const char *)o->x2 + matrix * o->columns * row + first * size;
    char *y = (char *)o->transposed + from * step;
    n = end - from < o->m - first ? end - from : o->m - first;
    if (size == 4) moth_transpose_block(n, o->columns, x, row, y, step);
    for (int64_t k = 0; k < n; k++) {
      for (int64_t j = 0; j < o->columns && size == 8; j++)
        memcpy(y + k * step + j * 8, x + j * row + k * 8, 8);
      memset(y + k * step + o->columns * size, 0, (size_t)((o->padded - o->columns) * size));
    }
  }
}

int moth_distances_run(moth_ctx *ctx, moth_distances *o) {
  const int64_t size = moth_dtype_size[o->dtype], groups = (o->rows + TILE_ROWS - 1) / TILE_ROWS;
  const int64_t lanes = 2 * 64 / size; /* rows of x2 in a tile at the highest level */
  int64_t bytes;
  o->padded = o->columns + 2 * lanes; /* a tile of pairs may start at any column */
  if (moth_mul_overflow(o->matrices * o->m, o->padded * size, &bytes))
    return moth_fail(ctx, MOTH_E_LIMIT, NULL, "the rows are too many");
  if (!(o->transposed = moth_alloc(ctx, bytes))) return ctx->error.code;
  const bool real = o->dtype == MOTH_F32;
  int status =
      moth_parallel(ctx, o->matrices * o->m, 16, 0.5 * (double)o->padded, transpose_columns, o);
  moth_work *work = real ? MOTH_BEST(distances) : MOTH_BEST(distances_f64);
  const double each = 0.1 * TILE_ROWS * (double)o->columns * (double)(o->m + 8);
  if (!status) status = moth_parallel(ctx, o->matrices * groups, 1, each, work, o);
  moth_dealloc(ctx, o->transposed, bytes);
  return status;
}

int moth_distances_back(moth_ctx *ctx, const moth_distances *o) {
  moth_work *work =
    o->dtype == MOTH_F32 ? MOTH_BEST(distances_back) : MOTH_BEST(distances_back_f64);
  return moth_parallel(ctx, o->matrices * o->rows, 1, 0.1 * (double)(o->columns * (o->m + 8)), work,
                       o);
}
