/* scan.h -- running results along rows: products, recurrences, extremes. Tensors are in rows as
** row_reduce.h makes them; what is written has the rows' layout.
*/
#ifndef MOTH_KERNEL_SCAN_H
#define MOTH_KERNEL_SCAN_H

#include "row_reduce.h"

/* i64, f32 or f64. Of floats each result is right whatever the parts of it are. */
int moth_rows_cumprod(const moth_rows *r, char *y);
/* Its gradient, of rows of f64: r the factors, dy that of the products. narrow: y is rounded to f32
** or less. */
int moth_rows_cumprod_back(const moth_rows *r, const moth_rows *dy, double *y, bool narrow);

/* f32 or f64: y[i] = x[i] + factor[i] y[i - 1], the first factor of a row not being used; from_end:
** with y[i + 1], and the last one not used. */
int moth_rows_recur(const moth_rows *r, const moth_rows *factor, char *y, bool from_end);

/* Any dtype but the half ones: the extreme so far, and the last position it stands at; NaN stays
** once it came. */
int moth_rows_cumextreme(const moth_rows *r, char *y, int64_t *position, bool least);

/* f32 or f64: |x| summed up in the power p and the root taken; p may be infinite, or 0: a count. */
int moth_rows_norm(const moth_rows *r, double p, char *y);

#endif
