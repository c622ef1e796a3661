/* dtype.h -- the ten element types: names, sizes, promotion, conversion. */
#ifndef MOTH_DTYPE_H
#define MOTH_DTYPE_H

#include <stdbool.h>
#include <string.h>

#include "moth.h"

/* X(ENUM, short name, C type). f16 and bf16 are bit patterns, which the functions below convert. */
#define MOTH_DTYPE_LIST(X) \
  X(MOTH_BOOL, bool, uint8_t)  \
  X(MOTH_U8, u8, uint8_t)      \
  X(MOTH_I8, i8, int8_t)       \
  X(MOTH_I16, i16, int16_t)    \
  X(MOTH_I32, i32, int32_t)    \
  X(MOTH_I64, i64, int64_t)    \
  X(MOTH_F16, f16, uint16_t)   \
  X(MOTH_BF16, bf16, uint16_t) \
  X(MOTH_F32, f32, float)      \
  X(MOTH_F64, f64, double)

/* Sets of dtypes, for the field `dtypes` of an op's record. */
#define MOTH_BIT(dtype) (1u << (dtype))
#define MOTH_FLOATS \
  (MOTH_BIT(MOTH_F16) | MOTH_BIT(MOTH_BF16) | MOTH_BIT(MOTH_F32) | MOTH_BIT(MOTH_F64))
#define MOTH_INTS \
  (MOTH_BIT(MOTH_U8) | MOTH_BIT(MOTH_I8) | MOTH_BIT(MOTH_I16) | MOTH_BIT(MOTH_I32) | \
   MOTH_BIT(MOTH_I64))
#define MOTH_NUMERIC (MOTH_FLOATS | MOTH_INTS)
#define MOTH_ANY (MOTH_NUMERIC | MOTH_BIT(MOTH_BOOL))

extern const uint8_t moth_dtype_size[MOTH_DTYPES];

static inline bool moth_is_float(int dtype) { return (MOTH_FLOATS >> dtype) & 1u; }
static inline bool moth_is_int(int dtype) { return (MOTH_INTS >> dtype) & 1u; }

static inline bool moth_is_half(int dtype) { return dtype == MOTH_F16 || dtype == MOTH_BF16; }

/* The dtype in which kernels compute values of this dtype. */
static inline int moth_compute_dtype(int dtype) { return moth_is_half(dtype) ? MOTH_F32 : dtype; }

/* The smallest dtype that can hold values of both, by PyTorch's lattice. */
int moth_promote(int a, int b);

/* Writes a set of dtypes into buf, of at least 64 bytes, as "f32|f64". */
const char *moth_dtypes_str(uint32_t set, char *buf);

/* Converts n elements. Steps are in bytes. Floats are rounded to nearest even. Float to integer
** saturates, and NaN becomes 0. To bool: any value but zero is true. */
void moth_convert(int64_t n, int from, const char *src, int64_t src_step, int to, char *dst,
                  int64_t dst_step);

/* Can `to` hold the value, an f64, i64 or bool (u8), without wrapping or overflow to infinity? A
** float with a fraction does not fit an integer. bool holds any value. */
bool moth_value_fits(int from, const void *value, int to);

#endif
