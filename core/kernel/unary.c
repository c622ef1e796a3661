/* unary.c -- loops of elementwise functions of one tensor, as op/unary.h lists them. */
#include "unary.h"

#include <tgmath.h>

#pragma GCC diagnostic ignored "-Wtype-limits" /* unsigned integers are never below 0 */

#define SIGMOID(name, real, wide)                           \
  static inline real sigmoid_of_##name(real x) {            \
    real e = exp(-fabs(x)); /* never overflows */           \
    return (x < 0 ? e : 1) / (1 + e);                       \
  }
MOTH_EACH_FLOAT(SIGMOID)

UNARY_FUNCTIONS(MOTH_LOOPS1)
UNARY_OTHERS(MOTH_LOOPS1)
UNARY_BACKS(MOTH_LOOPS2)

const moth_unary_loops moth_unary = {
  UNARY_FUNCTIONS(MOTH_ROWS)
  UNARY_OTHERS(MOTH_ROWS)
  UNARY_BACKS(MOTH_ROWS)
};
