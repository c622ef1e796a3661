/* unary.h -- the loops of op/unary.h, moth_unary.exp[dtype]. */
#ifndef MOTH_KERNEL_UNARY_H
#define MOTH_KERNEL_UNARY_H

#include "op/unary.h"
#include "elementwise.h"

typedef struct moth_unary_loops {
  UNARY_FUNCTIONS(MOTH_MEMBER)
  UNARY_OTHERS(MOTH_MEMBER)
  UNARY_BACKS(MOTH_MEMBER)
} moth_unary_loops;
extern const moth_unary_loops moth_unary;

/* neg and abs of half types: loops over their bits as i16. */
extern const moth_loops moth_neg_half[1], moth_abs_half[1];

#endif
