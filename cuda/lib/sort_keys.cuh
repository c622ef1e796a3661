/* sort_keys.cuh -- maps numbers to unsigned integers with the same order; NaN is the largest, and
** -0 equals 0. */
#ifndef MOTH_CUDA_SORT_KEYS_CUH
#define MOTH_CUDA_SORT_KEYS_CUH

#include "reduce.cuh"

HD uint64_t key_of(float v) {
  const uint32_t bits = bits_of(v + 0.0f); /* the sum turns -0 into 0 */
  return v != v ? UINT32_MAX : bits ^ (bits >> 31 ? UINT32_MAX : (uint32_t)1 << 31);
}
HD uint64_t key_of(double v) {
  const double sum = v + 0.0;
  uint64_t bits;
  memcpy(&bits, &sum, 8);
  return v != v ? UINT64_MAX : bits ^ (bits >> 63 ? UINT64_MAX : (uint64_t)1 << 63);
}
template <class V> HD uint64_t key_of(V v) { /* of integers */
  const uint64_t flip = (V)-1 < (V)0 ? (uint64_t)1 << (8 * sizeof(V) - 1) : 0;
  return ((uint64_t)v & (UINT64_MAX >> (64 - 8 * sizeof(V)))) ^ flip;
}

/* The largest key of a type; for floats that of NaN. */
template <class T> HD uint64_t last_key() { return UINT64_MAX >> (64 - 8 * sizeof(real_of<T>)); }

/* How many of n sorted keys are below v; or, if `right`, not above it. It probes the same indices
** as the CPU, so that both find the same also in unsorted keys. */
template <class At> HD int64_t rank_among(int64_t n, uint64_t v, bool right, At key) {
  const auto below = [&](int64_t i) { return key(i) < v || (right && key(i) == v); };
  int64_t at = 0;
  for (int64_t half = n / 2; n > 1; n -= half, half = n / 2) at += below(at + half - 1) ? half : 0;
  return at + (n > 0 && below(at));
}

#endif
