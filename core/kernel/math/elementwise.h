/* elementwise.h -- macros that write the inner loops of elementwise ops, one per element type, and
** the dispatcher that runs them.
**
** A loop is a moth_inner: operand 0 is the result. Contiguous operands and single elements have
** separate loops, which compilers vectorize. Other strides use the last loop if there are few
** elements; else elements are copied in blocks. Long expressions have one loop, for whole vectors
** only (MOTH_MAP1_LOOPS). f32 loops are compiled for every level of instructions (level.h), f64
** loops for the higher levels too; f16 and bf16 are converted to f32 in blocks.
**
**   MOTH_MAP2(target, add_f32, float, float, x + y)      x and y are the operands
**
** Iterations are independent even in place, when the result is one of the operands.
*/
#ifndef MOTH_KERNEL_ELEMENTWISE_H
#define MOTH_KERNEL_ELEMENTWISE_H

#include "tensor/loop.h"
#include "kernel/level.h"
#include "avx512.h"

#if defined(__clang__) /* clang warns about loops that it does not vectorize */
#pragma clang diagnostic ignored "-Wpass-failed"
#define MOTH_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define MOTH_IVDEP _Pragma("GCC ivdep")
#endif

/* -- a family's functions are one list, F(kind, name, expression ...), in its header in op/ --
**
**   REAL      of floats
**   CURVE     of floats, and far more work than copying them
**   PAIR      the same of two operands, of which one is often single
**   SLOW      of floats, one element at a time at every level of instructions
**   OWN       as CURVE, with a separate loop for f32 and AVX-512 (avx512.h)
**   WAVE      as CURVE, for functions of angles; and C's function, for large ones
**   OWN_WAVE  the same, as OWN
**   NUMBER    of integers; of floats
**   HEAVY     the same, and far more work
**   QUOTIENT  the same; and of f32 where the quotient is below 2^28
**   ANY       of bool; of integers; of floats
**   JOINT     as NUMBER; a sum with a product, which a loop for a single operand would round by
**             itself, where the others are fused
**   JOINED    the same, of bool too
**   WHOLE     of integers
**   BITS      of bool; of integers
**   QUESTION  of integers and bool; of floats; the result is bool
**
** In an expression x, y and z are the operands, `real` is their type and a, b, c are numbers that
** come with the call. exp(x) has the type of x (real_math.h), and FOR_REAL(f) is f_f32 or f_f64.
** WIDE(x) is x in the unsigned type where overflow wraps.
**
** A family is compiled by naming its lists once, for functions of one, two and three operands:
**
**   #define LISTS(ONE, TWO, THREE) UNARY_FUNCTIONS(ONE) UNARY_BACKS(TWO)
**   MOTH_FAMILY(unary, LISTS)
**
** writes all loops and the family's table, moth_unary: one member per function.
*/
#define MOTH_MAP_OPERANDS 6
/* the last rows are f32 and f64 at the two higher levels */
#define MOTH_LEVEL_ROWS (MOTH_DTYPES + 4)

typedef struct moth_loops {
  moth_inner of[MOTH_LEVEL_ROWS]; /* indexed by dtype and level; use moth_loop_of */
  const char *name;               /* the name of the function; plugins find their loop by it */
  float cost;                     /* ns for an f32 at the highest level, without memory traffic */
  uint8_t noperands;              /* with the result */
  bool asks;                      /* the result is bool, whatever the dtype of the operands */
} moth_loops;

#define MOTH_MEMBER(kind, op, ...) moth_loops op[1];

#define WIDE(x)                               \
  _Generic((x), float: (x), double: (x), int64_t: (uint64_t)(x), default: (uint32_t)(x))

/* For integers: all bits if x is negative, else none; and the sign. They use shifts, because plain
** vector instructions do not compare 64 bits. */
#define TOP_BIT(x) ((x) >> (8 * sizeof(x) - 1))
#define BELOW_0(x) (0 - TOP_BIT(WIDE(x)))
#define SIGN_OF(x) (BELOW_0(x) | TOP_BIT(0 - WIDE(x)))

#define FOR_REAL(f) _Generic((real)0, float: f##_f32, default: f##_f64)

/* -- loops: one for each type; f32 has one for each level -- */

