/* bag.c -- embedding_bag: sums of rows of a table, by bags of tokens. */
#include "bag.h"

#include <string.h>

#include "base/threads.h"
#include "kernel/math/elementwise.h"

enum { REAL_ROWS = 32 }; /* rows of the table that are summed in REAL */

#define LEVELS_OF_F64
#define LOOPS "kernel/bag_real.h"
#include "each_level.h"

int moth_bag_sums(moth_ctx *ctx, const moth_bags *o) {
  const double tokens = o->start ? (double)o->start[o->bags] / (double)o->bags : (double)o->each;
  moth_work *work = o->dtype == MOTH_F32 ? MOTH_BEST(bag_sums) : MOTH_BEST(bag_sums_f64);
  return moth_parallel(ctx, o->bags, 4, 10 + tokens * (2 + 0.1 * (double)o->features), work, o);
}
