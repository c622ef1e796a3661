/* exponent.c -- splits numbers into mantissas and powers of two, by their bits. */
#include "exponent.h"

#include <string.h>

#include "elementwise.h"

typedef struct parts {
  const void *x;
  void *mantissa;
  int32_t *exponent;
} parts;

/* digits: bits of the fraction; half: the stored exponent of 1/2. Denormal numbers are scaled to
** normal numbers first. */
#define EXPONENTS(name, type, uint, sint, digits, half)                                     \
  static void exponents_##name(int64_t i, int64_t end, int thread, const void *arg) {       \
    const parts *p = arg;                                                                   \
    const type *x = p->x;                                                                   \
    type *mantissa = p->mantissa;                                                           \
    int32_t *exponent = p->exponent;                                                        \
    const uint most = (uint)(2 * half + 3), field = most << digits;                         \
    (void)thread;                                                                           \
    MOTH_IVDEP for (; i < end; i++) {                                                       \
      uint bits, normal;                                                                    \
      memcpy(&bits, &x[i], sizeof bits);                                                    \
      const bool small = (bits & field) == 0, plain = (bits & field) != field && x[i] != 0; \
      const type v = small ? x[i] * (type)((uint)1 << (digits + 1)) : x[i];                 \
      memcpy(&normal, &v, sizeof normal);                                                   \
      const sint e = (sint)(normal >> digits & most) - half - (small ? digits + 1 : 0);     \
      const uint m = (normal & ~field) | (uint)half << digits;                              \
      bits = plain ? m : bits;                                                              \
      memcpy(&mantissa[i], &bits, sizeof bits);                                             \
      exponent[i] = plain ? (int32_t)e : 0;                                                 \
    }                                                                                       \
  }
EXPONENTS(f32, float, uint32_t, int32_t, 23, 126)
EXPONENTS(f64, double, uint64_t, int64_t, 52, 1022)

int moth_exponents_of(moth_ctx *ctx, int64_t n, int dtype, const void *x, void *mantissa,
                      int32_t *exponent) {
  const parts p = {x, mantissa, exponent};
  return moth_parallel(ctx, n, 1024, 1, dtype == MOTH_F32 ? exponents_f32 : exponents_f64, &p);
}
