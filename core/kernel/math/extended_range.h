/* extended_range.h -- products of many floats: a double with a separate exponent, so that no
** partial product overflows or underflows.
*/
#ifndef MOTH_KERNEL_EXTENDED_RANGE_H
#define MOTH_KERNEL_EXTENDED_RANGE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* The number p 2^e. |p| is within 2^-500 .. 2^500, or p is 0, infinite or NaN. */
typedef struct moth_extended {
  double p;
  int64_t e;
} moth_extended;

/* The bits of |x|, and limits of such bits. */
static inline int64_t moth_size_bits(double x) {
  int64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits & INT64_MAX;
}
#define MOTH_EXTENDED_LEAST ((int64_t)(1023 - 500) << 52)
#define MOTH_EXTENDED_MOST ((int64_t)(1023 + 500) << 52)
#define MOTH_FINITE_MOST (((int64_t)0x7ff << 52) - 1)

/* Negative if bits (one number or a vector) are not within least .. most. */
#define MOTH_BITS_OUTSIDE(bits, least, most) (((bits) - (least)) | ((most) - (bits)))
/* Negative if |x| is not within 2^-500 .. 2^500; negative if x is 0 or not finite. */
#define MOTH_EXTENDED_OUTSIDE(bits) MOTH_BITS_OUTSIDE(bits, MOTH_EXTENDED_LEAST, MOTH_EXTENDED_MOST)
#define MOTH_EXTENDED_SPECIAL(bits) MOTH_BITS_OUTSIDE(bits, 1, MOTH_FINITE_MOST)

static inline void moth_extended_times(moth_extended *s, double x) {
  const double p = s->p * x;
  if (MOTH_EXTENDED_OUTSIDE(moth_size_bits(p)) >= 0) {
    s->p = p;
    return;
  }
  if ((MOTH_EXTENDED_SPECIAL(moth_size_bits(s->p)) | MOTH_EXTENDED_SPECIAL(moth_size_bits(x))) <
      0) {
    s->p = p;
    return;
  }
  int up, more;
  s->p = frexp(s->p, &up) * frexp(x, &more);
  s->e += up + more;
}

static inline double moth_extended_value(const moth_extended *s) {
  if (s->e == 0) return s->p;
  return ldexp(s->p, (int)(s->e > 5000 ? 5000 : s->e < -5000 ? -5000 : s->e));
}

#endif
