/* extreme.c -- argmax and argmin of floats, along rows and down columns. */
#include "extreme.h"

#include <math.h>

#include "base/threads.h"

#define ITEM_COLUMNS 512 /* columns that an item processes together */

typedef struct extreme_job {
  int64_t n, inner;
  bool least;
  const void *x;
  int64_t *y;
} extreme_job;

#define LOOPS "kernel/extreme_real.h"
#include "each_level.h"

int moth_extremes(moth_ctx *ctx, int dtype, int64_t outer, int64_t n, int64_t inner, bool least,
                  const void *x, int64_t *y) {
  moth_work *work = dtype == MOTH_F32 ? MOTH_BEST(extremes) : extremes_f64;
  const int64_t items = outer * ((inner + ITEM_COLUMNS - 1) / ITEM_COLUMNS);
  const double cost = 0.1 * (double)n * (double)(inner < ITEM_COLUMNS ? inner : ITEM_COLUMNS);
  const extreme_job j = {n, inner, least, x, y};
  if ((double)items * cost > 1000) return moth_parallel(ctx, items, 1, cost, work, &j);
  work(0, items, 0, &j);
  return MOTH_OK;
}
