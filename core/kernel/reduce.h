/* reduce.h -- reductions over any set of dimensions: many elements become one, by a reducer.
**
** The walk over both kinds of dimensions is here; a reducer says how an accumulator starts, takes
*in
** elements and ends as a result.
*/
#ifndef MOTH_KERNEL_REDUCE_H
#define MOTH_KERNEL_REDUCE_H

#include "tensor/loop.h"

#define MOTH_REDUCE_BLOCK 1024 /* the most accumulators at a time */

/* Accumulators acc[0..n) take in r elements each: element i of j lies at x + j*step + i*next. */
typedef void moth_reduce_take(int64_t n, int64_t r, void *acc, const char *x, int64_t step,
                              int64_t next);

typedef struct moth_reducer {
  moth_reduce_take *take[3]; /* at each level of instructions */
  void (*start)(int64_t n, void *acc);
  void (*join)(int64_t n, void *acc, const void *more); /* acc takes in other accumulators */
  /* results y[0..n) in a row; count is how many elements each of them took */
  void (*finish)(int64_t n, const void *acc, char *y, int64_t count);
  int64_t acc; /* bytes of an accumulator: 16 at most */
  /* Computes the results that are not finite again, in a wider range; slower. NULL: they stay. */
  const struct moth_reducer *wide;
} moth_reducer;

/* By dtype of the input; f16 and bf16 go through the reducers of f32. Empty entries: not defined.
** Results: sum: i64 for integers and bool, else the input's dtype; mean (floats): the same; count:
** i64; all, any: bool; amax, amin: the input's dtype. */
extern const moth_reducer moth_sum_reducers[MOTH_DTYPES], moth_mean_reducers[MOTH_DTYPES];
extern const moth_reducer
    moth_length_reducers[MOTH_DTYPES]; /* floats: the root of the sum of squares */
/* As sum; no part of a product of floats leaves their range. */
extern const moth_reducer moth_prod_reducers[MOTH_DTYPES];
extern const moth_reducer moth_count_reducers[MOTH_DTYPES];
extern const moth_reducer moth_all_reducers[MOTH_DTYPES], moth_any_reducers[MOTH_DTYPES];
extern const moth_reducer moth_amax_reducers[MOTH_DTYPES], moth_amin_reducers[MOTH_DTYPES];

/* y := x reduced along dims; reducers[from] takes x, converted to dtype `from`, and gives dtype
*`to`,
** which is converted to y's. */
int moth_reduce_into(const moth_reducer *reducers, moth_tensor *y, const moth_tensor *x,
                     moth_ints dims, int from, int to);

#endif
