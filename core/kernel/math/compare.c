/* compare.c -- loops of comparisons and logic, which op/compare.h lists. */
#include "compare.h"

#include "real_math.h"

/* comparisons of unsigned integers with 0 are always true or false */
#pragma GCC diagnostic ignored "-Wtype-limits"

#define LISTS(ONE, TWO, THREE) \
  COMPARE_FUNCTIONS(TWO)
MOTH_FAMILY(compare, LISTS)
