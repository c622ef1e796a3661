/* arith.c -- loops of elementwise arithmetic, which op/arith.h lists. Integers wrap; a check before
** the division finds divisors that raise.
*/
#include "arith.h"

#include "device/device.h"
#include "call/observer.h"
#include "kernel/copy.h"
#include "real_math.h"

/* -- quotients and remainders --
**
** Integers of every width divide as int64; MIN % -1 is 0. A check has already raised for x / 0 and
** MIN / -1. Another thread may change shared storage after the check, so these divisions must not
** trap here either.
*/

static inline int64_t rest_trunc(int64_t x, int64_t y) {
  return y == -1 || y == 0 ? 0 : x % y;
}

static inline int64_t trunc_div(int64_t x, int64_t y) {
  if (y == -1) return (int64_t)(0 - (uint64_t)x);
  return y == 0 ? 0 : x / y;
}

static inline int64_t floor_div(int64_t x, int64_t y) {
  if (y == -1 || y == 0) return trunc_div(x, y);
  return x / y - ((x % y != 0) & ((x < 0) != (y < 0)));
}

static inline int64_t rest_floor(int64_t x, int64_t y) {
  int64_t r = rest_trunc(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

/* The remainder has the sign of the divisor. Python's floor division is the quotient that belongs
** to this remainder, rounded to an integer. */
#define REAL_DIVISION(name, real, wide)                                  \
  static inline real rest_##name(real x, real y) {                       \
    real r = fmod(x, y);                                                 \
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;                     \
  }                                                                      \
  static inline real quotient_##name(real x, real y) {                   \
    if (y == 0) return x / y;                                            \
    real r = fmod(x, y), q = (x - r) / y;                                \
    if (r != 0 && (r < 0) != (y < 0)) q -= 1;                            \
    if (q == 0) return copysign((real)0, x / y);                         \
    real whole = floor(q);                                               \
    return q - whole > (real)0.5 ? whole + 1 : whole;                    \
  }
MOTH_EACH_FLOAT(REAL_DIVISION)

/* fmod of f32 in f64, for finite y and |x / y| < 2^28. The truncated quotient is right: a quotient
** of two f32 that is not an integer is too far from integers for f64 to round to one. The remainder
** is exact. */
static inline float fmod_near(float x, float y) {
  const double whole = trunc((double)x / (double)y);
  return moth_signed_f32(moth_abs_f32((float)((double)x - whole * (double)y)), x);
}

static inline float rest_near(float x, float y) {
  const float r = fmod_near(x, y), other = r + y;
  return ((r != 0) & ((r < 0) != (y < 0))) ? other : r;
}

static inline float quotient_near(float x, float y) {
  const float r = fmod_near(x, y), all = (x - r) / y, less = all - 1;
  const float q = ((r != 0) & ((r < 0) != (y < 0))) ? less : all, whole = floorf(q);
  const float up = whole + 1, near = q - whole > 0.5f ? up : whole;
  const uint32_t sign = (moth_bits_f32(x) ^ moth_bits_f32(y)) & 0x80000000u;
  return q == 0 ? moth_float_of(sign) : near;
}

/* x^y by squaring, wrapping. For negative y the result is 1 or -1 if x is, else 0. */
static inline int64_t power(int64_t x, int64_t y) {
  if (y < 0) return x == 1 ? 1 : x == -1 ? (y % 2 ? -1 : 1) : 0;
  uint64_t result = 1, square = (uint64_t)x;
  for (; y; y >>= 1, square *= square)
    if (y & 1) result *= square;
  return (int64_t)result;
}

/* -- the table -- */

#define LISTS(ONE, TWO, THREE) ARITH_FUNCTIONS(TWO)
MOTH_FAMILY(arith, LISTS)

/* -- checks of integer division -- */

#define DIVISION(name, type, wide)                                                         \
  MOTH_INNER(division_##name) {                                                            \
    moth_division *found = *(moth_division *const *)arg;                                   \
    const uint64_t top = ~(uint64_t)0 << (8 * sizeof(type) - 1);                           \
    const int64_t least = (type)-1 < (type)1 ? (int64_t)top : 1;                           \
    bool zero = false, overflow = false;                                                   \
    for (int64_t i = 0; i < n; i++) {                                                      \
      const int64_t x = *(const type *)(const void *)(at[0] + i * step[0]);                \
      const int64_t y = *(const type *)(const void *)(at[1] + i * step[1]);                \
      zero |= y == 0;                                                                      \
      overflow |= (y == -1) & (x == least);                                                \
    }                                                                                      \
    found->zero |= zero;                                                                   \
    found->overflow |= overflow;                                                           \
  }
MOTH_EACH_INT(DIVISION)
const moth_inner moth_division_loops[MOTH_DTYPES] = {MOTH_INT_ROWS(division)};

/* -- select by a mask -- */

#define WHERE_LOOP(name, type)                                                             \
  MOTH_INNER(where_##name) {                                                               \
    enum { S = sizeof(type) };                                                             \
    (void)arg;                                                                             \
    if (step[0] == S && step[1] == 1 && (step[2] == S || step[2] == 0) &&                  \
        (step[3] == S || step[3] == 0)) {                                                  \
      moth_select_by_mask(S, n, at[0], (const uint8_t *)at[1], at[2], step[2] != 0, at[3], \
                          step[3] != 0);                                                   \
      return;                                                                              \
    }                                                                                      \
    for (int64_t i = 0; i < n; i++) {                                                      \
      const type either[2] = {*(const type *)(const void *)(at[3] + i * step[3]),          \
                              *(const type *)(const void *)(at[2] + i * step[2])};         \
      *(type *)(void *)(at[0] + i * step[0]) = either[at[1][i * step[1]] != 0];            \
    }                                                                                      \
  }
WHERE_LOOP(8, uint8_t)
WHERE_LOOP(16, uint16_t)
WHERE_LOOP(32, uint32_t)
WHERE_LOOP(64, uint64_t)
const moth_loops moth_where[1] = {
  {{[MOTH_BOOL] = where_8, [MOTH_U8] = where_8, [MOTH_I8] = where_8, [MOTH_I16] = where_16,
    [MOTH_I32] = where_32, [MOTH_I64] = where_64, [MOTH_F16] = where_16, [MOTH_BF16] = where_16,
    [MOTH_F32] = where_32, [MOTH_F64] = where_64, [MOTH_DTYPES] = where_32,
    [MOTH_DTYPES + 1] = where_32}, "where", 0.03f, .noperands = 4}};

int moth_map_where(moth_ctx *ctx, const moth_tensor *const *operands) {
  return moth_map(ctx, moth_where, operands[0]->l.dtype, 4, operands, NULL);
}
