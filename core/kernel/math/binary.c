/* binary.c -- loops of further functions of two and three tensors, which op/binary.h lists. */
#include "binary.h"

#include "real_math.h"

/* comparisons of unsigned integers with 0 are always true or false */
#pragma GCC diagnostic ignored "-Wtype-limits"

/* The greatest common divisor, never negative; and the least common multiple. */
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

/* The bits of floats grow with their size. For NaN the sum is NaN. */
#define NEXT_AFTER(name, real, word, bits_of, real_of)                              \
  MOTH_INLINE real next_after_##name(real x, real y) {                              \
    const word top = (word)1 << (8 * sizeof(word) - 1);                             \
    const word away = (x < y) == (x > 0) ? 1 : (word)0 - 1;                         \
    const word to = x == 0 ? (bits_of(y) & top) | 1 : bits_of(x) + away;            \
    const real z = x == y ? y : real_of(to);                                        \
    return x != x || y != y ? x + y : z;                                            \
  }
NEXT_AFTER(f32, float, uint32_t, moth_bits_f32, moth_float_of)
NEXT_AFTER(f64, double, uint64_t, moth_bits_f64, moth_double_of)
#undef nextafter
#define nextafter(x, y) FOR_REAL(next_after)(x, y)

#define LISTS(ONE, TWO, THREE) \
  BINARY_REALS(TWO) \
  BINARY_BITS(TWO) \
  BINARY_OTHERS(TWO) \
  BINARY_THREES(THREE)
MOTH_FAMILY(binary, LISTS)
