/* sort.h -- sort, top k and rank selection within rows.
**
** Every element becomes an unsigned key with the same order: NaN is the largest, -0 equals 0, and
** keys are complemented for descending order. Many keys are sorted byte by byte (radix sort), few
** keys by merge sort; both sorts are stable. The k-th key is found by counting bytes, from the
** highest byte on.
*/
#ifndef MOTH_KERNEL_SORT_H
#define MOTH_KERNEL_SORT_H

#include "row_reduce.h"

typedef struct moth_keyed { /* an element during the sort */
  uint64_t key;
  int64_t at; /* its position in the row */
} moth_keyed;

#define MOTH_KEY_NAN UINT64_MAX /* the key of NaN in ascending order */

/* Keys of n packed elements of a dtype, except half types. */
void moth_keys_of(int64_t n, const char *x, int dtype, bool descending, uint64_t *keys);

/* The number of runs of equal elements in n packed elements; NaN equals nothing. `values` gets the
** first element of each run and `first` its position, if not NULL. */
int64_t moth_runs_of(int64_t n, const char *x, int dtype, int64_t *first, char *values);

/* Sorts n elements stably by key; `spare` has space for n elements. False if a cancel stopped
** it. */
bool moth_keyed_sort(moth_ctx *ctx, int64_t n, moth_keyed *x, moth_keyed *spare);

/* position := the first k positions of each row in sorted order; k = n sorts all. values := the
** elements at these positions, in the rows' dtype, if not NULL. */
int moth_rows_sort(const moth_rows *r, int64_t k, bool descending, char *values,
                   int64_t *position);

/* A rank in a sorted row: k, or, if k < 0, a fraction `share` of the row, rounded down or, with
** `above`, up. With a fraction, NaN wins, or is skipped with skips_nan. */
typedef struct moth_rank {
  int64_t k;
  double share;
  bool above, skips_nan;
} moth_rank;
/* The value and the position of the element of this rank in each row. Rows are not empty. */
int moth_rows_rank(const moth_rows *r, const moth_rank *rank, char *values, int64_t *position);

#endif
