/* amx.h -- tiles of a matrix as registers (AMX-BF16), for functions with AMX_TARGET: 16 rows of 16
** f32 sums, or of 16 pairs of bf16. A thread opens them, computes, and closes them again.
*/
#ifndef MOTH_KERNEL_AMX_H
#define MOTH_KERNEL_AMX_H

#include <stdbool.h>
#include <stdint.h>

#include "level.h"
#include "pairs.h"

#define AMX_SIDE 16 /* rows of a tile, and words of a row */

/* Whether this processor has them, the system lends them to this process, and MOTH_ISA allows
** it. */
bool moth_amx_here(void);
/* moth_pairs_run where a row's pairs lie together. */
void moth_amx_run(const moth_pairs *p);

#if MOTH_HAS_LEVELS

#define AMX_TARGET __attribute__((target(MOTH_AVX512_SET ",avx512bf16,amx-tile,amx-bf16")))

#define AMX_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile ::: "memory")
#define AMX_LOAD_BYTES(tile, p, bytes)                            \
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(p), \
                   "r"((int64_t)(bytes)) : "memory")
#define AMX_LOAD(tile, p, words) AMX_LOAD_BYTES(tile, p, (words) * 4)
#define AMX_STORE(tile, p, words)                                  \
  __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(p), \
                   "r"((int64_t)(words) * 4) : "memory")
/* sums += a b, where a row of b holds pairs of two rows */
#define AMX_DOT(sums, a, b) \
  __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #sums ::: "memory")
#define AMX_CLOSE() __asm__ volatile("tilerelease" ::: "memory")

/* Tiles 0, 1 and 4 have `first` rows, 2, 3 and 5 `second` ones, and 6 and 7 all. */
AMX_TARGET INLINED void amx_open(int first, int second) {
  struct {
    uint8_t palette, start, rest[14];
    uint16_t bytes[16];
    uint8_t rows[16];
  } shape = {.palette = 1};
  for (int i = 0; i < 8; i++) {
    shape.bytes[i] = 4 * AMX_SIDE;
    shape.rows[i] = (uint8_t)(i >= 6 ? AMX_SIDE : i == 2 || i == 3 || i == 5 ? second : first);
  }
  __asm__ volatile("ldtilecfg %0" ::"m"(shape) : "memory");
}

#endif

#endif
