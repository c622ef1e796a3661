/* unary.c -- loops of elementwise functions of one tensor. */
#include "unary.h"

#include <math.h>

#define INT_TABLE(op) \
  moth_inner_table moth_##op##_loops = {MOTH_INT_ROWS(op), MOTH_FLOAT_ROWS(op)}
#define FLOAT_TABLE(op) moth_inner_table moth_##op##_loops = {MOTH_FLOAT_ROWS(op)}

/* -- for every number -- */

#define ARITHMETIC(name, type, wide)                                               \
  MOTH_MAP1(neg_##name, type, type, (wide)0 - (wide)x)                             \
  MOTH_MAP1(square_##name, type, type, (wide)x *(wide)x)
MOTH_EACH_INT(ARITHMETIC)
#define SIGNED(name, type, wide)                                                   \
  MOTH_MAP1(abs_##name, type, type, x < 0 ? (wide)0 - (wide)x : (wide)x)           \
  MOTH_MAP1(sign_##name, type, type, (x > 0) - (x < 0))                            \
  MOTH_MAP1(relu_##name, type, type, x < 0 ? 0 : x)
SIGNED(i8, int8_t, uint32_t)
SIGNED(i16, int16_t, uint32_t)
SIGNED(i32, int32_t, uint32_t)
SIGNED(i64, int64_t, uint64_t)
MOTH_MAP1(abs_u8, uint8_t, uint8_t, x)
MOTH_MAP1(sign_u8, uint8_t, uint8_t, x > 0)
MOTH_MAP1(relu_u8, uint8_t, uint8_t, x)

/* Two expressions, for f32 and f64. */
#define FLOATS(op, single, full)             \
  MOTH_MAP1(op##_f32, float, float, single)  \
  MOTH_MAP1(op##_f64, double, double, full)
#define FUNCTION(op) FLOATS(op, op##f(x), op(x))

FLOATS(neg, -x, -x)
FLOATS(square, x *x, x *x)
FLOATS(abs, fabsf(x), fabs(x))
/* NaN comes through */
FLOATS(sign, x != x ? x : (float)((x > 0) - (x < 0)), x != x ? x : (double)((x > 0) - (x < 0)))
FLOATS(relu, x < 0 ? 0 : x, x < 0 ? 0 : x)
INT_TABLE(neg);
INT_TABLE(square);
INT_TABLE(abs);
INT_TABLE(sign);
INT_TABLE(relu);

/* -- for floats -- */

static inline float sigmoid_of_f32(float x) {
  float e = expf(-fabsf(x)); /* never overflows */
  return (x < 0 ? e : 1.0f) / (1.0f + e);
}
static inline double sigmoid_of_f64(double x) {
  double e = exp(-fabs(x));
  return (x < 0 ? e : 1.0) / (1.0 + e);
}

FUNCTION(exp)
FUNCTION(expm1)
FUNCTION(log)
FUNCTION(log1p)
FUNCTION(sqrt)
FUNCTION(sin)
FUNCTION(cos)
FUNCTION(tanh)
FUNCTION(erf)
FLOATS(rsqrt, 1.0f / sqrtf(x), 1.0 / sqrt(x))
FLOATS(reciprocal, 1.0f / x, 1.0 / x)
FLOATS(sigmoid, sigmoid_of_f32(x), sigmoid_of_f64(x))
FLOAT_TABLE(exp);
FLOAT_TABLE(expm1);
FLOAT_TABLE(log);
FLOAT_TABLE(log1p);
FLOAT_TABLE(sqrt);
FLOAT_TABLE(sin);
FLOAT_TABLE(cos);
FLOAT_TABLE(tanh);
FLOAT_TABLE(erf);
FLOAT_TABLE(rsqrt);
FLOAT_TABLE(reciprocal);
FLOAT_TABLE(sigmoid);

/* -- rounding: an integer is its own -- */

#define SAME(name, type, wide) MOTH_MAP1(same_##name, type, type, x)
MOTH_EACH_INT(SAME)
FUNCTION(floor)
FUNCTION(ceil)
FUNCTION(trunc)
FLOATS(round, rintf(x), rint(x)) /* halves to even */
#define ROUND_TABLE(op) \
  moth_inner_table moth_##op##_loops = {MOTH_INT_ROWS(same), MOTH_FLOAT_ROWS(op)}
ROUND_TABLE(floor);
ROUND_TABLE(ceil);
ROUND_TABLE(trunc);
ROUND_TABLE(round);

/* -- questions -- */

#define QUESTIONS(name, type, wide)                        \
  MOTH_MAP1(never_##name, type, uint8_t, x != x)           \
  MOTH_MAP1(always_##name, type, uint8_t, x == x)          \
  MOTH_MAP1(logical_not_##name, type, uint8_t, x == 0)
MOTH_EACH_INT(QUESTIONS)
#define FLOAT_QUESTIONS(name, type, wide)                  \
  MOTH_MAP1(isnan_##name, type, uint8_t, x != x)           \
  MOTH_MAP1(isinf_##name, type, uint8_t, isinf(x) != 0)    \
  MOTH_MAP1(isfinite_##name, type, uint8_t, x - x == 0)    \
  MOTH_MAP1(logical_not_##name, type, uint8_t, x == 0)
MOTH_EACH_FLOAT(FLOAT_QUESTIONS)
#define QUESTION_TABLE(op, whole) \
  moth_inner_table moth_##op##_loops = {[MOTH_BOOL] = whole##_u8, MOTH_INT_ROWS(whole), \
                                        MOTH_FLOAT_ROWS(op)}
QUESTION_TABLE(logical_not, logical_not);
QUESTION_TABLE(isnan, never);
QUESTION_TABLE(isinf, never);
QUESTION_TABLE(isfinite, always);

/* -- clamp: min(max(x, low), high); NaN comes through -- */

#define CLAMP_LOOP(name, type, wide)                                                        \
  MOTH_INNER(clamp_##name) {                                                                \
    const type low = ((const type *)arg)[0], high = ((const type *)arg)[1];                 \
    if (step[0] == sizeof(type) && step[1] == sizeof(type)) {                               \
      type *result = (type *)(void *)at[0];                                                 \
      const type *first = (const type *)(const void *)at[1];                                \
      MOTH_IVDEP for (int64_t i = 0; i < n; i++) {                                          \
        const type x = first[i], y = x < low ? low : x;                                     \
        result[i] = y > high ? high : y;                                                    \
      }                                                                                     \
      return;                                                                               \
    }                                                                                       \
    for (int64_t i = 0; i < n; i++) {                                                       \
      const type x = *(const type *)(const void *)(at[1] + i * step[1]);                    \
      const type y = x < low ? low : x;                                                     \
      *(type *)(void *)(at[0] + i * step[0]) = y > high ? high : y;                         \
    }                                                                                       \
  }
MOTH_EACH_INT(CLAMP_LOOP)
MOTH_EACH_FLOAT(CLAMP_LOOP)
INT_TABLE(clamp);

/* -- gradients by the result: x is the gradient, y the result -- */

#define BACK(name, type, wide)                                            \
  MOTH_MAP2(tanh_back_##name, type, type, x * (1 - y * y))                \
  MOTH_MAP2(sigmoid_back_##name, type, type, x * (y * (1 - y)))           \
  MOTH_MAP2(relu_back_##name, type, type, y <= 0 ? 0 : x)
MOTH_EACH_FLOAT(BACK)
FLOAT_TABLE(tanh_back);
FLOAT_TABLE(sigmoid_back);
FLOAT_TABLE(relu_back);
