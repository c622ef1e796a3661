/* scan.h -- scans along rows: products, linear recurrences, extremes. Inputs are moth_rows
** (row_reduce.h); outputs have the same layout.
*/
#ifndef MOTH_KERNEL_SCAN_H
#define MOTH_KERNEL_SCAN_H

#include "row_reduce.h"

/* i64, f32 or f64. Float results are exact to rounding even if partial products overflow. */
int moth_rows_cumprod(const moth_rows *r, char *y);
/* The gradient of cumprod, for rows of f64. r: the factors, dy: the gradient of the products.
** narrow: the caller rounds y to f32 or to a half type. */
int moth_rows_cumprod_back(const moth_rows *r, const moth_rows *dy, double *y, bool narrow);

/* y[i] = x[i] + factor[i] y[i - 1], in f32 or f64; the first factor of a row is not used. from_end:
** y[i + 1] replaces y[i - 1], and the last factor is not used. */
int moth_rows_recur(const moth_rows *r, const moth_rows *factor, char *y, bool from_end);

/* The running maximum or minimum, and its last position. Any dtype except half types; NaN
** persists. */
int moth_rows_cumextreme(const moth_rows *r, char *y, int64_t *position, bool least);

/* The p-norm of each row, in f32 or f64. p may be infinite; p = 0 counts nonzero elements. */
int moth_rows_norm(const moth_rows *r, double p, char *y);

#endif
