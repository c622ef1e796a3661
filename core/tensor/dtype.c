/* dtype.c -- the ten element types: names, sizes, promotion, and conversion between any two.
**
** The eight types of C have conversion loops; f16 and bf16 are converted through f32 in blocks.
*/
#include "dtype.h"

#include <math.h>

#include "half.h"
#include "kernel/level.h"
#include "kernel/copy.h"

#if MOTH_HAS_LEVELS
#include <immintrin.h>
#endif

#define SIZE(NAME, name, type) [NAME] = (uint8_t)sizeof(type),
const uint8_t moth_dtype_size[MOTH_DTYPES] = {MOTH_DTYPE_LIST(SIZE)};

#define TEXT(NAME, name, type) [NAME] = #name,
static const char *const texts[MOTH_DTYPES] = {MOTH_DTYPE_LIST(TEXT)};

const char *moth_dtype_name(int32_t dtype) {
  return dtype >= 0 && dtype < MOTH_DTYPES ? texts[dtype] : NULL;
}

int moth_promote(int a, int b) {
  if (a == b) return a;
  int lo = a < b ? a : b, hi = a < b ? b : a;
  if (lo == MOTH_U8 && hi == MOTH_I8) return MOTH_I16;
  if (lo == MOTH_F16 && hi == MOTH_BF16) return MOTH_F32;
  return hi;
}

const char *moth_dtypes_str(uint32_t set, char *buf) {
  char *at = buf;
  for (int d = 0; d < MOTH_DTYPES; d++) {
    if (!(set >> d & 1u)) continue;
    if (at > buf) *at++ = '|';
    size_t n = strlen(texts[d]);
    memcpy(at, texts[d], n);
    at += n;
  }
  *at = 0;
  return buf;
}

/* -- one element, from each class of types to each -- */

#define SATURATE(name, type, least, most, above)                    \
  static inline type name(double v) {                               \
    if (v != v) return 0;                                           \
    return v <= least ? (type)least : v >= above ? (type)most : (type)v; \
  }
SATURATE(real_to_u8, uint8_t, 0.0, UINT8_MAX, 255.0)
SATURATE(real_to_i8, int8_t, -128.0, INT8_MAX, 127.0)
SATURATE(real_to_i16, int16_t, -32768.0, INT16_MAX, 32767.0)
SATURATE(real_to_i32, int32_t, -2147483648.0, INT32_MAX, 2147483647.0)
SATURATE(real_to_i64, int64_t, -0x1p63, INT64_MAX, 0x1p63)

/* X(target, C type of target, value from an integer v, value from a float v) */
#define TO_LIST(X)                                         \
  X(bool, uint8_t, v != 0, v != 0)                         \
  X(u8, uint8_t, (uint8_t)v, real_to_u8((double)v))        \
  X(i8, int8_t, (int8_t)v, real_to_i8((double)v))          \
  X(i16, int16_t, (int16_t)v, real_to_i16((double)v))      \
  X(i32, int32_t, (int32_t)v, real_to_i32((double)v))      \
  X(i64, int64_t, (int64_t)v, real_to_i64((double)v))      \
  X(f32, float, (float)v, (float)v)                        \
  X(f64, double, (double)v, (double)v)

/* -- loops -- */

typedef void converter(int64_t n, const char *x, int64_t x_step, char *y, int64_t y_step);

#define LOOP(name, from, to, expression)                                                   \
  static void name(int64_t n, const char *x, int64_t x_step, char *y, int64_t y_step) {    \
    if (x_step == sizeof(from) && y_step == sizeof(to)) {                                  \
      const from *p = (const from *)(const void *)x;                                       \
      to *q = (to *)(void *)y;                                                             \
      for (int64_t i = 0; i < n; i++) {                                                    \
        const from v = p[i];                                                               \
        q[i] = expression;                                                                 \
      }                                                                                    \
      return;                                                                              \
    }                                                                                      \
    for (int64_t i = 0; i < n; i++, x += x_step, y += y_step) {                            \
      const from v = *(const from *)(const void *)x;                                       \
      *(to *)(void *)y = expression;                                                       \
    }                                                                                      \
  }

