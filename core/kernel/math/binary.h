/* binary.h -- the loops of op/binary.h, moth_binary.atan2[dtype]. */
#ifndef MOTH_KERNEL_BINARY_H
#define MOTH_KERNEL_BINARY_H

#include "op/binary.h"
#include "elementwise.h"

typedef struct moth_binary_loops {
  BINARY_REALS(MOTH_MEMBER)
  BINARY_BITS(MOTH_MEMBER)
  BINARY_OTHERS(MOTH_MEMBER)
  BINARY_THREES(MOTH_MEMBER)
} moth_binary_loops;
extern const moth_binary_loops moth_binary;

#endif
