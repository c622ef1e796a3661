/* special.c -- loops of the functions that op/special.h lists. */
#include "special.h"

#include "special_real.h"

/* C's lgamma writes a global, which threads share. */
static double moth_lgamma_f64(double x) {
  int sign;
  return lgamma_r(x, &sign);
}

static float moth_lgamma_f32(float x) { return (float)moth_lgamma_f64((double)x); }
static float moth_erfinv_f32(float x) { return (float)moth_erfinv_f64((double)x); }
static float moth_digamma_f32(float x) { return (float)moth_digamma_f64((double)x); }
static float moth_polygamma_f32(float n, float x) {
  return (float)moth_polygamma_f64((double)n, (double)x);
}

#define LISTS(ONE, TWO, THREE) \
  SPECIAL_FUNCTIONS(ONE)       \
  SPECIAL_OTHERS(ONE)
MOTH_FAMILY(special, LISTS)
