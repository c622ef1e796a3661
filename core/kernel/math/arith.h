/* arith.h -- the loops of op/arith.h, moth_arith.add[dtype]; and the check of integer division. */
#ifndef MOTH_KERNEL_ARITH_H
#define MOTH_KERNEL_ARITH_H

#include "op/arith.h"
#include "elementwise.h"

typedef struct moth_arith_loops { ARITH_FUNCTIONS(MOTH_MEMBER) } moth_arith_loops;
extern const moth_arith_loops moth_arith;

/* The errors of an integer division; the check loop sets them. */
typedef struct moth_division {
  bool zero, overflow;
} moth_division;
/* Loops over x and y without a result, for integers. arg points to a pointer to a moth_division. */
extern const moth_inner moth_division_loops[MOTH_DTYPES];

#endif
