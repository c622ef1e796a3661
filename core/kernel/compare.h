/* compare.h -- loops of comparisons and of logic; the result is bool, the dtype that of x and y. */
#ifndef MOTH_KERNEL_COMPARE_H
#define MOTH_KERNEL_COMPARE_H

#include "elementwise.h"

/* result, x, y */
extern moth_inner_table moth_eq_loops, moth_ne_loops, moth_lt_loops, moth_le_loops;
extern moth_inner_table moth_logical_and_loops, moth_logical_or_loops;

#endif
