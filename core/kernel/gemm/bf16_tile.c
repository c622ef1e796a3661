/* bf16_tile.c -- the f32 tile's product and sum where each number is a pair of bf16: by vectors,
** where registers do not hold tiles (tile_amx.c).
*/
#include "amx.h"
#include "tile.h"

#if MOTH_HAS_LEVELS

#define TARGET MOTH_PAIRS_TARGET
#define NAME(f) f##_pairs
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
  DOT_PAIRS(sum, (operand)((words16){0} + (number)), (operand)(numbers))
#include "tile_product.h"

bool moth_tile_pairs(moth_tile *to) {
  if (moth_tile_amx(to)) return true;
  if (!moth_pairs_dot()) return false;
  *to = *moth_tile_best();
  to->product = product_pairs;
  to->sum = sum_pairs;
  return true;
}

#else

bool moth_tile_pairs(moth_tile *to) {
  (void)to;
  return false;
}

#endif
