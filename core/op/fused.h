/* fused.h -- arguments of several elementwise functions in one pass over their operands, for a
** captured step (capture_fuse_elementwise.c) and for a kernel written in Lua. Intermediate values
** are not written to memory.
**
** Values are numbered: first the inputs, then the results, then the intermediate values. A step is
** FUSED_WORDS integers: its function (kernel/math/maps.h; FUSED_CONVERT is a conversion), the dtype
** of its computation (-1: the first input's dtype), its number of values, and the values, the
** result first. A value is computed once, before it is read. All values have the inputs' common
** shape. A result may be written over an input if every read of the input precedes the step that
** computes the result.
*/
#ifndef MOTH_OP_FUSED_H
#define MOTH_OP_FUSED_H

#include "call/op.h"

enum {
  FUSED_CONVERT = -1,
  FUSED_VALUES = 6, /* per step */
  FUSED_WORDS = 3 + FUSED_VALUES,
  FUSED_STEPS = 48,
  FUSED_BETWEEN = 48, /* limit of intermediate values */
  /* limit of live intermediate values: they are in the L1 cache or in registers */
  FUSED_ROOMS = 16,
  FUSED_INPUTS = 8,
  FUSED_RESULTS = MOTH_MAX_OUTPUTS
};

#define FUSED(ARG) \
  ARG(tensors, input,      , "operands, broadcast to a common shape") \
  ARG(ints,    steps,      , "the steps, 9 numbers each") \
  ARG(ints,    dtypes,     , "dtypes of the results, then of the intermediate values; -1: the " \
                             "first input's") \
  ARG(int,     results,   1, "number of results") \
  ARG(floats,  numbers, none, "the parameters of each step's function, three per step")
MOTH_ARGS(fused, FUSED)

#ifndef __cplusplus
/* Checks if the program can run on its inputs' device. On a GPU this compiles its kernels, so call
** it before the launches are captured. Returns MOTH_E_UNSUPPORTED if the program cannot run. */
int moth_fused_ready(const fused_args *a);
/* CPU only: moth_fused_bytes is the size of `a` and of the decoded program behind it.
** moth_fused_again runs the decoded program any number of times. */
size_t moth_fused_bytes(int64_t nsteps);
int moth_fused_read(fused_args *a);
int moth_fused_again(const void *a, moth_tensor **out);
#endif

#endif
