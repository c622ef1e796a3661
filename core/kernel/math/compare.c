/* compare.c -- loops of comparisons and logic, which op/compare.h lists. */
#include "compare.h"

#include "real_math.h"

#pragma GCC diagnostic ignored "-Wtype-limits" /* unsigned integers are never below 0 */

#define LISTS(ONE, TWO, THREE) \
  COMPARE_FUNCTIONS(TWO)
MOTH_FAMILY(compare, LISTS)
