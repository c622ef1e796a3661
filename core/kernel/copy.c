/* copy.c -- select by mask, fill, reverse and position checks, for every level of instructions. The
** loops have no branches: a branch on a random mask is mispredicted half of the time and costs
** thirty times as much as a vector select.
*/
#include "copy.h"

#include <string.h>

#include "kernel/math/elementwise.h"

#define LOOPS "copy_level.h"
#include "all_levels.h"

void moth_select_by_mask(int size, int64_t n, void *y, const uint8_t *mask, const void *p,
                         bool p_moves, const void *q, bool q_moves) {
  if (n <= 0) return;
  if (size == 1) MOTH_BEST(choose_8)(n, y, mask, p, p_moves, q, q_moves);
  else if (size == 2) MOTH_BEST(choose_16)(n, y, mask, p, p_moves, q, q_moves);
  else if (size == 4) MOTH_BEST(choose_32)(n, y, mask, p, p_moves, q, q_moves);
  else MOTH_BEST(choose_64)(n, y, mask, p, p_moves, q, q_moves);
}

void moth_fill(int size, int64_t n, void *y, const void *x) {
  if (size == 1) memset(y, *(const uint8_t *)x, (size_t)n);
  else if (size == 2) MOTH_BEST(fill_16)(n, y, x);
  else if (size == 4) MOTH_BEST(fill_32)(n, y, x);
  else MOTH_BEST(fill_64)(n, y, x);
}

void moth_reverse(int size, int64_t n, const void *x, void *y) {
  if (size == 1) MOTH_BEST(reverse_8)(n, x, y);
  else if (size == 2) MOTH_BEST(reverse_16)(n, x, y);
  else if (size == 4) MOTH_BEST(reverse_32)(n, x, y);
  else MOTH_BEST(reverse_64)(n, x, y);
}

bool moth_skip(int size, int64_t n, const void *x, void *y) {
  if (size == 2) MOTH_BEST(skip_16)(n, x, y);
  else if (size == 4) MOTH_BEST(skip_32)(n, x, y);
  return size == 2 || size == 4;
}

#define SPREAD(type)                                             \
  do {                                                           \
    const type *restrict x = from;                               \
    type *restrict y = to;                                       \
    if (by == 2)                                                 \
      for (int64_t i = 0; i < n; i++) y[2 * i] = y[2 * i + 1] = x[i]; \
    else                                                         \
      for (int64_t i = 0; i < n; i++, y += by)                   \
        for (int64_t k = 0; k < by; k++) y[k] = x[i];            \
  } while (0)

void moth_repeat_each(int size, int64_t n, int64_t by, const void *from, void *to) {
  if (size == 1) SPREAD(uint8_t);
  else if (size == 2) SPREAD(uint16_t);
  else if (size == 4) SPREAD(uint32_t);
  else SPREAD(uint64_t);
}

bool moth_positions_shift(int64_t n, const int64_t *from, int64_t *to) {
  return MOTH_BEST(shift)(n, from, to);
}

bool moth_positions_within(int64_t n, const int64_t *at, int64_t first, int64_t size) {
  return MOTH_BEST(within)(n, at, first, size);
}
