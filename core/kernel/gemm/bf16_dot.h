/* bf16_dot.h -- the instruction that multiplies pairs of bf16 and adds both products to f32 sums
** (vdpbf16ps), for functions with MOTH_BF16_TARGET: BF16_DOT(sums, (operand)a, (operand)b). A pair
** is a 32-bit word.
*/
#ifndef MOTH_KERNEL_BF16_DOT_H
#define MOTH_KERNEL_BF16_DOT_H

#include <stdbool.h>
#include <stdint.h>

#include "kernel/level.h"

#if MOTH_HAS_LEVELS

/* True if the processor has this instruction at twice the rate of f32, and MOTH_ISA allows it.
** Intel processors need two cycles for it instead of one; they have AMX tiles for pairs (amx.h). */
bool moth_bf16_dot(void);

#define MOTH_BF16_TARGET __attribute__((target(MOTH_AVX512_SET ",avx512bf16")))
typedef float vector16 __attribute__((vector_size(64)));
typedef float loose16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t words16 __attribute__((vector_size(64)));
typedef uint32_t loose_words16 __attribute__((vector_size(64), aligned(4), may_alias));

#if defined(__clang__)
#define BF16_DOT __builtin_ia32_dpbf16ps_512
#else
#define BF16_DOT __builtin_ia32_dpbf16ps_v16sf
#endif
#if (defined(__clang__) && __clang_major__ >= 16) || (!defined(__clang__) && __GNUC__ >= 13)
typedef __bf16 operand __attribute__((vector_size(64)));
#elif defined(__clang__)
typedef int operand __attribute__((vector_size(64)));
#else
typedef short operand __attribute__((vector_size(64)));
#endif

#endif

#endif
