/* divide.c -- x[i] /= by. A transfer between processes ends with it when it has summed a mean. */
#include "divide.h"
#include "moth.h"

void moth_divide(int dtype, void *x, int64_t n, double by) {
  if (dtype == MOTH_F32) {
    float *at = x;
    const float number = (float)by;
    for (int64_t i = 0; i < n; i++) at[i] /= number;
  } else {
    double *at = x;
    for (int64_t i = 0; i < n; i++) at[i] /= by;
  }
}
