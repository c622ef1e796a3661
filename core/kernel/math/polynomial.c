/* polynomial.c -- orthogonal polynomials by the three-term recurrence of each family (Abramowitz
** and Stegun 22.7), in double.
*/
#include "polynomial.h"

/* The polynomial of degree k + 1 is (a x + b) times that of degree k, minus c times that of degree
** k - 1; the polynomial of degree 1 is a x + b. */
typedef struct moth_recurrence {
  double a, b, c;
} moth_recurrence;

INLINED moth_recurrence moth_polynomial_step(int kind, int64_t degree) {
  const double k = (double)degree;
  switch (kind) {
    case MOTH_CHEBYSHEV_T: return (moth_recurrence){k > 0 ? 2 : 1, 0, 1};
    case MOTH_CHEBYSHEV_U: return (moth_recurrence){2, 0, 1};
    case MOTH_CHEBYSHEV_V: return (moth_recurrence){2, k > 0 ? 0 : -1, 1};
    case MOTH_CHEBYSHEV_W: return (moth_recurrence){2, k > 0 ? 0 : 1, 1};
    case MOTH_HERMITE_H: return (moth_recurrence){2, 0, 2 * k};
    case MOTH_HERMITE_HE: return (moth_recurrence){1, 0, k};
    case MOTH_LAGUERRE_L:
      return (moth_recurrence){-1 / (k + 1), (2 * k + 1) / (k + 1), k / (k + 1)};
    default: return (moth_recurrence){(2 * k + 1) / (k + 1), 0, k / (k + 1)}; /* Legendre */
  }
}

#define LEVELS_OF_F64
#define LOOPS "kernel/math/polynomial_real.h"
#include "kernel/each_level.h"

const moth_loops moth_polynomial[1] = {{
  {
    [MOTH_F32] = polynomial_f32, [MOTH_F64] = polynomial_f64_f32,
#if MOTH_HAS_LEVELS
    [MOTH_DTYPES] = polynomial_avx2, [MOTH_DTYPES + 1] = polynomial_avx512,
    [MOTH_DTYPES + 2] = polynomial_f64_avx2, [MOTH_DTYPES + 3] = polynomial_f64_avx512,
#endif
  },
  .name = "polynomial", .cost = 1, .noperands = 2,
}};
