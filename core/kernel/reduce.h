/* reduce.h -- reductions over any set of dimensions.
**
** reduce.c loops over the kept and the reduced dimensions. A reducer defines how an accumulator
** starts, adds elements, joins another accumulator, and becomes a result.
*/
#ifndef MOTH_KERNEL_REDUCE_H
#define MOTH_KERNEL_REDUCE_H

#include "tensor/loop.h"

#define MOTH_REDUCE_BLOCK 1024 /* accumulators at a time, at most */

/* Adds r elements to each accumulator acc[0..n): element i of accumulator j is at x + j*step +
** i*next. */
typedef void moth_reduce_take(int64_t n, int64_t r, void *acc, const char *x, int64_t step,
                              int64_t next);

typedef struct moth_reducer {
  moth_reduce_take *take[3]; /* one for each level of instructions */
  void (*start)(int64_t n, void *acc);
  void (*join)(int64_t n, void *acc, const void *more); /* acc := acc joined with more */
  /* y[0..n) := the results, contiguous; each is of count elements */
  void (*finish)(int64_t n, const void *acc, char *y, int64_t count);
  int64_t acc; /* bytes of an accumulator: 16 at most */
  /* Recomputes results that are not finite in a wider range, more slowly. NULL: there is no such
  ** reducer. */
  const struct moth_reducer *wide;
} moth_reducer;

/* One reducer per input dtype; f16 and bf16 use the reducers of f32. Empty entries are undefined.
** Result dtypes: sum: i64 for integers and bool, else the input's dtype; mean (floats): the input's
** dtype; count: i64; all, any: bool; amax, amin: the input's dtype. */
extern const moth_reducer moth_sum_reducers[MOTH_DTYPES], moth_mean_reducers[MOTH_DTYPES];
extern const moth_reducer
    moth_length_reducers[MOTH_DTYPES]; /* floats: sqrt of the sum of squares */
/* Result dtypes as for sum. No partial product of floats overflows or underflows. */
extern const moth_reducer moth_prod_reducers[MOTH_DTYPES];
extern const moth_reducer moth_count_reducers[MOTH_DTYPES];
extern const moth_reducer moth_all_reducers[MOTH_DTYPES], moth_any_reducers[MOTH_DTYPES];
extern const moth_reducer moth_amax_reducers[MOTH_DTYPES], moth_amin_reducers[MOTH_DTYPES];

/* y := x reduced along dims. reducers[from] reads x, converted to dtype `from`, and writes dtype
** `to`, which is converted to y's dtype. */
int moth_reduce_into(const moth_reducer *reducers, moth_tensor *y, const moth_tensor *x,
                     moth_ints dims, int from, int to);

#endif
