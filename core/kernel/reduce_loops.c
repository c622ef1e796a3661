/* reduce_loops.c -- the loops of reductions: sum, prod, count, all, any, amax, amin, norms.
**
** Integers wrap in 64 bits. f32 is summed in blocks, and the blocks are summed in f64.
*/
#include "reduce.h"

#include <math.h>

#include "kernel/math/elementwise.h"
#include "products.h"

#define BLOCK MOTH_REDUCE_BLOCK

#define LOOPS "kernel/reduce_real.h"
#include "each_level.h"

/* -- loops of integers and bool. Accumulators are integers, so the order does not matter. JOIN(p,
** q) combines two accumulators, FROM converts an element x. A contiguous row has LANES
** accumulators; across rows each result has one. -- */

#define AT(type, p) (*(const type *)(const void *)(p))
enum { LANES = 16 }; /* two registers of 64-bit elements with AVX-512 */

#define ACCUMULATOR(name, type, ZERO, JOIN)                             \
  enum { name##_acc = sizeof(type) };                                   \
  static void name##_start(int64_t n, void *scratch) {                  \
    type *acc = scratch;                                                \
    for (int64_t j = 0; j < n; j++) acc[j] = (type)(ZERO);              \
  }                                                                     \
  static void name##_join(int64_t n, void *scratch, const void *more) { \
    type *acc = scratch;                                                \
    const type *other = more;                                           \
    for (int64_t j = 0; j < n; j++) acc[j] = JOIN(acc[j], other[j]);    \
  }

#define REDUCE_TAKE(TARGET, name, type, acc_type, ZERO, FROM, JOIN)                   \
  TARGET static acc_type name##_row(int64_t r, const char *at, int64_t next) {        \
    acc_type lane[LANES];                                                             \
    int64_t i = 0;                                                                    \
    for (int k = 0; k < LANES; k++) lane[k] = ZERO;                                   \
    if (next == sizeof(type)) {                                                       \
      const type *p = (const type *)(const void *)at;                                 \
      for (; i + LANES <= r; i += LANES)                                              \
        for (int k = 0; k < LANES; k++) {                                             \
          const type x = p[i + k];                                                    \
          const acc_type v = FROM;                                                    \
          lane[k] = JOIN(lane[k], v);                                                 \
        }                                                                             \
    }                                                                                 \
    for (; i < r; i++) {                                                              \
      const type x = AT(type, at + i * next);                                         \
      const acc_type v = FROM;                                                        \
      lane[i % LANES] = JOIN(lane[i % LANES], v);                                     \
    }                                                                                 \
    for (int k = LANES / 2; k; k /= 2)                                                \
      for (int j = 0; j < k; j++) lane[j] = JOIN(lane[j], lane[j + k]);               \
    return lane[0];                                                                   \
  }                                                                                   \
  TARGET static void name##_take(int64_t n, int64_t r, void *scratch, const char *at, \
                                 int64_t step, int64_t next) {                        \
    acc_type *acc = scratch;                                                          \
    if (n == 1 || next == sizeof(type)) {                                             \
      for (int64_t j = 0; j < n; j++) {                                               \
        const acc_type v = name##_row(r, at + j * step, next);                        \
        acc[j] = JOIN(acc[j], v);                                                     \
      }                                                                               \
      return;                                                                         \
    }                                                                                 \
    for (int64_t i = 0; i < r; i++, at += next) {                                     \
      if (step == sizeof(type)) {                                                     \
        const type *p = (const type *)(const void *)at;                               \
        MOTH_IVDEP for (int64_t j = 0; j < n; j++) {                                  \
          const type x = p[j];                                                        \
          const acc_type v = FROM, was = acc[j];                                      \
          acc[j] = JOIN(was, v);                                                      \
        }                                                                             \
      } else {                                                                        \
        for (int64_t j = 0; j < n; j++) {                                             \
          const type x = AT(type, at + j * step);                                     \
          const acc_type v = FROM;                                                    \
          acc[j] = JOIN(acc[j], v);                                                   \
        }                                                                             \
      }                                                                               \
    }                                                                                 \
  }

#define REDUCE(name, type, acc_type, ZERO, FROM, JOIN) \
  ACCUMULATOR(name, acc_type, ZERO, JOIN)              \
  REDUCE_TAKE(, name, type, acc_type, ZERO, FROM, JOIN)

#define FINISH(name, acc_type, to, expression)                               \
  static void name(int64_t n, const void *scratch, char *y, int64_t count) { \
    const acc_type *acc = scratch;                                           \
    (void)count;                                                             \
    for (int64_t j = 0; j < n; j++) {                                        \
      const acc_type v = acc[j];                                             \
      ((to *)(void *)y)[j] = (to)(expression);                               \
    }                                                                        \
  }

