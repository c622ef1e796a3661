/* arith.c -- loops of elementwise arithmetic. Integers wrap; division was checked beforehand. */
#include "arith.h"

#include <math.h>

/* -- sums, differences, products -- */

#define LOOPS(name, type, wide)                                      \
  MOTH_MAP2(add_##name, type, type, (wide)x + (wide)y)               \
  MOTH_MAP2(sub_##name, type, type, (wide)x - (wide)y)               \
  MOTH_MAP2(mul_##name, type, type, (wide)x *(wide)y)                \
  MOTH_MAP2(axpy_##name, type, type, (wide)x + (wide)a *(wide)y)
MOTH_EACH_INT(LOOPS)
MOTH_EACH_FLOAT(LOOPS)
MOTH_MAP2(add_truth, uint8_t, uint8_t, x | y)
MOTH_MAP2(mul_truth, uint8_t, uint8_t, x &y)
MOTH_MAP2(axpy_truth, uint8_t, uint8_t, x | (a & y))

#define TABLE(op) \
  moth_inner_table moth_##op##_loops = {MOTH_INT_ROWS(op), MOTH_FLOAT_ROWS(op)}
#define TABLE_WITH_TRUTH(op) \
  moth_inner_table moth_##op##_loops = {[MOTH_BOOL] = op##_truth, MOTH_INT_ROWS(op), \
                                        MOTH_FLOAT_ROWS(op)}
TABLE_WITH_TRUTH(add);
TABLE_WITH_TRUTH(mul);
TABLE_WITH_TRUTH(axpy);
TABLE(sub);

/* -- quotients and remainders --
** Integers of every width divide as int64; MIN % -1 is 0. x / 0 and MIN / -1 were refused before,
** yet in storage that threads share a value may have changed since: there is no trap then either.
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

static inline float rest_f32(float x, float y) {
  float r = fmodf(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

static inline double rest_f64(double x, double y) {
  double r = fmod(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

/* Python's floor division: the quotient that belongs to the remainder, made whole. */
static inline double floor_div_f64(double x, double y) {
  if (y == 0) return x / y;
  double r = fmod(x, y), q = (x - r) / y;
  if (r != 0 && (r < 0) != (y < 0)) q -= 1;
  if (q == 0) return copysign(0, x / y);
  double whole = floor(q);
  return q - whole > 0.5 ? whole + 1 : whole;
}

static inline float floor_div_f32(float x, float y) {
  if (y == 0) return x / y;
  float r = fmodf(x, y), q = (x - r) / y;
  if (r != 0 && (r < 0) != (y < 0)) q -= 1;
  if (q == 0) return copysignf(0, x / y);
  float whole = floorf(q);
  return q - whole > 0.5f ? whole + 1 : whole;
}

#define INT_DIVISION(name, type, wide)                                           \
  MOTH_MAP2(div_trunc_##name, type, type, trunc_div(x, y))                      \
  MOTH_MAP2(div_floor_##name, type, type, floor_div(x, y))                       \
  MOTH_MAP2(remainder_##name, type, type, rest_floor(x, y))                      \
  MOTH_MAP2(fmod_##name, type, type, rest_trunc(x, y))
MOTH_EACH_INT(INT_DIVISION)

MOTH_MAP2(div_f32, float, float, x / y)
MOTH_MAP2(div_f64, double, double, x / y)
MOTH_MAP2(div_trunc_f32, float, float, truncf(x / y))
MOTH_MAP2(div_trunc_f64, double, double, trunc(x / y))
MOTH_MAP2(div_floor_f32, float, float, floor_div_f32(x, y))
MOTH_MAP2(div_floor_f64, double, double, floor_div_f64(x, y))
MOTH_MAP2(remainder_f32, float, float, rest_f32(x, y))
MOTH_MAP2(remainder_f64, double, double, rest_f64(x, y))
MOTH_MAP2(fmod_f32, float, float, fmodf(x, y))
MOTH_MAP2(fmod_f64, double, double, fmod(x, y))

moth_inner_table moth_div_loops = {MOTH_FLOAT_ROWS(div)};
TABLE(div_trunc);
TABLE(div_floor);
TABLE(remainder);
TABLE(fmod);

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
moth_inner_table moth_division_loops = {MOTH_INT_ROWS(division)};

/* -- powers, extremes -- */

/* By squaring, wrapping. A negative exponent leaves only 1, -1 and, for the rest, 0. */
static inline int64_t power(int64_t x, int64_t y) {
  if (y < 0) return x == 1 ? 1 : x == -1 ? (y % 2 ? -1 : 1) : 0;
  uint64_t result = 1, square = (uint64_t)x;
  for (; y; y >>= 1, square *= square)
    if (y & 1) result *= square;
  return (int64_t)result;
}

#define INT_POWER(name, type, wide) \
  MOTH_MAP2(pow_##name, type, type, power(x, y))              \
  MOTH_MAP2(maximum_##name, type, type, x > y ? x : y)        \
  MOTH_MAP2(minimum_##name, type, type, x < y ? x : y)
MOTH_EACH_INT(INT_POWER)
MOTH_MAP2(pow_f32, float, float, powf(x, y))
MOTH_MAP2(pow_f64, double, double, pow(x, y))

/* NaN wins */
#define FLOAT_EXTREMES(name, type, wide)                                    \
  MOTH_MAP2(maximum_##name, type, type, ((x > y) | (x != x)) ? x : y)       \
  MOTH_MAP2(minimum_##name, type, type, ((x < y) | (x != x)) ? x : y)
MOTH_EACH_FLOAT(FLOAT_EXTREMES)
#define maximum_truth add_truth
#define minimum_truth mul_truth

TABLE(pow);
TABLE_WITH_TRUTH(maximum);
TABLE_WITH_TRUTH(minimum);

/* -- choosing by a mask -- */

#define WHERE(name, type, wide)                                                         \
  MOTH_INNER(where_##name) {                                                            \
    (void)arg;                                                                          \
    if (step[0] == sizeof(type) && step[1] == 1 && step[2] == sizeof(type) &&           \
        step[3] == sizeof(type)) {                                                      \
      type *result = (type *)(void *)at[0];                                             \
      const uint8_t *mask = (const uint8_t *)at[1];                                     \
      const type *x = (const type *)(const void *)at[2];                                \
      const type *y = (const type *)(const void *)at[3];                                \
      MOTH_IVDEP for (int64_t i = 0; i < n; i++) {                                      \
        const type p = x[i], q = y[i];                                                  \
        result[i] = mask[i] ? p : q;                                                    \
      }                                                                                 \
      return;                                                                           \
    }                                                                                   \
    for (int64_t i = 0; i < n; i++)                                                     \
      *(type *)(void *)(at[0] + i * step[0]) =                                          \
        at[1][i * step[1]] ? *(const type *)(const void *)(at[2] + i * step[2])         \
                           : *(const type *)(const void *)(at[3] + i * step[3]);        \
  }
WHERE(8, uint8_t, )
WHERE(16, uint16_t, )
WHERE(32, uint32_t, )
WHERE(64, uint64_t, )
int moth_map_where(moth_ctx *ctx, const moth_tensor *const *operands) {
  static const moth_inner by_size[] = {[1] = where_8, [2] = where_16, [4] = where_32,
                                       [8] = where_64};
  moth_loop loop;
  moth_loop_over(&loop, ctx, &operands[0]->l, 4, operands);
  return moth_loop_run(&loop, by_size[moth_dtype_size[operands[0]->l.dtype]], NULL);
}
