/* special.cu -- erfinv, lgamma and its slopes, as core/op/special.h lists them. */
#include "../core/op/special.h"

#include "../core/kernel/special_real.h"
#include "elementwise.cuh"

template <class real> HD real moth_erfinv(real x) { return (real)moth_erfinv_f64((double)x); }
template <class real> HD real moth_lgamma(real x) { return lgamma(x); }
template <class real> HD real moth_digamma(real x) { return (real)moth_digamma_f64((double)x); }
template <class real> HD real moth_polygamma(real n, real x) {
  return (real)moth_polygamma_f64((double)n, (double)x);
}

#define LISTS(ONE, TWO, THREE) \
  SPECIAL_FUNCTIONS(ONE)       \
  SPECIAL_OTHERS(ONE)
MOTH_CUDA_FAMILY(LISTS)
