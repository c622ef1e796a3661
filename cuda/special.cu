/* special.cu -- erfinv, lgamma and its slopes, as core/op/special.h lists them. */
#include "../core/op/special.h"

#include "elementwise.cuh"

#define LISTS(ONE, TWO, THREE) \
  SPECIAL_FUNCTIONS(ONE)       \
  SPECIAL_OTHERS(ONE)
MOTH_CUDA_FAMILY(LISTS)
