/* binary.c -- loops of further functions of two and three tensors, as op/binary.h lists them. */
#include "binary.h"

#include <tgmath.h>

#pragma GCC diagnostic ignored "-Wtype-limits" /* unsigned integers are never below 0 */

BINARY_REALS(MOTH_LOOPS2)
BINARY_BITS(MOTH_LOOPS2)
BINARY_OTHERS(MOTH_LOOPS2)
BINARY_THREES(MOTH_LOOPS3)

const moth_binary_loops moth_binary = {
  BINARY_REALS(MOTH_ROWS)
  BINARY_BITS(MOTH_ROWS)
  BINARY_OTHERS(MOTH_ROWS)
  BINARY_THREES(MOTH_ROWS)
};
