/* row_reduce.h -- reductions that need a whole row at once: variance, logsumexp, positions of
** extremes, running sums. A tensor is first brought into rows: kept dimensions, then the reduced
** ones.
*/
#ifndef MOTH_KERNEL_ROW_REDUCE_H
#define MOTH_KERNEL_ROW_REDUCE_H

#include "tensor/loop.h"
#include "base/threads.h"

typedef struct moth_rows {
  int64_t count, length; /* how many rows, of how many elements */
  int dtype;
  const char *x;         /* in a row, one after the other */
  moth_tensor *owner;    /* of x; release it */
} moth_rows;

/* x as rows over the dims in mask, converted to dtype; copies only if it must. */
int moth_rows_of(moth_rows *r, const moth_tensor *x, uint32_t mask, int dtype);

/* Where to compute results that have a row for each row of the input, along dimension `axis`. */
typedef struct moth_row_result {
  moth_tensor *y, seen; /* seen: y with that dimension at the end, as the rows have it */
  moth_tensor *work;    /* owned, packed like seen; y itself if that lies so */
} moth_row_result;
int moth_row_result_open(moth_row_result *o, moth_tensor *y, int32_t axis, int dtype);
int moth_row_result_done(moth_row_result *o, int status); /* passes the status on */

/* f32 or f64; y gets one value a row. */
int moth_rows_var(const moth_rows *r, char *y, double correction, bool root);
int moth_rows_logsumexp(const moth_rows *r, char *y);
/* Any dtype but the half ones. The first of equals wins, and NaN over all; rows are not empty. */
int moth_rows_extreme(const moth_rows *r, int64_t *position, bool least);
/* i64, f32 or f64; y has the rows' layout. from_end: each element sums those from it on. */
int moth_rows_cumsum(const moth_rows *r, char *y, bool from_end);

/* Runs work over all rows, on several threads where that pays; `each`: ns of an element. */
int moth_rows_share(const moth_rows *r, double each, moth_work *work, const void *arg);

#endif
