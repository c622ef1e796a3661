/* special.h -- the loops of op/special.h, moth_special.erfinv[dtype], and moth_bessel. */
#ifndef MOTH_KERNEL_SPECIAL_H
#define MOTH_KERNEL_SPECIAL_H

#include "op/special.h"
#include "elementwise.h"

/* Bessel functions, sin(x) / x, first derivatives and separate gradients. These are not in maps.h,
** because its numbers are also those of devices, which do not have these functions. */
#define BESSEL_WAVE(F, name, kind, n)                 \
  F(WAVE, bessel_##name, FOR_REAL(moth_##name)(x), (real)moth_bessel_at(kind, n, (double)x))
#define BESSEL_FUNCTIONS(F)                                              \
  BESSEL_WAVE(F, j0, 0, 0)                                           \
  BESSEL_WAVE(F, j1, 1, 0)                                           \
  BESSEL_WAVE(F, y0, 2, 0)                                           \
  BESSEL_WAVE(F, y1, 3, 0)                                           \
  BESSEL_WAVE(F, j0_slope, 0, 1)                                     \
  BESSEL_WAVE(F, j1_slope, 1, 1)                                     \
  BESSEL_WAVE(F, y0_slope, 2, 1)                                     \
  BESSEL_WAVE(F, y1_slope, 3, 1)                                     \
  BESSEL_WAVE(F, airy, MOTH_BESSEL_AIRY, 0)                          \
  F(CURVE, bessel_i1_slope, FOR_REAL(moth_i1_slope)(x))               \
  F(CURVE, bessel_i0e_slope, FOR_REAL(moth_i0e_slope)(x))             \
  F(CURVE, bessel_i1e_slope, FOR_REAL(moth_i1e_slope)(x))             \
  F(WAVE, spherical_j0, FOR_REAL(moth_spherical_j0)(x),               \
    (real)moth_sinc_slope_f64(0, 0, (double)x))                       \
  F(CURVE, trigamma, FOR_REAL(moth_trigamma)(x))                     \
  F(CURVE, sinc_first, FOR_REAL(moth_sinc_first)(x))                 \
  F(CURVE, erfcx_first, FOR_REAL(moth_erfcx_first)(x))               \
  F(CURVE, log_ndtr_first, FOR_REAL(moth_log_ndtr_first)(x))
/* The gradient of logit(y), where x is dy. Outside a .. b, where logit clamps y, the result is
** c. */
#define LOGIT_BACK(F) F(REAL, logit_back, y < a || y > b ? c : x / (y * (1 - y)))

typedef struct moth_special_loops {
  SPECIAL_FUNCTIONS(MOTH_MEMBER)
  SPECIAL_OTHERS(MOTH_MEMBER)
  SPECIAL_PAIRS(MOTH_MEMBER)
} moth_special_loops;
extern const moth_special_loops moth_special;

typedef struct moth_bessel_loops {
  BESSEL_FUNCTIONS(MOTH_MEMBER)
  LOGIT_BACK(MOTH_MEMBER)
} moth_bessel_loops;
extern const moth_bessel_loops moth_bessel;

#endif
