/* special.c -- loops of the functions that op/special.h lists. */
#include "special.h"

#include "bessel_loops.h"
#include "special_bessel.h"
#include "special_loops.h"
#include "special_rare.h"
#include "special_derivatives.h"
#include "tail_loops.h"

/* C's lgamma writes a global variable, which threads share. */
static double moth_lgamma_f64(double x) {
#ifdef _WIN32 /* Windows' lgamma writes no global variable */
  return lgamma(x);
#else
  int sign;
  return lgamma_r(x, &sign);
#endif
}

#define OF_TWO(f)                                                 \
  static float moth_##f##_f32(float a, float x) {                \
    return (float)moth_##f##_f64((double)a, (double)x);          \
  }
OF_TWO(polygamma) OF_TWO(erfcx_slope) OF_TWO(log_ndtr_slope) OF_TWO(zeta)
OF_TWO(gamma_slope)
static float moth_igamma_f32(float a, float x) {
  double low, high;
  moth_gamma_parts(a, x, 1e-10, &low, &high);
  return (float)low;
}
static float moth_igammac_f32(float a, float x) {
  double low, high;
  moth_gamma_parts(a, x, 1e-10, &low, &high);
  return (float)high;
}
#define OF_THREE(f)                                               \
  static float moth_##f##_f32(float a, float b, float x) {       \
    return (float)moth_##f##_f64((double)a, (double)b, (double)x); \
  }
OF_THREE(bessel) OF_THREE(sinc_slope)

#define LISTS(ONE, TWO, THREE) \
  SPECIAL_FUNCTIONS(ONE)       \
  SPECIAL_OTHERS(ONE)          \
  SPECIAL_PAIRS(TWO)
MOTH_FAMILY(special, LISTS)

#define BESSEL_LISTS(ONE, TWO, THREE) BESSEL_FUNCTIONS(ONE) LOGIT_BACK(TWO)
MOTH_FAMILY(bessel, BESSEL_LISTS)