#define FROM_BOOL(to, type, whole, real) LOOP(bool_to_##to, uint8_t, type, (type)(v != 0))
#define FROM_U8(to, type, whole, real) LOOP(u8_to_##to, uint8_t, type, whole)
#define FROM_I8(to, type, whole, real) LOOP(i8_to_##to, int8_t, type, whole)
#define FROM_I16(to, type, whole, real) LOOP(i16_to_##to, int16_t, type, whole)
#define FROM_I32(to, type, whole, real) LOOP(i32_to_##to, int32_t, type, whole)
#define FROM_I64(to, type, whole, real) LOOP(i64_to_##to, int64_t, type, whole)
#define FROM_F32(to, type, whole, real) LOOP(f32_to_##to, float, type, real)
#define FROM_F64(to, type, whole, real) LOOP(f64_to_##to, double, type, real)
TO_LIST(FROM_BOOL)
TO_LIST(FROM_U8)
TO_LIST(FROM_I8)
TO_LIST(FROM_I16)
TO_LIST(FROM_I32)
TO_LIST(FROM_I64)
TO_LIST(FROM_F32)
TO_LIST(FROM_F64)
LOOP(f16_to_f32, uint16_t, float, moth_widen_f16(v))
LOOP(bf16_to_f32, uint16_t, float, moth_widen_bf16(v))
LOOP(f32_to_f16, float, uint16_t, moth_narrow_f16(v))
LOOP(f32_to_bf16, float, uint16_t, moth_narrow_bf16(v))
LOOP(copy_8, uint8_t, uint8_t, v)
LOOP(copy_16, uint16_t, uint16_t, v)
LOOP(copy_32, uint32_t, uint32_t, v)
LOOP(copy_64, uint64_t, uint64_t, v)

/* -- contiguous loops at higher instruction levels, where they are faster -- */

enum { QUICK_RUN = 16 }; /* the least number of elements of these loops */

#if MOTH_HAS_LEVELS
/* For n >= QUICK_RUN. The last run ends at n and repeats elements of the run before it. gcc -O2
** vectorises loops of a constant length whose operands cannot overlap, and no others. */
#ifdef __clang__
#define IVDEP
#else
#define IVDEP _Pragma("GCC ivdep")
#endif
#define QUICK(target, name, from, to, expression)                                   \
  target static void name(int64_t n, const char *x, char *y) {                      \
    for (int64_t i = 0; i < n; i += QUICK_RUN) {                                    \
      const int64_t first = n - i < QUICK_RUN ? n - QUICK_RUN : i;                  \
      const from *p = (const from *)(const void *)x + first;                        \
      to *q = (to *)(void *)y + first;                                              \
      IVDEP for (int j = 0; j < QUICK_RUN; j++) {                                   \
        const from v = p[j];                                                        \
        q[j] = expression;                                                          \
      }                                                                             \
    }                                                                               \
  }
