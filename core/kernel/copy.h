/* copy.h -- what is done to elements of which only the size is known, and to positions, in vectors
** at the level of instructions that runs here.
*/
#ifndef MOTH_KERNEL_COPY_H
#define MOTH_KERNEL_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* y := mask ? p : q, elements of 1, 2, 4 or 8 bytes; p and q are one value each if they do not
** move. y may be p or q. */
void moth_select_by_mask(int size, int64_t n, void *y, const uint8_t *mask, const void *p,
                         bool p_moves, const void *q, bool q_moves);

/* Every element of y := the one at x. */
void moth_fill(int size, int64_t n, void *y, const void *x);

/* y := each of x's n elements `by` times in a row, 16 at most; the two are apart. */
void moth_repeat_each(int size, int64_t n, int64_t by, const void *x, void *y);

/* y := x from its end on; the two are apart. */
void moth_reverse(int size, int64_t n, const void *x, void *y);

/* y := every second of x's elements, n of them; the two are apart. false: not for such a size. */
bool moth_skip(int size, int64_t n, const void *x, void *y);

/* to := positions from 0 for those from 1, negative ones as they are; false: a 0 was there. */
bool moth_positions_shift(int64_t n, const int64_t *from, int64_t *to);

/* Whether all lie in first .. first + size - 1. */
bool moth_positions_within(int64_t n, const int64_t *at, int64_t first, int64_t size);

#endif
