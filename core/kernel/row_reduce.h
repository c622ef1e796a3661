/* row_reduce.h -- reductions that need a whole row at once: variance, logsumexp, argmax, cumsum. A
** tensor is first viewed or copied as rows: the kept dimensions come first, then the reduced ones.
*/
#ifndef MOTH_KERNEL_ROW_REDUCE_H
#define MOTH_KERNEL_ROW_REDUCE_H

#include "tensor/loop.h"
#include "base/threads.h"

typedef struct moth_rows {
  int64_t count, length; /* number of rows; elements of a row */
  int dtype;
  const char *x;         /* contiguous */
  moth_tensor *owner;    /* the tensor of x; the caller releases it */
} moth_rows;

/* The rows of x over the dims in mask, converted to dtype. Copies only if it must. */
int moth_rows_of(moth_rows *r, const moth_tensor *x, uint32_t mask, int dtype);

/* A buffer for results that have one row for each row of the input, along dimension `axis`. */
typedef struct moth_row_result {
  moth_tensor *y, seen; /* seen: y with that dimension last, like the rows */
  moth_tensor *work;    /* owned, packed like `seen`; y itself if y has this layout */
} moth_row_result;
int moth_row_result_open(moth_row_result *o, moth_tensor *y, int32_t axis, int dtype);
int moth_row_result_done(moth_row_result *o, int status); /* returns status */

/* f32 or f64. y has one value for each row. */
int moth_rows_var(const moth_rows *r, char *y, double correction, bool root);
int moth_rows_logsumexp(const moth_rows *r, char *y);
/* Any dtype except half types. The first of equal values wins, NaN wins over all. Rows are not
** empty. */
int moth_rows_extreme(const moth_rows *r, int64_t *position, bool least);
/* i64, f32 or f64. y has the layout of the rows. from_end: each result is the sum from its element
** to the end. */
int moth_rows_cumsum(const moth_rows *r, char *y, bool from_end);

/* Runs work over all rows, on several threads if that pays. each: ns per element. */
int moth_rows_share(const moth_rows *r, double each, moth_work *work, const void *arg);

#endif
