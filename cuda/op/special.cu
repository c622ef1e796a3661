/* special.cu -- functions of probability, as core/op/special.h lists them. */
#include "../../core/op/special.h"

#include "lib/elementwise.cuh"

#define LISTS(ONE, TWO, THREE) \
  SPECIAL_FUNCTIONS(ONE)       \
  SPECIAL_OTHERS(ONE)          \
  SPECIAL_PAIRS(TWO)
MOTH_CUDA_FAMILY(LISTS)
