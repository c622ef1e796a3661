/* fused.h -- arguments of several elementwise functions in one pass over their operands, for a
** captured step (capture_elementwise.c) and for a kernel written in Lua. Intermediate values are
** not written to memory.
**
** Values are numbered: first the inputs, then the results, then the intermediate values. A step is
** FUSED_WORDS numbers: its function (kernel/math/maps.h; FUSED_CONVERT: a conversion), the dtype of
** its computation (-1: that of the first input), its number of values, and the values, the result
** first. A value is computed once, before it is read; all values have the inputs' common shape. A
** result may share an input's elements, if every read of the input precedes the step that computes
** the result.
*/
#ifndef MOTH_OP_FUSED_H
#define MOTH_OP_FUSED_H

#include "call/op.h"

enum {
  FUSED_CONVERT = -1,
  FUSED_VALUES = 6, /* per step */
  FUSED_WORDS = 3 + FUSED_VALUES,
  FUSED_STEPS = 48,
  FUSED_BETWEEN = 48, /* intermediate values, of which at most ... */
  FUSED_ROOMS = 16,   /* ... are live at once: they stay in the L1 cache, or in registers */
  FUSED_INPUTS = 8,
  FUSED_RESULTS = MOTH_MAX_OUTPUTS
};

#define FUSED(ARG) \
  ARG(tensors, input,      , "operands, broadcast to a common shape") \
  ARG(ints,    steps,      , "the steps, 9 numbers each") \
  ARG(ints,    dtypes,     , "dtypes of the results, then of the intermediate values; -1: the " \
                             "first input's") \
  ARG(int,     results,   1, "number of results") \
  ARG(floats,  numbers, none, "the parameters of each step's function, three a step")
MOTH_ARGS(fused, FUSED)

#ifndef __cplusplus
/* Checks if the program can run on its inputs' device. On a GPU this compiles its kernels, before
** the launches are captured. MOTH_E_UNSUPPORTED if it cannot run. */
int moth_fused_ready(const fused_args *a);
/* On the CPU: decodes the program into the bytes after `a`, moth_fused_bytes in all; then
** moth_fused_again can run it any number of times. */
size_t moth_fused_bytes(int64_t nsteps);
int moth_fused_read(fused_args *a);
int moth_fused_again(const void *a, moth_tensor **out);
#endif

#endif
