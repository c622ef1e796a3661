/* loop.h -- loops over several tensors of one shape. Dimensions are sorted and merged; a kernel
** sees runs of n elements with one byte step per operand.
*/
#ifndef MOTH_LOOP_H
#define MOTH_LOOP_H

#include "call/op.h"
#ifndef __cplusplus
/* C++ has no C11 atomics: a plugin accesses contexts only through backend.h. */
#include "base/context.h"
#endif

#define MOTH_LOOP_OPERANDS 12

typedef struct moth_loop {
  moth_ctx *ctx;
  int32_t ndim, noperands;
  int64_t size[MOTH_MAX_DIMS]; /* [0] is the innermost */
  int64_t step[MOTH_MAX_DIMS][MOTH_LOOP_OPERANDS]; /* bytes */
  char *at[MOTH_LOOP_OPERANDS];
} moth_loop;

/* Computes one run. Element i of operand k is at at[k] + i * step[k]. */
typedef void (*moth_inner)(int64_t n, char *const *at, const int64_t *step, const void *arg);

/* Operands are broadcast to the shape of `over`. */
void moth_loop_over(moth_loop *loop, moth_ctx *ctx, const moth_layout *over, int noperands,
                    const moth_tensor *const *operands);
int moth_loop_run(const moth_loop *loop, moth_inner inner, const void *arg); /* polls for cancels */
/* The same on several threads, if elements of `cost` ns justify it. The result of `inner` for an
** element must not depend on its run, and `inner` may write only results. */
int moth_loop_share(const moth_loop *loop, moth_inner inner, const void *arg, double cost);

/* The same, but only dimension d is split between threads; a piece covers the other dimensions in
** the loop's order. So `inner` may also write values that only elements of one index in d share. */
int moth_loop_share_across(const moth_loop *loop, int d, moth_inner inner, const void *arg,
                           double cost);

/* y := x, converted; x broadcasts to y. Not recorded. */
int moth_copy_into(moth_tensor *y, const moth_tensor *x);
/* An owned contiguous tensor with x's elements. Returns x itself, retained, if it is contiguous. */
moth_tensor *moth_packed(const moth_tensor *x);
moth_tensor *moth_packed_channels_last(const moth_tensor *x); /* the same, channels_last */
/* The same with x's dimensions in the memory order of another layout, to which x broadcasts. */
moth_tensor *moth_packed_like(const moth_tensor *x, const moth_layout *order);
/* moth_packed for positions and masks, which addresses depend on. Memory that others may write at
** any time is copied, so that the checked values are the used values. */
moth_tensor *moth_positions(const moth_tensor *x);
moth_tensor *moth_cast(const moth_tensor *x, int dtype); /* packed; not recorded */
/* An owned, packed tensor on the CPU with x's elements. Waits for the device of x, if it is a
** GPU. */
moth_tensor *moth_to_host(const moth_tensor *x);

#endif
