/* unary.c -- loops of elementwise functions of one tensor, as op/unary.h lists them. */
#include "unary.h"

#include "curves.h"

#pragma GCC diagnostic ignored "-Wtype-limits" /* unsigned integers are never below 0 */

#define LISTS(ONE, TWO, THREE) \
  UNARY_FUNCTIONS(ONE) \
  UNARY_OTHERS(ONE) \
  UNARY_BACKS(TWO)
MOTH_FAMILY(unary, LISTS)
