/* compare.cu -- comparisons and logic, as core/op/compare.h lists them. */
#include "../core/op/compare.h"

#include "elementwise.cuh"

#define LISTS(ONE, TWO, THREE) \
  COMPARE_FUNCTIONS(TWO)
MOTH_CUDA_FAMILY(LISTS)
