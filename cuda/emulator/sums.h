/* sums.h -- sums of tensor cores (Fasi, Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA
** tensor cores", 2021): a few products and the earlier sum are shifted to the largest exponent,
** with one bit more than an f32, and rounded towards 0. For mma.h and ptx.h. */
#ifndef MOTH_EMULATED_SUMS_H
#define MOTH_EMULATED_SUMS_H

#include <math.h>

/* x rounded towards 0 to a multiple of `unit`. */
static inline double moth_cut(double x, double unit) { return trunc(x / unit) * unit; }

/* sum + a b, a sum of n products; the elements of b are `step` apart. */
static inline float moth_add_products(float sum, int n, const float *a, const float *b, int step) {
  double largest = fabs((double)sum), total = 0;
  for (int k = 0; k < n; k++) largest = fmax(largest, fabs((double)a[k] * b[step * k]));
  for (int k = 0; k < n; k++) total += (double)a[k] * b[step * k];
  if (!(largest > 0) || !isfinite(largest) || !isfinite(total)) return sum + (float)total;
  const double unit = ldexp(1, ilogb(largest) - 24);
  total = moth_cut(sum, unit);
  for (int k = 0; k < n; k++) total += moth_cut((double)a[k] * b[step * k], unit);
  return total == 0 ? 0 : (float)moth_cut(total, ldexp(1, ilogb(total) - 23));
}

#endif
