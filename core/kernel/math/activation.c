/* activation.c -- loops of activations and their gradients, which op/activation.h lists. */
#include "activation.h"

#include "curves.h"

#pragma GCC diagnostic ignored "-Wtype-limits" /* unsigned integers are never below 0 */

#define LISTS(ONE, TWO, THREE) \
  ACTIVATION_CURVES(ONE) \
  ACTIVATION_PAIRS(TWO) \
  ACTIVATION_BACKS(TWO)
MOTH_FAMILY(activation, LISTS)
