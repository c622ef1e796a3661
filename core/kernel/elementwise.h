/* elementwise.h -- macros that write the inner loops of elementwise ops, one per element type,
** and the dispatcher that runs them.
**
** A loop is a moth_inner: operand 0 is the result. Contiguous operands and single elements have
** loops of their own, which compilers vectorise; any other steps go through the last one. Loops
** exist for the types C has: f16 and bf16 pass through the f32 loop in blocks.
**
**   MOTH_MAP2(add_f32, float, float, x + y)      x and y are the operands
**
** No iteration depends on another one even in place, where the result is one of the operands.
*/
#ifndef MOTH_KERNEL_ELEMENTWISE_H
#define MOTH_KERNEL_ELEMENTWISE_H

#include "../loop.h"

#if defined(__clang__) /* which also warns where a loop has no vector form */
#pragma clang diagnostic ignored "-Wpass-failed"
#define MOTH_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define MOTH_IVDEP _Pragma("GCC ivdep")
#endif

/* -- a family's functions are one list, F(kind, name, expression ...), in its header in op/ --
**
**   REAL      of floats
**   NUMBER    of integers; of floats
**   ANY       of truths; of integers; of floats
**   WHOLE     of integers
**   BITS      of truths; of integers
**   QUESTION  of integers and truths; of floats; the answer is a truth
**
** In an expression x, y and z are the operands, `real` is their type and a, b, c are numbers that
** come with the call. exp(x) is that of <tgmath.h>, so that it has the type of x, and FOR_REAL(f)
** is f_f32 or f_f64. WIDE(x) is x in the unsigned type where overflow wraps.
**
** MOTH_LOOPS1(REAL, exp, exp(x)) writes the loops of one operand, MOTH_LOOPS2 of two, and
** MOTH_ROWS(REAL, exp, ...) the row of the family's table: one member per function, by dtype.
*/
#define MOTH_LOOPS1(kind, op, ...) MOTH_LOOPS_##kind(MOTH_MAP1, op, __VA_ARGS__)
#define MOTH_LOOPS2(kind, op, ...) MOTH_LOOPS_##kind(MOTH_MAP2, op, __VA_ARGS__)
#define MOTH_LOOPS3(kind, op, ...) MOTH_LOOPS_##kind(MOTH_MAP3, op, __VA_ARGS__)
#define MOTH_ROWS(kind, op, ...) .op = {MOTH_ROWS_##kind(op)},
#define MOTH_MEMBER(kind, op, ...) moth_inner op[MOTH_DTYPES];

#define WIDE(x)                               \
  _Generic((x), float: (x), double: (x), int64_t: (uint64_t)(x), default: (uint32_t)(x))

#define FOR_REAL(f) _Generic((real)0, float: f##_f32, default: f##_f64)