#define QUICK_BOTH(name, from, to, expression)                                      \
  QUICK(MOTH_AVX2, name##_avx2, from, to, expression)                               \
  QUICK(MOTH_AVX512, name##_avx512, from, to, expression)
QUICK(MOTH_AVX2, quick_f16_f32_avx2, uint16_t, float, moth_widen_f16(v))
QUICK(MOTH_AVX2, quick_f32_f16_avx2, float, uint16_t, moth_narrow_f16(v))
QUICK_BOTH(quick_bf16_f32, uint16_t, float, moth_widen_bf16(v))
QUICK_BOTH(quick_f32_bf16, float, uint16_t, moth_narrow_bf16(v))
QUICK_BOTH(quick_f32_f64, float, double, (double)v)
QUICK_BOTH(quick_f64_f32, double, float, (float)v)
/* Values are clamped before the cast, so that every cast is in range and needs no branch. NaN fails
** every comparison. Each step has one choice and one width; otherwise gcc vectorises badly. */
#define WITHIN(v, least, most) ((v) < least ? least : (v) > most ? most : (v))
#define NEAR(name, real, whole, least, above, below, most)                           \
  MOTH_INLINE whole name(real v) {                                                   \
    const real high = v > least ? v : least, within = high < below ? high : below;   \
    const whole cut = (whole)within, near = v >= above ? most : cut;                 \
    return v == v ? near : 0;                                                        \
  }
NEAR(near_i32, float, int32_t, -0x1p31f, 0x1p31f, 0x1.fffffep30f, INT32_MAX)
NEAR(near_i64, double, int64_t, -0x1p63, 0x1p63, 0x1.fffffffffffffp62, INT64_MAX)
MOTH_INLINE int32_t wide_to_i32(double v) {
  const double high = v > -0x1p31 ? v : -0x1p31, within = high < INT32_MAX ? high : INT32_MAX;
  return (int32_t)(v == v ? within : 0);
}
QUICK_BOTH(quick_f32_i32, float, int32_t, near_i32(v))
QUICK_BOTH(quick_f32_i64, float, int64_t, near_i64((double)v))
QUICK_BOTH(quick_f32_bool, float, uint8_t, v != 0)
QUICK_BOTH(quick_f64_i64, double, int64_t, near_i64(v))
QUICK_BOTH(quick_f64_i32, double, int32_t, wide_to_i32(v))
QUICK_BOTH(quick_f64_bool, double, uint8_t, v != 0)

/* From integers and bools. Other integers are made by `table`, except short ones from i32. */
QUICK_BOTH(quick_i32_i8, int32_t, int8_t, (int8_t)v)
QUICK_BOTH(quick_i32_i16, int32_t, int16_t, (int16_t)v)
#define quick_i32_u8_avx2 quick_i32_i8_avx2
#define quick_i32_u8_avx512 quick_i32_i8_avx512
#define FROM_WHOLE(name, type, value)                    \
  QUICK_BOTH(quick_##name##_bool, type, uint8_t, v != 0) \
  QUICK_BOTH(quick_##name##_f32, type, float, (float)(value))     \
  QUICK_BOTH(quick_##name##_f64, type, double, (double)(value))
FROM_WHOLE(bool, uint8_t, v != 0)
FROM_WHOLE(u8, uint8_t, v)
FROM_WHOLE(i8, int8_t, v)
FROM_WHOLE(i16, int16_t, v)
FROM_WHOLE(i32, int32_t, v)
FROM_WHOLE(i64, int64_t, v)

/* Floats to short integers through i32, in steps of one width. NaN becomes 0. */
#define CUT(name, least, most)                                                            \
  MOTH_INLINE int32_t name(double v) {                                                    \
    const double high = v > least ? v : least, within = high < most ? high : most;        \
    return (int32_t)(v == v ? within : 0);                                                \
  }
CUT(cut_u8, 0, 255)
CUT(cut_i8, -128, 127)
CUT(cut_i16, -32768, 32767)
#define SHORTEN(level, to, type, least, most)                                             \
  QUICK(TARGET_##level, cut_f32_##to##_##level, float, int32_t,                           \
        v != v ? 0 : (int32_t)WITHIN(v, least##.0f, most##.0f))                           \
  QUICK(TARGET_##level, cut_f64_##to##_##level, double, int32_t, cut_##to(v))             \
  TARGET_##level static void quick_f32_##to##_##level(int64_t n, const char *x, char *y) { \
    by_i32(n, x, 4, y, sizeof(type), cut_f32_##to##_##level, quick_i32_##to##_##level);   \
  }                                                                                       \
  TARGET_##level static void quick_f64_##to##_##level(int64_t n, const char *x, char *y) { \
    by_i32(n, x, 8, y, sizeof(type), cut_f64_##to##_##level, quick_i32_##to##_##level);   \
  }
#define TARGET_avx2 MOTH_AVX2
#define TARGET_avx512 MOTH_AVX512
typedef void quick(int64_t n, const char *x, char *y);
static void by_i32(int64_t n, const char *x, int64_t from, char *y, int64_t to, quick *first,
                   quick *second) {
  enum { I32_STEP = 512 };
  _Alignas(64) int32_t block[I32_STEP];
  const int64_t m = n < I32_STEP ? n : I32_STEP;
  for (int64_t i = 0; i < n; i += m) {
    const int64_t at = n - i < m ? n - m : i;
    first(m, x + at * from, (char *)block);
    second(m, (const char *)block, y + at * to);
  }
}
SHORTEN(avx2, u8, uint8_t, 0, 255)
SHORTEN(avx2, i8, int8_t, -128, 127)
SHORTEN(avx2, i16, int16_t, -32768, 32767)
SHORTEN(avx512, u8, uint8_t, 0, 255)
SHORTEN(avx512, i8, int8_t, -128, 127)
SHORTEN(avx512, i16, int16_t, -32768, 32767)

/* AVX-512 instructions for f16, which compilers do not find. */
MOTH_AVX512 static void quick_f16_f32_avx512(int64_t n, const char *x, char *y) {
  for (; n >= 16; n -= 16, x += 32, y += 64)
    _mm512_storeu_ps(y, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)x)));
  f16_to_f32(n, x, 2, y, 4);
}

MOTH_AVX512 static void quick_f32_f16_avx512(int64_t n, const char *x, char *y) {
  for (; n >= 16; n -= 16, x += 64, y += 32)
    _mm256_storeu_si256((void *)y, _mm512_cvtps_ph(_mm512_loadu_ps(x), 0)); /* to nearest even */
  f32_to_f16(n, x, 4, y, 2);
}

#define BOTH(name) {name##_avx2, name##_avx512}

#define WHOLES(name)                                                                    \
  {[MOTH_BOOL] = BOTH(quick_##name##_bool), [MOTH_F32] = BOTH(quick_##name##_f32),      \
   [MOTH_F64] = BOTH(quick_##name##_f64)}

static quick *quick_of(int from, int to) {
  static quick *const all[MOTH_DTYPES][MOTH_DTYPES][2] = {
    [MOTH_F16] = {[MOTH_F32] = BOTH(quick_f16_f32)},
    [MOTH_BF16] = {[MOTH_F32] = BOTH(quick_bf16_f32)},
    [MOTH_BOOL] = WHOLES(bool), [MOTH_U8] = WHOLES(u8), [MOTH_I8] = WHOLES(i8),
    [MOTH_I16] = WHOLES(i16), [MOTH_I32] = WHOLES(i32), [MOTH_I64] = WHOLES(i64),
    [MOTH_F64] = {[MOTH_F32] = BOTH(quick_f64_f32), [MOTH_I32] = BOTH(quick_f64_i32),
                  [MOTH_I64] = BOTH(quick_f64_i64), [MOTH_U8] = BOTH(quick_f64_u8),
                  [MOTH_I8] = BOTH(quick_f64_i8), [MOTH_I16] = BOTH(quick_f64_i16),
                  [MOTH_BOOL] = BOTH(quick_f64_bool)},
    [MOTH_F32] = {[MOTH_F16] = BOTH(quick_f32_f16), [MOTH_BF16] = BOTH(quick_f32_bf16),
                  [MOTH_F64] = BOTH(quick_f32_f64), [MOTH_I32] = BOTH(quick_f32_i32),
                  [MOTH_I64] = BOTH(quick_f32_i64), [MOTH_U8] = BOTH(quick_f32_u8),
                  [MOTH_I8] = BOTH(quick_f32_i8), [MOTH_I16] = BOTH(quick_f32_i16),
                  [MOTH_BOOL] = BOTH(quick_f32_bool)}};
  const int level = moth_level();
  return level == MOTH_LEVEL_PLAIN ? NULL : all[from][to][level - 1];
}
#else
typedef void quick(int64_t n, const char *x, char *y);
static quick *quick_of(int from, int to) {
  (void)from, (void)to;
  return NULL;
}
#endif

#define TABLE_ROW(from)                                                                          \
  {[MOTH_BOOL] = from##_to_bool, [MOTH_U8] = from##_to_u8, [MOTH_I8] = from##_to_i8,             \
   [MOTH_I16] = from##_to_i16, [MOTH_I32] = from##_to_i32, [MOTH_I64] = from##_to_i64,           \
   [MOTH_F32] = from##_to_f32, [MOTH_F64] = from##_to_f64}
static converter *const table[MOTH_DTYPES][MOTH_DTYPES] = {
  [MOTH_BOOL] = TABLE_ROW(bool), [MOTH_U8] = TABLE_ROW(u8),   [MOTH_I8] = TABLE_ROW(i8),
  [MOTH_I16] = TABLE_ROW(i16),   [MOTH_I32] = TABLE_ROW(i32), [MOTH_I64] = TABLE_ROW(i64),
  [MOTH_F32] = TABLE_ROW(f32),   [MOTH_F64] = TABLE_ROW(f64),
  [MOTH_F16][MOTH_F32] = f16_to_f32, [MOTH_BF16][MOTH_F32] = bf16_to_f32,
  [MOTH_F32][MOTH_F16] = f32_to_f16, [MOTH_F32][MOTH_BF16] = f32_to_bf16,
};

/* Converts between a half type and a type other than f32, in blocks through f32. */
static void convert_half(int64_t n, int from, const char *x, int64_t x_step, int to, char *y,
                         int64_t y_step) {
  enum { HALF_STEP = 1024 };
  _Alignas(64) float block[HALF_STEP];
  for (int64_t i = 0; i < n; i += HALF_STEP, x += HALF_STEP * x_step, y += HALF_STEP * y_step) {
    const int64_t m = n - i < HALF_STEP ? n - i : HALF_STEP;
    moth_convert(m, from, x, x_step, MOTH_F32, (char *)block, sizeof(float));
    moth_convert(m, MOTH_F32, (const char *)block, sizeof(float), to, y, y_step);
  }
}

void moth_convert(int64_t n, int from, const char *src, int64_t src_step, int to, char *dst,
                  int64_t dst_step) {
  if (from == to) {
    int64_t size = moth_dtype_size[from];
    if (src_step == size && dst_step == size) {
      if (n > 0) memmove(dst, src, (size_t)(n * size));
      return;
    }
    if (n > 8 && src_step == -size && dst_step == size) {
      moth_reverse((int)size, n, src - (n - 1) * size, dst);
      return;
    }
    if (n > 8 && src_step == 2 * size && dst_step == size && moth_skip((int)size, n, src, dst))
      return;
    if (n > 16 && src_step == 0 && dst_step == size) { /* each copy doubles what is filled */
      memcpy(dst, src, (size_t)size);
      for (int64_t full = size, m; full < n * size; full += m) {
        m = full < n * size - full ? full : n * size - full;
        memcpy(dst + full, dst, (size_t)m);
      }
      return;
    }
    converter *copy = size == 8 ? copy_64 : size == 4 ? copy_32 : size == 2 ? copy_16 : copy_8;
    copy(n, src, src_step, dst, dst_step);
    return;
  }
  if (n >= QUICK_RUN && src_step == moth_dtype_size[from] && dst_step == moth_dtype_size[to]) {
    quick *best = quick_of(from, to);
    if (best) {
      best(n, src, dst);
      return;
    }
  }
  if (table[from][to]) table[from][to](n, src, src_step, dst, dst_step);
  else convert_half(n, from, src, src_step, to, dst, dst_step);
}
