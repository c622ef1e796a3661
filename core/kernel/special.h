/* special.h -- the loops of op/special.h, moth_special.erfinv[dtype]. */
#ifndef MOTH_KERNEL_SPECIAL_H
#define MOTH_KERNEL_SPECIAL_H

#include "../op/special.h"
#include "elementwise.h"

typedef struct moth_special_loops {
  SPECIAL_FUNCTIONS(MOTH_MEMBER)
  SPECIAL_OTHERS(MOTH_MEMBER)
  SPECIAL_PAIRS(MOTH_MEMBER)
} moth_special_loops;
extern const moth_special_loops moth_special;

#endif
