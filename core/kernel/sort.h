/* sort.h -- sort, top k and rank selection within rows.
**
** Every element becomes an unsigned key with the same order: NaN is the largest, -0 equals 0, and
** keys are complemented for descending order. Keys are sorted byte by byte (radix sort), few keys
** by merge sort; both are stable. The k-th key is found by counting bytes from the highest one on.
*/
#ifndef MOTH_KERNEL_SORT_H
#define MOTH_KERNEL_SORT_H

#include "row_reduce.h"

typedef struct moth_keyed { /* an element during the sort */
  uint64_t key;
  int64_t at; /* its position in the row */
} moth_keyed;

#define MOTH_KEY_NAN UINT64_MAX /* of floats, ascending */

/* Keys of n packed elements of a dtype, except half types. */
void moth_keys_of(int64_t n, const char *x, int dtype, bool descending, uint64_t *keys);

/* The number of runs of equal elements in n packed elements; NaN equals nothing. `values` gets the
** first element of each run and `first` its position, if not NULL. */
int64_t moth_runs_of(int64_t n, const char *x, int dtype, int64_t *first, char *values);

/* Sorts n elements stably by key; `spare` has space for n elements. False if a cancel stopped
** it. */
bool moth_keyed_sort(moth_ctx *ctx, int64_t n, moth_keyed *x, moth_keyed *spare);

/* position (k per row) := the first k positions of each row in sorted order (k is the length for
** all); values := their elements, in the rows' dtype, if not NULL. */
int moth_rows_sort(const moth_rows *r, int64_t k, bool descending, char *values,
                   int64_t *position);

/* An element of a sorted row: that of rank k, or, if k < 0, that at a fraction of the row, the
** lower of two or the one above. There NaN wins, or is ignored. */
typedef struct moth_rank {
  int64_t k;
  double share;
  bool above, skips_nan;
} moth_rank;
/* Value and position of that element of each row. Rows are not empty. */
int moth_rows_rank(const moth_rows *r, const moth_rank *rank, char *values, int64_t *position);

#endif
