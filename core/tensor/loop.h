/* loop.h -- walking several tensors of one shape at once: dimensions are sorted and merged, and
** a kernel sees only runs of n elements with one byte step per operand.
*/
#ifndef MOTH_LOOP_H
#define MOTH_LOOP_H

#include "call/op.h"
#ifndef __cplusplus
/* C11 atomics are not C++: a plugin sees contexts through backend.h alone. */
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

/* One run: element i of operand k lies at at[k] + i * step[k]. */
typedef void (*moth_inner)(int64_t n, char *const *at, const int64_t *step, const void *arg);

/* Operands are broadcast to the shape of `over`. */
void moth_loop_over(moth_loop *loop, moth_ctx *ctx, const moth_layout *over, int noperands,
                    const moth_tensor *const *operands);
int moth_loop_run(const moth_loop *loop, moth_inner inner, const void *arg); /* polls */
/* The same on several threads, where elements of `cost` ns are worth it: what inner writes for an
** element must not depend on the run that it comes in, and nothing else may be written. */
int moth_loop_share(const moth_loop *loop, moth_inner inner, const void *arg, double cost);

/* The same, cut across dimension d alone: pieces go through all the others in the loop's order. So
** inner may also write what only elements with one index in d share. */
int moth_loop_share_across(const moth_loop *loop, int d, moth_inner inner, const void *arg,
                           double cost);

/* y := x, element by element, converting; x is broadcast to y. Not recorded. */
int moth_copy_into(moth_tensor *y, const moth_tensor *x);
/* An owned contiguous tensor with x's elements (x itself, retained, if it is that already). */
moth_tensor *moth_packed(const moth_tensor *x);
moth_tensor *moth_packed_channels_last(const moth_tensor *x); /* the same, channels_last */
/* The same with x's dimensions in the order of another layout, which x broadcasts to. */
moth_tensor *moth_packed_like(const moth_tensor *x, const moth_layout *order);
/* The same for what addresses depend on, positions and masks. Bytes that someone else may write at
** any time are copied, so that what was checked is what is used. */
moth_tensor *moth_positions(const moth_tensor *x);
moth_tensor *moth_cast(const moth_tensor *x, int dtype); /* packed; not recorded */
/* An owned tensor on the CPU with x's elements, packed; waits for the device. x may be there. */
moth_tensor *moth_to_host(const moth_tensor *x);

#endif
