/* activation.c -- loops of activations and their gradients, which op/activation.h lists. */
#include "activation.h"

#include "curves.h"

/* comparisons of unsigned integers with 0 are always true or false */
#pragma GCC diagnostic ignored "-Wtype-limits"

#define LISTS(ONE, TWO, THREE) \
  ACTIVATION_CURVES(ONE) \
  ACTIVATION_PAIRS(TWO) \
  ACTIVATION_BACKS(TWO)
MOTH_FAMILY(activation, LISTS)
