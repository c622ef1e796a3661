/* arith.h -- loops of elementwise arithmetic, by dtype of the values. */
#ifndef MOTH_KERNEL_ARITH_H
#define MOTH_KERNEL_ARITH_H

#include "elementwise.h"

/* result, x, y */
extern moth_inner_table moth_add_loops, moth_sub_loops, moth_mul_loops;
extern moth_inner_table moth_axpy_loops; /* x + alpha y; arg points at alpha, of the type */
extern moth_inner_table moth_div_loops;  /* floats only */
extern moth_inner_table moth_div_trunc_loops, moth_div_floor_loops;
extern moth_inner_table moth_remainder_loops, moth_fmod_loops;
extern moth_inner_table moth_pow_loops, moth_maximum_loops, moth_minimum_loops;
/* What integer division must refuse: set by the loop below when it meets it. */
typedef struct moth_division {
  bool zero, overflow;
} moth_division;
/* x, y (no result); arg points at a moth_division; integers only */
extern moth_inner_table moth_division_loops;

#endif
