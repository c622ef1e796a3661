/* copy.h -- copies of elements by their size (select by mask, fill, repeat, reverse) and checks of
** positions, for every level of instructions.
*/
#ifndef MOTH_KERNEL_COPY_H
#define MOTH_KERNEL_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* y := mask ? p : q, for elements of 1, 2, 4 or 8 bytes. p is an array if p_moves, else one value;
** q likewise. y may be p or q. */
void moth_select_by_mask(int size, int64_t n, void *y, const uint8_t *mask, const void *p,
                         bool p_moves, const void *q, bool q_moves);

/* All n elements of y := *x. */
void moth_fill(int size, int64_t n, void *y, const void *x);

/* y := each of the n elements of x, `by` times (at most 16). x and y do not overlap. */
void moth_repeat_each(int size, int64_t n, int64_t by, const void *x, void *y);

/* y := x in reverse order; x and y do not overlap. */
void moth_reverse(int size, int64_t n, const void *x, void *y);

/* y := every second element of x, n of them. x and y do not overlap. Returns false if there is no
** loop for this size. */
bool moth_skip(int size, int64_t n, const void *x, void *y);

/* to := positions that count from 0, from positions that count from 1; negative positions stay as
** they are. Returns false if a position is 0. */
bool moth_positions_shift(int64_t n, const int64_t *from, int64_t *to);

/* True if all positions are in first .. first + size - 1. */
bool moth_positions_within(int64_t n, const int64_t *at, int64_t first, int64_t size);

#endif
