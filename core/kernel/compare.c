/* compare.c -- loops of comparisons and of logic, as op/compare.h lists them. */
#include "compare.h"

COMPARE_FUNCTIONS(MOTH_LOOPS2)
const moth_compare_loops moth_compare = {COMPARE_FUNCTIONS(MOTH_ROWS)};
