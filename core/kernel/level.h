/* level.h -- the levels of instructions that hot loops are compiled for, and the level in use.
** each_level.h compiles loops for all levels.
*/
#ifndef MOTH_KERNEL_LEVEL_H
#define MOTH_KERNEL_LEVEL_H

enum { MOTH_LEVEL_PLAIN, MOTH_LEVEL_AVX2, MOTH_LEVEL_AVX512 };

/* The best level of this processor, or a lower one if MOTH_ISA is plain, avx2 or avx512. */
int moth_level(void);
const char *moth_level_name(void);

/* Marks functions of loops over registers: they are inlined in each caller, which makes lengths
** constant and unrolls the loops. */
#define INLINED static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define ROLLED
#else
#define UNROLL _Pragma("GCC unroll 16")
#define ROLLED _Pragma("GCC unroll 1") /* for a loop to vectorize, not to unroll */
#endif

#if defined(__x86_64__) && defined(__GNUC__)

#define MOTH_HAS_LEVELS 1
#define MOTH_AVX2 __attribute__((target("avx2,fma")))
#define MOTH_AVX512_SET "avx512f,avx512dq,avx512vl,avx512bw,fma"
#if defined(__clang__) /* clang has no such attribute */
#define MOTH_AVX512 __attribute__((target(MOTH_AVX512_SET)))
#else /* gcc prefers vectors of 256 bits by default */
#define MOTH_AVX512 __attribute__((target(MOTH_AVX512_SET ",prefer-vector-width=512")))
#endif

/* f_f32 or its best version for this processor. MOTH_BEST(&f) is the address of an object. */
#define MOTH_BEST(f)                                    \
  (moth_level() == MOTH_LEVEL_AVX512 ? f##_avx512       \
   : moth_level() == MOTH_LEVEL_AVX2 ? f##_avx2 : f##_f32)

#else

#define MOTH_HAS_LEVELS 0
#define MOTH_BEST(f) (f##_f32)

#endif

#endif
