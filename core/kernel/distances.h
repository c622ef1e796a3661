/* distances.h -- distances of all pairs of rows of two matrices, or of one, and their gradient. */
#ifndef MOTH_KERNEL_DISTANCES_H
#define MOTH_KERNEL_DISTANCES_H

#include <stdbool.h>

#include "base/context.h"

typedef struct moth_distances {
  int dtype;                     /* f32 or f64 */
  int64_t matrices, rows, columns, m; /* rows of x1, columns: rows of x2; m: length of a row */
  bool pairs;                    /* x2 is x1; only pairs i < j are computed: (1, 2), (1, 3), ... */
  double p;                      /* 1 or 2 */
  const void *x1, *x2, *dy;
  void *y, *dx;
  void *transposed;                  /* x2 as (matrices, m, padded), filled by moth_distances_run */
  int64_t padded;
} moth_distances;

int moth_distances_run(moth_ctx *ctx, moth_distances *o);
/* dx := the gradient of x1, from dy and the distances y. */
int moth_distances_back(moth_ctx *ctx, const moth_distances *o);

#endif