#define ENTRY_OF(take, acc, end) \
  {{take, take, take}, acc##_start, acc##_join, end, acc##_acc, NULL}
#define ENTRY(reducer, end) ENTRY_OF(reducer##_take, reducer, end)
#define SHORT(reducer)                                 \
  [MOTH_BOOL] = ENTRY(reducer##_u8, reducer##_u8_end), \
  [MOTH_U8] = ENTRY(reducer##_u8, reducer##_u8_end),   \
  [MOTH_I8] = ENTRY(reducer##_i8, reducer##_i8_end),   \
  [MOTH_I16] = ENTRY(reducer##_i16, reducer##_i16_end)
#define LONG(ENTRY, reducer)                                                              \
  [MOTH_I32] = ENTRY(reducer##_i32, reducer##_i32_end), [MOTH_I64] = ENTRY(reducer##_i64, \
                                                                           reducer##_i64_end)
#define WHOLE(reducer) SHORT(reducer), LONG(ENTRY, reducer)
#define TABLE(reducer)                                                  \
  WHOLE(reducer), [MOTH_F32] = ENTRY(reducer##_f32, reducer##_f32_end), \
                  [MOTH_F64] = ENTRY(reducer##_f64, reducer##_f64_end)

/* LEVELS(take): the float loops of reduce_real.h. REDUCE_LEVELS, LEVELS_ENTRY: integer loops that
** are slow with plain instructions, for example comparisons of 64 bits. */
#if MOTH_HAS_LEVELS
#define LEVELS(take) {take##_f32, take##_avx2, take##_avx512}
#define REDUCE_LEVELS(name, ...)                   \
  REDUCE(name, __VA_ARGS__)                        \
  REDUCE_TAKE(MOTH_AVX2, name##_avx2, __VA_ARGS__) \
  REDUCE_TAKE(MOTH_AVX512, name##_avx512, __VA_ARGS__)
#define LEVELS_ENTRY(reducer, end)                                                                 \
  {                                                                                                \
    {reducer##_take, reducer##_avx2_take, reducer##_avx512_take}, reducer##_start, reducer##_join, \
        end, reducer##_acc, NULL                                                                   \
  }
#else
#define LEVELS(take) {take##_f32, take##_f32, take##_f32}
#define REDUCE_LEVELS REDUCE
#define LEVELS_ENTRY ENTRY
#endif
#define FLOATS(take, f32, f32_end, f64, f64_end)                        \
  [MOTH_F32] = {LEVELS(take), f32##_start, f32##_join, f32_end, f32##_acc, NULL}, \
  [MOTH_F64] = {{take##_f64, take##_f64, take##_f64}, f64##_start, f64##_join, f64_end,       \
                f64##_acc, NULL}

/* -- sum, mean -- */

#define PLUS(p, q) ((p) + (q))
#define SUM_INT(REDUCE, name, type)                        \
  REDUCE(sum_##name, type, uint64_t, 0, (uint64_t)x, PLUS) \
  FINISH(sum_##name##_end, uint64_t, int64_t, v)
SUM_INT(REDUCE, u8, uint8_t)
SUM_INT(REDUCE, i8, int8_t)
SUM_INT(REDUCE, i16, int16_t)
SUM_INT(REDUCE_LEVELS, i32, int32_t)
SUM_INT(REDUCE_LEVELS, i64, int64_t)
ACCUMULATOR(total, double, 0, PLUS)
#define SUM_FLOAT(name, type, wide)                                   \
  FINISH(sum_##name##_end, double, type, v)                           \
  FINISH(mean_##name##_end, double, type, v / (double)count)          \
  FINISH(length_##name##_end, double, type, sqrt(v))
MOTH_EACH_FLOAT(SUM_FLOAT)
#define TOTALS(take, name) FLOATS(take, total, name##_f32_end, total, name##_f64_end)

/* Sums of floats in a wider range: of f32 in double, of f64 scaled. */
#define WIDE_SUM(name, type, scale)                                                        \
  static void wide_##name##_take(int64_t n, int64_t r, void *scratch, const char *at,      \
                                 int64_t step, int64_t next) {                             \
    double *acc = scratch;                                                                 \
    for (int64_t i = 0; i < r; i++, at += next)                                            \
      for (int64_t j = 0; j < n; j++) acc[j] += (double)AT(type, at + j * step) * (scale); \
  }                                                                                        \
  FINISH(wide_sum_##name##_end, double, type, v / (scale))                                 \
  FINISH(wide_mean_##name##_end, double, type, v / (double)count / (scale))
#define WIDE_SUMS(name)                                                   \
  static const moth_reducer wide_##name##_reducers[MOTH_DTYPES] = {       \
      [MOTH_F32] = ENTRY_OF(wide_f32_take, total, wide_##name##_f32_end), \
      [MOTH_F64] = ENTRY_OF(wide_f64_take, total, wide_##name##_f64_end)}
WIDE_SUM(f32, float, 1.0)
WIDE_SUM(f64, double, 0x1p-64)
WIDE_SUMS(sum);
WIDE_SUMS(mean);
#define WIDER(take, name)                                                                       \
  [MOTH_F32] = {LEVELS(take),   total_start, total_join,                                        \
                name##_f32_end, total_acc,   &wide_##name##_reducers[MOTH_F32]},                \
  [MOTH_F64] = {                                                                                \
      {take##_f64, take##_f64, take##_f64}, total_start, total_join, name##_f64_end, total_acc, \
      &wide_##name##_reducers[MOTH_F64]}
const moth_reducer moth_sum_reducers[MOTH_DTYPES] = {
  SHORT(sum), LONG(LEVELS_ENTRY, sum), WIDER(sum_take, sum)};
const moth_reducer moth_mean_reducers[MOTH_DTYPES] = {WIDER(sum_take, mean)};
const moth_reducer moth_length_reducers[MOTH_DTYPES] = {TOTALS(squares_take, length)};

/* -- count, all, any -- */

#define OR(p, q) ((p) | (q))
#define TRUTH(name, type, wide)                                     \
  REDUCE(count_##name, type, uint64_t, 0, (uint64_t)(x != 0), PLUS) \
  REDUCE(any_##name, type, uint64_t, 0, (uint64_t)(x != 0), OR)     \
  REDUCE(all_##name, type, uint64_t, 0, (uint64_t)(x == 0), OR)     \
  FINISH(count_##name##_end, uint64_t, int64_t, v)                  \
  FINISH(any_##name##_end, uint64_t, uint8_t, v)                    \
  FINISH(all_##name##_end, uint64_t, uint8_t, v == 0)
MOTH_EACH_INT(TRUTH)
MOTH_EACH_FLOAT(TRUTH)
const moth_reducer moth_count_reducers[MOTH_DTYPES] = {TABLE(count)};
const moth_reducer moth_any_reducers[MOTH_DTYPES] = {TABLE(any)};
const moth_reducer moth_all_reducers[MOTH_DTYPES] = {TABLE(all)};

/* -- products -- */

#define TIMES(p, q) ((p) * (q))
#define PROD_INT(name, type, wide)                           \
  REDUCE(prod_##name, type, uint64_t, 1, (uint64_t)x, TIMES) \
  FINISH(prod_##name##_end, uint64_t, int64_t, v)
MOTH_EACH_INT(PROD_INT)
#define PROD_ENTRY(name)                                                               \
  {{moth_prod_take_##name, moth_prod_take_##name, moth_prod_take_##name}, moth_prod_start, \
   moth_prod_join, moth_prod_##name##_end, MOTH_PROD_ACC, NULL}
const moth_reducer moth_prod_reducers[MOTH_DTYPES] = {
  WHOLE(prod), [MOTH_F32] = PROD_ENTRY(f32), [MOTH_F64] = PROD_ENTRY(f64)};

/* -- extremes: NaN wins -- */

#define MORE(p, q) ((((q) > (p)) | ((q) != (q))) ? (q) : (p))
#define LESS(p, q) ((((q) < (p)) | ((q) != (q))) ? (q) : (p))
#define EXTREMES(REDUCE, name, type, least, most) \
  REDUCE(amax_##name, type, type, least, x, MORE) \
  REDUCE(amin_##name, type, type, most, x, LESS)  \
  FINISH(amax_##name##_end, type, type, v)        \
  FINISH(amin_##name##_end, type, type, v)
EXTREMES(REDUCE, u8, uint8_t, 0, UINT8_MAX)
EXTREMES(REDUCE, i8, int8_t, INT8_MIN, INT8_MAX)
EXTREMES(REDUCE, i16, int16_t, INT16_MIN, INT16_MAX)
EXTREMES(REDUCE_LEVELS, i32, int32_t, INT32_MIN, INT32_MAX)
EXTREMES(REDUCE_LEVELS, i64, int64_t, INT64_MIN, INT64_MAX)
#define FLOAT_EXTREMES(name, type, wide)                    \
  ACCUMULATOR(most_##name, type, -INFINITY, MORE)           \
  ACCUMULATOR(least_##name, type, INFINITY, LESS)           \
  FINISH(extreme_##name##_end, type, type, v)
MOTH_EACH_FLOAT(FLOAT_EXTREMES)
const moth_reducer moth_amax_reducers[MOTH_DTYPES] = {
  SHORT(amax), LONG(LEVELS_ENTRY, amax),
  FLOATS(amax_take, most_f32, extreme_f32_end, most_f64, extreme_f64_end)};
const moth_reducer moth_amin_reducers[MOTH_DTYPES] = {
  SHORT(amin), LONG(LEVELS_ENTRY, amin),
  FLOATS(amin_take, least_f32, extreme_f32_end, least_f64, extreme_f64_end)};
