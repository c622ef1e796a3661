/* exp_small.h -- the exponential of the softmaxes: plain arithmetic that vectorises. */
#ifndef MOTH_KERNEL_EXP_SMALL_H
#define MOTH_KERNEL_EXP_SMALL_H

#include <stdint.h>
#include <string.h>

/* exp for results up to a few: Cephes' polynomial after reduction by ln 2 in two parts, 1 ulp;
** below -87.3 it gives 1.2e-38 at most. Plain arithmetic, so that loops over it vectorise. */
static inline float exp_small(float x) {
  float c = x < -87.3f ? -87.3f : x; /* NaN passes */
  c = c > 88.0f ? 88.0f : c;
  float n = c * 1.44269504f + 12582912.0f; /* rounds to an integer in the low bits */
  uint32_t bits;
  memcpy(&bits, &n, 4);
  n -= 12582912.0f;
  float r = c - n * 0.693145751953125f - n * 1.42860677e-6f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  float y = p * r * r + r + 1.0f;
  uint32_t scaled;
  memcpy(&scaled, &y, 4);
  scaled += bits << 23;
  memcpy(&y, &scaled, 4);
  return x < -87.3f ? 0 : x != x ? x : y;
}

#endif