#define MOTH_LOOPS_REAL(MAP, op, f)     \
  MAP(op##_f32, float, float, f)        \
  MAP(op##_f64, double, double, f)
#define MOTH_LOOPS_WHOLE(MAP, op, f)     \
  MAP(op##_u8, uint8_t, uint8_t, f)     \
  MAP(op##_i8, int8_t, int8_t, f)       \
  MAP(op##_i16, int16_t, int16_t, f)    \
  MAP(op##_i32, int32_t, int32_t, f)    \
  MAP(op##_i64, int64_t, int64_t, f)
#define MOTH_LOOPS_NUMBER(MAP, op, whole, f) \
  MOTH_LOOPS_WHOLE(MAP, op, whole)            \
  MOTH_LOOPS_REAL(MAP, op, f)
#define MOTH_LOOPS_BITS(MAP, op, truth, whole) \
  MAP(op##_truth, uint8_t, uint8_t, truth)     \
  MOTH_LOOPS_WHOLE(MAP, op, whole)
#define MOTH_LOOPS_ANY(MAP, op, truth, whole, f) \
  MOTH_LOOPS_BITS(MAP, op, truth, whole)         \
  MOTH_LOOPS_REAL(MAP, op, f)
#define MOTH_LOOPS_QUESTION(MAP, op, whole, f) \
  MAP(op##_u8, uint8_t, uint8_t, whole)        \
  MAP(op##_i8, int8_t, uint8_t, whole)         \
  MAP(op##_i16, int16_t, uint8_t, whole)       \
  MAP(op##_i32, int32_t, uint8_t, whole)       \
  MAP(op##_i64, int64_t, uint8_t, whole)       \
  MAP(op##_f32, float, uint8_t, f)             \
  MAP(op##_f64, double, uint8_t, f)

#define MOTH_INT_ROWS(op)                                                                \
  [MOTH_U8] = op##_u8, [MOTH_I8] = op##_i8, [MOTH_I16] = op##_i16, [MOTH_I32] = op##_i32, \
  [MOTH_I64] = op##_i64
#define MOTH_FLOAT_ROWS(op) [MOTH_F32] = op##_f32, [MOTH_F64] = op##_f64
#define MOTH_ROWS_WHOLE(op) MOTH_INT_ROWS(op)
#define MOTH_ROWS_REAL(op) MOTH_FLOAT_ROWS(op)
#define MOTH_ROWS_NUMBER(op) MOTH_INT_ROWS(op), MOTH_ROWS_REAL(op)
#define MOTH_ROWS_BITS(op) [MOTH_BOOL] = op##_truth, MOTH_INT_ROWS(op)
#define MOTH_ROWS_ANY(op) MOTH_ROWS_BITS(op), MOTH_ROWS_REAL(op)
#define MOTH_ROWS_QUESTION(op) [MOTH_BOOL] = op##_u8, MOTH_ROWS_NUMBER(op)

/* Types that other loops are written for: X(name, type, unsigned type in which overflow wraps). */
#define MOTH_EACH_INT(X)    \
  X(u8, uint8_t, uint32_t)  \
  X(i8, int8_t, uint32_t)   \
  X(i16, int16_t, uint32_t) \
  X(i32, int32_t, uint32_t) \
  X(i64, int64_t, uint64_t)
#define MOTH_EACH_FLOAT(X) X(f32, float, float) X(f64, double, double)

#define MOTH_INNER(name)                                                                    \
  static void name(int64_t n, char *const *at, const int64_t *step, const void *arg)

/* x, y and z: the operands' elements; a, b, c: three numbers of their type that arg points at, if
** it is not NULL. */
#define MOTH_NUMBERS(real)                              \
  const real *const numbers = arg;                      \
  const real a = numbers ? numbers[0] : (real)0;        \
  const real b = numbers ? numbers[1] : (real)0;        \
  const real c = numbers ? numbers[2] : (real)0;        \
  (void)a, (void)b, (void)c;

/* result := expression of x; from and to are the element types. */
#define MOTH_MAP1(name, from, to, expression)                                         \
  MOTH_INNER(name) {                                                                  \
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

/* result := expression of x and y. */
#define MOTH_MAP2(name, from, to, expression)                                         \
  MOTH_INNER(name) {                                                                  \
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

/* result := expression of x, y and z. */
#define MOTH_MAP3(name, from, to, expression)                                         \
  MOTH_INNER(name) {                                                                  \
    typedef from real;                                                                \
    enum { S = sizeof(from) };                                                        \
    char *r = at[0];                                                                  \
    const char *p = at[1], *q = at[2], *s = at[3];                                    \
    const int64_t dr = step[0], dp = step[1], dq = step[2], ds = step[3];             \
    MOTH_NUMBERS(real)                                                                \
    if (dr == sizeof(to) && dp == S && dq == S && ds == S) {                          \
      to *result = (to *)(void *)r;                                                   \
      const real *first = (const real *)(const void *)p;                              \
      const real *second = (const real *)(const void *)q;                             \
      const real *third = (const real *)(const void *)s;                              \
      MOTH_IVDEP for (int64_t i = 0; i < n; i++) {                                    \
        const real x = first[i], y = second[i], z = third[i];                         \
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

/* Runs loops[dtype], operands[0] being the result, over its shape; dtype is that of the values
** computed with. `arg` is for the loop: NULL or three numbers of that dtype, f32 for half types. */
int moth_map(moth_ctx *ctx, const moth_inner *loops, int dtype, int noperands,
             const moth_tensor *const *operands, const void *arg);

/* Writes three numbers as a loop for values of this dtype wants them. */
void moth_numbers(int dtype, uint64_t arg[3], double a, double b, double c);

/* result := condition ? x : y, of any dtype; operands in that order. */
int moth_map_where(moth_ctx *ctx, const moth_tensor *const *operands);

#endif
