/* sort.h -- sorting and selecting within rows.
**
** Every element becomes an unsigned key that is ordered as the elements are: NaN above all, -0 as
** 0, all of it complemented when the largest come first. Keys are sorted by their bytes (radix) or,
** if there are few, by merging; both are stable. The k-th key is found by counting bytes from the
** highest on among those that still agree with it.
*/
#ifndef MOTH_KERNEL_SORT_H
#define MOTH_KERNEL_SORT_H

#include "row_reduce.h"

typedef struct moth_keyed { /* an element on its way */
  uint64_t key;
  int64_t at; /* its position in the row */
} moth_keyed;

#define MOTH_KEY_NAN UINT64_MAX /* of floats, ascending */

/* Keys of n packed elements of a dtype, half ones excepted. */
void moth_keys_of(int64_t n, const char *x, int dtype, bool descending, uint64_t *keys);

/* How many runs of equals n packed elements have, NaN being like nothing; the first of each goes to
** `values`, its position to `first`, if these are not NULL. */
int64_t moth_runs_of(int64_t n, const char *x, int dtype, int64_t *first, char *values);

/* Sorts n elements stably by key; `spare` has room for as many. False when a cancel stopped it. */
bool moth_keyed_sort(moth_ctx *ctx, int64_t n, moth_keyed *x, moth_keyed *spare);

/* The first k positions of each row in order (all of them: k is the length), into `position`, k a
** row; and their elements, in the rows' dtype, into `values` if it is not NULL. */
int moth_rows_sort(const moth_rows *r, int64_t k, bool descending, char *values,
                   int64_t *position);

/* Which element of a sorted row: that of rank k, or, if k < 0, that at a share of the row, the
** lower of two or the one above; there NaN wins, or is left out. */
typedef struct moth_rank {
  int64_t k;
  double share;
  bool above, skips_nan;
} moth_rank;
/* Value and position of that element of each row. Rows are not empty. */
int moth_rows_rank(const moth_rows *r, const moth_rank *rank, char *values, int64_t *position);

#endif
