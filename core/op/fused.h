/* fused.h -- the face of several elementwise functions done in one pass over their operands: what a
** recording joins (capture_join.c), and a kernel written in Lua. What lies between two of them is
** never written to memory.
**
** Values are numbered: the inputs, then the results, then what lies between. A step is FUSED_WORDS
** numbers: a function's (kernel/math/maps.h; FUSED_CONVERT: a conversion), the dtype that it
** computes in (-1: that of the first input), how many values it names, and these, what it gives
** first. A value is given once, before it is read; all have the inputs' common shape. A result may
** be an input's very elements, if all that reads the input comes before the step that gives the
** result.
*/
#ifndef MOTH_OP_FUSED_H
#define MOTH_OP_FUSED_H

#include "call/op.h"

enum {
  FUSED_CONVERT = -1,
  FUSED_VALUES = 6, /* that a step can name */
  FUSED_WORDS = 3 + FUSED_VALUES,
  FUSED_STEPS = 48,
  FUSED_BETWEEN = 48, /* values between, of which so many may be ... */
  FUSED_ROOMS = 16,   /* ... read later on at once: they stay in the first cache, or in registers */
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
/* Whether the program can run where its inputs lie. On a GPU its kernels are made for that, before
** a graph is made of what launches them. MOTH_E_UNSUPPORTED: not there. */
int moth_fused_ready(const fused_args *a);
/* On the CPU: the program is read into the bytes behind a, which has so many with them; from then
** on it may be run again and again. */
size_t moth_fused_bytes(int64_t nsteps);
int moth_fused_read(fused_args *a);
int moth_fused_again(const void *a, moth_tensor **out);
#endif

#endif
