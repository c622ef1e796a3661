/* activation.cu -- activations and their gradients (the list is in core/op/activation.h). */
#include "../../core/op/activation.h"

#include "lib/elementwise.cuh"

#define LISTS(ONE, TWO, THREE)  \
  ACTIVATION_CURVES(ONE)        \
  ACTIVATION_PAIRS(TWO)         \
  ACTIVATION_BACKS(TWO)
MOTH_CUDA_FAMILY(LISTS)
