/* arith.h -- the loops of op/arith.h, moth_arith.add[dtype]; and the check of integer division. */
#ifndef MOTH_KERNEL_ARITH_H
#define MOTH_KERNEL_ARITH_H

#include "op/arith.h"
#include "elementwise.h"

typedef struct moth_arith_loops { ARITH_FUNCTIONS(MOTH_MEMBER) } moth_arith_loops;
extern const moth_arith_loops moth_arith;

/* Operands that integer division refuses; the check loop sets them. */
typedef struct moth_division {
  bool zero, overflow;
} moth_division;
/* x, y (no result); arg points at a pointer to a moth_division; integers only */
extern const moth_inner moth_division_loops[MOTH_DTYPES];

#endif
