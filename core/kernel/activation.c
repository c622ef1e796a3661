/* activation.c -- loops of activations and of their gradients, as op/activation.h lists them. */
#include "activation.h"

#include "curves.h"

#pragma GCC diagnostic ignored "-Wtype-limits" /* unsigned integers are never below 0 */

ACTIVATION_CURVES(MOTH_LOOPS1)
ACTIVATION_PAIRS(MOTH_LOOPS2)
ACTIVATION_BACKS(MOTH_LOOPS2)

const moth_activation_loops moth_activation = {
  ACTIVATION_CURVES(MOTH_ROWS)
  ACTIVATION_PAIRS(MOTH_ROWS)
  ACTIVATION_BACKS(MOTH_ROWS)
};
