/* unary.c -- loops of elementwise functions of one tensor, as op/unary.h lists them. */
#include "unary.h"

#include "curves.h"

#pragma GCC diagnostic ignored "-Wtype-limits" /* unsigned integers are never below 0 */

UNARY_FUNCTIONS(MOTH_LOOPS1)
UNARY_OTHERS(MOTH_LOOPS1)
UNARY_BACKS(MOTH_LOOPS2)

const moth_unary_loops moth_unary = {
  UNARY_FUNCTIONS(MOTH_ROWS)
  UNARY_OTHERS(MOTH_ROWS)
  UNARY_BACKS(MOTH_ROWS)
};
