/* binary.c -- loops of further functions of two and three tensors, as op/binary.h lists them. */
#include "binary.h"

#include "words.h"

#pragma GCC diagnostic ignored "-Wtype-limits" /* unsigned integers are never below 0 */

/* The largest number that divides both, from 0 on, and the least that both divide. */
static int64_t common_divisor(int64_t x, int64_t y) {
  uint64_t a = x < 0 ? 0 - (uint64_t)x : (uint64_t)x, b = y < 0 ? 0 - (uint64_t)y : (uint64_t)y;
  while (b) {
    const uint64_t r = a % b;
    a = b, b = r;
  }
  return (int64_t)a;
}

static int64_t common_multiple(int64_t x, int64_t y) {
  const int64_t divisor = common_divisor(x, y);
  const uint64_t product = divisor ? (uint64_t)(x / divisor) * (uint64_t)y : 0;
  return (int64_t)product < 0 ? (int64_t)(0 - product) : (int64_t)product;
}

#define LISTS(ONE, TWO, THREE) \
  BINARY_REALS(TWO) \
  BINARY_BITS(TWO) \
  BINARY_OTHERS(TWO) \
  BINARY_THREES(THREE)
MOTH_FAMILY(binary, LISTS)