#define MOTH_BASE_REAL(MAP, op, f) MAP(, op##_f64, double, double, f)
#define MOTH_BASE_CURVE(MAP, op, f) MAP##_WIDE(, op##_f64, f)
#define MOTH_BASE_PAIR MOTH_BASE_CURVE
#define MOTH_BASE_SLOW(MAP, op, f)         \
  MAP(, op##_f32, float, float, f)         \
  MOTH_BASE_REAL(MAP, op, f)
#define MOTH_BASE_OWN MOTH_BASE_CURVE
#define MOTH_BASE_WAVE(MAP, op, f, far) MOTH_MAP_WAVE(, op##_f64, double, f, far)
#define MOTH_BASE_OWN_WAVE MOTH_BASE_WAVE
#define MOTH_BASE_WHOLE(MAP, op, f)      \
  MAP(, op##_u8, uint8_t, uint8_t, f)    \
  MAP(, op##_i8, int8_t, int8_t, f)      \
  MAP(, op##_i16, int16_t, int16_t, f)   \
  MAP(, op##_i32, int32_t, int32_t, f)   \
  MAP(, op##_i64, int64_t, int64_t, f)
#define MOTH_BASE_NUMBER(MAP, op, whole, f) \
  MOTH_BASE_WHOLE(MAP, op, whole)           \
  MOTH_BASE_REAL(MAP, op, f)
#define MOTH_BASE_HEAVY(MAP, op, whole, f) \
  MOTH_BASE_WHOLE(MAP, op, whole)          \
  MOTH_BASE_CURVE(MAP, op, f)
#define MOTH_BASE_QUOTIENT(MAP, op, whole, f, near) MOTH_BASE_NUMBER(MAP, op, whole, f)
#define MOTH_BASE_BITS(MAP, op, truth, whole)  \
  MAP(, op##_truth, uint8_t, uint8_t, truth)   \
  MOTH_BASE_WHOLE(MAP, op, whole)
#define MOTH_BASE_ANY(MAP, op, truth, whole, f) \
  MOTH_BASE_BITS(MAP, op, truth, whole)         \
  MOTH_BASE_REAL(MAP, op, f)
#define MOTH_BASE_JOINT(MAP, op, whole, f) \
  MOTH_BASE_WHOLE(MAP, op, whole)          \
  MAP##_WIDE(, op##_f64, f)
#define MOTH_BASE_JOINED(MAP, op, truth, whole, f) \
  MAP(, op##_truth, uint8_t, uint8_t, truth)       \
  MOTH_BASE_JOINT(MAP, op, whole, f)
#define MOTH_BASE_QUESTION(MAP, op, whole, f) \
  MAP(, op##_u8, uint8_t, uint8_t, whole)     \
  MAP(, op##_i8, int8_t, uint8_t, whole)      \
  MAP(, op##_i16, int16_t, uint8_t, whole)    \
  MAP(, op##_i32, int32_t, uint8_t, whole)    \
  MAP(, op##_i64, int64_t, uint8_t, whole)    \
  MAP(, op##_f64, double, uint8_t, f)
#define MOTH_BASE1(kind, op, ...) MOTH_BASE_##kind(MOTH_MAP1, op, __VA_ARGS__)
#define MOTH_BASE2(kind, op, ...) MOTH_BASE_##kind(MOTH_MAP2, op, __VA_ARGS__)
#define MOTH_BASE3(kind, op, ...) MOTH_BASE_##kind(MOTH_MAP3, op, __VA_ARGS__)

#define MOTH_SINGLE_REAL(MAP, target, name, f) MAP(target, name, float, float, f)
#define MOTH_SINGLE_CURVE(MAP, target, name, f) MAP##_LONG(target, name, f)
#define MOTH_SINGLE_PAIR(MAP, target, name, f) MAP##_LOOPS(target, name, float, 1, 1, f)
#define MOTH_SINGLE_SLOW(MAP, target, name, f)
#define MOTH_SINGLE_OWN(MAP, target, name, f) \
  MOTH_SINGLE_CURVE(MAP, __attribute__((unused)) target, name, f)
#define MOTH_SINGLE_WAVE(MAP, target, name, f, far) MOTH_MAP_WAVE(target, name, float, f, far)
#define MOTH_SINGLE_OWN_WAVE(MAP, target, name, f, far) \
  MOTH_SINGLE_WAVE(MAP, __attribute__((unused)) target, name, f, far)
#define MOTH_SINGLE_WHOLE(MAP, target, name, f)
#define MOTH_SINGLE_NUMBER(MAP, target, name, whole, f) MAP(target, name, float, float, f)
#define MOTH_SINGLE_HEAVY(MAP, target, name, whole, f) \
  MAP##_LOOPS(target, name, float, 1, 0, f) /* pow selects by y inside the loop, which vectorizes */
#define MOTH_SINGLE_QUOTIENT(MAP, target, name, whole, f, near) \
  MOTH_MAP_QUOTIENT(target, name, f, near)
#define MOTH_SINGLE_BITS(MAP, target, name, truth, whole)
#define MOTH_SINGLE_ANY(MAP, target, name, truth, whole, f) MAP(target, name, float, float, f)
#define MOTH_SINGLE_JOINT(MAP, target, name, whole, f) MAP##_LONG(target, name, f)
#define MOTH_SINGLE_JOINED(MAP, target, name, truth, whole, f) MAP##_LONG(target, name, f)
#define MOTH_SINGLE_QUESTION(MAP, target, name, whole, f) MAP(target, name, float, uint8_t, f)

#define MOTH_PLAIN1(kind, op, ...) MOTH_SINGLE_##kind(MOTH_MAP1, , op##_f32, __VA_ARGS__)
#define MOTH_PLAIN2(kind, op, ...) MOTH_SINGLE_##kind(MOTH_MAP2, , op##_f32, __VA_ARGS__)
#define MOTH_PLAIN3(kind, op, ...) MOTH_SINGLE_##kind(MOTH_MAP3, , op##_f32, __VA_ARGS__)

/* f64: functions that are limited by memory traffic use at most AVX2. */
#define MOTH_DOUBLE_REAL(MAP, op, f) MAP(MOTH_AVX2, op##_avx2_f64, double, double, f)
#define MOTH_DOUBLE_CURVE(MAP, op, f)       \
  MAP##_WIDE(MOTH_AVX2, op##_avx2_f64, f)   \
  MAP##_WIDE(MOTH_AVX512, op##_avx512_f64, f)
#define MOTH_DOUBLE_PAIR MOTH_DOUBLE_CURVE
#define MOTH_DOUBLE_SLOW(MAP, op, f)
#define MOTH_DOUBLE_OWN MOTH_DOUBLE_CURVE
#define MOTH_DOUBLE_WAVE(MAP, op, f, far)                   \
  MOTH_MAP_WAVE(MOTH_AVX2, op##_avx2_f64, double, f, far)   \
  MOTH_MAP_WAVE(MOTH_AVX512, op##_avx512_f64, double, f, far)
#define MOTH_DOUBLE_OWN_WAVE MOTH_DOUBLE_WAVE
#define MOTH_DOUBLE_WHOLE(MAP, op, f)
#define MOTH_DOUBLE_NUMBER(MAP, op, whole, f) MOTH_DOUBLE_REAL(MAP, op, f)
#define MOTH_DOUBLE_HEAVY(MAP, op, whole, f) MOTH_DOUBLE_CURVE(MAP, op, f)
#define MOTH_DOUBLE_QUOTIENT(MAP, op, whole, f, near)
#define MOTH_DOUBLE_BITS(MAP, op, truth, whole)
#define MOTH_DOUBLE_ANY(MAP, op, truth, whole, f) MOTH_DOUBLE_REAL(MAP, op, f)
#define MOTH_DOUBLE_JOINT(MAP, op, whole, f) MAP##_WIDE(MOTH_AVX2, op##_avx2_f64, f)
#define MOTH_DOUBLE_JOINED(MAP, op, truth, whole, f) MOTH_DOUBLE_JOINT(MAP, op, whole, f)
#define MOTH_DOUBLE_QUESTION(MAP, op, whole, f)

/* -- tables -- */

#define MOTH_INT_ROWS(op)                                                                \
  [MOTH_U8] = op##_u8, [MOTH_I8] = op##_i8, [MOTH_I16] = op##_i16, [MOTH_I32] = op##_i32, \
  [MOTH_I64] = op##_i64

#define MOTH_FLOAT_ROWS(op) [MOTH_F32] = op##_f32, [MOTH_F64] = op##_f64

#if MOTH_HAS_LEVELS
#define MOTH_AVX2_1(k, op, ...) MOTH_SINGLE_##k(MOTH_MAP1, MOTH_AVX2, op##_avx2, __VA_ARGS__)
#define MOTH_AVX2_2(k, op, ...) MOTH_SINGLE_##k(MOTH_MAP2, MOTH_AVX2, op##_avx2, __VA_ARGS__)
#define MOTH_AVX2_3(k, op, ...) MOTH_SINGLE_##k(MOTH_MAP3, MOTH_AVX2, op##_avx2, __VA_ARGS__)
#define MOTH_AVX512_1(k, op, ...) MOTH_SINGLE_##k(MOTH_MAP1, MOTH_AVX512, op##_avx512, __VA_ARGS__)
#define MOTH_AVX512_2(k, op, ...) MOTH_SINGLE_##k(MOTH_MAP2, MOTH_AVX512, op##_avx512, __VA_ARGS__)
#define MOTH_AVX512_3(k, op, ...) MOTH_SINGLE_##k(MOTH_MAP3, MOTH_AVX512, op##_avx512, __VA_ARGS__)
#define MOTH_DOUBLE_1(k, op, ...) MOTH_DOUBLE_##k(MOTH_MAP1, op, __VA_ARGS__)
#define MOTH_DOUBLE_2(k, op, ...) MOTH_DOUBLE_##k(MOTH_MAP2, op, __VA_ARGS__)
#define MOTH_DOUBLE_3(k, op, ...) MOTH_DOUBLE_##k(MOTH_MAP3, op, __VA_ARGS__)
#define MOTH_LEVELS_OF(LISTS)                         \
  LISTS(MOTH_AVX2_1, MOTH_AVX2_2, MOTH_AVX2_3)        \
  LISTS(MOTH_AVX512_1, MOTH_AVX512_2, MOTH_AVX512_3)  \
  LISTS(MOTH_DOUBLE_1, MOTH_DOUBLE_2, MOTH_DOUBLE_3)
#define MOTH_SINGLE_ROWS(op) \
  MOTH_FLOAT_ROWS(op), [MOTH_DTYPES] = op##_avx2, [MOTH_DTYPES + 1] = op##_avx512
#define MOTH_REAL_ROWS(op)                                                                \
  MOTH_SINGLE_ROWS(op), [MOTH_DTYPES + 2] = op##_avx2_f64, [MOTH_DTYPES + 3] = op##_avx2_f64
#define MOTH_WIDE_ROWS(op) \
  [MOTH_DTYPES + 2] = op##_avx2_f64, [MOTH_DTYPES + 3] = op##_avx512_f64
#define MOTH_BOTH_ROWS(op) MOTH_SINGLE_ROWS(op), MOTH_WIDE_ROWS(op)
#define MOTH_OWN_ROWS(op)                                                                    \
  MOTH_FLOAT_ROWS(op), [MOTH_DTYPES] = op##_avx2, [MOTH_DTYPES + 1] = moth_##op##_wide,      \
  MOTH_WIDE_ROWS(op)
#else
#define MOTH_LEVELS_OF(LISTS)
#define MOTH_SINGLE_ROWS(op) MOTH_FLOAT_ROWS(op)
#define MOTH_REAL_ROWS(op) MOTH_FLOAT_ROWS(op)
#define MOTH_BOTH_ROWS(op) MOTH_FLOAT_ROWS(op)
#define MOTH_OWN_ROWS(op) MOTH_FLOAT_ROWS(op)
#endif

#define MOTH_ROWS_WHOLE(op) {MOTH_INT_ROWS(op)}, #op, 0
#define MOTH_ROWS_REAL(op) {MOTH_REAL_ROWS(op)}, #op, 0
#define MOTH_ROWS_CURVE(op) {MOTH_BOTH_ROWS(op)}, #op, 0.3f
#define MOTH_ROWS_PAIR MOTH_ROWS_CURVE
#define MOTH_ROWS_SLOW(op)                                                            \
  {MOTH_FLOAT_ROWS(op), [MOTH_DTYPES] = op##_f32, [MOTH_DTYPES + 1] = op##_f32}, #op, 20
#define MOTH_ROWS_OWN(op) {MOTH_OWN_ROWS(op)}, #op, 0.2f
#define MOTH_ROWS_WAVE(op) {MOTH_BOTH_ROWS(op)}, #op, 0.4f
#define MOTH_ROWS_OWN_WAVE(op) {MOTH_OWN_ROWS(op)}, #op, 0.4f
#define MOTH_ROWS_NUMBER(op) {MOTH_INT_ROWS(op), MOTH_REAL_ROWS(op)}, #op, 0
#define MOTH_ROWS_HEAVY(op) {MOTH_INT_ROWS(op), MOTH_BOTH_ROWS(op)}, #op, 1
#define MOTH_ROWS_QUOTIENT(op) {MOTH_INT_ROWS(op), MOTH_SINGLE_ROWS(op)}, #op, 1
#define MOTH_ROWS_BITS(op) {[MOTH_BOOL] = op##_truth, MOTH_INT_ROWS(op)}, #op, 0
#define MOTH_ROWS_ANY(op) \
  {[MOTH_BOOL] = op##_truth, MOTH_INT_ROWS(op), MOTH_REAL_ROWS(op)}, #op, 0
#define MOTH_ROWS_JOINT MOTH_ROWS_NUMBER
#define MOTH_ROWS_JOINED MOTH_ROWS_ANY
#define MOTH_ROWS_QUESTION(op) \
  {[MOTH_BOOL] = op##_u8, MOTH_INT_ROWS(op), MOTH_SINGLE_ROWS(op)}, #op, 0, .asks = true
#define MOTH_ROWS1(kind, op, ...) .op = {{MOTH_ROWS_##kind(op), .noperands = 2}},
#define MOTH_ROWS2(kind, op, ...) .op = {{MOTH_ROWS_##kind(op), .noperands = 3}},
#define MOTH_ROWS3(kind, op, ...) .op = {{MOTH_ROWS_##kind(op), .noperands = 4}},

#define MOTH_FAMILY(name, LISTS)                     \
  LISTS(MOTH_BASE1, MOTH_BASE2, MOTH_BASE3)          \
  LISTS(MOTH_PLAIN1, MOTH_PLAIN2, MOTH_PLAIN3)       \
  MOTH_LEVELS_OF(LISTS)                              \
  const moth_##name##_loops moth_##name = {LISTS(MOTH_ROWS1, MOTH_ROWS2, MOTH_ROWS3)};

/* Types that have separate loops: X(name, type, unsigned type in which overflow wraps). */
#define MOTH_EACH_INT(X)    \
  X(u8, uint8_t, uint32_t)  \
  X(i8, int8_t, uint32_t)   \
  X(i16, int16_t, uint32_t) \
  X(i32, int32_t, uint32_t) \
  X(i64, int64_t, uint64_t)
#define MOTH_EACH_FLOAT(X) X(f32, float, float) X(f64, double, double)

#define MOTH_INNER(name)                                                                    \
  static void name(int64_t n, char *const *at, const int64_t *step, const void *arg)

/* x, y and z are elements of the operands. a, b, c are three numbers of their type, to which arg
** points; 0 if arg is NULL. */
#define MOTH_NUMBERS(real)                              \
  const real *const numbers = arg;                      \
  const real a = numbers ? numbers[0] : (real)0;        \
  const real b = numbers ? numbers[1] : (real)0;        \
  const real c = numbers ? numbers[2] : (real)0;        \
  (void)a, (void)b, (void)c;

/* result := expression of x. from, to: the element types. */
#define MOTH_MAP1(target, name, from, to, expression)                                         \
  target MOTH_INNER(name) {                                                           \
    typedef from real;                                                                \
    char *r = at[0];                                                                  \
    const char *p = at[1];                                                            \
    const int64_t dr = step[0], dp = step[1];                                         \
    MOTH_NUMBERS(real)                                                                \
    if (dr == sizeof(to) && dp == sizeof(from)) {                                     \
      to *result = (to *)(void *)r;                                                   \
      const real *first = (const real *)(const void *)p;                              \
      MOTH_IVDEP for (int64_t i = 0; i < n; i++) {                                    \
        const real x = first[i];                                                      \
        result[i] = (to)(expression);                                                 \
      }                                                                               \
      return;                                                                         \
    }                                                                                 \
    for (int64_t i = 0; i < n; i++, r += dr, p += dp) {                               \
      const real x = *(const real *)(const void *)p;                                  \
      *(to *)(void *)r = (to)(expression);                                            \
    }                                                                                 \
  }

/* The same for a long expression. The loop is written once, for whole vectors of contiguous
** elements; other elements, and elements after the last whole vector, are copied to a block first.
** Thus an element has the same bits at every position; a scalar loop would contract in another
** way. */
#define MOTH_MAP1_LOOPS(target, name, type, expression)            \
  target MOTH_INNER(name) {                                        \
    typedef type real;                                             \
    MOTH_NUMBERS(real)                                             \
    if (moth_needs_blocks(n, step, 2, sizeof(real))) {             \
      moth_run_blocks(n, at, step, arg, 2, sizeof(real), 0, name); \
      return;                                                      \
    }                                                              \
    real *result = (real *)(void *)at[0];                          \
    const real *first = (const real *)(const void *)at[1];         \
    MOTH_IVDEP for (int64_t i = 0; i < MOTH_WHOLE(n); i++) {       \
      const real x = first[i];                                     \
      result[i] = (real)(expression);                              \
    }                                                              \
  }
#define MOTH_MAP1_LONG(target, name, f) MOTH_MAP1_LOOPS(target, name, float, f)
#define MOTH_MAP1_WIDE(target, name, f) MOTH_MAP1_LOOPS(target, name, double, f)

/* True if one of n elements is above `most` in size, or NaN. Compares bits, which vectorizes at
** every level. */
#define MOTH_ANY_BEYOND(name, real, word)                                             \
  INLINED bool name(int64_t n, const char *p, int64_t step, real most) {              \
    const word sign = (word)1 << (8 * sizeof(word) - 1);                              \
    word beyond = 0, limit, bits;                                                     \
    memcpy(&limit, &most, sizeof limit);                                              \
    if (step == sizeof(real)) {                                                       \
      const char *const first = p;                                                    \
      for (int64_t i = 0; i < n; i++) {                                               \
        memcpy(&bits, first + i * (int64_t)sizeof bits, sizeof bits);                 \
        beyond |= limit - (bits & ~sign);                                             \
      }                                                                               \
    } else {                                                                          \
      for (int64_t i = 0; i < n; i++, p += step) {                                    \
        memcpy(&bits, p, sizeof bits);                                                \
        beyond |= limit - (bits & ~sign);                                             \
      }                                                                               \
    }                                                                                 \
    return (beyond & sign) != 0;                                                      \
  }
MOTH_ANY_BEYOND(moth_beyond_f32, float, uint32_t)
MOTH_ANY_BEYOND(moth_beyond_f64, double, uint64_t)

/* A function of angles: blocks with very large angles call C's function. */
#define MOTH_MAP_WAVE(target, name, type, expression, of_c)                           \
  MOTH_MAP1_LOOPS(target, name##_near, type, expression)                         \
  MOTH_MAP1_LOOPS(, name##_far, type, of_c)                                      \
  target static bool name##_away(int64_t n, const char *p, int64_t step) {            \
    return sizeof(type) == 8 ? moth_beyond_f64(n, p, step, MOTH_WAVE_FAR_F64)         \
                             : moth_beyond_f32(n, p, step, MOTH_WAVE_FAR);            \
  }                                                                                   \
  target MOTH_INNER(name) {                                                           \
    moth_wave(n, at, step, arg, sizeof(type), name##_away, name##_near, name##_far);  \
  }

/* result := expression of x and y. */
#define MOTH_MAP2(target, name, from, to, expression)                                         \
  target MOTH_INNER(name) {                                                           \
    typedef from real;                                                                \
    enum { S = sizeof(from) };                                                        \
    char *r = at[0];                                                                  \
    const char *p = at[1], *q = at[2];                                                \
    const int64_t dr = step[0], dp = step[1], dq = step[2];                           \
    MOTH_NUMBERS(real)                                                                \
    if (n > 1 && dr == sizeof(to) && (dp == S || !dp) && (dq == S || !dq)) {          \
      to *result = (to *)(void *)r;                                                   \
      const real *first = (const real *)(const void *)p;                              \
      const real *second = (const real *)(const void *)q;                             \
      if (dp && dq) {                                                                 \
        MOTH_IVDEP for (int64_t i = 0; i < n; i++) {                                  \
          const real x = first[i], y = second[i];                                     \
          result[i] = (to)(expression);                                               \
        }                                                                             \
        return;                                                                       \
      }                                                                               \
      if (dp) {                                                                       \
        const real y = *second;                                                       \
        MOTH_IVDEP for (int64_t i = 0; i < n; i++) {                                  \
          const real x = first[i];                                                    \
          result[i] = (to)(expression);                                               \
        }                                                                             \
        return;                                                                       \
      }                                                                               \
      if (dq) {                                                                       \
        const real x = *first;                                                        \
        MOTH_IVDEP for (int64_t i = 0; i < n; i++) {                                  \
          const real y = second[i];                                                   \
          result[i] = (to)(expression);                                               \
        }                                                                             \
        return;                                                                       \
      }                                                                               \
    }                                                                                 \
    for (int64_t i = 0; i < n; i++, r += dr, p += dp, q += dq) {                      \
      const real x = *(const real *)(const void *)p;                                  \
      const real y = *(const real *)(const void *)q;                                  \
      *(to *)(void *)r = (to)(expression);                                            \
    }                                                                                 \
  }

/* single_x, single_y: 1 if there is a loop for a single x, or y. */
#define MOTH_MAP2_LOOPS(target, name, type, single_x, single_y, expression)      \
  target MOTH_INNER(name) {                                                      \
    typedef type real;                                                           \
    enum { S = sizeof(type) };                                                   \
    const bool one_x = single_x && n > 1 && !step[1];                            \
    const bool one_y = single_y && n > 1 && !step[2] && !one_x;                  \
    const int64_t apart[] = {step[0], one_x ? S : step[1], one_y ? S : step[2]}; \
    MOTH_NUMBERS(real)                                                           \
    if (moth_needs_blocks(n, apart, 3, S)) {                                     \
      moth_run_blocks(n, at, step, arg, 3, S, one_x << 1 | one_y << 2, name);    \
      return;                                                                    \
    }                                                                            \
    real *result = (real *)(void *)at[0];                                        \
    const real *first = (const real *)(const void *)at[1];                       \
    const real *second = (const real *)(const void *)at[2];                      \
    if (one_x) {                                                                 \
      const real x = *first;                                                     \
      MOTH_IVDEP for (int64_t i = 0; i < MOTH_WHOLE(n); i++) {                   \
        const real y = second[i];                                                \
        result[i] = (real)(expression);                                          \
      }                                                                          \
    } else if (one_y) {                                                          \
      const real y = *second;                                                    \
      MOTH_IVDEP for (int64_t i = 0; i < MOTH_WHOLE(n); i++) {                   \
        const real x = first[i];                                                 \
        result[i] = (real)(expression);                                          \
      }                                                                          \
    } else {                                                                     \
      MOTH_IVDEP for (int64_t i = 0; i < MOTH_WHOLE(n); i++) {                   \
        const real x = first[i], y = second[i];                                  \
        result[i] = (real)(expression);                                          \
      }                                                                          \
    }                                                                            \
  }
#define MOTH_MAP2_LONG(target, name, expression) \
  MOTH_MAP2_LOOPS(target, name, float, 0, 0, expression)
#define MOTH_MAP2_WIDE(target, name, expression) \
  MOTH_MAP2_LOOPS(target, name, double, 0, 0, expression)

/* For f32, in blocks, like functions of angles. */
#define MOTH_MAP_QUOTIENT(target, name, of_c, expression)                             \
  MOTH_MAP2(target, name##_near, float, float, expression)                            \
  MOTH_MAP2(, name##_far, float, float, of_c)                                         \
  MOTH_INNER(name) {                                                                  \
    moth_quotients(n, at, step, arg, name##_near, name##_far);                        \
  }

/* result := expression of x, y and z. There is a loop for a single z: the weight of lerp, and rows
** that share a factor or a divisor. */
#define MOTH_MAP3(target, name, from, to, expression)                                         \
  target MOTH_INNER(name) {                                                           \
    typedef from real;                                                                \
    enum { S = sizeof(from) };                                                        \
    char *r = at[0];                                                                  \
    const char *p = at[1], *q = at[2], *s = at[3];                                    \
    const int64_t dr = step[0], dp = step[1], dq = step[2], ds = step[3];             \
    MOTH_NUMBERS(real)                                                                \
    if (n > 1 && dr == sizeof(to) && dp == S && dq == S && (ds == S || !ds)) {        \
      to *result = (to *)(void *)r;                                                   \
      const real *first = (const real *)(const void *)p;                              \
      const real *second = (const real *)(const void *)q;                             \
      const real *third = (const real *)(const void *)s;                              \
      if (ds) {                                                                       \
        MOTH_IVDEP for (int64_t i = 0; i < n; i++) {                                  \
          const real x = first[i], y = second[i], z = third[i];                       \
          result[i] = (to)(expression);                                               \
        }                                                                             \
        return;                                                                       \
      }                                                                               \
      const real z = *third;                                                          \
      MOTH_IVDEP for (int64_t i = 0; i < n; i++) {                                    \
        const real x = first[i], y = second[i];                                       \
        result[i] = (to)(expression);                                                 \
      }                                                                               \
      return;                                                                         \
    }                                                                                 \
    for (int64_t i = 0; i < n; i++, r += dr, p += dp, q += dq, s += ds) {             \
      const real x = *(const real *)(const void *)p;                                  \
      const real y = *(const real *)(const void *)q;                                  \
      const real z = *(const real *)(const void *)s;                                  \
      *(to *)(void *)r = (to)(expression);                                            \
    }                                                                                 \
  }

#define MOTH_MAP3_LOOPS(target, name, type, expression)            \
  target MOTH_INNER(name) {                                        \
    typedef type real;                                             \
    MOTH_NUMBERS(real)                                             \
    if (moth_needs_blocks(n, step, 4, sizeof(real))) {             \
      moth_run_blocks(n, at, step, arg, 4, sizeof(real), 0, name); \
      return;                                                      \
    }                                                              \
    real *result = (real *)(void *)at[0];                          \
    const real *first = (const real *)(const void *)at[1];         \
    const real *second = (const real *)(const void *)at[2];        \
    const real *third = (const real *)(const void *)at[3];         \
    MOTH_IVDEP for (int64_t i = 0; i < MOTH_WHOLE(n); i++) {       \
      const real x = first[i], y = second[i], z = third[i];        \
      result[i] = (real)(expression);                              \
    }                                                              \
  }
#define MOTH_MAP3_LONG(target, name, f) MOTH_MAP3_LOOPS(target, name, float, f)
#define MOTH_MAP3_WIDE(target, name, f) MOTH_MAP3_LOOPS(target, name, double, f)

/* long loops are for multiples of this number, which are whole vectors at every level */
enum { MOTH_VECTOR = 16 };
#define MOTH_WHOLE(n) ((n) & -(int64_t)MOTH_VECTOR) /* tells the compiler that no elements remain */

/* True if the operands do not suit a long loop, which needs whole vectors of contiguous
** elements. */
INLINED bool moth_needs_blocks(int64_t n, const int64_t *step, int noperands, int64_t size) {
  bool apart = n % MOTH_VECTOR != 0;
  for (int k = 0; k < noperands; k++) apart |= step[k] != size;
  return apart;
}

/* Runs a long loop over any elements, in blocks. All elements have `size` bytes. Bit k of `single`:
** operand k is a single element. */
void moth_run_blocks(int64_t n, char *const *at, const int64_t *step, const void *arg,
                     int noperands, int64_t size, int single, moth_inner inner);

/* Runs loops[dtype] over the shape of operands[0], the result. dtype is the dtype of the
** computation. arg: NULL, or three numbers of that dtype (f32 for half types). */
int moth_map(moth_ctx *ctx, const moth_loops *loops, int dtype, int noperands,
             const moth_tensor *const *operands, const void *arg);

/* The argument of moth_blocks, which runs one function over a run of elements. Half types are
** converted to f32 in blocks, and strided elements are copied. */
typedef struct moth_block_call {
  moth_inner inner;
  const void *arg;
  int noperands;
  int dtype[MOTH_MAP_OPERANDS];
} moth_block_call;
void moth_blocks(int64_t n, char *const *at, const int64_t *step, const void *call);
/* The loop for values of this dtype, and the cost of an element in ns. NULL: there is no loop. */
moth_inner moth_loop_of(const moth_loops *loops, int dtype);
double moth_cost_of(const moth_loops *loops, int dtype, int noperands);

/* For functions of angles with elements of `size` bytes. Runs `near`; in a block for which `away`
** is true, runs `far` for single elements that need it, so that no result depends on neighboring
** elements. */
typedef bool (*moth_away)(int64_t n, const char *p, int64_t step);
void moth_wave(int64_t n, char *const *at, const int64_t *step, const void *arg, int64_t size,
               moth_away away, moth_inner near, moth_inner far);

/* For f32 x and y: runs `near` if y is finite and |x / y| < 2^28 in a block, else `far`. */
void moth_quotients(int64_t n, char *const *at, const int64_t *step, const void *arg,
                    moth_inner near, moth_inner far);

/* arg := three numbers in the format of loops for this dtype. */
void moth_numbers(int dtype, uint64_t arg[3], double a, double b, double c);

/* result := condition ? x : y, for any dtype. The operands are result, condition, x, y. */
extern const moth_loops moth_where[1];
int moth_map_where(moth_ctx *ctx, const moth_tensor *const *operands);

#endif
