/* transpose.h -- transpose of a block of 4-byte elements. */
#ifndef MOTH_KERNEL_TRANSPOSE_H
#define MOTH_KERNEL_TRANSPOSE_H

#include <stdint.h>

/* y(i, j) := x(j, i) for i < rows, j < cols. Rows of y and columns of x are contiguous; the steps
** between rows of y, and of x, are in bytes. */
void moth_transpose_block(int64_t rows, int64_t cols, const char *x, int64_t x_step, char *y,
               int64_t y_step);

#endif
