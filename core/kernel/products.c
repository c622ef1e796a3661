/* products.c -- products of floats along rows and across rows, and the gradient of prod. */
#include "products.h"

#include <stdbool.h>

#include "kernel/math/elementwise.h"
#include "reduce.h"
#include "kernel/math/extended_range.h"

/* The argument of prod_back. */
typedef struct moth_prod_back {
  int64_t length;
  const void *x, *dy;
  void *y;
} moth_prod_back;

#define LEVELS_OF_F64
#define LOOPS "kernel/products_real.h"
#include "each_level.h"

void moth_prod_take_f32(int64_t n, int64_t r, void *acc, const char *x, int64_t step,
                        int64_t next) {
  MOTH_BEST(prod_take)(n, r, acc, x, step, next);
}

void moth_prod_take_f64(int64_t n, int64_t r, void *acc, const char *x, int64_t step,
                        int64_t next) {
  MOTH_BEST(prod_take_f64)(n, r, acc, x, step, next);
}

void moth_prod_start(int64_t n, void *scratch) {
  moth_extended *acc = scratch;
  for (int64_t j = 0; j < n; j++) acc[j] = (moth_extended){1, 0};
}

void moth_prod_join(int64_t n, void *scratch, const void *more) {
  moth_extended *acc = scratch;
  const moth_extended *other = more;
  for (int64_t j = 0; j < n; j++) {
    moth_extended_times(acc + j, other[j].p);
    acc[j].e += other[j].e;
  }
}

void moth_prod_f32_end(int64_t n, const void *acc, char *y, int64_t count) {
  (void)count;
  for (int64_t j = 0; j < n; j++)
    ((float *)(void *)y)[j] = (float)moth_extended_value((const moth_extended *)acc + j);
}

void moth_prod_f64_end(int64_t n, const void *acc, char *y, int64_t count) {
  (void)count;
  for (int64_t j = 0; j < n; j++)
    ((double *)(void *)y)[j] = moth_extended_value((const moth_extended *)acc + j);
}

int moth_rows_prod_back(const moth_rows *r, const void *dy, void *y) {
  const moth_prod_back b = {.length = r->length, .x = r->x, .dy = dy, .y = y};
  moth_work *work = r->dtype == MOTH_F32 ? MOTH_BEST(prod_back) : MOTH_BEST(prod_back_f64);
  return moth_rows_share(r, 1, work, &b);
}
