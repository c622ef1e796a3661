/* unary.cu -- elementwise functions of one tensor, as core/op/unary.h lists them. */
#include "../../core/op/unary.h"

#include "lib/elementwise.cuh"

struct nan_to_num_form;
template <> constexpr bool of_wholes<nan_to_num_form> = false; /* they are copied */

#define LISTS(ONE, TWO, THREE) \
  UNARY_FUNCTIONS(ONE)          \
  UNARY_OTHERS(ONE)             \
  UNARY_BACKS(TWO)
MOTH_CUDA_FAMILY(LISTS)
