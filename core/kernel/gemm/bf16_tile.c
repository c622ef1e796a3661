/* bf16_tile.c -- the product and the sum of a convolution tile whose numbers are pairs of bf16:
** with AMX (tile_amx.c) or with vectors.
*/
#include "amx.h"
#include "tile.h"

#if MOTH_HAS_LEVELS

#define TARGET MOTH_BF16_TARGET
#define NAME(f) f##_bf16
#define LANES 16
#define ROWS 12
#define TAPS1 10
#define TAPS2 8
#define TAPS4 6
#define VECTOR vector16
#define LOOSE loose16
#define NUMBER uint32_t
#define NUMBERS words16
#define LOOSE_NUMBERS loose_words16
#define MORE(sum, number, numbers) \
  BF16_DOT(sum, (operand)((words16){0} + (number)), (operand)(numbers))
#include "tile_product.h"

bool moth_tile_bf16(moth_tile *to) {
  if (moth_tile_amx(to)) return true;
  if (!moth_bf16_dot()) return false;
  *to = *moth_tile_best();
  to->product = product_bf16;
  to->sum = sum_bf16;
  return true;
}

#else

bool moth_tile_bf16(moth_tile *to) {
  (void)to;
  return false;
}

#endif
