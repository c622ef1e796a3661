/* compare.h -- the loops of op/compare.h, moth_compare.eq[dtype]; the result is bool. */
#ifndef MOTH_KERNEL_COMPARE_H
#define MOTH_KERNEL_COMPARE_H

#include "op/compare.h"
#include "elementwise.h"

typedef struct moth_compare_loops { COMPARE_FUNCTIONS(MOTH_MEMBER) } moth_compare_loops;
extern const moth_compare_loops moth_compare;

#endif
