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

/* Types that loops are written for: X(name, type, unsigned type in which overflow wraps). */
#define MOTH_EACH_INT(X)    \
  X(u8, uint8_t, uint32_t)  \
  X(i8, int8_t, uint32_t)   \
  X(i16, int16_t, uint32_t) \
  X(i32, int32_t, uint32_t) \
  X(i64, int64_t, uint64_t)
#define MOTH_EACH_FLOAT(X) X(f32, float, float) X(f64, double, double)

/* Rows of a table of loops, by dtype. */
#define MOTH_INT_ROWS(op)                                                                \
  [MOTH_U8] = op##_u8, [MOTH_I8] = op##_i8, [MOTH_I16] = op##_i16, [MOTH_I32] = op##_i32, \
  [MOTH_I64] = op##_i64
#define MOTH_FLOAT_ROWS(op) [MOTH_F32] = op##_f32, [MOTH_F64] = op##_f64

#define MOTH_INNER(name)                                                                    \
  static void name(int64_t n, char *const *at, const int64_t *step, const void *arg)

/* result := expression of x; from and to are the element types. */
#define MOTH_MAP1(name, from, to, expression)                                         \
  MOTH_INNER(name) {                                                                  \
    typedef from real;                                                                \
    char *r = at[0];                                                                  \
    const char *p = at[1];                                                            \
    const int64_t dr = step[0], dp = step[1];                                         \
    (void)arg;                                                                        \
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

/* result := expression of x, y and of a, the number that arg points at unless it is NULL. */
#define MOTH_MAP2(name, from, to, expression)                                         \
  MOTH_INNER(name) {                                                                  \
    typedef from real;                                                                \
    enum { S = sizeof(from) };                                                        \
    char *r = at[0];                                                                  \
    const char *p = at[1], *q = at[2];                                                \
    const int64_t dr = step[0], dp = step[1], dq = step[2];                           \
    const real a = arg ? *(const real *)arg : (real)0;                                \
    (void)a;                                                                          \
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

typedef const moth_inner moth_inner_table[MOTH_DTYPES];

/* Runs loops[dtype], operands[0] being the result, over its shape; dtype is that of the values
** computed with. `arg` is for the loop; for half types it must be what the f32 loop wants. */
int moth_map(moth_ctx *ctx, const moth_inner *loops, int dtype, int noperands,
             const moth_tensor *const *operands, const void *arg);

/* result := condition ? x : y, of any dtype; operands in that order. */
int moth_map_where(moth_ctx *ctx, const moth_tensor *const *operands);

#endif
