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

#define SINC_LOGIT(name, real, wide)                                               \
  static inline real sinc_of_##name(real x) {                                      \
    real angle = (real)3.1415926535897932385 * x;                                  \
    return x == 0 ? 1 : sin(angle) / angle;                                        \
  }                                                                                \
  static inline real logit_of_##name(real x) { return log(x / (1 - x)); }
MOTH_EACH_FLOAT(SINC_LOGIT)

UNARY_FUNCTIONS(MOTH_LOOPS1)
UNARY_OTHERS(MOTH_LOOPS1)
UNARY_BACKS(MOTH_LOOPS2)

const moth_unary_loops moth_unary = {
  UNARY_FUNCTIONS(MOTH_ROWS)
  UNARY_OTHERS(MOTH_ROWS)
  UNARY_BACKS(MOTH_ROWS)
};
