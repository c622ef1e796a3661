/* special.cu -- functions of probability (the list is in core/op/special.h). */
#include "../../core/op/special.h"

#include "lib/elementwise.cuh"

#define LISTS(ONE, TWO, THREE) \
  SPECIAL_FUNCTIONS(ONE)       \
  SPECIAL_OTHERS(ONE)          \
  SPECIAL_PAIRS(TWO)
MOTH_CUDA_FAMILY(LISTS)
