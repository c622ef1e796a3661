/* half.h -- converts half types to f32 and back, for the CPU's loops and the GPU's kernels.
**
** The code has no branches, so that loops vectorise. An f16 is widened by shifting its bits into
** place and multiplying by 2^112, which also converts subnormals correctly. Values are rounded to
** nearest even. NaN stays NaN.
*/
#ifndef MOTH_HALF_H
#define MOTH_HALF_H

#include "kernel/math/exp.h"

MOTH_INLINE float moth_widen_f16(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = (uint32_t)(h & 0x7fffu) << 13;
  uint32_t finite = moth_bits_f32(moth_float_of(rest) * 0x1p112f);
  uint32_t quiet = rest > 0x0f800000u ? 0x400000u : 0; /* as processors quiet a NaN */
  uint32_t special = rest | 0x7f800000u | quiet;
  return moth_float_of(sign | ((h & 0x7c00u) == 0x7c00u ? special : finite));
}

MOTH_INLINE uint16_t moth_narrow_f16(float f) {
  uint32_t u = moth_bits_f32(f), sign = u >> 16 & 0x8000u, rest = u & 0x7fffffffu;
  uint32_t normal = (rest + 0xc8000fffu + (rest >> 13 & 1u)) >> 13; /* new bias; to nearest even */
  uint32_t small = moth_bits_f32(moth_float_of(rest) + 0.5f) - 0x3f000000u; /* rounds */
  uint32_t finite = rest < 0x38800000u ? small : normal;
  uint32_t special = rest > 0x7f800000u ? 0x7e00u | (rest >> 13 & 0x3ffu) : 0x7c00u;
  return (uint16_t)(sign | (rest >= 0x477ff000u ? special : finite)); /* from 65520 on: infinity */
}

MOTH_INLINE float moth_widen_bf16(uint16_t h) { return moth_float_of((uint32_t)h << 16); }

MOTH_INLINE uint16_t moth_narrow_bf16(float f) {
  uint32_t u = moth_bits_f32(f), nan = u >> 16 | 0x40u;
  uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
  return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

#endif
