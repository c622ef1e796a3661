/* products.h -- products of floats as a reducer (reduce.h), and the gradient of prod. */
#ifndef MOTH_KERNEL_PRODUCTS_H
#define MOTH_KERNEL_PRODUCTS_H

#include "row_reduce.h"

#define MOTH_PROD_ACC 16 /* bytes of an accumulator, a moth_extended */

void moth_prod_take_f32(int64_t n, int64_t r, void *acc, const char *x, int64_t step, int64_t next);
void moth_prod_take_f64(int64_t n, int64_t r, void *acc, const char *x, int64_t step, int64_t next);
void moth_prod_start(int64_t n, void *acc);
void moth_prod_join(int64_t n, void *acc, const void *more);
void moth_prod_f32_end(int64_t n, const void *acc, char *y, int64_t count);
void moth_prod_f64_end(int64_t n, const void *acc, char *y, int64_t count);

/* y := dy[row] times the product of the other elements of the row; f32 or f64, the dtype of the
** rows. */
int moth_rows_prod_back(const moth_rows *r, const void *dy, void *y);

#endif
