/* binary.c -- loops of further functions of two and three tensors, as op/binary.h lists them. */
#include "binary.h"

#include "words.h"

#pragma GCC diagnostic ignored "-Wtype-limits" /* unsigned integers are never below 0 */

#define LISTS(ONE, TWO, THREE) \
  BINARY_REALS(TWO) \
  BINARY_BITS(TWO) \
  BINARY_OTHERS(TWO) \
  BINARY_THREES(THREE)
MOTH_FAMILY(binary, LISTS)
