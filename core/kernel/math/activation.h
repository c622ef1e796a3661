/* activation.h -- the loops of op/activation.h, moth_activation.elu[dtype]. */
#ifndef MOTH_KERNEL_ACTIVATION_H
#define MOTH_KERNEL_ACTIVATION_H

#include "op/activation.h"
#include "elementwise.h"

typedef struct moth_activation_loops {
  ACTIVATION_CURVES(MOTH_MEMBER)
  ACTIVATION_PAIRS(MOTH_MEMBER)
  ACTIVATION_BACKS(MOTH_MEMBER)
} moth_activation_loops;
extern const moth_activation_loops moth_activation;

#endif
