/* amx.h -- AMX-BF16 tile registers, for functions with AMX_TARGET: 16 rows of 16 f32 sums, or of 16
** pairs of bf16. A thread opens them, computes, and closes them. Tiles 0 to 3 hold sums. A product
** of more than 16 rows is `tall` and uses 2 and 3, a product of more than 16 columns is `wide` and
** uses 1 and 3.
*/
#ifndef MOTH_KERNEL_AMX_H
#define MOTH_KERNEL_AMX_H

#include <stdbool.h>
#include <stdint.h>

#include "bf16_dot.h"
#include "bf16_product.h"
#include "tile.h"

#if MOTH_HAS_LEVELS

#define AMX_SIDE 16 /* rows of a tile, and words of a row */

/* True if the processor has tiles, the system permits them to this process, and MOTH_ISA allows
** them. */
bool moth_amx_here(void);
/* moth_bf16_run for contiguous pairs in a row. */
void moth_amx_run(const moth_bf16_product *p);
/* moth_tile_bf16 with AMX tiles. */
bool moth_tile_amx(moth_tile *to);

#define AMX_TARGET __attribute__((target(MOTH_AVX512_SET ",avx512bf16,amx-tile,amx-bf16")))

/* Words of a row, as vectors. */
#define AMX_AT(p) (*(const loose_words16 *)(const void *)(p))
#define AMX_TO(p) (*(loose_words16 *)(void *)(p))

#define AMX_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile ::: "memory")
#define AMX_LOAD_BYTES(tile, p, bytes)                            \
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(p), \
                   "r"((int64_t)(bytes)) : "memory")
#define AMX_LOAD(tile, p, words) AMX_LOAD_BYTES(tile, p, (words) * 4)
#define AMX_STORE(tile, p, words)                                  \
  __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(p), \
                   "r"((int64_t)(words) * 4) : "memory")
/* sums += a b; a row of b has the pairs of two rows */
#define AMX_DOT(sums, a, b) \
  __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #sums ::: "memory")
#define AMX_CLOSE() __asm__ volatile("tilerelease" ::: "memory")

/* Configures the tiles: 0, 1 and 4 have `first` rows, 2, 3 and 5 `second` rows, 6 and 7 all
** rows. */
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

AMX_TARGET INLINED void amx_zero(void) {
  AMX_ZERO(0);
  AMX_ZERO(1);
  AMX_ZERO(2);
  AMX_ZERO(3);
}

AMX_TARGET INLINED void amx_load(bool tall, bool wide, const float *c, int64_t ldc) {
  const float *low = c + AMX_SIDE * ldc;
  AMX_LOAD(0, c, ldc);
  if (wide) AMX_LOAD(1, c + AMX_SIDE, ldc);
  if (tall) AMX_LOAD(2, low, ldc);
  if (tall && wide) AMX_LOAD(3, low + AMX_SIDE, ldc);
}

AMX_TARGET INLINED void amx_store(bool tall, bool wide, float *c, int64_t ldc) {
  float *low = c + AMX_SIDE * ldc;
  AMX_STORE(0, c, ldc);
  if (wide) AMX_STORE(1, c + AMX_SIDE, ldc);
  if (tall) AMX_STORE(2, low, ldc);
  if (tall && wide) AMX_STORE(3, low + AMX_SIDE, ldc);
}

/* sums += a b over 16 pairs along k. Rows of a are `down` bytes apart, rows of b are `across` bytes
** apart. `more` points to b's columns 16 to 31. */
AMX_TARGET INLINED void amx_multiply(const int tall, const int wide, const void *a, int64_t down,
                                     const void *b, const void *more, int64_t across) {
  AMX_LOAD_BYTES(4, a, down);
  AMX_LOAD_BYTES(6, b, across);
  AMX_DOT(0, 4, 6);
  if (wide) AMX_LOAD_BYTES(7, more, across);
  if (wide) AMX_DOT(1, 4, 7);
  if (tall) AMX_LOAD_BYTES(5, (const char *)a + AMX_SIDE * down, down);
  if (tall) AMX_DOT(2, 5, 6);
  if (tall && wide) AMX_DOT(3, 5, 7);
}

/* f(tall, wide, ...) with constants for tall and wide */
#define AMX_OF_SIZE(f, tall, wide, ...)                                            \
  ((tall) && (wide) ? f(1, 1, __VA_ARGS__) : (tall) ? f(1, 0, __VA_ARGS__)         \
                    : (wide) ? f(0, 1, __VA_ARGS__) : f(0, 0, __VA_ARGS__))

#endif

#endif
