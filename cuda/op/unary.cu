/* unary.cu -- elementwise functions of one tensor (the list is in core/op/unary.h). */
#include "../../core/op/unary.h"

#include "lib/elementwise.cuh"

struct nan_to_num_form;
template <> constexpr bool of_integers<nan_to_num_form> = false; /* integers are copied */

#define LISTS(ONE, TWO, THREE)  \
  UNARY_FUNCTIONS(ONE)          \
  UNARY_OTHERS(ONE)             \
  UNARY_BACKS(TWO)
MOTH_CUDA_FAMILY(LISTS)
