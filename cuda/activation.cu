/* activation.cu -- activations and their gradients, as core/op/activation.h lists them, and the
** gradients of losses in core/op/pointloss.h.
*/
#include "../core/op/activation.h"
#include "../core/op/pointloss.h"

#include "elementwise.cuh"

#define LISTS(ONE, TWO, THREE) \
  ACTIVATION_CURVES(ONE)        \
  ACTIVATION_PAIRS(TWO)         \
  ACTIVATION_BACKS(TWO)         \
  PAIR_SLOPES(THREE)
MOTH_CUDA_FAMILY(LISTS)
