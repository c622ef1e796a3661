/* triangle.h -- systems of equations with a triangular matrix of f32, packed along the rows. */
#ifndef MOTH_KERNEL_TRIANGLE_H
#define MOTH_KERNEL_TRIANGLE_H

#include <stdbool.h>

enum { MOTH_TRIANGLE = 256 }; /* rows up to which this is faster than LAPACK */

/* y (n, k) := X of T X = y. T is n by n, n at most MOTH_TRIANGLE. Only the upper or the lower
** triangle of T is read, and with `unit` not its diagonal. */
void moth_triangle_solve(bool upper, bool unit, int n, int k, const float *t, float *y);

#endif
